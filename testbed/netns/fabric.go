package netns

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// Options are how an inventory is emulated.
type Options struct {
	Scale   results.Scale // Mode "", "none", results.SlowMotion or Shrunk; Factor > 0 with the latter
	SSHD    string        // every host's SSH server: Embedded (default) or OpenSSH
	Switch  string        // what every switch is: Soft (default) or BMv2
	Queue   string        // discipline of every queue: "fifo" (default), "drr" or "drr-flow", see softswitch.LinkConfig
	Offload bool          // frames change hands as super-frames; see softswitch.Config
	Paced   bool          // TCP is of senders that keep to their NIC's rate: it begins with a window, and has buffers, that slow motion needs, which others fill at once
	Serial  bool          // hosts' NICs take no more from senders than their rate, who know nothing of it: programs of others
	Seed    uint64        // of everything random in the switches
	// Beat is the shortest time that matters: by it lateness is judged, and how long switches
	// may rest. 0: the shortest round trip of a Frame, as for whatever counts packets.
	Beat    time.Duration
	Frame   int                // bytes of a packet's frame; 0: 1024
	PcapDir string             // directory for one capture per switch port; empty: none
	Slow    map[string]float64 // parts of its rate that a directed link lacks, 0 to 1, which Inventory does not tell
	Log     io.Writer          // what hosts and switches print to stderr; nil: nowhere
	Exe     string             // program with the hidden verb netns-host; empty: this one

	bmv2 string // where it is
}

const (
	upTimeout = 30 * time.Second
	grace     = 4 * time.Second // for processes to stop when their stdin has ended
)

// Fabric is an emulated testbed. Its methods are safe for concurrent use.
type Fabric struct {
	layout *layout
	dir    string
	procs  []*process                     // in layout's order; nil where the start failed
	macs   map[[2]string]net.HardwareAddr // host, device

	health  sync.Mutex // one Health at a time: it reads what happened since the last
	machine machine
	leftOut bool // Stalls was called since then

	close   sync.Once
	closed  error
	closing chan struct{}
	failed  chan struct{} // closed when the first process has died by itself
	watch   sync.WaitGroup
	bridged bool // the management network is there, and this fabric's

	mu   sync.Mutex
	dead []*process
}

var _ testbed.Fabric = (*Fabric)(nil)

// Up emulates inv and returns when every host accepts SSH connections and every
// switch is ready to be controlled. The process must be one that Reexec runs
// inside. One fabric exists at a time; a second one is refused with an error
// wrapping testbed.ErrBusy. On error nothing of it remains.
func Up(ctx context.Context, inv *inventory.Inventory, opts Options) (_ *Fabric, err error) {
	if !Inside() {
		return nil, errors.New("an emulation must be started inside its namespaces: call netns.Reexec first")
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	var program string
	if opts.SSHD == OpenSSH {
		if program, err = FindOpenSSH(); err != nil {
			return nil, err
		}
	}
	if opts.Switch == BMv2 {
		if opts.bmv2, err = FindBMv2(); err != nil {
			return nil, err
		}
	}
	if opts.Offload {
		if err := canOffload(); err != nil {
			return nil, err
		}
	}
	l, err := newLayout(inv, opts)
	if err != nil {
		return nil, fmt.Errorf("emulate %s: %w", inv.Name, err)
	}
	f := &Fabric{
		layout: l, procs: make([]*process, len(l.nodes)), macs: map[[2]string]net.HardwareAddr{},
		closing: make(chan struct{}), failed: make(chan struct{}),
	}
	for _, c := range l.cables {
		if l.nodes[c.a].Kind == "host" {
			f.macs[[2]string{l.nodes[c.a].Name, c.aDev}] = c.aMAC
		}
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("emulate %s: %w", inv.Name, errors.Join(err, f.Close(ctx)))
		}
	}()
	if f.dir, err = os.MkdirTemp(stateDir(), "fabric-"); err != nil {
		return nil, err
	}
	if err := f.credentials(program); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, upTimeout, fmt.Errorf("not up after %v", upTimeout))
	defer cancel()
	if err := f.powerOn(ctx, opts); err != nil {
		return nil, err
	}
	return f, nil
}

