package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// HeaderSize is the bytes of a header.
const HeaderSize = 72

// MaxText is how many bytes of text a frame may carry.
const MaxText = 1024

// magic is in every frame, after its length.
const magic = 0x5350 // "PS"

// Errors.
var (
	// ErrFrame is that of bytes that are not a frame.
	ErrFrame = errors.New("not a frame")
	// ErrProtocol is that of frames of another version of the protocol.
	ErrProtocol = errors.New("another version of the protocol")
)

// Kind is what a frame is: one of migrate's data plane, TensorCopy, CopyAck, or one of these.
type Kind = migrate.Kind

// Kinds of frames that are between hubs.
const (
	Hello   Kind = iota + 64 // the first on a connection: who I am, and whom I mean
	Welcome                  // its answer
	Refused                  // its other answer, before the connection is closed; or about a tensor: why
	Poke                     // worker to Aggregator: what about the gradient that I pushed here?
	Unknown                  // I do not know this tensor, or have not got that gradient: send it again
)

// Header is a frame without its values.
type Header struct {
	Kind    Kind
	Key     control.Key
	Term    migrate.Term
	Next    migrate.Term
	Version uint64
	At      int32
	// Held is how long what a Model answers was at the Aggregator.
	Held time.Duration
	// Elements is how many float32 values follow, or in Refused, how many times four bytes of
	// text.
	Elements int
}

// HeaderOf is that of a message about a tensor, without its data.
func HeaderOf(k control.Key, m *migrate.Message[*Block]) Header {
	return Header{Kind: m.Kind, Key: k, Term: m.Term, Next: m.Next, Version: m.Version, At: m.At}
}

// Message is the reverse of HeaderOf, with what the header does not say.
func (h *Header) Message(from, to migrate.Node, b *Block) migrate.Message[*Block] {
	return migrate.Message[*Block]{Kind: h.Kind, From: from, To: to, Term: h.Term, Version: h.Version, Next: h.Next, At: h.At, Data: b}
}

// carries is how many values a frame of a kind may have.
func carries(k Kind) (least, most int, ok bool) {
	switch k {
	case migrate.Push, migrate.Model, migrate.TensorCopy:
		return 1, control.MaxElements, true
	case migrate.Pull, migrate.Wait, migrate.Moved, migrate.CopyAck, Hello, Welcome, Poke, Unknown:
		return 0, 0, true
	case Refused:
		return 0, MaxText / 4, true
	}
	return 0, 0, false
}

// check returns an error wrapping ErrFrame unless there may be such a header.
func (h *Header) check() error {
	least, most, ok := carries(h.Kind)
	switch {
	case !ok:
		return fmt.Errorf("%v: %w", h.Kind, ErrFrame)
	case h.Elements < least || h.Elements > most:
		return fmt.Errorf("%v with %d values, not %d to %d: %w", h.Kind, h.Elements, least, most, ErrFrame)
	case h.Held < 0:
		return fmt.Errorf("%v held %v: %w", h.Kind, h.Held, ErrFrame)
	}
	return nil
}

// AppendHeader appends a header's bytes. The header must be one that ParseHeader returns.
func AppendHeader(b []byte, h *Header) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(HeaderSize-4+4*h.Elements))
	b = le.AppendUint16(b, magic)
	b = append(b, control.Protocol, byte(h.Kind))
	b = le.AppendUint32(b, h.Key.Job)
	b = le.AppendUint32(b, h.Key.Tensor)
	b = le.AppendUint64(b, h.Term.Epoch)
	b = le.AppendUint64(b, h.Term.Seq)
	b = le.AppendUint64(b, h.Next.Epoch)
	b = le.AppendUint64(b, h.Next.Seq)
	b = le.AppendUint64(b, h.Version)
	b = le.AppendUint64(b, uint64(h.Held))
	b = le.AppendUint32(b, uint32(h.At))
	return le.AppendUint32(b, uint32(h.Elements))
}

// ParseHeader reads a header. It is strict: what it takes, AppendHeader gives back. Errors wrap
// ErrFrame or ErrProtocol, and the header is zero then.
func ParseHeader(b []byte) (Header, error) {
	le := binary.LittleEndian
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%d bytes: %w", len(b), ErrFrame)
	}
	if m := le.Uint16(b[4:]); m != magic {
		return Header{}, fmt.Errorf("it begins with %#04x instead of %#04x: %w", m, magic, ErrFrame)
	}
	if b[6] != control.Protocol {
		return Header{}, fmt.Errorf("version %d, this is %d: %w", b[6], control.Protocol, ErrProtocol)
	}
	h := Header{
		Kind:     Kind(b[7]),
		Key:      control.Key{Job: le.Uint32(b[8:]), Tensor: le.Uint32(b[12:])},
		Term:     migrate.Term{Epoch: le.Uint64(b[16:]), Seq: le.Uint64(b[24:])},
		Next:     migrate.Term{Epoch: le.Uint64(b[32:]), Seq: le.Uint64(b[40:])},
		Version:  le.Uint64(b[48:]),
		Held:     time.Duration(le.Uint64(b[56:])),
		At:       int32(le.Uint32(b[64:])),
		Elements: int(le.Uint32(b[68:])),
	}
	if err := h.check(); err != nil {
		return Header{}, err
	}
	if n := le.Uint32(b); n != uint32(HeaderSize-4+4*h.Elements) {
		return Header{}, fmt.Errorf("%v of %d values in %d bytes: %w", h.Kind, h.Elements, n, ErrFrame)
	}
	return h, nil
}

// Node is one end of a connection.
type Node struct {
	migrate.Node
	Job uint32 // of workers
}

func (n Node) String() string {
	if n.Role == migrate.Worker {
		return fmt.Sprintf("%v of job %d", n.Node, n.Job)
	}
	return n.Node.String()
}

// AggregatorNode is the Aggregator of that id.
func AggregatorNode(id int32) Node { return Node{Node: migrate.Node{Role: migrate.Aggregator, ID: id}} }

// WorkerNode is the worker of that rank.
func WorkerNode(job uint32, rank int32) Node {
	return Node{Node: migrate.Node{Role: migrate.Worker, ID: rank}, Job: job}
}

// hello is the header by which a node presents itself to an Aggregator.
func hello(from Node, to int32) Header {
	return Header{Kind: Hello, Key: control.Key{Job: from.Job}, Version: uint64(from.Role)<<32 | uint64(uint32(from.ID)), At: to}
}

// greeted is who a hello is from.
func greeted(h *Header) (from Node, to int32, err error) {
	role := migrate.Role(h.Version >> 32)
	from = Node{Node: migrate.Node{Role: role, ID: int32(uint32(h.Version))}, Job: h.Key.Job}
	if h.Version>>32 > 255 || role != migrate.Aggregator && role != migrate.Worker || from.ID < 0 || role == migrate.Aggregator && from.Job != 0 {
		return Node{}, 0, fmt.Errorf("hello of nobody: %w", ErrFrame)
	}
	return from, h.At, nil
}

// text makes values of a text, for Refused.
func text(s string) []float32 {
	s = s[:min(len(s), MaxText)]
	v := make([]float32, (len(s)+3)/4)
	copy(bytesOf(v), s)
	return v
}
