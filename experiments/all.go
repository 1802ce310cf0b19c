package experiments

import (
	"reflect"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// kinds are all kinds of study besides [[job]] tables, the only list of them.
var kinds = spec.Kinds{
	{
		Table: "trace", Type: reflect.TypeFor[*Trace](),
		Unplanned: tomlfile.WithHint("`inabench place` places some jobs at once, `inabench run --on sim` all of them as they come", "the jobs of a trace are placed as they come: there is no plan"),
	},
	{
		Table: "operations", Type: reflect.TypeFor[*Operations](), Jobs: "[[operations.job]]", Mute: true, Ranks: true, Trees: true,
		Unplanned: tomlfile.WithHint("`inabench run --on sim` simulates them in seconds", "hosts and trees of operations are chosen as jobs come: there is no plan"),
	},
	{
		Table: "service", Type: reflect.TypeFor[*Service](), Jobs: "[[service.job]]", Mute: true, Leaving: true, Single: true,
		Faultless: "the processes of a Parameter Service have no faults",
		Unplanned: tomlfile.WithHint("`inabench run --on sim` simulates them in seconds", "Aggregators of a service are chosen as jobs come: there is no plan"),
	},
	{Table: "training", Type: reflect.TypeFor[*Training](), Mute: true, Ranks: true},
	{
		Table: "program", Type: reflect.TypeFor[Programs](), More: []tomlfile.Table{{Key: "sharp", Type: reflect.TypeFor[*SHARPSetup]()}}, Mute: true, Foreign: true, Looks: true,
		Faultless: "programs of others have no faults",
		Unplanned: tomlfile.WithHint("`inabench run` starts them on netns or in a lab", "programs of others run where the experiment says: there is no plan"),
	},
}

// Load reads an experiment of any of these kinds; see Kinds.Load.
func Load(path string, sets ...string) (*spec.Spec, error) { return kinds.Load(path, sets...) }

// Parse is Load for a text at hand; see Kinds.Parse.
func Parse(name string, text []byte, inv *inventory.Inventory, sets ...string) (*spec.Spec, error) {
	return kinds.Parse(name, text, inv, sets...)
}
