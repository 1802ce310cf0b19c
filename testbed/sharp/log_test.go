package sharp_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/testbed/sharp"
)

// TestReadJobLog reads the lines that were published: see testdata/job.log.
func TestReadJobLog(t *testing.T) {
	f, err := os.Open("testdata/job.log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := sharp.ReadJobLog(f)
	if err != nil {
		t.Fatal(err)
	}
	want := sharp.JobLog{
		Asked: []sharp.Asked{{ID: 10883548833119725849, Quota: sharp.Quota{QPs: 1, GroupChannels: 1}, Trees: 1}},
		Trees: []sharp.Tree{
			{Job: 41, Type: sharp.LLT, ID: 18, Caps: 5, Quota: sharp.Quota{OSTs: 167, UserData: 1024, Groups: 167, QPs: 1, GroupChannels: 1}},
			{Job: 1, Type: sharp.SAT, Index: 1, ID: 64, Caps: 0x16},
		},
		Groups:   []sharp.Group{{Job: 41, Type: sharp.LLT, Size: 1, Quota: sharp.Quota{OSTs: 8, UserData: 1024}}},
		Ranks:    []sharp.Rank{{Rank: 0, Of: 2, Device: "mlx5_5:1"}},
		Channels: 1,
	}
	got2 := sharp.JobLog{Asked: got.Asked, Trees: got.Trees, Groups: got.Groups, Ranks: got.Ranks, Channels: got.Channels, Refusals: got.Refusals}
	if diff := cmp.Diff(want, got2, cmp.AllowUnexported(sharp.JobLog{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := got.Proof(""); err != nil {
		t.Error(err)
	}
}

const (
	treeLine    = "INFO sharp_job_id:41   resv_key: tree_type:LLT tree_idx:0  treeID:18 caps:0x5 quota:(osts:167 user_data_per_ost:1024 max_groups:167 max_qps:1 max_group_channels:1)\n"
	oldTreeLine = "[a0000:0:2916721 - context.c:759] INFO tree_info: type:LLT tree idx:0 treeID:0x0 caps:0x6 quota: ( osts:167 user_data_per_ost:1024 max_groups:167 max_qps:1 max_group_channels:1)\n"
	satLine     = "INFO sharp_job_id:41    tree_type:SAT tree_idx:1  treeID:64 caps:0x16\n"
	channelLine = "CollNet 06/0 : 6 [receive] via COLLNET/SHARP/6/GDRDMA\n"
	groupLine   = "INFO [group#:0] job_id:41 group id:0 tree idx:0 tree_type:LLT rail_idx:0 group size:1 quota: (osts:8 user_data_per_ost:1024) mgid: (subnet prefix:0x0 interface id:0x0) mlid:0\n"
	askedLine   = "INFO job (ID: 7) resource request quota: ( osts:0 user_data_per_ost:0 max_groups:0 max_qps:1 max_group_channels:1, num_trees:1)\n"
	refusedLock = "ERROR Failed to lock SAT tree(ID:0x40 ret:0x4)\n"
	refusedSAT  = "gpu1:12:40 [3] NCCL WARN SHARP group create: Streaming Tree lock failed (-18)\n"
	refusedJob  = "SHARP coll init error: Cannot create SHARP job(-11)\n"
)

// TestProof: only what was granted and used is proof; a refusal anywhere undoes it.
func TestProof(t *testing.T) {
	for _, c := range []struct {
		name, log string
		want      sharp.TreeType
		kind      error // nil: proven
		code      int
	}{
		{"granted and used", treeLine + groupLine, "", nil, 0},
		{"granted and used by a channel", treeLine + channelLine, "", nil, 0},
		{"granted by an old library, and used by a channel", oldTreeLine + channelLine, sharp.LLT, nil, 0},
		{"granted by an old library, not used", oldTreeLine, "", sharp.ErrNotProven, 0},
		{"granted by an old library, the other type", oldTreeLine + groupLine, sharp.SAT, sharp.ErrNotProven, 0},
		{"the other type", treeLine + groupLine, sharp.SAT, sharp.ErrNotProven, 0},
		{"both granted, the other used", treeLine + satLine + groupLine, sharp.SAT, sharp.ErrNotProven, 0},
		{"both granted, the other used, and a channel", treeLine + satLine + groupLine + channelLine, sharp.SAT, sharp.ErrNotProven, 0},
		{"both granted and used", treeLine + satLine + groupLine + strings.ReplaceAll(groupLine, "LLT", "SAT") + channelLine, sharp.SAT, nil, 0},
		{"both granted, and a channel", treeLine + satLine + channelLine, sharp.SAT, nil, 0},
		{"both granted, the other used, which is as good", treeLine + satLine + groupLine, "", nil, 0},
		{"empty", "", "", sharp.ErrNotProven, 0},
		{"asked only", askedLine, "", sharp.ErrNotProven, 0},
		{"granted, not used", treeLine, "", sharp.ErrNotProven, 0},
		{"used, not granted", groupLine, "", sharp.ErrNotProven, 0},
		{"job refused", refusedJob, "", sharp.ErrNoJob, -11},
		{"lock refused", treeLine + groupLine + refusedLock, "", sharp.ErrLock, 4},
		{"streaming refused", treeLine + groupLine + refusedSAT, "", sharp.ErrLock, -18},
		{"asked for by the environment only", "NCCL_COLLNET_ENABLE set by environment to 1.\n", "", sharp.ErrNotProven, 0},
		{"garbled", strings.Replace(treeLine, "treeID:18", "treeID:99999999999999999999999", 1) + groupLine, "", sharp.ErrNotProven, 0},
	} {
		l, err := sharp.ReadJobLog(strings.NewReader(c.log))
		if err != nil {
			t.Fatal(err)
		}
		err = l.Proof(c.want)
		if c.kind == nil {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if !errors.Is(err, c.kind) || !errors.Is(err, sharp.ErrNotProven) {
			t.Errorf("%s: %v", c.name, err)
		}
		var r *sharp.Refusal
		if errors.As(err, &r) != (c.code != 0) || r != nil && (r.Code != c.code || r.Line != strings.Count(c.log, "\n")) {
			t.Errorf("%s: refusal %+v", c.name, r)
		}
	}
}

// FuzzJobLog: nothing in a log makes the reader fail, and what it reads can be written as
// the library would, and read again.
func FuzzJobLog(f *testing.F) {
	for _, line := range []string{treeLine, oldTreeLine, groupLine, askedLine, refusedJob, refusedLock, refusedSAT, "SHARP rank 0/2 initialized on mlx5_5:1",
		"[n1:0:7 - comm.c:394] ERROR no free groups", "n1:7:7 [0] NCCL INFO AllReduce: opCount 5", "NCCL version 2.21.5+cuda12.4", "n1:7:7 [0] NCCL INFO comm 0x5 rank 0 nRanks 4 nNodes 4 localRanks 1 localRank 0 MNNVL 0",
		"n1:7:7 [0] NCCL INFO AllReduce: 8 Bytes -> Algo 1 proto 2 time 80.1", "n1:7:7 [0] NCCL INFO AllReduce: 8 Bytes -> Algo COLLNET_DIRECT proto SIMPLE channel{Lo..Hi}={0..3}"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var l sharp.JobLog
		if l.Line(line) != (len(l.Asked)+len(l.Trees)+len(l.Groups)+len(l.Ranks)+len(l.Refusals)+len(l.Versions)+l.Messages+l.Unreadable+l.Torn+len(l.Errors)+l.Channels > 0) {
			t.Fatal("it says nothing about what it read")
		}
		var again sharp.JobLog
		for _, a := range l.Asked {
			again.Line(a.String())
		}
		for _, tree := range l.Trees {
			again.Line(tree.String())
		}
		for _, g := range l.Groups {
			again.Line(g.String())
		}
		if diff := cmp.Diff([]any{l.Asked, l.Trees}, []any{again.Asked, again.Trees}); diff != "" {
			t.Fatalf("written and read again (-want +got):\n%s", diff)
		}
		if len(again.Groups) != len(l.Groups) {
			t.Fatalf("groups %+v, again %+v", l.Groups, again.Groups)
		}
	})
}
