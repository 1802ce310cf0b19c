package suite

import (
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/inabench/inabench/results"
)

// FuzzNight: what others have written into a night's file is told in every format, or left out.
func FuzzNight(f *testing.F) {
	f.Add([]byte(`{"schema":1,"suite":"nightly","items":[{"name":"a","status":"pass","attempts":[{"run":"R"}]}],"culprits":[{}],"moves":[{}]}`))
	f.Add([]byte(`{"items":[{}],"judged":{"figures":3}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		n := new(Night)
		if json.Unmarshal(text, n) != nil {
			return
		}
		for name, err := range map[string]error{
			"text": WriteText(io.Discard, "runs", n), "Markdown": WriteMarkdown(io.Discard, n), "JUnit": WriteJUnit(io.Discard, "runs", n),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		_ = n.ExitCode()
		if err := n.contradiction(); err != nil && !errors.Is(err, results.ErrContradicts) {
			t.Error(err)
		}
	})
}
