package ina

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"time"
)

// station is a host with a Worker: it sends whatever the window allows, one packet a
// microsecond, and holds the Worker to its promises.
type station struct {
	t    *testing.T
	w    *world
	k    *Worker
	port end
	buf  []byte

	busy   bool          // a packet is on its way out of the NIC
	alarm  time.Duration // when the timer is set for
	has    map[uint32]bool
	onIdle func()
	free   bool // PSNs do not begin at 0
}

func newStation(t *testing.T, w *world, cfg WorkerConfig, port end) *station {
	k, err := NewWorker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &station{t: t, w: w, k: k, port: port, buf: make([]byte, k.PacketLen()), has: map[uint32]bool{}}
	w.worker[port] = s.receive
	return s
}

func (s *station) receive(b []byte) {
	h, _ := ParseHeader(b)
	if s.k.Receive(b, s.w.now) {
		if s.has[h.PSN] {
			s.t.Errorf("rank %d took the result of PSN %d twice", s.k.cfg.Rank, h.PSN)
		}
		s.has[h.PSN] = true
		if s.k.Idle() && s.onIdle != nil {
			s.onIdle()
		}
	}
	s.pump()
}

func (s *station) pump() {
	if s.busy {
		return
	}
	now := s.w.now
	before := s.k.Stats()
	n := s.k.Resend(now, s.buf)
	if n == 0 {
		psn, opened, ok := s.k.Next()
		if n = s.k.Send(now, s.buf); (n > 0) != ok {
			s.t.Fatalf("Next says %v, Send wrote %d bytes", ok, n)
		}
		if ok {
			s.promised(psn, opened)
		}
	}
	if n > 0 {
		if h, err := ParseHeader(s.buf[:n]); err != nil || h.Bitmap != 1<<s.k.cfg.Rank || (h.Flags == FlagResend) != (s.k.Stats().Resends > before.Resends) {
			s.t.Fatalf("sent %+v: %v", h, err)
		}
		s.busy = true
		s.w.send(s.port, s.buf[:n])
		s.w.at(now+time.Microsecond, func() { s.busy = false; s.pump() })
		return
	}
	if d, ok := s.k.Deadline(); ok && (s.alarm <= now || d < s.alarm) {
		s.alarm = d
		s.w.at(d, s.pump)
	}
}

// promised checks what switches and PS rely on when psn is sent for the first time.
func (s *station) promised(psn uint32, opened time.Duration) {
	if opened > s.w.now {
		s.t.Errorf("rank %d: window opens for PSN %d at %v, in the future of %v", s.k.cfg.Rank, psn, opened, s.w.now)
	}
	if s.free {
		return
	}
	if w := uint32(s.k.cfg.Window); psn >= w && !s.has[psn-w] {
		s.t.Errorf("rank %d sent PSN %d without the result of PSN %d", s.k.cfg.Rank, psn, psn-w)
	}
	if psn > 0 && psn <= Startup && !s.has[psn-1] {
		s.t.Errorf("rank %d sent PSN %d during startup without the result of PSN %d", s.k.cfg.Rank, psn, psn-1)
	}
}

// jobs puts real workers and a real PS where addJob has put the tests' own.
func stations(t *testing.T, w *world, e JobEntry, root *node, leaves []*node, cfg WorkerConfig) ([]*station, *PS) {
	t.Helper()
	ks, tp := w.addJob(t, e, root, leaves, cfg.Workers)
	ps, err := NewPS(PSConfig{Job: cfg.Job, Epoch: cfg.Epoch, Workers: cfg.Workers, Lanes: cfg.Lanes, Window: cfg.Window})
	if err != nil {
		t.Fatal(err)
	}
	w.worker[tp.port] = func(b []byte) {
		if result, _ := ps.Receive(b); result != nil {
			w.send(tp.port, result)
		}
	}
	var all []*station
	for _, k := range ks {
		cfg.Rank = k.rank
		all = append(all, newStation(t, w, cfg, k.port))
	}
	return all, ps
}

