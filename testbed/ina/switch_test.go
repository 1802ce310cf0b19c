package ina

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
)

var seed = flag.Uint64("seed", 1, "seed of randomised tests")

// world is a rack, or two, in virtual time: switches, and hosts that only these
// tests know. Cables damage what they carry when asked to.
type world struct {
	rng   *rand.Rand
	now   time.Duration
	queue events
	count int

	delay              time.Duration // of every cable
	loss, dup, reorder float64

	switches []*node
	worker   map[end]func(b []byte) // by the switch port it is cabled to
	after    func(*node)            // a switch has processed a packet
	damage   func(b []byte) []byte  // what comes out of a cable, of what went in
}

// end is a switch port.
type end struct {
	sw   *node
	port uint32
}

// node is a switch with its cables to other switches and its multicast groups.
type node struct {
	*Switch
	peer   map[uint32]end
	groups map[uint16][]uint32
}

type event struct {
	at time.Duration
	n  int // events at the same time run in the order they were made
	do func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	x := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return x
}

func newWorld(delay time.Duration) *world {
	return &world{rng: rand.New(rand.NewPCG(*seed, 0)), delay: delay, worker: map[end]func([]byte){}}
}

func (w *world) newSwitch(aggregators int) *node {
	n := &node{Switch: NewSwitch(aggregators), peer: map[uint32]end{}, groups: map[uint16][]uint32{}}
	w.switches = append(w.switches, n)
	return n
}

func (w *world) at(t time.Duration, do func()) {
	w.count++
	heap.Push(&w.queue, event{t, w.count, do})
}

