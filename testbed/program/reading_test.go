package program

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/metric"
)

// readers are how samples are read, by the beginning of their names. iperf3's are what
// iperf 3.12 printed (iperf3-stream: written after its manual); all others are written after
// the sources that the readers name.
var readers = map[string]func([]byte) (*Reading, error){
	"iperf3":   func(b []byte) (*Reading, error) { return ReadIPerf3(b, nil) },
	"nccl.":    ReadNCCLJSON,
	"nccl-":    ReadNCCLText,
	"perftest": ReadPerftest,
	"atp":      ReadATP,
	"switchml": ReadSwitchML,
}

func read(name string, text []byte) (*Reading, error) {
	for prefix, f := range readers {
		if strings.HasPrefix(name, prefix) {
			return f(text)
		}
	}
	return nil, errors.New("nobody reads " + name)
}

func describe(r *Reading, err error) string {
	if err != nil {
		return fmt.Sprintf("error: %v\n", err)
	}
	var b strings.Builder
	for _, f := range r.Figures {
		fmt.Fprintf(&b, "%s of %q: %s, %d\n", f.Metric, f.Of, human.QuantityCI(f.Value, f.Lo, f.Hi, f.Unit), f.N)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	if r.Wrong != "" {
		fmt.Fprintf(&b, "wrong: %s\n", r.Wrong)
	}
	return b.String()
}

// All samples, as they are read. The figures that matter are checked by hand in TestByHand.
func TestReaders(t *testing.T) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d samples: %v", len(files), err)
	}
	var b strings.Builder
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasSuffix(name, ".golden") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "== %s\n%s", name, describe(read(name, text)))
	}
	golden.Compare(t, "readers.golden", b.String())
}

