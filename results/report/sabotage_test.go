package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
)

// TestSabotageIsSaid: whoever reads a sabotaged run in any form is told, and a fault that never
// acted is warned of, once.
func TestSabotageIsSaid(t *testing.T) {
	rec := &results.Record{Name: "x", Outcome: results.Pass, Sabotage: &results.Sabotage{Fault: "flip-sums", What: "flips bits", Part: "tor1"}}
	rec.Idle()
	rec.Idle()
	if len(rec.Warnings) != 1 || !strings.HasPrefix(rec.Warnings[0], results.CodeSabotageIdle) {
		t.Errorf("warnings %v", rec.Warnings)
	}
	rec.AddSabotaged(30)
	rec.AddSabotaged(7)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"text":     func(b *bytes.Buffer) error { return WriteText(b, rec, TextOptions{Width: 200}) },
		"markdown": func(b *bytes.Buffer) error { return WriteMarkdown(b, rec) },
		"junit":    func(b *bytes.Buffer) error { return WriteJUnit(b, rec) },
		"json":     func(b *bytes.Buffer) error { return results.WriteJSON(b, rec) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		want := "SABOTAGED: flip-sums at tor1, acted 37 times"
		if name == "json" {
			want = `"acted": 37`
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s does not say %q:\n%s", name, want, &b)
		}
	}

	rec = &results.Record{Sabotage: &results.Sabotage{Fault: "stop", Part: "A/0", Acted: 1}}
	rec.Idle()
	if len(rec.Warnings) != 0 || !strings.HasSuffix(rec.Sabotage.String(), "acted 1 time") {
		t.Errorf("%v, %v", rec.Warnings, rec.Sabotage)
	}
	rec = &results.Record{}
	rec.AddSabotaged(1)
	rec.Idle()
	if rec.Sabotage != nil || len(rec.Warnings) != 0 {
		t.Error("an honest run was said to be sabotaged")
	}
}
