package mina

import (
	"errors"
	"fmt"
	"slices"

	"github.com/inabench/inabench/placement/mina/fragment"
	"github.com/inabench/inabench/placement/mina/tree"
)

// Trees is how trees are built.
type Trees uint8

const (
	// Packed is MINA's: the largest set of trees that do not conflict, and those that share.
	Packed Trees = iota
	// First is the baseline of the paper: a new job gets the first tree that conflicts with
	// none there is, or never one. Nobody shares.
	First
	// FirstIdle is that of its authors' code: the first one that conflicts with none that
	// passes data at that instant. Who gets one when others are idle shares with them.
	FirstIdle
)

// Config is how a cluster is, and how jobs are allocated.
type Config struct {
	// Down and Up are the fat-tree: see tree.NewFabric. Both nil: the paper's 1,024 hosts.
	Down, Up []int

	// PerSwitch and PerLink are how many jobs may be active at once on a switch, and on a
	// port. HDR is 1 and tree.Unlimited, NDR tree.Unlimited and 1. Both 0: NDR.
	PerSwitch, PerLink int

	Place   fragment.Policy // nil: fragment.Minimal with the paper's alpha
	Trees   Trees
	Options tree.Options // of Packed. The zero value: all candidates, the number of jobs counts
}

// Job is one that runs.
type Job struct {
	ID     int
	Hosts  []int   // ascending
	Gain   float64 // see tree.Job
	Demand float64 // see tree.Job

	Root   int   // of its tree, or tree.None
	Group  int   // jobs with the same one share; -1: it has no tree
	Rivals []int // ids of those of its group that must not use their trees when it does

	tried bool // trees were built since it is there
}

// Allocator is a cluster with its running jobs. It is for one goroutine at a time.
type Allocator struct {
	cfg       Config
	fabric    *tree.Fabric
	occupancy *fragment.Occupancy
	capacity  []int32
	builder   *tree.Builder // nil: capacities have changed

	jobs  []Job // in the order in which they came
	build []tree.Job
}

// Errors of an Allocator, besides those of package fragment.
var (
	ErrCapacity = errors.New("no capacity for any job")
	ErrJob      = errors.New("no such job")
	ErrTwice    = errors.New("there already")
	ErrResource = errors.New("no such switch or link")
)

// New is a cluster without jobs.
func New(cfg Config) (*Allocator, error) {
	if cfg.Down == nil && cfg.Up == nil {
		cfg.Down, cfg.Up = []int{8, 8, 16}, []int{1, 8, 8}
	}
	if cfg.PerSwitch == 0 && cfg.PerLink == 0 {
		cfg.PerSwitch, cfg.PerLink = tree.Unlimited, 1
	}
	if cfg.PerSwitch < 1 || cfg.PerLink < 1 {
		return nil, fmt.Errorf("%d jobs at once on a switch and %d on a link: %w", cfg.PerSwitch, cfg.PerLink, ErrCapacity)
	}
	if cfg.Trees > FirstIdle {
		return nil, fmt.Errorf("no way %d to build trees", cfg.Trees)
	}
	f, err := tree.NewFabric(cfg.Down, cfg.Up)
	if err != nil {
		return nil, err
	}
	t, err := fragment.Regular(cfg.Down...)
	if err != nil {
		return nil, err
	}
	if cfg.Place == nil {
		if cfg.Place, err = fragment.NewMinimal(fragment.DefaultAlpha); err != nil {
			return nil, err
		}
	}
	a := &Allocator{cfg: cfg, fabric: f, occupancy: fragment.NewOccupancy(t),
		capacity: f.Capacity(cfg.PerSwitch, cfg.PerLink)}
	if a.builder, err = tree.NewBuilder(f, a.capacity, cfg.Options); err != nil {
		return nil, err
	}
	return a, nil
}

// Fabric is the fat-tree.
func (a *Allocator) Fabric() *tree.Fabric { return a.fabric }

// Free is how many hosts are free.
func (a *Allocator) Free() int { return a.occupancy.Free() }

// FreeFragments is how many fragments the free hosts have.
func (a *Allocator) FreeFragments() int { return a.occupancy.Fragments() }

// Fragments is how many fragments hosts have; see fragment.Topology.
func (a *Allocator) Fragments(hosts []int) (int, error) {
	return a.occupancy.Topology().Fragments(hosts)
}

// Jobs are the running ones in the order in which they came. They are the Allocator's, and
// good until it is called to change something.
func (a *Allocator) Jobs() []Job { return a.jobs }

// Job is a running one, and false where it does not run.
func (a *Allocator) Job(id int) (Job, bool) {
	if i := a.find(id); i >= 0 {
		return a.jobs[i], true
	}
	return Job{}, false
}

func (a *Allocator) find(id int) int {
	return slices.IndexFunc(a.jobs, func(j Job) bool { return j.ID == id })
}

// Tree is that of a job, and false where it has none.
func (a *Allocator) Tree(id int) (tree.Tree, bool) {
	i := a.find(id)
	if i < 0 || a.jobs[i].Root == tree.None {
		return tree.Tree{}, false
	}
	return a.fabric.Tree(a.jobs[i].Hosts, a.jobs[i].Root), true
}

// Uses are the switches and links of limited capacity that a tree has, appended to a slice.
func (a *Allocator) Uses(uses []int32, hosts []int, root int) ([]int32, error) {
	if err := a.ready(); err != nil {
		return uses, err
	}
	return a.builder.Uses(uses, hosts, root)
}

