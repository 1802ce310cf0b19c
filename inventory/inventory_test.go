package inventory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// load reads an inventory of testdata without its folder in positions.
func load(t *testing.T, name string) (*Inventory, error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return Parse(name, text)
}

// Every problem of every bad file, as a person sees them.
func TestInvalid(t *testing.T) {
	files, _ := filepath.Glob("testdata/invalid-*.toml")
	if len(files) == 0 {
		t.Fatal("no test data")
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			inv, err := load(t, name)
			var ps tomlfile.Problems
			if inv != nil || !errors.As(err, &ps) {
				t.Fatalf("got %v, %v", inv, err)
			}
			golden.Compare(t, strings.TrimSuffix(name, ".toml")+".golden", ps.Error()+"\n")
		})
	}
}

// TestBadDefaults: what is wrong with a default is said where it stands, and not again of each table that would have it.
func TestBadDefaults(t *testing.T) {
	const rest = `
[[switch]]
name = "tor[1-2]"
[[host]]
name = "h[1-2]"
nic = {port = "tor[1-2]/1"}
[[link]]
a = "tor1/2"
b = "tor2/2"
`
	for _, tt := range []struct{ defaults, want string }{
		{"rate = 25\nkind = \"soft\"", `lab.toml:3:8: defaults.rate is a bare number, it needs a unit: write "25Gbit/s"`},
		{"rate = \"25Gbit/s\"\nkind = 3", `lab.toml:4:8: defaults.kind is a number, want a string`},
		{"rate = \"25Gbit/s\"\nkind = \"sotf\"", `lab.toml:4:8: unknown kind "sotf": did you mean "soft"?`},
	} {
		if _, err := Parse("lab.toml", []byte("version = 1\n[defaults]\n"+tt.defaults+rest)); fmt.Sprint(err) != tt.want {
			t.Errorf("%q: got\n%v\nwant\n%s", tt.defaults, err, tt.want)
		}
	}
}

func TestValid(t *testing.T) {
	for _, name := range []string{"valid-lab.toml", "valid-small.toml", "valid-infiniband.toml"} {
		t.Run(name, func(t *testing.T) {
			inv, err := load(t, name)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			b.WriteString(inv.Describe())
			fmt.Fprintf(&b, "\nlab check:\n%v\n\n", inv.CheckLab())
			for _, h := range inv.Hosts {
				fmt.Fprintf(&b, "%+v\n", h)
			}
			for _, s := range inv.Switches {
				fmt.Fprintf(&b, "%+v\n", s)
			}
			topo := inv.Topology()
			for _, l := range topo.Links {
				fmt.Fprintf(&b, "%d %s %s %v\n", l.Index, l.Name, l.Rate, l.Delay)
			}
			golden.Compare(t, strings.TrimSuffix(name, ".toml")+".golden", b.String())
		})
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join("testdata", "valid-small.toml")
	inv, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path)
	if inv.File != path || inv.Text != string(text) || len(inv.SHA256) != 64 || inv.Name != "valid-small" {
		t.Errorf("%+v", inv)
	}
	if at := inv.Pos("tor1").String(); at != path+":5:8" {
		t.Errorf("tor1 at %s", at)
	}
	if at := inv.Pos("nobody").String(); at != path {
		t.Errorf("nobody at %s", at)
	}
	if _, err := Load("testdata/absent.toml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

// Any text gives an inventory or problems, and an inventory's graph holds together.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.toml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		inv, err := Parse("f", text)
		if (inv == nil) != (err != nil) {
			t.Fatalf("inventory %v, error %v", inv, err)
		}
		if inv == nil {
			return
		}
		topo := inv.Topology()
		first := inv.Hosts[0].Name
		for _, n := range topo.Nodes[:len(inv.Hosts)] {
			if topo.Tier(n) != 0 || len(topo.Out(n)) == 0 {
				t.Fatalf("host %s: tier %d, links %v", n, topo.Tier(n), topo.Out(n))
			}
		}
		if len(inv.Hosts) == 2 {
			if _, err := topo.Path(first, inv.Hosts[1].Name); err != nil {
				t.Fatal(err)
			}
		}
		inv.Describe()
		inv.CheckLab()
	})
}

// What is checked is what a run can use: agents and switch programs know IPv4 alone. An
// InfiniBand NIC is used by its RDMA device, whatever address it has.
func TestLabDataAddress(t *testing.T) {
	for _, test := range []struct{ name, sw, nic, want string }{
		{"IPv4", "tofino", `device = "eth1", address = "10.0.0.1/24"`, ""},
		{"IPv6", "tofino", `device = "eth1", address = "fd00::1/64"`, "host h1: data address fd00::1/64 is not IPv4"},
		{"IPv4 in IPv6", "tofino", `device = "eth1", address = "::ffff:10.0.0.1/120"`, "is not IPv4"},
		{"IPv6 over InfiniBand", "quantum", `rdma = "mlx5_0:1", address = "fd00::1/64"`, ""},
		{"none", "tofino", `device = "eth1"`, "host h1: nic without data address"},
	} {
		inv, err := Parse("lab.toml", fmt.Appendf(nil, "version = 1\n[defaults]\nrate = \"100Gbit/s\"\n[[switch]]\nname = \"s1\"\nkind = %q\ncontrol = \"s1:9559\"\n[[host]]\nname = \"h1\"\nssh = {address = \"h1\"}\nnic = {port = \"s1/1\", %s}\n", test.sw, test.nic))
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		got := ""
		if err := inv.CheckLab(); err != nil {
			got = err.Error()
		}
		if test.want == "" && strings.Contains(got, "address") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
