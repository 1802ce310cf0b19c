package controller_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement/mina/clos"
	"github.com/inabench/inabench/testbed/mina/controller"
	"github.com/inabench/inabench/testbed/sharp/aggmgr"
)

var seed = flag.Uint64("controller.seed", 0, "of TestRandom; 0: by the time")

// watched is a manager that checks what the controller asks of it.
type watched struct {
	controller.Manager
	t *testing.T

	mu    sync.Mutex
	using map[uint16]map[rank]uint16 // epoch that each rank of a job uses
	over  map[uint16]bool            // jobs that are ending: nobody cares any more
	at    map[uint64]grant
	last  map[uint16]uint16
}

type grant struct{ job, epoch uint16 }

// rank is one of a job that was submitted as the n-th.
type rank struct{ n, rank int }

func (w *watched) Begin(ctx context.Context, r aggmgr.Request) (*aggmgr.Grant, error) {
	g, err := w.Manager.Begin(ctx, r)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, other := range w.at {
		if other.job == r.Job {
			w.t.Errorf("job %d gets tree %d and has %d", r.Job, g.Tree.Job, id)
		}
	}
	if g.Epoch <= w.last[r.Job] {
		w.t.Errorf("job %d: epoch %d after %d", r.Job, g.Epoch, w.last[r.Job])
	}
	w.at[g.Tree.Job], w.last[r.Job] = grant{r.Job, g.Epoch}, g.Epoch
	return g, nil
}

func (w *watched) End(ctx context.Context, id uint64) error {
	w.mu.Lock()
	g := w.at[id]
	delete(w.at, id)
	if !w.over[g.job] {
		for r, epoch := range w.using[g.job] {
			if epoch == g.epoch {
				w.t.Errorf("the tree of job %d, epoch %d, is released, and rank %d uses it", g.job, epoch, r.rank)
			}
		}
	}
	w.mu.Unlock()
	return w.Manager.End(ctx, id)
}

// use is what a rank uses from now on.
func (w *watched) use(job uint16, r rank, epoch uint16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.using[job] == nil {
		w.using[job] = map[rank]uint16{}
	}
	w.using[job][r] = epoch
}

func (w *watched) end(job uint16, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over[job] = over
}

// TestRandom: jobs come and go, links fail and come back, hosts take their time. No tree is
// released under a host, no job has two, epochs are never used again, no switch has more
// than it has room for, and in the end nothing is left.
func TestRandom(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-controller.seed %d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 0))
	inv, err := clos.Spec{
		Down: []int{2, 4}, Up: []int{1, 2}, Rate: 1e9, Delay: time.Microsecond,
		Switch: "kind = \"soft\"\naggregators = 1024\nsharp = {trees = 2, jobs = 1}",
	}.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	var w *watched
	r := newRig(t, inv, func(c *controller.Config) {
		w = &watched{
			Manager: c.Manager, t: t, using: map[uint16]map[rank]uint16{}, over: map[uint16]bool{},
			at: map[uint64]grant{}, last: map[uint16]uint16{},
		}
		c.Manager, c.Retry, c.Emit = w, time.Millisecond, func(controller.Event) {}
	})
	var hosts sync.WaitGroup
	defer hosts.Wait()
	// follow is a host: it leaves trees only after a while.
	follow := func(a *controller.Attachment, job uint16, me rank, s uint64) {
		rng := rand.New(rand.NewPCG(s, 1))
		for o := range a.Orders() {
			if o.Epoch == 0 {
				time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
			}
			w.use(job, me, o.Epoch)
			a.Settled(o.Number)
		}
	}
	running := map[uint16]bool{}
	down := map[[2]string]bool{}
	steps := 300
	if !proof.Wanted() {
		steps = 60
	}
	submitted, moved := 0, 0
	for range steps {
		switch k := rng.IntN(10); {
		case k < 4:
			id := uint16(1 + rng.IntN(6))
			n := 1 + rng.IntN(4)
			at, err := r.Submit(controller.Submission{ID: id, N: n, Window: 8})
			if err != nil {
				continue // it is there, or there is no room
			}
			w.end(id, false)
			running[id] = true
			submitted++
			for i := range at {
				a, err := r.Attach(id, i)
				if err != nil {
					t.Fatal(err)
				}
				me, s := rank{submitted, i}, rng.Uint64()
				hosts.Go(func() { follow(a, id, me, s) })
			}
		case k < 6:
			for id := range running { // any
				w.end(id, true)
				released, err := r.End(id)
				if err != nil {
					t.Error(err)
				}
				delete(running, id)
				if rng.IntN(2) == 0 {
					<-released
				}
				break
			}
		default:
			link := [2]string{fmt.Sprintf("leaf%d", 1+rng.IntN(4)), fmt.Sprintf("spine%d", 1+rng.IntN(2))}
			if err := r.SetLink(link[0], link[1], down[link]); err != nil {
				t.Error(err)
			}
			down[link] = !down[link]
			moved++
		}
		time.Sleep(time.Duration(rng.IntN(500)) * time.Microsecond)
	}
	for id := range running {
		w.end(id, true)
		released, err := r.End(id)
		if err != nil && !errors.Is(err, controller.ErrJob) {
			t.Error(err)
			continue
		}
		select {
		case <-released:
		case <-time.After(20 * time.Second):
			t.Fatalf("job %d is not released", id)
		}
	}
	w.mu.Lock()
	trees := 0
	for _, epoch := range w.last {
		trees += int(epoch)
	}
	w.mu.Unlock()
	t.Logf("%d jobs, %d trees, %d changes of links", submitted, trees, moved)
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	for sw, n := range r.board.most {
		if n > 2 {
			t.Errorf("%s held %d trees at once", sw, n)
		}
	}
}
