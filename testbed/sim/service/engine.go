package service

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
)

// event is something that happens at a time; of several, the one that was planned first.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(a, b int) bool {
	return q[a].at < q[b].at || q[a].at == q[b].at && q[a].seq < q[b].seq
}
func (q events) Swap(a, b int) { q[a], q[b] = q[b], q[a] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	n := len(*q) - 1
	x := (*q)[n]
	(*q)[n] = event{}
	*q = (*q)[:n]
	return x
}

// timeline is what is to happen, and the time that it is.
type timeline struct {
	now   time.Duration
	seq   uint64
	queue events
}

// at plans something, for a time that is not over.
func (t *timeline) at(when time.Duration, do func()) {
	t.seq++
	heap.Push(&t.queue, event{when, t.seq, do})
}

// engine is a simulation that runs.
type engine struct {
	Config
	timeline
	net    network
	master *paramservice.Master
	jobs   []*job
	names  map[string]*job
	all    []*machine       // that ever were
	place  map[int]*machine // by what the planner calls them
	left   int              // jobs that have not left
	here   int              // Aggregators that are allocated
	asked  int              // servers that the jobs that are here asked for
	waits  []*job           // for temporary Aggregators
	idle   int              // periods in which all that are left waited
	beside bool             // there are background flows, or there were
	counts []Count
	log    []Change
	err    error
}

// job is one while it runs.
type job struct {
	Job
	engine  *engine
	tasks   []time.Duration
	tensors []tensor
	up      link // of a worker
	down    link
	servers []*machine             // of its own, with Static
	flows   map[*machine]*[2]*flow // up to it and down from it
	slower  func() float64
	began   time.Duration // the iteration
	pulled  int           // tensors, in it
	profile time.Duration // sum of its iterations on temporary Aggregators
	known   bool          // it is profiled
	since   map[*machine]foreign
	out     Outcome
	gone    bool
}

// tensor is one of a job while it runs.
type tensor struct {
	at     *machine // that has it; the workers' table
	target *machine // that it is to be on
	copied bool     // its content is where it is
	here   bool     // all gradients are there
}

func newEngine(c Config, jobs []Job) *engine {
	e := &engine{Config: c, names: map[string]*job{}, place: map[int]*machine{}, left: len(jobs)}
	if !c.Static {
		e.master = paramservice.NewMaster(c.Master)
	}
	for _, spec := range jobs {
		j := &job{Job: spec, engine: e, tasks: c.Tasks(&spec), tensors: make([]tensor, len(spec.Tensors)),
			up: link{rate: c.Rate}, down: link{rate: c.Rate}, flows: map[*machine]*[2]*flow{}, since: map[*machine]foreign{},
			slower: c.Slower(spec.Name)}
		e.jobs = append(e.jobs, j)
		e.names[j.Name] = j
		e.at(j.Arrive, func() { e.arrive(j) })
	}
	if e.master != nil && c.Master.Periodic {
		e.at(c.Period, e.period)
	}
	if c.Background > 0 {
		e.at(c.From, e.interfere)
	}
	return e
}

// run lets things happen until nothing is left to do.
func (e *engine) run(ctx context.Context) error {
	for n := 0; e.err == nil && e.left > 0; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at, sent := e.net.next()
		if len(e.queue) > 0 && (!sent || e.queue[0].at <= at) {
			at, sent = e.queue[0].at, false
		} else if !sent {
			return e.stuck()
		}
		if e.End > 0 && at > e.End {
			e.now = e.End
			return nil
		}
		e.now = at
		for _, done := range e.net.advance(at) {
			if done == nil {
				continue
			}
			e.at(at+e.Latency, done)
		}
		for len(e.queue) > 0 && e.queue[0].at <= at {
			heap.Pop(&e.queue).(event).do()
		}
	}
	return e.err
}

