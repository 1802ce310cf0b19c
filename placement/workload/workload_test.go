package workload

import (
	"slices"
	"testing"
	"time"
)

// Parameters as published with the models (torchvision's num_params; for
// transformers the sums of MinaSimulator's all-reduces), and the step times that
// the profiles' sources give.
func TestProfiles(t *testing.T) {
	published := map[string]struct {
		params int64
		step   time.Duration // 0: not published
	}{
		"alexnet":    {61_100_840, 23_180 * time.Microsecond},
		"vgg11":      {132_863_336, 0},
		"vgg16":      {138_357_544, 232_550 * time.Microsecond},
		"vgg19":      {143_667_240, 281_690 * time.Microsecond},
		"resnet50":   {25_557_032, 153_900 * time.Microsecond},
		"resnet101":  {44_549_160, 235_330 * time.Microsecond},
		"awd-lstm":   {33_556_078, 0},
		"bert-base":  {109_514_298, 80_706 * time.Microsecond},
		"bert-large": {335_174_458, 221_842 * time.Microsecond},
		"opt-125m":   {125_239_296, 90_515 * time.Microsecond},
		"opt-350m":   {331_196_416, 219_255 * time.Microsecond},
		"opt-1.3b":   {1_315_758_080, 761_735 * time.Microsecond},
		"vit-base":   {86_567_656, 57_369 * time.Microsecond},
		"vit-large":  {304_326_632, 141_540 * time.Microsecond},
	}
	names := Names()
	if !slices.IsSorted(names) || len(names) != len(published) {
		t.Errorf("names %v", names)
	}
	for _, name := range names {
		p, ok := Lookup(name)
		want, known := published[name]
		if !ok || !known || p.Name != name || p.Source == "" {
			t.Fatalf("%s: %v %+v", name, ok, p)
		}
		if got := p.Bytes(); got != 4*want.params {
			t.Errorf("%s: %d bytes, want 4 x %d", name, got, want.params)
		}
		got := p.Compute()
		if diff := got - want.step; want.step != 0 && diff.Abs() > 2*time.Microsecond {
			t.Errorf("%s: step %v, want %v", name, got, want.step)
		}
		if want.step == 0 && p.Derived == "" {
			t.Errorf("%s: does not say that its step time is derived", name)
		}
		for i, l := range p.Layers {
			if l.Bytes <= 0 || l.Bytes%4 != 0 || l.Compute < 0 {
				t.Errorf("%s layer %d: %+v", name, i, l)
			}
		}
	}
}

func TestLookup(t *testing.T) {
	if p, ok := Lookup("vgg17"); ok || p.Layers != nil {
		t.Errorf("vgg17: %+v", p)
	}
	// What a caller does with its profile stays with the caller.
	a, _ := Lookup("vgg16")
	a.Layers[0].Bytes = 1
	if b, _ := Lookup("vgg16"); b.Layers[0].Bytes == 1 {
		t.Error("profiles share memory")
	}
	// VGG16's backpropagation starts at its last layer and ends at the 3x3x3x64
	// convolution.
	b, _ := Lookup("vgg16")
	if first, last := b.Layers[0].Bytes, b.Layers[len(b.Layers)-1].Bytes; first != 4*(4096*1000+1000) || last != 4*(3*3*3*64+64) {
		t.Errorf("first %d, last %d bytes", first, last)
	}
}

func TestScaled(t *testing.T) {
	p, _ := Lookup("resnet50")
	s := p.Scaled(1000)
	if got, want := float64(s.Bytes()), float64(p.Bytes())/1000; got < 0.98*want || got > 1.02*want {
		t.Errorf("%v bytes, want about %v", got, want)
	}
	if s.Compute() != p.Compute() || p.Layers[0].Bytes == s.Layers[0].Bytes {
		t.Errorf("compute %v of %v", s.Compute(), p.Compute())
	}
	for _, l := range s.Layers {
		if l.Bytes < 4 || l.Bytes%4 != 0 {
			t.Errorf("layer of %d bytes", l.Bytes)
		}
	}
}
