package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/aggregator"
	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/data"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// seed is that of gradients.
const seed = 1

func same(t testing.TB, who string, got, want [][]float32) {
	t.Helper()
	for k := range want {
		for i := range want[k] {
			if math.Float32bits(got[k][i]) != math.Float32bits(want[k][i]) {
				t.Errorf("%s: value %d of tensor %d is %x instead of %x", who, i, k, got[k][i], want[k][i])
				return
			}
		}
	}
}

func newJob(workers int, sizes ...int) control.Job {
	j := control.Job{ID: 7, Name: "test", Workers: workers, Rate: 0.01}
	for i, n := range sizes {
		j.Tensors = append(j.Tensors, control.Tensor{Name: fmt.Sprint("t", i), Elements: n})
	}
	return j
}

// times are quick to repeat and, for machines that are busy with other things, slow to take
// somebody for dead: after 5 s.
var times = migrate.Times{Resend: 20 * time.Millisecond, Attempts: 12}

// master is a pMaster that knows one job: migrate's machines on the links of its nodes.
type master struct {
	t       testing.TB
	job     control.Job
	ctx     context.Context
	wg      *sync.WaitGroup
	workers []control.Link
	seen    func(control.Migrate) // messages that it gets, before it handles them
	sent    func(control.Migrate) // and sends

	mu          sync.Mutex
	aggregators map[int32]control.Link
	peers       []control.Peer
	dead        map[int32]bool
	machines    []*mastered
	admitted    chan int32
	finished    int
	recoveries  int
	changed     chan struct{}
	reports     []control.WorkerReport
}

type mastered struct {
	m     *master
	key   control.Key
	state *migrate.Master[control.None]
	out   migrate.Output[control.None]
	alarm *time.Timer
}

func newMaster(t testing.TB, ctx context.Context, wg *sync.WaitGroup, j control.Job, workers []control.Link) *master {
	m := &master{t: t, job: j, ctx: ctx, wg: wg, workers: workers, aggregators: map[int32]control.Link{}, dead: map[int32]bool{},
		admitted: make(chan int32, 64), changed: make(chan struct{}, 1)}
	for i := range j.Tensors {
		m.machines = append(m.machines, &mastered{m: m, key: control.Key{Job: j.ID, Tensor: uint32(i)},
			state: migrate.NewMaster[control.None](1, j.Workers, times)})
	}
	for _, l := range workers {
		m.listen(l, -1)
	}
	return m
}

// join takes an Aggregator, and tells everybody.
func (m *master) join(id int32, address string, l control.Link) {
	m.mu.Lock()
	m.aggregators[id] = l
	m.peers = append(m.peers, control.Peer{ID: id, Address: address})
	for _, w := range m.workers {
		w.Send(control.Peers{Aggregators: m.peers})
	}
	for _, a := range m.aggregators {
		a.Send(control.Peers{Aggregators: m.peers})
	}
	l.Send(control.Admit{Job: m.job})
	m.mu.Unlock()
	m.listen(l, id)
	select {
	case <-m.admitted:
	case <-m.ctx.Done():
	}
}

func (m *master) listen(l control.Link, id int32) {
	m.wg.Go(func() {
		for {
			msg, err := l.Receive(m.ctx)
			if err != nil {
				return
			}
			switch msg := msg.(type) {
			case control.Admitted:
				m.admitted <- id
			case control.Migrate:
				m.mu.Lock()
				if m.seen != nil {
					m.seen(msg)
				}
				if t := m.machines[msg.Key.Tensor]; !m.dead[id] {
					t.state.Handle(msg.Message, &t.out)
					t.carryOut()
				}
				m.mu.Unlock()
			case control.Failed:
				m.dismiss(msg.Why)
			case control.WorkerReport:
				m.mu.Lock()
				m.reports = append(m.reports, msg)
				m.mu.Unlock()
			case control.Finished:
				m.mu.Lock()
				m.finished++
				all := m.finished == len(m.workers)
				m.mu.Unlock()
				if all {
					m.dismiss("")
				}
			}
		}
	})
}

func (m *master) dismiss(why string) {
	for _, l := range m.workers {
		l.Send(control.Dismiss{Job: m.job.ID, Why: why})
	}
}

// start assigns tensors to Aggregators. They are settled when all workers have come there, which
// rank 0 does with its first gradient.
func (m *master) start() {
	m.mu.Lock()
	for _, t := range m.machines {
		t.state.Start(&t.out)
		t.carryOut()
	}
	m.mu.Unlock()
}

// settle waits until a tensor has its place.
func (m *master) settle(tensor int) (at int32) {
	for {
		m.mu.Lock()
		at, _, settled := m.machines[tensor].state.At()
		m.mu.Unlock()
		if settled {
			return at
		}
		select {
		case <-m.changed:
		case <-m.ctx.Done():
			m.t.Errorf("tensor %d does not settle", tensor)
			return -1
		}
	}
}

