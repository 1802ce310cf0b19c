package tree

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/inabench/inabench/placement/mina/tree/pack"
)

// None is the root of a job without a tree.
const None = -1

// Job is a running one.
type Job struct {
	ID    int   // what candidates are drawn by: a job has the same ones in every call
	Hosts []int // not empty
	Held  int   // root of the tree that it has, or None
	Final bool  // First leaves it as it is, also without a tree

	Gain   float64 // what INA is worth to it, in any unit; less than or equal to 0: nothing. Counts if Options.Weighted
	Demand float64 // share of its time that it needs INA for (Pattern.Demand); counts if Options.Load
}

// Sharing is who may join the jobs whose trees do not conflict.
type Sharing uint8

const (
	// Apart: trees that conflict with one group only, and in it with no other tree that
	// joined: what MINA's authors meant their code to do.
	Apart Sharing = iota
	// Together: trees that conflict with one group only: the second category of the paper.
	Together
	// Merged: the third category too. A tree that conflicts with several groups makes them
	// one, as far as Options.Load lets it.
	Merged
	// Exclusive: nobody.
	Exclusive
)

// Options of a builder. The zero value has all candidates and no weights.
type Options struct {
	K    int // candidates of a job, drawn by chance; 0: all. The paper: 5
	Seed uint64
	// Weighted makes the Gain of the jobs with trees of their own as large as can be,
	// instead of their number.
	Weighted bool
	// Nodes of branch and bound, after which it gives up; 0: none (pack.Solver.Exact).
	Nodes   int
	Sharing Sharing
	// Load is the largest sum of the Demand of a group's jobs; 0: no limit.
	Load float64
}

// Plan is which jobs have which trees. Jobs are indices into those of the call.
type Plan struct {
	Roots  []int   // of the jobs' trees, or None
	Groups [][]int // jobs that share; each job with a tree is in one. The first has it by itself
	// Rivals are, for each job, those of its group whose trees want what is not enough
	// for both: not two of them at once.
	Rivals [][]int

	Alone   int   // jobs with trees that do not conflict with each other's
	Optimal bool  // no choice of the candidates has more of these, or more of their Gain
	Moved   int   // jobs that held another tree before
	Blocked []int // jobs that no tree can serve: something on every way is down
}

// Builder builds trees, for one call after another in the same memory.
type Builder struct {
	Options
	f        *Fabric
	capacity []int32
	tight    []int32 // the smallest capacity of the resources that begin there: see entry
	limited  [2][]bool
	down     bool

	solver  pack.Solver
	problem pack.Problem
	source  rand.PCG
	random  *rand.Rand

	hosts     []int
	entries   []entry
	contested []entry // that more jobs have than fit in somewhere
	shapes    []shape
	wanted    []int32 // jobs by entry; 0 between calls
	index     []int32 // of a resource in the problem; -1 between calls
	known     []int32 // resources with an index
	items     []candidate
	held      []int // items that are held
	uses      []int32
	perm      []int32
	sharing   sharing
}

// entry is a switch of a pod, or a link there, that a tree has one of: which, the root says.
type entry struct{ base, width int32 }

// shape is what all trees of a job have in common.
type shape struct {
	layer       int
	first, last int // entries; once all are known, the contested ones
	widest      int // of the contested ones, 0: none
	from, to    int // candidates
}

// candidate is an item of the problem.
type candidate struct {
	job, root int
}

// NewBuilder is a builder for a fabric whose resources have capacities: HDR, NDR, others.
func NewBuilder(f *Fabric, capacity []int32, o Options) (*Builder, error) {
	if len(capacity) != f.total {
		return nil, fmt.Errorf("%d capacities for %d switches and links", len(capacity), f.total)
	}
	if o.K < 0 || !(o.Load >= 0) || o.Sharing > Exclusive {
		return nil, fmt.Errorf("trees with k = %d, load %v and sharing %d: out of range", o.K, o.Load, o.Sharing)
	}
	b := &Builder{Options: o, f: f, capacity: slices.Clone(capacity),
		tight: make([]int32, f.total), wanted: make([]int32, f.total), index: make([]int32, f.total)}
	b.random = rand.New(&b.source)
	for r := range b.index {
		b.index[r] = -1
	}
	for kind, first := range [][]int{f.switches, f.links} {
		b.limited[kind] = make([]bool, len(first))
		for l := 1; l < len(first); l++ {
			pods := f.Hosts() / f.pod[l-kind]
			for p := range pods {
				base := first[l] + p*f.width[l]
				for r := base; r < base+f.width[l]; r++ {
					if capacity[r] < 0 {
						return nil, fmt.Errorf("%s: capacity %d", f.Describe(r), capacity[r])
					}
					b.down = b.down || capacity[r] == 0
				}
				b.tight[base] = slices.Min(capacity[base : base+f.width[l]])
				b.limited[kind][l] = b.limited[kind][l] || b.tight[base] < Unlimited
			}
		}
	}
	return b, nil
}

