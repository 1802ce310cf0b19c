package spec

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/metric"
)

// Limits that come from the wire format: job numbers have 12 bits, worker bitmaps
// 64, and a frame holds 240 int32.
const (
	maxJobs    = 4095
	maxWorkers = 64
	maxLanes   = 240
	MaxWindow  = 1 << 16
)

// mostHosts is among how many hosts jobs may be placed and predicted, packet by packet: that takes half a minute.
const mostHosts = 8192

// JobName is what names of jobs and programs are made of: they are parts of counters' names.
var JobName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// check finds everything that is wrong with one point of an experiment, and fills in
// what depends on several keys. Cross references are left alone where the inventory
// could not be read.
func (s *Spec) check(f *tomlfile.File, l *Lab) {
	c := &Checker{File: f, Spec: s, Lab: l}
	if s.Topology() != nil && f.Has("inventory") {
		c.Problemf("inventory", "keep one of them", "inventory and [%s] exclude each other", topologyKey(s))
	}
	if s.FatTree != nil && s.Clos != nil {
		c.KeyProblemf("clos", "keep one of them", "[fat_tree] and [clos] exclude each other")
	}
	c.emulation()
	c.policies()
	readable := c.oneStudy()
	if readable {
		c.programs() // before whoever asks how long packets are
		s.Study().Check(c)
		c.summary()
		c.precision()
		c.compare()
	}
	c.preflight()
	c.switches()
	c.measure()
	c.linkStates()
	if readable {
		c.predictor()
		c.expects()
		c.published()
	}
}

// summary checks the figures that reports list by point.
func (c *Checker) summary() {
	known := c.Spec.Study().Metrics().compared()
	if len(known) == 0 && len(c.Spec.Summary) > 0 {
		c.KeyProblemf("summary", "take it out", "reports list all figures of %v tables", c.Spec.Kind())
		return
	}
	for i, m := range c.Spec.Summary {
		if !slices.Contains(known, m) {
			c.Problemf(fmt.Sprintf("summary[%d]", i), tomlfile.OneOf(m, known), "unknown metric %q", m)
		}
	}
}

// Checker checks one point of an experiment: problems go into its file, each with its position.
type Checker struct {
	*tomlfile.File
	Spec *Spec
	Lab  *Lab // nil without an inventory
}

// Lab is what the checks of all points want to know of an inventory.
type Lab struct {
	Inv         *inventory.Inventory
	Hosts       []string
	links       []string
	rates       map[string]inventory.BitRate // of each host's fastest NIC
	Fastest     inventory.BitRate            // of them all
	aggregators int                          // of the largest switch
	ecn         bool                         // some switch marks packets

	read   bool // what programs says, below
	rooms  []room
	unread error
}

// most is the rate of the fastest link, bit/s; 0: it is not known.
func (l *Lab) most() (rate float64) {
	if l == nil {
		return 0
	}
	for _, link := range l.Inv.Topology().Links {
		rate = max(rate, float64(link.Rate))
	}
	return rate
}

// NewLab looks at an inventory; nil of none.
func NewLab(inv *inventory.Inventory) *Lab {
	if inv == nil {
		return nil
	}
	l := &Lab{Inv: inv, Hosts: inv.HostNames(), rates: map[string]inventory.BitRate{}}
	for _, h := range inv.Hosts {
		for _, n := range h.NICs {
			l.rates[h.Name] = max(l.rates[h.Name], n.Rate)
			l.Fastest = max(l.Fastest, n.Rate)
		}
	}
	for _, link := range inv.Topology().Links {
		l.links = append(l.links, link.Name)
	}
	for _, s := range inv.Switches {
		l.aggregators = max(l.aggregators, s.Aggregators)
		l.ecn = l.ecn || s.ECN > 0
	}
	return l
}

// Positive reports a number that the file gives and that is not above zero. A value
// that could not be read has been reported already and is zero: it is let through.
func Positive[N int | int64 | float64 | inventory.BitRate | inventory.Bytes | inventory.Duration](c *Checker, path string, n N) {
	if c.Has(path) && n <= 0 && !c.Reported(path) {
		c.Problemf(path, "", "%s must be above zero", path[strings.LastIndexByte(path, '.')+1:])
	}
}