func (m *master) migrate(tensor int, to int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.machines[tensor]
	ok := t.state.Migrate(to, &t.out)
	t.carryOut()
	return ok
}

// lost is an Aggregator that has crashed.
func (m *master) lost(id int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead[id] = true
	for _, t := range m.machines {
		t.state.Down(id, &t.out)
		t.carryOut()
	}
}

func (t *mastered) carryOut() {
	m := t.m
	for len(t.out.Messages) > 0 || len(t.out.Events) > 0 || t.out.Alarm > 0 {
		messages, events, alarm := t.out.Messages, t.out.Events, t.out.Alarm
		t.out = migrate.Output[control.None]{}
		for _, msg := range messages {
			c := control.Strip(t.key, msg)
			if m.sent != nil {
				m.sent(c)
			}
			switch msg.To.Role {
			case migrate.Worker:
				m.workers[msg.To.ID].Send(c)
			case migrate.Aggregator:
				if !m.dead[msg.To.ID] {
					m.aggregators[msg.To.ID].Send(c)
				}
			}
		}
		for _, e := range events {
			switch e.Kind {
			case migrate.Settled:
				select {
				case m.changed <- struct{}{}:
				default:
				}
			case migrate.Failed:
				m.t.Errorf("tensor %d: %s", t.key.Tensor, e.Why)
			case migrate.Orphaned:
				m.recoveries++
				var alive []int32
				for id := range m.aggregators {
					if !m.dead[id] {
						alive = append(alive, id)
					}
				}
				to := alive[0]
				for _, id := range alive {
					if (int(id)-int(t.key.Tensor))%len(m.aggregators) == 0 {
						to = id
					}
				}
				t.state.Recover(to, &t.out)
			}
		}
		if alarm > 0 {
			if t.alarm == nil {
				t.alarm = time.AfterFunc(alarm, func() {
					m.mu.Lock()
					defer m.mu.Unlock()
					if m.ctx.Err() == nil {
						t.state.Timeout(&t.out)
						t.carryOut()
					}
				})
			} else {
				t.alarm.Reset(alarm)
			}
		}
	}
}

// service is a job with workers and Aggregators in this process, over TCP.
type service struct {
	t       testing.TB
	ctx     context.Context
	job     control.Job
	master  *master
	agents  []*client.Agent
	servers map[int32]*aggregator.Server
	// transport is what an Aggregator's frames go through; nil: TCP.
	transport func(id int32) data.Transport
	report    time.Duration
	wg        sync.WaitGroup
}

func newService(t testing.TB, j control.Job, aggregators int, transport func(id int32) data.Transport) *service {
	return newServiceOn(t, j, aggregators, &data.TCP{}, transport, times)
}

// newServiceOn is one whose workers use that transport, and wait so long.
func newServiceOn(t testing.TB, j control.Job, aggregators int, workers data.Transport, transport func(id int32) data.Transport, patience migrate.Times) *service {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	s := &service{t: t, ctx: ctx, job: j, servers: map[int32]*aggregator.Server{}, transport: transport}
	var ends []control.Link
	for r := range j.Workers {
		node, end := control.Pipe()
		ends = append(ends, end)
		a, err := client.New(client.Config{Job: j, Rank: int32(r), Link: node, Transport: workers, Times: patience, Initial: client.Initial})
		if err != nil {
			t.Fatal(err)
		}
		s.agents = append(s.agents, a)
	}
	s.master = newMaster(t, ctx, &s.wg, j, ends)
	t.Cleanup(func() {
		cancel()
		for _, a := range s.agents {
			a.Close()
		}
		for _, v := range s.servers {
			v.Close()
		}
		s.wg.Wait()
	})
	for id := range aggregators {
		s.add(int32(id))
	}
	return s
}

