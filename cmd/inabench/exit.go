package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// Exit codes are part of the interface: scripts and CI tell a regression (1) from
// a broken testbed (6) and from one that could not decide (7).
const (
	exitOK           = 0
	exitFailed       = 1 // an expectation failed
	exitUsage        = 2
	exitInvalid      = 3 // an input file
	exitInfeasible   = 4 // no placement
	exitUnsupported  = 5 // not on this machine
	exitTestbed      = 6 // the testbed failed during the run
	exitInconclusive = 7
	exitBusy         = 8 // reservation refused
	exitLeftovers    = 9 // cleanup incomplete
)

// outcomeError carries a run's outcome to exitCode; the report has said the rest.
type outcomeError struct{ outcome results.Outcome }

func (o outcomeError) Error() string { return "run: " + string(o.outcome) }

// exitCode prints what err says, a line for the error and one for the hint, and
// returns the code to leave with. All codes are decided here.
func exitCode(ctx context.Context, err error, stderr io.Writer) int {
	var stopped interruption
	if errors.As(context.Cause(ctx), &stopped) {
		say(stderr, err)
		fmt.Fprintf(stderr, "inabench: %v; everything was taken down\n", stopped)
		return 128 + int(stopped.sig)
	}
	if err == nil {
		return exitOK
	}
	var outcome outcomeError
	if errors.As(err, &outcome) {
		return results.ExitCode(outcome.outcome)
	}
	say(stderr, err)
	var (
		usage      usageError
		problems   tomlfile.Problems
		infeasible *placement.InfeasibleError
	)
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &problems), errors.Is(err, experiments.ErrInput):
		return exitInvalid
	case errors.As(err, &infeasible), errors.Is(err, placement.ErrMemory):
		return exitInfeasible
	case errors.Is(err, testbed.ErrBusy):
		return exitBusy
	case errors.Is(err, testbed.ErrLeftovers):
		return exitLeftovers
	case errors.Is(err, errors.ErrUnsupported):
		return exitUnsupported
	}
	return exitTestbed
}

// say prints an error the way every error is printed: what is wrong, then what to
// do. Problems of a file come one a line, as editors and CI understand them.
func say(stderr io.Writer, err error) {
	if err == nil {
		return
	}
	var problems tomlfile.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Fprintln(stderr, p)
		}
		n := len(problems)
		fmt.Fprintf(stderr, "inabench: error: %d problem%s\n", n, plural(n))
		return
	}
	fmt.Fprintf(stderr, "inabench: error: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	var infeasible *placement.InfeasibleError
	if errors.As(err, &infeasible) {
		for line := range strings.Lines(infeasible.Report()) {
			fmt.Fprint(stderr, "  ", line)
		}
	}
	for _, h := range hints(err, nil) {
		fmt.Fprintf(stderr, "inabench: hint: %s\n", h)
	}
}

// hints collects what the errors in a tree advise, once each.
func hints(err error, got []string) []string {
	if h, ok := err.(interface{ Hint() string }); ok {
		if s := h.Hint(); s != "" && !contains(got, s) {
			got = append(got, s)
		}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			got = hints(inner, got)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			got = hints(inner, got)
		}
	}
	return got
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
