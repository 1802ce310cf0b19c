package cli

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/study"
)

// What a run of two jobs looks like, on a terminal and elsewhere.
func TestProgress(t *testing.T) {
	run := func(p *progress, other io.Writer) {
		now := time.Now()
		p.update(experiments.Status{Stage: "bring up", Of: 3})
		synctest.Wait()
		measure := experiments.Status{Stage: "measure", Point: "switch.aggregators=4", Of: 3, Until: now.Add(83 * time.Second)}
		p.update(measure)
		synctest.Wait()
		measure.Jobs = []study.Moving{{Job: "A", Goodput: 18.72e6, Predicted: 18.75e6}, {Job: "background", Goodput: 0.94e9}}
		p.update(measure)
		time.Sleep(tick + time.Millisecond) // a look at what moves
		p.say("the switch is late")
		p.update(measure)
		time.Sleep(tick)
		fmt.Fprintln(other, "somebody else")
		time.Sleep(2 * tick)
		p.clear()
		p.update(experiments.Status{Stage: "report", Done: 3, Of: 3})
		synctest.Wait()
		p.clear()
		time.Sleep(10 * tick) // and nothing more is written
	}
	t.Run("elsewhere", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			run(&progress{w: &out}, &out)
			want := `inabench: bring up
inabench: measure 1/3 switch.aggregators=4, about 1 min 23 s left
inabench: the switch is late
somebody else
inabench: report
`
			if out.String() != want {
				t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
			}
		})
	})
	t.Run("terminal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			d := &door{to: &out, tty: true}
			run(&progress{w: d, tty: true, width: 60}, d)
			jobs := "\n  A            18.7 Mbit/s, predicted 18.8 Mbit/s, -0.2 %\n  background    940 Mbit/s"
			of := "measure 1/3 switch.aggregators=4, about "
			one, three := "\r\x1b[J", "\r\x1b[2A\x1b[J"
			want := "bring up" +
				one + of + "1 min 23 s left" +
				one + of + "1 min 23 s left" + jobs + // after half a second
				three + "inabench: the switch is late\n" +
				of + "1 min 22 s left" + jobs +
				three + "somebody else\n" +
				of + "1 min 22 s left" + jobs +
				three + of + "1 min 21 s left" + jobs +
				three + "report" + one
			if out.String() != want {
				t.Errorf("got:\n%q\nwant:\n%q", out.String(), want)
			}
		})
	})
}

// A line never runs over the edge of a terminal, where it could not be erased.
func TestNarrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := &progress{w: &door{to: &out, tty: true}, tty: true, width: 20}
		p.update(experiments.Status{Stage: "measure", Point: "switch.aggregators=4096", Of: 2, Jobs: []study.Moving{{Job: "a job with a long name", Goodput: 1e9}}})
		synctest.Wait()
		for l := range strings.Lines(out.String()) {
			if l = strings.TrimSuffix(l, "\n"); len(l) > 19 {
				t.Errorf("%q", l)
			}
		}
		p.clear()
	})
}

// Many jobs do not fill the terminal.
func TestManyJobs(t *testing.T) {
	s := experiments.Status{Stage: "measure"}
	for range mostNow + 2 {
		s.Jobs = append(s.Jobs, study.Moving{Job: "A", Goodput: 1})
	}
	lines := statusLines(s, time.Now())
	if len(lines) != mostNow+2 || lines[mostNow+1] != "  and 2 more" {
		t.Errorf("%q", lines)
	}
	s.Jobs, s.Busy = nil, []study.Moving{{Job: "h1->tor1", Goodput: 9.4e6}}
	if lines := statusLines(s, time.Now()); len(lines) != 2 || lines[1] != "  h1->tor1   9.40 Mbit/s" {
		t.Errorf("where jobs say nothing: %q", lines)
	}
}
