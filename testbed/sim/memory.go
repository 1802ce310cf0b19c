package sim

import (
	"math/rand/v2"
)

// addressing is how a switch finds the aggregator of a PSN.
type addressing uint8

const (
	pool addressing = iota
	hash
	linear
	atp
)

var addressings = map[string]addressing{"": pool, "pool": pool, "hash": hash, "linear": linear, "atp": atp}

const (
	sampled = 512     // PSNs looked at in a step, at most
	whole   = 1 << 18 // and at once, where all of a hold is to be looked at
	jitter  = 0.03    // of a hold, either way
)

// memory is the aggregators of one switch. Its clock, in seconds, only runs while
// arrivals are looked at.
type memory struct {
	pooled  bool      // its tenants' addressing is pool
	until   []float64 // when each aggregator is free again; a heap of a pool
	now     float64
	tenants []*tenant
	rng     *rand.Rand
}

// tenant is a job's stream of PSNs at a switch.
type tenant struct {
	rate, hold float64 // PSN/s, seconds; 0 rate: silent
	share      float64 // granted, of the PSNs of the last hold

	addressing addressing

	psn    int
	offset int      // linear
	slots  []uint16 // atp

	asked, granted int
}

// run looks at arrivals of a step of h seconds and sets the tenants' shares: those of
// a hold time, or as many as most. Arrivals follow each other at dithered
// gaps, and each is from a random job, in proportion to the jobs' rates.
func (m *memory) run(h float64, most int) {
	var rate, hold, inFlight float64
	for _, t := range m.tenants {
		t.asked, t.granted = 0, 0
		if t.rate > 0 {
			rate += t.rate
			hold = max(hold, t.hold)
			inFlight += t.rate * t.hold * (1 + jitter)
		}
	}
	switch {
	case rate == 0:
		return
	case m.pooled && inFlight <= float64(len(m.until)):
		for _, t := range m.tenants {
			t.share = 1 // there is always a free one
		}
		m.now += hold
		return
	}
	span := min(h, hold)
	n := min(most, int(span*rate+m.rng.Float64())) // rounded to either side by chance
	for range n {
		t := m.pick(rate)
		t.asked++
		if m.grant(t, m.now+m.rng.Float64()/2/rate) {
			t.granted++
		}
		t.psn++
		m.now += 1 / rate
	}
	for _, t := range m.tenants {
		// Grants come in bursts, one a hold: where a hold takes several steps the share
		// is an average over a few holds, lest rates follow the bursts.
		if t.asked > 0 {
			weight := min(1, float64(n)/(hold*rate))
			t.share += weight * weight * (float64(t.granted)/float64(t.asked) - t.share)
		}
	}
}

// pick is the job of the next arrival, where all jobs' rates sum up to rate.
func (m *memory) pick(rate float64) *tenant {
	x := m.rng.Float64() * rate
	var last *tenant
	for _, t := range m.tenants {
		if t.rate > 0 {
			last = t
			if x -= t.rate; x < 0 {
				break
			}
		}
	}
	return last
}

// grant takes an aggregator for a PSN of t that arrives at the given time, if the one
// it is sent to is free.
func (m *memory) grant(t *tenant, at float64) bool {
	if len(m.until) == 0 {
		return false
	}
	i := 0 // of a pool, the one that is free first
	switch t.addressing {
	case hash:
		i = m.rng.IntN(len(m.until))
	case linear:
		i = (t.offset + t.psn) % len(m.until)
	case atp:
		i = int(t.slots[t.psn%len(t.slots)])
	}
	if m.until[i] > at {
		return false
	}
	m.until[i] = at + t.hold*(1+jitter*(2*m.rng.Float64()-1))
	if m.pooled {
		m.sink()
	}
	return true
}

// sink restores the heap after its first element grew.
func (m *memory) sink() {
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(m.until); c++ {
			if m.until[c] < m.until[least] {
				least = c
			}
		}
		if least == i {
			return
		}
		m.until[i], m.until[least] = m.until[least], m.until[i]
		i = least
	}
}
