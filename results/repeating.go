package results

import (
	"fmt"
	"math"

	"github.com/inabench/inabench/results/human"
)

const (
	// LeastRepeats is how many repeats there are before the width of an interval may end them.
	LeastRepeats = 10
	// widest is what a relative width counts as at most: of a mean of 0 it has no bound.
	widest = 1e6
)

// Repeating is how many repeats a run has that goes on until intervals are narrow, and why it has no more. All points have
// as many: they have the same draws in the same repeat, and are compared by them.
//
// That an interval is narrow by chance is a reason to stop, and then it misses the mean more often than it says. How much
// more is a matter of how early it may stop (Chow and Robbins 1965). So nobody looks before there are LeastRepeats, and then
// only each time there are a quarter more. Of figures that are normal, at least 90 % of the intervals of one point hold,
// where 95 % would of a number of repeats that is fixed beforehand: TestRepeatingCoverage. Several points end later than each
// of them would, which makes that better.
type Repeating struct {
	Metric    string  `json:"metric"`    // of the Cluster: the first of the record's Summary
	Precision float64 `json:"precision"` // half the 95 % interval over the mean, at most
	Least     int     `json:"least"`     // repeats before the first look
	Most      int     `json:"most"`      // of them
	Repeats   int     `json:"repeats"`   // that there were at the last look; 0: the run ended before the first
	Settled   bool    `json:"settled"`   // all points are within Precision
	Widest    float64 `json:"widest"`    // half the widest interval of a point over its mean
	Where     string  `json:"where,omitempty"`
	// Lacking is how many points have the metric in fewer than Least repeats; those that never have it do not count.
	Lacking int `json:"lacking,omitempty"`
}

// More looks at all points so far, and says how many repeats should follow; 0: that is all.
func (r *Repeating) More(points []Point) int {
	if r == nil {
		return 0
	}
	r.Repeats, r.Widest, r.Where, r.Lacking = 0, 0, "", 0
	known := 0 // points that have the metric
	cells := Settings(points)
	for i := range cells {
		c := &cells[i]
		r.Repeats = max(r.Repeats, len(c.All))
		figures := r.figures(c)
		switch n := len(figures); {
		case n == 0:
			continue
		case n < r.Least:
			r.Lacking++
		}
		known++
		if w := relativeWidth(Combine(figures)); known == 1 || w > r.Widest {
			r.Widest, r.Where = w, c.Labels
		}
	}
	r.Settled = known > 0 && r.Lacking == 0 && r.Widest <= r.Precision
	if r.Settled || known == 0 || r.Repeats >= r.Most {
		return 0
	}
	return min(max(1, r.Repeats/4), r.Most-r.Repeats)
}

// figures are the metric's, one of each sound repeat that has it.
func (r *Repeating) figures(c *Setting) (out []Figure) {
	of := PublishedValue{Metric: r.Metric}
	for i := range c.Repeats {
		if f, ok := of.found(&c.Repeats[i], Scale{Mode: "none", Factor: 1}); ok {
			out = append(out, f)
		}
	}
	return out
}

// relativeWidth is half an interval over the size of its mean.
func relativeWidth(f Figure) float64 {
	half := (f.Hi - f.Lo) / 2
	if half == 0 {
		return 0
	}
	return min(half/math.Abs(f.Value), widest)
}

// String is how many repeats there are and why: "14 repeats: average JCT of each point is known to 5 %".
func (r *Repeating) String() string {
	name := human.Measure(r.Metric)
	asked := human.PercentTyped(r.Precision) + " %"
	switch {
	case r.Repeats == 0:
		return fmt.Sprintf("%d to %d repeats, until %s of each point is known to %s: it ended before", r.Least, r.Most, name, asked)
	case r.Settled:
		return fmt.Sprintf("%s: %s of each point is known to %s", human.Plural(r.Repeats, "repeat"), name, asked)
	}
	why := "no point has " + name
	switch {
	case r.Lacking > 0:
		why = fmt.Sprintf("some of them have no %s at %s", name, human.Plural(r.Lacking, "point"))
	case r.Widest > 0:
		known := human.Percent(r.Widest)
		if r.Widest > 1 {
			known = "no better than 100 %"
		}
		where := ""
		if r.Where != "" {
			where = " of " + r.Where
		}
		why = fmt.Sprintf("%s%s is known to %s, not to %s", name, where, known, asked)
	}
	if r.Repeats >= r.Most {
		return fmt.Sprintf("%s, the most: %s", human.Plural(r.Repeats, "repeat"), why)
	}
	return human.Plural(r.Repeats, "repeat") + ": " + why
}

// Holds says what ending by a width does to the intervals.
func (r *Repeating) Holds() string {
	return "where it is the width that ends repeats, 90 % of intervals hold at least, not 95 %"
}
