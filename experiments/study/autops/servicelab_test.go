package autops

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/spec/spectest"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/paramservice/aggregator"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/deploy"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/sim/service"
)

// Workers go backward from the last tensor to the first one; the simulator has gradients in the order
// in which they are ready.
func TestServiceTraining(t *testing.T) {
	const ms = time.Millisecond
	j := serving{Job: service.Job{Name: "A", Workers: 2, Servers: 3, Iterations: 7, Arrive: time.Second,
		Tensors: []service.Tensor{{Bytes: 400, Ready: 10 * ms}, {Bytes: 40, Ready: 12 * ms}, {Bytes: 4, Ready: 12 * ms}}}}
	got := j.training(&service.Config{Sum: 1e5}, 4, 5)
	want := []control.Tensor{{Name: "2", Elements: 1, Work: 80 * time.Microsecond}, {Name: "1", Elements: 10, Work: 800 * time.Microsecond}, {Name: "0", Elements: 100, Work: 8 * ms}}
	if !slices.Equal(got.Tensors, want) || !slices.Equal(got.Backward, []time.Duration{0, 2 * ms, 10 * ms}) {
		t.Errorf("%+v, %v", got.Tensors, got.Backward)
	}
	if got.Check() != nil || got.Iterations != 7 || got.Arrive != time.Second || got.Migrate != 5 || got.Seed == 0 {
		t.Errorf("%+v: %v", got, got.Check())
	}
}

// Who stays for some time trains for as many iterations as fit into it alone.
func TestServiceUntil(t *testing.T) {
	const s = time.Second
	jobs := []serving{
		{Job: service.Job{Iterations: 5}},
		{Job: service.Job{Stay: 10 * s}},
		{Job: service.Job{Arrive: 95 * s, Stay: 10 * s}},
		{Job: service.Job{Arrive: 40 * s}},
		{Job: service.Job{Iterations: 500}},
		{Job: service.Job{Arrive: 99900 * time.Millisecond}},
	}
	until(jobs, 100*s, slices.Repeat([]standalone{{own: s / 2}}, len(jobs)))
	for i, want := range []int{5, 20, 10, 120, 200, 1} {
		if jobs[i].Iterations != want {
			t.Errorf("job %d: %d iterations, want %d", i, jobs[i].Iterations, want)
		}
	}
}

// Who arrives when all is over never begins, however long it was to train; all others have iterations to do.
func TestServiceInTime(t *testing.T) {
	const s = time.Second
	job := func(name string, arrive time.Duration, iterations int) serving {
		return serving{Job: service.Job{Name: name, Workers: 2, Servers: 1, Arrive: arrive, Iterations: iterations, Tensors: []service.Tensor{{Bytes: 400, Ready: s}}}}
	}
	all := func() []serving {
		return []serving{job("A", 0, 0), job("B", 60*s, 0), job("C", 59*s, 0), job("D", 70*s, 5)}
	}
	jobs := inTime(all(), 60*s)
	if len(jobs) != 2 || jobs[0].Name != "A" || jobs[1].Name != "C" {
		t.Fatalf("%+v, want A and C", jobs)
	}
	until(jobs, 60*s, slices.Repeat([]standalone{{own: s}}, len(jobs)))
	for _, j := range jobs {
		if j.Iterations < 1 {
			t.Errorf("job %s never ends", j.Name)
		}
	}
	if n := len(inTime(all(), 0)); n != 4 {
		t.Errorf("%d jobs, want all 4: nothing ends them", n)
	}
}

// An experiment all of whose jobs arrive when it is over is refused.
func TestServiceNobodyArrives(t *testing.T) {
	load := func(arrive string) error {
		_, err := spec.Kinds{Kind}.Load("../../autops-testbed-congestion.toml", "service.duration='60s'", "service.job.A.arrive='"+arrive+"'")
		return err
	}
	if err := load("59s"); err != nil {
		t.Error(err)
	}
	if err := load("60s"); err == nil || !strings.Contains(err.Error(), "all jobs arrive when duration is over") {
		t.Errorf("%v", err)
	}
}

