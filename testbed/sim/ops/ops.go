package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/mina"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/placement/workload"
)

// Config is a simulation.
type Config struct {
	// Cluster is the fat-tree, what its switches serve at once, how hosts are chosen and
	// trees built. The zero value is the paper's: 1,024 hosts, NDR, MINA.
	Cluster mina.Config

	Sharing Sharing // who has INA when several want it
	// WholeGroup lets one job of a sharing group have INA at a time, also where trees of
	// others in it do not conflict with its own: what MINA's authors' code does.
	WholeGroup bool
	Cost       tree.Cost // of an all-reduce; the zero value: PaperCost
	GPU        float64   // how many times as fast as those of the patterns; 0: 1
	PerHost    bool      // a job counts as often as it has hosts: with weighted trees, and in Mina's rule

	Migration float64 // s until a tree that a job gets is there, from the release of its old one on

	// Series is whether Result.Series is wanted.
	Series bool

	// Clock, where it is set, measures how long placing and tree building take: a
	// monotonic time in seconds.
	Clock func() float64
}

// PaperCost is the one of the paper's simulations: 50 us, 12.5e9 bytes/s, twice that with INA.
func PaperCost() tree.Cost { return tree.Cost{Latency: 50e-6, Bandwidth: 12.5e9, Ratio: 2} }

// Sharing is who has INA when several want it.
type Sharing uint8

const (
	Mina    Sharing = iota // tree.Decide
	Greedy                 // whoever finds its tree idle: the paper's baseline
	Thrifty                // tree.Thrifty: the operations that gain by it
	None                   // nobody shares: only jobs whose trees conflict with none before theirs have INA
	Never                  // no job has INA: the reference of score 0
	Always                 // all jobs have INA, whatever the switches can do: that of score 1
)

// String is the word for it.
func (s Sharing) String() string {
	if int(s) < len(sharings) {
		return sharings[s]
	}
	return fmt.Sprintf("sharing %d", uint8(s))
}

// Sharings are the words for all, by their number.
func Sharings() []string { return slices.Clone(sharings) }

var sharings = []string{"mina", "greedy", "thrifty", "none", "never", "always"}

// Job is one of a list.
type Job struct {
	ID      int // unique
	Pattern *workload.Pattern
	Hosts   int     // at least 1
	Steps   int     // at least 1
	Submit  float64 // s; 0: it is there at the beginning
}

// Errors of Run, besides those of package mina.
var (
	ErrJob    = errors.New("no such job")
	ErrConfig = errors.New("cannot be simulated")
)

// Run simulates jobs until all have ended. The same configuration and jobs give the same
// result, bit for bit, but for what Config.Clock measures. It returns the context's error
// when that ends.
func Run(ctx context.Context, cfg Config, jobs []Job) (*Result, error) {
	e, err := newEngine(cfg, jobs)
	if err != nil {
		return nil, fmt.Errorf("simulate %d jobs: %w", len(jobs), err)
	}
	if err := e.run(ctx); err != nil {
		return nil, fmt.Errorf("simulate %d jobs: at %.6g s, with %d ended: %w", len(jobs), e.now, e.ended, err)
	}
	return e.result, nil
}

// check is what is wrong with a configuration; it sets what was left out.
func (cfg *Config) check() error {
	if cfg.Cost == (tree.Cost{}) {
		cfg.Cost = PaperCost()
	}
	if cfg.GPU == 0 {
		cfg.GPU = 1
	}
	switch {
	case !(cfg.GPU > 0) || math.IsInf(cfg.GPU, 1):
		return fmt.Errorf("%w: GPUs %v times as fast", ErrConfig, cfg.GPU)
	case !(cfg.Migration >= 0) || math.IsInf(cfg.Migration, 1):
		return fmt.Errorf("%w: migrations of %v s", ErrConfig, cfg.Migration)
	case int(cfg.Sharing) >= len(sharings):
		return fmt.Errorf("%w: %v", ErrConfig, cfg.Sharing)
	}
	return nil
}

// weight is how often a job counts.
func (cfg *Config) weight(j *Job) float64 {
	if cfg.PerHost {
		return float64(max(1, j.Hosts))
	}
	return 1
}

// gain is what INA is worth to a job whose steps take so long without it and with it; see tree.Job.
func (cfg *Config) gain(j *Job, without, with float64) float64 {
	return cfg.weight(j) * (without/with - 1)
}

