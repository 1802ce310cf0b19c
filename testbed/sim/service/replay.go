package service

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
)

// TraceJob is a job of a long trace.
type TraceJob struct {
	Name     string        // unique
	Submit   time.Duration // since the trace began
	Duration time.Duration // alone, from when it has its GPUs
	GPUs     int
	// Profile is what Aggregators have to do for it; without tensors it needs none, and only holds
	// GPUs. Its name does not matter.
	Profile paramservice.Job
	Bytes   []int64 // of its tensors
}

// ReplayConfig is what a trace is replayed on.
type ReplayConfig struct {
	Master    paramservice.MasterOptions
	Period    time.Duration // between the ends of Master's periods, if it is Periodic
	Profiling time.Duration // that a job is on temporary Aggregators
	GPUs      int           // 0: any number
}

// replayed is a job of a trace while it runs.
type replayed struct {
	*TraceJob
	left    float64 // ns of work, as of at
	at      time.Duration
	speed   float64
	version int // of the event that ends it
	out     Outcome
}

// replay is a trace that is replayed.
type replay struct {
	ReplayConfig
	timeline
	master *paramservice.Master
	jobs   []*replayed
	names  map[string]*replayed
	waits  []*replayed
	free   int // GPUs
	left   int // jobs that have not ended
	asked  int
	idle   int // periods in which all that are left waited
	counts []Count
	err    error
}

// Replay replays a trace. It returns every mistake in the jobs at once, or the context's error when
// that ends. Outcomes have no iterations; their CPU time is what their profile makes of their
// duration.
func Replay(ctx context.Context, c ReplayConfig, jobs []TraceJob) (*Result, error) {
	if err := c.check(jobs); err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	r := &replay{ReplayConfig: c, master: paramservice.NewMaster(c.Master), names: map[string]*replayed{}, free: c.GPUs, left: len(jobs)}
	if c.GPUs == 0 {
		r.free = math.MaxInt
	}
	for i := range jobs {
		j := &replayed{TraceJob: &jobs[i], left: float64(jobs[i].Duration), speed: 1}
		r.jobs = append(r.jobs, j)
		r.names[j.Name] = j
		r.at(j.Submit, func() {
			r.waits = append(r.waits, j)
			r.admit()
		})
	}
	if c.Master.Periodic {
		r.at(c.Period, r.period)
	}
	for n := 0; r.left > 0 && r.err == nil && len(r.queue) > 0; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		ev := heap.Pop(&r.queue).(event)
		r.now = ev.at
		ev.do()
	}
	if r.err == nil && r.left > 0 {
		r.err = fmt.Errorf("job %s %w", r.waits[0].Name, ErrStuck)
	}
	if r.err != nil {
		return nil, fmt.Errorf("service: at %v: %w", r.now, r.err)
	}
	out := &Result{End: r.now, Counts: r.counts}
	for _, j := range r.jobs {
		out.Jobs = append(out.Jobs, j.out)
	}
	return out, nil
}

func (c *ReplayConfig) check(jobs []TraceJob) error {
	if c.Master.Periodic && c.Period <= 0 || c.Profiling < 0 || c.GPUs < 0 {
		return fmt.Errorf("a period of %v, a profile of %v, %d GPUs: %w", c.Period, c.Profiling, c.GPUs, ErrJob)
	}
	var errs []error
	seen := map[string]bool{}
	for i := range jobs {
		j := &jobs[i]
		if j.Name == "" || seen[j.Name] || j.Submit < 0 || j.Duration <= 0 || j.GPUs < 1 || c.GPUs > 0 && j.GPUs > c.GPUs {
			errs = append(errs, fmt.Errorf("job %d, %q: submitted at %v for %v, %d GPUs of %d: %w", i, j.Name, j.Submit, j.Duration, j.GPUs, c.GPUs, ErrJob))
		}
		if seen[j.Name] = true; len(j.Profile.Tasks) == 0 {
			continue
		}
		p := j.Profile
		p.Name = j.Name
		if err := p.Check(); err != nil {
			errs = append(errs, err)
		} else if len(j.Bytes) != len(p.Tasks) || p.Servers < 1 {
			errs = append(errs, fmt.Errorf("job %s: %d tensors, %d sizes, %d servers: %w", j.Name, len(p.Tasks), len(j.Bytes), p.Servers, ErrJob))
		}
	}
	return errors.Join(errs...)
}

func (r *replay) count() {
	c := Count{r.now, r.master.Size(), r.asked}
	switch n := len(r.counts); {
	case n > 0 && r.counts[n-1].At == r.now:
		r.counts[n-1] = c
	case n == 0 || r.counts[n-1].Aggregators != c.Aggregators || r.counts[n-1].Required != c.Required:
		r.counts = append(r.counts, c)
	}
}

