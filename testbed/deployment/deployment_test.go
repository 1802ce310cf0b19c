package deployment_test

import (
	"context"
	"flag"
	"net"
	"os"
	"testing"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/collectors/reader"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/deployment"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// noNamespaces is why the tests are not running inside an emulation's namespaces.
var noNamespaces error

func TestMain(m *testing.M) {
	noNamespaces = netnstest.Main(netnstest.Parts{"agent": agent.Main, collectors.ReaderVerb: reader.Main})
	flag.Set("test.parallel", "4") // whatever the cores: they mostly wait
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	conform(t, open)
}

// conform runs the suite beside others.
func conform(t *testing.T, open func(context.Context, *inventory.Inventory) (testbed.Testbed, error)) {
	testbedtest.Require(t, "netns", noNamespaces)
	t.Parallel()
	if netnstest.Apart(t) {
		testbedtest.Run(t, testbedtest.Config{Open: open})
	}
}

// The same with hosts and switches that hand frames over together.
func TestConformanceOffload(t *testing.T) {
	proof.Only(t, "TestConformance runs the same code")
	conform(t, func(ctx context.Context, inv *inventory.Inventory) (testbed.Testbed, error) {
		return emulate(ctx, inv, netns.Options{Queue: "drr", Seed: 1, Offload: true})
	})
}

// The same with hosts that run what a lab's hosts run.
func TestConformanceOpenSSH(t *testing.T) {
	proof.Only(t, "TestConformance runs the same code")
	_, err := netns.FindOpenSSH()
	testbedtest.Require(t, "openssh", err)
	conform(t, func(ctx context.Context, inv *inventory.Inventory) (testbed.Testbed, error) {
		return emulate(ctx, inv, netns.Options{Queue: "drr", Seed: 1, SSHD: netns.OpenSSH})
	})
}

// The same with switches that somebody else wrote, which run this project's P4 program.
func TestConformanceBMv2(t *testing.T) {
	_, err := netns.FindBMv2()
	testbedtest.Require(t, "bmv2", err)
	conform(t, func(ctx context.Context, inv *inventory.Inventory) (testbed.Testbed, error) {
		return emulate(ctx, inv, netns.Options{Queue: "drr", Seed: 1, Switch: netns.BMv2})
	})
}

// open emulates inv and connects to it as to a lab.
func open(ctx context.Context, inv *inventory.Inventory) (testbed.Testbed, error) {
	return emulate(ctx, inv, netns.Options{Queue: "drr", Seed: 1})
}

func emulate(ctx context.Context, inv *inventory.Inventory, o netns.Options, more ...func(*remote.Options, *deployment.Options)) (testbed.Testbed, error) {
	f, err := netns.Up(ctx, inv, o)
	if err != nil {
		return nil, err
	}
	opt := remote.Options{
		Fabric: f, Exe: "/proc/self/exe",
		HostMAC: func(host, device string) (net.HardwareAddr, error) { return f.HostMAC(host, device), nil },
		Capabilities: testbed.Capabilities{
			Sums: true, Impairments: true, Calibrates: true, Kind: results.Measured, Switch: "soft", SuperFrames: o.Offload,
		},
	}
	jobs := deployment.Options{Offload: o.Offload}
	for _, set := range more {
		set(&opt, &jobs)
	}
	return deployment.Open(ctx, opt, jobs)
}

// twoHosts are h1 and h2 at one switch.
func twoHosts() *inventory.Inventory {
	inv := &inventory.Inventory{Switches: []inventory.Switch{{Name: "tor1", Kind: inventory.Soft, Aggregators: 64}}}
	for i, name := range []string{"h1", "h2"} {
		inv.Hosts = append(inv.Hosts, inventory.Host{Name: name, GPUs: 1, NICs: []inventory.NIC{{
			Device: "eth0", Switch: "tor1", Port: uint32(i + 1), Rate: 8e6, Delay: time.Millisecond,
		}}})
	}
	return inv
}

// jobA is what is deployed on twoHosts: a job of one worker, on h1, whose PS is h2.
func jobA(t *testing.T, inv *inventory.Inventory, w testbed.Workload) testbed.Setup {
	t.Helper()
	w.Job = placement.JobPlan{ID: 1, Name: "A", Collective: placement.INA, PS: "h2", Workers: []placement.Worker{{Host: "h1"}}}
	if err := placement.BuildTree(inv.Topology(), inv, &w.Job); err != nil {
		t.Fatal(err)
	}
	return testbed.Setup{
		Plan:      &placement.Plan{Jobs: []placement.JobPlan{w.Job}},
		Settings:  testbed.Settings{Lanes: 64},
		Workloads: []testbed.Workload{w},
	}
}

// ringB is a ring of both of twoHosts.
func ringB(t *testing.T, inv *inventory.Inventory) placement.JobPlan {
	t.Helper()
	j := placement.JobPlan{ID: 2, Name: "B", Collective: placement.Ring, Workers: []placement.Worker{{Host: "h1"}, {Host: "h2", Rank: 1}}}
	if err := placement.BuildTree(inv.Topology(), inv, &j); err != nil {
		t.Fatal(err)
	}
	return j
}

// lossy emulates twoHosts until the test ends. What it returns deploys jobA with a cable that
// loses so much, for as long as a function takes.
func lossy(t *testing.T, link string, set func(*remote.Options, *deployment.Options)) (tb testbed.Testbed, with func(loss float64, do func(testbed.Deployment))) {
	t.Helper()
	tb, err := emulate(t.Context(), twoHosts(), netns.Options{}, set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	setup := jobA(t, tb.Inventory(), testbed.Workload{Window: 16, RTO: 20 * time.Millisecond})
	return tb, func(loss float64, do func(testbed.Deployment)) {
		t.Helper()
		d, err := tb.Deploy(t.Context(), setup)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := d.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		if err := d.SetLink(t.Context(), link, testbed.LinkState{Loss: loss}); err != nil {
			t.Fatal(err)
		}
		do(d)
	}
}
