package commit

import (
	"cmp"
	"slices"
)

// Group is the controller's machine for one sharing group.
type Group struct {
	times Times
	body  func(ready []Ready) string

	jobs  []member
	dirty bool // the hosts' state is not what it should be
	quiet bool // the interval after an abort

	txn      Txn    // the last one
	floor    uint64 // the next one comes after it
	phase    phase
	commit   bool
	state    string // that is committed
	parts    []part
	attempts int
}

type phase uint8

const (
	idle phase = iota
	preparing
	finishing
)

// Ready is a host that is locked.
type Ready struct {
	Node
	Run   uint64
	Index uint64 // of the operation that it begins next, equal for all hosts of a job
	About string // what it told of itself
}

// member is a job of the group.
type member struct {
	job     uint32
	runs    []uint64 // of each host; 0: not heard yet
	heard   []bool   // since the job was taken out
	out     bool
	strikes int // times it was taken out in this run
}

// part is a host that takes part in a transaction.
type part struct {
	Ready
	acked, done bool
}

// NewGroup is the machine of a group without jobs, in an epoch of the controller, which is
// greater than any before. Body makes the state from the hosts that are locked, in order of
// job and rank.
func NewGroup(epoch uint64, t Times, body func([]Ready) string) *Group {
	return &Group{times: t, body: body, txn: Txn{Epoch: epoch}}
}

// Last is the last transaction.
func (g *Group) Last() Txn { return g.txn }

// After makes the next transaction come after one of another group of the same controller:
// to be called when a job comes from there.
func (g *Group) After(t Txn) {
	if t.Epoch == g.txn.Epoch {
		g.floor = max(g.floor, t.Seq)
	}
}

// Idle says whether nothing is under way and nothing remains to be done.
func (g *Group) Idle() bool { return g.phase == idle && !g.dirty }

// Set says which jobs are in the group, and how many hosts each has. A job that was there
// before stays as it is. New ones are in it once all of their hosts have been heard.
func (g *Group) Set(hosts map[uint32]int, out *Output) {
	g.jobs = slices.DeleteFunc(g.jobs, func(m member) bool {
		if hosts[m.job] == len(m.runs) {
			return false
		}
		g.dirty = true
		return true
	})
	for job, n := range hosts {
		if job != 0 && n > 0 && g.member(job) == nil {
			g.jobs = append(g.jobs, member{job: job, runs: make([]uint64, n), heard: make([]bool, n)})
		}
	}
	slices.SortFunc(g.jobs, func(a, b member) int { return cmp.Compare(a.job, b.job) })
	if g.phase == preparing && slices.ContainsFunc(g.parts, func(p part) bool { return g.member(p.Job) == nil }) {
		g.decide(false, Left, out)
	}
	g.begin(out)
}

// Change says that the state is not what it should be any more: a transaction begins, or
// one more after the one that is under way.
func (g *Group) Change(out *Output) {
	g.dirty = true
	g.begin(out)
}

// In are the jobs that take part in transactions now.
func (g *Group) In() []uint32 {
	var in []uint32
	for i := range g.jobs {
		if g.jobs[i].in() {
			in = append(in, g.jobs[i].job)
		}
	}
	return in
}

func (m *member) in() bool {
	for _, r := range m.runs {
		if r == 0 || r != m.runs[0] {
			return false
		}
	}
	return !m.out
}

func (g *Group) member(job uint32) *member {
	for i := range g.jobs {
		if g.jobs[i].job == job {
			return &g.jobs[i]
		}
	}
	return nil
}

func (g *Group) begin(out *Output) {
	if g.phase != idle || g.quiet || !g.dirty {
		return
	}
	g.parts = g.parts[:0]
	for i := range g.jobs {
		if m := &g.jobs[i]; m.in() {
			for rank, run := range m.runs {
				g.parts = append(g.parts, part{Ready: Ready{Node: Node{m.job, uint32(rank)}, Run: run}})
			}
		}
	}
	g.dirty = false
	if len(g.parts) == 0 {
		return
	}
	g.txn.Seq = max(g.txn.Seq, g.floor) + 1
	g.phase, g.attempts = preparing, 0
	out.event(Event{Kind: Begun, Txn: g.txn})
	g.repeat(out)
}

// repeat sends what has not been answered, and looks again later.
func (g *Group) repeat(out *Output) {
	for i := range g.parts {
		g.ask(&g.parts[i], out)
	}
	g.attempts++
	out.alarm(Timer{Kind: Resend, Txn: g.txn}, g.times.Resend)
}

func (g *Group) ask(p *part, out *Output) {
	m := Message{To: p.Node, Run: p.Run, Txn: g.txn}
	switch {
	case p.done:
		return
	case g.phase == finishing && g.commit:
		m.Kind, m.Body = Commit, g.state
	case g.phase == finishing:
		m.Kind = Abort
	case p.acked:
		return
	default:
		m.Kind = Prepare
	}
	out.send(m)
}

// decide ends the first phase.
func (g *Group) decide(commit bool, why Reason, out *Output) {
	sent := g.attempts
	g.phase, g.commit, g.attempts = finishing, commit, 0
	e := Event{Kind: Aborted, Txn: g.txn, Why: why, Sent: sent}
	if commit {
		e.Kind = Committed
		for i := range g.parts {
			if n := len(e.Jobs); n == 0 || e.Jobs[n-1] != g.parts[i].Job {
				e.Jobs = append(e.Jobs, g.parts[i].Job)
			}
		}
		ready := make([]Ready, len(g.parts))
		for i := range g.parts {
			ready[i] = g.parts[i].Ready
		}
		g.state = g.body(ready)
	} else {
		g.dirty = true
	}
	out.event(e)
	g.repeat(out)
	g.close(out)
}

