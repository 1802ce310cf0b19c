package p4

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/bits"
	"slices"
	"strings"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/ina"
)

// Limits are what a program has room for, beyond the sizes of its tables. A data plane
// cannot refuse an entry that it cannot follow, so its controller does. They are in the
// p4info, as the structured annotation "inabench" of the action aggregate. A switch whose
// p4info has none refuses by itself, as the embedded switch does.
type Limits struct {
	Aggregators uint32           // of the array; of a chip with pipes, of the one that a job's ports are in
	Jobs        uint16           // ids below it may sum
	Window      uint32           // longest that decisions are remembered for
	Resends     uint16           // multicast group Resends|job sends twice to a job's way up: see EncodeResends; 0: not needed
	Powers      bool             // regions have 2^k aggregators, from a multiple of 2^k on, because the program takes no remainders
	Addressing  []ina.Addressing // that the program knows; none: all
	Workers     int              // of a job
	Synchronous bool             // the program has synchronous mode
	ina.Program                  // Lanes is not 0
	Packets     int64            // that a switch carries in a second; 0: not known
}

var addressingNames = map[string]ina.Addressing{"pool": ina.Pool, "hash": ina.Hash, "linear": ina.Linear, "atp": ina.ATP}

// ParseInfo reads a p4info in either of the forms that compilers write, protobuf's text format and its binary one.
func ParseInfo(b []byte) (*p4configv1.P4Info, error) {
	text, binary := new(p4configv1.P4Info), new(p4configv1.P4Info)
	err := prototext.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, text)
	if err == nil {
		return text, nil
	}
	if proto.Unmarshal(b, binary) == nil && len(binary.GetTables()) > 0 {
		return binary, nil
	}
	return nil, fmt.Errorf("not a p4info: %w", err)
}

// LimitsOf reads the annotation of a p4info; nil: it has none. What the annotation does not say has no limit. A key that is
// not known here is an error: it may be one.
func LimitsOf(info *p4configv1.P4Info) (*Limits, error) {
	for _, a := range info.GetActions() {
		if lastName(a.GetPreamble()) != "aggregate" {
			continue
		}
		for _, s := range a.GetPreamble().GetStructuredAnnotations() {
			if s.GetName() != "inabench" {
				continue
			}
			l := &Limits{
				Aggregators: math.MaxUint32, Jobs: ina.MaxJob + 1, Window: math.MaxUint32,
				Workers: ina.MaxWorkers, Synchronous: true, Program: ina.Program{Lanes: ina.MaxLanes},
			}
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

// ReadLimits are those that the p4info of a file says; nil: it says none, or there is no such file, as where an inventory is
// planned with before its programs are compiled.
func ReadLimits(path string) (*Limits, error) {
	if path == "" {
		return nil, nil
	}
	b, err := bounded.ReadFile(path, bounded.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := ParseInfo(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l, err := LimitsOf(info)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
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
	case "lanes":
		l.Lanes = int(n)
		return within(ina.MaxLanes)
	case "packets":
		l.Packets = n
		return within(math.MaxInt64)
	case "powers":
		l.Powers = n != 0
	case "whole":
		l.Whole = n != 0
	case "named":
		l.Named = n != 0
	case "merges":
		l.Merges = n != 0
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
		return fmt.Errorf("%w: the program addresses by %s; choose one of them as switch.addressing", ErrInvalid, strings.Join(l.Addresses(), ", "))
	case l.Powers && (bits.OnesCount32(e.Size) > 1 || e.Size > 0 && e.Base%e.Size != 0):
		return fmt.Errorf("%w: aggregators %d+%d, the program wants a power of two of them, from a multiple of it on", ErrRange, e.Base, e.Size)
	case !statistical && !l.Synchronous:
		return fmt.Errorf("%w: the program has no synchronous mode", ErrInvalid)
	case bits.Len64(e.Expect) > l.Workers:
		return fmt.Errorf("%w: worker %d, the program knows ranks below %d", ErrRange, bits.Len64(e.Expect)-1, l.Workers)
	}
	return nil
}

// Addresses are the names of the addressing modes that the program knows, in order; none: it knows all.
func (l *Limits) Addresses() (known []string) {
	for name, a := range addressingNames {
		if slices.Contains(l.Addressing, a) {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	return known
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
