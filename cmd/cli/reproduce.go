package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/claims"
	"github.com/inabench/inabench/experiments/suite"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/report"
)

func reproduceCommand() *cli.Command {
	return &cli.Command{
		Name:      "reproduce",
		Usage:     "say of every claim of the papers whether stored runs show it; --quick or --full makes the missing runs",
		ArgsUsage: "[PAPER...]",
		Flags: []cli.Flag{
			rootFlag(), outputFlag("text", "json", "md"),
			&cli.BoolFlag{Name: "quick", Usage: "first run the small version of each experiment without a complete run"},
			&cli.BoolFlag{Name: "full", Usage: "first run each experiment without a full run"},
			&cli.StringFlag{Name: "experiments", Value: "experiments", Usage: "`DIR` with the experiments that ship with inabench"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress on stderr"},
		},
		Description: `Papers: ` + strings.Join(paperNames(), ", ") + `; none are all.

Examples:
  inabench reproduce netpack            # what the runs that are there say
  inabench reproduce --quick -o md > reproduced.md
`,
		Action: reproduceAction,
	}
}

func paperNames() (out []string) {
	for _, p := range claims.Papers() {
		out = append(out, p.Name)
	}
	return out
}

func reproduceAction(c *cli.Context) error {
	papers := claims.Papers()
	if c.Args().Present() {
		papers = nil
		for _, name := range c.Args().Slice() {
			p, err := claims.Find(name)
			if err != nil {
				return usagef("inabench reproduce -h", "%w", err)
			}
			papers = append(papers, p)
		}
	}
	if c.Bool("quick") && c.Bool("full") {
		return usagef("--full makes the small runs, too, where they are the full ones", "--quick and --full exclude each other")
	}
	shown, err := newestRuns(rootOf(c))
	if err != nil {
		return err
	}
	if c.Bool("quick") || c.Bool("full") {
		if err := runMissing(c, papers, shown); err != nil {
			return err
		}
		if shown, err = newestRuns(rootOf(c)); err != nil {
			return err
		}
	}
	judged := make([]judgedPaper, len(papers))
	for i, p := range papers {
		judged[i] = judgedPaper{Name: p.Name, Title: p.Title, Venue: p.Venue, Claims: p.Judge(func(experiment string) *results.Record { return shown[experiment] }, experiments.Shipped)}
	}
	switch c.String("output") {
	case "json":
		return writeJSON(c.App.Writer, judged)
	case "md":
		return writeClaimsMarkdown(c.App.Writer, judged)
	}
	return writeClaims(c.App.Writer, judged)
}

// judgedPaper is a paper and what became of its claims.
type judgedPaper struct {
	Name   string          `json:"paper"`
	Title  string          `json:"title"`
	Venue  string          `json:"venue,omitempty"`
	Claims []claims.Judged `json:"claims"`
}

// newestRuns are the newest finished runs by their experiment's file: of several the newest that has all of the experiment's
// points, else the newest that was not cut off, else the newest of the experiment as it ships, else the newest.
func newestRuns(root string) (map[string]*results.Record, error) {
	all, err := results.List(root)
	if err != nil {
		return nil, err
	}
	out, extents := map[string]*results.Record{}, map[string]claims.Extent{}
	for _, e := range all { // the newest first
		if e.Err != nil || !e.Record.Complete() || e.Record.Sabotage != nil || len(e.Record.Points) == 0 {
			continue
		}
		name := filepath.Base(e.Record.Experiment.Path)
		if of := extentOf(e.Record, name); out[name] == nil || of > extents[name] {
			out[name], extents[name] = e.Record, of
		}
	}
	return out, nil
}

func extentOf(rec *results.Record, experiment string) claims.Extent {
	of, _ := claims.ExtentOf(rec, experiments.Shipped(experiment))
	return of
}

// runMissing runs the experiments that show claims of the papers and have not been run, or not to the end.
func runMissing(c *cli.Context, papers []*claims.Paper, shown map[string]*results.Record) error {
	dir, least := c.String("experiments"), claims.Small
	if c.Bool("full") {
		least = claims.Whole
	}
	var missing []string
	for _, p := range papers {
		for _, name := range p.Experiments() {
			if rec := shown[name]; !slices.Contains(missing, name) && (rec == nil || extentOf(rec, name) < least) {
				missing = append(missing, name)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var text strings.Builder
	fmt.Fprintf(&text, "version = 1\nname = \"reproduce\"\nquick = %t\n[retry]\ninconclusive = 2\ntestbed = 1\n", !c.Bool("full"))
	for _, name := range missing {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return inputError{err, "inabench is built from a repository that has them; --experiments names the folder"}
		}
		fmt.Fprintf(&text, "[[experiment]]\npath = %q\n", name)
	}
	s, err := suite.Parse(filepath.Join(dir, "reproduce.toml"), []byte(text.String()))
	if err != nil {
		return err
	}
	p := &nightProgress{w: c.App.ErrWriter, quiet: c.Bool("quiet")}
	_, err = suite.Run(c.Context, s, suite.Options{Root: rootOf(c), Tool: version(), Runner: suite.Program{}, Progress: p.step})
	return err // what did not pass is in the ledger
}

func writeClaims(w io.Writer, papers []judgedPaper) error {
	var b strings.Builder
	for i, p := range papers {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s: %s%s\n%s: %s\n", p.Name, p.Title, inBrackets(p.Venue), human.Plural(len(p.Claims), "claim"), claims.Count(p.Claims))
		for _, j := range p.Claims {
			fmt.Fprintf(&b, "\n%s  %s  %s\n", j.Where, j.Word, j.Says)
			for _, line := range detailsOf(j) {
				fmt.Fprintf(&b, "  %s\n", line)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// detailsOf is what stands below a claim.
func detailsOf(j claims.Judged) (out []string) {
	var line []string
	if j.Paper != "" {
		line = append(line, "paper "+j.Paper)
	}
	if len(j.Here) > 0 {
		line = append(line, "here "+strings.Join(j.Here, "; "))
	}
	if len(line) > 0 {
		out = append(out, strings.Join(line, "; "))
	}
	line = nil
	if j.Why != "" {
		line = append(line, j.Why)
	}
	switch {
	case j.Run != "":
		line = append(line, "run "+j.Run+" of "+j.From+" on "+placesOf(j))
	case j.From != "":
		line = append(line, "inabench run experiments/"+j.From)
	}
	if len(line) > 0 {
		out = append(out, strings.Join(line, "; "))
	}
	return out
}

// placesOf is where a claim was run, and where in the paper.
func placesOf(j claims.Judged) string {
	if j.On == "" {
		return ""
	}
	return j.On + inBrackets(map[string]string{
		"simulation": "in the paper a simulation", "testbed": "in the paper a testbed", "analysis": "in the paper an analysis",
	}[j.Testbed])
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func writeClaimsMarkdown(w io.Writer, papers []judgedPaper) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# What the papers claim, and what runs here show\n\nMade by `inabench reproduce -o md` of inabench %s on %s.\n", version(), time.Now().Format(time.DateOnly))
	for _, p := range papers {
		fmt.Fprintf(&b, "\n## %s\n\n%s: %s\n\n", report.MarkdownText(p.Title+inBrackets(p.Venue)), human.Plural(len(p.Claims), "claim"), claims.Count(p.Claims))
		var rows [][]string
		for _, j := range p.Claims {
			here := cmp.Or(strings.Join(j.Here, "; "), j.Why)
			if j.Here != nil && j.Why != "" {
				here += "; " + j.Why
			}
			rows = append(rows, []string{j.Where, j.Says, j.Paper, here, placesOf(j), string(j.Word)})
		}
		if err := report.WriteMarkdownTable(&b, []string{"where", "claim", "paper", "here", "run on", "reproduced?"}, rows); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
