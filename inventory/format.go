package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Notes are comments of a file that Format writes.
type Notes struct {
	Head []string          // lines at the top
	Of   map[string]string // by name of a host or switch, above its table
}

// unknownPort stands in the place of a port that nobody knows, to be filled in by hand.
const unknownPort = "?"

// Format writes an inventory that was discovered as a file: names, racks, kinds, GUIDs
// and device names, cables and rates, GPUs, SHARP and aggregators, data and ssh
// addresses. It does not write how hosts and switches are reached beyond that. What
// comes one after the other and differs in numbers that count up becomes one table with
// ranges. Parse gives the same back, except for NICs without a switch: it refuses
// their unknownPort.
func Format(inv *Inventory, notes Notes) []byte {
	w := &formatter{notes: notes, rate: commonRate(inv), delay: commonDelay(inv)}
	for _, l := range notes.Head {
		w.line("# %s", l)
	}
	w.line("version = 1")
	if inv.Name != "" {
		w.line("name = %s", quote(inv.Name))
	}
	if w.rate > 0 || w.delay > 0 {
		w.line("\n[defaults]")
	}
	if w.rate > 0 {
		w.line("rate = %s", quote(w.rate.String()))
	}
	if w.delay > 0 {
		w.line("delay = %s", quote(Duration(w.delay).String()))
	}
	for rest := inv.Switches; len(rest) > 0; {
		n := alike(rest, w.switchText)
		table(w, "switch", w.switchText, rest[:n])
		guids(w, "guid", rest[:n], func(s Switch) GUID { return s.GUID })
		guids(w, "an", rest[:n], func(s Switch) GUID { return s.AN })
		rest = rest[n:]
	}
	for rest := inv.Hosts; len(rest) > 0; {
		n := alike(rest, w.hostText)
		table(w, "host", w.hostText, rest[:n])
		for k := range rest[0].NICs {
			prefix := "nic."
			if len(rest[0].NICs) > 1 {
				w.line("\n[[host.nic]]")
				prefix = ""
			}
			for i, f := range nicFields {
				if p, _ := pattern(rest[:n], func(h Host) string { return w.nicText(h.NICs[k])[i] }); p != "" {
					w.line("%s%s = %s", prefix, f, quote(p))
				}
			}
			guids(w, prefix+"guid", rest[:n], func(h Host) GUID { return h.NICs[k].GUID })
		}
		rest = rest[n:]
	}
	for rest := inv.Links; len(rest) > 0; {
		n := alike(rest, w.linkText)
		table(w, "link", w.linkText, rest[:n])
		rest = rest[n:]
	}
	return []byte(w.b.String())
}

type formatter struct {
	b     strings.Builder
	notes Notes
	rate  BitRate
	delay time.Duration // of every cable; 0: they differ, or have none
}

func (w *formatter) line(format string, args ...any) { fmt.Fprintf(&w.b, format+"\n", args...) }

// text is what a table says of one item: keys with their values as they are written,
// in order. Values in quotes may become ranges.
type text struct {
	note   string
	key    []string // what groups must have in common, besides patterns and the note
	fields [][2]string
}

func (w *formatter) switchText(s Switch) text {
	t := text{note: w.notes.Of[s.Name], key: []string{string(s.Kind), fmt.Sprint(s.SHARP, s.Aggregators), fmt.Sprint(s.GUID != 0, s.AN != 0)}}
	t.add("name", quote(s.Name))
	t.add("kind", quote(string(s.Kind)))
	if s.Rack != "" && s.Rack != s.Name {
		t.add("rack", quote(s.Rack))
	}
	if s.Control != "" {
		t.add("control", quote(s.Control))
	}
	if s.Aggregators > 0 {
		t.add("aggregators", strconv.Itoa(s.Aggregators))
	}
	if s.SHARP.Trees > 0 {
		t.add("sharp", fmt.Sprintf("{trees = %d, jobs = %d, resource = %s}", s.SHARP.Trees, max(s.SHARP.Jobs, 1), quote(cmp.Or(s.SHARP.Resource, "switch"))))
	}
	return t
}

