package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/supervise"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// dieAt has a program end by SIGKILL when a journal of its is about to be written, or has been, for the so many-th
// time.
const dieAt = "INABENCH_TEST_DIE"

// mortal sets that up, in a program of which it is wanted.
func mortal() {
	at, err := strconv.ParseInt(os.Getenv(dieAt), 10, 64)
	if err != nil {
		return
	}
	var calls atomic.Int64
	journal.Watch = func() {
		if calls.Add(1) == at {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
}

// killLanes are the labs that share the moments of a kill among them.
const killLanes = 4

// TestKills ends a run, and the clean of one that was killed, before and after each line of the journal: between what
// is written down and what is changed, either way round. Another clean undoes all of it, whatever the moment, and the
// next run finds the lab as if there had been none.
func TestKills(t *testing.T) {
	proof.Only(t, "as many runs as there are moments")
	testbedtest.Require(t, "netns", namespaces())
	for _, of := range []struct {
		name string
		dies func(l *faultyLab, n int) (more bool)
	}{
		{"run", (*faultyLab).dies},
		{"clean", (*faultyLab).diesCleaning},
	} {
		for first := range killLanes {
			t.Run(of.name+" "+strconv.Itoa(first+1)+" of "+strconv.Itoa(killLanes), func(t *testing.T) {
				t.Parallel()
				if !netnstest.Apart(t) {
					return
				}
				l := newFaultyLab(t, &fault{})
				n := first + 1
				for ; !t.Failed() && of.dies(l, n); n += killLanes {
				}
				if t.Logf("it comes to its end before moment %d", n); n < 10 {
					t.Errorf("it writes no journal to speak of")
				}
			})
		}
	}
}

// killed is how a program ends that dies.
const killed = 128 + int(unix.SIGKILL)

// mortal starts a program that ends at a moment.
func (l *faultyLab) mortal(n int, args ...string) *background {
	l.env = []string{dieAt + "=" + strconv.Itoa(n)}
	defer func() { l.env = nil }()
	return l.start(args...)
}

// dies ends a run at its n-th moment, cleans up after it, and says whether it had so many.
func (l *faultyLab) dies(n int) bool {
	b := l.mortal(n, shortRun()...)
	switch exit := l.finish(b); exit {
	case killed:
	case exitOK, exitInconclusive: // it is over before that
		l.swept("moment " + strconv.Itoa(n))
		return false
	default:
		l.t.Errorf("moment %d: exit code %d after all that was undone before:\n%s", n, exit, b.stderr.String())
		return false
	}
	l.cleaned()
	l.swept("moment " + strconv.Itoa(n))
	return true
}

// diesCleaning kills a run while it measures, and clean after that at its n-th moment; it says whether that had so
// many.
func (l *faultyLab) diesCleaning(n int) bool {
	l.check(os.RemoveAll(filepath.Join(l.dir, "runs")))
	l.run = l.start("run", "exp.toml", "--on", "lab", "--runs", "runs", "--set", "measure.patience="+patienceOfFaults.String())
	l.await(`"worker A/0"`)
	l.kill(l.run.cmd.Process.Pid, unix.SIGKILL)
	l.finish(l.run)
	b := l.mortal(n, "clean")
	exit := l.finish(b)
	if exit != killed && exit != exitOK {
		l.t.Errorf("moment %d of clean: exit code %d:\n%s", n, exit, b.stderr.String())
	}
	if exit == killed {
		l.cleaned()
	}
	l.swept("moment " + strconv.Itoa(n) + " of clean")
	return exit == killed
}

// swept checks that nothing is left on hosts and switches, of leases, nor in the journal.
func (l *faultyLab) swept(when string) {
	l.t.Helper()
	for _, h := range l.fabric.Inventory().Hosts {
		for _, p := range l.below(h.Name) {
			if argv := p.argv(); strings.HasPrefix(argv, "inabench agent") || strings.Contains(argv, supervise.Verb) {
				l.seen[p] = true
			}
		}
	}
	l.unchanged()
	l.nothing()
	if l.t.Failed() {
		l.t.Logf("after %s", when)
	}
}
