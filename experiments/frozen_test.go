package experiments

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/results"
)

// clocked are metrics of wall time: no two runs have the same.
var clocked = []string{"placement_time", "placement_time_ratio", "tree_time"}

// freeze holds a simulated run against what the same experiment gave before: its outcome, its
// checks, and digests of each point and of all else, without times. What a change of the code
// means to change is written anew by -update; whatever else differs is a mistake. Where
// only a digest differs, the run of an older program says what was there.
func freeze(t *testing.T, name string, rec *results.Record, dir string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Logf("not held against what it was: on %s sums and products are rounded once", runtime.GOARCH)
		return
	}
	golden.Compare(t, filepath.Join("frozen", name+".txt"), frozen(t, rec, dir))
}

// frozen is what freeze keeps of a run.
func frozen(t *testing.T, rec *results.Record, dir string) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "outcome %s, exit code %d\n", rec.Outcome, rec.ExitCode)
	for _, c := range rec.Checks {
		figures := fmt.Sprintf("measured %.6g predicted %.6g", c.Measured, c.Predicted)
		if slices.Contains(clocked, c.Metric) {
			figures = "takes time"
		}
		fmt.Fprintf(&b, "check %q point %q phase %d %s %q: %s gate %t code %q; %s\n",
			c.Expect, c.Point, c.Phase, c.Metric, c.Of, c.Outcome, c.Gate, c.Code, figures)
	}
	for _, p := range rec.Points {
		fmt.Fprintf(&b, "point %q repeat %d: %s\n", p.Label(), p.Repeat, digest(t, p))
	}
	for _, r := range rec.Reproduced {
		fmt.Fprintf(&b, "reproduced %s\n", digest(t, r))
	}
	rest := *rec
	rest.Points, rest.Reproduced = nil, nil
	rest.ID, rest.Tool, rest.Args, rest.Overrides, rest.Timings = "", "", nil, nil, nil
	rest.Started, rest.Finished = time.Time{}, time.Time{}
	rest.Experiment, rest.Inventory = results.File{}, results.File{} // comments in them are free
	rest.Hosts, rest.Warnings = nil, nil                             // of this machine
	v := reflect.ValueOf(rest)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			fmt.Fprintf(&b, "%s %s\n", v.Type().Field(i).Name, digest(t, f.Interface()))
		}
	}
	for _, file := range []string{"samples.jsonl", "jobs.csv.gz"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %.8x\n", file, sha256.Sum256(text))
	}
	return b.String()
}

// digest is of a part of a record without the values of wall time.
func digest(t *testing.T, part any) string {
	t.Helper()
	text, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(timeless(v))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%.8x", sha256.Sum256(text))
}

// timeless takes the values out of figures and checks that are wall time.
func timeless(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = timeless(v[i])
		}
	case map[string]any:
		if metric, ok := v["metric"].(string); ok && slices.Contains(clocked, metric) {
			for _, key := range []string{"value", "measured", "lo", "hi", "error"} {
				delete(v, key)
			}
		}
		for k := range v {
			v[k] = timeless(v[k])
		}
	}
	return v
}
