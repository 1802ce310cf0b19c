package pmaster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// Errors.
var (
	// ErrClosed is that of a pMaster that has been closed.
	ErrClosed = errors.New("pMaster closed")
	// ErrStart is that of Aggregators that cannot be had.
	ErrStart = errors.New("no Aggregator to be had")
)

// Pool is where Aggregators run.
type Pool interface {
	// Start has an Aggregator started, which then joins under that id. It may return before it has.
	Start(ctx context.Context, id int32) (Process, error)
}

// Process is an Aggregator that a Pool has started.
type Process interface {
	// Done is closed when it has ended, for whatever reason.
	Done() <-chan struct{}
	// Stop ends it, if it has not ended by itself, as one does that is released.
	Stop(ctx context.Context) error
}

// Config is a pMaster's.
type Config struct {
	Plan  paramservice.MasterOptions // First is pMaster's own
	Pool  Pool
	State string // file that keeps the epoch; it is made if it is not there
	Times migrate.Times
	// Lease is how long a node may say nothing; 0: 3 s.
	Lease time.Duration
	// Grace is how long one that takes over waits for nodes to come back; 0: two leases.
	Grace time.Duration
	// Arrival is how long workers may take to attach first, and Start an Aggregator to join;
	// 0: a minute, and 30 s.
	Arrival time.Duration
	Start   time.Duration
	// Profile is over how many iterations a job is profiled; 0: 10.
	Profile int
	Period  time.Duration // of Plan.Periodic; 0: a minute
	Emit    func(Event)   // is told what happens, in order; must not call the Master; nil: nobody is
	// Observed is told what the planner is told of jobs that train, before it is; must not call the
	// Master; nil: nobody is.
	Observed func(job string, o paramservice.Observation)
}

// Ids of an epoch. The first epoch is 1.
const (
	aggregatorsPerEpoch = 1 << 14
	jobsPerEpoch        = 1 << 16
	maxEpoch            = 1 << 15
)

// retries of starting an Aggregator.
const (
	startAttempts = 3
	startRetry    = 200 * time.Millisecond
	stopTimeout   = 10 * time.Second
)

// Master is a pMaster. It is safe for concurrent use.
type Master struct {
	cfg    Config
	file   *epochFile
	began  time.Time
	ctx    context.Context // until Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	restored chan struct{} // closed when it knows what there is

	mu        sync.Mutex
	closed    bool
	restoring bool
	plan      *paramservice.Master
	jobs      map[uint32]*job
	names     map[string]*job
	next      uint32 // job
	aggs      map[int32]*aggregator
	over      map[uint32]string // why jobs have ended
	overs     []uint32          // in order, the last ones
	period    time.Time         // when the next one ends

	// What is to be done before mu is given back: see advance.
	dirty   map[*job]bool
	doomed  map[*job]string
	planned bool // reservations may have changed
}

// New starts a pMaster, which takes over if the one before with this State has not ended
// properly. The caller must Close it.
func New(cfg Config) (*Master, error) {
	cfg.Lease = cmp.Or(cfg.Lease, 3*time.Second)
	cfg.Grace = cmp.Or(cfg.Grace, 2*cfg.Lease)
	cfg.Arrival = cmp.Or(cfg.Arrival, time.Minute)
	cfg.Start = cmp.Or(cfg.Start, 30*time.Second)
	cfg.Period = cmp.Or(cfg.Period, time.Minute)
	cfg.Profile = cmp.Or(cfg.Profile, 10)
	cfg.Times = cmp.Or(cfg.Times, migrate.DefaultTimes())
	if cfg.Emit == nil {
		cfg.Emit = func(Event) {}
	}
	if cfg.Pool == nil || cfg.Lease < time.Millisecond || cfg.Profile < 0 {
		return nil, fmt.Errorf("pMaster: pool %v, lease %v, profiles of %d iterations", cfg.Pool, cfg.Lease, cfg.Profile)
	}
	file, err := openEpoch(cfg.State)
	if err != nil {
		return nil, fmt.Errorf("pMaster: %w", err)
	}
	cfg.Plan.First = int(file.epoch-1) * aggregatorsPerEpoch
	m := &Master{
		cfg: cfg, file: file, began: time.Now(), restored: make(chan struct{}), restoring: !file.clean,
		plan: paramservice.NewMaster(cfg.Plan), jobs: map[uint32]*job{}, names: map[string]*job{},
		next: uint32(file.epoch-1)*jobsPerEpoch + 1, aggs: map[int32]*aggregator{}, over: map[uint32]string{},
		dirty: map[*job]bool{}, doomed: map[*job]string{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.period = m.began.Add(cfg.Period)
	if !m.restoring {
		close(m.restored)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.emit(Event{Event: "epoch", Epoch: file.epoch})
	m.work.Go(m.watch)
	return m, nil
}

// Epoch is how many pMasters there have been with this State, this one included.
func (m *Master) Epoch() uint64 { return m.file.epoch }

// Close ends all jobs and releases all Aggregators. Nodes hear of it as far as they listen. It
// is idempotent.
func (m *Master) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	for _, j := range m.jobs {
		m.doom(j, "pMaster has been stopped")
	}
	m.advance()
	for _, a := range m.aggs {
		m.remove(a, "released", "pMaster has been stopped", nil)
	}
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	return errors.Join(m.wait(ctx), m.file.end())
}

// wait waits for goroutines.
func (m *Master) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		m.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close pMaster: %w", ctx.Err())
	}
}

