// Package collectors turns counters into samples: those of NICs and GPUs, read over
// SSH, those of switches, read through P4Runtime, and what workers report. All of
// them come out on the run's clock.
//
// A source that cannot be read costs its own samples and nothing else, and leaves a
// trace among the samples.
package collectors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/inabench/inabench/results"
)

// ErrNoData is wrapped when a source is not there at all, such as a host without
// GPUs. That is not a failure, so it is never joined with one.
var ErrNoData = errors.New("no data")

// Collector reads the counters of one source once.
type Collector interface {
	// Name says what is read from where: "nic h1".
	Name() string
	// Collect returns what could be read, and an error that says what could not; both
	// may be present. It returns soon after ctx has ended. Samples whose T is 0 are
	// taken to be read halfway through the call.
	Collect(ctx context.Context) ([]results.Sample, error)
}

// Sampler reads collectors together.
type Sampler struct {
	Collectors []Collector
	Timeout    time.Duration        // for each reading; 0: 5 s
	Now        func() time.Duration // the run's clock
	Audit      *Audit               // of all counters; nil: none
}

// Sample reads every collector once, at the same time, and returns their samples in
// the order of Collectors. To those of each it adds two about itself, "of" its name:
// collector_seconds, how long the reading took, and collector_error, 1 when it failed
// or was incomplete. The error joins the failures; ErrNoData is none.
func (s *Sampler) Sample(ctx context.Context) ([]results.Sample, error) {
	timeout := s.Timeout
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	samples := make([][]results.Sample, len(s.Collectors))
	errs := make([]error, len(s.Collectors))
	var wg sync.WaitGroup
	for i, c := range s.Collectors {
		wg.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
			defer cancel()
			samples[i], errs[i] = s.collect(ctx, c)
		})
	}
	wg.Wait()
	var all []results.Sample
	for _, some := range samples {
		all = append(all, some...)
	}
	if s.Audit != nil {
		all = s.Audit.Check(all)
	}
	return all, errors.Join(errs...)
}

func (s *Sampler) collect(ctx context.Context, c Collector) ([]results.Sample, error) {
	begin := s.Now().Seconds()
	samples, err := c.Collect(ctx)
	end := s.Now().Seconds()
	for i := range samples {
		if samples[i].T == 0 {
			samples[i].T = (begin + end) / 2
		}
	}
	failed := 0.0
	if errors.Is(err, ErrNoData) {
		err = nil
	}
	if err != nil {
		failed = 1
		if _, subject, ok := strings.Cut(c.Name(), " "); !ok || !strings.Contains(err.Error(), subject) {
			err = fmt.Errorf("%s: %w", c.Name(), err) // it does not say of what it speaks
		}
	}
	about := results.Sample{T: end, Source: "collector", Of: c.Name(), Gauge: true}
	took, trouble := about, about
	took.Metric, took.Unit, took.Value = "collector_seconds", "s", end-begin
	trouble.Metric, trouble.Unit, trouble.Value = "collector_error", "1", failed
	return append(samples, took, trouble), err
}

// Run samples now and then every interval until ctx ends, and hands each round to
// emit. A round that takes longer than the interval delays the next.
func (s *Sampler) Run(ctx context.Context, interval time.Duration, emit func([]results.Sample, error)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		samples, err := s.Sample(ctx)
		if ctx.Err() != nil {
			return // cut short, so its failures mean nothing
		}
		emit(samples, err)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
