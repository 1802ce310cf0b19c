// Package random draws whole experiments: an inventory and jobs on it, as the two files that
// anybody could have written. Nobody tunes what is drawn, so what runs of them say of a
// prediction holds outside of the settings that it was made with.
//
// A setting is a function of a seed and its number alone, to the byte, on every machine and with
// every version of Go: only PCG's 64-bit words are used, which math/rand/v2 promises to keep, and
// no floating point. What a machine can carry is therefore not in the files: they have a factor of
// slow motion that suits a small one, and who runs them overrides emulation.factor
// (testbed/carry says with what).
//
// # What is drawn
//
//   - Topologies of one to three levels: a rack; racks under a spine; ToRs in a line, each of which
//     adds up what the one before it sends; racks under two aggregation switches and a core. Rates
//     and delays of hosts' cables are all the same or each their own, and so is switch memory, from
//     an eighth of what a host at full rate keeps busy to 16 times that.
//   - Statistical mode with each addressing, and synchronous mode. Exclusive mode is not drawn: no
//     [[job]] can ask for it, only operations do.
//   - One to five jobs, the first one INA from beginning to end, so that every phase has a share. The
//     others are INA, PS or ring jobs and come and go at the ends of up to three phases. Windows
//     are half to four times what is on its way at full rate, less where workers are many; some jobs have a rate limit.
//   - Lanes of 32 to 240.
//
// What is not drawn, since no predictor speaks of it: buffers that overflow, AIMD, queues that are
// not fair, and damaged links.
package random

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// Tolerances of a drawn setting's expectations.
const (
	RateTolerance  = 0.05 // of what is predicted of the goodput of each job, and of each link
	ShareTolerance = 0.04 // of the share of each job at each switch
)

// Factor is the factor of slow motion in the files.
const Factor = 4000

// Phases are settled for warmup and measured for measured, with a ring among the jobs for longer:
// its goodput is that of whole all-reduces. Until its figures are certain a phase goes on for leastStretch to
// mostStretch times as long, up to longMeasured, which is also what is measured again takes at most, if
// its pace asks for no more. Wall clock, milliseconds.
const (
	warmup       = 2000
	measured     = 2000
	measuredRing = 6000
	longMeasured = 60000
	leastStretch = 3
	mostStretch  = 10
)

// A phase has so many readings before it goes on, at intervals of so many milliseconds: who reads uses the cores that
// carry the setting.
const (
	readings  = 20
	oftenest  = 100
	seldomest = 250
)

// The time in which jobs of a phase begin: for processes to start, milliseconds, and for them to hear of each
// other, in round trips.
const (
	launch      = 500
	launchTrips = 4
)

// Setting is an experiment that was drawn, as files.
type Setting struct {
	Seed       uint64
	Number     int    // from 1
	Name       string // of the experiment, and of its file without ".toml"
	Title      string // what was drawn, in a line
	Inventory  string // text of Name-inventory.toml
	Experiment string // text of Name.toml

	jobs []job
	rtt  int64 // ns, of the longest way there is
}

// Seed is the seed that a text stands for: a number below 2^64 in Go's notation is itself, any other
// text, such as the hash of a commit, is hashed (FNV-1a).
func Seed(text string) uint64 {
	if n, err := strconv.ParseUint(text, 0, 64); err == nil {
		return n
	}
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

// Write writes a setting's two files into a folder, and returns the experiment's path.
func (s *Setting) Write(dir string) (string, error) {
	path := filepath.Join(dir, s.Name+".toml")
	if err := os.WriteFile(filepath.Join(dir, s.inventory()), []byte(s.Inventory), 0o666); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(s.Experiment), 0o666)
}

// Pace is how fast a setting goes: the factor of slow motion, and for how long, in milliseconds on the wall clock, a
// warm-up and what is measured in a phase last at least.
type Pace struct{ Factor, Warm, Length float64 }

// Trip is the longest round trip by the cables, in seconds.
func (s *Setting) Trip() float64 { return float64(s.rtt) / 1e9 }

// Slow are the assignments of --set with which the setting runs at a pace, in phases that are longer by some times, up
// to a minute. Longer phases are read less often.
func (s *Setting) Slow(p Pace, longer float64) []string {
	length := max(measured, p.Length)
	length = max(length, min(longer*length, longMeasured))
	stretch := max(leastStretch, min(mostStretch, longMeasured/length))
	out := append([]string{fmt.Sprintf("emulation.factor=%g", p.Factor), fmt.Sprintf("measure.stretch=%.3g", stretch)},
		s.times(max(warmup, p.Warm), length, launch+launchTrips*1e3*s.Trip()*p.Factor)...)
	return append(out, fmt.Sprintf("measure.interval=%.0fms", max(oftenest, min(seldomest, length/readings))))
}

