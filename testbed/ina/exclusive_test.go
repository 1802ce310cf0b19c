package ina

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
)

// member is a host with a Reducer: it takes part in its job's operations, with pauses
// of its own between them.
type member struct {
	t     *testing.T
	w     *world
	r     *Reducer
	port  end
	buf   []byte
	busy  bool
	alarm time.Duration
	ops   []int64 // packets of the operations still to come
	pause func() time.Duration
	veto  func() bool
	ended []ended // operations that are over

	vetoed int
	gone   bool // the process has died
}

type ended struct {
	lock     uint32
	refusals uint32
	vetoes   int
	state    OpState
}

func (m *member) start() {
	if len(m.ops) == 0 || m.gone {
		return
	}
	start := m.r.Start
	if m.veto != nil && m.veto() {
		start = m.r.Veto
		m.vetoed++
	}
	if err := start(m.ops[0], m.w.now); err != nil {
		m.t.Error(err)
	}
	m.ops = m.ops[1:]
	m.pump()
}

func (m *member) receive(b []byte) {
	if m.r.Receive(b, m.w.now) && m.r.State().Over() {
		m.ended = append(m.ended, ended{m.r.Lock(), m.r.Refusals(), m.r.Vetoes(), m.r.State()})
		m.w.at(m.w.now+m.pause(), m.start)
	}
	m.pump()
}

func (m *member) pump() {
	if m.busy || m.gone {
		return
	}
	now := m.w.now
	n := m.r.Resend(now, m.buf)
	if n == 0 {
		n = m.r.Send(now, m.buf)
	}
	if n > 0 {
		m.busy = true
		m.w.send(m.port, m.buf[:n])
		m.w.at(now+time.Microsecond, func() { m.busy = false; m.pump() })
		return
	}
	if d, ok := m.r.Deadline(); ok && (m.alarm <= now || d < m.alarm) {
		m.alarm = d
		m.w.at(d, m.pump)
	}
}

// A plant is a tree of switches. Port 1 of a switch goes up, the others down.
type plant struct {
	*world
	parent map[*node]*node
	port   map[*node]uint32 // of the parent, where the switch is cabled
	depth  map[*node]int
	next   map[*node]uint32 // port not cabled yet
	used   map[*node]uint32 // aggregators handed out
}

const upward = 1

// newPlant grows a tree of the given depth, every inner switch with 1 to 3 below it.
func newPlant(rng *rand.Rand, depth int, l Limits) *plant {
	p := &plant{newWorld(10 * time.Microsecond), map[*node]*node{}, map[*node]uint32{}, map[*node]int{}, map[*node]uint32{}, map[*node]uint32{}}
	p.rng = rng
	var grow func(above *node, level int)
	grow = func(above *node, level int) {
		n := p.newSwitch(512)
		if err := n.Limit(l); err != nil {
			panic(err)
		}
		p.next[n], p.depth[n] = upward+1, level
		if above != nil {
			port := p.cabled(above)
			p.parent[n], p.port[n] = above, port
			above.peer[port], n.peer[upward] = end{n, upward}, end{above, port}
		}
		if level < depth {
			for range 1 + rng.IntN(3) {
				grow(n, level+1)
			}
		}
	}
	grow(nil, 1)
	return p
}

func (p *plant) cabled(n *node) uint32 {
	p.next[n]++
	return p.next[n] - 1
}

// member puts a worker at a port of a switch.
func (p *plant) member(t *testing.T, cfg WorkerConfig, at end) *member {
	t.Helper()
	r, err := NewReducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t: t, w: p.world, r: r, port: at, buf: make([]byte, r.PacketLen())}
	p.worker[at] = m.receive
	return m
}

