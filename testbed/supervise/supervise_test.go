package supervise_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/supervise"
)

// TestMain makes this binary the supervisor.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == supervise.Verb {
		// Not by os.Exit, in which the race detector sleeps for a second.
		syscall.Exit(supervise.Play(context.Background(), os.Stdin, os.Stdout, os.Stderr, 6))
	}
	flag.Set("test.parallel", "8") // whatever the cores: they mostly wait
	os.Exit(m.Run())
}

// patience bounds what a test waits for.
const patience = time.Minute

// supervisor is a process of its own, as on a host.
type supervisor struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr strings.Builder
	leases string
	ended  chan struct{}
}

// start starts a shell script under a supervisor.
func start(t *testing.T, script string, c supervise.Config) *supervisor {
	t.Helper()
	s := &supervisor{t: t, leases: t.TempDir(), ended: make(chan struct{})}
	c.Argv, c.Leases = []string{"sh", "-c", script, "sh"}, s.leases
	if c.Name == "" {
		c.Name = "script"
	}
	if c.Lease == 0 {
		c.Lease = 60
	}
	if c.Grace == 0 {
		c.Grace = 0.1
	}
	s.cmd = exec.Command("/proc/self/exe", supervise.Verb)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // as of an SSH server
	s.cmd.Stderr = &s.stderr
	s.stdin, _ = s.cmd.StdinPipe()
	out, _ := s.cmd.StdoutPipe()
	s.stdout = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(-s.cmd.Process.Pid, unix.SIGKILL)
		s.wait()
	})
	line, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	s.say(string(line))
	return s
}

func (s *supervisor) say(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.stdin, line+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

// line reads a line of the script's.
func (s *supervisor) line() string {
	s.t.Helper()
	text, err := s.stdout.ReadString('\n')
	if err != nil {
		s.t.Fatalf("%q, then %v; stderr: %s", text, err, &s.stderr)
	}
	return strings.TrimSpace(text)
}

// pid reads a line that is a process's number.
func (s *supervisor) pid() int {
	s.t.Helper()
	pid, err := strconv.Atoi(s.line())
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// wait waits for the supervisor and returns its exit status.
func (s *supervisor) wait() int {
	s.t.Helper()
	select {
	case <-s.ended:
		return s.cmd.ProcessState.ExitCode()
	default:
	}
	timer := time.AfterFunc(patience, func() { s.cmd.Process.Kill() })
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, s.stdout)
	_ = s.cmd.Wait()
	close(s.ended)
	return s.cmd.ProcessState.ExitCode()
}

// gone waits until a process is not there, or dead.
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if state(pid) == "" || state(pid) == "Z" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there, state %s", pid, state(pid))
		}
	}
}

// state is the letter of proc(5), "" when there is no such process.
func state(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1]
}

// noLease checks that no lease file is left.
func (s *supervisor) noLease() {
	s.t.Helper()
	if left, _ := filepath.Glob(filepath.Join(s.leases, "*")); len(left) > 0 {
		s.t.Errorf("lease files are left: %v", left)
	}
}

// A program's output, end and environment are its own.
func TestTransparent(t *testing.T) {
	for _, test := range []struct {
		name, script string
		config       supervise.Config
		out          string
		status       int
	}{
		{"succeeds", `echo out`, supervise.Config{}, "out\n", 0},
		{"fails", `echo out; exit 7`, supervise.Config{}, "out\n", 7},
		{"killed", `kill -KILL $$`, supervise.Config{}, "", 128 + 9},
		{"stdin", `cat; echo end`, supervise.Config{Stdin: "one\ntwo\n"}, "one\ntwo\nend\n", 0},
		{"no stdin", `cat; echo end`, supervise.Config{}, "end\n", 0},
		{"environment", `printf %s "$A|$B"`, supervise.Config{Env: []string{"A=$(id) 'x'", "B=1", "B=2"}}, "$(id) 'x'|2", 0},
		{"directory", `pwd`, supervise.Config{Dir: "/"}, "/\n", 0},
		{"signals", `exec 3>&1; { yes 2>/dev/null; echo $? >&3; } | head -n 1 >/dev/null`, supervise.Config{}, "141\n", 0}, // SIGPIPE ends it
		{"children", `sleep 1000 & (sleep 1000 &) ; echo out`, supervise.Config{}, "out\n", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, test.script, test.config)
			out, err := io.ReadAll(s.stdout)
			if status := s.wait(); err != nil || string(out) != test.out || status != test.status {
				t.Errorf("said %q and ended with %d (%v), want %q and %d; stderr: %s", out, status, err, test.out, test.status, &s.stderr)
			}
			s.noLease()
		})
	}
}

