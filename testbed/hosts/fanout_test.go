package hosts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// named is a host that has a name and nothing else.
type named string

func (n named) String() string { return string(n) }

// some are so many hosts: h0, h1 and so on.
func some(n int) []named {
	out := make([]named, n)
	for i := range out {
		out[i] = named(fmt.Sprintf("h%d", i))
	}
	return out
}

func TestFanOut(t *testing.T) {
	for _, limit := range []int{0, 1, 3, 100} {
		var running, most, calls atomic.Int64
		err := FanOut(t.Context(), limit, some(20), func(_ context.Context, i int, h named) error {
			calls.Add(1)
			n := running.Add(1)
			defer running.Add(-1)
			for {
				m := most.Load()
				if n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			time.Sleep(time.Millisecond)
			if i%7 == 3 {
				return fmt.Errorf("broken %d", i)
			}
			return nil
		})
		if want := "host h3: broken 3\nhost h10: broken 10\nhost h17: broken 17"; err == nil || err.Error() != want {
			t.Errorf("limit %d: %v", limit, err)
		}
		if calls.Load() != 20 || limit > 0 && most.Load() > int64(limit) {
			t.Errorf("limit %d: %d calls, %d at once", limit, calls.Load(), most.Load())
		}
	}
	if err := FanOut(t.Context(), 0, some(0), nil); err != nil {
		t.Error(err)
	}
}

// After the end of the context nothing new begins, and what has begun is waited for.
func TestFanOutCancelled(t *testing.T) {
	const many = 10
	for _, at := range []int{-1, 0, many / 2, many - 1} {
		ctx, cancel := context.WithCancel(t.Context())
		if at < 0 {
			cancel()
		}
		last, finished := -1, 0
		err := FanOut(ctx, 1, some(many), func(ctx context.Context, i int, _ named) error {
			defer func() { finished++ }()
			last = i
			if i == at {
				cancel()
				return context.Cause(ctx)
			}
			return nil
		})
		cancel()
		if last != at || finished != at+1 {
			t.Errorf("cancelled at %d: went on to %d, finished %d", at, last, finished)
		}
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		left := fmt.Sprintf("%d of %d hosts not started", many-1-at, many)
		if at < many-1 && !strings.Contains(err.Error(), left) {
			t.Errorf("%v does not say %q", err, left)
		}
	}
}
