package p4rt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/inabench/inabench/internal/rpc"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
)

// maxQuery is the entities asked for in one ReadRequest.
const maxQuery = 2000

// wholeWorth is how many cells a server that copies a counter from the chip for every read
// of it is taken to read in the time of one copy. It was not measured.
const wholeWorth = 16

// ReadCounters reads cells of the named counters: the given indices of each, or
// every cell if indices is nil, which are thousands. Nil names are all counters
// the pipeline has. The order is that of the switch's answer. Cells that it gives no
// value for are left out.
func (c *Client) ReadCounters(ctx context.Context, names []string, indices []int) ([]dataplane.CounterValue, error) {
	var wanted map[int]bool
	if indices != nil {
		wanted = make(map[int]bool)
		for _, i := range indices {
			wanted[i] = true
		}
	}
	query, err := c.cells(names, indices)
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
	out := make([]dataplane.CounterValue, 0, len(found))
	sums := make(map[dataplane.CounterValue]int) // of counters by digits: where in out
	for _, e := range found {
		v := e.GetCounterEntry()
		info, ok := pipe.CounterByID(v.GetCounterId())
		// A cell without data has not been copied from the chip: it is unknown, not zero.
		if !ok || v.GetData() == nil {
			continue
		}
		name, index := info.Name, int(v.GetIndex().GetIndex())
		if info.Digits {
			digit := index % p4.HoldDigits
			index /= p4.HoldDigits
			if wanted != nil && !wanted[index] {
				continue
			}
			key := dataplane.CounterValue{Name: name, Index: index}
			at, ok := sums[key]
			if !ok {
				at = len(out)
				out, sums[key] = append(out, key), at
			}
			if digit == p4.HoldDigits-1 {
				out[at].Packets = v.GetData().GetPacketCount()
			} else {
				out[at].Bytes += v.GetData().GetPacketCount() << digit
			}
			continue
		}
		if byPort(name) && c.opt.Ports != nil {
			if index = int(c.opt.Called(uint32(index))); index == 0 {
				continue // nothing is cabled there
			}
		}
		if wanted == nil || wanted[index] {
			out = append(out, dataplane.CounterValue{Name: name, Index: index, Packets: v.GetData().GetPacketCount(), Bytes: v.GetData().GetByteCount()})
		}
	}
	return out, nil
}

// cells is a query for counter cells.
func (c *Client) cells(names []string, indices []int) ([]*p4v1.Entity, error) {
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
		first := len(out)
		for _, i := range indices {
			if byPort(name) && i >= 0 {
				own, err := c.opt.Own(uint32(i))
				if err != nil {
					return nil, fmt.Errorf("counter %s: %w", name, err)
				}
				i = int(own)
			}
			if i < 0 || i >= info.Size {
				return nil, fmt.Errorf("counter %s has %d cells, there is no index %d: %w", name, info.Size, i, p4.ErrRange)
			}
			cells := []int{i}
			if info.Digits {
				cells = cells[:0]
				for d := range p4.HoldDigits {
					cells = append(cells, i*p4.HoldDigits+d)
				}
			}
			for _, i := range cells {
				add(&p4v1.CounterEntry{CounterId: info.ID, Index: &p4v1.Index{Index: int64(i)}})
			}
		}
		size := info.Size
		if info.Digits {
			size *= p4.HoldDigits
		}
		if n := len(out) - first; c.opt.WholeCounters && n*wholeWorth >= size {
			out = out[:first]
			add(&p4v1.CounterEntry{CounterId: info.ID})
		}
	}
	return out, nil
}

// byPort says whether a counter's cells are ports; those of the others are jobs.
func byPort(counter string) bool { return strings.HasPrefix(counter, "port_") }

// ReadJobs reads every job entry.
func (c *Client) ReadJobs(ctx context.Context) ([]ina.JobEntry, error) {
	out, err := readTable(ctx, c, p4.JobTable, (*p4.Pipeline).DecodeJob)
	for i := range out {
		if !out[i].Root || out[i].UpPort != 0 {
			out[i].UpPort = c.opt.Called(out[i].UpPort)
		}
	}
	return out, err
}

// ReadRoutes reads every route.
func (c *Client) ReadRoutes(ctx context.Context) ([]p4.Route, error) {
	out, err := readTable(ctx, c, p4.RouteTable, (*p4.Pipeline).DecodeRoute)
	for i := range out {
		out[i].Port = c.opt.Called(out[i].Port)
	}
	return out, err
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
		out = append(out, c.opt.CalledGroup(g))
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
		if _, err := c.session.Await(ctx); err != nil {
			return nil, err
		}
	}
	var out []*p4v1.Entity
	for part := range slices.Chunk(query, maxQuery) {
		found, err := ReadAll(ctx, c.rpc, c.device, part...)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// ReadAll asks a switch in one ReadRequest, and returns the whole answer in its order. An
// error is gRPC's, as it is, or wraps bounded.ErrTooLarge.
func ReadAll(ctx context.Context, client p4v1.P4RuntimeClient, device uint64, query ...*p4v1.Entity) ([]*p4v1.Entity, error) {
	ctx, cancel := context.WithCancel(ctx) // of a stream that is left before its end
	defer cancel()
	answer := rpc.NewAnswer(maxAnswer, rpc.Messages)
	stream, err := client.Read(ctx, &p4v1.ReadRequest{DeviceId: device, Entities: query}, answer.Option())
	if err != nil {
		return nil, err
	}
	var out []*p4v1.Entity
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, answer.Err(err)
		}
		out = append(out, r.GetEntities()...)
	}
}
