package trace

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// spaced has a job every second, with such durations.
func spaced(durations []float64) *Trace {
	jobs := make([]Job, len(durations))
	for i, d := range durations {
		jobs[i] = Job{ID: fmt.Sprint(i), Submit: 100 + float64(i), Duration: d, GPUs: 1}
	}
	return New("spaced", jobs)
}

// ids are those of jobs with their submissions.
func ids(tr *Trace) string {
	var out []string
	for _, j := range tr.Jobs {
		out = append(out, fmt.Sprintf("%s:%g", j.ID, j.Submit))
	}
	return strings.Join(out, " ")
}

func TestWindows(t *testing.T) {
	tr := spaced([]float64{1, 2, 3, 4, 5, 6, 7})
	if n := tr.Windows(3); n != 2 { // it lasts for 7 s
		t.Fatalf("%d windows", n)
	}
	for i, want := range []string{"0:0 1:1 2:2", "3:0 4:1 5:2"} {
		w, err := tr.Window(i, 3)
		if err != nil || ids(w) != want {
			t.Errorf("window %d: %v %v, want %s", i, w, err, want)
		}
	}
	if n := tr.Windows(7); n != 1 {
		t.Errorf("%d windows as long as all", n)
	}
	sparse := New("sparse", []Job{{ID: "a", Submit: 0, Duration: 1, GPUs: 1}, {ID: "b", Submit: 1, Duration: 1, GPUs: 1}, {ID: "c", Submit: 20, Duration: 1, GPUs: 1}})
	at := New("at once", []Job{{ID: "a", Duration: 1, GPUs: 1}, {ID: "b", Duration: 1, GPUs: 1}})
	for _, tt := range []struct {
		trace *Trace
		i     int
		block float64
		want  string
	}{
		{tr, 2, 3, "trace spaced: window 3 of 3 s: there are 2"},
		{tr, -1, 3, "trace spaced: window 0 of 3 s: there are 2"},
		{tr, 0, 8, "trace spaced: blocks of 8 s: above 0, and at most its length of 7 s"},
		{tr, 0, 0, "trace spaced: blocks of 0 s: above 0, and at most its length of 7 s"},
		{tr, 0, math.NaN(), "trace spaced: blocks of NaN s: above 0, and at most its length of 7 s"},
		{tr, 0, 1e-9, "trace spaced: blocks of 1e-09 s: it lasts for 7 s, which is more than 1000000 of them"},
		{sparse, 1, 5, "trace sparse: window 2 of 5 s: no job is submitted in it"},
		{at, 0, 1, "trace at once: all its jobs are submitted at once, it has no parts"},
	} {
		if _, err := tt.trace.Window(tt.i, tt.block); err == nil || err.Error() != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

// Windows have every job once, although multiples of their length are rounded: 5 * 0.1 + 0.1 is less than 6 * 0.1, and there is
// a job at the former.
func TestWindowsMeet(t *testing.T) {
	jobs := make([]Job, 100)
	for i := range jobs {
		jobs[i] = Job{ID: fmt.Sprint(i), Submit: float64(i) / 20, Duration: 1, GPUs: 1}
	}
	tr, next := New("twentieths", jobs), 0
	for i := range tr.Windows(0.1) {
		w, err := tr.Window(i, 0.1)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range w.Jobs {
			if j.ID != fmt.Sprint(next) || j.Submit < 0 || j.Submit > 0.1+1e-9 {
				t.Fatalf("window %d: %+v, want job %d", i, j, next)
			}
			next++
		}
	}
	if next != len(jobs) {
		t.Errorf("%d jobs in all windows", next)
	}
}

// Of a file with few moments at which jobs come, a draw without any is drawn again.
func TestBootstrapSparse(t *testing.T) {
	tr := New("sparse", []Job{{ID: "a", Duration: 1, GPUs: 1}, {ID: "b", Submit: 1, Duration: 1, GPUs: 1}, {ID: "c", Submit: 1e6, Duration: 1, GPUs: 1}})
	for seed := range uint64(50) {
		if got, err := tr.Bootstrap(1000, seed); err != nil || len(got.Jobs) == 0 {
			t.Errorf("seed %d: %+v %v", seed, got, err)
		}
	}
}

// A draw is made of runs of neighbours, in the order of submission, each job as often as any other.
func TestBootstrap(t *testing.T) {
	const n, block = 50, 10
	durations := make([]float64, n)
	for i := range durations {
		durations[i] = float64(i + 1)
	}
	tr := spaced(durations)
	drawn := make([]float64, n)
	for seed := range uint64(2000) {
		got, err := tr.Bootstrap(block, seed)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Jobs) != n {
			t.Fatalf("%d jobs", len(got.Jobs))
		}
		seen := map[string]bool{}
		for i, j := range got.Jobs {
			k := int(j.Duration) - 1
			drawn[k]++
			if seen[j.ID] || j.Submit < 0 || j.Submit >= n {
				t.Fatalf("job %+v", j)
			}
			seen[j.ID] = true
			if i%block > 0 && k != int(got.Jobs[i-1].Duration)%n {
				t.Fatalf("%g follows %g in a block", j.Duration, got.Jobs[i-1].Duration)
			}
		}
	}
	for k, times := range drawn { // 2,000 each; jobs of a block come together, so that the deviation is some 42
		if math.Abs(times-2000) > 220 {
			t.Errorf("job %d was drawn %g times", k, times)
		}
	}
	a, _ := tr.Bootstrap(7, 1)
	b, _ := tr.Bootstrap(7, 1)
	c, _ := tr.Bootstrap(7, 2)
	if ids(a) != ids(b) || ids(a) == ids(c) {
		t.Error("draws of one seed differ, or those of two are equal")
	}
	if last := a.Jobs[len(a.Jobs)-1]; last.Submit >= n { // 50 s are no multiple of 7
		t.Errorf("submitted at %g s", last.Submit)
	}
}

// Intervals at 95 % of the mean duration, where durations have an autocorrelation of 0.7 from each job to the next: those of
// blocks and of windows hold the true mean nearly as often as they say. Those of single jobs, which is what draws without
// blocks come to, hold it in some 59 %: their deviation is too small by the root of (1 + 0.7) / (1 - 0.7). That of the mean of
// draws is about the series, not about what it is a sample of: it holds the true mean ever more seldom, the more draws there are.
func TestCoverage(t *testing.T) {
	const series, n, block, draws, correlation = 120, 200, 20, 30, 0.7
	const truth = 1000
	held := map[string]int{}
	for s := range uint64(series) {
		r := (&Generator{Seed: s}).stream(9)
		durations, x := make([]float64, n), r.normal()
		for i := range durations {
			durations[i] = truth + 100*x
			x = correlation*x + math.Sqrt(1-correlation*correlation)*r.normal()
		}
		tr := spaced(durations)
		for name, length := range map[string]float64{"blocks": block, "jobs": 1} {
			var means []float64
			for d := range uint64(draws) {
				got, err := tr.Bootstrap(length, d)
				if err != nil {
					t.Fatal(err)
				}
				means = append(means, meanDuration(got))
			}
			center, deviation := moments(means)
			if name == "blocks" && math.Abs(center-truth) <= 2.045*deviation/math.Sqrt(draws) { // Student's t of 29 degrees
				held["mean of draws"]++
			}
			if math.Abs(meanDuration(tr)-truth) <= 1.96*deviation {
				held[name]++
			}
		}
		var means []float64
		for i := range tr.Windows(block) {
			w, err := tr.Window(i, block)
			if err != nil {
				t.Fatal(err)
			}
			means = append(means, meanDuration(w))
		}
		mean, deviation := moments(means)
		if math.Abs(mean-truth) <= 2.262*deviation/math.Sqrt(float64(len(means))) { // Student's t of 9 degrees
			held["windows"]++
		}
	}
	for name, want := range map[string][2]float64{"blocks": {0.78, 1}, "windows": {0.82, 1}, "jobs": {0.4, 0.73}, "mean of draws": {0.1, 0.45}} {
		if part := float64(held[name]) / series; part < want[0] || part > want[1] {
			t.Errorf("%s: %.0f %% of the intervals hold the mean, want %g to %g", name, 100*part, want[0], want[1])
		}
	}
}

func meanDuration(tr *Trace) float64 {
	sum := 0.0
	for _, j := range tr.Jobs {
		sum += j.Duration
	}
	return sum / float64(len(tr.Jobs))
}
