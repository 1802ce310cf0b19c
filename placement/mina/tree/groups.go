package tree

import (
	"cmp"
	"slices"

	"github.com/inabench/inabench/placement/mina/tree/pack"
)

// sharing is the jobs with trees by what these use, and by group.
type sharing struct {
	problem *pack.Problem
	at      [][]int32 // jobs with trees, by resource
	group   []int32   // by job: another one of its group, or itself
	load    []float64 // Demand of a group, by the job that stands for it
	members [][]int   // the same
	alone   []bool    // jobs of the independent set
}

func (s *sharing) start(p *pack.Problem, jobs int) {
	s.problem = p
	s.group, s.load, s.alone, s.members = s.group[:0], s.load[:0], s.alone[:0], s.members[:0]
	for i := range jobs {
		s.group = append(s.group, int32(i))
		s.load = append(s.load, 0)
		s.alone = append(s.alone, false)
		s.members = append(s.members, nil)
	}
	for i := range s.at {
		s.at[i] = s.at[i][:0]
	}
	for len(s.at) < p.Resources() {
		s.at = append(s.at, nil)
	}
}

// put gives a job a tree.
func (s *sharing) put(job, item int) {
	for _, r := range s.problem.Uses(item)[1:] { // the first is the job
		s.at[r] = append(s.at[r], int32(job))
	}
}

// of is the job that stands for a job's group.
func (s *sharing) of(job int32) int32 {
	for s.group[job] != job {
		s.group[job] = s.group[s.group[job]]
		job = s.group[job]
	}
	return job
}

// meets appends the groups that a tree must share with. A resource that as many groups
// use as it serves jobs needs one of these: the one that is among them already, or the one
// with the least load. Only one job of a group is active where its trees meet, so a group
// counts once. Apart: not where another tree has joined; ok is false.
func (s *sharing) meets(groups []int32, item int, apart bool) (_ []int32, ok bool) {
	for _, r := range s.problem.Uses(item)[1:] {
		distinct, best, joined := int32(0), int32(-1), false
		at := s.at[r]
		for i, j := range at {
			g := s.of(j)
			joined = joined || !s.alone[j]
			if slices.ContainsFunc(at[:i], func(o int32) bool { return s.of(o) == g }) {
				continue
			}
			distinct++
			if best < 0 || slices.Contains(groups, g) ||
				!slices.Contains(groups, best) && s.load[g] < s.load[best] {
				best = g
			}
		}
		if distinct < s.problem.Capacity(r) {
			continue
		}
		if apart && joined {
			return groups, false
		}
		if !slices.Contains(groups, best) {
			groups = append(groups, best)
		}
	}
	return groups, true
}

// share adds the trees of the jobs that are left to groups, those of the largest jobs
// first, or with weights those that gain most. Of its candidates a job gets the one for
// which it shares with the fewest groups, then with the least load, then the fewest jobs,
// then the one it holds.
func (b *Builder) share(jobs []Job, p *Plan) {
	s := &b.sharing
	var left []int
	for i := range jobs {
		switch shape := &b.shapes[i]; {
		case p.Roots[i] != None:
			s.alone[i], s.load[i], s.members[i] = true, jobs[i].Demand, []int{i}
		case shape.to > shape.from:
			left = append(left, i)
		}
	}
	slices.SortStableFunc(left, func(x, y int) int {
		if b.Weighted {
			return cmp.Compare(jobs[y].Gain, jobs[x].Gain)
		}
		return cmp.Compare(len(jobs[y].Hosts), len(jobs[x].Hosts))
	})
	if b.Sharing == Exclusive {
		left = nil
	}
	type choice struct {
		item    int
		groups  []int32
		load    float64
		members int
	}
	var groups []int32
	for _, i := range left {
		best := choice{item: -1}
		for item := b.shapes[i].from; item < b.shapes[i].to; item++ {
			var ok bool
			if groups, ok = s.meets(groups[:0], item, b.Sharing == Apart); !ok || len(groups) > 1 && b.Sharing != Merged {
				continue
			}
			c := choice{item: item, load: jobs[i].Demand}
			for _, g := range groups {
				c.load += s.load[g]
				c.members += len(s.members[g])
			}
			if b.Load > 0 && c.load > b.Load {
				continue
			}
			if best.item < 0 || cmp.Or(cmp.Compare(len(groups), len(best.groups)),
				cmp.Compare(c.load, best.load), cmp.Compare(c.members, best.members)) < 0 {
				c.groups = append(best.groups[:0], groups...)
				best = c
			}
		}
		if best.item < 0 {
			continue
		}
		p.Roots[i] = b.items[best.item].root
		to := int32(i)
		if len(best.groups) > 0 {
			to = best.groups[0]
			for _, g := range best.groups[1:] {
				s.group[g] = to
				s.members[to] = append(s.members[to], s.members[g]...)
				s.members[g] = nil
			}
		}
		s.group[i] = to
		s.load[to] = best.load
		s.members[to] = append(s.members[to], i)
		s.put(i, best.item)
	}
	p.Groups = p.Groups[:0]
	for i := range jobs {
		if len(s.members[i]) > 0 {
			p.Groups = append(p.Groups, s.members[i])
		}
	}
	b.rivals(p)
}

