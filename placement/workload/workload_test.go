package workload

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
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
		"resnet18":   {11_689_512, 0},
		"resnet152":  {60_192_808, 0},
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
		if want.step == 0 != (p.Basis == Derived || p.Basis == Unknown) || (p.Basis == Unknown) != (got == 0) {
			t.Errorf("%s: a step of %v, said to be %s", name, got, p.Basis)
		}
		if (p.Basis == Derived) && p.Derived == "" {
			t.Errorf("%s: does not say how its step time was derived", name)
		}
		if p.GPU == "" || p.GPU == "unknown" && p.Basis == Derived {
			t.Errorf("%s: GPU %q", name, p.GPU)
		}
		for i, l := range p.Layers {
			if l.Bytes <= 0 || l.Bytes%4 != 0 || l.Compute < 0 {
				t.Errorf("%s layer %d: %+v", name, i, l)
			}
		}
	}
}

// Tiresias consolidates what is skewed: VGG and AlexNet, and not ResNet.
func TestSkew(t *testing.T) {
	for name, want := range map[string]float64{
		"alexnet": 0.618, "vgg11": 0.773, "vgg16": 0.743, "vgg19": 0.715,
		"resnet50": 0.092, "resnet101": 0.053, "bert-base": 0.214, "opt-125m": 0.308, "resnet152": 0,
	} {
		p, _ := Lookup(name)
		if got := p.Skew(); math.Abs(got-want) > 0.0006 {
			t.Errorf("%s: %v, want %v", name, got, want)
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

// A step of another length: the layers keep their part of it, to the nanosecond.
func TestStep(t *testing.T) {
	p, _ := Lookup("vgg16")
	if same, err := p.Step(0); err != nil || !reflect.DeepEqual(same, p) {
		t.Errorf("its own step: %+v, %v", same, err)
	}
	s, err := p.Step(p.Compute() / 10)
	if err != nil || s.Compute() != p.Compute()/10 || s.Bytes() != p.Bytes() || s.Basis != Measured || s.GPU != "unknown" {
		t.Errorf("a tenth: %v of %v, %v", s.Compute(), p.Compute(), err)
	}
	for i, l := range s.Layers {
		if diff := l.Compute - p.Layers[i].Compute/10; diff.Abs() > 1 {
			t.Errorf("layer %d: %v, want a tenth of %v", i, l.Compute, p.Layers[i].Compute)
		}
	}
	if _, err := p.Step(-1); err == nil {
		t.Error("a step of -1 ns")
	}

	p, _ = Lookup("resnet18")
	_, err = p.Step(0)
	if !errors.Is(err, ErrNoCompute) || err.Error() != "model resnet18: no compute time is known: give the time of a step in the experiment" {
		t.Errorf("unknown: %v", err)
	}
	p.Layers = []Layer{{Bytes: 4}, {Bytes: 8}}
	s, err = p.Step(300 * time.Millisecond)
	if want := []Layer{{4, 200 * time.Millisecond}, {8, 100 * time.Millisecond}}; err != nil || !slices.Equal(s.Layers, want) {
		t.Errorf("given: %v %v", s.Layers, err)
	}
	if p.Layers[0].Compute != 0 {
		t.Error("the profile itself was changed")
	}
}

func TestCatalogue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.toml")
	text := `[[model]]
name = "vgg16"
gpu = "H200"
batch = 64
gradient_bytes = [553430176]
compute_us = [40000]
source = "our lab"

[[model]]
name = "mine"
compute = "unknown"
gradient_bytes = [8, 4]
source = "our lab"
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	both := Builtin().With(c)
	if n := len(both.Names()); n != len(Names())+1 || !slices.IsSorted(both.Names()) {
		t.Errorf("names %v", both.Names())
	}
	p, ok := both.Lookup("vgg16")
	want := Profile{Name: "vgg16", GPU: "H200", Batch: 64, Basis: Measured, Source: "our lab", Layers: []Layer{{553430176, 40 * time.Millisecond}}}
	if !ok || !reflect.DeepEqual(p, want) {
		t.Errorf("%+v", p)
	}
	if p, _ := both.Lookup("mine"); p.Basis != Unknown || p.Bytes() != 12 || p.GPU != "unknown" {
		t.Errorf("%+v", p)
	}
	if p, _ := Lookup("vgg16"); p.GPU == "H200" {
		t.Error("a catalogue of one's own changes what is built in")
	}
	if _, err := Load(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestBadCatalogue(t *testing.T) {
	_, err := Parse("mine.toml", []byte(`[[model]]
name = "a"
batch = -1
gradient_bytes = [6, 8]
compute_us = [1]
source = ""

[[model]]
name = "a"
compute = "guess"
gradient_bytes = []
source = "x"

[[model]]
gradient_bytes = [4]
compute = "unknown"
compute_us = [1]
source = "x"
speed = 3

[[model]]
name = "still"
largest_tensor = 8
gradient_bytes = [4, 4]
compute_us = [0, 0]
source = "x"
`))
	want := `mine.toml:3:9: a batch of -1: leave it out where nobody says
mine.toml:4:19: 6 bytes of fp32 gradient: a multiple of 4, at most 17592186044416
mine.toml:5:14: 1 times for 2 groups of gradients
mine.toml:6:10: say where the figures are from
mine.toml:8:3: model "a" has no compute times: add compute_us, or compute = "unknown"
mine.toml:9:8: model "a" is there twice
mine.toml:10:11: unknown compute "guess": one of published, measured, derived, unknown
mine.toml:11:18: 0 groups of gradients: 1 to 100000
mine.toml:14:3: missing name in model
mine.toml:17:14: compute times of a model whose compute is "unknown"
mine.toml:19:1: unknown key "speed" in model: known: name, gpu, batch, gradient_bytes, largest_tensor, compute, compute_us, source, derived
mine.toml:23:18: a tensor of 8 bytes: a multiple of 4, and at most the largest group's 4: leave it out where nobody says
mine.toml:25:14: a step that takes no time: compute = "unknown" where nobody knows`
	if err == nil || err.Error() != want {
		t.Errorf("problems:\n%v\nwant:\n%s", err, want)
	}
	if c, err := Parse("mine.toml", nil); err == nil || c != nil {
		t.Errorf("empty: %v, %v", c, err)
	}
}

// Whatever the text: no panic, and a catalogue or an error.
func FuzzParse(f *testing.F) {
	f.Add("[[model]]\nname = \"a\"\nsource = \"x\"\ngradient_bytes = [4]\ncompute_us = [1]\n")
	f.Add("[[model]]\ncompute = \"unknown\"")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("x.toml", []byte(text))
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
		if c == nil {
			return
		}
		for _, name := range c.Names() {
			p, ok := c.Lookup(name)
			if !ok || p.Bytes() < 4 || (p.Compute() <= 0) != (p.Basis == Unknown) {
				t.Fatalf("%+v", p)
			}
		}
	})
}
