// Package programs is the study of programs that others wrote, [[program]]: iperf3, perftest, NCCL's tests, torchrun,
// SwitchML, ATP or any other, with what they need of SHARP, [sharp].
package programs

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/metric"
	"github.com/inabench/inabench/testbed/program"
	"github.com/inabench/inabench/testbed/sharp"
)

// Kind is that of programs that others wrote.
var Kind = spec.Kind{
	Table: "program", Type: reflect.TypeFor[Programs](), More: []tomlfile.Table{{Key: "sharp", Type: reflect.TypeFor[*SHARPSetup]()}}, Mute: true, Foreign: true, Looks: true,
	Faultless: "programs of others have no faults",
	Unplanned: tomlfile.WithHint("`inabench run` starts them on netns or in a lab", "programs of others run where the experiment says: there is no plan"),
}

// Program is a workload that others wrote: it is started on hosts, and its output read for
// figures. All programs of an experiment start together. How long those run that have no end
// of their own is what [measure] says, in whole seconds.
type Program struct {
	At   string `toml:",path"`
	Name string `toml:"name,required"` // letters, digits, '_' and '-'
	Kind string `toml:"kind,required"` // what it is, and so how it is started and read

	Pairs   []string `toml:"pairs"`   // of a client and a server, "h1->h5": of iperf3 and perftest; or
	Hosts   []string `toml:"hosts"`   // in the order of ranks, of others; or
	Number  int      `toml:"number"`  // the inventory's first hosts, so many; or so many pairs of a host and the one that stands as many places further on
	Servers []string `toml:"servers"` // hosts of ATP's parameter servers

	Command   []string `toml:"command"`   // program and first arguments; none: as it is called in PATH
	Server    []string `toml:"server"`    // program and first arguments of ATP's server
	Arguments []string `toml:"arguments"` // last ones, after those that the keys here make
	Env       []string `toml:"env"`       // "NAME=value"; no secrets, they would be kept
	Port      int      `toml:"port"`      // the first of its servers; 0: the program's own

	Protocol   string            `toml:"protocol" default:"tcp" words:"tcp,udp"` // of iperf3
	Streams    int               `toml:"streams" default:"1"`                    // of iperf3, between each pair
	Rate       inventory.BitRate `toml:"rate"`                                   // of each stream, payload; 0: no limit
	Congestion string            `toml:"congestion"`                             // control of TCP; empty: the host's
	MTU        int               `toml:"mtu"`                                    // bytes, of IP or RDMA; 0: 1500, and 4096 of perftest

	Sizes      []inventory.Bytes `toml:"sizes"`                // of nccl-tests' vectors, from and to; of perftest's messages
	Iterations int               `toml:"iterations"`           // of nccl-tests for each size; 0: its own
	PerHost    int               `toml:"per_host" default:"1"` // processes on each host: GPUs
	// Launcher of nccl-tests: "mpirun" on the first host, whose own SSH reaches the others; or
	// "each" host its process, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, for a program
	// that finds its peers by these.
	Launcher string   `toml:"launcher" default:"mpirun"`
	Launch   []string `toml:"launch_arguments"` // of mpirun, or of torchrun
	JSON     bool     `toml:"json"`             // have nccl-tests and perftest write JSON

	Rendezvous string    `toml:"rendezvous" default:"static"` // how torchrun's agents find each other
	App        int       `toml:"app" default:"1"`             // which one of ATP's applications it is, 1 to 5
	Config     string    `toml:"config"`                      // SwitchML's, on the hosts; empty: /etc/switchml.cfg
	Extract    []Extract `toml:"extract"`                     // of torchrun and exec

	// SHARP says that switches are to add up for nccl-tests, torchrun or exec, and what is asked
	// for. A program that goes on without them has failed.
	SHARP *SHARPAsk `toml:"sharp"`
}

// WordsOf implements tomlfile.Wordy.
func (*Program) WordsOf(key string) []string {
	switch key {
	case "kind":
		return program.Kinds()
	case "launcher":
		return program.Launchers()
	case "rendezvous":
		return program.Rendezvous()
	}
	return nil
}

