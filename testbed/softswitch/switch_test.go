//go:build linux

package softswitch

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/stall"
)

// BenchmarkSwitch runs a job of three workers and a PS, closing the loop through
// veth pairs: a worker sends a new PSN for each result. The hosts are raw sockets
// on one other thread, so on two cores that thread is part of what limits the rate.
//
//	packets/s      frames into the switch, results from the PS included
//	switch-us/pkt  processor time of the switch's thread per such frame
func BenchmarkSwitch(b *testing.B) {
	for _, mode := range []struct {
		name string
		mode ina.Mode
	}{{"forward", ina.Forward}, {"statistical", ina.Statistical}, {"synchronous", ina.Synchronous}, {"exclusive", ina.Exclusive}} {
		for _, lanes := range []int{16, 64, 240} {
			for _, offload := range []bool{false, true} {
				b.Run(fmt.Sprintf("mode=%s/lanes=%d/offload=%t", mode.name, lanes, offload), func(b *testing.B) {
					benchmarkJob(b, mode.mode, lanes, offload)
				})
			}
		}
	}
}

func benchmarkJob(b *testing.B, mode ina.Mode, lanes int, offload bool) {
	const window = 128
	r := newRack(b, workers+1, func(c *Config) {
		c.Offload = offload
		c.Exclusive = &Exclusive{Resource: "port", Capacity: 1, Trees: 1}
	})
	entry := ina.JobEntry{
		Job: loopJob, Mode: mode, Size: 1024, Expect: 1<<workers - 1, Root: true, Window: window, UpPort: psPort, DownGroup: 1,
	}
	if err := r.SetGroup(1, []uint32{1, 2, 3}); err != nil {
		b.Fatal(err)
	}
	if err := r.SetJob(entry); err != nil {
		b.Fatal(err)
	}
	elapsed := closeLoop(b, r.hosts, mode, lanes, window, func() { r.Health() }, func() any { return r.Health() })
	h := r.Health()
	var in int64
	for i := 1; i <= workers+1; i++ {
		n, _ := r.Counter(PortRx, i)
		in += n
	}
	b.ReportMetric(float64(in)/elapsed.Seconds(), "packets/s")
	b.ReportMetric(h.Busy*h.Elapsed.Seconds()*1e6/float64(in), "switch-us/pkt")
	b.ReportMetric(float64(h.RingDrops), "ring-drops")
	b.ReportMetric(0, "ns/op")
}

// The job of the loop: three workers, their PS.
const workers, psPort, loopJob = 3, 4, 5

