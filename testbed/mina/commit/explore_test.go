package commit

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

var most = flag.Int("commit.most", 2e7, "states that fit in memory: one takes some 300 bytes")
var deep = flag.Bool("commit.deep", false, "explore with larger bounds: minutes, and gigabytes of memory")

// The explorer visits every state that the machines can come to, together with a network
// that delivers any message at any time, often or never, and with timers that run out in
// any order. Within bounds: operations, transactions, and faults of each kind.
//
// Sent messages are a set that only grows. So loss, duplication, reordering and delay need
// no budget: a lost message is one that is not delivered (yet). A message that is lost for
// good is a fault with a budget, for the question of progress.
type bounds struct {
	jobs    []int // hosts of each; they are rivals
	ops     uint64
	txns    uint64 // of each epoch
	changes int    // of the state that the controller wants, after the first
	losses  int    // messages that are gone until they are sent again
	crashes int    // hosts that come back at once in a new run, without memory
	deaths  int    // hosts that stop for ever
	epochs  uint64 // of the controller, which comes back at once without memory
	tries   int    // Times.Attempts
	once    bool   // no message arrives twice, so that what is lost must be repeated
	eager   bool   // what hosts tell the controller arrives at once: fewer states
	// Timers that run out although a message is under way that would change something:
	// it is late, or lost. Others run out when nothing else happens, for free.
	hasty int
}

// mutant is a mistake in the protocol, made from outside: it alters what machines are
// told or what becomes of what they say. The explorer must find each.
type mutant struct {
	name     string
	deliver  func(w *world, m *Message)                 // before a message is handled
	handled  func(w *world, m Message)                  // afterwards
	timeout  func(w *world, n Node, t Timer) (own bool) // instead of a timer
	mute     bool                                       // what timers repeat is not sent
	anyTime  bool                                       // switches grant whatever is asked for
	keepTree bool                                       // a tree is not deleted when its job is out
	patient  bool                                       // nobody is taken for dead
}

type life struct {
	run, index uint64
	used       Txn
}

type tick struct {
	node  Node
	timer Timer
}

// world is a state of everything.
type world struct {
	x     *explorer
	group Group
	hosts []Host
	used  []Txn  // by which a host's last operation began
	dead  []bool // for ever
	past  []life // what a host was before it crashed last

	net    states.Set // messages
	timers states.Set

	holds, gone []bool // of each job: its tree is active; has been deleted

	changes, losses, crashes, deaths, hasty int
	epoch                                   uint64
}

type step = states.Step[*world]

type explorer struct {
	bounds
	mutant   mutant
	messages []Message
	ticks    []tick
	msgID    map[Message]int
	tickID   map[tick]int
	first    []int // host number of rank 0 of each job
	out      Output
	overflow bool
	free     []*world
}

func newExplorer(b bounds, m mutant) *explorer {
	x := &explorer{bounds: b, mutant: m, msgID: map[Message]int{}, tickID: map[tick]int{}}
	n := 0
	for _, hosts := range b.jobs {
		x.first = append(x.first, n)
		n += hosts
	}
	return x
}

func (x *explorer) times() Times { return Times{Attempts: x.tries} }

func (x *explorer) host(n Node) int { return x.first[n.Job-1] + int(n.Rank) }

func (x *explorer) newGroup(epoch uint64) Group {
	return *NewGroup(epoch, x.times(), func(ready []Ready) string {
		return "state"
	})
}

func (x *explorer) start() *world {
	w := &world{x: x, epoch: 1, group: x.newGroup(1)}
	for j, n := range x.jobs {
		for r := range n {
			w.hosts = append(w.hosts, *NewHost(Node{uint32(j + 1), uint32(r)}, 1, n, x.times()))
		}
	}
	n := len(w.hosts)
	w.used, w.dead, w.past = make([]Txn, n), make([]bool, n), make([]life, n)
	w.holds, w.gone = make([]bool, len(x.jobs)), make([]bool, len(x.jobs))
	w.join()
	for i := range w.hosts {
		w.report(i)
	}
	return w
}

