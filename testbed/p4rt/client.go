// Package p4rt is a P4Runtime client for INA switches: the embedded one, BMv2 and
// hardware behind the same calls.
//
// A Client is primary controller of one device for as long as it is open. It
// writes jobs, routes and multicast groups in the terms of package p4, remembers
// what it changed, and changes it back when it is closed. A stream that drops is
// opened again with a higher election id; that it dropped stays known, since
// whoever measures must not trust a switch that was out of control.
package p4rt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
)

// Options tune a Client; the zero value is good for a lab.
type Options struct {
	dataplane.Options
	// WholeCounters reads counters whole, without an index, where more than a few of their
	// cells are asked for. It is for servers that copy a counter from the chip for every read
	// of it, even of one cell: Stratum's and the SDE's on Tofino.
	WholeCounters bool
	// FullWidth writes byte strings with their leading zeros, see p4.Pipeline.FullWidth: for the server of the SDE.
	FullWidth bool
}

// mostBids is how often a bid is made that the server calls invalid: somebody may have
// made the same.
const mostBids = 3

// MaxReply is how long one message from a switch may be, in bytes. gRPC's own limit, 4 MiB,
// is below what a counter of 200,000 cells takes, which servers may send as one message.
const MaxReply = 16 << 20

// maxAnswer is how long all messages of one answer may be, in bytes.
const maxAnswer = 2 * MaxReply

// Client controls one switch. Methods are safe for concurrent use.
type Client struct {
	name   string
	device uint64
	opt    Options
	conn   *grpc.ClientConn
	rpc    p4v1.P4RuntimeClient

	observer bool // without a session: see Observe
	session  *dataplane.Session[*p4v1.Uint128]

	mu       sync.Mutex
	election *p4v1.Uint128 // last id bid
	won      *p4v1.Uint128 // last id that was primary; nil: none ever was
	question *p4v1.Uint128 // id of a bid that only asks who is primary; nil: none, unless the server wants one
	pipe     *p4.Pipeline
	loaded   dataplane.Loaded
	witness  *p4v1.Entity // something written: where it is gone, the switch has restarted

	// writing serialises changes to the switch and guards what must be undone.
	writing sync.Mutex
	undo    map[string]*undoEntry
	order   []string // keys of undo, oldest first
	closed  bool
}

// Observe is a client of a switch that somebody else controls: it reads what the switch
// counts and holds, after Attach, and bids for nothing. Whatever would change the switch
// fails with an error wrapping dataplane.ErrNotPrimary. Nothing is sent before the first call. The
// caller must Close the Client.
func Observe(name, addr string, deviceID uint64, opt Options) (*Client, error) {
	c, err := newClient(name, addr, deviceID, opt)
	if err != nil {
		return nil, err
	}
	c.observer = true
	_ = c.session.Over(fmt.Errorf("%w: this client only reads", dataplane.ErrNotPrimary))
	c.session.Idle()
	return c, nil
}

// Dial connects to the P4Runtime server at addr ("host:port" or "unix:path") and
// returns when it has become primary controller of the device. name is what errors
// call the switch. A switch that does not answer yet is retried until
// Options.DialTimeout. The caller must Close the Client.
func Dial(ctx context.Context, name, addr string, deviceID uint64, opt Options) (*Client, error) {
	c, err := newClient(name, addr, deviceID, opt)
	if err != nil {
		return nil, err
	}
	if err = c.session.Open(ctx, c.opt.Options, c.stream); err != nil {
		c.hangUp()
		return nil, blame.Switch(name, fmt.Errorf("connect to P4Runtime at %s: %w", addr, err))
	}
	return c, nil
}

// newClient is a client without a session.
func newClient(name, addr string, deviceID uint64, opt Options) (*Client, error) {
	opt.Options = opt.WithDefaults()
	conn, err := dataplane.Connect(addr, opt.TLS, MaxReply)
	if err != nil {
		return nil, blame.Switch(name, fmt.Errorf("P4Runtime address %q: %w", addr, err))
	}
	return &Client{
		name: name, device: deviceID, opt: opt,
		conn: conn, rpc: p4v1.NewP4RuntimeClient(conn),
		session: dataplane.NewSession[*p4v1.Uint128](name, "P4Runtime"),
		undo:    make(map[string]*undoEntry),
	}, nil
}

// Name is the switch's name as given to Dial.
func (c *Client) Name() string { return c.name }

// Lost is closed when the stream has dropped, or another controller has taken
// over, for the first time; Err then says what happened.
func (c *Client) Lost() <-chan struct{} { return c.session.Lost() }

// Err is how control of the switch was first lost since Dial, and nil if it never
// was. It stays set when the client has reconnected.
func (c *Client) Err() error { return c.session.Err() }

