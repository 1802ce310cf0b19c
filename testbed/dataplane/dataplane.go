// Package dataplane is how inabench controls P4 switches, whatever protocol their servers speak: what is loaded
// into them, written, read and counted, and how all that fails. A package for each protocol has a Switch of its
// own, p4rt for P4Runtime; package device opens the one that an inventory asks for.
package dataplane

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
)

// Switch is a switch that is controlled, or, by an observer, only looked at. Its methods are safe for concurrent
// use. Errors are an *Error, which names the switch.
type Switch interface {
	// Name is the switch's name in the inventory.
	Name() string
	// Version is that of the protocol that the switch's server speaks, such as "1.3.0". A server that does not say
	// is an error that wraps errors.ErrUnsupported.
	Version(ctx context.Context) (string, error)

	// Push loads a program and makes the switch forget everything that was written. What somebody has loaded since Foreign was
	// asked is not replaced: that is an error wrapping ErrNotPrimary or ErrForeign. A program that the server refuses leaves
	// the switch as it was.
	Push(ctx context.Context, p Pipeline) error
	// Foreign is the program that the switch runs, if that is none of INA; nil: it is one, or there is none. Where the server
	// does not tell, the error wraps ErrUntold.
	Foreign(ctx context.Context) (*Foreign, error)
	// Restore loads a program that Foreign has told of, in place of one of INA, which is forgotten with all that was written. What
	// somebody has loaded since is not replaced, as Push does not.
	Restore(ctx context.Context, config []byte) error
	// Attach uses the program that the switch runs already, with all its entries.
	Attach(ctx context.Context) error
	// Loaded tells what Push or Attach found or made the switch run.
	Loaded() Loaded
	// Jobs is the largest id of a job that the switch's program can sum for: ina.MaxJob, unless the program says that
	// it has less room.
	Jobs() int
	// Counters are the names of the counters that the switch's program has; none before Push or Attach.
	Counters() []string

	// Write inserts entries or replaces them: groups, then routes, then jobs. An error lists what the switch refused;
	// the rest of the batch is in force and will be undone by Close.
	Write(ctx context.Context, b Batch) error
	// Delete deletes entries: jobs, then routes, then groups. What is not there is no error.
	Delete(ctx context.Context, b Batch) error
	// ReadJobs, ReadRoutes and ReadGroups read all entries of a kind.
	ReadJobs(ctx context.Context) ([]ina.JobEntry, error)
	ReadRoutes(ctx context.Context) ([]p4.Route, error)
	ReadGroups(ctx context.Context) ([]p4.Group, error)
	// ReadCounters reads cells of the named counters: the given indices of each, or every cell if indices is nil, which
	// are thousands. Nil names are all counters that the program has. Cells that the switch gives no value for are left
	// out.
	ReadCounters(ctx context.Context, names []string, indices []int) ([]CounterValue, error)

	// Lost is closed when control of the switch was lost for the first time; Err then says how. It stays so when it has
	// been won back, since whoever measures must not trust a switch that was out of control.
	Lost() <-chan struct{}
	Err() error
	// Explain is Err, with what the switch itself shows of the reason: it waits until the switch is controlled again,
	// or ctx ends.
	Explain(ctx context.Context) error
	// Close changes back what was written, entries that were there before to what they were, and hangs up. It is
	// idempotent and works after ctx is cancelled. Entries that are gone already are no error.
	Close(ctx context.Context) error
}

// Options tune what controls a switch; the zero value is good for a lab.
type Options struct {
	DialTimeout time.Duration // until primary; 0: 5 s
	CallTimeout time.Duration // of one call, waiting for a reconnect included; 0: 10 s
	PushTimeout time.Duration // of loading a pipeline, which takes hardware long; 0: 60 s
	Keepalive   time.Duration // between signs of life asked from an idle switch; 0: 5 s
	// TLS protects the connection; nil: plain text.
	TLS *tls.Config
	// Ports are the numbers that the switch has for ports, by those that callers use: the
	// SDK ports of a Tofino by the ports of an inventory. nil: they are the same. A port
	// that is not among them is an error.
	Ports map[uint32]uint32
	// Polite leaves a switch alone that another controller is primary of and stays
	// so for a second: Dial then fails with an error wrapping ErrNotPrimary.
	// Otherwise the latest bid wins.
	Polite bool
	// Mine is asked before control that was lost is asked for again: an error wrapping ErrNotPrimary
	// says that the switch is another's by now, and is why it is not. It says nothing with any other
	// error, and returns in a bounded time. nil: the switch is nobody else's.
	Mine func(context.Context) error
}

