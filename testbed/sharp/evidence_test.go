package sharp

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
)

// evidence is a log with a line after the other.
func evidence(lines ...string) Evidence {
	l := &JobLog{}
	if len(lines) > 0 {
		lines = append(lines[:len(lines):len(lines)], strings.Split(others(strings.Join(lines, "\n")), "\n")...)
	}
	for _, line := range lines {
		l.Line(line)
	}
	return Evidence{Log: l, Want: SAT, Ranks: 4}
}

const (
	newText    = "NCCL version 2.27.7+cuda12.9"
	askedText  = "INFO job (ID: 41) resource request quota: ( osts:0 user_data_per_ost:0 max_groups:0 max_qps:1 max_group_channels:1, num_trees:1)"
	lltText    = "INFO sharp_job_id:41   resv_key: tree_type:LLT tree_idx:0  treeID:18 caps:0x5 quota:(osts:16 user_data_per_ost:1024 max_groups:16 max_qps:1 max_group_channels:1)"
	satText    = "INFO sharp_job_id:41    tree_type:SAT tree_idx:1  treeID:64 caps:0x16"
	groupText  = "INFO [group#:0] job_id:41 group id:0 tree idx:1 tree_type:SAT rail_idx:0 group size:4 quota: (osts:8 user_data_per_ost:1024) mgid: (subnet prefix:0x0 interface id:0x0) mlid:0"
	collnet    = "n1:7:7 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo COLLNET_DIRECT proto SIMPLE channel{Lo..Hi}={0..3}"
	called     = "n1:7:7 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7 recvbuff 0x7 count 250000 datatype 7 op 0 root 0 comm 0x5 [nranks=4] stream 0x1"
	lockedText = "ERROR Failed to lock SAT tree(ID:0x40 ret:0x4)"
)

// What is proof, and what only looks like it.
func TestEvidence(t *testing.T) {
	proven := []string{newText, askedText, lltText, satText, groupText}
	tuned := func(lines ...string) []string { return append(append([]string(nil), proven...), lines...) }
	for _, test := range []struct {
		name  string
		lines []string
		sent  []float64
		need  bool // that traffic speaks for it
		want  results.Outcome
		says  string
	}{
		{"a tree, a communicator, and no word of the algorithm", proven, nil, false, results.Inconclusive, "tree_type:SAT"},
		{"CollNet", tuned(collnet), nil, false, results.Pass, "COLLNET_DIRECT"},
		{"only asked for", []string{askedText, collnet}, nil, false, results.Fail, "no line says that a tree was granted"},
		{"NCCL, and no word of SHARP", []string{collnet}, nil, false, results.Fail, "no line says that a tree was granted"},
		{"nothing at all", nil, nil, false, results.Inconclusive, "no line of NCCL or of SHARP"},
		{"another type of tree", []string{lltText, groupText, collnet}, nil, false, results.Fail, "no tree of type SAT"},
		{"a tree that nobody uses", []string{satText, collnet}, nil, false, results.Fail, "no communicator uses it"},
		{"a lock that was refused", tuned(collnet, lockedText), nil, false, results.Fail, "lock of the tree refused"},
		{"Ring", tuned("n1:7:7 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3}"), nil, false, results.Fail, "NCCL chose RING for all-reduces of 1048576 bytes (line 6"},
		{"NVLink's switches, and a tree of hosts", tuned("n1:7:7 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..3}"), nil, false, results.Fail, "NCCL chose NVLS_TREE"},
		{"each vector sent once", tuned(called), []float64{1.01e6, 1.04e6, 1.01e6, 1.02e6}, true, results.Pass, "1.04 times"},
		{"as around a ring", tuned(collnet), []float64{1.01e6, 1.5e6, 1.01e6, 1.01e6}, false, results.Fail, "around a ring 1.50"},
		{"counters of something else", tuned(collnet), []float64{12, 12, 12, 12}, false, results.Pass, "do not see"},
		{"counters of something else, and they must", tuned(collnet), []float64{12, 12, 12, 12}, true, results.Fail, "do not see"},
		{"no counters, and there must be", tuned(collnet), nil, true, results.Fail, "not known"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := evidence(test.lines...)
			e.Sent, e.TrafficRequired = test.sent, test.need
			if test.sent != nil {
				e.Reduced = 1e6
			}
			f := e.Findings("A")[0]
			all := f.What + "\n" + strings.Join(f.Evidence, "\n")
			code := results.CodeFallback
			if test.want == results.Inconclusive {
				code = results.CodeUnproven
			}
			if f.Outcome != test.want || !strings.Contains(all, test.says) || f.Code != code || f.Of != "A" {
				t.Errorf("%s, want %s with %q:\n%s", f.Outcome, test.want, test.says, all)
			}
		})
	}
}