// stubborn is a script that starts a process in its group, one that left group and session,
// and one that left its parents too, all deaf to what can be ignored, and says their numbers,
// its own last.
const stubborn = `trap '' TERM HUP INT
sleep 1000 & echo $!
setsid sleep 1000 & echo $!
setsid sh -c 'sleep 1000 & echo $!'
echo $$
while :; do sleep 1000; done`

// Whatever ends the lease, and however stuck the program is, nothing is left of it.
func TestEnds(t *testing.T) {
	t.Parallel() // it waits
	for _, test := range []struct {
		name   string
		lease  float64
		fault  func(s *supervisor, pids []int)
		status int
		stderr string
	}{
		{"no beat", 5, func(*supervisor, []int) {}, 6, "inabench supervise: worker A/0: no beat for 5 s: the connection to whoever started it is gone; ended\n"},
		{"no beat for a stopped program", 5, func(s *supervisor, pids []int) {
			for _, pid := range pids {
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}, 6, "inabench supervise: worker A/0: no beat for 5 s: the connection to whoever started it is gone; ended\n"},
		{"stdin ends", 60, func(s *supervisor, _ []int) { s.stdin.Close() }, 0, ""},
		{"SIGTERM", 60, func(s *supervisor, _ []int) { s.cmd.Process.Signal(unix.SIGTERM) }, 6, "inabench supervise: worker A/0: ended by SIGTERM\n"},
		{"the program dies", 60, func(_ *supervisor, pids []int) { _ = unix.Kill(pids[3], unix.SIGKILL) }, 128 + 9, "inabench supervise: worker A/0: killed by SIGKILL\n"},
		{"not a beat", 60, func(s *supervisor, _ []int) { s.say("beet") }, 6, "inabench supervise: worker A/0: supervisor's config: unexpected line \"beet\"\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, stubborn, supervise.Config{Name: "worker A/0", Lease: test.lease})
			var pids []int
			for range 4 {
				pids = append(pids, s.pid())
			}
			for _, pid := range pids { // otherwise it would prove nothing
				if state(pid) == "" {
					t.Fatalf("process %d is not there", pid)
				}
			}
			test.fault(s, pids)
			if status := s.wait(); status != test.status || s.stderr.String() != test.stderr {
				t.Errorf("ended with %d and %q, want %d and %q", status, &s.stderr, test.status, test.stderr)
			}
			for _, pid := range pids {
				if st := state(pid); st != "" && st != "Z" {
					t.Errorf("process %d is still there, state %s", pid, st)
				}
			}
			s.noLease()
		})
	}
}

// Beats keep the program for longer than its lease, and the lease file says so; they pass
// between its own lines, also when it reads none of these.
func TestBeats(t *testing.T) {
	t.Parallel() // it waits
	const lease = 4.0
	s := start(t, `read a; read b; echo "$a $b"; sleep 1000`, supervise.Config{Lease: lease, Relay: true, Stdin: "one\n"})
	var first, last supervise.Found
	for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(100 * time.Millisecond) {
		s.say(supervise.Beat)
		found, err := supervise.List(s.leases, "")
		if err != nil || len(found) > 1 {
			t.Fatal(found, err)
		}
		if len(found) == 1 {
			if last = found[0]; first.PID == 0 {
				first = last
			}
		}
	}
	if last.Stale || last.PID != s.cmd.Process.Pid || len(last.Processes) < 2 || last.Processes[0].PID != last.PID {
		t.Errorf("lease %+v of supervisor %d", last, s.cmd.Process.Pid)
	}
	if !last.Expires.After(first.Expires) || last.Expires.Sub(last.Renewed) != lease*time.Second {
		t.Errorf("renewed at %v until %v, at first until %v", last.Renewed, last.Expires, first.Expires)
	}
	s.say("two")
	if got := s.line(); got != "one two" {
		t.Errorf("the program read %q", got)
	}
	for i := range 3000 { // more than a pipe holds, and than may wait
		if _, err := io.WriteString(s.stdin, strings.Repeat("x", 100)+"\n"); err != nil {
			break
		}
		if i%100 == 0 {
			s.say(supervise.Beat)
		}
	}
	if status := s.wait(); status != 6 || !strings.Contains(s.stderr.String(), "does not read its stdin") {
		t.Errorf("ended with %d: %s", status, &s.stderr)
	}
}

