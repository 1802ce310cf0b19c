package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

func markdownOf(t *testing.T, rec *results.Record) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteMarkdown(&b, rec); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestMarkdownGolden(t *testing.T) {
	wf, _ := resultstest.Waterfill()
	golden.Compare(t, "waterfill.md", markdownOf(t, wf))
	golden.Compare(t, "quickstart.md", markdownOf(t, resultstest.Quickstart()))
	cut := &results.Record{Name: "cut-off"}
	cut.Unfinished()
	golden.Compare(t, "cut-off.md", markdownOf(t, cut))
}

// TestMarkdownHostile: names do not become markup, and tables have as many cells in each row.
func TestMarkdownHostile(t *testing.T) {
	text := markdownOf(t, resultstest.Hostile())
	if strings.Contains(text, "<script") || strings.Contains(text, "<svg") || strings.Contains(text, "\x1b") {
		t.Error("a name became markup")
	}
	cells := func(line string) int {
		return strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
	}
	width := 0
	for i, line := range strings.Split(text, "\n") {
		switch {
		case !strings.HasPrefix(line, "|"):
			width = 0
		case width == 0:
			width = cells(line)
		case cells(line) != width:
			t.Errorf("line %d has %d bars, its table %d: %s", i+1, cells(line), width, line)
		}
	}
}

// TestMarkdownLong: a summary of ten thousand checks fits into one of GitHub's, a megabyte.
func TestMarkdownLong(t *testing.T) {
	rec := resultstest.Quickstart()
	for len(rec.Checks) < 10_000 {
		c := rec.Checks[0]
		c.Outcome, c.Why = []results.Outcome{results.Pass, results.Fail}[len(rec.Checks)%2], strings.Repeat("x", 200)
		rec.Checks = append(rec.Checks, c)
	}
	if n := len(markdownOf(t, rec)); n > 500_000 {
		t.Errorf("%d bytes", n)
	}
}

// TestMarkdownLargest: the row of an expectation with a bound on one side has the check that is worst on that side.
func TestMarkdownLargest(t *testing.T) {
	for bound, want := range map[string]string{"at-least": "| -2.0 % |", "at-most": "| +300 % |", "within": "| +300 % |"} {
		rec := resultstest.Quickstart()
		rec.Expect = []results.Expect{{Name: "e", Metric: "share", Predictor: "value", Bound: bound, Gate: true}}
		rec.Checks = nil
		for at, off := range map[string]float64{"n=1": 3, "n=2": -.02} {
			rec.Checks = append(rec.Checks, results.Check{Expect: "e", Metric: "share", Of: "A", Point: at, Unit: "1", Bound: bound, Statistic: "each", Relative: true,
				Outcome: results.Pass, Repeats: 1, Error: off, Gate: true})
		}
		text := markdownOf(t, rec)
		if _, row, _ := strings.Cut(text, "\n| e | 2 of 2 "); !strings.HasPrefix(row, want) {
			t.Errorf("%s: %.40q, want %q", bound, row, want)
		}
	}
}

func csvOf(t *testing.T, rec *results.Record) (head []string, rows []map[string]string) {
	t.Helper()
	var b bytes.Buffer
	if err := results.WriteCSV(&b, rec); err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(&b).ReadAll() // of which every row must have as many fields
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all[1:] {
		row := map[string]string{}
		for i, name := range all[0] {
			row[name] = r[i]
		}
		rows = append(rows, row)
	}
	return all[0], rows
}

// TestCSV: every figure of the record is in a row with the same numbers, and every check of single
// figures has its verdict beside these.
func TestCSV(t *testing.T) {
	wf, _ := resultstest.Waterfill()
	for _, rec := range []*results.Record{resultstest.FairShare(), wf, resultstest.Addressing(), resultstest.Quickstart(), resultstest.Hostile(), resultstest.Policies([]float64{1, 4}, 3)} {
		t.Run(rec.Name[:min(12, len(rec.Name))], func(t *testing.T) {
			head, rows := csvOf(t, rec)
			for _, p := range rec.Points {
				for k := range p.Params {
					if !slices.Contains(head, k) {
						t.Errorf("no column for %q in %q", k, head)
					}
				}
			}
			type id struct{ point, repeat, phase, metric, of, predictor string }
			found := map[id]map[string]string{}
			for _, r := range rows {
				k := id{r["point"], r["repeat"], r["phase"], r["metric"], r["of"], r["predictor"]}
				if found[k] != nil {
					t.Errorf("%+v is there twice", k)
				}
				found[k] = r
			}
			verdicts := map[string]int{}
			same := func(r map[string]string, column string, f results.Figure) {
				if v, err := strconv.ParseFloat(r[column], 64); err != nil || v != f.Value {
					t.Errorf("%v: %s %q, want %v", r, column, r[column], f.Value)
				}
			}
			of := map[id][]map[string]string{} // whatever they are held against
			for k, r := range found {
				k.predictor = ""
				of[k] = append(of[k], r)
			}
			for _, p := range rec.Points {
				for i, ph := range p.Phases {
					for _, f := range ph.Figures {
						k := id{fmt.Sprint(p.Index), fmt.Sprint(p.Repeat), fmt.Sprint(i), f.Metric, f.Of, f.Predictor}
						if f.Kind == results.Predicted {
							same(found[k], "predicted", f)
							continue
						}
						for _, r := range of[k] {
							same(r, "measured", f)
						}
						if len(of[k]) == 0 {
							t.Errorf("no row for %+v", f)
						}
					}
				}
			}
			for _, r := range rows {
				verdicts[r["verdict"]]++
			}
			for _, c := range rec.Checks {
				if c.Outcome == results.Fail && !c.IsError() && c.Statistic != results.Correlation && verdicts["fail"] == 0 {
					t.Errorf("no row failed, but %s did", c.Title())
				}
			}
		})
	}
}

