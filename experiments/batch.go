package experiments

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
)

// CellsVerb is the command that computes a part of a simulated sweep: the arguments after it are
// the directory of the sweep's cells, and which part it is.
const CellsVerb = "cells"

// Batch is where the points of a simulated sweep are computed when not in this process.
type Batch interface {
	// Start has parts 0 to n-1 computed, each by running the command in dir with the part's
	// number as a further argument, at whatever time and in whatever order. It does not wait.
	// What the command prints goes to a file below logs.
	Start(ctx context.Context, n int, dir, logs string, command []string) (Submitted, error)
}

// Submitted are parts that a Batch has been given.
type Submitted interface {
	// Active says whether some part is waiting or running still.
	Active(ctx context.Context) (bool, error)
	// Cancel ends all parts.
	Cancel(ctx context.Context) error
	// String names it to people.
	String() string
}

const (
	cellsDir   = ".cells"    // in a run directory, until the run has ended
	cellsWork  = "work.json" // what is to be computed
	mostParts  = 200         // that a sweep is cut into
	leastCells = 4           // of a part, so that starting does not cost more than computing
	lookEvery  = 100 * time.Millisecond

	askEvery    = 2 * time.Second  // of a batch system
	askPatience = 10 * time.Minute // with one that neither answers nor has computed anything meanwhile
)

// cellWork is what processes that compute cells are told.
type cellWork struct {
	// Of a run whose cells are taken over these are the same.
	Name, Text, Inventory, Tool string
	Sets                        []string
	Files                       map[string]string // that the experiment names -> hash of what is in them
	Points, Repeats             int

	Parts [][]int // cells: point + repeat * Points
}

func (w *cellWork) same(o *cellWork) bool {
	return w.Name == o.Name && w.Text == o.Text && w.Inventory == o.Inventory && w.Tool == o.Tool &&
		slices.Equal(w.Sets, o.Sets) && maps.Equal(w.Files, o.Files) && w.Points == o.Points && w.Repeats == o.Repeats
}

func cellPath(dir string, i int) string { return filepath.Join(dir, strconv.Itoa(i)+".cell") }

func writeCell(dir string, i int, p *study.Repetition) error {
	f, err := os.CreateTemp(dir, ".cell-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it is gone when all went well
	to := gob.NewEncoder(f)
	err = errors.Join(to.Encode(i), to.Encode(p))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), cellPath(dir, i))
}

// mostCell bounds a cell, bytes.
const mostCell = 256 << 20

// readCell is nil where the cell is not there, or not whole, or another one.
func readCell(dir string, i int) *study.Repetition {
	f, err := bounded.OpenOwn(cellPath(dir, i)) // others may write into the directory
	if err != nil {
		return nil
	}
	defer f.Close()
	var (
		of   int
		c    study.Repetition
		from = gob.NewDecoder(io.LimitReader(f, mostCell))
	)
	if from.Decode(&of) != nil || of != i || from.Decode(&c) != nil {
		return nil
	}
	return &c
}

// CellsMain computes a part of a sweep: a file for each cell, as soon as it is done.
func CellsMain(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: cells DIR PART")
	}
	dir := args[0]
	part, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	w, err := readWork(dir)
	if err != nil {
		return err
	}
	if part < 0 || part >= len(w.Parts) {
		return fmt.Errorf("there is no part %d of %d", part, len(w.Parts))
	}
	s, err := kinds.Parse(w.Name, []byte(w.Text), nil, w.Sets...)
	if err != nil {
		return err
	}
	if got := s.Inventory().SHA256; got != w.Inventory {
		return fmt.Errorf("the inventory %s is another one on this machine: %s, not %s", s.Inventory().File, got, w.Inventory)
	}
	files, err := kinds.Files(s)
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if files[path] != w.Files[path] {
			return fmt.Errorf("%s is another one on this machine: %s, not %s", path, files[path], w.Files[path])
		}
	}
	points := s.Points()
	if len(points) != w.Points {
		return fmt.Errorf("the sweep has %d points on this machine, not %d", len(points), w.Points)
	}
	for _, i := range w.Parts[part] {
		if readCell(dir, i) != nil { // a batch system may start parts again
			continue
		}
		p := points[i%w.Points]
		if err := kinds.Of(p.Spec).Ready(study.Planned{Point: p, Times: i/w.Points + 1}); err != nil {
			return fmt.Errorf("%s%w", spec.Prefix(p.Labels), err)
		}
		c, err := kinds.Simulator(p.Spec, "sim").Simulate(ctx, p.Spec, i/w.Points)
		if err != nil {
			return fmt.Errorf("%s%w", spec.Prefix(p.Labels), err)
		}
		if err := writeCell(dir, i, c); err != nil {
			return err
		}
	}
	return nil
}

