package p4

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/inabench/inabench/testbed/ina"
)

// Route forwards IPv4 unicast to a host: out of Port with MAC as the frame's
// destination.
type Route struct {
	Dst  [4]byte
	Port uint32
	MAC  [6]byte
}

// Group is a multicast group: a packet sent to it leaves once through each port.
// Ids start at 1; BMv2 takes ids below 32,768.
type Group struct {
	ID    uint16
	Ports []uint32
}

// FloodGroup is the multicast group through which a switch passes on ARP that came in at a port: the other ports that lead
// to hosts, or to switches along a tree of cables that reaches each of them once. Data planes work it out, so it is no
// parameter of an entry. Jobs' groups are below.
func FloodGroup(port uint32) uint16 { return floodGroups | uint16(port) }

const floodGroups = 0x4000

// Floods reports whether a multicast group is a FloodGroup, and of which port.
func (g *Group) Floods() (port uint32, ok bool) {
	return uint32(g.ID &^ floodGroups), g.ID&floodGroups != 0 && g.ID < 2*floodGroups
}

// param maps one action parameter to a field of E. bits is the width of the Go
// field: what a p4info allows beyond that is out of range all the same.
type param[E any] struct {
	name string
	bits int
	get  func(*E) uint64
	set  func(*E, uint64)
}

func names[E any](ps []param[E]) []string {
	s := make([]string, len(ps))
	for i, p := range ps {
		s[i] = p.name
	}
	return s
}

var routeParams = []param[Route]{
	{"port", 32, func(r *Route) uint64 { return uint64(r.Port) }, func(r *Route, v uint64) { r.Port = uint32(v) }},
	{"dst_mac", 48, func(r *Route) uint64 {
		var b [8]byte
		copy(b[2:], r.MAC[:])
		return binary.BigEndian.Uint64(b[:])
	}, func(r *Route, v uint64) {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], v)
		copy(r.MAC[:], b[2:])
	}},
}

type job = ina.JobEntry

var jobParams = []param[job]{
	{"epoch", 16, func(e *job) uint64 { return uint64(e.Epoch) }, func(e *job, v uint64) { e.Epoch = uint16(v) }},
	{"mode", 8, func(e *job) uint64 { return uint64(e.Mode) }, func(e *job, v uint64) { e.Mode = ina.Mode(v) }},
	{"addressing", 8, func(e *job) uint64 { return uint64(e.Addressing) }, func(e *job, v uint64) { e.Addressing = ina.Addressing(v) }},
	{"base", 32, func(e *job) uint64 { return uint64(e.Base) }, func(e *job, v uint64) { e.Base = uint32(v) }},
	{"size", 32, func(e *job) uint64 { return uint64(e.Size) }, func(e *job, v uint64) { e.Size = uint32(v) }},
	{"offset", 32, func(e *job) uint64 { return uint64(e.Offset) }, func(e *job, v uint64) { e.Offset = uint32(v) }},
	{"expect", 64, func(e *job) uint64 { return e.Expect }, func(e *job, v uint64) { e.Expect = v }},
	{"root", 1, func(e *job) uint64 {
		if e.Root {
			return 1
		}
		return 0
	}, func(e *job, v uint64) { e.Root = v != 0 }},
	{"window", 32, func(e *job) uint64 { return uint64(e.Window) }, func(e *job, v uint64) { e.Window = uint32(v) }},
	{"up_port", 32, func(e *job) uint64 { return uint64(e.UpPort) }, func(e *job, v uint64) { e.UpPort = uint32(v) }},
	{"down_group", 16, func(e *job) uint64 { return uint64(e.DownGroup) }, func(e *job, v uint64) { e.DownGroup = uint16(v) }},
}

// derivedParams follow from the others. Programs may ask for them that cannot work them out: a size of 2^k less one, and
// whether there is any memory.
var derivedParams = []param[job]{
	{"mask", 32, func(e *job) uint64 { return uint64(max(e.Size, 1) - 1) }, func(*job, uint64) {}},
	{"memory", 1, func(e *job) uint64 { return uint64(min(e.Size, 1)) }, func(*job, uint64) {}},
}

var entryParams = slices.Concat(jobParams, derivedParams)

// forwardOnlyParams are the parameters that also mean something where nothing is summed.
var forwardOnlyParams = []string{"epoch", "up_port", "down_group"}

// exclusiveParams are those of jobs with exclusive trees.
var exclusiveParams = []string{"epoch", "base", "size", "expect", "root", "window", "up_port", "down_group"}

// JobKey is the entry of job without its action: enough to read or delete it.
func (p *Pipeline) JobKey(job uint16) (*p4v1.TableEntry, error) {
	if err := checkJob(uint64(job)); err != nil {
		return nil, err
	}
	return p.key(JobTable, uint64(job))
}

