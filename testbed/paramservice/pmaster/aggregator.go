package pmaster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
	"github.com/inabench/inabench/testbed/paramservice/wire"
)

// aggregator is one that has been asked for, or has come back to a new pMaster.
type aggregator struct {
	node
	id       int32
	address  string
	began    time.Time
	left     chan struct{}
	released bool // by the planner
	jobs     map[uint32]admission
	owed     []uint32 // jobs that have ended while it was not there
	reserved control.Reserve

	span, busy, cpu time.Duration // by its reports
}

// admission is what an Aggregator knows of a job.
type admission uint8

const (
	unasked admission = iota
	asked
	admitted
)

func newAggregator(id int32) *aggregator {
	return &aggregator{id: id, began: time.Now(), left: make(chan struct{}), jobs: map[uint32]admission{}}
}

func (a *aggregator) ref(e string) Event { return Event{Event: e, Aggregator: &a.id} }

// counted is an event with the number of Aggregators.
func (m *Master) counted(e Event) { e.Aggregators = new(len(m.aggs)); m.emit(e) }

// allocate has an Aggregator started.
func (m *Master) allocate(id int32) {
	a := newAggregator(id)
	m.aggs[id] = a
	m.counted(a.ref("allocate"))
	m.work.Go(func() { m.start(a) })
}

// start starts an Aggregator's process, and watches it until it has left.
func (m *Master) start(a *aggregator) {
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	joined := time.AfterFunc(m.cfg.Start, func() {
		_ = m.do(func() {
			if m.aggs[a.id] == a && a.life == 0 {
				m.lose(a, fmt.Sprintf("it has not joined within %v", m.cfg.Start), 0)
			}
		})
	})
	defer joined.Stop()
	p, err := m.launch(ctx, a)
	if err != nil {
		_ = m.do(func() {
			if m.aggs[a.id] == a {
				m.lose(a, err.Error(), 0)
			}
		})
		return
	}
	select {
	case <-a.left:
	case <-p.Done():
		_ = m.do(func() {
			switch {
			case m.aggs[a.id] != a:
			case a.life == 0: // the next one would fare no better
				m.lose(a, "its process has ended before it has joined", 0)
			default:
				m.lose(a, "its process has ended", anyNumber)
			}
		})
		return
	case <-m.ctx.Done():
		select {
		case <-a.left: // Close
		default:
			return // Abandon
		}
	}
	m.mu.Lock()
	told := a.life != 0
	m.mu.Unlock()
	if told { // that it is released, by the end of its connection, and ends by itself; who has not joined has not heard of it
		select {
		case <-p.Done():
		case <-time.After(m.cfg.Lease):
		}
	}
	stop, done := context.WithTimeout(context.Background(), stopTimeout)
	defer done()
	if err := p.Stop(stop); err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		e := a.ref("error")
		e.Why = fmt.Sprintf("stop: %v", err)
		m.emit(e)
	}
}

// launch asks the pool, some times.
func (m *Master) launch(ctx context.Context, a *aggregator) (Process, error) {
	if int(a.id)/aggregatorsPerEpoch != int(m.file.epoch-1) {
		return nil, fmt.Errorf("%w: all %d ids of this epoch are used up: pMaster is to be started anew", ErrStart, aggregatorsPerEpoch)
	}
	var err error
	for n := range startAttempts {
		if n > 0 {
			select {
			case <-time.After(startRetry << n):
			case <-a.left:
			case <-ctx.Done():
			}
		}
		select {
		case <-a.left:
			return nil, ErrStart
		case <-ctx.Done():
			return nil, ErrClosed
		default:
		}
		var p Process
		if p, err = m.cfg.Pool.Start(ctx, a.id); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrStart, err)
}

