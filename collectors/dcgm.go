package collectors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
)

// DCGM reads what crosses the PCIe and NVLink of a host's GPUs, with `dcgmi dmon`, of
// "h1/gpu0": gpu_pcie_tx, gpu_pcie_rx, gpu_nvlink_tx and gpu_nvlink_rx, in and out as the
// GPU sees it, with headers; and the gauges gpu_sm_active and gpu_dram_active, shares of
// the time.
//
// Documents and programs disagree whether the bytes are per second or a running total. So
// it is found out on each host: a figure that grows ten times and never falls is a total,
// and given as the counter gpu_pcie_tx_bytes; one that falls is a rate, and given as the
// gauge gpu_pcie_tx_rate. Until it is known there is no sample of it. dcgm_totals of the
// host says 1 or 0, once it is.
//
// A host without dcgmi is ErrNoData. It has to be closed.
type DCGM struct {
	s    *stream
	seen map[string]*dcgmValue // by GPU and field
	why  error                 // of the last line that made no sense
}

// dcgmValue is the history of one value.
type dcgmValue struct {
	of    string
	field int
	last  float64
	at    time.Time // when last was said
	known bool      // last is there
	grew  int       // times, without a fall
	kind  dcgmKind
}

type dcgmKind int

const (
	undecided dcgmKind = iota
	total
	rate
)

// dcgmFields are what is asked for, by DCGM's numbers (dcgm_fields.h). Columns come in
// this order; their headings differ between versions.
var dcgmFields = []struct {
	id     int
	metric string
	bytes  bool
}{
	{1009, "gpu_pcie_tx", true}, {1010, "gpu_pcie_rx", true},
	{1011, "gpu_nvlink_tx", true}, {1012, "gpu_nvlink_rx", true},
	{1002, "gpu_sm_active", false}, {1005, "gpu_dram_active", false},
}

// totalAfter is how often a value must have grown before it is taken for a total: a rate
// that wanders does so once in 11! (40 million) times.
const totalAfter = 10

// NewDCGM returns a collector over the GPUs of a host. Nothing runs there before the first
// reading.
func NewDCGM(c hosts.Host) *DCGM {
	d := &DCGM{seen: map[string]*dcgmValue{}}
	d.s = &stream{client: c, argv: dcgmArgv, take: d.take}
	return d
}

func dcgmArgv() []string {
	var ids []string
	for _, f := range dcgmFields {
		ids = append(ids, strconv.Itoa(f.id))
	}
	return []string{"dcgmi", "dmon", "-e", strings.Join(ids, ","), "-d", "500"}
}

// Name implements Collector.
func (d *DCGM) Name() string { return "dcgm " + d.s.client.String() }

// Close ends dcgmi on the host.
func (d *DCGM) Close() error { return d.s.Close() }

// Collect implements Collector: what dcgmi said last.
func (d *DCGM) Collect(ctx context.Context) ([]results.Sample, error) {
	defer d.s.mu.Unlock()
	if err := d.s.live(ctx); err != nil {
		return nil, err
	}
	err := d.why
	d.why = nil
	return d.samples(), err
}

func (d *DCGM) samples() []results.Sample {
	host := d.s.client.String()
	var out []results.Sample
	totals, known := 0.0, false
	keys := slices.Sorted(maps.Keys(d.seen))
	for _, f := range dcgmFields { // in order of fields, then of GPUs' names
		for _, key := range keys {
			v := d.seen[key]
			if dcgmFields[v.field] != f || !v.known || time.Since(v.at) > stale {
				continue
			}
			s := results.Sample{Source: "host " + host, Metric: f.metric, Of: v.of, Value: v.last, Unit: "1", Gauge: true}
			if f.bytes {
				switch v.kind {
				case undecided:
					continue
				case total:
					s.Metric, s.Unit, s.Gauge = f.metric+"_bytes", "B", false
					totals, known = 1, true
				case rate:
					s.Metric, s.Unit, s.Value = f.metric+"_rate", "bit/s", 8*v.last
					known = true
				}
			}
			out = append(out, s)
		}
	}
	if known {
		out = append(out, results.Sample{Source: "host " + host, Metric: "dcgm_totals", Of: host, Value: totals, Unit: "1", Gauge: true})
	}
	return out
}

func (d *DCGM) take(line string) error {
	host := d.s.client.String()
	gpu, values, err := parseDCGM(line)
	if err != nil {
		d.why = blame.Host(host, fmt.Errorf("dcgmi dmon: %w", err))
		return d.why
	}
	for i, v := range values {
		if v == nil {
			continue
		}
		of := fmt.Sprintf("%s/gpu%d", host, gpu)
		key := of + " " + dcgmFields[i].metric
		h := d.seen[key]
		if h == nil {
			h = &dcgmValue{of: of, field: i}
			d.seen[key] = h
		}
		h.read(*v)
	}
	return nil
}

func (h *dcgmValue) read(v float64) {
	if h.known {
		switch {
		case v > h.last:
			h.grew++
		case v < h.last && h.kind == total:
			// One fall is a restart, which the audit sees; a second soon after shows that
			// it was no total.
			if h.grew < totalAfter {
				h.kind = rate
			}
			h.grew = 0
		case v < h.last:
			h.kind = rate
		}
		if h.kind == undecided && h.grew >= totalAfter {
			h.kind, h.grew = total, totalAfter
		}
	}
	h.last, h.at, h.known = v, time.Now(), true
}

// parseDCGM reads a line of `dcgmi dmon`: an entity, "GPU 0", and a value for each field
// that was asked for, nil where there is none. Headings, which come again and again, and
// empty lines have neither values nor an error. (Format: hardware notes after
// docs.nvidia.com/datacenter/dcgm, user guide, "Profiling metrics".)
func parseDCGM(line string) (gpu uint64, values []*float64, err error) {
	f := strings.Fields(line)
	if len(f) == 0 || strings.HasPrefix(f[0], "#") || f[0] == "Id" || f[0] == "ID" {
		return 0, nil, nil
	}
	if strings.HasPrefix(line, "Error") {
		return 0, nil, errors.New(strings.TrimSpace(line))
	}
	if len(f) != 2+len(dcgmFields) || f[0] != "GPU" {
		return 0, nil, fmt.Errorf("%.80q is not a GPU with %d values", line, len(dcgmFields))
	}
	if gpu, err = gpuIndex(f[1]); err != nil {
		return 0, nil, fmt.Errorf("number of GPU in %.80q: %w", line, err)
	}
	values = make([]*float64, len(dcgmFields))
	for i, cell := range f[2:] {
		if !holds(cell) {
			continue
		}
		v, err := gpuValue(cell)
		if err != nil || v < 0 {
			return 0, nil, fmt.Errorf("field %d of GPU %d is %.80q", dcgmFields[i].id, gpu, cell)
		}
		values[i] = &v
	}
	return gpu, values, nil
}
