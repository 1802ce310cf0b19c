package ibfabric

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/inventory"
)

// What a lane is called, and what of it is data (the kernel's sysfs "rate" names the
// same links 56, 100, 200 and 400 Gb/sec).
func TestSpeed(t *testing.T) {
	for _, x := range []struct {
		in   string
		want Speed
		rate inventory.BitRate
	}{
		{"4xSDR", Speed{4, "SDR"}, 8e9},
		{"4xQDR", Speed{4, "QDR"}, 32e9},
		{"4xFDR10", Speed{4, "FDR10"}, 40e9},
		{"4x14.0625", Speed{}, 0},
		{"4xEDR", Speed{4, "EDR"}, 100e9},
		{"4xHDR", Speed{4, "HDR"}, 200e9},
		{"2xHDR", Speed{2, "HDR"}, 100e9},
		{"4x HDR", Speed{4, "HDR"}, 200e9},
		{"4xNDR", Speed{4, "NDR"}, 400e9},
		{"8xXDR", Speed{8, "XDR"}, 1600e9},
		{"0xHDR", Speed{}, 0},
		{"4xLDR", Speed{}, 0},
	} {
		got, ok := parseSpeed(x.in)
		if got != x.want || ok != x.want.Known() || got.Rate() != x.rate {
			t.Errorf("%q: %v, %v, %v", x.in, got, ok, got.Rate())
		}
	}
	for signal, want := range map[string]string{"14.0625": "FDR", "25.78125": "EDR", "53.125": "HDR", "106.25": "NDR", "212.5": "XDR", "10.0": "QDR", "FDR10": "FDR10", "50": "HDR", "2.5": "SDR"} {
		if got, ok := lane(signal); !ok || got != want {
			t.Errorf("%s: %s", signal, got)
		}
	}
}

// Shapes of single lines, the ones that real fabrics add to the simulated included.
func TestLines(t *testing.T) {
	read := func(text string) *Fabric {
		t.Helper()
		r, err := Parse("x", text)
		if err != nil {
			t.Fatal(err)
		}
		return New(r)
	}
	// A managed switch with its own lid at enhanced port 0, and names with anything in them.
	f := read("vendid=0x2c9\ndevid=0xd2f0\nsysimgguid=0xb8599f0300fc6de4\nswitchguid=0xb8599f0300fc6de4(b8599f0300fc6de4)\n" +
		"Switch\t41 \"S-b8599f0300fc6de4\"\t\t# \"MF0;r-ufm-sw95:MQM8700/U1\" enhanced port 0 lid 13 lmc 0\n" +
		"[1]\t\"H-0002c903000e0b72\"[2](2c903000e0b74) \t\t# \"a \"quoted\" lid 3 name\" lid 4 2xHDR\n" +
		"\nCa\t2 \"H-0002c903000e0b72\"\t\t# \"a \"quoted\" lid 3 name\"\n[2](2c903000e0b74) \t\"S-b8599f0300fc6de4\"[1]\t\t# lid 4 lmc 0 \"MF0;r-ufm-sw95:MQM8700/U1\" lid 13 2xHDR\n")
	sw := f.Nodes[0xb8599f0300fc6de4]
	if sw == nil || sw.Device != 0xd2f0 || sw.Size != 41 || sw.Kind != Switch {
		t.Fatalf("%+v", sw)
	}
	ca := f.Nodes[0x0002c903000e0b72]
	if ca == nil || ca.Desc != `a "quoted" lid 3 name` || ca.Kind != Adapter || ca.Ports[2].LID != 4 {
		t.Fatalf("%+v", ca)
	}
	if s := sw.Ports[1].Speed; s != (Speed{2, "HDR"}) {
		t.Errorf("%v", s)
	}
	if inv, _ := f.Inventory(Options{}); inv.Switches[0].Name != "r-ufm-sw95" || inv.Hosts[0].Name != "a-quoted-lid-3-name" {
		t.Errorf("%+v", inv)
	}

	// A link that runs below what both ends can, and a port that is being trained.
	f = read(`0xb8599f0300100200 "                         leaf3"      3    1[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>  0x98039b0300200041     13    1[  ] "host4 HCA-1" ( Could be 53.125 Gbps)
0xb8599f0300100200 "                         leaf3"      3    2[ 1 ] ==( 4X           2.5 Gbps   Init/  LinkUp)==>  0x98039b0300200051     14    1[  ] "host5 HCA-1" ( )
0xb8599f0300100200 "                         leaf3"      3    3[  ] ==(                Down/Disabled)==>             [  ] "" ( )
`)
	p := f.Nodes[0xb8599f0300100200].Ports
	if p[1].Speed.Lane != "EDR" || p[1].Could.Lane != "HDR" || p[2].State != "Init" || p[3].State != "Down" || p[3].Peer != (PortID{}) {
		t.Errorf("%+v %+v %+v", p[1], p[2], p[3])
	}
	if got := strings.Join(f.Remarks(), "\n"); !strings.Contains(got, "runs at 4xEDR; both ends could HDR") || !strings.Contains(got, "1 of 2 cables in state Init") {
		t.Error(got)
	}

	// A cable of which one lane is left.
	f = read(`0xb8599f0300100200 "                         leaf3"      3    1[  ] ==( 1X      25.78125 Gbps Active/  LinkUp)==>  0x98039b0300200041     13    1[  ] "host4 HCA-1" ( Could be 4X )
`)
	if got := strings.Join(f.Remarks(), "\n"); !strings.Contains(got, "runs at 1xEDR; both ends could 4x") {
		t.Error(got)
	}

	// The numbers of opensm-subnet.lst are hexadecimal, and devices differ in byte order.
	f = read(`{ SW Ports:29 SystemGUID:b8599f0300100000 NodeGUID:b8599f0300100000 PortGUID:b8599f0300100000 VenID:0002C9 DevID:D2F0 Rev:000000A1 {leaf1} LID:0010 PN:29 } { CA Ports:01 SystemGUID:b8599f0300100000 NodeGUID:b8599f0300100008 PortGUID:b8599f0300100009 VenID:000002C9 DevID:CF090000 Rev:000000A1 {anything} LID:0014 PN:01 } PHY=4x LOG=INI SPD=100
`)
	sw, an := f.Nodes[0xb8599f0300100000], f.AN(0xb8599f0300100000)
	if sw.Size != 41 || sw.Ports[41] == nil || an == nil || an.Ports[1].LID != 20 || an.Device != 0xcf09 || sw.Ports[41].Speed.Lane != "NDR" || sw.Ports[41].State != "Initialize" {
		t.Errorf("%+v %+v", sw, an)
	}
}

