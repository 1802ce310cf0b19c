package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/inabench/inabench/experiments/suite"
	"github.com/inabench/inabench/results"
)

// cmdPast writes runs as earlier nights would have left them: of every run in a directory one
// a day, N days back, in which goodput, and what was predicted of it, was so many times what it is.
func cmdPast(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: past DIR N TIMES")
	}
	root := ts.MkAbs(args[0])
	n := number(ts, args[1])
	times, err := strconv.ParseFloat(args[2], 64)
	ts.Check(err)
	entries, err := results.List(root)
	ts.Check(err)
	for _, e := range entries {
		ts.Check(e.Err)
		for day := 1; day <= n; day++ {
			rec, err := results.ReadRecord(e.Path)
			ts.Check(err)
			rec.Started, rec.Finished = rec.Started.AddDate(0, 0, -day), rec.Finished.AddDate(0, 0, -day)
			rec.ID, rec.Night = ulid.MustNew(ulid.Timestamp(rec.Started), ulid.DefaultEntropy()).String(), nil
			factor := times * (1 + 0.001*float64(day*7%11-5)/5) // as if somebody else used the machine
			for i := range rec.Points {
				for k := range rec.Points[i].Phases {
					for f := range rec.Points[i].Phases[k].Figures {
						if f := &rec.Points[i].Phases[k].Figures[f]; f.Metric == "goodput" {
							f.Value *= factor
						}
					}
				}
			}
			for i := range rec.Checks {
				if c := &rec.Checks[i]; c.Metric == "goodput" {
					c.Measured *= factor
					c.Predicted *= factor
				}
			}
			d, err := results.Create(root, rec)
			ts.Check(err)
			ts.Check(errors.Join(d.Close(), d.Save(rec)))
			if filepath.Base(d.Path) >= filepath.Base(e.Path) {
				ts.Fatalf("%s is no earlier night", d.Path)
			}
		}
	}
	fmt.Fprintf(ts.Stdout(), "%d runs of the past\n", n*len(entries))
}

// cmdKilled makes the document of a night that of one that was killed while it ran an item.
func cmdKilled(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: killed SUITE.json ITEM")
	}
	var n suite.Night
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &n))
	n.Finished, n.Outcome = time.Time{}, results.ErrorOutcome
	for i := range n.Items[number(ts, args[1]):] {
		d := &n.Items[number(ts, args[1])+i]
		d.Status = suite.Waiting
		if i == 0 {
			d.Status = suite.Running
			d.Attempts = []suite.Attempt{{Started: d.Attempts[0].Started}}
		}
	}
	data, err := json.Marshal(n)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o666))
}
