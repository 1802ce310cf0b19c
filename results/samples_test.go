package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/proof"
)

// FuzzSample: a line that is read the short way is what encoding/json makes of it.
func FuzzSample(f *testing.F) {
	for _, s := range []Sample{
		{}, {T: 1.25, Source: "switch tor1", Metric: "port_tx_bytes", Of: "tor1->h1", Value: 1e21, Unit: "B"},
		{T: 1e-9, Source: "host \"h\"\\", Metric: "x\u2028", Of: "é\x01<&>", Value: -0.5, Unit: "1", Gauge: true, Wrap: math.Pow(2, 32)},
	} {
		line, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	for _, other := range []string{
		`{"t":01,"source":"","metric":"","of":"","value":1,"unit":""}`, `{"t":.5,"source":"","metric":"","of":"","value":1,"unit":""}`,
		`{"t":1,"source":"","metric":"","of":"","value":0x1,"unit":""}`, `{"t":1,"source":"\x","metric":"","of":"","value":1,"unit":""}`,
		`{"t":1,"source":"` + "\xff" + `","metric":"","of":"","value":1e999,"unit":""}`, `{"t":1,"source":"","metric":"","of":"","value":1,"unit":"","gauge":true,"wrap":1}x`,
	} {
		f.Add([]byte(other))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var short, long Sample
		if !(words{}).sample(line, &short) {
			return
		}
		if err := json.Unmarshal(line, &long); err != nil || !reflect.DeepEqual(short, long) {
			t.Errorf("%q: %+v, and by encoding/json %+v, %v", line, short, long, err)
		}
	})
}

// TestSamplesAsWritten: what Append writes is read the short way.
func TestSamplesAsWritten(t *testing.T) {
	d, err := Create(t.TempDir(), &Record{Name: "r"})
	if err != nil {
		t.Fatal(err)
	}
	var want []Sample
	for i := range 100 {
		want = append(want, Sample{T: float64(i) / 3, Source: "switch tor1", Metric: fmt.Sprint("m", i%7), Of: "h1->tor1", Value: math.Pow(7, float64(i)), Unit: "B", Gauge: i%2 == 0, Wrap: float64(i % 3)})
	}
	if err := d.Append(want...); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := d.Samples()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	text, err := os.ReadFile(filepath.Join(d.Path, SamplesFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if !(words{}).sample(bytes.TrimSpace(line), new(Sample)) {
			t.Errorf("not the short way: %s", line)
		}
	}
}

// TestLongLines: a line longer than the reader's buffer is one, and one without an end is an error.
func TestLongLines(t *testing.T) {
	long := `{"t":1,"source":"` + strings.Repeat("x", 100_000) + `","metric":"m","of":"o","value":1,"unit":"1"}` + "\n"
	short := `{"t":2,"source":"s","metric":"m","of":"o","value":1,"unit":"1"}` + "\n"
	got, err := ReadSamples(strings.NewReader(short + long + short))
	if err != nil || len(got) != 3 || len(got[1].Source) != 100_000 || got[2].T != 2 {
		t.Errorf("%d samples, %v", len(got), err)
	}
	if got, err := ReadSamples(io.MultiReader(strings.NewReader(short), zeros{})); err == nil || len(got) != 1 {
		t.Errorf("%d samples, %v", len(got), err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Of more samples than are drawn there are some of each counter, from the beginning to the end, in bounded memory; of fewer all.
func TestFew(t *testing.T) {
	proof.Only(t, "statistics of thousands of samples")
	for _, test := range []struct {
		name             string
		counters, times  int
		step             float64
		least, mostOfOne int
	}{
		{"few", 10, 100, .1, 100, 100},
		{"many times", 3, 200_000, .001, 400, 200_000},
		{"many counters", 10_000, 60, 1, 5, 60},
		{"too many counters", 500_000, 1, 1, 0, 1},
		{"no time", 3, 150_000, 0, 1, 150_000},
	} {
		var f few
		for i := range test.times {
			for c := range test.counters {
				f.add(&Sample{T: float64(i) * test.step, Source: "s", Metric: "m", Of: strconv.Itoa(c), Value: float64(i)})
				if len(f.kept) > mostDrawn {
					t.Fatalf("%s: %d are kept", test.name, len(f.kept))
				}
			}
		}
		per, last := map[string]int{}, 0.0
		for _, s := range f.kept {
			per[s.Of]++
			last = max(last, s.T)
		}
		for c := range test.counters {
			if n := per[strconv.Itoa(c)]; n < test.least || n > test.mostOfOne {
				t.Fatalf("%s: %d of counter %d", test.name, n, c)
			}
		}
		if whole := float64(test.times-1) * test.step; !f.full && last < .9*whole {
			t.Errorf("%s: the last is at %g s of %g", test.name, last, whole)
		}
	}
}
