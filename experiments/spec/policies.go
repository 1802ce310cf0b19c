package spec

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/netpack"
	"github.com/inabench/inabench/placement/titan"
)

// added makes those of other modules; see AddPolicy.
var added []func() cluster.Policy

// AddPolicy adds a placement of another module, which has a name of its own. It is for a program's main. Each call of
// make is for one batch or one run: what a policy keeps between batches is in what it returns.
func AddPolicy(make func() cluster.Policy) {
	name := make().Name()
	if _, err := Policy(name, Options{}); err == nil {
		panic("spec: two placement policies are called " + name)
	}
	added = append(added, make)
}

// Options are what studies set of policies that have something to set. The zero value is for all others.
type Options struct {
	Titan   titan.Options   // of Titan's policies, but for the reading
	NetPack netpack.Options // of NetPack's, but for the variant
}

// policies makes the placements that a spec can name, first the default. Each call makes
// new ones: some keep memory between batches. Titan's have these options, but for the reading.
func policies(o Options) []cluster.Policy {
	all := baseline.All()
	for _, o.NetPack.Variant = range []netpack.Variant{netpack.Corrected, netpack.Published} {
		all = append(all, netpack.New(o.NetPack))
	}
	o.NetPack.Variant = netpack.Corrected
	all = append(all, netpack.Plus(o.NetPack))
	for _, o.Titan.Reading = range titan.Readings() {
		all = append(all, titan.New(o.Titan))
	}
	all = append(all,
		baseline.ElasticFlow(), baseline.ElasticFlow().PowerOfTwo(), baseline.ElasticFlowClosest(),
		baseline.ElasticFlowIdle(), baseline.ElasticFlowIdle().PowerOfTwo(),
		baseline.HiveD(), baseline.Tiresias(0))
	for _, make := range added {
		all = append(all, make())
	}
	return all
}

// Policies are the placements that a spec can name, for inventories.
func Policies() []placement.Policy {
	var all []placement.Policy
	for _, p := range policies(Options{}) {
		all = append(all, placement.On(p))
	}
	return all
}

// Policy finds a placement by its name, with what these options say of it.
func Policy(name string, o Options) (cluster.Policy, error) {
	all := policies(o)
	if i := slices.IndexFunc(all, func(p cluster.Policy) bool { return p.Name() == name }); i >= 0 {
		return all[i], nil
	}
	return nil, among(name, namesOf(all))
}

// among is an error, which wraps ErrInput, for a policy that is not among those of these names.
func among(name string, names []string) error {
	if slices.Contains(names, name) {
		return nil
	}
	return Invalid(tomlfile.WithHint(tomlfile.OneOf(name, names), "unknown placement policy %q", name))
}

func namesOf(all []cluster.Policy) (names []string) {
	for _, p := range all {
		names = append(names, p.Name())
	}
	return names
}

// Labels are a point's labels on one line.
func Labels(l []string) string { return strings.Join(l, " ") }

// Prefix begins an error about a point: "point a=1: ", or nothing where there is one point.
func Prefix(l []string) string {
	if len(l) == 0 {
		return ""
	}
	return "point " + Labels(l) + ": "
}

// IsInventory says whether a TOML file is an inventory rather than an experiment,
// by what only one of them has. name is its path for messages.
func IsInventory(name string, text []byte) (bool, error) {
	f, err := tomlfile.Parse(filepath.Clean(name), text)
	if err != nil {
		return false, err
	}
	return (f.Has("host") || f.Has("switch[0]")) && !f.Has("job"), nil
}
