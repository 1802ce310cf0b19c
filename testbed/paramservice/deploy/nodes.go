package deploy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"time"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/node"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
)

// process is a node on a host.
type process struct {
	*hosts.Talk
	r        *runner
	closing  bool
	released bool // nobody needs it any more: it may be refused by now
	heard    time.Duration
}

// start starts a node: take takes what it says, in order, and ended is told when it has ended as it
// was to.
func (p *process) start(ctx context.Context, cfg node.Config, take func(e *node.Event, at time.Duration) error, ended func() error) {
	begin(ctx, p, func() (*hosts.Process, error) { return p.launch(ctx, cfg) }, func(e *node.Event) error {
		if e.Event != "error" {
			return nil
		}
		return errors.New(e.Why)
	}, take, ended)
}

// begin starts a process that says Es, with launch. wrong is what an E says is wrong, and nil of others; take and ended are
// those of start.
func begin[E any](ctx context.Context, p *process, launch func() (*hosts.Process, error), wrong func(e *E) error,
	take func(e *E, at time.Duration) error, ended func() error) {
	if p.r.closing {
		return
	}
	p.r.nodes[p] = true
	p.heard = p.r.Now()
	p.r.work.Go(func() {
		proc, err := launch()
		if err != nil {
			p.r.post(func() error {
				delete(p.r.nodes, p)
				return p.Named(err)
			})
			return
		}
		p.Start(proc)
		p.r.post(func() error {
			if p.heard = p.r.Now(); p.closing {
				_ = proc.Stdin.Close()
			}
			return nil
		})
		select {
		case <-p.r.over: // nobody is left who could end it
			_ = proc.Close()
		default:
		}
		hosts.Listen(p.Talk, func(e *E) {
			at := p.r.Now()
			if err := wrong(e); err != nil {
				p.Fail(p.Named(err))
			}
			p.r.post(func() error {
				p.heard = at
				return take(e, at)
			})
		}, func(err error) {
			p.r.post(func() error { return p.over(ctx, err, ended) })
		})
	})
}

// local is the address of its host on the data network.
func (p *process) local() (string, error) {
	h, ok := p.r.Hosts.Inventory().Host(p.Host())
	if !ok || len(h.NICs) == 0 {
		return "", errors.New("it has no NIC")
	}
	return h.NICs[0].Address.Addr().String(), nil
}

// launch starts the process with what all nodes have to know.
func (p *process) launch(ctx context.Context, cfg node.Config) (*hosts.Process, error) {
	local, err := p.local()
	if err != nil {
		return nil, err
	}
	cfg.Local, cfg.Times = local, p.r.Setup.Times
	if m := p.r.master; m != nil {
		at, err := p.r.Hosts.Reach(p.Host())
		if err != nil {
			return nil, err
		}
		cfg.Master = net.JoinHostPort(at.String(), m.port)
	}
	return p.r.Hosts.Launch(ctx, p.Host(), p.r.Verb, cfg)
}

// over is that the process has ended.
func (p *process) over(ctx context.Context, err error, ended func() error) error {
	delete(p.r.nodes, p)
	if err != nil && !p.closing && !p.released {
		if told := p.Err(); told != nil { // it may be a consequence of what befell another one
			p.r.later(grace, func() error {
				if p.released {
					return nil
				}
				return told
			})
			return ended()
		}
		return p.Named(p.r.Hosts.Why(ctx, err))
	}
	return ended()
}

// stop ends the process. It does not wait.
func (p *process) stop() {
	if proc := p.Process(); !p.closing && proc != nil {
		_ = proc.Stdin.Close()
	}
	p.closing = true
}

// watch looks after Aggregators and workers, which say something all the time.
func (r *runner) watch(ctx context.Context) {
	look := func(p *process, job string) {
		if quiet := r.Now() - p.heard; r.nodes[p] && p.Process() != nil && quiet > 2*r.Report {
			r.work.Go(func() {
				if err := r.Hosts.Silence(ctx, p.Talk, job, quiet); err != nil {
					r.post(func() error { return p.Named(err) })
				}
			})
		}
	}
	for _, s := range r.aggs {
		look(s.process, s.jobName())
	}
	for _, j := range r.jobs {
		for _, w := range j.workers {
			look(w.process, j.Name)
		}
	}
}

// server is an Aggregator, or a job's own.
type server struct {
	*process
	Aggregator
	job     *job                   // whose own it is; nil: an Aggregator
	runs    map[control.Key]int    // aggregations, by its last report
	turns   map[control.Key][3]int // of requests, as Turns has them; those of jobs that have left are not told any more
	address string
}

