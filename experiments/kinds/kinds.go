// Package kinds is the list of all kinds of study, and reads experiments about any of them.
package kinds

import (
	"fmt"
	"slices"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/study/autops"
	"github.com/inabench/inabench/experiments/study/jobs"
	"github.com/inabench/inabench/experiments/study/programs"
	"github.com/inabench/inabench/experiments/study/ranks"
	"github.com/inabench/inabench/experiments/study/stream"
	"github.com/inabench/inabench/experiments/study/turns"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// all are all kinds of study besides [[job]] tables, the only list of them.
var all = spec.Kinds{stream.Kind, turns.Kind, autops.Kind, ranks.Kind, programs.Kind}

// Add adds a kind of another module, whose type of table is a study.Study. It panics if its table or one of its
// parts has another kind, and is for a program's main: experiments that were read before do not know it.
func Add(k spec.Kind) {
	for _, o := range append(All(), spec.Named) {
		if o.Table == k.Table {
			panic(fmt.Sprintf("kinds: two kinds of study for table %s", k.Table))
		}
		for verb := range k.Parts {
			if o.Parts[verb] != nil {
				panic(fmt.Sprintf("kinds: tables %s and %s both have a part %s", o.Table, k.Table, verb))
			}
		}
	}
	all = append(All(), k)
}

// Part is the process that a kind has under a verb, nil if none has.
func Part(verb string) spec.Part {
	for _, k := range all {
		if p := k.Parts[verb]; p != nil {
			return p
		}
	}
	return nil
}

// All are all of them besides [[job]] tables.
func All() spec.Kinds { return slices.Clone(all) }

// Load reads an experiment; see spec.Kinds.Load.
func Load(path string, sets ...string) (*spec.Spec, error) { return all.Load(path, sets...) }

// Parse is Load for a text at hand; see spec.Kinds.Parse.
func Parse(name string, text []byte, inv *inventory.Inventory, sets ...string) (*spec.Spec, error) {
	return all.Parse(name, text, inv, sets...)
}

// Describe lists what an experiment's file may say.
func Describe() tomlfile.Entry { return all.Describe() }

// Describes says whether an experiment's text describes its cluster itself, so that it has no file of an inventory. It is
// false of a text that cannot be read.
func Describes(name string, text []byte, sets ...string) bool {
	head, _, _, err := all.Decode(name, text, sets)
	return err == nil && head.Topology() != nil
}

// Of is what an experiment is about.
func Of(s *spec.Spec) study.Study {
	if js, ok := s.Study().(spec.Jobs); ok {
		return jobs.Study{Jobs: js}
	}
	return s.Study().(study.Study)
}

// Simulator is the study where it simulates itself on the driver, nil where it runs on a testbed.
func Simulator(s *spec.Spec, driver string) study.Simulator {
	sim, _ := Of(s).(study.Simulator)
	if driver != "sim" {
		return nil
	}
	return sim
}
