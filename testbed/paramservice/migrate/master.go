package migrate

import "slices"

// Master is pMaster's machine for one tensor.
type Master[D any] struct {
	times   Times
	workers int

	phase mastering
	term  Term // of the tensor at at
	was   Term // migrating: that of the source
	last  Term // the greatest one known: all new ones are greater
	epoch uint64
	at    int32   // where the tensor is, or is to be
	from  int32   // migrating: the source; -1: not known
	old   []int32 // that may hold it still, taken for dead

	reports      []report // Learning, fencing, assigning: of each worker
	copied, come bool     // migrating, assigning: CopyDone, WorkerDone
	seeder       int32
	tries        int
}

type mastering uint8

const (
	learning mastering = iota
	orphaned
	fencing
	assigning
	idle
	migrating
	failed
)

type report struct {
	ok       bool
	term     Term
	fence    Term
	at       int32
	version  uint64
	assigned bool
}

// NewMaster is the machine for a tensor of a job with so many workers, in an epoch of pMaster that
// is greater than any before. It knows nothing; Start makes it ask.
func NewMaster[D any](epoch uint64, workers int, t Times) *Master[D] {
	return &Master[D]{times: t, workers: workers, epoch: epoch, from: -1, reports: make([]report, workers)}
}

// Start asks the workers where the tensor is. If they do not know, Orphaned follows.
func (m *Master[D]) Start(out *Output[D]) {
	m.phase, m.tries = learning, 0
	m.reports = make([]report, m.workers)
	m.repeat(out)
}

// At is where the tensor is; if settled is false, it is on its way there.
func (m *Master[D]) At() (at int32, term Term, settled bool) { return m.at, m.term, m.phase == idle }

// Migrate begins to move the tensor to another Aggregator. It returns whether it does: not while
// something else is under way, or if it is there.
func (m *Master[D]) Migrate(to int32, out *Output[D]) bool {
	if m.phase != idle || to == m.at {
		return false
	}
	m.was = m.term
	m.advance()
	m.begin(m.at, to, out)
	m.repeat(out)
	return true
}

// begin is a migration that begins, or turns out to be under way.
func (m *Master[D]) begin(from, to int32, out *Output[D]) {
	m.phase, m.from, m.at = migrating, from, to
	m.copied, m.come, m.tries = false, false, 0
	out.event(Event{Kind: Moving, Term: m.term, At: to})
}

// advance makes the next term.
func (m *Master[D]) advance() {
	if m.last.Epoch < m.epoch {
		m.last = Term{Epoch: m.epoch}
	}
	m.last.Seq++
	m.term = m.last
}

// note takes note of a term that another pMaster has made.
func (m *Master[D]) note(t Term) {
	if m.last.less(t) {
		m.last = t
	}
}

// Down says that an Aggregator has crashed, or does not answer: the tensor is orphaned if it is
// there or on its way from or to there.
func (m *Master[D]) Down(aggregator int32, out *Output[D]) {
	switch m.phase {
	case idle, fencing, assigning:
		if aggregator == m.at {
			m.orphan(out)
		}
	case migrating:
		if aggregator == m.at || aggregator == m.from || m.from < 0 {
			m.orphan(out)
		}
	}
}

func (m *Master[D]) orphan(out *Output[D]) {
	m.phase = orphaned
	out.event(Event{Kind: Orphaned, Term: m.term, At: m.at})
}

// Recover puts the tensor on an Aggregator, from the newest model that a worker has: after
// Orphaned.
func (m *Master[D]) Recover(to int32, out *Output[D]) {
	if m.phase != orphaned {
		return
	}
	m.advance()
	m.old = append(m.old, m.at)
	if m.from >= 0 {
		m.old = append(m.old, m.from)
	}
	m.phase, m.at, m.from, m.tries = fencing, to, -1, 0
	m.copied, m.come = false, false
	m.reports = make([]report, m.workers)
	m.repeat(out)
}

// Fail gives up, for a reason that only the caller knows: no Aggregator is left, a worker has vanished.
func (m *Master[D]) Fail(why string, out *Output[D]) {
	if m.phase != failed {
		m.phase = failed
		out.event(Event{Kind: Failed, Term: m.term, At: m.at, Why: why})
	}
}

// repeat sends what has not been answered.
func (m *Master[D]) repeat(out *Output[D]) {
	worker := func(i int, k Kind) {
		out.send(Message[D]{Kind: k, To: Node{Worker, int32(i)}, Term: m.term, At: m.at, Seeder: m.seeder})
	}
	switch m.phase {
	case learning, fencing:
		for i := range m.reports {
			switch {
			case m.reports[i].ok:
			case m.phase == learning:
				out.send(Message[D]{Kind: Ask, To: Node{Worker, int32(i)}})
			default:
				worker(i, Fence)
			}
		}
	case assigning:
		for i := range m.reports {
			if !m.reports[i].assigned {
				worker(i, Assign)
			}
		}
		if !slices.ContainsFunc(m.reports, func(r report) bool { return !r.assigned }) {
			return // the others repeat what they have to say
		}
	case migrating:
		if m.from < 0 || m.copied {
			return
		}
		out.send(Message[D]{Kind: MigrateInit, To: Node{Aggregator, m.from}, Term: m.was, Next: m.term, At: m.at})
	default:
		return
	}
	out.Alarm = m.times.after(m.tries)
}

