package results

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// SwitchFacts say what a switch ran. Sums are SHA-256 in hex.
type SwitchFacts struct {
	Switch       string            `json:"switch"`
	Kind         string            `json:"kind"`
	Server       string            `json:"server,omitempty"`  // form of its device config: "stratum", "sde" or "bmv2"
	Program      string            `json:"program,omitempty"` // P4 program name
	Files        map[string]string `json:"files,omitempty"`   // sums of the program's files, by name: "tofino.bin"
	P4Info       string            `json:"p4info,omitempty"`  // sum of what was loaded
	DeviceConfig string            `json:"device_config,omitempty"`
	Kept         bool              `json:"kept,omitempty"`       // it ran already and was left running
	Replaced     string            `json:"replaced,omitempty"`   // what it ran before, if that is none of INA or not known, and what becomes of it
	PlainText    bool              `json:"plain_text,omitempty"` // it was controlled without TLS
	Script       map[string]string `json:"script,omitempty"`     // of kind script: what its commands printed, by "setup" and "status"
}

// Embedded says that the switch is an emulated one, which runs nothing but this program.
func (f SwitchFacts) Embedded() bool {
	return f.Kind == "soft" && f.DeviceConfig == "" && len(f.Files) == 0
}

// String says what a person asks first: what ran there, and was it the same as last time.
func (f SwitchFacts) String() string {
	s := f.Switch + ": " + f.Kind
	if f.Server != "" && f.Server != f.Kind {
		s += " by " + f.Server
	}
	if f.Program != "" {
		s += ", program " + f.Program
	}
	if f.Replaced != "" {
		s += ", in place of " + f.Replaced
	}
	if f.Kept {
		s += ", which ran already"
	}
	var sums []string
	for _, name := range slices.Sorted(maps.Keys(f.Files)) {
		sums = append(sums, fmt.Sprintf("%s %.12s", name, f.Files[name]))
	}
	if len(sums) == 0 && f.DeviceConfig != "" {
		sums = append(sums, fmt.Sprintf("device config %.12s", f.DeviceConfig))
	}
	if len(sums) > 0 {
		s += "; sha256 " + strings.Join(sums, ", ")
	}
	for _, what := range slices.Sorted(maps.Keys(f.Script)) {
		if out := strings.TrimSpace(f.Script[what]); out != "" {
			const most = 60
			if r := []rune(out); len(r) > most {
				out = string(r[:most]) + "…"
			}
			s += fmt.Sprintf("; %s printed %q", what, out)
		}
	}
	if f.PlainText && f.Kind != "script" {
		s += "; controlled without TLS"
	}
	return s
}

// Programmed are the switches that ran something of their own, in words.
func (rec *Record) Programmed() (out []string) {
	for _, f := range rec.Switches {
		if !f.Embedded() {
			out = append(out, f.String())
		}
	}
	return out
}
