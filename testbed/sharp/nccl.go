package sharp

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Version is a version of NCCL: 2.21.5 is {2, 21, 5}. The zero value is one that is not known.
type Version struct{ Major, Minor, Patch int }

// String is "2.21.5".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// series compares versions without their patch.
func (v Version) series(major, minor int) int {
	return cmp.Or(cmp.Compare(v.Major, major), cmp.Compare(v.Minor, minor))
}

// A form is how NCCL writes what it chose. Each is the text behind "NCCL INFO ".
type form string

const (
	byNumber    form = "1024 Bytes -> Algo 1 proto 2 time 80.1"                                        // of which collective, it does not say
	byBoth      form = "AllReduce: 1024 Bytes -> Algo 1 proto 2 time 80.1"                             //
	byName      form = "AllReduce: 1024 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3}"        //
	bySymmetric form = "AllReduce [Symmetric]: 1024 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 ..." // over NVLink
	byTrace     form = "1024 Bytes -> Algo 1 proto 2 time 80.1, behind NCCL TRACE"                     // of a library built with TRACE=1
)

// What each form has, and what is left of it where the head of its line is lost.
const (
	choice   = "Bytes -> "
	headless = "-> Algo "
	began    = ": opCount " // of a call, in every form
)

// A grammar is what the versions from a first to a last one write. Patch levels agree.
//
// Rank 0 of a communicator writes it once for each call; to 2.23, once for what calls of a group
// and of one kind have together. Behind NCCL TRACE every rank does.
//
// Source: the format strings at the tags of github.com/NVIDIA/nccl, src/enqueue.cc
// (topoGetAlgoInfo to v2.23.4-1, scheduleCollTasksToPlan from v2.24.3-1) and, of symmetric
// kernels, src/enqueue.cc at v2.27.3-1 and src/scheduler/symmetric_sched.cc from v2.28.3-1.
type grammar struct {
	from, to int // minor versions of NCCL 2
	forms    []form
}

var grammars = []grammar{
	{18, 19, []form{byTrace}}, // at INFO nothing: the call is commented out
	{20, 22, []form{byNumber}},
	{23, 23, []form{byBoth}},
	{24, 26, []form{byName}},
	{27, 30, []form{byName, bySymmetric}},
}

// grammarOf is what a version writes. Of one that is newer than all, that of the newest; of one
// that is older than all, none.
func grammarOf(v Version) (g grammar, ok bool) {
	last := grammars[len(grammars)-1]
	if v.series(2, last.to) > 0 {
		return last, true
	}
	i := slices.IndexFunc(grammars, func(g grammar) bool { return v.series(2, g.from) >= 0 && v.series(2, g.to) <= 0 })
	if i < 0 {
		return grammar{}, false
	}
	return grammars[i], true
}

// String is the versions: "2.20 to 2.22".
func (g grammar) String() string {
	if g.from == g.to {
		return fmt.Sprintf("2.%d", g.from)
	}
	return fmt.Sprintf("2.%d to 2.%d", g.from, g.to)
}

// Algorithm is what NCCL chose for collectives of a size. That SHARP is there does not mean that
// it is chosen.
type Algorithm struct {
	Collective string // "AllReduce"; empty: the line does not say
	Bytes      int64
	Name       string // "RING", "TREE", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT" or "SYMMETRIC"
	Count      int    // of lines that say the same
	Line       int    // of the log, the first that says so

	form form
}

// inNetwork says whether the switches of the network add up with the algorithm. NVLS does
// between hosts what CollNet does, and NCCL chooses it there only where CollNet is. NVLS_TREE
// adds up in NVLink's switches within a host, and along a tree of hosts between them.
//
// Source: release notes of NCCL 2.18.1; github.com/NVIDIA/nccl, src/enqueue.cc at v2.18.1-1.
func (a Algorithm) inNetwork() bool {
	return a.Name == "COLLNET_DIRECT" || a.Name == "COLLNET_CHAIN" || a.Name == "NVLS"
}

