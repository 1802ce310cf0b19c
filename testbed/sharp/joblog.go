package sharp

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	// ErrNotProven is wrapped when a job's log does not prove that it used SHARP.
	ErrNotProven = errors.New("the log does not prove that SHARP was used")
	// ErrNoJob is wrapped by refusals to make a SHARP job: "Cannot create SHARP job(-11)".
	ErrNoJob = errors.New("SHARP job refused")
	// ErrLock is wrapped by refusals to lock a tree, which another job holds.
	ErrLock = errors.New("lock of the tree refused")
)

// Asked is what a job's library asked the manager for. It proves nothing.
type Asked struct {
	ID    uint64 // the job's own
	Quota Quota
	Trees int
}

// Tree is a tree that the manager granted a job.
type Tree struct {
	Job         uint64 // the manager's id; 0: the line does not say
	Reservation string // empty: none
	Type        TreeType
	Index       int    // of the job's trees
	ID          uint64 // of the fabric's trees
	Caps        uint64 // capabilities, a bitmap
	Quota       Quota  // zero if the line does not say, as for SAT
}

// Group is a communicator that has its part of a tree.
type Group struct {
	Job   uint64
	ID    uint64
	Tree  int // index of the tree
	Type  TreeType
	Rail  int
	Size  int
	Quota Quota // OSTs and UserData only
}

// Rank is a process whose NCCL plugin has SHARP.
type Rank struct {
	Rank, Of int
	Device   string // with its port: "mlx5_5:1"
}

// Refusal is a line that says that a job did not get what it wanted. The job goes on
// without SHARP, and ends well.
type Refusal struct {
	Line int    // in the log, from 1
	Kind error  // ErrNoJob or ErrLock
	Code int    // 0: the line has none
	Tree uint64 // of ErrLock, where the line says
	Text string // the line, without what is before the message
}

// Error is the line and what it says.
func (r *Refusal) Error() string { return fmt.Sprintf("line %d: %v: %s", r.Line, r.Kind, r.Text) }

// Unwrap is Kind.
func (r *Refusal) Unwrap() error { return r.Kind }

// JobLog is what the log of a job says about SHARP. All ranks' lines may be in one log, in
// any order. The zero value is an empty log.
type JobLog struct {
	Asked    []Asked
	Trees    []Tree
	Groups   []Group
	Ranks    []Rank
	Channels int // of NCCL's channels, those via SHARP
	Refusals []*Refusal
	Errors   []string // of libsharp, that are no refusals: lines and what they say

	Versions      []Version   // of NCCL, each once
	Algorithms    []Algorithm // what NCCL chose, once for each collective, size and choice
	Calls         []Call      // what processes began, each once
	Communicators []Communicator
	Messages      int // of NCCL
	Unreadable    int // lines that say what NCCL chose or began, and are cut, mixed up with others, or more than are kept
	Torn          int // calls, perhaps all-reduces, that cannot be read or are of no process

	lines, facts int
	refusals     int // all of them
	calls        map[Call]bool
	kinds        map[Call]bool         // of Calls, without process and communicator
	chosen       map[Algorithm]int     // of Algorithms, without line and count
	choices      map[choiceOf]int      // lines that say so
	speakers     map[string]*speaker   // by process
	behind       map[string]string     // by ":pid", the last process of whose name one cannot tell where it begins
	nobodys      *torn                 // of no process
	bare         bool                  // a line without a process says the version
	first        map[Communicator]bool // whether the process is rank 0 of it, as far as is known: Nodes is 0
	reduced      map[Communicator]*sum // by rank: Nodes is 0
}

// The library's and the plugin's lines. Which fields there are, and spaces between them,
// differ by version.
var (
	askedLine  = regexp.MustCompile(`job \(ID: (\d+)\) resource request quota: ?\(([^)]*)\)`)
	treeLine   = regexp.MustCompile(`sharp_job_id:(\d+)\s+(?:resv_key:(\S*)\s+)?tree_type:(\w+)\s+tree_idx:(\d+)\s+treeID:(\w+)(?:\s+caps:((?:0x)?[0-9a-fA-F]+))?(?:\s+quota: ?\(([^)]*)\))?`)
	oldTree    = regexp.MustCompile(`tree_info: type:(\w+) tree idx:(\d+) treeID:(\w+)(?: caps:((?:0x)?[0-9a-fA-F]+))?(?: quota: ?\(([^)]*)\))?`)
	groupLine  = regexp.MustCompile(`\[group#:(\d+)\] job_id:(\d+) group id:(\w+) tree idx:(\d+) tree_type:(\w+) rail_idx:(\d+) group size:(\d+) quota: ?\(([^)]*)\)`)
	rankLine   = regexp.MustCompile(`SHARP rank (\d+)/(\d+) initialized on (\S+)`)
	initLine   = regexp.MustCompile(`SHARP coll init error: .*?(?:\((-?\d+)\).*|$)`)
	noJobLine  = regexp.MustCompile(`Cannot create SHARP job ?\((-?\d+)\).*`)
	lockLine   = regexp.MustCompile(`Failed to lock SAT tree ?(?:\(ID:(\w+)(?: ret:(\w+))?\))?.*`)
	streamLine = regexp.MustCompile(`Streaming Tree lock failed ?\((-?\d+)\).*`)
	errorLine  = regexp.MustCompile(`\[[^\s\[\]]+:-?\w+:\d+ - [^\s\[\]]+:\d+\](?:\[[^\]]*\])?\s+ERROR\b.*`)
	createLine = regexp.MustCompile(`SHARP group create: .*?(?:\((-?\d+)\).*|$)`)
)

