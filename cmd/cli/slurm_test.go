package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// holdParts, in the environment, has parts of a sweep but the first wait for their end.
const holdParts = "INABENCH_TEST_HOLD_PARTS"

// held waits if this process is such a part.
func held(args []string) {
	if len(args) == 4 && args[1] == experiments.CellsVerb && args[3] != "0" && os.Getenv(holdParts) != "" {
		select {}
	}
}

// slurm starts a Slurm of one machine for the test, as the user who runs it. Its commands find it by
// the environment.
func slurm(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin")
	for _, program := range []string{"munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo"} {
		_, err := exec.LookPath(program)
		testbedtest.Require(t, "slurm", err)
	}
	dir, err := os.MkdirTemp("", "slurm") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "state"), 0o755), os.Mkdir(filepath.Join(dir, "spool"), 0o755)); err != nil {
		t.Fatal(err)
	}
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	key := make([]byte, 1024)
	rand.Read(key)
	if err := os.WriteFile(filepath.Join(dir, "munge.key"), key, 0o400); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	conf := fmt.Sprintf(`ClusterName=test
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[4]d
SlurmdPort=%[5]d
AuthType=auth/munge
AuthInfo=socket=%[2]s/munge.sock
CredType=cred/munge
SlurmUser=%[3]s
SlurmdUser=%[3]s
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=%[2]s/spool
SlurmctldPidFile=%[2]s/slurmctld.pid
SlurmdPidFile=%[2]s/slurmd.pid
SlurmctldLogFile=%[2]s/slurmctld.log
SlurmdLogFile=%[2]s/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MailProg=/bin/true
SchedulerParameters=sched_interval=1,batch_sched_delay=0
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
`, host, dir, who.Username, freePort(t), freePort(t))
	if err := os.WriteFile(in("slurm.conf"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_CONF", in("slurm.conf"))
	daemon(t, in("munged.out"), "munged", "--foreground", "--force", "--key-file="+in("munge.key"), "--socket="+in("munge.sock"),
		"--pid-file="+in("munge.pid"), "--log-file="+in("munge.log"), "--seed-file="+in("munge.seed"))
	wait(t, dir, func() bool { _, err := os.Stat(in("munge.sock")); return err == nil })
	daemon(t, in("slurmctld.out"), "slurmctld", "-D", "-f", in("slurm.conf"))
	daemon(t, in("slurmd.out"), "slurmd", "-D", "-f", in("slurm.conf"))
	wait(t, dir, func() bool {
		out, err := exec.Command("sinfo", "--noheader", "--format=%T").Output()
		return err == nil && strings.TrimSpace(string(out)) == "idle"
	})
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// daemon starts a program that ends with the test.
func daemon(t *testing.T, log, program string, args ...string) {
	t.Helper()
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		hard := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer hard.Stop()
		_ = cmd.Wait() // its exit code is of the signal
	})
}

// wait waits until something is so; logs in dir say why it is not.
func wait(t *testing.T, dir string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !so(); <-tick.C {
		if time.Since(began) > time.Minute {
			logs := ""
			names, _ := filepath.Glob(filepath.Join(dir, "*.[lo][ou][gt]"))
			for _, name := range names {
				text, _ := os.ReadFile(name)
				logs += "\n== " + filepath.Base(name) + "\n" + string(text)
			}
			t.Fatal("it took more than a minute" + logs)
		}
	}
}

const slurmSweep = `version = 1
on = "sim"
[fat_tree]
racks = 2
hosts = 4
gpus = 4
rate = "100Gbit/s"
pat = "1Tbit/s"
[trace]
from = "philly"
jobs = 40
load = 0.9
[[sweep]]
key = "placement.policy"
values = ["netpack", "tetris"]
[[sweep]]
key = "trace.load"
values = [0.5, 0.7, 0.9]
[compare]
key = "placement.policy"
reference = "netpack"
metrics = ["avg_jct", "de"]
[measure]
repeats = 3
[[expect]]
metric = "de"
value = 0.9
bound = "at-least"
reason = "the network takes little of these jobs' time"
`

