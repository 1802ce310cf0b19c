package softswitch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/testbed/p4"
)

// maxCells bounds a counter; the pipeline of package p4 asks for 4,096.
const maxCells = 1 << 16

// p4config is a forwarding pipeline config and what was written under it. Reads
// are answered from here, never from the target. Methods called with a nil Target
// change nothing else.
type p4config struct {
	fwd      *p4v1.ForwardingPipelineConfig
	pipe     *p4.Pipeline
	counters map[uint32]Counter // by P4Runtime id
	tables   map[p4.Table]map[uint64]*p4v1.TableEntry
	groups   map[uint16]*p4v1.MulticastGroupEntry
}

// newP4Config verifies that the switch can realise fwd: it has the tables of
// package p4 and no other, and counters the switch counts. The device config may
// be anything, it is only given back.
func newP4Config(fwd *p4v1.ForwardingPipelineConfig) (*p4config, error) {
	if fwd.GetP4Info() == nil {
		return nil, errors.New("there is no p4info")
	}
	pipe, err := p4.NewPipeline(fwd.GetP4Info())
	if err != nil {
		return nil, err
	}
	for _, t := range fwd.GetP4Info().GetTables() {
		if _, ok := pipe.Table(t.GetPreamble().GetId()); !ok {
			return nil, fmt.Errorf("the switch has no table %q", t.GetPreamble().GetName())
		}
	}
	c := &p4config{
		fwd:      proto.Clone(fwd).(*p4v1.ForwardingPipelineConfig),
		pipe:     pipe,
		counters: make(map[uint32]Counter),
		tables: map[p4.Table]map[uint64]*p4v1.TableEntry{
			p4.JobTable:   make(map[uint64]*p4v1.TableEntry),
			p4.RouteTable: make(map[uint64]*p4v1.TableEntry),
		},
		groups: make(map[uint16]*p4v1.MulticastGroupEntry),
	}
	for _, info := range pipe.Counters() {
		i := slices.Index(counterNames[:], info.Name)
		if i < 0 {
			return nil, fmt.Errorf("the switch has no counter %q", info.Name)
		}
		if info.Size > maxCells {
			return nil, fmt.Errorf("counter %q has %d cells, at most %d", info.Name, info.Size, maxCells)
		}
		c.counters[info.ID] = Counter(i)
	}
	return c, nil
}

func (c *p4config) counter(id uint32) (p4.Counter, Counter, error) {
	info, ok := c.pipe.CounterByID(id)
	if !ok {
		return p4.Counter{}, 0, status.Errorf(codes.InvalidArgument, "there is no counter %#x", id)
	}
	return info, c.counters[id], nil
}

// writeTable applies one update of a table entry, to the target first, so that
// what it refuses leaves no trace.
func (c *p4config) writeTable(typ p4v1.Update_Type, te *p4v1.TableEntry, t Target) error {
	if _, ok := c.pipe.Table(te.GetTableId()); ok && te.GetIsDefaultAction() {
		if typ == p4v1.Update_MODIFY {
			return status.Error(codes.PermissionDenied, "the default action is constant")
		}
		return status.Errorf(codes.InvalidArgument, "%v of the default entry", typ)
	}
	if typ == p4v1.Update_DELETE {
		table, key, err := c.pipe.Key(entryKey(te))
		if err != nil {
			return err
		}
		if c.tables[table][key] == nil {
			return status.Errorf(codes.NotFound, "table %s has no such entry", table)
		}
		if err := deleteEntry(t, table, key); err != nil {
			return err
		}
		delete(c.tables[table], key)
		return nil
	}
	table, key, err := c.pipe.Key(te)
	if err != nil {
		return err
	}
	canonical, set, err := c.decode(table, te)
	if err != nil {
		return err
	}
	exists := c.tables[table][key] != nil
	size := c.pipe.TableSize(table)
	switch {
	case typ == p4v1.Update_INSERT && exists:
		return status.Errorf(codes.AlreadyExists, "table %s has that entry, use MODIFY", table)
	case typ == p4v1.Update_MODIFY && !exists:
		return status.Errorf(codes.NotFound, "table %s has no such entry", table)
	case !exists && size > 0 && len(c.tables[table]) >= size:
		return status.Errorf(codes.ResourceExhausted, "table %s is full with %d entries", table, size)
	}
	if t != nil {
		if err := set(t); err != nil {
			return err
		}
	}
	c.tables[table][key] = canonical
	return nil
}

