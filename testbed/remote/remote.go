package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/keepers"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/preflight"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/switches"
)

// Options say how to reach what a fabric brought up.
type Options struct {
	Fabric testbed.Fabric

	Exe string // the static binary that hosts run as agent: this program
	Fan int    // hosts worked on at once; 0: 32
	// Patience is how long a host or an agent may be silent until it is given up, and how
	// long what runs on hosts goes on without hearing from this program; 0: 20 s.
	Patience time.Duration
	Run      string // id of the run, for those who look at what runs on a host

	// Shared says that the testbed outlives this program and that others use it: a
	// switch that someone else controls is left alone, with an error wrapping
	// testbed.ErrBusy, and what cannot be undone on one that still answers is an
	// error wrapping testbed.ErrLeftovers. An emulation vanishes as a whole.
	Shared bool
	// Hold says for whom a shared testbed's hosts and switches are leased. They are given
	// back when the testbed is closed; one that is lost meanwhile breaks deployments, with
	// an error wrapping lease.ErrLost.
	Hold Hold
	// Use are the hosts and switches that are touched, and leased; nil: all.
	Use []string

	// Unmanaged leaves the switches to somebody else, who controls them: there is no
	// deployment then, only processes on hosts (Launch), counters of everything (Counters)
	// and the fabric's Health.
	Unmanaged bool

	// Readers reads all that hosts count, through a process of this program on each: what
	// drivers, RDMA devices and GPUs say too. Otherwise only what the kernel does is read,
	// without one.
	Readers bool

	// Preflight looks at the hosts before anything on them or on switches is changed; an
	// error is the end of Open. nil: they are not looked at.
	Preflight func(ctx context.Context, hosts []preflight.Host) ([]results.Preflight, []results.HostFacts, error)

	// HostMAC is the hardware address of a host's NIC, which switches write into
	// unicast frames; nil: asked from the host.
	HostMAC func(host, device string) (net.HardwareAddr, error)

	Capabilities testbed.Capabilities
	Facts        []results.HostFacts // nil: what Preflight says of the hosts
}

// Testbed is a set of hosts and switches, connected and prepared.
type Testbed struct {
	opt  Options
	inv  *inventory.Inventory
	topo *inventory.Topology

	hosts     map[string]hosts.Host
	agentPath map[string]string // by host
	boots     map[string]boot   // of hosts, when they were connected to
	opened    time.Time
	switches  map[string]switches.Switch  // in use
	planes    map[string]dataplane.Switch // of those that take routes and jobs

	dialled atomic.Bool      // hosts are connected
	audit   collectors.Audit // of the counters that are read
	damaged sync.Map         // links that were damaged on purpose
	sab     saboteur
	readers readers
	looked  []results.Preflight

	disobeyed []string // lines of the user's ssh_config that are not followed

	keepers *keepers.Keepers // of leases
	held    *lease.Set
	leased  []*journal.Change
	changes changes // of hosts and switches

	close  sync.Once
	closed atomic.Bool // or about to be
	ended  error

	interrupted atomic.Pointer[time.Time] // when taking down began, of a run that was
}

// Open connects to every host and switch of the fabric's inventory, copies the
// agent where it is missing, and pushes pipelines and routes. The testbed owns the
// fabric from here on: on error it is closed.
func Open(ctx context.Context, o Options) (_ *Testbed, err error) {
	if o.Fan == 0 {
		o.Fan = 32
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	tb := &Testbed{
		opt: o, inv: o.Fabric.Inventory(),
		hosts: map[string]hosts.Host{}, agentPath: map[string]string{}, switches: map[string]switches.Switch{}, planes: map[string]dataplane.Switch{},
		boots: map[string]boot{}, opened: time.Now(),
	}
	tb.topo = tb.inv.Topology()
	tb.audit.SuperFrames = o.Capabilities.SuperFrames
	tb.audit.Damaged = func(link string) bool { _, damaged := tb.damaged.Load(link); return damaged }
	if o.Capabilities.Switch == string(inventory.BMv2) { // which counts what has come out of a cable and what goes into one
		tb.audit.Flight = map[string]float64{}
		for _, l := range tb.topo.Links {
			tb.audit.Flight[l.Name] = l.Delay.Seconds()
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tb.Close(context.WithoutCancel(ctx)))
		}
	}()
	if o.Shared {
		if err := tb.dialHosts(ctx); err != nil {
			return nil, err
		}
		// Nothing is changed before everything is ours.
		if err := tb.take(ctx); err != nil {
			return nil, err
		}
		if err := tb.preflight(ctx); err != nil {
			return nil, err
		}
	}
	// Hosts and switches at the same time: neither waits for the other.
	err = parallel.All(ctx, 2, func(ctx context.Context, i int) error {
		switch {
		case i == 0 && o.Shared:
			return tb.copyAgent(ctx)
		case i == 0:
			if err := tb.dialHosts(ctx); err != nil {
				return err
			}
			return errors.Join(tb.preflight(ctx), tb.copyAgent(ctx))
		}
		return tb.connectSwitches(ctx)
	})
	if err != nil || o.Unmanaged {
		return tb, err
	}
	return tb, tb.route(ctx)
}