func (w *formatter) hostText(h Host) text {
	t := text{note: w.notes.Of[h.Name], key: []string{strconv.Itoa(len(h.NICs))}}
	t.add("name", quote(h.Name))
	if h.Rack != "" && (len(h.NICs) == 0 || h.Rack != h.NICs[0].Switch) {
		t.add("rack", quote(h.Rack))
	}
	if h.GPUs > 0 {
		t.add("gpus", strconv.Itoa(h.GPUs))
	}
	if h.GPUModel != "" {
		t.add("gpu_model", quote(h.GPUModel))
	}
	if h.Launcher != "" {
		t.add("launcher", quote(h.Launcher))
	}
	if h.SSH.Address != "" {
		t.add("ssh.address", quote(h.SSH.Address))
	}
	for _, n := range h.NICs {
		t.key = append(t.key, fmt.Sprint(n.GUID != 0), n.Device, n.RDMA, n.Rate.String(), n.Delay.String())
		for i, v := range w.nicText(n) {
			t.key = append(t.key, fmt.Sprint(v != ""))
			if f := nicFields[i]; f == "port" || f == "address" {
				t.add("", quote(v)) // must fit the ranges, and is written below the table
			}
		}
	}
	return t
}

var nicFields = []string{"port", "device", "rdma", "address", "rate", "delay"}

func (w *formatter) nicText(n NIC) []string {
	out := []string{Port{n.Switch, n.Port}.String(), n.Device, n.RDMA, "", "", ""}
	if n.Switch == "" {
		out[0] = unknownPort
	}
	if n.Address.IsValid() {
		out[3] = n.Address.String()
	}
	if n.Rate != w.rate {
		out[4] = n.Rate.String()
	}
	if n.Delay != w.delay {
		out[5] = Duration(n.Delay).String()
	}
	return out
}

func (w *formatter) linkText(l Link) text {
	t := text{key: []string{l.Rate.String(), l.Delay.String()}}
	t.add("a", quote(l.A.String()))
	t.add("b", quote(l.B.String()))
	if l.Rate != w.rate {
		t.add("rate", quote(l.Rate.String()))
	}
	if l.Delay != w.delay {
		t.add("delay", quote(Duration(l.Delay).String()))
	}
	return t
}

// String is the port as files name it.
func (p Port) String() string { return fmt.Sprintf("%s/%d", p.Switch, p.Port) }

func (t *text) add(key, value string) { t.fields = append(t.fields, [2]string{key, value}) }

// alike is how many of the first items one table can stand for.
func alike[T any](items []T, of func(T) text) int {
	first := of(items[0])
	steps := make([]*counter, len(first.fields))
	for i, f := range first.fields {
		steps[i] = newCounter(f[1])
	}
	for n := 1; n < len(items) && n < maxRange; n++ {
		t := of(items[n])
		if t.note != first.note || len(t.fields) != len(first.fields) || !slices.Equal(t.key, first.key) {
			return n
		}
		counts := false
		for i, f := range t.fields {
			step, ok := steps[i].fits(f[1], n)
			if !ok || f[0] != first.fields[i][0] || (f[0] != "" && f[1][0] != '"' && step) {
				return n
			}
			counts = counts || step && f[0] == "name"
		}
		if !counts && first.fields[0][0] == "name" { // without a range in its name a table is one item
			return n
		}
	}
	return min(len(items), maxRange)
}

// counter is a text whose numbers may count up from item to item.
type counter struct {
	parts []string // texts and numbers in turn, beginning with a text
	steps []bool   // of each part: it counts up; decided by the second item
}

var digits = regexp.MustCompile(`[0-9]+`)

func split(s string) []string {
	var parts []string
	at := 0
	for _, m := range digits.FindAllStringIndex(s, -1) {
		parts = append(parts, s[at:m[0]], s[m[0]:m[1]])
		at = m[1]
	}
	return append(parts, s[at:])
}