type trouble struct{ loss, dup, reorder float64 }

func (d trouble) String() string {
	return fmt.Sprintf("loss=%v,dup=%v,reorder=%v", d.loss, d.dup, d.reorder)
}

// Workers, switches and PS together end with every sum exact, and the workers keep
// to their window on the way.
func TestProtocolEndsWithExactSums(t *testing.T) {
	const psns, window, workers = 400, 16, 5
	cases := []struct {
		name       string
		mode       Mode
		addressing Addressing
		size       uint32
		aimd       bool
	}{
		{"forward", Forward, Pool, 0, false},
		{"pool", Statistical, Pool, 20, false},
		{"pool of one", Statistical, Pool, 1, false},
		{"hash", Statistical, Hash, 20, false},
		{"atp", Statistical, ATP, 20, true},
		{"synchronous", Synchronous, Pool, 2 * window, false},
	}
	for _, c := range cases {
		for _, levels := range []int{1, 2} {
			if c.mode == Forward && levels == 2 {
				continue
			}
			for _, d := range []trouble{{}, {.05, .02, .2}, {.3, .1, .5}} {
				t.Run(fmt.Sprintf("%s/levels=%d/%v", c.name, levels, d), func(t *testing.T) {
					w := newWorld(10 * time.Microsecond)
					root := w.newSwitch(64)
					var leaves []*node
					if levels == 2 {
						leaves = []*node{w.newSwitch(64), w.newSwitch(64)}
					}
					w.loss, w.dup, w.reorder = d.loss, d.dup, d.reorder
					e := JobEntry{Job: 9, Epoch: 7, Mode: c.mode, Addressing: c.addressing, Base: 3, Size: c.size, Window: window}
					cfg := WorkerConfig{Job: 9, Epoch: 7, Workers: workers, Lanes: 30, Window: window, AIMD: c.aimd,
						RTO: 500 * time.Microsecond, Seed: *seed}
					if c.addressing == ATP {
						cfg.Slots, _ = ATPSlots(9, window, int(c.size))
					}
					all, ps := stations(t, w, e, root, leaves, cfg)
					for i, s := range all {
						w.at(time.Duration(i)*time.Millisecond, func() {
							s.k.Allow(psns, w.now)
							s.pump()
						})
					}
					w.run(60 * time.Second)
					for r, s := range all {
						st := s.k.Stats()
						if st.Results != psns || !s.k.Idle() {
							t.Errorf("rank %d has %d of %d results", r, st.Results, psns)
						}
						if st.Checked != psns*30 || st.Wrong != 0 || st.Overflows != 0 {
							t.Errorf("rank %d: %d values checked, %d wrong, %d overflows", r, st.Checked, st.Wrong, st.Overflows)
						}
						if d == (trouble{}) && st.Resends > 2 { // only the barrier waits for late starters
							t.Errorf("rank %d: %d resends without loss", r, st.Resends)
						}
						if st.RTTMin < 4*w.delay && c.mode != Synchronous || st.RTTMin > time.Duration(4+2*levels)*w.delay && d == (trouble{}) {
							t.Errorf("rank %d: least round trip %v over cables of %v", r, st.RTTMin, w.delay)
						}
					}
					st := ps.Stats()
					if c.mode != Synchronous && (st.Completed != psns || st.Evicted != 0) {
						t.Errorf("PS completed %d of %d, evicted %d", st.Completed, psns, st.Evicted)
					}
					if c.mode != Synchronous && w.switches[0].Taken() != 0 {
						t.Errorf("%d aggregators still taken", w.switches[0].Taken())
					}
				})
			}
		}
	}
}