// What was seen of processes is what the simulator says of them.
func TestServiceObserved(t *testing.T) {
	at := func(s float64) time.Duration { return time.Duration((100 + s) * 1e9) }
	its := func(took time.Duration, ends ...float64) (out []deploy.Iteration) {
		for _, e := range ends {
			out = append(out, deploy.Iteration{End: at(e), Spent: took})
		}
		return out
	}
	one, two := int32(1), int32(2)
	out := &deploy.Result{
		Begin: at(0), End: at(20),
		Jobs: []deploy.Outcome{
			{ID: 1, Start: at(1), End: at(19), Workers: [][]deploy.Iteration{its(time.Second, 2, 3, 4), its(1100*time.Millisecond, 2.1, 3.1)}, Moved: 3, Loss: 0.05},
			{Start: at(5), Workers: [][]deploy.Iteration{nil, its(time.Second, 6)}}, // it was cut short
		},
		Aggregators: []deploy.Aggregator{
			{From: at(0.5), To: at(19), Stats: aggregator.Stats{AggregatorReport: control.AggregatorReport{Busy: time.Second}}},
			{From: at(4), To: at(8), Disturbed: at(6), Tensors: map[control.Key]time.Duration{{Job: 1, Tensor: 3}: time.Second, {Job: 1}: time.Millisecond, {Job: 2}: time.Hour}},
		},
		Events: []pmaster.Event{
			{Event: "registered", T: 100.4, Job: 1, Name: "A"},
			{Event: "profiled", T: 107, Job: 1, Name: "A"},
			{Event: "migrated", T: 107.5, Job: 1, From: &one, To: &two},
			{Event: "verdict", T: 112, Job: 1, Name: "A", Verdict: "fine"},
			{Event: "verdict", T: 113, Job: 1, Name: "A", Verdict: "reverted", Other: "B"},
			{Event: "verdict", T: 114, Job: 1, Name: "A", Verdict: "respread"},
		},
	}
	jobs := []serving{{Job: service.Job{Name: "A", Servers: 1}}, {Job: service.Job{Name: "B", Servers: 2}}}
	got := observed(jobs, out)
	if a := got.Jobs[0]; len(a.Iterations) != 2 || a.Iterations[1] != (service.Iteration{End: 3100 * time.Millisecond, Took: 1100 * time.Millisecond}) || a.Moved != 3 || a.Loss != 0.05 || a.CPU != time.Second+time.Millisecond {
		t.Errorf("A: %+v", a)
	}
	if b := got.Jobs[1]; len(b.Iterations) != 0 || b.End != got.End || !b.Started {
		t.Errorf("B: %+v", b)
	}
	s := func(v float64) time.Duration { return time.Duration(v * 1e9) }
	count := func(at float64, aggregators, required int) service.Count {
		return service.Count{At: s(at), Aggregators: aggregators, Required: required}
	}
	change := func(at float64, what service.What, job string) service.Change {
		return service.Change{At: s(at), What: what, Job: job}
	}
	wantCounts := []service.Count{count(0.5, 1, 0), count(1, 1, 1), count(4, 2, 1), count(5, 2, 3), count(8, 1, 3), count(19, 1, 2), count(19, 0, 2), count(20, 0, 0)}
	if !slices.Equal(got.Counts, wantCounts) {
		t.Errorf("counts %v", got.Counts)
	}
	wantChanges := []service.Change{
		change(1, service.Arrived, "A"), change(5, service.Arrived, "B"), change(6, service.Disturbed, ""), change(7, service.Settled, "A"), change(7.5, service.Settled, "A"),
		change(13, service.Reverted, "B"), change(14, service.Respread, "A"), change(19, service.Left, "A"), change(20, service.Left, "B"),
	}
	if !slices.Equal(got.Changes, wantChanges) {
		t.Errorf("changes %v", got.Changes)
	}
	if want := (service.Machine{From: s(0.5), To: s(19), Busy: time.Second}); len(got.Machines) != 2 || !reflect.DeepEqual(got.Machines[0], want) || !got.Machines[1].Disturbed {
		t.Errorf("machines %v", got.Machines)
	}
}

