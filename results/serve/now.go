package serve

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
)

// live is how far a run is that goes on.
type live struct {
	results.Now
	Stalled  bool    // it has said nothing for long
	Seconds  float64 // on the run's clock, of the last reading; 0: nothing was read yet
	Sofar    string  // what the points that are done come to
	Rates    template.HTML
	Topology template.HTML
	Links    []liveLink
	Where    string // the point that was measured last, and its figures
	Figures  []liveFigure
}

// Doing is the stage and the point: "measure 2/6, switch.aggregators=512".
func (l live) Doing() string {
	text := l.Stage
	if l.Of > 1 && l.Stage == "measure" {
		text += fmt.Sprintf(" %d/%d", l.Done+1, l.Of)
	}
	if l.Point != "" {
		text += ", " + l.Point
	}
	return text
}

type liveLink struct {
	Name                      string
	Rate, Predicted, Capacity float64 // bit/s; Predicted is 0 where it is not known
}

// stalled is the age of a progress report after which its run counts as stalled.
const stalled = 15 * time.Second

// Part is how full the link is, 0 to 1.
func (l liveLink) Part() float64 { return min(1, l.Rate/l.Capacity) }

type liveFigure struct{ Metric, Of, Observed, Predicted string }

// tail is how much of the end of the samples is read: the last readings of some hundred counters.
const tail = 256 << 10

// liveOf reads what a run has written so far.
func liveOf(dir string, rec *results.Record) *live {
	l := new(live)
	if n := len(rec.Points); n > 0 {
		p := rec.Points[n-1]
		l.Where = p.Label()
		for _, ph := range p.Phases[max(0, len(p.Phases)-1):] {
			l.Figures = figuresOf(ph.Figures)
		}
	}
	samples := lastSamples(filepath.Join(dir, results.SamplesFile))
	for _, s := range samples {
		l.Seconds = max(l.Seconds, s.T)
	}
	if n, err := results.ReadNow(dir); err == nil {
		l.Now, l.Stalled = n, time.Since(n.Written) > stalled
	}
	carried := results.LinkBytes(samples, func(string) bool { return true })
	loads := map[string]plot.LinkLoad{}
	for _, link := range rec.Topology.Links {
		rate, ok := rateOf(carried[link.Name])
		if !ok || link.Rate <= 0 {
			continue
		}
		l.Links = append(l.Links, liveLink{link.Name, rate, l.Now.Links[link.Name], link.Rate})
		load := plot.LinkLoad{Observed: results.Figure{Kind: cmp.Or(rec.Kind, results.Measured), Metric: "link_rate", Of: link.Name, Value: rate, Lo: rate, Hi: rate, Unit: "bit/s"}}
		if p, ok := l.Now.Links[link.Name]; ok {
			load.Predicted = results.Figure{Kind: results.Predicted, Value: p, Unit: "bit/s"}
		}
		loads[link.Name] = load
	}
	if len(loads) > 0 && len(rec.Topology.Links) <= mostDrawn {
		l.Topology = template.HTML(plot.DrawTopology("topology", rec.Topology, loads, nil))
	}
	l.Rates = template.HTML(ratesOf(rec, l.Jobs))
	if len(rec.Points) > 0 && len(rec.Expect) > 0 {
		l.Sofar = sofar(rec)
	}
	return l
}

// mostDrawn is the most links of a topology that is drawn live, again every 2 s.
const mostDrawn = 600

// sofar is what the checks of the points that are done come to.
func sofar(rec *results.Record) string {
	checks, _, _ := results.Judge(rec.Expect, rec.Points)
	n := map[results.Outcome]int{}
	for _, c := range checks {
		if c.Gate {
			n[c.Outcome]++
		}
	}
	var out []string
	for _, o := range []results.Outcome{results.Pass, results.Fail, results.Inconclusive} {
		if n[o] > 0 {
			out = append(out, human.Plural(n[o], "check")+": "+string(o))
		}
	}
	return strings.Join(out, "; ")
}

// ratesOf draws how fast jobs have been since the point began, and how fast they should be.
func ratesOf(rec *results.Record, jobs []results.JobNow) string {
	const model = "predicted"
	c := plot.Chart{ID: "rates", Title: "Goodput of jobs", Measure: "goodput", Unit: "bit/s", XLabel: "time since the point began", XUnit: "s",
		Observed: string(cmp.Or(rec.Kind, results.Measured)), Lines: true}
	for i, j := range jobs {
		if i == plot.Colours {
			break
		}
		s := plot.Series{Name: j.Job, Colour: i, Curves: map[string][]plot.CurvePoint{}}
		for k, r := range j.Past {
			if !human.Finite(r.T, r.Goodput, r.Predicted) {
				return ""
			}
			s.Points = append(s.Points, plot.Point{X: r.T, Y: r.Goodput, Lo: r.Goodput, Hi: r.Goodput})
			if r.Predicted <= 0 {
				continue
			}
			if k > 0 && j.Past[k-1].Predicted > 0 && j.Past[k-1].Predicted != r.Predicted { // a step
				s.Curves[model] = append(s.Curves[model], plot.CurvePoint{X: r.T, Y: j.Past[k-1].Predicted})
			}
			s.Curves[model] = append(s.Curves[model], plot.CurvePoint{X: r.T, Y: r.Predicted})
		}
		if len(s.Curves[model]) > 0 {
			c.Predictors = []plot.Predictor{{Name: model, Gate: true}}
		}
		if len(s.Points) > 1 {
			c.Series = append(c.Series, s)
			c.Desc += fmt.Sprintf("%s: %s now. ", j.Job, human.Quantity(j.Goodput, "bit/s"))
		}
	}
	if len(c.Series) == 0 {
		return ""
	}
	_, hi := c.Span()
	c.Lo, c.Hi = 0, hi
	return c.SVG()
}

// figuresOf are the figures that were observed, each with a prediction if there is one.
func figuresOf(figures []results.Figure) (out []liveFigure) {
	for _, f := range figures {
		if f.Kind == results.Predicted {
			continue
		}
		row := liveFigure{Metric: human.Measure(f.Metric), Of: f.Of, Observed: human.QuantityCI(f.Value, f.Lo, f.Hi, f.Unit), Predicted: "–"}
		if i := slices.IndexFunc(figures, func(p results.Figure) bool {
			return p.Kind == results.Predicted && p.Metric == f.Metric && p.Of == f.Of
		}); i >= 0 {
			row.Predicted = human.Quantity(figures[i].Value, figures[i].Unit) + ", " + figures[i].Predictor
		}
		out = append(out, row)
	}
	return out
}

// lastSamples are those at the end of the file; none if they cannot be read.
func lastSamples(path string) []results.Sample {
	f, err := bounded.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil
	}
	from := max(0, st.Size()-tail)
	text, err := bounded.ReadAll(io.NewSectionReader(f, from, tail), tail)
	if err != nil {
		return nil
	}
	if from > 0 { // a part of a line
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	samples, _ := results.ReadSamples(bytes.NewReader(text))
	return samples
}

// rateOf is a link's rate in bit/s between the last two readings of the bytes that it has carried.
func rateOf(s results.Series) (rate float64, ok bool) {
	n := len(s.T)
	if n < 2 || s.T[n-1] <= s.T[n-2] || s.V[n-1] < s.V[n-2] { // another point has begun
		return 0, false
	}
	return 8 * (s.V[n-1] - s.V[n-2]) / (s.T[n-1] - s.T[n-2]), true
}
