package study

import (
	"math"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// Measurer draws figures from readings of one span.
type Measurer struct {
	Readings *results.Readings
	Window   results.Window
	Kind     results.Kind
	Log      *measured
}

// measured is what a measurer could not do.
type measured struct {
	Missing []results.Missing
	Err     error
}

// NewMeasurer draws figures of a kind from readings, as they are in a window.
func NewMeasurer(readings *results.Readings, w results.Window, kind results.Kind) *Measurer {
	return &Measurer{Readings: readings, Window: w, Kind: kind, Log: &measured{}}
}

// Every draws figures from readings that are so many seconds apart.
func (m *Measurer) Every(apart float64) *Measurer {
	n := *m
	n.Window.Apart = apart
	return &n
}

// Whole draws figures of what a counter counts in whole pieces.
func (m *Measurer) Whole(s results.Series) *Measurer {
	n := *m
	n.Window = n.Window.Whole(s)
	return &n
}

// Series is one counter's readings.
func (m *Measurer) Series(metric, of string) results.Series {
	s, err := m.Readings.Counter("", metric, of)
	if err != nil && m.Log.Err == nil {
		m.Log.Err = err
	}
	return s
}

// Add keeps a figure. One that the readings allow none of is left out, with the reason, and
// expectations on it will be inconclusive.
func (m *Measurer) Add(to []results.Figure, metric, of, unit string, f results.Figure, err error) []results.Figure {
	if err != nil {
		m.Log.Missing = append(m.Log.Missing, results.Missing{Metric: metric, Of: of, Why: err.Error()})
		return to
	}
	f.Metric, f.Of, f.Unit, f.Kind = metric, of, unit, m.Kind
	if m.Kind == results.Simulated {
		f = results.Exact(f)
	}
	return append(to, f)
}

// Rate adds a counter's rate, times a factor.
func (m *Measurer) Rate(to []results.Figure, metric, of string, s results.Series, factor float64, unit string) []results.Figure {
	f, err := results.Rate(m.Window, s)
	return m.Add(to, metric, of, unit, f.Affine(factor, 0), err)
}

// Ratio adds the ratio of two counters.
func (m *Measurer) Ratio(to []results.Figure, metric, of string, num, den results.Series, unit string) []results.Figure {
	f, err := results.Ratio(m.Window, num, den)
	return m.Add(to, metric, of, unit, f, err)
}

// Steps is how many iterations a job of n workers makes a second: over the time that
// those took which ended in the span, and not over the span, where the two differ by
// what the ends cut off. Iterations are few in a span, and whole.
func (m *Measurer) Steps(to []results.Figure, of string, count, seconds results.Series, n float64) []results.Figure {
	f, err := results.Rate(m.Window, count)
	f = f.Affine(1/n, 0)
	if r, rerr := results.Ratio(m.Window, count, seconds); err == nil && rerr == nil && f.Value > 0 && r.Value > 0 {
		length := m.Window.Length()
		if took := f.Value * length / r.Value; math.Abs(length-took) <= 2/r.Value {
			f = r
		}
	}
	return m.Add(to, "step_rate", of, "1/s", f, err)
}

// Jain adds Jain's index of the rates of several counters.
func (m *Measurer) Jain(to []results.Figure, of string, s []results.Series) []results.Figure {
	if len(s) < 2 {
		return to
	}
	f, err := results.Jain(m.Window, s...)
	return m.Add(to, "jain", of, "1", f, err)
}

// LinkMetric is the counter that tells what a link carried: the host's own where one
// of its ends is a host and counts frames, else that of the switch which sends on it.
func LinkMetric(c testbed.Capabilities, inv *inventory.Inventory, l inventory.DirectedLink) string {
	_, from := inv.Host(l.From)
	_, to := inv.Host(l.To)
	switch {
	case from && c.SuperFrames:
		return "port_rx_bytes"
	case from:
		return "nic_tx_bytes"
	case to && !c.SuperFrames:
		return "nic_rx_bytes"
	}
	return "port_tx_bytes"
}
