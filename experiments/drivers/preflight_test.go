package drivers

import (
	"context"
	"errors"
	"testing"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/carry"
	"github.com/inabench/inabench/testbed/preflight"
)

// TestCeilingOf: what hosts are able to do is looked at where something is asked of them, they are fit, and nobody has left
// the check out, which is then in the record.
func TestCeilingOf(t *testing.T) {
	asked := Asked{asks: []carry.Ask{{Host: "h1", Lanes: 240, Processes: 1, Rails: []carry.Rail{{Device: "eth0", Sent: 1}}}}, tool: "test"}
	lost := errors.New("h1 is lost")
	fit := results.Preflight{Name: preflight.Clock, Host: "h1", Outcome: results.Pass}
	unfit := results.Preflight{Name: preflight.Clock, Host: "h1", Outcome: results.Fail}
	for _, tt := range []struct {
		name  string
		asked Asked
		skip  []string
		found results.Preflight
		want  results.Outcome // of the ceiling; "": it is not looked at
	}{
		{"nothing is asked", Asked{}, nil, fit, ""},
		{"hosts are not fit", asked, nil, unfit, ""},
		{"left out", asked, []string{preflight.Ceiling}, fit, results.Skipped},
		{"another is left out", asked, []string{preflight.Disk}, fit, results.Skipped}, // the host cannot be asked
	} {
		s := &spec.Spec{Preflight: spec.Preflight{Skip: tt.skip}}
		look := tt.asked.ceilingOf(s, func(context.Context, []preflight.Host) ([]results.Preflight, []results.HostFacts, error) {
			all := []results.Preflight{tt.found}
			return all, nil, preflight.Err(all)
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(lost) // so that nobody is asked
		h := preflight.Host{}
		h.Name = "h1"
		all, _, err := look(ctx, []preflight.Host{h})
		if (err != nil) != (tt.found.Outcome == results.Fail) {
			t.Errorf("%s: %v", tt.name, err)
		}
		var got results.Preflight
		if len(all) > 1 {
			got = all[1]
		}
		left := len(tt.skip) > 0 && tt.skip[0] == preflight.Ceiling
		if got.Outcome != tt.want || tt.want != "" && got.Name != preflight.Ceiling || left && got.Why != omitted {
			t.Errorf("%s: %+v, want %q", tt.name, got, tt.want)
		}
	}
}
