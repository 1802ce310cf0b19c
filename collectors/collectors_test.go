package collectors

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/collectors/reader"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/sshd/sshdtest"
)

var seed = flag.Uint64("seed", 0, "seed of random tests; 0: a new one")

func newRand(t testing.TB) *rand.Rand {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// connect brings up a server whose sessions have a directory of programs before all
// others on their PATH, and connects to it.
func connect(t testing.TB, programs map[string]string) hosts.Host {
	t.Helper()
	path := "PATH=" + sshdtest.Programs(t, programs) + ":" + os.Getenv("PATH")
	return sshdtest.Dial(t, sshdtest.Serve(t, &sshd.Server{Env: append(os.Environ(), path)}))
}

// value finds the one sample of a metric about something.
func value(t *testing.T, samples []results.Sample, metric, of string) results.Sample {
	t.Helper()
	var found []results.Sample
	for _, s := range samples {
		if s.Metric == metric && s.Of == of {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d samples of %s of %s", len(found), metric, of)
	}
	return found[0]
}

// The loopback device's counters, read over a connection that goes over it.
func TestNIC(t *testing.T) {
	c := connect(t, nil)
	n, err := NewNIC(c, []NICPort{{"lo", "h1->tor1", "tor1->h1"}, {"nic7", "out", "in"}})
	if err != nil {
		t.Fatal(err)
	}
	var last float64
	for range 3 {
		samples, err := n.Collect(t.Context())
		if err == nil || !strings.Contains(err.Error(), "host h1: no device nic7") {
			t.Errorf("error %v", err)
		}
		tx := value(t, samples, "nic_tx_bytes", "h1->tor1")
		if tx.Unit != "B" || tx.Source != "host h1" || tx.Gauge || tx.Value <= last {
			t.Errorf("%+v after %v", tx, last)
		}
		last = tx.Value
		if rx := value(t, samples, "nic_rx_packets", "tor1->h1"); rx.Value <= 0 || rx.Unit != "1" {
			t.Errorf("%+v", rx)
		}
	}
	for _, bad := range []string{"", "../x", "a b", "."} {
		if _, err := NewNIC(c, []NICPort{{bad, "", ""}}); err == nil {
			t.Errorf("device %q accepted", bad)
		}
	}
}

func netDevText(devices map[string]NetDev) string {
	var b strings.Builder
	b.WriteString("Inter-|   Receive                                                |  Transmit\n" +
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n")
	for name, d := range devices {
		fmt.Fprintf(&b, "%6s: %7d %7d %4d %4d    0     0          0         0 %8d %7d %4d %4d    0     0       0          0\n", name,
			d.Rx.Bytes, d.Rx.Packets, d.Rx.Errors, d.Rx.Drops, d.Tx.Bytes, d.Tx.Packets, d.Tx.Errors, d.Tx.Drops)
	}
	return b.String()
}

// What cannot be read costs its own samples only.
func TestNICDegrades(t *testing.T) {
	text := netDevText(map[string]NetDev{"eth0": {Rx: NetDevCounters{Packets: 13}}})
	for _, tt := range []struct {
		name    string
		file    hosts.File
		packets float64 // of eth0; -1: nothing is read
		err     string
	}{
		{"all is well", hosts.File{Data: []byte(text)}, 13, ""},
		{"another line is damaged", hosts.File{Data: []byte(text + "  eth1: 1 2\n")}, 13, `device "eth1": 2 numbers instead of 16`},
		{"no such device", hosts.File{Data: []byte(strings.ReplaceAll(text, "eth0", "eth9"))}, -1, "host h1: no device eth0"},
		{"no devices", hosts.File{}, -1, "host h1: /proc/net/dev has no devices"},
		{"no file", hosts.File{Err: fs.ErrNotExist}, -1, "not exist"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &NIC{host: "h1", ports: []NICPort{{"eth0", "out", "in"}}, read: func(context.Context, string) ([]byte, error) { return tt.file.Data, tt.file.Err }}
			samples, err := n.Collect(t.Context())
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v", err)
			}
			if tt.packets < 0 {
				if len(samples) > 0 {
					t.Errorf("%+v", samples)
				}
			} else if v := value(t, samples, "nic_rx_packets", "in").Value; v != tt.packets {
				t.Errorf("nic_rx_packets %v", v)
			}
		})
	}
}

// A connection that is gone is the collector's error, not its end.
func TestNICConnectionLost(t *testing.T) {
	c := connect(t, nil)
	n, err := NewNIC(c, []NICPort{{"lo", "out", "in"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if samples, err := n.Collect(t.Context()); !errors.Is(err, hosts.ErrLost) || samples != nil {
		t.Errorf("%v, %v", samples, err)
	}
}

func TestParseNetDev(t *testing.T) {
	rng := newRand(t)
	for range 50 {
		want := map[string]NetDev{}
		for i := range rng.IntN(5) {
			var d NetDev
			for _, p := range []*uint64{&d.Rx.Bytes, &d.Rx.Packets, &d.Rx.Errors, &d.Rx.Drops, &d.Tx.Bytes, &d.Tx.Packets, &d.Tx.Errors, &d.Tx.Drops} {
				*p = rng.Uint64() >> rng.IntN(64)
			}
			want[fmt.Sprintf("eth%d", i)] = d
		}
		got, err := ParseNetDev(netDevText(want))
		if err != nil || !cmp.Equal(got, want) {
			t.Fatal(err, cmp.Diff(got, want))
		}
	}
	// A wide counter leaves no space after the colon; a bad line does not cost the others.
	got, err := ParseNetDev("eth0:18446744073709551615 1 2 3 0 0 0 0 4 5 6 7 0 0 0 0\neth1: 1 2\neth2: x 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n : 0\n")
	want := map[string]NetDev{"eth0": {Rx: NetDevCounters{math.MaxUint64, 1, 2, 3}, Tx: NetDevCounters{4, 5, 6, 7}}}
	if !cmp.Equal(got, want) {
		t.Error(cmp.Diff(got, want))
	}
	if err == nil || !strings.Contains(err.Error(), `"eth1"`) || !strings.Contains(err.Error(), `"eth2"`) {
		t.Error(err)
	}
}

func FuzzParseNetDev(f *testing.F) {
	f.Add(netDevText(map[string]NetDev{"lo": {}, "eth0": {Rx: NetDevCounters{1, 2, 3, 4}}}))
	f.Add("a:b: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n")
	f.Fuzz(func(t *testing.T, text string) {
		devices, err := ParseNetDev(text)
		if err != nil {
			return
		}
		again, err := ParseNetDev(netDevText(devices))
		if err != nil || !cmp.Equal(again, devices) {
			t.Fatal(err, cmp.Diff(again, devices))
		}
	})
}

type readerFunc func(context.Context) ([]CounterValue, error)

func (f readerFunc) ReadCounters(ctx context.Context) ([]CounterValue, error) { return f(ctx) }

func TestP4(t *testing.T) {
	cells := []CounterValue{
		{"port_rx", 1, 10, 1000},
		{"port_tx", 1, 20, 2000},
		{"port_queue_peak", 1, 0, 7},
		{"port_tx", 99, 1, 1}, // a port without a cable
		{"job_in", 3, 30, 3000},
		{"job_hold", 3, 4, 2_500_000},
		{"job_in", 4, 1, 1}, // a job of somebody else
		{"something", 0, 1, 1},
	}
	p := &P4{
		Switch: "tor1",
		Reader: readerFunc(func(context.Context) ([]CounterValue, error) { return cells, errors.New("stream closed") }),
		Ports:  map[int]P4Port{1: {In: "h1->tor1", Out: "tor1->h1"}},
		Jobs:   map[int]string{3: "A"},
	}
	got, err := p.Collect(t.Context())
	if err == nil || err.Error() != "switch tor1: stream closed" {
		t.Error(err)
	}
	want := []results.Sample{
		{Metric: "port_rx_packets", Of: "h1->tor1", Value: 10, Unit: "1"},
		{Metric: "port_rx_bytes", Of: "h1->tor1", Value: 1000, Unit: "B"},
		{Metric: "port_tx_packets", Of: "tor1->h1", Value: 20, Unit: "1"},
		{Metric: "port_tx_bytes", Of: "tor1->h1", Value: 2000, Unit: "B"},
		{Metric: "port_queue_peak_bytes", Of: "tor1->h1", Value: 7, Unit: "B", Gauge: true},
		{Metric: "job_in_packets", Of: "A@tor1", Value: 30, Unit: "1"},
		{Metric: "job_in_bytes", Of: "A@tor1", Value: 3000, Unit: "B"},
		{Metric: "job_hold_packets", Of: "A@tor1", Value: 4, Unit: "1"},
		{Metric: "job_hold_seconds", Of: "A@tor1", Value: 2.5, Unit: "s"},
	}
	for i := range want {
		want[i].Source = "switch tor1"
	}
	if !cmp.Equal(got, want) {
		t.Error(cmp.Diff(got, want))
	}
}

func TestWorkerSamples(t *testing.T) {
	samples := WorkerSamples(1.5, "worker A/0", "A/0", agent.Stats{BytesSent: 100, Goodput: 80, RTTMin: 0.001, SumErrors: 2, PSNsSent: 7, Duplicates: 3, Arrived: 9, Outstanding: 5})
	for _, want := range []results.Sample{
		{Metric: "worker_tx_bytes", Value: 100, Unit: "B"},
		{Metric: "worker_goodput_bytes", Value: 80, Unit: "B"},
		{Metric: "worker_rtt_min", Value: 0.001, Unit: "s", Gauge: true},
		{Metric: "worker_outstanding", Value: 5, Unit: "1", Gauge: true},
		{Metric: "worker_sum_errors", Value: 2, Unit: "1"},
		{Metric: "worker_psns_sent", Value: 7, Unit: "1"},
		{Metric: "worker_duplicates", Value: 3, Unit: "1"},
		{Metric: "worker_arrived", Value: 9, Unit: "1"},
	} {
		want.T, want.Source, want.Of = 1.5, "worker A/0", "A/0"
		if got := value(t, samples, want.Metric, "A/0"); got != want {
			t.Errorf("%+v\ninstead of %+v", got, want)
		}
	}
}

func TestTrainerSamples(t *testing.T) {
	tr := &agent.Training{Steps: 3, JCT: 0.6, Times: []float64{0.3, 0.1}} // and 0.2 told before
	tr.Ops, tr.INA, tr.Refused, tr.Ring.Bytes = 9, 4, 2, 1e6
	tr.Late.Add(5 * time.Millisecond)
	samples := TrainerSamples(11, 10, "rank A/0", "A/0", agent.Stats{Iterations: 3, SumErrors: 1, BytesSent: 100, Training: tr})
	for _, want := range []results.Sample{
		{Metric: "worker_tx_bytes", Value: 100, Unit: "B"},
		{Metric: "worker_iterations", Value: 3, Unit: "1"},
		{Metric: "worker_sum_errors", Value: 1, Unit: "1"},
		{Metric: "worker_ops", Value: 9, Unit: "1"},
		{Metric: "worker_ops_ina", Value: 4, Unit: "1"},
		{Metric: "worker_ops_refused", Value: 2, Unit: "1"},
		{Metric: "worker_ring_bytes", Value: 1e6, Unit: "B"},
		{Metric: "worker_late_seconds", Value: 0.005, Unit: "s"},
	} {
		want.T, want.Source, want.Of = 11, "rank A/0", "A/0"
		if got := value(t, samples, want.Metric, "A/0"); got != want {
			t.Errorf("%+v\ninstead of %+v", got, want)
		}
	}
	ends := map[float64]float64{}
	for _, s := range samples {
		if s.Metric == "worker_step_seconds" {
			ends[s.Value] = math.Round(1e6*s.T) / 1e6
			if !s.Gauge {
				t.Error("steps do not add up")
			}
		}
	}
	if want := map[float64]float64{0.1: 10.6, 0.3: 10.5}; !maps.Equal(ends, want) {
		t.Errorf("steps ended at %v, want %v", ends, want)
	}
	if got := TrainerSamples(11, 10, "rank A/0", "A/0", agent.Stats{}); len(got) != 10 {
		t.Errorf("%d samples before there is a step", len(got))
	}
}

// However unevenly the delay of a ping is split between there and back, the true offset
// is within the error that is claimed.
func TestMeasureClock(t *testing.T) {
	rng := newRand(t)
	for range 500 {
		truth := rng.NormFloat64() * 1e5
		var now time.Duration
		fastest := math.Inf(1)
		c, err := MeasureClock(t.Context(), 1+rng.IntN(10), func() time.Duration { return now }, func(context.Context) (float64, error) {
			there, back := time.Duration(rng.ExpFloat64()*1e6), time.Duration(rng.ExpFloat64()*1e6)
			if rng.IntN(10) == 0 && !math.IsInf(fastest, 1) {
				return 0, errors.New("lost")
			}
			now += there
			t := now.Seconds() - truth
			now += back
			fastest = min(fastest, (there + back).Seconds())
			return t, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(c.RunTime(0) - truth); d > c.Error+1e-9 {
			t.Fatalf("off by %v, claimed %v", d, c.Error)
		}
		if math.Abs(c.Error-fastest/2) > 1e-9 {
			t.Fatalf("error %v, fastest round trip %v", c.Error, fastest)
		}
	}
	lost := errors.New("lost")
	if c, err := MeasureClock(t.Context(), 3, func() time.Duration { return 0 }, func(context.Context) (float64, error) { return 1, lost }); !errors.Is(err, lost) || c != (Clock{}) {
		t.Error(c, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := MeasureClock(ctx, 3, func() time.Duration { return 0 }, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

type collectorFunc struct {
	name string
	f    func(context.Context) ([]results.Sample, error)
}

func (c collectorFunc) Name() string                                          { return c.name }
func (c collectorFunc) Collect(ctx context.Context) ([]results.Sample, error) { return c.f(ctx) }

// One collector works, one gives half of what it should, one has nothing, and one
// hangs: what there is comes through, and what is missing can be seen.
func TestSampler(t *testing.T) {
	broken := errors.New("broken")
	s := &Sampler{
		Timeout: 500 * time.Millisecond,
		Now:     func() time.Duration { return 3 * time.Second },
		Collectors: []Collector{
			collectorFunc{"good", func(context.Context) ([]results.Sample, error) {
				return []results.Sample{{Metric: "x", Of: "good"}, {Metric: "y", Of: "good", T: 1}}, nil
			}},
			collectorFunc{"half", func(context.Context) ([]results.Sample, error) {
				return []results.Sample{{Metric: "x", Of: "half"}}, broken
			}},
			collectorFunc{"none", func(context.Context) ([]results.Sample, error) { return nil, ErrNoData }},
			collectorFunc{"hung", func(ctx context.Context) ([]results.Sample, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}},
		},
	}
	samples, err := s.Sample(t.Context())
	if !errors.Is(err, broken) || errors.Is(err, ErrNoData) || !strings.Contains(err.Error(), "hung: no answer within 500ms") {
		t.Errorf("error %v", err)
	}
	for of, want := range map[string]float64{"good": 0, "half": 1, "none": 0, "hung": 1} {
		if got := value(t, samples, "collector_error", of); got.Value != want || got.T != 3 {
			t.Errorf("%+v", got)
		}
		value(t, samples, "collector_seconds", of)
	}
	for _, want := range []struct {
		metric, of string
		t          float64
	}{{"x", "good", 3}, {"y", "good", 1}, {"x", "half", 3}} {
		if got := value(t, samples, want.metric, want.of); got.T != want.t {
			t.Errorf("%+v", got)
		}
	}
}

func TestSamplerRun(t *testing.T) {
	s := &Sampler{Now: func() time.Duration { return 0 }, Collectors: []Collector{
		collectorFunc{"good", func(context.Context) ([]results.Sample, error) { return nil, nil }},
	}}
	ctx, cancel := context.WithCancel(t.Context())
	rounds := 0
	s.Run(ctx, time.Millisecond, func(samples []results.Sample, err error) {
		if err != nil || len(samples) != 2 {
			t.Errorf("%v, %v", samples, err)
		}
		if rounds++; rounds == 3 {
			cancel()
		}
	})
	if rounds != 3 {
		t.Errorf("%d rounds", rounds)
	}
}

// TestMain is a reader of counters, where this binary is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ReaderVerb {
		if err := reader.Main(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// remoteReader is a collector whose reader is this binary, behind a connection.
func remoteReader(b *testing.B, c hosts.Host, files []string) *Host {
	h, err := NewHost("h1", []NICPort{{"lo", "out", "in"}}, func(ctx context.Context, config reader.Config) (Process, error) {
		config.Files = files
		p, err := c.Start(b.Context(), []string{os.Args[0], ReaderVerb}, nil)
		if err != nil {
			return nil, err
		}
		remote := &pipe{Writer: p.Stdin, Reader: p.Stdout, done: make(chan struct{}), close: p.Close}
		return remote, tell(remote, config)
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close() })
	return h
}

// One round of readings of 32 hosts, their side of it included: at every 100 ms, the time
// of a round is what it leaves of them. 40 files are about what an RDMA device has.
func BenchmarkSample32Hosts(b *testing.B) {
	dir := b.TempDir()
	var rdma []string
	for i := range 40 {
		rdma = append(rdma, filepath.Join(dir, fmt.Sprint("counter", i)))
		if err := os.WriteFile(rdma[i], []byte("17\n"), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	kinds := map[string]func(hosts.Host) Collector{
		"nic": func(c hosts.Host) Collector {
			n, err := NewNIC(c, []NICPort{{"lo", "out", "in"}})
			if err != nil {
				b.Fatal(err)
			}
			return n
		},
		"nic and RDMA over sftp": func(c hosts.Host) Collector {
			return collectorFunc{"files h1", func(ctx context.Context) ([]results.Sample, error) {
				for _, f := range c.ReadFilesOf(ctx, bounded.Config, append(rdma, netDevFile)...) {
					if f.Err != nil {
						return nil, f.Err
					}
				}
				return nil, nil
			}}
		},
		"nic and RDMA by reader": func(c hosts.Host) Collector { return remoteReader(b, c, rdma) },
	}
	for name, kind := range kinds {
		b.Run(name, func(b *testing.B) {
			began := time.Now()
			s := Sampler{Now: func() time.Duration { return time.Since(began) }, Audit: &Audit{}}
			for range 32 {
				c := connect(b, nil)
				s.Collectors = append(s.Collectors, kind(c))
			}
			s.Sample(b.Context())
			for b.Loop() {
				s.Sample(b.Context())
			}
		})
	}
}

// The ways to read a host's counters; sftp is the one that NIC takes, reader that of Host.
// Over a real network come the round trips: four for sftp, all files at the same time, one
// for shell and reader, three for session.
func BenchmarkRead(b *testing.B) {
	c := connect(b, nil)
	files := []string{netDevFile, sysfsPath("lo", "carrier_changes")}
	b.Run("sftp", func(b *testing.B) {
		for b.Loop() {
			for _, f := range c.ReadFilesOf(b.Context(), bounded.Config, files...) {
				if f.Err != nil {
					b.Fatal(f.Err)
				}
			}
		}
	})
	b.Run("shell", func(b *testing.B) { // one that stays, and forks a grep for each reading
		p, err := c.Start(b.Context(), append([]string{"/bin/sh", "-c", `while read -r _; do grep -Hs '' "$@"; echo; done`, "sh"}, files...), nil)
		if err != nil {
			b.Fatal(err)
		}
		defer p.Close()
		r := bufio.NewReader(p.Stdout)
		for b.Loop() {
			p.Stdin.Write([]byte("\n"))
			for line := ""; line != "\n"; {
				if line, err = r.ReadString('\n'); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("reader", func(b *testing.B) { // a process of ours that stays
		h := remoteReader(b, c, files[1:])
		for b.Loop() {
			if s, err := h.Collect(b.Context()); err != nil && len(s) == 0 {
				b.Fatal(err)
			}
		}
	})
	b.Run("session", func(b *testing.B) { // a session and its process for each reading
		for b.Loop() {
			if _, err := c.Run(b.Context(), append([]string{"grep", "-Hs", ""}, files...), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
