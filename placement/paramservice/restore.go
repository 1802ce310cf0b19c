package paramservice

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Kept is a job that a pMaster finds when it takes over from one that has crashed.
type Kept struct {
	Name    string
	Servers int
	At      []int // Aggregator of each tensor; None: it is lost
	Profile *Job  // as measured alone; nil: not yet
	Reverts int   // how often it was assigned anew by what was measured
}

// Restore begins with jobs and Aggregators that are there already, instead of none. Tensors stay
// where they are, so that what was packed more tightly than planned stays so until it is
// measured. Jobs that share Aggregators come into the same cluster. What is lost is placed anew;
// jobs for which there is no room are stranded, as by Lost. Aggregators without tensors are
// released. The master is to be new, and all ids are less than MasterOptions.First. Errors wrap
// ErrJob or ErrKnown, and nothing has changed then.
func (m *Master) Restore(jobs []Kept, aggregators []int) (change Change, stranded []string, err error) {
	there := map[int]bool{}
	for _, id := range aggregators {
		if id < 0 || id >= m.o.First {
			return change, nil, fmt.Errorf("Aggregator %d, and new ones begin with %d: %w", id, m.o.First, ErrJob)
		}
		there[id] = true
	}
	if len(m.jobs) > 0 {
		return change, nil, fmt.Errorf("restore a master with %d jobs: %w", len(m.jobs), ErrKnown)
	}
	names := map[string]bool{}
	for _, k := range jobs {
		if names[k.Name] {
			return change, nil, fmt.Errorf("job %s: %w", k.Name, ErrKnown)
		}
		names[k.Name] = true
		if err := k.check(); err != nil {
			return change, nil, err
		}
	}
	m.count = len(there)
	users := map[int]int{} // jobs of each Aggregator
	at := make([][]int, len(jobs))
	for i, k := range jobs {
		at[i] = slices.Clone(k.At)
		seen := map[int]bool{}
		for task, id := range at[i] {
			if !there[id] {
				at[i][task] = None
			} else if !seen[id] {
				seen[id] = true
				users[id]++
			}
		}
	}
	group := together(jobs, at)
	clusters := map[int]*Cluster{}
	for i, k := range jobs {
		m.seq++
		j := &managed{name: k.Name, seq: m.seq, servers: k.Servers, reverts: k.Reverts, at: at[i], watch: newWatch()}
		m.jobs[k.Name] = j
		if k.Profile == nil {
			continue
		}
		p := *k.Profile
		p.Name, p.Servers, p.Tasks = k.Name, k.Servers, slices.Clone(p.Tasks)
		j.profile = &p
		c := clusters[group[i]]
		if c == nil {
			c = m.home(i, group, at)
			clusters[group[i]] = c
		}
		c.adopt(p, at[i], k.Reverts > 0)
		j.cluster, j.at = c, nil
	}
	for _, c := range m.clusters {
		for _, a := range c.aggs {
			a.fit(m.o.LossLimit)
		}
	}
	for i, k := range jobs {
		j := m.jobs[k.Name]
		if k.Profile == nil {
			m.lodge(j, users, &change, &stranded)
		} else if slices.Contains(at[i], None) {
			c := j.cluster
			if !c.complete(c.jobs[k.Name], m.room(), &change) {
				stranded = append(stranded, k.Name)
				_, _ = c.Remove(k.Name) // it is there
				delete(m.jobs, k.Name)
			}
		}
	}
	for id := range there {
		if !m.uses(id) {
			change.Released = append(change.Released, id)
			m.count--
		}
	}
	for _, c := range slices.Clone(m.clusters) {
		for _, id := range c.Release(0).Released {
			m.count--
			change.Released = append(change.Released, id)
		}
	}
	m.clusters = slices.DeleteFunc(m.clusters, func(c *Cluster) bool { return c.Size() == 0 })
	slices.Sort(change.Released)
	return change, stranded, nil
}

func (k *Kept) check() error {
	switch {
	case k.Name == "" || k.Servers < 1 || len(k.At) == 0 || k.Reverts < 0:
		return fmt.Errorf("job %q: %w: %d servers, %d tensors, assigned anew %d times", k.Name, ErrJob, k.Servers, len(k.At), k.Reverts)
	case k.Profile == nil:
		return nil
	case len(k.Profile.Tasks) != len(k.At):
		return fmt.Errorf("job %s: %w: %d tensors, profiled %d", k.Name, ErrJob, len(k.At), len(k.Profile.Tasks))
	}
	p := *k.Profile
	p.Name, p.Servers = k.Name, k.Servers
	return p.Check()
}

