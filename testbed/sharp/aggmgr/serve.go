package aggmgr

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// ServeREST serves Handler on a listener until ctx ends, and then returns nil.
func (m *Manager) ServeREST(ctx context.Context, lis net.Listener) error {
	srv := &http.Server{Handler: m.Handler(), ReadHeaderTimeout: m.cfg.Timeout}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve reservations: %w", err)
	}
	return nil
}

// message is a line of the protocol of jobs, in either direction.
type message struct {
	ID    uint64   `json:"id"`
	Begin *Request `json:"begin,omitempty"` // to the manager: one of these, or neither, which only says "here I am"
	End   uint64   `json:"end,omitempty"`
	Grant *Grant   `json:"grant,omitempty"` // from the manager: to begin
	Kind  string   `json:"kind,omitempty"`  // which sentinel, of an error
	Error string   `json:"error,omitempty"`
}

// kinds are the sentinels and the names they have in messages. An error that wraps several
// is of the first.
var kinds = []struct {
	name string
	err  error
}{
	{"invalid", ErrInvalid}, {"unknown", ErrUnknown}, {"no_tree", ErrNoTree}, {"quota", ErrQuota}, {"reservation", ErrReservation},
	{"exists", ErrExists}, {"not_found", ErrNotFound}, {"switch", ErrSwitch}, {"closed", ErrClosed},
}

func kindOf(err error) string {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	return ""
}

func kindNamed(name string) error {
	for _, k := range kinds {
		if k.name == name {
			return k.err
		}
	}
	return nil
}

// maxMessage bounds a line, bytes.
const maxMessage = 1 << 20

// ServeJobs serves connections on which jobs begin and end until ctx ends; then it ends
// what is left and returns nil.
func (m *Manager) ServeJobs(ctx context.Context, lis net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = lis.Close() })
	defer stop()
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for {
		conn, err := lis.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("serve jobs: %w", err)
		}
		sessions.Go(func() { m.serve(ctx, conn) })
	}
}

// serve is one connection. Requests are answered as they are done, in any order.
func (m *Manager) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	name := "owner " + conn.RemoteAddr().String()
	s := m.Session(name)
	var working sync.WaitGroup
	defer func() {
		cancel()
		stop()
		_ = conn.Close()
		working.Wait()
		if err := s.Close(ctx); err != nil {
			m.logf("JOBS", "error", "%s: %v", name, err)
		}
	}()
	var writing sync.Mutex
	reply := func(r message, err error) {
		if err != nil {
			r.Error, r.Kind = err.Error(), kindOf(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			return
		}
		writing.Lock()
		defer writing.Unlock()
		_ = conn.SetWriteDeadline(time.Now().Add(m.cfg.Lease))
		if _, err := conn.Write(append(text, '\n')); err != nil {
			cancel() // nobody there
		}
	}
	in := bufio.NewScanner(conn)
	in.Buffer(nil, maxMessage)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(m.cfg.Lease))
		if !in.Scan() {
			if err := in.Err(); err != nil && ctx.Err() == nil {
				m.logf("JOBS", "warn", "%s: %v", name, err)
			}
			return
		}
		var r message
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			reply(message{}, fmt.Errorf("%w: %v", ErrInvalid, err))
			continue
		}
		working.Go(func() {
			switch {
			case r.Begin != nil:
				g, err := s.Begin(ctx, *r.Begin)
				reply(message{ID: r.ID, Grant: g}, err)
			case r.End != 0:
				reply(message{ID: r.ID}, s.End(ctx, r.End))
			default:
				reply(message{ID: r.ID}, nil)
			}
		})
	}
}

// Client is a connection to a manager. The jobs that begin on it end with it. It is safe
// for concurrent use.
type Client struct {
	conn net.Conn
	name string

	reading sync.WaitGroup
	done    chan struct{}

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan message
	lost    error // why the connection ended; valid when done is closed
}

// Dial connects to a manager that serves jobs at addr and keeps the connection alive. The
// caller must Close the client.
func Dial(ctx context.Context, addr string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("aggregation manager: %w", err)
	}
	c := &Client{conn: conn, name: "aggregation manager " + addr, done: make(chan struct{}), waiting: map[uint64]chan message{}}
	c.reading.Go(c.read)
	c.reading.Go(c.beat)
	return c, nil
}

// beatInterval is well below any lease.
const beatInterval = time.Second

// beat says that the client is there.
func (c *Client) beat() {
	t := time.NewTicker(beatInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_ = c.send(message{}) // read finds out if it cannot
		case <-c.done:
			return
		}
	}
}

// read hands out answers until the connection ends.
func (c *Client) read() {
	in := bufio.NewScanner(c.conn)
	in.Buffer(nil, maxMessage)
	for in.Scan() {
		var r message
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			continue
		}
		c.mu.Lock()
		to := c.waiting[r.ID]
		delete(c.waiting, r.ID)
		c.mu.Unlock()
		switch {
		case to != nil:
			to <- r
		case r.Grant != nil: // Begin does not wait any more
			_ = c.send(message{End: r.Grant.Tree.Job})
		}
	}
	err := in.Err()
	if err == nil {
		err = io.EOF
	}
	c.mu.Lock()
	c.lost = err
	c.mu.Unlock()
	close(c.done)
}

// Done is closed when the connection has ended, and so have the jobs that began on it.
func (c *Client) Done() <-chan struct{} { return c.done }

func (c *Client) send(m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = c.conn.Write(append(text, '\n')) // one Write is one line: net.Conn serialises them
	return err
}

func (c *Client) call(ctx context.Context, m message) (message, error) {
	to := make(chan message, 1)
	c.mu.Lock()
	c.last++
	m.ID = c.last
	c.waiting[m.ID] = to
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, m.ID)
		c.mu.Unlock()
	}()
	if err := c.send(m); err != nil {
		return message{}, fmt.Errorf("%s: %w: %w", c.name, ErrClosed, err)
	}
	select {
	case r := <-to:
		if r.Error != "" {
			return message{}, &remoteError{text: r.Error, kind: kindNamed(r.Kind)}
		}
		return r, nil
	case <-c.done:
		return message{}, fmt.Errorf("%s: %w: %w", c.name, ErrClosed, c.lost)
	case <-ctx.Done():
		return message{}, fmt.Errorf("%s: %w", c.name, context.Cause(ctx))
	}
}

// remoteError is an error of the manager on this end of the connection.
type remoteError struct {
	text string
	kind error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

// Begin is Manager.Begin. If ctx ends first, a job that begins all the same is ended.
func (c *Client) Begin(ctx context.Context, r Request) (*Grant, error) {
	answer, err := c.call(ctx, message{Begin: &r})
	if err != nil {
		return nil, err
	}
	if answer.Grant == nil {
		return nil, fmt.Errorf("begin job %d: %s grants nothing and refuses nothing", r.Job, c.name)
	}
	return answer.Grant, nil
}

// End is Manager.End, for a job that began on this connection.
func (c *Client) End(ctx context.Context, id uint64) error {
	if id == 0 {
		return fmt.Errorf("end job 0 of the manager: it %w", ErrNotFound)
	}
	_, err := c.call(ctx, message{End: id})
	return err
}

// Close hangs up; the manager then ends the client's jobs. It is idempotent.
func (c *Client) Close() error {
	err := c.conn.Close()
	c.reading.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
