package online

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/queue"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/sim/replay"
)

// never is later than anything.
const never = time.Duration(math.MaxInt64)

// short is the error of a job that did another number of iterations than it was asked for.
type short struct {
	job string
	error
}

// Broken is by which code of package results it is known, and the job.
func (e *short) Broken() (code, job string) { return results.CodeIterations, e.job }

// hosts are where a job's workers are: "worker job1/0 on host h1, worker job1/1 on host h2".
func hosts(j *placement.JobPlan) string {
	var all []string
	for _, w := range j.Workers {
		all = append(all, fmt.Sprintf("worker %s/%d on host %s", j.Name, w.Rank, w.Host))
	}
	return strings.Join(all, ", ")
}

// state is a job on its way.
type state struct {
	*Job
	name   string
	submit time.Duration
	first  int             // the first period that could have placed it
	placed time.Duration   // when the policy did
	waited int             // periods, until then
	done   <-chan struct{} // closed when it has ended
	ended  bool
	result JobResult
}

// manager is one run. What is here is changed by the goroutine of Run alone.
type manager struct {
	cfg     Config
	dep     testbed.Deployment
	topo    *inventory.Topology
	origin  time.Duration // on the deployment's clock
	backlog float64       // bits in front of one link, at most

	jobs    []state
	order   []int // by submission
	arrived int   // of them
	waiting []int
	queue   *queue.Queue
	running []int // those that have begun
	c       *cluster.Cluster
	done    int

	period int  // the number of the last batch
	open   bool // something has changed since
	due    int  // the number of the next batch, if open

	ids    map[uint16]bool // that jobs have on the wire
	last   [2]uint16       // the last ones given: for which switches have room, and others
	halted []int           // jobs that are placed and wait for an id

	work  []*task
	tasks sync.WaitGroup

	reading bool
	next    time.Duration // reading
	looking sync.Mutex    // held while counters are read
}

// task is something that takes a while and that nothing else waits for. What then does
// afterwards is up to the goroutine of Run.
type task struct {
	over chan struct{}
	err  error
	then func() error
}

func newManager(cfg Config, dep testbed.Deployment, jobs []Job) (*manager, error) {
	if err := cfg.check(jobs); err != nil {
		return nil, err
	}
	m := &manager{
		cfg: cfg, dep: dep, topo: cfg.Inventory.Topology(), origin: dep.Now(),
		c: cluster.New(cfg.Cluster), queue: queue.New(cfg.Queue, cfg.Policy), period: -1, ids: map[uint16]bool{},
	}
	frame := 8 * float64(ina.Overhead+4*cfg.Settings.Lanes)
	networked := 0
	for i := range jobs {
		j := &jobs[i]
		m.jobs = append(m.jobs, state{Job: j, name: fmt.Sprintf("job%d", j.ID), submit: duration(j.Submit)})
		m.order = append(m.order, i)
		if packets := j.Window; j.GPUs > 1 {
			networked++
			if j.Traffic == cluster.PS {
				packets *= min(j.GPUs, len(cfg.Cluster.Servers))
			}
			m.backlog = max(m.backlog, float64(packets)*frame)
		}
	}
	m.backlog *= float64(min(networked, cfg.Cluster.GPUs()/2))
	slices.SortStableFunc(m.order, func(a, b int) int { return cmp.Compare(m.jobs[a].submit, m.jobs[b].submit) })
	return m, nil
}

func duration(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

func (m *manager) now() time.Duration { return m.dep.Now() - m.origin }

// run does what is due, and sleeps until something is. At one and the same time, jobs
// end first, then jobs arrive, and then a batch is placed.
func (m *manager) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer m.tasks.Wait()
	defer cancel()
	for m.done < len(m.jobs) || len(m.work) > 0 {
		if err := m.settle(); err != nil {
			return err
		}
		if err := m.ends(ctx); err != nil {
			return err
		}
		now := m.now()
		for m.nextArrival() <= now {
			m.arrive(m.order[m.arrived])
		}
		if m.nextBatch() <= now {
			if err := m.place(ctx); err != nil {
				return err
			}
		}
		if m.nextReading() <= now {
			m.read(ctx)
		}
		switch {
		case m.stuck():
			j := &m.jobs[m.waiting[0]]
			return fmt.Errorf("%w: %s does not place job %d (%d GPUs) though nothing runs", replay.ErrPolicy, m.cfg.Policy.Name(), j.ID, j.GPUs)
		case m.done == len(m.jobs) && len(m.work) == 0:
			continue
		}
		if err := m.sleep(ctx); err != nil {
			return err
		}
	}
	if m.cfg.Sample == nil {
		return nil
	}
	s, err := m.dep.Sample(ctx)
	return errors.Join(m.cfg.Sample(s), err)
}

// do begins a task, and ends it at once where time is virtual: it takes none.
func (m *manager) do(f, then func() error) {
	t := &task{over: make(chan struct{}), then: then}
	m.work = append(m.work, t)
	work := func() {
		defer close(t.over)
		t.err = f()
	}
	if m.cfg.Virtual {
		work()
	} else {
		m.tasks.Go(work)
	}
}

