package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// Settings of TestSoak: how many rounds, and from which seed. `just soak 1000`.
const (
	soakRounds = "INABENCH_SOAK"
	soakSeed   = "INABENCH_SOAK_SEED"
	soakMark   = "INABENCH_TEST_SOAK" // in the environment of whatever a round starts
)

// What a soak runs.
var subjects = []struct {
	name string
	args []string // of inabench
	last time.Duration
}{
	{"quickstart", []string{"run", "short.toml"}, 4 * time.Second},
	{"a sweep", []string{"run", "sweep.toml"}, 6 * time.Second},
	{"a trace", []string{"run", "trace.toml"}, 2 * time.Second},
	{"a suite", []string{"suite", "run", "night.toml"}, 8 * time.Second},
}

var soakFiles = map[string]string{
	"rack.toml": `version = 1
[[switch]]
name = "tor1"
kind = "soft"
aggregators = 1024
[[host]]
name = "h1"
nic = {port = "tor1/1", rate = "100Gbit/s", delay = "10us"}
[[host]]
name = "h2"
nic = {port = "tor1/2", rate = "100Gbit/s", delay = "10us"}
[[host]]
name = "h3"
nic = {port = "tor1/3", rate = "100Gbit/s", delay = "10us"}
`,
	"short.toml": soakExperiment("short", ""),
	"sweep.toml": soakExperiment("sweep", `
[[sweep]]
key = "job.A.rate"
values = ["5Gbit/s", "10Gbit/s", "15Gbit/s"]
`),
	"trace.toml": `version = 1
name = "trace"
on = "sim"
[fat_tree]
racks = 4
hosts = 8
gpus = 4
rate = "100Gbit/s"
[trace]
from = "philly"
jobs = 200
[[sweep]]
key = "placement.policy"
values = ["netpack", "gpu-balance"]
[measure]
repeats = 10
`,
	"night.toml": `version = 1
title = "a short night"
on = "netns"
[retry]
inconclusive = 1
[[experiment]]
path = "short.toml"
[[experiment]]
path = "sweep.toml"
`,
}

func soakExperiment(name, more string) string {
	return `version = 1
name = "` + name + `"
inventory = "rack.toml"
[emulation]
factor = 2000
[calibrate]
enabled = false
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
rate = "10Gbit/s"
duration = "1200ms"
[measure]
warmup = "200ms"
duration = "1s"
interval = "50ms"
[[expect]]
metric = "sum_errors"
value = 0
reason = "aggregation must never change a sum"
` + more
}

// chaos is what happens to a round.
type chaos struct {
	what   string
	before func(s *soak, rnd *rand.Rand, command []string) []string       // the command is changed for it; nil: it is not
	do     func(s *soak, b *background, rnd *rand.Rand, at time.Duration) // while it runs, after a time; nil: nothing

	decided bool // the round has a verdict
	ended   bool // the program may end by a signal
	soon    bool // it ends within 10 s of one
	cut     bool // it ends at once, and leaves what it has measured
}

var chaoses = []chaos{
	{what: "nothing", decided: true},
	{what: "SIGKILL of any process of it", ended: true, do: func(s *soak, b *background, rnd *rand.Rand, at time.Duration) {
		s.signal(b, rnd, at, false, syscall.SIGKILL)
	}},
	{what: "SIGKILL of inabench", ended: true, cut: true, do: func(s *soak, b *background, rnd *rand.Rand, at time.Duration) {
		s.signal(b, rnd, at, true, syscall.SIGKILL)
	}},
	{what: "SIGTERM, SIGINT or SIGHUP", ended: true, soon: true, do: func(s *soak, b *background, rnd *rand.Rand, at time.Duration) {
		s.signal(b, rnd, at, true, []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}[rnd.IntN(3)])
	}},
	{what: "SIGSTOP of any process for .05 to 2 s", do: func(s *soak, b *background, rnd *rand.Rand, at time.Duration) {
		if p := s.signal(b, rnd, at, false, syscall.SIGSTOP); p != nil {
			time.Sleep(50*time.Millisecond + time.Duration(rnd.Int64N(int64(1950*time.Millisecond))))
			if p.exists() {
				_ = unix.Kill(p.pid, unix.SIGCONT)
			}
		}
	}},
	{what: "a disk of 16 kB to 1 MB for the runs", before: func(s *soak, rnd *rand.Rand, command []string) []string {
		disk := fmt.Sprintf("disk=%d:%s", 16<<10+rnd.IntN(1<<20), filepath.Join(s.dir, "runs"))
		return append([]string{filepath.Join(filepath.Dir(s.exe), "confined"), disk}, command...)
	}},
	{what: "runs and the index damaged before", decided: true, before: func(s *soak, rnd *rand.Rand, command []string) []string {
		s.damage(rnd)
		return command
	}},
	{what: "another run, gc and history meanwhile", decided: true, do: func(s *soak, b *background, rnd *rand.Rand, at time.Duration) {
		for running(b) {
			for _, args := range [][]string{{"history", "goodput"}, {"gc", "--keep", "8"}, {"run", "trace.toml", "-q"}, {"show"}} {
				s.quietly(args...)
			}
		}
	}},
	{what: "a clock of an agent that jumps (--sabotage jump-clock)", before: func(s *soak, rnd *rand.Rand, command []string) []string {
		if !slices.Contains(command, "sweep.toml") {
			command = []string{s.exe, "run", "short.toml"} // of which agents have a clock
		}
		return append(command, "--sabotage", "jump-clock", "--set", "job.A.duration=3s", "--set", "measure.duration=2800ms") // faults begin after a second
	}},
}