// admit starts who waits and fits, in order.
func (r *replay) admit() {
	rest := r.waits[:0]
	for i, j := range r.waits {
		if r.free == 0 || r.err != nil {
			rest = append(rest, r.waits[i:]...)
			break
		}
		if j.GPUs > r.free || !r.start(j) {
			rest = append(rest, j)
		}
	}
	clear(r.waits[len(rest):])
	r.waits = rest
	r.count()
}

// start gives a job its GPUs, and temporary Aggregators if there is room for them.
func (r *replay) start(j *replayed) bool {
	if len(j.Profile.Tasks) > 0 {
		_, err := r.master.Arrive(j.Name, j.Profile.Servers, j.Bytes)
		if errors.Is(err, paramservice.ErrFull) {
			return false
		} else if err != nil {
			r.err = err
			return false
		}
		r.asked += j.Profile.Servers
		if r.Profiling < j.Duration {
			r.at(r.now+r.Profiling, func() { r.profiled(j) })
		}
	}
	r.free -= j.GPUs
	j.at, j.out.Started, j.out.Start = r.now, true, r.now
	r.due(j)
	return true
}

// due plans when a job ends.
func (r *replay) due(j *replayed) {
	j.version++
	v := j.version
	r.at(r.now+time.Duration(math.Ceil(j.left/j.speed)), func() {
		if j.version == v {
			r.end(j)
		}
	})
}

func (r *replay) profiled(j *replayed) {
	p := j.Profile
	p.Name = j.Name
	change, err := r.master.Profiled(j.Name, p.Iteration, p.Tasks)
	r.changed(change, err, nil)
}

func (r *replay) end(j *replayed) {
	j.version++
	j.out.End, j.out.Work = r.now, j.Duration
	r.left--
	r.free += j.GPUs
	if len(j.Profile.Tasks) > 0 {
		r.asked -= j.Profile.Servers
		j.out.CPU = time.Duration(float64(j.Duration) * j.Profile.Demand())
		of := r.cluster(j.Name)
		delete(r.names, j.Name)
		change, err := r.master.Exit(j.Name)
		r.changed(change, err, of)
	}
	r.admit()
}

func (r *replay) period() {
	r.changed(r.master.Period(), nil, nil)
	r.admit()
	if r.asked == 0 && len(r.waits) == r.left && len(r.waits) > 0 {
		r.idle++ // the next period gives back what this one kept ready; then it is in vain
	} else {
		r.idle = 0
	}
	if r.idle <= 2 {
		r.at(r.now+r.Period, r.period)
	}
}

// cluster is the one that a job is in; nil if it is in none.
func (r *replay) cluster(job string) *paramservice.Cluster {
	for _, c := range r.master.Clusters() {
		if c.Where(job) != nil {
			return c
		}
	}
	return nil
}

// changed has jobs run at the speed that the model gives them now: those in clusters in which
// something moved, and in another one.
func (r *replay) changed(change paramservice.Change, err error, other *paramservice.Cluster) {
	if err != nil {
		r.err = err
		return
	}
	clusters := []*paramservice.Cluster{}
	if other != nil {
		clusters = append(clusters, other)
	}
	last := ""
	for _, v := range change.Moves {
		j := r.names[v.Job]
		if j == nil {
			continue
		}
		if v.From != paramservice.None {
			j.out.Moved++
		}
		if v.Job == last {
			continue
		}
		last = v.Job
		if c := r.cluster(v.Job); c != nil && !slices.Contains(clusters, c) {
			clusters = append(clusters, c)
		}
	}
	for _, c := range clusters {
		losses := c.Losses()
		for _, name := range c.Jobs() { // in order, as events at one time are
			r.slow(r.names[name], losses[name])
		}
	}
	r.count()
}

// slow has a job lose a part of its speed from now on.
func (r *replay) slow(j *replayed, loss float64) {
	j.out.Loss = max(j.out.Loss, loss)
	if j.speed == 1-loss {
		return
	}
	j.left = max(0, j.left-float64(r.now-j.at)*j.speed)
	j.at, j.speed = r.now, 1-loss
	r.due(j)
}

// Ratios are the ratios of allocated Aggregators to servers asked for, at every multiple of a time before
// another at which any were asked for, ascending.
func (r *Result) Ratios(every, until time.Duration) []float64 {
	var out []float64
	i := -1
	for at := time.Duration(0); at < until; at += every {
		for i+1 < len(r.Counts) && r.Counts[i+1].At <= at {
			i++
		}
		if i >= 0 && r.Counts[i].Required > 0 {
			out = append(out, float64(r.Counts[i].Aggregators)/float64(r.Counts[i].Required))
		}
	}
	slices.Sort(out)
	return out
}
