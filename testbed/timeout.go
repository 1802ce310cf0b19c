package testbed

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/testbed/ina"
)

// Margin is the part of a first timeout that is for a busy host. No emulation slows it down.
const Margin = 20 * time.Millisecond

// RTO is a first timeout of a job that full queues do not trip: twice the round trip,
// the time that the slowest link of the job takes for a backlog of so many bits, and a
// margin for a busy host.
func RTO(j *placement.JobPlan, topo *inventory.Topology, backlog float64) time.Duration {
	return 2*RoundTrip(j, topo) + time.Duration(backlog/slowest(j, topo)*float64(time.Second)) + Margin
}

// slowest is the rate of the slowest link of a job; +Inf where it has none.
func slowest(j *placement.JobPlan, topo *inventory.Topology) float64 {
	rate := math.Inf(1)
	for _, path := range ways(j, topo) {
		for _, l := range path {
			rate = min(rate, float64(topo.Links[l].Rate))
		}
	}
	return rate
}

// A sender with a limit of rate sends its first packet, or one that follows a pause, up to FirstBlocks after it was due. A phase
// of LeastBlocks has figures that are those of the rate: at each end of it some two packets of 16 are in it by chance, 5 % of
// those of six blocks.
const (
	FirstBlocks = 2
	LeastBlocks = 6
)

// Block is how long a sender with such a limit of rate takes for a block of packets of so many bytes. Packets leave at
// random times of their block, a block late. 0: there is no limit.
func Block(rate float64, frame int) time.Duration {
	if rate <= 0 {
		return 0
	}
	return seconds(ina.Block * 8 * float64(frame) / rate)
}

// Step is how long a job may be without a result where nothing is amiss and queues are empty: its packets are of so many
// bytes, and so many jobs share its links. Who waits for a result waits longer. Of a ring, a result is a part of an
// operation; see Operation.
func Step(j *placement.JobPlan, w *Workload, topo *inventory.Topology, frame, jobs int) time.Duration {
	if j.Local() {
		return w.compute()
	}
	step := w.compute() + RoundTrip(j, topo)
	if j.Collective == placement.Ring {
		return step + seconds(8*collectives.MaxBlock*collectives.Duplex/ringRate(j, w, topo, jobs))
	}
	return step + FirstBlocks*Block(w.Rate, frame)
}

// Operation is how long an iteration of a ring may take where nothing is amiss, and so many jobs share its links: what
// stops it waits for the one that is under way, and for another in which all ranks hear of it. 0: the job is no ring.
func Operation(j *placement.JobPlan, w *Workload, topo *inventory.Topology, jobs int) time.Duration {
	if j.Collective != placement.Ring || j.Local() {
		return 0
	}
	bytes := 0.0
	for _, l := range w.Reduces() {
		bytes += float64(l.Bytes)
	}
	n := float64(len(j.Workers))
	return w.compute() + time.Duration(n)*RoundTrip(j, topo) + seconds(2*(n-1)/n*8*bytes*collectives.Duplex/ringRate(j, w, topo, jobs))
}

// ringRate is what a ring has of its slowest link at least where so many jobs share it, bit/s.
func ringRate(j *placement.JobPlan, w *Workload, topo *inventory.Topology, jobs int) float64 {
	rate := slowest(j, topo) / float64(max(jobs, 1))
	if w.Rate > 0 {
		rate = min(rate, w.Rate)
	}
	return rate
}

// compute is how long an iteration computes.
func (w *Workload) compute() (d time.Duration) {
	for _, l := range w.Layers {
		d += l.Compute
	}
	return d
}

// seconds is a time that is at most what a Duration holds.
func seconds(s float64) time.Duration {
	return time.Duration(min(s*float64(time.Second), math.MaxInt64/16))
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
	for i := range j.Workers {
		if path, err := topo.PathBy(j.Workers[i].End(), j.Goal(i)); err == nil {
			out = append(out, path)
		}
	}
	return out
}

// Beat is the least time that a packet of a job and what answers it are on the way, both frames of so many
// bytes: a gradient to the PS and its result; without a PS, the farthest worker's gradient to the root of the
// job's tree, and the sum from there; in a ring, to the next worker and back. Lateness must be small against
// it. Parts of a job on one host do not count. 0: nothing of it is on the network.
func Beat(j *placement.JobPlan, topo *inventory.Topology, frame int) (shortest time.Duration) {
	far := func(worker int) time.Duration {
		path, err := topo.PathBy(j.Workers[worker].End(), j.Goal(worker))
		if err != nil {
			return 0
		}
		sending := 0.0 // seconds
		for _, l := range path {
			if rate := topo.Links[l].Rate; rate > 0 {
				sending += 8 * float64(frame) / float64(rate)
			}
		}
		return topo.PathDelay(path) + time.Duration(math.Round(sending*1e9))
	}
	last := time.Duration(0) // to the root, where that waits for all
	if j.PS == "" && len(j.Tree) > 0 {
		for i := range j.Workers {
			last = max(last, far(i))
		}
	}
	for i := range j.Workers {
		there := far(i)
		shortest = shorter(shortest, max(there, last)+there)
	}
	return shortest
}

// ShortestBeat is the shortest Beat of all jobs that have one; 0 where none has.
func ShortestBeat(jobs []placement.JobPlan, topo *inventory.Topology, frame int) (shortest time.Duration) {
	for i := range jobs {
		shortest = shorter(shortest, Beat(&jobs[i], topo, frame))
	}
	return shortest
}

// shorter is the shorter of two times that are known: 0 is none.
func shorter[T time.Duration | float64](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Closest is the shortest round trip between two hosts on one switch, or between any two where each has a switch of its
// own: by it the lateness of switches is judged, as by a job's Beat that of its processes. Cable is how long a frame takes
// over a host's cable one way. It is 0 where there are not two hosts.
func Closest[T time.Duration | float64](inv *inventory.Inventory, cable func(*inventory.NIC) T) (shortest T) {
	closest := map[string][]T{}
	var all []T
	for i := range inv.Hosts {
		nearest := map[string]T{} // of its cables to each switch: it sends nothing to itself
		for k := range inv.Hosts[i].NICs {
			n := &inv.Hosts[i].NICs[k]
			d := cable(n)
			if old, ok := nearest[n.Switch]; !ok || d < old {
				nearest[n.Switch] = d
			}
		}
		for sw, d := range nearest {
			closest[sw] = append(closest[sw], d)
		}
		if len(nearest) > 0 {
			all = append(all, slices.Min(slices.Collect(maps.Values(nearest))))
		}
	}
	trip := func(ds []T) T {
		if len(ds) < 2 {
			return 0
		}
		slices.Sort(ds)
		return 2 * (ds[0] + ds[1])
	}
	for _, ds := range closest {
		shortest = shorter(shortest, trip(ds))
	}
	if shortest == 0 {
		shortest = trip(all)
	}
	return shortest
}
