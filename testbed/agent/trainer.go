package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/testbed/collective"
	"github.com/inabench/inabench/testbed/loop"
	"github.com/inabench/inabench/testbed/mina/sharing"
	"github.com/inabench/inabench/testbed/stall"
	"github.com/inabench/inabench/testbed/udp"
)

// Steps that a trainer's pattern is collected from, and those before.
const (
	warmup    = 2
	collected = 5
)

// trainer is a rank of a training job: steps of computing, which are timers, and of
// all-reduces, which are real. It requests each all-reduce when its gradients would be
// there, computes on, waits for the results, and begins the next step.
type trainer struct {
	cfg       Config
	clock     *udp.Clock
	pattern   Pattern // at this host's speed
	job       collective.Collective
	group     *collective.Group // the same; nil for a job on one host
	decider   sharing.Decider
	collector *collective.Collector

	told chan struct{} // there may be commands

	mu    sync.Mutex // below
	queue *collective.Queue
	total Training
	times []float64     // steps since the last sample
	spent time.Duration // of processor time, before the first step
}

func newTrainer(cfg Config, c *udp.Clock) (*trainer, error) {
	pattern, err := cfg.pattern()
	if err != nil {
		return nil, err
	}
	if n := len(cfg.Peers); n != cfg.Workers {
		return nil, fmt.Errorf("%w: %d peers for %d workers", ErrConfig, n, cfg.Workers)
	}
	k := &trainer{cfg: cfg, clock: c, pattern: pattern, told: make(chan struct{}, 1), collector: collective.NewCollector(warmup, collected)}
	if k.decider, err = newDecider(cfg); err != nil {
		return nil, err
	}
	if cfg.Workers == 1 {
		k.job = collective.Alone{}
		return k, nil
	}
	var held func(index int64, held bool)
	if m, ok := k.decider.(*member); ok && cfg.Rank == 0 { // all ranks know the same
		held = m.held
	}
	k.group, err = collective.NewGroup(collective.Config{
		RingConfig: collective.RingConfig{
			Job: cfg.Job, Epoch: cfg.Epoch, Rank: cfg.Rank, Peers: cfg.Peers, Rate: cmp.Or(cfg.Rate, cfg.LineRate),
			Seed: cfg.Seed, Timeout: cfg.Timeout, Spoil: cfg.spoil,
		},
		Clock: c, Device: cfg.Device, Lanes: cfg.Lanes, RTO: cfg.RTO, LineRate: cfg.LineRate,
		Rest: cfg.Rest, Offload: cfg.Offload, Held: held,
	})
	if err != nil {
		k.decider.Close()
		return nil, err
	}
	k.job = k.group
	if cfg.Tree != nil {
		if err := k.group.SetTree(*cfg.Tree, nil); err != nil {
			k.close()
			return nil, err
		}
	}
	return k, nil
}

// pattern is that of the config, at the speed of its GPU.
func (cfg *Config) pattern() (Pattern, error) {
	if cfg.Pattern == nil {
		return Pattern{}, fmt.Errorf("%w: a trainer needs a pattern", ErrConfig)
	}
	p := Pattern{Step: cfg.Pattern.Step, Ops: slices.Clone(cfg.Pattern.Ops)}
	speed := cmp.Or(cfg.Speed, 1)
	if !(speed > 0) || !(p.Step >= 0) || p.Step > maxStep {
		return Pattern{}, fmt.Errorf("%w: steps of %v s at %v times the speed", ErrConfig, p.Step, speed)
	}
	p.Step /= speed
	for i := range p.Ops {
		o := &p.Ops[i]
		if !(o.Start >= 0) || o.Start > maxStep || i > 0 && o.Start < cfg.Pattern.Ops[i-1].Start {
			return Pattern{}, fmt.Errorf("%w: all-reduce %d of a step begins at %v s", ErrConfig, i, o.Start)
		}
		if o.Bytes < 0 || o.Bytes > maxOp {
			return Pattern{}, fmt.Errorf("%w: all-reduce %d of a step has %d bytes, want 0..%d", ErrConfig, i, o.Bytes, int64(maxOp))
		}
		o.Start /= speed
	}
	return p, nil
}