// soak is what goes on from round to round.
type soak struct {
	t    *testing.T
	exe  string
	dir  string // with files, runs, home, tmp
	seed uint64

	round int
	rows  map[string]*soakRow // by chaos
	serve *background
	url   string
	fds   int
	lost  map[string]bool // runs that were damaged on purpose
}

// soakRow counts, of one chaos.
type soakRow struct {
	rounds, processes, namespaces, mounts, files, fds, leases int
	readings, sums, unreadable, hung, codes                   int
	ends                                                      map[int]int
}

// TestSoak runs experiments, sweeps, traces and nights again and again, and does something to them at random. Whatever
// that is, nothing is left of them, no sum is wrong, no reading is lost that was taken .2 s before, and
// later commands can read every run. It prints a table.
//
//	INABENCH_SOAK=1000 INABENCH_SOAK_SEED=1 go test ./cmd/cli -run TestSoak -v -timeout 6h
func TestSoak(t *testing.T) {
	if os.Getenv(soakRounds) == "" {
		proof.Only(t, "some rounds of several seconds")
	}
	testbedtest.Require(t, "netns", namespaces())
	rounds, seed := 3, uint64(1)
	if text := os.Getenv(soakRounds); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	if text := os.Getenv(soakSeed); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	s := newSoak(t, seed)
	for s.round = range rounds {
		s.one()
	}
	t.Logf("seed %d\n%s", seed, s.table())
	for name, r := range s.rows {
		if bad := r.processes + r.namespaces + r.mounts + r.files + r.fds + r.leases + r.readings + r.sums + r.unreadable + r.hung + r.codes; bad > 0 {
			t.Errorf("%s: %+v", name, *r)
		}
	}
}

