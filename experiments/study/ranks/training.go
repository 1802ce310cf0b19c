// Package ranks is the study of one training job with a worker for each of its GPUs, [training]: the policy says on which
// GPUs of machines that others use too, as Titan does, and its gradients are reduced by a collective over TCP.
package ranks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/titan"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// Kind is that of a job whose workers have a GPU each, as Titan places them.
var Kind = spec.Kind{
	Table: "training", Type: reflect.TypeFor[*Training](), Mute: true, Ranks: true,
}

// Training is one distributed training job, a worker for each of its GPUs, on machines of
// which others use some GPUs: the policy says on which GPUs it runs. In every iteration
// workers compute, and then reduce their gradients by a collective operation over TCP.
type Training struct {
	Model      string  `toml:"model,required"`                             // one of the catalogue
	Workers    int     `toml:"workers,required"`                           // on GPUs of their own
	Collective string  `toml:"collective" default:"halving-doubling-near"` // the all-reduce; the default is Gloo's, with the nearest worker first
	Batch      int     `toml:"batch" default:"512"`                        // samples of a worker in an iteration
	Samples    int     `toml:"samples" default:"50000"`                    // of an epoch; the default is CIFAR's
	Epochs     int     `toml:"epochs" default:"200"`                       // that machine hours are of
	GPUSpeed   float64 `toml:"gpu_speed" default:"1"`                      // over those that models were measured on
	// Iterations are those that are run. The first one, before which all workers begin
	// together, is not in any figure but the run time.
	Iterations int64 `toml:"iterations" default:"10"`

	// Background is how many GPUs others have on each host, in the inventory's order. Empty:
	// drawn from the seed, 0 to MaxBackground. Each is a job of BackgroundModel that computes.
	Background      []int  `toml:"background"`
	MaxBackground   int    `toml:"max_background" default:"3"`          // most GPUs of a host that others have, where that is drawn
	BackgroundModel string `toml:"background_model" default:"resnet50"` // what those compute

	// Local is what a worker sends others of its machine, of gradients: through the memory of
	// containers, not by NVLink. 0: that takes no time. Between machines it is what their
	// cables carry.
	Local inventory.BitRate `toml:"local"`
	// Phase is how long a phase of the collective may last between two machines: what Titan
	// holds bandwidth against.
	Phase inventory.Duration `toml:"phase" default:"1s"`
}

// mostIterations bounds those that are run: their times are kept.
const mostIterations = 1_000_000

// trainingJob is what the job is called.
const trainingJob = "job"

// Check implements study.Study.
func (t *Training) Check(c *spec.Checker) {
	model := func(key, name string) {
		at := "training." + key
		switch p, ok := c.Spec.Models().Lookup(name); {
		case name == "" || c.Reported(at):
		case !ok:
			c.Problemf(at, tomlfile.DidYouMean(name, c.Spec.Models().Names()), "no model %q", name)
		case p.Basis == workload.Unknown || p.Batch == 0:
			c.Problemf(at, "give one in a file of your own, and name that in catalogue", "nobody knows how long a step of %s takes, and at which batch", name)
		}
	}
	model("model", t.Model)
	model("background_model", t.BackgroundModel)
	for key, n := range map[string]int64{
		"workers": int64(t.Workers), "batch": int64(t.Batch), "samples": int64(t.Samples), "epochs": int64(t.Epochs),
	} {
		spec.Positive(c, "training."+key, n)
	}
	spec.Positive(c, "training.gpu_speed", t.GPUSpeed)
	spec.Positive(c, "training.local", t.Local)
	spec.Positive(c, "training.phase", t.Phase)
	if t.Iterations < 2 && !c.Reported("training.iterations") {
		c.Problemf("training.iterations", "", "iterations must be 2 or more: the first one is apart")
	}
	c.AtMost("training.iterations", int(t.Iterations), mostIterations, "iterations")
	if t.MaxBackground < 0 && !c.Reported("training.max_background") {
		c.Problemf("training.max_background", "", "max_background must not be negative")
	}
	if c.Has("training.background") && c.Has("training.max_background") {
		c.Problemf("training.max_background", "keep one of them", "background and max_background exclude each other")
	}
	if c.Lab == nil {
		return
	}
	if n := len(c.Lab.Hosts); len(t.Background) > 0 && len(t.Background) != n && !c.Reported("training.background") {
		c.Problemf("training.background", "", "GPUs of %d hosts in the background, and there are %d hosts", len(t.Background), n)
	}
	for i, n := range t.Background {
		if i < len(c.Lab.Inv.Hosts) && (n < 0 || n > c.Lab.Inv.Hosts[i].GPUs) {
			h := c.Lab.Inv.Hosts[i]
			c.Problemf(fmt.Sprintf("training.background[%d]", i), "", "%d GPUs in the background of host %s, which has %d", n, h.Name, h.GPUs)
		}
	}
}

