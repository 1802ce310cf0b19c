package program_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/collectors/reader"
	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/report"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/sharp"
	"github.com/inabench/inabench/testbed/testbedtest"
)

var noNamespaces error

// TestMain plays every part of an emulation, and a program that hosts have.
func TestMain(m *testing.M) {
	netnstest.Play(netnstest.Parts{"agent": agent.Main, collectors.ReaderVerb: reader.Main, "all-reduce-perf": allReducePerf, "listen": listen, "ask": ask, "print": printArgument})
	noNamespaces = errors.New("fuzzing, whose workers are processes of their own")
	if !slices.ContainsFunc(os.Args, func(a string) bool {
		return strings.HasPrefix(a, "-test.fuzz=") || strings.HasPrefix(a, "-test.fuzzworker")
	}) {
		noNamespaces = netnstest.Enter()
	}
	os.Exit(m.Run())
}

// allReducePerf prints what nccl-tests prints with the SHARP plugin of NCCL, and sends to a
// peer as many bytes as an all-reduce does. --as says what befalls it:
//
//	sharp     switches add up
//	refused   the streaming tree is another's: NCCL goes on over its network
//	tuned     SHARP is there, and NCCL's tuner chooses a ring
//	nvlink    SHARP is there, and NVLink's switches add up within hosts, a tree of hosts between them
//	old       that of NCCL 2.19, which does not say what it chooses
//	oldring   that of NCCL 2.19, and hosts send what a ring does
//	silent    there is no SHARP, and no word of it
//	boasting  the log is that of sharp, and hosts send what a ring does
//	less      a tree with less than was asked for
//	wrong     switches add up, wrongly
//	fails     a network error: no table, exit status 3
func allReducePerf(_ context.Context, _ io.Reader, stdout io.Writer) error {
	f := flag.NewFlagSet("all-reduce-perf", flag.ContinueOnError)
	as, peers := f.String("as", "sharp", ""), f.String("peers", "", "")
	size, to := f.Int("b", 0, ""), f.Int("e", 0, "")
	iterations := f.Int("n", 20, "")
	if err := f.Parse(os.Args[2:]); err != nil {
		return err
	}
	rank, _ := strconv.Atoi(os.Getenv("RANK"))
	n, _ := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	say := func(format string, args ...any) { fmt.Fprintf(stdout, format+"\n", args...) }
	info := func(format string, args ...any) {
		say("h%d:7:7 [0] NCCL INFO "+format, append([]any{rank + 1}, args...)...)
	}
	library := func(s fmt.Stringer) { say("[h%d:0:7 - context.c:665][2026-01-02 03:04:05] INFO %s", rank+1, s) }
	say("HF_TOKEN=hf_0123456789abcdefghij") // as a careless script prints its environment

	ring := 2 * float64(n-1) / float64(n)
	quota, factor, algorithm := sharp.Quota{OSTs: 167, UserData: 1024, Groups: 167, QPs: 1, GroupChannels: 1}, 1.0, "COLLNET_DIRECT"
	version := "2.27.7"
	switch *as {
	case "refused", "tuned", "silent":
		factor, algorithm = ring, "RING"
	case "nvlink":
		algorithm = "NVLS_TREE"
	case "old":
		version, algorithm = "2.19.4", ""
	case "oldring":
		version, algorithm, factor = "2.19.4", "", ring
	case "boasting":
		factor = ring
	case "less":
		quota.OSTs = 16
	case "fails":
		say("h%d: Test NCCL failure common.cu:958 'remote process exited or there was a network error'", rank+1)
		return errors.New("exit")
	}
	if rank == 0 {
		say("NCCL version %s+cuda12.9", version)
	}
	if *as != "silent" {
		library(sharp.Asked{ID: 41, Quota: sharp.Quota{QPs: 1, GroupChannels: 1}, Trees: 1})
		library(sharp.Tree{Job: 41, Type: sharp.LLT, ID: 18, Caps: 5, Quota: quota})
		library(sharp.Tree{Job: 41, Type: sharp.SAT, Index: 1, ID: 64, Caps: 0x16})
		info("SHARP rank %d/%d initialized on mlx5_0:1", rank, n)
		if *as == "refused" {
			say("[h%d:0:7 - context.c:665] ERROR Failed to lock SAT tree(ID:0x40 ret:0x4)", rank+1)
			say("h%d:7:7 [0] NCCL WARN SHARP group create: Streaming Tree lock failed (-18)", rank+1)
		} else {
			library(sharp.Group{Job: 41, Type: sharp.SAT, Tree: 1, Size: n, Quota: quota})
			info("CollNet 06/0 : 6 [receive] via COLLNET/SHARP/6/GDRDMA")
		}
	}
	calls := 2*(*iterations+2) + 10
	for i := range calls {
		info("AllReduce: opCount %x sendbuff 0x7f00 recvbuff 0x7f80 count %d datatype 7 op 0 root 0 comm 0x55d0 [nranks=%d] stream 0x55d8", i, *to/4, n)
		if rank == 0 && algorithm != "" {
			info("AllReduce: %d Bytes -> Algo %s proto SIMPLE channel{Lo..Hi}={0..3}", *to, algorithm)
		}
	}
	reduced := calls * *to
	if err := send(*peers, rank, n, int(factor*float64(reduced))); err != nil {
		return err
	}
	if rank != 0 {
		return nil
	}
	wrong, verdict := 0, "OK"
	if *as == "wrong" {
		wrong, verdict = 3, "FAILED"
	}
	say("# nThread 1 nGpus 1 minBytes %d maxBytes %d step: 2(factor) warmup iters: 5 iters: %d agg iters: 1 validation: 1 graph: 0", *size, *to, *iterations)
	for i := range n {
		say("#  Rank %2d Group  0 Pid %6d on         h%d device  0 [0000:07:00] NVIDIA H100", i, 100+i, i+1)
	}
	say("#                                                              out-of-place                       in-place")
	say("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong")
	say("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)")
	say("%12d  %12d     float     sum      -1  %7.2f  %6.4f  %6.4f  %5d  %7.2f  %6.4f  %6.4f      0", *to, *to/4, 8000.0, 0.0082, 0.0123, wrong, 8000.0, 0.0082, 0.0123)
	say("# Out of bounds values : %d %s\n# Avg bus bandwidth    : 0.0123", wrong, verdict)
	return nil
}

