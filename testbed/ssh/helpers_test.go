package ssh_test

import (
	"context"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/sshd"
)

var userKey = sshd.NewKey()

// host is an emulated host: its server, and how to reach it.
type host struct {
	*sshd.Server
	ssh.Target
	down func() // stops the server and waits for it
}

// newHost brings up a server on the loopback device; change may adjust it before.
func newHost(t testing.TB, change func(*host)) *host {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{
		Server: &sshd.Server{
			HostKey:        sshd.NewKey(),
			AuthorizedKeys: []xssh.PublicKey{userKey.PublicKey()},
			Dir:            dir,
			Grace:          50 * time.Millisecond,
		},
		Target: ssh.Target{
			Name:    "h1",
			Address: l.Addr().String(),
			User:    "lab",
			Signers: []xssh.Signer{userKey},
			Agent:   "none",
			Config:  "none",
			Timeout: time.Minute,
		},
	}
	h.KnownHosts = []string{knownHosts(t, h.Address, h.HostKey.PublicKey())}
	if change != nil {
		change(h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, l) }()
	h.down = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		done <- nil
	}
	t.Cleanup(h.down)
	return h
}

// connect dials a host and hangs up when the test ends.
func (h *host) connect(t testing.TB) *ssh.Client {
	t.Helper()
	c, err := ssh.Dial(t.Context(), h.Target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// knownHosts writes a known_hosts file with one entry.
func knownHosts(t testing.TB, address string, key xssh.PublicKey) string {
	return writeFile(t, "known_hosts", "# comment\n"+knownhosts.Line([]string{address}, key)+"\n")
}

func writeFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// encrypted is a private key file with a passphrase.
func encrypted(t testing.TB) string {
	t.Helper()
	block, err := xssh.MarshalPrivateKeyWithPassphrase(newPrivate(t), "", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "id", string(pem.EncodeToMemory(block)))
}

// writeKey is the file of a new private key.
func writeKey(t testing.TB) string {
	t.Helper()
	block, err := xssh.MarshalPrivateKey(newPrivate(t), "")
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "id", string(pem.EncodeToMemory(block)))
}

// dialAll connects to several hosts with one Dialer. On error the connections that were made are
// closed again.
func dialAll(ctx context.Context, limit int, targets []ssh.Target) ([]hosts.Host, error) {
	all := make([]hosts.Host, len(targets))
	d := &ssh.Dialer{Limit: limit}
	err := hosts.FanOut(ctx, 0, targets, func(ctx context.Context, i int, t ssh.Target) error {
		c, err := d.Dial(ctx, t)
		if err == nil {
			all[i] = c
		}
		return err
	})
	if err != nil {
		hosts.CloseAll(all)
		return nil, err
	}
	return all, nil
}
