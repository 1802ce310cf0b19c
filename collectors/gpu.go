package collectors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
)

// GPU reads a host's NVIDIA GPUs with nvidia-smi, whose query output is stable in
// practice though NVIDIA does not promise it. It goes on running and prints all GPUs every
// 100 ms. All values are gauges, of "h1/gpu0": gpu_utilization and gpu_memory_utilization
// (share of the time in which a kernel ran, or memory was accessed), gpu_memory_used,
// gpu_power, gpu_temperature, gpu_sm_clock, gpu_pcie_generation, and
// gpu_clock_reasons, the bits of why clocks are not higher (nvmlClocksEventReason*). It has
// to be closed.
type GPU struct {
	s     *stream
	query []gpuField
	lacks string            // a field of the query that this nvidia-smi says that it does not know
	rows  map[uint64]gpuRow // the latest, by GPU
}

type gpuRow struct {
	at      time.Time
	samples []results.Sample
	err     error
}

// gpuField is what is asked for: nvidia-smi's names for it, the current one first, ours,
// the unit that it may write, and how it becomes a base unit.
type gpuField struct {
	names  []string
	metric string
	writes string
	unit   string
	factor float64
}

// gpuFields are what is asked for after the index. Rely on no heading: its units and its
// names have changed, the order that was asked for has not.
var gpuFields = []gpuField{
	{[]string{"utilization.gpu"}, "gpu_utilization", "%", "1", 0.01},
	{[]string{"utilization.memory"}, "gpu_memory_utilization", "%", "1", 0.01},
	{[]string{"memory.used"}, "gpu_memory_used", "MiB", "B", 1 << 20},
	{[]string{"power.draw"}, "gpu_power", "W", "W", 1},
	{[]string{"temperature.gpu"}, "gpu_temperature", "C", "degC", 1},
	{[]string{"clocks.sm"}, "gpu_sm_clock", "MHz", "Hz", 1e6},
	{[]string{"pcie.link.gen.gpucurrent", "pcie.link.gen.current"}, "gpu_pcie_generation", "", "1", 1},
	{[]string{"clocks_event_reasons.active", "clocks_throttle_reasons.active"}, "gpu_clock_reasons", "", "1", 1},
}

// NewGPU returns a collector over the GPUs of a host. Nothing runs there before the first
// reading, which has no samples yet.
func NewGPU(c hosts.Host) *GPU {
	g := &GPU{query: slices.Clone(gpuFields), rows: map[uint64]gpuRow{}}
	g.s = &stream{client: c, argv: g.argv, take: g.take, fix: g.fix}
	return g
}

// argv is the query.
func (g *GPU) argv() []string {
	query := "index"
	for _, f := range g.query {
		query += "," + f.names[0]
	}
	return []string{"nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader,nounits", "--loop-ms=100"}
}

var notAField = regexp.MustCompile(`Field "([^"]*)" is not a valid field`)

// fix gives a field that this nvidia-smi does not know its other name, or does without it.
func (g *GPU) fix(err error) bool {
	name := g.lacks
	g.lacks = ""
	if m := notAField.FindStringSubmatch(err.Error()); name == "" && m != nil { // on stderr
		name = m[1]
	}
	i := slices.IndexFunc(g.query, func(f gpuField) bool { return f.names[0] == name })
	if i < 0 {
		return false
	}
	if rest := g.query[i].names[1:]; len(rest) > 0 {
		g.query[i].names = rest
	} else {
		g.query = slices.Delete(g.query, i, i+1)
	}
	return true
}

// Name implements Collector.
func (g *GPU) Name() string { return "gpu " + g.s.client.String() }

// Close ends nvidia-smi on the host.
func (g *GPU) Close() error { return g.s.Close() }

// Collect implements Collector: what nvidia-smi said last. A host without it, or without
// a GPU that it knows, is ErrNoData.
func (g *GPU) Collect(ctx context.Context) ([]results.Sample, error) {
	defer g.s.mu.Unlock()
	if err := g.s.live(ctx); err != nil {
		return nil, err
	}
	var out []results.Sample
	var errs []error
	for _, i := range slices.Sorted(maps.Keys(g.rows)) {
		row := g.rows[i]
		if silent := time.Since(row.at); silent > stale {
			errs = append(errs, blame.Host(g.s.client.String(), fmt.Errorf("nvidia-smi has said nothing of GPU %d for %v", i, silent.Round(time.Second))))
			continue
		}
		out = append(out, row.samples...)
		errs = append(errs, row.err)
	}
	return out, errors.Join(errs...)
}

func (g *GPU) take(line string) error {
	if m := notAField.FindStringSubmatch(line); m != nil {
		g.lacks = m[1]
		return blame.Host(g.s.client.String(), fmt.Errorf("nvidia-smi knows no field %.40q", m[1]))
	}
	i, samples, err := parseGPU(g.s.client.String(), line, g.query)
	if err != nil && len(samples) == 0 {
		return err
	}
	g.rows[i] = gpuRow{time.Now(), samples, err}
	return nil
}

// mostGPUs is how many GPUs a host has, at most, parts of MIG left out.
const mostGPUs = 256

// gpuIndex reads the number of a GPU in its host.
func gpuIndex(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err == nil && n >= mostGPUs {
		err = fmt.Errorf("%d, and a host has %d at most", n, mostGPUs)
	}
	return n, err
}

// parseGPU reads a row of the query. Values that a GPU does not have give no sample; those
// that make no sense are an error and cost only themselves.
func parseGPU(host, row string, fields []gpuField) (index uint64, out []results.Sample, err error) {
	if strings.Contains(row, "No devices were found") {
		return 0, nil, blame.Host(host, fmt.Errorf("no GPU: %w", ErrNoData))
	}
	cells := strings.Split(row, ",")
	if len(cells) != 1+len(fields) {
		return 0, nil, blame.Host(host, fmt.Errorf("nvidia-smi: %d columns instead of %d in %.80q", len(cells), 1+len(fields), row))
	}
	if index, err = gpuIndex(strings.TrimSpace(cells[0])); err != nil {
		return 0, nil, blame.Host(host, fmt.Errorf("nvidia-smi: index of GPU: %w", err))
	}
	var errs []error
	for i, f := range fields {
		cell := strings.TrimSpace(cells[1+i])
		if !holds(cell) {
			continue
		}
		v, err := gpuValue(strings.TrimSpace(strings.TrimSuffix(cell, f.writes)))
		if err != nil || v < 0 && f.metric != "gpu_temperature" {
			errs = append(errs, blame.Host(host, fmt.Errorf("nvidia-smi: %s of GPU %d is %.80q", f.names[0], index, cell)))
			continue
		}
		out = append(out, results.Sample{
			Source: "host " + host, Metric: f.metric, Of: fmt.Sprintf("%s/gpu%d", host, index),
			Value: v * f.factor, Unit: f.unit, Gauge: true,
		})
	}
	return index, out, errors.Join(errs...)
}

// gpuValue is a number, or bits as 0x0000000000000004.
func gpuValue(s string) (float64, error) {
	if hex, ok := strings.CutPrefix(s, "0x"); ok {
		v, err := strconv.ParseUint(hex, 16, 64)
		return float64(v), err
	}
	v, err := strconv.ParseFloat(s, 64)
	if err == nil && (v-v != 0 || v > 1e300) {
		err = strconv.ErrRange
	}
	return v, err
}
