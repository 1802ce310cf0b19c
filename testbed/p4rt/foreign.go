package p4rt

import (
	"context"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
)

// maxProgram is how long the message may be that a program's device config is in, in bytes.
const maxProgram = 64 << 20

// Foreign implements dataplane.Switch. A server that tells no pipeline, and one that tells no device config, are borne.
func (c *Client) Foreign(ctx context.Context) (*dataplane.Foreign, error) {
	const op = "read pipeline"
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	now, err := c.running(ctx)
	if status.Code(err) == codes.Unimplemented {
		return nil, nil
	}
	if err != nil {
		return nil, c.fail(op, err)
	}
	info := now.GetP4Info()
	if len(info.GetTables()) == 0 && len(info.GetActions()) == 0 || p4.OfINA(info) {
		return nil, nil
	}
	out := &dataplane.Foreign{Name: p4.Called(info)}
	r, err := c.rpc.GetForwardingPipelineConfig(ctx, &p4v1.GetForwardingPipelineConfigRequest{
		DeviceId: c.device, ResponseType: p4v1.GetForwardingPipelineConfigRequest_ALL,
	}, grpc.MaxCallRecvMsgSize(maxProgram))
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented, codes.InvalidArgument, codes.ResourceExhausted: // or it is too long
		return out, nil
	default:
		return nil, c.fail(op, err)
	}
	if whole := r.GetConfig(); whole.GetP4Info() != nil && len(whole.GetP4DeviceConfig()) > 0 {
		if out.Config, err = proto.Marshal(whole); err != nil {
			return nil, c.fail(op, err)
		}
	}
	return out, nil
}

// Restore implements dataplane.Switch.
func (c *Client) Restore(ctx context.Context, config []byte) error {
	const op = "put a program back"
	m := &p4v1.ForwardingPipelineConfig{}
	if err := proto.Unmarshal(config, m); err != nil {
		return c.fail(op, err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return c.fail(op, dataplane.ErrClosed)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.PushTimeout)
	defer cancel()
	err := c.deleteReplicas(ctx)
	if err == nil {
		err = c.load(ctx, dataplane.Pipeline{Info: m.GetP4Info(), DeviceConfig: m.GetP4DeviceConfig()}, m.GetCookie().GetCookie())
	}
	if err != nil {
		return c.fail(op, err)
	}
	clear(c.undo)
	c.order = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pipe, c.loaded, c.witness = nil, dataplane.Loaded{}, nil
	return nil
}
