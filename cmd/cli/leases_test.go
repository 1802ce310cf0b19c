package cli

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// Tests of leases, journals and clean: several programs, as processes, on one lab whose
// hosts and switches are others' processes, which outlive them.

var killSeed = flag.Uint64("kill-seed", uint64(time.Now().UnixNano()), "of the moments at which testKills kills")

// ttlOfFaults is the time to live of leases in these runs.
var ttlOfFaults = 3 * patienceOfFaults

// TestLeases runs each test beside others, inside namespaces of its own where its lab is.
func TestLeases(t *testing.T) {
	testbedtest.Require(t, "netns", namespaces())
	t.Parallel()
	for _, test := range []struct {
		name string
		slow bool
		run  func(*testing.T)
	}{
		{"kills", true, func(t *testing.T) { testKills(t, 0) }}, // the longest first
		{"more kills", true, func(t *testing.T) { testKills(t, 1) }},
		{"out of reach", true, testOutOfReach},
		{"full disk", true, testFullDisk},
		{"left alone", true, testLeftAlone},
		{"stuck", true, testStuck},
		{"two controllers", true, testTwoControllers},
		{"clean, OpenSSH", true, func(t *testing.T) {
			_, err := netns.FindOpenSSH()
			testbedtest.Require(t, "openssh", err)
			testClean(t, netns.OpenSSH)
		}},
		{"clean", false, func(t *testing.T) { testClean(t, netns.Embedded) }},
		{"reboot", true, testCleanAfterReboot},
		{"takeover", true, testTakeover},
		{"lock", false, testLock},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.slow {
				proof.Only(t, "waits for leases to lapse, or as another does")
			}
			t.Parallel()
			if netnstest.Apart(t) {
				test.run(t)
			}
		})
	}
}

// runningLab is a lab on which a run measures.
func runningLab(t *testing.T, sshd string) *faultyLab {
	l := newFaultyLab(t, &fault{sshd: sshd})
	l.run = l.start("run", "exp.toml", "--on", "lab", "--runs", "runs", "--set", "measure.patience="+patienceOfFaults.String())
	l.await(`"worker A/0"`)
	l.look()
	return l
}

