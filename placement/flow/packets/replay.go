package packets

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
)

// Schedule is when each job of a Network sends, and when what they do is counted. All times are in
// seconds, of one clock.
type Schedule struct {
	Jobs   []Times // of each job
	Counts []Count // in order; none begins before the one before has ended
	Lag    Lag
}

// Lag is how late those are who handle packets: workers and parameter servers that send, and switches, of each of
// their ports. Delays that are given contain what that is in the mean.
type Lag struct {
	Rest float64 // s between two looks at what there is to do, at least
	// Wake is the median of what it takes until a look comes about, s. It is drawn for each look: ten times as
	// much is exceeded once in a hundred, as of processes that share few processors.
	Wake float64
	// Trip is by how much a job's round trips may be longer or shorter than they are said to be, as a part of that, 0 to
	// 1: of jobs that share a pool, one whose aggregators come back a little later than the others' finds fewer.
	Trip float64
	// Hitch is for how long one of them stands still, once, at any time of a run, s: what a setting comes to then that has
	// more than one state. 0: nobody does.
	Hitch float64
}

// Of wakes: the mean over the median, the most over it, and by what factor the median of a run may differ from Lag.Wake.
const (
	meanWake  = math.Pi / 2
	mostWakes = 50
	wakeful   = 3
)

// looker is a process that looks now and then for what there is to do. The zero looker looks all the time.
type looker struct {
	rest, wake  float64
	last        float64
	still, goes float64 // when it stands still, and goes on
}

// look is when what has come at a time is looked at, no earlier than what came before.
func (m *model) look(l *looker, at float64) float64 {
	if l.still <= at && at < l.goes {
		at = l.goes
	}
	if l.rest == 0 && l.wake == 0 {
		return at
	}
	if at > l.last {
		l.last = max(at, l.last+l.rest)
		if l.wake > 0 {
			l.last += l.wake * min(mostWakes, math.Sqrt(1/(1-fraction(m.random()))-1))
		}
	}
	return l.last
}

// within makes a looker no later, in the mean, than a delay that contains it.
func (l *looker) within(delay float64) { l.wake = min(l.wake, delay/meanWake) }

// without is a delay but for what the looker is late in the mean.
func (l *looker) without(delay float64) float64 { return delay - meanWake*l.wake }

// lag draws how late everybody is in a run. Streams and rings are not sent by such processes.
func (m *model) lag() {
	lag := m.schedule.Lag
	lag.Wake *= math.Pow(wakeful, 2*fraction(m.random())-1)
	late := looker{rest: lag.Rest, wake: lag.Wake}
	for i := range m.switches {
		m.switches[i] = late
	}
	for ji := range m.jobs {
		j := &m.jobs[ji]
		long := 1 + lag.Trip*(2*fraction(m.random())-1)
		j.reply = long * j.Answer
		for k := range j.nodes {
			delay := long * j.Nodes[k].Delay
			m.paths[j.nodes[k].up].delay, m.paths[j.nodes[k].down].delay = delay, delay
			j.nodes[k].looker = late
		}
	}
	sent := func(j *job, do func(p *path)) { // by switches of a job
		for k := range j.nodes {
			nd := &j.nodes[k]
			if nd.parent == None {
				continue
			}
			if up := &m.paths[nd.up]; len(nd.children) > 0 {
				up.looker = m.looker(nd)
				do(up)
			}
			if parent := &j.nodes[nd.parent]; parent.parent != None || j.Kind == Synchronous {
				down := &m.paths[nd.down]
				down.looker = m.looker(parent)
				do(down)
			}
		}
	}
	for _, do := range []func(p *path){
		func(p *path) { p.looker.within(p.delay) },
		func(p *path) { p.delay = p.looker.without(p.delay) },
	} {
		for ji := range m.jobs {
			if j := &m.jobs[ji]; j.Kind < Stream {
				sent(j, do)
			}
		}
	}
	for ji := range m.jobs {
		j := &m.jobs[ji]
		if j.Kind >= Stream {
			continue
		}
		j.ps = late
		j.ps.within(j.reply)
		j.reply = j.ps.without(j.reply)
		for w := range j.workers {
			k := &j.workers[w]
			up := &m.paths[j.nodes[k.node].up]
			k.looker = late
			k.looker.within(up.delay)
			up.delay = k.looker.without(up.delay)
		}
	}
}

