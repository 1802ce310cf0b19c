package sshd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// The tests here speak to the server with the library's own client, and with
// OpenSSH's where that is installed; package testbed/ssh tests it further.

var userKey = NewKey()

// serve brings up a server and returns its address and what stops it and waits.
func serve(t testing.TB, s *Server) (address string, stop func()) {
	t.Helper()
	if s.HostKey == nil {
		s.HostKey = NewKey()
	}
	s.AuthorizedKeys = append(s.AuthorizedKeys, userKey.PublicKey())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func dial(t testing.TB, s *Server, address string) *ssh.Client {
	t.Helper()
	c, err := ssh.Dial("tcp", address, &ssh.ClientConfig{
		User: "lab", Auth: []ssh.AuthMethod{ssh.PublicKeys(userKey)}, HostKeyCallback: ssh.FixedHostKey(s.HostKey.PublicKey()),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func session(t testing.TB, c *ssh.Client) *ssh.Session {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A command sees what it would see on a host with OpenSSH.
func TestExec(t *testing.T) {
	dir := t.TempDir()
	s := &Server{Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH"), "LAB=1"}}
	address, _ := serve(t, s)
	c := dial(t, s, address)
	for _, tt := range []struct{ command, want string }{
		{"pwd", dir + "\n"},
		{`echo "$HOME $LAB"`, dir + " 1\n"},
		{"echo a  b | tr a-z A-Z", "A B\n"}, // a shell reads it
		{`read -r pid comm state ppid group session rest </proc/$$/stat; echo $((group - pid)) $((session - pid))`, "0 0\n"},
		{`set -- $SSH_CONNECTION; echo $# $1`, "4 127.0.0.1\n"},
		{"tty", "not a tty\n"},
	} {
		if out, _ := session(t, c).Output(tt.command); string(out) != tt.want {
			t.Errorf("%s: %q", tt.command, out)
		}
	}
}

func TestEnv(t *testing.T) {
	s := &Server{}
	address, _ := serve(t, s)
	sess := session(t, dial(t, s, address))
	if err := sess.Setenv("LC_TEST", "x y"); err != nil {
		t.Error(err)
	}
	if err := sess.Setenv("LD_PRELOAD", "evil.so"); err == nil {
		t.Error("LD_PRELOAD was accepted")
	}
	if out, err := sess.Output(`echo "$LC_TEST$LD_PRELOAD"`); string(out) != "x y\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestEnd(t *testing.T) {
	s := &Server{}
	address, _ := serve(t, s)
	c := dial(t, s, address)
	var exit *ssh.ExitError
	if err := session(t, c).Run("exit 7"); !errors.As(err, &exit) || exit.ExitStatus() != 7 || exit.Signal() != "" {
		t.Error(err)
	}
	if err := session(t, c).Run("kill -USR1 $$"); !errors.As(err, &exit) || exit.Signal() != "USR1" {
		t.Error(err)
	}
	sess := session(t, c)
	out, err := sess.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sess.Start("echo up; exec sleep 1000"); err != nil {
		t.Fatal(err)
	}
	bufio.NewReader(out).ReadString('\n')
	if err := sess.Signal(ssh.SIGHUP); err != nil {
		t.Error(err)
	}
	if err := sess.Wait(); !errors.As(err, &exit) || exit.Signal() != "HUP" {
		t.Error(err)
	}
}

// What a slow reader has not yet taken is not lost when the command ends.
func TestOutputIsComplete(t *testing.T) {
	s := &Server{}
	address, _ := serve(t, s)
	sess := session(t, dial(t, s, address))
	out, err := sess.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	const size = 8 << 20 // more than the channel's window and the pipe together
	if err := sess.Start("head -c 8388608 /dev/zero"); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(out, first); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, out)
	if n != size-1 || err != nil {
		t.Errorf("%d bytes, %v", n+1, err)
	}
	if err := sess.Wait(); err != nil {
		t.Error(err)
	}
}

// hold starts a command whose process group holds a fifo open, and returns what
// waits until all of the group is dead.
func hold(t *testing.T, sess *ssh.Session, script string) (gone func()) {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	up, end := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(end)
		f, err := os.Open(fifo)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		r := bufio.NewReader(f)
		r.ReadString('\n')
		close(up)
		io.Copy(io.Discard, r)
	}()
	if err := sess.Start("exec 9>" + fifo + "; " + script); err != nil {
		t.Fatal(err)
	}
	wait := func(c chan struct{}, what string) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(20 * time.Second):
			t.Fatal(what)
		}
	}
	wait(up, "it did not start")
	return func() { t.Helper(); wait(end, "processes are left") }
}

// Nothing outlives what it belongs to.
func TestNothingIsLeft(t *testing.T) {
	const stubborn = "trap '' TERM HUP INT; (sleep 1000 & sleep 1000) & echo up >&9; wait"
	const willing = "trap 'echo bye >&9; exit 0' TERM; echo up >&9; sleep 1000 & wait"
	for _, tt := range []struct {
		name, script string
		end          func(c *ssh.Client, s *ssh.Session, stop func())
	}{
		{"channel, stubborn", stubborn, func(_ *ssh.Client, s *ssh.Session, _ func()) { s.Close() }},
		{"channel, willing", willing, func(_ *ssh.Client, s *ssh.Session, _ func()) { s.Close() }},
		{"connection", stubborn, func(c *ssh.Client, _ *ssh.Session, _ func()) { c.Close() }},
		{"server", stubborn, func(_ *ssh.Client, _ *ssh.Session, stop func()) { stop() }},
		{"leader", "sleep 1000 & echo up >&9; exit 0", func(*ssh.Client, *ssh.Session, func()) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &Server{Grace: 50 * time.Millisecond}
			address, stop := serve(t, s)
			c := dial(t, s, address)
			sess := session(t, c)
			gone := hold(t, sess, tt.script)
			tt.end(c, sess, stop)
			gone()
		})
	}
}

func TestTerminal(t *testing.T) {
	s := &Server{}
	address, _ := serve(t, s)
	sess := session(t, dial(t, s, address))
	if err := sess.RequestPty("xterm", 30, 100, ssh.TerminalModes{}); err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	in, err := sess.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := sess.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sess.Start("stty size; echo $TERM; read x; stty size; test -t 0 && echo got $x"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	line := func() string { l, _ := r.ReadString('\n'); return strings.TrimSpace(l) }
	if a, b := line(), line(); a != "30 100" || b != "xterm" {
		t.Errorf("%q %q", a, b)
	}
	if err := sess.WindowChange(31, 101); err != nil {
		t.Error(err)
	}
	// A change of the window is not answered, and what is typed takes another way: an answer to what is asked after the
	// change says that it was made.
	if _, err := sess.SendRequest("after-the-change", true, nil); err != nil {
		t.Error(err)
	}
	io.WriteString(in, "hello\n")
	if a, b, c := line(), line(), line(); a != "hello" || b != "31 101" || c != "got hello" { // the echo first
		t.Errorf("%q %q %q", a, b, c)
	}
	if err := sess.Wait(); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	s := &Server{}
	address, _ := serve(t, s)
	c := dial(t, s, address)
	if err := session(t, c).RequestSubsystem("netconf"); err == nil {
		t.Error("a subsystem that is not there was accepted")
	}
	if _, _, err := c.OpenChannel("x11", nil); err == nil {
		t.Error("an unknown channel was accepted")
	}
	if _, _, err := c.OpenChannel("direct-tcpip", []byte{1}); err == nil {
		t.Error("a malformed forwarding was accepted")
	}
	if _, err := c.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("remote forwarding was accepted")
	}
	s.Inject(NoSessions)
	if _, err := c.NewSession(); err == nil {
		t.Error("a session was accepted")
	}
	s.Inject(CloseAtOnce)
	if _, err := ssh.Dial("tcp", address, &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()}); err == nil {
		t.Error("a connection was accepted")
	}
	if err := (&Server{}).Serve(t.Context(), nil); err == nil {
		t.Error("a server without a key serves")
	}
}

