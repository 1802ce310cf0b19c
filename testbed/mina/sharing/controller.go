package sharing

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/inabench/inabench/placement/mina/timetable"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/testbed/mina/commit"
	"github.com/inabench/inabench/testbed/mina/sharing/wire"
)

// ControllerConfig is what a sharing controller goes by.
type ControllerConfig struct {
	Listen string    // host:port; port 0: any
	Cost   tree.Cost // of all-reduces: nominal, in timetables
	// PerHost has a job count in the sharing rule as often as it has hosts.
	PerHost bool
	Epoch   uint64 // greater each time a controller starts; 0: the time in ns

	Times commit.Times // the zero value: commit.Default
	// Silence is for how long a host may not report until its job is taken out of its
	// group; 0: 1 s.
	Silence time.Duration
	// Drift is by how many seconds jobs of a group may drift apart from their timetables
	// until the state is made anew; 0: 20 ms. Settle is the least time from one such state
	// to the next; 0: 100 ms.
	Drift  float64
	Settle time.Duration

	// Out, if set, is told that a job has been taken out of its group and why, and with
	// which run of it. It must not wait. Dead jobs' trees must be deleted, or they keep
	// what they have locked.
	Out func(job uint32, run uint64, why string)

	faults faults // nil outside of tests
	Log    *Log
}

// Group is jobs that share switches.
type Group []Member

// Member is one of them.
type Member struct {
	Job   uint32
	Hosts int
	// Rivals are the jobs whose trees want what this one's wants; nil: all others of the
	// group. Empty: none, and the job asks for INA each time.
	Rivals []uint32
}

// Controller is the sharing controller: it keeps the states of groups, and has them taken
// over by the jobs' hosts.
type Controller struct {
	cfg  ControllerConfig
	post *post
	in   chan func() // done one after the other
	stop chan struct{}
	once sync.Once
	done sync.WaitGroup

	// Below: only functions that come through in.
	groups []*group
	ending []*group // without jobs: they end what they have begun
	last   commit.Txn
	hosts  map[commit.Node]*peer
	jobs   map[uint32]*known
	timers map[*time.Timer]struct{}
	out    commit.Output
}

type group struct {
	machine *commit.Group
	members Group
	state   commit.Txn // the last that was committed
	since   time.Time
}

// peer is a host of which something has been heard.
type peer struct {
	run, life uint64
	address   string
	last      time.Time
	report    report
	broken    bool // came back in the same run
}

type known struct {
	pattern *pattern
	steps   uint64
}

// NewController starts a controller without groups. Hosts may report already.
func NewController(cfg ControllerConfig) (*Controller, error) {
	if _, err := tree.NewPattern(0, nil, 2, cfg.Cost); err != nil {
		return nil, err
	}
	if cfg.Epoch == 0 {
		cfg.Epoch = uint64(time.Now().UnixNano())
	}
	if cfg.Times == (commit.Times{}) {
		cfg.Times = commit.Default()
	}
	if cfg.Silence == 0 {
		cfg.Silence = time.Second
	}
	if cfg.Drift == 0 {
		cfg.Drift = 0.02
	}
	if cfg.Settle == 0 {
		cfg.Settle = 100 * time.Millisecond
	}
	p, err := newPost(cfg.Listen, cfg.faults)
	if err != nil {
		return nil, err
	}
	c := &Controller{
		cfg: cfg, post: p, in: make(chan func(), queued), stop: make(chan struct{}),
		hosts: map[commit.Node]*peer{}, jobs: map[uint32]*known{}, timers: map[*time.Timer]struct{}{},
	}
	c.done.Go(c.run)
	p.serve(c.take)
	return c, nil
}

// Address is where hosts reach it.
func (c *Controller) Address() string { return c.post.address() }

func (c *Controller) run() {
	silence := time.NewTicker(max(c.cfg.Silence/4, time.Millisecond))
	defer silence.Stop()
	for {
		select {
		case <-c.stop:
			return
		case f := <-c.in:
			f()
		case <-silence.C:
			c.listen()
		}
	}
}

// do has something done by run, and waits for it if it is asked to; false: it has ended.
func (c *Controller) do(f func(), wait bool) bool {
	done := make(chan struct{})
	select {
	case c.in <- func() { f(); close(done) }:
	case <-c.stop:
		return false
	}
	if wait {
		select {
		case <-done:
		case <-c.stop:
			return false
		}
	}
	return true
}

// Share says which groups there are now, instead of those before. A job is in one group at
// most. States of groups that change are made anew.
func (c *Controller) Share(groups []Group) error {
	seen := map[uint32]bool{}
	for _, g := range groups {
		for _, m := range g {
			if m.Job == 0 || m.Hosts < 1 || seen[m.Job] {
				return errors.New("share INA: a job without a number or hosts, or twice")
			}
			seen[m.Job] = true
		}
	}
	if !c.do(func() { c.share(groups) }, true) {
		return ErrClosed
	}
	return nil
}

