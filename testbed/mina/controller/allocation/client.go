package allocation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Tree is the one that a job is to have. The zero value is none.
type Tree struct {
	Epoch  uint16   // of the job's packets on it
	Window int      // packets that may be outstanding
	Log    []string // what the job's library would log of it
}

// Host is a host of a job that is attached to the controller.
type Host struct {
	name   string
	conn   *grpc.ClientConn
	stream grpc.BidiStreamingClient[Report, Order]
	cancel context.CancelFunc

	sending sync.Mutex // of stream
	reading sync.WaitGroup
	done    chan struct{}
	err     error // why it ended; valid when done is closed
}

// Attach says to the controller at an address that a rank of a job is there. The job's
// trees are given to set, one after the other, in one goroutine: it must not wait for
// anything, and have settled called when all ranks of the job use that tree and none has to
// do with the one before. A tree that another follows need not be settled.
//
// The caller must Close the host, which ends the job unless it attaches again soon.
func Attach(ctx context.Context, addr string, job uint16, rank int, set func(t Tree, settled func()) error) (*Host, error) {
	h := &Host{name: fmt.Sprintf("allocation controller %s: job %d, rank %d", addr, job, rank), done: make(chan struct{})}
	var err error
	h.conn, err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.name, err)
	}
	var life context.Context
	life, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, h.cancel) // until it is attached
	defer stop()
	h.stream, err = NewAllocationClient(h.conn).Attach(life, grpc.WaitForReady(true))
	if err == nil {
		err = h.stream.Send(&Report{Job: uint32(job), Rank: uint32(rank)})
	}
	var first *Order
	if err == nil {
		first, err = h.stream.Recv() // at once: what the job has now
	}
	if err != nil {
		h.cancel()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, errors.Join(fmt.Errorf("%s: attach: %w", h.name, err), h.conn.Close())
	}
	h.reading.Go(func() {
		h.err = h.follow(first, set)
		h.cancel()
		close(h.done)
	})
	return h, nil
}

// follow carries out orders until there are no more.
func (h *Host) follow(o *Order, set func(Tree, func()) error) error {
	for {
		number := o.Number
		err := set(Tree{Epoch: uint16(o.Epoch), Window: int(o.Window), Log: o.Log}, func() {
			h.sending.Lock()
			defer h.sending.Unlock()
			_ = h.stream.Send(&Report{Settled: number}) // Recv says what is wrong
		})
		if err != nil {
			return fmt.Errorf("%s: tree of epoch %d: %w", h.name, o.Epoch, err)
		}
		if o, err = h.stream.Recv(); err != nil {
			if err == io.EOF {
				return nil
			}
			return fmt.Errorf("%s: %w", h.name, err)
		}
	}
}

// Done is closed when the host is not attached any more.
func (h *Host) Done() <-chan struct{} { return h.done }

// Err is why: nil if the controller ended it, because the job has.
func (h *Host) Err() error {
	<-h.done
	return h.err
}

// Close detaches the host. It is idempotent.
func (h *Host) Close() error {
	h.cancel()
	h.reading.Wait()
	return h.conn.Close()
}
