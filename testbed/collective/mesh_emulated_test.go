package collective_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/udp"
)

// newStar is so many hosts, h1 and so on, on one switch.
func newStar(t testing.TB, hosts int, rate inventory.BitRate, delay time.Duration) *lab {
	t.Helper()
	inv := &inventory.Inventory{Name: "star", Switches: []inventory.Switch{{Name: "sw", Kind: inventory.Soft, Aggregators: 16}}}
	for i := range hosts {
		inv.Hosts = append(inv.Hosts, inventory.Host{Name: fmt.Sprintf("h%d", i+1), NICs: []inventory.NIC{{
			Device: "ens1", Switch: "sw", Port: uint32(i + 1), Rate: rate, Delay: delay,
		}}})
	}
	return emulate(t, inv, "drr-flow", false)
}

// ranks starts a rank on each machine, counted from 0, connects them, and has them begin at the
// same time.
func (l *lab) ranks(cfg agent.Config, at ...int) *job {
	l.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	cfg.Role, cfg.Name, cfg.Job, cfg.Epoch, cfg.Seed, cfg.Workers, cfg.Device = "rank", "A", 1, 1, 3, len(at), "ens1"
	cfg.Interval, cfg.LineRate = time.Minute, float64(l.inv.Hosts[0].NICs[0].Rate)
	j := &job{l: l}
	peers := agent.Command{Cmd: "peers"}
	for i, m := range at {
		cfg.Rank = i
		host := l.inv.Hosts[m].Name
		p, err := l.hosts[host].Start(context.Background(), []string{exe, "agent", cfg.Title()}, nil)
		if err != nil {
			l.t.Fatal(err)
		}
		r := l.follow(fmt.Sprintf("%s on %s", cfg.Title(), host), p)
		r.write(cfg)
		j.ranks = append(j.ranks, r)
	}
	for _, r := range j.ranks {
		peers.Peers = append(peers.Peers, r.until("ready").Listen)
	}
	j.write(peers)
	j.until("connected")
	clock := udp.NewClock() // emulated hosts have one clock
	j.write(agent.Command{Cmd: "start", At: (clock.Now() + 200*time.Millisecond).Seconds()})
	return j
}

// comm waits for the end of a job, and is what its all-reduces took, s: of the average of the
// ranks the lower quartile of the iterations, but for the first one. What others on this machine
// do makes some longer.
func (j *job) comm() float64 {
	j.l.t.Helper()
	var took []float64
	for i, e := range j.until("done") {
		s := e.Stats
		if s.SumErrors != 0 || s.SumsChecked == 0 || s.SumsChecked%s.Iterations != 0 {
			j.l.t.Errorf("%s: in %d iterations, of %d values %d are wrong", j.ranks[i].name, s.Iterations, s.SumsChecked, s.SumErrors)
		}
		took = slices.Grow(took, len(s.Reducing.Times))[:len(s.Reducing.Times)]
		for k, x := range s.Reducing.Times {
			took[k] += x.Comm / float64(len(j.ranks))
		}
	}
	took = took[1:]
	slices.Sort(took)
	return took[len(took)/4]
}

// calibrate measures what two ranks get: on two hosts, and on one.
func (l *lab) calibrate(bytes int64) collectives.Network {
	l.t.Helper()
	line := func(a, b int) (rate, latency float64) {
		exchange := collectives.Ring(2)
		unit := collectives.Network{Rate: func(int) float64 { return 1 }, Latency: 1}
		latencies := exchange.Seconds([]int{0, 1}, 0, unit)
		var took [2]float64
		for i, size := range []int64{8, bytes} {
			took[i] = l.ranks(agent.Config{Operation: exchange.Name, Message: size, Compute: 20e-3, Iterations: 12}, a, b).comm()
		}
		return 8 * float64(bytes) / max(took[1]-took[0], 1e-9), took[0] / latencies
	}
	rate, latency := line(0, 1)
	local, localLatency := line(0, 0)
	l.t.Logf("hosts exchange %.2f Mbit/s, %.0f us; ranks of one %.0f Mbit/s, %.0f us", rate/1e6, latency*1e6, local/1e6, localLatency*1e6)
	return collectives.Network{Rate: func(int) float64 { return rate }, Local: local, Latency: latency, LocalLatency: localLatency}
}