// channelText is what NCCL writes of a channel through SHARP.
const channelText = "via COLLNET/SHARP/"

// Line takes in the next line of the log and reports whether it said anything. Colours, the
// carriage returns of progress bars and CRLF, and what launchers put before a line do not
// matter; a line may have what several ranks wrote, where a newline was lost.
func (l *JobLog) Line(text string) bool {
	l.lines++
	before := l.facts
	if strings.Contains(text, "\x1b") {
		text = escapes.ReplaceAllString(text, "")
	}
	for part := range strings.SplitSeq(text, "\r") {
		if strings.Contains(part, "NCCL") || strings.Contains(part, "nccl-library=") || strings.Contains(part, headless) || strings.Contains(part, began) {
			l.nccl(part)
		}
		if strings.Contains(part, "job") || strings.Contains(part, "SHARP") || strings.Contains(part, "ree lock") || strings.Contains(part, "SAT tree") || strings.Contains(part, "tree_info") || strings.Contains(part, " ERROR") {
			l.library(part)
		}
	}
	return l.facts > before
}

// library takes in what a line has of the SHARP library and of NCCL's plugin for it.
func (l *JobLog) library(text string) {
	refusals := l.refusals
	for _, m := range askedLine.FindAllStringSubmatch(text, -1) {
		ok := true
		a := Asked{ID: parseNumber(m[1], &ok)}
		a.Quota, a.Trees = parseQuota(m[2], &ok)
		keep(l, &l.Asked, a, ok)
	}
	for _, m := range treeLine.FindAllStringSubmatch(text, -1) {
		ok := true
		t := Tree{Job: parseNumber(m[1], &ok), Reservation: m[2], Type: TreeType(m[3]), Index: parseInt(m[4], &ok), ID: parseTreeID(m[5], &ok)}
		capsOK := true // it decides nothing
		t.Caps = parseNumber(m[6], &capsOK)
		t.Quota, _ = parseQuota(m[7], &ok)
		keep(l, &l.Trees, t, ok)
	}
	for _, m := range oldTree.FindAllStringSubmatch(text, -1) { // without the job
		ok, capsOK := true, true
		t := Tree{Type: TreeType(m[1]), Index: parseInt(m[2], &ok), ID: parseTreeID(m[3], &ok)}
		t.Caps = parseNumber(m[4], &capsOK)
		t.Quota, _ = parseQuota(m[5], &ok)
		keep(l, &l.Trees, t, ok)
	}
	for _, m := range groupLine.FindAllStringSubmatch(text, -1) {
		ok := true
		g := Group{Job: parseNumber(m[2], &ok), ID: parseNumber(m[3], &ok), Tree: parseInt(m[4], &ok), Type: TreeType(m[5]), Rail: parseInt(m[6], &ok), Size: parseInt(m[7], &ok)}
		g.Quota, _ = parseQuota(m[8], &ok)
		keep(l, &l.Groups, g, ok)
	}
	for _, m := range rankLine.FindAllStringSubmatch(text, -1) {
		ok := true
		keep(l, &l.Ranks, Rank{Rank: parseInt(m[1], &ok), Of: parseInt(m[2], &ok), Device: m[3]}, ok)
	}
	if n := strings.Count(text, channelText); n > 0 {
		l.Channels += n
		l.facts++
	}
	ok := true
	if m := lockLine.FindStringSubmatch(text); m != nil {
		r := &Refusal{Kind: ErrLock, Text: m[0]}
		if m[1] != "" {
			r.Tree = parseTreeID(m[1], &ok)
		}
		if m[2] != "" {
			r.Code = int(parseNumber(m[2], &ok))
		}
		l.refused(r)
	}
	for _, kind := range []struct {
		line *regexp.Regexp
		err  error
	}{{initLine, ErrNoJob}, {noJobLine, ErrNoJob}, {streamLine, ErrLock}, {createLine, ErrNoJob}} {
		if m := kind.line.FindStringSubmatch(text); m != nil {
			l.refused(&Refusal{Kind: kind.err, Code: parseInt(m[1], &ok), Text: m[0]})
			break // the others say the same in other words
		}
	}
	if refusals == l.refusals {
		if e := errorLine.FindString(text); e != "" {
			l.facts++
			if e = fmt.Sprintf("line %d: %s", l.lines, strings.TrimSpace(e)); len(l.Errors) < mostEvidence {
				l.Errors = append(l.Errors, e)
			}
		}
	}
}