// report is one that arrives at once: what a late one says is of no more effect.
func (w *world) report(i int) {
	w.x.out.Reset()
	w.hosts[i].Report(&w.x.out)
	m := w.x.out.Messages[0]
	w.x.out.Reset()
	w.group.Handle(m, &w.x.out)
	w.take(Node{})
}

// join tells a new controller which jobs there are.
func (w *world) join() {
	jobs := map[uint32]int{}
	for j, n := range w.x.jobs {
		jobs[uint32(j+1)] = n
	}
	w.x.out.Reset()
	w.group.Set(jobs, &w.x.out)
	w.take(Node{})
}

func cloneHost(h *Host) Host {
	c := *h
	c.pending = slices.Clone(c.pending)
	return c
}

func cloneGroup(g *Group) Group {
	var c Group
	copyGroup(&c, g)
	return c
}

// copyGroup reuses the memory of c.
func copyGroup(c, g *Group) {
	jobs, parts := c.jobs[:0], append(c.parts[:0], g.parts...)
	for i := range g.jobs {
		from := &g.jobs[i]
		var to member
		if i < cap(jobs) {
			to = jobs[:i+1][i]
		}
		runs, heard := append(to.runs[:0], from.runs...), append(to.heard[:0], from.heard...)
		to = *from
		to.runs, to.heard = runs, heard
		jobs = append(jobs, to)
	}
	*c = *g
	c.jobs, c.parts = jobs, parts
}

// clone is a copy, in the memory of a world that is not needed any more if there is one.
func (w *world) clone() *world {
	c := new(world)
	if n := len(w.x.free); n > 0 {
		c, w.x.free = w.x.free[n-1], w.x.free[:n-1]
	}
	old := *c
	*c = *w
	c.group = old.group
	copyGroup(&c.group, &w.group)
	c.hosts = append(old.hosts[:0], w.hosts...)
	for i := range c.hosts {
		c.hosts[i].pending = slices.Clone(c.hosts[i].pending)
	}
	c.used, c.dead, c.past = append(old.used[:0], w.used...), append(old.dead[:0], w.dead...), append(old.past[:0], w.past...)
	c.holds, c.gone = append(old.holds[:0], w.holds...), append(old.gone[:0], w.gone...)
	return c
}

func txns(b []byte, t ...Txn) []byte {
	for _, t := range t {
		b = states.Numbers(b, t.Epoch, t.Seq)
	}
	return b
}

func (h *Host) appendKey(b []byte) []byte {
	b = txns(states.Numbers(b, h.run, h.index, uint64(len(h.body))), h.version, h.last, h.locked)
	return states.Flags(states.Flags(b, h.fenced, h.asking), h.pending...)
}

func (g *Group) appendKey(b []byte) []byte {
	b = txns(states.Numbers(b, uint64(g.phase), uint64(g.attempts)), g.txn)
	b = states.Flags(b, g.dirty, g.quiet, g.commit)
	for i := range g.jobs {
		j := &g.jobs[i]
		b = states.Flags(states.Numbers(b, j.runs...), j.out)
		if j.out {
			b = states.Flags(b, j.heard...)
		}
	}
	if g.phase == idle {
		return b
	}
	for i := range g.parts {
		p := &g.parts[i]
		b = states.Flags(states.Numbers(b, uint64(p.Job), uint64(p.Rank), p.Run), p.acked, p.done)
		if g.phase == preparing {
			b = states.Numbers(b, p.Index)
		}
	}
	return b
}

// AppendKey implements states.State.
func (w *world) AppendKey(b []byte) []byte {
	b = w.group.appendKey(b)
	for i := range w.hosts {
		b = w.hosts[i].appendKey(b)
		b = txns(states.Numbers(b, w.past[i].run, w.past[i].index), w.used[i], w.past[i].used)
	}
	b = states.Flags(states.Flags(states.Flags(b, w.dead...), w.holds...), w.gone...)
	b = states.Numbers(b, w.net[:]...)
	b = states.Numbers(b, w.timers[:]...)
	return states.Numbers(b, uint64(w.changes), uint64(w.losses), uint64(w.crashes), uint64(w.deaths), uint64(w.hasty), w.epoch)
}

