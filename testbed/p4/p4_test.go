package p4

import (
	"bytes"
	"errors"
	"flag"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/inabench/inabench/testbed/ina"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random tests")

func random(t testing.TB) *rand.Rand {
	t.Logf("-seed %d", *seed)
	return rand.New(rand.NewPCG(*seed, 0))
}

func mustPipeline(t testing.TB, info *p4configv1.P4Info) *Pipeline {
	t.Helper()
	p, err := NewPipeline(info)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// recompiled is the p4info as another compiler might have emitted it: other ids,
// other parameter ids, other paths.
func recompiled() *p4configv1.P4Info {
	info := Info()
	move := func(p *p4configv1.Preamble) {
		p.Id = p.Id&0xFF000000 | (p.Id*2654435761)&0xFFFFFF
		p.Name = strings.Replace(p.Name, "ingress.", "Pipe.Ingress.ina_", 1)
		p.Name = strings.Replace(p.Name, "ina_", "ina.", 1)
	}
	for _, t := range info.Tables {
		move(t.Preamble)
		for _, m := range t.MatchFields {
			m.Id += 7
		}
	}
	for _, a := range info.Actions {
		move(a.Preamble)
		for _, p := range a.Params {
			p.Id = 100 - p.Id
		}
	}
	for _, c := range info.Counters {
		move(c.Preamble)
	}
	return info
}

// TestInfo holds the embedded p4info to the rules of the specification: type
// prefixes, ids used once, references that lead somewhere.
func TestInfo(t *testing.T) {
	info := Info()
	ids := make(map[uint32]string)
	check := func(p *p4configv1.Preamble, prefix p4configv1.P4Ids_Prefix) {
		t.Helper()
		if got := p.Id >> 24; got != uint32(prefix) {
			t.Errorf("%s: id %#x has prefix %#x, want %#x", p.Name, p.Id, got, prefix)
		}
		if other, twice := ids[p.Id]; twice {
			t.Errorf("id %#x is used by %s and %s", p.Id, other, p.Name)
		}
		ids[p.Id] = p.Name
		if !strings.HasSuffix(p.Name, "."+p.Alias) {
			t.Errorf("%s: alias %q is not its last name", p.Name, p.Alias)
		}
	}
	for _, a := range info.Actions {
		check(a.Preamble, p4configv1.P4Ids_ACTION)
	}
	for _, tab := range info.Tables {
		check(tab.Preamble, p4configv1.P4Ids_TABLE)
		for _, r := range tab.ActionRefs {
			if ids[r.Id] == "" {
				t.Errorf("%s refers to action %#x, which is not there", tab.Preamble.Name, r.Id)
			}
		}
		if ids[tab.ConstDefaultActionId] == "" {
			t.Errorf("%s has default action %#x, which is not there", tab.Preamble.Name, tab.ConstDefaultActionId)
		}
	}
	for _, c := range info.Counters {
		check(c.Preamble, p4configv1.P4Ids_COUNTER)
		if c.Spec.Unit != p4configv1.CounterSpec_BOTH {
			t.Errorf("%s counts %v, want packets and bytes", c.Preamble.Name, c.Spec.Unit)
		}
	}
	if len(info.Registers) != 0 {
		t.Error("registers are UNIMPLEMENTED on most targets: nothing may depend on one")
	}
}

// TestNewPipelineRefuses takes pieces of the p4info away, or adds some, and wants
// the missing name in the error.
func TestNewPipelineRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(*p4configv1.P4Info)
		is     error
		says   string
	}{
		{"no job table", func(i *p4configv1.P4Info) { i.Tables = i.Tables[:1] }, ErrUnknown, `table "job"`},
		{"no tables", func(i *p4configv1.P4Info) { i.Tables = nil }, ErrUnknown, `table "job"`},
		{"no forward action", func(i *p4configv1.P4Info) { i.Actions = i.Actions[1:] }, ErrUnknown, `action "forward"`},
		{"renamed parameter", func(i *p4configv1.P4Info) { i.Actions[2].Params[8].Name = "win" }, ErrUnknown, `parameter "window" of action "aggregate"`},
		{"more parameters", func(i *p4configv1.P4Info) {
			i.Actions[0].Params = append(i.Actions[0].Params, &p4configv1.Action_Param{Id: 9, Name: "vlan", Bitwidth: 12})
		}, ErrInvalid, `action "forward" has 3 parameters`},
		{"parameter ids clash", func(i *p4configv1.P4Info) { i.Actions[0].Params[1].Id = 1 }, ErrInvalid, "two parameters with id 1"},
		{"two match fields", func(i *p4configv1.P4Info) {
			i.Tables[1].MatchFields = append(i.Tables[1].MatchFields, i.Tables[1].MatchFields[0])
		}, ErrInvalid, "one exact match field"},
		{"table ids clash", func(i *p4configv1.P4Info) { i.Tables[0].Preamble.Id = i.Tables[1].Preamble.Id }, ErrInvalid, "share id"},
		{"counter ids clash", func(i *p4configv1.P4Info) { i.Counters[0].Preamble.Id = i.Counters[1].Preamble.Id }, ErrInvalid, "port_tx"},
		{"huge counter", func(i *p4configv1.P4Info) { i.Counters[0].Size = 1 << 40 }, ErrInvalid, "port_rx"},
		{"exclusive trees without a window", func(i *p4configv1.P4Info) { i.Actions[4].Params[5].Name = "win" }, ErrUnknown, `parameter "window" of action "aggregate_exclusive"`},
		{"action ids clash", func(i *p4configv1.P4Info) { i.Actions[4].Preamble.Id = i.Actions[2].Preamble.Id }, ErrInvalid, "actions aggregate and aggregate_exclusive share id"},
		{"empty", func(i *p4configv1.P4Info) { proto.Reset(i) }, ErrUnknown, "table"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			info := Info()
			tt.change(info)
			p, err := NewPipeline(info)
			if p != nil || !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v, %v; want an error wrapping %q that says %q", p, err, tt.is, tt.says)
			}
		})
	}
}

