package flow

import (
	"math"
	"slices"
)

// Steady is the steady state that WaterFill computes, kept up to date while jobs
// come and go. The work of a change is in what it changes.
//
// In Algorithm 1 everything is decided by levels: every link and every switch has
// one at which it is used up (+Inf: never), a job's rate is the least level of its
// links, and its flows leap at the levels of its switches. How much of a resource is
// used below some level depends only on levels below that. So a change is carried
// through in ascending order: the resource whose use changed at the lowest level
// gets its level anew, which changes the use of others from there on, and so forth
// until all levels are what the use says. That state is WaterFill's, since by the
// same order there is only one.
//
// What it says is rounded to 40 binary digits, so that it does not depend on how the
// state came about.
//
// Changes wait until something is asked. Methods that take a handle want one of a
// job that is there. A Steady is not safe for concurrent use.
type Steady struct {
	p     Problem // Links and Switches
	res   []supply
	links int32 // res are the links, then the switches
	trees []tree
	free  []int32 // trees that are not in use

	queue   []int32 // heap of the resources whose level is in doubt, by key
	moved   int     // jobs that came or went since the state was steady
	anew    bool    // all levels are computed from nothing: the first is final
	touched struct{ trees, links []int32 }
	changed struct{ trees, links []int32 }
	out     struct{ trees, links []int }
}

// still is the fraction of a level below which a difference is rounding.
const still = 1e-13

// drift is the fraction of a capacity that running sums are never off by.
const drift = 1e-9

// supply is a link or a switch.
type supply struct {
	capacity float64
	level    float64 // at which it is used up
	// used is what the jobs take at their rates; of a switch, what they take up to
	// the level ref.
	used, ref float64
	flows     int32 // link: in the end; switch: the nodes that go on at ref
	age       int32 // additions to used since it was summed up
	pos       int32 // in the queue; -1: not in it

	fresh   bool    // found is right
	touched bool    // in Steady.touched
	changed bool    // in Steady.changed
	key     float64 // no level that is in doubt is lower
	from    float64 // use changed from this level on
	found   float64 // the level that use says

	// Of a link, when the state was last steady:
	rest     float64 // what remains
	oldFlows int32
	uses     []taking
}

// taking is a node of a tree that takes from a resource.
type taking struct {
	tree, node int32
	flow       int32 // that never leaps; 0: see the node's row
}

type tree struct {
	rate, next float64 // least level of its links (and limit); the same without link at
	at         int32   // the link of that level, -1: the limit
	live       bool
	stuck      bool // stands still whatever the levels
	touched    bool
	changed    bool
	limit      float64 // its own, or what its narrowest link can carry
	nodes      []treeNode
	cuts       []cut   // switches whose end makes flows leap, the first used up first
	flows      []int32 // len(cuts)+1 for each node above a cut
	oldRate    float64
}

type treeNode struct {
	parent, link, sw int32   // resources; -1: none
	atLink, atSwitch int32   // indices in their uses
	row              int32   // in tree.flows; -1: flows are constant
	constant         int32   // those
	flow, sum        int32   // flows in the end, as counted at the link; scratch
	always           bool    // memory of its own
	rank             int32   // in tree.cuts; -1: none
	carried          float64 // what it takes of its link
}

type cut struct{ sw, node int32 }

// NewSteady is the steady state of a network without jobs. Every link counts as
// undirected; Cable is not looked at.
func NewSteady(links []Link, switches []Switch) (*Steady, error) {
	s := &Steady{p: Problem{Links: slices.Clone(links), Switches: slices.Clone(switches)}, links: int32(len(links))}
	if err := s.p.Validate(); err != nil {
		return nil, err
	}
	for _, l := range links {
		r := supply{capacity: l.Capacity, level: math.Inf(1), pos: -1}
		r.rest = r.left()
		s.res = append(s.res, r)
	}
	for _, w := range switches {
		r := supply{capacity: w.PAT, level: math.Inf(1), ref: math.Inf(1), pos: -1}
		if w.PAT <= 0 {
			r.level, r.ref = 0, 0
		}
		s.res = append(s.res, r)
	}
	return s, nil
}