// Extract says where in a program's output a figure is. Commas in "1,500,000" and "1,500.0" part thousands; what has a comma
// otherwise, as "1,5" and "1,500" have, is refused: it may be a fraction's.
type Extract struct {
	At     string `toml:",path"`
	Metric string `toml:"metric,required"`     // what the figure is called
	Unit   string `toml:"unit,required"`       // of the number there: "ms", "GB/s", "1"
	JSON   string `toml:"json"`                // path in what is printed as JSON: "results.0.bandwidth", "*" for all of a list; or
	Regexp string `toml:"regexp"`              // with one group, the number
	Take   string `toml:"take" default:"mean"` // of several
}

// WordsOf implements tomlfile.Wordy.
func (*Extract) WordsOf(key string) []string {
	if key == "take" {
		return program.Takes()
	}
	return nil
}

// SHARPAsk is what a program asks SHARP for.
type SHARPAsk struct {
	Tree      string          `toml:"tree" words:"SAT,LLT"`                                // streaming or low latency; default: any
	Exclusive bool            `toml:"exclusive"`                                           // the lock of the trees from the start
	OSTs      int             `toml:"osts"`                                                // operations on their way at once; 0: the manager's default, as of all quotas
	UserData  inventory.Bytes `toml:"user_data"`                                           // in each OST, 128 to 1024
	Groups    int             `toml:"groups"`                                              // of its quota
	QPs       int             `toml:"qps"`                                                 // of its quota
	Devices   []string        `toml:"devices"`                                             // host ports that NCCL uses; none: all
	Traffic   string          `toml:"traffic" default:"auto" words:"auto,required,ignore"` // whether what hosts sent must speak for aggregation too: "auto" where it can tell
}

// Programs is the study of programs.
type Programs []Program

// what keys are about, by the kinds that have them; all others are for every kind.
var programKeys = map[string][]program.Kind{
	"pairs": {program.IPerf3, program.Perftest}, "hosts": {program.NCCL, program.Torchrun, program.ATP, program.SwitchML, program.Exec},
	"servers": {program.ATP}, "server": {program.ATP}, "app": {program.ATP}, "config": {program.SwitchML},
	"protocol": {program.IPerf3}, "streams": {program.IPerf3}, "rate": {program.IPerf3}, "congestion": {program.IPerf3},
	"mtu":   {program.IPerf3, program.Perftest},
	"sizes": {program.NCCL, program.Perftest}, "iterations": {program.NCCL}, "json": {program.NCCL, program.Perftest},
	"per_host": {program.NCCL, program.Torchrun}, "launcher": {program.NCCL}, "launch_arguments": {program.NCCL, program.Torchrun},
	"rendezvous": {program.Torchrun}, "extract": {program.Torchrun, program.Exec},
	"sharp": {program.NCCL, program.Torchrun, program.Exec},
	"port":  {program.IPerf3, program.Perftest, program.NCCL, program.Torchrun, program.Exec},
}

// Check implements study.Study.
func (ps Programs) Check(c *spec.Checker) {
	ps.checkSHARP(c)
	names := map[string]string{}
	ports := map[string]string{} // host:port of servers
	for i := range ps {
		p := &ps[i]
		c.Named(names, p.At, p.Name, "program", "a name of a program")
		if !slices.Contains(program.Kinds(), p.Kind) {
			continue // reported
		}
		p.check(c, ps)
		if c.Lab == nil {
			continue
		}
		servers, _ := p.workload(c.Spec, c.Lab.Inv, results.Scale{}).Commands()
		for _, s := range servers {
			at := fmt.Sprintf("%s:%d", s.Host, s.Listen)
			if first, dup := ports[at]; dup && s.Listen != 0 {
				c.KeyProblemf(p.At, "give one of them another port", "programs %s and %s both listen on port %d of host %s", first, p.Name, s.Listen, s.Host)
			}
			ports[at] = p.Name
		}
	}
}

