// Package pack chooses items that use resources of limited capacity, so that their weight
// is as large as can be: weighted set packing. With capacities of 1 it is the maximum
// (weight) independent set; with others, the integer program of MINA's section III-C.
//
// A solution is built by reducing-peeling, improved by local search, and on small
// instances proven or replaced by branch and bound. How depends on the capacities.
//
// # Reducing-peeling without the conflict graph
//
// Chang, Li and Zhang ("Computing a near-maximum independent set in linear time by
// reducing-peeling", SIGMOD '17) work on the vertices and edges of a graph. Here the
// cliques are known, since all that want the same resource conflict, and there are far
// fewer of them than edges. A resource is contested while more items want it than fit in.
// The reductions are:
//
//   - An item without contested resources is chosen.
//   - An item with one is chosen if no other item there weighs more: whichever solution
//     does without it has one in its stead. (With capacities of 1 this is a vertex whose
//     neighbours are a clique; that of degree one among them.)
//   - An item on a resource that is used up is dropped.
//
// Where none applies, the item is peeled that stands in the way of most, by its weight. In
// the end peeled items come back, the last one first, where there is room. What remains
// when the first is peeled is the kernel; all that was chosen before belongs to some
// optimum, so only the kernel is searched.
//
// The paper's reduction of paths of degree two comes after that, on the conflict graph of
// the kernel: folding there does what it does.
//
// # Capacities of 1
//
// Where one item gets what several want, the kernel is a conflict graph. It is made if
// counting what resources serve does not prove that peeling's solution is optimal, as a
// matrix of bits: most of what follows is done for 64 items at once.
//
//   - Reductions make it smaller and take it apart: heavy and pendant vertices, folding of
//     two neighbours, dominance (cliques around a vertex among it) and twins, all with
//     weights (Lamm et al., ALENEX '19).
//   - Each component is solved by branch and reduce with a bound by cliques, if a hundred
//     nodes are enough (Akiba and Iwata, 2016).
//   - Else it is searched: climbs to local optima of (1,2)-swaps, which a forced vertex
//     leaves (Andrade, Resende and Werneck, 2012; Nogueira et al., 2018, for weights).
//
// Limits: no unconfined vertices, no crowns or bounds by linear programs, no reductions of
// the local search's own (ReduMIS); these pay on graphs of millions of vertices, of which
// a matrix has no room. A kernel of more than 8,192 items is solved as one with capacities
// above 1.
//
// # Capacities above 1
//
// A local search chooses items of the kernel and drops what is in their way. Exact is a
// branch and bound with resources in the place of cliques.
package pack

import (
	"cmp"
	"slices"
)

// Problem is a set of items with the resources that they use. The zero value has none.
type Problem struct {
	capacity []int32
	weight   []int64
	first    []int32 // of an item's uses
	uses     []int32
}

// Reset empties the problem and sets the capacity of each resource, at least 0.
func (p *Problem) Reset(capacity []int32) {
	p.capacity = append(p.capacity[:0], capacity...)
	p.weight, p.first, p.uses = p.weight[:0], append(p.first[:0], 0), p.uses[:0]
}

// Resource adds a resource and returns its index.
func (p *Problem) Resource(capacity int32) int32 {
	p.capacity = append(p.capacity, capacity)
	return int32(len(p.capacity) - 1)
}

// Add adds an item and returns its index. Its weight is more than 0, and it uses 1 of
// each of the resources, none of them named twice.
func (p *Problem) Add(weight int64, uses ...int32) int {
	if len(p.first) == 0 {
		p.first = append(p.first, 0)
	}
	p.weight = append(p.weight, weight)
	p.uses = append(p.uses, uses...)
	p.first = append(p.first, int32(len(p.uses)))
	return len(p.weight) - 1
}

// Len is the number of items.
func (p *Problem) Len() int { return len(p.weight) }

// Resources is the number of resources.
func (p *Problem) Resources() int { return len(p.capacity) }

// Capacity is that of a resource.
func (p *Problem) Capacity(resource int32) int32 { return p.capacity[resource] }

// Uses are the resources that an item uses; not to be changed.
func (p *Problem) Uses(item int) []int32 { return p.uses[p.first[item]:p.first[item+1]] }

// Greedy goes through the items, those first that weigh most for what they use, and
// chooses what still fits: what others are compared with.
func Greedy(p *Problem) []int {
	wanted := make([]int, len(p.capacity))
	for _, r := range p.uses {
		wanted[r]++
	}
	order := make([]int, p.Len())
	merit := make([]float64, p.Len())
	for v := range order {
		order[v] = v
		others := 1
		for _, r := range p.Uses(v) {
			others += max(0, wanted[r]-int(p.capacity[r]))
		}
		merit[v] = float64(p.weight[v]) / float64(others)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(merit[b], merit[a]) })
	left := slices.Clone(p.capacity)
	var out []int
	for _, v := range order {
		uses := p.Uses(v)
		if !slices.ContainsFunc(uses, func(r int32) bool { return left[r] == 0 }) {
			for _, r := range uses {
				left[r]--
			}
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}
