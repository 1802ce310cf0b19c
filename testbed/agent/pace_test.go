package agent

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/ina"
)

// paced is one worker and its pacer in virtual time, its results coming from a PS.
type paced struct {
	w    *ina.Worker
	pace pacer
	sent []time.Duration // due time by PSN
	buf  []byte
}

func newPaced(t *testing.T, rank, workers, window int, gap time.Duration) *paced {
	t.Helper()
	w, err := ina.NewWorker(ina.WorkerConfig{Job: 1, Rank: rank, Workers: workers, Lanes: 2, Window: window, RTO: time.Second, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.Allow(ina.Endless, 0)
	return &paced{w: w, pace: pacer{gap: float64(gap), scatter: gap > 0}, buf: make([]byte, w.PacketLen())}
}

// rackOfPaced runs workers, each looking at its clock only every so often and late,
// against a PS that answers a round trip after the last packet was due, until n PSNs
// are reduced.
func rackOfPaced(t *testing.T, workers, window, n int, gap, rtt time.Duration) []*paced {
	t.Helper()
	ps, err := ina.NewPS(ina.PSConfig{Job: 1, Workers: workers, Lanes: 2, Window: window})
	if err != nil {
		t.Fatal(err)
	}
	var all []*paced
	for rank := range workers {
		all = append(all, newPaced(t, rank, workers, window, gap))
	}
	type result struct {
		at time.Duration
		b  []byte
	}
	var results []result
	rng := rand.New(rand.NewPCG(1, 2))
	done := 0
	for now := time.Duration(0); done < n; now += time.Duration(1 + rng.Int64N(int64(20*time.Microsecond))) {
		for len(results) > 0 && results[0].at <= now {
			for _, p := range all {
				p.w.Receive(results[0].b, results[0].at)
				p.pace.due(p.w) // a result that opens the window is looked at as it comes
			}
			results = results[1:]
			done++
		}
		for _, p := range all {
			if rng.IntN(3) == 0 { // descheduled
				continue
			}
			for {
				due, ok := p.pace.due(p.w)
				if !ok || due > now {
					break
				}
				p.pace.sent()
				p.sent = append(p.sent, due)
				if b, _ := ps.Receive(p.buf[:p.w.Send(now, p.buf)]); b != nil {
					results = append(results, result{now + rtt, append([]byte(nil), b...)})
				}
			}
		}
	}
	return all
}

// At a rate limit the workers of a job keep one schedule, however late each of them
// runs: packets are scattered within blocks, and blocks follow each other exactly.
func TestPacerKeepsOneExactSchedule(t *testing.T) {
	const n, gap = 5000, 100 * time.Microsecond
	all := rackOfPaced(t, 3, 256, n, gap, time.Millisecond)
	sent := all[0].sent
	for psn := ina.Startup; psn < n; psn++ {
		for rank, p := range all {
			if p.sent[psn] != sent[psn] {
				t.Fatalf("PSN %d is due at %v on worker %d and %v on worker 0", psn, p.sent[psn], rank, sent[psn])
			}
		}
	}
	// Any place in its block, and no other: from the first PSN of one block to that of
	// another it is whole blocks, give or take one.
	short, first := 0, (ina.Startup/ina.Block+1)*ina.Block
	for psn := first; psn < n; psn++ {
		blocks := time.Duration(psn/ina.Block - first/ina.Block)
		if d := sent[psn] - sent[first] - blocks*ina.Block*gap; d < -ina.Block*gap || d > ina.Block*gap {
			t.Fatalf("PSN %d is sent %v away from its block", psn, d)
		}
		if sent[psn] < sent[psn-1] {
			t.Fatalf("PSN %d is sent before the one before", psn)
		}
		if sent[psn]-sent[psn-1] < gap/2 {
			short++
		}
	}
	// Random arrivals: 1-exp(-1/2) of the gaps are less than half of the mean.
	if f := float64(short) / float64(n-first); f < .35 || f > .44 {
		t.Errorf("%.2f of the gaps are less than half of the mean, want 0.39", f)
	}
}

// Without a rate limit, results clock the packets out: the window is used up, and
// what it sustains is hardly less than a window a round trip.
func TestPacerFollowsTheWindow(t *testing.T) {
	const n, window, rtt = 20_000, 64, 2 * time.Millisecond
	all := rackOfPaced(t, 2, window, n, 0, rtt)
	sent := all[0].sent
	span := sent[n-1] - sent[n/2]
	rate := float64(n-1-n/2) / span.Seconds()
	if best := window / rtt.Seconds(); rate < .9*best || rate > best {
		t.Errorf("%.0f packets/s, window per round trip allows %.0f", rate, best)
	}
	burst := 0
	for psn := n / 2; psn < n; psn++ {
		if sent[psn]-sent[psn-1] < rtt/window/10 {
			burst++
		}
	}
	if burst > n/2/2 {
		t.Errorf("%d of %d packets follow the one before at once", burst, n/2)
	}
}

// A packet that was scheduled before its window shut is due when it opens again, so
// that the wait for the window does not count as lateness.
func TestPacerReschedules(t *testing.T) {
	w, err := ina.NewWorker(ina.WorkerConfig{Job: 1, Workers: 1, Lanes: 2, Window: 4, AIMD: true, RTO: time.Second})
	must(t, err)
	w.Allow(ina.Endless, 0)
	var p pacer
	ref := ina.NewReference(0, 1, 1).In(0)
	b := make([]byte, w.PacketLen())
	send := func(now time.Duration) {
		t.Helper()
		if w.Send(now, b) == 0 {
			t.Fatal("window is shut")
		}
		p.sent()
	}
	answer := func(psn uint32, f ina.Flags, at time.Duration) {
		ina.Header{Flags: ina.FlagResult | f, Job: 1, PSN: psn, Lanes: 2, Bitmap: 1}.Put(b)
		ref.Sum(b[ina.HeaderLen:], psn)
		if !w.Receive(b, at) {
			t.Fatalf("result of PSN %d not taken", psn)
		}
	}
	for psn := range uint32(ina.Startup) {
		p.due(w)
		send(0)
		answer(psn, 0, time.Millisecond)
	}
	for range 3 {
		p.due(w)
		send(2 * time.Millisecond)
	}
	before, ok := p.due(w) // the fourth of the window waits to be sent
	if !ok {
		t.Fatal("window of four is shut after three")
	}
	answer(3, ina.FlagECN, 3*time.Millisecond) // halved, with two in flight from PSN 2 on
	if _, ok := p.due(w); ok {
		t.Fatal("window of two is open with PSN 2 missing")
	}
	answer(2, 0, 50*time.Millisecond)
	if at, ok := p.due(w); !ok || at < 50*time.Millisecond || at > 60*time.Millisecond {
		t.Errorf("due at %v (%v), was %v, and the window opened again at 50ms", at, ok, before)
	}
}
