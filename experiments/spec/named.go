package spec

import (
	"context"

	"github.com/inabench/inabench/placement"
)

// Jobs are jobs that begin and end when the experiment says, where it says or where a policy puts them:
// 1 to 4095 of them, with names of their own.
type Jobs []Job

// Check implements Study.
func (js Jobs) Check(c *Checker) {
	switch n := len(js); {
	case n == 0 && !c.Reported("job"):
		c.Problemf("job", "add a [[job]] table", "no jobs")
	case n > 0 && c.Lab != nil && len(c.Lab.Inv.Hosts) > mostHosts:
		c.Problemf("inventory", "leave out those that no job uses, or simulate a trace on a [fat_tree]", "%d hosts: jobs run among at most %d",
			len(c.Lab.Inv.Hosts), mostHosts)
	case n > maxJobs:
		c.Problemf(js[maxJobs].At, "", "more than %d jobs", maxJobs)
	}
	names := map[string]string{}
	for i := range js {
		j := &js[i]
		c.Named(names, j.At, j.Name, "job", "a job name")
		c.job(j)
	}
}

// Count implements Study.
func (js Jobs) Count() int { return len(js) }

// Metrics implements Study.
func (js Jobs) Metrics() Measurables { return JobMetrics }

// Headline implements Study: nothing is compared.
func (js Jobs) Headline() []string { return nil }

// Predictors implements Study.
func (js Jobs) Predictors() []string { return Predictors }

// Place decides where the spec's jobs run. The error is an
// *placement.InfeasibleError when they do not fit.
func (s *Spec) Place(ctx context.Context) (*placement.Plan, error) {
	p, end, err := s.OpenPolicy(ctx, s.Placement.Policy, Options{})
	if err != nil {
		return nil, err
	}
	defer end()
	return placement.On(p).Place(placement.WithMemory(s.inv, s.Switch.Aggregators), s.PlacementJobs(), s.Measure.Seed)
}

// PlacementJobs are the spec's jobs as policies see them.
func (s *Spec) PlacementJobs() []placement.Job {
	jobs := make([]placement.Job, len(s.Jobs))
	for i, j := range s.Jobs {
		jobs[i] = placement.Job{
			ID: uint16(i + 1), Name: j.Name, GPUs: j.GPUs, Hosts: j.Hosts, PS: j.PS,
			Collective: placement.Collective(j.Collective), Model: j.Model,
			NoPS: s.Switch.Mode == "synchronous" && j.Collective == "ina", Bytes: float64(j.Message),
		}
		if p, ok := s.catalogue.Lookup(j.Model); ok {
			jobs[i].Bytes, jobs[i].Compute, jobs[i].Skew = float64(p.Bytes()), p.Compute().Seconds(), p.Skew()
		}
		if jobs[i].NoPS {
			jobs[i].PS = "" // one that other points of a sweep need
		}
	}
	return jobs
}
