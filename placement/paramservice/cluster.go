package paramservice

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Options of a cluster. The zero value allows no loss; see Default.
type Options struct {
	LossLimit float64 // part of its speed that a job may lose by the model
	Most      int     // Aggregators in a cluster; 0: any number
	// Printed takes Pseudocode 1 literally: room for one run is enough, and the new job's own
	// loss is not looked at. For comparison only.
	Printed bool
}

// DefaultLossLimit is the paper's LossLimit, DefaultMost the size of clusters that keeps
// assignment fast (BenchmarkAssign).
const (
	DefaultLossLimit = 0.1
	DefaultMost      = 32
)

// Default are the paper's options, in clusters of 32.
func Default() Options { return Options{LossLimit: DefaultLossLimit, Most: DefaultMost} }

// Move is a tensor that changes place.
type Move struct {
	Job      string
	Task     int
	From, To int // None: it was or is nowhere
}

// Change is what is to be done. Allocated Aggregators are there before tensors move, and
// released ones have none when they have moved.
type Change struct {
	Moves     []Move
	Allocated []int
	Released  []int
}

// Empty says whether there is nothing to do.
func (c *Change) Empty() bool { return len(c.Moves)+len(c.Allocated)+len(c.Released) == 0 }

// placed is a job in a cluster.
type placed struct {
	Job
	order  []int // of tasks, the largest first
	quota  time.Duration
	at     []int // Aggregator of each task
	seq    int   // when it was assigned
	pinned bool  // by measurement, not by the model
}

// Cluster is the controller of a cluster of Aggregators. It is not safe for concurrent use; different
// clusters are independent of each other.
type Cluster struct {
	o       Options
	approve func(n int) ([]int, bool)
	aggs    []*aggregator // by id
	jobs    map[string]*placed
	seq     int
}

// NewCluster is a cluster without Aggregators. It asks approve for new ones, which gives
// it their ids, or refuses. With nil it counts from 0.
func NewCluster(o Options, approve func(n int) ([]int, bool)) *Cluster {
	if approve == nil {
		next := 0
		approve = func(n int) ([]int, bool) {
			ids := make([]int, n)
			for i := range ids {
				ids[i] = next
				next++
			}
			return ids, true
		}
	}
	return &Cluster{o: o, approve: approve, jobs: map[string]*placed{}}
}

// Jobs are the names of the jobs, sorted.
func (c *Cluster) Jobs() []string { return slices.Sorted(maps.Keys(c.jobs)) }

// Where is the Aggregator of each tensor of a job; nil if it is not here.
func (c *Cluster) Where(job string) []int {
	if p := c.jobs[job]; p != nil {
		return slices.Clone(p.at)
	}
	return nil
}

// Loss is the part of its speed that a job loses by the model.
func (c *Cluster) Loss(job string) float64 {
	loss := 0.0
	if p := c.jobs[job]; p != nil {
		for _, a := range c.aggs {
			if a.find(p) >= 0 {
				loss = max(loss, Loss(a.cycle, p.Iteration))
			}
		}
	}
	return loss
}

// Losses are those of all jobs.
func (c *Cluster) Losses() map[string]float64 {
	out := make(map[string]float64, len(c.jobs))
	for _, a := range c.aggs {
		for i := range a.loads {
			p := a.loads[i].job
			out[p.Name] = max(out[p.Name], Loss(a.cycle, p.Iteration))
		}
	}
	return out
}

// Aggregators is what the Aggregators have to do, by id.
func (c *Cluster) Aggregators() []Aggregator {
	out := make([]Aggregator, len(c.aggs))
	for i, a := range c.aggs {
		out[i] = Aggregator{ID: a.id, Cycle: a.cycle, Work: a.work, Avoid: a.avoid}
		for _, l := range a.loads {
			out[i].Loads = append(out[i].Loads, Load{Job: l.job.Name, Iteration: l.job.Iteration,
				Runs: Runs(a.cycle, l.job.Iteration), Exec: l.exec, Tasks: l.tasks})
		}
		slices.SortFunc(out[i].Loads, func(a, b Load) int { return cmp.Compare(a.Job, b.Job) })
	}
	return out
}

