package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results/human"
)

// progress shows how far a run has come on stderr: on a terminal some lines that are rewritten, of what is
// done, how long it still takes, and how fast each job is; elsewhere a line a stage. Whoever updates it never waits
// for a terminal.
type progress struct {
	w     io.Writer
	tty   bool
	width int
	quiet bool

	mu     sync.Mutex
	stage  string // of the status that was shown last, without what changes in it
	status experiments.Status
	poke   chan struct{} // has the drawer look at once; its end is the drawer's; nil: there is none
	drawn  chan struct{} // closed by the drawer at its end
}

const (
	tick    = time.Second / 2 // between two looks
	mostNow = 8               // jobs shown
)

func newProgress(w io.Writer, quiet bool) *progress {
	tty, width, _ := terminal(w)
	return &progress{w: w, tty: tty, width: width, quiet: quiet}
}

func (p *progress) update(s experiments.Status) {
	if p.quiet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	stage := stageLine(s)
	changed := stage != p.stage
	p.stage, p.status = stage, s
	if !p.tty {
		if changed {
			fmt.Fprintf(p.w, "inabench: %s\n", statusLines(s, time.Now())[0])
		}
		return
	}
	if p.poke == nil {
		p.poke, p.drawn = make(chan struct{}, 1), make(chan struct{})
		go p.draw(p.poke, p.drawn)
	}
	if changed {
		select {
		case p.poke <- struct{}{}:
		default: // it looks at once anyway
		}
	}
}

// draw keeps the status on the terminal.
func (p *progress) draw(poke <-chan struct{}, drawn chan<- struct{}) {
	defer close(drawn)
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case _, ok := <-poke:
			if !ok {
				return
			}
		case <-t.C:
		}
		p.mu.Lock()
		s := p.status
		p.mu.Unlock()
		lines := statusLines(s, time.Now())
		for i, l := range lines {
			if r := []rune(l); len(r) > p.width-1 {
				lines[i] = string(r[:p.width-1])
			}
		}
		transient(p.w, lines)
	}
}

// stageLine says what is done, of which point.
func stageLine(s experiments.Status) string {
	line := s.Stage
	if s.Of > 1 && s.Stage == "measure" {
		line += fmt.Sprintf(" %d/%d", s.Done+1, s.Of)
	}
	if s.Point != "" {
		line += " " + s.Point
	}
	return line
}

// statusLines say how far a run has come, the first of them what is done.
func statusLines(s experiments.Status, now time.Time) []string {
	line := stageLine(s)
	if left := s.Until.Sub(now).Round(time.Second); !s.Until.IsZero() && left > 0 {
		line += fmt.Sprintf(", about %s left", shortly(left))
	}
	lines := []string{line}
	all := s.Jobs
	if len(all) == 0 {
		all = s.Busy
	}
	jobs := all[:min(len(all), mostNow)]
	width := 0
	for _, j := range jobs {
		width = max(width, len([]rune(j.Job)))
	}
	for _, j := range jobs {
		lines = append(lines, fmt.Sprintf("  %-*s  %s", width, j.Job, speed(j)))
	}
	if more := len(all) - len(jobs); more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return lines
}

// speed says how fast a job is, beside what is predicted.
func speed(j study.Moving) string {
	text := fmt.Sprintf("%12s", human.Quantity(j.Goodput, "bit/s"))
	if j.Predicted > 0 {
		text += fmt.Sprintf(", predicted %s, %+.1f %%", human.Quantity(j.Predicted, "bit/s"), 100*(j.Goodput/j.Predicted-1))
	}
	return text
}

// shortly writes a duration of whole seconds: "8 s", "3 min 20 s", "1 h 02 min".
func shortly(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return human.Elapsed(d)
}

// note says what a run waits for.
func (p *progress) note(what string) { p.say("waiting: " + what) }

// say says something else than how far a run has come.
func (p *progress) say(what string) {
	if !p.quiet {
		fmt.Fprintf(p.w, "inabench: %s\n", what)
	}
}

// clear takes the status off the terminal, until there is another.
func (p *progress) clear() {
	p.mu.Lock()
	poke, drawn := p.poke, p.drawn
	if p.poke = nil; p.tty {
		p.stage = ""
	}
	p.mu.Unlock()
	if poke != nil {
		close(poke) // nobody else has it any more
		<-drawn
		transient(p.w, nil)
	}
}
