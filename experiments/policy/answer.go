package policy

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/placement/cluster"
)

// ErrAnswer is wrapped by errors about what a policy answered.
var ErrAnswer = errors.New("bad answer")

// maxAnswer bounds a line of an answer, bytes, whatever was asked.
const maxAnswer = 4 << 20

// names are those of a cluster's hosts and ToR switches, by their numbers.
type names struct {
	hosts, switches []string
	number          map[string]int // of hosts
}

// asked is a batch, and all that its answer is held against.
type asked struct {
	names
	cfg   cluster.Config
	batch int
	jobs  []cluster.Job
	free  []int // GPUs by host
}

// limit is how long the answer may be, in bytes: as long as one that gives every GPU to a worker of its own.
func (a *asked) limit() int {
	const room, each, escape = 64 << 10, 64, len(`\u003e`)
	longest := 0
	for _, name := range slices.Concat(a.hosts, a.switches) {
		longest = max(longest, len(name))
	}
	words := 0
	for _, j := range a.jobs {
		words += 1 + min(j.GPUs, len(a.hosts)) + max(1, j.PSes) + min(j.GPUs+max(1, j.PSes), len(a.switches))
	}
	return min(maxAnswer, room+words*(each+escape*longest))
}

// move is a job of the batch, by its number there, and where it goes.
type move struct {
	job   int
	place cluster.Placement
}

// parse reads an answer: the jobs that are placed, in the order in which they take their GPUs. The error has
// everything that is wrong, and wraps ErrAnswer unless the policy says itself that it has no answer.
func (a *asked) parse(text []byte) ([]move, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fmt.Errorf("%w: an empty line", ErrAnswer)
	}
	var answer Answer
	rest, err := bounded.DecodeOnly(text, &answer)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w: %.200q", ErrAnswer, err, text)
	case len(rest) > 0:
		return nil, fmt.Errorf("%w: something after the JSON object: %.200q", ErrAnswer, rest)
	case answer.Error != "":
		return nil, fmt.Errorf("it gives up: %.200q", answer.Error)
	case answer.Batch == nil:
		return nil, fmt.Errorf("%w: no batch: write \"batch\": %d, as in the request", ErrAnswer, a.batch)
	case *answer.Batch != a.batch:
		return nil, fmt.Errorf("%w: it is about batch %d, asked was %d: one line answers one request", ErrAnswer, *answer.Batch, a.batch)
	}
	c := checker{asked: a, left: slices.Clone(a.free), seen: make([]bool, len(a.jobs)), waiting: map[int]int{}}
	for i, j := range a.jobs {
		c.waiting[j.ID] = i
	}
	var moves []move
	for i := range answer.Jobs {
		if m, ok := c.placed(&answer.Jobs[i]); ok {
			moves = append(moves, m)
		}
	}
	for i, j := range a.jobs {
		if !c.seen[i] {
			c.Add("job %d: it is left out: write \"workers\": [] where it waits", j.ID)
		}
	}
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return moves, nil
}

// checker collects what is wrong with an answer. Its time is bounded by the answer's length and the racks of a job.
type checker struct {
	*asked
	bounded.Problems
	left    []int       // GPUs by host, without those of jobs before
	seen    []bool      // by job of the batch
	waiting map[int]int // jobs of the batch by ID
}

// placed is a job's move; not ok where it waits.
func (c *checker) placed(p *Placed) (m move, ok bool) {
	if p.ID == nil {
		c.Add("a job without an id")
		return m, false
	}
	m.job, ok = c.waiting[*p.ID]
	switch {
	case !ok:
		c.Add("job %d: it is not in the batch, which has %s", *p.ID, c.ids())
		return m, false
	case c.seen[m.job]:
		c.Add("job %d: it is there twice", *p.ID)
		return m, false
	}
	c.seen[m.job] = true
	j := &c.jobs[m.job]
	if len(p.Workers) == 0 {
		if len(p.PS) > 0 || len(p.Aggregate) > 0 {
			c.Add("job %d: it has no workers, and yet a ps or an aggregate", j.ID)
		}
		return m, false
	}
	m.place.Parts = c.workers(j, p.Workers)
	m.place.PS = c.servers(j, len(p.Workers), p.PS)
	m.place.Plain = c.plain(j, &m.place, p.Aggregate)
	return m, true
}

// ids are those of the batch, the first of them.
func (c *checker) ids() string {
	const most = 10
	var out []string
	for _, j := range c.jobs[:min(most, len(c.jobs))] {
		out = append(out, fmt.Sprint(j.ID))
	}
	if len(c.jobs) > most {
		out = append(out, "...")
	}
	return strings.Join(out, ", ")
}

