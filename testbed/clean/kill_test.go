package clean

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/personality"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
	"github.com/inabench/inabench/testbed/switches"
)

// TestMain makes this binary a run that replaces a program of somebody else, and does not live to put it back.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == "replace" {
		fmt.Fprintln(os.Stderr, "it lives:", replace(replaceable(os.Args[2], os.Args[3]), os.Args[3], os.Args[4]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// replaceable is a switch whose program may be replaced by that in a directory.
func replaceable(control, dir string) inventory.Switch {
	in := func(name string) string { return filepath.Join(dir, name) }
	return inventory.Switch{Name: "tor1", Kind: inventory.Tofino, Control: control, DeviceID: 1, Server: inventory.Server{
		DeviceConfig: inventory.StratumConfig, Push: inventory.PushAlways, ReplaceProgram: true,
		Program: inventory.Program{Name: "ina_tna", P4Info: in("p4info.txtpb"), Context: in("context.json"), Binary: in("tofino.bin")},
	}}
}

// replace is a run on one switch, which kills itself at a moment. Its journal is in dir.
func replace(sw inventory.Switch, dir, moment string) error {
	at := func(now string) {
		if now == moment {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	log, err := journal.Open(dir, journal.Header{Run: "R", Owner: "me", Began: time.Now()})
	if err != nil {
		return err
	}
	moments := []string{"to be journalled", "journalled", "put back", "journalled that it is back"}
	journal.Watch = func() {
		at(moments[0])
		moments = moments[1:]
	}
	inv := &inventory.Inventory{Switches: []inventory.Switch{sw}}
	ctx := context.Background()
	opened, err := switches.Open(ctx, &switches.Site{Inventory: inv, Topology: inv.Topology(), Journal: log,
		Polite: func(string) bool { return true }, Mine: func(string) func(context.Context) error { return nil }}, sw)
	if err != nil {
		return err
	}
	at("replaced")
	if err := opened.Plane().Close(ctx); err != nil {
		return err
	}
	at("closed")
	return errors.Join(opened.Close(ctx), log.Close())
}

// TestKill: at whichever moment a run is killed that has replaced a program, that runs again when it was cleaned up after.
func TestKill(t *testing.T) {
	text, err := prototext.Marshal(p4.Info())
	if err != nil {
		t.Fatal(err)
	}
	for _, moment := range []string{"to be journalled", "journalled", "replaced", "closed", "put back", "journalled that it is back"} {
		t.Run(moment, func(t *testing.T) {
			dir := t.TempDir()
			for name, b := range map[string][]byte{"p4info.txtpb": text, "context.json": []byte("{}"), "tofino.bin": {1}} {
				if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			s, err := personality.Start(personality.Stratum(), personality.Options{
				Upstream: softswitchtest.Serve(t, 7, softswitchtest.Nowhere{}), UpstreamDevice: 7, Device: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			sw := replaceable(s.P4RT, dir)
			before, err := device.Dial(t.Context(), sw, nil, dataplane.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(before.Restore(t.Context(), theirs(t, "fabric")), before.Close(t.Context())); err != nil {
				t.Fatal(err)
			}

			out, err := exec.Command("/proc/self/exe", "replace", s.P4RT, dir, moment).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("it was not killed: %v, %s", err, out)
			}
			log, err := journal.Resume(dir, "R")
			if err != nil {
				t.Fatal(err)
			}
			c := &cleaning{inv: &inventory.Inventory{Switches: []inventory.Switch{sw}}}
			for _, e := range log.Log().Undone() {
				if _, err := c.undo(t.Context(), e.Target, e.Undo); err != nil {
					t.Error(err)
				}
				if err := log.Undone(&e.Change); err != nil {
					t.Error(err)
				}
			}
			if err := log.Close(); err != nil {
				t.Error(err)
			}

			after, err := device.Observe(t.Context(), sw, nil, dataplane.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer after.Close(context.Background())
			if found, err := after.Foreign(t.Context()); err != nil || found == nil || found.Name != "fabric" || len(found.Config) == 0 {
				t.Errorf("it runs %+v, %v", found, err)
			}
		})
	}
}