// Size is how many Aggregators there are, Idle how many of them have no tensors.
func (c *Cluster) Size() int { return len(c.aggs) }

// Idle is how many Aggregators have no tensors.
func (c *Cluster) Idle() int {
	n := 0
	for _, a := range c.aggs {
		if len(a.loads) == 0 {
			n++
		}
	}
	return n
}

// free is the unreserved part of the Aggregators that take tensors, in billionths of one.
func (c *Cluster) free() (sum int64) {
	for _, a := range c.aggs {
		if !a.avoid {
			sum += 1e9 - a.busy()
		}
	}
	return sum
}

// candidate is an Aggregator as it would be with tensors of the job that is being placed.
type candidate struct {
	agg   *aggregator // nil: a new one
	cycle time.Duration
	free  time.Duration
	runs  int64
	share time.Duration // of the job, each tensor once
	has   bool          // tensors of the job
	ok    bool
}

// planner places tensors of one job, without changing anything yet.
type planner struct {
	printed    bool
	job        *placed
	candidates []candidate
	used       int // candidates with tensors of the job
	room       int // new Aggregators that may be taken
	balance    bool
	narrow     bool  // without room for more, may be spread over fewer than its servers
	to         []int // candidate of each task; -1: stays
}

// plan looks at all Aggregators but those that are excluded, with so many new ones at hand at
// once and room for more.
func (c *Cluster) plan(p *placed, fresh, room int, exclude func(*aggregator) bool) *planner {
	pl := &planner{printed: c.o.Printed, job: p, room: room, to: make([]int, len(p.Tasks))}
	for i := range pl.to {
		pl.to[i] = -1
	}
	for _, a := range c.aggs {
		if a.avoid || exclude != nil && exclude(a) {
			continue
		}
		cycle := max(a.cycle, p.Iteration)
		k := candidate{agg: a, cycle: cycle, runs: Runs(cycle, p.Iteration)}
		work := a.work
		k.ok = true
		if cycle != a.cycle {
			work, k.ok = a.at(cycle, c.o.LossLimit)
		}
		k.ok = k.ok && (c.o.Printed || Loss(cycle, p.Iteration) <= c.o.LossLimit)
		k.free = cycle - work
		if i := a.find(p); i >= 0 {
			k.share, k.has = a.loads[i].exec, true
			pl.used++
		}
		pl.candidates = append(pl.candidates, k)
	}
	for range fresh {
		pl.fresh()
	}
	return pl
}

func (pl *planner) fresh() {
	d := pl.job.Iteration
	pl.candidates = append(pl.candidates, candidate{cycle: d, free: d, runs: 1, ok: true})
}

// place chooses an Aggregator for a tensor.
func (pl *planner) place(task int) bool {
	e := pl.job.Tasks[task]
	best := -1
	if pl.balance {
		emptier := func(a, b *candidate) bool {
			return float64(a.free)/float64(a.cycle) > float64(b.free)/float64(b.cycle)
		}
		if best = pl.best(e, pl.job.quota, emptier); best < 0 {
			best = pl.best(e, 1<<62, emptier)
		}
	} else {
		best = pl.best(e, pl.job.quota, func(a, b *candidate) bool { return a.free < b.free })
		if best < 0 && (pl.narrow && pl.room == 0 || pl.used >= max(pl.job.Servers, 1)) {
			best = pl.best(e, 1<<62, func(a, b *candidate) bool { return a.share < b.share })
		}
	}
	if best < 0 {
		if pl.room == 0 {
			return false
		}
		pl.room--
		pl.fresh()
		best = len(pl.candidates) - 1
	}
	k := &pl.candidates[best]
	if !k.has {
		k.has = true
		pl.used++
	}
	k.free -= time.Duration(k.runs) * e
	k.share += e
	pl.to[task] = best
	return true
}

// best is the first candidate that a tensor fits on and that no other is better than.
func (pl *planner) best(e, quota time.Duration, better func(a, b *candidate) bool) int {
	best := -1
	for i := range pl.candidates {
		k := &pl.candidates[i]
		need := time.Duration(k.runs) * e
		if pl.printed {
			need = e
		}
		if k.ok && k.free >= need && k.share+e <= quota && (best < 0 || better(k, &pl.candidates[best])) {
			best = i
		}
	}
	return best
}

