package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// TestLeftOut: where the model leaves out what damaged links do to jobs, it says so, and nobody judges its figures.
func TestLeftOut(t *testing.T) {
	hosts := []string{"h1", "h2"}
	for _, tt := range []struct {
		name string
		link string
		loss float64
		job  spec
		want string // of what is left out; empty: nothing is
	}{
		{"a stream", "h1->tor1", 0.05, spec{ps: "h4", w: testbed.Workload{Rate: 1e9}}, ""},
		{"a stream of which nothing arrives", "h1->tor1", 1, spec{ps: "h4", w: testbed.Workload{Rate: 1e9}}, "nothing of it comes through"},
		{"aimd", "h1->tor1", 0.3, spec{ps: "h4", w: testbed.Workload{Rate: 1e9, Control: "aimd"}}, "changes its window"},
		{"messages", "h1->tor1", 0.05, spec{ps: "h4", w: testbed.Workload{Rate: 1e9, Message: 1 << 20}}, "messages"},
		{"long messages", "h1->tor1", 0.05, spec{ps: "h4", w: testbed.Workload{Rate: 1e9, Window: 64, Message: 1 << 24}}, "messages"},
		{"a ring", "h1->tor1", 0.05, spec{collective: placement.Ring, w: testbed.Workload{Message: 1 << 20}}, "ring"},
		{"aimd elsewhere", "h3->tor1", 0.3, spec{ps: "h4", w: testbed.Workload{Rate: 1e9, Control: "aimd"}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inv := lab(1, 10e9, 1<<12)
			tt.job.name, tt.job.hosts = "A", hosts
			tt.job.w.RTO = 10 * time.Millisecond
			s := setup(t, inv, testbed.Settings{Queue: "fair"}, tt.job)
			d := deploy(t, inv, s)
			if err := d.SetLink(t.Context(), tt.link, testbed.LinkState{Loss: tt.loss}); err != nil {
				t.Fatal(err)
			}
			steady(t, d, s)
			for range 2 { // the second time nothing has happened since
				got, err := d.Health(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case tt.want == "" && len(got) > 0:
					t.Errorf("%+v", got)
				case tt.want != "" && (len(got) != 1 || !got[0].Fatal || got[0].Code != results.CodeLimited || !strings.Contains(got[0].What, tt.want)):
					t.Errorf("%+v, want one that is fatal and about %q", got, tt.want)
				}
				tt.want = ""
			}
		})
	}
}
