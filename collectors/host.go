package collectors

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/inabench/inabench/collectors/reader"
	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/results"
)

// ReaderVerb is the hidden verb of this program that runs package reader on a host.
const ReaderVerb = "counters"

// Process is a reader on a host: what it is asked and answers, and its end.
type Process interface {
	io.Writer              // its stdin
	io.Reader              // its stdout
	Done() <-chan struct{} // closed when it has ended
	Close() error          // makes sure that it has
}

// Host reads all counters of a host's network devices, through one process that stays
// there: a line to ask, a line for an answer. It is for hosts whose drivers and RDMA
// devices count more than the kernel sees; NIC does without a process.
//
// nic_tx_packets, nic_tx_bytes and so on are as those of NIC. Where the driver counts at
// the physical port (mlx5's *_phy) they are taken from there, so that RDMA, raw queue
// pairs and DPDK are in them; bytes are then less the four of the FCS of each frame,
// which these count and NIC, switches and Linux do not. nic_tx_phy_bytes is what the
// driver says.
//
// Losses and pauses that a driver counts keep its names, nic_rx_discards_phy of the link in,
// nic_tx_prio3_pause of the link out; microseconds become seconds. RoCE's counters of
// congestion and loss, from hw_counters, are rdma_np_cnp_sent and so on: np_ (notification
// point) about the link in, rp_ (reaction point) about the link out. nic_index tells which
// device it is that counts (UnitID).
type Host struct {
	host  string
	ports []NICPort
	start func(ctx context.Context, c reader.Config) (Process, error)

	mu      sync.Mutex
	process Process
	answers *bufio.Scanner
	ending  sync.WaitGroup // readers that are no longer asked
}

// NewHost returns a collector over devices of a host. start starts a reader there. The
// collector has to be closed.
func NewHost(host string, ports []NICPort, start func(ctx context.Context, c reader.Config) (Process, error)) (*Host, error) {
	for _, p := range ports {
		if !validDevice(p.Device) {
			return nil, blame.Host(host, fmt.Errorf("%q is not the name of a device", p.Device))
		}
	}
	return &Host{host: host, ports: ports, start: start}, nil
}

// What is read of a mlx5 driver's hundreds of statistics, and those of others that use the
// same names (kernel Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst).
var (
	phyStats  = []string{"tx_packets_phy", "tx_bytes_phy", "rx_packets_phy", "rx_bytes_phy"}
	lossStats = []string{
		"rx_discards_phy", "tx_discards_phy", "rx_out_of_buffer", "rx_crc_errors_phy", "rx_symbol_err_phy",
		"rx_prio[0-7]_buf_discard", "rx_prio[0-7]_cong_discard", "rx_prio[0-7]_discards",
	}
	pauseStats = []string{
		"[rt]x_pause_ctrl_phy", "[rt]x_global_pause", "[rt]x_global_pause_duration",
		"[rt]x_prio[0-7]_pause", "[rt]x_prio[0-7]_pause_duration", "tx_pause_storm_*_events",
	}
	otherStats = []string{"rx_prio[0-7]_marked", "[rt]x_vport_rdma_unicast_bytes", "outbound_pci_stalled_wr"}
)

// rdmaCounters is where the RDMA device of a network device counts.
func rdmaCounters(device string) string {
	return "/sys/class/net/" + device + "/device/infiniband/*/ports/*/hw_counters/*"
}

func sysfsPath(device, file string) string { return "/sys/class/net/" + device + "/" + file }

func (h *Host) config() reader.Config {
	c := reader.Config{Stats: slices.Concat(phyStats, lossStats, pauseStats, otherStats)}
	for _, p := range h.ports {
		c.Devices = append(c.Devices, p.Device)
		c.Files = append(c.Files, rdmaCounters(p.Device), sysfsPath(p.Device, "carrier_changes"))
	}
	return c
}

// Name implements Collector.
func (h *Host) Name() string { return "counters " + h.host }

// Close ends the reader on the host.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.ending.Wait()
	if h.process == nil {
		return nil
	}
	err := h.process.Close()
	h.process = nil
	return err
}

// Collect implements Collector.
func (h *Host) Collect(ctx context.Context) ([]results.Sample, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask(ctx)
	if err != nil {
		return nil, err
	}
	return hostSamples(h.host, h.ports, r)
}

