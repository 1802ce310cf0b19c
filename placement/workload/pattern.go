package workload

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// Pattern is when a model reduces its gradients in every step, as whoever listens to the
// collective library sees it (MINA, INFOCOM '24, section IV-B).
type Pattern struct {
	Model  string
	Batch  int     // 0: nobody says
	GPU    string  // that it was measured on; "": nobody says
	Step   float64 // s that a step computes: it lasts at least as long
	Ops    []Op    // one after the other, by Start
	Source string  // where the figures are from
}

// Op is one all-reduce of a step.
type Op struct {
	Start float64 // s since the step began: not earlier, as the gradients are not there
	Bytes int64
}

// Bytes is what a step reduces.
func (p *Pattern) Bytes() int64 {
	var sum int64
	for _, o := range p.Ops {
		sum += o.Bytes
	}
	return sum
}

// Faster is the pattern on a GPU that is so many times as fast: more than 0.
func (p *Pattern) Faster(factor float64) Pattern {
	out := *p
	out.Step /= factor
	out.Ops = slices.Clone(p.Ops)
	for i := range out.Ops {
		out.Ops[i].Start /= factor
	}
	return out
}

// Patterns are those of different models and batches. They do not change.
type Patterns struct{ all []Pattern } // sorted by model, then batch

//go:embed patterns.toml
var builtinPatterns []byte

var loadPatterns = sync.OnceValue(func() *Patterns {
	p, err := ParsePatterns("patterns.toml", builtinPatterns)
	if err != nil {
		panic(err) // TestPatterns reads the same bytes
	}
	return p
})

// BuiltinPatterns are those that come with this program: the seven models of MINA's
// evaluation at batch 4, six of them at 16. patterns.toml beside this file says how such a
// file is written.
func BuiltinPatterns() *Patterns { return loadPatterns() }

// LoadPatterns reads patterns from a file; see ParsePatterns. That it cannot be read is
// the operating system's error.
func LoadPatterns(path string) (*Patterns, error) {
	text, err := bounded.ReadFile(path, bounded.Config)
	if err != nil {
		return nil, err
	}
	return ParsePatterns(path, text)
}

type (
	// patternsFile is patterns as TOML.
	patternsFile struct {
		Patterns []patternTable `toml:"pattern,required"`
	}
	// patternTable is when a model reduces its gradients within a step.
	patternTable struct {
		At     string    `toml:",path"`
		Model  string    `toml:"model,required"`   // as experiments call it
		Batch  int       `toml:"batch"`            // samples in a step; 0: nobody says
		GPU    string    `toml:"gpu"`              // on which it was measured
		Step   float64   `toml:"step_s,required"`  // seconds of a step without any reduction
		Start  []float64 `toml:"start_s,required"` // seconds from the step's beginning to that of each reduction
		Bytes  []int64   `toml:"bytes,required"`   // of each reduction
		Source string    `toml:"source,required"`  // where the figures are from
	}
)

// DescribePatterns lists what a file of patterns may say.
func DescribePatterns() tomlfile.Entry { return tomlfile.Describe(patternsFile{}) }

