package study

import (
	"errors"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
)

// TestCalibrate: what the testbed itself spoilt is measured again, and that is said.
func TestCalibrate(t *testing.T) {
	bad := results.Trouble{Where: "switch tor1", What: "frames leave 38 ms late", Fatal: true}
	remark := results.Trouble{Where: "switch tor1", What: "stood still once"}
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		spoilt int // times
		err    error
		calls  int
		fatal  bool
		says   string
	}{
		{name: "quiet", calls: 1},
		{name: "one stall", spoilt: 1, calls: 2, says: "measured 2 times; left out, as switch tor1: frames leave 38 ms late"},
		{name: "always late", spoilt: 100, calls: 4, fatal: true, says: "measured 4 times"},
		{name: "broken", spoilt: 100, err: broken, calls: 1, fatal: true},
	} {
		calls := 0
		got, err := Calibrate(func() ([]results.Trouble, error) {
			if calls++; calls <= c.spoilt {
				return []results.Trouble{remark, bad}, c.err
			}
			return []results.Trouble{remark}, c.err
		})
		fatal, said := false, ""
		for _, x := range got {
			fatal = fatal || x.Fatal
			said += x.What + "\n"
		}
		if calls != c.calls || !errors.Is(err, c.err) || fatal != c.fatal || !strings.Contains(said, c.says) || c.calls == 1 && len(got) > 2 {
			t.Errorf("%s: %d calls, %v, %+v", c.name, calls, err, got)
		}
	}
}