// hitch has somebody stand still once before a time, as Lag.Hitch says.
func (m *model) hitch(until float64) {
	if m.schedule.Lag.Hitch == 0 {
		return
	}
	var all []*looker
	for ji := range m.jobs {
		j := &m.jobs[ji]
		if j.Kind >= Stream {
			continue
		}
		for w := range j.workers {
			all = append(all, &j.workers[w].looker)
		}
		for k := range j.nodes {
			if nd := &j.nodes[k]; nd.parent != None && len(nd.children) > 0 {
				all = append(all, m.looker(nd))
			}
		}
	}
	if len(all) > 0 {
		l := all[min(int(fraction(m.random())*float64(len(all))), len(all)-1)]
		l.still = until * fraction(m.random())
		l.goes = l.still + m.schedule.Lag.Hitch
	}
}

// looker is that of a node that is a switch.
func (m *model) looker(nd *node) *looker {
	if nd.sw != None {
		return &m.switches[nd.sw]
	}
	return &nd.looker
}

// Times are when a job sends.
type Times struct {
	// Begin is when the last of its workers opens its window, or some time that is not known, but no
	// more than Within, before that.
	Begin, Within float64
	End           float64 // nothing new is sent from then on; what is under way is answered
}

// Count is a time in which is counted.
type Count struct{ From, To float64 }

// Cover says whether a job sends in all of a count.
func (t Times) Cover(c Count) bool { return t.Begin <= c.From && t.End >= c.To }

// Validate reports the first thing in the schedule of so many jobs that makes no sense.
func (s *Schedule) Validate(jobs int) error {
	if len(s.Jobs) != jobs {
		return fmt.Errorf("a schedule of %d jobs for %d", len(s.Jobs), jobs)
	}
	for i, t := range s.Jobs {
		if !(t.Begin >= 0 && t.Within >= 0 && t.End >= t.Begin) {
			return fmt.Errorf("job %d: %+v", i, t)
		}
	}
	if l := s.Lag; !(l.Rest >= 0 && l.Wake >= 0 && l.Trip >= 0 && l.Trip <= 1 && l.Hitch >= 0) {
		return fmt.Errorf("a lag of %+v", s.Lag)
	}
	last := 0.0
	for i, c := range s.Counts {
		if !(c.From >= last && c.To > c.From) {
			return fmt.Errorf("count %d: from %v s to %v s, after %v s", i, c.From, c.To, last)
		}
		last = c.To
	}
	return nil
}

// startup is how many PSNs workers have sent before their window opens, one by one: a barrier, and a probe
// whose result opens it.
const startup = 2

// Replay follows n from empty queues and memories as jobs come and go, and says what is counted at each of the
// schedule's times. Offsets are those that jobs have; what is not known is drawn in each run: when within
// Times.Within a job begins, and where in a block its PSNs are sent. Limits.Events are those of each of the first
// minRuns runs. There are manyRuns runs where so many events, over all runs, have room for them, and more until
// means are known; where runs differ there are rareRuns, for which there is room of twice as many. It is
// deterministic. ok is false where a run takes more events, or some job cannot send, or once ctx has ended. What remains of a job without a
// result in a time is 0, and its shares are 1.
func Replay(ctx context.Context, n *Network, s Schedule, l Limits) (out []*Result, ok bool) {
	if s.Validate(len(n.Jobs)) != nil || len(s.Counts) == 0 {
		return nil, false
	}
	models := make([]*model, minRuns) // of runs that go on side by side
	for i := range models {
		models[i] = newModel(n)
		models[i].schedule = &s
	}
	if span := models[0].span(); span == 0 || math.IsInf(span, 0) {
		return nil, false
	}
	all, each := accumulators(n, s), make([][]*Result, len(s.Counts))
	used := 0
	more := func(runs int) bool {
		if runs == 0 {
			return true
		}
		worst, differ := 0.0, 0.0
		for i := range all {
			worst, differ = max(worst, all[i].worst()), max(differ, all[i].differ())
		}
		next := used + used/runs*minRuns
		return next <= l.Events && (runs < manyRuns || worst > l.Error) ||
			next <= 2*l.Events && runs < rareRuns && differ > alike
	}
	for runs := 0; more(runs); runs += minRuns {
		type done struct {
			counts []accumulator
			events int
			ok     bool
		}
		var side [minRuns]done
		var g sync.WaitGroup
		for i, m := range models {
			g.Go(func() {
				m.reset(mix(l.Seed ^ uint64(runs+i)*golden))
				d := &side[i]
				d.counts = accumulators(n, s)
				d.events, d.ok = m.replay(ctx, l.Events, d.counts)
			})
		}
		g.Wait()
		for _, d := range side {
			if used += d.events; !d.ok {
				return nil, false
			}
			for i := range all {
				all[i].merge(&d.counts[i])
				each[i] = append(each[i], d.counts[i].result())
			}
		}
	}
	for i := range all {
		r := all[i].result()
		r.Events, r.Each = used, each[i]
		out = append(out, r)
	}
	return out, true
}