// Add enters a job and returns its handle; those of removed jobs are used again. The
// job is not kept. An error wraps what Problem.Validate says, and then nothing changed.
func (s *Steady) Add(j *Job) (int, error) {
	if err := s.p.validateJob(j); err != nil {
		return 0, err
	}
	h := int32(len(s.trees))
	if n := len(s.free); n > 0 {
		h, s.free = s.free[n-1], s.free[:n-1]
	} else {
		s.trees = append(s.trees, tree{})
	}
	t := &s.trees[h]
	s.plant(t, j)
	s.touchTree(h)
	t.oldRate = math.NaN()
	s.moved++
	for k := range t.nodes {
		n := &t.nodes[k]
		u := taking{tree: h, node: int32(k), flow: n.constant}
		if n.link >= 0 && !t.stuck {
			r := &s.res[n.link]
			n.atLink = int32(len(r.uses))
			r.uses = append(r.uses, u)
		}
		if n.sw >= 0 && !t.stuck {
			r := &s.res[n.sw]
			n.atSwitch = int32(len(r.uses))
			r.uses = append(r.uses, u)
		}
	}
	if !t.stuck {
		s.least(t)
	}
	s.move(h, -1, -1)
	return int(h), nil
}

// plant makes t the tree of j.
func (s *Steady) plant(t *tree, j *Job) {
	*t = tree{live: true, at: -1, limit: math.Inf(1), touched: t.touched, changed: t.changed, oldRate: t.oldRate,
		nodes: t.nodes[:0], cuts: t.cuts[:0], flows: t.flows[:0]}
	if j.Limit > 0 {
		t.limit = j.Limit
	}
	linked := false
	for k := range j.Nodes {
		nd := &j.Nodes[k]
		n := treeNode{parent: int32(nd.Parent), link: int32(nd.Up), sw: -1, row: -1, rank: -1}
		if n.link >= 0 {
			linked = true
			t.limit = min(t.limit, s.res[n.link].capacity)
		}
		if j.aggregates(nd) {
			if j.Kind == Synchronous {
				n.always = true
			} else {
				n.sw = s.links + int32(nd.Switch)
			}
		}
		t.nodes = append(t.nodes, n)
	}
	t.stuck = j.starved() != None || !linked && j.Limit == 0
	// Flows without aggregation: where more than one enters a switch, its end counts.
	for k := range t.nodes {
		n := &t.nodes[k]
		n.constant = max(1, n.sum)
		switch {
		case n.always:
			n.constant = 1
		case n.sw >= 0 && n.constant > 1:
			t.cuts = append(t.cuts, cut{n.sw, int32(k)})
			n.row = 0
		}
		if n.parent >= 0 {
			t.nodes[n.parent].sum += n.constant
			if n.row >= 0 {
				t.nodes[n.parent].row = 0
			}
		}
	}
	if len(t.cuts) == 0 {
		return
	}
	width := len(t.cuts) + 1
	for k := range t.nodes {
		if n := &t.nodes[k]; n.row >= 0 {
			n.row, n.constant = int32(len(t.flows)), 0
			t.flows = slices.Grow(t.flows, width)[:len(t.flows)+width]
		}
	}
	s.table(t)
}

// table orders t's cuts and computes the flows between them.
func (s *Steady) table(t *tree) {
	for i := 1; i < len(t.cuts); i++ {
		c := t.cuts[i]
		k := i
		for ; k > 0 && s.res[t.cuts[k-1].sw].level > s.res[c.sw].level; k-- {
			t.cuts[k] = t.cuts[k-1]
		}
		t.cuts[k] = c
	}
	for i, c := range t.cuts {
		t.nodes[c.node].rank = int32(i)
	}
	for ended := int32(0); int(ended) <= len(t.cuts); ended++ {
		for k := range t.nodes {
			t.nodes[k].sum = 0
		}
		for k := range t.nodes {
			n := &t.nodes[k]
			f := max(1, n.sum)
			if n.always || n.rank >= ended {
				f = 1
			}
			if n.row >= 0 {
				t.flows[n.row+ended] = f
			}
			if n.parent >= 0 {
				t.nodes[n.parent].sum += f
			}
		}
	}
}

