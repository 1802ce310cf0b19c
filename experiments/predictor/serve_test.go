package predictor

import (
	"fmt"
	"strings"
	"testing"
)

// TestServe: a predictor answers in the version of its request, and refuses one that it does not know.
func TestServe(t *testing.T) {
	for _, c := range []struct {
		request, knows int
		want           string
	}{
		{1, Schema, `{"schema":1,`},
		{2, Schema, "request has schema 2, this predictor knows 1"},
		{1, Newest, `{"schema":1,`},
		{2, Newest, `{"schema":2,`},
		{3, 3, "request has schema 3, this predictor knows 2"},
		{0, Newest, "request has schema 0"},
	} {
		var out strings.Builder
		request := strings.NewReader(fmt.Sprintf(`{"schema": %d}`, c.request))
		err := ServeUpTo(c.knows, request, &out, func(*Request) (*Answer, error) { return &Answer{}, nil })
		if got := fmt.Sprint(out.String(), err); !strings.Contains(got, c.want) {
			t.Errorf("schema %d, where %d is known: %s, want %s", c.request, c.knows, got, c.want)
		}
	}
}