// WordsOf implements tomlfile.Wordy.
func (*Training) WordsOf(key string) []string {
	if key == "collective" {
		return allReduces()
	}
	return nil
}

// allReduces are the operations after which every worker has all sums.
func allReduces() []string {
	return slices.DeleteFunc(collectives.Names(), func(name string) bool {
		return name == "reduce-scatter" || name == "all-gather"
	})
}

// operation is the job's collective for so many workers.
func (t *Training) operation(workers int) collectives.Schedule {
	s, _ := collectives.New(t.Collective, workers) // checked
	return s
}

// profile is a model with the time in seconds that an iteration of it computes.
func (t *Training) profile(s *spec.Spec, model string) (workload.Profile, float64) {
	p, _ := s.Models().Lookup(model) // checked
	return p, p.Compute().Seconds() * float64(t.Batch) / float64(p.Batch) / t.GPUSpeed
}

// epoch is how many iterations it has, the last one of them cut short.
func (t *Training) epoch() float64 {
	return float64(t.Samples) / float64(t.Batch) / float64(t.Workers)
}

// occupied is who has which GPU.
type occupied struct {
	at       []int // host, by worker
	hosts    []string
	machines []results.Machine
	others   []string // the host of each job in the background
	taken    int      // machines of the job's workers that nobody else uses
	own      int      // machines of the job's workers
	used     int      // machines that anybody uses
}

// background is how many GPUs others have on each host.
func (t *Training) background(s *spec.Spec, seed uint64) []int {
	if len(t.Background) > 0 {
		return t.Background
	}
	r := rand.New(rand.NewPCG(seed, 0x6261636b))
	out := make([]int, len(s.Inventory().Hosts))
	for i, h := range s.Inventory().Hosts {
		out[i] = r.IntN(1 + min(t.MaxBackground, h.GPUs))
	}
	return out
}

// occupy decides on the workers' GPUs. The error is a *placement.InfeasibleError if there are
// too few that are idle, or if nowhere the traffic passes.
func (t *Training) occupy(ctx context.Context, s *spec.Spec, seed uint64) (*occupied, error) {
	var why error // Titan waits where the traffic does not pass
	pol, end, err := s.OpenPolicy(ctx, s.Placement.Policy, spec.Options{Titan: titan.Options{
		Collective: t.operation, Phase: t.Phase.Std().Seconds(), Strict: true, Explain: func(e titan.Explanation) { why = e.Err },
	}})
	if err != nil {
		return nil, err
	}
	defer end()
	c := cluster.New(placement.ClusterOf(s.Inventory()))
	out := &occupied{machines: make([]results.Machine, len(c.Servers))}
	id := 1 // the job itself is 0
	for i, n := range t.background(s, seed) {
		h := &s.Inventory().Hosts[i]
		m := &out.machines[i]
		m.Name, m.Rack, m.GPUs = h.Name, h.Rack, make([]results.Cell, h.GPUs)
		for g := range n {
			one := cluster.Placement{Parts: []cluster.Part{{Server: i, GPUs: 1}}}
			if err := c.Enter(cluster.Job{ID: id, GPUs: 1, Traffic: cluster.Ring}, one); err != nil {
				return nil, spec.Invalidf("host %s: a job in the background: %w", h.Name, err)
			}
			m.GPUs[g] = results.Cell{Use: results.Background}
			out.others = append(out.others, h.Name)
			id++
		}
	}
	infeasible := &placement.InfeasibleError{Job: trainingJob, GPUs: t.Workers}
	for i, h := range s.Inventory().Hosts {
		infeasible.Free = append(infeasible.Free, placement.HostFree{Host: h.Name, Free: c.Free(i), GPUs: h.GPUs})
	}
	p, compute := t.profile(s, t.Model)
	placed := pol.Place(c, []cluster.Job{{
		ID: 0, GPUs: t.Workers, Traffic: cluster.Ring, Bytes: float64(p.Bytes()), Compute: compute, Skew: p.Skew(),
	}}, seed)[0]
	if err := cluster.Err(pol); err != nil {
		return nil, err
	}
	if len(placed.Parts) == 0 {
		var congested *titan.CongestedError
		if errors.As(why, &congested) {
			infeasible.Reason = t.congested(s, congested)
		}
		return nil, infeasible
	}
	out.at = placed.ServerOf()
	next := make([]int, len(out.machines)) // free GPU
	for i := range out.machines {
		m := &out.machines[i]
		next[i] = slices.IndexFunc(m.GPUs, func(c results.Cell) bool { return c.Use == results.Free })
		if m.Used() {
			out.used++
		}
	}
	take := func(server int, cell results.Cell) {
		m := &out.machines[server]
		if !m.Used() {
			out.used++
			out.taken++
		}
		m.GPUs[next[server]] = cell
		next[server]++
	}
	for rank, server := range out.at {
		if !slices.Contains(out.at[:rank], server) {
			out.own++
		}
		take(server, results.Cell{Use: results.Worker, Job: trainingJob, Rank: rank})
		out.hosts = append(out.hosts, out.machines[server].Name)
	}
	for _, spare := range placed.Spare {
		for range spare.GPUs {
			take(spare.Server, results.Cell{Use: results.Spare, Job: trainingJob})
		}
	}
	return out, nil
}