// call runs the program to its end and checks its exit code.
func (l *faultyLab) call(code int, args ...string) (stdout, stderr string) {
	l.t.Helper()
	b := l.start(args...)
	got := l.finish(b)
	for tries := 0; got == exitInconclusive && code == exitOK && tries < 20; tries++ { // the machine was busy with something else
		b = l.start(args...)
		got = l.finish(b)
	}
	stdout, stderr = b.stdout.String(), b.stderr.String()
	if got != code {
		l.t.Fatalf("inabench %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, stdout, stderr)
	}
	return stdout, stderr
}

func (l *faultyLab) says(text, want string) {
	l.t.Helper()
	if !regexp.MustCompile("(?m)" + want).MatchString(text) {
		l.t.Errorf("no %q in\n%s", want, text)
	}
}

// who are the holders of the lab.
func (l *faultyLab) who() (held []holder) {
	l.t.Helper()
	out, _ := l.call(0, "who", "-i", "lab.toml", "-o", "json")
	var doc struct{ Leases []holder }
	l.check(json.Unmarshal([]byte(out), &doc))
	if len(doc.Leases) != 4 {
		l.t.Errorf("%d hosts and switches, want 4:\n%s", len(doc.Leases), out)
	}
	for _, h := range doc.Leases {
		if h.Held {
			held = append(held, h)
		}
	}
	return held
}

// entries is how many jobs, groups and routes the switch has.
func (l *faultyLab) entries() (n [3]int) {
	l.t.Helper()
	sw := l.fabric.Inventory().Switches[0]
	c, err := p4rt.Observe(sw.Name, sw.Control, sw.DeviceID, p4rt.Options{})
	l.check(err)
	defer c.Close(l.t.Context())
	if err := c.Attach(l.t.Context()); errors.Is(err, dataplane.ErrNoPipeline) {
		return n
	} else {
		l.check(err)
	}
	jobs, err := c.ReadJobs(l.t.Context())
	l.check(err)
	groups, err := c.ReadGroups(l.t.Context())
	l.check(err)
	routes, err := c.ReadRoutes(l.t.Context())
	l.check(err)
	return [3]int{len(jobs), len(groups), len(routes)}
}

// journals are those that are left.
func (l *faultyLab) journals() (runs []string) {
	names, err := os.ReadDir(filepath.Join(l.dir, ".local/state/inabench/journal"))
	if !errors.Is(err, fs.ErrNotExist) {
		l.check(err)
	}
	for _, e := range names {
		runs = append(runs, strings.TrimSuffix(e.Name(), ".jsonl"))
	}
	return runs
}

// nothing checks that nothing is left of any run.
func (l *faultyLab) nothing() {
	l.t.Helper()
	l.gone()
	if held := l.who(); len(held) > 0 {
		l.t.Errorf("leases: %+v", held)
	}
	if n := l.entries(); n != [3]int{} {
		l.t.Errorf("the switch has %d jobs, %d groups, %d routes", n[0], n[1], n[2])
	}
	if runs := l.journals(); len(runs) > 0 {
		l.t.Errorf("journals of %v", runs)
	}
}

// short runs are over by themselves.
func shortRun(more ...string) []string {
	return append([]string{"run", "exp.toml", "--on", "lab", "--runs", "runs", "--set", "measure.duration=300ms", "--set", "measure.patience=" + patienceOfFaults.String()}, more...)
}

// testClean kills a run with kill -9, and cleans up after it.
func testClean(t *testing.T, sshd string) {
	l := runningLab(t, sshd)
	if n := l.entries(); n != [3]int{1, 4, 3} {
		t.Errorf("the switch has %d jobs, %d groups, %d routes while it runs", n[0], n[1], n[2])
	}
	out, _ := l.call(8, "clean", l.journals()[0])
	l.says(out, `^$`)
	l.kill(l.run.cmd.Process.Pid, unix.SIGKILL)
	l.finish(l.run)

	_, stderr := l.call(8, shortRun()...)
	l.says(stderr, `^inabench: error: testbed is in use: host h1 is held by \S+ \(run \w+\) for "exp" since \d+s ago, renewed \d+s ago$`)
	l.says(stderr, `^inabench: hint: if that run of yours \(process \d+ on \S+\) is dead, .inabench clean. gives it back at once`)

	before := l.entries()
	out, _ = l.call(0, "clean", "--dry-run")
	t.Log(out)
	l.says(out, `^switch tor1: 1 job, 1 group would be deleted$`)
	l.says(out, `^switch tor1: 3 routes, 3 groups would be deleted$`)
	for _, name := range []string{"host h1", "host h2", "host h3", "switch tor1"} {
		l.says(out, `^`+name+`: lease would be given back$`)
	}
	if after := l.entries(); after != before || len(l.who()) != 4 || len(l.journals()) != 1 {
		t.Errorf("--dry-run has changed something")
	}
	out, _ = l.call(0, "clean")
	t.Log(out)
	l.says(out, `^switch tor1: 1 job, 1 group deleted$`)
	l.says(out, `^run \w+ is clean$`)
	l.nothing()
	out, _ = l.call(0, "clean", "--all")
	l.says(out, `^nothing to clean: `)
	l.call(0, shortRun()...)
	l.nothing()
}

// testCleanAfterReboot cleans up after a run whose controller and host went down at once.
func testCleanAfterReboot(t *testing.T) {
	l := runningLab(t, netns.Embedded)
	l.kill(l.run.cmd.Process.Pid, unix.SIGKILL)
	l.finish(l.run)
	l.check(l.fabric.Reboot(t.Context(), "h1"))
	out, _ := l.call(0, "clean")
	l.says(out, `^run \w+ is clean$`)
	l.nothing()
}

// testLeftAlone cleans up after a run that was killed, while another has the lab.
func testLeftAlone(t *testing.T) {
	l := runningLab(t, netns.Embedded)
	l.kill(l.run.cmd.Process.Pid, unix.SIGKILL)
	l.finish(l.run)
	dead := l.journals()[0]
	l.run = l.start("run", "exp.toml", "--on", "lab", "--runs", "heirs", "--wait", "30s", "--owner", "bob", "--set", "measure.patience="+patienceOfFaults.String())
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(l.dir, "heirs/latest", results.SamplesFile)) // it may not be there yet
		if strings.Contains(string(text), "worker A/0") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the leases of a dead run do not end:\n%s", l.run.stderr.String())
		}
	}
	before := l.entries()
	_, stderr := l.call(9, "clean", dead)
	t.Log(stderr)
	l.says(stderr, `cleanup incomplete: run `+dead+`: `)
	for _, target := range []string{"host h1", "host h2", "host h3", "switch tor1"} {
		l.says(stderr, `left alone: `+target+` is held by bob \(run \w+\) for "exp"`)
	}
	if after := l.entries(); after != before || len(l.journals()) != 2 {
		t.Errorf("%v entries before, %v after; journals %v", before, after, l.journals())
	}
	l.kill(l.run.cmd.Process.Pid, unix.SIGINT)
	if code := l.finish(l.run); code != 130 {
		t.Errorf("the heir: exit code %d\n%s", code, l.run.stderr.String())
	}
	l.call(0, "clean", dead)
	l.nothing()
}