// Limits far above any model.
const (
	maxStep = 24 * 3600 // s
	maxOp   = 1 << 36   // bytes
)

func (k *trainer) close() {
	if k.group != nil {
		k.group.Close()
	}
	k.decider.Close()
}

// interrupt has the commands looked at; see obey.
func (k *trainer) interrupt() {
	select {
	case k.told <- struct{}{}:
	default:
	}
}

// obey does what the job's controller orders, and answers when it is done.
func (k *trainer) obey(ctx context.Context, c *control, stop func()) {
	for ctx.Err() == nil {
		if c.stop.Load() {
			stop()
		}
		for _, cmd := range c.take() {
			answer := Event{Event: "released", ID: cmd.ID}
			if cmd.Tree.Epoch != 0 {
				answer = Event{Event: "acquired", ID: cmd.ID}
			}
			settled := func() {
				answer.T = k.clock.Now().Seconds()
				c.events <- answer
			}
			if k.group == nil { // needs no tree
				settled()
			} else if err := k.group.SetTree(cmd.Tree, settled); err != nil {
				c.events <- Event{Event: "refused", T: k.clock.Now().Seconds(), ID: cmd.ID, Error: err.Error()}
			}
		}
		select {
		case <-k.told:
		case <-ctx.Done():
		}
	}
}

