package report

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
)

// maxSeries is the most series that one chart tells apart; a metric of more
// subjects is drawn as measured against predicted.
const maxSeries = 6

// expected names the line of a two-sided expectation with a value of its own.
const expected = "expected"

// valueNames are those of lines of expectations with values of their own, by their bounds.
var valueNames = map[string]string{"within": expected, "at-least": "at least", "at-most": "at most"}

// panel is a drawing of the report with its figures as a table.
type panel struct {
	ID     string
	SVG    template.HTML
	Table  []panelRow
	Title  string
	Metric string
	Unit   string
	CSV    [][]string // where there is no table
}

type panelRow struct {
	Where, Of, Observed string
	Key, Lo, Hi         string   // of Observed, as numbers in the drawing's unit
	Keys                []string // of Predicted
	Predicted           []string // in the order of Predictors
	Predictors          []string
}

// datum is one subject of one metric in one phase of one cell of the sweep.
type datum struct {
	cell      int // in the order of cells
	index     int // the point's
	phase     int
	of, unit  string
	observed  results.Figure
	seen      bool
	predicted map[string]float64
}

// data are a metric's figures, repeats combined, in order.
func data(cells []results.Setting, metric string, wanted func(of string) bool) []datum {
	var out []datum
	for ci := range cells {
		c := &cells[ci]
		for phase := range c.Phases {
			at := map[string]int{}
			figs := map[string][]results.Figure{}
			count := map[string]map[string]int{}
			first := len(out)
			for _, p := range c.Repeats {
				if phase >= len(p.Phases) {
					continue
				}
				for _, f := range p.Phases[phase].Figures {
					if f.Metric != metric || !wanted(f.Of) || !human.Finite(f.Value, f.Lo, f.Hi) {
						continue
					}
					i, ok := at[f.Of]
					if !ok {
						i = len(out)
						at[f.Of] = i
						out = append(out, datum{cell: ci, index: c.Index, phase: phase, of: f.Of, unit: f.Unit, predicted: map[string]float64{}})
						count[f.Of] = map[string]int{}
					}
					if f.Kind != results.Predicted {
						figs[f.Of] = append(figs[f.Of], f)
						continue
					}
					n := count[f.Of]
					n[f.Predictor]++
					out[i].predicted[f.Predictor] += (f.Value - out[i].predicted[f.Predictor]) / float64(n[f.Predictor])
				}
			}
			for i := first; i < len(out); i++ {
				if f := figs[out[i].of]; len(f) > 0 {
					out[i].observed, out[i].seen = results.Combine(f), true
				}
			}
		}
	}
	return out
}

// sweepKey is the swept key with numeric values that makes the X axis: the one
// with the most of them. Keys are in the order of the labels.
func sweepKey(points []results.Point) (key string, keys []string) {
	values := map[string]map[float64]bool{}
	texts := map[string]map[string]bool{}
	numeric := map[string]bool{}
	for _, p := range points {
		for _, k := range results.SweptKeys(p) {
			if texts[k] == nil {
				texts[k], values[k], numeric[k] = map[string]bool{}, map[float64]bool{}, true
				keys = append(keys, k)
			}
			texts[k][fmt.Sprint(p.Params[k])] = true
			if v, _, ok := asNumber(p.Params[k]); ok {
				values[k][v] = true
			} else {
				numeric[k] = false
			}
		}
	}
	keys = slices.DeleteFunc(keys, func(k string) bool { return len(texts[k]) < 2 })
	most := 1
	for _, k := range keys {
		if numeric[k] && len(values[k]) > most {
			key, most = k, len(values[k])
		}
	}
	return key, keys
}

// asNumber reads a swept value: a number, or one with a unit such as "25Gbit/s".
func asNumber(v any) (n float64, unit string, ok bool) {
	switch v := v.(type) {
	case float64:
		return v, "", human.Finite(v)
	case int:
		return float64(v), "", true
	case int64:
		return float64(v), "", true
	case string:
		i := strings.LastIndexAny(v, "0123456789") + 1
		f, err := strconv.ParseFloat(strings.TrimSpace(v[:i]), 64)
		if err != nil || !human.Finite(f) {
			return 0, "", false
		}
		unit := strings.TrimSpace(v[i:])
		scale, known := map[string]float64{
			"": 1, "bit/s": 1, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12,
			"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
			"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1,
		}[unit]
		if known {
			return f * scale, unit, true
		}
	}
	return 0, "", false
}