// news is how many new Aggregators are needed.
func (pl *planner) news() int {
	n := 0
	for i := range pl.candidates {
		if pl.candidates[i].agg == nil && slices.Contains(pl.to, i) {
			n++
		}
	}
	return n
}

// commit carries a plan out.
func (c *Cluster) commit(pl *planner, change *Change) error {
	n := pl.news()
	ids, ok := c.approve(n)
	if !ok {
		return fmt.Errorf("job %s: %d more Aggregators: %w: not approved", pl.job.Name, n, ErrFull)
	}
	for i := range pl.candidates {
		if pl.candidates[i].agg == nil && slices.Contains(pl.to, i) {
			pl.candidates[i].agg = c.grow(ids[0], change)
			ids = ids[1:]
		}
	}
	p := pl.job
	for _, task := range p.order {
		if pl.to[task] < 0 {
			continue
		}
		k := pl.candidates[pl.to[task]]
		from := p.at[task]
		if from == k.agg.id {
			continue
		}
		if i := c.index(from); i >= 0 {
			c.aggs[i].remove(p, task)
		}
		k.agg.add(p, task, k.cycle)
		change.Moves = append(change.Moves, Move{p.Name, task, from, k.agg.id})
	}
	for _, a := range c.aggs {
		a.shorten(c.o.LossLimit)
	}
	return nil
}

func (c *Cluster) grow(id int, change *Change) *aggregator {
	a := &aggregator{id: id}
	i, _ := slices.BinarySearchFunc(c.aggs, id, byID)
	c.aggs = slices.Insert(c.aggs, i, a)
	change.Allocated = append(change.Allocated, id)
	return a
}

func byID(a *aggregator, id int) int { return cmp.Compare(a.id, id) }

func (c *Cluster) index(id int) int {
	i, ok := slices.BinarySearchFunc(c.aggs, id, byID)
	if !ok {
		return -1
	}
	return i
}

// room is how many Aggregators may be added.
func (c *Cluster) room() int {
	if c.o.Most == 0 {
		return 1 << 30
	}
	return max(0, c.o.Most-len(c.aggs))
}

// Assign gives all tensors of a new job a place, in at most so many new Aggregators. Errors
// wrap ErrJob, ErrKnown or ErrFull, and nothing has changed then.
func (c *Cluster) Assign(j Job, most int) (Change, error) {
	if err := j.Check(); err != nil {
		return Change{}, err
	}
	if c.jobs[j.Name] != nil {
		return Change{}, fmt.Errorf("job %s: %w", j.Name, ErrKnown)
	}
	p := newPlaced(j)
	pl := c.plan(p, 0, min(most, c.room()), nil)
	for _, task := range p.order {
		if !pl.place(task) {
			return Change{}, fmt.Errorf("job %s: tensor %d: %w: %d Aggregators, %d more allowed", j.Name, task, ErrFull, len(c.aggs), min(most, c.room()))
		}
	}
	var change Change
	if err := c.commit(pl, &change); err != nil {
		return Change{}, err
	}
	c.seq++
	p.seq = c.seq
	c.jobs[j.Name] = p
	return change, nil
}

func newPlaced(j Job) *placed {
	p := &placed{Job: j, order: largestFirst(j.Tasks), at: make([]int, len(j.Tasks))}
	p.Tasks = slices.Clone(j.Tasks)
	for i := range p.at {
		p.at[i] = None
	}
	// Those that one server would have come one after the other, so that best fit does not put
	// together what is large and ready at the same time.
	var group []int
	group, p.quota = spread(p.Tasks, p.order, p.Servers)
	slices.SortStableFunc(p.order, func(a, b int) int { return cmp.Compare(group[a], group[b]) })
	return p
}

