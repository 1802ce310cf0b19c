package exact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/exact/lp"
)

// Errors of Solve.
var (
	ErrTooLarge   = errors.New("too large to be solved exactly")
	ErrInfeasible = errors.New("the batch does not fit")
)

// MaxServers is how many servers Solve enumerates: the ways to place one job double with
// each.
const MaxServers = 10

// Options of Solve.
type Options struct {
	// SelectINA chooses also at which racks switches aggregate for each job of the
	// batch (Table 3's z). Otherwise all do.
	SelectINA bool
	// Nodes ends the search with ErrTooLarge after so many partial placements; 0: ten
	// million.
	Nodes int
	// Solver, if there is one, has Table 3's program solved in place of the enumeration, of
	// clusters of any size that MaxProgram lets be, within Limit; 0: a minute.
	Solver Solver
	Limit  time.Duration
}

// Solution is a placement of a batch that none is better than, if Optimal.
type Solution struct {
	Cost   float64             // sum of d/v over all jobs, seconds
	Places []cluster.Placement // in the order of the batch
	Nodes  int                 // partial placements that were looked at
	Proof  *Proof              // what Options.Solver says of it; nil: it was enumerated
}

// Optimal reports whether it is known that no placement is better.
func (s *Solution) Optimal() bool { return s.Proof == nil || s.Proof.Status == lp.Optimal }

// Solve places the batch so that the cost is least: every job on every set of servers
// with every place for its PS, except what symmetry or a bound rules out. How many GPUs
// of a server a job has beyond the first does not change what it sends, so sets of
// servers are enumerated and the GPUs dealt in the end. One PS a job; rings are not
// looked at. With a Solver, the solution says whether it is Optimal. Errors wrap ErrTooLarge,
// ErrInfeasible, ErrTime, cluster.ErrPlacement, errors.ErrUnsupported (what the program leaves out), the
// Solver's, or that of ctx.
func Solve(ctx context.Context, in Instance, o Options) (Solution, error) {
	if o.Solver != nil {
		return in.program(ctx, o)
	}
	c, err := in.Cluster()
	if err != nil {
		return Solution{}, err
	}
	if n := len(in.Config.Servers); n > MaxServers {
		return Solution{}, fmt.Errorf("%d servers: %w", n, ErrTooLarge)
	}
	if o.Nodes == 0 {
		o.Nodes = 10_000_000
	}
	s := &search{ctx: ctx, in: &in, o: o, c: c, best: math.Inf(1), options: map[cluster.Traffic][]option{}}
	if err := in.check(c); err != nil {
		return Solution{}, err
	}
	for i := range in.Batch {
		s.order = append(s.order, i)
	}
	// The job that leaves the fewest choices to the others goes first.
	slices.SortStableFunc(s.order, func(a, b int) int { return in.Batch[b].GPUs - in.Batch[a].GPUs })
	s.prepare()
	s.down(0, 0, s.classes())
	if s.err != nil {
		return Solution{}, s.err
	}
	if s.found == nil && len(s.order) > 0 {
		return Solution{}, fmt.Errorf("no placement lets every job send: %w", ErrInfeasible)
	}
	return Solution{Cost: s.best, Places: s.deal(), Nodes: s.nodes}, nil
}

// check says why a batch is not placed: it has no GPUs to ask for, or too many, or traffic that is not looked at.
func (in *Instance) check(c *cluster.Cluster) error {
	demand := 0
	for _, j := range in.Batch {
		if j.GPUs < 1 || j.Traffic == cluster.Ring || j.PSes > 1 {
			return fmt.Errorf("job %d: %d GPUs, %d parameter servers, traffic %d: not looked at", j.ID, j.GPUs, j.PSes, j.Traffic)
		}
		demand += j.GPUs
	}
	if demand > c.TotalFree() {
		return fmt.Errorf("%d GPUs wanted, %d free: %w", demand, c.TotalFree(), ErrInfeasible)
	}
	return nil
}

// set is a set of servers.
type set uint32

func (s set) has(server int) bool { return s>>server&1 != 0 }
func (s set) size() int           { return bits.OnesCount32(uint32(s)) }

// option is a way to place a job, as far as it matters to what it sends.
type option struct {
	servers set
	ps      int // -1: none
	place   cluster.Placement
	need    need
}

