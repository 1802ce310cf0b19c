package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina"
	"github.com/inabench/inabench/placement/mina/clos"
	"github.com/inabench/inabench/placement/mina/fragment"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/testbed/mina/controller/allocation"
	"github.com/inabench/inabench/testbed/sharp"
	"github.com/inabench/inabench/testbed/sharp/aggmgr"
)

var (
	// ErrJob is wrapped when a job is named that is not there, or cannot be one.
	ErrJob = errors.New("no such job")
	// ErrExists is wrapped when a job comes that is there.
	ErrExists = errors.New("there already")
	// ErrHost is wrapped when a host is named that does not exist.
	ErrHost = errors.New("no such host")
	// ErrClosed is wrapped by calls of a controller that is closed.
	ErrClosed = errors.New("controller is closed")
)

// Manager is the aggregation manager, as far as the controller needs it.
type Manager interface {
	Begin(ctx context.Context, r aggmgr.Request) (*aggmgr.Grant, error)
	End(ctx context.Context, id uint64) error
	SetLink(a, b string, up bool) (affected []uint16, err error)
}

// Config is a controller's.
type Config struct {
	Inventory *inventory.Inventory // a fat-tree (package clos)
	Manager   Manager
	// Allocation is the algorithms and their options; its fat-tree and, where both are 0,
	// its capacities are filled in from the inventory.
	Allocation mina.Config
	Lease      time.Duration // that a job may be without one of its hosts; 0: 3 s
	Retry      time.Duration // until what was refused is asked for again; 0: 1 s
	Emit       func(Event)   // is told what happens, in order; must not call the controller
	// Share is told who shares with whom, whenever that has changed; nil: nobody is. It must
	// not call the controller.
	Share func([]Group)
}

// Group is jobs that share trees.
type Group struct {
	Jobs  []uint16 `json:"jobs"`
	Hosts []int    `json:"hosts"` // how many each of them has
	// Rivals are, for each of Jobs, those of them that must not use their trees when it does.
	Rivals [][]uint16 `json:"rivals"`
}

// Submission is a job that comes.
type Submission struct {
	ID   uint16 `json:"id"` // on the wire, 1..4095
	Name string `json:"name,omitempty"`
	// Hosts are those that the job runs on, by rank; empty: the controller chooses N.
	Hosts []string `json:"hosts,omitempty"`
	N     int      `json:"n,omitempty"`
	// Window is how many packets it would have outstanding; 0: what the manager gives.
	Window int     `json:"window,omitempty"`
	Gain   float64 `json:"gain,omitempty"`   // see tree.Job
	Demand float64 `json:"demand,omitempty"` // see tree.Job
}

// Event is something that has happened.
type Event struct {
	// Event is "placed", "tree", "none" (the job's tree is gone, or it gets none),
	// "refused", "ended", "groups", "link", "error", and of Main "ready" and "out": the job
	// has been taken out of its sharing group, and does not use INA until it is back.
	Event string   `json:"event"`
	T     float64  `json:"t"` // s since the controller began
	Job   uint16   `json:"job,omitempty"`
	Name  string   `json:"name,omitempty"`
	Hosts []string `json:"hosts,omitempty"` // of "placed", by rank
	Tree  *TreeSet `json:"tree,omitempty"`  // of "tree"
	// Migration is of "tree" and "none".
	Migration *Migration `json:"migration,omitempty"`
	Groups    []Group    `json:"groups,omitempty"`  // of "groups"
	Error     string     `json:"error,omitempty"`   // of "refused" and "error"; of "ended" and "out", why
	Part      blame.Part `json:"part,omitzero"`     // of "error": which part of the testbed it is about
	NoRoom    bool       `json:"no_room,omitempty"` // of "refused": the job would fit when others have ended
	Ready     *Addresses `json:"ready,omitempty"`
}

// TreeSet is a tree that a job's hosts use.
type TreeSet struct {
	Root     string     `json:"root"`
	Switches []string   `json:"switches"` // leaves first
	Epoch    uint16     `json:"epoch"`
	Window   int        `json:"window"`
	Granted  sharp.Tree `json:"granted"`
	// Log is what a job's library logs of it: see sharp.JobLog.
	Log []string `json:"log"`
}