// attachAggregator takes an Aggregator, or refuses it with gRPC's error.
func (m *Master) attachAggregator(g *wire.Greeting, c *conn) (member, error) {
	id := g.Aggregator.ID
	a := m.aggs[id]
	switch {
	case a == nil && m.restoring && int(id) < m.cfg.Plan.First:
		a = newAggregator(id)
		m.aggs[id] = a
	case a == nil:
		return nil, status.Errorf(codes.NotFound, "no Aggregator %d is wanted: it was released or taken for dead, or is none of this service", id)
	case a.life != 0 && a.life != g.Life:
		return nil, status.Errorf(codes.FailedPrecondition, "Aggregator %d is another process: ids are not given twice", id)
	case a.life != 0 && a.address != g.Aggregator.Address:
		return nil, status.Errorf(codes.FailedPrecondition, "Aggregator %d was at %s, and not at %s", id, a.address, g.Aggregator.Address)
	}
	first := a.life == 0
	a.attach(g.Life, c)
	a.address = g.Aggregator.Address
	for _, id := range a.owed {
		a.send(control.Dismiss{Job: id})
	}
	a.owed = nil
	a.reserved = control.Reserve{}
	m.planned = true
	for _, j := range m.jobs {
		if a.jobs[j.ID] != unasked { // it, or its answer, may have been lost
			a.jobs[j.ID] = asked
			a.send(control.Admit{Job: j.Job})
		}
		m.dirty[j] = true
	}
	if first {
		e := a.ref("joined")
		e.Address, e.Seconds = a.address, time.Since(a.began).Seconds()
		m.emit(e)
	}
	return a, nil
}

// introduce tells a node where an Aggregator is, unless it knows.
func (m *Master) introduce(n *node, a *aggregator) {
	if a != nil && a.address != "" && n.conn.live() && !n.known[a.id] {
		n.known[a.id] = true
		n.send(control.Peers{Aggregators: []control.Peer{{ID: a.id, Address: a.address}}})
	}
}

// ready says whether a job's tensors may go to an Aggregator, and sees to it that they soon may.
func (m *Master) ready(a *aggregator, j *job) bool {
	switch {
	case !a.conn.live():
		return false
	case a.jobs[j.ID] == unasked:
		a.jobs[j.ID] = asked
		a.send(control.Admit{Job: j.Job})
		for _, w := range j.workers {
			m.introduce(&w.node, a)
		}
	}
	return a.jobs[j.ID] == admitted
}

func (a *aggregator) at() *node      { return &a.node }
func (a *aggregator) String() string { return fmt.Sprintf("Aggregator %d", a.id) }

func (a *aggregator) expel(m *Master, why string) { m.lose(a, why, anyNumber) }

// take implements member.
func (a *aggregator) take(m *Master, msg control.Message) error {
	if m.aggs[a.id] != a {
		return nil // it has left, and does not know it yet
	}
	switch msg := msg.(type) {
	case control.Migrate:
		switch msg.Message.Kind {
		case migrate.Migrating, migrate.CopyDone, migrate.WorkerDone:
		default:
			return fmt.Errorf("%v: %w", msg.Message.Kind, errSender)
		}
		j := m.jobs[msg.Key.Job]
		switch {
		case msg.Message.From != (migrate.Node{Role: migrate.Aggregator, ID: a.id}) || msg.Message.To.Role != migrate.PMaster:
			return fmt.Errorf("%v of %v from %v: %w", msg.Message.Kind, msg.Key, msg.Message.From, errSender)
		case j == nil:
			return nil // it is over
		case int64(msg.Key.Tensor) >= int64(len(j.tensors)):
			return fmt.Errorf("%v of %v, which has %d: %w", msg.Message.Kind, msg.Key, len(j.tensors), errSender)
		}
		return m.heard(j.tensors[msg.Key.Tensor], msg.Message)
	case control.Admitted:
		if j := m.jobs[msg.Job]; j != nil && a.jobs[msg.Job] == asked {
			a.jobs[msg.Job] = admitted
			m.dirty[j] = true
		}
	case control.Failed:
		if j := m.jobs[msg.Job]; j != nil && a.had(j) { // of others it has nothing to say
			m.doom(j, msg.Why)
		}
	case control.AggregatorReport:
		m.aggregatorReport(a, &msg)
	default:
		return fmt.Errorf("%T: %w", msg, errSender)
	}
	return nil
}

// had says whether an Aggregator has, or may have had, something of a job: it was asked to, or had it before this pMaster was,
// as workers say.
func (a *aggregator) had(j *job) bool {
	return a.jobs[j.ID] != unasked || slices.ContainsFunc(j.tensors, func(t *tensor) bool {
		if slices.Contains(t.from, a.id) {
			return true
		}
		if t.m == nil {
			return false
		}
		at, _, _ := t.m.At()
		return at == a.id
	})
}

