package service_test

import (
	"context"
	"fmt"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/sim/service"
)

// Two jobs that compute for 90 ms and have 10 MB of gradients share one Aggregator, which adds up 2 GB/s.
func ExampleRun() {
	c := service.Config{
		Rate: 10e9, Sum: 2e9, Profile: 5, Master: paramservice.DefaultMaster(), End: 20 * time.Second,
	}
	var jobs []service.Job
	for i, name := range []string{"first", "second"} {
		jobs = append(jobs, service.Job{
			Name: name, Workers: 2, Servers: 1, Arrive: time.Duration(i) * 5050 * time.Millisecond,
			Tensors: []service.Tensor{{Bytes: 10e6, Ready: 90 * time.Millisecond}},
		})
	}
	res, err := service.Run(context.Background(), c, jobs)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, change := range res.Changes {
		fmt.Printf("%5.2f s: %s %s\n", change.At.Seconds(), change.Job, change.What)
	}
	for i := range res.Jobs {
		o := &res.Jobs[i]
		fmt.Printf("%s: %v alone, %v when shared\n", jobs[i].Name, o.Mean(0, 3), o.Between(10*time.Second, 20*time.Second))
	}
	at, used := res.At(15*time.Second), res.Usage(res.End)
	fmt.Printf("%d Aggregator for %d servers, %.0f %% of their time saved\n", at.Aggregators, at.Required, 100*used.Saved())
	// Output:
	//  0.00 s: first arrived
	//  0.66 s: first settled
	//  5.05 s: second arrived
	//  5.71 s: second settled
	// first: 132ms alone, 132ms when shared
	// second: 132ms alone, 132ms when shared
	// 1 Aggregator for 2 servers, 40 % of their time saved
}
