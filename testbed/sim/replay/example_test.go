package replay_test

import (
	"context"
	"fmt"
	"log"

	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/testbed/sim/replay"
)

// Two jobs of an hour's computing each, on one rack. The second does not fit beside
// the first. The PS is on a worker's server, so its link carries the gradient twice.
func Example() {
	var jobs []replay.Job
	for id := range 2 {
		jobs = append(jobs, replay.Job{
			ID: id, Submit: 60, GPUs: 6, Traffic: cluster.INA,
			Iterations: replay.Iterations(3600, 0.25), Compute: 0.25, Bytes: 553e6,
		})
	}
	r, err := replay.Run(context.Background(), replay.Config{
		Cluster: cluster.FatTree(1, 2, 4, 100e9, 1e12, 1), // 2 servers of 4 GPUs
		Policy:  baseline.FirstFit(), Period: 60,
	}, jobs)
	if err != nil {
		log.Fatal(err)
	}
	for _, j := range r.Jobs {
		fmt.Printf("job %d: %.0f to %.0f s on %d servers, DE %.2f\n", j.ID, j.Start, j.End, j.Servers, j.DE())
	}
	fmt.Printf("average JCT %.0f s, with queueing %.0f s\n", r.Summary.JCT, r.Summary.JCTQueued)
	// Output:
	// job 0: 60 to 5019 s on 2 servers, DE 0.73
	// job 1: 5040 to 9999 s on 2 servers, DE 0.73
	// average JCT 4959 s, with queueing 7449 s
}