// Migration is how long the way from a tree to another one took, in seconds. From is empty
// when the job had none, To when it gets none. In the paper (V-D) release is 0.125, acquire
// 0.294 and the total 0.559.
type Migration struct {
	From  string `json:"from,omitempty"` // roots
	To    string `json:"to,omitempty"`
	Hosts int    `json:"hosts"` // attached ones

	Leave   float64 `json:"leave"`   // until all hosts had left the old tree
	Release float64 `json:"release"` // until switches had released it
	Wait    float64 `json:"wait"`    // for others' releases
	Acquire float64 `json:"acquire"` // setting up the new tree
	Adopt   float64 `json:"adopt"`   // until all hosts used it
	Total   float64 `json:"total"`
	Refused int     `json:"refused,omitempty"` // times that the manager refused the new tree
}

// Controller is an allocation controller. Its methods are safe for concurrent use.
type Controller struct {
	cfg   Config
	clos  *clos.Clos
	began time.Time

	work sync.WaitGroup // calls of the manager

	mu     sync.Mutex
	closed bool
	alloc  *mina.Allocator
	jobs   map[uint16]*job
	order  []uint16 // of jobs, as they came
	groups []Group  // as last told
}

// phase is where a job is with its tree.
type phase uint8

const (
	settled   phase = iota // has the tree that it is to have, or waits for nothing
	leaving                // hosts are told to leave the old tree
	releasing              // switches are
	waiting                // for others to release, or for the next try
	acquiring
	adopting // hosts are told of the new tree
)

// job is one that is placed.
type job struct {
	Submission
	hosts []string // by rank

	root int    // of the tree that it is to have, or tree.None
	want target // that tree

	phase  phase
	held   *aggmgr.Grant // that switches have; nil: none
	at     target        // that tree
	told   Order
	ranks  map[int]*Attachment
	gone   map[int]*time.Timer // by rank, since it was lost
	ending string              // why it ends; empty: it does not

	move   Migration
	since  time.Time // the present phase
	start  time.Time // of the migration
	failed bool      // the manager has refused, and nothing is different since
	excuse string    // the last refusal that was told
	retry  *time.Timer
	ended  chan struct{} // closed when nothing of it is left
}

// target is a tree as switches. The zero value is none.
type target struct {
	root     string
	switches []string
}

// New makes a controller. The caller must Close it.
func New(cfg Config) (*Controller, error) {
	c, err := clos.Of(cfg.Inventory)
	if err != nil {
		return nil, err
	}
	cfg.Allocation.Down, cfg.Allocation.Up = c.Down, c.Up
	if cfg.Allocation.PerSwitch == 0 && cfg.Allocation.PerLink == 0 {
		if cfg.Allocation.PerSwitch, cfg.Allocation.PerLink, err = capacities(cfg.Inventory); err != nil {
			return nil, err
		}
	}
	a, err := mina.New(cfg.Allocation)
	if err != nil {
		return nil, fmt.Errorf("allocation: %w", err)
	}
	if cfg.Lease == 0 {
		cfg.Lease = 3 * time.Second
	}
	if cfg.Retry == 0 {
		cfg.Retry = time.Second
	}
	if cfg.Emit == nil {
		cfg.Emit = func(Event) {}
	}
	if cfg.Share == nil {
		cfg.Share = func([]Group) {}
	}
	ctl := &Controller{cfg: cfg, clos: c, began: time.Now(), alloc: a, jobs: map[uint16]*job{}}
	return ctl, ctl.withoutSHARP()
}

// capacities are how many jobs may be active at once on a switch and on a port, which is
// what the inventory says of its switches, all alike.
func capacities(inv *inventory.Inventory) (perSwitch, perLink int, err error) {
	var first *inventory.Switch
	for i := range inv.Switches {
		s := &inv.Switches[i]
		if s.SHARP.Trees == 0 && s.Aggregators == 0 {
			continue
		}
		if first == nil {
			first = s
		}
		if s.SHARP.Resource != first.SHARP.Resource || max(s.SHARP.Jobs, 1) != max(first.SHARP.Jobs, 1) {
			return 0, 0, fmt.Errorf("switches %s and %s serve other numbers of jobs at once, or by other resources: an allocator needs one rule", first.Name, s.Name)
		}
	}
	if first == nil {
		return 0, 0, fmt.Errorf("inventory %s: no switch has SHARP or aggregators", inv.File)
	}
	if first.SHARP.Resource == "port" {
		return tree.Unlimited, max(first.SHARP.Jobs, 1), nil
	}
	return max(first.SHARP.Jobs, 1), tree.Unlimited, nil
}

