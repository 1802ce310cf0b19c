package programs

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/program"
)

// What programs printed is kept without secrets. Of a run that is interrupted, before or meanwhile, only the end of a long
// text is kept; what is not kept of it is said, and of documents the environment is never kept.
func TestClean(t *testing.T) {
	const secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	log := strings.Repeat("a line of a log\n", 25_000) + "token=" + secret + "\nthe end\n"
	env := `{"env": {"X": "` + secret + `"}, "log": ["` + strings.Repeat("a", 100<<10) + "\"]}\n"
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name, text string
		after      int // pieces, when the run is interrupted
		want       string
		least      int
	}{
		{"whole", log, 100, "token=[removed]", len(log) - 100},
		{"interrupted before", log, 0, "(interrupted: 3", 60_000},
		{"interrupted meanwhile", log, 1, "(interrupted: ", 200_000},
		{"a line that is too long", "token=" + secret + strings.Repeat("a", program.MostPiece) + "\nthe end\n", 100, " bytes that nothing divides: not kept, more than 4194304)\nthe end\n", 50},
		{"short", "short\n", 0, "short\n", 6},
		{"a document", env, 100, `"X": "[removed]"`, 100 << 10},
		{"a short document", `{"env": {"X": "` + secret + `"}}`, 0, `"X": "[removed]"`, 10},
		{"a document, interrupted", env, 0, "(interrupted: ", 10},
		{"a document that was cut off, interrupted", `{"env": {"X": "hunter2"}, "log": [`, 0, "(interrupted: 34 bytes are not kept)", 10},
	} {
		var b bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if test.after == 0 {
			ctx = over
		}
		w := writer(func(p []byte) (int, error) {
			if test.after--; test.after == 0 {
				cancel()
			}
			return b.Write(p)
		})
		if err := clean(ctx, w, []byte(test.text)); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := b.String(); !strings.Contains(got, test.want) || strings.Contains(got, secret) || strings.Contains(got, "hunter2") || len(got) < test.least || len(got) > 2*len(test.text)+100 {
			t.Errorf("%s: %d bytes of %d: %.100s ... %s", test.name, len(got), len(test.text), got, got[max(0, len(got)-200):])
		}
	}
}

// What a program's processes say of NCCL's choices is held against the vectors that its figures are of.
func TestFindings(t *testing.T) {
	const grant = "INFO sharp_job_id:12   tree_type:SAT tree_idx:1  treeID:0x40  caps:0x36\n"
	log := func(host string, rank int) string {
		head := fmt.Sprintf("%s:7:7 [0] NCCL INFO ", host)
		text := grant + head + "NCCL version 2.23.4+cuda12.4\n" + head + fmt.Sprintf("comm 0x5 rank %d nRanks 3 nNodes 3 localRanks 1 localRank 0 MNNVL 0\n", rank) +
			head + "CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA\n"
		for i := range 45 {
			text += fmt.Sprintf("%sAllReduce: opCount %x sendbuff 0x7 recvbuff 0x8 count 1024 datatype 7 op 0 root 0 comm 0x5 [nranks=3] stream 0x9\n", head, i)
			if rank == 0 {
				text += head + "AllReduce: 4096 Bytes -> Algo 2 proto 2 time 80.1\n"
			}
		}
		return text
	}
	w := &program.Workload{Name: "A", Hosts: []program.Host{{Name: "h1"}, {Name: "h2"}, {Name: "h3"}}}
	for _, test := range []struct {
		name, last string // what the last host says
		longest    int64
		want       results.Outcome
		says       string
	}{
		{"all of it", log("h3", 2), 4096, results.Pass, "COLLNET_DIRECT for 4096 bytes"},
		{"figures of longer vectors", log("h3", 2), 1 << 20, results.Inconclusive, "no line says which algorithm NCCL chose for all-reduces of 1048576 bytes"},
		{"a host that says nothing of NCCL", "hello\n", 4096, results.Inconclusive, "2 of 3 hosts"},
	} {
		outputs := []program.Output{{Stdout: []byte(log("h1", 0))}, {Stdout: []byte(log("h2", 1))}, {Stdout: []byte(test.last)}}
		ask := &SHARPAsk{Tree: "SAT", Traffic: "ignore"}
		f := ask.findings(w, outputs, test.longest, nil, "")[0]
		if f.Outcome != test.want || !strings.Contains(f.What, test.says) {
			t.Errorf("%s: %s, want %s with %q: %s", test.name, f.Outcome, test.want, test.says, f.What)
		}
	}
}

// Programs share hosts wherever these are named: as ranks, as parameter servers or as an end of a flow.
func TestNeighbour(t *testing.T) {
	hosts := func(names ...string) (out []program.Host) {
		for _, name := range names {
			out = append(out, program.Host{Name: name})
		}
		return out
	}
	for _, test := range []struct {
		name  string
		other program.Workload
		want  string
	}{
		{"ranks", program.Workload{Hosts: hosts("h9", "h2")}, "B"},
		{"parameter servers", program.Workload{Hosts: hosts("h9"), Servers: hosts("h2")}, "B"},
		{"a client", program.Workload{Flows: []program.Flow{{From: program.Host{Name: "h1"}, To: program.Host{Name: "h9"}}}}, "B"},
		{"a server", program.Workload{Flows: []program.Flow{{From: program.Host{Name: "h9"}, To: program.Host{Name: "h1"}}}}, "B"},
		{"other hosts", program.Workload{Hosts: hosts("h7"), Servers: hosts("h8"), Flows: []program.Flow{{From: program.Host{Name: "h8"}, To: program.Host{Name: "h9"}}}}, ""},
	} {
		test.other.Name = "B"
		works := []*program.Workload{{Name: "A", Hosts: hosts("h1", "h2")}, &test.other}
		if got := neighbour(works, 0); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// What a program says of its results counts for the rows that it checked.
func TestRightResults(t *testing.T) {
	for _, test := range []struct {
		reading program.Reading
		outcome results.Outcome
		says    string
	}{
		{program.Reading{Rows: 6, Checked: 6}, results.Pass, "nothing wrong with its results"},
		{program.Reading{Rows: 6, Checked: 4}, results.Pass, "in 4 of 6 rows, and checked no others"},
		{program.Reading{Rows: 6, Checked: 4, Wrong: "8B: 1 wrong values"}, results.Fail, "8B: 1 wrong values"},
	} {
		f := rightResults("A", &test.reading)
		if f.Outcome != test.outcome || !strings.HasSuffix(f.What, test.says) || f.Of != "A" {
			t.Errorf("%+v: %+v", test.reading, f)
		}
	}
}