// Timeout is the alarm.
func (m *Master[D]) Timeout(out *Output[D]) {
	m.tries++
	if m.tries >= m.times.Attempts && m.phase != migrating {
		for i, r := range m.reports {
			if !r.ok && (m.phase == learning || m.phase == fencing) || !r.assigned && m.phase == assigning {
				m.Fail(Node{Worker, int32(i)}.String()+" does not answer", out)
				return
			}
		}
	}
	m.repeat(out)
}

// Handle takes a message.
func (m *Master[D]) Handle(msg Message[D], out *Output[D]) {
	if msg.To.Role != PMaster || m.phase == failed {
		return
	}
	rank := -1
	if msg.From.Role == Worker && msg.From.ID >= 0 && int(msg.From.ID) < m.workers {
		rank = int(msg.From.ID)
	}
	switch msg.Kind {
	case Status:
		if m.phase == learning && rank >= 0 && !m.reports[rank].ok {
			m.reports[rank] = report{ok: true, term: msg.Term, fence: msg.Next, at: msg.At, version: msg.Version}
			m.learn(out)
		}
	case Fenced:
		m.fenced(msg, rank, out)
	case Assigned:
		if m.phase == assigning && msg.Term == m.term && rank >= 0 {
			m.reports[rank].assigned = true
		}
	case Migrating:
		m.adopt(msg, out)
	case CopyDone, WorkerDone:
		m.done(msg, out)
	case Stuck:
		if m.phase == migrating && !msg.Term.less(m.was) || (m.phase == idle || m.phase == assigning) && !msg.Term.less(m.term) {
			m.note(msg.Term) // perhaps a migration of an earlier pMaster, to nobody
			m.orphan(out)
		}
	}
}

// learn makes the best of what the workers know.
func (m *Master[D]) learn(out *Output[D]) {
	low, high := m.reports[0], m.reports[0]
	lost := false
	for _, r := range m.reports {
		if !r.ok {
			return
		}
		if r.term.less(low.term) {
			low = r
		}
		if high.term.less(r.term) {
			high = r
		}
		lost = lost || r.term.less(r.fence)
		m.note(r.fence)
	}
	m.note(high.term)
	m.term, m.at = high.term, high.at
	switch {
	case lost || high.term == Term{}:
		m.orphan(out) // of a recovery that was not finished, or never assigned
	case low.term != high.term:
		m.was = low.term
		m.begin(low.at, high.at, out)
	default:
		m.phase = idle
		out.event(Event{Kind: Settled, Term: m.term, At: m.at})
	}
}

// adopt takes note of a migration that an earlier pMaster has begun. Where this one wants something
// else, the source is right: workers may be following it already.
func (m *Master[D]) adopt(msg Message[D], out *Output[D]) {
	switch {
	case m.phase == idle && m.term.less(msg.Next):
		m.was = m.term
	case m.phase == migrating && msg.Term == m.was && msg.Next != m.term:
	default:
		return
	}
	m.note(msg.Next)
	m.term = msg.Next
	m.begin(msg.From.ID, msg.At, out)
}

func (m *Master[D]) fenced(msg Message[D], rank int, out *Output[D]) {
	switch {
	case rank < 0:
	case m.phase == fencing && msg.Term == m.term:
		m.reports[rank] = report{ok: true, version: msg.Version}
		best := 0
		for i, r := range m.reports {
			if !r.ok {
				return
			}
			if r.version > m.reports[best].version {
				best = i
			}
		}
		m.phase, m.seeder, m.tries = assigning, int32(best), 0
		m.repeat(out)
	case m.phase == assigning && msg.Term == m.term:
		m.repeat(out)
	case m.phase == idle && m.term.less(msg.Term), m.phase == migrating && m.was.less(msg.Term):
		// By an earlier pMaster, late.
		m.note(msg.Term)
		m.orphan(out)
	}
}

// done is one of the two notifications that end an assignment.
func (m *Master[D]) done(msg Message[D], out *Output[D]) {
	release := func(to Node, t Term) { out.send(Message[D]{Kind: Release, To: to, Term: t}) }
	switch c := msg.Term.Compare(m.term); {
	case m.phase == learning || m.phase == orphaned:
		return
	case c < 0 || c == 0 && m.phase == idle:
		release(msg.From, msg.Term)
		return
	case c > 0 && (m.phase == idle || m.phase == migrating):
		// A migration that an earlier pMaster has begun.
		if m.phase == idle {
			m.was = m.term
		}
		m.note(msg.Term)
		m.term = msg.Term
		switch {
		case msg.Kind == WorkerDone:
			m.begin(-1, msg.From.ID, out)
		case msg.From.Role == Aggregator:
			m.begin(msg.From.ID, msg.At, out)
		}
	case c > 0:
		return
	}
	if msg.Kind == CopyDone {
		m.copied = true
		if msg.From.Role == Aggregator {
			m.from = msg.From.ID
		}
	} else {
		m.come = true
		m.at = msg.From.ID
	}
	if m.copied && m.come && (m.phase == migrating || m.phase == assigning) {
		source := Node{Worker, m.seeder}
		if m.phase == migrating {
			source = Node{Aggregator, m.from}
		}
		m.phase = idle
		out.event(Event{Kind: Settled, Term: m.term, At: m.at})
		release(source, m.term)
		release(Node{Aggregator, m.at}, m.term)
		for _, a := range m.old {
			if a != m.at {
				release(Node{Aggregator, a}, m.term)
			}
		}
		m.old = m.old[:0]
	}
}
