package program

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/golden"
)

// How each program is started: processes, hosts, arguments, environment.
func TestCommands(t *testing.T) {
	h := func(n int) Host {
		return Host{Name: fmt.Sprintf("h%d", n), Address: fmt.Sprintf("10.0.0.%d", n), RDMA: "mlx5_0:1"}
	}
	two := []Host{h(1), h(2)}
	flows := []Flow{{h(1), h(5)}, {h(2), h(6)}}
	var b strings.Builder
	for _, w := range []Workload{
		{Name: "tcp", Kind: IPerf3, Flows: flows, Duration: 3 * time.Second, Warmup: 1500 * time.Millisecond, Interval: 500 * time.Millisecond, Congestion: "cubic", Streams: 2},
		{Name: "udp", Kind: IPerf3, Flows: flows[:1], Duration: time.Second, UDP: true, Rate: 1e7, Port: 6000, Arguments: []string{"--tos", "8"}},
		{Name: "bw", Kind: Perftest, Flows: flows[:1], Duration: 3 * time.Second, Size: 65536, JSON: true},
		{Name: "lat", Kind: Perftest, Command: []string{"/opt/ib_write_lat"}, Flows: flows[:1], Duration: 3 * time.Second, Size: 2},
		{Name: "bound", Kind: Perftest, Command: []string{"numactl", "-N", "1", "ib_write_lat"}, Flows: flows[:1], Duration: 3 * time.Second, Size: 2},
		{Name: "mpi", Kind: NCCL, Hosts: two, Size: 8, SizeTo: 1 << 30, PerHost: 8, Iterations: 50, Env: []string{"NCCL_DEBUG=INFO", "NCCL_IB_HCA==mlx5_0"}, LaunchArgs: []string{"--allow-run-as-root"}, JSON: true},
		{Name: "each", Kind: NCCL, Hosts: two, Size: 1 << 20, Launcher: "each", JSON: true},
		{Name: "static", Kind: Torchrun, Hosts: two, PerHost: 4, Command: []string{"train.py", "--lr", "0.1"}},
		{Name: "c10d", Kind: Torchrun, Hosts: two, Command: []string{"train"}, LaunchArgs: []string{"-m"}, Rendezvous: "c10d", Port: 29400},
		{Name: "atp", Kind: ATP, Hosts: two, Servers: []Host{h(3)}, Command: []string{"/opt/atp/client/app"}, Server: []string{"/opt/atp/server/app"}, AppID: 1, Arguments: []string{"-a", "100"}},
		{Name: "switchml", Kind: SwitchML, Hosts: two, Arguments: []string{"--verify"}},
		{Name: "exec", Kind: Exec, Hosts: two, Command: []string{"/opt/run", "a b", "$(c)"}, Env: []string{"X=1"}},
	} {
		servers, clients := w.Commands()
		for _, c := range append(servers, clients...) {
			fmt.Fprintf(&b, "%s on %s", c.Name, c.Host)
			for _, f := range []struct {
				what string
				is   bool
				v    any
			}{{"server", c.Server, ""}, {"listens on", c.Listen != 0, c.Listen}, {"about", c.Part != "", c.Part}, {"writes", c.File != "", c.File}} {
				if f.is {
					fmt.Fprint(&b, strings.TrimRight(fmt.Sprintf(", %s %v", f.what, f.v), " "))
				}
			}
			fmt.Fprintf(&b, "\n\t%q\n", c.Argv)
			if len(c.Env) > 0 {
				fmt.Fprintf(&b, "\t%q\n", c.Env)
			}
		}
	}
	golden.Compare(t, "commands.golden", b.String())
}

// TestDoubt: what hosts send is held against what a program is known to reduce, where that is most of it.
func TestDoubt(t *testing.T) {
	for _, c := range []struct {
		w    Workload
		says string
	}{
		{Workload{Kind: NCCL, Size: 1 << 20, SizeTo: 1 << 30}, ""},
		{Workload{Kind: NCCL, Size: 8, SizeTo: 1 << 30}, ""},
		{Workload{Kind: NCCL}, "8 bytes in the mean"},
		{Workload{Kind: NCCL, Size: 64, SizeTo: 4096}, "headers are as much"},
		{Workload{Kind: NCCL, Size: 1 << 30, Arguments: []string{"-C", "1", "-w", "50"}}, "argument -w"},
		{Workload{Kind: NCCL, Size: 1 << 30, Arguments: []string{"--iters=7"}}, "argument --iters=7"},
		{Workload{Kind: NCCL, Size: 1 << 30, Arguments: []string{"-c", "1"}}, "argument -c"},
		{Workload{Kind: Exec}, ""},
	} {
		if got := c.w.Doubt(nil); c.says == "" && got != "" || !strings.Contains(got, c.says) {
			t.Errorf("%+v: %q, want %q", c.w, got, c.says)
		}
	}
	for out, says := range map[string]string{said(5, 20, 0): "", said(5, 20, 1): "", said(5, 20, 2): "argument -c", said(1, 20, 2): "", said(1, 20, 2)[:60]: "argument -c"} {
		w := Workload{Kind: NCCL, Size: 1 << 30, Arguments: []string{"-c", "N"}}
		if got := w.Doubt([]byte(out)); says == "" && got != "" || !strings.Contains(got, says) {
			t.Errorf("%s: %q, want %q", out, got, says)
		}
	}
}

// said is how nccl-tests says how often it all-reduces.
func said(warmup, iterations, checks int) string {
	return fmt.Sprintf("[1,0]<stdout>:# nThread 1 nGpus 1 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: %d iters: %d agg iters: 1 validation: %d graph: 0\n", warmup, iterations, checks)
}