func (o Options) check() error {
	switch o.Scale.Mode {
	case "", "none":
	case results.SlowMotion, results.Shrunk:
		if !(o.Scale.Factor > 0) {
			return fmt.Errorf("scale factor %v: must be greater than 0", o.Scale.Factor)
		}
	default:
		return fmt.Errorf("scale mode %q: want %q or %q", o.Scale.Mode, results.SlowMotion, results.Shrunk)
	}
	if o.Queue != "" && o.Queue != "fifo" && o.Queue != "drr" && o.Queue != "drr-flow" {
		return fmt.Errorf("queue %q: want fifo, drr or drr-flow", o.Queue)
	}
	if o.Switch != "" && o.Switch != Soft && o.Switch != BMv2 {
		return fmt.Errorf("switch %q: want %s or %s", o.Switch, Soft, BMv2)
	}
	if o.Switch == BMv2 && o.Offload {
		return fmt.Errorf("offload with %s: %w: it forwards frames one by one", BMv2, errors.ErrUnsupported)
	}
	if o.SSHD != "" && o.SSHD != Embedded && o.SSHD != OpenSSH {
		return fmt.Errorf("sshd %q: want %s or %s", o.SSHD, Embedded, OpenSSH)
	}
	return nil
}

// user is who logs into hosts.
func (o Options) user() string {
	if o.SSHD == OpenSSH {
		return labUser
	}
	return "root"
}

// credentials makes this run's keys, and the files by which the ordinary SSH
// client holds every host to them. Program is OpenSSH's server, or empty.
func (f *Fabric) credentials(program string) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	authorized, err := ssh.NewPublicKey(public)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "inabench")
	if err != nil {
		return err
	}
	keyFile, hostsFile := filepath.Join(f.dir, "id_ed25519"), filepath.Join(f.dir, "known_hosts")
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(block), 0o600); err != nil {
		return err
	}
	var known strings.Builder
	for i := range f.layout.inv.Hosts {
		h := &f.layout.inv.Hosts[i]
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return err
		}
		key, err := ssh.NewPublicKey(public)
		if err != nil {
			return err
		}
		fmt.Fprintln(&known, knownhosts.Line([]string{knownhosts.Normalize(h.SSH.Address)}, key))
		h.SSH.Key, h.SSH.KnownHosts = keyFile, hostsFile
		f.layout.nodes[i].SSH = &sshConfig{
			HostKey: private.Seed(), Authorized: authorized.Marshal(),
			Home: filepath.Join(f.dir, "hosts", h.Name), Program: program, Dir: filepath.Join(f.dir, "sshd", h.Name),
		}
	}
	return os.WriteFile(hostsFile, []byte(known.String()), 0o600)
}

// powerOn starts all processes and cables them as they appear: switches first, so
// that a host can be configured as soon as it is there.
func (f *Fabric) powerOn(ctx context.Context, opts Options) error {
	l := f.layout
	bridge, err := f.managementBridge()
	if err != nil {
		return err
	}
	exe := cmp.Or(opts.Exe, "/proc/self/exe")
	log := opts.Log
	if log != nil {
		log = &lockedWriter{w: log}
	}

	g, ctx := errgroup.WithContext(ctx)
	started := make(chan int, len(l.nodes))
	g.Go(func() error {
		defer close(started)
		hosts := len(l.inv.Hosts)
		for k := range l.nodes {
			i := (k + hosts) % len(l.nodes)
			n := &l.nodes[i]
			flags := uintptr(unix.CLONE_NEWNET)
			if n.Kind == "host" {
				// What runs on a host ends with it, and sees its own mounts and processes.
				flags |= unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS
			}
			p, err := startProcess(exe, n.Kind+" "+n.Name, flags, log)
			if err != nil {
				return err
			}
			f.procs[i] = p
			f.watch.Go(func() { f.watchProcess(p) })
			started <- i
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	})
	g.Go(func() error {
		cables := make([][]cable, len(l.nodes))
		up := make([]bool, len(l.nodes))
		for _, c := range l.cables {
			cables[c.a] = append(cables[c.a], c)
			cables[c.b] = append(cables[c.b], c)
		}
		wired := func(node int) bool { // all of its devices are there
			return !slices.ContainsFunc(cables[node], func(c cable) bool { return !up[c.a] || !up[c.b] })
		}
		for first := range started {
			var reqs []request
			touched := map[int]bool{}
			for _, i := range append([]int{first}, drain(started)...) {
				up[i] = true
				touched[i] = true
				reqs = append(reqs, newVeth(bridge, vethEnd{name: mgmtPort(i)},
					vethEnd{name: mgmtDevice, pid: f.procs[i].cmd.Process.Pid}))
				for _, c := range cables[i] {
					if up[c.a] && up[c.b] {
						touched[c.a], touched[c.b] = true, true
						reqs = append(reqs, newVeth(0,
							vethEnd{name: c.aDev, mac: c.aMAC, pid: f.procs[c.a].cmd.Process.Pid},
							vethEnd{name: c.bDev, mac: c.bMAC, pid: f.procs[c.b].cmd.Process.Pid}))
					}
				}
			}
			if err := apply(reqs...); err != nil {
				return f.deathOr(err)
			}
			for i := range touched {
				if wired(i) {
					if err := f.procs[i].send(l.nodes[i]); err != nil {
						return f.deathOr(err)
					}
					g.Go(func() error { return f.ready(ctx, i) })
				}
			}
		}
		return nil
	})
	return g.Wait()
}

// deathOr is how a process died, if one did, for then err is its consequence.
func (f *Fabric) deathOr(err error) error {
	select {
	case <-f.failed:
		return f.Err()
	case <-time.After(100 * time.Millisecond):
		return err
	}
}

// drain takes what is already there.
func drain(c <-chan int) (got []int) {
	for {
		select {
		case i, ok := <-c:
			if !ok {
				return got
			}
			got = append(got, i)
		default:
			return got
		}
	}
}

// managementBridge is the index of the bridge that all management devices join.
func (f *Fabric) managementBridge() (int, error) {
	// No IPv6 here either; where the kernel has none there is nothing to switch off.
	for _, of := range []string{"all", "default"} {
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+of+"/disable_ipv6", []byte("1"), 0)
	}
	if err := apply(newBridge(mgmtBridge, mgmtGroup)); err != nil {
		if errors.Is(err, syscall.EEXIST) {
			return 0, fmt.Errorf("%w: an emulation is up already", testbed.ErrBusy) // the network is that one's
		}
		return 0, err
	}
	f.bridged = true
	index, err := ifIndex(mgmtBridge)
	if err != nil {
		return 0, err
	}
	return index, apply(linkUp(1, "lo"), addAddress(index, f.layout.mgmt, true))
}

