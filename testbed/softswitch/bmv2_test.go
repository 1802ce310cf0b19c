//go:build linux

package softswitch

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/bmv2"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// BenchmarkBMv2 runs the loop of BenchmarkSwitch through the embedded switch and through
// BMv2, on the same cables, with a window that BMv2's queues of 64 packets hold.
//
//	packets/s      frames into the switch, results from the PS included
//	switch-us/pkt  processor time of the switch's busiest thread per such frame
func BenchmarkBMv2(b *testing.B) {
	path, err := bmv2.Find()
	testbedtest.Require(b, "bmv2", err)
	needNamespace(b)
	const window = 16
	entry := ina.JobEntry{
		Job: loopJob, Mode: ina.Statistical, Addressing: ina.Pool, Size: 1024, Expect: 1<<workers - 1, Root: true, Window: window, UpPort: psPort, DownGroup: 1,
	}
	report := func(b *testing.B, in int64, elapsed, busy time.Duration) {
		b.ReportMetric(float64(in)/elapsed.Seconds(), "packets/s")
		b.ReportMetric(busy.Seconds()*1e6/float64(in), "switch-us/pkt")
		b.ReportMetric(0, "ns/op")
	}
	for _, lanes := range []int{16, 64, 240} {
		b.Run(fmt.Sprintf("switch=soft/lanes=%d", lanes), func(b *testing.B) {
			r := newRack(b, workers+1, nil)
			if err := r.SetGroup(1, []uint32{1, 2, 3}); err != nil {
				b.Fatal(err)
			}
			if err := r.SetJob(entry); err != nil {
				b.Fatal(err)
			}
			elapsed := closeLoop(b, r.hosts, ina.Statistical, lanes, window, func() { r.Health() }, func() any { return r.Health() })
			h := r.Health()
			var in int64
			for i := 1; i <= workers+1; i++ {
				n, _ := r.Counter(PortRx, i)
				in += n
			}
			report(b, in, elapsed, time.Duration(h.Busy*float64(h.Elapsed)))
		})
		b.Run(fmt.Sprintf("switch=bmv2/lanes=%d", lanes), func(b *testing.B) {
			hosts := newHosts(b, workers+1, false)
			ports := map[uint32]string{}
			for i := range hosts[1:] {
				ports[uint32(i+1)] = fmt.Sprintf("p%d", i+1)
			}
			listen := "unix:" + b.TempDir() + "/p4rt"
			p, err := bmv2.Start(b.Context(), path, bmv2.Config{Name: "s", DeviceID: 1, Listen: listen, Ports: ports})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { p.Stop() })
			c, err := p4rt.Dial(b.Context(), "s", listen, 1, p4rt.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { c.Close(context.Background()) })
			info, config, _, err := p4.BMv2()
			if err == nil {
				err = c.Push(b.Context(), dataplane.Pipeline{Info: info, DeviceConfig: config})
			}
			if err == nil {
				err = c.Write(b.Context(), dataplane.Batch{Groups: []p4.Group{{ID: 1, Ports: []uint32{1, 2, 3}}}, Jobs: []ina.JobEntry{entry}})
			}
			if err != nil {
				b.Fatal(err)
			}
			before, _ := p.Busy()
			elapsed := closeLoop(b, hosts, ina.Statistical, lanes, window, func() {}, func() any { return "" })
			after, _ := p.Busy()
			cells, err := c.ReadCounters(b.Context(), []string{"port_rx"}, []int{1, 2, 3, 4})
			if err != nil {
				b.Fatal(err)
			}
			var in int64
			for _, v := range cells {
				in += v.Packets
			}
			report(b, in, elapsed, after-before)
		})
	}
}
