package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
)

// manyHosts are n hosts, each with a server of its own.
func manyHosts(t testing.TB, n int) []ssh.Target {
	out := make([]ssh.Target, n)
	for i := range out {
		out[i] = newHost(t, func(h *host) { h.Name = fmt.Sprintf("h%d", i) }).Target
	}
	return out
}

func TestFanOut64(t *testing.T) {
	t.Parallel() // it waits
	clients, err := dialAll(t.Context(), 16, manyHosts(t, 64))
	if err != nil {
		t.Fatal(err)
	}
	defer hosts.CloseAll(clients)
	answers := make([]string, len(clients))
	err = hosts.FanOut(t.Context(), 16, clients, func(ctx context.Context, i int, c hosts.Host) error {
		out, err := c.Run(ctx, []string{"echo", c.String()}, nil)
		answers[i] = string(out.Stdout)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if a != fmt.Sprintf("h%d\n", i) {
			t.Errorf("host %d answered %q", i, a)
		}
	}

	// Cancelled while all of them work: every one is named, once, and none goes on.
	ctx, cancel := context.WithCancel(t.Context())
	var started atomic.Int64
	err = hosts.FanOut(ctx, 0, clients, func(ctx context.Context, i int, c hosts.Host) error {
		if started.Add(1) == 64 {
			cancel()
		}
		_, err := c.Run(ctx, []string{"sleep", "1000"}, nil)
		return err
	})
	for i := range clients {
		if n := strings.Count(err.Error(), fmt.Sprintf("host h%d:", i)); n != 1 {
			t.Errorf("host %d is named %d times", i, n)
		}
	}
	for _, c := range clients {
		if _, err := c.Run(t.Context(), []string{"true"}, nil); err != nil {
			t.Error(err)
		}
	}
}

// One bad host is named, the others' connections are closed again.
func TestDialAllOneBad(t *testing.T) {
	all := manyHosts(t, 4)
	all[2].Address = closedPort(t)
	clients, err := dialAll(t.Context(), 0, all)
	if !errors.Is(err, hosts.ErrUnreachable) || strings.Count(err.Error(), "host h") != 1 || !strings.Contains(err.Error(), "host h2") || clients != nil {
		t.Errorf("%v, %v", clients, err)
	}
}

// BenchmarkFanOut64 is connecting to 64 hosts, a command on each, and hanging up.
func BenchmarkFanOut64(b *testing.B) {
	all := manyHosts(b, 64)
	for b.Loop() {
		clients, err := dialAll(b.Context(), 16, all)
		if err != nil {
			b.Fatal(err)
		}
		err = hosts.FanOut(b.Context(), 16, clients, func(ctx context.Context, _ int, c hosts.Host) error {
			_, err := c.Run(ctx, []string{"true"}, nil)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		hosts.CloseAll(clients)
	}
}
