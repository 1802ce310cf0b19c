package collectives

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// alike are machines with links of 1 bit/s each way.
var alike = Network{Rate: func(int) float64 { return 1 }}

func apart(n int) []int {
	at := make([]int, n)
	for w := range at {
		at[w] = w
	}
	return at
}

// Vectors are of 1 bit and links of 1 bit/s, so that times are in parts of the vector.
func TestScheduleSeconds(t *testing.T) {
	slow := func(machine int) float64 {
		if machine == 1 {
			return 0.5
		}
		return 1
	}
	for name, tt := range map[string]struct {
		s    Schedule
		at   []int
		net  Network
		want float64
	}{
		"alone":       {Ring(1), []int{3}, alike, 0},
		"one machine": {HalvingDoubling(6), []int{0, 0, 0, 0, 0, 0}, alike, 0},
		// Each of two phases: that the other is there, half of the vector, its last bit, and
		// that it has come.
		"two": {Ring(2), []int{0, 1}, Network{Rate: alike.Rate, Latency: 0.125}, 2 * (0.125 + 0.5 + 0.125 + 0.125)},
		"two on one machine": {Ring(2), []int{0, 0}, Network{Rate: alike.Rate, Local: 4, LocalLatency: 0.125, Latency: 99},
			2 * (0.125 + 2*0.5/4 + 0.125 + 0.125)},
		// Both send at once, each at its own rate; a server sends two workers half as fast each.
		"two that are slow": {Ring(2), []int{0, 0}, Network{Rate: alike.Rate, Worker: 4}, 2 * 0.5 / 4},
		"a slow server":     {ParameterServer(3, 1), []int{0, 0, 0}, Network{Rate: alike.Rate, Worker: 0.5}, 1/0.5 + 2/0.5},
		// What both workers of a machine send takes as long as if one of them sent all of it.
		"pairs across":           {HalvingDoubling(4), []int{1, 2, 1, 2}, alike, 2 * 2 * 0.25},
		"all to one server":      {ParameterServer(4, 1), apart(4), alike, 3 + 3},
		"a slow machine":         {HalvingDoubling(2), apart(2), Network{Rate: slow}, 2 * 0.5 / 0.5},
		"a ring past a slow one": {Ring(4), apart(4), Network{Rate: slow}, 6 * 0.25 / 0.5},
		// Of three, the third hands 2 its half … see TestBinaryBlocks; nothing overlaps.
		"three": {HalvingDoubling(3), apart(3), alike, 0.5 + 1 + 1 + 0.5},
		// HiveD's placement in Figure 1: worker 3 is alone, and its transfers with 1 (K/2), with 2
		// (K/4 twice) and with 1 again (K/2) follow each other; those of the others take no time.
		"HiveD in Figure 1": {HalvingDoubling(4), []int{1, 1, 1, 3}, alike, 1.5},
		// Recursive doubling of four with 0 and 2 on one machine: 0 and 1 exchange K, 2 and 3
		// too, over the one link of 0 and 2; then 0 and 2 are done at once, and 1 and 3, on
		// links of their own, need as long as one transfer takes.
		"two on one link": {RecursiveDoubling(4), []int{0, 1, 0, 3}, alike, 2 + 1},
		"no way through":  {Ring(2), apart(2), Network{Rate: func(int) float64 { return 0 }}, math.Inf(1)},
		"latency only":    {RecursiveDoubling(8), apart(8), Network{Rate: func(int) float64 { return math.Inf(1) }, Latency: 1}, 3 * 3},
		// What goes and what comes each leave half as much for what acknowledges the other; what
		// goes one way only meets nothing.
		"two that acknowledge":        {Ring(2), []int{0, 1}, Network{Rate: alike.Rate, Acks: 0.5}, 2 * 0.5 * 1.5},
		"one way at a time":           {ParameterServer(2, 1), []int{0, 1}, Network{Rate: alike.Rate, Acks: 0.5}, 1 + 1},
		"acknowledged on a machine":   {Ring(2), []int{0, 0}, Network{Rate: alike.Rate, Worker: 4, Acks: 0.5}, 2 * 0.5 / 4},
		"a ring that is acknowledged": {Ring(4), apart(4), Network{Rate: alike.Rate, Acks: 0.25}, 6 * 0.25 * 1.25},
		"local beside far":            {ParameterServer(3, 1), []int{0, 0, 1}, Network{Rate: alike.Rate, Local: 0.25}, 4 + 4},
	} {
		if got := tt.s.Seconds(tt.at, 1, tt.net); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// Workers that end early go on without the others, and those that begin late are waited for
// by whoever needs them only.
func TestTimes(t *testing.T) {
	// Of five, four on one machine are a block: they wait for the fifth to hand them its
	// gradients, and then each sends it a quarter of the sums.
	p := HalvingDoubling(5).Pattern()
	net := Network{Rate: alike.Rate, Latency: 0.25}
	begin := []float64{0, 0, 0, 0, 10}
	got := p.Times([]int{0, 0, 0, 0, 1}, 1, net, begin)
	// The fifth knows when it begins that all are there. Its vector takes 1 to leave, the last
	// bit 0.25 to come, and that it has come 0.25 to be heard of. Then it tells them that it is
	// there for the sums, which take as long. What they do among themselves takes no time.
	for w, want := range []float64{13.25, 13.25, 13.25, 13.25, 13} {
		if math.Abs(got[w]-want) > 1e-9 {
			t.Errorf("worker %d ends at %v, want %v (%v)", w, got[w], want, got)
			break
		}
	}
}

// seed is INABENCH_SEED, or another each time, and printed.
func seed(t testing.TB) uint64 {
	t.Helper()
	s := rand.Uint64()
	if v, err := strconv.ParseUint(os.Getenv("INABENCH_SEED"), 10, 64); err == nil {
		s = v
	}
	t.Logf("INABENCH_SEED=%d", s)
	return s
}

// random is an operation somewhere.
func random(t *testing.T, rng *rand.Rand) (s Schedule, at []int, bits float64, net Network) {
	t.Helper()
	names := Names()
	s, err := New(names[rng.IntN(len(names))], 1+rng.IntN(17))
	if err != nil {
		t.Fatal(err)
	}
	machines := 1 + rng.IntN(8)
	rates := make([]float64, machines)
	for m := range rates {
		rates[m] = 1e6 * (1 + 9*rng.Float64())
	}
	for range s.Workers {
		at = append(at, rng.IntN(machines))
	}
	net = Network{Rate: func(m int) float64 { return rates[m] }, Latency: rng.Float64() * 0.01, LocalLatency: rng.Float64() * 0.01}
	if rng.IntN(2) == 0 {
		net.Acks = 0.1 * rng.Float64()
	}
	if rng.IntN(2) == 0 {
		net.Local = 1e6 * (1 + 9*rng.Float64())
	}
	return s, at, 1e6 * rng.Float64(), net
}

// Whatever the operation: no link carries more than it can, latencies are what they are, units
// do not matter, nor what machines are called, nor the order in which they are.
func TestSecondsProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 1))
	for i := range 2000 {
		s, at, bits, net := random(t, rng)
		got := s.Seconds(at, bits, net)
		name := fmt.Sprintf("case %d: %s of %d at %v", i, s.Name, s.Workers, at)
		near := func(what string, other, want float64) {
			t.Helper()
			if math.Abs(other-want) > 1e-6*math.Max(1e-3, math.Abs(want)) {
				t.Errorf("%s: %s: %v s, want %v", name, what, other, want)
			}
		}
		// The busiest direction of a link, and a worker's phases in a row, are the least.
		busy := map[[2]int]float64{}
		phases := make([]float64, s.Workers)
		for _, ph := range s.Pattern().Phases {
			for _, f := range ph.Flows {
				a, b := at[f.From], at[f.To]
				v := bits / float64(s.Chunks) * float64(f.Volume*ph.Times)
				if a != b {
					busy[[2]int{0, a}] += v / net.Rate(a)
					busy[[2]int{1, b}] += v / net.Rate(b)
					busy[[2]int{1, a}] += net.Acks * v / net.Rate(a)
					busy[[2]int{0, b}] += net.Acks * v / net.Rate(b)
				} else if net.Local > 0 {
					busy[[2]int{2, a}] += v / net.Local
				}
			}
			for w := range phases {
				longest := 0.0
				for _, f := range ph.Flows {
					latency := net.LocalLatency
					if at[f.From] != at[f.To] {
						latency = net.Latency
					}
					switch w {
					case f.To: // who has to say first that it is there
						longest = max(longest, 2*latency)
					case f.From: // who has to hear that all has come
						longest = max(longest, 2*latency)
					}
				}
				phases[w] += float64(ph.Times) * longest
			}
		}
		for _, least := range busy {
			if got < least*(1-1e-6) {
				t.Errorf("%s: %v s, and a link alone needs %v", name, got, least)
			}
		}
		for w, least := range phases {
			if got < least*(1-1e-6) {
				t.Errorf("%s: %v s, and the latencies of worker %d alone are %v", name, got, w, least)
			}
		}
		// All half as fast again. Of links alone that need not help: which transfers meet is
		// another matter then (as in R. L. Graham, "Bounds on Multiprocessing Timing
		// Anomalies", 1969), and one in some 100,000 cases is a little slower.
		faster := net
		faster.Rate = func(m int) float64 { return 1.5 * net.Rate(m) }
		faster.Local, faster.Latency, faster.LocalLatency = 1.5*net.Local, net.Latency/1.5, net.LocalLatency/1.5
		near("with everything half as fast again", s.Seconds(at, bits, faster), got/1.5)
		// Milliseconds instead of seconds, and kilobits instead of bits.
		unit := net
		unit.Rate = func(m int) float64 { return net.Rate(m) / 1e6 }
		unit.Local /= 1e6
		unit.Latency *= 1e3
		unit.LocalLatency *= 1e3
		near("in other units", s.Seconds(at, bits/1e3, unit), got*1e3)
		// Other names of the machines.
		names := rng.Perm(8)
		renamed := make([]int, len(at))
		for w := range at {
			renamed[w] = 100 - 7*names[at[w]]
		}
		called := net
		called.Rate = func(m int) float64 {
			for i, x := range names {
				if 100-7*x == m {
					return net.Rate(i)
				}
			}
			t.Fatalf("%s: machine %d is asked for", name, m)
			return 0
		}
		near("with machines of other names", s.Seconds(renamed, bits, called), got)
		// Whoever begins later, all later by as much, ends later by as much.
		begin := make([]float64, s.Workers)
		for w := range begin {
			begin[w] = 5
		}
		shifted := s.Pattern().Times(at, bits, net, begin)
		for _, end := range shifted {
			if end < 5 || end > (5+got)*(1+1e-6) { // what is the same time is a part of the time
				t.Errorf("%s: began at 5 s, ended at %v s; all together take %v s", name, end, got)
			}
		}
	}
}

