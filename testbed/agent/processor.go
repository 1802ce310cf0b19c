package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/inabench/inabench/internal/bounded"
)

// processor is for how long this process's threads have run or waited to run, in seconds; 0 where the
// kernel does not tell. Threads that have ended are not in it.
//
// /proc/PID/task/TID/schedstat has the time on a processor and that in a run queue, in ns
// (Documentation/scheduler/sched-stats.rst of Linux).
func processor() (sum float64) {
	const tasks = "/proc/self/task"
	threads, _ := os.ReadDir(tasks)
	for _, t := range threads {
		text, err := bounded.ReadFile(filepath.Join(tasks, t.Name(), "schedstat"), bounded.Config)
		if err != nil { // it has ended
			continue
		}
		fields := strings.Fields(string(text))
		for _, f := range fields[:min(2, len(fields))] {
			ns, _ := strconv.ParseFloat(f, 64)
			sum += ns / 1e9
		}
	}
	return sum
}
