package p4rt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
)

// maxBatch is the updates of one WriteRequest.
const maxBatch = 500

// item is one entity with the name that errors give it, which is also its key.
type item struct {
	name   string
	entity *p4v1.Entity
}

func (c *Client) items(b dataplane.Batch, keys bool) ([]item, error) {
	pipe, err := c.pipeline()
	if err != nil {
		return nil, err
	}
	var out []item
	for _, g := range b.Groups {
		name := fmt.Sprintf("group %d", g.ID)
		if keys {
			g.Ports = nil
		}
		if g, err = c.opt.OwnGroup(g); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		m, err := p4.EncodeGroup(g)
		if err != nil {
			return nil, err
		}
		out = append(out, item{name, groupEntity(m)})
	}
	table := func(name string, te *p4v1.TableEntry, err error) error {
		out = append(out, item{name, &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: te}}})
		return err
	}
	for _, r := range b.Routes {
		r.Port, err = c.opt.Own(r.Port)
		var te *p4v1.TableEntry
		if err == nil {
			te, err = pipe.EncodeRoute(r)
		}
		if keys {
			te, err = pipe.RouteKey(r.Dst)
		}
		if err := table(fmt.Sprintf("route to %d.%d.%d.%d", r.Dst[0], r.Dst[1], r.Dst[2], r.Dst[3]), te, err); err != nil {
			return nil, err
		}
	}
	for _, e := range b.Jobs {
		// Where a tree ends there may be no port up.
		if !e.Root || e.UpPort != 0 {
			e.UpPort, err = c.opt.Own(e.UpPort)
		}
		// A program may need a multicast group of its own for what a resend pushes out.
		if m := pipe.EncodeResends(e, keys); m != nil && (keys || err == nil) {
			out = append(out, item{fmt.Sprintf("resends of job %d", e.Job), groupEntity(m)})
		}
		var te *p4v1.TableEntry
		if err == nil {
			te, err = pipe.EncodeJob(e)
		}
		if keys {
			te, err = pipe.JobKey(e.Job)
		}
		if err := table(fmt.Sprintf("job %d", e.Job), te, err); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func groupEntity(m *p4v1.MulticastGroupEntry) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
			Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{MulticastGroupEntry: m},
		},
	}}
}

// Write inserts entries or replaces them: groups, then routes, then jobs. An error
// is an *dataplane.Error that lists what the switch refused; the rest of the batch is in
// force and will be undone by Close.
func (c *Client) Write(ctx context.Context, b dataplane.Batch) error {
	items, err := c.items(b, false)
	if err != nil {
		return c.fail("write", err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return c.fail("write", dataplane.ErrClosed)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	return c.fail("write", c.set(ctx, items, true))
}

// Delete deletes entries: jobs, then routes, then groups. What is not there is no error.
func (c *Client) Delete(ctx context.Context, b dataplane.Batch) error {
	items, err := c.items(b, true)
	if err != nil {
		return c.fail("delete", err)
	}
	slices.Reverse(items)
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return c.fail("delete", dataplane.ErrClosed)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	return c.fail("delete", c.delete(ctx, items))
}

// WriteRoutes inserts or replaces routes.
func (c *Client) WriteRoutes(ctx context.Context, rs []p4.Route) error {
	return c.Write(ctx, dataplane.Batch{Routes: rs})
}

// WriteGroup inserts or replaces a multicast group.
func (c *Client) WriteGroup(ctx context.Context, id uint16, ports []uint32) error {
	return c.Write(ctx, dataplane.Batch{Groups: []p4.Group{{ID: id, Ports: ports}}})
}

// DeleteGroup deletes a multicast group if there is one.
func (c *Client) DeleteGroup(ctx context.Context, id uint16) error {
	return c.Delete(ctx, dataplane.Batch{Groups: []p4.Group{{ID: id}}})
}

// sign makes something that is on the switch the witness of its memory. The lock writing
// is held.
func (c *Client) sign() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.witness = nil
	if len(c.order) > 0 {
		c.witness = keyOf(c.undo[c.order[0]].item.entity)
	}
}

// keyOf is e without its action, which a read would take for a filter.
func keyOf(e *p4v1.Entity) *p4v1.Entity {
	te := e.GetTableEntry()
	if te == nil {
		return e
	}
	return &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{
		TableEntry: &p4v1.TableEntry{TableId: te.GetTableId(), Match: te.GetMatch()},
	}}
}

// undoEntry is an entity this client has written.
type undoEntry struct {
	item  item
	prior *p4v1.Entity // what was there before; nil: nothing
}