// Sums carry no slot. Where all that a root gets are sums of racks, or sums and packets of
// hosts beside it, it finds aggregators itself, and with ample memory aggregates everything.
func TestATPAboveRacks(t *testing.T) {
	const psns, window, memory = 3000, 16, 1 << 14
	for _, c := range []struct {
		name       string
		direct     int // workers at the root itself
		addressing Addressing
		least      float64 // share of the root
		most       float64
	}{
		{"three racks, slots of sums", 0, ATP, 0, .2},
		{"three racks", 0, Hash, .99, 1},
		{"two racks and hosts", 2, Hash, .99, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			direct := c.direct
			w := newWorld(10 * time.Microsecond)
			root := w.newSwitch(memory)
			leaves := []*node{w.newSwitch(memory), w.newSwitch(memory), w.newSwitch(memory)}
			if direct > 0 { // a rack is the root's own: its workers are cabled to that
				leaves = leaves[:2]
			}
			cfg := WorkerConfig{Job: 9, Epoch: 7, Workers: 6 + direct, Lanes: 4, Window: window, RTO: 10 * time.Millisecond, Seed: *seed}
			cfg.Slots, _ = ATPSlots(9, window, memory)
			e := JobEntry{Job: 9, Epoch: 7, Mode: Statistical, Addressing: ATP, Size: memory, Window: window}
			all, ps := stations(t, w, e, root, leaves, cfg)
			re, _ := root.Job(9)
			re.Addressing = c.addressing
			for i := range direct { // move the last workers to the root
				s := all[6+i]
				at := leaves[(6+i)%len(leaves)]
				le, _ := at.Job(9)
				le.Expect &^= 1 << s.k.cfg.Rank
				if err := at.SetJob(le); err != nil {
					t.Fatal(err)
				}
				at.groups[9] = slices.DeleteFunc(at.groups[9], func(p uint32) bool { return p == s.port.port })
				s.port.sw = root
				w.worker[s.port] = s.receive
				root.groups[9] = append(root.groups[9], s.port.port)
			}
			if err := root.SetJob(re); err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				s.k.Allow(psns, 0)
				s.pump()
			}
			w.run(60 * time.Second)
			got := root.Counters(9)
			share := float64(got.Granted.Packets) / float64(got.Granted.Packets+got.Denied.Packets)
			t.Logf("root: share %.3f of %d PSNs, PS saw %.3f packets per PSN", share, psns, float64(ps.Stats().Arrived)/psns)
			if share < c.least || share > c.most {
				t.Errorf("root aggregates %.3f of the PSNs, want %v to %v", share, c.least, c.most)
			}
			for i, n := range w.switches {
				if c := n.Counters(9); c != nil && (n.Taken() != 0 || c.Releases != c.Granted.Packets) {
					t.Errorf("switch %d: %d aggregators taken, %d of %d released", i, n.Taken(), c.Releases, c.Granted.Packets)
				}
			}
			for r, s := range all {
				if st := s.k.Stats(); st.Results != psns || st.Wrong != 0 {
					t.Errorf("rank %d: %d of %d results, %d values wrong", r, st.Results, psns, st.Wrong)
				}
			}
		})
	}
}

// Whatever a switch adds to lane 0 of a sum, it is a wrong sum, and the job goes on to the
// end that its workers know of. Once such a sum was a vote to stop.
func TestDamagedSumEndsNothing(t *testing.T) {
	const psns = 300
	for name, damage := range map[string]func(lane0 []byte){
		"2^24 too large":     func(b []byte) { b[0]++ },
		"3 * 2^24 too large": func(b []byte) { b[0] += 3 },
		"2^31 too large":     func(b []byte) { b[0] ^= 0x80 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(10 * time.Microsecond)
			root := w.newSwitch(64)
			e := JobEntry{Job: 9, Epoch: 7, Mode: Statistical, Addressing: Pool, Size: 20, Window: 16}
			all, _ := stations(t, w, e, root, nil, WorkerConfig{Job: 9, Epoch: 7, Workers: 4, Lanes: 4, Window: 16,
				RTO: 500 * time.Microsecond, Seed: *seed})
			for _, s := range all {
				take := w.worker[s.port]
				w.worker[s.port] = func(b []byte) {
					if h, _ := ParseHeader(b); h.PSN%100 == 50 {
						b = slices.Clone(b)
						damage(b[HeaderLen:])
					}
					take(b)
				}
				s.k.Allow(psns, 0)
				s.pump()
			}
			w.run(10 * time.Second)
			for r, s := range all {
				if st := s.k.Stats(); st.Results != psns || s.k.Stopped() || st.Checked != 4*psns || st.Wrong != 3 {
					t.Errorf("rank %d: %d of %d results, stopped %v, %d of %d values wrong, want 3 wrong", r, st.Results, psns, s.k.Stopped(), st.Wrong, st.Checked)
				}
			}
		})
	}
}

