package netns

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
)

// A host that lost its power has another boot id, and nothing of what ran on it. Its
// connections are dead without anybody having said so.
func TestReboot(t *testing.T) {
	for _, server := range []string{Embedded, OpenSSH} {
		t.Run(server, func(t *testing.T) {
			if server == OpenSSH {
				needOpenSSH(t)
			}
			f := up(t, rack(0, 1, 2), Options{SSHD: server})
			const bootID = "/proc/sys/kernel/random/boot_id"
			h1 := login(t, f, "h1")
			before, other := run(t, h1, "cat", bootID), run(t, login(t, f, "h2"), "cat", bootID)
			if before == other || len(before) != 36 {
				t.Errorf("boot ids %q and %q", before, other)
			}
			// One that left its session, and one that the connection waits for.
			left, err := h1.Start(t.Context(), []string{"/bin/sh", "-c", "setsid sleep 1000 & exec sleep 1000"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Reboot(t.Context(), "h1"); err != nil {
				t.Fatal(err)
			}
			if err := left.Wait(); !errors.Is(err, hosts.ErrLost) {
				t.Errorf("what ran there: %v", err)
			}
			again := login(t, f, "h1")
			if after := run(t, again, "cat", bootID); after == before || len(after) != 36 {
				t.Errorf("boot id %q, before %q", after, before)
			}
			ps := run(t, again, "/bin/sh", "-c", "cat /proc/[1-9]*/comm")
			if strings.Contains(ps, "sleep") {
				t.Errorf("processes after the reboot: %s", ps)
			}
			if err := f.Err(); err != nil {
				t.Errorf("the emulation says %v", err)
			}
		})
	}
}

// A switch whose process is stopped does not hold up who asks it.
func TestStoppedSwitch(t *testing.T) {
	defer func(d time.Duration) { answerTime = d }(answerTime)
	answerTime = time.Second
	f := up(t, rack(1, 2, 2), Options{})
	i := slices.IndexFunc(f.procs, func(p *process) bool { return p.name == "switch tor2" })
	if err := f.procs[i].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for state := ""; state != "T"; time.Sleep(time.Millisecond) { // it may answer until the signal has come to all its threads
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.procs[i].cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		state = rest[:1]
	}
	want := fmt.Sprintf("switch tor2 has not answered for 1s: is its process %d stopped?", f.procs[i].cmd.Process.Pid)
	for what, ask := range map[string]func() error{
		"stalls": func() error { _, err := f.Stalls(t.Context(), time.Now()); return err },
		"health": func() error { _, err := f.Health(t.Context()); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	if err := f.procs[i].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Stalls(t.Context(), time.Now()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A switch that was stopped says when it stood still, although nothing came that it could
// have been late for, and is well afterwards. One that was not says nothing of the kind.
func TestStalls(t *testing.T) {
	f := up(t, rack(1, 2, 2), Options{Beat: 100 * time.Millisecond})
	began := time.Now()
	if _, err := f.Stalls(t.Context(), began); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(f.procs, func(p *process) bool { return p.name == "switch tor2" })
	signal := func(s syscall.Signal) (before, after time.Duration) {
		before = time.Since(began)
		if err := f.procs[i].cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		return before, time.Since(began)
	}
	_, stopped := signal(syscall.SIGSTOP)
	time.Sleep(150 * time.Millisecond)
	going, _ := signal(syscall.SIGCONT)
	all, err := f.Stalls(t.Context(), began)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Since(began)
	t.Logf("stopped from %v to %v: %+v", stopped, going, all)
	// Other processes of this machine may make others stand still, and this one longer.
	const slack = 30 * time.Millisecond
	found := slices.IndexFunc(all, func(s testbed.Stall) bool {
		return s.Where == "switch tor2" && s.Start <= stopped+slack && s.End >= going-slack && s.End <= now &&
			s.Late >= going-stopped-2*slack && strings.HasPrefix(s.What, "it did not run for up to ")
	})
	if found < 0 {
		t.Errorf("stopped from %v to %v, told are %+v", stopped, going, all)
	}
	again, err := f.Stalls(t.Context(), began)
	if err != nil {
		t.Fatal(err)
	}
	if found >= 0 && slices.Contains(again, all[found]) {
		t.Errorf("told twice: %+v", again)
	}
	health, err := f.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(health, func(x results.Trouble) bool {
		return x.Where == "switch tor2" && strings.HasPrefix(x.What, "stood still ")
	}) {
		t.Errorf("health does not tell of it: %+v", health)
	}
}

func TestUnplug(t *testing.T) {
	f := up(t, rack(0, 1, 2), Options{})
	target := target(f.Inventory().Hosts[0])
	target.KeepAlive = 50 * time.Millisecond
	h1, err := ssh.Dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer h1.Close()
	if err := f.Unplug("h1", true); err != nil {
		t.Fatal(err)
	}
	<-h1.Done()
	if err := h1.Err(); !errors.Is(err, hosts.ErrLost) || !strings.Contains(err.Error(), "no answer to keepalives") {
		t.Errorf("unplugged: %v", err)
	}
	if err := f.Unplug("h1", false); err != nil {
		t.Fatal(err)
	}
	login(t, f, "h1")
	if err := f.Unplug("h9", true); err == nil {
		t.Error("there is no h9")
	}
	if err := f.Reboot(t.Context(), "tor1"); err == nil || !strings.Contains(err.Error(), "not a host") {
		t.Errorf("reboot of a switch: %v", err)
	}
}
