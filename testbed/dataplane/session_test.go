package dataplane

import (
	"errors"
	"io"
	"testing"
)

// told is a stream on which a server has said so many things before its end; nil: it goes on.
type told struct {
	before int
	end    error
}

func (s *told) Recv() (string, error) {
	if s.before == 0 && s.end != nil {
		return "", s.end
	}
	s.before--
	return "hello", nil
}

// TestEndOf: a stream that takes no more has an end, whatever its server has said before.
func TestEndOf(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		stream told
		want   error // nil: any
	}{
		"refused at once":           {told{0, refused}, refused},
		"refused after a message":   {told{1, refused}, refused},
		"refused after many":        {told{50, refused}, refused},
		"closed after a message":    {told{1, io.EOF}, io.EOF},
		"a server that says no end": {told{0, nil}, nil},
	} {
		err := EndOf(&c.stream)
		if err == nil || c.want != nil && err != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
