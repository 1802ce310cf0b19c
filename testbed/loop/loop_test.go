package loop

import (
	"errors"
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPoll waits without end for a pipe while others collect garbage, which needs this
// goroutine to stop, and work on every other processor.
func TestPoll(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ended := make(chan error)
	go func() {
		over := Own()
		fds := []unix.PollFd{{Fd: int32(r.Fd()), Events: unix.POLLIN}}
		var err error
		for err == nil && fds[0].Revents == 0 {
			err = Poll(fds, math.MaxInt64)
		}
		over()
		ended <- err
	}()
	for range 20 {
		done := make(chan int)
		for range runtime.NumCPU() { // all of them have a processor
			go func() { done <- 1 }()
		}
		for range runtime.NumCPU() {
			<-done
		}
		runtime.GC()
	}
	select {
	case err := <-ended:
		t.Fatalf("ended before there was anything to read: %v", err)
	default:
	}
	if _, err := w.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := owners.Load(); n != 0 {
		t.Errorf("%d goroutines have a processor of their own after all ended", n)
	}
}

func TestPollEnds(t *testing.T) {
	start := time.Now()
	for time.Since(start) < 20*time.Millisecond { // signals may come
		if err := Poll(nil, 20*time.Millisecond-time.Since(start)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Poll(nil, -time.Second); err != nil { // at once
		t.Error(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if err := Poll(make([]unix.PollFd, 1<<20), 0); !errors.Is(err, unix.EINVAL) { // over RLIMIT_NOFILE
		t.Errorf("error %v of 2^20 descriptors, want %v", err, unix.EINVAL)
	}
}

func TestSleep(t *testing.T) {
	Sleep(-time.Second)
	start, d := time.Now(), 20*time.Millisecond
	for left := d; left > 0; left = d - time.Since(start) {
		Sleep(left)
	}
	if took := time.Since(start); took < d {
		t.Errorf("took %v, want %v at least", took, d)
	}
	if n := testing.AllocsPerRun(10, func() { Sleep(1) }); n > 0 {
		t.Errorf("%v allocations a sleep", n)
	}
}

// BenchmarkSleep reports the processor time that this process uses for a sleep of 100 us: here,
// and with the runtime told.
func BenchmarkSleep(b *testing.B) {
	const d = 100 * time.Microsecond
	for _, c := range []struct {
		name  string
		sleep func()
	}{
		{"here", func() { Sleep(d) }},
		{"told", func() {
			ts := unix.NsecToTimespec(int64(d))
			unix.Nanosleep(&ts, nil)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			ended := make(chan bool)
			go func() {
				defer close(ended)
				defer Own()()
				spent := used()
				for b.Loop() {
					c.sleep()
				}
				b.ReportMetric(float64((used()-spent).Nanoseconds())/float64(b.N), "cpu-ns/op")
			}()
			<-ended
		})
	}
}

// used is the processor time of this process so far.
func used() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestRoom: who has made room takes it without stopping the world.
func TestRoom(t *testing.T) {
	Room(2)
	room := runtime.GOMAXPROCS(0)
	if want := runtime.NumCPU() + 2; room < want {
		t.Errorf("%d processors, want %d", room, want)
	}
	ended := make(chan int)
	for range 2 {
		go func() {
			over := Own()
			ended <- runtime.GOMAXPROCS(0)
			over()
		}()
	}
	for range 2 {
		if n := <-ended; n != room {
			t.Errorf("%d processors then, and %d before", n, room)
		}
	}
}
