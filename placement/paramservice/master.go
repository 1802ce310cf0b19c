package paramservice

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// MasterOptions are those of pMaster.
type MasterOptions struct {
	Options // of each cluster
	// Aggregators is how many there may be at once, temporary ones among them; 0: any number.
	Aggregators int
	// First is the id of the first Aggregator; the next ones are greater. No two have the same.
	First int
	// Periodic scales at Period, and in between only for jobs that together need more than
	// Threshold new Aggregators. Otherwise every arrival and exit scales.
	Periodic  bool
	Threshold int
	// LowPerf is the part of its standalone speed below which a job is assigned anew, after
	// Iterations.
	LowPerf    float64
	Iterations int
	// Interference is how many times as long as undisturbed transfers with an Aggregator take, compared with
	// those with the job's others, that is interfered with; until that is known, at least twice as long as in
	// the profile.
	Interference float64
	// FalseAlarm bounds the probability that reports from some one on ever tell of interference where
	// there is none; 0: DefaultFalseAlarm.
	FalseAlarm float64
	// Retry is how long an Aggregator without tensors gets nothing after it was interfered with, by
	// Observation.Now; each time that it is so again twice as long, up to 64 times. 0: DefaultRetry.
	Retry time.Duration
}

// DefaultMaster are the paper's options where it has some. Those about interference are our own choice.
func DefaultMaster() MasterOptions {
	return MasterOptions{Options: Default(), LowPerf: 1 - DefaultLossLimit, Iterations: 100, Interference: 1.25}
}

// Master is pMaster's planning: jobs come and are profiled on temporary Aggregators, then
// get their place in a cluster. It is not safe for concurrent use.
type Master struct {
	o        MasterOptions
	clusters []*Cluster
	jobs     map[string]*managed
	next     int // Aggregator
	count    int // Aggregators in clusters and temporary ones
	seq      int
	demand   int   // Aggregators that were newly taken or missing in this period
	reserve  int   // idle ones that are kept
	lent     []int // temporary ones of the job that is being placed: it may keep them
}

// managed is a job that has arrived.
type managed struct {
	name    string
	seq     int
	servers int
	at      []int // on temporary Aggregators, ids
	temp    []int // temporary Aggregators
	profile *Job
	cluster *Cluster // nil: still on temporary ones
	reverts int
	// What was observed since it was assigned, or judged.
	iterations int
	spent      time.Duration
	reports    int
	watch      watch // since it was assigned
}

// NewMaster is a service without jobs.
func NewMaster(o MasterOptions) *Master {
	if o.FalseAlarm == 0 {
		o.FalseAlarm = DefaultFalseAlarm
	}
	if o.Retry == 0 {
		o.Retry = DefaultRetry
	}
	return &Master{o: o, jobs: map[string]*managed{}, next: o.First}
}

// allocate gives n new ids, if so many Aggregators may be added.
func (m *Master) allocate(n int) ([]int, bool) {
	lent := min(n, len(m.lent))
	if m.o.Aggregators > 0 && m.count+n-lent > m.o.Aggregators {
		return nil, false
	}
	ids := slices.Clone(m.lent[:lent])
	m.lent = m.lent[lent:]
	for len(ids) < n {
		ids = append(ids, m.next)
		m.next++
		m.count++
	}
	return ids, true
}

// Size is how many Aggregators there are, temporary ones among them.
func (m *Master) Size() int { return m.count }

// Clusters are the clusters, to be looked at.
func (m *Master) Clusters() []*Cluster { return slices.Clone(m.clusters) }

// Waiting are the jobs that are profiled but have no place yet, in order of arrival.
func (m *Master) Waiting() []string {
	var out []string
	for _, j := range m.waiting() {
		out = append(out, j.name)
	}
	return out
}

func (m *Master) waiting() []*managed {
	var out []*managed
	for _, j := range m.jobs {
		if j.profile != nil && j.cluster == nil {
			out = append(out, j)
		}
	}
	slices.SortFunc(out, func(a, b *managed) int { return cmp.Compare(a.seq, b.seq) })
	return out
}

// Where is the Aggregator of each tensor of a job; nil if it is not known.
func (m *Master) Where(job string) []int {
	j := m.jobs[job]
	switch {
	case j == nil:
		return nil
	case j.cluster == nil:
		return slices.Clone(j.at)
	}
	return j.cluster.Where(job)
}

