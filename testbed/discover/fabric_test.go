package discover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/ibfabric"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ibsimtest"
)

// A simulated fabric is asked with the real tools over SSH; then a cable fails, which is
// seen, and so is what it means.
func TestFabric(t *testing.T) {
	small := ibsimtest.Small
	sim := ibsimtest.Start(t, small.Net(), small.First())
	sm := sim.OpenSM("-R", "updn", "-a", sim.Spines(small))
	programs := map[string]string{}
	for _, name := range []string{"ibnetdiscover", "iblinkinfo", "dump_fts"} {
		programs[name] = "exec '" + strings.Join(sim.Argv(name), "' '") + "' \"$@\""
	}
	client := connect(t, programs)
	readings, err := Fabric(t.Context(), client, FabricOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := ibfabric.New(readings...)
	if err := f.Check(ibfabric.Expect{Hosts: 4, Switches: 5, ANs: 5}); err != nil {
		t.Fatal(err)
	}
	inv, _ := f.Inventory(ibfabric.Options{})
	check := func() []string {
		t.Helper()
		readings, err := Fabric(t.Context(), client, FabricOptions{Routes: true})
		if err != nil {
			t.Fatal(err)
		}
		return troubles(readings, inv)
	}
	if got := check(); len(got) != 0 {
		t.Errorf("%q", got)
	}

	port, _ := small.Uplink(1, 2, 0)
	sim.Console(`Unlink "S-%016x"[%d]`, small.LeafGUID(1), port)
	sm.Sweep()
	got := check()
	for _, want := range []string{"leaf2/5 - spine3/2: is missing", "no aggregation tree joins leaf2"} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%q: nothing of %q", got, want)
		}
	}
}

// troubles are what is wrong with a fabric: that it was not seen whole, where it differs from an inventory, and which
// aggregation nodes cannot talk to each other.
func troubles(readings []*ibfabric.Reading, inv *inventory.Inventory) (out []string) {
	f := ibfabric.New(readings...)
	var missing *ibfabric.IncompleteError
	if err := f.Check(ibfabric.Expect{}); errors.As(err, &missing) {
		out = append(out, missing.Missing...)
	}
	out = append(out, f.Remarks()...)
	found, _ := f.Inventory(ibfabric.Options{})
	for _, d := range inventory.Diff(ibfabric.Part(inv), found) {
		out = append(out, d.String())
	}
	for _, r := range readings {
		if routes := r.Routes(); routes != nil {
			for _, u := range f.Unreachables(routes) {
				out = append(out, fmt.Sprintf("no aggregation tree joins %s and %s: %v", u.From, u.To, u.Why))
			}
		}
	}
	return out
}

// What a host answers that has no tools, or does not let everybody use them.
func TestFabricRefused(t *testing.T) {
	failed := errors.New("exit status")
	for rdma, want := range map[string]string{"mlx5_1:2": "ibnetdiscover -C mlx5_1 -P 2", "mlx5_1": "ibnetdiscover -C mlx5_1 -P 1", "": "ibnetdiscover"} {
		_, err := fabric(t.Context(), FabricOptions{RDMA: rdma}, func(_ context.Context, argv []string) (hosts.Output, error) {
			if got := strings.Join(argv, " "); got != want {
				t.Errorf("%q: %s, want %s", rdma, got, want)
			}
			return hosts.Output{Exit: 127}, failed
		})
		if !errors.Is(err, failed) || !strings.Contains(err.Error(), "install infiniband-diags") {
			t.Error(err)
		}
	}
	if !needsRoot(hosts.Output{Stderr: []byte("ibwarn: [7] mad_rpc_open_port: can't open UMAD port ((null):0)")}) {
		t.Error("who may not open the device is not root")
	}
}
