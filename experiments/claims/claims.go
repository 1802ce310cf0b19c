// Package claims is the ledger of what the papers of the systems that inabench runs claim: every figure, table and
// quantitative sentence, in a file per paper, each with the experiment that shows it, or with what it would need. What a run
// found beside what a paper prints is in the run's record (results.Reproduction, and checks of expectations); the ledger
// says which claim that is about, and leaves none out.
package claims

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// Paper is what a paper claims, in its own order.
type Paper struct {
	Version int     `toml:"version,required"` // 1
	Name    string  `toml:"paper,required"`   // "netpack"
	Title   string  `toml:"title,required"`
	Venue   string  `toml:"venue"` // "ASPLOS 2024"
	Claims  []Claim `toml:"claim"`
}

// Claim is one statement of a paper, in our words.
type Claim struct {
	At         string   `toml:",path"`
	ID         string   `toml:"id,required"`    // unique in the paper: "fig9-optimus"
	Where      string   `toml:"where,required"` // "Figure 9a", "Section 6.2"
	Also       []string `toml:"also"`           // other places that say the same
	Says       string   `toml:"says,required"`
	Kind       string   `toml:"kind,required" words:"comparison,value,order,trend,statement"`
	Metric     string   `toml:"metric"`
	Change     []string `toml:"change"` // of the paper's system against the other: "-45%", or the ends of a range
	Bound      string   `toml:"bound" words:"up-to,at-least"`
	Value      string   `toml:"value"`      // as printed, with its unit
	Against    string   `toml:"against"`    // the other: "Optimus"; "all" baselines
	Conditions string   `toml:"conditions"` // workload, topology, sizes, as far as the paper says
	Testbed    string   `toml:"testbed" words:"simulation,testbed,analysis"`

	// Shown is where a run shows it; nil: nowhere.
	Shown *Shown `toml:"shown"`
	// Missing is what an experiment would have to do that does not ship yet, Needs what this project cannot have:
	// one of them where nothing shows the claim, besides Shown where that shows a part of it.
	Missing string `toml:"missing"`
	Needs   string `toml:"needs"`
}

// Shown is the part of an experiment's record that is about a claim: what it says of a figure of the paper, or one of
// its expectations.
type Shown struct {
	At         string `toml:",path"`
	Experiment string `toml:"experiment,required"` // a file that ships: "policies.toml"
	Figure     string `toml:"figure"`              // of the experiment's published rows
	Metric     string `toml:"metric"`              // of these, those of one metric
	Against    string `toml:"against"`             // against one value
	Point      string `toml:"point"`               // at one label, or labels
	Expect     string `toml:"expect"`              // or an expectation's name
}

//go:embed *.toml
var files embed.FS

// names are the papers that ship, in the order of this project's README.
var names = []string{"netpack", "mina", "titan", "autops"}

var papers = sync.OnceValue(func() (out []*Paper) {
	for _, name := range names {
		text, err := files.ReadFile(name + ".toml")
		if err != nil {
			panic(err) // the list beside it is wrong
		}
		p, err := Parse(name+".toml", text)
		if err != nil {
			panic(err) // TestLedgers reads the same bytes
		}
		out = append(out, p)
	}
	return out
})

// Papers are those that come with this program. They must not be changed.
func Papers() []*Paper { return papers() }

// Find is the paper of a name, or an error that lists all.
func Find(name string) (*Paper, error) {
	for _, p := range Papers() {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no paper %q: %s", name, tomlfile.OneOf(name, names))
}

// Parse reads a ledger. The error is tomlfile.Problems, with every problem's place.
func Parse(name string, text []byte) (*Paper, error) {
	f, err := tomlfile.Parse(name, text)
	if err != nil {
		return nil, err
	}
	var p Paper
	f.Decode(&p)
	if p.Version != 1 && f.Has("version") && !f.Reported("version") {
		f.Problemf("version", "write version = 1", "version %d is unknown", p.Version)
	}
	seen := map[string]bool{}
	for i := range p.Claims {
		c := &p.Claims[i]
		if seen[c.ID] && c.ID != "" {
			f.Problemf(c.At+".id", "", "another claim is %q", c.ID)
		}
		seen[c.ID] = true
		if c.Shown == nil && c.Missing == "" && c.Needs == "" {
			f.Problemf(c.At, "write shown = {experiment = \"...\"}, missing or needs", "claim %s says neither what shows it nor what that would take", c.ID)
		}
		if len(c.Change) > 2 {
			f.Problemf(c.At+".change", "", "a change is one part, or the ends of a range")
		}
		if s := c.Shown; s != nil && s.Figure != "" && s.Expect != "" {
			f.Problemf(s.At+".expect", "", "a claim is shown by rows of a figure or by an expectation")
		}
	}
	return &p, f.Err()
}

// Experiments are the files that show what the paper claims, each once.
func (p *Paper) Experiments() (out []string) {
	for i := range p.Claims {
		if s := p.Claims[i].Shown; s != nil && !slices.Contains(out, s.Experiment) {
			out = append(out, s.Experiment)
		}
	}
	return out
}

// Printed is what the paper prints: "up to -45 %", "3.1 ms"; "" where it is an order alone.
func (c *Claim) Printed() string {
	text := strings.Join(c.Change, " to ")
	if text == "" {
		text = c.Value
	}
	switch {
	case text == "":
		return ""
	case c.Bound != "":
		text = strings.ReplaceAll(c.Bound, "-", " ") + " " + text
	}
	return text
}