// closeLoop sends b.N PSNs through a switch: a worker sends a new one for each result. It
// returns how long that took.
func closeLoop(b *testing.B, hosts []*host, mode ina.Mode, lanes int, window uint32, reset func(), health func() any) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var fds []unix.PollFd
	for _, h := range hosts[1:] {
		fds = append(fds, unix.PollFd{Fd: int32(h.dev.fd), Events: unix.POLLIN})
	}
	// Frames are made once per worker and their PSN filled in.
	var template [workers][]byte
	for rank := range template {
		template[rank] = inaFrame(ina.Header{Job: loopJob, Rank: uint8(rank), Lanes: uint8(lanes), Bitmap: 1 << rank}, 1)
	}
	result := inaFrame(ina.Header{Flags: ina.FlagResult, Job: loopJob, Rank: ina.NoRank, Lanes: uint8(lanes), Bitmap: 1<<workers - 1}, workers)
	offer := func(rank int, psn uint32) {
		f := template[rank]
		binary.BigEndian.PutUint32(f[payloadAt+4:], psn)
		if mode == ina.Exclusive && psn == 0 { // of one long operation
			f = inaFrame(ina.Header{Flags: ina.FlagLock, Job: loopJob, Rank: uint8(rank), Lanes: ina.OpLanes, Bitmap: 1 << rank}, 0)
			binary.BigEndian.PutUint32(f[payloadAt+ina.HeaderLen+4:], ina.Seal)
		}
		hosts[rank+1].frame(f)
	}
	var sent, got [workers]uint32
	arrived := make([]int, 4*window)
	reset()
	b.ResetTimer()
	total := uint32(b.N)
	progress, since := uint32(0), time.Now()
	for got[0] < total || got[1] < total || got[2] < total {
		for rank := range workers {
			for sent[rank] < total && sent[rank] < got[rank]+window && (sent[rank] == 0 || got[rank] > 0) {
				offer(rank, sent[rank])
				sent[rank]++
			}
			hosts[rank+1].flush(b)
		}
		n := hosts[psPort].dev.receive(256, func(f []byte, _ int64) {
			h, err := ina.ParseHeader(f[payloadAt:])
			if err != nil {
				b.Fatal(err)
			}
			a := &arrived[h.PSN%(4*window)]
			for m := h.Bitmap; m != 0; m &= m - 1 {
				*a++
			}
			if *a == workers {
				*a = 0
				binary.BigEndian.PutUint32(result[payloadAt+4:], h.PSN)
				hosts[psPort].frame(result)
			}
		})
		hosts[psPort].flush(b)
		for rank := range workers {
			n += hosts[rank+1].dev.receive(256, func(f []byte, _ int64) {
				if h, err := ina.ParseHeader(f[payloadAt:]); err != nil || h.Flags&ina.FlagResult == 0 || h.Bitmap != 1<<workers-1 {
					b.Fatalf("worker got %+v, %v", h, err)
				}
				got[rank]++
			})
		}
		if n > 0 {
			continue
		}
		unix.Poll(fds, 100)
		if sum := got[0] + got[1] + got[2]; sum != progress {
			progress, since = sum, time.Now()
		} else if time.Since(since) > 3*time.Second {
			b.Fatalf("stuck: %v of %d results; %+v", got, total, health())
		}
	}
	b.StopTimer()
	return b.Elapsed()
}

func TestForward(t *testing.T) {
	for _, offload := range []bool{false, true} {
		t.Run(fmt.Sprintf("offload=%t", offload), func(t *testing.T) { testForward(t, offload) })
	}
}

func testForward(t *testing.T, offload bool) {
	r := newRack(t, 2, func(c *Config) { c.Offload = offload })
	dst, mac := [4]byte{10, 0, 0, 2}, [6]byte{2, 0, 0, 0, 0, 2}
	if err := r.SetRoute(Route{Dst: dst, Port: 2, MAC: mac}); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{42, 60, 64, 65, 500, 1514} {
		f := unicast(dst, size)
		for i := range f[42:] {
			f[42+i] = byte(i)
		}
		r.hosts[1].frame(unicast([4]byte{10, 0, 0, 3}, size)) // to nowhere
		r.hosts[1].frame(f)
		r.hosts[1].flush(t)
		want := append(mac[:], f[6:]...)
		r.hosts[2].next(t, func(b []byte) {
			if !bytes.Equal(b, want) {
				t.Errorf("%d bytes: got\n%x, want\n%x", size, b, want)
			}
		})
	}
	if n, b := r.Counter(PortRx, 1); n != 12 || b != 2*(42+60+64+65+500+1514) {
		t.Errorf("port_rx %d, %d", n, b)
	}
	if n, _ := r.Counter(PortTx, 2); n != 6 {
		t.Errorf("port_tx %d", n)
	}
	if n, _ := r.Counter(PortNoRoute, 1); n != 6 {
		t.Errorf("port_no_route %d", n)
	}
	if h := r.Health(); h.Sent != 6 || len(h.Warnings) > 0 || h.RingDrops+h.PoolDrops+h.Refused > 0 {
		t.Errorf("health %+v", h)
	}
}