// printArgument prints its argument.
func printArgument(_ context.Context, _ io.Reader, stdout io.Writer) error {
	_, err := fmt.Fprintln(stdout, os.Args[2])
	return err
}

// send sends so many bytes to the next rank's host.
func send(peers string, rank, n, bytes int) error {
	addr := strings.Split(peers, ",")[(rank+1)%n]
	c, err := net.Dial("udp", addr+":7777")
	if err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	packet := make([]byte, 1400)
	for sent := 0; sent < bytes; {
		for range 8 {
			_, _ = c.Write(packet) // nobody listens there, which it may be told
			sent += len(packet)
		}
		<-tick.C
	}
	return nil
}

const rack = `version = 1
[[switch]]
name = "tor1"
kind = "soft"
[[host]]
name = "h[1-4]"
nic = {port = "tor1/[1-4]", rate = "100Mbit/s", address = "10.0.0.[1-4]/24"}
`

// perform runs an experiment on an emulated rack and returns its record and directory.
func perform(t *testing.T, spec string) (*results.Record, *results.Dir, error) {
	t.Helper()
	inv, err := inventory.Parse("rack.toml", []byte(rack))
	if err != nil {
		t.Fatal(err)
	}
	s, err := kinds.Parse("test.toml", []byte("version = 1\n[emulation]\nscale = \"none\"\n"+spec), inv)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	return experiments.Run(ctx, s, experiments.RunOptions{Driver: "netns", Root: t.TempDir(), Tool: "test"})
}

// A job that asks for SHARP and goes on without it ends well, and so the run must not: whoever
// reads its figures would take a ring's for those of switches.
func TestFallback(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		as   string
		want results.Outcome
		code string
		says string
	}{
		{"sharp", results.Pass, "", ""},
		{"refused", results.Fail, results.CodeFallback, "lock of the tree refused"},
		{"tuned", results.Fail, results.CodeFallback, "NCCL chose RING"},
		{"nvlink", results.Fail, results.CodeFallback, "NCCL chose NVLS_TREE"},
		{"old", results.Pass, "", ""}, // the hosts' counters prove it
		{"oldring", results.Fail, results.CodeFallback, "around a ring 1.50"},
		{"silent", results.Fail, results.CodeFallback, "no line says that a tree was granted"},
		{"boasting", results.Fail, results.CodeFallback, "around a ring 1.50"},
		{"less", results.Fail, results.CodeGranted, "osts: asked for 100, granted 16"},
		{"wrong", results.Fail, results.CodeWrong, "3 wrong values"},
		{"fails", results.ErrorOutcome, "", "Test NCCL failure"},
	} {
		if !proof.Wanted() && test.as != "sharp" && test.as != "refused" {
			continue
		}
		t.Run(test.as, func(t *testing.T) {
			rec, dir, err := perform(t, fmt.Sprintf(`
[measure]
duration = "20s" # by which lateness is judged
[[program]]
name = "A"
kind = "nccl-tests"
command = [%q, "all-reduce-perf", "--peers", "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4", "--as", %q]
launcher = "each"
hosts = ["h1", "h2", "h3", "h4"]
sizes = ["64KiB"]
iterations = 5
sharp = {tree = "SAT", osts = 100, traffic = "required"}
[[expect]]
metric = "algbw"
value = "65.6Mbit/s"
tolerance = "1%%"
reason = "it is what the program prints"
[[expect]]
name = "no more than the link"
metric = "algbw"
bound = "at-most"
tolerance = "0%%"
reason = "each host sends every vector once"
`, exe, test.as))
			if rec == nil {
				t.Fatal(err)
			}
			if rec.Outcome != test.want || (err != nil) != (test.want == results.ErrorOutcome) {
				t.Errorf("%s, %v, want %s: %q", rec.Outcome, err, test.want, rec.Reasons)
			}
			var codes []string
			for _, c := range rec.Checks {
				if c.Code != "" && c.Outcome == results.Fail {
					codes = append(codes, c.Code)
				}
			}
			if strings.Join(codes, " ") != test.code {
				t.Errorf("failed with codes %q, want %q", codes, test.code)
			}
			if all := strings.Join(rec.Reasons, "\n"); !strings.Contains(all, test.says) || !strings.Contains(all, test.code) {
				t.Errorf("reasons %q, want %q", all, test.says)
			}
			kept, _ := filepath.Glob(filepath.Join(dir.Path, "programs", "*", "A.h*.stdout"))
			if len(kept) != 4 && test.want != results.ErrorOutcome {
				t.Errorf("kept: %q", kept)
			}
			for _, file := range kept {
				text, err := os.ReadFile(file)
				if err != nil || bytes.Contains(text, []byte("hf_0123")) || !bytes.Contains(text, []byte("HF_TOKEN=[removed]")) {
					t.Errorf("%s: %v: %.200s", file, err, text)
				}
			}
			if test.want == results.Pass {
				var b strings.Builder
				if err := report.WriteText(&b, rec, report.TextOptions{Width: 100}); err != nil {
					t.Fatal(err)
				}
				t.Log(b.String())
			}
		})
	}
}

