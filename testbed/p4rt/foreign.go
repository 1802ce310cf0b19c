package p4rt

import (
	"context"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
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

// Foreign implements dataplane.Switch. A server that tells a p4info without a device config is borne; one that tells a cookie
// alone does not tell what it runs.
func (c *Client) Foreign(ctx context.Context) (*dataplane.Foreign, error) {
	const op = "read pipeline"
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	now, err := c.running(ctx)
	info := now.GetP4Info()
	if status.Code(err) == codes.Unimplemented || err == nil && empty(info) && now.GetCookie().GetCookie() != 0 {
		err = dataplane.ErrUntold
	}
	if err != nil {
		return nil, c.fail(op, err)
	}
	if empty(info) || p4.OfINA(info) {
		return nil, nil
	}
	out := &dataplane.Foreign{Name: p4.Called(info)}
	whole, err := c.whole(ctx)
	if err != nil {
		return nil, c.fail(op, err)
	}
	// Another p4info is of another program, which somebody has loaded between the two answers.
	if len(whole.GetP4DeviceConfig()) > 0 && proto.Equal(whole.GetP4Info(), info) {
		if out.Config, err = proto.Marshal(whole); err != nil {
			return nil, c.fail(op, err)
		}
	}
	return out, nil
}

// empty says whether a p4info is of no program.
func empty(info *p4configv1.P4Info) bool {
	return len(info.GetTables()) == 0 && len(info.GetActions()) == 0
}

// whole is what the switch runs with its device config; nil: the server does not give that, or it is too long.
func (c *Client) whole(ctx context.Context) (*p4v1.ForwardingPipelineConfig, error) {
	r, err := c.rpc.GetForwardingPipelineConfig(ctx, &p4v1.GetForwardingPipelineConfigRequest{
		DeviceId: c.device, ResponseType: p4v1.GetForwardingPipelineConfigRequest_ALL,
	}, grpc.MaxCallRecvMsgSize(maxProgram))
	switch status.Code(err) {
	case codes.Unimplemented, codes.InvalidArgument, codes.ResourceExhausted:
		return nil, nil
	}
	return r.GetConfig(), err
}

// Restore implements dataplane.Switch. Nobody else loads a program while this client is the primary controller.
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
	err := c.replace(ctx, op, func() error {
		return c.load(ctx, dataplane.Pipeline{Info: m.GetP4Info(), DeviceConfig: m.GetP4DeviceConfig()}, m.GetCookie().GetCookie())
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pipe, c.loaded, c.witness = nil, dataplane.Loaded{}, nil
	return nil
}