// Arrive gives a new job so many temporary Aggregators as it asks for servers, with the bytes
// of its tensors spread evenly, to be profiled there. Errors wrap ErrJob, ErrKnown or ErrFull.
func (m *Master) Arrive(job string, servers int, bytes []int64) (Change, error) {
	switch {
	case job == "" || servers < 1 || len(bytes) == 0 || slices.Min(bytes) < 0:
		return Change{}, fmt.Errorf("job %q: %w: %d servers, %d tensors", job, ErrJob, servers, len(bytes))
	case m.jobs[job] != nil:
		return Change{}, fmt.Errorf("job %s: %w", job, ErrKnown)
	}
	ids, ok := m.allocate(servers)
	if !ok {
		return Change{}, fmt.Errorf("job %s: %d temporary Aggregators: %w: there are %d", job, servers, ErrFull, m.count)
	}
	group, _ := spread(bytes, largestFirst(bytes), servers)
	m.seq++
	j := &managed{name: job, seq: m.seq, servers: servers, temp: ids, watch: newWatch()}
	change := Change{Allocated: slices.Clone(ids)}
	for task, g := range group {
		j.at = append(j.at, ids[g])
		change.Moves = append(change.Moves, Move{job, task, None, ids[g]})
	}
	m.jobs[job] = j
	return change, nil
}

// Profiled moves a job from its temporary Aggregators to a cluster, if there is room or there may
// be, by what was measured: how long its iterations take and its tensors each. Errors wrap
// ErrUnknown, ErrKnown if it was profiled before, or ErrJob.
func (m *Master) Profiled(job string, iteration time.Duration, tasks []time.Duration) (Change, error) {
	j := m.jobs[job]
	if j == nil {
		return Change{}, fmt.Errorf("job %s: %w", job, ErrUnknown)
	}
	if j.profile != nil {
		return Change{}, fmt.Errorf("job %s: profiled twice: %w", job, ErrKnown)
	}
	if len(tasks) != len(j.at) {
		return Change{}, fmt.Errorf("job %s: %w: %d tensors, profiled %d", job, ErrJob, len(j.at), len(tasks))
	}
	p := Job{Name: job, Iteration: iteration, Tasks: slices.Clone(tasks), Servers: j.servers}
	if err := p.Check(); err != nil {
		return Change{}, err
	}
	j.profile = &p
	var change Change
	if !m.o.Periodic {
		m.settle(j, 1<<30, &change)
		return change, nil
	}
	if !m.settle(j, 0, &change) && m.missing() > m.o.Threshold {
		m.admit(&change)
	}
	return change, nil
}

// missing is how many new Aggregators the waiting jobs need, each taken alone.
func (m *Master) missing() int {
	n := 0
	for _, j := range m.waiting() {
		c := NewCluster(m.o.Options, nil)
		c.o.Most = 0
		if _, err := c.Assign(*j.profile, 1<<30); err == nil {
			n += c.Size()
		}
	}
	return n
}

// admit places what waits, in new Aggregators if need be.
func (m *Master) admit(change *Change) {
	for _, j := range m.waiting() {
		m.settle(j, 1<<30, change)
	}
}

// settle finds a cluster for a job, and takes at most so many new Aggregators, first its own
// temporary ones, which then stay. Clusters that
// have enough free time come first, the one with the least; then those that may grow; then
// a new one.
func (m *Master) settle(j *managed, most int, change *Change) bool {
	need := int64(j.profile.Demand() * 1e9)
	order := slices.Clone(m.clusters)
	enough := func(c *Cluster) bool { return c.free() >= need }
	slices.SortStableFunc(order, func(a, b *Cluster) int {
		switch ea, eb := enough(a), enough(b); {
		case ea && eb:
			return cmp.Compare(a.free(), b.free())
		case ea:
			return -1
		case eb:
			return 1
		}
		return 0 // by age
	})
	if most > 0 {
		order = append(order, nil)
	}
	m.lent = j.temp
	defer func() { m.lent = nil }()
	for _, c := range order {
		fresh := c == nil
		if fresh {
			c = NewCluster(m.o.Options, m.allocate)
		}
		used := c.Size() - c.Idle()
		got, err := c.Assign(*j.profile, most)
		if err != nil {
			continue
		}
		if fresh {
			m.clusters = append(m.clusters, c)
		}
		m.demand += c.Size() - c.Idle() - used
		for _, v := range got.Moves {
			if v.From = j.at[v.Task]; v.From != v.To {
				change.Moves = append(change.Moves, v)
			}
		}
		for _, id := range got.Allocated {
			if !slices.Contains(j.temp, id) {
				change.Allocated = append(change.Allocated, id)
			}
		}
		change.Released = append(change.Released, m.lent...)
		m.count -= len(m.lent)
		j.cluster, j.at, j.temp = c, nil, nil
		m.shared(got.Moves)
		return true
	}
	return false
}