// Remove ends a job.
func (s *Steady) Remove(handle int) {
	h := int32(handle)
	t := &s.trees[h]
	s.moved++
	for k := range t.nodes {
		n := &t.nodes[k]
		if n.link >= 0 {
			s.touchLink(n.link)
			s.res[n.link].flows -= n.flow
		}
		if t.stuck {
			continue
		}
		if n.link >= 0 {
			s.unuse(n.link, n.atLink)
			s.take(n.link, -n.carried)
			s.mark(n.link, 0)
		}
		if n.sw >= 0 {
			s.unuse(n.sw, n.atSwitch)
			s.draw(n.sw, t.rate, -1)
			s.mark(n.sw, 0)
		}
	}
	t.live = false
	s.free = append(s.free, h)
}

// unuse deletes a use of resource i.
func (s *Steady) unuse(i, k int32) {
	r := &s.res[i]
	last := len(r.uses) - 1
	r.uses[k] = r.uses[last]
	r.uses = r.uses[:last]
	if int(k) < last {
		u := r.uses[k]
		n := &s.trees[u.tree].nodes[u.node]
		if i < s.links {
			n.atLink = k
		} else {
			n.atSwitch = k
		}
	}
}

// least computes t's rate from the levels.
func (s *Steady) least(t *tree) {
	t.rate, t.next, t.at = t.limit, t.limit, -1
	for k := range t.nodes {
		l := t.nodes[k].link
		if l < 0 || l == t.at {
			continue
		}
		if v := s.res[l].level; v < t.rate {
			t.rate, t.next, t.at = v, t.rate, l
		} else if v < t.next {
			t.next = v
		}
	}
}

// move carries through that the rate of tree h was old, -1: it had none. Resource
// cause is no news.
func (s *Steady) move(h int32, old float64, cause int32) {
	t := &s.trees[h]
	from := max(0, min(old, t.rate))
	for k := range t.nodes {
		n := &t.nodes[k]
		if n.link >= 0 && s.carry(t, n) && n.link != cause {
			s.mark(n.link, from)
		}
		if n.sw >= 0 && !t.stuck {
			s.draw(n.sw, old, t.rate)
			s.mark(n.sw, from)
		}
	}
}

// carry renews what node n of t takes of its link and reports whether that changed.
func (s *Steady) carry(t *tree, n *treeNode) bool {
	r := &s.res[n.link]
	rate := t.rate
	taken, flow := rate*float64(n.constant), n.constant
	if n.row >= 0 {
		taken = 0
		row := t.flows[n.row : int(n.row)+len(t.cuts)+1]
		var at float64
		flow = row[0]
		for i, c := range t.cuts {
			w := &s.res[c.sw]
			// At one and the same level a job stops before memory runs out.
			if w.capacity > 0 && w.level*(1+snap) >= rate {
				break
			}
			if g := min(w.level, rate); g > at {
				taken += float64(row[i]) * (g - at)
				at = g
			}
			flow = row[i+1]
		}
		taken += float64(flow) * (rate - at)
	}
	if flow != n.flow {
		s.touchLink(n.link)
		r.flows += flow - n.flow
		n.flow = flow
	}
	if taken == n.carried {
		return false
	}
	s.touchLink(n.link)
	d := taken - n.carried
	n.carried = taken
	s.take(n.link, d)
	return true
}

