package serve

import (
	"bytes"
	"cmp"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// live is how far a run is that goes on.
type live struct {
	Seconds float64 // on the run's clock, of the last reading; 0: nothing was read yet
	Links   []liveLink
	Where   string // the point that was measured last, and its figures
	Figures []liveFigure
}

type liveLink struct {
	Name           string
	Rate, Capacity float64 // bit/s
}

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
	for _, link := range rec.Topology.Links {
		if rate, ok := rateOf(samples, link.Name); ok && link.Rate > 0 {
			l.Links = append(l.Links, liveLink{link.Name, rate, link.Rate})
		}
	}
	return l
}

// figuresOf are the figures that were observed, each with a prediction if there is one.
func figuresOf(figures []results.Figure) (out []liveFigure) {
	for _, f := range figures {
		if f.Kind == results.Predicted {
			continue
		}
		row := liveFigure{Metric: f.Metric, Of: f.Of, Observed: human.QuantityCI(f.Value, f.Lo, f.Hi, f.Unit), Predicted: "–"}
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

// rateOf is a link's rate in bit/s between its last two readings; of several counters of it, what
// was sent counts.
func rateOf(samples []results.Sample, link string) (rate float64, ok bool) {
	type counter struct{ source, metric string }
	readings := map[counter][]results.Sample{}
	for _, s := range samples {
		if s.Of == link && s.Unit == "B" && !s.Gauge {
			c := counter{s.Source, s.Metric}
			readings[c] = append(readings[c], s)
		}
	}
	var best counter
	for c := range readings {
		sends := func(c counter) int { return strings.Index(c.metric, "tx") }
		if best == (counter{}) || cmp.Or(cmp.Compare(min(sends(c), 0), min(sends(best), 0)), cmp.Compare(best.source, c.source), cmp.Compare(best.metric, c.metric)) > 0 {
			best = c
		}
	}
	r := readings[best]
	if len(r) < 2 {
		return 0, false
	}
	a, b := r[len(r)-2], r[len(r)-1]
	if b.T <= a.T || b.Value < a.Value { // another point has begun
		return 0, false
	}
	return 8 * (b.Value - a.Value) / (b.T - a.T), true
}
