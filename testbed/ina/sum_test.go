package ina

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// The sum must be that of plain int32 arithmetic, lane by lane, and the overflow
// report that of arithmetic in int64, for every number of lanes.
func TestSumIsInt32Addition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	edge := []int32{0, 1, -1, math.MaxInt32, math.MinInt32, math.MaxInt32 - 1, math.MinInt32 + 1}
	for lanes := range MaxLanes + 1 {
		for range 20 {
			a, b := make([]byte, 4*lanes), make([]byte, 4*lanes)
			want := make([]byte, 4*lanes)
			wrapped := false
			for i := range lanes {
				x, y := int32(rng.Uint32()), int32(rng.Uint32())>>(rng.IntN(31))
				if rng.IntN(50) == 0 {
					x, y = edge[rng.IntN(len(edge))], edge[rng.IntN(len(edge))]
				}
				binary.BigEndian.PutUint32(a[4*i:], uint32(x))
				binary.BigEndian.PutUint32(b[4*i:], uint32(y))
				binary.BigEndian.PutUint32(want[4*i:], uint32(x+y))
				wrapped = wrapped || int64(x)+int64(y) != int64(x+y)
			}
			var s sum
			s.load(a)
			if got := s.add(b); got != wrapped {
				t.Fatalf("%d lanes: wrapped %v, want %v", lanes, got, wrapped)
			}
			got := make([]byte, 4*lanes)
			s.store(got)
			if string(got) != string(want) {
				t.Fatalf("%d lanes:\n got %x\nwant %x", lanes, got, want)
			}
		}
	}
}

func BenchmarkSum(b *testing.B) {
	for _, lanes := range []int{16, 64, 240} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			var s sum
			p := make([]byte, 4*lanes)
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				s.add(p)
			}
		})
	}
}