// testOutOfReach cleans up after a run that lost a host, and again when the host is back.
func testOutOfReach(t *testing.T) {
	l := runningLab(t, netns.Embedded)
	l.check(l.fabric.Unplug("h2", true))
	if code := l.finish(l.run); code != 9 {
		t.Errorf("exit code %d\n%s", code, l.run.stderr.String())
	}
	_, stderr := l.call(9, "clean")
	l.says(stderr, `cleanup incomplete: .*host h2.*: unreachable`)
	if strings.Contains(stderr, "h1") || l.entries() != [3]int{} {
		t.Errorf("what can be reached is not clean: %v\n%s", l.entries(), stderr)
	}
	l.check(l.fabric.Unplug("h2", false))
	out, _ := l.call(0, "clean")
	l.says(out, `^host h2: lease given back$`)
	l.nothing()
}

// testStuck stops a controller, which keeps its connections: when its leases have lapsed
// another has the lab, its switch too, and the first notices when it goes on.
func testStuck(t *testing.T) {
	l := runningLab(t, netns.Embedded)
	l.kill(l.run.cmd.Process.Pid, unix.SIGSTOP)
	out, _ := l.call(0, shortRun("--wait", "30s", "--owner", "bob")...)
	l.says(out, `^PASS  exp$`)
	l.kill(l.run.cmd.Process.Pid, unix.SIGCONT)
	if code := l.finish(l.run); code != 6 {
		t.Errorf("exit code %d", code)
	}
	stderr := l.run.stderr.String()
	t.Log(stderr)
	l.says(stderr, `^inabench: error: .*lease lost: `)
	l.nothing()
}

// testFullDisk has a host's disk become full: leases are renewed and given back all the
// same, and none can be taken.
func testFullDisk(t *testing.T) {
	l := newFaultyLab(t, &fault{})
	l.on("h1", "mkdir -p .inabench && mount -t tmpfs -o size=64k tmpfs .inabench")
	l.run = l.start("run", "exp.toml", "--on", "lab", "--runs", "runs", "--set", "measure.patience="+patienceOfFaults.String())
	l.await(`"worker A/0"`)
	l.on("h1", "! cat /dev/zero >.inabench/fill 2>/dev/null")
	select {
	case <-l.run.ended:
		t.Fatalf("the run ends, with a full disk:\n%s", l.run.stderr.String())
	case <-time.After(ttlOfFaults + 2*time.Second):
	}
	l.kill(l.run.cmd.Process.Pid, unix.SIGINT)
	if code := l.finish(l.run); code != 130 {
		t.Errorf("exit code %d\n%s", code, l.run.stderr.String())
	}
	l.nothing()
	_, stderr := l.call(6, shortRun()...)
	l.says(stderr, `^inabench: error: host h1: take a lease: .*no space left on device`)
	l.on("h1", "rm .inabench/fill")
	l.call(0, shortRun()...)
	l.nothing()
}

// testTwoControllers has two runs want one lab.
func testTwoControllers(t *testing.T) {
	l := runningLab(t, netns.Embedded)
	out, _ := l.call(0, "who", "-i", "lab.toml")
	t.Log(out)
	l.says(out, `^WHAT +OWNER +REASON +SINCE +EXPIRES +FENCING +RUN$`)
	l.says(out, `^host h1 +\S+@\S+ +exp +\d+s ago +in \d+s +1 +\w{26}$`)
	first := l.run

	_, stderr := l.call(8, shortRun("--wait", "2s")...) // long enough to be told, on a busy machine
	l.says(stderr, `^inabench: waiting: host h1 is held by `)
	l.says(stderr, `; waited for ([2-9]|\d\d)s$`)

	// Three wait for their turn; all of them get it.
	var waiting []*background
	for range 3 {
		waiting = append(waiting, l.start(shortRun("--wait", "10m")...))
	}
	l.kill(first.cmd.Process.Pid, unix.SIGINT)
	<-first.ended
	if code := first.cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("the first: exit code %d\n%s", code, first.stderr.String())
	}
	for _, b := range waiting {
		select {
		case <-b.ended:
		case <-time.After(5 * time.Minute):
			t.Fatalf("no end:\n%s", b.stderr.String())
		}
		if code := b.cmd.ProcessState.ExitCode(); code != exitOK && code != exitInconclusive {
			t.Errorf("exit code %d\n%s%s", code, b.stdout.String(), b.stderr.String())
		}
	}
	l.nothing()
}

