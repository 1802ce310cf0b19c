package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/queue"
)

// Config is how a trace is replayed.
type Config struct {
	Cluster  cluster.Config // no servers: PaperCluster
	Policy   cluster.Policy
	Queue    queue.Discipline // who of those that wait may start; empty: as the policy has it
	Period   float64          // seconds between batches, at its multiples; 0: a batch whenever a job arrives or ends
	Seed     uint64           // of the policy
	Fidelity Fidelity

	// Lanes is how many gradients, of 4 bytes, a frame to a PS or a switch has beside 64
	// bytes of headers; the last one of an exchange is filled up. 0: 240.
	Lanes int
	// Overhead is bits on the wire per bit of gradient, whatever the traffic. 0: what frames
	// of Lanes have, and of rings and with a Collective full TCP segments and the
	// acknowledgements of what goes the other way (collectives.Duplex).
	Overhead float64

	// Collective is the operation by which a job of so many workers, one for each of its
	// GPUs, reduces its gradient, alone on its links: see the package's documentation. nil:
	// jobs share the network, and exchange as their Traffic says.
	Collective func(workers int) collectives.Schedule

	// Price is what a job pays; nil: PerGPUTime.
	Price func(*Job) float64

	// Asking, where it is set, is called with the time of each batch before the policy is
	// asked to place it.
	Asking func(now float64)

	// Progress, where it is set, is called at every hundredth of all jobs that has
	// ended, from the goroutine of Run.
	Progress func(Progress)
}

// Fidelity is how closely iterations are followed; see the package's documentation.
type Fidelity uint8

const (
	Fluid  Fidelity = iota // the steady state of all running jobs; for long traces
	Phases                 // computing and exchanging in turn; for short ones
)

// String is "fluid" or "phases".
func (f Fidelity) String() string {
	switch f {
	case Fluid:
		return "fluid"
	case Phases:
		return "phases"
	}
	return fmt.Sprintf("fidelity %d", uint8(f))
}

// Job is one job of a trace.
type Job struct {
	ID         int     // unique
	Submit     float64 // seconds since the trace began, not negative
	GPUs       int     // at least 1
	Iterations int     // at least 1
	Compute    float64 // seconds of an iteration, on each GPU
	Bytes      float64 // of gradient that every worker has after an iteration
	Traffic    cluster.Traffic
	PSes       int     // parameter servers wanted; 0: one
	Skew       float64 // the part of Bytes that the largest tensor has, 0 to 1; 0: unknown
	Value      float64 // among those that wait; 0: 1
}

// Iterations is how many iterations of compute seconds fill a duration, that a trace
// gives for a job on its GPUs without a network: at least 1, rounded to the nearest.
func Iterations(duration, compute float64) int {
	n := math.Round(duration / compute)
	if !(n > 1) {
		return 1
	}
	return int(min(n, math.MaxInt32))
}

// Progress is how far a replay has come.
type Progress struct {
	Time                   float64 // seconds since the trace began
	Waiting, Running, Done int     // jobs
	Jobs                   int     // in all
}

// Sentinels of Run.
var (
	ErrJob    = errors.New("job makes no sense")
	ErrGPUs   = errors.New("more GPUs than the cluster has")
	ErrPolicy = errors.New("policy broke its contract") // what it returned is not what it entered, or nothing ever
)

// PaperCluster is the default of NetPack's evaluation (section 6.1): 16 racks of 16
// machines with 4 GPUs and 100 Gbit/s each, full bisection, a PAT of 1 Tbit/s per ToR.
func PaperCluster() cluster.Config { return cluster.FatTree(16, 16, 4, 100e9, 1e12, 1) }

// Run replays jobs. It returns every mistake in them at once, an error that wraps
// ErrPolicy if the policy cannot be followed, or the context's when that ends.
func Run(ctx context.Context, cfg Config, jobs []Job) (*Result, error) {
	if len(cfg.Cluster.Servers) == 0 {
		cfg.Cluster = PaperCluster()
	}
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	if cfg.Price == nil {
		cfg.Price = PerGPUTime.Price
	}
	if err := CheckJobs(cfg.Cluster, jobs); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	jobs = slices.Clone(jobs)
	if cfg.Collective != nil {
		for i := range jobs {
			jobs[i].Traffic = cluster.Ring // to policies, who look at the steady state of the network
		}
	}
	e := newEngine(cfg, jobs)
	if err := e.run(ctx); err != nil {
		return nil, fmt.Errorf("replay: at %.6g s, %d of %d jobs done: %w", e.now, e.done, len(jobs), err)
	}
	return e.result(), nil
}

