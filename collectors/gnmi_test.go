package collectors

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/results"
)

type interfaces map[string]map[string]uint64

func (i interfaces) Counters(_ context.Context, ports []string) (map[string]map[string]uint64, error) {
	var err error
	for _, p := range ports {
		if i[p] == nil {
			err = errors.Join(err, errors.New("switch tor1: no "+p))
		}
	}
	return i, err
}

// Counters are about links, kinds of packets are added up, what the switch does not count is
// not 0 but absent, and a port without answer does not lose the others.
func TestGNMI(t *testing.T) {
	g := &GNMI{Switch: "tor1", Reader: interfaces{"1/0": {
		"in-octets": 100, "in-unicast-pkts": 1, "in-multicast-pkts": 2, "in-discards": 0, "out-octets": 50, "out-unicast-pkts": 3, "in-unknown": 9,
	}}, Ports: map[string]P4Port{"1/0": {In: "h1->tor1", Out: "tor1->h1"}, "2/0": {In: "h2->tor1", Out: "tor1->h2"}}}
	got, err := g.Collect(t.Context())
	if err == nil || err.Error() != "switch tor1: no 2/0" {
		t.Errorf("error %v", err)
	}
	sample := func(metric, of, unit string, v float64) results.Sample {
		return results.Sample{Source: "switch tor1", Metric: metric, Of: of, Unit: unit, Value: v}
	}
	want := []results.Sample{
		sample("mac_rx_bytes", "h1->tor1", "B", 100), sample("mac_rx_packets", "h1->tor1", "1", 3), sample("mac_rx_discards", "h1->tor1", "1", 0),
		sample("mac_tx_bytes", "tor1->h1", "B", 50), sample("mac_tx_packets", "tor1->h1", "1", 3),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}
