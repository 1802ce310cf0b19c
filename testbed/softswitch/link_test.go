package softswitch

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/sabotage"
)

var seed = flag.Uint64("seed", 1, "seed of randomised tests")

// Cables and the switch between them are tested in virtual time: the engine is the
// whole of it but for the sockets.

// sent is a frame that came out.
type sent struct {
	port uint32
	at   time.Duration
	b    []byte
}

// bench is an engine whose output is kept.
type bench struct {
	*engine
	t   testing.TB
	out []sent
}

func newBench(t testing.TB, cfg Config) *bench {
	t.Helper()
	e, err := newEngine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{engine: e, t: t}
	e.emit = func(to *port, p *packet) {
		if p.at > e.now {
			t.Errorf("frame due at %v left at %v", p.at, e.now)
		}
		n := min(p.size, headLen)
		b.out = append(b.out, sent{to.number, p.at, append(slices.Clone(p.head[:n]), p.buf.b[n:p.size]...)})
		to.count(PortTx, p.size)
		e.pool.put(p)
	}
	return b
}

var here = [4]byte{10, 0, 0, 2}

// through is a switch that forwards what arrives at port 1 out of port 2 with the
// given cable.
func through(t testing.TB, egress LinkConfig) *bench {
	b := newBench(t, Config{Aggregators: 8, Seed: *seed, Ports: []PortConfig{{Number: 1}, {Number: 2, Egress: egress}}})
	for job := uint16(1); job <= 3; job++ {
		if err := b.ina.SetJob(ina.JobEntry{Job: job, UpPort: 2}); err != nil {
			t.Fatal(err)
		}
	}
	b.routes[here] = route{port: b.byPort[2]}
	return b
}

func (b *bench) in(port uint32, at time.Duration, frame []byte) {
	b.run(at)
	b.receive(b.byPort[port], frame, at)
}

// gradient is a frame of a job with its lanes' bytes, so size is 64 + 4*lanes.
func gradient(job uint16, psn uint32, lanes int) []byte {
	return inaFrame(ina.Header{Job: job, PSN: psn, Lanes: uint8(lanes), Bitmap: 1}, 1)
}

func TestRateAndDelayAreExact(t *testing.T) {
	for _, tc := range []struct{ rate, burst float64 }{{100e6, 0}, {1e9, 0}, {9.87654321e9, 0}, {2.5e9, 20e-6}} {
		delay := 50 * time.Microsecond
		b := through(t, LinkConfig{Rate: tc.rate, Delay: delay, Buffer: 1 << 22})
		const n, size = 2000, 1024
		for i := range n {
			b.in(1, time.Duration(tc.burst*float64(i/100)*1e9), gradient(1, uint32(i), 240))
		}
		b.run(time.Second)
		if len(b.out) != n {
			t.Fatalf("%d frames came out of %d", len(b.out), n)
		}
		for i, s := range b.out {
			want := time.Duration(float64(i+1)*size*8e9/tc.rate) + delay
			if d := s.at - want; d < -1 || d > 1 {
				t.Fatalf("rate %v: frame %d left at %v, want %v", tc.rate, i, s.at, want)
			}
		}
	}
}

