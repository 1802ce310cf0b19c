// Package trace has job traces: which jobs are submitted when, for how long and with
// how many GPUs. They are read from the files of published traces, generated, also like a recorded one,
// cut to size, drawn again and described.
//
//	t, how, err := trace.Load("philly.csv", trace.Options{})
//	t, err := trace.Generate(trace.Generator{Demand: trace.Philly, Jobs: 4000, Load: 0.8, Capacity: 1024})
//	t, what, err := trace.Transform{First: 4000, MaxGPUs: 512}.Apply(t)
//
// Our own format is CSV with a header; columns may come in any order:
//
//	job_id,submit_s,duration_s,gpus,model,source
//	t1-0,0,2868294,1,vgg16,philly/7f04ca
package trace

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// Job is one training job.
type Job struct {
	ID       string
	Submit   float64 // seconds since the trace's origin, at least 0
	Duration float64 // seconds that it runs with all its GPUs, above 0
	GPUs     int     // at least 1
	Model    string  // may be empty. No published trace records it: whoever released one drew it at random
	Source   string  // cluster or generator it is from; may be empty
	User     string  // who submitted it; may be empty
	Value    float64 // how important it is among those that wait, 1/MostValue to MostValue; 0: not said
	Line     int     // of the file it was read from; 0: it was not
}

// Trace is jobs in the order of their submission.
type Trace struct {
	Name   string    // of the file or generator, for messages
	Origin time.Time // of Submit 0; zero where the trace has no dates
	Jobs   []Job     // sorted by Submit; those submitted at once as in the file
}

// New sorts the jobs.
func New(name string, jobs []Job) *Trace {
	t := &Trace{Name: name, Jobs: jobs}
	t.sort()
	return t
}

func (t *Trace) sort() {
	slices.SortStableFunc(t.Jobs, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
}

// CheckGPUs says which jobs ask for more than limit GPUs, all that a cluster has. The
// error is an *InvalidError. Transform.MaxGPUs drops or shrinks them.
func (t *Trace) CheckGPUs(limit int) error {
	var bad collector
	for i := range t.Jobs {
		if j := &t.Jobs[i]; j.GPUs > limit {
			bad.add(tomlfile.Problem{
				Pos: at(t.Name, j.Line, 1),
				Msg: fmt.Sprintf("job %s asks for %d GPUs, the cluster has %d", j.ID, j.GPUs, limit),
			})
		}
	}
	return bad.err("drop or clamp such jobs")
}

// at is a place in a file, or the file as a whole for line 0.
func at(name string, line, col int) tomlfile.Pos {
	if line == 0 {
		col = 0
	}
	return tomlfile.Pos{File: name, Line: line, Col: col}
}

// Write writes our own format, times in seconds; users and values where some job has one. Origin is not part of it.
func (t *Trace) Write(w io.Writer) error {
	out := csv.NewWriter(w)
	row := slices.Clone(ownColumns)
	if slices.ContainsFunc(t.Jobs, func(j Job) bool { return j.User != "" || j.Value != 0 }) {
		row = append(row, "user", "value")
	}
	err := out.Write(row)
	for i := range t.Jobs {
		if err != nil {
			break
		}
		j := &t.Jobs[i]
		row = append(row[:0], j.ID, seconds(j.Submit), seconds(j.Duration), strconv.Itoa(j.GPUs), j.Model, j.Source, j.User, worth(j.Value))[:len(row)]
		err = out.Write(row)
	}
	out.Flush()
	if err == nil {
		err = out.Error()
	}
	if err != nil {
		return fmt.Errorf("write trace %s: %w", t.Name, err)
	}
	return nil
}

var ownColumns = []string{"job_id", "submit_s", "duration_s", "gpus", "model", "source"}

func seconds(s float64) string { return strconv.FormatFloat(s, 'f', -1, 64) }

// worth is a value as it is written; nothing where a job has none.
func worth(value float64) string {
	if value == 0 {
		return ""
	}
	return strconv.FormatFloat(value, 'g', -1, 64)
}