// AtMost reports a number of things, "repeats", that is larger than anybody means, and says whether it is not.
func (c *Checker) AtMost(path string, n, most int, what string) bool {
	if n > most {
		c.Problemf(path, "", "%d %s: at most %d", n, what, most)
	}
	return n <= most
}

func (c *Checker) emulation() {
	e := &c.Spec.Emulation
	if e.Offload && e.Switch == string(inventory.BMv2) {
		c.KeyProblemf("emulation.offload", "leave it out, or take emulation.switch = \"soft\"", "offload has no effect on BMv2, which forwards packets one by one")
	}
	given := c.Has("emulation.factor")
	switch {
	case e.Scale == "none" && !given:
		e.Factor = 1
	case e.Scale == "none" && e.Factor != 1:
		c.Problemf("emulation.factor", `leave it out, or write scale = "slow-motion"`, `scale "none" has no factor`)
	case given && e.Factor < 1 && !c.Reported("emulation.factor"):
		c.Problemf("emulation.factor", "", "factor must be at least 1")
	}
}

func (c *Checker) switches() {
	sw := &c.Spec.Switch
	Positive(c, "switch.aggregators", sw.Aggregators)
	Positive(c, "switch.pat_ratio", sw.PATRatio)
	Positive(c, "switch.slots", sw.Slots)
	Positive(c, "switch.slots_ratio", sw.SlotsRatio)
	Positive(c, "switch.reallocate", sw.Reallocate)
	if (sw.Lanes < 1 || sw.Lanes > maxLanes) && !c.Reported("switch.lanes") {
		c.Problemf("switch.lanes", "", "lanes must be 1 to %d", maxLanes)
	}
	if c.Has("switch.aggregators") && c.Has("switch.pat_ratio") {
		c.Problemf("switch.pat_ratio", "keep one of them", "pat_ratio and aggregators exclude each other")
	}
	if c.Has("switch.slots") && c.Has("switch.slots_ratio") {
		c.Problemf("switch.slots_ratio", "keep one of them", "slots_ratio and slots exclude each other")
	}
	if sw.SlotsRatio > 1 {
		c.Problemf("switch.slots_ratio", "", "slots_ratio is a part of the aggregators, at most 1")
	}
	if sw.Addressing == "atp" && sw.Mode == "statistical" && !c.Has("switch.slots") && !c.Has("switch.slots_ratio") {
		c.Problemf("switch.addressing", "write slots_ratio = 0.5, or slots", "atp addressing needs the number of slots a job picks")
	}
	if sw.Slots > 0 && sw.Aggregators > 0 && sw.Slots > sw.Aggregators {
		c.Problemf("switch.slots", "", "slots = %d, but jobs have %d aggregators to pick from", sw.Slots, sw.Aggregators)
	}
	if c.Lab != nil && sw.Aggregators > c.Lab.aggregators {
		c.Problemf("switch.aggregators", "", "no switch of %s has %d aggregators (the largest has %d)",
			c.Lab.Inv.File, sw.Aggregators, c.Lab.aggregators)
	}
	if len(c.Spec.Jobs) == 0 || !c.Has("switch.pat_ratio") && !c.Has("switch.pat_job") {
		return
	}
	if sw.PATJob == "" {
		sw.PATJob = c.Spec.Jobs[0].Name
	}
	at := "switch.pat_job"
	if !c.Has(at) {
		at = "switch.pat_ratio"
	}
	j, ok := c.Spec.Job(sw.PATJob)
	switch {
	case !ok:
		c.Problemf(at, tomlfile.DidYouMean(sw.PATJob, c.jobNames()), "unknown job %q", sw.PATJob)
	case j.Collective != "ina":
		c.Problemf(at, "name another with pat_job", "pat_ratio of job %s, which does not aggregate in switches", j.Name)
	case !c.Has(j.At + ".rate"):
		c.Problemf(at, "give it a rate", "pat_ratio of job %s, which has no rate", j.Name)
	}
}

func (c *Checker) jobNames() []string {
	var out []string
	for _, j := range c.Spec.Jobs {
		out = append(out, j.Name)
	}
	return out
}