// A cable carries its rate as long as there are frames, whatever comes and when, and one that is slow carries less: by when
// frames came and whether any was left.
func TestCableWorks(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 8))
	for i := range 60 {
		discipline := []string{"fifo", "drr", "drr-flow"}[i%3]
		rate := 1e6 * math.Pow(10, 4*rng.Float64())
		slow := i%2 == 1
		b := through(t, LinkConfig{Rate: rate, Delay: time.Duration(rng.IntN(1e6)), Buffer: 1 << (12 + rng.IntN(8)), Discipline: discipline})
		if slow {
			if _, err := b.sabotage(sabotage.Act{Fault: "slow-down", Port: 2, Dir: "egress"}, 0); err != nil {
				t.Fatal(err)
			}
		}
		load := .2 + 2*rng.Float64()
		at, whole := time.Duration(0), Cable{}
		var parts []Cable
		for psn := range 3000 {
			lanes := 1 + rng.IntN(240)
			at += time.Duration(rng.ExpFloat64() * float64(64+4*lanes) * 8e9 / rate / load)
			pause := rng.IntN(200) == 0
			if pause {
				at += time.Duration(50 * 1024 * 8e9 / rate)
			}
			b.in(1, at, gradient(uint16(1+rng.IntN(3)), uint32(psn), lanes))
			if pause || rng.IntN(300) == 0 { // which may be before anything happens to the frame
				parts = append(parts, b.cables()...)
			}
		}
		parts = append(parts, b.cables()...)
		for _, p := range parts {
			if p.Port != 2 || p.Ingress {
				t.Fatalf("%+v: only one cable has a rate", p)
			}
			is, slack := rate, 0.
			if slow {
				is, slack = rate*(1-sabotage.Slow), float64(p.Largest) // it begins with the second frame, and one is being sent
			}
			if could := is / 8 * p.Waited.Seconds(); math.Abs(float64(p.Carried)-could) > 1+2e-3*could+slack { // a time between frames ends within a nanosecond
				t.Errorf("setting %d, %s, slow %v, load %.2f: carried %d bytes in %v, want %.0f", i, discipline, slow, load, p.Carried, p.Waited, could)
			}
			whole.Carried += p.Carried
			whole.Waited += p.Waited
		}
		if out := b.byPort[2].counters[PortTx].bytes; out > whole.Carried {
			t.Errorf("setting %d: %d bytes came out, and %d were carried", i, out, whole.Carried)
		}
		if whole.Waited > max(b.now, b.byPort[2].egress.busy) {
			t.Errorf("setting %d: frames waited for %v of %v", i, whole.Waited, b.byPort[2].egress.busy)
		}
	}
}

// A queue per job gives two jobs the same, a queue per flow each of three workers.
func TestFairFlows(t *testing.T) {
	for discipline, want := range map[string]float64{"drr": 1. / 2, "drr-flow": 2. / 3} {
		b := through(t, LinkConfig{Rate: 100e6, Buffer: 40_000, Discipline: discipline})
		end := 200 * time.Millisecond
		var seen [3]float64
		for at := time.Duration(0); at < end; at += 1024 * 8 * time.Second / 80e6 { // each of three offers 80 Mbit/s
			for i, h := range []ina.Header{{Job: 1, Bitmap: 1}, {Job: 1, Rank: 1, Bitmap: 2}, {Job: 2, Bitmap: 1}} {
				h.Lanes = 240
				b.in(1, at+time.Duration(i), inaFrame(h, 1))
			}
		}
		b.run(end)
		for _, s := range b.out {
			seen[jobOf(s.b)]++
		}
		if got := seen[1] / (seen[1] + seen[2]); math.Abs(got-want) > 0.02 {
			t.Errorf("%s: job 1, of two workers, has %.3f of the link, want %.3f", discipline, got, want)
		}
	}
}

// tcpFrame is one of a connection from a port.
func tcpFrame(port uint16, size int) []byte {
	b := unicast(here, size)
	b[14+9] = 6
	binary.BigEndian.PutUint16(b[34:], port)
	return b
}

// With a queue per flow connections of TCP get the same, however much each offers.
func TestFairConnections(t *testing.T) {
	for discipline, fair := range map[string]bool{"fifo": false, "drr": false, "drr-flow": true} {
		b := through(t, LinkConfig{Rate: 100e6, Buffer: 40_000, Discipline: discipline})
		end := 200 * time.Millisecond
		var seen [2]float64
		for at := time.Duration(0); at < end; at += 1000 * 8 * time.Second / 80e6 { // one offers 160 Mbit/s, the other 80
			for i, port := range []uint16{1, 1, 2} {
				b.in(1, at+time.Duration(i), tcpFrame(port, 1000))
			}
		}
		b.run(end)
		for _, s := range b.out {
			seen[binary.BigEndian.Uint16(s.b[34:])-1]++
		}
		if got := seen[0] / (seen[0] + seen[1]); math.Abs(got-0.5) < 0.02 != fair || got < 0.48 {
			t.Errorf("%s: who offers twice as much has %.3f of the link, fair %v", discipline, got, fair)
		}
	}
}

