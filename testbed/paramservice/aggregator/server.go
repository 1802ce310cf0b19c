package aggregator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/data"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// Config is what an Aggregator has to know.
type Config struct {
	ID        int32         // given to no other, ever
	Listener  data.Listener // of Transport; its address is what pMaster tells others
	Transport data.Transport
	Link      control.Link
	Times     migrate.Times // 0: DefaultTimes
	Report    time.Duration // between reports to pMaster; 0: none
	Packing   time.Duration // until a tensor is ready to be copied to another Aggregator, as with protobuf (appendix B)
}

// Server is an Aggregator.
type Server struct {
	cfg   Config
	me    migrate.Node
	hub   *data.Hub
	core  *core
	pool  data.Pool
	began time.Time
	wg    sync.WaitGroup

	mu     sync.RWMutex
	jobs   map[uint32]*job
	unfit  string // why the last cycle is none
	closed bool
}

type job struct {
	spec    control.Job
	tensors []*tensor
}

// tensor is what an Aggregator has of one, master copy or not.
type tensor struct {
	server *Server
	key    control.Key
	spec   *control.Job
	size   int
	work   time.Duration

	mu     sync.Mutex
	over   bool // its job is
	holder *migrate.Holder[*data.Block]
	out    migrate.Output[*data.Block]
	alarm  migrate.Alarm
	asked  []asked // by rank
	doing  *work
	then   *work // by a later term, while the core is at an earlier one
	total  control.TensorReport
	told   control.TensorReport // reported
	odd    []bool               // ranks that it got values from that are not finite
}

// asked is a worker's last request.
type asked struct {
	at      time.Time
	term    migrate.Term
	version uint64
	push    bool
	block   *data.Block // nil as soon as it is summed
}

// Listen starts an Aggregator. Close ends it.
func Listen(cfg Config) *Server {
	cfg.Times = cmp.Or(cfg.Times, migrate.DefaultTimes())
	s := &Server{cfg: cfg, me: migrate.Node{Role: migrate.Aggregator, ID: cfg.ID}, jobs: map[uint32]*job{}, began: time.Now()}
	s.core = newCore(s.finish)
	s.wg.Go(s.core.run)
	s.hub = data.NewHub(data.Config{Self: data.AggregatorNode(cfg.ID), Transport: cfg.Transport, Listener: cfg.Listener, Handler: (*handler)(s)})
	return s
}

// Run does what pMaster says until the context ends, which it returns nil for, or the link.
// Data keeps flowing until Close.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if s.cfg.Report > 0 {
		wg.Go(func() { s.report(ctx) })
	}
	for {
		m, err := s.cfg.Link.Receive(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%v: %w", s.me, err)
		}
		switch m := m.(type) {
		case control.Admit:
			if err := s.admit(m.Job); err != nil {
				s.cfg.Link.Send(control.Failed{Job: m.Job.ID, Why: err.Error()})
				continue
			}
			s.cfg.Link.Send(control.Admitted{Job: m.Job.ID})
		case control.Dismiss:
			s.dismiss(m.Job)
		case control.Reserve:
			unfit := ""
			if err := s.core.reserve(m); err != nil {
				unfit = err.Error()
				_ = s.core.reserve(control.Reserve{})
			}
			s.mu.Lock()
			s.unfit = unfit
			s.mu.Unlock()
		case control.Peers:
			for _, p := range m.Aggregators {
				if p.ID != s.cfg.ID {
					s.hub.Know(p.ID, p.Address)
				}
			}
		case control.Migrate:
			if t := s.tensor(m.Key); t != nil {
				t.handle(control.With[*data.Block](m), nil)
			}
		}
	}
}

// Close ends it as a crash does: connections break, and nothing is handed over. It waits until
// nothing goes on.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	ids := make([]uint32, 0, len(s.jobs))
	for id := range s.jobs {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	s.hub.Close()
	for _, id := range ids {
		s.dismiss(id)
	}
	s.core.stop()
	s.wg.Wait()
}

