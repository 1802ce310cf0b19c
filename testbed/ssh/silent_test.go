package ssh_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/sshd"
)

// dialTo connects to a server that takes every key, answers all signs of life, and gives each channel that is asked for to do.
func dialTo(t *testing.T, do func(xssh.NewChannel), alive time.Duration, most int) *ssh.Client {
	t.Helper()
	key := sshd.NewKey()
	config := &xssh.ServerConfig{PublicKeyCallback: func(xssh.ConnMetadata, xssh.PublicKey) (*xssh.Permissions, error) { return nil, nil }}
	config.AddHostKey(key)
	address := listen(t, func(raw net.Conn) {
		_, chans, reqs, err := xssh.NewServerConn(raw, config)
		if err != nil {
			return
		}
		go func() {
			for r := range reqs {
				_ = r.Reply(true, nil)
			}
		}()
		for c := range chans {
			do(c)
		}
	})
	c, err := ssh.Dial(t.Context(), ssh.Target{
		Name: "h1", Address: address, User: "lab", Signers: []xssh.Signer{userKey}, Agent: "none", Config: "none",
		KnownHosts: []string{knownHosts(t, address, key.PublicKey())}, KeepAlive: alive, KeepAliveMax: most, Timeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestSilentExec: a host that answers all signs of life, and never that a command starts, is given up, though nobody set
// a time.
func TestSilentExec(t *testing.T) {
	t.Parallel() // it waits
	c := dialTo(t, func(c xssh.NewChannel) {
		if _, requests, err := c.Accept(); err == nil {
			go func() {
				for range requests { // none is answered
				}
			}()
		}
	}, 100*time.Millisecond, 8)
	defer c.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Start(context.Background(), []string{"true"}, nil)
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, hosts.ErrLost) {
			t.Errorf("%v, want that the host is lost", err)
		}
	case <-time.After(time.Minute):
		t.Error("it still waits")
	}
}

// consenting is an SSH agent whose user never consents to a signature.
type consenting struct {
	agent.Agent
	never chan struct{}
}

func (a consenting) Sign(xssh.PublicKey, []byte) (*xssh.Signature, error) {
	<-a.never
	return nil, errors.New("no")
}

func (a consenting) SignWithFlags(key xssh.PublicKey, data []byte, _ agent.SignatureFlags) (*xssh.Signature, error) {
	return a.Sign(key, data)
}

func (a consenting) Extension(string, []byte) ([]byte, error) {
	return nil, agent.ErrExtensionUnsupported
}

// TestSilentAgent: an SSH agent that does not sign ends a login when its time is over.
func TestSilentAgent(t *testing.T) {
	t.Parallel() // it waits
	private := newPrivate(t)
	signer, err := xssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	silent := consenting{ring, make(chan struct{})}
	defer close(silent.never)
	socket := serveAgent(t, silent)
	h := newHost(t, func(h *host) {
		h.Signers, h.Agent, h.Timeout = nil, socket, time.Second
		h.AuthorizedKeys = []xssh.PublicKey{signer.PublicKey()}
	})
	ended := make(chan error, 1)
	go func() {
		_, err := ssh.Dial(context.Background(), h.Target)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it has logged in")
		}
	case <-time.After(time.Minute):
		t.Error("it still waits")
	}
}
