package sim

import (
	"math"
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

// memory is the aggregators of one switch. Its clock, in seconds, only runs while
// arrivals are looked at.
type memory struct {
	addressing addressing
	until      []float64 // when each aggregator is free again; a heap under pool addressing
	now        float64
	tenants    []*tenant
	rng        *rand.Rand
}

// tenant is a job's stream of PSNs at a switch.
type tenant struct {
	rate, hold float64 // PSN/s, seconds; 0 rate: silent
	share      float64 // granted, of the PSNs seen last

	psn    int
	due    float64 // on the memory's clock, without dither
	at     float64 // with it
	offset int     // linear
	slots  []uint16

	asked, granted int
}

// run looks at the arrivals of the next span seconds and sets the tenants' shares.
func (m *memory) run(span float64) {
	active := false
	for _, t := range m.tenants {
		t.asked, t.granted = 0, 0
		if t.rate <= 0 {
			continue
		}
		active = true
		if gap := 1 / t.rate; t.due < m.now || t.due > m.now+gap {
			t.due = m.now + m.rng.Float64()*gap // silent so far, or slower
			t.dither(m.rng)
		}
	}
	end := m.now + span
	for active {
		var t *tenant
		for _, o := range m.tenants {
			if o.rate > 0 && (t == nil || o.at < t.at) {
				t = o
			}
		}
		if t.at > end {
			break
		}
		t.asked++
		if m.grant(t) {
			t.granted++
		}
		t.psn++
		t.due += 1 / t.rate
		t.dither(m.rng)
	}
	m.now = end
	for _, t := range m.tenants {
		if t.asked > 0 {
			t.share = float64(t.granted) / float64(t.asked)
		}
	}
}

// dither moves an arrival by up to half a gap, so that jobs do not lock into each
// other's phase.
func (t *tenant) dither(rng *rand.Rand) { t.at = t.due + rng.Float64()/2/t.rate }

// grant takes an aggregator for t's next PSN, if the one it is sent to is free.
func (m *memory) grant(t *tenant) bool {
	if len(m.until) == 0 {
		return false
	}
	i := 0
	switch m.addressing {
	case hash:
		i = m.rng.IntN(len(m.until))
	case linear:
		i = (t.offset + t.psn) % len(m.until)
	case atp:
		i = int(t.slots[t.psn%len(t.slots)])
	}
	if m.until[i] > t.at {
		return false
	}
	m.until[i] = t.at + t.hold
	if m.addressing == pool {
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

// longest is the longest hold of a tenant that sends.
func (m *memory) longest() float64 {
	var h float64
	for _, t := range m.tenants {
		if t.rate > 0 {
			h = math.Max(h, t.hold)
		}
	}
	return h
}
