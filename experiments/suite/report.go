package suite

import (
	"encoding/xml"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/report"
)

// headline is the first line of a report.
func (n *Night) headline() string {
	return strings.ToUpper(string(n.Outcome)) + "  " + n.title()
}

func (n *Night) title() string {
	if n.Title == "" {
		return n.Suite
	}
	return n.Suite + ": " + n.Title
}

// Counts says in words how many items came to what.
func (n *Night) Counts() string {
	var out []string
	for _, c := range []struct {
		what string
		of   Status
	}{
		{"passed", Passed}, {"failed", Failed}, {"failed as expected", Xfailed}, {"passed unexpectedly", Xpassed}, {"undecided", Undecided},
		{"broken", Broken}, {"did not fit", Left}, {"interrupted", Interrupt}, {"waiting", Waiting}, {"running", Running},
	} {
		if k := n.count(c.of); k > 0 {
			out = append(out, fmt.Sprintf("%d %s", k, c.what))
		}
	}
	return strings.Join(out, ", ")
}

// figures says in words what became of the figures.
func (j Judged) figures(worse int) string {
	if j.Learning == j.Figures {
		return fmt.Sprintf("%d figures are learnt, and nothing is said of them yet", j.Figures)
	}
	s := fmt.Sprintf("%d of %d figures are worse than in the nights before", worse, j.Figures-j.Learning)
	if j.Learning > 0 {
		s += fmt.Sprintf("; %d more are learnt", j.Learning)
	}
	if j.Expected >= 1 {
		s += fmt.Sprintf("; without any change up to %.0f may be", j.Expected)
	}
	return s
}

func (n *Night) budget() string {
	s := elapsed(n.Used)
	if n.Budget > 0 {
		s += " of " + elapsed(n.Budget)
	}
	return s
}

// WriteText writes a night for the terminal: the verdict, why, what changed since the last
// good night, and the items.
func WriteText(w io.Writer, root string, n *Night) error {
	fmt.Fprintln(w, n.headline())
	fmt.Fprintf(w, "      %s, in %s\n", n.Counts(), n.budget())
	if n.Judged.Figures > 0 {
		fmt.Fprintf(w, "      %s\n", n.Judged.figures(len(n.worse())))
	}
	list := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s\n", title)
		for _, l := range lines {
			fmt.Fprintf(w, "  %s\n", l)
		}
	}
	list("why", n.Reasons)
	list("what explains the figures that became worse, the likeliest first", n.suspects())
	list("where studies became worse", n.where(""))
	if n.LastGood != "" {
		news := n.News
		if len(news) == 0 {
			news = []string{"nothing but what is said above"}
		}
		list("since the last good night, "+n.LastGood, news)
	}
	list("figures that changed, and decide nothing", n.others())
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "  ITEM\tRESULT\tTOOK\tRUN\tNOTE")
	for i := range n.Items {
		d := &n.Items[i]
		took, run := "-", "-"
		if a := d.last(); a != nil {
			took = elapsed(d.took())
			if a.Run != "" {
				run = a.Run
			}
		}
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\n", d.Name, d.Status, took, run, d.Message)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nfiles  %s\n       %s\n", n.Path(root), strings.Join([]string{File, JUnitFile, Summary}, ", "))
	return err
}

// suspects are the likeliest culprits in words.
func (n *Night) suspects() []string {
	var out []string
	for i, c := range n.Culprits {
		out = append(out, fmt.Sprintf("%d. %s", i+1, c))
	}
	return out
}

// where says where studies became worse: one, or with "" all of them.
func (n *Night) where(item string) []string {
	var out []string
	for _, s := range n.Spreads {
		if item == "" || s.Item == item {
			out = append(out, s.String())
		}
	}
	return out
}

// explains is what may explain that a figure of an item is worse.
func (n *Night) explains(item string) string {
	lines := n.where(item)
	if len(lines) == 0 {
		lines = n.suspects()
	}
	return strings.Join(lines, "\n")
}

// others are figures that moved and decide nothing.
func (n *Night) others() []string {
	var out []string
	for _, m := range n.Moves {
		if !m.counts() {
			out = append(out, fmt.Sprintf("%s: %s", m.Effect, m))
		}
	}
	if len(out) > 8 {
		out = append(out[:8], fmt.Sprintf("and %d more", len(out)-8))
	}
	return out
}

