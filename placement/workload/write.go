package workload

import (
	"io"

	"github.com/BurntSushi/toml"
)

// WritePatterns writes patterns as ParsePatterns reads them, after the lines of a comment.
func WritePatterns(w io.Writer, comment string, patterns ...Pattern) error {
	type pattern struct {
		Model  string    `toml:"model"`
		Batch  int       `toml:"batch,omitempty"`
		GPU    string    `toml:"gpu,omitempty"`
		Step   float64   `toml:"step_s"`
		Source string    `toml:"source"`
		Start  []float64 `toml:"start_s"`
		Bytes  []int64   `toml:"bytes"`
	}
	var doc struct {
		Patterns []pattern `toml:"pattern"`
	}
	for _, p := range patterns {
		out := pattern{Model: p.Model, Batch: p.Batch, GPU: p.GPU, Step: p.Step, Source: p.Source, Start: []float64{}, Bytes: []int64{}}
		for _, o := range p.Ops {
			out.Start, out.Bytes = append(out.Start, o.Start), append(out.Bytes, o.Bytes)
		}
		doc.Patterns = append(doc.Patterns, out)
	}
	if _, err := io.WriteString(w, "# "+comment+"\n\n"); err != nil {
		return err
	}
	e := toml.NewEncoder(w)
	e.Indent = ""
	return e.Encode(doc)
}
