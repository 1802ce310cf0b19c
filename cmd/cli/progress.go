package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/results/human"
)

// progress shows how far a run has come on stderr: one line that is rewritten on a
// terminal, a line a stage elsewhere.
type progress struct {
	w     io.Writer
	tty   bool
	width int
	quiet bool

	mu    sync.Mutex
	stage string // without the time that is left
	last  string
	began time.Time
}

func newProgress(w io.Writer, quiet bool) *progress {
	tty, width, _ := terminal(w)
	return &progress{w: w, tty: tty, width: width, quiet: quiet, began: time.Now()}
}

func (p *progress) update(s experiments.Status) {
	if p.quiet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	line := s.Stage
	if s.Of > 1 && s.Stage == "measure" {
		line += fmt.Sprintf(" %d/%d", s.Done+1, s.Of)
	}
	if s.Point != "" {
		line += " " + s.Point
	}
	same := line == p.stage
	p.stage = line
	if s.Left > 0 {
		line += fmt.Sprintf(", about %s left", human.Elapsed(s.Left.Round(time.Second)))
	}
	if line == p.last || same && !p.tty {
		return
	}
	p.last = line
	if !p.tty {
		fmt.Fprintf(p.w, "inabench: %s\n", line)
		return
	}
	if len(line) > p.width-1 {
		line = line[:p.width-1]
	}
	eraseLine(p.w)
	fmt.Fprint(p.w, line)
}

// note says what a run waits for.
func (p *progress) note(what string) { p.say("waiting: " + what) }

// say says something else than how far a run has come.
func (p *progress) say(what string) {
	if p.quiet {
		return
	}
	p.clear()
	fmt.Fprintf(p.w, "inabench: %s\n", what)
}

// clear removes the line from a terminal.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tty && !p.quiet && p.last != "" {
		eraseLine(p.w)
	}
	p.last = ""
}
