package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
)

// repeats says whether a key is one of how often points are measured, which is the same for all.
func repeats(path string) bool {
	return strings.HasPrefix(path, "measure.") && results.RepeatKey(path)
}

// maxPoints bounds what the sweeps of a file may multiply to.
const maxPoints = 10_000

// Point is one cell of the sweeps.
type Point struct {
	Index  int
	Params map[string]any // swept key -> value as TOML gives it; nil without sweeps
	Labels []string       // "switch.pat_ratio=0.5", in the order of the file
	Spec   *Spec          // with the values set, and no sweeps
}

// Points are the cells of the sweeps in order, the first sweep of the file varying
// slowest; without sweeps it is one. Repeats are not counted.
func (s *Spec) Points() []Point {
	if s.points == nil {
		return []Point{{Spec: s}}
	}
	return s.points
}

// axis is a sweep, or several that are zipped.
type axis struct {
	zip    string
	sweeps []*Sweep
	keys   []tomlfile.Key
	len    int
}

// expand checks the sweeps, and then every point, or the spec itself where there are
// none. It returns the points' problems; its own go into f.
func (s *Spec) expand(f *tomlfile.File) tomlfile.Problems {
	built := labs{}
	axes, ok := s.axes(f)
	total := 1
	for _, a := range axes {
		if total *= a.len; total > maxPoints {
			f.Problemf("sweep", "zip some, or make two experiments", "more than %d points", maxPoints)
			ok = false
			break
		}
	}
	if n := s.Measure.UpTo(); ok && n <= MostRepeats && total*n > MostMeasured {
		at := "measure.repeats"
		if s.Measure.Precision > 0 {
			at = "measure.precision"
		}
		f.Problemf(at, "sweep fewer values, or take fewer repeats", "%d points, %d times each: at most %d measurements in all", total, n, MostMeasured)
	}
	if !ok || len(axes) == 0 {
		s.check(f, built.of(s, f))
		if ok {
			s.checkAgainst(f)
		}
		return nil
	}
	var problems tomlfile.Problems
	for n := range total {
		p := Point{Index: n, Params: map[string]any{}}
		g := f
		rest, size := n, total
		for _, a := range axes {
			size /= a.len
			i := rest / size
			rest %= size
			for k, sw := range a.sweeps {
				v := sw.Values[i]
				g = g.With(a.keys[k], v, f.Pos(fmt.Sprintf("%s.values[%d]", sw.At, i)))
				p.Params[sw.Key] = v
			}
		}
		for i := range s.Sweeps {
			if v, ok := p.Params[s.Sweeps[i].Key]; ok {
				p.Labels = append(p.Labels, s.Sweeps[i].Key+"="+Format(v))
			}
		}
		q := &Spec{kinds: s.kinds, file: g}
		g.Decode(q)
		q.Name, q.File, q.SHA256, q.Text = s.Name, s.File, s.SHA256, s.Text
		q.Overrides, q.inv, q.Sweeps = s.Overrides, s.inv, nil
		q.catalogue, q.patterns = s.catalogue, s.patterns
		q.check(g, built.of(q, g))
		problems = append(problems, g.Problems()...)
		p.Spec = q
		s.points = append(s.points, p)
	}
	// What the first point resolved (defaults of expectations) holds for the whole.
	first := s.points[0].Spec
	s.Emulation, s.Expects, s.Compare, s.Published = first.Emulation, first.Expects, first.Compare, first.Published
	if !s.Says("switch.lanes") {
		s.Switch.Lanes = first.Switch.Lanes // those that programs of switches sum
	}
	s.checkReference(f)
	s.checkAgainst(f)
	if s.inv == nil {
		s.inv = first.inv
	}
	return problems
}

// checkAgainst reports expectations about points, or against some, that the sweeps do not
// have. Those whose key --set gives have nothing to be held against, which the verdict says.
func (s *Spec) checkAgainst(f *tomlfile.File) {
	for i := range s.Expects {
		e := &s.Expects[i]
		if e.Against != "" {
			s.checkLabel(f, e.At+".against", e.Against)
		}
		values := map[string]string{} // by key
		for k, l := range e.Where {
			at := fmt.Sprintf("%s.at[%d]", e.At, k)
			s.checkLabel(f, at, l)
			key, _, _ := strings.Cut(l, "=")
			if other, ok := values[key]; ok && other != l {
				f.Problemf(at, "a point must have all of them: write an expectation for each", "no point has %s and %s", other, l)
			}
			values[key] = l
		}
	}
	for i := range s.Published {
		for k, l := range s.Published[i].Where {
			s.checkLabel(f, fmt.Sprintf("%s.at[%d]", s.Published[i].At, k), l)
		}
	}
}

