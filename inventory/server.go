package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// The servers that switches have, by the form in which they take a compiled program. It is a property of the
// server and not of the chip: Stratum and Intel's SDE drive the same Tofino.
const (
	StratumConfig = "stratum" // BfPipelineConfig of Stratum, over P4Runtime
	BFRTConfig    = "bfrt"    // what the BFRuntime server of Intel's SDE wants: name, tofino.bin, context.json, bf-rt.json
	SDEConfig     = "sde"     // what the P4Runtime server of Intel's SDE wants: name, tofino.bin, context.json
	BMv2Config    = "bmv2"    // the compiler's JSON as it is
)

// When a pipeline is pushed into a switch.
const (
	PushAlways = "always" // the default: every run finds the switch's memory empty
	// PushChanged spares the links of a Tofino, which a push takes down for seconds: a switch
	// that runs the pipeline, and has no jobs left, keeps it. Aggregators that a job which was
	// killed has left taken, and that `inabench clean` took from the table, stay taken.
	PushChanged = "changed"
)

// Server is how a switch of a lab is reached and driven. An emulation has its own.
type Server struct {
	DeviceConfig string            // "stratum", "bfrt", "sde" or "bmv2"; empty: the server takes anything, as the embedded switch does
	Program      Program           // compiled for this switch; zero: the description that comes with inabench
	Push         string            // "always" or "changed"
	GNMI         string            // host:port of its gNMI server; empty: port numbers here are those of P4Runtime
	Ports        map[uint32]string // name of each port at the gNMI server, and by LLDP if that is the same; one that is not in it is called by its number
	Port         PortSetup         // of device_config "bfrt": how cabled ports are set up when a program is loaded
	TLS          TLS               // of control and gnmi; zero: plain text
	SSH          SSH               // its own operating system; zero: it cannot be logged in to
	Script       *Script           // of kind script

	// ReplaceProgram: a run may load its program where the switch runs one of somebody else, which is put back at the end.
	ReplaceProgram bool
}

func (s Server) clone() Server {
	s.Ports, s.Program.Pipes = maps.Clone(s.Ports), slices.Clone(s.Program.Pipes)
	if s.Script != nil {
		c := *s.Script
		for _, argv := range []*[]string{&c.Setup, &c.Clear, &c.Status, &c.Counters} {
			*argv = slices.Clone(*argv)
		}
		s.Script = &c
	}
	return s
}

// Program is a compiled P4 program, all of one build. Default: the description that comes with
// inabench, of which a server that takes anything needs no more. Paths are relative to the inventory.
//
// Load makes them relative to the working directory.
type Program struct {
	Name    string   `toml:"name"`    // of letters, digits, '_' and '.'
	P4Info  string   `toml:"p4info"`  // in protobuf's text format or binary
	Blob    string   `toml:"blob"`    // the whole device config, ready; otherwise it is made from what follows
	Binary  string   `toml:"binary"`  // tofino.bin
	Context string   `toml:"context"` // context.json
	BFRT    string   `toml:"bfrt"`    // bf-rt.json, the tables of BFRuntime
	JSON    string   `toml:"json"`    // the compiler's for BMv2
	Profile string   `toml:"profile"` // the P4 pipe in the compiler's output; default: pipe
	Pipes   []uint32 `toml:"pipes"`   // of the chip that run it; none: all
}

// PortSetup is how the ports of a switch with device_config "bfrt" are set up when a program is loaded,
// which removes them. The other ends of the cables must agree.
//
// They get the speeds of their cables: loading a program removes the ports of a Tofino, and Intel's SDE does not bring
// them back.
type PortSetup struct {
	Manual  bool   `toml:"manual"`                                           // somebody else sets them up
	FEC     string `toml:"fec" default:"none" words:"none,fc,rs"`            // fire code is "fc", Reed-Solomon "rs"
	Autoneg string `toml:"autoneg" default:"default" words:"default,on,off"` // default: what the module wants
	Lanes   int    `toml:"lanes"`                                            // of the cables; 0: as the server has them for the speed
}