// admit takes a job.
func (s *Server) admit(spec control.Job) error {
	if err := spec.Check(); err != nil {
		return fmt.Errorf("%v: %w", s.me, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.jobs[spec.ID] != nil {
		return nil
	}
	spec.Tensors = slices.Clone(spec.Tensors)
	j := &job{spec: spec}
	for i, t := range spec.Tensors {
		key := control.Key{Job: spec.ID, Tensor: uint32(i)}
		j.tensors = append(j.tensors, &tensor{server: s, key: key, spec: &j.spec, size: t.Elements, work: t.Work,
			holder: migrate.NewHolder[*data.Block](s.cfg.ID, spec.Workers, s.cfg.Times),
			asked:  make([]asked, spec.Workers), odd: make([]bool, spec.Workers),
			total: control.TensorReport{Key: key}, told: control.TensorReport{Key: key}})
	}
	s.jobs[spec.ID] = j
	return nil
}

// dismiss forgets a job.
func (s *Server) dismiss(id uint32) {
	s.mu.Lock()
	j := s.jobs[id]
	delete(s.jobs, id)
	s.mu.Unlock()
	if j == nil {
		return
	}
	s.core.drop(id)
	s.hub.Forget(id)
	s.pool.Empty()
	for _, t := range j.tensors {
		t.mu.Lock()
		t.over = true
		t.alarm.Stop()
		t.mu.Unlock()
	}
}

// tensor is one of a job that is here, or nil.
func (s *Server) tensor(k control.Key) *tensor {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if j := s.jobs[k.Job]; j != nil && int64(k.Tensor) < int64(len(j.tensors)) {
		return j.tensors[k.Tensor]
	}
	return nil
}

// handler is the server as its hub sees it.
type handler Server

// Place implements data.Handler: memory is taken only for what can be right.
func (h *handler) Place(_ *data.Peer, head *data.Header) *data.Block {
	s := (*Server)(h)
	if t := s.tensor(head.Key); t != nil && head.Elements == t.size {
		return s.pool.Get(head.Elements)
	}
	return nil
}

// Lost implements data.Handler. Whoever had something to say says it again.
func (h *handler) Lost(data.Node, error) {}

// errWrong is that of frames that no Agent or Aggregator sends.
var errWrong = errors.New("not from this node")

// Frame implements data.Handler.
func (h *handler) Frame(from *data.Peer, head *data.Header, b *data.Block) {
	s := (*Server)(h)
	t := s.tensor(head.Key)
	if t == nil || head.Elements == t.size && b == nil {
		// It has been told of the job later than others, even after the values had come, or never:
		// what has values is to be sent again.
		from.Send(data.Header{Kind: data.Unknown, Key: head.Key}, nil)
		return
	}
	if err := t.check(from.Who(), head, b); err != nil {
		from.Refuse(head.Key, err.Error())
		if who := from.Who(); who.Role == migrate.Worker && who.Job == head.Key.Job {
			s.cfg.Link.Send(control.Failed{Job: who.Job, Why: fmt.Sprintf("%v: %v: %v", who, s.me, err)})
		}
		return
	}
	t.handle(head.Message(from.Who().Node, s.me, b), from)
}

// check says whether a frame may come from a node.
func (t *tensor) check(who data.Node, head *data.Header, b *data.Block) error {
	mine := who.Role == migrate.Worker && who.Job == t.key.Job && int(who.ID) < t.spec.Workers
	var ok bool
	switch head.Kind {
	case migrate.Pull, migrate.Push, data.Poke:
		ok = mine
	case migrate.TensorCopy:
		ok = mine || who.Role == migrate.Aggregator
	case migrate.CopyAck:
		ok = who.Role == migrate.Aggregator
	}
	if !ok {
		return fmt.Errorf("%v of %v: %w", head.Kind, t.key, errWrong)
	}
	if values := head.Kind == migrate.Push || head.Kind == migrate.TensorCopy; b == nil && (values || head.Elements > 0) {
		return fmt.Errorf("%v of %v: %d values instead of %d", head.Kind, t.key, head.Elements, t.size)
	}
	return nil
}

// handle takes a message, from pMaster if there is no peer.
func (t *tensor) handle(m migrate.Message[*data.Block], from *data.Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	switch m.Kind {
	case data.Poke:
		a := &t.asked[m.From.ID]
		if !a.push || a.term != m.Term || a.version != m.Version {
			from.Send(data.Header{Kind: data.Unknown, Key: t.key}, nil)
			return
		}
		if m.Kind, m.Data = migrate.Push, a.block; a.block == nil { // it is in the next model
			m.Kind, m.Version = migrate.Pull, m.Version+1
		}
	case migrate.Push, migrate.Pull:
		t.asked[m.From.ID] = asked{at: time.Now(), term: m.Term, version: m.Version, push: m.Kind == migrate.Push, block: m.Data}
	}
	t.holder.Handle(m, &t.out)
	t.carryOut()
}

// carryOut does what the machine wants done. The caller has the lock.
func (t *tensor) carryOut() {
	s := t.server
	for _, m := range t.out.Messages {
		head := data.HeaderOf(t.key, &m)
		switch m.To.Role {
		case migrate.PMaster:
			s.cfg.Link.Send(control.Strip(t.key, m))
		case migrate.Worker:
			if a := &t.asked[m.To.ID]; m.Kind == migrate.Model && !a.at.IsZero() {
				head.Held = time.Since(a.at)
			}
			s.hub.Send(data.WorkerNode(t.key.Job, m.To.ID), head, m.Data)
		case migrate.Aggregator:
			if m.Kind == migrate.TensorCopy {
				m.Data.Use() // for ever: the machine may repeat it
				if s.cfg.Packing > 0 {
					time.AfterFunc(s.cfg.Packing, func() { t.copied(m.To.ID, head, m.Data) })
					continue
				}
			}
			s.hub.Send(data.AggregatorNode(m.To.ID), head, m.Data)
		}
	}
	for _, e := range t.out.Events {
		if e.Kind == migrate.Ready {
			t.ready(e)
		}
	}
	t.alarm.Set(t.out.Alarm, t.timeout)
	clear(t.out.Messages)
	t.out.Reset()
}

// copied sends a tensor that has been got ready to another Aggregator, unless its job is over.
func (t *tensor) copied(to int32, head data.Header, b *data.Block) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.server.hub.Send(data.AggregatorNode(to), head, b)
	}
}

