package results

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/internal/bounded"
)

// TestNow: what a run says of itself is read as it was said, and gone when it has ended; what others put there is bounded.
func TestNow(t *testing.T) {
	d := &Dir{Path: t.TempDir()}
	want := Now{Written: time.Unix(1e9, 0).UTC(), Stage: "measure", Of: 3, Jobs: []JobNow{{Job: "A", Goodput: 5, Past: []RateNow{{1, 5, 6}}}}, Links: map[string]float64{"h1->tor1": 7}}
	for range 2 { // the second time in the place of the first
		if err := d.WriteNow(want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadNow(d.Path)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for range 2 { // it may be gone
		if err := d.EndNow(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(d.Path); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := ReadNow(d.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
	for text, is := range map[string]error{strings.Repeat(" ", mostNow+1): bounded.ErrTooLarge, `{"stage":1}`: nil} {
		if err := os.WriteFile(filepath.Join(d.Path, NowFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadNow(d.Path); err == nil || is != nil && !errors.Is(err, is) {
			t.Errorf("%.10q: %v", text, err)
		}
	}
}

// FuzzReadNow: whatever stands there is read or refused.
func FuzzReadNow(f *testing.F) {
	f.Add([]byte(`{"stage":"measure","jobs":[{"job":"A","past":[{"t":1}]}],"links":{"a":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, NowFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := ReadNow(dir)
		if err != nil {
			return
		}
		if err := (&Dir{Path: dir}).WriteNow(n); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}
