package trace

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/testbed/testbedtest"
)

func TestTransform(t *testing.T) {
	base := New("t", []Job{
		{ID: "d", Submit: 30, Duration: 4, GPUs: 64, Source: "x"},
		{ID: "a", Submit: 10, Duration: 1, GPUs: 1, Source: "x"},
		{ID: "b", Submit: 10, Duration: 2, GPUs: 8, Source: "y"},
		{ID: "c", Submit: 20, Duration: 3, GPUs: 16, Source: "x"},
	})
	before := slices.Clone(base.Jobs)
	for _, tt := range []struct {
		x       Transform
		want    string // jobs, as id:submit:duration:gpus
		changes Changes
	}{
		{Transform{}, "a:10:1:1 b:10:2:8 c:20:3:16 d:30:4:64", Changes{}},
		{Transform{First: 2}, "a:10:1:1 b:10:2:8", Changes{AfterFirst: 2}},
		{Transform{First: 9, Sample: 9}, "a:10:1:1 b:10:2:8 c:20:3:16 d:30:4:64", Changes{}},
		{Transform{From: 10, To: 30, Rebase: true}, "a:0:1:1 b:0:2:8 c:10:3:16", Changes{OutsideWindow: 1}},
		{Transform{From: 11}, "c:20:3:16 d:30:4:64", Changes{OutsideWindow: 2}},
		{Transform{Sources: []string{"y", "z"}}, "b:10:2:8", Changes{OtherSources: 3}},
		{Transform{MaxGPUs: 8}, "a:10:1:1 b:10:2:8", Changes{TooLarge: 2}},
		{Transform{MaxGPUs: 8, Clamp: true}, "a:10:1:1 b:10:2:8 c:20:3:8 d:30:4:8", Changes{Clamped: 2}},
		{Transform{ScaleSubmit: 0.5, ScaleDuration: 10, Rebase: true}, "a:0:10:1 b:0:20:8 c:5:30:16 d:10:40:64", Changes{}},
		// What is too large is gone before the first are counted.
		{Transform{MaxGPUs: 16, First: 3, From: 10, Sources: []string{"x"}}, "a:10:1:1 c:20:3:16", Changes{OtherSources: 1, TooLarge: 1}},
	} {
		got, changes, err := tt.x.Apply(base)
		if err != nil {
			t.Errorf("%+v: %v", tt.x, err)
			continue
		}
		text := ""
		for _, j := range got.Jobs {
			text += fmt.Sprintf(" %s:%g:%g:%d", j.ID, j.Submit, j.Duration, j.GPUs)
		}
		if text != " "+tt.want || changes != tt.changes || len(got.Jobs)+changes.Dropped() != len(base.Jobs) {
			t.Errorf("%+v: %s %+v, want %s %+v", tt.x, text, changes, tt.want, tt.changes)
		}
	}
	if !cmp.Equal(base.Jobs, before) {
		t.Error("the trace itself was changed")
	}
	for _, tt := range []struct {
		x    Transform
		want string
	}{
		{Transform{First: -1}, "transform trace t: first -1: not negative, and finite"},
		{Transform{ScaleSubmit: math.NaN()}, "transform trace t: submit scale NaN: not negative, and finite"},
		{Transform{ScaleDuration: 1e-9}, "transform trace t: a scale of 1e-09: 1e-6 to 1e6"},
		{Transform{From: 5, To: 5}, "transform trace t: the window ends at 5 s, it begins at 5 s"},
		{Transform{From: 99}, "transform trace t: no job is left of 4: 4 outside the window"},
	} {
		if _, _, err := tt.x.Apply(base); err == nil || err.Error() != tt.want {
			t.Errorf("%+v: %v, want %s", tt.x, err, tt.want)
		}
	}
}

// A sample keeps the order and the seed decides it; all jobs have the same chance.
func TestSample(t *testing.T) {
	var jobs []Job
	for i := range 100 {
		jobs = append(jobs, Job{ID: fmt.Sprint(i), Submit: float64(i), Duration: 1, GPUs: 1})
	}
	base, drawn := New("t", jobs), map[string]int{}
	const rounds = 2000
	for seed := range uint64(rounds) {
		x := Transform{Sample: 10, Seed: seed}
		got, changes, err := x.Apply(base)
		if err != nil || len(got.Jobs) != 10 || changes.NotSampled != 90 {
			t.Fatalf("%d jobs, %+v, %v", len(got.Jobs), changes, err)
		}
		again, _, _ := x.Apply(base)
		if !cmp.Equal(got, again) {
			t.Fatal("the seed does not decide")
		}
		for i, j := range got.Jobs {
			if i > 0 && j.Submit <= got.Jobs[i-1].Submit {
				t.Fatal("out of order")
			}
			drawn[j.ID]++
		}
	}
	for _, j := range jobs { // 200 expected, standard deviation 13.4
		if n := drawn[j.ID]; n < 130 || n > 270 {
			t.Errorf("job %s was drawn %d times in %d", j.ID, n, rounds)
		}
	}
}