// Figures that were computed by hand from what the samples say.
func TestByHand(t *testing.T) {
	for _, test := range []struct {
		file, metric, of string
		want             float64
	}{
		{"iperf3-tcp.json", "goodput", "", 25165824 * 8 / 2.000594},
		{"iperf3-udp.json", "goodput", "", 5013504 * 8 / 2.000323},
		{"iperf3-udp.json", "loss", "", 0},
		{"iperf3-udp.json", "jitter", "", 0.002904487e-3},
		{"iperf3-stream.json", "goodput", "", 99401993.36}, // the first second is left out
		{"iperf3-stream.json", "retransmits", "", 4},
		{"nccl-new.txt", "algbw", "512MiB", 76.31 * 8e9},
		{"nccl-new.txt", "busbw", "512MiB", 114.46 * 8e9}, // 1.5 of algbw: 4 ranks
		{"nccl-new.txt", "algbw", "512MiB/in-place", 76.57 * 8e9},
		{"nccl-new.txt", "latency", "128MiB", 1912.5e-6},
		{"nccl-iterations.txt", "algbw", "512MiB/in-place", 76.57 * 8e9}, // -I 1: columns of each place have units of their own
		{"nccl-iterations.txt", "latency", "256MiB/in-place", 3598.7e-6},
		{"nccl-old.txt", "latency", "8B", 33.96e-6},
		{"nccl-unchecked.txt", "latency", "1GiB", 11e-3},
		{"nccl-wrong.txt", "sum_errors", "512MiB", 12},
		{"nccl.json", "algbw", "1MiB", 19.97 * 8e9},
		{"perftest-mib.txt", "goodput", "64KiB", 11549.87 * 1048576 * 8}, // 96.9 Gbit/s
		{"perftest-debian.txt", "goodput", "64KiB", 11549.87 * 1048576 * 8},
		{"perftest-gbits.txt", "goodput", "64KiB", 96.49e9},
		{"perftest-gbits.txt", "message_rate", "2B", 3.569532e6},
		{"perftest-ports.txt", "goodput", "64KiB", 196.48e9},
		{"perftest-ports.txt", "message_rate", "64KiB", 374756},
		{"perftest-lat.txt", "latency", "2B", 1.10e-6},
		{"perftest-lat-duration.txt", "latency", "2B", 1.12e-6},
		{"nccl-old.txt", "algbw", "8B", 0},
		{"perftest-lat.txt", "latency_p99", "2B", 1.19e-6},
		{"atp.txt", "wire_rate", "", 8000 * 16517 * 308 * 8 / 8.437}, // 38.6 Gbit/s, 35.9 of ATP's
		{"atp.txt", "goodput", "", 8000 * 16517 * 248 * 8 / 8.437},
		{"switchml.txt", "goodput", "", (32e9 + 32e9 + 30e9) / 3},
		{"switchml.txt", "jct", "", (8388608 + 8388608 + 8947849) * 1e-9 / 3},
	} {
		text, err := os.ReadFile("testdata/" + test.file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := read(test.file, text)
		if err != nil {
			t.Errorf("%s: %v", test.file, err)
			continue
		}
		f, ok := r.Get(test.metric, test.of)
		if !ok || math.Abs(f.Value-test.want) > 1e-6*math.Abs(test.want) {
			t.Errorf("%s: %s of %q is %v (there: %t), want %v", test.file, test.metric, test.of, f.Value, ok, test.want)
		}
	}
}

// What says that a program failed is ErrFailed, what is cut off ErrOutput, and never a
// figure.
func TestFailures(t *testing.T) {
	for file, want := range map[string]error{
		"iperf3-refused.json": ErrFailed, "perftest-refused.txt": ErrFailed, "nccl-cut.txt": ErrOutput,
	} {
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := read(file, text); !errors.Is(err, want) || r != nil {
			t.Errorf("%s: %v, %v; want %v", file, r, err, want)
		}
	}
	tcp, err := os.ReadFile("testdata/iperf3-tcp.json")
	if err != nil {
		t.Fatal(err)
	}
	refused, _ := os.ReadFile("testdata/iperf3-refused.json")
	if _, err := ReadIPerf3(tcp, refused); !errors.Is(err, ErrFailed) {
		t.Errorf("a server that failed: %v", err)
	}
	if _, err := ReadIPerf3(tcp[:len(tcp)/2], nil); !errors.Is(err, ErrOutput) {
		t.Errorf("half of it: %v", err)
	}
	short := bytes.Replace(tcp, []byte(`"seconds":	2.000594`), []byte(`"seconds":	0.2`), 1) // what arrived in all
	for _, test := range []struct {
		text []byte
		want string // empty: none
	}{
		{short, "it measured 0.2 s of 2 s"},
		{bytes.Replace(tcp, []byte("\"omitted\":	false,\n				\"sender\":	true\n			}\n		}, {"), []byte("\"omitted\":	true,\n				\"sender\":	true\n			}\n		}, {"), 1), "it measured 1 s of 2 s"},
		{bytes.Replace(tcp, []byte(`"duration":	2`), []byte(`"duration":	2.2`), 1), "it measured 2 s of 2.2 s"},
		{bytes.Replace(bytes.Replace(tcp, []byte(`"duration":	2`), []byte(`"duration":	4`), 1), []byte(`"intervals"`), []byte(`"none"`), 1), "it measured 2 s of 4 s"},
		{bytes.Replace(tcp, []byte(`"duration":	2`), []byte(`"duration":	2.05`), 1), ""},
		{bytes.Replace(short, []byte(`"duration":	2`), []byte(`"duration":	0`), 1), ""}, // -n
	} {
		if _, err := ReadIPerf3(test.text, nil); test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
	for name, bad := range map[string][]byte{
		"-R":   bytes.Replace(tcp, []byte(`"reverse":	0`), []byte(`"reverse":	1`), 1),
		"-C 1": []byte(`{"results": [{"size": 8, "out_of_place": {"cpu_time": 4.1, "alg_bw": 0.0, "bus_bw": 0.0, "nwrong": "0"}}], "out_of_bounds": {"count": 0, "okay": "true"}}`),
		"nccl-tests: line 3: unexpected output: algbw in \"us\"": []byte("# size count type redop time algbw busbw #wrong\n# (B) (elements) (us) (us) (GB/s)\n8 2 float sum 1 2 3 0\n# Out of bounds values : 0 OK\n"),
	} {
		f := map[bool]func([]byte) (*Reading, error){true: ReadNCCLJSON, false: ReadNCCLText}[bad[0] == '{']
		if name == "-R" {
			f = readers["iperf3"]
		}
		if r, err := f(bad); !errors.Is(err, ErrOutput) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	if _, err := ReadPerftestJSON([]byte(`{test_info: {}, results: {MsgSize: 2, sl: 0}}`)); err == nil || !strings.Contains(err.Error(), "table") {
		t.Errorf("JSON of QoS tests: %v", err)
	}
}

// perftest says Gbit/s where it is asked to, which it always is, and its JSON says nothing of that.
func TestPerftestJSON(t *testing.T) {
	text := []byte(`{"test_info":{"test":"Write_BW"},"results":{"MsgSize":65536,"n_iterations":5000,"BW_peak":96.57,"BW_average":96.49,"MsgRate":0.18404}}`)
	r, err := ReadPerftestJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	if f, _ := r.Get("goodput", "64KiB"); f.Value != 96.49e9 || f.N != 5000 {
		t.Errorf("%v of %d", f.Value, f.N)
	}
}

// What cannot be measured is no figure, in a table as in JSON; a rate may be less than its column can say.
func TestPerftestValues(t *testing.T) {
	const head = "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n"
	for _, test := range []struct{ row, want string }{
		{"65536 5000 96.57 96.49 0.18404", ""},
		{"65536 5000 96.57 -96.49 0.18404", "goodput of 64KiB is -96.49"},
		{"65536 5000 96.57 0.00 0.18404", ""},
		{"65536 5000 96.57 96.49 -0.18404", "message_rate of 64KiB is -0.18404"},
		{"65536 5000 96.57 96.49 0.000000", ""},
		{"65536 0 96.57 96.49 0.18404", " 0"},
		{"65536 -3 96.57 96.49 0.18404", " -3"},
	} {
		f := strings.Fields(test.row)
		doc := fmt.Sprintf(`{"results":{"MsgSize":%s,"n_iterations":%s,"BW_average":%s,"MsgRate":%s}}`, f[0], f[1], f[3], f[4])
		for text, read := range map[string]func([]byte) (*Reading, error){head + test.row + "\n": ReadPerftest, doc: ReadPerftestJSON} {
			r, err := read([]byte(text))
			if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrOutput) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%s: %v, want %q", text, err, test.want)
			}
			if err != nil {
				continue
			}
			for metric, v := range map[string]string{"goodput": f[3], "message_rate": f[4]} {
				if _, ok := r.Get(metric, "64KiB"); ok == (strings.Trim(v, "0.") == "") {
					t.Errorf("%s: %+v", text, r.Figures)
				}
			}
		}
	}
	if r, err := ReadPerftest([]byte("#bytes #iterations t_avg[usec]\n2 1000 -1.1\n")); !errors.Is(err, ErrOutput) {
		t.Errorf("a latency: %+v, %v", r, err)
	}
}

// A table that lacks the size that was asked for is of another test.
func TestPerftestSizeOfTable(t *testing.T) {
	const head = "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n"
	for _, test := range []struct {
		w     Workload
		sizes string
		want  string
	}{
		{Workload{Size: 64 << 10}, "65536", ""},
		{Workload{Size: 64 << 10}, "4096", "lacks 64KiB"},
		{Workload{}, "4096", ""},
		{Workload{Arguments: []string{"-a"}}, "2 4", ""},
		{Workload{Size: 64 << 10, Arguments: []string{"-Fa"}}, "2 4", ""},
		{Workload{Size: 64 << 10, Arguments: []string{"--all"}}, "2 4", ""},
		{Workload{Size: 64 << 10, Arguments: []string{"-s", "4096"}}, "4096", ""},
		{Workload{Size: 64 << 10, Arguments: []string{"-Rs4096"}}, "65536", "lacks 4KiB"},
		{Workload{Arguments: []string{"--size=0x1000"}}, "4096", ""},
		{Workload{Arguments: []string{"--size", "4096", "-n", "100"}}, "100", "lacks 4KiB"},
		{Workload{Arguments: []string{"-x", "-s", "-s", "many"}}, "100", ""},
		{Workload{Arguments: []string{"-q", "-s"}}, "100", ""},
		{Workload{Size: 4096, Command: []string{"numactl", "-s", "/usr/bin/ib_write_bw", "-s", "8"}}, "4096", ""},
		{Workload{Command: []string{"numactl", "-s", "/usr/bin/ib_write_bw", "-s", "8"}}, "4096", "lacks 8B"},
		{Workload{Command: []string{"run.sh", "-s", "8"}}, "4096", ""},
	} {
		table := head
		for _, size := range strings.Fields(test.sizes) {
			table += size + " 5000 96.57 96.49 0.18404\n"
		}
		test.w.Kind, test.w.Name = Perftest, "A"
		for _, asJSON := range []bool{false, true} {
			out := Output{Stdout: []byte(table)}
			if test.w.JSON = asJSON; asJSON {
				size, _, _ := strings.Cut(test.sizes, " ")
				out = Output{Written: []byte(`{"results":{"MsgSize":` + size + `,"n_iterations":5000,"BW_average":96.49,"MsgRate":0.18404}}`)}
			}
			if _, err := test.w.Read([]Output{out}); test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrOutput) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%+v: %v, want %q", test.w, err, test.want)
			}
		}
	}
}

