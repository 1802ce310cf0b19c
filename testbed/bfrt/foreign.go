package bfrt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/testbed/bfrt/bfrtpb"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
)

// ofINA reports whether a program is one of INA, by what it calls its tables and the action of jobs, whatever these are like.
func (i *Info) ofINA() bool {
	has := func(table p4.Table, action string) bool {
		return slices.ContainsFunc(i.tables, func(t *Table) bool {
			return last(t.Name) == table.String() &&
				(action == "" || slices.ContainsFunc(t.Actions, func(a Action) bool { return last(a.Name) == action }))
		})
	}
	return has(p4.JobTable, "aggregate") && has(p4.RouteTable, "")
}

// foreign are the programs that a switch runs and that are none of INA, also where the server keeps their files to itself.
type foreign []*bfrtpb.ForwardingPipelineConfig

func foreignOf(now *bfrtpb.GetForwardingPipelineConfigResponse) (out foreign) {
	for _, m := range now.GetConfig() {
		if m.GetP4Name() == shared || len(m.GetProfiles()) == 0 && len(m.GetBfruntimeInfo()) == 0 {
			continue
		}
		if info, err := ParseInfo(m.GetBfruntimeInfo()); err != nil || !info.ofINA() {
			out = append(out, m)
		}
	}
	return out
}

// shared is what a server calls the tables of the device, among programs.
const shared = "$SHARED"

// String names them.
func (f foreign) String() string {
	var names []string
	for _, m := range f {
		name := p4.Printable(m.GetP4Name())
		if name == "" {
			name = "one without a name"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// sum tells them from others of the same names; "" of none.
func (f foreign) sum() string {
	if len(f) == 0 {
		return ""
	}
	h := sha256.New()
	for _, m := range f {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			panic("bfrt: " + err.Error()) // what was read from a server is fit to be written
		}
		fmt.Fprintln(h, len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Foreign implements dataplane.Switch. Of several programs, in pipes of their own, none is told whole: one alone is loaded.
func (c *Client) Foreign(ctx context.Context) (*dataplane.Foreign, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	now, err := c.running(ctx)
	if err != nil {
		return nil, c.fail("read pipeline", err)
	}
	found := foreignOf(now)
	c.mu.Lock()
	c.told = found.sum()
	c.mu.Unlock()
	if len(found) == 0 {
		return nil, nil
	}
	out := &dataplane.Foreign{Name: found.String()}
	if cfg, err := configOf(found[0]); err == nil && len(found) == 1 && len(programs(now)) == 1 {
		out.Config = cfg.Marshal()
	}
	return out, nil
}

// unexpected is an error that wraps dataplane.ErrForeign if a switch runs a program of somebody else other than that which
// Foreign has told of: BFRuntime has nobody who alone may load programs.
func (c *Client) unexpected(now *bfrtpb.GetForwardingPipelineConfigResponse) error {
	found := foreignOf(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(found) == 0 || found.sum() == c.told {
		return nil
	}
	return fmt.Errorf("%w, loaded just now: %v", dataplane.ErrForeign, found)
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
		err = c.unexpected(now)
	}
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
