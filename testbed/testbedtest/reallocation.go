package testbedtest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed"
)

// memories is what jobs are granted one after the other: windows, in the order of the
// jobs, in regions that follow each other.
func memories(jobs []placement.JobPlan, windows ...int) map[string]placement.Grant {
	out := map[string]placement.Grant{}
	base := 0
	for i, w := range windows {
		j := &jobs[i]
		g := placement.Grant{Window: w, Base: map[string]int{}}
		for _, n := range j.Tree {
			if n.Aggregate {
				g.Base[n.Switch] = base
			}
		}
		base += 2 * w
		out[j.Name] = g
	}
	return out
}

// reallocation: memory passes from job to job while they run. Every sum stays exact, a
// job without memory is at a halt and goes on when it has some, and nobody hangs.
func (b bed) reallocation(t *testing.T) {
	const memory = 32 // aggregators, of which each job could use 2*window
	settings := testbed.Settings{Mode: "synchronous", Aggregators: memory}
	jobs := []job{{name: "A", workers: 2}, {name: "B", workers: 3, message: 40 * 4 * lanes}}
	setup := func(t *testing.T, windows ...int) testbed.Setup {
		s := b.setup(t, settings, jobs...)
		s.Grants = memories(s.Plan.Jobs, windows...)
		return s
	}
	progress := func(d deployed) (a, b float64) {
		r := newReadings(d.sample())
		return r.value["worker_goodput_bytes A/0"], r.value["worker_goodput_bytes B/0"]
	}
	// moves lets time pass and fails the test unless exactly the jobs that should move on.
	moves := func(d deployed, a, b bool) {
		d.Helper()
		d.sleep(200 * time.Millisecond) // what agents had to report when memory changed
		a0, b0 := progress(d)
		d.sleep(400 * time.Millisecond)
		a1, b1 := progress(d)
		if (a1 > a0) != a || (b1 > b0) != b {
			d.Errorf("A went from %v to %v bytes (should move: %t), B from %v to %v (%t)", a0, a1, a, b0, b1, b)
		}
	}
	t.Run("to and fro", func(t *testing.T) {
		d := b.deploy(t, setup(t, 8, 8))
		d.start()
		moves(d, true, true)
		steps := [][2]int{{4, 12}, {12, 4}, {1, 15}, {0, 16}, {16, 0}, {16, 0}, {0, 0}, {8, 8}}
		if b.short() {
			steps = [][2]int{{1, 15}, {0, 16}, {16, 0}, {0, 0}, {8, 8}}
		}
		for _, windows := range steps {
			d.must(fmt.Sprintf("reallocate %v", windows), func() error {
				return d.Reallocate(t.Context(), memories(d.jobs, windows[0], windows[1]))
			})
			moves(d, windows[0] > 0, windows[1] > 0)
		}
		d.stop()
		for _, s := range d.summaries() {
			d.exact(s, 1)
		}
	})
	t.Run("at a halt from the beginning", func(t *testing.T) {
		d := b.deploy(t, setup(t, 16))
		d.start()
		moves(d, true, false)
		d.must("reallocate", func() error { return d.Reallocate(t.Context(), memories(d.jobs, 0, 16)) })
		moves(d, false, true)
		d.stop() // A at a halt
		for _, s := range d.summaries() {
			d.exact(s, 1)
		}
	})
	t.Run("before the start", func(t *testing.T) {
		d := b.deploy(t, setup(t, 16))
		d.must("reallocate", func() error { return d.Reallocate(t.Context(), memories(d.jobs, 0, 16)) })
		d.start()
		moves(d, false, true)
		d.must("reallocate", func() error { return d.Reallocate(t.Context(), memories(d.jobs, 8, 8)) })
		moves(d, true, true)
		d.stop()
	})
	t.Run("jobs that end", func(t *testing.T) {
		const packets, rounds = 30, 3
		s := b.setup(t, settings, job{name: "A", workers: 2, message: packets * 4 * lanes, iterations: rounds}, job{name: "B", workers: 3, message: packets * 4 * lanes, iterations: rounds})
		s.Grants = memories(s.Plan.Jobs, 8, 8)
		d := b.deploy(t, s)
		d.start()
		ended := func() bool {
			for _, j := range d.jobs {
				select {
				case <-d.Done(j.Name):
				default:
					return false
				}
			}
			return true
		}
		for n := 0; !ended(); n++ { // also in the middle of the end
			if n > 1000 {
				t.Fatal("jobs do not end")
			}
			w := []int{4, 12, 8, 1}[n%4]
			d.must("reallocate", func() error { return d.Reallocate(t.Context(), memories(d.jobs, w, 16-w)) })
			d.sleep(20 * time.Millisecond)
		}
		for i, sum := range d.summaries() {
			if sum.Iterations != rounds {
				t.Errorf("job %s: %d of %d iterations", sum.Job, sum.Iterations, rounds)
			}
			d.exact(sum, packets*rounds*int64(i+2)*lanes)
		}
	})
	t.Run("refused", func(t *testing.T) {
		over := setup(t, 16, 1)
		b.refuse(t, "more than the switch has", over, placement.ErrMemory)
		d := b.deploy(t, setup(t, 8, 8))
		d.start()
		for _, c := range []struct {
			what   string
			grants map[string]placement.Grant
			want   error
		}{
			{"more than the switch has", memories(d.jobs, 16, 1), placement.ErrMemory},
			{"what another job has", map[string]placement.Grant{"A": {Window: 16, Base: map[string]int{"tor1": 0}}}, placement.ErrMemory},
			{"a job that is not there", map[string]placement.Grant{"Z": {}}, nil},
		} {
			var err error
			b.within(t, c.what, func() { err = d.Reallocate(t.Context(), c.grants) })
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.what, err, c.want)
			}
		}
		moves(d, true, true)
		d.stop()
	})
	t.Run("statistical", func(t *testing.T) {
		d := b.deploy(t, b.stream(t))
		if err := d.Reallocate(t.Context(), nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("memory of statistical mode was reallocated: %v", err)
		}
	})
	if b.tb.Capabilities().Impairments {
		t.Run("damage", func(t *testing.T) {
			d := b.deploy(t, setup(t, 8, 8))
			for _, l := range b.tb.Inventory().Topology().Links {
				damage := func(s testbed.LinkState) {
					d.must("damage "+l.Name, func() error { return d.SetLink(t.Context(), l.Name, s) })
				}
				damage(testbed.LinkState{Loss: 0.05, Duplicate: 0.02, Reorder: 0.1, ReorderBy: 5 * time.Millisecond})
				defer damage(testbed.LinkState{})
			}
			d.start()
			for _, windows := range [][2]int{{4, 12}, {12, 4}, {16, 0}, {8, 8}} {
				d.sleep(100 * time.Millisecond)
				d.must(fmt.Sprintf("reallocate %v", windows), func() error {
					return d.Reallocate(t.Context(), memories(d.jobs, windows[0], windows[1]))
				})
			}
			d.stop()
			for _, s := range d.summaries() {
				d.exact(s, 1)
			}
		})
	}
}

// reallocationAcross: the same through two levels of switches.
func (b bed) reallocationAcross(t *testing.T) {
	s := b.setup(t, testbed.Settings{Mode: "synchronous", Aggregators: 32},
		job{name: "A", workers: 4}, job{name: "B", hosts: []string{"h2", "h3"}})
	s.Grants = memories(s.Plan.Jobs, 8, 8)
	d := b.deploy(t, s)
	d.start()
	for _, windows := range [][2]int{{4, 12}, {0, 16}, {15, 1}} {
		d.sleep(100 * time.Millisecond)
		d.must(fmt.Sprintf("reallocate %v", windows), func() error {
			return d.Reallocate(t.Context(), memories(d.jobs, windows[0], windows[1]))
		})
	}
	d.sleep(100 * time.Millisecond)
	d.stop()
	for _, sum := range d.summaries() {
		d.exact(sum, 1)
	}
}
