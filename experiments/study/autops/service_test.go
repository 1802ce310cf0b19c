package autops

import (
	"slices"
	"testing"
)

// TestPieces cuts tensors: nothing is lost, no value is cut, and pieces differ by one value at most.
func TestPieces(t *testing.T) {
	for _, tt := range []struct {
		bytes, most int64
		want        []int64
	}{
		{4, 0, []int64{4}},
		{100, 1000, []int64{100}},
		{100, 100, []int64{100}},
		{104, 100, []int64{52, 52}},
		{40, 16, []int64{12, 12, 16}},
	} {
		if got := pieces(tt.bytes, tt.most); !slices.Equal(got, tt.want) {
			t.Errorf("%d cut to %d: %v, want %v", tt.bytes, tt.most, got, tt.want)
		}
	}
	for bytes := int64(4); bytes < 2000; bytes += 4 {
		for most := int64(4); most < 100; most += 7 {
			got := pieces(bytes, most)
			sum := int64(0)
			for _, n := range got {
				sum += n
			}
			if lo, hi := slices.Min(got), slices.Max(got); sum != bytes || lo <= 0 || hi-lo > 4 || hi > most+3 {
				t.Fatalf("%d cut to %d: %v", bytes, most, got)
			}
		}
	}
}