// Exit takes a job away, and without Periodic gives back what is not needed any more.
func (m *Master) Exit(job string) (Change, error) {
	j := m.jobs[job]
	if j == nil {
		return Change{}, fmt.Errorf("job %s: %w", job, ErrUnknown)
	}
	delete(m.jobs, job)
	var change Change
	if j.cluster == nil {
		for task, id := range j.at {
			change.Moves = append(change.Moves, Move{job, task, id, None})
		}
		change.Released = j.temp
		m.count -= len(j.temp)
		return change, nil
	}
	change, err := j.cluster.Remove(job)
	if err != nil {
		return change, err
	}
	m.shared(change.Moves)
	if !m.o.Periodic {
		m.shrink(j.cluster, &change)
		m.admit(&change) // the limit of Aggregators may have kept jobs waiting
	}
	return change, nil
}

// shrink recycles in a cluster and gives back what is idle.
func (m *Master) shrink(c *Cluster, change *Change) {
	m.recycle(c, 0, change)
	if c.Size() == 0 {
		m.clusters = slices.DeleteFunc(m.clusters, func(d *Cluster) bool { return d == c })
	}
}

// recycle empties Aggregators of a cluster and gives back what is idle but for so many.
func (m *Master) recycle(c *Cluster, keep int, change *Change) {
	moves := c.Recycle().Moves
	change.Moves = append(change.Moves, moves...)
	m.forget(moves)
	m.release(c, keep, change)
}

// release gives back what is idle in a cluster but for so many.
func (m *Master) release(c *Cluster, keep int, change *Change) {
	released := c.Release(keep).Released
	m.count -= len(released)
	change.Released = append(change.Released, released...)
}

// Move has all tensors of a job go to other Aggregators, as many as its servers (temporary
// ones: as it has), none of which has anything else: to see what moving costs. Without Periodic
// those that are empty then are given back. Errors wrap ErrUnknown or ErrFull.
func (m *Master) Move(job string) (Change, error) {
	j := m.jobs[job]
	if j == nil {
		return Change{}, fmt.Errorf("job %s: %w", job, ErrUnknown)
	}
	if j.cluster == nil {
		ids, ok := m.allocate(len(j.temp))
		if !ok {
			return Change{}, fmt.Errorf("job %s: %d more Aggregators: %w: there are %d", job, len(j.temp), ErrFull, m.count)
		}
		change := Change{Allocated: slices.Clone(ids), Released: j.temp}
		for task, from := range j.at {
			j.at[task] = ids[slices.Index(j.temp, from)]
			change.Moves = append(change.Moves, Move{job, task, from, j.at[task]})
		}
		m.count -= len(j.temp)
		j.temp = ids
		return change, nil
	}
	c := j.cluster
	change, err := c.respread(job, max(j.servers, 1))
	if err != nil {
		return Change{}, err
	}
	if !m.o.Periodic {
		m.release(c, 0, &change)
	}
	m.forget(change.Moves)
	return change, nil
}

// Lost takes an Aggregator away that has crashed or could not be had, and gives its tensors other
// places, in at most so many new Aggregators. Moves are from where tensors were. Jobs whose tensors
// do not fit all are stranded, and gone as if they had left. Errors wrap ErrUnknown.
func (m *Master) Lost(id, most int) (change Change, stranded []string, err error) {
	for _, c := range m.clusters {
		if c.index(id) < 0 {
			continue
		}
		m.count--
		change, stranded, err = c.Lost(id, min(most, m.room()))
		for _, name := range stranded {
			delete(m.jobs, name)
		}
		m.forget(change.Moves)
		if len(stranded) > 0 && !m.o.Periodic {
			m.shrink(c, &change)
		}
		m.clusters = slices.DeleteFunc(m.clusters, func(d *Cluster) bool { return d.Size() == 0 })
		return change, stranded, err
	}
	for _, j := range m.jobs {
		i := slices.Index(j.temp, id)
		if i < 0 {
			continue
		}
		m.count--
		j.temp = slices.Delete(j.temp, i, i+1)
		if fresh, ok := m.allocate(min(most, 1)); ok && len(fresh) > 0 {
			j.temp = slices.Insert(j.temp, i, fresh[0])
			change.Allocated = fresh
		} else if len(j.temp) == 0 {
			delete(m.jobs, j.name)
			return Change{}, []string{j.name}, nil
		}
		n := 0
		for task, at := range j.at {
			if at != id {
				continue
			}
			to := j.temp[n%len(j.temp)]
			if len(change.Allocated) > 0 {
				to = change.Allocated[0]
			}
			n++
			j.at[task] = to
			change.Moves = append(change.Moves, Move{j.name, task, id, to})
		}
		return change, nil, nil
	}
	return Change{}, nil, fmt.Errorf("Aggregator %d: %w", id, ErrUnknown)
}

