package report

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
	"github.com/inabench/inabench/results/trend"
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
	Changes                 []trend.Change
}

// PastNight is what one run measured.
type PastNight struct {
	PastRun
	Figures []float64 // of its repeats, at least one
}

// when it began, as drawings and tables have it.
func (n PastNight) when() string { return n.Started.UTC().Format("2006-01-02 15:04") }

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
			row := pastNightRow{Run: n.Run, Date: n.when(), Median: human.Quantity(results.Median(n.Figures), s.Unit),
				Key: human.Exact(results.Median(n.Figures)), Lo: human.Exact(slices.Min(n.Figures)), Hi: human.Exact(slices.Max(n.Figures))}
			for _, c := range s.Changes {
				if c.Night == k {
					row.Note = human.SignedError(c.Shift, true, "") + " from here on"
					if c.Lasted() > 0 {
						row.Note = human.SignedError(c.Shift, true, "") + " " + c.Long()
					}
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

// SVG draws the newest nights of the series, the last of which is the run itself.
func (s PastSeries) SVG(id string) string {
	skipped := max(0, len(s.Nights)-maxNights)
	n := plot.Nights{ID: id, Title: s.name() + ", run after run", Unit: s.Unit}
	for i, night := range s.Nights[skipped:] {
		n.Marks = append(n.Marks, plot.NightMark{Name: night.Run, When: night.when(), Figures: night.Figures, This: skipped+i == len(s.Nights)-1})
	}
	for _, c := range s.Changes {
		if c.Night >= skipped {
			n.Steps = append(n.Steps, plot.NightStep{At: c.Night - skipped, Text: human.SignedError(c.Shift, true, "")})
		}
	}
	return n.SVG()
}

// drawOccupancy draws how many aggregators each job held at each switch, over time: by Little's law the
// rate at which the time that they were held grows, as the switches count it.
func (s *sheet) drawOccupancy(rec *results.Record, samples []results.Sample) (out []panel) {
	var read results.Readings
	for i := range samples {
		if samples[i].Held() {
			read.Add(samples[i])
		}
	}
	bySwitch := map[string]*plot.Chart{}
	var switches []string
	for of, series := range read.All() {
		job, sw, ok := strings.Cut(of.Of, "@")
		if !ok {
			sw = of.Source
		}
		rates := thin(series, maxVertices).Rates()
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
			c = &plot.Chart{Title: "Aggregators held at " + sw, Measure: "aggregators", Unit: "1", XLabel: "time", XUnit: "s", Observed: string(cmp.Or(rec.Kind, results.Measured)), Lines: true, Width: s.width}
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

// csvText is rows as the script of the page saves them.
func csvText(rows [][]string) string {
	var b strings.Builder
	out := csv.NewWriter(&b)
	for _, r := range rows {
		_ = out.Write(results.CSVRow(slices.Clone(r))) // into memory
	}
	out.Flush()
	return b.String()
}

// CSVText is what is saved of a drawing that has no table.
func (p panel) CSVText() string { return csvText(p.CSV) }
