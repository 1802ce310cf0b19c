// Package switches is the switches of a testbed, whatever controls them: for each kind, how one is opened and looked at, what
// is read from it, and how it is left. The list is kinds, below. What P4 programs drive are told of routes and jobs
// (dataplane.Switch); others have a data plane of their own.
package switches

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/reach"
)

// Switch is a switch in use. Its methods are safe for concurrent use.
type Switch interface {
	// Plane is what routes and jobs are written into, and closed apart; nil: it has a data plane of its own.
	Plane() dataplane.Switch
	// Facts are what it runs, for the record; nil: nothing is known.
	Facts() *results.SwitchFacts
	// Collectors read what it counts, and of the jobs with these ids, under these names.
	Collectors(ids []int, jobs map[int]string) ([]collectors.Collector, error)
	// Status is why it is not as it should be, as far as it says itself.
	Status(ctx context.Context) error
	// Close undoes what was set up when it was opened, and hangs up.
	Close(ctx context.Context) error
}

// Site is what switches may need of the testbed that they are part of.
type Site struct {
	Inventory *inventory.Inventory
	Topology  *inventory.Topology
	Hosts     []inventory.Host             // in use
	Host      func(name string) hosts.Host // its connection; nil: there is none, or not yet
	Reach     reach.Options                // how other hosts are connected to
	Journal   *journal.Journal             // nil: nothing is remembered

	// Polite says whether whoever controls a switch is left alone, and Mine asks whether it is still leased to this run; see
	// dataplane.Options.
	Polite func(sw string) bool
	Mine   func(sw string) func(context.Context) error

	asking sync.Map // whose turn it is at a host that asks its fabric: chan struct{} by its name
}

// kind is how switches of a kind are opened.
type kind struct {
	// open controls a switch, and makes it ready for jobs. With an error it may return one that is to be closed.
	open func(ctx context.Context, site *Site, sw inventory.Switch) (Switch, error)
	// observe is open for who only reads, while somebody else controls it.
	observe func(ctx context.Context, site *Site, sw inventory.Switch) (Switch, error)
	// diagnose asks what it runs, and changes nothing; nil: it cannot be asked.
	diagnose func(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch, timeout time.Duration) device.Diagnosis
	// foreign: it has a data plane of its own, which knows nothing of inabench's packets.
	foreign bool
}

// kinds are those that an inventory can name.
var kinds = map[inventory.Kind]kind{
	inventory.Soft:     programmed,
	inventory.BMv2:     programmed,
	inventory.Tofino:   programmed,
	inventory.Scripted: scripted,
	inventory.Quantum:  quantum,
}

func kindOf(sw inventory.Switch) (kind, error) {
	k, ok := kinds[sw.Kind]
	if !ok {
		return k, blame.Switch(sw.Name, fmt.Errorf("kind %q: %w", sw.Kind, errors.ErrUnsupported))
	}
	return k, nil
}

// Open controls a switch, and makes it ready for jobs. With an error it may return one that is to be closed. A switch that
// somebody else controls, who is left alone, is an error wrapping dataplane.ErrNotPrimary.
func Open(ctx context.Context, site *Site, sw inventory.Switch) (Switch, error) {
	k, err := kindOf(sw)
	if err != nil {
		return nil, err
	}
	return k.open(ctx, site, sw)
}

// Observe is Open for who only reads, while somebody else controls the switch.
func Observe(ctx context.Context, site *Site, sw inventory.Switch) (Switch, error) {
	k, err := kindOf(sw)
	if err != nil {
		return nil, err
	}
	return k.observe(ctx, site, sw)
}

// Diagnose asks a switch of an inventory what it runs, and changes nothing. ok is false where it cannot be asked.
func Diagnose(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch, timeout time.Duration) (_ device.Diagnosis, ok bool) {
	k := kinds[sw.Kind]
	if k.diagnose == nil || !k.foreign && sw.Control == "" {
		return device.Diagnosis{}, false
	}
	return k.diagnose(ctx, inv, sw, timeout), true
}

// Programmed reports whether switches of a kind run a P4 program of inabench, and take jobs.
func Programmed(of inventory.Kind) bool {
	k, ok := kinds[of]
	return ok && !k.foreign
}