// newServer finds a place for one: the host with fewest.
func (r *runner) newServer(id int32, own *job) *server {
	host := slices.MinFunc(r.Config.Aggregators, func(a, b string) int { return r.load[a] - r.load[b] })
	r.load[host]++
	name := fmt.Sprintf("Aggregator %d", id)
	if own != nil {
		name = fmt.Sprintf("server %d of job %s", len(own.servers), own.Name)
	}
	s := &server{process: &process{r: r, Talk: hosts.NewTalk(name, host)}, job: own, runs: map[control.Key]int{}, turns: map[control.Key][3]int{}}
	s.ID, s.Host, s.From, s.Tensors = id, host, r.Now(), map[control.Key]time.Duration{}
	r.aggs = append(r.aggs, s)
	return s
}

// jobName is the job that it works for; empty: several.
func (s *server) jobName() string {
	if s.job == nil {
		return ""
	}
	return s.job.Name
}

func (s *server) start(ctx context.Context, cfg node.Config) {
	s.process.start(ctx, cfg, func(e *node.Event, _ time.Duration) error { return s.take(ctx, e) }, func() error {
		s.r.load[s.Talk.Host()]--
		if s.job != nil && !s.closing {
			return s.Named(errors.New("it has ended"))
		}
		if m := s.r.master; m != nil && !m.ended {
			return m.say(pmaster.Command{Cmd: "exited", Aggregator: s.ID})
		}
		return nil
	})
}

// gone is that nobody needs it any more.
func (s *server) gone(at time.Duration) {
	if s.To == 0 {
		s.To = at
	}
	s.released = true
	if d := s.r.disturbance; d != nil && d.on == s {
		d.source.stop()
	}
}

func (s *server) take(ctx context.Context, e *node.Event) error {
	switch e.Event {
	case "ready":
		s.address = e.Address
		if j := s.job; j != nil && !slices.ContainsFunc(j.servers, func(s *server) bool { return s.address == "" }) {
			return j.train(ctx)
		}
	case "stats":
		if e.Stats.Unfit != "" {
			return s.Named(fmt.Errorf("cycle that cannot be: %s", e.Stats.Unfit))
		}
		s.Stats = *e.Stats
		for _, t := range e.Stats.Tensors {
			s.Tensors[t.Key] = max(s.Tensors[t.Key], t.Busy)
			if t.Runs > s.runs[t.Key] {
				s.runs[t.Key], s.r.holds[t.Key] = t.Runs, s
			}
			s.turns[t.Key] = [3]int{t.Runs - t.Spare - t.Postponed, t.Spare, t.Postponed}
		}
		s.Turns = [3]int{}
		for _, turns := range s.turns {
			for i, n := range turns {
				s.Turns[i] += n
			}
		}
		s.Stats.Tensors = nil
	}
	return nil
}

// worker is a job's.
type worker struct {
	*process
	job    *job
	rank   int
	offset float64 // s, from the host's clock to the run's: at most so much
	its    []Iteration
	ends   []float64 // s, of iterations, on the host's clock
	last   bool      // it has done all it was to
}

func (w *worker) start(ctx context.Context, host string, cfg node.Config) {
	w.process = &process{r: w.job.r, Talk: hosts.NewTalk(fmt.Sprintf("worker %s/%d", w.job.Name, w.rank), host)}
	w.offset = math.Inf(1)
	w.process.start(ctx, cfg, w.take, func() error {
		if !w.last && w.Err() == nil && !w.closing {
			return w.Named(errors.New("it has ended without its last models"))
		}
		if j := w.job; w.last {
			if j.ended++; j.ended == len(j.workers) {
				j.leave()
			}
		}
		return nil
	})
}

func (w *worker) take(e *node.Event, at time.Duration) error {
	j := w.job
	switch e.Event {
	case "ready":
		if j.ready++; j.ready == len(j.workers) {
			j.out.Start = at
			if j.r.master == nil {
				j.r.note(pmaster.Event{Event: "training", Name: j.Name, Job: j.ID})
			}
		}
	case "iteration":
		it := e.Iteration
		end := float64(it.Begun.Add(it.Spent).UnixNano()) / 1e9
		w.ends = append(w.ends, end)
		w.offset = min(w.offset, at.Seconds()-end)
		w.its = append(w.its, Iteration{Spent: it.Spent, Stalled: it.Stalled, Late: it.Late, Moved: it.Moved})
		if w.rank == 0 {
			j.out.Moved += it.Moved
			// Not before it is profiled, and not when nothing can be seen of it any more.
			if n := len(w.its); j.Migrate > 0 && j.out.Profiled > 0 && n%j.Migrate == 0 && n+j.Migrate/2 < j.Iterations && j.r.master != nil {
				j.out.Told = append(j.out.Told, at)
				return j.r.master.say(pmaster.Command{Cmd: "move", ID: j.ID})
			}
		}
	case "done":
		w.last, j.out.Digests[w.rank] = true, e.Digest
	}
	return nil
}

// timed are the iterations, on the run's clock.
func (w *worker) timed() []Iteration {
	for i := range w.its {
		w.its[i].End = time.Duration((w.ends[i] + w.offset) * 1e9)
	}
	return w.its
}
