package migrate

import "slices"

// Holder is an Aggregator's machine for one tensor, as source and as destination.
type Holder[D any] struct {
	times   Times
	me      Node
	workers int

	phase   holding
	term    Term // that it holds the tensor in, or waits for it; of an absent one, that it knows of
	version uint64
	model   D
	parts   []part[D] // by rank
	busy    bool      // Ready was said

	next Term // it gives the tensor to another one
	to   int32

	owing bool // WorkerDone
	told  bool
	tries int
}

type holding uint8

const (
	absent  holding = iota
	waiting         // for the copy
	active
	copying // its copy is on its way
	moved   // has arrived there
)

// part is what a worker has sent in this term.
type part[D any] struct {
	heard   bool
	version uint64 // of its gradient, or of the model that it wants
	push    bool
	data    D
}

// NewHolder is the machine of an Aggregator without the tensor, of a job with so many workers.
func NewHolder[D any](aggregator int32, workers int, t Times) *Holder[D] {
	return &Holder[D]{times: t, me: Node{Aggregator, aggregator}, workers: workers}
}

// Holds says whether it has the master copy, and of which version.
func (h *Holder[D]) Holds() (version uint64, ok bool) {
	return h.version, h.phase == active || h.phase == copying
}

// Gradients are those for the master copy, in the order of ranks, and the copy. They are
// complete after Ready.
func (h *Holder[D]) Gradients() (model D, gradients []D) {
	for i := range h.parts {
		gradients = append(gradients, h.parts[i].data)
	}
	return h.model, gradients
}

// Updated says what has come of the gradients of Ready: the next model.
func (h *Holder[D]) Updated(term Term, version uint64, model D, out *Output[D]) {
	if h.phase != active || !h.busy || term != h.term || version != h.version {
		return
	}
	h.version, h.model, h.busy = version+1, model, false
	for i := range h.parts {
		h.parts[i] = part[D]{heard: h.parts[i].heard}
	}
	if h.next != (Term{}) {
		h.phase, h.tries = copying, 0
		out.event(Event{Kind: Redirects, Term: h.next, Version: h.version, At: h.to})
	}
	for i := range h.parts {
		h.answer(i, out)
	}
	if h.phase == copying {
		h.copy(out)
		h.arm(out)
	}
}

// answer sends the model to a worker.
func (h *Holder[D]) answer(rank int, out *Output[D]) {
	m := Message[D]{Kind: Model, From: h.me, To: Node{Worker, int32(rank)}, Term: h.term, Version: h.version, Data: h.model}
	if h.phase == copying {
		m.Next, m.At = h.next, h.to
	}
	out.send(m)
}

func (h *Holder[D]) copy(out *Output[D]) {
	out.send(Message[D]{Kind: TensorCopy, From: h.me, To: Node{Aggregator, h.to}, Term: h.next, Version: h.version, Data: h.model})
}

func (h *Holder[D]) done(out *Output[D]) {
	out.send(Message[D]{Kind: CopyDone, From: h.me, Term: h.next, At: h.to})
}

func (h *Holder[D]) tell(k Kind, t Term, out *Output[D]) {
	out.send(Message[D]{Kind: k, From: h.me, Term: t})
}

func (h *Holder[D]) arm(out *Output[D]) {
	if h.phase == copying || h.phase == moved || h.owing {
		out.Alarm = h.times.after(h.tries)
	}
}

// reset forgets the tensor and waits for it in a term, or is done with it.
func (h *Holder[D]) reset(p holding, t Term, out *Output[D]) {
	if h.phase == active || h.phase == copying {
		out.event(Event{Kind: Gone, Term: t, Version: h.version})
	}
	*h = Holder[D]{times: h.times, me: h.me, workers: h.workers, phase: p, term: t}
	if p == waiting {
		h.parts = make([]part[D], h.workers)
	}
}

