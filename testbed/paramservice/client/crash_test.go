package client_test

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/aggregator"
	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/data"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// when is a moment of a frame.
type when string

const (
	sending when = "before it sends"
	sent    when = "after it sent"
	got     when = "when it gets"
)

// spy is TCP that tells of frames. When hook returns false the process is dead: nothing more is
// sent or received.
type spy struct {
	data.TCP
	hook func(w when, h *data.Header) bool
}

func (s *spy) Listen(ctx context.Context, address string) (data.Listener, error) {
	l, err := s.TCP.Listen(ctx, address)
	return &spyListener{l, s}, err
}

func (s *spy) Dial(ctx context.Context, address string) (data.Conn, error) {
	c, err := s.TCP.Dial(ctx, address)
	return &spyConn{c, s}, err
}

type spyListener struct {
	data.Listener
	s *spy
}

func (l *spyListener) Accept() (data.Conn, error) {
	c, err := l.Listener.Accept()
	return &spyConn{c, l.s}, err
}

type spyConn struct {
	data.Conn
	s *spy
}

var errDead = errors.New("dead")

func (c *spyConn) Send(h *data.Header, values []float32) error {
	if !c.s.hook(sending, h) {
		return errDead
	}
	if err := c.Conn.Send(h, values); err != nil {
		return err
	}
	if !c.s.hook(sent, h) {
		return errDead
	}
	return nil
}

func (c *spyConn) Receive(place func(*data.Header) []float32) (data.Header, error) {
	h, err := c.Conn.Receive(place)
	if err == nil && !c.s.hook(got, &h) {
		return data.Header{}, errDead
	}
	return h, err
}

// steps of a migration from Aggregator 0 to 1: either by a frame at one of them, or by a message
// of pMaster's.
var steps = []struct {
	name  string
	who   int32 // whose frame it is
	when  when
	frame func(*data.Header) bool
	sent  migrate.Kind // by pMaster
	seen  migrate.Kind // by pMaster
}{
	{name: "MIGRATE_INIT is sent", sent: migrate.MigrateInit},
	{name: "the source is about to migrate", seen: migrate.Migrating},
	{name: "before a worker is redirected", who: 0, when: sending, frame: redirect},
	{name: "after a worker was redirected", who: 0, when: sent, frame: redirect},
	{name: "before TENSOR_COPY is sent", who: 0, when: sending, frame: kind(migrate.TensorCopy)},
	{name: "after TENSOR_COPY was sent", who: 0, when: sent, frame: kind(migrate.TensorCopy)},
	{name: "TENSOR_COPY arrives", who: 1, when: got, frame: kind(migrate.TensorCopy)},
	{name: "before the copy is acknowledged", who: 1, when: sending, frame: kind(migrate.CopyAck)},
	{name: "after the copy was acknowledged", who: 1, when: sent, frame: kind(migrate.CopyAck)},
	{name: "the acknowledgement arrives", who: 0, when: got, frame: kind(migrate.CopyAck)},
	{name: "a gradient arrives at the destination", who: 1, when: got, frame: kind(migrate.Push)},
	{name: "TENSOR_COPY_DONE arrives", seen: migrate.CopyDone},
	{name: "WORKER_DONE arrives", seen: migrate.WorkerDone},
	{name: "before the first answer of the destination", who: 1, when: sending, frame: kind(migrate.Model)},
	{name: "after the first answer of the destination", who: 1, when: sent, frame: kind(migrate.Model)},
	{name: "the migration is settled", sent: migrate.Release},
}

func kind(k migrate.Kind) func(*data.Header) bool {
	return func(h *data.Header) bool { return h.Kind == k }
}

func redirect(h *data.Header) bool { return h.Kind == migrate.Model && h.Next != migrate.Term{} }