// withoutSHARP keeps trees off switches that have none.
func (c *Controller) withoutSHARP() error {
	for i := range c.cfg.Inventory.Switches {
		if s := &c.cfg.Inventory.Switches[i]; s.SHARP.Trees == 0 && s.Aggregators == 0 {
			if err := c.alloc.SetResource(c.resource(s.Name), true); err != nil {
				return blame.Switch(s.Name, err)
			}
		}
	}
	return nil
}

// resource is the number of a switch or link by its name; -1: there is none.
func (c *Controller) resource(name string) int {
	for r := range c.clos.Fabric.Resources() {
		if c.clos.Resource(r) == name {
			return r
		}
	}
	return -1
}

// emit is called with mu held.
func (c *Controller) emit(e Event) {
	e.T = time.Since(c.began).Seconds()
	if j := c.jobs[e.Job]; j != nil {
		e.Name = j.Name
	}
	c.cfg.Emit(e)
}

// Submit places a job and builds trees. It returns the job's hosts by rank; trees come
// later. If there is no room now, the error wraps fragment.ErrNoRoom.
func (c *Controller) Submit(s Submission) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts, err := c.place(&s)
	if err != nil {
		err = fmt.Errorf("submit job %d: %w", s.ID, err)
		c.emit(Event{Event: "refused", Job: s.ID, Error: err.Error(), NoRoom: errors.Is(err, fragment.ErrNoRoom)})
		return nil, err
	}
	c.jobs[s.ID] = &job{Submission: s, hosts: hosts, root: tree.None, ranks: map[int]*Attachment{}, gone: map[int]*time.Timer{}, told: Order{Number: 1}, ended: make(chan struct{})}
	c.order = append(c.order, s.ID)
	c.emit(Event{Event: "placed", Job: s.ID, Hosts: hosts})
	c.rebuild()
	return slices.Clone(hosts), nil
}

func (c *Controller) place(s *Submission) (hosts []string, err error) {
	switch {
	case c.closed:
		return nil, ErrClosed
	case s.ID < 1 || s.ID > 4095:
		return nil, fmt.Errorf("%w: %d is not within 1 to 4095", ErrJob, s.ID)
	case c.jobs[s.ID] != nil:
		return nil, fmt.Errorf("%w, or its tree is not released yet", ErrExists)
	case s.Window < 0:
		return nil, fmt.Errorf("%w: a window of %d packets", ErrJob, s.Window)
	case max(s.N, len(s.Hosts)) > min(64, len(c.clos.Hosts)):
		return nil, fmt.Errorf("%w: %d hosts are asked for, %d exist, and a job has 64 at most", ErrHost, max(s.N, len(s.Hosts)), len(c.clos.Hosts))
	case len(s.Hosts) == 0:
		at, err := c.alloc.Place(int(s.ID), s.N, s.Gain, s.Demand)
		return c.clos.Names(at), err
	case s.N != 0 && s.N != len(s.Hosts):
		return nil, fmt.Errorf("%w: %d hosts are named, and %d asked for", ErrHost, len(s.Hosts), s.N)
	}
	var at []int
	for _, name := range s.Hosts {
		h, ok := c.clos.Host(name)
		if !ok {
			return nil, fmt.Errorf("%w: %q", ErrHost, name)
		}
		at = append(at, h)
	}
	return slices.Clone(s.Hosts), c.alloc.Put(int(s.ID), at, s.Gain, s.Demand)
}

