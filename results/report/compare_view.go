package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/metric"
	"github.com/inabench/inabench/results/plot"
)

// comparing is a run's comparison as the reports show it.
type comparing struct {
	*results.Comparison
	rec     *results.Record
	groups  []results.Group
	keys    []string // of the groups' labels
	order   []string // values, the reference first, then the best in the first metric
	metrics []string // that have figures
}

// newComparing is nil where there is nothing to compare.
func newComparing(rec *results.Record) *comparing {
	v := &comparing{Comparison: rec.Comparison, rec: rec, groups: rec.Compare()}
	if len(v.groups) == 0 {
		return nil
	}
	for _, g := range v.groups {
		for _, l := range g.Labels {
			if k, _, _ := strings.Cut(l, "="); !slices.Contains(v.keys, k) {
				v.keys = append(v.keys, k)
			}
		}
	}
	for _, m := range v.Metrics {
		if slices.ContainsFunc(v.groups, func(g results.Group) bool { _, ok := g.Contrast(m); return ok }) && !slices.Contains(v.metrics, m) {
			v.metrics = append(v.metrics, m)
		}
	}
	if len(v.metrics) == 0 {
		return nil
	}
	v.order = v.sorted(v.metrics[0])
	return v
}

func better(name, unit string) string {
	switch metric.Of(name, unit).Better {
	case metric.Less:
		return "lower is better"
	case metric.More:
		return "higher is better"
	}
	return "neither way is better"
}

// unit of a metric.
func (v *comparing) unit(metric string) string {
	for _, g := range v.groups {
		if c, ok := g.Contrast(metric); ok {
			return c.Unit
		}
	}
	return ""
}

// sorted are the values of the key by a metric: the reference first, then the best,
// by the mean over the groups of the ratio's logarithm; those without a ratio last.
func (v *comparing) sorted(name string) []string {
	sum, n := map[string]float64{}, map[string]float64{}
	var out []string
	for _, g := range v.groups {
		c, _ := g.Contrast(name)
		for _, x := range c.Values {
			if !slices.Contains(out, x.Value) {
				out = append(out, x.Value)
			}
			if human.Finite(x.Ratio) {
				sum[x.Value] += math.Log(x.Ratio)
				n[x.Value]++
			}
		}
	}
	sign := 1.0
	if metric.Of(name, v.unit(name)).Better != metric.Less {
		sign = -1
	}
	rank := func(value string) (int, float64) {
		switch {
		case value == v.Reference:
			return 0, 0
		case n[value] == 0:
			return 2, 0
		}
		return 1, sign * sum[value] / n[value]
	}
	slices.SortStableFunc(out, func(a, b string) int {
		ra, xa := rank(a)
		rb, xb := rank(b)
		return cmp.Or(cmp.Compare(ra, rb), cmp.Compare(xa, xb))
	})
	return out
}

// noun counts the values of the key: "9 policies".
func (v *comparing) noun() string {
	n := len(v.order)
	if human.LastKey(v.Key) == "policy" {
		if n == 1 {
			return "1 policy"
		}
		return strconv.Itoa(n) + " policies"
	}
	return human.Plural(n, "value") + " of " + v.Key
}

// tally is the comparison in words: "9 policies in 5 groups, 10 repeats".
func (v *comparing) tally() string {
	s := v.noun()
	if n := len(v.groups); n > 1 {
		s += fmt.Sprintf(" in %d groups", n)
	}
	return s + ", " + human.Plural(v.repeats(), "repeat")
}

func (v *comparing) repeats() int {
	n := 0
	for _, g := range v.groups {
		n = max(n, g.Repeats)
	}
	return n
}

// labelOf is the value of a key among labels; empty if they have none.
func labelOf(labels []string, key string) string {
	for _, l := range labels {
		if k, value, _ := strings.Cut(l, "="); k == key {
			return value
		}
	}
	return ""
}

// writeMeanSD writes the mean with the standard deviation of the repeats.
func writeMeanSD(c results.Compared, unit string) string {
	if c.N == 0 {
		return "–"
	}
	return human.QuantityCI(c.Mean, c.Mean-c.SD, c.Mean+c.SD, unit)
}

