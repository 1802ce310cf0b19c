package netns

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// The SSH servers that an emulation's hosts can run.
const (
	Embedded = "embedded" // package sshd
	OpenSSH  = "openssh"  // the sshd that most of the world's hosts run
)

// Who logs into a host that runs OpenSSH's server, and whom that server runs as. A
// server of root would want to change groups, which nobody may in a user namespace
// of one user; one of an ordinary user has nothing to change, and lets only that user
// in. The same is done for root, so that there is one way and not two.
const (
	labUser = "lab"
	labID   = 1000 // of user and group
)

// FindOpenSSH is the absolute path of OpenSSH's server on this machine. Where there
// is none, the error wraps errors.ErrUnsupported and says what to install.
func FindOpenSSH() (string, error) {
	// Its directory is often not on an ordinary user's PATH.
	for _, name := range []string{"sshd", "/usr/sbin/sshd", "/usr/local/sbin/sshd"} {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path) // it starts itself again by this name
		}
	}
	return "", missingError{Check{
		Name: openSSHCheck, Why: "no sshd in PATH, /usr/sbin or /usr/local/sbin",
		Fix: `for hosts with sshd = "openssh": "sudo apt-get install openssh-server", which need not run; the embedded server needs nothing`,
	}}
}

const openSSHCheck = "OpenSSH's server"

// probeOpenSSH is FindOpenSSH as a check.
func probeOpenSSH() Check {
	path, err := FindOpenSSH()
	if missing := (missingError{}); errors.As(err, &missing) {
		return missing.Check
	}
	return Check{Name: openSSHCheck, OK: err == nil, Why: path}
}

// startOpenSSH starts OpenSSH's server on the host's management address and returns
// when it listens. Its end, or that of ctx, is sent to the channel. This process must
// have no other children: it buries all that end, also those that sessions leave to
// the first process of the host, which it is.
func (c nodeConfig) startOpenSSH(ctx context.Context) (<-chan error, error) {
	config, pidFile, err := c.configureOpenSSH()
	if err != nil {
		return nil, err
	}
	if err := os.Remove(pidFile); err != nil && !errors.Is(err, fs.ErrNotExist) { // of before a reboot
		return nil, err
	}
	const ports = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
	if err := os.WriteFile(ports, []byte("0"), 0); err != nil {
		return nil, fmt.Errorf("let sshd have port %d: %w", sshPort, err)
	}
	pid, err := syscall.ForkExec(c.SSH.Program, []string{c.SSH.Program, "-D", "-e", "-f", config}, &syscall.ProcAttr{
		Env: []string{"PATH=" + os.Getenv("PATH")}, Files: []uintptr{0: ^uintptr(0), 1: 2, 2: 2},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: labID, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: labID, HostID: os.Getegid(), Size: 1}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.SSH.Program, err)
	}
	served := make(chan error, 1)
	go func() {
		defer context.AfterFunc(ctx, func() { _ = unix.Kill(pid, unix.SIGKILL) })()
		ws, err := bury(pid)
		if err != nil {
			served <- fmt.Errorf("wait for %s: %w", c.SSH.Program, err)
			return
		}
		served <- fmt.Errorf("%s ended with %d", c.SSH.Program, exitCode(ws))
	}()
	// It writes this file when its sockets are bound.
	for {
		if _, err := os.Stat(pidFile); err == nil {
			return served, nil
		}
		select {
		case err := <-served:
			return nil, err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// configureOpenSSH writes all that the server reads, and puts it in place of the
// machine's: nothing in /etc that is about SSH or users concerns this host.
func (c nodeConfig) configureOpenSSH() (config, pidFile string, err error) {
	dir := c.SSH.Dir
	key, err := ssh.MarshalPrivateKey(ed25519.NewKeyFromSeed(c.SSH.HostKey), c.Name)
	if err != nil {
		return "", "", fmt.Errorf("host key: %w", err)
	}
	user, err := ssh.ParsePublicKey(c.SSH.Authorized)
	if err != nil {
		return "", "", fmt.Errorf("user key: %w", err)
	}
	config, pidFile = filepath.Join(dir, "sshd_config"), filepath.Join(dir, "pid")
	if err := os.MkdirAll(filepath.Join(dir, "ssh"), 0o700); err != nil {
		return "", "", fmt.Errorf("configure sshd: %w", err)
	}
	for name, content := range map[string][]byte{
		"host_key":        pem.EncodeToMemory(key),
		"authorized_keys": ssh.MarshalAuthorizedKey(user),
		"sshd_config":     openSSHConfig(dir, c.Mgmt.Addr()),
		"passwd": fmt.Appendf(nil, "%s:*:%d:%d::%s:/bin/sh\nnobody:*:65534:65534::/nonexistent:/bin/false\n",
			labUser, labID, labID, c.SSH.Home),
		"group":         fmt.Appendf(nil, "%s:*:%d:\nnogroup:*:65534:\n", labUser, labID),
		"nsswitch.conf": []byte("passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"),
		"shadow":        nil,
		"hosts.allow":   nil, // some builds ask these two before they let anybody in
		"hosts.deny":    nil,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", "", fmt.Errorf("configure sshd: %w", err)
		}
	}
	for _, name := range []string{"passwd", "group", "nsswitch.conf", "shadow", "hosts.allow", "hosts.deny", "ssh"} {
		err := unix.Mount(filepath.Join(dir, name), "/etc/"+name, "", unix.MS_BIND, "")
		if err != nil && !(err == unix.ENOENT && name != "passwd" && name != "group") {
			return "", "", fmt.Errorf("give the host an /etc/%s of its own: %w", name, err)
		}
	}
	return config, pidFile, nil
}

// openSSHConfig is an sshd_config of keywords that every version since 7.3 knows.
// Nothing but the run's key opens a session. The fan-out of a whole rack, from one
// address and many agents to a host, is not an attack here.
func openSSHConfig(dir string, listen netip.Addr) []byte {
	return fmt.Appendf(nil, `Port %d
ListenAddress %s
HostKey %[3]s/host_key
PidFile %[3]s/pid
AuthorizedKeysFile %[3]s/authorized_keys
StrictModes no
AllowUsers %[4]s
AuthenticationMethods publickey
UsePAM no
PrintMotd no
PrintLastLog no
MaxStartups 1000
MaxSessions 1000
Subsystem sftp internal-sftp
`, sshPort, listen, dir, labUser)
}
