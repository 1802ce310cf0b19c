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
	case err == nil && c.Loaded().Cookie == program.cookie():
		d.Pipeline = "that of the inventory"
	case err == nil:
		d.Pipeline = fmt.Sprintf("another, with p4info sha256 %.12s", c.Loaded().P4Info)
	case errors.Is(err, dataplane.ErrNoPipeline) || errors.Is(err, p4.ErrUnknown) || errors.Is(err, p4.ErrInvalid) || errors.Is(err, bfrt.ErrInfo):
		if d.Pipeline, err = whose(ctx, c, sw, err); err != nil {
			return err
		}
	default:
		return err
	}
	d.Links, err = links(ctx, c, sw, cables)
	return err
}

// whose is the program of a switch in words, where that cannot be used as it is; unused says why.
func whose(ctx context.Context, c dataplane.Switch, sw inventory.Switch, unused error) (string, error) {
	found, err := c.Foreign(ctx)
	switch {
	case errors.Is(err, dataplane.ErrUntold):
		return "one that its server does not tell", nil
	case err != nil:
		return "", err
	case found != nil && sw.ReplaceProgram:
		return "one that is not inabench's, which a run replaces: " + found.Name, nil
	case found != nil:
		return "one that is not inabench's, which no run replaces without replace_program: " + found.Name, nil
	case errors.Is(unused, dataplane.ErrNoPipeline):
		return "none yet", nil
	}
	return "one of inabench's, of another version", nil
}

// cookie is that of the program when it is pushed.
func (p Program) cookie() uint64 {
	l, err := p.Pipeline.Loaded()
	if err != nil {
		return 0
	}
	return l.Cookie
}