// take adds d to what is used of link i.
func (s *Steady) take(i int32, d float64) {
	r := &s.res[i]
	r.used += d
	if r.age++; int(r.age) < 8*len(r.uses)+64 {
		return
	}
	r.used, r.age = 0, 0
	for _, u := range r.uses {
		r.used += s.trees[u.tree].nodes[u.node].carried
	}
}

// draw changes the rate of a node at switch i; -1: it is not there.
func (s *Steady) draw(i int32, old, now float64) {
	r := &s.res[i]
	r.used += min(max(0, now), r.ref) - min(max(0, old), r.ref)
	if old >= r.ref {
		r.flows--
	}
	if now >= r.ref {
		r.flows++
	}
	if r.age++; int(r.age) >= 8*len(r.uses)+64 {
		s.refer(r, r.ref)
	}
}

// refer sums up what is used of a switch up to level x.
func (s *Steady) refer(r *supply, x float64) {
	r.ref, r.used, r.flows, r.age = x, 0, 0, 0
	for _, u := range r.uses {
		if v := s.trees[u.tree].rate; v >= x {
			r.used += x
			r.flows++
		} else {
			r.used += v
		}
	}
}

// mark notes that the use of resource i changed from a level on.
func (s *Steady) mark(i int32, from float64) {
	r := &s.res[i]
	if from >= r.level || s.anew && !math.IsInf(r.level, 1) {
		return
	}
	switch {
	case r.pos < 0:
		r.fresh, r.from = false, from
	case r.fresh && from >= r.found:
		return
	default:
		r.fresh, r.from = false, min(r.from, from)
	}
	s.queued(i, s.doubt(i))
}

// doubt is a level below which that of resource i cannot change: neither what it was
// nor what it will be is lower. +Inf: it was and will be never used up.
func (s *Steady) doubt(i int32) float64 {
	r := &s.res[i]
	if i < s.links {
		if r.used < r.capacity*(1-drift) {
			return r.level // it can only rise
		}
		return r.from
	}
	if math.IsInf(r.ref, 1) {
		if r.used < r.capacity*(1-drift) {
			return r.level
		}
		return r.from
	}
	least := r.ref
	if r.used > r.capacity {
		if r.flows == 0 {
			return r.from
		}
		least -= (r.used - r.capacity) / float64(r.flows)
	}
	return min(r.level, max(r.from, least))
}

// settle makes the state steady.
func (s *Steady) settle() {
	if s.moved == 0 {
		return
	}
	s.anew = false
	if s.moved > 16+(len(s.trees)-len(s.free))/2 {
		s.restart()
	}
	s.moved = 0
	budget := 64 + 4*len(s.res)
	for len(s.queue) > 0 {
		i := s.queue[0]
		r := &s.res[i]
		if !r.fresh {
			r.fresh, r.found = true, s.levelOf(i)
			if i >= s.links && r.ref != r.found {
				s.refer(r, r.found)
			}
			// Of finite ones: the difference to +Inf is not rounding.
			if r.found == r.level || math.Abs(r.found-r.level) <= still*min(r.found, r.level) {
				if i >= s.links && r.ref != r.level {
					s.refer(r, r.level)
				}
				s.queued(i, math.Inf(1))
				continue
			}
			r.from = min(r.found, r.level)
			s.queued(i, r.from)
			if s.queue[0] != i {
				continue
			}
		}
		s.queued(i, math.Inf(1))
		if budget--; budget < 0 && !s.anew {
			s.restart()
			continue
		}
		if i < s.links {
			s.setLink(i, r.found)
		} else {
			s.setSwitch(i, r.found)
		}
	}
	s.anew = false
	s.settled()
}

