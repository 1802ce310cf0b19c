package policy

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/internal/contract"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/policycheck"
	"github.com/inabench/inabench/testbed/supervise"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// TestMain makes this binary the supervisor of policies.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == supervise.Verb {
		os.Exit(supervise.Play(context.Background(), os.Stdin, os.Stdout, os.Stderr, 6))
	}
	flag.Set("test.parallel", "8") // whatever the cores: they mostly wait
	os.Exit(m.Run())
}

// two is a cluster of two racks of two hosts of two GPUs; the last host has no link, and a job runs on the first.
func two(t testing.TB) *cluster.Cluster {
	t.Helper()
	cfg := cluster.FatTree(2, 2, 2, 1e11, 1e12, 1)
	cfg.Servers[3].Link = cluster.NoLink
	c := cluster.New(cfg)
	if err := c.Enter(cluster.Job{ID: 9, GPUs: 1}, cluster.Placement{Parts: []cluster.Part{{Server: 0, GPUs: 1}}}); err != nil {
		t.Fatal(err)
	}
	return c
}

// batch are jobs of every kind of traffic.
func batch() []cluster.Job {
	return []cluster.Job{
		{ID: 1, GPUs: 3}, {ID: 2, GPUs: 2, Traffic: cluster.Ring}, {ID: 3, GPUs: 2, Traffic: cluster.PS, PSes: 2}, {ID: 4, GPUs: 9},
	}
}

// question is the batch as the first that a policy is asked to place in a cluster.
func question(c *cluster.Cluster, jobs []cluster.Job) *asked {
	a := &asked{names: (&Command{}).names(c.Config), cfg: c.Config, jobs: jobs}
	for i := range c.Servers {
		a.free = append(a.free, c.Free(i))
	}
	return a
}

const good = `{"batch": 0, "jobs": [
	{"id": 2, "workers": [{"host": "r2h2", "gpus": 2}]},
	{"id": 1, "workers": [{"host": "r1h2", "gpus": 2}, {"host": "r2h1", "gpus": 1}], "ps": ["r1h1"], "aggregate": ["tor2"]},
	{"id": 3, "workers": [{"host": "r1h1", "gpus": 1}, {"host": "r2h1", "gpus": 1}], "ps": ["r1h1", "r1h1"]},
	{"id": 4, "workers": []}]}`

