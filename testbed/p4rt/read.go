package p4rt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
)

// maxQuery is the entities asked for in one ReadRequest.
const maxQuery = 2000

// CounterValue is one cell of a counter, since the pipeline was loaded or the cell
// was reset.
type CounterValue struct {
	Name    string // as in package p4, such as "port_rx"
	Index   int    // port number or job id
	Packets int64
	Bytes   int64
}

// ReadCounters reads cells of the named counters: the given indices of each, or
// every cell if indices is nil, which are thousands. Nil names are all counters
// the pipeline has. The order is that of the switch's answer.
func (c *Client) ReadCounters(ctx context.Context, names []string, indices []int) ([]CounterValue, error) {
	query, err := c.cells(names, indices, nil)
	if err != nil {
		return nil, c.fail("read counters", err)
	}
	found, err := c.read(ctx, query)
	if err != nil {
		return nil, c.fail("read counters", err)
	}
	pipe, err := c.pipeline()
	if err != nil {
		return nil, c.fail("read counters", err)
	}
	byID := make(map[uint32]string)
	for _, info := range pipe.Counters() {
		byID[info.ID] = info.Name
	}
	out := make([]CounterValue, 0, len(found))
	for _, e := range found {
		if v := e.GetCounterEntry(); v != nil && byID[v.GetCounterId()] != "" {
			out = append(out, CounterValue{
				Name:    byID[v.GetCounterId()],
				Index:   int(v.GetIndex().GetIndex()),
				Packets: v.GetData().GetPacketCount(),
				Bytes:   v.GetData().GetByteCount(),
			})
		}
	}
	return out, nil
}

// ResetCounters sets cells to zero. Indices must be given: BMv2 cannot reset a
// whole counter at once. On a switch that others use too, take differences instead.
func (c *Client) ResetCounters(ctx context.Context, names []string, indices []int) error {
	if len(indices) == 0 {
		return nil
	}
	query, err := c.cells(names, indices, &p4v1.CounterData{})
	if err != nil {
		return c.fail("reset counters", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	c.writing.Lock()
	defer c.writing.Unlock()
	var updates []*p4v1.Update
	for _, e := range query {
		updates = append(updates, &p4v1.Update{Type: p4v1.Update_MODIFY, Entity: e})
	}
	res, err := c.write(ctx, updates)
	if err != nil {
		return c.fail("reset counters", err)
	}
	var refused []UpdateError
	for i, r := range res {
		if r.GetCanonicalCode() != int32(codes.OK) {
			v := query[i].GetCounterEntry()
			refused = append(refused, updateError(updates[i], item{name: fmt.Sprintf("counter %#x[%d]", v.GetCounterId(), v.GetIndex().GetIndex())}, r))
		}
	}
	return c.refused("reset counters", refused)
}

// cells is a query for counter cells.
func (c *Client) cells(names []string, indices []int, data *p4v1.CounterData) ([]*p4v1.Entity, error) {
	pipe, err := c.pipeline()
	if err != nil {
		return nil, err
	}
	if names == nil {
		for _, info := range pipe.Counters() {
			names = append(names, info.Name)
		}
	}
	var out []*p4v1.Entity
	add := func(e *p4v1.CounterEntry) {
		e.Data = data
		out = append(out, &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: e}})
	}
	for _, name := range names {
		info, err := pipe.Counter(name)
		if err != nil {
			return nil, err
		}
		if indices == nil {
			add(&p4v1.CounterEntry{CounterId: info.ID})
		}
		for _, i := range indices {
			if i < 0 || i >= info.Size {
				return nil, fmt.Errorf("counter %s has %d cells, there is no index %d: %w", name, info.Size, i, p4.ErrRange)
			}
			add(&p4v1.CounterEntry{CounterId: info.ID, Index: &p4v1.Index{Index: int64(i)}})
		}
	}
	return out, nil
}

// ReadJobs reads every job entry.
func (c *Client) ReadJobs(ctx context.Context) ([]ina.JobEntry, error) {
	return readTable(ctx, c, p4.JobTable, (*p4.Pipeline).DecodeJob)
}

// ReadRoutes reads every route.
func (c *Client) ReadRoutes(ctx context.Context) ([]p4.Route, error) {
	return readTable(ctx, c, p4.RouteTable, (*p4.Pipeline).DecodeRoute)
}

// ReadGroups reads every multicast group.
func (c *Client) ReadGroups(ctx context.Context) ([]p4.Group, error) {
	found, err := c.read(ctx, []*p4v1.Entity{groupEntity(&p4v1.MulticastGroupEntry{})})
	var out []p4.Group
	for _, e := range found {
		var g p4.Group
		if g, err = p4.DecodeGroup(e.GetPacketReplicationEngineEntry().GetMulticastGroupEntry()); err != nil {
			break
		}
		out = append(out, g)
	}
	if err != nil {
		return nil, c.fail("read multicast groups", err)
	}
	return out, nil
}

func readTable[E any](ctx context.Context, c *Client, t p4.Table, decode func(*p4.Pipeline, *p4v1.TableEntry) (E, error)) ([]E, error) {
	op := fmt.Sprintf("read table %s", t)
	pipe, err := c.pipeline()
	if err != nil {
		return nil, c.fail(op, err)
	}
	found, err := c.read(ctx, []*p4v1.Entity{{Entity: &p4v1.Entity_TableEntry{
		TableEntry: &p4v1.TableEntry{TableId: pipe.TableID(t)},
	}}})
	if err != nil {
		return nil, c.fail(op, err)
	}
	var out []E
	for _, e := range found {
		te := e.GetTableEntry()
		if te.GetIsDefaultAction() {
			continue
		}
		v, err := decode(pipe, te)
		if err != nil {
			return nil, c.fail(op, err)
		}
		out = append(out, v)
	}
	return out, nil
}

// read collects the answers to query.
func (c *Client) read(ctx context.Context, query []*p4v1.Entity) ([]*p4v1.Entity, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	if !c.observer {
		if _, err := c.await(ctx); err != nil {
			return nil, err
		}
	}
	var out []*p4v1.Entity
	for part := range slices.Chunk(query, maxQuery) {
		stream, err := c.rpc.Read(ctx, &p4v1.ReadRequest{DeviceId: c.device, Entities: part})
		if err != nil {
			return nil, err
		}
		for {
			r, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			out = append(out, r.GetEntities()...)
		}
	}
	return out, nil
}
