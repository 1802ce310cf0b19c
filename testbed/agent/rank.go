package agent

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/testbed/collective"
	"github.com/inabench/inabench/testbed/loop"
	"github.com/inabench/inabench/testbed/udp"
)

// rank is a GPU's worker: iterations of computing, which are timers, and of an all-reduce
// after it, which is real.
type rank struct {
	cfg     Config
	clock   *udp.Clock
	compute time.Duration
	mesh    *collective.Mesh // nil for the only rank

	told   chan struct{} // there may be commands
	orders []Command     // of run, not obeyed yet

	mu    sync.Mutex // below
	total Stats
	mine  Reducing
	times []Iteration   // since the last sample
	spent time.Duration // of processor time, before the first iteration
}

func newRank(cfg Config, c *udp.Clock) (*rank, error) {
	speed := cmp.Or(cfg.Speed, 1)
	if !(speed > 0) || !(cfg.Compute >= 0) || cfg.Compute > maxStep {
		return nil, fmt.Errorf("%w: iterations that compute %v s at %v times the speed", ErrConfig, cfg.Compute, speed)
	}
	if !(cfg.LocalRate >= 0) || !(cfg.LineRate >= 0) {
		return nil, fmt.Errorf("%w: ranks of a host exchange %v bit/s, and its line has %v bit/s", ErrConfig, cfg.LocalRate, cfg.LineRate)
	}
	if cfg.Message > maxOp {
		return nil, fmt.Errorf("%w: %d bytes of gradients, want 0..%d", ErrConfig, cfg.Message, int64(maxOp))
	}
	k := &rank{cfg: cfg, clock: c, compute: seconds(cfg.Compute / speed), told: make(chan struct{}, 1)}
	if cfg.Workers == 1 {
		if k.compute == 0 {
			return nil, fmt.Errorf("%w: the only rank of a job that computes nothing", ErrConfig)
		}
		return k, nil
	}
	s, err := collectives.New(cfg.Operation, cfg.Workers)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	listen := cfg.Listen
	if listen == "" {
		if listen, err = address(cfg.Device); err != nil {
			return nil, err
		}
	}
	k.mesh, err = collective.NewMesh(collective.MeshConfig{
		Job: cfg.Job, Epoch: cfg.Epoch, Rank: cfg.Rank, Schedule: s, Seed: cfg.Seed, Listen: listen, Timeout: cfg.Timeout,
		Rate: cmp.Or(cfg.Rate, cfg.LineRate), LocalRate: cfg.LocalRate, Spoil: cfg.spoil,
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// address is the first IPv4 address of a NIC.
func address(device string) (string, error) {
	nic, err := net.InterfaceByName(device)
	if err != nil {
		return "", fmt.Errorf("NIC %s: %w", device, err)
	}
	all, err := nic.Addrs()
	if err != nil {
		return "", fmt.Errorf("NIC %s: %w", device, err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			return n.IP.String(), nil
		}
	}
	return "", fmt.Errorf("NIC %s has no IPv4 address", device)
}

// listens is where others reach this rank; empty: nobody does.
func (k *rank) listens() string {
	if k.mesh == nil {
		return ""
	}
	return k.mesh.Addr()
}

func (k *rank) close() {
	if k.mesh != nil {
		k.mesh.Close()
	}
}

// interrupt has the commands looked at.
func (k *rank) interrupt() {
	select {
	case k.told <- struct{}{}:
	default:
	}
}

// await returns the next command of a kind, or false when the job is to end before.
func (k *rank) await(ctx context.Context, c *control, kind string) (Command, bool) {
	for ctx.Err() == nil && !c.stop.Load() {
		k.orders = append(k.orders, c.take()...)
		for i, cmd := range k.orders {
			if cmd.Cmd == kind {
				k.orders = slices.Delete(k.orders, i, i+1)
				return cmd, true
			}
		}
		select {
		case <-k.told:
		case <-ctx.Done():
		}
	}
	return Command{}, false
}

// run begins with the first of "peers" and "start".
func (k *rank) run(ctx context.Context, c *control) error {
	defer loop.Own()()
	err := k.work(ctx, c)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (k *rank) work(ctx context.Context, c *control) error {
	if k.mesh != nil {
		defer context.AfterFunc(ctx, k.mesh.Close)()
		cmd, ok := k.await(ctx, c, "peers")
		if !ok {
			return nil
		}
		if err := k.connect(ctx, c, cmd.Peers); err != nil || c.stop.Load() {
			return err
		}
		c.events <- Event{Event: "connected", T: k.clock.Now().Seconds(), ID: cmd.ID}
	}
	cmd, ok := k.await(ctx, c, "start")
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var sampling sync.WaitGroup
	defer sampling.Wait()
	defer cancel()
	k.mu.Lock()
	k.spent = processorTime()
	k.mu.Unlock()
	sampling.Go(func() { c.reports(ctx, k.stats) })
	return k.train(ctx, c, seconds(cmd.At))
}

// connect finds the other ranks, unless the job is to end meanwhile.
func (k *rank) connect(ctx context.Context, c *control, peers []string) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		for ctx.Err() == nil && !c.stop.Load() {
			select {
			case <-k.told:
			case <-ctx.Done():
			}
		}
		cancel()
	})
	err := k.mesh.Connect(ctx, peers)
	if c.stop.Load() {
		return nil
	}
	return err
}

// train runs the iterations.
func (k *rank) train(ctx context.Context, c *control, at time.Duration) error {
	if _, err := sleepUntil(ctx, k.clock, at); err != nil {
		return err
	}
	begin := k.clock.Now()
	if begin < at+look {
		begin = at // how late this process was is no part of an iteration
	}
	first := begin
	c.started(begin)
	op := collective.Op{Bytes: k.cfg.Message}
	for stop := false; !stop && (k.cfg.Iterations == 0 || op.Index < k.cfg.Iterations); op.Index++ {
		if leave, err := c.sabotaged(ctx, k.stats); leave || err != nil {
			return err
		}
		if k.mesh != nil {
			k.mesh.Fill(op)
		}
		computed := begin + k.compute
		if _, err := sleepUntil(ctx, k.clock, computed); err != nil {
			return err
		}
		from := k.clock.Now()
		end, stopping := from, c.stop.Load()
		var checked, wrong int64
		if k.mesh == nil {
			stop = stopping
		} else {
			op.Stop = stopping
			var err error
			if stop, err = k.mesh.Exchange(op); err != nil {
				return fmt.Errorf("iteration %d: %w", op.Index, err)
			}
			end = k.clock.Now()
			checked, wrong = k.mesh.Check(op)
			op.PSN += uint32(collective.Pieces(op.Bytes))
		}
		k.mu.Lock()
		k.total.Iterations++
		k.total.IterationSum += (end - begin).Seconds()
		k.total.CommSum += (end - from).Seconds()
		if k.mesh != nil {
			k.total.Goodput += op.Bytes
		}
		k.total.SumsChecked += checked
		k.total.SumErrors += wrong
		k.mine.Compute.Add(from - begin)
		k.mine.Comm.Add(end - from)
		k.mine.Late.Add(from - computed)
		k.mine.JCT = (end - first).Seconds()
		if len(k.times) < maxTimes {
			k.times = append(k.times, Iteration{(from - begin).Seconds(), (end - from).Seconds()})
		}
		k.mu.Unlock()
		begin = end
	}
	return nil
}

func (k *rank) stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, r := k.total, k.mine
	r.Times, k.times = k.times, nil
	if k.spent > 0 {
		r.CPU = (processorTime() - k.spent).Seconds()
	}
	s.Reducing = &r
	if k.mesh != nil {
		s.add(k.mesh.Traffic())
	}
	return s
}
