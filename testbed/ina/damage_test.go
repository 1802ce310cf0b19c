package ina

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// damage is what cables, or the memory of switches, may do to a packet.
type damage struct {
	name string
	from int // first bit that may be flipped
	cut  bool
}

var damages = []damage{
	{"lanes", 8 * HeaderLen, false},
	{"any bit", 0, false},
	{"truncation", 0, true},
}

// to damages one packet in so many.
func (d damage) to(rng *rand.Rand, one int) func([]byte) []byte {
	return func(b []byte) []byte {
		switch {
		case rng.IntN(one) > 0:
		case d.cut:
			return b[:rng.IntN(len(b))]
		case 8*len(b) > d.from:
			i := d.from + rng.IntN(8*len(b)-d.from)
			b[i/8] ^= 1 << (i % 8)
		}
		return b
	}
}

// wrong counts the lanes of a result that are not the sums of all ranks' gradients, which it
// adds up one by one.
func wrong(cfg WorkerConfig, psn uint32, lanes []byte) int {
	ref := NewReference(cfg.Seed, cfg.Job, cfg.Workers).In(cfg.Epoch)
	sum, one := make([]int64, cfg.Lanes), make([]byte, 4*cfg.Lanes)
	for r := range cfg.Workers {
		ref.Fill(one, r, psn)
		for i := range sum {
			sum[i] += int64(int32(binary.BigEndian.Uint32(one[4*i:])))
		}
	}
	n := 0
	for i := range sum {
		n += btoi(int64(int32(binary.BigEndian.Uint32(lanes[4*i:]))) != sum[i])
	}
	return n
}

// Whatever is damaged, lost, doubled or overtaken: every wrong value that a worker takes is
// counted, no job ends before it has all its results, and one that has not goes on asking for
// them. With a PS every job comes to its end.
func TestDamageIsCounted(t *testing.T) {
	const psns, window, workers, lanes = 300, 8, 4, 6
	for _, mode := range []struct {
		name       string
		mode       Mode
		addressing Addressing
	}{{"pool", Statistical, Pool}, {"hash", Statistical, Hash}, {"atp", Statistical, ATP}, {"synchronous", Synchronous, Pool}} {
		for _, levels := range []int{1, 2} {
			for _, d := range damages {
				t.Run(fmt.Sprintf("%s/levels=%d/%s", mode.name, levels, d.name), func(t *testing.T) {
					counted, ended := 0, 0
					const rounds = 10
					for round := range uint64(rounds) {
						w := newWorld(10 * time.Microsecond)
						w.rng = rand.New(rand.NewPCG(*seed, round))
						root := w.newSwitch(64)
						var leaves []*node
						if levels == 2 {
							leaves = []*node{w.newSwitch(64), w.newSwitch(64)}
						}
						w.loss, w.dup, w.reorder = .01, .01, .1
						w.damage = d.to(w.rng, 200)
						cfg := WorkerConfig{Job: 9, Epoch: 7, Workers: workers, Lanes: lanes, Window: window, RTO: 300 * time.Microsecond, Seed: *seed}
						if mode.mode == Synchronous {
							cfg.Region = 2 * window
						}
						if mode.addressing == ATP {
							cfg.Slots, _ = ATPSlots(9, window, 16)
						}
						e := JobEntry{Job: 9, Epoch: 7, Mode: mode.mode, Addressing: mode.addressing, Size: 2 * window, Window: window}
						all, _ := stations(t, w, e, root, leaves, cfg)
						bad := make([]int, workers)
						for r, s := range all {
							s.free = true // a damaged switch may let a window overtake another
							w.worker[s.port] = func(b []byte) {
								before := s.k.Stats().Results
								s.receive(slices.Clone(b))
								if s.k.Stats().Results > before {
									h, _ := ParseHeader(b)
									bad[r] += wrong(cfg, h.PSN, b[HeaderLen:])
								}
							}
							s.k.Allow(psns, 0)
							s.pump()
						}
						w.run(2 * time.Second)
						whole := true
						for r, s := range all {
							st := s.k.Stats()
							if st.Wrong != int64(bad[r]) || st.Checked != st.Results*lanes {
								t.Fatalf("seed %d, round %d, rank %d: %d of %d values are wrong, %d of %d counted", *seed, round, r, bad[r], st.Results*lanes, st.Wrong, st.Checked)
							}
							if s.k.Stopped() || s.k.Idle() != (st.Results == psns) {
								t.Fatalf("seed %d, round %d, rank %d: stopped %v, idle %v with %d of %d results", *seed, round, r, s.k.Stopped(), s.k.Idle(), st.Results, psns)
							}
							if n, oldest := s.k.Outstanding(); !s.k.Idle() && (n == 0 || oldest < w.now-time.Second) {
								t.Fatalf("seed %d, round %d, rank %d: %d of %d results, %d outstanding, asked for %v ago", *seed, round, r, st.Results, psns, n, w.now-oldest)
							}
							counted += bad[r]
							whole = whole && s.k.Idle()
						}
						ended += btoi(whole)
					}
					if mode.mode == Statistical && ended < rounds {
						t.Errorf("%d of %d jobs came to their end", ended, rounds)
					}
					if !d.cut && counted == 0 {
						t.Error("no wrong value: the test needs some")
					}
					t.Logf("%d wrong values, %d of %d jobs ended", counted, ended, rounds)
				})
			}
		}
	}
}

// Damage gives no job a turn that others were refused, and takes none: all workers of a job
// are told the same about every lock, or nothing. From damaged lanes every operation recovers.
func TestDamageGivesNoTurn(t *testing.T) {
	const ops, jobs = 20, 2
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			over := 0
			for round := range uint64(20) {
				rng := rand.New(rand.NewPCG(*seed, round))
				l := Limits{Resource: PerSwitch, Capacity: 1, Trees: jobs}
				p := newPlant(rng, 2, l)
				trees := map[uint16]map[*node][]uint32{}
				var members [jobs][]*member
				for i := range jobs {
					id := uint16(i + 1)
					at := make([]*node, 3)
					for k := range at {
						at[k] = p.switches[rng.IntN(len(p.switches))]
					}
					members[i], trees[id] = p.addTree(t, JobEntry{Job: id, Epoch: 3, Mode: Exclusive, Window: 4},
						WorkerConfig{Job: id, Epoch: 3, Workers: len(at), Lanes: 4, Window: 4, Region: 8, RTO: 300 * time.Microsecond, Seed: *seed}, at)
					for _, m := range members[i] {
						m.ops = slices.Repeat([]int64{5}, ops)
						m.pause = func() time.Duration { return 100 * time.Microsecond }
						p.at(m.pause(), m.start)
					}
				}
				p.damage = d.to(rng, 50)
				p.exclude(t, l, trees)
				p.run(2 * time.Second)
				for i, ms := range members {
					told := map[uint32]ended{}
					for rank, m := range ms {
						for _, e := range m.ended {
							if other, ok := told[e.lock]; ok && other != e {
								t.Errorf("seed %d, round %d, job %d: rank %d was told %v, another one %v", *seed, round, i+1, rank, e, other)
							}
							told[e.lock] = e
						}
						over += len(m.ended)
					}
				}
			}
			if want := 20 * jobs * 3 * ops; d.from > 0 && over < want {
				t.Errorf("%d of %d operations are over", over, want)
			}
			t.Logf("%d operations are over", over)
		})
	}
}
