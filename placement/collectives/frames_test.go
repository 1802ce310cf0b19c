package collectives_test

import (
	"math"
	"testing"

	"github.com/inabench/inabench/placement/collectives"
)

// TestFrames counts gradients value by value, as they are put into frames.
func TestFrames(t *testing.T) {
	for _, f := range []collectives.Frames{
		{Message: 0, Payload: 960}, {Message: 4, Payload: 960}, {Message: 5, Payload: 960}, {Message: 960, Payload: 960},
		{Message: 964, Payload: 960}, {Message: 4096, Payload: 960}, {Message: 96, Payload: 32}, {Message: 100, Payload: 4},
	} {
		var gradients, frames, left int64 // in left is what of an iteration is not sent yet
		for range 50 {
			if f.Message > 0 && left <= 0 {
				left = f.Message
			}
			for range f.Payload / 4 {
				if f.Message == 0 || left > 0 {
					gradients, left = gradients+4, left-4
				}
			}
			frames++
			if got := f.Gradients(frames); got != gradients {
				t.Errorf("%+v: %d B in %d frames, want %d", f, got, frames, gradients)
			}
			if f.Message > 0 && left <= 0 {
				n := f.PSNs()
				if frames%n != 0 {
					t.Errorf("%+v: an iteration ends after %d frames, and has %d", f, frames, n)
				}
				if mean := float64(gradients) / float64(frames); math.Abs(f.Mean()/mean-1) > 1e-12 {
					t.Errorf("%+v: a frame has %v B in the mean, want %v", f, f.Mean(), mean)
				}
			}
		}
		if f.Message == 0 && (f.PSNs() != 0 || f.Mean() != float64(f.Payload)) {
			t.Errorf("%+v: %d frames of %v B", f, f.PSNs(), f.Mean())
		}
	}
}
