package carry

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/preflight"
)

// Engine is what a host's software spends on packets of gradients and results, which workers and PSes send and receive
// through sockets. A packet that is sent or received costs Packet + Byte times the bytes of its frame.
type Engine struct {
	CPUs   int     `json:"cpus"`
	Packet float64 `json:"packet"` // seconds of processor time, 0 or more
	Byte   float64 `json:"byte"`   // seconds of processor time, 0 or more
	// Others is the part of all cores that something else used meanwhile, 0 to 1: without that, packets cost less.
	Others float64 `json:"others"`

	// What it was measured on, with, and when: another machine has other costs.
	On   string    `json:"on"`   // machine-id, kernel, processors and their governors
	Tool string    `json:"tool"` // version of this program
	At   time.Time `json:"at"`
}

// What a host may say of itself: anything else is no measurement.
const (
	mostCPUs  = 1 << 16
	leastCost = 1e-9 // seconds, of the smallest packet
	mostCost  = 1e-2 // seconds, of the largest packet
)

func (e Engine) valid() bool {
	return e.CPUs > 0 && e.CPUs <= mostCPUs && e.Packet >= 0 && e.Byte >= 0 && e.Others >= 0 && e.Others <= 1 &&
		e.cost(engineLanes) >= leastCost && e.cost(ina.MaxLanes) <= mostCost
}

// disturbed says whether others used the host so much that packets may cost far less.
func (e Engine) disturbed() bool { return e.Others > quiet }

// cost is what a packet of so many lanes costs where it is sent or received, seconds.
func (e Engine) cost(lanes int) float64 { return e.Packet + e.Byte*frameBytes(lanes) }

// Able is how many packets a second one core sends and receives together.
func (e Engine) Able(lanes int) float64 { return 1 / e.cost(lanes) }

// frameBytes is the size of a frame of gradients.
func frameBytes(lanes int) float64 {
	return float64((&placement.Conditions{Lanes: lanes}).FrameBytes())
}

// Rail is what goes over one NIC, packets a second.
type Rail struct {
	Device         string
	Sent, Received float64
}

// Process is a worker or a PS, which is one thread.
type Process struct {
	Name    string  // "worker 0 of job A"
	Packets float64 // that it sends and receives together, a second
	Window  bool    // its job's window limits it, see Ask.Window
}

// Ask is what the workers and PSes of a phase ask of the software of the host that they are on.
type Ask struct {
	Host      string
	Lanes     int       // of a packet
	Rails     []Rail    // that are used, in the inventory's order
	Processes []Process // that send packets
	Rings     int       // workers of rings beside these: the kernel's TCP sends for them, and nothing is known of that
	// Window is a job that its window limits, as long as nobody has calibrated its round trip: it may ask for far less.
	// "": there is none.
	Window string
}

// Packets is what is sent and received together, a second.
func (a Ask) Packets() (total float64) {
	for _, p := range a.Processes {
		total += p.Packets
	}
	return total
}

// busiest is the process that sends and receives most; the zero Process of none.
func (a Ask) busiest() (most Process) {
	for _, p := range a.Processes {
		if p.Packets > most.Packets {
			most = p
		}
	}
	return most
}

// certain is what is asked whatever windows' round trips turn out to be.
func (a Ask) certain() Ask {
	a.Processes = slices.DeleteFunc(slices.Clone(a.Processes), func(p Process) bool { return p.Window })
	return a
}

// Asks is what a plan asks of each host in each of its phases, frames having so many lanes; calibrates says whether a run
// measures round trips before it predicts again. Jobs on one host send nothing, and a host with rings alone is asked for
// nothing that is known.
func Asks(inv *inventory.Inventory, plan *placement.Plan, phases []*placement.Prediction, lanes int, calibrates bool) (out []Ask, err error) {
	topo := inv.Topology()
	for _, p := range phases {
		t, err := trafficOf(topo, plan, p, lanes)
		if err != nil {
			return nil, err
		}
		of := map[string]*Ask{}
		for _, h := range inv.Hosts {
			a := &Ask{Host: h.Name, Lanes: lanes}
			for _, i := range topo.Out(h.Name) {
				l := topo.Links[i]
				if r := (Rail{l.NIC, t.packets[i], t.packets[l.Reverse]}); r.Sent+r.Received > 0 {
					a.Rails = append(a.Rails, r)
				}
			}
			of[h.Name] = a
		}
		if err := occupy(of, topo, plan, p, t); err != nil {
			return nil, err
		}
		for _, h := range inv.Hosts {
			a := of[h.Name]
			if !calibrates {
				a.Window = ""
			}
			if a.Packets() > 0 {
				out = append(out, *a)
			}
		}
	}
	return out, nil
}

