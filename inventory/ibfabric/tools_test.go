package ibfabric_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/ibfabric"
	"github.com/inabench/inabench/testbed/ibsimtest"
)

var samples = flag.Bool("samples", false, "rewrite testdata with what the tools write here")

// small has two rails: every host has an adapter at two leaves.
var small = ibsimtest.FatTree{Leaves: 2, Spines: 3, Hosts: 2, Rails: 2}

func parse(t testing.TB, name, text string) *ibfabric.Reading {
	t.Helper()
	r, err := ibfabric.Parse(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// outputs runs every tool whose output is read.
func outputs(t *testing.T, s *ibsimtest.Sim, sm *ibsimtest.Manager) map[string]string {
	out := map[string]string{
		"ibnetdiscover.txt":   s.Output("ibnetdiscover"),
		"ibnetdiscover-f.txt": s.Output("ibnetdiscover", "-f"),
		"ibnetdiscover-p.txt": s.Output("ibnetdiscover", "-p"),
		"iblinkinfo-l.txt":    s.Output("iblinkinfo", "-l"),
		"opensm.log":          sm.Log(),
	}
	for _, name := range []string{"opensm-subnet.lst", "opensm-lfts.dump"} {
		text, err := os.ReadFile(filepath.Join(s.Dir(), name))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	return out
}

// Whichever tool is asked, the fabric is the one that was built; and so are all of
// them together.
func TestTools(t *testing.T) {
	s := ibsimtest.Start(t, small.Net(), small.First())
	sm := s.OpenSM()
	out := outputs(t, s, sm)
	if *samples {
		for name, text := range out {
			if err := os.WriteFile(filepath.Join("testdata", name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	check(t, out)
}

// The same with what the tools wrote once.
func TestSamples(t *testing.T) {
	out := map[string]string{}
	for _, name := range []string{"ibnetdiscover.txt", "ibnetdiscover-f.txt", "ibnetdiscover-p.txt", "iblinkinfo-l.txt", "opensm-subnet.lst", "opensm-lfts.dump", "opensm.log"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	check(t, out)
}

func check(t *testing.T, out map[string]string) {
	expect := ibfabric.Expect{Hosts: 4, Switches: 5, ANs: 5}
	var all []*ibfabric.Reading
	formats := map[string]ibfabric.Format{
		"ibnetdiscover.txt": ibfabric.NetDiscover, "ibnetdiscover-f.txt": ibfabric.NetDiscover, "ibnetdiscover-p.txt": ibfabric.NetPorts,
		"iblinkinfo-l.txt": ibfabric.LinkInfo, "opensm-subnet.lst": ibfabric.Subnet,
	}
	for name, format := range formats {
		r := parse(t, name, out[name])
		if r.Format != format {
			t.Errorf("%s was taken for %s", name, r.Format)
		}
		f := ibfabric.New(r)
		if err := f.Check(expect); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		inv, _ := f.Inventory(ibfabric.Options{})
		if len(inv.Hosts) != 4 || len(inv.Links) != 6 || len(inv.Hosts[0].NICs) != 2 || inv.Switches[0].SHARP.Resource != "switch" {
			t.Errorf("%s: %+v", name, inv)
		}
		// Only some tell node GUIDs; those of ports are not taken for them.
		want := map[ibfabric.Format]inventory.GUID{ibfabric.LinkInfo: 0, ibfabric.NetPorts: 0}
		guid, ports := want[format]
		if !ports {
			guid = inventory.GUID(small.HostGUID(0, 0))
		}
		if got := inv.Hosts[0].NICs[0].GUID; got != guid {
			t.Errorf("%s: %v, want %v", name, got, guid)
		}
		all = append(all, r)
	}
	f := ibfabric.New(all...)
	if err := f.Check(expect); err != nil {
		t.Error(err)
	}
	if n := len(f.Links()); n != 8+6+5 {
		t.Errorf("%d links", n)
	}
	if tiers, err := f.FatTree(); tiers != 2 || err != nil {
		t.Errorf("%d tiers, %v", tiers, err)
	}
	inv, notes := f.Inventory(ibfabric.Options{Name: "small"})
	roundTrip(t, inv, notes)
	// One leaf's host, by hand: GUIDs as the net file has them, ports as it cables them.
	h, _ := inv.Host("host3")
	want := []inventory.NIC{
		{RDMA: "mlx5_0:1", GUID: 0x0c42a10000000200, Switch: "leaf2", Port: 1, Rate: 200e9},
		{RDMA: "mlx5_1:1", GUID: 0x0c42a10000000210, Switch: "leaf1", Port: 3, Rate: 200e9},
	}
	if diff := cmp.Diff(want, h.NICs, cmp.Comparer(func(a, b inventory.NIC) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	sw, _ := inv.Switch("spine3")
	if sw.GUID != 0x08c0eb0000800200 || sw.AN != 0x08c0eb0000800208 || sw.SHARP != (inventory.SHARP{Trees: 126, Jobs: 1, Resource: "switch"}) {
		t.Errorf("%+v", sw)
	}
	routes := parse(t, "lfts", out["opensm-lfts.dump"]).Routes()
	if u := f.Unreachables(routes); len(u) != 0 {
		t.Errorf("not reachable: %+v", u)
	}
	if reach, all := f.Roots(routes); len(all) != 2 || len(reach[sw.GUID]) != 2 {
		t.Errorf("trees rooted at spine3 reach %v of %v", reach[sw.GUID], all)
	}
	if e := parse(t, "log", out["opensm.log"]).Engine(); e.Active != "minhop" {
		t.Errorf("engine %+v", e)
	}
}

// roundTrip writes an inventory, reads it again and compares.
func roundTrip(t *testing.T, inv *inventory.Inventory, notes inventory.Notes) {
	t.Helper()
	text := inventory.Format(inv, notes)
	back, err := inventory.Parse("x.toml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if d := inventory.Diff(inv, back); len(d) != 0 {
		t.Errorf("%v\n%s", d, text)
	}
	if d := inventory.Diff(back, inv); len(d) != 0 {
		t.Errorf("%v\n%s", d, text)
	}
	if len(back.Hosts) != len(inv.Hosts) || len(back.Links) != len(inv.Links) {
		t.Errorf("%s", text)
	}
	a, b := inv.Topology(), back.Topology()
	if diff := cmp.Diff(a.Links, b.Links, cmp.Comparer(func(a, b inventory.DirectedLink) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// Lost packets: ibnetdiscover exits with 0 and has seen half of the fabric.
func TestLossy(t *testing.T) {
	fabric := ibsimtest.Small
	s := ibsimtest.Start(t, fabric.Net(), fabric.First())
	s.OpenSM()
	before := ibfabric.New(parse(t, "before", s.Output("ibnetdiscover")))
	for i := range fabric.Spines {
		s.Console(`Error "S-%016x" 60`, fabric.SpineGUID(i))
	}
	out, errs, exit := s.Run("ibnetdiscover", "-t", "10")
	if exit != 0 || errs == "" {
		t.Fatalf("exit status %d, stderr %q", exit, errs)
	}
	f := ibfabric.New(parse(t, "lossy", out), parse(t, "stderr", errs))
	err := f.Check(ibfabric.Expect{Switches: 5})
	var incomplete *ibfabric.IncompleteError
	if !errors.Is(err, ibfabric.ErrIncomplete) || !errors.As(err, &incomplete) {
		t.Fatalf("%d of %d nodes: %v", len(f.Nodes), len(before.Nodes), err)
	}
	t.Logf("%d of %d nodes: %v", len(f.Nodes), len(before.Nodes), err)
	// Both in one file, as with 2>&1.
	if err := ibfabric.New(parse(t, "both", errs+out)).Check(ibfabric.Expect{}); !errors.Is(err, ibfabric.ErrIncomplete) {
		t.Error(err)
	}
	// Against what was there the missing have names.
	was, _ := before.Inventory(ibfabric.Options{})
	now, _ := f.Inventory(ibfabric.Options{})
	if len(f.Nodes) < len(before.Nodes) && len(inventory.Diff(was, now)) == 0 {
		t.Error("nothing is missing")
	}
}

// A cable that fails is seen, and so is what up/down routing then leaves out while all
// hosts still reach each other.
func TestUnlink(t *testing.T) {
	fabric := ibsimtest.Small
	s := ibsimtest.Start(t, fabric.Net(), fabric.First())
	// Aggregation nodes at spines are adapters where ftree expects none.
	sm := s.OpenSM("-R", "ftree,updn,minhop", "-a", s.Spines(fabric))
	e := parse(t, "log", sm.Log()).Engine()
	if e.Active != "updn" || len(e.Refused) != 1 || !strings.Contains(e.Refused[0], "FatTree leaf rank is 1") {
		t.Errorf("%+v", e)
	}
	out := outputs(t, s, sm)
	before := ibfabric.New(parse(t, "ibnetdiscover", out["ibnetdiscover.txt"]))
	was, _ := before.Inventory(ibfabric.Options{})

	port, _ := fabric.Uplink(0, 0, 0)
	s.Console(`Unlink "S-%016x"[%d]`, fabric.LeafGUID(0), port)
	sm.Sweep()
	after := outputs(t, s, sm)
	f := ibfabric.New(parse(t, "ibnetdiscover", after["ibnetdiscover.txt"]), parse(t, "iblinkinfo", after["iblinkinfo-l.txt"]), parse(t, "subnet", after["opensm-subnet.lst"]))
	if err := f.Check(ibfabric.Expect{Hosts: 4, Switches: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.FatTree(); err == nil || !strings.Contains(err.Error(), "no cable from leaf1") {
		t.Error(err)
	}
	now, _ := f.Inventory(ibfabric.Options{})
	d := inventory.Diff(was, now)
	if len(d) != 1 || d[0].String() != "leaf1/3 - spine1/1: is missing" {
		t.Errorf("%v", d)
	}
	// Outputs from before and after do not go together.
	mixed := ibfabric.New(parse(t, "old", out["opensm-subnet.lst"]), parse(t, "new", after["iblinkinfo-l.txt"]))
	if err := mixed.Check(ibfabric.Expect{}); err == nil || !strings.Contains(err.Error(), "in old, not in new") {
		t.Error(err)
	}
	var got []string
	for _, u := range f.Unreachables(parse(t, "lfts", after["opensm-lfts.dump"]).Routes()) {
		got = append(got, u.From.Desc+" "+u.To.Desc)
	}
	if diff := cmp.Diff([]string{"leaf1 spine1"}, got); diff != "" {
		t.Error(diff)
	}
}

// 1,024 hosts, 48 switches and 2,096 cables.
func TestBig(t *testing.T) {
	fabric := ibsimtest.Big
	text := fabric.Net()
	if proof.Wanted() {
		s := ibsimtest.Start(t, text, fabric.First())
		s.OpenSM()
		text = s.Output("ibnetdiscover")
		f, routes := ibfabric.New(parse(t, "big", text)), parse(t, "routes", s.Output("dump_fts")).Routes()
		if u := f.Unreachables(routes); len(u) != 0 || len(routes.Tables) != 48 {
			t.Errorf("%d tables, not reachable: %v", len(routes.Tables), u)
		}
	}
	f := ibfabric.New(parse(t, "big", text))
	if err := f.Check(ibfabric.Expect{Hosts: 1024, Switches: 48, ANs: 48}); err != nil {
		t.Fatal(err)
	}
	if tiers, err := f.FatTree(); tiers != 2 || err != nil {
		t.Errorf("%d tiers, %v", tiers, err)
	}
	inv, notes := f.Inventory(ibfabric.Options{Name: "big"})
	if len(inv.Links) != 32*16*2 {
		t.Errorf("%d links between switches", len(inv.Links))
	}
	roundTrip(t, inv, notes)
	// One table for the hosts of each leaf.
	if n := strings.Count(string(inventory.Format(inv, notes)), "[[host]]"); n != 32 {
		t.Errorf("%d tables of hosts", n)
	}
}

func BenchmarkBig(b *testing.B) {
	text := ibsimtest.Big.Net()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		f := ibfabric.New(parse(b, "big", text))
		if err := f.Check(ibfabric.Expect{Hosts: 1024}); err != nil {
			b.Fatal(err)
		}
		f.Inventory(ibfabric.Options{})
	}
}
