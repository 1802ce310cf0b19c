package deployment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/agents"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/stall"
)

// Bounds on what a deployment waits for.
const (
	readyTimeout = 20 * time.Second // an agent's start on a busy host
	stopTimeout  = 20 * time.Second // finishing what is outstanding
	holdTimeout  = 2 * time.Second  // a job that is stopped saying where it is
	leaveJobs    = 15 * time.Second // ending jobs and making switches forget them, where the run was not interrupted
)

// Options are about the agents of jobs.
type Options struct {
	Interval time.Duration // between their reports; 0: 100 ms
	Rest     time.Duration // between packets, see testbed.Rest; 0: none
	Offload  bool          // they hand packets to their NICs together, see agent.Config
	// StartTimeout is how long the first result of a job may take; 0: 20 s. It is never
	// less than 20 RTO of the job, so that some may be lost.
	StartTimeout time.Duration
}

// Testbed is hosts and switches on which jobs can be deployed.
type Testbed struct {
	*remote.Testbed
	opt    Options
	epochs atomic.Uint32 // the last that was given, modulo 2^16
	busy   atomic.Bool
}

var _ testbed.Testbed = (*Testbed)(nil)

// Open is remote.Open of hosts and switches on which jobs are to be deployed.
func Open(ctx context.Context, o remote.Options, jobs Options) (*Testbed, error) {
	tb, err := remote.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	jobs.Interval = cmp.Or(jobs.Interval, 100*time.Millisecond)
	jobs.StartTimeout = cmp.Or(jobs.StartTimeout, 20*time.Second)
	t := &Testbed{Testbed: tb, opt: jobs}
	t.epochs.Store(uint32(time.Now().UnixMilli()) & 0xFFFF) // other epochs than those of runs before this one
	return t, nil
}

// deployment is one setup on the testbed.
type deployment struct {
	tb     *Testbed
	setup  testbed.Setup
	began  time.Time
	broken chan struct{} // closed when it can do nothing any more
	cause  error         // why; valid then

	failing sync.Once

	mu      sync.Mutex
	jobs    map[string]*runningJob
	order   []string
	regions *placement.Regions // of synchronous jobs
	sampler *collectors.Sampler
	samples []results.Sample // of agents, since the last Sample

	self    *stall.Record   // of this program
	gone    []testbed.Stall // of jobs that were removed, since the last Stalls
	leftOut bool            // Stalls was called since the last Health
	asked   time.Duration   // when that was

	moving sync.Mutex // held while memory is reallocated

	reading sync.WaitGroup
	close   sync.Once
	closed  chan struct{} // closed when Close has begun
	closing error
}

// runningJob is a job's agents.
type runningJob struct {
	plan    placement.JobPlan
	epoch   uint16
	work    testbed.Workload
	program map[string]*dataplane.Batch // entries in switches
	agents  []*remoteAgent              // the PS first, if there is one: it must listen before workers send
	configs []agent.Config              // theirs
	local   *localJob                   // instead of agents
	done    chan struct{}
	grant   placement.Grant // memory in synchronous mode

	turn  sync.Mutex // held by who starts, pauses or stops it
	begun bool       // its agents have been told to start

	ending sync.Once
	left   atomic.Int32 // workers that have not ended
}

// ended is told that an agent has. The job has when all workers have, or when any agent
// could not go on: without its PS it would wait for ever.
func (j *runningJob) ended(a *remoteAgent) {
	if !a.ps && j.left.Add(-1) == 0 || a.Err() != nil {
		j.ending.Do(func() { close(j.done) })
	}
}

func (j *runningJob) workers() []*remoteAgent {
	return slices.DeleteFunc(slices.Clone(j.agents), func(a *remoteAgent) bool { return a.ps })
}

// newEpoch is another one than any of the last 65,534, and not 0: packets of jobs that are
// gone, which may have had the same id, match nothing.
func (tb *Testbed) newEpoch() uint16 {
	for {
		if e := uint16(tb.epochs.Add(1)); e != 0 {
			return e
		}
	}
}

