package jobs

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// Who looks on sees the jobs that run, each beside what is predicted of the phase that it is in, or is warming up for.
func TestMoving(t *testing.T) {
	_, setup := judging(t, `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
[[job]]
name = "B"
hosts = ["h2"]
ps = "h3"
`)
	predicted := func(goodput map[string]float64) []*placement.Prediction {
		p := &placement.Prediction{}
		for name, v := range goodput {
			p.Jobs = append(p.Jobs, placement.JobPrediction{Name: name, Goodput: v})
		}
		return []*placement.Prediction{p}
	}
	predictions := [][]*placement.Prediction{predicted(map[string]float64{"A": 800}), predicted(map[string]float64{"A": 400, "B": 600})}
	obs := observation{readings: &results.Readings{}, timeline: timeline{warmup: time.Second, jobs: []string{"A", "B"}}}
	read := func(at, perSecond float64, of ...string) {
		for _, of := range of {
			for _, back := range []float64{2, 1, 0} {
				obs.readings.Add(results.Sample{T: at - back, Source: "host", Metric: "worker_goodput_bytes", Of: of, Value: 1e6 + perSecond*(at-back)})
			}
		}
	}
	// A job that ends within the first warm-up leaves no phase at all.
	brief := observation{readings: &results.Readings{}, timeline: timeline{warmup: time.Second, jobs: []string{"A"}, events: []event{{job: "A"}, {job: "A", at: seconds(.5), stop: true}}}}
	if got := moving(setup, brief, current(brief, predictions)); got != nil {
		t.Errorf("after a brief job: %v", got)
	}
	for _, step := range []struct {
		name   string
		events []event
		read   func()
		want   []study.Moving
	}{
		{"nothing runs", nil, func() {}, nil},
		{"nothing was read", []event{{job: "A", at: seconds(1)}}, func() {}, nil},
		{"one worker of two was read", nil, func() { read(4, 50, "A/0") }, nil},
		{"one job runs", nil, func() { read(4, 150, "A/1") }, []study.Moving{{Job: "A", Goodput: 800, Predicted: 800}}},
		{"the other warms up", []event{{job: "B", at: seconds(5)}}, func() { read(5.5, 75, "B/0") }, []study.Moving{{Job: "A", Goodput: 800, Predicted: 400}, {Job: "B", Goodput: 600, Predicted: 600}}},
		{"nothing is predicted", []event{{job: "A", at: seconds(9), stop: true}}, func() {}, []study.Moving{{Job: "B", Goodput: 600}}},
		{"all have stopped", []event{{job: "B", at: seconds(12), stop: true}}, func() {}, nil},
	} {
		obs.timeline.events = append(obs.timeline.events, step.events...)
		step.read()
		if diff := cmp.Diff(step.want, moving(setup, obs, current(obs, predictions))); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
}
