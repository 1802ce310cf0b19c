package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// Steps of virtual time. Shorter ones happen where something does.
const (
	round     = 4 * time.Millisecond // the longest
	aimdRound = 250 * time.Microsecond
)

// Options are what the model is run with.
type Options struct {
	Seed uint64 // of everything random, together with that of each setup
}

// Open returns the model of an inventory. It does not change inv.
func Open(inv *inventory.Inventory, o Options) (testbed.Testbed, error) {
	if len(inv.Hosts) == 0 {
		return nil, errors.New("model an inventory without hosts")
	}
	return &bench{inv: inv.Clone(), seed: o.Seed}, nil
}

// bench implements testbed.Testbed.
type bench struct {
	inv  *inventory.Inventory
	seed uint64

	mu     sync.Mutex
	busy   *deployment
	closed bool
	sab    *saboteur // nil: nothing is wrong on purpose
}

func (b *bench) Capabilities() testbed.Capabilities {
	return testbed.Capabilities{Virtual: true, Impairments: true, Kind: results.Simulated, Switch: "model"}
}

func (b *bench) Inventory() *inventory.Inventory { return b.inv }

// Facts implements testbed.Testbed: no machine shapes the figures of a model.
func (b *bench) Facts() []results.HostFacts { return nil }

// Deploy implements testbed.Testbed. A synchronous job that does not find its two
// windows of aggregators is an error wrapping placement.ErrMemory.
func (b *bench) Deploy(ctx context.Context, s testbed.Setup) (testbed.Deployment, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("the testbed is closed: %w", os.ErrClosed)
	}
	if b.busy != nil {
		return nil, fmt.Errorf("%w: close the other deployment first", testbed.ErrBusy)
	}
	d, err := newDeployment(b, s)
	if err != nil {
		return nil, err
	}
	b.busy = d
	return d, nil
}

func (b *bench) Close(ctx context.Context) error {
	b.mu.Lock()
	d := b.busy
	b.closed = true
	b.mu.Unlock()
	if d != nil {
		return d.Close(ctx)
	}
	return nil
}

// deployment implements testbed.Deployment.
type deployment struct {
	tb    *bench
	setup testbed.Setup
	topo  *inventory.Topology
	fair  bool // one queue per job
	flows bool // of which each of its flows has its own
	rng   *rand.Rand

	mu       sync.Mutex
	now      time.Duration
	closed   bool
	links    []directed // as in the topology
	jobs     []*job     // as in the plan
	switches []string   // with memories, in order of first use
	memories map[string]*memory
	regions  *placement.Regions // of synchronous jobs
	demand   []float64
	sab      *saboteur
	steady   map[string]*placement.Prediction // of sets of streams
	streams  string                           // those that send now; empty: what they do is sampled
	sending  string                           // all that send now
	running  string                           // all that run, some of which may pause
	damage   map[string]flow.Damage           // by directed link
	lossy    *placement.Prediction            // of those that send now, where links are damaged; nil: none is that matters
	beyond   string                           // what the model left out since Health was asked; empty: nothing that matters
}

func newDeployment(b *bench, s testbed.Setup) (*deployment, error) {
	if len(s.Workloads) != len(s.Plan.Jobs) {
		return nil, fmt.Errorf("%d workloads for %d jobs", len(s.Workloads), len(s.Plan.Jobs))
	}
	if _, ok := addressings[s.Settings.Addressing]; !ok {
		return nil, fmt.Errorf("unknown addressing %q", s.Settings.Addressing)
	}
	if m := s.Settings.Mode; m != "" && m != "statistical" && m != "synchronous" {
		return nil, fmt.Errorf("unknown switch mode %q", m)
	}
	d := &deployment{
		tb: b, setup: s, topo: b.inv.Topology(), fair: s.Settings.Queue == "fair" || s.Settings.Queue == "flows", flows: s.Settings.Queue == "flows",
		rng:      rand.New(rand.NewPCG(b.seed, s.Settings.Seed)),
		memories: map[string]*memory{}, damage: map[string]flow.Damage{}, regions: placement.NewRegions(s.Settings.Aggregators), sab: b.sab,
	}
	if s.Grants != nil {
		if err := placement.CheckGrants(b.inv, s.Settings.Aggregators, s.Plan.Jobs, s.Grants); err != nil {
			return nil, err
		}
	}
	for _, l := range d.topo.Links {
		d.links = append(d.links, newLink(b.inv, l))
	}
	for i, p := range s.Plan.Jobs {
		if err := d.add(p, s.Workloads[i]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *deployment) add(p placement.JobPlan, w testbed.Workload) error {
	if slices.ContainsFunc(d.jobs, func(j *job) bool { return j.plan.Name == p.Name }) {
		return fmt.Errorf("two jobs are named %q", p.Name)
	}
	j, err := newJob(d, p, w)
	if err != nil {
		return fmt.Errorf("job %s: %w", p.Name, err)
	}
	d.jobs = append(d.jobs, j)
	for u := range j.uses {
		l := &d.links[j.uses[u].link]
		l.users = append(l.users, user{j, u})
	}
	return nil
}

// Add implements testbed.Deployment.
func (d *deployment) Add(ctx context.Context, p placement.JobPlan, w testbed.Workload) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := cmp.Or(context.Cause(ctx), d.err()); err != nil {
		return fmt.Errorf("add job %s: %w", p.Name, err)
	}
	return d.add(p, w)
}

// Remove implements testbed.Deployment.
func (d *deployment) Remove(ctx context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	j, err := d.job(name)
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil && j.running:
		err = errors.New("it runs: stop it first")
	}
	if err != nil {
		return fmt.Errorf("remove job %s: %w", name, err)
	}
	d.jobs = slices.DeleteFunc(d.jobs, func(o *job) bool { return o == j })
	for i := range d.links {
		l := &d.links[i]
		l.users = slices.DeleteFunc(l.users, func(u user) bool { return u.job == j })
	}
	for _, n := range j.nodes {
		if n.mem != nil {
			n.mem.tenants = slices.DeleteFunc(n.mem.tenants, func(t *tenant) bool { return t == n.tenant })
		}
	}
	return nil
}