func (c *Controller) share(groups []Group) {
	old := c.groups
	c.groups = nil
	c.ending = slices.DeleteFunc(c.ending, func(g *group) bool { return g.machine.Idle() })
	for _, members := range groups {
		// The machine of a group that has a job in common goes on.
		i := slices.IndexFunc(old, func(g *group) bool {
			return slices.ContainsFunc(g.members, func(a Member) bool {
				return slices.ContainsFunc(members, func(b Member) bool { return a.Job == b.Job })
			})
		})
		var g *group
		if i >= 0 {
			g = old[i]
			old = slices.Delete(slices.Clone(old), i, i+1)
		} else {
			g = &group{}
			g.machine = commit.NewGroup(c.cfg.Epoch, c.cfg.Times, func(ready []commit.Ready) string { return c.state(g, ready) })
		}
		g.machine.After(c.last)
		c.groups = append(c.groups, g)
		same := reflect.DeepEqual(g.members, members)
		g.members = slices.Clone(members)
		jobs := map[uint32]int{}
		for _, m := range members {
			jobs[m.Job] = m.Hosts
		}
		g.machine.Set(jobs, &c.out)
		if !same {
			g.machine.Change(&c.out)
		}
		c.carryOut(g)
	}
	for _, g := range old {
		g.members = nil
		c.ending = append(c.ending, g)
		g.machine.Set(nil, &c.out)
		c.carryOut(g)
	}
	for n := range c.hosts {
		if !slices.ContainsFunc(groups, func(g Group) bool {
			return slices.ContainsFunc(g, func(m Member) bool { return m.Job == n.Job })
		}) {
			c.post.forget(c.hosts[n].address)
			delete(c.hosts, n)
			delete(c.jobs, n.Job)
		}
	}
}

// take is a message that comes.
func (c *Controller) take(w *wire.Message) {
	c.do(func() { c.handle(w) }, false)
}

func (c *Controller) handle(w *wire.Message) {
	m := fromWire(w)
	g := c.group(m.From.Job)
	if g == nil || (m.To != commit.Node{}) || m.Run == 0 {
		return
	}
	h := c.hosts[m.From]
	switch {
	case h == nil || m.Run > h.run:
		if h != nil && h.address != w.GetAddress() {
			c.post.forget(h.address)
		}
		h = &peer{run: m.Run, life: w.GetLife(), address: w.GetAddress()}
		c.hosts[m.From] = h
	case m.Run < h.run || w.GetLife() < h.life || h.broken:
		return
	case w.GetLife() > h.life:
		// A host without memory among hosts that remember: its job cannot go on.
		h.broken = true
		c.cfg.Log.Write(Entry{What: "started twice", Job: m.From.Job, Rank: m.From.Rank, Run: m.Run})
		g.machine.Suspect(m.From, &c.out)
		c.carryOut(g)
		return
	}
	h.last = time.Now()
	if m.Kind == commit.Report {
		var r report // a new one: what was told before is kept by progress
		if err := json.Unmarshal([]byte(m.Body), &r); err != nil {
			return
		}
		h.report = r
	}
	for _, groups := range [...][]*group{c.groups, c.ending} { // also the one that the job was in before
		for _, g := range groups {
			g.machine.Handle(m, &c.out)
			c.carryOut(g)
		}
	}
	if m.Kind == commit.Report && m.From.Rank == 0 {
		c.progress(g, m.From.Job, h)
	}
}

func (c *Controller) group(job uint32) *group {
	for _, g := range c.groups {
		if slices.ContainsFunc(g.members, func(m Member) bool { return m.Job == job }) {
			return g
		}
	}
	return nil
}

// progress looks at a report of a job's rank 0.
func (c *Controller) progress(g *group, job uint32, h *peer) {
	k := c.jobs[job]
	if k == nil {
		k = &known{}
		c.jobs[job] = k
	}
	k.steps = h.report.Steps
	if p := h.report.Pattern; p != nil && !reflect.DeepEqual(p, k.pattern) {
		k.pattern = p
		g.machine.Change(&c.out)
		c.carryOut(g)
		return
	}
	if time.Since(g.since) < c.cfg.Settle || !g.machine.Idle() {
		return
	}
	first, last := math.Inf(1), math.Inf(-1)
	for _, job := range g.machine.In() {
		if h := c.hosts[commit.Node{Job: job}]; h != nil && h.report.Version == g.state {
			first, last = min(first, h.report.Drift), max(last, h.report.Drift)
		}
	}
	if last-first > c.cfg.Drift {
		g.since = time.Now()
		c.cfg.Log.Write(Entry{What: "drift", Txn: g.state, Jobs: g.machine.In(), Wait: seconds(last - first).Nanoseconds()})
		g.machine.Change(&c.out)
		c.carryOut(g)
	}
}