// set inserts or modifies items. What it changed is remembered when remember is set.
// The lock writing is held.
func (c *Client) set(ctx context.Context, items []item, remember bool) error {
	defer c.sign()
	note := func(it item, prior *p4v1.Entity) {
		if _, known := c.undo[it.name]; known || !remember {
			return
		}
		c.undo[it.name] = &undoEntry{it, prior}
		c.order = append(c.order, it.name)
	}
	var first []*p4v1.Update
	for _, it := range items {
		typ := p4v1.Update_INSERT
		if _, known := c.undo[it.name]; known {
			typ = p4v1.Update_MODIFY
		}
		first = append(first, &p4v1.Update{Type: typ, Entity: it.entity})
	}
	res, err := c.write(ctx, first)
	var again []*p4v1.Update // with the other type: the switch knows better what is there
	var retried []item
	var refused []dataplane.UpdateError
	for i, r := range res {
		it := items[i]
		switch code := codes.Code(r.GetCanonicalCode()); {
		case code == codes.OK:
			note(it, nil)
		case code == codes.AlreadyExists && first[i].Type == p4v1.Update_INSERT:
			prior, err := c.read(ctx, []*p4v1.Entity{keyOf(it.entity)})
			if err != nil || len(prior) != 1 {
				refused = append(refused, updateError(first[i], it, r))
				continue
			}
			note(it, prior[0])
			again = append(again, &p4v1.Update{Type: p4v1.Update_MODIFY, Entity: it.entity})
			retried = append(retried, it)
		case code == codes.NotFound && first[i].Type == p4v1.Update_MODIFY:
			again = append(again, &p4v1.Update{Type: p4v1.Update_INSERT, Entity: it.entity})
			retried = append(retried, it)
		default:
			refused = append(refused, updateError(first[i], it, r))
		}
	}
	if err != nil {
		if uncertain(err) {
			for _, it := range items[len(res):] {
				note(it, nil)
			}
		}
		return err
	}
	if len(again) > 0 {
		res, err := c.write(ctx, again)
		if err != nil {
			return err
		}
		for i, r := range res {
			if r.GetCanonicalCode() != int32(codes.OK) {
				refused = append(refused, updateError(again[i], retried[i], r))
			}
		}
	}
	return dataplane.Refused(c.name, "write", refused)
}

// delete deletes items; what is not there is no error. The lock writing is held.
func (c *Client) delete(ctx context.Context, items []item) error {
	defer c.sign()
	var updates []*p4v1.Update
	for _, it := range items {
		updates = append(updates, &p4v1.Update{Type: p4v1.Update_DELETE, Entity: it.entity})
	}
	res, err := c.write(ctx, updates)
	var refused []dataplane.UpdateError
	for i, r := range res {
		switch codes.Code(r.GetCanonicalCode()) {
		case codes.OK, codes.NotFound:
			c.forget(items[i].name)
		default:
			refused = append(refused, updateError(updates[i], items[i], r))
		}
	}
	if err != nil {
		return err
	}
	return dataplane.Refused(c.name, "delete", refused)
}

// forget drops an entry that needs no undoing because nothing was there before.
func (c *Client) forget(name string) {
	if u := c.undo[name]; u != nil && u.prior == nil {
		delete(c.undo, name)
		c.order = slices.DeleteFunc(c.order, func(s string) bool { return s == name })
	}
}

// undoAll restores the switch, newest change first.
func (c *Client) undoAll(ctx context.Context) error {
	if len(c.order) == 0 {
		return nil
	}
	var remove, restore []item
	for _, name := range slices.Backward(c.order) {
		u := c.undo[name]
		if u.prior == nil {
			remove = append(remove, u.item)
		} else {
			restore = append(restore, item{name, u.prior})
		}
	}
	errs := []error{c.delete(ctx, remove), c.set(ctx, restore, false)}
	for i, err := range errs {
		if status.Code(err) == codes.FailedPrecondition || errors.Is(err, dataplane.ErrNotPrimary) {
			errs[i] = nil // restarted and empty, or someone else's now
		} else {
			errs[i] = c.fail("undo what was written", err)
		}
	}
	return errors.Join(errs...)
}

// write sends updates in batches and returns their results in order, or those it
// has when a batch fails as a whole.
func (c *Client) write(ctx context.Context, updates []*p4v1.Update) ([]*p4v1.Error, error) {
	var out []*p4v1.Error
	for batch := range slices.Chunk(updates, maxBatch) {
		id, err := c.session.Await(ctx)
		if err != nil {
			return out, err
		}
		// Of the three atomicities this is the one that every server has.
		_, err = c.rpc.Write(ctx, &p4v1.WriteRequest{
			DeviceId: c.device, ElectionId: id, Updates: batch, Atomicity: p4v1.WriteRequest_CONTINUE_ON_ERROR,
		})
		res, ok := dataplane.Results[*p4v1.Error](err, len(batch))
		if !ok {
			return out, err
		}
		out = append(out, res...)
	}
	return out, nil
}

// uncertain says whether a call that failed may have been carried out.
func uncertain(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return true
	}
	return false
}

func updateError(u *p4v1.Update, it item, e *p4v1.Error) dataplane.UpdateError {
	return dataplane.UpdateError{
		Op:      strings.ToLower(u.GetType().String()) + " " + it.name,
		Code:    codes.Code(e.GetCanonicalCode()),
		Message: e.GetMessage(),
	}
}