// portSpeeds are what ports of a Tofino can have.
var portSpeeds = []BitRate{1e9, 10e9, 25e9, 40e9, 50e9, 100e9, 200e9, 400e9}

// TLS protects the connections to control and gnmi. Without it they are plain text.
type TLS struct {
	CA   string `toml:"ca,required"` // file of certificates that the server's must come from
	Cert string `toml:"cert"`        // this side's; without one the server does not ask for it
	Key  string `toml:"key"`         // of cert
	Name string `toml:"name"`        // in the server's certificate; default: the address
}

// Script is commands that drive a switch that P4Runtime does not. Each is an argument list: no shell
// reads it.
type Script struct {
	Host     string   `toml:"host"`     // where commands run: a host of the inventory; empty: the switch itself, over its ssh
	Setup    []string `toml:"setup"`    // before a run
	Clear    []string `toml:"clear"`    // after it, and by inabench clean; must do no harm when there is nothing to clear
	Status   []string `toml:"status"`   // after setup, and to see whether the switch is well
	Counters []string `toml:"counters"` // prints what the switch has counted
	Expect   string   `toml:"expect"`   // regular expression of lines that the output of status must match; without status, of setup
	Pattern  string   `toml:"pattern"`  // regular expression with groups "name" and "value" that finds counters; empty: they are JSON
	Timeout  Duration `toml:"timeout"`  // of each command; default: 1m
	Root     bool     `toml:"root"`     // commands run as root: through sudo, if one does not log in as root
}

// scriptTimeout bounds a command that says nothing else.
const scriptTimeout = Duration(time.Minute)

// server checks what a switch table says of its server, and returns what is the same for all
// switches of the table.
func (b *builder) server(t *switchTable, kind Kind) Server {
	s := Server{DeviceConfig: t.DeviceConfig, Push: t.Push, Ports: b.portNames(t), ReplaceProgram: t.ReplaceProgram}
	p4rt := kind != Quantum && kind != Scripted
	only := func(key, hint string, set bool) {
		if set {
			b.KeyProblemf(t.At+"."+key, hint, "a switch of kind %s has no %s", kind, key)
		}
	}
	switch {
	case !slices.Contains(Kinds, string(kind)): // reported
	case !p4rt:
		only("device_config", "it is for switches with a P4Runtime server", t.DeviceConfig != "")
		only("program", "it is for switches with a P4Runtime server", t.Program != nil)
		only("push", "it is for switches with a P4Runtime server", t.Push != "")
		only("replace_program", "it is for switches with a P4Runtime server", t.ReplaceProgram)
		if kind == Quantum {
			only("gnmi", "its counters are read by perfquery", t.GNMI != "")
		}
	case kind == Tofino && t.DeviceConfig == BMv2Config:
		b.Problemf(t.At+".device_config", chooseDeviceConfig, "device_config %q is not for Tofino", t.DeviceConfig)
	case kind == BMv2 && t.DeviceConfig != "" && t.DeviceConfig != BMv2Config && !b.Reported(t.At+".device_config"):
		b.Problemf(t.At+".device_config", `write device_config = "bmv2", or leave it out`, "device_config %q is not for BMv2", t.DeviceConfig)
	}
	if kind == BMv2 && s.DeviceConfig == "" {
		s.DeviceConfig = BMv2Config
	}
	if s.Push == "" && p4rt {
		s.Push = PushAlways
	}
	if t.Program != nil && p4rt {
		b.program(t.At+".program", t.Program, s.DeviceConfig)
		s.Program = *t.Program
	}
	switch p := t.Port; {
	case p != nil && t.DeviceConfig != BFRTConfig:
		b.KeyProblemf(t.At+".port", fmt.Sprintf("it is for device_config %q: Stratum brings ports back, and others have none to set up", BFRTConfig), "port has no effect on this switch")
	case p != nil:
		if p.Lanes < 0 || p.Lanes > 8 {
			b.Problemf(t.At+".port.lanes", "leave it out for what the speed has", "a cable has 1 to 8 lanes")
		}
		s.Port = *p
	}
	if p := t.TLS; p != nil {
		if (p.Cert == "") != (p.Key == "") {
			b.KeyProblemf(t.At+".tls", "write both, or neither", "a certificate and its key go together")
		}
		s.TLS = TLS{CA: b.file(p.CA), Cert: b.file(p.Cert), Key: b.file(p.Key), Name: p.Name}
	}
	switch {
	case kind == Scripted && t.Script == nil && b.Has(t.At+".script"): // reported
	case kind == Scripted && t.Script == nil:
		b.KeyProblemf(t.At, `write script = {setup = ["run_pd_rpc.py", "-p", "p4ml", "setup.py"]}`, "missing script in switch of kind script")
	case kind != Scripted && t.Script != nil:
		b.KeyProblemf(t.At+".script", `write kind = "script"`, "a switch of kind %s has no script", kind)
	case t.Script != nil:
		b.script(t.At+".script", t.Script)
		s.Script = t.Script
	}
	return s
}

