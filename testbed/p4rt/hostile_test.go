package p4rt_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/internal/heap"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4rt"
)

// endless is a switch whose answers have no end.
type endless struct{ *recorder }

func (endless) Read(_ *p4v1.ReadRequest, stream p4v1.P4Runtime_ReadServer) error {
	r := &p4v1.ReadResponse{Entities: []*p4v1.Entity{{Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{Metadata: make([]byte, 1<<20)}}}}}
	for {
		if err := stream.Send(r); err != nil {
			return err
		}
	}
}

// TestEndlessRead: an answer without an end ends when it is longer than any can be.
func TestEndlessRead(t *testing.T) {
	r := &recorder{mute: make(chan struct{})}
	close(r.mute)
	conn, err := grpc.NewClient(r.serve(t, endless{r}), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if got, err := p4rt.ReadAll(ctx, p4v1.NewP4RuntimeClient(conn), device, &p4v1.Entity{}); !errors.Is(err, bounded.ErrTooLarge) || got != nil {
		t.Errorf("%d entities, %v", len(got), err)
	}
}

// swarm is a switch whose answer is short on the wire, and is millions of empty messages.
type swarm struct{ *recorder }

func (swarm) Read(_ *p4v1.ReadRequest, stream p4v1.P4Runtime_ReadServer) error {
	return stream.Send(&p4v1.ReadResponse{Entities: slices.Repeat([]*p4v1.Entity{{}}, 6<<20)})
}

// TestSwarmRead: an answer takes no more memory than its bound says, however little it is on the wire. As bytes it
// would pass.
func TestSwarmRead(t *testing.T) {
	r := &recorder{mute: make(chan struct{})}
	close(r.mute)
	conn, err := dataplane.Connect(r.serve(t, swarm{r}), nil, p4rt.MaxReply)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	most := heap.Watch()
	got, err := p4rt.ReadAll(t.Context(), p4v1.NewP4RuntimeClient(conn), device, &p4v1.Entity{})
	if !errors.Is(err, bounded.ErrTooLarge) || got != nil {
		t.Errorf("%d entities, %v", len(got), err)
	}
	if grown := most(); grown > 200<<20 { // 48 MiB of it are the server's list of them, 24 MiB the message, on both sides
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// hasty is a switch that says something and hangs up, before it was asked anything.
type hasty struct{ *recorder }

func (hasty) StreamChannel(stream p4v1.P4Runtime_StreamChannelServer) error {
	for range 3 {
		if err := stream.Send(&p4v1.StreamMessageResponse{}); err != nil {
			return err
		}
	}
	return nil
}

// TestHastySwitch: a session that ended is none, whatever was said in it.
func TestHastySwitch(t *testing.T) {
	r := &recorder{mute: make(chan struct{})}
	close(r.mute)
	addr := r.serve(t, hasty{r})
	for range 20 {
		c, err := p4rt.Dial(t.Context(), "tor1", addr, device, p4rt.Options{Options: dataplane.Options{DialTimeout: 100 * time.Millisecond}})
		if err == nil {
			c.Close(context.Background())
			t.Fatal("it is primary at a switch that hung up")
		}
	}
}

// fickle is a switch that lets a client win, and then calls its bid invalid.
type fickle struct{ *recorder }

func (fickle) StreamChannel(stream p4v1.P4Runtime_StreamChannelServer) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	won := m.GetArbitration()
	won.Status = &rpcstatus.Status{}
	if err := stream.Send(&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Arbitration{Arbitration: won}}); err != nil {
		return err
	}
	return status.Error(codes.InvalidArgument, "no more")
}

// TestFickleSwitch: what ends a stream that was good is a loss, and no bid that was refused.
func TestFickleSwitch(t *testing.T) {
	r := &recorder{mute: make(chan struct{})}
	close(r.mute)
	c, err := p4rt.Dial(t.Context(), "tor1", r.serve(t, fickle{r}), device, p4rt.Options{Options: dataplane.Options{DialTimeout: time.Minute, CallTimeout: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Lost():
		if err := c.Err(); err == nil || !strings.Contains(err.Error(), "no more") {
			t.Errorf("lost: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it believes that it is primary")
	}
	closed := make(chan struct{})
	go func() {
		c.Close(context.Background())
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("Close does not end")
	}
}

// flood is a listener that answers whatever comes with bytes without an end.
func flood(t *testing.T) (addr string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				for junk := make([]byte, 64<<10); ; {
					if _, err := conn.Write(junk); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		lis.Close()
		all.Wait()
	})
	return lis.Addr().String()
}

// TestFlood: what is no gRPC is left within the time for dialling.
func TestFlood(t *testing.T) {
	begin := time.Now()
	c, err := p4rt.Dial(t.Context(), "tor1", flood(t), device, p4rt.Options{Options: dataplane.Options{DialTimeout: time.Second}})
	if err == nil {
		c.Close(context.Background())
		t.Fatal("it is primary there")
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}