// Deploy implements testbed.Testbed.
func (tb *Testbed) Deploy(ctx context.Context, s testbed.Setup) (_ testbed.Deployment, err error) {
	if tb.Closed() {
		return nil, errors.New("the testbed is closed")
	}
	if len(s.Workloads) != len(s.Plan.Jobs) {
		return nil, fmt.Errorf("%d workloads for %d jobs", len(s.Workloads), len(s.Plan.Jobs))
	}
	if s.Grants != nil {
		if err := placement.CheckGrants(tb.Inventory(), s.Settings.Aggregators, s.Plan.Jobs, s.Grants); err != nil {
			return nil, err
		}
	}
	if !tb.busy.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("%w: close the other deployment first", testbed.ErrBusy)
	}
	d := &deployment{tb: tb, setup: s, jobs: map[string]*runningJob{}, began: time.Now(), broken: make(chan struct{}), closed: make(chan struct{})}
	d.self = stall.New(max(testbed.ShortestBeat(s.Plan.Jobs, tb.Topology(), frameBytes(s)), controllerBeat))
	d.watch()
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close(context.WithoutCancel(ctx)))
		}
	}()
	tb.Audit().Restart()
	d.regions = placement.NewRegions(s.Settings.Aggregators)
	if err := d.bring(ctx, s.Plan.Jobs, s.Workloads); err != nil {
		return nil, d.blame(ctx, err)
	}
	return d, nil
}

// Add implements testbed.Deployment.
func (d *deployment) Add(ctx context.Context, jp placement.JobPlan, w testbed.Workload) (err error) {
	outer := ctx
	defer func() { err = d.blame(outer, err) }()
	if _, ok := d.job(jp.Name); ok {
		return fmt.Errorf("add job %s: it is there already", jp.Name)
	}
	ctx, release := d.whole(ctx)
	defer release()
	if err := d.bring(ctx, []placement.JobPlan{jp}, []testbed.Workload{w}); err != nil {
		return fmt.Errorf("add job %s: %w", jp.Name, err)
	}
	return nil
}

// bring enters jobs into switches and starts their agents.
func (d *deployment) bring(ctx context.Context, jobs []placement.JobPlan, work []testbed.Workload) error {
	whole := map[string]*dataplane.Batch{}
	var added []*runningJob
	epoch := d.tb.newEpoch()
	for i, jp := range jobs {
		j, err := d.newJob(jp, work[i], epoch)
		if err != nil {
			return err
		}
		one := testbed.Setup{Plan: &placement.Plan{Jobs: jobs[i : i+1]}, Settings: d.setup.Settings, Workloads: work[i : i+1], Grants: d.grants()}
		if err := d.enter(j, one); err != nil {
			return err
		}
		for name, b := range j.program {
			if whole[name] == nil {
				whole[name] = &dataplane.Batch{}
			}
			whole[name].Groups = append(whole[name].Groups, b.Groups...)
			whole[name].Jobs = append(whole[name].Jobs, b.Jobs...)
		}
		added = append(added, j)
	}
	if err := d.tb.Write(ctx, whole); err != nil {
		return err
	}
	if err := d.resample(); err != nil {
		return err
	}
	return d.launch(ctx, added)
}

// enter makes one job known, with what switches have to know of it.
func (d *deployment) enter(j *runningJob, one testbed.Setup) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j.program, err = programs(d.tb.Inventory(), one, j.epoch, d.regions); err != nil {
		return err
	}
	j.grant.Base = map[string]int{}
	for sw, b := range j.program {
		for _, e := range b.Jobs {
			if e.Mode == ina.Synchronous && e.Size > 0 {
				j.grant.Window, j.grant.Base[sw] = int(e.Window), int(e.Base)
			}
		}
	}
	if s := d.setup.Settings; s.Mode == "synchronous" && j.plan.Collective == placement.INA && j.grant.Window != j.work.Window {
		for i := range j.configs {
			j.configs[i].Halted = true // until told the window
		}
	}
	d.jobs[j.plan.Name], d.order = j, append(d.order, j.plan.Name)
	return nil
}

