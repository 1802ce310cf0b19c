package aggregator_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/aggregator"
	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/data"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// servers answers an Aggregator as a static pMaster does, and keeps what it is told.
type servers struct {
	*control.Static
	mu   sync.Mutex
	told []control.Message
	more chan struct{}
}

func (s *servers) Send(m control.Message) {
	s.mu.Lock()
	s.told = append(s.told, m)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	s.Static.Send(m)
}

// await waits for a message.
func (s *servers) await(ctx context.Context, is func(control.Message) bool) error {
	for {
		s.mu.Lock()
		ok := slices.ContainsFunc(s.told, is)
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-s.more:
		case <-ctx.Done():
			return fmt.Errorf("of %d messages none is it: %w", len(s.told), ctx.Err())
		}
	}
}

type site struct {
	ctx     context.Context
	link    *servers
	server  *aggregator.Server
	address string
}

// open starts an Aggregator, number 0, for some jobs.
func open(t testing.TB, report time.Duration, jobs ...control.Job) *site {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	tr := &data.TCP{}
	l, err := tr.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{ctx: ctx, link: &servers{Static: control.StaticServer(jobs...), more: make(chan struct{}, 1)}, address: l.Address()}
	s.server = aggregator.Listen(aggregator.Config{Listener: l, Transport: tr, Link: s.link, Report: report})
	done := make(chan error, 1)
	go func() { done <- s.server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.server.Close()
	})
	return s
}

