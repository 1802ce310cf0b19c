// Package bfrt is a BFRuntime client for INA switches: Tofino behind the gRPC server of Intel's SDE, which is at port
// 50052 as a rule, behind the same calls as any other switch.
//
// What it relies on is in the SDE's source (open-p4studio, pkgsrc/bf-drivers/src/bf_rt/proto): a client opens a stream
// and subscribes by a number of its own (bf_rt_server_mgr.cpp, addConnection); it is bound to one program, which no
// other client can be bound to meanwhile (forwardingConfigBind), so that there are no elections, and nobody can be
// pushed away; loading a program is a warm init that forgets everything (warmInitBegin, warmInitEnd) and takes the ports
// down; keys and data have all bytes of their fields (bf_rt_server_impl.cpp, make_key, set_data_field); errors of a
// batch come as details, one for each update up to the last that failed (bf_rt_server_impl.hpp,
// BfRtServerErrorReporter).
package bfrt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/testbed/bfrt/bfrtpb"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
)

// MaxReply is how long one message from a switch may be, in bytes, and MaxProgram the one that a program's files are in.
const (
	MaxReply   = 16 << 20
	MaxProgram = 64 << 20

	maxAnswer = 2 * MaxReply // of all messages of an answer
)

// mostClients is above all numbers of clients: the SDE keeps 24 bits of them (formCookieFromDeviceAndClient).
const mostClients = 1 << 24

// newID is a number for a session: another one each time, since the server may not have noticed the end of the last.
func newID() uint32 { return 1 + rand.Uint32N(mostClients-1) }

// allPipes and the like are a whole device (BF_DEV_PIPE_ALL, BF_DEV_DIR_ALL, PRSR_ALL).
const (
	allPipes    = 0xFFFF
	bothGresses = 0xFF
	everyParser = 0xFF
)

// Client controls one switch. Methods are safe for concurrent use.
type Client struct {
	name   string
	device uint32
	opt    Options
	conn   *grpc.ClientConn
	rpc    bfrtpb.BfRuntimeClient

	observer bool // without a stream: it is bound to nothing, and only reads
	session  *dataplane.Session[uint32]

	mu        sync.Mutex
	id        uint32 // of the present stream, which is not good before it is bound as the one before was
	loaded    dataplane.Loaded
	prog      *program // what is pushed or attached; nil: nothing
	bound     binding
	witness   uint16 // a job that was written: where it is gone, the switch has restarted; 0: none
	restarted bool   // since anything was written
	loading   bool   // a program, by us
	begun     bool   // that load, as the stream says: what was on the switch is gone
	told      string // the sum of what Foreign has told of; "": of none

	finished chan struct{} // told when the switch has loaded a program
	syncing  sync.Mutex    // held while counters are copied: the server waits for one copy of a counter at a time

	// writing serialises changes to the switch and guards what must be undone.
	writing  sync.Mutex
	has      tables          // what is known to be on the switch
	before   prior           // what was there before it was changed
	doubtful map[string]bool // entries of which nobody knows what is there
	closed   bool
}

// Observe is a client of a switch that somebody else controls: it reads what the switch counts and holds, after Attach,
// and is bound to nothing. Whatever would change the switch fails with an error wrapping dataplane.ErrNotPrimary.
// Nothing is sent before the first call. The caller must Close the Client.
func Observe(name, addr string, device uint64, opt Options) (*Client, error) {
	c, err := newClient(name, addr, device, opt)
	if err != nil {
		return nil, err
	}
	c.observer = true
	c.id = newID()
	c.session.Begin(c.id)
	c.session.Idle()
	return c, nil
}

