package online

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/queue"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/sim/replay"
)

// Config is how jobs are managed.
type Config struct {
	Policy    cluster.Policy
	Queue     queue.Discipline     // who of those that wait may start; empty: as the policy has it
	Inventory *inventory.Inventory // the testbed's own
	Settings  testbed.Settings     // of the deployment

	// Cluster is what the policy sees, its servers in the order of the inventory's hosts.
	// No servers: ClusterOf of the inventory and settings.
	Cluster cluster.Config

	Period  time.Duration // between batches; 0: one whenever a job arrives or ends
	Seed    uint64        // of the policy
	Virtual bool          // time is virtual: see testbed.Capabilities

	// IDs is the largest id that a job with aggregation may have on the wire, for which all
	// switches have room (testbed.Capabilities.Jobs); 0: ina.MaxJob. Jobs that are placed
	// while all are taken begin when one has left.
	IDs int

	// Sample, where it is set, gets what the deployment's counters say every Interval
	// (0: a second), and once more in the end. Its error ends the run.
	Interval time.Duration
	Sample   func([]results.Sample) error

	// Progress, where it is set, is called when a job has come, begun or ended. Both are
	// called from the goroutine of Run.
	Progress func(replay.Progress)
}

// ClusterOf is an inventory as policies see it whose switches use as many aggregators as
// an experiment says.
func ClusterOf(inv *inventory.Inventory, s testbed.Settings) cluster.Config {
	return placement.ClusterOf(placement.WithMemory(inv, s.Aggregators))
}

// Job is one job of a trace, in the testbed's own (scaled) units.
type Job struct {
	replay.Job
	Window  int    // packets outstanding per worker, where it sends over the network
	Control string // "fixed" or "aimd"
}

// Result is what came of the jobs that have ended.
type Result struct {
	Jobs    []JobResult // in the order given
	Summary replay.Summary
}

// JobResult is what became of a job. Times are seconds since the beginning of Run; see
// the package's documentation for what they are the times of.
type JobResult struct {
	replay.JobResult
	Placed, Issued, Seen float64

	Plan    placement.JobPlan // as it ran
	Summary results.JobSummary
}

// Replayed are the results as package replay has them.
func (r *Result) Replayed() []replay.JobResult {
	out := make([]replay.JobResult, len(r.Jobs))
	for i := range r.Jobs {
		out[i] = r.Jobs[i].JobResult
	}
	return out
}

// Run manages jobs on a deployment, which has none of these yet, until all have ended.
// It returns the jobs that have, also with an error: every mistake in the jobs, one
// wrapping replay.ErrPolicy if the policy cannot be followed, what went wrong with a job,
// or the context's when that ends. Jobs that run then end with the deployment, which the
// caller closes.
func Run(ctx context.Context, cfg Config, dep testbed.Deployment, jobs []Job) (*Result, error) {
	if cfg.Interval == 0 {
		cfg.Interval = time.Second
	}
	m, err := newManager(cfg, dep, jobs)
	if err != nil {
		return &Result{}, fmt.Errorf("jobs online: %w", err)
	}
	err = m.run(ctx)
	if err != nil {
		err = fmt.Errorf("jobs online: at %.6g s, %d of %d jobs done: %w", m.now().Seconds(), m.done, len(m.jobs), err)
	}
	return m.result(), err
}

// check returns everything that is wrong with what is asked.
func (cfg *Config) check(jobs []Job) error {
	if cfg.Policy == nil || cfg.Inventory == nil {
		return errors.New("no policy or no inventory")
	}
	if len(cfg.Cluster.Servers) == 0 {
		cfg.Cluster = ClusterOf(cfg.Inventory, cfg.Settings)
	}
	if err := cfg.Cluster.Check(); err != nil {
		return err
	}
	if n := len(cfg.Inventory.Hosts); len(cfg.Cluster.Servers) != n {
		return fmt.Errorf("a cluster of %d servers for an inventory of %d hosts", len(cfg.Cluster.Servers), n)
	}
	if err := cfg.Queue.Check(); err != nil {
		return err
	}
	if cfg.IDs < 0 || cfg.IDs > ina.MaxJob {
		return fmt.Errorf("ids of jobs up to %d, want 1..%d, or 0 for the latter", cfg.IDs, ina.MaxJob)
	}
	if cfg.Period < 0 || cfg.Interval < 0 {
		return fmt.Errorf("a period of %v, readings every %v", cfg.Period, cfg.Interval)
	}
	plain := make([]replay.Job, len(jobs))
	for i := range jobs {
		plain[i] = jobs[i].Job
	}
	errs := []error{replay.CheckJobs(cfg.Cluster, plain)}
	const longest = float64(math.MaxInt64 / time.Second)
	for i := range jobs {
		j := &jobs[i]
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("job %d: %w: %s", j.ID, replay.ErrJob, fmt.Sprintf(format, args...)))
		}
		if !(j.Submit < longest) || !(j.Compute < longest) || !(j.Bytes < 1<<60) {
			bad("submitted at %v s, %v s and %v bytes in an iteration", j.Submit, j.Compute, j.Bytes)
		}
		if j.PSes > 1 {
			bad("%d parameter servers, where a testbed's job has one", j.PSes)
		}
		if sync := cfg.Settings.Mode == "synchronous"; sync && j.Traffic == cluster.INA || !sync && j.Traffic == cluster.Tree {
			bad("traffic %d on switches whose mode is %q", j.Traffic, cfg.Settings.Mode)
		}
		if j.Traffic != cluster.Ring && j.Window < 1 {
			bad("a window of %d packets", j.Window)
		}
	}
	return errors.Join(errs...)
}
