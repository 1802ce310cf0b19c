// Package netnstest is for tests that bring up emulations. Their test binary plays every
// part: it runs itself again inside namespaces, and is hosts, switches and agents there.
//
//	var noNamespaces error
//
//	func TestMain(m *testing.M) {
//		noNamespaces = netnstest.Main(netnstest.Parts{"agent": agent.Main})
//		os.Exit(m.Run())
//	}
package netnstest

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/supervise"
)

// Parts are what a test binary is besides a host, a switch or a supervisor, by its first
// argument.
type Parts map[string]func(ctx context.Context, stdin io.Reader, stdout io.Writer) error

// Main plays a part, or goes on inside namespaces: Play and Enter.
func Main(parts Parts) (noNamespaces error) {
	Play(parts)
	return Enter()
}

// Play ends the program when it has been started as one of the parts, and has played it.
func Play(parts Parts) {
	if err := hurry(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if len(os.Args) < 2 {
		return
	}
	play := parts[os.Args[1]]
	switch os.Args[1] {
	case netns.HostVerb:
		play = netns.HostMain
	case supervise.Verb:
		os.Exit(supervise.Play(context.Background(), os.Stdin, os.Stdout, os.Stderr, 1))
	}
	if play == nil {
		return
	}
	if err := play(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Enter runs the program again inside namespaces and ends it with that one's exit code. It returns there, or with why there
// are no namespaces. A fuzz worker is a child of one that has entered, whose files would not come along.
func Enter() error {
	if slices.Contains(os.Args, "-test.fuzzworker") {
		return nil
	}
	inside, code, err := netns.Reexec(context.Background())
	if err == nil && !inside {
		os.Exit(code)
	}
	return err
}