// places are workers on machines.
var places = []struct {
	operation string
	at        []int
}{
	{"ring", []int{0, 1, 2, 3}},
	{"ring", []int{0, 0, 1, 1}},
	{"halving-doubling", []int{0, 1, 2, 3}},
	{"halving-doubling", []int{0, 0, 1, 1}},
	{"halving-doubling", []int{0, 1, 0, 1}},
	{"halving-doubling", []int{0, 0, 0, 2}},
	{"halving-doubling", []int{0, 0, 0, 1, 2, 3}},
	{"halving-doubling", []int{0, 0, 0, 1, 2, 3, 3, 3}},
	{"halving-doubling-near", []int{0, 0, 0, 0, 1, 1, 1, 1}},
	{"recursive-doubling", []int{0, 0, 1}},
	{"parameter-server", []int{0, 1, 2, 3}},
}

// Wherever ranks are, all sums are right, and an all-reduce takes about as long as it should:
// how nearly is BenchmarkSchedules.
func TestRanksOnHosts(t *testing.T) {
	t.Parallel()
	if !netnstest.Apart(t) {
		return
	}
	l := newStar(t, 4, 50e6, 50*time.Microsecond)
	for _, c := range places {
		if !proof.Wanted() && len(c.at) > 4 {
			continue
		}
		const bytes = 50_000
		took := l.ranks(agent.Config{Operation: c.operation, Message: bytes, Compute: 10e-3, Iterations: 3}, c.at...).comm()
		s, err := collectives.New(c.operation, len(c.at))
		if err != nil {
			t.Fatal(err)
		}
		net := collectives.Network{Rate: func(int) float64 { return 50e6 * 1448 / 1514 }, Latency: 100e-6}
		if want := s.Seconds(c.at, 8*bytes, net); took < want/2 {
			t.Errorf("%s at %v took %.1f ms; the cables take %.1f ms", c.operation, c.at, 1e3*took, 1e3*want)
		}
	}
}

// Whatever happens to a rank, all others end in time, and some of them say who it was.
func TestRankFaults(t *testing.T) {
	t.Parallel()
	if !netnstest.Apart(t) {
		return
	}
	l := newStar(t, 4, 20e6, 50*time.Microsecond)
	signal := func(name string) func(r *rank) {
		return func(r *rank) {
			_, err := l.hosts["h3"].Run(t.Context(), []string{"sh", "-c",
				"kill -" + name + " $(grep -la 'rank A/[2]' /proc/[1-9]*/cmdline | cut -d/ -f3)"}, nil)
			if err != nil {
				t.Error(err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		fault func(r *rank)
		want  string
	}{
		{"killed", signal("KILL"), "rank is gone: rank 2"},
		{"stopped", signal("STOP"), "no answer in time: rank 2"},
		{"abandoned", func(r *rank) { r.p.Stdin.Close() }, "rank is gone: rank 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := agent.Config{Operation: "halving-doubling", Message: 400_000, Compute: 1e-3, Timeout: 8 * time.Second}
			j := l.ranks(cfg, 0, 1, 2, 3, 0)
			j.until("started")
			time.Sleep(100 * time.Millisecond) // in the midst of an iteration, wherever
			began := time.Now()
			c.fault(j.ranks[2])
			var all []string
			for i, r := range j.ranks {
				if i != 2 {
					all = append(all, r.until("error").Error)
				}
			}
			if !strings.Contains(strings.Join(all, "\n"), c.want) {
				t.Errorf("nobody says %q: %q", c.want, all)
			}
			t.Logf("after %.1f s: %s", time.Since(began).Seconds(), strings.Join(all, "\n"))
			j.ranks[2].p.Kill(context.WithoutCancel(t.Context())) // it may be dead
		})
	}
}

// BenchmarkSchedules is how long all-reduces take, how long package collectives says from what
// two ranks measured before, and how far off that is.
func BenchmarkSchedules(b *testing.B) {
	const bytes = 200_000
	l := newStar(b, 4, 20e6, 50*time.Microsecond)
	net := l.calibrate(bytes)
	for _, c := range places {
		b.Run(fmt.Sprintf("%s/at=%v", c.operation, strings.Trim(strings.ReplaceAll(fmt.Sprint(c.at), " ", ","), "[]")), func(b *testing.B) {
			s, err := collectives.New(c.operation, len(c.at))
			if err != nil {
				b.Fatal(err)
			}
			var took float64
			for range b.N { // once takes seconds
				took = l.ranks(agent.Config{Operation: c.operation, Message: bytes, Compute: 50e-3, Iterations: 10}, c.at...).comm()
			}
			want := s.Seconds(c.at, 8*bytes, net)
			b.ReportMetric(1e3*took, "ms")
			b.ReportMetric(1e3*want, "ms-predicted")
			b.ReportMetric(100*(took/want-1), "%-off")
			b.ReportMetric(0, "ns/op")
		})
	}
}
