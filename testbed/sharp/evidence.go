package sharp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/inabench/inabench/results"
)

// Evidence is all that speaks for or against that switches added up for a job.
type Evidence struct {
	Log   *JobLog // all ranks' lines
	Want  TreeType
	Asked Quota
	Ranks int // n
	Hosts int // that the ranks are on; 0: one each
	// Longest is the size of the longest vectors that figures are of, bytes; 0: not known.
	Longest int64

	// Sent is what each of the hosts sent through all its NICs while the job ran, and Reduced
	// what was all-reduced in all, bytes: a host sends S where switches add up, and 2S(n-1)/n
	// around a ring. Of two hosts both are the same, so that says nothing. Empty and 0: not known.
	Sent            []float64
	Reduced         float64
	TrafficRequired bool // that it is not known, or says nothing, is no proof
	// Doubt is why what hosts sent, beside what was all-reduced, says nothing of how; empty: it does.
	Doubt string
}

// Bounds of what is kept of what logs say: facts of a kind, which a job of any size does not need, and what is
// shown of them.
const (
	mostFacts    = 10_000
	mostCalls    = 200_000 // one for each process, communicator and size
	mostEvidence = 200
)

// A verdict is what one kind of evidence comes to, and why.
type verdict struct {
	outcome results.Outcome // Pass: it proves that switches add up; Fail: that they do not; Inconclusive: it cannot say
	why     string
}

// mostly is the part of all-reduced bytes that must have gone through switches for a job to be
// one that used them: what is left are vectors too short for it.
const mostly = 0.9