// checkLabel reports what is not the label of any point.
func (s *Spec) checkLabel(f *tomlfile.File, at, label string) {
	key, _, _ := strings.Cut(label, "=")
	var labels []string
	for _, p := range s.points {
		if v, ok := p.Params[key]; ok && !slices.Contains(labels, key+"="+Format(v)) {
			labels = append(labels, key+"="+Format(v))
		}
	}
	switch i := slices.IndexFunc(s.Sweeps, func(sw Sweep) bool { return sw.Key == key }); {
	case i < 0:
		f.Problemf(at, "write KEY=VALUE of a sweep", "%q is not swept", key)
	case f.Pos(s.Sweeps[i].At+".values").Line == 0: // a flag's: the file may speak of others
	case len(labels) > 0 && !slices.Contains(labels, label):
		f.Problemf(at, tomlfile.OneOf(label, labels), "no point has %s", label)
	}
}

// axes checks each sweep by itself. A sweep whose key --set gives is dropped.
func (s *Spec) axes(f *tomlfile.File) (axes []axis, ok bool) {
	ok = true
	seen := map[string]bool{}
	s.narrowed = nil
	for i := range s.Sweeps {
		sw := &s.Sweeps[i]
		if sw.Key == "" || len(sw.Values) == 0 {
			if f.Has(sw.At + ".values") {
				f.Problemf(sw.At+".values", "", "sweep without values")
			}
			ok = false
			continue
		}
		key, err := f.Key(Spec{}, sw.Key)
		top, _, _ := strings.Cut(key.Path+"[", "[")
		top, _, _ = strings.Cut(top, ".")
		switch {
		case err != nil:
			f.Problemf(sw.At+".key", tomlfile.HintOf(err), "sweep over %q: %v", sw.Key, err)
			ok = false
			continue
		case slices.Contains([]string{"version", "name", "title", "description", "inventory", "on", "catalogue", "patterns", "quick", "summary", "emulation", "sweep", "expect", "compare", "published", "predictor"}, top) ||
			repeats(key.Path) || top == "job" && strings.HasSuffix(key.Path, ".name"):
			f.Problemf(sw.At+".key", "", "%q is the same for all points, it cannot be swept", sw.Key)
			ok = false
			continue
		case seen[key.Path]:
			f.Problemf(sw.At+".key", "", "%q is swept twice", sw.Key)
			ok = false
			continue
		}
		seen[key.Path] = true
		flags := func(key string) bool { return f.Has(key) && f.Pos(key).Line == 0 } // and not the file's
		if flags(sw.At+".values") || flags(key.Path) {
			s.narrowed = append(s.narrowed, sw.Key)
		}
		if flags(key.Path) {
			if sw.Zip != "" {
				f.Report(f.Pos(key.Path), "", "%q is swept together with others (zip %q)", sw.Key, sw.Zip)
				ok = false
			}
			continue
		}
		at := -1
		if sw.Zip != "" {
			at = slices.IndexFunc(axes, func(a axis) bool { return a.zip == sw.Zip })
		}
		if at < 0 {
			axes = append(axes, axis{zip: sw.Zip, len: len(sw.Values)})
			at = len(axes) - 1
		}
		a := &axes[at]
		if len(sw.Values) != a.len {
			f.Problemf(sw.At+".values", fmt.Sprintf("%s has %d", a.sweeps[0].Key, a.len), "%d values zipped with %d", len(sw.Values), a.len)
			ok = false
			continue
		}
		a.sweeps = append(a.sweeps, sw)
		a.keys = append(a.keys, key)
	}
	return axes, ok
}

// Format is a swept value as --set would take it.
func Format(v any) string {
	if items, ok := v.([]any); ok {
		parts := make([]string, len(items))
		for i, it := range items {
			parts[i] = Format(it)
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(v)
}
