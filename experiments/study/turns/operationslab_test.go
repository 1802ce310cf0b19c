package turns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/training"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/mina"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/collective"
	"github.com/inabench/inabench/testbed/sim/ops"
)

// TestAgain predicts two jobs that take turns with a switch at a cost that was calibrated once,
// at which one of them happens to get the switch late and all its turns shift: most costs that
// are as likely give a score of 0.69 to 0.71, that one 0.648. What was measured then was 0.725.
func TestAgain(t *testing.T) {
	const file = "../../mina-pairs.toml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	quick, err := spec.Quick(file, text)
	if err != nil {
		t.Fatal(err)
	}
	then := []string{"operations.gpu_speed=0.0375", "operations.bandwidth=2.5Gbit/s", "clos.rate=4Gbit/s"} // as it was measured
	pairs, err := spec.Kinds{Kind}.Load(file, append(quick, then...)...)
	if err != nil {
		t.Fatal(err)
	}
	var s *spec.Spec
	for _, p := range pairs.Points() {
		if p.Spec.Study().(*Operations).Sharing == "mina" {
			s = p.Spec
		}
	}
	o := s.Study().(*Operations)
	jobs, err := o.jobs(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	shrink(jobs, results.Scale{Mode: s.Emulation.Scale, Factor: s.Emulation.Factor})
	want := tree.Cost{Latency: 0.010312253430391327, Bandwidth: 17002224.078331985 / 8, Ratio: 1.3937244274955833}
	line := func(latency, bandwidth float64) (l collective.Line) {
		for _, op := range probes(jobs).Ops {
			for _, off := range []float64{-2e-3, -1e-3, 0, 1e-3, 2e-3} { // s, around the line
				l.Add(op.Bytes, time.Duration((latency+float64(op.Bytes)/bandwidth+off)*1e9))
			}
		}
		return l
	}
	ring, ina := line(want.Latency, want.Bandwidth), line(.0066, want.Bandwidth*want.Ratio)
	cost, _, err := fit(ring, ina)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(cost.Latency-want.Latency) > 1e-6 || math.Abs(cost.Bandwidth/want.Bandwidth-1) > 1e-6 || math.Abs(cost.Ratio/want.Ratio-1) > 1e-6 {
		t.Fatalf("fit %+v, want %+v", cost, want)
	}
	score := func(c calibrated) results.Figure {
		all, err := o.again(context.Background(), s, 1, c, jobs, make([]training.Outcome, len(jobs)))
		if err != nil {
			t.Fatal(err)
		}
		figures := o.predicted(jobs, all)
		return figures[slices.IndexFunc(figures, func(f results.Figure) bool { return f.Metric == "ina_score" })]
	}
	if got := score(calibrated{Cost: want}); math.Abs(got.Value-.648) > .001 || got.Lo != got.Value || got.Hi != got.Value {
		t.Errorf("score %.4f of %.4f to %.4f at that cost alone, want 0.648: this is not the case that the test is about", got.Value, got.Lo, got.Hi)
	}
	for seed := range uint64(20) {
		c := calibrated{Cost: want, near: near(ring, ina, seed)}
		if len(c.near) != simulations-1 {
			t.Errorf("seed %d: %d costs beside it, want %d", seed, len(c.near), simulations-1)
		}
		// And that it may be that of the brink is said.
		got := score(c)
		if got.Value < .68 || got.Value > .72 || got.Lo > .66 || got.Hi < got.Value {
			t.Errorf("seed %d: score %.3f of %.3f to %.3f at costs near it, want 0.70 of at most 0.66", seed, got.Value, got.Lo, got.Hi)
		}
	}
}

// What an all-reduce costs was calibrated with packets and queues of one point, and is not taken for points with others.
func TestCalibratedFor(t *testing.T) {
	key := func(sets ...string) string {
		pairs, err := spec.Kinds{Kind}.Load("../../mina-pairs.toml", sets...)
		if err != nil {
			t.Fatal(err)
		}
		s := pairs.Points()[0].Spec
		jobs, err := s.Study().(*Operations).jobs(s, 1)
		if err != nil {
			t.Fatal(err)
		}
		return calibratedFor(s, 4, probes(jobs))
	}
	seen := map[string]string{}
	for _, set := range []string{"switch.lanes=240", "switch.lanes=60", "switch.queue=fifo", "switch.buffer=16KiB", "switch.ecn=16KiB", "clos.delay=1ms"} {
		k := key(set)
		if other, ok := seen[k]; ok {
			t.Errorf("%s is calibrated as %s is: %s", set, other, k)
		}
		seen[k] = set
	}
	if seen[key()] != "switch.lanes=240" {
		t.Errorf("packets of 240 lanes are not what is calibrated: %v", seen)
	}
}

// TestMeasuredByHosts: a job counts in what is measured as it does in what is predicted.
func TestMeasuredByHosts(t *testing.T) {
	var jobs []named
	var out []training.Outcome
	sim := &ops.Result{}
	for i, hosts := range []int{2, 6} {
		j := ops.Job{Hosts: hosts, Steps: 5}
		jobs = append(jobs, named{Name: strconv.Itoa(i + 1), Job: j})
		jct := float64(10 * (i + 1))
		sim.Jobs = append(sim.Jobs, ops.Outcome{Hosts: hosts, End: jct, Without: jct, With: jct})
		out = append(out, training.Outcome{
			Job: training.Job{Name: strconv.Itoa(i + 1), ID: uint16(i + 1), Hosts: hosts}, End: time.Second, JCT: jct,
			Ranks: []agent.Stats{{Training: &agent.Training{Steps: 5}}},
		})
	}
	for score, want := range map[string]float64{"jobs": 15, "hosts": 17.5} {
		o := &Operations{Score: score}
		for _, figures := range [][]results.Figure{o.measured(results.Measured, out, nil), o.predicted(jobs, []*ops.Result{sim})} {
			i := slices.IndexFunc(figures, func(f results.Figure) bool { return f.Metric == "avg_jct" })
			if i < 0 || math.Abs(figures[i].Value-want) > 1e-12 {
				t.Errorf("score by %s: %+v, want an avg_jct of %v", score, figures, want)
			}
		}
	}
}

// drawn are points of jobs that conflict, with settings.
func drawn(t *testing.T, sets ...string) (*spec.Spec, *Operations, []named) {
	t.Helper()
	const text = `
version = 1

[clos]
down = [4, 4, 4]
up = [1, 4, 4]
rate = "100Gbit/s"

[operations]
jobs = 40
histogram = "mina-1"
`
	s, err := spec.Kinds{Kind}.Parse("drawn.toml", []byte(text), nil, sets...)
	if err != nil {
		t.Fatal(err)
	}
	o := s.Study().(*Operations)
	jobs, err := o.jobs(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s, o, jobs
}

// TestSetup: what the controller of a testbed goes by is what the simulation goes by that predicts, whatever an experiment
// says of it.
func TestSetup(t *testing.T) {
	for _, set := range []string{
		"operations.alpha=2", "operations.alpha=0", "operations.weighted=true", "operations.groups=merged", "operations.candidates=2",
		"operations.score=hosts", "operations.placement=random", "operations.trees=first", "operations.sharing=greedy",
	} {
		s, o, jobs := drawn(t, set)
		cfg, err := o.config(s, 7)
		if err != nil {
			t.Fatal(err)
		}
		setup := o.setup(7, o.Sharing, cfg.Cost)
		var got mina.Config
		got.Options = setup.Options
		if err := got.Named(setup.Place, setup.Trees, setup.Sharing, *setup.Alpha, setup.Options.Seed); err != nil {
			t.Fatal(err)
		}
		if got.Options != cfg.Cluster.Options || got.Trees != cfg.Cluster.Trees || !reflect.DeepEqual(got.Place, cfg.Cluster.Place) {
			t.Errorf("%s: by %+v, simulated with %+v", set, got, cfg.Cluster)
		}
		if share := setup.Share; (share != nil) != (o.Sharing == "mina") || share != nil && (share.PerHost != cfg.PerHost || share.Cost != cfg.Cost) {
			t.Errorf("%s: shared by %+v, simulated with %+v", set, share, cfg)
		}
		come, err := o.training(jobs, cfg.Cost)
		if err != nil {
			t.Fatal(err)
		}
		for i, j := range jobs {
			p, err := cfg.Steps(j.Pattern, j.Hosts)
			if err != nil {
				t.Fatal(err)
			}
			gain := p.Step(false)/p.Step(true) - 1
			if cfg.PerHost {
				gain *= float64(j.Hosts)
			}
			if come[i].Gain != gain || come[i].Demand != p.Demand() {
				t.Errorf("%s: job %s gains %v and needs %v, want %v and %v", set, j.Name, come[i].Gain, come[i].Demand, gain, p.Demand())
			}
		}
	}
}

// TestAgainAsItWas: jobs are simulated with the numbers by which a testbed drew candidates for their trees, and by the rivals
// that its controller names.
func TestAgainAsItWas(t *testing.T) {
	for _, sets := range [][]string{{"operations.candidates=1"}, {"operations.trees=first-idle", "clos.exclusive=switch"}} {
		s, o, jobs := drawn(t, sets...)
		cfg, err := o.config(s, 1)
		if err != nil {
			t.Fatal(err)
		}
		simulated := func(cfg ops.Config, jobs []ops.Job) []ops.Outcome {
			res, err := ops.Run(t.Context(), cfg, jobs)
			if err != nil {
				t.Fatal(err)
			}
			for i := range res.Jobs {
				res.Jobs[i].ID = 0
			}
			return res.Jobs
		}
		other := simulated(cfg, unnamed(jobs))
		come, err := o.training(jobs, cfg.Cost)
		if err != nil {
			t.Fatal(err)
		}
		list := unnamed(jobs)
		for i := range list {
			list[i].ID = int(come[i].ID)
		}
		cfg.WholeGroup = false
		want := simulated(cfg, list)
		if reflect.DeepEqual(want, other) {
			t.Errorf("%v: it is all the same: this is not the case that the test is about", sets)
		}
		all, err := o.again(t.Context(), s, 1, calibrated{Cost: cfg.Cost}, jobs, make([]training.Outcome, len(jobs)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range all[0].Jobs {
			all[0].Jobs[i].ID = 0
		}
		if !reflect.DeepEqual(all[0].Jobs, want) {
			t.Errorf("%v: simulated otherwise", sets)
		}
	}
}

// TestReady: what no repeat, or no testbed, could have is refused before anything runs.
func TestReady(t *testing.T) {
	big := []string{"clos.down=[16, 16]", "clos.up=[1, 16]", "operations.histogram=mina-0", "operations.jobs=1", "operations.steps=[1, 1]"}
	hosts := func(s *spec.Spec, o *Operations, seed uint64) int {
		jobs, err := o.jobs(s, seed)
		if err != nil {
			t.Fatal(err)
		}
		return jobs[0].Hosts
	}
	s, o, _ := drawn(t, big...)
	seed := uint64(1)
	for hosts(s, o, seed) > placement.MaxWorkers || hosts(s, o, seed+1) <= placement.MaxWorkers {
		seed++
	}
	at := fmt.Sprintf("measure.seed=%d", seed)
	for _, c := range []struct {
		name, driver string
		times        int
		sets         []string
		want         string // in the error; empty: none
	}{
		{"one repeat", "netns", 1, append(big, at), ""},
		{"more of them", "netns", 2, append(big, at), "repeat 2: job 0 of 128 hosts: on a testbed it has 64 at most"},
		{"as many as the text says", "lab", 0, append(big, at, "measure.repeats=2"), "repeat 2: job 0 of 128 hosts"},
		{"simulated", "sim", 2, append(big, at), ""},
		{"too few hosts", "sim", 2, append(big, at, "clos.down=[8, 8]", "clos.up=[1, 8]"), "repeat 2: job 0 wants 128 hosts, and there are 64"},
		{"many jobs", "netns", 1, []string{"operations.jobs=4096"}, "4096 jobs: on a testbed there are 4095 at most"},
		{"many jobs, simulated", "sim", 1, []string{"operations.jobs=4096"}, ""},
	} {
		s, o, _ := drawn(t, c.sets...)
		err := o.Ready(study.Planned{Point: spec.Point{Spec: s}, Times: c.times, On: c.driver})
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) ||
			strings.Contains(c.want, "on a testbed") && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}
