package pmaster_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/rpc"
	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/paramservice/aggregator"
	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/data"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
	"github.com/inabench/inabench/testbed/paramservice/wire"
)

// farm is a service with everything in this process, over sockets: pMaster, which may crash,
// Aggregators that it allocates, and workers.
type farm struct {
	t   testing.TB
	ctx context.Context
	cfg pmaster.Config
	wg  sync.WaitGroup
	// hook is told of every control message of a node: when it has come, and before it is sent.
	hook func(who string, sent bool, m control.Message)
	// broken is what Start says instead of starting an Aggregator; nil: it does.
	broken func(id int32) error

	mu      sync.Mutex
	master  *pmaster.Master
	server  *rpc.Server
	address string
	events  []pmaster.Event
	changed chan struct{} // closed when there is one more
	running map[int32]*running
}

var times = migrate.Times{Resend: 50 * time.Millisecond, Attempts: 7}

const lease = time.Second

// newFarm starts one whose planner never acts by measured speed unless the test wants that.
func newFarm(t testing.TB, change func(*farm)) *farm {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	f := &farm{t: t, ctx: ctx, changed: make(chan struct{}), running: map[int32]*running{}, address: "127.0.0.1:0"}
	f.cfg = pmaster.Config{Plan: paramservice.DefaultMaster(), Pool: f, State: filepath.Join(t.TempDir(), "epoch"), Times: times, Lease: lease, Grace: lease, Profile: 3, Emit: f.emit}
	if change != nil {
		change(f)
	}
	f.start()
	t.Cleanup(func() {
		if t.Failed() {
			for _, e := range f.log() {
				t.Log(describe(e))
			}
		}
		f.stop()
		cancel()
		f.wg.Wait()
	})
	return f
}

