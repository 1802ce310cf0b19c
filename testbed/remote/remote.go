// Package remote runs experiments on hosts that are reached over SSH and switches
// that are reached over P4Runtime, whether they stand in a lab or are namespaces
// on this machine: the fabric that it is given says where they are.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/ssh"
)

// Options say how to reach what a fabric brought up.
type Options struct {
	Fabric testbed.Fabric

	Exe      string        // the static binary that hosts run as agent: this program
	Interval time.Duration // between the agents' reports; 0: 100 ms
	Fan      int           // hosts worked on at once; 0: 32
	Rest     time.Duration // of agents between packets, see testbed.Rest; 0: none
	Offload  bool          // agents hand packets to their NICs together, see agent.Config
	// StartTimeout is how long the first result of a job may take; 0: 20 s. It is never
	// less than 20 RTO of the job, so that some may be lost.
	StartTimeout time.Duration

	// Shared says that the testbed outlives this program and that others use it: a
	// switch that someone else controls is left alone, with an error wrapping
	// testbed.ErrBusy, and what cannot be undone on one that still answers is an
	// error wrapping testbed.ErrLeftovers. An emulation vanishes as a whole.
	Shared bool

	// Unmanaged leaves the switches to somebody else, who controls them: there is no
	// deployment then, only processes on hosts (Launch), counters of everything (Counters)
	// and the fabric's Health.
	Unmanaged bool

	// Target says how to log in to a host; nil: as the inventory says, with the
	// user's keys and known_hosts.
	Target func(inventory.Host) ssh.Target
	// HostMAC is the hardware address of a host's NIC, which switches write into
	// unicast frames; nil: asked from the host.
	HostMAC func(host, device string) (net.HardwareAddr, error)

	Capabilities testbed.Capabilities
	Facts        []results.HostFacts
}

// Testbed is a set of hosts and switches, connected and prepared.
type Testbed struct {
	opt  Options
	inv  *inventory.Inventory
	topo *inventory.Topology

	hosts     map[string]*ssh.Client
	agentPath map[string]string // by host
	switches  map[string]*p4rt.Client

	epoch uint16
	busy  atomic.Bool
	close sync.Once
	ended error
}

// Open connects to every host and switch of the fabric's inventory, copies the
// agent where it is missing, and pushes pipelines and routes. The testbed owns the
// fabric from here on: on error it is closed.
func Open(ctx context.Context, o Options) (_ *Testbed, err error) {
	if o.Interval == 0 {
		o.Interval = 100 * time.Millisecond
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = 20 * time.Second
	}
	if o.Fan == 0 {
		o.Fan = 32
	}
	tb := &Testbed{
		opt: o, inv: o.Fabric.Inventory(),
		hosts: map[string]*ssh.Client{}, agentPath: map[string]string{}, switches: map[string]*p4rt.Client{},
		// Epochs must differ from those of runs before this one.
		epoch: uint16(time.Now().UnixMilli()),
	}
	tb.topo = tb.inv.Topology()
	defer func() {
		if err != nil {
			err = errors.Join(err, tb.Close(context.WithoutCancel(ctx)))
		}
	}()
	// Hosts and switches at the same time: neither waits for the other.
	err = parallel(ctx, 2, func(ctx context.Context, i int) error {
		switch {
		case i == 0:
			return tb.connectHosts(ctx)
		case o.Unmanaged:
			return tb.observeSwitches()
		}
		return tb.connectSwitches(ctx)
	})
	if err != nil || o.Unmanaged {
		return tb, err
	}
	return tb, tb.route(ctx)
}

// Capabilities implements testbed.Testbed.
func (tb *Testbed) Capabilities() testbed.Capabilities { return tb.opt.Capabilities }

// Inventory implements testbed.Testbed.
func (tb *Testbed) Inventory() *inventory.Inventory { return tb.inv }

// Facts implements testbed.Testbed.
func (tb *Testbed) Facts() []results.HostFacts { return tb.opt.Facts }

// Shell gives the user a shell on a host.
func (tb *Testbed) Shell(ctx context.Context, host string, in io.Reader, out io.Writer) error {
	c, ok := tb.hosts[host]
	if !ok {
		return fmt.Errorf("no host %q; there are %s", host, strings.Join(sortedKeys(tb.hosts), ", "))
	}
	return c.Interactive(ctx, nil, in, out, out)
}

