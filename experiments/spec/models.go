package spec

import (
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement/workload"
)

// loadModels finds the models and patterns that a spec can name: those that come with the
// program, and those of the files that it names.
func (s *Spec) loadModels(f *tomlfile.File) (problems tomlfile.Problems) {
	s.catalogue, s.patterns = workload.Builtin(), workload.BuiltinPatterns()
	load := func(key, path string, read func(string) error) {
		if path == "" {
			return
		}
		path = s.Beside(path, key)
		err := read(path)
		switch ps := asProblems(err); {
		case len(ps) > 0:
			f.Problemf(key, "", "%s %s has problems", key, path)
			problems = append(problems, ps...)
		case err != nil:
			f.Problemf(key, "", "%v", err)
		}
	}
	load("catalogue", s.Catalogue, func(path string) error {
		own, err := workload.Load(path)
		if err == nil {
			s.catalogue = s.catalogue.With(own)
		}
		return err
	})
	load("patterns", s.PatternsPath, func(path string) error {
		own, err := workload.LoadPatterns(path)
		if err == nil {
			s.patterns = s.patterns.With(own)
		}
		return err
	})
	return problems
}