func TestExtract(t *testing.T) {
	log := []byte("step 1 loss 2.5 1,250,000 tokens/s 80 ms\nstep 2 loss 2.25 1,350.5 tokens/s 84 ms\n")
	doc := []byte(`{"runs": [{"bw": 12.5}, {"bw": "13.5"}], "unit": "GB/s"}`)
	for _, test := range []struct {
		text []byte
		rule Rule
		want float64
		n    int
		unit string
	}{
		{log, Rule{Metric: "step_time", Unit: "ms", Regexp: `(\d+) ms$`}, 0.082, 2, "s"},
		{log, Rule{Metric: "loss", Unit: "1", Regexp: `loss ([\d.]+)`, Take: "last"}, 2.25, 1, "1"},
		{log, Rule{Metric: "loss", Unit: "1", Regexp: `loss ([\d.]+)`, Take: "first"}, 2.5, 1, "1"},
		{log, Rule{Metric: "tokens", Unit: "1/s", Regexp: `([\d,.]+) tokens`, Take: "sum"}, 1251350.5, 1, "1/s"},
		{doc, Rule{Metric: "bw", Unit: "GB/s", JSON: "runs.*.bw"}, 13 * 8e9, 2, "bit/s"},
		{doc, Rule{Metric: "bw", Unit: "MiB/s", JSON: "runs.0.bw"}, 12.5 * 8 * 1048576, 1, "bit/s"},
	} {
		r, err := Extract(test.text, []Rule{test.rule})
		if err != nil {
			t.Errorf("%+v: %v", test.rule, err)
			continue
		}
		if r.Wrong != "" {
			t.Errorf("%+v: wrong: %s", test.rule, r.Wrong)
		}
		if f := r.Figures[0]; math.Abs(f.Value-test.want) > 1e-9*test.want || f.N != test.n || f.Unit != test.unit || f.Metric != test.rule.Metric {
			t.Errorf("%+v: %+v, want %v %s of %d", test.rule, f, test.want, test.unit, test.n)
		}
	}
	for says, want := range map[string]string{"1,5": "groups of three", "1,500": "ambiguous", "-1,500": "ambiguous", "1.500,5": "groups of three", "1500,000": "groups of three", "1,50,000": "groups of three", ",500": "groups of three", "1,5.0": "groups of three", "0x10": "not a finite number", "nan": "not a finite number"} {
		for _, text := range []string{"bw " + says, `{"bw": "` + says + `"}`} {
			rule := Rule{Metric: "bw", Unit: "GB/s", Regexp: `bw (\S+)`}
			if text[0] == '{' {
				rule = Rule{Metric: "bw", Unit: "GB/s", JSON: "bw"}
			}
			if r, err := Extract([]byte(text), []Rule{rule}); !errors.Is(err, ErrOutput) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %+v, %v; want %q", text, r, err, want)
			}
		}
	}
	for says, want := range map[string]string{"wrong 0\nwrong 0\n": "", "wrong 0\nwrong 12\n": "12 wrong values"} {
		r, err := Extract([]byte(says), []Rule{{Metric: "sum_errors", Unit: "1", Regexp: `wrong (\d+)`, Take: "first"}})
		if err != nil || r.Wrong != want {
			t.Errorf("%q: %q, %v; want %q", says, r.Wrong, err, want)
		}
	}
	for _, rule := range []Rule{
		{Metric: "m", Unit: "1", Regexp: "nothing like it (x)"}, // never 0 instead
		{Metric: "m", Unit: "1", JSON: "runs.2.bw"},
		{Metric: "m", Unit: "1", JSON: "unit"}, // not a number
		{Metric: "m", Unit: "furlong", JSON: "runs.0.bw"},
		{Metric: "m", Unit: "1", Regexp: "no group"},
		{Metric: "m", Unit: "1", Regexp: "("},
		{Metric: "m", Unit: "1"},
	} {
		if r, err := Extract(doc, []Rule{rule}); err == nil {
			t.Errorf("%+v: %+v", rule, r)
		}
	}
}

// TestRedactLong: what looks like one name after the other in one long word costs in proportion to its length. A cost
// that grows with the square, as where the value of each name was looked at to its end, makes 64 of the 8.
func TestRedactLong(t *testing.T) {
	cost := func(length int) time.Duration {
		begin := time.Now()
		for _, part := range []string{"?a=", "(a=", "{a=", "&a=", ";a:", "a=b,", " --a=", "?TOKEN=", `a="`, "a='", "http://", "https://a:", "Authorization: ", "-----BEGIN PRIVATE KEY-----", "x", `"token":"x",`, "token='x ", `"token":"x`, "token='x\" ", `\\"token\\":\\"x`, `"keys_token":["x",`} {
			Redact(bytes.Repeat([]byte(part), length/len(part)))
		}
		return time.Since(begin)
	}
	const length, times = 80_000, 8
	var growth []float64
	for range 3 { // this machine may be busy with something else
		g := cost(length).Seconds() / cost(length/times).Seconds()
		if g < 3*times {
			return
		}
		growth = append(growth, g)
	}
	t.Errorf("%d times the length cost %.0f times as much", times, growth)
}

// TestSecretParts: no name of a secret is without the words for which a text is looked through first.
func TestSecretParts(t *testing.T) {
	for _, name := range strings.Fields("TOKEN Secret passwd passphrase api-key APIKEY access_key private-key credentials authorization Cookie session_id sessionid signature my.pwd pwd sshpass pgpass x-pass db_pass_1 pass-x tokenizer_secret") {
		if SecretName(name) != wordsOf([]byte(name))(secretParts...) {
			t.Errorf("%s: a secret: %t", name, SecretName(name))
		}
	}
}

