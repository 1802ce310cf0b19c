package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// noNamespaces is why the tests are not running inside an emulation's namespaces.
var noNamespaces error

// TestMain plays every part of an emulation: the test binary runs itself again
// inside, and its hosts and switches are the test binary too.
func TestMain(m *testing.M) {
	ctx := context.Background()
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "netns-host":
			if err := HostMain(ctx, os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case "udp-echo":
			fmt.Fprintln(os.Stderr, echoMain(os.Args[2]))
			os.Exit(1)
		case "udp-ping":
			if err := pingMain(os.Args[2], os.Args[3]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case "restricted":
			os.Exit(restricted(ctx))
		case "victim":
			os.Exit(victim(ctx))
		}
	}
	inside, code, err := Reexec(ctx)
	if err == nil && !inside {
		os.Exit(code)
	}
	noNamespaces = err
	os.Exit(m.Run())
}

// victim is a whole emulation to be killed: netns.test victim UNIQUE [openssh | impatient]. With
// OpenSSH's servers there are sessions too, one of which does not want to end.
func victim(ctx context.Context) int {
	if slices.Contains(os.Args, "impatient") {
		overdue = time.Second
	}
	inside, code, err := Reexec(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 70
	}
	if !inside {
		return code
	}
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	opts := Options{Log: os.Stderr}
	if slices.Contains(os.Args, OpenSSH) {
		opts.SSHD, opts.Log = OpenSSH, nil // it has much to say
	}
	f, err := Up(ctx, rack(1, 2, 2), opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 71
	}
	if opts.SSHD == OpenSSH {
		for _, h := range f.Inventory().Hosts {
			c, err := ssh.Dial(ctx, target(h))
			if err == nil {
				_, err = c.Run(ctx, []string{"/bin/sh", "-c", "trap : TERM HUP; setsid sleep 1000 >/dev/null 2>&1 & echo"}, nil)
			}
			if err == nil {
				_, err = c.Start(ctx, []string{"sleep", "1000"}, nil)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 73
			}
		}
	}
	fmt.Println("up")
	<-ctx.Done()
	if err := f.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 72
	}
	fmt.Println("down")
	return 42
}

// restricted is an ordinary user of a machine that allows no user namespaces: it
// makes one in which no further ones may be made, and gives up its capabilities.
func restricted(ctx context.Context) int {
	if len(os.Args) == 2 {
		cmd := exec.Command("/proc/self/exe", "restricted", "inside")
		cmd.Env = environ()
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		os.Stdout.Write(out)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	runtime.LockOSThread() // capabilities are a thread's; the one that makes processes is this
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&hdr, &none[0]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _, err := Reexec(ctx)
	fmt.Println("reexec:", err)
	r, err := Probe(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("probe:", r.Err())
	return 0
}

// rack is an inventory of spines, ToRs and hosts per ToR: tor1, spine1, h1, ...
func rack(spines, tors, perTor int) *inventory.Inventory {
	inv := &inventory.Inventory{Name: "rack"}
	for s := range spines {
		inv.Switches = append(inv.Switches, inventory.Switch{Name: fmt.Sprintf("spine%d", s+1), Kind: inventory.Soft})
	}
	for t := range tors {
		tor := fmt.Sprintf("tor%d", t+1)
		inv.Switches = append(inv.Switches, inventory.Switch{Name: tor, Kind: inventory.Soft, Rack: tor, Aggregators: 64})
		for s := range spines {
			inv.Links = append(inv.Links, inventory.Link{
				A: inventory.Port{Switch: tor, Port: uint32(100 + s)}, B: inventory.Port{Switch: fmt.Sprintf("spine%d", s+1), Port: uint32(t + 1)},
				Rate: 1e9, Delay: 20 * time.Microsecond,
			})
		}
		for h := range perTor {
			inv.Hosts = append(inv.Hosts, inventory.Host{Name: fmt.Sprintf("h%d", t*perTor+h+1), GPUs: 1, NICs: []inventory.NIC{{
				Device: "ens1", Switch: tor, Port: uint32(h + 1), Rate: 1e9, Delay: 10 * time.Microsecond,
			}}})
		}
	}
	return inv
}

// up brings an inventory up for one test.
func up(t testing.TB, inv *inventory.Inventory, opts Options) *Fabric {
	t.Helper()
	testbedtest.Require(t, "netns", noNamespaces)
	if opts.Log == nil {
		opts.Log = t.Output()
	}
	f, err := Up(t.Context(), inv, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// login opens an SSH connection to a host as any client would: with the key and the
// known_hosts file that the fabric's inventory names.
func login(t testing.TB, f *Fabric, host string) hosts.Host {
	t.Helper()
	for _, h := range f.Inventory().Hosts {
		if h.Name == host {
			c, err := ssh.Dial(t.Context(), target(h))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		}
	}
	t.Fatalf("no host %s", host)
	return nil
}

func target(h inventory.Host) ssh.Target {
	return ssh.Target{
		Name: h.Name, Address: h.SSH.Address, User: h.SSH.User, Agent: "none",
		Keys: []string{h.SSH.Key}, KnownHosts: []string{h.SSH.KnownHosts},
	}
}

// run is the standard output of a command on a host.
func run(t testing.TB, c hosts.Host, argv ...string) string {
	t.Helper()
	out, err := c.Run(t.Context(), argv, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.Stderr)
	}
	return strings.TrimSpace(string(out.Stdout))
}

// echoMain answers every datagram on a port: netns.test udp-echo PORT.
func echoMain(port string) error {
	conn, err := net.ListenPacket("udp4", ":"+port)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	buf := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		if _, err := conn.WriteTo(buf[:n], from); err != nil {
			return err
		}
	}
}

// pingMain sends datagrams one after another and says how many came back:
// netns.test udp-ping ADDR:PORT COUNT.
func pingMain(to, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	conn, err := net.Dial("udp4", to)
	if err != nil {
		return err
	}
	back := 0
	for i := range n {
		if _, err := fmt.Fprintf(conn, "%0900d", i); err != nil {
			return err
		}
		buf := make([]byte, 2048)
		patience := 10 * time.Second
		if n == 1 { // to see that it is lost
			patience = 300 * time.Millisecond
		}
		conn.SetReadDeadline(time.Now().Add(patience))
		if got, err := conn.Read(buf); err == nil && string(buf[:got]) == fmt.Sprintf("%0900d", i) {
			back++
		}
	}
	fmt.Println(back)
	return nil
}