// With a queue per job each ring has one, too, for gradients and for what acknowledges them, and
// what else goes by TCP has one together.
func TestFairRings(t *testing.T) {
	b := through(t, LinkConfig{Rate: 100e6, Buffer: 60_000, Discipline: "drr"})
	end := 200 * time.Millisecond
	seen := map[uint16]float64{}
	frame := func(from, to uint16) []byte {
		f := tcpFrame(from, 1000)
		binary.BigEndian.PutUint16(f[36:], to)
		return f
	}
	for at := time.Duration(0); at < end; at += 1000 * 8 * time.Second / 40e6 { // job 1 offers 40 Mbit/s, 2 120, 3 40, others 80
		b.in(1, at, inaFrame(ina.Header{Job: 1, Bitmap: 1, Lanes: 234}, 1))
		for i, f := range [][]byte{frame(40000, ina.RingPortBase|2), frame(40000, ina.RingPortBase|2), frame(ina.RingPortBase|2, 40000), frame(40000, ina.RingPortBase|3), frame(1, 2), frame(3, 0x6002)} {
			b.in(1, at+time.Duration(1+i), f)
		}
	}
	b.run(end)
	for _, s := range b.out {
		job := jobOf(s.b)
		if job == 0 {
			job = ownerOf(s.b)
		}
		seen[job] += float64(len(s.b))
	}
	all := seen[0] + seen[1] + seen[2] + seen[3]
	for job := range uint16(4) {
		if got := seen[job] / all; math.Abs(got-.25) > .02 {
			t.Errorf("job %d has %.3f of the link", job, got)
		}
	}
}

// Results that a PS sends to one worker after the other are in the queue of their job, not in one with those of
// other jobs; with a queue per flow those for each worker are one.
func TestFairResults(t *testing.T) {
	there := [4]byte{10, 0, 1, 3}
	result := func(job uint16, to [4]byte) []byte {
		f := unicast(to, 1000)
		binary.BigEndian.PutUint16(f[34:], ina.UpPortBase|job)
		binary.BigEndian.PutUint16(f[36:], ina.DownPortBase|job)
		return f
	}
	other := result(1, here)
	binary.BigEndian.PutUint16(other[34:], ina.UpPortBase|2) // from nobody who has it
	for discipline, want := range map[string][4]float64{"drr": {.25, .25, .25, .25}, "drr-flow": {.2, .2, .2, .4}} {
		b := through(t, LinkConfig{Rate: 100e6, Buffer: 60_000, Discipline: discipline})
		b.routes[there] = route{port: b.byPort[2]}
		end := 200 * time.Millisecond
		var seen [4]float64
		for at := time.Duration(0); at < end; at += 1000 * 8 * time.Second / 40e6 { // 40 Mbit/s of job 1, 80 of 2, 160 of 3 for two workers, 40 of none
			for i, f := range [][]byte{result(1, here), result(2, here), result(2, here), result(3, here), result(3, there), result(3, here), result(3, there), other} {
				b.in(1, at+time.Duration(i), f)
			}
		}
		b.run(end)
		for _, s := range b.out {
			seen[ownerOf(s.b)] += float64(len(s.b))
		}
		all := seen[0] + seen[1] + seen[2] + seen[3]
		for job, n := range seen {
			if got := n / all; math.Abs(got-want[job]) > .02 {
				t.Errorf("%s: job %d has %.3f of the link, want %.2f", discipline, job, got, want[job])
			}
		}
	}
}

// Whatever a frame holds, it is of a flow of TCP only if it says that it is TCP.
func TestTCPFlow(t *testing.T) {
	whole := tcpFrame(7, 80)
	if f := hostFlow(whole); f>>31 != 1 || f == hostFlow(tcpFrame(8, 80)) {
		t.Errorf("flow %#x, and %#x of another port", f, hostFlow(tcpFrame(8, 80)))
	}
	for name, change := range map[string]func(b []byte) []byte{
		"cut off":        func(b []byte) []byte { return b[:37] },
		"empty":          func([]byte) []byte { return nil },
		"UDP":            func(b []byte) []byte { b[23] = 17; return b },
		"IPv6":           func(b []byte) []byte { b[12], b[13] = 0x86, 0xdd; return b },
		"a fragment":     func(b []byte) []byte { b[21] = 9; return b },
		"the first one":  func(b []byte) []byte { b[20] = 0x20; return b },
		"a short header": func(b []byte) []byte { b[14] = 0x44; return b },
		"a long header":  func(b []byte) []byte { b[14] = 0x4f; return b[:74] },
	} {
		if f := hostFlow(change(slices.Clone(whole))); f != 0 {
			t.Errorf("%s: flow %#x", name, f)
		}
	}
}

