package jobs

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// Baseline is what was measured at low load before anything was predicted: how
// long an aggregator stays taken, by job and switch ("A@tor1"), and the round trip
// of a gradient and its result by job. Both in seconds.
type Baseline struct {
	Holds, RTTs map[string]float64
	Unsure      map[string]float64 // by how much each of Holds may be off, as a part of it: half of a 95 % interval
	// Laps are round trips in seconds of streams whose windows queue before a link in every phase, the queue in: it is what
	// a stop must be held against that they may notice.
	Laps map[string]float64
}

// lapsOf are Laps as planned phases are predicted.
func lapsOf(setup testbed.Setup, planned [][]*placement.Prediction) map[string]float64 {
	laps := map[string]float64{}
	for _, predictions := range planned {
		if len(predictions) == 0 {
			continue
		}
		for _, jp := range predictions[0].Jobs {
			lap := 0.0
			if w := workloadOf(setup, jp.Name); jp.Queue > 0 && jp.WireRate > 0 && w.Control == "fixed" && w.Message == 0 && len(w.Layers) == 0 {
				lap = float64(w.Window) * study.FrameBits(setup.Settings.Lanes) / jp.WireRate
			}
			if old, ok := laps[jp.Name]; !ok || lap < old {
				laps[jp.Name] = lap
			}
		}
	}
	return laps
}

// conditions are what a setup's jobs meet, for predictors.
func conditions(setup testbed.Setup, base Baseline, active []string) placement.Conditions {
	c := placement.Conditions{
		Seed: setup.Settings.Seed, Queue: setup.Settings.Queue,
		Active: active, Mode: setup.Settings.Mode, Addressing: setup.Settings.Addressing,
		Aggregators: setup.Settings.Aggregators, Lanes: setup.Settings.Lanes,
		Senders: map[string]placement.Sender{}, Holds: base.Holds, RTTs: base.RTTs,
	}
	for i, j := range setup.Plan.Jobs {
		w := setup.Workloads[i]
		c.Senders[j.Name] = placement.Sender{Rate: w.Rate, Window: w.Window, Control: w.Control, Slots: w.Slots, Timeout: w.RTO.Seconds(), Layers: layers(w)}
	}
	for link, s := range setup.Damage {
		if c.Damage == nil {
			c.Damage = map[string]flow.Damage{}
		}
		c.Damage[link] = flow.Damage{Loss: s.Loss, Twice: s.Duplicate, Late: s.Reorder, Delay: s.ReorderBy.Seconds()}
	}
	return c
}

// layers are what a job reduces in an iteration; none of a stream.
func layers(w testbed.Workload) (out []placement.Layer) {
	for _, l := range w.Reduces() {
		out = append(out, placement.Layer{Bytes: float64(l.Bytes), Compute: l.Compute.Seconds()})
	}
	return out
}

// granted makes the windows of jobs what they are granted in the first period of
// reallocation. Jobs that wait for their turn send nothing, and they and those that are not there have no memory.
func granted(c *placement.Conditions, inv *inventory.Inventory, setup testbed.Setup) {
	active := c.Active
	grants := divide(inv, setup, func(job string) bool { return slices.Contains(active, job) }, 0)
	c.Active = []string{}
	for _, j := range setup.Plan.Jobs {
		shares := j.Collective == placement.INA && !j.Local()
		g := grants[j.Name]
		if shares {
			s := c.Senders[j.Name]
			s.Window = g.Window
			c.Senders[j.Name] = s
		}
		if slices.Contains(active, j.Name) && (!shares || g.Window > 0) {
			c.Active = append(c.Active, j.Name)
		}
	}
}

