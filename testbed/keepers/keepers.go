// Package keepers is where the leases of a lab's hosts and switches lie, and what is said of who has them.
package keepers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/reach"
)

// Owner is who runs this program, and where: "anna@desk".
func Owner() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

// Controller is this process.
func Controller() lease.Controller {
	host, _ := os.Hostname() // it is for people
	return lease.Controller{Host: host, PID: os.Getpid()}
}

// Keepers are connections to where leases lie.
type Keepers struct {
	inv     *inventory.Inventory
	clients map[string]hosts.Host // by host, or by switch that can be logged in to
	own     []hosts.Host          // those of clients that were made here
	err     error
}

// keeper is the host or switch on which the lease of a host or switch lies: itself, where
// one can log in to it, or else the inventory's first host.
func keeper(inv *inventory.Inventory, name string) (inventory.Host, error) {
	if h, ok := inv.Host(name); ok {
		return *h, nil
	}
	sw, ok := inv.Switch(name)
	switch {
	case ok:
	case name == inventory.ManagerName && inv.Manager.Apart():
		return inventory.Host{Name: name, SSH: inv.Manager.SSH}, nil
	default:
		return inventory.Host{}, fmt.Errorf("no host or switch %q", name)
	}
	if sw.SSH.Address != "" {
		return inventory.Host{Name: sw.Name, SSH: sw.SSH}, nil
	}
	if len(inv.Hosts) == 0 {
		return inventory.Host{}, blame.Switch(name, errors.New("there is no host to keep its lease"))
	}
	return inv.Hosts[0], nil
}

// Open connects to where the leases of hosts and switches lie, fan of them at a
// time. Err names those that cannot be reached; the others are there all the same. The
// caller must Close the keepers.
func Open(ctx context.Context, inv *inventory.Inventory, names []string, fan int) *Keepers {
	return Beside(ctx, inv, names, nil, reach.Options{Fan: fan})
}

// Beside is Open for who is connected to some of the hosts, which stay the caller's.
func Beside(ctx context.Context, inv *inventory.Inventory, names []string, have map[string]hosts.Host, o reach.Options) *Keepers {
	k := &Keepers{inv: inv, clients: map[string]hosts.Host{}}
	var todo []inventory.Host
	for _, name := range names {
		h, err := keeper(inv, name)
		if err != nil {
			k.err = errors.Join(k.err, err)
			continue
		}
		if c := have[h.Name]; c != nil {
			k.clients[h.Name] = c
		} else if !slices.ContainsFunc(todo, func(t inventory.Host) bool { return t.Name == h.Name }) {
			todo = append(todo, h)
		}
	}
	ways := make([]reach.Way, len(todo))
	for i, h := range todo {
		ways[i] = reach.To(inv, h)
	}
	clients, err := (&reach.Dialer{Options: o}).DialAll(ctx, ways)
	k.err = errors.Join(k.err, err)
	for i, c := range clients {
		if c != nil {
			k.clients[todo[i].Name] = c
			k.own = append(k.own, c)
		}
	}
	return k
}

// Err is who cannot be reached, nil if everybody is.
func (k *Keepers) Err() error { return k.err }

// Close ends the connections.
func (k *Keepers) Close() {
	if k != nil {
		hosts.CloseAll(k.own)
	}
}

// Client is the connection to a host or switch, nil if there is none. It is closed with the keepers.
func (k *Keepers) Client(name string) hosts.Host { return k.clients[name] }

// Place is where the lease of a host or a switch lies.
func (k *Keepers) Place(ctx context.Context, name string) (lease.Place, error) {
	p, _, err := k.Lease(ctx, name)
	return p, err
}

// Lease is Place, and how a journal remembers a lease there.
func (k *Keepers) Lease(ctx context.Context, name string) (p lease.Place, kept journal.Lease, err error) {
	h, err := keeper(k.inv, name)
	if err != nil {
		return p, kept, err
	}
	client := k.clients[h.Name]
	if client == nil {
		return p, kept, fmt.Errorf("no connection to %s, which keeps the lease of %s", h.Name, name)
	}
	kept = journal.Lease{Host: h.Name, Dir: cmp.Or(h.SSH.Leases, lease.DefaultDir)}
	if err := shared(ctx, client, h.Name, kept.Dir); err != nil {
		return p, kept, err
	}
	what := "host"
	if sw, ok := k.inv.Switch(name); ok {
		// Different people may call it differently.
		what, kept.Key = "switch", fmt.Sprintf("switch-%d", sw.DeviceID)
		if h.Name != name {
			kept.Key = fmt.Sprintf("switch-%s-%d", cmp.Or(sw.Control, name), sw.DeviceID)
		}
	} else if _, ok := k.inv.Host(name); !ok {
		what, kept.Key = "manager", name
	} else {
		// The host's own name: hosts may share homes.
		own := client.ReadFilesOf(ctx, bounded.Small, "/proc/sys/kernel/hostname")[0]
		if own.Err != nil && !errors.Is(own.Err, fs.ErrNotExist) && !errors.Is(own.Err, fs.ErrPermission) {
			return p, kept, own.Err
		}
		kept.Key = "host-" + cmp.Or(strings.TrimSpace(string(own.Data)), name)
	}
	kept.Key = fileName(kept.Key)
	return lease.Place{Name: what + " " + name, Key: kept.Key, Files: lease.On(client, kept.Dir)}, kept, nil
}

