// Package reach connects to what an inventory names: hosts, switches with an operating system of
// their own, SHARP's aggregation manager. It has the list of launchers, which is what a new one is
// entered in; package hosts says what a launcher hands out.
package reach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/testbed/hosts"
)

// Way is how something of an inventory is reached.
type Way struct {
	Name     string
	Launcher string        // as the inventory names it; empty: "ssh"
	SSH      inventory.SSH // of launcher "ssh"

	inv *inventory.Inventory // whose hosts may be what to go through
}

// String is the name.
func (w Way) String() string { return w.Name }

// To is the way to a host of an inventory.
func To(inv *inventory.Inventory, h inventory.Host) Way {
	return Way{h.Name, h.Launcher, h.SSH, inv}
}

// By is the way to whatever has a table of SSH keys: a switch, too.
func By(inv *inventory.Inventory, name string, s inventory.SSH) Way {
	return Way{Name: name, SSH: s, inv: inv}
}

// ToManager is the way to SHARP's aggregation manager. The inventory must have a [sharp].
func ToManager(inv *inventory.Inventory) Way {
	if h, ok := inv.Host(inv.Manager.Host); ok {
		return To(inv, *h)
	}
	return By(inv, inventory.ManagerName, inv.Manager.SSH)
}

// Options say how to connect.
type Options struct {
	Fan      int               // hosts connected to at a time; 0: all at once
	Timeout  time.Duration     // for each; 0: the launcher's
	Patience time.Duration     // how long a host may be silent until it is given up; 0: the launcher's
	Warn     func(line string) // told what of the user's settings is not followed; may be nil
}

// Launcher reaches hosts. Its methods are safe for concurrent use.
type Launcher interface {
	// Dial connects to one.
	Dial(ctx context.Context, w Way) (hosts.Host, error)
	// Check says what is wrong with ways as far as this machine can tell, each with its name, and
	// tells Warn of what is not followed.
	Check(ways []Way) error
}

var (
	listing   sync.RWMutex
	launchers = map[string]func(Options) Launcher{"ssh": byLogin}
)

// Add enters a launcher, whose name inventories have as launcher = "NAME". It panics if there is
// one of that name.
func Add(name string, l func(Options) Launcher) {
	listing.Lock()
	defer listing.Unlock()
	if launchers[name] != nil {
		panic("reach: a second launcher is called " + name)
	}
	launchers[name] = l
}

// names are those of all launchers.
func names() []string {
	listing.RLock()
	defer listing.RUnlock()
	return slices.Sorted(maps.Keys(launchers))
}

// Known reports, as tomlfile.Problems, hosts of an inventory whose launcher is not in the list.
func Known(inv *inventory.Inventory) error {
	all := names()
	var ps tomlfile.Problems
	for _, h := range inv.Hosts {
		if h.Launcher != "" && !slices.Contains(all, h.Launcher) {
			ps = append(ps, tomlfile.Problem{Pos: inv.Pos(h.Name), Msg: fmt.Sprintf("host %s: no launcher %q", h.Name, h.Launcher), Hint: tomlfile.OneOf(h.Launcher, all)})
		}
	}
	return ps.Err()
}

// Dialer connects to hosts, each by its launcher, of which it has one: what several hosts are
// behind is logged in to once. Its methods are safe for concurrent use.
type Dialer struct {
	Options

	mu   sync.Mutex
	used map[string]Launcher
}

func (d *Dialer) by(w Way) (Launcher, error) {
	name := cmp.Or(w.Launcher, "ssh")
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.used[name]; l != nil {
		return l, nil
	}
	listing.RLock()
	l := launchers[name]
	listing.RUnlock()
	if l == nil {
		return nil, blame.Host(w.Name, tomlfile.WithHint(tomlfile.OneOf(name, names()), "no launcher %q", name))
	}
	if d.used == nil {
		d.used = map[string]Launcher{}
	}
	d.used[name] = l(d.Options)
	return d.used[name], nil
}

// Dial connects to one.
func (d *Dialer) Dial(ctx context.Context, w Way) (hosts.Host, error) {
	l, err := d.by(w)
	if err != nil {
		return nil, err
	}
	h, err := l.Dial(ctx, w)
	if err != nil {
		return nil, hosts.Name(w.Name, err)
	}
	return h, nil
}

// DialAll connects to several at once. The hosts are in the order of the ways, nil where one
// cannot be reached; the error names all of these, since they are mended together.
func (d *Dialer) DialAll(ctx context.Context, ways []Way) ([]hosts.Host, error) {
	all := make([]hosts.Host, len(ways))
	err := hosts.FanOut(ctx, 0, ways, func(ctx context.Context, i int, w Way) (err error) {
		all[i], err = d.Dial(ctx, w)
		return err
	})
	return all, err
}

// Check is Launcher.Check of each way by its launcher.
func (d *Dialer) Check(ways []Way) error {
	of := map[string][]Way{}
	for _, w := range ways {
		of[w.Launcher] = append(of[w.Launcher], w)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(of)) {
		l, err := d.by(of[name][0])
		if err == nil {
			err = l.Check(of[name])
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Dial connects to one, with a Dialer of its own.
func Dial(ctx context.Context, w Way, o Options) (hosts.Host, error) {
	d := Dialer{Options: o}
	return d.Dial(ctx, w)
}