// take carries out what a machine wants.
func (w *world) take(from Node) {
	x := w.x
	var answers []Message
	for _, m := range x.out.Messages {
		if x.eager && m.To.Job == 0 {
			answers = append(answers, m)
			continue
		}
		id, ok := x.msgID[m]
		if !ok {
			id = len(x.messages)
			x.messages = append(x.messages, m)
			x.msgID[m] = id
		}
		if id >= states.SetSize {
			x.overflow = true
			continue
		}
		w.net.Add(id)
	}
	for _, a := range x.out.Timers {
		k := tick{from, a.Timer}
		id, ok := x.tickID[k]
		if !ok {
			id = len(x.ticks)
			x.ticks = append(x.ticks, k)
			x.tickID[k] = id
		}
		if id >= states.SetSize {
			x.overflow = true
			continue
		}
		w.timers.Add(id)
	}
	for _, e := range x.out.Events {
		switch e.Kind {
		case Out: // the controller deletes the tree of the job
			if !x.mutant.keepTree {
				w.holds[e.Node.Job-1], w.gone[e.Node.Job-1] = false, true
			}
		case Committed: // and makes it anew
			for _, p := range w.group.parts {
				w.gone[p.Job-1] = false
			}
		}
	}
	x.out.Reset()
	for _, m := range answers {
		w.group.Handle(m, &x.out)
		w.take(Node{})
	}
}

// wants says whether a timer is still waited for; others are forgotten.
func (w *world) wants(k tick) bool {
	g := &w.group
	if k.node.Job != 0 {
		return w.hosts[w.x.host(k.node)].locked == k.timer.Txn
	}
	switch k.timer.Kind {
	case Resend:
		return g.phase != idle && g.txn == k.timer.Txn
	case Again:
		return g.quiet && g.txn == k.timer.Txn
	}
	j := g.member(k.timer.Job)
	return j != nil && j.out
}

var errDiffer = errors.New("hosts of a job differ on an operation")
var errBoth = errors.New("two rivals hold the same resource")

// launch begins the next operation on a host.
func (w *world) launch(i int) error {
	h := &w.hosts[i]
	j := int(h.me.Job) - 1
	first := true
	op, used, _, ok := h.Next()
	if !ok {
		return nil
	}
	w.used[i] = used
	for p := w.x.first[j]; p < w.x.first[j]+w.x.jobs[j]; p++ {
		now, past := life{w.hosts[p].run, w.hosts[p].index, w.used[p]}, w.past[p]
		for _, l := range [...]life{now, past} {
			if p == i && l == now || l.run != h.run || l.index <= op {
				continue
			}
			first = false
			if l.index == op+1 && l.used != used {
				return fmt.Errorf("%w: operation %d of job %d, run %d: %v by %v, and by %v", errDiffer, op, j+1, h.run, h.me, used, l.used)
			}
		}
	}
	if first && used != (Txn{}) && !w.gone[j] { // the hosts ask for INA, and the switches answer all alike
		for r := range w.holds {
			if r != j && w.holds[r] && !w.x.mutant.anyTime {
				return nil
			}
		}
		w.holds[j] = true
		for r := range w.holds {
			if r != j && w.holds[r] {
				return fmt.Errorf("%w: jobs %d and %d", errBoth, j+1, r+1)
			}
		}
	}
	return nil
}

// may says whether a host's last operation has ended, so that it may begin another one.
func (w *world) may(i int) bool {
	h := &w.hosts[i]
	if w.dead[i] || h.Locked() || h.index >= w.x.ops {
		return false
	}
	j := int(h.me.Job) - 1
	level := true
	for p := w.x.first[j]; p < w.x.first[j]+w.x.jobs[j]; p++ {
		q := &w.hosts[p]
		switch {
		case q.run == h.run:
			if q.index < h.index {
				return false
			}
			level = level && q.index == h.index
		case w.past[p].run != h.run || w.past[p].index < h.index:
			return false
		}
	}
	return !level || !w.holds[j]
}

// ended says whether all hosts of a job have ended the operation that holds its tree.
func (w *world) ended(j int) bool {
	a := &w.hosts[w.x.first[j]]
	for p := w.x.first[j]; p < w.x.first[j]+w.x.jobs[j]; p++ {
		if b := &w.hosts[p]; w.dead[p] || b.run != a.run || b.index != a.index {
			return false
		}
	}
	return true
}

