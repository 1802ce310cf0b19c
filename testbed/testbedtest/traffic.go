package testbedtest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// lengths of messages, in bytes and packets.
var lengths = []struct {
	name           string
	bytes, packets int64
}{
	{"one packet", 4 * lanes, 1},
	{"one packet and a bit", 4*lanes + 4, 2}, // which is padded
	{"many packets", 100 * 4 * lanes, 100},
}

const iterations = 3

// sums: every worker gets the exact sum of all, every time, and jobs end when they
// have done their iterations.
func (b bed) sums(t *testing.T) {
	for _, mode := range []string{"statistical", "synchronous"} {
		for workers := 1; workers <= 3; workers++ {
			if mode == "synchronous" && workers == 1 {
				continue // nothing to aggregate
			}
			for i, l := range lengths {
				if !proof.Wanted() && (workers < 3 || i == 0) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d workers/%s", mode, workers, l.name), func(t *testing.T) {
					b.reduce(t, testbed.Settings{Mode: mode}, job{name: "A", workers: workers, ps: "h3", message: l.bytes, iterations: iterations}, l.packets)
				})
			}
		}
	}
	for _, addressing := range []string{"hash", "linear", "atp"} {
		t.Run(addressing, func(t *testing.T) {
			b.reduce(t, testbed.Settings{Addressing: addressing, Aggregators: window},
				job{name: "A", workers: 3, ps: "h3", message: lengths[2].bytes, iterations: iterations}, lengths[2].packets)
		})
	}
	for _, collective := range []placement.Collective{placement.PS, placement.Ring} {
		t.Run(string(collective), func(t *testing.T) {
			j := job{name: "A", workers: 3, ps: "h3", collective: collective, message: lengths[2].bytes, iterations: iterations}
			packets := lengths[2].packets
			if collective == placement.Ring {
				j.ps, packets = "", 0 // TCP's
			}
			b.reduce(t, testbed.Settings{}, j, packets)
		})
	}
}

// local: a job that is all on one host sends nothing; it computes, and ends.
func (b bed) local(t *testing.T) {
	const compute = 20 * time.Millisecond // of an iteration
	model := job{name: "model", workers: 1, layers: []testbed.Layer{{Bytes: 1000, Compute: compute / 4}, {Bytes: 1000, Compute: compute * 3 / 4}}}
	finite := model
	finite.name, finite.iterations = "finite", iterations
	stream, message, nothing := job{name: "stream", workers: 1}, job{name: "message", workers: 1, message: 1000}, job{name: "nothing", workers: 1, message: 1000}
	nothing.iterations = iterations
	ring := stream
	ring.name, ring.collective = "ring", placement.Ring
	for _, mode := range []string{"statistical", "synchronous"} {
		t.Run(mode, func(t *testing.T) {
			d := b.deploy(t, b.setup(t, testbed.Settings{Mode: mode}, model, finite, stream, message, nothing, ring))
			before := newReadings(d.sample())
			d.start()
			ending := d
			ending.jobs = slices.DeleteFunc(slices.Clone(d.jobs), func(j placement.JobPlan) bool { return j.Name != "finite" && j.Name != "nothing" })
			ending.finish(b.Patience)
			after := newReadings(d.sample())
			d.stop()
			for _, s := range d.summaries() {
				if !s.Local || s.Packets != 0 || s.SumsChecked != 0 || s.AlgBW != 0 {
					t.Errorf("%+v", s)
				}
				n, jct := int64(0), 0.0
				switch s.Job {
				case "finite":
					n, jct = iterations, iterations*compute.Seconds()
				case "nothing":
					n = iterations
				case "model":
					n = max(1, s.Iterations)
					jct = float64(n) * compute.Seconds()
				}
				if s.Iterations != n || math.Abs(s.JCT-jct) > 1e-6 {
					t.Errorf("job %s: %d iterations in %v s, want %d in %v s", s.Job, s.Iterations, s.JCT, n, jct)
				}
			}
			for key, v := range after.value { // hosts send a packet by themselves now and then (IGMP)
				if n := v - before.value[key]; strings.HasSuffix(strings.Fields(key)[0], "x_packets") && n > 5 {
					t.Errorf("%s grew by %v", key, n)
				}
			}
		})
	}
}

