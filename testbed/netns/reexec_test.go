package netns

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/testbedtest"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random tests")

// startVictim starts a whole emulation, namespaces and all, as another process. Its
// output ends when the last process that holds it has.
func startVictim(t *testing.T, name string, more ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{"victim", name}, more...)...)
	cmd.Env = environ()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewReader(stdout)
}

func expectLine(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	if line, err := r.ReadString('\n'); err != nil || line != want+"\n" {
		t.Fatalf("the emulation said %q (%v), want %q", line, err, want)
	}
}

// TestFreePlace: a tmpfs is mounted over nothing that is used, however it is named.
func TestFreePlace(t *testing.T) {
	dir := resolved(t.TempDir())
	first, second, link := filepath.Join(dir, "first"), filepath.Join(dir, "second"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(first, 0o777), os.Mkdir(second, 0o777), os.Symlink(first, link)); err != nil {
		t.Fatal(err)
	}
	for used, want := range map[string]string{
		"":                       first,
		"exp.toml":               first,
		first + "s":              first,
		first:                    second,
		first + "/":              second,
		first + "/runs":          second,
		"sh " + first + "/my.sh": second,
		"--runs=" + first + "/x": second,
		link:                     second,
		link + "/":               second,
		link + "/runs/new":       second,
		second:                   first,
	} {
		if got, err := freePlace([]string{filepath.Join(dir, "none"), link, first, second}, []string{"", used}); got != want || err != nil {
			t.Errorf("where %q is used: %s, %v; want %s", used, got, err, want)
		}
	}
	if got, err := freePlace([]string{first}, []string{link}); err == nil {
		t.Errorf("%s, which is used", got)
	}
	t.Setenv("INABENCH_RUNS", "/dev/shm/runs")
	if got, err := tmpfsPlace(); got == "/dev/shm" {
		t.Errorf("%s, where the runs are: %v", got, err)
	}
	args := os.Args
	defer func() { os.Args = args }()
	t.Setenv("INABENCH_RUNS", "")
	os.Args = []string{"inabench", "run", "--runs=/dev/shm"}
	if got, err := tmpfsPlace(); got == "/dev/shm" {
		t.Errorf("%s, where the runs are: %v", got, err)
	}
}

// TestSignals checks that a signal to the outside reaches the controller once, that
// it can take its time to end, and that its exit code comes out.
func TestSignals(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	before := leftovers(t)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd, out := startVictim(t, "signalled")
		expectLine(t, out, "up")
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		expectLine(t, out, "down")
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 42 {
			t.Errorf("%v: ended with %v, want exit status 42", s, err)
		}
	}
	nothingLeft(t, before)
}

// TestStoppedInside: what is inside is killed where it cannot heed a signal, because it is stopped.
func TestStoppedInside(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	before := leftovers(t)
	for role, who := range []string{1: "the first process inside", 2: "the controller"} {
		if who == "" {
			continue
		}
		name := fmt.Sprintf("stopped-%d-%d", os.Getpid(), role)
		cmd, out := startVictim(t, name, "impatient")
		expectLine(t, out, "up")
		all := findProcesses(t, name)
		if len(all) <= role {
			t.Fatalf("processes %v", all)
		}
		if err := syscall.Kill(all[role], syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		cmd.Process.Signal(syscall.SIGTERM)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s is stopped, and nobody ends it", who)
		}
		if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGKILL) {
			t.Errorf("%s is stopped: exit code %d", who, code)
		}
		eventually(t, func() error {
			if ps := findProcesses(t, name); len(ps) > 0 {
				return fmt.Errorf("processes %v are left", ps)
			}
			return nil
		})
	}
	nothingLeft(t, before)
}

// TestKill kills one of the three processes that hold an emulation together, at
// random moments of its life, and looks for remains from outside of it.
func TestKill(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	t.Logf("-seed=%d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 0))
	before := leftovers(t)
	kills := 20
	if !proof.Wanted() {
		kills = 8
	}
	for i := range kills {
		name := fmt.Sprintf("victim-%d-%d", os.Getpid(), i)
		cmd, _ := startVictim(t, name)
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond) // anywhere between start and standing
		role := rng.IntN(4)                                         // the process outside twice as often
		if all := findProcesses(t, name); role > 0 && role < len(all) {
			syscall.Kill(all[role], syscall.SIGKILL)
		} else {
			cmd.Process.Kill()
		}
		cmd.Wait()
		eventually(t, func() error {
			if ps := findProcesses(t, name); len(ps) > 0 {
				return fmt.Errorf("kill %d of process %d: processes %v are left", i, role, ps)
			}
			return nil
		})
		nothingLeft(t, before)
	}
	cmd, out := startVictim(t, "next") // the next one is not disturbed
	expectLine(t, out, "up")
	cmd.Process.Signal(syscall.SIGTERM)
	expectLine(t, out, "down")
}

