package online

import (
	"context"
	"flag"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/netpack"
	"github.com/inabench/inabench/placement/trace"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/deployment"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/sim/replay"
	"github.com/inabench/inabench/testbed/testbedtest"
)

var (
	mixes   = flag.Int("mixes", 1, "how many mixes of jobs TestAgreement runs, of half a minute each")
	order   = flag.String("queue", "drr-flow", "of the emulation in TestAgreement: drr-flow, drr or fifo")
	control = flag.String("control", "fixed", "of the jobs in TestAgreement: fixed or aimd")
	window  = flag.Int("window", 64, "of the jobs in TestAgreement")
	faster  = flag.Float64("faster", 2, "the GPUs in TestAgreement than those of the models' profiles")
	delay   = flag.Duration("delay", 5*time.Microsecond, "of the cables in TestAgreement")
	memory  = flag.Int("aggregators", 0, "of the switch in TestAgreement; 0: more than enough")
	slow    = flag.Float64("slow", 4, "motion in TestAgreement: computing takes so much longer, and rates are so much lower")
)

// noNamespaces is why the tests are not running inside an emulation's namespaces.
var noNamespaces error

func TestMain(m *testing.M) {
	noNamespaces = netnstest.Main(netnstest.Parts{"agent": agent.Main})
	os.Exit(m.Run())
}

// shrink is by how much rates and gradients are smaller than they would be.
const shrink = 4000

// emulate is the paper's testbed, five hosts with two GPUs and 100 Gbit/s each.
func emulate(t *testing.T) testbed.Testbed {
	t.Helper()
	testbedtest.Require(t, "netns", noNamespaces)
	inv := rack(5, 100e9, *delay)
	inv.Switches[0].Buffer = 8 << 32
	if *memory > 0 {
		inv.Switches[0].Aggregators = *memory
	}
	f, err := netns.Up(t.Context(), inv, netns.Options{
		Queue: *order, Seed: 1, Scale: results.Scale{Mode: results.Shrunk, Factor: shrink * *slow},
	})
	if err != nil {
		t.Fatal(err)
	}
	tb, err := deployment.Open(t.Context(), remote.Options{
		Fabric: f, Exe: "/proc/self/exe",
		HostMAC:      func(host, device string) (net.HardwareAddr, error) { return f.HostMAC(host, device), nil },
		Capabilities: testbed.Capabilities{Sums: true, Impairments: true, Calibrates: true, Kind: results.Measured, Switch: "soft"},
	}, deployment.Options{Rest: testbed.Rest(f.Beat(), false)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return tb
}

// models is 5 to 8 jobs of 2 to 6 GPUs that train the paper's models for 3 to 8
// seconds of computing and of exchanging alone on their links.
func models(r *rand.Rand, link float64) []Job {
	names := trace.NetPackModels()
	var jobs []Job
	for i := range 5 + r.IntN(4) {
		p, ok := workload.Lookup(names[r.IntN(len(names))])
		if !ok {
			panic("a model that is not in the catalogue")
		}
		j := Job{Window: *window, Control: *control, Job: replay.Job{
			ID: i + 1, Submit: 4 * r.Float64(), GPUs: 2 + r.IntN(5),
			Compute: p.Compute().Seconds() * *slow / *faster, Bytes: float64(p.Bytes()) / shrink,
		}}
		j.Iterations = replay.Iterations(3+5*r.Float64(), j.Compute+8*j.Bytes/link)
		jobs = append(jobs, j)
	}
	return jobs
}

// TestAgreement runs mixes of jobs on an emulated testbed, holds them to what jobs on a
// testbed must do, and compares how long they take with the simulator: the paper's
// Figure 6.
func TestAgreement(t *testing.T) {
	proof.Only(t, "half a minute")
	tb := emulate(t)
	inv := tb.Inventory()
	link := float64(inv.Hosts[0].NICs[0].Rate)
	var measured, simulated, restarted []float64
	for mix := range uint64(*mixes) {
		s := *seed + mix
		jobs := models(rand.New(rand.NewPCG(s, 6)), link)
		got, health := manage(t, tb, netpack.New(netpack.Options{}), jobs)
		simulate := func(jobs []replay.Job, period time.Duration) []replay.JobResult {
			r, err := replay.Run(t.Context(), replay.Config{
				Cluster: ClusterOf(inv, settings), Policy: Recorded(got.Replayed()), Period: period.Seconds(), Fidelity: replay.Phases,
			}, jobs)
			if err != nil {
				t.Fatalf("-seed=%d: %v", s, err)
			}
			return r.Jobs
		}
		want, again := simulate(plain(jobs), period), simulate(Restarted(plain(jobs), got.Replayed()), 0)
		for i := range got.Jobs {
			g, w, a := &got.Jobs[i], &want[i], &again[i]
			measured, simulated, restarted = append(measured, g.JCT()), append(simulated, w.JCT()), append(restarted, a.JCT())
			off := func(w *replay.JobResult) float64 { return 100 * (w.JCT()/g.JCT() - 1) }
			t.Logf("-seed=%d job %d: %d GPUs %v PS %v, compute %.0f ms, %.0f kB, start %.2f (%.2f), jct %.3f, simulated %+.1f %%, from the same start %+.1f %% (%+.1f ms an iteration), launched in %.0f ms, begun in %.0f ms, seen after %.0f ms, %d resends",
				s, g.ID, g.GPUs, g.Placement.Parts, g.Placement.PS, 1e3*g.Compute, jobs[i].Bytes/1e3, g.Start, w.Start, g.JCT(), off(w), off(a), 1e3*(a.JCT()-g.JCT())/float64(g.Iterations),
				1e3*(g.Issued-g.Placed), 1e3*(g.Start-g.Issued), 1e3*(g.Seen-g.End), g.Summary.Resends)
		}
		for _, h := range health {
			t.Logf("-seed=%d: %s: %s", s, h.Where, h.What)
		}
	}
	t.Logf("the same trace:  %+v", agree(measured, simulated))
	t.Logf("the same starts: %+v", agree(measured, restarted))
}

const period = time.Second

// manage runs jobs on a testbed and checks what must be so on every one.
func manage(t *testing.T, tb testbed.Testbed, p cluster.Policy, jobs []Job) (*Result, []results.Trouble) {
	t.Helper()
	d, err := tb.Deploy(t.Context(), testbed.Setup{Plan: &placement.Plan{}, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if _, err := d.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), Config{Policy: p, Inventory: tb.Inventory(), Settings: settings, Period: period}, d, jobs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Jobs {
		j := &r.Jobs[i]
		if j.Summary.SumErrors != 0 || len(j.Plan.Workers) > 1 && j.Summary.SumsChecked == 0 {
			t.Errorf("job %d: %+v", j.ID, j.Summary)
		}
		if _, err := d.Summary(j.Plan.Name); err == nil {
			t.Errorf("job %d is still there", j.ID)
		}
	}
	health, err := d.Health(t.Context())
	if err != nil {
		t.Error(err)
	}
	return r, health
}