// add starts an Aggregator.
func (s *service) add(id int32) {
	s.t.Helper()
	var tr data.Transport = &data.TCP{}
	if s.transport != nil {
		tr = s.transport(id)
	}
	l, err := tr.Listen(s.ctx, "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	node, end := control.Pipe()
	v := aggregator.Listen(aggregator.Config{ID: id, Listener: l, Transport: tr, Link: node, Times: times, Report: s.report})
	s.servers[id] = v
	s.wg.Go(func() {
		if err := v.Run(s.ctx); err != nil {
			s.t.Error(err)
		}
	})
	s.master.join(id, l.Address(), end)
}

// train runs a loop on all workers and returns the models that each has in the end.
func (s *service) train(iterations int, change func(rank int32, l *client.Loop)) [][][]float32 {
	s.t.Helper()
	models := make([][][]float32, len(s.agents))
	var wg sync.WaitGroup
	for r, a := range s.agents {
		l := client.Loop{Iterations: iterations, Gradient: client.Synthetic(seed, int32(r))}
		if change != nil {
			change(int32(r), &l)
		}
		wg.Go(func() {
			err := a.Run(s.ctx, l)
			if err == nil {
				for t := range s.job.Tensors {
					m, err := a.Pull(s.ctx, t)
					if err != nil {
						s.t.Errorf("worker %d: %v", r, err)
						return
					}
					models[r] = append(models[r], append([]float32(nil), m.Values...))
				}
			}
			if err != nil {
				s.t.Errorf("worker %d: %v", r, err)
			}
		})
	}
	wg.Wait()
	return models
}

// check compares the models with what they have to be.
func (s *service) check(models [][][]float32, iterations int) {
	s.t.Helper()
	if s.t.Failed() {
		return
	}
	want := client.Models(s.job, seed, iterations)
	for r := range models {
		same(s.t, fmt.Sprint("worker ", r), models[r], want)
	}
}

// Whatever the order in which gradients come, models are what a plain loop makes in the order of
// ranks.
func TestOrder(t *testing.T) {
	s := newService(t, newJob(3, 1000, 1, 70_000), 2, nil)
	s.master.start()
	s.check(s.train(30, func(rank int32, l *client.Loop) {
		r := rand.New(rand.NewPCG(1, uint64(rank)))
		g := l.Gradient
		l.Gradient = func(tensor int, v uint64, model, values []float32) {
			g(tensor, v, model, values)
			time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond) // so that another one is first each time
		}
	}), 30)
	if where, _ := s.agents[0].Where(); where[0] == where[1] {
		t.Errorf("all at one Aggregator: %v", where)
	}
}

// 200 iterations, and as many migrations of all tensors as there is time for, at least 20:
// nothing shows in the models.
func TestMigrations(t *testing.T) {
	const iterations = 200
	s := newService(t, newJob(2, 5000, 300, 20_000), 3, nil)
	s.master.start()
	reached := make(chan int, iterations)
	migrations, over := 0, make(chan struct{})
	s.wg.Go(func() {
		defer close(over)
		for i := range reached {
			if i%10 != 0 {
				continue
			}
			for tensor := range s.job.Tensors {
				if s.master.migrate(tensor, int32((i/10+tensor)%3)) {
					migrations++
				}
			}
		}
	})
	moved := 0
	models := s.train(iterations, func(rank int32, l *client.Loop) {
		l.Report = 50
		l.Forward = []time.Duration{time.Millisecond}
		if rank == 0 {
			l.Done = func(it client.Iteration) { reached <- it.Number; moved += it.Moved }
		}
	})
	close(reached)
	<-over
	s.check(models, iterations)
	for tensor := range s.job.Tensors {
		s.master.settle(tensor)
	}
	t.Logf("%d migrations, %d seen by worker 0", migrations, moved)
	if migrations < 20 || moved < 20 {
		t.Errorf("%d migrations, of which worker 0 saw %d", migrations, moved)
	}
	s.master.mu.Lock()
	defer s.master.mu.Unlock()
	if n := len(s.master.reports); n != 2*iterations/50 {
		t.Errorf("%d reports", n)
	}
	if s.master.recoveries != len(s.job.Tensors) {
		t.Errorf("%d recoveries besides the first assignments", s.master.recoveries-len(s.job.Tensors))
	}
}

// Servers of the job's own, as with ps-lite: tensors take turns on them, and stay.
func TestStatic(t *testing.T) {
	const iterations = 20
	j := newJob(2, 100, 2000, 30, 9)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var servers []control.Peer
	for id := range int32(2) {
		tr := &data.TCP{}
		l, err := tr.Listen(ctx, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		v := aggregator.Listen(aggregator.Config{ID: id, Listener: l, Transport: tr, Link: control.StaticServer(j)})
		servers = append(servers, control.Peer{ID: id, Address: l.Address()})
		wg.Go(func() { v.Run(ctx) })
		defer func() {
			if st := v.Stats(); st.Holding != 2 || len(st.Tensors) != 2 || st.Tensors[1].Runs != iterations || st.Tensors[0].Key.Tensor != uint32(id) {
				t.Errorf("server %d: %+v", id, st)
			}
			v.Close()
		}()
	}
	s := &service{t: t, ctx: ctx, job: j}
	for r := range int32(j.Workers) {
		a, err := client.New(client.Config{Job: j, Rank: r, Link: control.StaticWorker(j, r, servers), Transport: &data.TCP{}, Initial: client.Initial})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		s.agents = append(s.agents, a)
	}
	s.check(s.train(iterations, nil), iterations)
	if where, _ := s.agents[1].Where(); fmt.Sprint(where) != "[0 1 0 1]" {
		t.Errorf("tensors at %v", where)
	}
	for r, a := range s.agents {
		if err := a.Finish(ctx); err != nil {
			t.Errorf("worker %d: %v", r, err)
		}
		if err := a.Err(); !errors.Is(err, client.ErrFinished) || err.Error() != fmt.Sprintf(`job "test", rank %d: job ended: all workers have finished`, r) {
			t.Errorf("worker %d: %v", r, err)
		}
	}
	cancel()
	wg.Wait()
}
