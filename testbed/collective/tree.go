package collective

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/loop"
	"github.com/inabench/inabench/testbed/udp"
)

// tree is a rank on an exclusive tree: a goroutine that keeps a Reducer and a socket, so
// that the tree is given back, through losses, while the job goes on.
type tree struct {
	Tree
	sock    *udp.Socket
	clock   *udp.Clock
	r       *ina.Reducer
	to      *unix.RawSockaddrInet4
	gap     float64       // ns between packets at the line's rate
	rest    time.Duration // in the midst of an operation
	lanes   int64
	timeout time.Duration
	alive   func(index int64) error
	held    func(index int64, held bool)
	spoil   func(values []byte) // of RingConfig

	mu     sync.Mutex
	next   *treeOp // to be started
	closed bool
	err    error // what ended it
	ended  chan struct{}
	total  Traffic
}

type treeOp struct {
	index   int64
	packets int64
	veto    bool
	answer  chan treeAnswer
}

type treeAnswer struct {
	granted bool
	vetoes  int
	checked int64
	wrong   int64
}

func newTree(cfg Config, t Tree, alive func(index int64) error) (*tree, error) {
	r, err := ina.NewReducer(ina.WorkerConfig{
		Job: cfg.Job, Epoch: t.Epoch, Rank: cfg.Rank, Workers: len(cfg.Peers), Lanes: cfg.Lanes,
		Window: t.Window, Region: 2 * t.Window, RTO: cfg.RTO, Seed: cfg.Seed,
	})
	if err != nil {
		return nil, fmt.Errorf("tree of epoch %d: %w", t.Epoch, err)
	}
	sock, err := udp.Open(cfg.Device, ina.DownPortBase|cfg.Job, ina.DownGroup(cfg.Job), cfg.Offload, cfg.Clock)
	if err != nil {
		return nil, fmt.Errorf("tree of epoch %d: %w", t.Epoch, err)
	}
	k := &tree{
		Tree: t, sock: sock, clock: cfg.Clock, r: r,
		to:    udp.Address(ina.UpGroup(cfg.Job), ina.UpPortBase|cfg.Job),
		lanes: int64(cfg.Lanes), timeout: cfg.Timeout, alive: alive, spoil: cfg.Spoil, ended: make(chan struct{}),
	}
	if cfg.LineRate > 0 {
		k.gap = float64(8*(ina.Overhead+4*cfg.Lanes)) / cfg.LineRate * 1e9
	}
	k.rest = cmp.Or(cfg.Rest, min(time.Duration(restPackets*k.gap), time.Duration(float64(t.Window)/4*k.gap), maxRest))
	if k.held = cfg.Held; k.held == nil {
		k.held = func(int64, bool) {}
	}
	go k.run()
	return k, nil
}

// reduce takes part in an operation. It returns when this rank has every result, or
// knows that there will be none.
func (k *tree) reduce(ctx context.Context, index, packets int64, veto bool) (treeAnswer, error) {
	o := &treeOp{index: index, packets: packets, veto: veto, answer: make(chan treeAnswer, 1)}
	k.mu.Lock()
	k.next = o
	k.mu.Unlock()
	k.sock.Interrupt()
	select {
	case a := <-o.answer:
		return a, nil
	case <-k.ended:
		select {
		case a := <-o.answer: // the last thing it did
			return a, nil
		default:
			return treeAnswer{}, k.err
		}
	case <-ctx.Done():
		return treeAnswer{}, ctx.Err()
	}
}

// close ends the goroutine and waits for it: at once if an operation is under way, which
// fails, otherwise when the switches have taken the tree back.
func (k *tree) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.sock.Interrupt()
	<-k.ended
}

func (k *tree) traffic() Traffic {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.total
}

// errClosed ends a tree that was closed.
var errClosed = errors.New("tree closed")

func (k *tree) run() {
	defer loop.Own()()
	err := k.serve()
	k.sock.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	close(k.ended)
}

// A rank that looks at its socket for every packet costs several times what handling them
// together does. But what begins and ends an operation it waits for.
const (
	restPackets = 8
	maxRest     = time.Millisecond
	bulk        = 3 * restPackets // packets that have to be missing
)

// idle is how long the goroutine sleeps when nothing is due.
const idle = time.Second

// quiet is how long nothing may come before the neighbours are looked after.
const quiet = 100 * time.Millisecond

