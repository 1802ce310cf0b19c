package placement

import (
	"slices"
	"testing"
)

// TestPackets: a PSN is so many packets on the fullest link, which must not be more than it carries while a testbed is calibrated.
func TestPackets(t *testing.T) {
	rack := func(name, parent string, aggregate bool, expect uint64) TreeNode {
		return TreeNode{Switch: name, Parent: parent, Aggregate: aggregate, Expect: expect}
	}
	for _, c := range []struct {
		name string
		j    JobPlan
		want int
	}{
		{"eight workers of a PS", JobPlan{Collective: PS, Tree: []TreeNode{rack("tor1", "", false, 0xff)}}, 8},
		{"all are added up", JobPlan{Collective: INA, Tree: []TreeNode{rack("tor1", "", true, 0xff)}}, 1},
		{"a spine forwards what two racks have added up", JobPlan{Collective: INA, Tree: []TreeNode{
			rack("tor1", "spine1", true, 0x0f), rack("tor2", "spine1", true, 0xf0), rack("spine1", "tor3", false, 0xff), rack("tor3", "", true, 0x1ff)}}, 2},
		{"and a rack without memory", JobPlan{Collective: INA, Tree: []TreeNode{
			rack("tor1", "spine1", true, 0x0f), rack("tor2", "spine1", false, 0xf0), rack("spine1", "", false, 0xff)}}, 5},
	} {
		if got := slices.Max(c.j.Packets()); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