// Remove takes a job away. Its Aggregators stay; see Recycle and Release.
func (c *Cluster) Remove(job string) (Change, error) {
	p := c.jobs[job]
	if p == nil {
		return Change{}, fmt.Errorf("job %s: %w", job, ErrUnknown)
	}
	delete(c.jobs, job)
	var change Change
	for task, id := range p.at {
		change.Moves = append(change.Moves, Move{job, task, id, None})
	}
	for _, a := range c.aggs {
		if i := a.find(p); i >= 0 {
			a.work -= time.Duration(Runs(a.cycle, p.Iteration)) * a.loads[i].exec
			a.loads = slices.Delete(a.loads, i, i+1)
			a.shorten(c.o.LossLimit)
		}
	}
	return change, nil
}

// Release gives back all Aggregators without tensors but so many, those with the lowest ids.
func (c *Cluster) Release(keep int) Change {
	var change Change
	c.aggs = slices.DeleteFunc(c.aggs, func(a *aggregator) bool {
		if len(a.loads) > 0 {
			return false
		}
		if keep > 0 && !a.avoid {
			keep--
			return false
		}
		change.Released = append(change.Released, a.id)
		return true
	})
	return change
}

// Recycle empties the least loaded Aggregator if its tensors fit on others, and then the
// next, until one does not fit. Aggregators with a job that was assigned anew by what was
// measured stay as they are.
func (c *Cluster) Recycle() Change {
	var change Change
	for {
		var least *aggregator
		for _, a := range c.aggs {
			if len(a.loads) > 0 && !a.pinned() && (least == nil || a.busy() <= least.busy()) {
				least = a
			}
		}
		if least == nil || !c.empty(least, &change) {
			return change
		}
	}
}

// pinned says whether an Aggregator has tensors of a job that was assigned anew by what was measured.
func (a *aggregator) pinned() bool {
	return slices.ContainsFunc(a.loads, func(l load) bool { return l.job.pinned })
}

// empty moves everything off an Aggregator, or nothing.
func (c *Cluster) empty(a *aggregator, change *Change) bool {
	saved := c.save()
	moves := len(change.Moves)
	closed := func(b *aggregator) bool { return b == a || len(b.loads) == 0 || b.pinned() }
	if c.evacuate(a, 0, false, closed, change) == 0 {
		return true
	}
	c.restore(saved)
	for _, m := range change.Moves[moves:] {
		c.jobs[m.Job].at[m.Task] = m.From
	}
	change.Moves = change.Moves[:moves]
	return false
}

// evacuate moves what fits elsewhere off an Aggregator, the largest jobs first, and says how many
// tensors remain.
func (c *Cluster) evacuate(a *aggregator, room int, narrow bool, exclude func(*aggregator) bool, change *Change) (remain int) {
	loads := slices.Clone(a.loads)
	slices.SortFunc(loads, func(a, b load) int {
		return cmp.Or(cmp.Compare(b.exec, a.exec), cmp.Compare(a.job.Name, b.job.Name))
	})
	for _, l := range loads {
		pl := c.plan(l.job, 0, min(room, c.room()), exclude)
		pl.narrow = narrow
		for _, task := range l.job.order {
			if l.job.at[task] == a.id && !pl.place(task) {
				remain++
			}
		}
		before := len(c.aggs)
		if err := c.commit(pl, change); err != nil {
			remain += l.tasks // not approved: nothing was moved
			continue
		}
		room -= len(c.aggs) - before
	}
	return remain
}

// save and restore undo moves between Aggregators.
func (c *Cluster) save() []aggregator {
	saved := make([]aggregator, len(c.aggs))
	for i, a := range c.aggs {
		saved[i] = *a
		saved[i].loads = slices.Clone(a.loads)
	}
	return saved
}

func (c *Cluster) restore(saved []aggregator) {
	for i := range saved {
		*c.aggs[i] = saved[i]
	}
}

// neighbours are the jobs that share an Aggregator with one, itself among them, the newest first.
func (c *Cluster) neighbours(p *placed) []*placed {
	var out []*placed
	for _, a := range c.aggs {
		if a.find(p) < 0 {
			continue
		}
		for _, l := range a.loads {
			if !slices.Contains(out, l.job) {
				out = append(out, l.job)
			}
		}
	}
	slices.SortFunc(out, func(a, b *placed) int { return cmp.Compare(b.seq, a.seq) })
	return out
}