// addTree gives a job with workers at the given switches the tree up to their lowest
// common ancestor, and returns the ports it uses by switch.
func (p *plant) addTree(t *testing.T, e JobEntry, cfg WorkerConfig, at []*node) ([]*member, map[*node][]uint32) {
	t.Helper()
	root := at[0]
	for _, n := range at[1:] {
		for n != root {
			if p.depth[n] > p.depth[root] {
				n = p.parent[n]
			} else {
				root = p.parent[root]
			}
		}
	}
	tree := map[*node][]uint32{}
	expect := map[*node]uint64{}
	var ms []*member
	for rank, n := range at {
		port := p.cabled(n)
		cfg.Rank = rank
		ms = append(ms, p.member(t, cfg, end{n, port}))
		for ; ; n, port = p.parent[n], p.port[n] {
			expect[n] |= 1 << rank
			if !slices.Contains(tree[n], port) {
				tree[n] = append(tree[n], port)
			}
			if n == root {
				break
			}
		}
	}
	for n, down := range tree {
		n.groups[e.Job] = slices.Clone(down)
		e.Root, e.Expect, e.DownGroup, e.UpPort = n == root, expect[n], e.Job, upward
		e.Base, e.Size = p.used[n], 2*e.Window
		p.used[n] += e.Size
		if !e.Root {
			tree[n] = append(tree[n], upward)
		}
		if err := n.SetJob(e, tree[n]...); err != nil {
			t.Fatal(err)
		}
	}
	return ms, tree
}

// exclude fails the test as soon as a resource has more jobs than its capacity.
func (p *plant) exclude(t *testing.T, l Limits, trees map[uint16]map[*node][]uint32) {
	p.after = func(n *node) {
		users := map[uint32]int{}
		for _, id := range n.Active() {
			ports := trees[id][n]
			if l.Resource == PerSwitch {
				ports = []uint32{wholeSwitch}
			}
			for _, port := range ports {
				if users[port]++; users[port] > l.Capacity {
					t.Fatalf("at %v: jobs %v have port %d at once", p.now, n.Active(), port)
				}
			}
		}
	}
}

// free wants nothing to be held.
func (p *plant) free(t *testing.T) {
	t.Helper()
	for i, n := range p.switches {
		if ids := n.Active(); len(ids) != 0 {
			t.Errorf("switch %d: jobs %v still have it", i, ids)
		}
		for port, r := range n.resources {
			if r.active != 0 {
				t.Errorf("switch %d: port %d is held %d times", i, port, r.active)
			}
		}
	}
}