// preflight looks at the hosts that are used.
func (tb *Testbed) preflight(ctx context.Context) (err error) {
	if tb.opt.Preflight == nil {
		return nil
	}
	used, _ := tb.used()
	var hosts []preflight.Host
	for _, h := range used {
		hosts = append(hosts, preflight.Host{Host: h, Client: tb.hosts[h.Name], Lab: tb.inv})
	}
	var facts []results.HostFacts
	tb.looked, facts, err = tb.opt.Preflight(ctx, hosts)
	if tb.opt.Facts == nil {
		tb.opt.Facts = facts
	}
	for _, line := range tb.disobeyed {
		tb.looked = append(tb.looked, results.Preflight{Name: "ssh_config", Outcome: results.Skipped, Why: line})
	}
	return err
}

// Of is the hosts and switches of a testbed that has some: not of a model.
func Of(tb testbed.Testbed) (_ *Testbed, ok bool) {
	t, ok := tb.(interface{ itself() *Testbed })
	if !ok {
		return nil, false
	}
	return t.itself(), true
}

func (tb *Testbed) itself() *Testbed { return tb }

// Closed reports whether the testbed is closed, or about to be.
func (tb *Testbed) Closed() bool { return tb.closed.Load() }

// Patience is Options.Patience.
func (tb *Testbed) Patience() time.Duration { return tb.opt.Patience }

// Audit is of the counters that are read.
func (tb *Testbed) Audit() *collectors.Audit { return &tb.audit }

// SetLink damages a directed link of the fabric, or mends it.
func (tb *Testbed) SetLink(ctx context.Context, link string, s testbed.LinkState) error {
	tb.damaged.Delete(link)
	if s != (testbed.LinkState{}) {
		tb.damaged.Store(link, true)
	}
	return tb.opt.Fabric.SetLink(ctx, link, s)
}

// Preflight is what was found when the testbed was opened.
func (tb *Testbed) Preflight() []results.Preflight { return tb.looked }

// Capabilities are those of testbed.Testbed.
func (tb *Testbed) Capabilities() testbed.Capabilities {
	c := tb.opt.Capabilities
	for _, sw := range tb.planes {
		if most := sw.Jobs(); c.Jobs == 0 || most < c.Jobs {
			c.Jobs = most
		}
	}
	return c
}

// Inventory is what the testbed really is, see testbed.Testbed.
func (tb *Testbed) Inventory() *inventory.Inventory { return tb.inv }

// Topology is the inventory's.
func (tb *Testbed) Topology() *inventory.Topology { return tb.topo }

// Facts describe the hosts.
func (tb *Testbed) Facts() []results.HostFacts { return tb.opt.Facts }

// Shell gives the user a shell on a host.
func (tb *Testbed) Shell(ctx context.Context, host string, in io.Reader, out io.Writer) error {
	c, ok := tb.hosts[host]
	if !ok {
		return fmt.Errorf("no host %q; there are %s", host, strings.Join(slices.Sorted(maps.Keys(tb.hosts)), ", "))
	}
	return c.Interactive(ctx, nil, in, out, out)
}

