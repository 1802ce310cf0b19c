package migrate

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/internal/states"
)

var (
	most = flag.Int("migrate.most", 1e7, "states that fit in memory: one takes some 300 bytes")
	deep = flag.Bool("migrate.deep", false, "explore with larger bounds: a minute or two, and gigabytes of memory")
)

// bounds are what is explored. Sent messages are a set that only grows, and any of them
// may arrive at any time and again: so loss, duplication, reordering and delay need no budget.
// With once, each arrives once at most, and losses have a budget.
type bounds struct {
	workers    int
	versions   uint64 // of the model that are trained, the one at the start among them
	migrations int
	crashes    int    // Aggregators that lose everything and are there again at once
	deaths     int    // Aggregators that stop for ever
	epochs     uint64 // of pMaster, which comes back at once, without memory
	hasty      int    // timers that run out although a message is under way that would change something
	suspicions int    // of Aggregators that are well
	once       bool
	losses     int
	silent     bool   // pMaster is not told of crashes: workers have to find out
	patient    bool   // workers never say that they are stuck
	eager      bool   // gradients and sums take no time
	prompt     bool   // what pMaster is told arrives at once
	seq        uint64 // terms of one epoch; 0: 8
}

// places are for Aggregators: one that crashes is replaced by a new one with another id.
const places = 2

// mutant is a mistake in the protocol, made from outside: it alters what machines are
// told, or what becomes of that.
type mutant struct {
	name    string
	deliver func(w *world, m *msg) (drop bool)  // before a message is handled
	handled func(w *world, m msg)               // afterwards
	sent    func(w *world, from Node, out *out) // what a machine wants done
	sum     func(w *world, h *Holder[uint64]) uint64
}

type (
	msg = Message[uint64]
	out = Output[uint64]
)

// world is a state of everything.
type world struct {
	x       *explorer
	master  Master[uint64]
	holders [places]Holder[uint64]
	agents  []Agent[uint64]
	armed   uint64 // alarms, a bit for each node
	net     states.Set
	dead    [places]bool
	fallen  [places]int32 // the id of who crashed there, if pMaster does not know yet, or -1
	ready   [places]Event
	last    int32 // a mutant's: who pushed last

	migrations, crashes, deaths, hasty, suspicions, losses int
}

type explorer struct {
	bounds
	mutant   mutant
	messages []msg
	ids      map[msg]int
	models   []uint64 // what each version must be
	out      out
	overflow bool
}

// mix is order-dependent arithmetic: sums of gradients in another order, or of others, differ.
func mix(a, b uint64) uint64 { return (a^b*0x9e3779b97f4a7c15)*0xff51afd7ed558ccd + 1 }

func gradient(model uint64, rank int) uint64 { return mix(model, uint64(rank+1)) }

func newExplorer(b bounds, m mutant) *explorer {
	if b.seq == 0 {
		b.seq = 8
	}
	b.versions++ // the initial one, before the start
	x := &explorer{bounds: b, mutant: m, ids: map[msg]int{}, models: []uint64{0, 7}}
	for v := uint64(1); v < b.versions; v++ {
		next := x.models[v]
		for r := range b.workers {
			next = mix(next, gradient(x.models[v], r))
		}
		x.models = append(x.models, next)
	}
	return x
}

func (x *explorer) times() Times { return Times{Resend: time.Second, Attempts: 1 << 30} }

// agentTimes make workers complain when they have asked twice.
func (x *explorer) agentTimes() Times {
	if x.patient {
		return x.times()
	}
	return Times{Resend: time.Second, Attempts: 2}
}

// start is where everybody knows that the tensor is at Aggregator 1: after the first
// update, as pushes show that.
func (x *explorer) start() *world {
	w := &world{x: x, master: *NewMaster[uint64](1, x.workers, x.times())}
	for i := range w.holders {
		w.fallen[i] = -1
		w.holders[i] = *NewHolder[uint64](int32(i), x.workers, x.times())
	}
	for r := range x.workers {
		w.agents = append(w.agents, *NewAgent[uint64](int32(r), x.models[1], x.agentTimes()))
	}
	versions := x.versions
	x.versions = 2
	w.do(Node{}, w.master.Start)
	for i := range 100 {
		for id := range w.net.All {
			w.net.Delete(id)
			w.deliver(x.messages[id])
		}
		for r := range w.agents {
			w.compute(r)
		}
		for i := range w.holders {
			if w.ready[i].Kind != 0 {
				w.update(i)
			}
		}
		if w.net == (states.Set{}) && i > 0 {
			break
		}
	}
	x.versions = versions
	w.armed = 0
	if _, _, settled := w.master.At(); !settled || w.agents[0].version != 2 {
		panic("the start is not settled")
	}
	if x.eager {
		for r := range w.agents {
			w.compute(r)
		}
	}
	return w
}