// Close implements testbed.Testbed.
func (tb *Testbed) Close(ctx context.Context) error {
	tb.close.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		var errs []error
		for _, name := range sortedKeys(tb.switches) {
			err := tb.switches[name].Close(tb.patience(ctx, name))
			if tb.opt.Shared {
				errs = append(errs, leftover(err))
			}
		}
		for _, c := range tb.hosts {
			c.Close()
		}
		tb.ended = errors.Join(append(errs, tb.opt.Fabric.Close(ctx))...)
	})
	return tb.ended
}

func (tb *Testbed) target(h inventory.Host) ssh.Target {
	if tb.opt.Target != nil {
		return tb.opt.Target(h)
	}
	return InventoryTarget(tb.inv, h)
}

// InventoryTarget is how the inventory says to log in to a host.
func InventoryTarget(inv *inventory.Inventory, h inventory.Host) ssh.Target {
	t := ssh.Target{Name: h.Name, Address: h.SSH.Address, User: h.SSH.User}
	if h.SSH.Key != "" {
		t.Keys = []string{h.SSH.Key}
	}
	if h.SSH.KnownHosts != "" {
		t.KnownHosts = []string{h.SSH.KnownHosts}
	}
	if h.SSH.Jump != "" {
		jump := ssh.Target{Name: h.SSH.Jump, Address: h.SSH.Jump, Keys: t.Keys, KnownHosts: t.KnownHosts}
		if via, ok := inv.Host(h.SSH.Jump); ok {
			jump = InventoryTarget(inv, *via)
		} else if user, address, ok := cutUser(h.SSH.Jump); ok {
			jump.User, jump.Address = user, address
		}
		t.Jump = &jump
	}
	return t
}

func (tb *Testbed) connectHosts(ctx context.Context) error {
	clients := make([]*ssh.Client, len(tb.inv.Hosts))
	err := parallelLimit(ctx, tb.opt.Fan, len(clients), func(ctx context.Context, i int) (err error) {
		clients[i], err = ssh.Dial(ctx, tb.target(tb.inv.Hosts[i]))
		return err
	})
	for i, c := range clients {
		if c != nil {
			tb.hosts[tb.inv.Hosts[i].Name] = c
		}
	}
	if err != nil {
		return err
	}
	path, err := ssh.EnsureFile(ctx, clients, tb.opt.Exe)
	if err != nil {
		return fmt.Errorf("copy the agent: %w", err)
	}
	for _, h := range tb.inv.Hosts {
		tb.agentPath[h.Name] = path
	}
	return nil
}

func (tb *Testbed) connectSwitches(ctx context.Context) error {
	clients := make([]*p4rt.Client, len(tb.inv.Switches))
	err := parallelLimit(ctx, tb.opt.Fan, len(clients), func(ctx context.Context, i int) error {
		sw := tb.inv.Switches[i]
		c, err := p4rt.Dial(ctx, sw.Name, sw.Control, sw.DeviceID, p4rt.Options{Polite: tb.opt.Shared})
		if errors.Is(err, p4rt.ErrNotPrimary) {
			return &busyError{sw.Name, err}
		}
		if err != nil {
			return err
		}
		clients[i] = c
		return c.Push(ctx, p4rt.Pipeline{Info: p4.Info()})
	})
	for i, c := range clients {
		if c != nil {
			tb.switches[tb.inv.Switches[i].Name] = c
		}
	}
	return err
}

// observeSwitches makes clients that only read.
func (tb *Testbed) observeSwitches() error {
	for _, sw := range tb.inv.Switches {
		c, err := p4rt.Observe(sw.Name, sw.Control, sw.DeviceID, p4rt.Options{})
		if err != nil {
			return err
		}
		tb.switches[sw.Name] = c
	}
	return nil
}

// busyError is a switch that someone else controls.
type busyError struct {
	name string
	err  error
}

func (e *busyError) Error() string   { return fmt.Sprintf("%v: %v", testbed.ErrBusy, e.err) }
func (e *busyError) Unwrap() []error { return []error{testbed.ErrBusy, e.err} }

// Hint is what to do about it.
func (e *busyError) Hint() string {
	return "wait until the other run has ended; if it hangs, `inabench clean --force -i LAB.toml` takes switch " + e.name + " over"
}