// baseUnit is a unit without its prefix.
func baseUnit(unit string) string {
	for _, base := range []string{"bit/s", "B", "s"} {
		if strings.HasSuffix(unit, base) {
			return base
		}
	}
	return ""
}

// metricsOf are the metrics to draw: those with gated expectations first, then those with
// others, those that the record lists, and what jobs and links had.
func metricsOf(rec *results.Record) []string {
	var out []string
	add := func(m string) {
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	for _, gate := range []bool{true, false} {
		for _, e := range expectationsOf(rec) {
			if e.Gate == gate {
				add(e.Metric)
			}
		}
	}
	for _, m := range append(slices.Clone(rec.Summary), "share", "goodput", "link_rate") {
		for _, p := range rec.Points {
			for _, ph := range p.Phases {
				if slices.ContainsFunc(ph.Figures, func(f results.Figure) bool { return f.Metric == m && f.Kind != results.Predicted }) {
					add(m)
				}
			}
		}
	}
	// Counts that should be zero or merely large say nothing as a picture; what is
	// compared has its own.
	return slices.DeleteFunc(out, func(m string) bool {
		return m == "sum_errors" || m == "iterations" || rec.Comparison != nil && slices.Contains(rec.Comparison.Metrics, strings.TrimSuffix(m, "_ratio"))
	})
}

// drawPlots draws every metric of the run.
func (s *sheet) drawPlots(rec *results.Record) []panel {
	cells := results.Settings(rec.Points)
	xKey, keys := sweepKey(rec.Points)
	gated := map[string]bool{}
	for _, e := range rec.Expect {
		if e.Gate {
			gated[e.Predictor] = true
		}
	}
	observedWord := string(cmp.Or(rec.Kind, results.Measured))
	var out []panel
	for _, metric := range metricsOf(rec) {
		ds := data(cells, metric, func(of string) bool { return drawsMetric(rec, metric, of) })
		ds = slices.DeleteFunc(ds, func(d datum) bool { return !d.seen })
		if len(ds) == 0 {
			continue
		}
		var subjects []string
		preds := map[string]bool{}
		for _, d := range ds {
			if !slices.Contains(subjects, d.of) {
				subjects = append(subjects, d.of)
			}
			for p := range d.predicted {
				preds[p] = true
			}
		}
		var styles []plot.Predictor
		for _, p := range slices.Sorted(maps.Keys(preds)) {
			styles = append(styles, plot.Predictor{Name: p, Gate: gated[p] || len(gated) == 0 && p != "waterfill"})
		}
		for i := range ds {
			for _, e := range expectsOf(rec, metric, "value", cells, ds[i]) {
				name := valueNames[e.BoundText()]
				if _, known := ds[i].predicted[name]; known {
					continue
				}
				ds[i].predicted[name] = e.Value
				if k := slices.IndexFunc(styles, func(p plot.Predictor) bool { return p.Name == name }); k >= 0 {
					styles[k].Gate = styles[k].Gate || e.Gate
				} else {
					styles = append(styles, plot.Predictor{Name: name, Gate: e.Gate})
				}
			}
		}
		slices.SortStableFunc(styles, func(a, b plot.Predictor) int { return cmp.Compare(rank(b.Gate), rank(a.Gate)) })
		m := metricPlot{sheet: s, rec: rec, metric: metric, observed: observedWord, styles: styles, subjects: subjects, cells: cells, xKey: xKey, keys: keys, n: len(out)}
		if len(subjects) > maxSeries && len(styles) > 0 {
			out = append(out, m.scatter(ds))
			continue
		}
		out = append(out, m.charts(ds)...)
	}
	return append(out, s.drawCurves(rec, observedWord)...)
}

// drawsMetric says whether any expectation of the metric, if it has one, is about of.
func drawsMetric(rec *results.Record, metric, of string) bool {
	any := false
	for _, e := range rec.Expect {
		if e.Metric != metric {
			continue
		}
		any = true
		if results.Glob(e.Of, of) {
			return true
		}
	}
	return !any
}

// expectsOf are the expectations of a metric with a predictor that are about a datum, gated ones first.
func expectsOf(rec *results.Record, metric, predictor string, cells []results.Setting, d datum) (out []*results.Expect) {
	for _, gate := range []bool{true, false} {
		for i := range rec.Expect {
			e := &rec.Expect[i]
			if e.Metric == metric && e.Gate == gate && (e.Predictor == predictor || predictor == "value" && e.Predictor == "") &&
				results.Labelled(cells[d.cell].Label, e.Points) && results.Glob(e.Of, d.of) {
				out = append(out, e)
			}
		}
	}
	return out
}

// expectOf is the one of a line by its predictor's name.
func (m *metricPlot) expectOf(name string, d datum) *results.Expect {
	for _, predictor := range []string{name, "value"} {
		for _, e := range expectsOf(m.rec, m.metric, predictor, m.cells, d) {
			if predictor != "value" || valueNames[e.BoundText()] == name {
				return e
			}
		}
	}
	return nil
}

// outcomeOf is the verdict on one figure: failed if any gated check of it is.
func outcomeOf(rec *results.Record, metric string, d datum) results.Outcome {
	var o results.Outcome
	for _, c := range rec.Checks {
		if c.Metric != metric || c.Index != d.index || c.Phase != d.phase || c.Of != d.of || !c.Gate {
			continue
		}
		if c.Outcome == results.Fail || o == "" {
			o = c.Outcome
		}
	}
	return o
}

type metricPlot struct {
	sheet    *sheet
	rec      *results.Record
	metric   string
	observed string
	styles   []plot.Predictor
	subjects []string
	cells    []results.Setting
	xKey     string
	keys     []string
	n        int
	together bool   // figures of all points in one drawing: see combinations
	over     string // where these are too many: the key whose values are drawn over each other
}

// where names a datum's place in the sweep.
func (m *metricPlot) where(d datum) string {
	return m.cells[d.cell].Place(d.phase)
}

func (m *metricPlot) tip(d datum) string {
	parts := []string{m.observed + " " + human.QuantityCI(d.observed.Value, d.observed.Lo, d.observed.Hi, d.observed.Unit) + rangeOf(m.rec, m.metric, at(d.index))}
	for _, p := range m.styles {
		if v, ok := d.predicted[p.Name]; ok {
			parts = append(parts, p.Name+" "+human.Quantity(v, d.observed.Unit))
		}
	}
	if m.rec.Scale.Scales(d.observed.Metric, d.observed.Unit) {
		parts = append(parts, "at lab scale "+human.Quantity(m.rec.Scale.Lab(d.observed.Value, d.observed.Unit), d.observed.Unit))
	}
	return strings.TrimSpace(m.where(d)+" "+d.of) + ": " + strings.Join(parts, ", ")
}

// tolerance of a value that is predicted of a datum, by the metric's gated expectation on each figure.
func (m *metricPlot) tolerance(p plot.Predictor, d datum, v float64) (lo, hi float64) {
	e := m.expectOf(p.Name, d)
	if e == nil || !p.Gate || e.Statistic == "mean" || e.Statistic == "max" || e.BoundText() != "within" {
		return v, v
	}
	t := e.Tolerance
	if e.Relative {
		t *= math.Abs(v)
	}
	lo, hi = v-t, v+t
	if m.metric == "share" || m.metric == "jain" { // there is nothing beyond
		lo, hi = max(lo, min(v, 0)), min(hi, max(v, 1))
	}
	return lo, hi
}

func (m *metricPlot) table(ds []datum) []panelRow {
	var out []panelRow
	for _, d := range ds {
		f := d.observed
		r := panelRow{Where: m.where(d), Of: d.of, Observed: human.QuantityCI(f.Value, f.Lo, f.Hi, f.Unit) + rangeOf(m.rec, m.metric, at(d.index)), Key: human.Exact(f.Value), Lo: human.Exact(f.Lo), Hi: human.Exact(f.Hi)}
		for _, p := range m.styles {
			r.Predictors = append(r.Predictors, p.Name)
			text, key := "–", ""
			if v, ok := d.predicted[p.Name]; ok {
				text, key = human.Quantity(v, d.observed.Unit), human.Exact(v)
			}
			r.Predicted, r.Keys = append(r.Predicted, text), append(r.Keys, key)
		}
		out = append(out, r)
	}
	return out
}

func (m *metricPlot) scatter(ds []datum) panel {
	predictor := m.styles[0].Name
	c := plot.Scatter{
		ID: "plot-" + strconv.Itoa(m.n), Title: human.UpperFirst(human.Measure(m.metric)) + " of " + strconv.Itoa(len(m.subjects)) + " " + m.things() + ", every phase",
		Measure: human.Measure(m.metric), Unit: ds[0].observed.Unit, Observed: m.observed, Predictor: predictor, Width: m.sheet.width,
	}
	first := func(d datum) *results.Expect {
		for _, e := range expectsOf(m.rec, m.metric, predictor, m.cells, d) {
			return e
		}
		return nil
	}
	e := first(ds[0])
	if slices.ContainsFunc(ds, func(d datum) bool { return !tolerates(e, first(d)) }) {
		e = nil // there is no tolerance of all
	}
	if e != nil && e.Statistic != "mean" {
		c.Tolerance, c.Relative = e.Tolerance, e.Relative
	} else if e != nil {
		c.Relative = e.Relative
	} else {
		c.Relative = !human.Plain(c.Unit)
	}
	for _, d := range ds {
		v, ok := d.predicted[predictor]
		if !ok {
			continue
		}
		c.Points = append(c.Points, plot.ScatterPoint{
			X: v, Y: d.observed.Value, Lo: d.observed.Lo, Hi: d.observed.Hi,
			Name: strings.TrimSpace(d.of + " " + m.where(d)), Title: m.tip(d), Outcome: outcomeOf(m.rec, m.metric, d),
		})
	}
	c.Desc = fmt.Sprintf("%d figures, %s on the vertical axis against predicted by %s on the horizontal one. The table below the drawing has the numbers.", len(c.Points), m.observed, predictor)
	return panel{ID: c.ID, SVG: template.HTML(c.SVG()), Title: c.Title, Metric: m.metric, Unit: c.Unit, Table: m.table(ds)}
}

// tolerates is whether two expectations, or none, tolerate the same.
func tolerates(a, b *results.Expect) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Tolerance == b.Tolerance && a.Relative == b.Relative && (a.Statistic == "mean") == (b.Statistic == "mean")
}

