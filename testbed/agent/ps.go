package agent

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/ina"
)

// ps completes a job's sums and sends the results.
type ps struct {
	cfg     Config
	sock    *socket
	p       *ina.PS
	group   *unix.RawSockaddrInet4
	workers []*unix.RawSockaddrInet4 // by rank, for the plain ps collective
}

func newPS(cfg Config, c *clock) (*ps, error) {
	k := &ps{cfg: cfg, group: address(ina.DownGroup(cfg.Job), ina.DownPortBase|cfg.Job)}
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
			k.workers = append(k.workers, address(a.As4(), ina.DownPortBase|cfg.Job))
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

func (k *ps) interrupt() { k.sock.interrupt() }
func (k *ps) close()     { k.sock.close() }

// run answers until stopped; the workers are to be stopped first.
func (k *ps) run(ctx context.Context, c *control) error {
	runtime.LockOSThread() // for good: the thread goes with the goroutine
	defer context.AfterFunc(ctx, k.sock.interrupt)()
	preciseTimers()
	now := c.clock.now()
	c.started(now)
	for ctx.Err() == nil {
		n, err := k.sock.receive()
		if err != nil {
			return err
		}
		for i := range n {
			result, to := k.p.Receive(k.sock.packets[i])
			if result == nil {
				continue
			}
			if err := k.send(result, to); err != nil {
				return err
			}
		}
		// Before the next batch: it may reuse the memory of results two windows old.
		if err := k.sock.flush(); err != nil {
			return err
		}
		if now = c.clock.now(); c.due(now) {
			c.sample(now, k.stats())
		}
		if k.sock.full {
			continue
		}
		if c.stop.Load() {
			return nil
		}
		if err := k.sock.wait(c.wake(now + idle)); err != nil {
			return err
		}
	}
	return nil
}

func (k *ps) send(result []byte, to uint64) error {
	if k.workers == nil {
		return k.sock.queue(result, k.group)
	}
	for rank := range ina.Ranks(to) {
		if err := k.sock.queue(result, k.workers[rank]); err != nil {
			return err
		}
	}
	return nil
}

func (k *ps) stats() Stats {
	s := k.p.Stats()
	return Stats{
		PacketsSent:     k.sock.sent,
		BytesSent:       k.sock.sentBytes,
		PacketsReceived: k.sock.received,
		BytesReceived:   k.sock.receivedBytes,
		Resends:         s.Answered,
		Arrived:         s.Arrived,
		Completed:       s.Completed,
		SocketDrops:     k.sock.drops,
	}
}
