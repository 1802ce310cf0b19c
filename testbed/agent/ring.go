package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/testbed/collective"
	"github.com/inabench/inabench/testbed/udp"
)

// ring is a worker of a ring all-reduce over TCP. Those that want to stop say so in
// every all-reduce, so that all of them end after the same iteration.
type ring struct {
	cfg  Config
	ring *collective.Ring
	msg  message

	mu       sync.Mutex // below
	stopping context.CancelFunc
	total    Stats
}

func newRing(cfg Config, _ *udp.Clock) (*ring, error) {
	if n := len(cfg.Peers); n != cfg.Workers {
		return nil, fmt.Errorf("%w: %d peers for %d workers", ErrConfig, n, cfg.Workers)
	}
	cfg.Lanes = 1 // the vector is cut into lanes, not into packets
	if cfg.Message == 0 && len(cfg.Layers) == 0 {
		cfg.Message = collectives.RingMessage
	}
	r, err := collective.NewRing(collective.RingConfig{
		Job: cfg.Job, Epoch: cfg.Epoch, Rank: cfg.Rank, Peers: cfg.Peers, Rate: cmp.Or(cfg.Rate, cfg.LineRate), Seed: cfg.Seed, Spoil: cfg.spoil,
	})
	if err != nil {
		return nil, err
	}
	return &ring{cfg: cfg, ring: r, msg: newMessage(cfg), stopping: func() {}}, nil
}

func (r *ring) close() { r.ring.Close() }

// interrupt is called for a stop: the others then have a while to finish the
// iteration in which they hear of it.
func (r *ring) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	long := max(2*r.cfg.Step, time.Duration(2*r.cfg.ringTime()*1e9))
	if n := r.total.Iterations; n > 0 {
		long = max(2*r.cfg.Step, time.Duration(4*r.total.IterationSum/float64(n)*1e9))
	}
	r.stopping()
	r.ring.Patience(10*time.Second + long)
}

// ringTime is how long an iteration of a ring takes at its rate, s; 0: it has none.
func (c *Config) ringTime() (t float64) {
	rate, n := cmp.Or(c.Rate, c.LineRate), float64(c.Workers)
	if rate == 0 {
		return 0
	}
	bytes := c.Message
	if len(c.Layers) > 0 {
		bytes = 0
		for _, l := range c.Layers {
			bytes += l.Bytes
			t += l.Compute.Seconds()
		}
	}
	return t + 2*(n-1)/n*8*float64(bytes)/rate
}

func (r *ring) run(ctx context.Context, c *control) error {
	defer r.ring.HangUp()
	defer context.AfterFunc(ctx, r.close)()
	connecting, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.stopping = cancel
	r.mu.Unlock()
	if c.stop.Load() {
		return nil
	}
	err := r.ring.Connect(connecting)
	if err == nil {
		err = r.reduce(ctx, c)
	} else if c.stop.Load() && errors.Is(err, context.Canceled) {
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// reduce runs iterations until one ends in which somebody wanted to stop.
func (r *ring) reduce(ctx context.Context, c *control) error {
	t := c.clock.Now()
	c.started(t)
	sampling := make(chan struct{})
	defer func() { <-sampling }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(sampling)
		c.reports(ctx, r.stats)
	}()

	m := &r.msg
	m.started = true
	var op collective.Op
	for m.begin(t); !m.finished; {
		if leave, err := c.sabotaged(ctx, r.stats); leave || err != nil {
			return err
		}
		op.Stop = c.stop.Load()
		var stop bool
		var checked, wrong int64
		for _, l := range m.layers {
			at, _ := m.ready()
			m.next++
			if err := pause(ctx, at-c.clock.Now()); err != nil {
				return err
			}
			op.Bytes = 4 * l.packets
			got, err := r.ring.AllReduce(op)
			if err != nil {
				return fmt.Errorf("iteration %d: %w", m.done, err)
			}
			op.Index++
			op.PSN += uint32(collective.Pieces(op.Bytes))
			stop = stop || got.Stop
			checked += got.Checked
			wrong += got.Wrong
		}
		t = max(c.clock.Now(), m.lastReady())
		m.end(t)
		r.mu.Lock()
		r.total.Iterations, r.total.IterationSum, r.total.CommSum = m.done, m.sum.Seconds(), m.comm.Seconds()
		r.total.SumsChecked += checked
		r.total.SumErrors += wrong
		r.mu.Unlock()
		if stop {
			return nil
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (r *ring) stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.total
	s.Goodput = r.ring.Reduced() // also within an operation, which may last as long as what is measured
	s.add(r.ring.Traffic())
	return s
}

// add counts what passed sockets.
func (s *Stats) add(t collective.Traffic) {
	s.PacketsSent += t.PacketsSent
	s.BytesSent += t.BytesSent
	s.PacketsReceived += t.PacketsReceived
	s.BytesReceived += t.BytesReceived
	s.Resends += t.Resends
	s.SocketDrops += t.Drops
}
