package predictor

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/internal/contract"
	"github.com/inabench/inabench/testbed/supervise"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// asked is a request with two jobs that send, one that is local, and two phases.
func asked() *Request {
	return &Request{
		Schema: Schema,
		Links:  []Link{{Name: "h1->tor1", Rate: 1e9}, {Name: "tor1->h3", Rate: 1e9}},
		Jobs: []Job{
			{Name: "A", Tree: []Node{{Switch: "tor1", Aggregate: true}}, Iterations: 10},
			{Name: "B", Tree: []Node{{Switch: "tor1"}}}, {Name: "L", Local: true, Iterations: 5},
		},
		Phases: []Phase{{Jobs: []string{"A", "L"}}, {Jobs: []string{"A", "B"}}},
	}
}

const good = `{"schema": 1, "phases": [
	{"jobs": [{"name": "A", "goodput": 9e8, "wire_rate": 1e9, "shares": [{"switch": "tor1", "share": 0.5}], "bottleneck": "tor1->h3"}],
	 "links": [{"name": "h1->tor1", "load": 1000000000.0000001}]},
	{"jobs": [{"name": "B", "goodput": 0}, {"name": "A", "goodput": 5e8}]}],
	"jct": [{"job": "A", "seconds": 12.5}, {"job": "L", "seconds": 2}]}`