func (d *deployment) grants() map[string]placement.Grant {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.setup.Grants
}

// job finds a job by its name.
func (d *deployment) job(name string) (*runningJob, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j, ok := d.jobs[name]
	return j, ok
}

// all are the jobs in the order in which they came.
func (d *deployment) all() []*runningJob {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*runningJob
	for _, name := range d.order {
		out = append(out, d.jobs[name])
	}
	return out
}

// resample makes the sampler one of the jobs that are there now.
func (d *deployment) resample() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sampler, err = d.newSampler()
	return err
}

// Remove implements testbed.Deployment.
func (d *deployment) Remove(ctx context.Context, job string) error {
	j, ok := d.job(job)
	if !ok {
		return fmt.Errorf("remove: no job %q", job)
	}
	j.turn.Lock() // its memory may be about to change
	defer j.turn.Unlock()
	errs := []error{d.end(ctx, []*runningJob{j})}
	d.bury(j)
	d.mu.Lock()
	delete(d.jobs, job)
	d.order = slices.DeleteFunc(d.order, func(name string) bool { return name == job })
	d.mu.Unlock()
	d.tb.Audit().Forget(func(of string) bool { return strings.HasPrefix(of, job+"@") })
	errs = append(errs, d.resample())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove job %s: %w", job, err)
	}
	return nil
}

// newJob is a job of which nothing runs yet.
func (d *deployment) newJob(jp placement.JobPlan, w testbed.Workload, epoch uint16) (*runningJob, error) {
	j := &runningJob{plan: jp, epoch: epoch, work: w, done: make(chan struct{})}
	if jp.Local() {
		j.local = newLocalJob(w, j.done)
		return j, nil
	}
	configs, err := d.configs(jp, w, epoch)
	if err != nil {
		return nil, err
	}
	j.agents = newAgents(jp.Name, configs, d.onSample)
	for _, c := range configs {
		j.configs = append(j.configs, c.config)
	}
	j.left.Store(int32(len(j.workers())))
	return j, nil
}

// newAgents are those of a job, of which none runs yet.
func newAgents(job string, configs []agentConfig, onSample func(*remoteAgent, *agent.Event)) (out []*remoteAgent) {
	for _, c := range configs {
		a := newAgent(c.title, job, c.of, c.host, c.config.Beat, onSample)
		a.ps = c.config.Role == "ps"
		out = append(out, a)
	}
	return out
}

// launch starts the agents of jobs and waits until every one of them is ready and its
// clock has been measured.
func (d *deployment) launch(ctx context.Context, jobs []*runningJob) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("no sign of readiness in time"))
	defer cancel()
	var all []*remoteAgent
	var configs []agent.Config
	var jobOf []*runningJob
	for _, j := range jobs {
		for i, a := range j.agents {
			all, configs, jobOf = append(all, a), append(configs, j.configs[i]), append(jobOf, j)
		}
	}
	err := parallel.All(ctx, len(all), func(ctx context.Context, i int) error {
		a := all[i]
		proc, err := d.tb.Launch(ctx, a.Host(), agents.Verb, configs[i])
		if err != nil {
			return err
		}
		a.Start(proc)
		d.reading.Go(func() {
			a.Listen(a.ended)
			jobOf[i].ended(a)
		})
		if err := a.Await(ctx, "ready", a.Ready()); err != nil {
			return err
		}
		return a.Sync(ctx, d.Now)
	})
	for _, j := range jobs {
		if err == nil && len(j.configs) > 0 && j.configs[0].Halted {
			err = j.resume()
		}
	}
	return err
}

