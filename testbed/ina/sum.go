package ina

import "encoding/binary"

// Sums are kept two lanes to a word: the first lane in the upper half. Words are
// what eight big-endian bytes of a packet read as, so loading and storing is a
// byte swap, and one addition does two lanes.

const sumWords = MaxLanes / 2

type sum [sumWords]uint64

const signs = 0x8000_0000_8000_0000

// add2 adds two lanes at once in two's complement: one 64-bit addition, with the
// carry out of the lower lane taken back from the upper. A lane wrapped where the
// signs of both operands differ from that of the result; only those bits of
// wrapped mean anything.
func add2(a, b uint64) (s, wrapped uint64) {
	t := a + b
	s = t - (a^b^t)&(1<<32)
	return s, (a ^ s) & (b ^ s)
}

// load sets s to the lanes of a packet.
func (s *sum) load(lanes []byte) {
	n := min(len(lanes)/8, len(s))
	for i := range n {
		s[i] = binary.BigEndian.Uint64(lanes[8*i:])
	}
	if tail := lanes[8*n:]; len(tail) >= 4 {
		s[n] = uint64(binary.BigEndian.Uint32(tail)) << 32
	}
}

// store writes the sum as the lanes of a packet.
func (s *sum) store(lanes []byte) {
	n := min(len(lanes)/8, len(s))
	for i := range n {
		binary.BigEndian.PutUint64(lanes[8*i:], s[i])
	}
	if tail := lanes[8*n:]; len(tail) >= 4 {
		binary.BigEndian.PutUint32(tail, uint32(s[n]>>32))
	}
}

// add adds the lanes of a packet and reports whether one wrapped.
func (s *sum) add(lanes []byte) bool {
	var wrapped uint64
	w := s[:]
	for len(lanes) >= 16 && len(w) >= 2 {
		v0, o0 := add2(w[0], binary.BigEndian.Uint64(lanes))
		v1, o1 := add2(w[1], binary.BigEndian.Uint64(lanes[8:]))
		w[0], w[1] = v0, v1
		wrapped |= o0 | o1
		lanes, w = lanes[16:], w[2:]
	}
	if len(lanes) >= 8 && len(w) >= 1 {
		v, o := add2(w[0], binary.BigEndian.Uint64(lanes))
		w[0] = v
		wrapped |= o
		lanes, w = lanes[8:], w[1:]
	}
	if len(lanes) >= 4 && len(w) >= 1 {
		v, o := add2(w[0], uint64(binary.BigEndian.Uint32(lanes))<<32)
		w[0] = v
		wrapped |= o
	}
	return wrapped&signs != 0
}
