package workload

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// The patterns are of the models of models.toml, whose bytes they reduce.
func TestPatterns(t *testing.T) {
	all := BuiltinPatterns()
	models := []string{"bert-base", "bert-large", "opt-1.3b", "opt-125m", "opt-350m", "vit-base", "vit-large"}
	if got := all.Models(4); !slices.Equal(got, models) {
		t.Errorf("models at batch 4: %v", got)
	}
	if got := all.Models(16); len(got) != 6 || slices.Contains(got, "opt-1.3b") {
		t.Errorf("models at batch 16: %v", got)
	}
	for _, batch := range []int{4, 16} {
		for _, model := range all.Models(batch) {
			p, ok := all.Lookup(model, batch)
			profile, known := Lookup(model)
			if !ok || !known || p.Bytes() != profile.Bytes() {
				t.Errorf("%s at %d: %d bytes, the model has %d", model, batch, p.Bytes(), profile.Bytes())
			}
			if last := p.Ops[len(p.Ops)-1].Start; p.Step <= last {
				t.Errorf("%s at %d: a step of %v s with an operation at %v s", model, batch, p.Step, last)
			}
			fast := p.Faster(2)
			if fast.Step != p.Step/2 || fast.Ops[1].Start != p.Ops[1].Start/2 || fast.Bytes() != p.Bytes() {
				t.Errorf("%s at %d, twice as fast: %+v", model, batch, fast)
			}
			back, err := ParsePatterns("again.toml", FormatPatterns(p, fast.named("x")))
			if err != nil || len(back.all) != 2 {
				t.Fatalf("%s: %v", model, err)
			}
			if again, _ := back.Lookup(model, batch); !reflect.DeepEqual(again, p) {
				t.Errorf("%s: written and read: %+v", model, again)
			}
		}
	}
	// What a caller does with its pattern stays with the caller, and others replace some.
	own, _ := all.Lookup("vit-base", 4)
	own.Ops[0].Bytes = 1
	if again, _ := all.Lookup("vit-base", 4); again.Ops[0].Bytes == 1 {
		t.Error("patterns share memory")
	}
	both := all.With(&Patterns{all: []Pattern{own}})
	if p, _ := both.Lookup("vit-base", 4); p.Ops[0].Bytes != 1 || len(both.all) != len(all.all) {
		t.Errorf("replaced: %+v, %d patterns", p, len(both.all))
	}
	if _, ok := all.Lookup("vit-base", 5); ok {
		t.Error("a pattern at batch 5")
	}
}

func (p Pattern) named(model string) Pattern {
	p.Model = model
	return p
}

func TestPatternProblems(t *testing.T) {
	const head = "[[pattern]]\nmodel = \"m\"\nsource = \"s\"\n"
	for _, tt := range []struct{ text, want string }{
		{"", "pattern"},
		{head + "step_s = 0.0\nstart_s = [0.0]\nbytes = [1]", "p.toml:4:10: a step of 0 s"},
		{head + "step_s = nan\nstart_s = [0.0]\nbytes = [1]", "p.toml:4:10: pattern.step_s must be a finite number"},
		{head + "step_s = 1.0\nstart_s = [0.5, 0.4]\nbytes = [1, 1]", "p.toml:5:17: an all-reduce that may start before"},
		{head + "step_s = 1.0\nstart_s = [-1.0]\nbytes = [1]", "p.toml:5:12: an all-reduce that may start after -1 s"},
		{head + "step_s = 1.0\nstart_s = [0.5]\nbytes = [0]", "p.toml:6:10: an all-reduce of 0 bytes"},
		{head + "step_s = 1.0\nstart_s = [0.5]\nbytes = [1, 2]", "p.toml:6:9: 2 sizes for 1 starts"},
		{head + "step_s = 1.0\nstart_s = []\nbytes = []", "p.toml:5:11: 0 all-reduces"},
		{head + "batch = -1\nstep_s = 1.0\nstart_s = [0.5]\nbytes = [1]", "p.toml:4:9: a batch of -1"},
		{strings.Repeat(head+"step_s = 1.0\nstart_s = [0.5]\nbytes = [1]\n", 2), `p.toml:8:9: model "m" with a batch of 0 is there twice`},
		{head + "stp_s = 1.0\nstart_s = [0.5]\nbytes = [1]", "stp_s"},
	} {
		p, err := ParsePatterns("p.toml", []byte(tt.text))
		var problems tomlfile.Problems
		if p != nil || !errors.As(err, &problems) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

func TestHistograms(t *testing.T) {
	all := BuiltinHistograms()
	if len(all.Names()) != 10 {
		t.Errorf("histograms %v", all.Names())
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range all.Names() {
		h, _ := all.Lookup(name)
		sum, total, drawn := 0, 0, 0
		for i, n := range h.Hosts {
			sum += n * h.Weight[i]
			total += h.Weight[i]
		}
		const draws = 20000
		for range draws {
			n := h.Draw(r)
			if !slices.Contains(h.Hosts, n) {
				t.Fatalf("%s: a job on %d hosts", name, n)
			}
			drawn += n
		}
		if mean, got := float64(sum)/float64(total), float64(drawn)/draws; math.Abs(got/mean-1) > 0.05 {
			t.Errorf("%s: %.2f hosts in the mean of those drawn, %.2f of the histogram", name, got, mean)
		}
	}
	one, _ := all.Lookup("mina-1")
	five, _ := all.Lookup("mina-5")
	if !slices.Equal(one.Weight, five.Weight) {
		t.Error("mina-1 and mina-5 differ")
	}
	one.Weight[0] = 7
	if p, _ := all.Lookup("mina-1"); p.Weight[0] == 7 {
		t.Error("histograms share memory")
	}
}

func TestHistogramProblems(t *testing.T) {
	const head = "[[histogram]]\nname = \"h\"\nsource = \"s\"\n"
	for _, tt := range []struct{ text, want string }{
		{"", "histogram"},
		{head + "hosts = [2, 1]\nweight = [1, 1]", "h.toml:4:13: 1 hosts after 2"},
		{head + "hosts = [0]\nweight = [1]", "h.toml:4:10: a job on 0 hosts"},
		{head + "hosts = [1]\nweight = [-1]", "h.toml:5:11: a weight of -1"},
		{head + "hosts = [1]\nweight = [0]", "h.toml:5:10: all weights are 0"},
		{head + "hosts = [1]\nweight = [1, 2]", "h.toml:5:10: 2 weights for 1 numbers of hosts"},
		{head + "hosts = []\nweight = []", "h.toml:4:9: no hosts"},
		{strings.Repeat(head+"hosts = [1]\nweight = [1]\n", 2), `h.toml:7:8: histogram "h" is there twice`},
	} {
		h, err := ParseHistograms("h.toml", []byte(tt.text))
		var problems tomlfile.Problems
		if h != nil || !errors.As(err, &problems) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

func FuzzParsePatterns(f *testing.F) {
	f.Add(builtinPatterns)
	f.Add([]byte("[[pattern]]\nmodel = \"a\\\"\\u0001\"\nsource = \"s\"\nstep_s = 1.0\nstart_s = [0.0, 1e-9]\nbytes = [1, 2]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParsePatterns("f.toml", text)
		if (p == nil) == (err == nil) {
			t.Fatalf("%v and %v", p, err)
		}
		if err != nil {
			return
		}
		again, err := ParsePatterns("again.toml", FormatPatterns(p.all...))
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("%+v, written and read: %+v, %v", p, again, err)
		}
	})
}
