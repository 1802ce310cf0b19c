package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// skipInTests: machines that run tests may save power.
const skipInTests = "governor"

// TestMain makes this binary the program under test: scripts find it as inabench in
// their path, and it starts itself again as agent, host and switch.
func TestMain(m *testing.M) {
	held(os.Args)
	mortal()
	if code, ok := hidden(os.Args, os.Stdin, os.Stdout, os.Stderr); ok {
		syscall.Exit(code) // the race detector sleeps for a second in os.Exit
	}
	enterLab()
	flag.Set("test.parallel", strconv.Itoa(max(3, runtime.GOMAXPROCS(0)))) // labs mostly wait
	os.Setenv("INABENCH_SKIP_PREFLIGHT", skipInTests)
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	testscript.Main(m, map[string]func(){"inabench": func() { os.Exit(Main(os.Args, os.Stdin, os.Stdout, os.Stderr)) }, "confined": confined, "hog": hog})
}

// commands are what scripts can do besides testscript's own:
//
//	code N COMMAND ...      runs a command that must exit with N
//	decide N COMMAND ...    the same, again while it exits with 7, inconclusive: the
//	                        machine was busy with something else
//	start NAME COMMAND ...  starts a command in the background
//	await NAME REGEXP [FILE]
//	                        waits until its output, or a file that it writes, matches
//	signal NAME SIGNAL [ARGV]
//	                        sends it a signal, or to the process below it whose
//	                        arguments contain ARGV
//	finish NAME N           waits for its end with N, and for that of every process it
//	                        ever had below it; then stdout and stderr are its own
//	json FILE [PATH VALUE]  FILE (or stdout) is one JSON document; VALUE is a regular
//	                        expression for what is at PATH, such as .points[0].jobs
//	columns N               no line of stdout is longer
//	tty COMMAND ...         runs a command whose stdout and stderr are a terminal
//	modest N COMMAND ...    runs a command for at most 1.5 s: then it gets SIGTERM, of which
//	                        it ends within N s with its exit code or 9; it leaves no process
//	                        and never has more than 256 MB
//	hogs                    keeps every core busy, three times over, to the end
//	lab [NAME=FAULT ...]    serves a lab of two hosts and a switch, in lab.toml
//	nights DIR N            fills DIR with runs of two-jobs in N nights; from the 20th on A is
//	                        5 % slower
//	past DIR N TIMES        gives every run in DIR one a day for N days before it, with TIMES its
//	                        goodput
//	killed SUITE.json ITEM  makes a night one that was killed while it ran its item
//	jobs                    waits until no other script runs jobs on lo; they would take
//	                        the same UDP ports
var commands = map[string]func(*testscript.TestScript, bool, []string){
	"code":    cmdCode,
	"decide":  cmdDecide,
	"start":   cmdStart,
	"await":   cmdAwait,
	"signal":  cmdSignal,
	"finish":  cmdFinish,
	"json":    cmdJSON,
	"columns": cmdColumns,
	"tty":     cmdTTY,
	"hogs":    cmdHogs,
	"modest":  cmdModest,
	"lab":     cmdLab,
	"jobs":    cmdJobs,
	"nights":  cmdNights,
	"past":    cmdPast,
	"killed":  cmdKilled,
}

func params(dir string) testscript.Params {
	return testscript.Params{
		Dir: dir, Cmds: commands, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Values[backgroundKey] = map[string]*background{}
			e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "state"))
			e.Setenv("XDG_CACHE_HOME", filepath.Join(e.WorkDir, "cache")) // what this machine carries is not known
			e.Setenv("INABENCH_SKIP_PREFLIGHT", skipInTests)
			e.Defer(func() { takeDown(e) })
			return nil
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "root":
				return os.Geteuid() == 0, nil
			case "proofs":
				return proof.Wanted(), nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
	}
}

// takeDown takes down what a script that failed has left up.
func takeDown(e *testscript.Env) {
	if _, err := os.Stat(filepath.Join(e.Getenv("XDG_CACHE_HOME"), "inabench", "up")); err != nil {
		return
	}
	cmd := exec.Command("/proc/self/exe", "down", "--all")
	cmd.Args[0] = "inabench"
	cmd.Env = e.Vars
	if said, err := cmd.CombinedOutput(); err != nil {
		e.T().Log(fmt.Sprintf("inabench down --all: %v\n%s", err, said))
	}
}

// TestScript runs what needs no emulation.
func TestScript(t *testing.T) {
	t.Parallel() // beside others that wait, when no emulation is measured
	testscript.Run(t, params("testdata/script"))
}

// TestConfined runs what is about machines that lack something.
func TestConfined(t *testing.T) {
	testbedtest.Require(t, "netns", namespaces()) // they are made to lack it inside one
	t.Parallel()
	testscript.Run(t, params("testdata/confined"))
}

// TestEmulation runs whole emulations, one after the other: they disturb each other.
func TestEmulation(t *testing.T) {
	testbedtest.Require(t, "netns", namespaces())
	testscript.RunT(serial{t}, params("testdata/netns"))
}

