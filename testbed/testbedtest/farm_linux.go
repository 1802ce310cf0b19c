package testbedtest

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// OpenSSH is OpenSSH's server on this machine, and who it lets in when the user who runs
// the test starts it: that user. The test is skipped, as "openssh", where there is no
// server, or where that user may not log in.
func OpenSSH(t testing.TB) (program, who string) {
	t.Helper()
	program, err := exec.LookPath("sshd")
	if err != nil {
		program = "/usr/sbin/sshd" // not on every user's PATH
	}
	_, err = os.Stat(program)
	Require(t, "openssh", err)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	users, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(users)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if shell := f[len(f)-1]; f[0] == me.Username && slices.Contains([]string{"nologin", "false"}, filepath.Base(shell)) {
			Require(t, "openssh", fmt.Errorf("user %s may not log in anywhere: their shell is %s", f[0], shell))
		}
	}
	return program, me.Username
}

// Farm is many hosts with OpenSSH's server, on loopback addresses, for one user.
type Farm struct {
	Addresses  []string // host:port of each
	User       string
	Key        string // private key file
	KnownHosts string // file with the keys of all, each its own
}

// NewFarm starts n servers. All of them are in one process namespace, and end with its
// first process, which ends with the test, however that ends.
func NewFarm(t testing.TB, n int) *Farm {
	t.Helper()
	program, who := OpenSSH(t)
	dir := t.TempDir()
	f := &Farm{User: who, Key: filepath.Join(dir, "user"), KnownHosts: filepath.Join(dir, "known_hosts")}
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := func(file string) ssh.PublicKey {
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		block, err := ssh.MarshalPrivateKey(private, "")
		if err != nil {
			t.Fatal(err)
		}
		write(file, string(pem.EncodeToMemory(block)))
		key, err := ssh.NewPublicKey(public)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	write(f.Key+".pub", string(ssh.MarshalAuthorizedKey(key(f.Key))))
	l, err := net.Listen("tcp", "127.77.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	var known strings.Builder
	var configs []string
	for i := range n {
		host, base := fmt.Sprintf("127.77.%d.%d", i/200, i%200+1), filepath.Join(dir, fmt.Sprint(i))
		f.Addresses = append(f.Addresses, net.JoinHostPort(host, port))
		fmt.Fprintln(&known, knownhosts.Line(f.Addresses[i:], key(base+".key")))
		configs = append(configs, base+".conf")
		// SHLVL keeps bash from the user's .bashrc.
		write(configs[i], fmt.Sprintf(`ListenAddress %s
Port %s
HostKey %s.key
AuthorizedKeysFile %s.pub
StrictModes no
PermitRootLogin yes
UsePAM no
PidFile none
SetEnv SHLVL=2
Subsystem sftp internal-sftp
`, host, port, base, f.Key))
	}
	write(f.KnownHosts, known.String())

	script := `for f do "$0" -D -f "$f" & done; wait`
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWPID}
	if uid, gid := os.Geteuid(), os.Getegid(); uid == 0 {
		// Root's server wants this directory, which starting the machine's own would make.
		attr.Unshareflags = syscall.CLONE_NEWNS
		script = "mount -t tmpfs -o mode=755 none /run && mkdir /run/sshd && " + script
	} else {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, program}, configs...)...)
	cmd.SysProcAttr = attr
	var said strings.Builder
	cmd.Stderr = &said
	Require(t, "openssh", cmd.Start())
	end := func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(end)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, address := range f.Addresses {
		wg.Go(func() { errs[i] = answers(ctx, address) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		end() // and so of what it says
		Require(t, "openssh", fmt.Errorf("OpenSSH's server does not run here: %w: %s", err, said.String()))
	}
	return f
}

// answers waits until something listens at an address.
func answers(ctx context.Context, address string) error {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// BlackHole is an address from which no answer comes to who wants to connect, as of a
// host that is off: the queue of its socket is full.
func BlackHole(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	host := [4]byte{127, 77, 255, 1}
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: host}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(net.IP(host[:]).String(), fmt.Sprint(name.(*syscall.SockaddrInet4).Port))
	var wg sync.WaitGroup
	for range 4 { // those that do not fit time out
		wg.Go(func() {
			if conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond); err == nil {
				t.Cleanup(func() { conn.Close() })
			}
		})
	}
	wg.Wait()
	return address
}
