package jobs

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
)

// locate says in which of a setting's states a followed phase is that is not as predicted in the mean of runs: it is held to
// the one of them in which all that was measured came, if there is one (Phase.State), and where it is but between what
// runs come to, it need not be what is predicted (Phase.Unlike). Some settings come to their states by themselves. In
// others workers that keep step find a memory long enough that is shorter than their windows, and once one of them is
// behind the others take each other's slots for good: one process that stands still once, for half a round trip, is enough.
// And jobs that index a memory by PSN may find each other's slots always or never, as they happen to be apart, and their
// rates follow from that: where somebody has stood still, they may be as far apart as at random. What is left may be a state
// that none of the runs has met, as far as they differ (Phase.UnlikeBy).
func (r *run) locate(ctx context.Context, setup testbed.Setup, base Baseline, obs observation, span int, p *placement.Prediction, ph *results.Phase) error {
	topo := r.Testbed().Inventory().Topology()
	mean := figures(p, topo, base)
	if distance(counted(ph.Figures), mean) <= 1 {
		return nil
	}
	several := false // states
	found := func(p *placement.Prediction) bool {
		var runs [][]results.Figure
		for _, one := range p.Each {
			runs = append(runs, figures(one, topo, base))
		}
		others := elsewhere(runs, mean)
		several = several || len(others) > 0
		return hold(ph, others, len(runs))
	}
	if found(p) {
		return nil
	}
	longest := 0.0
	for _, rtt := range base.RTTs {
		longest = max(longest, rtt)
	}
	if longest == 0 || !off(ph.Figures) {
		return nil
	}
	t := obs.timeline
	covers := func(s placement.Schedule, less bool) (held, between bool, err error) {
		other, err := r.replay(ctx, setup, base, s)
		if err != nil || other == nil {
			return false, false, err
		}
		return found(other[span]), !off(ph.Figures, alternative{figures(other[span], topo, base), less}), nil
	}
	shaken := t.schedule(base, r.pace(t))
	shaken.Lag.Hitch = longest / 2
	switch held, between, err := covers(shaken, true); {
	case err != nil || held:
		return err
	case between:
		ph.Unlike = fmt.Sprintf("the setting tips: where one process stands still for %s, half a round trip, it may go on at what was measured here; windows that are no longer than the memory have one state",
			human.Quantity(shaken.Lag.Hitch, "s"))
		return nil
	}
	stood, still := 0, 0.0 // their processes, and the testbed's: how often, and for how long
	for _, x := range obs.stalls {
		if x.Start < ph.End && (x.Job == "" || slices.Contains(ph.Jobs, x.Job)) {
			stood++
			still += x.Held
		}
	}
	held, between := false, false
	apart := t.schedule(base, r.pace(t))
	if stood > 0 && scatter(apart, setup, r.Testbed().Inventory(), ph) {
		var err error
		if held, between, err = covers(apart, false); err != nil {
			return err
		}
	}
	switch {
	case held:
	case between:
		ph.Unlike = fmt.Sprintf("what jobs get that index a memory by PSN depends on how far apart they are, which changes where somebody stands still, as happened %d times: they may be where this was measured; under another switch.addressing, pool or hash, they have one state", stood)
	case several && still > longest:
		ph.Unlike = fmt.Sprintf("the setting has more than one state, and the testbed stood still %d times, for %s in all, of which each may have changed it: what comes of that is not followed",
			stood, human.Quantity(still, "s"))
	default:
		ph.Unlike, ph.UnlikeBy = unmet(p)
	}
	return nil
}

// varied is from which part of a rate on, or which share, runs that were followed differ so much that a setting has more
// than one state.
const varied = 0.02

// unmet says that runs that were followed differ, and what part of what is predicted a figure may be off for it: of a few
// runs nobody knows that they met all states, so that another one may be as far off again. Empty: they do not differ.
func unmet(p *placement.Prediction) (why string, by float64) {
	for _, j := range p.Jobs {
		by = max(by, j.Spread)
		for _, s := range j.Shares {
			by = max(by, s.Spread)
		}
	}
	if by *= placement.Deviations; by < varied {
		return "", 0
	}
	return fmt.Sprintf("the setting has more than one state, and how late the machine is chooses between them: runs that were followed differ by %s, and there may be other states",
		human.Quantity(by, "1")), 2 * by
}

// joint is how far, in tolerances, a phase may be from a run to be in its state: less than from a prediction, for the run is
// chosen among many.
const joint = 0.5

// elsewhere are those of runs that are further from their mean than a tolerance: they are in another state.
func elsewhere(runs [][]results.Figure, mean []results.Figure) [][]results.Figure {
	return slices.DeleteFunc(slices.Clone(runs), func(one []results.Figure) bool { return distance(one, mean) <= 1 })
}

