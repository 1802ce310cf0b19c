package experiments

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

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