// A job whose tensors move twice waits for that: half a second, and then a whole one.
func TestServiceStalls(t *testing.T) {
	res := &service.Result{Jobs: make([]service.Outcome, 1)}
	at := time.Duration(0)
	for k := range 40 {
		took := time.Second
		switch k {
		case 12:
			took += time.Second / 2
		case 31:
			took += time.Second
		}
		at += took
		res.Jobs[0].Iterations = append(res.Jobs[0].Iterations, service.Iteration{End: at, Took: took})
	}
	jobs := []serving{{Job: service.Job{Name: "A"}}}
	if got := stalls(results.Measured, jobs, res); got != nil {
		t.Errorf("nothing has moved: %v", got)
	}
	for _, k := range []int{11, 30} {
		its := res.Jobs[0].Iterations
		res.Changes = append(res.Changes, service.Change{At: its[k].End - its[k].Took/2, What: service.Migrated, Job: "A"})
	}
	res.Changes = append(res.Changes, service.Change{At: at, What: service.Left, Job: "A"}, service.Change{At: 0, What: service.Migrated, Job: "B"})
	got := stalls(results.Measured, jobs, res)
	if len(got) != 2 || got[0].Value != 0.75 || got[1].Value != 0.75 || got[0].Unit != "s" {
		t.Errorf("%v", got)
	}
}

// Workers of a testbed compute as much longer, iteration by iteration, as the simulator says of the same seed; alone, as long
// as their model says.
func TestServiceJitter(t *testing.T) {
	cfg := service.Config{Sum: 1e5, Jitter: 0.1, Seed: 3, Background: 4, Packing: time.Second}
	j := serving{Job: service.Job{Name: "A", Workers: 2, Servers: 1, Iterations: 50, Tensors: []service.Tensor{{Bytes: 400, Ready: time.Millisecond}}}}
	got, next := j.training(&cfg, 4, 0).Slower, cfg.Slower("A")
	if len(got) != j.Iterations {
		t.Fatalf("%d factors for %d iterations", len(got), j.Iterations)
	}
	for k := range got {
		if want := next(); got[k] != want {
			t.Errorf("iteration %d: %v, want %v", k, got[k], want)
		}
	}
	quiet := undisturbed(cfg)
	if got := j.training(&quiet, 4, 0).Slower; got != nil || quiet.Background != 0 || quiet.Packing != 0 {
		t.Errorf("alone: %v, %d flows, packing for %v", got, quiet.Background, quiet.Packing)
	}
}

// Use of a core is told of whole intervals: those after the last work are idle, and so is half of the rest.
func TestUsage(t *testing.T) {
	const ms = time.Millisecond
	res := &service.Result{Machines: []service.Machine{
		{From: 0, To: 85 * ms, Usage: []float64{0, 0.5, 0, 1}},
		{From: 15 * ms, To: 45 * ms, Usage: []float64{0, 0.9, 0.25, 0.25}},
		{From: 12 * ms, To: 19 * ms, Usage: []float64{0, 0.7}},
	}}
	figures, missing, curves := usage(results.Simulated, res, 10*ms)
	want := map[string]float64{"busy_peak 0": 1, "idle 0": 0.75, "busy_peak 1": 0.25, "idle 1": 0}
	if len(figures) != len(want) || len(missing) > 0 || len(curves) != 2 || len(curves[0].X) != 8 || len(curves[1].X) != 2 {
		t.Fatalf("%v, %v", figures, curves)
	}
	for _, f := range figures {
		if w, ok := want[f.Metric+" "+f.Of]; !ok || f.Value != w {
			t.Errorf("%s of %s: %v, want %v", f.Metric, f.Of, f.Value, w)
		}
	}
	if c := curves[1]; c.X[0] != 0.02 || c.Y[0] != 0.25 {
		t.Errorf("%+v", c)
	}
}

