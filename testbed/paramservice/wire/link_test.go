package wire

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// scripted is a pMaster that does to each connection what a test says, one after the other.
type scripted struct {
	UnimplementedParameterServiceServer
	t       *testing.T
	address string
	conns   chan *scriptedConn
}

type scriptedConn struct {
	grpc.BidiStreamingServer[FromNode, ToNode]
	hello *Hello
	end   chan error
}

func (s *scripted) Attach(stream grpc.BidiStreamingServer[FromNode, ToNode]) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	c := &scriptedConn{stream, m.GetHello(), make(chan error, 1)}
	s.conns <- c
	select {
	case err := <-c.end:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

func (s *scripted) Register(context.Context, *Job) (*Job, error) {
	return nil, status.Error(codes.AlreadyExists, "it is there")
}

func newScripted(t *testing.T) *scripted {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{t: t, address: lis.Addr().String(), conns: make(chan *scriptedConn, 16)}
	srv := grpc.NewServer(Options()...)
	RegisterParameterServiceServer(srv, s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(lis) })
	t.Cleanup(func() { srv.Stop(); wg.Wait() })
	return s
}

// next is the next connection, welcomed.
func (s *scripted) next(epoch uint64, lease time.Duration) *scriptedConn {
	s.t.Helper()
	select {
	case c := <-s.conns:
		if err := c.Send(&ToNode{What: &ToNode_Welcome{&Welcome{Epoch: epoch, Lease: int64(lease)}}}); err != nil {
			s.t.Error(err)
		}
		return c
	case <-s.t.Context().Done():
		return nil
	}
}

// messages are the next ones that come, so many.
func (c *scriptedConn) messages(t *testing.T, n int) (all []control.Message) {
	t.Helper()
	for len(all) < n {
		m, err := c.Recv()
		if err != nil {
			t.Fatalf("%v after %v", err, all)
		}
		for _, w := range m.GetBatch().GetMessages() {
			msg, err := Decode(w)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, msg)
		}
	}
	return all
}

