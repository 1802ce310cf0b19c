package stream_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/study/stream"
)

// folder has an experiment whose [trace] has such keys, and files that it may name: a job a minute for ten hours, of
// which job N runs for N+1 s, and what was fitted to a trace.
func folder(t *testing.T, keys string) (path string) {
	t.Helper()
	var jobs strings.Builder
	jobs.WriteString("job_id,submit_s,duration_s,gpus\n")
	for i := range 600 {
		fmt.Fprintf(&jobs, "%d,%d,%d,1\n", i, 60*i, i+1)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"jobs.csv": jobs.String(),
		"fit.toml": "name = \"mine\"\nrate = 0.5\n[[size]]\ngpus = 2\nshare = 1\nmedian_s = 100\n",
		"x.toml":   "version = 1\n[fat_tree]\nracks = 2\nhosts = 2\ngpus = 4\n[trace]\n" + keys + "\n[measure]\nrepeats = 3\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "x.toml")
}

// repeat is the jobs that a repeat has, as IDs and submissions.
func repeat(s *spec.Spec, n uint64) (string, error) {
	p := s.Points()[0].Spec
	tr, err := kinds.Of(p).(*stream.Trace).Read(p, p.Measure.Seed+n, 16)
	if err != nil {
		return "", err
	}
	var out []string
	for _, j := range tr.Jobs {
		out = append(out, fmt.Sprintf("%s:%g", j.ID, j.Submit))
	}
	return strings.Join(out, " "), nil
}

// Repeats of a file differ as it was asked for: not at all, by windows, or by blocks, which times scale with.
func TestResample(t *testing.T) {
	for _, tt := range []struct {
		keys  string
		check func(of func(n uint64) string) bool
	}{
		{"", func(of func(uint64) string) bool {
			return of(0) == of(1) && strings.HasPrefix(of(0), "0:0 1:60 ")
		}},
		{"resample = \"windows\"\nblock = \"2h\"", func(of func(uint64) string) bool {
			return strings.HasPrefix(of(0), "0:0 1:60 ") && strings.HasPrefix(of(2), "240:0 241:60 ") && strings.HasSuffix(of(2), " 359:7140")
		}},
		{"resample = \"windows\"\nblock = \"2h\"\nscale = 0.5", func(of func(uint64) string) bool {
			return strings.HasPrefix(of(1), "120:0 121:30 ") && strings.HasSuffix(of(1), " 239:3570")
		}},
		{"resample = \"block\"\nblock = \"1h\"", func(of func(uint64) string) bool {
			first := of(0)
			return first == of(0) && first != of(1) && strings.Count(first, "#9:") == 60
		}},
	} {
		s, err := kinds.Load(folder(t, "from = \"jobs.csv\"\n"+tt.keys))
		if err != nil {
			t.Errorf("%s: %v", tt.keys, err)
			continue
		}
		of := func(n uint64) string {
			jobs, err := repeat(s, n)
			if err != nil {
				t.Fatalf("%s: %v", tt.keys, err)
			}
			return jobs
		}
		if !tt.check(of) {
			t.Errorf("%s: %.80s", tt.keys, of(0))
		}
	}
	s, err := kinds.Load(folder(t, "from = \"jobs.csv\"\nresample = \"windows\"\nblock = \"4h\""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repeat(s, 2); err == nil || !strings.Contains(err.Error(), "window 3 of 14400 s: there are 2") {
		t.Errorf("error %v", err)
	}
}

// What some repeat lacks is said before any of them is done, and of no repeat that nobody wants.
func TestReady(t *testing.T) {
	const hour = "\nresample = \"windows\"\nblock = \"1h\""
	for name, tt := range map[string]struct {
		keys  string
		times int
		want  string
	}{
		"as many as windows":     {"from = \"jobs.csv\"\nresample = \"windows\"\nblock = \"4h\"", 2, ""},
		"more, by the option":    {"from = \"jobs.csv\"\nresample = \"windows\"\nblock = \"4h\"", 4, "window 3 of 14400 s: there are 2"},
		"more, by the spec":      {"from = \"jobs.csv\"\nresample = \"windows\"\nblock = \"4h\"", 0, "window 3 of 14400 s: there are 2"},
		"blocks":                 {"from = \"jobs.csv\"\nresample = \"block\"\nblock = \"4h\"", 4, ""},
		"blocks that are longer": {"from = \"jobs.csv\"\nresample = \"block\"\nblock = \"11h\"", 4, "blocks of 39600 s"},
		"before the gap":         {"from = \"gap.csv\"" + hour, 1, ""},
		"in the gap":             {"from = \"gap.csv\"" + hour, 2, "window 2 of 3600 s: no job is submitted in it"},
		"a user of one window":   {"from = \"gap.csv\"\nuser_values = [\"ann=2\"]" + hour, 1, ""},
		"a user of none":         {"from = \"gap.csv\"\nuser_values = [\"eve=2\"]" + hour, 1, `has no job of user "eve"`},
		"all the same":           {"from = \"jobs.csv\"", 4, ""},
	} {
		path := folder(t, tt.keys)
		gap := "job_id,submit_s,duration_s,gpus,user\na,0,9,1,bob\nb,60,9,1,bob\nc,10800,9,1,ann\n"
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "gap.csv"), []byte(gap), 0o666); err != nil {
			t.Fatal(err)
		}
		s, err := kinds.Load(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p := study.Planned{Point: s.Points()[0], Times: tt.times}
		if err := kinds.Of(p.Spec).Ready(p); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A user of a file need not have a job in every window.
func TestUserOfAnotherWindow(t *testing.T) {
	path := folder(t, "from = \"users.csv\"\nmodels = [\"resnet50\"]\nuser_values = [\"ann=2\"]\nresample = \"windows\"\nblock = \"1h\"\n[placement]\npolicy = \"netpack\"")
	users := "job_id,submit_s,duration_s,gpus,user\na,0,9,1,bob\nb,60,9,1,bob\nc,3600,9,1,ann\nd,5400,9,1,ann\n"
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "users.csv"), []byte(users), 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := kinds.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"a", "c"} {
		got, err := kinds.Simulator(s, "sim").Simulate(t.Context(), s, i)
		if err != nil || len(got.Rows) != 2 || got.Rows[0][0] != want {
			t.Errorf("repeat %d: %+v %v", i, got, err)
		}
	}
}

// A fit is generated: as often as it says, or as a load does.
func TestFitted(t *testing.T) {
	s, err := kinds.Load(folder(t, "from = \"fit.toml\"\njobs = 2"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := repeat(s, 0)
	if err != nil || !strings.HasPrefix(a, "0:0 1:") || strings.Count(a, " ") != 1 {
		t.Errorf("%q: %v", a, err)
	}
}

// What does not go together is said at its key.
func TestCheckTrace(t *testing.T) {
	for _, tt := range []struct{ keys, want string }{
		{"from = \"jobs.csv\"\nresample = \"block\"", "x.toml:8:12: how long is a block?"},
		{"from = \"jobs.csv\"\nblock = \"1h\"", "x.toml:8:1: a block without resample, which draws it"},
		{"from = \"jobs.csv\"\nresample = \"block\"\nblock = \"1h\"\njobs = 9", "x.toml:10:8: jobs draws from the file's jobs"},
		{"from = \"jobs.csv\"\nresample = \"week\"\nblock = \"1h\"", `x.toml:8:12: unknown resample "week"`},
		{"from = \"jobs.csv\"\nresample = \"block\"\nblock = \"0s\"", "x.toml:9:9: block must be above zero"},
		{"from = \"philly\"\njobs = 9\nresample = \"block\"\nblock = \"1h\"", "x.toml:9:12: resample is about a file's jobs"},
		{"from = \"fit.toml\"", "how many jobs are to be generated?"},
		{"from = \"jobs.csv\"\n[switch]\nmode = \"synchronous\"", "x.toml:9:8: jobs of a trace come and go"},
		{"from = \"jobs.csv\"\n[[sweep]]\nkey = \"switch.mode\"\nvalues = [\"statistical\", \"synchronous\"]", "x.toml:10:26: jobs of a trace come and go"},
	} {
		_, err := kinds.Load(folder(t, tt.keys))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.keys, err, tt.want)
		}
	}
}

// Jobs that switches only forward for come and go under each mode.
func TestModes(t *testing.T) {
	for _, collective := range []string{"ps", "ring", "halving-doubling"} {
		if _, err := kinds.Load(folder(t, fmt.Sprintf("from = \"jobs.csv\"\ncollective = %q\n[switch]\nmode = \"synchronous\"", collective))); err != nil {
			t.Errorf("%s: %v", collective, err)
		}
	}
}

// Both studies of traces take 0 jobs of a file as all of them, and of what is generated as none.
func TestZeroJobs(t *testing.T) {
	for _, table := range []string{"[trace]", "[service]\n[service.trace]"} {
		for _, tt := range []struct{ keys, want string }{
			{"from = \"jobs.csv\"\njobs = 0\nload = 0", ""},
			{"from = \"philly\"\njobs = 0", "jobs must be above zero"},
			{"from = \"philly\"\njobs = 9\nload = 0", "load must be above zero"},
			{"from = \"jobs.csv\"\njobs = -1", "jobs must be above zero"},
			{"from = \"fit.toml\"\njobs = 9\nload = 0", ""},
		} {
			path := folder(t, "")
			text := "version = 1\n[fat_tree]\n" + table + "\n" + tt.keys + "\n"
			if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
			_, err := kinds.Load(path)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s\n%s: %v, want %q", table, tt.keys, err, tt.want)
			}
		}
	}
}
