package p4rt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
)

// Loaded tells what Push or Attach found or made the switch run.
func (c *Client) Loaded() dataplane.Loaded {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loaded
}

// Push loads a pipeline and makes the switch forget everything that was written. Multicast groups and clone sessions are
// deleted first, because BMv2's server forgets them when a pipeline is loaded while its data plane keeps their replicas,
// and delivers twice when they are inserted again; where the pipeline is not loaded they are written back. From then on
// ids are those of the p4info that the switch itself gives, where it gives one.
func (c *Client) Push(ctx context.Context, p dataplane.Pipeline) error {
	const op = "push pipeline"
	pipe, err := c.newPipeline(p.Info)
	if err != nil {
		return c.fail(op, err)
	}
	loaded, err := p.Loaded()
	if err != nil {
		return c.fail(op, err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.opt.PushTimeout)
	defer cancel()
	if p.Keep {
		now, err := c.running(ctx)
		if err == nil && now.GetCookie().GetCookie() == loaded.Cookie && proto.Equal(now.GetP4Info(), p.Info) {
			jobs, err := c.entries(ctx, pipe, p4.JobTable)
			if err != nil {
				return c.fail(op, err)
			}
			loaded.Kept = len(jobs) == 0
		}
	}
	err = c.replace(ctx, op, func() error {
		if !loaded.Kept {
			return c.load(ctx, p, loaded.Cookie)
		}
		routes, err := c.entries(ctx, pipe, p4.RouteTable)
		if err != nil {
			return err
		}
		return c.delete(ctx, routes)
	})
	if err != nil {
		return err
	}
	if !loaded.Kept {
		now, err := c.running(ctx)
		if now.GetP4Info() != nil {
			pipe, err = c.newPipeline(now.GetP4Info())
		}
		if err != nil && status.Code(err) != codes.Unimplemented {
			return c.fail(op, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pipe, c.loaded, c.witness = pipe, loaded, nil
	return nil
}

// replace deletes multicast groups and clone sessions, and then has load make the switch forget everything else. If one
// of these fails, it writes them back. The lock writing is held.
func (c *Client) replace(ctx context.Context, op string, load func() error) error {
	found, err := c.replicas(ctx)
	if err != nil {
		return c.fail(op, err)
	}
	keys := make([]item, len(found))
	for i, it := range found {
		keys[i] = item{it.name, replicasKey(it.entity)}
	}
	undo, order := maps.Clone(c.undo), slices.Clone(c.order)
	if err = c.delete(ctx, keys); err == nil {
		err = load()
	}
	if err == nil {
		clear(c.undo)
		c.order = nil
		return nil
	}
	err = c.fail(op, err)
	if len(found) > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opt.CallTimeout)
		defer cancel()
		if back := c.set(ctx, found, false); back != nil {
			err = errors.Join(err, c.fail("write multicast groups back", back))
		}
	}
	c.undo, c.order = undo, order
	c.sign()
	return err
}

// load is never RECONCILE_AND_COMMIT: neither Stratum nor PI has it.
func (c *Client) load(ctx context.Context, p dataplane.Pipeline, cookie uint64) error {
	id, err := c.session.Await(ctx)
	if err != nil {
		return err
	}
	_, err = c.rpc.SetForwardingPipelineConfig(ctx, &p4v1.SetForwardingPipelineConfigRequest{
		DeviceId: c.device, ElectionId: id,
		Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
		Config: &p4v1.ForwardingPipelineConfig{
			P4Info: p.Info, P4DeviceConfig: p.DeviceConfig,
			Cookie: &p4v1.ForwardingPipelineConfig_Cookie{Cookie: cookie},
		},
	})
	return err
}

// running is the cookie and p4info of what the switch runs; nil: nothing.
func (c *Client) running(ctx context.Context) (*p4v1.ForwardingPipelineConfig, error) {
	r, err := c.rpc.GetForwardingPipelineConfig(ctx, &p4v1.GetForwardingPipelineConfigRequest{
		DeviceId: c.device, ResponseType: p4v1.GetForwardingPipelineConfigRequest_P4INFO_AND_COOKIE,
	})
	if status.Code(err) == codes.FailedPrecondition { // as some servers say "nothing"
		return nil, nil
	}
	return r.GetConfig(), err
}

// Attach uses the pipeline that the switch runs already, with all its entries.
func (c *Client) Attach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	now, err := c.running(ctx)
	if err == nil && now.GetP4Info() == nil {
		err = dataplane.ErrNoPipeline
	}
	if err != nil {
		return c.fail("read pipeline", err)
	}
	pipe, err := c.newPipeline(now.GetP4Info())
	if err != nil {
		return c.fail("use the pipeline on the switch", err)
	}
	p := dataplane.Pipeline{Info: now.GetP4Info()}
	loaded, err := p.Loaded()
	if err != nil {
		return c.fail("use the pipeline on the switch", err)
	}
	loaded.Cookie, loaded.Kept = now.GetCookie().GetCookie(), true
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pipe, c.loaded = pipe, loaded
	return nil
}

// newPipeline is a p4info's, as the switch's server takes its entries.
func (c *Client) newPipeline(info *p4configv1.P4Info) (*p4.Pipeline, error) {
	p, err := p4.NewPipeline(info)
	if err == nil && c.opt.FullWidth {
		p = p.FullWidth()
	}
	return p, err
}

// replicas are every multicast group and every clone session; a switch without a pipeline has none.
func (c *Client) replicas(ctx context.Context) (items []item, err error) {
	for _, all := range []*p4v1.Entity{groupEntity(&p4v1.MulticastGroupEntry{}), sessionEntity(&p4v1.CloneSessionEntry{})} {
		found, err := c.read(ctx, []*p4v1.Entity{all})
		switch status.Code(err) {
		case codes.OK:
		case codes.FailedPrecondition, codes.Unimplemented:
			continue
		default:
			return nil, err
		}
		for _, e := range found {
			r := e.GetPacketReplicationEngineEntry()
			switch g, s := r.GetMulticastGroupEntry(), r.GetCloneSessionEntry(); {
			case g != nil:
				items = append(items, item{fmt.Sprintf("group %d", g.GetMulticastGroupId()), e})
			case s != nil:
				items = append(items, item{fmt.Sprintf("clone session %d", s.GetSessionId()), e})
			}
		}
	}
	return items, nil
}

// replicasKey is the key of a multicast group or a clone session.
func replicasKey(e *p4v1.Entity) *p4v1.Entity {
	r := e.GetPacketReplicationEngineEntry()
	if s := r.GetCloneSessionEntry(); s != nil {
		return sessionEntity(&p4v1.CloneSessionEntry{SessionId: s.GetSessionId()})
	}
	return groupEntity(&p4v1.MulticastGroupEntry{MulticastGroupId: r.GetMulticastGroupEntry().GetMulticastGroupId()})
}

// entries are those of a table, by their keys.
func (c *Client) entries(ctx context.Context, pipe *p4.Pipeline, t p4.Table) (items []item, err error) {
	found, err := c.read(ctx, []*p4v1.Entity{{Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{TableId: pipe.TableID(t)}}}})
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", t, err)
	}
	for i, e := range found {
		if te := e.GetTableEntry(); te != nil && !te.GetIsDefaultAction() {
			items = append(items, item{fmt.Sprintf("entry %d of table %s", i, t), keyOf(e)})
		}
	}
	return items, nil
}

func sessionEntity(s *p4v1.CloneSessionEntry) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
			Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{CloneSessionEntry: s},
		},
	}}
}
