package suite

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/trend"
)

// Suite is a suite as its file says. Load returns only suites that make sense.
type Suite struct {
	Version int    `toml:"version,required"` // 1
	Name    string `toml:"name"`             // default: the file's name without ".toml"
	Title   string `toml:"title"`            // one line for reports
	// Budget is how long the night may take. What does not fit is said, and is first in the
	// next night. 0: as long as it takes.
	Budget inventory.Duration `toml:"budget"`
	// Timeout is how long one run may take, teardown not included.
	Timeout inventory.Duration `toml:"timeout" default:"30m"`
	On      []string           `toml:"on,single"` // drivers; none: what each experiment says
	Repeats int                `toml:"repeats"`   // of every point; 0: as each experiment says
	Quick   bool               `toml:"quick"`     // the small versions that experiments have of themselves

	Retry       Retry        `toml:"retry"`
	Judge       Judge        `toml:"judge"`
	Experiments []Experiment `toml:"experiment"`

	File  results.File // as it was read
	Items []Item       // in the order of the file
}

// Describe lists what a suite's file may say.
func Describe() tomlfile.Entry { return tomlfile.Describe(Suite{}) }

// Experiment is one [[experiment]] of a suite. What it leaves out is as the suite says.
type Experiment struct {
	At      string              `toml:",path"`
	Path    string              `toml:"path,required"` // relative to the suite's folder
	Name    string              `toml:"name"`          // default: the experiment's
	Set     []string            `toml:"set,single"`    // assignments, as of `inabench run --set`
	On      []string            `toml:"on,single"`     // drivers
	Repeats int                 `toml:"repeats"`       // of every point
	Quick   *bool               `toml:"quick"`         // its small version
	Timeout *inventory.Duration `toml:"timeout"`       // of one run
	// Xfail is why an expectation of it is known to fail. It does not fail the night then;
	// that it passes does.
	Xfail string `toml:"xfail"`
}

// Retry is how many more times a run is tried that ended for a reason of the testbed's, by
// its class. Verdicts are never tried again.
type Retry struct {
	Host         int `toml:"host"`         // a host failed
	Switch       int `toml:"switch"`       // a switch failed
	Testbed      int `toml:"testbed"`      // the testbed could not be brought up, or broke otherwise
	Inconclusive int `toml:"inconclusive"` // its result says nothing
	Busy         int `toml:"busy"`         // others had what it needs
	Leftovers    int `toml:"leftovers"`    // others had left something behind
	Timeout      int `toml:"timeout"`      // it took too long
	Crash        int `toml:"crash"`        // inabench itself failed
}

// Judge is how figures are held against their history.
type Judge struct {
	Metrics     []string          `toml:"metrics,single"`              // globs of metrics that are; none: all
	Relevant    inventory.Percent `toml:"relevant" default:"2%"`       // the smallest change that matters
	FalseAlarms inventory.Percent `toml:"false_alarms" default:"0.5%"` // of each figure, in a night without a change
	Learn       int               `toml:"learn" default:"10"`          // nights that are looked at before anything is said; at least 5
}

func (j Judge) options() trend.Options {
	return trend.Options{Relevant: float64(j.Relevant), FalseAlarms: float64(j.FalseAlarms), Learn: j.Learn}
}

func (j Judge) wants(metric string) bool {
	return len(j.Metrics) == 0 || slices.ContainsFunc(j.Metrics, func(glob string) bool { return results.Glob(glob, metric) })
}

// Item is an experiment on a driver, with what the suite says of it.
type Item struct {
	Name       string   `json:"name"`       // of the suite, unique
	Experiment string   `json:"experiment"` // its name
	Path       string   `json:"path"`
	Driver     string   `json:"driver"`
	Set        []string `json:"set,omitempty"`
	Quick      bool     `json:"quick,omitempty"`
	Repeats    int      `json:"repeats,omitempty"`
	Timeout    float64  `json:"timeout"` // seconds
	Xfail      string   `json:"xfail,omitempty"`
	Sum        string   `json:"sum"` // of the texts that say what is run, and of the files that they name
}

// Class is why a run ended as it did. Those that Retry names are the testbed's reasons.
type Class string

