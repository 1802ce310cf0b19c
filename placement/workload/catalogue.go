package workload

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// Catalogue is a set of profiles with different names. It does not change.
type Catalogue struct{ profiles []Profile } // sorted by name

//go:embed models.toml
var builtin []byte

var loadBuiltin = sync.OnceValue(func() *Catalogue {
	c, err := Parse("models.toml", builtin)
	if err != nil {
		panic(err) // TestProfiles reads the same bytes
	}
	return c
})

// Builtin is what comes with this program; models.toml beside this file says how such a
// file is written.
func Builtin() *Catalogue { return loadBuiltin() }

// Load reads a catalogue from a file; see Parse. That it cannot be read is the operating
// system's error.
func Load(path string) (*Catalogue, error) {
	text, err := bounded.ReadFile(path, bounded.Config)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

type (
	// document is a catalogue as TOML.
	document struct {
		Models []modelTable `toml:"model,required"`
	}
	// modelTable is what a model's gradients are, and how long they take to compute.
	modelTable struct {
		At      string  `toml:",path"`
		Name    string  `toml:"name,required"`              // as experiments call it
		GPU     string  `toml:"gpu" default:"unknown"`      // on which times were measured
		Batch   int     `toml:"batch"`                      // samples in an iteration; 0: nobody says
		Bytes   []int64 `toml:"gradient_bytes,required"`    // of each group of gradients, fp32, the first layer's first
		Largest int64   `toml:"largest_tensor"`             // bytes of the largest one; 0: nobody says
		Compute string  `toml:"compute" default:"measured"` // what times rest on
		Micros  []int64 `toml:"compute_us"`                 // of each group, microseconds of forward and backward pass
		Source  string  `toml:"source,required"`            // where the figures are from
		Derived string  `toml:"derived"`                    // how, where they are not printed there
	}
)

// WordsOf implements tomlfile.Wordy.
func (*modelTable) WordsOf(key string) []string {
	if key == "compute" {
		return bases()
	}
	return nil
}

// Describe lists what a catalogue's file may say.
func Describe() tomlfile.Entry { return tomlfile.Describe(document{}) }

// Limits of values, far above any model, so that sums stay exact.
const (
	maxGroups = 100_000
	maxBytes  = 1 << 44               // of one group
	maxMicros = 24 * 3600 * 1_000_000 // of one group: a day
)

// Parse reads a catalogue. The error is tomlfile.Problems, with every problem's place.
func Parse(name string, text []byte) (*Catalogue, error) {
	f, err := tomlfile.Parse(name, text)
	if err != nil {
		return nil, err
	}
	var doc document
	f.Decode(&doc)
	c, seen := &Catalogue{}, map[string]bool{}
	for i := range doc.Models {
		m := &doc.Models[i]
		p := Profile{
			Name: m.Name, GPU: m.GPU, Batch: m.Batch, Basis: Basis(m.Compute), Source: m.Source, Derived: m.Derived, Largest: m.Largest,
		}
		if f.Has(m.At + ".name") {
			if m.Name == "" {
				f.Problemf(m.At+".name", "", "a model needs a name")
			} else if seen[m.Name] {
				f.Problemf(m.At+".name", "", "model %q is there twice", m.Name)
			}
			seen[m.Name] = true
		}
		if m.Batch < 0 || m.Batch > math.MaxInt32 {
			f.Problemf(m.At+".batch", "leave it out where nobody says", "a batch of %d", m.Batch)
		}
		if f.Has(m.At+".source") && m.Source == "" {
			f.Problemf(m.At+".source", "", "say where the figures are from")
		}
		if f.Has(m.At+".gradient_bytes") && (len(m.Bytes) == 0 || len(m.Bytes) > maxGroups) {
			f.Problemf(m.At+".gradient_bytes", "", "%d groups of gradients: 1 to %d", len(m.Bytes), maxGroups)
		}
		for k, b := range m.Bytes {
			if b < 4 || b%4 != 0 || b > maxBytes {
				f.Problemf(fmt.Sprintf("%s.gradient_bytes[%d]", m.At, k), "", "%d bytes of fp32 gradient: a multiple of 4, at most %d", b, int64(maxBytes))
			}
		}
		if most := slices.Max(append(m.Bytes, 0)); f.Has(m.At+".largest_tensor") && (m.Largest < 4 || m.Largest%4 != 0 || m.Largest > most) {
			f.Problemf(m.At+".largest_tensor", "leave it out where nobody says", "a tensor of %d bytes: a multiple of 4, and at most the largest group's %d", m.Largest, most)
		}
		timed := f.Has(m.At + ".compute_us")
		switch {
		case timed && p.Basis == Unknown:
			f.Problemf(m.At+".compute_us", "", `compute times of a model whose compute is "unknown"`)
		case !timed && p.Basis != Unknown:
			f.KeyProblemf(m.At, `add compute_us, or compute = "unknown"`, "model %q has no compute times", m.Name)
		case timed && len(m.Micros) != len(m.Bytes):
			f.Problemf(m.At+".compute_us", "", "%d times for %d groups of gradients", len(m.Micros), len(m.Bytes))
		}
		for k, us := range m.Micros {
			if us < 0 || us > maxMicros {
				f.Problemf(fmt.Sprintf("%s.compute_us[%d]", m.At, k), "", "%d microseconds: 0 to a day", us)
			}
		}
		p.Layers = make([]Layer, len(m.Bytes))
		for k := range p.Layers {
			p.Layers[k].Bytes = m.Bytes[k]
			if k < len(m.Micros) {
				p.Layers[k].Compute = time.Duration(m.Micros[k]) * time.Microsecond
			}
		}
		if p.Basis != Unknown && timed && p.Compute() == 0 {
			f.Problemf(m.At+".compute_us", `compute = "unknown" where nobody knows`, "a step that takes no time")
		}
		c.profiles = append(c.profiles, p)
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	c.sort()
	return c, nil
}

func (c *Catalogue) sort() {
	slices.SortFunc(c.profiles, func(a, b Profile) int { return strings.Compare(a.Name, b.Name) })
}

// With is this catalogue and another; where both have a name, the other's profile counts.
func (c *Catalogue) With(other *Catalogue) *Catalogue {
	out := &Catalogue{profiles: slices.Clone(other.profiles)}
	for _, p := range c.profiles {
		if _, replaced := other.find(p.Name); !replaced {
			out.profiles = append(out.profiles, p)
		}
	}
	out.sort()
	return out
}

func (c *Catalogue) find(name string) (int, bool) {
	return slices.BinarySearchFunc(c.profiles, name, func(p Profile, name string) int { return strings.Compare(p.Name, name) })
}

// Lookup returns the profile of a model, and false for a name that is not in Names. What
// the caller does with it stays with the caller.
func (c *Catalogue) Lookup(name string) (Profile, bool) {
	i, ok := c.find(name)
	if !ok {
		return Profile{}, false
	}
	return c.profiles[i].clone(), true
}

// Names are all models, sorted.
func (c *Catalogue) Names() []string {
	out := make([]string, len(c.profiles))
	for i := range c.profiles {
		out[i] = c.profiles[i].Name
	}
	return out
}