// Either Aggregator crashes at each step of a migration: training goes on, and no gradient is
// lost or taken twice.
func TestCrashes(t *testing.T) {
	const iterations = 25
	for _, step := range steps {
		for victim := range int32(2) {
			t.Run(fmt.Sprintf("%s/%s", step.name, [...]string{"source", "destination"}[victim]), func(t *testing.T) {
				var s *service
				var begun, hit atomic.Bool
				var dead [3]atomic.Bool
				crashed := make(chan struct{})
				crash := func() {
					if begun.Load() && hit.CompareAndSwap(false, true) {
						dead[victim].Store(true)
						go func() { // whose connections break; then pMaster notices
							defer close(crashed)
							s.servers[victim].Close()
							s.master.lost(victim)
						}()
					}
				}
				transport := func(id int32) data.Transport {
					return &spy{hook: func(w when, h *data.Header) bool {
						if step.frame != nil && step.who == id && step.when == w && h.Key.Tensor == 0 && step.frame(h) {
							crash()
						}
						return !dead[id].Load()
					}}
				}
				s = newService(t, newJob(2, 3000, 50), 3, transport)
				watch := func(k migrate.Kind) func(control.Migrate) {
					return func(m control.Migrate) {
						if k != 0 && m.Key.Tensor == 0 && m.Message.Kind == k {
							crash()
						}
					}
				}
				s.master.mu.Lock()
				s.master.sent, s.master.seen = watch(step.sent), watch(step.seen)
				s.master.mu.Unlock()
				s.master.start()
				const at = 5
				ready := make(chan struct{})
				s.wg.Go(func() {
					select {
					case <-ready:
					case <-s.ctx.Done():
						return
					}
					if s.master.settle(0) != 0 {
						t.Error("the tensor is not where it should be")
					}
					begun.Store(true)
					if !s.master.migrate(0, 1) {
						t.Error("no migration")
					}
				})
				models := s.train(iterations, func(rank int32, l *client.Loop) {
					l.Done = func(it client.Iteration) {
						if rank == 0 && it.Number == at {
							close(ready)
						}
						if it.Number == iterations-5 { // it has happened before the end
							select {
							case <-crashed:
							case <-s.ctx.Done():
							}
						}
					}
				})
				s.check(models, iterations)
				if !hit.Load() {
					t.Error("this step does not occur")
				}
				if at, _ := s.agents[1].Where(); at[0] == victim {
					t.Errorf("the tensor is at %d, which crashed", at[0])
				}
			})
		}
	}
}

// Transfers are the time on the way: that of an Aggregator whose answers are slow to leave is longer,
// that which an Aggregator takes to sum is not in it.
func TestTransfers(t *testing.T) {
	const iterations, way, work = 10, 10 * time.Millisecond, 20 * time.Millisecond
	j := newJob(1, 100, 2000)
	for i := range j.Tensors {
		j.Tensors[i].Work = work
	}
	s := newService(t, j, 2, func(id int32) data.Transport {
		return &spy{hook: func(w when, h *data.Header) bool {
			if id == 1 && w == sending && h.Kind == migrate.Model {
				time.Sleep(way)
			}
			return true
		}}
	})
	s.master.start()
	s.check(s.train(iterations, nil), iterations)
	got := s.agents[0].Transfers()
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	for i, tr := range got {
		// The first gradient may have waited for the tensor's assignment, which is no transfer.
		if n := tr.Exchanges; tr.Aggregator != int32(i) || n != iterations && n != iterations-1 || tr.Bytes != int64(n*8*j.Tensors[i].Elements) {
			t.Errorf("%+v", tr)
		}
	}
	if got[0].Spent <= 0 || got[0].Spent >= iterations*work || got[1].Spent < time.Duration(got[1].Exchanges)*way {
		t.Errorf("%v and %v", got[0].Spent, got[1].Spent)
	}
	if again := s.agents[0].Transfers(); len(again) > 0 {
		t.Errorf("%+v again", again)
	}
}

// A crash that nobody tells pMaster of: the workers that get no answer do.
func TestStuck(t *testing.T) {
	const iterations = 20
	s := newServiceOn(t, newJob(2, 300), 2, &data.TCP{}, nil, migrate.Times{Resend: 20 * time.Millisecond, Attempts: 5})
	s.master.start()
	s.check(s.train(iterations, func(rank int32, l *client.Loop) {
		l.Done = func(it client.Iteration) {
			if rank == 0 && it.Number == 5 {
				s.servers[0].Close()
				s.master.mu.Lock()
				s.master.dead[0] = true // so that it is not chosen again
				s.master.mu.Unlock()
			}
		}
	}), iterations)
}

// process is an Aggregator in a process of its own; control messages go over its standard input
// and output.
type process struct {
	cmd *exec.Cmd
	in  io.Closer
	enc *gob.Encoder
	dec *gob.Decoder
	mu  sync.Mutex
}

// envelope is what gob needs around an interface.
type envelope struct{ M control.Message }

