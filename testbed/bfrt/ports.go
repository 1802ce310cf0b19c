package bfrt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/testbed/bfrt/bfrtpb"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
)

// ErrLink is wrapped when ports have no link.
var ErrLink = errors.New("no link")

// Options tune a Client; the zero value is good for a lab whose ports somebody else sets up.
type Options struct {
	dataplane.Options
	// Names are what the front panel calls ports, such as "1/0", by the numbers that callers use. The switch is asked
	// which of the chip's they are. nil: Options.Ports says it.
	Names map[uint32]string
	// Links are how ports are set up, by the numbers that callers use: loading a program removes all ports of the chip,
	// which nothing brings back. nil: they are left alone.
	Links       map[uint32]Link
	LinkTimeout time.Duration // until all of them have a link; 0: 60 s
	// Info is of the program that Attach finds, whose limits and groups for resends no server tells; nil: it has neither.
	Info *p4configv1.P4Info
}

// Link is how a port is set up. Its other end must agree.
type Link struct {
	Speed   float64 // bit/s
	FEC     string  // "none", "fc" (fire code) or "rs" (Reed-Solomon); empty: "none"
	Autoneg string  // "default", which is what the module wants, "on" or "off"; empty: "default"
	Lanes   int     // of the cable; 0: as the server has them for the speed
}

// What the server calls these (open-p4studio, pkgsrc/bf-drivers/src/bf_rt/bf_rt_port/bf_rt_port_tf1.json).
var (
	speeds = map[float64]string{
		1e9: "BF_SPEED_1G", 10e9: "BF_SPEED_10G", 25e9: "BF_SPEED_25G", 40e9: "BF_SPEED_40G", 50e9: "BF_SPEED_50G",
		100e9: "BF_SPEED_100G", 200e9: "BF_SPEED_200G", 400e9: "BF_SPEED_400G",
	}
	fecs     = map[string]string{"": "BF_FEC_TYP_NONE", "none": "BF_FEC_TYP_NONE", "fc": "BF_FEC_TYP_FC", "rs": "BF_FEC_TYP_RS"}
	autonegs = map[string]string{"": "PM_AN_DEFAULT", "default": "PM_AN_DEFAULT", "on": "PM_AN_FORCE_ENABLE", "off": "PM_AN_FORCE_DISABLE"}
)

const (
	portSpeed   = "$SPEED"
	portFEC     = "$FEC"
	portAutoneg = "$AUTO_NEGOTIATION"
	portLanes   = "$N_LANES"
	portEnable  = "$PORT_ENABLE"
	portUp      = "$PORT_UP"
	portDev     = "$DEV_PORT"
)

// locate finds the chip's numbers of ports that are known by their names.
func (c *Client) locate(ctx context.Context, prog *program) error {
	prog.own = c.opt.Options
	if c.opt.Names == nil || c.opt.Ports != nil {
		return nil
	}
	names, err := prog.device.Table("$PORT_STR_INFO")
	if err != nil {
		return err
	}
	if len(names.Key) != 1 {
		return fmt.Errorf("%w: table %s has a key of %d fields", ErrInfo, names.Name, len(names.Key))
	}
	prog.own.Ports = map[uint32]uint32{}
	var missing []string
	for _, port := range slices.Sorted(maps.Keys(c.opt.Names)) {
		found, err := c.read(ctx, prog, entity(&bfrtpb.TableEntry{TableId: names.ID, Value: &bfrtpb.TableEntry_Key{Key: &bfrtpb.TableKey{Fields: []*bfrtpb.KeyField{{
			FieldId: names.Key[0].ID, MatchType: &bfrtpb.KeyField_Exact_{Exact: &bfrtpb.KeyField_Exact{Value: []byte(c.opt.Names[port])}},
		}}}}}))
		if err != nil && status.Code(err) != codes.InvalidArgument { // that is a name that it does not know
			return fmt.Errorf("port %s: %w", c.opt.Names[port], err)
		}
		if len(found) == 0 {
			missing = append(missing, fmt.Sprintf("%d (%s)", port, c.opt.Names[port]))
			continue
		}
		own, _, err := names.number(found[0], portDev)
		if err != nil {
			return fmt.Errorf("port %s: %w", c.opt.Names[port], err)
		}
		prog.own.Ports[port] = uint32(own)
	}
	if len(missing) > 0 {
		return fmt.Errorf("the switch has no ports called %s: %w", strings.Join(missing, ", "), p4.ErrRange)
	}
	return nil
}