// accumulators are those of each count.
func accumulators(n *Network, s Schedule) []accumulator {
	out := make([]accumulator, len(s.Counts))
	for i := range out {
		out[i].init(n, len(n.Links))
	}
	return out
}

// mark is a time at which something happens that is no packet's event.
type mark struct {
	at float64
	do func()
}

// replay is one run of a schedule: it adds what is counted to accs, and reports the events, and false when
// there were too few or ctx ended.
func (m *model) replay(ctx context.Context, events int, accs []accumulator) (int, bool) {
	m.lag()
	ahead := 0.0 // everything is later by that: what starts the first job is under way before it begins
	for ji, t := range m.schedule.Jobs {
		ahead = max(ahead, m.far(&m.jobs[ji])+t.Within-t.Begin)
	}
	var marks []mark // at the same time counts end before jobs do
	for i, c := range m.schedule.Counts {
		marks = append(marks,
			mark{ahead + c.From, func() {
				m.count(m.now, c.To-c.From)
				m.weight = 1
			}},
			mark{ahead + c.To, func() {
				accs[i].add(m)
				m.weight = 0
			}})
	}
	for ji := range m.jobs {
		j, t := &m.jobs[ji], m.schedule.Jobs[ji]
		m.queue.set(j.server, ahead+t.Begin-t.Within*fraction(m.random())-m.far(j))
		marks = append(marks, mark{ahead + t.End, func() { m.stop(j) }})
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return cmp.Compare(a.at, b.at) })
	last := ahead + m.schedule.Counts[len(accs)-1].To
	m.hitch(last)
	for n := range events {
		if n%glance == 0 && ctx.Err() != nil {
			return n, false
		}
		id, at := m.queue.first()
		for len(marks) > 0 && marks[0].at <= at {
			m.now = marks[0].at
			marks[0].do()
			if marks = marks[1:]; m.now >= last {
				return n, true
			}
			id, at = m.queue.first()
		}
		m.now = at
		m.step(id)
	}
	return events, false
}

// stop has workers of a job send nothing new, but for PSNs that one of them has sent: all stop at the same, or
// switches would wait for the rest of a sum for ever. A ring just stops.
func (m *model) stop(j *job) {
	j.end = 0
	if j.Kind != Ring {
		for w := range j.workers {
			j.end = max(j.end, j.workers[w].next)
		}
	}
	for w := range j.workers {
		if k := &j.workers[w]; k.next >= j.end {
			m.queue.set(k.entity, math.Inf(1))
		}
	}
}

// far is how long the farthest worker of a job waits for the multicast that starts it.
func (m *model) far(j *job) (most float64) {
	if j.Kind >= Stream {
		return 0
	}
	for w := range j.workers {
		most = max(most, m.near(j, &j.workers[w]))
	}
	return most
}

// near is how long a worker of a job waits for the multicast that starts it.
func (m *model) near(j *job, w *worker) (t float64) {
	for v := w.node; v != None; v = j.nodes[v].parent {
		t += j.Nodes[v].Delay
		if l := m.paths[j.nodes[v].down].link; l != None {
			t += j.Bits / m.links[l].rate
		}
	}
	return t
}