// TestUint is the specification's tables of valid and invalid byte strings, for bit<W>.
func TestUint(t *testing.T) {
	tests := []struct {
		width int
		in    string
		want  uint64
		ok    bool
	}{
		{8, "\x63", 99, true},
		{16, "\x00\x63", 99, true},
		{16, "\x63", 99, true},
		{16, "\x30\x64", 12388, true},
		{16, "\x00\x30\x64", 12388, true},
		{12, "\x00\x63", 99, true},
		{12, "\x00\x00\x63", 99, true},
		{16, "\x00", 0, true},
		{64, "\xff\xff\xff\xff\xff\xff\xff\xff", 1<<64 - 1, true},
		{64, "\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", 1<<64 - 1, true},
		{128, "\x01\x00\x00\x00\x00\x00\x00\x00\x00", 0, false}, // no field of ours is that wide
		{8, "\x01\x63", 0, false},
		{8, "", 0, false},
		{16, "\x01\x00\x63", 0, false},
		{12, "\x10\x63", 0, false},
		{12, "\x01\x00\x63", 0, false},
		{12, "\x00\x40\x63", 0, false},
		{1, "\x02", 0, false},
	}
	for _, tt := range tests {
		got, err := Uint([]byte(tt.in), tt.width)
		if (err == nil) != tt.ok || got != tt.want || err != nil && !errors.Is(err, ErrRange) {
			t.Errorf("Uint(%x, %d) = %d, %v; want %d, ok %v", tt.in, tt.width, got, err, tt.want, tt.ok)
		}
	}
}

func FuzzBytes(f *testing.F) {
	f.Add([]byte{0}, uint64(0))
	f.Add([]byte{0, 0, 1, 0}, uint64(256))
	f.Fuzz(func(t *testing.T, b []byte, v uint64) {
		if got, err := Uint(Bytes(v), max(1, bits.Len64(v))); err != nil || got != v {
			t.Fatalf("%d became %d, %v", v, got, err)
		}
		got, err := Uint(b, 64)
		if err != nil {
			if got != 0 {
				t.Fatalf("error and value %d", got)
			}
			return
		}
		if canonical := Bytes(got); !bytes.HasSuffix(b, canonical) {
			t.Fatalf("%x reads as %x, which is not its end", b, canonical)
		}
	})
}