// No secret survives, and what the run is about does.
func TestRedact(t *testing.T) {
	for _, test := range []struct{ in, gone, stays string }{
		{"HF_TOKEN=hf_secretsecretsecret rest", "secretsecret", "rest"},
		{`{"WANDB_API_KEY": "abc123def"}`, "abc123def", "WANDB_API_KEY"},
		{"export AWS_SECRET_ACCESS_KEY='abc/def'", "abc/def", "AWS_SECRET_ACCESS_KEY"},
		{"Authorization: Bearer abcdef0123456789", "abcdef0123456789", "Bearer"},
		{"postgres://user:hunter2@db/x", "hunter2", "user"},
		{"./train --password hunter2 --lr 0.1", "hunter2", "--lr 0.1"},
		{"./train --api-token=hunter2", "hunter2", "--api-token"},
		{"key ghp_abcdefghijklmnopqrstuvwxyz0123", "ghp_abcdef", "key"},
		{"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\nrest", "AAAA", "rest"},
		{"NCCL_IB_HCA==mlx5_1 SHARP_COLL_LOG_LEVEL=3", "removed", "NCCL_IB_HCA==mlx5_1"},
		{"password: hunter2", "hunter2", "password: "},
		{"as baſic abcdefgh12345 it is said", "abcdefgh12345", "it is said"},
		{"MY_PGPASS=hunter2 rest", "hunter2", "rest"},
		{"OldPwd=hunter2 rest", "removed", "hunter2"},
		{"DB.PWD=hunter2 rest", "hunter2", "rest"},
		{"Password : hunter2 for db", "hunter2", " for db"},
		{"HF_TOKEN = hunter2", "hunter2", "HF_TOKEN = "},
		{"token := hunter2", "hunter2", "token := "},
		{"SSHPASS=hunter2 sshpass -e ssh h1", "hunter2", "sshpass -e ssh h1"},
		{"DB_PASS=hunter2\nDB_HOST=db", "hunter2", "DB_HOST=db"},
		{"PGPASSWORD='two words' psql", "words", "psql"},
		{`passphrase = "two words" # of a key`, "words", "# of a key"},
		{"db.pwd=hunter2", "hunter2", "db.pwd="},
		{"GET https://h/x?access_token=hunter2&page=2", "hunter2", "&page=2"},
		{"GET https://h/x?page=2&api-key=hunter2 200", "hunter2", " 200"},
		{"key glpat-ABCdef0123456789_xyz done", "glpat-ABC", "done"},
		{"jwt eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4ifQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c end", "eyJzdWIi", "end"},
		{"git clone https://x0123456789abcdef@git.example/r", "x0123456789", "git.example/r"},
		{"ssh://git@host/r", "removed", "ssh://git@host/r"},
		{"https://user:hunter2@host/r", "hunter2", "host/r"},
		{"X-Api-Key: hunter2", "hunter2", "X-Api-Key"},
		{"Cookie: session=hunter2; path=/", "hunter2", "Cookie"},
		{"Authorization: token hunter2hunter2", "hunter2hunter2", "Authorization"},
		{"./train -token hunter2 -v", "hunter2", "-v"},
		{"AWS AKIAQYLPMN5HHHFPZAM2 key", "AKIAQYLPMN5HHHFPZAM2", "AWS"},
		{"slack xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx", "AbCdEfGhIjKl", "slack"},
		{"openai sk-proj-0123456789abcdefABCDEF0123456789abcdefABCDEF01234567", "0123456789abcdefAB", "openai"},
		{"npm npm_0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX", "npm_0aB1", "npm"},
		{"s.signature=abcdef&x=1", "abcdef", "x=1"},
		{`{"env": {"MY_SECRET": "a b c"}, "n": 1}`, "a b c", `"n": 1`},
		{`"args": ["./train", "--password", "hunter2", "--lr", "0.1"]`, "hunter2", `"--lr", "0.1"`},
		{"['./train', '-token', 'hunter2', '-v']", "hunter2", "'-v'"},
		{"\"args\": [\n\t\"--api-key\",\n\t\"hunter2\",\n\t\"-v\"\n]", "hunter2", "-v"},
		{`{"log": "{\"db_password\": \"hunter2\", \"n\": 1}"}`, "hunter2", `\"n\": 1`},
		{`{"log": "{\\\"api_key\\\":\\\"two words\\\"}", "n": 1}`, "two words", `"n": 1`},
		{`{"log": "{\"token\": \"hunter2"}`, "hunter2", "log"},
		{"password: \"two words\nrest", "two words", "rest"},
		{`{"log":"can't read token='abc","goodput":123}`, "abc", `","goodput":123}`},
		{`{"password": "hun\"ter2", "n": 1}`, "ter2", `", "n": 1}`},
		{`{"password": "hunter2\\", "n": 1}`, "hunter2", `", "n": 1}`},
		{`{"log": "{\"password\": \"hun\\\"ter2\", \"n\": 1}"}`, "ter2", `\", \"n\": 1}"}`},
		{`["MY_SECRET=two words", "-v"]`, "words", `", "-v"]`},
		{`["--password=correct horse", "-v"]`, "horse", `", "-v"]`},
		{`["--password" "hunter2" "-v"]`, "hunter2", `" "-v"]`},
		{"--password  hunter2 -v", "hunter2", " -v"},
		{"- --password\n- hunter2\n- -v", "hunter2", "\n- -v"},
		{"--oauth2-token=hunter2 --s3-secret-key hunter3", "hunter", "--s3-secret-key"},
		{"--env=API_TOKEN=hunter2 -v", "hunter2", " -v"},
		{"[password=hunter2 and", "hunter2", " and"},
		{`{"api_keys": ["hunter2", "hunter3"], "n": 1}`, "hunter", `"], "n": 1}`},
		{`{"log":"{\"a\": \"token=hunter2\"}"}`, "hunter2", `\"}"}`},
		{`{"pin_password": 1234, "n": 1}`, "1234", `"[removed]", "n": 1}`},
		// What is none.
		{`{"token": null, "secret": true, "credentials": {"n": 1}}`, "removed", `{"n": 1}`},
		{`["--token-length", 128]`, "removed", `128]`},
		{"option '--token' is required", "removed", "is required"},
		{`{"url":"http://a:80","mail":"x@y"}`, "removed", `"x@y"`},
		{"PWD=/home/lab OLDPWD=/tmp", "removed", "/home/lab"},
		{"max_tokens = 2048, tokens_per_second: 123.4", "removed", "2048, tokens_per_second: 123.4"},
		{"tokenizer: gpt2", "removed", "gpt2"},
		{"all passed: 12 pass, 0 fail", "removed", "12 pass"},
		{"bypass=1 compass=2 passes=3", "removed", "passes=3"},
		{"  33554432  8388608  float  sum  -1  412.3  81.38  152.59  0", "removed", "152.59"},
		{"h1:17:23 [0] NCCL INFO comm 0x55d0 rank 0 nranks 4 cudaDev 0 busId 3b000 commId 0x8a2f2cdd5e9d3dd1 - Init COMPLETE", "removed", "0x8a2f2cdd5e9d3dd1"},
	} {
		got := string(Redact([]byte(test.in)))
		if strings.Contains(got, test.gone) || !strings.Contains(got, test.stays) || json.Valid([]byte(test.in)) && !json.Valid([]byte(got)) {
			t.Errorf("%q became %q", test.in, got)
		}
	}
	text, err := os.ReadFile("testdata/nccl.json")
	if err != nil {
		t.Fatal(err)
	}
	got := string(Redact(Evidence(text)))
	for _, gone := range []string{"hf_abc", "/root", "NCCL_API_KEY=x", "pw@db"} {
		if strings.Contains(got, gone) {
			t.Errorf("%q is still there:\n%s", gone, got)
		}
	}
	if !strings.Contains(got, "NCCL_DEBUG=INFO") || !json.Valid([]byte(got)) {
		t.Errorf("what is needed is gone:\n%s", got)
	}
	if again, err := ReadNCCLJSON([]byte(got)); err != nil || len(again.Figures) == 0 {
		t.Errorf("what is kept cannot be read: %v", err)
	}
}

