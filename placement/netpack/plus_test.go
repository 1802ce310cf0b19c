package netpack

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/policytest"
)

func TestPlus(t *testing.T) { policytest.RunCluster(t, Plus(Options{})) }

// By the objective of Table 3, over all jobs that run, no batch is placed worse than by
// NetPack, and some are placed better.
func TestPlusNeverWorse(t *testing.T) {
	rnd := random(t)
	lower := 0
	for range 200 {
		c := randomCluster(rnd)
		twin := c.Clone()
		var batch []cluster.Job
		for id := range 1 + rnd.IntN(12) {
			batch = append(batch, cluster.Job{
				ID: id, GPUs: 1 + rnd.IntN(12), Traffic: cluster.Traffic(rnd.IntN(4)),
				PSes: rnd.IntN(3), Bytes: float64(1+rnd.IntN(3)) * 1e8,
			})
		}
		seconds := func(c *cluster.Cluster, p cluster.Policy) (sum float64) {
			p.Place(c, batch, 0)
			for id := range 100 {
				for _, id := range []int{id, 1_000_000 + id} { // of the batch, and of those before
					if j, _, ok := c.Placement(id); ok {
						sum += max(1, j.Bytes) / c.Rate(id)
					}
				}
			}
			return sum
		}
		base, plus := seconds(c, New(Options{})), seconds(twin, Plus(Options{}))
		if plus > base*(1+1e-9) || math.IsNaN(plus) {
			t.Fatalf("%v seconds with NetPack, %v after the local search: %+v", base, plus, batch)
		}
		if plus < base*(1-1e-9) {
			lower++
		}
	}
	t.Logf("%d of 200 batches were placed better", lower)
	if lower == 0 {
		t.Error("nothing was shown")
	}
}

// BenchmarkPlus is what the local search costs: a job of 8 GPUs is placed and leaves,
// without it and with it, and a batch of 4000 jobs in 10,000 servers.
func BenchmarkPlus(b *testing.B) {
	for _, p := range []cluster.Policy{New(Options{}), Plus(Options{})} {
		for _, name := range []string{"f100", "f1000", "f10000"} {
			b.Run(p.Name()+"/servers="+name[1:], func(b *testing.B) {
				c := load(b, name)
				batch := []cluster.Job{{ID: 1, GPUs: 8}}
				b.ReportAllocs()
				for b.Loop() {
					if where := p.Place(c, batch, 0); len(where[0].Parts) == 0 {
						b.Fatal("not placed")
					}
					c.Rate(1)
					if err := c.Leave(1); err != nil {
						b.Fatal(err)
					}
					c.Bandwidth(0)
				}
			})
		}
		b.Run(fmt.Sprint(p.Name(), "/jobs=4000/servers=10000"), func(b *testing.B) {
			rnd := rand.New(rand.NewPCG(1, 0))
			var batch []cluster.Job
			for i := range 4000 {
				gpus := []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 4, 8, 8, 8, 16}[rnd.IntN(20)]
				batch = append(batch, cluster.Job{ID: i, GPUs: gpus})
			}
			for b.Loop() {
				b.StopTimer()
				c := cluster.New(cluster.FatTree(16, 625, 4, 100e9, 1e12, 1))
				b.StartTimer()
				p.Place(c, batch, 0)
			}
		})
	}
}

// TestBetterThanNowhere: a place that its partner has left is better for a job than none.
func TestBetterThanNowhere(t *testing.T) {
	if inf := math.Inf(1); !better(1, inf) || better(inf, inf) || better(inf, 1) || better(1, 1) {
		t.Error("a place is better than none, and none is not better than a place")
	}
}
