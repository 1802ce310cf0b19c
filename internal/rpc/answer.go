package rpc

import (
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto" // registers the codec, too
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/inabench/inabench/internal/bounded"
)

const (
	// Messages is how many messages what a switch has may be: counters of 300,000 cells are 1,200,000. Most of them take
	// some 100 bytes of memory.
	Messages = 3 << 19
	// Few is how many messages all else that a switch says may be, in one: a description of a program is some thousands.
	Few = 1 << 18
)

// Answer bounds what a client takes of a server in one call. gRPC bounds the bytes of a message, which says little of
// the memory that it takes: an empty message within another has two bytes on the wire, and a hundred here. So those
// are counted before anything is made of them.
type Answer struct {
	each            bool // the bounds are those of each message that is received
	bytes, messages int

	mu                    sync.Mutex
	hadBytes, hadMessages int
	err                   error
}

// NewAnswer bounds one call: all that is received in it has at most that many bytes on the wire, in about as many
// messages, those within others included. Its Option goes with the call.
func NewAnswer(bytes, messages int) *Answer {
	return &Answer{bytes: bytes, messages: messages}
}

// EachMessage has no message of a connection's calls hold more than about that many others.
func EachMessage(messages int) grpc.CallOption {
	return (&Answer{each: true, messages: messages}).Option()
}

// Option is what the call is made with.
func (a *Answer) Option() grpc.CallOption {
	return grpc.ForceCodecV2(codec{encoding.GetCodecV2(proto.Name), a})
}

// Err is why a call failed that gRPC says has failed with err: an error that wraps bounded.ErrTooLarge where it was
// for this bound.
func (a *Answer) Err(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil && a.err != nil {
		return a.err
	}
	return err
}

// codec is gRPC's own, with a bound.
type codec struct {
	encoding.CodecV2
	bound *Answer
}

// Name is that of no other codec: servers are told nothing of this one.
func (codec) Name() string { return "" }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(protoreflect.ProtoMessage); ok {
		if err := c.bound.take(data, m.ProtoReflect().Descriptor()); err != nil {
			return err
		}
	}
	return c.CodecV2.Unmarshal(data, v)
}

// take counts a message.
func (a *Answer) take(data mem.BufferSlice, d protoreflect.MessageDescriptor) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.each {
		a.hadBytes, a.hadMessages = 0, 0
	}
	a.hadBytes += data.Len()
	err := error(nil)
	switch {
	case a.bytes > 0 && a.hadBytes > a.bytes:
		err = fmt.Errorf("the answer is %w: more than %d MiB", bounded.ErrTooLarge, a.bytes>>20)
	case a.hadBytes > a.messages: // otherwise there are at most half as many messages
		wire := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer wire.Free()
		var left int
		if left, err = count(wire.ReadOnlyData(), d, a.messages-a.hadMessages, deepest); err == nil {
			a.hadMessages = a.messages - left
		}
	}
	if a.err == nil && !a.each && errors.Is(err, bounded.ErrTooLarge) {
		a.err = err
	}
	return err
}

const (
	deepest  = 64 // messages may be within each other
	mapEntry = 3  // messages more are what an entry of a map counts, for the map
)

// count takes what a message holds from what is left: messages, and elements of lists that have a size.
func count(b []byte, d protoreflect.MessageDescriptor, left, depth int) (int, error) {
	if depth == 0 {
		return 0, fmt.Errorf("the answer is %w: messages within each other %d deep", bounded.ErrTooLarge, deepest)
	}
	fields := d.Fields()
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return 0, protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		inner, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
		f := fields.ByNumber(num)
		if f == nil { // its bytes are kept as they are
			continue
		}
		within := f.Message()
		if within == nil && (!f.IsList() || f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.BytesKind) {
			continue
		}
		if left--; f.IsMap() {
			left -= mapEntry
		}
		if left < 0 {
			return 0, fmt.Errorf("the answer is %w: too many messages in it", bounded.ErrTooLarge)
		}
		if within != nil {
			var err error
			if left, err = count(inner, within, left, depth-1); err != nil {
				return 0, err
			}
		}
	}
	return left, nil
}
