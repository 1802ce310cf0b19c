package sharp

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
)

// others are what three more ranks say, each on a host of its own: as much of their communicator as the log of the first says.
func others(log string) string {
	text := "Using network SHARP\n"
	if strings.Contains(log, " nRanks ") || strings.Contains(log, ": opCount ") {
		text = "comm 0x9 rank 1 nRanks 4 nNodes 4 localRanks 1 localRank 0 MNNVL 0\n"
	}
	return "\nn2:7:7 [0] NCCL INFO " + text + "n3:7:7 [0] NCCL INFO " + text + "n4:7:7 [0] NCCL INFO " + text
}

// judge is the first finding of a log of a rank, with others of four ranks on four hosts, and all that it says.
func judge(t *testing.T, log string, change func(*Evidence)) (results.Finding, string) {
	t.Helper()
	if log != "" {
		log += others(log)
	}
	l, err := ReadJobLog(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	e := Evidence{Log: l, Want: SAT, Ranks: 4, Hosts: 4}
	if change != nil {
		change(&e)
	}
	f := e.Findings("A")[0]
	return f, f.What + "\n" + strings.Join(f.Evidence, "\n")
}

// The verdict that was asked for.
func wanted(t *testing.T, log string, change func(*Evidence), want results.Outcome, says string) {
	t.Helper()
	f, all := judge(t, log, change)
	code := results.CodeFallback
	if want == results.Inconclusive {
		code = results.CodeUnproven
	}
	if f.Outcome != want || f.Code != code || !strings.Contains(all, says) {
		t.Errorf("%s with %s, want %s with %s and %q:\n%s", f.Outcome, f.Code, want, code, says, all)
	}
}

func fixture(t *testing.T, version string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "nccl", version+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// traffic is what hosts sent, in multiples of what was all-reduced: a GiB and 8 bytes.
func traffic(sent ...float64) func(*Evidence) {
	return func(e *Evidence) {
		e.Reduced = 1<<30 + 8
		for _, s := range sent {
			e.Sent = append(e.Sent, s*e.Reduced)
		}
	}
}

// TestCaptured: what NCCL 2.28.9 wrote, with PyTorch 2.11 on one NVIDIA H200, when SHARP was asked for on four hosts of an
// emulated rack. It went over sockets, by a tree for the 4 bytes of a barrier and a ring for 4 MiB.
func TestCaptured(t *testing.T) {
	text, err := os.ReadFile("testdata/captured/nccl-2.28.9.log")
	if err != nil {
		t.Fatal(err)
	}
	wanted(t, string(text), nil, results.Fail, "NCCL chose RING for all-reduces of 4194304 bytes (line 66 of the log)")
	l, err := ReadJobLog(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	granted := satText + "\n" + groupText + "\n" + strings.ReplaceAll(string(text), "Algo RING", "Algo COLLNET_DIRECT")
	wanted(t, granted, func(e *Evidence) { e.Longest = 4 << 20 }, results.Pass, "COLLNET_DIRECT for 4194304 bytes") // each call has its choice
	const calls = 10 * (4 + 4<<20)
	if got := l.allReduced(4); got != calls {
		t.Errorf("the log has all-reduces of %v bytes, want %d", got, calls)
	}
}

// What each version of NCCL writes of each algorithm, and what that proves.
func TestVersions(t *testing.T) {
	files, err := filepath.Glob("testdata/nccl/*.log")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	outcomes := map[string]results.Outcome{
		"COLLNET_DIRECT": results.Pass, "COLLNET_CHAIN": results.Pass, "NVLS": results.Pass,
		"NVLS_TREE": results.Fail, "TREE": results.Fail, "RING": results.Fail, "PAT": results.Fail,
	}
	for _, file := range files {
		version := strings.TrimSuffix(filepath.Base(file), ".log")
		log := fixture(t, version)
		t.Run(version, func(t *testing.T) {
			for number, name := range algorithms {
				changed := strings.NewReplacer("Algo COLLNET_DIRECT", "Algo "+name, "1073741824 Bytes -> Algo 2", "1073741824 Bytes -> Algo "+strconv.Itoa(number)).Replace(log)
				switch {
				case strings.HasPrefix(version, "2.18."), strings.HasPrefix(version, "2.19."):
					wanted(t, log, nil, results.Inconclusive, "NCCL "+version+" does not log which algorithm it chooses")
					wanted(t, log, traffic(1.01, 1.02, 1.01, 1.03), results.Pass, "traffic proves it")
					wanted(t, log, traffic(1.51, 1.52, 1.51, 1.53), results.Fail, "around a ring 1.50")
				case name == "PAT" && version < "2.23": // which it has not
				default:
					says := "NCCL " + version
					if outcomes[name] == results.Fail {
						says = "NCCL chose " + name + " for all-reduces of 1073741824 bytes"
					}
					wanted(t, changed, nil, outcomes[name], says)
				}
			}
		})
	}
}

// A version without the lines of another: each is read by its own grammar.
func TestGrammars(t *testing.T) {
	if !slices.IsSortedFunc(grammars, func(a, b grammar) int { return a.from - b.from }) {
		t.Fatal("not in order")
	}
	for i, g := range grammars {
		if g.from > g.to || i > 0 && g.from != grammars[i-1].to+1 || len(g.forms) == 0 {
			t.Errorf("%v after %v", g, grammars[max(i-1, 0)])
		}
	}
	const number, both, name = "n1:7:7 [0] NCCL INFO 1048576 Bytes -> Algo 2 proto 2 time 80.1\n",
		"n1:7:7 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo 2 proto 2 time 80.1\n",
		"n1:7:7 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo COLLNET_CHAIN proto SIMPLE channel{Lo..Hi}={0..3}\n"
	const trace = "n1:7:7 [0] 17.5 topoGetAlgoInfo:1187 NCCL TRACE 1048576 Bytes -> Algo 2 proto 2 time 80.1\n"
	const called = "n1:7:7 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7 recvbuff 0x7 count 262144 datatype 7 op 0 root 0 comm 0xa [nranks=4] stream 0x1\n"
	proof := satText + "\n" + groupText + "\n"
	for _, test := range []struct {
		name, log string
		want      results.Outcome
		says      string
	}{
		{"2.17", "NCCL version 2.17.1+cuda12.0\n" + number, results.Inconclusive, "NCCL 2.17.1 is older than 2.18"},
		{"2.18 with TRACE=1", "NCCL version 2.18.5+cuda12.0\n" + called + trace, results.Pass, "COLLNET_DIRECT for 1048576 bytes"},
		{"2.18 that writes what 2.20 does", "NCCL version 2.18.5+cuda12.0\n" + number, results.Inconclusive, "line 4 of the log is not one that NCCL 2.18.5 writes"},
		{"2.21 that writes what 2.24 does", "NCCL version 2.21.5+cuda12.0\n" + name, results.Inconclusive, "not one that NCCL 2.21.5 writes"},
		{"2.24 that writes what 2.23 does", "NCCL version 2.24.3+cuda12.0\n" + both, results.Inconclusive, "not one that NCCL 2.24.3 writes"},
		{"2.24 with TRACE=1", "NCCL version 2.24.3+cuda12.0\n" + trace + name, results.Pass, "COLLNET_CHAIN for 1048576 bytes"},
		{"2.24 with TRACE=1 alone", "NCCL version 2.24.3+cuda12.0\n" + trace, results.Inconclusive, "no line says which algorithm"},
		{"newer than all", "NCCL version 2.99.1+cuda19.0\n" + name, results.Pass, "NCCL 2.99.1, read as 2.30, the newest that is known"},
		{"what another program says of bytes", "NCCL version 2.24.3+cuda12.0\ncopied 10 Bytes -> /tmp/x\n" + name, results.Pass, "COLLNET_CHAIN"},
		{"newer than all, with a line that nobody knows", "NCCL version 2.99.1+cuda19.0\nn1:7:7 [0] NCCL INFO AllReduce of 1048576 Bytes -> COLLNET\n", results.Inconclusive, "cannot be read"},
		{"NCCL 3", "NCCL version 3.0.1+cuda19.0\n" + name, results.Pass, "NCCL 3.0.1, read as"},
		{"no version, by number", called + number, results.Inconclusive, "its lines are those of 2.20 to 2.22"},
		{"no version, by name", name, results.Inconclusive, "its lines are those of 2.24 to 2.30"},
		{"no version, a ring", strings.ReplaceAll(name, "COLLNET_CHAIN", "RING"), results.Fail, "NCCL chose RING"},
		{"a version that is none", "NCCL version 2.x+cuda12.4\n" + name, results.Inconclusive, "no line names the version of NCCL"},
		{"no version, two kinds of lines", number + name, results.Inconclusive, "not of one"},
		{"no version, traces", trace, results.Inconclusive, "no line says which algorithm"},
		{"no version, nothing", "", results.Inconclusive, "no line says which algorithm NCCL chose, and none which version"},
		{"two versions that write the same", "NCCL version 2.20.3+cuda12.0\nNCCL version 2.21.5+cuda12.0\n" + called + number, results.Pass, "COLLNET_DIRECT"},
		{"two versions that do not", "NCCL version 2.21.5+cuda12.0\nNCCL version 2.24.3+cuda12.0\n" + name, results.Inconclusive, "the log is of NCCL 2.21.5 and of 2.24.3"},
		{"the version as nccl-tests says it", "# nccl-tests version 2.16.4 nccl-headers=22705 nccl-library=21903\n" + number, results.Inconclusive, "not one that NCCL 2.19.3 writes"},
		{"a number that is no algorithm's", "NCCL version 2.21.5+cuda12.0\nn1:7:7 [0] NCCL INFO 1048576 Bytes -> Algo 9 proto 2 time 80.1\n", results.Inconclusive, "1 lines that say what NCCL chose cannot be read"},
		{"undecided", "NCCL version 2.21.5+cuda12.0\nn1:7:7 [0] NCCL INFO 1048576 Bytes -> Algo -1 proto -1 time 80.1\n", results.Inconclusive, "cannot be read"},
		{"a symmetric kernel", "NCCL version 2.27.3+cuda12.9\nn1:7:7 [0] NCCL INFO AllReduce [Symmetric]: 1048576 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512\n", results.Fail, "NCCL chose SYMMETRIC"},
		{"the largest of symmetric kernels", "NCCL version 2.27.3+cuda12.9\n" + name + "n1:7:7 [0] NCCL INFO AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512\n", results.Pass, "SYMMETRIC for 8 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) { wanted(t, proof+test.log, nil, test.want, test.says) })
	}
}

// reduced are lines of a version about collectives of 4 ranks: the call of one and what NCCL chose for it, so many times.
// NCCL 2.23 and older say what a ReduceScatter takes of a rank, and later ones what a rank gets.
func reduced(version, collective, comm string, count, algorithm, times int) string {
	bytes := 4 * count
	if version < "2.24" && (collective == "ReduceScatter" || collective == "AllGather") {
		bytes *= 4
	}
	chosen := fmt.Sprintf("%s: %d Bytes -> Algo %s proto SIMPLE channel{Lo..Hi}={0..3}", collective, bytes, algorithms[algorithm])
	switch {
	case version < "2.23":
		chosen = fmt.Sprintf("%d Bytes -> Algo %d proto 2 time 3120.250000", bytes, algorithm)
	case version < "2.24":
		chosen = fmt.Sprintf("%s: %d Bytes -> Algo %d proto 2 time 3120.250000", collective, bytes, algorithm)
	}
	var b strings.Builder
	for i := range times {
		fmt.Fprintf(&b, "node1:4100:4100 [0] NCCL INFO %s: opCount %x sendbuff 0x7f0000000000 recvbuff 0x7f0040000000 count %d datatype 7 op 0 root 0 comm %s [nranks=4] stream 0x55d0c0ffff00\n", collective, 16+i, count, comm)
		fmt.Fprintf(&b, "node1:4100:4100 [0] NCCL INFO %s\n", chosen)
	}
	return b.String()
}

// A job that shards reduces by ReduceScatter: a few all-reduces through switches are no proof for it, on whichever
// communicators they are. A norm's few bytes of Reduce take none away, nor does what stays within a host.
func TestSharded(t *testing.T) {
	const (
		same, another, within = "0x55d0c0ffee00", "0x55d0c0ffdd00", "0x55d0c0ffcc00"
		direct, ring, nvls    = 2, 1, 4
		few                   = "all-reduces through switches are 4.8 % of the bytes that were reduced between hosts"
	)
	const comms = "node1:4100:4100 [0] NCCL INFO comm " + another + " rank 0 nRanks 4 nNodes 4 localRanks 1 localRank 0 MNNVL 0\n" +
		"node1:4100:4100 [0] NCCL INFO comm " + within + " rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0\n"
	for _, version := range []string{"2.21.5", "2.22.3", "2.23.4", "2.24.3", "2.27.7", "2.30.7"} {
		log := fixture(t, version) + comms
		named := results.Pass // of what only a line that names the collective proves
		if version < "2.23" {
			named = results.Inconclusive
		}
		for _, c := range []struct {
			name, collective, comm string
			count, algorithm       int // of each of 40
			want                   results.Outcome
			says                   string
		}{
			{"ReduceScatter", "ReduceScatter", same, 1 << 25, ring, results.Inconclusive, few},
			{"Reduce", "Reduce", same, 1 << 27, ring, results.Inconclusive, few},
			{"short Reduce", "Reduce", same, 256, ring, results.Pass, "COLLNET_DIRECT"},
			{"AllGather", "AllGather", same, 1 << 25, ring, results.Pass, "COLLNET_DIRECT"},
			{"ReduceScatter of a shard group", "ReduceScatter", another, 1 << 25, ring, results.Inconclusive, few},
			{"Reduce of another group", "Reduce", another, 1 << 27, ring, results.Inconclusive, few},
			{"short Reduce of another group", "Reduce", another, 256, ring, results.Pass, "COLLNET_DIRECT"},
			{"ReduceScatter through switches", "ReduceScatter", another, 1 << 25, direct, named, ""},
			{"ReduceScatter within a host", "ReduceScatter", within, 1 << 25, ring, results.Pass, "COLLNET_DIRECT"},
			{"ReduceScatter within a host, over NVLink's switches", "ReduceScatter", within, 1 << 25, nvls, results.Pass, "COLLNET_DIRECT"},
			{"Reduce within a host", "Reduce", within, 1 << 27, ring, results.Pass, "COLLNET_DIRECT"},
		} {
			text := log + reduced(version, c.collective, c.comm, c.count, c.algorithm, 40)
			t.Run(version+" "+c.name, func(t *testing.T) { wanted(t, text, nil, c.want, c.says) })
		}
		short := reduced(version, "Reduce", another, 1, ring, 1)
		torn := strings.Replace(short, "node1:4100:4100 [0] NCCL INFO Reduce: opCount", "streamNCCL INFO Reduce: opCount", 1)
		t.Run(version+" a line that lost its head", func(t *testing.T) { wanted(t, log+short+torn, nil, results.Pass, "COLLNET_DIRECT") })
		idle := strings.ReplaceAll(short, "node1:4100", "node2:77")
		t.Run(version+" a rank that reduces little", func(t *testing.T) { wanted(t, log+idle, nil, results.Pass, "COLLNET_DIRECT") })
		graph := regexp.MustCompile(`opCount [0-9a-f]+`).ReplaceAllString(reduced(version, "ReduceScatter", another, 1<<25, ring, 40), "opCount 10")
		t.Run(version+" calls in a graph, with one number", func(t *testing.T) { wanted(t, log+graph, nil, results.Inconclusive, few) })
		both := log + reduced(version, "ReduceScatter", another, 1<<25, nvls, 40) + reduced(version, "ReduceScatter", within, 1<<25, nvls, 40)
		t.Run(version+" ReduceScatter within and between hosts", func(t *testing.T) { wanted(t, both, nil, results.Inconclusive, few) })
		part := log + reduced(version, "AllReduce", same, 1<<20, ring, 20) + reduced(version, "Reduce", another, 1<<21, ring, 10)
		if named == results.Pass {
			uncalled := regexp.MustCompile(`(?m)^.* opCount .*\n`).ReplaceAllString(fixture(t, version)+reduced(version, "ReduceScatter", another, 1<<24, ring, 1), "")
			t.Run(version+" no calls", func(t *testing.T) { wanted(t, uncalled, nil, results.Inconclusive, "through switches are 80 %") })
		}
		t.Run(version+" a little of each", func(t *testing.T) { wanted(t, part, nil, results.Inconclusive, "through switches are 86 %") })
	}
}

// NCCL's rank 0 logs a choice for each call, at least of a group. Choices that are lacking, that belong to no call, or that
// NCCL did not write prove nothing.
func TestLacking(t *testing.T) {
	const (
		comm, another = "0x55d0c0ffee00", "0x55d0c0ffdd00"
		direct, ring  = 2, 1
		mebi          = 1 << 18 // floats of a MiB
	)
	called, chosen := regexp.MustCompile(`(?m)^.* opCount .*\n`), regexp.MustCompile(`(?m)^.* Bytes -> .*\n`)
	of := func(rank int, text string) string {
		return strings.NewReplacer("node1", fmt.Sprintf("node%d", rank+1), " rank 0 nRanks", fmt.Sprintf(" rank %d nRanks", rank)).Replace(text)
	}
	second := func(text string) string { return strings.ReplaceAll(text, "node1", "node2") }
	every := func(text string) string { return of(0, text) + of(1, text) + of(2, text) + of(3, text) }
	member := func(rank int) string {
		return fmt.Sprintf("node1:4100:4100 [0] NCCL INFO comm %s rank %d nRanks 4 nNodes 4 localRanks 1 localRank 0 MNNVL 0\n", another, rank)
	}
	on := func(hosts, ranks int) func(*Evidence) { return func(e *Evidence) { e.Hosts, e.Ranks = hosts, ranks } }
	ranks := "" // that five more processes of the same host say
	for pid := range 5 {
		ranks += fmt.Sprintf("node1:%d:7 [1] NCCL INFO comm 0x9 rank %d nRanks 9 nNodes 4 localRanks 6 localRank 1 MNNVL 0\n", 5000+pid, 1+pid)
	}
	measured := func(bytes int64) func(*Evidence) { return func(e *Evidence) { e.Longest = bytes } }
	for _, version := range []string{"2.20.5", "2.21.5", "2.22.3", "2.23.4", "2.24.3", "2.26.6", "2.27.7", "2.30.7"} {
		head := chosen.ReplaceAllString(called.ReplaceAllString(fixture(t, version), ""), "")
		reduce := func(comm string, size, algorithm, times int) string {
			return reduced(version, "AllReduce", comm, size, algorithm, times)
		}
		calls := func(comm string, times int) string {
			return chosen.ReplaceAllString(reduce(comm, mebi, direct, times), "")
		}
		single := strings.ReplaceAll(reduce(another, mebi, direct, 45), "[nranks=4]", "[nranks=1]")
		quoted := strings.ReplaceAll(called.ReplaceAllString(reduce(comm, 100*mebi, direct, 1), ""), "node1:4100:4100 [0]", "example:")
		huge := reduce(comm, 1<<38, direct, 1)
		of3 := strings.Replace(strings.Replace(calls(comm, 3), "opCount 11 sendbuff 0x7f", "opCount 10 sendbuff 0x8f", 1), "opCount 12 sendbuff 0x7f", "opCount 10 sendbuff 0x9f", 1)
		group := of3 + called.ReplaceAllString(reduce(comm, 3*mebi, direct, 1), "")
		// calls with numbers behind those of reduce
		shifted := func(text string) string { return strings.ReplaceAll(text, "opCount ", "opCount f") }
		twice := func(text string) string { return chosen.ReplaceAllString(text, "$0$0") }
		other := func(collective string) string {
			text := reduced(version, collective, comm, mebi/map[string]int{"AllGather": 4, "Broadcast": 1}[collective], direct, 45)
			if version >= "2.24" {
				return strings.ReplaceAll(text, "262144 Bytes", "1048576 Bytes")
			}
			return text
		}
		grouped, sum := results.Pass, "COLLNET_DIRECT for 3145728 bytes"
		if version >= "2.24" {
			grouped, sum = results.Inconclusive, "no line says which algorithm NCCL chose for all-reduces of 1048576 bytes"
		}
		for _, c := range []struct {
			name, log string
			change    func(*Evidence)
			want      results.Outcome
			says      string
		}{
			{"a choice for each call", head + reduce(comm, mebi, direct, 45), measured(1 << 20), results.Pass, "COLLNET_DIRECT for 1048576 bytes"},
			{"of every rank", every(head + reduce(comm, mebi, direct, 45)), nil, results.Pass, "COLLNET_DIRECT for 1048576 bytes"},
			{"a choice for 41 of 45 calls", head + reduce(comm, mebi, direct, 41) + calls(comm, 45), nil, results.Pass, "COLLNET_DIRECT"},
			{"a choice for 5 of 45 calls", head + reduce(comm, mebi, direct, 5) + calls(comm, 45), nil, results.Inconclusive, "of 89 % of the bytes that were all-reduced no line says which algorithm NCCL chose"},
			{"and every rank says so", every(head + reduce(comm, mebi, direct, 5) + calls(comm, 45)), nil, results.Inconclusive, "of 89 %"},
			{"no choice at all", head + calls(comm, 45), nil, results.Inconclusive, "no line says which algorithm"},
			{"choices of a rank that logs none", head + calls(comm, 45) + of(1, head+reduce(comm, mebi, direct, 45)), nil, results.Inconclusive, "no line says which algorithm"},
			{"calls of a single rank", every(head + single), nil, results.Inconclusive, "no line says which algorithm"},
			{"calls of a single rank, and between hosts without a choice", every(head + single + calls(comm, 45)), nil, results.Inconclusive, "no line says which algorithm"},
			{"calls of a single rank without a choice, and between hosts", head + chosen.ReplaceAllString(single, "") + reduce(comm, mebi, direct, 45), nil, results.Pass, "COLLNET_DIRECT"},
			{"short vectors, where figures are of long ones", head + reduce(comm, 1<<10, direct, 45), measured(1 << 20), results.Inconclusive, "no line says which algorithm NCCL chose for all-reduces of 1048576 bytes"},
			{"short calls, where figures are of long ones", head + calls(comm, 4) + called.ReplaceAllString(reduce(comm, 4*mebi, direct, 1), ""), measured(4 << 20), results.Inconclusive, "all-reduce"},
			{"calls of other collectives alone", head + strings.ReplaceAll(reduce(comm, mebi, direct, 45), "AllReduce: opCount", "Broadcast: opCount"), nil, results.Inconclusive, "all-reduce"},
			{"a long one that nobody called", head + reduce(comm, mebi, ring, 45) + called.ReplaceAllString(huge, ""), nil, results.Fail, "NCCL chose RING for all-reduces of 1048576 bytes"},
			{"a long one that nobody called, beside short ones", head + reduce(comm, mebi, direct, 5) + called.ReplaceAllString(huge, "") + calls(comm, 45), nil, results.Inconclusive, "of 89 %"},
			{"a long one that no figure is of", head + reduce(comm, mebi, ring, 45) + huge, measured(1 << 20), results.Fail, "NCCL chose RING for all-reduces of 1048576 bytes"},
			{"choices that a program quotes", head + reduce(comm, mebi, ring, 45) + strings.Repeat(quoted, 1000), nil, results.Fail, "NCCL chose RING for all-reduces of 1048576 bytes"},
			{"nothing but choices that a program quotes", head + strings.Repeat(quoted, 45), nil, results.Inconclusive, "are of no process"},
			{"a host that says nothing", head + reduce(comm, mebi, direct, 45), on(5, 5), results.Inconclusive, "4 of 5 hosts have lines of NCCL"},
			{"a host that says nothing, beside one of many ranks", head + reduce(comm, mebi, direct, 45) + ranks, on(5, 10), results.Inconclusive, "4 of 5 hosts have lines of NCCL"},
			{"hosts with one name", head + reduce(comm, mebi, direct, 45) + ranks, on(5, 9), results.Pass, "COLLNET_DIRECT"},
			{"choices before any call", head + called.ReplaceAllString(reduce(comm, mebi, direct, 45), "") + calls(comm, 45), nil, results.Inconclusive, "no line says which algorithm"},
			{"each choice twice, for half of the calls", head + twice(reduce(comm, mebi, direct, 20)) + calls(comm, 40), nil, results.Inconclusive, "of 50 %"},
			{"each choice twice, for the last half of the calls", head + calls(comm, 20) + twice(shifted(reduce(comm, mebi, direct, 20))), nil, results.Inconclusive, "of 50 %"},
			{"each choice twice", head + twice(reduce(comm, mebi, direct, 20)), nil, results.Pass, "COLLNET_DIRECT"},
			{"choices of a process that begins nothing", head + calls(comm, 45) + strings.ReplaceAll(called.ReplaceAllString(reduce(comm, mebi, direct, 45), ""), "node1:4100", "node1:7777"), nil, results.Inconclusive, "no line says which algorithm"},
			{"all-gathers, then all-reduces without a choice", head + other("AllGather") + shifted(calls(comm, 45)), nil, results.Inconclusive, "no line says which algorithm"},
			{"broadcasts, then all-reduces without a choice", head + other("Broadcast") + shifted(calls(comm, 45)), nil, results.Inconclusive, "no line says which algorithm"},
			{"calls cut before their communicator", head + reduce(comm, mebi, direct, 10) + shifted(strings.ReplaceAll(calls(comm, 20), " comm ", "\n")), nil, results.Inconclusive, "of 67 %"},
			{"calls cut before their type", head + reduce(comm, mebi, direct, 10) + shifted(strings.ReplaceAll(calls(comm, 20), " datatype ", "\n")), nil, results.Inconclusive, "20 lines of calls cannot be read"},
			{"calls of a type that is not known", head + reduce(comm, mebi, direct, 10) + shifted(strings.ReplaceAll(calls(comm, 20), "datatype 7", "datatype 12")), nil, results.Inconclusive, "of 80 %"}, // of 8 bytes at most
			{"a call whose count is more than any", head + reduce(comm, mebi, direct, 40) + shifted(strings.ReplaceAll(calls(comm, 1), "count 262144", "count 18446744073709551615")), nil, results.Inconclusive, "of 100 %"},
			{"calls whose count is none", head + reduce(comm, mebi, direct, 10) + shifted(strings.ReplaceAll(calls(comm, 20), "count ", "count 0x")), nil, results.Inconclusive, "of 67 %"},
			{"no call that can be read", head + strings.ReplaceAll(reduce(comm, mebi, direct, 10), "count ", "count -"), nil, results.Inconclusive, "cannot be read"},
			{"calls that lost their head", head + reduce(comm, mebi, direct, 10) + shifted(strings.ReplaceAll(calls(comm, 20), "node1:4100:4100 [0] NCCL INFO ", "")), nil, results.Inconclusive, "of 67 %"},
			{"calls of no process", head + reduce(comm, mebi, direct, 10) + shifted(strings.ReplaceAll(calls(comm, 20), "node1:4100:4100 [0] ", "")), nil, results.Inconclusive, "of 80 %"},
			{"calls that lost their head behind others", head + reduce(comm, mebi, direct, 10) + shifted(strings.ReplaceAll(calls(comm, 20), "node1:4100:4100 [0] NCCL INFO ", "node1:4100:4100 [0] NCCL INFO Channel 00/0")), nil, results.Inconclusive, "of 67 %"},
			{"calls cut of a rank that logs no choice", head + reduce(comm, mebi, direct, 10) + of(1, head+strings.ReplaceAll(calls(comm, 20), " comm ", "\n")), nil, results.Pass, "COLLNET_DIRECT"},
			{"one of many calls cut", head + reduce(comm, mebi, direct, 40) + shifted(strings.ReplaceAll(calls(comm, 1), " comm ", "\n")), nil, results.Pass, "1 lines of calls cannot be read"},
			{"all-gathers that lost their head", head + reduce(comm, mebi, direct, 10) + shifted(strings.ReplaceAll(strings.ReplaceAll(calls(comm, 20), "AllReduce", "AllGather"), "node1:4100:4100 [0] NCCL INFO ", "")), nil, results.Pass, "COLLNET_DIRECT"},
			{"a version of another program", regexp.MustCompile(`(?m)^.*NCCL version `).ReplaceAllString(head, "x9:1:1 [0] NCCL INFO NCCL version ") + reduce(comm, mebi, direct, 10), nil, results.Inconclusive, "no line names the version"},
			{"a host of another program, and one that says nothing", head + reduce(comm, mebi, direct, 10) + "x9:1:1 [0] NCCL INFO Using network SHARP\n", on(5, 5), results.Inconclusive, "4 of 5 hosts"},
			{"a group", head + group, nil, grouped, sum},
			{"another communicator, whose rank 0 says it", head + member(2) + calls(another, 45) + reduce(comm, mebi, direct, 45) + second(member(0)+reduce(another, mebi, direct, 45)), nil, results.Pass, "COLLNET_DIRECT"},
			{"another communicator, whose rank 0 does not say it", head + member(2) + calls(another, 45) + reduce(comm, mebi, direct, 45) + second(member(0)+calls(another, 45)), nil, results.Inconclusive, "of 50 %"},
		} {
			t.Run(version+" "+c.name, func(t *testing.T) { wanted(t, c.log, c.change, c.want, c.says) })
		}
	}
}

// What happens to logs on their way: launchers, terminals and several writers to one pipe.
func TestLogsAsTheyAre(t *testing.T) {
	for _, version := range []string{"2.18.6", "2.21.5", "2.23.4", "2.27.7"} {
		log := fixture(t, version)
		ring := strings.NewReplacer("Algo COLLNET_DIRECT", "Algo RING", "1073741824 Bytes -> Algo 2", "1073741824 Bytes -> Algo 1").Replace(log)
		each := func(log string, change func(string) string) string {
			var b strings.Builder
			for line := range strings.Lines(log) {
				b.WriteString(change(strings.TrimSuffix(line, "\n")))
			}
			return b.String()
		}
		for name, change := range map[string]func(string) string{
			"CRLF":              func(s string) string { return s + "\r\n" },
			"mpirun tags":       func(s string) string { return "[1,0]<stdout>:" + s + "\n" },
			"torchrun tags":     func(s string) string { return "[rank0]: " + s + "\n" },
			"times":             func(s string) string { return "[2026-11-02 10:00:00] " + s + "\n" },
			"colours":           func(s string) string { return "\x1b[32m" + s + "\x1b[0m\n" },
			"colour of a word":  func(s string) string { return strings.ReplaceAll(s, "INFO", "\x1b[1;32mINFO\x1b[0m") + "\n" },
			"a progress bar":    func(s string) string { return "12 %\r13 %\r" + s + "\r14 %\n" },
			"newlines lost":     func(s string) string { return s },
			"every line twice":  func(s string) string { return s + "\n" + s + "\n" },
			"another rank's":    func(s string) string { return s + "node2:9:9 [1] NCCL INFO Channel 00/02 : 0 1\n" },
			"blanks at the end": func(s string) string { return s + " \t \n" },
		} {
			t.Run(version+" "+name, func(t *testing.T) {
				want, _ := judge(t, log, nil)
				if got, all := judge(t, each(log, change), nil); got.Outcome != want.Outcome || got.Code != want.Code {
					t.Errorf("%s, want %s:\n%s", got.Outcome, want.Outcome, all)
				}
				want, _ = judge(t, ring, nil)
				if got, all := judge(t, each(ring, change), nil); got.Outcome != want.Outcome || got.Code != want.Code {
					t.Errorf("around a ring: %s, want %s:\n%s", got.Outcome, want.Outcome, all)
				}
			})
		}
		t.Run(version+" cut off", func(t *testing.T) {
			for n := range len(ring) {
				if f, all := judge(t, ring[:n], nil); f.Outcome == results.Pass {
					t.Fatalf("a ring passes, cut off after %d bytes:\n%s", n, all)
				}
				if f, all := judge(t, ring[n:], nil); f.Outcome == results.Pass {
					t.Fatalf("a ring passes, without its first %d bytes:\n%s", n, all)
				}
			}
			// Of the proof itself, all is needed.
			whole := strings.Index(log, "1073741824 Bytes")
			for n := range max(whole, 0) {
				if f, all := judge(t, log[:n], nil); f.Outcome == results.Pass {
					t.Fatalf("it passes, cut off after %d bytes:\n%s", n, all)
				}
			}
		})
	}
}

// A refusal that shares its line with a grant, or that comes behind 64 KiB without a newline, is
// seen.
func TestRefusalsAreNotHidden(t *testing.T) {
	log := fixture(t, "2.27.7")
	for _, refusal := range []string{
		"ERROR Failed to lock SAT tree(ID:0x40 ret:0x4)",
		"NCCL WARN SHARP group create: Streaming Tree lock failed(-18)",
		"NCCL WARN SHARP group create: No resources(-5)",
		"NCCL WARN NET/IB : SHARP coll init error: Cannot create SHARP job(-11)",
		"NCCL WARN NET/IB : SHARP coll init error: Cannot connect to SHArP Daemon (sharpd)(-8)",
		"node2:7:7 [0] transport.cc:385 NCCL WARN Cannot initialize CollNet, using point-to-point network instead",
	} {
		for name, text := range map[string]string{
			"alone":              log + refusal + "\n",
			"behind a grant":     strings.Replace(log, "caps:0x16\n", "caps:0x16 "+refusal+"\n", 1),
			"behind a choice":    strings.TrimSuffix(log, "\n") + refusal,
			"behind a long line": log + strings.Repeat(".", 64<<10) + "\r" + refusal + "\n",
		} {
			if f, all := judge(t, text, nil); f.Outcome != results.Fail {
				t.Errorf("%s %s: %s:\n%s", refusal, name, f.Outcome, all)
			}
		}
	}
}

// An error of SHARP's library beside a log that proves it leaves open what comes of it; it is no refusal, and traffic can tell.
func TestErrorsOfLibrary(t *testing.T) {
	log := fixture(t, "2.27.7")
	for _, text := range []string{
		"[node2:1:4100 - context.c:415] ERROR sharp_get_local_data failed: Could not get local data(-5)",
		"[node2:0:4100 - context.c:601][2026-11-02 10:00:01] ERROR sharp_get_job_data_len failed: Job error(-35)",
		"[1,0]<stdout>:[node2:0:4100 - comm.c:394] ERROR sharp_alloc_groups_info failed: No free groups (-11)",
	} {
		for line, all := range []string{17: strings.TrimSuffix(log, "\n") + text, 18: log + text + "\n"} {
			if all == "" {
				continue
			}
			wanted(t, all, nil, results.Inconclusive, fmt.Sprintf("SHARP's library says an error, and not what comes of it: line %d: %s", line, text[strings.Index(text, "[node2"):]))
			wanted(t, all, traffic(1.01, 1.02, 1.01, 1.03), results.Pass, "traffic proves it")
			wanted(t, all, traffic(1.51, 1.52, 1.51, 1.53), results.Fail, "around a ring 1.50")
		}
		many, err := ReadJobLog(strings.NewReader(strings.Repeat(text+"\n", mostEvidence+1)))
		if err != nil || len(many.Errors) != mostEvidence {
			t.Errorf("%d errors, %v", len(many.Errors), err)
		}
	}
	wanted(t, log+"[node2:0:4100 - x.c:1] INFO no ERROR\nERROR: of a program\n", nil, results.Pass, "COLLNET_DIRECT")
}

// Programs that do more than one thing.
func TestMixed(t *testing.T) {
	const big, small = "1073741824", "4096"
	proof := "NCCL version 2.27.7+cuda12.9\n" + satText + "\n" + groupText + "\n"
	old := strings.Replace(proof, "2.27.7", "2.21.5", 1)
	chose := func(of, bytes, name string, times int) string {
		return strings.Repeat("n1:7:7 [0] NCCL INFO "+of+": "+bytes+" Bytes -> Algo "+name+" proto SIMPLE channel{Lo..Hi}={0..3}\n", times)
	}
	number := func(bytes, n string) string {
		return "n1:7:7 [0] NCCL INFO " + bytes + " Bytes -> Algo " + n + " proto 2 time 8.1\n"
	}
	call := func(of string, count, ranks int, comm string) string {
		return "n1:7:7 [0] NCCL INFO " + of + ": opCount 1 sendbuff 0x7 recvbuff 0x7 count " + strconv.Itoa(count) + " datatype 7 op 0 root 0 comm " + comm + " [nranks=" + strconv.Itoa(ranks) + "] stream 0x1\n"
	}
	comm := func(comm string, ranks, nodes int) string {
		return "n1:7:7 [0] NCCL INFO comm " + comm + " rank 0 nRanks " + strconv.Itoa(ranks) + " nNodes " + strconv.Itoa(nodes) + " localRanks 2 localRank 0 MNNVL 0\n"
	}
	each := func(times int, text string) (all string) { // with numbers of their own
		for i := range times {
			all += strings.ReplaceAll(text, "opCount 1 ", fmt.Sprintf("opCount %x ", 1+i))
		}
		return all
	}
	two := comm("0xa", 8, 4) + comm("0xb", 2, 1)
	for _, test := range []struct {
		name, log string
		want      results.Outcome
		says      string
	}{
		{"short vectors along a tree", proof + chose("AllReduce", small, "TREE", 99) + chose("AllReduce", big, "NVLS", 1), results.Pass, "and for smaller ones TREE for 4096 bytes"},
		{"the largest through switches, most around a ring", proof + chose("AllReduce", "536870912", "RING", 99) + chose("AllReduce", big, "NVLS", 1), results.Inconclusive, "2 % of the bytes"},
		{"all-gathers around a ring", proof + chose("AllGather", "9"+big, "RING", 9) + chose("AllReduce", big, "COLLNET_DIRECT", 1), results.Pass, "COLLNET_DIRECT"},
		{"all-gathers alone through switches", proof + chose("AllGather", big, "COLLNET_DIRECT", 9), results.Inconclusive, "for all-reduces between hosts"},
		{"the same size both ways", proof + chose("AllReduce", big, "COLLNET_DIRECT", 9) + chose("AllReduce", big, "RING", 9), results.Fail, "NCCL chose RING"},
		{"the largest of which is lost", proof + call("AllReduce", 1<<28, 8, "0xa") + chose("AllReduce", small, "NVLS", 9), results.Inconclusive, "for all-reduces of 1073741824 bytes"},
		{"a broken line among short ones", proof + chose("AllReduce", small, "NVLS", 20) + "24 Bytes -> Algo RING proto\n", results.Inconclusive, "may be of longer vectors"},
		{"a broken line among short ones, of a long one", proof + call("AllReduce", 1<<28, 8, "0xa") + chose("AllReduce", small, "NVLS", 20) + "24 Bytes -> Algo RING proto\n", results.Inconclusive, "all-reduces of 1073741824 bytes"},
		{"a broken line among many", proof + each(20, call("AllReduce", 1<<28, 8, "0xa")+chose("AllReduce", big, "NVLS", 1)) + "NCCL INFO AllReduce: 10737418n2:7:7 [0]\n24 Bytes -> Algo RING proto\n", results.Pass, "1 lines that say what NCCL chose cannot be read"},
		{"as many broken as whole", proof + call("AllReduce", 1<<28, 8, "0xa") + chose("AllReduce", big, "NVLS", 1) + "24 Bytes -> Algo RING proto\n", results.Inconclusive, "50 %"},

		{"by number, of one kind", old + number(small, "3") + number(big, "2"), results.Inconclusive, "no line says of which collective"},
		{"by number, of one kind, all-gathers alone", old + call("AllGather", 1<<26, 4, "0xa") + number(big, "2") + call("AllGather", 1<<24, 4, "0xa") + number("268435456", "2"), results.Inconclusive, "between hosts"},
		{"by number, of one kind, all-reduces in a group", old + call("AllReduce", 1<<27, 4, "0xa") + strings.ReplaceAll(call("AllReduce", 1<<27, 4, "0xa"), "0x7 ", "0x8 ") + number(big, "2"), results.Pass, "COLLNET_DIRECT"},
		{"by number, of one kind, all-reduces within hosts", old + two + call("AllReduce", 1<<28, 2, "0xb") + number(big, "2"), results.Inconclusive, "no line says of which collective"},
		{"by number, mixed", old + number(small, "0") + number(big, "2"), results.Inconclusive, "no line says which of these were all-reduces"},
		{"by number, none through switches", old + number(small, "0") + number(big, "1"), results.Fail, "NCCL chose RING"},
		{"by number, mixed, all-reduces alone", old + call("AllReduce", 1<<10, 4, "0xa") + number(small, "0") + call("AllReduce", 1<<28, 4, "0xa") + number(big, "2"), results.Pass, "TREE for 4096"},
		{"by number, another collective of another size", old + call("Broadcast", 1<<10, 4, "0xa") + number(small, "1") + call("AllReduce", 1<<28, 4, "0xa") + number(big, "2"), results.Pass, "COLLNET_DIRECT"},
		{"by number, an all-gather of all ranks' size", old + call("AllGather", 1<<26, 4, "0xa") + number(big, "2") + call("AllReduce", 1<<10, 4, "0xa") + number(small, "1"), results.Fail, "NCCL chose RING for all-reduces of 4096"},
		{"by number, another collective of the same size", old + call("Broadcast", 1<<28, 4, "0xa") + number(big, "1") + call("AllReduce", 1<<28, 4, "0xa") + number(big, "2"), results.Inconclusive, "no line says which"},

		{"by number, a broadcast of the same size, and a choice for one", old + each(9, call("Broadcast", 1<<28, 4, "0xa")+call("AllReduce", 1<<28, 4, "0xa")+number(big, "2")), results.Inconclusive, "no line says which algorithm NCCL chose for all-reduces of 1073741824"},
		{"by number, a broadcast of the same size, and choices for both", old + each(9, call("Broadcast", 1<<28, 4, "0xa")+call("AllReduce", 1<<28, 4, "0xa")+number(big, "2")+number(big, "2")), results.Pass, "COLLNET_DIRECT"},
		{"by number, all-gathers in a group, and all-reduces without a choice", old + each(9, call("AllGather", 1<<24, 4, "0xa")+strings.ReplaceAll(call("AllGather", 3<<24, 4, "0xa"), "0x7 ", "0x8 ")+number(big, "2")) + strings.ReplaceAll(each(9, call("AllReduce", 1<<28, 4, "0xa")), "opCount ", "opCount f"), results.Inconclusive, "for all-reduces of 1073741824"},
		{"by number, all-reduces of two kinds in a group", old + call("AllReduce", 1<<27, 4, "0xa") + strings.ReplaceAll(call("AllReduce", 1<<27, 4, "0xa"), "0x7 ", "0x8 ") + call("AllReduce", 1<<10, 4, "0xa") + strings.ReplaceAll(call("AllReduce", 1<<10, 4, "0xa"), "0x7 ", "0x8 ") + number(big, "2") + number("8192", "0"), results.Pass, "COLLNET_DIRECT"},
		{"by number, a group and the last of it alone", old + call("AllReduce", 1<<27, 4, "0xa") + strings.ReplaceAll(call("AllReduce", 1<<27, 4, "0xa"), "0x7 ", "0x8 ") + number(big, "2") + strings.Repeat(number("536870912", "2"), 9) + strings.ReplaceAll(each(9, call("AllReduce", 1<<27, 4, "0xa")), "opCount ", "opCount f"), results.Inconclusive, "of 82 %"},

		{"a communicator within a host, around a ring", proof + two + call("AllReduce", 1<<10, 8, "0xa") + chose("AllReduce", small, "COLLNET_CHAIN", 1) + call("AllReduce", 1<<28, 2, "0xb") + chose("AllReduce", big, "RING", 1), results.Pass, "RING for 1073741824 bytes within hosts"},
		{"a communicator within a host, over NVLink's switches", proof + two + call("AllReduce", 1<<28, 2, "0xb") + chose("AllReduce", big, "NVLS", 1), results.Inconclusive, "between hosts"},
		{"the same size within and between", proof + two + call("AllReduce", 1<<28, 8, "0xa") + call("AllReduce", 1<<28, 2, "0xb") + chose("AllReduce", big, "NVLS", 1), results.Inconclusive, "no line says which"},
		{"the same size, and CollNet is between hosts only", proof + two + call("AllReduce", 1<<28, 8, "0xa") + call("AllReduce", 1<<28, 2, "0xb") + chose("AllReduce", big, "COLLNET_DIRECT", 1), results.Pass, "COLLNET_DIRECT"},
		{"two between hosts, one of them without SHARP", proof + comm("0xa", 8, 4) + comm("0xb", 4, 4) + call("AllReduce", 1<<10, 8, "0xa") + chose("AllReduce", small, "COLLNET_CHAIN", 1) + call("AllReduce", 1<<28, 4, "0xb") + chose("AllReduce", big, "RING", 1), results.Fail, "NCCL chose RING"},
		{"a communicator of one rank", proof + comm("0xa", 8, 4) + call("AllReduce", 1<<29, 1, "0xc") + call("AllReduce", 1<<28, 8, "0xa") + chose("AllReduce", big, "NVLS", 1), results.Pass, "NVLS"},
	} {
		t.Run(test.name, func(t *testing.T) { wanted(t, test.log, nil, test.want, test.says) })
	}
}

// What counters prove alone: that no host can have told another its vectors.
func TestTraffic(t *testing.T) {
	log := fixture(t, "2.19.4")
	on := func(hosts, ranks int, sent ...float64) func(*Evidence) {
		return func(e *Evidence) {
			traffic(sent...)(e)
			e.Hosts, e.Ranks = hosts, ranks
		}
	}
	for _, test := range []struct {
		name   string
		change func(*Evidence)
		want   results.Outcome
		says   string
	}{
		{"each vector once", on(4, 4, 1, 1.01, 1.02, 1.03), results.Pass, "traffic proves it"},
		{"a ring", on(4, 4, 1.5, 1.5, 1.5, 1.5), results.Fail, "around a ring 1.50"},
		{"a ring, or another program", func(e *Evidence) { on(4, 4, 1.5, 1.5, 1.5, 1.5)(e); e.Doubt = "program B runs on its hosts, too" }, results.Inconclusive, "program B runs"},
		{"a tree of hosts", on(4, 4, 2, 2, 1, 1), results.Fail, "up to 2.00"},
		{"two hosts with eight ranks each: a tree does the same", on(2, 16, 1, 1), results.Inconclusive, "a tree of hosts can do as well"},
		{"two hosts with eight ranks each: a ring", on(2, 16, 1.88, 1.88), results.Fail, "around a ring 1.88"},
		{"three of four hosts", on(4, 4, 1, 1, 1), results.Inconclusive, "3 of 4 hosts"},
		{"one that sees a rail of two", on(4, 4, 1, 1, 1, 0.6), results.Inconclusive, "do not see all of it"},
		{"more than aggregation, less than a ring of ranks", on(4, 32, 1.4, 1.4, 1.4, 1.4), results.Inconclusive, "which is no proof"},
		{"more was announced than was done: it was a ring", func(e *Evidence) {
			traffic(1.5, 1.5, 1.5, 1.5)(e)
			e.Reduced *= 1.4
		}, results.Inconclusive, "hosts sent up to 1.50 times that"},
		{"of another communicator", on(4, 5, 1, 1, 1, 1), results.Inconclusive, "the log has no calls"},
		{"not a number", func(e *Evidence) { e.Sent, e.Reduced = []float64{0, 0, 0, 0}, 0 }, results.Inconclusive, "not known"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, all := judge(t, log, test.change)
			if f.Outcome != test.want || !strings.Contains(all, test.says) {
				t.Errorf("%s, want %s with %q:\n%s", f.Outcome, test.want, test.says, all)
			}
		})
	}
}

// A call that is in the log twice, as where a launcher copies it, was made once.
func TestCallsCountOnce(t *testing.T) {
	log := fixture(t, "2.19.4")
	for _, text := range []string{log, log + log, strings.ReplaceAll(log, "\n", "\n\n")} {
		l, err := ReadJobLog(strings.NewReader(text))
		if err != nil || l.allReduced(4) != 1<<30+8 || l.allReduced(3) != 0 {
			t.Errorf("%v of 4 ranks, %v of 3, %v", l.allReduced(4), l.allReduced(3), err)
		}
	}
	wanted(t, log+log, traffic(1.5, 1.5, 1.5, 1.5), results.Fail, "around a ring")
	wanted(t, strings.ReplaceAll(log, "opCount", "opcount"), traffic(1, 1, 1, 1), results.Inconclusive, "the log has no calls")
}

// Calls of a group have one number: NCCL counts launches. They are told apart by their buffers.
func TestCallsOfGroups(t *testing.T) {
	call := func(of string, op, buffer int) string {
		return fmt.Sprintf("n1:7:7 [0] NCCL INFO %s: opCount %x sendbuff 0x%x recvbuff 0x%x count 256 datatype 7 op 0 root 0 comm 0xa [nranks=4] stream 0x1\n", of, op, buffer, buffer)
	}
	a0, b0, a1, b1 := call("AllReduce", 0, 1), call("AllReduce", 0, 2), call("AllReduce", 1, 1), call("AllReduce", 1, 2)
	for _, test := range []struct {
		name, log string
		want      float64 // calls
	}{
		{"one", a0, 1},
		{"a group", a0 + b0, 2},
		{"a group twice", a0 + b0 + a1 + b1, 4},
		{"every line twice", a0 + a0 + b0 + b0 + a1 + a1 + b1 + b1, 4},
		{"the log twice", a0 + b0 + a1 + b1 + a0 + b0 + a1 + b1, 4},
		{"another collective of the group", a0 + call("Reduce", 0, 1) + b0, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := ReadJobLog(strings.NewReader(test.log))
			if got := l.allReduced(4); err != nil || got != 1024*test.want {
				t.Errorf("%v bytes, want %v calls of 1024; %v", got, test.want, err)
			}
		})
	}
	var shards strings.Builder
	for i := range 40 {
		shards.WriteString(strings.NewReplacer("n1:7:7", "node1:4100:4100", "count 256", "count 33554432").Replace(call("ReduceScatter", 16, i)))
	}
	wanted(t, fixture(t, "2.21.5")+shards.String(), nil, results.Inconclusive, "through switches are 4.8 %")
}

// FuzzVerdict: whatever a log says, it passes only by a line that names an algorithm of switches,
// never beside a refusal, and what terminals do to lines changes nothing.
func FuzzVerdict(f *testing.F) {
	files, err := filepath.Glob("testdata/nccl/*.log")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
		f.Add(strings.ReplaceAll(string(text), "Algo COLLNET_DIRECT", "Algo NVLS_TREE"))
	}
	f.Fuzz(func(t *testing.T, log string) {
		got, all := judge(t, log, nil)
		switch got.Outcome {
		case results.Pass:
			if !strings.Contains(log, "Algo COLLNET_") && !strings.Contains(log, "Algo NVLS") && !strings.Contains(log, "Algo 2") && !strings.Contains(log, "Algo 3") && !strings.Contains(log, "Algo 4") &&
				!strings.Contains(log, "\x1b") {
				t.Fatalf("nothing names an algorithm:\n%s", all)
			}
			if f, all := judge(t, log+"\nERROR Failed to lock SAT tree(ID:0x40 ret:0x4)\n", nil); f.Outcome != results.Fail {
				t.Fatalf("%s beside a refusal:\n%s", f.Outcome, all)
			}
		case results.Fail, results.Inconclusive:
		default:
			t.Fatalf("%s", got.Outcome)
		}
		if strings.ContainsAny(log, "\r\x1b") {
			return
		}
		crlf, all := judge(t, strings.ReplaceAll(log, "\n", "\x1b[0m\r\n"), nil)
		if crlf.Outcome != got.Outcome || crlf.Code != got.Code {
			t.Fatalf("%s, with CRLF and colours %s:\n%s", got.Outcome, crlf.Outcome, all)
		}
	})
}