// Whatever the trees, of one to four levels, and whatever the cables do: all workers of
// a job are told the same about every lock, every sum is exact, no resource ever has
// more jobs than its capacity, and nothing is held in the end.
func TestExclusiveTrees(t *testing.T) {
	rounds := 60
	if !proof.Wanted() {
		rounds = 10
	}
	var granted, denied [5]int // operations by depth
	for round := range rounds {
		rng := rand.New(rand.NewPCG(*seed, uint64(round)))
		depth := 1 + round%4
		l := Limits{Resource: Resource(rng.IntN(2)), Capacity: 1 + rng.IntN(4)/3, Trees: 3}
		d := []trouble{{}, {.02, .02, .2}, {.2, .1, .5}}[rng.IntN(3)]
		ok := t.Run(fmt.Sprintf("%d/depth=%d/per=%v/capacity=%d/%v", round, depth, l.Resource, l.Capacity, d), func(t *testing.T) {
			p := newPlant(rng, depth, l)
			const jobs, ops = 3, 12
			near := uint64(rng.IntN(2)) // PSNs begin at 0, or not long before they wrap
			trees := map[uint16]map[*node][]uint32{}
			var members [jobs][]*member
			var sizes [jobs][]int64 // packets of each operation
			for i := range jobs {
				id := uint16(i + 1)
				at := make([]*node, 1+rng.IntN(5))
				for k := range at {
					at[k] = p.switches[rng.IntN(len(p.switches))]
				}
				window := 1 + rng.IntN(8)
				cfg := WorkerConfig{Job: id, Epoch: 3, Workers: len(at), Lanes: 1 + rng.IntN(9), Window: 1 + rng.IntN(window), Region: 2 * window,
					RTO: 300 * time.Microsecond, Seed: *seed}
				ms, tree := p.addTree(t, JobEntry{Job: id, Epoch: 3, Mode: Exclusive, Window: uint32(window)}, cfg, at)
				begin := near * (1<<32 - uint64(rng.IntN(200)))
				for _, m := range ms {
					w := m.r.w
					w.base, w.next, w.edge, w.allowed = begin, begin, begin, begin
				}
				members[i], trees[id] = ms, tree
				for range ops {
					sizes[i] = append(sizes[i], rng.Int64N(30))
				}
				for _, m := range ms {
					m.ops = sizes[i]
					m.pause = func() time.Duration { return time.Duration(rng.IntN(500)) * time.Microsecond }
					m.veto = func() bool { return rng.IntN(30) == 0 }
					p.at(m.pause(), m.start)
				}
			}
			p.loss, p.dup, p.reorder = d.loss, d.dup, d.reorder
			p.exclude(t, l, trees)
			p.run(60 * time.Second)

			for i, ms := range members {
				var yes, no, packets int64
				var vetoes, vetoed int
				for rank, m := range ms {
					if len(m.ended) != ops || !m.r.State().Over() {
						t.Errorf("job %d rank %d: %d of %d operations are over, the last is %v", i+1, rank, len(m.ended), ops, m.r.State())
					}
					if !slices.Equal(m.ended, ms[0].ended) {
						t.Errorf("job %d: rank %d was told %v, rank 0 %v", i+1, rank, m.ended, ms[0].ended)
					}
					vetoed += m.vetoed
				}
				for k, op := range ms[0].ended {
					if op.state == OpDone {
						yes++
						packets += sizes[i][k]
					} else {
						no++
					}
					if vetoes += op.vetoes; op.vetoes > 0 && op.state != OpRefused {
						t.Errorf("job %d: an operation with %d vetoes is %v", i+1, op.vetoes, op.state)
					}
				}
				if vetoes != vetoed {
					t.Errorf("job %d: %d vetoes, its workers were told of %d", i+1, vetoed, vetoes)
				}
				for rank, m := range ms {
					if st := m.r.Stats(); st.Wrong != 0 || st.Checked != packets*int64(m.r.w.cfg.Lanes) {
						t.Errorf("job %d rank %d: %d values checked, %d wrong; %d packets were reduced", i+1, rank, st.Checked, st.Wrong, packets)
					}
				}
				for n := range trees[uint16(i+1)] {
					c := n.Counters(uint16(i + 1))
					if c.Locks.Packets != yes || c.Refused.Packets != no || c.Releases != yes {
						t.Errorf("job %d: a switch counts %d operations granted, %d refused, %d ended; they were %d and %d",
							i+1, c.Locks.Packets, c.Refused.Packets, c.Releases, yes, no)
					}
					if c.In.Packets != c.Aggregated.Packets+c.Duplicates.Packets {
						t.Errorf("job %d: in %d = aggregated %d + duplicates %d does not hold", i+1, c.In.Packets, c.Aggregated.Packets, c.Duplicates.Packets)
					}
				}
				granted[depth] += int(yes)
				denied[depth] += int(no)
			}
			p.free(t)
		})
		if !ok {
			t.Fatalf("round %d failed with -seed=%d", round, *seed)
		}
	}
	for depth := 1; depth <= 4; depth++ {
		t.Logf("depth %d: %d operations granted, %d refused", depth, granted[depth], denied[depth])
		if granted[depth] == 0 || denied[depth] == 0 {
			t.Errorf("depth %d: %d operations granted and %d refused, the test needs both", depth, granted[depth], denied[depth])
		}
	}
}

