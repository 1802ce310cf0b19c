package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
)

//go:embed report.html.tmpl
var reportTemplate string

var report = template.Must(template.New("report").Parse(reportTemplate))

// page is what the report's template shows.
type page struct {
	Rec           *results.Record
	CSS           template.CSS
	Word          string
	Glyph         string
	Tally         string
	About         string
	Tiles         []tile
	Summary       *summary
	Compare       *compareView
	Reproduced    *reproducedView
	Plots         []panel
	Placements    []placementView
	Past          *pastView
	Occupancy     []panel
	Times         []panel
	TimeUnit      string
	TimesLeft     int
	Model         string
	Topology      template.HTML
	Trees         template.HTML
	TreeRows      []treeRow
	TreesOf       string
	LoadsOf       string
	Loaded        bool
	Links         []linkRow
	Checks        []checkRow
	HasPhase      bool
	HasLab        bool
	Models        []modelRow
	FidelityRows  []fidelityRow
	Fidelity      template.HTML
	Jobs          []jobRow
	Operations    bool // some of Jobs say what became of their all-reduces
	Troubles      []trouble
	Facts         []fact
	Hosts         []results.HostFacts
	Calib         []fact
	Rerun, Beside string
	Observed      string
	ObservedTitle string
	PlotsTitle    string
}

// tile is a figure at the top of the page. Metric and Key say which it is and its number, for scripts.
type tile struct{ Label, Value, Note, Class, Metric, Key string }

type fact struct{ Name, Value string }

// linkRow is a row of the table of links. The *Key fields are numbers in bit/s.
type linkRow struct {
	Name, Capacity, Observed, Lab, Predicted, Utilisation string
	CapacityKey, ObservedKey, Lo, Hi, PredictedKey        string
	UtilisationKey                                        string
}

// checkRow is a row of the table of checks. The *Key fields are what it sorts by.
type checkRow struct {
	Class, Glyph, Verdict, Expect, Point, Phase, Of, Worst string
	Measured, Lab, Predicted, Error, Tolerance             string
	MeasuredKey, PredictedKey, ErrorKey                    string
	Bottleneck, Why                                        string
	Gate                                                   bool
	Rank                                                   int
	Metric, Predictor, Code, Lo, Hi                        string
	Index                                                  int
}

type modelRow struct{ Model, Metric, Mean, Max, Worst, N string }

// fidelityRow is a model that was held against the run. The *Key fields are parts of 1.
type fidelityRow struct{ Model, Error, Range, N, ErrorKey, Lo, Hi string }

type jobRow struct {
	Where string
	results.JobSummary
	JCT, AlgBW, BusBW, Packets, Resends, Sums string

	INA string // all-reduces
}

func glyph(o results.Outcome) string {
	switch o {
	case results.Pass:
		return "✓"
	case results.Fail:
		return "✕"
	case results.ErrorOutcome:
		return "!"
	case results.Skipped, results.NotJudged:
		return "–"
	}
	return "?"
}

// Beside is what a report shows that is not in the run's record. Each part may be left out.
type Beside struct {
	Past *Past // package history fills it
	// Fidelity has drawings and tables of the models that were held against the run; package
	// fidelity writes it.
	Fidelity template.HTML
}

