package agent

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/loop"
	"github.com/inabench/inabench/testbed/udp"
)

// ps completes a job's sums and sends the results.
type ps struct {
	cfg     Config
	sock    *udp.Socket
	p       *ina.PS
	group   *unix.RawSockaddrInet4
	workers []*unix.RawSockaddrInet4 // by rank, for the plain ps collective

	late     lateness // of results, after the packet that completed them
	answered []time.Duration
}

func newPS(cfg Config, c *udp.Clock) (*ps, error) {
	k := &ps{cfg: cfg, group: udp.Address(ina.DownGroup(cfg.Job), ina.DownPortBase|cfg.Job)}
	unicast := cfg.Collective == "ps"
	if unicast {
		if len(cfg.Peers) != cfg.Workers {
			return nil, fmt.Errorf("%w: %d peers for %d workers", ErrConfig, len(cfg.Peers), cfg.Workers)
		}
		for rank, peer := range cfg.Peers {
			a, err := netip.ParseAddr(peer)
			if err != nil || !a.Is4() {
				return nil, fmt.Errorf("%w: address %q of worker %d is not IPv4", ErrConfig, peer, rank)
			}
			k.workers = append(k.workers, udp.Address(a.As4(), ina.DownPortBase|cfg.Job))
		}
	}
	var err error
	if k.p, err = ina.NewPS(ina.PSConfig{
		Job: cfg.Job, Epoch: cfg.Epoch, Workers: cfg.Workers,
		Lanes: cfg.Lanes, Window: cfg.Window, Unicast: unicast,
	}); err != nil {
		return nil, err
	}
	if k.sock, err = openFor(cfg, ina.UpPortBase, ina.UpGroup(cfg.Job), c); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *ps) interrupt() { k.sock.Interrupt() }
func (k *ps) close()     { k.sock.Close() }

// run answers until stopped; the workers are to be stopped first.
func (k *ps) run(ctx context.Context, c *control) error {
	defer loop.Own()()
	defer context.AfterFunc(ctx, k.sock.Interrupt)()
	now := c.clock.Now()
	c.started(now)
	for back := now; ctx.Err() == nil; { // when to look again
		c.stalls.Woke(back, c.clock.Now())
		if leave, err := c.sabotaged(ctx, k.stats); leave || err != nil {
			return err
		}
		n, err := k.sock.Receive()
		if err != nil {
			return err
		}
		for i := range n {
			if c.sab != nil && c.sab.drops(now) {
				continue
			}
			result, to := k.p.Receive(k.sock.Packets[i])
			if result == nil {
				continue
			}
			if c.sab != nil {
				result = c.sab.result(result, now)
			}
			if err := k.send(result, to); err != nil {
				return err
			}
			k.answered = append(k.answered, k.sock.Arrived[i])
		}
		// Before the next batch: it may reuse the memory of results two windows old.
		if err := k.sock.Flush(); err != nil {
			return err
		}
		now = c.clock.Now()
		k.note(c, now)
		if c.due(now) {
			c.sample(now, k.stats())
		}
		if back = now; k.sock.Full {
			continue
		}
		if c.stop.Load() {
			return nil
		}
		wake := c.wake(now + c.idle())
		back = max(wake, now+k.sock.Rest, k.sock.Freed)
		if err := k.sock.Wait(wake); err != nil {
			return err
		}
	}
	return nil
}

// note tells how late the results are that were sent at now.
func (k *ps) note(c *control, now time.Duration) {
	for _, due := range k.answered {
		k.late.add(c, due, k.sock.Freed, now)
	}
	k.answered = k.answered[:0]
}

func (k *ps) send(result []byte, to uint64) error {
	if k.workers == nil {
		return k.sock.Queue(result, k.group)
	}
	for rank := range ina.Ranks(to) {
		if err := k.sock.Queue(result, k.workers[rank]); err != nil {
			return err
		}
	}
	return nil
}

func (k *ps) stats() Stats {
	s := k.p.Stats()
	out := Stats{
		PacketsSent:     k.sock.Sent,
		BytesSent:       k.sock.SentBytes,
		PacketsReceived: k.sock.Received,
		BytesReceived:   k.sock.ReceivedBytes,
		Resends:         s.Answered,
		Arrived:         s.Arrived,
		Completed:       s.Completed,
		Merged:          s.Merged,
		Duplicates:      s.Duplicate,
		Conflicts:       s.Conflicts,
		Outdated:        s.Late,
		Evicted:         s.Evicted,
		Stray:           s.Stray,
		SocketDrops:     k.sock.Drops,
	}
	k.late.tell(&out)
	return out
}
