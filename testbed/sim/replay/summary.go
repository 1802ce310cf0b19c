package replay

import (
	"math"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// Result is what came of a replay.
type Result struct {
	Policy   string
	Seed     uint64
	Fidelity Fidelity
	Jobs     []JobResult // in the order they were given in
	Series   Series
	Summary  Summary
	Batches  int // that the policy was asked to place
	Events   int // instants at which something happened
}

// JobResult is what became of a job. Times are in seconds since the trace began.
type JobResult struct {
	ID                 int
	Submit, Start, End float64
	GPUs, Iterations   int
	Compute            float64 // seconds of an iteration
	Waited             int     // periods that passed it over
	Servers, Racks     int     // with a worker; with a worker or a parameter server
	Crossing           float64 // bytes between machines in an iteration; with a Collective
	Placement          cluster.Placement
}

// JCT is the seconds from a job's start to its end: its completion time without
// queueing.
func (j *JobResult) JCT() float64 { return j.End - j.Start }

// Queued is the seconds from a job's submission to its start.
func (j *JobResult) Queued() float64 { return j.Start - j.Submit }

// Network is the seconds that a job spent on exchanging gradients.
func (j *JobResult) Network() float64 {
	return max(0, j.JCT()-float64(j.Iterations)*j.Compute)
}

// DE is the job's distribution efficiency (NetPack, section 6.1): the time it would
// take on one GPU, which is iterations × GPUs × compute, over its time × GPUs. 1: the
// network costs nothing.
func (j *JobResult) DE() float64 { return j.de(j.JCT()) }

func (j *JobResult) de(jct float64) float64 {
	if jct <= 0 {
		return 1
	}
	return float64(j.Iterations) * j.Compute / jct
}

// Summary is a replay in figures. Utilisations are means from the first submission to
// the last end.
type Summary struct {
	JCT       float64 `json:"jct"`        // mean seconds from start to end
	JCTQueued float64 `json:"jct_queued"` // mean seconds from submission to end
	Makespan  float64 `json:"makespan"`   // seconds from the first submission to the last end
	DE        float64 `json:"de"`         // mean of the jobs' distribution efficiency, without queueing
	DEQueued  float64 `json:"de_queued"`  // the same, of times from submission to end
	Network   float64 `json:"network"`    // mean seconds that a job spent on exchanging gradients
	QueueMean float64 `json:"queue_mean"` // seconds from submission to start
	QueueP95  float64 `json:"queue_p95"`  // their 95th percentile, nearest rank

	GPUs        float64 `json:"gpu_utilisation"`
	Links       float64 `json:"link_utilisation"`       // mean over the links of servers; see Series
	Aggregators float64 `json:"aggregator_utilisation"` // of the racks' PAT together; 0 where there is none or it is infinite

	// Titan's figures. Those that change are means over all arrivals, as the paper has
	// them: of what was to be seen as each job arrived, once it was placed if it was.
	Machines      float64 `json:"used_machines"`
	MachineHours  float64 `json:"machine_hours"` // to the last end
	Fragmentation float64 `json:"fragmentation"`
	Crossing      float64 `json:"cross_traffic"` // bytes in an iteration of all jobs that run
	Profit        float64 `json:"profit_rate"`   // per machine and hour
	ProfitTotal   float64 `json:"total_profit"`  // summed over arrivals
}

// Summarise makes a summary of what became of jobs on a cluster. What links, aggregators
// and machines did does not follow from that, so it is left 0.
func Summarise(c cluster.Config, jobs []JobResult) Summary {
	var s Summary
	if len(jobs) == 0 {
		return s
	}
	queued := make([]float64, 0, len(jobs))
	first, last := math.Inf(1), 0.0
	for i := range jobs {
		j := &jobs[i]
		s.JCT += j.JCT()
		s.JCTQueued += j.End - j.Submit
		s.DE += j.DE()
		s.DEQueued += j.de(j.End - j.Submit)
		s.Network += j.Network()
		s.QueueMean += j.Queued()
		queued = append(queued, j.Queued())
		s.GPUs += float64(j.GPUs) * j.JCT()
		first, last = min(first, j.Submit), max(last, j.End)
	}
	n := float64(len(jobs))
	for _, f := range []*float64{&s.JCT, &s.JCTQueued, &s.DE, &s.DEQueued, &s.Network, &s.QueueMean} {
		*f /= n
	}
	slices.Sort(queued)
	s.QueueP95 = queued[int(math.Ceil(0.95*n))-1]
	if s.Makespan = last - first; s.Makespan > 0 {
		s.GPUs /= s.Makespan * float64(c.GPUs())
	} else {
		s.GPUs = 0
	}
	return s
}

func (e *engine) summarise(jobs []JobResult) Summary {
	s := Summarise(e.cfg.Cluster, jobs)
	if n := float64(len(jobs)); n > 0 {
		s.Machines, s.Fragmentation = e.seen[machinesUsed]/n, e.seen[fragmentation]/n
		s.Crossing, s.Profit, s.ProfitTotal = e.seen[crossing]/n, e.seen[profit]/n, e.levels[profitTotal]
		s.MachineHours = e.series.total[machinesUsed] / 3600
	}
	if s.Makespan <= 0 {
		return s
	}
	s.Links = e.series.total[linksUsed] / s.Makespan
	var pat float64
	for _, r := range e.cfg.Cluster.Racks {
		if !math.IsInf(r.PAT, 1) {
			pat += r.PAT
		}
	}
	if pat > 0 {
		s.Aggregators = e.series.total[aggregated] / s.Makespan / pat
	}
	return s
}