// TestARP: what one host asks of all reaches the ports of the group for it, and is lost where there is no such group.
func TestARP(t *testing.T) {
	r := newRack(t, 3, nil)
	request := unicast([4]byte{}, 60)
	copy(request, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	binary.BigEndian.PutUint16(request[12:], 0x0806)
	r.hosts[1].frame(request)
	r.hosts[1].flush(t)
	lost := func() int64 {
		n, _ := r.Counter(PortNoRoute, 1)
		return n
	}
	for began := time.Now(); lost() == 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("a request that nothing says the way of is not counted")
		}
	}
	if err := r.SetGroup(p4.FloodGroup(1), []uint32{2, 3}); err != nil {
		t.Fatal(err)
	}
	r.hosts[1].frame(request)
	r.hosts[1].flush(t)
	for _, to := range r.hosts[2:] {
		to.next(t, func(b []byte) {
			if !bytes.Equal(b, request) {
				t.Errorf("got\n%x, want\n%x", b, request)
			}
		})
	}
	if lost() != 1 {
		t.Errorf("port_no_route %d, want that of the request before there was a group", lost())
	}
}

// What a switch that stood still did too late is one stall, from when the first frame was due
// to when the last left; frames before and after are no part of it.
func TestStalls(t *testing.T) {
	r := newRack(t, 2, func(c *Config) { c.Beat = 100 * time.Millisecond })
	dst := [4]byte{10, 0, 0, 2}
	if err := r.SetRoute(Route{Dst: dst, Port: 2, MAC: [6]byte{2, 0, 0, 0, 0, 2}}); err != nil {
		t.Fatal(err)
	}
	const frames = 10
	pass := func(n int) {
		for range n {
			r.hosts[1].frame(unicast(dst, 100))
		}
		r.hosts[1].flush(t)
	}
	take := func(n int) {
		for range n {
			r.hosts[2].next(t, func([]byte) {})
		}
	}
	pass(1)
	take(1)
	r.Stalls()
	zero := stall.Monotonic(r.start)
	r.lock() // which the switch needs for its next turn
	pass(frames)
	from := time.Since(r.start) // all are due before
	time.Sleep(150 * time.Millisecond)
	until := time.Since(r.start)
	r.mu.Unlock()
	take(frames)
	spans := r.Stalls()
	if len(spans) == 0 {
		t.Fatal("no stall")
	}
	// This machine may have stood still besides, which makes the stall longer.
	s := spans[max(0, slices.IndexFunc(spans, func(s stall.Span) bool { return s.Count >= frames }))]
	t.Logf("from %v to %v: %+v", zero+from, zero+until, spans)
	const slack = 30 * time.Millisecond
	if s.Start > zero+from+slack || s.End < zero+until-time.Millisecond || s.End > stall.Monotonic(time.Now()) ||
		s.Late < 150*time.Millisecond-slack || s.Count != frames {
		t.Errorf("%d frames were held from %v to %v: %+v", frames, zero+from, zero+until, s)
	}
	if again := r.Stalls(); slices.Contains(again, s) {
		t.Errorf("told twice: %+v", again)
	}
	h := r.Health()
	if h.Sent != frames+1 || h.ClearSent > 1 || h.Stalls.Count == 0 || h.Stalls.Longest < s.End-s.Start || h.LateP99 < h.ClearP99 {
		t.Errorf("health %+v", h)
	}
}