// testTakeover takes a lab from a run.
func testTakeover(t *testing.T) {
	l := runningLab(t, netns.Embedded)
	first := l.run
	_, stderr := l.call(2, shortRun("--takeover")...)
	l.says(stderr, `--takeover without --reason`)
	l.call(0, shortRun("--takeover", "--reason", "deadline", "--owner", "bob")...)
	select {
	case <-first.ended:
	case <-time.After(patience):
		t.Fatal("the first does not notice")
	}
	if code := first.cmd.ProcessState.ExitCode(); code != 6 {
		t.Errorf("exit code %d\n%s", code, first.stderr.String())
	}
	t.Log(first.stderr.String())
	l.nothing()
	out, _ := l.call(0, "who", "-i", "lab.toml", "--audit")
	t.Log(out)
	l.says(out, `^host h1 +2 +20\S+ \S+Z +bob +deadline +\w{26} +\S+@\S+ \(run \w+\): exp$`)
}

// testLock has people lock hosts.
func testLock(t *testing.T) {
	l := newFaultyLab(t, &fault{})
	_, stderr := l.call(2, "lock", "-i", "lab.toml", "h1")
	l.says(stderr, `lock: --reason`)
	out, _ := l.call(0, "lock", "-i", "lab.toml", "--all", "--ttl", "4h", "--reason", "debugging $(the PS) 'now'", "--owner", "anna")
	l.says(out, `^host h1 locked for 4h00m, fencing number 1$`)
	_, stderr = l.call(8, shortRun()...)
	l.says(stderr, `host h1 is held by anna for "debugging \$\(the PS\) 'now'" since \d+s ago, for (4h0m|3h59m|3h60m) more$`)
	l.call(0, shortRun("--owner", "anna")...) // beneath it
	if held := l.who(); len(held) != 4 || held[0].Owner != "anna" || held[0].Run != "" || held[0].Left < 3*3600 {
		t.Errorf("%+v", held)
	}
	out, _ = l.call(0, "extend", "-i", "lab.toml", "--ttl", "8h", "--owner", "anna", "h1")
	l.says(out, `^host h1 locked for 8h00m$`)
	_, stderr = l.call(8, "extend", "-i", "lab.toml", "--owner", "bob", "h1")
	l.says(stderr, `host h1 is held by anna`)
	_, stderr = l.call(8, "unlock", "-i", "lab.toml", "--owner", "bob", "h1")
	l.says(stderr, `host h1 is held by anna`)
	out, _ = l.call(0, "unlock", "-i", "lab.toml", "--owner", "bob", "--takeover", "--reason", "on holiday", "h2")
	l.says(out, `^host h2 unlocked$`)
	out, _ = l.call(0, "unlock", "-i", "lab.toml", "--owner", "anna")
	if strings.Contains(out, "h2") || strings.Count(out, "unlocked") != 3 {
		t.Errorf("%s", out)
	}
	l.nothing()
	// A run needs what its plan uses, and nothing else.
	l.write("small.toml", strings.NewReplacer(`["h1", "h2"]`, `["h1"]`, `"h3"`, `"h2"`, `"60s"`, `"300ms"`).Replace(experimentOfFaults))
	l.call(0, "lock", "-i", "lab.toml", "h3", "--reason", "mine", "--owner", "bob")
	l.call(0, "run", "small.toml", "--on", "lab", "--runs", "runs")
	l.call(8, shortRun()...)
	l.call(0, "unlock", "-i", "lab.toml", "h3", "--owner", "bob")
	l.nothing()
	_, stderr = l.call(3, "extend", "-i", "lab.toml", "--owner", "anna")
	l.says(stderr, `anna has locked nothing in lab.toml`)
}

// testKills kills runs with kill -9 at random moments. After each, clean leaves nothing.
func testKills(t *testing.T, stream uint64) {
	n := 25
	t.Logf("-kill-seed=%d", *killSeed)
	rng := rand.New(rand.NewPCG(*killSeed, stream))
	l := runningLab(t, netns.Embedded)
	l.kill(l.run.cmd.Process.Pid, unix.SIGKILL)
	l.finish(l.run)
	l.call(0, "clean")
	began := time.Now()
	l.call(0, shortRun()...)
	whole := time.Since(began)
	hit := 0
	for i := range n {
		l.run = l.start(shortRun()...)
		select {
		case <-time.After(time.Duration(rng.Int64N(int64(whole)))):
		case <-l.run.ended:
		}
		_ = l.run.cmd.Process.Kill() // it may have ended
		l.finish(l.run)
		if len(l.journals()) > 0 {
			hit++
		}
		out, _ := l.call(0, "clean")
		l.nothing()
		if t.Failed() {
			t.Fatalf("kill %d\n%s%s", i, l.run.stderr.String(), out)
		}
	}
	t.Logf("%d of %d kills left something to undo, in runs of %v", hit, n, whole)
	l.call(0, shortRun()...)
	l.nothing()
}
