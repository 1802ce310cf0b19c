package collectors

import (
	"context"
	"maps"
	"slices"

	"github.com/inabench/inabench/results"
)

// InterfaceReader reads counters of a switch's ports by name, as OpenConfig calls them; a
// client of package gnmi is one.
type InterfaceReader interface {
	Counters(ctx context.Context, ports []string) (map[string]map[string]uint64, error)
}

// GNMI reads the counters that a switch keeps of its ports whatever program it runs: those
// of its MACs. They give metrics like mac_rx_bytes and mac_tx_discards of the link that
// arrives at the port or leaves it. A counter that a server does not keep gives none.
type GNMI struct {
	Switch string
	Reader InterfaceReader
	Ports  map[string]P4Port // links, by name of the port
}

// macCounters are metrics and what they are made of: several counters are added up.
var macCounters = []struct {
	metric, unit string
	in           bool
	of           []string
}{
	{"mac_rx_bytes", "B", true, []string{"in-octets"}},
	{"mac_rx_packets", "1", true, []string{"in-unicast-pkts", "in-multicast-pkts", "in-broadcast-pkts"}},
	{"mac_rx_discards", "1", true, []string{"in-discards"}},
	{"mac_rx_errors", "1", true, []string{"in-errors"}},
	{"mac_rx_fcs_errors", "1", true, []string{"in-fcs-errors"}},
	{"mac_tx_bytes", "B", false, []string{"out-octets"}},
	{"mac_tx_packets", "1", false, []string{"out-unicast-pkts", "out-multicast-pkts", "out-broadcast-pkts"}},
	{"mac_tx_discards", "1", false, []string{"out-discards"}},
	{"mac_tx_errors", "1", false, []string{"out-errors"}},
}

// Name implements Collector.
func (g *GNMI) Name() string { return "gnmi " + g.Switch }

// Collect implements Collector.
func (g *GNMI) Collect(ctx context.Context) ([]results.Sample, error) {
	names := slices.Sorted(maps.Keys(g.Ports))
	all, err := g.Reader.Counters(ctx, names)
	var out []results.Sample
	for _, name := range names {
		for _, m := range macCounters {
			s := results.Sample{Source: "switch " + g.Switch, Metric: m.metric, Unit: m.unit, Of: g.Ports[name].Out}
			if m.in {
				s.Of = g.Ports[name].In
			}
			counted := false
			for _, key := range m.of {
				v, ok := all[name][key]
				s.Value += float64(v)
				counted = counted || ok
			}
			if counted {
				out = append(out, s)
			}
		}
	}
	return out, err
}