func (k *tree) serve() error {
	var (
		op       *treeOp // that is under way here
		held     bool    // the tree, as was told
		before   ina.WorkerStats
		progress time.Duration // when something came, or an operation began
		looked   time.Duration
		sent     float64 // ns, when the last packet was due
		resent   time.Duration
	)
	for {
		seen := k.clock.Now() // what arrived until now is looked at before a timeout is believed
		n, err := k.sock.Receive()
		if err != nil {
			return err
		}
		for i := range n {
			if k.r.Receive(k.sock.Packets[i], k.sock.Arrived[i]) {
				progress = seen
			}
		}
		state := k.r.State()
		if op != nil && !held && (state == ina.OpReducing || state == ina.OpUnlocking) {
			held = true
			k.held(op.index, true)
		}
		if held && state == ina.OpUnlocking { // of which nothing was sent yet
			held = false
			k.held(op.index, false)
		}
		if op != nil && (state.Over() || state == ina.OpUnlocking) {
			s := k.r.Stats()
			op.answer <- treeAnswer{
				granted: state != ina.OpRefused, vetoes: k.r.Vetoes(),
				checked: s.Checked - before.Checked, wrong: s.Wrong - before.Wrong,
			}
			op = nil
		}
		now := k.clock.Now()
		wake := now + idle
		k.mu.Lock()
		k.total = Traffic{
			PacketsSent: k.sock.Sent, BytesSent: k.sock.SentBytes,
			PacketsReceived: k.sock.Received, BytesReceived: k.sock.ReceivedBytes,
			Resends: k.r.Stats().Resends, Drops: k.sock.Drops,
		}
		if k.closed && (state.Over() || op != nil) {
			k.mu.Unlock()
			return errClosed
		}
		if k.next != nil && state.Over() {
			op, k.next = k.next, nil
			before, progress, looked = k.r.Stats(), now, now
			start := k.r.Start
			if op.veto {
				start = k.r.Veto
			}
			if err := start(op.packets, now); err != nil {
				k.mu.Unlock()
				return err
			}
			state = k.r.State()
		}
		k.mu.Unlock()
		if !state.Over() {
			index := int64(-1) // of what is given back
			if op != nil {
				index = op.index
			}
			if err := k.patience(index, now, progress, &looked); err != nil {
				return err
			}
			wake = now + quiet
		}

		for range udp.Batch {
			if k.sock.Full { // a result may be waiting
				break
			}
			due, ok := k.r.Deadline()
			if !ok {
				break
			}
			if due = max(due, resent); due > seen {
				wake = min(wake, due)
				break
			}
			resent = max(resent, now-time.Duration(8*k.gap)) + time.Duration(k.gap)
			b := k.sock.Buffer()
			if err := k.sock.Queue(b[:k.r.Resend(seen, b)], k.to); err != nil {
				return err
			}
		}
		for i := 0; ; i++ {
			_, opened, ok := k.r.Next()
			if !ok {
				break
			}
			due := max(float64(opened), sent+k.gap)
			if at := time.Duration(due); at > now || i == udp.Batch {
				wake = min(wake, at)
				break
			}
			sent = due
			b := k.sock.Buffer()
			n := k.r.Send(now, b)
			if k.spoil != nil && state == ina.OpReducing {
				k.spoil(b[ina.HeaderLen:n])
			}
			if err := k.sock.Queue(b[:n], k.to); err != nil {
				return err
			}
		}
		if err := k.sock.Flush(); err != nil {
			return err
		}
		k.sock.Rest = 0
		if op != nil && state == ina.OpReducing && op.packets-(k.r.Stats().Results-before.Results) > bulk {
			k.sock.Rest = k.rest
		}
		if !k.sock.Full && wake > now {
			if err := k.sock.Wait(wake); err != nil {
				return err
			}
		}
	}
}

// patience is an error when an operation will not end: a neighbour is gone or has not asked
// for the tree, or nothing has come for too long.
func (k *tree) patience(index int64, now, progress time.Duration, looked *time.Duration) error {
	if now < max(progress, *looked)+quiet {
		return nil
	}
	*looked = now
	if now > progress+k.timeout {
		return fmt.Errorf("%w: %v at PSN %d for %v: a rank has died, or did not ask for the tree, or the switches have none of this job in epoch %d",
			ErrSilent, k.r.State(), k.r.Lock(), k.timeout, k.Epoch)
	}
	return k.alive(index)
}