// Dial connects to the BFRuntime server at addr ("host:port") and returns when it has subscribed, and nobody else is
// bound to what the switch runs: an error wraps dataplane.ErrNotPrimary otherwise. name is what errors call the switch. A
// switch that does not answer yet is retried until Options.DialTimeout. The caller must Close the Client.
func Dial(ctx context.Context, name, addr string, device uint64, opt Options) (*Client, error) {
	c, err := newClient(name, addr, device, opt)
	if err != nil {
		return nil, err
	}
	err = c.session.Open(ctx, c.opt.Options, c.stream)
	if err == nil {
		call, cancel := context.WithTimeout(ctx, c.opt.CallTimeout+c.opt.DialTimeout) // of an answer, and of whoever is bound
		now, e := c.running(call)
		switch {
		case e == nil:
			err = c.free(call, now)
		case call.Err() != nil || status.Code(e) == codes.DeadlineExceeded: // the server knows the deadline, and may be the first to say so
			err = e
		default: // it is said by whoever needs it
		}
		cancel()
	}
	if err != nil {
		c.hangUp()
		return nil, blame.Switch(name, fmt.Errorf("connect to BFRuntime at %s: %w", addr, err))
	}
	return c, nil
}

func newClient(name, addr string, device uint64, opt Options) (*Client, error) {
	opt.Options = opt.WithDefaults()
	if opt.LinkTimeout == 0 {
		opt.LinkTimeout = time.Minute
	}
	conn, err := dataplane.Connect(addr, opt.TLS, MaxReply) // the SDE has no TLS; a proxy before it may
	if err != nil {
		return nil, blame.Switch(name, fmt.Errorf("BFRuntime address %q: %w", addr, err))
	}
	return &Client{
		name: name, device: uint32(device), opt: opt, conn: conn, rpc: bfrtpb.NewBfRuntimeClient(conn),
		session: dataplane.NewSession[uint32](name, "BFRuntime"), finished: make(chan struct{}, 1), has: newTables(),
	}, nil
}

// Name implements dataplane.Switch.
func (c *Client) Name() string { return c.name }

// Version implements dataplane.Switch: BFRuntime has none.
func (c *Client) Version(context.Context) (string, error) {
	return "", c.fail("ask for the version", fmt.Errorf("BFRuntime does not say its version: %w", errors.ErrUnsupported))
}

// Lost implements dataplane.Switch.
func (c *Client) Lost() <-chan struct{} { return c.session.Lost() }

// Err implements dataplane.Switch.
func (c *Client) Err() error { return c.session.Err() }

// Explain implements dataplane.Switch.
func (c *Client) Explain(ctx context.Context) error { return c.session.Explain(ctx) }

// hangUp ends the session without undoing anything. It is idempotent.
func (c *Client) hangUp() {
	c.session.Close()
	c.conn.Close()
}

// stream is one of the session: it subscribes.
func (c *Client) stream(ctx context.Context, _ dataplane.Due, cancel context.CancelCauseFunc, won func()) error {
	stream, err := c.rpc.StreamChannel(ctx, grpc.WaitForReady(true))
	if err == nil {
		err = c.subscribe(ctx, cancel, stream, won)
	}
	if err = dataplane.Plain(err); status.Code(err) == codes.Unimplemented {
		err = &dataplane.Hinted{Err: fmt.Errorf("there is no BFRuntime: %w", err), Advice: "the SDE has it at port 50052 as a rule; P4Runtime and Stratum are another device_config"}
	}
	return err
}

func (c *Client) subscribe(ctx context.Context, cancel context.CancelCauseFunc, stream bfrtpb.BfRuntime_StreamChannelClient, won func()) error {
	id := newID()
	if err := stream.Send(subscription(id, c.device)); err != nil {
		return dataplane.EndOf(stream)
	}
	var alive sync.WaitGroup
	defer alive.Wait()
	defer cancel(nil)
	subscribed := false
	for {
		m, err := stream.Recv()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
				return cause
			}
			return err
		}
		if r := m.GetSetForwardingPipelineConfigResponse(); r != nil {
			c.mu.Lock()
			ours := c.loading
			c.begun = true
			c.mu.Unlock()
			if !ours {
				return fmt.Errorf("%w: another client has loaded a program", dataplane.ErrRestarted)
			}
			if r.GetSetForwardingPipelineConfigResponseType() == bfrtpb.SetForwardingPipelineConfigResponseType_WARM_INIT_FINISHED {
				select {
				case c.finished <- struct{}{}:
				default:
				}
			}
			continue
		}
		s := m.GetSubscribe()
		if s == nil || subscribed {
			continue // something that nobody asked for
		}
		if code := codes.Code(s.GetStatus().GetCode()); code != codes.OK {
			return status.Error(code, s.GetStatus().GetMessage())
		}
		subscribed = true
		again := c.begin(id)
		if again != nil {
			alive.Go(func() { c.recognise(ctx, again) })
		}
		won()
		alive.Go(func() { dataplane.Watch(ctx, cancel, c.opt.Options, c.alive) })
	}
}