// Of two ranks, a ring sends as much as a tree.
func TestEvidenceOfTwo(t *testing.T) {
	e := evidence(lltText, satText, groupText)
	e.Ranks, e.Sent, e.Reduced, e.TrafficRequired = 2, []float64{1e6}, 1e6, true
	if f := e.Findings("A")[0]; f.Outcome != results.Fail || !strings.Contains(f.What, "2 ranks") {
		t.Errorf("%+v", f)
	}
}

func TestGranted(t *testing.T) {
	for _, test := range []struct {
		asked Quota
		lines []string
		want  results.Outcome
		says  string
	}{
		{Quota{OSTs: 16}, []string{lltText, groupText}, results.Pass, "asked for"},
		{Quota{OSTs: 17, Groups: 20}, []string{lltText, groupText}, results.Fail, "osts: asked for 17, granted 16, max_groups: asked for 20, granted 16"},
		{Quota{OSTs: 16}, []string{satText, groupText}, results.Inconclusive, "does not say"},
	} {
		e := evidence(test.lines...)
		e.Asked = test.asked
		f := e.Findings("A")[1]
		if f.Outcome != test.want || f.Code != results.CodeGranted || !strings.Contains(f.What, test.says) {
			t.Errorf("%+v: %+v, want %s with %q", test.asked, f, test.want, test.says)
		}
	}
}

func TestCheckVariable(t *testing.T) {
	for _, bad := range []string{
		"NCCL_NET=IB", "NCCL_COLLNET_ENABLE=0", "NCCL_SHARP_DISABLE=1", "NCCL_IBEXT_DISABLE=1", "NCCL_ALGO=Ring", "NCCL_ALGO=^CollNetDirect", "NCCL_ALGO=NVLSTree", "NCCL_ALGO=allreduce:nvlstree,tree;allgather:ring", "NCCL_DEBUG_SUBSYS=INIT",
		"NCCL_IB_HCA=mlx5_1", "NCCL_DEBUG=WARN", "NCCL_DEBUG_FILE=/tmp/x", "SHARP_COLL_ENABLE_SAT=0", "SHARP_COLLNET_OVERLAP_AG=1",
	} {
		name, value, _ := strings.Cut(bad, "=")
		if problem, hint := CheckVariable(name, value); problem == "" || hint == "" {
			t.Errorf("%s: %q, %q", bad, problem, hint)
		}
	}
	for _, good := range []string{"NCCL_IB_HCA==mlx5_1", "NCCL_DEBUG=INFO", "NCCL_DEBUG=info", "NCCL_DEBUG=Trace", "NCCL_SOCKET_IFNAME=eth0", "NCCL_ALGO=CollNetDirect,NVLS", "NCCL_ALGO=allreduce:nvls;allgather:ring", "NCCL_DEBUG_SUBSYS=ALL", "NCCL_DEBUG_SUBSYS=NET,INIT,COLL,TUNING", "NCCL_IBEXT_DISABLE=0"} {
		name, value, _ := strings.Cut(good, "=")
		if problem, _ := CheckVariable(name, value); problem != "" {
			t.Errorf("%s: %s", good, problem)
		}
	}
}
