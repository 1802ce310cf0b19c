// Package contract holds documented JSON contracts to the code, in tests: the examples of a page and its tables of keys.
package contract

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	block = regexp.MustCompile("(?s)```json\n(.*?)```")
	row   = regexp.MustCompile("(?m)^\\| (`.*?) \\|")
	key   = regexp.MustCompile("`([^`]+)`")
)

// Examples are a page's blocks of JSON. The test fails unless there are n.
func Examples(t testing.TB, page string, n int) (out []string) {
	t.Helper()
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		out = append(out, m[1])
	}
	if len(out) != n {
		t.Fatalf("%d blocks of JSON, want %d", len(out), n)
	}
	return out
}

// Documented are the keys in the first column of a page's tables.
func Documented(page string) (out []string) {
	for _, r := range row.FindAllStringSubmatch(page, -1) {
		for _, k := range key.FindAllStringSubmatch(r[1], -1) {
			out = append(out, k[1])
		}
	}
	return out
}

// Keys are the paths of all values in a document of a type: "jobs[].tree[].switch".
func Keys(of reflect.Type) []string { return keys(of, "") }

func keys(of reflect.Type, at string) (out []string) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct:
		return keys(of.Elem(), at+"[]")
	case of.Kind() != reflect.Struct:
		return []string{at}
	}
	for i := range of.NumField() {
		name := of.Field(i).Tag.Get("json")
		if at != "" {
			name = at + "." + name
		}
		out = append(out, keys(of.Field(i).Type, name)...)
	}
	return out
}

// Read reads an example into v, which must have its keys, all of them and no others.
func Read(t testing.TB, example string, v any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(example))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Fatal(err)
	}
	written, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decoded(t, example), decoded(t, string(written))); diff != "" {
		t.Errorf("%T has other keys than the example (-example +code):\n%s", v, diff)
	}
}

// Same fails the test unless two documents say the same.
func Same(t testing.TB, documented, said string) {
	t.Helper()
	if diff := cmp.Diff(decoded(t, documented), decoded(t, said)); diff != "" {
		t.Errorf("the documented answer is another one (-documented +said):\n%s", diff)
	}
}

func decoded(t testing.TB, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
