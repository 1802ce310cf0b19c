package p4rt_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
)

// path is the way to a server, which can be cut.
type path struct {
	lis net.Listener
	to  string
	all sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns []net.Conn // of the client
	far   []net.Conn // of the server
}

func newPath(t *testing.T, to string) *path {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &path{lis: lis, to: to}
	p.all.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			p.join(conn)
		}
	})
	t.Cleanup(func() {
		lis.Close()
		p.cutOff(true)
		p.all.Wait()
	})
	return p
}

func (p *path) join(near net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	far, err := net.Dial("tcp", p.to)
	if err != nil || p.cut {
		near.Close()
		if err == nil {
			far.Close()
		}
		return
	}
	p.conns, p.far = append(p.conns, near), append(p.far, far)
	p.all.Go(func() { io.Copy(far, near) })
	p.all.Go(func() { io.Copy(near, far) })
}

// cutOff ends all connections, at the server's end too or without a word to it.
func (p *path) cutOff(far bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
	if far {
		for _, c := range p.far {
			c.Close()
		}
		p.far = nil
	}
}

func (p *path) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// TestOvertaken: who was cut off from a switch wins it back, unless it has gone to another meanwhile: then
// it neither disturbs that one nor takes away what it wrote.
func TestOvertaken(t *testing.T) {
	const wins, loses = "is primary again", "leaves it alone"
	errTaken := fmt.Errorf("%w: its lease is somebody else's", dataplane.ErrNotPrimary)
	lease := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	type other func(t *testing.T, s *server) *p4rt.Client // while the first is away
	rival := func(t *testing.T, s *server) *p4rt.Client {
		t.Helper()
		c := dial(t, s.addr)
		push(t, c)
		if err := c.Write(t.Context(), sample()); err != nil {
			t.Fatal(err)
		}
		return c
	}
	left := func(t *testing.T, s *server) *p4rt.Client {
		if err := rival(t, s).Close(t.Context()); err != nil {
			t.Error(err)
		}
		return nil
	}
	for name, tt := range map[string]struct {
		far  bool // the switch notices
		mine func(context.Context) error
		do   other
		want string
	}{
		"nothing happened":                                      {true, nil, nil, wins},
		"the switch has missed nobody":                          {false, nil, nil, wins},
		"nobody can be asked about the lease":                   {true, lease(errors.New("no route to host")), nil, wins},
		"the lease was taken":                                   {true, lease(errTaken), nil, loses},
		"another is primary":                                    {true, nil, rival, loses},
		"another is primary, and the lease was taken":           {false, lease(errTaken), rival, loses},
		"another is primary, and nobody can be asked":           {false, lease(errors.New("no route to host")), rival, loses},
		"another was primary and has left":                      {true, nil, left, wins},
		"another was primary and has left, nobody can be asked": {true, lease(errors.New("no route to host")), left, loses},
		"the switch has restarted": {true, nil, func(t *testing.T, s *server) *p4rt.Client {
			s.restart()
			return nil
		}, wins},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := loopback(t)
			way := newPath(t, s.addr)
			c, err := p4rt.Dial(t.Context(), "tor1", way.lis.Addr().String(), device, p4rt.Options{Options: dataplane.Options{Mine: tt.mine}})
			if err != nil {
				t.Fatal(err)
			}
			push(t, c)
			mine := dataplane.Batch{Routes: []p4.Route{route(1, 3), route(9, 3)}}
			if err := c.Write(t.Context(), mine); err != nil {
				t.Fatal(err)
			}
			way.cutOff(tt.far)
			<-c.Lost()
			var rival *p4rt.Client
			if tt.do != nil {
				rival = tt.do(t, s)
			}
			before := s.mem.State()
			way.mend()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = c.ReadRoutes(ctx)
			if err == nil {
				err = c.Delete(ctx, dataplane.Batch{Routes: []p4.Route{route(7, 3)}}) // none of its own
			}
			if lost := errors.Is(err, dataplane.ErrNotPrimary); lost != (tt.want == loses) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it %s: %v", tt.want, err)
			}
			if rival != nil {
				select {
				case <-rival.Lost():
					t.Errorf("the other one has lost it: %v", rival.Err())
				default:
				}
			}
			if tt.want == loses && !errors.Is(c.Explain(ctx), dataplane.ErrNotPrimary) {
				t.Errorf("the loss: %v", c.Err())
			}
			if err := c.Close(t.Context()); err != nil && (tt.want == wins || !errors.Is(err, dataplane.ErrNotPrimary)) {
				t.Errorf("close: %v", err)
			}
			if tt.want == wins {
				before = dataplane.Batch{}
			}
			if diff := cmp.Diff(before, s.mem.State()); diff != "" {
				t.Errorf("in the end (-want +got):\n%s", diff)
			}
			if rival != nil {
				if err := rival.WriteJob(t.Context(), job(3, 8)); err != nil {
					t.Errorf("the other one: %v", err)
				}
			}
		})
	}
}

// TestClockAhead: the latest bid wins, though the clock of whoever is primary is ahead.
func TestClockAhead(t *testing.T) {
	s := loopback(t)
	ahead := id(uint64(time.Now().Add(5 * time.Minute).UnixNano()))
	other := newController(t, rawClient(t, subject{addr: s.addr}), device)
	other.bid(ahead)
	other.hears(ahead, 0)
	polite := p4rt.Options{Options: dataplane.Options{Polite: true}}
	if _, err := p4rt.Dial(t.Context(), "tor1", s.addr, device, polite); !errors.Is(err, dataplane.ErrNotPrimary) || !strings.Contains(err.Error(), "since 2") {
		t.Errorf("somebody polite: %v", err)
	}
	push(t, dial(t, s.addr))
}
