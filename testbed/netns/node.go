package netns

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/softswitch"
	"github.com/inabench/inabench/testbed/sshd"
)

// nodeConfig is the first line on a node process's stdin.
type nodeConfig struct {
	Kind   string             `json:"kind"` // "host", "switch" or "probe"
	Name   string             `json:"name"`
	Mgmt   netip.Prefix       `json:"mgmt"`
	NICs   []nicConfig        `json:"nics,omitempty"`   // of a host
	SSH    *sshConfig         `json:"ssh,omitempty"`    // of a host
	Switch *softswitch.Config `json:"switch,omitempty"` // of a switch
	BMv2   string             `json:"bmv2,omitempty"`   // the program that a switch's forwarding is left to; empty: the embedded switch

	Offload bool `json:"offload,omitempty"` // super-frames pass the data devices
	Paced   bool `json:"paced,omitempty"`   // of a host: see Options.Paced
}

// nicConfig is a host's data device and the switch that all its packets go to.
type nicConfig struct {
	Device  string           `json:"device"`
	Address netip.Prefix     `json:"address"`
	Gateway net.HardwareAddr `json:"gateway"`
	Rate    float64          `json:"rate,omitempty"` // bit/s that it takes from senders; 0: all that they have
}

// sshConfig is a host's SSH server.
type sshConfig struct {
	HostKey    []byte `json:"host_key"`   // ed25519 seed
	Authorized []byte `json:"authorized"` // public key in wire format
	Home       string `json:"home"`
	Program    string `json:"program,omitempty"` // OpenSSH's; empty: the embedded server
	Dir        string `json:"dir,omitempty"`     // for what OpenSSH's reads, to be made
}

// nodeReady is the first line that a node process answers.
type nodeReady struct {
	Ready bool     `json:"ready"`
	Error string   `json:"error,omitempty"`
	Notes []string `json:"notes,omitempty"` // what works less well here, and why
}

// HostMain is the process of one host or switch of an emulation, already in its
// own namespaces: the hidden verb netns-host. It reads its configuration from the
// first line of stdin, sets up its devices, serves, and returns when stdin ends or
// ctx is done. Of a switch, the rest of both streams is softswitch.Main's.
func HostMain(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReader(stdin)
	line, err := bounded.ReadLine(in, bounded.Config)
	if err != nil {
		return fmt.Errorf("read the node's configuration: %w", err)
	}
	var c nodeConfig
	if err := json.Unmarshal(line, &c); err != nil {
		return fmt.Errorf("read the node's configuration: %w", err)
	}
	switch c.Kind {
	case "probe":
		return json.NewEncoder(stdout).Encode(probeInside())
	case "switch":
		return switchMain(ctx, c, in, stdout)
	case "host":
		return hostMain(ctx, c, in, stdout)
	}
	return fmt.Errorf("node %s: unknown kind %q", c.Name, c.Kind)
}

// hostMain is a host: its devices, and an SSH server on the management network.
func hostMain(ctx context.Context, c nodeConfig, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	notes, err := c.setup()
	if err != nil {
		return err
	}
	if err := makeHome(c.SSH.Home); err != nil {
		return fmt.Errorf("make the home directory: %w", err)
	}
	if err := os.Chdir(c.SSH.Home); err != nil {
		return fmt.Errorf("enter the home directory: %w", err)
	}
	gone, reboots := make(chan struct{}), make(chan struct{})
	go func() { // not waited for: it ends with the process
		for lines := bufio.NewScanner(in); lines.Scan(); {
			reboots <- struct{}{} // the only thing that a host is told
		}
		cancel()
		close(gone)
	}()
	server, err := c.powerOn(ctx)
	if err != nil {
		return err
	}
	for _, nic := range c.NICs {
		if err := awaitCarrier(ctx, nic.Device); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(out).Encode(nodeReady{Ready: true, Notes: notes}); err != nil {
		return err
	}
	for {
		select {
		case <-gone:
			<-server.served
			return nil
		case err := <-server.served:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("SSH server: %w", err)
		case <-reboots:
			if err := server.powerOff(); err != nil {
				return err
			}
			if server, err = c.powerOn(ctx); err != nil {
				return err
			}
			if err := json.NewEncoder(out).Encode(nodeReady{Ready: true}); err != nil {
				return err
			}
		}
	}
}

// sshServer is a host's, for as long as the host is up.
type sshServer struct {
	served <-chan error // takes its end
	stop   context.CancelFunc
	cords  *cords // of the embedded server
}

// powerOn gives the host a new boot id and starts its SSH server.
func (c nodeConfig) powerOn(ctx context.Context) (*sshServer, error) {
	if err := c.newBootID(); err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	s := &sshServer{stop: stop}
	var err error
	if c.SSH.Program != "" {
		s.served, err = c.startOpenSSH(ctx)
	} else {
		s.served, err = c.startEmbedded(ctx, s)
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("SSH server: %w", err)
	}
	return s, nil
}

// startEmbedded starts the embedded SSH server. Its end is sent to the channel.
func (c nodeConfig) startEmbedded(ctx context.Context, s *sshServer) (<-chan error, error) {
	ln, err := net.Listen("tcp4", netip.AddrPortFrom(c.Mgmt.Addr(), sshPort).String())
	if err != nil {
		return nil, err
	}
	s.cords = &cords{Listener: ln}
	server, err := c.SSH.server()
	if err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, s.cords) }()
	return served, nil
}

// makeHome makes a home directory. The hosts of an emulation share one cache, as
// hosts with a network file system do: what is copied to one need not be kept in
// memory sixty times.
func makeHome(home string) error {
	cache := filepath.Join(home, "..", "..", "cache")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	return os.Symlink(cache, filepath.Join(home, ".cache"))
}