// randomJob fills every field of an entry, so that a field added to ina.JobEntry
// and forgotten here is found.
func randomJob(r *rand.Rand) ina.JobEntry {
	var e ina.JobEntry
	v := reflect.ValueOf(&e).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case f.CanUint():
			f.SetUint(r.Uint64() >> r.UintN(64) & (1<<f.Type().Bits() - 1))
		case f.Kind() == reflect.Bool:
			f.SetBool(r.IntN(2) == 0)
		default:
			panic("field " + v.Type().Field(i).Name + " has a kind this test does not know")
		}
	}
	e.Job = 1 + uint16(r.UintN(ina.MaxJob))
	e.Mode = ina.Mode(r.UintN(4))
	e.Addressing = ina.Addressing(r.UintN(4))
	switch e.Mode {
	case ina.Forward:
		e = forwardOnly(e)
	case ina.Exclusive:
		e = exclusiveOnly(e)
	}
	return e
}

// TestRoundTrip encodes random jobs, routes and groups for two p4infos with
// different ids and decodes them again, also through the wire.
func TestRoundTrip(t *testing.T) {
	r := random(t)
	for name, info := range map[string]*p4configv1.P4Info{"embedded": Info(), "recompiled": recompiled()} {
		p := mustPipeline(t, info)
		for range 500 {
			job := randomJob(r)
			te, err := p.EncodeJob(job)
			if err != nil {
				t.Fatalf("%s: encode %+v: %v", name, job, err)
			}
			gotJob, err := p.DecodeJob(wire(t, te))
			if err != nil || gotJob != job {
				t.Fatalf("%s: job\n%+v became\n%+v, %v", name, job, gotJob, err)
			}
			if tab, key, err := p.Key(te); tab != JobTable || key != uint64(job.Job) || err != nil {
				t.Fatalf("%s: key of job %d is %s %d, %v", name, job.Job, tab, key, err)
			}
			canonical(t, te)

			route := Route{Port: r.Uint32() >> r.UintN(32)}
			for i := range route.Dst {
				route.Dst[i] = byte(r.UintN(256))
			}
			for i := range route.MAC {
				route.MAC[i] = byte(r.UintN(256)) >> r.UintN(8)
			}
			te, err = p.EncodeRoute(route)
			if err != nil {
				t.Fatalf("%s: encode %+v: %v", name, route, err)
			}
			gotRoute, err := p.DecodeRoute(wire(t, te))
			if err != nil || gotRoute != route {
				t.Fatalf("%s: route %+v became %+v, %v", name, route, gotRoute, err)
			}
			canonical(t, te)

			group := Group{ID: 1 + uint16(r.UintN(1<<16-1))}
			for i := range r.UintN(8) {
				group.Ports = append(group.Ports, r.Uint32()&^7|uint32(i))
			}
			m, err := EncodeGroup(group)
			if err != nil {
				t.Fatalf("%s: encode %+v: %v", name, group, err)
			}
			gotGroup, err := DecodeGroup(wire(t, m))
			if err != nil || !cmp.Equal(gotGroup, group) {
				t.Fatalf("%s: group %+v became %+v, %v", name, group, gotGroup, err)
			}
		}
	}
}

func wire[M proto.Message](t *testing.T, m M) M {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got := m.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	return got
}

// canonical fails when a byte string in te is longer than its value needs.
func canonical(t *testing.T, te *p4v1.TableEntry) {
	t.Helper()
	check := func(b []byte) {
		t.Helper()
		if len(b) == 0 || len(b) > 1 && b[0] == 0 {
			t.Fatalf("%x is not canonical", b)
		}
	}
	check(te.Match[0].GetExact().Value)
	for _, p := range te.Action.GetAction().Params {
		check(p.Value)
	}
}