func TestNoRateNoDelayIsAtOnce(t *testing.T) {
	b := through(t, LinkConfig{})
	b.in(1, 5, gradient(1, 0, 1))
	b.run(5)
	if len(b.out) != 1 || b.out[0].at != 5 {
		t.Errorf("out %+v", b.out)
	}
}

// Jobs that all want more than their share get the same bytes, whatever the size of
// their packets; in a fifo they get what they offer.
func TestFairQueues(t *testing.T) {
	for _, tc := range []struct {
		discipline string
		fair       bool
	}{{"drr", true}, {"fifo", false}} {
		b := through(t, LinkConfig{Rate: 100e6, Buffer: 40_000, Discipline: tc.discipline})
		// Job 1 offers 80 Mbit/s in large packets, job 2 160 in small ones, others 80.
		end := 200 * time.Millisecond
		type source struct {
			frame []byte
			gap   time.Duration
			at    time.Duration
		}
		sources := []source{
			{frame: gradient(1, 0, 240), gap: 1024 * 8 * time.Second / 80e6},
			{frame: gradient(2, 0, 16), gap: 128 * 8 * time.Second / 160e6},
			{frame: unicast(here, 700), gap: 700 * 8 * time.Second / 80e6},
		}
		for {
			s := &sources[0]
			for i := range sources {
				if sources[i].at < s.at {
					s = &sources[i]
				}
			}
			if s.at >= end {
				break
			}
			b.in(1, s.at, s.frame)
			s.at += s.gap
		}
		b.run(end)
		var bytes [3]float64
		for _, s := range b.out {
			if s.at > 20*time.Millisecond {
				bytes[jobOf(s.b)] += float64(len(s.b))
			}
		}
		total := bytes[0] + bytes[1] + bytes[2]
		even := true
		for _, n := range bytes {
			even = even && math.Abs(n/total-1./3) < 0.01
		}
		if even != tc.fair {
			t.Errorf("%s: bytes of others, job 1 and job 2 are %.0f", tc.discipline, bytes)
		}
		if got := total * 8 / 0.18; math.Abs(got/100e6-1) > 0.005 {
			t.Errorf("%s: link carried %.1f Mbit/s of 100", tc.discipline, got/1e6)
		}
	}
}

// A job that stays under its share loses nothing to one that floods.
func TestFairQueueIsolates(t *testing.T) {
	b := through(t, LinkConfig{Rate: 100e6, Buffer: 20_000, Discipline: "drr"})
	calm := 0
	for at := time.Duration(0); at < 100*time.Millisecond; at += 20 * time.Microsecond {
		b.in(1, at, gradient(1, 0, 240)) // 410 Mbit/s
		if at%(300*time.Microsecond) == 0 {
			calm++
			b.in(1, at, gradient(2, 0, 240)) // 27 Mbit/s
		}
	}
	b.run(time.Second)
	got := 0
	for _, s := range b.out {
		if jobOf(s.b) == 2 {
			got++
		}
	}
	if got != calm {
		t.Errorf("the calm job got %d of %d packets through", got, calm)
	}
	if drops, _ := b.counter(PortTxDrop, 2); drops == 0 || b.byPort[2].overflows != drops {
		t.Errorf("the flood lost %d packets, %d for a full queue", drops, b.byPort[2].overflows)
	}
}

func TestFullQueueDropsAndPeaks(t *testing.T) {
	b := through(t, LinkConfig{Rate: 8e6, Buffer: 5000}) // 1,024 us a frame
	for i := range 10 {
		b.in(1, time.Duration(i), gradient(1, uint32(i), 240))
	}
	b.run(time.Second)
	var psns []uint32
	for _, s := range b.out {
		psns = append(psns, binary.BigEndian.Uint32(s.b[payloadAt+4:]))
	}
	if want := []uint32{0, 1, 2, 3}; !slices.Equal(psns, want) {
		t.Errorf("out came %v, want %v", psns, want)
	}
	if n, bytes := b.counter(PortTxDrop, 2); n != 6 || bytes != 6*1024 {
		t.Errorf("port_tx_drop %d, %d", n, bytes)
	}
	if _, peak := b.counter(PortQueuePeak, 2); peak != 4*1024 {
		t.Errorf("port_queue_peak %d", peak)
	}
}