// rebuild builds all trees again and sets migrations going.
func (c *Controller) rebuild() {
	change, err := c.alloc.Trees(func(id int) bool { return c.jobs[uint16(id)].held != nil })
	if err != nil { // they stay as they are
		c.emit(Event{Event: "error", Error: fmt.Sprintf("build trees: %v", err), Part: blame.Of(err)})
		return
	}
	for _, m := range change.Moves {
		j := c.jobs[uint16(m.ID)]
		j.root, j.want = m.To, target{}
		if t, ok := c.alloc.Tree(m.ID); ok && len(j.hosts) > 1 {
			for _, n := range c.clos.Tree(t) {
				j.want.switches = append(j.want.switches, n.Switch)
				if n.Up == nil {
					j.want.root = n.Switch
				}
			}
		}
		j.failed, j.excuse = false, ""
	}
	for _, id := range change.Blocked {
		c.emit(Event{Event: "refused", Job: uint16(id), Error: "no tree: on every way over its hosts, a link or a switch is down"})
	}
	c.share()
	c.advance()
}

// share tells who shares, if that has changed.
func (c *Controller) share() {
	byGroup := map[int]*Group{}
	var numbers []int
	for _, a := range c.alloc.Jobs() {
		if a.Group < 0 {
			continue
		}
		g := byGroup[a.Group]
		if g == nil {
			g = &Group{}
			byGroup[a.Group] = g
			numbers = append(numbers, a.Group)
		}
		rivals := []uint16{}
		for _, r := range a.Rivals {
			rivals = append(rivals, uint16(r))
		}
		slices.Sort(rivals)
		g.Jobs, g.Hosts, g.Rivals = append(g.Jobs, uint16(a.ID)), append(g.Hosts, len(a.Hosts)), append(g.Rivals, rivals)
	}
	var groups []Group
	for _, n := range numbers {
		groups = append(groups, *byGroup[n])
	}
	if slices.EqualFunc(groups, c.groups, equalGroups) {
		return
	}
	c.groups = groups
	c.emit(Event{Event: "groups", Groups: groups})
	c.cfg.Share(groups)
}

func equalGroups(a, b Group) bool {
	return slices.Equal(a.Jobs, b.Jobs) && slices.Equal(a.Hosts, b.Hosts) && slices.EqualFunc(a.Rivals, b.Rivals, slices.Equal[[]uint16])
}

// End ends a job. Hosts that are attached are let go. What it returns is closed when the
// job's tree is released.
func (c *Controller) End(id uint16) (<-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[id]
	if j == nil || j.ending != "" {
		return nil, fmt.Errorf("end job %d: %w", id, ErrJob)
	}
	c.finish(j, "finished")
	return j.ended, nil
}

// finish begins a job's end.
func (c *Controller) finish(j *job, why string) {
	j.ending = why
	for _, t := range j.gone {
		t.Stop()
	}
	if err := c.alloc.Remove(int(j.ID)); err != nil {
		c.emit(Event{Event: "error", Job: j.ID, Error: err.Error(), Part: blame.Of(err)})
	}
	for _, a := range j.ranks {
		a.let()
	}
	clear(j.ranks)
	c.share()
	c.advance()
}