// do lets a machine do something and carries out what it wants.
func (w *world) do(n Node, f func(*out)) {
	x := w.x
	o := x.out
	x.out = out{} // machines may be called in between
	o.Reset()
	f(&o)
	if x.mutant.sent != nil {
		x.mutant.sent(w, n, &o)
	}
	var told []msg
	for _, m := range o.Messages {
		if x.prompt && m.To.Role == PMaster {
			told = append(told, m)
			continue
		}
		id, ok := x.ids[m]
		if !ok {
			id = len(x.messages)
			x.messages = append(x.messages, m)
			x.ids[m] = id
		}
		if id >= states.SetSize {
			x.overflow = true
			continue
		}
		w.net.Add(id)
	}
	if o.Alarm > 0 {
		w.armed |= 1 << w.index(n)
	}
	for _, e := range o.Events {
		w.event(n, e)
	}
	o.Reset()
	x.out = o
	for _, m := range told {
		w.deliver(m)
	}
}

// place is where an Aggregator is, or -1.
func (w *world) place(id int32) int {
	for i := range w.holders {
		if w.holders[i].me.ID == id && !w.dead[i] {
			return i
		}
	}
	return -1
}

// index numbers nodes.
func (w *world) index(n Node) int {
	switch n.Role {
	case Aggregator:
		return 1 + w.place(n.ID)
	case Worker:
		return 1 + places + int(n.ID)
	}
	return 0
}

var (
	errModel = errors.New("a model is not the sum of what was pushed")
	errSplit = errors.New("workers are more than one version apart")
)

func (w *world) event(n Node, e Event) {
	x := w.x
	switch e.Kind {
	case Orphaned:
		to := 1 // if both are well, another one than now
		if w.place(e.At) == 1 || w.dead[1] {
			to = 0
		}
		if w.dead[to] {
			to = 1 - to
		}
		if w.dead[to] {
			w.do(Node{}, func(o *out) { w.master.Fail("no Aggregator is left", o) })
			return
		}
		w.do(Node{}, func(o *out) { w.master.Recover(w.holders[to].me.ID, o) })
	case Ready:
		w.ready[w.place(n.ID)] = e
		if x.eager {
			w.update(w.place(n.ID))
		}
	case Pulled:
		if x.eager {
			w.compute(int(n.ID))
		}
	}
}

// update is the sum and the update of an Aggregator.
func (w *world) update(i int) {
	h := &w.holders[i]
	e := w.ready[i]
	w.ready[i] = Event{}
	model, gradients := h.Gradients()
	for _, g := range gradients {
		model = mix(model, g)
	}
	if w.x.mutant.sum != nil {
		model = w.x.mutant.sum(w, h)
	}
	w.do(h.me, func(o *out) { h.Updated(e.Term, e.Version, model, o) })
}

// compute is the gradient of a worker.
func (w *world) compute(r int) {
	a := &w.agents[r]
	if version, model := a.Model(); !a.Busy() && version > 0 && version < w.x.versions {
		w.do(a.me, func(o *out) { a.Push(gradient(model, r), o) })
	}
}

func (w *world) deliver(m msg) {
	if m.To.Role == Aggregator && w.place(m.To.ID) < 0 {
		return
	}
	if w.x.mutant.deliver != nil && w.x.mutant.deliver(w, &m) {
		return
	}
	w.do(m.To, func(o *out) {
		switch m.To.Role {
		case Aggregator:
			if i := w.place(m.To.ID); i >= 0 {
				w.holders[i].Handle(m, o)
			}
		case Worker:
			w.agents[m.To.ID].Handle(m, o)
		default:
			w.master.Handle(m, o)
		}
	})
	if w.x.mutant.handled != nil {
		w.x.mutant.handled(w, m)
	}
}