// What meets a queue above the threshold is marked, in the INA header and in an IPv4
// header whose checksum stays right; nothing else is.
func TestECN(t *testing.T) {
	b := through(t, LinkConfig{Rate: 8e6, ECN: 2 * 1024})
	frames := [][]byte{gradient(1, 0, 240), gradient(1, 1, 240), gradient(1, 2, 240), gradient(1, 3, 240), unicast(here, 1024), unicast(here, 1024)}
	frames[5][15] = 2 // ECT(0)
	setIPChecksum(frames[5][14:34])
	for i, f := range frames {
		b.in(1, time.Duration(i), f)
	}
	b.run(time.Second)
	// The third frame meets exactly the threshold.
	want := []bool{false, false, false, true, false, true}
	for i, s := range b.out {
		marked := s.b[15]&3 == 3
		if marked != want[i] {
			t.Errorf("frame %d: marked %v, want %v", i, marked, want[i])
		}
		if i < 4 && ina.Flags(s.b[payloadAt+1])&ina.FlagECN != 0 != want[i] {
			t.Errorf("frame %d: INA flags %x", i, s.b[payloadAt+1])
		}
		sum := binary.BigEndian.Uint16(s.b[24:])
		if setIPChecksum(s.b[14:34]); binary.BigEndian.Uint16(s.b[24:]) != sum {
			t.Errorf("frame %d: IPv4 checksum %#04x, want %#04x", i, sum, binary.BigEndian.Uint16(s.b[24:]))
		}
	}
	if n, _ := b.counter(PortMarked, 2); n != 2 {
		t.Errorf("port_marked %d", n)
	}
}

