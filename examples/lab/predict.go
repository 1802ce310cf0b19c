package main

import "github.com/inabench/inabench/experiments/predictor"

// predict is a predictor for experiments about [[job]] tables: each job gets the rate of its slowest worker's cable, as if
// it were alone.
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
				for _, w := range j.Workers {
					if r := rate[w.Up]; slowest == 0 || r > 0 && r < slowest {
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
