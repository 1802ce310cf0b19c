package lab

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed"
)

// TestLab: a lab damages no cable and tells of no stall; what it lacks is said before anything is tried.
func TestLab(t *testing.T) {
	parse := func(host string) *inventory.Inventory {
		inv, err := inventory.Parse("lab.toml", []byte(`version = 1
[[switch]]
name = "tor1"
kind = "script"
script = {host = "h1", setup = ["true"]}
[[host]]
name = "h1"
`+host))
		if err != nil {
			t.Fatal(err)
		}
		return inv
	}
	if _, err := New(parse(`nic = {port = "tor1/1", rate = "25Gbit/s"}`)); err == nil || !strings.Contains(err.Error(), "h1") {
		t.Errorf("without addresses: %v", err)
	}
	inv := parse(`ssh = {address = "127.0.0.1:2"}
nic = {port = "tor1/1", rate = "25Gbit/s", device = "eth0", address = "10.0.0.1/24"}`)
	f, err := New(inv)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.SetLink(t.Context(), "h1->tor1", testbed.LinkState{Loss: .1}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a cable is to lose packets: %v", err)
	}
	health, herr := f.Health(t.Context())
	stalls, serr := f.Stalls(t.Context(), time.Now())
	if err := errors.Join(herr, serr, f.Close(t.Context())); err != nil || len(health)+len(stalls) > 0 || f.Inventory() != inv {
		t.Errorf("%v, %v, %v", health, stalls, err)
	}
}
