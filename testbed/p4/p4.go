package p4

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

//go:embed ina.p4info.txtpb
var infoText []byte

// Info returns the p4info of the INA pipeline as this package describes it. The
// caller owns the message.
func Info() *p4configv1.P4Info {
	info := new(p4configv1.P4Info)
	if err := prototext.Unmarshal(infoText, info); err != nil {
		panic("p4: embedded p4info: " + err.Error()) // a build fault, seen by the first test
	}
	return info
}

var (
	// ErrRange is wrapped when a value does not fit its field: P4Runtime's OUT_OF_RANGE.
	ErrRange = errors.New("out of range")
	// ErrInvalid is wrapped when an entity is malformed: P4Runtime's INVALID_ARGUMENT.
	ErrInvalid = errors.New("invalid entity")
	// ErrUnknown is wrapped when a p4info lacks a name.
	ErrUnknown = errors.New("not in the p4info")
)

// Table is one of the pipeline's tables.
type Table uint8

const (
	JobTable   Table = iota + 1 // "job": exact job id
	RouteTable                  // "ipv4_forward": exact IPv4 destination
)

// String is the table's P4 name.
func (t Table) String() string {
	switch t {
	case JobTable:
		return "job"
	case RouteTable:
		return "ipv4_forward"
	}
	return fmt.Sprintf("table(%d)", uint8(t))
}

// Counter is one indirect counter of a pipeline.
type Counter struct {
	ID   uint32
	Name string // last part of its P4 name, such as "port_rx", without "_bits" if it has Digits
	Size int    // valid indices are 0..Size-1
	// Digits says that each index has a counter of HoldDigits cells, from index x HoldDigits on:
	// cell b counts the numbers with bit b set, the last one all of them. So a data plane that
	// counts packets adds up numbers.
	Digits bool
}

// HoldDigits are the cells of an index of a counter that counts by digits.
const HoldDigits = 32

// Pipeline is a p4info with the names of the INA pipeline resolved to its ids.
// It is immutable and safe for concurrent use.
type Pipeline struct {
	info     *p4configv1.P4Info
	tables   map[Table]table
	byID     map[uint32]Table
	forward  action
	agg      action
	only     action
	excl     action // id 0: the target has no exclusive trees
	counters []Counter
	limits   *Limits

	fullWidth bool
}

type field struct {
	id   uint32
	bits int
}

type action struct {
	id     uint32
	name   string
	params map[string]field
}

type table struct {
	id   uint32
	key  field
	size int
}

// NewPipeline resolves the pipeline's tables, actions and parameters in info. It
// fails with an error wrapping ErrUnknown when info lacks one, or gives an action
// a parameter that this package does not know and so could not fill in. Counters
// are optional, since targets differ in what they can count, and so are exclusive trees
// (action aggregate_exclusive) and tables besides those of this package.
func NewPipeline(info *p4configv1.P4Info) (*Pipeline, error) {
	p := &Pipeline{
		info:   proto.Clone(info).(*p4configv1.P4Info),
		tables: make(map[Table]table),
		byID:   make(map[uint32]Table),
	}
	for _, t := range []Table{JobTable, RouteTable} {
		got, err := p.findTable(t.String())
		if err != nil {
			return nil, err
		}
		if other, taken := p.byID[got.id]; taken {
			return nil, fmt.Errorf("%w: tables %s and %s share id %#x", ErrInvalid, other, t, got.id)
		}
		p.tables[t] = got
		p.byID[got.id] = t
	}
	var err error
	if p.limits, err = LimitsOf(p.info); err != nil {
		return nil, err
	}
	if p.forward, err = p.findAction("forward", names(routeParams)); err != nil {
		return nil, err
	}
	if p.agg, err = p.findAction("aggregate", names(jobParams), names(derivedParams)...); err != nil {
		return nil, err
	}
	if p.only, err = p.findAction("forward_only", forwardOnlyParams); err != nil {
		return nil, err
	}
	const exclusive = "aggregate_exclusive"
	if slices.ContainsFunc(p.info.GetActions(), func(a *p4configv1.Action) bool { return lastName(a.GetPreamble()) == exclusive }) {
		if p.excl, err = p.findAction(exclusive, exclusiveParams); err != nil {
			return nil, err
		}
	}
	for i, a := range []action{p.agg, p.only, p.excl} {
		for _, b := range []action{p.agg, p.only, p.excl}[:i] {
			if a.id == b.id {
				return nil, fmt.Errorf("%w: actions %s and %s share id %#x", ErrInvalid, b.name, a.name, a.id)
			}
		}
	}
	seen := make(map[uint32]bool)
	seenName := make(map[string]bool)
	for _, c := range p.info.GetCounters() {
		id, name := c.GetPreamble().GetId(), lastName(c.GetPreamble())
		switch {
		case id == 0 || seen[id]:
			return nil, fmt.Errorf("%w: counter %q has id %#x, which is zero or used twice", ErrInvalid, name, id)
		case seenName[name]:
			return nil, fmt.Errorf("%w: two counters are named %q", ErrInvalid, name)
		case c.GetSize() < 0 || c.GetSize() > 1<<24:
			return nil, fmt.Errorf("%w: counter %q has %d cells", ErrInvalid, name, c.GetSize())
		}
		seen[id], seenName[name] = true, true
		counter := Counter{ID: id, Name: name, Size: int(c.GetSize())}
		if counter.Name, counter.Digits = strings.CutSuffix(name, "_bits"); counter.Digits {
			counter.Size /= HoldDigits
			seenName[counter.Name] = true
		}
		p.counters = append(p.counters, counter)
	}
	return p, nil
}

