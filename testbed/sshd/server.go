// Package sshd is a small SSH server for emulated hosts and for tests. To a client
// it is OpenSSH's sshd with its default configuration, one user, and public keys:
// commands run through /bin/sh -c in a session and process group of their own,
// files go over SFTP, and the host can be a jump host.
//
// It is harsher in one point: a session's process group is killed when its
// command, its channel, its connection or the server ends, so that an emulation
// leaves nothing behind.
package sshd

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// Server is an SSH server. Its fields must not change once it serves.
type Server struct {
	HostKey        ssh.Signer
	AuthorizedKeys []ssh.PublicKey // any of them lets any user name in
	Env            []string        // of sessions, KEY=value; nil: the server's own
	Dir            string          // home and working directory; empty: the server's own
	Greeting       string          // what /bin/sh does before each command, as the files of a login shell may
	Log            func(format string, args ...any)
	// Grace is how long a process group has between SIGTERM and SIGKILL when its
	// channel or the server goes; 0: 500 ms.
	Grace time.Duration

	fault atomic.Int32
	mu    sync.Mutex
	conns map[*faultyConn]struct{}
}

// Fault is deliberate misbehaviour, for tests of clients.
type Fault int32

const (
	None        Fault = iota
	CloseAtOnce       // new connections are closed as soon as they are made
	Hang              // nothing is read or written any more, also on connections that exist
	WrongKey          // new connections are shown a key that nobody knows
	NoSessions        // new sessions are refused, as OpenSSH does above MaxSessions
)

// Inject makes the server misbehave from now on. A connection that hung stays so.
func (s *Server) Inject(f Fault) {
	s.fault.Store(int32(f))
	if f == Hang {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			c.hang()
		}
	}
}

func (s *Server) has(f Fault) bool { return Fault(s.fault.Load()) == f }

// handshakeTimeout is how long a client has to log in (OpenSSH: LoginGraceTime, 120 s).
const handshakeTimeout = 20 * time.Second

// Serve serves connections from l until ctx ends or l fails. It then closes l and
// all connections, and returns when every process group is dead. The end of ctx is
// not an error.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	// Whoever logs in has signals as usual, also where this process was started by nohup: what
	// is caught here, and not ignored, is not ignored in children.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	if s.HostKey == nil {
		return errors.New("ssh server: no host key")
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("ssh server: %w", err)
		}
		if s.has(CloseAtOnce) {
			conn.Close()
			continue
		}
		wg.Go(func() { s.serveConn(ctx, conn) })
	}
}

func (s *Server) logf(format string, args ...any) {
	if s.Log != nil {
		s.Log(format, args...)
	}
}

// config is made anew for each connection because a fault may change the key.
func (s *Server) config() *ssh.ServerConfig {
	c := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-inabench",
		PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			same := func(k ssh.PublicKey) bool { return string(k.Marshal()) == string(key.Marshal()) }
			if slices.ContainsFunc(s.AuthorizedKeys, same) {
				return nil, nil
			}
			return nil, fmt.Errorf("key %s of %s is not authorised", ssh.FingerprintSHA256(key), meta.User())
		},
	}
	key := s.HostKey
	if s.has(WrongKey) {
		key = NewKey()
	}
	c.AddHostKey(key)
	return c
}

// NewKey makes an Ed25519 key, for a host or a user.
func NewKey() ssh.Signer {
	_, private, _ := ed25519.GenerateKey(rand.Reader) // cannot fail since Go 1.24
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		panic(err) // an Ed25519 key is always accepted
	}
	return signer
}

func (s *Server) serveConn(ctx context.Context, raw net.Conn) {
	conn := &faultyConn{Conn: raw, hung: make(chan struct{}), gone: make(chan struct{})}
	s.mu.Lock()
	if s.conns == nil {
		s.conns = map[*faultyConn]struct{}{}
	}
	s.conns[conn] = struct{}{}
	s.mu.Unlock()
	if s.has(Hang) {
		conn.hang()
	}
	defer func() {
		conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	// The connection's context ends with the connection; its sessions go by it.
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	deadline := time.AfterFunc(handshakeTimeout, func() { conn.Close() })
	sc, chans, reqs, err := ssh.NewServerConn(conn, s.config())
	if !deadline.Stop() || err != nil {
		s.logf("%v: %v", raw.RemoteAddr(), cmp.Or(err, errors.New("handshake took too long")))
		return
	}
	defer sc.Close()
	wg.Go(func() { ssh.DiscardRequests(reqs) }) // keepalives are answered, with a failure, as sshd does
	for ch := range chans {
		switch ch.ChannelType() {
		case "session":
			if s.has(NoSessions) {
				ch.Reject(ssh.ResourceShortage, "open failed")
				continue
			}
			wg.Go(func() { s.session(ctx, sc, ch) })
		case "direct-tcpip":
			wg.Go(func() { s.forward(ctx, ch) })
		default:
			ch.Reject(ssh.UnknownChannelType, "unknown channel type")
		}
	}
}

// faultyConn is a connection that can stop doing anything.
type faultyConn struct {
	net.Conn
	hung, gone         chan struct{}
	hangOnce, goneOnce sync.Once
}

func (c *faultyConn) hang() { c.hangOnce.Do(func() { close(c.hung) }) }

func (c *faultyConn) Close() error {
	c.goneOnce.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

// pause blocks a hung connection until it is closed.
func (c *faultyConn) pause() {
	select {
	case <-c.hung:
		<-c.gone
	default:
	}
}

func (c *faultyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.pause()
	return n, err
}

func (c *faultyConn) Write(p []byte) (int, error) {
	c.pause()
	return c.Conn.Write(p)
}
