package collectors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/ssh"
)

// GPU reads a host's NVIDIA GPUs with nvidia-smi, whose query output is stable in
// practice though NVIDIA does not promise it. All values are gauges, of "h1/gpu0":
// gpu_utilization and gpu_memory_utilization (share of the time in which a kernel ran,
// or memory was accessed), gpu_memory_used, gpu_power, gpu_temperature, gpu_sm_clock.
type GPU struct{ Client *ssh.Client }

// gpuFields are what is asked for after the index: nvidia-smi's name, ours, the unit
// that it may write, and how it becomes a base unit.
var gpuFields = []struct {
	query, metric string
	written       string
	unit          string
	factor        float64
}{
	{"utilization.gpu", "gpu_utilization", "%", "1", 0.01},
	{"utilization.memory", "gpu_memory_utilization", "%", "1", 0.01},
	{"memory.used", "gpu_memory_used", "MiB", "B", 1 << 20},
	{"power.draw", "gpu_power", "W", "W", 1},
	{"temperature.gpu", "gpu_temperature", "C", "degC", 1},
	{"clocks.sm", "gpu_sm_clock", "MHz", "Hz", 1e6},
}

// gpuArgv is the query.
func gpuArgv() []string {
	query := "index"
	for _, f := range gpuFields {
		query += "," + f.query
	}
	return []string{"nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader,nounits"}
}

// Name implements Collector.
func (g *GPU) Name() string { return "gpu " + g.Client.String() }

// Collect implements Collector. A host without nvidia-smi, or without a GPU that it
// knows, is ErrNoData.
func (g *GPU) Collect(ctx context.Context) ([]results.Sample, error) {
	out, err := g.Client.Run(ctx, gpuArgv(), nil)
	if out.Exit == 127 || bytes.Contains(out.Stdout, []byte("No devices were found")) {
		return nil, fmt.Errorf("host %s: no GPU: %w", g.Client, ErrNoData)
	}
	if err != nil {
		return nil, err
	}
	return parseGPU(g.Client.String(), string(out.Stdout))
}

// parseGPU reads the rows of the query. Values that a GPU does not have, which
// nvidia-smi writes as N/A or in brackets, give no sample; a row that makes no sense is
// an error and costs only itself.
func parseGPU(host, text string) ([]results.Sample, error) {
	var out []results.Sample
	var errs []error
	for row := range strings.Lines(text) {
		if strings.TrimSpace(row) == "" {
			continue
		}
		cells := strings.Split(row, ",")
		if len(cells) != 1+len(gpuFields) {
			errs = append(errs, fmt.Errorf("host %s: nvidia-smi: %d columns instead of %d in %.80q", host, len(cells), 1+len(gpuFields), row))
			continue
		}
		index, err := strconv.ParseUint(strings.TrimSpace(cells[0]), 10, 16)
		if err != nil {
			errs = append(errs, fmt.Errorf("host %s: nvidia-smi: index of GPU: %w", host, err))
			continue
		}
		for i, f := range gpuFields {
			cell := strings.TrimSpace(cells[1+i])
			if strings.HasPrefix(cell, "[") || cell == "N/A" || cell == "" {
				continue
			}
			v, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(cell, f.written)), 64)
			if err != nil || v < 0 && f.metric != "gpu_temperature" || v-v != 0 {
				errs = append(errs, fmt.Errorf("host %s: nvidia-smi: %s of GPU %d is %.80q", host, f.query, index, cell))
				continue
			}
			out = append(out, results.Sample{
				Source: "host " + host, Metric: f.metric, Of: fmt.Sprintf("%s/gpu%d", host, index),
				Value: v * f.factor, Unit: f.unit, Gauge: true,
			})
		}
	}
	if len(out) == 0 && len(errs) == 0 {
		return nil, fmt.Errorf("host %s: no GPU: %w", host, ErrNoData)
	}
	return out, errors.Join(errs...)
}