// online: jobs come and go while others run. What is left alone is not disturbed, a
// removed job's ID serves another, and switches count it from zero or go on, but never
// mix its sums up.
func (b bed) online(t *testing.T) {
	const packets = 200
	message := func(name string, workers int) job {
		return job{name: name, workers: workers, ps: "h3", message: packets * 4 * lanes, iterations: iterations}
	}
	d := b.deploy(t, b.setup(t, testbed.Settings{}, job{name: "stays", workers: 2, ps: "h3"}))
	d.start()
	others := b.setup(t, testbed.Settings{}, job{name: "stays", workers: 2, ps: "h3"}, message("first", 2), message("second", 3), job{name: "local", workers: 1, iterations: 1, message: 1})
	add := func(id uint16, i int) placement.JobPlan {
		p := others.Plan.Jobs[i]
		p.ID = id
		d.must("add "+p.Name, func() error { return d.Add(d.Context(), p, others.Workloads[i]) })
		return p
	}
	remove := func(p placement.JobPlan) {
		d.must("remove "+p.Name, func() error { return d.Remove(d.Context(), p.Name) })
		if _, err := d.Summary(p.Name); err == nil {
			t.Errorf("job %s was removed and has a summary", p.Name)
		}
	}
	end := func(p placement.JobPlan, sent int64) {
		one := d
		one.jobs = []placement.JobPlan{p}
		sum := one.finish(time.Minute)[0]
		if sum.Iterations == 0 || sum.Packets < sent {
			t.Errorf("%+v", sum)
		}
		d.exact(sum, sent*lanes)
	}
	finish := func(p placement.JobPlan, sent int64) {
		d.must("start "+p.Name, func() error { return d.Start(d.Context(), p.Name) })
		end(p, sent)
	}
	if err := d.Add(d.Context(), others.Plan.Jobs[0], others.Workloads[0]); err == nil {
		t.Error("a job was added twice")
	}
	for range 2 {
		first := add(2, 1)
		second := add(3, 2)
		finish(first, packets*iterations*2)
		remove(first)
		local := add(2, 3)
		finish(local, 0)
		d.must("start second", func() error { return d.Start(d.Context(), "second") })
		limit := d.Now() + 20*time.Second
		d.must("sleep until job second has ended", func() error { return d.Sleep(d.Context(), limit, d.Done("second")) })
		select {
		case <-d.Done("second"):
		default:
			t.Fatalf("job second is not done at %v", d.Now())
		}
		if d.Now() >= limit {
			t.Error("slept on when job second had ended")
		}
		end(second, packets*iterations*3)
		remove(second)
		remove(local)
	}
	if err := d.Remove(d.Context(), "first"); err == nil {
		t.Error("a job was removed twice")
	}
	before := newReadings(d.sample())
	d.sleep(200 * time.Millisecond)
	after := newReadings(d.sample())
	key := "worker_goodput_bytes stays/0"
	if after.value[key] <= before.value[key] {
		t.Errorf("%s: %v, then %v", key, before.value[key], after.value[key])
	}
	d.stop()
	d.exact(d.summaries()[0], 1)
}

// sumsAcross: the same through two levels of switches.
func (b bed) sumsAcross(t *testing.T) {
	for _, mode := range []string{"statistical", "synchronous"} {
		t.Run(mode, func(t *testing.T) {
			b.reduce(t, testbed.Settings{Mode: mode}, job{name: "A", workers: 4, ps: "h4", message: lengths[2].bytes, iterations: iterations}, lengths[2].packets)
		})
	}
}

// reduce runs one job of a number of packets per iteration to its end.
func (b bed) reduce(t *testing.T, s testbed.Settings, j job, packets int64) results.JobSummary {
	t.Helper()
	setup := b.setup(t, s, j)
	if s.Addressing == "atp" {
		setup.Workloads[0].Slots = window / 2
	}
	d := b.deploy(t, setup)
	d.start()
	sum := d.finish(time.Minute)[0]
	if sum.Iterations != j.iterations || sum.JCT <= 0 {
		t.Errorf("%d of %d iterations, JCT %v s", sum.Iterations, j.iterations, sum.JCT)
	}
	sent := packets * j.iterations * int64(j.workers)
	if sum.Packets < sent {
		t.Errorf("%d packets sent, want %d", sum.Packets, sent)
	}
	d.exact(sum, max(1, sent*lanes))
	r := newReadings(d.sample())
	for w := range j.workers {
		of := fmt.Sprintf("%s/%d", j.name, w)
		if got := r.value["worker_goodput_bytes "+of]; got != float64(j.message*j.iterations) {
			t.Errorf("worker %s reduced %v B, want %d iterations of %d B", of, got, j.iterations, j.message)
		}
	}
	return sum
}

