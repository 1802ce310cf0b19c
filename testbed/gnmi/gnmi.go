// Package gnmi asks switches about their ports: which number each has inside the chip, and
// what it has counted.
//
// P4Runtime entries name a port by the number that the switch's SDK has for it, a person
// by what is printed at the front panel. The switch alone knows which is which, and tells:
// /interfaces/interface[name=X]/state/ifindex. Nothing here computes it.
//
// Every question is a subscription of mode ONCE, which Stratum and other servers of
// OpenConfig's model answer (stratum/docs/gnmi/supported-paths.md).
package gnmi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	gnmipb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/rpc"
)

// MaxReply is how long an answer of a switch may be, in bytes, in one message or several: those of 512
// ports are some 100 KB.
const MaxReply = 8 << 20

const (
	defaultTimeout = 10 * time.Second       // of a question
	statePause     = 200 * time.Millisecond // between questions whether ports are up
)

// Options tune a Client; the zero value is good for a lab without TLS.
type Options struct {
	TLS     *tls.Config   // nil: plain text
	Timeout time.Duration // of one question, connecting included; 0: 10 s
	// Uncounted are counters that this server gives and does not count: they are left out
	// of every answer, so that nobody takes a constant 0 for a count. See StratumTofino.
	Uncounted []string
}

// StratumTofino are the counters that Stratum gives as 0 on Tofino whatever happens
// (stratum/hal/lib/barefoot/bf_sde_wrapper.cc, GetPortCounters).
func StratumTofino() []string { return []string{"out-discards", "in-unknown-protos"} }

var (
	// ErrNoPort is wrapped when a switch has no port of a name.
	ErrNoPort = errors.New("no such port")
	// ErrDown is wrapped when a port has no link.
	ErrDown = errors.New("no link")
	// ErrNoAnswer is wrapped when an answer lacks what was asked for.
	ErrNoAnswer = errors.New("not in the answer")
)

// Client asks one switch. Methods are safe for concurrent use.
type Client struct {
	name string
	opt  Options
	conn *grpc.ClientConn
	rpc  gnmipb.GNMIClient
}

// New is a client of the gNMI server at addr, host:port. name is what errors call the
// switch. Nothing is sent before the first question. The caller must Close the Client.
func New(name, addr string, opt Options) (*Client, error) {
	if opt.Timeout == 0 {
		opt.Timeout = defaultTimeout
	}
	security := insecure.NewCredentials()
	if opt.TLS != nil {
		security = credentials.NewTLS(opt.TLS)
	}
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(security),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxReply)),
	)
	if err != nil {
		return nil, blame.Switch(name, fmt.Errorf("gNMI address %q: %w", addr, err))
	}
	return &Client{name, opt, conn, gnmipb.NewGNMIClient(conn)}, nil
}

// Close hangs up.
func (c *Client) Close() error { return c.conn.Close() }

// Indexes are the numbers that the switch's SDK has for its ports, by their names: ifindex.
func (c *Client) Indexes(ctx context.Context) (map[string]uint32, error) {
	const what = "numbers of ports"
	answers, err := c.once(ctx, what, path("interfaces", "interface[*]", "state", "ifindex"))
	if err != nil {
		return nil, err
	}
	out := map[string]uint32{}
	for _, a := range answers {
		if a.leaf != "ifindex" || a.port == "" {
			continue
		}
		n, err := strconv.ParseUint(a.value, 10, 32)
		if err != nil {
			return nil, c.errorf(what, "ifindex of %s: %q is no number", a.port, a.value)
		}
		out[a.port] = uint32(n)
	}
	if len(out) == 0 {
		return nil, c.errorf(what, "ifindex: %w", ErrNoAnswer)
	}
	return out, nil
}

// Ports are the SDK's numbers of the ports of a switch, by the numbers that an inventory
// has for them. names are what the inventory calls ports; one that is not in it is called by
// its number. A name that the switch does not have wraps ErrNoPort; all such are named.
func (c *Client) Ports(ctx context.Context, ports []uint32, names map[uint32]string) (map[uint32]uint32, error) {
	indexes, err := c.Indexes(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[uint32]uint32, len(ports))
	by := map[uint32]uint32{}
	var missing []string
	for _, p := range ports {
		name := PortName(p, names)
		own, ok := indexes[name]
		if !ok {
			missing = append(missing, strconv.Quote(name))
			continue
		}
		if other, twice := by[own]; twice {
			return nil, c.errorf("numbers of ports", "%s and %s have the same ifindex %d", PortName(other, names), name, own)
		}
		out[p], by[own] = own, p
	}
	if len(missing) > 0 {
		there := slices.Sorted(maps.Keys(indexes))
		more := ""
		if n := len(there) - 8; n > 0 {
			there, more = there[:8], fmt.Sprintf(" and %d more", n)
		}
		return nil, c.errorf("numbers of ports", "%w: %s; there are %s%s", ErrNoPort, strings.Join(missing, ", "), strings.Join(there, ", "), more)
	}
	return out, nil
}

// PortName is what a port is called at the gNMI server.
func PortName(port uint32, names map[uint32]string) string {
	if name, ok := names[port]; ok {
		return name
	}
	return strconv.FormatUint(uint64(port), 10)
}

