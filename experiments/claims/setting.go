package claims

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/inabench/inabench/results"
)

// Extent is how much a run tells of the experiment that it is called after.
type Extent int

// Extents, the least first.
const (
	Foreign Extent = iota // nothing: it is of another setting
	Cut                   // less than it set out to measure: it was interrupted, or broke
	Small                 // of its small version, or of some of its points
	Whole
)

// ExtentOf is how much a run tells of an experiment as it ships, nil if there is none, and of a Foreign or Cut one why.
func ExtentOf(rec, shipped *results.Record) (of Extent, why string) {
	if why := differs(rec, shipped); why != "" {
		return Foreign, why
	}
	if n := len(rec.Points); n < rec.Planned {
		return Cut, fmt.Sprintf("the run was cut off with %d of %d points", n, rec.Planned)
	}
	if i := slices.IndexFunc(rec.Points, func(p results.Point) bool { return p.Error != "" }); i >= 0 {
		return Cut, strings.TrimPrefix(rec.Points[i].Label()+": ", ": ") + rec.Points[i].Unsound()
	}
	if len(rec.Overrides) > 0 {
		return Small, ""
	}
	return Whole, ""
}

// differs says in what a run is not of the experiment that ships; empty: it is. Its small version is, as are some values of
// what it sweeps, and other numbers of repeats.
func differs(rec, shipped *results.Record) string {
	if shipped == nil {
		return "no such experiment ships"
	}
	if rec.Experiment.Text != shipped.Experiment.Text && results.Statement(rec.Experiment.Text, called) != results.Statement(shipped.Experiment.Text, called) {
		return "the experiment's file is not the one that ships"
	}
	if shipped.Inventory.Text != "" && rec.Inventory.Text != shipped.Inventory.Text {
		return "the inventory is not the one that ships"
	}
	if !slices.Equal(slices.Sorted(maps.Values(rec.Files)), slices.Sorted(maps.Values(shipped.Files))) {
		return "a file that the experiment names is not the one that ships"
	}
	var head struct{ Quick []string }
	_ = toml.Unmarshal([]byte(rec.Experiment.Text), &head) // which is the one that ships
	for _, set := range rec.Overrides {
		if key, _, _ := strings.Cut(set, "="); !slices.Contains(head.Quick, set) && !slices.Contains(rec.Narrowed, key) && !aside(key) {
			return "--set " + set
		}
	}
	return ""
}

// called says whether a key leaves an experiment what it is: what it is called, and its testbed, which a record names.
func called(key string) bool {
	return slices.Contains([]string{"name", "title", "description", "on"}, key)
}

// aside says whether an override leaves an experiment what it is, as its names do: the values of a sweep, which are narrowed then,
// and how many repeats there are.
func aside(key string) bool {
	sweep, values := strings.CutPrefix(key, "sweep.")
	return called(key) || values && strings.HasSuffix(sweep, ".values") || results.RepeatKey(key)
}