// restart is a host without memory in a run.
func (w *world) restart(i int, run uint64) {
	h := &w.hosts[i]
	w.past[i] = life{h.run, h.index, w.used[i]}
	w.hosts[i] = *NewHost(h.me, run, h.hosts, h.times)
	w.used[i] = Txn{}
	w.drop(func(k tick) bool { return k.node == h.me })
}

func (w *world) drop(which func(tick) bool) {
	for id := range w.timers.All {
		if which(w.x.ticks[id]) {
			w.timers.Delete(id)
		}
	}
}

// newest is the run that the framework wants a job in.
func (w *world) newest(job uint32) uint64 {
	j, run := int(job)-1, uint64(0)
	for p := w.x.first[j]; p < w.x.first[j]+w.x.jobs[j]; p++ {
		run = max(run, w.hosts[p].run)
	}
	return run
}

// Steps implements states.State.
func (w *world) Steps(yield func(step)) {
	x := w.x
	before := make([][]byte, len(w.hosts)+1)
	for i := range w.hosts {
		before[i] = w.hosts[i].appendKey(nil)
	}
	before[len(w.hosts)] = w.group.appendKey(nil)
	var after []byte
	deliveries := 0
	for id := range w.net.All {
		m := x.messages[id]
		x.out.Reset()
		if m.To.Job == 0 {
			g := cloneGroup(&w.group)
			next := w
			if x.mutant.deliver != nil {
				next = w.clone()
				x.mutant.deliver(next, &m)
				g = cloneGroup(&next.group)
			}
			g.Handle(m, &x.out)
			after = g.appendKey(after[:0])
			if string(before[len(w.hosts)]) == string(after) && !w.novel() {
				continue
			}
			deliveries++
			if next == w {
				next = w.clone()
			}
			next.group = g
			if x.once {
				next.net.Delete(id)
			}
			next.take(Node{})
			yield(step{Label: func() string { return "deliver " + m.String() }, To: next})
			continue
		}
		i := x.host(m.To)
		if w.dead[i] {
			continue
		}
		next := w
		if x.mutant.deliver != nil {
			next = w.clone()
			x.mutant.deliver(next, &m)
		}
		h := cloneHost(&next.hosts[i])
		h.Handle(m, "", &x.out)
		after = h.appendKey(after[:0])
		if string(before[i]) == string(after) && !w.novel() {
			continue
		}
		deliveries++
		if next == w {
			next = w.clone()
		}
		next.hosts[i] = h
		if x.once {
			next.net.Delete(id)
		}
		next.take(h.me)
		if x.mutant.handled != nil {
			x.mutant.handled(next, m)
		}
		yield(step{Label: func() string { return "deliver " + m.String() }, To: next})
	}
	for id := range w.timers.All {
		k := x.ticks[id]
		hasty := deliveries > 0
		if hasty && w.hasty >= x.hasty {
			continue
		}
		next := w.clone()
		next.timers.Delete(id)
		if hasty {
			next.hasty++
		}
		x.out.Reset()
		if x.mutant.patient && k.timer.Kind == Resend {
			next.group.attempts = -1
		}
		switch own := x.mutant.timeout != nil && x.mutant.timeout(next, k.node, k.timer); {
		case own:
		case k.node.Job == 0:
			next.group.Timeout(k.timer, &x.out)
		default:
			next.hosts[x.host(k.node)].Timeout(k.timer, &x.out)
		}
		if x.mutant.mute && k.timer.Kind != Again && k.timer.Kind != Readmit {
			x.out.Messages = nil
		}
		next.take(k.node)
		yield(step{Label: func() string { return fmt.Sprintf("timer %v of %v", k.timer, k.node) }, Fault: hasty, To: next})
	}
	for i := range w.hosts {
		h := &w.hosts[i]
		if w.dead[i] {
			continue
		}
		if j := w.group.member(h.me.Job); j.runs[h.me.Rank] != h.run || j.out && !j.heard[h.me.Rank] {
			next := w.clone()
			next.report(i)
			yield(step{Label: func() string { return "report of " + h.me.String() }, To: next})
		}
		if w.may(i) {
			next := w.clone()
			err := next.launch(i)
			yield(step{Label: func() string { return "launch on " + h.me.String() }, To: next, Broken: err})
		}
		run := w.newest(h.me.Job)
		if h.run < run {
			next := w.clone()
			next.restart(i, run)
			yield(step{Label: func() string { return "restart of " + h.me.String() }, To: next})
		}
		if w.crashes < x.crashes {
			next := w.clone()
			next.crashes++
			next.restart(i, max(run, h.run+1))
			yield(step{Label: func() string { return "CRASH of " + h.me.String() }, Fault: true, To: next})
		}
		if w.deaths < x.deaths {
			next := w.clone()
			next.deaths++
			next.dead[i] = true
			next.drop(func(k tick) bool { return k.node == h.me })
			yield(step{Label: func() string { return "DEATH of " + h.me.String() }, Fault: true, To: next})
		}
	}
	for i, d := range w.dead {
		if h := &w.hosts[i]; d && !x.mutant.patient && w.group.member(h.me.Job).in() {
			next := w.clone()
			x.out.Reset()
			next.group.Suspect(h.me, &x.out)
			next.take(Node{})
			yield(step{Label: func() string { return "suspicion of " + h.me.String() }, To: next})
		}
	}
	for j := range w.holds {
		if w.holds[j] && w.ended(j) {
			next := w.clone()
			next.holds[j] = false
			yield(step{Label: func() string { return fmt.Sprintf("job %d gives back its tree", j+1) }, To: next})
		}
	}
	if w.changes < x.changes {
		next := w.clone()
		next.changes++
		x.out.Reset()
		next.group.Change(&x.out)
		next.take(Node{})
		yield(step{Label: func() string { return "change" }, To: next})
	}
	if w.epoch < x.epochs {
		next := w.clone()
		next.epoch++
		next.group = x.newGroup(next.epoch)
		next.drop(func(k tick) bool { return k.node.Job == 0 })
		next.join()
		yield(step{Label: func() string { return "CRASH of the controller" }, Fault: true, To: next})
	}
	if w.losses < x.losses {
		for id := range w.net.All {
			next := w.clone()
			next.losses++
			next.net.Delete(id)
			m := x.messages[id]
			yield(step{Label: func() string { return "LOSS of " + m.String() }, Fault: true, To: next})
		}
	}
}

