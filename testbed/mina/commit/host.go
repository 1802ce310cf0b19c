package commit

import (
	"slices"
	"time"
)

// Host is the machine on a host of a job.
type Host struct {
	times Times
	me    Node
	run   uint64
	hosts int

	index   uint64 // the operation that comes next
	version Txn    // of the state that it has
	body    string

	last   Txn  // it does not lock for this transaction or older ones
	locked Txn  // for which it is locked, if not zero
	fenced bool // obeys rank 0 only
	tries  int  // leases that have run out

	asking  bool   // rank 0: has sent queries
	pending []bool // then: who has not answered them
}

// NewHost is the machine of a host in a run of its job, which has so many.
func NewHost(me Node, run uint64, hosts int, t Times) *Host {
	return &Host{times: t, me: me, run: run, hosts: hosts}
}

// Next is the operation that is begun now, and what is to be done by: the transaction of
// the state and the state. If the host is locked ok is false, and nothing is begun.
func (h *Host) Next() (op uint64, version Txn, body string, ok bool) {
	if h.Locked() {
		return h.index, h.version, h.body, false
	}
	op = h.index
	h.index++
	return op, h.version, h.body, true
}

// Locked says whether no operation may begin.
func (h *Host) Locked() bool { return h.locked != Txn{} }

// State is what the host has taken over last.
func (h *Host) State() (Txn, string) { return h.version, h.body }

// Report tells the controller that the host is there: to be sent at the start and now
// and then.
func (h *Host) Report(out *Output) { h.tell(Report, Txn{}, out) }

// tell sends something short to the controller.
func (h *Host) tell(k Kind, t Txn, out *Output) {
	out.send(Message{Kind: k, From: h.me, Run: h.run, Txn: t, Applied: k == Done && h.version == t && t != Txn{}})
}

func (h *Host) note(k EventKind, t Txn, out *Output) {
	out.event(Event{Kind: k, Node: h.me, Run: h.run, Txn: t, Index: h.index})
}

// Handle takes a message. About is what an Ack tells besides.
func (h *Host) Handle(m Message, about string, out *Output) {
	if m.To != h.me || m.Run != h.run || (m.Txn == Txn{}) {
		return
	}
	t, controller := m.Txn, m.From.Job == 0
	arbiter := m.From == Node{h.me.Job, 0}
	switch m.Kind {
	case Prepare:
		switch {
		case h.locked == t:
			if !h.fenced {
				h.ack(about, out)
			}
		case h.Locked():
			h.tell(Busy, t, out)
		case t.Compare(h.last) <= 0:
			h.tell(Done, t, out)
		default:
			h.last, h.locked, h.tries = t, t, 0
			h.note(Locked, t, out)
			h.ack(about, out)
			out.alarm(Timer{Kind: Lease, Txn: t}, h.times.Lease)
		}
	case Commit:
		switch {
		case h.locked == t:
			if arbiter || controller && !h.fenced {
				h.apply(m.Body, out)
			}
		case controller && t.Compare(h.last) <= 0:
			h.tell(Done, t, out)
		}
	case Abort:
		switch {
		case h.locked == t:
			if arbiter || controller {
				h.release(out)
			}
		case controller:
			h.refuse(t)
			h.tell(Done, t, out)
		}
	case Query:
		if !arbiter {
			return
		}
		a := Message{Kind: Answer, From: h.me, To: m.From, Run: h.run, Txn: t}
		switch {
		case h.version == t:
			a.Applied, a.Body = true, h.body
		case h.locked == t && !h.fenced:
			h.fenced = true
			h.note(Fenced, t, out)
		}
		h.refuse(t)
		out.send(a)
	case Ask:
		if h.me.Rank != 0 {
			return
		}
		verdict := Message{Kind: Abort, From: h.me, To: m.From, Run: h.run, Txn: t}
		switch {
		case h.locked == t:
			h.query(out)
			return
		case h.version == t:
			verdict.Kind, verdict.Body = Commit, h.body
		case h.version.Compare(t) > 0:
			return // who asks has long been told: a newer state needed its answer
		}
		h.refuse(t)
		out.send(verdict)
	case Answer:
		if h.locked != t || !h.asking || int(m.From.Rank) >= h.hosts || m.From.Job != h.me.Job {
			return
		}
		if m.Applied {
			h.apply(m.Body, out)
			return
		}
		h.pending[m.From.Rank] = false
		h.settle(out)
	}
}

// Timeout takes a timer that has run out.
func (h *Host) Timeout(t Timer, out *Output) {
	if t.Kind != Lease || !h.Locked() || t.Txn != h.locked {
		return
	}
	if h.me.Rank == 0 {
		h.query(out)
	} else {
		h.note(InDoubt, t.Txn, out)
		out.send(Message{Kind: Ask, From: h.me, To: Node{h.me.Job, 0}, Run: h.run, Txn: t.Txn})
	}
	if h.Locked() {
		h.tries++
		out.alarm(t, backoff(h.times.Resend, h.tries-1, h.times.Lease))
	}
}

// query asks all others of the job, on rank 0, or those who have not answered yet.
func (h *Host) query(out *Output) {
	if !h.asking {
		h.asking = true
		h.pending = make([]bool, h.hosts)
		for i := 1; i < h.hosts; i++ {
			h.pending[i] = true
		}
	}
	h.note(InDoubt, h.locked, out)
	for i, p := range h.pending {
		if p {
			out.send(Message{Kind: Query, From: h.me, To: Node{h.me.Job, uint32(i)}, Run: h.run, Txn: h.locked})
		}
	}
	h.settle(out)
}

// settle gives the transaction up, on rank 0, once nobody can take the state over any more.
func (h *Host) settle(out *Output) {
	if !slices.Contains(h.pending, true) {
		h.release(out)
	}
}

func (h *Host) ack(about string, out *Output) {
	out.send(Message{Kind: Ack, From: h.me, Run: h.run, Txn: h.locked, Index: h.index, Body: about})
}

func (h *Host) apply(body string, out *Output) {
	t := h.locked
	h.version, h.body = t, body
	h.unlock(Message{Kind: Commit, Body: body}, out)
	h.note(Applied, t, out)
}

func (h *Host) release(out *Output) {
	t := h.locked
	h.unlock(Message{Kind: Abort}, out)
	h.note(Released, t, out)
}

// unlock tells the controller, and if this is rank 0 that has asked the others, them.
func (h *Host) unlock(verdict Message, out *Output) {
	t := h.locked
	if h.asking {
		verdict.From, verdict.Run, verdict.Txn = h.me, h.run, t
		for i := 1; i < h.hosts; i++ {
			verdict.To = Node{h.me.Job, uint32(i)}
			out.send(verdict)
		}
	}
	h.locked, h.fenced, h.tries, h.asking, h.pending = Txn{}, false, 0, false, nil
	h.tell(Done, t, out)
}

// refuse sees to it that the host does not lock for a transaction any more.
func (h *Host) refuse(t Txn) {
	if t.Compare(h.last) > 0 {
		h.last = t
	}
}

// backoff doubles a time, n times, up to a largest one.
func backoff(d time.Duration, n int, most time.Duration) time.Duration {
	for ; n > 0 && d < most; n-- {
		d *= 2
	}
	return min(d, max(most, 1))
}
