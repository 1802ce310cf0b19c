package inventory

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/golden"
)

// Switches by their servers, what is filled in, and what a lab finds missing: files
// that are not there among it.
func TestServers(t *testing.T) {
	inv, err := Load(filepath.Join("testdata", "servers.toml"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(inv.Describe())
	fmt.Fprintf(&b, "\nlab check:\n%v\n", inv.CheckLab())
	for _, s := range inv.Switches {
		fmt.Fprintf(&b, "\n%s: control %q, device %d, config %q, push %q, gnmi %q, ssh %q\n", s.Name, s.Control, s.DeviceID, s.DeviceConfig, s.Push, s.GNMI, s.SSH.Address)
		fmt.Fprintf(&b, "  program %+v\n  tls %+v\n", s.Program, s.TLS)
		if s.Ports != nil {
			fmt.Fprintf(&b, "  %d port names: %q %q %q\n", len(s.Ports), s.Ports[1], s.Ports[32], s.Ports[33])
		}
		if s.Script != nil {
			fmt.Fprintf(&b, "  script %+v\n", *s.Script)
		}
	}
	golden.Compare(t, "servers.golden", b.String())
}

// A clone shares nothing with what it was made from.
func TestCloneServers(t *testing.T) {
	inv, err := Load(filepath.Join("testdata", "servers.toml"))
	if err != nil {
		t.Fatal(err)
	}
	c := inv.Clone()
	tor, _ := c.Switch("tor1")
	atp, _ := c.Switch("atp1")
	tor.Ports[1], atp.Script.Setup[0], atp.Script.Host = "changed", "changed", "changed"
	tor, _ = inv.Switch("tor1")
	atp, _ = inv.Switch("atp1")
	if tor.Ports[1] != "1/0" || atp.Script.Setup[0] != "run_pd_rpc.py" || atp.Script.Host != "h1" {
		t.Errorf("changed through a clone: %q, %+v", tor.Ports[1], *atp.Script)
	}
}

// TestReplaceProgram: another's program may be replaced where a switch says so, which only one with a P4 program can.
func TestReplaceProgram(t *testing.T) {
	const rest = "\n[[host]]\nname = \"h1\"\nnic = {port = \"tor1/1\", rate = \"100Gbit/s\"}\n"
	for _, tt := range []struct {
		table string
		want  bool
		bad   string // part of what is wrong
	}{
		{"kind = \"tofino\"", false, ""},
		{"kind = \"tofino\"\nreplace_program = true", true, ""},
		{"kind = \"tofino\"\nreplace_program = false", false, ""},
		{"kind = \"script\"\nscript = {status = [\"true\"]}\nreplace_program = true", false, "a switch of kind script has no replace_program"},
		{"kind = \"quantum\"\nreplace_program = true", false, "a switch of kind quantum has no replace_program"},
	} {
		inv, err := Parse("lab.toml", []byte("version = 1\n[[switch]]\nname = \"tor1\"\n"+tt.table+rest))
		if tt.bad != "" {
			if err == nil || !strings.Contains(err.Error(), tt.bad) {
				t.Errorf("%s: %v", tt.table, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := inv.Clone().Switches[0].ReplaceProgram; got != tt.want {
			t.Errorf("%s: %v", tt.table, got)
		}
	}
}
