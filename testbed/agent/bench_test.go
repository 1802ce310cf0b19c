package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/udp"
)

// BenchmarkSend is a worker's way out: gradients computed, packets queued, a batch a
// system call, into a veth whose far end drops them. "checked" also takes a result from
// memory for every packet, and checks it as every worker always does; the difference
// is what results cost, reading them from the socket apart.
func BenchmarkSend(b *testing.B) {
	if !inNamespace(b) {
		return
	}
	sink := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "sink"}, PeerName: "far"}
	must(b, netlink.LinkAdd(sink))
	far, err := netlink.LinkByName("far")
	must(b, err)
	must(b, netlink.LinkSetUp(far))
	addr, err := netlink.ParseAddr("10.0.1.1/24")
	must(b, err)
	must(b, netlink.AddrAdd(sink, addr))
	must(b, netlink.LinkSetUp(sink))
	for _, lanes := range []int{16, 240} {
		for _, checked := range []bool{false, true} {
			b.Run(fmt.Sprintf("lanes=%d/checked=%v", lanes, checked), func(b *testing.B) {
				cfg := stream
				cfg.Device, cfg.Workers, cfg.Lanes = "sink", 1, lanes
				cfg.Window = 1 << 16
				c := udp.NewClock()
				k, err := newWorker(cfg, &c)
				must(b, err)
				defer func() { k.close() }()
				ref := ina.NewReference(cfg.Seed, cfg.Job, 1).In(cfg.Epoch)
				result := make([]byte, k.w.PacketLen())
				// take gives the worker the results of PSNs [from, to).
				take := func(from, to uint32) {
					for psn := from; psn < to; psn++ {
						ina.Header{Flags: ina.FlagResult, Job: cfg.Job, Epoch: cfg.Epoch, PSN: psn, Lanes: uint8(lanes), Bitmap: 1}.Put(result)
						ref.Sum(result[ina.HeaderLen:], psn)
						k.w.Receive(result, 2*time.Millisecond)
					}
				}
				k.w.Allow(ina.Endless, 0)
				answered := uint32(0)
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					if _, _, ok := k.w.Next(); !ok { // startup, or the window is used up
						if !checked {
							b.StopTimer()
						}
						end := uint32(k.w.Stats().Sent)
						take(answered, end)
						answered = end
						b.StartTimer()
					}
					buf := k.sock.Buffer()
					must(b, k.sock.Queue(buf[:k.w.Send(time.Millisecond, buf)], k.to))
				}
				b.StopTimer()
				if s := k.w.Stats(); s.Wrong != 0 {
					b.Errorf("%d sums wrong", s.Wrong)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
			})
		}
	}
}

// BenchmarkRing is a ring of three on a bridge, paced by the kernel: the error of the
// wire rate, all of each worker's frames counted, and the rate at which gradients
// were reduced.
func BenchmarkRing(b *testing.B) {
	if !inNamespace(b) {
		return
	}
	for _, rate := range []float64{0, 50e6} {
		b.Run(fmt.Sprintf("Mbit=%.0f", rate/1e6), func(b *testing.B) {
			cfg := loopRing(0)
			cfg.Workers, cfg.Message, cfg.Rate, cfg.Interval = 3, 1<<20, rate, 100*time.Millisecond
			r := newRack(b)
			var workers []*process
			for rank := range cfg.Workers {
				p, addr := r.host(fmt.Sprintf("worker %d", rank))
				workers = append(workers, p)
				cfg.Peers = append(cfg.Peers, addr)
			}
			for rank, p := range workers {
				cfg.Rank = rank
				p.write(cfg)
				p.until("ready")
			}
			for _, p := range workers {
				p.write(Command{Cmd: "start"})
			}
			first := workers[0].until("sample")
			last := first
			for last.T-first.T < 2 {
				last = workers[0].until("sample")
			}
			for _, p := range workers {
				p.write(Command{Cmd: "stop"})
			}
			for _, p := range workers {
				if s := p.until("done").Stats; s.SumErrors != 0 || s.SumsChecked == 0 {
					b.Errorf("%s: %d of %d sums wrong", p.name, s.SumErrors, s.SumsChecked)
				}
			}
			span := last.T - first.T
			sent := float64(last.Stats.BytesSent-first.Stats.BytesSent) * 8 / span
			if rate > 0 {
				b.ReportMetric((sent/rate-1)*100, "%rate-error")
			}
			b.ReportMetric(sent/1e6, "Mbit/s-wire")
			b.ReportMetric(float64(last.Stats.Goodput-first.Stats.Goodput)*8/(last.Stats.CommSum-first.Stats.CommSum)/1e6, "Mbit/s-algbw")
			b.ReportMetric(0, "ns/op")
		})
	}
}