// TestNarrowTarget encodes for a target with 9-bit ports, as v1model has.
func TestNarrowTarget(t *testing.T) {
	info := Info()
	for _, a := range info.Actions {
		for _, p := range a.Params {
			if strings.HasSuffix(p.Name, "port") {
				p.Bitwidth = 9
			}
		}
	}
	p := mustPipeline(t, info)
	if _, err := p.EncodeRoute(Route{Port: 511}); err != nil {
		t.Error(err)
	}
	_, err := p.EncodeRoute(Route{Dst: [4]byte{10, 0, 0, 1}, Port: 512})
	if !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), "route to 10.0.0.1: parameter port") {
		t.Errorf("port 512 in 9 bits: %v", err)
	}
	_, err = p.EncodeJob(ina.JobEntry{Job: 3, Mode: ina.Statistical, UpPort: 512})
	if !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), "job 3: parameter up_port") {
		t.Errorf("up port 512 in 9 bits: %v", err)
	}
}

// TestDerivedParameters: a program that cannot work them out is told what follows from an entry, and the entry comes back
// as it was.
func TestDerivedParameters(t *testing.T) {
	info := Info()
	agg := info.Actions[2]
	for _, name := range []string{"mask", "memory"} {
		agg.Params = append(agg.Params, &p4configv1.Action_Param{Id: uint32(len(agg.Params) + 1), Name: name, Bitwidth: 16})
	}
	p := mustPipeline(t, info)
	for _, tt := range []struct {
		size         uint32
		mask, memory uint64
	}{{0, 0, 0}, {1, 0, 1}, {16384, 16383, 1}} {
		want := ina.JobEntry{Job: 3, Mode: ina.Statistical, Addressing: ina.Hash, Size: tt.size, Expect: 3, Window: 4}
		a, err := p.JobAction(want)
		if err != nil || a.Params["mask"] != tt.mask || a.Params["memory"] != tt.memory {
			t.Errorf("size %d: %v, %v", tt.size, a, err)
		}
		te, err := p.EncodeJob(want)
		if err != nil || len(te.Action.GetAction().Params) != len(agg.Params) {
			t.Fatalf("size %d: %v, %v", tt.size, te, err)
		}
		if got, err := p.DecodeJob(te); err != nil || got != want {
			t.Errorf("size %d came back as %+v, %v", tt.size, got, err)
		}
		if got, err := p.JobOf(3, a); err != nil || got != want {
			t.Errorf("size %d came back as %+v, %v", tt.size, got, err)
		}
	}
}

// TestNoExclusiveTrees: a program without them serves all other jobs.
func TestNoExclusiveTrees(t *testing.T) {
	info := Info()
	info.Actions = info.Actions[:4]
	p := mustPipeline(t, info)
	if _, err := p.EncodeJob(ina.JobEntry{Job: 1, Mode: ina.Synchronous}); err != nil {
		t.Error(err)
	}
	if te, err := p.EncodeJob(ina.JobEntry{Job: 1, Mode: ina.Exclusive}); te != nil || !errors.Is(err, ErrUnknown) {
		t.Errorf("exclusive tree became %v, %v", te, err)
	}
	te, err := mustPipeline(t, Info()).EncodeJob(ina.JobEntry{Job: 1, Mode: ina.Exclusive})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := p.DecodeJob(te); !errors.Is(err, ErrInvalid) {
		t.Errorf("decoded %+v, %v", e, err)
	}
}

