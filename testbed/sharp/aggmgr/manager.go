package aggmgr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/testbed/sharp"
)

var (
	// ErrInvalid is wrapped when a request cannot be one: no hosts, a host twice, a job id
	// out of range.
	ErrInvalid = errors.New("not a request")
	// ErrUnknown is wrapped when a host, a switch or a link is named that does not exist.
	ErrUnknown = errors.New("does not exist")
	// ErrNoTree is wrapped when the fabric has no tree over the hosts: a link is down, or a
	// switch has no SHARP.
	ErrNoTree = errors.New("no tree can be built")
	// ErrQuota is wrapped when there are trees, but no room for another on one of their
	// switches.
	ErrQuota = errors.New("quota exhausted")
	// ErrExists is wrapped when a job begins that has begun.
	ErrExists = errors.New("has begun already")
	// ErrNotFound is wrapped when a job ends that has not begun, or has ended.
	ErrNotFound = errors.New("is not there")
	// ErrSwitch is wrapped when a switch did not do as it was told.
	ErrSwitch = errors.New("switch refused")
	// ErrClosed is wrapped by calls of a manager that is closed.
	ErrClosed = errors.New("closed")
)

// userData is how many bytes an OST of an emulated switch carries: 240 lanes of 4.
// SHARP's carry 1,024.
const userData = 960

// What sharp_am does where its configuration says nothing. Source: release notes of SHARP 3.4 to 3.14.
const (
	maxTrees = 126 // max_trees_to_build: of a switch
	satQuota = 3   // per_prio_default_sat_quota: percent of a switch's OSTs for a job's streaming tree
)

// Request asks for a streaming tree for a job: MINA, and not the manager, chooses where.
type Request struct {
	Job   uint16   // its id on the wire, 1..4095 (package ina)
	Hosts []string // by rank; 1 to 64
	OSTs  int      // of each switch; 0: the default
	Root  string   // the switch at the top
	Via   []string // the switches that may take part; empty: all
}

// Grant is the tree that a job got.
type Grant struct {
	Tree sharp.Tree // as the job's library logs it; Tree.Job is for End
	// Epoch is that of the job's packets on this tree: another one than on its last tree, so
	// that packets that are under way do not count.
	Epoch uint16
	Nodes []Node // leaves first, root last
}

// Root is the switch at the top.
func (g *Grant) Root() string { return g.Nodes[len(g.Nodes)-1].Switch }

// Entry is what one switch has to know of a tree.
type Entry struct {
	Tree       uint64 // id
	Job, Epoch uint16
	Node
	Base, OSTs int // of the switch's OSTs: [Base, Base+OSTs). OSTs are the same on all switches
}

// Switches set up and release trees. Calls for different trees or switches may come at the
// same time.
type Switches interface {
	// Install sets up a tree on a switch. On error nothing of it remains, as far as the
	// switch can be reached.
	Install(ctx context.Context, sw string, e Entry) error
	// Remove releases it. A tree that is not there is no error.
	Remove(ctx context.Context, sw string, e Entry) error
}

// Config is what a manager is made of.
type Config struct {
	Fabric   Fabric
	Switches Switches
	Log      io.Writer // lines of sharp_am; nil: none
	// Timeout bounds each call to a switch; 0: 10 s.
	Timeout time.Duration
}

// Manager is an aggregation manager. Its methods are safe for concurrent use.
type Manager struct {
	cfg Config

	logging sync.Mutex // of the log

	mu       sync.Mutex
	closed   bool
	g        *graph
	ledgers  []ledger          // of switches
	jobs     map[uint64]*job   // that have not ended
	wire     map[uint16]*job   // by id on the wire, until no switch holds their trees
	stuck    []*job            // ended, but a switch may still hold the tree
	epochs   map[uint16]uint16 // last one of each job on the wire
	lastJob  uint64
	lastTree uint64
}

// ledger is what of a switch is taken.
type ledger struct {
	trees int
	osts  regions
}

// job is one that has begun, is beginning, or is ending.
type job struct {
	id      uint64
	request Request
	links   []int
	grant   *Grant
	entries []Entry       // what switches hold of it
	set     chan struct{} // closed when it is set up, or could not be
	ending  bool          // somebody releases its tree
}