func (p *Program) check(c *spec.Checker, all Programs) {
	kind := program.Kind(p.Kind)
	for _, key := range slices.Sorted(maps.Keys(programKeys)) {
		if kinds := programKeys[key]; c.Has(p.At+"."+key) && !slices.Contains(kinds, kind) {
			words := make([]string, len(kinds))
			for i, k := range kinds {
				words[i] = string(k)
			}
			c.KeyProblemf(p.At+"."+key, "", "%s is about %s, and %s is of kind %s", key, strings.Join(words, ", "), p.Name, p.Kind)
		}
	}
	spec.Positive(c, p.At+".number", p.Number)
	spec.Positive(c, p.At+".rate", p.Rate)
	spec.Positive(c, p.At+".iterations", p.Iterations)
	spec.Positive(c, p.At+".streams", p.Streams)
	spec.Positive(c, p.At+".per_host", p.PerHost)
	if c.Has(p.At+".port") && (p.Port < 1 || p.Port > 65535) && !c.Reported(p.At+".port") {
		c.Problemf(p.At+".port", "", "port must be 1 to 65535")
	}
	if c.Has(p.At+".mtu") && (p.MTU < 256 || p.MTU > 9216) && !c.Reported(p.At+".mtu") {
		c.Problemf(p.At+".mtu", "", "mtu must be 256 to 9216 bytes")
	}
	if c.Has(p.At+".app") && (p.App < 1 || p.App > 5) && !c.Reported(p.At+".app") {
		c.Problemf(p.At+".app", "", "ATP's applications are 1 to 5")
	}
	if len(p.Sizes) > 2 || len(p.Sizes) == 2 && (p.Sizes[1] < p.Sizes[0] || kind == program.Perftest) {
		c.Problemf(p.At+".sizes", `write sizes = ["8B", "1GiB"]`, "sizes are a smallest and a largest one of nccl-tests, and one of perftest")
	}
	for i, n := range p.Sizes {
		if n < 1 {
			c.Problemf(fmt.Sprintf("%s.sizes[%d]", p.At, i), "", "a size must be above zero")
		}
	}
	if p.Protocol == "udp" && p.Rate == 0 && !c.Has(p.At+".rate") {
		c.Problemf(p.At+".protocol", `write rate = "10Gbit/s"`, "udp without a rate: iperf3 would send 1 Mbit/s")
	}
	if p.Congestion != "" && p.Protocol == "udp" {
		c.Problemf(p.At+".congestion", "", "congestion is about tcp")
	}
	if kind == program.ATP && len(p.Hosts) > 16 {
		c.Problemf(p.At+".hosts", "", "%d workers, and ATP's server knows 16", len(p.Hosts))
	}
	if i := slices.IndexFunc(all, func(q Program) bool { return q.Kind == string(program.SwitchML) }); kind == program.SwitchML && &all[i] != p {
		c.KeyProblemf(p.At, "make two experiments", "%s besides %s: SwitchML's controller has one job at a time", p.Name, all[i].Name)
	}
	p.hosts(c)
	if len(p.Command) == 0 && program.DefaultCommand(kind) == nil || kind == program.Torchrun && len(p.Command) == 0 {
		example := `["/opt/bench/run", "--json"]`
		if kind == program.Torchrun {
			example = `["train.py"]`
		}
		c.KeyProblemf(p.At, "write command = "+example, "what is program %s to run?", p.Name)
	}
	for key, argv := range map[string][]string{"command": p.Command, "server": p.Server} {
		if len(argv) > 0 && (argv[0] == "" || argv[0][0] == '-') {
			c.Problemf(p.At+"."+key, "", "%q is not the name of a program", argv[0])
		}
	}
	if kind == program.ATP && len(p.Server) == 0 {
		c.KeyProblemf(p.At, `write server = ["/opt/atp/server/app"]`, "ATP's client and server are two programs")
	}
	p.environment(c)
	p.extracts(c)
}

