package main

import "github.com/inabench/inabench/experiments/predictor"

// predict is a predictor for experiments about [[job]] tables: each job gets what its slowest link allows, of those that
// gradients take from its workers, as if it were alone.
func predict(req *predictor.Request) (*predictor.Answer, error) {
	rate := map[string]float64{} // of links
	for _, l := range req.Links {
		rate[l.Name] = l.Rate
	}
	var a predictor.Answer
	for _, ph := range req.Phases {
		var said predictor.PhaseAnswer
		for _, name := range ph.Jobs {
			for _, j := range req.Jobs {
				if j.Name != name || j.Local {
					continue
				}
				slowest := 0.0
				for link, n := range loads(&j) {
					if r := rate[link] / n; slowest == 0 || r > 0 && r < slowest {
						slowest = r
					}
				}
				goodput := slowest * float64(req.Frame.Payload) / float64(req.Frame.Bytes)
				said.Jobs = append(said.Jobs, predictor.JobAnswer{Name: name, Goodput: &goodput})
			}
		}
		a.Phases = append(a.Phases, said)
	}
	return &a, nil
}

// loads are how often links carry what a job reduces: once from each worker, and around a ring of n workers 2(n-1)/n times.
func loads(j *predictor.Job) map[string]float64 {
	on := map[string]float64{}
	for _, w := range j.Workers {
		if w.Up != "" { // not of a ring
			on[w.Up]++
		}
	}
	n := float64(len(j.Workers))
	for _, link := range j.Hops {
		on[link] += 2 * (n - 1) / n
	}
	return on
}
