package p4rt

import (
	"errors"
	"fmt"
	"regexp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/testbed/dataplane"
)

func (c *Client) fail(op string, err error) error {
	var done *dataplane.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	code := status.Code(err)
	err = dataplane.Plain(err)
	switch {
	case code == codes.Unimplemented:
		err = fmt.Errorf("the switch's server cannot do that: %w", err)
	case code == codes.NotFound && aboutDevice.MatchString(err.Error()):
		err = c.noDevice(err)
	case code == codes.PermissionDenied:
		err = fmt.Errorf("%w: %w", dataplane.ErrNotPrimary, err)
	}
	return &dataplane.Error{Switch: c.name, Op: op, Code: code, Err: err}
}

// aboutDevice tells a device that is not there from an entity: Stratum calls it a node.
var aboutDevice = regexp.MustCompile(`(?i)\b(device|node)\b`)

// streamError says why a stream could not be opened or kept.
func (c *Client) streamError(err error) error {
	code := status.Code(err)
	err = dataplane.Plain(err)
	switch code {
	case codes.NotFound:
		return c.noDevice(err)
	case codes.ResourceExhausted:
		return &dataplane.Hinted{Err: fmt.Errorf("it takes no more controllers: %w", err),
			Advice: "end another program that controls the switch: Stratum takes five controllers for a device and twenty connections"}
	case codes.Unimplemented:
		return &dataplane.Hinted{Err: fmt.Errorf("there is no P4Runtime: %w", err),
			Advice: "P4Runtime is at port 9559 as a rule; Intel's SDE has it only where it was built with P4RT=ON, at 50051"}
	}
	return err
}

// noDevice names the device that was asked for.
func (c *Client) noDevice(err error) error {
	hint := "write device_id = N in the inventory: 1 on Stratum unless its chassis config says otherwise, 0 on Intel's SDE, on BMv2 what --device-id says"
	return &dataplane.Hinted{Err: fmt.Errorf("%w: device %d: %w", dataplane.ErrDevice, c.device, err), Advice: hint}
}