// listen looks for hosts that have not reported for too long.
func (c *Controller) listen() {
	for _, g := range c.groups {
		for _, job := range g.machine.In() {
			for _, m := range g.members {
				for rank := range m.Hosts {
					n := commit.Node{Job: job, Rank: uint32(rank)}
					if h := c.hosts[n]; m.Job == job && (h == nil || time.Since(h.last) > c.cfg.Silence) {
						g.machine.Suspect(n, &c.out)
						c.carryOut(g)
					}
				}
			}
		}
	}
}

// carryOut does what a group's machine wants.
func (c *Controller) carryOut(g *group) {
	c.cfg.Log.events(c.out.Events)
	for _, e := range c.out.Events {
		switch {
		case e.Kind == commit.Begun: // no two transactions have one number
			c.last = e.Txn
			for _, g := range c.groups {
				g.machine.After(e.Txn)
			}
		case e.Kind == commit.Committed:
			g.state, g.since = e.Txn, time.Now()
		case e.Kind == commit.Out && c.cfg.Out != nil:
			c.cfg.Out(e.Node.Job, e.Run, e.Why.String())
		}
	}
	for i := range c.out.Messages {
		m := &c.out.Messages[i]
		h := c.hosts[m.To]
		if h == nil || h.run != m.Run {
			continue
		}
		w := toWire(m)
		if m.Kind == commit.Prepare {
			w.Peers = c.peers(g, m.To.Job)
		}
		c.post.send(h.address, w)
	}
	for _, a := range c.out.Timers {
		var t *time.Timer
		t = time.AfterFunc(a.After, func() {
			c.do(func() {
				delete(c.timers, t)
				g.machine.Timeout(a.Timer, &c.out)
				c.carryOut(g)
			}, false)
		})
		c.timers[t] = struct{}{}
	}
	c.out.Reset()
}

func (c *Controller) peers(g *group, job uint32) []string {
	var out []string
	for _, m := range g.members {
		for rank := range m.Hosts {
			if h := c.hosts[commit.Node{Job: job, Rank: uint32(rank)}]; m.Job == job && h != nil {
				out = append(out, h.address)
			}
		}
	}
	return out
}

// state is what the hosts are to take over: where all jobs are that are locked.
func (c *Controller) state(g *group, ready []commit.Ready) string {
	s := timetable.Snapshot{Cost: c.cfg.Cost, PerHost: c.cfg.PerHost}
	index := map[uint32]int{}
	for _, r := range ready {
		if r.Rank != 0 {
			s.Jobs[index[r.Job]].Hosts++
			continue
		}
		index[r.Job] = len(s.Jobs)
		j := timetable.Job{ID: r.Job, Hosts: 1, Next: r.Index}
		var w where
		if k := c.jobs[r.Job]; k != nil && k.pattern != nil && json.Unmarshal([]byte(r.About), &w) == nil {
			j.Step, j.Ops, j.Steps = k.pattern.Step, k.pattern.Ops, k.steps
			j.Began = max(w.Began, 0)
			if j.Running = w.Running && r.Index > 0; j.Running {
				o := j.Ops[(r.Index-1)%uint64(len(j.Ops))]
				j.INA, j.Ends = w.INA, max(0, c.cfg.Cost.Duration(o.Bytes, 2, w.INA)-max(w.Launched, 0))
			}
		}
		s.Jobs = append(s.Jobs, j)
	}
	for _, m := range g.members {
		i, ok := index[m.Job]
		if !ok {
			continue
		}
		s.Jobs[i].Rivals = []int{}
		for _, r := range ready {
			if k := index[r.Job]; r.Rank == 0 && k != i && (m.Rivals == nil || slices.Contains(m.Rivals, r.Job)) {
				s.Jobs[i].Rivals = append(s.Jobs[i].Rivals, k)
			}
		}
	}
	if len(s.Jobs) > 0 {
		if _, err := timetable.New(&s, 0); err != nil {
			c.cfg.Log.Write(Entry{What: "no timetable", Txn: g.machine.Last(), Why: err.Error()})
			for i := range s.Jobs {
				s.Jobs[i].Ops, s.Jobs[i].Running = nil, false
			}
		}
	}
	text, _ := json.Marshal(s)
	return string(text)
}

// Close ends it. Hosts keep the state that they have.
func (c *Controller) Close() error {
	c.once.Do(func() {
		close(c.stop)
		c.done.Wait()
		for t := range c.timers {
			t.Stop()
		}
		c.post.close()
	})
	return nil
}
