package deployment_test

import (
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/deployment"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// What a host's NIC says it sent is what the switch port says it received, and the other
// way round, frame by frame; where a cable loses some, both figures are reported. However
// hosts are read.
func TestConservation(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	for name, readers := range map[string]bool{"files": false, "readers": true} {
		t.Run(name, func(t *testing.T) { conservation(t, readers) })
	}
}

func conservation(t *testing.T, readers bool) {
	_, with := lossy(t, "h1->tor1", func(o *remote.Options, _ *deployment.Options) { o.Readers = readers })
	// troubles runs the job with a cable that loses so much, and says what counters say.
	troubles := func(loss float64) (links []results.Trouble) {
		with(loss, func(d testbed.Deployment) {
			for _, do := range []func() error{
				func() error { return nil },
				func() error { return d.Start(t.Context(), "A") },
				func() error { return d.Sleep(t.Context(), d.Now()+500*time.Millisecond) },
				func() error { return d.Stop(t.Context(), "A") },
				func() error { return d.Sleep(t.Context(), d.Now()+50*time.Millisecond) }, // what is on its way arrives
				func() error { return nil },
			} {
				if err := do(); err != nil {
					t.Fatal(err)
				}
				if _, err := d.Sample(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			all, err := d.Health(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range all {
				if strings.HasPrefix(x.Where, "link ") || strings.HasPrefix(x.What, "counter ") {
					t.Logf("loss %v: %s: %s", loss, x.Where, x.What)
					links = append(links, x)
				}
			}
		})
		return links
	}
	if got := troubles(0); len(got) != 0 {
		t.Errorf("on sound cables: %+v", got)
	}
	got := troubles(0.2)
	if len(got) != 1 || got[0].Where != "link h1->tor1" || got[0].Fatal || got[0].Value <= got[0].Limit ||
		!strings.Contains(got[0].What, "host h1 (nic_tx) sent ") || !strings.Contains(got[0].What, "switch tor1 (port_rx) received ") || !strings.Contains(got[0].What, "as the experiment damages this cable") {
		t.Errorf("with a damaged cable: %+v", got)
	}
}
