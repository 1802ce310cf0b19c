package experiments

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/inventory"
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// A timeline names, for each span that is measured, when it begins and who sends.
func TestTimeline(t *testing.T) {
	dur := func(s float64) inventory.Duration { return inventory.Duration(seconds(s)) }
	for _, tt := range []struct {
		name string
		jobs []Job
		want []span
		end  float64
	}{
		{"one job until the end of the measurement",
			[]Job{{Name: "A"}},
			[]span{{seconds(1), seconds(4), []string{"A"}, 0}}, 4},
		{"the second joins and the first leaves",
			[]Job{{Name: "A", Duration: dur(8)}, {Name: "B", Start: dur(4), Duration: dur(8)}},
			[]span{
				{seconds(1), seconds(4), []string{"A"}, 0},
				{seconds(5), seconds(8), []string{"A", "B"}, 0},
				{seconds(9), seconds(12), []string{"B"}, 0},
			}, 12},
		{"a job without an end sends as long as the others",
			[]Job{{Name: "A"}, {Name: "B", Duration: dur(10)}},
			[]span{{seconds(1), seconds(10), []string{"A", "B"}, 0}}, 10},
		{"a stop and a start at once leave no gap",
			[]Job{{Name: "A", Duration: dur(4)}, {Name: "B", Start: dur(4), Duration: dur(4)}},
			[]span{{seconds(1), seconds(4), []string{"A"}, 0}, {seconds(5), seconds(8), []string{"B"}, 0}}, 8},
		{"nothing is steady within a warm-up",
			[]Job{{Name: "A", Duration: dur(4)}, {Name: "B", Start: dur(.5), Duration: dur(3.5)}},
			[]span{{seconds(1.5), seconds(4), []string{"A", "B"}, 0}}, 4},
		{"a job with iterations ends by itself",
			[]Job{{Name: "A", Iterations: 3}, {Name: "B", Duration: dur(4)}},
			[]span{{seconds(1), seconds(4), []string{"A", "B"}, 0}}, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &Spec{Jobs: tt.jobs, Measure: Measure{Warmup: dur(1), Duration: dur(3)}}
			got := s.timeline()
			if d := cmp.Diff(tt.want, got.spans(), cmp.AllowUnexported(span{})); d != "" {
				t.Error(d)
			}
			if got.end() != seconds(tt.end) {
				t.Errorf("ends at %v, want %v s", got.end(), tt.end)
			}
		})
	}
}

// A plan that was saved runs as it was, and not at all once its inventory differs.
func TestSavedPlan(t *testing.T) {
	spec, err := Load("quickstart.toml")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(spec, "test")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(plan.Points); n != 1 || len(plan.Points[0].Phases) != 2 {
		t.Fatalf("%d points, want 1 with 2 phases", n)
	}
	path := t.TempDir() + "/plan.json"
	if err := plan.Save(path); err != nil {
		t.Fatal(err)
	}
	again, err := loadPlan(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(plan.Points, again.Points); d != "" {
		t.Error(d)
	}
	plan.Inventory.SHA256 = strings.Repeat("0", 64)
	if err := plan.Save(path); err != nil {
		t.Fatal(err)
	}
	if _, err := loadPlan(t, path); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("a plan for another inventory: %v", err)
	}
}

func loadPlan(t *testing.T, path string) (*SavedPlan, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return ParsePlan(path, text)
}

// A phase ends where the next job begins to start, not when all its workers have.
func TestPhaseEndsBeforeAStart(t *testing.T) {
	seen := timeline{warmup: time.Second, jobs: []string{"A", "B"}, events: []event{
		{at: time.Second, job: "A", begun: 500 * time.Millisecond},
		{at: 5 * time.Second, job: "B", begun: 4600 * time.Millisecond, delay: time.Second},
		{at: 9 * time.Second, job: "A", stop: true},
	}}
	want := []span{{2 * time.Second, 4600 * time.Millisecond, []string{"A"}, time.Second}, {6 * time.Second, 9 * time.Second, []string{"A", "B"}, 0}}
	if d := cmp.Diff(want, seen.spans(), cmp.AllowUnexported(span{})); d != "" {
		t.Error(d)
	}
}
