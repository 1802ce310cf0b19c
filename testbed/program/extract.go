package program

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results"
)

// Rule says where in a program's output a figure is.
type Rule struct {
	Metric string
	Unit   string // of the number there, one of ExtractUnits
	// JSON is a path into a JSON document: "results.0.bandwidth", or with * for every
	// element of a list. Regexp has one group, which is the number. One of them is set.
	JSON   string
	Regexp string
	// Take says which of several numbers: "last", "first", "mean" (with its interval) or
	// "sum". Empty: mean.
	Take string
}

// unitOf is a unit as people write it: what to multiply by, and the base unit.
var unitOf = map[string]struct {
	factor float64
	base   string
}{
	"1": {1, "1"}, "%": {0.01, "1"}, "1/s": {1, "1/s"}, "Mpps": {1e6, "1/s"},
	"s": {1, "s"}, "ms": {1e-3, "s"}, "us": {1e-6, "s"}, "ns": {1e-9, "s"}, "min": {60, "s"},
	"bit/s": {1, "bit/s"}, "kbit/s": {1e3, "bit/s"}, "Mbit/s": {1e6, "bit/s"}, "Gbit/s": {1e9, "bit/s"},
	"B/s": {8, "bit/s"}, "MB/s": {8e6, "bit/s"}, "GB/s": {8e9, "bit/s"},
	"KiB/s": {8 << 10, "bit/s"}, "MiB/s": {8 << 20, "bit/s"}, "GiB/s": {8 << 30, "bit/s"}, "Gibit/s": {1 << 30, "bit/s"},
	"B": {1, "B"}, "MiB": {1 << 20, "B"}, "GiB": {1 << 30, "B"},
}

// ExtractUnits are the units that a rule may have.
func ExtractUnits() []string {
	return strings.Fields("1 % 1/s Mpps s ms us ns min bit/s kbit/s Mbit/s Gbit/s B/s MB/s GB/s KiB/s MiB/s GiB/s Gibit/s B MiB GiB")
}

// BaseUnit is the unit of the figures that a rule finds; empty for one that nobody knows.
func BaseUnit(unit string) string { return unitOf[unit].base }

// Takes are the words for Rule.Take.
func Takes() []string { return []string{"mean", "last", "first", "sum"} }

// Check is an error if the rule makes no sense.
func (r *Rule) Check() error {
	switch {
	case BaseUnit(r.Unit) == "":
		return fmt.Errorf("unit %q is none of %s", r.Unit, strings.Join(ExtractUnits(), ", "))
	case (r.JSON == "") == (r.Regexp == ""):
		return fmt.Errorf("one of json and regexp says where the number is")
	case r.Regexp != "":
		re, err := regexp.Compile(r.Regexp)
		if err != nil {
			return err
		}
		if re.NumSubexp() != 1 {
			return fmt.Errorf("%q has %d groups; the number is in the one group that it must have", r.Regexp, re.NumSubexp())
		}
	}
	return nil
}

// maxDocument is how long a JSON document may be: read, it takes some fifty times as much memory.
const maxDocument = 4 << 20

// mostFound is how many numbers a rule may find: each takes some 100 bytes while it is read.
const mostFound = 250_000

// Extract applies rules to output. A rule that finds nothing, or what is not a number, is an
// error: a figure that is missing must not look like one that is 0. Commas part thousands where that is certain, and a number
// with another comma, or with one of which nobody knows what it is ("1,500"), is none. sum_errors that are not 0 make
// the reading Wrong.
func Extract(text []byte, rules []Rule) (*Reading, error) { return extract([][]byte{text}, rules) }

