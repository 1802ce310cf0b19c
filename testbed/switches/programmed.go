package switches

import (
	"context"
	"strings"
	"sync"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/gnmi"
)

// programmed are switches that run a P4 program, behind P4Runtime or BFRuntime.
var programmed = kind{open: openProgrammed, observe: observeProgrammed, diagnose: device.Diagnose}

// pipeline is a switch that runs a P4 program.
type pipeline struct {
	sw    inventory.Switch
	topo  *inventory.Topology
	plane dataplane.Switch
	facts *results.SwitchFacts
	guest *guest // nil: there is no program of somebody else to put back

	mu   sync.Mutex
	gnmi *gnmi.Client // nil: nobody has asked for it, or it has no such server
}

// server is its gNMI server, or nil; it is closed with the switch.
func (p *pipeline) server() (_ *gnmi.Client, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gnmi == nil {
		p.gnmi, err = device.GNMI(p.sw)
	}
	return p.gnmi, err
}

// openProgrammed becomes the primary controller of a switch and makes it run its program, in place of another's only where the
// inventory says so.
func openProgrammed(ctx context.Context, site *Site, sw inventory.Switch) (Switch, error) {
	program, err := device.LoadProgram(sw)
	if err != nil {
		return nil, err
	}
	cables := device.Cables(site.Topology, sw.Name)
	c, err := device.Dial(ctx, sw, cables, dataplane.Options{Polite: site.Polite(sw.Name), Mine: site.Mine(sw.Name)})
	if err != nil {
		return nil, err
	}
	p := &pipeline{sw: sw, topo: site.Topology, plane: c}
	var replaced string
	if p.guest, replaced, err = displace(ctx, site, sw, c); err != nil {
		return p, err
	}
	if p.guest != nil {
		p.plane = p.guest
	}
	if err := device.Push(ctx, c, sw, cables, program); err != nil {
		return p, err
	}
	facts := device.Facts(sw, program, c.Loaded())
	facts.Replaced = replaced
	p.facts = &facts
	return p, nil
}

func observeProgrammed(ctx context.Context, site *Site, sw inventory.Switch) (Switch, error) {
	c, err := device.Observe(ctx, sw, device.Cables(site.Topology, sw.Name), dataplane.Options{})
	if err != nil {
		return nil, err
	}
	return &pipeline{sw: sw, topo: site.Topology, plane: c}, nil
}

// Plane implements Switch.
func (p *pipeline) Plane() dataplane.Switch { return p.plane }

// Facts implements Switch.
func (p *pipeline) Facts() *results.SwitchFacts { return p.facts }

// Status implements Switch: its session says when it is lost.
func (p *pipeline) Status(context.Context) error { return nil }

// Close implements Switch. Its plane is closed apart, which is waited for where another's program is put back after.
func (p *pipeline) Close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gnmi != nil {
		p.gnmi.Close()
	}
	if p.guest != nil {
		return p.guest.putBack(ctx)
	}
	return nil
}

// Collectors implements Switch: what its gNMI server counts, then what its program does.
func (p *pipeline) Collectors(ids []int, jobs map[int]string) (out []collectors.Collector, err error) {
	server, err := p.server()
	if err != nil {
		return nil, err
	}
	c := &collectors.P4{Switch: p.sw.Name, Ports: map[int]collectors.P4Port{}, Jobs: jobs}
	g := &collectors.GNMI{Switch: p.sw.Name, Reader: server, Ports: map[string]collectors.P4Port{}}
	r := &cells{plane: p.plane, jobs: ids}
	for _, li := range p.topo.Out(p.sw.Name) {
		l := p.topo.Links[li]
		port := collectors.P4Port{Out: l.Name, In: p.topo.Links[l.Reverse].Name}
		c.Ports[int(l.FromPort)], g.Ports[gnmi.PortName(l.FromPort, p.sw.Ports)] = port, port
		r.ports = append(r.ports, int(l.FromPort))
	}
	c.Reader = r
	if server != nil {
		out = append(out, g)
	}
	return append(out, c), nil
}

// JobCounters reads what a plane counts of one job.
func JobCounters(sw string, plane dataplane.Switch, id int, job string) collectors.Collector {
	return &collectors.P4{Switch: sw, Reader: &cells{plane: plane, jobs: []int{id}}, Jobs: map[int]string{id: job}}
}

// cells are those of a switch's counters that somebody wants.
type cells struct {
	plane       dataplane.Switch
	ports, jobs []int
}

// ReadCounters implements collectors.CounterReader.
func (r *cells) ReadCounters(ctx context.Context) ([]collectors.CounterValue, error) {
	var port, job []string
	for _, name := range r.plane.Counters() {
		switch {
		case strings.HasPrefix(name, "port_"):
			port = append(port, name)
		case strings.HasPrefix(name, "job_"):
			job = append(job, name)
		}
	}
	var out []collectors.CounterValue
	for _, q := range []struct {
		names   []string
		indices []int
	}{{port, r.ports}, {job, r.jobs}} {
		if len(q.names) == 0 || len(q.indices) == 0 {
			continue
		}
		got, err := r.plane.ReadCounters(ctx, q.names, q.indices)
		if err != nil {
			return out, err
		}
		for _, v := range got {
			out = append(out, collectors.CounterValue(v))
		}
	}
	return out, nil
}
