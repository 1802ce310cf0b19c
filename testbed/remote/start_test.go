package remote_test

import (
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// A job whose gradients never reach its PS does not start, which takes a bounded time
// and says where to look. The testbed is as good as before.
func TestStartWithoutResults(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	inv := &inventory.Inventory{Switches: []inventory.Switch{{Name: "tor1", Kind: inventory.Soft, Aggregators: 64}}}
	for i, name := range []string{"h1", "h2"} {
		inv.Hosts = append(inv.Hosts, inventory.Host{Name: name, GPUs: 1, NICs: []inventory.NIC{{
			Device: "eth0", Switch: "tor1", Port: uint32(i + 1), Rate: 8e6, Delay: time.Millisecond,
		}}})
	}
	const limit = 2 * time.Second
	tb, err := emulate(t.Context(), inv, netns.Options{}, func(o *remote.Options) { o.StartTimeout = limit })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	job := placement.JobPlan{ID: 1, Name: "A", Collective: placement.INA, PS: "h2", Workers: []placement.Worker{{Host: "h1"}}}
	if err := placement.BuildTree(tb.Inventory().Topology(), tb.Inventory(), &job); err != nil {
		t.Fatal(err)
	}
	// start deploys and starts the job over a link to the PS that loses so much.
	start := func(loss float64) (time.Duration, error) {
		d, err := tb.Deploy(t.Context(), testbed.Setup{
			Plan:      &placement.Plan{Jobs: []placement.JobPlan{job}},
			Settings:  testbed.Settings{Lanes: 64},
			Workloads: []testbed.Workload{{Job: job, Window: 16, RTO: 20 * time.Millisecond}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := d.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		if err := d.SetLink(t.Context(), "tor1->h2", testbed.LinkState{Loss: loss}); err != nil {
			t.Fatal(err)
		}
		began := d.Now()
		err = d.Start(t.Context(), "A")
		return d.Now() - began, err
	}
	took, err := start(1)
	want := "start job A: worker A/0 on host h1: waiting until it is started: no result came back within 2.00 s: is every cable where the inventory says?"
	if err == nil || !strings.HasPrefix(err.Error(), want) || took < limit {
		t.Errorf("without results, after %v: %v, want %s", took, err, want)
	}
	if took, err := start(0); err != nil {
		t.Errorf("with a sound link, after %v: %v", took, err)
	}
}
