package report

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/plot"
	"github.com/inabench/inabench/results/resultstest"
)

// tell writes a record in all the ways there are.
func tell(rec *results.Record) error {
	return errors.Join(
		WriteReport(io.Discard, rec, nil, Beside{}), WriteText(io.Discard, rec, TextOptions{Color: true}), WriteMarkdown(io.Discard, rec),
		results.WriteCSV(io.Discard, rec), WriteJUnit(io.Discard, rec), WritePrometheus(io.Discard, rec), results.WriteJSON(io.Discard, rec),
		plot.WriteDOT(io.Discard, rec.Topology), plot.WriteMermaid(io.Discard, rec.Topology),
	)
}

// fixtures are records with all that a record may have.
func fixtures() []*results.Record {
	return []*results.Record{resultstest.FairShare(), resultstest.Addressing(), resultstest.Quickstart(), resultstest.Policies([]float64{1, 2}, 2), resultstest.Hostile(), uneven()}
}

// uneven is a record whose curves have more of x than of y, or repeats that have more of y.
func uneven() *results.Record {
	curve := func(x, y []float64) []results.Curve {
		return []results.Curve{{Metric: "m", Unit: "1", Over: "time, s", X: x, Y: y}}
	}
	return &results.Record{Kind: results.Simulated, Points: []results.Point{
		{Curves: curve([]float64{1, 2}, []float64{1})},
		{Index: 1, Curves: curve([]float64{1}, []float64{1})},
		{Index: 1, Repeat: 1, Curves: curve([]float64{1}, []float64{1, 2})},
		{Index: 2, Curves: curve(nil, []float64{1})},
	}}
}

// FuzzRecord: whatever a run.json says, what is told of it ends.
func FuzzRecord(f *testing.F) {
	for _, rec := range fixtures() {
		text, err := json.Marshal(rec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, results.RecordFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if rec, err := results.ReadRecord(dir); err == nil {
			_ = tell(rec)
		}
	})
}

// TestInventedRecords: records whose parts were left out, doubled, or exchanged for others of their kind
// are told like any: none of them ends the program.
func TestInventedRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	all := fixtures()
	records := 2000
	if !proof.Wanted() {
		records = 150
	}
	for n := range records {
		text, err := json.Marshal(all[n%len(all)])
		if err != nil {
			t.Fatal(err)
		}
		rec := new(results.Record)
		if err := json.Unmarshal(text, rec); err != nil {
			t.Fatal(err)
		}
		for range 1 + rng.IntN(8) {
			invent(reflect.ValueOf(rec).Elem(), rng)
		}
		func() {
			defer func() {
				if p := recover(); p != nil {
					text, _ := json.Marshal(rec)
					t.Fatalf("%d: %v: %s", n, p, text[:min(len(text), 2000)])
				}
			}()
			_ = tell(rec)
		}()
	}
}

// invent changes one part of a value, anywhere.
func invent(v reflect.Value, rng *rand.Rand) {
	for {
		switch v.Kind() {
		case reflect.Pointer:
			if v.IsNil() || rng.IntN(10) == 0 {
				v.SetZero()
				return
			}
			v = v.Elem()
		case reflect.Struct:
			i := rng.IntN(v.NumField())
			if !v.Type().Field(i).IsExported() {
				return
			}
			v = v.Field(i)
		case reflect.Slice:
			switch n := v.Len(); {
			case n == 0:
				v.Set(reflect.MakeSlice(v.Type(), rng.IntN(3), 3))
				return
			case rng.IntN(4) == 0: // fewer
				v.Set(v.Slice(0, rng.IntN(n)))
				return
			case rng.IntN(4) == 0: // one twice
				v.Set(reflect.Append(v, v.Index(rng.IntN(n))))
				return
			default:
				v = v.Index(rng.IntN(n))
			}
		case reflect.String:
			v.SetString([]string{"", "x", "A@tor1", "h1->h2", "a=b", "share", "time", "<\x1b&"}[rng.IntN(8)])
			return
		case reflect.Float64:
			v.SetFloat([]float64{0, -1, 1, 1e300, -1e300, 5e-324, 0.5}[rng.IntN(7)])
			return
		case reflect.Int, reflect.Int64:
			v.SetInt([]int64{0, -1, 1, 1 << 40, 3}[rng.IntN(5)])
			return
		case reflect.Bool:
			v.SetBool(rng.IntN(2) == 0)
			return
		default:
			return
		}
		if !v.CanSet() {
			return
		}
	}
}