// sleep returns when something is to be done.
func (m *manager) sleep(ctx context.Context) error {
	var until []<-chan struct{}
	for _, t := range m.work {
		until = append(until, t.over)
	}
	for _, i := range m.running {
		until = append(until, m.jobs[i].done)
	}
	t := min(m.nextArrival(), m.nextBatch(), m.nextReading())
	if t < never-m.origin {
		t += m.origin
	}
	return m.dep.Sleep(ctx, t, until...)
}

// stuck reports whether those that wait will wait for ever.
func (m *manager) stuck() bool {
	return len(m.waiting) > 0 && !m.open && m.c.Jobs() == 0 && m.arrived == len(m.order)
}

// settle does what follows from tasks that are over.
func (m *manager) settle() error {
	for i := 0; i < len(m.work); {
		t := m.work[i]
		select {
		case <-t.over:
			m.work = slices.Delete(m.work, i, i+1)
			if t.err == nil {
				t.err = t.then()
			}
			if t.err != nil {
				return t.err
			}
		default:
			i++
		}
	}
	return nil
}

func (m *manager) nextArrival() time.Duration {
	if m.arrived == len(m.order) {
		return never
	}
	return m.jobs[m.order[m.arrived]].submit
}

func (m *manager) arrive(i int) {
	j := &m.jobs[i]
	m.arrived++
	j.first = m.periodAt(j.submit)
	m.changed(j.submit)
	m.waiting = append(m.waiting, i)
	m.progress()
}

// periodAt is the number of the first batch from t on that is still to come.
func (m *manager) periodAt(t time.Duration) int {
	n := m.period + 1
	if p := m.cfg.Period; p > 0 {
		n = max(n, int((t+p-1)/p))
	}
	return n
}

// changed says that at t something did which the next batch is for. A batch that
// nobody waited for was none.
func (m *manager) changed(t time.Duration) {
	if !m.open || len(m.waiting) == 0 {
		m.open, m.due = true, m.periodAt(t)
	}
}

// nextBatch is when the policy is asked next, as things are.
func (m *manager) nextBatch() time.Duration {
	if !m.open || len(m.waiting) == 0 {
		return never
	}
	return time.Duration(m.due) * m.cfg.Period
}

