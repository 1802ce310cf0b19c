//go:build linux

package softswitch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/ina"
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
	}{{"forward", ina.Forward}, {"statistical", ina.Statistical}, {"synchronous", ina.Synchronous}} {
		for _, lanes := range []int{16, 64, 240} {
			b.Run(fmt.Sprintf("mode=%s/lanes=%d", mode.name, lanes), func(b *testing.B) {
				benchmarkJob(b, mode.mode, lanes)
			})
		}
	}
}

func benchmarkJob(b *testing.B, mode ina.Mode, lanes int) {
	const workers, psPort, job, window = 3, 4, 5, 128
	r := newRack(b, workers+1, nil)
	entry := ina.JobEntry{
		Job: job, Mode: mode, Size: 1024, Expect: 1<<workers - 1, Root: true, Window: window, UpPort: psPort, DownGroup: 1,
	}
	if err := r.SetJob(entry); err != nil {
		b.Fatal(err)
	}
	if err := r.SetGroup(1, []uint32{1, 2, 3}); err != nil {
		b.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var fds []unix.PollFd
	for _, h := range r.hosts[1:] {
		fds = append(fds, unix.PollFd{Fd: int32(h.dev.fd), Events: unix.POLLIN})
	}
	// Frames are made once per worker and their PSN filled in.
	var template [workers][]byte
	for rank := range template {
		template[rank] = inaFrame(ina.Header{Job: job, Rank: uint8(rank), Lanes: uint8(lanes), Bitmap: 1 << rank}, 1)
	}
	result := inaFrame(ina.Header{Flags: ina.FlagResult, Job: job, Rank: ina.NoRank, Lanes: uint8(lanes), Bitmap: 1<<workers - 1}, workers)
	offer := func(rank int, psn uint32) {
		binary.BigEndian.PutUint32(template[rank][payloadAt+4:], psn)
		r.hosts[rank+1].frame(template[rank])
	}
	var sent, got [workers]uint32
	var arrived [4 * window]int
	r.Health()
	b.ResetTimer()
	total := uint32(b.N)
	progress, since := uint32(0), time.Now()
	for got[0] < total || got[1] < total || got[2] < total {
		for rank := range workers {
			for sent[rank] < total && sent[rank] < got[rank]+window {
				offer(rank, sent[rank])
				sent[rank]++
			}
			r.hosts[rank+1].flush(b)
		}
		n := r.hosts[psPort].dev.receive(256, func(f []byte, _ int64) {
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
				r.hosts[psPort].frame(result)
			}
		})
		r.hosts[psPort].flush(b)
		for rank := range workers {
			n += r.hosts[rank+1].dev.receive(256, func(f []byte, _ int64) {
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
			b.Fatalf("stuck: %v of %d results; %+v", got, total, r.Health())
		}
	}
	elapsed := b.Elapsed()
	b.StopTimer()
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

func TestForward(t *testing.T) {
	r := newRack(t, 2, nil)
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