// Close changes everything back, and hangs up: see testbed.Testbed.
func (tb *Testbed) Close(ctx context.Context) error {
	tb.close.Do(func() {
		tb.closed.Store(true)
		part := tb.parting(ctx, time.Now())
		apart, cancel := part.until(leaveSwitches)
		defer cancel()
		names := slices.Sorted(maps.Keys(tb.planes))
		errs := make([]error, 2)
		var side sync.WaitGroup
		scripts, cancel := part.whole(apart)
		defer cancel()
		side.Go(func() { errs[0] = tb.closeSwitches(scripts) })
		errs[1] = parallel.Every(len(names), len(names), func(i int) error { return tb.closeSwitch(apart, names[i]) })
		side.Wait()
		part = part.after(leaveSwitches, time.Now())
		tb.readers.close()
		away, cancel := part.until(leaveHosts)
		defer cancel()
		errs = append(errs, tb.leaveHosts(away))
		last, cancel := part.until(leaveLeases)
		defer cancel()
		errs = append(errs, testbed.Leftover(tb.giveBack(last, tb.changes.left)))
		for _, c := range tb.hosts {
			c.Close()
		}
		tb.ended = errors.Join(append(errs, tb.opt.Fabric.Close(last))...)
	})
	return tb.ended
}

// closeSwitch changes a switch back, and ends the session with it. One that another run has leased is that one's; one that
// somebody controls who has not has what was written into it still.
func (tb *Testbed) closeSwitch(ctx context.Context, name string) error {
	sw := tb.planes[name]
	err := sw.Close(tb.patience(ctx, name))
	if lost := sw.Err(); err == nil && !tb.opt.Unmanaged && errors.Is(lost, dataplane.ErrNotPrimary) && !errors.Is(tb.Held(ctx), lease.ErrLost) {
		err = lost
	}
	if err == nil {
		return tb.undone("switch " + name)
	}
	if tb.opt.Shared {
		return tb.Left("switch "+name, err)
	}
	return nil // it goes with the emulation
}

// A stage of taking everything down is how long it may last at most after that has begun, where somebody waits for it: a
// run was interrupted. Otherwise it may last slowly times as long.
const (
	leaveJobs     = 5 * time.Second // agents end, switches forget their jobs
	leaveSwitches = 7 * time.Second
	leaveHosts    = 9 * time.Second
	leaveLeases   = 10 * time.Second

	slowly = 3
)

// parting is when taking down began.
type parting struct {
	ctx   context.Context // without an end
	began time.Time
	slow  time.Duration
}

// parting begins at now, or began when a run that was interrupted first took something down.
func (tb *Testbed) parting(ctx context.Context, now time.Time) parting {
	p := parting{context.WithoutCancel(ctx), now, slowly}
	if ctx.Err() != nil {
		tb.interrupted.CompareAndSwap(nil, &now)
		p.began, p.slow = *tb.interrupted.Load(), 1
	}
	return p
}

// Uninterrupted says that another run begins: that one before was interrupted is no business of its.
func (tb *Testbed) Uninterrupted() { tb.interrupted.Store(nil) }

// Leaving is the context of what is taken down before Close, for so long at most. Where the run was interrupted that counts
// as the first of Close's own stages, which has begun then.
func (tb *Testbed) Leaving(ctx context.Context, long time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return tb.parting(ctx, time.Now()).until(leaveJobs)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), long)
}

// until is the context of a stage.
func (p parting) until(stage time.Duration) (context.Context, context.CancelFunc) {
	return context.WithDeadline(p.ctx, p.began.Add(p.slow*stage))
}

// longest is how long what has a time limit of its own may last.
const longest = 10 * time.Minute

// whole is the context of what has a time limit of its own, as a switch's script has: the stage's where somebody waits.
func (p parting) whole(stage context.Context) (context.Context, context.CancelFunc) {
	if p.slow == 1 {
		return context.WithCancel(stage)
	}
	return context.WithTimeout(p.ctx, longest)
}

// after is the parting whose next stages have their time though this one took longer, where nobody waits.
func (p parting) after(stage time.Duration, now time.Time) parting {
	if over := now.Sub(p.began) - p.slow*stage; p.slow > 1 && over > 0 {
		p.began = p.began.Add(over)
	}
	return p
}

// reaching is how hosts are connected to.
func (tb *Testbed) reaching() reach.Options {
	return reach.Options{Fan: tb.opt.Fan, Patience: tb.opt.Patience}
}

func (tb *Testbed) dialHosts(ctx context.Context) error {
	used, _ := tb.used()
	ways := make([]reach.Way, len(used))
	for i, h := range used {
		ways[i] = reach.To(tb.inv, h)
	}
	dialer := reach.Dialer{Options: tb.reaching()}
	dialer.Warn = func(line string) { tb.disobeyed = append(tb.disobeyed, line) }
	all, err := dialer.DialAll(ctx, ways)
	for i, h := range all {
		if h != nil {
			tb.hosts[used[i].Name] = h
		}
	}
	if err != nil {
		return err
	}
	tb.dialled.Store(true)
	return tb.boot(ctx)
}

