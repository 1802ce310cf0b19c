package results

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/inabench/inabench/results/human"
)

// Comparison says which points of a run are put side by side: those that differ in
// nothing but one swept key, such as the placement policy.
type Comparison struct {
	Key       string      `json:"key"`       // "placement.policy"
	Reference string      `json:"reference"` // the value of it that others are divided by: "netpack"
	Metrics   []string    `json:"metrics"`   // of figures about the Cluster, in the order to show: "avg_jct", "de"
	Published []Published `json:"published,omitempty"`
}

// Cluster is what figures about a whole trace of jobs are of.
const Cluster = "cluster"

// Published is what a paper says of a comparison, to stand beside what was found.
type Published struct {
	Metric string `json:"metric"`
	At     string `json:"at,omitempty"` // label of the points that it is about: "fat_tree.oversubscription=20"; empty: all
	// Against is the one value of the compared key that it is about; empty: all but the
	// reference.
	Against string `json:"against,omitempty"`
	// Lo and Hi are the change of the reference against those, as a fraction of
	// what those have: -0.45 and -0.13 for a JCT that is 13 to 45 % shorter.
	Lo   float64 `json:"lo"`
	Hi   float64 `json:"hi"`
	Text string  `json:"text"` // where it says so, and what it is about
	// Figure is its name, "Figure 9"; empty: the first that Text names.
	Figure string `json:"figure,omitempty"`
	// Bound is UpTo, of the largest effect, or AtLeast, of the smallest; empty: of their mean, or of
	// a range of both ends. A range from 0 is UpTo.
	Bound string `json:"bound,omitempty"`
	// Among are the values that it is about, where those of the run are more; empty: all.
	Among []string `json:"among,omitempty"`
}

// Group sets side by side the points that differ in the compared key only.
type Group struct {
	Labels    []string // of the other swept keys: "fat_tree.oversubscription=4"; empty without any
	Repeats   int      // of the group, those included that came to nothing
	Contrasts []Contrast
	Unsound   string // why its first point is not judged; empty: at least one is
}

// Contrast is what the values of the compared key make of one metric in one Group.
type Contrast struct {
	Metric    string
	Unit      string
	Values    []Compared // the reference first, the others in the order of the points
	Change    Change
	Published []Published // what of it is about this group and metric
}

// Compared is one value of the compared key in a Contrast.
type Compared struct {
	Value string
	N     int     // repeats with a figure
	Mean  float64 // of them
	SD    float64 // sample standard deviation; 0 where N < 2

	// Pairs is how many repeats both this value and the reference have. Ratio is the
	// geometric mean over them of figure / reference's figure in the same repeat, with
	// [Lo, Hi] the 95 % interval of Student's t on the logarithms. The interval is
	// empty where Pairs < 2; without pairs, or with a figure that is not positive in
	// one, there is no ratio: all three are NaN.
	Pairs         int
	Ratio, Lo, Hi float64

	Left int    // repeats of the group that are not in the ratio
	Why  string // of the first one left out for what it lacks itself, else of the first
}

// Change is by how much the reference differs from this value, as a fraction of this
// value, (reference - other) / other, drawn from Ratio: what papers print as "31 %
// shorter JCT" is -0.31. NaN without a ratio.
func (c Compared) Change() float64 { return 1/c.Ratio - 1 }

// Change sums up Compared.Change over all values but the reference.
type Change struct {
	Mean, Min, Max float64
	Of             int // values with a change
}

// Join adds what other sums up.
func (c Change) Join(other Change) Change {
	switch {
	case other.Of == 0:
		return c
	case c.Of == 0:
		return other
	}
	n := c.Of + other.Of
	return Change{
		Mean: (c.Mean*float64(c.Of) + other.Mean*float64(other.Of)) / float64(n),
		Min:  min(c.Min, other.Min), Max: max(c.Max, other.Max), Of: n,
	}
}

// Compare draws the record's Comparison from its points: a Group for each combination
// of the other swept keys, in the order of the points; nil without a Comparison or
// points that have its key. Repeats are pairs: the same repeat brings the same jobs to
// every value, so that what differs between repeats cancels out of the ratios. Points
// that ended early, that the testbed spoilt, or that lack the figure are left out and
// counted. A group has a Contrast for each of the Comparison's metrics that any of its
// points has.
func (rec *Record) Compare() []Group {
	if rec.Comparison == nil {
		return nil
	}
	type cohort struct {
		labels  []string
		repeats map[int]bool
		values  []string
		points  map[string]map[int]Point // by value and repeat
	}
	var cohorts []*cohort
	at := map[string]*cohort{}
	for _, p := range rec.Points {
		value, others, ok := p.Split(rec.Comparison.Key)
		if !ok {
			continue
		}
		key := strings.Join(others, "\x00")
		c := at[key]
		if c == nil {
			c = &cohort{labels: others, repeats: map[int]bool{}, points: map[string]map[int]Point{}}
			at[key], cohorts = c, append(cohorts, c)
		}
		if c.points[value] == nil {
			c.points[value], c.values = map[int]Point{}, append(c.values, value)
		}
		c.repeats[p.Repeat], c.points[value][p.Repeat] = true, p
	}
	var out []Group
	for _, c := range cohorts {
		ref := rec.Comparison.Reference
		values := slices.DeleteFunc(c.values, func(v string) bool { return v == ref })
		if c.points[ref] != nil {
			values = append([]string{ref}, values...)
		}
		g := Group{Labels: c.labels, Repeats: len(c.repeats)}
		repeats := slices.Sorted(maps.Keys(c.repeats))
		g.Unsound = unsound(values, repeats, c.points)
		for _, metric := range rec.Comparison.Metrics {
			k := Contrast{Metric: metric}
			any := false
			for _, v := range values {
				one := compareValue(metric, repeats, c.points[v], c.points[ref], &k.Unit)
				one.Value = v
				any = any || one.N > 0
				k.Values = append(k.Values, one)
				if d := one.Change(); v != ref && human.Finite(d) {
					k.Change = k.Change.Join(Change{d, d, d, 1})
				}
			}
			if !any {
				continue
			}
			for _, p := range rec.Comparison.Published {
				if p.Metric == metric && (p.At == "" || slices.Contains(c.labels, p.At)) {
					k.Published = append(k.Published, p)
				}
			}
			g.Contrasts = append(g.Contrasts, k)
		}
		out = append(out, g)
	}
	return out
}

