package service

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
)

// Tensor is one of a model.
type Tensor struct {
	Bytes int64         // of gradient, and of the model
	Ready time.Duration // after an iteration began, its gradient is there
}

// Job is a training job.
type Job struct {
	Name    string // unique
	Tensors []Tensor
	Workers int           // each on a machine of its own
	Servers int           // that the user asked for
	Arrive  time.Duration // since the beginning
	// Iterations is how many it trains; 0: until Stay is over.
	Iterations int
	Stay       time.Duration // after Arrive it leaves, when an iteration has ended; 0: after Iterations
}

// Compute is how long an iteration computes.
func (j *Job) Compute() (longest time.Duration) {
	for _, t := range j.Tensors {
		longest = max(longest, t.Ready)
	}
	return longest
}

// Bytes is what each worker pushes in an iteration.
func (j *Job) Bytes() (sum int64) {
	for _, t := range j.Tensors {
		sum += t.Bytes
	}
	return sum
}

// Config is what jobs run on.
type Config struct {
	// Static gives every job servers of its own, its tensors in turn. Otherwise Master plans.
	Static bool
	Master paramservice.MasterOptions
	Period time.Duration // between the ends of Master's periods, if it is Periodic

	Rate    float64       // bit/s of each machine's NIC, each way
	Latency time.Duration // of a message
	Sum     float64       // bytes of gradients that an Aggregator adds up and applies in a second

	Profile int // iterations on temporary Aggregators; the first is not counted. At least 2
	Packing time.Duration
	Jitter  float64 // standard deviation of an iteration's computing, as a part of it
	Seed    uint64

	// Migrate moves all tensors of a job to other machines after every so many iterations; 0: never.
	Migrate int
	// Background is how many flows there are on one Aggregator's link, from From on, or from when the first job comes after
	// that. They end with the Aggregator.
	Background int
	From       time.Duration

	End time.Duration // of the simulation; 0: when all jobs have left

	// Usage is the length of the intervals over which Machine.Usage is told; 0: it is not.
	Usage time.Duration
}

// Tasks is the CPU time that an Aggregator needs for each tensor of a job in an iteration.
func (c *Config) Tasks(j *Job) []time.Duration {
	out := make([]time.Duration, len(j.Tensors))
	for i, t := range j.Tensors {
		out[i] = time.Duration(math.Round(float64(t.Bytes) * float64(j.Workers) / c.Sum * 1e9))
	}
	return out
}

// Slower returns what draws by what factor each iteration of a job computes longer than the job says, from its first one:
// normally distributed around 1 with the standard deviation Jitter, cut off at 0.5 and 1.5, as far from 1 on both sides, so that
// they are 1 on average whatever Jitter is; 1 without Jitter. Seed and the job's name decide, so that a testbed can have the
// same draws.
func (c *Config) Slower(job string) func() float64 {
	jitter, h := c.Jitter, fnv.New64a()
	h.Write([]byte(job))
	random := rand.New(rand.NewPCG(c.Seed, h.Sum64()))
	return func() float64 {
		if jitter == 0 {
			return 1
		}
		return min(max(1+jitter*random.NormFloat64(), 0.5), 1.5)
	}
}

// ErrJob is wrapped by errors about jobs, or a configuration, that make no sense.
var ErrJob = errors.New("makes no sense")

// ErrStuck is when jobs wait for what never comes.
var ErrStuck = errors.New("waits for ever")

func (c *Config) check(jobs []Job) error {
	bad := func(x float64) bool { return !(x > 0) || math.IsInf(x, 1) }
	switch {
	case bad(c.Rate):
		return fmt.Errorf("a rate of %v bit/s %w", c.Rate, ErrJob)
	case bad(c.Sum):
		return fmt.Errorf("an Aggregator that adds %v bytes/s %w", c.Sum, ErrJob)
	case !c.Static && c.Profile < 2:
		return fmt.Errorf("a profile of %d iterations %w", c.Profile, ErrJob)
	case c.Latency < 0 || c.Packing < 0 || c.From < 0 || c.End < 0 || c.Usage < 0 || c.Migrate < 0 || c.Background < 0:
		return fmt.Errorf("a negative time or number %w", ErrJob)
	case !(c.Jitter >= 0 && c.Jitter <= 1):
		return fmt.Errorf("a jitter of %v %w", c.Jitter, ErrJob)
	case c.Master.Periodic && !c.Static && c.Period <= 0:
		return fmt.Errorf("a period of %v %w", c.Period, ErrJob)
	}
	seen := map[string]bool{}
	var errs []error
	for i := range jobs {
		j := &jobs[i]
		switch {
		case j.Name == "" || seen[j.Name]:
			errs = append(errs, fmt.Errorf("job %d: the name %q %w", i, j.Name, ErrJob))
		case len(j.Tensors) == 0 || j.Workers < 1 || j.Servers < 1:
			errs = append(errs, fmt.Errorf("job %s: %d tensors, %d workers, %d servers: %w", j.Name, len(j.Tensors), j.Workers, j.Servers, ErrJob))
		case j.Arrive < 0 || j.Stay < 0 || j.Iterations < 0:
			errs = append(errs, fmt.Errorf("job %s: arrives at %v for %v or %d iterations: %w", j.Name, j.Arrive, j.Stay, j.Iterations, ErrJob))
		case j.Iterations == 0 && j.Stay == 0 && c.End == 0:
			errs = append(errs, fmt.Errorf("job %s: it never ends: %w", j.Name, ErrJob))
		case j.Compute() <= 0:
			errs = append(errs, fmt.Errorf("job %s: an iteration that computes nothing %w", j.Name, ErrJob))
		}
		for k, t := range j.Tensors {
			if t.Bytes < 0 || t.Ready < 0 {
				errs = append(errs, fmt.Errorf("job %s: tensor %d: %d bytes after %v: %w", j.Name, k, t.Bytes, t.Ready, ErrJob))
			}
		}
		seen[j.Name] = true
	}
	return errors.Join(errs...)
}

// Run simulates jobs, request by request. It returns every mistake in them at once, an error that wraps
// ErrStuck if one can never begin, or the context's when that ends.
func Run(ctx context.Context, c Config, jobs []Job) (*Result, error) {
	if err := c.check(jobs); err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	e := newEngine(c, jobs)
	if err := e.run(ctx); err != nil {
		return nil, fmt.Errorf("service: at %v: %w", e.now, err)
	}
	return e.result(), nil
}

// Profile is a job as it is alone on temporary Aggregators: what a planner is told of it.
func Profile(ctx context.Context, c Config, j Job) (paramservice.Job, error) {
	c.Static, c.Jitter, c.Migrate, c.Background, c.End, c.Usage = false, 0, 0, 0, 0, 0
	c.Master = paramservice.MasterOptions{Options: paramservice.Options{Most: 1}, Aggregators: j.Servers}
	c.Profile = max(c.Profile, 2)
	j.Arrive, j.Stay, j.Iterations = 0, 0, c.Profile
	res, err := Run(ctx, c, []Job{j})
	if err != nil {
		return paramservice.Job{}, err
	}
	o := &res.Jobs[0]
	return paramservice.Job{Name: j.Name, Iteration: o.Mean(1, len(o.Iterations)), Tasks: c.Tasks(&j), Servers: j.Servers}, nil
}