// do is everything that comes from outside: f, and what follows from it. Its error is ErrClosed.
func (m *Master) do(f func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	f()
	m.advance()
	return nil
}

// advance does what is to be done until nothing is. The caller has the lock.
func (m *Master) advance() {
	for len(m.dirty)+len(m.doomed) > 0 {
		m.endDoomed()
		for j := range m.dirty {
			delete(m.dirty, j)
			m.reconcile(j)
		}
	}
	if m.planned && !m.restoring {
		m.planned = false
		m.reserve()
	}
	m.vacate()
}

// endDoomed ends the jobs that are to end.
func (m *Master) endDoomed() {
	for j, why := range m.doomed {
		delete(m.doomed, j)
		m.end(j, why)
	}
}

// doom ends a job as soon as that can be done.
func (m *Master) doom(j *job, why string) {
	if _, ok := m.doomed[j]; !ok && m.jobs[j.ID] == j {
		m.doomed[j] = why
	}
}

// watch takes notice of time that passes.
func (m *Master) watch() {
	tick := time.NewTicker(max(m.cfg.Lease/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case now := <-tick.C:
			_ = m.do(func() { m.look(now) })
		}
	}
}

// look says who is dead.
func (m *Master) look(now time.Time) {
	for _, j := range m.jobs {
		for _, w := range j.workers {
			w.conn.beat(now, m.cfg.Lease)
			switch {
			case w.conn.live() || m.restoring:
			case w.life == 0 && now.Sub(j.began) > m.cfg.Arrival:
				m.doom(j, fmt.Sprintf("worker %d has not come within %v", w.rank, m.cfg.Arrival))
			case w.life != 0 && now.Sub(w.gone) > m.cfg.Lease:
				m.doom(j, fmt.Sprintf("worker %d has vanished: nothing was heard of it for %v", w.rank, m.cfg.Lease))
			}
		}
	}
	for _, a := range m.aggs {
		a.conn.beat(now, m.cfg.Lease)
		if a.life != 0 && !a.conn.live() && !m.restoring && now.Sub(a.gone) > m.cfg.Lease {
			m.lose(a, fmt.Sprintf("nothing was heard of it for %v", m.cfg.Lease), anyNumber)
		}
	}
	if m.restoring && now.Sub(m.began) > m.cfg.Grace {
		m.restore()
	}
	if m.cfg.Plan.Periodic && !m.restoring && now.After(m.period) {
		m.period = now.Add(m.cfg.Period)
		m.apply(m.plan.Period())
	}
}

// anyNumber of new Aggregators may be taken, as far as the planner's options allow.
const anyNumber = 1 << 30

// sizes are those of a job's tensors, bytes.
func sizes(j control.Job) []int64 {
	out := make([]int64, len(j.Tensors))
	for i, t := range j.Tensors {
		out[i] = t.Bytes()
	}
	return out
}
