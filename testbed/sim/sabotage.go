package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/sabotage"
)

// saboteur makes a part of the model do one thing wrong; see testbed/sabotage.
type saboteur struct {
	order *sabotage.Order
	from  map[string]time.Duration // when it begins, by part; of workers and clocks, by job
	acted int64
	done  map[string]bool    // jobs that it has dealt with
	was   map[string]float64 // counters when it began
}

// Sabotage implements testbed.Saboteur, for deployments that are made from now on.
func (b *bench) Sabotage(_ context.Context, o *sabotage.Order) (acted int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sab != nil {
		acted = b.sab.acted
	}
	if b.sab = nil; o == nil {
		return acted, nil
	}
	if why := o.Refused("sim", ""); why != "" {
		return acted, fmt.Errorf("sabotage %s: %s", o.Name, why)
	}
	b.sab = &saboteur{order: o, from: map[string]time.Duration{}, done: map[string]bool{}, was: map[string]float64{}}
	return acted, nil
}

// on reports whether the fault of a part, or of a job's workers, is on at now.
func (s *saboteur) on(part string, now time.Duration) bool {
	from, ok := s.from[part]
	return ok && now >= from
}

// begin sets when the fault begins of parts that have their first traffic.
func (s *saboteur) begin(d *deployment) {
	for _, j := range d.jobs {
		if !j.running || j.total.psns == 0 && !j.local {
			continue
		}
		part := s.order.Part
		switch s.order.At {
		case sabotage.Worker, sabotage.Clock:
			if part = j.plan.Name; !s.of(j) {
				continue
			}
		default:
			if !slices.ContainsFunc(j.uses, func(u use) bool {
				l := &d.topo.Links[u.link]
				return l.Name == part || s.order.At == sabotage.Switch && (l.From == part || l.To == part)
			}) {
				continue
			}
		}
		if _, ok := s.from[part]; !ok {
			s.from[part] = d.now + sabotage.After
		}
	}
}

// step does what the fault does to jobs and links, before a step of the model.
func (s *saboteur) step(d *deployment) {
	s.begin(d)
	switch s.order.At {
	case sabotage.Link:
		for i := range d.links {
			if d.topo.Links[i].Name == s.order.Part && s.on(s.order.Part, d.now) {
				if s.acted++; s.acted == 1 {
					d.links[i].capacity *= 1 - sabotage.Slow
				}
			}
		}
	case sabotage.Worker:
		for _, j := range d.jobs {
			if j.running && s.on(j.plan.Name, d.now) {
				s.job(j, d.now)
			}
		}
	}
}

// of reports whether the fault is a worker's of the job.
func (s *saboteur) of(j *job) bool {
	for _, w := range j.plan.Workers {
		if results.Glob(s.order.Part, fmt.Sprintf("%s/%d", j.plan.Name, w.Rank)) {
			return true
		}
	}
	return false
}

// job does what the fault does to a job: without one worker, none gets anything.
func (s *saboteur) job(j *job, now time.Duration) {
	first := !s.done[j.plan.Name]
	switch s.order.Name {
	case "hang":
		j.halted = true
	case "stall":
		paused := (now-s.from[j.plan.Name])%sabotage.StallEvery < sabotage.Stall
		if first = paused && !j.halted; first || !paused {
			j.halted = paused
		}
	case "stop":
		j.stop()
	case "end-early":
		switch {
		case first && j.msg.iterations > 0:
			j.msg.iterations = max(j.total.iterations+1, (j.msg.iterations+1)/2)
		case first:
			j.stop()
		}
	}
	if s.done[j.plan.Name] = true; first {
		s.acted++
	}
}

// tell changes what is told of the model's counters.
func (s *saboteur) tell(now time.Duration, out []results.Sample) {
	if s.order.At == sabotage.Switch && !s.on(s.order.Part, now) {
		return
	}
	raw := map[string]float64{}
	for i := range out {
		raw[out[i].Metric+" "+out[i].Of] = out[i].Value
	}
	if len(s.was) == 0 {
		s.was = maps.Clone(raw)
	}
	for i := range out {
		o := &out[i]
		if s.order.Name == "jump-clock" {
			if at, ok := strings.CutPrefix(o.Source, "model of worker "); ok && results.Glob(s.order.Part, at) && s.on(at[:strings.LastIndexByte(at, '/')], now) {
				o.T += sabotage.Jump.Seconds()
				s.acted++
			}
			continue
		}
		if s.order.At != sabotage.Switch || o.Source != "model of switch "+s.order.Part {
			continue
		}
		told := s.lie(o, o.Metric+" "+o.Of, raw)
		if told != o.Value {
			s.acted++
		}
		o.Value = told
	}
}

// lie is what the switch says in the place of a counter.
func (s *saboteur) lie(o *results.Sample, key string, raw map[string]float64) float64 {
	was, sent := s.was[key], strings.HasPrefix(o.Metric, "job_out") || strings.HasPrefix(o.Metric, "port_tx")
	grown := o.Value - was
	switch {
	case s.order.Name == "freeze-counters":
		return was
	case s.order.Name == "count-less" && sent:
		return was + float64(int64(grown*(1-sabotage.Lie)))
	case s.order.Name == "count-more" && sent:
		return was + float64(int64(grown*(1+sabotage.Lie)))
	case s.order.Name == "exaggerate":
		if unit, ok := strings.CutPrefix(o.Metric, "job_granted"); ok {
			denied := "job_denied" + unit + " " + o.Of
			return o.Value + raw[denied] - s.was[denied]
		}
		if strings.HasPrefix(o.Metric, "job_denied") {
			return was
		}
	}
	return o.Value
}