// OpenSSH's own client finds nothing missing: commands, files, a jump.
func TestOpenSSH(t *testing.T) {
	for _, program := range []string{"ssh", "sftp"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("OpenSSH's client is not installed: %v", err)
		}
	}
	dir := t.TempDir()
	key := filepath.Join(dir, "id")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	authorized, _, _, _, err := ssh.ParseAuthorizedKey(public)
	if err != nil {
		t.Fatal(err)
	}
	var known, config bytes.Buffer
	for _, name := range []string{"gate", "host"} {
		s := &Server{Dir: t.TempDir(), AuthorizedKeys: []ssh.PublicKey{authorized}}
		address, _ := serve(t, s)
		host, port, _ := net.SplitHostPort(address)
		known.WriteString(name + " " + string(ssh.MarshalAuthorizedKey(s.HostKey.PublicKey())))
		config.WriteString("Host " + name + "\n HostName " + host + "\n Port " + port + "\n HostKeyAlias " + name + "\n")
		if name == "host" {
			config.WriteString(" ProxyJump gate\n")
		}
	}
	config.WriteString("Host *\n User lab\n BatchMode yes\n IdentityFile " + key + "\n IdentitiesOnly yes\n UserKnownHostsFile " + filepath.Join(dir, "known") + "\n")
	for name, b := range map[string][]byte{"known": known.Bytes(), "config": config.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(stdin string, argv ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, argv[0], append([]string{"-F", filepath.Join(dir, "config")}, argv[1:]...)...)
		cmd.Stdin = strings.NewReader(stdin)
		var diag bytes.Buffer
		cmd.Stderr = &diag
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v: %s", argv, err, diag.String())
		}
		return string(out)
	}
	if out := run("hello\n", "ssh", "host", "cat; echo $((1 + 1))"); out != "hello\n2\n" {
		t.Errorf("ssh: %q", out)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	run("put "+filepath.Join(dir, "file")+" a\nrename a b\n", "sftp", "-q", "-b", "-", "host")
	if out := run("", "ssh", "host", "cat b"); out != "content" {
		t.Errorf("sftp: %q", out)
	}
}