// start starts a pMaster, where the one before was.
func (f *farm) start() {
	f.t.Helper()
	m, err := pmaster.New(f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	lis, err := net.Listen("tcp", f.address)
	if err != nil {
		f.t.Fatal(err)
	}
	srv := pmaster.NewServer(m)
	f.wg.Go(func() { _ = srv.Serve(lis) })
	f.mu.Lock()
	f.master, f.server, f.address = m, srv, lis.Addr().String()
	f.mu.Unlock()
}

// stop ends the service.
func (f *farm) stop() {
	f.mu.Lock()
	m, srv := f.master, f.server
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.Close(ctx); err != nil {
		f.t.Error(err)
	}
	srv.Stop()
}

// crash ends pMaster without a word, and starts another one.
func (f *farm) crash() {
	f.mu.Lock()
	m, srv := f.master, f.server
	f.mu.Unlock()
	m.Abandon(srv.Stop)
	f.start()
}

func (f *farm) emit(e pmaster.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *farm) log() []pmaster.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

func describe(e pmaster.Event) string {
	s := fmt.Sprintf("%7.3f s %s", e.T, e.Event)
	for _, n := range []struct {
		name string
		id   *int32
	}{{"aggregator", e.Aggregator}, {"from", e.From}, {"to", e.To}} {
		if n.id != nil {
			s += fmt.Sprintf(", %s %d", n.name, *n.id)
		}
	}
	if e.Tensor != nil {
		s += fmt.Sprintf(", tensor %d", *e.Tensor)
	}
	return fmt.Sprintf("%s, job %q, epoch %d, %s %s: %s", s, e.Name, e.Epoch, e.Verdict, e.Other, e.Why)
}

// wait waits for an event, the n-th of its kind (from 1) that is right.
func (f *farm) wait(what string, n int, right func(pmaster.Event) bool) pmaster.Event {
	f.t.Helper()
	for {
		f.mu.Lock()
		changed, left := f.changed, n
		for _, e := range f.events {
			if e.Event == what && (right == nil || right(e)) {
				if left--; left == 0 {
					f.mu.Unlock()
					return e
				}
			}
		}
		f.mu.Unlock()
		select {
		case <-changed:
		case <-f.ctx.Done():
			f.t.Fatalf("no %d events %q", n, what)
		}
	}
}

func (f *farm) count(what string) (n int) {
	for _, e := range f.log() {
		if e.Event == what {
			n++
		}
	}
	return n
}

func of(job string) func(pmaster.Event) bool {
	return func(e pmaster.Event) bool { return e.Name == job }
}

// running is an Aggregator as a goroutine.
type running struct {
	f    *farm
	id   int32
	link *wire.Link
	stop context.CancelFunc
	done chan struct{}
}

// Start implements pmaster.Pool.
func (f *farm) Start(_ context.Context, id int32) (pmaster.Process, error) {
	if f.broken != nil {
		if err := f.broken(id); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(f.ctx)
	r := &running{f: f, id: id, stop: cancel, done: make(chan struct{})}
	f.mu.Lock()
	f.running[id] = r
	address := f.address
	f.mu.Unlock()
	f.wg.Go(func() {
		defer close(r.done)
		if err := r.run(ctx, address); err != nil && ctx.Err() == nil && !errors.Is(err, control.ErrClosed) && !errors.Is(err, wire.ErrRefused) {
			f.t.Errorf("aggregator %d: %v", id, err)
		}
	})
	return r, nil
}

func (r *running) run(ctx context.Context, address string) error {
	tr := &data.TCP{}
	lis, err := tr.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	c, err := wire.Dial(address)
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	defer c.Close()
	l, err := c.Join(ctx, r.id, lis.Address())
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	defer l.Close()
	r.f.mu.Lock()
	r.link = l
	r.f.mu.Unlock()
	s := aggregator.Listen(aggregator.Config{ID: r.id, Listener: lis, Transport: tr, Link: r.f.spy(fmt.Sprint("aggregator ", r.id), l), Times: times})
	defer s.Close()
	return s.Run(ctx)
}

// Done implements pmaster.Process.
func (r *running) Done() <-chan struct{} { return r.done }

// Stop implements pmaster.Process.
func (r *running) Stop(context.Context) error {
	r.stop()
	<-r.done
	return nil
}

// spied is a link that tells what goes over it.
type spied struct {
	f   *farm
	who string
	control.Link
}

func (f *farm) spy(who string, l control.Link) control.Link {
	if f.hook == nil {
		return l
	}
	return &spied{f, who, l}
}

func (s *spied) Send(m control.Message) {
	s.f.hook(s.who, true, m)
	s.Link.Send(m)
}

func (s *spied) Receive(ctx context.Context) (control.Message, error) {
	m, err := s.Link.Receive(ctx)
	if err == nil {
		s.f.hook(s.who, false, m)
	}
	return m, err
}

// train is a job that trains.
type train struct {
	f       *farm
	job     control.Job
	links   []*wire.Link
	clients []*wire.Client
	agents  []*client.Agent
	// reached is told of rank 0's iterations.
	reached chan int
	// reportEvery is after how many iterations agents report by themselves; 0: never.
	reportEvery int
	models      [][][]float32 // by rank
	errs        []error
	over        chan struct{}
}

func newJob(name string, workers int, sizes ...int) control.Job {
	j := control.Job{Name: name, Workers: workers, Rate: 0.01}
	for i, n := range sizes {
		j.Tensors = append(j.Tensors, control.Tensor{Name: fmt.Sprint("t", i), Elements: n})
	}
	return j
}

// submit registers a job and has its workers attach. They train when run is called.
func (f *farm) submit(j control.Job) *train {
	f.t.Helper()
	w := &train{f: f, reached: make(chan int, 1<<12), over: make(chan struct{})}
	for rank := range j.Workers {
		c, err := wire.Dial(f.address)
		if err != nil {
			f.t.Fatal(err)
		}
		if rank == 0 {
			if w.job, err = c.Register(f.ctx, j); err != nil {
				f.t.Fatal(err)
			}
		}
		l, err := c.Attach(f.ctx, w.job, int32(rank))
		if err != nil {
			f.t.Fatal(err)
		}
		a, err := client.New(client.Config{
			Job: w.job, Rank: int32(rank), Link: f.spy(fmt.Sprintf("%s %d", j.Name, rank), l), Transport: &data.TCP{}, Times: times, Initial: client.Initial,
		})
		if err != nil {
			f.t.Fatal(err)
		}
		w.clients, w.links, w.agents = append(w.clients, c), append(w.links, l), append(w.agents, a)
	}
	f.t.Cleanup(w.close)
	return w
}

func (w *train) close() {
	for rank := range w.agents {
		w.vanish(rank)
	}
}

// vanish is the end of a worker's process.
func (w *train) vanish(rank int) {
	w.agents[rank].Close()
	w.links[rank].Close()
	_ = w.clients[rank].Close()
}

// run trains in the background; each iteration takes so long at least. Until until is closed workers
// go on, and then so many iterations.
func (w *train) run(iterations int, compute time.Duration) {
	w.models, w.errs = make([][][]float32, len(w.agents)), make([]error, len(w.agents))
	var all sync.WaitGroup
	for rank, a := range w.agents {
		l := client.Loop{
			Iterations: iterations, Forward: []time.Duration{compute}, Report: w.reportEvery,
			Gradient: client.Synthetic(seed, int32(rank)),
		}
		if rank == 0 {
			l.Done = func(i client.Iteration) { w.reached <- i.Number }
		}
		all.Go(func() {
			if w.errs[rank] = a.Run(w.f.ctx, l); w.errs[rank] != nil {
				return
			}
			for t := range w.job.Tensors {
				m, err := a.Pull(w.f.ctx, t)
				if err != nil {
					w.errs[rank] = err
					return
				}
				w.models[rank] = append(w.models[rank], slices.Clone(m.Values))
			}
			if err := a.Finish(w.f.ctx); err != nil && !errors.Is(err, client.ErrEnded) {
				w.errs[rank] = err
			}
		})
	}
	w.f.wg.Go(func() {
		all.Wait()
		close(w.over)
	})
}

// past waits until rank 0 has done so many iterations.
func (w *train) past(n int) {
	w.f.t.Helper()
	for {
		select {
		case i := <-w.reached:
			if i >= n {
				return
			}
		case <-w.over:
			w.f.t.Fatalf("job %q is over before iteration %d: %v", w.job.Name, n, w.errs)
		case <-w.f.ctx.Done():
			w.f.t.Fatalf("job %q never came to iteration %d", w.job.Name, n)
		}
	}
}

// check waits for the job's end, and holds its models to what they are to be, bit for bit.
func (w *train) check(iterations int) {
	w.f.t.Helper()
	select {
	case <-w.over:
	case <-w.f.ctx.Done():
		w.f.t.Fatalf("job %q does not end", w.job.Name)
	}
	want := client.Models(w.job, seed, iterations)
	for rank, err := range w.errs {
		if err != nil {
			w.f.t.Errorf("job %q, worker %d: %v", w.job.Name, rank, err)
			continue
		}
		for k := range want {
			for i := range want[k] {
				if math.Float32bits(w.models[rank][k][i]) != math.Float32bits(want[k][i]) {
					w.f.t.Errorf("job %q, worker %d: value %d of tensor %d is %x instead of %x", w.job.Name, rank, i, k, w.models[rank][k][i], want[k][i])
					return
				}
			}
		}
	}
}

// report is what all workers of a job and their Aggregators would have seen and done: iterations so
// long, with so much work for each tensor, and transfers that take so many ns for a byte.
func (w *train) report(iteration time.Duration, tasks []time.Duration, iterations int, ns func(aggregator int32) float64) {
	w.f.t.Helper()
	for rank, l := range w.links {
		at, _ := w.agents[rank].Where()
		r := control.WorkerReport{Job: w.job.ID, Rank: int32(rank), Iterations: iterations, Spent: time.Duration(iterations) * iteration}
		for _, id := range slices.Compact(slices.Sorted(slices.Values(at))) {
			r.Transfers = append(r.Transfers, control.Transfer{Aggregator: id, Exchanges: 1, Bytes: 1e6, Spent: time.Duration(1e6 * ns(id))})
		}
		l.Send(r)
	}
	at, _ := w.agents[0].Where()
	for i, id := range at {
		w.f.mu.Lock()
		a := w.f.running[id]
		w.f.mu.Unlock()
		if a != nil && len(tasks) > 0 {
			a.link.Send(control.AggregatorReport{Tensors: []control.TensorReport{{Key: control.Key{Job: w.job.ID, Tensor: uint32(i)}, Runs: 2, Busy: 2 * tasks[i]}}})
		}
	}
}

func usual(int32) float64 { return 1 }

// profile reports what ends a job's profiling.
func (w *train) profile(iteration time.Duration, tasks ...time.Duration) pmaster.Event {
	w.f.t.Helper()
	w.profilers(iteration, tasks...)
	return w.f.wait("profiled", 1, of(w.job.Name))
}

// profilers reports the same, and does not wait until it has ended.
func (w *train) profilers(iteration time.Duration, tasks ...time.Duration) {
	w.f.t.Helper()
	w.f.wait("training", 1, of(w.job.Name))
	w.report(iteration, nil, 1, usual) // the first one began before that
	w.report(iteration, tasks, 3, usual)
}

// move moves all tensors of a job, and waits until they have.
func (w *train) move() {
	w.f.t.Helper()
	before := w.settle()
	w.f.mu.Lock()
	m := w.f.master
	w.f.mu.Unlock()
	if err := m.Move(w.f.ctx, w.job.ID); err != nil {
		w.f.t.Fatal(err)
	}
	for i, id := range w.settle() {
		if slices.Contains(before, id) {
			w.f.t.Fatalf("tensor %d is at %d still", i, id)
		}
	}
}

// settle waits until a job is where it is to be, and says where that is.
func (w *train) settle() []int32 {
	w.f.t.Helper()
	for {
		s, err := w.clients[0].Statistics(w.f.ctx)
		if err != nil {
			w.f.t.Fatal(err)
		}
		for _, j := range s.Jobs {
			if j.Job.Id == w.job.ID && (j.State == "training" || j.State == "being profiled") {
				return j.At
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// seed is that of gradients.
const seed = 1

// says fails unless an error is of a kind (nil: any) and mentions all of some words.
func says(t testing.TB, what string, err, kind error, words ...string) {
	t.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) {
		t.Errorf("%s: %v is no %v", what, err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v\nsays nothing of %q", what, err, w)
		}
	}
}