// Place gives n hosts to a job, and no tree: that is for Trees. Gain and demand are as in
// tree.Job. Errors are those of fragment.Policy, of which fragment.ErrNoRoom passes when
// other jobs leave, and ErrTwice.
func (a *Allocator) Place(id, n int, gain, demand float64) ([]int, error) {
	if a.find(id) >= 0 {
		return nil, fmt.Errorf("place job %d: %w", id, ErrTwice)
	}
	hosts, err := a.cfg.Place.Place(a.occupancy, n)
	if err != nil {
		return nil, fmt.Errorf("job %d: %w", id, err)
	}
	return hosts, a.Put(id, hosts, gain, demand)
}

// Put gives a job certain hosts, as where it runs already. Errors are fragment.ErrHost where
// one is not free, ErrTwice, and fragment.ErrRequest where there are none.
func (a *Allocator) Put(id int, hosts []int, gain, demand float64) error {
	switch {
	case a.find(id) >= 0:
		return fmt.Errorf("place job %d: %w", id, ErrTwice)
	case len(hosts) == 0:
		return fmt.Errorf("place job %d on no hosts: %w", id, fragment.ErrRequest)
	}
	hosts = slices.Sorted(slices.Values(hosts))
	if err := a.occupancy.Take(hosts); err != nil {
		return fmt.Errorf("place job %d: %w", id, err)
	}
	a.jobs = append(a.jobs, Job{ID: id, Hosts: hosts, Gain: gain, Demand: demand, Root: tree.None, Group: -1})
	return nil
}

// Remove takes a job away: its hosts are free, and nobody shares with it. Trees of others
// stay as they are. The error is ErrJob.
func (a *Allocator) Remove(id int) error {
	i := a.find(id)
	if i < 0 {
		return fmt.Errorf("remove job %d: %w", id, ErrJob)
	}
	if err := a.occupancy.Release(a.jobs[i].Hosts); err != nil {
		return fmt.Errorf("remove job %d: %w", id, err)
	}
	for _, r := range a.jobs[i].Rivals {
		if k := a.find(r); k >= 0 {
			a.jobs[k].Rivals = slices.DeleteFunc(a.jobs[k].Rivals, func(r int) bool { return r == id })
		}
	}
	a.jobs = slices.Delete(a.jobs, i, i+1)
	return nil
}

// SetResource says whether a switch or a link is down, by its number in the Fabric. The
// error is ErrResource.
func (a *Allocator) SetResource(resource int, down bool) error {
	if resource < 0 || resource >= len(a.capacity) {
		return fmt.Errorf("switch or link %d of %d: %w", resource, len(a.capacity), ErrResource)
	}
	c := int32(0)
	if !down {
		c = a.fabric.Capacity(a.cfg.PerSwitch, a.cfg.PerLink)[resource]
	}
	if a.capacity[resource] != c {
		a.capacity[resource] = c
		a.builder = nil
	}
	return nil
}

func (a *Allocator) ready() (err error) {
	if a.builder == nil {
		a.builder, err = tree.NewBuilder(a.fabric, a.capacity, a.cfg.Options)
	}
	return err
}

// Change is what became different by Trees.
type Change struct {
	// Moves are the jobs whose trees are others now, in the order in which the jobs came.
	// All that is given up must be released before anybody acquires anything: a new tree
	// may have what others had.
	Moves    []Move
	Migrated int // of them, those that had a tree and have another one

	Jobs    int   // that run
	Several int   // of them on several hosts
	With    int   // of those, with trees
	Alone   int   // of those, with trees that do not conflict with each other's
	Blocked []int // those for which something on every way is down, by id
	Optimal bool  // no choice of the candidates has more jobs with trees of their own (or Gain, if weighted); false with First
}

// Move is a job's way from a tree to another, by their roots. From tree.None: it had none;
// To tree.None: it has none any more.
type Move struct{ ID, From, To int }

// Trees builds trees for all running jobs. Only FirstIdle asks which of them pass data at
// this moment. What jobs have then is in Jobs.
func (a *Allocator) Trees(busy func(id int) bool) (Change, error) {
	if err := a.ready(); err != nil {
		return Change{}, err
	}
	a.build = a.build[:0]
	for i := range a.jobs {
		j := &a.jobs[i]
		a.build = append(a.build, tree.Job{ID: j.ID, Hosts: j.Hosts, Held: j.Root, Final: j.tried, Gain: j.Gain, Demand: j.Demand})
	}
	var p tree.Plan
	var err error
	switch a.cfg.Trees {
	case Packed:
		p, err = a.builder.Build(a.build)
	case First:
		p, err = a.builder.First(a.build, nil)
	case FirstIdle:
		p, err = a.builder.First(a.build, func(i int) bool { return busy(a.jobs[i].ID) })
	}
	if err != nil {
		return Change{}, err
	}
	c := Change{Jobs: len(a.jobs), Alone: p.Alone, Optimal: p.Optimal}
	for _, i := range p.Blocked {
		c.Blocked = append(c.Blocked, a.jobs[i].ID)
	}
	for i := range a.jobs {
		j, root := &a.jobs[i], p.Roots[i]
		if root != j.Root {
			c.Moves = append(c.Moves, Move{j.ID, j.Root, root})
			if root != tree.None && j.Root != tree.None {
				c.Migrated++
			}
		}
		if len(j.Hosts) > 1 {
			c.Several++
		}
		if root != tree.None {
			c.With++
		}
		j.Root, j.Group, j.Rivals, j.tried = root, -1, j.Rivals[:0], true
		for _, r := range p.Rivals[i] {
			j.Rivals = append(j.Rivals, a.jobs[r].ID)
		}
	}
	for g, group := range p.Groups {
		for _, i := range group {
			a.jobs[i].Group = g
		}
	}
	return c, nil
}
