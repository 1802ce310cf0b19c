package ops

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/inabench/inabench/placement/mina"
	"github.com/inabench/inabench/placement/mina/fragment"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/placement/workload"
)

func list(t testing.TB, trace int) []Job {
	name := fmt.Sprintf("testdata/trace%d.txt", trace)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := ParseJobs(name, string(text), Patterns(workload.BuiltinPatterns(), 4))
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

func run(t testing.TB, cfg Config, jobs []Job) *Result {
	r, err := Run(context.Background(), cfg, jobs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func modules(m string, o tree.Options) Config {
	cfg := Config{Cluster: mina.Config{Place: fragment.FirstFit{}, Trees: mina.FirstIdle, Options: o}, Sharing: Greedy}
	if m[0] == '1' {
		cfg.Cluster.Place = nil
	}
	if m[1] == '1' {
		cfg.Cluster.Trees = mina.Packed
	}
	if m[2] == '1' {
		cfg.Sharing = Mina
	}
	return cfg
}

func TestX(t *testing.T) {
	report := func(name string, cfg Config, jobs []Job) {
		began := time.Now()
		r := run(t, cfg, jobs)
		s := r.Score(false)
		t.Logf("%s: %.4f util %.4f range %.5f host %.4f, %d events, %d builds, %.2f migr, refused %d of %d, makespan %.0f, %v", name, s.Value, r.Utilisation(), s.Range(), r.Score(true).Value, r.Events, r.Builds, r.Migrations(), r.Refused, r.Asked, r.Makespan, time.Since(began))
	}
	for trace := range 2 {
		jobs := list(t, trace)
		for _, m := range []string{"000", "100", "110", "111", "011", "101"} {
			cfg := modules(m, tree.Options{K: 5})
			cfg.WholeGroup = true
			report(fmt.Sprintf("trace %d %s whole", trace, m), cfg, jobs)
			cfg.WholeGroup = false
			cfg.Cluster.PerSwitch, cfg.Cluster.PerLink = 1, tree.Unlimited
			report(fmt.Sprintf("trace %d %s HDR", trace, m), cfg, jobs[:1000])
		}
		for _, slow := range []bool{true, false} {
			for _, m := range []string{"111", "110", "000"} {
				for _, hdr := range []bool{false, true} {
					for _, o := range []tree.Options{{}, {K: 5}, {K: 5, Weighted: true}, {Weighted: true}, {Weighted: true, Sharing: tree.Together}, {Weighted: true, Sharing: tree.Merged, Load: 1}, {Weighted: true, Sharing: tree.Merged}} {
						if m[1] == '0' && o != (tree.Options{}) {
							continue
						}
						if m[2] == '0' && o.Sharing > 0 {
							continue
						}
						cfg := modules(m, o)
						cfg.Cost = PaperCost()
						if slow {
							cfg.Cost.Bandwidth /= 2
						} else {
							cfg.Cost.Ratio, cfg.GPU = 1.5, 1.5
						}
						if hdr {
							cfg.Cluster.PerSwitch, cfg.Cluster.PerLink = 1, tree.Unlimited
						}
						report(fmt.Sprintf("trace %d %s slow=%v hdr=%v %+v", trace, m, slow, hdr, o), cfg, jobs)
					}
				}
			}
		}
	}
}
