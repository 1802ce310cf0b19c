package sharp

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// AMConfig is a configuration file of sharp_am. Its lines are "key value" or "key = value";
// "#" begins a comment. What Set does not change is written as it was read, to the byte.
type AMConfig struct {
	Name  string // path, for messages
	lines []amLine
}

// amLine is one line: before the key, the key, between it and the value, the value, and
// what follows (spaces, a comment, the end of line). All but tail are empty when it sets
// nothing.
type amLine struct {
	indent, key, sep, value, tail string
}

// ParseAMConfig reads a configuration. The error is tomlfile.Problems, all of them, each
// with its line: lines that set nothing, keys that are set twice, and values that do not
// fit a key that is known (amOptions). Unknown keys are kept: every version has others.
func ParseAMConfig(name string, text []byte) (*AMConfig, error) {
	c := &AMConfig{Name: name}
	var problems tomlfile.Problems
	first := map[string]int{}
	for line := range strings.Lines(string(text)) {
		l := splitAMLine(line)
		c.lines = append(c.lines, l)
		n := len(c.lines)
		report := func(at int, hint, format string, args ...any) {
			problems = append(problems, tomlfile.Problem{Pos: c.pos(n, at), Msg: fmt.Sprintf(format, args...), Hint: hint})
		}
		if l.key == "" {
			if l.sep != "" {
				report(len(l.indent), "write \"key value\"", "a value without a key")
			}
			continue
		}
		if at, dup := first[l.key]; dup {
			report(len(l.indent), "delete one of the two", "%s is set already, on line %d", l.key, at)
			continue
		}
		first[l.key] = n
		switch {
		case !isKey(l.key):
			report(len(l.indent), "names have letters, digits and _", "%q is not the name of an option", l.key)
		case l.value == "":
			report(len(l.indent), "write \"key value\", or comment the line out with #", "%s has no value", l.key)
		default:
			if err := checkAM(l.key, l.value); err != nil {
				report(len(l.indent)+len(l.key)+len(l.sep), tomlfile.HintOf(err), "%s: %v", l.key, err)
			}
		}
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *AMConfig) pos(line, bytes int) tomlfile.Pos {
	l := c.lines[line-1]
	text := l.indent + l.key + l.sep + l.value + l.tail
	return tomlfile.Pos{File: c.Name, Line: line, Col: 1 + len([]rune(text[:bytes]))}
}

// splitAMLine takes a line apart so that its parts, joined, are the line.
func splitAMLine(line string) (l amLine) {
	space := func(s string) int {
		return len(s) - len(strings.TrimLeftFunc(s, func(r rune) bool { return unicode.IsSpace(r) }))
	}
	l.indent, line = line[:space(line)], line[space(line):]
	if line == "" || line[0] == '#' {
		return amLine{tail: l.indent + line}
	}
	end := strings.IndexFunc(line, func(r rune) bool { return unicode.IsSpace(r) || r == '=' || r == '#' })
	if end < 0 {
		end = len(line)
	}
	l.key, line = line[:end], line[end:]
	n := space(line)
	if n < len(line) && line[n] == '=' {
		n++
		n += space(line[n:])
	}
	l.sep, line = line[:n], line[n:]
	// A value ends at a comment that follows a space, or at the end of the line.
	end = len(line)
	for i, r := range line {
		before := line[:i]
		if r == '#' && (i == 0 || strings.TrimRightFunc(before, unicode.IsSpace) != before) {
			end = i
			break
		}
	}
	l.value = strings.TrimRightFunc(line[:end], unicode.IsSpace)
	l.tail = line[len(l.value):]
	return l
}

func isKey(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && r != '-' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	})
}

// Bytes is the file.
func (c *AMConfig) Bytes() []byte {
	var b strings.Builder
	for _, l := range c.lines {
		b.WriteString(l.indent + l.key + l.sep + l.value + l.tail)
	}
	return []byte(b.String())
}

// Keys are the options that the file sets, in its order.
func (c *AMConfig) Keys() (keys []string) {
	for _, l := range c.lines {
		if l.key != "" {
			keys = append(keys, l.key)
		}
	}
	return keys
}

// Get is the value of an option that the file sets.
func (c *AMConfig) Get(key string) (value string, ok bool) {
	for _, l := range c.lines {
		if l.key == key && key != "" {
			return l.value, true
		}
	}
	return "", false
}

