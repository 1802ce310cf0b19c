package bfrt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/internal/rpc"
	"github.com/inabench/inabench/testbed/bfrt/bfrtpb"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
)

// maxBatch is the updates of one WriteRequest, and the entities of one ReadRequest.
const maxBatch = 500

// Names of fields of the fixed tables (open-p4studio, pkgsrc/bf-drivers/src/bf_rt/bf_rt_pre/bf_rt_pre_tf1.json).
const (
	nodeID      = "$MULTICAST_NODE_ID"
	nodeXIDs    = "$MULTICAST_NODE_L1_XID_VALID"
	nodeXID     = "$MULTICAST_NODE_L1_XID"
	nodeRID     = "$MULTICAST_RID"
	nodeLAGs    = "$MULTICAST_LAG_ID"
	nodePorts   = "$DEV_PORT"
	countPkts   = "$COUNTER_SPEC_PKTS"
	countBytes  = "$COUNTER_SPEC_BYTES"
	ridsOfGroup = 1 << 4 // nodes of a group are numbered below that
)

// group is a multicast group as replication has it: the ports of each of its replication ids, which count from 1.
type group [][]uint32

// tables are what is on a switch, with its own numbers of ports.
type tables struct {
	groups map[uint16]group
	routes map[[4]byte]p4.Route
	jobs   map[uint16]ina.JobEntry
}

func newTables() tables {
	return tables{map[uint16]group{}, map[[4]byte]p4.Route{}, map[uint16]ina.JobEntry{}}
}

// prior is what undoes each change, the oldest first, and of which entries.
type prior struct {
	of   map[string]undoing
	keys []string
}

// undoing makes an entry what it was before it was changed.
type undoing struct {
	back    func() (change, error)
	nothing bool // that is: none
}

// change is something that becomes of one entry.
type change struct {
	name    string // "job 7"
	updates []*bfrtpb.Update
	done    func(t *tables)
	undoing
}

// Write implements dataplane.Switch.
func (c *Client) Write(ctx context.Context, b dataplane.Batch) error {
	return c.change(ctx, "write", true, func(prog *program) (out []change, err error) {
		add := func(ch change, e error) {
			if err == nil {
				out, err = append(out, ch), e
			}
		}
		for _, g := range b.Groups {
			own, e := prog.own.OwnGroup(g)
			if e == nil && g.ID == 0 {
				e = p4.ErrInvalid
			}
			if e != nil {
				return nil, fmt.Errorf("group %d: %w", g.ID, e)
			}
			add(c.setGroup(prog, own.ID, group{own.Ports}))
		}
		for _, r := range b.Routes {
			var e error
			if r.Port, e = prog.own.Own(r.Port); e != nil {
				return nil, fmt.Errorf("route to %s: %w", netip.AddrFrom4(r.Dst), e)
			}
			add(c.setRoute(prog, r.Dst, &r))
		}
		for _, j := range b.Jobs {
			if !j.Root || j.UpPort != 0 { // where a tree ends there may be no port up
				var e error
				if j.UpPort, e = prog.own.Own(j.UpPort); e != nil {
					return nil, fmt.Errorf("job %d: %w", j.Job, e)
				}
			}
			if m := prog.pipe.EncodeResends(j, false); m != nil {
				add(c.setGroup(prog, uint16(m.GetMulticastGroupId()), group{{j.UpPort}, {j.UpPort}}))
			}
			add(c.setJob(prog, j.Job, &j))
		}
		return out, err
	})
}

// Delete implements dataplane.Switch. Close does not bring back what it has deleted.
func (c *Client) Delete(ctx context.Context, b dataplane.Batch) error {
	return c.change(ctx, "delete", false, func(prog *program) (out []change, err error) {
		add := func(ch change, e error) {
			if err == nil {
				out, err = append(out, ch), e
			}
		}
		for _, j := range b.Jobs {
			add(c.setJob(prog, j.Job, nil))
			if m := prog.pipe.EncodeResends(j, true); m != nil {
				add(c.setGroup(prog, uint16(m.GetMulticastGroupId()), nil))
			}
		}
		for _, r := range b.Routes {
			add(c.setRoute(prog, r.Dst, nil))
		}
		for _, g := range b.Groups {
			own, e := prog.own.OwnGroup(p4.Group{ID: g.ID})
			if e != nil {
				return nil, fmt.Errorf("group %d: %w", g.ID, e)
			}
			add(c.setGroup(prog, own.ID, nil))
		}
		return out, err
	})
}

