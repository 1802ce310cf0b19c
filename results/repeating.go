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
	// negligible is the relative width below which figures differ by rounding alone.
	negligible = 1e-9
)

// Repeating is how many repeats a run has that goes on until intervals are narrow, and why it has no more. All points have
// as many: they have the same draws in the same repeat, and are compared by them.
//
// That an interval is narrow by chance is a reason to stop, and then it misses the mean more often than it says. How much
// more is a matter of how early it may stop (Chow and Robbins 1965). So nobody looks before there are LeastRepeats, and then
// only each time there are a quarter more. Of figures that are normal, at least 90 % of the intervals of one point hold,
// where 95 % would of a number of repeats that is fixed beforehand; of skewed ones fewer do, as those are narrow where they
// are too low: TestRepeatingCoverage. Several points end later than each of them would, which makes that better.
//
// Figures that are alike in all repeats end them, too: what happens in one repeat of fifty may not have happened yet.
type Repeating struct {
	Metric    string  `json:"metric"`    // of the Cluster: the first of the record's Summary
	Precision float64 `json:"precision"` // half the 95 % interval over the mean, at most
	Least     int     `json:"least"`     // repeats before the first look
	Most      int     `json:"most"`      // of them
	Repeats   int     `json:"repeats"`   // that there were at the last look; 0: the run was cut off before that
	Settled   bool    `json:"settled"`   // all points that have the metric are within Precision
	Widest    float64 `json:"widest"`    // half the widest interval of a point over its mean
	Where     string  `json:"where,omitempty"`
	// Lacking is how many points have the metric in fewer than Least repeats. Without is how many never have it: no repeat
	// would change that, and they do not count.
	Lacking int `json:"lacking,omitempty"`
	Without int `json:"without,omitempty"`
}

// RepeatKeys are the keys of an experiment's [measure] that say how often points are measured.
func RepeatKeys() []string { return []string{"repeats", "precision", "most"} }

// More looks at all points so far, and says how many repeats should follow; 0: that is all.
func (r *Repeating) More(points []Point) int {
	if r == nil {
		return 0
	}
	r.CutOff()
	cells := Settings(points)
	for i := range cells {
		c := &cells[i]
		r.Repeats = max(r.Repeats, len(c.All))
		figures := r.figures(c)
		switch n := len(figures); {
		case n == 0:
			r.Without++
			continue
		case n < r.Least:
			r.Lacking++
		}
		if w := relativeWidth(Combine(figures)); w > r.Widest {
			r.Widest, r.Where = w, c.Labels
		}
	}
	none := r.Without == len(cells)
	r.Settled = !none && r.Lacking == 0 && r.Widest <= r.Precision
	if r.Settled || none || r.Repeats >= r.Most {
		return 0
	}
	return min(max(1, r.Repeats/4), r.Most-r.Repeats)
}

// CutOff forgets what the last look found: the run ends before another, and has points that it did not see.
func (r *Repeating) CutOff() {
	if r != nil {
		*r = Repeating{Metric: r.Metric, Precision: r.Precision, Least: r.Least, Most: r.Most}
	}
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
	if half <= negligible*math.Abs(f.Value) {
		return 0
	}
	return min(half/math.Abs(f.Value), widest)
}

// String is how many repeats there are and why: "14 repeats: average JCT of each point is known to 5 %".
func (r *Repeating) String() string {
	name := human.Measure(r.Metric)
	asked := human.PercentTyped(r.Precision) + " %"
	if r.Repeats == 0 {
		return fmt.Sprintf("%d to %d repeats, until %s of each point is known to %s: it was cut off before", r.Least, r.Most, name, asked)
	}
	why := "no point has " + name
	switch {
	case r.Settled:
		why = r.settled(name, asked)
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
	most := ""
	if r.Repeats >= r.Most && !r.Settled {
		most = ", the most"
	}
	return human.Plural(r.Repeats, "repeat") + most + ": " + why
}

// settled says what ended the repeats of all points that have the metric.
func (r *Repeating) settled(name, asked string) string {
	of := "of each point"
	if r.Without > 0 {
		of += " that has it"
	}
	if r.Widest == 0 {
		return fmt.Sprintf("%s %s is the same in all of them", name, of)
	}
	return fmt.Sprintf("%s %s is known to %s", name, of, asked)
}

// Holds says what ending by a width does to the intervals; empty where it was not a width that ended the repeats.
func (r *Repeating) Holds() string {
	if !r.Settled || r.Widest == 0 {
		return ""
	}
	return "as their width ended the repeats, 90 % of intervals hold at least, not 95 %, and fewer of skewed figures"
}
