package fidelity

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/results"
)

var seed = flag.Uint64("seed", 1, "seed of the random tests")

func random(t testing.TB) *rand.Rand {
	t.Logf("-seed %d", *seed)
	return rand.New(rand.NewPCG(*seed, 0x9e3779b97f4a7c15))
}

// record is a run without points.
func record(driver, id string, scale float64) *results.Record {
	rec := &results.Record{
		Schema: results.Schema, ID: "01JD4K7Q3ZT9V8B6N2XH" + id, Name: "two-jobs", Title: "Two jobs, one switch", Driver: driver, Switch: "soft",
		Kind: results.Measured, Scale: results.Scale{Mode: "slow-motion", Factor: scale}, Tool: "v1.0.0",
		Started: time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC), Finished: time.Date(2026, 11, 22, 2, 1, 0, 0, time.UTC),
		Experiment: results.File{SHA256: "3f2a4c5d6e7f", Text: "version = 1\n"}, Inventory: results.File{SHA256: "9c01"}, Outcome: results.Pass,
		Checks: []results.Check{{Expect: "goodput", Metric: "goodput", Gate: true, Outcome: results.Pass}},
	}
	if driver == "sim" {
		rec.Kind, rec.Switch, rec.Scale = results.Simulated, "model", results.Scale{Mode: "none", Factor: 1}
	} else {
		rec.Hosts = []results.HostFacts{{Host: "bench", Kernel: "6.1.0", CPUs: 2, CPU: "Xeon"}}
	}
	return rec
}

func seen(rec *results.Record, metric, of string, v, half float64) results.Figure {
	unit := map[string]string{"goodput": "bit/s", "link_rate": "bit/s", "share": "1", "jct": "s"}[metric]
	return results.Figure{Metric: metric, Of: of, Kind: rec.Kind, Value: v, Lo: v - half, Hi: v + half, N: 20, Unit: unit}
}

func said(predictor, metric, of string, v float64, bottleneck string) results.Figure {
	f := seen(&results.Record{Kind: results.Predicted}, metric, of, v, 0)
	f.Predictor, f.Bottleneck = predictor, bottleneck
	return f
}

// figure6 are a testbed and a simulator in jobs of all regimes; the simulator is 2 % too fast
// where a link is full, and 5 % where memory is.
func figure6(r *rand.Rand) (tb, sim *results.Record) {
	tb, sim = record("netns", "NETNS1", 100), record("sim", "SIMSIM", 1)
	for i := range 6 {
		label := []string{fmt.Sprintf("switch.pat_ratio=%g", 0.25*float64(i+1))}
		for repeat := range 3 {
			var a, b results.Phase
			for k, limit := range []struct {
				bottleneck string
				off        float64
			}{{"tor1->h3", 1.02}, {"tor1 aggregators", 1.05}, {"rate limit", 1}} {
				job := string(rune('A' + k))
				rate := 1e9 * float64(10+7*i+11*k)
				got := rate / 100 * (1 + 0.002*r.NormFloat64())
				a.Figures = append(a.Figures, seen(tb, "goodput", job, got, got*0.003), said("occupancy", "goodput", job, rate/100, limit.bottleneck),
					seen(tb, "share", job+"@tor1", 0.5+0.05*float64(i), 0.002))
				b.Figures = append(b.Figures, seen(sim, "goodput", job, rate*limit.off, 0), seen(sim, "share", job+"@tor1", 0.51+0.05*float64(i), 0))
			}
			for _, l := range []struct {
				name       string
				rate, said float64
			}{{"tor1->h3", 4e8, 4e10}, {"h3->tor1", 2e8, 2.2e10}, {"h1->tor1", 1e5, 1e6}, {"h2->tor1", 1e5, 4e9}} {
				a.Figures = append(a.Figures, seen(tb, "link_rate", l.name, l.rate, 0))
				b.Figures = append(b.Figures, seen(sim, "link_rate", l.name, l.said, 0))
			}
			a.Figures = append(a.Figures, seen(tb, "sum_errors", "A", 0, 0), seen(tb, "jct", "A", 100, 1))
			b.Figures = append(b.Figures, seen(sim, "jct", "A", 1.1, 0))
			p := results.Point{Index: i, Repeat: repeat, Labels: label}
			q := p
			p.Phases, q.Phases = []results.Phase{a}, []results.Phase{b}
			tb.Points = append(tb.Points, p)
			if repeat == 0 {
				sim.Points = append(sim.Points, q)
			}
		}
	}
	return tb, sim
}

