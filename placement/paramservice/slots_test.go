package paramservice

import (
	"errors"
	"testing"
	"time"
)

// Figure 5, the bottom one: J1 twice in the cycle, J2 once.
func TestFigure5Slots(t *testing.T) {
	s, err := NewSlots(12, []Slot{{Iteration: 6, Exec: 2}, {Iteration: 12, Exec: 3}})
	if err != nil {
		t.Fatal(err)
	}
	want := []piece{{0, 2, 0}, {2, 5, 1}, {6, 8, 2}}
	if len(s.pieces) != len(want) {
		t.Fatalf("layout %v", s.pieces)
	}
	for i, p := range s.pieces {
		if p != want[i] {
			t.Errorf("piece %d: %v, want %v", i, p, want[i])
		}
	}
}

// Late requests take what is not reserved, or wait.
func TestLate(t *testing.T) {
	type arrival struct {
		at   time.Duration
		task int
		turn Turn
		by   time.Duration
	}
	j1, j2 := Slot{Iteration: 6, Exec: 2}, Slot{Iteration: 12, Exec: 3}
	for _, tt := range []struct {
		name     string
		tasks    []Slot
		arrivals []arrival
	}{
		{"all in time", []Slot{j1, j2}, []arrival{{0, 0, OnTime, 2}, {1, 1, OnTime, 5}}},
		{"one is late: 12-3 are left, 2 of them reserved", []Slot{j1, j2}, []arrival{{3, 1, Spare, 12}}},
		{"late in a full cycle: 8 are left, 3 of them reserved", []Slot{{6, 3}, {12, 6}}, []arrival{{0, 0, OnTime, 3}, {4, 1, Postponed, 12 + 9}}},
		{"late, and served in the next slot of the cycle", []Slot{{6, 4}, {12, 4}}, []arrival{{0, 1, OnTime, 8}, {5, 0, Postponed, 12}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := NewSlots(12, tt.tasks)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range tt.arrivals {
				turn, by, ok := s.Arrive(a.at, a.task)
				if !ok || turn != a.turn || by != a.by {
					t.Errorf("%v: %v by %d, want %v by %d; layout %v", a, turn, by, a.turn, a.by, s.pieces)
				}
				if _, _, ok := s.Arrive(a.at, a.task); ok {
					t.Error("a second request of the tensor")
				}
			}
		})
	}
}

// Random cycles, as full as may be, with requests at random times: everything is served by
// when it was promised, and the core does not rest while somebody waits.
func TestSlotsProperties(t *testing.T) {
	r := random(t)
	turns := [3]int{}
	for range 400 {
		cycle := time.Duration(100 + r.IntN(400))
		var tasks []Slot
		for work := time.Duration(0); len(tasks) < 12; {
			s := Slot{Iteration: 1 + time.Duration(r.IntN(int(cycle))), Exec: time.Duration(r.IntN(30))}
			k := time.Duration(Runs(cycle, s.Iteration))
			if work+k*s.Exec > cycle {
				if s.Exec = (cycle - work) / k; s.Exec == 0 {
					break
				}
			}
			work += k * s.Exec
			tasks = append(tasks, s)
		}
		s, err := NewSlots(cycle, tasks)
		if err != nil {
			t.Fatal(err)
		}
		for i, run := range s.runs {
			if run.first < run.begin || run.last > run.end {
				t.Fatalf("run %d of tensor %d: %v to %v in %v to %v", i, run.task, run.first, run.last, run.begin, run.end)
			}
		}
		due := make([]time.Duration, len(tasks))
		again := make([]time.Duration, len(tasks)) // when each arrives next
		for i := range again {
			again[i] = time.Duration(r.IntN(int(cycle)))
		}
		for now := time.Duration(0); now < 8*cycle; {
			coming := now + cycle
			for i := range tasks {
				if again[i] == now {
					turn, by, ok := s.Arrive(now, i)
					if !ok {
						t.Fatal("refused")
					}
					turns[turn]++
					due[i], again[i] = by, -1
				}
				if again[i] > now {
					coming = min(coming, again[i])
				}
			}
			task, until, ok := s.Next(now)
			until = min(until, coming)
			if !ok {
				for i := range tasks {
					if again[i] < 0 {
						t.Fatalf("tensor %d waits and nobody runs", i)
					}
				}
				now = until
				continue
			}
			if until == now && s.wants[task].left > 0 {
				t.Fatal("no progress")
			}
			if s.Ran(until, task, until-now) {
				if until > due[task] {
					t.Fatalf("tensor %d was served at %d, promised by %d; cycle %d, %v", task, until, due[task], cycle, tasks)
				}
				again[task] = until + 1 + time.Duration(r.IntN(int(2*tasks[task].Iteration)))
			}
			now = until
		}
	}
	t.Logf("%d on time, %d spare, %d postponed", turns[OnTime], turns[Spare], turns[Postponed])
	for turn, n := range turns {
		if n == 0 {
			t.Errorf("no request was %v", Turn(turn))
		}
	}
}

func TestBadSlots(t *testing.T) {
	for _, tt := range []struct {
		cycle time.Duration
		tasks []Slot
		want  error
	}{
		{10, []Slot{{5, 3}, {10, 5}}, ErrOver},
		{10, []Slot{{11, 3}}, ErrJob},
		{10, []Slot{{0, 3}}, ErrJob},
		{10, []Slot{{1, -3}}, ErrJob},
		{time.Hour, []Slot{{1, 0}}, ErrOver},
	} {
		if s, err := NewSlots(tt.cycle, tt.tasks); !errors.Is(err, tt.want) || s != nil {
			t.Errorf("%+v: %v, want %v", tt, err, tt.want)
		}
	}
	if _, err := NewSlots(10, nil); err != nil {
		t.Error(err)
	}
}

func BenchmarkSlots(b *testing.B) {
	var tasks []Slot
	for range 400 {
		tasks = append(tasks, Slot{Iteration: 100 * time.Millisecond, Exec: 200 * time.Microsecond})
	}
	s, err := NewSlots(100*time.Millisecond, tasks)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Duration(0)
	for i := 0; b.Loop(); i++ {
		s.Arrive(now, i%400)
		task, until, _ := s.Next(now)
		s.Ran(until, task, until-now)
		now = until
	}
}