// Period ends a period: jobs that wait get their place, Aggregators are recycled, and so many
// idle ones are kept as were newly needed since the last call.
func (m *Master) Period() Change {
	var change Change
	m.admit(&change)
	m.reserve, m.demand = m.demand, 0
	keep := m.reserve
	for _, c := range slices.Clone(m.clusters) {
		m.recycle(c, keep, &change)
		keep = max(0, keep-c.Idle())
	}
	for _, c := range m.clusters {
		n := min(keep, c.room())
		if ids, ok := m.allocate(n); ok {
			for _, id := range ids {
				c.grow(id, &change)
			}
			keep -= n
		}
	}
	m.clusters = slices.DeleteFunc(m.clusters, func(c *Cluster) bool { return c.Size() == 0 })
	return change
}

// Verdict is what became of an observation.
type Verdict uint8

// Verdicts.
const (
	Watching  Verdict = iota // not enough iterations yet
	Fine                     // the job is as fast as it has to be
	Reverted                 // a job was assigned anew, and is not recycled any more
	Respread                 // the job is on idle Aggregators again, of which an interfered one had left it fewer
	Evacuated                // tensors were moved off an Aggregator that is interfered with
	Helpless                 // the job is slow, and nothing can be done about it here
)

func (v Verdict) String() string {
	return [...]string{"watching", "fine", "reverted", "respread", "evacuated", "helpless"}[v]
}

// Observation is a report: what the profilers saw of a job since the last one.
type Observation struct {
	Now        time.Duration // when, on a clock that is the same for all jobs
	Iterations int
	Spent      time.Duration // on them
	// Slow is, for Aggregators of the job, how many times as long as in the profile, or as without
	// interference, transfers with them take. Of those that are missing nothing was seen.
	Slow map[int]float64
}

// Outcome is what follows from an observation.
type Outcome struct {
	Verdict    Verdict
	Job        string // which one; where it is Reverted it may be another than the one that was observed
	Interfered []int  // Aggregators of the job that are, when it was judged to be slow
	Change
}

// early is the part of Iterations after which a job is judged at the earliest: one slow iteration
// says nothing.
const early = 10

