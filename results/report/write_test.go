package report

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/heap"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// TestReportMemory: a report keeps of its samples what it draws.
func TestReportMemory(t *testing.T) {
	d, rec := resultstest.LargeRun(t, 16<<20)
	all, err := d.Samples()
	if err != nil {
		t.Fatal(err)
	}
	_, drawn, err := d.SamplesDrawn(rec)
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

// TestReportDamaged: lines of samples that are damaged are left out of a page, which says so, and not out of the record.
func TestReportDamaged(t *testing.T) {
	d, rec := resultstest.LargeRun(t, 1<<20)
	path := filepath.Join(d.Path, results.SamplesFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines[2], lines[5] = []byte("{\"t\":1,\"sou\n"), []byte("<b>\n")
	if err := os.WriteFile(path, bytes.Join(lines, nil), 0o666); err != nil {
		t.Fatal(err)
	}
	before := len(rec.Warnings)
	if err := Write(d, rec); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(d.Path, results.ReportFile))
	if err != nil || !strings.Contains(string(page), "samples.jsonl: 2 lines are damaged, the first is line 3") || len(rec.Warnings) != before {
		t.Errorf("%v, warnings %q", err, rec.Warnings)
	}
}

// BenchmarkReport is `inabench report` of 100 MB of samples, and the heap that it takes.
func BenchmarkReport(b *testing.B) {
	d, rec := resultstest.LargeRun(b, 100<<20)
	for b.Loop() {
		most := heap.Watch()
		_, samples, err := d.SamplesDrawn(rec)
		if err == nil {
			err = WriteReport(io.Discard, rec, samples, Beside{})
		}
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(most())/1e6, "heap-MB")
	}
}
