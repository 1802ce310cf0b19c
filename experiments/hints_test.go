package experiments

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/results"
)

// TestHintsNameKeys: what explanations of codes advise to write is a key that there is.
func TestHintsNameKeys(t *testing.T) {
	files := []string{"json", "jsonl", "html", "toml", "csv", "xml", "md", "log"}
	key := regexp.MustCompile(`\b([a-z]+)\.([a-z_]+)\b`)
	field := func(in reflect.Type, name string) (reflect.Type, bool) {
		for in.Kind() == reflect.Pointer || in.Kind() == reflect.Slice {
			in = in.Elem()
		}
		for i := range in.NumField() {
			if tag, _, _ := strings.Cut(in.Field(i).Tag.Get("toml"), ","); tag == name {
				return in.Field(i).Type, true
			}
		}
		return nil, false
	}
	seen := 0
	for _, e := range results.Explanations() {
		for _, m := range key.FindAllStringSubmatch(strings.Join(slices.Concat([]string{e.Means}, e.Causes, e.Do), "\n"), -1) {
			if slices.Contains(files, m[2]) {
				continue
			}
			seen++
			table, ok := field(reflect.TypeFor[spec.Spec](), m[1])
			if ok {
				_, ok = field(table, m[2])
			}
			if !ok {
				t.Errorf("%s names %s, and no experiment has that key", e.Code, m[0])
			}
		}
	}
	if seen < 2 {
		t.Errorf("%d keys in all explanations", seen)
	}
}

// TestForeignCell: a file of others in the place of a cell is none, and nobody waits for it.
func TestForeignCell(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(cellPath(dir, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := readCell(dir, 0); c != nil {
		t.Errorf("%+v", c)
	}
}