// ParsePatterns reads patterns. The error is tomlfile.Problems, with every problem's place.
func ParsePatterns(name string, text []byte) (*Patterns, error) {
	f, err := tomlfile.Parse(name, text)
	if err != nil {
		return nil, err
	}
	var doc patternsFile
	f.Decode(&doc)
	type key struct {
		model string
		batch int
	}
	out, seen := &Patterns{}, map[key]bool{}
	for i := range doc.Patterns {
		d := &doc.Patterns[i]
		p := Pattern{Model: d.Model, Batch: d.Batch, GPU: d.GPU, Step: d.Step, Source: d.Source}
		if f.Has(d.At + ".model") {
			if d.Model == "" {
				f.Problemf(d.At+".model", "", "a pattern needs the name of its model")
			} else if seen[key{d.Model, d.Batch}] {
				f.Problemf(d.At+".model", "", "model %q with a batch of %d is there twice", d.Model, d.Batch)
			}
			seen[key{d.Model, d.Batch}] = true
		}
		if d.Batch < 0 || d.Batch > math.MaxInt32 {
			f.Problemf(d.At+".batch", "leave it out where nobody says", "a batch of %d", d.Batch)
		}
		if f.Has(d.At+".source") && d.Source == "" {
			f.Problemf(d.At+".source", "", "say where the figures are from")
		}
		if f.Has(d.At+".step_s") && !(d.Step > 0 && d.Step <= maxMicros/1e6) {
			f.Problemf(d.At+".step_s", "", "a step of %v s: more than 0, at most a day", d.Step)
		}
		for _, list := range []struct {
			key string
			n   int
		}{{"start_s", len(d.Start)}, {"bytes", len(d.Bytes)}} {
			if f.Has(d.At+"."+list.key) && (list.n == 0 || list.n > maxGroups) {
				f.Problemf(d.At+"."+list.key, "", "%d all-reduces: 1 to %d", list.n, maxGroups)
			}
		}
		for k, s := range d.Start {
			at := fmt.Sprintf("%s.start_s[%d]", d.At, k)
			if !(s >= 0 && s <= maxMicros/1e6) {
				f.Problemf(at, "", "an all-reduce that may start after %v s: 0 to a day", s)
			} else if k > 0 && s < d.Start[k-1] {
				f.Problemf(at, "they run in the order of the list", "an all-reduce that may start before the one before it")
			}
			p.Ops = append(p.Ops, Op{Start: s})
		}
		for k, b := range d.Bytes {
			if b < 1 || b > maxBytes {
				f.Problemf(fmt.Sprintf("%s.bytes[%d]", d.At, k), "", "an all-reduce of %d bytes: 1 to %d", b, int64(maxBytes))
			}
			if k < len(p.Ops) {
				p.Ops[k].Bytes = b
			}
		}
		if f.Has(d.At+".start_s") && f.Has(d.At+".bytes") && len(d.Start) != len(d.Bytes) {
			f.Problemf(d.At+".bytes", "", "%d sizes for %d starts", len(d.Bytes), len(d.Start))
		}
		out.all = append(out.all, p)
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	out.sort()
	return out, nil
}

func order(a, b Pattern) int {
	return cmp.Or(strings.Compare(a.Model, b.Model), cmp.Compare(a.Batch, b.Batch))
}

func (p *Patterns) sort() { slices.SortFunc(p.all, order) }

// With is these patterns and others; where both have a model and batch, the other counts.
func (p *Patterns) With(other *Patterns) *Patterns {
	out := &Patterns{all: slices.Clone(other.all)}
	for _, own := range p.all {
		if _, replaced := slices.BinarySearchFunc(other.all, own, order); !replaced {
			out.all = append(out.all, own)
		}
	}
	out.sort()
	return out
}

// Lookup returns the pattern of a model at a batch, and false where there is none. What the
// caller does with it stays with the caller.
func (p *Patterns) Lookup(model string, batch int) (Pattern, bool) {
	i, ok := slices.BinarySearchFunc(p.all, Pattern{Model: model, Batch: batch}, order)
	if !ok {
		return Pattern{}, false
	}
	out := p.all[i]
	out.Ops = slices.Clone(out.Ops)
	return out, true
}

// Models are the models that have a pattern at a batch, sorted.
func (p *Patterns) Models(batch int) []string {
	var out []string
	for i := range p.all {
		if p.all[i].Batch == batch {
			out = append(out, p.all[i].Model)
		}
	}
	return out
}

// FormatPatterns writes patterns as ParsePatterns reads them, without losing a bit.
func FormatPatterns(patterns ...Pattern) []byte {
	var b strings.Builder
	for i, p := range patterns {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "[[pattern]]\nmodel = %s\n", quote(p.Model))
		if p.Batch != 0 {
			fmt.Fprintf(&b, "batch = %d\n", p.Batch)
		}
		if p.GPU != "" {
			fmt.Fprintf(&b, "gpu = %s\n", quote(p.GPU))
		}
		fmt.Fprintf(&b, "step_s = %s\nsource = %s\nstart_s = [", float(p.Step), quote(p.Source))
		for k, o := range p.Ops {
			b.WriteString(separator(k) + float(o.Start))
		}
		b.WriteString("\n]\nbytes = [")
		for k, o := range p.Ops {
			b.WriteString(separator(k) + strconv.FormatInt(o.Bytes, 10))
		}
		b.WriteString("\n]\n")
	}
	return []byte(b.String())
}

// separator is what stands before item k of a list: five of them on a line.
func separator(k int) string {
	switch {
	case k == 0:
		return "\n    "
	case k%5 == 0:
		return ",\n    "
	}
	return ", "
}

// float is a number in TOML's form.
func float(x float64) string {
	s := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// quote is a text in TOML's form.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range strings.ToValidUTF8(s, "�") {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
