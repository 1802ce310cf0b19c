package sharing

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/testbed/mina/commit"
	"github.com/inabench/inabench/testbed/mina/sharing/wire"
)

// HostConfig is how a host of a job joins its group.
type HostConfig struct {
	Controller string // host:port
	Listen     string // host:port on which the controller and the job's other hosts reach this one; port 0: any
	Job        uint32 // as the allocation controller calls it, at least 1
	Rank       uint32
	Hosts      int    // of the job
	Run        uint64 // of the job, at least 1: greater each time it is started, and the same on all hosts
	Steps      uint64 // of the job; 0: not known

	Times  commit.Times  // the zero value: commit.Default
	Report time.Duration // between reports; 0: 100 ms
	faults faults        // nil outside of tests
	Log    *Log
}

// Host is a Decider that decides by the state that the hosts of a sharing group have agreed
// on with the controller, without asking anybody.
//
// It never waits for a network. Until there is a state, or without a controller, it does
// not ask for INA.
type Host struct {
	cfg  HostConfig
	post *post
	life uint64
	in   chan commit.Message
	stop chan struct{}
	once sync.Once
	done sync.WaitGroup

	// The mutex of Figure 9: the goroutine that calls Next has it while it decides, the
	// one that synchronizes while it handles a message. What keeps Next waiting from
	// Prepare on is the machine's lock.
	mu       sync.Mutex
	machine  *commit.Host
	freed    chan struct{} // closed when the machine unlocks
	closed   bool
	peers    []string
	plan     plan
	pattern  *pattern
	applied  time.Time // the plan
	launched time.Time
	began    time.Time // the step, estimated from its first operation
	running  bool
	ina      bool
	drift    float64
	refused  uint64
	out      commit.Output
}

// Join starts a host. It returns at once, whether or not there is a controller.
func Join(cfg HostConfig) (*Host, error) {
	if cfg.Job == 0 || cfg.Run == 0 || int(cfg.Rank) >= cfg.Hosts {
		return nil, fmt.Errorf("join sharing group: rank %d of %d hosts in run %d of job %d", cfg.Rank, cfg.Hosts, cfg.Run, cfg.Job)
	}
	if cfg.Times == (commit.Times{}) {
		cfg.Times = commit.Default()
	}
	if cfg.Report == 0 {
		cfg.Report = 100 * time.Millisecond
	}
	p, err := newPost(cfg.Listen, cfg.faults)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	h := &Host{
		cfg: cfg, post: p, life: uint64(now.UnixNano()),
		in: make(chan commit.Message, queued), stop: make(chan struct{}), freed: make(chan struct{}),
		machine:  commit.NewHost(commit.Node{Job: cfg.Job, Rank: cfg.Rank}, cfg.Run, cfg.Hosts, cfg.Times),
		launched: now, began: now,
	}
	close(h.freed)
	p.serve(h.take)
	h.done.Go(h.synchronize)
	return h, nil
}

// take is a message that comes.
func (h *Host) take(w *wire.Message) {
	m := fromWire(w)
	if m.Run != h.cfg.Run || m.To != (commit.Node{Job: h.cfg.Job, Rank: h.cfg.Rank}) {
		return // for who was here before
	}
	if peers := w.GetPeers(); len(peers) == h.cfg.Hosts {
		h.mu.Lock()
		h.peers = peers
		h.mu.Unlock()
	}
	select {
	case h.in <- m:
	case <-h.stop:
	default: // too many; they are repeated
	}
}

// synchronize is Figure 9's synchronization thread.
func (h *Host) synchronize() {
	reports := time.NewTicker(h.cfg.Report)
	defer reports.Stop()
	lease := time.NewTimer(time.Hour)
	defer lease.Stop()
	var waiting commit.Timer
	h.mu.Lock()
	h.tell()
	h.mu.Unlock()
	for {
		var m commit.Message
		select {
		case <-h.stop:
			return
		case <-reports.C:
			h.mu.Lock()
			h.tell()
			h.mu.Unlock()
			continue
		case m = <-h.in:
			h.mu.Lock()
			about := ""
			if m.Kind == commit.Prepare {
				about = h.where()
			}
			h.machine.Handle(m, about, &h.out)
		case <-lease.C:
			h.mu.Lock()
			h.machine.Timeout(waiting, &h.out)
		}
		for _, a := range h.out.Timers {
			waiting = a.Timer
			lease.Reset(a.After)
		}
		h.carryOut()
		h.mu.Unlock()
	}
}

