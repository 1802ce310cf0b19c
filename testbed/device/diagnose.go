package device

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
)

// Diagnosis is what the servers of a switch answer to somebody who only looks.
type Diagnosis struct {
	Switch    string  `json:"switch"`
	Version   string  `json:"p4runtime,omitempty"` // of P4Runtime
	Pipeline  string  `json:"pipeline,omitempty"`  // which one it runs, in words
	Ports     int     `json:"ports,omitempty"`     // that are cabled and whose numbers gNMI tells
	PlainText bool    `json:"plain_text,omitempty"`
	Links     []Link  `json:"links,omitempty"` // cabled ports, where the switch tells of them
	Seconds   float64 `json:"seconds"`
	Error     string  `json:"error,omitempty"`
	Hint      string  `json:"hint,omitempty"`
}

// Diagnose asks a switch of an inventory which P4Runtime it speaks, what it runs, what its ports are called and how they are
// set up, and changes nothing.
func Diagnose(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch, timeout time.Duration) Diagnosis {
	began := time.Now()
	d := Diagnosis{Switch: sw.Name, PlainText: sw.TLS == (inventory.TLS{})}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := d.ask(ctx, inv, sw, timeout); err != nil {
		d.Error = err.Error()
		if h := (interface{ Hint() string })(nil); errors.As(err, &h) {
			d.Hint = h.Hint()
		}
	}
	d.Seconds = time.Since(began).Seconds()
	return d
}

func (d *Diagnosis) ask(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch, timeout time.Duration) error {
	cables := Cables(inv.Topology(), sw.Name)
	c, err := Observe(ctx, sw, cables, dataplane.Options{CallTimeout: timeout})
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	if sw.GNMI != "" {
		d.Ports = len(cables)
	}
	d.Version, err = c.Version(ctx)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) { // servers before 1.1.0 do not say
		return err
	}
	program, err := LoadProgram(sw)
	if err != nil {
		return err
	}
	switch err := c.Attach(ctx); {
	case errors.Is(err, dataplane.ErrNoPipeline):
		d.Pipeline = "none yet"
	case err == nil && c.Loaded().Cookie == program.cookie():
		d.Pipeline = "that of the inventory"
	case err == nil:
		d.Pipeline = fmt.Sprintf("another, with p4info sha256 %.12s", c.Loaded().P4Info)
	case errors.Is(err, p4.ErrUnknown) || errors.Is(err, p4.ErrInvalid) || errors.Is(err, bfrt.ErrInfo):
		d.Pipeline = "one that is not inabench's"
		if found, err := c.Foreign(ctx); err == nil && found != nil {
			d.Pipeline += ": " + found.Name
		}
	default:
		return err
	}
	d.Links, err = links(ctx, c, sw, cables)
	return err
}

// cookie is that of the program when it is pushed.
func (p Program) cookie() uint64 {
	l, err := p.Pipeline.Loaded()
	if err != nil {
		return 0
	}
	return l.Cookie
}