// writeMean writes the ratio to the reference.
func writeMean(c results.Compared) string {
	switch {
	case !human.Finite(c.Ratio):
		return "–"
	case c.Ratio == 1 && c.Hi == c.Lo:
		return "1"
	}
	return strconv.FormatFloat(c.Ratio, 'f', digitsOf(c), 64)
}

// writeRatio writes it with the longer half of its interval: "1.23 ± 0.06"; with both ends
// where they are far apart: "3.21 (0.23–46)".
func writeRatio(c results.Compared) string {
	switch {
	case c.Hi > 2*c.Ratio:
		return writeMean(c) + " (" + human.Fixed(c.Lo, 2) + "–" + human.Fixed(c.Hi, 2) + ")"
	case c.Hi > c.Lo:
		return writeMean(c) + " ± " + strconv.FormatFloat(max(c.Hi-c.Ratio, c.Ratio-c.Lo), 'f', digitsOf(c), 64)
	}
	return writeMean(c)
}

// writeInterval writes both ends; empty without an interval.
func writeInterval(c results.Compared) string {
	if !(c.Hi > c.Lo) {
		return ""
	}
	return strconv.FormatFloat(c.Lo, 'f', digitsOf(c), 64) + " to " + strconv.FormatFloat(c.Hi, 'f', digitsOf(c), 64)
}

// digitsOf after the point that the interval allows, and at least the two that people
// compare.
func digitsOf(c results.Compared) int {
	if h := c.Hi - c.Lo; h > 0 {
		return max(human.Digits(h, 4), 2)
	}
	return 3
}

// writeChange writes the change of the reference against the value: "16.8 % less".
func writeChange(c results.Compared, reference string) string {
	if c.Value == reference || !human.Finite(c.Ratio) {
		return "–"
	}
	return human.Change(c.Change(), c.Change(), human.PercentDigits)
}

// wordsOfChange is what was found: "9.1 to 31 % less, mean 20 %".
func wordsOfChange(c results.Change) string {
	if c.Of == 0 {
		return "nothing to compare"
	}
	s := human.Change(c.Min, c.Max, human.PercentDigits)
	if c.Of > 1 && c.Min != c.Max {
		s += ", mean " + human.Change(c.Mean, c.Mean, human.PercentDigits)
	}
	return s
}

// against says who is compared with whom: "netpack against the 8 others".
func (v *comparing) against() string {
	n := len(v.order) - 1
	if n == 1 {
		return v.Reference + " against " + v.order[1]
	}
	return fmt.Sprintf("%s against the %d others", v.Reference, n)
}

// change is what the reference makes of a metric, over all groups.
func (v *comparing) change(metric string) results.Change {
	var out results.Change
	for _, g := range v.groups {
		if c, ok := g.Contrast(metric); ok {
			out = out.Join(c.Change)
		}
	}
	return out
}

// found is what the reference makes of a metric, over all groups, where no line of
// published says so.
func (v *comparing) found(metric string) string {
	if len(v.order) < 2 || slices.ContainsFunc(v.Published, func(p results.Published) bool { return p.Metric == metric && p.At == "" && p.Against == "" }) {
		return ""
	}
	return v.against() + ": " + wordsOfChange(v.change(metric))
}

// tiles are the first metrics' changes.
func (v *comparing) tiles() []tile {
	var out []tile
	for i, m := range v.metrics {
		c := v.change(m)
		if i == 2 || c.Of == 0 {
			break
		}
		note := v.against()
		if c.Of > 1 {
			note += ", mean; " + human.Change(c.Min, c.Max, human.PercentDigits)
		}
		out = append(out, tile{human.UpperFirst(human.Measure(m)), human.Change(c.Mean, c.Mean, human.PercentDigits), note, "", m + "_change", human.Exact(c.Mean)})
	}
	return out
}