// Workers of a ring, and of a power of two in halving and doubling, on machines of their own
// or alike in pairs, are in the same phase all the time.
func TestSecondsInLockstep(t *testing.T) {
	for _, n := range []int{2, 4, 8, 16} {
		for _, per := range []int{1, 2} {
			if per == n {
				continue
			}
			for _, name := range []string{"halving-doubling", "halving-doubling-near", "recursive-doubling", "parameter-server", "ring", "all-gather"} {
				s, err := New(name, n)
				if err != nil {
					t.Fatal(err)
				}
				at := apart(n)
				for w := range at {
					at[w] /= per
				}
				want := s.Pattern().Seconds(at, 1, 0, alike.Rate)
				if got := s.Seconds(at, 1, alike); math.Abs(got-want) > 1e-9 {
					t.Errorf("%s of %d, %d on a machine: %v, with barriers %v", name, n, per, got, want)
				}
			}
		}
	}
}

func BenchmarkSeconds(b *testing.B) {
	for _, name := range []string{"halving-doubling", "ring"} {
		for _, n := range []int{12, 64} {
			s, _ := New(name, n)
			p := s.Pattern()
			at := make([]int, n)
			for w := range at {
				at[w] = w * w % 7 // no two machines alike
			}
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					p.Times(at, 1e9, Network{Rate: func(int) float64 { return 100e9 }, Latency: 1e-5, LocalLatency: 1e-6}, nil)
				}
			})
		}
	}
}