func TestCheckSwitchML(t *testing.T) {
	good := "[general]\nbackend = dpdk\npacket_numel = 256\nnum_workers = 2\nnum_worker_threads = 4\nmax_outstanding_packets = 256\n"
	if p := CheckSwitchML([]byte(good), 2); len(p) > 0 {
		t.Errorf("a good one: %q", p)
	}
	for _, test := range []struct{ from, to, want string }{
		{"packet_numel = 256\n", "", "1024"}, // the library's own default is refused
		{"packet_numel = 256", "packet_numel = 128", "packet_numel = 128"},
		{"dpdk", "dummy", "sends nothing"},
		{"num_workers = 2", "num_workers = 1", "2 workers"},
		{"num_workers = 2", "num_workers = 3", "there are 2 hosts"},
		{"packets = 256", "packets = 250", "not a multiple"},
		{"packets = 256", "packets = many", "not a number"},
	} {
		p := CheckSwitchML([]byte(strings.Replace(good, test.from, test.to, 1)), 2)
		if len(p) != 1 || !strings.Contains(p[0], test.want) {
			t.Errorf("%q: %q, want one with %q", test.to, p, test.want)
		}
	}
}

func TestRanks(t *testing.T) {
	text, err := os.ReadFile("testdata/nccl-new.txt")
	if err != nil {
		t.Fatal(err)
	}
	if r := NCCLRanks(text); len(r) != 4 || r[0] != "h1" || r[3] != "h2" {
		t.Errorf("ranks: %v", r)
	}
	hosts := RankHosts([]Output{
		{Command: Command{Host: "h1"}, Stdout: []byte("[rank1] hello\nrank 2 of 4\n")},
		{Command: Command{Host: "h2"}, Stdout: []byte("RANK=0\nrank 2 is my peer\n")},
	})
	if len(hosts) != 2 || hosts[1] != "h1" || hosts[0] != "h2" {
		t.Errorf("ranks of hosts: %v; 2 is not certain", hosts)
	}
}

// A rule gives finite figures in its base unit, or an error, whatever the output.
func FuzzExtract(f *testing.F) {
	f.Add([]byte(`{"a": [1, "2"]}`), "a.*", "(\\d+) ms")
	f.Add([]byte("12 ms\n13 ms\n"), "0", "(\\d+) ms")
	f.Fuzz(func(t *testing.T, text []byte, path, re string) {
		for _, rule := range []Rule{{Metric: "m", Unit: "ms", JSON: path}, {Metric: "m", Unit: "ms", Regexp: re, Take: "sum"}} {
			r, err := Extract(text, []Rule{rule})
			if (err == nil) != (r != nil && len(r.Figures) == 1) {
				t.Fatalf("%+v: %+v, %v", rule, r, err)
			}
			if r != nil && (!finite(r.Figures[0].Value) || r.Figures[0].Unit != "s") {
				t.Fatalf("%+v: %+v", rule, r.Figures)
			}
		}
	})
}

// Whatever is read, an error and a reading exclude each other, and figures are finite, known
// and in base units.
func FuzzReaders(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.*")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && !strings.HasSuffix(file, ".golden") {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for name, f := range readers {
			r, err := f(text)
			if (err == nil) != (r != nil) {
				t.Fatalf("%s: %v and %v", name, r, err)
			}
			if r == nil {
				continue
			}
			if len(r.Figures) == 0 && len(r.Notes) == 0 {
				t.Fatalf("%s: neither an error nor a figure", name)
			}
			for _, x := range r.Figures {
				if !finite(x.Value, x.Lo, x.Hi) || x.Unit == "" || x.Unit != metric.Of(x.Metric, "").Unit || x.Kind != results.Measured {
					t.Fatalf("%s: %+v", name, x)
				}
			}
		}
		if !json.Valid(text) {
			Redact(text)
		}
		Redact(Evidence(text))
		CheckSwitchML(text, 0)
	})
}

