package experiments

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/study/jobs"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/fidelity"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// asked is what predictors are told of a point before it runs, with what the built-in models
// say of each phase.
func asked(t *testing.T, p study.Planned) (*predictor.Request, [][]*placement.Prediction) {
	t.Helper()
	st := kinds.Of(p.Spec).(jobs.Study)
	plan, err := st.Plan(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var said [][]*placement.Prediction
	for _, ph := range plan.Phases {
		said = append(said, ph.Predictions)
	}
	req, err := st.Request(p)
	if err != nil {
		t.Fatal(err)
	}
	return req, said
}

// TestMaxMin holds the example of a predictor to the model of occupancy, where both are about
// the same: links that are shared, windows, rate limits, and memory that is too small for jobs that
// nothing else holds back. There they agree to a thousandth; but for pools that are short, where the
// example says what is so on average, and occupancy follows packets that come at random.
func TestMaxMin(t *testing.T) {
	python, err := exec.LookPath("python3")
	testbedtest.Require(t, "python3", err)
	mine := predictor.Predictor{Name: "maxmin", Command: []string{python, "../examples/predictor/maxmin.py"}}
	for _, c := range []struct {
		file string
		sets []string
		jobs int  // figures that are compared, at least
		pool bool // that is short
	}{
		{"quickstart.toml", nil, 3, false},
		{"two-racks.toml", nil, 12, false},
		{"fair-share.toml", nil, 4, true},
		{"pat-sweep.toml", nil, 4, true},
		{"addressing.toml", []string{"switch.addressing=hash"}, 3, false},
	} {
		t.Run(c.file, func(t *testing.T) {
			if c.pool || c.sets != nil {
				proof.Only(t, "memory that is too small, and hashes, are followed packet by packet")
			}
			s, err := kinds.Load(c.file, c.sets...)
			if err != nil {
				t.Fatal(err)
			}
			points, err := plans(t.Context(), s, nil)
			if err != nil {
				t.Fatal(err)
			}
			compared := 0
			for _, p := range points {
				req, said := asked(t, p)
				a, err := mine.Predict(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				for i, models := range said {
					occupancy := models[slices.Index(spec.Predictors, placement.Occupancy)]
					for k, j := range a.Phases[i].Jobs {
						want := occupancy.Jobs[k]
						if queues := strings.Contains(want.Bottleneck, "->"); queues && slices.ContainsFunc(want.Shares, func(s placement.SharePrediction) bool { return s.Share < 1-1e-9 }) {
							continue // a full link lengthens holds, of which the example knows nothing
						}
						compared++
						if off := *j.Goodput/want.Goodput - 1; math.Abs(off) > 1e-3 {
							t.Errorf("%v phase %d: %s gets %.4g bit/s by %s, occupancy says %.4g by %s", p.Labels, i+1, j.Name, *j.Goodput, j.Bottleneck, want.Goodput, want.Bottleneck)
						}
						for _, s := range j.Shares {
							at := slices.IndexFunc(want.Shares, func(w placement.SharePrediction) bool { return w.Switch == s.Switch })
							within := 1e-3
							if c.pool {
								within = 0.012
							}
							if at < 0 || math.Abs(*s.Share-want.Shares[at].Share) > within {
								t.Errorf("%v phase %d: share %g of %s at %s, occupancy says %v", p.Labels, i+1, *s.Share, j.Name, s.Switch, want.Shares)
							}
						}
					}
				}
			}
			if t.Logf("%d figures compared", compared); compared < c.jobs {
				t.Errorf("only %d figures were compared", compared)
			}
		})
	}
}

func threeHosts(t *testing.T) *inventory.Inventory {
	t.Helper()
	inv, err := inventory.Load("racks/three-hosts.toml")
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

const predicting = `version = 1
inventory = "three-hosts.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
rate = "10Gbit/s"
message = "1MiB"
iterations = 100
`

// What is wrong with a [predictor] is said before anything else happens.
func TestPredictorChecks(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[predictor]\n", "command"},
		{"[predictor]\ncommand = []\n", "empty command"},
		{"[predictor]\ncommand = [\"\"]\n", "empty command"},
		{"[predictor]\ncommand = [\"x\"]\nname = \"a b\"\n", "a name has letters"},
		{"[predictor]\ncommand = [\"x\"]\nname = \"occupancy\"\n", "means something else"},
		{"[predictor]\ncommand = [\"x\"]\nname = \"sim\"\n", "means something else"},
		{"[predictor]\ncommand = [\"x\"]\ntimeout = \"0s\"\n", "timeout must be above zero"},
		{"[predictor]\ncommand = [\"x\"]\nother = 1\n", "other"},
		{"[predictor]\ncommand = [\"x\"]\n[[expect]]\nmetric = \"goodput\"\npredictor = \"mine\"\ntolerance = \"1%\"\nreason = \"r\"\n", `unknown predictor "mine"`},
		{"[predictor]\ncommand = [\"x\"]\n[[sweep]]\nkey = \"predictor.command\"\nvalues = [[\"x\"], [\"y\"]]\n", `"predictor.command" is the same for all points`},
		{"[predictor]\ncommand = [\"x\"]\n[[sweep]]\nkey = \"predictor.name\"\nvalues = [\"x\", \"y\"]\n", `"predictor.name" is the same for all points`},
	} {
		_, err := kinds.Parse(filepath.Join(t.TempDir(), "exp.toml"), []byte(predicting+c.text), threeHosts(t))
		var problems tomlfile.Problems
		if !errors.As(err, &problems) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
	s, err := kinds.Parse(filepath.Join(t.TempDir(), "exp.toml"), []byte(predicting+`[predictor]
command = ["x"]
[[expect]]
metric = "jct"
predictor = "external"
tolerance = "1%"
reason = "built-in models say nothing of it"
`), threeHosts(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := externals(s, []predictor.Predictor{{Name: "external", Command: []string{"y"}}}); err == nil || !strings.Contains(err.Error(), "two predictors") {
		t.Errorf("error %v", err)
	}
}

// What predictors cannot be told of is refused where it is written, and named.
func TestPredictorOfStudies(t *testing.T) {
	for _, c := range []struct{ file, table string }{
		{"mina-ablation.toml", ""}, {"autops-sharing.toml", "[service]"}, {"titan-testbed.toml", "[training]"}, {"iperf3.toml", "[[program]]"},
		{"policies.toml", ""},
	} {
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := kinds.Parse(c.file, append(text, "\n[predictor]\ncommand = [\"x\"]\n"...), nil)
		if c.table == "" {
			if err != nil || s.Askable() != nil {
				t.Errorf("%s: %v, %v", c.file, err, s.Askable())
			}
			continue
		}
		var problems tomlfile.Problems
		if !errors.As(err, &problems) || len(problems) != 1 || !strings.Contains(err.Error(), "not of "+c.table) || !strings.Contains(err.Error(), "--on sim") {
			t.Errorf("%s: %v, want that it is not about %s", c.file, err, c.table)
		}
	}
}

// TestPlanAsks: a plan has what predictors say of each phase beside the built-in models, and nothing
// if none is asked.
func TestPlanAsks(t *testing.T) {
	python, err := exec.LookPath("python3")
	testbedtest.Require(t, "python3", err)
	s, err := kinds.Load("quickstart.toml")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(t.Context(), s, "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Ask(t.Context(), nil); err != nil || plan.Points[0].Phases[0].External != nil {
		t.Errorf("asked nobody: %v, %v", err, plan.Points[0].Phases[0].External)
	}
	if err := plan.Ask(t.Context(), []predictor.Predictor{{Name: "mine", Command: []string{python, "../examples/predictor/maxmin.py"}}}); err != nil {
		t.Fatal(err)
	}
	for _, ph := range plan.Points[0].Phases {
		for _, j := range ph.Predictions[0].Jobs {
			if !slices.ContainsFunc(ph.External, func(f results.Figure) bool {
				return f.Predictor == "mine" && f.Metric == "goodput" && f.Of == j.Name && math.Abs(f.Value/j.Goodput-1) < 1e-3
			}) {
				t.Errorf("%s gets %g: mine says %v", j.Name, j.Goodput, ph.External)
			}
		}
	}
	if err := plan.Ask(t.Context(), []predictor.Predictor{{Name: "mine", Command: []string{"false"}}}); !errors.Is(err, spec.ErrInput) {
		t.Errorf("one that fails: %v", err)
	}
}

// A predictor that fails ends the run before it begins; one that fails later is a warning.
func TestPredictorFails(t *testing.T) {
	s, err := kinds.Parse(filepath.Join(t.TempDir(), "exp.toml"), []byte(predicting), threeHosts(t))
	if err != nil {
		t.Fatal(err)
	}
	run := func(script string) (*results.Record, error) {
		t.Helper()
		rec, dir, err := Run(t.Context(), s, RunOptions{Driver: "sim", Root: t.TempDir(),
			Predictors: []predictor.Predictor{{Name: "mine", Command: []string{"/bin/sh", "-c", script}, Dir: t.TempDir()}}})
		if dir != nil {
			dir.Close()
		}
		return rec, err
	}
	var begin *BeginError
	if rec, err := run("exit 1"); rec != nil || !errors.As(err, &begin) || !errors.Is(err, spec.ErrInput) {
		t.Errorf("record %v, error %v", rec, err)
	}
	rec, err := run(`test -f asked && { echo broken >&2; exit 1; }; touch asked; printf '{"schema": 1, "jct": [{"job": "A", "seconds": 1}]}'`)
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Warnings) != 1 || !strings.Contains(rec.Warnings[0], "broken") || rec.Outcome == results.ErrorOutcome {
		t.Errorf("%s, warnings %q", rec.Outcome, rec.Warnings)
	}
}

// foretold is what a simulation comes to of an experiment whose predictor, mine, is a command, and what that was asked.
func foretold(t *testing.T, experiment string, command ...string) (rec *results.Record, req *predictor.Request) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "two.csv"), []byte("job_id,submit_s,duration_s,gpus\na,0,100,4\nb,500,50,2\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	words, err := json.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("version = 1\n%s\n[predictor]\nname = \"mine\"\ncommand = %s\n", experiment, words)
	for _, metric := range []string{"jct", "avg_jct"} {
		text += fmt.Sprintf("[[expect]]\nmetric = %q\npredictor = \"mine\"\ntolerance = \"3%%\"\nreason = \"jobs are alone\"\n", metric)
	}
	s, err := kinds.Parse(filepath.Join(dir, "exp.toml"), []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if rec, _, err = Run(t.Context(), s, RunOptions{Driver: "sim", Root: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "request.json"))
	if err != nil {
		t.Fatalf("%v, warnings %q", err, rec.Warnings)
	}
	req = new(predictor.Request)
	if err := json.Unmarshal(asked, req); err != nil {
		t.Fatal(err)
	}
	return rec, req
}

// saying is a predictor that keeps its request, and answers in a version that jobs take so many seconds.
func saying(version int, seconds map[string]float64) []string {
	a := predictor.Answer{Schema: version}
	for job, s := range seconds {
		a.JCT = append(a.JCT, predictor.JCT{Job: job, Seconds: &s})
	}
	text, _ := json.Marshal(a) // numbers and names
	return []string{"/bin/sh", "-c", `cat > request.json; printf '%s' "$0"`, string(text)}
}

// figuresOf are the figures of a metric, by what they are of, that a predictor said, or of no predictor.
func figuresOf(rec *results.Record, metric, predictor string) map[string]float64 {
	out := map[string]float64{}
	for _, f := range rec.Points[0].Phases[0].Figures {
		if f.Metric == metric && f.Predictor == predictor {
			out[f.Of] = f.Value
		}
	}
	return out
}

// tracing are two jobs of a trace that never run at once, the first on all GPUs of both hosts.
const tracing = `[fat_tree]
racks = 1
hosts = 2
gpus = 2
[trace]
from = "two.csv"
models = ["vgg16"]
collective = "%s"`

// TestPredictorOfTraces: a simulated trace is told job by job, and what is answered stands beside what was simulated. Of rings
// that are alone, the simulator and the example differ by the acknowledgements that only the simulator counts.
func TestPredictorOfTraces(t *testing.T) {
	python, err := exec.LookPath("python3")
	testbedtest.Require(t, "python3", err)
	example, err := filepath.Abs("../examples/predictor/maxmin.py")
	if err != nil {
		t.Fatal(err)
	}
	rec, req := foretold(t, fmt.Sprintf(tracing, "ring"), python, example, "--keep", "request.json")
	if rec.Outcome != results.Pass || len(rec.Warnings) > 0 {
		t.Errorf("%s, warnings %q", rec.Outcome, rec.Warnings)
	}
	ours, mine := figuresOf(rec, "jct", ""), figuresOf(rec, "jct", "mine")
	for _, job := range []string{"a", "b"} {
		if ours[job] <= 0 || math.Abs(mine[job]/ours[job]-1) > 0.03 {
			t.Errorf("job %s takes %v s, mine says %v", job, ours[job], mine[job])
		}
	}
	mean := (mine["a"] + mine["b"]) / 2
	if got := figuresOf(rec, "avg_jct", "mine")[results.Cluster]; len(mine) != 2 || math.Abs(got/mean-1) > 1e-9 {
		t.Errorf("mine says %v, in the mean %v", mine, got)
	}
	report, err := fidelity.Compare([]*results.Record{rec}, fidelity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Models) != 1 || report.Models[0].Name != "mine" || report.Models[0].Over != fidelity.Job || len(report.Models[0].Errors) != 3 {
		t.Errorf("models %+v", report.Models)
	}
	if req.Schema != predictor.Schema || len(req.Jobs) != 2 || len(req.Phases) != 0 {
		t.Fatalf("schema %d, jobs %+v, phases %v", req.Schema, req.Jobs, req.Phases)
	}
	a, b := req.Jobs[0], req.Jobs[1]
	if a.Submit != 0 || b.Submit != 500 || b.Start < 500 || len(a.Workers) != 2 || len(a.Hops) != 4 || a.Local || a.Layers[0].Compute <= 0 {
		t.Errorf("jobs %+v", req.Jobs)
	}
}

// Of what the first version has no words for, the request is of the second; who answers as of the first did not see it.
func TestPredictorOfRanks(t *testing.T) {
	rec, req := foretold(t, fmt.Sprintf(tracing, "halving-doubling"), saying(predictor.Schema, map[string]float64{"a": 100, "b": 50})...)
	if len(rec.Warnings) != 1 || !strings.Contains(rec.Warnings[0], "schema 1, where the request has 2") {
		t.Errorf("warnings %q", rec.Warnings)
	}
	if said := figuresOf(rec, "jct", "mine"); len(said) > 0 {
		t.Errorf("mine says %v", said)
	}
	a := req.Jobs[0]
	if req.Schema != predictor.Newest || a.Collective != "halving-doubling" || len(a.Workers) != 4 {
		t.Fatalf("schema %d, job %+v", req.Schema, a)
	}
	if last := a.Workers[3]; last.Rank != 3 || last.GPUs != 1 || last.Up != "" {
		t.Errorf("worker %+v", last)
	}
}

// TestPredictorOfOperations: what is told of operations is enough to say how long a job takes that has its tree at all times.
func TestPredictorOfOperations(t *testing.T) {
	const experiment = `[clos]
down = [2, 2]
up = [1, 1]
[operations]
sharing = "always"
[[operations.job]]
name = "wide"
model = "bert-base"
hosts = 2
steps = 3
[[operations.job]]
name = "single"
model = "opt-125m"
hosts = 1
steps = 2`
	rec, req := foretold(t, experiment, saying(predictor.Newest, map[string]float64{"wide": 1, "single": 2})...)
	if mine := figuresOf(rec, "jct", "mine"); len(rec.Warnings) > 0 || mine["wide"] != 1 || mine["single"] != 2 || figuresOf(rec, "avg_jct", "mine")[results.Cluster] != 1.5 {
		t.Errorf("warnings %q, mine says %v", rec.Warnings, mine)
	}
	if rec.Outcome != results.Fail {
		t.Errorf("%s, and what mine says is wrong", rec.Outcome)
	}
	o, ours := req.Operations, figuresOf(rec, "jct", "")
	if req.Schema != predictor.Newest || o == nil || len(o.Patterns) != 2 || len(req.Jobs) != 2 || len(ours) != 2 {
		t.Fatalf("schema %d, jobs %+v, operations %+v", req.Schema, req.Jobs, o)
	}
	for _, j := range req.Jobs {
		at := slices.IndexFunc(o.Patterns, func(p predictor.Pattern) bool { return p.Model == j.Model })
		if at < 0 || j.Collective != predictor.Turns || j.Local != (len(j.Workers) == 1) || j.Workers[0].Host == "" {
			t.Fatalf("job %+v", j)
		}
		now := 0.0
		for _, op := range o.Patterns[at].Ops {
			now = max(now, op.Start) + o.Latency
			if !j.Local {
				now += 8 * float64(op.Bytes) / (o.Bandwidth * o.Ratio)
			}
		}
		want := float64(j.Iterations) * max(now, o.Patterns[at].Step)
		if got := ours[j.Name]; math.Abs(got/want-1) > 1e-9 {
			t.Errorf("job %s takes %v s, want %v", j.Name, got, want)
		}
	}
}

// What is expected of a predictor that nobody asks is skipped, and says why; all else is judged.
func TestUnasked(t *testing.T) {
	r := &run{
		spec: &spec.Spec{Predictor: &spec.Predictor{Name: "mine"}}, external: []predictor.Predictor{{Name: "mine"}},
		rec: &results.Record{Expect: []results.Expect{
			{Metric: "jct", Predictor: "mine"}, {Metric: "avg_jct", Predictor: "mine", Skip: "no point has it"},
			{Metric: "jct", Predictor: "replay"}, {Metric: "avg_jct", Predictor: "mine", Against: "mine"},
		}},
	}
	r.unasked("a batch system simulates elsewhere")
	const why = "external predictors were not asked: a batch system simulates elsewhere"
	for i, want := range []string{why, "no point has it", "", ""} {
		if got := r.rec.Expect[i].Skip; got != want {
			t.Errorf("expectation %d is skipped as %q, want %q", i+1, got, want)
		}
	}
	if r.Asks() || !slices.Equal(r.rec.Warnings, []string{why}) {
		t.Errorf("asks: %v, warnings %q", r.Asks(), r.rec.Warnings)
	}
}

// A predictor is not called as what predicts an experiment's figures already: nobody could tell whose they are.
func TestPredictorOfAnothersName(t *testing.T) {
	const operations = `version = 1
[clos]
down = [2, 2]
up = [1, 1]
[operations]
jobs = 2
`
	const own = "[predictor]\nname = \"operations\"\ncommand = [\"x\"]\n"
	if _, err := kinds.Parse(filepath.Join(t.TempDir(), "exp.toml"), []byte(operations+own), nil); err == nil || !strings.Contains(err.Error(), "means something else") {
		t.Errorf("[predictor]: error %v", err)
	}
	s, err := kinds.Parse(filepath.Join(t.TempDir(), "exp.toml"), []byte(operations), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := externals(s, []predictor.Predictor{{Name: "operations", Command: []string{"x"}}}); err == nil || !strings.Contains(err.Error(), "means something else") {
		t.Errorf("--predictor: error %v", err)
	}
}
