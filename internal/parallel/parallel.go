// Package parallel does the same for each of several things at the same time, and says of each how it went.
package parallel

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
)

// All calls f for 0..n-1 at the same time, waits for all, and joins their
// errors in order. The first error cancels the context of the others.
func All(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	return Limit(ctx, n, n, f)
}

// Limit is All with at most limit calls at a time; after the first
// error no new call begins.
func Limit(ctx context.Context, limit, n int, f func(ctx context.Context, i int) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, limit))
	errs := make([]error, n)
	for i := range n {
		g.Go(func() error {
			if gctx.Err() == nil {
				errs[i] = f(gctx, i)
			}
			return errs[i]
		})
	}
	first := g.Wait()
	if first == nil {
		return ctx.Err()
	}
	// What only fell over because another had failed says nothing new. It may name
	// that one's error as its cause.
	errs = slices.DeleteFunc(errs, func(err error) bool {
		return err == nil || err != first && ctx.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, first))
	})
	return errors.Join(errs...)
}

// Every calls f for 0..n-1, at most limit at a time, and joins their errors in order. Neither an error nor the end of
// a context keeps it from the others: of what is torn down, each says what is left of it.
func Every(limit, n int, f func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(max(1, limit))
	errs := make([]error, n)
	for i := range n {
		g.Go(func() error {
			errs[i] = f(i)
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(errs...)
}