// predict is a prediction of a steady state by each of some models, in the units of inv.
func predict(ctx context.Context, inv *inventory.Inventory, setup testbed.Setup, base Baseline, active []string, models []string) ([]*placement.Prediction, error) {
	var out []*placement.Prediction
	for _, name := range models {
		c := conditions(setup, base, active)
		c.Predictor = name
		if setup.Grants != nil {
			granted(&c, inv, setup)
		}
		p, err := placement.Predict(ctx, inv, setup.Plan, c)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// predict is what every model predicts of a timeline's spans. Where the testbed says when jobs begin, that is of the
// one run, from its beginning to its end, and elsewhere of steady states.
func (r *run) predict(ctx context.Context, setup testbed.Setup, base Baseline, t timeline) ([][]*placement.Prediction, error) {
	inv := r.Testbed().Inventory()
	var run []*placement.Prediction
	if kept := r.Testbed().Capabilities().Pace; kept.Within > 0 && setup.Grants == nil {
		var err error
		if run, err = r.replay(ctx, setup, base, t.schedule(base, kept)); err != nil {
			return nil, err
		}
		if pace := r.pace(t); run != nil && pace != kept {
			late, err := r.replay(ctx, setup, base, t.schedule(base, pace))
			if err != nil {
				return nil, err
			}
			run = slices.Clone(run) // which is remembered
			for i := range late {
				run[i] = run[i].Widen(late[i])
			}
		}
	}
	models := spec.Predictors
	if run != nil { // which is the first one's
		models = spec.Predictors[1:]
	}
	var out [][]*placement.Prediction
	for i, sp := range t.spans() {
		p, err := remember(r, "predicted", []any{setup, base, sp.jobs, models}, func() ([]*placement.Prediction, error) {
			return predict(ctx, inv, setup, base, sp.jobs, models)
		})
		if err != nil {
			return nil, err
		}
		if run != nil {
			p = append([]*placement.Prediction{run[i]}, p...)
		}
		out = append(out, p)
	}
	return out, nil
}

// tail is how many times their median is exceeded once in a hundred by what wakes of processes take, see flow.Lag.
const tail = 9

// pace is how badly the testbed may have kept to its times in a run, as far as that is over: as if frames that left later
// than they use to had done so each by itself. Most do so together, which delays all of them by less.
func (r *run) pace(t timeline) testbed.Pace {
	pace := r.Testbed().Capabilities().Pace
	pace.Wake = max(pace.Wake, time.Duration(t.late/tail*float64(time.Second)))
	return pace
}

// replay is what Occupancy predicts of the phases of one run; nil: only their steady states are known.
func (r *run) replay(ctx context.Context, setup testbed.Setup, base Baseline, s placement.Schedule) ([]*placement.Prediction, error) {
	return remember(r, "predicted", []any{setup, base, s}, func() ([]*placement.Prediction, error) {
		return placement.Replay(ctx, r.Testbed().Inventory(), setup.Plan, conditions(setup, base, nil), s)
	})
}

// remember is what do says of a question about the testbed that is open, which repeats and phases ask more than once:
// to calibrate or to follow packets takes its time. What says of which kind the question is.
func remember[T any](r *run, what string, question any, do func() (T, error)) (T, error) {
	key, err := json.Marshal(question)
	if err != nil {
		var none T
		return none, err
	}
	return study.Once(r.Here(), what+" "+string(key), do)
}

// figures are a prediction's numbers as a record keeps them. Of what a memory holds a part is aggregated that is the less
// the longer an aggregator stays taken: a share may be off by as much as that was measured to.
func figures(p *placement.Prediction, topo *inventory.Topology, base Baseline) []results.Figure {
	links := topo.Links
	exact := func(metric, of string, v float64, unit, bottleneck string) results.Figure {
		return results.Figure{Metric: metric, Of: of, Kind: results.Predicted, Value: v, Lo: v, Hi: v, N: 1,
			Unit: unit, Predictor: p.Predictor, Bottleneck: bottleneck, OfRun: p.Replayed}
	}
	var out []results.Figure
	var goodputs []interval
	shares := map[string][]interval{} // by switch: each job's aggregated throughput
	var switches []string
	for _, j := range p.Jobs {
		if j.Local {
			continue
		}
		out = append(out,
			within(exact("goodput", j.Name, j.Goodput, "bit/s", j.Bottleneck), j.Spread*j.Goodput),
			within(exact("wire_rate", j.Name, j.WireRate, "bit/s", j.Bottleneck), j.Spread*j.WireRate))
		goodputs = append(goodputs, interval{j.Goodput, placement.Deviations * j.Spread * j.Goodput})
		for _, s := range j.Shares {
			if s.In < placement.LeastIn {
				continue // whole sums come, but for chance
			}
			of := spec.AtSwitch(j.Name, s.Switch)
			spread := func(v float64) float64 { return math.Hypot(s.Spread, base.Unsure[of]*v/placement.Deviations) }
			part := func(metric string, v float64) results.Figure {
				f := within(exact(metric, of, v, "1", j.Bottleneck), spread(v))
				f.Hi = max(f.Value, min(1, f.Hi))
				return f
			}
			out = append(out, part("granted", s.Granted), part("share", s.Share))
			if !slices.Contains(switches, s.Switch) {
				switches = append(switches, s.Switch)
			}
			off := math.Hypot(spread(s.Granted), s.Granted*j.Spread)
			shares[s.Switch] = append(shares[s.Switch], interval{s.Granted * j.Goodput, placement.Deviations * off * j.Goodput})
		}
	}
	if len(goodputs) > 1 {
		out = append(out, jain(exact("jain", "goodput", 0, "1", ""), goodputs))
	}
	for _, sw := range switches {
		if len(shares[sw]) > 1 {
			out = append(out, jain(exact("jain", spec.AtSwitch("aggregated", sw), 0, "1", ""), shares[sw]))
		}
	}
	loads := map[string]placement.LinkPrediction{}
	for _, l := range p.Links {
		loads[l.Link] = l
	}
	for _, l := range links {
		// Algorithm 1 knows cables, not their directions: it is held to the busier one.
		load, ok := loads[l.Name]
		if _, other := loads[links[l.Reverse].Name]; ok || p.Predictor == placement.Occupancy || !other {
			// What hosts send is counted before a cable damages it, and what switches send after that.
			rate := load.Load - load.Lost
			if topo.IsHost(l.From) {
				rate = load.Load
			}
			if rate == 0 && len(links) > testbed.ManyLinks {
				continue
			}
			out = append(out, within(exact("link_rate", l.Name, rate, "bit/s", ""), load.Spread*load.Load))
		}
	}
	return out
}

// within is a predicted figure of which one run may be off by a standard deviation. Less than nothing is only the share of
// a switch that more leaves than comes, where packets are sent again or doubled.
func within(f results.Figure, deviation float64) results.Figure {
	f.Lo, f.Hi = f.Value-placement.Deviations*deviation, f.Value+placement.Deviations*deviation
	if f.Value >= 0 {
		f.Lo = max(0, f.Lo)
	}
	return f
}

// interval is a value that may be off by so much either way.
type interval struct{ v, off float64 }

// manyJobs is of how many jobs the least even division is looked for among all.
const manyJobs = 12

// jain gives a figure Jain's index of values, and the least and the most that it is of any within their intervals. The
// index grows with a value below sum(x^2)/sum(x) and falls with one above: it is least in a corner, and most where values
// are as near to that as they may be.
func jain(f results.Figure, of []interval) results.Figure {
	x := make([]float64, len(of))
	for i := range of {
		x[i] = of[i].v
	}
	f.Value = results.JainIndex(x)
	f.Lo, f.Hi = f.Value, f.Value
	if !slices.ContainsFunc(of, func(k interval) bool { return k.off > 0 }) {
		return f
	}
	least := func(k interval) float64 { return max(0, k.v-k.off) }
	for range 100 {
		sum, squares := 0.0, 0.0
		for _, v := range x {
			sum, squares = sum+v, squares+v*v
		}
		if sum == 0 {
			break
		}
		for i, k := range of {
			x[i] = min(max(squares/sum, least(k)), k.v+k.off)
		}
		f.Hi = max(f.Hi, results.JainIndex(x))
	}
	if len(of) > manyJobs {
		f.Lo = 1 / float64(len(of))
		return f
	}
	for corner := range 1 << len(of) {
		for i, k := range of {
			if x[i] = least(k); corner>>i&1 == 1 {
				x[i] = k.v + k.off
			}
		}
		f.Lo = min(f.Lo, results.JainIndex(x))
	}
	return f
}
