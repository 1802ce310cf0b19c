package inventory

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// maxRange bounds what one range may stand for, so that a slip of the finger in
// "node[1-1000000000]" is a message and not a full memory.
const maxRange = 1 << 16

var rangePattern = regexp.MustCompile(`\[([0-9]+)-([0-9]+)\]`)

// rangeLen is how many names a pattern stands for: "node[01-16]" is 16, a plain
// name 1. Several ranges in one pattern step together and must agree.
func rangeLen(pattern string) (n int, ranged bool, err error) {
	for _, m := range rangePattern.FindAllStringSubmatch(pattern, -1) {
		lo, errLo := strconv.Atoi(m[1])
		hi, errHi := strconv.Atoi(m[2])
		switch {
		case errLo != nil || errHi != nil || hi-lo >= maxRange:
			return 0, true, fmt.Errorf("range %s is too long (at most %d)", m[0], maxRange)
		case hi < lo:
			return 0, true, tomlfile.WithHint(fmt.Sprintf("write [%s-%s]", m[2], m[1]), "range %s runs backwards", m[0])
		case ranged && hi-lo+1 != n:
			return 0, true, fmt.Errorf("ranges of different lengths in %q", pattern)
		}
		n, ranged = hi-lo+1, true
	}
	if !ranged {
		n = 1
	}
	return n, ranged, nil
}

// expand is the i-th name that a pattern stands for, zero padded like the
// pattern's lower bound.
func expand(pattern string, i int) string {
	return rangePattern.ReplaceAllStringFunc(pattern, func(s string) string {
		lo := rangePattern.FindStringSubmatch(s)[1]
		n, _ := strconv.Atoi(lo)
		return fmt.Sprintf("%0*d", len(lo), n+i)
	})
}

// Expand is the names that a pattern stands for, in order: "node[01-03]" is node01,
// node02 and node03. The error has a hint for tomlfile.HintOf.
func Expand(pattern string) ([]string, error) {
	n, _, err := rangeLen(pattern)
	if err != nil {
		return nil, err
	}
	out := make([]string, n)
	for i := range out {
		out[i] = expand(pattern, i)
	}
	return out, nil
}
