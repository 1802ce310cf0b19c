package experiments

import (
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study/autops"
	"github.com/inabench/inabench/experiments/study/programs"
	"github.com/inabench/inabench/experiments/study/ranks"
	"github.com/inabench/inabench/experiments/study/stream"
	"github.com/inabench/inabench/experiments/study/turns"
	"github.com/inabench/inabench/inventory"
)

// kinds are all kinds of study besides [[job]] tables, the only list of them.
var kinds = spec.Kinds{stream.Kind, turns.Kind, autops.Kind, ranks.Kind, programs.Kind}

// Load reads an experiment of any of these kinds; see Kinds.Load.
func Load(path string, sets ...string) (*spec.Spec, error) { return kinds.Load(path, sets...) }

// Parse is Load for a text at hand; see Kinds.Parse.
func Parse(name string, text []byte, inv *inventory.Inventory, sets ...string) (*spec.Spec, error) {
	return kinds.Parse(name, text, inv, sets...)
}