// holds is what must be true of every state.
func (w *world) holds() error {
	low, high := w.agents[0].version, w.agents[0].version
	for r := range w.agents {
		a := &w.agents[r]
		if a.model != w.x.models[a.version] {
			return fmt.Errorf("%w: worker %d, version %d", errModel, r, a.version)
		}
		low, high = min(low, a.version), max(high, a.version)
	}
	if high > low+1 {
		return fmt.Errorf("%w: %d and %d", errSplit, low, high)
	}
	for i := range w.holders {
		h := &w.holders[i]
		if v, ok := h.Holds(); ok && (v >= uint64(len(w.x.models)) || h.model != w.x.models[v]) {
			return fmt.Errorf("%w: Aggregator %d, version %d", errModel, i, v)
		}
	}
	return nil
}

// Settled implements states.State. It says whether training has gone to its end, or failed with a reason.
func (w *world) Settled() bool {
	if w.master.phase == failed {
		return true
	}
	for r := range w.agents {
		if a := &w.agents[r]; a.version < w.x.versions || a.fenced() {
			return false
		}
	}
	return w.master.phase == idle || w.master.phase == migrating || w.master.phase == assigning // no more pushes come to end it
}

func (w *world) clone() *world {
	c := *w
	c.master.reports = slices.Clone(w.master.reports)
	c.master.old = slices.Clone(w.master.old)
	for i := range c.holders {
		c.holders[i].parts = slices.Clone(w.holders[i].parts)
	}
	c.agents = slices.Clone(w.agents)
	return &c
}

func terms(b []byte, t ...Term) []byte {
	for _, t := range t {
		b = states.Numbers(b, t.Epoch, t.Seq)
	}
	return b
}

// AppendKey implements states.State. It leaves out how often something was tried: only workers count that, and up to two.
func (w *world) AppendKey(b []byte) []byte {
	m := &w.master
	b = terms(states.Numbers(b, uint64(m.phase), m.epoch, uint64(m.at), uint64(m.from+1), uint64(m.seeder)), m.term, m.was, m.last)
	b = states.Flags(b, m.copied, m.come)
	if m.phase == learning || m.phase == fencing || m.phase == assigning {
		for _, r := range m.reports {
			b = terms(states.Numbers(states.Flags(b, r.ok, r.assigned), uint64(r.at), r.version), r.term, r.fence)
		}
	}
	for _, o := range m.old {
		b = states.Numbers(b, uint64(o)+1)
	}
	b = append(b, 0xff)
	for i := range w.holders {
		h := &w.holders[i]
		b = terms(states.Numbers(b, uint64(h.phase), h.version, h.model, uint64(h.to)), h.term, h.next)
		b = states.Flags(states.Numbers(b, uint64(h.me.ID), uint64(w.fallen[i]+1)), h.busy, h.owing, h.told, w.dead[i], w.ready[i].Kind != 0)
		for _, p := range h.parts {
			b = states.Numbers(states.Flags(b, p.heard, p.push), p.version, p.data)
		}
	}
	for r := range w.agents {
		a := &w.agents[r]
		b = terms(states.Numbers(b, uint64(a.at), a.version, a.model, uint64(min(a.tries, 2))), a.term, a.fence)
		b = states.Flags(b, a.pushed, a.seeding, a.owing)
		if a.owing {
			b = terms(b, a.copy.Term)
		}
	}
	b = states.Numbers(b, w.armed)
	b = states.Numbers(b, w.net[:]...)
	return states.Numbers(b, uint64(w.migrations), uint64(w.crashes), uint64(w.deaths), uint64(w.hasty), uint64(w.suspicions), uint64(w.losses), uint64(w.last))
}

// machines is the part of the key that a delivery may change.
func (w *world) machines(b []byte) []byte {
	c := *w
	c.net, c.armed = states.Set{}, 0
	return c.AppendKey(b)
}

// Tidy implements states.State: it forgets messages that can have no effect any more.
func (w *world) Tidy() {
	for id := range w.net.All {
		if !w.matters(&w.x.messages[id]) {
			w.net.Delete(id)
		}
	}
}

