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

// TestWaiter: it rests, and then wakes for what comes and for nothing else. What comes seldom costs one wake, as does what
// comes often.
func TestWaiter(t *testing.T) {
	const rest = 2 * time.Millisecond
	for _, c := range []struct {
		name  string
		every time.Duration // something comes
	}{
		{"rare", 6 * time.Millisecond},
		{"often", 300 * time.Microsecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			quit, ended := make(chan bool), make(chan bool)
			go func() {
				defer close(ended)
				tick := time.NewTicker(c.every)
				defer tick.Stop()
				for {
					select {
					case <-quit:
						return
					case <-tick.C:
						unix.Write(fd, []byte{0: 1, 7: 1})
					}
				}
			}()
			looked := make(chan bool)
			go func() {
				defer close(looked)
				defer Own()()
				var w Waiter
				fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
				slept, found, early := sleeps(), 0, 0
				for range 100 {
					start := time.Now()
					if err := w.Wait(fds, rest, time.Minute); err != nil {
						t.Error(err)
					}
					if time.Since(start) < rest {
						early++
					}
					if fds[0].Revents != 0 {
						found++
						var b [8]byte
						unix.Read(fd, b[:])
					}
				}
				// The runtime's signals end some, too early, and one that is ended is another sleep. Two a wait would be 200.
				if n := sleeps() - slept; found < 60 || early > 70 || n > int64(150+2*early) {
					t.Errorf("100 waits: found something in %d, looked too early in %d, slept %d times", found, early, n)
				}
			}()
			<-looked
			close(quit)
			<-ended
		})
	}
}

// sleeps is how often this thread has given up its processor by itself.
func sleeps() int64 {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return u.Nvcsw
}

// TestWaiterEnds: nothing comes.
func TestWaiterEnds(t *testing.T) {
	for _, rare := range []bool{false, true} {
		w := Waiter{rare: rare}
		fds := []unix.PollFd{{Fd: -1, Revents: unix.POLLIN}} // -1: ppoll(2) passes it over
		for _, c := range []struct{ rest, until, want time.Duration }{
			{5 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond},
			{5 * time.Millisecond, time.Millisecond, 5 * time.Millisecond},
			{5 * time.Millisecond, -time.Hour, 5 * time.Millisecond},
			{0, 5 * time.Millisecond, 5 * time.Millisecond},
			{0, 0, 0},
		} {
			start, calls := time.Now(), 0
			for ; calls == 0 || time.Since(start) < c.want; calls++ { // signals may come
				if err := w.Wait(fds, c.rest, c.until-time.Since(start)); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(start); took > 10*time.Second || calls > 1000 || fds[0].Revents != 0 {
				t.Errorf("rest %v until %v: %d calls, %v, want %v", c.rest, c.until, calls, took, c.want)
			}
		}
		if err := w.Wait(make([]unix.PollFd, 1<<20), 0, time.Millisecond); !errors.Is(err, unix.EINVAL) { // over RLIMIT_NOFILE
			t.Errorf("error %v of 2^20 descriptors, want %v", err, unix.EINVAL)
		}
	}
}
