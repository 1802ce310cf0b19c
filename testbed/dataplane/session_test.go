package dataplane

import (
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/inabench/inabench/testbed/p4"
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

// TestGroups: ports of a group are those of the switch, and so is the port that a group for ARP is of.
func TestGroups(t *testing.T) {
	o := Options{Ports: map[uint32]uint32{1: 132, 2: 140, 3: 148}}
	for _, tt := range []struct {
		called, own p4.Group
	}{
		{p4.Group{ID: 7, Ports: []uint32{1, 3}}, p4.Group{ID: 7, Ports: []uint32{132, 148}}},
		{p4.Group{ID: p4.FloodGroup(2), Ports: []uint32{1, 3}}, p4.Group{ID: p4.FloodGroup(140), Ports: []uint32{132, 148}}},
	} {
		own, err := o.OwnGroup(tt.called)
		if err != nil || !reflect.DeepEqual(own, tt.own) {
			t.Errorf("%+v is %+v, %v, want %+v", tt.called, own, err, tt.own)
		}
		if called := o.CalledGroup(own); !reflect.DeepEqual(called, tt.called) {
			t.Errorf("%+v is called %+v, want %+v", own, called, tt.called)
		}
	}
	for _, g := range []p4.Group{{ID: 7, Ports: []uint32{4}}, {ID: p4.FloodGroup(4), Ports: []uint32{1}}} {
		if own, err := o.OwnGroup(g); !errors.Is(err, p4.ErrRange) {
			t.Errorf("%+v is %+v, %v", g, own, err)
		}
	}
}
