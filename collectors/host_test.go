package collectors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/collectors/reader"
	"github.com/inabench/inabench/results"
)

// pipe is a reader in this process.
type pipe struct {
	io.Writer
	io.Reader
	done  chan struct{}
	close func() error
}

func (p *pipe) Done() <-chan struct{} { return p.done }
func (p *pipe) Close() error          { return p.close() }

func startReader(context.Context, reader.Config) (Process, error) { return startMain(reader.Main) }

func startMain(main func(context.Context, io.Reader, io.Writer) error) (Process, error) {
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	p := &pipe{Writer: stdin, Reader: stdout, done: make(chan struct{})}
	p.close = func() error { stdin.Close(); stdout.Close(); <-p.done; return nil }
	go func() {
		defer close(p.done)
		err := main(context.Background(), in, out)
		in.CloseWithError(err)
		out.CloseWithError(err)
	}()
	return p, nil
}

// A reader on this machine says of lo what /proc/net/dev does, reading after reading.
func TestHost(t *testing.T) {
	h, err := NewHost("h1", []NICPort{{"lo", "h1->tor1", "tor1->h1"}}, func(ctx context.Context, c reader.Config) (Process, error) {
		p, _ := startReader(ctx, c)
		return p, tell(p, c)
	})
	if err != nil {
		t.Fatal(err)
	}
	last := -1.0
	for range 3 {
		got, err := h.Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		v := value(t, got, "nic_tx_bytes", "h1->tor1")
		if v.Value < last || v.Unit != "B" || v.Source != "host h1" || v.Gauge {
			t.Errorf("%+v after %v", v, last)
		}
		last = v.Value
		if id := value(t, got, "nic_index", "tor1->h1"); id.Value != 1 || id.Unit != UnitID || !id.Gauge {
			t.Errorf("%+v", id)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := NewHost("h1", []NICPort{{Device: "lo*"}}, nil); err == nil {
		t.Error("a pattern is taken for a device")
	}
}

// A reader that hangs, or dies, costs the reading that met it; the next one has another.
func TestHostReaderFails(t *testing.T) {
	hang := func(ctx context.Context, in io.Reader, out io.Writer) error {
		_, err := io.Copy(io.Discard, in)
		return err
	}
	die := func(ctx context.Context, in io.Reader, out io.Writer) error { return errors.New("killed") }
	parts := []func(context.Context, io.Reader, io.Writer) error{hang, die, reader.Main}
	h, err := NewHost("h1", []NICPort{{"lo", "out", "in"}}, func(ctx context.Context, c reader.Config) (Process, error) {
		p, _ := startMain(parts[0])
		if parts = parts[1:]; len(parts) == 1 {
			return p, nil // dead before it can be told
		}
		return p, tell(p, c)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, want := range []string{"host h1: reader of counters: too long", "host h1: reader of counters: killed", ""} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("too long"))
		if strings.HasSuffix(want, "too long") {
			cancel()
			ctx, cancel = context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("too long"))
		}
		got, err := h.Collect(ctx)
		cancel()
		switch {
		case want == "" && err == nil && len(got) > 0:
		case want == "" || err == nil || !strings.HasPrefix(err.Error(), want):
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What a ConnectX port (driver mlx5) says, by the names of the kernel's
// Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst and of
// drivers/infiniband/hw/mlx5/counters.c; figures made up.
func mlx5Reading() reader.Reading {
	const counters = "/sys/class/net/ens1f0/device/infiniband/mlx5_0/ports/1/hw_counters/"
	return reader.Reading{
		NetDev: "Inter-|   Receive                                                |  Transmit\n" +
			" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n" +
			"ens1f0: 5000 50 1 2 0 0 0 0 6000 60 3 4 0 0 0 0\n",
		Devices: map[string]reader.Device{"ens1f0": {Index: 4, Stats: map[string]uint64{
			"tx_packets_phy": 1000, "tx_bytes_phy": 1_024_000, "rx_packets_phy": 2000, "rx_bytes_phy": 2_048_000,
			"rx_discards_phy": 7, "rx_out_of_buffer": 8, "rx_prio3_pause": 9, "tx_prio3_pause_duration": 1500,
			"rx_vport_rdma_unicast_bytes": 77, "outbound_pci_stalled_wr": 25,
		}}},
		Files: map[string]string{
			counters + "np_ecn_marked_roce_packets": "11", counters + "np_cnp_sent": "12", counters + "rp_cnp_handled": "13",
			counters + "out_of_sequence": "14", counters + "lifespan": "10", "/sys/class/net/ens1f0/carrier_changes": "2",
		},
	}
}

func TestHostSamples(t *testing.T) {
	ports := []NICPort{{"ens1f0", "h1->tor1", "tor1->h1"}}
	got, err := hostSamples("h1", ports, mlx5Reading())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []results.Sample{
		// 1000 frames at the port: less their check sequences, and RDMA's included.
		{Metric: "nic_tx_packets", Of: "h1->tor1", Value: 1000, Unit: "1"},
		{Metric: "nic_tx_bytes", Of: "h1->tor1", Value: 1_020_000, Unit: "B"},
		{Metric: "nic_tx_phy_bytes", Of: "h1->tor1", Value: 1_024_000, Unit: "B"},
		{Metric: "nic_rx_bytes", Of: "tor1->h1", Value: 2_040_000, Unit: "B"},
		{Metric: "nic_tx_drops", Of: "h1->tor1", Value: 4, Unit: "1"}, // the kernel's
		{Metric: "nic_rx_discards_phy", Of: "tor1->h1", Value: 7, Unit: "1"},
		{Metric: "nic_rx_out_of_buffer", Of: "tor1->h1", Value: 8, Unit: "1"},
		{Metric: "nic_rx_prio3_pause", Of: "tor1->h1", Value: 9, Unit: "1"},
		{Metric: "nic_tx_prio3_pause_duration", Of: "h1->tor1", Value: 0.0015, Unit: "s"},
		{Metric: "nic_rx_vport_rdma_unicast_bytes", Of: "tor1->h1", Value: 77, Unit: "B"},
		{Metric: "nic_outbound_pci_stalled_wr", Of: "h1->tor1", Value: 0.25, Unit: "1", Gauge: true},
		{Metric: "rdma_np_ecn_marked_roce_packets", Of: "tor1->h1", Value: 11, Unit: "1", Wrap: 1 << 32},
		{Metric: "rdma_np_cnp_sent", Of: "tor1->h1", Value: 12, Unit: "1", Wrap: 1 << 32},
		{Metric: "rdma_rp_cnp_handled", Of: "h1->tor1", Value: 13, Unit: "1", Wrap: 1 << 32},
		{Metric: "nic_carrier_changes", Of: "tor1->h1", Value: 2, Unit: "1"},
		{Metric: "rdma_lifespan", Of: "tor1->h1", Value: 0.01, Unit: "s", Gauge: true},
	} {
		want.Source = "host h1"
		if s := value(t, got, want.Metric, want.Of); s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
	for _, s := range got {
		if strings.HasSuffix(s.Metric, "packets_phy") {
			t.Errorf("%+v: twice", s)
		}
	}

	odd := mlx5Reading()
	odd.Errors = []string{"read /sys/class/net/ens1f0/device/infiniband/mlx5_0/ports/1/hw_counters/x: invalid argument"}
	odd.Files["/sys/class/net/ens1f0/device/infiniband/mlx5_0/ports/1/hw_counters/y"] = "N/A (no PMA)"
	odd.Devices["ens1f0"].Stats["tx_bytes_phy"] = 12
	rest, err := hostSamples("h1", ports, odd)
	if len(rest) != len(got) || err == nil {
		t.Errorf("%d of %d samples: %v", len(rest), len(got), err)
	}
	for _, want := range []string{"host h1: read /sys", "invalid argument", `is "N/A (no PMA)"`, "fewer bytes than"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if v := value(t, rest, "nic_tx_bytes", "h1->tor1"); v.Value != 6000 { // the kernel's, for want of the port's
		t.Errorf("%+v", v)
	}
	gone := mlx5Reading()
	gone.Devices = nil
	if _, err := hostSamples("h1", ports, gone); err == nil || err.Error() != "host h1: no device ens1f0" {
		t.Error(err)
	}
}

// Losses and pauses that hardware counted are said, with the host and the counter.
func TestSigns(t *testing.T) {
	var a Audit
	for i, v := range []uint64{7, 7, 9} {
		r := mlx5Reading()
		r.Devices["ens1f0"].Stats["rx_discards_phy"] = v
		r.Devices["ens1f0"].Stats["tx_prio3_pause_duration"] = 1e6 * v
		got, err := hostSamples("h1", []NICPort{{"ens1f0", "h1->tor1", "tor1->h1"}}, r)
		if err != nil {
			t.Fatal(err)
		}
		for k := range got {
			got[k].T = float64(i)
		}
		a.Check(got)
		all := a.Troubles()
		if v == 7 {
			if len(all) != 0 {
				t.Errorf("%+v", all)
			}
			continue
		}
		want := []results.Trouble{
			{Where: "host h1", What: "frames were lost in its network card: nic_rx_discards_phy of tor1->h1 by 2", Value: 2},
			{Where: "host h1", What: "the flow of frames was paused: nic_tx_prio3_pause_duration of h1->tor1 by 2 s", Value: 2},
		}
		if len(all) != 2 || all[0] != want[0] || all[1] != want[1] {
			t.Errorf("%+v", all)
		}
	}
}

// Whatever a host answers, what comes of it names the host, is finite, and is of the
// ports that were asked for.
func FuzzHostSamples(f *testing.F) {
	f.Add("ens1f0: 5000 50 1 2 0 0 0 0 6000 60 3 4 0 0 0 0\n", "rx_bytes_phy", uint64(12), "np_cnp_sent", "13")
	f.Add("ens1f0: 5000", "tx_prio3_pause_duration", uint64(1<<63), "lifespan", "-1")
	f.Fuzz(func(t *testing.T, netDev, stat string, v uint64, file, text string) {
		r := reader.Reading{NetDev: netDev, Devices: map[string]reader.Device{"ens1f0": {Index: 1, Stats: map[string]uint64{stat: v}}},
			Files: map[string]string{"/sys/class/net/ens1f0/" + file: text}}
		got, err := hostSamples("h1", []NICPort{{"ens1f0", "out", "in"}}, r)
		for _, s := range got {
			if s.Source != "host h1" || s.Of != "out" && s.Of != "in" || s.Value < 0 || s.Value-s.Value != 0 || s.Metric == "" {
				t.Errorf("%+v", s)
			}
		}
		if err != nil && !strings.Contains(err.Error(), "host h1") {
			t.Error(err)
		}
	})
}

// The same counters as BenchmarkRead's, by a reader that stays; the connection is not in it.
func BenchmarkReader(b *testing.B) {
	h, err := NewHost("h1", []NICPort{{"lo", "out", "in"}}, func(ctx context.Context, c reader.Config) (Process, error) {
		p, _ := startReader(ctx, c)
		return p, tell(p, c)
	})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	for b.Loop() {
		if _, err := h.Collect(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// TestManyStatistics: what a host counts beyond any driver is left out, and said.
func TestManyStatistics(t *testing.T) {
	r := mlx5Reading()
	for i := range 300_000 {
		r.Devices["ens1f0"].Stats[fmt.Sprint("a", i)] = 1
	}
	got, err := hostSamples("h1", []NICPort{{"ens1f0", "h1->tor1", "tor1->h1"}}, r)
	if err == nil || !strings.Contains(err.Error(), "statistics, more than any driver has") || len(got) > mostStats+100 {
		t.Errorf("%d samples, %v", len(got), err)
	}
	if _, _, err := parseGPU("h1", "65535, 1", gpuFields[:1]); err == nil || !strings.Contains(err.Error(), "256 at most") {
		t.Errorf("%v", err)
	}
}

// tell gives a reader that was started what to read.
func tell(p io.Writer, c reader.Config) error { return json.NewEncoder(p).Encode(c) }