// nicPace is how fast a worker without a rate limit hands packets to its NIC, over
// the rate of the NIC: enough that its queue never runs dry, and no burst of a whole
// window when the job starts.
const nicPace = 1.25

// agentConfig is an agent to start and where.
type agentConfig struct {
	title, of, host string
	config          agent.Config
}

// frameBytes is the size of a frame of gradients.
func frameBytes(s testbed.Setup) int {
	return (&placement.Conditions{Lanes: s.Settings.Lanes}).FrameBytes()
}

// step is how long a job may be without a result where nothing is amiss.
func (d *deployment) step(j placement.JobPlan, w testbed.Workload) time.Duration {
	return testbed.Step(&j, &w, d.tb.Topology(), frameBytes(d.setup), d.rivals())
}

// operation is how long an operation of a ring may take; 0 of other jobs.
func (d *deployment) operation(j placement.JobPlan, w testbed.Workload) time.Duration {
	return testbed.Operation(&j, &w, d.tb.Topology(), d.rivals())
}

// rivals is how many jobs may share a link.
func (d *deployment) rivals() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(len(d.setup.Plan.Jobs), len(d.order)+1)
}

// name says how a job's packets name their aggregators.
func (d *deployment) name(c *agent.Config, jp placement.JobPlan, w testbed.Workload) (err error) {
	s := d.setup.Settings
	if s.Mode == "synchronous" {
		c.Addressing = ina.Linear
		return nil
	}
	if c.Addressing, err = addressingOf(s.Addressing); err != nil {
		return err
	}
	for _, n := range jp.Tree {
		sw, ok := d.tb.Inventory().Switch(n.Switch)
		if !ok || !n.Aggregate {
			continue
		}
		switch size := placement.Aggregators(sw, s.Aggregators); c.Addressing {
		case ina.Linear:
			c.Offset = offset(s.Seed, jp.ID, size)
		case ina.ATP:
			c.Aggregators, c.Slots = size, w.Slots
		}
	}
	return nil
}

// configs are the agents of one job, its PS first.
func (d *deployment) configs(jp placement.JobPlan, w testbed.Workload, epoch uint16) ([]agentConfig, error) {
	s := d.setup.Settings
	base := agent.Config{
		Collective: string(jp.Collective), Job: jp.ID, Name: jp.Name, Epoch: epoch,
		Workers: len(jp.Workers), Mode: s.Mode, Lanes: s.Lanes, Window: w.Window,
		Rate: w.Rate, Control: w.Control, Seed: s.Seed, Message: w.Message,
		Iterations: w.Iterations, RTO: w.RTO, Interval: cmp.Or(d.setup.Interval, d.tb.opt.Interval), Rest: d.tb.opt.Rest,
		Offload: d.tb.opt.Offload, Beat: beat(&jp, &w, d.tb.Topology(), frameBytes(d.setup)),
	}
	base.Step = cmp.Or(d.operation(jp, w), d.step(jp, w))
	if jp.Collective == placement.PS {
		base.Mode = "forward"
	}
	for _, l := range w.Layers {
		base.Layers = append(base.Layers, agent.Layer{Bytes: l.Bytes, Compute: l.Compute})
	}
	if err := d.name(&base, jp, w); err != nil {
		return nil, err
	}
	for _, wk := range jp.Workers {
		nic, err := nicOf(d.tb.Inventory(), wk.Host, wk.NIC)
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", jp.Name, err)
		}
		base.Peers = append(base.Peers, nic.Address.Addr().String())
	}
	var out []agentConfig
	if jp.PS != "" {
		nic, err := nicOf(d.tb.Inventory(), jp.PS, jp.PSNIC)
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", jp.Name, err)
		}
		base.PS = nic.Address.Addr().String()
		c := base
		c.Role, c.Device = "ps", nic.Device
		out = append(out, agentConfig{"ps " + jp.Name, jp.Name + "/ps", jp.PS, c})
	}
	for _, wk := range jp.Workers {
		nic, _ := nicOf(d.tb.Inventory(), wk.Host, wk.NIC)
		c := base
		c.Role, c.Rank, c.Device = "worker", wk.Rank, nic.Device
		if jp.Collective == placement.Ring {
			c.Role = "ring"
		}
		c.LineRate = nicPace * float64(nic.Rate)
		if c.Role == "ring" { // TCP loses what it sends faster, and has no window to stop at
			c.LineRate = float64(nic.Rate)
		}
		of := fmt.Sprintf("%s/%d", jp.Name, wk.Rank)
		out = append(out, agentConfig{"worker " + of, of, wk.Host, c})
	}
	return out, nil
}

