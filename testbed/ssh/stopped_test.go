package ssh_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"github.com/inabench/inabench/testbed/ssh"
)

// A program that was stopped, or whose machine slept, heard nothing for a while, and nobody was
// silent. Whether the host is there it finds out when it goes on.
func TestKeepAliveWhileStopped(t *testing.T) {
	t.Parallel() // it waits
	const address, known, key = "INABENCH_TEST_ADDRESS", "INABENCH_TEST_KNOWN", "INABENCH_TEST_KEY"
	if os.Getenv(address) != "" {
		useWhenTold(t, ssh.Target{
			Name: "h1", Address: os.Getenv(address), User: "lab", KnownHosts: []string{os.Getenv(known)}, Keys: []string{os.Getenv(key)},
			Agent: "none", Config: "none", KeepAlive: 100 * time.Millisecond, KeepAliveMax: 20,
		})
		return
	}
	file := writeKey(t)
	pem, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := xssh.ParsePrivateKey(pem)
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t, func(h *host) { h.AuthorizedKeys = append(h.AuthorizedKeys, signer.PublicKey()) })
	far := slow(t, h.Address, 150*time.Millisecond) // most of the time a keepalive is under way
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v=false")
	cmd.Env = append(os.Environ(), address+"="+far, known+"="+knownHosts(t, far, h.HostKey.PublicKey()), key+"="+file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	for i := range 4 {
		if i > 0 {
			for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
				if s == syscall.SIGSTOP {
					time.Sleep(2500 * time.Millisecond) // longer than a silence is borne
				}
			}
		}
		fmt.Fprintln(in, "use it")
		if !lines.Scan() || lines.Text() != "used" {
			t.Fatalf("after %d stops: %s", i, lines.Text())
		}
	}
}

// useWhenTold runs a command on the host for every line on stdin.
func useWhenTold(t *testing.T, target ssh.Target) {
	c, err := ssh.Dial(t.Context(), target)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		said := "used"
		if _, err := c.Run(t.Context(), []string{"true"}, nil); err != nil {
			said = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(said)
	}
}

// slow is an address behind which another is, so much later in both directions.
func slow(t *testing.T, address string, delay time.Duration) string {
	return listen(t, func(near net.Conn) {
		far, err := net.Dial("tcp", address)
		if err != nil {
			near.Close()
			return
		}
		go relay(near, far, delay)
		relay(far, near, delay)
	})
}

// relay copies what it reads, later, until there is no more.
func relay(dst, src net.Conn, delay time.Duration) {
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer dst.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := dst.Write(p.data); err != nil {
				break
			}
		}
		for range pieces { // until the reader is done, too
		}
	}()
	defer close(pieces)
	for {
		b := make([]byte, 32<<10)
		n, err := src.Read(b)
		if n > 0 {
			pieces <- piece{b[:n], time.Now().Add(delay)}
		}
		if err != nil {
			if err != io.EOF {
				src.Close()
			}
			return
		}
	}
}
