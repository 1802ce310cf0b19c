package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sabotage"
)

// saboteur gives agents that are started the fault that was ordered, and knows how often it has
// acted. Its zero value does nothing.
type saboteur struct {
	mu    sync.Mutex
	order *sabotage.Order
	acted map[int]int64 // by agent, in the order in which they were started
}

// saboteurFabric is a fabric whose switches and links can be given faults.
type saboteurFabric interface {
	// Sabotage gives a switch, or a directed link, a fault in the place of any earlier of its
	// switch; an act without a name: none. It says how often the earlier one acted.
	Sabotage(ctx context.Context, part string, act sabotage.Act) (acted int64, err error)
}

var _ testbed.Saboteur = (*Testbed)(nil)

// Sabotage implements testbed.Saboteur, on an emulation.
func (tb *Testbed) Sabotage(ctx context.Context, o *sabotage.Order) (acted int64, err error) {
	f, ok := tb.opt.Fabric.(saboteurFabric)
	if !ok && o == nil {
		return 0, nil
	}
	if !ok || tb.opt.Shared {
		return 0, fmt.Errorf("sabotage %s: of what is shared, or no emulation: %w", o.Name, errors.ErrUnsupported)
	}
	tb.sab.mu.Lock()
	defer tb.sab.mu.Unlock()
	for _, n := range tb.sab.acted {
		acted += n
	}
	if was := tb.sab.order; was != nil && fabricFault(was) {
		n, err := f.Sabotage(ctx, was.Part, sabotage.Act{})
		acted += n
		if err != nil {
			return acted, err
		}
	}
	tb.sab.order, tb.sab.acted = o, map[int]int64{}
	if o != nil && fabricFault(o) {
		_, err = f.Sabotage(ctx, o.Part, o.Act())
	}
	return acted, err
}

// fabricFault reports whether a fault is of a switch or a cable.
func fabricFault(o *sabotage.Order) bool {
	return o.At == sabotage.Switch || o.At == sabotage.Link || o.At == sabotage.Queue
}

// infect puts the fault into the config of an agent that is to have it; watch then reads the
// agent's reports. A fault that is of processes of a job is of such as have others to talk to.
func (s *saboteur) infect(config any) (_ any, watch func(io.Reader) io.Reader) {
	c, ok := config.(sabotage.Victim)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok || s.order == nil || fabricFault(s.order) {
		return config, nil
	}
	name, kind, ok := c.Part()
	if !ok || (kind == sabotage.PS) != (s.order.At == sabotage.PS) || !results.Glob(s.order.Part, name) {
		return config, nil
	}
	config = c.With(s.order.Act())
	of, i := s.acted, len(s.acted)
	of[i] = 0
	return config, func(r io.Reader) io.Reader {
		return &watched{r: r, note: func(n int64) {
			s.mu.Lock()
			defer s.mu.Unlock()
			of[i] = max(of[i], n)
		}}
	}
}

// watched is an agent's stdout, of which is noted what it says of its fault.
type watched struct {
	r    io.Reader
	line []byte
	note func(acted int64)
}

var sabotagedKey = []byte(`"sabotaged":`)

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.r.Read(b)
	w.line = append(w.line, b[:n]...)
	for {
		line, rest, ok := bytes.Cut(w.line, []byte("\n"))
		if !ok {
			break
		}
		if _, value, ok := bytes.Cut(line, sabotagedKey); ok {
			digits := value[:len(value)-len(bytes.TrimLeft(value, "0123456789"))]
			if acted, err := strconv.ParseInt(string(digits), 10, 64); err == nil {
				w.note(acted)
			}
		}
		w.line = append(w.line[:0], rest...)
	}
	return n, err
}