const chooseDeviceConfig = `write device_config = "stratum" if Stratum runs on it (ports 9559 and 9339), "bfrt" for bf_switchd of Intel's SDE (port 50052), "sde" for its P4Runtime server, which has to be built (50051)`

// programName is what servers accept: several fail on '-' (cablelabs/transparent-security#210).
var programName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// program checks a program in the form that its server takes, and finds its files.
func (b *builder) program(table string, p *Program, form string) {
	if p.Name != "" && !programName.MatchString(p.Name) {
		hint := "letters, digits, '_' and '.', beginning with a letter or '_'"
		if strings.Contains(p.Name, "-") {
			hint = fmt.Sprintf("rename the P4 file and compile it again as %s: servers fail on '-'", strings.ReplaceAll(p.Name, "-", "_"))
		}
		b.Problemf(table+".name", hint, "%q is not a P4 program name", p.Name)
	}
	if p.P4Info == "" && !b.Has(table+".p4info") {
		b.KeyProblemf(table, `write p4info = "p4info.txtpb"`, "missing p4info in program")
	}
	// What each form is made of, besides a ready blob.
	files := []struct {
		key   string
		set   bool
		forms []string
	}{
		{"name", p.Name != "", []string{StratumConfig, BFRTConfig, SDEConfig}},
		{"binary", p.Binary != "", []string{StratumConfig, BFRTConfig, SDEConfig}},
		{"context", p.Context != "", []string{StratumConfig, BFRTConfig, SDEConfig}},
		{"bfrt", p.BFRT != "", []string{StratumConfig, BFRTConfig}},
		{"json", p.JSON != "", []string{BMv2Config}},
	}
	for _, f := range files {
		at := table + "." + f.key
		switch wanted := slices.Contains(f.forms, form); {
		case form == "":
		case p.Blob != "" && f.set && f.key != "name":
			b.KeyProblemf(at, "leave one of them out", "%s beside blob, which holds it already", f.key)
		case p.Blob == "" && wanted && !f.set && !b.Has(at):
			b.KeyProblemf(table, fmt.Sprintf("write %s, or blob for a ready device config", f.key), "missing %s in program: device_config %q is made of it", f.key, form)
		case f.set && !wanted && !(f.key == "bfrt" && form == SDEConfig || f.key == "name"):
			b.KeyProblemf(at, "leave it out", "device_config %q has no use for %s", form, f.key)
		}
	}
	if (p.Profile != "" || len(p.Pipes) > 0) && form != StratumConfig && form != BFRTConfig && form != "" {
		b.KeyProblemf(table, "leave them out", "device_config %q has no profiles: profile and pipes are for %q and %q", form, StratumConfig, BFRTConfig)
	}
	for _, path := range []*string{&p.P4Info, &p.Blob, &p.Binary, &p.Context, &p.BFRT, &p.JSON} {
		*path = b.file(*path)
	}
}