func (w *world) run(until time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= until {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
	w.now = until
}

// cable carries a copy of b and hands it to do.
func (w *world) cable(b []byte, do func([]byte)) {
	if w.rng.Float64() < w.loss {
		return
	}
	for range 1 + btoi(w.rng.Float64() < w.dup) {
		d := w.delay
		if w.rng.Float64() < w.reorder {
			d += time.Duration(w.rng.Float64() * 4 * float64(w.delay))
		}
		c := slices.Clone(b)
		if w.damage != nil {
			c = w.damage(c)
		}
		w.at(w.now+d, func() { do(c) })
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// send is what a host does: a packet into the cable of its port.
func (w *world) send(to end, b []byte) { w.cable(b, func(b []byte) { w.arrive(to, b) }) }

func (w *world) arrive(at end, b []byte) {
	v := at.sw.Process(at.port, b, w.now)
	if w.after != nil {
		w.after(at.sw)
	}
	for _, o := range v.Out[:v.N] {
		ports := []uint32{o.Port}
		if o.Dir == Down {
			ports = at.sw.groups[o.Group]
		}
		for _, p := range ports {
			out := end{at.sw, p}
			if to, ok := at.sw.peer[p]; ok {
				w.send(to, o.Data)
			} else {
				w.cable(o.Data, w.worker[out])
			}
		}
	}
}

const testLanes = 5

// gradient is what worker rank contributes to a lane; some sums wrap.
func testGradient(job uint16, rank int, psn uint32, lane int) int32 {
	return int32(uint32(rank+1)*0x3C6E_F372 ^ psn*0x9E37_79B9 ^ uint32(job)<<20 ^ uint32(lane)*0x85EB_CA6B)
}

// testWorker streams packets with a window, or paced, and checks every result.
type testWorker struct {
	w        *world
	t        testing.TB
	port     end
	e        JobEntry
	rank     int
	expect   uint64
	slot     func(psn uint32) uint16
	total    uint32 // PSNs to send; paced workers ignore the window
	base     uint32 // lowest PSN without result
	next     uint32
	done     map[uint32]bool
	resends  int
	rto      time.Duration
	overflow int
}

func (k *testWorker) packet(psn uint32, f Flags) []byte {
	b := make([]byte, HeaderLen+4*testLanes)
	h := Header{Flags: f, Job: k.e.Job, PSN: psn, Epoch: k.e.Epoch, Rank: uint8(k.rank), Lanes: testLanes, Bitmap: 1 << k.rank}
	if k.slot != nil {
		h.Slot = k.slot(psn)
	}
	h.Put(b)
	for i := range testLanes {
		binary.BigEndian.PutUint32(b[HeaderLen+4*i:], uint32(testGradient(k.e.Job, k.rank, psn, i)))
	}
	return b
}

func (k *testWorker) fill() {
	for k.next < k.total && k.next < k.base+k.e.Window {
		psn := k.next
		k.next++
		k.w.send(k.port, k.packet(psn, 0))
		k.timer(psn)
	}
}

func (k *testWorker) timer(psn uint32) {
	if k.rto == 0 {
		return
	}
	k.w.at(k.w.now+k.rto+time.Duration(k.w.rng.Float64()*float64(k.rto)), func() {
		if !k.done[psn] {
			k.resends++
			k.w.send(k.port, k.packet(psn, FlagResend))
			k.timer(psn)
		}
	})
}

func (k *testWorker) receive(b []byte) {
	h, err := ParseHeader(b)
	if err != nil || h.Flags&FlagResult == 0 || h.Job != k.e.Job || h.Epoch != k.e.Epoch {
		k.t.Errorf("worker %d of job %d got %+v, %v", k.rank, k.e.Job, h, err)
		return
	}
	if h.Bitmap != k.expect {
		k.t.Errorf("psn %d: result of workers %b, want %b", h.PSN, h.Bitmap, k.expect)
	}
	wrapped := false
	for i := range testLanes {
		var want int32
		var exact int64
		for r := range MaxWorkers {
			if k.expect>>r&1 == 1 {
				g := testGradient(k.e.Job, r, h.PSN, i)
				want += g
				exact += int64(g)
			}
		}
		wrapped = wrapped || exact != int64(want)
		if got := int32(binary.BigEndian.Uint32(b[HeaderLen+4*i:])); got != want {
			k.t.Errorf("job %d psn %d lane %d: %d, want %d", k.e.Job, h.PSN, i, got, want)
		}
	}
	if wrapped && h.Flags&FlagOverflow != 0 {
		k.overflow++
	}
	k.done[h.PSN] = true
	for k.done[k.base] {
		k.base++
	}
	if k.rto != 0 {
		k.fill()
	}
}

// testPS merges by bitmap and answers finished PSNs from memory.
type testPS struct {
	w       *world
	port    end
	expect  uint64
	part    map[uint32][]byte
	arrived int // packets of PSNs not yet finished
}

func (p *testPS) receive(b []byte) {
	h, err := ParseHeader(b)
	if err != nil {
		return
	}
	have, ok := p.part[h.PSN]
	if !ok {
		p.arrived++
		p.part[h.PSN] = b
		have = b
	} else if old, _ := ParseHeader(have); old.Bitmap != p.expect {
		p.arrived++
		switch {
		case old.Bitmap&h.Bitmap == 0:
			var s sum
			s.load(have[HeaderLen:])
			if s.add(b[HeaderLen:]) {
				old.Flags |= FlagOverflow
			}
			s.store(have[HeaderLen:])
			old.Bitmap |= h.Bitmap
			old.Flags |= h.Flags & (FlagECN | FlagOverflow)
			old.Put(have)
		case h.Bitmap&old.Bitmap == old.Bitmap:
			p.part[h.PSN], have = b, b
		}
	}
	if now, _ := ParseHeader(have); now.Bitmap == p.expect {
		now.Flags = now.Flags&^(FlagResend|FlagCollision) | FlagResult
		now.Rank = NoRank
		now.Put(have)
		p.w.send(p.port, have)
	}
}

// addJob cables workers and a PS of a job to a tree of switches. Ranks are dealt to
// the leaves in turn; with no leaves they are at the root.
func (w *world) addJob(t testing.TB, e JobEntry, root *node, leaves []*node, workers int) ([]*testWorker, *testPS) {
	t.Helper()
	const psPort, upPort = 1000, 2000
	all := uint64(1)<<workers - 1
	e.DownGroup, e.UpPort, e.Root = e.Job, psPort+uint32(e.Job), true
	e.Expect = all
	ps := &testPS{w: w, port: end{root, e.UpPort}, expect: all, part: map[uint32][]byte{}}
	w.worker[ps.port] = ps.receive
	re := e
	if e.Addressing == ATP && len(leaves) > 0 {
		re.Addressing = Hash // as controllers do: see ATP
	}
	if err := root.SetJob(re); err != nil {
		t.Fatal(err)
	}
	var ks []*testWorker
	below := make([]uint64, len(leaves))
	for r := range workers {
		at := root
		if len(leaves) > 0 {
			at = leaves[r%len(leaves)]
			below[r%len(leaves)] |= 1 << r
		}
		k := &testWorker{w: w, t: t, port: end{at, uint32(e.Job)<<8 + uint32(r)}, e: e, rank: r, expect: all, done: map[uint32]bool{}}
		w.worker[k.port] = k.receive
		at.groups[e.Job] = append(at.groups[e.Job], k.port.port)
		ks = append(ks, k)
	}
	for i, l := range leaves {
		down := uint32(3000 + i)
		l.peer[upPort] = end{root, down}
		root.peer[down] = end{l, upPort}
		root.groups[e.Job] = append(root.groups[e.Job], down)
		le := e
		le.Expect, le.UpPort, le.Root = below[i], upPort, false
		if err := l.SetJob(le); err != nil {
			t.Fatal(err)
		}
	}
	return ks, ps
}

// Every worker gets every sum bit for bit, whatever the cables do, and afterwards no
// statistical aggregator is left taken.
func TestSumsAreExact(t *testing.T) {
	type damage struct{ loss, dup, reorder float64 }
	for _, levels := range []int{1, 2} {
		for _, mode := range []Mode{Forward, Statistical, Synchronous} {
			for _, addressing := range []Addressing{Pool, Hash, Linear, ATP} {
				if mode != Statistical && addressing != Pool || mode == Forward && levels == 2 {
					continue
				}
				for _, d := range []damage{{}, {.05, .02, .2}, {.3, .1, .5}} {
					t.Run(fmt.Sprintf("levels=%d/mode=%d/addressing=%d/loss=%v", levels, mode, addressing, d.loss), func(t *testing.T) {
						exact(t, levels, mode, addressing, d.loss, d.dup, d.reorder)
					})
				}
			}
		}
	}
}

func exact(t *testing.T, levels int, mode Mode, addressing Addressing, loss, dup, reorder float64) {
	w := newWorld(10 * time.Microsecond)
	root := w.newSwitch(64)
	var leaves []*node
	if levels == 2 {
		leaves = []*node{w.newSwitch(64), w.newSwitch(64)}
	}
	const psns, window, workers = 400, 16, 5
	var all []*testWorker
	var pss []*testPS
	for id := uint16(1); id <= 2; id++ {
		// Statistical jobs share fewer aggregators than they want; synchronous ones
		// own twice their window.
		e := JobEntry{Job: id, Epoch: 7, Mode: mode, Addressing: addressing, Base: 3, Size: 20, Window: window}
		if mode == Synchronous {
			e.Base, e.Size = uint32(id-1)*2*window, 2*window
		}
		ks, ps := w.addJob(t, e, root, leaves, workers)
		pss = append(pss, ps)
		for _, k := range ks {
			k.total, k.rto = psns, 300*time.Microsecond
			k.slot = func(psn uint32) uint16 { return uint16((psn*uint32(id) + 5) % window) }
			// Packets a dead run left in the network: right job, wrong epoch.
			stale := *k
			stale.e.Epoch--
			for psn := range uint32(50) {
				w.at(time.Duration(psn)*20*time.Microsecond, func() { w.send(stale.port, stale.packet(psn*3, Flags(psn%2)*FlagResend)) })
			}
		}
		all = append(all, ks...)
	}
	w.loss, w.dup, w.reorder = loss, dup, reorder
	for _, k := range all {
		w.at(time.Duration(k.rank)*time.Microsecond, k.fill)
	}
	w.run(10 * time.Second)

	var wraps, resends int
	for _, k := range all {
		if k.base != psns {
			t.Errorf("job %d worker %d has %d of %d results", k.e.Job, k.rank, k.base, psns)
		}
		wraps += k.overflow
		resends += k.resends
	}
	if wraps == 0 {
		t.Error("no result was flagged as wrapped, and many wrap")
	}
	if loss > 0 && resends == 0 {
		t.Error("nothing was sent again although packets were lost")
	}
	if loss == 0 && dup == 0 && resends > 0 {
		t.Errorf("%d resends on perfect cables", resends)
	}
	for i, sw := range w.switches {
		if mode != Synchronous && sw.Taken() != 0 {
			t.Errorf("switch %d: %d aggregators still taken", i, sw.Taken())
		}
		for id := uint16(1); id <= 2; id++ {
			c := sw.Counters(id)
			if c.In.Packets == 0 || c.In.Packets != c.Aggregated.Packets+c.Fallback.Packets+c.Duplicates.Packets {
				t.Errorf("switch %d job %d: in %d = aggregated %d + fallback %d + duplicates %d does not hold",
					i, id, c.In.Packets, c.Aggregated.Packets, c.Fallback.Packets, c.Duplicates.Packets)
			}
			if leaf := levels == 1 || i > 0; leaf && loss == 0 && c.Dropped.Packets == 0 {
				t.Errorf("switch %d job %d: no packet of the old epoch was dropped", i, id)
			}
		}
	}
	if mode == Synchronous && (pss[0].arrived > 0 || pss[1].arrived > 0) {
		t.Error("a synchronous job sent to a PS")
	}
}

// paced lets the workers of each job send C packets/s each for a while, open loop, and
// returns the jobs' aggregated shares and the mean hold time.
func paced(t *testing.T, aggregators int, addressing Addressing, size uint32, rates []float64, hold time.Duration, slot func(job int, psn uint32) uint16) (shares []float64, meanHold time.Duration) {
	const workers = 3
	w := newWorld(hold / 2)
	sw := w.newSwitch(aggregators)
	long := time.Duration(60 * float64(hold))
	var pss []*testPS
	for i, c := range rates {
		e := JobEntry{Job: uint16(i + 1), Epoch: 1, Mode: Statistical, Addressing: addressing, Size: size, Window: 1 << 14}
		ks, ps := w.addJob(t, e, sw, nil, workers)
		pss = append(pss, ps)
		phase := w.rng.Float64()
		for psn := range uint32(c * long.Seconds()) {
			for _, k := range ks {
				if slot != nil {
					k.slot = func(psn uint32) uint16 { return slot(i, psn) }
				}
				// Each gap is dithered by half an inter-arrival.
				at := (float64(psn) + 1 + phase + (w.rng.Float64()-.5)/2) / c
				w.at(time.Duration(at*1e9), func() { w.send(k.port, k.packet(psn, 0)) })
			}
		}
	}
	// The first holds only fill the memory.
	w.run(3 * hold)
	start := make([]Counters, len(rates))
	for i := range rates {
		start[i] = *sw.Counters(uint16(i + 1))
	}
	w.run(long)
	var releases int64
	for i := range rates {
		c := sw.Counters(uint16(i + 1))
		psns := c.Granted.Packets + c.Denied.Packets - start[i].Granted.Packets - start[i].Denied.Packets
		p := float64(c.Out.Packets-start[i].Out.Packets) / float64(psns)
		shares = append(shares, (workers-p)/(workers-1))
		releases += c.Releases
		meanHold += c.Hold
		if pss[i].arrived == 0 {
			t.Error("nothing reached the PS")
		}
	}
	return shares, meanHold / time.Duration(max(releases, 1))
}

// The aggregated share follows how the switch addresses its memory (design: pool
// min(1, 1/u), hash 1/(1+u), linear 1/E[ceil(u)]), u = C·T/M with T calibrated in
// a run of its own at low load.
func TestAggregatedShare(t *testing.T) {
	const m = 256
	hold := time.Millisecond
	_, calibrated := paced(t, 1<<14, Pool, 1<<14, []float64{20_000}, hold, nil)
	if calibrated < hold || calibrated > hold*105/100 {
		t.Fatalf("calibration: T = %v, the cables alone are %v", calibrated, hold)
	}
	loads := []float64{0.75, 1.5, 2.5, 3.5}
	if !proof.Wanted() {
		loads = loads[:2]
	}
	for _, tc := range []struct {
		name       string
		addressing Addressing
		form       func(u float64) float64
	}{
		{"pool", Pool, func(u float64) float64 { return min(1, 1/u) }},
		{"hash", Hash, func(u float64) float64 { return 1 / (1 + u) }},
		{"linear", Linear, func(u float64) float64 { return 1 / math.Ceil(u) }},
	} {
		for _, u := range loads {
			t.Run(fmt.Sprintf("%s/u=%v", tc.name, u), func(t *testing.T) {
				t.Parallel()
				// The hold grows with the spread of a PSN's n arrivals, a known part of a gap.
				c := u * m / calibrated.Seconds()
				got, _ := paced(t, m, tc.addressing, m, []float64{c}, hold, nil)
				if want := tc.form(u); math.Abs(got[0]-want) > 0.03 {
					t.Errorf("share %.3f, want %.3f", got[0], want)
				}
			})
		}
	}
}

// Jobs that share memory first come, first served get the same fraction, not the
// same amount.
func TestAggregatedShareOfTwoJobs(t *testing.T) {
	const m = 256
	hold := time.Millisecond
	rate := func(u float64) float64 { return u * m / hold.Seconds() }
	for _, tc := range []struct {
		name       string
		addressing Addressing
		u          [2]float64
		want       float64
	}{
		{"pool", Pool, [2]float64{0.5, 1.5}, 0.5},
		{"pool free", Pool, [2]float64{0.3, 0.5}, 1},
		{"hash", Hash, [2]float64{0.5, 1.5}, 1. / 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, _ := paced(t, m, tc.addressing, m, []float64{rate(tc.u[0]), rate(tc.u[1])}, hold, nil)
			for i, a := range got {
				if math.Abs(a-tc.want) > 0.03 {
					t.Errorf("job with u = %v: share %.3f, want %.3f", tc.u[i], a, tc.want)
				}
			}
		})
	}
}

// ATP jobs own W slots each, at random places, so they collide with each other only.
// The form holds on average over where those are.
func TestAggregatedShareOfATPPairs(t *testing.T) {
	const m = 512
	hold := time.Millisecond
	for _, tc := range []struct {
		wOverM, r float64
	}{{0.25, 0.4}, {0.5, 0.4}, {0.5, 0.8}} {
		t.Run(fmt.Sprintf("W/M=%v/r=%v", tc.wOverM, tc.r), func(t *testing.T) {
			t.Parallel()
			slots := int(tc.wOverM * m)
			rng := rand.New(rand.NewPCG(*seed, 9))
			own := [][]int{rng.Perm(m)[:slots], rng.Perm(m)[:slots]}
			c := tc.r * float64(slots) / hold.Seconds()
			got, _ := paced(t, m, ATP, m, []float64{c, c}, hold, func(job int, psn uint32) uint16 {
				return uint16(own[job][psn%uint32(slots)])
			})
			want := 1 - tc.wOverM*min(tc.r, 0.5)
			if mean := (got[0] + got[1]) / 2; math.Abs(mean-want) > 0.06 {
				t.Errorf("shares %.3f, mean %.3f, want %.3f", got, mean, want)
			}
		})
	}
	// Alone, a job never collides with itself while C·T <= W.
	got, _ := paced(t, m, ATP, m, []float64{0.9 * m / 2 / hold.Seconds()}, hold, func(_ int, psn uint32) uint16 { return uint16(psn % (m / 2)) })
	if got[0] != 1 {
		t.Errorf("alone: share %v, want 1", got[0])
	}
}

// The binding rule packet by packet.
func TestBinding(t *testing.T) {
	const job = 9
	w := &testWorker{e: JobEntry{Job: job, Epoch: 1}}
	pkt := func(rank int, psn uint32, f Flags) []byte {
		w.rank = rank
		return w.packet(psn, f)
	}
	type step struct {
		name   string
		b      []byte
		reason Reason
		bitmap []uint64 // of the packets sent
	}
	result := pkt(0, 1, FlagResult)
	steps := []step{
		{"first packet is granted the only aggregator", pkt(0, 1, 0), Absorbed, nil},
		{"another psn is denied", pkt(0, 2, 0), Forwarded, []uint64{1}},
		{"a copy is dropped", pkt(0, 1, 0), Duplicate, nil},
		{"second worker completes", pkt(1, 1, FlagECN), Completed, []uint64{3}},
		{"still taken", pkt(0, 3, 0), Forwarded, []uint64{1}},
		{"result releases", result, Result, []uint64{1}},
		{"denied stays denied with memory free", pkt(1, 2, 0), Forwarded, []uint64{2}},
		{"after the result packets pass", pkt(0, 1, 0), Forwarded, []uint64{1}},
		{"free again", pkt(1, 4, 0), Absorbed, nil},
		{"resend pushes the partial sum out", pkt(0, 4, FlagResend), Pushed, []uint64{2, 1}},
		{"and stays denied", pkt(1, 4, 0), Forwarded, []uint64{2}},
		{"and freed its aggregator", pkt(0, 5, 0), Absorbed, nil},
		{"a first packet that is a resend takes none", pkt(0, 6, FlagResend), Forwarded, []uint64{1}},
		{"older than the ring", pkt(0, 0xFFFF_FFF5, 0), Forwarded, []uint64{1}},
		{"no such worker", pkt(2, 7, 0), Malformed, nil},
	}
	s := NewSwitch(4)
	if err := s.SetJob(JobEntry{Job: job, Epoch: 1, Mode: Statistical, Base: 2, Size: 1, Expect: 3, Window: 8, UpPort: 5, DownGroup: 6}); err != nil {
		t.Fatal(err)
	}
	for _, st := range steps {
		v := s.Process(1, st.b, 0)
		var got []uint64
		for _, o := range v.Out[:v.N] {
			h, err := ParseHeader(o.Data)
			if err != nil {
				t.Fatalf("%s: %v", st.name, err)
			}
			got = append(got, h.Bitmap)
		}
		if v.Reason != st.reason || !slices.Equal(got, st.bitmap) {
			t.Errorf("%s: %v, sent %b; want %v, %b", st.name, v.Reason, got, st.reason, st.bitmap)
		}
	}
	if h, _ := ParseHeader(s.out[:]); h.Flags&FlagResend == 0 {
		t.Error("a pushed sum is not flagged as a resend")
	}
	if s.Taken() != 1 {
		t.Errorf("%d aggregators taken, want 1", s.Taken())
	}
}

// TestLanesSummed: a switch that sums packets of some lanes alone sends others of statistical and synchronous jobs up as they
// are, and takes no memory for them.
func TestLanesSummed(t *testing.T) {
	const job, window = 9, 8
	for _, tt := range []struct {
		program Program
		reason  Reason
	}{
		{Program{}, Absorbed},
		{Program{Lanes: testLanes}, Absorbed},
		{Program{Lanes: testLanes, Whole: true}, Absorbed},
		{Program{Lanes: testLanes + 1}, Absorbed},
		{Program{Lanes: testLanes + 1, Whole: true}, Forwarded},
		{Program{Lanes: testLanes - 1}, Forwarded},
	} {
		for _, mode := range []Mode{Statistical, Synchronous} {
			s := NewSwitch(2 * window)
			if err := s.Load(tt.program); err != nil {
				t.Fatal(err)
			}
			e := JobEntry{Job: job, Epoch: 1, Mode: mode, Size: 2 * window, Expect: 3, Window: window, UpPort: 5, DownGroup: 6}
			if err := s.SetJob(e); err != nil {
				t.Fatal(err)
			}
			v := s.Process(1, (&testWorker{e: e}).packet(0, 0), 0)
			if up := v.N == 1 && v.Out[0].Dir == Up && v.Out[0].Port == 5; v.Reason != tt.reason || up != (tt.reason == Forwarded) {
				t.Errorf("%+v, %v: %v, %+v", tt.program, mode, v.Reason, v.Out[:v.N])
			}
			if c := s.Counters(job); (c.Fallback.Packets == 1) != (tt.reason == Forwarded) || c.In.Packets != 1 {
				t.Errorf("%+v, %v: %+v", tt.program, mode, c)
			}
			if taken := s.Taken(); tt.reason == Forwarded && taken != 0 {
				t.Errorf("%+v, %v: %d aggregators taken", tt.program, mode, taken)
			}
		}
	}
	for _, bad := range []Program{{Lanes: -1}, {Lanes: MaxLanes + 1}, {Whole: true}} {
		if err := NewSwitch(1).Load(bad); err == nil {
			t.Errorf("%+v is let through", bad)
		}
	}
}

// TestNamed: where packets name their aggregators, hash and linear addressing and synchronous mode go by the name, which sums
// keep, and pool does not.
func TestNamed(t *testing.T) {
	const job, window, size, name = 9, 8, 16, 0x4203
	for _, tt := range []struct {
		mode Mode
		by   Addressing
		want uint32 // aggregator
	}{
		{Statistical, Hash, 3}, {Statistical, Linear, 3}, {Statistical, ATP, 3}, {Statistical, Pool, 0}, {Synchronous, Pool, 3},
	} {
		s := NewSwitch(size)
		if err := s.Load(Program{Named: true}); err != nil {
			t.Fatal(err)
		}
		e := JobEntry{Job: job, Epoch: 1, Mode: tt.mode, Addressing: tt.by, Size: size, Offset: 5, Expect: 3, Window: window, UpPort: 5}
		if err := s.SetJob(e); err != nil {
			t.Fatal(err)
		}
		var v Verdict
		for rank := range 2 {
			b := (&testWorker{e: e, rank: rank}).packet(6, 0)
			binary.BigEndian.PutUint16(b[10:], name)
			v = s.Process(1, b, 0)
		}
		h, err := ParseHeader(v.Out[0].Data)
		if v.Reason != Completed || err != nil || h.Slot != name || s.aggs[tt.want].job != job {
			t.Errorf("%v by %v: %v, %+v, %v; aggregator %d is job %d's", tt.mode, tt.by, v.Reason, h, err, tt.want, s.aggs[tt.want].job)
		}
	}
}

// TestNameSlot: a name tells aggregators of regions of a power of two as the rules for other switches do.
func TestNameSlot(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		job, psn, offset := uint16(1+r.IntN(MaxJob)), r.Uint32(), r.Uint32()
		size := uint32(1) << r.IntN(17)
		if got, want := uint32(NameSlot(Linear, job, psn, offset))%size, (offset+psn)%size; got != want {
			t.Fatalf("linear: PSN %d from %d of %d: %d, want %d", psn, offset, size, got, want)
		}
	}
	const size, draws = 64, 64 << 10
	var hits [size]int
	for psn := range uint32(draws) {
		hits[NameSlot(Hash, 7, psn, 0)%size]++
	}
	chi := 0.0
	for _, n := range hits {
		d := float64(n) - draws/size
		chi += d * d / (draws / size)
	}
	if chi > 120 { // 63 degrees of freedom: 1e-5
		t.Errorf("hash: chi-square %.0f over %d aggregators", chi, size)
	}
	if NameSlot(Pool, 7, 8, 9) != 0 || NameSlot(ATP, 7, 8, 9) != 0 {
		t.Error("pool and atp have no name of this kind")
	}
}

// TestMerges: a resend joins the sum that it pushes out, and the sum leaves without it where it has the worker.
func TestMerges(t *testing.T) {
	const job, window = 9, 8
	for _, tt := range []struct {
		name   string
		rank   int // of the resend; 0 is in the sum
		bitmap uint64
		joins  bool
	}{
		{"of another worker", 1, 3, true},
		{"of one in the sum", 0, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewSwitch(2 * window)
			if err := s.Load(Program{Merges: true}); err != nil {
				t.Fatal(err)
			}
			e := JobEntry{Job: job, Epoch: 1, Mode: Statistical, Size: 2 * window, Expect: 7, Window: window, UpPort: 5}
			if err := s.SetJob(e); err != nil {
				t.Fatal(err)
			}
			first := (&testWorker{e: e}).packet(0, 0)
			want := slices.Clone(first[HeaderLen:])
			s.Process(1, first, 0)
			again := (&testWorker{e: e, rank: tt.rank}).packet(0, FlagResend)
			flags := FlagResend
			if tt.joins && addLanes(want, again[HeaderLen:]) {
				flags |= FlagOverflow
			}
			v := s.Process(1, again, 0)
			if v.N != 1 || v.Reason != Pushed || v.Out[0].Dir != Up || v.Out[0].Port != 5 {
				t.Fatalf("%v, %+v", v.Reason, v.Out[:v.N])
			}
			h, err := ParseHeader(v.Out[0].Data)
			if err != nil || h.Bitmap != tt.bitmap || h.Flags != flags || !bytes.Equal(v.Out[0].Data[HeaderLen:], want) {
				t.Errorf("%+v, %v", h, err)
			}
			c := s.Counters(job)
			if c.In.Packets != c.Aggregated.Packets+c.Fallback.Packets+c.Duplicates.Packets || (c.Duplicates.Packets == 1) == tt.joins || c.Out.Packets != 1 {
				t.Errorf("%+v", c)
			}
			if s.Taken() != 0 {
				t.Errorf("%d aggregators are still taken", s.Taken())
			}
			// The PSN is denied from then on.
			if v := s.Process(1, (&testWorker{e: e, rank: 2}).packet(0, 0), 0); v.Reason != Forwarded || Flags(v.Out[0].Data[1])&FlagCollision == 0 {
				t.Errorf("afterwards: %v", v.Reason)
			}
		})
	}
}