// restart forgets all levels.
func (s *Steady) restart() {
	s.anew = true
	for i := range s.res {
		r := &s.res[i]
		r.pos, r.age = -1, 0
		if int32(i) < s.links {
			s.touchLink(int32(i))
			r.used = 0
		}
		r.level = math.Inf(1)
		if int32(i) >= s.links {
			if r.capacity <= 0 {
				r.level = 0
			}
			r.ref, r.used, r.flows = r.level, 0, 0
		}
	}
	s.queue = s.queue[:0]
	for h := range s.trees {
		t := &s.trees[h]
		if !t.live || t.stuck {
			continue
		}
		s.touchTree(int32(h))
		if len(t.cuts) > 1 {
			s.table(t)
		}
		t.rate, t.next, t.at = t.limit, t.limit, -1
		for k := range t.nodes {
			t.nodes[k].carried = 0
		}
	}
	for h := range s.trees {
		if t := &s.trees[h]; t.live && !t.stuck {
			s.move(int32(h), -1, -1)
		}
	}
}

// setLink carries through that link i is used up at level v.
func (s *Steady) setLink(i int32, v float64) {
	r := &s.res[i]
	s.touchLink(i)
	was := r.level
	r.level = v
	for k := 0; k < len(r.uses); k++ {
		h := r.uses[k].tree
		t := &s.trees[h]
		old := t.rate
		switch {
		case t.at == i && v <= t.next:
			if v == old {
				continue
			}
			s.touchTree(h)
			t.rate = v
		case t.at == i:
			s.touchTree(h)
			s.least(t)
		case v < t.rate:
			s.touchTree(h)
			t.rate, t.next, t.at = v, old, i
		case was <= t.next && v > was:
			s.least(t)
		default:
			t.next = min(t.next, v)
		}
		if t.rate != old {
			s.move(h, old, i)
		}
	}
}

// setSwitch carries through that switch i is used up at level v.
func (s *Steady) setSwitch(i int32, v float64) {
	r := &s.res[i]
	from := min(r.level, v)
	r.level = v
	for _, u := range r.uses {
		if u.flow > 0 {
			continue
		}
		t := &s.trees[u.tree]
		for k := 1; k < len(t.cuts); k++ {
			if s.res[t.cuts[k-1].sw].level > s.res[t.cuts[k].sw].level {
				s.table(t)
				break
			}
		}
		if t.rate <= from {
			continue
		}
		for k := u.node; k >= 0; {
			n := &t.nodes[k]
			if n.link >= 0 && s.carry(t, n) {
				s.mark(n.link, from)
			}
			k = n.parent
		}
	}
}

// levelOf is the level at which resource i is used up, as its use says.
func (s *Steady) levelOf(i int32) float64 {
	r := &s.res[i]
	if len(r.uses) == 0 {
		return math.Inf(1)
	}
	if r.capacity == 0 {
		return 0
	}
	x := r.level
	if i >= s.links {
		x = r.ref
	}
	if math.IsInf(x, 1) {
		x = r.capacity / float64(len(r.uses))
	}
	lo, hi := 0.0, math.Inf(1) // the level is between
	for {
		var p piece
		if i < s.links {
			p = s.linkAt(i, x)
		} else {
			p = s.switchAt(i, x)
		}
		if rest := r.capacity - p.used; rest > 0 {
			if rest <= snap*r.capacity {
				if p.bend {
					return x
				}
				if p.after == 0 {
					return p.below
				}
			}
			lo = p.above
			if p.after == 0 {
				if math.IsInf(lo, 1) {
					return lo
				}
				x = lo
				continue
			}
			v := x + rest/p.after
			if v <= p.above {
				if !p.bend && (v-p.below)*p.after <= snap*r.capacity {
					return p.below
				}
				return v
			}
			if x = v; x >= hi {
				x = lo
			}
			continue
		}
		hi = p.below
		if p.before == 0 {
			x = hi
			continue
		}
		v := x - (p.used-r.capacity)/p.before
		if v >= p.below {
			if (v-p.below)*p.before <= snap*r.capacity {
				return p.below
			}
			return v
		}
		if x = v; x <= lo {
			x = hi
		}
	}
}

// piece is how much of a resource is used up to a level, and how that goes on.
type piece struct {
	used          float64
	before, after float64 // its slope there
	below, above  float64 // the next levels where the slope changes
	bend          bool    // it changes here
}