// A promSample is a line of the text format.
type promSample struct {
	name   string
	labels map[string]string
	value  float64
}

var (
	promName   = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	promLabel  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	promNumber = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?$`)
)

// parseProm reads the text format strictly, as `promtool check metrics` does and a bit beyond:
// HELP, then TYPE, then samples of one family in one piece; no series twice; names in base units,
// without abbreviations or the type in them; labels in snake case, their values escaped.
func parseProm(text string) (samples []promSample, err error) {
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("the last line has no end")
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("not UTF-8")
	}
	current, state := "", ""
	families, series := map[string]bool{}, map[string]bool{}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		bad := func(what string) error { return fmt.Errorf("line %d: %s: %s", i+1, what, line) }
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			switch {
			case state == "help":
				return nil, bad("no TYPE before")
			case !promName.MatchString(name) || help == "":
				return nil, bad("a name and a text")
			case families[name]:
				return nil, bad("a family in two pieces")
			case strings.ContainsAny(strings.NewReplacer(`\\`, "", `\n`, "").Replace(help), "\\"):
				return nil, bad("an escape that is none")
			}
			for part := range strings.SplitSeq(name, "_") {
				if slices.Contains([]string{"gauge", "counter", "summary", "histogram", "ms", "us", "milliseconds", "minutes", "hours", "bits", "kilobytes", "megabytes", "s", "b", "percent", "total"}, part) {
					return nil, bad("a name with " + part)
				}
			}
			current, state, families[name] = name, "help", true
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			if state != "help" || rest != current+" gauge" {
				return nil, bad("TYPE of what HELP is of")
			}
			state = "type"
			continue
		}
		if state == "help" || state == "" {
			return nil, bad("no TYPE before a sample")
		}
		state = "samples"
		s := promSample{labels: map[string]string{}}
		rest := line
		j := strings.IndexAny(rest, "{ ")
		if j < 0 || rest[:j] != current {
			return nil, bad("a sample of another family")
		}
		s.name, rest = rest[:j], rest[j:]
		key := rest
		if rest[0] == '{' {
			rest = rest[1:]
			for {
				j := strings.Index(rest, `="`)
				if j < 0 || !promLabel.MatchString(rest[:j]) {
					return nil, bad("a label's name")
				}
				name := rest[:j]
				rest = rest[j+2:]
				var value strings.Builder
				closed := false
				for k := 0; k < len(rest); k++ {
					if rest[k] == '"' {
						rest, closed = rest[k+1:], true
						break
					}
					if rest[k] == '\\' {
						k++
						v, ok := map[byte]string{'\\': `\`, 'n': "\n", '"': `"`}[rest[k]]
						if !ok {
							return nil, bad("an escape that is none")
						}
						value.WriteString(v)
						continue
					}
					value.WriteByte(rest[k])
				}
				if _, twice := s.labels[name]; !closed || twice {
					return nil, bad("a label's value")
				}
				s.labels[name] = value.String()
				if strings.HasPrefix(rest, "}") {
					rest = rest[1:]
					break
				}
				if !strings.HasPrefix(rest, ",") {
					return nil, bad("between labels")
				}
				rest = rest[1:]
			}
			key = strings.TrimSuffix(key, rest)
		} else {
			key = ""
		}
		number, ok := strings.CutPrefix(rest, " ")
		if !ok || !promNumber.MatchString(number) {
			return nil, bad("a value")
		}
		if s.value, err = strconv.ParseFloat(number, 64); err != nil {
			return nil, bad(err.Error())
		}
		if series[s.name+key] {
			return nil, bad("a series twice")
		}
		series[s.name+key] = true
		samples = append(samples, s)
	}
	if state == "help" || state == "type" {
		return nil, fmt.Errorf("a family without samples at the end")
	}
	return samples, nil
}