// Worth is the Gain and the Demand of a job; see tree.Job.
func (cfg Config) Worth(j Job) (gain, demand float64, err error) {
	if err := errors.Join(cfg.check(), admit([]Job{j}, j.Hosts)); err != nil {
		return 0, 0, err
	}
	known, err := cfg.patterns([]Job{j})
	if err != nil {
		return 0, 0, err
	}
	p := &known[j.Pattern][min(j.Hosts, 2)-1]
	return cfg.gain(&j, p.without, p.with), p.Demand(), nil
}

// pattern is what a simulation knows of a model on one host or several.
type pattern struct {
	*tree.Pattern
	without, with, ina float64 // s of a step; of INA operations in one with INA
}

// patterns are those of jobs, by model and whether they have several hosts.
func (cfg *Config) patterns(jobs []Job) (map[*workload.Pattern]*[2]pattern, error) {
	out := map[*workload.Pattern]*[2]pattern{}
	for i := range jobs {
		m := jobs[i].Pattern
		if m == nil || out[m] != nil {
			continue
		}
		both := &[2]pattern{}
		for k := range both {
			p, err := cfg.Steps(m, k+1)
			if err != nil {
				return nil, err
			}
			both[k] = pattern{Pattern: p, without: p.Step(false), with: p.Step(true)}
			for o := range p.Ops() {
				both[k].ina += p.Duration(o, true)
			}
			if !(both[k].with > 0) {
				return nil, fmt.Errorf("model %s: %w: a step that takes no time", m.Model, ErrJob)
			}
		}
		out[m] = both
	}
	return out, nil
}

// Steps is what the steps of a model are on so many hosts: with Cost and GPU of the
// configuration.
func (cfg Config) Steps(m *workload.Pattern, hosts int) (*tree.Pattern, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	ops := make([]tree.Op, len(m.Ops))
	for k, o := range m.Ops {
		ops[k] = tree.Op{Start: o.Start / cfg.GPU, Bytes: float64(o.Bytes)}
	}
	p, err := tree.NewPattern(m.Step/cfg.GPU, ops, hosts, cfg.Cost)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Model, err)
	}
	return p, nil
}

// TurningPoint is the bandwidth in bytes/s from which on more of it does not shorten a
// step of a model on several hosts: what is left then is its computation, and latency
// (MINA's Figure 5). It is that which operations see, so with INA a network of 1/Ratio of
// it will do. +Inf: there is none, as the last operation starts when nothing else is left
// to do. Latency and GPU of the configuration count.
func (cfg Config) TurningPoint(m *workload.Pattern) (float64, error) {
	if err := cfg.check(); err != nil {
		return 0, err
	}
	// With any bandwidth the step ends not before limit, and not before what operation i and
	// all after it take from the start of i on.
	limit, rest := m.Step/cfg.GPU, 0.0
	for _, o := range slices.Backward(m.Ops) {
		rest += cfg.Cost.Latency
		limit = max(limit, o.Start/cfg.GPU+rest)
	}
	point, rest, bytes := 0.0, 0.0, 0.0
	for _, o := range slices.Backward(m.Ops) {
		rest += cfg.Cost.Latency
		bytes += float64(o.Bytes)
		if bytes > 0 {
			point = max(point, bytes/(limit-(o.Start/cfg.GPU+rest)))
		}
	}
	return point, nil
}

// admit is every mistake in a list of jobs.
func admit(jobs []Job, hosts int) error {
	var errs []error
	seen := map[int]bool{}
	for i := range jobs {
		j := &jobs[i]
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("job %d: %w: %s", j.ID, ErrJob, fmt.Sprintf(format, args...)))
		}
		if seen[j.ID] {
			bad("its id is another's")
		}
		seen[j.ID] = true
		if j.Pattern == nil {
			bad("without a pattern")
		}
		if j.Hosts < 1 || j.Hosts > hosts {
			bad("on %d hosts of %d", j.Hosts, hosts)
		}
		if j.Steps < 1 {
			bad("%d steps", j.Steps)
		}
		if !(j.Submit >= 0) || math.IsInf(j.Submit, 1) {
			bad("submitted at %v s", j.Submit)
		}
	}
	return errors.Join(errs...)
}

// byArrival are the indices of jobs as they come.
func byArrival(jobs []Job) []int {
	out := make([]int, len(jobs))
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(jobs[a].Submit, jobs[b].Submit) })
	return out
}