func TestInspect(t *testing.T) {
	got := Inspect(New("t", []Job{
		{ID: "a", Submit: 100, Duration: 3600, GPUs: 1, Model: "m", Source: "x"},
		{ID: "b", Submit: 100, Duration: 1800, GPUs: 8, Model: "n", Source: "x"},
		{ID: "c", Submit: 1900, Duration: 3600, GPUs: 4, Model: "m"}, // starts as b ends
	}))
	want := Stats{
		Name: "t", Jobs: 3, Start: 100, Span: 1800, GPUs: Quantiles{4, 8, 8, 8}, MultiGPU: 2.0 / 3,
		Duration: Quantiles{3600, 3600, 3600, 3600}, GPUHours: 9, Load: 18, Peak: 9,
		Models: []Count{{"m", 2}, {"n", 1}}, Sources: []Count{{"x", 2}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Inspect(New("one", []Job{{Duration: 1, GPUs: 2}})); got.Load != 0 || got.Span != 0 || got.Peak != 2 {
		t.Errorf("one job: %+v", got)
	}
	if got := Inspect(New("none", nil)); got.Jobs != 0 || got.Peak != 0 {
		t.Errorf("no job: %+v", got)
	}
}

// traces is the folder of published ones.
func traces(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("INABENCH_TRACES")
	if dir == "" {
		testbedtest.Require(t, "traces", errors.New("INABENCH_TRACES names no folder"))
	}
	return dir
}

// The published traces, where they are at hand: INABENCH_TRACES names the folder of
// philly_muri4vc.csv, msr_elasticflow_ef03_ef04.csv and tiresias60.csv. What is wanted
// was computed by others, from the originals.
func TestPublishedTraces(t *testing.T) {
	dir := traces(t)
	for _, tt := range []struct {
		file, source string
		jobs         int
		days         string // of the span
		gpus         string // p50/p90/p99/max
		multi        string // percent with more than one
		durations    string
		hours        string
		load, peak   int // load 0: not told
	}{
		{"philly_muri4vc.csv", "", 10879, "125.4", "4/8/32/32", "56.9", "7696/304253/2040658/4628239", "1529001", 508, 1341},
		{"tiresias60.csv", "", 60, "", "2/8/8/8", "50.0", "125/230/1800/1800", "7", 0, 26},
		{"msr_elasticflow_ef03_ef04.csv", "ef03", 3011, "", "", "66", "", "", 0, 1379},
		{"msr_elasticflow_ef03_ef04.csv", "ef04", 15802, "", "", "", "", "", 0, 2025},
	} {
		tr, report, err := Load(filepath.Join(dir, tt.file), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if report.Format != "inabench" || len(report.Ignored) > 0 {
			t.Errorf("%s: %+v", tt.file, report)
		}
		if tt.source != "" {
			if tr, _, err = (Transform{Sources: []string{tt.source}}).Apply(tr); err != nil {
				t.Fatal(err)
			}
		}
		s := Inspect(tr)
		four := func(q Quantiles) string { return fmt.Sprintf("%.0f/%.0f/%.0f/%.0f", q.P50, q.P90, q.P99, q.Max) }
		precise := "%.1f"
		if len(tt.multi) == 2 {
			precise = "%.0f"
		}
		for _, c := range []struct{ what, got, want string }{
			{"jobs", fmt.Sprint(s.Jobs), fmt.Sprint(tt.jobs)},
			{"days", fmt.Sprintf("%.1f", s.Span/86400), tt.days},
			{"GPUs", four(s.GPUs), tt.gpus},
			{"multi-GPU", fmt.Sprintf(precise, 100*s.MultiGPU), tt.multi},
			{"durations", four(s.Duration), tt.durations},
			{"GPU hours", fmt.Sprintf("%.0f", s.GPUHours), tt.hours},
			{"peak", fmt.Sprint(s.Peak), fmt.Sprint(tt.peak)},
		} {
			if c.want != "" && c.got != c.want {
				t.Errorf("%s %s: %s %s, want %s", tt.file, tt.source, c.what, c.got, c.want)
			}
		}
		if tt.load != 0 && int(math.Round(s.Load)) != tt.load {
			t.Errorf("%s: load %.1f, want %d", tt.file, s.Load, tt.load)
		}
	}
}