func stop(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

// SetLink says that a link between two switches is up or down: trees keep off it from now
// on, and jobs whose trees lead through it get others. Names are those of its ends.
func (c *Controller) SetLink(a, b string, up bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	r := max(c.resource(a+"->"+b), c.resource(b+"->"+a))
	if r < 0 {
		return fmt.Errorf("link between %s and %s: %w", a, b, mina.ErrResource)
	}
	if _, err := c.cfg.Manager.SetLink(a, b, up); err != nil {
		return err
	}
	if err := c.alloc.SetResource(r, !up); err != nil {
		return err
	}
	c.emit(Event{Event: "link", Error: fmt.Sprintf("%s - %s, up: %v", a, b, up)})
	c.rebuild()
	return nil
}

// advance brings every job as far as it can come now.
func (c *Controller) advance() {
	for _, id := range slices.Clone(c.order) {
		if j := c.jobs[id]; j != nil {
			c.step(j)
		}
	}
}

// step brings one job as far as it can come now.
func (c *Controller) step(j *job) {
	for c.once(j) {
	}
}

// once takes at most one step and says whether there was one.
func (c *Controller) once(j *job) bool {
	wanted := j.want
	if j.ending != "" {
		wanted = target{}
	}
	switch j.phase {
	case settled, adopting:
		if j.at.root != wanted.root || !slices.Equal(j.at.switches, wanted.switches) {
			if j.phase == settled {
				j.start, j.move = time.Now(), Migration{From: j.at.root}
			}
			if j.held == nil {
				c.enter(j, waiting)
			} else {
				c.tell(j, allocation.Tree{})
				c.enter(j, leaving)
			}
			return true
		}
		if j.phase == adopting && j.agreed() {
			j.move.Adopt = c.lap(j)
			c.done(j)
			return true
		}
		return j.phase == settled && j.ending != "" && c.remove(j)
	case leaving:
		if !j.agreed() {
			return false
		}
		j.move.Leave += c.lap(j)
		c.enter(j, releasing)
		c.work.Go(func() { c.release(j, j.held.Tree.Job) })
	case waiting:
		if wanted.root == "" {
			j.move.Wait += c.lap(j)
			c.done(j)
			return true
		}
		if j.failed || c.blocked(j) {
			return false
		}
		j.move.Wait += c.lap(j)
		j.at = wanted
		c.enter(j, acquiring)
		r := aggmgr.Request{Job: j.ID, Hosts: j.hosts, OSTs: j.Window, Root: wanted.root, Via: wanted.switches}
		c.work.Go(func() { c.acquire(j, r) })
	}
	return false
}

func (c *Controller) enter(j *job, p phase) { j.phase, j.since = p, time.Now() }

// lap is how long the present phase has lasted, s.
func (c *Controller) lap(j *job) float64 { return time.Since(j.since).Seconds() }

// done ends a migration.
func (c *Controller) done(j *job) {
	c.enter(j, settled)
	j.move.To, j.move.Hosts, j.move.Total = j.at.root, len(j.ranks), time.Since(j.start).Seconds()
	m := j.move
	switch {
	case j.ending != "":
	case j.held == nil:
		c.emit(Event{Event: "none", Job: j.ID, Migration: &m})
	default:
		c.emit(Event{Event: "tree", Job: j.ID, Migration: &m, Tree: j.treeSet()})
	}
}

// treeSet is the tree that a job's hosts use.
func (j *job) treeSet() *TreeSet {
	g := j.held
	q := g.Tree.Quota
	group := sharp.Group{Job: g.Tree.Job, Tree: g.Tree.Index, Type: g.Tree.Type, Size: len(j.hosts), Quota: sharp.Quota{OSTs: q.OSTs, UserData: q.UserData}}
	return &TreeSet{
		Root: g.Root(), Switches: j.at.switches, Epoch: g.Epoch, Window: q.OSTs, Granted: g.Tree,
		Log: []string{"INFO " + g.Tree.String(), "INFO " + group.String()},
	}
}

// remove forgets a job that has ended and holds nothing.
func (c *Controller) remove(j *job) bool {
	if j.held != nil {
		return false
	}
	c.emit(Event{Event: "ended", Job: j.ID, Error: j.ending})
	delete(c.jobs, j.ID)
	c.order = slices.DeleteFunc(c.order, func(id uint16) bool { return id == j.ID })
	stop(j.retry)
	close(j.ended)
	return false
}

// blocked says whether some job has yet to release a switch that is to be this one's.
func (c *Controller) blocked(j *job) bool {
	for _, o := range c.jobs {
		if o == j || o.held == nil {
			continue
		}
		going := o.ending != "" || o.at.root != o.want.root || !slices.Equal(o.at.switches, o.want.switches)
		if going && slices.ContainsFunc(o.at.switches, func(s string) bool { return slices.Contains(j.want.switches, s) }) {
			return true
		}
	}
	return false
}

// release takes a tree from the switches.
func (c *Controller) release(j *job, id uint64) {
	err := c.cfg.Manager.End(context.Background(), id) // the manager bounds it
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.emit(Event{Event: "error", Job: j.ID, Error: err.Error(), Part: blame.Of(err)})
	}
	j.move.Release += c.lap(j)
	j.held, j.at = nil, target{}
	c.enter(j, waiting)
	for _, o := range c.jobs {
		o.failed = false // there is room now, perhaps
	}
	c.advance()
}

