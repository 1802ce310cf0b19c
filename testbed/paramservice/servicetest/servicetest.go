// Package servicetest is what tests of a Parameter Service share: processes that are its parts.
package servicetest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
)

// Process is a part of a service: this test binary, run again.
type Process struct {
	Cmd   *exec.Cmd // the test waits for it
	Stdin io.WriteCloser
	Out   *bufio.Scanner // lines of its standard output
}

// Start starts one, which plays that part: the test's TestMain calls netnstest.Play.
func Start(t testing.TB, part string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.Command(os.Args[0], part)}
	p.Cmd.Stderr = os.Stderr
	in, err := p.Cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin, p.Out = in, bufio.NewScanner(out)
	p.Out.Buffer(nil, 1<<20)
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}
