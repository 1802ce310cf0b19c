package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/pace"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/results/human"
)

// again is how many times as slow a run goes that is tried once more.
const again = 2

// slowly is an experiment that goes as fast as this machine carries it, where it leaves that open.
type slowly struct {
	asked *spec.Spec // as its file and the command line say it
	spec  *spec.Spec // with what was chosen
	src   source
	sets  []string
	open  bool
	say   func(string)
	// factor is that of an emulation that is up already; 0: of one that is made for it.
	factor float64
}

// choose chooses a pace that is so many times as slow as this machine carries the experiment; not ok where the
// experiment says it itself, or as pace.Choose does.
func (e *slowly) choose(ctx context.Context, slower float64) (ok bool, err error) {
	if !e.open {
		return false, nil
	}
	choice, ok, err := pace.Choose(ctx, e.asked, e.factor, slower, version())
	if slow, up := errors.AsType[*pace.StandingError](err); up {
		return false, hinted{&experiments.BeginError{Err: fmt.Errorf("%w: %w", experiments.ErrStanding, slow)},
			fmt.Sprintf("run it without --reuse, or take that one down: inabench up --set emulation.factor=%g %s", slow.Carries, human.ShellLine(e.src.name))}
	}
	if err != nil || !ok {
		return false, err
	}
	s, err := e.src.spec(append(slices.Clone(e.sets), choice.Sets...))
	if err != nil {
		return false, err
	}
	if slower > 1 && s.Emulation.Factor <= e.spec.Emulation.Factor { // measured anew, the machine seems faster
		return false, nil
	}
	e.say(choice.String())
	e.spec = s
	return true, nil
}
