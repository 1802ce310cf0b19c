package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

func textOf(t *testing.T, rec *results.Record, opt TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteText(&b, rec, opt); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTextGolden(t *testing.T) {
	wf, _ := resultstest.Waterfill()
	sick := resultstest.Quickstart()
	sick.Points[0].Health = []results.Trouble{{Where: "switch tor1", What: "timer lateness p99 14 ms, 7.0 % of the RTT (limit 5 %)", Fatal: true}}
	sick.Warnings = []string{"swap is in use"}
	sick.Checks, sick.Outcome, sick.Reasons = results.Judge(sick.Expect, sick.Points)
	onTofino := resultstest.Quickstart()
	onTofino.Switches = []results.SwitchFacts{
		{Switch: "tor1", Kind: "tofino", Server: "stratum", Program: "ina_tna", Kept: true, PlainText: true, P4Info: strings.Repeat("1f", 32),
			DeviceConfig: strings.Repeat("d0", 32), Files: map[string]string{"tofino.bin": strings.Repeat("b1", 32), "p4info.txtpb": strings.Repeat("70", 32)}},
		{Switch: "tor2", Kind: "bmv2", Server: "bmv2", DeviceConfig: strings.Repeat("d1", 32)},
		{Switch: "atp1", Kind: "script", PlainText: true, Script: map[string]string{"setup": "", "status": "42 bf_switchd p4ml\n"}},
		{Switch: "soft1", Kind: "soft", P4Info: strings.Repeat("1f", 32), PlainText: true}, // says nothing that the tool's version does not
	}
	for name, c := range map[string]struct {
		rec *results.Record
		opt TextOptions
	}{
		"switches.txt":   {onTofino, TextOptions{Width: 100}},
		"fair-share.txt": {resultstest.FairShare(), TextOptions{Width: 120, Dir: "runs/2026-11-20T09-30-00Z-01JD4K7Q3ZT9V8B6N2XHFQW5MC"}},
		"waterfill.txt":  {wf, TextOptions{Width: 80}},
		"quickstart.txt": {resultstest.Quickstart(), TextOptions{Width: 100}},
		"unhealthy.txt":  {sick, TextOptions{Width: 100}},
		"addressing.txt": {resultstest.Addressing(), TextOptions{Width: 72, Color: true}},
		"empty.txt":      {&results.Record{Name: "empty"}, TextOptions{}},
	} {
		text := textOf(t, c.rec, c.opt)
		golden.Compare(t, name, text)
		for i, line := range strings.Split(text, "\n") {
			if n := utf8.RuneCountInString(strings.NewReplacer("\x1b[32m", "", "\x1b[31m", "", "\x1b[0m", "").Replace(line)); c.opt.Width > 0 && n > c.opt.Width && !strings.HasPrefix(line, "files") {
				t.Errorf("%s:%d is %d columns wide, want at most %d: %s", name, i+1, n, c.opt.Width, line)
			}
		}
	}
}

// TestTextHostile: names come from files; they must not move the cursor.
func TestTextHostile(t *testing.T) {
	rec := resultstest.Hostile()
	for _, r := range textOf(t, rec, TextOptions{Width: 80}) {
		if r < 0x20 && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			t.Fatalf("control character %U in the text", r)
		}
	}
}

func TestTally(t *testing.T) {
	rec := &results.Record{Checks: []results.Check{{Outcome: results.Pass, Gate: true}, {Outcome: results.Skipped, Gate: true}}}
	if got := tallyOutcomes(rec); got != "1 of 1 checks held, 1 skipped" {
		t.Errorf("tally %q", got)
	}
}