// EncodeJob is e as an entry of table job. In mode Forward it becomes the action
// forward_only, which carries epoch, port and group and no other field; in mode
// Exclusive aggregate_exclusive, without addressing and offset, which is an error
// wrapping ErrUnknown on a pipeline without it. What exceeds the pipeline's Limits wraps
// ErrRange or ErrInvalid.
func (p *Pipeline) EncodeJob(e ina.JobEntry) (*p4v1.TableEntry, error) {
	te, err := p.JobKey(e.Job)
	if err != nil {
		return nil, err
	}
	act := p.jobAction(e.Mode)
	switch e.Mode {
	case ina.Forward:
	case ina.Exclusive:
		if act.id == 0 {
			return nil, fmt.Errorf("job %d: the switch's pipeline has no exclusive trees: action aggregate_exclusive is %w", e.Job, ErrUnknown)
		}
	default:
		if err := checkJobEntry(&e); err != nil {
			return nil, err
		}
		if p.limits != nil {
			if err := p.limits.check(&e); err != nil {
				return nil, fmt.Errorf("job %d: %w", e.Job, err)
			}
		}
	}
	if te.Action, err = encode(p, act, entryParams, &e); err != nil {
		return nil, fmt.Errorf("job %d: %w", e.Job, err)
	}
	return te, nil
}

// jobAction is the action of jobs of a mode; without an id if the pipeline has none.
func (p *Pipeline) jobAction(m ina.Mode) action {
	switch m {
	case ina.Forward:
		return p.only
	case ina.Exclusive:
		return p.excl
	}
	return p.agg
}

// DecodeJob reverses EncodeJob. Byte strings need not be canonical. On error the
// entry is zero and the error wraps ErrInvalid or ErrRange.
func (p *Pipeline) DecodeJob(te *p4v1.TableEntry) (ina.JobEntry, error) {
	key, err := p.decodeKey(JobTable, te)
	if err != nil {
		return ina.JobEntry{}, err
	}
	a, err := directAction(te)
	if err != nil {
		return ina.JobEntry{}, fmt.Errorf("job %d: %w", key, err)
	}
	id := a.GetActionId()
	return p.job(uint16(key), fmt.Sprintf("%#x", id),
		func(act action) bool { return act.id == id },
		func(act action, e *ina.JobEntry) error { return decode(act, entryParams, a, e) })
}

// job is a job of the action that is finds, filled in from its parameters. name is what errors call the action.
func (p *Pipeline) job(job uint16, name string, is func(action) bool, fill func(action, *ina.JobEntry) error) (ina.JobEntry, error) {
	e := ina.JobEntry{Job: job}
	var err error
	switch {
	case is(p.agg):
		if err = fill(p.agg, &e); err == nil {
			err = checkJobEntry(&e)
		}
	case is(p.only):
		err = fill(p.only, &e)
	case p.excl.id != 0 && is(p.excl):
		e.Mode = ina.Exclusive
		err = fill(p.excl, &e)
	default:
		err = fmt.Errorf("%w: table job has no action %s", ErrInvalid, name)
	}
	if err != nil {
		return ina.JobEntry{}, fmt.Errorf("job %d: %w", job, err)
	}
	return e, nil
}

// Action is what a table does with an entry: an action by its name, with its parameters by theirs. Protocols that
// do not carry P4Runtime's entities make their own of it.
type Action struct {
	Name   string
	Params map[string]uint64
}

// JobAction is e as EncodeJob has it, and refuses what that refuses.
func (p *Pipeline) JobAction(e ina.JobEntry) (Action, error) {
	if _, err := p.EncodeJob(e); err != nil {
		return Action{}, err
	}
	return params(p.jobAction(e.Mode), entryParams, &e), nil
}

// JobOf reverses JobAction. Parameters that the pipeline's action has must be there. On error the entry is zero and the
// error wraps ErrInvalid or ErrRange.
func (p *Pipeline) JobOf(job uint16, a Action) (ina.JobEntry, error) {
	if err := checkJob(uint64(job)); err != nil {
		return ina.JobEntry{}, fmt.Errorf("job %d: %w", job, err)
	}
	return p.job(job, a.Name,
		func(act action) bool { return act.name == a.Name },
		func(act action, e *ina.JobEntry) error { return take(act, entryParams, a, e) })
}

// RouteAction is r as EncodeRoute has it.
func (p *Pipeline) RouteAction(r Route) Action { return params(p.forward, routeParams, &r) }

// RouteOf reverses RouteAction.
func (p *Pipeline) RouteOf(dst [4]byte, a Action) (Route, error) {
	r := Route{Dst: dst}
	err := take(p.forward, routeParams, a, &r)
	if a.Name != p.forward.name {
		err = fmt.Errorf("%w: table ipv4_forward has no action %s", ErrInvalid, a.Name)
	}
	if err != nil {
		return Route{}, fmt.Errorf("route to %s: %w", ip(dst), err)
	}
	return r, nil
}

// params are an entry's, of those that an action has.
func params[E any](act action, ps []param[E], e *E) Action {
	a := Action{Name: act.name, Params: map[string]uint64{}}
	for _, p := range ps {
		if _, ok := act.params[p.name]; ok {
			a.Params[p.name] = p.get(e)
		}
	}
	return a
}