// Named reports a table's name that is none, or another one's before; names says where those are.
func (c *Checker) Named(names map[string]string, table, name, kind, what string) {
	at := table + ".name"
	switch first, dup := names[name]; {
	case name == "" && !c.Has(at): // reported
	case dup:
		c.Problemf(at, "first at "+c.Pos(first).String(), "duplicate %s %q", kind, name)
	case !JobName.MatchString(name) && !c.Reported(at):
		c.Problemf(at, "letters, digits, '_' and '-'", "%q is not %s", name, what)
	default:
		names[name] = at
	}
}

func (c *Checker) job(j *Job) {
	Positive(c, j.At+".gpus", j.GPUs)
	Positive(c, j.At+".message", j.Message)
	Positive(c, j.At+".rate", j.Rate)
	Positive(c, j.At+".duration", j.Duration)
	c.short(j.At+".duration", j.Duration)
	c.short(j.At+".start", j.Start)
	Positive(c, j.At+".iterations", j.Iterations)
	if (j.Window < 1 || j.Window > MaxWindow) && !c.Reported(j.At+".window") {
		c.Problemf(j.At+".window", "", "window must be 1 to %d packets", MaxWindow)
	}
	if j.Control == "aimd" {
		c.ecn(j)
	}
	exclude := func(a, b string) {
		if c.Has(j.At+"."+a) && c.Has(j.At+"."+b) {
			c.Problemf(j.At+"."+b, "keep one of them", "%s and %s exclude each other", a, b)
		}
	}
	exclude("model", "message")
	exclude("duration", "iterations")
	if !c.Has(j.At+".gpus") && !c.Has(j.At+".hosts") {
		c.KeyProblemf(j.At, `write gpus = 4, or hosts = ["h1", "h2"]`, "job without workers")
	}
	if c.Has(j.At+".iterations") && !c.Has(j.At+".model") && !c.Has(j.At+".message") {
		c.Problemf(j.At+".iterations", `add message = "64MiB", or a model`, "a plain stream has no iterations")
	}
	if j.Collective == "ring" && c.Has(j.At+".ps") {
		c.Problemf(j.At+".ps", "leave ps out", "a ring has no parameter server")
	}
	if c.Has(j.At+".hosts") && len(j.Hosts) == 0 && !c.Reported(j.At+".hosts") {
		c.Problemf(j.At+".hosts", "", "job without workers")
	}
	if c.Has(j.At+".gpus") && j.GPUs < len(j.Hosts) {
		c.Problemf(j.At+".gpus", "on hosts that a job names, gpus counts those of all", "%d GPUs on %d hosts", j.GPUs, len(j.Hosts))
	}
	if len(j.Hosts) > maxWorkers {
		c.Problemf(j.At+".hosts", "", "%d workers, at most %d fit a worker bitmap", len(j.Hosts), maxWorkers)
	}
	c.workers(j)
}

// Host checks that the inventory, which there must be, has a host.
func (c *Checker) Host(path, name string) bool {
	_, ok := c.Lab.rates[name]
	if !ok && !c.Reported(path) {
		c.Problemf(path, tomlfile.DidYouMean(name, c.Lab.Hosts), "unknown host %q", name)
	}
	return ok
}

// workers checks a job's hosts and its rate against the inventory.
func (c *Checker) workers(j *Job) {
	if c.Lab == nil {
		return
	}
	limit, of := c.Lab.Fastest, "the fastest host"
	seen := map[string]bool{}
	for i, h := range j.Hosts {
		at := fmt.Sprintf("%s.hosts[%d]", j.At, i)
		if !c.Host(at, h) {
			continue
		}
		if seen[h] {
			c.Problemf(at, "one worker stands for all of a job's GPUs on a host", "host %s twice in job %s", h, j.Name)
		}
		seen[h] = true
		if r := c.Lab.rates[h]; r < limit || len(seen) == 1 {
			limit, of = r, "host "+h
		}
	}
	if c.Has(j.At + ".ps") {
		c.Host(j.At+".ps", j.PS)
	}
	if j.Rate > limit {
		c.Problemf(j.At+".rate", "", "rate %v is above the %v that %s is linked with", j.Rate, limit, of)
	}
}

// ecn reports a job that listens for marks which no switch makes.
func (c *Checker) ecn(j *Job) {
	if c.Lab != nil && !c.Lab.ecn && c.Spec.Switch.ECN == 0 {
		c.Problemf(j.At+".control", `write ecn = "64KiB" in [switch] or in the inventory`, "aimd needs ECN marks, and no switch makes any")
	}
}