// rivals notes which jobs of a group want the same.
func (b *Builder) rivals(p *Plan) {
	s := &b.sharing
	for r, at := range s.at[:s.problem.Resources()] {
		if len(at) <= int(s.problem.Capacity(int32(r))) {
			continue
		}
		for i, x := range at {
			for _, y := range at[:i] {
				if s.of(x) == s.of(y) && !slices.Contains(p.Rivals[x], int(y)) {
					p.Rivals[x] = append(p.Rivals[x], int(y))
					p.Rivals[y] = append(p.Rivals[y], int(x))
				}
			}
		}
	}
}

// First is the baseline: a job without a tree gets the first one for which there is room
// beside those that busy jobs hold, and all others keep theirs. The paper asks only for new
// jobs; the others are Final then. Busy nil is all jobs, those
// that get trees now among them, as the paper says; its authors' code of the paper looks
// only at trees that pass data at that instant, so that there is something to share
// afterwards. The groups are the jobs whose trees conflict.
func (b *Builder) First(jobs []Job, busy func(job int) bool) (Plan, error) {
	p := Plan{Roots: make([]int, len(jobs)), Rivals: make([][]int, len(jobs))}
	if err := b.contest(jobs); err != nil {
		return Plan{}, err
	}
	load := b.wanted // by resource here
	defer clear(load)
	count := func(i int) {
		for _, e := range b.contested[b.shapes[i].first:b.shapes[i].last] {
			load[e.base+int32(p.Roots[i])%e.width]++
		}
	}
	for i := range jobs {
		if p.Roots[i] = None; jobs[i].Held != None && b.shapes[i].layer > 0 && b.alive(&b.shapes[i], jobs[i].Held) {
			p.Roots[i] = jobs[i].Held
			if busy == nil || busy(i) {
				count(i)
			}
		}
	}
	for i := range jobs {
		s := &b.shapes[i]
		if p.Roots[i] != None || s.layer == 0 || jobs[i].Final {
			continue
		}
		blocked := true
		for root := range b.f.width[s.layer] {
			if !b.alive(s, root) {
				continue
			}
			blocked = false
			if !slices.ContainsFunc(b.contested[s.first:s.last], func(e entry) bool {
				r := e.base + int32(root)%e.width
				return load[r] >= b.capacity[r]
			}) {
				p.Roots[i] = root
				if busy == nil {
					count(i)
				}
				break
			}
		}
		if blocked {
			p.Blocked = append(p.Blocked, i)
		}
	}
	b.conflicts(&p)
	return p, nil
}

// conflicts finds the groups of jobs that have trees.
func (b *Builder) conflicts(p *Plan) {
	b.problem.Reset(nil)
	b.known = b.known[:0]
	s := &b.sharing
	var with []int
	for i, root := range p.Roots {
		if root == None {
			continue
		}
		with = append(with, i)
		shape := &b.shapes[i]
		b.items = append(b.items[:0], candidate{i, root})
		shape.from, shape.to = 0, 1
		b.offer(i, 1, None)
	}
	for _, r := range b.known {
		b.index[r] = -1
	}
	s.start(&b.problem, len(p.Roots))
	for item, i := range with {
		s.put(i, item)
	}
	for r, at := range s.at[:b.problem.Resources()] {
		if len(at) > int(b.problem.Capacity(int32(r))) {
			for _, j := range at[1:] {
				s.group[s.of(j)] = s.of(at[0])
			}
		}
	}
	for _, i := range with {
		g := s.of(int32(i))
		s.members[g] = append(s.members[g], i)
	}
	for i := range p.Roots {
		if m := s.members[i]; len(m) > 0 {
			p.Groups = append(p.Groups, m)
			if len(m) == 1 {
				p.Alone++
			}
		}
	}
	b.rivals(p)
}
