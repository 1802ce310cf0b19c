package experiments

import (
	"testing"

	"github.com/inabench/inabench/experiments/random"
	"github.com/inabench/inabench/results"
)

// TestDrawnOnce runs settings on the model that failed once though nothing was wrong: what was wrong then
// is said beside each.
func TestDrawnOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("with the race detector it takes minutes")
	}
	for _, c := range []struct {
		seed   uint64
		number int
	}{
		{0xc9b37483d1ef47c1, 43}, // full queues or none, by chance: the share and what is granted were other means of the same runs
	} {
		s := random.Draw(c.seed, c.number)
		t.Run(s.Name, func(t *testing.T) {
			path, err := s.Write(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			spec, err := Load(path, s.Model()...)
			if err != nil {
				t.Fatal(err)
			}
			rec, _, err := Run(t.Context(), spec, RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "test"})
			if err != nil {
				t.Fatal(err)
			}
			if rec.Outcome != results.Pass {
				t.Errorf("%s: %s: %v", s.Title, rec.Outcome, rec.Reasons)
			}
		})
	}
}
