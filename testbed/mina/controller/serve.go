package controller

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/internal/rpc"
	"github.com/inabench/inabench/testbed/mina/controller/allocation"
)

// NewServer is a gRPC server that notices when the machine of a client is gone: within two
// leases, and not because one was busy for some seconds. That a process has died it notices
// at once.
func NewServer(lease time.Duration) *rpc.Server {
	return rpc.NewServer(
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: max(lease, time.Second), Timeout: max(lease, 5*time.Second)}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
}

// Register adds the controller's service for hosts to a server.
func (c *Controller) Register(s grpc.ServiceRegistrar) {
	allocation.RegisterAllocationServer(s, &service{c: c})
}

// service is the gRPC side of attachments.
type service struct {
	allocation.UnimplementedAllocationServer
	c *Controller
}

// Attach implements allocation.AllocationServer.
func (s *service) Attach(stream grpc.BidiStreamingServer[allocation.Report, allocation.Order]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.Job > 0xffff {
		return status.Errorf(codes.InvalidArgument, "job %d is not one", first.Job)
	}
	a, err := s.c.Attach(uint16(first.Job), int(first.Rank))
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	defer a.Detach()
	// Reports end with the stream, which ends when this function returns.
	lost := make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				lost <- err
				return
			}
			a.Settled(r.Settled)
		}
	}()
	for {
		select {
		case o, more := <-a.Orders():
			if !more {
				return nil
			}
			if err := stream.Send(&allocation.Order{Number: o.Number, Epoch: uint32(o.Epoch), Window: uint32(o.Window), Log: o.Log}); err != nil {
				return err
			}
		case err := <-lost:
			return err
		}
	}
}

// serveGRPC serves until ctx ends.
func serveGRPC(ctx context.Context, srv *rpc.Server, lis net.Listener) error {
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	if err := srv.Serve(lis); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve hosts: %w", err)
	}
	return nil
}
