// Package heap watches how much memory something takes, for tests that bound it.
package heap

import (
	"runtime"
	"runtime/debug"
	"time"
)

// Watch looks at the heap again and again until most is called, once, which returns by how many bytes it
// grew at most.
func Watch() (most func() uint64) {
	used := func() uint64 {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	percent := debug.SetGCPercent(20) // what is garbage is collected soon
	runtime.GC()
	before := used()
	over, peak := make(chan struct{}), make(chan uint64)
	go func() {
		for largest := before; ; {
			largest = max(largest, used())
			select {
			case <-over:
				peak <- largest - before
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		debug.SetGCPercent(percent)
		close(over)
		return <-peak
	}
}