// The share that a switch granted does not know of resends; the one that the PS saw does.
// It is that of the packets on its cable, whoever counts them.
func TestShareCountsResends(t *testing.T) {
	const psns = 4000
	for _, c := range []struct{ loss, least, most float64 }{{0, 1, 1}, {.01, .5, .95}, {.05, -.5, .5}} {
		w := newWorld(10 * time.Microsecond)
		root := w.newSwitch(256)
		e := JobEntry{Job: 9, Epoch: 7, Mode: Statistical, Addressing: Pool, Size: 256, Window: 32}
		all, ps := stations(t, w, e, root, nil, WorkerConfig{Job: 9, Epoch: 7, Workers: 2, Lanes: 4, Window: 32, RTO: 500 * time.Microsecond, Seed: *seed})
		port := end{root, 1000 + 9}
		take, seen := w.worker[port], 0
		w.worker[port] = func(b []byte) { seen++; take(b) }
		w.loss = c.loss
		for _, s := range all {
			s.k.Allow(psns, 0)
			s.pump()
		}
		w.run(60 * time.Second)
		got, st := root.Counters(9), ps.Stats()
		claim := float64(got.Granted.Packets) / float64(got.Granted.Packets+got.Denied.Packets)
		share := 2 - float64(st.Arrived)/float64(st.Completed) // (n-p)/(n-1) of two workers and p packets of a PSN
		t.Logf("loss %v: the switch granted %.3f, the PS saw %.3f", c.loss, claim, share)
		if claim != 1 || share < c.least || share > c.most || st.Arrived != int64(seen) || st.Completed != psns {
			t.Errorf("loss %v: the switch granted %.3f, the PS saw %.3f of %d packets, its cable carried %d", c.loss, claim, share, st.Arrived, seen)
		}
		if sum := st.Merged + st.Duplicate + st.Conflicts + st.Late; sum != st.Arrived {
			t.Errorf("loss %v: %+v does not add up", c.loss, st)
		}
		for _, s := range all {
			if k := s.k.Stats(); k.Sent-k.Resends != psns || k.Results != psns {
				t.Errorf("loss %v: %+v", c.loss, k)
			}
		}
	}
}

// A worker that is stopped without a pause ends where it is: it sends nothing new, and is
// stopped when it has the results of what it had sent.
func TestStopWithoutPause(t *testing.T) {
	k, b := started(t, WorkerConfig{Window: 8})
	var sent [][]byte
	for range 5 {
		sent = append(sent, slices.Clone(b[:k.Send(0, b)]))
	}
	k.Stop()
	if k.Send(0, b) != 0 || k.Stopped() {
		t.Errorf("sends on, or is stopped (%v) with 5 outstanding", k.Stopped())
	}
	for _, p := range sent {
		k.Receive(reply(p, 0), time.Millisecond)
	}
	if !k.Stopped() || k.Send(0, b) != 0 {
		t.Errorf("stopped: %v, and then it sends", k.Stopped())
	}
}

// A lone worker whose window is all it has goes on where PSNs wrap around.
func TestPSNsWrap(t *testing.T) {
	k := soloWorker(t, WorkerConfig{Window: 8})
	const start = 1<<32 - 20
	k.base, k.next, k.edge = start, start, start
	k.Allow(start+60, 0)
	ps, err := NewPS(PSConfig{Job: 1, Workers: 1, Lanes: 2, Window: 8})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, k.PacketLen())
	for range 60 {
		if result, _ := ps.Receive(b[:k.Send(0, b)]); !k.Receive(result, 0) {
			t.Fatal("result not taken")
		}
	}
	if !k.Idle() || k.Stats().Wrong != 0 {
		t.Errorf("idle %v, %+v", k.Idle(), k.Stats())
	}
}

