package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
)

// Past is what is known of a run's past: how it compares with the last good run, and figures run
// after run. Package history fills it; a report shows it.
type Past struct {
	Good    *PastRun     `json:"good,omitempty"` // the last run before of the same setting that passed
	Note    string       `json:"note,omitempty"` // what the comparison rests on, or why there is none
	Figures []PastFigure `json:"figures"`        // that are not what they were, those that got worse first
	Same    int          `json:"same"`           // figures that are
	Series  []PastSeries `json:"series"`         // the most telling first
}

// PastRun is another run.
type PastRun struct {
	Run     string    `json:"run"` // its directory
	Started time.Time `json:"started"`
	Tool    string    `json:"tool"`
}

// PastFigure is a figure that is not what it was in the last good run. Shift is the change as a part of what
// it was, in [Lo, Hi] at 95 %.
type PastFigure struct {
	Change                  string `json:"change"` // "worse", "undecided", "gone", "changed", "new" or "better"
	Metric, Of, Point, Unit string
	Phase                   int // from 0
	Before, After           float64
	Shift, Lo, Hi           float64
}

// PastSeries is a figure run after run, the oldest first; the last one is that of the run itself.
type PastSeries struct {
	Metric, Of, Point, Unit string
	Phase                   int
	Nights                  []PastNight
	Changes                 []PastChange
}

// PastNight is what one run measured: the median of its repeats, and their range.
type PastNight struct {
	PastRun
	Median, Min, Max float64
}

// PastChange is a night from which on the figure was another one: its index, and by how much.
type PastChange struct {
	Night int
	Shift float64
}

// name of the figure.
func (s PastSeries) name() string {
	name := human.UpperFirst(human.Measure(s.Metric)) + " of " + s.Of
	if s.Point != "" {
		name += " at " + s.Point
	}
	if s.Phase > 0 {
		name += ", phase " + strconv.Itoa(s.Phase+1)
	}
	return name
}

// pastView is the section of a report.
type pastView struct {
	*Past
	Rows      []pastRow // of what is decided
	Undecided []pastRow
	Plots     []pastPlot
}

type pastRow struct {
	Class, Change, Metric, Point, Of           string
	Phase                                      int
	Before, After, Shift, Range                string
	Rank                                       int
	BeforeKey, AfterKey, ShiftKey, MetricPlain string
}

type pastPlot struct {
	ID, Title string
	Metric    string
	SVG       template.HTML
	Unit      string
	Rows      []pastNightRow
}

type pastNightRow struct{ Run, Date, Median, Key, Lo, Hi, Note string }

func (p *Past) view() *pastView {
	if p == nil {
		return nil
	}
	v := &pastView{Past: p}
	class := map[string]string{"worse": "fail", "undecided": "inconclusive", "better": "pass"}
	for i, f := range p.Figures {
		r := pastRow{
			Class: class[f.Change], Change: f.Change, Metric: human.Measure(f.Metric), MetricPlain: f.Metric, Point: f.Point, Of: f.Of, Phase: f.Phase + 1, Rank: i,
			Before: "–", After: "–", Shift: "–",
		}
		if f.Change != "new" {
			r.Before, r.BeforeKey = human.Quantity(f.Before, f.Unit), human.Exact(f.Before)
		}
		if f.Change != "gone" {
			r.After, r.AfterKey = human.Quantity(f.After, f.Unit), human.Exact(f.After)
		}
		if f.Change != "new" && f.Change != "gone" {
			r.Shift, r.ShiftKey = human.SignedError(f.Shift, true, ""), human.Exact(f.Shift)
			if r.Range = "–"; f.Lo < f.Hi { // else nobody knows
				r.Range = human.SignedError(f.Lo, true, "") + " to " + human.SignedError(f.Hi, true, "")
			}
		}
		if f.Change == "undecided" {
			v.Undecided = append(v.Undecided, r)
		} else {
			v.Rows = append(v.Rows, r)
		}
	}
	for i, s := range p.Series {
		one := pastPlot{ID: "history-" + strconv.Itoa(i), Title: s.name(), Metric: s.Metric, Unit: s.Unit}
		one.SVG = template.HTML(s.SVG(one.ID))
		for k, n := range s.Nights {
			row := pastNightRow{Run: n.Run, Date: n.Started.UTC().Format("2006-01-02 15:04"), Median: human.Quantity(n.Median, s.Unit), Key: human.Exact(n.Median), Lo: human.Exact(n.Min), Hi: human.Exact(n.Max)}
			for _, c := range s.Changes {
				if c.Night == k {
					row.Note = human.SignedError(c.Shift, true, "") + " from here on"
				}
			}
			one.Rows = append(one.Rows, row)
		}
		v.Plots = append(v.Plots, one)
	}
	return v
}

