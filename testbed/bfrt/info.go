package bfrt

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/inabench/inabench/testbed/bfrt/bfrtpb"
	"github.com/inabench/inabench/testbed/p4"
)

// ErrInfo is wrapped when a device config or its bf-rt.json is none, or lacks what the INA pipeline has.
var ErrInfo = errors.New("not a compiled INA program for Tofino")

// Info is what a bf-rt.json says of tables: the program's own, or the fixed ones of a device.
type Info struct {
	tables []*Table
}

// Table is a table, a counter, or a part of the device that looks like one.
type Table struct {
	Name    string // "pipe.SwitchIngress.job", "$PORT"
	ID      uint32
	Type    string // "MatchAction_Direct", "Counter"
	Size    int
	Key     []Field
	Data    []Field // of entries without an action
	Actions []Action
	Match   string // of its keys, where they are matched alike: "Exact"

	err error // why it cannot be used; nil: it can
}

// Action is an action of a table, with its parameters.
type Action struct {
	Name string // "SwitchIngress.aggregate"
	ID   uint32
	Data []Field
}

// Field is a part of a key or of data.
type Field struct {
	Name     string
	ID       uint32
	Bits     int  // of values that are numbers
	Repeated bool // it is a list of them
	Bool     bool
	Text     bool
}

// Of a bf-rt.json, as p4c's Tofino back end writes it (backends/bf-p4c/arch/bfruntime.h).
type (
	infoJSON struct {
		Tables []struct {
			Name    string       `json:"name"`
			ID      uint32       `json:"id"`
			Type    string       `json:"table_type"`
			Size    int          `json:"size"`
			Key     []itemJSON   `json:"key"`
			Data    []itemJSON   `json:"data"`
			Actions []actionJSON `json:"action_specs"`
		} `json:"tables"`
	}
	actionJSON struct {
		Name string     `json:"name"`
		ID   uint32     `json:"id"`
		Data []itemJSON `json:"data"`
	}
	itemJSON struct { // a field, or what stands around one
		fieldJSON
		Singleton *fieldJSON  `json:"singleton"`
		OneOf     []fieldJSON `json:"oneof"`
	}
	fieldJSON struct {
		Name     string `json:"name"`
		ID       uint32 `json:"id"`
		Match    string `json:"match_type"`
		Repeated bool   `json:"repeated"`
		Type     struct {
			Type  string `json:"type"`
			Width int    `json:"width"`
		} `json:"type"`
	}
)

// mostBits is how wide a field may be: no register of a Tofino is wider.
const mostBits = 1 << 16

// ParseInfo reads a bf-rt.json. Errors wrap ErrInfo. A table that makes no sense is an error when it is asked for:
// those of a device have some, such as snapshots with a field 0.
func ParseInfo(text []byte) (*Info, error) {
	var in infoJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInfo, err)
	}
	out := &Info{}
	ids := map[uint32]string{}
	for _, t := range in.Tables {
		table := &Table{Name: t.Name, ID: t.ID, Type: t.Type, Size: t.Size}
		if other, twice := ids[t.ID]; twice || t.ID == 0 {
			table.err = fmt.Errorf("it has id %d, as has %q", t.ID, other)
		}
		ids[t.ID] = t.Name
		add := func(to *[]Field, items []itemJSON) {
			all, err := fields(items)
			if *to = all; err != nil && table.err == nil {
				table.err = err
			}
		}
		add(&table.Key, t.Key)
		for i, k := range t.Key {
			if table.Match = k.Match; i > 0 && k.Match != t.Key[0].Match {
				table.Match = ""
				break
			}
		}
		add(&table.Data, t.Data)
		for _, a := range t.Actions {
			action := Action{Name: a.Name, ID: a.ID}
			add(&action.Data, a.Data)
			table.Actions = append(table.Actions, action)
		}
		out.tables = append(out.tables, table)
	}
	return out, nil
}

