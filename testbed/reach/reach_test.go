package reach

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/hosts"
)

const lab = `
version = 1
[defaults]
rate = "10Gbit/s"
delay = "1us"
[[switch]]
name = "tor1"
kind = "soft"
[[host]]
name = "h[1-2]"
launcher = "cloud"
nic = {port = "tor1/[1-2]"}
[[host]]
name = "h3"
ssh = {address = "127.0.0.1:1", config = "none"}
nic = {port = "tor1/3"}
[[host]]
name = "h4"
launcher = "clod"
nic = {port = "tor1/4"}
`

// cloud reaches hosts whose name ends in 1.
type cloud struct{ calls *atomic.Int64 }

// up is a host that is there.
type up struct {
	hosts.Host
	name string
}

func (u up) String() string { return u.name }

var errDown = errors.New("it is down")

func (c cloud) Dial(_ context.Context, w Way) (hosts.Host, error) {
	if strings.HasSuffix(w.Name, "1") {
		return up{name: w.Name}, nil
	}
	return nil, errDown
}

func (c cloud) Check(ways []Way) error { c.calls.Add(int64(len(ways))); return nil }

// Each host is reached by its own launcher; those that cannot be are named, all of them, and are no
// hosts, whatever their launcher returned.
func TestLaunchers(t *testing.T) {
	var made, checked atomic.Int64
	Add("cloud", func(Options) Launcher { made.Add(1); return cloud{&checked} })
	t.Cleanup(func() { delete(launchers, "cloud") })
	inv, err := inventory.Parse("lab.toml", []byte(lab))
	if err != nil {
		t.Fatal(err)
	}
	var ways []Way
	for _, h := range inv.Hosts {
		ways = append(ways, To(inv, h))
	}
	var d Dialer
	all, err := d.DialAll(t.Context(), ways)
	if len(all) != 4 || all[0] == nil || all[0].String() != "h1" || all[1] != nil || all[2] != nil || all[3] != nil {
		t.Errorf("%v", all)
	}
	for _, want := range []string{"host h2: it is down", "host h3 (127.0.0.1:1): ", `host h4: no launcher "clod"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if !errors.Is(err, errDown) || made.Load() != 1 {
		t.Errorf("%v; %d launchers were made", err, made.Load())
	}
	if err := d.Check(ways[:2]); err != nil || checked.Load() != 2 {
		t.Errorf("%v, %d checked", err, checked.Load())
	}
	if err := Known(inv); err == nil || err.Error() != `lab.toml:18:8: host h4: no launcher "clod": did you mean "cloud"?` {
		t.Errorf("%v", err)
	}
	if h, err := Dial(t.Context(), ways[3], Options{}); h != nil || err == nil {
		t.Errorf("%v, %v", h, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a second launcher of one name")
		}
	}()
	Add("cloud", nil)
}

// The way to the manager is that to its host, where it is one of the inventory.
func TestToManager(t *testing.T) {
	inv := &inventory.Inventory{
		Hosts:   []inventory.Host{{Name: "h1", SSH: inventory.SSH{Address: "a", Jump: "b"}}},
		Manager: &inventory.Manager{Host: "h1"},
	}
	if w := ToManager(inv); w.Name != "h1" || Target(w).Address != "a" || Target(w).Jump == nil || Target(w).Jump.Address != "b" {
		t.Errorf("%+v", w)
	}
	inv.Manager = &inventory.Manager{SSH: inventory.SSH{Address: "ufm", Sudo: true}}
	if w := ToManager(inv); w.Name != "sharp_am" || Target(w).Address != "ufm" || !Target(w).Sudo {
		t.Errorf("%+v", w)
	}
}
