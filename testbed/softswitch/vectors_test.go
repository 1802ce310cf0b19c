//go:build linux

package softswitch

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/inabench/inabench/testbed/ina/vector"
)

// vectorRack is a running switch on veth pairs to which vectors are given frame by frame.
type vectorRack struct {
	*rack
	t testing.TB
}

// probeTo is an address behind a port.
func probeTo(port uint32) [4]byte { return [4]byte{10, 9, 0, byte(port)} }

// Send follows the frame with a probe to each port: what left because of the frame is there
// when these are, because a port's frames leave in order.
func (r vectorRack) Send(port uint32, frame []byte) (out []vector.Frame, err error) {
	h := r.hosts[port]
	h.frame(frame)
	for n := range r.hosts[1:] {
		h.frame(unicast(probeTo(uint32(n+1)), 60))
	}
	h.flush(r.t)
	for n, to := range r.hosts[1:] {
		for seen := false; !seen; {
			to.next(r.t, func(b []byte) {
				switch dst := probeTo(uint32(n + 1)); {
				case len(b) < 34 || b[12] != 8 || b[13] != 0: // a neighbour's solicitation
				case bytes.Equal(b[30:34], dst[:]):
					seen = true
				default:
					out = append(out, vector.Frame{Port: uint32(n + 1), Data: bytes.Clone(b)})
				}
			})
		}
	}
	return out, nil
}

func (r vectorRack) Counter(name string, job uint16) (packets, octets int64, err error) {
	i := slices.Index(counterNames[:], "job_"+name)
	if i < 0 {
		return 0, 0, fmt.Errorf("there is no counter %s", name)
	}
	packets, octets = r.Switch.Counter(Counter(i), int(job))
	return packets, octets, nil
}

// The running switch does what the vectors say, as package ina's state machine does and a
// P4 program must.
func TestVectors(t *testing.T) {
	vs, err := vector.Load("../ina/testdata/vectors")
	if err != nil {
		t.Fatal(err)
	}
	r := vectorRack{rack: newRack(t, 4, nil)}
	for _, v := range vs {
		t.Run(v.Name, func(t *testing.T) {
			r.t = t
			r.Reset()
			for n := range r.hosts[1:] {
				if err := r.SetRoute(Route{Dst: probeTo(uint32(n + 1)), Port: uint32(n + 1), MAC: [6]byte{2, 1, 0, 0, 0, byte(n + 1)}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := vector.Run(v, r); err != nil {
				t.Error(err)
			}
		})
	}
}