func (c *Checker) measure() {
	m := &c.Spec.Measure
	Positive(c, "measure.duration", m.Duration)
	Positive(c, "measure.interval", m.Interval)
	c.short("measure.duration", m.Duration)
	c.short("measure.warmup", m.Warmup)
	if m.Interval > 0 && m.Duration/m.Interval > mostReadings {
		c.Problemf("measure.interval", fmt.Sprintf("write at least %v, or measure for less long", max(time.Millisecond, (time.Duration(m.Duration)/mostReadings).Round(time.Millisecond))), "%d readings in %v: at most %d", m.Duration/m.Interval, m.Duration, mostReadings)
	}
	Positive(c, "measure.repeats", m.Repeats)
	c.AtMost("measure.repeats", m.Repeats, MostRepeats, "repeats")
	Positive(c, "measure.patience", m.Patience)
	if c.Has("measure.stretch") && !(m.Stretch >= 1 && m.Stretch <= 100) {
		c.Problemf("measure.stretch", "", "a phase cannot become %v times as long; 1 to 100", m.Stretch)
	}
	if 2*m.Interval > m.Duration && m.Duration > 0 {
		at := "measure.interval"
		if !c.Has(at) {
			at = "measure.duration"
		}
		c.Problemf(at, "measure for longer, or read more often", "a measurement of %v has no room for two readings every %v", m.Duration, m.Interval)
	}
}

// precision checks repeats that go on until an interval is narrow.
func (c *Checker) precision() {
	m := &c.Spec.Measure
	Positive(c, "measure.most", m.Most)
	c.AtMost("measure.most", m.Most, MostRepeats, "repeats")
	if !c.Has("measure.precision") {
		if c.Has("measure.most") {
			c.Problemf("measure.most", `add precision = "5%"`, "most has no effect without precision")
		}
		return
	}
	switch known := c.Spec.Study().Metrics().compared(); {
	case len(known) == 0:
		c.Problemf("measure.precision", "write repeats", "precision has no figure to go by: reports of %v tables list none", c.Spec.Kind())
	case len(c.Spec.Summary) == 0:
		c.Problemf("measure.precision", fmt.Sprintf("write summary = [%q]", known[0]), "precision needs a summary: it is of the summary's first metric")
	}
	if c.Has("measure.repeats") && m.Repeats > 0 && m.Repeats < results.LeastRepeats {
		c.Problemf("measure.repeats", fmt.Sprintf("leave it out, or write at least %d", results.LeastRepeats), "%d repeats are too few for precision", m.Repeats)
	}
	if m.Most > 0 && m.Most < m.Fewest() && !c.Reported("measure.repeats") {
		at := "measure.repeats"
		if c.Has("measure.most") {
			at = "measure.most"
		}
		c.Problemf(at, "", "at least %d repeats, and at most %d", m.Fewest(), m.Most)
	}
}

func (c *Checker) linkStates() {
	for i := range c.Spec.LinkStates {
		l := &c.Spec.LinkStates[i]
		for key, p := range map[string]float64{"loss": l.Loss, "duplicate": l.Duplicate, "reorder": l.Reorder} {
			if p < 0 || p > 1 {
				c.Problemf(l.At+"."+key, "", "%s is a probability, 0 to 1", key)
			}
		}
		if l.Reorder > 0 && l.ReorderBy == 0 && !c.Has(l.At+".reorder_by") {
			c.Problemf(l.At+".reorder", `write reorder_by = "2ms"`, "reorder without reorder_by")
		}
		if c.Lab != nil && l.Of != "" {
			c.matches(l.At+".of", l.Of, "link", c.Lab.links)
		}
	}
}

// matches reports a glob that none of the names fits.
func (c *Checker) matches(at, pattern, what string, names []string) {
	if slices.ContainsFunc(names, func(n string) bool { return results.Glob(pattern, n) }) {
		return
	}
	c.Problemf(at, tomlfile.DidYouMean(pattern, names), "no %s matches %q", what, pattern)
}

// InPhase are the metrics of jobs that are drawn from phases. The others are those of a whole run, or of links.
var InPhase = []string{"share", "granted", "goodput", "wire_rate", "step_rate"}

