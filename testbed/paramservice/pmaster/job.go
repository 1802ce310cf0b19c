package pmaster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
	"github.com/inabench/inabench/testbed/paramservice/wire"
)

// job is one that is registered.
type job struct {
	control.Job
	began    time.Time
	workers  []*worker
	tensors  []*tensor
	started  bool // its tensors have machines
	trained  bool // they have all been assigned once
	measured *wire.Measured

	migrations, recoveries int
	iterations             int64 // of the slowest worker
	nans                   int64
}

// worker is one of a job.
type worker struct {
	node
	job      *job
	rank     int32
	finished bool

	// Of reports since the job is calm.
	warm       bool // one was thrown away
	iterations int
	spent      time.Duration
	transfers  map[int32]control.Transfer
	// Since it came.
	total      int64
	totalSpent time.Duration
}

type (
	message = migrate.Message[control.None]
	output  = migrate.Output[control.None]
)

// tensor is pMaster's view of one.
type tensor struct {
	job   *job
	key   control.Key
	m     *migrate.Master[control.None]
	alarm migrate.Alarm

	learned bool // something is known of it
	orphan  bool // it needs a place
	placed  bool // it has been somewhere
	since   time.Time
	at      int32   // where it was settled last
	from    []int32 // that may have it, while it is not settled

	runs int // by reports since the job is calm
	busy time.Duration
	nans int64
}

func (j *job) servers() int { return max(1, j.Servers) }

// ref begins an event about the job.
func (j *job) ref(e string) Event { return Event{Event: e, Job: j.ID, Name: j.Name} }

func newJob(spec control.Job) *job {
	j := &job{Job: spec, began: time.Now()}
	for r := range spec.Workers {
		j.workers = append(j.workers, &worker{job: j, rank: int32(r)})
	}
	for i := range spec.Tensors {
		j.tensors = append(j.tensors, &tensor{job: j, key: control.Key{Job: spec.ID, Tensor: uint32(i)}})
	}
	return j
}

func (j *job) stop() {
	for _, t := range j.tensors {
		t.alarm.Stop()
	}
}

// Submit registers a job, and returns it with its id. Errors are gRPC's.
func (m *Master) Submit(ctx context.Context, spec control.Job) (control.Job, error) {
	var j *job
	err := m.known(ctx, func() (err error) {
		if j, err = m.submit(spec); err != nil {
			m.emit(Event{Event: "refused", Name: "job " + clean(spec.Name), Why: status.Convert(err).Message()})
		}
		return err
	})
	if err != nil {
		return control.Job{}, err
	}
	return j.Job, nil
}

// known does something as soon as it is known what there is. Errors are gRPC's.
func (m *Master) known(ctx context.Context, f func() error) (err error) {
	select {
	case <-m.restored:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-m.ctx.Done():
		return errGone
	}
	if m.do(func() { err = f() }) != nil {
		return errGone
	}
	return err
}

func (m *Master) submit(spec control.Job) (*job, error) {
	if spec.Servers > len(spec.Tensors) {
		return nil, status.Errorf(codes.InvalidArgument, "job %q: %d servers for %d tensors", spec.Name, spec.Servers, len(spec.Tensors))
	}
	if o := m.names[spec.Name]; o != nil {
		return nil, status.Errorf(codes.AlreadyExists, "a job %q is there already, with id %d", o.Name, o.ID)
	}
	if m.next == uint32(m.file.epoch)*jobsPerEpoch {
		return nil, status.Errorf(codes.ResourceExhausted, "all %d ids of this epoch are used up: pMaster is to be started anew", jobsPerEpoch-1)
	}
	change, err := m.plan.Arrive(spec.Name, max(1, spec.Servers), sizes(spec))
	if errors.Is(err, paramservice.ErrFull) {
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	} else if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	spec.ID = m.next
	m.next++
	j := newJob(spec)
	m.jobs[spec.ID], m.names[spec.Name] = j, j
	e := j.ref("registered")
	e.Workers, e.Tensors = spec.Workers, len(spec.Tensors)
	m.emit(e)
	m.apply(change)
	return j, nil
}

// End ends a job, whatever its workers do. Errors are gRPC's.
func (m *Master) End(ctx context.Context, id uint32, why string) error {
	return m.about(ctx, id, func(j *job) error {
		if why == "" {
			why = "it was deregistered"
		}
		m.doom(j, why)
		return nil
	})
}

