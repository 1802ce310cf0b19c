package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// program gives every switch routes to every host, as a controller does.
func program(t *testing.T, f *Fabric) {
	t.Helper()
	topo := f.Inventory().Topology()
	for _, s := range f.Inventory().Switches {
		c, err := p4rt.Dial(t.Context(), s.Name, s.Control, s.DeviceID, p4rt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(context.Background()) })
		if err := c.Push(t.Context(), dataplane.Pipeline{Info: p4.Info()}); err != nil {
			t.Fatal(err)
		}
		var b dataplane.Batch
		for _, h := range f.Inventory().Hosts {
			path, err := topo.Path(s.Name, h.Name)
			if err != nil {
				t.Fatal(err)
			}
			b.Routes = append(b.Routes, p4.Route{
				Dst: h.NICs[0].Address.Addr().As4(), Port: topo.Links[path[0]].FromPort,
				MAC: [6]byte(f.HostMAC(h.Name, h.NICs[0].Device)),
			})
		}
		if err := c.Write(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
}

func exe(t *testing.T) string {
	t.Helper()
	e, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestHosts checks that a host is a machine of its own to who logs into it.
func TestHosts(t *testing.T) {
	f := up(t, rack(1, 2, 2), Options{})
	h3 := login(t, f, "h3")
	for _, tt := range []struct{ what, command, want string }{
		{"host name", "hostname || cat /proc/sys/kernel/hostname", "h3"},
		{"devices", "ls /sys/class/net | tr '\\n' ' '", "ens1 lo mgmt0 "},
		{"statistics", "cat /sys/class/net/ens1/statistics/tx_errors", "0"},
		{"counters", "grep -c ens1: /proc/net/dev", "1"},
		{"MAC address", "cat /sys/class/net/ens1/address", f.HostMAC("h3", "ens1").String()},
		{"multicast leaves by", "awk '$2 == \"000000E0\" {print $1}' /proc/net/route", "ens1"},
		{"everything leaves by", "awk '$2 == \"00000000\" {print $1}' /proc/net/route", "ens1"},
		{"no IPv6", "cat /proc/net/if_inet6 2>/dev/null | wc -l", "0"},
		{"few processes", "ls -d /proc/[1-9]* | wc -l | awk '{print ($1 < 12)}'", "1"},
		{"home", `test "$HOME" = "$PWD" && ls -a | tr '\n' ' '`, ". .. .cache "},
		{"fresh environment", "echo $USER", "root"},
		{"shared cache", "echo shared > .cache/x && cat .cache/x", "shared"},
	} {
		if got := run(t, h3, "/bin/sh", "-c", tt.command); strings.TrimSpace(got) != strings.TrimSpace(tt.want) {
			t.Errorf("%s: %s says %q, want %q", tt.what, tt.command, got, tt.want)
		}
	}
	if got := run(t, login(t, f, "h1"), "cat", ".cache/x"); got != "shared" {
		t.Errorf("h1 sees %q in the cache that h3 wrote to", got)
	}
}

// TestSerial: a NIC that is to keep its rate takes from a host in a hurry what that rate carries, and any other all.
func TestSerial(t *testing.T) {
	testbedtest.Require(t, "python3", python())
	const rate, datagrams, size = 8e6, 1500, 1400
	const script = `
import socket, sys, time
def sent(): return int(open("/sys/class/net/ens1/statistics/tx_bytes").read())
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
begin, before = time.monotonic(), sent()
for i in range(int(sys.argv[2])):
    s.sendto(b"x" * int(sys.argv[3]), (sys.argv[1], 9))
print(sent() - before, time.monotonic() - begin)`
	for _, serial := range []bool{true, false} {
		t.Run(fmt.Sprint(serial), func(t *testing.T) {
			inv := rack(1, 2, 1)
			for i := range inv.Hosts {
				inv.Hosts[i].NICs[0].Rate = rate
			}
			f := up(t, inv, Options{Serial: serial})
			to := f.Inventory().Hosts[1].NICs[0].Address.Addr().String()
			var sent, took float64
			said := run(t, login(t, f, "h1"), "python3", "-c", script, to, fmt.Sprint(datagrams), fmt.Sprint(size))
			if _, err := fmt.Sscan(said, &sent, &took); err != nil {
				t.Fatalf("%q: %v", said, err)
			}
			if most := rate/8*took + 8*1514; serial && (sent > most || sent == 0) {
				t.Errorf("%.0f bytes in %.1f ms, at most %.0f", sent, 1e3*took, most)
			}
			if !serial && sent < datagrams*size {
				t.Errorf("%.0f bytes of %d", sent, datagrams*size)
			}
		})
	}
}

// TestTraffic sends datagrams through the emulated switches, and damages a link.
func TestTraffic(t *testing.T) {
	f := up(t, rack(1, 2, 2), Options{})
	program(t, f)
	addr := map[string]string{}
	for _, h := range f.Inventory().Hosts {
		addr[h.Name] = h.NICs[0].Address.Addr().String()
	}
	for _, host := range []string{"h2", "h3"} {
		p, err := login(t, f, host).Start(t.Context(), []string{exe(t), "udp-echo", "7000"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		line := make([]byte, len("listening\n"))
		if _, err := io.ReadFull(p.Stdout, line); err != nil {
			t.Fatal(err)
		}
	}
	h1 := login(t, f, "h1")
	ping := func(to, n string) string {
		t.Helper()
		return run(t, h1, exe(t), "udp-ping", net.JoinHostPort(addr[to], "7000"), n)
	}
	for _, to := range []string{"h2", "h3"} { // within a rack, and across the spine
		if got := ping(to, "20"); got != "20" {
			t.Errorf("h1 -> %s: %s of 20 datagrams came back", to, got)
		}
	}
	for _, link := range []string{"h1->tor1", "tor1->h1", "tor1->spine1", "spine1->tor1", "tor2->h3"} {
		if err := f.SetLink(t.Context(), link, testbed.LinkState{Loss: 1}); err != nil {
			t.Fatal(err)
		}
		if got := ping("h3", "1"); got != "0" {
			t.Errorf("%s loses everything, yet a datagram came back from h3", link)
		}
		if err := f.SetLink(t.Context(), link, testbed.LinkState{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := ping("h3", "5"); got != "5" {
		t.Errorf("after repair %s of 5 datagrams came back", got)
	}
	if err := f.SetLink(t.Context(), "h1->tor9", testbed.LinkState{}); err == nil || !strings.Contains(err.Error(), `"h1->tor9"`) {
		t.Errorf("damage to a link that does not exist: %v", err)
	}
	if err := f.SetLink(t.Context(), "h1->tor1", testbed.LinkState{Loss: 2}); err == nil {
		t.Error("a loss probability of 2 was taken")
	}
}

// leftovers is what an emulation consists of, as seen from the controller.
func leftovers(t *testing.T) []string {
	t.Helper()
	var found []string
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ifs {
		found = append(found, "device "+i.Name)
	}
	for ns, who := range namespacesInUse(t) {
		found = append(found, "namespace "+ns+" of "+who)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	found = append(found, fmt.Sprintf("%d mounts", bytes.Count(mounts, []byte("\n"))))
	files, err := os.ReadDir(stateDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		found = append(found, "file "+f.Name())
	}
	slices.Sort(found)
	return found
}

// namespacesInUse are all namespaces of the processes that can be seen, each with
// one of its processes.
func namespacesInUse(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if strings.Trim(p.Name(), "0123456789") != "" {
			continue
		}
		for _, kind := range []string{"net", "mnt", "pid", "user", "uts", "ipc"} {
			if ns, err := os.Readlink("/proc/" + p.Name() + "/ns/" + kind); err == nil {
				command, _ := os.ReadFile("/proc/" + p.Name() + "/cmdline")
				found[ns] = string(bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
			}
		}
	}
	return found
}

// eventually retries a check until it is content or time is up.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// nothingLeft waits until what there is is what there was.
func nothingLeft(t *testing.T, before []string) {
	t.Helper()
	eventually(t, func() error {
		if after := leftovers(t); !slices.Equal(before, after) {
			return fmt.Errorf("left over:\n before %q\n after  %q", before, after)
		}
		return nil
	})
}

func TestCloseLeavesNothing(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	before := leftovers(t)
	f := up(t, rack(1, 2, 2), Options{})
	if during := leftovers(t); slices.Equal(before, during) {
		t.Fatal("an emulation cannot be seen, so neither could its remains")
	}
	h1 := login(t, f, "h1")
	p, err := h1.Start(t.Context(), []string{"/bin/sh", "-c", "sleep 1000 & echo started; wait"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stdout.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := f.Close(cancelled); err != nil {
			t.Error(err)
		}
	}
	nothingLeft(t, before)
	if _, err := f.Health(t.Context()); err == nil {
		t.Error("a closed fabric has health")
	}
}

func TestOnlyOne(t *testing.T) {
	f := up(t, rack(0, 1, 2), Options{})
	if _, err := Up(t.Context(), rack(0, 1, 2), Options{}); !errors.Is(err, testbed.ErrBusy) {
		t.Errorf("a second emulation: %v, want %v", err, testbed.ErrBusy)
	}
	if got := run(t, login(t, f, "h1"), "echo", "here"); got != "here" {
		t.Errorf("the first one is disturbed: %q", got)
	}
}

// TestUpFails checks that a bring-up which cannot succeed says why and leaves nothing.
func TestUpFails(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	before := leftovers(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	broken := t.TempDir() + "/broken"
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho no such verb >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		ctx  context.Context
		opts Options
		want string
	}{
		{"cancelled", cancelled, Options{}, "context canceled"},
		{"no program", t.Context(), Options{Exe: "/does/not/exist"}, "start switch"},
		{"broken program", t.Context(), Options{Exe: broken}, "exit status 3: no such verb"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Up(tt.ctx, rack(1, 2, 2), tt.opts)
			if err == nil {
				f.Close(t.Context())
				t.Fatal("it came up")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, want it to say %q", err, tt.want)
			}
			nothingLeft(t, before)
		})
	}
}

// TestDeath checks that a host and a switch that die are noticed and named.
func TestDeath(t *testing.T) {
	f := up(t, rack(0, 2, 2), Options{})
	if ts, err := f.Health(t.Context()); err != nil || slices.ContainsFunc(ts, func(x results.Trouble) bool { return strings.HasPrefix(x.Where, "host") }) {
		t.Fatalf("before: %v %v", ts, err)
	}
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{1, 4} {
		f.procs[i].cmd.Process.Kill()
		<-f.procs[i].exited
	}
	<-f.Failed()
	eventually(t, func() error {
		if err := f.Err(); strings.Count(fmt.Sprint(err), "is gone") != 2 {
			return fmt.Errorf("two are dead, error is %v", err)
		}
		return nil
	})
	for _, name := range []string{"host h2", "switch tor1"} {
		if err := f.Err(); err == nil || !strings.Contains(err.Error(), name+" is gone: signal: killed") {
			t.Errorf("error %v does not say how %s ended", err, name)
		}
		ts, err := f.Health(t.Context())
		if err != nil {
			t.Error(err)
		}
		if !slices.ContainsFunc(ts, func(x results.Trouble) bool { return x.Where == name && x.Fatal }) {
			t.Errorf("health %v does not name %s", ts, name)
		}
	}
	if err := f.SetLink(t.Context(), "tor1->h1", testbed.LinkState{}); err == nil || !strings.Contains(err.Error(), "switch tor1 is gone") {
		t.Errorf("damage to a link of a dead switch: %v", err)
	}
}

func python() error {
	_, err := exec.LookPath("python3")
	return err
}