// Reallocate implements testbed.Deployment. In this model a pause takes no time.
func (d *deployment) Reallocate(ctx context.Context, grants map[string]placement.Grant) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := cmp.Or(context.Cause(ctx), d.err())
	if err == nil && d.setup.Settings.Mode != "synchronous" {
		err = fmt.Errorf("in %s mode: %w", d.setup.Settings.Mode, errors.ErrUnsupported)
	}
	var plans []placement.JobPlan
	all := map[string]placement.Grant{}
	for _, j := range d.jobs {
		plans, all[j.plan.Name] = append(plans, j.plan), j.grant
	}
	for name, g := range grants {
		if _, ok := all[name]; !ok && err == nil {
			err = fmt.Errorf("no job %q", name)
		}
		all[name] = g
	}
	if err == nil {
		err = placement.CheckGrants(d.tb.inv, d.setup.Settings.Aggregators, plans, all)
	}
	if err != nil {
		return fmt.Errorf("reallocate memory: %w", err)
	}
	if d.setup.Grants == nil {
		d.setup.Grants = map[string]placement.Grant{} // nothing is handed out unasked any more
	}
	for _, j := range d.jobs {
		if g, ok := grants[j.plan.Name]; ok {
			j.take(g)
		}
	}
	return nil
}

// link finds a directed link that leaves a node.
func (d *deployment) link(from string, match func(inventory.DirectedLink) bool) (inventory.DirectedLink, bool) {
	for _, i := range d.topo.Out(from) {
		if l := d.topo.Links[i]; match(l) {
			return l, true
		}
	}
	return inventory.DirectedLink{}, false
}

// cross is how long a frame takes over a link, seconds.
func (d *deployment) cross(link int, frame float64) float64 {
	l := &d.topo.Links[link]
	t := l.Delay.Seconds()
	if l.Rate > 0 {
		t += 8 * frame / float64(l.Rate)
	}
	return t
}

// loop is how long a frame takes over a link and its answer back, seconds.
func (d *deployment) loop(link int, frame float64) float64 {
	return d.cross(link, frame) + d.cross(d.topo.Links[link].Reverse, frame)
}

var errClosed = fmt.Errorf("the deployment is closed: %w", os.ErrClosed)

// job finds a job by its name. The caller holds mu.
func (d *deployment) job(name string) (*job, error) {
	if d.closed {
		return nil, errClosed
	}
	for _, j := range d.jobs {
		if j.plan.Name == name {
			return j, nil
		}
	}
	return nil, fmt.Errorf("no job %q", name)
}

func (d *deployment) Start(ctx context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	j, err := d.job(name)
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil && j.started:
		err = errors.New("started before")
	}
	if err != nil {
		return fmt.Errorf("start job %s: %w", name, err)
	}
	j.started, j.running = true, true
	j.msg.start = d.now.Seconds()
	return nil
}

// Stop implements testbed.Deployment. In this model it takes no time.
func (d *deployment) Stop(ctx context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	j, err := d.job(name)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("stop job %s: %w", name, err)
	}
	j.stop()
	return nil
}

