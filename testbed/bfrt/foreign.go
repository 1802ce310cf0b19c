package bfrt

import (
	"context"
	"fmt"
	"strings"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
)

// ofINA reports whether a program is one of INA, by what it calls its tables.
func (i *Info) ofINA() bool {
	for _, t := range []p4.Table{p4.JobTable, p4.RouteTable} {
		if _, err := i.Table(t.String()); err != nil {
			return false
		}
	}
	return true
}

// Foreign implements dataplane.Switch. Of several programs, in pipes of their own, none is told whole: one alone is loaded.
func (c *Client) Foreign(ctx context.Context) (*dataplane.Foreign, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	now, err := c.running(ctx)
	if err != nil {
		return nil, c.fail("read pipeline", err)
	}
	running := programs(now)
	var names []string
	for _, m := range running {
		if info, err := ParseInfo(m.GetBfruntimeInfo()); err != nil || !info.ofINA() {
			names = append(names, m.GetP4Name())
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	out := &dataplane.Foreign{Name: strings.Join(names, ", ")}
	if cfg, err := configOf(running[0]); err == nil && len(running) == 1 {
		out.Config = cfg.Marshal()
	}
	return out, nil
}

// Restore implements dataplane.Switch. It takes the ports down, as Push does, and sets up none.
func (c *Client) Restore(ctx context.Context, config []byte) error {
	const op = "put a program back"
	if c.observer {
		return c.fail(op, fmt.Errorf("%w: this client only reads", dataplane.ErrNotPrimary))
	}
	if _, err := ParseConfig(config); err != nil {
		return c.fail(op, err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return c.fail(op, dataplane.ErrClosed)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.PushTimeout)
	defer cancel()
	now, err := c.running(ctx)
	if err == nil {
		err = c.free(ctx, now)
	}
	if err == nil {
		err = c.load(ctx, config)
	}
	if err != nil {
		return c.fail(op, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded, c.bound = dataplane.Loaded{}, binding{}
	return nil
}