// nicOf finds a host's NIC that has a data address.
func nicOf(inv *inventory.Inventory, host, device string) (inventory.NIC, error) {
	h, ok := inv.Host(host)
	if !ok {
		return inventory.NIC{}, fmt.Errorf("no host %q", host)
	}
	i := slices.IndexFunc(h.NICs, func(n inventory.NIC) bool { return n.Device == device })
	if device == "" && len(h.NICs) == 1 { // an inventory need not name the only one
		i = 0
	}
	if i < 0 {
		return inventory.NIC{}, blame.Host(host, fmt.Errorf("no NIC %q", device))
	}
	if !h.NICs[i].Address.IsValid() {
		return inventory.NIC{}, blame.Host(host, fmt.Errorf("NIC %s: no data address", device))
	}
	return h.NICs[i], nil
}

// Start implements testbed.Deployment.
func (d *deployment) Start(ctx context.Context, job string) (err error) {
	outer := ctx
	defer func() { err = d.blame(outer, err) }()
	j, ok := d.job(job)
	if !ok {
		return fmt.Errorf("start: no job %q", job)
	}
	if j.local != nil {
		j.local.start()
		return context.Cause(ctx)
	}
	j.turn.Lock()
	defer j.turn.Unlock()
	j.begun = true
	// The first two packets are sent one at a time: each may take a step.
	limit := max(d.tb.opt.StartTimeout, 20*j.work.RTO, 4*d.step(j.plan, j.work))
	ctx, release := d.whole(ctx)
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("no result came back within %s: is every cable where the inventory says?", human.Elapsed(limit)))
	defer cancel()
	var before trail // where packets had got to when results should long have been there, once it is read
	read := make(chan struct{})
	early := time.AfterFunc(limit/8, func() {
		defer close(read)
		before = d.follow(outer, j, time.Now().Add(limit/8))
	})
	defer func() {
		if !early.Stop() { // nobody else may ask the agents meanwhile
			<-read
		}
	}()
	// The PS first: it must be listening when gradients arrive.
	for _, a := range j.agents {
		if err := a.Tell(agent.Command{Cmd: "start"}); err != nil {
			return fmt.Errorf("start job %s: %w", job, err)
		}
	}
	for _, a := range j.agents {
		if err := a.Await(ctx, "started", a.Started()); err != nil {
			if deaf := d.deaf(outer, j.agents, limit); deaf != nil && outer.Err() == nil {
				err = deaf
			}
			err = fmt.Errorf("start job %s: %w", job, err)
			if ctx.Err() != nil && outer.Err() == nil {
				select {
				case <-read:
					what, _ := d.follow(outer, j, time.Now().Add(limit/8)).astray(before, j.plan)
					err = fmt.Errorf("%w%s", err, what)
				default:
				}
			}
			return err
		}
	}
	return nil
}