// Without a PS the switch finds a slot by PSN mod size, and 2^32 is a multiple of few sizes.
// Jobs of any size go on where PSNs wrap, through one level of switches or two, whatever the
// cables do, and also when their region becomes another near the wrap.
func TestPSNsWrapInSwitches(t *testing.T) {
	const psns, start = 400, 1<<32 - 200
	for _, size := range []uint32{3, 5, 6, 7, 12, 64, 100} {
		for _, levels := range []int{1, 2} {
			for _, d := range []trouble{{}, {.1, .05, .3}} {
				t.Run(fmt.Sprintf("size=%d/levels=%d/%v", size, levels, d), func(t *testing.T) {
					w := newWorld(10 * time.Microsecond)
					root := w.newSwitch(128)
					var leaves []*node
					if levels == 2 {
						leaves = []*node{w.newSwitch(128), w.newSwitch(128)}
					}
					w.loss, w.dup, w.reorder = d.loss, d.dup, d.reorder
					window := int(size / 2)
					e := JobEntry{Job: 9, Epoch: 7, Mode: Synchronous, Base: 3, Size: size, Window: uint32(window)}
					cfg := WorkerConfig{Job: 9, Epoch: 7, Workers: 4, Lanes: 4, Window: window, Region: int(size), RTO: 500 * time.Microsecond, Seed: *seed}
					all, _ := stations(t, w, e, root, leaves, cfg)
					wrapped := false
					for _, s := range all {
						s.k.base, s.k.next, s.k.edge, s.free = start, start, start, true
						s.k.Allow(start+psns, 0)
						s.pump()
					}
					w.run(60 * time.Second)
					for r, s := range all {
						st := s.k.Stats()
						if st.Results != psns || st.Wrong != 0 || d == (trouble{}) && st.Resends > 0 {
							t.Errorf("rank %d has %d of %d results, %d values wrong, %d resends", r, st.Results, psns, st.Wrong, st.Resends)
						}
						wrapped = wrapped || s.has[0]
					}
					if !wrapped {
						t.Error("no PSN 0")
					}
				})
			}
		}
	}
}

// A region that changes in a pause near the wrap may have fewer whole turns than the old one:
// then PSNs begin again at once.
func TestRegionChangesNearWrap(t *testing.T) {
	for _, at := range []uint64{1<<32 - 4, 1<<32 - 1, 1 << 32} {
		w := newWorld(10 * time.Microsecond)
		root := w.newSwitch(64)
		e := JobEntry{Job: 9, Epoch: 7, Mode: Synchronous, Size: 64, Window: 32}
		all, _ := stations(t, w, e, root, nil, WorkerConfig{Job: 9, Epoch: 7, Workers: 3, Lanes: 4, Window: 32, Region: 64, RTO: 500 * time.Microsecond, Seed: *seed})
		for _, s := range all {
			s.k.base, s.k.next, s.k.edge, s.free = at-20, at-20, at-20, true
			s.k.Allow(int64(at)+100, 0)
			s.k.Pause(at, 0)
			s.pump()
		}
		w.run(time.Second)
		job := &pausable{all: all, entries: map[*node]JobEntry{}}
		job.entries[root], _ = root.Job(9)
		job.set(t, 0, 25) // 2^32 is 46 more than a multiple of 50
		for _, s := range all {
			if !s.k.Paused() {
				t.Fatalf("not paused at %d", at)
			}
			s.k.Resume(25, w.now)
			s.pump()
		}
		w.run(w.now + time.Second)
		for r, s := range all {
			if st := s.k.Stats(); st.Results != 120 || st.Wrong != 0 || st.Resends != 0 {
				t.Errorf("paused at %d, rank %d: %d of 120 results, %d wrong, %d resends", at, r, st.Results, st.Wrong, st.Resends)
			}
		}
	}
}

