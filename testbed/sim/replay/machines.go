package replay

import (
	"encoding/binary"
	"math"

	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/collectives"
)

// Pricing is a rule for what a job pays when it is done.
type Pricing string

// The rules there are. None lets a job pay for what it waits for the network: that is the
// cluster's doing.
const (
	PerJob     Pricing = "job"      // 1
	PerGPU     Pricing = "gpus"     // 1 for each GPU it asks for, however long it runs
	PerGPUTime Pricing = "gpu-time" // 1 for each hour of each GPU that it would take without a network
)

// Pricings are the names of the rules.
func Pricings() []string { return []string{string(PerJob), string(PerGPU), string(PerGPUTime)} }

// Price is what a job pays, in units of 1; by an unknown rule nothing.
func (p Pricing) Price(j *Job) float64 {
	switch p {
	case PerJob:
		return 1
	case PerGPU:
		return float64(j.GPUs)
	case PerGPUTime:
		return float64(j.GPUs) * float64(j.Iterations) * j.Compute / 3600
	}
	return 0
}

// exchange is what a job's all-reduce costs where its workers are.
type exchange struct {
	seconds float64 // for each bit of the vector
	cross   float64 // of the vector, between machines
}

// exchanges knows what all-reduces cost, by their shape: which workers share a machine,
// and the machines' links.
type exchanges struct {
	collective func(workers int) collectives.Schedule
	servers    []cluster.Server
	acks       float64
	patterns   map[int]*collectives.Pattern
	known      map[string]exchange

	key   []byte      // reused
	named map[int]int // server -> its number in the shape; reused
}

func newExchanges(cfg *Config) *exchanges {
	return &exchanges{
		collective: cfg.Collective, servers: cfg.Cluster.Servers, acks: cfg.acks(),
		patterns: map[int]*collectives.Pattern{}, known: map[string]exchange{}, named: map[int]int{},
	}
}

// of is what it costs if worker w is on server at[w].
func (x *exchanges) of(at []int) exchange {
	x.key = x.key[:0]
	clear(x.named)
	for _, s := range at {
		n, ok := x.named[s]
		if !ok {
			n = len(x.named)
			x.named[s] = n
		}
		x.key = binary.AppendUvarint(x.key, uint64(n))
		if !ok {
			x.key = binary.LittleEndian.AppendUint64(x.key, math.Float64bits(x.servers[s].Link))
		}
	}
	if e, ok := x.known[string(x.key)]; ok {
		return e
	}
	p := x.patterns[len(at)]
	if p == nil {
		p = x.collective(len(at)).Pattern()
		x.patterns[len(at)] = p
	}
	e := exchange{
		seconds: p.Seconds(at, 1, x.acks, func(s int) float64 { return x.servers[s].Link }),
		cross:   float64(p.Cross(at)) / float64(p.Parts),
	}
	x.known[string(x.key)] = e
	return e
}

// machines reads what is about machines and their jobs.
func (e *engine) machines() {
	used, idle := 0, 0.0
	for i, s := range e.cfg.Cluster.Servers {
		if free := e.c.Free(i); free < s.GPUs {
			used++
			idle += float64(free) / float64(s.GPUs)
		}
	}
	var cross, income float64
	for _, i := range e.ends.at {
		s := &e.jobs[i]
		cross += s.result.Crossing
		if e.cfg.Fidelity == Fluid && s.pace > 0 {
			income += s.price / (float64(s.Iterations) * s.pace)
		}
	}
	e.levels[machinesUsed], e.levels[fragmentation], e.levels[crossing], e.levels[profit] = float64(used), 0, cross, 0
	if used > 0 {
		e.levels[fragmentation] = idle / float64(used)
		e.levels[profit] = 3600 * income / float64(used)
	}
}

// arrivals adds what is to be seen as so many jobs arrive.
func (e *engine) arrivals(jobs int) {
	n := float64(jobs)
	e.levels[profitTotal] += n * e.levels[profit]
	for k, v := range e.levels {
		e.seen[k] += n * v
	}
}
