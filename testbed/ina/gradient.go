package ina

import (
	"encoding/binary"
)

// Reference is the gradients a job's workers send when nobody gives them any: a
// deterministic function of (seed, job, rank, PSN, lane), so that every worker can
// compute by itself what the sum over all ranks must be, and check what it got.
//
// A value is a·h + b: h hashes (PSN, lane), a and b hash (PSN, rank). The sum over
// ranks is then (Σa)·h + Σb, so a check costs as much as one worker's gradients
// however many workers there are, and a sum that misses a rank, has one twice, or
// belongs to another PSN differs in nearly every lane. |value| < 2^24, so the sum
// of MaxWorkers of them stays below 2^30 and never wraps. All 32 bits of every lane are
// gradient and nothing else: there is no difference that Check would not count.
type Reference struct {
	key     uint64 // of times
	values  uint64 // of gradients
	workers int
}

// NewReference returns the gradients of a job of the given number of workers.
func NewReference(seed uint64, job uint16, workers int) Reference {
	key := mix(mix(seed) + uint64(job))
	return Reference{key: key, values: key, workers: workers}
}

// In is the reference of one run of the job, whose gradients are others than those of any other run: what a switch still
// has of that is no right sum of this. All runs send at the same times.
func (r Reference) In(epoch uint16) Reference {
	r.values = mix(r.key + golden*(1+uint64(epoch)))
	return r
}

// Fill writes rank's gradients of psn to b, len(b)/4 lanes in wire order.
func (r Reference) Fill(b []byte, rank int, psn uint32) {
	a, c := r.rank(rank, psn)
	r.put(b, psn, a, c)
}

// Sum writes the sum of all ranks' gradients of psn to b, as Fill does for one.
func (r Reference) Sum(b []byte, psn uint32) {
	a, c := r.ranks(psn)
	r.put(b, psn, a, c)
}

// Check compares the reduced vector b of psn with the reference, bit for bit, and returns
// how many lanes are wrong.
func (r Reference) Check(b []byte, psn uint32) (wrong int) {
	a, c := r.ranks(psn)
	x := r.lanes(psn)
	for ; len(b) >= 16; b, x = b[16:], x+golden {
		hi, lo := pack(spread(x), a, c)
		if d, e := hi^binary.BigEndian.Uint64(b), lo^binary.BigEndian.Uint64(b[8:]); d|e != 0 {
			wrong += differs(d) + differs(e)
		}
	}
	if len(b) >= 4 {
		hi, lo := pack(spread(x), a, c)
		var rest [16]byte
		binary.BigEndian.PutUint64(rest[:], hi)
		binary.BigEndian.PutUint64(rest[8:], lo)
		copy(rest[:], b[:len(b)&^3])
		wrong += differs(hi^binary.BigEndian.Uint64(rest[:])) + differs(lo^binary.BigEndian.Uint64(rest[8:]))
	}
	return wrong
}

// differs counts the non-zero halves of x.
func differs(x uint64) int {
	n := 0
	if x>>32 != 0 {
		n++
	}
	if uint32(x) != 0 {
		n++
	}
	return n
}

// Dither is a number in [0, 1) for psn, the same for every worker of the job:
// senders that delay a PSN by it stay aligned with each other, but not with other
// jobs.
func (r Reference) Dither(psn uint32) float64 {
	return float64(mix(r.key-golden*uint64(psn))>>11) / (1 << 53)
}

// Block is the number of PSNs that Scatter places together.
const Block = 16

// Scatter places the PSNs of a block, psn/Block, at random times of the block: at
// ascending fractions of its duration, the same for every worker of the job. Packets
// that leave at these times look random to other jobs from one to the next, as
// packets of many senders do, so that no job keeps a phase in which it would always,
// or never, find the free aggregator. Over more than a block they keep the rate, as
// paced packets do.
func (r Reference) Scatter(block uint32) (at [Block]float64) {
	for i := range at {
		v := float64(mix(^r.key-golden*uint64(block*Block+uint32(i)))>>11) / (1 << 53)
		k := i
		for ; k > 0 && at[k-1] > v; k-- {
			at[k] = at[k-1]
		}
		at[k] = v
	}
	return at
}

func (r Reference) put(b []byte, psn uint32, a, c int32) {
	x := r.lanes(psn)
	for len(b) >= 16 {
		hi, lo := pack(spread(x), a, c)
		binary.BigEndian.PutUint64(b, hi)
		binary.BigEndian.PutUint64(b[8:], lo)
		b, x = b[16:], x+golden
	}
	if len(b) >= 4 {
		var rest [16]byte
		hi, lo := pack(spread(x), a, c)
		binary.BigEndian.PutUint64(rest[:], hi)
		binary.BigEndian.PutUint64(rest[8:], lo)
		copy(b[:len(b)&^3], rest[:])
	}
}

// rank returns the factor, odd and below 2^12, and the offset, below 2^22 in
// magnitude, of one rank's gradients of psn.
func (r Reference) rank(rank int, psn uint32) (a, c int32) {
	x := mix(r.values ^ uint64(psn)<<8 ^ uint64(rank+1))
	return int32(x&0xFFF) | 1, int32(x>>41) - 1<<22
}

func (r Reference) ranks(psn uint32) (a, c int32) {
	for i := range r.workers {
		x, y := r.rank(i, psn)
		a, c = a+x, c+y
	}
	return a, c
}

// lanes is the state of the generator at lane 0; it advances by golden every four.
func (r Reference) lanes(psn uint32) uint64 { return mix(r.values ^ uint64(psn)<<8) }

// spread turns a generator state into four h of 16 bits, of which 12 are used.
func spread(x uint64) uint64 {
	x ^= x >> 32
	x *= 0xD6E8FEB86659FD93
	return x ^ x>>32
}

// pack computes four lanes from four h, the first in the upper half of hi.
func pack(h uint64, a, c int32) (hi, lo uint64) {
	v0 := uint32(a*int32(int16(h>>48)>>4) + c)
	v1 := uint32(a*int32(int16(h>>32)>>4) + c)
	v2 := uint32(a*int32(int16(h>>16)>>4) + c)
	v3 := uint32(a*int32(int16(h)>>4) + c)
	return uint64(v0)<<32 | uint64(v1), uint64(v2)<<32 | uint64(v3)
}

const golden = 0x9E3779B97F4A7C15 // 2^64 / golden ratio, odd

// mix is the finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