// novel says whether a machine's output is more than messages that are under way already.
func (w *world) novel() bool {
	for i := range w.x.out.Messages {
		m := &w.x.out.Messages[i]
		if w.x.eager && m.To.Job == 0 {
			if m.Txn == w.group.txn && w.group.phase != idle {
				return true
			}
		} else if id, ok := w.x.msgID[*m]; (!ok || id < states.SetSize && !w.net.Has(id)) && (w.x.mutant.deliver != nil || w.matters(m)) {
			return true
		}
	}
	return len(w.x.out.Timers)+len(w.x.out.Events) > 0
}

// Tidy implements states.State: it forgets what cannot matter any more, so that states which differ in it are one.
func (w *world) Tidy() {
	w.drop(func(k tick) bool { return !w.wants(k) })
	if w.x.mutant.deliver != nil {
		return // might make old messages matter
	}
	for id := range w.net.All {
		if !w.matters(&w.x.messages[id]) {
			w.net.Delete(id)
		}
	}
}

// matters says whether a message can still have an effect, other than that of a report.
func (w *world) matters(m *Message) bool {
	current := m.Txn == w.group.txn && w.group.phase != idle
	if m.To.Job == 0 {
		return current && w.hosts[w.x.host(m.From)].run == m.Run && (w.group.phase == preparing || m.Kind != Busy)
	}
	i := w.x.host(m.To)
	h := &w.hosts[i]
	if w.dead[i] || m.Run < h.run {
		return false
	}
	if h.locked == m.Txn || h.last.Compare(m.Txn) < 0 {
		return true
	}
	switch m.Kind {
	case Ask, Query:
		from := &w.hosts[w.x.host(m.From)]
		return from.run == m.Run && from.locked == m.Txn
	case Prepare, Commit, Abort:
		return current && m.From.Job == 0
	}
	return false
}

