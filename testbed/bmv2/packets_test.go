package bmv2

import (
	"context"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// Packets are the ports of a switch that was started with Config.Packets: frames go in and
// out through one stream, without devices and without privileges. About 11,000 frames a
// second pass. It is not safe for concurrent use, except that one goroutine may send while
// another receives.
type Packets struct {
	device uint64
	conn   *grpc.ClientConn
	stream grpc.ClientStream
}

// OpenPackets connects to addr for as long as ctx lives. Until the switch has had a program for
// a moment, it refuses the stream, which the first Receive tells.
func OpenPackets(ctx context.Context, addr string, deviceID uint64) (*Packets, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("packets of %s: %w", addr, err)
	}
	desc := &grpc.StreamDesc{StreamName: "PacketStream", ServerStreams: true, ClientStreams: true}
	s, err := conn.NewStream(ctx, desc, "/p4.bm.DataplaneInterface/PacketStream", grpc.ForceCodec(packetCodec{}))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("packets of %s: %w", addr, err)
	}
	return &Packets{device: deviceID, conn: conn, stream: s}, nil
}

// Close ends the stream.
func (p *Packets) Close() error { return p.conn.Close() }

// packet is p4.bm.PacketStreamRequest and PacketStreamResponse: field 2 the device, 3 the
// port, 4 the frame.
type packet struct {
	device uint64
	port   uint32
	frame  []byte
}

// Send gives the switch a frame at a port.
func (p *Packets) Send(port uint32, frame []byte) error {
	if err := p.stream.SendMsg(&packet{p.device, port, frame}); err != nil {
		return fmt.Errorf("send to port %d: %w", port, err)
	}
	return nil
}

// Receive waits for the next frame that leaves a port.
func (p *Packets) Receive() (port uint32, frame []byte, err error) {
	var m packet
	if err := p.stream.RecvMsg(&m); err != nil {
		return 0, nil, fmt.Errorf("receive from the switch: %w", err)
	}
	return m.port, m.frame, nil
}

// packetCodec is the wire form of packet, written out: the three fields do not need
// generated code.
type packetCodec struct{}

func (packetCodec) Name() string { return "proto" }

func (packetCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(*packet)
	if !ok {
		return nil, fmt.Errorf("marshal %T", v)
	}
	b := protowire.AppendTag(nil, 2, protowire.VarintType)
	b = protowire.AppendVarint(b, m.device)
	b = protowire.AppendTag(b, 3, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(m.port))
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	return protowire.AppendBytes(b, m.frame), nil
}

func (packetCodec) Unmarshal(b []byte, v any) error {
	m, ok := v.(*packet)
	if !ok {
		return fmt.Errorf("unmarshal %T", v)
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return io.ErrUnexpectedEOF
		}
		b = b[n:]
		switch {
		case num == 3 && typ == protowire.VarintType:
			var x uint64
			x, n = protowire.ConsumeVarint(b)
			m.port = uint32(x)
		case num == 4 && typ == protowire.BytesType:
			var x []byte
			x, n = protowire.ConsumeBytes(b)
			m.frame = append([]byte(nil), x...)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return io.ErrUnexpectedEOF
		}
		b = b[n:]
	}
	return nil
}