// Handle takes a message.
func (h *Holder[D]) Handle(m Message[D], out *Output[D]) {
	if m.To != h.me {
		return
	}
	switch m.Kind {
	case Pull, Push:
		if h.term.less(m.Term) {
			h.reset(waiting, m.Term, out) // the copy is on its way
		}
		if m.Term == h.term && m.From.ID >= 0 && int(m.From.ID) < len(h.parts) {
			h.request(m, out)
		}
	case TensorCopy:
		if h.term.less(m.Term) {
			h.reset(waiting, m.Term, out)
		}
		if m.Term == h.term && h.phase == waiting {
			h.take(m, out)
		}
		out.send(Message[D]{Kind: CopyAck, From: h.me, To: m.From, Term: m.Term})
	case CopyAck:
		if h.phase == copying && m.Term == h.next {
			var none D
			h.phase, h.model, h.tries = moved, none, 0
			out.event(Event{Kind: Gone, Term: h.next, Version: h.version})
			h.done(out)
			h.arm(out)
		}
	case MigrateInit:
		h.migrate(m, out)
	case Release:
		switch {
		case h.phase == moved && !m.Term.less(h.next):
			h.reset(absent, m.Term, out)
		case h.term.less(m.Term) && h.next.less(m.Term): // taken for dead once
			h.reset(absent, m.Term, out)
		case !m.Term.less(h.term):
			h.owing = false
		}
	}
}

func (h *Holder[D]) migrate(m Message[D], out *Output[D]) {
	switch {
	case h.phase == absent || h.phase == waiting || !h.term.less(m.Next) || m.At == h.me.ID:
		return
	case h.phase == active && h.next.less(m.Next):
		h.next, h.to = m.Next, m.At
	case h.phase == moved && h.next == m.Next:
		h.done(out)
		return
	}
	out.send(Message[D]{Kind: Migrating, From: h.me, Term: h.term, Next: h.next, At: h.to})
}

// request is a pull or a push in the present term.
func (h *Holder[D]) request(m Message[D], out *Output[D]) {
	rank := int(m.From.ID)
	p := &h.parts[rank]
	p.heard = true
	h.count(out)
	want := m.Version
	if m.Kind == Push {
		want++
	}
	switch h.phase {
	case waiting:
		p.version, p.push, p.data = m.Version, m.Kind == Push, m.Data
	case active:
		switch {
		case want == h.version:
			h.answer(rank, out)
		case m.Kind == Push && m.Version == h.version && !p.push:
			p.version, p.push, p.data = m.Version, true, m.Data
			h.ready(out)
		case want == h.version+1:
			out.send(Message[D]{Kind: Wait, From: h.me, To: m.From, Term: h.term, Version: h.version})
		}
	case copying:
		if want == h.version {
			h.answer(rank, out)
		}
	case moved:
		out.send(Message[D]{Kind: Moved, From: h.me, To: m.From, Term: h.term, Next: h.next, At: h.to})
	}
}

// count tells pMaster once all workers have come.
func (h *Holder[D]) count(out *Output[D]) {
	if h.told || slices.ContainsFunc(h.parts, func(p part[D]) bool { return !p.heard }) {
		return
	}
	h.told, h.owing, h.tries = true, true, 0
	h.tell(WorkerDone, h.term, out)
	h.arm(out)
}

func (h *Holder[D]) ready(out *Output[D]) {
	if h.busy || slices.ContainsFunc(h.parts, func(p part[D]) bool { return !p.push }) {
		return
	}
	h.busy = true
	out.event(Event{Kind: Ready, Term: h.term, Version: h.version})
}

// take makes a copy the master copy. Gradients that came before it are for it, or for the
// version before by workers that have not got this one.
func (h *Holder[D]) take(m Message[D], out *Output[D]) {
	h.phase, h.version, h.model = active, m.Version, m.Data
	out.event(Event{Kind: Holding, Term: h.term, Version: h.version})
	for i := range h.parts {
		p := &h.parts[i]
		if p.push && p.version == h.version {
			continue
		}
		if p.push && p.version+1 == h.version || !p.push && p.version > 0 {
			h.answer(i, out)
		}
		*p = part[D]{heard: p.heard}
	}
	h.ready(out)
}

// Timeout is the alarm.
func (h *Holder[D]) Timeout(out *Output[D]) {
	h.tries++
	switch h.phase {
	case copying:
		h.copy(out)
	case moved:
		h.done(out)
	}
	if h.owing {
		h.tell(WorkerDone, h.term, out)
	}
	h.arm(out)
}
