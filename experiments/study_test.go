package experiments

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"slices"
	"testing"
)

// TestJobsCSV: no name in jobs.csv.gz is a formula where somebody opens the file, and numbers stay what they are.
func TestJobsCSV(t *testing.T) {
	rows := [][]string{{"=1+1", "@x", "\t=1"}, {"+1", "-1.5", "-A"}, {"A", "", "h1->tor1"}}
	want := [][]string{
		{"'=2", "0", "'=1+1", "'@x", "'\t=1"},
		{"'=2", "0", "+1", "-1.5", "'-A"},
		{"'=2", "0", "A", "", "h1->tor1"},
	}
	z, err := gzip.NewReader(bytes.NewReader(zipped(rows, "=2", "0")))
	if err != nil {
		t.Fatal(err)
	}
	got, err := csv.NewReader(z).ReadAll()
	if err != nil || !slices.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
