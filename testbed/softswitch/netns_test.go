//go:build linux

package softswitch

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/testbedtest"
)

// inNamespace is set for the copy of the test binary that runs in a user and
// network namespace of its own, where an ordinary user may make veth pairs.
const inNamespace = "INABENCH_SOFTSWITCH_TEST_NAMESPACE"

func TestMain(m *testing.M) {
	flag.Parse()
	fuzz := flag.Lookup("test.fuzz").Value.String() != "" || flag.Lookup("test.fuzzworker").Value.String() == "true"
	if os.Getenv(inNamespace) != "" || fuzz {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inNamespace+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		os.Setenv(inNamespace, "no: "+err.Error())
		os.Exit(m.Run())
	}
}

// needNamespace skips a test where veth pairs cannot be made.
func needNamespace(t testing.TB) {
	t.Helper()
	if why := os.Getenv(inNamespace); why != "yes" {
		testbedtest.Require(t, "netns", fmt.Errorf("user and network namespace: %s", why))
	}
}

// rack is a running switch and the far ends of its cables.
type rack struct {
	*Switch
	hosts []*host      // by port number; [0] is nil
	stop  func() error // Run has returned; also done at the end of the test
}

// host is the far end of a port's cable, with raw sockets like the switch's own.
type host struct {
	dev  *device
	pool *pool
	tx   []*packet
}

func newRack(t testing.TB, ports int, edit func(*Config)) *rack {
	t.Helper()
	needNamespace(t)
	cfg := Config{Name: "s", Aggregators: 1024, Seed: 1}
	for i := 1; i <= ports; i++ {
		cfg.Ports = append(cfg.Ports, PortConfig{Number: uint32(i), Device: fmt.Sprintf("p%d", i)})
	}
	if edit != nil {
		edit(&cfg)
	}
	r := &rack{hosts: newHosts(t, ports, cfg.Offload)}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Switch = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// newHosts makes cables from devices p1, p2, … to hosts, which are given by port number.
func newHosts(t testing.TB, ports int, offload bool) []*host {
	t.Helper()
	os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0) // fewer stray frames
	hosts := make([]*host, 1)
	for i := 1; i <= ports; i++ {
		v := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: fmt.Sprintf("h%d", i)}
		v.Name = fmt.Sprintf("p%d", i)
		v.TxQLen = 1000
		if err := netlink.LinkAdd(v); err != nil {
			t.Fatalf("add veth pair %s: %v", v.Name, err)
		}
		t.Cleanup(func() { netlink.LinkDel(v) })
		for _, name := range []string{v.Name, v.PeerName} {
			l, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if err != nil {
				t.Fatalf("set %s up: %v", name, err)
			}
			switchOffOffloads(t, name, offload)
		}
		d, err := openDevice(v.PeerName, 1514, 32<<20, offload)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.close)
		hosts = append(hosts, &host{dev: d, pool: &pool{size: 1536, left: 1 << 14}})
	}
	return hosts
}

// switchOffOffloads leaves those on that super-frames need.
func switchOffOffloads(t testing.TB, name string, offload bool) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	cmds := []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGRO}
	if !offload {
		cmds = append(cmds, unix.ETHTOOL_STXCSUM, unix.ETHTOOL_SGSO)
	}
	for _, cmd := range cmds {
		if _, err := Ethtool(fd, name, cmd, 0); err != nil {
			t.Fatalf("ethtool %s %#x: %v", name, cmd, err)
		}
	}
}

// frame puts a frame into h's outbox; flush sends it.
func (h *host) frame(b []byte) {
	p := h.pool.get()
	p.size = copy(p.buf.b, b)
	copy(p.head[:], b)
	p.job = jobOf(p.buf.b[:p.size])
	h.tx = append(h.tx, p)
}

func (h *host) flush(t testing.TB) {
	h.dev.send(h.tx, func(*packet) { t.Error("a host's device refused a frame") })
	for _, p := range h.tx {
		h.pool.put(p)
	}
	h.tx = h.tx[:0]
}

// next waits for the next frame and calls do with it.
func (h *host) next(t testing.TB, do func(b []byte)) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for h.dev.receive(1, func(b []byte, _ int64) { do(b) }) == 0 {
		if time.Now().After(deadline) {
			t.Fatalf("nothing arrived on %s", h.dev.name)
		}
		unix.Poll([]unix.PollFd{{Fd: int32(h.dev.fd), Events: unix.POLLIN}}, 100)
	}
}
