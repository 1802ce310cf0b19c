package rpc

import (
	"errors"
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/inabench/inabench/internal/bounded"
)

// messages counts as count does, in what was made of the bytes.
func messages(m protoreflect.Message) (n int) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		one := func(v protoreflect.Value) {
			switch {
			case f.Message() != nil:
				n += 1 + messages(v.Message())
			case f.IsList() && (f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind):
				n++
			}
		}
		switch {
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				n += 1 + mapEntry
				if f.MapValue().Message() != nil {
					n += 1 + messages(v.Message())
				}
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				one(v.List().Get(i))
			}
		default:
			one(v)
		}
		return true
	})
	return n
}

// value is a random JSON document, some levels deep.
func value(rnd *rand.Rand, depth int) *structpb.Value {
	switch n := rnd.IntN(4); {
	case depth == 0 || n == 0:
		return structpb.NewStringValue("x")
	case n == 1:
		l := &structpb.ListValue{}
		for range rnd.IntN(5) {
			l.Values = append(l.Values, value(rnd, depth-1))
		}
		return structpb.NewListValue(l)
	default:
		s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for i := range rnd.IntN(5) {
			s.Fields[string(rune('a'+i))] = value(rnd, depth-1)
		}
		return structpb.NewStructValue(s)
	}
}

// TestCount: what is counted on the wire is what there is afterwards, exactly: with one less it is refused.
func TestCount(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	all := []proto.Message{
		&descriptorpb.FileDescriptorProto{},
		&descriptorpb.FileDescriptorProto{Dependency: []string{"", "a"}, PublicDependency: []int32{1, 2}, MessageType: []*descriptorpb.DescriptorProto{{}, {Name: proto.String("m")}}},
	}
	for range 100 {
		all = append(all, value(rnd, 5))
	}
	for _, m := range all {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		n := messages(m.ProtoReflect())
		if left, err := count(b, m.ProtoReflect().Descriptor(), n, deepest); left != 0 || err != nil {
			t.Errorf("%d of %d messages are left, %v, of %v", left, n, err, m)
		}
		if n == 0 {
			continue
		}
		if _, err := count(b, m.ProtoReflect().Descriptor(), n-1, deepest); !errors.Is(err, bounded.ErrTooLarge) {
			t.Errorf("%d messages where %d may be: %v", n, n-1, err)
		}
	}
}

// lists are n empty lists in one.
func lists(n int) []byte {
	var b []byte
	for range n {
		b = append(b, 0x0a, 0x00)
	}
	return b
}

func TestAnswer(t *testing.T) {
	take := func(a *Answer, n int) error {
		return codec{bound: a}.bound.take(mem.BufferSlice{mem.SliceBuffer(lists(n))}, (&structpb.ListValue{}).ProtoReflect().Descriptor())
	}
	t.Run("messages", func(t *testing.T) {
		a := NewAnswer(1<<20, 1000)
		for i, n := range []int{400, 900, 100} { // the first is short enough not to be looked at
			if err := take(a, n); err != nil {
				t.Fatalf("part %d: %v", i, err)
			}
		}
		if err := take(a, 1); !errors.Is(err, bounded.ErrTooLarge) {
			t.Error(err)
		}
		if err := a.Err(errors.New("what gRPC says")); !errors.Is(err, bounded.ErrTooLarge) {
			t.Error(err)
		}
		if err := a.Err(nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		a := NewAnswer(1<<20, 1<<30)
		if err := take(a, 1<<19); err != nil {
			t.Fatal(err)
		}
		if err := take(a, 1); !errors.Is(err, bounded.ErrTooLarge) {
			t.Error(err)
		}
	})
	t.Run("each", func(t *testing.T) {
		a := &Answer{each: true, messages: 1000}
		for range 10 {
			if err := take(a, 1000); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if err := take(a, 1001); !errors.Is(err, bounded.ErrTooLarge) {
				t.Error(err)
			}
		}
		if a.err != nil {
			t.Errorf("it is kept: %v", a.err)
		}
	})
	t.Run("depth", func(t *testing.T) {
		var b []byte
		for range 40 { // a list in a value in a list and so on
			b = protowire.AppendBytes([]byte{0x0a}, protowire.AppendBytes([]byte{0x32}, b))
		}
		if _, err := count(b, (&structpb.ListValue{}).ProtoReflect().Descriptor(), 1000, deepest); !errors.Is(err, bounded.ErrTooLarge) {
			t.Error(err)
		}
	})
}

// FuzzCount: whatever the bytes are, what protobuf makes of them has no more messages than were counted.
func FuzzCount(f *testing.F) {
	f.Add(lists(3))
	f.Add([]byte{0x0a, 0x02, 0x32, 0x00, 0xff})
	f.Add([]byte{0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, b []byte) {
		const most = 1000
		left, err := count(b, (&structpb.ListValue{}).ProtoReflect().Descriptor(), most, deepest)
		var l structpb.ListValue
		if proto.Unmarshal(b, &l) != nil || errors.Is(err, bounded.ErrTooLarge) {
			return
		}
		if err != nil {
			t.Fatalf("protobuf reads it, but: %v", err)
		}
		if n := messages(l.ProtoReflect()); n > most-left {
			t.Errorf("%d messages, counted were %d", n, most-left)
		}
	})
}