func (cfg *Config) check() error {
	if err := cfg.Cluster.Check(); err != nil {
		return err
	}
	switch {
	case cfg.Policy == nil:
		return errors.New("no policy")
	case !(cfg.Period >= 0) || math.IsInf(cfg.Period, 1):
		return fmt.Errorf("a period of %v s", cfg.Period)
	case !(cfg.Overhead >= 0) || math.IsInf(cfg.Overhead, 1):
		return fmt.Errorf("an overhead of %v", cfg.Overhead)
	case cfg.Lanes < 0:
		return fmt.Errorf("%d gradients in a frame", cfg.Lanes)
	case cfg.Fidelity > Phases:
		return errors.New("unknown " + cfg.Fidelity.String())
	}
	return cfg.Queue.Check()
}

// CheckJobs is every mistake in jobs that a cluster is to run: it wraps ErrJob or ErrGPUs.
func CheckJobs(c cluster.Config, jobs []Job) error {
	gpus := c.GPUs()
	finite := func(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }
	var errs []error
	seen := make(map[int]bool, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("job %d: %w: %s", j.ID, ErrJob, fmt.Sprintf(format, args...)))
		}
		if seen[j.ID] {
			bad("its id is another's")
		}
		seen[j.ID] = true
		if !finite(j.Submit) {
			bad("submitted at %v s", j.Submit)
		}
		if j.GPUs < 1 || j.Iterations < 1 || j.PSes < 0 {
			bad("%d GPUs, %d iterations, %d parameter servers", j.GPUs, j.Iterations, j.PSes)
		}
		if !finite(j.Compute) || !finite(j.Bytes) {
			bad("%v s and %v bytes in an iteration", j.Compute, j.Bytes)
		}
		if !(j.Skew >= 0 && j.Skew <= 1) {
			bad("a skew of %v", j.Skew)
		}
		if j.Traffic > cluster.Tree {
			bad("traffic %d", j.Traffic)
		}
		if j.GPUs > gpus {
			errs = append(errs, fmt.Errorf("job %d asks %d GPUs of %d: %w", j.ID, j.GPUs, gpus, ErrGPUs))
		}
	}
	return errors.Join(errs...)
}

// wire is the bits that a job on so many servers puts on each worker's link in an iteration,
// by the direction that gradients take. A ring reduces and then distributes, n-1 of n parts
// each time. With a Collective it is the size of the vector.
func (cfg *Config) wire(j *Job, servers int) float64 {
	bits := 8 * j.Bytes
	ring := j.Traffic == cluster.Ring && cfg.Collective == nil
	if ring {
		bits *= 2 * float64(servers-1) / float64(servers)
	}
	switch {
	case cfg.Overhead > 0:
		return bits * cfg.Overhead
	case ring:
		return bits * collectives.Duplex
	case cfg.Collective != nil:
		return bits * collectives.Wire // and Pattern.Seconds adds what acknowledges it
	}
	lanes := cfg.Lanes
	if lanes == 0 {
		lanes = 240
	}
	frames := math.Ceil(j.Bytes / float64(4*lanes) * (1 - 1e-12)) // what fills one to the bit must not by rounding take two
	return frames * 8 * float64(headers+4*lanes)
}

// headers are the bytes of a frame to a PS or a switch beside its gradients: Ethernet, IPv4,
// UDP and that of INA.
const headers = 14 + 20 + 8 + 22

// acks is what comes back for each bit of a Collective.
func (cfg *Config) acks() float64 {
	if cfg.Overhead > 0 {
		return 0
	}
	return collectives.Acks
}

// Latency is the seconds from the instant at which the last gradient of an exchange has
// left a worker to the arrival of its result at all of them, with empty queues: the round
// trip of a frame over the cluster's delays, but for its first transmission, which the
// exchange has counted. Of a ring it is the way to the next server, the longest there is;
// collectives.RingTail says what else it waits for. 0 where no delays are known.
func Latency(c cluster.Config, t cluster.Traffic, p cluster.Placement) float64 {
	const frame = 8 * 1024                // bits
	way := func(from, root int) float64 { // from a server to a ToR switch
		d := c.Servers[from].Delay
		if r := c.Servers[from].Rack; r != root {
			d += c.Racks[r].Delay + c.Racks[root].Delay
		}
		return d
	}
	var longest float64
	root := 0
	if t != cluster.Ring && len(p.PS) == 0 {
		root = c.Root(p.Parts)
	}
	for i, w := range p.Parts {
		sent := min(c.Servers[w.Server].Delay, frame/c.Servers[w.Server].Link)
		to := func(server int) float64 { return way(w.Server, c.Servers[server].Rack) + c.Servers[server].Delay }
		switch {
		case t == cluster.Ring:
			longest = max(longest, to(p.Parts[(i+1)%len(p.Parts)].Server)-sent)
		case len(p.PS) == 0:
			longest = max(longest, 2*way(w.Server, root)-sent)
		}
		for _, ps := range p.PS {
			longest = max(longest, 2*to(ps)-sent)
		}
	}
	return longest
}