// WriteMarkdown writes a night for a job summary or a comment.
func WriteMarkdown(w io.Writer, n *Night) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s, in %s. ", report.MarkdownText(n.headline()), n.Counts(), n.budget())
	if n.Judged.Figures > 0 {
		fmt.Fprintf(&b, "%s.", n.Judged.figures(len(n.worse())))
	}
	b.WriteString("\n")
	list := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n**%s**\n\n", title)
		for _, l := range lines {
			fmt.Fprintf(&b, "- %s\n", report.MarkdownText(l))
		}
	}
	list("Why", n.Reasons)
	var suspects []string
	for _, c := range n.Culprits {
		suspects = append(suspects, c.String())
	}
	list("What explains the figures that became worse, the likeliest first", suspects)
	list("Where studies became worse", n.where(""))
	if n.LastGood != "" {
		news := n.News
		if len(news) == 0 {
			news = []string{"nothing but what is said above"}
		}
		list("Since the last good night, "+n.LastGood, news)
	}
	list("Figures that changed, and decide nothing", n.others())
	b.WriteString("\n| item | result | took | note |\n| --- | --- | --- | --- |\n")
	for i := range n.Items {
		d := &n.Items[i]
		took := "-"
		if d.last() != nil {
			took = elapsed(d.took())
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", report.MarkdownText(d.Name), d.Status, took, report.MarkdownText(d.Message))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// junitSuites is a night; its suites are items.
type junitSuites struct {
	XMLName xml.Name            `xml:"testsuites"`
	Name    string              `xml:"name,attr"`
	Suites  []report.JUnitSuite `xml:"testsuite"`
}

// WriteJUnit writes a night for CI: a suite for each item with a case for its run and one for
// each of its checks, and a suite for the figures that are worse than in nights before.
func WriteJUnit(w io.Writer, root string, n *Night) error {
	doc := junitSuites{Name: n.Suite}
	for i := range n.Items {
		doc.Suites = append(doc.Suites, n.Items[i].junit(root))
	}
	history := report.JUnitSuite{Name: "history", Time: "0"}
	for _, m := range n.Moves {
		c := report.JUnitCase{Class: m.Item, Name: m.subject()}
		switch {
		case m.counts():
			c.Failure = &report.JUnitResult{Message: m.String(), Type: m.Metric, Text: n.explains(m.Item)}
		default:
			c.Skipped = &report.JUnitResult{Message: string(m.Effect) + ": " + m.String()}
		}
		history.Cases = append(history.Cases, c)
	}
	if fine := n.Judged.Figures - n.Judged.Learning - len(n.Moves); fine > 0 {
		history.Cases = append(history.Cases, report.JUnitCase{Class: n.Suite, Name: fmt.Sprintf("%d figures as before", fine)})
	}
	doc.Suites = append(doc.Suites, history)
	for i := range doc.Suites {
		doc.Suites[i].Tally()
	}
	return report.EncodeJUnit(w, doc)
}

func (d *Done) junit(root string) report.JUnitSuite {
	s := report.JUnitSuite{Name: d.Name, Time: strconv.FormatFloat(d.took(), 'f', 3, 64)}
	c := report.JUnitCase{Class: d.Name, Name: "run"}
	switch d.Status {
	case Failed, Xpassed:
		c.Failure = &report.JUnitResult{Message: d.Message, Type: string(d.Status)}
	case Broken:
		c.Error = &report.JUnitResult{Message: d.Message, Type: string(d.last().Class)}
	case Passed:
	default:
		c.Skipped = &report.JUnitResult{Message: string(d.Status) + ": " + d.Message}
	}
	s.Cases = append(s.Cases, c)
	a := d.last()
	if a == nil || a.Run == "" {
		return s
	}
	rec, err := results.ReadRecord(filepath.Join(root, a.Run))
	if err != nil {
		return s // it was removed since
	}
	for _, check := range rec.Checks {
		class := d.Name
		if check.Point != "" {
			class += "." + check.Point
		}
		name := strings.TrimSpace(check.Expect + " " + check.Of)
		if check.Phase > 0 {
			name += fmt.Sprintf(" phase %d", check.Phase+1)
		}
		c := report.JUnitCase{Class: class, Name: name}
		message := check.Message()
		switch {
		case check.Outcome == results.Pass:
		case check.Outcome == results.Fail && check.Gate && d.Xfail == "":
			c.Failure = &report.JUnitResult{Message: message, Type: check.Metric}
			if i := slices.IndexFunc(rec.Expect, func(e results.Expect) bool { return e.Name == check.Expect }); i >= 0 {
				c.Failure.Text = rec.Expect[i].Reason
			}
		default:
			c.Skipped = &report.JUnitResult{Message: string(check.Outcome) + ": " + message}
		}
		s.Cases = append(s.Cases, c)
	}
	return s
}
