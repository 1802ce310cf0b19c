package ops

import (
	"container/heap"
	"fmt"
	"math"

	"github.com/inabench/inabench/placement/mina/tree"
)

// Share is the score of jobs that all want the same tree, over the steps that they finish
// in so many seconds: what MINA's Figure 12 has for pairs of models. The jobs are on
// several hosts each, all begin at once and never end. Of them one has INA at a time.
//
//	cfg := ops.Config{Cost: ops.PaperCost(), GPU: 1.5}
//	cfg.Cost.Ratio = 1.5
//	score, err := ops.Share(cfg, 1000, []ops.Job{{Pattern: a}, {Pattern: b}})
//
// Cost, GPU, Sharing and PerHost count; of jobs their Pattern, and Hosts where PerHost is
// set.
func Share(cfg Config, seconds float64, jobs []Job) (Score, error) {
	if err := cfg.check(); err != nil {
		return Score{}, err
	}
	if !(seconds > 0) || math.IsInf(seconds, 1) {
		return Score{}, fmt.Errorf("%w: %v s", ErrConfig, seconds)
	}
	known, err := cfg.patterns(jobs)
	if err != nil {
		return Score{}, err
	}
	e := &engine{cfg: cfg, result: &Result{}}
	for i := range jobs {
		if jobs[i].Pattern == nil {
			return Score{}, fmt.Errorf("job %d: %w: without a pattern", i, ErrJob)
		}
		p := &known[jobs[i].Pattern][1]
		r := &running{State: tree.State{Pattern: p.Pattern, Weight: cfg.weight(&jobs[i])}, pattern: p,
			job: i, seq: i, left: math.MaxInt, tree: cfg.Sharing != Never && (cfg.Sharing != None || i == 0)}
		e.active = append(e.active, r)
	}
	for _, r := range e.active {
		for _, o := range e.active {
			if o != r && cfg.Sharing < None {
				r.rival(o)
			}
		}
		r.due = r.event()
		heap.Push(&e.heap, r)
	}
	for e.now <= seconds {
		r := e.heap[0]
		e.now = r.due
		e.event(r)
		r.due = r.event()
		heap.Fix(&e.heap, r.heap)
	}
	var without, evaluated, with, weights float64
	for i, r := range e.active {
		w, n := cfg.weight(&jobs[i]), float64(math.MaxInt-r.left)
		without += w * n * r.pattern.without
		evaluated += w * r.Began
		with += w * n * r.pattern.with
		weights += w
	}
	return score(without, evaluated, with, weights), nil
}
