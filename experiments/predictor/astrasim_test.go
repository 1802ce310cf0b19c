package predictor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/testbedtest"
)

// rack is a request about hosts h1, h2, ... under one switch, with links of 100 Gbit/s and 5 µs.
func rack(hosts int) *Request {
	req := &Request{Schema: Newest, Frame: Frame{Bytes: 1024, Payload: 960}, Phases: []Phase{}, Switches: []Switch{{Name: "tor1", Tier: 1, Aggregators: 1000}}}
	for i := range hosts {
		name := fmt.Sprintf("h%d", i+1)
		up, down := name+"->tor1", "tor1->"+name
		req.Hosts = append(req.Hosts, Host{Name: name, Rack: "r1", GPUs: 2})
		req.Links = append(req.Links,
			Link{Name: up, From: name, To: "tor1", Reverse: down, Rate: 100e9, Delay: 5e-6},
			Link{Name: down, From: "tor1", To: name, Reverse: up, Rate: 100e9, Delay: 5e-6})
	}
	return req
}

// workers are of a job, a rank each, on hosts of these numbers.
func workers(hosts ...int) (out []Worker) {
	for rank, h := range hosts {
		out = append(out, Worker{Rank: rank, Host: fmt.Sprintf("h%d", h), GPUs: 1, Up: fmt.Sprintf("h%d->tor1", h)})
	}
	return out
}

// astraSim is the example with a binary of a shell script, and more flags.
func astraSim(t *testing.T, script string, flags ...string) Predictor {
	t.Helper()
	python, err := exec.LookPath("python3")
	testbedtest.Require(t, "python3", err)
	example, err := filepath.Abs("../../examples/predictor/astrasim.py")
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "astra-sim")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Predictor{Name: "astrasim", Command: append([]string{python, example, "--binary", binary}, flags...), Dir: t.TempDir()}
}

// standIn is a script that plays the program: see its file.
func standIn(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("testdata/astrasim.py")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`exec python3 '%s' "$@"`, path)
}