// A tree that is deleted wherever its job happens to be, switch by switch, and written
// again in the next epoch, holds nobody up: the other job and the new workers come to the
// end of all their operations.
func TestTreeIsReplaced(t *testing.T) {
	rounds := 40
	if !proof.Wanted() {
		rounds = 8
	}
	for round := range rounds {
		rng := rand.New(rand.NewPCG(*seed, uint64(1000+round)))
		l := Limits{Resource: Resource(round % 2), Capacity: 1, Trees: 2}
		p := newPlant(rng, 1+round%4, l)
		p.loss, p.dup, p.reorder = .05, .05, .3
		trees := map[uint16]map[*node][]uint32{}
		work := func(m *member, ops int) {
			m.pause = func() time.Duration { return time.Duration(rng.IntN(300)) * time.Microsecond }
			for k := range ops {
				m.ops = append(m.ops, int64(3*k%20)) // the same for all workers
			}
			p.at(p.now+m.pause(), m.start)
		}
		var jobs [2][]*member
		var cfgs [2]WorkerConfig
		for i := range jobs {
			id := uint16(i + 1)
			at := make([]*node, 1+rng.IntN(4))
			for k := range at {
				at[k] = p.switches[rng.IntN(len(p.switches))]
			}
			cfgs[i] = WorkerConfig{Job: id, Workers: len(at), Lanes: 2, Window: 4, Region: 8, RTO: 300 * time.Microsecond, Seed: *seed}
			jobs[i], trees[id] = p.addTree(t, JobEntry{Job: id, Mode: Exclusive, Window: 4}, cfgs[i], at)
			for _, m := range jobs[i] {
				work(m, 20)
			}
		}
		p.exclude(t, l, trees)
		p.run(time.Duration(1+rng.IntN(20_000)) * time.Microsecond)

		entries := map[*node]JobEntry{}
		for _, n := range p.switches {
			if e, ok := n.Job(1); ok {
				entries[n] = e
				p.at(p.now+time.Duration(rng.IntN(500))*time.Microsecond, func() { n.DeleteJob(1) })
			}
		}
		p.run(p.now + 500*time.Microsecond)
		cfgs[0].Epoch++
		for rank, old := range jobs[0] {
			old.gone = true
			cfgs[0].Rank = rank
			jobs[0][rank] = p.member(t, cfgs[0], old.port)
			work(jobs[0][rank], 20)
		}
		for n, e := range entries {
			e.Epoch++
			if err := n.SetJob(e, trees[1][n]...); err != nil {
				t.Fatal(err)
			}
		}
		p.run(p.now + 30*time.Second)
		for i, ms := range jobs {
			for rank, m := range ms {
				if len(m.ended) != 20 || !slices.Equal(m.ended, ms[0].ended) || m.r.Stats().Wrong != 0 {
					t.Errorf("round %d, seed %d: job %d rank %d: %v, rank 0 %v, %+v", round, *seed, i+1, rank, m.ended, ms[0].ended, m.r.Stats())
				}
			}
		}
		p.free(t)
	}
}

// The whole of an operation costs a switch no allocation.
func TestExclusiveDoesNotAllocate(t *testing.T) {
	s := exclusiveSwitch(t, Limits{Resource: PerPort, Capacity: 1, Trees: 1})
	if err := s.SetJob(JobEntry{Job: 1, Mode: Exclusive, Size: 16, Expect: 3, Window: 8, Root: true}, 1, 2); err != nil {
		t.Fatal(err)
	}
	psn := uint32(0)
	packets := [3][2][]byte{}
	for i, f := range []Flags{FlagLock, 0, FlagUnlock} {
		for rank := range packets[i] {
			packets[i][rank] = opPacket(1, rank, 0, f, 0)
		}
	}
	if n := testing.AllocsPerRun(1000, func() {
		for _, pair := range packets {
			for _, b := range pair {
				binary.BigEndian.PutUint32(b[4:], psn)
				s.Process(1, b, 0)
			}
			psn++
		}
	}); n != 0 {
		t.Errorf("%v allocations per operation", n)
	}
	if c := s.Counters(1); c.Locks.Packets < 1000 || c.Releases != c.Locks.Packets || c.Inactive.Packets != 0 {
		t.Errorf("counters %+v", c)
	}
}

func exclusiveSwitch(t testing.TB, l Limits) *Switch {
	t.Helper()
	s := NewSwitch(64)
	if err := s.Limit(l); err != nil {
		t.Fatal(err)
	}
	return s
}

// opPacket is a packet of an operation, with two lanes.
func opPacket(job uint16, rank int, psn uint32, f Flags, lane0 int32) []byte {
	b := make([]byte, HeaderLen+4*OpLanes)
	Header{Flags: f, Job: job, PSN: psn, Rank: uint8(rank), Lanes: OpLanes, Bitmap: 1 << rank}.Put(b)
	sealOp(b[HeaderLen:], uint32(lane0))
	return b
}

// both makes b a packet of the workers 0 and 1.
func both(b []byte) []byte {
	b[21] = 3
	if b[1]&byte(FlagLock|FlagUnlock) != 0 {
		binary.BigEndian.PutUint32(b[HeaderLen+4:], binary.BigEndian.Uint32(b[HeaderLen+4:])+Seal)
	}
	return b
}

// damaged has one bit of b flipped.
func damaged(b []byte, bit int) []byte {
	b[bit/8] ^= 0x80 >> (bit % 8)
	return b
}