// mgmtPort is the bridge's port towards a node.
func mgmtPort(node int) string { return fmt.Sprintf("m%d", node) }

// ready waits until a node says so, and of a host also until its SSH port answers
// from here.
func (f *Fabric) ready(ctx context.Context, i int) error {
	p, n := f.procs[i], f.layout.nodes[i]
	var answer nodeReady
	if err := p.receive(ctx, &answer); err != nil {
		return err
	}
	if !answer.Ready {
		return fmt.Errorf("%s: %s", p.name, answer.Error)
	}
	if err := awaitCarrier(ctx, mgmtPort(i)); err != nil {
		return err
	}
	if n.Kind != "host" {
		return nil
	}
	for _, note := range answer.Notes {
		fmt.Fprintln(p.errors, "note: "+note)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp4", netip.AddrPortFrom(n.Mgmt.Addr(), sshPort).String())
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return conn.Close()
}

// watchProcess notices when a process dies by itself.
func (f *Fabric) watchProcess(p *process) {
	select {
	case <-p.exited:
	case <-f.closing: // whatever runs by then is waited for by stop, which gives up
		return
	}
	select {
	case <-f.closing:
		return
	default:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = append(f.dead, p)
	if len(f.dead) == 1 {
		close(f.failed)
	}
}

// Failed is closed when a host or switch has died by itself; Err then says which.
func (f *Fabric) Failed() <-chan struct{} { return f.failed }

// Err names the hosts and switches that have died by themselves, and how.
func (f *Fabric) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, p := range f.dead {
		errs = append(errs, p.died())
	}
	return errors.Join(errs...)
}

// Inventory is what was brought up: SSH and P4Runtime addresses on the management
// network, scaled rates and delays, all data addresses chosen, every switch of the kind that
// was asked for.
func (f *Fabric) Inventory() *inventory.Inventory { return f.layout.inv }

// HostMAC is the hardware address of a host's device, nil when there is none: what
// a switch's route to the host writes into frames.
func (f *Fabric) HostMAC(host, device string) net.HardwareAddr {
	return f.macs[[2]string{host, device}]
}

// Beat is the shortest time that matters, which Health judges by: Options.Beat, or the
// shortest round trip between two hosts without queueing. It is 0 with fewer than two.
func (f *Fabric) Beat() time.Duration { return f.layout.beat.Duration }

// Close stops every process, kills those that do not stop in time, and removes the
// management network. It takes a few seconds at most, whatever ctx says.
func (f *Fabric) Close(context.Context) error {
	f.close.Do(func() {
		close(f.closing)
		var ps []*process
		for _, p := range f.procs {
			if p != nil {
				_ = p.stdin.Close() // tells it to end
				ps = append(ps, p)
			}
		}
		var errs []error
		if f.bridged {
			errs = append(errs, apply(deleteGroup(mgmtGroup)))
		}
		errs = append(errs, stop(ps, grace))
		f.watch.Wait()
		if f.dir != "" {
			errs = append(errs, os.RemoveAll(f.dir))
		}
		if err := errors.Join(errs...); err != nil {
			f.closed = fmt.Errorf("take the emulation down: %w", err)
		}
	})
	return f.closed
}

// lockedWriter lets many processes share one writer, a line at a time.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