// Settled implements states.State. It says whether everything that can go on has done so, by the last state.
func (w *world) Settled() bool {
	g := &w.group
	if g.phase != idle || g.dirty || g.quiet {
		return false
	}
	for j, n := range w.x.jobs {
		if slices.Contains(w.dead[w.x.first[j]:w.x.first[j]+n], true) {
			if w.holds[j] || g.jobs[j].in() {
				return false
			}
			continue
		}
		for i := w.x.first[j]; i < w.x.first[j]+n; i++ {
			h := &w.hosts[i]
			if h.Locked() || h.index < w.x.ops || h.run != w.newest(h.me.Job) || h.version.Epoch != w.epoch {
				return false
			}
		}
		if w.holds[j] || !g.jobs[j].in() {
			return false
		}
	}
	return true
}

// explore visits all states, up to so many.
func explore(b bounds, m mutant, most int) states.Result {
	x := newExplorer(b, m)
	return (&states.Space[*world]{Start: x.start, Most: most, Full: x.full, Free: func(w *world) { x.free = append(x.free, w) }}).Explore()
}

func (x *explorer) full() error {
	if x.overflow {
		return fmt.Errorf("more messages or timers than the explorer has room for: %d and %d", len(x.messages), len(x.ticks))
	}
	return nil
}

// Beyond implements states.State.
func (w *world) Beyond() bool { return w.group.txn.Seq > w.x.txns }

// Exempt implements states.State: no transaction is left, or just one and a host comes back: the
// others go on without it, and then with it.
func (w *world) Exempt() bool { return w.group.txn.Seq+uint64(w.x.crashes) >= w.x.txns }

// What is explored: with -short the least, always, or with -commit.deep all.
const (
	quick = iota
	usual
	long
)

var scopes = []struct {
	name string
	b    bounds
	size int
}{
	{"two hosts, late messages", bounds{jobs: []int{2}, ops: 2, txns: 3, tries: 1, hasty: 3}, quick},
	{"two hosts, lost messages", bounds{jobs: []int{2}, ops: 2, txns: 3, losses: 2, tries: 2, once: true}, quick},
	{"two hosts, one crashes", bounds{jobs: []int{2}, ops: 2, txns: 3, crashes: 1, tries: 1, hasty: 1}, usual},
	{"two hosts, the controller crashes", bounds{jobs: []int{2}, ops: 2, txns: 3, epochs: 2, tries: 1, hasty: 1}, usual},
	{"three hosts, late messages", bounds{jobs: []int{3}, ops: 2, txns: 2, tries: 1, hasty: 1}, usual},
	{"two rivals, one dies", bounds{jobs: []int{1, 1}, ops: 2, txns: 4, deaths: 1, tries: 1, hasty: 1}, usual},
	{"two rivals, one crashes", bounds{jobs: []int{1, 1}, ops: 2, txns: 4, crashes: 1, tries: 1}, quick},
	{"two by two", bounds{jobs: []int{2, 2}, ops: 2, txns: 2, tries: 1}, usual},
	{"two by two, lost messages", bounds{jobs: []int{2, 2}, ops: 1, txns: 3, losses: 1, tries: 2, once: true, eager: true}, quick},
	{"two by two, one dies", bounds{jobs: []int{2, 2}, ops: 1, txns: 3, deaths: 1, tries: 1, once: true, eager: true}, usual},
	{"two by two, one crashes", bounds{jobs: []int{2, 2}, ops: 1, txns: 3, crashes: 1, tries: 1, once: true, eager: true}, usual},
	{"two by one, the controller crashes", bounds{jobs: []int{2, 1}, ops: 1, txns: 3, epochs: 2, tries: 1, once: true, eager: true}, usual},
	{"two by two, the controller crashes", bounds{jobs: []int{2, 2}, ops: 1, txns: 3, epochs: 2, tries: 1, once: true, eager: true}, long},
	{"two by two, late messages", bounds{jobs: []int{2, 2}, ops: 1, txns: 2, tries: 1, hasty: 1}, long},
	{"three hosts, one crashes", bounds{jobs: []int{3}, ops: 2, txns: 3, crashes: 1, tries: 1}, long},
	{"three hosts, the controller crashes", bounds{jobs: []int{3}, ops: 2, txns: 3, epochs: 2, tries: 1}, long},
	{"three hosts, later messages", bounds{jobs: []int{3}, ops: 2, txns: 2, tries: 1, hasty: 2}, long},
	{"two hosts, everything", bounds{jobs: []int{2}, ops: 2, txns: 3, crashes: 1, epochs: 2, losses: 1, tries: 2, once: true}, long},
}

