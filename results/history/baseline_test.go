package history

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzBaseline: a baseline that is read names files in the directory of runs alone.
func FuzzBaseline(f *testing.F) {
	f.Add([]byte(`{"experiment": "../a b", "setting": "0123abcd", "run": "2026-10-01T00-00-00Z-01ABC", "set": "2026-10-01T00:00:00Z", "reason": "v1.0"}`))
	f.Add([]byte(`{"setting": "0", "run": "../../etc"}`))
	f.Add([]byte(`{"setting": "/", "run": "a"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := parseBaseline(data)
		if err != nil {
			return
		}
		for _, name := range []string{b.Run, b.file()} {
			if !filepath.IsLocal(name) || strings.ContainsRune(name, '/') || strings.HasPrefix(name, ".") && name == b.Run {
				t.Errorf("%+v names %q", b, name)
			}
		}
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseBaseline(text); err != nil || again.file() != b.file() || again.Run != b.Run {
			t.Errorf("%s is read as %+v, %v", text, again, err)
		}
	})
}
