package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/metric"
)

// TextOptions say how WriteText writes.
type TextOptions struct {
	Width int    // columns of the terminal; 0: 100
	Color bool   // ANSI colours for verdicts
	Dir   string // run directory, named at the end; empty: not named
}

// maxRows is how many passed rows of one expectation the terminal shows; those
// that did not pass are always shown.
const maxRows = 40

// WriteText writes a run for the terminal: the verdict first, then the checks by
// expectation, what is compared, the models that decide nothing, what is wrong, and where the files
// are.
func WriteText(w io.Writer, rec *results.Record, opt TextOptions) error {
	t := texter{rec: rec, opt: opt}
	t.opt.Width = cmp.Or(opt.Width, 100)
	t.head()
	for _, gate := range []bool{true, false} {
		for _, e := range expectationsOf(rec) {
			if e.Gate == gate {
				t.expectation(e)
			}
		}
	}
	t.summary()
	t.comparison()
	t.reproduced()
	t.placements()
	t.models()
	t.jobs()
	t.health()
	t.list("warnings", rec.Warnings)
	t.switches()
	t.codes()
	if opt.Dir != "" {
		t.b.WriteString("\n")
		fmt.Fprintf(&t.b, "files  %s\n", human.Printable(opt.Dir))
		files := []string{results.ReportFile, results.RecordFile, results.SamplesFile, results.JUnitFile}
		if _, err := os.Stat(opt.Dir); err == nil { // some are missing when the disk was full
			files = slices.DeleteFunc(files, func(name string) bool {
				_, err := os.Stat(filepath.Join(opt.Dir, name))
				return err != nil
			})
		}
		fmt.Fprintf(&t.b, "       %s\n", strings.Join(files, ", "))
	}
	_, err := io.WriteString(w, t.b.String())
	return err
}