// damage: sums stay exact when every link loses, duplicates and reorders.
func (b bed) damage(t *testing.T) {
	if !b.tb.Capabilities().Impairments {
		return // honesty has seen it refused
	}
	all := b.tb.Inventory().Topology().Links
	set := func(t *testing.T, d deployed, s testbed.LinkState) {
		for _, l := range all {
			d.must("damage "+l.Name, func() error { return d.SetLink(t.Context(), l.Name, s) })
		}
	}
	for _, mode := range []string{"statistical", "synchronous"} {
		t.Run(mode, func(t *testing.T) {
			const packets = 60
			d := b.deploy(t, b.setup(t, testbed.Settings{Mode: mode},
				job{name: "A", workers: 2, ps: "h3", message: packets * 4 * lanes, iterations: iterations}))
			defer set(t, d, testbed.LinkState{})
			set(t, d, testbed.LinkState{Loss: 0.05, Duplicate: 0.02, Reorder: 0.1, ReorderBy: 5 * time.Millisecond})
			before := d.quiet(newReadings(nil))
			d.start()
			sum := d.finish(2 * time.Minute)[0]
			if sum.Iterations != iterations {
				t.Errorf("%d of %d iterations", sum.Iterations, iterations)
			}
			d.exact(sum, 2*iterations*packets*lanes)
			if sum.Resends == 0 {
				t.Error("nothing was lost: no packet was sent again")
			}
			set(t, d, testbed.LinkState{})
			after := d.quiet(before)
			if _, counts := after.value["port_rx_drop_packets "+all[0].Name]; !counts {
				t.Log("the switches do not count what their cables lose: no accounting of links")
				return
			}
			b.conserved(t, before, after, d.jobs)
		})
	}
}

// competition: two jobs want more aggregators than there are. Each gets some of its
// PSNs aggregated, none all, and no sum is wrong.
func (b bed) competition(t *testing.T) {
	for _, addressing := range []string{"pool", "hash"} {
		t.Run(addressing, func(t *testing.T) {
			d := b.deploy(t, b.setup(t, testbed.Settings{Addressing: addressing, Aggregators: 4},
				job{name: "A", workers: 2, ps: "h3"}, job{name: "B", workers: 3, ps: "h3"}))
			d.start()
			d.sleep(600 * time.Millisecond)
			d.stop()
			r := newReadings(d.sample())
			for i, s := range d.summaries() {
				d.exact(s, 1)
				of := d.jobs[i].Name + "@tor1"
				granted, denied := r.value["job_granted_packets "+of], r.value["job_denied_packets "+of]
				if granted == 0 || denied == 0 {
					t.Errorf("job %s: %v PSNs granted an aggregator, %v denied", s.Job, granted, denied)
				}
				in, out := r.value["job_in_packets "+of], r.value["job_out_packets "+of]
				if share := (in - out) / (in - granted - denied); !(share > 0 && share < 1) {
					t.Errorf("job %s: share %v (%v packets in, %v out)", s.Job, share, in, out)
				}
			}
		})
	}
}

// accounting: counters only grow, and what is sent on a link arrives or is dropped.
func (b bed) accounting(t *testing.T) {
	one := job{name: "A", workers: 4, ps: "h4"}
	t.Run("one job", func(t *testing.T) { b.account(t, one) })
	t.Run("three jobs", func(t *testing.T) {
		b.account(t, one, job{name: "B", hosts: []string{"h1", "h3"}, ps: "h2"},
			job{name: "C", hosts: []string{"h2", "h4"}, collective: placement.Ring, message: 16 << 10})
	})
}

func (b bed) account(t *testing.T, jobs ...job) {
	d := b.deploy(t, b.setup(t, testbed.Settings{Aggregators: 16, Queue: "fair"}, jobs...))
	before := d.quiet(newReadings(nil))
	r := before.clone()
	d.start()
	for range 5 {
		d.sleep(100 * time.Millisecond)
		r.grow(t, d.sample())
	}
	d.stop()
	r = d.quiet(r)
	b.conserved(t, before, r, d.jobs)
	for _, j := range d.jobs {
		for _, w := range j.Workers {
			of := fmt.Sprintf("%s/%d", j.Name, w.Rank)
			if r.value["worker_goodput_bytes "+of] == 0 || r.value["worker_tx_bytes "+of] == 0 {
				t.Errorf("worker %s: nothing sent or reduced", of)
			}
		}
	}
}

// readings are the last values of counters, by "metric subject".
type readings struct {
	value map[string]float64
	when  map[string]float64
}

