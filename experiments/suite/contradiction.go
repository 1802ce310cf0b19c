package suite

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// contradiction is how a night says better than its items do, or an item than its last run; nil if none does. The error
// wraps results.ErrContradicts.
func (n *Night) contradiction() error {
	for i := range n.Items {
		if err := n.Items[i].contradiction(); err != nil {
			return fmt.Errorf("%w: %s %w", results.ErrContradicts, n.Items[i].Name, err)
		}
	}
	if !n.Complete() {
		if n.Outcome == results.Pass {
			return fmt.Errorf("%w: it says pass, and did not come to its end", results.ErrContradicts)
		}
		return nil
	}
	if n.File.Text != "" {
		if n.File.SHA256 != sumOf(n.File.Text) {
			return fmt.Errorf("%w: the text of %s is not the one that was run", results.ErrContradicts, n.File.Path)
		}
		if want := itemsOf(n.File); len(n.Items) < want {
			return fmt.Errorf("%w: it has %s, and %s has at least %d", results.ErrContradicts, human.Plural(len(n.Items), "item"), n.File.Path, want)
		}
	}
	again := *n
	again.conclude(nil)
	from := []results.Outcome{results.Pass, results.Inconclusive, results.ErrorOutcome, results.Fail} // the best first
	switch said := slices.Index(from, n.Outcome); {
	case said < 0:
		return fmt.Errorf("%w: outcome %q is none", results.ErrContradicts, n.Outcome)
	case said < slices.Index(from, again.Outcome):
		return fmt.Errorf("%w: it says %s, and of its items it is %s: %s", results.ErrContradicts, n.Outcome, again.Outcome, again.Reasons[0])
	}
	return nil
}

// itemsOf is how many items a suite has at least: its experiments may say that they run on several drivers.
func itemsOf(file results.File) (n int) {
	f, err := tomlfile.Parse(file.Path, []byte(file.Text))
	if err != nil {
		return 0
	}
	var s Suite
	f.Decode(&s)
	for _, e := range s.Experiments {
		if len(e.On) == 0 {
			e.On = s.On
		}
		n += max(1, len(e.On))
	}
	return n
}

// contradiction is how an item's status cannot be that of its last run; nil if it can.
func (d *Done) contradiction() error {
	a := d.last()
	if a == nil && d.ended() {
		return fmt.Errorf("says %s, and was never run", d.Status)
	}
	if a != nil && a.Exit == 1 && d.Status != Failed && d.Status != Xfailed {
		return fmt.Errorf("says %s, and its run ended with 1", d.Status)
	}
	switch d.Status {
	case Passed, Xpassed:
		switch {
		case a.Exit != 0:
			return fmt.Errorf("says %s, and its run ended with %d", d.Status, a.Exit)
		case a.Class != Fine:
			return fmt.Errorf("says %s, and of its run %s", d.Status, a.Class)
		case a.Run == "":
			return fmt.Errorf("says %s, and left no run", d.Status)
		case (d.Xfail != "") != (d.Status == Xpassed):
			return fmt.Errorf("says %s, and it was expected to %s", d.Status, map[bool]string{true: "fail", false: "pass"}[d.Xfail != ""])
		}
	case Xfailed:
		switch {
		case d.Xfail == "":
			return errors.New("failed as expected, and nothing says that it is expected to")
		case a.Class != Verdict, a.Exit != 1 && a.Exit != 6:
			return fmt.Errorf("failed as expected, and its run ended with %d, for the reason %q", a.Exit, a.Class)
		case a.Wrong != "":
			return fmt.Errorf("failed as expected, which does not excuse %s", a.Wrong)
		}
	case Undecided:
		if a.Exit != 7 {
			return fmt.Errorf("is undecided, and its run ended with %d", a.Exit)
		}
	case Failed, Broken, Left, Interrupt, Waiting, Running:
	default:
		return fmt.Errorf("has a status that is none: %q", d.Status)
	}
	return nil
}

// disowned is how an item says better than the record of its last run, among those in root; nil if none does. A run that
// was removed says nothing, nor does one that cannot be read.
func (n *Night) disowned(root string) error {
	for i := range n.Items {
		d := &n.Items[i]
		a := d.last()
		if a == nil || a.Run == "" || !slices.Contains([]Status{Passed, Xpassed, Xfailed, Undecided}, d.Status) {
			continue
		}
		rec, err := results.ReadRecord(filepath.Join(root, filepath.Base(a.Run)))
		of := results.NightRun{Suite: n.Suite, Night: n.ID, Item: d.Name, Attempt: len(d.Attempts)}
		switch passed := d.Status == Passed || d.Status == Xpassed; {
		case errors.Is(err, results.ErrContradicts):
			return fmt.Errorf("%s says %s: %w", d.Name, d.Status, err)
		case err != nil:
			continue
		case rec.Night == nil || *rec.Night != of:
			return fmt.Errorf("%w: %s says that %s is its run, and that is another one", results.ErrContradicts, d.Name, a.Run)
		case passed && rec.Outcome != results.Pass, !passed && results.ExitCode(rec.Outcome) != a.Exit:
			return fmt.Errorf("%w: %s says %s, and its run %s", results.ErrContradicts, d.Name, d.Status, rec.Outcome)
		case d.Status == Xfailed && wrong(rec) != "":
			return fmt.Errorf("%w: %s failed as expected, which does not excuse %s", results.ErrContradicts, d.Name, wrong(rec))
		}
	}
	return nil
}
