package vector

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/inabench/inabench/testbed/ina"
)

// Frame is an Ethernet frame at a port.
type Frame struct {
	Port uint32
	Data []byte
}

// Switch is what vectors are run against. It begins without entries and counts.
type Switch interface {
	SetJob(e ina.JobEntry) error
	DeleteJob(job uint16) error
	SetGroup(id uint16, ports []uint32) error
	// Send gives the switch a frame at a port and returns all that leaves because of it.
	Send(port uint32, frame []byte) ([]Frame, error)
	// Counter reads a counter of a job, by its name without "job_". The error wraps
	// errors.ErrUnsupported where the switch has no such counter.
	Counter(name string, job uint16) (packets, bytes int64, err error)
}

// Run runs a vector and returns what the switch did wrong, each with the place in the file.
func Run(v Vector, s Switch) error {
	model := NewModel(v.Program) // for the counters' bytes
	var errs []error
	for _, st := range v.Steps {
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: "+format, append([]any{st.At}, args...)...))
		}
		switch {
		case st.Job != nil:
			if err := errors.Join(s.SetJob(*st.Job), model.SetJob(*st.Job)); err != nil {
				fail("%w", err)
			}
		case st.Delete != 0:
			if err := errors.Join(s.DeleteJob(st.Delete), model.DeleteJob(st.Delete)); err != nil {
				fail("%w", err)
			}
		case st.Group != nil:
			if err := errors.Join(s.SetGroup(st.Group.ID, st.Group.Ports), model.SetGroup(st.Group.ID, st.Group.Ports)); err != nil {
				fail("%w", err)
			}
		case st.In != nil:
			frame := st.In.Frame()
			got, err := s.Send(st.In.Port, bytes.Clone(frame))
			_, merr := model.Send(st.In.Port, frame)
			if err := errors.Join(err, merr); err != nil {
				fail("%w", err)
				return errors.Join(errs...)
			}
			var want []Frame
			for _, p := range st.Out {
				want = append(want, Frame{p.Port, p.Derived(*st.In)})
			}
			for _, line := range compare(got, want) {
				fail("%s", line)
			}
		case st.Count != nil:
			for _, name := range Names {
				packets, octets, err := s.Counter(name, st.Count.Job)
				switch {
				case errors.Is(err, errors.ErrUnsupported):
					continue
				case err != nil:
					fail("counter %s: %w", name, err)
					continue
				}
				if want := st.Count.Packets[name]; packets != want {
					fail("job %d: %s counts %d packets, want %d", st.Count.Job, name, packets, want)
				}
				if _, want, _ := model.Counter(name, st.Count.Job); octets != want {
					fail("job %d: %s counts %d bytes, want %d", st.Count.Job, name, octets, want)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// compare says where got differs from want; the order matters at each port.
func compare(got, want []Frame) (lines []string) {
	var ports []uint32
	at := func(fs []Frame) map[uint32][][]byte {
		m := map[uint32][][]byte{}
		for _, f := range fs {
			m[f.Port] = append(m[f.Port], f.Data)
			ports = append(ports, f.Port)
		}
		return m
	}
	g, w := at(got), at(want)
	slices.Sort(ports)
	for _, p := range slices.Compact(ports) {
		for i := range max(len(g[p]), len(w[p])) {
			switch {
			case i >= len(g[p]):
				lines = append(lines, fmt.Sprintf("nothing leaves port %d, want %s", p, Describe(w[p][i])))
			case i >= len(w[p]):
				lines = append(lines, fmt.Sprintf("port %d: too much: %s", p, Describe(g[p][i])))
			case !bytes.Equal(g[p][i], w[p][i]):
				lines = append(lines, fmt.Sprintf("port %d:\n\tgot  %s\n\twant %s", p, Describe(g[p][i]), Describe(w[p][i])))
			}
		}
	}
	return lines
}

// Model is the state machine of package ina behind the interface of a switch.
type Model struct {
	s      *ina.Switch
	groups map[uint16][]uint32
	now    time.Duration
}

// NewModel returns a switch with 1,024 aggregators that runs a program, which must be one that Load takes.
func NewModel(p ina.Program) *Model {
	s := ina.NewSwitch(1024)
	if err := s.Load(p); err != nil {
		panic(err)
	}
	return &Model{s: s, groups: map[uint16][]uint32{}}
}

// SetJob implements Switch.
func (m *Model) SetJob(e ina.JobEntry) error { return m.s.SetJob(e) }

// DeleteJob implements Switch.
func (m *Model) DeleteJob(job uint16) error {
	m.s.DeleteJob(job)
	return nil
}

// SetGroup implements Switch.
func (m *Model) SetGroup(id uint16, ports []uint32) error {
	m.groups[id] = ports
	return nil
}

// Send implements Switch, with headers as a switch makes them.
func (m *Model) Send(port uint32, frame []byte) (out []Frame, err error) {
	m.now += time.Microsecond
	var cause Packet
	if cause, err = parseFrame(frame); err != nil {
		return nil, err
	}
	v := m.s.Process(port, frame[headers:], m.now)
	for _, o := range v.Out[:v.N] {
		p := Packet{}
		if p.Header, err = ina.ParseHeader(o.Data); err != nil {
			return nil, err
		}
		p.Values = values(o.Data)
		ports := []uint32{o.Port}
		if o.Dir == ina.Down {
			ports = m.groups[o.Group]
		}
		for _, to := range ports {
			out = append(out, Frame{to, p.Derived(cause)})
		}
	}
	return out, nil
}

func parseFrame(f []byte) (p Packet, err error) {
	if p.Header, err = ina.ParseHeader(f[headers:]); err == nil {
		p.Values = values(f[headers:])
	}
	return p, err
}

func values(b []byte) []int32 {
	vs := make([]int32, b[13])
	for i := range vs {
		vs[i] = int32(binary.BigEndian.Uint32(b[ina.HeaderLen+4*i:]))
	}
	return vs
}

// Counter implements Switch.
func (m *Model) Counter(name string, job uint16) (packets, bytes int64, err error) {
	c := m.s.Counters(job)
	if c == nil {
		return 0, 0, nil
	}
	n := map[string]ina.Count{
		"in": c.In, "aggregated": c.Aggregated, "fallback": c.Fallback, "granted": c.Granted, "denied": c.Denied,
		"out": c.Out, "results": c.Results, "resends": c.Resends, "duplicates": c.Duplicates, "dropped": c.Dropped, "marked": c.Marked,
	}[name]
	return n.Packets, n.Bytes, nil
}

var _ Switch = (*Model)(nil)
