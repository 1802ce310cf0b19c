package bfrt

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/inabench/inabench/testbed/bfrt/bfrtpb"
	"github.com/inabench/inabench/testbed/dataplane"
)

// PortState is what the server says of a port.
type PortState struct {
	Port  uint32 // as callers number it
	Name  string // on the front panel; empty: Options.Names does not say
	Own   uint32 // of the chip: its dev_port
	There bool   // it is set up; otherwise nothing is known of it
	Up    bool   // it has a link
	Link         // as it is set up; Speed 0: one that is not known here
	// Errors are the frames that went wrong since it was set up, by the server's words; counts of 0 are left out.
	Errors map[string]uint64
}

// portErrors are what a server counts of frames that went wrong, as table $PORT_STAT calls it
// (bf_rt_port/bf_rt_port_tf1.json).
var portErrors = []string{"$FramesReceivedwithFCSError", "$FrameswithanyError", "$FramesTransmittedwithError"}

// PortStates are what the server says of ports, in their order. It tells them to who names a program that the switch runs,
// whosever that is: without one the error wraps dataplane.ErrNoPipeline. It is for clients that only read.
func (c *Client) PortStates(ctx context.Context, ports []uint32) ([]PortState, error) {
	const op = "ask for ports"
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	now, err := c.running(ctx)
	if err != nil {
		return nil, c.fail(op, err)
	}
	running := programs(now)
	if len(running) == 0 {
		return nil, c.fail(op, dataplane.ErrNoPipeline)
	}
	prog := &program{name: running[0].GetP4Name()}
	if prog.device, err = ParseInfo(now.GetNonP4Config().GetBfruntimeInfo()); err != nil {
		return nil, c.fail(op, err)
	}
	if err := c.locate(ctx, prog); err != nil {
		return nil, c.fail(op, err)
	}
	setUp, err := c.ofPorts(ctx, prog, "$PORT", false, ports)
	if err != nil {
		return nil, c.fail(op, err)
	}
	counted, err := c.ofPorts(ctx, prog, "$PORT_STAT", true, ports)
	if errors.Is(err, ErrInfo) { // it counts otherwise, and tells the rest
		counted, err = rows{table: &Table{}}, nil
	}
	if err != nil {
		return nil, c.fail(op, err)
	}
	var out []PortState
	for _, port := range ports {
		s := PortState{Port: port, Name: c.opt.Names[port]}
		if s.Own, err = prog.own.Own(port); err == nil {
			err = s.read(setUp, counted)
		}
		if err != nil {
			return nil, c.fail(op, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// rows are entries of a table, by the chip's ports.
type rows struct {
	table *Table
	of    map[uint32]*bfrtpb.TableEntry
}

// ofPorts are the entries that a table has for ports; those of counters are read from the chip.
func (c *Client) ofPorts(ctx context.Context, prog *program, name string, counters bool, ports []uint32) (rows, error) {
	table, err := prog.device.Table(name)
	if err != nil {
		return rows{}, err
	}
	out := rows{table, map[uint32]*bfrtpb.TableEntry{}}
	var query []*bfrtpb.Entity
	for _, port := range ports {
		own, err := prog.own.Own(port)
		if err != nil {
			return rows{}, err
		}
		key, err := table.key(uint64(own))
		if err != nil {
			return rows{}, err
		}
		e := &bfrtpb.TableEntry{TableId: table.ID, Value: &bfrtpb.TableEntry_Key{Key: key}}
		if counters {
			e.TableFlags = &bfrtpb.TableFlags{FromHw: true}
		}
		query = append(query, entity(e))
	}
	found, err := c.read(ctx, prog, query...)
	if err != nil {
		return rows{}, err
	}
	for _, e := range found {
		own, err := table.keyOf(e)
		if err != nil {
			return rows{}, err
		}
		out.of[uint32(own)] = e
	}
	return out, nil
}

// read is what entries say of a port.
func (s *PortState) read(setUp, counted rows) error {
	e := setUp.of[s.Own]
	if s.There = e != nil; !s.There {
		return nil
	}
	up, _, err := setUp.table.number(e, portUp)
	if err != nil {
		return err
	}
	lanes, _, err := setUp.table.number(e, portLanes)
	if err != nil {
		return err
	}
	s.Up, s.Lanes = up != 0, int(lanes)
	s.Speed = meant(speeds, setUp.table.word(e, portSpeed))
	fec, autoneg := setUp.table.word(e, portFEC), setUp.table.word(e, portAutoneg)
	s.FEC, s.Autoneg = cmp.Or(meant(fecs, fec), fec), cmp.Or(meant(autonegs, autoneg), autoneg)
	for _, name := range portErrors {
		n, _, err := counted.table.number(counted.of[s.Own], name)
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		if s.Errors == nil {
			s.Errors = map[string]uint64{}
		}
		s.Errors[name[1:]] = n
	}
	return nil
}

// word is a field of an entry that is text; "" where it has none.
func (t *Table) word(e *bfrtpb.TableEntry, name string) string {
	f, err := field(t.Data, name)
	if err != nil {
		return ""
	}
	i := slices.IndexFunc(e.GetData().GetFields(), func(d *bfrtpb.DataField) bool { return d.GetFieldId() == f.ID })
	if i < 0 {
		return ""
	}
	return e.GetData().GetFields()[i].GetStrVal()
}

// meant is what a server's word means here, by name where there are two; the zero value of one that is not known.
func meant[K cmp.Ordered](words map[K]string, word string) (of K) {
	for k, w := range words {
		if w == word {
			of = max(of, k)
		}
	}
	return of
}
