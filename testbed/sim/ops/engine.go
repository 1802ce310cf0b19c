package ops

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/mina"
	"github.com/inabench/inabench/placement/mina/fragment"
	"github.com/inabench/inabench/placement/mina/tree"
)

// running is a job that has hosts.
type running struct {
	tree.State
	pattern *pattern
	job     int     // index in the list
	seq     int     // in the order of their placement
	left    int     // steps that have not ended
	at      float64 // when the last thing happened

	tree   bool    // it has one
	from   float64 // INA from then on
	moved  float64 // when its migration is over
	onTree bool    // the operation that runs uses the tree that it has now

	rivals []*running
	others []*tree.State // of the rivals
	lazy   bool          // nobody depends on it: it is where advance says

	due  float64 // of its next event, or its end if it is lazy
	heap int     // where it is in the heap

	ina float64 // s of operations with INA that have ended
}

// event is when a job does the next thing.
func (r *running) event() float64 {
	switch {
	case r.Running:
		return r.Ends
	case r.Op < r.Ops():
		return max(r.at, r.Began+r.Earliest(r.Op))
	}
	return max(r.at, r.Began+r.Compute())
}

// step does the next thing, at its time. Ended is whether that was the last one.
func (r *running) step(now float64, ina bool) (ended bool) {
	r.at = now
	switch {
	case r.Running:
		r.Running = false
		if r.INA {
			r.ina += r.Duration(r.Op, true)
		}
		r.Op++
	case r.Op < r.Ops():
		r.INA, r.Running, r.onTree = ina, true, true
		r.Ends = now + r.Duration(r.Op, ina)
	default:
		r.Began, r.Op = now, 0
		r.left--
		r.Last = r.left == 1
		return r.left == 0
	}
	return false
}

// advance does everything that comes before a time, for a job on which nobody depends.
func (r *running) advance(until float64) {
	for r.left > 0 {
		if r.Op == 0 && !r.Running && r.left > 1 && (!r.tree || r.at >= r.from) {
			r.skip(until)
		}
		at := r.event()
		if at >= until {
			return
		}
		r.step(at, r.tree && at >= r.from)
	}
}

// skip does the steps that end before a time, from the beginning of one. They are all alike.
func (r *running) skip(until float64) {
	length, ina := r.pattern.without, 0.0
	if r.tree {
		length, ina = r.pattern.with, r.pattern.ina
	}
	n := r.left - 1 // the last one says when it ends
	if until < r.Began+float64(n)*length {
		n = int((until - r.Began) / length)
	}
	for n > 0 && r.Began+float64(n)*length >= until {
		n--
	}
	if n <= 0 {
		return
	}
	r.Began += float64(n) * length
	r.at = r.Began
	r.left -= n
	r.Last = r.left == 1
	r.ina += float64(n) * ina
}

// rival is a job that must not use its tree when this one does.
func (r *running) rival(o *running) {
	r.rivals = append(r.rivals, o)
	r.others = append(r.others, &o.State)
}

// engine is a simulation.
type engine struct {
	cfg      Config
	jobs     []Job
	patterns []*pattern // of the jobs
	alloc    *mina.Allocator

	now     float64
	arrive  []int // jobs that have not come, the last one first
	queue   []int // jobs that wait for hosts
	heap    byDue
	active  []*running // by the Allocator's order
	byID    map[int]*running
	hold    []float64 // until when a switch or link is used by a tree that is given up
	latest  float64   // until when any is
	uses    []int32
	ended   int
	total   int // fragments of running jobs
	result  *Result
	eager   bool // nobody is lazy
	observe func(r *running, start, end float64)
}

func newEngine(cfg Config, jobs []Job) (*engine, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Sharing == None {
		cfg.Cluster.Options.Sharing = tree.Exclusive
	}
	alloc, err := mina.New(cfg.Cluster)
	if err != nil {
		return nil, err
	}
	if err := admit(jobs, alloc.Fabric().Hosts()); err != nil {
		return nil, err
	}
	known, err := cfg.patterns(jobs)
	if err != nil {
		return nil, err
	}
	e := &engine{cfg: cfg, jobs: jobs, alloc: alloc, byID: map[int]*running{},
		hold: make([]float64, alloc.Fabric().Resources()), result: &Result{Jobs: make([]Outcome, len(jobs)), On: make([][]int, len(jobs))}}
	for i := range jobs {
		p := &known[jobs[i].Pattern][min(jobs[i].Hosts, 2)-1]
		e.patterns = append(e.patterns, p)
		steps := float64(jobs[i].Steps)
		e.result.Jobs[i] = Outcome{ID: jobs[i].ID, Hosts: jobs[i].Hosts, Without: steps * p.without, With: steps * p.with}
	}
	e.arrive = byArrival(jobs)
	slices.Reverse(e.arrive)
	return e, nil
}