// close ends the second phase, once all have answered who are waited for.
func (g *Group) close(out *Output) {
	if g.phase == idle || slices.ContainsFunc(g.parts, func(p part) bool { return !p.done }) {
		return
	}
	out.event(Event{Kind: Closed, Txn: g.txn, Sent: g.attempts})
	g.phase, g.state = idle, ""
	if g.dirty {
		g.quiet = true
		out.alarm(Timer{Kind: Again, Txn: g.txn}, g.times.Interval)
	}
}

// drop no longer waits for a host, and takes its job out.
func (g *Group) drop(p *part, out *Output) {
	p.done = true
	if m := g.member(p.Job); m != nil && int(p.Rank) < len(m.runs) && m.runs[p.Rank] == p.Run { // another job may have its number by now
		g.expel(m, p.Rank, out)
	}
}

// Suspect says that a host has not reported for too long: its job is taken out.
func (g *Group) Suspect(n Node, out *Output) {
	m := g.member(n.Job)
	if m == nil || !m.in() || int(n.Rank) >= len(m.runs) {
		return
	}
	g.expel(m, n.Rank, out)
	if i := slices.IndexFunc(g.parts, func(p part) bool { return p.Node == n && p.Run == m.runs[n.Rank] }); i >= 0 {
		if g.phase == preparing {
			g.decide(false, Silent, out)
		}
		g.parts[i].done = true
		g.close(out)
	}
	g.begin(out)
}

// expel takes a job out because of a host.
func (g *Group) expel(m *member, rank uint32, out *Output) {
	if m.out {
		return
	}
	m.out = true
	clear(m.heard)
	g.dirty = true
	out.event(Event{Kind: Out, Node: Node{m.job, rank}, Run: m.runs[rank], Txn: g.txn, Why: Silent})
	m.later(g.times, out)
}

func (m *member) later(t Times, out *Output) {
	out.alarm(Timer{Kind: Readmit, Job: m.job}, backoff(t.Interval, m.strikes, 1000*t.Interval))
	m.strikes++
}

// Handle takes a message.
func (g *Group) Handle(m Message, out *Output) {
	if (m.To != Node{}) {
		return
	}
	g.hear(m, out)
	i := slices.IndexFunc(g.parts, func(p part) bool { return p.Node == m.From && p.Run == m.Run })
	if g.phase == idle || m.Txn != g.txn || i < 0 || m.Kind == Report {
		return
	}
	p := &g.parts[i]
	switch {
	case g.phase == preparing && m.Kind == Ack:
		p.acked, p.Index, p.About = true, m.Index, m.Body
		for i := range g.parts {
			if !g.parts[i].acked {
				return
			}
		}
		for i := 1; i < len(g.parts); i++ {
			if a, b := g.parts[i-1], g.parts[i]; a.Job == b.Job && a.Index != b.Index {
				g.decide(false, Differ, out)
				return
			}
		}
		g.decide(true, None, out)
	case g.phase == preparing && (m.Kind == Busy || m.Kind == Done):
		g.decide(false, Occupied, out)
	case g.phase == finishing && m.Kind == Ack:
		g.ask(p, out)
	case g.phase == finishing && m.Kind == Done:
		if g.commit && !m.Applied {
			g.dirty = true
		}
		p.done = true
		g.close(out)
	}
}

// hear notes that a host is there.
func (g *Group) hear(m Message, out *Output) {
	j := g.member(m.From.Job)
	if j == nil || int(m.From.Rank) >= len(j.runs) || m.Run < j.runs[m.From.Rank] || m.Run == 0 {
		return
	}
	j.heard[m.From.Rank] = true
	old := j.runs[m.From.Rank]
	if old == m.Run {
		return
	}
	if old != 0 && j.in() {
		out.event(Event{Kind: Out, Node: m.From, Run: old, Txn: g.txn, Why: Restarted})
		g.dirty = true
	}
	j.runs[m.From.Rank] = m.Run
	j.out, j.strikes = false, 0
	switch i := slices.IndexFunc(g.parts, func(p part) bool { return p.Node == m.From && p.Run == old }); {
	case i < 0 || old == 0:
	case g.phase == preparing:
		g.parts[i].done = true
		g.decide(false, Restarted, out)
	case g.phase == finishing:
		g.parts[i].done = true
		g.close(out)
	}
	g.admit(j, out)
}

// admit lets a job into transactions, if nothing is in its way any more.
func (g *Group) admit(j *member, out *Output) {
	if j.in() {
		out.event(Event{Kind: In, Node: Node{Job: j.job}, Run: j.runs[0], Txn: g.txn})
		g.dirty = true
	}
	g.begin(out)
}

// Timeout takes a timer that has run out.
func (g *Group) Timeout(t Timer, out *Output) {
	switch t.Kind {
	case Resend:
		if t.Txn != g.txn || g.phase == idle {
			return
		}
		if g.attempts < g.times.Attempts {
			g.repeat(out)
			return
		}
		var silent []*part
		for i := range g.parts {
			if p := &g.parts[i]; !p.done && (g.phase == finishing || !p.acked) {
				silent = append(silent, p)
			}
		}
		if g.phase == preparing {
			g.decide(false, Silent, out)
		}
		for _, p := range silent {
			g.drop(p, out)
		}
		g.close(out)
	case Again:
		if g.quiet && t.Txn == g.txn {
			g.quiet = false
			g.begin(out)
		}
	case Readmit:
		j := g.member(t.Job)
		if j == nil || !j.out {
			return
		}
		if slices.Contains(j.heard, false) {
			m := *j
			j.later(g.times, out)
			j.strikes = m.strikes // silence is not held against it twice
			return
		}
		j.out = false
		g.admit(j, out)
	}
}
