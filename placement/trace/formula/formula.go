// Package formula has expressions over the columns of a table, as the import of a trace takes them: what the
// duration of a job is, how many GPUs it has, and which rows are jobs.
//
//	f, err := formula.Parse("iterations * 0.5s", header)
//	seconds, err := f.Number(row)
//
// The grammar, loosest first:
//
//	or      and { "or" and }
//	and     not { "and" not }
//	not     "not" not | sum [ ("==" | "!=" | "<" | "<=" | ">" | ">=") sum ]
//	sum     product { ("+" | "-") product }
//	product value { ("*" | "/") value }
//	value   "-" value | "(" or ")" | number [ unit ] | column | text
//
// A number is decimal; with a unit behind it (us, ms, s, m or min, h, d) it is a time. A column is a word of letters,
// digits, "_" and ".", or anything between backquotes; case does not matter. A text stands in double quotes and is
// compared with a column by == or !=, blanks around both aside. Times and numbers are kept apart: times are added
// to times, multiplied and divided by numbers, and a time by a time is a number.
//
// A field with nothing in it is no number: a comparison with it is false, whatever the operator, so that the "not" of one is
// true, and a calculation with it has no result. Expressions have at most 1,000 bytes and 50 levels of nesting, so that a
// text of others costs little.
package formula

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind is what an expression gives.
type Kind string

// The kinds there are. Text is that of a part only.
const (
	Number Kind = "a number"
	Time   Kind = "a time"
	Truth  Kind = "true or false"
	Text   Kind = "a text"
)

// Limits of an expression.
const (
	maxLength = 1000 // bytes
	maxDepth  = 50   // of parentheses, signs and nots
)

// Error is what is wrong with an expression.
type Error struct {
	At   int // which character, from 1
	Msg  string
	hint string
}

// Error says where it is and what.
func (e *Error) Error() string { return fmt.Sprintf("character %d: %s", e.At, e.Msg) }

// Hint is what can be done; it may be empty.
func (e *Error) Hint() string { return e.hint }

// FieldError is why a row has no value.
type FieldError struct {
	Column  int  // index of the field that is at fault; -1: none alone is
	Missing bool // nothing is in it
	Msg     string
}

// Error says what is wrong with the row.
func (e *FieldError) Error() string { return e.Msg }

// Formula is an expression that was understood.
type Formula struct {
	Kind    Kind
	Columns []int // indices of those in it, in the order in which they come; one may come twice
	root    node
}

// node is a part of an expression.
type node struct {
	kind     Kind
	from, to int // bytes of the text
	number   func(row []string) (float64, error)
	truth    func(row []string) (bool, error)
	column   int    // of a name alone; otherwise -1
	text     string // of a Text
	terms    []term // of a Truth that joins several by "and"
}

// term is one of several conditions that all have to be true.
type term struct {
	source string
	truth  func(row []string) (bool, error)
}

// Parse understands an expression over columns of the given names. The error is an *Error.
func Parse(text string, columns []string) (*Formula, error) {
	p := &parser{source: text, columns: columns}
	if len(text) > maxLength {
		return nil, &Error{At: 1, Msg: fmt.Sprintf("%d bytes: at most %d", len(text), maxLength)}
	}
	p.scan()
	root := p.binary(0)
	if t := p.peek(); p.err == nil && t.kind != end {
		p.fail(t, "", "%s follows, where an operator or the end is wanted", t)
	}
	if p.err == nil && root.kind == Text {
		p.err = &Error{At: 1, Msg: "a text alone says nothing", hint: `compare it with a column, as in status == "Pass"`}
	}
	if p.err != nil {
		return nil, p.err
	}
	return &Formula{root.kind, p.used, root}, nil
}

// Number is what the row gives of a Number, or in seconds of a Time: it is finite. The error is a *FieldError.
func (f *Formula) Number(row []string) (float64, error) { return f.root.number(row) }

// Refused is the first of the conditions, those that "and" joins, that is not true of the row, as it is written, in
// parentheses where "or" joins parts of it; empty: the row is wanted. The Formula is a Truth; the error is a *FieldError.
func (f *Formula) Refused(row []string) (string, error) {
	for i := range f.root.terms {
		t := &f.root.terms[i]
		if ok, err := t.truth(row); err != nil || !ok {
			return t.source, err
		}
	}
	return "", nil
}