// A supervisor that is killed takes the program along. What the program had started is found
// through the lease file, and ended.
func TestLeftovers(t *testing.T) {
	s := start(t, "sleep 1000 & echo $!; echo $$; sleep 1000", supervise.Config{Run: "R1", Name: "worker A/0"})
	child, program := s.pid(), s.pid()
	s.cmd.Process.Kill()
	gone(t, program)
	if state(child) == "" {
		t.Fatal("nothing is left: this proves nothing")
	}
	if found, err := supervise.List(s.leases, "R2"); err != nil || len(found) != 0 {
		t.Errorf("of another run: %+v, %v", found, err)
	}
	found, err := supervise.End(t.Context(), s.leases, "R1", 5*time.Second)
	if err != nil || len(found) != 1 || !found[0].Ended || found[0].Name != "worker A/0" || found[0].Argv[0] != "sh" {
		t.Fatalf("%+v, %v", found, err)
	}
	gone(t, child)
	s.noLease()
	if found, err := supervise.End(t.Context(), s.leases, "", 0); err != nil || len(found) != 0 {
		t.Errorf("once more: %+v, %v", found, err)
	}
}

// Files that are not leases of this host stay; a lease whose process number is another's
// meanwhile, or whose host has been started again, holds nothing.
func TestStale(t *testing.T) {
	s := start(t, "echo $$; sleep 1000", supervise.Config{})
	pid := s.pid()
	found, err := supervise.List(s.leases, "")
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	dir := t.TempDir()
	write := func(name string, change func(*supervise.Lease)) {
		l := found[0].Lease
		change(&l)
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("reused", func(l *supervise.Lease) { l.Born++ })
	write("rebooted", func(l *supervise.Lease) { l.Boot = "another" })
	write("other-host", func(l *supervise.Lease) { l.Host += "2" })
	write("other-mark", func(l *supervise.Lease) { l.Mark = "" })
	if err := os.WriteFile(filepath.Join(dir, "no-lease"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := supervise.End(t.Context(), dir, "", 0)
	if err != nil || len(got) != 2 || !got[0].Stale || !got[0].Ended || !got[1].Stale || !got[1].Ended {
		t.Errorf("%+v, %v", got, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if fmt.Sprint(left) != "[no-lease other-host other-mark]" {
		t.Errorf("left: %v", left)
	}
	s.say(supervise.Beat)
	if found, err := supervise.List(s.leases, ""); err != nil || len(found) != 1 || len(found[0].Processes) < 2 || state(pid) == "" {
		t.Errorf("what is somebody else's has been ended: %+v, %v", found, err)
	}
}

func TestRefused(t *testing.T) {
	full := supervise.Config{Argv: []string{"true"}, Lease: 1}
	for _, test := range []struct {
		name   string
		change func(c *supervise.Config)
		want   string
	}{
		{"no program", func(c *supervise.Config) { c.Argv = nil }, "no program"},
		{"no lease", func(c *supervise.Config) { c.Lease = 0 }, "a lease of 0 s"},
		{"grace", func(c *supervise.Config) { c.Grace = -1 }, "-1 s of grace"},
		{"verb", func(c *supervise.Config) { c.Do = "dance" }, `do "dance"`},
		{"missing", func(c *supervise.Config) { c.Argv = []string{"no-such-program"}; c.Leases = t.TempDir() }, `"no-such-program": executable file not found`},
		{"directory", func(c *supervise.Config) { c.Dir = "/no/such"; c.Leases = t.TempDir() }, "no such file or directory"},
		{"environment", func(c *supervise.Config) { c.Env = []string{"X"}; c.Leases = t.TempDir() }, `environment "X"`},
		{"no room for a lease", func(c *supervise.Config) { c.Leases = "/dev/null/leases" }, "lease file: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := full
			test.change(&c)
			line, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/proc/self/exe", supervise.Verb)
			cmd.Stdin = strings.NewReader(string(line) + "\n")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), test.want) {
				t.Errorf("%v: %s", err, out)
			}
			if c.Leases != "" {
				if left, _ := filepath.Glob(filepath.Join(c.Leases, "*")); len(left) > 0 {
					t.Errorf("lease files are left: %v", left)
				}
			}
		})
	}
}
