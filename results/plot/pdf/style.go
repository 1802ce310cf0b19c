package pdf

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/inabench/inabench/results/plot"
)

// rule is one of package plot's: "svg.ina text.name{fill:var(--c)}".
type rule struct {
	tag     string // "" for any
	classes []string
	props   map[string]string
}

// sheet is a style sheet.
type sheet struct {
	root  map[string]string // properties of the drawing as a whole, and variables
	rules []rule            // the weakest first
}

// theSheet is that of drawings on paper.
var theSheet = sync.OnceValue(func() *sheet {
	s := &sheet{root: properties(plot.PaperCSS)}
	for block := range strings.SplitSeq(plot.CSS, "}") {
		selector, body, ok := strings.Cut(block, "{")
		of, ok2 := strings.CutPrefix(strings.TrimSpace(selector), "svg.ina")
		if !ok || !ok2 {
			continue
		}
		props := properties(body)
		parts := strings.Split(strings.TrimSpace(of), ".")
		if len(parts) == 1 && parts[0] == "" {
			maps.Copy(s.root, props)
			continue
		}
		s.rules = append(s.rules, rule{tag: parts[0], classes: parts[1:], props: props})
	}
	weight := func(r rule) int {
		n := 10 * len(r.classes)
		if r.tag != "" {
			n++
		}
		return n
	}
	slices.SortStableFunc(s.rules, func(a, b rule) int { return cmp.Compare(weight(a), weight(b)) })
	return s
})

// properties are those of a block.
func properties(body string) map[string]string {
	out := map[string]string{}
	for line := range strings.SplitSeq(body, ";") {
		if key, value, ok := strings.Cut(line, ":"); ok {
			out[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return out
}

// style is what properties an element has.
type style struct {
	sheet   *sheet
	props   map[string]string
	opacity float64 // of all that it is in
}

// own are properties that are of an element alone, and not of what is in it.
var own = []string{"opacity", "fill-opacity"}

// of is the style of an element within another.
func (s style) of(e *element) style {
	out := style{sheet: s.sheet, props: maps.Clone(s.props), opacity: cmp.Or(s.opacity, 1)}
	for _, key := range own {
		delete(out.props, key)
	}
	if e.name == "svg" {
		maps.Copy(out.props, s.sheet.root)
	}
	for _, key := range []string{"fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight"} {
		if v, ok := e.attrs[key]; ok {
			out.props[key] = v
		}
	}
	classes := strings.Fields(e.attrs["class"])
	for _, r := range s.sheet.rules {
		if r.tag != "" && r.tag != e.name || slices.ContainsFunc(r.classes, func(c string) bool { return !slices.Contains(classes, c) }) {
			continue
		}
		maps.Copy(out.props, r.props)
	}
	maps.Copy(out.props, properties(e.attrs["style"]))
	out.opacity *= out.part("opacity")
	return out
}

// with is a style with another value of a property.
func (s style) with(key, value string) style {
	s.props = maps.Clone(s.props)
	s.props[key] = value
	return s
}

// get is a property, with variables looked up.
func (s style) get(key string) string {
	v := s.props[key]
	for range 4 { // a variable may stand for another one
		name, ok := strings.CutPrefix(v, "var(")
		if !ok {
			return v
		}
		v = s.props[strings.TrimSuffix(name, ")")]
	}
	return v
}

// length is one in pixels.
func (s style) length(key string) float64 { return number(s.get(key)) }

// part is a number from 0 to 1, which is 1 where it is not said.
func (s style) part(key string) float64 {
	v, err := strconv.ParseFloat(s.get(key), 64)
	if err != nil {
		return 1
	}
	return min(max(v, 0), 1)
}

// colour is one as PDF has it, "" for none.
func (s style) colour(key string) string {
	hex, ok := strings.CutPrefix(s.get(key), "#")
	if !ok {
		return ""
	}
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil || len(hex) != 6 {
		return ""
	}
	return fmt.Sprintf("%s %s %s", num(float64(n>>16)/255), num(float64(n>>8&255)/255), num(float64(n&255)/255))
}
