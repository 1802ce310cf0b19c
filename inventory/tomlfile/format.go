package tomlfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// Format writes a TOML text as all are written: one space around '=', no blanks at the ends of lines, one empty line
// before a table and no two anywhere, and comments after values below each other. What stands where, comments, and what
// spans several lines stay as they are; the text means the same. The error is Problems where the text is not TOML.
func Format(name string, text []byte) ([]byte, error) {
	if _, err := Parse(name, text); err != nil {
		return nil, err
	}
	out := format(string(text))
	var before, after map[string]any
	_, err1 := toml.Decode(string(text), &before)
	_, err2 := toml.Decode(string(out), &after)
	// Printed, since a NaN is not equal to itself.
	if err1 != nil || err2 != nil || fmt.Sprint(before) != fmt.Sprint(after) {
		return nil, errors.New("format " + name + ": it would mean something else; it is left as it is") // a mistake here
	}
	return out, nil
}

// statement is what stands on a line, or on several that belong together.
type statement struct {
	text    string // without its comment; "" of an empty line, or one with a comment alone
	comment string // with its '#'
	header  bool   // it opens a table
	spans   bool   // several lines
}

func format(text string) []byte {
	var b bytes.Buffer
	all := statements(text)
	for len(all) > 0 && all[len(all)-1] == (statement{}) {
		all = all[:len(all)-1]
	}
	blank := true // nothing, or an empty line, is before
	for i := 0; i < len(all); i++ {
		s := all[i]
		if s.text == "" && s.comment == "" {
			if !blank {
				blank = true
				b.WriteByte('\n')
			}
			continue
		}
		if !blank && (all[i-1].text != "" || all[i-1].comment == "") && opens(all[i:]) {
			b.WriteByte('\n')
		}
		blank = false
		if s.text == "" || s.comment == "" {
			b.WriteString(s.text + s.comment + "\n")
			continue
		}
		// Comments of lines that follow each other are below each other.
		n, width := i, 0
		for ; n < len(all) && all[n].text != "" && !all[n].spans && !all[n].header == !s.header; n++ {
			if all[n].comment != "" {
				width = max(width, utf8.RuneCountInString(all[n].text))
			}
		}
		if s.spans {
			n, width = i+1, 0
		}
		for ; i < max(n, i+1); i++ {
			s := all[i]
			b.WriteString(s.text)
			if s.comment != "" {
				b.WriteString(strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s.text))) + " " + s.comment)
			}
			b.WriteByte('\n')
			if i+1 >= n {
				break
			}
		}
	}
	return b.Bytes()
}

// opens says whether a table begins here: a header, or comments right above one.
func opens(rest []statement) bool {
	for _, s := range rest {
		if s.header {
			return true
		}
		if s.text != "" || s.comment == "" {
			return false
		}
	}
	return false
}

// statements takes a text apart.
func statements(text string) (out []statement) {
	for text != "" {
		end, comment := statementEnd(text)
		line := text[:end]
		text = strings.TrimPrefix(text[end:], "\n")
		s := statement{text: strings.TrimSpace(line)}
		if comment >= 0 {
			s.text, s.comment = strings.TrimSpace(line[:comment]), strings.TrimRight(line[comment:], " \t\r")
		}
		s.header = strings.HasPrefix(s.text, "[")
		s.spans = strings.Contains(s.text, "\n")
		if !s.header && s.text != "" {
			s.text = spaced(s.text)
		}
		out = append(out, s)
	}
	return out
}

// statementEnd is where the statement at the beginning of a text ends, before its newline, and where in it a comment
// begins, -1 if there is none after it.
func statementEnd(text string) (end, comment int) {
	depth := 0
	comment = -1
	for i, c := range plain(text) {
		switch {
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case depth > 0:
		case c == '#':
			comment = i
		case c == '\n':
			return i, comment
		}
	}
	return len(text), comment
}

// spaced is "key = value" with one space around the sign.
func spaced(s string) string {
	for i, c := range plain(s) {
		if c == '=' {
			return strings.TrimRight(s[:i], " \t") + " = " + strings.TrimLeft(s[i+1:], " \t")
		}
	}
	return s
}
