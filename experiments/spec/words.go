package spec

import (
	"slices"
	"strings"

	"github.com/inabench/inabench/placement"
)

// Predictors are the models that every phase is predicted with, occupancy first. An expectation
// names the one it holds figures against; the errors of all are shown.
var Predictors = []string{placement.Occupancy, placement.WaterFill}

// AtSwitch names what a job has at a switch: "A@tor1".
func AtSwitch(job, sw string) string { return job + "@" + sw }

// Drivers are the testbeds that an experiment can run on.
var Drivers = []string{"netns", "sim", "lab"}

// CheckDriver is an error, wrapping ErrInput, if a driver is none of them.
func CheckDriver(driver string) error {
	if slices.Contains(Drivers, driver) {
		return nil
	}
	return Invalidf("driver %q is not one of %s", driver, strings.Join(Drivers, ", "))
}

// Replayed is the predictor of what runs on a testbed: the simulator, with the same jobs
// on the same hosts from the same times on.
const Replayed = "replay"

// Timed says whether the experiment is about the time that placing takes.
func (s *Spec) Timed() bool { return s.Asks(PlacementTime) || s.Asks(TreeTime) }

// Asks says whether the experiment lists, compares or expects a metric, or a ratio of it.
func (s *Spec) Asks(metric string) bool {
	about := func(m string) bool { return strings.HasPrefix(m, metric) }
	return s.Compare != nil && slices.ContainsFunc(s.Compare.Metrics, about) || slices.ContainsFunc(s.Summary, about) ||
		slices.ContainsFunc(s.Expects, func(e Expect) bool { return about(e.Metric) })
}

// Times that are other ones in every run.
const (
	PlacementTime = "placement_time" // of placing a job
	TreeTime      = "tree_time"      // of building all trees
)

// Reallocates says whether the memory of synchronous jobs changes hands while they run.
func (s *Spec) Reallocates() bool { return s.Switch.Mode == "synchronous" && s.Switch.Reallocate > 0 }
