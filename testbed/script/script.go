// Package script drives switches that P4Runtime does not: by commands that their inventory
// declares, run over SSH on a host or on the switch, and held to what they print.
//
// It is for data planes that come with a controller of their own. ATP's is PD-RPC on the
// switch; what it wrote into the replication engine only a restart of the driver clears
// (in-ATP/ATP run_pd_rpc/setup.py, README.md):
//
//	[[switch]]
//	name = "atp1"
//	kind = "script"
//	ssh = {address = "10.0.1.1", user = "root"}
//
//	[switch.script]
//	setup = ["/root/tools/run_pd_rpc.py", "-p", "p4ml", "/root/ATP/run_pd_rpc/setup.py"]
//	status = ["pgrep", "-a", "bf_switchd"]
//	expect = "p4ml"
//	clear = ["systemctl", "restart", "p4ml-switchd"]
//	timeout = "2m"
//
// SwitchML's is a program that configures the chip through BFRuntime and then stays, so it
// runs as a service; its counters are read by a program of the lab's through BFRuntime, which
// prints JSON (p4lang/p4app-switchML dev_root/controller, dev_root/p4/next_step_selector.p4):
//
//	[[switch]]
//	name = "switchml1"
//	kind = "script"
//
//	[switch.script]
//	host = "node1"
//	root = true                                     # through sudo; the host's ssh needs sudo = true
//	setup = ["systemctl", "restart", "switchml-controller"]
//	status = ["systemctl", "is-active", "switchml-controller"]
//	expect = "^active"
//	counters = ["/opt/lab/switchml-counters"]       # {"broadcast": 0, "retransmit": 0, "recirculate": 0, "drop": 0}
//	clear = ["systemctl", "stop", "switchml-controller"]
//
// Every command is an argument list that no shell reads, has a timeout, and must exit with 0.
// In regular expressions ^ and $ are the ends of lines.
package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
)

var (
	// ErrUnexpected is wrapped when a command printed other than what the inventory expects.
	ErrUnexpected = errors.New("not what is expected")
	// ErrCounters is wrapped when no counters were found in what a command printed.
	ErrCounters = errors.New("no counters")
)

// Runner runs commands somewhere; a hosts.Host does.
type Runner interface {
	Run(ctx context.Context, argv []string, stdin io.Reader) (hosts.Output, error)
	RunRoot(ctx context.Context, argv []string, stdin io.Reader) (hosts.Output, error)
	String() string
}

// Switch is a switch that is driven by a script.
type Switch struct {
	name    string
	s       inventory.Script
	run     Runner
	expect  *regexp.Regexp
	pattern *regexp.Regexp
}

// New is the switch of an inventory, whose commands run where run runs them.
func New(sw inventory.Switch, run Runner) (*Switch, error) {
	if sw.Script == nil {
		return nil, blame.Switch(sw.Name, errors.New("it has no script"))
	}
	x := &Switch{name: sw.Name, s: *sw.Script, run: run}
	for _, re := range []struct {
		key, text string
		to        **regexp.Regexp
	}{{"expect", sw.Script.Expect, &x.expect}, {"pattern", sw.Script.Pattern, &x.pattern}} {
		if re.text == "" {
			continue
		}
		var err error
		if *re.to, err = regexp.Compile("(?m:" + re.text + ")"); err != nil {
			return nil, blame.Switch(sw.Name, fmt.Errorf("script: %s: %w", re.key, err))
		}
	}
	return x, nil
}

// Host is the machine on which an inventory has a switch's script run, by its name and how
// it is reached.
func Host(inv *inventory.Inventory, sw inventory.Switch) (inventory.Host, error) {
	if sw.Script == nil {
		return inventory.Host{}, blame.Switch(sw.Name, errors.New("it has no script"))
	}
	if sw.Script.Host == "" {
		return inventory.Host{Name: sw.Name, SSH: sw.SSH}, nil
	}
	h, ok := inv.Host(sw.Script.Host)
	if !ok {
		return inventory.Host{}, blame.Switch(sw.Name, fmt.Errorf("script: no host %q", sw.Script.Host))
	}
	return *h, nil
}

// Setup makes the switch ready and holds what it prints to what is expected. What commands
// printed comes back by their names, "setup" and "status", to be kept with a run.
func (x *Switch) Setup(ctx context.Context) (map[string]string, error) {
	printed := map[string]string{}
	if len(x.s.Setup) > 0 {
		out, err := x.command(ctx, "setup", x.s.Setup)
		if err != nil {
			return printed, err
		}
		printed["setup"] = out
		if len(x.s.Status) == 0 {
			return printed, x.check("setup", x.s.Setup, out)
		}
	}
	if len(x.s.Status) > 0 {
		out, err := x.Status(ctx)
		printed["status"] = out
		return printed, err
	}
	return printed, nil
}

// Status asks the switch how it is; without a command for that it is well.
func (x *Switch) Status(ctx context.Context) (string, error) {
	if len(x.s.Status) == 0 {
		return "", nil
	}
	out, err := x.command(ctx, "status", x.s.Status)
	if err != nil {
		return out, err
	}
	return out, x.check("status", x.s.Status, out)
}

// Clear undoes Setup, if the inventory says how.
func (x *Switch) Clear(ctx context.Context) error {
	if len(x.s.Clear) == 0 {
		return nil
	}
	_, err := x.command(ctx, "clear", x.s.Clear)
	return err
}