// TestLongOutput: of a program that says more than anybody reads, what it said first is kept, and soon.
func TestLongOutput(t *testing.T) {
	var b strings.Builder
	b.WriteString("# size count time algbw busbw\n")
	for i := range 200_000 {
		fmt.Fprintf(&b, "%d 1 nan nan nan\n", 100001+2*i)
	}
	for i := range 50_000 {
		fmt.Fprintf(&b, "%d 1 1 1 1\n", 900001+2*i)
	}
	b.WriteString("# Out of bounds values : 0 OK\n")
	r, err := ReadNCCLText([]byte(b.String()))
	if err != nil || len(r.Notes) > 101 || len(r.Figures) != mostFigures || !r.over {
		t.Errorf("%v: %d notes, %d figures", err, len(r.Notes), len(r.Figures))
	}
}

// TestLongLine: a line that nobody reads to its end is cut, and the table around it is read.
func TestLongLine(t *testing.T) {
	text, err := os.ReadFile("testdata/nccl-new.txt")
	if err != nil {
		t.Fatal(err)
	}
	want, err := ReadNCCLText(text)
	if err != nil {
		t.Fatal(err)
	}
	long := append([]byte(strings.Repeat("x", 5<<20)+"\n"), text...)
	got, err := ReadNCCLText(long)
	if err != nil || len(got.Figures) != len(want.Figures) || !slices.Contains(got.Notes, "line 1 has 5242881 bytes: the first 1048576 were read") {
		t.Errorf("%v: %+v", err, got)
	}
	if problems := CheckSwitchML([]byte("# "+strings.Repeat("x", 1<<20)+"\n[general]\nbackend = rdma\n"), 2); slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, "backend = \"\"") }) {
		t.Errorf("a long comment: %q", problems)
	}
}

// Sizes double; every one is reduced out of place and in place, once to begin, as often as it is timed and as often as it is
// checked. To warm up, the smallest and the largest are; since 2.16.8, all.
func TestReduced(t *testing.T) {
	const once, ends = 1024 + 2048 + 4096, 1024 + 4096
	for _, c := range []struct {
		out          string
		bytes, calls float64
	}{
		{"", 2*(1+9+1)*once + 5*ends, 3*22 + 10},
		{said(5, 9, 1), 2*(1+9+1)*once + 5*ends, 3*22 + 10},
		{strings.Replace(said(5, 9, 1), "agg iters: 1 ", "", 1), 2*(1+9+1)*once + 5*ends, 3*22 + 10}, // to 2.11
		{said(5, 9, 0), 2*(1+9)*once + 5*ends, 3*20 + 10},
		{said(1, 9, 1), (2*(1+9+1) + 1) * once, 3 * 23},
		{said(1, 9, 20), (2*(1+9+20) + 1) * once, 3 * 61},
		{strings.Replace(said(1, 9, 1), "agg iters: 1", "agg iters: 4", 1), (2*(1+36+1) + 1) * once, 3 * 77},
		{"# nccl-tests version 2.19.6 nccl-headers=22907\n" + said(3, 9, 1), (2*(1+9+1) + 3) * once, 3 * 25},
	} {
		w := Workload{Kind: NCCL, Size: 1 << 10, SizeTo: 1 << 12, Iterations: 9}
		if got, calls := w.Reduced([]byte(c.out)); got != c.bytes || calls != c.calls {
			t.Errorf("%q: %v bytes in %v calls, want %v in %v", c.out, got, calls, c.bytes, c.calls)
		}
	}
	if got, _ := (&Workload{Kind: Exec}).Reduced(nil); got != 0 {
		t.Errorf("of another program: %v bytes", got)
	}
}

// The longest vectors of a table, text or JSON.
func TestLongest(t *testing.T) {
	for file, want := range map[string]int64{"nccl-new.txt": 512 << 20, "nccl.json": 1 << 20} {
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		w := Workload{Name: "A", Kind: NCCL, JSON: strings.HasSuffix(file, ".json")}
		r, err := w.Read([]Output{{Stdout: text, Written: text}})
		if err != nil || r.Longest != want {
			t.Errorf("%s: %v bytes, want %v; %v", file, r.Longest, want, err)
		}
	}
}

// What several processes printed becomes figures of the program and of its parts.
func TestRead(t *testing.T) {
	out := func(part, text string) Output { return Output{Command: Command{Part: part}, Stdout: []byte(text)} }
	rules := []Rule{{Metric: "rate", Unit: "1/s", Regexp: `rate (\S+)`}}
	for _, test := range []struct {
		w    Workload
		outs []Output
		want string
	}{
		{Workload{Name: "A", Kind: Exec, Rules: rules}, []Output{out("h1", "rate 1"), out("h2", "rate 3")}, "rate of A/h1: 1, rate of A/h2: 3"},
		{Workload{Name: "A", Kind: Exec, Rules: rules}, []Output{out("", "rate 1")}, "rate of A: 1"},
		{Workload{Name: "A", Kind: Torchrun, Rules: rules}, []Output{out("", "rate 1"), out("", "nothing"), out("", "rate 3")}, "rate of A: 2"},
		{Workload{Name: "A", Kind: Exec, Rules: rules}, []Output{out("h1", "rate 1"), out("h2", "none")}, `rate: unexpected output: nothing at "rate (\\S+)"`},
	} {
		r, err := test.w.Read(test.outs)
		var got []string
		if err != nil {
			got = append(got, err.Error())
		} else {
			for _, f := range r.Figures {
				got = append(got, fmt.Sprintf("%s of %s: %v", f.Metric, f.Of, f.Value))
			}
		}
		if s := strings.Join(got, ", "); !strings.HasSuffix(s, test.want) {
			t.Errorf("%s, want %s", s, test.want)
		}
	}
}
