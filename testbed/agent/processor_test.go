package agent

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/stall"
)

// TestWaited: of three threads that share a processor each waits for most of the time, and one that sleeps does not.
func TestWaited(t *testing.T) {
	began := time.Now()
	var kernel threads
	defer kernel.close()
	if p := kernel.read(0); p.sum == 0 {
		t.Skip("the kernel keeps no such statistics")
	}
	var had processors
	had.keep(kernel.read(time.Since(began)))
	start := time.Since(began)
	time.Sleep(300 * time.Millisecond)
	asleep := had.waited(kernel.read(time.Since(began)), []stall.Span{{Start: start, End: time.Since(began)}})
	had.keep(kernel.read(time.Since(began)))
	start = time.Since(began)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			runtime.LockOSThread() // and never unlocks it: the thread ends with its affinity
			var one unix.CPUSet
			if err := unix.SchedGetaffinity(0, &one); err != nil {
				t.Error(err)
				return
			}
			for cpu, seen := 0, false; cpu < 1024; cpu++ {
				if !one.IsSet(cpu) {
					continue
				}
				if seen {
					one.Clear(cpu)
				}
				seen = true
			}
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(600 * time.Millisecond); time.Now().Before(end); {
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // they are still there
	busy := had.waited(kernel.read(time.Since(began)), []stall.Span{{Start: start, End: time.Since(began)}})
	all.Wait()
	if busy < 200*time.Millisecond || busy < 2*asleep {
		t.Errorf("waited for %v of 500 ms, and %v while nothing was to do", busy, asleep)
	}
	if got := had.waited(kernel.read(time.Since(began)), nil); got != 0 {
		t.Errorf("%v of no span", got)
	}
}