// about does something with a job, as soon as it is known what there is.
func (m *Master) about(ctx context.Context, id uint32, f func(*job) error) error {
	return m.known(ctx, func() error {
		if j := m.jobs[id]; j != nil {
			return f(j)
		}
		return m.unknown(id)
	})
}

// Move has all tensors of a job go to other Aggregators, as Figure 13 does it, to see what that costs.
// Errors are gRPC's.
func (m *Master) Move(ctx context.Context, id uint32) error {
	return m.about(ctx, id, func(j *job) error {
		change, err := m.plan.Move(j.Name)
		if err != nil {
			return status.Error(codes.ResourceExhausted, err.Error())
		}
		m.apply(change)
		return nil
	})
}

// unknown says what became of a job that is not there.
func (m *Master) unknown(id uint32) error {
	switch why, ok := m.over[id]; {
	case ok && why == "":
		return status.Errorf(codes.NotFound, "job %d is over: all workers have finished", id)
	case ok:
		return status.Errorf(codes.NotFound, "job %d is over: %s", id, why)
	}
	return status.Errorf(codes.NotFound, "there is no job %d", id)
}

// attachWorker takes a worker, or refuses it with gRPC's error.
func (m *Master) attachWorker(g *wire.Greeting, c *conn) (member, error) {
	j := m.jobs[g.Job.ID]
	if j == nil {
		if _, ok := m.over[g.Job.ID]; ok || !m.restoring || g.Job.ID == 0 || g.Job.ID >= m.next {
			return nil, m.unknown(g.Job.ID)
		}
		if o := m.names[g.Job.Name]; o != nil {
			return nil, status.Errorf(codes.AlreadyExists, "a job %q is there already, with id %d", o.Name, o.ID)
		}
		j = newJob(g.Job)
		m.jobs[j.ID], m.names[j.Name] = j, j
	}
	if wrong := differences(&g.Job, &j.Job); len(wrong) > 0 {
		// A worker that has another job in mind than the others is of no use to them, but its rank may
		// come yet.
		return nil, status.Errorf(codes.InvalidArgument, "worker %d has another job %d, %q, than was registered: %s", g.Rank, j.ID, j.Name, strings.Join(wrong, "; "))
	}
	w := j.workers[g.Rank]
	switch {
	case w.life != 0 && w.life != g.Life && w.conn.live():
		return nil, status.Errorf(codes.AlreadyExists, "worker %d of job %d, %q, is there already", g.Rank, j.ID, j.Name)
	case w.life != 0 && w.life != g.Life:
		return nil, status.Errorf(codes.FailedPrecondition, "worker %d of job %d, %q, was another process, and its models are gone with it", g.Rank, j.ID, j.Name)
	}
	w.attach(g.Life, c)
	if j.measured == nil {
		j.measured = g.Measured
	}
	if j.measured != nil {
		c.remember(j.measured.Encode())
	}
	for _, a := range m.aggs {
		if a.jobs[j.ID] != unasked {
			m.introduce(&w.node, a)
		}
	}
	m.dirty[j] = true
	if !j.started && !slices.ContainsFunc(j.workers, func(w *worker) bool { return w.life == 0 }) {
		j.started = true
		for _, t := range j.tensors {
			t.m = migrate.NewMaster[control.None](m.Epoch(), j.Workers, m.cfg.Times)
			t.since = time.Now()
			m.drive(t, t.m.Start)
		}
	}
	return w, nil
}