func (w *world) matters(m *msg) bool {
	if w.x.mutant.deliver != nil || w.x.mutant.handled != nil || w.x.mutant.sent != nil {
		return true
	}
	switch m.To.Role {
	case Worker:
		a := &w.agents[m.To.ID]
		known := a.term
		if known.less(a.fence) {
			known = a.fence
		}
		switch m.Kind {
		case Model:
			return m.Term == known && m.Version > a.version || a.term.less(m.Term)
		case Wait, Moved:
			return !m.Term.less(known)
		case Fence:
			return known.less(m.Term) || m.Term == a.fence && a.fenced()
		case Assign:
			return !m.Term.less(known)
		case CopyAck, Release:
			return a.owing || known.less(m.Term)
		case Ask:
			return w.master.phase == learning
		}
	case Aggregator:
		i := w.place(m.To.ID)
		if i < 0 {
			return false
		}
		h := &w.holders[i]
		switch {
		case m.Kind == Pull, m.Kind == Push:
			return !m.Term.less(h.term)
		case m.Kind == CopyAck:
			return h.phase == copying && m.Term == h.next
		}
	default:
		switch {
		case w.master.phase == failed:
			return false
		case m.Kind == Status:
			return w.master.phase == learning
		}
	}
	return true
}

// Steps implements states.State.
func (w *world) Steps(take func(states.Step[*world])) {
	yield := func(label func() string, fault bool, to *world) {
		take(states.Step[*world]{Label: label, Fault: fault, To: to, Broken: to.holds()})
	}
	x := w.x
	now := w.machines(nil)
	var after []byte
	deliveries := 0
	for id := range w.net.All {
		m := x.messages[id]
		next := w.clone()
		if x.once {
			next.net.Delete(id)
		}
		next.deliver(m)
		after = next.machines(after[:0])
		if string(now) == string(after) && !next.more(w) {
			continue
		}
		deliveries++
		yield(func() string { return "deliver " + m.String() }, false, next)
	}
	for r := range w.agents {
		if a := &w.agents[r]; !a.Busy() && a.version > 0 && a.version < x.versions {
			next := w.clone()
			next.compute(r)
			yield(func() string { return fmt.Sprintf("gradient of worker %d", r) }, false, next)
		}
	}
	for i := range w.holders {
		if w.ready[i].Kind != 0 {
			next := w.clone()
			next.update(i)
			yield(func() string { return fmt.Sprintf("update on aggregator %d", i) }, false, next)
		}
	}
	for k := range 1 + places + x.workers {
		if w.armed>>k&1 == 0 || deliveries > 0 && w.hasty >= x.hasty {
			continue
		}
		next := w.clone()
		next.armed &^= 1 << k
		if deliveries > 0 {
			next.hasty++
		}
		var n Node
		switch {
		case k == 0:
			next.do(n, next.master.Timeout)
		case k <= places:
			n = w.holders[k-1].me
			next.do(n, next.holders[k-1].Timeout)
		default:
			n = Node{Worker, int32(k - 1 - places)}
			next.do(n, next.agents[n.ID].Timeout)
		}
		yield(func() string { return "timer of " + n.String() }, deliveries > 0, next)
	}
	if at := w.place(w.master.at); w.migrations < x.migrations && w.master.phase == idle && at >= 0 && !w.dead[1-at] {
		next := w.clone()
		next.migrations++
		next.do(Node{}, func(o *out) { next.master.Migrate(next.holders[1-at].me.ID, o) })
		yield(func() string { return "migrate" }, false, next)
	}
	for i := range w.holders {
		n := w.holders[i].me
		if id := w.fallen[i]; id >= 0 {
			next := w.clone()
			next.fallen[i] = -1
			next.do(Node{}, func(o *out) { next.master.Down(id, o) })
			yield(func() string { return fmt.Sprintf("pMaster is told that aggregator %d is down", id) }, false, next)
			continue
		}
		if w.dead[i] {
			continue
		}
		if w.crashes < x.crashes || w.deaths < x.deaths {
			for _, all := range []bool{false, true} {
				next := w.clone()
				next.holders[i] = *NewHolder[uint64](n.ID+places, x.workers, x.times())
				next.armed &^= 1 << (1 + i)
				next.ready[i] = Event{}
				if !x.silent {
					next.fallen[i] = n.ID
				}
				next.cut(n, all)
				if w.crashes < x.crashes {
					next.crashes++
				} else {
					next.deaths++
					next.dead[i] = true
				}
				yield(func() string { return "CRASH of " + n.String() }, true, next)
			}
		}
		if w.suspicions < x.suspicions {
			next := w.clone()
			next.suspicions++
			next.do(Node{}, func(o *out) { next.master.Down(n.ID, o) })
			yield(func() string { return "SUSPICION of " + n.String() }, true, next)
		}
	}
	if w.master.epoch < x.epochs {
		for _, all := range []bool{false, true} {
			next := w.clone()
			next.master = *NewMaster[uint64](w.master.epoch+1, x.workers, x.times())
			next.armed &^= 1
			next.cut(Node{}, all)
			next.do(Node{}, next.master.Start)
			yield(func() string { return "CRASH of pMaster" }, true, next)
		}
	}
	if w.losses < x.losses {
		for id := range w.net.All {
			next := w.clone()
			next.losses++
			next.net.Delete(id)
			m := x.messages[id]
			yield(func() string { return "LOSS of " + m.String() }, true, next)
		}
	}
}

