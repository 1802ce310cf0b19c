package agent

import (
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/stall"
)

// processor is what this process has had of the machine's processors, as far as the kernel tells.
type processor struct {
	at   time.Duration            // on the agent's clock, not after the reading
	sum  float64                  // s for which its threads have run or waited to run; 0: nobody tells
	wait map[string]time.Duration // for which each of them has waited to run
}

// threads are the open files in which the kernel says what this process's threads have had. A reading with them takes
// less of the processors than it tells of, and the runtime does not see it: of calls that may take long its monitor makes
// others' work (see package loop).
//
// /proc/PID/task/TID/schedstat has the time on a processor and that in a run queue, in ns
// (Documentation/scheduler/sched-stats.rst of Linux).
type threads struct {
	made  int // threads that the runtime had made when they were listed
	files map[string]int
}

// made counts the threads that the runtime has made so far.
var made = pprof.Lookup("threadcreate")

func (t *threads) close() {
	for _, fd := range t.files {
		unix.Close(fd)
	}
	t.files = nil
}

// list opens the files of threads that are new.
func (t *threads) list() {
	const tasks = "/proc/self/task"
	t.made = made.Count()
	if t.files == nil {
		t.files = map[string]int{}
	}
	all, _ := os.ReadDir(tasks)
	for _, e := range all {
		if _, ok := t.files[e.Name()]; ok {
			continue
		}
		if fd, err := unix.Open(filepath.Join(tasks, e.Name(), "schedstat"), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			t.files[e.Name()] = fd
		} // else it has ended
	}
}

// read reads what the process has had. Threads that have ended are not in it.
func (t *threads) read(at time.Duration) processor {
	if t.made != made.Count() {
		t.list()
	}
	p := processor{at: at, wait: make(map[string]time.Duration, len(t.files))}
	for thread, fd := range t.files {
		var text [64]byte // three numbers
		n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&text)), uintptr(len(text)), 0, 0, 0)
		if errno != 0 || n > uintptr(len(text)) { // it has ended
			unix.Close(fd)
			delete(t.files, thread)
			continue
		}
		if f := strings.Fields(string(text[:n])); len(f) > 1 {
			ran, _ := strconv.ParseInt(f[0], 10, 64)
			waited, _ := strconv.ParseInt(f[1], 10, 64)
			p.sum += float64(ran+waited) / 1e9
			p.wait[thread] = time.Duration(waited)
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
