package migrate

// Agent is a worker's machine for one tensor: its row of the table of Aggregators, and the last
// model.
type Agent[D any] struct {
	times Times
	me    Node

	term  Term // of the row of the table
	at    int32
	fence Term // older terms are not obeyed; greater than term: it waits to be told

	version  uint64 // 0: none yet
	model    D
	gradient D // for it
	pushed   bool
	tries    int

	// What it seeds another Aggregator with.
	seeding bool // until CopyAck
	owing   bool // CopyDone, until Release
	copy    Message[D]
}

// NewAgent is the machine of a worker without a model; rank 0 has the initial value, which is
// version 1.
func NewAgent[D any](rank int32, initial D, t Times) *Agent[D] {
	a := &Agent[D]{times: t, me: Node{Worker, rank}}
	if rank == 0 {
		a.version, a.model = 1, initial
	}
	return a
}

// Model is the last one that was pulled.
func (a *Agent[D]) Model() (version uint64, model D) { return a.version, a.model }

// At is the Aggregator that the tensor is at, as far as the worker knows.
func (a *Agent[D]) At() (term Term, at int32) { return a.term, a.at }

// Busy says whether a gradient has been pushed and the next model has not come.
func (a *Agent[D]) Busy() bool { return a.pushed }

// Push sends a gradient for the last model, and asks for the next one. It is kept until that comes.
// Without a model, or a second time for one, it does nothing.
func (a *Agent[D]) Push(gradient D, out *Output[D]) {
	if a.version == 0 || a.pushed {
		return
	}
	a.gradient, a.pushed, a.tries = gradient, true, 0
	a.ask(out)
	a.arm(out)
}

func (a *Agent[D]) fenced() bool { return a.term.less(a.fence) }

// wants says whether the worker waits for a model.
func (a *Agent[D]) wants() bool {
	return (a.pushed || a.version == 0) && a.term != Term{} && !a.fenced()
}

// ask asks for the next model.
func (a *Agent[D]) ask(out *Output[D]) {
	if !a.wants() {
		return
	}
	m := Message[D]{Kind: Pull, From: a.me, To: Node{Aggregator, a.at}, Term: a.term, Version: 1}
	if a.pushed {
		m.Kind, m.Version, m.Data = Push, a.version, a.gradient
	}
	out.send(m)
}

func (a *Agent[D]) arm(out *Output[D]) {
	if a.wants() || a.seeding || a.owing || a.fenced() {
		out.Alarm = a.times.after(a.tries)
	}
}

func (a *Agent[D]) tell(m Message[D], out *Output[D]) {
	m.From = a.me
	out.send(m)
}

// Handle takes a message.
func (a *Agent[D]) Handle(m Message[D], out *Output[D]) {
	if m.To != a.me {
		return
	}
	switch m.Kind {
	case Model:
		if m.Term != a.term || a.fenced() || m.Version <= a.version || a.version > 0 && m.Version != a.version+1 {
			return
		}
		var none D
		a.version, a.model, a.gradient, a.pushed, a.tries = m.Version, m.Data, none, false, 0
		a.seeding = false // whoever sends models has one
		a.move(m)
		out.event(Event{Kind: Pulled, Term: a.term, Version: a.version, At: a.at})
	case Moved:
		if m.Term == a.term && !a.fenced() {
			a.move(m)
			a.tries = 0
			a.ask(out)
			a.arm(out)
		}
	case Wait:
		if m.Term == a.term {
			a.tries = 0
		}
	case Fence:
		if a.term.less(m.Term) && !m.Term.less(a.fence) {
			a.fence, a.tries = m.Term, 0
			a.seeding, a.owing = false, false
			a.tell(Message[D]{Kind: Fenced, Term: a.fence, Version: a.version}, out)
			a.arm(out)
		}
	case Assign:
		if m.Term == a.fence && a.fenced() {
			a.term, a.at, a.tries = m.Term, m.At, 0
			if a.seeding = m.Seeder == a.me.ID; a.seeding {
				a.copy = Message[D]{Kind: TensorCopy, To: Node{Aggregator, a.at}, Term: a.term, Version: a.version, Data: a.model}
				a.owing = true
				a.tell(a.copy, out)
			}
			a.ask(out)
			a.arm(out)
		}
		if m.Term == a.term || m.Term.less(a.fence) {
			a.tell(Message[D]{Kind: Assigned, Term: m.Term}, out)
		}
	case CopyAck:
		if a.owing && m.Term == a.copy.Term {
			a.seeding, a.tries = false, 0
			a.done(out)
		}
	case Release:
		if a.owing && !m.Term.less(a.copy.Term) {
			a.seeding, a.owing = false, false
			a.copy = Message[D]{}
		}
	case Ask:
		a.tell(Message[D]{Kind: Status, Term: a.term, Next: a.fence, At: a.at, Version: a.version}, out)
	}
}

// move takes over where the tensor is, if a message says that it moves.
func (a *Agent[D]) move(m Message[D]) {
	if a.term.less(m.Next) {
		a.term, a.at = m.Next, m.At
	}
}

func (a *Agent[D]) done(out *Output[D]) {
	a.tell(Message[D]{Kind: CopyDone, Term: a.copy.Term, At: a.copy.To.ID}, out)
}

// Timeout is the alarm.
func (a *Agent[D]) Timeout(out *Output[D]) {
	a.tries++
	switch {
	case a.fenced():
		a.tell(Message[D]{Kind: Fenced, Term: a.fence, Version: a.version}, out)
	case a.seeding:
		a.tell(a.copy, out)
	case a.owing:
		a.done(out)
	}
	a.ask(out)
	if a.tries >= a.times.Attempts && !a.fenced() && (a.wants() || a.seeding) {
		a.tell(Message[D]{Kind: Stuck, Term: a.term, At: a.at}, out)
	}
	a.arm(out)
}