// Classes.
const (
	Fine         Class = ""
	Host         Class = "host"
	Switch       Class = "switch"
	Testbed      Class = "testbed"
	Inconclusive Class = "inconclusive"
	Busy         Class = "busy"
	Leftovers    Class = "leftovers"
	Timeout      Class = "timeout"
	Crash        Class = "crash"

	Verdict     Class = "verdict"     // an expectation failed
	Input       Class = "input"       // a file changed since it was checked
	Infeasible  Class = "infeasible"  // no placement
	Unsupported Class = "unsupported" // this machine or driver cannot do it
	Stopped     Class = "stopped"     // by whoever runs the suite
	NotJudged   Class = "not judged"  // no expectation decides: no further run would
)

// more is how many more times a class is tried.
func (r Retry) more(c Class) int {
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		if tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("toml"), ","); tag == string(c) {
			return int(v.Field(i).Int())
		}
	}
	return 0
}

// Parse reads a suite and all experiments in it, which are relative to the folder of name. Files that
// break rules give tomlfile.Problems: those of all of them, each with its position.
func Parse(name string, text []byte) (*Suite, error) {
	f, err := tomlfile.Parse(name, text)
	if err != nil {
		return nil, err
	}
	s := &Suite{File: results.File{Path: name, SHA256: sumOf(string(text)), Text: string(text)}}
	c := checker{File: f, s: s, names: map[string]string{}}
	for _, class := range []Class{Verdict, Class("regression"), Class("fail"), Infeasible, Unsupported, Input} {
		if at := "retry." + string(class); f.Has(at) {
			f.KeyProblemf(at, "only what the testbed does wrong is tried again", "%s is never tried again", class)
			c.never = append(c.never, class)
		}
	}
	f.Decode(s)
	c.check()
	all := append(c.others, c.mine()...)
	if err := all.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

func sumOf(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%d\n%s", len(t), t)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// checker finds what is wrong with a suite.
type checker struct {
	*tomlfile.File
	s      *Suite
	names  map[string]string // of items: the path of its table
	never  []Class
	others tomlfile.Problems // of experiments and inventories
}

// mine are the suite's own problems, without what has been said in better words.
func (c *checker) mine() tomlfile.Problems {
	return slices.DeleteFunc(slices.Clone(c.Problems()), func(p tomlfile.Problem) bool {
		return slices.ContainsFunc(c.never, func(class Class) bool {
			return p.Msg == fmt.Sprintf("unknown key %q in retry", class)
		})
	})
}

func (c *checker) check() {
	s := c.s
	if s.Version != 1 && c.Has("version") {
		c.Problemf("version", "this inabench reads version = 1", "unknown version %d", s.Version)
	}
	if s.Name = cmp.Or(s.Name, strings.TrimSuffix(filepath.Base(c.Name), filepath.Ext(c.Name))); strings.ContainsAny(s.Name, "/\n") {
		c.Problemf("name", "", "name %q cannot be part of a file's name", s.Name)
	}
	c.positive("budget", int64(s.Budget))
	c.positive("timeout", int64(s.Timeout))
	c.repeats("repeats", s.Repeats)
	c.drivers("on", s.On)
	for _, class := range []Class{Host, Switch, Testbed, Inconclusive, Busy, Leftovers, Timeout, Crash} {
		if n := s.Retry.more(class); n < 0 || n > 10 {
			c.Problemf("retry."+string(class), "how many more times: 0 to 10", "%d retries", n)
		}
	}
	if s.Judge.Learn < 5 && c.Has("judge.learn") {
		c.Problemf("judge.learn", "noise cannot be learnt from fewer than 5 nights", "learn = %d", s.Judge.Learn)
	}
	if len(s.Experiments) == 0 && !c.Has("experiment") {
		c.Problemf("", `write [[experiment]] and path = "quickstart.toml"`, "no experiments")
	}
	for i := range s.Experiments {
		c.experiment(&s.Experiments[i])
	}
}

// positive reports a value that is there and is not more than 0.
func (c *checker) positive(at string, v int64) {
	if v <= 0 && c.Has(at) && !c.Reported(at) {
		c.Problemf(at, "leave it out for what is usual", "%s must be more than 0", at[strings.LastIndexByte(at, '.')+1:])
	}
}

// repeats reports a number of repeats that no run does.
func (c *checker) repeats(at string, n int) {
	if c.positive(at, int64(n)); n > spec.MostRepeats {
		c.Problemf(at, "", "%d repeats: at most %d", n, spec.MostRepeats)
	}
}

func (c *checker) drivers(at string, on []string) {
	for i, d := range on {
		if !slices.Contains(spec.Drivers, d) {
			c.Problemf(fmt.Sprintf("%s[%d]", at, i), tomlfile.OneOf(d, spec.Drivers), "unknown driver %q", d)
		}
	}
}

// experiment checks one, and makes items of it.
func (c *checker) experiment(e *Experiment) {
	c.drivers(e.At+".on", e.On)
	c.repeats(e.At+".repeats", e.Repeats)
	if e.Timeout != nil {
		c.positive(e.At+".timeout", int64(*e.Timeout))
	}
	if c.Has(e.At+".xfail") && strings.TrimSpace(e.Xfail) == "" {
		c.Problemf(e.At+".xfail", `xfail = "the queue of tor2 is too small until the new firmware"`, "xfail without a reason")
	}
	if e.Path == "" {
		if c.Has(e.At + ".path") { // that it is missing has been said
			c.Problemf(e.At+".path", `path = "quickstart.toml"`, "an empty path")
		}
		return
	}
	path := e.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(c.Name), path)
	}
	quick := c.s.Quick
	if e.Quick != nil {
		quick = *e.Quick
	}
	sets := e.Set
	text, err := bounded.ReadFile(path, bounded.Config)
	if err == nil && quick {
		var small []string
		if small, err = spec.Quick(path, text); err == nil {
			sets = append(slices.Clone(small), sets...)
		}
	}
	var spec *spec.Spec
	if err == nil {
		spec, err = kinds.Parse(path, text, nil, sets...)
	}
	if err != nil {
		var problems tomlfile.Problems
		if errors.As(err, &problems) {
			c.Problemf(e.At+".path", "", "experiment %s has problems", path)
			c.others = append(c.others, problems...)
		} else {
			c.Problemf(e.At+".path", "a path is relative to the suite's folder", "%v", err)
		}
		return
	}
	on := e.On
	if len(on) == 0 {
		on = c.s.On
	}
	if len(on) == 0 {
		on = []string{cmp.Or(spec.On, "netns")}
	}
	files, _ := kinds.Files(spec) // a run says why one cannot be read
	texts := append(slices.Clone(sets), slices.Sorted(maps.Values(files))...)
	timeout := c.s.Timeout.Std()
	if e.Timeout != nil {
		timeout = e.Timeout.Std()
	}
	for _, driver := range on {
		if spec.Measure.Precision > 0 && cmp.Or(e.Repeats, c.s.Repeats) == 0 && kinds.Simulator(spec, driver) == nil {
			c.Problemf(e.At+".path", `write repeats, or on = "sim"`, "experiment %s has measure.precision, which is of simulations, not of driver %s", path, driver)
		}
		it := Item{
			Name: cmp.Or(e.Name, spec.Name), Experiment: spec.Name, Path: path, Driver: driver, Set: e.Set, Quick: quick,
			Repeats: cmp.Or(e.Repeats, c.s.Repeats), Timeout: timeout.Seconds(), Xfail: e.Xfail,
			Sum: sumOf(append([]string{spec.Text, spec.Inventory().Text, driver}, texts...)...),
		}
		if len(on) > 1 {
			it.Name += "@" + driver
		}
		if first, twice := c.names[it.Name]; twice {
			at := e.At
			if c.Has(e.At + ".name") {
				at += ".name"
			}
			c.Problemf(at, fmt.Sprintf("give it a name of its own; first at %v", c.Pos(first)), "two items are named %s", it.Name)
			continue
		}
		c.names[it.Name] = e.At
		c.s.Items = append(c.s.Items, it)
	}
}

// seconds is a duration of a document.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
