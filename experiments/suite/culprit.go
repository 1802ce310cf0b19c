package suite

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// Culprit is a part of a testbed that would explain which jobs became slower and which did
// not.
type Culprit struct {
	Part string `json:"part"` // "link h1-tor1", "worker on h1", "switch tor1"
	Kind string `json:"kind"` // "link", "worker" or "switch"
	// Inventory is the one that has the part, as its experiment named it.
	Inventory string `json:"inventory"`
	// Jobs are how many it limits, and Shift by how much these changed, a part of what they
	// had.
	Jobs  int     `json:"jobs"`
	Shift float64 `json:"shift"`
	// Weight is how well it explains all jobs, the others included: its likelihood over that of
	// all parts together, if figures were normal and one part alone had changed. 0 to 1.
	Weight float64 `json:"weight"`
}

// String is a culprit in a line.
func (c Culprit) String() string {
	what := "1 job that it limits is"
	if c.Jobs > 1 {
		what = fmt.Sprintf("%d jobs that it limits are", c.Jobs)
	}
	return fmt.Sprintf("%s of %s, %s of the weight: %s %s slower", c.Part, strings.TrimSuffix(filepath.Base(c.Inventory), ".toml"), human.Percent(c.Weight), what, human.Percent(math.Abs(c.Shift)))
}

// unit is what figures of an experiment are about.
type unit struct {
	item, point string
	phase       int
	of          string
}

func (u unit) String() string { return fmt.Sprintf("%s|%s|%d|%s", u.item, u.point, u.phase, u.of) }

// state is how a figure of a unit is, against the nights before.
type state struct {
	unit
	metric string
	slower float64 // a part; less than 0: faster
	noise  float64 // of that, a standard deviation
}

// speeds are metrics of a job that follow how fast it is, the most direct one first. Others
// do in their own ways: a round trip is shorter if a worker is slower.
var speeds = []string{"goodput", "busbw", "algbw", "throughput", "step_rate", "step_time", "iteration_time", "jct", "wire_rate"}

// evidence is what a run says: how much slower each of its jobs is, and what limits it.
type evidence struct {
	inventory results.File // names mean nothing without it
	jobs      map[string]state
	limits    map[string][]string // of each job in a phase: parts that it is limited by
	study     map[string][]string // of points that have no such jobs, by name: their swept values
}

// full is the part of a link's rate from which on a job that crosses it is limited by it.
const full = 0.93

// evidenceOf reads what limits the jobs of a run, and of studies, whose jobs come and go, the points.
func evidenceOf(ctx context.Context, root, run string, it Item, seen []state) evidence {
	e := evidence{jobs: map[string]state{}, limits: map[string][]string{}, study: map[string][]string{}}
	rec, err := results.ReadRecord(filepath.Join(root, run))
	if err != nil {
		return e
	}
	e.inventory = rec.Inventory
	inv, err := inventory.Parse(rec.Inventory.Path, []byte(rec.Inventory.Text))
	if err != nil {
		return e
	}
	spec, err := kinds.Parse(rec.Experiment.Path, []byte(rec.Experiment.Text), inv, rec.Overrides...)
	if err != nil {
		return e
	}
	for _, p := range spec.Points() {
		at := slices.IndexFunc(rec.Points, func(q results.Point) bool { return q.Index == p.Index && q.Error == "" })
		if at < 0 {
			continue
		}
		label := rec.Points[at].Label()
		if len(p.Spec.Jobs) == 0 {
			e.study[label] = rec.Points[at].Labels
			continue
		}
		plan, err := p.Spec.Place(ctx)
		if err != nil {
			continue
		}
		for i, ph := range rec.Points[at].Phases {
			loaded := fullLinks(ph, rec.Topology)
			for _, j := range plan.Jobs {
				if !slices.Contains(ph.Jobs, j.Name) || j.Local() {
					continue
				}
				of := unit{it.Name, label, i, j.Name}
				if st, ok := speed(seen, of); ok {
					e.jobs[of.String()] = st
					e.limits[of.String()] = parts(inv.Topology(), j, loaded)
				}
			}
		}
	}
	return e
}