// Stop implements testbed.Deployment. Workers stop first, at a PSN that all of them
// reach soon; the PS goes on answering until all of them have what is theirs.
func (d *deployment) Stop(ctx context.Context, job string) (err error) {
	outer := ctx
	defer func() { err = d.blame(outer, err) }()
	j, ok := d.job(job)
	if !ok {
		return fmt.Errorf("stop: no job %q", job)
	}
	if j.local != nil {
		j.local.stop()
		return context.Cause(ctx)
	}
	ctx, release := d.whole(ctx)
	defer release()
	// What is outstanding may be lost again: resent six times at the longest timeout, of 16 RTO.
	// A ring may have two operations to do, and its agents wait as much longer as stopTimeout is.
	limit := max(stopTimeout, 100*j.work.RTO, 4*d.step(j.plan, j.work))
	if op := d.operation(j.plan, j.work); op > 0 {
		limit = max(limit, stopTimeout+4*op)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", human.Elapsed(limit)))
	defer cancel()
	j.turn.Lock()
	defer j.turn.Unlock()
	workers := j.workers()
	if j.begun && j.plan.Collective != placement.Ring {
		holding, cancel := context.WithTimeout(ctx, holdTimeout)
		// Those that do not answer are told where the others end.
		at, _ := j.hold(holding)
		cancel()
		if err := j.tell(agent.Command{Cmd: "pause", ID: 1, PSN: at}); err != nil {
			return fmt.Errorf("stop job %s: %w", job, err)
		}
	}
	for _, group := range [][]*remoteAgent{workers, slices.DeleteFunc(slices.Clone(j.agents), func(a *remoteAgent) bool { return slices.Contains(workers, a) })} {
		for _, a := range group {
			select {
			case <-a.Over(): // done already
			default:
				if err := a.Tell(agent.Command{Cmd: "stop"}); err != nil && a.Err() != nil {
					return fmt.Errorf("stop job %s: %w", job, err)
				}
			}
		}
		for _, a := range group {
			if err := a.Await(ctx, "stopped", a.Over()); err != nil {
				return fmt.Errorf("stop job %s: %w", job, err)
			}
			if err := a.Err(); err != nil {
				return fmt.Errorf("stop job %s: %w", job, err)
			}
		}
	}
	return nil
}

// Done implements testbed.Deployment.
func (d *deployment) Done(job string) <-chan struct{} {
	if j, ok := d.job(job); ok {
		return j.done
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

// Summary implements testbed.Deployment.
func (d *deployment) Summary(job string) (results.JobSummary, error) {
	j, ok := d.job(job)
	if !ok {
		return results.JobSummary{}, fmt.Errorf("no job %q", job)
	}
	sum := results.JobSummary{Job: job, Workers: len(j.plan.Workers)}
	if j.local != nil {
		j.local.summarise(&sum)
		return sum, nil
	}
	var errs []error
	var comm float64 // of an iteration, s
	for _, a := range j.agents {
		if err := a.Err(); err != nil {
			errs = append(errs, err)
		}
	}
	for i, a := range j.workers() {
		s := a.stats()
		if s == nil {
			continue
		}
		if i == 0 || s.Iterations < sum.Iterations {
			sum.Iterations = s.Iterations
		}
		sum.Packets += s.PacketsSent
		sum.Resends += s.Resends
		sum.SumsChecked += s.SumsChecked
		sum.SumErrors += s.SumErrors
		sum.Damaged += s.Damaged
		sum.Overflows += s.Overflows
		sum.JCT = max(sum.JCT, s.IterationSum)
		if s.Iterations > 0 {
			comm = max(comm, s.CommSum/float64(s.Iterations))
		}
	}
	if comm > 0 && sum.Iterations > 0 {
		n := float64(len(j.plan.Workers))
		sum.AlgBW = 8 * float64(j.message()) / comm
		sum.BusBW = sum.AlgBW * 2 * (n - 1) / n
	}
	return sum, errors.Join(errs...)
}

// message is how many bytes of gradients the job reduces in an iteration; 0 of a stream.
func (j *runningJob) message() (bytes int64) {
	for _, l := range j.work.Reduces() {
		bytes += l.Bytes
	}
	return bytes
}

// onSample keeps an agent's report, its time put on the run's clock.
func (d *deployment) onSample(a *remoteAgent, ev *agent.Event) {
	if ev.Stats == nil {
		return
	}
	s := collectors.WorkerSamples(a.RunTime(ev.T), a.Name(), a.of, *ev.Stats)
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.told++; a.told > mostTold {
		a.Fail(a.Named(fmt.Errorf("%d reports since it was asked last, more than anybody asks for", a.told)))
		return
	}
	if a.reports++; float64(a.reports) > mostTold+mostReports*time.Since(d.began).Seconds() {
		a.Fail(a.Named(fmt.Errorf("%d reports in %s, more than anybody asks for", a.reports, human.Elapsed(time.Since(d.began)))))
		return
	}
	d.samples = append(d.samples, s...)
}

// mostTold is how many reports of an agent wait to be asked for, at most: those of minutes. mostReports is how many it may
// make in a second.
const (
	mostTold    = 20_000
	mostReports = 1000
)

// newSampler reads the NICs of every host and the counters of every switch that
// take part in a deployment.
func (d *deployment) newSampler() (*collectors.Sampler, error) {
	names := map[int]string{}
	at := map[string][]int{}
	for _, name := range d.order {
		j := d.jobs[name]
		names[int(j.plan.ID)] = name
		for sw, b := range j.program {
			for _, e := range b.Jobs {
				at[sw] = append(at[sw], int(e.Job))
			}
		}
	}
	return d.tb.Sampler(d.Now, names, func(sw string) []int { return at[sw] })
}

// Sample implements testbed.Deployment: what agents have said since the last call,
// and the counters of NICs and switches now. A source that cannot be read is an
// error that names it; what the others said is returned all the same.
func (d *deployment) Sample(ctx context.Context) ([]results.Sample, error) {
	outer := ctx
	ctx, release := d.whole(ctx)
	defer release()
	d.mu.Lock()
	sampler := d.sampler
	d.mu.Unlock()
	counters, err := sampler.Sample(ctx)
	d.mu.Lock()
	out := append(d.samples, counters...)
	d.samples = nil
	for _, j := range d.jobs {
		for _, a := range j.agents {
			a.told = 0
		}
	}
	d.mu.Unlock()
	// Whatever else could not be read, what broke the deployment is why.
	if cause := context.Cause(outer); cause != nil {
		return out, cause
	}
	_ = d.blame(outer, errors.Join(d.failures(), err))
	select {
	case <-d.broken:
		return out, d.cause
	default:
		return out, errors.Join(d.failures(), err) // in this order: one may come of the other
	}
}

// failures are those of agents.
func (d *deployment) failures() error {
	var errs []error
	for _, j := range d.all() {
		for _, a := range j.agents {
			errs = append(errs, a.Err())
		}
	}
	return errors.Join(errs...)
}

// SetLink implements testbed.Deployment.
func (d *deployment) SetLink(ctx context.Context, link string, s testbed.LinkState) error {
	return d.tb.SetLink(ctx, link, s)
}

// Health implements testbed.Deployment: the fabric's troubles and the agents'.
func (d *deployment) Health(ctx context.Context) ([]results.Trouble, error) {
	t, err := d.tb.Health(ctx)
	now := d.Now()
	d.mu.Lock()
	passed, leftOut := now-d.asked, d.leftOut
	d.asked, d.leftOut = now, false
	d.mu.Unlock()
	return append(t, d.agentsTrouble(d.tb.Topology(), passed, leftOut)...), err
}

// beat is the shortest time that matters to a job, by which the lateness of its processes is judged: in a window that is
// answered after a trip, what leaves late by a part of that takes that part of the figure, be it a gradient or a result.
// In a lab with cables of microseconds the trip is what hosts make of it, in which they wake up as late as they do.
func beat(j *placement.JobPlan, w *testbed.Workload, topo *inventory.Topology, frame int) time.Duration {
	return max(w.Trip, testbed.Beat(j, topo, frame))
}

// agentsTrouble is where agents of any job could not keep up, each against its own job's round trip.
func (d *deployment) agentsTrouble(topo *inventory.Topology, passed time.Duration, leftOut bool) (t []results.Trouble) {
	for _, j := range d.all() {
		rtt := beat(&j.plan, &j.work, topo, frameBytes(d.setup))
		for _, a := range j.agents {
			if s := a.stats(); s != nil {
				t = append(t, agentTrouble(a, s, rtt, a.stalls.Totals(), passed, leftOut)...)
				a.seen(s)
			}
		}
	}
	return t
}

// Now implements testbed.Deployment.
func (d *deployment) Now() time.Duration { return time.Since(d.began) }

// Sleep implements testbed.Deployment.
func (d *deployment) Sleep(ctx context.Context, t time.Duration, until ...<-chan struct{}) error {
	timer := time.NewTimer(t - d.Now())
	defer timer.Stop()
	wake := []reflect.SelectCase{receive(ctx.Done()), receive(d.broken), receive(timer.C)}
	for _, c := range until {
		wake = append(wake, receive(c))
	}
	switch i, _, _ := reflect.Select(wake); i {
	case 0:
		return context.Cause(ctx)
	case 1:
		return d.cause
	}
	return nil
}

func receive(c any) reflect.SelectCase {
	return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
}

// Close implements testbed.Deployment: agents end, then switches forget the jobs.
func (d *deployment) Close(ctx context.Context) error {
	d.close.Do(func() {
		defer d.tb.busy.Store(false)
		close(d.closed)
		ctx, cancel := d.tb.Leaving(ctx, leaveJobs)
		defer cancel()
		err := d.end(ctx, d.all())
		d.reading.Wait()
		d.closing = err
	})
	return d.closing
}

// endAgent ends an agent and waits for its end, as long as ctx lasts. What is stuck takes its host's connection with it: so
// would be everything else there.
func (d *deployment) endAgent(ctx context.Context, a *remoteAgent) error {
	proc := a.Process()
	if proc == nil {
		return nil
	}
	proc.Stdin.Close() // an agent ends with its stdin
	select {
	case <-a.Over():
		return nil
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	killed := make(chan error, 1)
	go func() { killed <- proc.Close() }()
	var err error
	select {
	case <-a.Over():
		return nil // whatever the killing met, it is gone
	case err = <-killed:
		select {
		case <-a.Over():
			return nil
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
	case <-ctx.Done():
		err = errors.New("its host does not answer")
	}
	if host, err := d.tb.Client(a.Host()); err == nil {
		host.Close()
	}
	if err != nil {
		err = a.Named(fmt.Errorf("stop it: %w", err))
	}
	return err
}

// end ends the agents of jobs, then switches forget them.
func (d *deployment) end(ctx context.Context, jobs []*runningJob) error {
	var errs []error
	var all []*remoteAgent
	entries := map[string]*dataplane.Batch{}
	for _, j := range jobs {
		all = append(all, j.agents...)
		if j.local != nil {
			j.local.stop()
		}
		for name, b := range j.program {
			if entries[name] == nil {
				entries[name] = &dataplane.Batch{}
			}
			entries[name].Groups = append(entries[name].Groups, b.Groups...)
			entries[name].Jobs = append(entries[name].Jobs, b.Jobs...)
		}
	}
	agents := ctx
	if until, ok := ctx.Deadline(); ok { // the rest is for switches, of which most answer
		var cancel context.CancelFunc
		agents, cancel = context.WithTimeout(ctx, 3*time.Until(until)/5)
		defer cancel()
	}
	errs = append(errs, parallel.Every(len(all), len(all), func(i int) error { return d.endAgent(agents, all[i]) }))
	return errors.Join(append(errs, d.tb.Forget(ctx, entries))...)
}
