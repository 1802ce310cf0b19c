package results

import (
	"slices"
	"strconv"
	"strings"
)

// The modes of a Scale.
const (
	SlowMotion = "slow-motion" // rates divided, delays multiplied: every ratio stays
	Shrunk     = "shrunk"      // rates, buffers and ECN thresholds divided, delays as they are
)

// Lab translates a figure of the emulation to what it stands for in the lab.
// Slow motion divided rates and multiplied times; a shrunk run divided rates and
// bytes and left time alone. Ratios and counts are the same in both.
func (s Scale) Lab(v float64, unit string) float64 {
	k := s.Factor
	if !s.ScalesUnit(unit) {
		return v
	}
	if unit == "s" {
		return v / k
	}
	return v * k
}

// ownTimes are metrics of what this program does itself, its agents and calls between them included, which no emulation
// slows down.
var ownTimes = []string{
	"placement_time", "tree_time", "launch_time", "decision_time",
	"migration_time", "migration_leave", "migration_release", "migration_wait", "migration_acquire", "migration_adopt",
}

// Scales says whether an emulation changes figures of a metric in a unit.
func (s Scale) Scales(metric, unit string) bool {
	return s.ScalesUnit(unit) && !slices.Contains(ownTimes, metric)
}

// Emulated is the other way round: what something of the lab is in the emulation.
func (s Scale) Emulated(v float64, unit string) float64 {
	if !s.ScalesUnit(unit) {
		return v
	}
	return v / s.Lab(1, unit)
}

// ScalesUnit says whether an emulation changes figures in a unit.
func (s Scale) ScalesUnit(unit string) bool {
	if s.Factor == 0 || s.Factor == 1 || s.Mode == "none" {
		return false
	}
	switch unit {
	case "bit/s", "B/s":
		return true
	case "1/s", "s":
		return s.Mode == SlowMotion
	case "B":
		return s.Mode == Shrunk
	}
	return false
}

// String says what the scale does: "slow motion x100".
func (s Scale) String() string {
	if s.Factor == 0 || s.Factor == 1 || s.Mode == "none" || s.Mode == "" {
		return "1:1"
	}
	return strings.ReplaceAll(s.Mode, "-", " ") + " x" + strconv.FormatFloat(s.Factor, 'g', -1, 64)
}
