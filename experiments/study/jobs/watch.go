package jobs

import (
	"fmt"
	"time"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed"
)

// watched is over how many seconds a rate is that somebody watches.
const watched = 1.0

// scene returns the jobs and predicted link loads at a time after the origin of events, and the first of those to come.
func scene(setup testbed.Setup, obs observation, predictions [][]*placement.Prediction, events []event, at time.Duration) study.Scene {
	predicted := current(obs, predictions)
	out := study.Scene{Jobs: moving(setup, obs, predicted)}
	if predicted != nil {
		out.Links = map[string]float64{}
		for _, l := range predicted.Links {
			out.Links[l.Link] = l.Load
		}
	}
	if len(events) > 0 && events[0].at > at {
		out.Next, out.In = events[0].job+" begins", events[0].at-at
		if events[0].stop {
			out.Next = events[0].job + " stops"
		}
	}
	return out
}

// current is the prediction of the phase that is measured, or, in a warm-up, of the one that comes; nil: there is none.
func current(obs observation, predictions [][]*placement.Prediction) *placement.Prediction {
	if i := obs.timeline.current(); i >= 0 && i < len(predictions) && len(predictions[i]) > 0 {
		return predictions[i][0]
	}
	return nil
}

// moving is how fast the jobs are that run now, beside what is predicted. Jobs that send nothing are left out, and those of which nothing was read yet.
func moving(setup testbed.Setup, obs observation, prediction *placement.Prediction) []study.Moving {
	predicted := map[string]float64{}
	if prediction != nil {
		for _, j := range prediction.Jobs {
			predicted[j.Name] = j.Goodput
		}
	}
	active := obs.timeline.active()
	var out []study.Moving
	for _, j := range setup.Plan.Jobs {
		if !active[j.Name] || j.Local() {
			continue
		}
		sum, all := 0.0, true
		for _, w := range j.Workers {
			v, ok := obs.readings.Speed("worker_goodput_bytes", fmt.Sprintf("%s/%d", j.Name, w.Rank), watched)
			sum, all = sum+v, all && ok
		}
		if all {
			out = append(out, study.Moving{Job: j.Name, Goodput: 8 * sum / float64(len(j.Workers)), Predicted: predicted[j.Name]})
		}
	}
	return out
}