// take is params' inverse.
func take[E any](act action, ps []param[E], a Action, e *E) error {
	for _, p := range ps {
		if _, ok := act.params[p.name]; !ok {
			continue
		}
		v, ok := a.Params[p.name]
		if !ok {
			return fmt.Errorf("%w: parameter %s of action %s is missing", ErrInvalid, p.name, act.name)
		}
		if bits.Len64(v) > p.bits {
			return fmt.Errorf("%w: parameter %s of action %s: %#x needs more than %d bits", ErrRange, p.name, act.name, v, p.bits)
		}
		p.set(e, v)
	}
	return nil
}

// RouteKey is the entry of the route to dst without its action.
func (p *Pipeline) RouteKey(dst [4]byte) (*p4v1.TableEntry, error) {
	return p.key(RouteTable, uint64(binary.BigEndian.Uint32(dst[:])))
}

// EncodeRoute is r as an entry of table ipv4_forward.
func (p *Pipeline) EncodeRoute(r Route) (*p4v1.TableEntry, error) {
	te, err := p.RouteKey(r.Dst)
	if err != nil {
		return nil, err
	}
	if te.Action, err = encode(p, p.forward, routeParams, &r); err != nil {
		return nil, fmt.Errorf("route to %s: %w", ip(r.Dst), err)
	}
	return te, nil
}

// DecodeRoute reverses EncodeRoute. On error the route is zero and the error wraps
// ErrInvalid or ErrRange.
func (p *Pipeline) DecodeRoute(te *p4v1.TableEntry) (Route, error) {
	key, err := p.decodeKey(RouteTable, te)
	if err != nil {
		return Route{}, err
	}
	var r Route
	binary.BigEndian.PutUint32(r.Dst[:], uint32(key))
	a, err := directAction(te)
	if err == nil {
		if a.GetActionId() != p.forward.id {
			err = fmt.Errorf("%w: table ipv4_forward has no action %#x", ErrInvalid, a.GetActionId())
		} else {
			err = decode(p.forward, routeParams, a, &r)
		}
	}
	if err != nil {
		return Route{}, fmt.Errorf("route to %s: %w", ip(r.Dst), err)
	}
	return r, nil
}

// Key tells which table an entry belongs to and its key there: the job id, or the
// IPv4 destination as a big-endian number. The action is not looked at.
func (p *Pipeline) Key(te *p4v1.TableEntry) (Table, uint64, error) {
	t, ok := p.byID[te.GetTableId()]
	if !ok {
		return 0, 0, fmt.Errorf("%w: there is no table %#x", ErrInvalid, te.GetTableId())
	}
	key, err := p.decodeKey(t, te)
	if err != nil {
		return 0, 0, err
	}
	return t, key, nil
}

// EncodeGroup is g as a replication engine entry. Replicas are numbered by the
// deprecated egress_port, which old and new servers understand, with instance 1.
func EncodeGroup(g Group) (*p4v1.MulticastGroupEntry, error) {
	if g.ID == 0 {
		return nil, fmt.Errorf("%w: multicast group 0", ErrInvalid)
	}
	m := &p4v1.MulticastGroupEntry{MulticastGroupId: uint32(g.ID)}
	seen := make(map[uint32]bool)
	for _, port := range g.Ports {
		if seen[port] {
			return nil, fmt.Errorf("%w: multicast group %d has port %d twice", ErrInvalid, g.ID, port)
		}
		seen[port] = true
		m.Replicas = append(m.Replicas, &p4v1.Replica{PortKind: &p4v1.Replica_EgressPort{EgressPort: port}, Instance: 1})
	}
	return m, nil
}

// DecodeGroup reverses EncodeGroup, for replicas with either kind of port and any
// instance; a port may then occur more than once. Backup replicas are an error
// wrapping errors.ErrUnsupported, anything else wraps ErrInvalid or ErrRange.
func DecodeGroup(m *p4v1.MulticastGroupEntry) (Group, error) {
	id := m.GetMulticastGroupId()
	switch {
	case id == 0:
		return Group{}, fmt.Errorf("%w: multicast group 0", ErrInvalid)
	case id > 0xFFFF:
		return Group{}, fmt.Errorf("%w: multicast group %d, at most 65535", ErrRange, id)
	}
	g := Group{ID: uint16(id)}
	type replica struct{ port, instance uint32 }
	seen := make(map[replica]bool)
	for _, r := range m.GetReplicas() {
		port, err := replicaPort(r)
		if err != nil {
			return Group{}, fmt.Errorf("multicast group %d: %w", id, err)
		}
		key := replica{port, r.GetInstance()}
		if seen[key] {
			return Group{}, fmt.Errorf("%w: multicast group %d has port %d, instance %d twice", ErrInvalid, id, port, r.GetInstance())
		}
		seen[key] = true
		g.Ports = append(g.Ports, port)
	}
	return g, nil
}