func (e *engine) stuck() error {
	var errs []error
	for _, j := range e.jobs {
		if !j.gone {
			errs = append(errs, fmt.Errorf("job %s %w", j.Name, ErrStuck))
		}
	}
	return errors.Join(errs...)
}

func (e *engine) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *engine) note(what What, name string) {
	e.log = append(e.log, Change{e.now, what, name})
}

func (e *engine) count() {
	c := Count{e.now, e.here, e.asked}
	if n := len(e.counts); n > 0 && e.counts[n-1].At == e.now {
		e.counts[n-1] = c
		return
	}
	e.counts = append(e.counts, c)
}

func (e *engine) result() *Result {
	r := &Result{End: e.now, Counts: e.counts, Changes: e.log}
	for _, j := range e.jobs {
		if !j.gone {
			j.out.End = e.now
		}
		r.Jobs = append(r.Jobs, j.out)
	}
	for _, m := range e.all {
		m.settle()
		if !m.closed {
			m.use.To = e.now
		}
		r.Machines = append(r.Machines, m.use)
	}
	return r
}

// arrive is a job that comes.
func (e *engine) arrive(j *job) {
	if e.Static {
		for range j.Servers {
			e.open()
		}
		j.servers = slices.Clone(e.all[len(e.all)-j.Servers:])
		for i := range j.tensors {
			j.put(i, j.servers[i%j.Servers])
		}
		j.known = true
		e.enter(j)
		return
	}
	bytes := make([]int64, len(j.Tensors))
	for i, t := range j.Tensors {
		bytes[i] = t.Bytes
	}
	change, err := e.master.Arrive(j.Name, j.Servers, bytes)
	if errors.Is(err, paramservice.ErrFull) {
		if !slices.Contains(e.waits, j) {
			e.waits = append(e.waits, j)
		}
		return
	} else if err != nil {
		e.fail(err)
		return
	}
	e.waits = slices.DeleteFunc(e.waits, func(k *job) bool { return k == j })
	e.apply(change)
	e.enter(j)
}

func (e *engine) enter(j *job) {
	j.out.Started, j.out.Start = true, e.now
	e.asked += j.Servers
	e.note(Arrived, j.Name)
	e.count()
	j.iterate()
	if e.Background > 0 && e.now > e.From {
		e.interfere()
	}
}

// exit takes a job away.
func (e *engine) exit(j *job) {
	j.gone, j.out.End = true, e.now
	e.left--
	e.asked -= j.Servers
	e.note(Left, j.Name)
	var touched []*machine
	for i := range j.tensors {
		for _, m := range []*machine{j.tensors[i].at, j.tensors[i].target} {
			if !slices.Contains(touched, m) {
				touched = append(touched, m)
			}
		}
		j.tensors[i].at.tensors--
		j.tensors[i].target.coming--
	}
	own := map[*flow]bool{}
	for _, pair := range j.flows {
		own[pair[0]], own[pair[1]] = true, true
	}
	clear(j.flows)
	e.net.remove(func(f *flow) bool { return own[f] })
	if e.Static {
		for _, m := range append(j.servers, touched...) {
			m.released = true
			m.drained()
		}
	} else {
		change, err := e.master.Exit(j.Name)
		if err != nil {
			e.fail(err)
			return
		}
		e.apply(change)
	}
	for _, m := range touched {
		m.plan()
		m.drained()
	}
	e.count()
	for _, k := range slices.Clone(e.waits) {
		e.arrive(k)
	}
}

// period is the end of one of pMaster's.
func (e *engine) period() {
	before := e.master.Waiting()
	change := e.master.Period()
	if len(change.Moves) > 0 {
		e.note(Period, "")
	}
	e.apply(change)
	e.settled(before)
	e.count()
	for _, k := range slices.Clone(e.waits) {
		e.arrive(k)
	}
	if e.asked == 0 && len(e.waits) == e.left {
		e.idle++ // the next period gives back what this one kept ready; then it is in vain
	} else {
		e.idle = 0
	}
	if e.idle > 2 {
		e.fail(e.stuck())
	}
	e.at(e.now+e.Period, e.period)
}

