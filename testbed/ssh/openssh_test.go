package ssh_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// newOpenSSH starts the sshd of a real host, if it is installed, for the user who runs
// the test. It has keys of two types, of which the client knows the less usual one.
func newOpenSSH(t *testing.T) ssh.Target {
	t.Helper()
	program, err := exec.LookPath("sshd")
	if err != nil {
		program = "/usr/sbin/sshd" // not on every user's PATH
	}
	if _, err := os.Stat(program); err != nil {
		testbedtest.Require(t, "openssh", err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, kind := range map[string]string{"ed25519": "ed25519", "rsa": "rsa", "user": "ed25519"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", kind, "-N", "", "-f", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	address := closedPort(t)
	host, port, _ := net.SplitHostPort(address)
	config := writeFile(t, "sshd_config", fmt.Sprintf(`ListenAddress %s
Port %s
HostKey %[3]s/ed25519
HostKey %[3]s/rsa
AuthorizedKeysFile %[3]s/user.pub
StrictModes no
PermitRootLogin yes
UsePAM no
PidFile none
Subsystem sftp internal-sftp
`, host, port, dir))
	public, err := os.ReadFile(filepath.Join(dir, "rsa.pub"))
	if err != nil {
		t.Fatal(err)
	}
	known := writeFile(t, "known_hosts", fmt.Sprintf("[%s]:%s %s", host, port, public))

	cmd := exec.Command(program, "-D", "-e", "-f", config)
	if _, err := os.Stat("/run/sshd"); err != nil && os.Geteuid() == 0 {
		// Root's wants this directory, which starting the machine's own would make.
		cmd.Args = append([]string{"/bin/sh", "-c", `mount -t tmpfs -o mode=755 none /run && mkdir /run/sshd && exec "$0" "$@"`}, cmd.Args...)
		cmd.Path = "/bin/sh"
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
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
	go func() {
		for sc.Scan() { // or it would block
		}
	}()
	return ssh.Target{
		Name: "h1", Address: address, User: me.Username, Agent: "none",
		Keys: []string{filepath.Join(dir, "user")}, KnownHosts: []string{known},
	}
}

// A lab's hosts run OpenSSH: what holds for the embedded server holds there.
func TestOpenSSH(t *testing.T) {
	target := newOpenSSH(t)
	gate := target
	gate.Name = "gate"
	target.Jump = &gate
	c, err := ssh.Dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	out, err := c.Run(t.Context(), append([]string{"printf", "<%s>"}, nasty...), nil)
	if err != nil || string(out.Stdout) != "<"+strings.Join(nasty, "><")+">" {
		t.Errorf("%q, %v", out.Stdout, err)
	}
	var failed *ssh.RunError
	if _, err := c.Run(t.Context(), []string{"sh", "-c", "echo why >&2; exit 3"}, nil); !errors.As(err, &failed) || failed.Exit != 3 || failed.Stderr != "why" {
		t.Error(err)
	}
	dir := t.TempDir()
	if err := c.Upload(t.Context(), writeFile(t, "local", "text"), dir+"/a/file", 0o640); err != nil {
		t.Error(err)
	}
	files := c.ReadFiles(t.Context(), dir+"/a/file", "/nonexistent", "/proc/net/dev")
	if string(files[0].Data) != "text" || !errors.Is(files[1].Err, fs.ErrNotExist) || len(files[2].Data) == 0 {
		t.Errorf("%q", files)
	}
	wantTree(t, dir, "a", "a/file")

	l := newLifeline(t)
	p, err := c.Start(t.Context(), l.family())
	if err != nil {
		t.Fatal(err)
	}
	l.up(t)
	if err := p.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	l.gone(t)
	if err := p.Wait(); !errors.As(err, &failed) || failed.Signal != "KILL" {
		t.Error(err)
	}

	// It does not kill what runs when the connection goes; the end of stdin must do.
	l = newLifeline(t)
	if _, err = c.Start(t.Context(), []string{"/bin/sh", "-c", `exec 9>"$1"; echo up >&9; cat`, "sh", l.path}); err != nil {
		t.Fatal(err)
	}
	l.up(t)
	c.Close()
	l.gone(t)

	stranger := target
	stranger.Jump, stranger.Keys = nil, []string{writeKey(t)}
	if _, err := ssh.Dial(t.Context(), stranger); !errors.Is(err, ssh.ErrAuth) {
		t.Error(err)
	}
}