func register() {
	for _, m := range []any{control.Migrate{}, control.Admit{}, control.Admitted{}, control.Dismiss{}, control.Reserve{},
		control.Peers{}, control.Failed{}, control.Finished{}, control.WorkerReport{}, control.AggregatorReport{}} {
		gob.Register(m)
	}
}

func (p *process) Send(m control.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.enc.Encode(envelope{m}) // lost if there is nobody
}

func (p *process) Receive(context.Context) (control.Message, error) {
	var e envelope
	if err := p.dec.Decode(&e); err != nil {
		return nil, fmt.Errorf("%w: %w", control.ErrClosed, err)
	}
	return e.M, nil
}

// processEnv makes the test binary an Aggregator of that id.
const processEnv = "INABENCH_TEST_AGGREGATOR"

func TestMain(m *testing.M) {
	register()
	if id := os.Getenv(processEnv); id != "" {
		os.Exit(aggregate(id))
	}
	os.Exit(m.Run())
}

// aggregate is the process: its address is the first thing that it says.
func aggregate(id string) int {
	var n int32
	fmt.Sscan(id, &n)
	tr := &data.TCP{}
	l, err := tr.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		return 1
	}
	fmt.Println(l.Address())
	link := &process{enc: gob.NewEncoder(os.Stdout), dec: gob.NewDecoder(os.Stdin)}
	v := aggregator.Listen(aggregator.Config{ID: n, Listener: l, Transport: tr, Link: link, Times: times})
	v.Run(context.Background()) // until standard input ends
	v.Close()
	return 0
}

// spawn adds such an Aggregator to a service.
func (s *service) spawn(id int32) *process {
	s.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), processEnv+"="+fmt.Sprint(id))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	r := bufio.NewReader(out)
	address, err := r.ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	p := &process{cmd: cmd, in: in, enc: gob.NewEncoder(in), dec: gob.NewDecoder(r)}
	s.master.join(id, address[:len(address)-1], p)
	return p
}

// Aggregators are processes, and are killed in the midst of migrations, again and again. New ones
// take their places, at addresses and with ids of their own.
func TestKilledProcesses(t *testing.T) {
	const iterations, kills = 120, 4
	s := newService(t, newJob(2, 20_000, 700, 3), 0, nil)
	moments := []migrate.Kind{migrate.Migrating, migrate.CopyDone, migrate.WorkerDone, migrate.MigrateInit}
	hit := make(chan struct{}, 1000)
	var waiting atomic.Int32 // for this kind
	note := func(m control.Migrate) {
		if migrate.Kind(waiting.Load()) == m.Message.Kind {
			select {
			case hit <- struct{}{}:
			default:
			}
		}
	}
	s.master.mu.Lock()
	s.master.seen, s.master.sent = note, note
	s.master.mu.Unlock()
	processes := map[int32]*process{}
	for id := range int32(2) {
		processes[id] = s.spawn(id)
	}
	s.master.start()
	reached := make(chan int, iterations)
	killed, over := 0, make(chan struct{})
	s.wg.Go(func() {
		defer close(over)
		next := int32(2)
		for i := range reached {
			if i%20 != 10 || killed == kills {
				continue
			}
			at := s.master.settle(0)
			to := at
			for id := range processes {
				if id != at {
					to = id
				}
			}
			for len(hit) > 0 {
				<-hit
			}
			waiting.Store(int32(moments[killed]))
			if !s.master.migrate(0, to) {
				t.Errorf("no migration from %d to %d", at, to)
				return
			}
			select {
			case <-hit:
			case <-time.After(10 * time.Second):
				t.Errorf("no %v", moments[killed])
				return
			}
			waiting.Store(0)
			victim := [...]int32{at, to}[killed%2]
			processes[victim].cmd.Process.Kill()
			delete(processes, victim)
			processes[next] = s.spawn(next)
			next++
			s.master.lost(victim)
			killed++
		}
	})
	models := s.train(iterations, func(rank int32, l *client.Loop) {
		l.Forward = []time.Duration{2 * time.Millisecond}
		if rank == 0 {
			l.Done = func(it client.Iteration) { reached <- it.Number }
		}
	})
	close(reached)
	<-over
	s.check(models, iterations)
	s.master.mu.Lock()
	t.Logf("%d killed, %d recoveries of tensors besides the first assignments", killed, s.master.recoveries-len(s.job.Tensors))
	s.master.mu.Unlock()
	if killed < kills {
		t.Errorf("%d killed", killed)
	}
}