// workers are a job's GPUs by host, which it takes.
func (c *checker) workers(j *cluster.Job, workers []Worker) (parts []cluster.Part) {
	gpus, there := 0, map[int]bool{} // hosts
	for _, w := range workers {
		gpus += min(max(0, w.GPUs), j.GPUs+1) // whatever it says, the sum is none by chance
		h := c.host(j, w.Host)
		switch {
		case h < 0:
			continue
		case there[h]:
			c.Add("job %d: host %s is there twice, one worker has all GPUs of a host", j.ID, w.Host)
			continue
		case w.GPUs < 1:
			c.Add("job %d: %d GPUs on host %s, at least 1", j.ID, w.GPUs, w.Host)
		case w.GPUs > c.left[h]:
			c.Add("job %d: %d GPUs on host %s, where %d of %d are left", j.ID, w.GPUs, w.Host, c.left[h], c.cfg.Servers[h].GPUs)
		case len(workers) > 1 && !c.cfg.Servers[h].Linked():
			c.Add("job %d: it is on %d hosts, and host %s has no link", j.ID, len(workers), w.Host)
		default:
			c.left[h] -= w.GPUs
		}
		there[h] = true
		parts = append(parts, cluster.Part{Server: h, GPUs: w.GPUs})
	}
	if gpus != j.GPUs {
		c.Add("job %d: its workers have %s GPUs, it asks for %d", j.ID, sum(gpus, j.GPUs), j.GPUs)
	}
	return parts
}

// sum is a number of GPUs for people: nobody adds up on beyond what was asked.
func sum(gpus, want int) string {
	if gpus > want {
		return "more"
	}
	return fmt.Sprint(gpus)
}

// host is a host's number; -1 where there is none of the name.
func (c *checker) host(j *cluster.Job, name string) int {
	if h, ok := c.number[name]; ok {
		return h
	}
	known := "there is none"
	if n := len(c.hosts); n > 0 {
		known = fmt.Sprintf("there are %s to %s", c.hosts[0], c.hosts[n-1])
	}
	c.Add("job %d: unknown host %.80q, %s", j.ID, name, known)
	return -1
}

// servers are the hosts of a job's parameter servers.
func (c *checker) servers(j *cluster.Job, workers int, on []string) (servers []int) {
	want := 0
	if j.NeedsPS(workers) {
		want = serversOf(j)
	}
	if len(on) != want {
		c.Add("job %d: %d parameter servers, it has %d where it is on %d hosts with traffic %s", j.ID, len(on), want, workers, traffics[j.Traffic])
	}
	for _, name := range on {
		switch h := c.host(j, name); {
		case h < 0:
		case !c.cfg.Servers[h].Linked():
			c.Add("job %d: a parameter server on host %s, which has no link", j.ID, name)
		default:
			servers = append(servers, h)
		}
	}
	return servers
}

// plain are the racks of a placement whose switches are not among those that aggregate; nil: all do.
func (c *checker) plain(j *cluster.Job, at *cluster.Placement, aggregate []string) (plain []int) {
	if aggregate == nil {
		return nil
	}
	racks := c.racks(at)
	var own []string
	for _, r := range racks {
		own = append(own, c.switches[r])
	}
	switch {
	case !adds(j.Traffic):
		if len(aggregate) > 0 {
			c.Add("job %d: switch %.80q is to aggregate, no switch does for traffic %s", j.ID, aggregate[0], traffics[j.Traffic])
		}
		return nil
	case len(aggregate) > len(own):
		c.Add("job %d: %d switches are to aggregate, its switches are %s", j.ID, len(aggregate), strings.Join(own, ", "))
		return nil
	}
	for i, name := range aggregate {
		switch {
		case slices.Contains(aggregate[:i], name):
			c.Add("job %d: switch %.80q is to aggregate twice", j.ID, name)
		case !slices.Contains(own, name):
			c.Add("job %d: switch %.80q is to aggregate, its switches are %s", j.ID, name, strings.Join(own, ", "))
		}
	}
	for i, r := range racks {
		if !slices.Contains(aggregate, own[i]) {
			plain = append(plain, r)
		}
	}
	if j.Traffic == cluster.Tree && !at.Local() && len(plain) > 0 {
		c.Add("job %d: switch %s is not to aggregate, but for traffic tree nobody else adds up", j.ID, c.switches[plain[0]])
	}
	return plain
}

// racks are those of a placement's workers and parameter servers, ascending.
func (c *asked) racks(at *cluster.Placement) (racks []int) {
	for _, p := range at.Parts {
		racks = append(racks, c.cfg.Servers[p.Server].Rack)
	}
	for _, s := range at.PS {
		racks = append(racks, c.cfg.Servers[s].Rack)
	}
	slices.Sort(racks)
	return slices.Compact(racks)
}

// adds reports whether switches add up for such traffic.
func adds(t cluster.Traffic) bool { return t == cluster.INA || t == cluster.Tree }
