package softswitch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/loop"
	"github.com/inabench/inabench/testbed/sabotage"
	"github.com/inabench/inabench/testbed/stall"
)

// Switch is a running switch. Its methods are safe for concurrent use; Run may be
// called once.
type Switch struct {
	cfg   Config
	start time.Time
	wake  int // eventfd: ends the loop's sleep

	mu      sync.Mutex // held by the loop except while it sleeps
	waiters atomic.Int32
	engine  *engine
	devices map[*port]*device
	taps    map[*port]*tap
	stalls  *stall.Record
	clear   stall.Histogram // lateness of frames that were due outside of stalls, since the last Health
	stalled stall.Histogram // of the others
	cpu     unix.Timespec
	tid     int           // of the loop's thread; 0: not running
	back    time.Duration // when the loop looks again
	since   time.Time
	before  troubles
	closed  bool
}

// troubles are running totals of what Health reports the growth of.
type troubles struct {
	ring, starved, unseen, overflows, refused int64
}

// What all receive rings of a switch may take, and each at most, bytes. A slot is 2 KiB, however short its frame: a port of
// eight has room for 4096 of them, half a second of what a host sends at 8,000 a second while the machine stands still. A slot
// for super-frames is 16 times as large, also when a single frame is in it.
const (
	ringMemory    = 64 << 20
	ringAtMost    = 8 << 20
	ringAtLeast   = 1 << 20
	offloadMemory = 4
)