func TestExplore(t *testing.T) {
	for _, s := range scopes {
		t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
			if s.size == long && !*deep || s.size == usual && !proof.Wanted() {
				t.Skip("takes long: -commit.deep, or no -short")
			}
			began := time.Now()
			r := explore(s.b, mutant{}, *most)
			t.Logf("%+v: %d states, %d steps, depth %d, %d settled, %d beyond the bounds, in %.1f s",
				s.b, r.States, r.Steps, r.Depth, r.Settled, r.Cut, time.Since(began).Seconds())
			if r.Broken != nil {
				t.Error(r.Broken)
			} else if r.States >= *most {
				t.Errorf("not all states fit in -commit.most %d", *most)
			}
		})
	}
}

// Every mistake in the protocol is found, and what it breaks.
func TestMutants(t *testing.T) {
	one := func(more func(*bounds)) bounds {
		b := bounds{jobs: []int{2}, ops: 2, txns: 3, tries: 1, hasty: 1}
		if more != nil {
			more(&b)
		}
		return b
	}
	rivals := bounds{jobs: []int{1, 1}, ops: 2, txns: 4, deaths: 1, tries: 1}
	host := func(w *world, n Node) *Host { return &w.hosts[w.x.host(n)] }
	for _, tt := range []struct {
		mutant
		b    bounds
		want error
	}{
		{mutant{name: "indices are not compared", deliver: func(w *world, m *Message) {
			if m.Kind == Ack {
				m.Index = 0
			}
		}}, one(nil), errDiffer},
		{mutant{name: "a lock ends by itself", timeout: func(w *world, n Node, _ Timer) bool {
			if n.Job != 0 {
				host(w, n).release(&w.x.out)
			}
			return n.Job != 0
		}}, one(nil), errDiffer},
		{mutant{name: "rank 0 asks nobody", timeout: func(w *world, n Node, _ Timer) bool {
			if own := n.Job != 0 && n.Rank == 0; own {
				host(w, n).asking = true
				host(w, n).settle(&w.x.out)
				return true
			}
			return false
		}}, one(nil), errDiffer},
		{mutant{name: "no fence", handled: func(w *world, m Message) {
			if m.Kind == Query {
				host(w, m.To).fenced = false
			}
		}}, one(nil), errDiffer},
		{mutant{name: "no promise not to lock", handled: func(w *world, m Message) {
			if h := host(w, m.To); m.Kind == Query && !h.Locked() {
				h.last = Txn{}
			}
		}}, one(nil), errDiffer},
		{mutant{name: "old prepares are obeyed", deliver: func(w *world, m *Message) {
			if m.Kind == Prepare && !host(w, m.To).Locked() {
				host(w, m.To).last = Txn{}
			}
		}}, one(func(b *bounds) { b.changes, b.hasty = 1, 0 }), errDiffer},
		{mutant{name: "runs are not told apart", deliver: func(w *world, m *Message) {
			if m.To.Job != 0 {
				m.Run = host(w, m.To).run
			} else if i := slices.IndexFunc(w.group.parts, func(p part) bool { return p.Node == m.From }); i >= 0 {
				m.Run = w.group.parts[i].Run
			}
		}}, one(func(b *bounds) { b.crashes, b.hasty = 1, 0 }), errDiffer},
		{mutant{name: "nothing is repeated", mute: true}, one(func(b *bounds) { b.losses, b.tries, b.hasty, b.once = 1, 2, 0, true }), states.ErrStuck},
		{mutant{name: "nobody is taken for dead", patient: true}, rivals, states.ErrStuck},
		{mutant{name: "trees of the dead are kept", keepTree: true}, rivals, states.ErrStuck},
		{mutant{name: "switches grant everything", anyTime: true}, rivals, errBoth},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
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
