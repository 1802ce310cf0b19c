package switches

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
)

// TestKinds: every kind that an inventory can name can be opened and observed, and one that it cannot is an error that names
// the switch.
func TestKinds(t *testing.T) {
	foreign := []inventory.Kind{inventory.Scripted, inventory.Quantum}
	for _, name := range inventory.Kinds {
		of := inventory.Kind(name)
		k, err := kindOf(inventory.Switch{Name: "s1", Kind: of})
		if err != nil || k.open == nil || k.observe == nil {
			t.Errorf("%s: %v", of, err)
		}
		if got := Programmed(of); got == slices.Contains(foreign, of) {
			t.Errorf("%s takes jobs: %t", of, got)
		}
	}
	sw := inventory.Switch{Name: "s1", Kind: "abacus"}
	for what, open := range map[string]func() error{
		"open":    func() error { _, err := Open(t.Context(), &Site{}, sw); return err },
		"observe": func() error { _, err := Observe(t.Context(), &Site{}, sw); return err },
	} {
		if err := open(); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), `switch s1: kind "abacus"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, sw := range []inventory.Switch{sw, {Name: "s1", Kind: inventory.Quantum}, {Name: "s1", Kind: inventory.Tofino}} {
		if d, ok := Diagnose(t.Context(), &inventory.Inventory{}, sw, time.Second); ok {
			t.Errorf("asked %+v: %+v", sw, d)
		}
	}
}