// copyAgent makes this program present on the hosts. The copy stays: it is a cache, and
// does nothing by itself.
func (tb *Testbed) copyAgent(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(tb.hosts))
	clients := make([]hosts.Host, len(names))
	for i, name := range names {
		clients[i] = tb.hosts[name]
	}
	var paths []string
	var err error
	if tb.opt.Shared {
		paths, err = hosts.EnsureProgram(ctx, clients, tb.opt.Exe)
	} else { // they are this machine
		var path string
		path, err = hosts.EnsureFile(ctx, clients, tb.opt.Exe)
		paths = slices.Repeat([]string{path}, len(names))
	}
	if err != nil {
		return fmt.Errorf("copy the agent: %w", err)
	}
	for i, name := range names {
		tb.agentPath[name] = paths[i]
	}
	return tb.enterHosts()
}

// connectSwitches opens those in use, or only looks on where somebody else controls them.
func (tb *Testbed) connectSwitches(ctx context.Context) error {
	hosts, used := tb.used()
	site := &switches.Site{
		Inventory: tb.inv, Topology: tb.topo, Hosts: hosts, Host: tb.connected, Reach: tb.reaching(), Journal: tb.opt.Hold.Journal,
		Polite: tb.polite, Mine: tb.mine,
	}
	open := switches.Open
	if tb.opt.Unmanaged {
		open = switches.Observe
	}
	opened := make([]switches.Switch, len(used))
	err := parallel.Limit(ctx, tb.opt.Fan, len(used), func(ctx context.Context, i int) (err error) {
		opened[i], err = open(ctx, site, used[i])
		if opened[i] == nil && errors.Is(err, dataplane.ErrNotPrimary) {
			return testbed.Controlled(used[i].Name, err)
		}
		if errors.Is(err, dataplane.ErrForeign) {
			return testbed.Foreign(used[i].Name, err)
		}
		return err
	})
	for i, sw := range opened {
		if sw == nil {
			continue
		}
		tb.switches[used[i].Name] = sw
		if plane := sw.Plane(); plane != nil {
			tb.planes[used[i].Name] = plane
		}
	}
	return err
}

// connected is the connection to a host; nil: there is none, or it is being made.
func (tb *Testbed) connected(host string) hosts.Host {
	if !tb.dialled.Load() {
		return nil
	}
	return tb.hosts[host]
}

// closeSwitches undoes what was set up in switches besides what was written into them, and hangs up.
func (tb *Testbed) closeSwitches(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(tb.switches))
	return parallel.Every(tb.opt.Fan, len(names), func(i int) error {
		return tb.Left("switch "+names[i], tb.switches[names[i]].Close(ctx))
	})
}

// SwitchFacts are what switches run, in the order of the inventory.
func (tb *Testbed) SwitchFacts() []results.SwitchFacts {
	var out []results.SwitchFacts
	for _, sw := range tb.inv.Switches {
		if x, ok := tb.switches[sw.Name]; ok && x.Facts() != nil {
			out = append(out, *x.Facts())
		}
	}
	return out
}

// patience bounds how long a switch is waited for to undo what was written: a lost
// one may come back in a lab, and never in an emulation.
func (tb *Testbed) patience(ctx context.Context, name string) context.Context {
	limit := time.Millisecond
	switch {
	case tb.opt.Shared && (tb.planes[name].Err() != nil || tb.alone()):
		limit = tb.opt.Patience
	case tb.planes[name].Err() == nil:
		return ctx
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// route tells every switch the way to every host's data addresses.
func (tb *Testbed) route(ctx context.Context) error {
	hosts, _ := tb.used()
	names := slices.Sorted(maps.Keys(tb.planes))
	floods := floodsOf(tb.topo, names, hosts)
	return parallel.Limit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) error {
		sw := names[i]
		routes, err := routesOf(tb.topo, sw, hosts, func(host, device string) (net.HardwareAddr, error) { return tb.hostMAC(ctx, host, device) })
		if err != nil {
			return err
		}
		if err := tb.enterRoutes(sw, routes, floods[sw]); err != nil {
			return err
		}
		return tb.planes[sw].Write(ctx, dataplane.Batch{Groups: floods[sw], Routes: routes})
	})
}