// hosts checks where the program runs.
func (p *Program) hosts(c *spec.Checker) {
	var given []string
	for _, key := range []string{"pairs", "hosts", "number"} {
		if c.Has(p.At + "." + key) {
			given = append(given, key)
		}
	}
	switch flowing := program.Flowing(program.Kind(p.Kind)); {
	case len(given) > 1:
		c.Problemf(p.At+"."+given[1], "keep one of them", "%s and %s exclude each other", given[0], given[1])
	case len(given) == 0 && flowing:
		c.KeyProblemf(p.At, `write pairs = ["h1->h2"]`, "between which hosts?")
	case len(given) == 0:
		c.KeyProblemf(p.At, `write hosts = ["h1", "h2"]`, "on which hosts?")
	}
	if c.Lab == nil {
		return
	}
	for i, pair := range p.Pairs {
		at := fmt.Sprintf("%s.pairs[%d]", p.At, i)
		from, to, ok := strings.Cut(pair, "->")
		from, to = strings.TrimSpace(from), strings.TrimSpace(to)
		switch {
		case !ok:
			c.Problemf(at, `write "h1->h2"`, "%q is not a pair of hosts", pair)
		case c.Host(at, from) && c.Host(at, to) && from == to:
			c.Problemf(at, "", "host %s would send to itself", from)
		case slices.Index(p.Pairs, pair) < i:
			c.Problemf(at, "streams = 2 makes two", "the pair %s twice", pair)
		}
	}
	for key, hosts := range map[string][]string{"hosts": p.Hosts, "servers": p.Servers} {
		for i, h := range hosts {
			at := fmt.Sprintf("%s.%s[%d]", p.At, key, i)
			if c.Host(at, h) && slices.Index(hosts, h) < i {
				c.Problemf(at, "", "host %s twice in program %s", h, p.Name)
			}
		}
	}
	most := len(c.Lab.Hosts)
	if program.Flowing(program.Kind(p.Kind)) {
		most /= 2
	}
	if p.Number > most && !c.Reported(p.At+".number") {
		c.Problemf(p.At+".number", "", "there are %d hosts", len(c.Lab.Hosts))
	}
}

// environment checks variables: those that make NCCL bypass SHARP without a word, and
// secrets.
func (p *Program) environment(c *spec.Checker) {
	for i, v := range p.Env {
		at := fmt.Sprintf("%s.env[%d]", p.At, i)
		name, value, ok := strings.Cut(v, "=")
		switch {
		case !ok || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }):
			c.Problemf(at, `write "NCCL_DEBUG=INFO"`, "%q is not a variable and its value", v)
		case program.SecretName(name):
			c.Problemf(at, "let the host have it: in the user's own profile, or a file that the program reads", "%s looks like a secret, which the record would keep", name)
		case p.SHARP != nil:
			if problem, hint := sharp.CheckVariable(name, value); problem != "" {
				c.Problemf(at, hint, "%s", problem)
			}
		}
	}
	if p.SHARP == nil {
		return
	}
	at := p.At + ".sharp"
	if _, err := p.SHARP.ask().Environment(); err != nil {
		c.KeyProblemf(at, "", "%v", err)
	}
}

// ask is what the environment of a job asks for.
func (a *SHARPAsk) ask() sharp.Ask {
	return sharp.Ask{
		SAT: a.Tree != string(sharp.LLT), Exclusive: a.Exclusive, Devices: a.Devices,
		Quota: sharp.Quota{OSTs: a.OSTs, UserData: int(a.UserData), Groups: a.Groups, QPs: a.QPs},
	}
}

func (p *Program) extracts(c *spec.Checker) {
	kind := program.Kind(p.Kind)
	if (kind == program.Exec || kind == program.Torchrun) && len(p.Extract) == 0 {
		c.KeyProblemf(p.At, "add a [[program.extract]] table with metric, unit, and json or regexp", "where are the figures in the output of %s?", p.Name)
	}
	for i := range p.Extract {
		e := &p.Extract[i]
		if !spec.JobName.MatchString(e.Metric) && c.Has(e.At+".metric") {
			c.Problemf(e.At+".metric", "letters, digits, '_' and '-'", "%q is not the name of a metric", e.Metric)
		}
		base := program.BaseUnit(e.Unit)
		if base == "" && c.Has(e.At+".unit") && !c.Reported(e.At+".unit") {
			c.Problemf(e.At+".unit", tomlfile.OneOf(e.Unit, program.ExtractUnits()), "unknown unit %q", e.Unit)
			continue
		}
		if known := metric.Of(e.Metric, base).Unit; base != "" && known != base {
			c.Problemf(e.At+".unit", "", "%s is in %s, and %s is not", e.Metric, known, e.Unit)
		}
		if r := e.rule(); base != "" {
			if err := r.Check(); err != nil {
				c.KeyProblemf(e.At, "", "%v", err)
			}
		}
	}
}

