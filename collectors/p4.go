package collectors

import (
	"context"
	"strings"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/results"
)

// CounterValue is one cell of a switch's counter.
type CounterValue struct {
	Name    string // "port_rx", "job_in"
	Index   int    // port number or job id
	Packets int64
	Bytes   int64
}

// CounterReader reads the cells that matter. A client of p4rt that knows which these
// are is one; its CounterValue converts to the one here.
type CounterReader interface {
	ReadCounters(ctx context.Context) ([]CounterValue, error)
}

// P4 reads a switch's counters through P4Runtime. A counter gives two metrics, with
// _packets and _bytes after its name; bytes count frames as a NIC does.
//
// A counter port_x is about the link that leaves the port, unless its name says that
// it counts what arrives (port_rx…, port_no_route); a counter job_x is about a job at
// the switch, "A@tor1". Two are special: port_queue_peak gives the gauge
// port_queue_peak_bytes alone, and the bytes of job_hold are microseconds, given as
// job_hold_seconds.
type P4 struct {
	Switch string
	Reader CounterReader
	Ports  map[int]P4Port
	Jobs   map[int]string // job id -> name
}

// P4Port is a port of a switch by the names of its links.
type P4Port struct{ In, Out string }

// Name implements Collector.
func (p *P4) Name() string { return "p4 " + p.Switch }

// Collect implements Collector. Cells of ports and jobs that it was not told of are
// left out.
func (p *P4) Collect(ctx context.Context) ([]results.Sample, error) {
	cells, err := p.Reader.ReadCounters(ctx)
	err = blame.Switch(p.Switch, err)
	out := make([]results.Sample, 0, 2*len(cells))
	for _, c := range cells {
		of := p.subject(c)
		if of == "" {
			continue
		}
		s := results.Sample{Source: "switch " + p.Switch, Of: of}
		add := func(suffix, unit string, v float64) {
			s.Metric, s.Unit, s.Value = c.Name+suffix, unit, v
			out = append(out, s)
		}
		switch c.Name {
		case "port_queue_peak":
			s.Gauge = true
			add("_bytes", "B", float64(c.Bytes))
		case "job_hold":
			add("_packets", "1", float64(c.Packets))
			add("_seconds", "s", float64(c.Bytes)/1e6)
		default:
			add("_packets", "1", float64(c.Packets))
			add("_bytes", "B", float64(c.Bytes))
		}
	}
	return out, err
}

// subject is what a cell is about, or nothing.
func (p *P4) subject(c CounterValue) string {
	switch {
	case strings.HasPrefix(c.Name, "job_"):
		if job, ok := p.Jobs[c.Index]; ok {
			return job + "@" + p.Switch
		}
		return ""
	case strings.HasPrefix(c.Name, "port_rx"), c.Name == "port_no_route":
		return p.Ports[c.Index].In
	case strings.HasPrefix(c.Name, "port_"):
		return p.Ports[c.Index].Out
	}
	return ""
}