// Explain is Err, with what the switch itself shows of the reason: it waits until the switch
// is controlled again, or ctx ends.
func (c *Client) Explain(ctx context.Context) error { return c.session.Explain(ctx) }

// hangUp ends the session without undoing anything. It is idempotent.
func (c *Client) hangUp() {
	c.session.Close()
	c.conn.Close()
}

// stream is one of the session: it bids for the device, and again where the server calls its bid invalid: then a question
// has an id.
func (c *Client) stream(ctx context.Context, due dataplane.Due, cancel context.CancelCauseFunc, granted func()) (err error) {
	begun := false
	won := func() {
		begun = true
		granted()
	}
	for n := range mostBids {
		if n > 0 {
			c.ask()
		}
		var stream p4v1.P4Runtime_StreamChannelClient
		if stream, err = c.rpc.StreamChannel(ctx, grpc.WaitForReady(true)); err != nil {
			err = c.streamError(err)
		} else {
			err = c.arbitrate(ctx, due, cancel, stream, won)
		}
		if begun || status.Code(err) != codes.InvalidArgument {
			break
		}
	}
	return err
}

// arbitrate bids on a stream, with an id of the moment at which control was due, and returns when
// the stream has ended, or control was lost. A client that was primary before asks first who is now:
// it wins back a switch that nobody else is primary of, or, where it is not sure that control is due,
// has been primary of since.
func (c *Client) arbitrate(ctx context.Context, due dataplane.Due, cancel context.CancelCauseFunc, stream p4v1.P4Runtime_StreamChannelClient, won func()) error {
	c.mu.Lock()
	again := c.won != nil
	c.mu.Unlock()
	polite := c.opt.Polite || again
	bid := func(above *p4v1.Uint128) *p4v1.Uint128 { return c.bid(due.At, above) }
	send := func(id *p4v1.Uint128) error {
		if err := stream.Send(c.arbitration(id)); err != nil {
			return c.streamError(dataplane.EndOf(stream))
		}
		return nil
	}
	first := c.asking() // without an id it never wins; its answer says whether somebody has
	if !polite {
		first = bid(nil)
	}
	if err := send(first); err != nil {
		return err
	}
	watched, leave := context.WithCancel(ctx)
	var alive sync.WaitGroup
	defer alive.Wait()
	defer leave()
	primary := false
	var leaving *time.Timer // runs while another controller is primary
	for {
		m, err := stream.Recv()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
				return cause
			}
			return c.streamError(err)
		}
		a := m.GetArbitration()
		if a == nil {
			continue // packets and digests are for others
		}
		id := a.GetElectionId()
		switch code := codes.Code(a.GetStatus().GetCode()); {
		case code == codes.OK && polite && !primary && (proto.Equal(id, c.asking()) || zero(id)):
			// A question with an id has won, or a server takes none for the lowest (PI): nobody is primary.
			if err := send(bid(nil)); err != nil {
				return err
			}
		case code == codes.OK && !primary:
			primary = true
			if leaving != nil {
				leaving.Stop()
			}
			c.win()
			won()
			if c.Err() != nil {
				alive.Go(func() { c.recognise(watched) })
			}
			alive.Go(func() { dataplane.Watch(watched, cancel, c.opt.Options, c.alive) })
		case code == codes.OK:
		case !primary && c.free(code, id, polite, due.Sure):
			if err := send(bid(id)); err != nil {
				return err
			}
		default:
			err := fmt.Errorf("%w, %s", dataplane.ErrNotPrimary, describe(id))
			if code == codes.NotFound {
				err = fmt.Errorf("%w: it was lost, and another controller was primary since, %s", dataplane.ErrNotPrimary, describe(id))
			}
			if !primary && polite && !again {
				if leaving == nil {
					leaving = time.AfterFunc(dataplane.PolitePatience, func() { cancel(c.session.Over(err)) })
					defer leaving.Stop()
				}
				continue
			}
			return c.session.Over(err)
		}
	}
}

// free says whether a switch may be bid for whose primary has an id, or where nobody is primary and
// that is the highest id that ever was.
func (c *Client) free(code codes.Code, id *p4v1.Uint128, polite, sure bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.won != nil && (proto.Equal(id, c.won) || proto.Equal(id, c.election)) // of a stream that the switch has not missed yet
	switch {
	case code == codes.NotFound && c.won == nil:
		return true // this was a polite question, or someone once was with a higher id than ours because a clock was wrong
	case code == codes.NotFound:
		return sure || own || !less(c.won, id)
	case code == codes.AlreadyExists && !polite && since(id) != "":
		return true // it is one of ours with a clock that is ahead
	}
	return own
}

