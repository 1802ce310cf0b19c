package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/inabench/inabench/inventory"
)

// Ledger is what policies share: which GPUs are free, how busy every host is, and
// how a choice of hosts becomes a JobPlan.
type Ledger struct {
	inv  *inventory.Inventory
	topo *inventory.Topology
	free map[string]int
	load map[string]int // workers and parameter servers on a host
}

// NewLedger is a ledger of an inventory that nothing runs on.
func NewLedger(inv *inventory.Inventory) *Ledger {
	l := &Ledger{inv: inv, topo: inv.Topology(), free: map[string]int{}, load: map[string]int{}}
	for i := range inv.Hosts {
		l.free[inv.Hosts[i].Name] = inv.Hosts[i].GPUs
	}
	return l
}

// Hosts of a job that names its own, as workers: each takes its part of the job's
// GPUs. Where the job asks for none, each takes one if one is free: hosts without
// GPUs can still send gradients.
func (l *Ledger) Hosts(job *Job) ([]Worker, error) {
	var out []Worker
	left, later := job.GPUs, 0 // GPUs to find, and free on hosts still to come
	for _, name := range job.Hosts {
		later += l.free[name]
	}
	for i, name := range job.Hosts {
		if _, ok := l.inv.Host(name); !ok {
			return nil, fmt.Errorf("job %s: no host %q", job.Name, name)
		}
		if slices.Contains(job.Hosts[:i], name) {
			return nil, fmt.Errorf("job %s: host %q named twice; one worker stands for all of a job's GPUs on a host", job.Name, name)
		}
		free := l.free[name]
		later -= free
		g := min(1, free)
		if job.GPUs > 0 {
			// An even part, more where later hosts cannot take theirs.
			hosts := len(job.Hosts) - i
			g = min(free, max((left+hosts-1)/hosts, left-later))
			if g < 1 {
				return nil, l.Infeasible(job)
			}
			left -= g
		}
		out = append(out, Worker{Rank: i, Host: name, GPUs: g})
	}
	if left > 0 {
		return nil, l.Infeasible(job)
	}
	return out, nil
}

// LeastLoaded is the host for a PS that is expected to disturb least: the one with
// the fewest workers and parameter servers that hosts none of the given workers,
// the first in the file of several; if all hosts do, the least loaded of all.
func (l *Ledger) LeastLoaded(workers []Worker) string {
	best, bestKey := "", 0
	for i := range l.inv.Hosts {
		h := &l.inv.Hosts[i]
		if len(h.NICs) == 0 {
			continue
		}
		key := l.load[h.Name]
		if slices.ContainsFunc(workers, func(w Worker) bool { return w.Host == h.Name }) {
			key += 1 << 30
		}
		if best == "" || key < bestKey {
			best, bestKey = h.Name, key
		}
	}
	return best
}

// NeedsPS reports whether a job placed on so many hosts needs a parameter server.
func NeedsPS(job *Job, hosts int) bool {
	return job.PS != "" || hosts > 1 && job.Collective != Ring && !job.NoPS
}

// Place enters a job in the ledger: workers in rank order, and the host of its PS
// or "". It builds the aggregation tree.
func (l *Ledger) Place(job *Job, workers []Worker, ps string) (JobPlan, error) {
	if err := l.room(job, len(workers)); err != nil {
		return JobPlan{}, err
	}
	p := JobPlan{ID: job.ID, Name: job.Name, Collective: job.Collective, Workers: workers, PS: ps}
	if err := BuildTree(l.topo, l.inv, &p); err != nil {
		return JobPlan{}, err
	}
	l.take(&p)
	return p, nil
}

// room is an *InfeasibleError where a job has more workers than sums have room for.
func (l *Ledger) room(job *Job, workers int) error {
	if workers <= MaxWorkers || job.Collective == Ring {
		return nil
	}
	e := l.Infeasible(job)
	e.Reason = fmt.Sprintf("needs %d hosts, aggregation has room for %d workers", workers, MaxWorkers)
	return e
}

// take enters a job that has its place.
func (l *Ledger) take(p *JobPlan) {
	for _, w := range p.Workers {
		l.free[w.Host] -= w.GPUs
		l.load[w.Host]++
	}
	for _, s := range p.Spare {
		l.free[s.Host] -= s.GPUs
	}
	if p.PS != "" {
		l.load[p.PS]++
	}
}

// Infeasible is the error for a job that does not fit what is free now.
func (l *Ledger) Infeasible(job *Job) *InfeasibleError {
	e := &InfeasibleError{Job: job.Name, GPUs: job.GPUs, Hosts: slices.Clone(job.Hosts)}
	for i := range l.inv.Hosts {
		h := &l.inv.Hosts[i]
		e.Free = append(e.Free, HostFree{h.Name, l.free[h.Name], h.GPUs})
	}
	return e
}

// InfeasibleError says that a job cannot be placed: what it asked, and what is free
// where, of a batch once all that fits is placed.
type InfeasibleError struct {
	Job    string
	GPUs   int      // asked
	Hosts  []string // asked, if it named any
	Reason string   // if it is not too few GPUs
	Free   []HostFree
}

// HostFree is a host's GPUs.
type HostFree struct {
	Host       string
	Free, GPUs int
}

func (e *InfeasibleError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("no feasible placement: job %s %s", e.Job, e.Reason)
	}
	free, hosts := 0, 0
	for _, h := range e.asked() {
		free += h.Free
		if h.Free > 0 {
			hosts++
		}
	}
	on := ""
	if len(e.Hosts) > 0 {
		on = " on " + strings.Join(e.Hosts, ", ")
	}
	return fmt.Sprintf("no feasible placement: job %s asks for %d GPUs%s, %d are free on %d hosts", e.Job, e.GPUs, on, free, hosts)
}

// asked are the hosts that the job could have used.
func (e *InfeasibleError) asked() []HostFree {
	if len(e.Hosts) == 0 {
		return e.Free
	}
	var out []HostFree
	for _, h := range e.Free {
		if slices.Contains(e.Hosts, h.Host) {
			out = append(out, h)
		}
	}
	return out
}

// Report is the full account, one host a line. Of more than 40 hosts, those without a
// free GPU that the job did not name are counted, and of the others 40 shown.
func (e *InfeasibleError) Report() string {
	const most = 40
	var b strings.Builder
	fmt.Fprintln(&b, e.Error())
	shown, full, more := 0, 0, 0
	for _, h := range e.Free {
		asked := slices.Contains(e.Hosts, h.Host)
		if len(e.Free) > most && !asked {
			if h.Free == 0 {
				full++
				continue
			}
			if shown == most {
				more++
				continue
			}
		}
		shown++
		mark := ""
		if asked {
			mark = "  asked for"
		}
		fmt.Fprintf(&b, "  %-12s %d of %d GPUs free%s\n", h.Host, h.Free, h.GPUs, mark)
	}
	if more > 0 {
		fmt.Fprintf(&b, "  and %d more hosts with free GPUs\n", more)
	}
	if full > 0 {
		fmt.Fprintf(&b, "  no GPU free on %d hosts\n", full)
	}
	return b.String()
}
