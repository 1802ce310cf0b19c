package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// maxMarkdownRows bounds the tables of a summary: a job summary may have a megabyte.
const maxMarkdownRows = 200

// WriteMarkdown writes the run as a summary for CI and issues: the verdict, what did not hold with
// what was measured, predicted and the bottleneck, and a line for each expectation.
func WriteMarkdown(w io.Writer, rec *results.Record) error {
	m := markdown{}
	m.printf("## %s %s: %s\n\n", glyph(cmp.Or(rec.Outcome, results.ErrorOutcome)), MarkdownText(human.UpperFirst(wordOf(rec))), MarkdownText(rec.Name))
	if rec.Title != "" {
		m.printf("%s\n\n", MarkdownText(rec.Title))
	}
	m.printf("%s · %s\n", MarkdownText(tallyOutcomes(rec)), MarkdownText(aboutRun(rec)))

	if rec.Outcome == results.ErrorOutcome || rec.Outcome == results.NotJudged || len(rec.Checks) == 0 {
		for i, r := range rec.Reasons {
			if i == 0 {
				m.printf("\n")
			}
			if i == 20 {
				m.printf("- and %d more\n", len(rec.Reasons)-i)
				break
			}
			m.printf("- %s\n", MarkdownText(r))
		}
	}
	var bad []results.Check
	for _, c := range rec.Checks {
		if c.Gate && (c.Outcome == results.Fail || c.Outcome == results.Inconclusive || c.Outcome == results.ErrorOutcome) {
			bad = append(bad, c)
		}
	}
	order := []results.Outcome{results.ErrorOutcome, results.Fail, results.Inconclusive}
	slices.SortStableFunc(bad, func(a, b results.Check) int {
		return cmp.Compare(slices.Index(order, a.Outcome), slices.Index(order, b.Outcome))
	})
	if len(bad) > 0 {
		m.printf("\n### What did not hold\n")
		m.checks(rec, bad)
		var codes []string
		for _, c := range bad {
			if code := c.FailureCode(); !slices.Contains(codes, code) {
				codes = append(codes, code)
			}
		}
		m.printf("\n")
		for _, code := range codes {
			if e, ok := results.Explain(code); ok {
				m.printf("- `%s`: %s\n", code, MarkdownText(e.Means))
			}
		}
		m.printf("\n`inabench explain CODE` says what to do.\n")
	}
	if len(rec.Checks) > 0 {
		m.printf("\n### Every expectation\n")
		m.expectations(rec)
	}
	if s := summarize(rec); s != nil {
		m.printf("\n### Figures by point\n\n%s\n", MarkdownText(s.Note()))
		var rows [][]string
		for _, r := range s.Rows {
			rows = append(rows, append(slices.Clone(r.Labels), r.Values...))
		}
		m.table(append(slices.Clone(s.Keys), s.Metrics...), rows)
	}
	if v := newComparing(rec); v != nil {
		m.printf("\n### Compared\n\n")
		for _, metric := range v.metrics {
			for _, line := range append([]string{v.found(metric)}, v.published(metric)...) {
				if line != "" {
					m.printf("- %s: %s\n", MarkdownText(human.Measure(metric)+rangesOf(rec, metric)), MarkdownText(line))
				}
			}
		}
	}
	m.reproduced(rec)
	if ts := troublesOf(rec); len(ts)+len(rec.Warnings) > 0 {
		m.printf("\n<details><summary>Testbed health and warnings</summary>\n\n")
		for _, t := range ts {
			note := ""
			if t.Fatal {
				note = "**too much to judge**: "
			}
			m.printf("- %s%s\n", note, MarkdownText(strings.TrimPrefix(t.Point+": "+t.Trouble.String(), ": ")))
		}
		for _, warning := range rec.Warnings {
			m.printf("- %s\n", MarkdownText(warning))
		}
		m.printf("\n</details>\n")
	}
	m.printf("\nRun %s, inabench %s\n", MarkdownText(rec.ID), MarkdownText(rec.Tool))
	_, err := io.WriteString(w, m.b.String())
	return err
}

