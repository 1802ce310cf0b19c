package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/testbed/supervise"
)

// Command is a policy that is not started.
type Command struct {
	Name    string        // letters, digits, '_' and '-'
	Command []string      // a program and its arguments
	Dir     string        // where it runs; empty: the current directory
	Timeout time.Duration // for an answer; 0: DefaultTimeout
	// Hosts and Switches are the names of a cluster's servers and of its racks' ToR switches, in their order. A cluster of
	// another size has those of a fat tree: r1h1, r1h2, ... and tor1, tor2, ....
	Hosts, Switches []string
	// Twice has every request asked twice: another answer is an error.
	Twice bool
}

// Rule is by what it chooses servers, as far as anybody here knows.
func (c *Command) Rule() string { return "what " + strings.Join(c.Command, " ") + " says" }

// DefaultTimeout is how long an answer may take: interpreters take seconds to start.
const DefaultTimeout = 10 * time.Second

// grace is how long a policy that is ended may take for it, s, after the end of its stdin, and once more after SIGTERM.
const grace = 0.2

// Policy is a command that decides where jobs go: a cluster.Policy that can fail, see cluster.Err. It is not safe for
// concurrent use.
type Policy struct {
	command  Command
	dialogue *supervise.Dialogue
	told     cluster.Config // of the last opening
	names    names          // of that
	batch    int
	err      error
}

// Start starts a policy. Whoever has started it calls Close; the end of ctx ends it, too. What is wrong with the command
// shows with the first batch. The main function of this process must answer supervise.Verb with supervise.Play.
func Start(ctx context.Context, c Command) (*Policy, error) {
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	d, err := supervise.Converse(ctx, supervise.Config{Name: "policy " + c.Name, Argv: c.Command, Dir: c.Dir, Grace: grace})
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", c.Name, err)
	}
	return &Policy{command: c, dialogue: d}, nil
}

// Name implements cluster.Policy.
func (p *Policy) Name() string { return p.command.Name }

// Rule is the command's.
func (p *Policy) Rule() string { return p.command.Rule() }

// Err is why it has not placed the last batch; nil: it has. After an error it places nothing.
func (p *Policy) Err() error { return p.err }

// Close ends the policy, and all that it started.
func (p *Policy) Close() { _, _ = p.dialogue.End() }

