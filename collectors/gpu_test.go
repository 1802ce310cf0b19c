package collectors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// gpuText is made up after the documented format of nvidia-smi's query; it was not
// taken from a machine.
const gpuText = `0, 87, 41, 61234, 412.55, 63, 1980, 5, 0x0000000000000004
1, 0, 0, 0, 71.02, 31, 345, 1, 0x0000000000000001
2, [N/A], [N/A], 4, [Not Supported], 30, [Unknown Error], N/A, Not Active
3, 100 %, 26 %, 1024 MiB, 300.10 W, N/A, 1755 MHz, [GPU requires reset], 0x0
`

func TestParseGPU(t *testing.T) {
	var samples []results.Sample
	for row := range strings.Lines(gpuText) {
		i, some, err := parseGPU("h1", row, gpuFields)
		if want := i == 2; (err != nil) != want {
			t.Errorf("GPU %d: %v", i, err)
		}
		samples = append(samples, some...)
	}
	if len(samples) != 8+8+2+6 {
		t.Errorf("%d samples", len(samples))
	}
	for _, want := range []results.Sample{
		{Metric: "gpu_utilization", Of: "h1/gpu0", Value: 0.87, Unit: "1"},
		{Metric: "gpu_memory_used", Of: "h1/gpu0", Value: 61234 << 20, Unit: "B"},
		{Metric: "gpu_clock_reasons", Of: "h1/gpu0", Value: 4, Unit: "1"},
		{Metric: "gpu_pcie_generation", Of: "h1/gpu0", Value: 5, Unit: "1"},
		{Metric: "gpu_power", Of: "h1/gpu1", Value: 71.02, Unit: "W"},
		{Metric: "gpu_temperature", Of: "h1/gpu2", Value: 30, Unit: "degC"},
		{Metric: "gpu_utilization", Of: "h1/gpu3", Value: 1, Unit: "1"},
		{Metric: "gpu_sm_clock", Of: "h1/gpu3", Value: 1755e6, Unit: "Hz"},
	} {
		want.Source, want.Gauge = "host h1", true
		if got := value(t, samples, want.Metric, want.Of); got != want {
			t.Errorf("%+v\ninstead of %+v", got, want)
		}
	}
	for row, n := range map[string]int{"0, 1, 2": 0, "1, many, 0, 0, 71.02, 31, 345, 5, 0x1": 7, "x, 0, 0, 0, 0, 0, 0, 0, 0": 0} {
		if _, some, err := parseGPU("h1", row, gpuFields); err == nil || len(some) != n {
			t.Errorf("%s: %d samples, %v", row, len(some), err)
		}
	}
	if _, _, err := parseGPU("h1", "No devices were found", gpuFields); !errors.Is(err, ErrNoData) {
		t.Errorf("error %v", err)
	}
}

func FuzzParseGPU(f *testing.F) {
	for row := range strings.Lines(gpuText) {
		f.Add(row)
	}
	f.Fuzz(func(t *testing.T, row string) {
		_, samples, err := parseGPU("h1", row, gpuFields)
		if len(samples) > len(gpuFields) || err != nil && !strings.Contains(err.Error(), "h1") {
			t.Errorf("%d samples, %v", len(samples), err)
		}
		for _, s := range samples {
			if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
				t.Errorf("%+v", s)
			}
		}
	})
}

// until collects until there is something, an error included.
func until(t *testing.T, c Collector, enough func([]results.Sample, error) bool) ([]results.Sample, error) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		samples, err := c.Collect(t.Context())
		if enough(samples, err) {
			return samples, err
		}
		if time.Now().After(end) {
			t.Fatalf("nothing in time; last %v, %v", samples, err)
		}
	}
}

func anything(s []results.Sample, err error) bool { return len(s) > 0 || err != nil }

// The GPUs of this machine, where it has some.
func TestGPUHere(t *testing.T) {
	_, err := exec.LookPath("nvidia-smi")
	testbedtest.Require(t, "gpu", err)
	g := NewGPU(connect(t, nil))
	defer g.Close()
	samples, err := until(t, g, anything)
	if err != nil {
		t.Errorf("some figures cannot be read: %v", err)
	}
	t.Log(samples)
	for _, f := range gpuFields {
		i := slices.IndexFunc(samples, func(s results.Sample) bool { return s.Metric == f.metric && strings.HasSuffix(s.Of, "/gpu0") })
		if i < 0 {
			t.Errorf("no %s", f.metric)
			continue
		}
		s := samples[i]
		low, most := 0.0, map[string]float64{"1": 1, "B": 1 << 40, "W": 2000, "degC": 120, "Hz": 5e9}[s.Unit]
		switch f.metric {
		case "gpu_pcie_generation":
			low, most = 1, 8
		case "gpu_clock_reasons":
			most = 1 << 16
		case "gpu_temperature", "gpu_power", "gpu_sm_clock":
			low = 1
		}
		if s.Value < low || s.Value > most {
			t.Errorf("%+v", s)
		}
	}
}

