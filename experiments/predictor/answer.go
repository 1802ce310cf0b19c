package predictor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/inabench/inabench/internal/bounded"
)

// ErrAnswer is wrapped by errors about what a predictor answered.
var ErrAnswer = errors.New("bad answer")

// Answer is what a predictor says.
type Answer struct {
	Schema int           `json:"schema"` // the request's
	Phases []PhaseAnswer `json:"phases"` // one for each phase of the request, in order
	JCT    []JCT         `json:"jct"`    // optional, of jobs with iterations; all of them where the request has no phases
}

// PhaseAnswer is the steady state of a phase.
type PhaseAnswer struct {
	Jobs []JobAnswer `json:"jobs"` // all that send and are not local
	// Links are optional. Where any is named, those that are not carry nothing.
	Links []LinkAnswer `json:"links"`
}

// JobAnswer is what a job gets.
type JobAnswer struct {
	Name       string   `json:"name"`
	Goodput    *float64 `json:"goodput"`    // bit/s of gradients reduced: what each worker contributes and gets back; padding is none
	WireRate   *float64 `json:"wire_rate"`  // optional: bit/s of frames that each worker sends
	Shares     []Share  `json:"shares"`     // optional
	Bottleneck string   `json:"bottleneck"` // optional: a link's name, "SWITCH aggregators", "rate limit", "window", "round trip", "computing" or "none"
}

// Share is the part of what a switch could take out of a job's flow that it does: (n-p)/(n-1),
// where p packets of a PSN leave it towards the PS for n that enter it, both on average.
type Share struct {
	Switch string   `json:"switch"`
	Share  *float64 `json:"share"` // 0..1
}

// LinkAnswer is what a directed link carries.
type LinkAnswer struct {
	Name string   `json:"name"`
	Load *float64 `json:"load"` // bit/s of frames
}

// JCT is how long a job takes for its iterations.
type JCT struct {
	Job     string   `json:"job"`
	Seconds *float64 `json:"seconds"`
}

// slack is what a load may be above a link's rate, and a share above 1, for rounding.
const slack = 1e-6

// most is what a rate, bit/s, and a time, s, may be: of all that are, sums and squares are finite, too.
const most = 1e18

// ParseAnswer reads an answer to a request. The error wraps ErrAnswer and has everything that is
// wrong with it.
func ParseAnswer(text []byte, req *Request) (*Answer, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fmt.Errorf("%w: nothing on standard output, where one JSON document belongs", ErrAnswer)
	}
	var version struct{ Schema *int }
	// Another version may have anything else in it.
	if json.Unmarshal(text, &version) == nil && version.Schema != nil && *version.Schema != req.Schema {
		return nil, fmt.Errorf("%w: schema %d, where the request has %d", ErrAnswer, *version.Schema, req.Schema)
	}
	if err := req.bounded(text); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	var a Answer
	rest, err := bounded.DecodeOnly(text, &a)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrAnswer, jsonProblem(text, err))
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%w: something after the JSON document; messages belong on standard error", ErrAnswer)
	}
	c := checker{req: req}
	if a.Schema != req.Schema {
		c.Add("no schema: write \"schema\": %d", req.Schema)
	}
	if len(a.Phases) != len(req.Phases) {
		c.Add("%d phases, the request has %d", len(a.Phases), len(req.Phases))
	}
	for i := range min(len(a.Phases), len(req.Phases)) {
		c.phase(i, &a.Phases[i])
	}
	c.jct(a.JCT)
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return &a, nil
}

// jsonProblem says where text is no answer.
func jsonProblem(text []byte, err error) string {
	for _, word := range []string{"NaN", "Infinity"} { // as Python's json writes them
		if bytes.Contains(text, []byte(word)) {
			return fmt.Sprintf("%v: %s is no JSON number, leave out what is not known", err, word)
		}
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line := 1 + bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n"))
		return fmt.Sprintf("line %d: %v", line, err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the JSON document is cut off"
	}
	return err.Error()
}

// checker collects what is wrong with an answer.
type checker struct {
	bounded.Problems
	req *Request
}

// number checks one that must be there, from 0 to max; at is where.
func (c *checker) number(v *float64, max float64, at, what string, args ...any) {
	what = fmt.Sprintf(what, args...)
	switch {
	case v == nil:
		c.Add("%sno %s", at, what)
	case math.IsNaN(*v) || math.IsInf(*v, 0):
		c.Add("%s%s is not a number", at, what)
	case *v < 0:
		c.Add("%s%s is %g, below 0", at, what, *v)
	case *v > max*(1+slack):
		c.Add("%s%s is %g, above %g", at, what, *v, max)
	}
}

// once checks that names of a list are known, and there once; it returns those that are.
func (c *checker) once(at, what string, names, known []string) (seen map[string]bool) {
	there := map[string]bool{}
	for _, n := range known {
		there[n] = true
	}
	seen = map[string]bool{}
	for _, n := range names {
		switch {
		case seen[n]:
			c.Add("%s%s %q is there twice", at, what, n)
		case !there[n]:
			c.Add("%sunknown %s %q", at, what, n)
		default:
			seen[n] = true
		}
	}
	return seen
}

func names[T any](list []T, name func(T) string) []string {
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = name(x)
	}
	return out
}