// UDP by iperf3 and a program that prints JSON, together: each flow gets its rate, a name that
// looks like a shell's arrives as it is, and the prediction is that of the links.
func TestPrograms(t *testing.T) {
	proof.Only(t, "experiments runs iperf3, too")
	testbedtest.Require(t, "netns", noNamespaces)
	_, err := exec.LookPath("iperf3")
	testbedtest.Require(t, "iperf3", err)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec := fmt.Sprintf(`
[measure]
duration = "3s"
warmup = "1s"
interval = "200ms"
[[program]]
name = "U"
kind = "iperf3"
pairs = ["h1->h2", "h3->h2"]
protocol = "udp"
rate = "2Mbit/s"
[[program]]
name = "E"
kind = "exec"
command = [%q, "print"]
arguments = ["{\"bw\": [2, 2], \"name\": \"$(touch /tmp/pwned) 'it' \\\"is\\\"\"}"]
hosts = ["h1", "h4"]
[[program.extract]]
metric = "copy_rate"
unit = "GB/s"
json = "bw.*"
[[expect]]
metric = "goodput"
of = "U/*"
tolerance = "5%%"
reason = "two flows of 2 Mbit/s fit a link of 100"
[[expect]]
metric = "loss"
value = 0
tolerance = "0.01"
reason = "no queue fills up"
[[expect]]
metric = "copy_rate"
value = "16Gbit/s"
tolerance = "1%%"
reason = "it is what the program prints, in GB/s"
`, exe)
	rec, dir, err := perform(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	switch rec.Outcome {
	case results.Pass:
	case results.Inconclusive: // on a busy machine
		t.Logf("%q", rec.Reasons)
	default:
		t.Errorf("%s: %q", rec.Outcome, rec.Reasons)
	}
	got := map[string]float64{}
	for _, f := range rec.Points[0].Phases[0].Figures {
		got[fmt.Sprintf("%s %s of %s", f.Kind, f.Metric, f.Of)] = f.Value
		if f.Metric == "goodput" || f.Metric == "copy_rate" || f.Metric == "total_goodput" {
			t.Logf("%s %s of %s: %s", f.Kind, f.Metric, f.Of, human.Quantity(f.Value, f.Unit))
		}
	}
	for name, want := range map[string]float64{
		"predicted goodput of U/h1->h2": 2e6, "predicted goodput of U/h3->h2": 2e6, "predicted total_goodput of cluster": 4e6,
		"measured copy_rate of E/h1": 16e9, "measured copy_rate of E/h4": 16e9,
	} {
		if math.Abs(got[name]-want) > 1e-6*want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
	for _, name := range []string{"measured goodput of U/h1->h2", "measured goodput of U/h3->h2"} {
		if v := got[name]; !(v > 0 && v < 2.2e6) { // how near it comes is the machine's
			t.Errorf("%s: %v", name, v)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir.Path, "programs", "point0-repeat0", "E.h4.stdout")); err != nil || !strings.Contains(string(text), `$(touch /tmp/pwned) 'it' \"is\"`) {
		t.Errorf("it arrived as %s: %v", text, err)
	}
}

// A program that is not there is said before anything is brought up, with what installs it.
func TestMissing(t *testing.T) {
	_, _, err := perform(t, `
[[program]]
name = "A"
kind = "nccl-tests"
hosts = ["h1", "h2"]
command = ["/opt/none/all_reduce_perf"]
launcher = "each"
`)
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "/opt/none/all_reduce_perf is not installed") || tomlfile.HintOf(err) == "" {
		t.Errorf("%v (%s)", err, tomlfile.HintOf(err))
	}
}