type markdown struct{ b strings.Builder }

func (m *markdown) printf(format string, args ...any) { fmt.Fprintf(&m.b, format, args...) }

// checks writes a table of checks that did not hold.
func (m *markdown) checks(rec *results.Record, checks []results.Check) {
	head := []string{"", "check", string(cmp.Or(rec.Kind, results.Measured)), "predicted", "error", "allowed", "bottleneck", "code", "why"}
	var rows [][]string
	for _, c := range checks {
		r := checkRowOf(rec, c)
		rows = append(rows, []string{glyph(c.Outcome) + " " + string(c.Outcome), c.Title(), r.Measured, r.Predicted, r.Error, r.Tolerance, r.Bottleneck, c.FailureCode(), r.Why})
	}
	m.table(head, rows)
}

// expectations writes a row for each: how many of its checks held, and the one nearest to its
// limit or furthest beyond.
func (m *markdown) expectations(rec *results.Record) {
	var rows [][]string
	for _, e := range expectationsOf(rec) {
		held, all, worst, why := 0, 0, -1, ""
		for i, c := range rec.Checks {
			if c.Expect != e.Name {
				continue
			}
			all++
			if c.Outcome == results.Pass {
				held++
			} else if why == "" {
				why = string(c.Outcome)
			}
			if c.Repeats > 0 && c.Predictor != results.Evidence && (worst < 0 || off(c) > off(rec.Checks[worst])) {
				worst = i
			}
		}
		if all == 0 {
			continue
		}
		if why != "" && !e.Gate && !e.Event {
			why += ", not gated"
		}
		row := []string{e.Name, fmt.Sprintf("%d of %d", held, all), "", "", "", why}
		if worst >= 0 {
			r := checkRowOf(rec, rec.Checks[worst])
			row[2], row[3] = cmp.Or(r.Error, r.Measured), r.Tolerance
			row[4] = strings.TrimSpace(strings.TrimPrefix(rec.Checks[worst].Title(), e.Name))
		}
		rows = append(rows, row)
	}
	m.table([]string{"expectation", "held", "largest error", "allowed", "where", ""}, rows)
}

// table writes a table; columns without any text are left out.
func (m *markdown) table(head []string, rows [][]string) {
	var columns []int
	for i := range head {
		if slices.ContainsFunc(rows, func(r []string) bool { return r[i] != "" }) {
			columns = append(columns, i)
		}
	}
	line := func(cells []string) {
		m.printf("|")
		for _, i := range columns {
			m.printf(" %s |", MarkdownText(cells[i]))
		}
		m.printf("\n")
	}
	m.printf("\n")
	line(head)
	m.printf("|%s\n", strings.Repeat(" --- |", len(columns)))
	for i, r := range rows {
		if i == maxMarkdownRows {
			m.printf("\nand %d more, in the report\n", len(rows)-i)
			return
		}
		line(r)
	}
}

// WriteMarkdownTable writes a table; columns without any text are left out, and rows beyond 200.
func WriteMarkdownTable(w io.Writer, head []string, rows [][]string) error {
	m := markdown{}
	m.table(head, rows)
	_, err := io.WriteString(w, strings.TrimPrefix(m.b.String(), "\n"))
	return err
}

// MarkdownText is text that stands for itself in Markdown and in a cell of a table.
func MarkdownText(s string) string {
	var b strings.Builder
	before := ' '
	for _, r := range human.Printable(s) {
		switch r {
		case '&':
			b.WriteString("&amp;")
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '|', '\\', '`', '*', '_', '[', ']', '#', '~':
			b.WriteRune('\\')
			b.WriteRune(r)
		case '@':
			if b.WriteRune(r); !unicode.IsLetter(before) && !unicode.IsDigit(before) {
				b.WriteRune('\u200b') // mentions nobody
			}
		default:
			b.WriteRune(r)
		}
		before = r
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
