package remote_test

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// noNamespaces is why the tests are not running inside an emulation's namespaces.
var noNamespaces error

func TestMain(m *testing.M) {
	noNamespaces = netnstest.Main(netnstest.Parts{"agent": agent.Main})
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	testbedtest.Run(t, testbedtest.Config{Open: open})
}

// The same with hosts and switches that hand frames over together.
func TestConformanceOffload(t *testing.T) {
	if testing.Short() {
		t.Skip("short: TestConformance runs the same code")
	}
	testbedtest.Require(t, "netns", noNamespaces)
	testbedtest.Run(t, testbedtest.Config{Open: func(ctx context.Context, inv *inventory.Inventory) (testbed.Testbed, error) {
		return emulate(ctx, inv, netns.Options{Queue: "drr", Seed: 1, Offload: true})
	}})
}

// The same with hosts that run what a lab's hosts run.
func TestConformanceOpenSSH(t *testing.T) {
	if testing.Short() {
		t.Skip("short: TestConformance runs the same code")
	}
	_, err := netns.FindOpenSSH()
	testbedtest.Require(t, "openssh", err)
	testbedtest.Require(t, "netns", noNamespaces)
	testbedtest.Run(t, testbedtest.Config{Open: func(ctx context.Context, inv *inventory.Inventory) (testbed.Testbed, error) {
		return emulate(ctx, inv, netns.Options{Queue: "drr", Seed: 1, SSHD: netns.OpenSSH})
	}})
}

// open emulates inv and connects to it as to a lab.
func open(ctx context.Context, inv *inventory.Inventory) (testbed.Testbed, error) {
	return emulate(ctx, inv, netns.Options{Queue: "drr", Seed: 1})
}

func emulate(ctx context.Context, inv *inventory.Inventory, o netns.Options, more ...func(*remote.Options)) (testbed.Testbed, error) {
	f, err := netns.Up(ctx, inv, o)
	if err != nil {
		return nil, err
	}
	opt := remote.Options{
		Fabric: f, Exe: "/proc/self/exe", Offload: o.Offload,
		HostMAC: func(host, device string) (net.HardwareAddr, error) { return f.HostMAC(host, device), nil },
		Capabilities: testbed.Capabilities{
			Sums: true, Impairments: true, Calibrates: true, Kind: results.Measured, Switch: "soft", SuperFrames: o.Offload,
		},
	}
	for _, set := range more {
		set(&opt)
	}
	return remote.Open(ctx, opt)
}
