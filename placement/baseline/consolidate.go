package baseline

import (
	"math"
	"math/bits"

	"github.com/inabench/inabench/placement/cluster"
)

// ElasticFlow [Gu et al., ASPLOS '23] consolidates by best fit: it takes the machine whose
// free GPUs are the fewest that hold the job, idle or not. A job that no machine holds
// gets the one with the most free GPUs, and the rest of it is placed like that again. So
// it uses as few machines as can be.
//
// ElasticFlow also gives jobs more or fewer GPUs while they run, by their deadlines. No policy
// can do that here: a job keeps the GPUs that it was given, and Titan compares placements.
func ElasticFlow() Policy {
	return Policy{name: "elasticflow", fill: bestFit, order: unordered,
		rule: "the machine that fits best, idle or not; without one the largest, and again for the rest"}
}

// ElasticFlowClosest is ElasticFlow by the letter of Titan (section V-A), "servers in which
// the number of idle GPUs is closest to the number of workers": also closest from below, so
// that a job may be split though a machine holds it. Of two as close it takes the one that
// holds what is left.
func ElasticFlowClosest() Policy {
	return Policy{name: "elasticflow-closest", fill: closestFit, order: unordered,
		rule: "the machine whose free GPUs are closest to the job's, more or fewer, and again for the rest"}
}

// ElasticFlowIdle is ElasticFlow by another sentence of Titan's authors, "existing
// approaches usually place workers on as few idle machines as possible": best fit among
// idle machines, and others only for what they do not hold. Best fit among all machines
// packs well, so only by this reading are many more machines used, as in their Figure 2.
func ElasticFlowIdle() Policy {
	return Policy{name: "elasticflow-idle", fill: idleFirst, order: unordered,
		rule: "as few idle machines as hold the job, then non-idle ones by best fit for the rest"}
}

// PowerOfTwo is the policy with GPUs taken by powers of two, as ElasticFlow has it: a job
// of 5 workers takes 8 GPUs, of which 3 are spare. Where the jobs of the batch do not
// leave as many, a job takes what it asks for.
func (p Policy) PowerOfTwo() Policy {
	p.power = true
	p.name += "-power-of-two"
	p.rule += "; GPUs by powers of two"
	return p
}

// HiveD [Zhao et al., OSDI '20] uses up fragments, as Titan (section II-B) describes it:
// non-idle machines by best fit, and idle ones only for what they do not hold.
func HiveD() Policy {
	return Policy{name: "hived", fill: fragments, order: unordered,
		rule: "non-idle machines by best fit, then idle ones for the rest"}
}

// Tiresias [Gu et al., NSDI '19] consolidates the jobs whose training suffers when they
// are spread: those of models in which one tensor has at least the part limit (0: a half)
// of the gradient, Job.Skew, as in VGG and AlexNet. They are placed as by ElasticFlow.
// The others take HiveD's machines, as evenly as their free GPUs allow, so that none
// carries more of the traffic. Titan says only that they are distributed to several.
func Tiresias(limit float64) Policy {
	if !(limit > 0) {
		limit = 0.5
	}
	fill := func(v *view, q *queue) []cluster.Part {
		if v.job.Skew >= limit {
			return bestFit(v, q)
		}
		return v.deal(fragments(v, q))
	}
	return Policy{name: "tiresias", fill: fill, order: unordered,
		rule: "skewed models as by elasticflow, others evenly over the machines that hived would take"}
}

// unordered is the order of policies that look at all servers themselves.
func unordered(*view, int) rank { return rank{} }

func bestFit(v *view, _ *queue) []cluster.Part {
	parts, _ := v.fit(v.want, nil, anyone, best)
	return parts
}

func closestFit(v *view, _ *queue) []cluster.Part {
	parts, _ := v.fit(v.want, nil, anyone, closest)
	return parts
}

func fragments(v *view, _ *queue) []cluster.Part { return v.inTurn(v.busy, v.idle) }
func idleFirst(v *view, _ *queue) []cluster.Part { return v.inTurn(v.idle, v.busy) }

// idle reports whether nothing runs on a server, busy whether something does.
func (v *view) idle(s int) bool { return v.Free(s) == v.Servers[s].GPUs }
func (v *view) busy(s int) bool { return !v.idle(s) }

// inTurn is fit among servers of one kind, and what is left over among those of another.
func (v *view) inTurn(kind, other func(server int) bool) []cluster.Part {
	parts, left := v.fit(v.want, nil, kind, best)
	parts, _ = v.fit(left, parts, other, best)
	return parts
}

// anyone says of every server that it may be taken.
func anyone(int) bool { return true }

// best is how badly so many free GPUs fit what is left of a job: those that hold it fit better
// the fewer they are, and better than those that do not, which fit better the more they are.
func best(free, left int) int {
	if free >= left {
		return free - left
	}
	return math.MaxInt32 - free
}

// closest is how far so many free GPUs are from what is left of a job; of as many more and
// fewer those that hold it fit better.
func closest(free, left int) int {
	if free >= left {
		return 2 * (free - left)
	}
	return 2*(left-free) + 1
}

// fit adds servers for so many GPUs, of those that may be taken: always the one that fits what
// is left least badly, of equals the first. It says how many are left over.
func (v *view) fit(left int, parts []cluster.Part, may func(server int) bool, badly func(free, left int) int) ([]cluster.Part, int) {
	taken := map[int]bool{}
	for left > 0 {
		next := -1
		for s := range v.Servers {
			n := v.Free(s)
			if n == 0 || taken[s] || !may(s) {
				continue
			}
			if next < 0 || badly(n, left) < badly(v.Free(next), left) {
				next = s
			}
		}
		if next < 0 {
			break
		}
		taken[next] = true
		n := min(left, v.Free(next))
		parts = append(parts, cluster.Part{Server: next, GPUs: n})
		left -= n
	}
	return parts, left
}

// powerOfTwo is the smallest that is at least n.
func powerOfTwo(n int) int {
	if n < 2 {
		return n
	}
	return 1 << bits.Len(uint(n-1))
}

// split gives the first GPUs of parts to workers; the others are spare.
func split(parts []cluster.Part, workers int) (with, spare []cluster.Part) {
	for _, p := range parts {
		n := min(p.GPUs, workers)
		workers -= n
		if n > 0 {
			with = append(with, cluster.Part{Server: p.Server, GPUs: n})
		}
		if n < p.GPUs {
			spare = append(spare, cluster.Part{Server: p.Server, GPUs: p.GPUs - n})
		}
	}
	return with, spare
}