// Of an Aggregator that is there for more intervals than are kept nothing is told: the first ones are not all of them.
func TestUsageTooShort(t *testing.T) {
	res := &service.Result{Machines: []service.Machine{{To: (service.MaxUsage + 1) * time.Millisecond, Usage: []float64{1}}}}
	figures, missing, curves := usage(results.Simulated, res, time.Millisecond)
	if len(figures) > 0 || len(curves) > 0 || len(missing) != 2 || missing[0].Metric != "busy_peak" || missing[1].Metric != "idle" {
		t.Errorf("%v, %v, %d curves", figures, missing, len(curves))
	}
}

// Speeds beside background flows are those of a time in which there are some, or whose tensors have left them: otherwise it is
// said why there are no such speeds.
func TestCalm(t *testing.T) {
	const s = time.Second
	began, evacuated := service.Change{At: 10 * s, What: service.Disturbed}, service.Change{At: 15 * s, What: service.Evacuated}
	for _, tt := range []struct {
		changes []service.Change
		to      time.Duration // of the Aggregator that is disturbed
		end     time.Duration
		why     string
	}{
		{[]service.Change{began}, 60 * s, 60 * s, ""},
		{nil, 0, 60 * s, "job A had no background flows beside it: none began"},
		{[]service.Change{began}, 15 * s, 15 * s, "job A trained longest without a change before background flows began"},
		{[]service.Change{began, evacuated}, 16 * s, 60 * s, ""},
		{[]service.Change{began, {At: 15 * s, What: service.Settled}}, 15 * s, 60 * s, "job A trained longest without a change after background flows had ended with their Aggregator"},
	} {
		res := &service.Result{End: tt.end, Changes: tt.changes, Machines: []service.Machine{{To: tt.to, Disturbed: tt.to > 0}}, Jobs: []service.Outcome{{Started: true, End: tt.end}}}
		for at := s; at <= tt.end; at += s {
			res.Jobs[0].Iterations = append(res.Jobs[0].Iterations, service.Iteration{End: at, Took: s})
		}
		figures, missing := serviceFigures(results.Simulated, res, []service.Job{{Name: "A"}}, []standalone{{s, s}}, true)
		fast := slices.ContainsFunc(figures, func(f results.Figure) bool { return f.Metric == "avg_speed" })
		told := slices.ContainsFunc(missing, func(m results.Missing) bool { return m.Metric == "avg_speed" && m.Why == tt.why })
		if fast != (tt.why == "") || told == fast {
			t.Errorf("%v until %v: a speed: %v, missing %v; want %q", tt.changes, tt.to, fast, missing, tt.why)
		}
	}
}

// When the first job was assigned anew is told, and of none nothing is.
func TestRevertedAt(t *testing.T) {
	res := &service.Result{Jobs: make([]service.Outcome, 1), End: time.Minute, Changes: []service.Change{
		{At: 3 * time.Second, What: service.Settled}, {At: 27 * time.Second, What: service.Reverted}, {At: 40 * time.Second, What: service.Reverted},
	}}
	at := func() (all []float64) {
		figures, _ := serviceFigures(results.Measured, res, make([]service.Job, 1), make([]standalone, 1), false)
		for _, f := range figures {
			if f.Metric == "reverted_at" {
				all = append(all, f.Value)
			}
		}
		return all
	}
	if got := at(); !slices.Equal(got, []float64{27}) {
		t.Errorf("%v, not at 27 s", got)
	}
	res.Changes = res.Changes[:1]
	if got := at(); got != nil {
		t.Errorf("nothing was: %v", got)
	}
}

