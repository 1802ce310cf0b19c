package results

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"
)

// Readings are what was read of counters and gauges, by counter. A reading takes 16 bytes and no pointer: a run of an
// hour has millions, and a controller that copies samples when there is no room for them, or has its garbage collector
// look through them, stands still for seconds on a busy machine.
//
// The zero Readings are none, and so are nil ones to readers. Methods are not safe for concurrent use.
type Readings struct {
	all []*column
	by  map[[2]string][]*column // by metric and of what
}

// column is what one source said of one counter or gauge.
type column struct {
	Reader
	t, v []float64
}

// Reader is what readings are of, and who said it.
type Reader struct {
	Source, Metric, Of string
	Gauge              bool
}

// Len is how many readings there are.
func (r *Readings) Len() (n int) {
	for _, s := range r.All() {
		n += len(s.T)
	}
	return n
}

// Add adds the readings of samples.
func (r *Readings) Add(samples ...Sample) {
	for i := range samples {
		s := &samples[i]
		c := r.column(Reader{Source: s.Source, Metric: s.Metric, Of: s.Of, Gauge: s.Gauge})
		c.t, c.v = append(c.t, s.T), append(c.v, s.Value)
	}
}

func (r *Readings) column(of Reader) *column {
	key := [2]string{of.Metric, of.Of}
	for _, c := range r.by[key] {
		if c.Reader == of {
			return c
		}
	}
	if r.by == nil {
		r.by = map[[2]string][]*column{}
	}
	c := &column{Reader: of}
	r.by[key] = append(r.by[key], c)
	r.all = append(r.all, c)
	return c
}

// All are the readings by who said what, in the order in which each came first. The Series may not be changed.
func (r *Readings) All() iter.Seq2[Reader, Series] {
	return func(yield func(Reader, Series) bool) {
		if r == nil {
			return
		}
		for _, c := range r.all {
			if len(c.t) > 0 && !yield(c.Reader, Series{T: slices.Clip(c.t), V: slices.Clip(c.v)}) {
				return
			}
		}
	}
}

// Gauge is the latest reading of what is no counter, from whichever source; false: there is none.
func (r *Readings) Gauge(metric, of string) (v float64, ok bool) {
	if r == nil {
		return 0, false
	}
	last := math.Inf(-1)
	for _, c := range r.by[[2]string{metric, of}] {
		if n := len(c.t); c.Gauge && n > 0 && c.t[n-1] >= last {
			v, ok, last = c.v[n-1], true, c.t[n-1]
		}
	}
	return v, ok
}

// Counter is what a counter said, in order of time. An empty source takes whichever source reports it; two sources
// that do are an error, as their readings must not be mixed. A counter without readings is an empty Series.
func (r *Readings) Counter(source, metric, of string) (Series, error) {
	if r == nil {
		return Series{}, nil
	}
	var from *column
	for _, c := range r.by[[2]string{metric, of}] {
		if c.Gauge || len(c.t) == 0 || source != "" && c.Source != source {
			continue
		}
		if from != nil {
			return Series{}, fmt.Errorf("%s of %s is reported by %s and by %s", metric, of, from.Source, c.Source)
		}
		from = c
	}
	if from == nil {
		return Series{}, nil
	}
	s := Series{T: slices.Clone(from.t), V: slices.Clone(from.v)}
	if !sort.Float64sAreSorted(s.T) {
		sort.Stable(byTime(s))
	}
	return s, nil
}

// Speed is how fast a counter grew in its latest readings, per second: over the shortest span of them of at least over
// seconds, or all of them. Of two sources it is the first's, of readings out of order it is none (false), as of fewer
// than two.
func (r *Readings) Speed(metric, of string, over float64) (perSecond float64, ok bool) {
	if r == nil {
		return 0, false
	}
	for _, c := range r.by[[2]string{metric, of}] {
		n := len(c.t)
		if c.Gauge || n < 2 {
			continue
		}
		from := n - 2
		for from > 0 && c.t[n-1]-c.t[from] < over {
			from--
		}
		if d := c.t[n-1] - c.t[from]; d > 0 {
			return (c.v[n-1] - c.v[from]) / d, true
		}
		return 0, false
	}
	return 0, false
}

// Since are the readings from a time on, and the one before of each counter. They stay what they are when others
// are added to r, by another goroutine as well.
func (r *Readings) Since(t float64) *Readings {
	if r == nil {
		return nil
	}
	out := &Readings{all: make([]*column, 0, len(r.all)), by: make(map[[2]string][]*column, len(r.by))}
	columns := make([]column, len(r.all))
	for i, c := range r.all {
		first := slices.IndexFunc(c.t, func(at float64) bool { return at >= t })
		if first < 0 {
			first = len(c.t)
		}
		first = max(0, first-1)
		columns[i] = column{Reader: c.Reader, t: slices.Clip(c.t[first:]), v: slices.Clip(c.v[first:])}
		key := [2]string{c.Metric, c.Of}
		out.all, out.by[key] = append(out.all, &columns[i]), append(out.by[key], &columns[i])
	}
	return out
}

type byTime Series

func (s byTime) Len() int           { return len(s.T) }
func (s byTime) Less(i, j int) bool { return s.T[i] < s.T[j] }
func (s byTime) Swap(i, j int) {
	s.T[i], s.T[j] = s.T[j], s.T[i]
	s.V[i], s.V[j] = s.V[j], s.V[i]
}
