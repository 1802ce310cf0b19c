package carry

import (
	"cmp"
	"errors"
	"fmt"
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

	// What it was measured on, with, and when: another machine has other costs.
	Machine string    `json:"machine"` // its machine-id, "" of one without
	Kernel  string    `json:"kernel"`
	Tool    string    `json:"tool"` // version of this program
	At      time.Time `json:"at"`
}

func (e Engine) valid() bool {
	return e.CPUs > 0 && e.Packet >= 0 && e.Byte >= 0 && e.Packet+e.Byte > 0
}

// same says whether two are of one machine, kernel and program.
func (e Engine) same(o Engine) bool {
	return e.Machine == o.Machine && e.Kernel == o.Kernel && e.Tool == o.Tool
}

// Able is how many packets a second a host sends and receives together, where so many workers and PSes keep their
// threads busy. Each is one thread.
func (e Engine) Able(lanes, processes int) float64 {
	return float64(min(e.CPUs, processes)) / (e.Packet + e.Byte*frameBytes(lanes))
}

// frameBytes is the size of a frame of gradients.
func frameBytes(lanes int) float64 {
	return float64((&placement.Conditions{Lanes: lanes}).FrameBytes())
}

// Rail is what goes over one NIC, packets a second.
type Rail struct {
	Device         string
	Sent, Received float64
}

// Ask is what the workers and PSes of a phase ask of the software of the host that they are on.
type Ask struct {
	Host      string
	Lanes     int    // of a packet
	Processes int    // workers and PSes
	Rails     []Rail // that are used, in the inventory's order
}

// Packets is what is sent and received together, a second.
func (a Ask) Packets() (total float64) {
	for _, r := range a.Rails {
		total += r.Sent + r.Received
	}
	return total
}

// Asks is what a plan asks of each host in each of its phases, frames having so many lanes. Rings and jobs on one host are
// none of it: the kernel's TCP carries the former, and the latter send nothing.
func Asks(inv *inventory.Inventory, plan *placement.Plan, phases []*placement.Prediction, lanes int) (out []Ask, err error) {
	topo := inv.Topology()
	for _, p := range phases {
		t, err := trafficOf(topo, plan, p, lanes)
		if err != nil {
			return nil, err
		}
		processes := processesOf(plan, p)
		for _, h := range inv.Hosts {
			if processes[h.Name] == 0 {
				continue
			}
			a := Ask{Host: h.Name, Lanes: lanes, Processes: processes[h.Name]}
			for _, i := range topo.Out(h.Name) {
				l := topo.Links[i]
				if r := (Rail{l.NIC, t.packets[i], t.packets[l.Reverse]}); r.Sent+r.Received > 0 {
					a.Rails = append(a.Rails, r)
				}
			}
			if len(a.Rails) > 0 {
				out = append(out, a)
			}
		}
	}
	return out, nil
}

// processesOf is how many workers and PSes of a phase's jobs each host has that send packets.
func processesOf(plan *placement.Plan, p *placement.Prediction) map[string]int {
	out := map[string]int{}
	for _, jp := range p.Jobs {
		i := slices.IndexFunc(plan.Jobs, func(j placement.JobPlan) bool { return j.Name == jp.Name })
		if i < 0 || plan.Jobs[i].Local() || plan.Jobs[i].Collective == placement.Ring {
			continue
		}
		for _, w := range plan.Jobs[i].Workers {
			out[w.Host]++
		}
		if ps := plan.Jobs[i].PS; ps != "" {
			out[ps]++
		}
	}
	return out
}

// use is the part of what the host is able to do that is asked of it; 1 is all.
func (e Engine) use(a Ask) float64 { return a.Packets() / e.Able(a.Lanes, a.Processes) }

// worst is what comes nearest to what the host is able to do, of at least one.
func (e Engine) worst(asks []Ask) Ask {
	return slices.MaxFunc(asks, func(a, b Ask) int { return cmp.Compare(e.use(a), e.use(b)) })
}

// measured is the engine of a host, or why it is not known.
type measured struct {
	engine Engine
	err    error
}

// judge is the outcome of preflight.Ceiling for a host: Pass up to Busy of what it is able to do, Inconclusive up to all
// of that, and then Fail. Of a host of which nothing is asked it says what that is able to do.
func (m measured) judge(host string, asks []Ask) results.Preflight {
	p := results.Preflight{Name: preflight.Ceiling, Host: host, Outcome: results.Pass}
	switch {
	case m.err != nil:
		p.Outcome, p.Why = results.Skipped, strings.Join(strings.Fields(hosts.Reason(host, m.err)), " ")
		return p
	case len(asks) == 0:
		p.Found = fmt.Sprintf("able to send and receive %s on each of %d core%s", rate(m.engine.Able(ina.MaxLanes, 1), ina.MaxLanes),
			m.engine.CPUs, plural(m.engine.CPUs))
		return p
	}
	a := m.engine.worst(asks)
	able := m.engine.Able(a.Lanes, a.Processes)
	p.Found = fmt.Sprintf("asked to send and receive %s%s, able to do %s with %d thread%s on %d core%s, limited by %s", rate(a.Packets(), a.Lanes),
		a.rails(), rate(able, a.Lanes), a.Processes, plural(a.Processes), m.engine.CPUs, plural(m.engine.CPUs), m.engine.limit(a))
	switch use := m.engine.use(a); {
	case use <= Busy:
		return p
	case use <= 1:
		p.Outcome = results.Inconclusive
	default:
		p.Outcome = results.Fail
	}
	p.Wanted = fmt.Sprintf("at most %s, since packets come in bursts", rate(Busy*able, a.Lanes))
	p.Hint = m.engine.help(a)
	return p
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

// limit says what keeps the host from more: threads or cores, and which part of a packet costs more.
func (e Engine) limit(a Ask) string {
	of := "threads"
	if a.Processes >= e.CPUs {
		of = "cores"
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
	if e.perPacket(a) && a.Lanes < ina.MaxLanes {
		ways = append(ways, fmt.Sprintf("send larger frames: switch.lanes = %d", ina.MaxLanes))
	}
	if a.Processes > e.CPUs {
		ways = append(ways, "place fewer workers and PSes on a host")
	}
	return strings.Join(ways, ", or ")
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
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