// published are the lines that set a paper's figures of a metric beside what was found.
func (v *comparing) published(metric string) []string {
	var out []string
	for _, p := range v.Published {
		if p.Metric != metric {
			continue
		}
		var here results.Change
		var all []float64
		about := false
		for _, g := range v.groups {
			if p.At != "" && !slices.Contains(g.Labels, p.At) {
				continue
			}
			about = true
			c, _ := g.Contrast(metric)
			for _, x := range c.Values {
				if len(p.Among) > 0 && !slices.Contains(p.Among, x.Value) {
					continue
				}
				if d := x.Change(); x.Value != v.Reference && (p.Against == "" || x.Value == p.Against) && human.Finite(d) {
					here = here.Join(results.Change{Mean: d, Min: d, Max: d, Of: 1})
					all = append(all, d)
				}
			}
		}
		if !about {
			continue
		}
		s := "paper"
		if p.Against != "" {
			s += " against " + p.Against
		}
		if p.At != "" {
			s += " at " + human.ShortLabel(p.At)
		}
		s += ": " + wordsOfPublished(p)
		out = append(out, s+"; here "+wordsOfChange(here)+besidePublished(p, here, all))
	}
	return out
}

// wordsOfPublished is what is published: "13 to 45 % less (section 6.2)".
func wordsOfPublished(p results.Published) string {
	s := p.Claim()
	if p.Text != "" {
		s += " (" + p.Text + ")"
	}
	return s
}

// besidePublished says how what was found relates to what was published. A larger effect than
// published is beyond it, a smaller or opposite one short of it; a single figure without a
// bound is taken to be a mean.
func besidePublished(p results.Published, here results.Change, all []float64) string {
	if here.Of == 0 {
		return ""
	}
	lo, hi, mean, sign := min(p.Lo, p.Hi), max(p.Lo, p.Hi), here.Mean, 1.0
	if lo+hi < 0 { // turn it round: an effect is positive
		lo, hi, mean, sign = -hi, -lo, -mean, -1
	}
	const rounded = 0.005 // papers print whole per cents
	bound := p.BoundText()
	if lo == hi && bound == "" {
		of := "the mean is "
		if here.Of == 1 {
			of = "that is "
		}
		switch d := mean - lo; {
		case d > rounded:
			return ": " + of + human.PercentDigits(d) + " points beyond the paper's"
		case d < -rounded:
			return ": " + of + human.PercentDigits(-d) + " points short of the paper's"
		}
		return ": " + of + "the paper's"
	}
	bySize := func(a, b float64) int { return cmp.Compare(sign*a, sign*b) }
	switch bound {
	case results.UpTo: // the claim is of the largest
		largest := sign * slices.MaxFunc(all, bySize)
		ratio := largest / hi
		if ratio < 1/results.SameFactor || ratio > results.SameFactor {
			return fmt.Sprintf(": differs, the largest is %.2f of the paper's", ratio)
		}
		return fmt.Sprintf(": the largest is %.2f of the paper's", ratio)
	case results.AtLeast: // of the smallest
		smallest := sign * slices.MinFunc(all, bySize)
		if smallest >= lo-rounded {
			return ": the smallest is as much, or more"
		}
		return ": the smallest is " + human.PercentDigits(lo-smallest) + " points short of the paper's"
	}
	var beyond, short int
	for _, d := range all {
		switch {
		case sign*d > hi+rounded:
			beyond++
		case sign*d < lo-rounded:
			short++
		}
	}
	within := len(all) - beyond - short
	if within == len(all) {
		return ": within the paper's range"
	}
	s := fmt.Sprintf(": %d of %d within the paper's range", within, len(all))
	if beyond > 0 {
		s += fmt.Sprintf(", %d beyond it", beyond)
	}
	if short > 0 {
		s += fmt.Sprintf(", %d short of it", short)
	}
	return s
}

// leftOut says which repeats are missing from the comparison, and why.
func (v *comparing) leftOut() []string {
	var out []string
	seen := map[string]bool{}
	for _, metric := range v.metrics {
		for _, g := range v.groups {
			c, _ := g.Contrast(metric)
			ref, ok := c.Of(v.Reference)
			if where := g.Place(); !ok && !seen[where] {
				seen[where] = true
				out = append(out, strings.TrimPrefix(where+": no points of "+v.Reference+" to compare with", ": "))
			}
			for _, x := range c.Values {
				where := strings.TrimSpace(g.Place() + " " + x.Value)
				if x.Left == 0 || seen[where] || !ok && x.N == g.Repeats || x.N == g.Repeats && x.Left == ref.Left {
					continue // nothing, or no more than what the reference lacks
				}
				seen[where] = true
				out = append(out, fmt.Sprintf("%s: %d of %s left out of the comparison: %s", where, x.Left, human.Plural(g.Repeats, "repeat"), x.Why))
			}
		}
	}
	return out
}

