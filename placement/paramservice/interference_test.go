package paramservice

import (
	"bufio"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDecisive(t *testing.T) {
	for _, c := range []struct {
		aggregators int
		falseAlarm  float64
		want        int
	}{{1, 1, 1}, {1, 0.4, 1}, {1, 0.3, 2}, {1, 0.001, 7}, {4, 0.001, 8}, {32, 0.001, 10}, {4, 0.01, 6}} {
		if got := decisive(c.aggregators, c.falseAlarm); got != c.want {
			t.Errorf("%d Aggregators, %g: %d reports, not %d", c.aggregators, c.falseAlarm, got, c.want)
		}
	}
}

// served is a job that is spread over so many Aggregators, as many as there may be.
func served(t *testing.T, spread int, o MasterOptions) *Master {
	t.Helper()
	o.Aggregators = spread
	m := NewMaster(o)
	tasks := slices.Repeat([]int{1}, 4*spread)
	j := job("a", 100, tasks...)
	j.Servers = spread
	arrive(t, m, j)
	if n := len(aggregators(m)); n != spread {
		t.Fatalf("on %d Aggregators", n)
	}
	return m
}

// aggregators are those of the job.
func aggregators(m *Master) []int { return slices.Compact(slices.Sorted(slices.Values(m.Where("a")))) }

// noise is what transfers take by chance, without interference: about 1, one in four slow at most, whatever the
// others are; or all of them, as when the machine has something else to do.
func noise(r *rand.Rand) func() float64 {
	switch r.IntN(3) {
	case 0: // spread as in the records, or more
		sigma := 0.05 + 0.25*r.Float64()
		return func() float64 { return math.Exp(sigma * r.NormFloat64()) }
	case 1: // now and then one that takes long
		often, long := 0.25*r.Float64(), 2+50*r.Float64()
		return func() float64 {
			if r.Float64() < often {
				return long
			}
			return 0.9 + 0.2*r.Float64()
		}
	default:
		alpha := 4 + r.Float64() // Pareto: one in five is a quarter longer than the median
		return func() float64 { return math.Pow(r.Float64(), -1/alpha) }
	}
}

// A job that is slow, for another reason than its links, is not taken for one that is interfered with more often than
// stated, whatever the noise, however its Aggregators differ, and if all are slow together now and then.
func TestNoFalseAlarm(t *testing.T) {
	r := random(t)
	for _, falseAlarm := range []float64{DefaultFalseAlarm, 0.05} {
		const runs, reports = 60, 400
		alarms := 0
		o := DefaultMaster()
		o.FalseAlarm = falseAlarm
		for range runs {
			n := 1 + r.IntN(8)
			m := served(t, n, o)
			on := aggregators(m)
			usual := map[int]float64{} // of an Aggregator with small tensors, say
			for _, id := range on {
				usual[id] = 0.2 + r.Float64()
			}
			draw := noise(r)
			for range reports {
				o := at(m, "a", 2, 0.5)
				o.Slow = map[int]float64{}
				all := 1.0
				if n > 1 && r.IntN(5) == 0 {
					all = 10
				}
				for _, id := range on {
					o.Slow[id] = all * usual[id] * draw()
				}
				if out := observe(t, m, "a", o); len(out.Interfered) > 0 {
					alarms++
					m = served(t, n, m.o)
				}
			}
		}
		t.Logf("%g: %d false alarms in %d reports of slow jobs", falseAlarm, alarms, runs*reports)
		// So many sums begin, each with that probability at most, and more by chance, within five deviations.
		if most := falseAlarm * runs * reports; float64(alarms) > most+5*math.Sqrt(most) {
			t.Errorf("%g: more than %g are too many", falseAlarm, most)
		}
	}
}

// Interference is noticed, whenever it begins, also if one report in ten does not show it, and if the job was profiled
// while it was slow, too; in the first judgement in which it slows the job down or the next one; and tensors leave where
// it is, and nowhere else, but for a false alarm: there is one in some 20,000 runs.
func TestNoticed(t *testing.T) {
	r := random(t)
	elsewhere := 0
	defer func() {
		if elsewhere > 2 {
			t.Errorf("in %d of 200 runs tensors left another Aggregator, too", elsewhere)
		}
	}()
	for run := range 200 {
		n := 2 + r.IntN(7)
		m := served(t, n, DefaultMaster())
		on := aggregators(m)
		bad := on[r.IntN(n)]
		begin, times, usual := 10+r.IntN(300), 3+30*r.Float64(), 0.2+r.Float64()
		judged := 0
		profiled := 1 + 2*r.Float64() // so many times as slow: its links were loaded already
		for i := 0; ; i++ {
			o := at(m, "a", 1, profiled)
			o.Slow = map[int]float64{}
			for _, id := range on {
				o.Slow[id] = usual * math.Exp(0.15*r.NormFloat64())
			}
			if i >= begin {
				o.Spent *= 2
				if r.IntN(10) > 0 {
					o.Slow[bad] *= times
				}
			}
			out := observe(t, m, "a", o)
			if out.Verdict == Evacuated {
				if i < begin || !slices.Contains(out.Interfered, bad) || slices.Contains(m.Where("a"), bad) {
					t.Fatalf("run %d: report %d of %d, %d of %d is interfered with: %+v", run, i, begin, bad, n, out)
				}
				if len(out.Interfered) > 1 {
					elsewhere++
					t.Logf("run %d: report %d of %d, %d of %d is interfered with: %+v", run, i, begin, bad, n, out)
				}
				break
			}
			if i >= begin && out.Verdict != Watching {
				judged++
			}
			if judged > 1 || i < begin && out.Verdict > Fine {
				t.Fatalf("run %d: report %d of %d, times %.1f: %v", run, i, begin, times, out.Verdict)
			}
		}
	}
}

// What the machines have to do besides makes transfers with all Aggregators slow in one report and fast in the next, and
// less of it than before must not hide that one of them has become slow, as on machines that emulate many.
func TestNoticedInCommonNoise(t *testing.T) {
	r := random(t)
	need := decisive(4, DefaultFalseAlarm)
	for run := range 200 {
		usual := [4]float64{0.9, 0.3, 0.3, 0.4}
		bad, times := r.IntN(4), 1.7+3*r.Float64()
		w := newWatch()
		report := func(common, times float64) {
			all := common * math.Exp(0.5*r.NormFloat64())
			slow := map[int]float64{}
			for id := range usual {
				slow[id] = all * usual[id] * math.Exp(0.1*r.NormFloat64())
			}
			slow[bad] *= times
			w.see(slow, nil, time.Second, DefaultMaster().Interference, need)
		}
		for range 60 {
			report(1, 1)
		}
		for i := 0; w.links[bad].bad < need; i++ {
			if i == 2*need {
				t.Fatalf("run %d: %.1f times as slow, and not noticed", run, times)
			}
			report(0.3, times)
		}
		for id, l := range w.links {
			if id != bad && l.bad >= need {
				t.Fatalf("run %d: Aggregator %d beside %d", run, id, bad)
			}
		}
	}
}

// Interference that ends is not what is usual from then on.
func TestUsualAfterInterference(t *testing.T) {
	const need = 4
	w := newWatch()
	see := func(n int, slow float64) {
		for range n {
			w.see(map[int]float64{0: 1, 1: slow, 2: 1}, nil, time.Second, DefaultMaster().Interference, need)
		}
	}
	see(20, 1)
	see(100, 3)
	if l := w.links[1]; l.bad < need || w.usual(l) != 1 {
		t.Errorf("while it lasts: %d, usual is %g", l.bad, w.usual(l))
	}
	see(100, 1)
	if l := w.links[1]; l.good < need || w.usual(l) != 1 {
		t.Errorf("when it is over: %d, usual is %g", l.good, w.usual(l))
	}
	see(need, 3)
	if l := w.links[1]; l.bad < need {
		t.Errorf("when it is there again: %d", l.bad)
	}
}

// The links of half of a job's Aggregators may be loaded at once.
func TestSeveral(t *testing.T) {
	for n := 2; n <= 8; n++ {
		m := served(t, n, DefaultMaster())
		on := aggregators(m)
		bad := on[:n/2]
		var out Outcome
		for i := 0; i < 200 && out.Verdict < Reverted; i++ {
			o := at(m, "a", 1, 0.5)
			o.Slow = map[int]float64{}
			for _, id := range on {
				if o.Slow[id] = 1; i >= 20 && slices.Contains(bad, id) {
					o.Slow[id] = 5
				}
			}
			if i < 20 {
				o.Spent /= 2
			}
			out = observe(t, m, "a", o)
		}
		if out.Verdict != Evacuated || !slices.Equal(out.Interfered, bad) {
			t.Errorf("%d of %d: %+v", len(bad), n, out)
		}
	}
}

// An Aggregator that was interfered with and is empty is tried again after a minute if the job is slow on what is
// left, and after two if that was in vain; one that was well in between after a minute again.
func TestRetry(t *testing.T) {
	m := served(t, 3, DefaultMaster())
	bad := m.Where("a")[0]
	now := time.Duration(0)
	train := func(spread, squeezed, slow float64) (out Outcome) { // until something moves, in at most ten minutes
		for end := now + 10*time.Minute; out.Verdict < Reverted || out.Verdict == Helpless; {
			if now > end {
				t.Fatalf("nothing: %+v", out)
			}
			now += 100 * time.Millisecond
			on := aggregators(m)
			speed := spread
			o := Observation{Slow: map[int]float64{}}
			for _, id := range on {
				if o.Slow[id] = 1; id == bad {
					o.Slow[id] = slow
				}
			}
			if len(on) < 3 {
				speed = squeezed
			}
			o.Now, o.Iterations, o.Spent = now, 1, at(m, "a", 1, speed).Spent
			out = observe(t, m, "a", o)
			if speed >= 0.9 && slow == 1 && out.Verdict == Fine {
				return out
			}
		}
		return out
	}
	leave := func() time.Duration {
		t.Helper()
		if out := train(0.5, 0.7, 5); out.Verdict != Evacuated || slices.Contains(m.Where("a"), bad) {
			t.Fatalf("%+v", out)
		}
		return now
	}
	back := func(left, after time.Duration) {
		t.Helper()
		if out := train(0.5, 0.7, 5); out.Verdict != Respread || out.Job != "a" || m.jobs["a"].reverts > 0 || !slices.Contains(m.Where("a"), bad) || len(out.Allocated) > 0 {
			t.Fatalf("%+v, on %v", out, m.Where("a"))
		}
		if took := now - left; took < after || took > after+time.Minute/2 {
			t.Errorf("tried again after %v, not %v", took, after)
		}
	}
	for _, after := range []time.Duration{1, 2, 4} {
		back(leave(), after*time.Minute)
	}
	if out := train(1, 1, 1); out.Verdict != Fine {
		t.Fatalf("%+v", out)
	}
	back(leave(), time.Minute)
	check(t, m.Clusters()[0])
}

// Tensors that have no other place stay on an Aggregator that is interfered with, and it takes new ones when it is seen to
// be well, not after some time.
func TestRecover(t *testing.T) {
	m := served(t, 1, DefaultMaster())
	id := m.Where("a")[0]
	avoided := func() bool { return m.Clusters()[0].Aggregators()[0].Avoid }
	need := decisive(1, DefaultFalseAlarm)
	var out Outcome
	for out.Verdict == Watching {
		o := at(m, "a", 1, 0.3)
		o.Slow = map[int]float64{id: 5}
		out = observe(t, m, "a", o)
	}
	if out.Verdict != Helpless || !slices.Equal(out.Interfered, []int{id}) || !avoided() {
		t.Fatalf("%+v, avoided %v", out, avoided())
	}
	for i := range 3 * need { // as many again as had told of it, and what decides
		if !avoided() {
			if i < need {
				t.Fatalf("well after %d reports", i)
			}
			return
		}
		observe(t, m, "a", Observation{Now: time.Hour, Iterations: 1, Spent: 100 * unit, Slow: map[int]float64{id: 1}})
	}
	t.Error("avoided still")
}

// What BenchmarkInterference of testbed/paramservice/background has recorded (-interference.record): a line for each report has
// when, iterations, seconds, and how slow transfers with each Aggregator were. Flows began at the line "flows"; without them
// nobody is suspected, however slow the job were.
func TestRecorded(t *testing.T) {
	files, err := filepath.Glob("testdata/interference/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			quiet, loaded := recorded(t, file)
			w := newWatch()
			need := decisive(len(quiet[0].Slow), DefaultFalseAlarm)
			for _, o := range quiet {
				w.see(o.Slow, nil, o.Spent, DefaultMaster().Interference, need)
				for id, l := range w.links {
					if l.bad >= need {
						t.Fatalf("Aggregator %d at %v, before there is a flow", id, o.Now)
					}
				}
			}
			after := 0
			for i, o := range loaded {
				w.see(o.Slow, nil, o.Spent, DefaultMaster().Interference, need)
				var bad []int
				for _, id := range slices.Sorted(maps.Keys(w.links)) {
					if w.links[id].bad >= need {
						bad = append(bad, id)
					}
				}
				if len(bad) > 1 {
					t.Fatalf("Aggregators %v at %v", bad, o.Now)
				}
				if len(bad) == 1 {
					after = i + 1
					break
				}
			}
			if after == 0 || after > 2*need {
				t.Errorf("noticed after %d reports", after)
			}
			t.Logf("noticed after %d reports, of %d; %d before there was a flow", after, len(loaded), len(quiet))
		})
	}
}