// Counters are what ports have counted, by port and by counter as OpenConfig calls it:
// "in-octets", "in-unicast-pkts", "in-discards", "in-fcs-errors" and so on, of frames and
// bytes since the switch was started. A counter that the server does not count is not there
// (Options.Uncounted), nor one that it does not give. With an error, what other ports counted
// is returned all the same.
func (c *Client) Counters(ctx context.Context, ports []string) (map[string]map[string]uint64, error) {
	const what = "counters of ports"
	out := map[string]map[string]uint64{}
	if len(ports) == 0 {
		return out, nil
	}
	var paths []*gnmipb.Path
	for _, p := range ports {
		paths = append(paths, path("interfaces", "interface["+p+"]", "state", "counters"))
	}
	answers, err := c.once(ctx, what, paths...)
	if err != nil {
		return out, err
	}
	var errs []error
	for _, a := range answers {
		if !slices.Contains(ports, a.port) || slices.Contains(c.opt.Uncounted, a.leaf) || !a.counter {
			continue
		}
		n, err := strconv.ParseUint(a.value, 10, 64)
		if err != nil {
			errs = append(errs, c.errorf(what, "%s of %s: %q is no count", a.leaf, a.port, a.value))
			continue
		}
		if out[a.port] == nil {
			out[a.port] = map[string]uint64{}
		}
		out[a.port][a.leaf] = n
	}
	for _, p := range ports {
		if len(out[p]) == 0 && len(errs) == 0 {
			errs = append(errs, c.errorf(what, "%s: %w", p, ErrNoAnswer))
		}
	}
	return out, errors.Join(errs...)
}

// Down are those of the ports that have no link.
func (c *Client) Down(ctx context.Context, ports []string) ([]string, error) {
	if len(ports) == 0 {
		return nil, nil
	}
	var paths []*gnmipb.Path
	for _, p := range ports {
		paths = append(paths, path("interfaces", "interface["+p+"]", "state", "oper-status"))
	}
	answers, err := c.once(ctx, states, paths...)
	if err != nil {
		return nil, err
	}
	down := slices.Clone(ports)
	for _, a := range answers {
		if a.leaf == "oper-status" && strings.EqualFold(a.value, "UP") {
			down = slices.DeleteFunc(down, func(p string) bool { return p == a.port })
		}
	}
	return down, nil
}

const states = "states of ports"

// AwaitUp waits until ports have a link: loading a pipeline takes a Tofino's down for
// seconds. Those that are still without one when ctx ends are named in an error wrapping
// ErrDown.
func (c *Client) AwaitUp(ctx context.Context, ports []string) error {
	for {
		down, err := c.Down(ctx, ports)
		if len(down) == 0 || err != nil {
			return err
		}
		select {
		case <-time.After(statePause):
		case <-ctx.Done():
			return c.errorf(states, "%w: %s (%w)", ErrDown, strings.Join(down, ", "), context.Cause(ctx))
		}
	}
}

func (c *Client) errorf(what, format string, args ...any) error {
	return blame.Switch(c.name, fmt.Errorf("ask gNMI for %s: %w", what, fmt.Errorf(format, args...)))
}

// answer is one value of one port.
type answer struct {
	port, leaf, value string
	counter           bool // it is below state/counters
}

// once asks for paths and collects what comes before the server says that this is all.
func (c *Client) once(ctx context.Context, what string, paths ...*gnmipb.Path) ([]answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	list := &gnmipb.SubscriptionList{Mode: gnmipb.SubscriptionList_ONCE, Encoding: gnmipb.Encoding_PROTO}
	for _, p := range paths {
		list.Subscription = append(list.Subscription, &gnmipb.Subscription{Path: p})
	}
	bound := rpc.NewAnswer(MaxReply, rpc.Messages)
	stream, err := c.rpc.Subscribe(ctx, grpc.WaitForReady(true), bound.Option())
	if err == nil {
		err = stream.Send(&gnmipb.SubscribeRequest{Request: &gnmipb.SubscribeRequest_Subscribe{Subscribe: list}})
		if errors.Is(err, io.EOF) { // the reason is what Recv says
			err = nil
		}
	}
	var out []answer
	for err == nil {
		var r *gnmipb.SubscribeResponse
		if r, err = stream.Recv(); err != nil {
			break
		}
		if r.GetSyncResponse() {
			return out, nil
		}
		prefix := answer{}.below(r.GetUpdate().GetPrefix().GetElem())
		for _, u := range r.GetUpdate().GetUpdate() {
			out = append(out, flatten(prefix, u)...)
		}
	}
	err = bound.Err(err)
	switch status.Code(err) {
	case codes.Unimplemented:
		return nil, c.errorf(what, "%w: the server has none: %s", errors.ErrUnsupported, status.Convert(err).Message())
	case codes.DeadlineExceeded:
		return nil, c.errorf(what, "no answer within %v: %w", c.opt.Timeout, context.DeadlineExceeded)
	}
	if errors.Is(err, io.EOF) { // it hung up instead of saying so
		return out, nil
	}
	return nil, c.errorf(what, "%w", err)
}
