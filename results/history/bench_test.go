package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// store makes a directory of runs as a nightly suite leaves them: experiments of 8 points in 3
// repeats, with 36 figures each: 864 figures a run, in 288 series.
func store(b *testing.B, runs int) string {
	b.Helper()
	const experiments = 10
	root := b.TempDir()
	for n := range runs {
		rec := record(n / experiments)
		rec.Name, rec.ID, rec.Schema = fmt.Sprintf("experiment-%d", n%experiments), fmt.Sprintf("01M7YNY5GP23JDQE2R4E%06d", n), results.Schema
		for repeat := range 3 {
			for point := range 8 {
				p := results.Point{Index: point, Repeat: repeat, Labels: []string{fmt.Sprintf("switch.pat_ratio=%d", point)}, Phases: make([]results.Phase, 1)}
				for _, metric := range []string{"goodput", "wire_rate", "share", "rtt", "link_rate", "iterations"} {
					for of := range 6 {
						v := 1e9 + float64(n*repeat%997)*1e5 + float64(of)
						p.Phases[0].Figures = append(p.Phases[0].Figures, results.Figure{Metric: metric, Of: fmt.Sprintf("J%d", of), Kind: results.Measured, Value: v, Lo: v - 1e6, Hi: v + 1e6, N: 20, Unit: "bit/s"})
					}
				}
				rec.Points = append(rec.Points, p)
			}
		}
		data, err := json.Marshal(rec) // without syncing it, as Create would
		if err != nil {
			b.Fatal(err)
		}
		dir := filepath.Join(root, rec.Started.Format("2006-01-02T15-04-05Z")+"-"+rec.ID)
		if err := os.Mkdir(dir, 0o777); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, results.RecordFile), data, 0o666); err != nil {
			b.Fatal(err)
		}
	}
	return root
}

// BenchmarkIndex tells what an index of many runs costs: to build it, to find out that nothing
// has changed, to take in one more run, and to ask it.
func BenchmarkIndex(b *testing.B) {
	for _, runs := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("runs=%d", runs), func(b *testing.B) {
			if !proof.Wanted() && runs > 1_000 {
				b.Skip("many files")
			}
			root := store(b, runs)
			x := openIndex(b, root)
			update(b, x, runs)
			b.Run("rebuild", func(b *testing.B) {
				for b.Loop() {
					if n, err := x.Rebuild(b.Context()); err != nil || n != runs {
						b.Fatal(n, err)
					}
				}
				st, err := os.Stat(filepath.Join(root, File))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(st.Size())/1e6, "MB")
			})
			b.Run("unchanged", func(b *testing.B) {
				for b.Loop() {
					update(b, x, 0)
				}
			})
			b.Run("one-more", func(b *testing.B) {
				rec := record(1, 100, 101)
				for b.Loop() {
					resultstest.Save(b, root, rec)
					if n, err := x.Update(b.Context()); err != nil || n != 1 {
						b.Fatal(n, err)
					}
					rec.ID = ""
				}
			})
			for name, q := range map[string]Query{
				"one-series": {Experiment: "experiment-3", Metric: "goodput", Of: "J1"}, // of each of 8 points
				"metric":     {Metric: "goodput"},                                       // of all experiments
			} {
				b.Run(name, func(b *testing.B) {
					nights := 0
					for b.Loop() {
						nights = 0
						for _, s := range series(b, x, q) {
							nights += len(s.Nights)
						}
					}
					b.ReportMetric(float64(nights), "nights")
				})
			}
		})
	}
}