// carryOut does what the machine wants; the lock is held.
func (h *Host) carryOut() {
	h.cfg.Log.events(h.out.Events)
	for _, e := range h.out.Events {
		if e.Kind == commit.Applied {
			_, body := h.machine.State()
			p, err := planOf(body, h.cfg.Job)
			if err != nil { // alike on all hosts of the job
				h.cfg.Log.Write(Entry{What: "unreadable", Job: h.cfg.Job, Rank: h.cfg.Rank, Run: h.cfg.Run, Txn: e.Txn, Why: err.Error()})
			}
			h.plan, h.applied, h.drift = p, time.Now(), 0
		}
	}
	for i := range h.out.Messages {
		m := &h.out.Messages[i]
		to := h.cfg.Controller
		if m.To.Job != 0 {
			if int(m.To.Rank) >= len(h.peers) {
				continue
			}
			to = h.peers[m.To.Rank]
		}
		h.send(to, m)
	}
	h.out.Reset()
	free := true
	select {
	case <-h.freed:
	default:
		free = false
	}
	switch {
	case h.machine.Locked() && free:
		h.freed = make(chan struct{})
	case !h.machine.Locked() && !free:
		close(h.freed)
	}
}

func (h *Host) send(to string, m *commit.Message) {
	w := toWire(m)
	w.Life, w.Address = h.life, h.post.address()
	h.post.send(to, w)
}

// where tells where the host is; the lock is held.
func (h *Host) where() string {
	now := time.Now()
	text, _ := json.Marshal(where{now.Sub(h.launched).Seconds(), now.Sub(h.began).Seconds(), h.running, h.ina})
	return string(text)
}

// tell reports; the lock is held.
func (h *Host) tell() {
	version, _ := h.machine.State()
	r := report{Version: version, Drift: h.drift, Steps: h.cfg.Steps, Refused: h.refused}
	if h.cfg.Rank == 0 {
		r.Pattern = h.pattern
	}
	text, _ := json.Marshal(r)
	h.machine.Report(&h.out)
	h.out.Messages[len(h.out.Messages)-1].Body = string(text)
	h.carryOut()
}

// Next decides; see Decider.
func (h *Host) Next(ctx context.Context) (op uint64, ina bool, err error) {
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var waited time.Duration
	for h.machine.Locked() && !h.closed {
		freed, since := h.freed, time.Now()
		h.mu.Unlock()
		select {
		case <-freed:
		case <-h.stop:
		case <-ctx.Done():
		}
		h.mu.Lock()
		waited += time.Since(since)
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
	}
	if h.closed {
		return 0, false, ErrClosed
	}
	op, version, _, _ := h.machine.Next()
	ina, at, timed := h.plan.ask(op)
	now := time.Now()
	if timed {
		h.drift = now.Sub(h.applied).Seconds() - at
	}
	h.launched, h.running, h.ina = now, true, ina
	if p := h.pattern; p != nil && op%uint64(len(p.Ops)) == 0 {
		h.began = now.Add(-seconds(p.Ops[0].Start))
	}
	h.cfg.Log.Write(Entry{What: Operation, Job: h.cfg.Job, Rank: h.cfg.Rank, Run: h.cfg.Run, Txn: version, Index: op, INA: ina, Wait: waited.Nanoseconds()})
	return op, ina, nil
}

// Done says how an operation ended; see Decider.
func (h *Host) Done(op uint64, used bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = false
	if h.ina && !used {
		h.refused++
	}
	h.cfg.Log.Write(Entry{What: Ended, Job: h.cfg.Job, Rank: h.cfg.Rank, Run: h.cfg.Run, Index: op, INA: used})
}

// Learned gives the pattern; see Decider. The controller goes by that of rank 0.
func (h *Host) Learned(step float64, ops []tree.Op) error {
	if _, err := tree.NewPattern(step, ops, h.cfg.Hosts, tree.Cost{Bandwidth: 1, Ratio: 1}); err != nil {
		return fmt.Errorf("job %d: %w", h.cfg.Job, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pattern = nil
	if len(ops) > 0 {
		h.pattern = &pattern{step, slices.Clone(ops)}
	}
	return nil
}

// State is the transaction whose state the host has.
func (h *Host) State() commit.Txn {
	h.mu.Lock()
	defer h.mu.Unlock()
	version, _ := h.machine.State()
	return version
}

// Address is where the host is reached.
func (h *Host) Address() string { return h.post.address() }

// Close ends it. A Next that waits returns ErrClosed.
func (h *Host) Close() error {
	h.once.Do(func() {
		h.mu.Lock()
		h.closed = true
		h.mu.Unlock()
		close(h.stop)
		h.done.Wait()
		h.post.close()
	})
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