func (c *checker) phase(i int, p *PhaseAnswer) {
	at := fmt.Sprintf("phase %d: ", i+1)
	job := map[string]*Job{}
	for k := range c.req.Jobs {
		job[c.req.Jobs[k].Name] = &c.req.Jobs[k]
	}
	var senders []string
	for _, n := range c.req.Phases[i].Jobs {
		if j := job[n]; j != nil && !j.Local {
			senders = append(senders, n)
		}
	}
	seen := c.once(at, "job", names(p.Jobs, func(j JobAnswer) string { return j.Name }), c.req.Phases[i].Jobs)
	for _, n := range senders {
		if !seen[n] {
			c.Add("%sno job %q", at, n)
		}
	}
	for k := range p.Jobs {
		a := &p.Jobs[k]
		j := job[a.Name]
		switch {
		case j == nil:
			continue
		case j.Local:
			if a.Goodput != nil || a.WireRate != nil || len(a.Shares) > 0 {
				c.Add("%sjob %q is local: it sends nothing, and has only a jct", at, a.Name)
			}
			continue
		}
		if !c.limits(a.Bottleneck) {
			c.Add("%sbottleneck of %s is %q, want a link, \"SWITCH aggregators\", \"rate limit\", \"window\", \"round trip\", \"computing\" or \"none\"", at, a.Name, a.Bottleneck)
		}
		c.number(a.Goodput, most, at, "goodput of %s", a.Name)
		if a.WireRate != nil {
			c.number(a.WireRate, most, at, "wire_rate of %s", a.Name)
		}
		tree := names(j.Tree, func(n Node) string { return n.Switch })
		c.once(at, "switch of job "+a.Name, names(a.Shares, func(s Share) string { return s.Switch }), tree)
		for _, s := range a.Shares {
			c.number(s.Share, 1, at, "share of %s at %s", a.Name, s.Switch)
		}
	}
	rate := map[string]float64{}
	for _, l := range c.req.Links {
		rate[l.Name] = l.Rate
	}
	c.once(at, "link", names(p.Links, func(l LinkAnswer) string { return l.Name }), names(c.req.Links, func(l Link) string { return l.Name }))
	for _, l := range p.Links {
		most, ok := rate[l.Name]
		if ok {
			c.number(l.Load, most, at, "load of %s", l.Name)
		}
	}
}

// limits says whether a text is a bottleneck: regimes are told by it.
func (c *checker) limits(bottleneck string) bool {
	sw, memory := strings.CutSuffix(bottleneck, " aggregators")
	switch {
	case slices.Contains([]string{"", "rate limit", "window", "round trip", "computing", "none"}, bottleneck):
		return true
	case memory:
		return slices.ContainsFunc(c.req.Switches, func(s Switch) bool { return s.Name == sw })
	}
	return slices.ContainsFunc(c.req.Links, func(l Link) bool { return l.Name == bottleneck })
}

func (c *checker) jct(list []JCT) {
	seen := c.once("jct: ", "job", names(list, func(j JCT) string { return j.Job }), names(c.req.Jobs, func(j Job) string { return j.Name }))
	for i := range c.req.Jobs {
		switch j := &c.req.Jobs[i]; {
		case seen[j.Name] && j.Iterations == 0:
			c.Add("jct of %s, which has no number of iterations", j.Name)
		case !seen[j.Name] && j.Iterations > 0 && len(c.req.Phases) == 0:
			c.Add("no jct of job %q", j.Name)
		}
	}
	for _, j := range list {
		c.number(j.Seconds, most, "", "jct of %s", j.Job)
	}
}
