package suite

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// Spread is where the figures of a study became worse. A study simulates or measures a whole
// cluster, point by point of its sweep: no link or worker of it would explain anything, but a
// policy or a kind of jobs may.
type Spread struct {
	Item string `json:"item"`
	// Where has the swept values that set the points apart, two at most, as their labels:
	// "placement.policy=netpack". Empty: nothing does, or there is one point.
	Where   []string       `json:"where,omitempty"`
	Points  int            `json:"points"`  // that have these values
	Worse   int            `json:"worse"`   // of them
	Others  int            `json:"others"`  // points that have not
	Beyond  int            `json:"beyond"`  // of the others, are worse too
	Metrics []SpreadMetric `json:"metrics"` // of the points that are worse: those of most points first
}

// SpreadMetric is one of the metrics that became worse.
type SpreadMetric struct {
	Metric string `json:"metric"`
	Points int    `json:"points"` // in how many
	// Shift is the median of its changes, a part of what it was, and [Lo, Hi] their range.
	Shift float64 `json:"shift"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
}

// String is a spread in a line.
func (s Spread) String() string {
	what := s.Item
	if len(s.Where) > 0 {
		what += " with " + strings.Join(s.Where, " and ")
	}
	var metrics []string
	for _, m := range s.Metrics[:min(len(s.Metrics), 3)] {
		way := "higher"
		if m.Shift < 0 {
			way, m.Lo, m.Hi = "lower", -m.Hi, -m.Lo
		}
		size := human.Percent(max(m.Shift, -m.Shift))
		if m.Lo < m.Hi {
			size += fmt.Sprintf(" (%s to %s)", human.Percent(m.Lo), human.Percent(m.Hi))
		}
		text := fmt.Sprintf("%s %s by %s", m.Metric, way, size)
		if m.Points < s.Worse {
			text += fmt.Sprintf(" in %d of them", m.Points)
		}
		metrics = append(metrics, text)
	}
	if more := len(s.Metrics) - 3; more > 0 {
		metrics = append(metrics, fmt.Sprintf("%d more metrics", more))
	}
	at := fmt.Sprintf("%d of %d points", s.Worse, s.Points)
	if s.Worse == s.Points {
		at = "the only point"
		if s.Points > 1 {
			at = fmt.Sprintf("all %d points", s.Points)
		}
	}
	if s.Others > 0 {
		at += fmt.Sprintf(", and %d of the %d others", s.Beyond, s.Others)
		if s.Beyond == 0 {
			at = strings.TrimSuffix(at, fmt.Sprintf("0 of the %d others", s.Others)) + "none of the others"
		}
	}
	return fmt.Sprintf("%s, %s: %s", what, at, strings.Join(metrics, ", "))
}

// maxSpreads is how many groups of points are looked for in one study.
const maxSpreads = 3

// spreads says where a study became worse. labels are those of every point; moves are what
// became worse. Points that are worse are put down to the one or two swept values that set them
// apart best: by F1, the harmonic mean of how many of the points with these values are worse, and how
// many of those that are worse have them. What is left is put down to others, in turn.
func spreads(item string, labels map[string][]string, moves []Move) []Spread {
	worse := map[string]bool{} // and not put down to anything yet
	for _, m := range moves {
		if _, ok := labels[m.Point]; ok && m.Item == item && m.counts() {
			worse[m.Point] = true
		}
	}
	var out []Spread
	all := maps.Clone(worse)
	for len(worse) > 0 && len(out) < maxSpreads {
		where := apart(labels, worse)
		s := Spread{Item: item, Where: where}
		at := map[string]bool{}
		for point, has := range labels {
			if !contains(has, where) {
				s.Others++
				continue
			}
			s.Points++
			if all[point] {
				s.Worse++
				at[point] = true
				delete(worse, point)
			}
		}
		s.Beyond = len(all) - s.Worse
		s.Metrics = metricsOf(moves, item, at)
		out = append(out, s)
	}
	return out
}

// apart are the values that set the points that are worse apart from the others best; of equal
// ones the fewest.
func apart(labels map[string][]string, worse map[string]bool) []string {
	var all []string
	for point := range worse {
		for _, l := range labels[point] {
			if !slices.Contains(all, l) {
				all = append(all, l)
			}
		}
	}
	slices.Sort(all)
	candidates := [][]string{nil}
	for _, l := range all {
		candidates = append(candidates, []string{l})
	}
	for i, a := range all {
		for _, b := range all[i+1:] {
			candidates = append(candidates, []string{a, b})
		}
	}
	var best []string
	top := 0.0
	for _, where := range candidates {
		hit, have := 0, 0
		for point, has := range labels {
			if contains(has, where) {
				have++
				if worse[point] {
					hit++
				}
			}
		}
		if f1 := 2 * float64(hit) / float64(have+len(worse)); f1 > top+1e-9 {
			best, top = where, f1
		}
	}
	return best
}

func contains(has, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(w string) bool { return !slices.Contains(has, w) })
}

// metricsOf are what became worse at points of a study.
func metricsOf(moves []Move, item string, at map[string]bool) []SpreadMetric {
	shifts, points := map[string][]float64{}, map[string]map[string]bool{}
	for _, m := range moves {
		if m.Item == item && at[m.Point] && m.counts() {
			if points[m.Metric] == nil {
				points[m.Metric] = map[string]bool{}
			}
			points[m.Metric][m.Point] = true
			shifts[m.Metric] = append(shifts[m.Metric], m.Verdict.Shift)
		}
	}
	var out []SpreadMetric
	for metric, s := range shifts {
		out = append(out, SpreadMetric{metric, len(points[metric]), results.Median(s), slices.Min(s), slices.Max(s)})
	}
	slices.SortFunc(out, func(a, b SpreadMetric) int {
		return cmp.Or(cmp.Compare(b.Points, a.Points), cmp.Compare(max(b.Shift, -b.Shift), max(a.Shift, -a.Shift)), cmp.Compare(a.Metric, b.Metric))
	})
	return out
}