// Findings hold the evidence against what was asked for.
//
// The first passes if a tree was granted, a communicator or channel uses it, nothing was refused,
// and NCCL chose an algorithm that goes over the tree for the largest all-reduces and 90 % of all
// bytes that a process reduces between hosts, or hosts sent no more than aggregation lets them. It
// fails with results.CodeFallback if one of these speaks against it. It is undecided with
// results.CodeUnproven if none does, but the log cannot say what NCCL chose, for calls enough, for the
// longest vectors that figures are of, by which version and on each host, or has an error of SHARP's library, and traffic does
// not prove it.
//
// The second, where a quota was asked for, fails with results.CodeGranted if a tree came with less.
func (e *Evidence) Findings(job string) []results.Finding {
	f := results.Finding{Name: "switches add up", Code: results.CodeFallback, Of: job, Outcome: results.Pass}
	fail := func(what string) {
		if f.Outcome == results.Pass {
			f.Outcome, f.What = results.Fail, what
		} else {
			f.Evidence = append(f.Evidence, what)
		}
	}
	say := func(what string) {
		if what != "" && len(f.Evidence) < mostEvidence && !slices.Contains(f.Evidence, what) { // every rank says so
			f.Evidence = append(f.Evidence, what)
		}
	}
	tuned, traffic := verdict{results.Inconclusive, "the log has no line of NCCL or of SHARP"}, e.traffic()
	if e.Log.facts > 0 {
		if err := e.Log.Proof(e.Want); err != nil {
			fail(strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		tuned = e.tuned(say)
	}
	for _, t := range e.Log.Trees {
		say("granted: " + strings.Join(strings.Fields(t.String()), " "))
	}
	if n := len(e.Log.Groups); n > 0 {
		say(fmt.Sprintf("%d communicators have their part of a tree", n))
	}
	if e.Log.Channels > 0 {
		say(fmt.Sprintf("%d channels via COLLNET/SHARP", e.Log.Channels))
	}
	if e.TrafficRequired && traffic.outcome == results.Inconclusive {
		traffic.outcome = results.Fail
	}
	proven := ""
	for _, v := range []struct {
		verdict
		name string
	}{{tuned, "the log proves it"}, {traffic, "traffic proves it"}} {
		switch v.outcome {
		case results.Fail:
			fail(v.why)
		case results.Pass:
			if proven == "" {
				proven = v.name
			}
			fallthrough
		default:
			say(v.why)
		}
	}
	switch {
	case f.Outcome != results.Pass:
	case proven != "":
		f.What = proven + ": " + strings.Join(f.Evidence, "; ")
	default:
		f.Outcome, f.Code = results.Inconclusive, results.CodeUnproven
		f.What = tuned.why
		f.Evidence = slices.DeleteFunc(f.Evidence, func(s string) bool { return s == tuned.why })
	}
	out := []results.Finding{f}
	if e.Asked != (Quota{}) {
		out = append(out, e.granted(job))
	}
	return out
}

// tuned is what NCCL's own lines come to of its all-reduces between hosts.
func (e *Evidence) tuned(say func(string)) verdict {
	l := e.Log
	lines, version, why := l.reading()
	say(version)
	if l.Unreadable > 0 {
		say(fmt.Sprintf("%d lines that say what NCCL chose cannot be read, are of no process, or follow a call of a single rank", l.Unreadable))
	}
	called, leads := l.called()
	torn := l.torn(leads)
	if torn.calls > 0 {
		say(fmt.Sprintf("%d lines of calls cannot be read or are of no process", torn.calls))
	}
	if why != "" {
		return verdict{results.Inconclusive, why}
	}
	calls, others, mixed, within := l.allReduces(), l.others(), l.mixed(), l.within()
	var known, unknown []Algorithm // all-reduces between hosts, and lines that may be some
	anywhere := 0                  // unknown lines that may be all-reduces within a host
	for _, a := range lines {
		c, logged := calls[a.Bytes]
		switch {
		case a.Collective != "" && a.Collective != "AllReduce":
		case a.Collective == "" && !logged && others[a.Bytes]:
		case a.Collective == "" && (!logged || others[a.Bytes]) && mixed:
			unknown = append(unknown, a)
		case strings.HasPrefix(a.Name, "COLLNET"): // which there is between hosts only
			known = append(known, a)
		case c.within && !c.between:
			say(fmt.Sprintf("%s for %d bytes within hosts", a.Name, a.Bytes))
		case within && (!c.between || c.within):
			unknown = append(unknown, a)
			anywhere++
		default:
			known = append(known, a)
		}
	}
	in := func(a Algorithm) bool { return a.inNetwork() }
	switch all := slices.Concat(known, unknown); {
	case len(all) == 0:
		return verdict{results.Inconclusive, "no line says which algorithm NCCL chose for all-reduces between hosts"}
	case len(unknown) == 0:
	case !slices.ContainsFunc(all, in):
		known = all // whichever are the all-reduces
	case anywhere == 0 && !slices.ContainsFunc(all, func(a Algorithm) bool { return !in(a) }):
		known = all
	default:
		return verdict{results.Inconclusive, fmt.Sprintf("NCCL chose %s, and no line says which of these were all-reduces between hosts (NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING)", listed(all))}
	}
	known, silent := l.answered(known, called, leads)
	largest := int64(0)
	for _, a := range known {
		largest = max(largest, a.Bytes)
	}
	unread := float64(l.Unreadable) * float64(largest)
	lacking := max(silent, unread) + max(float64(torn.calls)*float64(largest), torn.bytes) // lines that are lacking may be those
	through, around := 0.0, lacking
	var smaller []Algorithm
	for _, a := range known {
		switch size := float64(a.Bytes) * float64(a.Count); {
		case in(a):
			through += size
			if a.Bytes == largest {
				say(fmt.Sprintf("NCCL chose %s for %d bytes", a.Name, a.Bytes))
			}
			continue
		case a.Bytes == largest || a.Bytes == e.Longest:
			return verdict{results.Fail, fmt.Sprintf("NCCL chose %s for all-reduces of %d bytes (line %d of the log), whatever was granted", a.Name, a.Bytes, a.Line)}
		default:
			around += size
			smaller = append(smaller, a)
		}
	}
	if len(smaller) > 0 {
		say("and for smaller ones " + listed(smaller))
	}
	longestCall := int64(0)
	for n, c := range calls {
		if c.between {
			longestCall = max(longestCall, n)
		}
	}
	if longest := max(longestCall, e.Longest); longest > largest {
		return verdict{results.Inconclusive, fmt.Sprintf("no line says which algorithm NCCL chose for all-reduces of %d bytes", longest)}
	}
	if longestCall == 0 && !named(lines) {
		return verdict{results.Inconclusive, "no line says of which collective NCCL chose an algorithm, and the log has no calls (NCCL_DEBUG_SUBSYS=COLL) of all-reduces between hosts"}
	}
	if l.Unreadable+torn.calls > 0 && len(calls) == 0 {
		return verdict{results.Inconclusive, "lines that cannot be read may be of longer vectors, and the log has no calls (NCCL_DEBUG_SUBSYS=COLL) that tell how long these are"}
	}
	switch {
	case len(l.Calls) > 0 && longestCall == 0:
		return verdict{results.Inconclusive, "the log has calls, and none of an all-reduce between hosts"}
	case longestCall > 0 && longestCall < e.Longest:
		return verdict{results.Inconclusive, fmt.Sprintf("the log has calls, and none of an all-reduce of %d bytes", e.Longest)}
	}
	part := through / (through + around)
	if !(part >= mostly) && (silent > unread || torn.calls > 0) {
		return verdict{results.Inconclusive, fmt.Sprintf("of %.0f %% of the bytes that were all-reduced no line says which algorithm NCCL chose, and %.0f %% went through switches", 100*lacking/(through+around), 100*part)}
	}
	if !(part >= mostly) {
		return verdict{results.Inconclusive, fmt.Sprintf("%.0f %% of the bytes that were all-reduced went through switches, as far as the log tells: figures are of a mixture", 100*part)}
	}
	if part *= l.allReducedPart(lines, through+around, e.Ranks); !(part >= mostly) {
		return verdict{results.Inconclusive, fmt.Sprintf("all-reduces through switches are %.2g %% of the bytes that were reduced between hosts: nothing says that switches added up the others (ReduceScatter, Reduce)", 100*part)}
	}
	if heard, hosts := l.hosts(), cmp.Or(e.Hosts, e.Ranks); heard < hosts && len(l.heard()) < e.Ranks {
		return verdict{results.Inconclusive, fmt.Sprintf("%d of %d hosts have lines of NCCL in the log: what the others were refused is not known", heard, hosts)}
	}
	if len(l.Errors) > 0 {
		return verdict{results.Inconclusive, "SHARP's library says an error, and not what comes of it: " + l.Errors[0]}
	}
	if !l.versioned() {
		return verdict{results.Inconclusive, "no line names the version of NCCL, and lines alone do not prove which it is"}
	}
	return verdict{results.Pass, ""}
}

// answered returns those of NCCL's choices for all-reduces between hosts that belong to calls before them or speak against
// switches, and how many bytes calls have for which there is no choice. Where the log has no calls, all choices are taken to belong.
// Called and leads are of called.
func (l *JobLog) answered(chosen []Algorithm, called map[int64]int, leads map[string]bool) (known []Algorithm, silent float64) {
	if len(called) == 0 {
		return chosen, 0
	}
	lines := map[Algorithm]int{}
	for of, n := range l.choices {
		if leads[of.process] {
			lines[of.choice] += n
		}
	}
	count := func(a Algorithm) int {
		a.Line, a.Count = 0, 0
		return lines[a]
	}
	answers := map[int64]int{}
	for _, a := range chosen {
		answers[a.Bytes] += count(a)
	}
	for bytes, n := range called {
		silent += float64(bytes) * float64(max(0, n-answers[bytes]))
	}
	for _, a := range chosen {
		n := count(a)
		switch {
		case called[a.Bytes] > 0:
		case a.sums(): // of a group: no longer than calls without a choice
			n = min(n, int(silent/float64(max(1, a.Bytes))))
			silent -= float64(n) * float64(a.Bytes)
		default:
			n = 0
		}
		if n > 0 {
			a.Count = n
		}
		if n > 0 || !a.inNetwork() {
			known = append(known, a)
		}
	}
	return known, silent
}

// called returns how often all-reduces of each size were called between hosts, once for all ranks of a communicator: by rank 0,
// which logs what NCCL chose; where nothing says which process that is, by whichever calls most. Leads may be rank 0 of one.
func (l *JobLog) called() (called map[int64]int, leads map[string]bool) {
	nodes := l.nodes()
	called, leads = map[int64]int{}, map[string]bool{}
	for of, first := range l.first {
		if of.Ranks > 1 {
			leads[of.Process] = leads[of.Process] || first
		}
	}
	for p := range l.speakers {
		if _, known := leads[p]; !known {
			leads[p] = true
		}
	}
	processes := map[string]map[int64]int{}
	for of, s := range l.reduced {
		first, known := l.first[of]
		if of.Process == "" || of.Ranks == 1 || nodes[of] == 1 || known && !first {
			continue
		}
		if processes[of.Process] == nil {
			processes[of.Process] = map[int64]int{}
		}
		for bytes, n := range s.sizes {
			processes[of.Process][bytes] += n
			if first {
				called[bytes] += n
			}
		}
	}
	for _, sizes := range processes {
		for bytes, n := range sizes {
			called[bytes] = max(called[bytes], n)
		}
	}
	return called, leads
}

// torn are calls that cannot be read, of processes that may be rank 0, which lead, or of any.
func (l *JobLog) torn(leads map[string]bool) torn {
	all := torn{}
	if l.nobodys != nil {
		all = *l.nobodys
	}
	for name, p := range l.speakers {
		if leads[name] {
			all.calls += p.torn.calls
			all.bytes += p.torn.bytes
		}
	}
	return all
}

// allReducedPart is which part of the bytes that were reduced between hosts all-reduces are, besides other collectives that
// switches did not add up as far as is known: as the calls say, or where there are none, NCCL's choices for a job of so many
// ranks that all-reduced so much.
func (l *JobLog) allReducedPart(lines []Algorithm, allReduced float64, ranks int) float64 {
	if len(l.Calls) > 0 {
		return l.calledPart(lines, ranks)
	}
	others := 0.0
	for _, a := range lines {
		if reducing(a.Collective) && !a.inNetwork() {
			others += a.reduces(ranks) * float64(a.Count)
		}
	}
	return allReduced / (allReduced + others)
}

// calledPart is which part of the bytes that a process reduced between hosts all-reduces are, as its calls say: the least
// of all processes, of as much as the busiest reduced. Calls that lost the beginning of their line, where lines of several
// ranks ran into each other, are nobody's. What NCCL chose for other reductions of which there is no call counts, too.
func (l *JobLog) calledPart(lines []Algorithm, ranks int) float64 {
	type reduced struct{ all, others float64 }
	processes, nodes := map[string]reduced{}, l.nodes()
	through, whole := l.throughSwitches(lines, nodes), saysWhole(lines)
	called := map[said]bool{}
	for of, s := range l.reduced {
		p := processes[of.Process]
		between := of.Ranks != 1 && nodes[of] != 1
		if between {
			p.all += s.bytes
		}
		for kind, times := range s.others {
			line, bytes := kind.said(whole), kind.reduces()*float64(times)
			called[line] = true
			if between && !through[line] {
				p.all += bytes
				p.others += bytes
			}
		}
		processes[of.Process] = p
	}
	if len(processes) > 1 {
		delete(processes, "")
	}
	uncalled := 0.0
	for _, a := range lines {
		if reducing(a.Collective) && !a.inNetwork() && !called[said{a.Collective, a.Bytes}] {
			uncalled += a.reduces(ranks) * float64(a.Count) / float64(max(1, len(processes)))
		}
	}
	most := 0.0
	for _, p := range processes {
		most = max(most, p.all)
	}
	part := 1.0
	for _, p := range processes {
		if others := p.others + uncalled; others > 0 {
			part = min(part, 1-others/(most+uncalled))
		}
	}
	return part
}

// throughSwitches are collectives that went through switches between hosts, whichever of their calls is meant: NVLS for one
// that was called within a host, too, may be that of the host.
func (l *JobLog) throughSwitches(lines []Algorithm, nodes map[Communicator]int) map[said]bool {
	within, through, whole := map[said]bool{}, map[said]bool{}, saysWhole(lines)
	for _, c := range l.Calls {
		if c.Ranks > 1 && nodes[c.communicator()] == 1 {
			within[c.said(whole)] = true
		}
	}
	for _, a := range lines {
		of := said{a.Collective, a.Bytes}
		before, seen := through[of]
		through[of] = (before || !seen) && a.inNetwork() && !(a.Name == "NVLS" && within[of])
	}
	return through
}

// hosts are how many have a message of a process of the job, by the names that they give themselves.
func (l *JobLog) hosts() int {
	hosts := map[string]bool{}
	for process := range l.heard() {
		host, _, _ := strings.Cut(process, ":")
		hosts[host] = true
	}
	return len(hosts)
}

// listed is a few of what NCCL chose.
func listed(as []Algorithm) string {
	var out []string
	for _, a := range as {
		out = append(out, fmt.Sprintf("%s for %d bytes", a.Name, a.Bytes))
	}
	return strings.Join(out[:min(len(out), 3)], ", ")
}

// where is between which ranks all-reduces of a size went.
type where struct{ within, between bool } // a node; nodes, or one cannot tell

// nodes are over how many nodes communicators are, by what is known of them without that: Nodes is 0. Where an address
// was used again, it is the most.
func (l *JobLog) nodes() map[Communicator]int {
	nodes := map[Communicator]int{}
	for _, c := range l.Communicators {
		of := c.asCalled()
		nodes[of] = max(nodes[of], c.Nodes)
	}
	return nodes
}

// allReduces are those that processes began, by size. NCCL chooses nothing for a single rank.
func (l *JobLog) allReduces() map[int64]where {
	nodes, calls := l.nodes(), map[int64]where{}
	for _, c := range l.Calls {
		if c.Collective == "AllReduce" && c.Ranks > 1 {
			w := calls[c.Bytes]
			within := nodes[c.communicator()] == 1
			calls[c.Bytes] = where{w.within || within, w.between || !within}
		}
	}
	return calls
}

// others are sizes that may be those of other collectives than an all-reduce: their own, or
// those of all ranks together, which is what NCCL takes of an all-gather.
func (l *JobLog) others() map[int64]bool {
	sizes := map[int64]bool{}
	for c := range l.kinds {
		if c.Collective != "AllReduce" && c.Ranks > 1 {
			sizes[c.Bytes], sizes[c.Bytes*int64(c.Ranks)] = true, true
		}
	}
	return sizes
}

// mixed says whether there may be other collectives than all-reduces.
func (l *JobLog) mixed() bool {
	return len(l.Calls) == 0 || slices.ContainsFunc(l.Calls, func(c Call) bool { return c.Collective != "AllReduce" })
}

// within says whether there are communicators of more than one rank within a node.
func (l *JobLog) within() bool {
	return slices.ContainsFunc(l.Communicators, func(c Communicator) bool { return c.Nodes == 1 && c.Ranks > 1 })
}

// traffic is what comes of what hosts sent.
//
// Without switches that add up, all-reducing S takes 2(h-1) messages of S between h hosts, however
// it is done: h-1 to have one host know the sum, h-1 to tell the others. So hosts send at least
// 2S(h-1)/h in the mean, and if all hosts were seen to send less, switches added up.
func (e *Evidence) traffic() verdict {
	n, hosts := float64(e.Ranks), cmp.Or(e.Hosts, e.Ranks)
	switch {
	case len(e.Sent) == 0 || e.Reduced <= 0:
		return verdict{results.Inconclusive, "what hosts sent is not known"}
	case e.Doubt != "":
		return verdict{results.Inconclusive, "what hosts sent is no proof: " + e.Doubt}
	case n < 3:
		return verdict{results.Inconclusive, fmt.Sprintf("of %d ranks, a ring sends as much as a tree", e.Ranks)}
	}
	ring, least, most := 2*(n-1)/n, e.Sent[0]/e.Reduced, 0.0
	for _, b := range e.Sent {
		least, most = min(least, b/e.Reduced), max(most, b/e.Reduced)
	}
	text := fmt.Sprintf("hosts sent up to %.2f times what was all-reduced; with aggregation it is 1, around a ring %.2f", most, ring)
	alone := 2 * float64(hosts-1) / float64(hosts) // without aggregation, in the mean
	switch {
	case !(most <= (1+ring)/2):
		return verdict{results.Fail, text}
	case most < 0.5: // another port, or counters of something else
		return verdict{results.Inconclusive, text + ": these counters do not see the job"}
	case hosts < 3:
		return verdict{results.Inconclusive, fmt.Sprintf("%s, which between %d hosts a tree of hosts can do as well", text, hosts)}
	case len(e.Sent) < hosts:
		return verdict{results.Inconclusive, fmt.Sprintf("%s, as far as %d of %d hosts tell", text, len(e.Sent), hosts)}
	case least < 0.9: // it cannot have sent its own vectors
		return verdict{results.Inconclusive, fmt.Sprintf("%s, and down to %.2f times, which is too little: counters do not see all of it", text, least)}
	case most > (1+alone)/2:
		return verdict{results.Inconclusive, text + ", which is no proof"}
	}
	switch logged := e.Log.allReduced(e.Ranks); {
	case logged == 0:
		return verdict{results.Inconclusive, text + ", and the log has no calls (NCCL_DEBUG_SUBSYS=COLL) that tell how much that is"}
	case most*e.Reduced/logged > (1+alone)/2:
		return verdict{results.Inconclusive, fmt.Sprintf("%s; but the log has calls of %.4g bytes, not of %.4g, and hosts sent up to %.2f times that", text, logged, e.Reduced, most*e.Reduced/logged)}
	}
	return verdict{results.Pass, text}
}

// granted compares the quota that was asked for with that of the trees that were granted.
func (e *Evidence) granted(job string) results.Finding {
	f := results.Finding{Name: "granted as asked", Code: results.CodeGranted, Of: job, Outcome: results.Inconclusive, What: "no tree was granted with a quota: of streaming trees the log does not say"}
	for _, t := range e.Log.Trees {
		if t.Quota == (Quota{}) {
			continue
		}
		var less []string
		for _, q := range []struct {
			name       string
			asked, got int
		}{
			{"osts", e.Asked.OSTs, t.Quota.OSTs}, {"user_data_per_ost", e.Asked.UserData, t.Quota.UserData},
			{"max_groups", e.Asked.Groups, t.Quota.Groups}, {"max_qps", e.Asked.QPs, t.Quota.QPs},
		} {
			if q.asked > 0 && q.got < q.asked {
				less = append(less, fmt.Sprintf("%s: asked for %d, granted %d", q.name, q.asked, q.got))
			}
		}
		if len(less) > 0 {
			f.Outcome, f.What = results.Fail, fmt.Sprintf("tree %d came with less: %s", t.ID, strings.Join(less, ", "))
			return f
		}
		f.Outcome, f.What = results.Pass, "every tree came with what was asked for"
	}
	return f
}

// CheckVariable says what is wrong with a variable of a job that is to use SHARP: those that
// make NCCL go past it without a word. hint is what to write instead.
//
// Source: github.com/Mellanox/nccl-rdma-sharp-plugins, src/sharp_plugin.c; NCCL user guide.
func CheckVariable(name, value string) (problem, hint string) {
	switch name {
	case "NCCL_NET":
		if strings.EqualFold(value, "IB") || strings.EqualFold(value, "Socket") {
			return fmt.Sprintf("NCCL_NET=%s bypasses the SHARP plugin", value), "leave it out"
		}
	case "NCCL_COLLNET_ENABLE":
		if value != "1" {
			return "NCCL_COLLNET_ENABLE=" + value + " turns SHARP off", "leave it out: it is set to 1"
		}
	case "NCCL_SHARP_DISABLE", "NCCL_IBEXT_DISABLE":
		if value != "0" {
			return name + "=" + value + " turns the SHARP plugin off", "leave it out"
		}
	case "NCCL_ALGO":
		if strings.Contains(value, "^") {
			return "NCCL_ALGO=" + value + " excludes algorithms: nothing says which NCCL uses then", "leave it out: NCCL uses SHARP where it can"
		}
		up := strings.ToUpper(value) // since 2.24 also "allreduce:collnetdirect,ring;allgather:ring"
		names := strings.FieldsFunc(up, func(r rune) bool { return r == ',' || r == ';' || r == ':' })
		if !slices.ContainsFunc(names, func(n string) bool { return n == "NVLS" || strings.HasPrefix(n, "COLLNET") }) {
			return "NCCL_ALGO=" + value + " leaves no algorithm that uses SHARP", "leave it out: forcing one makes jobs crash whose other collectives lack it"
		}
	case "NCCL_IB_HCA":
		if !strings.HasPrefix(value, "=") && !strings.HasPrefix(value, "^=") {
			return "NCCL_IB_HCA=" + value + " are prefixes: mlx5_1 is mlx5_10 too", `write "NCCL_IB_HCA==` + strings.TrimPrefix(value, "^") + `", or devices in sharp`
		}
	case "NCCL_DEBUG":
		if !strings.EqualFold(value, "INFO") && !strings.EqualFold(value, "TRACE") {
			return "without NCCL_DEBUG=INFO nothing can prove that switches added up", "leave it out: it is set to INFO"
		}
	case "NCCL_DEBUG_SUBSYS":
		names := strings.Split(strings.ToUpper(value), ",")
		lacks := slices.DeleteFunc([]string{"INIT", "COLL", "TUNING"}, func(n string) bool { return slices.Contains(names, n) })
		if len(lacks) > 0 && !slices.Contains(names, "ALL") {
			return "without " + strings.Join(lacks, " and ") + " in NCCL_DEBUG_SUBSYS nothing can prove that switches added up", "leave it out: it is set to INIT,COLL,TUNING"
		}
	case "NCCL_DEBUG_FILE", "SHARP_LOG_FILE":
		return name + " takes away the log, which is what proves that switches added up", "leave it out"
	case "SHARP_COLLNET_OVERLAP_AG":
		return name + " overwrites SHARP_COLL_ENABLE_SAT and the use of multicast", "leave it out"
	case "SHARP_COLL_ENABLE_SAT", "SHARP_COLL_LOG_LEVEL", "SHARP_COLL_JOB_QUOTA_OSTS", "SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST",
		"SHARP_COLL_JOB_QUOTA_MAX_GROUPS", "SHARP_COLL_JOB_QUOTA_MAX_QPS_PER_PORT", "SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE":
		return name + " is what sharp = {...} sets", "write it there"
	}
	return "", ""
}