// TestDecodeRefuses changes one thing in a good entry at a time.
func TestDecodeRefuses(t *testing.T) {
	p := mustPipeline(t, Info())
	good := func() *p4v1.TableEntry {
		te, err := p.EncodeJob(ina.JobEntry{Job: 7, Mode: ina.Statistical, Size: 64})
		if err != nil {
			t.Fatal(err)
		}
		return te
	}
	tests := []struct {
		name   string
		change func(*p4v1.TableEntry)
		is     error
	}{
		{"other table", func(e *p4v1.TableEntry) { e.TableId = p.TableID(RouteTable) }, ErrInvalid},
		{"no match", func(e *p4v1.TableEntry) { e.Match = nil }, ErrInvalid},
		{"match twice", func(e *p4v1.TableEntry) { e.Match = append(e.Match, e.Match[0]) }, ErrInvalid},
		{"other field", func(e *p4v1.TableEntry) { e.Match[0].FieldId = 2 }, ErrInvalid},
		{"ternary", func(e *p4v1.TableEntry) {
			e.Match[0].FieldMatchType = &p4v1.FieldMatch_Ternary_{Ternary: &p4v1.FieldMatch_Ternary{}}
		}, ErrInvalid},
		{"nil match", func(e *p4v1.TableEntry) { e.Match[0] = nil }, ErrInvalid},
		{"empty key", func(e *p4v1.TableEntry) { e.Match[0].GetExact().Value = nil }, ErrRange},
		{"wide key", func(e *p4v1.TableEntry) { e.Match[0].GetExact().Value = []byte{1, 0, 7} }, ErrRange},
		{"job 0", func(e *p4v1.TableEntry) { e.Match[0].GetExact().Value = []byte{0} }, ErrRange},
		{"job 4096", func(e *p4v1.TableEntry) { e.Match[0].GetExact().Value = []byte{0x10, 0} }, ErrRange},
		{"priority", func(e *p4v1.TableEntry) { e.Priority = 1 }, ErrInvalid},
		{"idle timeout", func(e *p4v1.TableEntry) { e.IdleTimeoutNs = 1 }, ErrInvalid},
		{"counter data", func(e *p4v1.TableEntry) { e.CounterData = &p4v1.CounterData{} }, ErrInvalid},
		{"default action", func(e *p4v1.TableEntry) { e.IsDefaultAction = true }, ErrInvalid},
		{"no action", func(e *p4v1.TableEntry) { e.Action = nil }, ErrInvalid},
		{"action profile", func(e *p4v1.TableEntry) {
			e.Action.Type = &p4v1.TableAction_ActionProfileMemberId{ActionProfileMemberId: 1}
		}, ErrInvalid},
		{"action of another table", func(e *p4v1.TableEntry) { e.Action.GetAction().ActionId = p.forward.id }, ErrInvalid},
		{"default-only action", func(e *p4v1.TableEntry) { e.Action.GetAction().ActionId = 0x01000002 }, ErrInvalid},
		{"parameter missing", func(e *p4v1.TableEntry) { a := e.Action.GetAction(); a.Params = a.Params[1:] }, ErrInvalid},
		{"parameter twice", func(e *p4v1.TableEntry) { a := e.Action.GetAction(); a.Params[1] = a.Params[0] }, ErrInvalid},
		{"parameter too many", func(e *p4v1.TableEntry) {
			a := e.Action.GetAction()
			a.Params = append(a.Params, &p4v1.Action_Param{ParamId: 99, Value: []byte{0}})
		}, ErrInvalid},
		{"parameter too wide", func(e *p4v1.TableEntry) { e.Action.GetAction().Params[0].Value = []byte{1, 0, 0} }, ErrRange},
		{"parameter empty", func(e *p4v1.TableEntry) { e.Action.GetAction().Params[3].Value = nil }, ErrRange},
		{"mode 0 aggregates", func(e *p4v1.TableEntry) { e.Action.GetAction().Params[1].Value = []byte{0} }, ErrInvalid},
		{"mode 3", func(e *p4v1.TableEntry) { e.Action.GetAction().Params[1].Value = []byte{3} }, ErrInvalid},
		{"addressing 4", func(e *p4v1.TableEntry) { e.Action.GetAction().Params[2].Value = []byte{4} }, ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			te := good()
			tt.change(te)
			if e, err := p.DecodeJob(te); !errors.Is(err, tt.is) || e != (ina.JobEntry{}) {
				t.Fatalf("got %+v, %v; want zero and %q", e, err, tt.is)
			}
		})
	}
}

