package hosts

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// FanOut calls f for every host, limit of them at a time (0: all at once), and
// waits for all. i is the host's place in all. One host's trouble does not stop
// the others; the errors of all of them come back joined, in the order of hosts,
// each naming its host. Once ctx has ended no further call is made.
func FanOut[H fmt.Stringer](ctx context.Context, limit int, all []H, f func(ctx context.Context, i int, host H) error) error {
	if limit <= 0 || limit > len(all) {
		limit = len(all)
	}
	errs := make([]error, len(all)+1)
	slots := make(chan struct{}, limit)
	var wg sync.WaitGroup
	for i, host := range all {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			errs[len(all)] = fmt.Errorf("%d of %d hosts not started: %w", len(all)-i, len(all), context.Cause(ctx))
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = Name(host.String(), f(ctx, i, host))
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// CloseAll gives hosts up at once; nil ones are skipped.
func CloseAll(all []Host) {
	var wg sync.WaitGroup
	for _, h := range all {
		if h != nil {
			wg.Go(func() { h.Close() })
		}
	}
	wg.Wait()
}