func model(t *testing.T, r *Report, name string) *Model {
	t.Helper()
	i := slices.IndexFunc(r.Models, func(m Model) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("no model %s in %v", name, r.Models)
	}
	return &r.Models[i]
}

func TestCompare(t *testing.T) {
	tb, sim := figure6(random(t))
	r, err := Compare([]*results.Record{sim, tb}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Runs[0].Driver != "netns" {
		t.Errorf("reference %v", r.Runs[0])
	}
	m := model(t, r, "sim")
	// 18 goodputs: a third each 2 %, 5 % and 0 % off; 6 JCTs 10 %.
	if f := m.Fidelity; f == nil || m.Over != Job || f.N != 24 || math.Abs(f.Value-0.035) > 0.018 || f.Lo > f.Value || f.Hi < f.Value || f.Basis != "order statistics" {
		t.Errorf("fidelity %+v over %s", f, m.Over)
	}
	for _, b := range m.Regimes {
		want := map[Regime]float64{Congested: 0.02, MemoryBound: 0.05, ComputeBound: 0}[b.Regime]
		switch b.Metric {
		case "share":
			want = 0.01 // absolute
		case "jct":
			want = 0.1
		}
		if math.Abs(b.Bias.Value-want) > 0.004 || b.N != 6 {
			t.Errorf("bias of %s, %s: %v of %d, want %v of 6", b.Metric, b.Regime, b.Bias, b.N, want)
		}
	}
	if len(m.Regimes) != 7 {
		t.Errorf("regimes %v", m.Regimes)
	}
	for _, g := range m.Groups {
		switch g.Metric {
		case "goodput":
			if g.Pearson == nil || g.Pearson.Value < 0.99 || g.Pearson.Lo > g.Pearson.Value || g.Line == nil || math.Abs(g.Line.Slope.Value-0.97) > 0.04 {
				t.Errorf("goodput: r %v, line %v", g.Pearson, g.Line)
			}
		case "link_rate":
			// h1->tor1 is idle on both sides; h2->tor1 on one, so it is 4 Gbit/s of 40.
			if g.N != 18 || m.Idle != 6 || math.Abs(g.Max-0.1) > 1e-9 || !strings.HasPrefix(g.Worst, "h") {
				t.Errorf("links: %+v, %d idle", g, m.Idle)
			}
		case "jct":
			if math.Abs(g.Bias.Value-0.1) > 1e-9 || g.Line != nil || g.Pearson != nil {
				t.Errorf("jct, which does not vary: %+v", g)
			}
		case "share":
			if g.Relative || math.Abs(g.Max-0.01) > 1e-9 {
				t.Errorf("shares: %+v", g)
			}
		default:
			t.Errorf("a group of %s", g.Metric)
		}
	}
	if occ := model(t, r, "occupancy"); occ.Kind != results.Predicted || occ.Fidelity.Value > 0.01 || occ.Fidelity.N != 18 {
		t.Errorf("occupancy: %+v", occ.Fidelity)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "scales differ") {
		t.Errorf("warnings %q", r.Warnings)
	}
	figures := r.Figures()
	if len(figures) != 2 || figures[0].Metric != Metric || figures[0].Of != "sim" || figures[0].Kind != results.Measured {
		t.Errorf("figures %v", figures)
	}

	// What is written can be read again.
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again Report
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, &again, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestText(t *testing.T) {
	tb, sim := figure6(rand.New(rand.NewPCG(1, 2)))
	tb.Points[0].Error = "deploy: no route"
	r, err := Compare([]*results.Record{tb, sim}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "report.txt", b.String())
	for _, d := range r.Drawings() {
		if d.Name == "fidelity-sim-goodput" {
			golden.Compare(t, "goodput.svg", style.ReplaceAllString(d.SVG, ""))
		}
		if err := wellFormed(d.SVG); err != nil {
			t.Errorf("%s: %v", d.Name, err)
		}
	}
	if n := len(r.Drawings()); n != 5 {
		t.Errorf("%d drawings", n)
	}
}

// style is of all drawings, and package results' own.
var style = regexp.MustCompile("(?s)<style>.*</style>")

// TestHTML holds the part of a page to the report: its figures, drawings that are well-formed and
// whose names are their own, and nothing that a name could make of them.
func TestHTML(t *testing.T) {
	tb, sim := figure6(random(t))
	const evil = `<script>alert("x")</script>`
	sim.Points[0].Phases[0].Figures[0].Of, tb.Points[0].Phases[0].Figures[0].Of = evil, evil
	for _, p := range []*results.Point{&tb.Points[1], &tb.Points[2]} {
		p.Phases[0].Figures[0].Of = evil
	}
	r, err := Compare([]*results.Record{sim, tb}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if got, err := Read(dir); got != nil || err != nil {
		t.Errorf("where no report is: %v, %v", got, err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, File), text, 0o666); err != nil {
		t.Fatal(err)
	}
	kept, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, kept, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("kept (+) against made (-):\n%s", diff)
	}
	html, err := kept.HTML()
	if err != nil {
		t.Fatal(err)
	}
	page := string(html)
	drawings := regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(page, -1)
	rows, groups := 0, 0
	for _, m := range r.Models {
		rows += len(m.Errors)
		groups += len(m.Groups)
		for _, g := range m.Groups {
			row := regexp.MustCompile(fmt.Sprintf(`<tr data-model="%s" data-class="%s" data-metric="%s">.*?</tr>`, m.Name, g.Class, g.Metric)).FindString(page)
			for _, v := range []float64{g.Median.Value, g.Mean, g.Max, g.Bias.Value} {
				if !strings.Contains(row, fmt.Sprintf(`data-k="%s"`, strconv.FormatFloat(v, 'g', -1, 64))) {
					t.Errorf("%s of %ss by %s lacks %g: %s", g.Metric, g.Class, m.Name, v, row)
				}
			}
			if g.Line != nil && !strings.Contains(row, ratio(g.Line.Slope)) {
				t.Errorf("%s of %ss by %s lacks its slope: %s", g.Metric, g.Class, m.Name, row)
			}
		}
		for _, b := range m.Regimes {
			if want := fmt.Sprintf("<tr><td>%s</td><td>%s</td><td class=\"nw\">%s</td>", b.Regime, b.Class, b.Metric); !strings.Contains(page, want) {
				t.Errorf("no bias of %s", want)
			}
		}
	}
	if len(drawings) != groups || groups == 0 {
		t.Errorf("%d drawings of %d metrics", len(drawings), groups)
	}
	ids := map[string]bool{}
	for i, d := range drawings {
		if err := wellFormed(d); err != nil {
			t.Errorf("drawing %d: %v", i, err)
		}
		id := fmt.Sprintf("fidelity-%d", i)
		if !strings.Contains(d, ` id="`+id+`"`) || strings.Contains(d, "<style") || !strings.Contains(page, `data-figure="`+id+`"`) {
			t.Errorf("drawing %d is not part of the page: %.200s", i, d)
		}
		for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(d, -1) {
			if ids[m[1]] {
				t.Errorf("id %s is there twice", m[1])
			}
			ids[m[1]] = true
		}
	}
	if strings.Contains(page, "<script") || !strings.Contains(page, "&lt;script&gt;") {
		t.Error("a name became markup, or is not shown")
	}
	if n := strings.Count(page, "data-lo="); n != 3*rows { // reference, model and error
		t.Errorf("%d figures of %d errors", n, rows)
	}

	for name, text := range map[string]string{"no JSON": "{", "another schema": `{"schema": 99, "runs": [{}]}`, "no runs": `{"schema": 1}`} {
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), File) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func wellFormed(text string) error {
	dec := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Runs that cannot be compared are refused, with everything that is in the way.
func TestRefused(t *testing.T) {
	other := func(change func(*results.Record)) *results.Record {
		rec := record("sim", "OTHERS", 1)
		change(rec)
		return rec
	}
	for _, c := range []struct {
		name string
		rec  *results.Record
		want []string
	}{
		{"experiment", other(func(r *results.Record) { r.Experiment.Text = "version = 1\n[switch]\nlanes = 120\n" }), []string{"experiment"}},
		{"name", other(func(r *results.Record) { r.Name = "three-jobs" }), []string{"two-jobs", "three-jobs"}},
		{"inventory", other(func(r *results.Record) { r.Inventory.SHA256 = "aaaa" }), []string{"inventories"}},
		{"overrides", other(func(r *results.Record) { r.Overrides = []string{"switch.lanes=60"} }), []string{"switch.lanes=60"}},
		{"twice", record("netns", "NETNS1", 100), []string{"twice"}},
		{"all", other(func(r *results.Record) {
			r.Name, r.Inventory.SHA256, r.Overrides = "three-jobs", "aaaa", []string{"switch.lanes=60"}
		}), []string{"three-jobs", "inventories", "switch.lanes=60"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			recs := []*results.Record{record("netns", "NETNS1", 100), c.rec}
			_, err := Compare(recs, Options{})
			if !errors.Is(err, ErrDiffer) {
				t.Fatalf("error %v", err)
			}
			r, anyway := Compare(recs, Options{Anyway: true})
			if anyway != nil {
				t.Fatal(anyway)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) || !strings.Contains(strings.Join(r.Warnings, "\n"), w) {
					t.Errorf("%q lacks %q; warnings %q", err, w, r.Warnings)
				}
			}
		})
	}
	if _, err := Compare(nil, Options{}); !errors.Is(err, ErrDiffer) {
		t.Errorf("no runs: %v", err)
	}
	// What is only about judging makes no other experiment.
	same := other(func(r *results.Record) {
		r.Overrides = []string{"emulation.factor=4000"}
		r.Experiment.Text = "version = 1\ntitle = \"x\"\n[predictor]\ncommand = [\"a\"]\n"
	})
	if _, err := Compare([]*results.Record{record("netns", "NETNS1", 100), same}, Options{}); err != nil {
		t.Errorf("a title and a predictor: %v", err)
	}
}

// TestNarrowed: points of a sweep of fewer values are paired with those of the same labels, whatever their numbers.
func TestNarrowed(t *testing.T) {
	tb, sim := figure6(random(t))
	all, err := Compare([]*results.Record{tb, sim}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	narrow := *sim
	narrow.Overrides, narrow.Points = []string{"sweep.0.values=[1.0, 1.25, 1.5]"}, slices.Clone(sim.Points[3:])
	kept := map[string]bool{}
	for i := range narrow.Points {
		narrow.Points[i].Index = i
		kept[narrow.Points[i].Label()] = true
	}
	some, err := Compare([]*results.Record{tb, &narrow}, Options{Anyway: true})
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(slices.Clone(model(t, all, "sim").Errors), func(e Error) bool { return !kept[e.Point] })
	if diff := cmp.Diff(want, model(t, some, "sim").Errors); diff != "" || len(want) == 0 {
		t.Errorf("%d errors (-want +got):\n%s", len(want), diff)
	}
}

// What differs and may differ is said.
func TestWarnings(t *testing.T) {
	a, b := record("netns", "AAAAAA", 100), record("netns", "BBBBBB", 200)
	b.Hosts[0].Kernel, b.Hosts[0].CPUs, b.Tool, b.Finished = "6.12.5", 4, "v1.1.0", time.Time{}
	b.Outcome, b.Reasons = results.ErrorOutcome, []string{"the run was cut off before it ended"}
	a.Points = []results.Point{{Health: []results.Trouble{{Where: "switch tor1", What: "late", Fatal: true}}}}
	going, err := Compare([]*results.Record{a, b}, Options{Running: []string{b.ID}})
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(going.Warnings, "\n"); !strings.Contains(all, "the run goes on") || strings.Contains(all, "cut off") {
		t.Errorf("while it goes on:\n%s", all)
	}
	r, err := Compare([]*results.Record{a, b}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(r.Warnings, "\n")
	for _, w := range []string{"scales differ", `kernel: netns "6.12.5", netns "6.1.0"`, "4 x Xeon", "v1.1.0", "left out: repeat 1: switch tor1: late", "cut off", "has no sound figure"} {
		if !strings.Contains(all, w) {
			t.Errorf("no %q in\n%s", w, all)
		}
	}
	if r.Runs[1].Name != "netns (2)" || len(r.Models) != 0 {
		t.Errorf("runs %v, models %v", r.Runs, r.Models)
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "Nothing to compare") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// One run alone is held against its predictors, and a model that says less is told.
func TestPredictors(t *testing.T) {
	rec := record("netns", "NETNS1", 1)
	ph := results.Phase{Jobs: []string{"A", "B"}, Figures: []results.Figure{
		seen(rec, "goodput", "A", 9e9, 1e8), seen(rec, "goodput", "B", 4e9, 1e8),
		said("mine", "goodput", "A", 10e9, "tor1->h3"),
		said("occupancy", "goodput", "A", 9e9, "tor1 aggregators"), said("occupancy", "goodput", "B", 5e9, "window"),
	}}
	rec.Points = []results.Point{{Phases: []results.Phase{ph}}}
	r, err := Compare([]*results.Record{rec}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mine, occ := model(t, r, "mine"), model(t, r, "occupancy")
	if len(mine.Missing) != 1 || !strings.Contains(mine.Missing[0], "goodput of B") {
		t.Errorf("missing %q", mine.Missing)
	}
	e := mine.Errors[0]
	// (10 - 9) / 9, and 1/90 of 10/9 either side.
	if math.Abs(e.Error.Value-1.0/9) > 1e-12 || math.Abs(e.Error.Hi-e.Error.Value-10.0/810) > 1e-12 || e.Regime != MemoryBound {
		t.Errorf("error %+v", e)
	}
	// Of two figures the median is between them, and its interval comes from theirs.
	if f := occ.Fidelity; f.N != 2 || f.Basis != "intervals of the errors" || math.Abs(f.Value-0.125) > 1e-12 || !(f.Lo < f.Value && f.Value < f.Hi) {
		t.Errorf("fidelity %+v", f)
	}
}

// TestLostRepeats: repeats may have other jobs by the same names, so that a predictor that failed in one is held against the
// others alone.
func TestLostRepeats(t *testing.T) {
	rec := record("sim", "SIMSIM", 1)
	for repeat, took := range []float64{100, 400, 200} {
		ph := results.Phase{Figures: []results.Figure{seen(rec, "jct", "A", took, 0), said("whole", "jct", "A", took, "")}}
		if repeat != 1 {
			ph.Figures = append(ph.Figures, said("lost", "jct", "A", took, ""))
		}
		rec.Points = append(rec.Points, results.Point{Repeat: repeat, Phases: []results.Phase{ph}})
	}
	r, err := Compare([]*results.Record{rec}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		reference float64
		repeats   int
	}{"whole": {700. / 3, 3}, "lost": {150, 2}} {
		e := model(t, r, name).Errors[0]
		if math.Abs(e.Error.Value) > 1e-12 || math.Abs(e.Reference.Value-want.reference) > 1e-9 || e.Repeats != want.repeats {
			t.Errorf("%s: %+v, want a reference of %v in %d repeats, and no error", name, e, want.reference, want.repeats)
		}
	}
}

func TestRegimes(t *testing.T) {
	// Memory limits what is added up of a job that keeps to its rate.
	rec := record("netns", "NETNS1", 1)
	rec.Points = []results.Point{{Phases: []results.Phase{{Figures: []results.Figure{
		seen(rec, "share", "A@tor1", 0.5, 0.01), seen(rec, "share", "A@tor2", 1, 0), seen(rec, "link_rate", "h1->tor1", 1e9, 0),
		said("occupancy", "share", "A@tor1", 0.49, "rate limit"), said("occupancy", "share", "A@tor2", 1, "rate limit"),
		said("occupancy", "goodput", "A", 1e9, "rate limit"), said("occupancy", "link_rate", "h1->tor1", 1e9, ""),
	}}}}}
	r, err := Compare([]*results.Record{rec}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range model(t, r, "occupancy").Errors {
		if want := map[string]Regime{"A@tor1": MemoryBound, "A@tor2": ComputeBound, "h1->tor1": Unknown}[e.Of]; e.Regime != want {
			t.Errorf("%s: %s, want %s", e.Of, e.Regime, want)
		}
	}
	for bottleneck, want := range map[string]Regime{"h1->tor1": Congested, "tor1:3->spine1:1": Congested, "network": Congested, "tor1 aggregators": MemoryBound,
		"rate limit": ComputeBound, "window": ComputeBound, "computing": ComputeBound, "round trip": ComputeBound, "none": ComputeBound, "": Unknown} {
		if got := regimeOf(bottleneck); got != want {
			t.Errorf("%q: %s, want %s", bottleneck, got, want)
		}
	}
}

// Ranks of the median's interval: Conover, Practical Nonparametric Statistics, table A3 at p = 0.5.
func TestOrderStatistics(t *testing.T) {
	for n, want := range map[int]int{6: 1, 8: 1, 9: 2, 11: 2, 12: 3, 15: 4, 20: 6, 25: 8, 100: 40} {
		if got := rankBelow(n); got != want {
			t.Errorf("%d figures: rank %d, want %d", n, got, want)
		}
	}
}

// Intervals hold the truth as often as they say. With 4,000 draws, 95 % is seen as 93.6 to 96.4 %
// but for once in 10,000 times.
func TestCoverage(t *testing.T) {
	r := random(t)
	const draws = 4000
	var median, slope, intercept, correlation, mean int
	for range draws {
		const n = 15
		all := make([]*Error, n)
		x, y, z := make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range n {
			v := r.ExpFloat64() // median ln 2
			all[i] = &Error{Error: Interval{v, v, v}}
			x[i] = r.NormFloat64()
			y[i] = 3 + 2*x[i] + 0.5*r.NormFloat64()
			z[i] = 0.8*x[i] + 0.6*r.NormFloat64() // r = 0.8
		}
		holds := func(v Interval, truth float64) int {
			if v.Lo <= truth && truth <= v.Hi {
				return 1
			}
			return 0
		}
		median += holds(medianOf(all).Interval, math.Ln2)
		l := regress(x, y)
		slope += holds(l.Slope, 2)
		intercept += holds(l.Intercept, 3)
		correlation += holds(*pearson(x, z), 0.8)
		for i := range all {
			all[i].Error.Value = x[i]
		}
		mean += holds(bias(all), 0)
	}
	for name, got := range map[string]int{"slope": slope, "intercept": intercept, "correlation": correlation, "bias": mean} {
		if p := float64(got) / draws; p < 0.936 || p > 0.964 {
			t.Errorf("the interval of the %s holds the truth in %.1f %% of cases", name, 100*p)
		}
	}
	// Order statistics are at least 95 %: of 15, 96.5 %.
	if p := float64(median) / draws; p < 0.95 || p > 0.978 {
		t.Errorf("the interval of the median holds the truth in %.1f %% of cases", 100*p)
	}
}

// A line without noise is found exactly, whatever the unit.
func TestLine(t *testing.T) {
	r := random(t)
	for range 200 {
		a, b, scale := 10*r.NormFloat64(), r.NormFloat64(), math.Pow(10, 20*r.Float64()-10)
		x, y := make([]float64, 5), make([]float64, 5)
		for i := range x {
			x[i] = scale * r.NormFloat64()
			y[i] = scale*a + b*x[i]
		}
		l := regress(x, y)
		if math.Abs(l.Slope.Value-b) > 1e-6*(1+math.Abs(a)+math.Abs(b)) || math.Abs(l.Intercept.Value-scale*a) > 1e-6*scale*(1+math.Abs(a)+math.Abs(b)) {
			t.Fatalf("%v, want slope %v, intercept %v", l, b, scale*a)
		}
	}
	if regress([]float64{1, 2}, []float64{1, 2}) != nil || regress([]float64{1, 1, 1}, []float64{1, 2, 3}) != nil || pearson([]float64{1, 2, 3, 4}, []float64{1, 1, 1, 1}) != nil {
		t.Error("a line through what does not vary")
	}
}