func TestParse(t *testing.T) {
	c := two(t)
	moves, err := question(c, batch()).parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range moves {
		got = append(got, fmt.Sprintf("%d: %v", batch()[m.job].ID, m.place))
		if err := c.Enter(batch()[m.job], m.place); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"2: 3:2", "1: 1:2 2:1 ps 0 plain 0", "3: 0:1 2:1 ps 0 0"}; !slices.Equal(got, want) {
		t.Errorf("placed %q, want %q", got, want)
	}
	for _, tt := range []struct {
		name, from, to string // of good
		want           []string
	}{
		{"no JSON", good, `hello`, []string{"invalid character", `"hello"`}},
		{"cut off", `"workers": []}]}`, ``, []string{"unexpected EOF"}},
		{"more", `"workers": []}]}`, `"workers": []}]} done`, []string{"something after the JSON object", "done"}},
		{"unknown key", `"aggregate"`, `"agregate"`, []string{"agregate"}},
		{"half a GPU", `"gpus": 2}]}`, `"gpus": 0.5}]}`, []string{"0.5"}},
		{"no batch", `"batch": 0, `, ``, []string{`write "batch": 0`}},
		{"another batch", `"batch": 0`, `"batch": 1`, []string{"about batch 1, asked was 0"}},
		{"error", `"batch": 0`, `"batch": 0, "error": "no\u001b idea"`, []string{`it gives up: "no\x1b idea"`}},
		{"unknown job", `"id": 4`, `"id": 7`, []string{"job 7: it is not in the batch, which has 1, 2, 3, 4", "job 4: it is left out"}},
		{"twice", `"id": 4`, `"id": 2`, []string{"job 2: it is there twice", "job 4: it is left out"}},
		{"no id", `"id": 4, `, ``, []string{"a job without an id", "job 4: it is left out"}},
		{"unknown host", `{"host": "r1h2"`, `{"host": "h9"`, []string{`job 1: unknown host "h9", there are r1h1 to r2h2`}},
		{"too many GPUs", `"r2h2", "gpus": 2`, `"r2h2", "gpus": 3`, []string{"job 2: 3 GPUs on host r2h2, where 2 of 2 are left", "its workers have more GPUs, it asks for 2"}},
		{"taken", `{"host": "r1h1", "gpus": 1}, {"host": "r2h1", "gpus": 1}]`, `{"host": "r1h1", "gpus": 2}]`, []string{"job 3: 2 GPUs on host r1h1, where 1 of 2 are left"}},
		{"taken by a job before", `{"host": "r1h1", "gpus": 1}, {"host": "r2h1"`, `{"host": "r1h2", "gpus": 1}, {"host": "r2h1"`, []string{"job 3: 1 GPUs on host r1h2, where 0 of 2 are left"}},
		{"too few GPUs", `"r1h2", "gpus": 2`, `"r1h2", "gpus": 1`, []string{"job 1: its workers have 2 GPUs, it asks for 3"}},
		{"none", `"r1h2", "gpus": 2`, `"r1h2", "gpus": -2`, []string{"job 1: -2 GPUs on host r1h2, at least 1"}},
		{"host twice", `{"host": "r2h1", "gpus": 1}], "ps": ["r1h1"]`, `{"host": "r1h2", "gpus": 1}], "ps": ["r1h1"]`, []string{"job 1: host r1h2 is there twice"}},
		{"no link", `[{"host": "r2h2", "gpus": 2}]`, `[{"host": "r2h2", "gpus": 1}, {"host": "r2h1", "gpus": 1}]`, []string{"job 2: it is on 2 hosts, and host r2h2 has no link"}},
		{"no PS", `"ps": ["r1h1"], `, ``, []string{"job 1: 0 parameter servers, it has 1 where it is on 2 hosts with traffic ina"}},
		{"unknown PS", `"ps": ["r1h1"]`, `"ps": ["core"]`, []string{`job 1: unknown host "core"`}},
		{"PS without a link", `"ps": ["r1h1"]`, `"ps": ["r2h2"]`, []string{"job 1: a parameter server on host r2h2, which has no link"}},
		{"PS of a ring", `"gpus": 2}]}`, `"gpus": 2}], "ps": ["r1h1"]}`, []string{"job 2: 1 parameter servers, it has 0 where it is on 1 hosts with traffic ring"}},
		{"one of two", `["r1h1", "r1h1"]`, `["r1h1"]`, []string{"job 3: 1 parameter servers, it has 2"}},
		{"unknown switch", `["tor2"]`, `["core"]`, []string{`job 1: switch "core" is to aggregate, its switches are tor1, tor2`}},
		{"switch twice", `["tor2"]`, `["tor2", "tor2"]`, []string{`job 1: switch "tor2" is to aggregate twice`}},
		{"switch of a PS job", `"ps": ["r1h1", "r1h1"]`, `"ps": ["r1h1", "r1h1"], "aggregate": ["tor1"]`, []string{"job 3: switch \"tor1\" is to aggregate, no switch does for traffic ps"}},
		{"too many switches", `["tor2"]`, `["tor2", "tor1", "core"]`, []string{"job 1: 3 switches are to aggregate, its switches are tor1, tor2"}},
		{"waits with a PS", `"workers": []`, `"workers": [], "ps": ["r1h1"]`, []string{"job 4: it has no workers, and yet a ps"}},
		{"all at once", `"r1h2", "gpus": 2}, {"host": "r2h1"`, `"h9", "gpus": 7}, {"host": "h8"`, []string{`host "h9"`, `host "h8"`, "have more GPUs"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(good, tt.from, tt.to, 1)
			if text == good {
				t.Fatalf("%q is not in it", tt.from)
			}
			_, err := question(two(t), batch()).parse([]byte(text))
			if err == nil || !errors.Is(err, ErrAnswer) && tt.name != "error" {
				t.Fatalf("error %v", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
		})
	}
	// However much is wrong, it can be read.
	many := `{"batch": 0, "jobs": [` + strings.Repeat(`{"id": 77},`, 900) + `{"id": 77}]}`
	if _, err := question(two(t), batch()).parse([]byte(many)); err == nil || len(err.Error()) > 4000 || !strings.Contains(err.Error(), "more problems") {
		t.Errorf("error %v", err)
	}
}

// TestTree: nobody but switches adds up for a job without parameter servers, so none of its own may be left out.
func TestTree(t *testing.T) {
	for aggregate, want := range map[string]string{
		`null`:             "",
		`["tor1", "tor2"]`: "",
		`["tor2"]`:         "job 1: switch tor1 is not to aggregate, but for traffic tree nobody else adds up",
		`[]`:               "job 1: switch tor1 is not to aggregate",
	} {
		text := `{"batch": 0, "jobs": [{"id": 1, "workers": [{"host": "r1h2", "gpus": 2}, {"host": "r2h1", "gpus": 1}], "aggregate": ` + aggregate + `}]}`
		_, err := question(two(t), []cluster.Job{{ID: 1, GPUs: 3, Traffic: cluster.Tree}}).parse([]byte(text))
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("aggregate %s: error %v, want %q", aggregate, err, want)
		}
	}
}

// FuzzParse: what is accepted can be done as it is, and says of every job once what becomes of it.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"batch": 0, "jobs": [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}]}`))
	f.Add([]byte(`{"BATCH": 0, "Jobs": null, "error": ""}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := two(t)
		moves, err := question(c, batch()).parse(text)
		if err != nil {
			return
		}
		for _, m := range moves {
			if err := c.Enter(batch()[m.job], m.place); err != nil {
				t.Fatalf("%v of %s", err, text)
			}
		}
	})
}

// shell is a policy that a script is.
func shell(t *testing.T, timeout time.Duration, script string) *Policy {
	t.Helper()
	p, err := Start(t.Context(), Command{Name: "mine", Command: []string{"/bin/sh", "-c", script}, Dir: t.TempDir(), Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// one is a job alone, and says the answer that places it.
const one = `printf '{"batch": 0, "jobs": [{"id": 1, "workers": [{"host": "r1h2", "gpus": 2}]}]}\n'`

// TestHostile: whatever a policy does, the error says what it was and what it said; it ends, and nothing is placed.
func TestHostile(t *testing.T) {
	const soon, ever = 300 * time.Millisecond, time.Minute
	for name, tt := range map[string]struct {
		script  string
		timeout time.Duration
		want    []string
	}{
		"hangs":            {"sleep 1000", soon, []string{"no answer within 300ms: is what it writes flushed?"}},
		"deaf":             {"trap '' TERM HUP; while :; do sleep 1; done", soon, []string{"no answer within 300ms"}},
		"too late":         {"read a; read b; sleep 30; " + one, soon, []string{"no answer within 300ms"}},
		"an empty line":    {"echo; sleep 1000", ever, []string{"bad answer: an empty line"}},
		"no end of a line": {"printf '{}'", ever, []string{"it ended without the end of its line"}},
		"dies in a line":   {"printf '{}'; exit 3", ever, []string{"it ended without an answer: exit status 3"}},
		"half a line":      {"printf '{\"batch\": 0'; sleep 1000", soon, []string{"no answer within 300ms"}},
		"floods":           {"yes | tr -d '\\n'", ever, []string{"bad answer", "too large"}},
		"floods in lines":  {"yes", ever, []string{"bad answer", "invalid character"}},
		"garbage":          {"head -c 3000 /dev/zero; echo", ever, []string{"bad answer", `"\x00`}},
		"a greeting":       {"echo hello; " + one, ever, []string{"bad answer", `"hello"`}},
		"dies":             {"echo no idea >&2; exit 3", ever, []string{"policy mine: /bin/sh", "it ended without an answer: exit status 3", "it said: no idea"}},
		"dies when asked":  {"read a; read b; kill -9 $$", ever, []string{"it ended without an answer: killed by SIGKILL"}},
		"ends":             {"exit 0", ever, []string{"it ended without an answer"}},
		"much to say":      {"yes error | head -100000 >&2; echo the end >&2; exit 1", ever, []string{"the end"}},
		"a traceback":      {"printf 'Traceback\n  line 3\n' >&2; exit 1", ever, []string{"it said: Traceback\n  line 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait
			p, c := shell(t, tt.timeout, tt.script), two(t)
			for range 2 { // it stays so
				if got := p.Place(c, []cluster.Job{{ID: 1, GPUs: 2}}, 1); len(got) != 1 || len(got[0].Parts) > 0 || c.Jobs() != 1 {
					t.Errorf("placed %v", got)
				}
			}
			err := cluster.Err(p)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
			if len(err.Error()) > 8000 {
				t.Errorf("%d bytes of error", len(err.Error()))
			}
		})
	}
	p, err := Start(t.Context(), Command{Name: "mine", Command: []string{"./not-there"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Place(two(t), []cluster.Job{{ID: 1, GPUs: 2}}, 1)
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "not-there") {
		t.Errorf("error %v", err)
	}
	p.Close()
}

// A second answer to the first request is no answer to the second one; jobs of no GPUs are nobody's to place.
func TestStale(t *testing.T) {
	p, c := shell(t, time.Minute, one+"; "+one+"; cat > /dev/null"), two(t)
	got := p.Place(c, []cluster.Job{{ID: 5}, {ID: 1, GPUs: 2}}, 1)
	if err := p.Err(); err != nil || got[0].String() != "-" || got[1].String() != "1:2" {
		t.Fatalf("%v, error %v", got, err)
	}
	p.Place(c, []cluster.Job{{ID: 2, GPUs: 1}}, 1)
	if err := p.Err(); !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), "about batch 0, asked was 1") {
		t.Errorf("error %v", err)
	}
}

// The end of a policy is that of all that it started; the end of a context is that of a policy.
func TestEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	dir := t.TempDir()
	p, err := Start(ctx, Command{Name: "mine", Dir: dir, Timeout: time.Minute,
		Command: []string{"/bin/sh", "-c", "setsid sh -c 'echo $$ > child; exec sleep 1000' & until [ -s child ]; do sleep .01; done; " + one + "; cat > /dev/null"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c := two(t)
	p.Place(c, []cluster.Job{{ID: 1, GPUs: 2}}, 1)
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	cancel(errors.New("interrupted by SIGINT"))
	p.Place(c, []cluster.Job{{ID: 2, GPUs: 1}}, 1)
	if err := p.Err(); err == nil {
		t.Error("it goes on")
	}
	pid, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	if state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat"); err == nil && !strings.Contains(string(state), ") Z") {
		t.Errorf("it left %s", state)
	}
}

// What it is told has all names, and null where there is no limit.
func TestRequest(t *testing.T) {
	c := two(t)
	cfg := c.Config
	cfg.Racks = slices.Clone(cfg.Racks)
	cfg.Racks[1].Uplink = math.Inf(1)
	text, err := json.Marshal(opening((&Command{Hosts: []string{"a", "b", "c", "d"}}).names(cfg), cfg))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"name":"a","switch":"tor1","gpus":2,"link":100000000000}`, `{"name":"d","switch":"tor2","gpus":2,"link":0}`, `"uplink":null`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	waits := batch()[:1]
	waits[0].Seconds = 60
	got := question(c, waits).request(c, math.MaxUint64)
	if got.Seed != 1<<53-1 || got.Hosts[0].Free != 1 || got.Hosts[3].Left != 0 || !math.IsInf(float64(got.Running[0].Rate), 1) || got.Waiting[0].PS != 1 || got.Waiting[0].Seconds != 60 {
		t.Errorf("%+v", got)
	}
}

// python is the command of the example, which needs Python.
func python(t *testing.T) []string {
	t.Helper()
	path, err := exec.LookPath("python3")
	testbedtest.Require(t, "python3", err)
	example, err := filepath.Abs("../../examples/policy/fewest.py")
	if err != nil {
		t.Fatal(err)
	}
	return []string{path, example}
}

// TestExample: the example keeps all rules of policies, in two processes, and puts no part of a job on a host without a link.
func TestExample(t *testing.T) {
	command := Command{Name: "fewest", Command: python(t), Timeout: time.Minute, Twice: true}
	linkless := two(t)
	var two [2]*Policy
	for i := range two {
		var err error
		if two[i], err = Start(t.Context(), command); err != nil {
			t.Fatal(err)
		}
		defer two[i].Close()
	}
	for _, check := range slices.Concat(policycheck.Cluster(two[0], two[1]), policycheck.Inventory(placement.On(two[0]), placement.On(two[1]))) {
		if err := check.Run(7); err != nil {
			t.Errorf("%s: %v", check.Name, err)
		}
	}
	if got := two[0].Place(linkless, []cluster.Job{{ID: 1, GPUs: 5}}, 1)[0]; two[0].Err() != nil || len(got.Parts) != 3 {
		t.Errorf("placed at %v, error %v", got, two[0].Err())
	}
}

// TestDeterminism: what comes of a clock, or of an order that is another in each process, is found.
func TestDeterminism(t *testing.T) {
	answer := `print(json.dumps({"batch": r["batch"], "jobs": [{"id": j["id"], "workers": [{"host": h, "gpus": j["gpus"]}]} for j in r["waiting"]]}), flush=True)`
	loop := "import json, os, sys\nn = 0\nfor line in sys.stdin:\n    r = json.loads(line)\n    if 'cluster' in r: continue\n    n += 1\n    h = %s\n    " + answer
	for name, host := range map[string]string{"counts": "'r1h%d' % (1 + n % 2)", "of the process": "'r1h%d' % (1 + int(os.environ['TWIN']))"} {
		command := Command{Name: "mine", Command: []string{python(t)[0], "-c", fmt.Sprintf(loop, host)}, Timeout: time.Minute, Twice: true}
		var two [2]*Policy
		for i := range two {
			t.Setenv("TWIN", fmt.Sprint(i))
			var err error
			if two[i], err = Start(t.Context(), command); err != nil {
				t.Fatal(err)
			}
			defer two[i].Close()
		}
		var said []string
		for _, p := range two {
			c := cluster.New(cluster.FatTree(1, 2, 2, 1e11, 1e11, 1))
			said = append(said, fmt.Sprint(p.Place(c, []cluster.Job{{ID: 1, GPUs: 1}}, 1), p.Err()))
		}
		if text := strings.Join(said, "; "); said[0] == said[1] && !strings.Contains(text, "the same request twice, and two answers") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

const document = "../../docs/POLICY.md"

// TestDocument holds the documented contract to the code: the tables name every key, and the documented answer is what the
// example in Python says to the documented request.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	blocks := contract.Examples(t, string(text), 3)
	contract.Read(t, blocks[0], &Opening{})
	contract.Read(t, blocks[1], &Request{})
	documented, there := contract.Documented(string(text)), []string(nil)
	for _, of := range []reflect.Type{reflect.TypeFor[Opening](), reflect.TypeFor[Request](), reflect.TypeFor[Answer]()} {
		there = append(there, contract.Keys(of)...)
	}
	there = append(there, "jobs")
	slices.Sort(documented)
	slices.Sort(there)
	if diff := cmp.Diff(slices.Compact(there), slices.Compact(documented)); diff != "" {
		t.Errorf("documented are other keys (-there +documented):\n%s", diff)
	}
	command := python(t)
	cmd := exec.Command(command[0], command[1])
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(blocks[0], "\n", "") + "\n" + strings.ReplaceAll(blocks[1], "\n", "") + "\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	contract.Same(t, blocks[2], string(out))
}
