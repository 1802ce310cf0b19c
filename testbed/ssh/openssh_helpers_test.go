package ssh_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// openSSH is a host that runs OpenSSH's server, for the user who runs the test. It has
// keys of two types, of which the client knows the less usual one, and lets in user.pub.
type openSSH struct {
	ssh.Target
	dir string // with its keys "ed25519" and "ecdsa", and the user's key "user"
	pid int    // of the process that listens
}

// newOpenSSH starts a server. SHLVL keeps bash from the user's .bashrc. Lines are for its configuration, where the first of a
// keyword wins; DIR in them is its directory.
func newOpenSSH(t testing.TB, lines ...string) *openSSH {
	return newOpenSSHIn(t, t.TempDir(), lines...)
}

// freePort is an address where nobody listens, for somebody who is about to.
func freePort(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newOpenSSHIn is newOpenSSH with a directory. If it has a directory "etc", root's
// server sees passwd and sudoers.d of that in place of the machine's.
func newOpenSSHIn(t testing.TB, dir string, lines ...string) *openSSH {
	t.Helper()
	program, who := testbedtest.OpenSSH(t)
	keygen(t, "-t", "ed25519", "-f", dir+"/ed25519")
	keygen(t, "-t", "ecdsa", "-f", dir+"/ecdsa")
	keygen(t, "-t", "ed25519", "-f", dir+"/user")
	address := freePort(t)
	host, port, _ := net.SplitHostPort(address)
	config := filepath.Join(dir, "sshd_config")
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Subsystem ") }) {
		lines = append(lines, "Subsystem sftp internal-sftp")
	}
	write(t, config, strings.ReplaceAll(strings.Join(lines, "\n"), "DIR", dir)+fmt.Sprintf(`
ListenAddress %s
Port %s
HostKey %[3]s/ed25519
HostKey %[3]s/ecdsa
AuthorizedKeysFile %[3]s/user.pub
StrictModes no
PermitRootLogin yes
UsePAM no
PidFile none
SetEnv SHLVL=2
`, host, port, dir))
	write(t, dir+"/known_hosts", fmt.Sprintf("[%s]:%s %s", host, port, read(t, dir+"/ecdsa.pub")))

	cmd := exec.Command(program, "-D", "-e", "-f", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		// Root's wants this directory, which starting the machine's own would make.
		cmd.Args = append([]string{"/bin/sh", "-c", `mount -t tmpfs -o mode=755 none /run && mkdir /run/sshd; if [ -d "$1" ]; then ` +
			`mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/sudoers.d" /etc/sudoers.d; fi; shift; exec "$0" "$@"`, program, dir + "/etc"}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range descendants(t, cmd.Process.Pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		cmd.Process.Kill()
		cmd.Wait()
	})
	var said strings.Builder
	sc := bufio.NewScanner(log)
	for up := false; !up; {
		if !sc.Scan() {
			testbedtest.Require(t, "openssh", fmt.Errorf("OpenSSH's server does not run here: %s", said.String()))
		}
		said.WriteString(sc.Text() + "; ")
		up = strings.Contains(sc.Text(), "listening on")
	}
	go io.Copy(io.Discard, log) // or it would block
	return &openSSH{
		Target: ssh.Target{
			Name: "h1", Address: address, User: who, Agent: "none", Config: "none",
			Keys: []string{dir + "/user"}, KnownHosts: []string{dir + "/known_hosts"},
		},
		dir: dir, pid: cmd.Process.Pid,
	}
}

// keygen runs ssh-keygen, for keys without a passphrase unless it is told one.
func keygen(t testing.TB, args ...string) {
	t.Helper()
	args = append([]string{"-q"}, args...)
	if args[1] == "-t" && args[3] != "-N" {
		args = append(args, "-N", "")
	}
	if out, err := exec.Command("ssh-keygen", args...).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen %q: %v: %s", args, err, out)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// newAgent starts OpenSSH's agent.
func newAgent(t testing.TB) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") // the names of tests are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	cmd := exec.Command("ssh-agent", "-D", "-a", socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		testbedtest.Require(t, "openssh", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			return socket
		}
		time.Sleep(time.Millisecond)
	}
}

// sshAdd gives the agent a key, whose passphrase, if any, is "secret".
func sshAdd(t testing.TB, socket, key string) {
	t.Helper()
	ask := filepath.Join(t.TempDir(), "ask")
	write(t, ask, "#!/bin/sh\necho secret\n")
	if err := os.Chmod(ask, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ssh-add", "-q", key)
	cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket, "SSH_ASKPASS="+ask, "SSH_ASKPASS_REQUIRE=force", "DISPLAY=none")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ssh-add: %v: %s", err, out)
	}
}

// descendants are the processes below one.
func descendants(t testing.TB, pid int) (out []int) {
	t.Helper()
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		parent, _ := strconv.Atoi(f[1])
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		children[parent] = append(children[parent], child)
	}
	var visit func(int)
	visit = func(p int) {
		for _, c := range children[p] {
			out = append(out, c)
			visit(c)
		}
	}
	visit(pid)
	return out
}