// extract is Extract of several texts, one after the other. None goes on in the next one, but a JSON document may be in any of them.
func extract(texts [][]byte, rules []Rule) (*Reading, error) {
	r := &Reading{}
	var doc any
	for i := range rules {
		rule := &rules[i]
		err := rule.Check()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule.Metric, err)
		}
		var found []string
		if rule.Regexp != "" {
			most := mostFound + 1
			if rule.Take == "first" && rule.Metric != "sum_errors" {
				most = 1
			}
			re := regexp.MustCompile("(?m)" + rule.Regexp)
			for _, text := range texts {
				if len(found) == most {
					break
				}
				for _, m := range re.FindAllSubmatchIndex(text, most-len(found)) {
					found = append(found, string(text[max(0, m[2]):max(0, m[3])]))
				}
			}
		} else {
			if doc == nil {
				if doc, err = document(texts); err != nil {
					return nil, fmt.Errorf("%s: %w", rule.Metric, err)
				}
			}
			found = dig(doc, strings.Split(rule.JSON, "."))
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s: %w: nothing at %q", rule.Metric, ErrOutput, cmp.Or(rule.JSON, rule.Regexp))
		}
		if len(found) > mostFound {
			return nil, fmt.Errorf("%s: %w: more than %d numbers at %q", rule.Metric, ErrOutput, mostFound, cmp.Or(rule.JSON, rule.Regexp))
		}
		var values []float64
		for _, s := range found {
			v, err := number(s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w: %q %w", rule.Metric, ErrOutput, shown([]byte(s)), err)
			}
			if rule.Metric == "sum_errors" && v != 0 && r.Wrong == "" {
				r.Wrong = s + " wrong values"
			}
			values = append(values, v*unitOf[rule.Unit].factor)
		}
		r.take(rule, values)
	}
	return r, nil
}

// thousands is a number in groups of three digits.
var thousands = regexp.MustCompile(`^[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?(?:[eE][+-]?\d+)?$`)

// number is a finite number as people write it. Commas part thousands where nothing else can be meant: in "1,500,000" and
// "1,500.0". In many languages "1,500" is one and a half.
func number(s string) (float64, error) {
	text := strings.TrimSpace(s)
	if commas := strings.Count(text, ","); commas > 0 {
		switch {
		case !thousands.MatchString(text):
			return 0, errors.New("is not a finite number: commas part groups of three digits, and a point stands before a fraction")
		case commas == 1 && !strings.Contains(text, "."):
			return 0, errors.New("is ambiguous: its comma may part thousands or stand before a fraction: have the program print none")
		}
		text = strings.ReplaceAll(text, ",", "")
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, errors.New("is not a finite number")
	}
	return v, nil
}

// document is the JSON document that texts begin with.
func document(texts [][]byte) (doc any, err error) {
	size, readers := 0, make([]io.Reader, 0, 2*len(texts))
	for _, text := range texts {
		size += len(text)
		readers = append(readers, bytes.NewReader(text), strings.NewReader("\n"))
	}
	if size > maxDocument {
		return nil, fmt.Errorf("%w: %d bytes of JSON, at most %d are read: have it say less, or use regexp", ErrOutput, size, maxDocument)
	}
	d := json.NewDecoder(io.MultiReader(readers...))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("%w: not JSON: %v: %.60q", ErrOutput, err, shown(bytes.Join(texts, []byte("\n"))))
	}
	return doc, nil
}

// shown is the beginning of what a program said, for an error.
func shown(text []byte) []byte { return Redact(text[:min(len(text), 200)]) }

func (r *Reading) take(rule *Rule, v []float64) {
	switch rule.Take {
	case "first":
		v = v[:1]
	case "last":
		v = v[len(v)-1:]
	case "sum":
		sum := 0.0
		for _, x := range v {
			sum += x
		}
		v = []float64{sum}
	}
	r.addMean(rule.Metric, "", v)
	f := &r.Figures[len(r.Figures)-1]
	f.Unit, f.Kind = BaseUnit(rule.Unit), results.Measured
}

// dig is every number at a path, as text.
func dig(doc any, path []string) (found []string) {
	if len(path) == 0 {
		switch v := doc.(type) {
		case json.Number:
			return []string{v.String()}
		case string:
			return []string{v}
		}
		return nil
	}
	switch v := doc.(type) {
	case map[string]any:
		if next, ok := v[path[0]]; ok {
			return dig(next, path[1:])
		}
	case []any:
		if path[0] == "*" {
			for _, x := range v {
				found = append(found, dig(x, path[1:])...)
			}
			return found
		}
		if i, err := strconv.Atoi(path[0]); err == nil && i >= 0 && i < len(v) {
			return dig(v[i], path[1:])
		}
	}
	return nil
}
