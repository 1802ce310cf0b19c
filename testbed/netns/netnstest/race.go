//go:build race

package netnstest

import (
	"os"
	"syscall"
)

// Race says that the race detector is there, which takes several times the memory.
const Race = true

// hurry starts this program over, in its place, without the second that the race detector
// waits at the end of every process: hosts and agents end one after the other. The
// environment alone does not reach them, since sessions of hosts have one of their own.
// What the detector reports, and exit code 66, stay.
func hurry() error {
	const options = "GORACE"
	if _, ok := os.LookupEnv(options); ok { // also if it is empty
		return nil
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), options+"=atexit_sleep_ms=0"))
}