func dial(t *testing.T, address string) *Client {
	t.Helper()
	c, err := Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// join attaches while the test plays pMaster.
func (s *scripted) join(c *Client, epoch uint64, lease time.Duration) (*Link, *scriptedConn) {
	s.t.Helper()
	var conn *scriptedConn
	var wg sync.WaitGroup
	wg.Go(func() { conn = s.next(epoch, lease) })
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	l, err := c.Attach(ctx, testJob(), 1)
	if err != nil {
		s.t.Fatal(err)
	}
	wg.Wait()
	s.t.Cleanup(l.Close)
	return l, conn
}

// A link comes back to another pMaster. What was said while there was none is lost, but for the end
// of a worker; what the one before has told of the job is told to the next one.
func TestLinkOutlivesMaster(t *testing.T) {
	s := newScripted(t)
	l, one := s.join(dial(t, s.address), 1, time.Hour)
	if g, err := DecodeHello(one.hello); err != nil || !reflect.DeepEqual(g.Job, testJob()) || g.Rank != 1 || g.Measured != nil || g.Life == 0 {
		t.Fatalf("%+v, %v", g, err)
	}
	measured := &Measured{Iteration: time.Second, Tasks: []time.Duration{1, 2}, Transfer: 3, Reverts: 4}
	if err := one.Send(&ToNode{What: &ToNode_Profile{measured.Encode()}}); err != nil {
		t.Fatal(err)
	}
	all := samples()
	for _, m := range all {
		if err := one.Send(&ToNode{What: &ToNode_Batch{&Batch{Messages: []*Message{Encode(m)}}}}); err != nil {
			t.Fatal(err)
		}
		l.Send(m)
	}
	for _, want := range all {
		if got, err := l.Receive(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
	}
	if got := one.messages(t, len(all)); !reflect.DeepEqual(got, all) {
		t.Fatalf("%+v", got)
	}
	one.end <- status.Error(codes.Unavailable, "kill -9")
	var two *scriptedConn
	select {
	case two = <-s.conns: // not welcomed yet: it is as if there was no pMaster
	case <-time.After(10 * time.Second):
		t.Fatal("the link does not come back")
	}
	l.Send(control.Admitted{Job: 1})
	two.end <- status.Error(codes.Unavailable, "kill -9 again")
	three := s.next(2, time.Hour)
	g, err := DecodeHello(three.hello)
	if err != nil || !reflect.DeepEqual(g.Measured, measured) {
		t.Errorf("%+v, %v", g, err)
	}
	// Failed and Finished are among the samples.
	want := []control.Message{all[6], all[7], control.Admitted{Job: 2}}
	first := three.messages(t, 2)
	l.Send(want[2])
	if got := append(first, three.messages(t, 1)...); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v; want %+v", got, want)
	}
	if l.Epoch() != 2 {
		t.Errorf("epoch %d", l.Epoch())
	}
}

// The end of a stream without an error is the end of a node's work, and what came before it is heard.
func TestLinkEnds(t *testing.T) {
	s := newScripted(t)
	l, c := s.join(dial(t, s.address), 1, time.Hour)
	bye := control.Dismiss{Job: 7, Why: "done"}
	if err := c.Send(&ToNode{What: &ToNode_Batch{&Batch{Messages: []*Message{Encode(bye)}}}}); err != nil {
		t.Fatal(err)
	}
	c.end <- nil
	if m, err := l.Receive(t.Context()); err != nil || m != bye {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := l.Receive(t.Context()); !errors.Is(err, control.ErrClosed) || errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}

// A node that is not wanted is told why, at once or later; so is one whose pMaster talks nonsense.
func TestLinkRefused(t *testing.T) {
	s := newScripted(t)
	client := dial(t, s.address)
	var wg sync.WaitGroup
	wg.Go(func() { (<-s.conns).end <- status.Error(codes.NotFound, "no Aggregator 3 is wanted") })
	_, err := client.Join(t.Context(), 3, "h:1")
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "aggregator 3") || !strings.Contains(err.Error(), "no Aggregator 3 is wanted") {
		t.Error(err)
	}
	wg.Wait()
	if _, err := client.Register(t.Context(), testJob()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), `register job "VGG19"`) {
		t.Error(err)
	}
	l, c := s.join(client, 1, time.Hour)
	c.end <- status.Error(codes.InvalidArgument, "not for you to say")
	if _, err := l.Receive(t.Context()); !errors.Is(err, ErrRefused) || !errors.Is(err, control.ErrClosed) {
		t.Error(err)
	}
	for _, m := range []*ToNode{
		{What: &ToNode_Batch{&Batch{Messages: []*Message{{}}}}},
		{What: &ToNode_Profile{&Profile{}}},
	} {
		l, c = s.join(client, 1, time.Hour)
		if err := c.Send(m); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Receive(t.Context()); !errors.Is(err, ErrMessage) || !errors.Is(err, control.ErrClosed) {
			t.Errorf("%v: %v", m, err)
		}
	}
	l, c = s.join(client, 2, time.Hour)
	c.end <- status.Error(codes.Unavailable, "kill -9")
	wg.Go(func() { s.next(1, time.Hour) })
	if _, err := l.Receive(t.Context()); !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), "epoch 1 after that of epoch 2") {
		t.Errorf("a pMaster that has lost its file: %v", err)
	}
	wg.Wait()
	wg.Go(func() { s.next(1, 0) })
	if _, err := client.Join(t.Context(), 3, "h:1"); !errors.Is(err, ErrMessage) {
		t.Errorf("a lease of no length: %v", err)
	}
	wg.Wait()
}

// Without a word of pMaster for a lease, the link looks for it anew; it says something itself more often.
func TestHeartbeat(t *testing.T) {
	s := newScripted(t)
	_, c := s.join(dial(t, s.address), 1, time.Second)
	beats := 0
	for {
		m, err := c.Recv()
		if err != nil {
			break // it has given up
		}
		if len(m.GetBatch().GetMessages()) == 0 {
			beats++
		}
	}
	if beats == 0 {
		t.Error("no heartbeat")
	}
	s.next(1, time.Hour)
}

// Without a pMaster an attempt ends with its context.
func TestNobodyThere(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := dial(t, lis.Addr().String()).Join(ctx, 0, "h:1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A gradient sent by this way is a mistake in the program that sends it; it is found by Decode.
func TestDataIsNotControl(t *testing.T) {
	for k := range migrate.Stuck + 2 {
		m := control.Migrate{Message: migrate.Message[control.None]{Kind: k}}
		_, err := Decode(Encode(m))
		data := k == 0 || k <= migrate.Moved || k == migrate.TensorCopy || k == migrate.CopyAck || k > migrate.Stuck
		if data != (err != nil) {
			t.Errorf("%v: %v", k, err)
		}
	}
}
