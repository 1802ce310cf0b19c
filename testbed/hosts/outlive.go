package hosts

import (
	"context"
	"errors"
)

// Outlive starts a process that goes on when ctx ends: that ends it only while it is being started. Start is Host.Start, or whatever
// ends in it, with the context that it is given.
func Outlive(ctx context.Context, start func(ctx context.Context) (*Process, error)) (*Process, error) {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	starting := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	p, err := start(life)
	if !starting() && err == nil { // ctx ended at the last moment
		err = errors.Join(context.Cause(ctx), p.Close())
	}
	if err != nil {
		end(nil)
		return nil, err
	}
	return p, nil
}
