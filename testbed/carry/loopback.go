package carry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/loop"
	"github.com/inabench/inabench/testbed/udp"
)

// EngineVerb is what this program is started with on a host to measure its Engine, see EngineMain.
const EngineVerb = "carry-engine"

// The probe of an engine: packets of few and of many lanes go over the loopback device in turn, so that both find the host
// alike, a round of them at a time. The median of rounds is not moved by one in which something else ran.
const (
	engineMost   = 1500 * time.Millisecond // for all of it
	engineWarm   = 100 * time.Millisecond  // before anything counts: a core that was idle is slow at first
	engineLook   = 300 * time.Millisecond
	engineRounds = 5                     // at least, of each size
	engineRound  = 8                     // batches
	engineLost   = 10 * time.Millisecond // after which a packet does not come any more
	engineLanes  = 1                     // of the smallest packets
)

// EngineMain is the process that measures a host's Engine, in less than 2 s. It writes it as JSON, without what the host
// is.
func EngineMain(ctx context.Context, stdout io.Writer) error {
	e, err := measureEngine(ctx)
	if err != nil {
		return fmt.Errorf("measure what this host sends and receives: %w", err)
	}
	return json.NewEncoder(stdout).Encode(e)
}

// measureEngine measures the engine of this machine, on a thread as workers have.
func measureEngine(ctx context.Context) (e Engine, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, engineMost, fmt.Errorf("not done within %v", engineMost))
	defer cancel()
	done := make(chan struct{})
	go func() { // the thread ends with it
		defer close(done)
		defer loop.Own()()
		e, err = handling(ctx)
	}()
	<-done
	return e, err
}

// line is the cost of a packet and of a byte, by what packets of few and of many bytes cost.
func line(small, large, few, many float64) (packet, each float64) {
	each = max(0, (large-small)/(many-few))
	return max(0, small-each*few), each
}

// handling is what packets cost where they are sent or received, by their size: half of what it costs to fill one in,
// send it, receive it and check it. The kernel does part of the latter while a thread sends, so that the two are not told
// apart. The driver of a NIC is no part of it.
func handling(ctx context.Context) (e Engine, err error) {
	small, err := newLoopback(engineLanes)
	if err != nil {
		return e, err
	}
	defer small.sock.Close()
	large, err := newLoopback(ina.MaxLanes)
	if err != nil {
		return e, err
	}
	defer large.sock.Close()
	before, err := usage()
	if err != nil {
		return e, err
	}
	began := small.clock.Now()
	warm := began + engineWarm
	for now := began; now < warm+engineLook || min(len(small.costs), len(large.costs)) < engineRounds; now = small.clock.Now() {
		if ctx.Err() != nil {
			return e, errors.Join(context.Cause(ctx), small.loss(), large.loss())
		}
		if err := errors.Join(small.sample(now >= warm), large.sample(now >= warm)); err != nil {
			return e, err
		}
	}
	after, err := usage()
	if err != nil {
		return e, err
	}
	e.CPUs = runtime.NumCPU()
	e.Others = after.others(before, (small.clock.Now() - began).Seconds(), e.CPUs)
	e.Packet, e.Byte = line(small.median(), large.median(), frameBytes(engineLanes), frameBytes(ina.MaxLanes))
	return e, nil
}

// used is processor time, seconds: of all cores that this process may use, and of this process.
type used struct{ all, own float64 }

func usage() (u used, err error) {
	var r unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &r) // cannot fail: both arguments are valid
	u.own = time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
	u.all, err = machine("/proc/stat")
	return u, err
}

// others is the part of all cores that others have used since, in so many seconds.
func (u used) others(since used, seconds float64, cpus int) float64 {
	theirs := u.all - since.all - (u.own - since.own)
	return min(1, max(0, theirs/(seconds*float64(cpus))))
}

// loopback is a socket that sends to itself.
type loopback struct {
	clock udp.Clock
	sock  *udp.Socket
	to    *unix.RawSockaddrInet4
	lanes int
	ref   ina.Reference
	psn   uint32

	costs []float64 // of a packet that is sent or received, seconds: of each round that counts
	lost  int       // packets
}

func newLoopback(lanes int) (*loopback, error) {
	l := &loopback{clock: udp.NewClock(), lanes: lanes, ref: ina.NewReference(1, 1, 1)}
	var err error
	if l.sock, err = udp.Open("lo", 0, ina.UpGroup(1), false, &l.clock); err != nil {
		return nil, err
	}
	port, err := l.sock.Port()
	if err != nil {
		l.sock.Close()
		return nil, err
	}
	l.to = udp.Address([4]byte{127, 0, 0, 1}, port)
	return l, nil
}

// sample does a round, and notes what a packet costs if it counts. A round in which packets were lost does not: it has
// waited for them.
func (l *loopback) sample(counts bool) error {
	began := l.clock.Now()
	n, err := l.round()
	const sent = engineRound * udp.Batch
	switch took := l.clock.Now() - began; {
	case err != nil:
		return err
	case n < sent:
		l.lost += sent - n
	case counts:
		l.costs = append(l.costs, took.Seconds()/(2*sent))
	}
	return nil
}

// loss is an error that says how many packets were lost; nil of none.
func (l *loopback) loss() error {
	if l.lost == 0 {
		return nil
	}
	return fmt.Errorf("the loopback device lost %d packets of %.0f bytes: let sockets have more memory (sysctl net.core.rmem_max), "+
		"and its firewall let them pass", l.lost, frameBytes(l.lanes))
}

// median is that of the costs, of at least one.
func (l *loopback) median() float64 {
	slices.Sort(l.costs)
	return l.costs[len(l.costs)/2]
}

// round sends some batches, and receives each before the next; n packets arrived.
func (l *loopback) round() (n int, err error) {
	for range engineRound {
		if err := l.send(); err != nil {
			return n, err
		}
		arrived, err := l.receive()
		if err != nil {
			return n, err
		}
		n += arrived
	}
	return n, nil
}

// send fills in a batch as a worker does; the socket sends it when it is full.
func (l *loopback) send() error {
	for range udp.Batch {
		b := l.sock.Buffer()[:ina.HeaderLen+4*l.lanes]
		ina.Header{Job: 1, PSN: l.psn, Lanes: uint8(l.lanes), Bitmap: 1}.Put(b)
		l.ref.Fill(b[ina.HeaderLen:], 0, l.psn)
		l.psn++
		if err := l.sock.Queue(b, l.to); err != nil {
			return err
		}
	}
	return nil
}

// receive takes a batch, or what of it is not lost, and checks it as a worker does.
func (l *loopback) receive() (n int, err error) {
	for waited := false; n < udp.Batch; {
		got, err := l.sock.Receive()
		switch {
		case err != nil:
			return n, err
		case got == 0 && waited:
			return n, nil // the rest is lost
		case got == 0:
			if err := l.sock.Wait(l.clock.Now() + engineLost); err != nil {
				return n, err
			}
		}
		waited = got == 0
		for _, p := range l.sock.Packets[:got] {
			h, err := ina.ParseHeader(p)
			if err != nil || int(h.Lanes) != l.lanes {
				continue // it is somebody else's
			}
			if wrong := l.ref.Check(p[ina.HeaderLen:ina.HeaderLen+4*int(h.Lanes)], h.PSN); wrong > 0 {
				return n, fmt.Errorf("%d of %d lanes of a packet have changed on the loopback device", wrong, h.Lanes)
			}
			n++
		}
	}
	return n, nil
}