// TestSlurm computes a sweep as a job array: the same, to the byte, as here. Then one that is
// interrupted, and goes on without computing anything twice.
func TestSlurm(t *testing.T) {
	proof.Only(t, "starts a batch system")
	slurm(t)
	dir := filepath.Join(t.TempDir(), "a 100%a $(touch oops); \"quoted\"") // no shell sees it
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.WriteFile("sweep.toml", []byte(slurmSweep), 0o666); err != nil {
		t.Fatal(err)
	}
	sweep := func(root string, args ...string) (code int, stderr string) {
		var out, errs bytes.Buffer
		code = Main(append([]string{"inabench", "run", "-q", "--runs", root, "sweep.toml"}, args...), nil, &out, &errs)
		return code, errs.String()
	}
	if code, said := sweep("local"); code != 0 {
		t.Fatalf("local: %d, %s", code, said)
	}
	want := lasting(t, "local")
	if code, said := sweep("slurm", "--engine", "slurm"); code != 0 {
		t.Fatalf("slurm: %d, %s", code, said)
	}
	if got := lasting(t, "slurm"); got != want {
		t.Errorf("Slurm computes another record:\n%s\nwant\n%s", got, want)
	}
	if _, err := os.Stat(filepath.Join("slurm", "latest", ".cells")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the points are still there by themselves: %v", err)
	}

	t.Setenv(holdParts, "yes")
	ctx, cancel := context.WithCancel(t.Context())
	spec, err := kinds.Load("sweep.toml")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, _, err := experiments.Run(ctx, spec, experiments.RunOptions{Driver: "sim", Root: "cut", Tool: version(), Batch: experiments.Slurm{}})
		ended <- err
	}()
	const first = 4 // points of the first part
	cells := func() []string {
		names, _ := filepath.Glob(filepath.Join("cut", "2*", ".cells", "*.cell"))
		return names
	}
	wait(t, ".", func() bool { return len(cells()) == first })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted, it ended with %v", err)
	}
	wait(t, ".", func() bool {
		out, err := exec.Command("squeue", "--noheader").Output()
		return err == nil && len(out) == 0
	})
	t.Setenv(holdParts, "")
	if code, said := sweep("cut", "--engine", "slurm", "--resume", "latest", "--set", "trace.jobs=39"); code != 3 || !strings.Contains(said, "another experiment") {
		t.Errorf("resumed as another sweep: %d, %s", code, said)
	}
	names := cells()
	cut := filepath.Dir(filepath.Dir(names[0]))
	// What is there is taken as it is: point 1 is said to be point 0.
	text, err := os.ReadFile(filepath.Join(cut, ".cells", "0.cell"))
	if err == nil {
		err = os.WriteFile(filepath.Join(cut, ".cells", "1.cell"), text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	if code, said := sweep("cut", "--engine", "slurm", "--resume", cut); code != 0 {
		t.Fatalf("resumed: %d, %s", code, said)
	}
	_, rec, err := results.Open("cut", "latest")
	if err != nil {
		t.Fatal(err)
	}
	_, local, err := results.Open("local", "latest")
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range rec.Points {
		from := i
		if i == 1 {
			from = 0
		}
		a, b := p.Phases[0].End, local.Points[from].Phases[0].End
		if a != b {
			t.Errorf("point %d ended at %g, want %g", i, a, b)
		}
	}
	if _, err := os.Stat("oops"); err == nil {
		t.Error("a shell read the directory's name")
	}
}

// lasting is what of the newest run does not differ between runs: its record and its jobs.
func lasting(t *testing.T, root string) string {
	t.Helper()
	dir, rec, err := results.Open(root, "latest")
	if err != nil {
		t.Fatal(err)
	}
	rec.ID, rec.Args, rec.Hosts, rec.Timings = "", nil, nil, nil
	rec.Started, rec.Finished = time.Time{}, time.Time{}
	text, err := json.MarshalIndent(rec, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := os.ReadFile(filepath.Join(dir.Path, "jobs.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s\n%x", text, jobs)
}
