package ina

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestReferenceSumsItsRanks(t *testing.T) {
	for _, n := range []int{1, 2, 3, 64} {
		for lanes := range MaxLanes + 1 {
			ref := NewReference(*seed, 5, n)
			psn := uint32(lanes * 1_000_003)
			sum := make([]int64, lanes)
			b := make([]byte, 4*lanes)
			for r := range n {
				ref.Fill(b, r, psn)
				for i := range sum {
					v := int64(int32(binary.BigEndian.Uint32(b[4*i:])))
					if v >= 1<<24 || v <= -1<<24 {
						t.Fatalf("gradient %d is out of its range", v)
					}
					sum[i] += v
				}
			}
			ref.Sum(b, psn)
			for i, want := range sum {
				if got := int64(int32(binary.BigEndian.Uint32(b[4*i:]))); got != want {
					t.Fatalf("n=%d, %d lanes: lane %d of the sum is %d, its ranks add up to %d", n, lanes, i, got, want)
				}
			}
			if wrong := ref.Check(b, psn); wrong != 0 {
				t.Fatalf("n=%d, %d lanes: %d wrong in a true sum", n, lanes, wrong)
			}
		}
	}
}

// Check counts exactly the lanes that differ, wherever they are.
func TestCheckCountsEveryWrongLane(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 1))
	for lanes := 1; lanes <= 20; lanes++ {
		ref := NewReference(*seed, 5, 4)
		for range 50 {
			psn := rng.Uint32()
			b := make([]byte, 4*lanes)
			ref.Sum(b, psn)
			want := 0
			for i := range lanes {
				if rng.IntN(3) == 0 {
					b[4*i+rng.IntN(4)] ^= 1 << rng.IntN(8)
					want++
				}
			}
			if wrong := ref.Check(b, psn); wrong != want {
				t.Fatalf("%d lanes: %d wrong, want %d", lanes, wrong, want)
			}
		}
	}
}

// No bit of a sum means anything but itself: each one that is flipped, and each multiple of
// 2^24 that is added to lane 0, is one wrong lane.
func TestCheckCountsEveryBit(t *testing.T) {
	for _, workers := range []int{4, MaxWorkers} {
		for _, lanes := range []int{16, 20, MaxLanes} {
			ref := NewReference(*seed, 5, workers)
			b := make([]byte, 4*lanes)
			for psn := range uint32(3) {
				ref.Sum(b, psn)
				for bit := range 8 * len(b) {
					b[bit/8] ^= 1 << (bit % 8)
					if wrong := ref.Check(b, psn); wrong != 1 {
						t.Fatalf("%d workers, %d lanes, PSN %d: bit %d flipped, %d wrong", workers, lanes, psn, bit, wrong)
					}
					b[bit/8] ^= 1 << (bit % 8)
				}
				for n := 1; n < 256; n++ {
					b[0]++
					if wrong := ref.Check(b, psn); wrong != 1 {
						t.Fatalf("%d workers, %d lanes, PSN %d: lane 0 is %d * 2^24 too large, %d wrong", workers, lanes, psn, n, wrong)
					}
				}
			}
		}
	}
}

// The faults an aggregator can have show in nearly every lane.
func TestReferenceTellsFaultsApart(t *testing.T) {
	const n, lanes = 4, 240
	ref := NewReference(*seed, 5, n)
	b, part := make([]byte, 4*lanes), make([]byte, 4*lanes)
	faults := map[string]func(psn uint32){
		"a rank is missing": func(psn uint32) {
			clear(b)
			for r := range n - 1 {
				ref.Fill(part, r, psn)
				addLanes(b, part)
			}
		},
		"one rank twice, one not at all": func(psn uint32) {
			clear(b)
			for _, r := range []int{0, 1, 2, 2} {
				ref.Fill(part, r, psn)
				addLanes(b, part)
			}
		},
		"sum of the PSN before": func(psn uint32) { ref.Sum(b, psn-1) },
		"sum of another job":    func(psn uint32) { NewReference(*seed, 6, n).Sum(b, psn) },
		"sum of another run":    func(psn uint32) { ref.In(4).Sum(b, psn) },
		"sum of another seed":   func(psn uint32) { NewReference(*seed+1, 5, n).Sum(b, psn) },
		"zeros":                 func(uint32) { clear(b) },
		"lanes shifted by one":  func(psn uint32) { ref.Sum(b, psn); copy(b, slices.Clone(b[4:])) },
	}
	for name, fault := range faults {
		for psn := uint32(1); psn < 100; psn++ {
			fault(psn)
			if wrong := ref.Check(b, psn); wrong < lanes*9/10 {
				t.Errorf("%s: only %d of %d lanes of PSN %d are wrong", name, wrong, lanes, psn)
			}
		}
	}
}

