// Package deploy runs a Parameter Service on the hosts of a testbed: pMaster beside this program,
// Aggregators on the hosts that are for them, as pMaster asks for them, and the workers of jobs
// that come, train for so many iterations, and leave. Or, without pMaster, each job has servers of
// its own, as with ps-lite.
//
// Everything is a process, started over SSH under a supervisor, and what goes between them is real.
// What they say is put on one clock: a host's differs from this machine's by what the quickest
// of its lines took to come here, at most.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/paramservice/aggregator"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/node"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
)

// Hosts is where nodes run: testbed/remote.Testbed.
type Hosts interface {
	Inventory() *inventory.Inventory
	Launch(ctx context.Context, host, verb string, config any) (*hosts.Process, error)
	Reach(host string) (netip.Addr, error)
	// Silence is why a process of a job, or of several ("" then), that reports all the time has
	// not for so long, and nil as long as that may be.
	Silence(ctx context.Context, t *hosts.Talk, job string, quiet time.Duration) error
	// Why is why a process failed with err, if a host that was lost, or the process's
	// supervisor, knows more of it.
	Why(ctx context.Context, err error) error
}

// Config is where a service runs, and how.
type Config struct {
	Hosts  Hosts
	Verb   string        // of this program on a host, under which it is node.Main
	Master []string      // how this program is started as pmaster.Main; empty: jobs have servers of their own
	Setup  pmaster.Setup // pMaster's; Listen is filled in

	Aggregators []string      // hosts for Aggregators, or servers
	Workers     []string      // hosts for workers, one each
	Report      time.Duration // between an Aggregator's reports, and between a worker's signs of life
	Packing     time.Duration // until an Aggregator has a tensor ready to be copied to another one
	Background  *Background   // other traffic; nil: none

	Now func() time.Duration // the clock of what is returned
	// Sample is called again and again, and a last time; nil: it is not.
	Sample   func(context.Context) error
	Interval time.Duration // between its calls
}

// Job is a training job.
type Job struct {
	control.Job                 // its ID is pMaster's
	Arrive      time.Duration   // after the first
	Iterations  int             // at least 1
	Backward    []time.Duration // by tensor: computing until its gradient is there, the last tensor first
	Slower      []float64       // by iteration: by what factor it computes longer than that; none: it does not
	Seed        uint64          // of gradients
	// Migrate has all tensors move to other Aggregators after every so many iterations; 0: never.
	Migrate int
}

// Outcome is what became of a job.
type Outcome struct {
	ID         uint32          // as Aggregators know it; 0: it has none yet
	On         []string        // the host of each worker
	Start, End time.Duration   // all workers were there, and all had finished; 0: they have not
	Workers    [][]Iteration   // of each worker
	Digests    []string        // of each worker's last models; see node.Digest
	Moved      int             // tensors that changed their Aggregator
	Told       []time.Duration // when all were told to, see Job.Migrate
	Profiled   time.Duration   // when pMaster had its profile; 0: it never had
	Loss       float64         // the largest part of its speed that it lost by pMaster's model
}

// Iteration is one of a worker's.
type Iteration struct {
	End            time.Duration
	Spent, Stalled time.Duration // Stalled of it waiting for models
	Late           time.Duration // by how much its host was late, at most
	Moved          int           // tensors that were found at another Aggregator
}

// Aggregator is one, or a server of a job's own.
type Aggregator struct {
	ID       int32
	Host     string
	From, To time.Duration                 // asked for, and without tensors any more
	Stats    aggregator.Stats              // when it ended
	Tensors  map[control.Key]time.Duration // of its core, as it is emulated
	Turns    [3]int                        // of requests, by paramservice.Turn: on time, in spare time, postponed
	// Disturbed is when background flows began on its NIC; 0: none did.
	Disturbed time.Duration
}

// Result is what became of a service.
type Result struct {
	Jobs        []Outcome // as given
	Aggregators []Aggregator
	Events      []pmaster.Event // on the run's clock; only Arrived and Ended of jobs without pMaster
	Begin, End  time.Duration
}

// Errors.
var (
	// ErrHosts is that of more workers than hosts.
	ErrHosts = errors.New("not enough hosts")
)

