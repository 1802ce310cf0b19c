package clean

import (
	"errors"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/blame"
)

// TestAway: of each host that cannot be reached it is said why, beside names that are of none.
func TestAway(t *testing.T) {
	down := blame.Host("h2", errors.New("no route"))
	for _, err := range []error{down, errors.Join(nil, down), errors.Join(errors.New("no host or switch"), errors.Join(blame.Host("h1", errors.New("refused")), down))} {
		found := false
		for _, e := range flat(err) {
			if blame.Of(e) == (blame.Part{Kind: blame.KindHost, Node: "h2"}) {
				found = found || strings.Contains(e.Error(), "no route") && !strings.Contains(e.Error(), "refused")
			}
		}
		if !found {
			t.Errorf("%q: nothing of h2 alone", err)
		}
	}
}
