package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// newFarm is n hosts with OpenSSH's server.
func newFarm(t testing.TB, n int) []ssh.Target {
	t.Helper()
	begin := time.Now()
	f := testbedtest.NewFarm(t, n)
	t.Logf("%d servers are up after %v", n, time.Since(begin).Round(time.Millisecond))
	targets := make([]ssh.Target, n)
	for i, address := range f.Addresses {
		targets[i] = ssh.Target{
			Name: fmt.Sprintf("h%d", i+1), Address: address, User: f.User, Agent: "none", Config: "none",
			Keys: []string{f.Key}, KnownHosts: []string{f.KnownHosts}, Timeout: 30 * time.Second,
		}
	}
	return targets
}

// look logs in to every host, reads two files, and hangs up: what doctor does.
func look(ctx context.Context, limit int, targets []ssh.Target) error {
	d := new(ssh.Dialer)
	return hosts.FanOut(ctx, limit, targets, func(ctx context.Context, _ int, x ssh.Target) error {
		c, err := d.Dial(ctx, x)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, f := range c.ReadFilesOf(ctx, bounded.Config, "/proc/sys/kernel/random/boot_id", "/proc/uptime") {
			if f.Err != nil || len(f.Data) == 0 {
				return fmt.Errorf("%q: %w", f.Data, f.Err)
			}
		}
		return nil
	})
}

// A whole cluster is looked at with bounded fan-out; what is dead is named, and holds
// nobody else up.
func TestFarm(t *testing.T) {
	proof.Only(t, "many hosts, or a busy machine")
	n := 64 // of 256, doctor asks in cmd/cli
	if !proof.Wanted() {
		n = 16
	}
	targets := newFarm(t, n)
	begin := time.Now()
	if err := look(t.Context(), 8, targets); err != nil {
		t.Fatal(err)
	}
	alive := time.Since(begin)

	hole := testbedtest.BlackHole(t)
	const dead = 40 // 20 s, were they to take turns
	for i := range dead {
		x := targets[i%n]
		x.Name, x.Address, x.Timeout = fmt.Sprintf("dead%d", i), hole, 4*time.Second
		targets = append(targets, x)
	}
	begin = time.Now()
	clients, err := dialAll(t.Context(), 8, targets)
	took := time.Since(begin)
	t.Logf("%d hosts in %v; with %d that are dead, after 4 s each, in %v", n, alive.Round(time.Millisecond), dead, took.Round(time.Millisecond))
	if clients != nil || !errors.Is(err, hosts.ErrUnreachable) || strings.Count(err.Error(), "\n") != dead-1 || took > 16*time.Second+3*alive {
		t.Fatalf("after %v: %v", took, err)
	}
	for i := range dead {
		if !strings.Contains(err.Error(), fmt.Sprintf("host dead%d (%s): unreachable: ", i, hole)) {
			t.Error(err)
		}
	}
}

// BenchmarkFarm is a look at 256 hosts, 32 of them at once: directly, through one that
// all share the login to, and with a login to it each.
func BenchmarkFarm(b *testing.B) {
	targets := newFarm(b, 257)
	gate, behind := targets[0], slices.Clone(targets[1:])
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			if err := look(b.Context(), 32, targets[1:]); err != nil {
				b.Fatal(err)
			}
		}
	})
	for i := range behind {
		behind[i].Jump = &gate
	}
	b.Run("shared-jump", func(b *testing.B) {
		for b.Loop() {
			if err := look(b.Context(), 32, behind); err != nil {
				b.Fatal(err)
			}
		}
	})
	own := slices.Clone(behind)
	for i := range own {
		jump := gate
		jump.Certificates = []string{filepath.Join("/nonexistent", fmt.Sprint(i))} // tells them apart
		own[i].Jump = &jump
	}
	b.Run("own-jump", func(b *testing.B) {
		for b.Loop() {
			if err := look(b.Context(), 32, own); err != nil {
				b.Fatal(err)
			}
		}
	})
}