// settled notes who does not wait any more.
func (e *engine) settled(waited []string) {
	still := e.master.Waiting()
	for _, name := range waited {
		if !slices.Contains(still, name) {
			e.note(Settled, name)
		}
	}
}

// profiled tells pMaster what a job was like on temporary Aggregators.
func (e *engine) profiled(j *job) {
	j.known = true
	before := e.master.Waiting()
	change, err := e.master.Profiled(j.Name, j.profile/time.Duration(e.Profile-1), j.tasks)
	if err != nil {
		e.fail(err)
		return
	}
	e.apply(change)
	e.settled(append(before, j.Name))
	e.count()
}

// observe tells pMaster about an iteration.
func (e *engine) observe(j *job, took time.Duration) {
	o := paramservice.Observation{Now: e.now, Iterations: 1, Spent: took, Slow: map[int]float64{}}
	for id, m := range e.place {
		if j.flows[m] == nil {
			continue
		}
		was := j.since[m]
		own, others := m.foreign.own-was.own, m.foreign.others-was.others
		j.since[m] = m.foreign
		if own > 0 {
			o.Slow[id] = (own + others) / own
		}
	}
	out, err := e.master.Observe(j.Name, o)
	if err != nil {
		e.fail(err)
		return
	}
	if what, ok := verdicts[out.Verdict]; ok {
		name := out.Job
		if name == "" {
			name = j.Name
		}
		e.note(what, name)
		e.apply(out.Change)
		e.count()
	}
}

// apply carries out what pMaster wants.
func (e *engine) apply(c paramservice.Change) {
	for _, id := range c.Allocated {
		e.place[id] = e.open()
	}
	touched := map[int]bool{}
	for _, v := range c.Moves {
		touched[v.From], touched[v.To] = true, true
		j := e.names[v.Job]
		if v.To == paramservice.None || j.gone {
			continue
		}
		m := e.place[v.To]
		if t := &j.tensors[v.Task]; t.at == nil {
			j.put(v.Task, m)
		} else {
			j.move(v.Task, m)
		}
	}
	for _, c := range e.master.Clusters() {
		for _, a := range c.Aggregators() {
			m := e.place[a.ID]
			if m.cycle != a.Cycle || touched[a.ID] {
				m.cycle = a.Cycle
				m.plan()
			}
			for _, l := range a.Loads {
				j := e.names[l.Job]
				j.out.Loss = max(j.out.Loss, paramservice.Loss(a.Cycle, l.Iteration))
			}
		}
	}
	for _, id := range c.Released {
		m := e.place[id]
		delete(e.place, id)
		m.released = true
		m.drained()
	}
}

// migrate has all tensors of a job go to other machines, which take the place of theirs.
func (e *engine) migrate(j *job) {
	e.note(Migrated, j.Name)
	var from []*machine
	for i := range j.tensors {
		if m := j.tensors[i].target; !slices.Contains(from, m) {
			from = append(from, m)
		}
	}
	for _, old := range from {
		m := e.open()
		m.cycle = old.cycle
		for id, at := range e.place {
			if at == old {
				e.place[id] = m
			}
		}
		for _, k := range e.jobs {
			for i := range k.tensors {
				if k.tensors[i].target == old && !k.gone {
					k.move(i, m)
				}
			}
		}
		old.released = true
		m.plan()
		old.plan()
		old.drained() // which nothing had come to yet
	}
	e.count()
}

// interfere puts the background flows on the link of the Aggregator with the most bytes, as soon as there is one.
func (e *engine) interfere() {
	if e.beside {
		return
	}
	bytes := map[*machine]int64{}
	for _, j := range e.jobs {
		for i := range j.tensors {
			if m := j.tensors[i].target; m != nil && !j.gone {
				bytes[m] += j.Tensors[i].Bytes * int64(j.Workers)
			}
		}
	}
	var most *machine
	for _, m := range e.all {
		if !m.closed && bytes[m] > 0 && (most == nil || bytes[m] > bytes[most]) {
			most = m
		}
	}
	if most == nil {
		return
	}
	e.beside, most.use.Disturbed = true, true
	e.note(Disturbed, "")
	n := float64(e.Background)
	e.net.add(&flow{uses: []use{{&most.out, n}}, endless: true, foreign: &most.foreign, weight: n})
}