// Set sets an option: on its line, if it has one, else on a new one at the end. An error
// says what is wrong with the name or the value; then nothing has changed.
func (c *AMConfig) Set(key, value string) error {
	switch {
	case !isKey(key):
		return fmt.Errorf("%s: %q is not the name of an option", c.Name, key)
	case value == "" || value != strings.TrimSpace(value) || strings.ContainsFunc(value, unicode.IsControl) ||
		strings.HasPrefix(value, "=") || splitAMLine("k "+value).value != value:
		return fmt.Errorf("%s: %s: %q cannot be written as a value", c.Name, key, value)
	}
	if err := checkAM(key, value); err != nil {
		return fmt.Errorf("%s: %s: %w", c.Name, key, err)
	}
	for i := range c.lines {
		if c.lines[i].key == key {
			c.lines[i].value = value
			return nil
		}
	}
	if n := len(c.lines); n > 0 {
		last := &c.lines[n-1]
		if !strings.HasSuffix(last.tail, "\n") {
			last.tail += "\n"
		}
	}
	c.lines = append(c.lines, amLine{key: key, sep: " ", value: value, tail: "\n"})
	return nil
}

// Notes are remarks on options of the file that do not do what one may think: they are
// named otherwise, do nothing any more, or are on their way out. A file with notes works.
func (c *AMConfig) Notes() (notes tomlfile.Problems) {
	for i, l := range c.lines {
		if o := amOptions[l.key]; o.note != "" {
			p := tomlfile.Problem{Pos: c.pos(i+1, len(l.indent)), Msg: l.key + " " + o.note}
			if o.use != "" {
				p.Hint = fmt.Sprintf("use %s", o.use)
			}
			notes = append(notes, p)
		}
	}
	return notes
}

// amOption is what is known of an option.
type amOption struct {
	check func(value string) error // nil: anything goes
	note  string
	use   string
}

// checkAM is an error if a value does not fit a known option.
func checkAM(key, value string) error {
	if o := amOptions[key]; o.check != nil {
		return o.check(value)
	}
	return nil
}

// amOptions are the options that decide who gets a tree, and others that are often wrong. Source: release notes of
// SHARP 3.0 to 3.14, which also say which version knows which option.
var amOptions = map[string]amOption{
	"dynamic_tree_allocation":        {check: flag, note: "is becoming obsolete (SHARP 3.11): trees are always dynamic then"},
	"dynamic_tree_algorithm":         {check: number(0, 1)},
	"max_trees_to_build":             {check: number(1, math.MaxInt32)},
	"max_tree_radix":                 {check: number(0, math.MaxInt32)},
	"per_prio_default_quota":         {check: percent},
	"per_prio_default_sat_quota":     {check: percent},
	"sat_jobs_default_absolute_osts": {check: number(0, math.MaxInt32)},
	"reservation_mode":               {check: flag},
	"reservation_auto_by_pkeys":      {check: flag, note: "is deprecated (SHARP 3.14): partitions make reservations then"},
	"app_resources_default_limit":    {check: number(-1, math.MaxInt32)},
	"reservation_max_jobs_per_hca":   {check: number(0, 511)},
	"enable_exclusive_lock":          {check: flag},
	"enable_topology_api":            {check: flag},
	"log_verbosity":                  {check: number(0, 5)},
	"ignore_sm_guids":                {check: flag},
	"fabric_update_interval":         {check: number(1, math.MaxInt32)},
	"job_reconnection_timeout":       {check: number(0, math.MaxInt32)},

	"enable_sat":      {note: "is ignored since SHARP 3.2: streaming trees are always on"},
	"rounding_method": {note: "is deprecated (SHARP 3.14)"},
	"topology_api":    {note: "is not an option of sharp_am", use: "enable_topology_api"},
	"max_quota":       {note: "is not an option of sharp_am", use: "per_prio_max_quota"},
	"dump_dir":        {note: "is not an option of sharp_am", use: "dump_path"},
}

func flag(v string) error {
	switch strings.ToLower(v) {
	case "true", "yes", "on", "1", "false", "no", "off", "0":
		return nil
	}
	return tomlfile.WithHint("write TRUE or FALSE", "%q is neither true nor false", v)
}

func number(low, high int) func(string) error {
	limits := fmt.Sprintf("a whole number from %d to %d", low, high)
	if high == math.MaxInt32 {
		limits = fmt.Sprintf("a whole number, %d or more", low)
	}
	return func(v string) error {
		if n, err := strconv.Atoi(v); err != nil || n < low || n > high {
			return tomlfile.WithHint("", "%q is not %s", v, limits)
		}
		return nil
	}
}

// percent is one value for all priorities. A list with one for each, as some versions have
// it, passes: how it is written differs.
func percent(v string) error {
	if strings.Contains(v, "prio_") || strings.Contains(v, ",") {
		return nil
	}
	if f, err := strconv.ParseFloat(strings.TrimSuffix(v, "%"), 64); err != nil || !(f >= 0 && f <= 100) {
		return tomlfile.WithHint("", "%q is not a percentage from 0 to 100", v)
	}
	return nil
}