// FullWidth is the pipeline with byte strings that have the width of their fields, leading zeros included, where it
// encodes entries. Servers on a PI (p4lang/PI, proto/frontend) of before March 2021, 4961fb9, refuse others, as the
// P4Runtime specification 1.0 has it; later ones want the shortest, and take both.
func (p *Pipeline) FullWidth() *Pipeline {
	q := *p
	q.fullWidth = true
	return &q
}

// Info returns the p4info the pipeline was made from. It must not be changed.
func (p *Pipeline) Info() *p4configv1.P4Info { return p.info }

// Counters lists the pipeline's indirect counters in p4info order. The slice must
// not be changed.
func (p *Pipeline) Counters() []Counter { return p.counters }

// Counter finds a counter by name.
func (p *Pipeline) Counter(name string) (Counter, error) {
	for _, c := range p.counters {
		if c.Name == name {
			return c, nil
		}
	}
	return Counter{}, fmt.Errorf("counter %q: %w", name, ErrUnknown)
}

// CounterByID finds a counter by its P4Runtime id.
func (p *Pipeline) CounterByID(id uint32) (Counter, bool) {
	for _, c := range p.counters {
		if c.ID == id {
			return c, true
		}
	}
	return Counter{}, false
}

// TableID is t's P4Runtime id.
func (p *Pipeline) TableID(t Table) uint32 { return p.tables[t].id }

// Table finds a table by its P4Runtime id; ok is false when this package does not
// know it.
func (p *Pipeline) Table(id uint32) (t Table, ok bool) {
	t, ok = p.byID[id]
	return t, ok
}

// TableSize is how many entries t holds; 0 when the p4info does not say.
func (p *Pipeline) TableSize(t Table) int { return p.tables[t].size }

func (p *Pipeline) findTable(name string) (table, error) {
	for _, t := range p.info.GetTables() {
		if lastName(t.GetPreamble()) != name {
			continue
		}
		mf := t.GetMatchFields()
		if len(mf) != 1 || mf[0].GetMatchType() != p4configv1.MatchField_EXACT {
			return table{}, fmt.Errorf("%w: table %q must have one exact match field", ErrInvalid, name)
		}
		if t.GetPreamble().GetId() == 0 {
			return table{}, fmt.Errorf("%w: table %q has id 0", ErrInvalid, name)
		}
		return table{
			id:   t.GetPreamble().GetId(),
			key:  field{id: mf[0].GetId(), bits: int(mf[0].GetBitwidth())},
			size: int(t.GetSize()),
		}, nil
	}
	return table{}, fmt.Errorf("table %q: %w", name, ErrUnknown)
}

// findAction finds an action with parameters that it must have, and others that it may have.
func (p *Pipeline) findAction(name string, want []string, may ...string) (action, error) {
	for _, a := range p.info.GetActions() {
		if lastName(a.GetPreamble()) != name {
			continue
		}
		got := action{id: a.GetPreamble().GetId(), name: name, params: make(map[string]field)}
		ids := make(map[uint32]bool)
		for _, f := range a.GetParams() {
			if ids[f.GetId()] {
				return action{}, fmt.Errorf("%w: action %q has two parameters with id %d", ErrInvalid, name, f.GetId())
			}
			ids[f.GetId()] = true
			got.params[f.GetName()] = field{id: f.GetId(), bits: int(f.GetBitwidth())}
		}
		for _, n := range want {
			if _, ok := got.params[n]; !ok {
				return action{}, fmt.Errorf("parameter %q of action %q: %w", n, name, ErrUnknown)
			}
		}
		for n := range got.params {
			if !slices.Contains(want, n) && !slices.Contains(may, n) {
				return action{}, fmt.Errorf("%w: action %q has %d parameters, want %s",
					ErrInvalid, name, len(got.params), strings.Join(want, ", "))
			}
		}
		return got, nil
	}
	return action{}, fmt.Errorf("action %q: %w", name, ErrUnknown)
}

// lastName is the name an object was declared with, without the controls around it.
func lastName(p *p4configv1.Preamble) string {
	return p.GetName()[strings.LastIndexByte(p.GetName(), '.')+1:]
}

// OfINA reports whether a program is one of INA, by what it calls its tables and actions, whatever these are like.
func OfINA(info *p4configv1.P4Info) bool {
	has := func(t Table) bool {
		return slices.ContainsFunc(info.GetTables(), func(of *p4configv1.Table) bool { return lastName(of.GetPreamble()) == t.String() })
	}
	return has(JobTable) && has(RouteTable) &&
		slices.ContainsFunc(info.GetActions(), func(a *p4configv1.Action) bool { return lastName(a.GetPreamble()) == "aggregate" })
}

// Called is what a p4info calls its program, or what a person knows it by where it has no name; see Printable.
func Called(info *p4configv1.P4Info) string {
	if name := Printable(info.GetPkgInfo().GetName()); name != "" {
		return name
	}
	const shown = 3
	var tables []string
	for i, t := range info.GetTables() {
		if i == shown {
			tables = append(tables, fmt.Sprintf("%d more", len(info.GetTables())-shown))
			break
		}
		tables = append(tables, Printable(lastName(t.GetPreamble())))
	}
	if len(tables) == 0 {
		return "one without a name"
	}
	return "one without a name, with tables " + strings.Join(tables, ", ")
}

// longestName is how much of a name that a server tells people read, in characters.
const longestName = 100

// Printable is a name that a server tells, as it may stand in a line that people read: what could move a cursor or end the
// line is replaced, and what is beyond 100 characters is left out.
func Printable(name string) string {
	var b strings.Builder
	n := 0
	for _, r := range name {
		if n++; n > longestName {
			b.WriteRune('…')
			break
		}
		if !unicode.IsPrint(r) {
			r = utf8.RuneError
		}
		b.WriteRune(r)
	}
	return strings.TrimSpace(b.String())
}
