package history

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/inabench/inabench/results"
)

// Setting is what must be the same for figures of two runs to be comparable.
type Setting struct {
	Driver string  `json:"driver"`
	Switch string  `json:"switch"`
	Scale  string  `json:"scale"` // "none", "slow-motion" or "shrunk"
	Factor float64 `json:"factor"`
	// Experiment is a sum of what the experiment says of what is to be done. Its layout, its
	// comments, and what is about judging and showing alone is not in it, nor is how many
	// repeats there are.
	Experiment string   `json:"experiment"`
	Overrides  []string `json:"overrides,omitempty"` // of the experiment but its name, on the command line; by key
	Inventory  string   `json:"inventory"`           // a sum of its text
	Files      string   `json:"files,omitempty"`     // a sum of what is in other files that the experiment names; empty: it names none
	Kernel     string   `json:"kernel"`              // of all hosts that said so
	// Machine is the processor and how many there are, of all hosts; where it is not known, the name.
	Machine string `json:"machine"`
	// Sabotage is the fault that the testbed was given on purpose and its part; empty: none.
	Sabotage string `json:"sabotage,omitempty"`
}

// SettingOf is the setting of a run, of its record alone.
func SettingOf(rec *results.Record) Setting {
	s := Setting{
		Driver: rec.Driver, Switch: rec.Switch, Scale: rec.Scale.Mode, Factor: rec.Scale.Factor,
		Experiment: sumOf(rec.Experiment.Text), Inventory: rec.Inventory.Sum(),
	}
	if len(rec.Files) > 0 { // wherever they are
		s.Files = sum([]byte(strings.Join(slices.Sorted(maps.Values(rec.Files)), " ")))
	}
	last := map[string]string{} // of several for one key
	for _, o := range rec.Overrides {
		key, _, _ := strings.Cut(o, "=")
		last[key] = o
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		top, _, _ := strings.Cut(key, ".")
		if !aside(top) && key != "name" && !results.RepeatKey(key) {
			s.Overrides = append(s.Overrides, last[key])
		}
	}
	var kernels, machines []string
	for _, h := range rec.Hosts {
		kernels = append(kernels, h.Kernel)
		machines = append(machines, fmt.Sprintf("%d x %s", h.CPUs, cmp.Or(h.CPU, h.Host)))
	}
	s.Kernel, s.Machine = distinct(kernels), distinct(machines)
	if b := rec.Sabotage; b != nil {
		s.Sabotage = b.Order()
	}
	return s
}

func distinct(words []string) string {
	slices.Sort(words)
	return strings.Join(slices.Compact(words), ", ")
}

// aside says whether a top-level key of an experiment is not about what is done: figures
// are the same without it, or it is in a setting of its own.
func aside(key string) bool {
	return slices.Contains([]string{"version", "title", "description", "on", "quick", "summary", "compare", "expect", "published", "predictor", "preflight", "inventory"}, key)
}

// sumOf is the sum of what an experiment says is to be done.
func sumOf(text string) string {
	return sum([]byte(results.Statement(text, func(key string) bool {
		return aside(key) || strings.HasPrefix(key, "measure.") && results.RepeatKey(key)
	})))
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:6])
}

// Key is a short name of the setting: 12 hexadecimal digits, the same for the same setting
// everywhere.
func (s Setting) Key() string {
	data, _ := json.Marshal(s) // strings and a finite number
	return sum(data)
}

// String is the setting in words: "netns, soft switch, slow-motion x1000, 2 x Xeon, kernel 6.12.5".
func (s Setting) String() string {
	out := s.Driver
	if s.Switch != "" && s.Switch != "model" {
		out += ", " + s.Switch + " switch"
	}
	if s.Scale != "" && s.Scale != "none" {
		out += fmt.Sprintf(", %s x%g", s.Scale, s.Factor)
	}
	for _, w := range []string{s.Machine, prefixed("kernel ", s.Kernel), prefixed("--set ", strings.Join(s.Overrides, " ")), prefixed("--sabotage ", s.Sabotage)} {
		if w != "" {
			out += ", " + w
		}
	}
	return out
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// Differences are what s has otherwise than an older setting, in words: "kernel 6.12.5, was
// 6.1.0"; none if the two are the same.
func (s Setting) Differences(older Setting) (out []string) {
	shown := func(v string) string { return cmp.Or(v, "none") }
	for _, d := range []struct{ what, now, was string }{
		{"driver", s.Driver, older.Driver},
		{"switch", s.Switch, older.Switch},
		{"scale", fmt.Sprintf("%s x%g", s.Scale, s.Factor), fmt.Sprintf("%s x%g", older.Scale, older.Factor)},
		{"kernel", s.Kernel, older.Kernel},
		{"machine", s.Machine, older.Machine},
		{"--sabotage", s.Sabotage, older.Sabotage},
		{"--set", without(s.Overrides, older.Overrides), without(older.Overrides, s.Overrides)},
	} {
		if d.now != d.was {
			out = append(out, fmt.Sprintf("%s %s, was %s", d.what, shown(d.now), shown(d.was)))
		}
	}
	if s.Inventory != older.Inventory {
		out = append(out, "the inventory changed")
	}
	if s.Experiment != older.Experiment {
		out = append(out, "the experiment changed")
	}
	switch {
	case s.Files == older.Files:
	case s.Files == "" || older.Files == "":
		out = append(out, "what is in the files that the experiment names is known of one run alone")
	default:
		out = append(out, "a file that the experiment names changed")
	}
	return out
}

// without are the words of a list that another one does not have.
func without(list, other []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(list), func(w string) bool { return slices.Contains(other, w) }), " ")
}
