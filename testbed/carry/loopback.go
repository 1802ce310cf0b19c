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
	"github.com/inabench/inabench/testbed/udp"
)

// EngineVerb is what this program is started with on a host to measure its Engine, see EngineMain.
const EngineVerb = "carry-engine"

// The probe of an engine: packets of few and of many lanes go over the loopback device, a round of them at a time. The
// median of rounds is not moved by one in which something else ran.
const (
	engineMost   = 1500 * time.Millisecond // for all of it
	engineLook   = 150 * time.Millisecond  // at packets of one size
	engineRounds = 5                       // at least
	engineRound  = 8                       // batches
	engineLost   = 10 * time.Millisecond   // after which a packet does not come any more
	engineLanes  = 1                       // of the smallest packets
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

// measureEngine measures the engine of this machine.
func measureEngine(ctx context.Context) (e Engine, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, engineMost, fmt.Errorf("not done within %v", engineMost))
	defer cancel()
	small, err := handling(ctx, engineLanes)
	if err != nil {
		return e, err
	}
	large, err := handling(ctx, ina.MaxLanes)
	if err != nil {
		return e, err
	}
	e.CPUs = runtime.NumCPU()
	e.Packet, e.Byte = line(small, large, frameBytes(engineLanes), frameBytes(ina.MaxLanes))
	return e, nil
}

// line is the cost of a packet and of a byte, by what packets of few and of many bytes cost.
func line(small, large, few, many float64) (packet, each float64) {
	each = max(0, (large-small)/(many-few))
	return max(0, small-each*few), each
}

// handling is what a packet of so many lanes costs where it is sent or received, in seconds: half of what it costs to
// fill it in, send it, receive it and check it. The kernel does part of the latter while a thread sends, so that the two
// are not told apart. The driver of a NIC is no part of it.
func handling(ctx context.Context, lanes int) (float64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l, err := newLoopback(lanes)
	if err != nil {
		return 0, err
	}
	defer l.sock.Close()
	var rounds []float64
	for end := l.clock.Now() + engineLook; l.clock.Now() < end || len(rounds) < engineRounds; {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		began := l.clock.Now()
		n, err := l.round()
		switch {
		case err != nil:
			return 0, err
		case n == 0:
			return 0, errors.New("the loopback device carries nothing")
		}
		rounds = append(rounds, (l.clock.Now()-began).Seconds()/float64(2*n))
	}
	slices.Sort(rounds)
	return rounds[len(rounds)/2], nil
}

// loopback is a socket that sends to itself.
type loopback struct {
	clock udp.Clock
	sock  *udp.Socket
	to    *unix.RawSockaddrInet4
	lanes int
	ref   ina.Reference
	psn   uint32
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
			if err != nil {
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