func TestSetJobRefuses(t *testing.T) {
	good := JobEntry{Job: 1, Mode: Statistical, Size: 8, Expect: 3, Window: 4}
	for _, tc := range []struct {
		name string
		edit func(*JobEntry)
	}{
		{"job 0", func(e *JobEntry) { e.Job = 0 }},
		{"job too large", func(e *JobEntry) { e.Job = MaxJob + 1 }},
		{"region outside", func(e *JobEntry) { e.Base = 10 }},
		{"region overflows", func(e *JobEntry) { e.Base = math.MaxUint32 }},
		{"nobody expected", func(e *JobEntry) { e.Expect = 0 }},
		{"no window", func(e *JobEntry) { e.Window = 0 }},
		{"window without end", func(e *JobEntry) { e.Window = math.MaxUint32 }},
		{"mode", func(e *JobEntry) { e.Mode = 9 }},
		{"addressing", func(e *JobEntry) { e.Addressing = 9 }},
		{"too few slots", func(e *JobEntry) { e.Mode, e.Window = Synchronous, 5 }},
		{"part of another's pool", func(e *JobEntry) { e.Job, e.Size = 2, 4 }},
		{"hash in another's pool", func(e *JobEntry) { e.Job, e.Addressing = 2, Hash }},
		{"synchronous in another's pool", func(e *JobEntry) { e.Job, e.Mode = 2, Synchronous }},
	} {
		s := NewSwitch(16)
		if err := s.SetJob(good); err != nil {
			t.Fatal(err)
		}
		e := good
		tc.edit(&e)
		if err := s.SetJob(e); !errors.Is(err, ErrEntry) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got, _ := s.Job(1); got != good {
			t.Errorf("%s: entry of job 1 became %+v", tc.name, got)
		}
	}
}