// reduces is how much of a rank is reduced where a line says so, bytes, at most: of a ReduceScatter NCCL says since 2.24
// what each of so many ranks gets.
//
// Source: github.com/NVIDIA/nccl, src/enqueue.cc: ncclFuncMaxSendRecvCount at v2.23.4-1, task->count at v2.24.3-1.
func (a Algorithm) reduces(ranks int) float64 {
	if a.Collective == "ReduceScatter" && a.form != byBoth {
		return float64(a.Bytes) * float64(ranks)
	}
	return float64(a.Bytes)
}

// sums says whether the line may be of calls of a group together.
func (a Algorithm) sums() bool { return a.form == byNumber || a.form == byBoth || a.form == byTrace }

// saysWhole says whether lines are of a version that says what a ReduceScatter takes of a rank, and not what a rank gets.
func saysWhole(lines []Algorithm) bool {
	return slices.ContainsFunc(lines, func(a Algorithm) bool { return a.form == byBoth })
}

// named says whether lines are of a version that names the collective.
func named(lines []Algorithm) bool {
	return slices.ContainsFunc(lines, func(a Algorithm) bool { return a.Collective != "" })
}

// algorithms are NCCL's, by the numbers that its versions to 2.23 log: the seventh since 2.23.
//
// Source: github.com/NVIDIA/nccl, src/include/devcomm.h at v2.18.1-1, src/include/nccl_common.h
// from v2.19.1-1; the names, ncclAlgoToString in src/misc/utils.cc and src/collectives.cc.
var algorithms = []string{"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"}

// Call is collectives of one kind and size that processes began, as their log says with
// NCCL_DEBUG_SUBSYS=COLL.
type Call struct {
	Collective string // "AllReduce", "AllGather", ...
	Bytes      int64  // that a rank contributes, or gets of a broadcast
	Ranks      int    // of the communicator
	Process    string // "host:pid"
	Comm       string // the communicator's address in the process
}

// kind is a call without process and communicator.
func (c Call) kind() Call { return Call{Collective: c.Collective, Bytes: c.Bytes, Ranks: c.Ranks} }

// communicator is that of a call, as far as the call tells: Rank and Nodes are 0.
func (c Call) communicator() Communicator {
	return Communicator{Process: c.Process, Comm: c.Comm, Ranks: c.Ranks}
}

// reduces is how much a call reduces of a rank, bytes. The count of a ReduceScatter is of what a rank gets.
func (c Call) reduces() float64 {
	if c.Collective == "ReduceScatter" {
		return float64(c.Bytes) * float64(c.Ranks)
	}
	return float64(c.Bytes)
}

// said is what a line of NCCL's choice for a call says of it.
type said struct {
	collective string
	bytes      int64
}

// said is what lines say of a call: of all that a rank gives, if they say the whole.
func (c Call) said(whole bool) said {
	if whole && c.Collective == "ReduceScatter" {
		return said{c.Collective, c.Bytes * int64(c.Ranks)}
	}
	return said{c.Collective, c.Bytes}
}

// Communicator is one of a process, and over how many nodes its ranks are. NCCL counts hosts that
// share an NVLink domain as one node.
type Communicator struct {
	Process, Comm string
	Ranks, Nodes  int
	Rank          int // that of the process, where Nodes is not 0
}

// asCalled is the communicator as its calls name it.
func (c Communicator) asCalled() Communicator {
	return Communicator{Process: c.Process, Comm: c.Comm, Ranks: c.Ranks}
}