// differences are those between what a worker takes for its job and what was registered.
func differences(a, b *control.Job) (out []string) {
	add := func(differ bool, format string, args ...any) {
		if differ {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(a.Name != b.Name, "name %q, not %q", a.Name, b.Name)
	add(a.Workers != b.Workers, "%d workers, not %d", a.Workers, b.Workers)
	add(a.Servers != b.Servers, "%d servers, not %d", a.Servers, b.Servers)
	add(a.Rate != b.Rate, "learning rate %v, not %v", a.Rate, b.Rate)
	add(len(a.Tensors) != len(b.Tensors), "%d tensors, not %d", len(a.Tensors), len(b.Tensors))
	more := 0
	for i := range min(len(a.Tensors), len(b.Tensors)) {
		if s, t := a.Tensors[i], b.Tensors[i]; s != t {
			if more++; more <= 8 {
				add(true, "tensor %d, %.80q, of %d values and %v of work, not %.80q of %d and %v", i, s.Name, s.Elements, s.Work, t.Name, t.Elements, t.Work)
			}
		}
	}
	add(more > 8, "and %d more tensors", more-8)
	return out
}

func (w *worker) at() *node { return &w.node }

func (w *worker) String() string {
	return fmt.Sprintf("worker %d of job %d, %q", w.rank, w.job.ID, w.job.Name)
}

func (w *worker) expel(m *Master, why string) { m.doom(w.job, why) }

// take implements member.
func (w *worker) take(m *Master, msg control.Message) error {
	j := w.job
	if m.jobs[j.ID] != j {
		return nil // it is over, and the worker does not know it yet
	}
	switch msg := msg.(type) {
	case control.Migrate:
		switch msg.Message.Kind {
		case migrate.Status, migrate.Fenced, migrate.Assigned, migrate.CopyDone, migrate.Stuck:
		default:
			return fmt.Errorf("%v: %w", msg.Message.Kind, errSender)
		}
		if msg.Key.Job != j.ID || int64(msg.Key.Tensor) >= int64(len(j.tensors)) || msg.Message.From != (migrate.Node{Role: migrate.Worker, ID: w.rank}) || msg.Message.To.Role != migrate.PMaster {
			return fmt.Errorf("%v of %v from %v: %w", msg.Message.Kind, msg.Key, msg.Message.From, errSender)
		}
		return m.heard(j.tensors[msg.Key.Tensor], msg.Message)
	case control.Failed:
		if msg.Job != j.ID {
			return fmt.Errorf("failure of job %d: %w", msg.Job, errSender)
		}
		m.doom(j, msg.Why)
	case control.Finished:
		if msg.Job != j.ID {
			return fmt.Errorf("end of job %d: %w", msg.Job, errSender)
		}
		w.finished = true
		if !slices.ContainsFunc(j.workers, func(w *worker) bool { return !w.finished }) {
			m.doom(j, "")
		}
	case control.WorkerReport:
		if msg.Job != j.ID || msg.Rank != w.rank {
			return fmt.Errorf("report of worker %d of job %d: %w", msg.Rank, msg.Job, errSender)
		}
		m.workerReport(w, &msg)
	default:
		return fmt.Errorf("%T: %w", msg, errSender)
	}
	return nil
}

// heard is a message about a tensor.
func (m *Master) heard(t *tensor, msg message) error {
	if e := max(msg.Term.Epoch, msg.Next.Epoch); e > m.Epoch() {
		return fmt.Errorf("%v in epoch %d, and this is %d: %w", msg.Kind, e, m.Epoch(), errSender)
	}
	if t.m == nil {
		return nil // it has not begun: of a pMaster before
	}
	switch msg.Kind {
	case migrate.Status:
		if !t.learned && msg.Term != (migrate.Term{}) {
			t.may(msg.At)
		}
	case migrate.Migrating:
		t.may(msg.From.ID)
	}
	was := t.orphan
	m.drive(t, func(o *output) { t.m.Handle(msg, o) })
	if msg.Kind == migrate.Stuck && t.orphan && !was {
		if a := m.aggs[msg.At]; a != nil {
			m.lose(a, fmt.Sprintf("%v of job %d, %q, gets no answer of it", msg.From, t.job.ID, t.job.Name), anyNumber)
		}
	}
	return nil
}

// may notes that an Aggregator may have the tensor.
func (t *tensor) may(id int32) {
	if !slices.Contains(t.from, id) {
		t.from = append(t.from, id)
	}
}

// drive has a tensor's machine do something, and does what it wants.
func (m *Master) drive(t *tensor, f func(*output)) {
	var o output
	f(&o)
	j := t.job
	for _, msg := range o.Messages {
		c := control.Migrate{Key: t.key, Message: msg}
		switch msg.To.Role {
		case migrate.Worker:
			j.workers[msg.To.ID].send(c)
		case migrate.Aggregator:
			if a := m.aggs[msg.To.ID]; a != nil {
				if msg.Kind == migrate.MigrateInit {
					m.introduce(&a.node, m.aggs[msg.At])
				}
				a.send(c)
			}
		}
	}
	for _, e := range o.Events {
		t.learned = true
		switch e.Kind {
		case migrate.Orphaned:
			t.orphan = true
			m.dirty[j] = true
		case migrate.Moving:
			t.may(e.At)
			m.dirty[j] = true
		case migrate.Settled:
			m.settled(t, e.At)
		case migrate.Failed:
			m.doom(j, fmt.Sprintf("tensor %d: %s", t.key.Tensor, e.Why))
		}
	}
	t.alarm.Set(o.Alarm, func() { m.timeout(t) })
}

func (m *Master) timeout(t *tensor) {
	_ = m.do(func() {
		if m.jobs[t.job.ID] == t.job {
			m.drive(t, t.m.Timeout)
		}
	})
}

// settled says that a tensor has come to its place.
func (m *Master) settled(t *tensor, at int32) {
	j := t.job
	n := int(t.key.Tensor)
	e := j.ref("migrated")
	e.Tensor, e.From, e.To, e.Seconds = &n, new(t.at), &at, time.Since(t.since).Seconds()
	switch {
	case !t.placed: // for the first time, or since pMaster took over
	case t.at == at:
	case slices.Contains(t.from, t.at):
		j.migrations++
		m.emit(e)
	default:
		j.recoveries++
		e.Event, e.From = "recovered", nil
		m.emit(e)
	}
	t.placed, t.orphan, t.at, t.from = true, false, at, nil
	m.dirty[j] = true
	if !j.trained && !slices.ContainsFunc(j.tensors, func(t *tensor) bool { return !t.placed }) {
		j.trained = true
		e := j.ref("training")
		e.Seconds = time.Since(j.began).Seconds()
		m.emit(e)
	}
}

// reconcile brings a job's tensors to where the planner wants them.
func (m *Master) reconcile(j *job) {
	if m.jobs[j.ID] != j {
		return
	}
	m.direct(j)
	where := m.plan.Where(j.Name)
	if !j.started || where == nil {
		return
	}
	for i, t := range j.tensors {
		a := m.aggs[int32(where[i])]
		at, _, settled := t.m.At()
		if a == nil || !t.orphan && (!settled || at == a.id) || !m.ready(a, j) {
			continue
		}
		t.since = time.Now()
		if t.orphan {
			t.orphan, t.from = false, []int32{a.id}
			m.drive(t, func(o *output) { t.m.Recover(a.id, o) })
		} else {
			t.from = []int32{at, a.id}
			m.drive(t, func(o *output) { t.m.Migrate(a.id, o) })
		}
	}
}

// direct tells a job's workers where the Aggregators are that may have its tensors. A pMaster before may
// have crashed when it had begun a migration to one, and not told all of them.
func (m *Master) direct(j *job) {
	var ids []int32
	for _, t := range j.tensors {
		if ids = append(ids, t.from...); t.placed {
			ids = append(ids, t.at)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		for _, w := range j.workers {
			m.introduce(&w.node, m.aggs[id])
		}
	}
}

// calm says whether all tensors are where the planner wants them.
func (m *Master) calm(j *job) bool {
	where := m.plan.Where(j.Name)
	if !j.trained || where == nil {
		return false
	}
	for i, t := range j.tensors {
		if at, _, settled := t.m.At(); t.orphan || !settled || int(at) != where[i] {
			return false
		}
	}
	return true
}

// end ends a job.
func (m *Master) end(j *job, why string) {
	j.stop()
	delete(m.jobs, j.ID)
	delete(m.names, j.Name)
	delete(m.dirty, j)
	if len(m.overs) == 1<<10 {
		delete(m.over, m.overs[0])
		m.overs = m.overs[1:]
	}
	m.over[j.ID], m.overs = why, append(m.overs, j.ID)
	e := j.ref("ended")
	e.Why, e.Seconds = why, time.Since(j.began).Seconds()
	m.emit(e)
	for _, w := range j.workers {
		w.send(control.Dismiss{Job: j.ID, Why: why})
		w.conn.close(nil)
	}
	for _, a := range m.aggs {
		delete(a.jobs, j.ID) // it may know the job also from a pMaster before
		if a.send(control.Dismiss{Job: j.ID, Why: why}); !a.conn.live() {
			a.owed = append(a.owed, j.ID)
		}
	}
	if change, err := m.plan.Exit(j.Name); err == nil { // one that is stranded has left already
		m.apply(change)
	}
}
