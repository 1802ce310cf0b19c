package spec

import (
	"fmt"
	"slices"

	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/inventory"
)

// Predictor is a simulator of one's own, which predicts beside the built-in models; see package
// predictor. It runs in the experiment's folder.
type Predictor struct {
	Name    string             `toml:"name" default:"external"` // letters, digits, '_' and '-'
	Command []string           `toml:"command,required"`        // program and arguments, as docs/PREDICTOR.md says
	Timeout inventory.Duration `toml:"timeout" default:"1m"`    // for one point
}

// reserved are names that mean something else where a predictor is named.
func reserved() []string { return append(slices.Clone(Predictors), "value", Replayed) }

// CheckPredictor reports names that a predictor cannot have, and commands that are none. The
// error wraps ErrInput.
func CheckPredictor(p predictor.Predictor) error {
	switch {
	case !JobName.MatchString(p.Name):
		return Invalidf("predictor %q: a name has letters, digits, '_' and '-'", p.Name)
	case slices.Contains(reserved(), p.Name), slices.Contains(Drivers, p.Name):
		return taken(p.Name)
	case len(p.Command) == 0 || p.Command[0] == "":
		return Invalidf("predictor %s: no command", p.Name)
	}
	return nil
}

// CheckPredictor is the function of that name, for predictors of this experiment: what its figures are predicted by already
// has its name, too.
func (s *Spec) CheckPredictor(p predictor.Predictor) error {
	if slices.Contains(s.Study().Predictors(), p.Name) {
		return taken(p.Name)
	}
	return CheckPredictor(p)
}

func taken(name string) error {
	return Invalidf("predictor %q: the name means something else here", name)
}

func (c *Checker) predictor() {
	p := c.Spec.Predictor
	if p == nil {
		return
	}
	Positive(c, "predictor.timeout", p.Timeout)
	if err := c.Spec.Askable(); err != nil && !c.Reported("predictor") {
		c.Problemf("predictor", "take it out: what predicts these figures is the simulator, --on sim", "%v", err)
	}
	switch {
	case c.Has("predictor.command") && (len(p.Command) == 0 || p.Command[0] == "") && !c.Reported("predictor.command"):
		c.Problemf("predictor.command", `write command = ["python3", "sim.py"]`, "empty command")
	case len(p.Command) > 0 && !c.Reported("predictor.name"):
		if err := c.Spec.CheckPredictor(predictor.Predictor{Name: p.Name, Command: p.Command}); err != nil {
			at := "predictor.name"
			if !c.Has(at) {
				at = "predictor"
			}
			c.Problemf(at, "", "%v", err)
		}
	}
}

// Askable is an error if external predictors can say nothing of an experiment: what they are told
// has no words for it.
func (s *Spec) Askable() error {
	if k := s.Kind(); k.Mute {
		return fmt.Errorf("external predictors are told of [[job]] tables, of a [trace], and of [operations] that are simulated; not of %v", k)
	}
	return nil
}