// A job replaced by its next epoch leaves no aggregator behind, in its pool or out.
func TestSetJobFreesTheOldEpoch(t *testing.T) {
	for _, a := range []Addressing{Pool, Hash} {
		s := NewSwitch(8)
		e := JobEntry{Job: 1, Epoch: 1, Mode: Statistical, Addressing: a, Size: 8, Expect: 3, Window: 8}
		for range 5 {
			if err := s.SetJob(e); err != nil {
				t.Fatal(err)
			}
			w := &testWorker{e: e}
			for psn := range uint32(8) {
				s.Process(0, w.packet(psn, 0), 0)
			}
			if n := s.Taken(); n < 4 {
				t.Errorf("addressing %d epoch %d: %d aggregators taken", a, e.Epoch, n)
			}
			e.Epoch++
		}
		s.DeleteJob(1)
		if s.Taken() != 0 || len(s.pools) != 0 {
			t.Errorf("addressing %d: %d aggregators and %d pools left", a, s.Taken(), len(s.pools))
		}
	}
}

func TestProcessDoesNotAllocate(t *testing.T) {
	s := NewSwitch(64)
	e := JobEntry{Job: 1, Mode: Statistical, Size: 64, Expect: 3, Window: 32}
	if err := s.SetJob(e); err != nil {
		t.Fatal(err)
	}
	w := &testWorker{e: e}
	first, second, result := w.packet(0, 0), w.packet(0, 0), w.packet(0, FlagResult)
	second[21] = 2
	psn := uint32(0)
	if n := testing.AllocsPerRun(1000, func() {
		for _, b := range [][]byte{first, second, result} {
			binary.BigEndian.PutUint32(b[4:], psn)
			s.Process(0, b, 0)
		}
		psn++
	}); n != 0 {
		t.Errorf("%v allocations per PSN", n)
	}
	if c := s.Counters(1); c.Releases == 0 || c.Denied.Packets != 0 {
		t.Errorf("counters %+v", c)
	}
}