func recorded(t *testing.T, file string) (quiet, loaded []Observation) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	flows := false
	for in.Scan() {
		if in.Text() == "flows" {
			flows = true
			continue
		}
		words := strings.Fields(in.Text())
		var now, spent float64
		o := Observation{Slow: map[int]float64{}}
		_, err := fmt.Sscan(strings.Join(words[:3], " "), &now, &o.Iterations, &spent)
		for _, w := range words[3:] {
			var id int
			var slow float64
			if _, err2 := fmt.Sscanf(w, "%d:%g", &id, &slow); err2 != nil {
				err = err2
			}
			o.Slow[id] = slow
		}
		if err != nil {
			t.Fatalf("%s: %q: %v", file, in.Text(), err)
		}
		o.Now, o.Spent = time.Duration(now*1e9), time.Duration(spent*1e9)
		if flows {
			loaded = append(loaded, o)
		} else {
			quiet = append(quiet, o)
		}
	}
	return quiet, loaded
}

// A link that is slow from the beginning is interfered with if the job has the Aggregator for itself.
// If it is shared, those who share it may be why, until it is known what they leave.
func TestShared(t *testing.T) {
	const need = 4
	limit := DefaultMaster().Interference
	for _, tt := range []struct {
		what   string
		quiet  int // undisturbed reports before
		shared bool
		want   bool
	}{
		{"its own, unknown", 0, false, true},
		{"shared, unknown", 0, true, false},
		{"its own, known", enough, false, true},
		{"shared, known", enough, true, true},
	} {
		w := newWatch()
		shared := map[int]bool{1: tt.shared}
		for range tt.quiet {
			w.see(map[int]float64{0: 1, 1: 1}, shared, time.Second, limit, need)
		}
		for range need {
			w.see(map[int]float64{0: 1, 1: 3}, shared, time.Second, limit, need)
		}
		if got := w.links[1].bad >= need; got != tt.want {
			t.Errorf("%s: interfered with: %v", tt.what, got)
		}
	}
}
