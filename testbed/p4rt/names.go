package p4rt

import (
	"context"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
)

// Counters are the names of the counters that the switch's pipeline has; none before
// Push or Attach.
func (c *Client) Counters() []string {
	pipe, err := c.pipeline()
	if err != nil {
		return nil
	}
	var names []string
	for _, info := range pipe.Counters() {
		names = append(names, info.Name)
	}
	return names
}

// Version is the version of P4Runtime that the switch's server speaks, such as "1.3.0".
func (c *Client) Version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	r, err := c.rpc.Capabilities(ctx, &p4v1.CapabilitiesRequest{DeviceId: c.device}, grpc.WaitForReady(true))
	if err != nil {
		return "", c.fail("ask for its version", err)
	}
	return r.GetP4RuntimeApiVersion(), nil
}
