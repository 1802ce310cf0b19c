package workload

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// Histogram is how many hosts jobs ask for.
type Histogram struct {
	Name   string
	Hosts  []int // ascending
	Weight []int // of jobs with so many hosts
	Source string
}

// Draw is the number of hosts of a job.
func (h *Histogram) Draw(r *rand.Rand) int {
	total := 0
	for _, w := range h.Weight {
		total += w
	}
	at := r.IntN(total)
	for i, w := range h.Weight {
		if at -= w; at < 0 {
			return h.Hosts[i]
		}
	}
	panic("unreachable: at is below the sum of all weights")
}

// Histograms are histograms of different names. They do not change.
type Histograms struct{ all []Histogram } // sorted by name

//go:embed histograms.toml
var builtinHistograms []byte

var loadHistograms = sync.OnceValue(func() *Histograms {
	h, err := ParseHistograms("histograms.toml", builtinHistograms)
	if err != nil {
		panic(err) // TestHistograms reads the same bytes
	}
	return h
})

// BuiltinHistograms are those that come with this program: mina-0 to mina-9, of MINA's
// evaluation. mina-1 and mina-5 are equal there. histograms.toml beside this file says how
// such a file is written.
func BuiltinHistograms() *Histograms { return loadHistograms() }

// Limits of histograms: of one job, and of all weights' sum.
const (
	maxHosts  = 1 << 20
	maxWeight = 1 << 40
)

// ParseHistograms reads histograms. The error is tomlfile.Problems, with every problem's
// place.
func ParseHistograms(name string, text []byte) (*Histograms, error) {
	f, err := tomlfile.Parse(name, text)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Histograms []struct {
			At     string `toml:",path"`
			Name   string `toml:"name,required"`
			Hosts  []int  `toml:"hosts,required"`
			Weight []int  `toml:"weight,required"`
			Source string `toml:"source,required"`
		} `toml:"histogram,required"`
	}
	f.Decode(&doc)
	out, seen := &Histograms{}, map[string]bool{}
	for i := range doc.Histograms {
		d := &doc.Histograms[i]
		if f.Has(d.At + ".name") {
			if d.Name == "" {
				f.Problemf(d.At+".name", "", "a histogram needs a name")
			} else if seen[d.Name] {
				f.Problemf(d.At+".name", "", "histogram %q is there twice", d.Name)
			}
			seen[d.Name] = true
		}
		if f.Has(d.At+".source") && d.Source == "" {
			f.Problemf(d.At+".source", "", "say where the figures are from")
		}
		if f.Has(d.At+".hosts") && len(d.Hosts) == 0 {
			f.Problemf(d.At+".hosts", "", "no hosts")
		}
		for k, n := range d.Hosts {
			at := fmt.Sprintf("%s.hosts[%d]", d.At, k)
			if n < 1 || n > maxHosts {
				f.Problemf(at, "", "a job on %d hosts: 1 to %d", n, maxHosts)
			} else if k > 0 && n <= d.Hosts[k-1] {
				f.Problemf(at, "", "%d hosts after %d: in ascending order, each once", n, d.Hosts[k-1])
			}
		}
		sum := 0
		for k, w := range d.Weight {
			if w < 0 || w > maxWeight {
				f.Problemf(fmt.Sprintf("%s.weight[%d]", d.At, k), "", "a weight of %d: 0 to %d", w, maxWeight)
				continue
			}
			sum = min(sum+w, maxWeight)
		}
		switch {
		case !f.Has(d.At+".hosts") || !f.Has(d.At+".weight"):
		case len(d.Weight) != len(d.Hosts):
			f.Problemf(d.At+".weight", "", "%d weights for %d numbers of hosts", len(d.Weight), len(d.Hosts))
		case sum == 0 && len(d.Weight) > 0:
			f.Problemf(d.At+".weight", "", "all weights are 0")
		}
		out.all = append(out.all, Histogram{d.Name, d.Hosts, d.Weight, d.Source})
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(out.all, func(a, b Histogram) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Lookup returns the histogram of a name, and false where there is none. What the caller
// does with it stays with the caller.
func (h *Histograms) Lookup(name string) (Histogram, bool) {
	i, ok := slices.BinarySearchFunc(h.all, name, func(h Histogram, name string) int { return strings.Compare(h.Name, name) })
	if !ok {
		return Histogram{}, false
	}
	out := h.all[i]
	out.Hosts, out.Weight = slices.Clone(out.Hosts), slices.Clone(out.Weight)
	return out, true
}

// Names are all names, sorted.
func (h *Histograms) Names() []string {
	out := make([]string, len(h.all))
	for i := range h.all {
		out[i] = h.all[i].Name
	}
	return out
}