// change makes changes, and remembers what undoes them, if it should.
func (c *Client) change(ctx context.Context, op string, remember bool, of func(prog *program) ([]change, error)) error {
	if c.observer {
		return c.fail(op, fmt.Errorf("%w: this client only reads", dataplane.ErrNotPrimary))
	}
	prog, err := c.program()
	if err != nil {
		return c.fail(op, err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return c.fail(op, dataplane.ErrClosed)
	}
	c.afresh()
	changes, err := of(prog)
	if err != nil {
		return c.fail(op, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	return c.fail(op, c.apply(ctx, op, changes, remember))
}

// afresh forgets what a switch had that has restarted. The lock writing is held.
func (c *Client) afresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.restarted {
		c.has, c.before, c.doubtful, c.restarted = newTables(), prior{}, nil, false
	}
}

// apply makes changes. The lock writing is held.
func (c *Client) apply(ctx context.Context, op string, changes []change, remember bool) error {
	defer c.sign()
	var refused []dataplane.UpdateError
	for len(changes) > 0 {
		n, count := 0, 0
		for n < len(changes) && (n == 0 || count+len(changes[n].updates) <= maxBatch) {
			count += len(changes[n].updates)
			n++
		}
		var updates []*bfrtpb.Update
		for _, ch := range changes[:n] {
			updates = append(updates, ch.updates...)
			if remember {
				c.before.note(ch)
			}
		}
		res, err := c.write(ctx, updates)
		if err != nil {
			for _, ch := range changes[:n] { // it may have been carried out
				c.doubt(ch.name)
			}
			return err
		}
		for _, ch := range changes[:n] {
			ok := true
			for i, u := range ch.updates {
				code := codes.Code(res[i].GetCanonicalCode())
				if code == codes.OK || code == codes.NotFound && u.GetType() == bfrtpb.Update_DELETE {
					continue
				}
				ok = false
				refused = append(refused, dataplane.UpdateError{
					Op: strings.ToLower(u.GetType().String()) + " " + ch.name, Code: code, Message: res[i].GetMessage(),
				})
			}
			res = res[len(ch.updates):]
			if !ok {
				c.doubt(ch.name) // a part of it may be there
				continue
			}
			delete(c.doubtful, ch.name)
			ch.done(&c.has)
			if !remember {
				c.before.forget(ch.name)
			}
		}
		changes = changes[n:]
	}
	return dataplane.Refused(c.name, op, refused)
}

// doubt says that nobody knows what is there of an entry: it is deleted before it is written.
func (c *Client) doubt(name string) {
	if c.doubtful == nil {
		c.doubtful = map[string]bool{}
	}
	c.doubtful[name] = true
}

// note remembers what undoes the first change of an entry.
func (p *prior) note(ch change) {
	if _, known := p.of[ch.name]; known {
		return
	}
	if p.of == nil {
		p.of = map[string]undoing{}
	}
	p.of[ch.name] = ch.undoing
	p.keys = append(p.keys, ch.name)
}

// forget drops an entry that needs no undoing, because nothing was there before.
func (p *prior) forget(name string) {
	if p.of[name].nothing {
		delete(p.of, name)
		p.keys = slices.DeleteFunc(p.keys, func(k string) bool { return k == name })
	}
}

// sign makes a job that is on the switch the witness of its memory. The lock writing is held.
func (c *Client) sign() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.witness = 0
	for id := range c.has.jobs {
		c.witness = max(c.witness, id)
	}
}

// undo changes back what was changed, the newest first. The lock writing is held.
func (c *Client) undo(ctx context.Context) error {
	c.afresh()
	if len(c.before.keys) == 0 {
		return nil
	}
	var changes []change
	for _, key := range slices.Backward(c.before.keys) {
		ch, err := c.before.of[key].back()
		if err != nil {
			return err
		}
		changes = append(changes, ch)
	}
	c.before = prior{}
	err := c.apply(ctx, "undo what was written", changes, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.restarted || errors.Is(err, dataplane.ErrNotPrimary) {
		return nil // it is empty, or another's
	}
	return err
}

// sweep deletes everything that is known to be on the switch. The lock writing is held.
func (c *Client) sweep(ctx context.Context, prog *program) error {
	var changes []change
	add := func(ch change, err error) error {
		changes = append(changes, ch)
		return err
	}
	var err error
	for id := range c.has.jobs {
		err = errors.Join(err, add(c.setJob(prog, id, nil)))
	}
	for dst := range c.has.routes {
		err = errors.Join(err, add(c.setRoute(prog, dst, nil)))
	}
	for id := range c.has.groups {
		err = errors.Join(err, add(c.setGroup(prog, id, nil)))
	}
	if err != nil {
		return err
	}
	return c.apply(ctx, "delete what was left", changes, false)
}

// update is one of a table's entry.
func update(typ bfrtpb.Update_Type, e *bfrtpb.TableEntry) *bfrtpb.Update {
	return &bfrtpb.Update{Type: typ, Entity: entity(e)}
}

func entity(e *bfrtpb.TableEntry) *bfrtpb.Entity {
	return &bfrtpb.Entity{Entity: &bfrtpb.Entity_TableEntry{TableEntry: e}}
}

// put is what makes an entry that is there, or not, one with an action, or none. One that is in doubt is deleted first.
func (t *Table) put(key uint64, there, doubtful bool, a *p4.Action) (out []*bfrtpb.Update, err error) {
	k, err := t.key(key)
	if err != nil {
		return nil, err
	}
	e := &bfrtpb.TableEntry{TableId: t.ID, Value: &bfrtpb.TableEntry_Key{Key: k}}
	if doubtful || there && a == nil {
		out = append(out, update(bfrtpb.Update_DELETE, &bfrtpb.TableEntry{TableId: t.ID, Value: e.Value}))
	}
	if a == nil {
		return out, nil
	}
	act, err := t.action(a.Name)
	if err != nil {
		return nil, err
	}
	e.Data = &bfrtpb.TableData{ActionId: act.ID}
	for i := range act.Data {
		v, ok := a.Params[act.Data[i].Name]
		if !ok {
			return nil, fmt.Errorf("%w: nobody knows parameter %s of action %s", ErrInfo, act.Data[i].Name, act.Name)
		}
		d, err := act.Data[i].data(v)
		if err != nil {
			return nil, fmt.Errorf("action %s: %w", act.Name, err)
		}
		e.Data.Fields = append(e.Data.Fields, d)
	}
	typ := bfrtpb.Update_INSERT
	if there && !doubtful {
		typ = bfrtpb.Update_MODIFY
	}
	return append(out, update(typ, e)), nil
}

// actionOf is the action of an entry.
func (t *Table) actionOf(e *bfrtpb.TableEntry) (p4.Action, error) {
	for _, a := range t.Actions {
		if a.ID != e.GetData().GetActionId() {
			continue
		}
		out := p4.Action{Name: last(a.Name), Params: map[string]uint64{}}
		for _, d := range e.GetData().GetFields() {
			for _, f := range a.Data {
				if f.ID == d.GetFieldId() {
					v, err := value(d)
					if err != nil {
						return out, fmt.Errorf("action %s: %s: %w", a.Name, f.Name, err)
					}
					out.Params[f.Name] = v
				}
			}
		}
		return out, nil
	}
	return p4.Action{}, fmt.Errorf("%w: table %s has no action %d", p4.ErrInvalid, t.Name, e.GetData().GetActionId())
}

// setJob makes a job's entry e, or none.
func (c *Client) setJob(prog *program, id uint16, e *ina.JobEntry) (change, error) {
	old, there := c.has.jobs[id]
	ch := change{name: fmt.Sprintf("job %d", id)}
	var a *p4.Action
	if e != nil {
		act, err := prog.pipe.JobAction(*e)
		if err != nil {
			return ch, err
		}
		a = &act
	}
	var err error
	ch.updates, err = prog.jobs.put(uint64(id), there, c.doubtful[ch.name], a)
	ch.done = func(t *tables) {
		if delete(t.jobs, id); e != nil {
			t.jobs[id] = *e
		}
	}
	ch.undoing = undoing{func() (change, error) {
		if there {
			return c.setJob(prog, id, &old)
		}
		return c.setJob(prog, id, nil)
	}, !there}
	return ch, err
}

// setRoute makes the route to an address r, or none.
func (c *Client) setRoute(prog *program, dst [4]byte, r *p4.Route) (change, error) {
	old, there := c.has.routes[dst]
	ch := change{name: "route to " + netip.AddrFrom4(dst).String()}
	var a *p4.Action
	if r != nil {
		act := prog.pipe.RouteAction(*r)
		a = &act
	}
	var err error
	ch.updates, err = prog.routes.put(uint64(binary.BigEndian.Uint32(dst[:])), there, c.doubtful[ch.name], a)
	ch.done = func(t *tables) {
		if delete(t.routes, dst); r != nil {
			t.routes[dst] = *r
		}
	}
	ch.undoing = undoing{func() (change, error) {
		if there {
			return c.setRoute(prog, dst, &old)
		}
		return c.setRoute(prog, dst, nil)
	}, !there}
	return ch, err
}

// setGroup makes a multicast group g, or none: its nodes, and the group that has them.
func (c *Client) setGroup(prog *program, id uint16, g group) (change, error) {
	old, there := c.has.groups[id]
	ch := change{name: fmt.Sprintf("group %d", id)}
	key, err := prog.groups.key(uint64(id))
	if err != nil {
		return ch, err
	}
	entry := &bfrtpb.TableEntry{TableId: prog.groups.ID, Value: &bfrtpb.TableEntry_Key{Key: key}}
	doubtful := c.doubtful[ch.name]
	same := there && len(old) == len(g) && !doubtful
	if (there || doubtful) && !same { // a group goes before its nodes
		ch.updates = append(ch.updates, update(bfrtpb.Update_DELETE, entry))
		for rid := range max(len(old), len(g), 2*btoi(doubtful)) {
			n, err := prog.node(id, rid, nil)
			if err != nil {
				return ch, err
			}
			ch.updates = append(ch.updates, update(bfrtpb.Update_DELETE, n))
		}
	}
	var ids []uint32
	for rid, ports := range g {
		n, err := prog.node(id, rid, ports)
		if err != nil {
			return ch, err
		}
		typ := bfrtpb.Update_INSERT
		if same {
			typ = bfrtpb.Update_MODIFY
		}
		ch.updates = append(ch.updates, update(typ, n))
		ids = append(ids, nodeOf(id, rid))
	}
	if g != nil && !same {
		with := &bfrtpb.TableEntry{TableId: prog.groups.ID, Value: entry.Value, Data: &bfrtpb.TableData{}}
		if with.Data.Fields, err = prog.groups.lists(map[string][]uint32{nodeID: ids, nodeXIDs: make([]uint32, len(ids)), nodeXID: make([]uint32, len(ids))}); err != nil {
			return ch, err
		}
		ch.updates = append(ch.updates, update(bfrtpb.Update_INSERT, with))
	}
	ch.done = func(t *tables) {
		if delete(t.groups, id); g != nil {
			t.groups[id] = g
		}
	}
	ch.undoing = undoing{func() (change, error) { return c.setGroup(prog, id, old) }, !there}
	return ch, nil
}

// btoi is 1 for true.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// nodeOf is the number of a group's node for a replication id, less 1.
func nodeOf(id uint16, rid int) uint32 { return uint32(id)*ridsOfGroup + uint32(rid) + 1 }

// node is a node of a group; without ports it is only its key.
func (p *program) node(id uint16, rid int, ports []uint32) (*bfrtpb.TableEntry, error) {
	key, err := p.nodes.key(uint64(nodeOf(id, rid)))
	if err != nil {
		return nil, err
	}
	e := &bfrtpb.TableEntry{TableId: p.nodes.ID, Value: &bfrtpb.TableEntry_Key{Key: key}}
	if ports == nil {
		return e, nil
	}
	f, err := field(p.nodes.Data, nodeRID)
	if err != nil {
		return nil, err
	}
	d, err := f.data(uint64(rid) + 1)
	if err != nil {
		return nil, err
	}
	lists, err := p.nodes.lists(map[string][]uint32{nodeLAGs: nil, nodePorts: ports})
	e.Data = &bfrtpb.TableData{Fields: append([]*bfrtpb.DataField{d}, lists...)}
	return e, err
}

// lists are fields of a table that are lists, in the order of their names.
func (t *Table) lists(of map[string][]uint32) (out []*bfrtpb.DataField, err error) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		f, err := field(t.Data, name)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", t.Name, err)
		}
		d := &bfrtpb.DataField{FieldId: f.ID}
		if f.Bool {
			bools := make([]bool, len(of[name]))
			for i, v := range of[name] {
				bools[i] = v != 0
			}
			d.Value = &bfrtpb.DataField_BoolArrVal{BoolArrVal: &bfrtpb.DataField_BoolArray{Val: bools}}
		} else {
			d.Value = &bfrtpb.DataField_IntArrVal{IntArrVal: &bfrtpb.DataField_IntArray{Val: of[name]}}
		}
		out = append(out, d)
	}
	return out, nil
}

