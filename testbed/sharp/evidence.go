package sharp

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results"
)

// Algorithm is what NCCL's tuner chose for all-reduces of a size. That SHARP is there does
// not mean that it is chosen.
type Algorithm struct {
	Bytes int64
	Name  string // "RING", "TREE", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"
	Line  int    // of the log, the first that says so
}

// inNetwork says whether switches can add up with the algorithm. NVLS does between hosts what
// CollNet does.
func (a Algorithm) inNetwork() bool {
	return strings.HasPrefix(a.Name, "COLLNET") || strings.HasPrefix(a.Name, "NVLS")
}

// algorithms are NCCL's, by the numbers that its older versions log.
var algorithms = []string{"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"}

// algorithmLine is what NCCL logs of each all-reduce with NCCL_DEBUG_SUBSYS=TUNING. Source:
// github.com/NVIDIA/nccl, src/enqueue.cc.
var algorithmLine = regexp.MustCompile(`AllReduce: (\d+) Bytes -> Algo (\w+) proto`)

// algorithm takes in a line of the tuner.
func (l *JobLog) algorithm(text string) bool {
	m := algorithmLine.FindStringSubmatch(text)
	if m == nil {
		return false
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return false
	}
	a := Algorithm{Bytes: n, Name: m[2], Line: l.lines}
	if i, err := strconv.Atoi(a.Name); err == nil && i >= 0 && i < len(algorithms) {
		a.Name = algorithms[i]
	}
	if !slices.ContainsFunc(l.Algorithms, func(b Algorithm) bool { return b.Bytes == a.Bytes && b.Name == a.Name }) {
		l.Algorithms = append(l.Algorithms, a)
	}
	return true
}

// Evidence is all that speaks for or against that switches added up for a job.
type Evidence struct {
	Log   *JobLog // all ranks' lines
	Want  TreeType
	Asked Quota
	Ranks int // n

	// Sent is what each of the hosts sent while the job ran, and Reduced what was all-reduced
	// in all, bytes: a host sends S where switches add up, and 2S(n-1)/n around a ring. Of two
	// ranks both are the same, so that says nothing. Empty and 0: not known.
	Sent            []float64
	Reduced         float64
	TrafficRequired bool // that it is not known, or says nothing, is no proof
}

// Findings hold the evidence against what was asked for. The first fails with
// results.CodeFallback unless a tree was granted, a communicator or channel uses it, nothing
// was refused, the tuner chose an algorithm that goes over the tree for the largest
// all-reduce, and hosts did not send what a ring sends. The second, where a quota was asked
// for, fails with results.CodeGranted if a tree came with less.
func (e *Evidence) Findings(job string) []results.Finding {
	f := results.Finding{Name: "switches add up", Code: results.CodeFallback, Of: job, Outcome: results.Pass}
	fail := func(format string, args ...any) {
		if what := fmt.Sprintf(format, args...); f.Outcome == results.Pass {
			f.Outcome, f.What = results.Fail, what
		} else {
			f.Evidence = append(f.Evidence, what)
		}
	}
	say := func(format string, args ...any) {
		if what := fmt.Sprintf(format, args...); !slices.Contains(f.Evidence, what) { // every rank says so
			f.Evidence = append(f.Evidence, what)
		}
	}
	if err := e.Log.Proof(e.Want); err != nil {
		fail("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	for _, t := range e.Log.Trees {
		say("granted: %s", strings.Join(strings.Fields(t.String()), " "))
	}
	if n := len(e.Log.Groups); n > 0 {
		say("%d communicators have their part of a tree", n)
	}
	if e.Log.Channels > 0 {
		say("%d channels via COLLNET/SHARP", e.Log.Channels)
	}
	e.tuned(fail, say)
	e.traffic(fail, say)
	if f.Outcome == results.Pass {
		f.What = "the log proves it: " + strings.Join(f.Evidence, "; ")
	}
	out := []results.Finding{f}
	if e.Asked != (Quota{}) {
		out = append(out, e.granted(job))
	}
	return out
}

// tuned holds against the job what NCCL's tuner chose for its largest all-reduce.
func (e *Evidence) tuned(fail, say func(string, ...any)) {
	if len(e.Log.Algorithms) == 0 {
		say("no line says which algorithm NCCL chose (NCCL_DEBUG_SUBSYS=TUNING)")
		return
	}
	large := slices.MaxFunc(e.Log.Algorithms, func(a, b Algorithm) int { return int(min(1, max(-1, a.Bytes-b.Bytes))) })
	var others []string
	for _, a := range e.Log.Algorithms {
		switch {
		case a.Bytes == large.Bytes && !a.inNetwork():
			fail("NCCL chose %s for all-reduces of %d bytes (line %d of the log), whatever was granted", a.Name, a.Bytes, a.Line)
		case a.Bytes == large.Bytes:
			say("NCCL chose %s for %d bytes", a.Name, a.Bytes)
		case !a.inNetwork():
			others = append(others, fmt.Sprintf("%s for %d bytes", a.Name, a.Bytes))
		}
	}
	if len(others) > 0 {
		say("and for smaller ones %s", strings.Join(others[:min(len(others), 3)], ", "))
	}
}

// traffic holds against the job what its hosts sent.
func (e *Evidence) traffic(fail, say func(string, ...any)) {
	unknown := say
	if e.TrafficRequired {
		unknown = fail
	}
	n := float64(e.Ranks)
	switch {
	case len(e.Sent) == 0 || e.Reduced <= 0:
		unknown("what hosts sent is not known")
		return
	case n < 3:
		unknown("of %d ranks, a ring sends as much as a tree", e.Ranks)
		return
	}
	ring, most := 2*(n-1)/n, 0.0
	for _, b := range e.Sent {
		most = max(most, b/e.Reduced)
	}
	text := fmt.Sprintf("hosts sent up to %.2f times what was all-reduced; with aggregation it is 1, around a ring %.2f", most, ring)
	switch {
	case most > (1+ring)/2:
		fail("%s", text)
	case most < 0.5: // another port, or counters of something else
		unknown("%s: these counters do not see the job", text)
	default:
		say("%s", text)
	}
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
		up := strings.ToUpper(value)
		if !strings.Contains(up, "COLLNET") && !strings.Contains(up, "NVLS") || strings.HasPrefix(up, "^") {
			return "NCCL_ALGO=" + value + " leaves no algorithm that uses SHARP", "leave it out: forcing one makes jobs crash whose other collectives lack it"
		}
	case "NCCL_IB_HCA":
		if !strings.HasPrefix(value, "=") && !strings.HasPrefix(value, "^=") {
			return "NCCL_IB_HCA=" + value + " are prefixes: mlx5_1 is mlx5_10 too", `write "NCCL_IB_HCA==` + strings.TrimPrefix(value, "^") + `", or devices in sharp`
		}
	case "NCCL_DEBUG":
		if value != "INFO" && value != "TRACE" {
			return "without NCCL_DEBUG=INFO nothing can prove that switches added up", "leave it out: it is set to INFO"
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