// acquire sets a tree up.
func (c *Controller) acquire(j *job, r aggmgr.Request) {
	g, err := c.cfg.Manager.Begin(context.Background(), r) // the manager bounds it
	c.mu.Lock()
	defer c.mu.Unlock()
	j.move.Acquire += c.lap(j)
	if err != nil {
		j.at = target{}
		j.move.Refused++
		j.failed = true
		c.enter(j, waiting)
		if why := err.Error(); why != j.excuse {
			j.excuse = why
			c.emit(Event{Event: "refused", Job: j.ID, Error: why})
		}
		stop(j.retry)
		if !c.closed {
			j.retry = time.AfterFunc(c.cfg.Retry, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.jobs[j.ID] == j {
					j.failed = false
					c.step(j)
				}
			})
		}
		c.advance()
		return
	}
	j.held = g
	c.enter(j, adopting)
	c.tell(j, allocation.Tree{Epoch: g.Epoch, Window: g.Tree.Quota.OSTs, Log: []string{"INFO " + g.Tree.String()}})
	c.advance()
}

// tell gives all hosts of a job another tree.
func (c *Controller) tell(j *job, t allocation.Tree) {
	j.told = Order{Number: j.told.Number + 1, Tree: t}
	for _, a := range j.ranks {
		a.order(j.told)
	}
}

// agreed says whether all hosts that are there have settled what they were told last.
func (j *job) agreed() bool {
	for _, a := range j.ranks {
		if a.settled != j.told.Number {
			return false
		}
	}
	return true
}

// Attachment is a host of a job that is there.
type Attachment struct {
	c    *Controller
	j    *job
	rank int

	settled uint64 // number of the last order of which it said so
	orders  chan Order
}

// Order is the tree that a job is to have from now on.
type Order struct {
	Number uint64 // of the job's orders, from 1
	allocation.Tree
}

// Attach makes a host of a job known. What the job is to have, now and whenever it changes,
// is sent to Orders.
func (c *Controller) Attach(id uint16, rank int) (*Attachment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[id]
	switch {
	case c.closed:
		return nil, ErrClosed
	case j == nil || j.ending != "":
		return nil, fmt.Errorf("attach to job %d: %w", id, ErrJob)
	case rank < 0 || rank >= len(j.hosts):
		return nil, fmt.Errorf("attach to job %d: rank %d of %d: %w", id, rank, len(j.hosts), ErrHost)
	case j.ranks[rank] != nil:
		return nil, fmt.Errorf("attach to job %d: rank %d: %w", id, rank, ErrExists)
	}
	a := &Attachment{c: c, j: j, rank: rank, orders: make(chan Order, 1)}
	j.ranks[rank] = a
	stop(j.gone[rank])
	a.order(j.told)
	return a, nil
}

// order leaves an order, in place of one that was not fetched yet. Called with mu held.
func (a *Attachment) order(o Order) {
	select {
	case <-a.orders:
	default:
	}
	a.orders <- o
}

// let ends the attachment from the controller's side. Called with mu held.
func (a *Attachment) let() { close(a.orders) }

// Orders are what the host is to use, the last one only if it does not keep up. It is
// closed when the job has ended.
func (a *Attachment) Orders() <-chan Order { return a.orders }

// Settled says that the job's hosts use the tree of an order, or none if it has none, and
// have nothing to do with any other.
func (a *Attachment) Settled(number uint64) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if a.j.ranks[a.rank] != a {
		return
	}
	a.settled = number
	a.c.step(a.j)
}

// Detach says that the host is gone. Unless it attaches again within the lease, the job
// ends.
func (a *Attachment) Detach() {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	j := a.j
	if j.ranks[a.rank] != a {
		return
	}
	delete(j.ranks, a.rank)
	j.gone[a.rank] = time.AfterFunc(a.c.cfg.Lease, func() {
		a.c.mu.Lock()
		defer a.c.mu.Unlock()
		if a.c.jobs[j.ID] == j && j.ending == "" && j.ranks[a.rank] == nil {
			a.c.finish(j, fmt.Sprintf("host %s (rank %d) is gone", j.hosts[a.rank], a.rank))
		}
	})
}

// Close ends all jobs and waits until their trees are released, or ctx ends.
func (c *Controller) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	all := slices.Collect(maps.Values(c.jobs))
	for _, j := range all {
		if j.ending == "" {
			c.finish(j, "controller closed")
		}
	}
	c.mu.Unlock()
	for _, j := range all {
		select {
		case <-j.ended:
		case <-ctx.Done():
			return fmt.Errorf("close controller: job %d: %w", j.ID, context.Cause(ctx))
		}
	}
	c.work.Wait()
	return nil
}
