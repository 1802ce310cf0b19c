package ssh

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// FanOut calls f for every host, limit of them at a time (0: all at once), and
// waits for all. i is the host's place in hosts. One host's trouble does not stop
// the others; the errors of all of them come back joined, in the order of hosts,
// each naming its host. Once ctx has ended no further call is made.
func FanOut[H fmt.Stringer](ctx context.Context, limit int, hosts []H, f func(ctx context.Context, i int, host H) error) error {
	if limit <= 0 || limit > len(hosts) {
		limit = len(hosts)
	}
	errs := make([]error, len(hosts)+1)
	slots := make(chan struct{}, limit)
	var wg sync.WaitGroup
	for i, host := range hosts {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			errs[len(hosts)] = fmt.Errorf("%d of %d hosts not started: %w", len(hosts)-i, len(hosts), context.Cause(ctx))
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = named(host.String(), f(ctx, i, host))
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// DialAll connects to several hosts with one Dialer, which limits the logins that are made
// at a time (0: all at once), so that hosts that are off cost their timeout once and not
// each. Clients are in the order of targets. On error the connections that were made are
// closed again.
func DialAll(ctx context.Context, limit int, targets []Target) ([]*Client, error) {
	clients := make([]*Client, len(targets))
	d := &Dialer{Limit: limit}
	err := FanOut(ctx, 0, targets, func(ctx context.Context, i int, t Target) (err error) {
		clients[i], err = d.Dial(ctx, t)
		return err
	})
	if err != nil {
		CloseAll(clients)
		return nil, err
	}
	return clients, nil
}

// CloseAll closes clients at once; nil ones are skipped.
func CloseAll(clients []*Client) {
	var wg sync.WaitGroup
	for _, c := range clients {
		if c != nil {
			wg.Go(func() { c.Close() })
		}
	}
	wg.Wait()
}