// WriteReport writes the report: one page that needs no network, readable without scripts, in light and dark, and on paper.
// samples may be nil; then there are no rates over time.
func WriteReport(w io.Writer, rec *results.Record, samples []results.Sample, beside Beside) error {
	var b bytes.Buffer
	if err := report.Execute(&b, newPage(rec, samples, beside, 0)); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// newPage is what the page of a run shows, with drawings so many pixels wide; 0: as a page has them.
func newPage(rec *results.Record, samples []results.Sample, beside Beside, width float64) page {
	s := &sheet{width: width}
	compare := s.viewComparison(rec) // its colours come first
	s.jobs(rec)
	p := page{
		Rec: rec, CSS: template.CSS(plot.PaletteCSS + plot.CSS), Word: human.UpperFirst(wordOf(rec)), Glyph: glyph(cmp.Or(rec.Outcome, results.ErrorOutcome)),
		Tally: tallyOutcomes(rec), About: aboutRun(rec), Summary: summarize(rec), Compare: compare, Reproduced: viewReproduced(rec), Plots: s.drawPlots(rec), Placements: s.viewPlacements(rec), Model: linkPredictor(rec),
		Hosts: rec.Hosts, Troubles: troublesOf(rec), Rerun: rerunOf(rec), Beside: besideOf(rec),
		Observed: string(cmp.Or(rec.Kind, results.Measured)),
	}
	p.ObservedTitle = human.UpperFirst(p.Observed)
	p.PlotsTitle = p.ObservedTitle + " figures"
	if slices.ContainsFunc(p.Plots, func(p panel) bool { return len(p.Table) > 0 && len(p.Table[0].Predictors) > 0 }) {
		p.PlotsTitle = p.ObservedTitle + " against predicted"
	}
	p.Times, p.TimeUnit, p.TimesLeft = s.drawTimelines(rec, samples)
	p.Occupancy, p.Past, p.Fidelity = s.drawOccupancy(rec, samples), beside.Past.view(), beside.Fidelity
	if len(rec.Topology.Nodes) > 0 {
		loads, of := LinkLoads(rec)
		p.LoadsOf, p.Loaded = of, loads != nil
		p.Topology = template.HTML(plot.DrawTopology("topo", rec.Topology, loads, nil))
		p.Links = linkRowsOf(rec, loads)
		p.Trees, p.TreeRows, p.TreesOf = s.viewTrees(rec)
	}
	p.Tiles = tilesOf(rec)
	for _, c := range rec.Checks {
		row := checkRowOf(rec, c)
		p.HasPhase = p.HasPhase || c.Phase > 0
		p.HasLab = p.HasLab || row.Lab != ""
		p.Checks = append(p.Checks, row)
	}
	// What needs attention first; otherwise the order of the experiment.
	slices.SortStableFunc(p.Checks, func(a, b checkRow) int { return cmp.Compare(a.Rank, b.Rank) })
	for _, m := range ungatedModels(rec) {
		p.Models = append(p.Models, modelRow{modelName(m.Predictor), human.Measure(m.Metric), sizeOf(m, m.Mean), sizeOf(m, m.Max), m.Worst, human.Grouped(strconv.Itoa(m.N))})
	}
	for _, f := range rec.Fidelity {
		p.FidelityRows = append(p.FidelityRows, fidelityRow{f.Of, human.Percent(f.Value), human.Percent(f.Lo) + " to " + human.Percent(f.Hi), human.Grouped(strconv.Itoa(f.N)), human.Exact(f.Value), human.Exact(f.Lo), human.Exact(f.Hi)})
	}
	p.Jobs = jobRowsOf(rec)
	p.Operations = slices.ContainsFunc(p.Jobs, func(j jobRow) bool { return j.Ops > 0 })
	p.Facts = factsOf(rec)
	for _, c := range rec.Calibration {
		p.Calib = append(p.Calib, fact{strings.TrimSpace(c.What + " " + c.Of), human.QuantityCI(c.Value, c.Lo, c.Hi, c.Unit) + ", " + human.Plural(c.N, "reading")})
	}
	return p
}

func checkRowOf(rec *results.Record, c results.Check) checkRow {
	r := checkRow{
		Class: string(c.Outcome), Glyph: glyph(c.Outcome), Verdict: string(c.Outcome), Expect: c.Expect, Point: c.Point, Of: c.Of,
		Metric: c.Metric, Predictor: c.Predictor, Code: c.FailureCode(), Index: c.Index,
		Phase: strconv.Itoa(c.Phase + 1), Tolerance: c.ToleranceText(), Bottleneck: c.Bottleneck, Why: c.Why, Gate: c.Gate,
	}
	if c.Outcome == results.Inconclusive && c.More > 0 {
		r.Why += " (" + c.MoreText() + ")"
	}
	r.Rank = map[results.Outcome]int{results.ErrorOutcome: 0, results.Fail: 0, results.Inconclusive: 1, results.Pass: 2, results.Skipped: 3}[c.Outcome]
	if !c.Gate {
		r.Rank = 4
		r.Class = "ungated"
	}
	key := human.Exact
	if c.Repeats == 0 {
		r.Measured = "–"
		if c.Predicted != 0 {
			r.Predicted, r.PredictedKey = human.Quantity(c.Predicted, c.Unit), key(c.Predicted)
		}
		return r
	}
	r.Measured, r.MeasuredKey, r.Lo, r.Hi = c.MeasuredText()+rangeBeside(rec, c), key(c.Measured), key(c.Lo), key(c.Hi)
	if c.IsError() {
		r.Measured = c.Statistic + " error " + r.Measured
		r.Worst = c.Worst
		return r
	}
	if !c.Unpredicted {
		r.Predicted, r.PredictedKey = c.PredictedText(), key(c.Predicted)
		r.Error, r.ErrorKey = human.SignedError(c.Error, c.Relative, c.Unit), key(c.Error)
	}
	if rec.Scale.Scales(c.Metric, c.Unit) {
		r.Lab = human.Quantity(rec.Scale.Lab(c.Measured, c.Unit), c.Unit)
	}
	return r
}

// off is how far a check went towards its limit, or beyond it; less than 0 where a bound's other side is nobody's limit.
func off(c results.Check) float64 {
	switch { // a mean or maximum is of what counts against the bound already
	case c.IsError():
	case c.Bound == "at-least":
		return -c.Error
	case c.Bound == "at-most":
		return c.Error
	}
	return math.Abs(c.Error)
}

func tilesOf(rec *results.Record) []tile {
	var out []tile
	pass, fail, open, skipped, total := countOutcomes(rec)
	class := ""
	switch {
	case fail > 0:
		class = "fail"
	case open > 0:
		class = "inconclusive"
	}
	note := "nothing was judged"
	if total > 0 {
		note = "all that decide the run"
		if fail+open > 0 {
			note = fmt.Sprintf("%d failed, %d undecided", fail, open)
		}
		if skipped > 0 {
			note += fmt.Sprintf(", %d skipped", skipped)
		}
	}
	compared := newComparing(rec)
	if total > 0 || compared == nil && len(rec.Summary) == 0 {
		out = append(out, tile{"Checks held", fmt.Sprintf("%d of %d", pass, total), note, class, "checks_held", strconv.Itoa(pass)})
	}
	if compared != nil {
		out = append(out, compared.tiles()...)
	}

	// The check that came nearest to its tolerance, or went furthest beyond it.
	worst, at := math.Inf(-1), -1
	for i, c := range rec.Checks {
		if !c.Gate || c.Repeats == 0 || c.Tolerance <= 0 {
			continue
		}
		if e := off(c) / c.Tolerance; e > worst {
			worst, at = e, i
		}
	}
	if at >= 0 {
		c := rec.Checks[at]
		value := human.SignedError(c.Error, c.Relative, c.Unit)
		if c.IsError() {
			value = strings.TrimPrefix(value, "+")
		}
		out = append(out, tile{"Nearest to its limit", value, "allowed " + c.ToleranceText() + ": " + strings.TrimSpace(c.Of+" "+c.Point), "", "nearest_error", human.Exact(c.Error)})
	}
	if checked, wrong, _ := sumsOf(rec); checked > 0 {
		t := tile{"Sums", "all exact", fmt.Sprintf("%s reduced values checked", human.Quantity(float64(checked), "1")), "", "sums_wrong", strconv.FormatInt(wrong, 10)}
		if wrong > 0 {
			t.Value, t.Class = human.Grouped(strconv.FormatInt(wrong, 10))+" wrong", "fail"
		}
		out = append(out, t)
	}
	cells, repeats := results.Settings(rec.Points), 0
	for _, c := range cells {
		repeats = max(repeats, len(c.All))
	}
	out = append(out, tile{"Points", strconv.Itoa(len(cells)), human.Plural(max(repeats, 1), "repeat"), "", "points", strconv.Itoa(len(cells))})
	if s := rec.Scale; s.Factor > 1 {
		note := "rates divided, times multiplied"
		if s.Mode == results.Shrunk {
			note = "rates and bytes divided, times 1:1"
		}
		out = append(out, tile{"Emulated at", "1 : " + human.Typed(s.Factor), note, "", "scale_factor", human.Exact(s.Factor)})
	}
	fatal := 0
	ts := troublesOf(rec)
	for _, t := range ts {
		if t.Fatal {
			fatal++
		}
	}
	switch {
	case fatal > 0:
		out = append(out, tile{"Testbed health", human.Plural(fatal, "problem"), "points left out of the verdict", "inconclusive", "testbed_problems", strconv.Itoa(fatal)})
	case len(ts) > 0:
		out = append(out, tile{"Testbed health", human.Plural(len(ts), "note"), "none that limits the verdict", "", "testbed_problems", "0"})
	default:
		out = append(out, tile{"Testbed health", "good", "no limit reached", "", "testbed_problems", "0"})
	}
	return out
}

func linkRowsOf(rec *results.Record, loads map[string]plot.LinkLoad) []linkRow {
	var out []linkRow
	for _, l := range rec.Topology.Links {
		r := linkRow{Name: l.Name, Capacity: human.Quantity(l.Rate, "bit/s"), CapacityKey: human.Exact(l.Rate), Observed: "–", Predicted: "–", Utilisation: "–"}
		load := loads[l.Name]
		if f := load.Observed; f.Kind != "" {
			r.Observed = human.QuantityCI(f.Value, f.Lo, f.Hi, "bit/s")
			r.ObservedKey, r.Lo, r.Hi = human.Exact(f.Value), human.Exact(f.Lo), human.Exact(f.Hi)
			if rec.Scale.ScalesUnit("bit/s") {
				r.Lab = human.Quantity(rec.Scale.Lab(f.Value, "bit/s"), "bit/s")
			}
			if l.Rate > 0 {
				r.Utilisation, r.UtilisationKey = human.Percent(f.Value/l.Rate), human.Exact(f.Value/l.Rate)
			}
		}
		if f := load.Predicted; f.Kind != "" {
			r.Predicted, r.PredictedKey = human.Quantity(f.Value, "bit/s"), human.Exact(f.Value)
		}
		out = append(out, r)
	}
	return out
}

func jobRowsOf(rec *results.Record) []jobRow {
	var out []jobRow
	count := func(n int64) string { return human.Grouped(strconv.FormatInt(n, 10)) }
	for _, p := range rec.Points {
		where := p.Label()
		if p.Repeat > 0 {
			where = strings.TrimSpace(where + " repeat " + strconv.Itoa(p.Repeat+1))
		}
		for _, j := range p.Jobs {
			r := jobRow{Where: where, JobSummary: j, Packets: count(j.Packets), Resends: count(j.Resends)}
			r.Sums = count(j.SumsChecked) + " checked, all exact"
			if j.SumErrors > 0 {
				r.Sums = count(j.SumErrors) + " of " + count(j.SumsChecked) + " wrong"
			}
			if j.SumsChecked == 0 {
				r.Sums = "not checked"
			}
			if j.Local {
				r.Sums = "local: no traffic"
			}
			if j.JCT > 0 {
				r.JCT = human.Quantity(j.JCT, "s")
			}
			if j.Ops > 0 {
				r.INA = count(j.OpsINA) + " of " + count(j.Ops)
				if j.OpsRefused > 0 {
					r.INA += ", " + count(j.OpsRefused) + " refused"
				}
			}
			if j.AlgBW > 0 {
				r.AlgBW = human.Quantity(j.AlgBW, "bit/s")
			}
			if j.BusBW > 0 {
				r.BusBW = human.Quantity(j.BusBW, "bit/s")
			}
			out = append(out, r)
		}
	}
	return out
}

func factsOf(rec *results.Record) []fact {
	var out []fact
	add := func(name, value string) {
		if value != "" {
			out = append(out, fact{name, value})
		}
	}
	add("Run", rec.ID)
	if !rec.Started.IsZero() {
		add("Started", rec.Started.UTC().Format(time.RFC3339))
	}
	if rec.Complete() {
		add("Took", human.Elapsed(rec.Finished.Sub(rec.Started)))
	} else {
		add("Took", "cut off before its end")
	}
	add("Driver", rec.Driver)
	add("Switch", rec.Switch)
	for _, f := range rec.Switches {
		if !f.Embedded() {
			add("Switch "+f.Switch, strings.TrimPrefix(f.String(), f.Switch+": "))
		}
	}
	add("Figures are", string(rec.Kind))
	add("Scale", rec.Scale.String())
	add("Seed", strconv.FormatUint(rec.Seed, 10))
	add("inabench", rec.Tool)
	add("Arguments", strings.Join(rec.Args, " "))
	add("Overrides", strings.Join(rec.Overrides, " "))
	if rec.Sabotage != nil {
		add("Sabotage", rec.Sabotage.String()+"; it "+rec.Sabotage.What)
	}
	hash := func(f results.File) string {
		if f.SHA256 == "" {
			return f.Path
		}
		return f.Path + " sha256 " + f.SHA256
	}
	add("Experiment", hash(rec.Experiment))
	add("Inventory", hash(rec.Inventory))
	for _, k := range slices.Sorted(maps.Keys(rec.Timings)) {
		add("Time for "+k, human.Quantity(rec.Timings[k], "s"))
	}
	return out
}

// besideOf is the folder of the experiment where it names files by where they are from there, and which are not kept with the
// run; empty: it names none.
func besideOf(rec *results.Record) string {
	folder := filepath.Dir(rec.Experiment.Path)
	for path := range rec.Files {
		if !filepath.IsAbs(path) || strings.HasPrefix(path, folder+string(filepath.Separator)) {
			return folder
		}
	}
	return ""
}

// rerunOf is the command that repeats the run in its directory, from the files there.
func rerunOf(rec *results.Record) string {
	repeats := 0
	for _, p := range rec.Points {
		repeats = max(repeats, p.Repeat+1)
	}
	parts := []string{"inabench", "run"}
	if rec.Driver != "" {
		parts = append(parts, "--on", rec.Driver)
	}
	if repeats > 0 {
		parts = append(parts, "--repeat", strconv.Itoa(repeats))
	}
	for _, o := range rec.Overrides {
		parts = append(parts, "--set", o)
	}
	parts = append(parts, "--set", "name="+rec.Name)
	if b := rec.Sabotage; b != nil {
		parts = append(parts, "--sabotage", b.Order())
	}
	if made := []string{"fat_tree", "clos"}; rec.Inventory.Text != "" && !slices.Contains(made, rec.Inventory.Path) { // which the experiment describes itself
		parts = append(parts, "--set", "inventory="+results.InventoryFile)
	}
	parts = append(parts, results.ExperimentFile)
	return human.ShellLine(parts...)
}
