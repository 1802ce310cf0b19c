// Package workload has the models whose training traffic experiments imitate: how
// many bytes of gradient become ready when, in one step on one GPU.
package workload

import (
	"slices"
	"time"
)

// Profile is one training step of a model.
type Profile struct {
	Name   string
	Layers []Layer // in the order of backpropagation: the last layer of the model first
	Source string  // where sizes and times are from, with GPU and batch size
	// Derived says what of the compute times nobody published and how it was
	// derived. The bytes are always facts.
	Derived string
}

// Layer is a group of gradient tensors that become ready together: the parameters
// of one layer or block.
type Layer struct {
	Bytes   int64         // of fp32 gradient
	Compute time.Duration // since the layer before was ready; the first one's has the forward pass in it
}

// Lookup returns the profile of a model, and false for a name that is not in Names.
func Lookup(name string) (Profile, bool) {
	for i := range entries {
		e := &entries[i]
		if e.name != name {
			continue
		}
		p := Profile{Name: e.name, Source: e.source, Derived: e.derived}
		for _, r := range e.rows {
			p.Layers = append(p.Layers, Layer{r.bytes, time.Duration(r.us) * time.Microsecond})
		}
		return p, true
	}
	return Profile{}, false
}

// Names are all models, sorted.
func Names() []string {
	var out []string
	for i := range entries {
		out = append(out, entries[i].name)
	}
	slices.Sort(out)
	return out
}

// Bytes is the gradient of one step.
func (p *Profile) Bytes() int64 {
	var sum int64
	for _, l := range p.Layers {
		sum += l.Bytes
	}
	return sum
}

// Compute is the time of one step without any communication.
func (p *Profile) Compute() time.Duration {
	var sum time.Duration
	for _, l := range p.Layers {
		sum += l.Compute
	}
	return sum
}

// Scaled is the profile with bytes divided by factor (never below 4, one value):
// for emulations that divide rates but not times.
func (p *Profile) Scaled(factor float64) Profile {
	out := *p
	out.Layers = slices.Clone(p.Layers)
	for i := range out.Layers {
		l := &out.Layers[i]
		l.Bytes = max(4, int64(float64(l.Bytes)/factor)/4*4)
	}
	return out
}
