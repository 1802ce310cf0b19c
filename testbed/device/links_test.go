package device_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/personality"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
)

// lab is a Tofino with the SDE's BFRuntime server, ports 1/0 and 2/0 of which are set up as the inventory says, and the
// inventory.
func lab(t *testing.T) (*personality.BFRuntime, *inventory.Inventory) {
	t.Helper()
	s, err := personality.StartBFRuntime(t.Context(), personality.Options{
		Upstream: softswitchtest.Serve(t, 7, one{}), UpstreamDevice: 7,
		Ports: map[uint32]uint32{1: 132, 2: 140, 3: 148}, Names: map[uint32]string{1: "1/0", 2: "2/0", 3: "3/0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	text, _ := infos(t)
	dir := write(t, map[string][]byte{"p4info.txtpb": text, "bf-rt.json": personality.BFRTInfo(p4.Info()), "context.json": []byte("{}"), "tofino.bin": {1}})
	in := func(name string) string { return filepath.Join(dir, name) }
	sw := inventory.Switch{Name: "tor1", Kind: inventory.Tofino, Control: s.Addr, Server: inventory.Server{
		DeviceConfig: inventory.BFRTConfig, Ports: map[uint32]string{1: "1/0", 2: "2/0", 3: "3/0"},
		Port:    inventory.PortSetup{FEC: "rs", Autoneg: "off", Lanes: 4},
		Program: inventory.Program{Name: "ina_tna", P4Info: in("p4info.txtpb"), BFRT: in("bf-rt.json"), Context: in("context.json"), Binary: in("tofino.bin")},
	}}
	inv := &inventory.Inventory{Switches: []inventory.Switch{sw}, Hosts: []inventory.Host{
		{Name: "h1", NICs: []inventory.NIC{{Switch: "tor1", Port: 1, Rate: 100e9}}},
		{Name: "h2", NICs: []inventory.NIC{{Switch: "tor1", Port: 2, Rate: 100e9}}},
	}}
	cables := device.Cables(inv.Topology(), "tor1")
	c, err := device.Dial(t.Context(), sw, cables, dataplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	p, err := device.LoadProgram(sw)
	if err != nil {
		t.Fatal(err)
	}
	if err := device.Push(t.Context(), c, sw, cables, p); err != nil {
		t.Fatal(err)
	}
	return s, inv
}

// TestLinks: each cabled port is told as the server has it, and against the inventory: a difference names the port by what is
// printed at it and by the chip's number, what is, and what should be.
func TestLinks(t *testing.T) {
	const well = "up, 100Gbit/s, FEC rs, autonegotiation off, no errors"
	s, built := lab(t)
	const broken = "up, 100Gbit/s, FEC rs, autonegotiation off, FramesReceivedwithFCSError 3, FrameswithanyError 3"
	for _, tt := range []struct {
		name string
		edit func(*inventory.Inventory) // or what becomes of the switch, for good
		want []string
		bad  int
	}{
		{"as it should be", nil, []string{"port 1/0 (dev_port 132): " + well, "port 2/0 (dev_port 140): " + well}, 0},
		{"another speed", func(inv *inventory.Inventory) { inv.Hosts[0].NICs[0].Rate = 25e9 },
			[]string{"port 1/0 (dev_port 132): speed is 100Gbit/s, should be 25Gbit/s", "port 2/0 (dev_port 140): " + well}, 1},
		{"another setup", func(inv *inventory.Inventory) {
			inv.Switches[0].Port = inventory.PortSetup{FEC: "none", Lanes: 2}
		}, []string{
			"port 1/0 (dev_port 132): FEC is rs, should be none, autonegotiation is off, should be default, lanes is 4, should be 2",
			"port 2/0 (dev_port 140): FEC is rs, should be none, autonegotiation is off, should be default, lanes is 4, should be 2",
		}, 2},
		{"set up by hand, as nobody knows", func(inv *inventory.Inventory) {
			inv.Switches[0].Port = inventory.PortSetup{Manual: true}
		}, []string{"port 1/0 (dev_port 132): " + well, "port 2/0 (dev_port 140): " + well}, 0},
		{"another cable", func(inv *inventory.Inventory) {
			inv.Hosts = append(inv.Hosts, inventory.Host{Name: "h3", NICs: []inventory.NIC{{Switch: "tor1", Port: 3, Rate: 25e9}}})
		}, []string{
			"port 1/0 (dev_port 132): " + well, "port 2/0 (dev_port 140): " + well,
			"port 3/0 (dev_port 148): is not set up, should be up with 25Gbit/s, FEC rs, autonegotiation off",
		}, 1},
		{"errors", func(*inventory.Inventory) { s.Break(132, 3) }, []string{"port 1/0 (dev_port 132): " + broken, "port 2/0 (dev_port 140): " + well}, 0},
		{"no link", func(*inventory.Inventory) { s.Unplug(140) },
			[]string{"port 1/0 (dev_port 132): " + broken, "port 2/0 (dev_port 140): is down, should be up"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inv := built.Clone()
			if tt.edit != nil {
				tt.edit(inv)
			}
			d := device.Diagnose(t.Context(), inv, inv.Switches[0], 10*time.Second)
			if d.Error != "" {
				t.Fatal(d.Error)
			}
			var got []string
			bad := 0
			for _, l := range d.Links {
				got = append(got, l.String())
				if len(l.Wrong) > 0 {
					bad++
				}
				if len(l.Wrong) > 0 && !strings.Contains(l.Hint(), "cable") {
					t.Errorf("%v: to do: %q", l, l.Hint())
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || bad != tt.bad {
				t.Errorf("%d wrong, want %d (-want +got):\n%s", bad, tt.bad, diff)
			}
		})
	}
}

// TestWhose: whose program a switch runs is told with its name, and whether a run leaves it there.
func TestWhose(t *testing.T) {
	_, inv := lab(t)
	c, err := device.Dial(t.Context(), inv.Switches[0], nil, dataplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	theirs := bfrt.Config{
		Program: "fabric", BFRT: []byte(`{"tables": [{"name": "pipe.FabricIngress.acl", "id": 5, "table_type": "MatchAction_Direct", "key": [], "data": []}]}`),
		Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte("{}"), Binary: []byte{9}}},
	}
	if err := errors.Join(c.Restore(t.Context(), theirs.Marshal()), c.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	for replace, want := range map[bool]string{
		false: "one that is not inabench's, which no run replaces without replace_program: fabric",
		true:  "one that is not inabench's, which a run replaces: fabric",
	} {
		inv.Switches[0].ReplaceProgram = replace
		if d := device.Diagnose(t.Context(), inv, inv.Switches[0], 10*time.Second); d.Pipeline != want {
			t.Errorf("%+v, want %q", d, want)
		}
	}
}