func (d *deployment) Done(name string) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, j := range d.jobs {
		if j.plan.Name == name {
			return j.done
		}
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

func (d *deployment) Summary(name string) (results.JobSummary, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, j := range d.jobs {
		if j.plan.Name == name {
			return j.summary(), nil
		}
	}
	return results.JobSummary{}, fmt.Errorf("no job %q", name)
}

// SetLink implements testbed.Deployment. What damage does to jobs is as in package sim's text.
func (d *deployment) SetLink(ctx context.Context, link string, s testbed.LinkState) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := cmp.Or(context.Cause(ctx), d.err())
	if err == nil && !slices.ContainsFunc(d.topo.Links, func(l inventory.DirectedLink) bool { return l.Name == link }) {
		err = errors.New("there is none of that name")
	}
	if err != nil {
		return fmt.Errorf("damage link %s: %w", link, err)
	}
	damage := flow.Damage{Loss: s.Loss, Twice: s.Duplicate, Late: s.Reorder, Delay: s.ReorderBy.Seconds()}
	if d.damage[link] == damage {
		return nil
	}
	d.damage[link] = damage
	if damage == (flow.Damage{}) {
		delete(d.damage, link)
	}
	d.steady, d.streams = nil, "damaged"
	return nil
}

// Health implements testbed.Deployment: a model is never late, but what it leaves out makes its figures none to be
// judged.
func (d *deployment) Health(ctx context.Context) (troubles []results.Trouble, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.beyond != "" {
		troubles = []results.Trouble{{Where: "model", What: d.beyond, Fatal: true, Code: results.CodeLimited}}
		d.beyond = ""
	}
	return troubles, context.Cause(ctx)
}

// Stalls implements testbed.Deployment: a model never stands still.
func (d *deployment) Stalls(ctx context.Context) ([]testbed.Stall, error) {
	return nil, context.Cause(ctx)
}

func (d *deployment) Now() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// Sleep implements testbed.Deployment: it runs the model up to t, or to what closes
// one of the channels.
func (d *deployment) Sleep(ctx context.Context, t time.Duration, until ...<-chan struct{}) error {
	over := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		d.mu.Lock()
		closed, arrived := d.closed, d.now >= t || slices.ContainsFunc(until, over)
		if !closed && !arrived {
			d.step(ctx, t)
		}
		d.mu.Unlock()
		switch {
		case closed:
			return errClosed
		case arrived:
			return nil
		}
	}
}

func (d *deployment) Close(context.Context) error {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		for _, j := range d.jobs {
			j.stop()
		}
	}
	d.mu.Unlock()
	d.tb.mu.Lock()
	defer d.tb.mu.Unlock()
	if d.tb.busy == d {
		d.tb.busy = nil
	}
	return nil
}

// step moves the model on, at most to t; not where ctx ends while it works out what jobs get.
func (d *deployment) step(ctx context.Context, t time.Duration) {
	now, h := d.now.Seconds(), round.Seconds()
	idle := true
	if d.sab != nil {
		d.sab.step(d)
	}
	for _, j := range d.jobs {
		j.advance(now)
		if !j.running {
			continue
		}
		idle = false
		if at, ok := j.event(); ok {
			h = min(h, at-now)
		}
		if j.aimd {
			h = min(h, max(j.rtt, aimdRound.Seconds()))
		}
	}
	if idle {
		d.now = t
		return
	}
	if d.predict(ctx); ctx.Err() != nil {
		return
	}
	d.allocate()
	d.turn()
	for _, j := range d.jobs {
		if j.msg.left > 0 && j.rate > 0 {
			h = min(h, j.msg.left/j.rate)
		}
	}
	length := min(t-d.now, max(1, time.Duration(math.Ceil(h*1e9))))
	d.now += length
	h = length.Seconds()
	for _, j := range d.jobs {
		if psns := j.count(h); psns > 0 && d.lossy == nil {
			for _, u := range j.uses {
				l := &d.links[u.link]
				l.packets += psns * (u.weight + u.acks)
				l.bytes += psns * u.bytes(j.frame)
			}
		}
		d.queue(j, h)
		d.tell(j)
	}
	if d.lossy != nil {
		d.carry(h)
	}
	for _, name := range d.switches {
		if d.streams == "" {
			d.memories[name].run(h, sampled)
		}
	}
	for _, j := range d.jobs {
		j.weigh()
		j.advance(d.now.Seconds())
	}
}

// tell tells switches' memories how a job sends, and returns the longest hold.
func (d *deployment) tell(j *job) (longest float64) {
	for i := range j.nodes {
		if n := &j.nodes[i]; n.tenant != nil {
			n.tenant.rate, n.tenant.hold = j.rate, n.hold
			if j.rate > 0 {
				n.tenant.hold += j.wait(i, j.backlog/j.rate)
			}
			longest = max(longest, n.tenant.hold)
		}
	}
	return longest
}