// A turn packet by packet, at a root and at a switch below one.
func TestTurns(t *testing.T) {
	const up = 9
	type step struct {
		name   string
		port   uint32
		b      []byte
		reason Reason
		lane0  int32    // of what is sent, if anything is
		active []uint16 // afterwards
	}
	for _, tc := range []struct {
		name  string
		root  bool
		steps []step
	}{
		{"root", true, []step{
			{"gradients without a turn", 2, opPacket(1, 0, 0, 0, 5), NoTurn, 0, nil},
			{"a lock whose refusals are damaged", 2, damaged(opPacket(1, 0, 0, FlagLock, 0), 8*HeaderLen+7), Malformed, 0, nil},
			{"a lock of workers that are not in it", 2, damaged(opPacket(1, 0, 0, FlagLock, 0), 8*21+6), Malformed, 0, nil},
			{"not all have asked", 2, opPacket(1, 0, 0, FlagLock, 0), Absorbed, 0, nil},
			{"all have", 3, opPacket(1, 1, 0, FlagLock, 0), Completed, 0, []uint16{1}},
			{"the other job", 4, both(opPacket(2, 0, 0, FlagLock, 0)), Completed, 1, []uint16{1}},
			{"is told the same again", 4, both(opPacket(2, 0, 0, FlagLock|FlagResend, 0)), Answered, 1, []uint16{1}},
			{"and has no turn", 4, both(opPacket(2, 0, 1, 0, 5)), NoTurn, 0, []uint16{1}},
			{"gradients", 2, opPacket(1, 0, 1, 0, 5), Absorbed, 0, []uint16{1}},
			{"a lock where gradients are summed", 3, opPacket(1, 1, 1, FlagLock, 0), Malformed, 0, []uint16{1}},
			{"are summed", 3, opPacket(1, 1, 1, 0, 6), Completed, 11, []uint16{1}},
			{"a worker unlocks", 2, opPacket(1, 0, 2, FlagUnlock, 0), Absorbed, 0, []uint16{1}},
			{"another lacks a result", 3, opPacket(1, 1, 1, FlagResend, 6), Answered, 11, []uint16{1}},
			{"and unlocks too", 3, opPacket(1, 1, 2, FlagUnlock, 0), Completed, 0, nil},
			{"asks again", 3, opPacket(1, 1, 2, FlagUnlock|FlagResend, 0), Answered, 0, nil},
			{"a gradient that became an unlock", 4, damaged(both(opPacket(2, 0, 2, 0, 5)), 8+1), Malformed, 0, nil},
			{"gradients that come late", 2, opPacket(1, 0, 1, 0, 5), NoTurn, 0, nil},
			{"a lock that comes late", 2, opPacket(1, 0, 0, FlagLock, 0), Duplicate, 0, nil},
			{"the other job's turn", 4, both(opPacket(2, 0, 1, FlagLock, 0)), Completed, 0, []uint16{2}},
			{"lock and unlock at once", 4, both(opPacket(2, 0, 2, FlagLock|FlagUnlock, 0)), Malformed, 0, []uint16{2}},
			{"a lock without an unlock before", 4, both(opPacket(2, 0, 2, FlagLock, 0)), Completed, 0, []uint16{2}},
			{"a result at the root", 4, both(opPacket(2, 0, 2, FlagUnlock|FlagResult, 0)), Malformed, 0, []uint16{2}},
		}},
		{"below", false, []step{
			{"job 1 asks", 2, both(opPacket(1, 0, 0, FlagLock, 0)), Completed, 0, []uint16{1}},
			{"job 2 is refused here", 4, both(opPacket(2, 0, 0, FlagLock, 0)), Completed, 1, []uint16{1}},
			{"no gradients before the answer", 2, both(opPacket(1, 0, 1, 0, 5)), NoTurn, 0, []uint16{1}},
			{"job 1 is refused above", up, both(opPacket(1, 0, 0, FlagLock|FlagResult, 2)), Result, 2, nil},
			{"job 2 hears what it was told", up, both(opPacket(2, 0, 0, FlagLock|FlagResult, 1)), Result, 1, nil},
			{"job 2 again", 4, both(opPacket(2, 0, 1, FlagLock, 0)), Completed, 0, []uint16{2}},
			{"the old answer again", up, both(opPacket(2, 0, 0, FlagLock|FlagResult, 1)), Result, 1, []uint16{2}},
			{"an answer from below", 4, both(opPacket(2, 0, 1, FlagLock|FlagResult, 1)), Malformed, 0, []uint16{2}},
			{"a grant that was damaged", up, damaged(both(opPacket(2, 0, 1, FlagLock|FlagResult, 0)), 8*HeaderLen+31), Malformed, 0, []uint16{2}},
			{"granted", up, both(opPacket(2, 0, 1, FlagLock|FlagResult, 0)), Result, 0, []uint16{2}},
			{"granted twice", up, both(opPacket(2, 0, 1, FlagLock|FlagResult, 0)), Result, 0, []uint16{2}},
			{"gradients", 4, both(opPacket(2, 0, 2, 0, 5)), Completed, 5, []uint16{2}},
			{"refused below", 2, both(opPacket(1, 0, 1, FlagLock, 3)), Completed, 3, []uint16{2}},
			{"a result that became an unlock", up, damaged(both(opPacket(2, 0, 2, FlagResult, 5)), 8+1), Malformed, 0, []uint16{2}},
			{"unlock goes up", 4, both(opPacket(2, 0, 3, FlagUnlock, 0)), Completed, 0, []uint16{2}},
			{"and ends the turn coming down", up, both(opPacket(2, 0, 3, FlagUnlock|FlagResult, 0)), Result, 0, nil},
			{"next operation", 4, both(opPacket(2, 0, 4, FlagLock, 0)), Completed, 0, []uint16{2}},
			{"the old unlock again", up, both(opPacket(2, 0, 3, FlagUnlock|FlagResult, 0)), Result, 0, []uint16{2}},
			{"granted", up, both(opPacket(2, 0, 4, FlagLock|FlagResult, 0)), Result, 0, []uint16{2}},
			{"and once more", up, both(opPacket(2, 0, 3, FlagUnlock|FlagResult, 0)), Result, 0, []uint16{2}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := exclusiveSwitch(t, Limits{Capacity: 1, Trees: 2})
			for id := uint16(1); id <= 2; id++ {
				if err := s.SetJob(JobEntry{Job: id, Mode: Exclusive, Base: 16 * uint32(id), Size: 16, Expect: 3, Window: 8, Root: tc.root, UpPort: up}); err != nil {
					t.Fatal(err)
				}
			}
			for _, st := range tc.steps {
				v := s.Process(st.port, st.b, 0)
				var lane0 int32
				if v.N > 0 {
					lane0 = int32(binary.BigEndian.Uint32(v.Out[0].Data[HeaderLen:]))
				}
				if v.Reason != st.reason || lane0 != st.lane0 || !slices.Equal(s.Active(), st.active) {
					t.Fatalf("%s: %v, lane 0 %d, active %v; want %v, %d, %v", st.name, v.Reason, lane0, s.Active(), st.reason, st.lane0, st.active)
				}
			}
		})
	}
}

// Deleting a job's entry, or replacing it by that of the next epoch, ends its turn.
func TestEntryEndsTurn(t *testing.T) {
	for _, r := range []Resource{PerSwitch, PerPort} {
		s := exclusiveSwitch(t, Limits{Resource: r, Capacity: 1, Trees: 1})
		e := JobEntry{Job: 1, Mode: Exclusive, Size: 16, Expect: 1, Window: 8, Root: true}
		for epoch := range uint16(3) {
			e.Epoch = epoch
			if err := s.SetJob(e, 1, 2); err != nil {
				t.Fatal(err)
			}
			if len(s.Active()) != 0 {
				t.Errorf("per %v, epoch %d begins with a turn", r, epoch)
			}
			b := opPacket(1, 0, 0, FlagLock, 0)
			binary.BigEndian.PutUint16(b[8:], epoch)
			s.Process(1, b, 0)
			if !slices.Equal(s.Active(), []uint16{1}) {
				t.Errorf("per %v, epoch %d: the lock was not granted", r, epoch)
			}
		}
		s.DeleteJob(1)
		if len(s.Active()) != 0 || len(s.resources) != 0 {
			t.Errorf("per %v: active %v, resources %v after the entry is gone", r, s.Active(), s.resources)
		}
	}
}

func TestExclusiveRefused(t *testing.T) {
	good := JobEntry{Job: 1, Mode: Exclusive, Size: 16, Expect: 3, Window: 8}
	perPort := Limits{Resource: PerPort, Capacity: 1, Trees: 1}
	for _, tc := range []struct {
		name  string
		l     Limits
		edit  func(*JobEntry)
		ports []uint32
		quota bool
		want  string
	}{
		{"no trees", Limits{}, nil, nil, false, "quota of trees is 0"},
		{"one too many", Limits{Capacity: 1, Trees: 1}, func(e *JobEntry) { e.Job, e.Base = 2, 16 }, nil, true, "has its 1 exclusive trees"},
		{"no memory", Limits{Capacity: 1, Trees: 2}, func(e *JobEntry) { e.Size = 0 }, nil, false, "twice its window, 16"},
		{"too little memory", Limits{Capacity: 1, Trees: 2}, func(e *JobEntry) { e.Size = 15 }, nil, false, "15 slots for window 8"},
		{"another's memory", Limits{Capacity: 1, Trees: 2}, func(e *JobEntry) { e.Job, e.Base = 2, 8 }, nil, false, "overlap those of job 1"},
		{"no ports", perPort, nil, nil, false, "without ports"},
		{"a port twice", perPort, nil, []uint32{3, 4, 3}, false, "port 3 twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := exclusiveSwitch(t, tc.l)
			e := good
			if tc.edit != nil {
				if err := s.SetJob(good); err != nil {
					t.Fatal(err)
				}
				tc.edit(&e)
			}
			err := s.SetJob(e, tc.ports...)
			if !errors.Is(err, ErrEntry) || errors.Is(err, ErrQuota) != tc.quota || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q, of the quota: %v", err, tc.want, tc.quota)
			}
			if got, ok := s.Job(1); tc.edit != nil && got != good || ok != (tc.edit != nil) {
				t.Errorf("entry of job 1 became %+v", got)
			}
		})
	}
	for _, l := range []Limits{{Trees: 1}, {Trees: -1}, {Capacity: 1, Trees: MaxJob + 1}, {Resource: 2, Capacity: 1, Trees: 1}} {
		if err := NewSwitch(1).Limit(l); err == nil {
			t.Errorf("limits %+v are accepted", l)
		}
	}
	s := exclusiveSwitch(t, Limits{Capacity: 1, Trees: 1})
	if err := s.SetJob(good); err != nil {
		t.Fatal(err)
	}
	if err := s.Limit(Limits{}); err == nil {
		t.Error("limits changed under a tree")
	}
}