// hold finds, among the figures of runs in other states than the mean, those of the one in which goodputs, shares and loads of
// links came together as they were measured in a phase, and holds the phase to them instead of to the mean of so many
// runs. It reports false where there is none.
func hold(ph *results.Phase, others [][]results.Figure, runs int) bool {
	got := counted(ph.Figures)
	var nearest []results.Figure
	least := joint
	for _, one := range others {
		if d := distance(got, one); d <= least {
			least, nearest = d, one
		}
	}
	if nearest == nil {
		return false
	}
	first := slices.IndexFunc(ph.Figures, byOccupancy)
	ph.Figures = slices.Insert(slices.DeleteFunc(ph.Figures, byOccupancy), first, nearest...)
	ph.State = fmt.Sprintf("the setting has more than one state: it is held to that of one of %d runs that were followed, which differ", runs)
	return true
}

// counted are the figures that no one predicted.
func counted(figures []results.Figure) []results.Figure {
	return slices.DeleteFunc(slices.Clone(figures), func(f results.Figure) bool { return f.Kind == results.Predicted })
}

// byOccupancy says that a figure is of the predictor that follows packets.
func byOccupancy(f results.Figure) bool {
	return f.Kind == results.Predicted && f.Predictor == placement.Occupancy
}

// distance is how far goodputs, shares and loads of links are from those that are predicted, at worst, in tolerances. Half
// of one may be the grain of what is counted.
func distance(got, said []results.Figure) (worst float64) {
	busiest := busiest(said)
	for _, f := range got {
		p, ok := predicted(said, f.Metric, f.Of)
		switch by := tolerance(p, busiest); {
		case !ok:
		case by > 0:
			worst = max(worst, (math.Abs(f.Value-p.Value)-min(f.Grain, by/2))/by)
		case f.Metric == "goodput" && f.Value > 0: // of a job that gets nothing
			worst = math.Inf(1)
		}
	}
	return worst
}

// tolerance is by how much what is measured may be off a prediction that is judged by it; 0: others are not. A link's counts
// for as much as a tenth of the busiest one's, for many carry few packets.
func tolerance(p results.Figure, busiest float64) float64 {
	switch p.Metric {
	case "goodput":
		return 0.05 * p.Value
	case "link_rate":
		return 0.05 * max(p.Value, busiest/10)
	case "share":
		return 0.04
	}
	return 0
}

// busiest is the greatest load of a link that is predicted.
func busiest(figures []results.Figure) (most float64) {
	for _, f := range figures {
		if f.Kind == results.Predicted && f.Metric == "link_rate" {
			most = max(most, f.Value)
		}
	}
	return most
}

// scatter has jobs of a phase begin at any time within a turn of a memory that they share and index by PSN, at the rates
// that are measured: they are as far apart then as at random. It reports false where none do.
func scatter(s placement.Schedule, setup testbed.Setup, inv *inventory.Inventory, ph *results.Phase) bool {
	if a := setup.Settings.Addressing; setup.Settings.Mode == "synchronous" || a != "linear" && a != "atp" {
		return false
	}
	some := false
	shared := map[string]bool{} // switches at which one before aggregates
	for _, j := range setup.Plan.Jobs {
		rate, _ := figureOf(ph.Figures, results.Measured, "", "goodput", j.Name)
		if rate.Value == 0 || !slices.Contains(ph.Jobs, j.Name) {
			continue
		}
		w := workloadOf(setup, j.Name)
		frames, turn := w.Frames(setup.Settings.Lanes), 0.0
		for _, n := range j.Tree {
			if !n.Aggregate {
				continue
			}
			if sw, ok := inv.Switch(n.Switch); ok && shared[n.Switch] {
				slots := placement.Aggregators(sw, setup.Settings.Aggregators)
				turn = max(turn, float64(slots)*8*frames.Mean()/rate.Value)
			}
			shared[n.Switch] = true
		}
		if times := s.Jobs[j.Name]; turn > times.Within {
			times.Within = turn
			s.Jobs[j.Name], some = times, true
		}
	}
	return some
}

// alternative is what a phase may come to besides what is predicted of it, and whether of goodputs and shares only what is
// less counts.
type alternative struct {
	figures []results.Figure
	less    bool
}

// off says that some goodput, share or load of a link among figures is not as predicted among them, nor between that and
// what others say. A load is not if all of its interval is not: many are of few packets.
func off(figures []results.Figure, others ...alternative) bool {
	busiest := busiest(figures)
	for _, f := range figures {
		p, ok := predicted(figures, f.Metric, f.Of)
		by := tolerance(p, busiest)
		if f.Kind == results.Predicted || !ok || by == 0 {
			continue
		}
		least, most := f.Value, f.Value
		if f.Metric == "link_rate" {
			least, most = f.Lo, f.Hi
		}
		lo, hi := p.Lo, p.Hi
		for _, o := range others {
			if q, ok := predicted(o.figures, f.Metric, f.Of); ok {
				if lo = min(lo, q.Lo); !o.less || f.Metric == "link_rate" {
					hi = max(hi, q.Hi)
				}
			}
		}
		if most < lo-by || least > hi+by {
			return true
		}
	}
	return false
}