// decode returns te as it will be read back, with canonical byte strings, and how
// to give it to a target.
func (c *p4config) decode(table p4.Table, te *p4v1.TableEntry) (*p4v1.TableEntry, func(Target) error, error) {
	var canonical *p4v1.TableEntry
	var set func(Target) error
	switch table {
	case p4.JobTable:
		e, err := c.pipe.DecodeJob(te)
		if err != nil {
			return nil, nil, err
		}
		if canonical, err = c.pipe.EncodeJob(e); err != nil {
			return nil, nil, err
		}
		set = func(t Target) error { return t.SetJob(e) }
	case p4.RouteTable:
		r, err := c.pipe.DecodeRoute(te)
		if err != nil {
			return nil, nil, err
		}
		if canonical, err = c.pipe.EncodeRoute(r); err != nil {
			return nil, nil, err
		}
		set = func(t Target) error { return t.SetRoute(r) }
	default:
		return nil, nil, status.Errorf(codes.Internal, "table %s", table)
	}
	canonical.Metadata = te.GetMetadata()
	canonical.ControllerMetadata = te.GetControllerMetadata() //lint:ignore SA1019 read-write symmetry
	return canonical, set, nil
}

// entryKey is te without what is not part of its key.
func entryKey(te *p4v1.TableEntry) *p4v1.TableEntry {
	return &p4v1.TableEntry{TableId: te.GetTableId(), Match: te.GetMatch(), Priority: te.GetPriority()}
}

func deleteEntry(t Target, table p4.Table, key uint64) error {
	if t == nil {
		return nil
	}
	if table == p4.JobTable {
		return t.DeleteJob(uint16(key))
	}
	var dst [4]byte
	binary.BigEndian.PutUint32(dst[:], uint32(key))
	return t.DeleteRoute(dst)
}

func (c *p4config) writeGroup(typ p4v1.Update_Type, m *p4v1.MulticastGroupEntry, t Target) error {
	if typ == p4v1.Update_DELETE {
		m = &p4v1.MulticastGroupEntry{MulticastGroupId: m.GetMulticastGroupId()}
	}
	g, err := p4.DecodeGroup(m)
	if err != nil {
		return err
	}
	exists := c.groups[g.ID] != nil
	switch {
	case typ == p4v1.Update_INSERT && exists:
		return status.Errorf(codes.AlreadyExists, "multicast group %d exists, use MODIFY", g.ID)
	case typ != p4v1.Update_INSERT && !exists:
		return status.Errorf(codes.NotFound, "there is no multicast group %d", g.ID)
	}
	if typ == p4v1.Update_DELETE {
		if t != nil {
			if err := t.DeleteGroup(g.ID); err != nil {
				return err
			}
		}
		delete(c.groups, g.ID)
		return nil
	}
	if t != nil {
		if err := t.SetGroup(g.ID, g.Ports); err != nil {
			return err
		}
	}
	c.groups[g.ID] = proto.Clone(m).(*p4v1.MulticastGroupEntry)
	return nil
}

// replay gives t everything written since the config was saved. What t refuses is
// forgotten and reported.
func (c *p4config) replay(t Target) error {
	var errs []error
	for id, m := range c.groups {
		g, err := p4.DecodeGroup(m)
		if err == nil {
			err = t.SetGroup(g.ID, g.Ports)
		}
		if err != nil {
			errs = append(errs, err)
			delete(c.groups, id)
		}
	}
	for table, entries := range c.tables {
		for key, te := range entries {
			_, set, err := c.decode(table, te)
			if err == nil {
				err = set(t)
			}
			if err != nil {
				errs = append(errs, err)
				delete(entries, key)
			}
		}
	}
	if len(errs) > 0 {
		return status.Errorf(codes.InvalidArgument, "replay saved entries: %v", errors.Join(errs...))
	}
	return nil
}