// New opens the ports of cfg. It forwards nothing until Run and holds no entries
// until its Target methods say so. The caller must call Run, or Close if it never does.
func New(cfg Config) (_ *Switch, err error) {
	e, err := newEngine(cfg)
	if err != nil {
		return nil, err
	}
	s := &Switch{cfg: cfg, start: time.Now(), wake: -1, engine: e, stalls: stall.New(cfg.Beat), devices: make(map[*port]*device), taps: make(map[*port]*tap)}
	s.since = s.start
	defer func() {
		if err != nil {
			err = blame.Switch(cfg.Name, errors.Join(err, s.Close()))
		}
	}()
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	memory := min(max(ringMemory/max(len(cfg.Ports)+len(e.inner), 1), ringAtLeast), ringAtMost)
	if cfg.Offload {
		memory *= offloadMemory
	}
	names := map[*port]string{} // of devices
	for _, pc := range cfg.Ports {
		p := e.byPort[pc.Number]
		names[p] = pc.Device
		if p.other != nil {
			names[p.other] = pc.Inner
		}
	}
	// The kernel waits for a grace period for each ring it attaches or detaches; side
	// by side they wait for the same one.
	var g errgroup.Group
	for p, name := range names {
		g.Go(func() error {
			dev, err := openDevice(name, e.pool.size, memory, cfg.Offload)
			if err != nil {
				return fmt.Errorf("port %d: %w", p.number, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.devices[p] = dev
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if cfg.Pcap != "" {
		for _, p := range e.ports {
			if s.taps[p], err = newTap(cfg.Pcap, cfg.Name, p.number); err != nil {
				delete(s.taps, p)
				return nil, err
			}
		}
	}
	e.emit = s.emit
	return s, nil
}

// Close frees what New opened. Run does so itself.
func (s *Switch) Close() error {
	s.lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var closing sync.WaitGroup
	for _, d := range s.devices {
		closing.Go(d.close)
	}
	closing.Wait()
	var errs []error
	for _, t := range s.taps {
		errs = append(errs, t.close())
	}
	if s.wake >= 0 {
		unix.Close(s.wake)
	}
	return errors.Join(errs...)
}

// lock is how everybody but the loop takes mu: the loop gives way to waiters.
func (s *Switch) lock() {
	s.waiters.Add(1)
	s.mu.Lock()
	s.waiters.Add(-1)
}

const (
	rxBatch = 128 // frames read from a port before the next port has its turn
	// Sleeping takes a few microseconds itself; a shorter wait is spent looking at the rings.
	shortest = 2 * time.Microsecond
	// rouse is how often it looks when nothing comes and nothing is due, so that it knows
	// when it stood still.
	rouse = 10 * time.Millisecond
)

// arrived is when a frame came, on the engine's clock, which read horizon at the beginning of this turn and reads now() now:
// the kernel stamps frames with the wall clock, whose zero is as of that beginning. Where that clock was set in between, a
// frame seems to come from the future, and its cable would wait for as long as the step was: it came at the latest now.
func arrived(realtime, zero int64, horizon time.Duration, now func() time.Duration) time.Duration {
	at := time.Duration(realtime - zero)
	if at > horizon { // as few do: most frames cost no look at the clock
		at = min(at, now())
	}
	return at
}

// Run forwards until ctx is done, on a thread of its own, and closes the switch.
func (s *Switch) Run(ctx context.Context) error {
	done := make(chan error)
	go func() {
		defer loop.Own()()
		done <- s.loop(ctx)
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		one := [8]byte{1}
		unix.Write(s.wake, one[:])
		err = <-done
	}
	return errors.Join(err, s.Close())
}

func (s *Switch) loop(ctx context.Context) error {
	e := s.engine
	fds := []unix.PollFd{{Fd: int32(s.wake), Events: unix.POLLIN}}
	for _, p := range e.every {
		fds = append(fds, unix.PollFd{Fd: int32(s.devices[p].fd), Events: unix.POLLIN})
	}
	type reader struct {
		dev *device
		do  func([]byte, int64)
	}
	var waiter loop.Waiter
	var horizon time.Duration // when this turn began
	var zero int64            // CLOCK_REALTIME at engine time 0, as of then
	now := func() time.Duration { return time.Since(s.start) }
	var readers []reader
	for _, p := range e.every {
		tap := s.taps[p]
		readers = append(readers, reader{s.devices[p], func(frame []byte, realtime int64) {
			if tap != nil {
				tap.write(realtime, frame, nil)
			}
			e.receive(p, frame, arrived(realtime, zero, horizon, now))
		}})
	}
	s.lock()
	s.tid = unix.Gettid()
	s.cpu = threadCPU(s.tid)
	s.since = time.Now()
	defer func() {
		s.tid = 0
		s.mu.Unlock()
	}()
	s.back = time.Since(s.start)
	for ctx.Err() == nil {
		// What happened before this moment is in the rings; what happens later waits for
		// the next turn, so that frames of different ports meet in order of time.
		t := time.Now()
		if e.sab != nil {
			e.sab.dawdle(e, t)
		}
		horizon = t.Sub(s.start)
		s.stalls.Woke(s.back, horizon)
		zero = t.UnixNano() - int64(horizon)
		busy := false
		for _, r := range readers {
			busy = r.dev.receive(rxBatch, r.do) > 0 || busy
		}
		e.run(horizon)
		s.flush()

		wait := e.next() - time.Since(s.start)
		if busy || wait < shortest {
			wait = 0
		}
		if s.cfg.Beat > 0 {
			wait = min(wait, rouse)
		}
		if s.back = horizon; !busy {
			s.back += max(wait, s.cfg.Rest)
		}
		s.mu.Unlock()
		for range 10 {
			if s.waiters.Load() == 0 {
				break
			}
			loop.Sleep(10 * time.Microsecond)
		}
		rest := max(0, s.cfg.Rest-time.Since(t))
		if busy {
			rest = 0
		}
		if wait > rest {
			for _, tap := range s.taps {
				tap.flush()
			}
		}
		if err := waiter.Wait(fds, rest, wait); err != nil {
			s.mu.Lock()
			return blame.Switch(s.cfg.Name, fmt.Errorf("wait for frames: %w", err))
		}
		s.mu.Lock()
	}
	return nil
}

// emit collects the frames that are due at each port.
func (s *Switch) emit(to *port, p *packet) {
	to.tx = append(to.tx, p)
	if len(to.tx) == txBatch {
		s.write(to, time.Since(s.start))
	}
}

func (s *Switch) flush() {
	now := time.Since(s.start)
	for _, p := range s.engine.every {
		if len(p.tx) > 0 {
			s.write(p, now)
		}
	}
}

func (s *Switch) write(to *port, now time.Duration) {
	for _, p := range to.tx {
		late := &s.clear
		if s.stalls.Add(p.at, now) {
			late = &s.stalled
		}
		late.Add(now - p.at)
		to.count(PortTx, p.size)
	}
	if tap := s.taps[to]; tap != nil {
		for _, p := range to.tx {
			n := min(p.size, headLen)
			tap.write(s.start.Add(now).UnixNano(), p.head[:n], p.buf.b[n:p.size])
		}
	}
	s.devices[to].send(to.tx, func(p *packet) {
		to.uncount(PortTx, p.size)
		to.count(PortTxDrop, p.size)
	})
	for _, p := range to.tx {
		s.engine.pool.put(p)
	}
	to.tx = to.tx[:0]
}

func (p *port) uncount(c Counter, size int) {
	p.counters[c].packets--
	p.counters[c].bytes -= int64(size)
}

// threadCPU is the processor time a thread of this process has used. The clock id
// is that of pthread_getcpuclockid(3).
func threadCPU(tid int) unix.Timespec {
	var ts unix.Timespec
	unix.ClockGettime(int32(^tid<<3|6), &ts)
	return ts
}

// Health reports on the time since the last call, or since New.
func (s *Switch) Health() Health {
	s.lock()
	defer s.mu.Unlock()
	now := time.Now()
	late := s.clear.Plus(&s.stalled)
	h := Health{
		Elapsed: now.Sub(s.since), Sent: late.N,
		LateP50: late.Quantile(.5), LateP99: late.Quantile(.99), LateMax: late.Max,
		Stalls: s.stalls.Totals(), ClearSent: s.clear.N, ClearP50: s.clear.Quantile(.5), ClearP99: s.clear.Quantile(.99),
	}
	if s.closed {
		return h
	}
	total := troubles{starved: s.engine.starve, unseen: s.engine.unseen}
	for _, p := range s.engine.every {
		d := s.devices[p]
		lost, err := d.lost()
		if err != nil {
			h.Warnings = append(h.Warnings, err.Error())
		}
		total.ring += lost
		h.Super = h.Super || d.offload || d.offloaded
		total.refused += d.refused
		total.overflows += p.overflows
		if d.offloaded {
			h.Warnings = append(h.Warnings, fmt.Sprintf("port %d: frames arrived on %s without checksum or larger than the mtu: an offload is on at its far end", p.number, d.name))
		}
		if on := d.offloads(); len(on) > 0 && !d.offload {
			h.Warnings = append(h.Warnings, fmt.Sprintf("port %d: offloads are on at %s: %v", p.number, d.name, on))
		}
	}
	h.Cables = s.engine.cables()
	h.RingDrops = total.ring - s.before.ring
	h.PoolDrops = total.starved - s.before.starved
	h.Unseen = total.unseen - s.before.unseen
	h.Refused = total.refused - s.before.refused
	h.Overflows = total.overflows - s.before.overflows
	if s.tid != 0 {
		cpu := threadCPU(s.tid)
		h.Busy = float64(cpu.Nano()-s.cpu.Nano()) / float64(max(h.Elapsed, 1))
		s.cpu = cpu
	}
	s.before, s.since, s.clear, s.stalled = total, now, stall.Histogram{}, stall.Histogram{}
	return h
}

// Stalls are those since the last call, on the clock of stall.Monotonic.
func (s *Switch) Stalls() []stall.Span {
	zero := stall.Monotonic(s.start)
	s.lock()
	if s.tid != 0 { // it may be late as we speak
		s.stalls.Woke(s.back, time.Since(s.start))
	}
	s.mu.Unlock()
	spans := s.stalls.Take()
	for i := range spans {
		spans[i].Start += zero
		spans[i].End += zero
	}
	return spans
}

// handed is how many frames were handed to another switch and came back from it.
func (s *Switch) handed() (to, from int64) {
	s.lock()
	defer s.mu.Unlock()
	for _, p := range s.engine.inner {
		to += p.counters[PortTx].packets
		from += p.counters[PortRx].packets
	}
	return to, from
}

// SetImpair replaces the damage of one direction of the cable at a port.
func (s *Switch) SetImpair(port uint32, dir string, im Impair) error {
	if err := im.check(); err != nil {
		return fmt.Errorf("port %d: %s: %w", port, dir, err)
	}
	s.lock()
	defer s.mu.Unlock()
	l, err := s.engine.direction(port, dir)
	if err != nil {
		return err
	}
	l.cfg.Impair = im
	return nil
}

var _ Target = (*Switch)(nil)

// Reset implements Target.
func (s *Switch) Reset() {
	s.lock()
	defer s.mu.Unlock()
	s.engine.reset()
}

// SetJob implements Target. Errors wrap ina.ErrEntry.
func (s *Switch) SetJob(j ina.JobEntry) error {
	s.lock()
	defer s.mu.Unlock()
	return s.engine.setJob(j)
}

// DeleteJob implements Target.
func (s *Switch) DeleteJob(job uint16) error {
	s.lock()
	defer s.mu.Unlock()
	s.engine.ina.DeleteJob(job)
	return nil
}

// SetRoute implements Target.
func (s *Switch) SetRoute(r Route) error {
	s.lock()
	defer s.mu.Unlock()
	p := s.engine.byPort[r.Port]
	if p == nil {
		return fmt.Errorf("route to %v: no port %d", r.Dst, r.Port)
	}
	s.engine.routes[r.Dst] = route{p, r.MAC}
	return nil
}

// DeleteRoute implements Target.
func (s *Switch) DeleteRoute(dst [4]byte) error {
	s.lock()
	defer s.mu.Unlock()
	delete(s.engine.routes, dst)
	return nil
}

// SetGroup implements Target.
func (s *Switch) SetGroup(id uint16, ports []uint32) error {
	s.lock()
	defer s.mu.Unlock()
	var g []*port
	for _, n := range ports {
		p := s.engine.byPort[n]
		if p == nil {
			return fmt.Errorf("multicast group %d: no port %d", id, n)
		}
		g = append(g, p)
	}
	s.engine.groups[id] = g
	return nil
}

// DeleteGroup implements Target.
func (s *Switch) DeleteGroup(id uint16) error {
	s.lock()
	defer s.mu.Unlock()
	delete(s.engine.groups, id)
	return nil
}

// Counter implements Target.
func (s *Switch) Counter(c Counter, index int) (packets, bytes int64) {
	s.lock()
	defer s.mu.Unlock()
	packets, bytes = s.engine.counter(c, index)
	if s.engine.sab != nil {
		packets, bytes = s.engine.sab.tell(s.engine, c, index, packets, bytes)
	}
	return packets, bytes
}

// sabotage has the switch, or one of its cables, do something wrong in the place of what it did
// wrong before; nil, or an act without a name, ends it. It says how often that has acted.
func (s *Switch) sabotage(act *sabotage.Act) (acted int64, err error) {
	if act == nil {
		act = &sabotage.Act{}
	}
	s.lock()
	defer s.mu.Unlock()
	return s.engine.sabotage(*act, s.cfg.Seed)
}

// ResetCounter implements Target.
func (s *Switch) ResetCounter(c Counter, index int) {
	s.lock()
	defer s.mu.Unlock()
	s.engine.resetCounter(c, index)
}