func (t *tensor) timeout() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.holder.Timeout(&t.out)
		t.carryOut()
	}
}

// run is an update of a tensor.
type run struct {
	term      migrate.Term
	version   uint64
	model     *data.Block
	gradients []*data.Block
	next      *data.Block
	made      bool
	odd       int64
	spent     time.Duration // CPU time of the sum
	busy      time.Duration // of the core
	pool      *data.Pool
	rate      float32
}

// make makes the next model.
func (r *run) make() {
	began := threadTime()
	r.next = r.pool.Get(len(r.model.Values))
	values := make([][]float32, len(r.gradients))
	for i, g := range r.gradients {
		values[i] = g.Values
	}
	r.odd = update(r.next.Values, r.model.Values, values, r.rate)
	r.made, r.spent = true, threadTime()-began
}

// ready gives the core what there is to sum.
func (t *tensor) ready(e migrate.Event) {
	w := &work{tensor: t, real: t.work == 0, left: t.work, run: run{term: e.Term, version: e.Version, pool: &t.server.pool, rate: t.spec.Rate}}
	w.run.model, w.run.gradients = t.holder.Gradients()
	if t.doing != nil {
		t.then = w
		return
	}
	t.doing = w
	t.server.core.submit(w)
}

// finish is what the core has done.
func (s *Server) finish(w *work) {
	t, r := w.tensor, &w.run
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.account(w)
	before, held := t.holder.Holds()
	t.holder.Updated(r.term, r.version, r.next, &t.out)
	after, _ := t.holder.Holds()
	t.carryOut()
	if held && before == r.version && after == r.version+1 {
		for i, g := range r.gradients {
			if t.asked[i].block == g {
				t.asked[i].block = nil
			}
			g.Done()
		}
		r.model.Done()
	}
	if t.doing, t.then = t.then, nil; t.doing != nil {
		s.core.submit(t.doing)
	}
}

