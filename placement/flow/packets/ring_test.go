package packets

import (
	"math"
	"testing"

	"github.com/inabench/inabench/placement/collectives"
)

// around is a ring of n workers in a rack whose links carry a frame of one bit a second, in each
// direction. A chunk has so many frames, which are passed on by blocks of some.
func around(n, frames, block int, delay, gap float64) *Network {
	out := &Network{Links: make([]float64, 2*n)}
	for l := range out.Links {
		out.Links[l] = 1
	}
	j := Job{Kind: Ring, Bits: 1, Window: 1, Gap: gap}
	var c Chunk
	for i := range frames {
		c.Frames = append(c.Frames, 1)
		if (i+1)%block == 0 || i == frames-1 {
			c.Blocks = append(c.Blocks, i+1)
		}
	}
	for w := range n {
		j.Chunks = append(j.Chunks, c)
		j.Nodes = append(j.Nodes,
			Node{Parent: 2*w + 1, Up: 2 * w, Down: None, Switch: None, Delay: delay / 2},
			Node{Parent: None, Up: 2*((w+1)%n) + 1, Down: None, Switch: None, Delay: delay / 2})
	}
	out.Jobs = []Job{j}
	return out
}

// TestRing: how long all-reduces take where that can be worked out.
func TestRing(t *testing.T) {
	// The last frame of a chunk crosses the second link after it has left the first one.
	chunks := func(n, frames int, delay float64) float64 { return float64(2*(n-1)) * (float64(frames) + 1 + delay) }
	tail := func(n, frames, block int, delay float64) float64 {
		bytes := float64(n * frames * block)
		sent := float64(2 * (n - 1) * frames)
		return sent + collectives.RingTail(n, bytes, sent, 1+delay)
	}
	for _, tt := range []struct {
		name    string
		n       *Network
		seconds float64
		within  float64
	}{
		{"a chunk goes on when all of it has come", around(4, 10, 10, 3, 0), chunks(4, 10, 3), 1e-3},
		{"of two workers, too", around(2, 10, 10, 3, 0), chunks(2, 10, 3), 1e-3},
		{"a long chunk goes on at once, frame by frame", around(4, 200, 1, 3, 0), tail(4, 200, 1, 3), .02},
		{"which is no help where the way is longer", around(3, 10, 1, 50, 0), 4 * (1 + 1 + 50), 0.15},
		{"a rate limit", around(4, 400, 1, 0, 2), 2 * 6 * 400, .01},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, ok := Run(t.Context(), tt.n, Limits{Seed: 1, Error: .001, Events: 3_000_000, Settled: true})
			if !ok {
				t.Fatal("not followed")
			}
			if got := 1 / r.Jobs[0].Rate; math.Abs(got/tt.seconds-1) > tt.within {
				t.Errorf("%v s, want %v", got, tt.seconds)
			}
			j := &tt.n.Jobs[0]
			frames := float64(2 * (len(j.Chunks) - 1) * len(j.Chunks[0].Frames))
			for k, up := range r.Jobs[0].Up {
				if math.Abs(up/frames-1) > .01 {
					t.Errorf("node %d: %v frames an all-reduce, want %v", k, up, frames)
				}
			}
		})
	}
}

// TestRingShares: of a link that both fill, a ring and a job beside it have half each; while
// the ring waits for what it sent last, the other has all.
func TestRingShares(t *testing.T) {
	for _, tt := range []struct {
		name         string
		frames       int
		delay        float64
		ring, beside float64 // of the link
		within       float64
	}{
		{"a long chunk", 400, 0, .5, .5, .02},
		{"a short one", 4, 60, 0, 1, .1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := around(4, tt.frames, 1, tt.delay, 0)
			// A worker whose packets cross the first worker's link, to a PS behind it.
			n.Jobs = append(n.Jobs, Job{Kind: Unicast, Bits: 1, Window: 64, Nodes: []Node{
				{Parent: 1, Up: 0, Down: None, Switch: None, Delay: .1},
				{Parent: None, Up: None, Down: None, Switch: None},
			}})
			r, ok := Run(t.Context(), n, Limits{Seed: 1, Error: .003, Events: 5_000_000})
			if !ok {
				t.Fatal("not followed")
			}
			ring := r.Jobs[0].Rate * float64(6*tt.frames)
			beside := r.Jobs[1].Rate
			if math.Abs(ring-tt.ring) > tt.within || math.Abs(beside-tt.beside) > tt.within {
				t.Errorf("%v and %v, want %v and %v", ring, beside, tt.ring, tt.beside)
			}
			if sum := ring + beside; sum < .98 || sum > 1.001 {
				t.Errorf("the link carries %v", sum)
			}
		})
	}
}