// raise sets ports up as Options.Links says, and waits until they have a link. A port that is there already keeps its
// speed and FEC whatever is written to it, so one that is otherwise is removed first. The lock writing is held.
func (c *Client) raise(ctx context.Context, prog *program) error {
	if len(c.opt.Links) == 0 {
		return nil
	}
	table, err := prog.device.Table("$PORT")
	if err != nil {
		return err
	}
	up, err := field(table.Data, portUp)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	var updates []*bfrtpb.Update
	asks := map[uint32]*bfrtpb.Entity{}
	for _, port := range slices.Sorted(maps.Keys(c.opt.Links)) {
		own, err := prog.own.Own(port)
		if err != nil {
			return err
		}
		key, err := table.key(uint64(own))
		if err != nil {
			return err
		}
		e := &bfrtpb.TableEntry{TableId: table.ID, Value: &bfrtpb.TableEntry_Key{Key: key}}
		if e.Data, err = table.link(c.opt.Links[port]); err != nil {
			return fmt.Errorf("port %d: %w", port, err)
		}
		asks[port] = entity(&bfrtpb.TableEntry{TableId: table.ID, Value: e.Value, Data: &bfrtpb.TableData{Fields: []*bfrtpb.DataField{{FieldId: up.ID}}}})
		as := &bfrtpb.TableData{}
		for _, f := range e.Data.GetFields() {
			as.Fields = append(as.Fields, &bfrtpb.DataField{FieldId: f.GetFieldId()})
		}
		there, err := c.read(call, prog, entity(&bfrtpb.TableEntry{TableId: table.ID, Value: e.Value, Data: as}))
		switch {
		case err != nil:
			return fmt.Errorf("port %d: %w", port, err)
		case len(there) > 0 && contains(there[0].GetData(), e.Data):
			continue
		case len(there) > 0:
			updates = append(updates, update(bfrtpb.Update_DELETE, &bfrtpb.TableEntry{TableId: table.ID, Value: e.Value}))
		}
		updates = append(updates, update(bfrtpb.Update_INSERT, e))
	}
	res, err := c.write(call, updates)
	if err != nil {
		return err
	}
	for _, r := range res {
		if code := codes.Code(r.GetCanonicalCode()); code != codes.OK {
			return fmt.Errorf("set up a port: %s: %s", code, r.GetMessage())
		}
	}
	return c.awaitLinks(ctx, prog, table, asks)
}

// contains says whether data has all fields of other as they are there.
func contains(data, other *bfrtpb.TableData) bool {
	for _, want := range other.GetFields() {
		if !slices.ContainsFunc(data.GetFields(), func(f *bfrtpb.DataField) bool { return proto.Equal(f, want) }) {
			return false
		}
	}
	return true
}

// link is what a port's entry says.
func (t *Table) link(l Link) (*bfrtpb.TableData, error) {
	speed, ok := speeds[l.Speed]
	if !ok {
		return nil, fmt.Errorf("%w: no port has %g bit/s", p4.ErrRange, l.Speed)
	}
	fec, ok := fecs[l.FEC]
	if !ok {
		return nil, fmt.Errorf("%w: no FEC is called %q", p4.ErrInvalid, l.FEC)
	}
	autoneg, ok := autonegs[l.Autoneg]
	if !ok {
		return nil, fmt.Errorf("%w: autonegotiation is not %q", p4.ErrInvalid, l.Autoneg)
	}
	out := &bfrtpb.TableData{}
	for _, of := range []struct{ name, text string }{{portSpeed, speed}, {portFEC, fec}, {portAutoneg, autoneg}} {
		f, err := field(t.Data, of.name)
		if err != nil {
			return nil, err
		}
		out.Fields = append(out.Fields, &bfrtpb.DataField{FieldId: f.ID, Value: &bfrtpb.DataField_StrVal{StrVal: of.text}})
	}
	numbers := map[string]uint64{portEnable: 1}
	if l.Lanes > 0 {
		numbers[portLanes] = uint64(l.Lanes)
	}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		f, err := field(t.Data, name)
		if err != nil {
			return nil, err
		}
		d, err := f.data(numbers[name])
		if err != nil {
			return nil, err
		}
		out.Fields = append(out.Fields, d)
	}
	return out, nil
}

// awaitLinks waits until ports have links.
func (c *Client) awaitLinks(ctx context.Context, prog *program, table *Table, asks map[uint32]*bfrtpb.Entity) error {
	ports := slices.Sorted(maps.Keys(asks))
	var query []*bfrtpb.Entity
	for _, port := range ports {
		query = append(query, asks[port])
	}
	until := time.Now().Add(c.opt.LinkTimeout)
	for {
		call, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
		found, err := c.read(call, prog, query...)
		cancel()
		if err != nil {
			return err
		}
		up := map[uint32]bool{}
		for _, e := range found {
			own, err := table.keyOf(e)
			if err != nil {
				return err
			}
			is, _, err := table.number(e, portUp)
			if err != nil {
				return err
			}
			up[prog.own.Called(uint32(own))] = is != 0
		}
		var down []string
		for _, port := range ports {
			if !up[port] {
				down = append(down, c.described(prog, port))
			}
		}
		if len(down) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return &dataplane.Hinted{
				Err:    fmt.Errorf("%w for %v: %s", ErrLink, c.opt.LinkTimeout, strings.Join(down, ", ")),
				Advice: "look whether the cable is in, and whether both ends have the same speed, FEC and autonegotiation",
			}
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// described is a port as a person looks for it.
func (c *Client) described(prog *program, port uint32) string {
	l := c.opt.Links[port]
	name := ""
	if n := c.opt.Names[port]; n != "" {
		name = n + ", "
	}
	own, _ := prog.own.Own(port)
	return fmt.Sprintf("port %d (%s%d of the chip, %g Gbit/s, FEC %s)", port, name, own, l.Speed/1e9, cmp.Or(l.FEC, "none"))
}