// respread is Reassign for a job whose place the model did not get wrong: recycling takes it as before.
func (c *Cluster) respread(job string, fresh int) (Change, error) {
	was := c.jobs[job].pinned
	change, err := c.Reassign(job, fresh)
	c.jobs[job].pinned = was
	return change, err
}

// Reassign gives a job so many Aggregators that are idle or new, and balances its tensors over
// them and those that it has; with as many as its servers, over these only. Recycling leaves it
// alone from now on. Errors wrap ErrUnknown or ErrFull, and nothing has changed then.
func (c *Cluster) Reassign(job string, fresh int) (Change, error) {
	p := c.jobs[job]
	if p == nil {
		return Change{}, fmt.Errorf("job %s: %w", job, ErrUnknown)
	}
	use := map[int]bool{} // that exist
	alone := fresh >= max(p.Servers, 1)
	for _, a := range c.aggs {
		if len(a.loads) == 0 && !a.avoid && fresh > 0 {
			use[a.id] = true
			fresh--
		}
	}
	if fresh > c.room() {
		return Change{}, fmt.Errorf("job %s: %d more Aggregators: %w: %d of %d are there", job, fresh, ErrFull, len(c.aggs), c.o.Most)
	}
	// A plan as if the job were not there: off, planned, and put back.
	saved := c.save()
	at := slices.Clone(p.at)
	for task, id := range at {
		if !alone {
			use[id] = true
		}
		c.aggs[c.index(id)].remove(p, task)
	}
	for _, a := range c.aggs {
		a.shorten(c.o.LossLimit)
	}
	pl := c.plan(p, fresh, 0, func(a *aggregator) bool { return !use[a.id] })
	pl.balance = true
	fits := true
	for _, task := range p.order {
		fits = fits && pl.place(task)
	}
	undo := func() {
		c.restore(saved)
		copy(p.at, at)
	}
	if !fits {
		undo()
		return Change{}, fmt.Errorf("job %s: %w on %d more Aggregators", job, ErrFull, fresh)
	}
	for i := range p.at {
		p.at[i] = None
	}
	var change Change
	if err := c.commit(pl, &change); err != nil {
		undo()
		return Change{}, err
	}
	moves := change.Moves[:0]
	for _, m := range change.Moves {
		if m.From = at[m.Task]; m.From != m.To {
			moves = append(moves, m)
		}
	}
	change.Moves = moves
	c.seq++
	p.seq, p.pinned = c.seq, true
	return change, nil
}

// Evacuate moves what fits elsewhere off an Aggregator that is interfered with, in at most so
// many new ones, and gives it nothing new until Recover.
func (c *Cluster) Evacuate(id, most int) (Change, error) {
	i := c.index(id)
	if i < 0 {
		return Change{}, fmt.Errorf("Aggregator %d: %w", id, ErrUnknown)
	}
	var change Change
	a := c.aggs[i]
	a.avoid = true
	c.evacuate(a, most, true, nil, &change)
	return change, nil
}

// Recover ends what Evacuate began: the Aggregator takes tensors again.
func (c *Cluster) Recover(id int) {
	if i := c.index(id); i >= 0 {
		c.aggs[i].avoid = false
	}
}

// Lost takes an Aggregator away that is there no more, and gives its tensors other places, in at
// most so many new Aggregators. Jobs whose tensors do not fit all are stranded, and gone.
// Errors wrap ErrUnknown.
func (c *Cluster) Lost(id, most int) (change Change, stranded []string, err error) {
	i := c.index(id)
	if i < 0 {
		return Change{}, nil, fmt.Errorf("Aggregator %d: %w", id, ErrUnknown)
	}
	a := c.aggs[i]
	c.aggs = slices.Delete(c.aggs, i, i+1)
	c.evacuate(a, most, true, nil, &change)
	for _, l := range a.loads {
		if slices.Contains(l.job.at, id) {
			stranded = append(stranded, l.job.Name)
		}
	}
	slices.Sort(stranded)
	for _, name := range stranded {
		change.Moves = slices.DeleteFunc(change.Moves, func(m Move) bool { return m.Job == name })
		if _, err := c.Remove(name); err != nil {
			return change, stranded, err
		}
	}
	return change, stranded, nil
}