// Place implements cluster.Policy. Jobs of no GPUs wait, and are nobody's to place.
func (p *Policy) Place(c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement {
	out := make([]cluster.Placement, len(batch))
	if p.err != nil {
		return out
	}
	var jobs []cluster.Job
	var at []int // in the batch
	for i, j := range batch {
		if j.GPUs > 0 {
			jobs, at = append(jobs, j), append(at, i)
		}
	}
	if len(jobs) == 0 {
		return out
	}
	moves, err := p.ask(c, jobs, seed)
	if err != nil {
		p.err = p.explain(err)
		return out
	}
	for _, m := range moves {
		if err := c.Enter(jobs[m.job], m.place); err != nil { // parse has seen it
			p.err = p.explain(err)
			return out
		}
		out[at[m.job]] = m.place
	}
	return out
}

// ask is what it says to a batch.
func (p *Policy) ask(c *cluster.Cluster, jobs []cluster.Job, seed uint64) ([]move, error) {
	if err := p.open(c.Config); err != nil {
		return nil, err
	}
	a := &asked{names: p.names, cfg: c.Config, batch: p.batch, jobs: jobs}
	for i := range c.Servers {
		a.free = append(a.free, c.Free(i))
	}
	p.batch++
	line, err := json.Marshal(a.request(c, seed))
	if err != nil {
		return nil, err
	}
	moves, text, err := p.once(a, line)
	if err != nil || !p.command.Twice {
		return moves, err
	}
	again, other, err := p.once(a, line)
	if err == nil && !reflect.DeepEqual(moves, again) {
		err = fmt.Errorf("%w: the same request twice, and two answers: %.400q, then %.400q", ErrAnswer, text, other)
	}
	return moves, err
}

// once asks once.
func (p *Policy) once(a *asked, line []byte) (moves []move, text []byte, err error) {
	p.dialogue.Tell(line)
	if text, err = p.dialogue.Hear(p.command.Timeout, a.limit()); err != nil {
		return nil, nil, err
	}
	moves, err = a.parse(text)
	return moves, text, err
}

// open tells it of a cluster, unless it knows.
func (p *Policy) open(cfg cluster.Config) error {
	if slices.Equal(cfg.Servers, p.told.Servers) && slices.Equal(cfg.Racks, p.told.Racks) {
		return nil
	}
	p.told, p.names = cfg, p.command.names(cfg)
	line, err := json.Marshal(opening(p.names, cfg))
	if err == nil {
		p.dialogue.Tell(line)
	}
	return err
}

// explain ends the policy, and is an error with what it was, what it did wrong, and what it said.
func (p *Policy) explain(err error) error {
	said, end := p.dialogue.End()
	var exit *supervise.ExitError
	switch {
	case errors.Is(err, ErrAnswer): // it says what is wrong
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no answer within %v: is what it writes flushed?", p.command.Timeout)
	case errors.Is(err, bounded.ErrTooLarge):
		err = fmt.Errorf("%w: %w, for an answer to this request", ErrAnswer, err)
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
	case errors.As(end, &exit):
		err = fmt.Errorf("it ended without an answer: %w", exit.How())
	case end != nil:
		err = end
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it ended without the end of its line")
	default:
		err = errors.New("it ended without an answer")
	}
	return supervise.Explain("policy "+p.command.Name, p.command.Command, err, said)
}

// names are those of a cluster.
func (c *Command) names(cfg cluster.Config) names {
	n := names{hosts: c.Hosts, switches: c.Switches, number: map[string]int{}}
	if len(n.hosts) != len(cfg.Servers) {
		n.hosts = nil
		in := make([]int, len(cfg.Racks)) // hosts by rack, so far
		for _, s := range cfg.Servers {
			in[s.Rack]++
			n.hosts = append(n.hosts, fmt.Sprintf("r%dh%d", s.Rack+1, in[s.Rack]))
		}
	}
	if len(n.switches) != len(cfg.Racks) {
		n.switches = nil
		for r := range cfg.Racks {
			n.switches = append(n.switches, fmt.Sprint("tor", r+1))
		}
	}
	for i, name := range n.hosts {
		n.number[name] = i
	}
	return n
}

// opening is a cluster by name.
func opening(n names, cfg cluster.Config) *Opening {
	o := &Opening{Version: Version, Cluster: Cluster{Hosts: []Host{}, Switches: []Switch{}}}
	for i, s := range cfg.Servers {
		h := Host{Name: n.hosts[i], Switch: n.switches[s.Rack], GPUs: s.GPUs}
		if s.Linked() {
			h.Link = Rate(s.Link)
		}
		o.Cluster.Hosts = append(o.Cluster.Hosts, h)
	}
	for i, r := range cfg.Racks {
		o.Cluster.Switches = append(o.Cluster.Switches, Switch{n.switches[i], Rate(r.PAT), Rate(r.Uplink)})
	}
	return o
}

// traffics are the words for what jobs send.
var traffics = map[cluster.Traffic]string{cluster.INA: "ina", cluster.PS: "ps", cluster.Ring: "ring", cluster.Tree: "tree"}

// request is the batch by name, with the state of the cluster.
func (a *asked) request(c *cluster.Cluster, seed uint64) *Request {
	const exact = 1<<53 - 1 // as a double has it
	r := &Request{Batch: a.batch, Seed: seed & exact, Running: []Running{}}
	for i, s := range c.Servers {
		h := HostState{Name: a.hosts[i], Free: c.Free(i), Flows: c.Flows(i)}
		if s.Linked() {
			h.Left = Rate(c.Bandwidth(i))
		}
		r.Hosts = append(r.Hosts, h)
	}
	for i := range c.Racks {
		r.Switches = append(r.Switches, SwitchState{a.switches[i], Rate(c.PAT(i)), c.UplinkFlows(i)})
	}
	for _, id := range c.Running() {
		r.Running = append(r.Running, a.running(c, id))
	}
	for _, j := range a.jobs {
		r.Waiting = append(r.Waiting, Job{
			ID: j.ID, GPUs: j.GPUs, Traffic: traffics[j.Traffic], PS: serversOf(&j), Bytes: j.Bytes, Compute: j.Compute,
			Skew: j.Skew, Seconds: j.Seconds, Value: j.Value, Waited: j.Waited,
		})
	}
	return r
}

// serversOf is how many parameter servers a job has where it is on several hosts.
func serversOf(j *cluster.Job) int {
	if !j.NeedsPS(2) {
		return 0
	}
	return max(1, j.PSes)
}

// running is a job that runs, by name.
func (a *asked) running(c *cluster.Cluster, id int) Running {
	j, at, _ := c.Placement(id)
	r := Running{ID: id, Traffic: traffics[j.Traffic], Workers: []Worker{}, PS: []string{}, Aggregate: []string{}, Rate: Rate(c.Rate(id))}
	for _, w := range at.Parts {
		r.Workers = append(r.Workers, Worker{a.hosts[w.Server], w.GPUs})
	}
	for _, s := range at.PS {
		r.PS = append(r.PS, a.hosts[s])
	}
	for _, rack := range a.racks(&at) {
		if adds(j.Traffic) && !at.Local() && !slices.Contains(at.Plain, rack) {
			r.Aggregate = append(r.Aggregate, a.switches[rack])
		}
	}
	return r
}