// findProcesses are the processes with an argument in their command line, oldest
// first: the one outside, the first inside, the controller.
func findProcesses(t *testing.T, arg string) (pids []int) {
	t.Helper()
	procs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if line, err := os.ReadFile("/proc/" + p.Name() + "/cmdline"); err == nil && bytes.Contains(line, []byte(arg)) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// TestUnsupported holds what is said about restricted machines to naming the
// setting and the ways out.
func TestUnsupported(t *testing.T) {
	for _, tt := range []struct {
		name     string
		err      error
		settings map[string]string
		want     []string
	}{
		{"AppArmor, Ubuntu 24.04", syscall.EPERM, map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1\n", "kernel/unprivileged_userns_clone": "1\n"},
			[]string{"AppArmor", "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0", "profile", "userns,", "run with sudo"}},
		{"AppArmor, denied a mount", fmt.Errorf("make mounts private: %w", syscall.EACCES), map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1\n"},
			[]string{"AppArmor", "run with sudo"}},
		{"Debian's switch", syscall.EPERM, map[string]string{"kernel/unprivileged_userns_clone": "0\n"},
			[]string{"kernel.unprivileged_userns_clone = 0", "sudo sysctl -w kernel.unprivileged_userns_clone=1", "run with sudo"}},
		{"none allowed", syscall.ENOSPC, map[string]string{"user/max_user_namespaces": "0\n"},
			[]string{"user.max_user_namespaces = 0", "sudo sysctl -w user.max_user_namespaces=", "run with sudo"}},
		{"too many", syscall.ENOSPC, map[string]string{"user/max_user_namespaces": "100\n"},
			[]string{"limit", "sudo sysctl -w user.max_user_namespaces="}},
		{"a container", syscall.EPERM, nil, []string{"container", "--privileged", "SYS_ADMIN"}},
		{"an old kernel", syscall.EINVAL, nil, []string{"CONFIG_USER_NS", "run with sudo"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := unsupported(&os.PathError{Op: "fork/exec", Path: "/proc/self/exe", Err: tt.err}, func(path string) ([]byte, error) {
				if s, ok := tt.settings[strings.TrimPrefix(path, "/proc/sys/")]; ok {
					return []byte(s), nil
				}
				return nil, fs.ErrNotExist
			})
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%v is not %v", err, errors.ErrUnsupported)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
	if err := unsupported(syscall.EMFILE, os.ReadFile); errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("too many open files are not a matter of support: %v", err)
	}
}

// TestRestricted makes this machine refuse user namespaces and sees what Reexec and
// Probe say.
func TestRestricted(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	out, err := exec.Command("/proc/self/exe", "restricted").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"reexec: namespaces are not available: user.max_user_namespaces = 0", "probe: namespaces of an ordinary user: user.max_user_namespaces = 0"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("got\n%s\nwant it to say %q", out, want)
		}
	}
}

func TestProbe(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	before := leftovers(t)
	r, err := Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		t.Logf("%-40s %-5v %s %s", c.Name, c.OK, c.Why, c.Fix)
		if !c.OK && c.Fix == "" {
			t.Errorf("%s: %s: no way out is given", c.Name, c.Why)
		}
	}
	if err := r.Err(); err != nil {
		t.Errorf("this runs inside an emulation, yet: %v", err)
	}
	nothingLeft(t, before)
}

// TestHalf: who controls an emulation has half of the cores at most, and one at least, where the user says nothing else.
func TestHalf(t *testing.T) {
	t.Setenv("GOMAXPROCS", "3")
	if got := half(); len(got) > 0 {
		t.Errorf("%q", got)
	}
	os.Unsetenv("GOMAXPROCS") // t puts it back
	for cores, want := range map[int]string{1: "GOMAXPROCS=1", 2: "GOMAXPROCS=1", 5: "GOMAXPROCS=2", 8: "GOMAXPROCS=4"} {
		was := runtime.GOMAXPROCS(cores)
		if got := half(); len(got) != 1 || got[0] != want {
			t.Errorf("%d cores: %q", cores, got)
		}
		runtime.GOMAXPROCS(was)
	}
}
