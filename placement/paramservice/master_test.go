package paramservice

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

func observe(t testing.TB, m *Master, job string, o Observation) Outcome {
	t.Helper()
	out, err := m.Observe(job, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// at is an observation of so many iterations at a part of the standalone speed.
func at(m *Master, job string, iterations int, speed float64) Observation {
	d := m.jobs[job].profile.Iteration
	return Observation{Iterations: iterations, Spent: time.Duration(float64(d) * float64(iterations) / speed)}
}

// Figure 10: an AlexNet job of 2 servers comes where a VGG19 job has 2 Aggregators. It shares them,
// turns out too slow, gets a third one, and that one is given back when it ends.
func TestFigure10(t *testing.T) {
	m := NewMaster(DefaultMaster())
	vgg := job("VGG19", 600, 50, 10, 10, 10, 10, 5, 5)
	vgg.Servers = 2
	alexnet := job("AlexNet", 150, 20, 15, 5, 5, 5)
	alexnet.Servers = 2
	change := arrive(t, m, vgg)
	if m.Size() != 2 || len(change.Released) != 0 {
		t.Fatalf("%d Aggregators for VGG19, %+v", m.Size(), change)
	}
	// Its temporary ones came and went.
	change = arrive(t, m, alexnet)
	if m.Size() != 2 || len(change.Allocated) != 2 || !slices.Equal(change.Allocated, change.Released) {
		t.Fatalf("%d Aggregators for both: %+v", m.Size(), change)
	}
	if out := observe(t, m, "AlexNet", at(m, "AlexNet", 80, 0.78)); out.Verdict != Watching {
		t.Errorf("after 80 iterations: %v", out.Verdict)
	}
	out := observe(t, m, "AlexNet", at(m, "AlexNet", 20, 0.78))
	if out.Verdict != Reverted || out.Job != "AlexNet" || len(out.Allocated) != 1 || m.Size() != 3 {
		t.Fatalf("%+v, %d Aggregators", out, m.Size())
	}
	third := out.Allocated[0]
	if !slices.Contains(m.Where("AlexNet"), third) || slices.Contains(m.Where("VGG19"), third) {
		t.Errorf("AlexNet on %v, VGG19 on %v, the new one is %d", m.Where("AlexNet"), m.Where("VGG19"), third)
	}
	if out := observe(t, m, "AlexNet", at(m, "AlexNet", 100, 0.97)); out.Verdict != Fine {
		t.Errorf("then: %v", out.Verdict)
	}
	change, err := m.Exit("AlexNet")
	if err != nil || !slices.Equal(change.Released, []int{third}) || m.Size() != 2 {
		t.Errorf("%+v, %v: %d Aggregators", change, err, m.Size())
	}
	if _, err := m.Exit("VGG19"); err != nil || m.Size() != 0 || len(m.Clusters()) != 0 {
		t.Errorf("%v: %d Aggregators", err, m.Size())
	}
}

// A job is judged as soon as it is certain what the judgement would be, but not by a few iterations.
func TestFeedbackSoon(t *testing.T) {
	for _, c := range []struct {
		iterations int // that there have been
		speed      float64
		more       int // then one at a time, as fast
	}{
		{0, 0.1, 12}, // 12 at 0.1 take longer than 100 at 0.9: 111 times as long as one has to
		{0, 0.01, 10},
		{0, 0.5, 56},
		{0, 0.899, 100},
		{99, 0.1, 1},
	} {
		m := NewMaster(DefaultMaster())
		arrive(t, m, job("a", 100, 10))
		arrive(t, m, job("b", 100, 10))
		if out := observe(t, m, "a", at(m, "a", c.iterations, 1)); out.Verdict != Watching {
			t.Errorf("after %d: %v", c.iterations, out.Verdict)
		}
		n := 1
		for observe(t, m, "a", at(m, "a", 1, c.speed)).Verdict == Watching {
			n++
		}
		if n != c.more {
			t.Errorf("%d iterations, then at %v: judged after %d more, not %d", c.iterations, c.speed, n, c.more)
		}
	}
}

// A job that is assigned anew is still spread as its servers were, though the new Aggregator
// stays the emptiest with all of it: alone on one it would be slower than it was profiled.
func TestFeedbackSpreads(t *testing.T) {
	m := NewMaster(DefaultMaster())
	busy, slow := job("busy", 100, 60, 60), job("slow", 100, 5, 5, 5, 5)
	busy.Servers, slow.Servers = 2, 2
	arrive(t, m, busy)
	arrive(t, m, slow)
	out := observe(t, m, "slow", at(m, "slow", 100, 0.5))
	on := map[int]int{}
	for _, id := range m.Where("slow") {
		on[id]++
	}
	if out.Verdict != Reverted || len(out.Allocated) != 1 || len(on) < 2 || on[out.Allocated[0]] != 2 {
		t.Errorf("%+v, on %v", out, m.Where("slow"))
	}
}

// A job that stays slow gets one Aggregator more each time, until all of its own; then there is
// nothing more to be done. The newest neighbour goes first, not the one that is observed.
func TestFeedback(t *testing.T) {
	m := NewMaster(DefaultMaster())
	for _, name := range []string{"old", "new"} {
		j := job(name, 100, 10, 10, 10, 10)
		j.Servers = 2
		arrive(t, m, j)
	}
	if m.Size() != 2 {
		t.Fatalf("%d Aggregators", m.Size())
	}
	for i := range 2 {
		out := observe(t, m, "old", at(m, "old", 100, 0.5))
		if out.Verdict != Reverted || out.Job != "new" || m.Size() != 3+i {
			t.Fatalf("time %d: %v of %s, %d Aggregators", i, out.Verdict, out.Job, m.Size())
		}
		check(t, m.Clusters()[0])
	}
	shared := slices.ContainsFunc(m.Where("old"), func(id int) bool { return slices.Contains(m.Where("new"), id) })
	if shared {
		t.Errorf("still shared: %v and %v", m.Where("old"), m.Where("new"))
	}
	if out := observe(t, m, "old", at(m, "old", 100, 0.5)); out.Verdict != Helpless || !out.Empty() {
		t.Errorf("alone: %+v", out)
	}
	// Recycling leaves what was measured.
	if c := m.Clusters()[0]; len(c.Recycle().Moves) > 0 {
		t.Error("recycled")
	}
}

// Appendix D: tensors leave an Aggregator that is interfered with, also where no other may
// be added, and it gets no new ones for a time.
func TestInterference(t *testing.T) {
	for _, most := range []int{0, 2} {
		o := DefaultMaster()
		o.Aggregators = most
		m := NewMaster(o)
		j := job("VGG19", 100, 10, 10, 10, 10)
		j.Servers = 2
		arrive(t, m, j)
		slow := m.Where("VGG19")[0]
		bad := at(m, "VGG19", 100, 0.93)
		bad.Slow = map[int]float64{slow: 9}
		if out := observe(t, m, "VGG19", bad); out.Verdict != Fine || !out.Empty() {
			t.Errorf("above LowPerf: %+v", out)
		}
		bad = at(m, "VGG19", 15, 0.5)
		bad.Slow = map[int]float64{slow: 9, 1 - slow: 1.1}
		var out Outcome
		for range decisive(2, DefaultFalseAlarm) - 1 { // one has been seen above
			if out.Verdict != Watching {
				t.Fatalf("already: %+v", out)
			}
			out = observe(t, m, "VGG19", bad)
		}
		if out.Verdict != Evacuated || slices.Contains(m.Where("VGG19"), slow) || len(out.Allocated) > 0 && most > 0 {
			t.Errorf("at most %d: %+v, on %v", most, out, m.Where("VGG19"))
		}
		if most == 0 && len(out.Allocated) != 1 { // it was profiled with two
			t.Errorf("on %v only: %+v", m.Where("VGG19"), out)
		}
		if most > 0 {
			if slices.Contains(m.Where("VGG19"), None) || m.Size() != 2 {
				t.Errorf("on %v", m.Where("VGG19"))
			}
			if a := m.Clusters()[0].Aggregators()[slow]; !a.Avoid {
				t.Errorf("%+v", a)
			}
			observe(t, m, "VGG19", Observation{Now: DefaultRetry})
			if a := m.Clusters()[0].Aggregators()[slow]; a.Avoid {
				t.Errorf("%+v", a)
			}
		}
	}
}

// With periods, jobs wait on their temporary Aggregators, nothing is given back in between, and
// what was needed in a period is kept ready for the next one.
func TestPeriods(t *testing.T) {
	o := DefaultMaster()
	o.Periodic, o.Threshold = true, 2
	m := NewMaster(o)
	full := func(name string) Job { return job(name, 100, 50, 40) }
	for i, want := range [][]string{{"a"}, {"a", "b"}, nil} { // three need more than the threshold
		arrive(t, m, full(string(rune('a'+i))))
		if got := m.Waiting(); !slices.Equal(got, want) {
			t.Fatalf("after job %d %v wait, want %v", i, got, want)
		}
	}
	if m.Size() != 3 {
		t.Fatalf("%d Aggregators", m.Size())
	}
	if _, err := m.Exit("b"); err != nil || m.Size() != 3 {
		t.Fatalf("%v, %d Aggregators in the middle of a period", err, m.Size())
	}
	arrive(t, m, full("d")) // takes the idle one
	if len(m.Waiting()) != 0 || m.Size() != 3 {
		t.Fatalf("%v wait, %d Aggregators", m.Waiting(), m.Size())
	}
	arrive(t, m, full("e"))
	if _, err := m.Exit("a"); err != nil {
		t.Fatal(err)
	}
	// e takes a's place; 4 were newly taken in this period, so 4 are kept ready.
	m.Period()
	if len(m.Waiting()) != 0 || m.Size() != 3+4+0 && m.Size() != 3+5 {
		t.Fatalf("%v wait, %d Aggregators", m.Waiting(), m.Size())
	}
	for _, name := range []string{"c", "d", "e"} {
		if _, err := m.Exit(name); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		m.Period()
	}
	if m.Size() != 0 || len(m.Clusters()) != 0 {
		t.Errorf("%d Aggregators in %d clusters remain", m.Size(), len(m.Clusters()))
	}
}

// A job goes to the cluster with the least free time that is enough, and to one cluster only.
func TestClusters(t *testing.T) {
	o := DefaultMaster()
	o.Most = 2
	m := NewMaster(o)
	for i, tasks := range [][]int{{80, 80}, {60, 60}, {30}, {15}} {
		arrive(t, m, job(fmt.Sprint("job", i), 100, tasks...))
	}
	if len(m.Clusters()) != 2 || m.Size() != 4 {
		t.Fatalf("%d Aggregators in %d clusters", m.Size(), len(m.Clusters()))
	}
	if got := m.Clusters()[0].Jobs(); !slices.Equal(got, []string{"job0", "job2"}) && !slices.Equal(got, []string{"job0", "job3"}) {
		t.Errorf("the first cluster has %v", got)
	}
	for _, c := range m.Clusters() {
		check(t, c)
	}
}

func TestMasterErrors(t *testing.T) {
	o := DefaultMaster()
	o.Aggregators = 2
	m := NewMaster(o)
	arrive(t, m, job("a", 100, 50))
	for _, tt := range []struct {
		name string
		do   func() (Change, error)
		want error
	}{
		{"no servers", func() (Change, error) { return m.Arrive("b", 0, []int64{1}) }, ErrJob},
		{"no tensors", func() (Change, error) { return m.Arrive("b", 1, nil) }, ErrJob},
		{"there already", func() (Change, error) { return m.Arrive("a", 1, []int64{1}) }, ErrKnown},
		{"too many servers", func() (Change, error) { return m.Arrive("b", 2, []int64{1}) }, ErrFull},
		{"exit of nobody", func() (Change, error) { return m.Exit("b") }, ErrUnknown},
		{"profile of nobody", func() (Change, error) { return m.Profiled("b", unit, nil) }, ErrUnknown},
		{"profiled twice", func() (Change, error) { return m.Profiled("a", unit, nil) }, ErrKnown},
		{"seen of nobody", func() (Change, error) { out, err := m.Observe("b", Observation{}); return out.Change, err }, ErrUnknown},
		{"time runs backwards", func() (Change, error) {
			out, err := m.Observe("a", Observation{Iterations: 1, Spent: -1})
			return out.Change, err
		}, ErrJob},
	} {
		if change, err := tt.do(); !errors.Is(err, tt.want) || !change.Empty() {
			t.Errorf("%s: %+v, %v, want %v", tt.name, change, err, tt.want)
		}
	}
	if _, err := m.Arrive("b", 1, []int64{1, 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Profiled("b", unit, units(1)); !errors.Is(err, ErrJob) {
		t.Error(err)
	}
}

// Whatever happens, moves lead from where tensors were to where they are, Aggregators that are
// released have none, the limits hold, and nothing is left in the end. The same calls give
// the same answers.
func TestMasterProperties(t *testing.T) {
	r := random(t)
	for range 40 {
		o := DefaultMaster()
		o.Most = []int{0, 4, 32}[r.IntN(3)]
		o.Aggregators = []int{0, 12}[r.IntN(2)]
		o.Periodic, o.Threshold = r.IntN(2) == 0, r.IntN(4)
		m, twin := NewMaster(o), NewMaster(o)
		where := map[string][]int{}
		there := map[int]bool{}
		apply := func(c Change) {
			t.Helper()
			for _, id := range c.Allocated {
				if there[id] {
					t.Fatalf("Aggregator %d is there already", id)
				}
				there[id] = true
			}
			for _, v := range c.Moves {
				if where[v.Job] == nil {
					where[v.Job] = slices.Repeat([]int{None}, len(m.Where(v.Job)))
				}
				if where[v.Job][v.Task] != v.From || v.To != None && !there[v.To] {
					t.Fatalf("%+v: it is on %d", v, where[v.Job][v.Task])
				}
				where[v.Job][v.Task] = v.To
			}
			for _, id := range c.Released {
				if !there[id] {
					t.Fatalf("Aggregator %d is not there", id)
				}
				delete(there, id)
			}
			for name, w := range where {
				if m.jobs[name] == nil {
					delete(where, name)
					continue
				}
				if !slices.Equal(w, m.Where(name)) {
					t.Fatalf("job %s: on %v, by the moves on %v", name, m.Where(name), w)
				}
				for _, id := range w {
					if !there[id] {
						t.Fatalf("job %s has tensors on Aggregator %d, which is not there", name, id)
					}
				}
			}
			if m.Size() != len(there) || o.Aggregators > 0 && m.Size() > o.Aggregators {
				t.Fatalf("%d Aggregators, %d allocated, at most %d", m.Size(), len(there), o.Aggregators)
			}
			for _, cluster := range m.Clusters() {
				check(t, cluster)
			}
		}
		names := []string{}
		for step := range 60 {
			var do func(m *Master) (Change, error)
			switch k := r.IntN(14); {
			case k < 5:
				j := randomJob(r, fmt.Sprint("job", step))
				names = append(names, j.Name)
				bytes := make([]int64, len(j.Tasks))
				for i := range bytes {
					bytes[i] = r.Int64N(1000)
				}
				do = func(m *Master) (Change, error) { return m.Arrive(j.Name, max(1, j.Servers), bytes) }
				if r.IntN(8) > 0 {
					c, err := do(m)
					if d, _ := do(twin); fmt.Sprint(c) != fmt.Sprint(d) {
						t.Fatal("not deterministic")
					}
					if err != nil {
						continue
					}
					apply(c)
					do = func(m *Master) (Change, error) { return m.Profiled(j.Name, j.Iteration, j.Tasks) }
				}
			case k < 8 && len(names) > 0:
				name := names[r.IntN(len(names))]
				do = func(m *Master) (Change, error) { return m.Exit(name) }
			case k == 8:
				do = func(m *Master) (Change, error) { return m.Period(), nil }
			case k == 9 && len(there) > 0:
				ids := slices.Sorted(maps.Keys(there))
				id, most := ids[r.IntN(len(ids))], r.IntN(3)
				delete(there, id)
				do = func(m *Master) (Change, error) {
					c, _, err := m.Lost(id, most)
					return c, err
				}
			case k == 10 && len(names) > 0:
				name := names[r.IntN(len(names))]
				before := m.Where(name)
				do = func(m *Master) (Change, error) {
					c, err := m.Move(name)
					for task, id := range m.Where(name) {
						if err == nil && slices.Contains(before, id) {
							t.Fatalf("tensor %d of %s was on one of %v, and is moved to %d", task, name, before, id)
						}
					}
					return c, err
				}
			case len(names) > 0:
				name := names[r.IntN(len(names))]
				if m.jobs[name] == nil || m.jobs[name].profile == nil {
					continue
				}
				seen := at(m, name, 120, 0.6+0.5*r.Float64())
				seen.Slow = map[int]float64{}
				for _, id := range m.Where(name) {
					if r.IntN(12) == 0 {
						seen.Slow[id] = 4 * r.Float64()
					}
				}
				do = func(m *Master) (Change, error) {
					out, err := m.Observe(name, seen)
					return out.Change, err
				}
			default:
				continue
			}
			c, err := do(m)
			if d, _ := do(twin); fmt.Sprint(c) != fmt.Sprint(d) {
				t.Fatalf("not deterministic: %+v and %+v", c, d)
			}
			if err != nil && !c.Empty() {
				t.Fatalf("%v, and %+v", err, c)
			}
			apply(c)
		}
		if r.IntN(2) == 0 { // another pMaster takes over
			o.First = m.next
			var kept []Kept
			for _, j := range slices.SortedFunc(maps.Values(m.jobs), func(a, b *managed) int { return cmp.Compare(a.seq, b.seq) }) {
				kept = append(kept, Kept{Name: j.name, Servers: j.servers, At: m.Where(j.name), Profile: j.profile, Reverts: j.reverts})
			}
			m = NewMaster(o)
			c, stranded, err := m.Restore(kept, slices.Collect(maps.Keys(there)))
			if err != nil || len(stranded) > 0 || len(c.Moves) > 0 || len(c.Allocated) > 0 {
				t.Fatalf("%v, stranded %v, %+v", err, stranded, c)
			}
			apply(c)
		}
		for _, name := range names {
			if m.jobs[name] != nil {
				c, err := m.Exit(name)
				if err != nil {
					t.Fatal(err)
				}
				apply(c)
			}
		}
		for range 2 {
			apply(m.Period())
		}
		if m.Size() != 0 || len(m.Clusters()) != 0 {
			t.Fatalf("%d Aggregators in %d clusters remain; %+v", m.Size(), len(m.Clusters()), o)
		}
	}
}

// What a crashed Aggregator had goes to others, or to one new one, temporary or not; jobs that no
// room is left for are named, and what they had is free.
func TestLost(t *testing.T) {
	o := DefaultMaster()
	o.Aggregators = 3
	o.First = 100
	m := NewMaster(o)
	if _, err := m.Arrive("a", 2, []int64{4, 3, 2, 1}); err != nil {
		t.Fatal(err)
	}
	if got := m.Where("a"); !slices.Equal(got, []int{100, 101, 101, 100}) {
		t.Fatalf("on %v", got)
	}
	c, stranded, err := m.Lost(101, 5)
	if err != nil || len(stranded) > 0 || !slices.Equal(c.Allocated, []int{102}) || !slices.Equal(m.Where("a"), []int{100, 102, 102, 100}) || m.Size() != 2 {
		t.Fatalf("temporary: %+v, %v, %v, on %v", c, stranded, err, m.Where("a"))
	}
	if c, _, err = m.Lost(102, 0); err != nil || !slices.Equal(m.Where("a"), []int{100, 100, 100, 100}) || m.Size() != 1 || len(c.Allocated) > 0 {
		t.Fatalf("temporary, none at hand: %+v, %v, on %v", c, err, m.Where("a"))
	}
	if _, err := m.Profiled("a", 100*unit, units(45, 45, 45, 45)); err != nil {
		t.Fatal(err)
	}
	big := job("b", 100, 60)
	arrive(t, m, big)
	if m.Size() != 3 {
		t.Fatalf("%d Aggregators", m.Size())
	}
	lost := m.Where("b")[0]
	c, stranded, err = m.Lost(lost, 5)
	if err != nil || len(stranded) > 0 || len(c.Allocated) != 1 || m.Where("b")[0] == lost || c.Allocated[0] <= lost {
		t.Fatalf("%+v, %v, %v, on %v", c, stranded, err, m.Where("b"))
	}
	c, stranded, err = m.Lost(m.Where("b")[0], 0)
	if err != nil || !slices.Equal(stranded, []string{"b"}) || len(c.Moves) > 0 || m.Where("b") != nil || m.Size() != 2 {
		t.Fatalf("without room: %+v, %v, %v", c, stranded, err)
	}
	if _, _, err := m.Lost(lost, 0); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if _, stranded, err = m.Lost(100, 0); err != nil || !slices.Equal(stranded, []string{"a"}) || m.Size() != 0 || len(m.Clusters()) != 0 {
		t.Errorf("the last one: %v, %v, %d Aggregators", stranded, err, m.Size())
	}
}

// A new pMaster goes on with what there is: tensors whose Aggregator is gone get another one.
func TestRestore(t *testing.T) {
	t.Run("groups", restoresGroups)
	a, b, d := job("a", 100, 20, 20, 20), job("b", 50, 10, 10), job("d", 100, 10)
	a.Servers = 2
	o := DefaultMaster()
	o.First = 10
	kept := []Kept{
		{Name: "a", Servers: 2, At: []int{1, 2, 2}, Profile: &a},
		{Name: "b", Servers: 1, At: []int{2, 3}, Profile: &b, Reverts: 1}, // 3 is gone
		{Name: "c", Servers: 2, At: []int{4, None, 5}},                    // not profiled yet
		{Name: "d", Servers: 1, At: []int{None}, Profile: &d},
		{Name: "e", Servers: 1, At: []int{2, 2}}, // on its way to a place when pMaster fell
	}
	m := NewMaster(o)
	c, stranded, err := m.Restore(kept, []int{1, 2, 4, 5, 7})
	if err != nil || len(stranded) > 0 {
		t.Fatal(stranded, err)
	}
	for _, cluster := range m.Clusters() {
		check(t, cluster)
	}
	if got := m.Where("a"); !slices.Equal(got, []int{1, 2, 2}) {
		t.Errorf("a was moved: %v", got)
	}
	if got := m.Where("b"); got[0] != 2 || got[1] == 3 || got[1] == None {
		t.Errorf("b on %v", got)
	}
	if got := m.Where("c"); got[0] != 4 || got[2] != 5 || got[1] != 4 && got[1] != 5 {
		t.Errorf("c on %v", got)
	}
	if got := m.Where("e"); !slices.Equal(got, []int{10, 10}) {
		t.Errorf("e on %v", got)
	}
	if !slices.Equal(c.Allocated, []int{10}) || !slices.Equal(c.Released, []int{7}) || m.Size() != 5 || len(m.Clusters()) != 1 || len(c.Moves) != 5 {
		t.Errorf("%+v, %d Aggregators in %d clusters", c, m.Size(), len(m.Clusters()))
	}
	if _, err := m.Profiled("c", 100*unit, units(1, 1, 1)); err != nil {
		t.Error(err)
	}

	o.Aggregators = 1
	m = NewMaster(o)
	full := job("d", 100, 95)
	if c, stranded, err = m.Restore([]Kept{{Name: "a", Servers: 2, At: []int{1, 1, 1}, Profile: &a}, {Name: "d", Servers: 1, At: []int{None}, Profile: &full}}, []int{1}); err != nil || !slices.Equal(stranded, []string{"d"}) || m.Size() != 1 || !c.Empty() {
		t.Errorf("without room: %+v, %v, %v", c, stranded, err)
	}
	for name, tt := range map[string]struct {
		kept []Kept
		ids  []int
		want error
	}{
		"an id that may be given again": {nil, []int{10}, ErrJob},
		"the same name":                 {[]Kept{kept[0], kept[0]}, nil, ErrKnown},
		"another number of tensors":     {[]Kept{{Name: "a", Servers: 1, At: []int{1}, Profile: &a}}, nil, ErrJob},
		"no servers":                    {[]Kept{{Name: "a", At: []int{1}}}, nil, ErrJob},
	} {
		if c, _, err := NewMaster(o).Restore(tt.kept, tt.ids); !errors.Is(err, tt.want) || !c.Empty() {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if _, _, err := m.Restore(nil, nil); !errors.Is(err, ErrKnown) {
		t.Errorf("in the middle: %v", err)
	}
}

// What was assigned anew stays alone, and stops nobody else from being recycled.
func TestRecycleBesidePinned(t *testing.T) {
	a, b, slow := job("a", 100, 30), job("b", 100, 40), job("slow", 100, 10)
	o := DefaultMaster()
	o.First = 10
	m := NewMaster(o)
	kept := []Kept{
		{Name: "a", Servers: 1, At: []int{1}, Profile: &a},
		{Name: "b", Servers: 1, At: []int{2}, Profile: &b},
		{Name: "slow", Servers: 1, At: []int{0}, Profile: &slow, Reverts: 1},
	}
	if _, _, err := m.Restore(kept, []int{0, 1, 2}); err != nil {
		t.Fatal(err)
	}
	c := m.Clusters()[0]
	c.Recycle()
	check(t, c)
	if x, y, z := m.Where("a"), m.Where("b"), m.Where("slow"); !slices.Equal(x, y) || z[0] != 0 || x[0] == 0 {
		t.Errorf("a on %v, b on %v, and slow on %v", x, y, z)
	}
}

// restoresGroups: the Aggregators of a group are in its cluster before the next group looks for room.
func restoresGroups(t *testing.T) {
	a, b, c := job("a", 100, 20), job("b", 100, 20), job("c", 100, 20, 20)
	c.Servers = 2
	o := DefaultMaster()
	o.Most, o.First = 2, 10
	m := NewMaster(o)
	kept := []Kept{
		{Name: "a", Servers: 1, At: []int{0}, Profile: &a},
		{Name: "b", Servers: 1, At: []int{2}, Profile: &b},
		{Name: "c", Servers: 2, At: []int{0, 1}, Profile: &c},
	}
	if _, stranded, err := m.Restore(kept, []int{0, 1, 2}); err != nil || len(stranded) > 0 {
		t.Fatal(stranded, err)
	}
	for _, cluster := range m.Clusters() {
		if check(t, cluster); cluster.Size() > o.Most {
			t.Errorf("a cluster has %d Aggregators", cluster.Size())
		}
	}
}