// New makes a manager. The caller must Close it.
func New(cfg Config) (*Manager, error) {
	g, err := newGraph(cfg.Fabric)
	if err != nil {
		return nil, err
	}
	if cfg.Switches == nil {
		return nil, errors.New("aggregation manager: no switches")
	}
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	m := &Manager{
		cfg: cfg, g: g, ledgers: make([]ledger, len(g.Switches)),
		jobs: map[uint64]*job{}, wire: map[uint16]*job{}, epochs: map[uint16]uint16{},
	}
	m.logf("GENERAL", "info", "Aggregation manager started: %d hosts, %d switches, %d links", len(g.Hosts), len(g.Switches), len(g.Links))
	return m, nil
}

// Close ends all jobs and releases their trees. It takes ctx's deadline and Config.Timeout,
// also when ctx is cancelled.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	var all []*job
	for _, j := range m.jobs {
		all = append(all, j)
	}
	m.mu.Unlock()
	var errs []error
	for _, j := range all {
		if err := m.end(ctx, j.id, "manager closed"); err != nil && !errors.Is(err, ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// log writes one line as sharp_am does.
func (m *Manager) log(l sharp.AMLine) {
	m.logging.Lock()
	defer m.logging.Unlock()
	l.Time, l.Process = time.Now(), os.Getpid()
	_, _ = io.WriteString(m.cfg.Log, l.String()+"\n") // a log that is full stops no job
}

func (m *Manager) logf(component, level, format string, args ...any) {
	m.log(sharp.AMLine{Component: component, Level: level, Message: fmt.Sprintf(format, args...)})
}

// Begin builds a tree for a job and sets it up on its switches. On error there is none; it
// wraps one of this package's sentinels. The job lasts until End.
func (m *Manager) Begin(ctx context.Context, r Request) (*Grant, error) {
	m.unstick(ctx)
	j, err := m.admit(r)
	if err != nil {
		m.logf("JOBS", "warn", "Job refused: job_id_external: %d: %v", r.Job, err)
		return nil, fmt.Errorf("begin job %d: %w", r.Job, err)
	}
	g, gctx := errgroup.WithContext(ctx)
	for i := range j.entries {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(gctx, m.cfg.Timeout)
			defer cancel()
			if err := m.cfg.Switches.Install(ctx, j.entries[i].Switch, j.entries[i]); err != nil {
				return fmt.Errorf("%w: set up the tree on %s: %w", ErrSwitch, j.entries[i].Switch, err)
			}
			return nil
		})
	}
	err = g.Wait()
	m.mu.Lock()
	ended := j.ending
	j.ending = ended || err != nil
	m.mu.Unlock()
	close(j.set)
	switch {
	case ended:
		return nil, fmt.Errorf("begin job %d: %w", r.Job, ErrClosed)
	case err != nil:
		err = fmt.Errorf("begin job %d: %w", r.Job, err)
		return nil, errors.Join(err, m.release(ctx, j, "could not be set up: "+err.Error()))
	}
	m.logGrant(j)
	return j.grant, nil
}

// admit finds a tree and takes what it needs off the ledgers.
func (m *Manager) admit(r Request) (*job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if err := m.check(r); err != nil {
		return nil, err
	}
	var hosts []int
	for _, name := range r.Hosts {
		h, ok := m.g.host[name]
		if !ok {
			return nil, fmt.Errorf("host %q %w", name, ErrUnknown)
		}
		if slices.Contains(hosts, h) {
			return nil, fmt.Errorf("%w: host %s is named twice", ErrInvalid, name)
		}
		hosts = append(hosts, h)
	}
	if other := m.wire[r.Job]; other != nil {
		if other.ending {
			return nil, fmt.Errorf("%w: the tree of the last job %d is still on %s", ErrSwitch, r.Job, other.entries[0].Switch)
		}
		return nil, fmt.Errorf("job %d %w, as %d of the manager", r.Job, ErrExists, other.id)
	}
	nodes, links, err := m.choose(r, hosts)
	if err != nil {
		return nil, err
	}
	m.lastJob++
	m.lastTree++
	j := &job{id: m.lastJob, request: r, links: links, set: make(chan struct{})}
	m.take(j, nodes)
	return j, nil
}