// put gives a new tensor its first place.
func (j *job) put(i int, m *machine) {
	j.tensors[i] = tensor{at: m, target: m, copied: true}
	m.tensors++
	m.coming++
}

// move says where a tensor is to go: when its workers pull it next.
func (j *job) move(i int, m *machine) {
	t := &j.tensors[i]
	t.target.coming--
	t.target = m
	m.coming++
}

// flow is that of the workers with an Aggregator, up (0) or down (1).
func (j *job) flow(m *machine, way int) *flow {
	if j.flows[m] == nil {
		n := float64(j.Workers)
		j.flows[m] = &[2]*flow{
			j.engine.net.add(&flow{uses: []use{{&j.up, 1}, {&m.in, n}}}),
			j.engine.net.add(&flow{uses: []use{{&m.out, n}, {&j.down, 1}}, foreign: &m.foreign, weight: n}),
		}
		j.since[m] = m.foreign
	}
	return j.flows[m][way]
}

// iterate begins an iteration.
func (j *job) iterate() {
	e := j.engine
	j.began, j.pulled = e.now, 0
	slower := j.slower()
	for i := range j.tensors {
		e.at(e.now+time.Duration(float64(j.Tensors[i].Ready)*slower), func() { j.push(i) })
	}
}

// push is a tensor whose gradients are ready.
func (j *job) push(i int) {
	m := j.tensors[i].at
	j.engine.net.send(j.flow(m, 0), 8*float64(j.Tensors[i].Bytes), func() {
		j.tensors[i].here = true
		j.request(i)
	})
}

// request has the sum be made if everything that it takes is there.
func (j *job) request(i int) {
	if t := &j.tensors[i]; t.here && t.copied {
		t.at.request(j, i)
	}
}

// served has the workers pull a tensor, and learn that it is elsewhere from now on.
func (j *job) served(i int) {
	e, t := j.engine, &j.tensors[i]
	t.here = false
	old := t.at
	redirect := t.target != old
	if redirect {
		t.copied = false
		t.at = t.target
		j.out.Moved++
		t.at.tensors++
		old.copying++
		old.tensors--
	}
	sent := func() {
		j.pulled++
		if j.pulled == len(j.tensors) {
			j.ended()
		}
	}
	bits := 8 * float64(j.Tensors[i].Bytes)
	if !redirect {
		e.net.send(j.flow(old, 1), bits, sent)
		return
	}
	to := t.at
	old.plan()
	e.net.send(j.flow(old, 1), bits, func() {
		e.at(e.now+e.Packing, func() {
			e.net.send(old.copies(to), bits, func() {
				old.copying--
				old.drained()
				if !j.gone {
					t.copied = true
					j.request(i)
				}
			})
		})
		sent()
	})
}

// ended is the end of an iteration.
func (j *job) ended() {
	e := j.engine
	took := e.now - j.began
	j.out.Iterations = append(j.out.Iterations, Iteration{e.now, took})
	n := len(j.out.Iterations)
	if !j.known && n > 1 {
		j.profile += took
	}
	switch {
	case j.Iterations > 0 && n >= j.Iterations || j.Stay > 0 && e.now >= j.Arrive+j.Stay:
		e.exit(j)
		return
	case !j.known && n == e.Profile:
		e.profiled(j)
	case j.known && e.master != nil:
		e.observe(j, took)
	}
	if e.Migrate > 0 && j.known && n%e.Migrate == 0 && e.err == nil {
		e.migrate(j)
	}
	j.iterate()
}