// list is a field of an entry that is a list.
func (t *Table) list(e *bfrtpb.TableEntry, name string) []uint32 {
	f, err := field(t.Data, name)
	if err != nil {
		return nil
	}
	for _, d := range e.GetData().GetFields() {
		if d.GetFieldId() == f.ID {
			return d.GetIntArrVal().GetVal()
		}
	}
	return nil
}

// number is a field of an entry that is a number; 0 where it has none.
func (t *Table) number(e *bfrtpb.TableEntry, name string) (uint64, bool, error) {
	f, err := field(t.Data, name)
	if err != nil {
		return 0, false, nil
	}
	for _, d := range e.GetData().GetFields() {
		if d.GetFieldId() == f.ID {
			v, err := value(d)
			return v, true, err
		}
	}
	return 0, false, nil
}

// write sends updates and returns their results in order.
func (c *Client) write(ctx context.Context, updates []*bfrtpb.Update) ([]*bfrtpb.Error, error) {
	if len(updates) == 0 {
		return nil, nil
	}
	id, err := c.session.Await(ctx)
	if err != nil {
		return nil, err
	}
	_, err = c.rpc.Write(ctx, &bfrtpb.WriteRequest{
		Target: c.target(), ClientId: id, Updates: updates, Atomicity: bfrtpb.WriteRequest_CONTINUE_ON_ERROR,
	}, grpc.WaitForReady(true))
	res, ok := dataplane.Results[*bfrtpb.Error](err, len(updates))
	if !ok {
		return nil, err
	}
	return res, nil
}

