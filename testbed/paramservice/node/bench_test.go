package node_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/data"
	"github.com/inabench/inabench/testbed/paramservice/node"
)

// BenchmarkAggregator is what an Aggregator, a process of its own, does in a second of its CPU time, by
// the kernel's account: taking gradients from sockets, summing, SGD, and sending models. "sums" is
// the part of it without sockets. Both are compared with a plain float32 add of vectors that are not in a
// cache, which reads two and writes one, in the same run. GB are those of gradients.
func BenchmarkAggregator(b *testing.B) {
	const n, tensors = 2 << 20, 4
	for _, workers := range []int{2, 4} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			j := control.Job{ID: 1, Name: "bench", Workers: workers, Rate: 0.1}
			for range tensors {
				j.Tensors = append(j.Tensors, control.Tensor{Elements: n})
			}
			p := start(b, "node", node.Config{Aggregator: &node.Aggregator{Jobs: []control.Job{j}}})
			e, _ := p.next("ready")
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			for r := range int32(workers) {
				a, err := client.New(client.Config{Job: j, Rank: r, Transport: &data.TCP{}, Link: control.StaticWorker(j, r, []control.Peer{{Address: e.Address}})})
				if err != nil {
					b.Fatal(err)
				}
				defer a.Close()
				wg.Go(func() {
					if err := a.Run(ctx, client.Loop{Iterations: b.N}); err != nil {
						b.Error(err)
					}
				})
			}
			wg.Wait()
			p.Stdin.Close()
			e, _ = p.next("stats")
			bytes := float64(b.N) * tensors * 4 * n * float64(workers)
			whole, sums, add := bytes/e.Stats.CPU.Seconds(), bytes/e.Stats.Busy.Seconds(), plainAdd()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(whole/1e9, "GB/cpu-s")
			b.ReportMetric(sums/1e9, "sums-GB/cpu-s")
			b.ReportMetric(add/1e9, "add-GB/cpu-s")
			b.ReportMetric(100*sums/add, "sums-%-of-add")
			b.ReportMetric(100*whole/add, "%-of-add")
		})
	}
}

// plainAdd is the bytes per second of an add of vectors of 256 MiB, more than caches have: the
// best of a few.
func plainAdd() float64 {
	const n = 64 << 20
	to, from := make([]float32, n), make([]float32, n)
	for i := range from {
		from[i] = float32(i & 1023)
	}
	best := time.Duration(0)
	for range 5 {
		began := time.Now()
		for i := range to {
			to[i] += from[i]
		}
		if d := time.Since(began); best == 0 || d < best {
			best = d
		}
	}
	return 4 * n / best.Seconds()
}