const (
	// grace is how long a node may take to say why it ends, when another one has said so
	// of itself.
	grace = time.Second
)

// endTimeout bounds the end of everything. Tests shorten it.
var endTimeout = 20 * time.Second

// Run runs jobs until the last one has left. It returns what was seen also with an error, which
// names the node and its host; nothing runs any more then.
func Run(ctx context.Context, cfg Config, jobs []Job) (*Result, error) {
	r := &runner{Config: cfg, news: make(chan func() error), over: make(chan struct{}), nodes: map[*process]bool{}, load: map[string]int{}, holds: map[control.Key]*server{}}
	ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	var aside sync.WaitGroup
	if r.Sample != nil {
		aside.Go(func() { r.sample(ctx) })
	}
	r.begin = r.Now()
	err := r.run(ctx, jobs)
	end := r.Now()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cerr := r.close(ctx, err == nil)
	if err == nil {
		err = cerr
	}
	r.cancel(nil)
	aside.Wait()
	if r.Sample != nil {
		last, done := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer done()
		if serr := r.Sample(last); err == nil {
			err = serr
		}
	}
	return r.result(end), err
}

// sample calls Sample until ctx ends. If that fails so does the run, unless it knows better.
func (r *runner) sample(ctx context.Context) {
	tick := time.NewTicker(r.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := r.Sample(ctx); err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(2 * grace):
				r.cancel(err)
			}
			return
		}
	}
}

// runner is a service that runs. Everything but news, over and work belongs to one goroutine.
type runner struct {
	Config
	cancel context.CancelCauseFunc
	news   chan func() error // what has happened
	over   chan struct{}     // closed when nobody wants to know any more
	work   sync.WaitGroup

	closing bool // no node is started any more

	begin  time.Duration
	master *master // nil: none
	jobs   []*job
	left   int               // jobs that have not left
	nodes  map[*process]bool // that run
	load   map[string]int    // Aggregators of a host
	taken  []string          // hosts of workers
	aggs   []*server
	holds  map[control.Key]*server // who has last reported aggregations of a tensor
	events []pmaster.Event

	disturbance *disturbance // nil: no background flows
}

// post says what has happened.
func (r *runner) post(f func() error) {
	select {
	case r.news <- f:
	case <-r.over:
	}
}

// later says something after a time, if it is still of interest.
func (r *runner) later(d time.Duration, f func() error) {
	r.work.Go(func() {
		select {
		case <-time.After(d):
			r.post(f)
		case <-r.over:
		}
	})
}

// fail is that something went wrong; who caused it may say so meanwhile.
func (r *runner) fail(err error, wait time.Duration) { r.later(wait, func() error { return err }) }

