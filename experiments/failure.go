package experiments

import (
	"regexp"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
)

// blamed are the parts of a testbed that errors name.
var blamed = regexp.MustCompile(`\b(host|switch) ([^\s:,]+)`)

// failure is the part of the testbed that an error names first, nil where it names none.
func failure(err error, inv *inventory.Inventory) *results.Failure {
	if err == nil {
		return nil
	}
	nodes := map[string]string{}
	for _, h := range inv.Hosts {
		nodes[h.Name] = "host"
	}
	for _, sw := range inv.Switches {
		nodes[sw.Name] = "switch"
	}
	for _, m := range blamed.FindAllStringSubmatch(err.Error(), -1) {
		if nodes[m[2]] == m[1] {
			return &results.Failure{Kind: m[1], Of: m[2]}
		}
	}
	return nil
}