// portNames reads ports = {1 = "1/0", "[2-32]" = "[2-32]/0"}.
func (b *builder) portNames(t *switchTable) map[uint32]string {
	at := t.At + ".ports"
	if t.Ports == nil {
		return nil
	}
	table, ok := t.Ports.(map[string]any)
	if !ok {
		b.Problemf(at, `write ports = {1 = "1/0"}`, "ports is no table")
		return nil
	}
	out := map[uint32]string{}
	by := map[string]uint32{}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		name, ok := table[key].(string)
		if !ok {
			b.Problemf(at, `write ports = {1 = "1/0"}`, "the name of port %s is no string", key)
			continue
		}
		n, _, err := rangeLen(key)
		if err == nil {
			var m int
			if m, _, err = rangeLen(name); err == nil && m != n {
				err = fmt.Errorf("%q stands for %d ports, %q for %d names", key, n, name, m)
			}
		}
		if err != nil {
			b.Problemf(at, tomlfile.HintOf(err), "%v", err)
			continue
		}
		for i := range n {
			text, name := expand(key, i), expand(name, i)
			port, err := strconv.ParseUint(text, 10, 32)
			switch other, twice := by[name]; {
			case err != nil:
				b.Problemf(at, `write ports = {1 = "1/0"}`, "%q is not a port number", text)
			case out[uint32(port)] != "":
				b.Problemf(at, "", "port %d has two names", port)
			case name == "":
				b.Problemf(at, "", "the name of port %d is empty", port)
			case twice:
				b.Problemf(at, "", "ports %d and %d are both called %q", other, port, name)
			default:
				out[uint32(port)], by[name] = name, uint32(port)
				continue
			}
			return nil
		}
	}
	return out
}

// script checks a script, and gives it its timeout.
func (b *builder) script(table string, s *Script) {
	s.Timeout = cmp.Or(s.Timeout, scriptTimeout)
	commands := map[string][]string{"setup": s.Setup, "clear": s.Clear, "status": s.Status, "counters": s.Counters}
	for _, key := range slices.Sorted(maps.Keys(commands)) {
		if argv := commands[key]; b.Has(table+"."+key) && (len(argv) == 0 || argv[0] == "") {
			b.Problemf(table+"."+key, `write the program and its arguments: ["run_pd_rpc.py", "-p", "p4ml"]`, "%s names no program", key)
		}
	}
	if !b.Has(table+".setup") && !b.Has(table+".status") {
		b.KeyProblemf(table, `write setup = ["program", "argument"], or status for a switch that is set up by hand`, "a script without setup and status does nothing")
	}
	if s.Expect != "" && len(s.Setup) == 0 && len(s.Status) == 0 {
		b.KeyProblemf(table+".expect", "", "there is no output to expect anything of")
	}
	if _, err := regexp.Compile(s.Expect); err != nil {
		b.Problemf(table+".expect", "", "expect: %v", err)
	}
	if re, err := regexp.Compile(s.Pattern); err != nil {
		b.Problemf(table+".pattern", "", "pattern: %v", err)
	} else if s.Pattern != "" && (re.SubexpIndex("name") < 0 || re.SubexpIndex("value") < 0) {
		b.Problemf(table+".pattern", `write pattern = "(?P<name>\\w+) *[:=] *(?P<value>\\d+)"`, `pattern lacks a group "name" or "value"`)
	}
	if s.Pattern != "" && len(s.Counters) == 0 {
		b.KeyProblemf(table+".pattern", "", "a pattern without counters finds nothing")
	}
}

// servers checks what hosts and cables, which come after switches in a file, say of them:
// that scripts run somewhere, and that what is cabled has a name where ports have names.
func (b *builder) servers() {
	for _, sw := range b.inv.Switches {
		var unnamed []uint32
		for p := range b.ports {
			if p.Switch == sw.Name && sw.Ports != nil && sw.Ports[p.Port] == "" {
				unnamed = append(unnamed, p.Port)
			}
		}
		slices.Sort(unnamed)
		for _, p := range unnamed {
			b.Report(b.ports[Port{sw.Name, p}], fmt.Sprintf(`write ports = {%d = "%d/0"}`, p, p), "port %s/%d has no name among the ports of %s", sw.Name, p, sw.Name)
		}
	}
	for i := range b.t.Switches {
		t := &b.t.Switches[i]
		if t.Script == nil || t.Script.Host == "" {
			continue
		}
		if _, ok := b.inv.Host(t.Script.Host); !ok {
			b.Problemf(t.At+".script.host", tomlfile.DidYouMean(t.Script.Host, b.inv.HostNames()), "script runs on unknown host %q", t.Script.Host)
		}
	}
}

