// Package ibsimtest runs InfiniBand's own tools over simulated fabrics, for tests.
//
// ibsim(8) plays the switches and adapters of a fabric; a library that stands in for
// libumad makes ibnetdiscover, iblinkinfo, perfquery and opensm talk to it. All of it
// are ordinary processes with abstract Unix sockets: no root, no network, no hardware.
// On Debian: apt-get install ibsim-utils opensm infiniband-diags.
package ibsimtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/testbedtest"
)

// Patience is how long a tool may take.
const patience = 60 * time.Second

// Sim is a simulated fabric. Its files lie in a folder of the test, because a tool
// that is killed leaves some in its working directory.
type Sim struct {
	t       testing.TB
	dir     string
	library string
	env     []string
	console io.Writer
	said    *watched
}

var fabrics atomic.Int64

// Start simulates a fabric until the test ends: net is a net file, from the node that
// tools run on, such as "H-0c42a10000000000". It skips the test, through
// testbedtest.Require("ibsim"), where the tools are not installed.
func Start(t testing.TB, net, from string) *Sim {
	t.Helper()
	library, err := tools()
	testbedtest.Require(t, "ibsim", err)
	s := &Sim{t: t, dir: t.TempDir(), library: library, said: newWatched()}
	s.env = []string{
		// The sockets' names are the machine's.
		fmt.Sprintf("IBSIM_SOCKNAME=inabench-%d-%d", os.Getpid(), fabrics.Add(1)),
		"SIM_HOST=" + from, "OSM_TMP_DIR=" + s.dir, "OSM_CACHE_DIR=" + s.dir,
	}
	file := filepath.Join(s.dir, "fabric.net")
	if err := os.WriteFile(file, []byte(net), 0o644); err != nil {
		t.Fatal(err)
	}
	// -N counts nodes, -S switches and -P ports, of which the default is too small for
	// a large fabric.
	nodes, switches := strings.Count(net, "\nCa\t")+strings.Count(net, "\nSwitch\t"), strings.Count(net, "\nSwitch\t")
	cmd := s.command("ibsim", "-s", "-N", fmt.Sprint(nodes+16), "-S", fmt.Sprint(switches+16),
		"-P", fmt.Sprint(nodes*2+switches*80+64), file)
	cmd.Stdout, cmd.Stderr = s.said, s.said
	if s.console, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	s.start(cmd)
	s.await(s.said, "sim>")
	return s
}

// tools looks for what is needed, and returns the path of libumad2sim.
func tools() (string, error) {
	for _, name := range []string{"ibsim", "opensm", "ibnetdiscover", "iblinkinfo", "perfquery"} {
		if _, err := lookPath(name); err != nil {
			return "", fmt.Errorf("%w: apt-get install ibsim-utils opensm infiniband-diags", err)
		}
	}
	for _, pattern := range []string{"/usr/lib/*/umad2sim/libumad2sim.so", "/usr/lib*/umad2sim/libumad2sim.so"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0], nil
		}
	}
	return "", errors.New("no libumad2sim.so: apt-get install ibsim-utils")
}

// lookPath is exec.LookPath with the folders that are in root's path only.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", err
}

// Env is what makes a tool talk to the fabric, as NAME=VALUE. The tool's working
// directory must be Dir.
func (s *Sim) Env() []string { return append([]string{"LD_PRELOAD=" + s.library}, s.env...) }

// Dir is the folder in which tools run and where opensm writes its files.
func (s *Sim) Dir() string { return s.dir }

// Argv is a command line that runs a tool over the fabric from anywhere.
func (s *Sim) Argv(name string, args ...string) []string {
	path, err := lookPath(name)
	if err != nil {
		s.t.Fatal(err)
	}
	argv := append([]string{"env", "-C", s.dir}, s.Env()...)
	return append(append(argv, path), args...)
}

func (s *Sim) command(name string, args ...string) *exec.Cmd {
	path, err := lookPath(name)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// start starts a process that ends with the test.
func (s *Sim) start(cmd *exec.Cmd) {
	s.t.Helper()
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
}

// Run runs a tool over the fabric and returns what it wrote and its exit status.
func (s *Sim) Run(name string, args ...string) (stdout, stderr string, exit int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	argv := s.Argv(name, args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exited *exec.ExitError
	if err != nil && (!errors.As(err, &exited) || ctx.Err() != nil) {
		s.t.Fatalf("%s: %v", name, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Output is Run of what must succeed without a word on stderr.
func (s *Sim) Output(name string, args ...string) string {
	s.t.Helper()
	out, errs, exit := s.Run(name, args...)
	if exit != 0 || errs != "" {
		s.t.Fatalf("%s: exit status %d: %s", name, exit, errs)
	}
	return out
}

// Console types a command at the simulator (ibsim(8)) and waits for it to be carried
// out: `Unlink "S-08c0eb0000000000"[3]`.
func (s *Sim) Console(format string, args ...any) {
	s.t.Helper()
	before := strings.Count(s.said.String(), "sim>")
	if _, err := fmt.Fprintf(s.console, format+"\n", args...); err != nil {
		s.t.Fatal(err)
	}
	s.said.wait(s.t, "an answer to a command", func(text string) bool { return strings.Count(text, "sim>") > before })
}

// Spines is a file with the GUIDs of a fabric's spines, for opensm's -a.
func (s *Sim) Spines(f FatTree) string {
	s.t.Helper()
	var b strings.Builder
	for i := range f.Spines {
		fmt.Fprintf(&b, "%#x\n", f.SpineGUID(i))
	}
	path := filepath.Join(s.dir, "spines")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// Manager is a running opensm. Its files are in the simulation's Dir.
type Manager struct {
	s    *Sim
	cmd  *exec.Cmd
	said *watched
}

// Log is what it has written so far.
func (m *Manager) Log() string { return m.said.String() }

// Sweep makes it look at the fabric again, and waits until it has set it up.
func (m *Manager) Sweep() {
	m.s.t.Helper()
	before := strings.Count(m.Log(), up)
	if err := m.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		m.s.t.Fatal(err)
	}
	m.said.wait(m.s.t, "a sweep", func(text string) bool { return strings.Count(text, up) > before })
}

const up = "SUBNET UP"

// OpenSM runs the subnet manager until the test ends, and returns once it says that
// the subnet is up.
func (s *Sim) OpenSM(args ...string) *Manager {
	s.t.Helper()
	cmd := s.command("opensm", append([]string{"-D", "0x43", "-f", "stdout"}, args...)...)
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+s.library)
	m := &Manager{s, cmd, newWatched()}
	cmd.Stdout, cmd.Stderr = m.said, m.said
	s.start(cmd)
	s.await(m.said, up)
	return m
}

func (s *Sim) await(w *watched, text string) {
	s.t.Helper()
	w.wait(s.t, text, func(all string) bool { return strings.Contains(all, text) })
}

// watched is a buffer that can be waited on.
type watched struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newWatched() *watched { return &watched{changed: make(chan struct{})} }

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
	return w.text.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (w *watched) wait(t testing.TB, what string, done func(string) bool) {
	t.Helper()
	timeout := time.After(patience)
	for {
		w.mu.Lock()
		text, changed := w.text.String(), w.changed
		w.mu.Unlock()
		if done(text) {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("waited for %s: %s", what, text)
		}
	}
}
