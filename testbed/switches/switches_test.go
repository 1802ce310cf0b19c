package switches

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
)

// TestKinds: every kind that an inventory can name can be opened and observed, and one that it cannot is an error that names
// the switch.
func TestKinds(t *testing.T) {
	for of, programmed := range map[inventory.Kind]bool{
		inventory.Soft: true, inventory.BMv2: true, inventory.Tofino: true, inventory.Scripted: false, inventory.Quantum: false,
	} {
		k, err := kindOf(inventory.Switch{Name: "s1", Kind: of})
		if err != nil || k.open == nil || k.observe == nil {
			t.Errorf("%s: %v", of, err)
		}
		if got := Programmed(of); got != programmed {
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