func readWork(dir string) (*cellWork, error) {
	text, err := bounded.ReadFile(filepath.Join(dir, cellsWork), results.MaxRecord)
	if err != nil {
		return nil, err
	}
	w := new(cellWork)
	if err := json.Unmarshal(text, w); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, cellsWork), err)
	}
	return w, nil
}

// save writes what readWork reads.
func (w *cellWork) save(dir string) error {
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return results.WriteAtomically(filepath.Join(dir, cellsWork), text)
}

// checkBatch says why an experiment cannot be computed elsewhere.
func checkBatch(s *spec.Spec, driver string) error {
	switch {
	case kinds.Simulator(s, driver) == nil:
		return fmt.Errorf("%w: a batch system computes simulated [trace], [operations], [service] and [training] only", errors.ErrUnsupported)
	case s.Timed():
		return fmt.Errorf("%w: a batch system cannot tell how long placing takes, as other work runs beside it", errors.ErrUnsupported)
	}
	return nil
}

// elsewhere has all cells computed by the batch system, but those of an earlier run, and hands each
// over as it is done: done is called from this goroutine.
func (r *run) elsewhere(ctx context.Context, cells int, done func(i int, c *study.Repetition)) (err error) {
	dir, err := filepath.Abs(filepath.Join(r.dir.Path, cellsDir))
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if r.unread != nil {
		return r.unread
	}
	w := r.work()
	if err := r.takeOver(dir, w); err != nil {
		return err
	}
	var missing []int
	waiting := map[int]bool{}
	for i := range cells {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if c := readCell(dir, i); c != nil {
			done(i, c)
			continue
		}
		missing, waiting[i] = append(missing, i), true
	}
	r.cells = dir // until the record is there
	w.Parts = slices.Collect(slices.Chunk(missing, max(leastCells, (len(missing)+mostParts-1)/mostParts)))
	if err := w.save(dir); err != nil {
		return err
	}
	if len(missing) == 0 {
		return nil
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	batch, err := r.opt.Batch.Start(ctx, len(w.Parts), here, dir, []string{program, CellsVerb, dir})
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		quit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, batch.Cancel(quit))
	}()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	said := inquiry{batch: batch, asked: time.Now(), heard: time.Now()}
	active := true
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			i, err := strconv.Atoi(strings.TrimSuffix(e.Name(), ".cell"))
			if err != nil || !waiting[i] {
				continue
			}
			if c := readCell(dir, i); c != nil {
				delete(waiting, i)
				done(i, c)
				said.heard = time.Now()
			}
		}
		switch {
		case len(waiting) == 0:
			return nil
		case !active: // and what it left has just been looked at
			return fmt.Errorf("%s ended without %d of %d points: %s", batch, len(waiting), cells, lastWords(dir))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		if active, err = said.active(ctx, time.Now()); err != nil {
			return err
		}
	}
}

// inquiry is how things stand with a batch system that computes parts of a sweep.
type inquiry struct {
	batch        Submitted
	asked, heard time.Time // when it was asked last, and when it last answered or a cell came
}

// active says whether some part is waiting or running still, as far as is known. A batch system that does not answer is waited
// for: it restarts, or another machine takes it over, while its parts go on.
func (q *inquiry) active(ctx context.Context, now time.Time) (bool, error) {
	if now.Sub(q.asked) < askEvery {
		return true, nil
	}
	q.asked = now
	active, err := q.batch.Active(ctx)
	switch {
	case err == nil:
		q.heard = now
		return active, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case now.Sub(q.heard) >= askPatience:
		return false, err
	}
	return true, nil
}

// work is what processes that compute the run's cells are told, but for their parts.
func (r *run) work() *cellWork {
	s := r.spec
	return &cellWork{Files: r.files, Name: s.File, Text: s.Text, Inventory: s.Inventory().SHA256, Tool: r.opt.Tool, Sets: s.Overrides, Points: len(r.points), Repeats: r.opt.Repeats}
}