// check is what is wrong with a request by itself.
func (m *Manager) check(r Request) error {
	switch {
	case r.Job < 1 || r.Job > 4095:
		return fmt.Errorf("%w: job %d is not within 1 to 4095", ErrInvalid, r.Job)
	case len(r.Hosts) == 0:
		return fmt.Errorf("%w: no hosts", ErrInvalid)
	case len(r.Hosts) > len(m.g.Hosts):
		return fmt.Errorf("%w: %d hosts are asked for, %d exist", ErrInvalid, len(r.Hosts), len(m.g.Hosts))
	case len(r.Hosts) > 64:
		return fmt.Errorf("%w: %d hosts: bitmaps have 64 bits", ErrInvalid, len(r.Hosts))
	case r.OSTs < 0:
		return fmt.Errorf("%w: %d OSTs", ErrInvalid, r.OSTs)
	}
	for _, name := range append(slices.Clone(r.Via), r.Root) {
		if _, ok := m.g.sw[name]; !ok {
			return fmt.Errorf("switch %q %w", name, ErrUnknown)
		}
	}
	return nil
}

// osts is how many OSTs of a switch a job wants.
func (r *Request) osts(sw Switch) int {
	if r.OSTs > 0 {
		return r.OSTs
	}
	return max(1, sw.OSTs*satQuota/100)
}

// choose finds the tree.
func (m *Manager) choose(r Request, hosts []int) (nodes []Node, links []int, err error) {
	able := func(s int) bool {
		sw := m.g.Switches[s]
		return sw.Trees > 0 && sw.OSTs > 0 && (len(r.Via) == 0 || slices.Contains(r.Via, sw.Name))
	}
	room := func(s int) bool {
		sw, l := m.g.Switches[s], &m.ledgers[s]
		return able(s) && l.trees < sw.Trees && l.osts.room(sw.OSTs) > 0
	}
	root := m.g.sw[r.Root]
	if nodes, links, _ = m.g.tree(hosts, root, room); nodes != nil {
		return nodes, links, nil
	}
	nodes, _, text := m.g.tree(hosts, root, able)
	if nodes == nil {
		if o := m.g.obstacles(); o != "" {
			text += " (" + o + ")"
		}
		return nil, nil, fmt.Errorf("%w over %s: %s", ErrNoTree, strings.Join(r.Hosts, ", "), text)
	}
	var full []string
	for _, n := range nodes {
		s := m.g.sw[n.Switch]
		if !room(s) {
			full = append(full, fmt.Sprintf("%s has %d of %d trees and room for %d of %d OSTs", n.Switch, m.ledgers[s].trees, m.g.Switches[s].Trees, m.ledgers[s].osts.room(m.g.Switches[s].OSTs), m.g.Switches[s].OSTs))
		}
	}
	return nil, nil, fmt.Errorf("%w: %s", ErrQuota, strings.Join(full, "; "))
}

// take takes what the tree needs off the ledgers and makes the grant. There is room.
func (m *Manager) take(j *job, nodes []Node) {
	r := j.request
	osts := math.MaxInt
	for _, n := range nodes {
		s := m.g.sw[n.Switch]
		sw := m.g.Switches[s]
		osts = min(osts, r.osts(sw), m.ledgers[s].osts.room(sw.OSTs))
	}
	m.epochs[r.Job] = max(1, m.epochs[r.Job]+1) // 0 is none
	epoch := m.epochs[r.Job]
	for _, n := range nodes {
		l, sw := &m.ledgers[m.g.sw[n.Switch]], m.g.Switches[m.g.sw[n.Switch]]
		part := l.osts.take(sw.OSTs, osts)
		l.trees++
		j.entries = append(j.entries, Entry{Tree: m.lastTree, Job: r.Job, Epoch: epoch, Node: n, Base: part.base, OSTs: part.size})
	}
	j.grant = &Grant{Nodes: nodes, Epoch: epoch, Tree: sharp.Tree{
		Job: j.id, Type: sharp.SAT, ID: m.lastTree, Caps: capSAT,
		Quota: sharp.Quota{OSTs: osts, UserData: userData, Groups: osts, QPs: 1, GroupChannels: 1},
	}}
	m.jobs[j.id], m.wire[r.Job] = j, j
}

// capSAT is the capabilities that logs of real fabrics show for a streaming tree.
const capSAT = 0x16

// logGrant writes the lines that sharp_am writes for a job that begins.
func (m *Manager) logGrant(j *job) {
	m.log(sharp.AMLine{Component: "GENERAL", Level: "info", Begin: &sharp.AMBegin{External: uint64(j.request.Job), Job: j.id, QuotaPercent: satQuota, SAT: true}})
	q := j.grant.Tree.Quota
	for _, n := range j.grant.Nodes {
		for i := range n.Down {
			m.log(sharp.AMLine{Component: "JOBS", Level: "info", Allocated: &sharp.AMAllocated{Of: n.Switch, QPs: q.QPs, UserData: q.UserData, OSTs: q.OSTs, Groups: q.Groups, Child: i, Tree: j.grant.Tree.ID}})
		}
	}
}

