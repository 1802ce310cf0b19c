package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/testbed/paramservice/control"
)

// ErrRefused is wrapped by errors that say that pMaster does not want a node, or a job. What it
// says is in the error.
var ErrRefused = errors.New("refused by pMaster")

// Retry bounds how long a link waits before it looks for pMaster again: the first time and
// at most.
const (
	minRetry = 20 * time.Millisecond
	maxRetry = 250 * time.Millisecond
)

// Client is a way to pMaster. It is safe for concurrent use.
type Client struct {
	address string
	conn    *grpc.ClientConn
	rpc     ParameterServiceClient
	life    uint64
}

// Dial makes a client of the pMaster at host:port. It connects when it is needed. The caller must
// Close it, after its links.
func Dial(address string) (*Client, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minRetry, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxRetry},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("pMaster at %s: %w", address, err)
	}
	return &Client{address: address, conn: conn, rpc: NewParameterServiceClient(conn), life: rand.Uint64()}, nil
}

// Close ends the client's connection.
func (c *Client) Close() error { return c.conn.Close() }

// Options are those of servers: the size of messages.
func Options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage)}
}

// refused tells errors of pMaster from those of the way to it.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.AlreadyExists, codes.NotFound, codes.FailedPrecondition, codes.ResourceExhausted, codes.PermissionDenied, codes.Unimplemented:
		return true
	}
	return false
}

func (c *Client) explain(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case refused(err):
		return fmt.Errorf("pMaster at %s: %s: %w: %s", c.address, what, ErrRefused, status.Convert(err).Message())
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return fmt.Errorf("pMaster at %s: %s: %w", c.address, what, err)
}

// Register makes a job known, and returns it with its id. It waits for pMaster.
func (c *Client) Register(ctx context.Context, j control.Job) (control.Job, error) {
	w, err := c.rpc.Register(ctx, EncodeJob(j), grpc.WaitForReady(true))
	if err != nil {
		return control.Job{}, c.explain(ctx, fmt.Sprintf("register job %q", j.Name), err)
	}
	return DecodeJob(w)
}

// Deregister ends a job, whatever its workers do; they are told why.
func (c *Client) Deregister(ctx context.Context, job uint32, why string) error {
	_, err := c.rpc.Deregister(ctx, &Deregistration{Job: job, Why: clip(why)}, grpc.WaitForReady(true))
	return c.explain(ctx, fmt.Sprintf("deregister job %d", job), err)
}

// Statistics is what there is.
func (c *Client) Statistics(ctx context.Context) (*Stats, error) {
	s, err := c.rpc.Statistics(ctx, &Nothing{}, grpc.WaitForReady(true))
	return s, c.explain(ctx, "statistics", err)
}

// Attach connects a worker of a job that is registered. It returns when pMaster has taken it,
// or refused.
func (c *Client) Attach(ctx context.Context, j control.Job, rank int32) (*Link, error) {
	return c.link(ctx, fmt.Sprintf("worker %d of job %d, %s", rank, j.ID, j.Name), Greeting{Job: j, Rank: rank})
}

// Join connects an Aggregator whose data plane is at an address. It returns when pMaster has
// taken it, or refused.
func (c *Client) Join(ctx context.Context, id int32, address string) (*Link, error) {
	return c.link(ctx, fmt.Sprintf("aggregator %d", id), Greeting{Aggregator: &control.Peer{ID: id, Address: address}})
}

// Link is a node's connection with pMaster, which comes back when it breaks or pMaster is another
// one. It is a control.Link.
type Link struct {
	c      *Client
	name   string
	hello  Greeting
	cancel context.CancelFunc
	done   sync.WaitGroup
	in     *control.End // the node's end of a queue
	put    *control.End

	mu        sync.Mutex
	connected bool
	out       []*Message
	last      []*Message // Finished, Failed: said to each pMaster
	wake      chan struct{}
	epoch     uint64
	err       error // why it has ended
}

var _ control.Link = (*Link)(nil)

func (c *Client) link(ctx context.Context, name string, g Greeting) (*Link, error) {
	g.Life = c.life
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &Link{c: c, name: name, hello: g, cancel: cancel, wake: make(chan struct{}, 1)}
	l.in, l.put = control.Pipe()
	first := make(chan error, 1)
	l.done.Go(func() { l.run(life, first) })
	select {
	case err := <-first:
		if err == nil {
			return l, nil
		}
		l.Close()
		return nil, err
	case <-ctx.Done():
		l.Close()
		return nil, c.explain(ctx, name, ctx.Err())
	}
}