// refused keeps a refusal, whatever of its numbers could be read: it must not be missed.
func (l *JobLog) refused(r *Refusal) {
	l.facts++
	l.refusals++
	r.Line, r.Text = l.lines, strings.TrimSpace(r.Text)
	if len(l.Refusals) < mostEvidence {
		l.Refusals = append(l.Refusals, r)
	}
}

func keep[T any](l *JobLog, to *[]T, v T, ok bool) {
	if ok {
		*to = append(*to, v)
		l.facts++
	}
}

// Proof is nil if the log proves that the job used SHARP with a tree of a type, or of any
// type if that is empty: a tree was granted, a communicator took its part of one of that type, or a
// channel where the log says of no communicator, and nothing was refused. Otherwise the error wraps ErrNotProven, and the refusals.
func (l *JobLog) Proof(want TreeType) error {
	if len(l.Refusals) > 0 {
		errs := make([]error, len(l.Refusals))
		for i, r := range l.Refusals {
			errs[i] = r
		}
		return fmt.Errorf("%w: %w", ErrNotProven, errors.Join(errs...))
	}
	granted, used := false, l.Channels > 0 && len(l.Groups) == 0 // of channels NCCL does not say which type of tree they use
	for _, t := range l.Trees {
		granted = granted || want == "" || t.Type == want
	}
	for _, g := range l.Groups {
		used = used || want == "" || g.Type == want
	}
	switch {
	case len(l.Trees) == 0 && len(l.Asked) > 0:
		return fmt.Errorf("%w: quota was asked for, and no line says that a tree was granted", ErrNotProven)
	case len(l.Trees) == 0:
		return fmt.Errorf("%w: no line says that a tree was granted", ErrNotProven)
	case !granted:
		return fmt.Errorf("%w: no tree of type %s was granted", ErrNotProven, want)
	case !used && len(l.Groups) > 0:
		return fmt.Errorf("%w: a tree of type %s was granted, and no communicator uses one", ErrNotProven, want)
	case !used:
		return fmt.Errorf("%w: a tree was granted, and no communicator uses it", ErrNotProven)
	}
	return nil
}

// parseQuota reads "osts:167 user_data_per_ost:1024 ..., num_trees:1". What it does not
// know it skips.
func parseQuota(text string, ok *bool) (q Quota, trees int) {
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
		name, value, _ := strings.Cut(part, ":")
		to := map[string]*int{
			"osts": &q.OSTs, "user_data_per_ost": &q.UserData, "max_groups": &q.Groups, "max_qps": &q.QPs,
			"max_group_channels": &q.GroupChannels, "num_trees": &trees,
		}[name]
		if to != nil {
			*to = parseInt(value, ok)
		}
	}
	if !*ok {
		return Quota{}, 0
	}
	return q, trees
}

// parseInt clears ok if a text is not a number that fits 32 bits.
func parseInt(s string, ok *bool) int {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		*ok = false
		return 0
	}
	return int(n)
}

// parseNumber reads a decimal number, or one in hexadecimal with "0x" before it.
func parseNumber(s string, ok *bool) uint64 {
	base := 10
	if digits, hex := strings.CutPrefix(s, "0x"); hex {
		s, base = digits, 16
	}
	n, err := strconv.ParseUint(s, base, 64)
	if err != nil {
		*ok = false
		return 0
	}
	return n
}

// parseTreeID is parseNumber for ids that old versions write in hexadecimal without "0x".
// One that has no letter cannot be told from a decimal one.
func parseTreeID(s string, ok *bool) uint64 {
	if strings.ContainsAny(s, "abcdefABCDEF") && !strings.HasPrefix(s, "0x") {
		s = "0x" + s
	}
	return parseNumber(s, ok)
}

// String is the line that the library writes, without what is before the message.
func (a Asked) String() string {
	q := a.Quota
	return fmt.Sprintf("job (ID: %d) resource request quota: ( osts:%d user_data_per_ost:%d max_groups:%d max_qps:%d max_group_channels:%d, num_trees:%d)",
		a.ID, q.OSTs, q.UserData, q.Groups, q.QPs, q.GroupChannels, a.Trees)
}

// String is the line that the library writes, without what is before the message.
func (t Tree) String() string {
	s := fmt.Sprintf("sharp_job_id:%d   resv_key:%s tree_type:%s tree_idx:%d  treeID:%d caps:0x%x", t.Job, t.Reservation, t.Type, t.Index, t.ID, t.Caps)
	if q := t.Quota; q != (Quota{}) {
		s += fmt.Sprintf(" quota:(osts:%d user_data_per_ost:%d max_groups:%d max_qps:%d max_group_channels:%d)", q.OSTs, q.UserData, q.Groups, q.QPs, q.GroupChannels)
	}
	return s
}

// String is the line that the library writes, without what is before the message.
func (g Group) String() string {
	return fmt.Sprintf("[group#:%d] job_id:%d group id:%d tree idx:%d tree_type:%s rail_idx:%d group size:%d quota: (osts:%d user_data_per_ost:%d) mgid: (subnet prefix:0x0 interface id:0x0) mlid:0",
		g.ID, g.Job, g.ID, g.Tree, g.Type, g.Rail, g.Size, g.Quota.OSTs, g.Quota.UserData)
}
