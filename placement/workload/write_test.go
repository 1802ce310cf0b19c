package workload

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is written is read again, to the last bit.
func TestWritePatterns(t *testing.T) {
	all := BuiltinPatterns().all
	var b bytes.Buffer
	if err := WritePatterns(&b, "all of them", all...); err != nil {
		t.Fatal(err)
	}
	got, err := ParsePatterns("written.toml", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(all, got.all); d != "" {
		t.Error(d)
	}
}
