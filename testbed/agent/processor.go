package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/stall"
)

// processor is what this process has had of the machine's processors, as far as the kernel tells.
type processor struct {
	at   time.Duration            // on the agent's clock, not after the reading
	sum  float64                  // s for which its threads have run or waited to run; 0: nobody tells
	wait map[string]time.Duration // for which each of them has waited to run
}

// readProcessor reads that. Threads that have ended are not in it.
//
// /proc/PID/task/TID/schedstat has the time on a processor and that in a run queue, in ns
// (Documentation/scheduler/sched-stats.rst of Linux).
func readProcessor(at time.Duration) processor {
	const tasks = "/proc/self/task"
	p := processor{at: at, wait: map[string]time.Duration{}}
	threads, _ := os.ReadDir(tasks)
	for _, t := range threads {
		text, err := bounded.ReadFile(filepath.Join(tasks, t.Name(), "schedstat"), bounded.Config)
		if err != nil { // it has ended
			continue
		}
		for i, f := range strings.Fields(string(text)) {
			ns, _ := strconv.ParseInt(f, 10, 64)
			switch i {
			case 1:
				p.wait[t.Name()] = time.Duration(ns)
				fallthrough
			case 0:
				p.sum += float64(ns) / 1e9
			}
		}
	}
	return p
}

// processors are the last few readings, the newest last.
type processors []processor

// keep adds a reading. Reports that wait to be written are few.
func (all *processors) keep(p processor) {
	const few = 4
	*all = append(*all, p)
	*all = (*all)[max(0, len(*all)-few):]
}

// waited is for how long that thread has waited to run, from before the first of the spans until now, that did so longest:
// it did not do meanwhile what was its to do.
func (all processors) waited(now processor, spans []stall.Span) (most time.Duration) {
	if len(all) == 0 || len(spans) == 0 {
		return 0
	}
	before := all[0]
	for _, p := range all {
		if p.at <= spans[0].Start {
			before = p
		}
	}
	for thread, wait := range now.wait {
		most = max(most, wait-before.wait[thread])
	}
	return most
}
