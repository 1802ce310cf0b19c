package formula

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// tokenKind is what a token is.
type tokenKind int

const (
	end tokenKind = iota
	number
	name
	text
	operator
)

// token is a word of an expression.
type token struct {
	kind     tokenKind
	from, to int    // bytes of the source
	text     string // of a text or a name in backquotes, what is between the quotes; of a number, without its unit
	unit     string
}

// String is the token as a message names it.
func (t token) String() string {
	if t.kind == end {
		return "the end"
	}
	return fmt.Sprintf("%.40q", t.text+t.unit)
}

// words are operators that look like names.
var words = []string{"and", "or", "not"}

// signs are the other operators, longer ones before those that they begin with.
var signs = []string{"==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "(", ")"}

// strangers are operators of other languages, and what they are here.
var strangers = map[string]string{"&&": "and", "||": "or", "!": "not", "=": "==", "&": "and", "|": "or"}

// scan makes tokens of the source; the last one is its end.
func (p *parser) scan() {
	for at := 0; p.err == nil; {
		at += len(p.source[at:]) - len(strings.TrimLeftFunc(p.source[at:], unicode.IsSpace))
		t := p.token(at)
		p.tokens = append(p.tokens, t)
		if t.kind == end {
			return
		}
		at = t.to
	}
}

// token is the one that begins at a byte.
func (p *parser) token(at int) token {
	rest := p.source[at:]
	first, _ := utf8.DecodeRuneInString(rest)
	switch {
	case rest == "":
		return token{kind: end, from: at, to: at}
	case first == '"':
		return p.quoted(at, text)
	case first == '`':
		return p.quoted(at, name)
	case isDigit(rest[0]) || rest[0] == '.':
		return p.numeral(at)
	case first == '_' || unicode.IsLetter(first):
		n := wordLength(rest)
		t := token{kind: name, from: at, to: at + n, text: rest[:n]}
		if slices.Contains(words, t.text) {
			t.kind = operator
		}
		return t
	}
	for _, sign := range signs {
		if strings.HasPrefix(rest, sign) {
			return token{kind: operator, from: at, to: at + len(sign), text: sign}
		}
	}
	bad := token{from: at, to: len(p.source)}
	for _, n := range []int{2, 1} {
		sign := rest[:min(n, len(rest))]
		if here := strangers[sign]; here != "" {
			p.fail(bad, "write "+here, "unknown operator %q", sign)
			return bad
		}
	}
	hint := ""
	if first == '\'' {
		hint = `a text stands in double quotes, as in status == "Pass"`
	}
	p.fail(bad, hint, "unknown character %q", first)
	return bad
}

// quoted is what stands between two equal quotation marks.
func (p *parser) quoted(at int, kind tokenKind) token {
	mark := p.source[at : at+1]
	in, _, ok := strings.Cut(p.source[at+1:], mark)
	t := token{kind: kind, from: at, to: at + len(in) + 2, text: in}
	if !ok {
		t.to = len(p.source)
		p.fail(t, "", "nothing closes the %s", mark)
	}
	return t
}

// numeral is a number, and the unit that follows it at once.
func (p *parser) numeral(at int) token {
	rest := p.source[at:]
	n := digits(rest)
	if n < len(rest) && rest[n] == '.' {
		n++
		n += digits(rest[n:])
	}
	if n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
		sign := n + 1
		if sign < len(rest) && (rest[sign] == '+' || rest[sign] == '-') {
			sign++
		}
		if more := digits(rest[sign:]); more > 0 {
			n = sign + more
		}
	}
	unit := wordLength(rest[n:])
	return token{kind: number, from: at, to: at + n + unit, text: rest[:n], unit: rest[n : n+unit]}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digits is how many digits a text begins with.
func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }

// wordLength is how many bytes of a word a text begins with.
func wordLength(s string) int {
	return len(s) - len(strings.TrimLeftFunc(s, func(r rune) bool {
		return r == '_' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r)
	}))
}

// near is the hint for a column that is not there.
func (p *parser) near(column string) string {
	return tomlfile.DidYouMean(strings.ToLower(column), p.columns)
}