// What does not belong says where.
func TestRefused(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"", "x: this is no output of a tool that is known"},
		{"hello\n", "x: this is no output of a tool that is known"},
		{"Switch: 0xb8599f0300100200 leaf3:\n", "iblinkinfo -l"},
		{"vendid=0x2c9\nSwitch\t41 \"S-b8599f0300100200\"\t\t# \"leaf3\" base port 0 lid 3 lmc 0\n[1]\t\"H-98039b03", "x:3:1: a line that ibnetdiscover does not write"},
		{"Switch\t300 \"S-b8599f0300100200\"\n", `"300" is out of range`},
		{"Ca\t1 \"S-b8599f0300100200\"\n", "a Ca with the name of a switch"},
		{"vendid=0x2c9\n[1]\t\"H-98039b0300200040\"[1]\n", "a port before any node"},
		{"Switch\t36 \"S-b8599f0300100200\"\n[36]\t\"H-98039b0300200040\"[1]\t# \"h1\" lid 0 4xHDR\n[99]\t\"H-98039b0300200050\"[1]\t# \"h2\" lid 0 4xHDR\n", "x:3:1: port 99 of a node that has 36"},
		{"caguid=0x98039b0300200041\nCa\t1 \"H-98039b0300200040\"\n", "caguid says 0x98039b0300200041 of a node that is called"},
		{"Ca\t1 \"H-98039b0300200040\"\n[1]\t\"S-1\"[1]\t# \"s\" lid 1 4xYDR\n", `"4xYDR" is not a width and speed`},
		{"CA    22  1 0xb8599f0300100209 4x ??? - SW     3 41 0xb8599f0300100200 ( 'a' - 'b' )\nrest", "x:2:1: a line that ibnetdiscover -p does not write"},
		{"Unicast lids [0-24] of switch Lid 1 guid 0xb8599f0300100000 ('leaf1'):\n0x0001 300 # x\n", `"300" is out of range`},
	} {
		r, err := Parse("x", x.text)
		if r != nil || err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v", x.text, err)
		}
	}
}