// unsound is why the first of points, by value and repeat, is not judged; empty where one is.
func unsound(values []string, repeats []int, points map[string]map[int]Point) (first string) {
	for _, v := range values {
		for _, r := range repeats {
			p, ok := points[v][r]
			why := p.UnsoundIn(0)
			switch {
			case !ok:
			case why == "":
				return ""
			case first == "":
				first = fmt.Sprintf("%s: repeat %d %s", v, r+1, why)
			}
		}
	}
	return first
}

// Contrast is the group's contrast of a metric; false if no point has the metric.
func (g Group) Contrast(metric string) (Contrast, bool) {
	for _, c := range g.Contrasts {
		if c.Metric == metric {
			return c, true
		}
	}
	return Contrast{}, false
}

// Split takes the label of key out of the point's: its value, and the others.
func (p Point) Split(key string) (value string, others []string, ok bool) {
	for _, l := range p.Labels {
		if k, v, is := strings.Cut(l, "="); is && k == key && !ok {
			value, ok = v, true
			continue
		}
		others = append(others, l)
	}
	if v, is := p.Params[key]; !ok && is {
		value, ok = fmt.Sprint(v), true
	}
	return value, others, ok
}

// clusterFigure is the point's figure of the whole cluster.
func (p Point) clusterFigure(metric string) (Figure, bool) {
	for _, ph := range p.Phases {
		for _, f := range ph.Figures {
			if f.Metric == metric && f.Of == Cluster && f.Kind != Predicted && human.Finite(f.Value) {
				return f, true
			}
		}
	}
	return Figure{}, false
}

// compareValue compares the points of one value with those of the reference.
func compareValue(metric string, repeats []int, points, reference map[int]Point, unit *string) Compared {
	var c Compared
	var values, logs []float64
	own := false // Why is about this value, not about the reference
	left := func(repeat int, why string, mine bool) {
		c.Left++
		if c.Why == "" || mine && !own {
			c.Why, own = fmt.Sprintf("repeat %d %s", repeat+1, why), mine
		}
	}
	// figure is the point's, or why there is none.
	figure := func(points map[int]Point, repeat int) (v float64, why string) {
		p, ok := points[repeat]
		if !ok {
			return 0, "is missing"
		}
		if why := p.UnsoundIn(0); why != "" {
			return 0, why
		}
		f, ok := p.clusterFigure(metric)
		if !ok {
			return 0, "has no " + metric
		}
		*unit = cmp.Or(*unit, f.Unit)
		return f.Value, ""
	}
	for _, r := range repeats {
		v, why := figure(points, r)
		if why != "" {
			left(r, why, true)
			continue
		}
		values = append(values, v)
		ref, why := figure(reference, r)
		if why != "" {
			left(r, "has no pair: the reference's "+why, false)
			continue
		}
		c.Pairs++
		if v > 0 && ref > 0 {
			logs = append(logs, math.Log(v/ref))
		}
	}
	c.N = len(values)
	c.Mean, c.SD = meanSD(values)
	c.Ratio, c.Lo, c.Hi = math.NaN(), math.NaN(), math.NaN()
	if n := len(logs); n > 0 && n == c.Pairs {
		m := Mean(logs)
		c.Ratio, c.Lo, c.Hi = math.Exp(m.Value), math.Exp(m.Lo), math.Exp(m.Hi)
	}
	return c
}

// meanSD is the mean and the sample standard deviation, 0 for fewer than two.
func meanSD(x []float64) (mean, sd float64) {
	if len(x) == 0 {
		return 0, 0
	}
	n := float64(len(x))
	for _, v := range x {
		mean += v / n
	}
	if len(x) < 2 {
		return mean, 0
	}
	for _, v := range x {
		sd += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(sd / (n - 1))
}

// Of finds a value of the key in a group's contrast.
func (c Contrast) Of(value string) (Compared, bool) {
	i := slices.IndexFunc(c.Values, func(x Compared) bool { return x.Value == value })
	if i < 0 {
		return Compared{}, false
	}
	return c.Values[i], true
}

// Place names a group by the last part of its keys: "oversubscription=4".
func (g Group) Place() string { return human.ShortLabel(strings.Join(g.Labels, " ")) }
