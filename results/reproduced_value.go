package results

import (
	"cmp"
	"math"
	"strings"

	"github.com/inabench/inabench/results/human"
)

// sameValue is the factor within which a figure counts as the one that is published.
const sameValue = 1.1

// PublishedValue is a figure that a paper prints, where it is of no comparison.
type PublishedValue struct {
	Figure string   `json:"figure"` // "Table I"
	Metric string   `json:"metric"`
	Of     string   `json:"of,omitempty"` // glob over subjects; empty: the Cluster
	At     []string `json:"at,omitempty"` // labels of the points that it is about; none: all
	Value  float64  `json:"value"`
	Text   string   `json:"text,omitempty"`
}

// reproduced sets a published value beside the mean of what was found at the points that it is about.
// It is "yes" within a factor of sameValue, else "no": a figure alone says nothing of who is ahead. A
// figure of 0 is the published one where it differs by no more than rounding.
func (p PublishedValue) reproduced(points []Point, scale Scale, narrowed []string) (r Reproduction) {
	r = Reproduction{Figure: p.Figure, Metric: p.Metric, Text: p.Text, Against: "", Word: ReproducedNotRun, Why: "the run has no such points"}
	r.Paper = human.Typed(p.Value) // of what unit, figures say
	r.At = p.Where()
	var mean Effect
	n, unit, repeats := 0.0, "1", math.MaxInt
	cells := Settings(points)
	for i := range cells {
		c := &cells[i]
		if !c.has(p.At) {
			continue
		}
		var figures []Figure
		for _, point := range c.Repeats {
			if f, ok := p.found(&point, scale); ok {
				figures = append(figures, f)
			}
		}
		if len(figures) == 0 {
			r.Word, r.Why = ReproducedUndecided, cmp.Or(c.why, "no figure of "+p.Metric)
			return r
		}
		f := Combine(figures)
		mean.Value, mean.Lo, mean.Hi = mean.Value+f.Value, mean.Lo+f.Lo, mean.Hi+f.Hi
		unit, repeats = f.Unit, min(repeats, len(figures))
		n++
	}
	r.Paper = human.Quantity(p.Value, unit)
	if n == 0 {
		return r
	}
	mean = Effect{mean.Value / n, mean.Lo / n, mean.Hi / n, repeats > 1}
	r.Here, r.Of, r.Found = &mean, int(n), human.Quantity(mean.Value, unit)
	if p.Value != 0 {
		r.Ratio = mean.Value / p.Value
	}
	defer func() { r.narrow(narrowed, p.At) }()
	if !mean.Sure {
		r.Magnitude, r.Word, r.Why = "undecided", ReproducedUndecided, "one repeat has no interval"
		return r
	}
	r.Found = human.QuantityCI(mean.Value, mean.Lo, mean.Hi, unit)
	r.Overlap = "no"
	if mean.Lo <= p.Value && p.Value <= mean.Hi {
		r.Overlap = "yes"
	}
	r.Magnitude = within(mean, p.Value, sameValue, 1e-9)
	r.Word, r.Why = map[string]Reproduced{"same": ReproducedYes, "differs": ReproducedNo}[r.Magnitude], ""
	if r.Word == "" {
		r.Word, r.Why = ReproducedUndecided, "the interval is too wide to tell by how much"
	}
	return r
}

// Where are the points that it is about, as a Reproduction has them; empty: all.
func (p PublishedValue) Where() string { return human.ShortLabel(strings.Join(p.At, " ")) }

// found is what one repeat came to: the mean of all subjects that are meant, in all phases that may be judged. Only
// repeats say how much it differs from itself.
func (p PublishedValue) found(point *Point, scale Scale) (mean Figure, ok bool) {
	n := 0.0
	for i, ph := range point.Phases {
		if point.UnsoundIn(i) != "" {
			continue
		}
		for _, f := range ph.Figures {
			if f.Metric == p.Metric && f.Kind != Predicted && human.Finite(f.Value, f.Lo, f.Hi) && Glob(cmp.Or(p.Of, Cluster), f.Of) {
				if scale.Scales(f.Metric, f.Unit) { // what is printed is a lab's
					f = f.Affine(scale.Lab(1, f.Unit), 0)
				}
				if n++; n == 1 {
					mean = f
					continue
				}
				mean.Value, mean.Lo, mean.Hi = mean.Value+(f.Value-mean.Value)/n, mean.Lo+(f.Lo-mean.Lo)/n, mean.Hi+(f.Hi-mean.Hi)/n
			}
		}
	}
	return mean, n > 0
}
