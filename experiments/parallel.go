package experiments

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
)

// inOrder has n results made, by a function that puts each where it belongs when it is there, and takes
// them in order. It ends with the first error of either, and tells the other by its context.
func inOrder[T any](ctx context.Context, n int, produce func(ctx context.Context, put func(int, T)) error, take func(int, T) error) error {
	type cell struct {
		v    T
		done chan struct{}
	}
	cells := make([]cell, n)
	for i := range cells {
		cells[i].done = make(chan struct{})
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for i := range cells {
			c := &cells[i]
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-c.done:
			}
			if err := take(i, c.v); err != nil {
				return err
			}
			*c = cell{}
		}
		return nil
	})
	g.Go(func() error {
		return produce(ctx, func(i int, v T) {
			cells[i].v = v
			close(cells[i].done)
		})
	})
	return g.Wait()
}

// sideBySide does something for 0 to n-1, so many at a time. They are taken, not handed out: the
// main goroutine of a program may be bound to a thread, and to switch to that for every point takes
// as long as to simulate some.
func sideBySide(ctx context.Context, n, limit int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(n, limit) {
		g.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// virtual is whether points are measured in virtual time, where one does not disturb the other.
// Predictors of others are asked one by one.
func (r *run) virtual() bool { return r.opt.Driver == "sim" && len(r.external) == 0 }

// measureVirtually does what measure does, but as many points at a time as there are processors.
// Each has a testbed and a clock of its own; in the record they come one after the other.
func (r *run) measureVirtually(ctx context.Context) error {
	if err := r.openTestbed(ctx, r.points[0].Spec); err != nil {
		return err
	}
	began := time.Now()
	defer func() { r.Timing("measure", began) }()
	type cell struct {
		point   *results.Point
		samples []results.Sample
		err     error
	}
	n := len(r.points)
	all := n * r.opt.Repeats
	awaited := func() {
		if r.done < all {
			r.Progress("measure", spec.Labels(r.points[r.done%n].Labels), 0)
		}
	}
	saved := time.Now()
	blank := *r // as it is now: what is added to the record meanwhile is no business of the points'
	blank.dir, blank.opt.Progress, blank.kept = nil, nil, nil
	awaited()
	return inOrder(ctx, all, func(ctx context.Context, put func(int, cell)) error {
		return sideBySide(ctx, all, runtime.GOMAXPROCS(0), func(ctx context.Context, i int) error {
			var c cell
			c.point, c.samples, c.err = blank.apart(ctx, blank.points[i%n])
			put(i, c)
			return nil
		})
	}, func(i int, c cell) error {
		clock := r.virtualClock()
		for k := range c.point.Phases {
			ph := &c.point.Phases[k]
			ph.Start, ph.End = ph.Start+clock, ph.End+clock
		}
		for k := range c.samples {
			c.samples[k].T += clock
		}
		c.err = errors.Join(c.err, r.dir.Append(c.samples...))
		r.add(i%n, i/n, c.point, c.err)
		if c.err == nil && time.Since(saved) > time.Second { // for who looks on
			saved, c.err = time.Now(), r.keep()
		}
		awaited()
		return c.err
	})
}

// apart measures a point on a testbed of its own, in virtual time that begins at 0, and returns its
// samples. Nothing of the run that it is called on changes: it has no directory.
func (r *run) apart(ctx context.Context, p study.Planned) (_ *results.Point, _ []results.Sample, err error) {
	w := *r
	w.rec = &results.Record{ID: r.rec.ID, Scale: r.rec.Scale, Timings: map[string]float64{}}
	w.known, w.here = map[string]any{}, map[string]any{}
	if w.tb, err = drivers.Open(ctx, w.opt.Driver, p.Spec, fabricOf(p.Spec, w.opt.Driver), "", drivers.Held{}, w.opt.Slow); err != nil {
		return new(results.Point), nil, err
	}
	point, _, err := kinds.Of(p.Spec).Run(ctx, &study.Bench{Runner: &w, Planned: p})
	return point, w.kept, errors.Join(err, w.closeTestbed(ctx))
}