// Observe adds to what is known of a job since its tensors were assigned last. After enough
// iterations it is judged: Iterations, or a tenth of them if they have taken so long that it
// would be below LowPerf whatever the others took. If it is below LowPerf (with interference also of what
// it was without, if that is more than its profile says), and an Aggregator of it is interfered with,
// tensors leave that; if one may be, more reports are waited for. Else, if it is on fewer Aggregators
// than its servers because one was, and there are idle ones, it gets them. Else the newest job that
// shares an Aggregator with it gets one more and is assigned anew. Aggregators that are observed to be fast
// again take tensors again, and empty ones after a time. Errors wrap ErrUnknown or ErrJob.
func (m *Master) Observe(job string, o Observation) (Outcome, error) {
	j := m.jobs[job]
	if j == nil {
		return Outcome{}, fmt.Errorf("job %s: %w", job, ErrUnknown)
	}
	if o.Iterations < 0 || o.Spent < 0 {
		return Outcome{}, fmt.Errorf("job %s: %w: %d iterations in %v", job, ErrJob, o.Iterations, o.Spent)
	}
	if j.cluster == nil {
		return Outcome{}, nil
	}
	c := j.cluster
	c.retry(o.Now)
	p := c.jobs[job]
	on := slices.Compact(slices.Sorted(slices.Values(p.at)))
	need := decisive(len(on), m.o.FalseAlarm)
	seen, shared := map[int]float64{}, map[int]bool{}
	for _, id := range on {
		if s, ok := o.Slow[id]; ok {
			seen[id] = s
		}
		shared[id] = len(c.aggs[c.index(id)].loads) > 1
	}
	j.watch.see(seen, shared, o.Spent/time.Duration(max(1, o.Iterations)), m.o.Interference, need)
	var interfered, well []int
	doubt := false
	for _, id := range on {
		l := j.watch.links[id]
		if l == nil {
			continue
		}
		if l.bad >= need {
			interfered = append(interfered, id)
			continue
		}
		if l.good >= need {
			well = append(well, id)
			c.Recover(id)
		}
		doubt = doubt || l.slow || l.bad > need/2
	}
	j.iterations += o.Iterations
	j.spent += o.Spent
	j.reports++
	standalone := j.profile.Iteration
	if u := j.watch.undisturbed(); len(interfered) > 0 && u > 0 {
		standalone = min(standalone, u) // it may have been profiled while others were on its links, too
	}
	// A job that is ten times as slow is not to be so for a hundred iterations.
	certain := j.iterations >= m.o.Iterations/early && m.o.LowPerf*float64(j.spent) > float64(standalone)*float64(m.o.Iterations)
	if j.iterations == 0 || j.iterations < m.o.Iterations && !certain {
		return Outcome{}, nil
	}
	speed := float64(standalone) * float64(j.iterations) / float64(j.spent)
	if speed < m.o.LowPerf && len(interfered) == 0 && doubt && (j.iterations < 2*m.o.Iterations || j.reports < 2*need) {
		return Outcome{}, nil
	}
	j.judged()
	if speed >= m.o.LowPerf {
		for _, id := range well {
			c.aggs[c.index(id)].tries = 0
		}
		return Outcome{Verdict: Fine}, nil
	}
	out := Outcome{Verdict: Helpless, Job: job, Interfered: interfered}
	for _, id := range interfered {
		if got, err := c.Evacuate(id, m.room()); err == nil {
			out.add(got)
		}
		a := c.aggs[c.index(id)]
		a.until = o.Now + m.o.Retry<<min(a.tries, mostRetries)
		a.tries++
	}
	if len(interfered) > 0 {
		if len(out.Moves) > 0 {
			out.Verdict = Evacuated
			m.forget(out.Moves)
		}
		return out, nil
	}
	if n := c.spare(p); n > 0 {
		if got, err := c.respread(job, n); err == nil {
			out.Verdict = Respread
			out.add(got)
			m.forget(out.Moves)
			return out, nil
		}
	}
	for _, p := range c.neighbours(p) {
		k := m.jobs[p.Name]
		if k.reverts >= max(k.servers, 1) {
			continue // it has Aggregators of its own already
		}
		if len(c.neighbours(p)) == 1 && k == j {
			break // it shares with nobody
		}
		got, err := c.Reassign(p.Name, k.reverts+1)
		if errors.Is(err, ErrFull) {
			continue
		} else if err != nil {
			return Outcome{}, err
		}
		k.reverts++
		out.Verdict, out.Job = Reverted, p.Name
		out.add(got)
		if !m.o.Periodic {
			m.release(c, 0, &out.Change)
		}
		m.forget(out.Moves)
		return out, nil
	}
	return out, nil
}

// judged begins the next observation.
func (j *managed) judged() { j.iterations, j.spent, j.reports = 0, 0, 0 }

// forget begins anew to observe all jobs that share an Aggregator with a move.
func (m *Master) forget(moves []Move) {
	for _, j := range m.touched(moves) {
		j.judged()
		j.watch.forget()
	}
}

// touched are the jobs that share an Aggregator with a move, in no order.
func (m *Master) touched(moves []Move) []*managed {
	at := map[int]bool{}
	for _, v := range moves {
		at[v.From], at[v.To] = true, true
	}
	jobs := map[*managed]bool{}
	for _, c := range m.clusters {
		for _, a := range c.aggs {
			for _, l := range a.loads {
				if at[a.id] {
					jobs[m.jobs[l.job.Name]] = true
				}
			}
		}
	}
	return slices.Collect(maps.Keys(jobs))
}

// shared has jobs look anew at Aggregators that others share with them now, or do not any more.
func (m *Master) shared(moves []Move) {
	for _, j := range m.touched(moves) {
		j.watch.forget()
	}
}

func (m *Master) room() int {
	if m.o.Aggregators == 0 {
		return 1 << 30
	}
	return max(0, m.o.Aggregators-m.count)
}

func (c *Change) add(d Change) {
	c.Moves = append(c.Moves, d.Moves...)
	c.Allocated = append(c.Allocated, d.Allocated...)
	c.Released = append(c.Released, d.Released...)
}