// Send implements control.Link. Messages that are sent together go together.
func (l *Link) Send(m control.Message) {
	w := Encode(m)
	l.mu.Lock()
	switch m.(type) {
	case control.Finished, control.Failed:
		l.last = append(l.last, w)
	}
	if l.connected {
		l.out = append(l.out, w)
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Receive implements control.Link. Its error wraps control.ErrClosed, and ErrRefused if
// pMaster does not want the node any more. It is control.ErrClosed alone if the node has done its
// work: its job is over, or the Aggregator is released.
func (l *Link) Receive(ctx context.Context) (control.Message, error) {
	m, err := l.in.Receive(ctx)
	if errors.Is(err, control.ErrClosed) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err != nil {
			err = fmt.Errorf("%w: %w", err, l.err)
		}
	}
	return m, err
}

// Epoch is that of the pMaster that the link was connected with last.
func (l *Link) Epoch() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// Close ends the link as if the process had died. It is idempotent.
func (l *Link) Close() {
	l.cancel()
	l.done.Wait()
}

// run connects again and again. The first result is told.
func (l *Link) run(ctx context.Context, first chan<- error) {
	defer l.put.Close()
	welcome := func() {
		select {
		case first <- nil:
		default:
		}
	}
	retry := minRetry
	for {
		err := l.connect(ctx, welcome)
		l.mu.Lock()
		if l.connected {
			retry = minRetry
		}
		l.connected, l.out = false, nil
		l.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return
		case err == io.EOF:
			return
		case refused(err), errors.Is(err, ErrMessage):
			l.mu.Lock()
			l.err = l.c.explain(ctx, l.name, err)
			l.mu.Unlock()
			select {
			case first <- l.err:
			default:
			}
			return
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return
		}
		retry = min(2*retry, maxRetry)
	}
}

// connect is one connection, until it breaks.
func (l *Link) connect(ctx context.Context, welcome func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := l.c.rpc.Attach(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	hello := l.hello.Encode()
	l.mu.Unlock()
	_ = stream.Send(&FromNode{What: &FromNode_Hello{hello}}) // Recv says what is wrong
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	w := m.GetWelcome()
	lease := time.Duration(w.GetLease())
	if w == nil || lease <= 0 {
		return fmt.Errorf("no welcome: %w", ErrMessage)
	}
	l.mu.Lock()
	if w.Epoch < l.epoch { // whatever it says has been said before, with another meaning
		defer l.mu.Unlock()
		return fmt.Errorf("pMaster of epoch %d after that of epoch %d, which it knows nothing of: %w", w.Epoch, l.epoch, ErrMessage)
	}
	l.connected, l.epoch = true, w.Epoch
	l.out = append(l.out[:0], l.last...)
	l.mu.Unlock()
	welcome()

	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	writing.Go(func() { l.write(ctx, stream, lease/4) })
	silent := time.AfterFunc(lease, cancel)
	defer silent.Stop()
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		silent.Reset(lease)
		if p := m.GetProfile(); p != nil {
			var problem problems
			measured := problem.profile(p, len(l.hello.Job.Tensors))
			if err := problem.err("profile"); err != nil {
				return err
			}
			l.mu.Lock()
			l.hello.Measured = measured
			l.mu.Unlock()
		}
		for _, w := range m.GetBatch().GetMessages() {
			c, err := Decode(w)
			if err != nil {
				return err
			}
			l.put.Send(c)
		}
	}
}

// write sends what is to be sent, and heartbeats.
func (l *Link) write(ctx context.Context, stream grpc.BidiStreamingClient[FromNode, ToNode], beat time.Duration) {
	tick := time.NewTicker(max(beat, time.Millisecond))
	defer tick.Stop()
	for {
		idle := false
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
			idle = true
		case <-tick.C:
		}
		l.mu.Lock()
		batch := l.out
		l.out = nil
		l.mu.Unlock()
		if len(batch) == 0 && idle {
			continue
		}
		if stream.Send(&FromNode{What: &FromNode_Batch{&Batch{Messages: batch}}}) != nil {
			return // Recv says what is wrong
		}
	}
}