func (e *engine) run(ctx context.Context) error {
	for n := 0; e.ended < len(e.jobs); n++ {
		if n%64 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		next := e.heap.next()
		if len(e.arrive) > 0 {
			if at := e.jobs[e.arrive[len(e.arrive)-1]].Submit; at <= next {
				e.now = max(e.now, at)
				if err := e.come(); err != nil {
					return err
				}
				continue
			}
		}
		e.now = next
		r := e.heap[0]
		ended := true
		if r.lazy {
			r.advance(math.Inf(1))
		} else {
			ended = e.event(r)
		}
		e.result.Events++
		if !ended {
			r.due = r.event()
			heap.Fix(&e.heap, r.heap)
			continue
		}
		if err := e.end(r); err != nil {
			return err
		}
	}
	return nil
}

// event is what a job that is not lazy does now.
func (e *engine) event(r *running) (ended bool) {
	ina := false
	starts := !r.Running && r.Op < r.Ops()
	if starts {
		ina = e.decide(r)
	}
	ended = r.step(e.now, ina)
	if starts && e.observe != nil {
		e.observe(r, e.now, r.Ends)
	}
	return ended
}

// decide is whether the operation that a job starts now has INA.
func (e *engine) decide(r *running) bool {
	if !r.tree || e.now < r.from {
		return false
	}
	has := true
	switch e.cfg.Sharing {
	case Mina:
		has = tree.Decide(e.now, &r.State, r.others)
	case Thrifty:
		has = tree.Thrifty(e.now, &r.State, r.others)
	case Greedy:
		has = !slices.ContainsFunc(r.rivals, func(o *running) bool { return o.Running && o.INA })
	default:
		return true
	}
	e.result.Asked++
	if !has {
		e.result.Refused++
	}
	return has
}

// come lets the jobs in that have come by now.
func (e *engine) come() error {
	for n := len(e.arrive) - 1; n >= 0 && e.jobs[e.arrive[n]].Submit <= e.now; n-- {
		e.queue = append(e.queue, e.arrive[n])
		e.arrive = e.arrive[:n]
	}
	return e.place()
}

// end is that of a job.
func (e *engine) end(r *running) error {
	heap.Remove(&e.heap, r.heap)
	o := &e.result.Jobs[r.job]
	o.End, o.INA = e.now, r.ina
	e.total -= o.Fragments
	id := e.jobs[r.job].ID
	delete(e.byID, id)
	if err := e.alloc.Remove(id); err != nil {
		return err
	}
	e.active = slices.DeleteFunc(e.active, func(a *running) bool { return a == r })
	for _, o := range r.rivals {
		k := slices.Index(o.rivals, r)
		o.rivals = slices.Delete(o.rivals, k, k+1)
		o.others = slices.Delete(o.others, k, k+1)
		if len(o.rivals) == 0 {
			e.settle(o)
		}
	}
	e.ended++
	e.result.Makespan = e.now
	return e.place()
}

func (e *engine) clock() float64 {
	if e.cfg.Clock == nil {
		return 0
	}
	return e.cfg.Clock()
}

// place gives hosts to those who wait, as long as the first of them finds room, and then
// trees to all.
func (e *engine) place() error {
	placed := false
	for len(e.queue) > 0 {
		i := e.queue[0]
		j, p, o := &e.jobs[i], e.patterns[i], &e.result.Jobs[i]
		weight := e.cfg.weight(j)
		began := e.clock()
		hosts, err := e.alloc.Place(j.ID, j.Hosts, e.cfg.gain(j, p.without, p.with), p.Demand())
		if errors.Is(err, fragment.ErrNoRoom) {
			break
		}
		if err != nil {
			return err
		}
		if e.cfg.Clock != nil {
			e.result.Placing = append(e.result.Placing, e.clock()-began)
		}
		e.queue = e.queue[1:]
		placed = true
		if o.Fragments, err = e.alloc.Fragments(hosts); err != nil {
			return err
		}
		o.Start = e.now
		e.result.On[i] = slices.Clone(hosts)
		e.total += o.Fragments
		r := &running{State: tree.State{Pattern: p.Pattern, Began: e.now, Last: j.Steps == 1, Weight: weight},
			pattern: p, job: i, seq: e.result.Requests, left: j.Steps, at: e.now, due: math.Inf(1)}
		e.active = append(e.active, r)
		e.byID[j.ID] = r
		heap.Push(&e.heap, r)
		e.result.Requests++
	}
	if !placed {
		return nil
	}
	return e.trees()
}

