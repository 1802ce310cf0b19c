package ranks

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/training"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/agent"
)

const smallTraining = `
version = 1

[fat_tree]
racks = 1
hosts = 2
gpus = 3
rate = "10Gbit/s"
pat = "0bit/s"

[training]
model = "vgg16"
workers = 4
background = [1, 1]
batch = 16
epochs = 1
samples = 6400
iterations = 3
`

func parseTraining(t *testing.T, sets ...string) *spec.Spec {
	t.Helper()
	s, err := spec.Kinds{Kind}.Parse("training.toml", []byte(smallTraining), nil, sets...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Four workers, two on each of two machines: what is halved first stays within a machine,
// and then both workers send a quarter across, twice.
func TestTrainingByHand(t *testing.T) {
	s := parseTraining(t)
	rep, err := s.Study().(*Training).Simulate(t.Context(), s, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range rep.Figures {
		got[f.Metric] = f.Value
	}
	const (
		bits    = 8 * 553430176.0
		compute = 0.232550                               // of VGG-16 at batch 16
		across  = bits / (1448. / (1514 + 66./2) * 10e9) // both ways, with an acknowledgement for two segments
		latency = 2 * 3 * 10e-6                          // of both cables: that one is there, the last bit, and that it came
	)
	for metric, want := range map[string]float64{
		"iteration_comm_time": across + latency,
		"iteration_time":      compute + across + latency,
		"comm_time":           100 * (across + latency),
		"throughput":          64 / (compute + across + latency),
		"machine_hours":       2 * 100 * (compute + across + latency) / 3600,
		"machine_traffic":     553430176 * 8. / 4, // two of four phases, four transfers each
		"used_machines":       2, "idle_machines": 0, "job_machines": 2, "idle_taken": 0,
	} {
		if math.Abs(got[metric]/want-1) > 1e-6 && got[metric] != want {
			t.Errorf("%s is %v, want %v", metric, got[metric], want)
		}
	}
	var cells []string
	for _, m := range rep.Machines {
		for _, c := range m.GPUs {
			b, _ := c.MarshalText()
			cells = append(cells, string(b))
		}
	}
	if want := []string{"background", "job/0", "job/1", "background", "job/2", "job/3"}; !slices.Equal(cells, want) {
		t.Errorf("GPUs %q, want %q", cells, want)
	}
	if c := rep.Curves[0]; len(c.X) != 4 || c.Y[3] != 3 || math.Abs(c.X[3]-3*(compute+across+latency)) > 1e-9 {
		t.Errorf("progress %v, %v", c.X, c.Y)
	}
}

// One worker reduces with nobody.
func TestTrainingAlone(t *testing.T) {
	s := parseTraining(t, "training.workers=1")
	rep, err := s.Study().(*Training).Simulate(t.Context(), s, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range rep.Figures {
		if (f.Metric == "comm_time" || f.Metric == "machine_traffic") && f.Value != 0 {
			t.Errorf("%s is %v of one worker", f.Metric, f.Value)
		}
	}
}

// What cannot be placed says why: what is free where, or what does not pass where.
func TestTrainingInfeasible(t *testing.T) {
	for name, tt := range map[string]struct {
		sets []string
		want string
	}{
		"too many workers": {[]string{"training.workers=5"}, "asks for 5 GPUs, 4 are free on 2 hosts"},
		"nothing passes": {[]string{"placement.policy=titan", "training.phase=1ms"},
			"sends more than passes: phase 1 of halving-doubling-near, from host r1h1 to host r1h2, has 277 MB, and 1.25 MB pass in 1ms (training.phase)"},
	} {
		t.Run(name, func(t *testing.T) {
			s := parseTraining(t, tt.sets...)
			var infeasible *placement.InfeasibleError
			for _, err := range []error{s.Study().(*Training).Ready(study.Planned{Point: spec.Point{Spec: s}}), func() error { _, err := s.Study().(*Training).Simulate(t.Context(), s, 0); return err }()} {
				if !errors.As(err, &infeasible) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got  %v\nwant …%s", err, tt.want)
				}
			}
		})
	}
	s := parseTraining(t, "training.phase=1ms") // others do not mind
	if err := s.Study().(*Training).Ready(study.Planned{Point: spec.Point{Spec: s}}); err != nil {
		t.Error(err)
	}
}

// Where others are is drawn from the seed, and equal for all policies.
func TestTrainingBackground(t *testing.T) {
	text := strings.Replace(smallTraining, "background = [1, 1]\n", "max_background = 2\n", 1)
	s, err := spec.Kinds{Kind}.Parse("training.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for seed := range uint64(50) {
		b := s.Study().(*Training).background(s, seed)
		if !slices.Equal(b, s.Study().(*Training).background(s, seed)) || slices.Min(b) < 0 || slices.Max(b) > 2 {
			t.Fatalf("seed %d: %v", seed, b)
		}
		seen[fmt.Sprint(b)] = true
	}
	if len(seen) != 9 {
		t.Errorf("%d of 9 backgrounds were drawn", len(seen))
	}
}

// The machines of Titan's testbed are as its paper has them: of two idle ones Titan takes
// none for 8 workers and one for 12, ElasticFlow both.
func TestTitanTestbed(t *testing.T) {
	s, err := spec.Kinds{Kind}.Load("../../titan-testbed.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{ // idle machines taken
		"4 titan": 0, "6 titan": 0, "8 titan": 0, "10 titan": 0, "12 titan": 1,
		"4 elasticflow": 1, "6 elasticflow": 1, "8 elasticflow": 2, "10 elasticflow": 2, "12 elasticflow": 2,
		"4 hived": 0, "6 hived": 0, "8 hived": 0, "10 hived": 0, "12 hived": 1,
	}
	for _, p := range s.Points() {
		o, err := p.Spec.Study().(*Training).occupy(t.Context(), p.Spec, 1)
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("%d %s", p.Spec.Study().(*Training).Workers, p.Spec.Placement.Policy)
		if n, ok := want[key]; ok && o.taken != n || o.used != 6+o.taken {
			t.Errorf("%v: %d idle machines taken, want %d; %d in use", p.Labels, o.taken, n, o.used)
		}
	}
}

// What pairs of workers took is what calibration finds, whatever the network is.
func TestTrainingCalibration(t *testing.T) {
	s := parseTraining(t)
	inv := s.Inventory()
	declared := s.Study().(*Training).declared(inv)
	is := collectives.Network{Rate: func(int) float64 { return 7e9 }, Worker: 3e9, Latency: 1e-4, LocalLatency: 2e-5}
	bytes, jobs := [2]int64{1 << 20, 8 << 20}, pairs(inv)
	if len(jobs) != 2 {
		t.Fatalf("pairs %+v", jobs)
	}
	var took [2][]float64
	for k := range bytes {
		for _, j := range jobs {
			at := []int{0, 1}
			if j.On[0] == j.On[1] {
				at[1] = 0
			}
			op, err := collectives.New(j.Operation, 2)
			if err != nil {
				t.Fatal(err)
			}
			took[k] = append(took[k], op.Seconds(at, 8*float64(bytes[k]), is))
		}
	}
	net, found, err := fitted(declared, inv, jobs, bytes, took)
	if err != nil || len(found) != 4 {
		t.Fatal(found, err)
	}
	for what, v := range map[string][2]float64{
		"rate": {net.Rate(1), 7e9}, "local rate": {net.Worker, 3e9}, "latency": {net.Latency, 1e-4}, "local latency": {net.LocalLatency, 2e-5},
	} {
		if math.Abs(v[0]/v[1]-1) > 1e-6 {
			t.Errorf("%s is %v, want %v", what, v[0], v[1])
		}
	}
	took[1][0] = took[0][0]
	if _, _, err := fitted(declared, inv, jobs, bytes, took); err == nil {
		t.Error("a large vector took as long as a small one, and nobody said so")
	}
	if all := pairs(&inventory.Inventory{}); len(all) != 0 {
		t.Errorf("pairs of nobody: %+v", all)
	}
}

// Figures of ranks count what all of them have done.
func TestTrainingMeasured(t *testing.T) {
	j := &training.Reduced{Reduction: training.Reduction{On: []string{"h1", "h2"}}}
	s := parseTraining(t)
	if got, rows := s.Study().(*Training).measured(j); len(got.ends) != 0 || len(rows) != 0 {
		t.Errorf("of ranks that said nothing: %+v, %v", got, rows)
	}
	// A rank may have kept the times of fewer iterations than it did, and the run took as long as all of them.
	for range 2 {
		j.Times = append(j.Times, slices.Repeat([]agent.Iteration{{Compute: .5, Comm: .5}}, 3))
		j.Ranks = append(j.Ranks, agent.Stats{Iterations: 5, Reducing: &agent.Reducing{JCT: 4 + float64(len(j.Ranks))}})
	}
	run, _ := s.Study().(*Training).measured(j)
	figures := s.Study().(*Training).figures(results.Measured, &occupied{}, run, 0, 1)
	for metric, want := range map[string]float64{"run_time": 5, "iteration_time": 1, "iteration_comm_time": .5} {
		if i := slices.IndexFunc(figures, func(f results.Figure) bool { return f.Metric == metric }); i < 0 || figures[i].Value != want {
			t.Errorf("%s: want %v: %+v", metric, want, figures)
		}
	}
	if f := results.Mean([]float64{1, 2, 3}); f.Value != 2 || !(f.Lo < 2) || f.Hi-2 != 2-f.Lo || f.N != 3 {
		t.Errorf("%+v", f)
	}
	if f := results.Mean([]float64{4}); f != (results.Figure{Value: 4, Lo: 4, Hi: 4, N: 1}) {
		t.Errorf("%+v", f)
	}
}

// What transfers get was calibrated with queues of one point, and is not taken for points with others.
func TestTrainingCalibratedFor(t *testing.T) {
	seen := map[string]string{}
	for _, set := range []string{"switch.queue=fair", "switch.queue=fifo", "switch.buffer=16KiB", "switch.ecn=16KiB", "fat_tree.rate=20Gbit/s"} {
		s := parseTraining(t, set)
		key := s.Study().(*Training).calibratedFor(s, [2]int64{1, 8})
		if other, ok := seen[key]; ok {
			t.Errorf("%s is calibrated as %s is: %s", set, other, key)
		}
		seen[key] = set
	}
}

// A repeat that draws others where no room is left for the job is found before the first one runs.
func TestTrainingReady(t *testing.T) {
	text := strings.Replace(smallTraining, "background = [1, 1]\n", "max_background = 2\n", 1)
	s, err := spec.Kinds{Kind}.Parse("training.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	o := s.Study().(*Training)
	fits := func(seed uint64) bool {
		_, err := o.occupy(t.Context(), s, seed)
		return err == nil
	}
	for !fits(s.Measure.Seed) || fits(s.Measure.Seed+1) {
		s.Measure.Seed++
	}
	for times, want := range map[int]string{1: "", 2: "repeat 2: ", 3: "repeat 2: "} {
		err := o.Ready(study.Planned{Point: spec.Point{Spec: s}, Times: times})
		var infeasible *placement.InfeasibleError
		if (err == nil) != (want == "") || err != nil && (!strings.HasPrefix(err.Error(), want) || !errors.As(err, &infeasible)) {
			t.Errorf("%d repeats: %v, want %s", times, err, want)
		}
	}
}

// More ranks than a testbed tells apart are only simulated.
func TestTrainingSupports(t *testing.T) {
	for driver, most := range map[string]int{"netns": 64, "lab": 64, "sim": 1000} {
		for workers, can := range map[int]bool{most: true, 65: driver == "sim"} {
			err := (&Training{Workers: workers}).Supports(driver)
			if (err == nil) != can || err != nil && !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%d workers on %s: %v", workers, driver, err)
			}
		}
	}
}