// TestEncodeRefuses: what a switch could not decode is not encoded either.
func TestEncodeRefuses(t *testing.T) {
	p := mustPipeline(t, Info())
	for _, e := range []ina.JobEntry{
		{Job: 0, Mode: ina.Statistical},
		{Job: ina.MaxJob + 1},
		{Job: 1, Mode: ina.Exclusive + 1},
		{Job: 1, Mode: ina.Statistical, Addressing: 4},
	} {
		if te, err := p.EncodeJob(e); err == nil || te != nil {
			t.Errorf("%+v became %v", e, te)
		}
	}
	for _, g := range []Group{{ID: 0}, {ID: 1, Ports: []uint32{4, 4}}} {
		if m, err := EncodeGroup(g); err == nil || m != nil {
			t.Errorf("%+v became %v", g, m)
		}
	}
	if _, err := p.Counter("port_nothing"); !errors.Is(err, ErrUnknown) {
		t.Errorf("counter port_nothing: %v", err)
	}
}

// FuzzDecode: what decodes encodes again to an entry that decodes to the same, and
// an error comes with a zero value.
func FuzzDecode(f *testing.F) {
	p := mustPipeline(f, Info())
	r := random(f)
	for range 8 {
		te, _ := p.EncodeJob(randomJob(r))
		b, _ := proto.Marshal(te)
		f.Add(b)
	}
	te, _ := p.EncodeRoute(Route{Dst: [4]byte{10, 1, 0, 2}, Port: 3, MAC: [6]byte{2, 0, 0, 0, 0, 1}})
	b, _ := proto.Marshal(te)
	f.Add(b)
	m, _ := EncodeGroup(Group{ID: 9, Ports: []uint32{1, 2}})
	b, _ = proto.Marshal(m)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var te p4v1.TableEntry
		if proto.Unmarshal(b, &te) == nil {
			checkDecode(t, p.DecodeJob, p.EncodeJob, &te)
			checkDecode(t, p.DecodeRoute, p.EncodeRoute, &te)
		}
		var m p4v1.MulticastGroupEntry
		if proto.Unmarshal(b, &m) == nil {
			g, err := DecodeGroup(&m)
			if err != nil && !cmp.Equal(g, Group{}) {
				t.Fatalf("error %v and group %+v", err, g)
			}
		}
	})
}

func checkDecode[E comparable](t *testing.T, dec func(*p4v1.TableEntry) (E, error), enc func(E) (*p4v1.TableEntry, error), te *p4v1.TableEntry) {
	t.Helper()
	var zero E
	e, err := dec(te)
	if err != nil {
		if e != zero {
			t.Fatalf("error %v and value %+v", err, e)
		}
		return
	}
	again, err := enc(e)
	if err != nil {
		t.Fatalf("decoded %+v does not encode: %v", e, err)
	}
	canonical(t, again)
	if back, err := dec(again); err != nil || back != e {
		t.Fatalf("%+v became %+v, %v", e, back, err)
	}
}

// TestRecompiledDiffers guards the test data: the second p4info shares no id with
// the first, so no id can be built in.
func TestRecompiledDiffers(t *testing.T) {
	if cmp.Equal(Info(), recompiled(), protocmp.Transform()) {
		t.Fatal("recompiled p4info is the same")
	}
	ids := make(map[uint32]bool)
	collect := func(info *p4configv1.P4Info, see func(uint32)) {
		for _, x := range info.Tables {
			see(x.Preamble.Id)
		}
		for _, x := range info.Actions {
			see(x.Preamble.Id)
		}
		for _, x := range info.Counters {
			see(x.Preamble.Id)
		}
	}
	collect(Info(), func(id uint32) { ids[id] = true })
	collect(recompiled(), func(id uint32) {
		if ids[id] {
			t.Errorf("id %#x is in both", id)
		}
	})
}

// forwardOnly is e as a switch keeps it in mode Forward: without the fields that
// only aggregation uses.
func forwardOnly(e ina.JobEntry) ina.JobEntry {
	return ina.JobEntry{Job: e.Job, Epoch: e.Epoch, UpPort: e.UpPort, DownGroup: e.DownGroup}
}

// exclusiveOnly is e as a switch keeps it in mode Exclusive: without the fields that
// only statistical aggregation uses.
func exclusiveOnly(e ina.JobEntry) ina.JobEntry {
	e.Addressing, e.Offset = 0, 0
	return e
}
