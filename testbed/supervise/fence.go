package supervise

import (
	"context"
	"errors"

	"github.com/inabench/inabench/testbed/lease"
)

// Fence is a lease of a host as its holder took it; see package lease. A supervisor starts nothing for a holder
// whom another has followed, and ends what it runs at the next beat after that: also where the holder has not
// noticed, because it cannot reach where leases lie, or stood still.
type Fence struct {
	Name   string `json:"name"`   // of the host, for people
	Dir    string `json:"dir"`    // of leases; a relative one is in the directory in which supervisors start, the home
	Key    string `json:"key"`    // of the lease's files
	Number uint64 `json:"number"` // of the lease
	lease.Holder
}

// check wraps lease.ErrLost if another has the host. What cannot be read says nothing: the lease itself may end
// the program all the same.
func (f *Fence) check(ctx context.Context) error {
	if f == nil {
		return nil
	}
	err := lease.Follows(ctx, lease.Place{Name: f.Name, Key: f.Key, Files: lease.Dir(f.Dir)}, f.Holder, f.Number)
	if !errors.Is(err, lease.ErrLost) {
		return nil
	}
	return err
}

// fenceWatch looks at a fence beside whoever waits for beats, as a directory may be on a server that does not answer.
type fenceWatch struct {
	ask  chan struct{}
	lost chan error
}

func (f *Fence) watch(ctx context.Context) *fenceWatch {
	w := &fenceWatch{ask: make(chan struct{}, 1), lost: make(chan error, 1)}
	if f == nil {
		return w
	}
	go func() { // ends with the process at the latest
		for range w.ask {
			if err := f.check(ctx); err != nil {
				w.lost <- err
				return
			}
		}
	}()
	return w
}

// look has the fence looked at, unless that is being done.
func (w *fenceWatch) look() {
	select {
	case w.ask <- struct{}{}:
	default:
	}
}