// account adds what was done to the statistics.
func (t *tensor) account(w *work) {
	t.total.Runs++
	t.total.Busy += w.run.busy
	switch w.turn {
	case paramservice.Spare:
		t.total.Spare++
	case paramservice.Postponed:
		t.total.Postponed++
	}
	if w.run.odd > 0 {
		t.total.NaNs += w.run.odd
		for i, g := range w.run.gradients {
			t.odd[i] = t.odd[i] || !finite(g.Values)
		}
	}
}

// Stats is what an Aggregator has done since it started.
type Stats struct {
	control.AggregatorReport
	Holding int           // master copies that it has
	Late    time.Duration // by how much sums took longer than the work that they emulate: 0, or the emulation is too slow
	Garbage int64         // connections that were closed because of what came on them
	Unfit   string        // what was wrong with the last cycle that pMaster reserved and that is none: tensors are served without slots
}

// Stats are those of the jobs that are here; Busy and CPU those of all there were.
func (s *Server) Stats() Stats {
	st := Stats{Garbage: s.hub.Garbage()}
	st.AggregatorReport, st.Late = s.totals()
	s.mu.RLock()
	st.Unfit = s.unfit
	s.mu.RUnlock()
	for _, t := range s.tensors() {
		t.mu.Lock()
		if _, ok := t.holder.Holds(); ok {
			st.Holding++
		}
		if r := t.report(); r.Runs > 0 {
			st.Tensors = append(st.Tensors, r)
		}
		t.mu.Unlock()
	}
	return st
}

// totals is what has been done since the start, without the tensors.
func (s *Server) totals() (r control.AggregatorReport, late time.Duration) {
	s.core.mu.Lock()
	defer s.core.mu.Unlock()
	return control.AggregatorReport{Span: time.Since(s.began), Busy: s.core.busy, CPU: processTime()}, s.core.late
}

// report is the tensor's totals. The caller has the lock.
func (t *tensor) report() control.TensorReport {
	r := t.total
	for i, odd := range t.odd {
		if odd {
			r.Ranks = append(r.Ranks, int32(i))
		}
	}
	return r
}

// tensors are all that are here, in order.
func (s *Server) tensors() (all []*tensor) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		all = append(all, s.jobs[id].tensors...)
	}
	return all
}

// processTime is the CPU time of this process, by the kernel.
func processTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// report tells pMaster what was done, again and again.
func (s *Server) report(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Report)
	defer tick.Stop()
	var last control.AggregatorReport
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, _ := s.totals()
		r := control.AggregatorReport{Span: now.Span - last.Span, Busy: now.Busy - last.Busy, CPU: now.CPU - last.CPU}
		for _, t := range s.tensors() {
			t.mu.Lock()
			n, was := t.report(), t.told
			t.told = n
			t.mu.Unlock()
			if n.Runs > was.Runs {
				n.Runs, n.Busy, n.NaNs = n.Runs-was.Runs, n.Busy-was.Busy, n.NaNs-was.NaNs
				n.Spare, n.Postponed = n.Spare-was.Spare, n.Postponed-was.Postponed
				r.Tensors = append(r.Tensors, n)
			}
		}
		s.cfg.Link.Send(r)
		last = now
	}
}