// codes names what did not hold, for inabench explain.
func (t *texter) codes() {
	var codes []string
	for _, c := range t.rec.Checks {
		if code := c.FailureCode(); c.Gate && c.Outcome != results.Pass && c.Outcome != results.Skipped && !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	if t.rec.Outcome == results.NotJudged {
		codes = append(codes, results.CodeNotJudged)
	}
	if len(codes) == 0 {
		return
	}
	t.b.WriteString("\n")
	t.wrapped("codes  ", "       ", strings.Join(codes, ", ")+"; inabench explain CODE says what to do")
}

type texter struct {
	b   strings.Builder
	rec *results.Record
	opt TextOptions
}

// expectationsOf are the record's blocks, and one made up for each name that only
// checks mention.
func expectationsOf(rec *results.Record) []results.Expect {
	out := slices.Clone(rec.Expect)
	for _, c := range rec.Checks {
		if !slices.ContainsFunc(out, func(e results.Expect) bool { return e.Name == c.Expect }) {
			out = append(out, results.Expect{
				Name: c.Expect, Metric: c.Metric, Predictor: c.Predictor, Statistic: c.Statistic,
				Tolerance: c.Tolerance, Relative: c.Relative, Bound: c.Bound, Gate: c.Gate,
			})
		}
	}
	return out
}

// countOutcomes of gated checks by outcome; skipped ones are not in the total.
func countOutcomes(rec *results.Record) (pass, fail, open, skipped, total int) {
	for _, c := range rec.Checks {
		if !c.Gate {
			continue
		}
		total++
		switch c.Outcome {
		case results.Skipped:
			skipped++
			total--
		case results.Pass:
			pass++
		case results.Fail:
			fail++
		default:
			open++
		}
	}
	return pass, fail, open, skipped, total
}

// tallyOutcomes is the run's checks in words: "11 of 12 checks held, 1 failed".
func tallyOutcomes(rec *results.Record) string {
	pass, fail, open, skipped, total := countOutcomes(rec)
	if total == 0 {
		if v := newComparing(rec); v != nil {
			return "nothing was judged; compared " + v.tally()
		}
		return "nothing was judged"
	}
	s := fmt.Sprintf("%d of %d checks held", pass, total)
	if fail > 0 {
		s += fmt.Sprintf(", %d failed", fail)
	}
	if open > 0 {
		s += fmt.Sprintf(", %d undecided", open)
	}
	if skipped > 0 {
		s += fmt.Sprintf(", %d skipped", skipped)
	}
	return s
}

// aboutRun is where and how the run was done: "netns, soft switch, slow motion x100".
func aboutRun(rec *results.Record) string {
	parts := []string{}
	add := func(s string) {
		if s != "" {
			parts = append(parts, s)
		}
	}
	add(rec.Driver)
	if rec.Switch != "" {
		add(rec.Switch + " switch")
	}
	add(string(rec.Kind))
	if rec.Scale.Factor > 1 {
		add(rec.Scale.String())
	}
	add(fmt.Sprintf("seed %d", rec.Seed))
	if rec.Complete() {
		add(human.Elapsed(rec.Finished.Sub(rec.Started)))
	}
	if rec.Sabotage != nil {
		add(rec.Sabotage.String())
	}
	return strings.Join(parts, ", ")
}

// wordOf is the verdict.
func wordOf(rec *results.Record) string { return cmp.Or(rec.Outcome, results.ErrorOutcome).Word() }

func (t *texter) head() {
	rec := t.rec
	title := rec.Name
	if rec.Title != "" {
		title += ": " + rec.Title
	}
	word := strings.ToUpper(wordOf(rec))
	fmt.Fprintf(&t.b, "%s  %s\n", t.paint(rec.Outcome, word), human.Printable(title))
	pad := strings.Repeat(" ", len(word)+2)
	t.wrapped(pad, pad, tallyOutcomes(rec))
	fmt.Fprintf(&t.b, "%s%s\n", pad, human.Printable(aboutRun(rec)))
	if rec.Outcome != results.Pass {
		for i, r := range rec.Reasons {
			if i == 10 {
				fmt.Fprintf(&t.b, "%s… and %d more below\n", pad, len(rec.Reasons)-i)
				break
			}
			t.wrapped(pad+"- ", pad+"  ", r)
		}
	}
}

func (t *texter) paint(o results.Outcome, s string) string {
	if !t.opt.Color {
		return s
	}
	code := map[results.Outcome]string{results.Pass: "32", results.Fail: "31", results.ErrorOutcome: "31", results.Inconclusive: "33", results.NotJudged: "33", results.Skipped: "2"}[o]
	if code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// headlineOf is an expectation in one line: "share of A@*: each within 0.03 of
// occupancy".
func headlineOf(e results.Expect) string {
	if e.Metric == results.ComparisonOf {
		return "every value has points, and so has the reference"
	}
	if e.Predictor == results.Evidence {
		return "by logs and counters"
	}
	var b strings.Builder
	b.WriteString(e.Metric)
	if e.Of != "" {
		b.WriteString(" of " + e.Of)
	}
	b.WriteString(": ")
	unit := metric.Of(e.Metric, "").Unit
	tol := results.Check{Relative: e.Relative, Tolerance: e.Tolerance, Unit: unit}.ToleranceText()
	whose := e.Predictor
	if e.Predictor == "value" || e.Predictor == "" {
		whose = human.Quantity(e.Value, unit)
	}
	switch {
	case e.Statistic == results.Correlation:
		fmt.Fprintf(&b, "correlation with %s at least %s", whose, human.Quantity(1-e.Tolerance, "1"))
	case e.Statistic == "mean" || e.Statistic == "max":
		fmt.Fprintf(&b, "%s error against %s at most %s", e.Statistic, whose, tol)
	case e.BoundText() == "within":
		fmt.Fprintf(&b, "within %s of %s", tol, whose)
	default:
		b.WriteString(strings.ReplaceAll(e.BoundText(), "-", " ") + " " + whose)
		if e.Tolerance != 0 {
			b.WriteString(", tolerance " + tol)
		}
	}
	return b.String()
}

func (t *texter) expectation(e results.Expect) {
	var checks []results.Check
	for _, c := range t.rec.Checks {
		if c.Expect == e.Name {
			checks = append(checks, c)
		}
	}
	if len(checks) == 0 {
		return
	}
	note := ""
	switch {
	case e.Event && e.Gate:
		note = " (the study is about it)"
	case e.Event:
		note = " (the study is about it: undecided without)"
	case !e.Gate:
		note = " (not gated)"
	}
	head := headlineOf(e)
	if e.Name != e.Metric {
		head = e.Name + " · " + head
	}
	t.b.WriteString("\n")
	t.wrapped("", "  ", head+note)
	if e.Reason != "" {
		t.wrapped("  ", "  ", e.Reason)
	}
	var shown []results.Check
	hidden, idle := 0, 0
	for _, c := range checks {
		switch {
		case c.Outcome != results.Pass:
			shown = append(shown, c)
		case c.Measured == 0 && c.Predicted == 0 && len(checks) > 3:
			idle++
		case len(shown) < maxRows:
			shown = append(shown, c)
		default:
			hidden++
		}
	}
	if len(shown) > 0 {
		t.table(e, shown)
	}
	if idle > 0 {
		fmt.Fprintf(&t.b, "  … %d that are 0, as they should: %s\n", idle, t.paint(results.Pass, "pass"))
	}
	if hidden > 0 {
		fmt.Fprintf(&t.b, "  … %d more that pass: see %s\n", hidden, results.ReportFile)
	}
	limits := map[string]bool{} // said at the top, and once here
	for _, c := range checks {
		if c.Why == "" || limits[c.Why] {
			continue
		}
		if c.Outcome == results.Inconclusive && results.Unjudged(c.Code) {
			limits[c.Why] = true
			t.wrapped("  ! ", "    ", "not judged: "+c.Why)
			continue
		}
		where := strings.TrimSpace(c.Point + " " + phaseName(c) + c.Of)
		if c.Outcome == results.Inconclusive && c.More > 0 {
			c.Why += " (" + c.MoreText() + ")"
		}
		t.wrapped("  ! ", "    ", strings.TrimPrefix(where+": "+c.Why, ": "))
	}
}

func phaseName(c results.Check) string {
	if c.Phase == 0 {
		return ""
	}
	return fmt.Sprintf("phase %d ", c.Phase+1)
}

// column of a table; those with the highest drop go first where the terminal is
// narrow, 0 stays.
type column struct {
	head  string
	right bool
	drop  int
	cells []string
}

func (c column) width() int {
	w := utf8.RuneCountInString(c.head)
	for _, s := range c.cells {
		w = max(w, utf8.RuneCountInString(s))
	}
	return w
}

func (c column) empty() bool {
	return !slices.ContainsFunc(c.cells, func(s string) bool { return s != "" })
}

func (t *texter) table(e results.Expect, checks []results.Check) {
	n := len(checks)
	cols := []column{
		{head: "point"}, {head: "phase", right: true}, {head: "of"},
		{head: "measured", right: true}, {right: true}, {head: "at lab scale", right: true, drop: 2},
		{head: "predicted", right: true}, {head: "error", right: true},
		{head: "tolerance", right: true, drop: 3}, {head: "bottleneck", drop: 1}, {head: "verdict"},
	}
	if t.rec.Kind == results.Simulated {
		cols[3].head = "simulated"
	}
	if e.Predictor == "value" || e.Predictor == "" {
		cols[6].head = "expected"
	}
	if e.Statistic == "mean" || e.Statistic == "max" {
		cols[3].head, cols[6].head = e.Statistic+" error", ""
	}
	if within, ok := metric.Within(e.Metric); ok {
		cols[4].head = within.Short
	}
	for i := range cols {
		cols[i].cells = make([]string, n)
	}
	phased := slices.ContainsFunc(checks, func(c results.Check) bool { return c.Phase > 0 })
	for i, c := range checks {
		set := func(k int, s string) { cols[k].cells[i] = human.Printable(s) }
		set(0, c.Point)
		if phased {
			set(1, fmt.Sprint(c.Phase+1))
		}
		set(2, c.Of)
		set(10, string(c.Outcome))
		set(8, c.ToleranceText())
		set(9, c.Bottleneck)
		if c.Repeats == 0 {
			set(3, "-")
			if c.Predicted != 0 {
				set(6, human.Quantity(c.Predicted, c.Unit))
			}
			continue
		}
		set(3, c.MeasuredText())
		if single(c) {
			set(4, rangeIn(t.rec, e.Metric, at(c.Index)))
		}
		if c.IsError() || c.Unpredicted {
			continue
		}
		if t.rec.Scale.Scales(c.Metric, c.Unit) {
			set(5, human.Quantity(t.rec.Scale.Lab(c.Measured, c.Unit), c.Unit))
		}
		set(6, c.PredictedText())
		set(7, human.SignedError(c.Error, c.Relative, c.Unit))
	}
	cols = slices.DeleteFunc(cols, column.empty)
	total := func() int {
		w := 2
		for _, c := range cols {
			w += c.width() + 2
		}
		return w - 2
	}
	if total() > t.opt.Width && cols[0].head == "point" {
		for i, s := range cols[0].cells {
			cols[0].cells[i] = human.ShortLabel(s)
		}
	}
	var left []string
	for total() > t.opt.Width {
		k, most := -1, 0
		for i, c := range cols {
			if c.drop > most {
				k, most = i, c.drop
			}
		}
		if k < 0 {
			break
		}
		left = append(left, cols[k].head)
		cols = slices.Delete(cols, k, k+1)
	}
	// Still too wide: shorten the first column, which repeats the most.
	if over := total() - t.opt.Width; over > 0 {
		keep := max(cols[0].width()-over, 8)
		for i, s := range cols[0].cells {
			if r := []rune(s); len(r) > keep {
				cols[0].cells[i] = "…" + string(r[len(r)-keep+1:])
			}
		}
	}
	rows := make([][]string, n+1)
	for _, c := range cols {
		for i, cell := range append([]string{c.head}, c.cells...) {
			rows[i] = append(rows[i], cell)
		}
	}
	t.columns(rows, "  ", math.MaxInt, func(col int) bool { return cols[col].right }, func(row, col int, text string) string {
		if row == 0 || col < len(cols)-1 || !checks[row-1].Gate {
			return text
		}
		return t.paint(checks[row-1].Outcome, text)
	})
	if len(left) > 0 {
		t.wrapped("  ", "  ", "no room for: "+strings.Join(left, ", "))
	}
}

// ungatedModels are the errors of models that no gated expectation uses.
func ungatedModels(rec *results.Record) []results.ModelError {
	var out []results.ModelError
	for _, m := range results.ModelErrors(rec.Points) {
		gated := slices.ContainsFunc(rec.Expect, func(e results.Expect) bool { return e.Gate && e.Predictor == m.Predictor })
		if !gated {
			out = append(out, m)
		}
	}
	return out
}

// modelName says what a predictor is.
func modelName(predictor string) string {
	switch predictor {
	case "waterfill":
		return "published water-filling model"
	case "occupancy":
		return "occupancy model"
	}
	return predictor
}

func sizeOf(m results.ModelError, v float64) string {
	if m.Relative {
		return human.Percent(v)
	}
	return fmt.Sprintf("%.3f", v)
}

func (t *texter) models() {
	last := ""
	for _, m := range ungatedModels(t.rec) {
		if m.Predictor != last {
			fmt.Fprintf(&t.b, "\n%s, not gated\n", human.Printable(modelName(m.Predictor)))
			last = m.Predictor
		}
		t.wrapped("  ", "    ", fmt.Sprintf("%s: mean error %s, worst %s (%s), %s",
			m.Metric, sizeOf(m, m.Mean), sizeOf(m, m.Max), m.Worst, human.Plural(m.N, "figure")))
	}
	for i, f := range t.rec.Fidelity {
		if i == 0 {
			fmt.Fprint(&t.b, "\nfidelity, the median error of models that were held against this run\n")
		}
		t.wrapped("  ", "    ", fmt.Sprintf("%s: %s, 95 %% interval %s to %s, %s", f.Of, human.Percent(f.Value), human.Percent(f.Lo), human.Percent(f.Hi), human.Plural(f.N, "figure")))
	}
}

// sumsOf adds up what the workers checked.
func sumsOf(rec *results.Record) (checked, wrong, overflows int64) {
	for _, p := range rec.Points {
		for _, j := range p.Jobs {
			checked += j.SumsChecked
			wrong += j.SumErrors
			overflows += j.Overflows
		}
	}
	return checked, wrong, overflows
}

// localJobs names the jobs that were on one host, in any point.
func localJobs(rec *results.Record) (names []string) {
	for _, p := range rec.Points {
		for _, j := range p.Jobs {
			if j.Local && !slices.Contains(names, j.Job) {
				names = append(names, j.Job)
			}
		}
	}
	return names
}

func (t *texter) jobs() {
	if names := localJobs(t.rec); len(names) > 0 {
		t.b.WriteString("\n")
		t.wrapped("", "  ", "local: no traffic of "+strings.Join(names, ", "))
	}
	checked, wrong, over := sumsOf(t.rec)
	if checked == 0 {
		return
	}
	s := fmt.Sprintf("\nsums   %s reduced values compared with the reference, ", human.Grouped(fmt.Sprint(checked)))
	if wrong == 0 {
		s += "all equal"
	} else {
		s += human.Grouped(fmt.Sprint(wrong)) + " WRONG"
	}
	if over > 0 {
		s += fmt.Sprintf(", %s wrapped around", human.Grouped(fmt.Sprint(over)))
	}
	t.b.WriteString(s + "\n")
}

// trouble is a Trouble with where in the sweep it was.
type trouble struct {
	results.Trouble
	Point  string
	Repeat int
}

func troublesOf(rec *results.Record) []trouble {
	var out []trouble
	for _, p := range rec.Points {
		for _, h := range p.Health {
			out = append(out, trouble{h, p.Label(), p.Repeat})
		}
		for i, ph := range p.Phases {
			if ph.Longer > 0 {
				out = append(out, trouble{results.Trouble{Value: ph.Longer, Of: ph.End - ph.Start,
					What: fmt.Sprintf("phase %d: it went on for %s more, until its figures were certain", i+1, human.Quantity(ph.Longer, "s"))}, p.Label(), p.Repeat})
			}
			if ph.State != "" {
				out = append(out, trouble{results.Trouble{What: fmt.Sprintf("phase %d: %s", i+1, ph.State)}, p.Label(), p.Repeat})
			}
			if len(ph.LeftOut) == 0 {
				continue
			}
			sum := results.Total(ph.LeftOut)
			out = append(out, trouble{results.Trouble{Value: sum, Of: ph.End - ph.Start, Fatal: ph.Spoilt != "",
				What: fmt.Sprintf("phase %d: %s of %s are left out of its figures, first %s", i+1, human.Quantity(sum, "s"), human.Quantity(ph.End-ph.Start, "s"), ph.LeftOut[0].Why)}, p.Label(), p.Repeat})
		}
	}
	slices.SortStableFunc(out, func(a, b trouble) int { return cmp.Compare(rank(b.Fatal), rank(a.Fatal)) })
	return out
}

func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (t *texter) health() {
	var lines []string
	for _, h := range troublesOf(t.rec) {
		s := strings.TrimPrefix(h.Point+": "+h.String(), ": ")
		if h.Fatal {
			s += " (too much to judge this point; counts stand)"
		}
		lines = append(lines, s)
	}
	t.list("testbed health", lines)
}

// switches says what ran on those that ran something of their own.
func (t *texter) switches() {
	for i, s := range t.rec.Programmed() {
		if i == 0 {
			t.b.WriteString("\nswitches\n")
		}
		t.wrapped("  ", "    ", s)
	}
}

func (t *texter) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(&t.b, "\n%s\n", title)
	for i, s := range lines {
		if i == 20 {
			fmt.Fprintf(&t.b, "  … and %d more: see %s\n", len(lines)-i, results.ReportFile)
			break
		}
		t.wrapped("  ! ", "    ", s)
	}
}

// bound splits a text into words; a number and a percent sign or bit/s unit after it are one word.
func bound(text string) (out []string) {
	for _, word := range strings.Fields(text) {
		if n := len(out); n > 0 && strings.ContainsAny(out[n-1][len(out[n-1])-1:], "0123456789") && (strings.HasPrefix(word, "%") || strings.Contains(word, "bit/s")) {
			out[n-1] += " " + word
			continue
		}
		out = append(out, word)
	}
	return out
}

// wrapped writes text broken at spaces to the terminal's width.
func (t *texter) wrapped(first, rest, text string) {
	line := first
	room := max(t.opt.Width, 40)
	start := true
	for _, word := range bound(human.Printable(text)) {
		if !start && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > room {
			t.b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, start = rest, true
		}
		if !start {
			line += " "
		}
		line += word
		start = false
	}
	t.b.WriteString(strings.TrimRight(line, " ") + "\n")
}