// patience bounds how long a switch is waited for to undo what was written: a lost
// one may come back in a lab, and never in an emulation.
func (tb *Testbed) patience(ctx context.Context, name string) context.Context {
	if tb.opt.Shared || tb.switches[name].Err() == nil {
		return ctx
	}
	ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// leftover marks what could not be undone.
func leftover(err error) error {
	if err == nil {
		return nil
	}
	return &leftoverError{err}
}

// leftoverError is something that a teardown could not undo.
type leftoverError struct{ err error }

func (e *leftoverError) Error() string   { return fmt.Sprintf("%v: %v", testbed.ErrLeftovers, e.err) }
func (e *leftoverError) Unwrap() []error { return []error{testbed.ErrLeftovers, e.err} }

// Hint is what to do about it.
func (e *leftoverError) Hint() string {
	return "when the switch answers again: inabench clean -i LAB.toml"
}

// route tells every switch the way to every host's data addresses.
func (tb *Testbed) route(ctx context.Context) error {
	return parallelLimit(ctx, tb.opt.Fan, len(tb.inv.Switches), func(ctx context.Context, i int) error {
		sw := tb.inv.Switches[i]
		var routes []p4.Route
		for _, h := range tb.inv.Hosts {
			path, err := tb.topo.Path(sw.Name, h.Name)
			if err != nil {
				return fmt.Errorf("switch %s: route to host %s: %w", sw.Name, h.Name, err)
			}
			for _, nic := range h.NICs {
				if !nic.Address.IsValid() {
					continue
				}
				mac, err := tb.hostMAC(ctx, h.Name, nic.Device)
				if err != nil {
					return fmt.Errorf("switch %s: route to host %s: %w", sw.Name, h.Name, err)
				}
				port := tb.topo.Links[path[0]].FromPort
				if nic.Switch == sw.Name {
					port = nic.Port
				}
				routes = append(routes, p4.Route{Dst: nic.Address.Addr().As4(), Port: port, MAC: [6]byte(mac)})
			}
		}
		return tb.switches[sw.Name].WriteRoutes(ctx, routes)
	})
}

// hostMAC is the hardware address of a host's NIC.
func (tb *Testbed) hostMAC(ctx context.Context, host, device string) (net.HardwareAddr, error) {
	if tb.opt.HostMAC != nil {
		return tb.opt.HostMAC(host, device)
	}
	out, err := tb.hosts[host].Run(ctx, []string{"cat", "/sys/class/net/" + device + "/address"}, nil)
	if err != nil {
		return nil, fmt.Errorf("hardware address of %s: %w", device, err)
	}
	return net.ParseMAC(strings.TrimSpace(string(out.Stdout)))
}

// program writes a deployment's groups and job entries into the switches.
func (tb *Testbed) program(ctx context.Context, batches map[string]*p4rt.Batch) error {
	names := sortedKeys(batches)
	return parallelLimit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) error {
		return tb.switches[names[i]].Write(ctx, *batches[names[i]])
	})
}

// unprogram makes the switches forget a deployment. What one of an emulation that is
// gone knew is gone as well.
func (tb *Testbed) unprogram(ctx context.Context, batches map[string]*p4rt.Batch) error {
	names := sortedKeys(batches)
	errs := make([]error, len(names)) // one switch that refuses does not excuse the others
	_ = parallelLimit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) error {
		sw := tb.switches[names[i]]
		errs[i] = sw.Delete(tb.patience(ctx, names[i]), *batches[names[i]])
		if !tb.opt.Shared && sw.Err() != nil {
			errs[i] = nil
		}
		return nil
	})
	if tb.opt.Shared {
		return leftover(errors.Join(errs...))
	}
	return errors.Join(errs...)
}

// lost reports connections that broke since the testbed was opened.
func (tb *Testbed) lost() error {
	var errs []error
	for _, name := range sortedKeys(tb.hosts) {
		errs = append(errs, tb.hosts[name].Err())
	}
	for _, name := range sortedKeys(tb.switches) {
		errs = append(errs, tb.switches[name].Err())
	}
	return errors.Join(errs...)
}

func (tb *Testbed) nic(host, device string) (inventory.NIC, error) {
	h, ok := tb.inv.Host(host)
	if !ok {
		return inventory.NIC{}, fmt.Errorf("no host %q", host)
	}
	i := slices.IndexFunc(h.NICs, func(n inventory.NIC) bool { return n.Device == device })
	if device == "" && len(h.NICs) == 1 { // an inventory need not name the only one
		i = 0
	}
	if i < 0 {
		return inventory.NIC{}, fmt.Errorf("host %s: no NIC %q", host, device)
	}
	if !h.NICs[i].Address.IsValid() {
		return inventory.NIC{}, fmt.Errorf("host %s: NIC %s: no data address", host, device)
	}
	return h.NICs[i], nil
}