// Uses are the resources of limited capacity that a tree has, appended to a slice.
func (b *Builder) Uses(uses []int32, hosts []int, root int) ([]int32, error) {
	b.entries = b.entries[:0]
	s, err := b.shape(&Job{Hosts: hosts})
	if err != nil {
		return uses, err
	}
	if root < 0 || root >= b.f.width[s.layer] {
		return uses, fmt.Errorf("root %d of %d", root, b.f.width[s.layer])
	}
	for _, e := range b.entries[s.first:s.last] {
		if r := e.base + int32(root)%e.width; b.capacity[r] < Unlimited {
			uses = append(uses, r)
		}
	}
	return uses, nil
}

var errHosts = errors.New("hosts that are not there")

// shape adds the entries of a job, in which trees of its can be limited.
func (b *Builder) shape(j *Job) (shape, error) {
	f := b.f
	if len(j.Hosts) == 0 {
		return shape{}, fmt.Errorf("job %d: no hosts", j.ID)
	}
	b.hosts = append(b.hosts[:0], j.Hosts...)
	slices.Sort(b.hosts)
	last := b.hosts[len(b.hosts)-1]
	if b.hosts[0] < 0 || last >= f.Hosts() {
		return shape{}, fmt.Errorf("job %d on hosts %d to %d of %d: %w", j.ID, b.hosts[0], last, f.Hosts(), errHosts)
	}
	s := shape{first: len(b.entries)}
	for b.hosts[0]/f.pod[s.layer] != last/f.pod[s.layer] {
		s.layer++
	}
	for l := 1; l <= s.layer; l++ {
		for kind, first := range [2][]int{f.switches, f.links} {
			if !b.limited[kind][l] {
				continue
			}
			before, size, width := -1, f.pod[l-kind], f.width[l]
			for _, h := range b.hosts {
				if p := h / size; p != before {
					b.entries = append(b.entries, entry{int32(first[l] + p*width), int32(width)})
					before = p
				}
			}
		}
	}
	s.last = len(b.entries)
	return s, nil
}

// contest finds the entries of all jobs, and those that are contested.
func (b *Builder) contest(jobs []Job) error {
	b.entries, b.shapes = b.entries[:0], b.shapes[:0]
	for i := range jobs {
		s, err := b.shape(&jobs[i])
		if err != nil {
			return err
		}
		if g := jobs[i].Gain; math.IsNaN(g) || math.IsInf(g, 0) || !(jobs[i].Demand >= 0) {
			return fmt.Errorf("job %d with gain %v and demand %v: out of range", jobs[i].ID, g, jobs[i].Demand)
		}
		if h := jobs[i].Held; h < None || h >= b.f.width[s.layer] {
			return fmt.Errorf("job %d holds a tree with root %d of %d", jobs[i].ID, h, b.f.width[s.layer])
		}
		b.shapes = append(b.shapes, s)
	}
	for _, e := range b.entries {
		b.wanted[e.base]++
	}
	b.contested = b.contested[:0]
	for i := range b.shapes {
		s := &b.shapes[i]
		from := len(b.contested)
		for _, e := range b.entries[s.first:s.last] {
			if b.wanted[e.base] > b.tight[e.base] {
				b.contested = append(b.contested, e)
				s.widest = max(s.widest, int(e.width))
			}
		}
		s.first, s.last = from, len(b.contested)
	}
	for _, e := range b.entries {
		b.wanted[e.base] = 0
	}
	return nil
}

// alive is whether nothing of a tree is down.
func (b *Builder) alive(s *shape, root int) bool {
	if !b.down {
		return true
	}
	for _, e := range b.contested[s.first:s.last] {
		if b.capacity[e.base+int32(root)%e.width] == 0 {
			return false
		}
	}
	return true
}