func TestDitherIsUniform(t *testing.T) {
	ref := NewReference(*seed, 5, 2)
	const n = 100_000
	var bins [10]int
	for psn := range uint32(n) {
		d := ref.Dither(psn)
		if d < 0 || d >= 1 {
			t.Fatalf("dither %v of PSN %d", d, psn)
		}
		bins[int(d*10)]++
	}
	for i, c := range bins {
		if c < n/10*95/100 || c > n/10*105/100 {
			t.Errorf("%d of %d in tenth %d", c, n, i)
		}
	}
}

func TestATPSlots(t *testing.T) {
	for _, c := range []struct{ w, m int }{{1, 1}, {4, 16}, {16, 16}, {100, 20000}, {65536, 65536}} {
		slots, err := ATPSlots(3, c.w, c.m)
		if err != nil || len(slots) != c.w {
			t.Fatalf("%d of %d: %d slots, %v", c.w, c.m, len(slots), err)
		}
		seen := map[uint16]bool{}
		for _, s := range slots {
			if int(s) >= c.m || seen[s] {
				t.Fatalf("%d of %d: slot %d out of range or twice", c.w, c.m, s)
			}
			seen[s] = true
		}
		again, _ := ATPSlots(3, c.w, c.m)
		if !slices.Equal(slots, again) {
			t.Error("not deterministic")
		}
	}
	// Two jobs overlap as two random choices do.
	a, _ := ATPSlots(1, 1000, 4000)
	b, _ := ATPSlots(2, 1000, 4000)
	common := 0
	for _, s := range a {
		common += btoi(slices.Contains(b, s))
	}
	if common < 200 || common > 300 {
		t.Errorf("%d slots in common of 1000, want about 250", common)
	}
	for _, c := range []struct{ w, m int }{{0, 1}, {2, 1}, {1, 65537}} {
		if s, err := ATPSlots(1, c.w, c.m); err == nil || s != nil {
			t.Errorf("%d of %d accepted", c.w, c.m)
		}
	}
}

func BenchmarkReference(b *testing.B) {
	for _, lanes := range []int{16, 240} {
		ref := NewReference(1, 1, 8)
		buf := make([]byte, 4*lanes)
		b.Run(fmt.Sprintf("fill/lanes=%d", lanes), func(b *testing.B) {
			b.SetBytes(int64(len(buf)))
			for i := range b.N {
				ref.Fill(buf, 3, uint32(i))
			}
		})
		ref.Sum(buf, 1)
		b.Run(fmt.Sprintf("check/lanes=%d", lanes), func(b *testing.B) {
			b.SetBytes(int64(len(buf)))
			for range b.N {
				if wrong := ref.Check(buf, 1); wrong != 0 {
					b.Fatal(wrong)
				}
			}
		})
	}
}

// The send path of a worker without sockets: packet written, result checked.
func BenchmarkWorker(b *testing.B) {
	k, _ := started(b, WorkerConfig{Window: 64})
	k.cfg.Lanes = MaxLanes
	buf := make([]byte, k.PacketLen())
	b.ReportAllocs()
	for b.Loop() {
		k.Send(0, buf)
		if !k.Receive(reply(buf, 0), 1) {
			b.Fatal("result not taken")
		}
	}
	if k.Stats().Wrong != 0 {
		b.Error("wrong sums")
	}
}
