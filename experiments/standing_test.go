package experiments

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
)

// TestSuits: an emulation that was made for packets of so many lanes is in time for longer ones, and nobody knows whether for
// shorter ones.
func TestSuits(t *testing.T) {
	of := func(lanes string) *Standing {
		s, err := kinds.Load("quickstart.toml", "switch.lanes="+lanes)
		if err != nil {
			t.Fatal(err)
		}
		if in := fabricOf(s, "sim").Lanes; in != 0 {
			t.Errorf("a model is built for %d lanes", in)
		}
		return &Standing{key: fabricOf(s, "netns"), spec: s}
	}
	short, long := of("120"), of("240")
	if err := short.suits(long.spec); err != nil {
		t.Error(err)
	}
	if err := long.suits(short.spec); err == nil || !strings.Contains(err.Error(), "wants switch.lanes = 120, not 240") {
		t.Errorf("got %v", err)
	}
}

// An emulation that stays up is right for another run after one that ended in nothing worse than an interruption.
func TestInterrupted(t *testing.T) {
	cause, other := errors.New("interrupted by SIGINT"), errors.New("the cable is still damaged")
	for _, c := range []struct {
		name  string
		err   error
		cause error
		want  bool
	}{
		{"all went well", nil, nil, true},
		{"it failed", other, nil, false},
		{"interrupted", fmt.Errorf("deploy: %w", errors.Join(fmt.Errorf("worker A/0: %w", cause), fmt.Errorf("ps A: %w", context.Canceled))), cause, true},
		{"and something is left", errors.Join(cause, fmt.Errorf("undeploy: %w", other)), cause, false},
		{"and something is left, said in one", fmt.Errorf("%w: %w", cause, other), cause, false},
		{"a cancellation that nobody wanted", context.Canceled, nil, false},
	} {
		if got := interrupted(c.err, c.cause); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
