// Package ssh runs commands and moves files on the hosts of a lab. It adds to
// golang.org/x/crypto/ssh what an unattended night needs: the user's ssh_config,
// a deadline on the handshake, keepalives that end a dead connection, host keys that
// are always checked, remote process groups that can be killed, root's part through
// sudo, and errors that name the host and say what to do.
//
// An emulated host is reached in exactly the same way; package sshd is its server.
package ssh

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Target is a host to connect to and what it takes to get in. What it leaves open
// the user's ssh_config may say. Paths may begin with "~/".
type Target struct {
	Name string // in errors; empty: Address
	// Address is what one would write after "ssh": host or host:port. Its host is what
	// Host lines of ssh_config are compared with; without a port it is ssh_config's, or 22.
	Address string
	User    string // empty: ssh_config's, or the current user

	// Keys are private key files, or public ones whose private part an agent has. If there
	// are neither Keys nor Signers, those of ssh_config, or the agent's and then the usual
	// files of ~/.ssh are used. A certificate beside a key (id_x-cert.pub) is used with it.
	Keys    []string
	Signers []ssh.Signer
	// Certificates are files of certificates for any of the keys.
	Certificates []string
	// Agent is the socket of an SSH agent, asked after Keys and Signers; empty:
	// ssh_config's, or $SSH_AUTH_SOCK; "none": no agent.
	Agent string
	// IdentitiesOnly keeps keys of the agent back that are not among Keys. A server hangs
	// up after a handful of wrong keys (MaxAuthTries, 6 by default).
	IdentitiesOnly bool

	// KnownHosts are the files that say which keys hosts have, or who certifies them
	// (@cert-authority); none given: ssh_config's, or those of ~/.ssh and /etc/ssh. A host
	// that none of them knows is refused. There is no way to turn this off.
	KnownHosts []string

	// Jump is a host to go through, which may have one itself; nil: as ssh_config says.
	// Direct says that there is none, whatever ssh_config says.
	Jump   *Target
	Direct bool

	// Net connects to the target's address, if it has no Jump; nil: over this machine's network.
	Net func(ctx context.Context) (net.Conn, error)

	// Config is an ssh_config file; "none": none is read; empty: ~/.ssh/config, then
	// /etc/ssh/ssh_config.
	Config string

	// Sudo allows RunRoot and StartRoot for a user who is not root.
	Sudo bool

	// Timeout is how long the TCP connection may take, and again the handshake with
	// authentication, and all attempts of a server that is too busy to begin one; 0:
	// ssh_config's ConnectTimeout, or 10 s.
	Timeout time.Duration
	// KeepAlive is how often the host is asked whether it is there, and
	// KeepAliveMax how many such spans it may stay silent before the connection is
	// given up; 0: ssh_config's, or 5 s and 3.
	KeepAlive    time.Duration
	KeepAliveMax int

	hostKeyAlias string   // the name in known_hosts; empty: that of Address
	revoked      []string // files of keys that no host may have
	sha1HostKeys bool     // a host may prove its RSA key with SHA-1
	sha1Keys     bool     // RSA keys may log in with SHA-1
}

// String is the name that errors use.
func (t Target) String() string { return cmp.Or(t.Name, t.Address) }

// maxJumps is how long a way through jump hosts may be; a longer one goes in circles.
const maxJumps = 8

// resolve fills in what was left open, of t and of all that it goes through, of which
// there may be left. What of ssh_config is not followed is appended to warn.
func (c *configFiles) resolve(t Target, left int, warn *[]string) (Target, error) {
	if left < 0 {
		return t, fmt.Errorf("it is reached through more than %d hosts, or through itself", maxJumps)
	}
	alias, _, err := splitAddress(t.Address)
	if err != nil {
		return t, err
	}
	said := &settings{}
	if t.Config != "none" {
		if said, err = c.lookup(t.Config, alias); err != nil {
			return t, err
		}
	}
	if err := said.apply(&t, alias, warn); err != nil {
		return t, err
	}
	t.Keys, t.Certificates, t.KnownHosts = expandHomes(t.Keys), expandHomes(t.Certificates), expandHomes(t.KnownHosts)
	t.Agent = expandHome(t.Agent)
	t.Config = "none"
	t.Timeout = cmp.Or(t.Timeout, 10*time.Second)
	t.KeepAlive = cmp.Or(t.KeepAlive, 5*time.Second)
	t.KeepAliveMax = cmp.Or(t.KeepAliveMax, 3)
	if t.Direct {
		t.Jump = nil
	}
	if t.Jump != nil {
		jump, err := c.resolve(*t.Jump, left-1, warn)
		if err != nil {
			return t, fmt.Errorf("jump host %s: %w", t.Jump, err)
		}
		t.Jump = &jump
	}
	t.Direct = t.Jump == nil
	return t, nil
}

// splitAddress takes an address apart whose port may be missing.
func splitAddress(address string) (host, port string, err error) {
	if host, port, err := net.SplitHostPort(address); err == nil {
		return host, port, nil
	}
	host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	if host == "" || strings.ContainsAny(host, "[]@/ ") {
		return "", "", fmt.Errorf("%q is not an address", address)
	}
	return host, "", nil
}

// homeFile is the path of a file in the user's ~/.ssh.
func homeFile(name string) string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return filepath.Join(home, ".ssh", name)
}

func expandHomes(paths []string) []string {
	out := slices.Clone(paths)
	for i := range out {
		out[i] = expandHome(out[i])
	}
	return out
}

// expandHome replaces a leading "~/".
func expandHome(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(filepath.Dir(homeFile("")), rest)
	}
	return path
}