// Decimal is the value of a decimal number; Go's other notations (0x1p-2, 1_000, inf) are none.
func Decimal(s string) (float64, bool) {
	if strings.Trim(s, "0123456789+-.eE") != "" {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil // infinite ones are an error
}

// parser reads tokens; after the first error it goes on, and nothing that it gives is used.
type parser struct {
	source  string
	columns []string
	used    []int
	tokens  []token
	pos     int
	depth   int
	err     error
}

func (p *parser) fail(t token, hint, format string, args ...any) node {
	if p.err == nil {
		p.err = &Error{utf8.RuneCountInString(p.source[:t.from]) + 1, fmt.Sprintf(format, args...), hint}
	}
	return node{column: -1}
}

func (p *parser) peek() token { return p.tokens[min(p.pos, len(p.tokens)-1)] }

func (p *parser) take(operators ...string) (token, bool) {
	t := p.peek()
	ok := p.err == nil && t.kind == operator && slices.Contains(operators, t.text)
	if ok {
		p.pos++
	}
	return t, ok
}

// levels are the operators between two sides, loosest first.
var levels = [][]string{{"or"}, {"and"}, {"==", "!=", "<", "<=", ">", ">="}, {"+", "-"}, {"*", "/"}}

// comparing is the level of comparisons, whose left side may be negated as a whole.
const comparing = 2

func (p *parser) binary(level int) node {
	if level == len(levels) {
		return p.value()
	}
	if level == comparing {
		if not, ok := p.take("not"); ok {
			return p.deeper(not, func() node { return p.negate(not, p.binary(comparing)) })
		}
	}
	left := p.binary(level + 1)
	for {
		op, ok := p.take(levels[level]...)
		if !ok {
			return left
		}
		left = p.join(op, left, p.binary(level+1))
	}
}

// deeper parses what is nested, unless it is nested too deeply for the stack's good.
func (p *parser) deeper(t token, parse func() node) node {
	if p.depth == maxDepth {
		return p.fail(t, "", "nested more than %d levels deep", maxDepth)
	}
	p.depth++
	defer func() { p.depth-- }()
	return parse()
}

func (p *parser) value() node {
	t := p.peek()
	if p.err != nil {
		return node{column: -1}
	}
	if minus, ok := p.take("-"); ok {
		return p.deeper(minus, func() node { return p.minus(minus, p.value()) })
	}
	if open, ok := p.take("("); ok {
		return p.deeper(open, func() node { return p.parenthesis(open) })
	}
	p.pos++
	switch t.kind {
	case number:
		return p.literal(t)
	case name:
		return p.field(t)
	case text:
		return node{kind: Text, from: t.from, to: t.to, column: -1, text: t.text}
	}
	return p.fail(t, "", "%s stands where a number or a column is wanted", t)
}

func (p *parser) parenthesis(open token) node {
	in := p.binary(0)
	shut, ok := p.take(")")
	if !ok {
		return p.fail(shut, "", "%s stands where ) is wanted", shut)
	}
	in.from, in.to = open.from, shut.to
	in.column = -1
	return in
}

// units are those of times, in seconds.
var units = map[string]float64{"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}

func (p *parser) literal(t token) node {
	v, ok := Decimal(t.text)
	if !ok {
		return p.fail(t, "", "%s is not a number", t)
	}
	kind := Number
	if t.unit != "" {
		kind = Time
		factor, known := units[t.unit]
		if !known {
			return p.fail(t, "us, ms, s, m, h and d are known", "unknown unit %q", t.unit)
		}
		v *= factor
	}
	if math.IsInf(v, 0) {
		return p.fail(t, "", "%s is too large", t)
	}
	return node{kind: kind, from: t.from, to: t.to, column: -1, number: func([]string) (float64, error) { return v, nil }}
}

// field is the number in a column.
func (p *parser) field(t token) node {
	i := slices.IndexFunc(p.columns, func(c string) bool { return strings.EqualFold(c, t.text) })
	if i < 0 {
		return p.fail(t, p.near(t.text), "no column %q", t.text)
	}
	p.used = append(p.used, i)
	return node{kind: Number, from: t.from, to: t.to, column: i, number: func(row []string) (float64, error) {
		s := strings.TrimSpace(row[i])
		if s == "" {
			return 0, &FieldError{Column: i, Missing: true, Msg: "no " + t.text}
		}
		v, ok := Decimal(s)
		if !ok {
			return 0, &FieldError{Column: i, Msg: fmt.Sprintf("%s %.40q is not a number", t.text, s)}
		}
		return v, nil
	}}
}

func (p *parser) minus(t token, of node) node {
	switch {
	case p.err != nil:
		return of
	case of.kind != Number && of.kind != Time:
		return p.fail(t, "", "- of %s", of.kind)
	}
	return node{kind: of.kind, from: t.from, to: of.to, column: -1, number: func(row []string) (float64, error) {
		v, err := of.number(row)
		return -v, err
	}}
}

func (p *parser) negate(t token, of node) node {
	switch {
	case p.err != nil:
		return of
	case of.kind != Truth:
		return p.fail(t, "", "not of %s", of.kind)
	}
	return p.condition(t.from, of.to, func(row []string) (bool, error) {
		ok, err := of.truth(row)
		return !ok, err
	})
}

// condition is a part that is true or false.
func (p *parser) condition(from, to int, truth func([]string) (bool, error)) node {
	return node{kind: Truth, from: from, to: to, column: -1, truth: truth, terms: []term{{p.source[from:to], truth}}}
}

// join is two sides with an operator between them.
func (p *parser) join(op token, l, r node) node {
	switch {
	case p.err != nil:
		return l
	case op.text == "and" || op.text == "or":
		return p.both(op, l, r)
	case l.kind == Text || r.kind == Text:
		return p.compareText(op, l, r)
	case l.kind == Truth || r.kind == Truth:
		return p.fail(op, `join conditions by "and" or "or"`, "%s %s %s", l.kind, op.text, r.kind)
	case slices.Contains(levels[comparing], op.text):
		return p.compare(op, l, r)
	}
	return p.calculate(op, l, r)
}

func (p *parser) both(op token, l, r node) node {
	if l.kind != Truth || r.kind != Truth {
		return p.fail(op, "both sides are conditions, such as gpus >= 1", "%s %s %s", l.kind, op.text, r.kind)
	}
	all := op.text == "and"
	out := p.condition(l.from, r.to, func(row []string) (bool, error) {
		ok, err := l.truth(row)
		if err != nil || ok != all {
			return ok, err
		}
		return r.truth(row)
	})
	if all {
		out.terms = slices.Concat(l.terms, r.terms)
	} else { // "not" before it would be that of its first part
		out.terms[0].source = "(" + out.terms[0].source + ")"
	}
	return out
}

func (p *parser) compareText(op token, l, r node) node {
	column, text := l.column, strings.TrimSpace(r.text)
	if l.kind == Text {
		column, text = r.column, strings.TrimSpace(l.text)
	}
	equal := op.text == "=="
	switch {
	case op.text != "==" && op.text != "!=":
		return p.fail(op, "", "%s of a text: == and != compare it", op.text)
	case column < 0:
		return p.fail(op, "", "a text is compared with a column")
	}
	return p.condition(l.from, r.to, func(row []string) (bool, error) {
		return strings.TrimSpace(row[column]) == text == equal, nil
	})
}

func (p *parser) compare(op token, l, r node) node {
	if l.kind != r.kind {
		return p.fail(op, "a column counts no unit: multiply it by one, as in duration * 1s", "%s is compared with %s", l.kind, r.kind)
	}
	holds := map[string]func(a, b float64) bool{
		"==": func(a, b float64) bool { return a == b },
		"!=": func(a, b float64) bool { return a != b },
		"<":  func(a, b float64) bool { return a < b },
		"<=": func(a, b float64) bool { return a <= b },
		">":  func(a, b float64) bool { return a > b },
		">=": func(a, b float64) bool { return a >= b },
	}[op.text]
	return p.condition(l.from, r.to, func(row []string) (bool, error) {
		a, b, err := sides(l, r, row)
		if missing, ok := err.(*FieldError); ok && missing.Missing {
			return false, nil
		}
		return err == nil && holds(a, b), err
	})
}

func sides(l, r node, row []string) (a, b float64, err error) {
	if a, err = l.number(row); err == nil {
		b, err = r.number(row)
	}
	return a, b, err
}

func (p *parser) calculate(op token, l, r node) node {
	kind := Number
	switch times := l.kind == Time && r.kind == Time; {
	case op.text == "+" || op.text == "-":
		if l.kind != r.kind {
			return p.fail(op, "a column counts no unit: multiply it by one, as in duration * 1s", "%s %s %s", l.kind, op.text, r.kind)
		}
		kind = l.kind
	case op.text == "*" && times || op.text == "/" && !times && r.kind == Time:
		return p.fail(op, "", "%s %s %s is neither a time nor a number", l.kind, op.text, r.kind)
	case !times && (l.kind == Time || r.kind == Time):
		kind = Time
	}
	do := map[string]func(a, b float64) float64{
		"+": func(a, b float64) float64 { return a + b },
		"-": func(a, b float64) float64 { return a - b },
		"*": func(a, b float64) float64 { return a * b },
		"/": func(a, b float64) float64 { return a / b },
	}[op.text]
	source := p.source[l.from:r.to]
	return node{kind: kind, from: l.from, to: r.to, column: -1, number: func(row []string) (float64, error) {
		a, b, err := sides(l, r, row)
		if err != nil {
			return 0, err
		}
		v := do(a, b)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, &FieldError{Column: max(l.column, r.column), Msg: fmt.Sprintf("%s is not finite: %g %s %g", source, a, op.text, b)}
		}
		return v, nil
	}}
}
