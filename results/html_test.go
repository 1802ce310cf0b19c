package results

import (
	"bytes"
	"testing"
)

func htmlOf(t *testing.T, rec *Record, samples []Sample) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteHTML(&b, rec, samples); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
