package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/sabotage"
)

// saboteur makes an agent do one thing wrong; see testbed/sabotage. Most agents have nil, which
// is all that they ask.
type saboteur struct {
	act   sabotage.Act
	from  atomic.Int64 // when it begins, on the agent's clock; 0: its traffic has not begun
	acted atomic.Int64
	last  time.Duration // it paused; of the role's goroutine

	mu    sync.Mutex // below
	count sabotage.Counter
	late  []Event
}

// newSaboteur returns the saboteur that a config asks for, and the config as its role is to have
// it; nil: none.
func newSaboteur(cfg Config) (*saboteur, Config, error) {
	if cfg.Sabotage == nil {
		return nil, cfg, nil
	}
	f, ok := sabotage.Find(cfg.Sabotage.Fault)
	if !ok || f.At != sabotage.Worker && f.At != sabotage.PS && f.At != sabotage.Clock {
		return nil, cfg, fmt.Errorf("%w: fault %q is not of an agent", ErrConfig, cfg.Sabotage.Fault)
	}
	s := &saboteur{act: *cfg.Sabotage}
	if f.Name == "end-early" {
		if cfg.Iterations > 0 || cfg.Steps > 0 {
			s.acted.Store(1)
		}
		cfg.Iterations, cfg.Steps = (cfg.Iterations+1)/2, (cfg.Steps+1)/2
	}
	return s, cfg, nil
}

// begins is called when the role's traffic has begun, at t.
func (s *saboteur) begins(t time.Duration) {
	if s != nil {
		s.from.CompareAndSwap(0, int64(t+s.act.After))
	}
}

// on reports whether the fault is on at now.
func (s *saboteur) on(now time.Duration) bool {
	from := s.from.Load()
	return from != 0 && int64(now) >= from
}

// next reports whether the fault acts on the next of the things that it is about.
func (s *saboteur) next() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.count.Next(s.act.Every) {
		return false
	}
	s.acted.Add(1)
	return true
}

// sabotaged is called by every role, again and again, with where its totals are. Leave: the role
// is to return, as if it were done, or with the error.
func (c *control) sabotaged(ctx context.Context, stats func() Stats) (leave bool, err error) {
	s := c.sab
	if s == nil {
		return false, nil
	}
	now := c.clock.Now()
	if !s.on(now) {
		return false, nil
	}
	switch s.act.Fault {
	case "stop":
		s.acted.Store(1)
		return true, nil
	case "crash":
		s.acted.Store(1)
		c.report(now, stats())
		time.Sleep(100 * time.Millisecond) // until that was told
		return true, unix.Kill(os.Getpid(), unix.SIGKILL)
	case "hang", "ps-hangs":
		s.acted.Store(1)
		c.report(now, stats())
		<-ctx.Done()
		return true, nil
	case "suspend":
		if s.acted.CompareAndSwap(0, 1) {
			return false, suspend(sabotage.Suspend)
		}
	case "stall":
		if s.last == 0 || now-s.last >= sabotage.StallEvery {
			s.acted.Add(1)
			s.last = now
			err := pause(ctx, sabotage.Stall)
			c.paused = c.clock.Now()
			return false, err
		}
	case "end-early":
		if s.acted.CompareAndSwap(0, 1) { // it has no iterations
			c.stop.Store(true)
		}
	}
	return false, nil
}

// suspend has this process stopped by SIGSTOP for a while. A shell that it leaves behind does
// that, and lets it go on.
func suspend(d time.Duration) error {
	pid := strconv.Itoa(os.Getpid())
	seconds := strconv.FormatFloat(d.Seconds(), 'f', 1, 64)
	cmd := exec.Command("/bin/sh", "-c", "kill -STOP "+pid+"; sleep "+seconds+"; kill -CONT "+pid)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("sabotage: suspend: %w", err)
	}
	go cmd.Wait() // it is gone when this process goes on
	return nil
}

// gradient makes a gradient wrong that is about to be sent, an INA payload.
func (s *saboteur) gradient(b []byte, now time.Duration) {
	s.spoil(b[min(ina.HeaderLen, len(b)):], now)
}

// spoil makes the values of a gradient wrong.
func (s *saboteur) spoil(values []byte, now time.Duration) {
	if s.act.Fault != "wrong-gradient" || len(values) < 4 || !s.on(now) || !s.next() {
		return
	}
	lane := values[len(values)-4:]
	binary.BigEndian.PutUint32(lane, binary.BigEndian.Uint32(lane)+1)
}

// drops reports whether a PS loses the packet that arrived.
func (s *saboteur) drops(now time.Duration) bool {
	return s.act.Fault == "ps-drops" && s.on(now) && s.next()
}

// result makes a result wrong that a PS is about to send. What it is made of stays as it is.
func (s *saboteur) result(b []byte, now time.Duration) []byte {
	if s.act.Fault != "ps-wrong-sums" || len(b) <= ina.HeaderLen || !s.on(now) || !s.next() {
		return b
	}
	b = bytes.Clone(b)
	b[len(b)-1] ^= 1 << 4
	return b
}

// restarts reports whether the role is to begin again from nothing.
func (s *saboteur) restarts(now time.Duration) bool {
	return s.act.Fault == "restart" && s.on(now) && s.acted.CompareAndSwap(0, 1)
}

// restart has the worker forget all that it has done, and where it is.
func (k *worker) restart(now time.Duration) (err error) {
	if k.w, err = k.again(); err != nil {
		return err
	}
	k.msg, k.pace = newMessage(k.cfg), pacer{gap: k.pace.gap, scatter: k.pace.scatter}
	k.w.Allow(ina.Startup, now)
	return nil
}

// tell is an event as it is told.
func (s *saboteur) tell(e Event) Event {
	if s == nil {
		return e
	}
	if e.Stats != nil {
		stats := *e.Stats
		stats.Sabotaged = s.acted.Load()
		e.Stats = &stats
	}
	if s.act.Fault == "jump-clock" && s.on(time.Duration(e.T*1e9)) {
		s.acted.Add(1)
		e.T += sabotage.Jump.Seconds()
	}
	return e
}

// delay keeps an event that is to come late, and returns those that are due.
func (s *saboteur) delay(e Event) []Event {
	if s == nil || s.act.Fault != "report-late" || !s.on(time.Duration(e.T*1e9)) {
		return []Event{e}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = append(s.late, e)
	n := 0
	for n < len(s.late) && s.late[n].T <= e.T-sabotage.Late.Seconds() {
		n++
	}
	due := slices.Clone(s.late[:n])
	s.late = s.late[n:]
	s.acted.Add(1)
	return due
}

// rest are the events that have not come yet.
func (s *saboteur) rest() []Event {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.late
	s.late = nil
	return out
}
