package tomlfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Pos is a place in a file, or the command line flag that stands for one.
type Pos struct {
	File string
	Line int // from 1; 0: File is a flag ("--set switch.mode=x") or the file as a whole
	Col  int // from 1, in characters
}

// String is "lab.toml:12:8".
func (p Pos) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// Problem is one thing wrong with a file.
type Problem struct {
	Pos
	Msg  string // what is wrong, naming the thing
	Hint string // what to do about it; may be empty
}

// Error is the problem on one line:
//
//	lab.toml:12:8: link to unknown switch "s9": did you mean "s1"?
func (p Problem) Error() string {
	s := p.Pos.String() + ": " + p.Msg
	if p.Hint != "" {
		s += ": " + p.Hint
	}
	return s
}

// Problems is everything wrong with a file, in file order. As an error it is
// never empty.
type Problems []Problem

// Error is all problems, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Err sorts the problems by file, line and column (flags first), drops repeated
// ones and returns them as an error, or nil when there are none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	sorted := slices.Clone(ps)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(a.Line, b.Line)
		}
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	seen := make(map[Problem]bool, len(sorted))
	return slices.DeleteFunc(sorted, func(p Problem) bool {
		dup := seen[p]
		seen[p] = true
		return dup
	})
}

// hinted is an error that knows what to do about it.
type hinted struct{ msg, hint string }

func (e *hinted) Error() string { return e.msg }
func (e *hinted) Hint() string  { return e.hint }

// WithHint is an error with a hint that ends up in Problem.Hint when an
// UnmarshalText method returns it.
func WithHint(hint, format string, args ...any) error {
	return &hinted{fmt.Sprintf(format, args...), hint}
}

// HintOf is the hint of the first error in err's tree that has one, or "".
func HintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// DidYouMean is the hint for a name that is not among the known ones: the
// nearest of them, else all of them when they are few, else "".
func DidYouMean(name string, known []string) string {
	if near, ok := Nearest(name, known); ok {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(known) == 0 || len(known) > 24 {
		return ""
	}
	return "known: " + strings.Join(known, ", ")
}

// OneOf is the hint for a word that is none of the few that are allowed: the nearest of
// them, else all.
func OneOf(word string, allowed []string) string {
	if near, ok := Nearest(word, allowed); ok {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "one of " + strings.Join(allowed, ", ")
}

// Nearest returns the known name with the smallest edit distance to name
// (insertions, deletions, replacements and swaps of neighbours; the case of
// letters is ignored), if it is near enough to be what was meant: at most a
// third of the longer name, and one in short ones. The first of equals wins.
func Nearest(name string, known []string) (string, bool) {
	best, bestD := "", -1
	for _, k := range known {
		limit := max(1, max(len(name), len(k))/3)
		if d := len(name) - len(k); d > limit || -d > limit {
			continue
		}
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d <= limit && (bestD < 0 || d < bestD) {
			best, bestD = k, d
		}
	}
	// In a name of one letter every other letter is near.
	if bestD > 0 && min(len(name), len(best)) < 2 {
		return "", false
	}
	return best, bestD >= 0
}

// distance is the optimal string alignment distance between a and b, in bytes.
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