// target is the whole device.
func (c *Client) target() *bfrtpb.TargetDevice {
	return &bfrtpb.TargetDevice{DeviceId: c.device, PipeId: allPipes, Direction: bothGresses, PrsrId: everyParser}
}

// read asks for entries and returns them. Entries of a key that there are none of are left out.
func (c *Client) read(ctx context.Context, prog *program, entities ...*bfrtpb.Entity) (out []*bfrtpb.TableEntry, err error) {
	for batch := range slices.Chunk(entities, maxBatch) {
		found, err := c.request(ctx, prog, batch)
		out = append(out, found...)
		if err == nil {
			continue
		}
		res, ok := dataplane.Results[*bfrtpb.Error](err, len(batch))
		if !ok {
			return nil, err
		}
		for i, e := range res {
			code := codes.Code(e.GetCanonicalCode())
			if code != codes.OK && (code != codes.NotFound || batch[i].GetTableEntry().GetKey() == nil) {
				return nil, status.Error(code, e.GetMessage())
			}
		}
	}
	return out, nil
}

// request is one request for entries. Its error is gRPC's.
func (c *Client) request(ctx context.Context, prog *program, entities []*bfrtpb.Entity) (out []*bfrtpb.TableEntry, err error) {
	ctx, cancel := context.WithCancel(ctx) // or an answer that is too long goes on
	defer cancel()
	id, err := c.session.Await(ctx)
	if err != nil {
		return nil, err
	}
	r := &bfrtpb.ReadRequest{Target: c.target(), ClientId: id, Entities: entities}
	if c.observer { // it is bound to nothing
		r.P4Name = prog.name
	}
	answer := rpc.NewAnswer(maxAnswer, rpc.Messages)
	stream, err := c.rpc.Read(ctx, r, grpc.WaitForReady(true), answer.Option())
	for err == nil {
		var m *bfrtpb.ReadResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		for _, e := range m.GetEntities() {
			if te := e.GetTableEntry(); te != nil {
				out = append(out, te)
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return out, answer.Err(err)
}

// whole asks for all of a table.
func whole(t *Table) *bfrtpb.Entity { return entity(&bfrtpb.TableEntry{TableId: t.ID}) }

// jobs reads all jobs, with the switch's numbers of ports.
func (c *Client) jobs(ctx context.Context, prog *program) (map[uint16]ina.JobEntry, error) {
	found, err := c.read(ctx, prog, whole(prog.jobs))
	if err != nil {
		return nil, err
	}
	out := map[uint16]ina.JobEntry{}
	for _, te := range found {
		if te.GetIsDefaultEntry() {
			continue
		}
		key, err := prog.jobs.keyOf(te)
		if err != nil {
			return nil, err
		}
		a, err := prog.jobs.actionOf(te)
		if err != nil {
			return nil, err
		}
		if out[uint16(key)], err = prog.pipe.JobOf(uint16(key), a); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *Client) routes(ctx context.Context, prog *program) (map[[4]byte]p4.Route, error) {
	found, err := c.read(ctx, prog, whole(prog.routes))
	if err != nil {
		return nil, err
	}
	out := map[[4]byte]p4.Route{}
	for _, te := range found {
		if te.GetIsDefaultEntry() {
			continue
		}
		key, err := prog.routes.keyOf(te)
		if err != nil {
			return nil, err
		}
		a, err := prog.routes.actionOf(te)
		if err != nil {
			return nil, err
		}
		var dst [4]byte
		binary.BigEndian.PutUint32(dst[:], uint32(key))
		if out[dst], err = prog.pipe.RouteOf(dst, a); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// groups reads all multicast groups. Nodes that no group has are nobody's.
func (c *Client) groups(ctx context.Context, prog *program) (map[uint16]group, error) {
	nodes, err := c.read(ctx, prog, whole(prog.nodes))
	if err != nil {
		return nil, err
	}
	found, err := c.read(ctx, prog, whole(prog.groups))
	if err != nil {
		return nil, err
	}
	type node struct {
		rid   int
		ports []uint32
	}
	at := map[uint32]node{}
	for _, te := range nodes {
		key, err := prog.nodes.keyOf(te)
		if err != nil {
			return nil, err
		}
		rid, _, err := prog.nodes.number(te, nodeRID)
		if err != nil {
			return nil, err
		}
		at[uint32(key)] = node{int(rid), prog.nodes.list(te, nodePorts)}
	}
	out := map[uint16]group{}
	for _, te := range found {
		id, err := prog.groups.keyOf(te)
		if err != nil {
			return nil, err
		}
		var g group
		for _, n := range prog.groups.list(te, nodeID) {
			rid := at[n].rid
			if rid < 1 || rid >= ridsOfGroup {
				continue // another program's
			}
			for len(g) < rid {
				g = append(g, []uint32{})
			}
			g[rid-1] = append(g[rid-1], at[n].ports...)
		}
		if g == nil {
			g = group{{}}
		}
		out[uint16(id)] = g
	}
	return out, nil
}

// all is everything that is on the switch.
func (c *Client) all(ctx context.Context, prog *program) (t tables, err error) {
	if t.jobs, err = c.jobs(ctx, prog); err != nil {
		return newTables(), err
	}
	if t.routes, err = c.routes(ctx, prog); err != nil {
		return newTables(), err
	}
	if t.groups, err = c.groups(ctx, prog); err != nil {
		return newTables(), err
	}
	return t, nil
}

// ask reads something of the switch's program.
func ask[T any](ctx context.Context, c *Client, op string, read func(ctx context.Context, prog *program) (T, error)) (out T, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	prog, err := c.program()
	if err == nil {
		out, err = read(ctx, prog)
	}
	return out, c.fail(op, err)
}

// ReadJobs implements dataplane.Switch.
func (c *Client) ReadJobs(ctx context.Context) ([]ina.JobEntry, error) {
	return ask(ctx, c, "read jobs", func(ctx context.Context, prog *program) (out []ina.JobEntry, err error) {
		all, err := c.jobs(ctx, prog)
		for _, id := range slices.Sorted(maps.Keys(all)) {
			e := all[id]
			e.UpPort = prog.own.Called(e.UpPort)
			out = append(out, e)
		}
		return out, err
	})
}

// ReadRoutes implements dataplane.Switch.
func (c *Client) ReadRoutes(ctx context.Context) ([]p4.Route, error) {
	return ask(ctx, c, "read routes", func(ctx context.Context, prog *program) (out []p4.Route, err error) {
		all, err := c.routes(ctx, prog)
		for _, r := range all {
			r.Port = prog.own.Called(r.Port)
			out = append(out, r)
		}
		slices.SortFunc(out, func(a, b p4.Route) int { return slices.Compare(a.Dst[:], b.Dst[:]) })
		return out, err
	})
}

// ReadGroups implements dataplane.Switch.
func (c *Client) ReadGroups(ctx context.Context) ([]p4.Group, error) {
	return ask(ctx, c, "read groups", func(ctx context.Context, prog *program) (out []p4.Group, err error) {
		all, err := c.groups(ctx, prog)
		for _, id := range slices.Sorted(maps.Keys(all)) {
			g := prog.own.CalledGroup(p4.Group{ID: id, Ports: slices.Concat(all[id]...)})
			slices.Sort(g.Ports) // the server has them in an order of its own
			out = append(out, g)
		}
		return out, err
	})
}

// ReadCounters implements dataplane.Switch. The server copies counters from the chip first, which it does for all of a
// counter at once.
func (c *Client) ReadCounters(ctx context.Context, names []string, indices []int) ([]dataplane.CounterValue, error) {
	return ask(ctx, c, "read counters", func(ctx context.Context, prog *program) (out []dataplane.CounterValue, err error) {
		var sync []*bfrtpb.Update
		var query []*bfrtpb.Entity
		at := map[uint32]*Table{}
		for _, t := range prog.counters {
			name := last(t.Name)
			if names != nil && !slices.Contains(names, name) {
				continue
			}
			at[t.ID] = t
			sync = append(sync, &bfrtpb.Update{Type: bfrtpb.Update_INSERT, Entity: &bfrtpb.Entity{Entity: &bfrtpb.Entity_TableOperation{
				TableOperation: &bfrtpb.TableOperation{TableId: t.ID, TableOperationsType: "Sync"},
			}}})
			if indices == nil {
				query = append(query, whole(t))
			}
			for _, i := range indices {
				own := uint32(i)
				if strings.HasPrefix(name, "port_") {
					if own, err = prog.own.Own(own); err != nil {
						return nil, err
					}
				}
				key, err := t.key(uint64(own))
				if err != nil {
					return nil, fmt.Errorf("counter %s: %w", name, err)
				}
				query = append(query, entity(&bfrtpb.TableEntry{TableId: t.ID, Value: &bfrtpb.TableEntry_Key{Key: key}}))
			}
		}
		for _, name := range names {
			if !slices.ContainsFunc(prog.counters, func(t *Table) bool { return last(t.Name) == name }) {
				return nil, fmt.Errorf("counter %q: %w", name, p4.ErrUnknown)
			}
		}
		if !c.observer { // who is bound to nothing has each cell copied as it is read
			c.syncing.Lock()
			res, err := c.write(ctx, sync)
			c.syncing.Unlock()
			if err != nil {
				return nil, err
			}
			for _, e := range res {
				if code := codes.Code(e.GetCanonicalCode()); code != codes.OK {
					return nil, status.Error(code, e.GetMessage())
				}
			}
		}
		for _, q := range query {
			q.GetTableEntry().TableFlags = &bfrtpb.TableFlags{FromHw: c.observer}
		}
		found, err := c.read(ctx, prog, query...)
		if err != nil {
			return nil, err
		}
		for _, te := range found {
			t := at[te.GetTableId()]
			if t == nil {
				continue
			}
			index, err := t.keyOf(te)
			if err != nil {
				return nil, err
			}
			v := dataplane.CounterValue{Name: last(t.Name), Index: int(index)}
			if strings.HasPrefix(v.Name, "port_") {
				if v.Index = int(prog.own.Called(uint32(index))); v.Index == 0 {
					continue // not cabled
				}
			}
			packets, some, err := t.number(te, countPkts)
			bytes, more, berr := t.number(te, countBytes)
			if err := errors.Join(err, berr); err != nil {
				return nil, err
			}
			if v.Packets, v.Bytes = int64(packets), int64(bytes); some || more {
				out = append(out, v)
			}
		}
		return out, nil
	})
}
