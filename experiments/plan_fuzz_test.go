package experiments

import (
	"encoding/json"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/study"
)

// FuzzSavedPlan: placements in a saved plan are refused, or can be set up. Its experiment and inventory have targets of
// their own.
func FuzzSavedPlan(f *testing.F) {
	spec, err := kinds.Parse("exp.toml", []byte(`version = 1

[fat_tree]
racks = 2
hosts = 2
gpus = 2

[switch]
addressing = "atp"
slots_ratio = 0.5

[[job]]
name = "A"
gpus = 4

[[job]]
name = "B"
gpus = 2
collective = "ring"
`), nil)
	if err != nil {
		f.Fatal(err)
	}
	plan, err := NewPlan(f.Context(), spec, "test")
	if err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(plan.Points)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`[{"plan": {"jobs": []}}]`))
	f.Add([]byte(`[{"plan": {"jobs": [{"id": 1, "name": "A", "collective": "ina", "workers": [{"rank": -1, "host": "r1h1"}], "tree": [{"switch": "tor1", "expect": 1}]}, {"id": 2, "name": "B", "collective": "ring"}]}}]`))
	f.Fuzz(func(t *testing.T, points []byte) {
		saved := *plan
		if json.Unmarshal(points, &saved.Points) != nil {
			return
		}
		text, err := json.Marshal(&saved)
		if err != nil {
			return
		}
		read, err := ParsePlan("saved.plan", text)
		if err != nil {
			return
		}
		again, err := plans(t.Context(), read.Spec(), read)
		if err != nil {
			t.Fatalf("a plan that was read cannot be taken: %v", err)
		}
		for _, p := range again {
			if _, err := kinds.Of(p.Spec).(study.Predicted).Request(p); err != nil {
				t.Logf("refused later: %v", err)
			}
		}
	})
}