// allocated is how many bytes something allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What a stream says is kept as it is, costs its own length and once more where it is asked for, and goes on behind that.
func TestBuffer(t *testing.T) {
	fill := func(size, write int) (b *buffer) {
		b = &buffer{room: new(atomic.Int64), full: func() { t.Errorf("%d bytes are too many", size) }}
		b.room.Store(maxOutput)
		for part := bytes.Repeat([]byte("line\n"), write/5); b.size < size; {
			if n, err := b.Write(part[:min(len(part), size-b.size)]); n == 0 || err != nil {
				t.Fatal(n, err)
			}
		}
		return b
	}
	for _, size := range []int{0, 5, leastPart - 1, leastPart, leastPart + 5, 300_000, 5 * mostPart, maxOutput} {
		for _, write := range []int{5, 32_770, 3 * mostPart / 5 * 5} {
			if size > 5*mostPart && write == 5 {
				continue
			}
			var b *buffer
			var all []byte
			took := allocated(func() {
				b = fill(size, write)
				all = b.bytes()
			})
			if most := uint64(2*size + 2*size/10 + write + mostPart); took > most {
				t.Errorf("%d bytes, %d at a time, took %d, at most %d are expected", size, write, took, most)
			}
			want := strings.Repeat("line\n", size/5+1)[:size]
			b.room.Store(maxOutput)
			if _, err := b.Write([]byte("more")); err != nil || string(all) != want {
				t.Errorf("%d bytes became %d", size, len(all))
			}
			if again := b.bytes(); string(again) != want+"more" || cap(again) != len(again) {
				t.Errorf("%d bytes and 4 more became %d", size, len(again))
			}
		}
	}
	b := fill(0, 5)
	said := 0
	b.full = func() { said++ }
	b.room.Store(4)
	for range 2 {
		if n, err := b.Write([]byte("abc")); n != 3 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if said != 1 || string(b.bytes()) != "abc" {
		t.Errorf("beyond the room: said %d times, %q", said, b.bytes())
	}
}

// What a program with ranks says is read where it is, a JSON document from the first that says something, however much they all say.
func TestReadRanks(t *testing.T) {
	long := append(bytes.Repeat([]byte("all is well\n"), 1<<20), "rate 3\n"...)
	outs := []Output{{Stdout: []byte("rate 1")}, {Stdout: long}, {}, {Stdout: long}}
	for take, want := range map[string]float64{"": 7. / 3, "first": 1, "last": 3, "sum": 7} {
		w := Workload{Name: "A", Kind: Torchrun, Rules: []Rule{{Metric: "rate", Unit: "1/s", Regexp: `^rate (\S+)$`, Take: take}}}
		var r *Reading
		var err error
		if took := allocated(func() { r, err = w.Read(outs) }); took > 1<<20 {
			t.Errorf("%q: %d bytes were allocated to read %d", take, took, 2*len(long))
		}
		if err != nil || len(r.Figures) != 1 || math.Abs(r.Figures[0].Value-want) > 1e-9 {
			t.Errorf("%q: %+v, %v", take, r, err)
		}
	}
	w := Workload{Name: "A", Kind: Torchrun, Rules: []Rule{{Metric: "rate", Unit: "1/s", JSON: "rate"}}}
	r, err := w.Read([]Output{{}, {Stdout: []byte("\n")}, {Stdout: []byte(`{"rate": 5}`)}, {Stdout: []byte("done")}})
	if err != nil || r.Figures[0].Value != 5 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := w.Read([]Output{{Stdout: []byte(`{"rate": 5}`)}, {Stdout: long}}); err == nil || !strings.Contains(err.Error(), "bytes of JSON, at most") {
		t.Errorf("%v", err)
	}
	if _, err := w.Read([]Output{{Stdout: []byte("starting")}, {Stdout: []byte(`{"rate": 5}`)}}); err == nil || !strings.Contains(err.Error(), `"starting\n{`) {
		t.Errorf("%v", err)
	}
}

// Of a document the environment is taken out, however it is written and wherever it stands; the rest stays as it is, and
// takes no more room than it did.
func TestEvidence(t *testing.T) {
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for _, test := range []struct{ in, want string }{
		{`{"a": 1, "env": {"X": "hunter2", "NCCL_ALGO": "Ring"}}` + "\n", "{\"a\": 1, \"env\": {\n\t\t\"NCCL_ALGO\": \"Ring\",\n\t\t\"X\": \"[removed]\"\n\t}}\n"},
		{` {"\u0065nv":["X=hunter2"], "env" : "hunter2" }`, " {\"\\u0065nv\": [\n\t\t\"X=[removed]\"\n\t], \"env\" : \"[removed]\"}"},
		{`{"a": {"env": ["X=1"]}, "b": ["env", {"env": 1}], "c": "\"env\": 1"}`, ""},
		{`{"env": {"X": "hunter2"`, ""},
		{"no document", ""},
		{`{}`, ""},
		{`{"env":` + deep + `,"a":` + deep + `}`, `{"env": "[removed]","a":` + deep + `}`},
	} {
		var got []byte
		took := allocated(func() { got = Evidence([]byte(test.in)) })
		if string(got) != cmp.Or(test.want, test.in) || took > 1<<20 {
			t.Errorf("%.80q became %.80q, %d bytes allocated", test.in, got, took)
		}
	}
}

// What is taken apart to lose its secrets comes to the same as the whole, wherever it could be.
func TestPieces(t *testing.T) {
	const secret = "hunter2SECRET"
	line := "a line of a log\n"
	other := strings.Repeat("-----BEGIN CERTIFICATE-----\n"+line+"-----END CERTIFICATE-----\n", 2)
	for name, text := range map[string]string{
		"a value in its line":         "password=" + secret + "\n",
		"an option and its value":     "\"--password\",\n  \"" + secret + "\"\n",
		"blanks between":              "\"--password\",\n\n" + strings.Repeat(" ", 300) + "\"" + secret + "\"\n",
		"an option in a list":         "--password\n  - " + secret + "\n",
		"a header on two lines":       "Bearer\n  abcdefgh" + secret + "\n",
		"a setting on two lines":      "cloudflare_key =\n 0123456789abcdef0123456789abcdef01234567\n",
		"a long list":                 "{\"api_keys\": [\n" + strings.Repeat(" \""+secret+"\",\n", 200) + "]}\n",
		"a private key":               "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat(secret+"\n", 200) + "-----END PRIVATE KEY-----\n",
		"a private key beside others": "-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat(secret+"\n", 200) + other + secret + "\n-----END RSA PRIVATE KEY-----\n",
		"a private key without end":   "-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat(secret+"\n", 200),
	} {
		all := []byte(strings.Repeat(line, 200) + text + strings.Repeat(line, 200))
		whole := Redact(all)
		last := -1
		for n, from := 0, 199*len(line); from < 201*len(line)+len(text); n++ {
			at := cut(all, from)
			for range 1 + n/30 { // of a long text some
				from += 1 + bytes.IndexByte(all[from:], '\n')
			}
			if at == last {
				continue
			}
			last = at
			if got := append(Redact(all[:at]), Redact(all[at:])...); !bytes.Equal(got, whole) {
				t.Errorf("%s: not the same, apart at byte %d: %q", name, at, all[max(0, at-40):min(len(all), at+40)])
			}
		}
	}
	log := []byte(strings.Repeat(line, 1<<20/len(line)))
	var again []byte
	pieces := 0
	for p := range Pieces(log) {
		again = append(again, p...)
		if pieces++; len(p) > leastPiece+len(line) {
			t.Errorf("a piece of %d bytes", len(p))
		}
	}
	if pieces != 4 || !bytes.Equal(again, log) {
		t.Errorf("%d pieces, %d bytes of %d", pieces, len(again), len(log))
	}
	// Documents can be taken apart between objects, and a text is not looked at for ever.
	doc := []byte("{\n" + strings.Repeat("\t\"sums\": [{\n\t\t\"password\": \""+secret+"\",\n\t\t\"bytes\": 1\n\t}, {\n\t\t\"api_keys\": [\n\t\t\t\""+secret+"\"\n\t\t]\n\t}],\n", 10_000) + "\t\"end\": 1\n}\n")
	pieces, again = 0, nil
	for p := range Pieces(doc) {
		pieces++
		again = append(again, Redact(p)...)
	}
	if pieces != 1+len(doc)/(leastPiece+200) || !bytes.Equal(again, Redact(doc)) || bytes.Contains(again, []byte(secret)) {
		t.Errorf("a document of %d bytes: %d pieces", len(doc), pieces)
	}
	pieces = 0
	for range Pieces([]byte(strings.Repeat("abcdefgh bearer\n", 2*leastPiece/16))) {
		pieces++
	}
	if pieces != 1 {
		t.Errorf("where nothing can be taken apart: %d pieces", pieces)
	}
	if end := Tail(log, 1000); len(end) > 1000 || len(end) < 900 || !bytes.HasSuffix(log, end) {
		t.Errorf("the end has %d bytes", len(end))
	}
}

// Get is the first figure of a metric about a part.
func (r *Reading) Get(metric, of string) (results.Figure, bool) {
	for _, f := range r.Figures {
		if f.Metric == metric && f.Of == of {
			return f, true
		}
	}
	return results.Figure{}, false
}

// A number of wrong values counts whatever else stands in its row, or before it in its line, also where the end says that all is
// well.
func TestNCCLWrongRow(t *testing.T) {
	text, err := os.ReadFile("testdata/nccl-wrong.txt")
	if err != nil {
		t.Fatal(err)
	}
	well := strings.Replace(string(text), ": 1 FAILED", ": 0 OK", 1)
	for name, change := range map[string][2]string{
		"as it is":                     {"", ""},
		"of a time that is no number":  {"76.31  114.46     12", "nan  nan     12"},
		"in colour":                    {"   536870912     134217728", "\x1b[31m   536870912     134217728"},
		"behind a line without an end": {"   536870912     134217728", "h1:4711:4712 [0] NCCL INFO Channel 00/0 536870912     134217728"},
		"behind a date":                {"   536870912     134217728", "2026-11-30 10:00:00 h1:4711:4712 [0] NCCL INFO Channel 00/0 536870912     134217728"},
		"behind a number":              {"   536870912     134217728", "4711 NCCL INFO Channel 00/0 536870912     134217728"},
		"behind a time and in colour":  {"   536870912     134217728", "\x1b[1;31m10.5\x1b(B\x1b[m 536870912     134217728"},
	} {
		r, err := ReadNCCLText([]byte(strings.Replace(well, change[0], change[1], 1)))
		if err != nil || r.Wrong != "512MiB: 12 wrong values" || r.Checked != 6 || r.Rows != 6 {
			t.Errorf("%s: %q, %v", name, r.Wrong, err)
		}
	}
	none := regexp.MustCompile(`(?m)\s(0|12)(  |$)`).ReplaceAllString(well, " N/A$2")
	for name, text := range map[string]string{"-c 0": none, "-c 0 and no times": regexp.MustCompile(`\d+\.\d\d `).ReplaceAllString(none, "nan ")} {
		if r, err := ReadNCCLText([]byte(text)); err != nil || r.Checked != 0 || r.Rows != 6 {
			t.Errorf("with %s: %+v, %v", name, r, err)
		}
	}
	stamped := strings.ReplaceAll(strings.ReplaceAll(well, "#wrong\n", "#wrong timestamp\n"), "   536870912", "4711 NCCL INFO 536870912")
	stamped = regexp.MustCompile(`(?m)(\d)$`).ReplaceAllString(stamped, "$1 2026-11-30 10:00:00")
	if r, err := ReadNCCLText([]byte(stamped)); err != nil || r.Wrong != "512MiB: 12 wrong values" || r.Rows != 6 {
		t.Errorf("with times: %+v, %v", r, err)
	}
	r, err := ReadNCCLText([]byte(strings.Replace(string(text), "# Out of", "h1:4711:4712 [0] NCCL INFO Channel 00/0 # Out of", 1)))
	if err != nil || r.Wrong == "" {
		t.Errorf("an end behind other text: %+v, %v", r, err)
	}
}

// A table of other ranks than the program has is another program's: of a test that knows no MPI each process has its own.
func TestNCCLRanksOfTable(t *testing.T) {
	text, err := os.ReadFile("testdata/nccl-new.txt")
	if err != nil {
		t.Fatal(err)
	}
	in := func(before, after string) []byte {
		return regexp.MustCompile(`(?m)^#  Rank.*$`).ReplaceAll(text, []byte(before+"$0"+after))
	}
	for name, test := range map[string]struct {
		w    Workload
		text []byte
		want string
	}{
		"as many":               {Workload{PerHost: 2}, text, ""},
		"fewer":                 {Workload{PerHost: 8}, text, "4 ranks, and the program has 16: is the test built with MPI"},
		"more":                  {Workload{PerHost: 1}, text, "4 ranks, and the program has 2"},
		"more, in colour":       {Workload{PerHost: 1}, in("\x1b[32m", "\x1b[0m"), "4 ranks, and the program has 2"},
		"fewer, in mpirun's":    {Workload{PerHost: 8}, in("\x1b[32m[1,0]<stdout>:", "\x1b[K"), "4 ranks, and the program has 16"},
		"each, with GPUs":       {Workload{PerHost: 2, Launcher: "each"}, text, ""},
		"more GPUs":             {Workload{Arguments: []string{"-g", "2"}}, text, ""},
		"more threads":          {Workload{Arguments: []string{"--nthr=2"}}, text, ""},
		"GPUs of the command":   {Workload{Launcher: "each", Command: []string{"numactl", "-t1", "all_reduce_perf", "-g2"}}, text, ""},
		"GPUs of a script":      {Workload{Launcher: "each", Command: []string{"run.sh", "-g", "7"}}, text, ""},
		"as many as mpirun has": {Workload{LaunchArgs: []string{"-np", "4"}}, text, ""},
		"a script's are mpi's":  {Workload{Command: []string{"run.sh", "-g", "7"}}, text, "the program has 2"},
	} {
		test.w.Kind, test.w.Name, test.w.Hosts = NCCL, "A", []Host{{Name: "h1"}, {Name: "h2"}}
		_, err := test.w.Read([]Output{{Stdout: test.text}})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// A table that lacks a size that was asked for is not whole, whoever asked for it. Where nobody can know what was, it is.
func TestNCCLSizesOfTable(t *testing.T) {
	head := "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
	end := "# Out of bounds values : 0 OK\n"
	for name, test := range map[string]struct {
		w     Workload
		table string // sizes and, behind them, types
		want  string
	}{
		"all":                        {Workload{Size: 8, SizeTo: 64}, "8 16 32 64", ""},
		"one":                        {Workload{Size: 8, SizeTo: 8}, "8", ""},
		"more":                       {Workload{Size: 8, SizeTo: 64}, "8 16 24 32 64 128", ""},
		"to a size between":          {Workload{Size: 8, SizeTo: 63}, "8 16 32", ""},
		"without the first":          {Workload{Size: 8, SizeTo: 64}, "16 32 64", "lacks 8B of "},
		"without one in the middle":  {Workload{Size: 1 << 20, SizeTo: 4 << 20}, "1048576 4194304", "lacks 2MiB of "},
		"without the last":           {Workload{Size: 8, SizeTo: 64}, "8 16 32", "lacks 64B of "},
		"others":                     {Workload{Size: 8, SizeTo: 64}, "1024", "lacks 8B, 16B, 32B, 1 more of "},
		"one in vain":                {Workload{Size: 1 << 20}, "1024", "lacks 1MiB of "},
		"nothing asked for":          {Workload{}, "1024", ""},
		"user's end":                 {Workload{Size: 1 << 10, Arguments: []string{"-e", "4K", "-f", "2"}}, "1024 2048", "lacks 4KiB of "},
		"user's, all":                {Workload{Size: 1 << 10, SizeTo: 1 << 30, Arguments: []string{"-c", "1", "-e4096", "-b1k"}}, "1024 2048 4096", ""},
		"user's factor":              {Workload{Size: 8, SizeTo: 216, Arguments: []string{"--stepfactor=3"}}, "8 24 72 216", ""},
		"user's factor, cut short":   {Workload{Size: 8, SizeTo: 216, Arguments: []string{"--stepf", "3"}}, "8 24 216", "lacks 72B of "},
		"user's steps":               {Workload{Size: 8, SizeTo: 24, Arguments: []string{"-f", "1", "-i", "0x8"}}, "8 24", "lacks 16B of "},
		"usual steps":                {Workload{Arguments: []string{"--maxbytes", "3MiB", "--minbytes", "1M"}}, "1048576 3145728", "lacks 2MiB of "},
		"unknown factor":             {Workload{Size: 8, SizeTo: 64, Arguments: []string{"-f", "two"}}, "8 64", ""},
		"unknown size":               {Workload{Size: 8, SizeTo: 64, Arguments: []string{"-e", "1Q"}}, "8", ""},
		"no step":                    {Workload{Size: 8, SizeTo: 64, Arguments: []string{"-f", "1", "-i", "0"}}, "8", ""},
		"factor of a script":         {Workload{Size: 8, Command: []string{"run.sh", "-f", "4"}, Arguments: []string{"-e", "64"}}, "8 64", ""},
		"factor of the command":      {Workload{Size: 8, Command: []string{"timeout", "-f", "/opt/all_reduce_perf", "-f", "4"}, Arguments: []string{"-e", "128"}}, "8 128", "lacks 32B of "},
		"rounded":                    {Workload{Size: 10, SizeTo: 40}, "8 20 40", ""},
		"of each type":               {Workload{Size: 8, SizeTo: 32, Arguments: []string{"-d", "all"}}, "8 16 32 8/half 16/half 32/half", ""},
		"of a type without the last": {Workload{Size: 8, SizeTo: 32}, "8 16 32 8/half 16/half", "the table (half sum -1) lacks 32B of 3 sizes"},
		"of little memory":           {Workload{Size: 8, SizeTo: 32}, "8 16 20!", ""},
		"of little memory, cut":      {Workload{Size: 8, SizeTo: 32}, "8 20!", "lacks 16B of "},
	} {
		table := head
		for _, row := range strings.Fields(test.table) {
			if most, ok := strings.CutSuffix(row, "!"); ok {
				table = "# Reducing maxBytes to " + most + " due to memory limitation\n" + table
				continue
			}
			size, kind, _ := strings.Cut(row, "/")
			table += size + " 2 " + cmp.Or(kind, "float") + " sum -1 1 1 1 0 1 1 1 0\n"
		}
		test.w.Kind, test.w.Name, test.w.Hosts = NCCL, "A", []Host{{Name: "h1"}}
		r, err := test.w.Read([]Output{{Stdout: []byte(table + end)}})
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrOutput) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if err == nil && strings.Contains(test.table, "!") != slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "little memory") }) {
			t.Errorf("%s: %q", name, r.Notes)
		}
	}
	text := []byte(`{"results": [{"size": 8, "out_of_place": {"time": 1, "alg_bw": 1, "bus_bw": 1, "nwrong": "0"}}], "out_of_bounds": {"count": 0, "okay": "true"}}`)
	w := Workload{Kind: NCCL, Size: 8, SizeTo: 16, JSON: true, Hosts: []Host{{Name: "h1"}}}
	if _, err := w.Read([]Output{{Written: text}}); err == nil || !strings.Contains(err.Error(), "lacks 16B of ") {
		t.Errorf("JSON: %v", err)
	}
}