// Model are the assignments of --set with which the setting runs on a model. A ring makes thousands of
// all-reduces a second there, and figures are exact, however often counters are read.
func (s *Setting) Model() []string {
	return append(s.times(warmup, measured, 0), "measure.interval=500ms")
}

// times are assignments of times on the wall clock, in milliseconds: of the warm-up and of what is
// measured in each phase, and of what jobs need to begin, which is in a phase's length.
func (s *Setting) times(warm, length, begin float64) (out []string) {
	ms := func(key string, v float64) { out = append(out, fmt.Sprintf("%s=%.0fms", key, math.Ceil(v))) }
	ms("measure.warmup", warm)
	ms("measure.duration", length)
	phase := math.Ceil(warm) + math.Ceil(length) + math.Ceil(begin)
	for i, j := range s.jobs {
		if j.from > 0 {
			ms(fmt.Sprintf("job.%d.start", i), float64(j.from)*phase)
		}
		ms(fmt.Sprintf("job.%d.duration", i), float64(j.to-j.from)*phase)
	}
	return out
}

func (s *Setting) inventory() string { return s.Name + "-inventory.toml" }

// Draw draws the numbered setting of a seed.
func Draw(seed uint64, number int) *Setting {
	d := &draw{pcg: rand.NewPCG(seed, uint64(number)*0x9e3779b97f4a7c15)}
	d.topology()
	d.jobs()
	s := &Setting{Seed: seed, Number: number, Name: fmt.Sprintf("random-%016x-%d", seed, number), Title: d.title(), jobs: d.all, rtt: d.longest}
	head := fmt.Sprintf("# Drawn at random: inabench fidelity --random 1 --seed %#x --case %d\nversion = 1\n", seed, number)
	s.Inventory = head + d.inventory(s.Name)
	s.Experiment = head + d.experiment(s)
	return s
}

// draw is a setting on its way.
type draw struct {
	pcg *rand.PCG

	shape     string
	switches  []node
	hosts     []host
	links     []link
	levels    int   // of switches
	longest   int64 // round trip, ns, by cables
	mode      string
	address   string
	ratio     string // of slots, atp
	lanes     int
	phases    int
	measured  int // ms, of a phase
	all       []job
	different bool // memories differ from switch to switch
}

type node struct {
	name   string
	tor    bool
	memory int // in quarters of what a host at full rate keeps busy; then aggregators
}

type host struct {
	name, port string
	rate       int // Gbit/s
	delay      int // us
}

type link struct {
	a, b        string
	rate, delay int
}

type job struct {
	name, collective, ps string
	hosts                []string
	rate                 int // Mbit/s; 0: no limit
	window               int
	message              string
	from, to             int // phases
}

// n is 0..k-1.
func (d *draw) n(k int) int {
	hi, _ := bits.Mul64(d.pcg.Uint64(), uint64(k))
	return int(hi)
}

func (d *draw) between(lo, hi int) int { return lo + d.n(hi-lo+1) }

func (d *draw) chance(percent int) bool { return d.n(100) < percent }

func pick[T any](d *draw, of ...T) T { return of[d.n(len(of))] }

func shuffle[T any](d *draw, x []T) {
	for i := len(x) - 1; i > 0; i-- {
		j := d.n(i + 1)
		x[i], x[j] = x[j], x[i]
	}
}

