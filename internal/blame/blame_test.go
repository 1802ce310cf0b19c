package blame

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// other is an error of another package.
type other struct{ error }

func (other) Blames() Part { return Part{KindSwitch, "s9"} }

func TestOf(t *testing.T) {
	down := errors.New("no route to host h9") // whose words say nothing
	for _, tt := range []struct {
		err  error
		text string
		want Part
	}{
		{},
		{down, "no route to host h9", Part{}},
		{Host("h1", down), "host h1: no route to host h9", Part{KindHost, "h1"}},
		{Host("h1", Host("h1", down)), "host h1: no route to host h9", Part{KindHost, "h1"}},
		{Switch("s9", other{io.EOF}), "EOF", Part{KindSwitch, "s9"}},
		{OnHost("worker A/0", "h2", io.EOF), "worker A/0 on host h2: EOF", Part{KindHost, "h2"}},
		{OnHost("worker A/0", "h2", Host("h2", io.EOF)), "worker A/0 on host h2: EOF", Part{KindHost, "h2"}},
		{OnHost("worker A/0", "h2", Host("h3", io.EOF)), "worker A/0 on host h2: host h3: EOF", Part{KindHost, "h2"}},
		{About(Part{KindHost, "h4"}, io.EOF), "EOF", Part{KindHost, "h4"}},
		{About(Part{}, io.EOF), "EOF", Part{}},
		{fmt.Errorf("deploy: %w", Switch("s1", Host("h1", io.EOF))), "deploy: switch s1: host h1: EOF", Part{KindSwitch, "s1"}},
		{errors.Join(io.EOF, fmt.Errorf("job A: %w", errors.Join(down, Host("h3", io.EOF))), Switch("s1", io.EOF)),
			"EOF\njob A: no route to host h9\nhost h3: EOF\nswitch s1: EOF", Part{KindHost, "h3"}},
		{fmt.Errorf("%w, and %w", io.EOF, other{io.EOF}), "EOF, and EOF", Part{KindSwitch, "s9"}},
	} {
		if got := Of(tt.err); got != tt.want {
			t.Errorf("%v: got %v, want %v", tt.err, got, tt.want)
		}
		if tt.err != nil && tt.err.Error() != tt.text {
			t.Errorf("got %q, want %q", tt.err, tt.text)
		}
	}
	for _, err := range []error{Host("h1", nil), Switch("s1", nil), OnHost("ps A", "h1", nil), About(Part{KindHost, "h1"}, nil)} {
		if err != nil {
			t.Errorf("%v of nothing", err)
		}
	}
	if err := OnHost("ps A", "h1", Host("h1", io.EOF)); !errors.Is(err, io.EOF) {
		t.Errorf("%v hides its cause", err)
	}
}

// TestCause: the name of a part is taken off what Host and Switch made, and off nothing else.
func TestCause(t *testing.T) {
	h1 := Part{KindHost, "h1"}
	for _, tt := range []struct {
		err error
		ok  bool
	}{
		{nil, false},
		{io.EOF, false},
		{Host("h1", io.EOF), true},
		{Host("h2", io.EOF), false},
		{Switch("h1", io.EOF), false},
		{OnHost("worker A/0", "h1", io.EOF), false},
		{About(h1, io.EOF), false},
	} {
		cause, ok := Cause(h1, tt.err)
		if ok != tt.ok || ok && cause != io.EOF {
			t.Errorf("%v: %v, %t", tt.err, cause, ok)
		}
	}
}
