package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
)

// answering is a batch system that answers a number of times, and then no more.
type answering struct {
	backwards
	answers []bool
}

var errNoAnswer = errors.New("socket timed out")

func (a *answering) Active(context.Context) (bool, error) {
	if len(a.answers) == 0 {
		return false, errNoAnswer
	}
	active := a.answers[0]
	a.answers = a.answers[1:]
	return active, nil
}

// A batch system that does not answer for some time does not end a sweep whose parts go on; one that does not come back does.
func TestInquiry(t *testing.T) {
	began := time.Now()
	for _, c := range []struct {
		name    string
		answers []bool
		at      time.Duration // of the last answer or cell
		now     time.Duration
		active  bool
		err     error
	}{
		{"asked a moment ago", nil, 0, askEvery / 2, true, nil},
		{"parts go on", []bool{true}, 0, askEvery, true, nil},
		{"all have ended", []bool{false}, 0, askEvery, false, nil},
		{"no answer", nil, 0, askEvery, true, nil},
		{"no answer for long", nil, 0, askPatience, false, errNoAnswer},
		{"no answer for long, and cells come", nil, askPatience - askEvery, askPatience, true, nil},
	} {
		q := inquiry{batch: &answering{answers: c.answers}, asked: began, heard: began.Add(c.at)}
		if active, err := q.active(t.Context(), began.Add(c.now)); active != c.active || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", c.name, active, err)
		}
	}
	q := inquiry{batch: &answering{answers: []bool{true}}, asked: began, heard: began}
	for now := askEvery; now < askPatience; now += askEvery { // the first time it answers
		if active, err := q.active(t.Context(), began.Add(now)); !active || err != nil {
			t.Fatalf("after %v: %v, %v", now, active, err)
		}
	}
	if _, err := q.active(t.Context(), began.Add(askEvery+askPatience)); !errors.Is(err, errNoAnswer) {
		t.Errorf("it never answered again: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	cancel(why)
	q = inquiry{batch: &answering{}, asked: began, heard: began}
	if _, err := q.active(ctx, began.Add(askEvery)); !errors.Is(err, why) {
		t.Errorf("interrupted while it was asked: %v", err)
	}
}

// errKilled is how a run ends that cannot do anything about it.
var errKilled = errors.New("killed")

// TestTakeOverOfRunning: a run that goes on keeps its points.
func TestTakeOverOfRunning(t *testing.T) {
	dir, err := results.Create(t.TempDir(), &results.Record{Name: "sweep"})
	if err != nil {
		t.Fatal(err)
	}
	from, w := filepath.Join(dir.Path, cellsDir), &cellWork{Points: 1, Repeats: 1}
	if err := errors.Join(os.MkdirAll(from, 0o755), w.save(from), os.WriteFile(cellPath(from, 0), []byte("it"), 0o644)); err != nil {
		t.Fatal(err)
	}
	r, to := &run{opt: RunOptions{Resume: dir.Path}}, t.TempDir()
	for _, running := range []bool{true, false} {
		if err := r.takeOver(to, w); running != errors.Is(err, spec.ErrInput) || !running && err != nil {
			t.Errorf("running %t: %v", running, err)
		}
		for _, name := range []string{filepath.Join(from, cellsWork), cellPath(from, 0)} {
			if _, err := os.Stat(name); (err == nil) != running {
				t.Errorf("running %t: %s: %v", running, name, err)
			}
		}
		if err := dir.Close(); running && err != nil {
			t.Fatal(err)
		}
	}
}

// What a run has taken over can be taken over from it, also if it ended while it read that; and from where it was there is
// nothing to take over.
func TestTakeOverTwice(t *testing.T) {
	parsed := func() *spec.Spec {
		s, err := kinds.Parse("sweep.toml", sweepText(1, 24), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	resumed := func(from string) error {
		root := t.TempDir()
		_, _, err := Run(t.Context(), parsed(), RunOptions{Driver: "sim", Root: root, Batch: backwards{}, Resume: from})
		if left, _ := os.ReadDir(root); err != nil && len(left) > 0 {
			t.Errorf("it was refused, and %s is the latest run", left[0].Name())
		}
		return err
	}
	cells := func(dir string) int {
		names, _ := filepath.Glob(filepath.Join(dir, cellsDir, "*.cell"))
		return len(names)
	}
	_, cut, err := Run(t.Context(), parsed(), RunOptions{Driver: "sim", Root: t.TempDir(), Batch: cutOff{}})
	if !errors.Is(err, errCutOff) {
		t.Fatal(err)
	}
	had := cells(cut.Path)
	if had == 0 {
		t.Fatal("the first part left nothing")
	}
	// reads has a new run take over the cells of another and read them, one of which kills it.
	reads := func(ctx context.Context, from string) (dir string, err error) {
		s := parsed()
		r := &run{spec: s, points: make([]study.Planned, len(s.Points())), dir: &results.Dir{Path: t.TempDir()}}
		r.opt.Repeats, r.opt.Resume = s.Measure.Fewest(), from
		defer func() {
			if said := recover(); said != nil {
				dir, err = r.dir.Path, fmt.Errorf("%w: %v", errKilled, said)
			}
			if n := cells(r.dir.Path); n != had {
				t.Errorf("%d cells were taken over of %d", n, had)
			}
		}()
		return r.dir.Path, r.elsewhere(ctx, len(r.points)*r.opt.Repeats, func(int, *study.Repetition) { panic("kill -9") })
	}
	killed, err := reads(t.Context(), cut.Path)
	if !errors.Is(err, errKilled) {
		t.Fatalf("it has read nothing: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	interrupted, err := reads(ctx, killed)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("it went on when it was interrupted: %v", err)
	}
	for _, from := range []string{cut.Path, killed} {
		if err := resumed(from); !errors.Is(err, spec.ErrInput) {
			t.Errorf("from where nothing is any more: %v", err)
		}
	}
	if err := resumed(interrupted); err != nil {
		t.Errorf("from where it was taken to: %v", err)
	}
}

// A cell that has another one's name is none: it would be the figures of another point.
func TestCellOfAnother(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 {
		if err := writeCell(dir, i, &study.Repetition{End: float64(1 + i)}); err != nil {
			t.Fatal(err)
		}
	}
	if c := readCell(dir, 1); c == nil || c.End != 2 {
		t.Errorf("read %+v", c)
	}
	if err := os.Rename(cellPath(dir, 0), cellPath(dir, 1)); err != nil {
		t.Fatal(err)
	}
	if c := readCell(dir, 1); c != nil {
		t.Errorf("cell 0 passes for cell 1: %+v", c)
	}
}
