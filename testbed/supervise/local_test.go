package supervise_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/supervise"
)

// TestConverse: lines go both ways, each within its time and length, and the end waits for what the program still says.
func TestConverse(t *testing.T) {
	begin := func(script string) *supervise.Dialogue {
		d, err := supervise.Converse(t.Context(), supervise.Config{
			Name: "script", Argv: []string{"sh", "-c", script}, Leases: t.TempDir(), Grace: patience.Seconds(),
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := begin(`while read -r line; do echo "$line"; done; echo bye >&2`)
	if _, err := d.Hear(time.Millisecond, 10); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v before anything was said", err)
	}
	for _, want := range []string{"a", "", "b c"} {
		d.Tell([]byte(want))
		if got, err := d.Hear(patience, 10); err != nil || string(got) != want {
			t.Errorf("heard %q, %v, want %q", got, err, want)
		}
	}
	d.Tell([]byte(strings.Repeat("x", 11)))
	if _, err := d.Hear(patience, 10); !errors.Is(err, bounded.ErrTooLarge) {
		t.Errorf("error %v", err)
	}
	if said, err := d.End(); err != nil || said != "bye" {
		t.Errorf("it said %q, %v", said, err)
	}
	d = begin("exit 3")
	if _, err := d.Hear(patience, 10); !errors.Is(err, io.EOF) {
		t.Errorf("error %v", err)
	}
	var exit *supervise.ExitError
	if _, err := d.End(); !errors.As(err, &exit) || exit.Status != 3 {
		t.Errorf("error %v", err)
	}
}
