package deployment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/stall"
)

// An agent that is late is fatal, one that stood still once is not, if that is left out. For
// one that stood still for more than a quarter of the time nothing is left out.
func TestAgentTrouble(t *testing.T) {
	const ms = time.Millisecond
	a := newAgent("worker A/0", "A", "A/0", "h1", 0, func(*remoteAgent, *agent.Event) {})
	a.Take(&agent.Event{Event: "started", T: 2})
	a.Take(&agent.Event{Event: "sample", T: 10, Stats: &agent.Stats{Processor: 1}})
	a.spent = 1
	late := agent.Stats{LateP99: .05, ClearP99: .001}
	for name, tt := range map[string]struct {
		stats   agent.Stats
		rtt     time.Duration
		stalls  stall.Total
		leftOut bool
		want    []string // a fatal one begins with "!"
	}{
		"in time":          {agent.Stats{LateP99: .03, ClearP99: .03}, 200 * ms, stall.Total{}, true, nil},
		"nothing to judge": {agent.Stats{LateP99: 1}, 0, stall.Total{}, false, nil},
		"late":             {agent.Stats{LateP99: .05, ClearP99: .05}, 200 * ms, stall.Total{}, true, []string{"!paced sends 99th percentile 50.0 ms late, 25.0 % of the round trip (limit 20.0 %)"}},
		"held up":          {agent.Stats{LateP99: 1, ClearP99: 1, Processor: 1.4}, 200 * ms, stall.Total{}, true, []string{"paced sends 99th percentile 1.00 s late, and it ran or waited for a processor for 5.0 % of the time: it was held up"}},
		"slow":             {agent.Stats{LateP99: 1, ClearP99: 1, Processor: 8}, 200 * ms, stall.Total{}, true, []string{"!paced sends 99th percentile 1.00 s late"}},
		"with its machine": {agent.Stats{LateP99: 1, Processor: 1.4}, 200 * ms, stall.Total{Count: 9, Sum: 3 * time.Second, Longest: time.Second}, true,
			[]string{"stood still 9 times", "!paced sends 99th percentile 1.00 s late"}},
		"stood still": {late, 200 * ms, stall.Total{Count: 2, Sum: 200 * ms, Longest: 104 * ms}, true,
			[]string{"stood still 2 times, 200 ms in all, longest 104 ms, 2.0 % of the time (limit 25.0 %); with these, paced sends 99th percentile 50.0 ms late"}},
		"and nobody leaves that out": {late, 200 * ms, stall.Total{Count: 1, Sum: 200 * ms, Longest: 200 * ms}, false,
			[]string{"stood still once, 200 ms, 2.0 %", "!paced sends 99th percentile 50.0 ms late, 25.0 %"}},
		"late besides": {agent.Stats{LateP99: .06, ClearP99: .05}, 200 * ms, stall.Total{Count: 1, Sum: 200 * ms, Longest: 200 * ms}, true,
			[]string{"stood still once, ", "!besides, paced sends 99th percentile 50.0 ms late, 25.0 %"}},
		"stood still all the time": {agent.Stats{}, 200 * ms, stall.Total{Count: 9, Sum: 3 * time.Second, Longest: time.Second}, true,
			[]string{"stood still 9 times, 3000 ms in all, longest 1000 ms, 30.0 % of the time (limit 25.0 %)"}},
		"late all the time": {late, 200 * ms, stall.Total{Count: 9, Sum: 3 * time.Second, Longest: time.Second}, true,
			[]string{"stood still 9 times", "!paced sends 99th percentile 50.0 ms late, 25.0 %"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := agentTrouble(a, &tt.stats, tt.rtt, tt.stalls, 10*time.Second, tt.leftOut)
			if len(got) != len(tt.want) {
				t.Fatalf("got %+v, want %q", got, tt.want)
			}
			for i, x := range got {
				want, fatal := strings.CutPrefix(tt.want[i], "!")
				if !strings.HasPrefix(x.What, want) || x.Fatal != fatal || x.Where != "worker A/0 on host h1" || fatal && x.Value <= x.Limit {
					t.Errorf("got %+v, want %q", x, tt.want[i])
				}
			}
		})
	}
}

