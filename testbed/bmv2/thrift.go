package bmv2

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// The one call of BMv2's Thrift interface that P4Runtime has no equal of:
//
//	service SimpleSwitch { i32 set_all_egress_queue_depths(1:i32 depth_pkts) }
//
// It goes as Thrift's binary protocol, unframed, through the multiplexed service that
// simple_switch registers (targets/simple_switch/thrift/simple_switch.thrift).
const (
	queueDepths = "simple_switch:set_all_egress_queue_depths"

	thriftCall  = 0x8001_0001 // version 1, message type call
	thriftReply = 0x8001_0002
	thriftI32   = 8 // type of a field

	thriftPatience = 300 * time.Millisecond
)

// SetQueueDepth makes the queues of all ports that many frames deep. A simple_switch_grpc
// that was built without Thrift does not listen at addr, host:port: that is an error, and
// queues stay as they are.
func SetQueueDepth(ctx context.Context, addr string, frames int32) error {
	fail := func(err error) error { return fmt.Errorf("depth of BMv2's queues, through %s: %w", addr, err) }
	conn, err := dialThrift(ctx, addr)
	if err != nil {
		return fail(err)
	}
	defer conn.Close()
	if t, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(t); err != nil {
			return fail(err)
		}
	} else if err := conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return fail(err)
	}
	if _, err := conn.Write(queueDepthCall(frames)); err != nil {
		return fail(err)
	}
	if err := readQueueDepthReply(conn); err != nil {
		return fail(err)
	}
	return nil
}

// dialThrift connects, for some time also to a server that is only about to listen: BMv2
// starts this one after P4Runtime's.
func dialThrift(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, thriftPatience)
	defer cancel()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn, nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func queueDepthCall(frames int32) []byte {
	b := binary.BigEndian.AppendUint32(nil, thriftCall)
	b = binary.BigEndian.AppendUint32(b, uint32(len(queueDepths)))
	b = append(b, queueDepths...)
	b = binary.BigEndian.AppendUint32(b, 0) // sequence number
	b = append(b, thriftI32)
	b = binary.BigEndian.AppendUint16(b, 1) // field
	b = binary.BigEndian.AppendUint32(b, uint32(frames))
	return append(b, 0) // no more fields
}

// readQueueDepthReply reads the header of the reply: what it returns is always 0.
func readQueueDepthReply(r io.Reader) error {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("its reply: %w", err)
	}
	kind, length := binary.BigEndian.Uint32(head[:4]), binary.BigEndian.Uint32(head[4:])
	if length > 1<<10 {
		return fmt.Errorf("its reply: no Thrift: %x", head)
	}
	name := make([]byte, length)
	if _, err := io.ReadFull(r, name); err != nil {
		return fmt.Errorf("its reply: %w", err)
	}
	if kind != thriftReply {
		return fmt.Errorf("it refuses %q", name)
	}
	return nil
}
