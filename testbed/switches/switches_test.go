package switches

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/sshd/sshdtest"
)

// TestScriptedClose: a script clears what it has set up, unless another run has the switch by now: then the journal remembers to.
func TestScriptedClose(t *testing.T) {
	for _, c := range []struct {
		name string
		mine error // whether it is still this run's
		left bool
	}{
		{name: "ours"},
		{name: "nobody can be asked", mine: os.ErrDeadlineExceeded},
		{name: "another's", mine: fmt.Errorf("%w: of another run", dataplane.ErrNotPrimary), left: true},
	} {
		dir := t.TempDir()
		target := sshdtest.Serve(t, &sshd.Server{Dir: dir})
		client := sshdtest.Dial(t, target)
		log, err := journal.Open(t.TempDir(), journal.Header{Run: "run", Owner: "me", Began: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		marker := filepath.Join(dir, "marker")
		sw := inventory.Switch{Name: "s1", Kind: inventory.Scripted, Server: inventory.Server{Script: &inventory.Script{Host: "h1", Setup: []string{"touch", marker}, Clear: []string{"rm", marker}}}}
		site := &Site{Inventory: &inventory.Inventory{Hosts: []inventory.Host{{Name: "h1"}}, Switches: []inventory.Switch{sw}}, Journal: log,
			Host: func(string) hosts.Host { return client }, Mine: func(string) func(context.Context) error { return func(context.Context) error { return c.mine } }}
		opened, err := Open(t.Context(), site, sw)
		if err != nil {
			t.Fatal(err)
		}
		undone := log.Log().Undone()
		if len(undone) != 1 || undone[0].Target != "switch s1" || undone[0].Undo.Script == nil || undone[0].Undo.Script.Host != "h1" {
			t.Errorf("%s: the journal has %+v", c.name, undone)
		}
		err = opened.Close(t.Context())
		if _, serr := os.Stat(marker); err != nil != c.left || serr == nil != c.left || len(log.Log().Undone()) > 0 != c.left {
			t.Errorf("%s: %v; %v, %d in the journal", c.name, err, serr, len(log.Log().Undone()))
		}
		_ = log.Close()
	}
}

// TestKinds: every kind that an inventory can name can be opened and observed, and one that it cannot is an error that names
// the switch.
func TestKinds(t *testing.T) {
	foreign := []inventory.Kind{inventory.Scripted, inventory.Quantum}
	for _, name := range inventory.Kinds {
		of := inventory.Kind(name)
		k, err := kindOf(inventory.Switch{Name: "s1", Kind: of})
		if err != nil || k.open == nil || k.observe == nil {
			t.Errorf("%s: %v", of, err)
		}
		if got := Programmed(of); got == slices.Contains(foreign, of) {
			t.Errorf("%s takes jobs: %t", of, got)
		}
	}
	sw := inventory.Switch{Name: "s1", Kind: "abacus"}
	for what, open := range map[string]func() error{
		"open":    func() error { _, err := Open(t.Context(), &Site{}, sw); return err },
		"observe": func() error { _, err := Observe(t.Context(), &Site{}, sw); return err },
	} {
		if err := open(); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), `switch s1: kind "abacus"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, sw := range []inventory.Switch{sw, {Name: "s1", Kind: inventory.Quantum}, {Name: "s1", Kind: inventory.Tofino}} {
		if d, ok := Diagnose(t.Context(), &inventory.Inventory{}, sw, time.Second); ok {
			t.Errorf("asked %+v: %+v", sw, d)
		}
	}
}

// crowd is a host whose commands do not end while it is held. It counts those that run at once.
type crowd struct {
	hosts.Host
	held chan struct{}
	now  atomic.Int32
}

func (c *crowd) Run(context.Context, []string, io.Reader) (hosts.Output, error) {
	c.now.Add(1)
	defer c.now.Add(-1)
	<-c.held
	return hosts.Output{}, errors.New("no fabric")
}

// TestInTurn: a host asks its fabric of few switches at once, however many these are, since each question is a session of its
// one connection; whoever has no more time to wait goes.
func TestInTurn(t *testing.T) {
	text := "version = 1\n[defaults]\nrate = \"200Gbit/s\"\n[[host]]\nname = \"h1\"\nnic = {port = \"q1/1\", rdma = \"mlx5_0:1\"}\n"
	const many = 12
	for i := range many {
		text += fmt.Sprintf("[[switch]]\nname = \"q%d\"\nkind = \"quantum\"\nguid = \"%#x\"\n", i+1, i+1)
		if i > 0 {
			text += fmt.Sprintf("[[link]]\na = \"q%d/40\"\nb = \"q%d/41\"\n", i, i+1)
		}
	}
	inv, err := inventory.Parse("lab.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		host := &crowd{held: make(chan struct{})}
		site := &Site{Inventory: inv, Topology: inv.Topology(), Hosts: inv.Hosts, Host: func(string) hosts.Host { return host }}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, many)
		for _, sw := range inv.Switches {
			x, err := Open(t.Context(), site, sw)
			if err != nil {
				t.Fatal(err)
			}
			all, err := x.Collectors(nil, nil)
			if err != nil || len(all) != 1 {
				t.Fatalf("%s: %d collectors, %v", sw.Name, len(all), err)
			}
			go func() {
				_, err := all[0].Collect(ctx)
				gone <- err
			}()
		}
		synctest.Wait()
		if n := host.now.Load(); n < 1 || n > 4 {
			t.Errorf("%d commands at once", n)
		}
		running := int(host.now.Load())
		cancel()
		for range many - running {
			if err := <-gone; !errors.Is(err, context.Canceled) {
				t.Errorf("who waits: %v", err)
			}
		}
		close(host.held)
		for range running {
			if err := <-gone; err == nil || errors.Is(err, context.Canceled) {
				t.Errorf("whose turn it was: %v", err)
			}
		}
	})
}