// A PS is late with results.
func TestLateResults(t *testing.T) {
	a := newAgent("ps A", "A", "A/ps", "h3", 0, nil)
	a.ps = true
	got := agentTrouble(a, &agent.Stats{LateP99: .05, ClearP99: .05}, 200*time.Millisecond, stall.Total{}, 10*time.Second, true)
	if len(got) != 1 || !got[0].Fatal || !strings.HasPrefix(got[0].What, "results 99th percentile 50.0 ms late, 25.0 % of the round trip") {
		t.Errorf("%+v", got)
	}
}

// What an agent tells is put on the run's clock, kept until somebody asks, and told once.
func TestHearStalls(t *testing.T) {
	a := newAgent("worker A/0", "A", "A/0", "h1", 200*time.Millisecond, nil)
	a.SetClock(collectors.Clock{Offset: -1000})
	a.hearStalls(&agent.Event{Stalls: []stall.Span{
		{Start: 1001 * time.Second, End: 1001*time.Second + 104*time.Millisecond, Late: 104 * time.Millisecond, Held: 90 * time.Millisecond, Count: 7},
		{Start: 1002 * time.Second, End: 1002*time.Second + 50*time.Millisecond, Late: 50 * time.Millisecond},
	}})
	got := a.stood()
	for i, want := range []testbed.Stall{
		{Start: time.Second, End: 1104 * time.Millisecond, Late: 104 * time.Millisecond, Held: 90 * time.Millisecond, Where: "worker A/0 on host h1", What: "paced sends were late by up to 104 ms"},
		{Start: 2 * time.Second, End: 2050 * time.Millisecond, Late: 50 * time.Millisecond, Where: "worker A/0 on host h1", What: "it did not run for up to 50.0 ms"},
	} {
		if len(got) != 2 || (got[i].Start-want.Start).Abs() > time.Microsecond || (got[i].End-want.End).Abs() > time.Microsecond ||
			got[i].Late != want.Late || got[i].Held != want.Held || got[i].Job != "A" || got[i].Where != want.Where || got[i].What != want.What {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if again := a.stood(); again != nil {
		t.Errorf("told twice: %+v", again)
	}
	if total := a.stalls.Totals(); total.Count != 2 {
		t.Errorf("totals %+v", total)
	}
}

// A job that stands still says which of its workers have ended, or do not even try.
func TestIdle(t *testing.T) {
	worker := func(name string, sent time.Duration, ended bool) *remoteAgent {
		a := newAgent(name, "A", "", "h"+name[len(name)-1:], 0, func(*remoteAgent, *agent.Event) {})
		if a.ps = name == "ps A"; ended {
			a.Take(&agent.Event{Event: "done"})
		}
		a.moved = time.Now().Add(-sent)
		return a
	}
	for _, c := range []struct {
		agents []*remoteAgent
		want   string
	}{
		{[]*remoteAgent{worker("worker A/0", 0, false), worker("worker A/1", 0, false), worker("ps A", time.Hour, false)}, ""},
		{[]*remoteAgent{worker("worker A/0", time.Hour, true), worker("worker A/1", 0, false)}, "worker A/0 on host h0 has ended"},
		{[]*remoteAgent{worker("worker A/0", 0, false), worker("worker A/1", time.Minute, false)}, "worker A/1 on host h1 sends nothing"},
		{[]*remoteAgent{worker("worker A/0", time.Minute, false), worker("worker A/1", time.Minute, false)}, "none of its workers sends anything"},
		// In the 25 timeouts that a job may be without results, a worker's own grows to 16.
		{[]*remoteAgent{worker("worker A/0", 6400*time.Millisecond, false), worker("worker A/1", 0, false)}, ""},
	} {
		if got := (&runningJob{agents: c.agents, work: testbed.Workload{RTO: 400 * time.Millisecond}}).idle(10 * time.Second); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestLateWithoutPS: workers that are late are so whatever adds their gradients up.
func TestLateWithoutPS(t *testing.T) {
	inv := &inventory.Inventory{Switches: []inventory.Switch{{Name: "tor1", Aggregators: 64}}}
	for i, name := range []string{"h1", "h2", "h3"} {
		inv.Hosts = append(inv.Hosts, inventory.Host{Name: name, GPUs: 1, NICs: []inventory.NIC{{
			Device: "eth0", Switch: "tor1", Port: uint32(i + 1), Rate: 8e6, Delay: time.Millisecond,
		}}})
	}
	for name, j := range map[string]placement.JobPlan{
		"with a PS":   {Collective: placement.INA, PS: "h3"},
		"synchronous": {Collective: placement.INA},
		"a ring":      {Collective: placement.Ring},
	} {
		j.ID, j.Name, j.Workers = 1, "A", []placement.Worker{{Host: "h1"}, {Host: "h2", Rank: 1}}
		if err := placement.BuildTree(inv.Topology(), inv, &j); err != nil {
			t.Fatal(err)
		}
		a := newAgent("worker A/0", "A", "A/0", "h1", 0, func(*remoteAgent, *agent.Event) {})
		a.Take(&agent.Event{Event: "started"})
		a.Take(&agent.Event{Event: "sample", T: 10, Stats: &agent.Stats{LateP99: .1, ClearP99: .1}})
		d := &deployment{
			setup: testbed.Setup{Settings: testbed.Settings{Lanes: 64}}, order: []string{"A"},
			jobs: map[string]*runningJob{"A": {plan: j, agents: []*remoteAgent{a}}},
		}
		got := d.agentsTrouble(inv.Topology(), 10*time.Second, true)
		if len(got) != 1 || !got[0].Fatal || !strings.HasPrefix(got[0].What, "paced sends 99th percentile") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestLateInLab: where cables are short a process is late against the round trip that was measured, hosts in. A fifth of one by
// the cables alone is less than any wake-up takes.
func TestLateInLab(t *testing.T) {
	inv := &inventory.Inventory{Switches: []inventory.Switch{{Name: "tor1", Aggregators: 64}}}
	for i, name := range []string{"h1", "h2", "h3"} {
		inv.Hosts = append(inv.Hosts, inventory.Host{Name: name, GPUs: 1, NICs: []inventory.NIC{{
			Device: "eth0", Switch: "tor1", Port: uint32(i + 1), Rate: 25e9, Delay: time.Microsecond,
		}}})
	}
	j := placement.JobPlan{ID: 1, Name: "A", Collective: placement.INA, PS: "h3", Workers: []placement.Worker{{Host: "h1"}, {Host: "h2", Rank: 1}}}
	if err := placement.BuildTree(inv.Topology(), inv, &j); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		trip time.Duration
		late float64
		want string // of the worker and of the PS; empty: nothing
	}{
		{200 * time.Microsecond, 39e-6, ""},
		{200 * time.Microsecond, 41e-6, "20.5 % of the round trip (limit 20.0 %)"},
		{time.Nanosecond, 39e-6, " of the round trip (limit 20.0 %)"}, // less than cables take was measured of something else
		{0, 39e-6, " of the round trip (limit 20.0 %)"},
	} {
		var agents []*remoteAgent
		for _, name := range []string{"worker A/0", "ps A"} {
			a := newAgent(name, "A", "", "h1", 0, func(*remoteAgent, *agent.Event) {})
			a.ps = name == "ps A"
			a.Take(&agent.Event{Event: "started"})
			a.Take(&agent.Event{Event: "sample", T: 10, Stats: &agent.Stats{LateP99: c.late, ClearP99: c.late}})
			agents = append(agents, a)
		}
		d := &deployment{
			setup: testbed.Setup{Settings: testbed.Settings{Lanes: 64}}, order: []string{"A"},
			jobs: map[string]*runningJob{"A": {plan: j, work: testbed.Workload{Job: j, Trip: c.trip}, agents: agents}},
		}
		got := d.agentsTrouble(inv.Topology(), 10*time.Second, true)
		if n := len(got); c.want == "" && n > 0 || c.want != "" && n != 2 {
			t.Errorf("a trip of %v, %g s late: %+v", c.trip, c.late, got)
		}
		for _, x := range got {
			if !x.Fatal || !strings.HasSuffix(x.What, c.want) {
				t.Errorf("a trip of %v, %g s late: %+v, want %q", c.trip, c.late, x, c.want)
			}
		}
	}
}

// TestBusyAtAHalt: a synchronous job that has no memory for a while is not expected to get results, whatever it began with.
func TestBusyAtAHalt(t *testing.T) {
	for _, tt := range []struct {
		collective placement.Collective
		mode       string
		window     int
		want       bool
	}{
		{placement.INA, "synchronous", 0, false},
		{placement.INA, "synchronous", 4, true},
		{placement.INA, "statistical", 0, true},
		{placement.PS, "synchronous", 0, true},
	} {
		j := &runningJob{
			plan: placement.JobPlan{Collective: tt.collective}, configs: []agent.Config{{Mode: tt.mode}},
			grant: placement.Grant{Window: tt.window}, begun: true, done: make(chan struct{}),
		}
		if got := j.busy(); got != tt.want {
			t.Errorf("%s in %s mode with a window of %d granted: %v", tt.collective, tt.mode, tt.window, got)
		}
	}
}

// TestCutOff: of an iteration that is stopped in its middle neither bytes nor time count in the bandwidth of a job.
func TestCutOff(t *testing.T) {
	for _, tt := range []struct {
		collective placement.Collective
		work       testbed.Workload
		want       float64 // bytes of an iteration
	}{
		{placement.INA, testbed.Workload{Message: 100e6}, 100e6},
		{placement.INA, testbed.Workload{Layers: []testbed.Layer{{Bytes: 30e6}, {Bytes: 20e6}}}, 50e6},
		{placement.Ring, testbed.Workload{}, 4 << 20},
		{placement.INA, testbed.Workload{}, 0},
	} {
		tt.work.Job = placement.JobPlan{Name: "A", Collective: tt.collective, Workers: make([]placement.Worker, 2)}
		j := &runningJob{plan: tt.work.Job, work: tt.work}
		for i, s := range []agent.Stats{
			{Iterations: 3, CommSum: 24, Goodput: int64(3.9 * tt.want)}, {Iterations: 2, CommSum: 15, Goodput: int64(3.9 * tt.want)},
		} {
			if tt.want == 0 {
				s.Iterations, s.CommSum = 0, 0
			}
			a := newAgent(fmt.Sprintf("worker A/%d", i), "A", fmt.Sprintf("A/%d", i), "h1", 0, func(*remoteAgent, *agent.Event) {})
			a.Take(&agent.Event{Event: "sample", T: 10, Stats: &s})
			j.agents = append(j.agents, a)
		}
		sum, err := (&deployment{jobs: map[string]*runningJob{"A": j}}).Summary("A")
		if want := 8 * tt.want / 8; err != nil || sum.AlgBW != want || sum.BusBW != want {
			t.Errorf("%s of %v bytes: %v and %v bit/s, want %v: %v", tt.collective, tt.want, sum.AlgBW, sum.BusBW, want, err)
		}
	}
}

// TestAgentsOfAJob: a job has ended when its workers have. Its PS goes on answering, and is late with results, not with sends.
func TestAgentsOfAJob(t *testing.T) {
	j := &runningJob{done: make(chan struct{}), agents: newAgents("A", []agentConfig{
		{"ps A", "A/ps", "h3", agent.Config{Role: "ps"}}, {"worker A/0", "A/0", "h1", agent.Config{Role: "worker"}},
	}, nil)}
	ps, worker := j.agents[0], j.agents[1]
	if got := j.workers(); len(got) != 1 || got[0] != worker || ps.does() != "results" || worker.does() != "paced sends" {
		t.Errorf("%d workers; the PS %s, the worker %s", len(got), ps.does(), worker.does())
	}
	ended := func() bool {
		select {
		case <-j.done:
			return true
		default:
			return false
		}
	}
	j.left.Store(1)
	if j.ended(ps); ended() {
		t.Error("it has ended with its PS")
	}
	if j.ended(worker); !ended() {
		t.Error("it has not ended with its worker")
	}
}
