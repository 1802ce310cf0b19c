package sshd

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/term"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
)

// A user at a terminal here gets one there, of the same size, and has his own back
// as it was.
func TestInteractiveTerminal(t *testing.T) {
	tty, err := newTerminal()
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	defer tty.master.Close()
	defer tty.slave.Close()
	if err := tty.resize(40, 120); err != nil {
		t.Fatal(err)
	}
	before, err := term.GetState(int(tty.slave.Fd()))
	if err != nil {
		t.Fatal(err)
	}

	s := &Server{}
	address, _ := serve(t, s)
	known := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(known, []byte(knownhosts.Line([]string{address}, s.HostKey.PublicKey())+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := ssh.Dial(t.Context(), ssh.Target{
		Name: "h1", Address: address, Signers: []xssh.Signer{userKey}, Agent: "none", KnownHosts: []string{known},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	out, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- c.Interactive(t.Context(), nil, tty.slave, w, w)
		w.Close()
	}()
	if _, err := tty.master.WriteString("PS1=; stty size; exit 5\n"); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for sc := bufio.NewScanner(out); sc.Scan(); {
		lines = append(lines, strings.TrimSpace(sc.Text()))
	}
	var failed *hosts.RunError
	if err := <-done; !errors.As(err, &failed) || failed.Exit != 5 {
		t.Error(err)
	}
	if all := strings.Join(lines, "\n"); !strings.Contains(all, "40 120") {
		t.Errorf("%q", all)
	}
	if after, err := term.GetState(int(tty.slave.Fd())); err != nil || *after != *before {
		t.Errorf("the terminal was left in another state: %v", err)
	}
}