func promOf(t *testing.T, rec *results.Record) []promSample {
	t.Helper()
	var b bytes.Buffer
	if err := WritePrometheus(&b, rec); err != nil {
		t.Fatal(err)
	}
	samples, err := parseProm(b.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return samples
}

// TestPrometheus: whatever a run is, what is written can be scraped; and has the figures of the record.
func TestPrometheus(t *testing.T) {
	wf, _ := resultstest.Waterfill()
	for _, rec := range []*results.Record{resultstest.FairShare(), wf, resultstest.Addressing(), resultstest.Quickstart(), resultstest.Hostile(), resultstest.Policies([]float64{1, 4}, 3), {Name: "cut-off", Outcome: results.ErrorOutcome}} {
		promOf(t, rec)
	}
	find := func(name string, labels map[string]string) (out []float64) {
		for _, s := range promOf(t, wf) {
			all := s.name == name
			for k, v := range labels {
				all = all && s.labels[k] == v
			}
			if all {
				out = append(out, s.value)
			}
		}
		return out
	}
	for _, f := range wf.Points[0].Phases[2].Figures {
		if f.Metric != "link_rate" || f.Of != "tor1->spine1" {
			continue
		}
		name, labels := "inabench_measured_bytes_per_second", map[string]string{"experiment": "waterfill", "phase": "3", "of": f.Of, "metric": "link_rate"}
		if f.Kind == results.Predicted {
			name, labels["predictor"] = "inabench_predicted_bytes_per_second", f.Predictor
		}
		if got := find(name, labels); len(got) != 1 || got[0] != f.Value/8 {
			t.Errorf("%s of %s: %v, want %v", name, f.Of, got, f.Value/8)
		}
	}
	_, fail, _, _, _ := countOutcomes(wf)
	if got := find("inabench_run_checks", map[string]string{"outcome": "fail"}); len(got) != 1 || got[0] != float64(fail) || fail == 0 {
		t.Errorf("%v checks failed, want %d", got, fail)
	}
	if got := find("inabench_check_failed", map[string]string{"code": results.CodeLinkSlow}); len(got) != 1 || got[0] != 1 {
		t.Errorf("failures of slow links: %v", got)
	}
}

// TestParseProm: the parser of this test refuses what promtool refuses.
func TestParseProm(t *testing.T) {
	const head = "# HELP a_seconds Text.\n# TYPE a_seconds gauge\n"
	if s, err := parseProm(head + "a_seconds{x=\"1\\n\\\"\",y=\"\"} 1.5e-05\n"); err != nil || len(s) != 1 || s[0].labels["x"] != "1\n\"" || s[0].value != 1.5e-5 {
		t.Fatalf("%+v %v", s, err)
	}
	for _, bad := range []string{
		"a_seconds 1\n", head, head + "a_seconds 1", head + "b 1\n", head + "a_seconds one\n", head + "a_seconds 1\na_seconds 2\n",
		head + "a_seconds{x=\"1\" 1\n", head + "a_seconds{X=\"1\"} 1\n", head + "a_seconds{x=\"1\",x=\"2\"} 1\n", head + "a_seconds{x=\"\\t\"} 1\n",
		"# HELP a_ms Text.\n# TYPE a_ms gauge\na_ms 1\n", "# TYPE a gauge\na 1\n", head + "a_seconds 1\n" + head + "a_seconds{x=\"2\"} 1\n",
	} {
		if _, err := parseProm(bad); err == nil {
			t.Errorf("accepted:\n%s", bad)
		}
	}
}

// TestCSVRow: nothing that others named is a formula where somebody opens the file.
func TestCSVRow(t *testing.T) {
	row := []string{"=1+1", "+cmd|x", "-2+3", "@SUM(A1)", "\t=1", "", "-", "-1.5", "+1e9", "-Inf", "A@tor1", "h1->tor1", "1=1"}
	want := []string{"'=1+1", "'+cmd|x", "'-2+3", "'@SUM(A1)", "'\t=1", "", "-", "-1.5", "+1e9", "-Inf", "A@tor1", "h1->tor1", "1=1"}
	if got := results.CSVRow(slices.Clone(row)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	rec := resultstest.Quickstart()
	rec.Name = `=HYPERLINK("http://evil.example")`
	var b strings.Builder
	if err := results.WriteCSV(&b, rec); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil || rows[1][1] != "'"+rec.Name {
		t.Errorf("%q, %v", rows[1][1], err)
	}
}

// TestMarkdownText: what hosts say is text, and no link, picture, heading or mention.
func TestMarkdownText(t *testing.T) {
	for in, want := range map[string]string{
		"[approve](https://evil.example) ![](x)\r# PASS": `\[approve\](https://evil.example) !\[\](x)�\# PASS`,
		"ask @admin, or root@h1 of A@tor1":               "ask @\u200badmin, or root@h1 of A@tor1",
		"a|b `c` <d> \\|":                                "a\\|b \\`c\\` &lt;d&gt; \\\\\\|",
	} {
		if got := MarkdownText(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
