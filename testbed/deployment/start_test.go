package deployment_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/deployment"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// A job whose gradients never reach its PS does not start, which takes a bounded time
// and says where to look. The testbed is as good as before.
func TestStartWithoutResults(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	const limit = 6 * time.Second
	tb, with := lossy(t, "tor1->h2", func(o *remote.Options, jobs *deployment.Options) { jobs.StartTimeout, o.Patience = limit, limit })
	stop := false // the worker, before it is started
	// start deploys and starts the job over a link to the PS that loses so much.
	start := func(loss float64) (took time.Duration, err error) {
		with(loss, func(d testbed.Deployment) {
			if stop {
				host, err := tb.(*deployment.Testbed).Client("h1")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := host.Run(t.Context(), []string{"sh", "-c", "kill -STOP $(grep -la 'worker [A]/' /proc/[1-9]*/cmdline | cut -d/ -f3)"}, nil); err != nil {
					t.Fatal(err)
				}
			}
			began := d.Now()
			err = d.Start(t.Context(), "A")
			took = d.Now() - began
		})
		return took, err
	}
	took, err := start(1)
	want := "start job A: worker A/0 on host h1: waiting until it is started: no result came back within 6.00 s: is every cable where the inventory says?"
	if err == nil || !strings.HasPrefix(err.Error(), want) || took < limit {
		t.Errorf("without results, after %v: %v, want %s", took, err, want)
	}
	// The worker has not started, and is asked what it has sent.
	if lost := "packets that worker A/0 sent, its PS on host h2 received none"; err != nil && !strings.Contains(err.Error(), lost) {
		t.Errorf("without results: %v, want %s", err, lost)
	}
	if took, err := start(0); err != nil {
		t.Errorf("with a sound link, after %v: %v", took, err)
	}
	// One that is stopped is named, not the cable.
	stop = true
	_, err = start(1)
	want = "start job A: worker A/0 on host h1: stalled: no report for 6.00 s; its process "
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), " is stopped") {
		t.Errorf("of a worker that is stopped: %v, want %s", err, want)
	}
}

// A PS that has said nothing yet, on a machine that is busy, is not asked what only workers answer: it would end.
func TestStartBesideQuietPS(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	const limit = 8 * time.Second
	tb, with := lossy(t, "tor1->h2", func(o *remote.Options, jobs *deployment.Options) { jobs.StartTimeout, o.Patience = limit, limit })
	host, err := tb.(*deployment.Testbed).Client("h2")
	if err != nil {
		t.Fatal(err)
	}
	signal := func(name string) {
		if _, err := host.Run(t.Context(), []string{"sh", "-c", "kill -" + name + " $(grep -la 'ps [A]' /proc/[1-9]*/cmdline | cut -d/ -f3)"}, nil); err != nil {
			t.Error(err)
		}
	}
	with(0, func(d testbed.Deployment) {
		signal("STOP")
		var late sync.WaitGroup
		late.Go(func() {
			time.Sleep(limit / 4) // it would have been asked at an eighth
			signal("CONT")
		})
		defer late.Wait()
		if err := d.Start(t.Context(), "A"); err != nil {
			t.Error(err)
		}
	})
}
