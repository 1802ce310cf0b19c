// Package ssh runs commands and moves files on the hosts of a lab. It adds to
// golang.org/x/crypto/ssh what an unattended night needs: a deadline on the
// handshake, keepalives that end a dead connection, host keys that are always
// checked, remote process groups that can be killed, and errors that name the
// host and say what to do.
//
// An emulated host is reached in exactly the same way; package sshd is its server.
package ssh

import (
	"cmp"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"golang.org/x/crypto/ssh"
)

// Target is a host to connect to and what it takes to get in.
type Target struct {
	Name    string // in errors; empty: Address
	Address string // host:port, or a host, which means port 22
	User    string // empty: the current user

	// Keys are private key files. If there are neither Keys nor Signers, the agent
	// and then the usual files of ~/.ssh are used.
	Keys    []string
	Signers []ssh.Signer
	// Agent is the socket of an SSH agent, asked after Keys and Signers; empty:
	// $SSH_AUTH_SOCK; "none": no agent.
	Agent string

	// KnownHosts are the files that say which keys hosts have; none given:
	// ~/.ssh/known_hosts. A host that none of them knows is refused. There is no
	// way to turn this off.
	KnownHosts []string

	// Jump is a host to go through, which may have one itself. Every connection
	// makes its own way through the jump hosts and closes it behind itself. An sshd
	// refuses about ten logins at once by default (MaxStartups), so bound fan-out.
	Jump *Target

	// Timeout is how long the TCP connection may take, and again the handshake with
	// authentication; 0: 10 s.
	Timeout time.Duration
	// KeepAlive is how often the host is asked whether it is there, and
	// KeepAliveMax how many such spans it may stay silent before the connection is
	// given up; 0: 5 s and 3.
	KeepAlive    time.Duration
	KeepAliveMax int
}

// String is the name that errors use.
func (t Target) String() string { return cmp.Or(t.Name, t.Address) }

// withDefaults fills in what was left open.
func (t Target) withDefaults() Target {
	if _, _, err := net.SplitHostPort(t.Address); err != nil {
		t.Address = net.JoinHostPort(t.Address, "22")
	}
	if t.User == "" {
		if u, err := user.Current(); err == nil {
			t.User = u.Username
		}
	}
	if len(t.KnownHosts) == 0 {
		t.KnownHosts = []string{homeFile("known_hosts")}
	}
	t.Timeout = cmp.Or(t.Timeout, 10*time.Second)
	t.KeepAlive = cmp.Or(t.KeepAlive, 5*time.Second)
	t.KeepAliveMax = cmp.Or(t.KeepAliveMax, 3)
	return t
}

// homeFile is the path of a file in the user's ~/.ssh.
func homeFile(name string) string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return filepath.Join(home, ".ssh", name)
}
