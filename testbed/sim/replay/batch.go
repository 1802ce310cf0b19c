package replay

import (
	"fmt"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/queue"
)

// Asks is a job as policies see it after so many periods that passed it over. It is estimated to run for as long as
// it computes, as if the network took no time: that is the duration that a trace gives.
func (j *Job) Asks(waited int) cluster.Job {
	return cluster.Job{
		ID: j.ID, GPUs: j.GPUs, Traffic: j.Traffic, PSes: j.PSes, Bytes: j.Bytes, Compute: j.Compute, Skew: j.Skew,
		Seconds: float64(j.Iterations) * j.Compute, Value: j.Value, Waited: waited,
	}
}

// Batch has a queue's policy place the batch of a period, now by the queue's clock, and holds it to its contract: what it
// returns is what it entered, it touches no other jobs, and it does not fail. An error wraps ErrPolicy.
func Batch(c *cluster.Cluster, q *queue.Queue, now float64, batch []cluster.Job, seed uint64, period int) error {
	running := c.Jobs()
	placed := q.Place(c, now, batch, mix(seed, uint64(period)))
	if err := q.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	if len(placed) != len(batch) {
		return fmt.Errorf("%w: %s returned %d placements for %d jobs", ErrPolicy, q.Name(), len(placed), len(batch))
	}
	for k := range batch {
		_, _, ok := c.Placement(batch[k].ID)
		if ok != (len(placed[k].Parts) > 0) {
			return fmt.Errorf("%w: %s says of job %d that it is placed: %t; it runs: %t", ErrPolicy, q.Name(), batch[k].ID, !ok, ok)
		}
		if ok {
			running++
		}
	}
	if c.Jobs() != running {
		return fmt.Errorf("%w: %s left %d jobs running of %d", ErrPolicy, q.Name(), c.Jobs(), running)
	}
	return nil
}

// Racks is how many racks have a worker or a parameter server of a job.
func Racks(c cluster.Config, p cluster.Placement) int {
	var seen []int
	see := func(server int) {
		if r := c.Servers[server].Rack; !slices.Contains(seen, r) {
			seen = append(seen, r)
		}
	}
	for _, w := range p.Parts {
		see(w.Server)
	}
	for _, s := range p.PS {
		see(s)
	}
	return len(seen)
}

// mix is a seed for the n-th batch (splitmix64).
func mix(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