// TestAstraSim: what the example writes for ASTRA-sim is as that program documents it, and its cycles come back as the
// textbook's times: units, ranks that share a cable, and jobs that share one.
func TestAstraSim(t *testing.T) {
	const (
		payload = 100e9 * 1448 / 1514 // bit/s
		way     = 10e-6
		mib     = 1 << 20
	)
	req := rack(5)
	req.Jobs = []Job{
		{Name: "ring", Collective: "ring", Workers: workers(1, 2, 3, 4), Layers: []Layer{{Bytes: 4 * mib, Compute: 1e-3}, {Bytes: mib, Compute: 5e-4}}, Iterations: 10},
		{Name: "halving", Collective: "halving-doubling", Workers: workers(1, 1, 2, 2), Layers: []Layer{{Bytes: 8 * mib, Compute: 2e-3}}, Iterations: 3},
		{Name: "ina", Collective: "ina", Workers: workers(1, 2, 3), PS: "h5", Tree: []Node{{Switch: "tor1", Up: "tor1->h5", Aggregate: true}},
			RTT: 2e-5, Window: 1 << 16, Control: "fixed", Layers: []Layer{{Bytes: mib, Compute: 1e-3}}, Iterations: 7},
		{Name: "local", Local: true, Collective: "ring", Workers: workers(4), Layers: []Layer{{Bytes: mib, Compute: 1e-3}}, Iterations: 9},
		{Name: "s1", Collective: "ring", Workers: workers(1, 2), Message: 2 * mib},
		{Name: "s2", Collective: "ring", Workers: workers(1, 2), Message: 2 * mib},
	}
	req.Phases = []Phase{{Jobs: []string{"s1", "s2", "local"}}, {Jobs: []string{"s1"}}}
	a, err := astraSim(t, standIn(t)).Predict(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	bits := func(bytes float64) float64 { return 8 * bytes }
	ring := func(size float64) float64 { return 6 * (way + bits(size/4)/payload) }
	step := func(size float64) float64 { return way + bits(size)/(payload/2) } // two ranks on a cable
	for job, want := range map[string]float64{
		"ring":    10 * (1.5e-3 + ring(4*mib) + ring(mib)),
		"halving": 3 * (2e-3 + 2*step(4*mib) + 2*step(2*mib)),
		"ina":     7 * (1e-3 + bits(mib)/(100e9*960/1024) + 2e-5),
		"local":   9 * 1e-3,
	} {
		got := math.NaN()
		for _, j := range a.JCT {
			if j.Job == job {
				got = *j.Seconds
			}
		}
		if !(math.Abs(got/want-1) < 1e-5) {
			t.Errorf("job %s takes %v s, want %v", job, got, want)
		}
	}
	for i, share := range []float64{2, 1} {
		want := bits(2*mib) / (2 * (way + bits(mib)/(payload/share)))
		if got := *a.Phases[i].Jobs[0].Goodput; math.Abs(got/want-1) > 1e-4 {
			t.Errorf("phase %d: goodput %v, want %v", i+1, got, want)
		}
	}
}

// TestAstraSimRefuses: what cannot be asked, and what the program does wrong, is said in one line.
func TestAstraSimRefuses(t *testing.T) {
	ring := Job{Name: "A", Collective: "ring", Workers: workers(1, 2), Layers: []Layer{{Bytes: 1 << 20}}, Iterations: 1}
	with := func(change func(*Job)) Job {
		j := ring
		change(&j)
		return j
	}
	for _, c := range []struct {
		name, script string
		flags        []string
		job          Job
		want         string
	}{
		{"exit", "echo '[Error] Topology name X not supported' >&2; exit 255", nil, ring, "ended with code 255: '[Error] Topology name X not supported'"},
		{"no times", "echo hello", nil, ring, "when 0 of 2 ranks finished, and ends with: 'hello'"},
		{"half of them", "echo 'sys[0] finished, 5 cycles, exposed communication 5 cycles.'", nil, ring, "when 1 of 2 ranks"},
		{"a flood", "exec yes", nil, ring, "printed more than 16 MiB"},
		{"endless", "exec sleep 1000", []string{"--timeout", "0.2"}, ring, "had not finished after 0.2 s"},
		{"endless, of a child", "sleep 1000; true", []string{"--timeout", "0.2"}, ring, "had not finished after 0.2 s"},
		{"killed", "kill -9 $$", nil, ring, "ended by signal 9"},
		{"not there", "", []string{"--binary", "/not/there"}, ring, "no program /not/there"},
		{"three ranks", "", nil, with(func(j *Job) { j.Collective, j.Workers = "halving-doubling", workers(1, 2, 3) }), "job A: halving and doubling is for a power of two ranks, and it has 3"},
		{"another collective", "", nil, with(func(j *Job) { j.Collective = "recursive-doubling" }), "job A reduces by recursive-doubling, which ASTRA-sim has no implementation of"},
		{"no way", "", nil, with(func(j *Job) { j.Workers = []Worker{{Host: "h1"}, {Host: "h9"}} }), "no way from h1 to h9"},
		{"aggregation", "", []string{"--aggregation", "refuse"}, with(func(j *Job) {
			j.Collective, j.PS, j.Tree = "ina", "h3", []Node{{Switch: "tor1", Up: "tor1->h3", Aggregate: true}}
		}), "--aggregation formula answers for it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := rack(3)
			req.Jobs = []Job{c.job}
			_, err := astraSim(t, c.script, c.flags...).Predict(t.Context(), req)
			if err == nil || !strings.Contains(err.Error(), "it said: astrasim.py: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	req := rack(2)
	req.Schema = 3
	if _, err := astraSim(t, "").Predict(t.Context(), req); err == nil || !strings.Contains(err.Error(), "knows schemas 1 and 2, and this is 3") {
		t.Errorf("error %v", err)
	}
}

// A ring takes the ways that its request has: of messages that cross a cable twice, that has half of its rate.
func TestAstraSimWays(t *testing.T) {
	const mib = 1 << 20
	req := rack(2)
	req.Jobs = []Job{{
		Name: "A", Collective: "ring", Workers: workers(1, 2), Layers: []Layer{{Bytes: mib}}, Iterations: 1,
		Hops: []string{"h1->tor1", "h1->tor1", "tor1->h2", "h2->tor1", "tor1->h1"},
	}}
	a, err := astraSim(t, standIn(t)).Predict(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	want := 2 * (10e-6 + 8*mib/2/(100e9*1448/1514/2.))
	if got := *a.JCT[0].Seconds; math.Abs(got/want-1) > 1e-4 {
		t.Errorf("it takes %v s, want %v", got, want)
	}
}

// TestAstraSimPrints: the program has lines of each layer of each rank, which are more than any number of lines that is fixed.
func TestAstraSimPrints(t *testing.T) {
	req := rack(2)
	req.Jobs = []Job{{Name: "A", Collective: "ring", Workers: workers(1, 2), Layers: slices.Repeat([]Layer{{Bytes: 8}}, 4096), Iterations: 1}}
	const script = `head -c 17500000 /dev/zero | tr '\0' '\n'
echo 'sys[1] finished, 7000 cycles, exposed communication 7000 cycles.'
echo 'sys[0] finished, 5000 cycles, exposed communication 5000 cycles.'`
	a, err := astraSim(t, script).Predict(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if got := *a.JCT[0].Seconds; math.Abs(got-7e-6) > 1e-12 {
		t.Errorf("it takes %v s", got)
	}
}

// TestAstraSimKeeps: what one request had the program read is not mixed up with what another had.
func TestAstraSimKeeps(t *testing.T) {
	p := astraSim(t, standIn(t), "--keep", "kept")
	req := rack(2)
	for range 2 {
		req.Jobs = append(req.Jobs, Job{
			Name: fmt.Sprintf("job%d", len(req.Jobs)), Collective: "ring", Workers: workers(1, 2), Iterations: 1,
			Layers: []Layer{{Bytes: 1 << 20, Compute: float64(len(req.Jobs))}},
		})
		if _, err := p.Predict(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	got, err := filepath.Glob(filepath.Join(p.Dir, "kept", "*", "*", "workload.1.et"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"request1/run1", "request2/run1", "request2/run2"} {
		if len(got) != 3 || got[i] != filepath.Join(p.Dir, "kept", want, "workload.1.et") {
			t.Errorf("%q are kept, want %s", got, want)
		}
	}
}

// TestAstraSimEnds: who is told to end leaves no files behind.
func TestAstraSimEnds(t *testing.T) {
	dir := t.TempDir()
	p := astraSim(t, `: > "$TMPDIR/started"; sleep 1000; true`)
	req := rack(2)
	req.Jobs = []Job{{Name: "A", Collective: "ring", Workers: workers(1, 2), Layers: []Layer{{Bytes: 1 << 20}}, Iterations: 1}}
	text, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Stdin, cmd.Env = bytes.NewReader(text), append(os.Environ(), "TMPDIR="+dir)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for tries := 0; ; tries++ {
		if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
			break
		}
		if tries == 10_000 {
			cmd.Process.Kill()
			t.Fatal("the program does not start")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), "ended by SIGTERM") {
		t.Errorf("%v, it said %q", err, &said)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "astrasim-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