// topology draws switches, hosts, cables and memories.
func (d *draw) topology() {
	d.lanes = pick(d, 240, 240, 240, 180, 120, 64, 32)
	d.shape = pick(d, "rack", "rack", "racks", "racks", "line", "tiers")
	tors, each := 1, []int{4, 9}
	switch d.shape {
	case "racks":
		tors, each = d.between(2, 4), []int{2, 4}
	case "line":
		tors, each = d.between(2, 3), []int{2, 4}
	case "tiers":
		tors, each = 4, []int{2, 3}
	}
	rate, delay := pick(d, 25, 40, 50, 100), pick(d, 2, 5, 10)
	unequal, apart := d.chance(50), d.chance(30)
	for t := range tors {
		tor := fmt.Sprintf("tor%d", t+1)
		d.switches = append(d.switches, node{name: tor, tor: true})
		for p := range d.between(each[0], each[1]) {
			h := host{name: fmt.Sprintf("h%d", len(d.hosts)+1), port: fmt.Sprintf("%s/%d", tor, p+1), rate: rate, delay: delay}
			if unequal {
				h.rate = pick(d, 25, 40, 50, 100)
			}
			if apart {
				h.delay = pick(d, 2, 5, 10)
			}
			d.hosts = append(d.hosts, h)
		}
	}
	up := func(a string, ap int, b string, bp int) {
		d.links = append(d.links, link{fmt.Sprintf("%s/%d", a, ap), fmt.Sprintf("%s/%d", b, bp), pick(d, 50, 100, 200, 400), pick(d, 2, 5)})
	}
	d.levels = 1
	switch d.shape {
	case "racks":
		d.levels = 2
		for t := range tors {
			up(d.switches[t].name, 31, "spine1", t+1)
		}
		d.switches = append(d.switches, node{name: "spine1"})
	case "line":
		d.levels = tors
		for t := range tors - 1 {
			up(d.switches[t].name, 31, d.switches[t+1].name, 30)
		}
	case "tiers":
		d.levels = 3
		for t := range tors {
			up(d.switches[t].name, 31, fmt.Sprintf("agg%d", t/2+1), t%2+1)
		}
		for a := range 2 {
			agg := fmt.Sprintf("agg%d", a+1)
			up(agg, 31, "core1", a+1)
			d.switches = append(d.switches, node{name: agg})
		}
		d.switches = append(d.switches, node{name: "core1"})
	}
	slowest := 0
	for _, h := range d.hosts {
		slowest = max(slowest, h.delay)
	}
	d.longest = 2 * 2 * int64(slowest) * 1000
	for _, l := range d.links { // no path takes more cables between switches than four
		d.longest += 2 * int64(l.delay) * 1000 * 4 / int64(max(4, len(d.links)))
	}
	// Eighths of what a host keeps busy at full rate.
	memory := pick(d, 1, 2, 4, 6, 8, 12, 16, 32, 128)
	d.different = d.chance(40)
	for i := range d.switches {
		if !d.switches[i].tor {
			continue
		}
		m := memory
		if d.different {
			m = pick(d, 1, 2, 4, 6, 8, 12, 16, 32, 128)
		}
		d.switches[i].memory = min(max(8, d.onTheWay(rate)*m/8), 32768)
	}
}

// frame is the bits of a gradient's frame.
func (d *draw) frame() int64 { return 8 * int64(64+4*d.lanes) }

// onTheWay is how many frames are on their way and back at a rate of so many Gbit/s.
func (d *draw) onTheWay(rate int) int { return int(int64(rate)*d.longest/d.frame()) + 1 }

// jobs draws how switches add up, and for whom.
func (d *draw) jobs() {
	d.mode = pick(d, "statistical", "statistical", "statistical", "synchronous")
	d.address = pick(d, "pool", "hash", "linear", "atp")
	d.ratio = pick(d, "0.25", "0.5", "1.0")
	d.phases, d.measured = d.between(1, 3), measured
	for i := range d.between(1, 5) {
		j := job{name: string(rune('A' + i)), collective: pick(d, "ina", "ina", "ina", "ps", "ring"), to: d.phases}
		if i == 0 {
			j.collective = "ina"
		} else {
			j.from = d.n(d.phases)
			j.to = d.between(j.from+1, d.phases)
		}
		var names []int
		for h := range d.hosts {
			names = append(names, h)
		}
		shuffle(d, names)
		workers := d.between(2, min(len(d.hosts)-1, 8))
		if j.collective == "ring" {
			// A message that links carry in some 50 us of the lab's time, a fifth of a second here.
			workers, d.measured = min(workers, 5), measuredRing
			j.message = pick(d, "32KiB", "64KiB", "128KiB")
		}
		slowest := 1 << 20
		for _, h := range names[:workers] {
			j.hosts = append(j.hosts, d.hosts[h].name)
			slowest = min(slowest, d.hosts[h].rate)
		}
		if ps := d.hosts[names[workers]].name; j.collective == "ps" || j.collective == "ina" && d.mode == "statistical" {
			j.ps = ps
		}
		if d.chance(40) {
			j.rate = slowest * 10 * pick(d, 10, 20, 35, 50, 65, 80)
		}
		// A window of each worker in front of one link is gone in eight round trips.
		way := d.onTheWay(slowest)
		j.window = max(16, min(way*pick(d, 2, 4, 8, 16)/4, way*8/workers))
		d.all = append(d.all, j)
	}
	if d.mode != "synchronous" {
		return
	}
	need := 0 // two windows of each, wherever it is
	for _, j := range d.all {
		if j.collective == "ina" {
			need += 2 * j.window
		}
	}
	for i := range d.switches {
		if d.switches[i].tor {
			d.switches[i].memory = max(d.switches[i].memory, need)
		}
	}
}