// Sample implements testbed.Deployment: the counters that hosts, switches and
// workers of a real testbed have, by the same names. Frames that a link carries
// leave one end and arrive at the other at once. Of many links those that no job has used are left out.
func (d *deployment) Sample(ctx context.Context) ([]results.Sample, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := cmp.Or(context.Cause(ctx), d.err()); err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	s := sampler{t: d.now.Seconds()}
	for _, j := range d.jobs {
		if !j.local { // there is nothing to count
			s.job(j)
		}
	}
	for i := range d.links {
		if l := &d.links[i]; len(d.links) <= testbed.ManyLinks || len(l.users) > 0 || l.packets > 0 {
			s.link(d.topo, i, l)
		}
	}
	if d.sab != nil {
		d.sab.tell(d.now, s.out)
	}
	return s.out, nil
}

func (d *deployment) err() error {
	if d.closed {
		return errClosed
	}
	return nil
}

// sampler collects the readings of one time.
type sampler struct {
	t   float64
	out []results.Sample
}

func (s *sampler) add(source, metric, of, unit string, v float64) {
	if unit != "s" {
		v = math.Round(v) // packets are whole
	}
	s.out = append(s.out, results.Sample{T: s.t, Source: source, Metric: metric, Of: of, Value: v, Unit: unit})
}

func (s *sampler) job(j *job) {
	t := &j.total
	packets, bytes := t.psns+t.resends, (t.psns+t.resends)*j.frame
	if j.circle != nil { // what its sockets send: segments, and acknowledgements of what they get
		packets += t.psns * collectives.AcksPerSegment
		bytes += t.psns * collectives.AcksPerSegment * collectives.Ack
	}
	for _, w := range j.plan.Workers {
		of := fmt.Sprintf("%s/%d", j.plan.Name, w.Rank)
		source := "model of worker " + of
		s.add(source, "worker_tx_packets", of, "1", packets)
		s.add(source, "worker_tx_bytes", of, "B", bytes)
		s.add(source, "worker_rx_packets", of, "1", packets)
		s.add(source, "worker_rx_bytes", of, "B", bytes)
		s.add(source, "worker_psns", of, "1", t.psns)
		s.add(source, "worker_resends", of, "1", t.resends)
		s.add(source, "worker_goodput_bytes", of, "B", t.psns*j.good)
		s.add(source, "worker_rtt_seconds", of, "s", t.rttSum)
		s.add(source, "worker_rtt_count", of, "1", t.rtts)
		s.add(source, "worker_marks", of, "1", t.marks)
		s.add(source, "worker_iterations", of, "1", float64(t.iterations))
		s.add(source, "worker_iteration_seconds", of, "s", t.iterating)
		s.add(source, "worker_comm_seconds", of, "s", t.communicating)
	}
	if j.plan.PS != "" {
		of := j.plan.Name + "/ps"
		s.add("model of ps "+j.plan.Name, "worker_arrived", of, "1", t.arrived)
		s.add("model of ps "+j.plan.Name, "worker_completed", of, "1", t.psns)
	}
	for i := range j.nodes {
		n := &j.nodes[i]
		if !n.isSwitch {
			continue
		}
		of := j.plan.Name + "@" + n.name
		fromAbove := t.psns
		if n.parent == none {
			fromAbove = 0 // it makes the results
		}
		for _, c := range []struct {
			name    string
			packets float64
		}{
			{"job_in", n.total.in}, {"job_out", n.total.out}, {"job_results", fromAbove},
			{"job_granted", n.total.granted}, {"job_denied", n.total.denied}, {"job_resends", n.total.resends},
		} {
			s.add("model of switch "+n.name, c.name+"_packets", of, "1", c.packets)
			s.add("model of switch "+n.name, c.name+"_bytes", of, "B", c.packets*j.frame)
		}
		s.add("model of switch "+n.name, "job_hold_packets", of, "1", n.total.granted)
		s.add("model of switch "+n.name, "job_hold_seconds", of, "s", n.total.hold)
	}
}

// link gives what the two ends of a link count.
func (s *sampler) link(topo *inventory.Topology, i int, l *directed) {
	link := &topo.Links[i]
	s.add("model of link "+link.Name, "link_bytes", link.Name, "B", l.bytes)
	for _, end := range []struct{ node, nic, port string }{{link.From, "nic_tx", "port_tx"}, {link.To, "nic_rx", "port_rx"}} {
		source, name := "model of switch "+end.node, end.port
		if topo.IsHost(end.node) {
			source, name = "model of host "+end.node, end.nic
		}
		s.add(source, name+"_packets", link.Name, "1", l.packets)
		s.add(source, name+"_bytes", link.Name, "B", l.bytes)
	}
}
