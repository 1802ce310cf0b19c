package experiments

import (
	"testing"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement/policytest"
)

// Every policy that a spec can name keeps the rules on inventories, too.
func TestPolicies(t *testing.T) {
	proof.Only(t, "it follows packets")
	for _, p := range spec.Policies() {
		t.Run(p.Name(), func(t *testing.T) { policytest.Run(t, p) })
	}
}