func fields(items []itemJSON) (out []Field, err error) {
	var in []fieldJSON
	for _, i := range items {
		switch {
		case i.Singleton != nil:
			in = append(in, *i.Singleton)
		case i.OneOf != nil:
			in = append(in, i.OneOf...)
		default:
			in = append(in, i.fieldJSON)
		}
	}
	seen := map[uint32]bool{}
	for _, f := range in {
		if seen[f.ID] || f.ID == 0 {
			return nil, fmt.Errorf("field %q has id %d, which is 0 or used twice", f.Name, f.ID)
		}
		seen[f.ID] = true
		field := Field{Name: f.Name, ID: f.ID, Repeated: f.Repeated}
		switch f.Type.Type {
		case "bytes":
			field.Bits = f.Type.Width
		case "uint8", "uint16", "uint32", "uint64":
			fmt.Sscanf(f.Type.Type, "uint%d", &field.Bits)
		case "int64", "float":
			field.Bits = 64
		case "bool":
			field.Bool = true
		case "string":
			field.Text = true
		}
		if field.Bits < 0 || field.Bits > mostBits {
			return nil, fmt.Errorf("field %q has %d bits", f.Name, field.Bits)
		}
		out = append(out, field)
	}
	return out, nil
}

// Table finds a table by its name, or by the last part of that where one alone ends so.
func (i *Info) Table(name string) (*Table, error) {
	var found []*Table
	for _, t := range i.tables {
		if t.Name == name {
			found = []*Table{t}
			break
		}
		if last(t.Name) == name {
			found = append(found, t)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%w: %d tables are called %s", ErrInfo, len(found), name)
	}
	if t := found[0]; t.err != nil {
		return nil, fmt.Errorf("%w: table %s: %w", ErrInfo, t.Name, t.err)
	}
	return found[0], nil
}

// last is the part of a name after its controls.
func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// action finds one of a table's actions by the last part of its name.
func (t *Table) action(name string) (*Action, error) {
	for i := range t.Actions {
		if last(t.Actions[i].Name) == name {
			return &t.Actions[i], nil
		}
	}
	return nil, fmt.Errorf("%w: table %s has no action %s", ErrInfo, t.Name, name)
}

// field finds a field by its name.
func field(of []Field, name string) (*Field, error) {
	for i := range of {
		if of[i].Name == name {
			return &of[i], nil
		}
	}
	return nil, fmt.Errorf("%w: no field %s", ErrInfo, name)
}

// bytes is a number in all bytes of a field, big-endian, as BFRuntime wants it.
func (f *Field) bytes(v uint64) ([]byte, error) {
	if f.Bits < 64 && v>>f.Bits != 0 {
		return nil, fmt.Errorf("%w: %#x does not fit the %d bits of %s", p4.ErrRange, v, f.Bits, f.Name)
	}
	var all [8]byte
	binary.BigEndian.PutUint64(all[:], v)
	n := p4.Width(f.Bits)
	return append(make([]byte, max(0, n-8)), all[max(0, 8-n):]...), nil
}

// number is what bytes of a server say.
func number(b []byte) (uint64, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return p4.Uint(b, 64)
}

// key is a key of one field, which is matched exactly.
func (t *Table) key(v uint64) (*bfrtpb.TableKey, error) {
	if len(t.Key) != 1 {
		return nil, fmt.Errorf("%w: table %s has a key of %d fields", ErrInfo, t.Name, len(t.Key))
	}
	b, err := t.Key[0].bytes(v)
	if err != nil {
		return nil, fmt.Errorf("key of table %s: %w", t.Name, err)
	}
	return &bfrtpb.TableKey{Fields: []*bfrtpb.KeyField{{
		FieldId: t.Key[0].ID, MatchType: &bfrtpb.KeyField_Exact_{Exact: &bfrtpb.KeyField_Exact{Value: b}},
	}}}, nil
}

// keyOf is key's inverse.
func (t *Table) keyOf(e *bfrtpb.TableEntry) (uint64, error) {
	for _, f := range e.GetKey().GetFields() {
		if len(t.Key) == 1 && f.GetFieldId() == t.Key[0].ID {
			return number(f.GetExact().GetValue())
		}
	}
	return 0, fmt.Errorf("%w: an entry of table %s without its key", p4.ErrInvalid, t.Name)
}

// data is a field's value.
func (f *Field) data(v uint64) (*bfrtpb.DataField, error) {
	if f.Bool {
		return &bfrtpb.DataField{FieldId: f.ID, Value: &bfrtpb.DataField_BoolVal{BoolVal: v != 0}}, nil
	}
	b, err := f.bytes(v)
	return &bfrtpb.DataField{FieldId: f.ID, Value: &bfrtpb.DataField_Stream{Stream: b}}, err
}

// value is data's inverse.
func value(d *bfrtpb.DataField) (uint64, error) {
	if b, ok := d.GetValue().(*bfrtpb.DataField_BoolVal); ok {
		if b.BoolVal {
			return 1, nil
		}
		return 0, nil
	}
	return number(d.GetStream())
}