// speed is how a job is, by the most direct of the figures that there are of it.
func speed(seen []state, of unit) (state, bool) {
	for _, metric := range speeds {
		if i := slices.IndexFunc(seen, func(s state) bool { return s.unit == of && s.metric == metric }); i >= 0 {
			return seen[i], true
		}
	}
	return state{}, false
}

// fullLinks are the directed links that are predicted to have little left in a phase.
func fullLinks(ph results.Phase, t results.Topology) map[string]bool {
	rates := map[string]float64{}
	for _, l := range t.Links {
		rates[l.Name] = l.Rate
	}
	out := map[string]bool{}
	for _, f := range ph.Figures {
		if f.Kind == results.Predicted && f.Predictor == placement.Occupancy && f.Metric == "link_rate" && f.Value >= full*rates[f.Of] && rates[f.Of] > 0 {
			out[f.Of] = true
		}
	}
	return out
}

// parts are those of a testbed that limit a job: full links on its way, the switches that they
// leave, and its workers.
func parts(t *inventory.Topology, j placement.JobPlan, loaded map[string]bool) []string {
	out := map[string]bool{}
	way := func(from, to string) {
		path, err := t.Path(from, to)
		if err != nil || from == to {
			return
		}
		for _, i := range path {
			l := t.Links[i]
			if !loaded[l.Name] {
				continue
			}
			a, b := l.From, l.To
			if !t.IsHost(a) && (t.IsHost(b) || a > b) {
				a, b = b, a
			}
			out["link "+a+"-"+b] = true
			for _, end := range []string{l.From, l.To} {
				if !t.IsHost(end) {
					out["switch "+end] = true
				}
			}
		}
	}
	for i, w := range j.Workers {
		out["worker on "+w.Host] = true
		to := j.PS
		if to == "" && len(j.Tree) > 0 {
			to = j.Tree[len(j.Tree)-1].Switch
		}
		if j.Collective == placement.Ring {
			to = j.Workers[(i+1)%len(j.Workers)].Host
		}
		if to != "" {
			way(w.Host, to)
			way(to, w.Host)
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// sure is the least noise that a job's speed is taken to have: nothing is sure to less.
const sure = 0.003

// culprits weighs all parts that limit a job. One that alone became slower by some part would
// make all jobs that it limits slower by that, and leave the others as they were; the nearer
// to that all jobs are, in units of their noise, the likelier (Gaussian likelihood, at the
// most likely change). The likeliest come first, five at most.
func culprits(all []evidence) []Culprit {
	type key struct{ inventory, part string }
	type sums struct {
		path                 string
		jobs, weight, slower float64
	}
	of := map[key]*sums{}
	for _, e := range all {
		for u, j := range e.jobs {
			w := 1 / (j.noise*j.noise + sure*sure)
			for _, p := range e.limits[u] {
				s := of[key{e.inventory.SHA256, p}]
				if s == nil {
					s = &sums{path: e.inventory.Path}
					of[key{e.inventory.SHA256, p}] = s
				}
				s.jobs++
				s.weight += w
				s.slower += w * j.slower
			}
		}
	}
	// With a change d of a part, the squares of its jobs lose what they have in common: that is
	// all in which parts differ, for the rest is the same for all of them.
	out := []Culprit{}
	best := 0.0
	for k, s := range of {
		if d := s.slower / s.weight; d > 0 {
			gain := s.weight * d * d / 2
			best = max(best, gain)
			out = append(out, Culprit{Part: k.part, Kind: strings.Fields(k.part)[0], Inventory: s.path, Jobs: int(s.jobs), Shift: -d, Weight: gain})
		}
	}
	total := 0.0
	for i := range out {
		out[i].Weight = math.Exp(out[i].Weight - best)
		total += out[i].Weight
	}
	for i := range out {
		out[i].Weight /= total
	}
	slices.SortFunc(out, func(a, b Culprit) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Jobs, b.Jobs), cmp.Compare(a.Part, b.Part), cmp.Compare(a.Inventory, b.Inventory))
	})
	out = slices.DeleteFunc(out, func(c Culprit) bool { return c.Weight < 0.005 })
	return out[:min(len(out), 5)]
}