// server is the host's SSH server. Its sessions get a fresh environment, as from
// any sshd.
func (c *sshConfig) server() (*sshd.Server, error) {
	if len(c.HostKey) != ed25519.SeedSize {
		return nil, fmt.Errorf("host key of %d bytes", len(c.HostKey))
	}
	host, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(c.HostKey))
	if err != nil {
		return nil, fmt.Errorf("host key: %w", err)
	}
	user, err := ssh.ParsePublicKey(c.Authorized)
	if err != nil {
		return nil, fmt.Errorf("user key: %w", err)
	}
	return &sshd.Server{
		HostKey: host, AuthorizedKeys: []ssh.PublicKey{user}, Dir: c.Home,
		Env: []string{"PATH=" + os.Getenv("PATH"), "USER=root", "LOGNAME=root", "SHELL=/bin/sh"},
	}, nil
}

// switchMain is a switch: its devices, then the soft switch.
func switchMain(ctx context.Context, c nodeConfig, in io.Reader, out io.Writer) error {
	if _, err := c.setup(); err != nil {
		return err
	}
	if c.BMv2 != "" {
		return bmv2Main(ctx, c, in, out)
	}
	line, err := json.Marshal(c.Switch)
	if err != nil {
		return err
	}
	return softswitch.Main(ctx, io.MultiReader(bytes.NewReader(append(line, '\n')), in), out)
}

// setup makes this process's namespaces look like a machine of their own. Notes
// say what could not be done and is not needed.
func (c nodeConfig) setup() (notes []string, err error) {
	if c.Kind == "host" {
		if err := unix.Sethostname([]byte(c.Name)); err != nil {
			notes = append(notes, "host name: "+err.Error())
		}
		notes = append(notes, c.hostMounts()...)
	}
	sysctl := func(value, path string) {
		err := os.WriteFile("/proc/sys/net/"+path, []byte(value), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			notes = append(notes, err.Error())
		}
	}
	for _, of := range []string{"all", "default"} {
		sysctl("1", "ipv6/conf/"+of+"/disable_ipv6")
		sysctl("0", "ipv4/conf/"+of+"/rp_filter")
		sysctl("1", "ipv4/conf/"+of+"/accept_local")
	}
	sysctl("4096", "ipv4/igmp_max_memberships") // one up and one down group a job
	sysctl("1", "ipv4/igmp_qrv")                // one report a membership, not two
	// What a job's all-reduce takes depends on its bytes, not on when the last one was, nor
	// on what this machine prefers for the Internet.
	sysctl("0", "ipv4/tcp_slow_start_after_idle")
	sysctl("reno", "ipv4/tcp_congestion_control") // which nobody may forbid
	window := 0                                   // as the kernel has it
	if c.Paced {
		// Room for what is on its way in slow motion, from the first round trip on: the kernel
		// counts some bytes and a half for each of payload.
		sysctl("4096 4194304 33554432", "ipv4/tcp_rmem")
		sysctl("4096 16384 33554432", "ipv4/tcp_wmem")
		window = openWindow
	}

	mgmt, err := ifIndex(mgmtDevice)
	if err != nil {
		return nil, err
	}
	reqs := []request{linkUp(1, "lo"), linkUp(mgmt, mgmtDevice), addAddress(mgmt, c.Mgmt, true)}
	multicast := netip.MustParsePrefix("224.0.0.0/4")
	everywhere := netip.MustParsePrefix("0.0.0.0/0")
	for i, nic := range c.NICs {
		// A device keeps the settings that were the default when it was made.
		sysctl("0", "ipv4/conf/"+nic.Device+"/rp_filter")
		sysctl("1", "ipv4/conf/"+nic.Device+"/accept_local")
		if err := setOffloads(nic.Device, c.Offload); err != nil {
			return nil, err
		}
		index, err := ifIndex(nic.Device)
		if err != nil {
			return nil, err
		}
		if nic.Rate > 0 {
			if err := serialise(index, nic.Rate, c.Offload); err != nil {
				return nil, fmt.Errorf("device %s: %w", nic.Device, err)
			}
		}
		metric := 100 + i // the first is the default; bound sockets use their own
		reqs = append(reqs,
			addAddress(index, nic.Address, false),
			linkUp(index, nic.Device),
			addNeighbour(index, gateway, nic.Gateway),
			addRoute(index, everywhere, gateway, nic.Address.Addr(), metric, window),
			addRoute(index, multicast, netip.Addr{}, nic.Address.Addr(), metric, window))
	}
	if c.Switch != nil {
		for _, p := range c.Switch.Ports {
			if err := setOffloads(p.Device, c.Offload); err != nil {
				return nil, err
			}
			index, err := ifIndex(p.Device)
			if err != nil {
				return nil, err
			}
			reqs = append(reqs, linkUp(index, p.Device))
		}
	}
	return notes, apply(reqs...)
}

// hostMounts gives a host its own /proc (of its pid namespace) and /sys (of its
// network namespace: /sys/class/net is this host's), and a boot id. Containers that mask parts of
// these refuse new ones; the host then sees the ones of the machine.
func (c nodeConfig) hostMounts() (notes []string) {
	mount := func(fstype, at string) {
		if err := unix.Mount(fstype, at, fstype, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			notes = append(notes, fmt.Sprintf("%s is the machine's, not the host's: mount: %v", at, err))
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return []string{fmt.Sprintf("/proc and /sys are the machine's, not the host's: make mounts private: %v", err)}
	}
	mount("proc", "/proc")
	mount("sysfs", "/sys")
	return append(notes, c.bootMount()...)
}
