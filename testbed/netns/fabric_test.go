package netns

import (
	"testing"
)

func TestUp(t *testing.T) {
	f := up(t, rack(1, 2, 2), Options{})
	t.Log(f.Inventory().Hosts[0])
}
