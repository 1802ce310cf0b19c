package bfrt_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/dataplane"
)

// TestForeign: BFRuntime lets everybody load programs at any time. What somebody has loaded since it was asked for what runs is
// neither pushed away nor replaced, even where it has the same name.
func TestForeign(t *testing.T) {
	s, _ := serve(t)
	theirs := func(name string, binary byte) []byte {
		return bfrt.Config{
			Program: name, BFRT: []byte(`{"tables": [{"name": "pipe.FabricIngress.acl", "id": 5, "table_type": "MatchAction_Direct", "key": [], "data": []}]}`),
			Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte("{}"), Binary: []byte{binary}}},
		}.Marshal()
	}
	c := dial(t, s, options())
	told := func(c *bfrt.Client, want string) {
		t.Helper()
		found, err := c.Foreign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if (found != nil) != (want != "") || found != nil && (found.Name != want || len(found.Config) == 0) {
			t.Errorf("it runs %+v, want %q", found, want)
		}
	}
	load := func(before string, config []byte) { // by somebody who leaves again
		t.Helper()
		other := dial(t, s, options())
		told(other, before)
		if err := errors.Join(other.Restore(t.Context(), config), other.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(when string) {
		t.Helper()
		loads := s.Pushes()
		for what, err := range map[string]error{"push": c.Push(t.Context(), pipeline()), "put back": c.Restore(t.Context(), theirs("router", 1))} {
			if !errors.Is(err, dataplane.ErrForeign) || !strings.HasSuffix(err.Error(), ": fabric") {
				t.Errorf("%s, %s: %v", when, what, err)
			}
		}
		if s.Pushes() != loads {
			t.Errorf("%s: %d loads, want %d", when, s.Pushes(), loads)
		}
	}
	told(c, "")
	load("", theirs("fabric", 9))
	refused("loaded on an empty switch")
	told(c, "fabric")
	load("fabric", theirs("fabric", 8))
	refused("a newer one of the same name")
	told(c, "fabric")
	if err := c.Push(t.Context(), pipeline()); err != nil {
		t.Fatal(err)
	}
	told(c, "")
}
