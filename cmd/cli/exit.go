package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/hosts"
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
	exitBusy         = 8 // someone else uses the testbed
	exitLeftovers    = 9 // cleanup incomplete
)

// ending is an error that has an exit code of its own.
type ending interface {
	error
	exit() int
}

// outcomeError carries a run's outcome to exitCode; the report has said the rest.
type outcomeError struct{ outcome results.Outcome }

func (o outcomeError) Error() string { return "run: " + string(o.outcome) }
func (o outcomeError) exit() int     { return results.ExitCode(o.outcome) }

// commandError is a command that `inabench ssh` ran on a host: its exit status is
// this program's, and it has said on stderr what was wrong.
type commandError struct{ *hosts.RunError }

// A host may say what no process ends with: 256 would be 0.
func (e *commandError) exit() int { return min(e.Exit, 255) }

// hinted is an error with what to do about it.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }
func (h hinted) Hint() string  { return h.hint }

// outputError is a file that was asked for and cannot be written.
type outputError struct{ error }

func (o outputError) Unwrap() error { return o.error }

// isA reports whether an error is one of a type, or wraps one.
func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// exitCode prints what err says, a line for the error and one for the hint, and
// returns the code to leave with.
func exitCode(ctx context.Context, err error, stderr io.Writer) int {
	stopped, interrupted := errors.AsType[interruption](context.Cause(ctx))
	switch {
	case isA[saidError](err):
	case interrupted:
		// What only came of the interruption says nothing new.
		rest := slices.DeleteFunc(flatten(err), func(e error) bool {
			return errors.Is(e, stopped) || errors.Is(e, context.Canceled) || isA[outcomeError](e) || isA[nightError](e)
		})
		if len(rest) == 0 {
			after := "everything was taken down"
			if _, ok := keptOf(ctx); ok {
				after = "the emulation stays up"
			}
			if in, ok := ctx.Value(interruptsKey{}).(*interrupts); ok && in.harmless.Load() {
				after = "nothing was changed"
			}
			fmt.Fprintf(stderr, "inabench: %v; %s\n", stopped, after)
			break
		}
		fmt.Fprintf(stderr, "inabench: %v\n", stopped)
		say(stderr, errors.Join(rest...))
	case isA[outcomeError](err), isA[nightError](err), isA[*commandError](err): // has been said
	default:
		say(stderr, err)
	}
	return codeOf(ctx, err)
}

// codeOf is the exit code for an error. All codes are decided here.
func codeOf(ctx context.Context, err error) int {
	if errors.Is(err, testbed.ErrLeftovers) { // whatever else went wrong is over
		return exitLeftovers
	}
	if stopped, ok := errors.AsType[interruption](context.Cause(ctx)); ok {
		return 128 + int(stopped.sig)
	}
	if e, ok := errors.AsType[ending](err); ok {
		return e.exit()
	}
	switch {
	case err == nil:
		return exitOK
	case isA[usageError](err):
		return exitUsage
	case isA[inputError](err), isA[tomlfile.Problems](err), errors.Is(err, spec.ErrInput):
		return exitInvalid
	case isA[*placement.InfeasibleError](err), errors.Is(err, placement.ErrMemory):
		return exitInfeasible
	case errors.Is(err, testbed.ErrBusy):
		return exitBusy
	case errors.Is(err, errors.ErrUnsupported), isA[*experiments.BeginError](err), isA[outputError](err):
		return exitUnsupported
	}
	return exitTestbed
}

// flatten is what errors.Join joined.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	// Errors that wrap several others with words of their own stay whole.
	many, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(many.Unwrap()...).Error() {
		return []error{err}
	}
	var out []error
	for _, e := range many.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}

// say prints an error the way every error is printed: what is wrong, then what to
// do. Problems of a file come one a line, as editors and CI understand them.
func say(stderr io.Writer, err error) {
	if err == nil {
		return
	}
	if problems, ok := errors.AsType[tomlfile.Problems](err); ok {
		for _, p := range problems {
			fmt.Fprintln(stderr, p)
		}
	}
	first, rest := message(err)
	fmt.Fprintf(stderr, "inabench: error: %s\n", first)
	for _, line := range rest {
		fmt.Fprintf(stderr, "  %s\n", line)
	}
	for _, h := range hints(err, nil) {
		fmt.Fprintf(stderr, "inabench: hint: %s\n", h)
	}
}

// message is what an error says, without its problems, which stand on their own,
// and without saying anything twice; then whatever belongs to it.
func message(err error) (first string, rest []string) {
	text := err.Error()
	if problems, ok := errors.AsType[tomlfile.Problems](err); ok {
		text = strings.ReplaceAll(text, problems.Error(), human.Plural(len(problems), "problem"))
	}
	for _, h := range hints(err, nil) { // they come on lines of their own
		text = strings.ReplaceAll(text, "; "+h, "")
	}
	if infeasible, ok := errors.AsType[*placement.InfeasibleError](err); ok {
		text += strings.TrimPrefix(infeasible.Report(), infeasible.Error())
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line == first || slices.Contains(rest, line) {
			continue
		}
		if first == "" {
			first = line
		} else {
			rest = append(rest, line)
		}
	}
	return first, rest
}

// failureCodes are the codes of errors by the exit code; outcomes of runs have those of checks.
var failureCodes = map[int]string{
	exitUsage: results.CodeUsage, exitInvalid: results.CodeInput, exitInfeasible: results.CodeInfeasible,
	exitUnsupported: results.CodeUnsupported, exitTestbed: results.CodeTestbed, exitBusy: results.CodeBusy, exitLeftovers: results.CodeLeftovers,
}

// failure is an error for programs that read stdout.
func failure(err error, code int) any {
	type problem struct {
		File    string `json:"file"`
		Line    int    `json:"line,omitempty"`
		Column  int    `json:"column,omitempty"`
		Message string `json:"message"`
		Hint    string `json:"hint,omitempty"`
	}
	type document struct {
		Message  string    `json:"message"`
		Code     string    `json:"code,omitempty"` // for inabench explain
		More     []string  `json:"more,omitempty"`
		Hints    []string  `json:"hints,omitempty"`
		Problems []problem `json:"problems,omitempty"`
		ExitCode int       `json:"exit_code"`
	}
	d := document{ExitCode: code, Code: failureCodes[code], Hints: hints(err, nil)}
	d.Message, d.More = message(err)
	if problems, ok := errors.AsType[tomlfile.Problems](err); ok {
		for _, p := range problems {
			d.Problems = append(d.Problems, problem{p.File, p.Line, p.Col, p.Msg, p.Hint})
		}
	}
	return map[string]any{"error": d}
}

// hints collects what the errors in a tree advise, once each.
func hints(err error, got []string) []string {
	advice := ""
	switch e := err.(type) {
	case interface{ Hint() string }:
		advice = e.Hint()
	case *hosts.Error:
		advice = e.Hint
	}
	if advice != "" && !slices.Contains(got, advice) {
		got = append(got, advice)
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