// draw adds the candidates of a job: of roots that lead through the same contested
// resources one is enough.
func (b *Builder) draw(i int, j *Job) {
	s := &b.shapes[i]
	s.from = len(b.items)
	classes, roots := max(1, s.widest), b.f.width[s.layer]
	k := classes
	if b.K > 0 {
		k = min(b.K, classes)
	}
	held := None
	if j.Held != None && b.alive(s, j.Held) {
		held = j.Held % classes
		b.items = append(b.items, candidate{i, j.Held})
	}
	b.source.Seed(b.Seed, uint64(j.ID))
	b.perm = b.perm[:0]
	for c := range classes {
		b.perm = append(b.perm, int32(c))
	}
	for n := 0; n < classes && len(b.items)-s.from < k; n++ {
		o := n + b.random.IntN(classes-n)
		b.perm[n], b.perm[o] = b.perm[o], b.perm[n]
		root := int(b.perm[n]) + classes*b.random.IntN(roots/classes)
		if int(b.perm[n]) != held && b.alive(s, root) {
			b.items = append(b.items, candidate{i, root})
		}
	}
	s.to = len(b.items)
}

// Build finds trees for jobs: as many as can be that do not conflict with each other, of
// these as many as can be that jobs hold already, then those of jobs that share. It is an
// error if a job has no hosts, or such as do not exist, or holds a tree that is none.
func (b *Builder) Build(jobs []Job) (Plan, error) {
	p := Plan{Roots: make([]int, len(jobs)), Rivals: make([][]int, len(jobs)), Optimal: true}
	if err := b.contest(jobs); err != nil {
		return Plan{}, err
	}
	largest := 0.0
	for i := range jobs {
		largest = max(largest, jobs[i].Gain)
	}
	b.problem.Reset(nil)
	b.items, b.known, b.held = b.items[:0], b.known[:0], b.held[:0]
	for i := range jobs {
		p.Roots[i] = None
		s := &b.shapes[i]
		if s.layer == 0 {
			continue
		}
		b.draw(i, &jobs[i])
		switch drawn := b.items[s.from:s.to]; {
		case len(drawn) == 0:
			p.Blocked = append(p.Blocked, i)
		case s.widest == 0:
			p.Roots[i] = drawn[0].root
			p.Groups = append(p.Groups, []int{i})
			b.items, s.to = b.items[:s.from], s.from
		default:
			weight := int64(1)
			if b.Weighted && jobs[i].Gain > 0 {
				weight += int64(1e6 * jobs[i].Gain / largest)
			}
			b.offer(i, weight*int64(len(jobs)+1), jobs[i].Held)
		}
	}
	for _, r := range b.known {
		b.index[r] = -1
	}
	if len(b.items) > 0 {
		p.Optimal = b.solve(&p)
	}
	p.Alone = len(p.Groups)
	if len(b.items) > 0 {
		b.share(jobs, &p)
	}
	for i := range jobs {
		if h := jobs[i].Held; h != None && p.Roots[i] != None && h != p.Roots[i] {
			p.Moved++
		}
	}
	return p, nil
}

// offer adds a job's candidates to the problem. A tree that the job holds weighs 1 more:
// all of them together weigh less than a job.
func (b *Builder) offer(i int, weight int64, held int) {
	s := &b.shapes[i]
	own := b.problem.Resource(1)
	for _, c := range b.items[s.from:s.to] {
		b.uses = append(b.uses[:0], own)
		for _, e := range b.contested[s.first:s.last] {
			r := e.base + int32(c.root)%e.width
			if b.capacity[r] == Unlimited {
				continue
			}
			if b.index[r] < 0 {
				b.index[r] = b.problem.Resource(b.capacity[r])
				b.known = append(b.known, r)
			}
			b.uses = append(b.uses, b.index[r])
		}
		if c.root == held {
			b.held = append(b.held, b.problem.Add(weight+1, b.uses...))
		} else {
			b.problem.Add(weight, b.uses...)
		}
	}
}

// moves of the local search for each candidate (pack.Solver.Solve).
const moves = 2

// solve finds the trees that do not conflict, and whether there cannot be more.
func (b *Builder) solve(p *Plan) (optimal bool) {
	var chosen []int
	if b.Nodes > 0 {
		chosen, optimal = b.solver.Exact(&b.problem, b.held, b.Nodes)
	} else {
		chosen, optimal = b.solver.Solve(&b.problem, b.held, moves*len(b.items), b.Seed)
	}
	for _, item := range chosen {
		c := b.items[item]
		p.Roots[c.job] = c.root
		p.Groups = append(p.Groups, []int{c.job})
	}
	b.sharing.start(&b.problem, len(b.shapes))
	for _, item := range chosen {
		b.sharing.put(b.items[item].job, item)
	}
	return optimal
}