// place has the policy place a batch, and what it placed started.
func (m *manager) place(ctx context.Context) error {
	m.period, m.open = m.due, false
	smallest := math.MaxInt
	for _, i := range m.waiting {
		smallest = min(smallest, m.jobs[i].GPUs)
	}
	if smallest > m.c.TotalFree() {
		return nil
	}
	var batch []cluster.Job
	for _, i := range m.waiting {
		batch = append(batch, m.jobs[i].Asks(m.waited(i)))
	}
	if err := replay.Batch(m.c, m.queue, m.now().Seconds(), batch, m.cfg.Seed, m.period); err != nil {
		return err
	}
	var wait, placed []int
	for _, i := range m.waiting {
		if _, _, ok := m.c.Placement(m.jobs[i].ID); ok {
			placed = append(placed, i)
		} else {
			wait = append(wait, i)
		}
	}
	m.waiting = wait
	for _, i := range placed {
		m.jobs[i].placed, m.jobs[i].waited = m.now(), m.waited(i)
		if err := m.launch(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (m *manager) waited(i int) int { return max(0, m.period-m.jobs[i].first) }

// launch starts a job where the cluster has it now.
func (m *manager) launch(ctx context.Context, i int) error {
	j := &m.jobs[i]
	_, at, _ := m.c.Placement(j.ID)
	at = at.Clone()
	id, ok := m.newID(collective(j.Traffic) == placement.INA && !at.Local())
	if !ok {
		m.halted = append(m.halted, i)
		return nil
	}
	asks := placement.Job{ID: id, Name: j.name, GPUs: j.GPUs, Collective: collective(j.Traffic), NoPS: j.Traffic == cluster.Tree}
	plan, err := placement.JobPlanOf(m.topo, m.cfg.Inventory, &asks, at)
	if err != nil {
		return err
	}
	work := testbed.Workload{
		Job: plan, Window: j.Window, Control: j.Control, Iterations: int64(j.Iterations),
		Layers: []testbed.Layer{{Bytes: int64(math.Round(j.Bytes)), Compute: duration(j.Compute)}},
		RTO:    testbed.RTO(&plan, m.topo, m.backlog),
	}
	j.result = JobResult{
		JobResult: replay.JobResult{
			ID: j.ID, Submit: j.Submit, GPUs: j.GPUs, Iterations: j.Iterations, Compute: j.Compute, Waited: j.waited,
			Servers: len(at.Parts), Racks: replay.Racks(m.cfg.Cluster, at), Placement: at,
		},
		Placed: j.placed.Seconds(), Plan: plan,
	}
	var issued, begun time.Duration
	var got []results.Sample // counters as the job finds them
	m.do(func() (err error) {
		if err := m.dep.Add(ctx, plan, work); err != nil {
			return fmt.Errorf("job %d: %w", j.ID, err)
		}
		if got, err = m.look(ctx); err != nil {
			return err
		}
		issued = m.now()
		if err := m.dep.Start(ctx, plan.Name); err != nil {
			return fmt.Errorf("job %d: %w", j.ID, err)
		}
		begun = m.now()
		return nil
	}, func() error {
		j.result.Issued, j.result.Start = issued.Seconds(), begun.Seconds()
		j.done = m.dep.Done(j.name)
		m.running = append(m.running, i)
		m.progress()
		return m.sampled(got)
	})
	return nil
}

func collective(t cluster.Traffic) placement.Collective {
	switch t {
	case cluster.PS:
		return placement.PS
	case cluster.Ring:
		return placement.Ring
	}
	return placement.INA
}

// newID is an id on the wire, of a job with aggregation or without; not ok while all are
// taken. Those of jobs that have left are given again. Jobs without aggregation have those
// for which switches have no memory, if there are any.
func (m *manager) newID(aggregated bool) (id uint16, ok bool) {
	first, most, last := 1, cmp.Or(m.cfg.IDs, ina.MaxJob), &m.last[0]
	if !aggregated && most < ina.MaxJob {
		first, most, last = most+1, ina.MaxJob, &m.last[1]
	}
	for range most - first + 1 {
		if *last++; int(*last) < first || int(*last) > most {
			*last = uint16(first)
		}
		if !m.ids[*last] {
			m.ids[*last] = true
			return *last, true
		}
	}
	return 0, false
}

// ends lets jobs that have ended leave.
func (m *manager) ends(ctx context.Context) error {
	var left []int
	for _, i := range m.running {
		select {
		case <-m.jobs[i].done:
			if err := m.end(ctx, i); err != nil {
				return err
			}
		default:
			left = append(left, i)
		}
	}
	m.running = left
	return nil
}

func (m *manager) end(ctx context.Context, i int) error {
	j := &m.jobs[i]
	now := m.now()
	sum, err := m.dep.Summary(j.name)
	if err == nil && sum.Iterations != int64(j.Iterations) {
		err = &short{j.name, fmt.Errorf("ended after %d of %d iterations, by itself, on %s", sum.Iterations, j.Iterations, hosts(&j.result.Plan))}
	}
	if err != nil {
		return fmt.Errorf("job %d: %w", j.ID, err)
	}
	j.ended = true
	j.result.Summary, j.result.Seen = sum, now.Seconds()
	j.result.End = j.result.Start + sum.JCT
	if err := m.c.Leave(j.ID); err != nil {
		return err
	}
	m.done++
	m.changed(now)
	m.progress()
	var got []results.Sample // counters as the job leaves them
	m.do(func() (err error) {
		if m.cfg.Sample != nil { // its PS, too, says what it has counted when it ends
			if err := m.dep.Stop(ctx, j.name); err != nil {
				return fmt.Errorf("job %d: %w", j.ID, err)
			}
		}
		if got, err = m.look(ctx); err != nil {
			return err
		}
		if err := m.dep.Remove(ctx, j.name); err != nil {
			return fmt.Errorf("job %d: %w", j.ID, err)
		}
		return nil
	}, func() error {
		if err := m.sampled(got); err != nil {
			return err
		}
		delete(m.ids, j.result.Plan.ID)
		halted := m.halted
		m.halted = nil
		for _, i := range halted {
			if err := m.launch(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

func (m *manager) nextReading() time.Duration {
	if m.cfg.Sample == nil || m.reading {
		return never
	}
	return m.next
}

// read has the counters read. Readings keep to their grid; those that a busy machine
// missed are left out.
func (m *manager) read(ctx context.Context) {
	m.reading = true
	var got []results.Sample
	m.do(func() (err error) {
		got, err = m.look(ctx)
		return err
	}, func() error {
		m.reading = false
		m.next = (m.now()/m.cfg.Interval + 1) * m.cfg.Interval
		return m.sampled(got)
	})
}

// look reads all counters, one reading at a time; none where nobody wants them.
func (m *manager) look(ctx context.Context) ([]results.Sample, error) {
	if m.cfg.Sample == nil {
		return nil, nil
	}
	m.looking.Lock()
	defer m.looking.Unlock()
	return m.dep.Sample(ctx)
}

// sampled gives readings to who wants them.
func (m *manager) sampled(got []results.Sample) error {
	if m.cfg.Sample == nil || len(got) == 0 {
		return nil
	}
	return m.cfg.Sample(got)
}

func (m *manager) progress() {
	if m.cfg.Progress != nil {
		m.cfg.Progress(replay.Progress{
			Time: m.now().Seconds(), Waiting: len(m.waiting), Running: m.c.Jobs(), Done: m.done, Jobs: len(m.jobs),
		})
	}
}

func (m *manager) result() *Result {
	r := new(Result)
	for i := range m.jobs {
		if m.jobs[i].ended {
			r.Jobs = append(r.Jobs, m.jobs[i].result)
		}
	}
	r.Summary = replay.Summarise(m.cfg.Cluster, r.Replayed())
	return r
}
