package aggregator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/control"
)

const ms = time.Millisecond

// The emulated core, in virtual time: what is done when.
func TestCore(t *testing.T) {
	type event struct {
		at      time.Duration
		tensor  uint32
		work    time.Duration
		reserve *control.Reserve
		drop    bool
	}
	slot := func(tensor uint32, iteration, exec time.Duration) control.Slot {
		return control.Slot{Key: control.Key{Job: 1, Tensor: tensor}, Iteration: iteration, Exec: exec}
	}
	// Figure 5: the slots of tensor 0 are 0-2 and 6-8, that of tensor 1 is 2-5.
	figure5 := &control.Reserve{Cycle: 12 * ms, Slots: []control.Slot{slot(0, 6*ms, 2*ms), slot(1, 12*ms, 3*ms)}}
	for _, c := range []struct {
		name   string
		events []event
		want   string
		busy   time.Duration
	}{
		{"without slots, in the order of arrival",
			[]event{{at: 0, tensor: 0, work: 10 * ms}, {at: 5 * ms, tensor: 1, work: 10 * ms}, {at: 5 * ms, tensor: 2, work: 1 * ms}, {at: 40 * ms, tensor: 0, work: 2 * ms}},
			"0: 10ms on time, 1: 20ms on time, 2: 21ms on time, 0: 42ms on time", 23 * ms},
		{"slots, all in time",
			[]event{{reserve: figure5}, {at: 0, tensor: 0, work: 2 * ms}, {at: 1 * ms, tensor: 1, work: 3 * ms}, {at: 6 * ms, tensor: 0, work: 2 * ms}, {at: 12 * ms, tensor: 0, work: 2 * ms}},
			"0: 2ms on time, 1: 5ms on time, 0: 8ms on time, 0: 14ms on time", 9 * ms},
		{"late, in time that is left",
			[]event{{reserve: figure5}, {at: 3 * ms, tensor: 0, work: 2 * ms}},
			"0: 5ms spare", 2 * ms},
		{"late, and the rest of the cycle is reserved",
			[]event{{reserve: &control.Reserve{Cycle: 12 * ms, Slots: []control.Slot{slot(0, 12*ms, 4*ms), slot(1, 12*ms, 8*ms)}}},
				{at: 1 * ms, tensor: 0, work: 4 * ms}, {at: 4 * ms, tensor: 1, work: 8 * ms}},
			"1: 12ms on time, 0: 13ms postponed", 12 * ms}, // 3 ms of it before the slot of 1
		{"a large one without a slot does not delay those with one",
			[]event{{reserve: figure5}, {at: 0, tensor: 9, work: 100 * ms}, {at: 5 * ms, tensor: 0, work: 2 * ms}, {at: 13 * ms, tensor: 1, work: 3 * ms}},
			"0: 7ms spare, 1: 16ms on time, 9: 105ms on time", 105 * ms},
		{"a slot that is too short",
			[]event{{reserve: figure5}, {at: 0, tensor: 0, work: 5 * ms}},
			"0: 5ms on time", 5 * ms},
		{"a slot that is too long",
			[]event{{reserve: figure5}, {at: 0, tensor: 1, work: 1 * ms}, {at: 4 * ms, tensor: 0, work: 2 * ms}},
			"1: 1ms on time, 0: 6ms spare", 3 * ms},
		{"another cycle in the midst of work",
			[]event{{at: 0, tensor: 0, work: 10 * ms}, {at: 4 * ms, reserve: &control.Reserve{Cycle: 20 * ms, Slots: []control.Slot{slot(0, 20*ms, 10*ms)}}}},
			"0: 10ms on time", 10 * ms},
		{"no cycle any more",
			[]event{{reserve: figure5}, {at: 0, tensor: 0, work: 2 * ms}, {at: 1 * ms, reserve: &control.Reserve{}}, {at: 1 * ms, tensor: 1, work: 1 * ms}},
			"0: 2ms on time, 1: 3ms on time", 3 * ms},
		{"a job that is over",
			[]event{{reserve: figure5}, {at: 0, tensor: 0, work: 2 * ms}, {at: 0, tensor: 9, work: 50 * ms}, {at: 1 * ms, drop: true}, {at: 2 * ms, tensor: 1, work: 3 * ms}},
			"1: 5ms on time", 4 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				var k *core
				k = newCore(func(w *work) {
					got = append(got, fmt.Sprintf("%d: %v %v", w.tensor.key.Tensor, time.Since(k.origin), w.turn))
				})
				go k.run()
				tensors := map[uint32]*tensor{}
				for _, e := range c.events {
					time.Sleep(e.at - time.Since(k.origin))
					switch {
					case e.reserve != nil:
						if err := k.reserve(*e.reserve); err != nil {
							t.Fatal(err)
						}
					case e.drop:
						k.drop(1)
					default:
						if tensors[e.tensor] == nil {
							tensors[e.tensor] = &tensor{key: control.Key{Job: 1, Tensor: e.tensor}, work: e.work}
						}
						k.submit(&work{tensor: tensors[e.tensor], left: e.work, run: run{made: true}})
					}
					synctest.Wait()
				}
				time.Sleep(time.Second)
				k.stop()
				synctest.Wait()
				if s := strings.Join(got, ", "); s != c.want {
					t.Errorf("got %s\nwant %s", s, c.want)
				}
				if k.busy != c.busy {
					t.Errorf("busy %v, not %v", k.busy, c.busy)
				}
			})
		})
	}
}

// A core that has more to do than there is time for, by the planner's own layout, never does
// anything twice or not at all.
func TestCoreOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done []uint32
		k := newCore(func(w *work) { done = append(done, w.tensor.key.Tensor) })
		go k.run()
		if err := k.reserve(control.Reserve{Cycle: 10 * ms, Slots: []control.Slot{
			{Key: control.Key{Tensor: 0}, Iteration: 10 * ms, Exec: 5 * ms}, {Key: control.Key{Tensor: 1}, Iteration: 5 * ms, Exec: 2 * ms}}}); err != nil {
			t.Fatal(err)
		}
		if err := k.reserve(control.Reserve{Cycle: ms, Slots: []control.Slot{{Iteration: ms, Exec: 2 * ms}}}); err == nil {
			t.Error("a slot longer than the cycle")
		}
		var want []uint32
		for i := range uint32(100) {
			k.submit(&work{tensor: &tensor{key: control.Key{Tensor: i % 4}, work: 3 * ms}, left: 3 * ms, run: run{made: true}})
			want = append(want, i%4)
			time.Sleep(2 * ms)
		}
		time.Sleep(time.Second)
		k.stop()
		synctest.Wait()
		slices.Sort(done)
		slices.Sort(want)
		if !slices.Equal(done, want) || k.busy != 300*ms {
			t.Errorf("%d done of %d, busy %v", len(done), len(want), k.busy)
		}
	})
}
