package p4

import (
	"fmt"
	"math/bits"
)

// Bytes encodes v as P4Runtime's canonical byte string: big-endian, as few bytes
// as v needs, one for zero (specification, section "Bytestrings").
func Bytes(v uint64) []byte {
	n := max(1, (bits.Len64(v)+7)/8)
	b := make([]byte, n)
	for i := n - 1; i >= 0; i-- {
		b[i] = byte(v)
		v >>= 8
	}
	return b
}

// Width is how many bytes a byte string of a bit<bits> value has with all of its leading zeros, at least 1.
func Width(bits int) int { return max(1, (bits+7)/8) }

// Uint decodes the byte string of a bit<width> value. It need not be canonical:
// leading zeros are allowed to any length. An empty string, or a value that needs
// more than width (or 64) bits, is an error wrapping ErrRange.
func Uint(b []byte, width int) (uint64, error) {
	if len(b) == 0 {
		return 0, fmt.Errorf("%w: empty byte string", ErrRange)
	}
	var v uint64
	for _, x := range b {
		if v>>56 != 0 {
			return 0, fmt.Errorf("%w: value needs more than 64 bits", ErrRange)
		}
		v = v<<8 | uint64(x)
	}
	if n := bits.Len64(v); n > width {
		return 0, fmt.Errorf("%w: %#x needs %d bits, there are %d", ErrRange, v, n, width)
	}
	return v, nil
}