// trees builds those of all jobs that run.
func (e *engine) trees() error {
	// Where everybody is.
	for _, r := range e.active {
		if r.lazy {
			r.advance(e.now)
			r.lazy = false
		}
	}
	if e.cfg.Sharing >= Never {
		for _, r := range e.active {
			r.tree = e.cfg.Sharing == Always && e.jobs[r.job].Hosts > 1
			e.settle(r)
		}
		return nil
	}
	began := e.clock()
	change, err := e.alloc.Trees(func(id int) bool {
		r := e.byID[id]
		return r.Running && r.INA && r.at < e.now && e.now < r.Ends
	})
	if err != nil {
		return err
	}
	if e.cfg.Clock != nil {
		e.result.Building = append(e.result.Building, e.clock()-began)
	}
	e.result.Builds++
	for _, m := range change.Moves {
		if err := e.move(m); err != nil {
			return err
		}
	}
	jobs := e.alloc.Jobs()
	for i := range jobs {
		j, r := &jobs[i], e.active[i]
		before := slices.Clone(r.rivals)
		r.tree, r.from = j.Root != tree.None, r.moved
		r.rivals, r.others = r.rivals[:0], r.others[:0]
		if e.cfg.WholeGroup {
			for k := range jobs {
				if k != i && j.Group >= 0 && jobs[k].Group == j.Group {
					r.rival(e.active[k])
				}
			}
		} else {
			for _, id := range j.Rivals {
				r.rival(e.byID[id])
			}
		}
		if e.cfg.Sharing == None && r.tree {
			// Nobody before it wants the same and has it.
			r.tree = !slices.ContainsFunc(r.rivals, func(o *running) bool { return o.seq < r.seq && o.tree })
		}
		// Who knew of an operation that runs need not be who must know of it now.
		if r.Running && r.INA && r.Ends > e.now && j.Root != tree.None && (!r.tree || !slices.Equal(before, r.rivals)) {
			if err := e.keep(r, j.Root); err != nil {
				return err
			}
		}
	}
	for i := range jobs {
		j, r := &jobs[i], e.active[i]
		if !r.tree || e.latest <= e.now {
			continue
		}
		if e.uses, err = e.alloc.Uses(e.uses[:0], j.Hosts, j.Root); err != nil {
			return err
		}
		for _, u := range e.uses {
			r.from = max(r.from, e.hold[u]) // what is over holds nobody
		}
	}
	for _, r := range e.active {
		e.settle(r)
	}
	if e.cfg.Series {
		e.result.Series = append(e.result.Series, Sample{
			Time: e.now, Requests: e.result.Requests, Queued: len(e.queue), Jobs: change.Jobs, Several: change.Several,
			Alone: change.Alone, With: change.With, Moved: change.Migrated, FreeHosts: e.alloc.Free(),
			FreeFragments: e.alloc.FreeFragments(), JobFragments: e.total,
		})
	}
	return nil
}

// move is a job's way from a tree to another. An operation that uses the old one goes on.
func (e *engine) move(m mina.Move) error {
	r := e.byID[m.ID]
	r.moved = e.now
	if m.From != tree.None {
		if m.To != tree.None {
			e.result.Jobs[r.job].Migrations++
		}
		if r.Running && r.INA {
			r.moved = r.Ends
			if err := e.keep(r, m.From); err != nil {
				return err
			}
		}
	}
	r.moved += e.cfg.Migration
	r.onTree = false
	return nil
}

// keep notes that a tree is used until the end of the operation that runs.
func (e *engine) keep(r *running, root int) (err error) {
	if !r.onTree {
		return nil // it runs on one that was given up before
	}
	j, _ := e.alloc.Job(e.jobs[r.job].ID)
	if e.uses, err = e.alloc.Uses(e.uses[:0], j.Hosts, root); err != nil {
		return err
	}
	for _, u := range e.uses {
		e.hold[u] = max(e.hold[u], r.Ends)
	}
	e.latest = max(e.latest, r.Ends)
	return nil
}

// settle says when a job is looked at next.
func (e *engine) settle(r *running) {
	if r.lazy = len(r.rivals) == 0 || e.cfg.Sharing >= None; r.lazy && !e.eager {
		until := *r
		until.advance(math.Inf(1))
		r.due = until.at
	} else {
		r.lazy = false
		r.due = r.event()
	}
	heap.Fix(&e.heap, r.heap)
}