func TestParseAnswer(t *testing.T) {
	a, err := ParseAnswer([]byte(good), asked())
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Phases) != 2 || *a.Phases[0].Jobs[0].Goodput != 9e8 || *a.JCT[1].Seconds != 2 {
		t.Errorf("answer %+v", a)
	}
	for _, c := range []struct {
		name, from, to string // of good
		want           []string
	}{
		{"version", `"schema": 1`, `"schema": 2, "new": true`, []string{"schema 2, where the request has 1"}},
		{"no version", `"schema": 1, `, ``, []string{"no schema"}},
		{"NaN", `9e8`, `NaN`, []string{"NaN is no JSON number"}},
		{"infinite", `9e8`, `1e999`, []string{"1e999"}},
		{"cut off", `"seconds": 2}]}`, ``, []string{"cut off"}},
		{"syntax", `"B", "goodput": 0}`, `"B" "goodput": 0}`, []string{"line 4"}},
		{"more", `"seconds": 2}]}`, `"seconds": 2}]} done`, []string{"something after the JSON document"}},
		{"unknown key", `"wire_rate"`, `"wirerate"`, []string{"wirerate"}},
		{"text for a number", `9e8`, `"fast"`, []string{"goodput"}},
		{"missing job", `{"name": "B", "goodput": 0}, `, ``, []string{`phase 2: no job "B"`}},
		{"job of another phase", `"name": "A", "goodput": 9e8`, `"name": "B", "goodput": 9e8`, []string{`phase 1: unknown job "B"`, `phase 1: no job "A"`}},
		{"twice", `{"name": "B", "goodput": 0}`, `{"name": "A", "goodput": 0}`, []string{`phase 2: job "A" is there twice`, `phase 2: no job "B"`}},
		{"no goodput", `"goodput": 9e8, `, ``, []string{"phase 1: no goodput of A"}},
		{"negative", `9e8`, `-1`, []string{"phase 1: goodput of A is -1, below 0"}},
		{"share", `0.5`, `1.5`, []string{"share of A at tor1 is 1.5, above 1"}},
		{"no share", `, "share": 0.5`, ``, []string{"phase 1: no share of A at tor1"}},
		{"switch", `"tor1", "share"`, `"tor9", "share"`, []string{`phase 1: unknown switch of job A "tor9"`}},
		{"link", `"h1->tor1"`, `"h1->tor2"`, []string{`phase 1: unknown link "h1->tor2"`}},
		{"load", `1000000000.0000001`, `1.1e9`, []string{"load of h1->tor1 is 1.1e+09, above 1e+09"}},
		{"absurd rate", `9e8`, `1e300`, []string{"phase 1: goodput of A is 1e+300, above 1e+18"}}, // its square is infinite
		{"absurd time", `12.5`, `1e308`, []string{"jct of A is 1e+308, above 1e+18"}},             // two of them are
		{"rate of a local job", `"tor1->h3"}`, `"tor1->h3"}, {"name": "L", "goodput": -1}`, []string{`phase 1: job "L" is local`}},
		{"bottleneck", `"tor1->h3"`, `"tor1"`, []string{`phase 1: bottleneck of A is "tor1", want a link`}},
		{"bottleneck of no switch", `"tor1->h3"`, `"tor9 aggregators"`, []string{`bottleneck of A is "tor9 aggregators"`}},
		{"jct", `"job": "L"`, `"job": "B"`, []string{"jct of B, which has no number of iterations"}},
		{"all at once", `{"name": "B", "goodput": 0}, {"name": "A", "goodput": 5e8}]}],
	"jct": [{"job": "A", "seconds": 12.5}`, `{"name": "A", "goodput": -5e8}]}],
	"jct": [{"job": "A", "seconds": -1}, {"job": "Z"}`, []string{`no job "B"`, "below 0", `job "Z"`, "jct of A is -1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(good, c.from, c.to, 1)
			if text == good {
				t.Fatalf("%q is not in it", c.from)
			}
			_, err := ParseAnswer([]byte(text), asked())
			if !errors.Is(err, ErrAnswer) {
				t.Fatalf("error %v", err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
		})
	}
	for _, text := range []string{"", " \n", "[]", "null", "{}", `{"schema":1}`, `{"schema":1,"phases":[{},{},{}]}`} {
		if _, err := ParseAnswer([]byte(text), asked()); !errors.Is(err, ErrAnswer) {
			t.Errorf("%q: %v", text, err)
		}
	}
	// Of a request without phases, all completion times are wanted.
	req := asked()
	req.Phases = nil
	_, err = ParseAnswer([]byte(`{"schema": 1, "jct": [{"job": "A", "seconds": 1}]}`), req)
	if err == nil || !strings.Contains(err.Error(), `no jct of job "L"`) {
		t.Errorf("error %v", err)
	}
	// However much is wrong, it can be read.
	many := `{"schema": 1, "jct": [` + strings.Repeat(`{"job": "Q", "seconds": 1},`, 90) + `{"job": "A", "seconds": 1}]}`
	if _, err = ParseAnswer([]byte(many), asked()); err == nil || len(err.Error()) > 2000 || !strings.Contains(err.Error(), "more problems") {
		t.Errorf("error %v", err)
	}
}

// TestFlood: what was not asked for takes no memory.
func TestFlood(t *testing.T) {
	times := func(element string) string { return strings.Repeat(element+",", 1_000_000) + element }
	for name, c := range map[string]struct{ text, want string }{
		"phases":      {`{"schema": 1, "phases": [` + times(`{}`) + `]}`, "more than 102 phases"},
		"null phases": {`{"schema": 1, "phases": [` + times(`null`) + `]}`, "more than 102 phases"},
		"other case":  {`{"schema": 1, "phaſes": [` + times(`{}`) + `]}`, "more than 102 phaſes"},
		"links":       {`{"schema": 1, "phases": [{"links": [` + times(`{}`) + `]}]}`, "more than 102 links"},
		"jobs":        {`{"schema": 1, "phases": [{"jobs": [` + times(`{}`) + `]}]}`, "more than 103 jobs"},
		"shares":      {`{"schema": 1, "phases": [{"jobs": [{"shares": [` + times(`{}`) + `]}]}]}`, "more than 101 shares"},
		"times":       {`{"schema": 1, "phases": [{}, {}], "jct": [` + times(`{}`) + `]}`, "more than 103 jct"},
		"brackets":    {`{"schema": 1, "x": ` + strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000) + `}`, "nested deeper than 7"},
		"deep":        {`{"schema": 1, "x": [[[[[[[]]]]]]], "phases": [` + times(`{}`) + `]}`, "nested deeper than 7"},
	} {
		text, req := []byte(c.text), asked()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ParseAnswer(text, req)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
			t.Errorf("%s: %d MiB for %d MiB", name, took>>20, len(text)>>20)
		}
		if !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.200v, want %q", name, err, c.want)
		}
	}
}

