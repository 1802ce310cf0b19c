package programs

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// What programs printed is kept without secrets. Of a run that is interrupted, before or meanwhile, only the end of a long
// text is kept; what is not kept of it is said, and of documents the environment is never kept.
func TestClean(t *testing.T) {
	const secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	log := strings.Repeat("a line of a log\n", 25_000) + "token=" + secret + "\nthe end\n"
	env := `{"env": {"X": "` + secret + `"}, "log": ["` + strings.Repeat("a", 100<<10) + "\"]}\n"
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name, text string
		after      int // pieces, when the run is interrupted
		want       string
		least      int
	}{
		{"whole", log, 100, "token=[removed]", len(log) - 100},
		{"interrupted before", log, 0, "(interrupted: 3", 60_000},
		{"interrupted meanwhile", log, 1, "(interrupted: ", 200_000},
		{"short", "short\n", 0, "short\n", 6},
		{"a document", env, 100, `"X": "[removed]"`, 100 << 10},
		{"a short document", `{"env": {"X": "` + secret + `"}}`, 0, `"X": "[removed]"`, 10},
		{"a document, interrupted", env, 0, "(interrupted: ", 10},
		{"a document that was cut off, interrupted", `{"env": {"X": "hunter2"}, "log": [`, 0, "(interrupted: 34 bytes are not kept)", 10},
	} {
		var b bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if test.after == 0 {
			ctx = over
		}
		w := writer(func(p []byte) (int, error) {
			if test.after--; test.after == 0 {
				cancel()
			}
			return b.Write(p)
		})
		if err := clean(ctx, w, []byte(test.text)); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := b.String(); !strings.Contains(got, test.want) || strings.Contains(got, secret) || strings.Contains(got, "hunter2") || len(got) < test.least || len(got) > 2*len(test.text)+100 {
			t.Errorf("%s: %d bytes of %d: %.100s ... %s", test.name, len(got), len(test.text), got, got[max(0, len(got)-200):])
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
