package study

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// LinkLoads are the loads of links, of what was read.
type LinkLoads struct {
	*Measurer
	metrics map[string]string // by link
}

func newLinkLoads(tb testbed.Testbed) *LinkLoads {
	inv, caps := tb.Inventory(), tb.Capabilities()
	l := &LinkLoads{Measurer: NewMeasurer(&results.Readings{}, results.Window{}, caps.Kind), metrics: map[string]string{}}
	for _, link := range inv.Topology().Links {
		l.metrics[link.Name] = LinkMetric(caps, inv, link)
	}
	return l
}

// keep keeps what figures are drawn from.
func (l *LinkLoads) keep(read []results.Sample) {
	for _, s := range read {
		if l.metrics[s.Of] == s.Metric {
			l.Readings.Add(s)
		}
	}
}

// mostBusy is how many links are shown while a study runs.
const mostBusy = 4

// busiest are the links that carry most now, the most first: those that carry anything.
func (l *LinkLoads) busiest() (out []Moving) {
	for link, metric := range l.metrics {
		if v, ok := l.Readings.Speed(metric, link, 1); ok && v > 0 {
			out = append(out, Moving{Job: link, Goodput: 8 * v})
		}
	}
	slices.SortFunc(out, func(a, b Moving) int { return cmp.Or(cmp.Compare(b.Goodput, a.Goodput), cmp.Compare(a.Job, b.Job)) })
	return out[:min(len(out), mostBusy)]
}

// Figures are the rates of all links between two times, in seconds on the run's clock.
func (l *LinkLoads) Figures(start, end float64) (out []results.Figure) {
	l.Window = results.Window{Start: start, End: end}
	for _, link := range slices.Sorted(maps.Keys(l.metrics)) {
		out = l.Rate(out, "link_rate", link, l.Series(l.metrics[link], link), 8, "bit/s")
	}
	for i := range out {
		out[i] = results.Exact(out[i]) // all that they carried, and not a sample of it
	}
	return out
}

// AllSent are the bytes of frames that all hosts sent, from the first reading to the last.
func (l *LinkLoads) AllSent(inv *inventory.Inventory) (bytes float64) {
	for _, link := range inv.Topology().Links {
		if _, ok := inv.Host(link.From); !ok {
			continue
		}
		s := l.Series(l.metrics[link.Name], link.Name)
		if n := len(s.V); n > 1 {
			bytes += s.V[n-1] - s.V[0]
		}
	}
	return bytes
}

// Sent is what a host sent over all its links, bytes, from the first to the last sample.
func (l *LinkLoads) Sent(host string) (bytes float64, ok bool) {
	for link, metric := range l.metrics {
		if !strings.HasPrefix(link, host+"->") {
			continue
		}
		s := l.Series(metric, link)
		n := len(s.V)
		if n < 2 || s.V[n-1] < s.V[0] {
			return 0, false
		}
		bytes, ok = bytes+s.V[n-1]-s.V[0], true
	}
	return bytes, ok
}
