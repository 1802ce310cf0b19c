package suite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/metric"
	"github.com/inabench/inabench/results/trend"
)

// Judged is how many figures of a night were held against their history.
type Judged struct {
	Figures  int `json:"figures"`
	Learning int `json:"learning"` // of them, with too few nights to say anything
	// Metrics are how many of the others there are of each metric.
	Metrics map[string]int `json:"metrics"`
	// Expected is how many of the others would be reported in a night without a change, at
	// most: as many as the suite's false_alarms allow.
	Expected float64 `json:"expected"`
	// Blind are figures whose noise hides a change of Relevant.
	Blind int `json:"blind"`
}

// Effect is what it means that a figure moved.
type Effect string

// Effects.
const (
	Worse   Effect = "worse"
	Better  Effect = "better"
	Another Effect = "changed" // neither direction is better
)

// Move is a figure that is another one than in the nights before.
type Move struct {
	Item       string        `json:"item"`
	Experiment string        `json:"experiment"`
	Setting    string        `json:"setting"` // its key
	Point      string        `json:"point,omitempty"`
	Phase      int           `json:"phase"`
	Metric     string        `json:"metric"`
	Of         string        `json:"of"`
	Unit       string        `json:"unit"`
	Kind       results.Kind  `json:"kind"`
	Effect     Effect        `json:"effect"`
	Verdict    trend.Verdict `json:"verdict"`
	// Since is the first run with the other figure.
	Since        string    `json:"since"`
	SinceStarted time.Time `json:"since_started"`
	New          bool      `json:"new"` // it was not known last night
	// Repeats would decide within a night that a change as small as the suite's relevant one
	// is there; 0: no number of them.
	Repeats int `json:"repeats,omitempty"`
	// Doubtful moves are of runs that were undecided: the machine was too busy to say.
	Doubtful bool `json:"doubtful,omitempty"`
	// Accepted is the reason of a baseline that was set after the change: it is known, and
	// meant to be.
	Accepted string `json:"accepted,omitempty"`
}

// subject is what moved: "goodput of A in quickstart, phase 2".
func (m Move) subject() string {
	s := m.Metric
	if m.Of != "" {
		s += " of " + m.Of
	}
	s += " in " + m.Item
	if m.Point != "" {
		s += " at " + m.Point
	}
	if m.Phase > 0 {
		s += fmt.Sprintf(", phase %d", m.Phase+1)
	}
	return s
}

// String is a move in a line.
func (m Move) String() string {
	how := "higher"
	if m.Verdict.State == trend.Lower {
		how = "lower"
	}
	size := m.Verdict.Shift
	if size < 0 {
		size = -size
	}
	s := fmt.Sprintf("%s: %s, %s before: %s by %s", m.subject(), human.Quantity(m.Verdict.Tonight, m.Unit), human.Quantity(m.Verdict.Baseline, m.Unit), how, human.Percent(size))
	if !m.New {
		s += " since " + m.SinceStarted.Local().Format(time.DateOnly)
	}
	if m.Accepted != "" {
		s += ", accepted: " + m.Accepted
	}
	if m.Doubtful {
		s += "; but the run is undecided"
	}
	return s
}

// counts says whether a move makes a night fail.
func (m Move) counts() bool { return m.Effect == Worse && m.Accepted == "" && !m.Doubtful }

// effect is what it means that a metric in a unit is lower or higher.
func effect(name, unit string, s trend.State) Effect {
	better := metric.Of(name, unit).Better
	switch {
	case better == 0:
		return Another
	case better > 0 == (s == trend.Lower):
		return Worse
	}
	return Better
}