// TestRoom: an answer that names everything, indented and escaped, is no longer than it may be.
func TestRoom(t *testing.T) {
	req, load, most := asked(), 1e9/3, 0.1234567890123456789e-300
	long := strings.Repeat("->", 100)
	var a Answer
	a.Schema = Schema
	for i := range req.Links {
		req.Links[i].Name += long
	}
	for _, p := range req.Phases {
		var answer PhaseAnswer
		for range 400 { // as if there were so many
			for _, job := range p.Jobs {
				answer.Jobs = append(answer.Jobs, JobAnswer{Name: job, Goodput: &most, WireRate: &most, Bottleneck: req.Links[0].Name,
					Shares: []Share{{"tor1", &most}}})
			}
			for _, l := range req.Links {
				answer.Links = append(answer.Links, LinkAnswer{l.Name, &load})
			}
		}
		a.Phases = append(a.Phases, answer)
	}
	for i := range req.Phases {
		req.Phases[i].Jobs = slices.Repeat(req.Phases[i].Jobs, 400)
	}
	req.Links = slices.Repeat(req.Links, 400)
	text, err := json.MarshalIndent(a, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	if limit := req.limit(); limit < int64(len(text)) || limit > 4*int64(len(text)) {
		t.Errorf("%d bytes are allowed for an answer of %d", limit, len(text))
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"schema": 1, "phases": [{"jobs": [{"name": "A"}], "links": [{}]}, null], "jct": [{}]}`))
	f.Add([]byte(`{"SCHEMA": 1, "Phases": null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := ParseAnswer(text, asked())
		if err != nil {
			if !errors.Is(err, ErrAnswer) {
				t.Fatal(err)
			}
			return
		}
		// What is accepted has all that is read of it without looking again.
		if len(a.Phases) != 2 {
			t.Fatalf("%d phases", len(a.Phases))
		}
		for i, p := range a.Phases {
			for _, j := range p.Jobs {
				if j.Goodput == nil && j.Name != "L" {
					t.Fatalf("phase %d: no goodput of %s", i, j.Name)
				}
				for _, s := range j.Shares {
					if s.Share == nil && j.Name != "L" {
						t.Fatal("a share without a value")
					}
				}
			}
			for _, l := range p.Links {
				if *l.Load < 0 {
					t.Fatal("a load below 0")
				}
			}
		}
		for _, j := range a.JCT {
			if *j.Seconds < 0 {
				t.Fatal("a time below 0")
			}
		}
		again, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseAnswer(again, asked()); err != nil {
			t.Fatalf("%v of %s", err, again)
		}
	})
}

// TestMain makes this binary the supervisor of predictors.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == supervise.Verb {
		os.Exit(supervise.Play(context.Background(), os.Stdin, os.Stdout, os.Stderr, 6))
	}
	flag.Set("test.parallel", "8") // whatever the cores: they mostly wait
	os.Exit(m.Run())
}

