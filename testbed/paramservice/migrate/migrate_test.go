package migrate

import (
	"slices"
	"strings"
	"testing"
)

// Figure 13, message by message: two workers, Aggregator 1 is the old one and 0 the new one.
func TestFigure13(t *testing.T) {
	x := newExplorer(bounds{workers: 2, versions: 3, patient: true}, mutant{})
	w := x.start()
	var got []string
	deliver := func(k Kind, to Node) {
		t.Helper()
		for id := range w.net.All {
			if m := x.messages[id]; m.Kind == k && m.To == to {
				w.net.Delete(id)
				got = append(got, m.String())
				w.deliver(m)
				return
			}
		}
		t.Fatalf("no %v to %v", k, to)
	}
	older, newer := Node{Aggregator, 1}, Node{Aggregator, 0}
	w.do(Node{}, func(o *out) { w.master.Migrate(0, o) })
	deliver(MigrateInit, older) // 1
	for r := range w.agents {
		w.compute(r)
		deliver(Push, older)
	}
	w.update(1)
	for r := range w.agents {
		deliver(Model, w.agents[r].me) // 2
		if _, at := w.agents[r].At(); at != 0 {
			t.Errorf("worker %d: at %d", r, at) // 3
		}
	}
	w.compute(0)
	deliver(Push, newer)
	if _, ok := w.holders[0].Holds(); ok {
		t.Error("the destination has a copy before it was sent")
	}
	deliver(TensorCopy, newer) // 4, 5
	deliver(CopyAck, older)    // 6
	deliver(CopyDone, Node{})
	if _, _, settled := w.master.At(); settled {
		t.Error("settled before all workers have come")
	}
	w.compute(1)
	deliver(Push, newer) // 7
	deliver(WorkerDone, Node{})
	if at, _, settled := w.master.At(); at != 0 || !settled {
		t.Errorf("at %d, settled %v", at, settled)
	}
	deliver(Release, older)
	deliver(Release, newer)
	w.update(0)
	for r := range w.agents {
		deliver(Model, w.agents[r].me)
	}
	want := `MIGRATE_INIT, pMaster to aggregator 1, term 1.1, next 1.2 at 0
push, worker 0 to aggregator 1, term 1.1, version 2
push, worker 1 to aggregator 1, term 1.1, version 2
model, aggregator 1 to worker 0, term 1.1, version 3, next 1.2 at 0
model, aggregator 1 to worker 1, term 1.1, version 3, next 1.2 at 0
push, worker 0 to aggregator 0, term 1.2, version 3
TENSOR_COPY, aggregator 1 to aggregator 0, term 1.2, version 3
copy ack, aggregator 0 to aggregator 1, term 1.2
TENSOR_COPY_DONE, aggregator 1 to pMaster, term 1.2
push, worker 1 to aggregator 0, term 1.2, version 3
WORKER_DONE, aggregator 0 to pMaster, term 1.2
release, pMaster to aggregator 1, term 1.2
release, pMaster to aggregator 0, term 1.2
model, aggregator 0 to worker 0, term 1.2, version 4 at 0
model, aggregator 0 to worker 1, term 1.2, version 4 at 0`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if err := w.holds(); err != nil || !w.Settled() {
		t.Error(err, w.Settled())
	}
}

// Training that cannot go on fails, and says why.
func TestFailures(t *testing.T) {
	times := Times{Resend: 1, Attempts: 3}
	last := func(o *out) Event {
		if len(o.Events) == 0 {
			return Event{}
		}
		return o.Events[len(o.Events)-1]
	}
	t.Run("a worker does not answer", func(t *testing.T) {
		m := NewMaster[uint64](1, 2, times)
		var o out
		m.Start(&o)
		m.Handle(msg{Kind: Status, From: Node{Worker, 0}}, &o)
		for range times.Attempts {
			if last(&o).Kind != 0 {
				t.Fatalf("too early: %+v", last(&o))
			}
			m.Timeout(&o)
		}
		if e := last(&o); e.Kind != Failed || e.Why != "worker 1 does not answer" {
			t.Errorf("%+v", e)
		}
	})
	t.Run("no Aggregator is left", func(t *testing.T) {
		x := newExplorer(bounds{workers: 2, versions: 3}, mutant{})
		w := x.start()
		var o out
		w.master.Down(1, &o)
		if e := last(&o); e.Kind != Orphaned || e.At != 1 {
			t.Fatalf("%+v", e)
		}
		w.master.Fail("no Aggregator is left", &o)
		if e := last(&o); e.Kind != Failed || e.Why != "no Aggregator is left" {
			t.Errorf("%+v", e)
		}
		n := len(o.Messages)
		w.master.Timeout(&o)
		if w.master.Recover(0, &o); len(o.Messages) != n {
			t.Error("it goes on after that")
		}
	})
	t.Run("nothing to migrate", func(t *testing.T) {
		x := newExplorer(bounds{workers: 2, versions: 3}, mutant{})
		w := x.start()
		var o out
		if w.master.Migrate(1, &o) || NewMaster[uint64](1, 2, times).Migrate(1, &o) || len(o.Messages) > 0 {
			t.Error("a migration to where it is, or from nowhere")
		}
	})
}

// Machines take whatever comes: messages that are not for them, of other jobs' ranks, of no
// known kind.
func FuzzHandle(f *testing.F) {
	f.Add([]byte{2, 2, 0, 1, 1, 1, 2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		x := newExplorer(bounds{workers: 2, versions: 3}, mutant{})
		w := x.start()
		for chunk := range slices.Chunk(in, 10) {
			if len(chunk) < 10 {
				break
			}
			m := msg{Kind: Kind(chunk[0]), From: Node{Role(chunk[1]), int32(int8(chunk[2]))}, Term: Term{uint64(chunk[3]), uint64(chunk[4])},
				Version: uint64(chunk[5]), Next: Term{uint64(chunk[6]), uint64(chunk[7])}, At: int32(int8(chunk[8])), Seeder: int32(chunk[9])}
			var o out
			for i := range w.holders {
				m.To = w.holders[i].me
				w.holders[i].Handle(m, &o)
				w.holders[i].Timeout(&o)
			}
			for r := range w.agents {
				m.To = w.agents[r].me
				w.agents[r].Handle(m, &o)
				w.agents[r].Timeout(&o)
			}
			m.To = Node{}
			w.master.Handle(m, &o)
			w.master.Timeout(&o)
			_ = m.String()
		}
	})
}
