package inventory

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// What Format writes, Parse reads: the same hosts, switches and cables in the same
// order, however names and numbers run.
func TestFormat(t *testing.T) {
	r := random(t)
	for range 300 {
		inv := randomLab(r)
		notes := Notes{Head: []string{"# head"}, Of: map[string]string{}}
		for _, s := range inv.Switches {
			if r.IntN(3) == 0 {
				notes.Of[s.Name] = "one\ntwo"
			}
		}
		text := Format(inv, notes)
		back, err := Parse("x.toml", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		want := inv.Clone()
		for i := range want.Switches { // what Parse fills in
			sw := &want.Switches[i]
			sw.DeviceID, sw.Server = back.Switches[i].DeviceID, back.Switches[i].Server
			if sw.Rack == "" {
				sw.Rack = back.Switches[i].Rack
			}
		}
		for i := range want.Hosts {
			if want.Hosts[i].Rack == "" {
				want.Hosts[i].Rack = back.Hosts[i].Rack
			}
			if a := want.Hosts[i].SSH.Address; a != "" && !strings.Contains(a, ":") {
				want.Hosts[i].SSH.Address = back.Hosts[i].SSH.Address // a port may be added
			}
		}
		for _, diff := range []string{
			cmp.Diff(want.Hosts, back.Hosts, cmpopts.EquateComparable(netip.Prefix{})),
			cmp.Diff(want.Switches, back.Switches),
			cmp.Diff(want.Links, back.Links),
			cmp.Diff(want.Name, back.Name),
		} {
			if diff != "" {
				t.Fatalf("%s\n%s", diff, text)
			}
		}
		if d := append(Diff(inv, back), Diff(back, inv)...); len(d) != 0 {
			t.Fatalf("%v\n%s", d, text)
		}
	}
}

// randomLab has a leaf for some hosts each, and a spine. Numbers begin anywhere,
// with zeros in front or without, and skip now and then.
func randomLab(r *rand.Rand) *Inventory {
	pick := func(n int) bool { return r.IntN(n) == 0 }
	guid := GUID(r.Uint64() | 1)
	inv := &Inventory{Name: fmt.Sprintf("lab %q\\%d", "x", r.IntN(100))}
	kind := Quantum
	if pick(2) {
		kind = Soft
	}
	guids := kind == Quantum && !pick(4)
	number := r.IntN(12)
	verb := []string{"%d", "%02d", "%03d-x", "r1n%d", "%[1]d.%[1]d"}[r.IntN(5)]
	name := func(prefix string) string {
		number++
		if pick(8) {
			number++
		}
		return prefix + fmt.Sprintf(verb, number)
	}
	leaves := 1 + r.IntN(4)
	for i := range leaves + 1 {
		s := Switch{Name: name("leaf"), Kind: kind}
		if i == leaves {
			s.Name = "spine"
		}
		if pick(3) {
			s.Rack = "row"
		}
		if guids {
			guid++
			s.GUID = guid
			if !pick(3) {
				guid += 8
				s.AN = guid
				s.SHARP = SHARP{Trees: 126, Jobs: 1, Resource: "switch"}
			}
		}
		if kind == Soft {
			s.Aggregators = 100 * r.IntN(3)
		}
		inv.Switches = append(inv.Switches, s)
	}
	rates := []BitRate{1e9, 25e9, 54.5e9, 200e9}
	address := netip.MustParseAddr("10.0.0.250")
	for i := range leaves {
		port := uint32(r.IntN(5))
		nics := 1 + r.IntN(2)
		for range 1 + r.IntN(12) {
			h := Host{Name: name("h"), GPUs: r.IntN(2), GPUModel: []string{"", `A "B"`}[r.IntN(2)]}
			if pick(4) {
				h.SSH.Address = h.Name + ".lab"
			}
			for k := range nics {
				port++
				n := NIC{Switch: inv.Switches[i].Name, Port: port, Rate: rates[r.IntN(2)*r.IntN(4)], Device: fmt.Sprintf("eth%d", k)}
				if pick(2) {
					address = address.Next()
					n.Address = netip.PrefixFrom(address, 8)
				}
				if pick(3) {
					n.RDMA = fmt.Sprintf("mlx5_%d:1", k)
				}
				if guids {
					guid++
					n.GUID = guid
				}
				if pick(5) {
					n.Delay = time.Microsecond
				}
				h.NICs = append(h.NICs, n)
			}
			inv.Hosts = append(inv.Hosts, h)
		}
		for k := range 1 + r.IntN(3) {
			inv.Links = append(inv.Links, Link{A: Port{inv.Switches[i].Name, 100 + uint32(k)}, B: Port{"spine", uint32(1 + 3*i + k)}, Rate: rates[r.IntN(4)]})
		}
	}
	return inv
}

// Differences between a lab and its inventory, each in one sentence.
func TestDiff(t *testing.T) {
	base := `version = 1
[defaults]
rate = "200Gbit/s"
kind = "quantum"
[[switch]]
name = "leaf[1-2]"
guid = ["0x11", "0x12"]
an = ["0x21", "0x22"]
[[switch]]
name = "spine1"
guid = "0x13"
[[host]]
name = "h[1-2]"
gpus = 8
nic = {port = "leaf1/[1-2]", rdma = "mlx5_0:1", guid = ["0x31", "0x32"]}
[[host]]
name = "h3"
nic = [{port = "leaf2/1", rdma = "mlx5_0:1", guid = "0x33"}, {port = "leaf2/2", rdma = "mlx5_1:1", guid = "0x34"}]
[[host]]
name = "plain"
nic = {port = "leaf2/9"}
[[link]]
a = "leaf[1-2]/40"
b = "spine1/[1-2]"
`
	parse := func(text string) *Inventory {
		t.Helper()
		inv, err := Parse("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return inv
	}
	var b strings.Builder
	for _, x := range []struct {
		name string
		edit []string // old and new in turn
	}{
		{"the same", nil},
		{"names of switches and hosts are not what they are", []string{`"leaf[1-2]"`, `"a[1-2]"`, `"leaf[1-2]/40"`, `"a[1-2]/40"`, "leaf1/[", "a1/[", `"leaf2/`, `"a2/`, `"h3"`, `"other"`}},
		{"cables of two hosts are swapped", []string{`"0x31", "0x32"`, `"0x32", "0x31"`}},
		{"a nic moved", []string{"leaf2/2", "leaf2/7"}},
		{"a nic is gone", []string{`, {port = "leaf2/2", rdma = "mlx5_1:1", guid = "0x34"}`, ``}},
		{"a nic is new", []string{`"0x34"}`, `"0x34"}, {port = "leaf2/3", rdma = "mlx5_2:1", guid = "0x35"}`}},
		{"an adapter was replaced", []string{`"0x33"`, `"0x39"`}},
		{"a host is gone", []string{"h[1-2]", "h1", "leaf1/[1-2]", "leaf1/1", `["0x31", "0x32"]`, `"0x31"`}},
		{"a switch was replaced", []string{`"0x13"`, `"0x19"`}},
		{"no aggregation node", []string{`["0x21", "0x22"]`, `["0x21", "0x29"]`}},
		{"slower and faster", []string{`mlx5_1:1", guid = "0x34"`, `mlx5_1:1", guid = "0x34", rate = "100Gbit/s"`, `b = "spine1/[1-2]"`, "b = \"spine1/[1-2]\"\nrate = \"400Gbit/s\""}},
		{"links swapped", []string{`a = "leaf[1-2]/40"
b = "spine1/[1-2]"`, `a = "leaf1/40"
b = "spine1/2"
[[link]]
a = "leaf2/40"
b = "spine1/1"`}},
		{"a link moved and one is new", []string{`b = "spine1/[1-2]"`, "b = \"spine1/[11-12]\"\n[[link]]\na = \"leaf1/39\"\nb = \"leaf2/39\"\n"}},
		{"GPUs", []string{"gpus = 8", "gpus = 7"}},
	} {
		fmt.Fprintf(&b, "# %s\n", x.name)
		for _, d := range Diff(parse(base), parse(strings.NewReplacer(x.edit...).Replace(base))) {
			fmt.Fprintf(&b, "%s: %s\n", d.What, d)
		}
	}
	golden.Compare(t, "diff.golden", b.String())
}

// A GUID in all its spellings; what is none.
func TestGUID(t *testing.T) {
	for _, s := range []string{"0x98039b0300200010", "98039b0300200010", "9803:9b03:0020:0010", "0X98039B0300200010"} {
		if g, err := ParseGUID(s); g != 0x98039b0300200010 || err != nil || g.String() != "0x98039b0300200010" {
			t.Errorf("%q: %v, %v", s, g, err)
		}
	}
	if g, err := ParseGUID("0x2c903000e0b72"); g.String() != "0x0002c903000e0b72" || err != nil {
		t.Errorf("%v, %v", g, err)
	}
	for _, s := range []string{"", "0", "0x", "+1", "-1", "1:2:3:4", "0x98039b03002000100", "leaf1", "0x0_1"} {
		if g, err := ParseGUID(s); g != 0 || err == nil || tomlfile.HintOf(err) == "" {
			t.Errorf("%q: %v, %v", s, g, err)
		}
	}
	if s := GUID(0).String(); s != "" {
		t.Error(s)
	}
}

// TestFormatMany: more hosts that are alike than a range may stand for are several tables.
func TestFormatMany(t *testing.T) {
	inv := &Inventory{Switches: []Switch{{Name: "s", Kind: Soft, Aggregators: 1}}}
	for i := range maxRange + 1 {
		inv.Hosts = append(inv.Hosts, Host{Name: fmt.Sprintf("h%d", i+1), NICs: []NIC{{Switch: "s", Port: uint32(i + 1), Rate: 1e9, Delay: time.Microsecond}}})
	}
	if text := Format(inv, Notes{}); bytes.Count(text, []byte("[[host]]")) != 2 || !bytes.Contains(text, fmt.Appendf(nil, "h[1-%d]", maxRange)) {
		t.Errorf("%.400s", text)
	}
}
