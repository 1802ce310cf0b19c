package netns

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// BenchmarkBringUp is a rack from nothing until every host has run a command over
// SSH and every switch has made us its P4Runtime primary, and down again.
func BenchmarkBringUp(b *testing.B) {
	testbedtest.Require(b, "netns", noNamespaces)
	for _, size := range []struct {
		spines, tors, perTor int
		sshd                 string
	}{{0, 1, 4, ""}, {2, 8, 8, ""}, {2, 8, 8, OpenSSH}} {
		hosts := size.tors * size.perTor
		name := fmt.Sprintf("hosts=%d,switches=%d", hosts, size.tors+size.spines)
		if size.sshd != "" {
			name += ",sshd=" + size.sshd
		}
		b.Run(name, func(b *testing.B) {
			if size.sshd == OpenSSH {
				needOpenSSH(b)
			}
			inv := rack(size.spines, size.tors, size.perTor)
			var up, answer, down time.Duration
			before := processorTime()
			for b.Loop() {
				start := time.Now()
				f, err := Up(b.Context(), inv, Options{SSHD: size.sshd})
				if err != nil {
					b.Fatal(err)
				}
				up += time.Since(start)
				err = everybodyAnswers(b.Context(), f)
				answer += time.Since(start)
				start = time.Now()
				if err := f.Close(context.Background()); err != nil {
					b.Fatal(err)
				}
				down += time.Since(start)
				if err != nil {
					b.Fatal(err)
				}
			}
			n := float64(b.N)
			b.ReportMetric(up.Seconds()/n, "s/up")
			b.ReportMetric(answer.Seconds()/n, "s/answering")
			b.ReportMetric(down.Seconds()/n, "s/down")
			b.ReportMetric((processorTime()-before).Seconds()/n, "cpu-s/op")
		})
	}
}

// processorTime is that of this process and of all that it has waited for.
func processorTime() time.Duration {
	var sum int64
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		if unix.Getrusage(who, &r) == nil {
			sum += r.Utime.Nano() + r.Stime.Nano()
		}
	}
	return time.Duration(sum)
}

func everybodyAnswers(ctx context.Context, f *Fabric) error {
	var g errgroup.Group
	for _, h := range f.Inventory().Hosts {
		g.Go(func() error {
			c, err := ssh.Dial(ctx, target(h))
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Run(ctx, []string{"true"}, nil)
			return err
		})
	}
	for _, s := range f.Inventory().Switches {
		g.Go(func() error {
			c, err := p4rt.Dial(ctx, s.Name, s.Control, s.DeviceID, p4rt.Options{})
			if err != nil {
				return err
			}
			return c.Close(ctx)
		})
	}
	return g.Wait()
}
