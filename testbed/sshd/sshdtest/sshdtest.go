// Package sshdtest gives tests a host to log in to: package sshd's server on the loopback
// device, for as long as the test takes, and what a client of package ssh needs to reach it.
package sshdtest

import (
	"cmp"
	"context"
	"crypto/ed25519"
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

// Serve runs s until the test ends, and says how to log in: as user "lab" to "h1", with a key
// of its own in a file, and with nothing of the user who runs the test: no agent, no
// ssh_config, another known_hosts. s has a host key then if it had none, one more key that
// may log in, and a Grace of 50 ms if it had none.
func Serve(t testing.TB, s *sshd.Server) ssh.Target {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir() // made before the server is told to end, so removed after that
	keyFile, known := filepath.Join(dir, "id"), filepath.Join(dir, "known_hosts")
	public, private, err := ed25519.GenerateKey(nil)
	must(err)
	block, err := xssh.MarshalPrivateKey(private, "")
	must(err)
	must(os.WriteFile(keyFile, pem.EncodeToMemory(block), 0o600))
	key, err := xssh.NewPublicKey(public)
	must(err)
	s.AuthorizedKeys = append(s.AuthorizedKeys, key)
	if s.HostKey == nil {
		s.HostKey = sshd.NewKey()
	}
	s.Grace = cmp.Or(s.Grace, 50*time.Millisecond)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	address := l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	must(os.WriteFile(known, []byte(knownhosts.Line([]string{address}, s.HostKey.PublicKey())+"\n"), 0o600))
	return ssh.Target{
		Name: "h1", Address: address, User: "lab", Keys: []string{keyFile}, KnownHosts: []string{known}, Agent: "none", Config: "none",
	}
}

// Dial logs in, and hangs up when the test ends.
func Dial(t testing.TB, target ssh.Target) hosts.Host {
	t.Helper()
	c, err := ssh.Dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Programs writes programs by name, each what a shell does, into a folder for the PATH of
// [sshd.Server.Env].
func Programs(t testing.TB, scripts map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