// more says whether something has been sent or armed that was not in a state before.
func (w *world) more(before *world) bool {
	w.Tidy()
	for i := range w.net {
		if w.net[i]&^before.net[i] != 0 {
			return true
		}
	}
	return w.armed&^before.armed != 0
}

// cut loses all messages to a node, as connections do not outlive processes, and perhaps those
// from it.
func (w *world) cut(n Node, from bool) {
	for id := range w.net.All {
		if m := &w.x.messages[id]; m.To == n || from && m.From == n {
			w.net.Delete(id)
		}
	}
}

// explore visits all states, up to so many.
func explore(b bounds, m mutant, most int) states.Result {
	x := newExplorer(b, m)
	return (&states.Space[*world]{Start: x.start, Most: most, Full: x.full}).Explore()
}

func (x *explorer) full() error {
	if x.overflow {
		return fmt.Errorf("%d messages: more than the explorer has room for", len(x.messages))
	}
	return nil
}

// Beyond implements states.State.
func (w *world) Beyond() bool { return w.master.last.Seq > w.x.seq }

// Exempt implements states.State.
func (w *world) Exempt() bool { return w.master.last.Seq >= w.x.seq }

const (
	quick = iota
	usual
	long
)

// What is explored: with -short the least, always, or with -migrate.deep all.
var scopes = []struct {
	name string
	b    bounds
	size int
}{
	{"a migration, any order", bounds{workers: 2, versions: 4, migrations: 1, patient: true}, quick},
	{"there and back", bounds{workers: 2, versions: 5, migrations: 2, once: true, eager: true, patient: true}, quick},
	{"late messages", bounds{workers: 2, versions: 3, migrations: 1, hasty: 2, patient: true}, usual},
	{"lost messages", bounds{workers: 2, versions: 4, migrations: 1, once: true, losses: 2, eager: true, patient: true}, quick},
	{"an Aggregator crashes", bounds{workers: 2, versions: 3, migrations: 1, once: true, crashes: 1, eager: true, prompt: true, patient: true, seq: 4}, quick},
	{"an Aggregator crashes, nobody is told", bounds{workers: 2, versions: 3, migrations: 1, once: true, crashes: 1, silent: true, eager: true, prompt: true, seq: 4}, quick},
	{"an Aggregator dies", bounds{workers: 2, versions: 4, migrations: 1, once: true, deaths: 1, eager: true, prompt: true, patient: true, seq: 4}, quick},
	{"an Aggregator dies, nobody is told", bounds{workers: 2, versions: 3, migrations: 1, once: true, deaths: 1, silent: true, eager: true, prompt: true, seq: 4}, quick},
	{"an Aggregator is taken for dead", bounds{workers: 2, versions: 3, migrations: 1, once: true, suspicions: 1, eager: true, patient: true, seq: 4}, quick},
	{"an Aggregator is taken for dead, any order", bounds{workers: 2, versions: 3, migrations: 1, suspicions: 1, eager: true, prompt: true, patient: true, seq: 4}, usual},
	{"pMaster crashes", bounds{workers: 2, versions: 4, migrations: 1, once: true, epochs: 2, eager: true, patient: true}, quick},
	{"pMaster crashes, then migrates", bounds{workers: 2, versions: 4, migrations: 2, once: true, epochs: 2, eager: true, patient: true}, usual},
	{"pMaster crashes twice", bounds{workers: 2, versions: 3, migrations: 1, once: true, epochs: 3, eager: true, patient: true}, usual},
	{"both crash", bounds{workers: 2, versions: 3, migrations: 1, once: true, epochs: 2, crashes: 1, silent: true, eager: true, prompt: true, seq: 4}, usual},
	{"both crash, pMaster is told", bounds{workers: 2, versions: 3, migrations: 1, once: true, epochs: 2, crashes: 1, eager: true, prompt: true, seq: 4}, usual},
	{"two crashes", bounds{workers: 2, versions: 3, migrations: 1, once: true, crashes: 2, eager: true, prompt: true, patient: true, seq: 5}, usual},
	{"three workers", bounds{workers: 3, versions: 4, migrations: 1, once: true, eager: true, patient: true}, quick},
	{"there and back, step by step", bounds{workers: 2, versions: 5, migrations: 2, once: true, patient: true}, long},
	{"an Aggregator crashes, late messages to pMaster", bounds{workers: 2, versions: 3, migrations: 1, once: true, crashes: 1, eager: true, patient: true, seq: 4}, long},
	{"an Aggregator crashes, a message is lost", bounds{workers: 2, versions: 3, migrations: 1, once: true, crashes: 1, losses: 1, eager: true, prompt: true, patient: true, seq: 4}, long},
	{"an Aggregator crashes while there and back", bounds{workers: 2, versions: 4, migrations: 2, once: true, crashes: 1, eager: true, prompt: true, patient: true, seq: 5}, long},
	{"an Aggregator is taken for dead, and crashes", bounds{workers: 2, versions: 3, migrations: 1, once: true, suspicions: 1, crashes: 1, eager: true, prompt: true, patient: true, seq: 5}, long},
	{"pMaster crashes, step by step", bounds{workers: 2, versions: 4, migrations: 1, once: true, epochs: 2, patient: true}, long},
	{"both crash, late messages", bounds{workers: 2, versions: 3, migrations: 1, once: true, epochs: 2, crashes: 1, silent: true, eager: true, prompt: true, hasty: 1, seq: 4}, long},
	{"an Aggregator crashes, step by step", bounds{workers: 2, versions: 3, migrations: 1, once: true, crashes: 1, patient: true, seq: 4}, long},
	{"three workers, a crash", bounds{workers: 3, versions: 3, migrations: 1, once: true, crashes: 1, eager: true, prompt: true, patient: true, seq: 4}, long},
}

