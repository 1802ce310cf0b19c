package spec

import (
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// topology is a cluster that an experiment describes in place of an inventory.
type topology interface {
	Check(c *Checker)
	key() string // equal for equal clusters
	inventory() (*inventory.Inventory, error)
}

// Topology is nil where the experiment names an inventory.
func (s *Spec) Topology() topology {
	switch {
	case s.FatTree != nil:
		return s.FatTree
	case s.Clos != nil:
		return s.Clos
	}
	return nil
}

// labs are the inventories of an experiment's points, made once each, by key; that of a
// file has "".
type labs map[string]*Lab

// of is what a spec runs on, which it then knows too; nil where that could not be read.
func (l labs) of(s *Spec, f *tomlfile.File) *Lab {
	t := s.Topology()
	if t == nil {
		if l[""] == nil {
			l[""] = NewLab(s.inv)
		}
		return l[""]
	}
	before := len(f.Problems())
	t.Check(&Checker{File: f, Spec: s})
	if len(f.Problems()) > before {
		return nil
	}
	key := t.key()
	if l[key] == nil {
		inv, err := t.inventory()
		if err != nil {
			f.Problemf(topologyKey(s), "", "%v", err) // checked above
			return nil
		}
		l[key] = NewLab(inv)
	}
	s.inv = l[key].Inv
	return l[key]
}

// topologyKey is the table that describes the cluster.
func topologyKey(s *Spec) string {
	if s.FatTree != nil {
		return "fat_tree"
	}
	return "clos"
}
