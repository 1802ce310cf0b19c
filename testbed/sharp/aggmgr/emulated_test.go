package aggmgr_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina/clos"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/sharp/aggmgr"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// noNamespaces is why the tests are not running inside an emulation's namespaces.
var noNamespaces error

// TestMain: the test binary runs itself again inside namespaces, and is the hosts and
// switches there.
func TestMain(m *testing.M) {
	ctx := context.Background()
	if len(os.Args) > 1 && os.Args[1] == "netns-host" {
		if err := netns.HostMain(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	inside, code, err := netns.Reexec(ctx)
	if err == nil && !inside {
		os.Exit(code)
	}
	noNamespaces = err
	if lo, err := netlink.LinkByName("lo"); inside && err == nil {
		netlink.LinkSetUp(lo) // tests that need it fail otherwise
	}
	os.Exit(m.Run())
}

// TestP4Switches sets trees up on emulated switches, which are read, and have a quota of
// their own: what a switch refuses is refused as a quota, and leaves nothing.
func TestP4Switches(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	inv, err := clos.Spec{
		Down: []int{1, 2}, Up: []int{1, 1}, Rate: 1e9, Delay: time.Microsecond,
		Switch: "kind = \"soft\"\naggregators = 64\nsharp = {trees = 2, jobs = 1}",
	}.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	f, err := netns.Up(t.Context(), inv, netns.Options{Seed: 1, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	fabric := aggmgr.FabricOf(f.Inventory())
	for i := range fabric.Switches {
		fabric.Switches[i].Trees = 9 // which is wrong
	}
	switches, err := aggmgr.DialSwitches(t.Context(), fabric)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := switches.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	m, err := aggmgr.New(aggmgr.Config{Fabric: fabric, Switches: switches})
	if err != nil {
		t.Fatal(err)
	}
	read := func(sw string) []ina.JobEntry {
		t.Helper()
		jobs, err := switches[sw].ReadJobs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return jobs
	}
	hosts := []string{"h2", "h1"}
	g, err := m.Begin(t.Context(), aggmgr.Request{Job: 5, Hosts: hosts, OSTs: 8, Root: "spine1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Begin(t.Context(), aggmgr.Request{Job: 6, Hosts: hosts, OSTs: 8, Root: "spine1"}); err != nil {
		t.Fatal(err)
	}
	_, err = m.Begin(t.Context(), aggmgr.Request{Job: 7, Hosts: hosts, OSTs: 8, Root: "spine1"})
	if !errors.Is(err, aggmgr.ErrQuota) || !errors.Is(err, aggmgr.ErrSwitch) {
		t.Errorf("a third tree: %v", err)
	}
	// The spine has the leaves below, leaf2 with rank 0.
	want := []ina.JobEntry{
		{Job: 5, Epoch: 1, Mode: ina.Exclusive, Size: 16, Window: 8, Expect: 3, Root: true, DownGroup: 5},
		{Job: 6, Epoch: 1, Mode: ina.Exclusive, Base: 16, Size: 16, Window: 8, Expect: 3, Root: true, DownGroup: 6},
	}
	if diff := cmp.Diff(want, read("spine1")); diff != "" {
		t.Errorf("spine1 (-want +got):\n%s", diff)
	}
	leaf := read("leaf2")
	if len(leaf) != 2 || leaf[0].Expect != 1 || leaf[0].Root || leaf[0].UpPort != uplink(t, inv, "leaf2") {
		t.Errorf("leaf2 has %+v", leaf)
	}
	if err := m.End(t.Context(), g.Tree.Job); err != nil {
		t.Error(err)
	}
	if _, err := m.Begin(t.Context(), aggmgr.Request{Job: 7, Hosts: hosts, OSTs: 8, Root: "spine1"}); err != nil {
		t.Errorf("a third tree, when another is gone: %v", err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, s := range fabric.Switches {
		if left := read(s.Name); len(left) > 0 {
			t.Errorf("left on %s: %+v", s.Name, left)
		}
	}
}

func uplink(t *testing.T, inv *inventory.Inventory, leaf string) uint32 {
	for _, l := range inv.Links {
		if l.A.Switch == leaf {
			return l.A.Port
		}
		if l.B.Switch == leaf {
			return l.B.Port
		}
	}
	t.Fatalf("%s has no uplink", leaf)
	return 0
}

// BenchmarkBegin begins and ends a job of 16 hosts on the paper's 1,024, where an allocator has chosen the switches and
// where it has chosen the root alone.
func BenchmarkBegin(b *testing.B) {
	inv, err := clos.Spec{
		Down: []int{8, 8, 16}, Up: []int{1, 8, 8}, Rate: 1e9, Delay: time.Microsecond,
		Switch: "kind = \"soft\"\naggregators = 4096\nsharp = {trees = 126, jobs = 1}",
	}.Inventory()
	if err != nil {
		b.Fatal(err)
	}
	fabric := aggmgr.FabricOf(inv)
	m, err := aggmgr.New(aggmgr.Config{Fabric: fabric, Switches: newBoard()})
	if err != nil {
		b.Fatal(err)
	}
	r := aggmgr.Request{Job: 1, Root: fabric.Switches[len(fabric.Switches)-1].Name}
	for i := range 16 {
		r.Hosts = append(r.Hosts, fmt.Sprintf("h%d", 64*i+1))
	}
	g, err := m.Begin(b.Context(), r)
	if err != nil {
		b.Fatal(err)
	}
	chosen := r
	for _, n := range g.Nodes {
		chosen.Via = append(chosen.Via, n.Switch)
	}
	if err := m.End(b.Context(), g.Tree.Job); err != nil {
		b.Fatal(err)
	}
	for name, r := range map[string]aggmgr.Request{"switches": chosen, "root": r} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				g, err := m.Begin(b.Context(), r)
				if err != nil {
					b.Fatal(err)
				}
				if err := m.End(b.Context(), g.Tree.Job); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