func (e *Extract) rule() program.Rule {
	return program.Rule{Metric: e.Metric, Unit: e.Unit, JSON: e.JSON, Regexp: e.Regexp, Take: e.Take}
}

// Metrics implements study.Study.
func (ps Programs) Metrics() spec.Measurables {
	all := spec.Measurables{}.Add("job", strings.Join(program.Metrics, " "))
	for i := range ps {
		for _, e := range ps[i].Extract {
			if _, ok := all[e.Metric]; !ok {
				all[e.Metric] = spec.Measurable{Metric: metric.Of(e.Metric, program.BaseUnit(e.Unit)), Of: "job"}
			}
		}
	}
	return all.Add(results.Cluster, totalGoodput).Predict("goodput algbw busbw " + totalGoodput).Ratios()
}

// totalGoodput is that of a program's flows, or of all programs'.
const totalGoodput = "total_goodput"

// Headline implements study.Study.
func (ps Programs) Headline() []string {
	if slices.ContainsFunc(ps, func(p Program) bool { return program.Flowing(program.Kind(p.Kind)) }) {
		return []string{totalGoodput}
	}
	return nil
}

// Predictors implements study.Study.
func (ps Programs) Predictors() []string { return []string{placement.WaterFill} }

// Count implements study.Study.
func (ps Programs) Count() int { return len(ps) }

// Uses implements study.Settled.
func (ps Programs) Uses(p study.Planned, inv *inventory.Inventory) (hosts, switches []string) {
	var besides []string
	if inv.Manager.Apart() && sharpOf(p.Spec) != nil {
		besides = append(besides, inventory.ManagerName)
	}
	return ps.on(p.Spec, inv), besides
}

// Build implements study.Builder: their figures are of seconds.
func (ps Programs) Build(k *study.FabricKey, s *spec.Spec, _ string) {
	k.Beat = s.Measure.Duration.Std() / 5
}

// Missing is a program that is not installed where it is to run.
type Missing struct {
	Name, where, hint string
}

func (e *Missing) Error() string { return fmt.Sprintf("%s is not installed on %s", e.Name, e.where) }
func (e *Missing) Unwrap() error { return errors.ErrUnsupported }

// Hint says how to install it.
func (e *Missing) Hint() string { return e.hint }

// install is the one command that installs a program.
func install(name string) string {
	switch name {
	case "iperf3":
		return "apt-get install iperf3"
	case "all_reduce_perf":
		return "build github.com/NVIDIA/nccl-tests with MPI=1, and give its path in command"
	case "torchrun":
		return "pip install torch"
	case "mpirun":
		return "apt-get install openmpi-bin, or HPC-X"
	}
	if strings.HasPrefix(name, "ib_") || strings.HasPrefix(name, "raw_ethernet_") {
		return "apt-get install perftest"
	}
	return "give the path of the program in command"
}

// Supports implements study.Study: programs are real, and the hosts of an emulation have what this
// machine has.
func (ps Programs) Supports(driver string) error {
	if driver == "sim" {
		return fmt.Errorf("programs of others do not run in a model: use netns, or a lab: %w", errors.ErrUnsupported)
	}
	if driver != "netns" {
		return nil
	}
	for i := range ps {
		for _, name := range ps[i].needs() {
			if _, err := exec.LookPath(name); err != nil {
				return &Missing{name, "this machine, whose files the emulated hosts share", install(name)}
			}
		}
	}
	return nil
}

// needs are the programs that must be there.
func (p *Program) needs() (names []string) {
	kind := program.Kind(p.Kind)
	if kind == program.NCCL && p.Launcher == "mpirun" {
		names = append(names, "mpirun")
	}
	command := p.Command
	if len(command) == 0 || kind == program.Torchrun {
		command = program.DefaultCommand(kind)
	}
	for _, argv := range [][]string{command, p.Server} {
		if len(argv) > 0 {
			names = append(names, argv[0])
		}
	}
	return names
}

