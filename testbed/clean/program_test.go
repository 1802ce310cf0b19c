package clean

import (
	"context"
	"errors"
	"testing"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/personality"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
)

// theirs is a program of somebody else.
func theirs(t *testing.T, name string) []byte {
	t.Helper()
	b, err := proto.Marshal(&p4v1.ForwardingPipelineConfig{
		P4Info: &p4configv1.P4Info{
			PkgInfo: &p4configv1.PkgInfo{Name: name},
			Tables:  []*p4configv1.Table{{Preamble: &p4configv1.Preamble{Id: 0x02000001, Name: "FabricIngress.acl"}}},
		},
		P4DeviceConfig: bfrt.Config{Program: name, Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte("{}"), Binary: []byte{9}}}}.Marshal(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestProgram: what a killed run has replaced comes back, once; where it had not been replaced yet, or somebody has loaded
// another program since, nothing is done.
func TestProgram(t *testing.T) {
	ours := dataplane.Pipeline{Info: p4.Info(), DeviceConfig: bfrt.Config{
		Program: "ina_tna", Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte("{}"), Binary: []byte{1}}},
	}.Marshal()}
	u, err := journal.NewProgram("fabric", theirs(t, "fabric"))
	if err != nil {
		t.Fatal(err)
	}
	entries := journal.Inverse{Entries: &journal.Entries{Epoch: 1, Jobs: []uint16{1}}}
	for _, tt := range []struct {
		name string
		load func(ctx context.Context, c *p4rt.Client) error
		dry  bool
		want string // what is done
		runs string // after that; "": ours
	}{
		{"killed while ours ran", func(ctx context.Context, c *p4rt.Client) error { return c.Push(ctx, ours) }, false, "program fabric put back", "fabric"},
		{"only looked at", func(ctx context.Context, c *p4rt.Client) error { return c.Push(ctx, ours) }, true, "program fabric put back", ""},
		{"killed before", func(ctx context.Context, c *p4rt.Client) error { return c.Restore(ctx, theirs(t, "fabric")) }, false, "", "fabric"},
		{"another's since", func(ctx context.Context, c *p4rt.Client) error { return c.Restore(ctx, theirs(t, "router")) }, false, "", "router"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := personality.Start(personality.Stratum(), personality.Options{
				Upstream: softswitchtest.Serve(t, 7, softswitchtest.Nowhere{}), UpstreamDevice: 7, Device: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			dial := func() *p4rt.Client {
				c, err := p4rt.Dial(t.Context(), "tor1", s.P4RT, 1, p4rt.Options{})
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			before := dial()
			if err := errors.Join(tt.load(t.Context(), before), before.Close(t.Context())); err != nil {
				t.Fatal(err)
			}
			inv := &inventory.Inventory{Switches: []inventory.Switch{{Name: "tor1", Kind: inventory.Tofino, Control: s.P4RT, DeviceID: 1,
				Server: inventory.Server{DeviceConfig: inventory.StratumConfig}}}}
			c := &cleaning{opt: Options{Dry: tt.dry}, inv: inv}
			what, err := c.undo(t.Context(), "switch tor1", journal.Inverse{Program: u})
			if err != nil || what != tt.want {
				t.Errorf("%q, %v; want %q", what, err, tt.want)
			}
			if !tt.dry { // once more does nothing, and there are no entries of ours in a program of somebody else
				for _, u := range []journal.Inverse{{Program: u}, entries} {
					if what, err := c.undo(t.Context(), "switch tor1", u); err != nil || what != "" {
						t.Errorf("%s: %q, %v", u, what, err)
					}
				}
			}
			after := dial()
			defer after.Close(context.Background())
			found, err := after.Foreign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if found != nil {
				got = found.Name
			}
			if got != tt.runs {
				t.Errorf("it runs %q, want %q", got, tt.runs)
			}
			if got != "" && len(found.Config) == 0 {
				t.Error("it is not told whole")
			}
		})
	}
}

// TestDryForce: who only looks takes a switch from nobody, whatever is to be done with it.
func TestDryForce(t *testing.T) {
	sw := inventory.Switch{Name: "tor1", Kind: inventory.Tofino, Control: softswitchtest.Serve(t, 1, softswitchtest.NewMemory()), DeviceID: 1}
	inv := &inventory.Inventory{Switches: []inventory.Switch{sw}}
	run, err := device.Dial(t.Context(), sw, nil, dataplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close(context.Background())
	job := ina.JobEntry{Job: 1, Epoch: 1, Mode: ina.Statistical, Size: 8, Expect: 3, Window: 8, UpPort: 4, DownGroup: 1}
	if err := errors.Join(run.Push(t.Context(), dataplane.Pipeline{Info: p4.Info()}), run.Write(t.Context(), dataplane.Batch{Jobs: []ina.JobEntry{job}})); err != nil {
		t.Fatal(err)
	}
	program, err := journal.NewProgram("fabric", theirs(t, "fabric"))
	if err != nil {
		t.Fatal(err)
	}
	for u, want := range map[*journal.Inverse]string{
		{Entries: &journal.Entries{Epoch: 1, Jobs: []uint16{1}}}: "1 job deleted", {Program: program}: "program fabric put back",
	} {
		for _, force := range []bool{true, false} {
			c := &cleaning{opt: Options{Dry: true, Force: force}, inv: inv}
			what, err := c.undo(t.Context(), "switch tor1", *u)
			if force && (err != nil || what != want) || !force && !errors.Is(err, testbed.ErrBusy) {
				t.Errorf("%s, force %t: %q, %v", want, force, what, err)
			}
		}
	}
	select {
	case <-run.Lost():
		t.Errorf("it was taken away: %v", run.Err())
	case <-time.After(100 * time.Millisecond):
	}
}
