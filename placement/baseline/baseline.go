// Package baseline has the placement policies that others are compared with. Each is
// an order of the servers, a way to fill them, and the rule that puts parameter
// servers on the servers with the fewest flows; none looks at whether switches
// aggregate, and at run time all of them do for every job (NetPack, section 6.1).
//
// Jobs are placed one after the other as they arrive, each on the state that the ones
// before it leave. None prefers a single server, and none weighs the racks. Where the
// paper leaves a policy open, the order is that of its authors' prototype
// (ATP-Controller 281984f).
//
// ElasticFlow, HiveD and Tiresias are those that Titan is compared with. They choose
// machines by their free GPUs, do look for a single one, and number workers machine by
// machine, as launchers do: none asks who talks to whom.
package baseline

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// Policy is one of the baselines. Use a constructor; the zero value places nothing.
type Policy struct {
	name  string
	rule  string
	order func(v *view, server int) rank
	fill  func(v *view, servers *queue) []cluster.Part
	apart bool // a PS shares a server with a worker of its job only where it must
	power bool // GPUs are taken by powers of two
}

// view is what an order may look at: the cluster as it is and the job to place.
type view struct {
	*cluster.Cluster
	job  cluster.Job
	want int        // GPUs: the job's and spare ones
	rnd  *rand.Rand // of this job; orders see the servers ascending
}

// rank is a server's place in an order: the lowest is first, by the first number that
// differs, then the lowest index.
type rank [3]float64

// All are the policies that NetPack is compared with, FirstFit first.
func All() []cluster.Policy {
	return []cluster.Policy{
		FirstFit(), Random(), GPUBalance(), FlowBalance(), LeastFragmentation(), Optimus(), Tetris(), Comb(),
	}
}

// FirstFit takes the servers as they are numbered, as Slurm does. Parameter servers keep
// away from servers with a worker of their job.
func FirstFit() Policy {
	return Policy{name: "first-fit", fill: greedy, apart: true,
		rule:  "servers as they are numbered, each filled before the next; the PS apart from the workers",
		order: func(v *view, s int) rank { return rank{} }}
}

// Random takes the servers in an order drawn from the seed and the job's ID.
func Random() Policy {
	return Policy{name: "random", fill: greedy,
		rule:  "servers in an order drawn from the seed, each filled before the next",
		order: func(v *view, s int) rank { return rank{v.rnd.Float64()} }}
}

// GPUBalance (GB) takes the servers with the fewest GPUs in use first.
func GPUBalance() Policy {
	return Policy{name: "gpu-balance", fill: greedy,
		rule:  "servers with the fewest GPUs in use first, each filled before the next",
		order: func(v *view, s int) rank { return rank{v.used(s)} }}
}

// FlowBalance (FB) takes the servers with the fewest flows on their link first.
func FlowBalance() Policy {
	return Policy{name: "flow-balance", fill: greedy,
		rule:  "servers with the fewest flows on their link first, each filled before the next",
		order: func(v *view, s int) rank { return rank{float64(v.Flows(s))} }}
}

// LeastFragmentation (LF) is GPUBalance backwards: it uses up the GPUs of busy servers,
// of equals the last.
func LeastFragmentation() Policy {
	return Policy{name: "least-fragmentation", fill: greedy,
		rule:  "servers with the most GPUs in use first, each filled before the next",
		order: func(v *view, s int) rank { return rank{-v.used(s), -float64(s)} }}
}

// Optimus [Peng et al., EuroSys '18] takes servers in the order of their GPUs in use, the fewest first, as many
// as hold the job, and spreads it evenly over them. Of servers alike these are as few as hold it.
func Optimus() Policy {
	p := GPUBalance()
	p.name, p.fill = "optimus", even
	p.rule = "servers with the fewest GPUs in use first, as many as hold the job, and its GPUs spread evenly"
	return p
}

// Tetris [Grandl et al., SIGCOMM '14] aligns demand and use: it takes first the servers
// with the smallest product of the GPUs in use and the GPUs wanted, both in parts of the
// server's, plus the flows on its link.
func Tetris() Policy {
	return Policy{name: "tetris", fill: greedy,
		rule: "servers with the smallest product of GPUs in use and wanted, both over all that it has, plus flows, first",
		order: func(v *view, s int) rank {
			has := float64(v.Servers[s].GPUs)
			return rank{v.used(s)*float64(v.job.GPUs)/(has*has) + float64(v.Flows(s))}
		}}
}

