package aggregator

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/paramservice/control"
)

// core is the one core of an Aggregator. Sums are really made; a tensor with Work takes that
// long besides, in the time of the core, which is that of the clock as long as it is fast enough:
// when the process is woken late, what follows is not later for it.
type core struct {
	origin time.Time
	done   func(*work) // with the next model in it

	mu       sync.Mutex
	schedule schedule
	commands []command     // in order of time
	busy     time.Duration // so far
	late     time.Duration // sums took that much longer than the work that they emulate
	stopped  bool
	wake     chan struct{}
}

// command is a change of what is to be done.
type command struct {
	at time.Duration
	do func(now time.Duration)
}

func newCore(done func(*work)) *core {
	return &core{origin: time.Now(), done: done, wake: make(chan struct{}, 1)}
}

// submit is work to be done. It does not wait.
func (c *core) submit(w *work) {
	c.command(func(now time.Duration) { c.schedule.arrive(now, w) })
}

// reserve gives the core another cycle.
func (c *core) reserve(r control.Reserve) error {
	n, err := newSchedule(r)
	if err == nil {
		c.command(func(now time.Duration) { c.schedule.replace(now, n) })
	}
	return err
}

// drop takes away what is to be done for a job.
func (c *core) drop(job uint32) {
	c.command(func(now time.Duration) { c.schedule.drop(now, job) })
}

// command is carried out by run, when the time of the core has come to it.
func (c *core) command(do func(now time.Duration)) {
	c.mu.Lock()
	c.commands = append(c.commands, command{time.Since(c.origin), do})
	c.mu.Unlock()
	c.signal()
}

func (c *core) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *core) stop() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.signal()
}

// threadTime is the CPU time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// run works until stop.
func (c *core) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	now := time.Duration(0) // of the core
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.stopped {
		w, until := c.schedule.next(now)
		if len(c.commands) > 0 && (w == nil || c.commands[0].at <= now || w.run.made && c.commands[0].at < until) {
			m := c.commands[0]
			c.commands = c.commands[1:]
			if w != nil && m.at > now && c.charge(m.at, w, m.at-now) {
				c.finish(w)
			}
			now = max(now, m.at)
			m.do(now)
			continue
		}
		switch {
		case w == nil:
			c.mu.Unlock()
			<-c.wake
			c.mu.Lock()
			continue
		case !w.run.made:
			c.mu.Unlock()
			w.run.make()
			c.mu.Lock()
			if !w.real {
				c.late += max(0, w.run.spent-w.tensor.work)
				continue // there may be commands
			}
			w.left = w.run.spent
			now = max(now, time.Since(c.origin))
			if c.charge(now, w, w.left) {
				c.finish(w)
			}
			continue
		}
		if wait := until - time.Since(c.origin); wait > 0 {
			c.mu.Unlock()
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-c.wake:
			}
			c.mu.Lock()
			continue
		}
		spent := until - now
		now = until
		if c.charge(now, w, spent) {
			c.finish(w)
		}
	}
}

// charge is that work has had so much time until now.
func (c *core) charge(now time.Duration, w *work, spent time.Duration) (done bool) {
	c.busy += spent
	w.run.busy += spent
	return c.schedule.ran(now, w, spent)
}

// finish hands on what is done.
func (c *core) finish(w *work) {
	c.mu.Unlock()
	c.done(w)
	c.mu.Lock()
}