func (c *Checker) expects() {
	names := map[string]string{}
	for i := range c.Spec.Expects {
		e := &c.Spec.Expects[i]
		if e.Name == "" {
			e.Name = strings.TrimSpace(e.Metric + " " + e.Of)
		}
		if first, dup := names[e.Name]; dup {
			c.Problemf(e.At+".name", "first at "+c.Pos(first).String(), "duplicate expectation %q", e.Name)
		}
		names[e.Name] = e.At
		if strings.TrimSpace(e.Reason) == "" && c.Has(e.At+".reason") && !c.Reported(e.At+".reason") {
			c.Problemf(e.At+".reason", "say why it should hold, and why within this tolerance", "empty reason")
		}
		c.expect(e)
	}
}

func (c *Checker) expect(e *Expect) {
	study := c.Spec.Study()
	known, predictors := study.Metrics(), append(slices.Clone(study.Predictors()), "value")
	external := c.Spec.Predictor != nil && e.Predictor == c.Spec.Predictor.Name
	if external {
		predictors = append(predictors, e.Predictor)
	}
	m, ok := known[e.Metric]
	if external && (e.Metric == "jct" || e.Metric == "avg_jct") {
		m.Predicted = true
	}
	if !ok {
		if e.Metric != "" {
			words := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(name string) bool { return strings.HasSuffix(name, metric.Ratio) })
			c.Problemf(e.At+".metric", tomlfile.OneOf(e.Metric, words), "unknown metric %q", e.Metric)
		}
		return
	}
	if m.Jobs != nil {
		c.subjects(e, m)
	}

	r := results.Expect{Name: e.Name, Metric: e.Metric, Of: e.Of, Points: e.Where, Predictor: e.Predictor, Against: e.Against, Statistic: e.Statistic,
		Bound: e.Bound, Reason: e.Reason, Gate: e.Gate, Event: e.Event}
	if r.Predictor == "" {
		r.Predictor = predictors[0]
		if c.Has(e.At+".value") || !m.Predicted {
			r.Predictor = "value"
		}
	}
	switch given := c.Has(e.At + ".value"); {
	case e.Against != "":
		r.Predictor = e.Against
		for _, key := range []string{"predictor", "value"} {
			if c.Has(e.At + "." + key) {
				c.Problemf(e.At+"."+key, "keep one of them", "against and %s exclude each other", key)
			}
		}
	case !slices.Contains(predictors, r.Predictor):
		c.Problemf(e.At+".predictor", tomlfile.OneOf(r.Predictor, predictors), "unknown predictor %q", r.Predictor)
	case r.Predictor == "value" && !given:
		c.KeyProblemf(e.At, "write value = "+m.Example(), "missing value in expect")
	case r.Predictor != "value" && given:
		c.Problemf(e.At+".value", `keep one of them`, "predictor %q and a value exclude each other", r.Predictor)
	case r.Predictor != "value" && !m.Predicted:
		c.Problemf(e.At+".predictor", "write value = "+m.Example(), "%s does not predict %s", r.Predictor, e.Metric)
	case r.Predictor != "value" && (e.Bound == "at-least" || e.Bound == "at-most") && !c.Spec.Kind().Foreign:
		c.Problemf(e.At+".bound", "write value = "+m.Example(), "bound %q compares with a value", e.Bound)
	case given:
		r.Value = c.quantity(e.At+".value", m, e.Value)
	}
	switch {
	case c.Has(e.At + ".tolerance"):
		if e.Statistic == results.Correlation {
			m = Measurable{Metric: metric.Metric{Unit: "1"}} // what it may be less than 1
		}
		r.Tolerance, r.Relative = c.tolerance(e.At+".tolerance", m, string(e.Tolerance))
		_, top := metric.Range(e.Metric)
		if e.Bound != "at-most" && e.Gate && r.Tolerance >= 1 && (r.Relative || top == 1 || e.Statistic == results.Correlation) {
			c.Problemf(e.At+".tolerance", "write less, or gate = false", "with a tolerance of %s a %s of 0 would pass: nothing is judged", e.Tolerance, e.Metric)
		}
		if oneLink(e.Metric, m) && e.Gate && r.Predictor != "value" && !r.Relative {
			if most := c.Lab.most(); most > 0 && r.Tolerance >= most {
				c.Problemf(e.At+".tolerance", "write less, or gate = false", "with a tolerance of %s every %s would pass, for no link is faster than %s: nothing is judged", e.Tolerance, e.Metric, human.Quantity(most, "bit/s"))
			}
		}
	case e.Bound == "within" && e.Metric != "sum_errors":
		c.KeyProblemf(e.At, `write tolerance = "3%"`, "missing tolerance in expect")
	}
	if e.Gate && r.Predictor == "value" && !c.Reported(e.At+".value") && !c.Reported(e.At+".tolerance") {
		c.vacuous(e, r, known[e.Metric])
	}
	c.tautology(e)
	c.event(e, r)
	e.resolved, e.unit = r, known[e.Metric].Unit
}