// A ring of n sends 2(n-1) chunks; what comes late of one delays the next.
func TestRingTail(t *testing.T) {
	const mega = 1e6
	for _, tt := range []struct {
		name            string
		n               int
		bytes, transfer float64
		hops            []float64
		want            float64
	}{
		{"alone", 1, mega, 0, []float64{1}, 0},
		{"chunks last longer than the way: the last hop", 2, mega, 1, []float64{0.25}, 0.25},
		{"of four, too", 4, 4 * mega, 6, []float64{0.25}, 0.25},
		// A chunk of 61,440 bytes is passed on in eight blocks. Each step after the first one
		// begins the way and a block after the one before it, not a chunk.
		{"a long way", 4, 4 * 61440, 6, []float64{2}, 2 + 5*(2+1/8.-1)},
		// One that is as small as a block leaves when all of it has come.
		{"small", 3, 3 * 960, 4, []float64{2}, 2 + 3*(2+1-1)},
		{"the same way for each worker", 4, 4 * 61440, 6, []float64{2, 2, 2, 2}, 2 + 5*(2+1/8.-1)},
		// Four steps of three workers pass each hop once, and the slowest twice at most.
		{"one slow hop", 3, 3 * 960, 0, []float64{1, 5, 1}, 5 + 1 + 1 + 5},
		{"a slow hop that chunks hide but for the last", 4, 4 * mega, 60, []float64{1, 8, 1, 1}, 8},
		{"nothing", 3, 0, 0, []float64{2}, 2 + 3*2},
	} {
		if got := RingTail(tt.n, tt.bytes, tt.transfer, tt.hops...); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v s, want %v", tt.name, got, tt.want)
		}
	}
}
