package jobs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// starting is a testbed whose jobs take so long to start.
type starting struct {
	testbed.Testbed
	late time.Duration
}

func (s starting) Deploy(ctx context.Context, setup testbed.Setup) (testbed.Deployment, error) {
	dep, err := s.Testbed.Deploy(ctx, setup)
	return startingSlowly{dep, s.late}, err
}

type startingSlowly struct {
	testbed.Deployment
	late time.Duration
}

func (s startingSlowly) Start(ctx context.Context, job string) error {
	return errors.Join(s.Sleep(ctx, s.Now()+s.late), s.Deployment.Start(ctx, job))
}

// TestStartsTakeTime: however long jobs take to start, phases are as long as planned and none is left out.
// One that is not there all the same is told of.
func TestStartsTakeTime(t *testing.T) {
	r, setup := judging(t, `
inventory = "pair.toml"
[measure]
warmup = "500ms"
[[job]]
name = "A"
hosts = ["h1"]
ps = "h3"
duration = "3s"
[[job]]
name = "B"
hosts = ["h2"]
ps = "h3"
start = "1s"
duration = "1s"
`)
	setup.Interval = 50 * time.Millisecond
	want := timelineOf(r.Spec).spans()
	if len(want) != 3 {
		t.Fatalf("%v", want)
	}
	for _, late := range []time.Duration{0, 700 * time.Millisecond, 5 * time.Second} {
		tb := starting{r.Testbed(), late}
		dep, err := tb.Deploy(t.Context(), setup)
		if err != nil {
			t.Fatal(err)
		}
		obs, err := r.observe(t.Context(), setup, dep, Baseline{}, nil)
		if err := errors.Join(err, dep.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		got := obs.timeline.spans()
		for i := range got {
			if long := got[i].end - got[i].start; long < want[i].end-want[i].start-time.Millisecond || long > want[i].end-want[i].start+100*time.Millisecond {
				t.Errorf("jobs start after %v: phase %d takes %v, want %v", late, i+1, long, want[i].end-want[i].start)
			}
		}
		in := inspectionOf(r.Spec, nil, testbed.Capabilities{}, testbed.Setup{}, Baseline{}, obs)
		if missed := in.missed(); len(got) != 3 || len(missed) > 0 {
			t.Errorf("jobs start after %v: %d phases, missed %+v", late, len(got), missed)
		}
		in.obs.timeline.warmup = 600 * time.Millisecond
		in.obs.timeline.events[2].begun, in.obs.timeline.events[2].at = 0, in.obs.timeline.events[1].at+time.Millisecond
		if missed := in.missed(); len(missed) != 1 || missed[0].Outcome != results.Inconclusive || !strings.HasPrefix(missed[0].What, "the plan's phase 2, from 1.5s to 2s with A, B, was not measured") {
			t.Errorf("without the second phase: %+v", missed)
		}
	}
}

// wired remembers what cables were made to do, and the jobs that were stopped.
type wired struct {
	testbed.Deployment
	links   map[string]testbed.LinkState
	mu      sync.Mutex
	stopped []string
}

func (w *wired) SetLink(ctx context.Context, link string, s testbed.LinkState) error {
	w.links[link] = s
	return w.Deployment.SetLink(ctx, link, s)
}

func (w *wired) Stop(ctx context.Context, job string) error {
	w.mu.Lock()
	w.stopped = append(w.stopped, job)
	w.mu.Unlock()
	return w.Deployment.Stop(ctx, job)
}

// TestNothingLeft: after a point no cable is damaged, and jobs that have ended by themselves are stopped, or their PSes
// would not say what they have counted. Jobs that stop together leave no phase between them, whatever the warm-up.
func TestNothingLeft(t *testing.T) {
	r, setup := judging(t, `
inventory = "pair.toml"
[measure]
warmup = "0s"
[[job]]
name = "A"
hosts = ["h1"]
ps = "h3"
message = "1MiB"
iterations = 2
[[job]]
name = "B"
hosts = ["h2"]
ps = "h3"
start = "1s"
duration = "1s"
[[job]]
name = "C"
hosts = ["h1"]
ps = "h3"
start = "1s"
duration = "1s"
[[link_state]]
of = "h1->tor1"
loss = 0.01
`)
	setup.Interval = 50 * time.Millisecond
	if len(setup.Damage) != 1 {
		t.Fatalf("%+v", setup.Damage)
	}
	dep, err := r.Testbed().Deploy(t.Context(), setup)
	if err != nil {
		t.Fatal(err)
	}
	w := &wired{Deployment: ticking{dep}, links: map[string]testbed.LinkState{}}
	obs, err := r.observe(t.Context(), setup, w, Baseline{}, nil)
	if err := errors.Join(err, dep.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if len(w.links) != 1 || w.links["h1->tor1"] != (testbed.LinkState{}) {
		t.Errorf("%+v", w.links)
	}
	if slices.Sort(w.stopped); !slices.Equal(w.stopped, []string{"A", "B", "C"}) {
		t.Errorf("stopped %v", w.stopped)
	}
	for _, sp := range obs.timeline.spans() {
		if sp.end-sp.start < time.Millisecond {
			t.Errorf("a phase of %v, of %v", sp.end-sp.start, sp.jobs)
		}
	}
}

// ticking is a deployment of a model whose clock goes on whenever somebody looks at it, as any other does.
type ticking struct{ testbed.Deployment }

func (d ticking) Now() time.Duration {
	now := d.Deployment.Now()
	_ = d.Sleep(context.Background(), now+100*time.Nanosecond)
	return now
}

// standing is a deployment in which a switch stood still once.
type standing struct {
	testbed.Deployment
	from, to time.Duration
	told     bool
}

func (s *standing) Stalls(context.Context) ([]testbed.Stall, error) {
	if s.told || s.Now() < s.to {
		return nil, nil
	}
	s.told = true
	return []testbed.Stall{{Start: s.from, End: s.to, Where: "switch tor1", What: "it did not run", Late: s.to - s.from}}, nil
}

// TestPlannedSeconds: a phase that went on for a stall in it has as many clean seconds as were planned, and is held to these:
// not to a part of what it has become, or waiting for clean seconds would spoil it.
func TestPlannedSeconds(t *testing.T) {
	r, setup := judging(t, `
inventory = "pair.toml"
[measure]
warmup = "1s"
duration = "2s"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
`)
	setup.Interval = 50 * time.Millisecond
	dep, err := r.Testbed().Deploy(t.Context(), setup)
	if err != nil {
		t.Fatal(err)
	}
	obs, err := r.observe(t.Context(), setup, &standing{Deployment: dep, from: 1500 * time.Millisecond, to: 2500 * time.Millisecond}, Baseline{}, nil)
	if err := errors.Join(err, dep.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	spans := obs.timeline.spans()
	if len(spans) != 1 || spans[0].planned != 2*time.Second || spans[0].longer != 0 || (spans[0].end-spans[0].start-3*time.Second).Abs() > 100*time.Millisecond {
		t.Fatalf("%+v, want one of 3 s, of which 2 s were planned", spans)
	}
	ph, err := r.phase(setup, Baseline{}, obs, spans[0], r.predicted(t, setup, "A"))
	if err != nil {
		t.Fatal(err)
	}
	if ph.Spoilt != "" || len(ph.LeftOut) != 1 {
		t.Errorf("left out %+v, spoilt: %q", ph.LeftOut, ph.Spoilt)
	}
}

// A timeline names, for each span that is measured, when it begins and who sends.
func TestTimeline(t *testing.T) {
	dur := func(s float64) inventory.Duration { return inventory.Duration(seconds(s)) }
	for _, tt := range []struct {
		name string
		jobs []spec.Job
		want []span
		end  float64
	}{
		{"one job until the end of the measurement",
			[]spec.Job{{Name: "A"}},
			[]span{{seconds(1), seconds(4), []string{"A"}, 0, 0}}, 4},
		{"the second joins and the first leaves",
			[]spec.Job{{Name: "A", Duration: dur(8)}, {Name: "B", Start: dur(4), Duration: dur(8)}},
			[]span{
				{seconds(1), seconds(4), []string{"A"}, 0, 0},
				{seconds(5), seconds(8), []string{"A", "B"}, 0, 0},
				{seconds(9), seconds(12), []string{"B"}, 0, 0},
			}, 12},
		{"a job without an end sends as long as the others",
			[]spec.Job{{Name: "A"}, {Name: "B", Duration: dur(10)}},
			[]span{{seconds(1), seconds(10), []string{"A", "B"}, 0, 0}}, 10},
		{"a stop and a start at once leave no gap",
			[]spec.Job{{Name: "A", Duration: dur(4)}, {Name: "B", Start: dur(4), Duration: dur(4)}},
			[]span{{seconds(1), seconds(4), []string{"A"}, 0, 0}, {seconds(5), seconds(8), []string{"B"}, 0, 0}}, 8},
		{"nothing is steady within a warm-up",
			[]spec.Job{{Name: "A", Duration: dur(4)}, {Name: "B", Start: dur(.5), Duration: dur(3.5)}},
			[]span{{seconds(1.5), seconds(4), []string{"A", "B"}, 0, 0}}, 4},
		{"a job with iterations ends by itself",
			[]spec.Job{{Name: "A", Iterations: 3}, {Name: "B", Duration: dur(4)}},
			[]span{{seconds(1), seconds(4), []string{"A", "B"}, 0, 0}}, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &spec.Spec{Jobs: tt.jobs, Measure: spec.Measure{Warmup: dur(1), Duration: dur(3)}}
			got := timelineOf(s)
			if d := cmp.Diff(tt.want, got.spans(), cmp.AllowUnexported(span{})); d != "" {
				t.Error(d)
			}
			if got.end() != seconds(tt.end) {
				t.Errorf("ends at %v, want %v s", got.end(), tt.end)
			}
		})
	}
}

// A phase ends where the next job begins to start, not when all its workers have.
func TestPhaseEndsBeforeAStart(t *testing.T) {
	seen := timeline{warmup: time.Second, jobs: []string{"A", "B"}, events: []event{
		{at: time.Second, job: "A", begun: 500 * time.Millisecond},
		{at: 5 * time.Second, job: "B", begun: 4600 * time.Millisecond, delay: time.Second, planned: time.Minute},
		{at: 9 * time.Second, job: "A", stop: true},
	}}
	want := []span{{2 * time.Second, 4600 * time.Millisecond, []string{"A"}, time.Second, time.Minute}, {6 * time.Second, 9 * time.Second, []string{"A", "B"}, 0, 0}}
	if d := cmp.Diff(want, seen.spans(), cmp.AllowUnexported(span{})); d != "" {
		t.Error(d)
	}
}

// TestSchedule: a run is followed from its first start on, and jobs' windows open when they were seen to, or where they are
// only planned two round trips after they are told to begin.
func TestSchedule(t *testing.T) {
	at := func(s float64) time.Duration { return seconds(s) }
	planned := timeline{warmup: at(1), jobs: []string{"A", "B"}, events: []event{
		{at: at(0), job: "A"}, {at: at(4), job: "B"}, {at: at(8), job: "A", stop: true}, {at: at(8), job: "B", stop: true},
	}}
	seen := timeline{warmup: at(1), jobs: []string{"A", "B"}, events: []event{
		{at: at(20.5), begun: at(20), opened: at(20.4), job: "A"},
		{at: at(24.6), begun: at(24.25), opened: at(24.5), job: "B"},
		{at: at(29), job: "A", stop: true}, {at: at(29.25), job: "B", stop: true},
	}}
	base := Baseline{RTTs: map[string]float64{"A": .125, "B": .25}}
	for _, tt := range []struct {
		name string
		t    timeline
		want placement.Schedule
	}{
		{"planned", planned, placement.Schedule{
			Jobs: map[string]flow.Times{"A": {Begin: .25, Within: .01, End: 8}, "B": {Begin: 4.5, Within: .01, End: 8}},
			Phases: []placement.Phase{
				{Count: flow.Count{From: 1, To: 4}, Jobs: []string{"A"}},
				{Count: flow.Count{From: 5, To: 8}, Jobs: []string{"A", "B"}},
			}}},
		{"seen", seen, placement.Schedule{
			Jobs: map[string]flow.Times{"A": {Begin: .4, Within: .01, End: 9}, "B": {Begin: 4.5, Within: .01, End: 9.25}},
			Phases: []placement.Phase{
				{Count: flow.Count{From: 1.5, To: 4.25}, Jobs: []string{"A"}},
				{Count: flow.Count{From: 5.6, To: 9}, Jobs: []string{"A", "B"}},
			}}},
		{"nothing", timeline{}, placement.Schedule{Jobs: map[string]flow.Times{}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, tt.t.schedule(base, testbed.Pace{Within: 10 * time.Millisecond}), cmpopts.EquateApprox(0, 1e-9)); d != "" {
				t.Error(d)
			}
		})
	}
}
