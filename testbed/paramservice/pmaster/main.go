package pmaster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/internal/rpc"
	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
	"github.com/inabench/inabench/testbed/paramservice/wire"
)

// Setup is the first line of JSON on the process's stdin.
type Setup struct {
	Listen string `json:"listen,omitempty"` // for nodes (gRPC); empty: any port of the loopback
	State  string `json:"state"`            // see Config

	Plan    *paramservice.MasterOptions `json:"plan,omitempty"` // nil: paramservice.DefaultMaster
	Times   migrate.Times               `json:"times,omitzero"`
	Lease   time.Duration               `json:"lease,omitempty"`
	Profile int                         `json:"profile,omitempty"`
	Period  time.Duration               `json:"period,omitempty"`
}

// Command is any later line on stdin. What becomes of it is told by events.
//
// Whoever started pMaster starts Aggregators, too: when it reads the event "allocate" it has one
// started that joins under that id, and when it reads "stop" it ends it, if it has not ended by
// itself. In either case, and whenever else one has ended, it says "exited".
type Command struct {
	Cmd string `json:"cmd"` // "register", "end", "move", "exited" or "stop"

	Job control.Job `json:"job,omitzero"` // of "register"
	ID  uint32      `json:"id,omitempty"` // of "end", and "move": see Master.Move
	Why string      `json:"why,omitempty"`

	Aggregator int32 `json:"aggregator,omitempty"` // of "exited"
}

// maxLine bounds a line on stdin, bytes: a job of MaxTensors tensors has some MB.
const maxLine = 16 << 20

// closeTimeout bounds the end.
const closeTimeout = 15 * time.Second

// Main is pMaster as a process: Setup and Commands come as lines of JSON from stdin, Events go to
// stdout. It returns nil after "stop", when stdin ends, or when ctx is done: all jobs are ended
// then, and all Aggregators released.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewScanner(stdin)
	in.Buffer(nil, maxLine)
	if !in.Scan() {
		return in.Err()
	}
	p := &process{out: json.NewEncoder(stdout), running: map[int32]*remote{}}
	var s Setup
	err := json.Unmarshal(in.Bytes(), &s)
	if err == nil {
		err = p.run(ctx, &s, in)
	}
	if err != nil {
		err = fmt.Errorf("pMaster: %w", err)
		p.emit(Event{Event: "error", Why: err.Error()})
	}
	return err
}

// process is pMaster's, and the Pool that consists of whoever reads stdout.
type process struct {
	mu      sync.Mutex
	out     *json.Encoder
	running map[int32]*remote
	work    sync.WaitGroup // commands that wait
}

func (p *process) emit(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(e) // whoever reads it is gone: stdin ends then too
}

// remote is an Aggregator that somebody else has started.
type remote struct {
	p    *process
	id   int32
	done chan struct{}
}

// Start implements Pool: the event "allocate" has been emitted.
func (p *process) Start(_ context.Context, id int32) (Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.remote(id), nil
}

// exited says that an Aggregator has ended.
func (p *process) exited(id int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remote(id).end() // of a pMaster before, or it has been quicker than Start
}

// remote is what is known of an Aggregator. The caller has the lock.
func (p *process) remote(id int32) *remote {
	r := p.running[id]
	if r == nil {
		r = &remote{p: p, id: id, done: make(chan struct{})}
		p.running[id] = r
	}
	return r
}

// end says that it has ended. The caller has the lock.
func (r *remote) end() {
	select {
	case <-r.done:
	default:
		close(r.done)
	}
}

// Done implements Process.
func (r *remote) Done() <-chan struct{} { return r.done }

// Stop implements Process.
func (r *remote) Stop(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	default:
	}
	r.p.emit(Event{Event: "stop", Aggregator: &r.id})
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nobody says that it has ended: %w", ctx.Err())
	}
}

func (p *process) run(ctx context.Context, s *Setup, in *bufio.Scanner) (err error) {
	if s.State == "" {
		return errors.New("no file for the epoch (state)")
	}
	if s.Listen == "" {
		s.Listen = "127.0.0.1:0"
	}
	lis, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return err
	}
	plan := paramservice.DefaultMaster()
	if s.Plan != nil {
		plan = *s.Plan
	}
	m, err := New(Config{
		Plan: plan, Pool: p, State: s.State, Times: s.Times, Lease: s.Lease,
		Profile: s.Profile, Period: s.Period, Emit: p.emit,
	})
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	srv := NewServer(m)
	served := make(chan error, 1)
	p.work.Go(func() { served <- srv.Serve(lis) })
	p.emit(Event{Event: "ready", Address: lis.Addr().String(), Epoch: m.Epoch()})

	// A read of stdin cannot be cancelled: its goroutine outlives this function when ctx ends
	// first, and the process is about to end then.
	lines := make(chan []byte)
	over := make(chan struct{})
	defer close(over)
	go func() {
		defer close(lines)
		for in.Scan() {
			select {
			case lines <- append([]byte(nil), in.Bytes()...):
			case <-over:
				return
			}
		}
	}()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		go func() { // who is told that Aggregators have ended
			for {
				select {
				case line, more := <-lines:
					if !more {
						return
					}
					p.obey(ctx, m, line)
				case <-over:
					return
				}
			}
		}()
		err = errors.Join(err, m.Close(ctx))
		srv.Stop()
		p.work.Wait()
	}()
	for {
		select {
		case line, more := <-lines:
			if !more {
				p.alone()
				return in.Err()
			}
			if stop := p.obey(ctx, m, line); stop {
				return nil
			}
		case err := <-served:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// alone is that nobody will say what becomes of Aggregators.
func (p *process) alone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.running {
		r.end()
	}
}

// NewServer is a gRPC server of a pMaster.
func NewServer(m *Master) *rpc.Server {
	srv := rpc.NewServer(wire.Options()...)
	m.Register(srv)
	return srv
}

// later is what may have to wait until pMaster knows what there is.
func (p *process) later(job uint32, f func() error) {
	p.work.Go(func() {
		if err := f(); err != nil {
			p.emit(Event{Event: "error", Job: job, Why: status.Convert(err).Message()})
		}
	})
}

// obey carries out one command.
func (p *process) obey(ctx context.Context, m *Master, line []byte) (stop bool) {
	var c Command
	err := json.Unmarshal(line, &c)
	if err == nil {
		switch c.Cmd {
		case "register":
			// Checked as if it had come from elsewhere; an event says what became of it.
			p.work.Go(func() { _, _ = (&service{m: m}).Register(ctx, wire.EncodeJob(c.Job)) })
		case "end":
			p.later(c.ID, func() error { return m.End(ctx, c.ID, c.Why) })
		case "move":
			p.later(c.ID, func() error { return m.Move(ctx, c.ID) })
		case "exited":
			p.exited(c.Aggregator)
		case "stop":
			return true
		default:
			err = fmt.Errorf("unknown command %q", c.Cmd)
		}
	}
	if err != nil {
		p.emit(Event{Event: "error", Job: c.ID, Why: err.Error()})
	}
	return false
}