func (m *metricPlot) things() string {
	if m.metric == "link_rate" {
		return "links"
	}
	return "subjects"
}

// charts draws one chart a combination of the swept keys that are not on the X axis, all on
// the same scale. Figures of the whole cluster share charts: all combinations, maxSeries
// to a chart, or, if these are too many, those that differ in the policy or in what is compared.
func (m *metricPlot) charts(ds []datum) []panel {
	type group struct {
		name string
		ds   []datum
	}
	var groups []group
	at := map[string]int{}
	names, together := m.combinations(ds)
	m.together = together
	if column := columnKey(m.rec); len(names) > maxSeries && column != m.xKey && slices.Contains(m.keys, column) {
		m.over, together = column, false
	}
	for _, d := range ds {
		name := ""
		switch {
		case together: // maxSeries to a chart
			name = strconv.Itoa(slices.Index(names, m.panelName(d)) / maxSeries)
		case m.xKey != "":
			name = m.panelName(d)
		}
		i, ok := at[name]
		if !ok {
			i = len(groups)
			at[name] = i
			groups = append(groups, group{name: name})
		}
		groups[i].ds = append(groups[i].ds, d)
	}
	var charts []*plot.Chart
	var out []panel
	for i, p := range groups {
		c := m.chart(p.ds)
		c.ID = fmt.Sprintf("plot-%d-%d", m.n, i)
		c.Title = human.UpperFirst(human.Measure(m.metric))
		if m.xKey != "" {
			c.Title += " against " + m.xKey
		}
		switch {
		case together && len(groups) > 1:
			c.Title += fmt.Sprintf(" (%d of %d)", i+1, len(groups))
		case p.name != "" && !together:
			c.Title += ", " + p.name
		}
		c.Desc = m.describe(p.ds)
		charts = append(charts, c)
		out = append(out, panel{ID: c.ID, Title: c.Title, Metric: m.metric, Unit: c.Unit, Table: m.table(p.ds)})
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, c := range charts {
		a, b := c.Span()
		lo, hi = min(lo, a), max(hi, b)
	}
	for i, c := range charts {
		c.Lo, c.Hi = lo, hi
		out[i].SVG = template.HTML(c.SVG())
	}
	return out
}

// combinations says whether figures of the whole cluster share drawings, with a series for each
// combination of the swept keys that are not on the X axis: the names of those, in order.
func (m *metricPlot) combinations(ds []datum) (names []string, together bool) {
	if m.xKey == "" || !slices.Equal(m.subjects, []string{results.Cluster}) {
		return nil, false
	}
	for _, d := range ds {
		if n := m.panelName(d); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names, len(names) > 1
}

// panelName is the value of the swept keys other than X, and the phase.
func (m *metricPlot) panelName(d datum) string {
	p := pointOf(m.cells[d.cell])
	var parts []string
	for _, k := range m.keys {
		if k != m.xKey && k != m.over {
			parts = append(parts, fmt.Sprintf("%s %v", human.LastKey(k), p.Params[k]))
		}
	}
	if m.cells[d.cell].Phases > 1 {
		parts = append(parts, "phase "+strconv.Itoa(d.phase+1))
	}
	return strings.Join(parts, ", ")
}

// pointOf is any sound repeat; only cells with one carry data.
func pointOf(c results.Setting) results.Point {
	if len(c.Repeats) == 0 {
		return results.Point{}
	}
	return c.Repeats[0]
}

func (m *metricPlot) describe(ds []datum) string {
	var b strings.Builder
	for i, d := range ds {
		if i == 16 {
			fmt.Fprintf(&b, "and %d more, in the table below the drawing.", len(ds)-i)
			break
		}
		b.WriteString(m.tip(d) + ". ")
	}
	return strings.TrimSpace(b.String())
}

func (m *metricPlot) chart(ds []datum) *plot.Chart {
	c := &plot.Chart{Measure: human.Measure(m.metric), Unit: ds[0].observed.Unit, Predictors: m.styles, Observed: m.observed, XLabel: m.xKey, Width: m.sheet.width}
	x := func(d datum) float64 {
		v, unit, _ := asNumber(pointOf(m.cells[d.cell]).Params[m.xKey])
		c.XUnit = baseUnit(unit)
		return v
	}
	bySubject := true
	if m.xKey == "" {
		rows := map[string]int{}
		for _, d := range ds {
			w := m.where(d)
			if _, ok := rows[w]; !ok {
				rows[w] = len(rows)
				c.Rows = append(c.Rows, w)
			}
		}
		x = func(d datum) float64 { return float64(rows[m.where(d)]) }
		if len(c.Rows) == 1 { // nothing was swept: a row a subject
			bySubject = false
			c.Rows = slices.Clone(m.subjects)
			x = func(d datum) float64 { return float64(slices.Index(m.subjects, d.of)) }
		}
	}
	series := map[string]int{}
	whose := map[int]string{} // colour a series has
	for _, d := range ds {
		name := ""
		switch {
		case m.over != "":
			name = fmt.Sprint(pointOf(m.cells[d.cell]).Params[m.over])
		case m.together:
			name = m.panelName(d)
		case bySubject:
			name = d.of
		}
		i, ok := series[name]
		if !ok {
			i = len(c.Series)
			series[name] = i
			c.Series = append(c.Series, plot.Series{Name: name, Curves: map[string][]plot.CurvePoint{}})
			whose[i] = m.whose(d, name)
		}
		s := &c.Series[i]
		s.Points = append(s.Points, plot.Point{
			X: x(d), Y: d.observed.Value, Lo: d.observed.Lo, Hi: d.observed.Hi,
			Title: m.tip(d), Outcome: outcomeOf(m.rec, m.metric, d),
		})
		for _, p := range m.styles {
			if v, ok := d.predicted[p.Name]; ok {
				lo, hi := m.tolerance(p, d, v)
				c.Tolerance = c.Tolerance || hi > lo
				s.Curves[p.Name] = append(s.Curves[p.Name], plot.CurvePoint{X: x(d), Y: v, Lo: lo, Hi: hi})
			}
		}
	}
	var colours []int
	for i := range c.Series {
		if whose[i] != "" {
			c.Series[i].Colour = m.sheet.colour(whose[i])
		}
		colours = append(colours, c.Series[i].Colour)
	}
	for i, colour := range apart(colours) {
		s := &c.Series[i]
		s.Colour = colour
		slices.SortStableFunc(s.Points, func(a, b plot.Point) int { return cmp.Compare(a.X, b.X) })
		for _, curve := range s.Curves {
			slices.SortStableFunc(curve, func(a, b plot.CurvePoint) int { return cmp.Compare(a.X, b.X) })
		}
	}
	return c
}

// whose returns the name that decides the colour of a series: its value of the compared key, if series differ in that key,
// else its job or other subject.
func (m *metricPlot) whose(d datum, name string) string {
	column := columnKey(m.rec)
	if column == m.xKey || !slices.Contains(m.keys, column) || !m.together && m.over == "" {
		if i := strings.IndexAny(name, "@/"); i > 0 { // a job at a switch, or one of its workers
			name = name[:i]
		}
		return name
	}
	return fmt.Sprint(pointOf(m.cells[d.cell]).Params[column])
}

// maxTimelines is how many links are drawn over time.
const maxTimelines = 24

// maxVertices bounds a timeline's path; longer ones are averaged.
const maxVertices = 400

// drawTimelines draws each busy link's rate over time, all in one unit. left is how
// many were not drawn.
func (s *sheet) drawTimelines(rec *results.Record, samples []results.Sample) (plots []panel, unit string, left int) {
	links := map[string]bool{}
	for _, l := range rec.Topology.Links {
		links[l.Name] = true
	}
	carried := results.LinkBytes(samples, func(link string) bool { return links[link] })
	predicted := map[string]bool{}
	gatedFirst := linkPredictor(rec)
	end := 0.0
	for _, p := range rec.Points {
		for _, ph := range p.Phases {
			end = max(end, ph.End)
			for _, f := range ph.Figures {
				if f.Kind == results.Predicted && f.Metric == "link_rate" && f.Value > 0 && f.Predictor == gatedFirst {
					predicted[f.Of] = true
				}
			}
		}
	}
	var drawn []*plot.Timeline
	for _, l := range rec.Topology.Links {
		series, ok := carried[l.Name]
		if !ok {
			continue
		}
		kept := thin(series, maxVertices)
		var rates []plot.RateSpan
		busy := predicted[l.Name]
		for i := 1; i < len(kept.T); i++ {
			if kept.T[i] <= kept.T[i-1] || kept.V[i] < kept.V[i-1] { // a new counter: another point of the sweep
				continue
			}
			r := plot.RateSpan{From: kept.T[i-1], To: kept.T[i], Rate: 8 * (kept.V[i] - kept.V[i-1]) / (kept.T[i] - kept.T[i-1])}
			if !human.Finite(r.From, r.To, r.Rate) {
				continue
			}
			rates = append(rates, r)
			busy = busy || r.Rate > l.Rate*0.01
			end = max(end, r.To)
		}
		if !busy {
			continue
		}
		if len(drawn) == maxTimelines {
			left++
			continue
		}
		t := &plot.Timeline{ID: "time-" + strconv.Itoa(len(drawn)), Name: l.Name, Rates: rates, Capacity: l.Rate, Width: s.width}
		for _, p := range rec.Points {
			for _, ph := range p.Phases {
				tp := plot.TimePhase{Start: ph.Start, End: ph.End}
				for _, f := range ph.Figures {
					if f.Kind == results.Predicted && f.Metric == "link_rate" && f.Of == l.Name && f.Predictor == gatedFirst {
						tp.Predicted, tp.Known = f.Value, true
					}
				}
				t.Phases = append(t.Phases, tp)
			}
		}
		drawn = append(drawn, t)
	}
	top := 0.0
	for _, t := range drawn {
		for _, r := range t.Rates {
			top = max(top, r.Rate)
		}
		for _, p := range t.Phases {
			top = max(top, p.Predicted)
		}
	}
	for _, t := range drawn {
		if t.Capacity < 2*top {
			top = max(top, t.Capacity*1.04)
		}
	}
	for _, t := range drawn {
		t.End, t.Top = max(end, 1e-9), cmp.Or(top, 1)
		t.Div, unit = plot.AxisUnit(t.Top, "bit/s")
		p := panel{ID: t.ID, SVG: template.HTML(t.SVG()), Title: "Rate of link " + t.Name + " over time", Metric: "link_rate", CSV: [][]string{{"link", "kind", "from [s]", "to [s]", "rate [bit/s]"}}}
		for _, r := range t.Rates {
			p.CSV = append(p.CSV, []string{t.Name, string(cmp.Or(rec.Kind, results.Measured)), human.Exact(r.From), human.Exact(r.To), strconv.FormatFloat(r.Rate, 'g', 6, 64)})
		}
		for _, ph := range t.Phases {
			if ph.Known {
				p.CSV = append(p.CSV, []string{t.Name, "predicted", human.Exact(ph.Start), human.Exact(ph.End), human.Exact(ph.Predicted)})
			}
		}
		plots = append(plots, p)
	}
	return plots, unit, left
}

// linkPredictor is the model drawn over links, of those that predict them: that of a gated expectation.
func linkPredictor(rec *results.Record) string {
	all, found := map[string]bool{}, ""
	for _, p := range rec.Points {
		for _, ph := range p.Phases {
			for _, f := range ph.Figures {
				if f.Kind != results.Predicted || f.Metric != "link_rate" {
					continue
				}
				if all[f.Predictor] = true; found == "" || found == "waterfill" {
					found = f.Predictor
				}
			}
		}
	}
	for _, e := range rec.Expect {
		if e.Gate && all[e.Predictor] && e.Against == "" {
			return e.Predictor
		}
	}
	return found
}

// thin keeps about n of a counter's readings; rates between those kept are means.
func thin(s results.Series, n int) results.Series {
	if len(s.T) <= n {
		return s
	}
	step := (len(s.T) + n - 1) / n
	var out results.Series
	for i := 0; i < len(s.T); i += step {
		out.T, out.V = append(out.T, s.T[i]), append(out.V, s.V[i])
	}
	return out
}

// LinkLoads are the link loads of the busiest phase of the run, and its name.
func LinkLoads(rec *results.Record) (map[string]plot.LinkLoad, string) {
	predictor := linkPredictor(rec)
	var best map[string]plot.LinkLoad
	name, most := "", -1.0
	cells := results.Settings(rec.Points)
	for ci := range cells {
		one := data(cells[ci:ci+1], "link_rate", func(string) bool { return true })
		for phase := range cells[ci].Phases {
			loads := map[string]plot.LinkLoad{}
			sum := 0.0
			for _, d := range one {
				if d.phase != phase {
					continue
				}
				var l plot.LinkLoad
				if d.seen {
					l.Observed = d.observed
					sum += d.observed.Value
				}
				if v, ok := d.predicted[predictor]; ok {
					l.Predicted = results.Figure{Kind: results.Predicted, Value: v, Predictor: predictor, Unit: "bit/s"}
					if !d.seen {
						sum += v
					}
				}
				loads[d.of] = l
			}
			if len(loads) > 0 && sum > most {
				most, best = sum, loads
				name = cells[ci].Place(phase)
			}
		}
	}
	return best, name
}