// What a job takes alone was measured with queues of one point, and is not taken for points with others.
func TestServiceAloneFor(t *testing.T) {
	key := func(queues string) string {
		s := spectest.Pair(t, nil, "1us", "inventory = \"pair.toml\"\n[switch]\n"+queues+"\n[[job]]\nname = \"A\"\ngpus = 2\n")
		l := &serviceLab{Bench: &study.Bench{Planned: study.Planned{Point: spec.Point{Spec: s}}}}
		return l.aloneFor(&serving{})
	}
	seen := map[string]string{}
	for _, queues := range []string{"", `queue = "fifo"`, `buffer = "16KiB"`, `ecn = "16KiB"`} {
		k := key(queues)
		if other, ok := seen[k]; ok {
			t.Errorf("with %q it is as with %q: %s", queues, other, k)
		}
		seen[k] = queues
	}
}

// A machine that stands still once while a job is measured alone spoils that measurement, which is done again, and no point.
func TestServiceAloneAgain(t *testing.T) {
	busy := []results.Trouble{{Where: "worker A/0 on host h1", What: "woke up late", Fatal: true}}
	lost := errors.New("lost")
	for _, c := range []struct {
		name   string
		static bool
		spoilt map[int]bool // of all measurements, in their order
		err    error        // of the last one
		calls  string       // s: with servers of its own, d: on a service
		fatal  int
	}{
		{"quiet", false, nil, nil, "sd", 0},
		{"quiet, static", true, nil, nil, "s", 0},
		{"once", false, map[int]bool{0: true}, nil, "ssd", 0},
		{"once each", false, map[int]bool{0: true, 2: true}, nil, "ssdd", 0},
		{"always", true, map[int]bool{0: true, 1: true, 2: true, 3: true}, nil, "ssss", 1},
		{"once, and then it is lost", false, map[int]bool{1: true}, lost, "sdd", 0},
	} {
		calls := ""
		ref, err := measureAlone("alexnet", c.static, func(static bool, about time.Duration) (time.Duration, []results.Trouble, error) {
			n := len(calls)
			if s := strings.LastIndex(calls, "s") + 1; !static && about != time.Duration(s) {
				t.Errorf("%s: an iteration takes about %d, want what was measured last, %d", c.name, about, s)
			}
			calls += map[bool]string{true: "s", false: "d"}[static]
			var troubles []results.Trouble
			if c.spoilt[n] {
				troubles = slices.Clone(busy)
			}
			if len(calls) == len(c.calls) {
				return time.Duration(n + 1), troubles, c.err
			}
			return time.Duration(n + 1), troubles, nil
		})
		fatal := 0
		for _, h := range ref.health {
			if h.Fatal {
				fatal++
			}
			if !strings.HasPrefix(h.Where, "alexnet alone: ") {
				t.Errorf("%s: %v", c.name, h)
			}
		}
		if calls != c.calls || fatal != c.fatal || !errors.Is(err, c.err) {
			t.Errorf("%s: %s, %d fatal, %v; want %s, %d, %v", c.name, calls, fatal, err, c.calls, c.fatal, c.err)
		}
		if s := strings.LastIndex(calls, "s") + 1; err == nil && (ref.static != time.Duration(s) || ref.own != time.Duration(len(calls))) {
			t.Errorf("%s: %+v, want what was measured last", c.name, ref.standalone)
		}
	}
}