// search is a depth-first branch and bound over the jobs of the batch in order.
type search struct {
	ctx     context.Context
	in      *Instance
	o       Options
	c       *cluster.Cluster // running jobs and those that are placed, with one GPU per part
	free    []int            // GPUs that running jobs leave, by server
	order   []int            // of the batch, by depth
	options map[cluster.Traffic][]option
	room    room

	chosen []*option // by depth
	needs  []need    // of running jobs, then by depth
	sizes  []float64 // their bytes

	best  float64
	found []*option // by depth
	nodes int
	err   error
}

// prepare enumerates the options and what they and the running jobs need of the network.
func (s *search) prepare() {
	m := newMeter(s.in.Config)
	s.room = m.room
	for i := range s.in.Config.Servers {
		s.free = append(s.free, s.c.Free(i))
	}
	for _, r := range s.in.Running {
		s.needs = append(s.needs, m.need(r.Job, r.Place))
		s.sizes = append(s.sizes, size(r.Job))
	}
	for _, j := range s.in.Batch {
		if s.options[j.Traffic] == nil {
			s.options[j.Traffic] = s.enumerate(m, j)
		}
	}
}

// enumerate are all ways to place a job of any size, the fastest first.
func (s *search) enumerate(m *meter, j cluster.Job) []option {
	n := len(s.in.Config.Servers)
	var out []option
	for servers := set(1); servers < 1<<n; servers++ {
		var p cluster.Placement
		for i := range n {
			if servers.has(i) {
				p.Parts = append(p.Parts, cluster.Part{Server: i, GPUs: 1})
			}
		}
		if slices.ContainsFunc(p.Parts, func(w cluster.Part) bool { return s.c.Free(w.Server) == 0 }) {
			continue
		}
		if servers.size() > 1 && slices.ContainsFunc(p.Parts, func(w cluster.Part) bool { return !s.in.Config.Servers[w.Server].Linked() }) {
			continue
		}
		if !j.NeedsPS(len(p.Parts)) {
			out = s.selective(out, m, j, option{servers: servers, ps: -1, place: p})
			continue
		}
		for ps := range n {
			if s.in.Config.Servers[ps].Linked() {
				p := p.Clone()
				p.PS = []int{ps}
				out = s.selective(out, m, j, option{servers: servers, ps: ps, place: p})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b option) int {
		return cmp.Or(cmp.Compare(b.need.alone, a.need.alone), cmp.Compare(a.servers.size(), b.servers.size()))
	})
	return out
}

// selective appends an option, with all choices of switches that aggregate where those
// are free.
func (s *search) selective(out []option, m *meter, j cluster.Job, o option) []option {
	var racks []int // that could aggregate
	if s.o.SelectINA && j.Traffic == cluster.INA && o.ps >= 0 {
		for _, w := range append(slices.Clone(o.place.Parts), cluster.Part{Server: o.ps}) {
			r := s.in.Config.Servers[w.Server].Rack
			if s.in.Config.Racks[r].PAT > 0 && !slices.Contains(racks, r) {
				racks = append(racks, r)
			}
		}
		slices.Sort(racks)
	}
	for choice := range 1 << len(racks) {
		o := o
		o.place = o.place.Clone()
		for i, r := range racks {
			if choice>>i&1 != 0 {
				o.place.Plain = append(o.place.Plain, r)
			}
		}
		o.need = m.need(j, o.place)
		out = append(out, o)
	}
	return out
}

// down places the job at a depth, and those after it. slow is what the placed jobs cost
// at least, were each alone; classes are the sets of servers that are alike.
func (s *search) down(depth int, slow float64, classes []set) {
	if depth == len(s.order) {
		if cost := s.in.cost(s.c); cost < s.best {
			s.best, s.found = cost, slices.Clone(s.chosen)
		}
		return
	}
	rest := s.rest(depth + 1)
	j := s.in.Batch[s.order[depth]]
	// Every way to place it that could be better, the most promising first.
	type way struct {
		o     *option
		least float64
	}
	var ways []way
	options := s.options[j.Traffic]
	s.chosen, s.needs, s.sizes = append(s.chosen, nil), append(s.needs, need{}), append(s.sizes, size(j))
	for i := range options {
		o := &options[i]
		if s.prunes(slow + size(j)/o.need.alone + rest) {
			break // the options after this are slower still
		}
		s.chosen[depth] = o
		if !canonical(o, classes) || !s.fits(s.chosen) {
			continue
		}
		s.nodes++
		s.needs[len(s.needs)-1] = o.need
		if least := s.room.bound(s.needs, s.sizes) + rest; !s.prunes(least) {
			ways = append(ways, way{o, least})
		}
	}
	if s.nodes > s.o.Nodes {
		s.err = fmt.Errorf("%d placements looked at: %w", s.nodes, ErrTooLarge)
	} else if s.err == nil {
		s.err = s.ctx.Err()
	}
	slices.SortStableFunc(ways, func(a, b way) int { return cmp.Compare(a.least, b.least) })
	for _, w := range ways {
		if s.err != nil || s.prunes(w.least) {
			break
		}
		s.chosen[depth], s.needs[len(s.needs)-1] = w.o, w.o.need
		job := j
		job.GPUs = len(w.o.place.Parts)
		if s.err = s.c.Enter(job, w.o.place); s.err == nil {
			s.down(depth+1, slow+size(j)/w.o.need.alone, refine(classes, w.o))
			s.err = errors.Join(s.err, s.c.Leave(job.ID))
		}
	}
	s.chosen, s.needs, s.sizes = s.chosen[:depth], s.needs[:len(s.needs)-1], s.sizes[:len(s.sizes)-1]
}

// prunes reports whether something that costs so much at least cannot be better than the
// best that is known.
func (s *search) prunes(cost float64) bool { return cost >= s.best*(1-1e-9) }

// rest is what the jobs from a depth on cost at least in the GPUs that are left: each at
// its fastest, as if alone. +Inf if one has no place.
func (s *search) rest(depth int) float64 {
	sum := 0.0
	for _, i := range s.order[depth:] {
		j := s.in.Batch[i]
		options := s.options[j.Traffic]
		k := slices.IndexFunc(options, func(o option) bool {
			free := 0
			for _, w := range o.place.Parts {
				free += s.c.Free(w.Server)
			}
			return o.servers.size() <= j.GPUs && free >= j.GPUs
		})
		if k < 0 {
			return math.Inf(1)
		}
		sum += size(j) / options[k].need.alone
	}
	return sum
}

// fits reports whether the jobs that are placed can have their GPUs on their servers, at
// least one on each, with as many left as the others want. By the theorem of Gale and
// Hall they can if no set of jobs wants more than their servers have.
func (s *search) fits(chosen []*option) bool {
	return s.feasible(chosen, nil)
}

// feasible is fits with some GPUs dealt already: by depth and server.
func (s *search) feasible(chosen []*option, dealt [][]int) bool {
	n := len(s.free)
	var free [MaxServers]int
	copy(free[:], s.free)
	want := make([]int, len(chosen))
	all, wanted := 0, 0
	for d, o := range chosen {
		want[d] = s.in.Batch[s.order[d]].GPUs
		for i := range n {
			if o.servers.has(i) {
				g := 1
				if dealt != nil {
					g = dealt[d][i]
				}
				want[d] -= g
				free[i] -= g
			}
		}
		if want[d] < 0 {
			return false
		}
		wanted += want[d]
	}
	for i := range n {
		if free[i] < 0 {
			return false
		}
		all += free[i]
	}
	for _, i := range s.order[len(chosen):] {
		wanted += s.in.Batch[i].GPUs
	}
	if wanted > all {
		return false
	}
	for jobs := 1; jobs < 1<<len(chosen); jobs++ {
		have, demand := set(0), 0
		for d, o := range chosen {
			if jobs>>d&1 != 0 {
				have |= o.servers
				demand += want[d]
			}
		}
		for i := range n {
			if have.has(i) {
				demand -= free[i]
			}
		}
		if demand > 0 {
			return false
		}
	}
	return true
}

// deal gives the jobs of the best solution their GPUs, as many on their first servers as
// the others can spare.
func (s *search) deal() []cluster.Placement {
	dealt := make([][]int, len(s.found))
	for d, o := range s.found {
		dealt[d] = make([]int, len(s.in.Config.Servers))
		for _, w := range o.place.Parts {
			dealt[d][w.Server] = 1
		}
	}
	out := make([]cluster.Placement, len(s.found))
	for d, o := range s.found {
		p := o.place.Clone()
		for k := range p.Parts {
			w := &p.Parts[k]
			for s.feasible(s.found, dealt) {
				dealt[d][w.Server]++
			}
			dealt[d][w.Server]--
			w.GPUs = dealt[d][w.Server]
		}
		out[s.order[d]] = p
	}
	return out
}