func newCounter(s string) *counter { return &counter{parts: split(s)} }

// fits reports whether s is what the text becomes after n steps, and whether anything
// in it counts.
func (c *counter) fits(s string, n int) (counts, ok bool) {
	parts := split(s)
	if len(parts) != len(c.parts) {
		return false, false
	}
	if c.steps == nil {
		c.steps = make([]bool, len(parts))
		for i := range parts {
			c.steps[i] = parts[i] != c.parts[i]
		}
	}
	for i, p := range parts {
		want := c.parts[i]
		if c.steps[i] {
			counts = true
			lo, err := strconv.Atoi(want)
			if i%2 == 0 || err != nil {
				return false, false
			}
			want = fmt.Sprintf("%0*d", len(want), lo+n)
		}
		if p != want {
			return false, false
		}
	}
	return counts, true
}

// pattern is one text for all items: their own, or with ranges.
func pattern[T any](items []T, of func(T) string) (string, bool) {
	first := of(items[0])
	if len(items) == 1 {
		return first, true
	}
	c := newCounter(first)
	if counts, ok := c.fits(of(items[1]), 1); !ok || !counts {
		return first, ok
	}
	var b strings.Builder
	for i, p := range c.parts {
		if !c.steps[i] {
			b.WriteString(p)
			continue
		}
		lo, _ := strconv.Atoi(p)
		fmt.Fprintf(&b, "[%s-%0*d]", p, len(p), lo+len(items)-1)
	}
	return b.String(), true
}

// table writes what a group of items has in common, or counts up.
func table[T any](w *formatter, name string, of func(T) text, items []T) {
	t := of(items[0])
	w.line("")
	for l := range strings.Lines(t.note) {
		w.line("# %s", strings.TrimRight(l, "\n"))
	}
	w.line("[[%s]]", name)
	for i, f := range t.fields {
		if f[0] == "" {
			continue
		}
		p, _ := pattern(items, func(x T) string { return of(x).fields[i][1] })
		w.line("%s = %s", f[0], p)
	}
}

// guids writes a list where a table stands for several.
func guids[T any](w *formatter, key string, items []T, of func(T) GUID) {
	if of(items[0]) == 0 {
		return
	}
	if len(items) == 1 {
		w.line("%s = %s", key, quote(of(items[0]).String()))
		return
	}
	w.b.WriteString(key + " = [")
	const row = 4
	for i, x := range items {
		switch {
		case len(items) > row && i%row == 0:
			w.b.WriteString("\n  ")
		case i > 0:
			w.b.WriteString(" ")
		}
		w.b.WriteString(quote(of(x).String()))
		if i < len(items)-1 || len(items) > row {
			w.b.WriteString(",")
		}
	}
	if len(items) > row {
		w.b.WriteString("\n")
	}
	w.line("]")
}

// quote is a TOML string. Names, addresses and models have no control characters; if
// one does, it is left out.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && r != 0x7f:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// commonRate is the rate of most cables; of equals the highest.
func commonRate(inv *Inventory) BitRate {
	n := map[BitRate]int{}
	for _, h := range inv.Hosts {
		for _, nic := range h.NICs {
			n[nic.Rate]++
		}
	}
	for _, l := range inv.Links {
		n[l.Rate]++
	}
	best := BitRate(0)
	for _, r := range slices.Sorted(maps.Keys(n)) {
		if r > 0 && (best == 0 || n[r] >= n[best]) {
			best = r
		}
	}
	return best
}

// commonDelay is that of all cables, 0 if they differ.
func commonDelay(inv *Inventory) time.Duration {
	all := map[time.Duration]bool{}
	for _, h := range inv.Hosts {
		for _, nic := range h.NICs {
			all[nic.Delay] = true
		}
	}
	for _, l := range inv.Links {
		all[l.Delay] = true
	}
	if len(all) != 1 {
		return 0
	}
	for d := range all {
		return d
	}
	return 0
}