// resumable is an error that wraps spec.ErrInput where the run cannot take over the cells of the one that it should.
func (r *run) resumable(w *cellWork) error {
	if r.opt.Resume == "" {
		return nil
	}
	if results.Running(r.opt.Resume) {
		return fmt.Errorf("%w: %s is a run that still goes on, and its points are its own", spec.ErrInput, r.opt.Resume)
	}
	old, err := readWork(filepath.Join(r.opt.Resume, cellsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s has no points to take over", spec.ErrInput, r.opt.Resume)
	}
	if err != nil {
		return err
	}
	if !old.same(w) {
		return fmt.Errorf("%w: %s is a run of another experiment, or with other files, or by another inabench", spec.ErrInput, r.opt.Resume)
	}
	return nil
}

// takeOver moves the cells of an earlier run, which was cut off, here. From the first one on they can be taken over from here.
// When all are here that run has nothing to take over any more.
func (r *run) takeOver(dir string, w *cellWork) error {
	if r.opt.Resume == "" {
		return nil
	}
	if err := r.resumable(w); err != nil {
		return err
	}
	from := filepath.Join(r.opt.Resume, cellsDir)
	if err := w.save(dir); err != nil {
		return err
	}
	for i := range w.Points * w.Repeats {
		if err := os.Rename(cellPath(from, i), cellPath(dir, i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Remove(filepath.Join(from, cellsWork))
}

// lastWords is the end of what the first part said that said something.
func lastWords(dir string) string {
	names, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, name := range names {
		if text, err := bounded.ReadFile(name, bounded.Config); err == nil && len(strings.TrimSpace(string(text))) > 0 {
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			return lines[len(lines)-1]
		}
	}
	return "nothing was said"
}

// Slurm is the batch system Slurm: one job array. Its options are those that sbatch takes from the
// environment, such as SBATCH_PARTITION. The run directory, the experiment's files and this program
// are at the same place on its machines.
type Slurm struct{}

// slurmScript is all that a shell sees: paths are in the environment.
const slurmScript = "#!/bin/sh\nexec \"$INABENCH_CELLS_PROGRAM\" \"$INABENCH_CELLS_VERB\" \"$INABENCH_CELLS_DIR\" \"$SLURM_ARRAY_TASK_ID\"\n"

// Start implements Batch. The error wraps errors.ErrUnsupported where there is no Slurm.
func (Slurm) Start(ctx context.Context, n int, dir, logs string, command []string) (Submitted, error) {
	if _, err := exec.LookPath("sbatch"); err != nil {
		return nil, fmt.Errorf("%w: Slurm: sbatch is not on PATH", errors.ErrUnsupported)
	}
	cmd := exec.CommandContext(ctx, "sbatch", "--parsable", "--job-name=inabench", "--export=ALL", "--ntasks=1", "--cpus-per-task=1",
		"--array=0-"+strconv.Itoa(n-1), "--chdir="+dir, "--output="+strings.ReplaceAll(logs, "%", "%%")+"/%a.log")
	cmd.Env = append(os.Environ(), "INABENCH_CELLS_PROGRAM="+command[0], "INABENCH_CELLS_VERB="+command[1], "INABENCH_CELLS_DIR="+command[2])
	cmd.Stdin = strings.NewReader(slurmScript)
	out, err := output(cmd)
	if err != nil {
		return nil, err
	}
	id, _, _ := strings.Cut(out, ";") // the cluster's name may follow
	if _, err := strconv.Atoi(id); err != nil {
		return nil, fmt.Errorf("sbatch: %q is no job", out)
	}
	return slurmJob(id), nil
}

// slurmJob is a job array by its id.
type slurmJob string

func (j slurmJob) String() string { return "Slurm job " + string(j) }

func (j slurmJob) Active(ctx context.Context) (bool, error) {
	out, err := output(exec.CommandContext(ctx, "squeue", "--noheader", "--format=%T", "--jobs="+string(j)))
	if err != nil && strings.Contains(err.Error(), "Invalid job id") { // it ended a while ago
		return false, nil
	}
	return out != "", err
}

func (j slurmJob) Cancel(ctx context.Context) error {
	_, err := output(exec.CommandContext(ctx, "scancel", "--quiet", string(j)))
	return err
}

// output is what a command prints; its error says what the command said.
func output(cmd *exec.Cmd) (string, error) {
	out, err := bounded.Output(cmd, bounded.Config)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}