// The same seed damages the same frames, another seed others, and the rates are what
// they should be.
func TestImpairmentsBySeed(t *testing.T) {
	const n = 20_000
	im := Impair{Loss: 0.05, Duplicate: 0.02, Reorder: 0.1, ReorderBy: 100 * time.Microsecond}
	run := func(seed uint64, dir string) (psns []uint32, b *bench) {
		cfg := Config{Seed: seed, Ports: []PortConfig{{Number: 1}, {Number: 2}}}
		if dir == "ingress" {
			cfg.Ports[0].Ingress.Impair = im
		} else {
			cfg.Ports[1].Egress.Impair = im
		}
		b = newBench(t, cfg)
		b.ina.SetJob(ina.JobEntry{Job: 1, UpPort: 2})
		for i := range uint32(n) {
			b.in(1, time.Duration(i)*10*time.Microsecond, gradient(1, i, 1))
		}
		b.run(time.Second)
		for _, s := range b.out {
			psns = append(psns, binary.BigEndian.Uint32(s.b[payloadAt+4:]))
		}
		return psns, b
	}
	for _, tc := range []struct {
		dir        string
		drop, dups Counter
		port       int
	}{{"ingress", PortRxDrop, PortRxDup, 1}, {"egress", PortTxDrop, PortTxDup, 2}} {
		one, b := run(*seed, tc.dir)
		again, _ := run(*seed, tc.dir)
		other, _ := run(*seed+1, tc.dir)
		if !slices.Equal(one, again) || slices.Equal(one, other) {
			t.Errorf("%s: the seed does not decide", tc.dir)
		}
		late := 0
		for i, psn := range one[1:] {
			late += btoi(psn < one[i])
		}
		drop, _ := b.counter(tc.drop, tc.port)
		dups, _ := b.counter(tc.dups, tc.port)
		for _, c := range []struct {
			name string
			got  int64
			p    float64
		}{{"lost", drop, 0.05}, {"duplicated", dups, 0.02 * 0.95}, {"out of order", int64(late), 0.1 * 0.95 * 0.9}} {
			if sd := math.Sqrt(n * c.p * (1 - c.p)); math.Abs(float64(c.got)-n*c.p) > 6*sd {
				t.Errorf("%s: %d %s, want about %.0f", tc.dir, c.got, c.name, n*c.p)
			}
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// arrival is a frame that reaches a port of the switch.
type arrival struct {
	port  uint32
	at    time.Duration
	frame []byte
}

// traffic is a random switch with three jobs, one of each mode, whose PS is at port
// 4, and random frames for it.
func traffic(t testing.TB, rng *rand.Rand) (b *bench, in []arrival) {
	link := func() LinkConfig {
		l := LinkConfig{Discipline: []string{"fifo", "drr", "drr-flow"}[rng.IntN(3)], Buffer: 2000 + rng.IntN(20_000), ECN: rng.IntN(8000)}
		if rng.IntN(3) > 0 {
			l.Rate = 1e7 * math.Exp(5*rng.Float64())
		}
		if rng.IntN(3) > 0 {
			l.Delay = time.Duration(rng.IntN(200_000))
		}
		if rng.IntN(2) > 0 {
			l.Impair = Impair{Loss: rng.Float64() / 4, Duplicate: rng.Float64() / 4, Reorder: rng.Float64() / 4, ReorderBy: time.Duration(rng.IntN(100_000))}
		}
		return l
	}
	cfg := Config{Aggregators: 16, Seed: rng.Uint64()}
	for p := uint32(1); p <= 4; p++ {
		cfg.Ports = append(cfg.Ports, PortConfig{Number: p, Egress: link(), Ingress: link()})
	}
	b = newBench(t, cfg)
	b.routes[here] = route{port: b.byPort[2]}
	for job := uint16(1); job <= 3; job++ {
		if err := b.ina.SetJob(ina.JobEntry{Job: job, Mode: ina.Mode(job - 1), Base: uint32(job-1) * 8 % 16, Size: 8, Expect: 7, Window: 4, Root: true, UpPort: 4, DownGroup: job}); err != nil {
			t.Fatal(err)
		}
		b.groups[job] = []*port{b.byPort[1], b.byPort[2], b.byPort[3]}
	}
	at := time.Duration(0)
	for range 3000 {
		at += time.Duration(1 + rng.ExpFloat64()*20_000)
		from := 1 + rng.Uint32N(4)
		f := unicast(here, 60+rng.IntN(1400))
		if job := uint16(rng.IntN(4)); job > 0 {
			h := ina.Header{Job: job, PSN: rng.Uint32N(40), Lanes: 60, Bitmap: 1 << rng.IntN(3), Flags: ina.Flags(rng.IntN(2)) * ina.FlagResend}
			if from == 4 {
				h.Flags, h.Bitmap = ina.FlagResult, 7
			}
			f = inaFrame(h, 3)
		}
		in = append(in, arrival{from, at, f})
	}
	return b, in
}

// On every link, frames in + duplicated = frames out + dropped once it is empty, under
// random traffic, queues and damage; every buffer is back in the pool; frames leave a
// port in order of time.
func TestFramesAreConserved(t *testing.T) {
	t.Logf("-seed %d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 7))
	for range 50 {
		b, in := traffic(t, rng)
		for _, a := range in {
			b.in(a.port, a.at, a.frame)
		}
		b.run(in[len(in)-1].at + time.Second)
		for _, p := range b.ports {
			if p.ingress.queued+p.egress.queued != 0 || p.egress.next != never || p.ingress.next != never {
				t.Fatalf("port %d is not empty: %+v", p.number, p)
			}
			last := time.Duration(0)
			for _, s := range b.out {
				if s.port == p.number {
					if s.at < last {
						t.Fatalf("port %d sent at %v after %v", p.number, s.at, last)
					}
					last = s.at
				}
			}
		}
		c := func(c Counter) (n int64) {
			for _, p := range b.ports {
				n += p.counters[c].packets
			}
			return n
		}
		if c(PortRx) != int64(len(in)) || c(PortTx) != int64(len(b.out)) || len(b.out) == 0 {
			t.Fatalf("rx %d of %d, tx %d of %d", c(PortRx), len(in), c(PortTx), len(b.out))
		}
		if made := maxBuffers - b.pool.left; made != len(b.pool.buffers) {
			t.Fatalf("%d of %d buffers came back", len(b.pool.buffers), made)
		}
		// Between the cables: each frame that came out of one was unicast and went on, or
		// belonged to a job, whose own books say what it became.
		unicast := c(PortRx) + c(PortRxDup) - c(PortRxDrop) - c(PortNoRoute)
		var sent int64
		for job := 1; job <= 3; job++ {
			j := b.ina.Counters(uint16(job))
			unicast -= j.In.Packets + j.Results.Packets + j.Dropped.Packets
			up := int64(1)
			if ina.Mode(job-1) == ina.Synchronous { // its root sends sums to three workers
				up = 3
				sent -= 2 * j.Answers.Packets
			}
			sent += up*j.Out.Packets + 3*j.Results.Packets
		}
		if got := c(PortTx) + c(PortTxDrop) - c(PortTxDup); got != unicast+sent {
			t.Fatalf("%d frames entered cables, want %d", got, unicast+sent)
		}
	}
}

// A switch that gets the processor late sends the same frames, due at the same times.
func TestLatenessDoesNotMatter(t *testing.T) {
	t.Logf("-seed %d", *seed)
	for i := range uint64(20) {
		punctual, in := traffic(t, rand.New(rand.NewPCG(*seed, i)))
		late, _ := traffic(t, rand.New(rand.NewPCG(*seed, i)))
		for k, a := range in {
			punctual.in(a.port, a.at, slices.Clone(a.frame))
			late.receive(late.byPort[a.port], a.frame, a.at)
			if k%97 == 0 {
				late.run(a.at)
			}
		}
		end := in[len(in)-1].at + time.Second
		punctual.run(end)
		late.run(end)
		if len(punctual.out) != len(late.out) {
			t.Fatalf("seed %d: %d frames, %d when late", i, len(punctual.out), len(late.out))
		}
		for k, want := range punctual.out {
			if got := late.out[k]; got.port != want.port || got.at != want.at || string(got.b) != string(want.b) {
				t.Fatalf("seed %d: frame %d is\n%+v, when late\n%+v", i, k, want, got)
			}
		}
	}
}

// Sums are made in order of virtual time, not of reading: of two frames whose cables
// have other lengths, the one that gets through first decides.
func TestPortsMeetInOrderOfTime(t *testing.T) {
	b := newBench(t, Config{Aggregators: 1, Ports: []PortConfig{
		{Number: 1, Ingress: LinkConfig{Delay: 50 * time.Microsecond}},
		{Number: 2, Ingress: LinkConfig{Delay: 20 * time.Microsecond}},
		{Number: 3},
	}})
	if err := b.ina.SetJob(ina.JobEntry{Job: 1, Mode: ina.Statistical, Size: 1, Expect: 3, Window: 4, UpPort: 3}); err != nil {
		t.Fatal(err)
	}
	b.receive(b.byPort[1], inaFrame(ina.Header{Job: 1, PSN: 1, Lanes: 1, Bitmap: 1}, 1), 0)
	b.receive(b.byPort[2], inaFrame(ina.Header{Job: 1, PSN: 2, Lanes: 1, Bitmap: 2}, 1), 10*time.Microsecond)
	b.run(time.Millisecond)
	if len(b.out) != 1 || binary.BigEndian.Uint32(b.out[0].b[payloadAt+4:]) != 1 || b.out[0].at != 50*time.Microsecond {
		t.Errorf("PSN 2 was first at the switch and takes the aggregator; out came %+v", b.out)
	}
}

func TestForwardingDoesNotAllocate(t *testing.T) {
	l := LinkConfig{Rate: 1e9, Delay: 30 * time.Microsecond, Discipline: "drr", ECN: 10_000, Impair: Impair{Loss: .01, Duplicate: .01, Reorder: .01, ReorderBy: 20 * time.Microsecond}}
	e, err := newEngine(Config{Aggregators: 256, Ports: []PortConfig{{Number: 1, Egress: l, Ingress: l}, {Number: 2, Egress: l, Ingress: l}, {Number: 3, Egress: l, Ingress: l}}})
	if err != nil {
		t.Fatal(err)
	}
	e.emit = func(_ *port, p *packet) { e.pool.put(p) }
	e.groups[1] = []*port{e.byPort[1], e.byPort[2]}
	if err := e.ina.SetJob(ina.JobEntry{Job: 1, Mode: ina.Statistical, Size: 256, Expect: 3, Window: 128, UpPort: 3, DownGroup: 1}); err != nil {
		t.Fatal(err)
	}
	frames := [3][]byte{gradient(1, 0, 240), inaFrame(ina.Header{Job: 1, Lanes: 240, Bitmap: 2}, 1), inaFrame(ina.Header{Job: 1, Lanes: 240, Bitmap: 3, Flags: ina.FlagResult}, 1)}
	psn, at := uint32(0), time.Duration(0)
	if n := testing.AllocsPerRun(20_000, func() {
		for i, f := range frames {
			binary.BigEndian.PutUint32(f[payloadAt+4:], psn)
			e.run(at)
			e.receive(e.ports[i], f, at)
			at += 10 * time.Microsecond
		}
		psn++
	}); n != 0 {
		t.Errorf("%v allocations per PSN", n)
	}
}

func TestConfigRefused(t *testing.T) {
	for _, edit := range []func(*Config){
		func(c *Config) { c.Ports[1].Number = 1 },
		func(c *Config) { c.Ports[0].Number = 0 },
		func(c *Config) { c.Ports[0].Egress.Rate = -1 },
		func(c *Config) { c.Ports[0].Egress.Rate = math.NaN() },
		func(c *Config) { c.Ports[0].Ingress.Discipline = "lifo" },
		func(c *Config) { c.Ports[0].Ingress.Impair.Loss = 1.5 },
		func(c *Config) { c.Ports[0].Ingress.Impair.ReorderBy = -1 },
		func(c *Config) { c.MTU = 100 },
		func(c *Config) { c.Aggregators = -1 },
	} {
		c := Config{Name: "s", Ports: []PortConfig{{Number: 1}, {Number: 2}}}
		edit(&c)
		if e, err := newEngine(c); err == nil || e != nil {
			t.Errorf("%+v: accepted", c)
		}
	}
}

// An engine must survive any frame.
func FuzzFrame(f *testing.F) {
	f.Add(gradient(1, 0, 2), uint8(1))
	f.Add(inaFrame(ina.Header{Job: 1, Lanes: 2, Bitmap: 3, Flags: ina.FlagResult}, 1), uint8(2))
	f.Add(unicast(here, 60), uint8(3))
	f.Add([]byte{}, uint8(0))
	f.Fuzz(func(t *testing.T, frame []byte, mode uint8) {
		b := through(t, LinkConfig{Rate: 1e9, ECN: 1})
		b.ina.SetJob(ina.JobEntry{Job: 1, Mode: ina.Mode(mode % 3), Size: 8, Expect: 3, Window: 4, UpPort: 2, DownGroup: 1, Root: mode&64 != 0})
		b.groups[1] = []*port{b.byPort[1], b.byPort[2]}
		for i := range 3 {
			b.in(1, time.Duration(i), slices.Clone(frame))
		}
		b.run(time.Second)
		if made := maxBuffers - b.pool.left; made != len(b.pool.buffers) {
			t.Fatalf("%d of %d buffers came back", len(b.pool.buffers), made)
		}
	})
}

// With another switch behind the cables, frames only pass: those from outside come out of
// the cable's inward direction and go to that switch, those from it go through the outward
// one. No table is asked.
func TestCablesOfAnotherSwitch(t *testing.T) {
	e, err := newEngine(Config{Ports: []PortConfig{
		{Number: 1, Inner: "i1", Ingress: LinkConfig{Delay: 30 * time.Microsecond}, Egress: LinkConfig{Delay: 50 * time.Microsecond}},
		{Number: 2, Inner: "i2"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	e.emit = func(to *port, p *packet) {
		got = append(got, fmt.Sprintf("port %d inside=%t at %v", to.number, slices.Contains(e.inner, to), p.at))
		e.pool.put(p)
	}
	frame := inaFrame(ina.Header{Job: 9, Lanes: 1, Bitmap: 1}, 1)
	e.receive(e.byPort[1], frame, 0)
	e.run(time.Millisecond)
	e.receive(e.byPort[1].other, frame, time.Millisecond)
	e.run(2 * time.Millisecond)
	want := []string{"port 1 inside=true at 30µs", "port 1 inside=false at 1.05ms"}
	if !slices.Equal(got, want) {
		t.Errorf("frames go to %q, want %q", got, want)
	}
	if _, err := newEngine(Config{Ports: []PortConfig{{Number: 1, Inner: "i1"}, {Number: 2}}}); err == nil {
		t.Error("a switch of which one port alone leads to another one is accepted")
	}
}
