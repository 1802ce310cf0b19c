package results

import (
	"bytes"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/golden"
)

func TestTopologyGolden(t *testing.T) {
	small := rack(1, 3, 100e6)
	golden.Compare(t, "rack.svg", TopologySVG(small, nil))
	var dot, mermaid bytes.Buffer
	two := spines(rack(2, 2, 25e9), 1, 100e9)
	if err := WriteDOT(&dot, two); err != nil {
		t.Fatal(err)
	}
	if err := WriteMermaid(&mermaid, two); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "two-racks.dot", dot.String())
	golden.Compare(t, "two-racks.mmd", mermaid.String())
}

func TestTopologySizes(t *testing.T) {
	bigT, loads := big()
	for name, c := range map[string]struct {
		t     Topology
		loads map[string]LinkLoad
	}{
		"empty": {Topology{}, nil}, "one host": {Topology{Nodes: []Node{{Name: "h"}}}, nil}, "rack": {rack(1, 3, 1e8), nil},
		"two racks": {spines(rack(2, 4, 1e8), 1, 2e8), map[string]LinkLoad{}}, "74 nodes": {bigT, loads}, "400 hosts": {rack(10, 40, 1e8), nil},
		"link to nowhere": {Topology{Nodes: []Node{{Name: "h"}}, Links: []Link{{"h->x", "h", "x", 1}}}, nil},
		"one way":         {Topology{Nodes: []Node{{Name: "h"}, {Name: "s", Tier: 1}}, Links: []Link{{"s->h", "s", "h", 1}}}, map[string]LinkLoad{}},
		"parallel": {Topology{Nodes: []Node{{Name: "a", Tier: 1}, {Name: "b", Tier: 2}}, Links: []Link{
			{"a:1->b:1", "a", "b", 1}, {"b:1->a:1", "b", "a", 1}, {"a:2->b:2", "a", "b", 1}, {"b:2->a:2", "b", "a", 1}}}, nil},
	} {
		svg := TopologySVG(c.t, c.loads)
		wellFormed(t, name, svg)
		for _, n := range c.t.Nodes {
			if !strings.Contains(svg, n.Name) {
				t.Errorf("%s: node %s is not drawn", name, n.Name)
			}
		}
	}
}

func TestCables(t *testing.T) {
	top := Topology{Nodes: []Node{{Name: "a", Tier: 1}, {Name: "b", Tier: 2}}, Links: []Link{
		{"b:2->a:2", "b", "a", 1}, {"b:1->a:1", "b", "a", 1}, {"a:1->b:1", "a", "b", 1}, {"a:2->b:2", "a", "b", 1}}}
	got := top.cables()
	if len(got) != 2 || got[0] != (cable{3, 0}) || got[1] != (cable{2, 1}) {
		t.Errorf("%v", got)
	}
	if n := len(spines(rack(8, 8, 1), 2, 1).cables()); n != 64+16 {
		t.Errorf("%d cables, want 80", n)
	}
}

func TestGraphHostile(t *testing.T) {
	top := hostile().Topology
	wellFormed(t, "svg", TopologySVG(top, nil))
	var dot, mermaid bytes.Buffer
	if err := WriteDOT(&dot, top); err != nil {
		t.Fatal(err)
	}
	if err := WriteMermaid(&mermaid, top); err != nil {
		t.Fatal(err)
	}
	// Quotes that end a string early would leave an odd number on a line.
	for _, line := range strings.Split(dot.String(), "\n") {
		if strings.Count(strings.ReplaceAll(line, `\"`, ""), `"`)%2 != 0 {
			t.Errorf("dot: %s", line)
		}
	}
	if strings.Contains(mermaid.String(), "<script") {
		t.Errorf("mermaid: %s", mermaid.String())
	}
}