// End ends a job and releases its tree. id is Grant.Tree.Job. The error wraps ErrNotFound
// if there is no such job. If it wraps ErrSwitch, the job has ended, but a switch may still
// hold its tree; what it held there stays taken, and releasing it is tried again whenever a
// job begins or ends.
func (m *Manager) End(ctx context.Context, id uint64) error {
	return m.end(ctx, id, "finished")
}

func (m *Manager) end(ctx context.Context, id uint64, reason string) error {
	m.mu.Lock()
	j := m.jobs[id]
	if j == nil || j.ending {
		m.mu.Unlock()
		return fmt.Errorf("end job %d of the manager: it %w", id, ErrNotFound)
	}
	j.ending = true
	m.mu.Unlock()
	<-j.set
	m.unstick(ctx)
	return m.release(ctx, j, reason)
}

// release ends a job: its tree is taken off its switches, and what it had is put back on
// the ledgers. What a switch does not release is lost to others until it has.
func (m *Manager) release(ctx context.Context, j *job, reason string) error {
	err := m.remove(ctx, j)
	m.mu.Lock()
	delete(m.jobs, j.id)
	m.mu.Unlock()
	if err != nil {
		m.logf("JOBS", "error", "%v", err)
	}
	m.log(sharp.AMLine{Component: "GENERAL", Level: "info", End: &sharp.AMEnd{Job: j.id, Reason: reason}})
	return err
}

// remove takes what is left of an ended job's tree off its switches. Only one call at a
// time is about a job.
func (m *Manager) remove(ctx context.Context, j *job) error {
	errs := make([]error, len(j.entries))
	var wait sync.WaitGroup
	for i, e := range j.entries {
		wait.Go(func() {
			ctx, cancel := m.unhurried(ctx)
			defer cancel()
			if err := m.cfg.Switches.Remove(ctx, e.Switch, e); err != nil {
				errs[i] = fmt.Errorf("%w: release the tree of job %d on %s: %w", ErrSwitch, e.Job, e.Switch, err)
			}
		})
	}
	wait.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	var left []Entry
	for i, e := range j.entries {
		if errs[i] != nil {
			left = append(left, e)
			continue
		}
		l := &m.ledgers[m.g.sw[e.Switch]]
		l.trees--
		l.osts.free(region{e.Base, e.OSTs})
	}
	j.entries = left
	if left != nil {
		m.stuck = append(m.stuck, j)
	} else {
		delete(m.wire, j.request.Job)
	}
	return errors.Join(errs...)
}

// unstick tries again what switches have not released.
func (m *Manager) unstick(ctx context.Context) {
	m.mu.Lock()
	stuck := m.stuck
	m.stuck = nil
	m.mu.Unlock()
	for _, j := range stuck {
		if err := m.remove(ctx, j); err == nil {
			m.logf("JOBS", "info", "The tree of job_id_sharp: %d is released at last", j.id)
		}
	}
}

// unhurried is a context that a cancelled one does not end, but its deadline and the
// manager's timeout do.
func (m *Manager) unhurried(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := time.Now().Add(m.cfg.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) && time.Until(d) > 0 {
		limit = d
	}
	return context.WithDeadline(context.WithoutCancel(ctx), limit)
}

// SetLink tells the manager that a link between two switches is up or down: "leaf1" and
// "spine2", with a port where there are several ("leaf1:3"). Trees that begin later keep
// off links that are down. The ids are those of jobs whose trees lead through it now.
func (m *Manager) SetLink(a, b string, up bool) (affected []uint16, err error) {
	m.mu.Lock()
	link, err := m.g.findLink(a, b)
	if err != nil {
		m.mu.Unlock()
		return nil, fmt.Errorf("link: %w", err)
	}
	m.g.Links[link].Down = !up
	for _, j := range m.jobs {
		if slices.Contains(j.links, link) {
			affected = append(affected, j.request.Job)
		}
	}
	name := m.g.Links[link].String()
	m.mu.Unlock()
	slices.Sort(affected)
	m.logf("FABRIC", "info", "Link %s: up: %v, jobs with trees on it: %v", name, up, affected)
	return affected, nil
}