// TestPredict starts real programs.
func TestPredict(t *testing.T) {
	shell := func(script string) Predictor {
		return Predictor{Name: "mine", Command: []string{"/bin/sh", "-c", script}, Dir: t.TempDir()}
	}
	p := shell(`cat > request.json; printf '%s' "$0"`)
	p.Command = append(p.Command, good)
	if _, err := p.Predict(t.Context(), asked()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(p.Dir, "request.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got Request
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asked(), &got); diff != "" {
		t.Errorf("what it read:\n%s", diff)
	}
	if strings.Contains(string(text), `\u003e`) {
		t.Error("arrows are escaped")
	}
	for _, c := range []struct {
		name, script string
		want         []string
	}{
		{"exit", "echo no such model >&2; exit 3", []string{"predictor mine: /bin/sh", "exit status 3", "it said: no such model"}},
		{"signal", "kill -9 $$", []string{": killed by SIGKILL"}},
		{"silent", "cat > /dev/null", []string{"nothing on standard output"}},
		{"no JSON", "echo hello; echo trace >&2", []string{"bad answer", "line 1", "trace"}},
		{"endless", "yes 1234567890123456789012345678901234567890 2> /dev/null", []string{"longer than the 69 KiB"}},
		{"much to say", "yes error | head -100000 >&2; echo the end >&2; exit 1", []string{"the end"}},
		{"reads nothing", "exec < /dev/null; printf '{\"schema\": 7}'", []string{"schema 7"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := shell(c.script).Predict(t.Context(), asked())
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
			if len(err.Error()) > 8000 {
				t.Errorf("%d bytes of error", len(err.Error()))
			}
		})
	}
	large := asked()
	large.Experiment = strings.Repeat("x", maxAsked)
	if _, err := shell("touch started").Predict(t.Context(), large); err == nil || !strings.Contains(err.Error(), "mine: not asked, as its request would have 32 MiB") {
		t.Errorf("a request that is too long: %.200v", err)
	}
	for _, p := range []Predictor{{Name: "mine"}, {Name: "mine", Command: []string{"./not-there"}}} {
		if _, err := p.Predict(t.Context(), asked()); err == nil || !strings.Contains(err.Error(), "predictor mine") {
			t.Errorf("%v: %v", p.Command, err)
		}
	}
}

// A predictor that takes too long ends, and one that answers has ended; and what it started with it, in a session of its
// own or not.
func TestTimeout(t *testing.T) {
	gone := func(dir string) {
		t.Helper()
		pid, err := os.ReadFile(filepath.Join(dir, "child"))
		if err != nil {
			t.Fatal(err)
		}
		if state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat"); err == nil && !strings.Contains(string(state), ") Z") {
			t.Errorf("it left %s", state)
		}
	}
	for name, child := range map[string]string{
		"a child":                    "sleep 1000 & echo $! > child",
		"a session of its own":       "setsid sh -c 'echo $$ > child; exec sleep 1000' &",
		"a daemon":                   "(setsid sh -c 'echo $$ > child; exec sleep 1000' > /dev/null 2>&1 < /dev/null &)",
		"one that hears no SIGTERM":  "sh -c 'trap \"\" TERM HUP; echo $$ > child; sleep 1000; sleep 1000' &",
		"one that forgets its group": "setsid -f sh -c 'echo $$ > child; exec sleep 1000'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait
			child := child + "\nuntil [ -s child ]; do sleep .01; done; "
			p := Predictor{Name: "mine", Command: []string{"/bin/sh", "-c", child + "echo waiting >&2; sleep 1000"}, Dir: t.TempDir(), Timeout: 4 * time.Second}
			_, err := p.Predict(t.Context(), asked())
			if err == nil || !strings.Contains(err.Error(), "no answer within 4s") || !strings.Contains(err.Error(), "it said: waiting") {
				t.Errorf("error %v", err)
			}
			gone(p.Dir)
			p = Predictor{Name: "mine", Command: []string{"/bin/sh", "-c", child + `printf '%s' "$0"`, good}, Dir: t.TempDir()}
			if _, err := p.Predict(t.Context(), asked()); err != nil {
				t.Error(err)
			}
			gone(p.Dir)
		})
	}
	p := Predictor{Name: "mine", Command: []string{"/bin/sh", "-c", "sleep 1000"}, Dir: t.TempDir()}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted by SIGINT"))
	if _, err := p.Predict(ctx, asked()); err == nil || !strings.Contains(err.Error(), "interrupted by SIGINT") {
		t.Errorf("error %v", err)
	}
}

const document = "../../docs/PREDICTOR.md"

// TestDocument holds the documented contract to the code: the tables name every key, and the
// example's answer is what the example in Python says to the example's request.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	blocks := contract.Examples(t, string(text), 2)
	var req Request
	contract.Read(t, blocks[0], &req)
	if _, err := ParseAnswer([]byte(blocks[1]), &req); err != nil {
		t.Error(err)
	}
	_, rest, _ := strings.Cut(string(text), "### Request")
	request, answer, _ := strings.Cut(rest, "### Answer")
	for _, c := range []struct {
		section string
		of      reflect.Type
	}{{request, reflect.TypeFor[Request]()}, {answer, reflect.TypeFor[Answer]()}} {
		documented, there := contract.Documented(c.section), contract.Keys(c.of)
		for _, k := range there {
			if !slices.Contains(documented, k) {
				t.Errorf("%s is not documented", k)
			}
		}
		for _, k := range documented {
			if !slices.Contains(there, k) && k != "phases" {
				t.Errorf("there is no %s", k)
			}
		}
	}

	python, err := exec.LookPath("python3")
	testbedtest.Require(t, "python3", err)
	cmd := exec.Command(python, "../../examples/predictor/maxmin.py")
	cmd.Stdin = strings.NewReader(blocks[0])
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	contract.Same(t, blocks[1], string(out))
}