// occupy adds the workers and PSes of a phase to what is asked of their hosts. A worker sends what is predicted, and
// receives a result for each packet. What else goes over its host's NICs is a PS's, and where there are several, each
// one's by the packets that it handles.
func occupy(of map[string]*Ask, topo *inventory.Topology, plan *placement.Plan, p *placement.Prediction, t traffic) error {
	type server struct {
		host, name string
		weight     float64
		limited    bool
	}
	var servers []server
	rest, weights := map[string]float64{}, map[string]float64{} // by host
	for host, a := range of {
		for _, r := range a.Rails {
			rest[host] += r.Sent + r.Received
		}
	}
	for n := range p.Jobs {
		jp := &p.Jobs[n]
		j := &plan.Jobs[slices.IndexFunc(plan.Jobs, func(j placement.JobPlan) bool { return j.Name == jp.Name })] // trafficOf has found it
		if j.Local() {
			continue
		}
		rate, limited := 0.0, jp.HeldBy() == windowed // packets a second of a worker; by its window
		for k, w := range j.Workers {
			a := of[w.Host]
			if j.Collective == placement.Ring {
				a.Rings++
				continue
			}
			path, err := topo.PathBy(w.End(), j.Goal(k))
			if err != nil {
				return fmt.Errorf("demand: job %s: %w", j.Name, err)
			}
			if len(path) == 0 { // beside its PS
				path = topo.Out(w.Host)
			}
			rate = max(1, t.peak[path[0]]) * jp.WireRate / (8 * frameBytes(a.Lanes))
			a.Processes = append(a.Processes, Process{fmt.Sprintf("worker %d of job %s", w.Rank, j.Name), 2 * rate, limited})
			if !j.Beside(w) { // else a PSN leaves by the NIC, and the PS's answer does not: it is the PS's all the same
				rest[w.Host] -= 2 * rate
			}
			if limited {
				a.Window = j.Name
			}
		}
		if j.PS != "" && j.Collective != placement.Ring {
			s := server{j.PS, "the PS of job " + j.Name, rate * handled(j, jp), limited}
			servers = append(servers, s)
			weights[s.host] += s.weight
			if limited {
				of[j.PS].Window = j.Name
			}
		}
	}
	for _, s := range servers {
		if s.weight > 0 {
			part := max(0, rest[s.host]) * s.weight / weights[s.host]
			of[s.host].Processes = append(of[s.host].Processes, Process{s.name, part, s.limited})
		}
	}
	return nil
}

// windowed is the bottleneck of a job that its window limits, in placement.JobPrediction.
const windowed = "window"

// handled are the packets of a PSN that a job's PS receives and sends: as many come as the root says, if it does, or as
// there are workers; and one result goes to all workers, or without aggregation one to each.
func handled(j *placement.JobPlan, jp *placement.JobPrediction) float64 {
	n := float64(len(j.Workers))
	if j.Collective == placement.PS {
		return 2 * n
	}
	if k := len(jp.Shares) - 1; k >= 0 && jp.Shares[k].Up > 0 && jp.Shares[k].Switch == j.Tree[len(j.Tree)-1].Switch {
		return jp.Shares[k].Up + 1
	}
	return n + 1
}

// thread is the part of a core that the busiest process needs, and cores that of all cores that all of them need.
func (e Engine) thread(a Ask) float64 { return a.busiest().Packets * e.cost(a.Lanes) }
func (e Engine) cores(a Ask) float64  { return a.Packets() * e.cost(a.Lanes) / float64(e.CPUs) }

// use is the part of what the host is able to do that is asked of it; 1 is all.
func (e Engine) use(a Ask) float64 { return max(e.thread(a), e.cores(a)) }

// doubt is how many times more than what a disturbed host was able to do it is able to do alone, at most.
const doubt = 4

// outcome is Pass up to Busy of what the host is able to do, Inconclusive up to all of that, and then Fail, unless that is
// not certain.
func (e Engine) outcome(a Ask) results.Outcome {
	switch use := e.use(a); {
	case use <= Busy:
		return results.Pass
	case use <= 1, a.Window != "" && e.use(a.certain()) <= 1, e.disturbed() && use <= doubt:
		return results.Inconclusive
	}
	return results.Fail
}

// worst is what the host is not able to do, or comes nearest to that, of at least one.
func (e Engine) worst(asks []Ask) Ask {
	rank := func(a Ask) int {
		if e.outcome(a) == results.Fail {
			return 1
		}
		return 0
	}
	return slices.MaxFunc(asks, func(a, b Ask) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(e.use(a), e.use(b))) })
}

// measured is the engine of a host, or why it is not known.
type measured struct {
	engine Engine
	err    error
}