// WithDefaults are the options with times where none are given.
func (o Options) WithDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.DialTimeout, 5*time.Second)
	def(&o.CallTimeout, 10*time.Second)
	def(&o.PushTimeout, 60*time.Second)
	def(&o.Keepalive, 5*time.Second)
	return o
}

// Own is what the switch calls a port.
func (o *Options) Own(port uint32) (uint32, error) {
	if o.Ports == nil {
		return port, nil
	}
	own, ok := o.Ports[port]
	if !ok {
		return 0, fmt.Errorf("port %d: the switch has no such port: %w", port, p4.ErrRange)
	}
	return own, nil
}

// OwnAll is Own of several.
func (o *Options) OwnAll(ports []uint32) ([]uint32, error) {
	out := make([]uint32, len(ports))
	for i, p := range ports {
		var err error
		if out[i], err = o.Own(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// OwnGroup is a group as the switch has it: its ports, and its id where that tells a port (p4.FloodGroup).
func (o *Options) OwnGroup(g p4.Group) (p4.Group, error) {
	ports, err := o.OwnAll(g.Ports)
	if err != nil {
		return p4.Group{}, err
	}
	g.Ports = ports
	if in, floods := g.Floods(); floods {
		own, err := o.Own(in)
		if err != nil {
			return p4.Group{}, err
		}
		g.ID = p4.FloodGroup(own)
	}
	return g, nil
}

// CalledGroup is what callers call a group of the switch.
func (o *Options) CalledGroup(g p4.Group) p4.Group {
	if in, floods := g.Floods(); floods {
		g.ID = p4.FloodGroup(o.Called(in))
	}
	ports := make([]uint32, len(g.Ports))
	for i, p := range g.Ports {
		ports[i] = o.Called(p)
	}
	g.Ports = ports
	return g
}

// Called is what callers call a port of the switch; 0 is one that they have no number for.
func (o *Options) Called(own uint32) uint32 {
	if o.Ports == nil {
		return own
	}
	for p, of := range o.Ports {
		if of == own {
			return p
		}
	}
	return 0
}

var (
	// ErrNotPrimary is wrapped when another controller with a higher election id
	// controls the switch. Who was outbid does not bid again.
	ErrNotPrimary = errors.New("another controller is primary")
	// ErrClosed is wrapped by calls of a Switch that was closed.
	ErrClosed = errors.New("client is closed")
	// ErrDevice is wrapped when a server has no device of the id asked for.
	ErrDevice = errors.New("no such device at this server")
	// ErrRestarted is wrapped by Err when the switch has come back without what was written
	// into it.
	ErrRestarted = errors.New("the switch has restarted")
	// ErrNoPipeline is wrapped by calls that need Push or Attach first.
	ErrNoPipeline = errors.New("no pipeline: push one first")
)

// Pipeline is what Push loads into a switch.
type Pipeline struct {
	Info *p4configv1.P4Info
	// DeviceConfig is the program in the form that the server wants: BMv2's JSON,
	// a bfrt.Config or a p4rt.SDEConfig. The embedded switch takes anything.
	DeviceConfig []byte
	Cookie       uint64 // 0: a hash of the other two
	// Keep leaves a switch as it is that runs just this pipeline, by cookie and p4info, and
	// deletes routes, groups and clone sessions instead: loading a pipeline takes a Tofino's
	// ports down for seconds. It is loaded all the same where jobs are left, since whoever
	// left them may have left aggregators taken, which only loading frees.
	Keep bool
}

// Loaded is the pipeline that a switch runs.
type Loaded struct {
	Cookie       uint64
	P4Info       string // SHA-256 of its deterministic encoding, hex
	DeviceConfig string // SHA-256, hex; empty: there was none, or it is not known
	Kept         bool   // it ran already
}

// Loaded is what a switch runs that the pipeline was pushed into.
func (p Pipeline) Loaded() (Loaded, error) {
	info, err := proto.MarshalOptions{Deterministic: true}.Marshal(p.Info)
	if err != nil {
		return Loaded{}, err
	}
	h := fnv.New64a()
	h.Write(info)
	h.Write(p.DeviceConfig)
	l := Loaded{Cookie: cmp.Or(p.Cookie, h.Sum64()), P4Info: sum(info)}
	if len(p.DeviceConfig) > 0 {
		l.DeviceConfig = sum(p.DeviceConfig)
	}
	return l, nil
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Batch is entries that are written, or deleted, in as few requests as possible.
// To delete, keys are enough: Job, Dst and ID.
type Batch struct {
	Groups []p4.Group
	Routes []p4.Route
	Jobs   []ina.JobEntry
}

// CounterValue is one cell of a counter, since the pipeline was loaded or the cell
// was reset.
type CounterValue struct {
	Name    string // as in package p4, such as "port_rx"
	Index   int    // port number or job id
	Packets int64
	Bytes   int64
}