// together numbers the groups of profiled jobs that share Aggregators, each by its first job.
func together(jobs []Kept, at [][]int) []int {
	group := make([]int, len(jobs))
	first := map[int]int{} // job of an Aggregator
	for i := range jobs {
		group[i] = i
		if jobs[i].Profile == nil {
			continue
		}
		for _, id := range at[i] {
			k, ok := first[id]
			if !ok && id != None {
				first[id] = i
			}
			if !ok || group[k] == group[i] {
				continue
			}
			from, to := max(group[k], group[i]), min(group[k], group[i])
			for n := range i + 1 {
				if group[n] == from {
					group[n] = to
				}
			}
		}
	}
	return group
}

// home is a cluster for a group: the first one that has room for its Aggregators, or a new one.
func (m *Master) home(job int, group []int, at [][]int) *Cluster {
	need := map[int]bool{}
	for i := range group {
		if group[i] == group[job] {
			for _, id := range at[i] {
				need[id] = true
			}
		}
	}
	delete(need, None)
	found := slices.IndexFunc(m.clusters, func(c *Cluster) bool { return c.room() >= len(need) })
	if found < 0 {
		found = len(m.clusters)
		m.clusters = append(m.clusters, NewCluster(m.o.Options, m.allocate))
	}
	c := m.clusters[found]
	for _, id := range slices.Sorted(maps.Keys(need)) { // at once, or the next group is given the same room
		c.grow(id, &Change{})
	}
	return c
}

// adopt takes a job as it is. Cycles follow: see fit.
func (c *Cluster) adopt(j Job, at []int, pinned bool) {
	p := newPlaced(j)
	c.seq++
	p.seq, p.pinned = c.seq, pinned
	c.jobs[j.Name] = p
	for task, id := range at {
		if id == None {
			continue
		}
		a := c.aggs[c.index(id)] // of the group's, which home has brought
		a.add(p, task, max(a.cycle, j.Iteration))
	}
}

// fit finds a cycle for what an Aggregator has: the shortest one in which everybody is within the
// limit and everything has room. Without any it is the longest iteration.
func (a *aggregator) fit(limit float64) {
	var longest time.Duration
	for _, l := range a.loads {
		longest = max(longest, l.job.Iteration)
	}
	cycles := []time.Duration{longest}
	for _, l := range a.loads {
		d := l.job.Iteration
		for c := (longest + d - 1) / d * d; c <= 16*longest; c += d {
			if cycles = append(cycles, c); len(cycles) > 1000 {
				break
			}
		}
	}
	slices.Sort(cycles)
	for _, c := range cycles {
		// Up to the next one nobody runs more often, so that one that is too short for the work may be longer.
		c = max(c, a.runs(c))
		if work, ok := a.at(c, limit); ok && work <= c {
			a.cycle, a.work = c, work
			return
		}
	}
	a.cycle = longest
	a.work = a.runs(longest)
}

// runs is the work in a cycle of some length, whatever jobs lose.
func (a *aggregator) runs(cycle time.Duration) time.Duration {
	work, _ := a.at(cycle, 1)
	return work
}

// complete places those tensors of a job that have no place.
func (c *Cluster) complete(p *placed, room int, change *Change) bool {
	pl := c.plan(p, 0, min(room, c.room()), nil)
	pl.narrow = true
	for _, task := range p.order {
		if p.at[task] == None && !pl.place(task) {
			return false
		}
	}
	return c.commit(pl, change) == nil
}

// lodge gives a job that is not profiled yet the Aggregators that it has as temporary ones, if nobody
// else has them, or new ones.
func (m *Master) lodge(j *managed, users map[int]int, change *Change, stranded *[]string) {
	own := map[int]bool{}
	alone := true
	for _, id := range j.at {
		if id != None {
			own[id] = true
			alone = alone && users[id] == 1
		}
	}
	if alone && len(own) > 0 {
		j.temp = slices.Sorted(maps.Keys(own))
	} else if fresh, ok := m.allocate(min(j.servers, m.room())); ok && len(fresh) > 0 {
		j.temp = fresh
		change.Allocated = append(change.Allocated, fresh...)
	} else {
		*stranded = append(*stranded, j.name)
		delete(m.jobs, j.name)
		return
	}
	for task, id := range j.at {
		if to := j.temp[task%len(j.temp)]; !slices.Contains(j.temp, id) {
			j.at[task] = to
			change.Moves = append(change.Moves, Move{j.name, task, id, to})
		}
	}
}

// uses says whether an Aggregator is in a cluster or lent to a job.
func (m *Master) uses(id int) bool {
	for _, c := range m.clusters {
		if c.index(id) >= 0 {
			return true
		}
	}
	for _, j := range m.jobs {
		if slices.Contains(j.temp, id) {
			return true
		}
	}
	return false
}