// subscription is the first message of a stream.
func subscription(id, device uint32) *bfrtpb.StreamMessageRequest {
	return &bfrtpb.StreamMessageRequest{ClientId: id, Update: &bfrtpb.StreamMessageRequest_Subscribe{
		Subscribe: &bfrtpb.Subscribe{DeviceId: device, Notifications: &bfrtpb.Subscribe_Notifications{}},
	}}
}

// begin is a stream that has begun. It returns the program that the client was bound to in the one before, if any.
func (c *Client) begin(id uint32) *program {
	c.mu.Lock()
	c.id = id
	prog := c.prog
	c.mu.Unlock()
	if prog == nil || c.Err() == nil {
		c.session.Begin(id)
		return nil
	}
	return prog
}

// recognise binds a session that was begun anew to the program of the one before, finds out whether the switch has kept
// what was written into it, and makes that part of Err.
func (c *Client) recognise(ctx context.Context, prog *program) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	err := c.bind(ctx, prog.name)
	c.mu.Lock()
	id, witness := c.id, c.witness
	c.mu.Unlock()
	c.session.Begin(id) // whatever came of it: calls say so
	lost := ""
	switch {
	case status.Code(err) == codes.NotFound:
		lost = "it runs another program"
	case err == nil && witness != 0:
		var jobs map[uint16]ina.JobEntry
		if jobs, err = c.jobs(ctx, prog); err == nil {
			if _, ok := jobs[witness]; !ok {
				lost = "what was written into it is gone"
			}
		}
	}
	if ctx.Err() != nil {
		return // the session has ended before anything was known
	}
	if lost != "" {
		c.mu.Lock()
		c.restarted, c.witness = true, 0
		c.mu.Unlock()
	}
	c.session.Recognise(lost, err)
}

// alive asks for a sign of life.
func (c *Client) alive(ctx context.Context) error {
	c.mu.Lock()
	prog, busy := c.prog, c.loading // the server answers nobody while it loads
	c.mu.Unlock()
	if prog == nil || busy {
		return nil
	}
	_, err := c.request(ctx, prog, nil)
	return err
}

// Loaded implements dataplane.Switch.
func (c *Client) Loaded() dataplane.Loaded {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loaded
}

// program is what the client is bound to, or an error wrapping dataplane.ErrNoPipeline.
func (c *Client) program() (*program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.prog == nil {
		return nil, dataplane.ErrNoPipeline
	}
	return c.prog, nil
}

// Close implements dataplane.Switch. Only ctx's deadline counts, and Options.CallTimeout, or two seconds to win back a
// switch that is lost.
func (c *Client) Close(ctx context.Context) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	ctx, cancel := c.session.Parting(ctx, c.opt.CallTimeout)
	defer cancel()
	var err error
	if !c.closed && !c.observer {
		err = c.undo(ctx)
	}
	c.closed = true
	c.hangUp()
	return c.fail("undo what was written", err)
}

// fail is an error that names the switch.
func (c *Client) fail(op string, err error) error {
	var done *dataplane.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	code := status.Code(err)
	if err = dataplane.Plain(err); code == codes.Unimplemented {
		err = fmt.Errorf("the switch's server cannot do that: %w", err)
	}
	return &dataplane.Error{Switch: c.name, Op: op, Code: code, Err: err}
}

// Jobs implements dataplane.Switch.
func (c *Client) Jobs() int {
	prog, err := c.program()
	if err != nil {
		return ina.MaxJob
	}
	return prog.pipe.Jobs()
}

// Counters implements dataplane.Switch.
func (c *Client) Counters() []string {
	prog, err := c.program()
	if err != nil {
		return nil
	}
	var names []string
	for _, t := range prog.counters {
		names = append(names, last(t.Name))
	}
	return names
}

var _ dataplane.Switch = (*Client)(nil)