func (k *trainer) run(ctx context.Context, c *control) (err error) {
	defer loop.Own()()
	inner, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	connecting, connected := context.WithCancel(inner)
	defer connected()
	others.Go(func() {
		k.obey(inner, c, func() {
			if k.group != nil {
				k.group.Stop()
			}
			connected() // do not wait for ranks that may never come
		})
	})
	if k.cfg.Controller != "" {
		host, err := k.attach(inner)
		if err != nil {
			return err
		}
		defer host.Close()
	}
	if k.group != nil {
		err = k.group.Connect(connecting)
		if err != nil && c.stop.Load() {
			return nil
		}
		if err == nil { // all ranks are there; those that have a tree agree on it
			_, err = k.group.AllReduce(inner, 4, false)
		}
	}
	if err == nil {
		k.mu.Lock()
		k.queue = collective.NewQueue(inner, k.job, k.decider, k.clock, k.collector)
		k.spent = processorTime()
		k.mu.Unlock()
		others.Go(func() { c.reports(inner, k.stats) })
		if k.cfg.Profiled {
			err = k.decider.Learned(k.pattern.Step, k.pattern.treeOps())
		}
		if err == nil {
			err = k.train(inner, c)
		}
		if err != nil {
			cancel() // whatever is under way
		}
		k.queue.Close()
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// train runs the steps.
func (k *trainer) train(ctx context.Context, c *control) error {
	if _, err := sleepUntil(ctx, k.clock, c.at); err != nil {
		return err
	}
	begin := max(k.clock.Now(), c.at)
	if c.at > 0 && begin < c.at+look {
		begin = c.at // how late this process was is no part of a step
	}
	first := begin
	c.started(begin)
	ops := make([]*collective.Operation, len(k.pattern.Ops))
	learned := false
	for step := int64(0); k.cfg.Steps == 0 || step < k.cfg.Steps; step++ {
		stop := (k.group == nil || len(ops) == 0) && c.stop.Load()
		for i, o := range k.pattern.Ops {
			if err := k.sleep(ctx, c, begin+seconds(o.Start)); err != nil {
				return err
			}
			if i == 0 { // a fault while it computes, which is a timer, would change nothing
				if leave, err := c.sabotaged(ctx, k.stats); leave || err != nil {
					return err
				}
			}
			ops[i] = k.queue.AllReduce(o.Bytes)
		}
		end := begin + seconds(k.pattern.Step)
		if err := k.sleep(ctx, c, end); err != nil {
			return err
		}
		if err := k.queue.Wait(ctx, ops...); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		for _, o := range ops { // how late this process was is no part of a step
			end = max(end, o.Ended)
			stop = stop || o.Outcome.Stop
		}
		k.stepped(end-begin, end-first)
		begin = end
		if !learned {
			if p, ok := k.collector.Pattern(); ok {
				learned = true
				if err := k.learn(c, p); err != nil {
					return err
				}
			}
		}
		if stop {
			break
		}
	}
	return nil
}

// learn tells what was collected.
func (k *trainer) learn(c *control, p workload.Pattern) error {
	out := &Pattern{Step: p.Step}
	for _, o := range p.Ops {
		out.Ops = append(out.Ops, Op{Start: o.Start, Bytes: o.Bytes})
	}
	c.events <- Event{Event: "pattern", T: k.clock.Now().Seconds(), Pattern: out}
	if k.cfg.Profiled {
		return nil
	}
	if err := k.decider.Learned(p.Step, out.treeOps()); err != nil {
		return fmt.Errorf("pattern of the job: %w", err)
	}
	return nil
}

// treeOps are the all-reduces as the sharing rule knows them.
func (p *Pattern) treeOps() []tree.Op {
	ops := make([]tree.Op, len(p.Ops))
	for i, o := range p.Ops {
		ops[i] = tree.Op{Start: o.Start, Bytes: float64(o.Bytes)}
	}
	return ops
}

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

// look is how often a trainer looks whether it is to end.
const look = 50 * time.Millisecond

// sleep sleeps until t, and counts how late it was. One that comes when t is over has been held up: nothing
// of a step waits before its next operation is due, and what is up to others is waited for at its end.
func (k *trainer) sleep(ctx context.Context, c *control, t time.Duration) error {
	if now := k.clock.Now(); now > t+look {
		c.stalls.Insert(stall.Span{Start: t, End: now, Late: now - t, Held: now - t, Count: 1})
	}
	late, err := sleepUntil(ctx, k.clock, t)
	if late > 0 {
		k.mu.Lock()
		k.total.Late.Add(late)
		k.mu.Unlock()
	}
	return err
}

// sleepUntil ends within microseconds of t, which the runtime's timers do not. It returns how
// long after; 0 if it did not sleep.
func sleepUntil(ctx context.Context, c *udp.Clock, t time.Duration) (late time.Duration, err error) {
	for slept := false; ; slept = true {
		left := t - c.Now()
		if left <= 0 {
			if slept {
				late = -left
			}
			return late, nil
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		loop.Sleep(min(left, look))
	}
}

// stepped counts a step.
func (k *trainer) stepped(took, since time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.total.Steps++
	k.total.Step.Add(took)
	k.total.JCT = since.Seconds()
	if len(k.times) < maxTimes {
		k.times = append(k.times, took.Seconds())
	}
}

// maxTimes bounds the steps of one sample.
const maxTimes = 1000

// processorTime is that of this process so far.
func processorTime() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail: both arguments are valid
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (k *trainer) stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.total
	t.Times, k.times = k.times, nil
	if k.queue != nil {
		t.QueueStats = k.queue.Stats()
		t.CPU = (processorTime() - k.spent).Seconds()
	}
	if k.group != nil {
		tree := k.group.TreeTraffic()
		t.TreeSent, t.TreeReceived = tree.PacketsSent, tree.PacketsReceived
	}
	s := Stats{
		Training: &t, Iterations: t.Steps, IterationSum: t.Step.Sum,
		SumsChecked: t.Checked, SumErrors: t.Wrong,
	}
	if k.group != nil {
		s.add(k.group.Traffic())
	}
	return s
}