func (x *Switch) check(what string, argv []string, out string) error {
	if x.expect == nil || x.expect.MatchString(out) {
		return nil
	}
	return x.errorf(what, argv, "it printed %q, %w: %s", tail(out), ErrUnexpected, x.s.Expect)
}

// command runs one command and returns what it printed.
func (x *Switch) command(ctx context.Context, what string, argv []string) (string, error) {
	limit := x.s.Timeout.Std()
	if limit == 0 {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not end within %v", limit))
	defer cancel()
	run := x.run.Run
	if x.s.Root {
		run = x.run.RunRoot
	}
	out, err := run(ctx, argv, nil)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return string(out.Stdout), x.errorf(what, argv, "%w", err)
	}
	return string(out.Stdout), nil
}

func (x *Switch) errorf(what string, argv []string, format string, args ...any) error {
	return blame.Switch(x.name, fmt.Errorf("%s (%s on %s): %w", what, argv[0], x.run, fmt.Errorf(format, args...)))
}

// tail is the end of a text, for an error.
func tail(s string) string {
	const most = 200
	if s = strings.TrimSpace(s); len(s) > most {
		s = "…" + s[len(s)-most:]
	}
	return s
}

// Counters are what the switch has counted, by the names that its command gives. A switch
// without a command for that has none.
func (x *Switch) Counters(ctx context.Context) (map[string]float64, error) {
	if len(x.s.Counters) == 0 {
		return nil, nil
	}
	out, err := x.command(ctx, "counters", x.s.Counters)
	if err != nil {
		return nil, err
	}
	found, err := ParseCounters(out, x.pattern)
	if err != nil {
		return nil, x.errorf("counters", x.s.Counters, "%w", err)
	}
	return found, nil
}

// Name implements collectors.Collector.
func (x *Switch) Name() string { return "script " + x.name }

// Collect implements collectors.Collector: the counters as samples script_NAME, in the unit 1, of the switch.
func (x *Switch) Collect(ctx context.Context) ([]results.Sample, error) {
	found, err := x.Counters(ctx)
	var out []results.Sample
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, results.Sample{Source: "switch " + x.name, Of: x.name, Metric: "script_" + name, Value: found[name], Unit: "1"})
	}
	return out, err
}

// mostCounters is how many counters a switch may print.
const mostCounters = 10_000

// ParseCounters finds counters in what a command printed: by the groups "name" and "value"
// of a pattern, or else in a JSON object, whose numbers they are. Objects in it, and
// patterns that find a name more than once, make no difference: names of nested values are
// joined by '_', and values of one name are added up. Without any it is an error wrapping
// ErrCounters.
func ParseCounters(text string, pattern *regexp.Regexp) (map[string]float64, error) {
	out := map[string]float64{}
	if pattern != nil {
		name, value := pattern.SubexpIndex("name"), pattern.SubexpIndex("value")
		if name < 0 || value < 0 {
			return nil, fmt.Errorf("%w: pattern %s lacks a group", ErrCounters, pattern)
		}
		for _, m := range pattern.FindAllStringSubmatch(text, -1) {
			v, err := strconv.ParseFloat(m[value], 64)
			if err != nil || m[name] == "" || v < 0 || v-v != 0 {
				return nil, fmt.Errorf("%w: %q is no count", ErrCounters, m[0])
			}
			out[key(m[name])] += v
		}
	} else {
		d := json.NewDecoder(bytes.NewReader([]byte(text)))
		d.UseNumber()
		var all map[string]any
		if err := d.Decode(&all); err != nil {
			return nil, fmt.Errorf("%w: %q is no JSON object: %w", ErrCounters, tail(text), err)
		}
		if _, err := d.Token(); err != io.EOF {
			return nil, fmt.Errorf("%w: there is more after the JSON object", ErrCounters)
		}
		if err := flatten(out, "", all); err != nil {
			return nil, err
		}
	}
	for name, v := range out {
		if math.IsInf(v, 0) {
			return nil, fmt.Errorf("%w: %s is without end", ErrCounters, name)
		}
	}
	switch n := len(out); {
	case n == 0:
		return nil, fmt.Errorf("%w in %q", ErrCounters, tail(text))
	case n > mostCounters:
		return nil, fmt.Errorf("%w: %d of them, and %d are read at most", ErrCounters, n, mostCounters)
	}
	return out, nil
}

func flatten(out map[string]float64, prefix string, v any) error {
	switch v := v.(type) {
	case json.Number:
		n, err := v.Float64()
		if err != nil || n < 0 {
			return fmt.Errorf("%w: %s is %s", ErrCounters, prefix, v)
		}
		out[prefix] += n
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			sub := key(name)
			if prefix != "" {
				sub = prefix + "_" + sub
			}
			if err := flatten(out, sub, v[name]); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range v {
			if err := flatten(out, prefix, e); err != nil {
				return err
			}
		}
	}
	return nil // texts and booleans are no counters
}

var notKey = regexp.MustCompile(`[^a-z0-9]+`)

// key is a name as metrics have them.
func key(name string) string {
	k := strings.Trim(notKey.ReplaceAllString(strings.ToLower(name), "_"), "_")
	if k == "" {
		return "counter"
	}
	return k
}
