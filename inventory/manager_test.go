package inventory

import (
	"fmt"
	"testing"

	"github.com/inabench/inabench/internal/golden"
)

func TestManager(t *testing.T) {
	inv, err := load(t, "valid-sharp.toml")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "valid-sharp.golden", fmt.Sprintf("%+v\n", *inv.Manager))
	if c := inv.Clone(); c.Manager == inv.Manager || !c.Manager.Reachable() {
		t.Errorf("clone: %+v", c.Manager)
	}
}