// ask makes the next polite question one with an election id, below that of any bid: some
// servers refuse those without.
func (c *Client) ask() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.question = &p4v1.Uint128{Low: 1 + rand.Uint64N(1<<20)}
}

func (c *Client) asking() *p4v1.Uint128 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.question
}

// recognise finds out whether a switch that was lost has kept what was written into it, and
// makes that part of Err.
func (c *Client) recognise(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	gone, err := c.forgotten(ctx)
	if err != nil && ctx.Err() != nil {
		return // the stream has ended before anything was known, or the switch says nothing
	}
	c.session.Recognise(gone, err)
}

// forgotten says what a switch that has come back does not have any more, or "", or why that is not known.
func (c *Client) forgotten(ctx context.Context) (gone string, err error) {
	c.mu.Lock()
	before, witness := c.loaded, c.witness
	c.mu.Unlock()
	now, err := c.running(ctx)
	switch {
	case before.Cookie == 0 || status.Code(err) == codes.Unimplemented: // nothing was loaded, or it never says
		return "", nil
	case err != nil:
		return "", err
	case now.GetP4Info() == nil:
		return "it has no pipeline any more", nil
	case now.GetCookie().GetCookie() != before.Cookie:
		return "it runs another pipeline", nil
	case witness != nil:
		found, err := c.read(ctx, []*p4v1.Entity{witness})
		if status.Code(err) == codes.NotFound || err == nil && len(found) == 0 {
			return "what was written into it is gone", nil
		}
		return "", err
	}
	return "", nil
}

// bid is an election id above our last one and above floor. Ids come from the clock, so that a
// later run outbids one that hangs.
func (c *Client) bid(at time.Time, floor *p4v1.Uint128) *p4v1.Uint128 {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := &p4v1.Uint128{Low: uint64(at.UnixNano())}
	for _, below := range []*p4v1.Uint128{c.election, floor} {
		if below != nil && !less(below, id) {
			id = &p4v1.Uint128{High: below.GetHigh(), Low: below.GetLow() + 1}
			if id.Low == 0 {
				id.High++
			}
		}
	}
	c.election = id
	return id
}

// arbitration is a bid with an id.
func (c *Client) arbitration(id *p4v1.Uint128) *p4v1.StreamMessageRequest {
	return &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: c.device, ElectionId: id},
	}}
}

// describe tells a person about another controller.
func describe(id *p4v1.Uint128) string {
	if at := since(id); at != "" {
		return "since " + at
	}
	return fmt.Sprintf("with election id %d:%d", id.GetHigh(), id.GetLow())
}

// since is when one of ours bid, by its clock, whose id says so; empty: it is not one of ours.
func since(id *p4v1.Uint128) string {
	bid := time.Unix(0, int64(id.GetLow()))
	if id.GetHigh() != 0 || bid.Year() <= 2020 || bid.After(time.Now().Add(time.Hour)) {
		return ""
	}
	return bid.Format("2006-01-02 15:04:05")
}

func zero(id *p4v1.Uint128) bool { return id.GetHigh() == 0 && id.GetLow() == 0 }

func less(a, b *p4v1.Uint128) bool {
	return a.GetHigh() < b.GetHigh() || a.GetHigh() == b.GetHigh() && a.GetLow() < b.GetLow()
}

// alive asks for a sign of life.
func (c *Client) alive(ctx context.Context) error {
	_, err := c.rpc.Capabilities(ctx, &p4v1.CapabilitiesRequest{DeviceId: c.device})
	return err
}

// win makes the stream of the last bid the good one.
func (c *Client) win() {
	c.mu.Lock()
	id := c.election
	c.won = id
	c.mu.Unlock()
	c.session.Begin(id)
}

// Jobs implements dataplane.Switch.
func (c *Client) Jobs() int {
	if pipe, err := c.pipeline(); err == nil {
		return pipe.Jobs()
	}
	return ina.MaxJob
}

func (c *Client) pipeline() (*p4.Pipeline, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pipe == nil {
		return nil, dataplane.ErrNoPipeline
	}
	return c.pipe, nil
}

// Close changes back what this client wrote, entries that were there before to
// what they were, and hangs up. It is idempotent and works after ctx is cancelled:
// only ctx's deadline counts, and Options.CallTimeout, or two seconds to win back a
// switch that is lost. Entries that are gone already, because the switch was
// restarted or taken over, are no error.
func (c *Client) Close(ctx context.Context) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	ctx, cancel := c.session.Parting(ctx, c.opt.CallTimeout)
	defer cancel()
	var err error
	if !c.closed {
		c.closed = true
		err = c.undoAll(ctx)
	}
	c.hangUp()
	return err
}
