package plot

import (
	"bytes"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

func TestTopologyGolden(t *testing.T) {
	small := resultstest.Rack(1, 3, 100e6)
	golden.Compare(t, "rack.svg", TopologySVG(small, nil))
	var dot, mermaid bytes.Buffer
	two := resultstest.Spines(resultstest.Rack(2, 2, 25e9), 1, 100e9)
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
		t     results.Topology
		loads map[string]LinkLoad
	}{
		"empty": {results.Topology{}, nil}, "one host": {results.Topology{Nodes: []results.Node{{Name: "h"}}}, nil}, "rack": {resultstest.Rack(1, 3, 1e8), nil},
		"two racks": {resultstest.Spines(resultstest.Rack(2, 4, 1e8), 1, 2e8), map[string]LinkLoad{}}, "74 nodes": {bigT, loads}, "400 hosts": {resultstest.Rack(10, 40, 1e8), nil},
		"link to nowhere": {results.Topology{Nodes: []results.Node{{Name: "h"}}, Links: []results.Link{{Name: "h->x", From: "h", To: "x", Rate: 1}}}, nil},
		"one way":         {results.Topology{Nodes: []results.Node{{Name: "h"}, {Name: "s", Tier: 1}}, Links: []results.Link{{Name: "s->h", From: "s", To: "h", Rate: 1}}}, map[string]LinkLoad{}},
		"parallel": {results.Topology{Nodes: []results.Node{{Name: "a", Tier: 1}, {Name: "b", Tier: 2}}, Links: []results.Link{
			{Name: "a:1->b:1", From: "a", To: "b", Rate: 1}, {Name: "b:1->a:1", From: "b", To: "a", Rate: 1}, {Name: "a:2->b:2", From: "a", To: "b", Rate: 1}, {Name: "b:2->a:2", From: "b", To: "a", Rate: 1}}}, nil},
	} {
		svg := TopologySVG(c.t, c.loads)
		resultstest.WellFormed(t, name, svg)
		for _, n := range c.t.Nodes {
			if !strings.Contains(svg, n.Name) {
				t.Errorf("%s: node %s is not drawn", name, n.Name)
			}
		}
	}
}

func TestCables(t *testing.T) {
	top := results.Topology{Nodes: []results.Node{{Name: "a", Tier: 1}, {Name: "b", Tier: 2}}, Links: []results.Link{
		{Name: "b:2->a:2", From: "b", To: "a", Rate: 1}, {Name: "b:1->a:1", From: "b", To: "a", Rate: 1}, {Name: "a:1->b:1", From: "a", To: "b", Rate: 1}, {Name: "a:2->b:2", From: "a", To: "b", Rate: 1}}}
	got := cables(top)
	if len(got) != 2 || got[0] != (cable{3, 0}) || got[1] != (cable{2, 1}) {
		t.Errorf("%v", got)
	}
	if n := len(cables(resultstest.Spines(resultstest.Rack(8, 8, 1), 2, 1))); n != 64+16 {
		t.Errorf("%d cables, want 80", n)
	}
}

func TestGraphHostile(t *testing.T) {
	top := resultstest.Hostile().Topology
	resultstest.WellFormed(t, "svg", TopologySVG(top, nil))
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

// big is a topology with 74 nodes and its loads.
func big() (results.Topology, map[string]LinkLoad) {
	t := resultstest.Spines(resultstest.Rack(8, 8, 25e9), 2, 100e9)
	loads := map[string]LinkLoad{}
	for i, l := range t.Links {
		v := l.Rate * float64((i*37)%101) / 100
		loads[l.Name] = LinkLoad{Observed: results.Figure{Kind: results.Measured, Value: v, Lo: v, Hi: v}, Predicted: results.Figure{Kind: results.Predicted, Value: v * 1.02}}
	}
	return t, loads
}