// takenTime is for how long hosts are asked who has them.
const takenTime = 20 * time.Second

// Taken says of hosts that one is connected to who is at work there, by name: anybody's run, or the lock of another than the owner,
// whose own lock is for own work. Of those that cannot be asked it says nothing, as the next run finds out.
func Taken(ctx context.Context, inv *inventory.Inventory, have map[string]hosts.Host, owner string, fan int) map[string]string {
	ctx, cancel := context.WithTimeoutCause(ctx, takenTime, fmt.Errorf("no answer within %v", takenTime))
	defer cancel()
	names := slices.Sorted(maps.Keys(have))
	clients := make([]hosts.Host, len(names))
	for i, name := range names {
		clients[i] = have[name]
	}
	k := Beside(ctx, inv, names, have, reach.Options{Fan: fan})
	defer k.Close()
	states := make([]lease.State, len(names))
	_ = hosts.FanOut(ctx, fan, clients, func(ctx context.Context, i int, _ hosts.Host) error {
		p, err := k.Place(ctx, names[i])
		if err == nil {
			states[i], err = lease.Look(ctx, p)
		}
		return err
	})
	out := map[string]string{}
	for i, s := range states {
		if s.Held && (s.Run != "" || s.Owner != owner) {
			out[names[i]] = (&lease.HeldError{State: s}).Error()
		}
	}
	return out
}

// shared refuses a directory for leases in which others could put a file of theirs in the place of one that a holder
// writes to: a link to one of the holder's own. One in the user's home may be the user's group's, as umasks of 002 make it.
func shared(ctx context.Context, files statter, host, dir string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sharedTime, fmt.Errorf("no answer within %v", sharedTime))
	defer cancel()
	st, err := files.Stat(ctx, dir)
	others := fs.FileMode(0o002)
	if path.IsAbs(dir) {
		others = 0o022
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it will be the user's own
	case err != nil:
		return err
	case st.Mode().Perm()&others != 0 && st.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("leases on %w", blame.Host(host, fmt.Errorf("everybody who may write to %s may replace files of others there: chmod +t %s", dir, dir)))
	}
	return nil
}

// sharedTime is for how long a host may look for a directory.
const sharedTime = 10 * time.Second

// statter describes files: an ssh.Client does.
type statter interface {
	Stat(ctx context.Context, name string) (fs.FileInfo, error)
}

// fileName is a name for files, whatever a host says that it is called.
func fileName(of string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, of[:min(len(of), 200)])
}

// heldError is a host or switch that somebody else has.
type heldError struct {
	*lease.HeldError
	err error // which says so
	may []Way
}

func (e *heldError) Error() string   { return fmt.Sprintf("%v: %v", testbed.ErrBusy, e.err) }
func (e *heldError) Unwrap() []error { return []error{testbed.ErrBusy, e.err} }

// Way is what a command does about somebody else who has what it wants: a flag of it, and what that does.
type Way string

// The ways that there are.
const (
	Wait     Way = "--wait 10m waits for it"
	Takeover Way = "--takeover --reason WHY takes it away, and says so there"
)

// Hint is what to do about it.
func (e *heldError) Hint() string {
	if e.By != nil {
		hint := "inabench who says what is reserved; take less time, or come when that is over"
		if slices.Contains(e.may, Takeover) {
			hint += "; --takeover --reason WHY comes nevertheless, and says so there"
		}
		return hint
	}
	var hints []string
	if here := Controller().Host; e.Run != "" && e.Controller.Host == here && e.Owner == Owner() {
		hints = append(hints, fmt.Sprintf("if that run of yours (process %d on %s) is dead, `inabench clean` gives it back at once", e.Controller.PID, here))
	}
	for _, w := range e.may {
		hints = append(hints, string(w))
	}
	if len(e.may) == 0 {
		hints = append(hints, "inabench who says whose it is and until when")
	}
	return strings.Join(hints, "; ")
}

// Busy makes what somebody else has an error that wraps testbed.ErrBusy and says what to
// do, by the ways that the command has.
func Busy(err error, may ...Way) error {
	var held *lease.HeldError
	if errors.As(err, &held) && !errors.Is(err, testbed.ErrBusy) {
		return &heldError{held, err, may}
	}
	return err
}
