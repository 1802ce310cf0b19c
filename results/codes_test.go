package results

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every code says what it means and what to do.
func TestExplain(t *testing.T) {
	seen := map[string]bool{}
	for _, code := range Codes() {
		e, ok := Explain(strings.ToLower(code))
		if !ok || e.Code != code || len(e.Means) < 20 || len(e.Do) == 0 {
			t.Errorf("%s: %+v", code, e)
		}
		if seen[code] {
			t.Errorf("%s is there twice", code)
		}
		seen[code] = true
	}
	if e, ok := Explain("INA-NONE"); ok || e.Code != "" {
		t.Errorf("a code that is none: %+v", e)
	}
}

var (
	codePattern = regexp.MustCompile(`INA-[A-Z]+(-[A-Z]+)*`)
	codeName    = regexp.MustCompile(`\bCode[A-Z]\w+`)
)

// TestCodesEverywhere: every code that the source has is in the table, so that explain knows it,
// and is one that something besides the table uses; and docs/CODES.md has all of them.
func TestCodesEverywhere(t *testing.T) {
	constants := map[string]string{} // by name
	text, err := os.ReadFile("codes.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(Code\w+) += "(INA-[A-Z-]+)"`).FindAllStringSubmatch(string(text), -1) {
		constants[m[1]] = m[2]
	}
	if len(constants) != len(Codes()) {
		t.Errorf("%d constants, %d explanations", len(constants), len(Codes()))
	}
	used := map[string]bool{}
	files := 0
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			if d != nil && d.IsDir() && err == nil {
				return fs.SkipDir
			}
			return err
		}
		ext := filepath.Ext(path)
		if d.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".md", ".tmpl"}, ext) {
			return nil
		}
		files++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, code := range codePattern.FindAllString(string(data), -1) {
			if _, ok := Explain(code); !ok {
				t.Errorf("%s has %s, which nothing explains", path, code)
			}
		}
		body := string(data)
		if path == filepath.Join("..", "results", "codes.go") {
			body = body[strings.Index(body, "func Explain("):]
		}
		for _, name := range codeName.FindAllString(body, -1) {
			used[name] = true
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("%d files: %v", files, err)
	}
	for name, code := range constants {
		if !used[name] {
			t.Errorf("nothing says %s (%s)", code, name)
		}
	}
	doc, err := os.ReadFile("../docs/CODES.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range Explanations() {
		if row := "| `" + e.Code + "` | " + e.Means + " |"; !strings.Contains(string(doc), row) {
			t.Errorf("docs/CODES.md lacks the row\n%s", row)
		}
	}
	if rows := strings.Count(string(doc), "\n| `INA-"); rows != len(Codes()) {
		t.Errorf("docs/CODES.md has %d codes, there are %d", rows, len(Codes()))
	}
}

// TestFailureCode: every check that does not hold has a code that is explained, whatever it is
// about, and one that holds has none.
func TestFailureCode(t *testing.T) {
	for _, outcome := range []Outcome{Pass, Fail, Inconclusive, Skipped, ErrorOutcome} {
		for _, metric := range []string{"share", "goodput", "link_rate", "jain", "rtt", "sum_errors", "iterations", "anything"} {
			for _, unit := range []string{"1", "s", "bit/s"} {
				for _, statistic := range []string{"each", "mean", "max", Correlation} {
					for _, err := range []float64{-1, 1} {
						for _, more := range []int{0, 2} {
							c := Check{Outcome: outcome, Metric: metric, Unit: unit, Statistic: statistic, Error: err, More: more, Repeats: 3}
							code := c.FailureCode()
							if _, ok := Explain(code); ok == (outcome == Pass) || ok == (code == "") {
								t.Errorf("%+v: code %q", c, code)
							}
						}
					}
				}
			}
		}
	}
	for _, c := range []struct {
		check Check
		want  string
	}{
		{Check{Outcome: Fail, Metric: "link_rate", Unit: "bit/s", Error: -0.1}, CodeLinkSlow},
		{Check{Outcome: Fail, Metric: "link_rate", Unit: "bit/s", Error: 0.1}, CodeLinkLoaded},
		{Check{Outcome: Fail, Metric: "goodput", Unit: "bit/s", Error: -0.1}, CodeRateLow},
		{Check{Outcome: Fail, Metric: "rtt", Unit: "s", Error: 0.1}, CodeTimeLong},
		{Check{Outcome: Fail, Metric: "share", Unit: "1", Statistic: "max", Error: 0.1}, CodeModel},
		{Check{Outcome: Fail, Code: CodeFallback}, CodeFallback},
		{Check{Outcome: Inconclusive, More: 1}, CodeLimited},
		{Check{Outcome: Inconclusive}, CodeNoFigure},
	} {
		if got := c.check.FailureCode(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.check, got, c.want)
		}
	}
}