func BenchmarkProcess(b *testing.B) {
	for _, mode := range []Mode{Forward, Statistical, Synchronous, Exclusive} {
		for _, lanes := range []int{16, 64, 240} {
			b.Run(fmt.Sprintf("mode=%d/lanes=%d", mode, lanes), func(b *testing.B) {
				s := NewSwitch(1024)
				if err := s.Limit(Limits{Capacity: 1, Trees: 1}); err != nil {
					b.Fatal(err)
				}
				if err := s.SetJob(JobEntry{Job: 1, Mode: mode, Size: 1024, Expect: 7, Window: 512, Root: true}); err != nil {
					b.Fatal(err)
				}
				var in [4][]byte
				for i := range in {
					in[i] = make([]byte, HeaderLen+4*lanes)
				}
				psn := uint32(0)
				if mode == Exclusive {
					s.Process(0, both(opPacket(1, 0, 0, FlagLock, 0)), 0)
					s.Process(0, opPacket(1, 2, 0, FlagLock, 0), 0)
					psn++
				}
				for b.Loop() {
					for i, p := range in {
						h := Header{Job: 1, PSN: psn, Lanes: uint8(lanes), Bitmap: 1 << i}
						if i == 3 {
							h.Flags = FlagResult
						}
						h.Put(p)
						s.Process(0, p, 0)
					}
					psn++
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(4*b.N), "ns/packet")
			})
		}
	}
}
