package experiments

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/results"
)

// A recorded trace is taken as it is: all of its jobs, as they were submitted. Of 16
// workers of VGG16 on two machines, halving and doubling sends eight times the gradient
// across if they are numbered machine by machine, and once if Titan numbers them.
func TestRecordedTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "two.csv")
	if err := os.WriteFile(file, []byte("job_id,submit_s,duration_s,gpus\na,100,1000,16\nb,5000,2000,8\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := kinds.Load("titan-recorded.toml", "trace.from="+file, "trace.jobs=0", "trace.load=0", "trace.collective=halving-doubling", `trace.models=["vgg16"]`)
	if err != nil {
		t.Fatal(err)
	}
	rec, _, err := Run(t.Context(), s, RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	const gradient = 553_430_176
	want := map[string]float64{"titan": 1, "titan-published": 1, "elasticflow": 8, "elasticflow-idle": 8, "hived": 8, "tiresias": 8}
	for _, p := range rec.Points {
		policy := p.Params["placement.policy"].(string)
		figures := map[string]float64{}
		for _, f := range p.Phases[0].Figures {
			if f.Of == results.Cluster {
				figures[f.Metric] = f.Value
			}
		}
		// As a arrives it is alone, with two machines and all its traffic; as b does, a is gone.
		crossing := want[policy] * gradient
		iterations := math.Round(1000 / 0.23255)
		seconds := 8 * crossing * (1514 + 66./2) / 1448 / 100e9 // both ways at once, over one link, with acknowledgements
		for metric, want := range map[string]float64{
			"used_machines": 1.5, "fragmentation": 0, "cross_traffic": crossing / 2,
			"machine_hours": (2*(1000+iterations*seconds) + 2000) / 3600,
		} {
			if got := figures[metric]; math.Abs(got-want) > 1e-3*want {
				t.Errorf("%s: %s %v, want %v", policy, metric, got, want)
			}
		}
		if len(p.Curves) != 9 {
			t.Errorf("%s: %d curves", policy, len(p.Curves))
		}
		delete(want, policy)
	}
	if len(want) > 0 {
		t.Errorf("no points for %v", want)
	}
	if err := kinds.Of(s).Supports("netns"); err == nil {
		t.Error("workers that are GPUs of their own are not run")
	}
}

// More repeats than windows, by whatever says how many, are refused before the first one runs.
func TestRepeatsBeyondWindows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "two.csv")
	if err := os.WriteFile(file, []byte("job_id,submit_s,duration_s,gpus\na,100,1000,16\nb,5000,2000,8\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, repeats := range []int{1, 2} {
		s, err := kinds.Load("titan-recorded.toml", "trace.from="+file, "trace.jobs=0", "trace.load=0", "trace.scale=1", `trace.models=["vgg16"]`,
			"trace.resample=windows", "trace.block=2h", "measure.repeats=1")
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		_, _, err = Run(t.Context(), s, RunOptions{Driver: "sim", Root: root, Tool: "test", Repeats: repeats})
		if repeats == 1 {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "window 2 of 7200 s: there are 1") {
			t.Errorf("error %v", err)
		}
		if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
			t.Errorf("%d files in %s, %v", len(left), root, err)
		}
	}
}
