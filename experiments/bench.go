package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/remote"
)

// bench is what a study has of a run while it does one repeat of a point: the testbed that is open, the
// run's clock, a place for all that it reads and hears, and what was calibrated before.
type bench struct {
	planned
	repeat int
	placed placed // what the run looks at when the study is done
	run    *run
}

// testbed is the testbed that is open.
func (b *bench) testbed() testbed.Testbed { return b.run.tb }

// hosts is the testbed where processes can be started on its hosts; what says what needs that.
func (b *bench) hosts(what string) (*remote.Testbed, error) {
	tb, ok := b.run.tb.(*remote.Testbed)
	if !ok {
		return nil, fmt.Errorf("%s on a %s: %w", what, b.run.tb.Capabilities().Switch, errors.ErrUnsupported)
	}
	return tb, nil
}

// kind is the kind of figures that the testbed gives.
func (b *bench) kind() results.Kind { return b.run.tb.Capabilities().Kind }

// driver is what the run is on, of Drivers.
func (b *bench) driver() string { return b.run.opt.Driver }

// id is the run's.
func (b *bench) id() string { return b.run.rec.ID }

// scale is how the testbed relates to the lab.
func (b *bench) scale() results.Scale { return b.run.rec.Scale }

// seed is that of the repeat.
func (b *bench) seed() uint64 { return b.Spec.Measure.Seed + uint64(b.repeat) }

// beat is the time for which the testbed's parts were built that matters to the study; see fabricKey.
func (b *bench) beat() time.Duration { return b.run.fabric.beat }

// journal is where changes of a lab are written down before they are made; nil elsewhere.
func (b *bench) journal() *journal.Journal { return b.run.held.hold.Journal }

// now is the run's clock.
func (b *bench) now() time.Duration { return time.Since(b.run.origin) }

// status says what is done, and how long that and what comes after it takes; 0: nobody knows.
func (b *bench) status(stage string, left time.Duration) {
	b.run.status(stage, spec.Labels(b.Labels), left)
}

// timing adds the time since it began to what the record says that a stage took.
func (b *bench) timing(stage string, began time.Time) { b.run.timing(stage, began) }

// warn adds a remark to the record, once.
func (b *bench) warn(text string) { b.run.warn(text) }

// left is how long this point and all after it are planned to take, by the experiment's own times.
func (b *bench) left() time.Duration { return b.run.left() }

// countdown says how long the run still takes, if each point and repeat takes so long and this one begins now.
func (b *bench) countdown(each time.Duration) func() time.Duration {
	end, rest := time.Now().Add(each), time.Duration(len(b.rest()))*each
	return func() time.Duration { return max(0, time.Until(end)) + rest }
}

// rest are the repeats of points that come after this one.
func (b *bench) rest() (out []bench) {
	points := b.run.points
	for i := b.run.done + 1; i < len(points)*b.run.opt.Repeats; i++ {
		out = append(out, bench{planned: points[i%len(points)], repeat: i / len(points), run: b.run})
	}
	return out
}

// sabotage gives the testbed the run's fault, which it has until end; see run.sabotage.
func (b *bench) sabotage(ctx context.Context) (end func() int64, err error) {
	return b.run.sabotage(ctx)
}

// keep puts samples into the run directory, on the run's clock.
func (b *bench) keep(samples ...results.Sample) error {
	return errors.Join(b.run.dir.Append(samples...), b.run.dir.Flush())
}

// calibrated puts what was calibrated into the record.
func (b *bench) calibrated(found ...results.Calibration) {
	b.run.rec.Calibration = append(b.run.rec.Calibration, found...)
}

// path is that of a file in the run directory, for others to write.
func (b *bench) path(elem ...string) string {
	return filepath.Join(append([]string{b.run.dir.Path}, elem...)...)
}

// write makes a file in the run directory.
func (b *bench) write(name string, text []byte) error { return b.run.dir.WriteFile(name, text) }

// told is which repeat of which point a line of a file is of.
type told struct {
	Point  string `json:"point"`
	Repeat int    `json:"repeat"`
}

func (b *bench) told() told { return told{strings.Join(b.Labels, " "), b.repeat} }

// lines adds n lines of JSON to a file of the run directory.
func (b *bench) lines(file string, n int, line func(i int) any) error {
	f, err := bounded.OpenFile(b.path(file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	e := json.NewEncoder(f)
	for i := range n {
		if err := e.Encode(line(i)); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// once is what f made the first time that the run asked for the key without an error.
func once[T any](b *bench, key string, f func() (T, error)) (T, error) {
	if v, ok := b.run.known[key].(T); ok {
		return v, nil
	}
	v, err := f()
	if err == nil {
		b.run.known[key] = v
	}
	return v, err
}

// watchStalls collects the stalls that the testbed and its processes have from now on.
func (b *bench) watchStalls(ctx context.Context, tb *remote.Testbed) (*stillness, error) {
	return watchStalls(ctx, func(ctx context.Context) ([]testbed.Stall, error) { return tb.Stalls(ctx, b.run.origin) }, 0)
}

// sampler reads a testbed's counters while a study runs on it, and keeps what it reads.
type sampler struct {
	*collectors.Sampler
	bench *bench
	links *linkLoads
	still *stillness           // nil: nobody looks for stalls
	names map[string]string    // of counters of what is handed over, as placed.keep takes them; nil: none is kept
	left  func() time.Duration // nil: the status stays as it is
	// lenient says that counters that cannot be read are a remark and no error.
	lenient, unread bool
}

// sampler reads the counters of a testbed; jobs are its jobs' names by number, as switches count them.
func (b *bench) sampler(ctx context.Context, tb *remote.Testbed, jobs map[int]string) (*sampler, error) {
	counters, err := tb.Counters(ctx, b.now, jobs)
	return &sampler{Sampler: counters, bench: b, links: newLinkLoads(tb)}, err
}

// read is one reading; reports are what jobs said themselves since the last one.
func (s *sampler) read(ctx context.Context, reports ...results.Sample) error {
	if s.left != nil {
		s.bench.status("measure", s.left())
	}
	read, err := s.Sample(ctx)
	s.links.keep(read)
	if s.lenient && err != nil && ctx.Err() == nil {
		if !s.unread {
			s.bench.warn("counters: " + strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		s.unread, err = true, nil
	}
	read = slices.Concat(reports, read)
	if s.names != nil {
		s.bench.placed.keep(s.names, read)
	}
	if s.still != nil {
		err = errors.Join(err, s.still.read(ctx))
	}
	return errors.Join(err, s.bench.keep(read...))
}