// routesOf is the way from a switch to every IPv4 data address of hosts. Addresses of another
// kind get none: CheckLab leaves them to InfiniBand's NICs, whose frames no P4 switch carries.
func routesOf(topo *inventory.Topology, sw string, hosts []inventory.Host, mac func(host, device string) (net.HardwareAddr, error)) (routes []p4.Route, err error) {
	for _, h := range hosts {
		path, err := topo.Path(sw, h.Name)
		if err != nil {
			return nil, blame.Switch(sw, fmt.Errorf("route to host %s: %w", h.Name, err))
		}
		for _, nic := range h.NICs {
			if !nic.Address.Addr().Is4() {
				continue
			}
			hw, err := mac(h.Name, nic.Device)
			if err != nil {
				return nil, blame.Switch(sw, fmt.Errorf("route to host %s: %w", h.Name, err))
			}
			if len(hw) != 6 {
				return nil, blame.Switch(sw, fmt.Errorf("route to host %s: device %s: %s is no Ethernet address", h.Name, nic.Device, hw))
			}
			port := topo.Links[path[0]].FromPort
			if nic.Switch == sw {
				port = nic.Port
			}
			routes = append(routes, p4.Route{Dst: nic.Address.Addr().As4(), Port: port, MAC: [6]byte(hw)})
		}
	}
	return routes, nil
}

// floodsOf are the groups through which switches pass ARP on (p4.FloodGroup), by switch: to hosts, and along the ways from the
// first switch to the others, which are a tree.
func floodsOf(topo *inventory.Topology, switches []string, hosts []inventory.Host) map[string][]p4.Group {
	ports := map[string]map[uint32]bool{}
	for _, sw := range switches {
		ports[sw] = map[uint32]bool{}
	}
	for _, h := range hosts {
		for _, nic := range h.NICs {
			if on := ports[nic.Switch]; on != nil && nic.Address.Addr().Is4() {
				on[nic.Port] = true
			}
		}
	}
	for _, sw := range switches {
		path, err := topo.Path(switches[0], sw)
		if err != nil {
			continue // no way: they do not hear of each other
		}
		for _, l := range path {
			cable := topo.Links[l]
			if a, b := ports[cable.From], ports[cable.To]; a != nil && b != nil {
				a[cable.FromPort], b[cable.ToPort] = true, true
			}
		}
	}
	groups := map[string][]p4.Group{}
	for _, sw := range switches {
		all := slices.Sorted(maps.Keys(ports[sw]))
		for _, in := range all {
			others := slices.DeleteFunc(slices.Clone(all), func(p uint32) bool { return p == in })
			if len(others) > 0 {
				groups[sw] = append(groups[sw], p4.Group{ID: p4.FloodGroup(in), Ports: others})
			}
		}
	}
	return groups
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

// Write enters groups of ports and jobs into switches.
func (tb *Testbed) Write(ctx context.Context, batches map[string]*dataplane.Batch) error {
	names := slices.Sorted(maps.Keys(batches))
	if err := tb.enterJobs(batches); err != nil {
		return err
	}
	return parallel.Limit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) error {
		sw, ok := tb.planes[names[i]]
		if !ok {
			return fmt.Errorf("switch %s is not in use", names[i])
		}
		return sw.Write(ctx, *batches[names[i]])
	})
}

// Forget makes switches forget what Write entered. What one of an emulation that is
// gone knew is gone as well.
func (tb *Testbed) Forget(ctx context.Context, batches map[string]*dataplane.Batch) error {
	names := slices.Sorted(maps.Keys(batches))
	err := parallel.Every(tb.opt.Fan, len(names), func(i int) error { return tb.forget(ctx, names[i], batches[names[i]]) })
	if tb.opt.Shared {
		return testbed.Leftover(err)
	}
	return err
}

func (tb *Testbed) forget(ctx context.Context, name string, batch *dataplane.Batch) error {
	sw, ok := tb.planes[name]
	if !ok {
		return nil // it was never reached
	}
	err := sw.Delete(tb.patience(ctx, name), *batch)
	if errors.Is(err, dataplane.ErrNotPrimary) && errors.Is(tb.Held(ctx), lease.ErrLost) {
		err = nil // it is another run's, which has loaded its own pipeline
	}
	if err == nil {
		err = tb.leaveJobs(name, batch)
	}
	if !tb.opt.Shared && sw.Err() != nil {
		return nil
	}
	return err
}
