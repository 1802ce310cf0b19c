package netns

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// needOpenSSH skips a test where OpenSSH's server is not installed.
func needOpenSSH(t testing.TB) {
	t.Helper()
	_, err := FindOpenSSH()
	testbedtest.Require(t, "openssh", err)
}

// TestOpenSSH holds hosts that run OpenSSH's server to what the others do, with the
// client that drives a lab.
func TestOpenSSH(t *testing.T) {
	needOpenSSH(t)
	f := up(t, rack(0, 1, 3), Options{SSHD: OpenSSH})
	h2 := login(t, f, "h2")
	for _, tt := range []struct{ what, command, want string }{
		{"the server", "cat /proc/[1-9]*/comm | grep -c ^sshd | awk '{print ($1 >= 2)}'", "1"},
		{"host name", "cat /proc/sys/kernel/hostname", "h2"},
		{"devices", "ls /sys/class/net | tr '\\n' ' '", "ens1 lo mgmt0 "},
		{"counters", "grep -c ens1: /proc/net/dev", "1"},
		{"user", "id -un; id -gn; echo $USER", "lab\nlab\nlab"},
		{"home", `test "$HOME" = "$PWD" && ls -a | tr '\n' ' '`, ". .. .cache "},
		{"nothing of the machine's", "ls /etc/ssh | wc -l; wc -l </etc/passwd", "0\n2"},
		{"the shared cache", "echo shared > .cache/x && cat .cache/x", "shared"},
	} {
		if got := run(t, h2, "/bin/sh", "-c", tt.command); strings.TrimSpace(got) != strings.TrimSpace(tt.want) {
			t.Errorf("%s: %s says %q, want %q", tt.what, tt.command, got, tt.want)
		}
	}

	var failed *hosts.RunError
	if _, err := h2.Run(t.Context(), []string{"sh", "-c", "echo why >&2; exit 3"}, nil); !errors.As(err, &failed) || failed.Exit != 3 || failed.Stderr != "why" {
		t.Error(err)
	}
	local := filepath.Join(t.TempDir(), "local")
	if err := os.WriteFile(local, bytes.Repeat([]byte("text"), 1<<18), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h2.Upload(t.Context(), local, ".cache/a/file", 0o755); err != nil {
		t.Fatal(err)
	}
	files := h2.ReadFilesOf(t.Context(), bounded.Config, ".cache/a/file", "/nonexistent", "/proc/net/dev")
	if len(files[0].Data) != 1<<20 || !errors.Is(files[1].Err, fs.ErrNotExist) || !bytes.Contains(files[2].Data, []byte("ens1:")) {
		t.Errorf("files: %d bytes, %v, %q", len(files[0].Data), files[1].Err, files[2].Data)
	}
}

// TestOpenSSHTerminal checks that the shells which a kept testbed gives are on a
// terminal.
func TestOpenSSHTerminal(t *testing.T) {
	needOpenSSH(t)
	f := up(t, rack(0, 1, 1), Options{SSHD: OpenSSH})
	h := f.Inventory().Hosts[0].SSH
	key, err := os.ReadFile(h.Key)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := xssh.ParsePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := xssh.Dial("tcp", h.Address, &xssh.ClientConfig{
		User: h.User, Auth: []xssh.AuthMethod{xssh.PublicKeys(signer)}, HostKeyCallback: xssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestPty("xterm", 30, 100, xssh.TerminalModes{}); err != nil {
		t.Fatal(err)
	}
	if out, err := s.CombinedOutput("stty size; test -t 0 && echo $TERM"); err != nil || string(out) != "30 100\r\nxterm\r\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestOpenSSHLifelines checks that what reads its stdin ends with the connection,
// and that everything else ends with the emulation.
func TestOpenSSHLifelines(t *testing.T) {
	needOpenSSH(t)
	testbedtest.Require(t, "netns", noNamespaces)
	before := leftovers(t)
	f := up(t, rack(0, 1, 2), Options{SSHD: OpenSSH})
	watcher := login(t, f, "h1")
	// A pipe's writers are gone when its reader sees the end.
	fifo := run(t, watcher, "/bin/sh", "-c", "mkfifo fifo && echo $PWD/fifo")
	start := func(c hosts.Host, script string) *hosts.Process {
		t.Helper()
		p, err := c.Start(t.Context(), []string{"/bin/sh", "-c", script}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	reader := start(watcher, "cat "+fifo)
	mortal := login(t, f, "h1")
	start(mortal, "exec >"+fifo+"; echo up; cat") // as an agent: its stdin is its life
	line := make([]byte, len("up\n"))
	if _, err := io.ReadFull(reader.Stdout, line); err != nil || string(line) != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	mortal.Close()
	if rest, err := io.ReadAll(reader.Stdout); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}

	stubborn := login(t, f, "h2")
	p := start(stubborn, "setsid sh -c 'trap : TERM HUP; echo up; exec sleep 1000' & sleep 1000")
	if _, err := io.ReadFull(p.Stdout, line); err != nil || string(line) != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, before)
}

// TestOpenSSHStrangers checks that known_hosts is enforced, and keys are.
func TestOpenSSHStrangers(t *testing.T) {
	needOpenSSH(t)
	f := up(t, rack(0, 1, 2), Options{SSHD: OpenSSH})
	h1, h2 := f.Inventory().Hosts[0], f.Inventory().Hosts[1]

	known, err := os.ReadFile(h1.SSH.KnownHosts)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitN(string(known), "\n", 3)
	a, b := strings.Fields(lines[0]), strings.Fields(lines[1])
	swapped := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(swapped, []byte(a[0]+" "+strings.Join(b[1:], " ")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	impostor := target(h1)
	impostor.KnownHosts = []string{swapped}
	if _, err := ssh.Dial(t.Context(), impostor); !errors.Is(err, ssh.ErrHostKey) {
		t.Errorf("h1 with h2's key: %v, want %v", err, ssh.ErrHostKey)
	}

	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := xssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(other, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*ssh.Target){
		"a key that is not the run's":   func(x *ssh.Target) { x.Keys = []string{other} },
		"a user that is not the host's": func(x *ssh.Target) { x.User = "root" },
	} {
		stranger := target(h2)
		change(&stranger)
		if _, err := ssh.Dial(t.Context(), stranger); !errors.Is(err, ssh.ErrAuth) {
			t.Errorf("%s: %v, want %v", what, err, ssh.ErrAuth)
		}
	}
}

// TestOpenSSHKill kills each of the processes that hold an emulation together while
// sessions are open: what OpenSSH's server has started from itself must go too.
func TestOpenSSHKill(t *testing.T) {
	needOpenSSH(t)
	testbedtest.Require(t, "netns", noNamespaces)
	before := leftovers(t)
	for role, who := range []string{"the process outside", "the first inside", "the controller"} {
		name := fmt.Sprintf("openssh-victim-%d-%d", os.Getpid(), role)
		cmd, out := startVictim(t, name, OpenSSH)
		expectLine(t, out, "up")
		if servers := findProcesses(t, "sshd"); len(servers) < 8 { // one to listen, and one or two a connection
			t.Errorf("of four hosts' servers only %v can be seen", servers)
		}
		all := findProcesses(t, name)
		if len(all) <= role {
			t.Fatalf("processes %v", all)
		}
		if err := syscall.Kill(all[role], syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		cmd.Wait()
		t.Logf("killed %s", who)
		nothingLeft(t, before)
	}
}

// TestFindOpenSSH checks where the server is looked for, and what is said if it is
// not there.
func TestFindOpenSSH(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if err := os.WriteFile(filepath.Join(dir, "sshd"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if path, err := FindOpenSSH(); err != nil || path != filepath.Join(dir, "sshd") {
		t.Errorf("%q, %v", path, err)
	}
	if err := os.Chmod(filepath.Join(dir, "sshd"), 0o644); err != nil {
		t.Fatal(err)
	}
	if path, err := FindOpenSSH(); err == nil && strings.HasPrefix(path, dir) {
		t.Errorf("%s cannot be run", path)
	}
}

// TestOpenSSHCut drops every packet between this machine and a host, mid-session: its
// keepalives end what goes on, directly and behind a jump host, and nothing else.
func TestOpenSSHCut(t *testing.T) {
	needOpenSSH(t)
	inv := rack(0, 1, 3)
	inv.Hosts[2].SSH.Jump = "h2"
	f := up(t, inv, Options{SSHD: OpenSSH})
	all := f.Inventory().Hosts
	if all[2].SSH.Jump != "h2" {
		t.Fatalf("%+v", all[2].SSH)
	}
	connect := func(i int, via *ssh.Target) *ssh.Client {
		t.Helper()
		x := target(all[i])
		x.Jump, x.KeepAlive, x.KeepAliveMax = via, 200*time.Millisecond, 10
		c, err := ssh.Dial(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	h1, h2 := login(t, f, "h1"), connect(1, nil)
	gate := h2.Target()
	h3 := connect(2, &gate)
	ended := make(chan error, 2)
	for _, c := range []hosts.Host{h2, h3} {
		p, err := c.Start(t.Context(), []string{"cat"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- p.Wait() }()
	}
	if err := f.Unplug("h2", true); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; !errors.Is(err, hosts.ErrLost) || !strings.Contains(err.Error(), "no answer to keepalives for 2s") {
			t.Error(err)
		}
	}
	run(t, h1, "true")
	if err := f.Unplug("h2", false); err != nil {
		t.Fatal(err)
	}
	run(t, login(t, f, "h2"), "true")
}
