package baseline_test

import (
	"testing"

	"github.com/inabench/inabench/placement/baseline"
)

func TestRules(t *testing.T) {
	seen := map[string]string{}
	for _, p := range baseline.All() {
		rule := p.(baseline.Policy).Rule()
		if other := seen[rule]; rule == "" || other != "" {
			t.Errorf("%s has the rule %q, as has %q", p.Name(), rule, other)
		}
		seen[rule] = p.Name()
	}
}