// congested says between which machines the traffic does not pass, and what would help.
func (t *Training) congested(s *spec.Spec, e *titan.CongestedError) string {
	return fmt.Sprintf("sends more than passes: phase %d of %s, from host %s to host %s, has %s, and %s pass in %s (training.phase)",
		e.Phase, t.Collective, s.Inventory().Hosts[e.From].Name, s.Inventory().Hosts[e.To].Name,
		human.Quantity(e.Bits/8, "B"), human.Quantity(e.Passing/8, "B"), t.Phase)
}

// Ready implements study.Study.
func (t *Training) Ready(p study.Planned) error {
	drawn := len(t.Background) == 0 // others' GPUs
	return p.EachSeed(drawn, func(seed uint64) error {
		_, err := t.occupy(context.Background(), p.Spec, seed)
		return err
	})
}

// Supports implements study.Study: every driver can, as far as ranks can be told apart.
func (t *Training) Supports(driver string) error {
	if driver != "sim" && t.Workers > placement.MaxWorkers {
		return fmt.Errorf("a job of %d workers: on a testbed it has %d at most: %w", t.Workers, placement.MaxWorkers, errors.ErrUnsupported)
	}
	return nil
}

// scheduled is what predicts: the schedule of the collective on transfers as calibrated.
const scheduled = "schedule"

// Predictors implements study.Study.
func (t *Training) Predictors() []string { return []string{scheduled} }

// Count implements study.Study.
func (t *Training) Count() int { return 1 }

// Build implements study.Builder.
func (t *Training) Build(k *study.FabricKey, s *spec.Spec, _ string) { k.Beat = t.beat(s, k.Scale) }

// Headline implements study.Study.
func (t *Training) Headline() []string {
	return []string{"throughput", "comm_time", "machine_hours", "used_machines"}
}

// Metrics implements study.Study.
func (t *Training) Metrics() spec.Measurables { return trainingMetrics }

// trainingMetrics are in samples a second and bytes of an iteration, as ports count them: both ways of an exchange. Times are those of an iteration,
// of an epoch, of all epochs, and of the iterations that were run. Machines are those that
// anybody uses, that nobody does, that the job does, and of these those that were idle.
var trainingMetrics = spec.Measurables{}.
	Add("job", "sum_errors").
	Add(results.Cluster, "throughput machine_hours machine_traffic iteration_time iteration_comm_time comm_time epoch_time training_time run_time "+
		"used_machines idle_machines job_machines idle_taken").
	Predict("throughput machine_hours machine_traffic iteration_time iteration_comm_time comm_time epoch_time training_time run_time").Ratios()
