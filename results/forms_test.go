package results_test

import (
	"bytes"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/report"
)

// formsOf are all forms of a record that people read, as wide as a terminal where they have a width.
func formsOf(t *testing.T, rec *results.Record) map[string]string {
	t.Helper()
	var text, markdown, html, junit bytes.Buffer
	for _, err := range []error{report.WriteText(&text, rec, report.TextOptions{Width: 80}), report.WriteMarkdown(&markdown, rec), report.WriteReport(&html, rec, nil, report.Beside{}), report.WriteJUnit(&junit, rec)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return map[string]string{"text": text.String(), "Markdown": markdown.String(), "HTML": html.String(), "JUnit": junit.String()}
}