// lose takes an Aggregator for dead. Its tensors go elsewhere, in at most so many new ones.
func (m *Master) lose(a *aggregator, why string, most int) {
	if m.aggs[a.id] != a {
		return
	}
	m.remove(a, "lost", why, status.Errorf(codes.NotFound, "Aggregator %d was taken for dead: %s", a.id, why))
	if !m.restoring {
		change, stranded, err := m.plan.Lost(int(a.id), most)
		if err == nil { // one that was released is not the planner's any more
			for _, name := range stranded {
				if j := m.names[name]; j != nil {
					m.doom(j, fmt.Sprintf("no room for what it had on Aggregator %d, which is lost: %s", a.id, why))
				}
			}
			m.apply(change)
		}
	}
	for _, j := range m.jobs {
		m.down(j, a.id)
	}
}

// down tells a job's tensors that an Aggregator is dead.
func (m *Master) down(j *job, id int32) {
	if !j.started {
		return
	}
	for _, t := range j.tensors {
		m.drive(t, func(o *output) { t.m.Down(id, o) })
	}
}

// remove forgets an Aggregator: a node that has its connection ended with an error, or none.
func (m *Master) remove(a *aggregator, how, why string, err error) {
	delete(m.aggs, a.id)
	close(a.left)
	a.conn.close(err)
	e := a.ref(how)
	e.Why = why
	m.counted(e)
}

// vacate ends Aggregators that were released and have no tensors any more.
func (m *Master) vacate() {
	for _, a := range m.aggs {
		if a.released && !m.used(a.id) {
			m.remove(a, "released", "", nil)
		}
	}
}

// used says whether an Aggregator may have something that is needed.
func (m *Master) used(id int32) bool {
	for _, j := range m.jobs {
		if !j.started {
			continue
		}
		for _, t := range j.tensors {
			at, _, settled := t.m.At()
			if settled && at == id || !settled && slices.Contains(t.from, id) {
				return true
			}
		}
	}
	return false
}

// apply begins to carry out a change of the plan.
func (m *Master) apply(c paramservice.Change) {
	m.planned = true
	for _, id := range c.Allocated {
		m.allocate(int32(id))
	}
	for _, v := range c.Moves {
		if j := m.names[v.Job]; j != nil {
			m.dirty[j] = true
		}
	}
	for _, id := range c.Released {
		if a := m.aggs[int32(id)]; a != nil && !a.released {
			a.released = true
			m.emit(a.ref("release"))
		}
	}
}

// reserve gives Aggregators their cycles.
func (m *Master) reserve() {
	want := map[int32]*control.Reserve{}
	for _, c := range m.plan.Clusters() {
		for _, a := range c.Aggregators() {
			want[int32(a.ID)] = &control.Reserve{Cycle: a.Cycle}
		}
		for _, name := range c.Jobs() {
			j := m.names[name]
			if j == nil || j.measured == nil {
				continue
			}
			for i, id := range c.Where(name) {
				if r := want[int32(id)]; r != nil {
					r.Slots = append(r.Slots, control.Slot{Key: j.tensors[i].key, Iteration: j.measured.Iteration, Exec: j.measured.Tasks[i]})
				}
			}
		}
	}
	for id, a := range m.aggs {
		r := want[id]
		switch {
		case !a.conn.live() || r != nil && a.has(r): // what it has does fit
			continue
		case r == nil || !fits(r):
			r = &control.Reserve{} // what it has is served in the time that is left
		}
		if !a.has(r) {
			a.reserved = *r
			a.send(*r)
		}
	}
}

// has says whether it has a reservation already.
func (a *aggregator) has(r *control.Reserve) bool {
	return r.Cycle == a.reserved.Cycle && slices.Equal(r.Slots, a.reserved.Slots)
}

// fits says whether there is such a cycle.
func fits(r *control.Reserve) bool {
	var slots []paramservice.Slot
	for _, s := range r.Slots {
		slots = append(slots, paramservice.Slot{Iteration: s.Iteration, Exec: s.Exec})
	}
	_, err := paramservice.NewSlots(r.Cycle, slots)
	return len(slots) > 0 && err == nil
}