// Bounds of what a run takes: a typing error is no run of 114 years, nor one that no memory holds.
const (
	MostRepeats  = 10_000 // of a point
	mostTime     = 31 * 24 * time.Hour
	mostReadings = 1_000_000 // of every counter in a phase
	MostMeasured = 100_000   // points times repeats
	MostJobs     = 1_000_000 // of a study that draws them
)

// short reports a time for which nobody measures.
func (c *Checker) short(path string, d inventory.Duration) {
	if time.Duration(d) > mostTime && !c.Reported(path) {
		c.Problemf(path, "", "%v: at most 31 days (744h)", time.Duration(d))
	}
}

// oneLink says that a metric is of what one link carries; totals are more.
func oneLink(name string, m Measurable) bool {
	return m.Unit == "bit/s" && (m.Jobs != nil || name == "goodput")
}

// vacuous reports a bound that nothing which can be measured breaks.
func (c *Checker) vacuous(e *Expect, r results.Expect, m Measurable) {
	by := r.Tolerance
	if r.Relative {
		by *= math.Abs(r.Value)
	}
	lo, hi := metric.Range(r.Metric)
	most := "%s of " + human.Typed(hi) + ", which is the most,"
	if rate := c.Lab.most(); oneLink(r.Metric, m) && rate > 0 {
		hi, most = rate, "%s of "+human.Quantity(rate, "bit/s")+", which no link is faster than,"
	}
	least := "%s of 0"
	if n := len(c.Spec.Jobs); r.Metric == "jain" && n > 1 {
		lo = 1 / float64(n)
		least = fmt.Sprintf("%%s of %s, which is the least of %s,", human.Typed(lo), human.Plural(n, "job"))
	}
	low, high := r.Value-by <= lo && !math.IsInf(lo, 0), r.Value+by >= hi && !math.IsInf(hi, 0)
	switch {
	case r.Bound == "at-least" && low:
		c.Problemf(e.At+".value", "write more, or gate = false", "a "+least+" would pass: nothing is judged", r.Metric)
	case r.Bound == "at-most" && high:
		c.Problemf(e.At+".value", "write less, or gate = false", "a "+most+" would pass: nothing is judged", r.Metric)
	case r.Bound == "within" && low && high:
		c.Problemf(e.At+".tolerance", "write less, or gate = false", "a "+least+" would pass, and a "+most+" too: nothing is judged", r.Metric, r.Metric)
	}
}

// tautology reports a ratio of the reference to itself, which is 1 whatever happens.
func (c *Checker) tautology(e *Expect) {
	with := c.Spec.Compare
	if with == nil || !e.Gate || !strings.HasSuffix(e.Metric, metric.Ratio) {
		return
	}
	at := ".of"
	switch {
	case e.Of == with.Reference:
	case slices.Contains(e.Where, with.Key+"="+with.Reference):
		at = ".at"
	default:
		return
	}
	c.Problemf(e.At+at, "name another value of "+with.Key+", or gate = false", "%s of %s, the reference, is 1 whatever happens: nothing is judged", e.Metric, with.Reference)
}