// run does what there is to do until all jobs have left.
func (r *runner) run(ctx context.Context, jobs []Job) error {
	if len(r.Master) > 0 {
		if err := r.startMaster(ctx); err != nil {
			return err
		}
	}
	origin := r.Now()
	if b := r.Background; b != nil {
		r.disturbance = &disturbance{r: r}
		r.disturbance.listen(ctx)
		r.later(origin+b.From-r.Now(), func() error { return r.disturbance.disturb(ctx) })
	}
	for i := range jobs {
		j := &job{Job: jobs[i], r: r, index: i}
		if len(r.Master) == 0 {
			j.ID = uint32(i + 1)
		}
		j.out.Workers, j.out.Digests = make([][]Iteration, j.Job.Workers), make([]string, j.Job.Workers)
		r.jobs = append(r.jobs, j)
		r.later(origin+j.Arrive-r.Now(), func() error { return j.arrive(ctx) })
	}
	r.left = len(jobs)
	watch := time.NewTicker(time.Second)
	defer watch.Stop()
	for r.left > 0 {
		var err error
		select {
		case f := <-r.news:
			err = f()
		case <-watch.C:
			r.watch(ctx)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// close ends all nodes. Those that end well say what they have done.
func (r *runner) close(ctx context.Context, well bool) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	r.closing = true
	if r.disturbance != nil {
		r.disturbance.stop()
	}
	if r.master != nil {
		r.master.stop(well)
	}
	stop := func() {
		for p := range r.nodes {
			p.stop()
		}
	}
	if !well || r.master == nil {
		stop()
	}
	late := time.After(endTimeout / 2)
	for len(r.nodes) > 0 || r.master != nil && !r.master.ended {
		select {
		case f := <-r.news:
			if ferr := f(); ferr != nil && err == nil && well {
				err = ferr
			}
		case <-late:
			stop()
		case <-ctx.Done():
			for p := range r.nodes {
				err = errors.Join(err, p.Named(errors.New("does not end")))
				if proc := p.Process(); proc != nil {
					_ = proc.Close()
				}
			}
			r.nodes = nil
			if r.master != nil {
				r.master.kill()
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(r.over)
	r.work.Wait()
	return err
}

// job is one that is there.
type job struct {
	Job
	r       *runner
	index   int
	asked   bool // pMaster has been told of it
	servers []*server
	workers []*worker
	out     Outcome
	ready   int // workers
	ended   int // workers
}

// arrive begins with a job.
func (j *job) arrive(ctx context.Context) error {
	if j.r.master != nil {
		j.asked = true
		return j.r.master.say(pmaster.Command{Cmd: "register", Job: j.Job.Job})
	}
	for range max(1, j.Servers) {
		s := j.r.newServer(int32(len(j.r.aggs)), j)
		j.servers = append(j.servers, s)
		s.start(ctx, node.Config{Aggregator: &node.Aggregator{ID: s.ID, Report: j.r.Report, Jobs: []control.Job{j.Job.Job}}})
	}
	return nil
}

// train starts the workers of a job.
func (j *job) train(ctx context.Context) error {
	hosts, err := j.r.free(j.Job.Workers)
	if err != nil {
		return fmt.Errorf("job %s: %w", j.Name, err)
	}
	j.out.On = hosts
	var servers []control.Peer
	for _, s := range j.servers {
		servers = append(servers, control.Peer{ID: s.ID, Address: s.address})
	}
	for rank, h := range hosts {
		w := &worker{job: j, rank: rank}
		j.workers = append(j.workers, w)
		w.start(ctx, h, node.Config{Times: j.r.Setup.Times, Worker: &node.Worker{
			Job: j.Job.Job, Rank: int32(rank), Servers: servers, Iterations: j.Iterations, Backward: j.Backward, Slower: j.Slower, Report: 1, Seed: j.Seed, Beat: j.r.Report,
		}})
	}
	return nil
}

// free are so many hosts for workers, which are taken then.
func (r *runner) free(n int) ([]string, error) {
	var out []string
	for _, h := range r.Workers {
		if len(out) < n && !slices.Contains(r.taken, h) {
			out = append(out, h)
		}
	}
	if len(out) < n {
		return nil, fmt.Errorf("%w: %d workers, and %d of %d are left", ErrHosts, n, len(out), len(r.Workers))
	}
	r.taken = append(r.taken, out...)
	return out, nil
}

// leave is the end of a job's last worker.
func (j *job) leave() {
	if j.out.End == 0 {
		j.out.End = j.r.Now()
	}
	j.r.left--
	j.r.taken = slices.DeleteFunc(j.r.taken, func(h string) bool { return slices.Contains(j.out.On, h) })
	for _, s := range j.servers {
		s.gone(j.out.End)
		s.process.stop()
	}
	if j.r.master == nil {
		j.r.note(pmaster.Event{Event: "ended", Name: j.Name, Job: j.ID})
	}
}

// note keeps an event, now.
func (r *runner) note(e pmaster.Event) {
	e.T = r.Now().Seconds()
	r.events = append(r.events, e)
}

// result is what was seen.
func (r *runner) result(end time.Duration) *Result {
	out := &Result{Events: r.events, Begin: r.begin, End: end}
	for _, j := range r.jobs {
		for rank, w := range j.workers {
			j.out.Workers[rank] = w.timed()
		}
		j.out.ID = j.ID
		out.Jobs = append(out.Jobs, j.out)
	}
	for _, s := range r.aggs {
		s.gone(end)
		out.Aggregators = append(out.Aggregators, s.Aggregator)
	}
	return out
}
