package flow

import "math"

// A demand is what one job asks of a switch's memory.
type demand struct {
	inFlight float64 // aggregators it would hold if it were never denied: C*T
	slots    float64 // W, its distinct slots (ATP)
}

// shares writes the aggregated share of each job at a switch with addressing
// s.Addressing and s.Aggregators aggregators to out. With u = inFlight/M:
//
//	pool    min(1, 1/sum u): first come first served gives all the same fraction
//	hash    1/(1 + sum u)
//	linear  1/E[ceil(u h)], h the hold over its mean; beside other jobs it depends
//	        on phase, and 1/(E[ceil(u h)] + sum of their u) is an average over it
//	atp     1 alone; equal jobs that share a slot with k others keep slotShare(k, r)
//	        of it, averaged over k, where r = C*T/W and W/M is the chance that
//	        another job chose the slot too
//
// All assume packets spread over time and one decision per (job, PSN): a PSN that
// was denied stays denied. Only hash, pool with room, and linear and atp for one job
// are what packets do; the others are where Occupancy begins, and what it has where packets
// are too many to follow.
func (s *Switch) shares(jobs []demand, out []float64) {
	m := s.Aggregators
	var sum float64 // of in-flight packets
	for _, j := range jobs {
		sum += j.inFlight
	}
	for i, j := range jobs {
		var a float64
		switch {
		case m <= 0:
			a = 0
		case s.Addressing == Hash:
			a = m / (m + sum)
		case s.Addressing == Linear:
			a = 1 / (meanCeil(j.inFlight/m, s.Jitter) + (sum-j.inFlight)/m)
		case s.Addressing == ATP:
			a = s.atp(jobs, i)
		case sum > m:
			a = m / sum
		default:
			a = 1
		}
		out[i] = a
	}
}

// atp is the share of jobs[i] under ATP addressing.
func (s *Switch) atp(jobs []demand, i int) float64 {
	self := jobs[i]
	w := min(self.slots, s.Aggregators)
	if w <= 0 {
		return 0
	}
	// chance[k]: k of the other jobs have this slot too (Poisson binomial; the
	// binomial of J-1 and W/M for equal jobs).
	chance := make([]float64, 1, len(jobs))
	chance[0] = 1
	var r float64 // mean over the others
	others := 0
	for k, o := range jobs {
		if k == i || o.slots <= 0 {
			continue
		}
		p := min(1, o.slots/s.Aggregators)
		r += o.inFlight / min(o.slots, s.Aggregators)
		others++
		chance = append(chance, 0)
		for n := others; n > 0; n-- {
			chance[n] = chance[n]*(1-p) + chance[n-1]*p
		}
		chance[0] *= 1 - p
	}
	if others > 0 {
		r /= float64(others)
	}
	var a float64
	for k, c := range chance {
		a += c * slotShare(k, r)
	}
	return a / meanCeil(self.inFlight/w, s.Jitter)
}

// slotShare is what a job keeps of a slot that k other jobs use too, all with one
// packet per period that would hold it for r periods, in phases that are random
// but stay: 1 - min(r, 1/2) for one other job. For more the table holds the mean
// of a simulation over random phases (TestSlotShareTable repeats it).
func slotShare(k int, r float64) float64 {
	r = max(0, min(1, r))
	switch {
	case k == 0:
		return 1
	case k == 1:
		return 1 - min(r, 0.5)
	}
	row := &slotShares[min(k-2, len(slotShares)-1)]
	i := min(int(r*20), 19)
	f := r*20 - float64(i)
	a := row[i]*(1-f) + row[i+1]*f
	if most := len(slotShares) + 1; k > most {
		// Beyond the table as if every further job weighed what those in it do.
		a = 1 / (1 + (1/a-1)*float64(k)/float64(most))
	}
	return a
}

// meanCeil is E[ceil(u h)] for h normal around 1 with standard deviation jitter,
// and never less than 1: how many of its turns a packet stream spends per turn
// that finds its slot free.
func meanCeil(u, jitter float64) float64 {
	if jitter <= 0 {
		return max(1, math.Ceil(u))
	}
	// E[ceil(x)] = sum over k >= 0 of P(x > k); the terms are 1 well below u and 0
	// well above.
	width := 8*jitter*u + 1
	k := max(1, math.Floor(u-width))
	sum := k
	for ; k <= u+width; k++ {
		sum += 0.5 * math.Erfc((k/u-1)/(jitter*math.Sqrt2))
	}
	return sum
}

// slotShares[k-2] is slotShare(k, r) at r = 0, 0.05 .. 1.
var slotShares = [...][21]float64{
	{1, 0.90, 0.82, 0.75, 0.68, 0.63, 0.58, 0.55, 0.50, 0.44, 0.38, 0.36, 0.34, 0.33, 0.33, 0.33, 0.33, 0.33, 0.33, 0.33, 0.33},
	{1, 0.86, 0.75, 0.66, 0.59, 0.53, 0.48, 0.46, 0.43, 0.38, 0.31, 0.29, 0.27, 0.26, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25},
	{1, 0.83, 0.70, 0.60, 0.53, 0.47, 0.41, 0.38, 0.37, 0.34, 0.27, 0.26, 0.23, 0.21, 0.20, 0.20, 0.20, 0.20, 0.20, 0.20, 0.20},
	{1, 0.80, 0.65, 0.55, 0.47, 0.42, 0.36, 0.33, 0.32, 0.31, 0.24, 0.23, 0.21, 0.19, 0.17, 0.17, 0.17, 0.17, 0.17, 0.17, 0.17},
}