// Ready implements study.Study.
func (ps Programs) Ready(study.Planned) error { return nil }

// Columns implements study.Study.
func (ps Programs) Columns() []string {
	return strings.Fields("program of metric value lo hi n unit")
}

func programRows(figures []results.Figure) (rows [][]string) {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 9, 64) }
	for _, f := range figures {
		if f.Kind != results.Predicted {
			name, of, _ := strings.Cut(f.Of, "/")
			rows = append(rows, []string{name, of, f.Metric, number(f.Value), number(f.Lo), number(f.Hi), strconv.Itoa(f.N), f.Unit})
		}
	}
	return rows
}

// workload is the program as it is started on a testbed of that inventory and scale.
func (p *Program) workload(s *spec.Spec, inv *inventory.Inventory, scale results.Scale) *program.Workload {
	times, size := study.Factors(scale)
	kind := program.Kind(p.Kind)
	w := &program.Workload{
		Name: p.Name, Kind: kind, Command: p.Command, Server: p.Server, Arguments: p.Arguments, Env: p.Env, Port: p.Port,
		Duration: s.Measure.Duration.Std(), Warmup: s.Measure.Warmup.Std(), Interval: s.Measure.Interval.Std(),
		UDP: p.Protocol == "udp", Streams: p.Streams, Rate: float64(p.Rate) * size / times, Congestion: p.Congestion,
		Iterations: p.Iterations, PerHost: p.PerHost, Launcher: p.Launcher, LaunchArgs: p.Launch, JSON: p.JSON,
		Rendezvous: p.Rendezvous, AppID: p.App,
	}
	if len(p.Sizes) > 0 {
		w.Size, w.SizeTo = int64(p.Sizes[0]), int64(p.Sizes[len(p.Sizes)-1])
	}
	for i := range p.Extract {
		w.Rules = append(w.Rules, p.Extract[i].rule())
	}
	if p.SHARP != nil {
		if env, err := p.SHARP.ask().Environment(); err == nil { // checked
			w.Env = append(env, p.Env...)
		}
	}
	host := func(name string) program.Host {
		h := program.Host{Name: name}
		if found, ok := inv.Host(name); ok && len(found.NICs) > 0 {
			h.RDMA = found.NICs[0].RDMA
			if a := found.NICs[0].Address; a.IsValid() {
				h.Address = a.Addr().String()
			} else if h.Address = found.SSH.Address; strings.Contains(h.Address, ":") {
				h.Address = h.Address[:strings.LastIndexByte(h.Address, ':')]
			}
		}
		return h
	}
	for _, name := range p.on(inv) {
		w.Hosts = append(w.Hosts, host(name))
	}
	for _, pair := range p.pairs(inv) {
		w.Flows = append(w.Flows, program.Flow{From: host(pair[0]), To: host(pair[1])})
	}
	for _, name := range p.Servers {
		w.Servers = append(w.Servers, host(name))
	}
	return w
}

// on are the hosts of its ranks.
func (p *Program) on(inv *inventory.Inventory) []string {
	if program.Flowing(program.Kind(p.Kind)) || p.Number == 0 {
		return p.Hosts
	}
	return inv.HostNames()[:min(max(p.Number, 0), len(inv.Hosts))]
}

// pairs are clients and servers.
func (p *Program) pairs(inv *inventory.Inventory) (out [][2]string) {
	if !program.Flowing(program.Kind(p.Kind)) {
		return nil
	}
	for _, pair := range p.Pairs {
		from, to, _ := strings.Cut(pair, "->")
		out = append(out, [2]string{strings.TrimSpace(from), strings.TrimSpace(to)})
	}
	for i := range min(max(p.Number, 0), len(inv.Hosts)/2) {
		out = append(out, [2]string{inv.Hosts[i].Name, inv.Hosts[i+len(inv.Hosts)/2].Name})
	}
	return out
}
