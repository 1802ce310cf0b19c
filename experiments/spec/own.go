package spec

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/inabench/inabench/experiments/policy"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
)

// OwnPolicy is a placement policy of one's own, known to placement.policy beside the built-in ones; see package policy. It
// runs in the experiment's folder.
type OwnPolicy struct {
	At      string             `toml:",path"`
	Name    string             `toml:"name,required"`         // letters, digits, '_' and '-'
	Command []string           `toml:"command,required"`      // program and arguments, as docs/POLICY.md says
	Timeout inventory.Duration `toml:"timeout" default:"10s"` // for one batch
}

// OwnPolicy is the experiment's own policy of a name; nil: there is none.
func (s *Spec) OwnPolicy(name string) *OwnPolicy {
	i := slices.IndexFunc(s.Policies, func(p OwnPolicy) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Policies[i]
}

// Rule is by what the policy chooses servers.
func (p *OwnPolicy) Rule() string {
	c := policy.Command{Command: p.Command}
	return c.Rule()
}

// Files are the parts of the policy's command that are files in the experiment's folder: its program, as a rule.
func (p *OwnPolicy) Files(folder string) (files []string) {
	for _, arg := range p.Command {
		if info, err := os.Stat(filepath.Join(folder, arg)); err == nil && info.Mode().IsRegular() && !filepath.IsAbs(arg) {
			files = append(files, arg)
		}
	}
	return files
}

// PolicyNames are those of the policies that the experiment can name: of a spec that says nothing, the built-in ones.
func (s *Spec) PolicyNames() []string {
	names := namesOf(policies(Options{}))
	for i := range s.Policies {
		names = append(names, s.Policies[i].Name)
	}
	return names
}

// OpenPolicy finds a policy by its name, and starts it where it is the experiment's own; a built-in one has what these
// options say of it. Whoever has opened it calls end; the end of ctx ends it, too. What one's own does wrong, as cluster.Err
// says it, wraps ErrInput.
func (s *Spec) OpenPolicy(ctx context.Context, name string, o Options) (p cluster.Policy, end func(), err error) {
	own := s.OwnPolicy(name)
	if own == nil {
		p, err = Policy(name, o)
		return p, func() {}, err
	}
	c := policy.Command{Name: own.Name, Command: own.Command, Dir: filepath.Dir(s.File), Timeout: time.Duration(own.Timeout)}
	if s.inv != nil {
		c.Hosts, c.Switches = s.inv.HostNames(), placement.RackNames(s.inv)
	}
	started, err := policy.Start(ctx, c)
	if err != nil {
		return nil, nil, Invalid(err)
	}
	return users{started}, started.Close, nil
}

// users is a policy of the user's: what it does wrong is input.
type users struct{ *policy.Policy }

// Err is for cluster.Err.
func (u users) Err() error {
	if err := u.Policy.Err(); err != nil {
		return Invalid(err)
	}
	return nil
}

// policies checks the policies of one's own, and that there is one that places.
func (c *Checker) policies() {
	names := map[string]string{}
	for i := range c.Spec.Policies {
		c.own(names, &c.Spec.Policies[i])
	}
	if err := among(c.Spec.Placement.Policy, c.Spec.PolicyNames()); err != nil {
		c.Problemf("placement.policy", tomlfile.HintOf(err), "%v", err)
	}
}

func (c *Checker) own(names map[string]string, p *OwnPolicy) {
	at := p.At + ".name"
	c.Named(names, p.At, p.Name, "policy", "a policy name")
	if _, err := Policy(p.Name, Options{}); err == nil && !c.Reported(at) {
		c.Problemf(at, "give it another name", "inabench has a policy %q already", p.Name)
	}
	at = p.At + ".command"
	if c.Has(at) && (len(p.Command) == 0 || p.Command[0] == "") && !c.Reported(at) {
		c.Problemf(at, `write command = ["python3", "mine.py"]`, "empty command")
	}
	Positive(c, p.At+".timeout", p.Timeout)
}