func newSoak(t *testing.T, seed uint64) *soak {
	// What leaves its parents comes to this process, and can be counted.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
	bin := t.TempDir()
	s := &soak{t: t, exe: filepath.Join(bin, "inabench"), dir: t.TempDir(), seed: seed, rows: map[string]*soakRow{}, lost: map[string]bool{}}
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, s.exe) // this binary is the program under that name, see TestMain
	}
	if err == nil {
		err = os.Symlink(self, filepath.Join(bin, "confined"))
	}
	for _, d := range []string{"runs", "home", "tmp", "state"} {
		if err == nil {
			err = os.Mkdir(filepath.Join(s.dir, d), 0o777)
		}
	}
	for name, text := range soakFiles {
		if err == nil {
			err = os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	s.serve = s.start("serve", "--listen", "127.0.0.1:0")
	t.Cleanup(func() {
		_ = s.serve.cmd.Process.Signal(syscall.SIGTERM)
		<-s.serve.ended
	})
	at := regexp.MustCompile(`http://[0-9.:]+`)
	for deadline := time.Now().Add(patience); s.url == ""; time.Sleep(10 * time.Millisecond) {
		s.url = at.FindString(s.serve.stdout.String() + s.serve.stderr.String())
		if time.Now().After(deadline) {
			t.Fatalf("serve says %q", s.serve.stderr.String())
		}
	}
	s.visit()
	s.fds = s.descriptors()
	return s
}

// start starts a command in the soak's directory.
func (s *soak) start(args ...string) *background { return s.begin(s.exe, args...) }

func (s *soak) begin(exe string, args ...string) *background {
	s.t.Helper()
	b := newBackground(exe, args...)
	b.cmd.Dir = s.dir
	b.cmd.Env = []string{
		"PATH=" + filepath.Dir(s.exe) + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(s.dir, "home"),
		"TMPDIR=" + filepath.Join(s.dir, "tmp"), "XDG_STATE_HOME=" + filepath.Join(s.dir, "state"),
		"GORACE=" + os.Getenv("GORACE"), soakMark + "=" + strconv.Itoa(s.round),
	}
	if err := b.start(); err != nil {
		s.t.Fatal(err)
	}
	return b
}

func running(b *background) bool {
	select {
	case <-b.ended:
		return false
	default:
		return true
	}
}

// quietly runs a command to its end and returns its exit code.
func (s *soak) quietly(args ...string) (code int, out string) {
	b := s.start(args...)
	select {
	case <-b.ended:
	case <-time.After(2 * patience):
		b.kill()
		s.t.Errorf("round %d: inabench %s hangs", s.round, strings.Join(args, " "))
	}
	return b.code(), b.stdout.String() + b.stderr.String()
}

// signal sends one of b's processes a signal after a time, b itself or any of them, and returns whom; nil: it had
// ended.
func (s *soak) signal(b *background, rnd *rand.Rand, at time.Duration, first bool, sig syscall.Signal) *process {
	select {
	case <-b.ended:
		return nil
	case <-time.After(at):
	}
	_, start, ok := stat(b.cmd.Process.Pid)
	if !ok {
		return nil
	}
	those := []process{{b.cmd.Process.Pid, start}}
	if !first {
		b.look()
		for p := range b.seen {
			if p.exists() {
				those = append(those, p)
			}
		}
		slices.SortFunc(those, func(a, b process) int { return a.pid - b.pid })
	}
	p := those[rnd.IntN(len(those))]
	if unix.Kill(p.pid, sig) != nil {
		return nil
	}
	return &p
}

// one is a round.
func (s *soak) one() {
	rnd := rand.New(rand.NewPCG(s.seed, uint64(s.round)))
	sub := subjects[rnd.IntN(len(subjects))]
	c := chaoses[rnd.IntN(len(chaoses))]
	row := s.rows[c.what]
	if row == nil {
		row = &soakRow{ends: map[int]int{}}
		s.rows[c.what] = row
	}
	row.rounds++
	before := s.look()
	runs := s.runs()
	command := append([]string{s.exe}, sub.args...)
	if c.before != nil {
		command = c.before(s, rnd, command)
	}
	began := time.Now()
	b := s.begin(command[0], command[1:]...)
	var killed time.Time
	if c.do != nil {
		c.do(s, b, rnd, time.Duration(rnd.Int64N(int64(sub.last))))
		killed = time.Now()
	}
	for deadline := time.Now().Add(2 * time.Minute); running(b); time.Sleep(10 * time.Millisecond) {
		b.look()
		if time.Now().After(deadline) {
			row.hung++
			s.t.Errorf("round %d: %s, %s: hangs:\n%s", s.round, sub.name, c.what, b.stderr.String())
			b.kill()
		}
	}
	code := b.code()
	row.ends[code]++
	if took := time.Since(killed); c.soon && took > 10*time.Second {
		row.hung++
		s.t.Errorf("round %d: %s: took %v to end", s.round, sub.name, took)
	}
	say := func(format string, args ...any) {
		s.t.Errorf("round %d (seed %d): %s, %s, exit code %d: %s\n%s", s.round, s.seed, strings.Join(command[1:], " "), c.what, code, fmt.Sprintf(format, args...), tailOf(b.stderr.String()))
	}
	if c.decided && code != exitOK && code != exitInconclusive || code == exitUsage || code > 128 && !c.ended {
		row.codes++
		say("which it may not end with")
	}
	s.left(row, before, say)
	s.records(row, runs, c, killed, began, say)
	s.commands(row, say)
}

// traces are what a machine has that a round could leave something in.
type traces struct {
	namespaces map[string]string // and one who is in it
	mounts     int
}

func (s *soak) look() traces {
	tr := traces{namespaces: map[string]string{}}
	for pid := range descendants() { // others test emulations on this machine as well
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/ns/*", pid))
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil {
				tr.namespaces[to] = l
			}
		}
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		s.t.Fatal(err)
	}
	tr.mounts = bytes.Count(text, []byte("\n"))
	return tr
}

// descendants are this process and all that it or they have started: who leaves its parent comes to this process.
func descendants() map[int]bool {
	children := map[int][]int{}
	files, _ := filepath.Glob("/proc/[0-9]*")
	for _, f := range files {
		pid, _ := strconv.Atoi(filepath.Base(f))
		if parent, _, ok := stat(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	all := map[int]bool{}
	for todo := []int{os.Getpid()}; len(todo) > 0; todo = todo[1:] {
		if !all[todo[0]] {
			all[todo[0]] = true
			todo = append(todo, children[todo[0]]...)
		}
	}
	return all
}

// ofRound are the processes that this round has started and that live.
func (s *soak) ofRound() (out []process) {
	mark := soakMark + "=" + strconv.Itoa(s.round) + "\x00"
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(text)+"\x00", mark) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if _, start, ok := stat(pid); ok && pid != os.Getpid() && pid != s.serve.cmd.Process.Pid {
			out = append(out, process{pid, start})
		}
	}
	return out
}

// reap buries those that came to this process when they left their parents.
func (s *soak) reap() {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		text, err := os.ReadFile(f)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		rest := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if err == nil && len(rest) > 1 && rest[0] == "Z" && rest[1] == strconv.Itoa(os.Getpid()) && pid != s.serve.cmd.Process.Pid {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// left counts what a round has left.
func (s *soak) left(row *soakRow, before traces, say func(string, ...any)) {
	var procs []process
	for deadline := time.Now().Add(25 * time.Second); ; time.Sleep(50 * time.Millisecond) { // longer than patience
		s.reap()
		if procs = s.ofRound(); len(procs) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, p := range procs {
		row.processes++
		say("process %d is left: %s", p.pid, p.argv())
		_ = unix.Kill(p.pid, unix.SIGKILL)
	}
	after := s.look()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) { // a process that is about to end has them still
		var more []string
		for ns, who := range after.namespaces {
			if before.namespaces[ns] == "" && len(procs) == 0 {
				more = append(more, ns+" of "+who)
			}
		}
		if len(more) == 0 {
			break
		}
		if time.Now().After(deadline) {
			row.namespaces += len(more)
			say("namespaces are left: %s", strings.Join(more, ", "))
			break
		}
		s.reap()
		after = s.look()
	}
	if after.mounts > before.mounts {
		row.mounts += after.mounts - before.mounts
		say("%d mounts are left", after.mounts-before.mounts)
	}
	for _, dir := range []string{"tmp", "state"} {
		_ = filepath.WalkDir(filepath.Join(s.dir, dir), func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				row.files++
				say("file %s is left", path)
				_ = os.Remove(path)
			}
			return nil
		})
	}
	leases, _ := filepath.Glob(filepath.Join(s.dir, "home", ".cache", "inabench", "processes", "*"))
	for _, l := range leases {
		row.leases++
		say("lease %s is left", l)
		_ = os.Remove(l)
	}
	s.visit()
	if n := s.descriptors(); n > s.fds+2 {
		row.fds += n - s.fds
		say("serve has %d descriptors, it had %d", n, s.fds)
		s.fds = n
	}
}

// visit looks at pages.
func (s *soak) visit() {
	for _, path := range []string{"/", "/history"} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		req.Close = true
		a, err := http.DefaultClient.Do(req)
		if err == nil {
			var text []byte
			text, err = io.ReadAll(a.Body)
			a.Body.Close()
			if a.StatusCode >= 500 {
				err = fmt.Errorf("%s: %s", a.Status, tailOf(string(text)))
			}
		}
		cancel()
		if err != nil {
			s.t.Errorf("round %d: page %s: %v", s.round, path, err)
		}
	}
}

// descriptors are those of serve, when it has nothing to do.
func (s *soak) descriptors() int {
	n := 0
	for range 20 {
		fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.serve.cmd.Process.Pid))
		if n = len(fds); n <= s.fds {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return n
}

// runs are the names of runs that are there.
func (s *soak) runs() map[string]bool {
	out := map[string]bool{}
	entries, _ := os.ReadDir(filepath.Join(s.dir, "runs"))
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			out[e.Name()] = true
		}
	}
	return out
}

// records reads the new runs.
func (s *soak) records(row *soakRow, had map[string]bool, c chaos, killed, began time.Time, say func(string, ...any)) {
	for name := range s.runs() {
		path := filepath.Join(s.dir, "runs", name)
		text, err := os.ReadFile(filepath.Join(path, "run.json"))
		if had[name] || os.IsNotExist(err) {
			continue // not yet a run: swept after an hour, or a night
		}
		var rec results.Record
		if err == nil {
			err = json.Unmarshal(text, &rec)
		}
		if err != nil {
			row.unreadable++
			say("%s: %v", name, err)
			continue
		}
		if rec.Sabotage == nil {
			for _, p := range rec.Points {
				for _, j := range p.Jobs {
					if j.SumErrors != 0 {
						row.sums++
						say("%s: %d wrong sums", name, j.SumErrors)
					}
				}
			}
		}
		// Samples reach the disk as they are taken: at most an interval, and .2 s, before it was killed.
		info, err := os.Stat(filepath.Join(path, "samples.jsonl"))
		if c.cut && err == nil && info.Size() > 0 && !killed.IsZero() && rec.Finished.IsZero() {
			if late := killed.Sub(info.ModTime()); late > 250*time.Millisecond && info.ModTime().After(began) && measuring(path, killed) {
				row.readings++
				say("%s: the last sample was written %v before it was killed", name, late)
			}
		}
	}
}

// measuring says whether a run that was killed was still taking samples then: a point of these experiments takes
// them for a second at least, without a gap, and there are none between points.
func measuring(path string, killed time.Time) bool {
	file := filepath.Join(path, "samples.jsonl")
	info, err := os.Stat(file)
	text, rerr := os.ReadFile(file)
	if err != nil || rerr != nil {
		return false
	}
	var at []float64
	for line := range bytes.Lines(text) {
		var sample results.Sample
		if json.Unmarshal(line, &sample) == nil {
			at = append(at, sample.T)
		}
	}
	if len(at) == 0 {
		return false
	}
	slices.Sort(at)
	first := len(at) - 1
	for first > 0 && at[first]-at[first-1] < 0.5 {
		first--
	}
	took := time.Duration((at[len(at)-1] - at[first]) * float64(time.Second)) // of the last point, so far
	return killed.Sub(info.ModTime().Add(-took)) < time.Second
}

// damage damages runs that are there, and the index.
func (s *soak) damage(rnd *rand.Rand) {
	files, _ := filepath.Glob(filepath.Join(s.dir, "runs", "*", "*"))
	index, _ := filepath.Glob(filepath.Join(s.dir, "runs", ".history*"))
	files = append(files, index...)
	for range 3 {
		if len(files) == 0 {
			return
		}
		file := files[rnd.IntN(len(files))]
		text, err := os.ReadFile(file)
		if err != nil || len(text) == 0 {
			continue
		}
		s.lost[filepath.Base(filepath.Dir(file))] = true
		switch rnd.IntN(4) {
		case 0:
			text = text[:rnd.IntN(len(text))]
		case 1:
			text[rnd.IntN(len(text))] ^= 1 << rnd.IntN(8)
		case 2:
			copy(text[rnd.IntN(len(text)):], make([]byte, 512))
		case 3:
			_ = os.Remove(file)
			continue
		}
		_ = os.WriteFile(file, text, 0o644)
	}
}

// commands looks at what there is as a user would.
func (s *soak) commands(row *soakRow, say func(string, ...any)) {
	if code, out := s.quietly("history", "goodput"); code != exitOK && !strings.Contains(out, "no run has a figure") {
		row.unreadable++
		say("history: exit code %d: %s", code, out)
	}
	if code, out := s.quietly("show"); code != exitOK {
		row.unreadable++
		say("show: exit code %d: %s", code, out)
	}
	for name := range s.runs() {
		if s.lost[name] {
			continue
		}
		if _, err := os.Stat(filepath.Join(s.dir, "runs", name, "run.json")); err != nil {
			continue
		}
		if s.round%10 != 0 && rand.IntN(4) > 0 { // some of them each time, all now and then
			continue
		}
		if code, out := s.quietly("show", name, "-o", "json"); code == exitInvalid || code == exitTestbed || code == exitUsage {
			row.unreadable++
			say("show %s: exit code %d: %s", name, code, tailOf(out))
		}
	}
	if code, out := s.quietly("gc", "--keep", "8"); code != exitOK {
		row.unreadable++
		say("gc: exit code %d: %s", code, out)
	}
}

func tailOf(text string) string {
	if len(text) > 1500 {
		text = "…" + text[len(text)-1500:]
	}
	return text
}

// table is what came of it, as docs/FAULTS.md has it.
func (s *soak) table() string {
	var b strings.Builder
	b.WriteString("| what happens | rounds | exit codes | processes | namespaces | mounts | files | descriptors | leases | lost readings | wrong sums | unreadable |\n")
	b.WriteString("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, c := range chaoses {
		r := s.rows[c.what]
		if r == nil {
			continue
		}
		var ends []string
		for code, n := range r.ends {
			ends = append(ends, fmt.Sprintf("%d: %d", code, n))
		}
		slices.SortFunc(ends, func(a, b string) int {
			var x, y int
			fmt.Sscan(a, &x)
			fmt.Sscan(b, &y)
			return x - y
		})
		fmt.Fprintf(&b, "| %s | %d | %s | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", c.what, r.rounds, strings.Join(ends, ", "),
			r.processes, r.namespaces, r.mounts, r.files, r.fds, r.leases, r.readings, r.sums, r.unreadable)
	}
	return b.String()
}