// What a job takes alone is of iterations that began when its tensors had moved: as many are waited for as Aggregators need to
// report, and where the profile came late for all that, it does not count.
func TestServiceUnsettled(t *testing.T) {
	for about, want := range map[time.Duration]int{0: 2000, time.Microsecond: 2000, 25 * time.Millisecond: 40, 500 * time.Millisecond: 2, 3 * time.Second: 0} {
		if got := untilReported(about); got != want {
			t.Errorf("%d iterations of %v, want %d", got, about, want)
		}
	}
	its := make([]service.Iteration, 20)
	for i := range its {
		its[i].End = time.Duration(i+1) * time.Second
	}
	for _, c := range []struct {
		from     int
		profiled time.Duration
		late     bool
	}{
		{10, 0, false}, {10, 6 * time.Second, false}, {10, 6*time.Second + 1, true}, {10, 15 * time.Second, true}, {3, time.Second, true}, {40, time.Second, true},
	} {
		troubles := unsettled(its, c.from, c.profiled)
		if got := len(troubles) > 0; got != c.late || got && !troubles[0].Fatal {
			t.Errorf("measured from iteration %d on, profiled at %v: %v", c.from, c.profiled, troubles)
		}
	}
}

// empty is a fabric of nothing, which may not say how it is.
type empty struct {
	testbed.Fabric
	unwell error
}

func (empty) Inventory() *inventory.Inventory                     { return &inventory.Inventory{} }
func (e empty) Health(context.Context) ([]results.Trouble, error) { return nil, e.unwell }
func (empty) Close(context.Context) error                         { return nil }

// untold is what a study has of a run that keeps nothing.
type untold struct{ study.Runner }

func (untold) Scale() results.Scale     { return results.Scale{} }
func (untold) Timing(string, time.Time) {}

// A service that could not even begin has served nobody, and says why.
func TestServiceUnbegun(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	silent := errors.New("no answer")
	for _, want := range []error{silent, fs.ErrNotExist} {
		fabric := empty{}
		if want == silent {
			fabric.unwell = silent
		}
		tb, err := remote.Open(t.Context(), remote.Options{Fabric: fabric, Exe: "/proc/self/exe", Unmanaged: true})
		if err != nil {
			t.Fatal(err)
		}
		l := &serviceLab{Bench: &study.Bench{Runner: untold{}, Planned: study.Planned{Point: spec.Point{Spec: &spec.Spec{}}}}, tb: tb, point: &results.Point{}}
		out, err := l.serve(t.Context(), nil, false, 0, nil)
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if len(out.Events) > 0 || len(l.summaries(nil, out)) > 0 {
			t.Errorf("it has seen %+v", out)
		}
	}
}

// A testbed has hosts for servers, and one that background flows go to.
func TestServiceHosts(t *testing.T) {
	inv := &inventory.Inventory{Hosts: []inventory.Host{{GPUs: 1}, {GPUs: 1}, {}}}
	for _, tt := range []struct {
		o                Service
		servers, workers int
		fits             bool
	}{
		{Service{}, 2, 2, true},
		{Service{Mode: staticService}, 1, 2, true},
		{Service{Mode: staticService}, 2, 2, false},
		{Service{Background: 1}, 1, 1, true},
		{Service{Background: 1}, 1, 2, false},
	} {
		if err := tt.o.hosts(inv, []serving{{Job: service.Job{Servers: tt.servers, Workers: tt.workers}}}); (err == nil) != tt.fits {
			t.Errorf("%+v, %d servers and %d workers: %v", tt.o, tt.servers, tt.workers, err)
		}
	}
}

// What only the simulator can do is refused elsewhere.
func TestServiceSupports(t *testing.T) {
	for driver, all := range map[string]map[bool]*Service{
		"netns": {true: {Rate: 1e9, Migrate: 3, Background: 2, Packing: 3, Jitter: 0.1}, false: {Usage: 1}},
		"lab":   {true: {}, false: {Rate: 1e9}},
		"sim":   {true: {Trace: &ServiceTrace{}, Background: 2, Packing: 3, Usage: 1}},
	} {
		for can, o := range all {
			if err := o.Supports(driver); (err == nil) != can || err != nil && !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%s: %v", driver, err)
			}
		}
	}
	if err := (&Service{Trace: &ServiceTrace{}}).Supports("netns"); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}