// soloWorker is the only worker of job 1, with two lanes.
func soloWorker(t testing.TB, cfg WorkerConfig) *Worker {
	t.Helper()
	cfg.Job, cfg.Workers, cfg.Lanes = 1, 1, 2
	if cfg.RTO == 0 {
		cfg.RTO = time.Millisecond
	}
	k, err := NewWorker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// reply is the result of what a lone worker sent.
func reply(sent []byte, f Flags) []byte {
	sent[1] = byte(FlagResult | f)
	return sent
}

// started is a lone worker past its startup, with a round trip of 100 us.
func started(t testing.TB, cfg WorkerConfig) (*Worker, []byte) {
	k := soloWorker(t, cfg)
	b := make([]byte, k.PacketLen())
	k.Allow(Endless, 0)
	for range Startup {
		k.Send(0, b)
		k.Receive(reply(b, 0), 100*time.Microsecond)
	}
	return k, b
}

func TestAIMD(t *testing.T) {
	k, b := started(t, WorkerConfig{Window: 64, AIMD: true})
	now := 100 * time.Microsecond
	flight := func(mark int) { // a window out, then its results, the given one marked
		var sent [][]byte
		for n := k.Send(now, b); n > 0; n = k.Send(now, b) {
			sent = append(sent, append([]byte(nil), b[:n]...))
		}
		now += 100 * time.Microsecond
		for i, s := range sent {
			f := Flags(0)
			if i >= mark && mark >= 0 {
				f = FlagECN
			}
			k.Receive(reply(s, f), now)
		}
	}
	steps := []struct {
		mark   int // first marked result of the flight, -1: none
		lo, hi float64
	}{
		{-1, 64, 64}, // never beyond the configured window
		{0, 32, 32},  // all 64 marked: halved once, the rest was sent before the cut
		{-1, 34, 36}, // about 4 more a round trip
		{-1, 37, 40},
		{0, 18, 20},
		{0, 9, 10}, {0, 4, 5}, {0, 2, 2.5}, {0, 1, 1.3}, {0, 1, 1},
		{-1, 4, 5}, // from one packet: 4 more
	}
	for i, s := range steps {
		if flight(s.mark); k.Window() < s.lo || k.Window() > s.hi {
			t.Fatalf("step %d: window %.2f, want %v..%v", i, k.Window(), s.lo, s.hi)
		}
	}
	if k.Stats().Marks == 0 {
		t.Error("no marks counted")
	}

	fixed, b := started(t, WorkerConfig{Window: 64})
	fixed.Send(0, b)
	fixed.Receive(reply(b, FlagECN), now)
	if fixed.Window() != 64 || fixed.Stats().Marks != 1 {
		t.Errorf("fixed window became %v after %d marks", fixed.Window(), fixed.Stats().Marks)
	}
}

// The timeout adapts to the round trip, takes no samples from what was sent twice,
// backs off once per timeout however many packets share it, and recovers.
func TestTimeout(t *testing.T) {
	k, b := started(t, WorkerConfig{Window: 8, RTO: time.Millisecond})
	timeout := func() time.Duration {
		d, ok := k.Deadline()
		if !ok {
			t.Fatal("nothing outstanding")
		}
		return d - k.ring[k.head].sent
	}
	for range 8 {
		k.Send(0, b)
	}
	if got := timeout(); got != time.Millisecond {
		t.Errorf("timeout %v, want the configured 1ms for a round trip of 100us", got)
	}
	if k.Resend(time.Millisecond-1, b) != 0 {
		t.Error("resent before the deadline")
	}
	now := time.Millisecond
	resent := 0
	for k.Resend(now, b) > 0 {
		resent++
	}
	if resent != 1 || timeout() != 2*time.Millisecond {
		t.Errorf("%d resends, then timeout %v; want 1, then 2ms", resent, timeout())
	}
	for now = 2 * time.Millisecond; k.Resend(now, b) > 0; {
		resent++
	}
	if resent != 8 || timeout() != 2*time.Millisecond {
		t.Errorf("%d resends, then timeout %v; want 8, then 2ms for all", resent, timeout())
	}
	before := k.Stats().RTTCount
	k.Receive(reply(b, 0), now) // the last resend is answered at once
	if k.Stats().RTTCount != before {
		t.Error("a round trip was taken from a packet sent twice")
	}
	// All answered, and a fresh round trip of 10 ms: the timeout follows it.
	for psn := uint32(2); psn < 10; psn++ {
		Header{Job: 1, PSN: psn, Flags: FlagResult, Lanes: 2, Bitmap: 1}.Put(b)
		NewReference(0, 1, 1).In(0).Sum(b[HeaderLen:], psn)
		k.Receive(b, now)
	}
	for range 100 {
		n := k.Send(now, b)
		now += 10 * time.Millisecond
		k.Receive(reply(b[:n], 0), now)
	}
	k.Send(now, b)
	if got := timeout(); got < 10*time.Millisecond || got > 15*time.Millisecond {
		t.Errorf("timeout %v at a round trip of 10ms", got)
	}
}

func TestNewWorkerRefuses(t *testing.T) {
	good := WorkerConfig{Job: 1, Workers: 2, Lanes: 240, Window: 8, RTO: 1}
	if _, err := NewWorker(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*WorkerConfig){
		"job 0":         func(c *WorkerConfig) { c.Job = 0 },
		"job 4096":      func(c *WorkerConfig) { c.Job = MaxJob + 1 },
		"no workers":    func(c *WorkerConfig) { c.Workers = 0 },
		"65 workers":    func(c *WorkerConfig) { c.Workers = 65 },
		"rank":          func(c *WorkerConfig) { c.Rank = 2 },
		"negative rank": func(c *WorkerConfig) { c.Rank = -1 },
		"no lanes":      func(c *WorkerConfig) { c.Lanes = 0 },
		"241 lanes":     func(c *WorkerConfig) { c.Lanes = 241 },
		"no window":     func(c *WorkerConfig) { c.Window = 0 },
		"huge window":   func(c *WorkerConfig) { c.Window = 1 << 30 },
		"small region":  func(c *WorkerConfig) { c.Region = 15 },
		"huge region":   func(c *WorkerConfig) { c.Region = 1 << 22 },
		"no timeout":    func(c *WorkerConfig) { c.RTO = 0 },
	} {
		c := good
		spoil(&c)
		if k, err := NewWorker(c); err == nil || k != nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Whatever packets come, in whatever order, a PS never returns a wrong sum: its
// results carry all workers' bits, and check against the reference when what it was
// sent were true partial sums.
func FuzzPS(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 2, 0, 0, 4, 0})
	f.Add([]byte{0, 3, 0, 0, 6, 0, 0, 4, 0x20, 0, 1, 0x20, 0, 2, 0x20})
	f.Add([]byte{0, 7, 0, 16, 7, 0, 0, 1, 0x20, 1, 5, 2, 1, 2, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		const n, lanes, window = 3, 5, 4
		ps, err := NewPS(PSConfig{Job: 1, Workers: n, Lanes: lanes, Window: window})
		if err != nil {
			t.Fatal(err)
		}
		ref := NewReference(*seed, 1, n)
		b := make([]byte, HeaderLen+4*lanes)
		part := make([]byte, 4*lanes)
		for ; len(script) >= 3; script = script[3:] {
			psn, bitmap, how := uint32(script[0]), uint64(script[1]), script[2]
			h := Header{Job: 1, PSN: psn, Rank: NoRank, Lanes: lanes, Bitmap: bitmap}
			if how&0x20 != 0 {
				h.Flags = FlagResend
			}
			if bits.OnesCount64(bitmap) == 1 {
				h.Rank = uint8(bits.TrailingZeros64(bitmap))
			}
			switch how & 7 { // mostly right
			case 1:
				h.Job = 2
			case 2:
				h.Epoch = 1
			case 3:
				h.Lanes--
			case 4:
				h.Flags |= FlagResult
			}
			clear(b[HeaderLen:])
			for r := range Ranks(bitmap & (1<<n - 1)) {
				ref.Fill(part, r, psn)
				addLanes(b[HeaderLen:], part)
			}
			h.Put(b)
			before := ps.Stats()
			result, to := ps.Receive(b)
			after := ps.Stats()
			if (result == nil) != (to == 0) {
				t.Fatalf("%d bytes for workers %b", len(result), to)
			}
			if sum := after.Merged + after.Duplicate + after.Conflicts + after.Late; after.Arrived != sum {
				t.Fatalf("%+v: arrived is not merged + duplicate + conflicts + late", after)
			}
			if result == nil {
				continue
			}
			rh, err := ParseHeader(result)
			if err != nil || rh.PSN != psn || rh.Bitmap != 1<<n-1 || rh.Flags != FlagResult || rh.Rank != NoRank {
				t.Fatalf("result %+v: %v", rh, err)
			}
			if wrong := ref.Check(result[HeaderLen:], psn); wrong != 0 {
				t.Fatalf("PSN %d: %d lanes wrong", psn, wrong)
			}
			if after.Completed == before.Completed && after.Answered == before.Answered {
				t.Fatalf("a result neither completed nor answered: %+v", after)
			}
		}
	})
}

// Whatever a worker is sent, and whenever it is asked to send, it keeps to its
// window and never counts a PSN twice.
func FuzzWorker(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 2, 9})
	f.Add([]byte{0, 0, 3, 200, 3, 200, 1, 0, 4, 0, 0, 0, 5, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		const window = 4
		k := soloWorker(t, WorkerConfig{Window: window, AIMD: true})
		b := make([]byte, k.PacketLen())
		sent, got := map[uint32]bool{}, map[uint32]bool{}
		var now time.Duration
		k.Allow(50, now)
		for ; len(script) >= 2; script = script[2:] {
			x := script[1]
			switch script[0] % 6 {
			case 0:
				if n := k.Send(now, b); n > 0 {
					h, err := ParseHeader(b[:n])
					if err != nil || sent[h.PSN] || h.PSN >= window && !got[h.PSN-window] {
						t.Fatalf("new packet %+v: %v", h, err)
					}
					sent[h.PSN] = true
				}
			case 1, 2:
				h := Header{Job: 1, PSN: uint32(x), Flags: FlagResult, Lanes: 2, Bitmap: 1}
				if script[0]%6 == 2 {
					h.Flags |= FlagECN
				}
				h.Put(b)
				k.ref.Sum(b[HeaderLen:], h.PSN)
				if fresh := k.Receive(b, now); fresh != (sent[h.PSN] && !got[h.PSN]) {
					t.Fatalf("result of PSN %d: fresh %v, sent %v, had %v", x, fresh, sent[h.PSN], got[h.PSN])
				} else if fresh {
					got[h.PSN] = true
				}
			case 3:
				now += time.Duration(x) * 100 * time.Microsecond
			case 4:
				if n := k.Resend(now, b); n > 0 {
					if h, err := ParseHeader(b[:n]); err != nil || !sent[h.PSN] || got[h.PSN] || h.Flags != FlagResend {
						t.Fatalf("resent %+v: %v", h, err)
					}
				}
			case 5:
				k.Receive(script, now)
			}
			st := k.Stats()
			n, _ := k.Outstanding()
			if int(st.Results) != len(got) || n != len(sent)-len(got) || n > window || st.Wrong != 0 || k.Window() < 1 || k.Window() > window {
				t.Fatalf("%+v with %d outstanding, window %v, after sending %d and receiving %d", st, n, k.Window(), len(sent), len(got))
			}
		}
	})
}