// readTable selects entries as a SQL query would: fields of q that are zero match
// everything, table 0 is all tables and takes no other filter.
func (c *p4config) readTable(q *p4v1.TableEntry) ([]*p4v1.Entity, error) {
	var tables []p4.Table
	want := func(*p4v1.TableEntry) bool { return true }
	if q.GetTableId() == 0 {
		if len(q.GetMatch()) > 0 {
			return nil, status.Error(codes.InvalidArgument, "a match key without a table id")
		}
		tables = []p4.Table{p4.JobTable, p4.RouteTable}
	} else {
		table, ok := c.pipe.Table(q.GetTableId())
		if !ok {
			return nil, status.Errorf(codes.InvalidArgument, "there is no table %#x", q.GetTableId())
		}
		if q.GetIsDefaultAction() {
			return c.readDefault(q.GetTableId()), nil
		}
		if len(q.GetMatch()) > 0 {
			_, key, err := c.pipe.Key(entryKey(q))
			if err != nil {
				return nil, err
			}
			if te := c.tables[table][key]; te != nil && matches(q, te) {
				return []*p4v1.Entity{tableEntity(te)}, nil
			}
			return nil, nil
		}
		tables = []p4.Table{table}
		want = func(te *p4v1.TableEntry) bool { return matches(q, te) }
	}
	var out []*p4v1.Entity
	for _, table := range tables {
		for _, key := range slices.Sorted(maps.Keys(c.tables[table])) {
			if te := c.tables[table][key]; want(te) {
				out = append(out, tableEntity(te))
			}
		}
	}
	return out, nil
}

func matches(q, te *p4v1.TableEntry) bool {
	action := q.GetAction().GetAction()
	return (action == nil || action.GetActionId() == te.GetAction().GetAction().GetActionId()) &&
		q.GetPriority() == 0 &&
		(len(q.GetMetadata()) == 0 || bytes.Equal(q.GetMetadata(), te.GetMetadata())) &&
		(q.GetControllerMetadata() == 0 || q.GetControllerMetadata() == te.GetControllerMetadata()) //lint:ignore SA1019 still a filter
}

func tableEntity(te *p4v1.TableEntry) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: te}}
}

func (c *p4config) readDefault(id uint32) []*p4v1.Entity {
	for _, t := range c.fwd.GetP4Info().GetTables() {
		if t.GetPreamble().GetId() == id && t.GetConstDefaultActionId() != 0 {
			return []*p4v1.Entity{tableEntity(&p4v1.TableEntry{
				TableId:         id,
				IsDefaultAction: true,
				Action: &p4v1.TableAction{Type: &p4v1.TableAction_Action{
					Action: &p4v1.Action{ActionId: t.GetConstDefaultActionId()},
				}},
			})}
		}
	}
	return nil
}

// readGroup reads one group; id 0 reads all.
func (c *p4config) readGroup(id uint32) ([]*p4v1.Entity, error) {
	if id > 0xFFFF {
		return nil, status.Errorf(codes.OutOfRange, "multicast group %d, at most 65535", id)
	}
	ids := []uint16{uint16(id)}
	if id == 0 {
		ids = slices.Sorted(maps.Keys(c.groups))
	} else if c.groups[uint16(id)] == nil {
		return nil, status.Errorf(codes.NotFound, "there is no multicast group %d", id)
	}
	out := make([]*p4v1.Entity, 0, len(ids))
	for _, id := range ids {
		out = append(out, &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
			PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
				Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{MulticastGroupEntry: c.groups[id]},
			},
		}})
	}
	return out, nil
}