// A Reducer holds to the order of an operation and counts what is not part of it.
func TestReducerAlone(t *testing.T) {
	r, err := NewReducer(WorkerConfig{Job: 1, Workers: 1, Lanes: 4, Window: 4, Region: 8, RTO: time.Millisecond, Seed: *seed})
	if err != nil {
		t.Fatal(err)
	}
	s := exclusiveSwitch(t, Limits{Capacity: 1, Trees: 1})
	if err := s.SetJob(JobEntry{Job: 1, Mode: Exclusive, Size: 8, Expect: 1, Window: 4, Root: true}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, r.PacketLen())
	for _, packets := range []int64{0, 1, 10} {
		if err := r.Start(packets, 0); err != nil {
			t.Fatal(err)
		}
		if err := r.Start(packets, 0); err == nil {
			t.Error("two operations at once")
		}
		sent := int64(0)
		for !r.State().Over() {
			state, lock := r.State(), r.Lock()
			n := r.Send(0, buf)
			h, err := ParseHeader(buf[:n])
			want := map[OpState]Flags{OpLocking: FlagLock, OpUnlocking: FlagUnlock}[state]
			if err != nil || h.Flags != want || h.PSN != lock+uint32(sent) {
				t.Fatalf("while %v: %d bytes, %+v, %v", state, n, h, err)
			}
			if psn, _, ok := r.Next(); state != OpReducing && ok {
				t.Fatalf("while %v: PSN %d may be sent too", state, psn)
			}
			result := slices.Clone(s.Process(1, buf[:n], 0).Out[0].Data)
			wrong := slices.Clone(result)
			wrong[1] ^= byte(FlagUnlock)
			if r.Receive(wrong, 0) || !r.Receive(result, 0) || r.Receive(result, 0) {
				t.Fatalf("while %v: takes results it should not, or not the one it should", state)
			}
			sent++
		}
		if sent != packets+2 || r.State() != OpDone || r.Refusals() != 0 {
			t.Errorf("operation of %d packets ended as %v after %d, refused %d times", packets, r.State(), sent, r.Refusals())
		}
	}
	if st := r.Stats(); st.Wrong != 0 || st.Checked != 11*4 || st.Stray != 17 || st.Duplicate != 17 {
		t.Errorf("%+v", st)
	}
	if err := r.Start(-1, 0); err == nil {
		t.Error("an operation of -1 packets")
	}
}