// uncertainty says what the intervals of a comparison are.
func (v *comparing) uncertainty() string {
	if v.repeats() < 2 {
		return "one repeat: no interval"
	}
	return "95 % intervals of " + strconv.Itoa(v.repeats()) + " paired repeats"
}

// comparison writes a table a metric.
func (t *texter) comparison() {
	v := newComparing(t.rec)
	if v == nil {
		return
	}
	for _, metric := range v.metrics {
		t.b.WriteString("\n")
		unit := v.unit(metric)
		t.wrapped("", "  ", fmt.Sprintf("%s%s normalised to %s, %s; %s", human.Measure(metric), rangesOf(t.rec, metric), v.Reference, better(metric, unit), v.uncertainty()))
		if len(v.groups) == 1 {
			t.contrast(v, metric)
		} else {
			t.contrasts(v, metric)
		}
		for _, line := range append([]string{v.found(metric)}, v.published(metric)...) {
			if line != "" {
				t.wrapped("  ", "    ", line)
			}
		}
	}
	t.list("left out", v.leftOut())
}

// contrast is the table of a metric where nothing else was swept.
func (t *texter) contrast(v *comparing, metric string) {
	g := v.groups[0]
	c, _ := g.Contrast(metric)
	spread := "mean ± SD"
	if g.Repeats < 2 {
		spread = "value"
	}
	rows := [][]string{{human.LastKey(v.Key), spread, "normalised", "95 % interval", v.Reference + " has"}}
	for _, value := range v.sorted(metric) {
		x, _ := c.Of(value)
		rows = append(rows, []string{value, writeMeanSD(x, c.Unit), writeMean(x), writeInterval(x), writeChange(x, v.Reference)})
	}
	if g.Repeats < 2 {
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 3, 4)
		}
	}
	t.grid(rows)
}

// contrasts is the table of a metric with a column a group, first that of the
// reference's own means.
func (t *texter) contrasts(v *comparing, metric string) {
	var rows [][]string
	for _, k := range v.keys {
		row := []string{human.LastKey(k)}
		for _, g := range v.groups {
			row = append(row, labelOf(g.Labels, k))
		}
		rows = append(rows, row)
	}
	add := func(name, value string, cell func(results.Compared, string) string) {
		row := []string{name}
		for _, g := range v.groups {
			c, _ := g.Contrast(metric)
			x, ok := c.Of(value)
			if !ok {
				row = append(row, "–")
				continue
			}
			row = append(row, cell(x, c.Unit))
		}
		rows = append(rows, row)
	}
	own := " mean ± SD"
	if v.repeats() < 2 {
		own = " value"
	}
	add(v.Reference+own, v.Reference, writeMeanSD)
	for _, value := range v.sorted(metric) {
		add(value, value, func(x results.Compared, _ string) string { return writeRatio(x) })
	}
	t.grid(rows)
}

// grid writes rows of cells, the first column to the left and the others to the right.
func (t *texter) grid(rows [][]string) {
	t.columns(rows, "  ", t.opt.Width, func(col int) bool { return col > 0 }, nil)
}

