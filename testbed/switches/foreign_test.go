package switches

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/personality"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
)

// theirs is somebody else's program, as Switch.Restore of a server takes it.
func theirs(t *testing.T, server string) []byte {
	t.Helper()
	if server == inventory.BFRTConfig {
		return bfrt.Config{
			Program: "fabric", BFRT: []byte(`{"tables": [{"name": "pipe.FabricIngress.acl", "id": 5, "table_type": "MatchAction_Direct", "key": [], "data": []}]}`),
			Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte("{}"), Binary: []byte{9}}},
		}.Marshal()
	}
	b, err := proto.Marshal(&p4v1.ForwardingPipelineConfig{
		P4Info: &p4configv1.P4Info{
			PkgInfo: &p4configv1.PkgInfo{Name: "fabric"},
			Tables:  []*p4configv1.Table{{Preamble: &p4configv1.Preamble{Id: 0x02000001, Name: "FabricIngress.acl"}}},
		},
		P4DeviceConfig: bfrt.Config{Program: "fabric", Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte("{}"), Binary: []byte{9}}}}.Marshal(),
		Cookie:         &p4v1.ForwardingPipelineConfig_Cookie{Cookie: 77},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tofino is a switch behind a server; one of Stratum is as a test wants it.
func tofino(t *testing.T, server string, as func(*personality.Personality)) inventory.Switch {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	text, err := prototext.Marshal(p4.Info())
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"p4info.txtpb": text, "bf-rt.json": personality.BFRTInfo(p4.Info()), "context.json": []byte("{}"), "tofino.bin": {1}} {
		if err := os.WriteFile(in(name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	sw := inventory.Switch{Name: "tor1", Kind: inventory.Tofino, Server: inventory.Server{
		DeviceConfig: server, Push: inventory.PushAlways,
		Program: inventory.Program{Name: "ina_tna", P4Info: in("p4info.txtpb"), BFRT: in("bf-rt.json"), Context: in("context.json"), Binary: in("tofino.bin")},
	}}
	o := personality.Options{Upstream: softswitchtest.Serve(t, 7, softswitchtest.Nowhere{}), UpstreamDevice: 7}
	if server == inventory.BFRTConfig {
		s, err := personality.StartBFRuntime(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		sw.Control = s.Addr
		return sw
	}
	p := personality.Stratum()
	as(&p)
	o.Device, sw.DeviceID = 1, 1
	s, err := personality.Start(p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	sw.Control = s.P4RT
	return sw
}

// runs is what a switch runs: "none", "ours", or the name of another's program.
func runs(t *testing.T, sw inventory.Switch) string {
	t.Helper()
	c, err := device.Observe(t.Context(), sw, nil, dataplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	found, err := c.Foreign(t.Context())
	switch {
	case err != nil:
		t.Fatal(err)
	case found != nil:
		return found.Name
	}
	if err := c.Attach(t.Context()); errors.Is(err, dataplane.ErrNoPipeline) {
		return "none"
	} else if err != nil {
		t.Fatal(err)
	}
	return "ours"
}

// TestForeign: a program of somebody else is not pushed away without consent. With it, the journal has how it comes back before
// it goes, and it is back at the end where the server tells it whole.
func TestForeign(t *testing.T) {
	for _, tt := range []struct {
		name      string
		before    string // "none", "ours" or "fabric"
		consent   bool
		withholds bool
		killed    bool // between closing the plane and putting the program back

		refused  bool
		replaced string // part of what the record says
		after    string
		left     int // changes that the journal remembers
	}{
		{name: "empty", before: "none", after: "ours"},
		{name: "ours", before: "ours", after: "ours"},
		{name: "ours, and others may be replaced", before: "ours", consent: true, after: "ours"},
		{name: "another's", before: "fabric", refused: true, after: "fabric"},
		{name: "another's, which may be replaced", before: "fabric", consent: true, replaced: "fabric, to be put back at the end", after: "fabric"},
		{name: "killed", before: "fabric", consent: true, killed: true, replaced: "fabric, to be put back at the end", after: "ours", left: 1},
		{name: "not told whole", before: "fabric", consent: true, withholds: true, replaced: "fabric, which its server does not give whole", after: "ours"},
	} {
		for _, server := range []string{inventory.StratumConfig, inventory.BFRTConfig} {
			if tt.withholds && server == inventory.BFRTConfig {
				continue // it tells files that it has loaded
			}
			t.Run(tt.name+", "+server, func(t *testing.T) {
				sw := tofino(t, server, func(p *personality.Personality) { p.Withholds = tt.withholds })
				sw.ReplaceProgram = tt.consent
				inv := &inventory.Inventory{Switches: []inventory.Switch{sw}}
				log, err := journal.Open(t.TempDir(), journal.Header{Run: "run", Owner: "me", Began: time.Now()})
				if err != nil {
					t.Fatal(err)
				}
				defer log.Close()
				site := &Site{Inventory: inv, Topology: inv.Topology(), Journal: log,
					Polite: func(string) bool { return true }, Mine: func(string) func(context.Context) error { return nil }}
				switch tt.before {
				case "ours":
					opened, err := Open(t.Context(), site, sw)
					if err != nil {
						t.Fatal(err)
					}
					if err := errors.Join(opened.Plane().Close(t.Context()), opened.Close(t.Context())); err != nil {
						t.Fatal(err)
					}
				case "fabric":
					c, err := device.Dial(t.Context(), sw, nil, dataplane.Options{})
					if err != nil {
						t.Fatal(err)
					}
					if err := errors.Join(c.Restore(t.Context(), theirs(t, server)), c.Close(t.Context())); err != nil {
						t.Fatal(err)
					}
				}
				if got := runs(t, sw); got != tt.before {
					t.Fatalf("it runs %s before, want %s", got, tt.before)
				}

				opened, err := Open(t.Context(), site, sw)
				if opened == nil {
					t.Fatal(err)
				}
				if tt.refused {
					if !errors.Is(err, dataplane.ErrForeign) || !strings.Contains(err.Error(), "switch tor1") || !strings.HasSuffix(err.Error(), ": fabric") {
						t.Errorf("%v", err)
					}
				} else {
					if err != nil {
						t.Fatal(err)
					}
					if got := runs(t, sw); got != "ours" {
						t.Errorf("it runs %s", got)
					}
					if got := opened.Facts().Replaced; !strings.HasPrefix(got, tt.replaced) || (got == "") != (tt.replaced == "") {
						t.Errorf("the record says %q, want %q", got, tt.replaced)
					}
				}
				if undone := log.Log().Undone(); (len(undone) > 0) != strings.HasSuffix(tt.replaced, "at the end") {
					t.Errorf("while it is in use the journal has %+v", undone)
				} else if len(undone) > 0 {
					if config, err := undone[0].Undo.Program.Whole(); err != nil || len(config) == 0 || undone[0].Target != "switch tor1" {
						t.Errorf("%+v, %v", undone[0], err)
					}
				}

				err = opened.Plane().Close(t.Context())
				if !tt.killed {
					err = errors.Join(err, opened.Close(t.Context()))
				}
				if err != nil {
					t.Error(err)
				}
				if got := runs(t, sw); got != tt.after {
					t.Errorf("it runs %s after, want %s", got, tt.after)
				}
				if left := len(log.Log().Undone()); left != tt.left {
					t.Errorf("%d changes left, want %d", left, tt.left)
				}
			})
		}
	}
}

// TestUntold: a switch whose server does not tell what it runs gets its program, and the record says that nobody knows what was
// replaced.
func TestUntold(t *testing.T) {
	sw := tofino(t, inventory.StratumConfig, func(p *personality.Personality) { p.Untold = true })
	inv := &inventory.Inventory{Switches: []inventory.Switch{sw}}
	opened, err := Open(t.Context(), &Site{Inventory: inv, Topology: inv.Topology(),
		Polite: func(string) bool { return true }, Mine: func(string) func(context.Context) error { return nil }}, sw)
	if err != nil {
		t.Fatal(err)
	}
	if got := opened.Facts().String(); !strings.Contains(got, "in place of whatever it ran, which its server does not tell") {
		t.Errorf("the record says %q", got)
	}
	if err := errors.Join(opened.Plane().Close(t.Context()), opened.Close(t.Context())); err != nil {
		t.Error(err)
	}
}