// block is a node of ibnetdiscover with cables to ports of others.
func block(kind string, guid, system uint64, desc string, cables ...string) string {
	letter := map[string]string{"Switch": "S", "Ca": "H"}[kind]
	return fmt.Sprintf("\nsysimgguid=%#x\n%s\t40 \"%s-%016x\"\t# \"%s\"\n", system, kind, letter, guid, desc) + strings.Join(cables, "")
}

func cable(port int, kind string, guid uint64, there int) string {
	return fmt.Sprintf("[%d]\t\"%s-%016x\"[%d]\t# \"\" lid 0 4xHDR\n", port, kind, guid, there)
}

// What hosts are called, and which adapters are of one.
func TestHosts(t *testing.T) {
	type ca struct {
		system uint64
		desc   string
	}
	for _, x := range []struct {
		name string
		cas  []ca
		want []string // host: RDMA ports
	}{
		{"two rails", []ca{{1, "n1 HCA-2"}, {2, "n1 HCA-1"}}, []string{"n1: mlx5_0:1 mlx5_1:1"}}, // by label, not by GUID
		{"named by rdma-ndd", []ca{{1, "n1 mlx5_10"}, {2, "n1 mlx5_2"}}, []string{"n1: mlx5_2:1 mlx5_10:1"}},
		{"no label", []ca{{1, "n2"}, {2, "n10"}}, []string{"n2: mlx5_0:1", "n10: mlx5_0:1"}},
		{"clones", []ca{{1, "localhost HCA-1"}, {2, "localhost HCA-1"}}, []string{"localhost-0000000000000001: mlx5_0:1", "localhost-0000000000000002: mlx5_0:1"}},
		{"one card", []ca{{1, "n1"}, {1, "n1"}}, []string{"n1: mlx5_0:1 mlx5_1:1"}},
		{"factory", []ca{{0xab, "MT4123 ConnectX6   Mellanox Technologies"}, {0xac, "MT4123 ConnectX6   Mellanox Technologies"}}, []string{"host-00000000000000ab: mlx5_0:1", "host-00000000000000ac: mlx5_0:1"}},
		{"empty", []ca{{0xab, ""}}, []string{"host-00000000000000ab: mlx5_0:1"}},
		{"weird", []ca{{1, "ü/$(reboot)'; HCA-1"}, {2, "-n_1.lab- HCA-1"}}, []string{"n_1.lab: mlx5_0:1", "reboot: mlx5_0:1"}},
		{"as a switch", []ca{{1, "leaf HCA-1"}}, []string{"leaf-0000000000000100: mlx5_0:1"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			var text, ports strings.Builder
			for i, c := range x.cas {
				guid := uint64(0x100 + i)
				text.WriteString(block("Ca", guid, c.system, c.desc, cable(1, "S", 0x1, i+1)))
				ports.WriteString(cable(i+1, "H", guid, 1))
			}
			r, err := Parse("x", block("Switch", 0x1, 0x1, "leaf", ports.String())+text.String())
			if err != nil {
				t.Fatal(err)
			}
			inv, notes := New(r).Inventory(Options{Name: "x"})
			var got []string
			for _, h := range inv.Hosts {
				var nics []string
				for _, n := range h.NICs {
					nics = append(nics, n.RDMA)
				}
				got = append(got, h.Name+": "+strings.Join(nics, " "))
			}
			if diff := cmp.Diff(x.want, got); diff != "" {
				t.Error(diff)
			}
			if _, err := inventory.Parse("x", inventory.Format(inv, notes)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Everything that Check refuses.
func TestCheck(t *testing.T) {
	whole := block("Switch", 0x1, 0x1, "leaf", cable(1, "H", 0x10, 1), cable(2, "H", 0x11, 1)) +
		block("Ca", 0x10, 0x10, "a", cable(1, "S", 0x1, 1)) + block("Ca", 0x11, 0x11, "b", cable(1, "S", 0x1, 2))
	for _, x := range []struct {
		name, text string
		expect     Expect
		want       string // empty: nothing is wrong
	}{
		{"whole", whole, Expect{Hosts: 2, Switches: 1}, ""},
		{"fewer hosts", whole, Expect{Hosts: 3}, "2 of 3 hosts"},
		{"no aggregation nodes", whole, Expect{ANs: 1}, "0 of 1 aggregation nodes"},
		{"a named peer without a block", strings.Split(whole, "\nsysimgguid=0x11")[0], Expect{}, "0x0000000000000011 without a name is known from its neighbours only"},
		{"an end that does not know", strings.Replace(whole, cable(2, "H", 0x11, 1), "", 1), Expect{}, "b (0x0000000000000011) port 1 leads to leaf (0x0000000000000001) port 2, which knows nothing of it"},
		{"an end that says otherwise", strings.Replace(whole, cable(2, "H", 0x11, 1), cable(2, "H", 0x10, 1), 1), Expect{}, "port 2 leads to a (0x0000000000000010) port 1, which leads to leaf (0x0000000000000001) port 1"},
		{"no name", strings.Replace(whole, `"b"`, `""`, 1), Expect{}, "adapter 0x0000000000000011 without a name did not tell its name"},
		{"no speed", strings.ReplaceAll(whole, "4xHDR", "?????"), Expect{}, "did not tell its speed"},
		{"two speeds", strings.Replace(whole, "4xHDR", "1xHDR", 1), Expect{}, "is 1xHDR and its other end, a (0x0000000000000010) port 1, 4xHDR"},
		{"two parts", whole + strings.NewReplacer("0000001", "0000002").Replace(whole), Expect{}, "are not cabled to the rest"},
		{"stderr", "ibwarn: [29692] mad_rpc: _do_madrpc failed; dport (Lid 99)\n" + whole, Expect{}, "x: ibwarn: [29692] mad_rpc"},
		{"a route into the unknown", "./libibnetdisc/query_smp.c:186; umad (DR path slid 0; dlid 0; 0,1,7 Attr 0x11:0) bad status 110; Connection timed out\n" +
			"# Initiated from node 0000000000000010 port 0000000000000010\n" + whole, Expect{}, "no answer from what is behind leaf (0x0000000000000001) port 7 to NodeInfo"},
		{"one port twice", whole + block("Ca", 0x10, 0x10, "a", cable(1, "S", 0x1, 3)), Expect{}, "a (0x0000000000000010) port 1 leads to leaf (0x0000000000000001) port 1, and in x to leaf (0x0000000000000001) port 3"},
	} {
		t.Run(x.name, func(t *testing.T) {
			r, err := Parse("x", x.text)
			if err != nil {
				t.Fatal(err)
			}
			err = New(r).Check(x.expect)
			if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Two rails that are fabrics of their own, each discovered from its own port.
func TestRails(t *testing.T) {
	rail := func(sw, a, b uint64) string {
		return fmt.Sprintf("# Initiated from node %016x port %016x\n", a, a) + block("Switch", sw, sw, fmt.Sprintf("rail%d", sw), cable(1, "H", a, 1), cable(2, "H", b, 1)) +
			block("Ca", a, a, fmt.Sprintf("h1 HCA-%d", sw), cable(1, "S", sw, 1)) + block("Ca", b, b, fmt.Sprintf("h2 HCA-%d", sw), cable(1, "S", sw, 2))
	}
	var readings []*Reading
	for i, text := range []string{rail(1, 0x10, 0x11), rail(2, 0x20, 0x21)} {
		r, err := Parse(fmt.Sprint("net", i), text)
		if err != nil {
			t.Fatal(err)
		}
		readings = append(readings, r)
	}
	f := New(readings...)
	if err := f.Check(Expect{Hosts: 2, Switches: 2}); err != nil {
		t.Fatal(err)
	}
	inv, _ := f.Inventory(Options{Name: "x"})
	if len(inv.Hosts) != 2 || len(inv.Hosts[1].NICs) != 2 || inv.Hosts[1].NICs[1].Switch != "rail2" {
		t.Errorf("%+v", inv.Hosts)
	}
	// Ethernet beside it is not of the fabric.
	lab := inv.Clone()
	lab.Switches = append(lab.Switches, inventory.Switch{Name: "tor", Kind: inventory.Tofino})
	lab.Hosts[0].NICs = append(lab.Hosts[0].NICs, inventory.NIC{Device: "eth0", Switch: "tor", Port: 1})
	lab.Hosts = append(lab.Hosts, inventory.Host{Name: "gate", NICs: []inventory.NIC{{Device: "eth0", Switch: "tor", Port: 2}}})
	lab.Links = append(lab.Links, inventory.Link{A: inventory.Port{Switch: "tor", Port: 3}, B: inventory.Port{Switch: "rail1", Port: 3}})
	if d := inventory.Diff(Part(lab), inv); len(d) != 0 {
		t.Error(d)
	}
	if d := inventory.Diff(lab, inv); len(d) == 0 {
		t.Error("nothing is missing")
	}
}

// A cable between leaves makes no tree.
func TestNoTree(t *testing.T) {
	text := block("Switch", 0x1, 0x1, "s1", cable(1, "H", 0x10, 1), cable(2, "S", 0x2, 2)) +
		block("Switch", 0x2, 0x2, "s2", cable(1, "H", 0x11, 1), cable(2, "S", 0x1, 2)) +
		block("Ca", 0x10, 0x10, "a", cable(1, "S", 0x1, 1)) + block("Ca", 0x11, 0x11, "b", cable(1, "S", 0x2, 1))
	r, err := Parse("x", text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(r).FatTree(); err == nil || !strings.Contains(err.Error(), "no fat-tree") {
		t.Error(err)
	}
}

// Any text gives a reading or problems, and whatever was read can be checked, imported
// and routed through.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && len(text) < 8<<10 {
			f.Add(string(text))
		}
	}
	f.Add("./libibnetdisc/query_smp.c:186; umad (DR path slid 0; dlid 0; 0,1,38 Attr 0x15:23) bad status 110; Connection timed out\n")
	f.Add("0xb8599f0300100200 \"   leaf3\"      3    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>  0x98039b0300200041     13    1[  ] \"host4 HCA-1\" (Could be 12X )\n")
	f.Add("Switch\t41 \"S-b8599f0300100400\"\t\t# \"\" base port 0 lid 5 lmc 0\n[1]\t\"S-b8599f0300100000\"[38]\t\t# \"leaf1\" lid 1 ?????\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse("x", text)
		if (r == nil) != (err != nil) {
			t.Fatalf("%v, %v", r, err)
		}
		if r == nil {
			return
		}
		fabric := New(r)
		complete := fabric.Check(Expect{}) == nil
		fabric.FatTree()
		if routes := r.Routes(); routes != nil {
			for sw := range routes.Tables {
				fabric.Route(routes, sw, 1)
			}
			fabric.Roots(routes)
		}
		inv, notes := fabric.Inventory(Options{Name: "x"})
		if _, err := inventory.Parse("x", inventory.Format(inv, notes)); err != nil && complete && len(inv.Hosts) > 0 {
			t.Fatalf("%v\n%s", err, inventory.Format(inv, notes))
		}
	})
}

// Three tiers: leaves, spines, cores; and one that lacks a leaf's cable.
func TestTiers(t *testing.T) {
	const leaf, spine, core, host = 0x1, 0x2, 0x3, 0x10
	text := block("Switch", leaf, leaf, "leaf", cable(1, "H", host, 1), cable(2, "S", spine, 1)) +
		block("Switch", spine, spine, "spine", cable(1, "S", leaf, 2), cable(2, "S", core, 1)) +
		block("Switch", core, core, "core", cable(1, "S", spine, 2)) + block("Ca", host, host, "a", cable(1, "S", leaf, 1))
	r, err := Parse("x", text)
	if err != nil {
		t.Fatal(err)
	}
	f := New(r)
	if diff := cmp.Diff(map[GUID]int{leaf: 1, spine: 2, core: 3}, f.Tiers()); diff != "" {
		t.Error(diff)
	}
	if n, err := f.FatTree(); n != 3 || err != nil {
		t.Errorf("%d tiers, %v", n, err)
	}
}

// TestWithoutCable: an adapter without a cable is a host that is cabled to nothing.
func TestWithoutCable(t *testing.T) {
	r, err := Parse("x", "Ca\t2 \"H-98039b0300200020\"\t\t# \"host2 HCA-1\"\n")
	if err != nil {
		t.Fatal(err)
	}
	if inv, _ := New(r).Inventory(Options{Name: "x"}); len(inv.Hosts) > 1 {
		t.Errorf("%+v", inv.Hosts)
	}
}
