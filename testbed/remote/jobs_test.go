package remote

import (
	"fmt"
	"testing"

	"github.com/inabench/inabench/testbed/dataplane"
)

// roomy is a switch with room for so many jobs.
type roomy struct {
	dataplane.Switch
	jobs int
}

func (r roomy) Jobs() int { return r.jobs }

// TestJobsOfAllSwitches: ids are those that every switch has room for.
func TestJobsOfAllSwitches(t *testing.T) {
	for _, c := range []struct {
		rooms []int
		want  int
	}{{nil, 0}, {[]int{4095}, 4095}, {[]int{4095, 127}, 127}, {[]int{127, 4095, 63}, 63}} {
		tb := &Testbed{planes: map[string]dataplane.Switch{}}
		for i, n := range c.rooms {
			tb.planes[fmt.Sprint(i)] = roomy{jobs: n}
		}
		if got := tb.Capabilities().Jobs; got != c.want {
			t.Errorf("%v: %d, want %d", c.rooms, got, c.want)
		}
	}
}
