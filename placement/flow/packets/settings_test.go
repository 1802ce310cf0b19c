package packets

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/inabench/inabench/internal/proof"
)

// TestUnequal holds the model to real packets where the closed forms are wrong: jobs of other
// rates at slots that they share, levels that decide alike, and a window that a rate limit's
// schedule uses up.
func TestUnequal(t *testing.T) {
	proof.Only(t, "it follows packets")
	const m, few, slots = 128, 125, 50
	chosen := func(n *Network) *Network { // slots are those that hosts choose
		for i := range n.Jobs {
			n.Jobs[i].ID = uint16(i + 1)
		}
		return n
	}
	window := func(w int) *Network { // just what the rate needs in a round trip of 1.5 s
		return rack(1<<12, Pool, Job{Window: w, Gap: 1.5 / float64(w)})
	}
	for _, tt := range []struct {
		name string
		n    *Network
	}{
		{"linear, u = 1.5 and .6", rack(m, Linear, paced(1.5, m, 0), paced(.6, m, 0))},
		{"atp, 30 and 10 Gbit/s", chosen(rack(few, ATP, paced(.375, few, slots), paced(.125, few, slots)))},
		{"hash in two racks", twoRacks(m, m, Hash, paced(1, m, 0))},
		{"a pool in two racks", twoRacks(m/2, m/2, Pool, paced(1, m, 0))},
		{"a window of 54", window(54)},
		{"a window of 120", window(120)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, ok := Run(t.Context(), tt.n, Limits{Seed: 1, Error: .003, Events: 1.2e6})
			if !ok {
				t.Fatal("no result")
			}
			mean, open := observe(t, tt.n, r, rand.New(rand.NewPCG(*seed, 1)), 4)
			for ji, row := range mean {
				out := &r.Jobs[ji]
				if t.Logf("job %d: rate %.4f of %.4f", ji, out.Rate, row[0]); math.Abs(out.Rate-row[0]) > .02*row[0]+open[ji][0] {
					t.Errorf("job %d: %.2f PSN/s, with real packets %.2f", ji, out.Rate, row[0])
				}
				for k, nd := range tt.n.Jobs[ji].Nodes {
					up, granted, decided := row[1+figures*k], row[2+figures*k], row[3+figures*k]
					if nd.Switch == None {
						continue
					}
					t.Logf("job %d node %d: share %.4f of %.4f, up %.4f of %.4f", ji, k, out.Share[k], granted/decided, out.Rate*out.Up[k], up)
					if math.Abs(out.Share[k]-granted/decided) > .02+open[ji][2+figures*k]/decided {
						t.Errorf("job %d node %d: share %.3f, with real packets %.3f", ji, k, out.Share[k], granted/decided)
					}
					if math.Abs(out.Rate*out.Up[k]-up) > .03*up+open[ji][1+figures*k] {
						t.Errorf("job %d node %d: sends up %.2f/s, with real packets %.2f/s", ji, k, out.Rate*out.Up[k], up)
					}
				}
			}
		})
	}
}