// event reports an expectation of an event that holds where nothing happens.
func (c *Checker) event(e *Expect, r results.Expect) {
	if !e.Event || c.Reported(e.At+".value") || c.Reported(e.At+".tolerance") {
		return
	}
	by := r.Tolerance
	if r.Relative {
		by *= math.Abs(r.Value)
	}
	const hint = `write value = 1 and bound = "at-least", or as many as there must be`
	switch {
	case r.Predictor != "value":
		c.Problemf(e.At+".event", hint, "an event is of a value, not against %s, which may be 0, too", r.Predictor)
	case e.Statistic != "each":
		c.Problemf(e.At+".statistic", "leave it out", "an event is of each figure: of the %s of errors nobody can tell that it happened", e.Statistic)
	case e.Bound == "at-most" || r.Value-by <= 0:
		c.Problemf(e.At+".event", hint, "%s of 0 would pass, so nothing would have to happen", e.Metric)
	}
}

// atSwitches names what is at each switch that can aggregate.
func (l *Lab) atSwitches(what string) (names []string) {
	if l == nil {
		return nil
	}
	for _, s := range l.Inv.Switches {
		if s.Aggregators > 0 {
			names = append(names, AtSwitch(what, s.Name))
		}
	}
	return names
}

// subjects reports an expectation of what nothing produces.
func (c *Checker) subjects(e *Expect, m Measurable) {
	var names []string
	jobs := 0
	for i := range c.Spec.Jobs {
		j := &c.Spec.Jobs[i]
		if !m.Jobs(j) {
			continue
		}
		jobs++
		names = append(names, m.Subjects(j.Name, c.Lab)...)
	}
	if m.Of == "comparison" {
		names = append([]string{"goodput"}, c.Lab.atSwitches("aggregated")...)
	}
	switch {
	case len(c.Spec.Jobs) == 0: // reported
	case jobs == 0:
		c.Problemf(e.At+".metric", "", "nothing produces %s: %s", e.Metric, m.none)
	case e.Metric == "jain" && jobs < 2:
		c.Problemf(e.At+".metric", "", "nothing produces jain: it compares jobs, and there is one")
	case c.Lab == nil:
	case m.Of == "job@switch" && len(names) == 0:
		c.Problemf(e.At+".metric", "", "nothing produces %s: no switch of %s has aggregators", e.Metric, c.Lab.Inv.File)
	case m.Of == "link":
		c.matches(e.At+".of", e.Of, "link", c.Lab.links)
	default:
		c.matches(e.At+".of", e.Of, m.Of, names)
	}
}

// quantity is a value in a metric's unit: a number, a rate or a duration.
func (c *Checker) quantity(at string, m Measurable, v any) float64 {
	switch v := v.(type) {
	case int64:
		if m.number() {
			return float64(v)
		}
	case float64:
		if m.number() && !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v
		}
	case string:
		if !m.number() {
			n, err := InUnit(m.Unit, v)
			if err != nil {
				c.Problemf(at, tomlfile.HintOf(err), "value: %v", err)
			}
			return n
		}
	}
	if m.number() {
		c.Problemf(at, "", "value must be a finite number")
	} else {
		c.Problemf(at, "write "+m.Example(), "value must be a quantity with its unit")
	}
	return 0
}

// InUnit reads a quantity as a metric's unit has it: "10Gbit/s", "2s", "100MB", or a number.
func InUnit(unit, s string) (float64, error) {
	switch unit {
	case "bit/s":
		r, err := inventory.ParseBitRate(s)
		return float64(r), err
	case "s":
		d, err := inventory.ParseDuration(s)
		return d.Std().Seconds(), err
	case "B":
		n, err := inventory.ParseBytes(s)
		return float64(n), err
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	return n, nil
}

// tolerance reads "0.03", "3%", or "1Gbit/s" where the metric is a rate.
func (c *Checker) tolerance(at string, m Measurable, s string) (tol float64, relative bool) {
	if c.Reported(at) {
		return 0, false
	}
	var err error
	if number, ok := strings.CutSuffix(strings.TrimSpace(s), "%"); ok {
		tol, err = InUnit("1", strings.TrimSpace(number))
		tol, relative = tol/100, true
	} else {
		tol, err = InUnit(m.Unit, s)
	}
	switch {
	case err != nil:
		absolute := m.Example()
		if m.number() {
			absolute = `"0.03"`
		}
		c.Problemf(at, fmt.Sprintf(`write "3%%" or an absolute one like %s`, absolute), "tolerance: %v", err)
	case math.IsNaN(tol) || math.IsInf(tol, 0) || tol < 0:
		c.Problemf(at, "", "tolerance must be a finite number and not negative")
	default:
		return tol, relative
	}
	return 0, false
}
