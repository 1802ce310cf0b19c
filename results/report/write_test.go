package report

import (
	"io"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/heap"
	"github.com/inabench/inabench/results/resultstest"
)

// TestReportMemory: a report keeps of its samples what it draws.
func TestReportMemory(t *testing.T) {
	d, rec := resultstest.LargeRun(t, 16<<20)
	all, err := d.Samples()
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := d.SamplesDrawn(rec)
	if err != nil || len(drawn) == 0 || len(drawn) > len(all)/8 {
		t.Errorf("%d of %d samples are drawn, %v", len(drawn), len(all), err)
	}
	var whole, part strings.Builder
	if err := WriteReport(&whole, rec, all, Beside{}); err != nil {
		t.Fatal(err)
	}
	if err := WriteReport(&part, rec, drawn, Beside{}); err != nil {
		t.Fatal(err)
	}
	if whole.String() != part.String() {
		t.Error("the report of what is drawn is another one than that of all")
	}
}

// BenchmarkReport is `inabench report` of 100 MB of samples, and the heap that it takes.
func BenchmarkReport(b *testing.B) {
	d, rec := resultstest.LargeRun(b, 100<<20)
	for b.Loop() {
		most := heap.Watch()
		samples, err := d.SamplesDrawn(rec)
		if err == nil {
			err = WriteReport(io.Discard, rec, samples, Beside{})
		}
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(most())/1e6, "heap-MB")
	}
}
