package udp

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// loopSocket is a socket on lo, which sends to itself.
func loopSocket(t *testing.T, offload bool) (*Socket, *unix.RawSockaddrInet4) {
	t.Helper()
	c := NewClock()
	s, err := Open("lo", 0, [4]byte{239, 77, 0, 1}, offload, &c)
	must(t, err)
	t.Cleanup(s.Close)
	port, err := s.Port()
	must(t, err)
	return s, Address([4]byte{127, 0, 0, 1}, port)
}

// rest is for how long packets that were sent are left unread: a busy kernel stamps them some time after they were sent, and
// not when they are read.
const rest = 200 * time.Millisecond

// stamping waits until the kernel stamps packets when they come. It does some time after the first socket wants that, and
// until then stamps them when they are read.
func stamping(t *testing.T) {
	t.Helper()
	s, to := loopSocket(t, false)
	for range 100 {
		must(t, s.Queue(s.Buffer()[:8], to))
		must(t, s.Flush())
		sent := s.clock.Now()
		time.Sleep(rest)
		must(t, s.Wait(s.clock.Now()+10*time.Second))
		r, err := s.Receive()
		must(t, err)
		if r > 0 && s.Arrived[r-1] <= sent+rest/2 {
			return
		}
	}
	t.Fatal("packets are not stamped when they come")
}

func TestSocket(t *testing.T) {
	stamping(t)
	s, to := loopSocket(t, false)
	const n = 3*Batch + 5
	begin := s.clock.Now()
	for i := range n {
		b := s.Buffer()[:8+i]
		binary.BigEndian.PutUint64(b, uint64(i))
		must(t, s.Queue(b, to))
	}
	must(t, s.Flush())
	sent := s.clock.Now()
	time.Sleep(rest)
	got := 0
	var last time.Duration
	for got < n {
		must(t, s.Wait(s.clock.Now()+10*time.Second))
		r, err := s.Receive()
		must(t, err)
		if r == 0 {
			t.Fatalf("nothing more after %d of %d packets", got, n)
		}
		now := s.clock.Now()
		for i := range r {
			if b := s.Packets[i]; len(b) != 8+got || binary.BigEndian.Uint64(b) != uint64(got) {
				t.Fatalf("packet %d: %d bytes, %x", got, len(b), b)
			}
			if at := s.Arrived[i]; at < last || at > now || at < begin-time.Millisecond {
				t.Fatalf("packet %d arrived at %v, after %v and before %v", got, at, last, now)
			}
			last = s.Arrived[i]
			got++
		}
	}
	if last > sent+rest/2 {
		t.Errorf("arrival %v is the time of reading, not the kernel's of before %v", last, sent)
	}
	want := int64(n*(8+42) + n*(n-1)/2)
	if s.Sent != n || s.Received != n || s.SentBytes != want || s.ReceivedBytes != want || s.Drops != 0 {
		t.Errorf("%d packets, %d bytes out; %d, %d in; %d dropped; want %d and %d",
			s.Sent, s.SentBytes, s.Received, s.ReceivedBytes, s.Drops, n, want)
	}
	if r, err := s.Receive(); r != 0 || err != nil {
		t.Errorf("%d packets from an empty socket: %v", r, err)
	}
}

// Packets of one size and address travel together, and come apart again as they were.
func TestSocketOffload(t *testing.T) {
	s, to := loopSocket(t, true)
	other := *to
	var want []int
	for _, train := range []struct {
		to    *unix.RawSockaddrInet4
		sizes []int
	}{
		{to, []int{982, 982, 982, 982, 500}}, // the last may be shorter
		{to, []int{1400}},
		{&other, []int{1400, 1400}}, // the same size, but a header of its own
		{to, slices.Repeat([]int{86}, 3*Batch+1)},
		{to, slices.Repeat([]int{982}, 2*Batch)},
		{to, []int{1, 2, 3, 2, 1}},
	} {
		for _, size := range train.sizes {
			b := s.Buffer()[:size]
			b[0] = byte(len(want))
			must(t, s.Queue(b, train.to))
			want = append(want, size)
		}
	}
	must(t, s.Flush())
	got := 0
	for got < len(want) {
		must(t, s.Wait(s.clock.Now()+10*time.Second))
		n, err := s.Receive()
		must(t, err)
		if n == 0 {
			t.Fatalf("nothing more after %d of %d packets", got, len(want))
		}
		for _, b := range s.Packets {
			if len(b) != want[got] || b[0] != byte(got) {
				t.Fatalf("packet %d: %d bytes, the first is %d; want %d bytes", got, len(b), b[0], want[got])
			}
			got++
		}
	}
	if int(s.Sent) != len(want) || s.Received != s.Sent || s.ReceivedBytes != s.SentBytes {
		t.Errorf("%d packets and %d bytes out, %d and %d in, want %d packets", s.Sent, s.SentBytes, s.Received, s.ReceivedBytes, len(want))
	}
	for range Batch {
		must(t, s.Queue(s.Buffer()[:982], to))
	}
	if n := s.join(); n != 0 { // a full batch has been sent
		t.Errorf("%d messages are left of a full batch", n)
	}
	if n, err := s.Receive(); n != Batch || err != nil || s.Full {
		t.Errorf("%d packets of %d at once: %v", n, Batch, err)
	}
}

// What the receive buffer had no room for is counted.
func TestSocketDrops(t *testing.T) {
	s, to := loopSocket(t, false)
	must(t, unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 10_000))
	const n = 200
	for range n {
		must(t, s.Queue(s.Buffer()[:1000], to))
	}
	must(t, s.Flush())
	drain := func() {
		for {
			if r, err := s.Receive(); r == 0 {
				must(t, err)
				return
			}
		}
	}
	drain()
	must(t, s.Queue(s.Buffer()[:1000], to)) // the kernel tells with the next packet
	must(t, s.Flush())
	drain()
	if s.Drops == 0 || s.Drops+s.Received != n+1 {
		t.Errorf("%d dropped, %d received of %d", s.Drops, s.Received, n+1)
	}
}

func TestInterrupt(t *testing.T) {
	s, _ := loopSocket(t, false)
	go s.Interrupt()
	begin := s.clock.Now()
	must(t, s.Wait(begin+20*time.Second))
	if d := s.clock.Now() - begin; d > 10*time.Second {
		t.Errorf("waited %v", d)
	}
	s.Close()
	s.Interrupt() // of a closed socket: nothing
}

func TestOpenSocketErrors(t *testing.T) {
	c := NewClock()
	if s, err := Open("nosuch0", 0, [4]byte{239, 77, 0, 1}, false, &c); err == nil || s != nil {
		t.Error("opened on a device that does not exist")
	}
	s, _ := loopSocket(t, false)
	name, err := unix.Getsockname(s.fd)
	must(t, err)
	if s, err := Open("lo", uint16(name.(*unix.SockaddrInet4).Port), [4]byte{239, 77, 0, 1}, false, &c); err == nil || s != nil {
		t.Error("opened a port that is taken")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