// maxNights is how many of the newest nights are drawn.
const maxNights = 120

// SVG draws the series: a point for each run with the range of its repeats, a line where it became
// another one, the run itself filled.
func (s PastSeries) SVG(id string) string {
	const w, h = 640.0, 260.0
	left, right, top, bottom := 58.0, w-18, 54.0, h-40
	skipped := max(0, len(s.Nights)-maxNights)
	nights := s.Nights[skipped:]
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, n := range nights {
		lo, hi = min(lo, n.Min), max(hi, n.Max)
	}
	if lo > 0 && lo < 0.5*hi {
		lo = 0
	}
	lo, hi = plot.Widened(lo, hi)
	ticks := plot.Ticks(lo, hi, 5)
	lo, hi = min(lo, ticks[0]), max(hi, ticks[len(ticks)-1])
	div, unit := plot.AxisUnit(math.Max(math.Abs(lo), math.Abs(hi)), s.Unit)
	px := func(i int) float64 { return left + (float64(i)+0.5)/float64(max(len(nights), 1))*(right-left) }
	py := func(v float64) float64 { return bottom - (v-lo)/(hi-lo)*(bottom-top) }
	var b plot.Canvas
	b.Begin(id, s.name()+", run after run", s.desc(), w, h)
	b.Text("strong", "start", 12, 18, plot.Clip(s.name(), 13, w-24))
	name := human.Measure(s.Metric)
	if unit != "" {
		name += ", " + unit
	}
	b.Text("muted small", "start", 12, 38, name+"; median of each run, range of its repeats")
	step := ticks[1] - ticks[0]
	for _, t := range ticks {
		b.Line("grid", left, py(t), right, py(t))
		b.Text("muted small", "end", left-7, py(t)+4, plot.TickText(t/div, step/div))
	}
	b.Line("axis", left, bottom, right, bottom)
	// Dates where they fit.
	last := math.Inf(-1)
	for i, n := range nights {
		if x := px(i); x-last > 84 && x < right-20 {
			b.Line("axis", x, bottom, x, bottom+4)
			b.Text("muted small", "middle", x, bottom+17, n.Started.UTC().Format("2006-01-02"))
			last = x
		}
	}
	for _, c := range s.Changes {
		if i := c.Night - skipped; i >= 0 {
			x := px(i) - (right-left)/float64(len(nights))/2
			b.Line("paper", x, top, x, bottom)
			anchor, at := "start", x+5
			if x > right-90 {
				anchor, at = "end", x-5
			}
			b.Text("small strong halo", anchor, at, top+10, human.SignedError(c.Shift, true, ""))
		}
	}
	var join []float64
	for i, n := range nights {
		join = append(join, px(i), py(n.Median))
	}
	b.Leaf("", "path", "class", "join c0", "d", plot.Path(join))
	for i, n := range nights {
		if n.Max > n.Min {
			b.Line("whisk c0", px(i), py(n.Min), px(i), py(n.Max))
		}
		series, hollow := 0, true
		if i == len(nights)-1 {
			hollow = false
		}
		b.Marker(n.Started.UTC().Format("2006-01-02 15:04")+": "+human.Quantity(n.Median, s.Unit)+", "+n.Run, series, px(i), py(n.Median), hollow)
	}
	b.Text("muted small", "end", right, h-6, "filled: this run")
	b.Close("svg")
	return b.String()
}

