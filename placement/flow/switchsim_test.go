package flow

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// simJob is a paced stream of PSNs at a switch.
type simJob struct {
	rate  float64 // PSN/s
	hold  float64 // T, seconds
	slots int     // atp: W
}

// simulate runs a switch with m aggregators for some seconds and returns each job's
// aggregated share of the second half. The first packet of a PSN
// decides for all of it, so one arrival stands for a PSN. As agents do, jobs dither
// each packet by up to half a gap and wander through four gaps, so that rates in small
// whole ratios keep no phase; holds vary by jitter.
func simulate(rnd *rand.Rand, addr Addressing, m int, jitter float64, jobs []simJob, seconds float64) []float64 {
	taken := make([]float64, m) // until when
	free := m                   // pool only
	var releases floatHeap      // pool only
	offset := make([]int, len(jobs))
	slot := make([][]int, len(jobs))
	next := make([]float64, len(jobs))
	psn := make([]int, len(jobs))
	granted, asked := make([]float64, len(jobs)), make([]float64, len(jobs))
	base := make([]float64, len(jobs))
	const knots, reach = 64, 4
	wander := make([][2]float64, len(jobs)) // gaps, at the knots before and after
	for j := range jobs {
		offset[j] = rnd.IntN(m)
		slot[j] = rnd.Perm(m)[:min(m, max(1, jobs[j].slots))]
		base[j] = rnd.Float64() / jobs[j].rate
		next[j] = base[j]
		wander[j] = [2]float64{0, reach * rnd.Float64()}
	}
	for {
		j := 0
		for k := range jobs {
			if next[k] < next[j] {
				j = k
			}
		}
		now := next[j]
		if now > seconds {
			break
		}
		h := jobs[j].hold * (1 + jitter*rnd.NormFloat64())
		ok := false
		if addr == Pool {
			for len(releases) > 0 && releases[0] <= now {
				heap.Pop(&releases)
				free++
			}
			if ok = free > 0; ok {
				free--
				heap.Push(&releases, now+h)
			}
		} else {
			var i int
			switch addr {
			case Hash:
				i = rnd.IntN(m)
			case Linear:
				i = (offset[j] + psn[j]) % m
			case ATP:
				i = slot[j][psn[j]%len(slot[j])]
			}
			if ok = taken[i] <= now; ok {
				taken[i] = now + h
			}
		}
		if now > seconds/2 {
			asked[j]++
			if ok {
				granted[j]++
			}
		}
		psn[j]++
		f := float64(psn[j]%knots) / knots
		if f == 0 {
			wander[j] = [2]float64{wander[j][1], reach * rnd.Float64()}
		}
		at := float64(psn[j]) + 0.5*rnd.Float64() + wander[j][0]*(1-f) + wander[j][1]*f
		next[j] = max(next[j], base[j]+at/jobs[j].rate)
	}
	for j := range granted {
		granted[j] /= asked[j]
	}
	return granted
}

type floatHeap []float64

func (h floatHeap) Len() int           { return len(h) }
func (h floatHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h floatHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *floatHeap) Push(x any)        { *h = append(*h, x.(float64)) }
func (h *floatHeap) Pop() any {
	x := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return x
}

// TestSharesAgainstSimulation holds the closed forms against a switch simulated
// packet by packet, within what an experiment is later allowed to be off.
func TestSharesAgainstSimulation(t *testing.T) {
	rnd := rng(t)
	const m = 1024
	type streams struct {
		u     []float64 // of each job
		slots int
	}
	type table struct {
		addr      Addressing
		name      string
		tolerance float64
		of        []streams
	}
	one := func(us ...float64) (out []streams) {
		for _, u := range us {
			out = append(out, streams{u: []float64{u}})
		}
		return out
	}
	several := []streams{{u: []float64{0.5, 1.5}}, {u: []float64{0.25, 0.35}}, {u: []float64{0.7, 1.1, 1.9}}, {u: []float64{1, 1}}}
	var atp []streams
	for _, w := range []float64{0.25, 0.5} {
		for _, r := range []float64{0.2, 0.5, 0.8} {
			atp = append(atp, streams{u: []float64{r * w, r * w}, slots: int(w * m)}) // two equal jobs
		}
		atp = append(atp, streams{u: []float64{0.3 * w, 0.3 * w, 0.3 * w, 0.3 * w}, slots: int(w * m)})
	}
	for _, tt := range []table{
		{Pool, "pool", 0.03, append(one(0.75, 1.5, 2.5, 3.5), several...)},
		{Hash, "hash", 0.03, append(one(0.75, 1.5, 2.5, 3.5), several...)},
		{Linear, "linear", 0.03, one(0.75, 1.5, 2.5, 3.5)},
		{ATP, "atp", 0.06, atp},
	} {
		for _, s := range tt.of {
			t.Run(fmt.Sprintf("%s/%v/%d", tt.name, s.u, s.slots), func(t *testing.T) {
				sw := Switch{Aggregators: m, Addressing: tt.addr, Jitter: 0.01}
				var jobs []simJob
				var ask []demand
				for _, u := range s.u {
					// The hold is one second, so the rate is what is in flight.
					jobs = append(jobs, simJob{rate: u * m, hold: 1, slots: s.slots})
					ask = append(ask, demand{inFlight: u * m, slots: float64(s.slots)})
				}
				// Phases and slots last as long as a simulation: the mean over several.
				const runs = 4
				got := make([]float64, len(jobs))
				for range runs {
					for j, share := range simulate(rnd, tt.addr, m, sw.Jitter, jobs, 60) {
						got[j] += share / runs
					}
				}
				want := make([]float64, len(ask))
				sw.shares(ask, want)
				for j := range want {
					if math.Abs(got[j]-want[j]) > tt.tolerance {
						t.Errorf("job %d: simulated %.3f, formula %.3f", j, got[j], want[j])
					}
				}
			})
		}
	}
}

// TestSlotShareTable repeats the simulation behind slotShares: k+1 jobs on one
// slot, each with one packet a period at a phase of its own.
func TestSlotShareTable(t *testing.T) {
	rnd := rng(t)
	for k := 1; k <= 5; k++ {
		for _, r := range []float64{0.1, 0.25, 0.45, 0.55, 0.8} {
			granted, asked := 0, 0
			for range 1500 {
				phase := make([]float64, k+1)
				for i := range phase {
					phase[i] = rnd.Float64()
				}
				taken, now := 0.0, 0.0
				for cycle := range 30 {
					for range phase { // the phases in order
						next := math.Inf(1)
						for _, p := range phase {
							if at := float64(cycle) + p; at > now || at == now && now == 0 {
								next = min(next, at)
							}
						}
						if math.IsInf(next, 1) {
							break
						}
						now = next
						free := now >= taken
						if free {
							taken = now + r
						}
						if cycle >= 10 {
							asked++
							if free {
								granted++
							}
						}
					}
				}
			}
			if got, want := float64(granted)/float64(asked), slotShare(k, r); math.Abs(got-want) > 0.02 {
				t.Errorf("k = %d, r = %v: simulated %.3f, table %.3f", k, r, got, want)
			}
		}
	}
}