// The query as a host runs it; nvidia-smi here is a script, and an older one at first.
func TestGPU(t *testing.T) {
	const smi = `
case "$1" in
*pcie.link.gen.gpucurrent*) echo 'Field "pcie.link.gen.gpucurrent" is not a valid field to query.'; exit 2;;
*clocks_event*) echo "Field \"${1##*,}\" is not a valid field to query."; exit 2;;
*clocks_*) echo "Field \"${1##*,}\" is not a valid field to query." >&2; exit 2;;
--query-gpu=index,utilization.gpu,utilization.memory,memory.used,power.draw,temperature.gpu,clocks.sm,pcie.link.gen.current) ;;
*) exit 3;;
esac
[ "$2 $3" = "--format=csv,noheader,nounits --loop-ms=100" ] || exit 4
while echo "0, 50, 1, 2, 3, 4, 5, 4"; do sleep 0.05; done`
	c := connect(t, map[string]string{"nvidia-smi": smi})
	g := NewGPU(c)
	defer g.Close()
	samples, err := until(t, g, anything)
	if err != nil {
		t.Fatal(err)
	}
	for metric, want := range map[string]float64{"gpu_utilization": 0.5, "gpu_pcie_generation": 4} {
		if v := value(t, samples, metric, "h1/gpu0").Value; v != want {
			t.Errorf("%s %v, want %v", metric, v, want)
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}

	for script, says := range map[string]string{
		"exit 127":                                  "no nvidia-smi",
		"echo No devices were found":                "no GPU",
		"echo driver mismatch >&2; exit 9":          "driver mismatch",
		"echo 0, 1; exit 1":                         "2 columns instead of 9",
		"echo Field \\\"x\\\" is not a valid field": `knows no field "x"`,
	} {
		c := connect(t, map[string]string{"nvidia-smi": script})
		g := NewGPU(c)
		_, err := until(t, g, anything)
		if want := strings.HasPrefix(says, "no "); err == nil || errors.Is(err, ErrNoData) != want || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", script, err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What was said of a GPU counts for a while: of one that is gone nothing is said any more.
func TestGPUGone(t *testing.T) {
	c := connect(t, map[string]string{"nvidia-smi": `echo "1, 50, 1, 2, 3, 4, 5, 4, 0"
while echo "0, 50, 1, 2, 3, 4, 5, 4, 0"; do sleep 0.05; done`})
	g := NewGPU(c)
	defer g.Close()
	if samples, err := until(t, g, anything); err != nil || len(samples) < len(gpuFields) {
		t.Fatalf("%d samples, %v", len(samples), err)
	}
	samples, err := until(t, g, func(_ []results.Sample, err error) bool { return err != nil })
	if !strings.Contains(err.Error(), "nothing of GPU 1 for") || len(samples) != len(gpuFields) || samples[0].Of != "h1/gpu0" {
		t.Errorf("%v, %v", samples, err)
	}
}

// A program that never says anything of use is no silence of the GPU's.
func TestSilentProgram(t *testing.T) {
	for script, says := range map[string]string{"exec sleep 60": "nvidia-smi has said nothing for", "while echo 0, 1; do sleep 0.05; done": "2 columns instead of 9"} {
		g := NewGPU(connect(t, map[string]string{"nvidia-smi": script}))
		if _, err := g.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		g.s.mu.Lock()
		g.s.tried = time.Now().Add(-first - time.Second)
		g.s.mu.Unlock()
		if _, err := g.Collect(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", script, err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// slowHost starts nothing before whoever asks has given up.
type slowHost struct{ hosts.Host }

func (slowHost) Start(ctx context.Context, argv []string, stderr io.Writer) (*hosts.Process, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A reading ends with its time, also if a program cannot be started.
func TestSlowStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := NewGPU(slowHost{connect(t, nil)}).Collect(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// Headings come again every so often; the last GPU has no NVLink. Format after the DCGM
// user guide; not taken from a machine.
const dcgmText = `#Entity   PCITX                PCIRX                NVLTX                NVLRX                SMACT        DRAMA
ID
GPU 0     4712070210           5237742827           0                    0                    0.512        0.104
GPU 1     N/A                  N/A                  N/A                  N/A                  N/A          N/A

GPU 10    1                    2                    3                    4                    1.000        0.000
`

func TestParseDCGM(t *testing.T) {
	var got []string
	for line := range strings.Lines(dcgmText) {
		gpu, values, err := parseDCGM(line)
		if err != nil {
			t.Error(err)
		}
		for i, v := range values {
			if v != nil {
				got = append(got, fmt.Sprintf("%d:%d=%g", gpu, dcgmFields[i].id, *v))
			}
		}
	}
	want := "0:1009=4.71207021e+09 0:1010=5.237742827e+09 0:1011=0 0:1012=0 0:1002=0.512 0:1005=0.104 10:1009=1 10:1010=2 10:1011=3 10:1012=4 10:1002=1 10:1005=0"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
	for _, bad := range []string{"GPU 0 1 2", "GPU x 1 2 3 4 5 6", "GPU 0 1 2 3 4 5 -6", "Error setting watches. Result: Profiling is not supported"} {
		if _, values, err := parseDCGM(bad); err == nil || values != nil {
			t.Errorf("%q: %v, %v", bad, values, err)
		}
	}
}

func FuzzParseDCGM(f *testing.F) {
	for line := range strings.Lines(dcgmText) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		_, values, err := parseDCGM(line)
		if err != nil && values != nil {
			t.Error("values and an error")
		}
		for _, v := range values {
			if v != nil && (*v < 0 || *v-*v != 0) {
				t.Error(*v)
			}
		}
	})
}

// Whether bytes are totals or per second is read off how they go, and not before they do.
func TestDCGMKinds(t *testing.T) {
	grow := func(n int) (out []float64) {
		for i := range n {
			out = append(out, float64(1000*i))
		}
		return out
	}
	for name, test := range map[string]struct {
		values []float64
		want   dcgmKind
	}{
		"idle":                    {[]float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, undecided},
		"warming up":              {grow(totalAfter), undecided},
		"totals":                  {grow(totalAfter + 1), total},
		"totals, restarted":       {append(grow(30), grow(30)...), total},
		"a rate that rose so far": {append(grow(30), 28000, 28500, 28200), rate},
		"a rate":                  {[]float64{5, 6, 4}, rate},
		"a rate then growing":     {append([]float64{5, 6, 4}, grow(30)...), rate},
	} {
		var h dcgmValue
		for _, v := range test.values {
			h.read(v)
		}
		if h.kind != test.want {
			t.Errorf("%s: %v, want %v", name, h.kind, test.want)
		}
	}
}

func TestDCGM(t *testing.T) {
	c := connect(t, map[string]string{"dcgmi": `
[ "$*" = "dmon -e 1009,1010,1011,1012,1002,1005 -d 500" ] || exit 3
echo "#Entity PCITX"
i=0
while echo "GPU 0 $i 5 $((i % 2)) N/A 0.5 0.25"; do i=$((i + 1)); sleep 0.01; done`})
	d := NewDCGM(c)
	defer d.Close()
	got, err := until(t, d, func(s []results.Sample, err error) bool { return len(s) >= 5 || err != nil })
	if err != nil {
		t.Fatal(err)
	}
	if again := d.samples(); !slices.EqualFunc(got, again, func(a, b results.Sample) bool { return a.Metric == b.Metric && a.Of == b.Of }) {
		t.Errorf("%v, then %v", got, again)
	}
	for metric, want := range map[string]results.Sample{
		"gpu_pcie_tx_bytes":  {Unit: "B"},
		"gpu_nvlink_tx_rate": {Unit: "bit/s", Gauge: true},
		"gpu_sm_active":      {Unit: "1", Gauge: true},
	} {
		if s := value(t, got, metric, "h1/gpu0"); s.Unit != want.Unit || s.Gauge != want.Gauge {
			t.Errorf("%+v", s)
		}
	}
	if s := value(t, got, "dcgm_totals", "h1"); s.Value != 1 {
		t.Errorf("%+v", s)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	c = connect(t, map[string]string{"dcgmi": "exit 127"})
	d = NewDCGM(c)
	defer d.Close()
	if _, err := until(t, d, anything); !errors.Is(err, ErrNoData) {
		t.Errorf("without dcgmi: %v", err)
	}
}