// ask gets one reading, from a reader that is started if there is none.
func (h *Host) ask(ctx context.Context) (r reader.Reading, err error) {
	if h.process == nil {
		if h.process, err = h.start(ctx, h.config()); err != nil {
			h.process = nil
			return r, blame.Host(h.host, fmt.Errorf("start a reader of counters: %w", err))
		}
		h.answers = bufio.NewScanner(h.process)
		h.answers.Buffer(nil, 4<<20)
	}
	p, answers := h.process, h.answers
	type answer struct {
		line []byte
		err  error
	}
	got := make(chan answer, 1)
	h.ending.Go(func() { // with the answer, or with the process
		if _, err := io.WriteString(p, "\n"); err != nil {
			got <- answer{err: err}
			return
		}
		if !answers.Scan() {
			got <- answer{err: cmp.Or(answers.Err(), io.ErrUnexpectedEOF)}
			return
		}
		got <- answer{line: answers.Bytes()}
	})
	select {
	case a := <-got:
		if err = a.err; err == nil {
			err = json.Unmarshal(a.line, &r)
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		// What it might still say would be taken for the answer to a later question.
		h.ending.Go(func() { _ = p.Close() })
		h.process = nil
		return r, blame.Host(h.host, fmt.Errorf("reader of counters: %w", err))
	}
	return r, nil
}

// hostSamples are a reading's samples. What it says that makes no sense is an error and
// costs only itself.
func hostSamples(host string, ports []NICPort, r reader.Reading) ([]results.Sample, error) {
	var errs []error
	for _, e := range r.Errors {
		errs = append(errs, blame.Host(host, errors.New(e)))
	}
	devices, err := ParseNetDev(r.NetDev)
	if err != nil {
		errs = append(errs, blame.Host(host, err))
	}
	var out []results.Sample
	for _, p := range ports {
		add := func(of, metric, unit string, v uint64) {
			out = append(out, results.Sample{Source: "host " + host, Metric: metric, Of: of, Unit: unit, Value: float64(v)})
		}
		d, ok := r.Devices[p.Device]
		n, known := devices[p.Device]
		if !ok || !known {
			if ok || len(r.Errors) == 0 {
				errs = append(errs, blame.Host(host, fmt.Errorf("no device %s", p.Device)))
			}
			continue
		}
		for _, of := range []string{p.Out, p.In} {
			out = append(out, results.Sample{Source: "host " + host, Metric: "nic_index", Of: of, Unit: UnitID, Gauge: true, Value: float64(d.Index)})
		}
		if err := n.fromPhy(p, d.Stats, add); err != nil {
			errs = append(errs, blame.Host(host, fmt.Errorf("device %s: %w", p.Device, err)))
		}
		n.each(p, add)
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(d.Stats)), func(name string) bool { return slices.Contains(phyStats, name) })
		if n := len(names); n > mostStats {
			errs = append(errs, blame.Host(host, fmt.Errorf("device %s: %d statistics, more than any driver has", p.Device, n)))
			names = names[:mostStats]
		}
		for _, name := range names {
			out = append(out, driverSample(host, p, name, d.Stats[name]))
		}
	}
	for file, text := range r.Files {
		s, err := fileSample(host, ports, file, text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b results.Sample) int { return strings.Compare(a.Metric, b.Metric) })
	return out, errors.Join(errs...)
}

// mostStats is how many statistics of a device are kept, of those that were asked for by patterns.
const mostStats = 1000

// fcs is the size of a frame's check sequence, bytes.
const fcs = 4

// fromPhy puts what the physical port counted in place of what the kernel saw, where the
// driver says all of it.
func (d *NetDev) fromPhy(p NICPort, stats map[string]uint64, add func(of, metric, unit string, v uint64)) error {
	var v [4]uint64
	for i, name := range phyStats {
		var ok bool
		if v[i], ok = stats[name]; !ok {
			return nil
		}
	}
	add(p.Out, "nic_tx_phy_bytes", "B", v[1])
	add(p.In, "nic_rx_phy_bytes", "B", v[3])
	if v[1] < fcs*v[0] || v[3] < fcs*v[2] {
		return fmt.Errorf("fewer bytes than frames have check sequences: %d and %d sent, %d and %d received", v[1], v[0], v[3], v[2])
	}
	d.Tx.Packets, d.Tx.Bytes = v[0], v[1]-fcs*v[0]
	d.Rx.Packets, d.Rx.Bytes = v[2], v[3]-fcs*v[2]
	return nil
}

// driverSample is one of a driver's statistics.
func driverSample(host string, p NICPort, name string, v uint64) results.Sample {
	s := results.Sample{Source: "host " + host, Metric: "nic_" + name, Of: p.In, Unit: "1", Value: float64(v)}
	if strings.HasPrefix(name, "tx_") || strings.HasPrefix(name, "outbound_") {
		s.Of = p.Out
	}
	switch {
	case name == "outbound_pci_stalled_wr":
		s.Gauge = true // per cent of the last second
		s.Value /= 100
	case strings.HasSuffix(name, "_duration"):
		s.Unit = "s"
		s.Value /= 1e6
	case strings.HasSuffix(name, "_bytes"):
		s.Unit = "B"
	}
	return s
}

// fileSample is one file of sysfs: one of hw_counters, many of which have 32 bits in the
// device, or of the network device itself.
func fileSample(host string, ports []NICPort, file, text string) (results.Sample, error) {
	name := path.Base(file)
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return results.Sample{}, blame.Host(host, fmt.Errorf("%s is %.80q", file, text))
	}
	for _, p := range ports {
		if !strings.HasPrefix(file, "/sys/class/net/"+p.Device+"/") {
			continue
		}
		s := results.Sample{Source: "host " + host, Metric: "rdma_" + name, Of: p.In, Unit: "1", Value: float64(v), Wrap: 1 << 32}
		if !strings.Contains(file, "/hw_counters/") {
			s.Metric, s.Wrap = "nic_"+name, 0
			return s, nil
		}
		if strings.HasPrefix(name, "rp_") || strings.HasPrefix(name, "req_") {
			s.Of = p.Out
		}
		if name == "lifespan" { // ms for which readings of the others are the same
			s.Value, s.Unit, s.Gauge, s.Wrap = float64(v)/1000, "s", true, 0
		}
		return s, nil
	}
	return results.Sample{}, blame.Host(host, fmt.Errorf("%s is of no device that was asked for", file))
}