func TestExplore(t *testing.T) {
	for _, s := range scopes {
		t.Run(strings.NewReplacer(" ", "-", ",", "").Replace(s.name), func(t *testing.T) {
			if s.size == long && !*deep || s.size == usual && !proof.Wanted() {
				t.Skip("takes long: -migrate.deep, or no -short")
			}
			began := time.Now()
			r := explore(s.b, mutant{}, *most)
			t.Logf("%+v: %d states, %d steps, depth %d, %d settled, %d beyond the bounds, in %.1f s",
				s.b, r.States, r.Steps, r.Depth, r.Settled, r.Cut, time.Since(began).Seconds())
			if r.Broken != nil {
				t.Error(r.Broken)
			} else if r.States >= *most {
				t.Errorf("not all states fit in -migrate.most %d", *most)
			}
		})
	}
}

// Every mistake in the protocol is found, and what it breaks.
func TestMutants(t *testing.T) {
	calm := bounds{workers: 2, versions: 3, migrations: 1, eager: true, patient: true}
	lossy := bounds{workers: 2, versions: 3, migrations: 1, once: true, losses: 1, eager: true, prompt: true, patient: true}
	crash := bounds{workers: 2, versions: 3, once: true, crashes: 1, eager: true, prompt: true, patient: true, seq: 4}
	suspect := bounds{workers: 2, versions: 3, once: true, suspicions: 1, eager: true, prompt: true, patient: true, seq: 4}
	holder := func(w *world, m msg) *Holder[uint64] { return &w.holders[w.place(m.To.ID)] }
	for _, tt := range []struct {
		mutant
		b    bounds
		want error
	}{
		{mutant{name: "the copy is not waited for", handled: func(w *world, m msg) {
			if m.Kind != Push || holder(w, m).phase != waiting {
				return
			}
			h := holder(w, m)
			h.phase, h.version = active, m.Version
			w.do(h.me, h.ready)
		}}, calm, errModel},
		{mutant{name: "gradients are summed as they come", handled: func(w *world, m msg) {
			if m.Kind == Push {
				w.last = m.From.ID
			}
		}, sum: func(w *world, h *Holder[uint64]) uint64 {
			model, g := h.Gradients()
			if w.last == 0 {
				slices.Reverse(g)
			}
			return mix(mix(model, g[0]), g[1])
		}}, bounds{workers: 2, versions: 3, migrations: 1, patient: true}, errModel},
		{mutant{name: "versions of gradients are not compared", deliver: func(w *world, m *msg) bool {
			if m.Kind == Push && m.Term == holder(w, *m).term && holder(w, *m).phase == active {
				m.Version = holder(w, *m).version
			}
			return false
		}}, calm, errModel},
		{mutant{name: "workers go on although they are fenced", deliver: func(w *world, m *msg) bool {
			if m.Kind != Model || !w.agents[m.To.ID].fenced() {
				return false
			}
			a := &w.agents[m.To.ID]
			fence := a.fence
			a.fence = Term{}
			w.do(a.me, func(o *out) { a.Handle(*m, o) })
			a.fence = fence
			return true
		}}, suspect, states.ErrStuck},
		{mutant{name: "rank 0 seeds, whatever it has", sent: func(_ *world, _ Node, o *out) {
			for i := range o.Messages {
				o.Messages[i].Seeder = 0
			}
		}}, crash, states.ErrStuck},
		{mutant{name: "not all are fenced", deliver: func(w *world, m *msg) bool {
			if m.Kind == Fenced && w.master.phase == fencing {
				for i := range w.master.reports {
					w.master.reports[i].ok = true
				}
			}
			return false
		}}, suspect, states.ErrStuck},
		{mutant{name: "some are told of the new place, some not", sent: func(w *world, n Node, o *out) {
			for i := range o.Messages {
				if n.Role != Aggregator {
					continue
				}
				h := &w.holders[w.place(n.ID)]
				if m := &o.Messages[i]; m.Kind == Model && h.phase == active && h.next != (Term{}) {
					m.Next, m.At = h.next, h.to
				}
			}
		}}, lossy, states.ErrStuck},
		{mutant{name: "the copy goes before the update", handled: func(w *world, m msg) {
			if m.Kind == MigrateInit && holder(w, m).phase == active && holder(w, m).next != (Term{}) {
				w.do(m.To, holder(w, m).copy)
			}
		}}, calm, states.ErrStuck},
		{mutant{name: "the source forgets at once", handled: func(w *world, m msg) {
			if m.Kind == CopyAck && m.To.Role == Aggregator && holder(w, m).phase == moved {
				holder(w, m).phase, holder(w, m).parts = absent, nil
			}
		}}, lossy, states.ErrStuck},
		{mutant{name: "nothing is repeated", sent: func(_ *world, _ Node, o *out) { o.Alarm = 0 }}, lossy, states.ErrStuck},
		{mutant{name: "workers forget a gradient that they have pushed", sent: func(w *world, n Node, _ *out) {
			if n.Role == Worker && w.agents[n.ID].fenced() && w.agents[n.ID].version > 1 {
				w.agents[n.ID].gradient = 0
			}
		}}, crash, errModel},
	} {
		t.Run(strings.NewReplacer(" ", "-", ",", "").Replace(tt.name), func(t *testing.T) {
			if r := explore(tt.b, mutant{}, 1e6); r.Broken != nil {
				t.Fatalf("without the mistake: %v", r.Broken)
			}
			began := time.Now()
			r := explore(tt.b, tt.mutant, 1e6)
			if !errors.Is(r.Broken, tt.want) {
				t.Fatalf("%d states: %v, want %v", r.States, r.Broken, tt.want)
			}
			t.Logf("found after %d states, %.2f s: %v", r.States, time.Since(began).Seconds(), r.Broken)
		})
	}
}
