package background_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/node"
)

// BenchmarkInterference is the speed of a job of which background flows load the link of the
// Aggregator with most of its bytes: over that without them, before pMaster does something about it and
// after (Figures 14 and 15), with servers of its own, and on the service. Without a spare host it may not take
// another Aggregator. Of a job that is above LowPerf nothing is moved.
func BenchmarkInterference(b *testing.B) {
	for _, c := range []struct {
		model   string
		servers int
		hosts   int // for Aggregators
		times   float64
	}{
		{"alexnet", 2, 3, 1},
		{"vgg19", 2, 3, 8},
		{"vgg19", 4, 4, 8},
		{"awd-lstm", 4, 4, 4},
		{"bert-base", 4, 4, 2}, // faster, its messages keep two processors busier than its links
	} {
		b.Run(fmt.Sprintf("%s/servers=%d/hosts=%d", c.model, c.servers, c.hosts), func(b *testing.B) {
			p := model(b, c.model, c.servers, c.servers, c.times)
			l := newLab(b, c.hosts, c.servers)
			for _, flows := range []int{4, 8, 16, 32} {
				b.Run(fmt.Sprint("flows=", flows), func(b *testing.B) {
					l.t = b
					var static float64
					var o outcome
					for range b.N { // once takes a minute
						static, o = l.interfereStatic(p, flows), l.interfere(p, flows)
					}
					b.ReportMetric(1e3/o.speed, "iteration-ms")
					b.ReportMetric(100*static, "%-static")
					b.ReportMetric(100*o.during, "%-before-it-moves")
					b.ReportMetric(o.until.Seconds(), "s-until")
					b.ReportMetric(o.moved, "moved")
					b.ReportMetric(100*o.after, "%-after")
					b.ReportMetric(o.after/static, "x-static")
					b.ReportMetric(0, "ns/op")
				})
			}
			l.t = b
		})
	}
}

const window = 60 // iterations

// interfereStatic is what is left of the speed with servers of the job's own.
func (l *lab) interfereStatic(p profile, flows int) float64 {
	p.ID = 1
	var servers []control.Peer
	for id := range int32(p.Servers) {
		var n news
		var address string
		host := l.spare[id]
		server := l.start(host, "node", node.Config{Local: l.address(host), Times: patience, Aggregator: &node.Aggregator{ID: id, Jobs: []control.Job{p.Job}}}, func(line []byte) {
			n.tell(func() { address = ready(line, address) })
		})
		defer server.stop()
		n.until(l.t, "a server", func() bool { return address != "" })
		servers = append(servers, control.Peer{ID: id, Address: address})
	}
	tr := l.train(p, node.Config{Times: patience}, servers, math.MaxInt32)
	defer tr.stop()
	at := make([]int32, len(p.Tensors))
	for i := range at {
		at[i] = int32(i % p.Servers)
	}
	tr.past(5)
	before := tr.speed(window)
	defer l.load(l.spare[heaviest(p.Job, at)], flows)()
	tr.past(3)
	return tr.speed(window/4) / before
}

var records = flag.String("interference.record", "", "folder for what pMaster has observed in BenchmarkInterference")

// record keeps what the planner was told, for its own tests.
func (s *service) record(name string) {
	s.l.t.Helper()
	if *records == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out bytes.Buffer
	for i, o := range s.seen {
		if i == s.loaded {
			out.WriteString("flows\n")
		}
		fmt.Fprintf(&out, "%.3f %d %.3f", o.Now.Seconds(), o.Iterations, o.Spent.Seconds())
		for _, id := range slices.Sorted(maps.Keys(o.Slow)) {
			fmt.Fprintf(&out, " %d:%.3g", id, o.Slow[id])
		}
		out.WriteByte('\n')
	}
	if err := os.WriteFile(filepath.Join(*records, name+".txt"), out.Bytes(), 0o644); err != nil {
		s.l.t.Error(err)
	}
}

type outcome struct {
	speed         float64 // 1/s, undisturbed
	during, after float64 // of it
	until         time.Duration
	moved         float64 // 1; 0: pMaster left it where it was
}

// interfere is the same on the service.
func (l *lab) interfere(p profile, flows int) (o outcome) {
	plan := paramservice.DefaultMaster()
	plan.Aggregators = len(l.spare)
	s := l.serve(plan)
	defer s.close()
	defer func() {
		for _, e := range s.log() {
			l.t.Log(e)
		}
		s.record(fmt.Sprintf("%s-%d-%d", p.Name, p.Servers, flows))
	}()
	tr, _ := s.begin(p, math.MaxInt32)
	defer tr.stop()
	tr.past(5)
	o.speed = tr.speed(window)
	bad := heaviest(p.Job, s.settled(tr))
	s.mu.Lock()
	left, verdicts := s.has("verdict", "evacuated"), s.has("verdict", "")
	s.mu.Unlock()
	from := tr.past(0)
	defer l.load(s.on[bad], flows)()
	s.tell(func() { s.loaded = len(s.seen) })
	began := time.Now()
	s.until(l.t, "tensors leave the Aggregator, or the job is fast enough", func() bool {
		if s.has("verdict", "evacuated") > left {
			o.moved = 1
		}
		return o.moved > 0 || s.has("verdict", "") >= verdicts+2
	})
	s.settled(tr)
	o.until = time.Since(began)
	to := tr.past(0)
	tr.mu.Lock()
	o.during = between(tr.its[from+1:to-1]) / o.speed
	tr.mu.Unlock()
	tr.past(3)
	o.after = tr.speed(window) / o.speed
	return o
}

// ready is the address in a node's first event.
func ready(line []byte, was string) string {
	var e node.Event
	if json.Unmarshal(line, &e) == nil && e.Address != "" {
		return e.Address
	}
	return was
}