func (d *draw) title() string {
	how := d.mode
	if how == "statistical" {
		how = d.address
	}
	var kinds []string
	for _, k := range []string{"ina", "ps", "ring"} {
		n := 0
		for _, j := range d.all {
			if j.collective == k {
				n++
			}
		}
		if n > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", n, k))
		}
	}
	level := "level"
	if d.levels > 1 {
		level += "s"
	}
	return fmt.Sprintf("%s of %d hosts, %d %s, %s, %d lanes, %s", d.shape, len(d.hosts), d.levels, level, how, d.lanes, strings.Join(kinds, " "))
}

func (d *draw) inventory(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name = %q\n\n[defaults]\nkind = \"soft\"\ngpus = 8\nbuffer = \"64MiB\"\n", name)
	for _, s := range d.switches {
		fmt.Fprintf(&b, "\n[[switch]]\nname = %q\n", s.name)
		if s.tor {
			fmt.Fprintf(&b, "aggregators = %d\n", s.memory)
		}
	}
	for _, h := range d.hosts {
		fmt.Fprintf(&b, "\n[[host]]\nname = %q\nnic = {port = %q, rate = \"%dGbit/s\", delay = \"%dus\"}\n", h.name, h.port, h.rate, h.delay)
	}
	for _, l := range d.links {
		fmt.Fprintf(&b, "\n[[link]]\na = %q\nb = %q\nrate = \"%dGbit/s\"\ndelay = \"%dus\"\n", l.a, l.b, l.rate, l.delay)
	}
	return b.String()
}

func (d *draw) experiment(s *Setting) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name = %q\ntitle = %q\ninventory = %q\n", s.Name, s.Title, s.inventory())
	fmt.Fprintf(&b, "\n[emulation]\nscale = \"slow-motion\"\nfactor = %d\n", Factor)
	fmt.Fprintf(&b, "\n[switch]\nmode = %q\nqueue = \"fair\"\nlanes = %d\n", d.mode, d.lanes)
	if d.mode == "statistical" {
		fmt.Fprintf(&b, "addressing = %q\n", d.address)
		if d.address == "atp" {
			fmt.Fprintf(&b, "slots_ratio = %s\n", d.ratio)
		}
	}
	for _, j := range d.all {
		fmt.Fprintf(&b, "\n[[job]]\nname = %q\ncollective = %q\nhosts = [%s]\n", j.name, j.collective, tomlfile.Strings(j.hosts))
		if j.ps != "" {
			fmt.Fprintf(&b, "ps = %q\n", j.ps)
		}
		if j.message != "" {
			fmt.Fprintf(&b, "message = %q\n", j.message)
		}
		if j.collective != "ring" {
			fmt.Fprintf(&b, "window = %d\n", j.window)
		}
		if j.rate > 0 {
			fmt.Fprintf(&b, "rate = \"%dMbit/s\"\n", j.rate)
		}
		if j.from > 0 {
			fmt.Fprintf(&b, "start = \"%dms\"\n", j.from*(warmup+d.measured))
		}
		fmt.Fprintf(&b, "duration = \"%dms\"\n", (j.to-j.from)*(warmup+d.measured))
	}
	fmt.Fprintf(&b, "\n[measure]\nwarmup = \"%dms\"\nduration = \"%dms\"\nseed = %d\n", warmup, d.measured, s.Number)
	expect := func(metric, bound, reason string) {
		fmt.Fprintf(&b, "\n[[expect]]\nmetric = %q\n%s\nreason = %q\n", metric, bound, reason)
	}
	expect("goodput", `tolerance = "5%"`, "what is predicted holds in settings that nobody chose")
	expect("link_rate", `tolerance = "5%"`, "no link carries what is not predicted")
	expect("share", `tolerance = "0.04"`, "memory is shared as predicted, at every level of the tree")
	expect("sum_errors", "value = 0", "aggregation must never change a sum")
	return b.String()
}