// checkServer reports what a lab needs to drive a switch.
func (s *Switch) checkServer(cables []DirectedLink, lacks func(what, hint string)) {
	switch s.Kind {
	case Quantum: // programs use it, and the subnet manager drives it
		return
	case Scripted:
		if s.Script != nil && s.Script.Host == "" && s.SSH.Address == "" {
			lacks("nowhere to run its script", `write host = "HOST" in script, or ssh = {address = "10.0.0.1:22"} for the switch itself`)
		}
		return
	case Tofino:
		if s.DeviceConfig == "" {
			lacks("no device_config", chooseDeviceConfig)
		}
		if s.Program.P4Info == "" {
			lacks("no program", `write program = {name = "ina_tna", p4info = "p4info.txtpb", binary = "pipe/tofino.bin", context = "pipe/context.json", bfrt = "bf-rt.json"}`)
		}
	}
	if s.Control == "" {
		lacks("no control address", `write control = "10.0.0.1:9559"`)
	}
	if s.DeviceConfig == BFRTConfig && !s.Port.Manual {
		for _, c := range cables {
			if !slices.Contains(portSpeeds, c.Rate) {
				lacks(fmt.Sprintf("its port %d has a cable of %v", c.FromPort, c.Rate), "ports of a Tofino have 1, 10, 25, 40, 50, 100, 200 or 400 Gbit/s; write port = {manual = true} if you set them up yourself")
			}
		}
	}
	for _, f := range s.files() {
		if _, err := os.Stat(f.path); err != nil {
			lacks(fmt.Sprintf("%s: %v", f.key, err), "paths are relative to the inventory file")
		}
	}
}

type namedFile struct{ key, path string }

// files are the files that the switch's settings name.
func (s *Switch) files() []namedFile {
	return slices.DeleteFunc([]namedFile{
		{"p4info", s.Program.P4Info}, {"blob", s.Program.Blob}, {"binary", s.Program.Binary}, {"context", s.Program.Context},
		{"bfrt", s.Program.BFRT}, {"json", s.Program.JSON}, {"tls ca", s.TLS.CA}, {"tls cert", s.TLS.Cert}, {"tls key", s.TLS.Key},
	}, func(f namedFile) bool { return f.path == "" })
}

// deviceID checks the P4Runtime device id of a table.
func (b *builder) deviceID(t *switchTable, form string) {
	switch {
	case t.DeviceID == nil:
	case *t.DeviceID < 0:
		b.Problemf(t.At+".device_id", "", "device_id must not be negative")
	case *t.DeviceID == 0 && form != BFRTConfig && form != SDEConfig && form != BMv2Config:
		hint := ""
		if form == StratumConfig {
			hint = "Stratum numbers devices from 1 and refuses 0; on Intel's SDE it is 0"
		}
		b.Problemf(t.At+".device_id", hint, "device_id must be at least 1")
	}
}

// deviceID is that of the i-th switch of a table, of which the inventory has so many already.
// A server of its own numbers from where its kind does; switches that share a server count on.
func (t *switchTable) deviceID(i, before int, form string) uint64 {
	_, apart, _ := rangeLen(t.Control)
	switch {
	case t.DeviceID != nil && apart:
		return uint64(*t.DeviceID)
	case t.DeviceID != nil:
		return uint64(*t.DeviceID) + uint64(i)
	case form == StratumConfig:
		return 1
	case form == SDEConfig || form == BFRTConfig:
		return 0
	}
	// P4Runtime knows 0 as "no device", so the default counts from 1.
	return uint64(before + 1)
}
