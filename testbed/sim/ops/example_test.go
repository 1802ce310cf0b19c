package ops_test

import (
	"context"
	"fmt"
	"log"

	"github.com/inabench/inabench/placement/mina"
	"github.com/inabench/inabench/placement/mina/fragment"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/testbed/sim/ops"
)

// MINA against the baseline, on the paper's fat-tree at half the bandwidth: the same jobs,
// drawn from one of its histograms.
func Example() {
	hosts, _ := workload.BuiltinHistograms().Lookup("mina-0")
	jobs := ops.Draw(1, 300, ops.Patterns(workload.BuiltinPatterns(), 4), &hosts)

	with := ops.Config{Cost: ops.PaperCost()}
	with.Cost.Bandwidth /= 2
	with.Cluster.Options = tree.Options{K: 5}

	baseline := with
	baseline.Cluster.Place, baseline.Cluster.Trees = fragment.FirstFit{}, mina.FirstIdle
	baseline.Sharing, baseline.WholeGroup = ops.Greedy, true

	for _, cfg := range []ops.Config{baseline, with} {
		r, err := ops.Run(context.Background(), cfg, jobs)
		if err != nil {
			log.Fatal(err)
		}
		s := r.Score(false)
		fmt.Printf("%s: %.2f s, that is %.2f of the way from %.2f s without INA to %.2f s\n",
			cfg.Sharing, s.Evaluated, s.Value, s.Without, s.With)
	}
	// Output:
	// greedy: 14.68 s, that is 0.48 of the way from 16.88 s without INA to 12.26 s
	// mina: 12.26 s, that is 1.00 of the way from 16.88 s without INA to 12.26 s
}

// Two models that want the same tree, as in Figure 12.
func ExampleShare() {
	a, _ := workload.BuiltinPatterns().Lookup("opt-1.3b", 4)
	b, _ := workload.BuiltinPatterns().Lookup("vit-large", 4)
	cfg := ops.Config{Cost: ops.PaperCost(), GPU: 1.5}
	cfg.Cost.Ratio = 1.5
	s, err := ops.Share(cfg, 1000, []ops.Job{{Pattern: &a}, {Pattern: &b}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.3f of %.1f %%\n", s.Value, 100*s.Range())
	// Output: 0.796 of 21.8 %
}
