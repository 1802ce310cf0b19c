package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/netpack"
	"github.com/inabench/inabench/placement/titan"
	"github.com/inabench/inabench/placement/trace"
	"github.com/inabench/inabench/testbed/sim/replay"
)

// mostAgeing is the most by which a job's value may grow from batch to batch: with more, values say only who is the oldest.
const mostAgeing = 10

// checkQueue checks who may start before whom.
func (t *Trace) checkQueue(c *spec.Checker) {
	if !(t.Ageing >= 1 && t.Ageing <= mostAgeing) && !c.Reported("trace.ageing") {
		c.Problemf("trace.ageing", "with 1 jobs do not age", "ageing must be 1 to %d", mostAgeing)
	}
	seen := map[string]bool{}
	for i, item := range t.UserValues {
		at := fmt.Sprintf("trace.user_values[%d]", i)
		user, _, err := userValue(item)
		switch {
		case c.Reported(at):
		case err != nil:
			c.Problemf(at, tomlfile.HintOf(err), "%v", err)
		case seen[user]:
			c.Problemf(at, "", "user %q has two values", user)
		}
		seen[user] = true
	}
}

// userValue reads what a user's jobs are worth: "alice=2".
func userValue(item string) (user string, value float64, err error) {
	at := strings.LastIndexByte(item, '=')
	if at <= 0 {
		return "", 0, tomlfile.WithHint(`write "alice=2"`, "%q is no USER=VALUE", item)
	}
	value, err = strconv.ParseFloat(strings.TrimSpace(item[at+1:]), 64)
	if err != nil || !(value >= 1/trace.MostValue && value <= trace.MostValue) {
		return "", 0, tomlfile.WithHint("", "a value of %q: %g to %g", item[at+1:], 1/trace.MostValue, trace.MostValue)
	}
	return strings.TrimSpace(item[:at]), value, nil
}

// values are what the jobs of a trace are worth among those that wait: what the file says, 1 where it says nothing, times
// what UserValues, which checkQueue has seen, say of the user.
func (t *Trace) values(tr *trace.Trace) []float64 {
	of := map[string]float64{}
	for _, item := range t.UserValues {
		if user, v, err := userValue(item); err == nil {
			of[user] = v
		}
	}
	out := make([]float64, len(tr.Jobs))
	for i := range tr.Jobs {
		j := &tr.Jobs[i]
		out[i] = cmp.Or(j.Value, 1) * cmp.Or(of[j.User], 1)
	}
	return out
}

// checkUsers is an error if UserValues has a user of whom a file has no job.
func (t *Trace) checkUsers(tr *trace.Trace) error {
	if len(t.UserValues) == 0 {
		return nil
	}
	users := map[string]bool{}
	for i := range tr.Jobs {
		users[tr.Jobs[i].User] = true
	}
	delete(users, "")
	known := slices.Sorted(maps.Keys(users))
	for _, item := range t.UserValues {
		user, _, err := userValue(item)
		switch {
		case err != nil:
			return spec.Invalid(err)
		case !users[user]:
			return spec.Invalid(tomlfile.WithHint(tomlfile.DidYouMean(user, known), "%s has no job of user %q, to whom user_values gives a value", tr.Name, user))
		}
	}
	return nil
}

// policy opens the policy that places the jobs, with what the trace says of how those that wait grow in value, and the
// operation by which they reduce, if it is one of reductions. Who has it calls end.
func (t *Trace) policy(ctx context.Context, s *spec.Spec) (p cluster.Policy, end func(), err error) {
	return s.OpenPolicy(ctx, s.Placement.Policy, spec.Options{
		Titan:   titan.Options{Collective: reductions[t.Collective]},
		NetPack: netpack.Options{Ageing: t.Ageing, Reserve: t.Reservation},
	})
}

// blamed is an error of a replay or a run: a policy of the user's that breaks its contract is wrong input.
func blamed(s *spec.Spec, err error) error {
	if errors.Is(err, replay.ErrPolicy) && s.OwnPolicy(s.Placement.Policy) != nil {
		return spec.Invalid(err)
	}
	return err
}