// Comb is the naive combination of section 6.4: servers by free GPUs, then by the peak
// aggregation throughput that is left at their ToR switch, then by the bandwidth that is
// left on their link, the most first. The paper says "sorts by … and places jobs to the
// first matched servers"; this takes the keys in the order named and fills the first
// servers that together match the demand.
func Comb() Policy {
	return Policy{name: "comb", fill: greedy,
		rule: "servers by free GPUs, then the aggregation their switch has left, then their link's bandwidth, the most first",
		order: func(v *view, s int) rank {
			return rank{-float64(v.Free(s)), -v.PAT(v.Servers[s].Rack), -v.Bandwidth(s)}
		}}
}

// Name implements cluster.Policy.
func (p Policy) Name() string { return p.name }

// Rule is by what the policy chooses servers, in a line. All put parameter servers where
// the fewest flows are.
func (p Policy) Rule() string { return p.rule }

// Place implements cluster.Policy. Jobs are taken in the order of the batch.
func (p Policy) Place(c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement {
	out := make([]cluster.Placement, len(batch))
	waiting := 0 // GPUs that the jobs from i on ask for
	for _, j := range batch {
		waiting += max(0, j.GPUs)
	}
	for i, j := range batch {
		spare := c.TotalFree() - waiting // what they leave
		waiting -= max(0, j.GPUs)
		if j.GPUs < 1 || j.GPUs > c.TotalFree() || p.order == nil {
			continue
		}
		v := &view{c, j, j.GPUs, rand.New(rand.NewPCG(seed, uint64(j.ID)))}
		if all := powerOfTwo(j.GPUs); p.power && all-j.GPUs <= spare {
			v.want = all
		}
		var place cluster.Placement
		place.Parts, place.Spare = split(p.fill(v, p.servers(v)), j.GPUs)
		if j.NeedsPS(len(place.Parts)) {
			place.PS = parameterServers(c, j, place.Parts, p.apart)
		}
		if c.Enter(j, place) == nil { // an ID that runs already stays where it is
			out[i] = place
		}
	}
	return out
}

// servers are those with a free GPU, in the policy's order.
func (p Policy) servers(v *view) *queue {
	q := make(queue, 0, len(v.Servers))
	for s := range v.Servers {
		if v.Free(s) > 0 {
			q = append(q, candidate{p.order(v, s), s})
		}
	}
	heap.Init(&q)
	return &q
}

// ParameterServers are where the policies of this package put a job's parameter servers:
// the servers with the fewest flows, those of the job's own workers and parameter servers
// counted as if everything is aggregated; of several the first.
func ParameterServers(c *cluster.Cluster, job cluster.Job, parts []cluster.Part) []int {
	return parameterServers(c, job, parts, false)
}

func parameterServers(c *cluster.Cluster, job cluster.Job, parts []cluster.Part, apart bool) []int {
	want := max(1, job.PSes)
	own := map[int]int{}
	for _, w := range parts {
		own[w.Server] = want
		if apart {
			own[w.Server] += 1 << 30
		}
	}
	var out []int
	for range want {
		best, least := 0, -1
		for s := range c.Servers {
			if n := c.Flows(s) + own[s]; c.Servers[s].Linked() && (least < 0 || n < least) {
				best, least = s, n
			}
		}
		out = append(out, best)
		own[best]++
	}
	return out
}

// greedy takes all that is free on a server before it takes the next.
func greedy(v *view, servers *queue) []cluster.Part {
	var parts []cluster.Part
	for left := v.job.GPUs; left > 0; {
		s := servers.next()
		n := min(left, v.Free(s))
		parts = append(parts, cluster.Part{Server: s, GPUs: n})
		left -= n
	}
	return parts
}

// even deals the GPUs round to the fewest servers of the order that have enough.
func even(v *view, servers *queue) []cluster.Part {
	return v.deal(greedy(v, servers))
}

// deal deals the GPUs of parts round to them.
func (v *view) deal(parts []cluster.Part) []cluster.Part {
	left := 0
	for i := range parts {
		left += parts[i].GPUs
		parts[i].GPUs = 0
	}
	for left > 0 {
		for i := range parts {
			if w := &parts[i]; left > 0 && w.GPUs < v.Free(w.Server) {
				w.GPUs++
				left--
			}
		}
	}
	return parts
}

// used is how many GPUs of a server jobs have.
func (v *view) used(s int) float64 { return float64(v.Servers[s].GPUs - v.Free(s)) }

// queue is a heap: few of many servers are taken from it.
type queue []candidate

type candidate struct {
	rank   rank
	server int
}

func (q *queue) next() int { return heap.Pop(q).(candidate).server }

func (q queue) Len() int { return len(q) }
func (q queue) Less(a, b int) bool {
	if d := slices.Compare(q[a].rank[:], q[b].rank[:]); d != 0 {
		return d < 0
	}
	return cmp.Less(q[a].server, q[b].server)
}
func (q queue) Swap(a, b int) { q[a], q[b] = q[b], q[a] }

// Push implements heap.Interface.
func (q *queue) Push(x any) { *q = append(*q, x.(candidate)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