func (s PastSeries) desc() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. ", human.Plural(len(s.Nights), "run"))
	if n := len(s.Nights); n > 0 {
		last := s.Nights[n-1]
		fmt.Fprintf(&b, "This one: %s. ", human.Quantity(last.Median, s.Unit))
	}
	for _, c := range s.Changes {
		if c.Night < len(s.Nights) {
			fmt.Fprintf(&b, "%s from %s on. ", human.SignedError(c.Shift, true, ""), s.Nights[c.Night].Started.UTC().Format("2006-01-02"))
		}
	}
	return strings.TrimSpace(b.String())
}

// drawOccupancy draws how many aggregators each job held at each switch, over time: by Little's law the
// rate at which the time that they were held grows, as the switches count it.
func (s *sheet) drawOccupancy(rec *results.Record, samples []results.Sample) (out []panel) {
	type subject struct{ source, of string }
	series := map[subject]*results.Series{}
	var order []subject
	for _, x := range samples {
		if !x.Held() {
			continue
		}
		k := subject{x.Source, x.Of}
		if series[k] == nil {
			series[k] = &results.Series{}
			order = append(order, k)
		}
		one := series[k]
		one.T, one.V = append(one.T, x.T), append(one.V, x.Value)
	}
	bySwitch := map[string]*plot.Chart{}
	var switches []string
	for _, k := range order {
		job, sw, ok := strings.Cut(k.of, "@")
		if !ok {
			job, sw = k.of, k.source
		}
		rates := thin(*series[k], maxVertices).Rates()
		var points []plot.Point
		held := false
		for i, t := range rates.T {
			points = append(points, plot.Point{X: t, Y: rates.V[i], Lo: rates.V[i], Hi: rates.V[i]})
			held = held || rates.V[i] > 0
		}
		if !held {
			continue
		}
		c := bySwitch[sw]
		if c == nil {
			c = &plot.Chart{Title: "Aggregators held at " + sw, Measure: "aggregators", Unit: "1", XLabel: "time", XUnit: "s", Observed: string(kindOf(rec)), Lines: true, Width: s.width}
			bySwitch[sw], switches = c, append(switches, sw)
		}
		c.Series = append(c.Series, plot.Series{Name: job, Colour: s.colour(job), Points: points})
	}
	for i, sw := range switches {
		if i == maxOccupancy {
			break
		}
		c := bySwitch[sw]
		c.Series = c.Series[:min(len(c.Series), maxSeries)]
		c.ID = "occupancy-" + strconv.Itoa(i)
		c.Lo, c.Hi = c.Span()
		c.Lo = min(c.Lo, 0)
		p := panel{ID: c.ID, Title: c.Title, Metric: "aggregators", CSV: [][]string{{"switch", "job", "time [s]", "aggregators"}}}
		for _, s := range c.Series {
			var mean float64
			for _, x := range s.Points {
				p.CSV = append(p.CSV, []string{sw, s.Name, human.Exact(x.X), human.Exact(x.Y)})
				mean += x.Y / float64(len(s.Points))
			}
			c.Desc += fmt.Sprintf("%s: %s on average. ", s.Name, human.Quantity(mean, "1"))
		}
		p.SVG = template.HTML(c.SVG())
		out = append(out, p)
	}
	return out
}

// maxOccupancy is how many switches are drawn.
const maxOccupancy = 8

func kindOf(rec *results.Record) results.Kind {
	if rec.Kind == "" {
		return results.Measured
	}
	return rec.Kind
}

// csvText is rows as the script of the page saves them.
func csvText(rows [][]string) string {
	var b strings.Builder
	for _, r := range rows {
		for i, c := range results.CSVRow(slices.Clone(r)) {
			if i > 0 {
				b.WriteByte(',')
			}
			if strings.ContainsAny(c, ",\"\n\r") {
				c = `"` + strings.ReplaceAll(c, `"`, `""`) + `"`
			}
			b.WriteString(c)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// CSVText is what is saved of a drawing that has no table.
func (p panel) CSVText() string { return csvText(slices.Clone(p.CSV)) }