// Whatever comes, in whatever order, a Reducer keeps to its operation: a lock alone, then
// gradients within the window, then an unlock alone; and it takes each result once.
func FuzzReducer(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 2, 0, 0, 1, 3})
	f.Add([]byte{0, 0, 2, 0, 0, 0, 1, 1, 3, 9})
	f.Fuzz(func(t *testing.T, script []byte) {
		const window, packets = 4, 6
		r, err := NewReducer(WorkerConfig{Job: 1, Workers: 1, Lanes: 2, Window: window, Region: 2 * window, RTO: time.Millisecond, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, r.PacketLen())
		has := map[uint32]bool{}
		var now time.Duration
		if err := r.Start(packets, now); err != nil {
			t.Fatal(err)
		}
		for ; len(script) >= 2; script = script[2:] {
			x := uint32(script[1])
			switch script[0] % 4 {
			case 0:
				n := r.Send(now, b)
				if n == 0 {
					if r.State().Over() && r.Start(packets, now) != nil {
						t.Fatalf("%v, and cannot start", r.State())
					}
					continue
				}
				h, err := ParseHeader(b[:n])
				at := h.PSN - r.Lock()
				want := map[uint32]Flags{0: FlagLock, packets + 1: FlagUnlock}[at]
				if err != nil || h.Flags != want || at > packets+1 || h.PSN >= window && !has[h.PSN-window] ||
					at > 0 && !has[r.Lock()] || at > packets && !has[h.PSN-1] {
					t.Fatalf("while %v, sent %+v: %v", r.State(), h, err)
				}
			case 1, 2: // a result, refused in case 2
				h := Header{Job: 1, PSN: x, Flags: FlagResult, Lanes: 2, Bitmap: 1}
				switch x - r.Lock() {
				case 0:
					h.Flags, h.Lanes = h.Flags|FlagLock, 1
				case packets + 1:
					h.Flags, h.Lanes = h.Flags|FlagUnlock, 1
				}
				h.Put(b)
				clear(b[HeaderLen:])
				if h.Lanes == 2 {
					r.w.ref.Sum(b[HeaderLen:], x)
				}
				b[HeaderLen+3] += script[0] % 4 & 2 * byte(h.Flags&FlagLock>>5)
				if r.Receive(b, now) {
					if has[x] {
						t.Fatalf("took the result of PSN %d twice", x)
					}
					has[x] = true
				}
			case 3:
				now += time.Duration(x) * 100 * time.Microsecond
				if n := r.Resend(now, b); n > 0 {
					if h, err := ParseHeader(b[:n]); err != nil || h.Flags&FlagResend == 0 || has[h.PSN] || h.PSN-r.Lock() > packets+1 {
						t.Fatalf("while %v, sent again %+v: %v", r.State(), h, err)
					}
				}
			}
			if s := r.Stats(); s.Wrong != 0 || int(s.Results) != len(has) {
				t.Fatalf("%+v with %d results", s, len(has))
			}
		}
	})
}

