package ssh_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/testbedtest"
)

func newPrivate(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// listenAt accepts connections until the test ends, and hands each to f.
func listenAt(t *testing.T, network, at string, f func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go f(conn)
		}
	}()
	return l.Addr().String()
}

// listen is listenAt a port of this machine.
func listen(t *testing.T, f func(net.Conn)) (address string) {
	t.Helper()
	return listenAt(t, "tcp", "127.0.0.1:0", f)
}

// closedPort is an address where nobody listens.
func closedPort(t testing.TB) string {
	address, err := testbedtest.Nobody(t.Cleanup)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// revokes is an ssh_config that names a file of revoked keys with this in it.
func revokes(t *testing.T, text string) (config string) {
	t.Helper()
	if !strings.HasPrefix(text, "SSHKRL") {
		text = "# taken over\n" + text
	}
	return writeFile(t, "config", "RevokedHostKeys "+writeFile(t, "revoked", text)+"\n")
}

// Each way in which a host can be wrong has its kind of error, names the host, and
// says what is needed to act on it.
func TestDialErrors(t *testing.T) {
	other := sshd.NewKey()
	tests := []struct {
		name   string
		change func(*host)
		kind   error
		want   []string // in the message
		hint   string
	}{
		{"refused", func(h *host) { h.Address = closedPort(t) },
			hosts.ErrUnreachable, []string{"connection refused"}, "is it on"},
		{"no such host", func(h *host) { h.Address = "h1.invalid:22" },
			hosts.ErrUnreachable, []string{"h1.invalid:22"}, "address"},
		{"unknown host", func(h *host) { h.KnownHosts = []string{writeFile(t, "known_hosts", "")} },
			ssh.ErrHostKey, []string{"ssh-ed25519 SHA256:", "no key of [127.0.0.1]:"}, "add to "},
		{"no known_hosts file", func(h *host) { h.KnownHosts = []string{filepath.Join(t.TempDir(), "absent")} },
			ssh.ErrHostKey, []string{"absent"}, "absent the line \"[127.0.0.1]:"},
		{"changed host key", func(h *host) { h.KnownHosts = []string{knownHosts(t, h.Address, other.PublicKey())} },
			ssh.ErrHostKey, []string{"known_hosts:2 has ssh-ed25519 " + xssh.FingerprintSHA256(other.PublicKey())}, "ssh-keygen -f"},
		{"key shown to nobody", func(h *host) { h.Inject(sshd.WrongKey) },
			ssh.ErrHostKey, []string{"known_hosts:2 has"}, "reinstalled"},
		{"revoked host key", func(h *host) {
			h.KnownHosts = []string{writeFile(t, "known_hosts", "@revoked * "+string(xssh.MarshalAuthorizedKey(h.HostKey.PublicKey())))}
		}, ssh.ErrHostKey, []string{"known_hosts:1 revokes"}, "new key"},
		{"key that ssh_config revokes", func(h *host) { h.Config = revokes(t, string(xssh.MarshalAuthorizedKey(h.HostKey.PublicKey()))) },
			ssh.ErrHostKey, []string{"revoked:2 revokes"}, "new key"},
		{"revoked keys that nobody can read", func(h *host) { h.Config = revokes(t, "SSHKRL\n\x00\x00\x00\x00\x01") },
			ssh.ErrHostKey, []string{"is a key revocation list"}, "one in a line"},
		{"no file of revoked keys", func(h *host) {
			h.Config = writeFile(t, "config", "RevokedHostKeys "+filepath.Join(t.TempDir(), "absent")+"\n")
		}, ssh.ErrHostKey, []string{"absent: no such file"}, "RevokedHostKeys"},
		{"malformed known_hosts", func(h *host) { h.KnownHosts = []string{writeFile(t, "known_hosts", "h1 ssh-ed25519 !!!\n")} },
			ssh.ErrHostKey, []string{"known_hosts:1"}, "sshd(8)"},
		{"wrong user key", func(h *host) { h.Signers = []xssh.Signer{other} },
			ssh.ErrAuth, []string{"user lab", xssh.FingerprintSHA256(other.PublicKey())}, "authorized_keys"},
		{"no such key file", func(h *host) { h.Signers, h.Keys = nil, []string{"/nonexistent/key"} },
			ssh.ErrAuth, []string{"not asked: no key to log in with", "/nonexistent/key"}, "ssh-keygen"},
		{"key with passphrase", func(h *host) { h.Signers, h.Keys = nil, []string{encrypted(t)} },
			ssh.ErrAuth, []string{"id has a passphrase"}, ""},
		{"not a key file", func(h *host) { h.Signers, h.Keys = nil, []string{writeFile(t, "id", "hello")} },
			ssh.ErrAuth, []string{"id: ssh: no key found"}, ""},
		{"no agent", func(h *host) { h.Signers, h.Agent = nil, "/nonexistent/agent"; h.Keys = []string{"/nonexistent/key"} },
			ssh.ErrAuth, []string{"SSH agent: dial unix /nonexistent/agent"}, ""},
		{"silent server", func(h *host) { h.Inject(sshd.Hang); h.Timeout = 500 * time.Millisecond },
			hosts.ErrUnreachable, []string{"handshake: no answer within 500ms"}, ""},
		{"server that hangs up", func(h *host) { h.Inject(sshd.CloseAtOnce); h.Timeout = 300 * time.Millisecond },
			hosts.ErrUnreachable, []string{"handshake"}, ""},
		{"not an SSH server", func(h *host) {
			h.Address = listen(t, func(c net.Conn) { c.Write([]byte("220 mail ready\r\n")); c.Close() })
		}, hosts.ErrUnreachable, []string{"handshake"}, ""},
		{"jump host unreachable", func(h *host) {
			h.Jump = &ssh.Target{Name: "gate", Address: closedPort(t), Signers: h.Signers, Agent: "none"}
		}, hosts.ErrUnreachable, []string{"jump: host gate", "connection refused"}, "is it on"},
		{"refused behind jump host", func(h *host) {
			gate := newHost(t, nil).Target
			h.Jump, h.Address = &gate, closedPort(t)
		}, hosts.ErrUnreachable, []string{"from host h1", "connection refused"}, "is it on"},
		{"silent behind jump host", func(h *host) {
			gate := newHost(t, nil).Target
			h.Jump, h.Timeout = &gate, 2*time.Second
			h.Inject(sshd.Hang)
		}, hosts.ErrUnreachable, []string{"handshake: no answer within 2s"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			h := newHost(t, tt.change)
			c, err := ssh.Dial(t.Context(), h.Target)
			if err == nil {
				c.Close()
				t.Fatal("connected")
			}
			if !errors.Is(err, tt.kind) {
				t.Errorf("%v\nis not %q", err, tt.kind)
			}
			for _, want := range append(tt.want, "host h1") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
			var e *hosts.Error
			if !errors.As(err, &e) {
				t.Fatalf("%T is not an *hosts.Error", err)
			}
			if !strings.Contains(e.Hint, tt.hint) {
				t.Errorf("hint %q does not say %q", e.Hint, tt.hint)
			}
		})
	}
}

// The line that the hint of an unknown host gives makes the host known.
func TestHintOfUnknownHost(t *testing.T) {
	h := newHost(t, func(h *host) { h.KnownHosts = []string{writeFile(t, "known_hosts", "")} })
	_, err := ssh.Dial(t.Context(), h.Target)
	var e *hosts.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(e.Hint, "the line \"")
	h.KnownHosts = []string{writeFile(t, "known_hosts", strings.TrimSuffix(line, "\"")+"\n")}
	h.connect(t)
}

func TestDialCancelled(t *testing.T) {
	accepted := make(chan struct{})
	h := newHost(t, func(h *host) {
		h.Address = listen(t, func(net.Conn) { close(accepted) })
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-accepted; cancel() }()
	if _, err := ssh.Dial(ctx, h.Target); !errors.Is(err, context.Canceled) || !errors.Is(err, hosts.ErrUnreachable) {
		t.Errorf("in the handshake: %v", err)
	}
	if _, err := ssh.Dial(ctx, h.Target); !errors.Is(err, context.Canceled) {
		t.Errorf("before: %v", err)
	}
}

// A server with keys of several types is known by any one of them.
func TestHostKeyTypes(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := xssh.NewSignerFromKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	edKey := sshd.NewKey()
	config := &xssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(edKey)
	config.AddHostKey(ecKey)
	address := listen(t, func(c net.Conn) {
		defer c.Close()
		if sc, chans, reqs, err := xssh.NewServerConn(c, config); err == nil {
			go xssh.DiscardRequests(reqs)
			for range chans {
			}
			sc.Close()
		}
	})
	for _, key := range []xssh.Signer{edKey, ecKey} {
		t.Run(key.PublicKey().Type(), func(t *testing.T) {
			c, err := ssh.Dial(t.Context(), ssh.Target{
				Address: address, Signers: []xssh.Signer{userKey}, Agent: "none",
				KnownHosts: []string{knownHosts(t, address, key.PublicKey())},
			})
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		})
	}
}

// serveAgent is the socket of an SSH agent, until the test ends.
func serveAgent(t *testing.T, a agent.Agent) (socket string) {
	t.Helper()
	return listenAt(t, "unix", filepath.Join(t.TempDir(), "agent"), func(c net.Conn) { agent.ServeAgent(a, c) })
}

// Keys come from files and from an agent as well.
func TestKeySources(t *testing.T) {
	private := newPrivate(t)
	signer, err := xssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block, err := xssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	file := writeFile(t, "id", string(pem.EncodeToMemory(block)))

	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	socket := serveAgent(t, ring)

	for name, change := range map[string]func(*host){
		"file":             func(h *host) { h.Keys = []string{file} },
		"agent":            func(h *host) { h.Agent = socket },
		"agent by default": func(h *host) { h.Agent = ""; t.Setenv("SSH_AUTH_SOCK", socket) },
		"agent has what the file locks": func(h *host) {
			h.Keys, h.Agent = []string{encrypted(t)}, socket
		},
	} {
		t.Run(name, func(t *testing.T) {
			newHost(t, func(h *host) {
				h.Signers = nil
				h.AuthorizedKeys = []xssh.PublicKey{signer.PublicKey()}
				change(h)
			}).connect(t)
		})
	}
}

// Two jump hosts in a row lead to a host, whose key is checked under its own
// address, and which the middle one alone can reach.
func TestJump(t *testing.T) {
	outer := newHost(t, func(h *host) { h.Name = "outer" })
	inner := newHost(t, func(h *host) { h.Name = "inner"; h.Jump = &outer.Target })
	h := newHost(t, func(h *host) { h.Jump = &inner.Target })
	c := h.connect(t)
	out, err := c.Run(t.Context(), []string{"/bin/echo", "hello"}, nil)
	if err != nil || string(out.Stdout) != "hello\n" {
		t.Errorf("%q, %v", out.Stdout, err)
	}

	h.KnownHosts = []string{knownHosts(t, h.Address, sshd.NewKey().PublicKey())}
	if _, err := ssh.Dial(t.Context(), h.Target); !errors.Is(err, ssh.ErrHostKey) {
		t.Errorf("wrong key behind jump hosts: %v", err)
	}

	// When a jump host goes, so does what goes through it.
	outer.down()
	<-c.Done()
	if err := c.Err(); !errors.Is(err, hosts.ErrLost) {
		t.Error(err)
	}
}

// A connection can go through a host.
func TestDialThroughHost(t *testing.T) {
	address := listen(t, func(c net.Conn) { c.Write([]byte("switch")); c.Close() })
	c := newHost(t, nil).connect(t)
	conn, err := c.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b := make([]byte, 16)
	if n, err := conn.Read(b); string(b[:n]) != "switch" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if _, err := c.DialContext(t.Context(), "tcp", closedPort(t)); err == nil || !strings.Contains(err.Error(), "from host h1") {
		t.Error(err)
	}
}
