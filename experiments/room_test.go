package experiments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// programFiles are a rack whose switch runs a program that says so of itself, and an experiment on it: the text after the job's
// workers, and that of [switch]. It returns the experiment's path.
func programFiles(t *testing.T, says, job, sw string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rack.toml": `version = 1
[defaults]
kind = "soft"
rate = "100Gbit/s"
gpus = 1
[[switch]]
name = "tor1"
aggregators = 4096
program = {p4info = "p4info.txtpb"}
[[host]]
name = "h[1-4]"
nic = {port = "tor1/[1-4]"}
`,
		"p4info.txtpb":    fmt.Sprintf(`actions { preamble { name: "ingress.aggregate" structured_annotations { name: "inabench" kv_pair_list { %s } } } }`, says),
		"experiment.toml": fmt.Sprintf("version = 1\ninventory = \"rack.toml\"\n[[job]]\nname = \"A\"\nhosts = [\"h1\", \"h2\", \"h3\"]\nps = \"h4\"\n%s\n[switch]\n%s\n", job, sw),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "experiment.toml")
}

// programmed is how many lanes packets of programFiles have, and all that is wrong with them.
func programmed(t *testing.T, says, job, sw string) (lanes int, problems []string) {
	t.Helper()
	return lanesOf(t, programFiles(t, says, job, sw))
}

// lanesOf reads an experiment: the lanes of its packets, and all that is wrong with it.
func lanesOf(t *testing.T, path string) (lanes int, problems []string) {
	t.Helper()
	s, err := kinds.Load(path)
	var ps tomlfile.Problems
	switch {
	case err == nil:
		return s.Switch.Lanes, nil
	case !errors.As(err, &ps):
		t.Fatal(err)
	}
	for _, p := range ps {
		problems = append(problems, p.Msg+": "+p.Hint)
	}
	return 0, problems
}

func annotated(key string, n int) string {
	return fmt.Sprintf("kv_pairs { key: %q value { int64_value: %d } } ", key, n)
}

// TestProgramRoom: what a program says that it has room for is what an experiment may ask of it, and packets have its lanes
// where nobody says how many.
func TestProgramRoom(t *testing.T) {
	chip := annotated("lanes", 32) + annotated("whole", 1)
	const second = "[[job]]\nname = \"B\"\nhosts = [\"h1\", \"h2\", \"h3\"]\nps = \"h4\"\n"
	addresses := `kv_pairs { key: "addressing" value { string_value: "hash linear" } } `
	for _, tt := range []struct {
		name, says, job, sw string
		lanes               int
		want                []string // parts of each problem
	}{
		{name: "nothing said", lanes: 240},
		{name: "its lanes", says: chip, lanes: 32},
		{name: "fewer than at most", says: annotated("lanes", 64), sw: "lanes = 16", lanes: 16},
		{name: "too many lanes", says: chip, sw: "lanes = 240", want: []string{"lanes = 240: the program of switch tor1 sums packets of exactly 32: write lanes = 32"}},
		{name: "too few", says: chip, sw: "lanes = 31", want: []string{"lanes = 31: the program of switch tor1 sums packets of exactly 32"}},
		{name: "more than at most", says: annotated("lanes", 64), sw: "lanes = 65", want: []string{"lanes = 65: the program of switch tor1 sums packets of at most 64"}},
		{name: "no job aggregates", says: chip, job: `collective = "ps"`, sw: "lanes = 240", lanes: 240},
		{name: "addressing", says: addresses, want: []string{`addressing = "pool": the program of switch tor1 addresses by hash, linear: write addressing = "hash"`}},
		{name: "one that it knows", says: addresses, sw: `addressing = "linear"`, lanes: 240},
		{name: "mode", says: annotated("synchronous", 0), job: "", sw: `mode = "synchronous"`, want: []string{"has no synchronous mode"}},
		{name: "window", says: annotated("window", 512), want: []string{"window = 1024: the program of switch tor1 remembers decisions for 512 packets: write window = 512"}},
		{name: "workers", says: annotated("workers", 2), want: []string{"3 workers: the program of switch tor1 sums those of 2"}},
		{name: "jobs", says: annotated("jobs", 1), want: []string{"job A is one too many: the program of switch tor1 sums 0"}},
		{name: "jobs that do not aggregate count", says: annotated("jobs", 2), job: `collective = "ps"`, sw: second, want: []string{"job B is one too many: the program of switch tor1 sums 1, the first of the file"}},
		{name: "those after it do not", says: annotated("jobs", 2), sw: second + "collective = \"ps\"\n", lanes: 240},
		{name: "no power of two", says: annotated("powers", 1), sw: "aggregators = 1000", want: []string{"1000 aggregators: the program of switch tor1 wants a power of two of them: write aggregators = 512"}},
		{name: "a ratio", says: annotated("powers", 1), sw: "pat_ratio = 0.5", want: []string{"pat_ratio = 0.5: the program of switch tor1 wants a power of two of aggregators"}},
		{name: "a power of two", says: annotated("powers", 1), sw: "aggregators = 512", lanes: 240},
		{name: "no power of two, synchronous", says: annotated("powers", 1), job: "window = 100", sw: `mode = "synchronous"`, want: []string{"window = 100: the program of switch tor1 wants a power of two of aggregators for a job, which are two windows: write window = 64"}},
		{name: "a power of two, synchronous", says: annotated("powers", 1), job: "window = 64", sw: "mode = \"synchronous\"\naggregators = 1000", lanes: 240},
		{name: "memory of the inventory", says: annotated("aggregators", 1024), want: []string{"switch tor1 has aggregators = 4096", "its program has 1024: write aggregators = 1024 there"}},
		{name: "memory asked for", says: annotated("aggregators", 1024), sw: "aggregators = 2048", want: []string{"2048 aggregators: the program of switch tor1 has 1024"}},
		{name: "less of it", says: annotated("aggregators", 1024), sw: "aggregators = 1024", lanes: 240},
		{name: "rate", says: annotated("packets", 1000), job: `rate = "100Mbit/s"`, want: []string{"packets/s: the program of switch tor1 carries 1000: write rate = "}},
		{name: "a rate that it carries", says: annotated("packets", 1_000_000), job: `rate = "100Mbit/s"`, lanes: 240},
		{name: "a limit of a later version", says: annotated("stages", 12), want: []string{"annotation inabench of action aggregate: stages"}},
		{name: "all at once", says: chip + annotated("workers", 2) + annotated("window", 512), sw: "lanes = 240", want: []string{"lanes = 240", "window = 1024", "3 workers"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lanes, problems := programmed(t, tt.says, tt.job, tt.sw)
			if lanes != tt.lanes {
				t.Errorf("%d lanes, want %d", lanes, tt.lanes)
			}
			for _, part := range tt.want {
				if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, part) }) {
					t.Errorf("%q is not among %q", part, problems)
				}
			}
			if len(tt.want) == 0 && len(problems) > 0 {
				t.Errorf("%q", problems)
			}
		})
	}
}

// TestProgramElsewhere: a program limits the jobs whose packets may cross its switch, and no others of the site; a switch
// without aggregators only passes packets on.
func TestProgramElsewhere(t *testing.T) {
	for _, tt := range []struct {
		name, hosts, ps, sw string
		aggregators         int // of the switch with the program
		lanes               int
		bad                 bool
	}{
		{"in the other rack", `"h1", "h2", "h3"`, "h4", "", 4096, 240, false},
		{"in the other rack, with lanes that it does not sum", `"h1", "h2", "h3"`, "h4", "lanes = 100", 4096, 100, false},
		{"in the other rack, synchronous", `"h1", "h2", "h3"`, "", `mode = "synchronous"`, 4096, 240, false},
		{"a worker is there", `"h1", "h2", "h5"`, "h4", "", 4096, 32, false},
		{"the PS is there", `"h1", "h2", "h3"`, "h5", "", 4096, 32, false},
		{"the PS is there, with lanes that it does not sum", `"h1", "h2", "h3"`, "h5", "lanes = 100", 4096, 0, true},
		{"it passes packets on", `"h1", "h2", "h3"`, "h5", "", 0, 240, false},
		{"nobody knows yet where the PS is", `"h1", "h2", "h3"`, "", "", 4096, 32, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			ps := ""
			if tt.ps != "" {
				ps = fmt.Sprintf("ps = %q", tt.ps)
			}
			for name, text := range map[string]string{
				"racks.toml": fmt.Sprintf(`version = 1
[defaults]
kind = "soft"
rate = "100Gbit/s"
gpus = 1
[[switch]]
name = "tor1"
aggregators = 4096
[[switch]]
name = "tor2"
aggregators = %d
program = {p4info = "p4info.txtpb"}
[[host]]
name = "h[1-4]"
nic = {port = "tor1/[1-4]"}
[[host]]
name = "h5"
nic = {port = "tor2/1"}
[[link]]
a = "tor1/9"
b = "tor2/9"
rate = "100Gbit/s"
`, tt.aggregators),
				"p4info.txtpb":    fmt.Sprintf(`actions { preamble { name: "ingress.aggregate" structured_annotations { name: "inabench" kv_pair_list { %s } } } }`, annotated("lanes", 32)),
				"experiment.toml": fmt.Sprintf("version = 1\ninventory = \"racks.toml\"\n[[job]]\nname = \"A\"\nhosts = [%s]\n%s\n[switch]\n%s\n", tt.hosts, ps, tt.sw),
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			lanes, problems := lanesOf(t, filepath.Join(dir, "experiment.toml"))
			if lanes != tt.lanes || (len(problems) > 0) != tt.bad {
				t.Errorf("%d lanes, want %d; %q", lanes, tt.lanes, problems)
			}
		})
	}
}

// TestCalibratedBy: jobs are calibrated with a pool of aggregators, where the program of a switch knows one.
func TestCalibratedBy(t *testing.T) {
	for says, want := range map[string]string{
		"": "pool",
		`kv_pairs { key: "addressing" value { string_value: "pool linear" } } `: "pool",
		`kv_pairs { key: "addressing" value { string_value: "hash linear" } } `: "linear",
	} {
		s, err := kinds.Load(programFiles(t, says, "", `addressing = "linear"`))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.CalibratedBy(); got != want {
			t.Errorf("%s: %s, want %s", says, got, want)
		}
	}
}