// judge holds the figures of the night's runs against those of the nights before, each in
// its own setting. Other runs of tonight are none of these nights.
func (n *Night) judge(ctx context.Context, x *history.Index, root string, o Judge) error {
	n.Judged, n.Moves, n.Culprits, n.Spreads = Judged{Metrics: map[string]int{}}, []Move{}, []Culprit{}, nil
	runs, err := x.Runs(ctx)
	if err != nil {
		return err
	}
	baselines, err := history.ReadBaselines(root)
	if err != nil {
		return err
	}
	var evidence []evidence
	worse := false
	for i := range n.Items {
		d := &n.Items[i]
		a := d.last()
		if a == nil || a.Run == "" {
			continue
		}
		at := slices.IndexFunc(runs, func(r history.Run) bool { return r.Dir == a.Run })
		if at < 0 || runs[at].Setting == "" {
			continue
		}
		run := runs[at]
		found, err := x.Series(ctx, history.Query{Experiment: run.Experiment, Setting: run.Setting})
		if err != nil {
			return err
		}
		accepted := func(s *history.Series, since, n int) string {
			for _, b := range baselines {
				// The run says in which setting; its key may be of an older inabench.
				at := slices.IndexFunc(s.Nights[since:], func(night history.Night) bool { return night.Run == b.Run })
				if at >= 0 && !worsened(s, since, since+at, n, o) {
					return b.Reason + " (baseline " + b.Run + ")"
				}
			}
			return ""
		}
		var seen []state
		moved := len(n.Moves)
		for k := range found {
			s := &found[k]
			tonight := slices.IndexFunc(s.Nights, func(night history.Night) bool { return night.Run == a.Run })
			if s.Experiment != run.Experiment || s.Setting != run.Setting || !o.wants(s.Metric) || tonight < 0 {
				continue // nothing of it was measured tonight
			}
			before := slices.DeleteFunc(slices.Clone(s.Nights[:tonight]), func(night history.Night) bool { return !night.Started.Before(n.Started) })
			s.Nights = append(before, s.Nights[tonight])
			last := len(before)
			v, err := trend.Judge(s.Trend(), o.options())
			if err != nil {
				return err
			}
			n.Judged.Figures++
			of := unit{d.Name, s.Point, s.Phase, s.Of}
			switch v.State {
			case trend.Learning:
				n.Judged.Learning++
				continue
			case trend.Same:
				n.Judged.Metrics[s.Metric]++
				n.Judged.Expected += float64(o.FalseAlarms)
				if v.Visible > 2*float64(o.Relevant) {
					n.Judged.Blind++
				}
				seen = append(seen, stateOf(of, s.Metric, s.Unit, v, 1))
				continue
			}
			n.Judged.Metrics[s.Metric]++
			n.Judged.Expected += float64(o.FalseAlarms)
			m := Move{
				Item: d.Name, Experiment: s.Experiment, Setting: s.Setting, Point: s.Point, Phase: s.Phase, Metric: s.Metric, Of: s.Of, Unit: s.Unit, Kind: s.Kind,
				Effect: effect(s.Metric, s.Unit, v.State), Verdict: v, Since: s.Nights[v.Since].Run, SinceStarted: s.Nights[v.Since].Started,
				New: v.Since == last || last > 0 && isNew(s, o), Repeats: v.Noise.ForChange(float64(o.Relevant)), Accepted: accepted(s, v.Since, v.Nights), Doubtful: d.Status == Undecided,
			}
			n.Moves = append(n.Moves, m)
			if m.Accepted == "" {
				seen = append(seen, stateOf(of, s.Metric, s.Unit, v, last+1-v.Since))
				worse = worse || m.Effect == Worse
			}
		}
		if len(seen) > 0 {
			e := evidenceOf(ctx, root, a.Run, d.Item, seen)
			evidence = append(evidence, e)
			n.Spreads = append(n.Spreads, spreads(d.Name, e.study, n.Moves[moved:])...)
		}
	}
	slices.SortStableFunc(n.Moves, func(a, b Move) int { return order(a) - order(b) })
	if worse {
		n.Culprits = culprits(evidence)
	}
	return nil
}

// worsened says whether the newest night is worse than an earlier one that was accepted: what was accepted is the change
// until then. The n nights before since, in which nothing had changed, say what nights differ by.
func worsened(s *history.Series, since, accepted, n int, o Judge) bool {
	nights := s.Trend()
	last := len(nights) - 1
	if accepted == last {
		return false
	}
	pair := trend.Pair{Before: nights[accepted], After: nights[last], Earlier: nights[max(0, since-n):since], Exact: s.Kind == results.Simulated || s.Metric == "sum_errors"}
	v, err := pair.Judge(o.options())
	return err == nil && (v.State == trend.Lower || v.State == trend.Higher) && effect(s.Metric, s.Unit, v.State) == Worse
}

// stateOf is what a verdict on so many nights says of how fast its subject is.
func stateOf(of unit, metric, in string, v trend.Verdict, nights int) state {
	s := state{unit: of, metric: metric, slower: -v.Shift, noise: v.Noise.Nights / math.Sqrt(float64(nights))}
	if effect(metric, in, trend.Higher) == Worse {
		s.slower = 1 - 1/(1+v.Shift)
	}
	return s
}

func order(m Move) int {
	switch {
	case m.Accepted != "":
		return 3
	case m.counts():
		return -1
	case m.Effect == Worse:
		return 0
	case m.Effect == Another:
		return 1
	}
	return 2
}

// isNew says whether last night did not know yet that a series is another one.
func isNew(s *history.Series, o Judge) bool {
	nights := s.Trend()
	v, err := trend.Judge(nights[:len(nights)-1], o.options())
	return err == nil && (v.State == trend.Same || v.State == trend.Learning)
}
