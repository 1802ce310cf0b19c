// Package cbc runs COIN-OR's branch-and-cut solver on mixed integer linear programs: the program cbc of
// Debian's package coinor-cbc, found on PATH.
//
// It is started once for each program, with the program as a file (package lp) and a limit on its time,
// and ends by itself. What it found is in a file of its own, and what it proved in what it prints
// (Parse). Its exit status says neither: it is 0 also where cbc could not read the program.
package cbc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/placement/exact/lp"
)

// Program is the name that is looked for on PATH.
const Program = "cbc"

// Install is how to get it.
const Install = "sudo apt-get install coinor-cbc"

// ErrMissing is wrapped when cbc is not there.
var ErrMissing = errors.New(Program + " is not on PATH: " + Install)

// ErrAnswer is wrapped by errors about what cbc left behind.
var ErrAnswer = errors.New(Program + " gave no answer")

// Solver is cbc at a path. Its zero value has none: Find makes one.
type Solver struct {
	Path string
	// Grace is how long cbc may take beyond its limit, since it looks at the clock between two steps of
	// its work, before it is killed; 0: 30 seconds.
	Grace time.Duration
}

// Find is the cbc on PATH. The error wraps ErrMissing.
func Find() (Solver, error) {
	path, err := exec.LookPath(Program)
	if err != nil {
		return Solver{}, ErrMissing
	}
	return Solver{Path: path}, nil
}

// errLate is of a cbc that was killed as it went on beyond its limit and Grace.
var errLate = errors.New(Program + " was killed")

// Minimise has cbc solve a program within a limit of time by the clock. A program that it finds
// infeasible, or for which it finds nothing in time, is no error but an answer; so is one beyond whose
// limit and Grace it goes on, for which it is killed. Errors wrap ErrAnswer, that of ctx, or say why cbc
// could not be run.
func (s Solver) Minimise(ctx context.Context, p *lp.Program, limit time.Duration) (lp.Answer, error) {
	dir, err := os.MkdirTemp("", "inabench-cbc-")
	if err != nil {
		return lp.Answer{}, err
	}
	defer os.RemoveAll(dir)
	program, solution := filepath.Join(dir, "program.lp"), filepath.Join(dir, "solution.txt")
	if err := os.WriteFile(program, []byte(p.String()), 0o600); err != nil {
		return lp.Answer{}, err
	}
	begun := time.Now()
	log, err := s.run(ctx, limit, program, "-timeMode", "elapsed", "-sec", strconv.FormatFloat(limit.Seconds(), 'f', -1, 64),
		"-solve", "-solution", solution)
	elapsed := time.Since(begun)
	if errors.Is(err, errLate) {
		return lp.Answer{Solver: Program, Status: lp.Stopped, Bound: math.Inf(-1), Elapsed: elapsed}, nil
	}
	if err != nil {
		return lp.Answer{}, err
	}
	found, err := bounded.ReadFile(solution, bounded.Config)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return lp.Answer{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	a, err := Parse(log, string(found))
	a.Elapsed = elapsed
	return a, err
}

// run is what cbc prints with these arguments.
func (s Solver) run(ctx context.Context, limit time.Duration, args ...string) (string, error) {
	inTime, cancel := context.WithTimeoutCause(ctx, limit+cmp.Or(s.Grace, 30*time.Second), errLate)
	defer cancel()
	cmd := exec.CommandContext(inTime, s.Path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := bounded.Output(cmd, bounded.Config)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return string(out), nil
	case inTime.Err() != nil:
		return "", context.Cause(inTime)
	case errors.As(err, &exit):
		return "", fmt.Errorf("%w: %v: %s", ErrAnswer, err, lastLine(cmp.Or(string(exit.Stderr), string(out))))
	}
	return "", fmt.Errorf("run %s: %w", s.Path, err)
}