// A worker does not believe an answer in which any bit was flipped: it stays where it is,
// counts a wrong value, and takes the true answer when it has asked again.
func TestDamagedAnswersAreNotBelieved(t *testing.T) {
	for _, refusals := range []uint32{0, 3, 2*veto + 1} {
		r, err := NewReducer(WorkerConfig{Job: 1, Rank: 0, Workers: 1, Lanes: 1, Window: 4, Region: 8, RTO: time.Millisecond, Seed: *seed})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(0, 0); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, r.PacketLen())
		b = b[:r.Send(0, b)]
		b[1] |= byte(FlagResult)
		sealOp(b[HeaderLen:], refusals)
		for bit := 8 * HeaderLen; bit < 8*len(b); bit++ {
			if r.Receive(damaged(slices.Clone(b), bit), 0) || r.State() != OpLocking {
				t.Fatalf("%d refusals, bit %d flipped: %v", refusals, bit, r.State())
			}
		}
		if st := r.Stats(); st.Wrong != 8*4*OpLanes || st.Results != 0 {
			t.Errorf("%d refusals: %+v", refusals, st)
		}
		want := OpUnlocking
		if refusals > 0 {
			want = OpRefused
		}
		if !r.Receive(b, 0) || r.State() != want {
			t.Errorf("%d refusals: %v, want %v", refusals, r.State(), want)
		}
	}
}
