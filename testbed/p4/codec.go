package p4

import (
	"errors"
	"fmt"
	"net/netip"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/inabench/inabench/testbed/ina"
)

func (p *Pipeline) key(t Table, key uint64) (*p4v1.TableEntry, error) {
	tab := p.tables[t]
	b, err := p.bytes(key, tab.key.bits)
	if err != nil {
		return nil, fmt.Errorf("key of table %s: %w", t, err)
	}
	return &p4v1.TableEntry{
		TableId: tab.id,
		Match: []*p4v1.FieldMatch{{
			FieldId:        tab.key.id,
			FieldMatchType: &p4v1.FieldMatch_Exact_{Exact: &p4v1.FieldMatch_Exact{Value: b}},
		}},
	}, nil
}

// decodeKey also refuses what an entry of a table with one exact field and no
// direct resources cannot carry.
func (p *Pipeline) decodeKey(t Table, te *p4v1.TableEntry) (uint64, error) {
	tab := p.tables[t]
	switch {
	case te.GetTableId() != tab.id:
		return 0, fmt.Errorf("%w: table %#x is not %s", ErrInvalid, te.GetTableId(), t)
	case len(te.GetMatch()) != 1 || te.Match[0].GetFieldId() != tab.key.id:
		return 0, fmt.Errorf("%w: table %s wants exactly match field %d", ErrInvalid, t, tab.key.id)
	case te.Match[0].GetExact() == nil:
		return 0, fmt.Errorf("%w: match field %d of table %s is exact", ErrInvalid, tab.key.id, t)
	case te.GetPriority() != 0:
		return 0, fmt.Errorf("%w: table %s has no priorities", ErrInvalid, t)
	case te.GetIsDefaultAction():
		return 0, fmt.Errorf("%w: the default entry of table %s has no key", ErrInvalid, t)
	case te.GetMeterConfig() != nil || te.GetCounterData() != nil || te.GetMeterCounterData() != nil:
		return 0, fmt.Errorf("%w: table %s has no direct counter or meter", ErrInvalid, t)
	case te.GetIdleTimeoutNs() != 0 || te.GetTimeSinceLastHit() != nil:
		return 0, fmt.Errorf("%w: table %s has no idle timeout", ErrInvalid, t)
	}
	width := map[Table]int{JobTable: 16, RouteTable: 32}[t]
	key, err := Uint(te.Match[0].GetExact().GetValue(), min(width, tab.key.bits))
	if err == nil && t == JobTable {
		err = checkJob(key)
	}
	if err != nil {
		return 0, fmt.Errorf("key of table %s: %w", t, err)
	}
	return key, nil
}

func checkJob(id uint64) error {
	if id < 1 || id > ina.MaxJob {
		return fmt.Errorf("%w: job %d outside 1..%d", ErrRange, id, ina.MaxJob)
	}
	return nil
}

// checkJobEntry holds for entries with the action aggregate.
func checkJobEntry(e *ina.JobEntry) error {
	switch {
	case e.Mode != ina.Statistical && e.Mode != ina.Synchronous:
		return fmt.Errorf("%w: job %d: mode %d does not aggregate", ErrInvalid, e.Job, e.Mode)
	case e.Addressing > ina.ATP:
		return fmt.Errorf("%w: job %d: there is no addressing %d", ErrInvalid, e.Job, e.Addressing)
	}
	return nil
}

// bytes is a value of so many bits as a byte string.
func (p *Pipeline) bytes(v uint64, bits int) ([]byte, error) {
	b := Bytes(v)
	if _, err := Uint(b, bits); err != nil {
		return nil, err
	}
	if p.fullWidth {
		b = append(make([]byte, Width(bits)-len(b)), b...)
	}
	return b, nil
}

// encode fills in act's parameters; those of ps that it lacks are left out.
func encode[E any](p *Pipeline, act action, ps []param[E], e *E) (*p4v1.TableAction, error) {
	a := &p4v1.Action{ActionId: act.id}
	for _, of := range ps {
		f, ok := act.params[of.name]
		if !ok {
			continue
		}
		b, err := p.bytes(of.get(e), f.bits)
		if err != nil {
			return nil, fmt.Errorf("parameter %s of action %s: %w", of.name, act.name, err)
		}
		a.Params = append(a.Params, &p4v1.Action_Param{ParamId: f.id, Value: b})
	}
	return &p4v1.TableAction{Type: &p4v1.TableAction_Action{Action: a}}, nil
}

// decode wants each of act's parameters exactly once.
func decode[E any](act action, ps []param[E], a *p4v1.Action, e *E) error {
	values := make(map[uint32][]byte)
	for _, v := range a.GetParams() {
		if _, twice := values[v.GetParamId()]; twice {
			return fmt.Errorf("%w: parameter %d of action %s occurs twice", ErrInvalid, v.GetParamId(), act.name)
		}
		values[v.GetParamId()] = v.GetValue()
	}
	for _, p := range ps {
		f, ok := act.params[p.name]
		if !ok {
			continue
		}
		b, ok := values[f.id]
		if !ok {
			return fmt.Errorf("%w: parameter %s of action %s is missing", ErrInvalid, p.name, act.name)
		}
		v, err := Uint(b, min(p.bits, f.bits))
		if err != nil {
			return fmt.Errorf("parameter %s of action %s: %w", p.name, act.name, err)
		}
		p.set(e, v)
	}
	if len(values) != len(act.params) {
		return fmt.Errorf("%w: action %s has %d parameters, not %d", ErrInvalid, act.name, len(act.params), len(values))
	}
	return nil
}

func directAction(te *p4v1.TableEntry) (*p4v1.Action, error) {
	if te.GetAction() == nil {
		return nil, fmt.Errorf("%w: action is not set", ErrInvalid)
	}
	a := te.GetAction().GetAction()
	if a == nil {
		return nil, fmt.Errorf("%w: the table has no action profile", ErrInvalid)
	}
	return a, nil
}

func replicaPort(r *p4v1.Replica) (uint32, error) {
	if len(r.GetBackupReplicas()) > 0 {
		return 0, fmt.Errorf("backup replicas: %w", errors.ErrUnsupported)
	}
	switch k := r.GetPortKind().(type) {
	case *p4v1.Replica_EgressPort:
		return k.EgressPort, nil
	case *p4v1.Replica_Port:
		v, err := Uint(k.Port, 32)
		return uint32(v), err
	}
	return 0, fmt.Errorf("%w: a replica has no port", ErrInvalid)
}

func ip(dst [4]byte) string { return netip.AddrFrom4(dst).String() }
