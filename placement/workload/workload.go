// Package workload has the models whose training traffic experiments imitate: how
// many bytes of gradient become ready when, in one step on one GPU.
package workload

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Profile is one training step of a model.
type Profile struct {
	Name    string
	GPU     string  // that the step was measured on, or "unknown"
	Batch   int     // per GPU; 0: nobody says
	Layers  []Layer // in the order of backpropagation: the last layer of the model first
	Largest int64   // bytes of gradient of the largest single tensor; 0: nobody says
	Basis   Basis   // where the time of a step is from
	Source  string  // where sizes and times are from
	// Derived says what of the compute times nobody published and how it was
	// derived. The bytes are always facts.
	Derived string
}

// Basis is where a profile's time per step is from.
type Basis string

// What a time per step can be.
const (
	Published Basis = "published"
	Measured  Basis = "measured" // by whoever wrote the catalogue, or the experiment
	Derived   Basis = "derived"  // from other figures; Profile.Derived says how
	Unknown   Basis = "unknown"  // there is none: all layers' Compute is 0
)

func bases() []string {
	return []string{string(Published), string(Measured), string(Derived), string(Unknown)}
}

// ErrNoCompute is that of a model whose compute time nobody published.
var ErrNoCompute = errors.New("no compute time is known")

// Layer is a group of gradient tensors that become ready together: the parameters
// of one layer or block.
type Layer struct {
	Bytes   int64         // of fp32 gradient
	Compute time.Duration // since the layer before was ready; the first one's has the forward pass in it
}

// Lookup returns the profile of a model of the Builtin catalogue, and false for a name
// that is not in Names.
func Lookup(name string) (Profile, bool) { return Builtin().Lookup(name) }

// Names are all models of the Builtin catalogue, sorted.
func Names() []string { return Builtin().Names() }

// Bytes is the gradient of one step.
func (p *Profile) Bytes() int64 {
	var sum int64
	for _, l := range p.Layers {
		sum += l.Bytes
	}
	return sum
}

// Skew is the part of the gradient that the largest tensor has, 0 to 1; 0 where nobody
// says.
func (p *Profile) Skew() float64 {
	sum := p.Bytes()
	if sum == 0 {
		return 0
	}
	return float64(p.Largest) / float64(sum)
}

// Compute is the time of one step without any communication; 0 where it is Unknown.
func (p *Profile) Compute() time.Duration {
	var sum time.Duration
	for _, l := range p.Layers {
		sum += l.Compute
	}
	return sum
}

// Step is the profile with steps of the given compute time, or with its own for 0. Known
// times of layers are stretched in proportion; where they are unknown, a third of the
// step goes by before backpropagation, which then takes equally long for each layer. The
// error is ErrNoCompute when neither the profile nor the caller knows a time.
func (p *Profile) Step(compute time.Duration) (Profile, error) {
	out := p.clone()
	own := p.Compute()
	switch {
	case compute < 0:
		return Profile{}, fmt.Errorf("model %s: a step of %v", p.Name, compute)
	case compute == 0 && p.Basis == Unknown:
		return Profile{}, fmt.Errorf("model %s: %w: give the time of a step in the experiment", p.Name, ErrNoCompute)
	case compute == 0 || compute == own:
		return out, nil
	}
	// What is ready by when, so that nothing is lost to rounding.
	n := len(p.Layers)
	var before, sum time.Duration
	for i := range out.Layers {
		part := float64(1)/3 + float64(2)/3*float64(i+1)/float64(n)
		if own > 0 {
			sum += p.Layers[i].Compute
			part = float64(sum) / float64(own)
		}
		ready := time.Duration(math.Round(part * float64(compute)))
		out.Layers[i].Compute, before = ready-before, ready
	}
	out.GPU, out.Batch, out.Basis = "unknown", 0, Measured
	out.Derived = "the step time was given; its split over layers is that of " + p.GPU
	if own == 0 {
		out.Derived = "the step time was given; a third of it is forward, the rest the same for each layer"
	}
	return out, nil
}

func (p *Profile) clone() Profile {
	out := *p
	out.Layers = slices.Clone(p.Layers)
	return out
}