// columns writes rows of cells with gaps between them, in a width; those of some columns to the right, and painted where paint
// is not nil. Columns that there is no room for follow below, the first one repeated.
func (t *texter) columns(rows [][]string, gap string, width int, right func(col int) bool, paint func(row, col int, text string) string) {
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for col, cell := range r {
			widths[col] = max(widths[col], utf8.RuneCountInString(human.Printable(cell)))
		}
	}
	cell := func(row, col int) string {
		text := human.Printable(rows[row][col])
		pad := strings.Repeat(" ", widths[col]-utf8.RuneCountInString(text))
		if paint != nil {
			text = paint(row, col, text)
		}
		if right(col) {
			return pad + text
		}
		return text + pad
	}
	for from, to := 1, 0; to < len(widths); from = to {
		room := width - 2 - widths[0]
		for to = from; to < len(widths) && (to == from || room >= len(gap)+widths[to]); to++ {
			room -= len(gap) + widths[to]
		}
		if from > 1 {
			t.b.WriteString("\n")
		}
		for row := range rows {
			line := "  " + cell(row, 0)
			for col := from; col < to; col++ {
				line += gap + cell(row, col)
			}
			t.b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
}

// compareView is the comparison of the HTML report.
type compareView struct {
	Title  string
	Notes  []string
	Plots  []comparePlot
	Left   []string
	Keys   []string // of the groups, as columns of the tables
	Key    string
	Spread string // head of the column of means: "mean ± SD"
	Change string // head of the column of changes
	Ranges bool   // there are intervals
}

// comparePlot is a metric: its drawings, what they come to, and all as a table.
type comparePlot struct {
	Title string
	Wide  bool
	SVGs  []template.HTML
	Found string
	Paper []string
	Rows  []compareRow
}

// compareRow is a row of a metric's table. The *Key fields are what it sorts by.
type compareRow struct {
	Group                        []string
	Value, Mean, Ratio, Change   string
	MeanKey, RatioKey, ChangeKey string
	Interval                     string
	Repeats                      string
}

// maxGroups is how many groups one drawing holds; more are drawn in several.
const maxGroups = 8

func (s *sheet) viewComparison(rec *results.Record) *compareView {
	v := newComparing(rec)
	if v == nil {
		return nil
	}
	out := &compareView{
		Title: human.UpperFirst(v.noun()) + " compared", Left: v.leftOut(), Key: human.LastKey(v.Key),
		Spread: "mean ± SD", Change: v.Reference + " has",
	}
	one := v.repeats() < 2
	out.Ranges = !one
	if one {
		out.Spread = "value"
	}
	for _, k := range v.keys {
		out.Keys = append(out.Keys, human.LastKey(k))
	}
	note := fmt.Sprintf("Every bar is a figure over that of %s in the same repeat, that is with the same jobs: ", v.Reference)
	if one {
		note = fmt.Sprintf("Every bar is a figure over that of %s with the same jobs. There is one repeat, and so no interval.", v.Reference)
	} else {
		note += fmt.Sprintf("the geometric mean over %d repeats. Whiskers are its 95 %% confidence interval (Student's t on the logarithms).", v.repeats())
	}
	out.Notes = append(out.Notes, note)
	key := func(f float64) string {
		if !human.Finite(f) {
			return ""
		}
		return strconv.FormatFloat(f, 'g', 8, 64)
	}
	for i, metric := range v.metrics {
		unit := v.unit(metric)
		p := comparePlot{Title: human.UpperFirst(human.Measure(metric)) + rangesOf(v.rec, metric), Wide: len(v.groups) > 1, Paper: v.published(metric)}
		p.Found = v.found(metric)
		for k, b := range v.bars(metric) {
			b.ID, b.Width = fmt.Sprintf("compare-%d-%d", i, k), s.width
			for _, name := range b.Names {
				b.Colours = append(b.Colours, s.colour(name))
			}
			p.SVGs = append(p.SVGs, template.HTML(b.SVG()))
		}
		order := v.sorted(metric)
		for _, g := range v.groups {
			c, _ := g.Contrast(metric)
			for _, value := range order {
				x, ok := c.Of(value)
				if !ok {
					continue
				}
				r := compareRow{Value: value, Mean: writeMeanSD(x, unit), Ratio: writeMean(x), Interval: writeInterval(x), Change: writeChange(x, v.Reference), RatioKey: key(x.Ratio)}
				if x.N > 0 {
					r.MeanKey = key(x.Mean)
				}
				if value != v.Reference {
					r.ChangeKey = key(x.Change())
				}
				r.Repeats = strconv.Itoa(x.Pairs)
				if x.Left > 0 {
					r.Repeats = fmt.Sprintf("%d of %d", x.Pairs, g.Repeats)
				}
				for _, k := range v.keys {
					r.Group = append(r.Group, labelOf(g.Labels, k))
				}
				p.Rows = append(p.Rows, r)
			}
		}
		out.Plots = append(out.Plots, p)
	}
	return out
}

// paperBar is the published range as ratios to the reference, the one that is about this
// very group first; nil without any that has one.
func paperBar(c results.Contrast) *plot.Bar {
	of := slices.DeleteFunc(slices.Clone(c.Published), func(p results.Published) bool { return p.Against != "" })
	i := slices.IndexFunc(of, func(p results.Published) bool { return p.At != "" })
	if i < 0 {
		if i = 0; len(of) == 0 {
			return nil
		}
	}
	p := of[i]
	lo, hi := 1/(1+max(p.Lo, p.Hi)), 1/(1+min(p.Lo, p.Hi))
	if !human.Finite(lo, hi) || lo <= 0 || hi <= 0 {
		return nil
	}
	return &plot.Bar{Lo: lo, Hi: hi, Title: "paper: " + wordsOfPublished(p)}
}

// bars are the drawings of a metric, all on one scale.
func (v *comparing) bars(metric string) []*plot.Bars {
	unit := v.unit(metric)
	name := human.Measure(metric)
	note := better(metric, unit) + rangesOf(v.rec, metric)
	if v.repeats() > 1 {
		note += "; whiskers: 95 % interval of " + strconv.Itoa(v.repeats()) + " paired repeats"
	}
	note += "; below: the mean of " + v.Reference
	if v.repeats() > 1 {
		note += " ± SD"
	}
	if slices.ContainsFunc(v.groups, func(g results.Group) bool { c, _ := g.Contrast(metric); return paperBar(c) != nil }) {
		note += "; bracket: what the paper says of the others"
	}
	parts := (len(v.groups) + maxGroups - 1) / maxGroups
	var out []*plot.Bars
	var ratios []float64
	ends := 0.0 // of whiskers
	for i := range parts {
		groups := v.groups[i*len(v.groups)/parts : (i+1)*len(v.groups)/parts]
		b := &plot.Bars{
			Title: human.UpperFirst(name) + ", normalised to " + v.Reference, Note: note,
			Names: v.order, Reference: slices.Index(v.order, v.Reference), XLabel: strings.Join(v.keys, ", "),
		}
		if parts > 1 {
			b.Title += fmt.Sprintf(" (%d of %d)", i+1, parts)
		}
		var desc []string
		for _, g := range groups {
			c, _ := g.Contrast(metric)
			bg := plot.BarGroup{Bars: make([]plot.Bar, len(v.order))}
			for _, k := range v.keys {
				bg.Lines = append(bg.Lines, labelOf(g.Labels, k))
			}
			if x, ok := c.Of(v.Reference); ok && x.N > 0 {
				bg.Foot = v.Reference + " " + writeMeanSD(x, unit)
			}
			bg.Paper = paperBar(c)
			var said []string
			for k, value := range v.order {
				x, ok := c.Of(value)
				if !ok || !human.Finite(x.Ratio) {
					continue
				}
				title := fmt.Sprintf("%s: %s of %s's, mean %s", strings.TrimSpace(g.Place()+" "+value), writeRatio(x), v.Reference, writeMeanSD(x, unit))
				bg.Bars[k] = plot.Bar{Y: x.Ratio, Lo: x.Lo, Hi: x.Hi, Title: title}
				said = append(said, value+" "+writeRatio(x))
				ratios, ends = append(ratios, x.Ratio), max(ends, x.Hi)
			}
			desc = append(desc, strings.TrimPrefix(g.Place()+": "+strings.Join(said, ", "), ": "))
			b.Groups = append(b.Groups, bg)
		}
		b.Desc = "Bars of " + name + " divided by that of " + v.Reference + ", " + note + ". " + strings.Join(desc, ". ") + "."
		out = append(out, b)
	}
	top, cut := scaleOf(ratios)
	limit := 1.6 * top // whiskers and brackets that go beyond it may leave the scale
	if cut {
		limit = top
	}
	top = max(top, min(ends, limit))
	for _, b := range out {
		for _, g := range b.Groups {
			if g.Paper != nil && g.Paper.Hi <= limit {
				top = max(top, g.Paper.Hi)
			}
		}
	}
	for _, b := range out {
		if b.Top = top; cut {
			b.Note += "; broken bars are higher than drawn"
		}
	}
	return out
}

// scaleOf is how far an axis of ratios reaches, 1 at least: to the largest, or if a
// few are so large that all others would look the same, only beyond those.
func scaleOf(ratios []float64) (top float64, cut bool) {
	if len(ratios) == 0 {
		return 1, false
	}
	slices.Sort(ratios)
	largest, most := ratios[len(ratios)-1], ratios[(len(ratios)-1)*6/7]
	if limit := 1.4 * max(most, 1); largest > 1.8*limit {
		return limit, true
	}
	return max(largest, 1), false
}
