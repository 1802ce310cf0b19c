package results_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"testing"

	"github.com/inabench/inabench/internal/heap"
	"github.com/inabench/inabench/results"
)

// TestReadings holds readings to a search through all samples, of random ones.
func TestReadings(t *testing.T) {
	pick := func(of ...string) string { return of[rand.N(len(of))] }
	for range 200 {
		var all []results.Sample
		r := &results.Readings{}
		for i := range rand.N(200) {
			s := results.Sample{T: float64(i) / 10, Source: pick("host h1", "host h2", "switch tor1"), Metric: pick("a", "b"), Of: pick("x", "y", "z"), Value: rand.Float64(), Gauge: rand.N(4) == 0}
			if rand.N(5) == 0 {
				s.T -= rand.Float64()
			}
			all = append(all, s)
			r.Add(s)
		}
		if r.Len() != len(all) {
			t.Fatalf("%d readings of %d samples", r.Len(), len(all))
		}
		since := rand.Float64() * 20
		late := r.Since(since)
		for _, source := range []string{"", "host h1", "switch tor1", "nobody"} {
			for _, metric := range []string{"a", "b", "c"} {
				for _, of := range []string{"x", "y", "z"} {
					var want []results.Sample
					sources := map[string]bool{}
					for _, s := range all {
						if s.Metric == metric && s.Of == of && !s.Gauge && (source == "" || source == s.Source) {
							want = append(want, s)
							sources[s.Source] = true
						}
					}
					sort.SliceStable(want, func(i, k int) bool { return want[i].T < want[k].T })
					got, err := r.Counter(source, metric, of)
					if len(sources) > 1 {
						if err == nil {
							t.Fatalf("%s of %s: %d sources, and no error", metric, of, len(sources))
						}
						continue
					}
					var read []results.Sample
					for i := range got.T {
						read = append(read, results.Sample{T: got.T[i], Value: got.V[i]})
					}
					if err != nil || !slices.EqualFunc(read, want, func(a, b results.Sample) bool { return a.T == b.T && a.Value == b.Value }) {
						t.Fatalf("%q %s of %s: %v, %v, want %v", source, metric, of, read, err, want)
					}
					part, err := late.Counter(source, metric, of)
					if err != nil {
						t.Fatal(err)
					}
					for i, at := range got.T { // all from then on are there
						if at >= since && !slices.Contains(part.V, got.V[i]) {
							t.Fatalf("%s of %s since %v: %v, want %v at %v as well", metric, of, since, part, got.V[i], at)
						}
					}
				}
			}
		}
		n := 0
		for of, s := range r.All() {
			for i := range s.T {
				if !slices.ContainsFunc(all, func(x results.Sample) bool {
					return x.Source == of.Source && x.Metric == of.Metric && x.Of == of.Of && x.Gauge == of.Gauge && x.T == s.T[i] && x.Value == s.V[i]
				}) {
					t.Fatalf("%+v at %v: not among the samples", of, s.T[i])
				}
				n++
			}
		}
		if n != len(all) {
			t.Fatalf("%d of %d", n, len(all))
		}
	}
}

// TestReadingsOfNobody: nil readings are none.
func TestReadingsOfNobody(t *testing.T) {
	var r *results.Readings
	for range r.All() {
		t.Error("there is one")
	}
	if s, err := r.Counter("", "a", "x"); err != nil || len(s.T) > 0 || r.Len() != 0 || r.Since(0) != nil {
		t.Errorf("%v, %v", s, err)
	}
}

// TestReadingsGrow: those of a moment stay what they are, for somebody who reads them while others come (with -race).
func TestReadingsGrow(t *testing.T) {
	r := &results.Readings{}
	var reading sync.WaitGroup
	defer reading.Wait()
	for i := range 200 {
		for k := range 1 + i/20 {
			r.Add(results.Sample{T: float64(i), Metric: "a", Of: fmt.Sprint(k), Value: float64(i)})
		}
		if i%20 != 19 {
			continue
		}
		then, n := r.Since(0), r.Len()
		reading.Go(func() {
			sum := 0
			for k := range 20 {
				s, err := then.Counter("", "a", fmt.Sprint(k))
				if err != nil || len(s.T) > 0 && s.T[len(s.T)-1] != float64(i) {
					t.Errorf("%v, %v", s, err)
				}
				sum += len(s.T)
			}
			if sum != n {
				t.Errorf("%d readings, want %d", sum, n)
			}
		})
	}
}

// TestReadingsTakeLittle: a million take less than a fifth of what samples do.
func TestReadingsTakeLittle(t *testing.T) {
	most := heap.Watch()
	r := &results.Readings{}
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("counter ", i))
	}
	for i := range 1_000_000 {
		r.Add(results.Sample{T: float64(i / 1000), Source: "host h1", Metric: names[i%1000], Of: "x", Value: float64(i), Unit: "B"})
	}
	if used := most(); used > 40<<20 {
		t.Errorf("%d readings take %d MB", r.Len(), used>>20)
	}
}

// A counter's speed is that of its latest readings, from whichever source was first.
func TestSpeed(t *testing.T) {
	var r results.Readings
	if _, ok := r.Speed("sent", "A/0", 1); ok {
		t.Error("a speed of nothing")
	}
	for i := range 11 { // 100 a second, then 200
		at := float64(i) / 2
		r.Add(results.Sample{T: at, Source: "host h1", Metric: "sent", Of: "A/0", Value: 100*at + 100*max(0, at-3)})
		if _, ok := r.Speed("sent", "A/0", 1); ok != (i > 0) {
			t.Errorf("%d readings: a speed: %v", i+1, ok)
		}
	}
	r.Add(results.Sample{T: 9, Source: "host h1", Metric: "load", Of: "A/0", Value: 7, Gauge: true})
	r.Add(results.Sample{T: 10, Source: "host h1", Metric: "load", Of: "A/0", Value: 9, Gauge: true})
	for over, want := range map[float64]float64{0: 200, 1: 200, 2: 200, 4: 150, 100: 140} {
		if v, ok := r.Speed("sent", "A/0", over); !ok || v != want {
			t.Errorf("over %v s: %v %v, want %v", over, v, ok, want)
		}
	}
	if _, ok := r.Speed("load", "A/0", 1); ok {
		t.Error("a gauge has no speed")
	}
	r.Add(results.Sample{T: 5, Source: "host h1", Metric: "sent", Of: "A/0", Value: 900})
	if _, ok := r.Speed("sent", "A/0", 0); ok {
		t.Error("two readings of one time have no speed")
	}
}