// Jobs end with every sum right over cables that lose, duplicate and reorder in both
// directions, and each port's counters are what the hosts saw.
func TestSumsOverDamagedCables(t *testing.T) {
	proof.Only(t, "cables that lose, in every mode")
	for i := range 6 {
		mode, offload := []ina.Mode{ina.Forward, ina.Statistical, ina.Synchronous}[i%3], i >= 3
		t.Run(fmt.Sprintf("mode=%d/offload=%t", mode, offload), func(t *testing.T) {
			const workers, psPort, job, window, psns, lanes = 3, 4, 7, 32, 1000, 33
			im := Impair{Loss: .05, Duplicate: .02, Reorder: .1, ReorderBy: 300 * time.Microsecond}
			dir := t.TempDir()
			r := newRack(t, workers+1, func(c *Config) {
				for i := range c.Ports {
					l := LinkConfig{Rate: 1e9, Delay: 50 * time.Microsecond, Impair: im}
					c.Ports[i].Egress, c.Ports[i].Ingress = l, l
				}
				c.Pcap = dir
				c.Offload = offload
			})
			if err := r.SetGroup(job, []uint32{1, 2, 3}); err != nil {
				t.Fatal(err)
			}
			if err := r.SetJob(ina.JobEntry{
				Job: job, Epoch: 3, Mode: mode, Size: 2 * window, Expect: 1<<workers - 1, Root: true, Window: window, UpPort: psPort, DownGroup: job,
			}); err != nil {
				t.Fatal(err)
			}
			ps, err := ina.NewPS(ina.PSConfig{Job: job, Epoch: 3, Workers: workers, Lanes: lanes, Window: window})
			if err != nil {
				t.Fatal(err)
			}
			var ws [workers]*ina.Worker
			for rank := range ws {
				ws[rank], err = ina.NewWorker(ina.WorkerConfig{
					Job: job, Epoch: 3, Rank: rank, Workers: workers, Lanes: lanes, Window: window, RTO: 5 * time.Millisecond, Seed: 1,
				})
				if err != nil {
					t.Fatal(err)
				}
				ws[rank].Allow(psns, 0)
			}
			var sent, received [psPort + 1]int64
			up := inaFrame(ina.Header{Job: job, Lanes: lanes}, 0)
			down := inaFrame(ina.Header{Job: job, Lanes: lanes, Flags: ina.FlagResult}, 0)
			post := func(port int, frame []byte) {
				r.hosts[port].frame(frame)
				sent[port]++
			}
			start := time.Now()
			now := func() time.Duration { return time.Since(start) }
			fds := make([]unix.PollFd, 0, psPort)
			for _, h := range r.hosts[1:] {
				fds = append(fds, unix.PollFd{Fd: int32(h.dev.fd), Events: unix.POLLIN})
			}
			for {
				idle := true
				for rank, w := range ws {
					for w.Send(now(), up[payloadAt:]) > 0 || w.Resend(now(), up[payloadAt:]) > 0 {
						post(rank+1, up)
					}
					idle = idle && w.Idle()
				}
				for port := 1; port <= psPort; port++ {
					r.hosts[port].dev.receive(256, func(f []byte, _ int64) {
						received[port]++
						if port < psPort {
							ws[port-1].Receive(f[payloadAt:], now())
						} else if b, _ := ps.Receive(f[payloadAt:]); b != nil {
							copy(down[payloadAt:], b)
							post(psPort, down)
						}
					})
				}
				for _, h := range r.hosts[1:] {
					h.flush(t)
				}
				if idle {
					break
				}
				if now() > 60*time.Second {
					t.Fatalf("not done after %v: %+v", now(), ws[0].Stats())
				}
				unix.Poll(fds, 1)
			}
			resends := int64(0)
			for rank, w := range ws {
				s := w.Stats()
				resends += s.Resends
				if s.Results != psns || s.Wrong != 0 || s.Checked != psns*lanes {
					t.Errorf("worker %d: %+v", rank, s)
				}
			}
			if resends == 0 {
				t.Error("nothing was sent again although cables lose")
			}
			// Until the last frames in the cables have come through: those nobody waits for.
			total := func(c Counter) (n int64) {
				for p := 1; p <= psPort; p++ {
					k, _ := r.Counter(c, p)
					n += k
				}
				return n
			}
			in := sent[1] + sent[2] + sent[3] + sent[4]
			for total(PortRx) < in || r.busy() {
				time.Sleep(time.Millisecond)
			}
			for port := 1; port <= psPort; port++ {
				h := r.hosts[port]
				for h.dev.receive(256, func([]byte, int64) { received[port]++ }) > 0 {
				}
				if n, _ := r.Counter(PortRx, port); n != sent[port] {
					t.Errorf("port %d: port_rx %d, its host sent %d", port, n, sent[port])
				}
				if n, _ := r.Counter(PortTx, port); n != received[port] {
					t.Errorf("port %d: port_tx %d, its host received %d", port, n, received[port])
				}
			}
			if total(PortRxDrop) == 0 || total(PortTxDrop) == 0 || total(PortRxDup) == 0 || total(PortTxDup) == 0 {
				t.Error("a cable did no damage")
			}
			if n, _ := r.Counter(JobAggregated, job); (n > 0) != (mode != ina.Forward) {
				t.Errorf("job_aggregated %d in mode %d", n, mode)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			var captured int64
			for port := 1; port <= psPort; port++ {
				captured += countPcap(t, filepath.Join(dir, fmt.Sprintf("s-%d.pcap", port)))
			}
			if want := total(PortRx) + total(PortTx); captured != want {
				t.Errorf("%d frames captured, %d passed", captured, want)
			}
		})
	}
}

// busy reports whether a frame is still in a cable.
func (r *rack) busy() bool {
	r.lock()
	defer r.mu.Unlock()
	return r.engine.next() != never
}

func countPcap(t *testing.T, path string) (n int64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for ; ; n++ {
		if _, info, err := r.ReadPacketData(); err == io.EOF {
			return n
		} else if err != nil || time.Since(info.Timestamp).Abs() > time.Hour {
			t.Fatalf("%s: frame %d at %v: %v", path, n, info.Timestamp, err)
		}
	}
}

// TestMainProcess drives a switch as netns does: config, commands and answers as
// lines of JSON.
func TestMainProcess(t *testing.T) {
	r := newRack(t, 1, nil) // for its device
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	inR, in := io.Pipe()
	out, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Main(t.Context(), inR, outW)
		outW.CloseWithError(err)
		done <- err
	}()
	answers := json.NewDecoder(out)
	say := func(line string) (a Reply) {
		t.Helper()
		fmt.Fprintln(in, line)
		if err := answers.Decode(&a); err != nil {
			t.Fatalf("after %s: %v", line, err)
		}
		return a
	}
	path := filepath.Join(t.TempDir(), "p4rt")
	if a := say(`{"name":"s","device_id":1,"listen":"unix:` + path + `","aggregators":4,"ports":[{"number":1,"device":"p1"}]}`); !a.Ready || a.Addr != "unix:"+path {
		t.Fatalf("start: %+v", a)
	}
	for line, want := range map[string]string{
		`{"cmd":"impair","port":1,"dir":"egress","impair":{"loss":0.5}}`: "",
		`{"cmd":"impair","port":1,"dir":"up"}`:                           "neither",
		`{"cmd":"impair","port":2,"dir":"egress"}`:                       "no port 2",
		`{"cmd":"impair","port":1,"dir":"egress","impair":{"loss":2}}`:   "outside 0..1",
		`{"cmd":"dance"}`: "unknown command",
	} {
		if a := say(line); a.OK != (want == "") || !strings.Contains(a.Error, want) {
			t.Errorf("%s: %+v", line, a)
		}
	}
	if a := say(`{"cmd":"health"}`); a.Health == nil || a.Health.Elapsed <= 0 || a.Health.Warnings != nil {
		t.Errorf("health: %+v", a)
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	in.Close()
	if err := <-done; err != nil {
		t.Errorf("after end of input: %v", err)
	}
}

// What cannot start says why, on stdout too.
func TestMainRefuses(t *testing.T) {
	for line, want := range map[string]string{
		`{`: "config",
		`{"name":"s","listen":"127.0.0.1:0","ports":[{"number":1,"device":"nosuch"}]}`: "nosuch",
		`{"name":"s","listen":"nowhere"}`:                                              "nowhere",
		``:                                                                             "config",
	} {
		var out bytes.Buffer
		err := Main(t.Context(), strings.NewReader(line+"\n"), &out)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
		if strings.Contains(line, "name") && !strings.Contains(out.String(), want) {
			t.Errorf("%s: answered %q", line, out.String())
		}
	}
}

// BenchmarkLink measures the cable through real devices: a host offers more than the
// link's rate, the other one reads the kernel's receive timestamps.
//
//	rate-error-%   of the rate over the whole run, in absolute value
//	late-p50-us    how long after they were due frames were sent
//	late-p99-us
func BenchmarkLink(b *testing.B) {
	for _, rate := range []float64{100e6, 1e9} {
		b.Run(fmt.Sprintf("rate=%.0fM", rate/1e6), func(b *testing.B) {
			r := newRack(b, 2, func(c *Config) {
				c.Ports[1].Egress = LinkConfig{Rate: rate, Delay: 2 * time.Millisecond, Buffer: 8 << 20}
			})
			dst := [4]byte{10, 0, 0, 2}
			if err := r.SetRoute(Route{Dst: dst, Port: 2}); err != nil {
				b.Fatal(err)
			}
			f := unicast(dst, 1024)
			sent, got := 0, 0
			var first, last int64
			r.Health()
			b.ResetTimer()
			for got < b.N {
				// Enough stay in the queue that it is never empty, even when this thread has
				// to wait for a processor.
				for sent < b.N && sent < got+1500 {
					r.hosts[1].frame(f)
					sent++
				}
				r.hosts[1].flush(b)
				if r.hosts[2].dev.receive(256, func(_ []byte, at int64) {
					if first == 0 {
						first = at
					}
					last = at
					got++
				}) == 0 {
					if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(r.hosts[2].dev.fd), Events: unix.POLLIN}}, 3000); n == 0 {
						b.Fatalf("%d of %d frames came: %+v", got, b.N, r.Health())
					}
				}
			}
			b.StopTimer()
			h := r.Health()
			if got > 1 {
				measured := float64(got-1) * 1024 * 8e9 / float64(last-first)
				b.ReportMetric(100*max(measured/rate-1, 1-measured/rate), "rate-error-%")
			}
			b.ReportMetric(float64(h.LateP50)/1e3, "late-p50-us")
			b.ReportMetric(float64(h.LateP99)/1e3, "late-p99-us")
			b.ReportMetric(100*h.Busy, "switch-cpu-%")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkCounter reads a counter while the switch is saturated: what a collector
// waits for each.
func BenchmarkCounter(b *testing.B) {
	r := newRack(b, 2, nil)
	dst := [4]byte{10, 0, 0, 2}
	if err := r.SetRoute(Route{Dst: dst, Port: 2}); err != nil {
		b.Fatal(err)
	}
	f, stop, done := unicast(dst, 1024), make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for range txBatch {
				r.hosts[1].frame(f)
			}
			r.hosts[1].flush(b)
		}
	}()
	for b.Loop() {
		r.Counter(PortRx, 1)
	}
	close(stop)
	<-done
}

// A frame that came while the wall clock was set comes when it is read, not when the step is over; others when the kernel
// says.
func TestArrivedAcrossStepOfClock(t *testing.T) {
	const zero = int64(1_700_000_000e9) // of the wall clock
	for _, test := range []struct {
		name             string
		stamp, now, want time.Duration // on the engine's clock
	}{
		{"before this turn", 5 * time.Second, 6 * time.Second, 5 * time.Second},
		{"set an hour ahead in this turn", 6*time.Second + time.Hour, 6 * time.Second, 6 * time.Second},
		{"set an hour back since", 5*time.Second + time.Hour, 6 * time.Second, 6 * time.Second},
	} {
		if got := arrived(zero+int64(test.stamp), zero, test.now, func() time.Duration { return test.now }); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