// judge is the outcome of preflight.Ceiling for a host, by the worst of what is asked of it. Of a host of which nothing is
// asked it says what that is able to do.
func (m measured) judge(host string, asks []Ask) results.Preflight {
	p := results.Preflight{Name: preflight.Ceiling, Host: host, Outcome: results.Pass}
	e := m.engine
	switch {
	case m.err != nil:
		p.Outcome, p.Why = results.Skipped, strings.Join(strings.Fields(hosts.Reason(host, m.err)), " ")
		return p
	case len(asks) == 0:
		p.Found = fmt.Sprintf("able to send and receive %s on each of %s", rate(e.Able(ina.MaxLanes), ina.MaxLanes), human.Plural(e.CPUs, "core")) + e.besides(Ask{})
		return p
	}
	a := e.worst(asks)
	able := e.Able(a.Lanes)
	if e.thread(a) >= e.cores(a) {
		b := a.busiest()
		p.Found = fmt.Sprintf("asked to send and receive %s by %s, able to do %s with one thread", rate(b.Packets, a.Lanes), b.Name, rate(able, a.Lanes))
	} else {
		able *= float64(e.CPUs)
		p.Found = fmt.Sprintf("asked to send and receive %s%s by %d workers and PSes, able to do %s on %s",
			rate(a.Packets(), a.Lanes), a.rails(), len(a.Processes), rate(able, a.Lanes), human.Plural(e.CPUs, "core"))
	}
	p.Found += ", limited by " + e.limit(a) + e.besides(a)
	if p.Outcome = e.outcome(a); p.Outcome == results.Pass {
		return p
	}
	p.Wanted = fmt.Sprintf("at most %s, %s %% of that, since packets come in bursts", rate(Busy*able, a.Lanes), percent(Busy/e.use(a)))
	p.Hint = e.help(a)
	return p
}

// percent writes a part as percent to two digits, cut off.
func percent(part float64) string {
	if part >= 0.01 {
		part = math.Floor(100*part) / 100
	}
	return fmt.Sprintf("%.2g", 100*part)
}

// besides says what makes a judgement less certain.
func (e Engine) besides(a Ask) (s string) {
	if a.Rings > 0 {
		s += fmt.Sprintf("; %s of rings there are not counted", human.Plural(a.Rings, "worker"))
	}
	if a.Window != "" {
		s += fmt.Sprintf("; job %s may ask for less, since a run calibrates the round trip of its window", a.Window)
	}
	if e.disturbed() {
		s += fmt.Sprintf("; others used %.0f %% of its cores while it was measured", 100*e.Others)
	}
	return s
}

// rate says packets a second, and as bits.
func rate(packets float64, lanes int) string {
	bytes := frameBytes(lanes)
	return fmt.Sprintf("%s packets/s of %.0f bytes (%s)", about(packets), bytes, human.Quantity(8*bytes*packets, "bit/s"))
}

// rails says what goes over each NIC; "" of one.
func (a Ask) rails() string {
	if len(a.Rails) < 2 {
		return ""
	}
	var each []string
	for _, r := range a.Rails {
		each = append(each, fmt.Sprintf("%s %s", r.Device, about(r.Sent+r.Received)))
	}
	return " (" + strings.Join(each, ", ") + ")"
}

// limit says what keeps the host from more: a thread or its cores, and which part of a packet costs more.
func (e Engine) limit(a Ask) string {
	of := "cores"
	if e.thread(a) >= e.cores(a) {
		of = "a thread"
	}
	if e.perPacket(a) {
		return of + " and the number of packets"
	}
	return of + " and bits"
}

// perPacket says whether a packet costs more than the bytes in it.
func (e Engine) perPacket(a Ask) bool { return e.Packet >= e.Byte*frameBytes(a.Lanes) }

// help says what makes a plan ask for less.
func (e Engine) help(a Ask) string {
	ways := []string{"lower the rate of jobs"}
	if a.Window != "" {
		ways = append(ways, "lower the window of job "+a.Window)
	}
	if e.perPacket(a) && a.Lanes < ina.MaxLanes {
		ways = append(ways, fmt.Sprintf("send larger frames: switch.lanes = %d", ina.MaxLanes))
	}
	if e.cores(a) > e.thread(a) {
		ways = append(ways, "place fewer workers and PSes on a host")
	}
	return strings.Join(ways, ", or ")
}

// errUnmeasured is a host of which nothing was kept that still holds.
var errUnmeasured = errors.New("not measured: inabench preflight -i EXPERIMENT.toml measures it")

// Foresee judges what is asked of hosts as Look does, by what was kept of them, without asking them: a host may
// have another kernel since, and one of which nothing was kept is skipped.
func Foresee(inv *inventory.Inventory, asks []Ask, tool string) (out []results.Preflight) {
	of := byHost(asks)
	for _, h := range inv.Hosts {
		if len(asks) > 0 && len(of[h.Name]) == 0 {
			continue
		}
		m := measured{err: errUnmeasured}
		if e, ok := KnownEngine(h, tool); ok {
			m = measured{engine: e}
		}
		out = append(out, m.judge(h.Name, of[h.Name]))
	}
	return out
}

func byHost(asks []Ask) map[string][]Ask {
	out := map[string][]Ask{}
	for _, a := range asks {
		out[a.Host] = append(out[a.Host], a)
	}
	return out
}
