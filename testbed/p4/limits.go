package p4

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/inabench/inabench/testbed/ina"
)

// Limits are what a program has room for, beyond the sizes of its tables. A data plane
// cannot refuse an entry that it cannot follow, so its controller does. They are in the
// p4info, as the structured annotation "inabench" of the action aggregate. A switch whose
// p4info has none refuses by itself, as the embedded switch does.
type Limits struct {
	Aggregators uint32           // of the array
	Jobs        uint16           // ids below it may sum
	Window      uint32           // longest that decisions are remembered for
	Resends     uint16           // multicast group Resends|job sends twice to a job's way up: see EncodeResends; 0: not needed
	Powers      bool             // regions have 2^k aggregators, from a multiple of 2^k on, because the program takes no remainders
	Addressing  []ina.Addressing // that the program knows; none: all
	Workers     int              // of a job
	Synchronous bool             // the program has synchronous mode
}

var addressingNames = map[string]ina.Addressing{"pool": ina.Pool, "hash": ina.Hash, "linear": ina.Linear, "atp": ina.ATP}

// findLimits reads the annotation. A key that it does not know is an error: it may be a limit.
func findLimits(info *p4configv1.P4Info) (*Limits, error) {
	for _, a := range info.GetActions() {
		if lastName(a.GetPreamble()) != "aggregate" {
			continue
		}
		for _, s := range a.GetPreamble().GetStructuredAnnotations() {
			if s.GetName() != "inabench" {
				continue
			}
			l := &Limits{Workers: ina.MaxWorkers, Synchronous: true}
			for _, kv := range s.GetKvPairList().GetKvPairs() {
				if err := l.set(kv.GetKey(), kv.GetValue()); err != nil {
					return nil, fmt.Errorf("annotation inabench of action aggregate: %s: %w", kv.GetKey(), err)
				}
			}
			return l, nil
		}
	}
	return nil, nil
}

func (l *Limits) set(key string, v *p4configv1.Expression) error {
	n := v.GetInt64Value()
	within := func(most int64) error {
		if n < 1 || n > most {
			return fmt.Errorf("%w: %d outside 1..%d", ErrRange, n, most)
		}
		return nil
	}
	switch key {
	case "aggregators":
		l.Aggregators = uint32(n)
		return within(1 << 24)
	case "jobs":
		l.Jobs = uint16(n)
		return within(ina.MaxJob + 1)
	case "window":
		l.Window = uint32(n)
		return within(1 << 20)
	case "resends":
		l.Resends = uint16(n)
		return within(0xFFFF)
	case "workers":
		l.Workers = int(n)
		return within(ina.MaxWorkers)
	case "powers":
		l.Powers = n != 0
	case "synchronous":
		l.Synchronous = n != 0
	case "addressing":
		for _, name := range strings.Fields(v.GetStringValue()) {
			a, ok := addressingNames[name]
			if !ok {
				return fmt.Errorf("%w: addressing %q", ErrInvalid, name)
			}
			l.Addressing = append(l.Addressing, a)
		}
	default:
		return fmt.Errorf("%w: not a limit that is known here", ErrInvalid)
	}
	return nil
}

// check says why e is more than the program has room for.
func (l *Limits) check(e *ina.JobEntry) error {
	statistical := e.Mode == ina.Statistical
	switch {
	case e.Job >= l.Jobs:
		return fmt.Errorf("%w: the program sums jobs 1..%d", ErrRange, l.Jobs-1)
	case uint64(e.Base)+uint64(e.Size) > uint64(l.Aggregators):
		return fmt.Errorf("%w: aggregators %d+%d, the program has %d", ErrRange, e.Base, e.Size, l.Aggregators)
	case statistical && e.Window > l.Window:
		return fmt.Errorf("%w: window %d, the program remembers decisions for %d", ErrRange, e.Window, l.Window)
	case statistical && len(l.Addressing) > 0 && !slices.Contains(l.Addressing, e.Addressing):
		var known []string
		for name, a := range addressingNames {
			if slices.Contains(l.Addressing, a) {
				known = append(known, name)
			}
		}
		slices.Sort(known)
		return fmt.Errorf("%w: the program addresses by %s; choose one of them as switch.addressing", ErrInvalid, strings.Join(known, ", "))
	case l.Powers && (bits.OnesCount32(e.Size) > 1 || e.Size > 0 && e.Base%e.Size != 0):
		return fmt.Errorf("%w: aggregators %d+%d, the program wants a power of two of them, from a multiple of it on", ErrRange, e.Base, e.Size)
	case !statistical && !l.Synchronous:
		return fmt.Errorf("%w: the program has no synchronous mode", ErrInvalid)
	case bits.Len64(e.Expect) > l.Workers:
		return fmt.Errorf("%w: worker %d, the program knows ranks below %d", ErrRange, bits.Len64(e.Expect)-1, l.Workers)
	}
	return nil
}

// Limits are the program's, nil where the switch itself refuses what it cannot do.
func (p *Pipeline) Limits() *Limits { return p.limits }

// Jobs is the largest id of a job that the program can sum for: ina.MaxJob, unless it says that it has less room.
func (p *Pipeline) Jobs() int {
	if p.limits == nil {
		return ina.MaxJob
	}
	return min(int(p.limits.Jobs)-1, ina.MaxJob)
}

// EncodeResends is the multicast group that e needs where the program has Limits.Resends: a
// data plane sends a resend and the sum that it pushes out by replication, as instances 1 and
// 2 of one packet. It is nil for programs and entries that need none. With key, it is enough
// to delete the group, whatever the mode of the job was.
func (p *Pipeline) EncodeResends(e ina.JobEntry, key bool) *p4v1.MulticastGroupEntry {
	if p.limits == nil || p.limits.Resends == 0 || e.Job >= p.limits.Jobs {
		return nil
	}
	m := &p4v1.MulticastGroupEntry{MulticastGroupId: uint32(p.limits.Resends | e.Job)}
	switch {
	case key:
		return m
	case e.Mode != ina.Statistical:
		return nil
	}
	for instance := range uint32(2) {
		m.Replicas = append(m.Replicas, &p4v1.Replica{PortKind: &p4v1.Replica_EgressPort{EgressPort: e.UpPort}, Instance: instance + 1})
	}
	return m
}
