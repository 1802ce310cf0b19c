package testbed

import (
	"math"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
)

// Margin is the part of a first timeout that is for a busy host. No emulation slows it down.
const Margin = 20 * time.Millisecond

// RTO is a first timeout of a job that full queues do not trip: twice the round trip,
// the time that the slowest link of the job takes for a backlog of so many bits, and a
// margin for a busy host.
func RTO(j *placement.JobPlan, topo *inventory.Topology, backlog float64) time.Duration {
	slowest := math.Inf(1)
	for _, path := range ways(j, topo) {
		for _, l := range path {
			slowest = min(slowest, float64(topo.Links[l].Rate))
		}
	}
	return 2*RoundTrip(j, topo) + time.Duration(backlog/slowest*float64(time.Second)) + Margin
}

// Backlog is how many bits a job can queue in front of one link: a window of frames of
// so many bits, summed on the way where switches aggregate.
func Backlog(j *placement.JobPlan, window int, frame float64) float64 {
	switch {
	case j.Local():
		return 0
	case j.Collective == placement.PS:
		window *= len(j.Workers)
	}
	return float64(window) * frame
}

// RoundTrip is the longest way of the job's gradients and back, by cables alone.
func RoundTrip(j *placement.JobPlan, topo *inventory.Topology) time.Duration {
	var rtt time.Duration
	for _, path := range ways(j, topo) {
		rtt = max(rtt, 2*topo.PathDelay(path))
	}
	return rtt
}

// ways are the paths of a job's gradients, worker by worker: to its PS, to the root
// of its tree without one, or to the next worker in a ring.
func ways(j *placement.JobPlan, topo *inventory.Topology) (out [][]int) {
	for i, w := range j.Workers {
		to := j.PS
		switch {
		case to != "":
		case len(j.Tree) > 0:
			to = j.Tree[len(j.Tree)-1].Switch
		default:
			to = j.Workers[(i+1)%len(j.Workers)].Host
		}
		if path, err := topo.Path(w.Host, to); err == nil {
			out = append(out, path)
		}
	}
	return out
}