// part adds a piece of the slope f between levels a and b.
func (p *piece) part(x, a, b, f float64) {
	switch {
	case a >= b || x < a:
	case x > b:
		p.used += f * (b - a)
		if b > p.below {
			p.below = b
		}
	case x == b:
		p.used += f * (b - a)
		p.before += f
		p.bend = true
	default:
		p.used += f * (x - a)
		p.after += f
		if x > a {
			p.before += f
		}
		if b < p.above {
			p.above = b
		}
	}
}

// linkAt is the use of link i up to level x, if it held nobody back itself.
func (s *Steady) linkAt(i int32, x float64) piece {
	p := piece{above: math.Inf(1)}
	for _, u := range s.res[i].uses {
		t := &s.trees[u.tree]
		end := t.rate
		if t.at == i {
			end = t.next
		}
		if u.flow > 0 {
			p.part(x, 0, end, float64(u.flow))
			continue
		}
		n := &t.nodes[u.node]
		row := t.flows[n.row : int(n.row)+len(t.cuts)+1]
		at, f := 0.0, row[0]
		for k, c := range t.cuts {
			g := s.res[c.sw].level
			if g >= end {
				break
			}
			p.part(x, at, g, float64(f))
			at, f = g, row[k+1]
		}
		p.part(x, at, end, float64(f))
	}
	return p
}

// switchAt is the use of switch i up to level x.
func (s *Steady) switchAt(i int32, x float64) piece {
	p := piece{above: math.Inf(1)}
	on := 0
	for _, u := range s.res[i].uses {
		switch v := s.trees[u.tree].rate; {
		case v < x:
			p.used += v
			if v > p.below {
				p.below = v
			}
		case v == x:
			p.before++
			p.bend = true
		default:
			on++
			if v < p.above {
				p.above = v
			}
		}
	}
	p.before += float64(on)
	p.after = float64(on)
	p.used += p.before * x
	return p
}

// queued puts resource i into the queue, or moves it to another key there; with key
// +Inf it takes it out.
func (s *Steady) queued(i int32, key float64) {
	r := &s.res[i]
	old := r.key
	r.key = key
	if math.IsInf(key, 1) {
		if r.pos < 0 {
			return
		}
		k := r.pos
		r.pos = -1
		last := int32(len(s.queue) - 1)
		moved := s.queue[last]
		s.queue = s.queue[:last]
		if k < last {
			s.put(k, moved)
			s.sift(k)
		}
		return
	}
	if r.pos < 0 {
		s.queue = append(s.queue, i)
		s.put(int32(len(s.queue)-1), i)
	} else if key == old {
		return
	}
	s.sift(r.pos)
}

func (s *Steady) put(k, i int32) { s.queue[k], s.res[i].pos = i, k }

// sift moves what is at k in the queue to where it belongs.
func (s *Steady) sift(k int32) {
	i := s.queue[k]
	key := s.res[i].key
	for k > 0 {
		up := s.queue[(k-1)/2]
		if s.res[up].key <= key {
			break
		}
		s.put(k, up)
		k = (k - 1) / 2
	}
	for {
		c := 2*k + 1
		if int(c) >= len(s.queue) {
			break
		}
		if int(c)+1 < len(s.queue) && s.res[s.queue[c+1]].key < s.res[s.queue[c]].key {
			c++
		}
		if s.res[s.queue[c]].key >= key {
			break
		}
		s.put(k, s.queue[c])
		k = c
	}
	s.put(k, i)
}

func (s *Steady) touchTree(h int32) {
	if t := &s.trees[h]; !t.touched {
		t.touched, t.oldRate = true, t.rate
		s.touched.trees = append(s.touched.trees, h)
	}
}

func (s *Steady) touchLink(i int32) {
	if r := &s.res[i]; !r.touched {
		r.touched, r.oldFlows = true, r.flows
		s.touched.links = append(s.touched.links, i)
	}
}