func newReadings(s []results.Sample) readings {
	r := readings{map[string]float64{}, map[string]float64{}}
	for _, x := range s {
		r.value[x.Metric+" "+x.Of] = x.Value
		r.when[x.Metric+" "+x.Of] = x.T
	}
	return r
}

func (r readings) clone() readings {
	c := newReadings(nil)
	for k, v := range r.value {
		c.value[k], c.when[k] = v, r.when[k]
	}
	return c
}

// grow takes further samples, none of whose counters may be less than before.
func (r readings) grow(t *testing.T, s []results.Sample) {
	t.Helper()
	for _, x := range s {
		key := x.Metric + " " + x.Of
		if was, seen := r.value[key]; seen && !x.Gauge && (x.Value < was || x.T < r.when[key]) {
			t.Errorf("%s: %s was %v at %v s and is %v at %v s", x.Source, key, was, r.when[key], x.Value, x.T)
		}
		r.value[key], r.when[key] = x.Value, x.T
	}
}

// quiet reads on from r until no link's counters change any more: what one end has
// sent the other has seen, also of what hosts send by themselves now and then (IGMP).
func (d deployed) quiet(r readings) readings {
	d.Helper()
	for range 50 {
		next := r.clone()
		next.grow(d.T, d.sample())
		if same(r, next) {
			return next
		}
		r = next
		d.sleep(100 * time.Millisecond)
	}
	d.Error("links do not become quiet")
	return r
}

// same reports whether no packet was counted on any link from one reading to the next.
func same(a, b readings) bool {
	for key, v := range b.value {
		metric, _, _ := strings.Cut(key, " ")
		if was, seen := a.value[key]; strings.HasSuffix(metric, "x_packets") && (!seen || was != v) {
			return false
		}
	}
	return true
}

// conserved holds counters against each other when nothing is on its way any more:
// on every directed link what one end sent the other end received (unless hosts do
// not count frames), and what came
// into a switch and was neither lost nor added by its cables it has treated as some
// job's.
func (b bed) conserved(t *testing.T, before, after readings, jobs []placement.JobPlan) {
	t.Helper()
	topo := b.tb.Inventory().Topology()
	slack := 0.0
	if b.tb.Capabilities().Virtual {
		slack = 4 // a model's packets are fractions
	}
	grown := func(metric, of string) (float64, bool) {
		v, ok := after.value[metric+" "+of]
		return v - before.value[metric+" "+of], ok
	}
	var carried float64
	for _, l := range topo.Links {
		from, to := "port", "port"
		if topo.IsHost(l.From) {
			from = "nic"
		}
		if topo.IsHost(l.To) {
			to = "nic"
		}
		if b.tb.Capabilities().SuperFrames && from != to {
			n, _ := grown("port_tx_packets", l.Name)
			m, _ := grown("port_rx_packets", l.Name)
			carried += n + m
			continue
		}
		sent, ok1 := grown(from+"_tx_packets", l.Name)
		received, ok2 := grown(to+"_rx_packets", l.Name)
		dropped := 0.0
		if to == "nic" {
			dropped, _ = grown("nic_rx_drops", l.Name)
		}
		if !ok1 || !ok2 {
			t.Errorf("link %s: no counters at both ends", l.Name)
			continue
		}
		if diff := sent - received - dropped; diff > slack || diff < -slack {
			t.Errorf("link %s: %v sent, %v received, %v dropped", l.Name, sent, received, dropped)
		}
		carried += sent
	}
	if carried == 0 {
		t.Error("no link carried anything")
	}
	if len(jobs) != 1 || jobs[0].Collective != placement.INA {
		return
	}
	for _, n := range jobs[0].Tree {
		var in float64
		for _, l := range topo.Links {
			if l.To != n.Switch {
				continue
			}
			rx, _ := grown("port_rx_packets", l.Name)
			dup, _ := grown("port_rx_dup_packets", l.Name)
			lost, _ := grown("port_rx_drop_packets", l.Name)
			stray, _ := grown("port_no_route_packets", l.Name)
			in += rx + dup - lost - stray
		}
		of := jobs[0].Name + "@" + n.Switch
		gradients, _ := grown("job_in_packets", of)
		answers, _ := grown("job_results_packets", of)
		refused, _ := grown("job_dropped_packets", of)
		if diff := in - gradients - answers - refused; diff > slack || diff < -slack {
			t.Errorf("switch %s: %v packets came in, %v gradients, %v results and %v refused were seen", n.Switch, in, gradients, answers, refused)
		}
	}
}