// agent is a worker of a job whose tensors are all there.
func (s *site) agent(t testing.TB, j control.Job, rank int32) *client.Agent {
	a, err := client.New(client.Config{Job: j, Rank: rank, Transport: &data.TCP{}, Times: migrate.Times{Resend: 50 * time.Millisecond, Attempts: 8},
		Link: control.StaticWorker(j, rank, []control.Peer{{ID: 0, Address: s.address}})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func job(id uint32, workers int, tensors ...control.Tensor) control.Job {
	return control.Job{ID: id, Name: fmt.Sprint("job", id), Workers: workers, Rate: 0.5, Tensors: tensors}
}

// train runs all workers of a job, whose gradients are ones, and returns the last model's first value.
func (s *site) train(t testing.TB, j control.Job, iterations int) {
	var wg sync.WaitGroup
	for r := range int32(j.Workers) {
		a := s.agent(t, j, r)
		wg.Go(func() {
			err := a.Run(s.ctx, client.Loop{Iterations: iterations, Gradient: func(_ int, _ uint64, _, g []float32) {
				for i := range g {
					g[i] = 1
				}
			}})
			if err != nil {
				t.Errorf("%s, rank %d: %v", j.Name, r, err)
				return
			}
			m, err := a.Pull(s.ctx, 0)
			if want := -0.5 * float32(j.Workers*iterations); err != nil || m.Values[0] != want || m.Version != uint64(iterations+1) {
				t.Errorf("%s, rank %d: version %d, %v instead of %v, %v", j.Name, r, m.Version, m.Values[0], want, err)
			}
		})
	}
	wg.Wait()
}

// Whatever one node sends, it is told what is wrong, its job fails if it has one, and another job
// goes on as if nothing had happened.
func TestBadInput(t *testing.T) {
	good := job(1, 2, control.Tensor{Elements: 1000})
	jobs := []control.Job{good}
	cases := []struct {
		name   string
		who    migrate.Node
		kind   data.Kind
		job    uint32 // 0: its own
		values int
		want   string
		fails  bool // the job
	}{
		{"a gradient of another size", migrate.Node{Role: migrate.Worker, ID: 1}, migrate.Push, 0, 11, "push of tensor 0 of job %d: 11 values instead of 10", true},
		{"a rank that the job has not got", migrate.Node{Role: migrate.Worker, ID: 2}, migrate.Push, 0, 10, "push of tensor 0 of job %d: not from this node", true},
		{"a gradient for another job", migrate.Node{Role: migrate.Worker, ID: 1}, migrate.Push, 1, 1000, "push of tensor 0 of job %d: not from this node", false},
		{"a gradient of an Aggregator", migrate.Node{Role: migrate.Aggregator, ID: 8}, migrate.Push, 0, 10, "push of tensor 0 of job %d: not from this node", false},
		{"a model", migrate.Node{Role: migrate.Worker, ID: 1}, migrate.Model, 0, 10, "model of tensor 0 of job %d: not from this node", true},
		{"an answer to a copy", migrate.Node{Role: migrate.Worker, ID: 1}, migrate.CopyAck, 0, 0, "copy ack of tensor 0 of job %d: not from this node", true},
	}
	for i := range cases {
		jobs = append(jobs, job(uint32(10+i), 2, control.Tensor{Elements: 10}))
	}
	s := open(t, 0, jobs...)
	if err := s.link.await(s.ctx, func(m control.Message) bool { return m == control.Admitted{Job: uint32(9 + len(cases))} }); err != nil {
		t.Fatal(err)
	}
	trained := make(chan struct{})
	go func() {
		defer close(trained)
		s.train(t, good, 300)
	}()
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := &node{lost: make(chan error, 10)}
			own := uint32(10 + i)
			who := data.Node{Node: c.who, Job: own}
			if c.who.Role == migrate.Aggregator {
				who.Job = 0
			}
			about := own
			if c.job > 0 {
				about = c.job
			}
			h := data.NewHub(data.Config{Self: who, Transport: &data.TCP{}, Handler: n})
			defer h.Close()
			h.Know(0, s.address)
			var b *data.Block
			if c.values > 0 {
				b = n.pool.Get(c.values)
			}
			h.Send(data.AggregatorNode(0), data.Header{Kind: c.kind, Key: control.Key{Job: about}, Term: migrate.Term{Epoch: 1, Seq: 1}, Version: 1}, b)
			want := fmt.Sprintf(c.want, about)
			if err := <-n.lost; !errors.Is(err, data.ErrRefused) || !strings.Contains(err.Error(), want) {
				t.Error(err)
			}
			if c.fails {
				if err := s.link.await(s.ctx, func(m control.Message) bool {
					f, ok := m.(control.Failed)
					return ok && f.Job == own && f.Why == fmt.Sprintf("%v: aggregator 0: %s", who, want)
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	<-trained
	if st := s.server.Stats(); st.Garbage != 0 || len(st.Tensors) != 1 || st.Tensors[0].Runs != 300 {
		t.Errorf("%+v", st)
	}
}

// node is a handler that drops everything.
type node struct {
	pool data.Pool
	lost chan error
}

func (n *node) Place(*data.Peer, *data.Header) *data.Block  { return nil }
func (n *node) Frame(*data.Peer, *data.Header, *data.Block) {}
func (n *node) Lost(_ data.Node, err error)                 { n.lost <- err }

// Two workers that do not agree on a tensor's size: one of them learns it, and the job ends.
func TestUnequalTensors(t *testing.T) {
	right, wrong := job(1, 2, control.Tensor{Elements: 10}), job(1, 2, control.Tensor{Elements: 12})
	s := open(t, 0, right)
	a, b := s.agent(t, right, 0), s.agent(t, wrong, 1)
	loop := client.Loop{Iterations: 1}
	go a.Run(s.ctx, loop)
	err := b.Run(s.ctx, loop)
	if !errors.Is(err, client.ErrEnded) || !strings.Contains(err.Error(), "worker 1 of job 1: model of tensor 0 of job 1: 10 values instead of 12") {
		t.Error(err)
	}
}

// Values that are not finite are summed as IEEE 754 says, counted, and reported with the ranks that
// they came from.
func TestNotFinite(t *testing.T) {
	j := job(1, 3, control.Tensor{Elements: 100})
	s := open(t, 5*time.Millisecond, j)
	var wg sync.WaitGroup
	for r := range int32(3) {
		a := s.agent(t, j, r)
		wg.Go(func() {
			if err := a.Run(s.ctx, client.Loop{Iterations: 2, Gradient: func(_ int, version uint64, _, g []float32) {
				clear(g)
				if r == 1 && version == 2 {
					g[3], g[4] = float32(math.NaN()), float32(math.Inf(1))
				}
			}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	st := s.server.Stats().Tensors[0]
	if st.NaNs != 2 || !slices.Equal(st.Ranks, []int32{1}) || st.Runs != 2 {
		t.Errorf("%+v", st)
	}
	if err := s.link.await(s.ctx, func(m control.Message) bool {
		r, ok := m.(control.AggregatorReport)
		return ok && len(r.Tensors) == 1 && r.Tensors[0].NaNs == 2 && slices.Equal(r.Tensors[0].Ranks, []int32{1})
	}); err != nil {
		t.Error(err)
	}
}

// Jobs that cannot be served are not admitted, and pMaster is told why.
func TestAdmission(t *testing.T) {
	s := open(t, 0, job(1, 0, control.Tensor{Elements: 1}), job(2, 1, control.Tensor{}), job(3, 1, control.Tensor{Elements: 1}))
	for _, want := range []control.Failed{
		{Job: 1, Why: `aggregator 0: job "job1": 0 workers, not 1 to 4096: not a job that can be served`},
		{Job: 2, Why: `aggregator 0: job "job2": tensor 0, "": 0 values, 0s of work: not a job that can be served`},
	} {
		if err := s.link.await(s.ctx, func(m control.Message) bool { return m == want }); err != nil {
			t.Errorf("%v: %v", want, err)
		}
	}
	s.train(t, job(3, 1, control.Tensor{Elements: 1}), 3)
}

// The emulated core takes as long as tensors say, whatever their sums really take; with slots and
// without.
func TestCapacity(t *testing.T) {
	const work, iterations = 3 * time.Millisecond, 8
	for _, slots := range []bool{false, true} {
		t.Run(map[bool]string{false: "no slots", true: "slots"}[slots], func(t *testing.T) {
			j, k := job(1, 2, control.Tensor{Elements: 100, Work: work}), job(2, 1, control.Tensor{Elements: 7, Work: work})
			s := open(t, 0, j, k)
			if slots {
				s.link.Tell(control.Reserve{Cycle: time.Millisecond, Slots: []control.Slot{{Key: control.Key{Job: 1}, Iteration: time.Millisecond, Exec: work}}})
				for s.server.Stats().Unfit == "" {
					time.Sleep(time.Millisecond)
				}
				s.link.Tell(control.Reserve{Cycle: 4 * work, Slots: []control.Slot{
					{Key: control.Key{Job: 1}, Iteration: 2 * work, Exec: work}, {Key: control.Key{Job: 2}, Iteration: 4 * work, Exec: work}}})
			}
			began := time.Now()
			var wg sync.WaitGroup
			for _, job := range []control.Job{j, k} {
				wg.Go(func() { s.train(t, job, iterations) })
			}
			wg.Wait()
			spent := time.Since(began)
			st := s.server.Stats()
			if want := 2 * iterations * work; st.Busy != want || spent < want {
				t.Errorf("busy %v of %v, not %v", st.Busy, spent, want)
			}
			for _, r := range st.Tensors {
				if r.Runs != iterations || r.Busy != iterations*work {
					t.Errorf("%+v", r)
				}
				if late := r.Spare + r.Postponed; !slots && late > 0 {
					t.Errorf("%d late without slots", late)
				}
			}
			t.Logf("%v: %+v", spent, st.Tensors)
		})
	}
}

// BenchmarkAggregator is how fast an Aggregator takes gradients over TCP, sums them and gives
// models back, with everything on this machine: bytes are those of gradients. Its own CPU time is
// inseparable here from that of workers; see BenchmarkUpdate for the sums alone.
func BenchmarkAggregator(b *testing.B) {
	const n = 1 << 20
	for _, workers := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			j := job(1, workers, control.Tensor{Elements: n}, control.Tensor{Elements: n})
			s := open(b, 0, j)
			var agents []*client.Agent
			for r := range int32(workers) {
				agents = append(agents, s.agent(b, j, r))
			}
			step := func(iterations int) {
				var wg sync.WaitGroup
				for _, a := range agents {
					wg.Go(func() {
						for range iterations {
							for t := range 2 {
								if _, err := a.Pull(s.ctx, t); err != nil {
									b.Error(err)
									return
								}
								if err := a.Push(t, a.Block(t)); err != nil {
									b.Error(err)
								}
							}
						}
					})
				}
				wg.Wait()
			}
			step(2)
			b.SetBytes(int64(2 * 4 * n * workers))
			b.ResetTimer()
			step(b.N)
		})
	}
}