var (
	escapes     = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])`)
	level       = regexp.MustCompile(`NCCL (INFO|WARN|TRACE) `)
	process     = regexp.MustCompile(`([^\s:]+:\d+):\d+ (?:\[-?\d+\] )?(?:[\d.]+ )?(?:\S+:\d+ )?$`)
	versionText = regexp.MustCompile(`NCCL version (\d{1,2})\.(\d{1,2})\.(\d{1,2})`)
	libraryText = regexp.MustCompile(`nccl-library=(\d{4,6})\b`)
	numberLine  = regexp.MustCompile(`^(?:(\w+): )?(\d+) Bytes -> Algo (\d) proto \d time \d`)
	nameLine    = regexp.MustCompile(`^(\w+): (\d+) Bytes -> Algo ([A-Z]\w*) proto \w+ channel\{Lo\.\.Hi\}=\{\d+\.\.\d+\}`)
	kernelLine  = regexp.MustCompile(`^(\w+) \[Symmetric\]: (\d+) Bytes -> Kernel \w+ nchannels \d`)
	beginning   = regexp.MustCompile(`^\w+: opCount `)
	unadded     = regexp.MustCompile(`\b(?:AllGather|Broadcast|Send|Recv|AlltoAll|Gather|Scatter): opCount `)
	callLine    = regexp.MustCompile(`^(\w+): opCount ([0-9a-f]{1,16}) sendbuff \S+ recvbuff \S+ count (\d+) datatype (\d+) op \d+ root \d+ comm (\S+) \[nranks=(\d+)\]`)
	nodesLine   = regexp.MustCompile(`^comm (\S+) rank (\d+) nRanks (\d+) nNodes (\d+) localRanks`)
	insteadLine = regexp.MustCompile(`^Cannot initialize CollNet, using point-to-point network instead`)
)

// typeSizes are bytes of NCCL's data types, by number: int8 first, float8 last.
//
// Source: github.com/NVIDIA/nccl, src/nccl.h.in at v2.18.1-1 to v2.30.7-1.
var typeSizes = []int64{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}

// nccl takes in what a line has of NCCL. Lines of several ranks may be in one, where a newline
// was lost, so that each message begins behind "NCCL INFO " and not where the line does.
func (l *JobLog) nccl(text string) {
	if strings.Contains(text, "nccl-library=") {
		if m := libraryText.FindStringSubmatch(text); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil && n >= 10000 { // since 2.9
				l.version("", Version{n / 10000, n / 100 % 100, n % 100})
			} else if err == nil {
				l.version("", Version{n / 1000, n / 100 % 10, n % 100})
			}
		}
	}
	at := level.FindAllStringSubmatchIndex(text, -1)
	head := text
	if len(at) > 0 {
		head = text[:at[0][0]]
	}
	l.versions("", head)
	if strings.Contains(head, headless) {
		l.lose()
	}
	l.fragments(head)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		of := ""
		if p := process.FindStringSubmatch(text[:m[0]]); p != nil {
			if of = p[1]; i > 0 {
				of = l.apart(of)
			}
		}
		l.message(text[m[2]:m[3]], of, text[m[1]:end])
	}
}

// mostName is how long the name of a process is at most: that of a host, and a number.
const mostName = 255 + 12

// apart is a process whose name stands behind the end of another message: without that end, as far as one can tell by
// processes that are known, or by the end of a name that stood there before.
func (l *JobLog) apart(name string) string {
	if l.speakers[name] != nil {
		return name
	}
	name = name[max(0, len(name)-mostName):]
	for i := range name {
		if l.speakers[name[i:]] != nil {
			return name[i:]
		}
	}
	pid := name[strings.LastIndexByte(name, ':'):]
	if last, ok := l.behind[pid]; ok {
		i, j := len(name), len(last)
		for i > 0 && j > 0 && name[i-1] == last[j-1] {
			i, j = i-1, j-1
		}
		if len(name)-i > len(pid) {
			return name[i:]
		}
	}
	if l.behind == nil {
		l.behind = map[string]string{}
	}
	if len(l.behind) < mostFacts {
		l.behind[pid] = name
	}
	return name
}

// message takes in a message of a process, which may have the head of the next one behind it.
func (l *JobLog) message(level, process, text string) {
	l.Messages++
	l.facts++
	p := l.speakers[process]
	if p == nil && process != "" && len(l.speakers) < mostCalls {
		if l.speakers == nil {
			l.speakers = map[string]*speaker{}
		}
		p = &speaker{}
		l.speakers[process] = p
	}
	l.versions(process, text)
	call := beginning.FindString(text)
	l.fragments(text[len(call):])
	switch {
	case call != "":
		if strings.Contains(text, choice) { // of a line that lost its head
			l.lose()
		}
		m := callLine.FindStringSubmatch(text)
		if read := m != nil && l.call(process, m); (!read || process == "" && m[1] == "AllReduce") && !unadded.MatchString(call) {
			l.tear(p, atMost(m))
		}
	case strings.Contains(text, choice):
		// NCCL has its process before each message, and chooses nothing for a single rank.
		a, ok := algorithm(level, text)
		single := p != nil && p.last.Ranks == 1 && p.last.Bytes == a.Bytes && (a.Collective == "" || a.Collective == p.last.Collective)
		if ok && process != "" && !single {
			l.algorithm(process, a)
		} else {
			l.lose()
		}
	case insteadLine.MatchString(text):
		l.refused(&Refusal{Kind: ErrNoJob, Text: text})
	case strings.HasPrefix(text, "comm "):
		if m := nodesLine.FindStringSubmatch(text); m != nil {
			ok := true
			c := Communicator{Process: process, Comm: m[1], Rank: parseInt(m[2], &ok), Ranks: parseInt(m[3], &ok), Nodes: parseInt(m[4], &ok)}
			switch {
			case !ok:
			case len(l.Communicators) < mostCalls:
				l.join(c)
			default:
				l.lose()
			}
		}
	}
}

// fragments counts calls in a text that lost the head of their line.
func (l *JobLog) fragments(text string) {
	if n := strings.Count(text, began); n > 0 {
		for range n - len(unadded.FindAllStringIndex(text, -1)) {
			l.tear(nil, 0)
		}
	}
}

// A torn is calls, perhaps all-reduces, that cannot be read, and how many bytes those of them say at most that say it.
type torn struct {
	calls int
	bytes float64
}

// tear counts such a call; nil: of a process that is not known.
func (l *JobLog) tear(p *speaker, bytes float64) {
	l.Torn++
	l.facts++
	if l.nobodys == nil {
		l.nobodys = &torn{}
	}
	of := l.nobodys
	if p != nil {
		of = &p.torn
	}
	of.calls++
	of.bytes += bytes
}

// atMost is how many bytes a call has at most, which cannot be read for its count or type; nil: it does not say.
func atMost(m []string) float64 {
	if m == nil {
		return 0
	}
	count, _ := strconv.ParseFloat(m[3], 64)
	return count * float64(slices.Max(typeSizes))
}

// algorithm reads a message that says what NCCL chose.
func algorithm(level, text string) (a Algorithm, ok bool) {
	if m := kernelLine.FindStringSubmatch(text); m != nil {
		a = Algorithm{Collective: m[1], Name: "SYMMETRIC", form: bySymmetric}
		a.Bytes, ok = parseBytes(m[2])
		return a, ok
	}
	if m := nameLine.FindStringSubmatch(text); m != nil {
		a = Algorithm{Collective: m[1], Name: m[3], form: byName}
		a.Bytes, ok = parseBytes(m[2])
		return a, ok && slices.Contains(algorithms, a.Name)
	}
	m := numberLine.FindStringSubmatch(text)
	if m == nil {
		return a, false
	}
	i, err := strconv.Atoi(m[3])
	if err != nil || i >= len(algorithms) {
		return a, false
	}
	a = Algorithm{Collective: m[1], Name: algorithms[i], form: byBoth}
	switch {
	case level == "TRACE":
		a.form = byTrace
	case m[1] == "":
		a.form = byNumber
	}
	a.Bytes, ok = parseBytes(m[2])
	return a, ok
}

// parseBytes reads a size.
func parseBytes(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

func (l *JobLog) algorithm(process string, a Algorithm) {
	of := choiceOf{process, a}
	if n, seen := l.choices[of]; (seen || len(l.choices) < mostCalls) && l.speakers[process].answers(a) {
		if l.choices == nil {
			l.choices = map[choiceOf]int{}
		}
		l.choices[of] = n + 1
	}
	i, known := l.chosen[a]
	switch {
	case known:
		l.Algorithms[i].Count++
		return
	case len(l.Algorithms) == mostFacts:
		l.lose()
		return
	case l.chosen == nil:
		l.chosen = map[Algorithm]int{}
	}
	l.chosen[a] = len(l.Algorithms)
	a.Line, a.Count = l.lines, 1
	l.Algorithms = append(l.Algorithms, a)
}

// A choiceOf is what a process says that NCCL chose for an all-reduce that it had begun.
type choiceOf struct {
	process string
	choice  Algorithm // without line and count
}

// versions takes in the version that a text of a process says; of none, that of a line without one.
func (l *JobLog) versions(process, text string) {
	if !strings.Contains(text, "NCCL version ") {
		return
	}
	if m := versionText.FindStringSubmatch(text); m != nil {
		ok := true
		l.version(process, Version{parseInt(m[1], &ok), parseInt(m[2], &ok), parseInt(m[3], &ok)})
	}
}

func (l *JobLog) version(process string, v Version) {
	l.facts++
	if p := l.speakers[process]; p != nil {
		p.version = true
	} else if process == "" {
		l.bare = true
	}
	if !slices.Contains(l.Versions, v) && len(l.Versions) < mostEvidence {
		l.Versions = append(l.Versions, v)
	}
}

// call takes in a call, and reports whether it can be read.
func (l *JobLog) call(process string, m []string) bool {
	ok := true
	op, err := strconv.ParseUint(m[2], 16, 64)
	count, okCount := parseBytes(m[3])
	datatype, ranks := parseInt(m[4], &ok), parseInt(m[6], &ok)
	if err != nil || !ok || !okCount || datatype >= len(typeSizes) || count > 1<<55 {
		return false
	}
	c := Call{Collective: m[1], Bytes: count * typeSizes[datatype], Ranks: ranks, Process: process, Comm: m[5]}
	p := l.speakers[process]
	if p != nil {
		p.last, p.takesPart = c, true
	}
	if l.calls == nil {
		l.calls, l.kinds, l.reduced = map[Call]bool{}, map[Call]bool{}, map[Communicator]*sum{}
	}
	kind := c.kind()
	switch {
	case l.calls[c]:
	case len(l.Calls) < mostCalls:
		l.calls[c], l.kinds[kind] = true, true
		l.Calls = append(l.Calls, c)
	case !l.kinds[kind]: // what others said of the same says it all
		l.lose()
		return true
	}
	if (c.Collective == "AllReduce" || reducing(c.Collective)) && !l.reduce(c, op, m[0]) {
		return true
	}
	if first, known := l.first[c.communicator()]; p != nil && ranks > 1 && (first || !known) {
		p.begin(c, op)
	}
	return true
}

// reduce counts a call that reduces. The same line again adds nothing to what speaks for switches, an all-reduce: it may be
// printed twice. It counts for others: in a CUDA graph calls with the same buffers have one number. It reports whether the
// call was counted.
func (l *JobLog) reduce(c Call, op uint64, text string) bool {
	of := c.communicator()
	s := l.reduced[of]
	if s == nil && len(l.reduced) == mostCalls {
		l.lose()
		return false
	}
	if s == nil {
		s = &sum{sizes: map[int64]int{}, others: map[Call]int{}}
		l.reduced[of] = s
	}
	switch {
	case s.last == nil || op > s.op:
		s.op, s.last = op, map[string]bool{}
	case op < s.op || s.last[text] && c.Collective == "AllReduce":
		return false
	case len(s.last) == mostFacts:
		l.lose()
		return false
	}
	s.last[strings.Clone(text)] = true // not the whole line
	if c.Collective == "AllReduce" {
		s.bytes += float64(c.Bytes)
		if s.sizes[c.Bytes] == 0 && len(s.sizes) == mostFacts {
			l.lose()
			return false
		}
		s.sizes[c.Bytes]++
	} else {
		s.others[c.kind()]++
	}
	return true
}

// reducing says whether a collective that is no all-reduce adds up what ranks have.
func reducing(collective string) bool { return collective == "ReduceScatter" || collective == "Reduce" }

// A sum is how much a rank all-reduced, and how often it reduced in other ways. Calls of a communicator are numbered, and
// those of a group have one number.
//
// Source: github.com/NVIDIA/nccl, src/proxy.cc (ncclProxyStart) at v2.18.6-1 to v2.30.7-1.
type sum struct {
	op     uint64
	last   map[string]bool // what lines of calls with this number say
	bytes  float64
	sizes  map[int64]int // all-reduces, by size
	others map[Call]int  // by kind
}

// A speaker is a process that has messages.
type speaker struct {
	last      Call // what it began last
	takesPart bool // it has a communicator or a call
	version   bool // it says one
	torn      torn
	launches  []*launch
}

// A launch is calls of a communicator that have one number and wait for NCCL's choice, which rank 0 writes behind them. It
// does so before a call of the communicator has the next number.
type launch struct {
	of     Communicator
	op     uint64
	sizes  map[int64]int // of all-reduces
	bytes  float64       // of these together
	others []Call        // without process and communicator
}

// begin adds a call that waits for a choice of the process, which may be rank 0 of the communicator.
func (p *speaker) begin(c Call, op uint64) {
	of := c.communicator()
	i := slices.IndexFunc(p.launches, func(w *launch) bool { return w.of == of })
	if i < 0 {
		if len(p.launches) == mostEvidence {
			p.launches = slices.Delete(p.launches, 0, 1)
		}
		i = len(p.launches)
		p.launches = append(p.launches, &launch{of: of, op: op})
	}
	w := p.launches[i]
	switch {
	case op < w.op: // the log again
		return
	case op > w.op || w.sizes == nil:
		*w = launch{of: of, op: op, sizes: map[int64]int{}}
	}
	switch {
	case c.Collective == "AllReduce" && (w.sizes[c.Bytes] > 0 || len(w.sizes) < mostFacts):
		w.sizes[c.Bytes]++
		w.bytes += float64(c.Bytes)
	case slices.Contains(unnamed, c.Collective) && p.others() < mostEvidence:
		w.others = append(w.others, c.kind())
	}
}

// others is how many collectives wait besides all-reduces.
func (p *speaker) others() (n int) {
	for _, w := range p.launches {
		n += len(w.others)
	}
	return n
}

// unnamed are collectives besides AllReduce for which versions that do not name them choose.
var unnamed = []string{"AllGather", "Broadcast", "Reduce", "ReduceScatter"}

// answers says whether a choice may be that for all-reduces that wait for one, which then wait no more.
func (p *speaker) answers(a Algorithm) bool {
	if p == nil || a.Collective != "" && a.Collective != "AllReduce" || a.Collective == "" && p.answersOther(a.Bytes) {
		return false
	}
	bytes := float64(a.Bytes)
	for _, w := range p.launches {
		if w.sizes[a.Bytes] > 0 && w.bytes >= bytes { // otherwise a choice for several was that of these
			w.sizes[a.Bytes]--
			w.bytes -= bytes
			return true
		}
	}
	if !a.sums() {
		return false
	}
	i := slices.IndexFunc(p.launches, func(w *launch) bool { return w.bytes == bytes })
	if i < 0 { // those of a kind: a group has one for each type and operation
		i = slices.IndexFunc(p.launches, func(w *launch) bool { return w.bytes > bytes })
	}
	if i >= 0 {
		p.launches[i].bytes -= bytes
	}
	return i >= 0
}

// answersOther says whether a choice that does not name its collective may be that for another one than an all-reduce, or for
// all of a kind in a group, which then wait no more. NCCL may say what is of all ranks together.
func (p *speaker) answersOther(bytes int64) bool {
	is := func(c Call, n int64) bool { return n == bytes || n*int64(c.Ranks) == bytes }
	for _, w := range p.launches {
		if i := slices.IndexFunc(w.others, func(c Call) bool { return is(c, c.Bytes) }); i >= 0 {
			w.others = slices.Delete(w.others, i, i+1)
			return true
		}
		sums := map[string]int64{}
		for _, c := range w.others {
			sums[c.Collective] += c.Bytes
		}
		if i := slices.IndexFunc(w.others, func(c Call) bool { return is(c, sums[c.Collective]) }); i >= 0 {
			of := w.others[i].Collective
			w.others = slices.DeleteFunc(w.others, func(c Call) bool { return c.Collective == of })
			return true
		}
	}
	return false
}

// join takes in a communicator of a process.
func (l *JobLog) join(c Communicator) {
	l.Communicators = append(l.Communicators, c)
	if p := l.speakers[c.Process]; p != nil {
		p.takesPart = true
	}
	if l.first == nil {
		l.first = map[Communicator]bool{}
	}
	of := c.asCalled()
	l.first[of] = l.first[of] || c.Rank == 0
}

// heard are the processes of the job that have messages: those that have communicators or calls; where none has, all.
func (l *JobLog) heard() map[string]*speaker {
	parts := map[string]*speaker{}
	for name, p := range l.speakers {
		if p.takesPart {
			parts[name] = p
		}
	}
	if len(parts) == 0 {
		return l.speakers
	}
	return parts
}

// versioned says whether a process of the job says its version, or a line that has none. Before the name of a process there
// may be the end of what lost its newline.
func (l *JobLog) versioned() bool {
	parts := l.heard()
	for name, p := range l.speakers {
		if !p.version {
			continue
		}
		if parts[name] != nil {
			return true
		}
		for i := max(0, len(name)-mostName); i < len(name); i++ {
			if parts[name[i:]] != nil {
				return true
			}
		}
	}
	return l.bare
}

// allReduced is how much a communicator of so many ranks all-reduced, bytes; 0: no line says.
func (l *JobLog) allReduced(ranks int) (most float64) {
	for of, s := range l.reduced {
		if of.Ranks == ranks {
			most = max(most, s.bytes)
		}
	}
	return most
}

// lose counts a line that says what NCCL chose and cannot be read.
func (l *JobLog) lose() {
	l.Unreadable++
	l.facts++
}

// reading is what lines of Algorithms count: those that the version of the log writes. Say is
// which version that is, and why is why none count.
func (l *JobLog) reading() (lines []Algorithm, say, why string) {
	if len(l.Versions) == 0 {
		return l.readingByForm()
	}
	var g grammar
	for i, v := range l.Versions {
		h, ok := grammarOf(v)
		if !ok {
			return nil, "", fmt.Sprintf("NCCL %v is older than 2.%d, the oldest whose log can be read", v, grammars[0].from)
		}
		if i > 0 && h.from != g.from {
			return nil, "", fmt.Sprintf("the log is of NCCL %v and of %v, which do not write the same", l.Versions[0], v)
		}
		g = h
	}
	v, last := l.Versions[0], grammars[len(grammars)-1]
	if say = fmt.Sprintf("NCCL %v", v); v.series(2, last.to) > 0 {
		say += fmt.Sprintf(", read as 2.%d, the newest that is known", last.to)
	}
	for _, a := range l.Algorithms {
		switch {
		case slices.Contains(g.forms, a.form):
			lines = append(lines, a)
		case a.form != byTrace: // a library built with TRACE=1 writes these as well
			return nil, say, fmt.Sprintf("line %d of the log is not one that NCCL %v writes", a.Line, v)
		}
	}
	if len(lines) == 0 {
		if why = "no line says which algorithm NCCL chose"; g.from == grammars[0].from {
			why = fmt.Sprintf("NCCL %v does not log which algorithm it chooses", v)
		}
	}
	return lines, say, why
}

// readingByForm is reading without a version: the lines tell it, where they are all of one.
func (l *JobLog) readingByForm() (lines []Algorithm, say, why string) {
	for _, a := range l.Algorithms {
		if a.form != byTrace {
			lines = append(lines, a)
		}
	}
	if len(lines) == 0 {
		return nil, "", "no line says which algorithm NCCL chose, and none which version it is"
	}
	var fit []grammar
	for _, g := range grammars {
		if !slices.ContainsFunc(lines, func(a Algorithm) bool { return !slices.Contains(g.forms, a.form) }) {
			fit = append(fit, g)
		}
	}
	if len(fit) == 0 {
		return nil, "", "no line says which version of NCCL it is, and those that say which algorithm it chose are not of one"
	}
	g := grammar{from: fit[0].from, to: fit[len(fit)-1].to}
	return lines, fmt.Sprintf("no line says which version of NCCL it is: its lines are those of %v", g), ""
}
