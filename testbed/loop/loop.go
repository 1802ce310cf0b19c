// Package loop is what goroutines are made of that serve packets: a thread of their own, whose
// sleeps end within microseconds, and a processor of the Go runtime of their own, which they
// keep while they sleep.
//
// The runtime has its monitor look every 20 us whether a goroutine that is in a system call
// should give its processor up, and then wakes a thread that looks for work. Where a dozen
// processes sleep some thousand times a second each, that takes a sixth of two cores, and
// packets leave as much later. So the calls here do not tell the runtime that they may take
// long (BenchmarkSleep compares). When it has to stop the goroutine, for garbage collection
// say, its signal ends the call.
package loop

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// base is how many processors of the Go runtime all other goroutines share.
var base = runtime.GOMAXPROCS(0)

// owners is how many goroutines have a processor of their own.
var owners atomic.Int32

// Room makes room for so many owners at once. To make it, the runtime stops the world, and Go 1.26 waits for a goroutine
// that enters a system call meanwhile until that call ends (runtime: entersyscall looks whether it should stop before it
// says that it is in the call, and stopTheWorldWithSema asks once): for ever, where it reads from somebody who waits for
// this process. So a program that has owners and reads commands makes room before it reads.
func Room(more int) { makeRoom(int(owners.Load()) + more) }

func makeRoom(owners int) {
	if n := base + owners; runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
}

// Own gives the calling goroutine a thread, for good, and a processor beside those of the
// others (GOMAXPROCS) until over is called.
func Own() (over func()) {
	runtime.LockOSThread()
	makeRoom(int(owners.Add(1)))
	// Refused nowhere known, and only a refinement.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return func() { owners.Add(-1) }
}

// Sleep sleeps for d, or until a signal comes. Only a goroutine that has called Own should.
func Sleep(d time.Duration) {
	if d > 0 {
		ts := unix.NsecToTimespec(int64(d))
		unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
	}
}

// Waiter waits for packets, and has them looked for only every so often: those that come together
// cost one wake. The zero Waiter is ready to be used.
type Waiter struct {
	// rare is whether the last ones came later than that: then it wakes for what comes and not before,
	// to wait on. A wake costs more than what is done with a packet.
	rare bool
}

// Wait returns after rest at the earliest, and then when one of fds is ready or until has passed, both from now on. Where
// that is no later than rest, nobody looks at fds. A signal ends either part. Its errors are those of Poll. Only a
// goroutine that has called Own should.
func (w *Waiter) Wait(fds []unix.PollFd, rest, until time.Duration) error {
	if until <= rest {
		Sleep(rest)
		for i := range fds {
			fds[i].Revents = 0
		}
		return nil
	}
	began := time.Now()
	if w.rare {
		err := Poll(fds, until)
		if left := rest - time.Since(began); left > 0 {
			w.rare = !ready(fds) // a signal came
			Sleep(left)
		}
		return err
	}
	Sleep(rest)
	if err := Poll(fds, 0); err != nil || ready(fds) {
		return err
	}
	if until -= time.Since(began); until <= 0 {
		return nil
	}
	w.rare = true
	return Poll(fds, until)
}

func ready(fds []unix.PollFd) bool {
	for i := range fds {
		if fds[i].Revents != 0 {
			return true
		}
	}
	return false
}

// Poll waits until one of fds is ready, d has passed or a signal comes. Its errors are those of
// ppoll(2). Only a goroutine that has called Own should.
func Poll(fds []unix.PollFd, d time.Duration) error {
	ts := unix.NsecToTimespec(int64(max(d, 0)))
	_, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	if errno != 0 && errno != unix.EINTR {
		return errno
	}
	return nil
}