// left is what remains in the steady state.
func (r *supply) left() float64 {
	if !math.IsInf(r.level, 1) {
		return 0
	}
	if left := r.capacity - r.used; left > snap*r.capacity {
		return tidy(left, r.capacity)
	}
	return 0
}

// tidy is v to 40 binary digits of the scale. Two ways to the same state add up the same
// numbers in different orders; what their rounding leaves must not decide between equals.
func tidy(v, scale float64) float64 {
	_, exp := math.Frexp(scale)
	return math.Ldexp(math.RoundToEven(math.Ldexp(v, 40-exp)), exp-40)
}

// settled notes what changed since the state was last steady.
func (s *Steady) settled() {
	for _, h := range s.touched.trees {
		t := &s.trees[h]
		t.touched = false
		if !t.changed && t.live && !near12(t.rate, t.oldRate, max(t.rate, t.oldRate)) {
			t.changed = true
			s.changed.trees = append(s.changed.trees, h)
		}
	}
	for _, i := range s.touched.links {
		r := &s.res[i]
		r.touched = false
		was := r.rest
		r.rest = r.left()
		if !r.changed && (r.flows != r.oldFlows || r.rest != was) {
			r.changed = true
			s.changed.links = append(s.changed.links, i)
		}
	}
	s.touched.trees, s.touched.links = s.touched.trees[:0], s.touched.links[:0]
}

// near12 reports whether a and b differ by no more than rounding does on the scale.
func near12(a, b, scale float64) bool { return a == b || math.Abs(a-b) <= 1e-12*scale }

// Rate is the rate of a job.
func (s *Steady) Rate(handle int) float64 {
	s.settle()
	if t := &s.trees[handle]; !t.stuck {
		return tidy(t.rate, t.rate)
	}
	return 0
}

// Left is what is left of a link, bit/s.
func (s *Steady) Left(link int) float64 {
	s.settle()
	return s.res[link].rest
}

// Flows is how many flows are on a link.
func (s *Steady) Flows(link int) int {
	s.settle()
	return int(s.res[link].flows)
}

// PATLeft is what is left of a switch's peak aggregation throughput.
func (s *Steady) PATLeft(sw int) float64 {
	s.settle()
	return s.res[int(s.links)+sw].left()
}

// Changed returns the jobs whose rate and the links of which what is left or the flows
// changed since the last call, in no order, and jobs that came and are still there. They
// may have changed back. The slices are valid until the next call.
func (s *Steady) Changed() (handles, links []int) {
	s.settle()
	s.out.trees, s.out.links = s.out.trees[:0], s.out.links[:0]
	for _, h := range s.changed.trees {
		t := &s.trees[h]
		t.changed = false
		if t.live {
			s.out.trees = append(s.out.trees, int(h))
		}
	}
	for _, i := range s.changed.links {
		s.res[i].changed = false
		s.out.links = append(s.out.links, int(i))
	}
	s.changed.trees, s.changed.links = s.changed.trees[:0], s.changed.links[:0]
	return s.out.trees, s.out.links
}

// Clone is a copy that shares nothing.
func (s *Steady) Clone() *Steady {
	s.settle()
	c := *s
	c.p.Links, c.p.Switches = slices.Clone(s.p.Links), slices.Clone(s.p.Switches)
	c.res, c.trees, c.free = slices.Clone(s.res), slices.Clone(s.trees), slices.Clone(s.free)
	for i := range c.res {
		c.res[i].uses = slices.Clone(c.res[i].uses)
	}
	for i := range c.trees {
		t := &c.trees[i]
		t.nodes, t.cuts, t.flows = slices.Clone(t.nodes), slices.Clone(t.cuts), slices.Clone(t.flows)
	}
	c.queue = nil
	c.touched.trees, c.touched.links = nil, nil
	c.changed.trees, c.changed.links = slices.Clone(s.changed.trees), slices.Clone(s.changed.links)
	c.out.trees, c.out.links = nil, nil
	return &c
}