// TestOpenSSH runs emulations whose hosts have OpenSSH's server.
func TestOpenSSH(t *testing.T) {
	_, err := netns.FindOpenSSH()
	testbedtest.Require(t, "openssh", err)
	testbedtest.Require(t, "netns", namespaces())
	testscript.RunT(serial{t}, params("testdata/openssh"))
}

// namespaces says why there can be no emulation on this machine, nil if there can.
func namespaces() error {
	ctx, cancel := timeout()
	defer cancel()
	report, err := netns.Probe(ctx)
	if err != nil {
		return err
	}
	return report.Err()
}

// serial is a testing.T whose scripts do not run in parallel.
type serial struct{ *testing.T }

func (s serial) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(serial{t}) })
}
func (serial) Parallel()     {}
func (serial) Verbose() bool { return testing.Verbose() }

func usage(ts *testscript.TestScript, neg, ok bool, how string) {
	if neg || !ok {
		ts.Fatalf("usage: %s", how)
	}
}

// exitStatus is the code that a command exited with.
func exitStatus(ts *testscript.TestScript, err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	ts.Fatalf("%v", err)
	return -1
}

func number(ts *testscript.TestScript, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		ts.Fatalf("%q is not a number", s)
	}
	return n
}

func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "code N COMMAND ...")
	if got := exitStatus(ts, ts.Exec(args[1], args[2:]...)); got != number(ts, args[0]) {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

func cmdDecide(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "decide N COMMAND ...")
	got := exitStatus(ts, ts.Exec(args[1], args[2:]...))
	for until := time.Now().Add(8 * time.Minute); got == exitInconclusive && time.Now().Before(until); {
		time.Sleep(2 * time.Second) // other packages' tests share the machine, for a while
		got = exitStatus(ts, ts.Exec(args[1], args[2:]...))
	}
	if got != number(ts, args[0]) {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1 || len(args) == 3, "json FILE [PATH VALUE]")
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		ts.Fatalf("%s is not JSON: %v", args[0], err)
	}
	if err := dec.Decode(new(any)); err != io.EOF {
		ts.Fatalf("%s holds more than one JSON document", args[0])
	}
	if len(args) == 1 {
		return
	}
	for _, step := range regexp.MustCompile(`\.\w+|\[\d+\]`).FindAllString(args[1], -1) {
		switch v := doc.(type) {
		case map[string]any:
			doc = v[strings.TrimPrefix(step, ".")]
		case []any:
			i := number(ts, strings.Trim(step, "[]"))
			if i >= len(v) {
				ts.Fatalf("%s: %d elements before %s", args[1], len(v), step)
			}
			doc = v[i]
		default:
			ts.Fatalf("%s: nothing at %s", args[1], step)
		}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(doc); err != nil {
		ts.Fatalf("%v", err)
	}
	got := strings.TrimSpace(text.String())
	if s, ok := doc.(string); ok {
		got = s
	}
	if !regexp.MustCompile("^(?:" + args[2] + ")$").MatchString(got) {
		ts.Fatalf("%s is %s, want %s", args[1], got, args[2])
	}
}

func cmdColumns(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "columns N")
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > number(ts, args[0]) {
			ts.Fatalf("%d columns: %s", n, line)
		}
	}
}

func cmdHogs(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 0, "hogs")
	for i := range 3 * runtime.NumCPU() {
		name := fmt.Sprintf("hog%d", i)
		cmdStart(ts, false, []string{name, "hog"})
		cmdAwait(ts, false, []string{name, "busy"})
	}
}

func cmdModest(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "modest N COMMAND ...")
	const name = "modest"
	most := int64(256 << 20)
	if netnstest.Race {
		most *= 4
	}
	cmdStart(ts, false, append([]string{name}, args[1:]...))
	b := find(ts, name)
	asked := false
	for begin, limit := time.Now(), 1500*time.Millisecond; ; {
		select {
		case <-b.ended:
		case <-time.After(20 * time.Millisecond):
			b.look()
			switch took := time.Since(begin); {
			case took < limit:
			case !asked:
				ts.Check(b.cmd.Process.Signal(syscall.SIGTERM))
				asked, begin, limit = true, time.Now(), time.Duration(number(ts, args[0]))*time.Second
			default:
				ts.Fatalf("%s: has not ended %v after SIGTERM:\n%s", args[1], took, b.stderr.String())
			}
			continue
		}
		break
	}
	code := b.code()
	if asked && code != 128+int(syscall.SIGTERM) && code != exitLeftovers {
		ts.Fatalf("%s: exit code %d after SIGTERM", strings.Join(args[1:], " "), code)
	}
	cmdFinish(ts, false, []string{name, strconv.Itoa(code)})
	ts.Logf("%s: %d MB", strings.Join(args[1:], " "), b.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss>>10)
	if kB := b.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; kB<<10 > most {
		ts.Fatalf("%s: had %d MB", strings.Join(args[1:], " "), kB>>10)
	}
}

// hog keeps one core busy until it is killed.
func hog() {
	runtime.LockOSThread()
	fmt.Println("busy")
	for i := 0; ; i++ {
		runtime.KeepAlive(i)
	}
}
