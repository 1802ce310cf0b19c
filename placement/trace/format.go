package trace

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// Format says which columns of a file hold what. Names are compared without regard to case; an empty one means that the
// file has no such column. Submit, Duration, Start, End, GPUs and Value may be expressions of columns, as package formula has
// them, where no column is called so: what one gives is in seconds if it is a time, and otherwise counts Unit; GPUs are
// rounded up.
type Format struct {
	Name string

	ID            string // none: jobs are numbered as the file's rows are, from 1
	Submit, GPUs  string // required
	Duration      string // required, unless Start and End are there
	Start, End    string // where a row has both, their difference is the duration
	Model, Source string // optional, in the file too
	User, Value   string // likewise

	// Unit is what a bare number counts, of Submit, Duration, Start and End: 0 is
	// time.Second.
	Unit time.Duration

	named bool // by somebody, who wants all of the columns to be there
}

// Formats are those that are recognised by their header, most specific first.
func Formats() []Format {
	return []Format{
		{
			Name: "inabench", ID: "job_id", Submit: "submit_s", Duration: "duration_s", GPUs: "gpus",
			Model: "model", Source: "source", User: "user", Value: "value",
		},
		// github.com/Rivendile/Muri, simulator/trace-data: jobs of Philly, in milliseconds.
		{
			Name: "muri", ID: "job_id", Submit: "submit_time", Duration: "duration", GPUs: "num_gpu",
			Model: "model_name", Unit: time.Millisecond,
		},
		// github.com/microsoft/elasticflow-traces, both raw and full.
		{
			Name: "elasticflow", ID: "job_id", Submit: "submission_time", Duration: "duration", GPUs: "num_gpu",
			Model: "model_name",
		},
		// github.com/InternLM/AcmeTrace (Seren, Kalos) and github.com/S-Lab-System-Group/HeliosData.
		// The duration that Kalos gives has the queueing in it, against its documentation:
		// start and end decide.
		{
			Name: "acme", ID: "job_id", Submit: "submit_time", Duration: "duration", GPUs: "gpu_num",
			Start: "start_time", End: "end_time", Source: "vc", User: "user",
		},
		// github.com/msr-fiddle/philly-traces, cluster_job_log: JSON, of which package trace makes such columns.
		{
			Name: "philly", ID: "jobid", Submit: "submitted_time", GPUs: "gpus",
			Start: "start_time", End: "end_time", Source: "vc", User: "user",
		},
	}
}

// FormatNamed finds one of Formats.
func FormatNamed(name string) (Format, error) {
	var known []string
	for _, f := range Formats() {
		if f.Name == name {
			return f, nil
		}
		known = append(known, f.Name)
	}
	return Format{}, tomlfile.WithHint(tomlfile.OneOf(name, known), "unknown trace format %q", name)
}

// ParseColumns reads a mapping such as "id=job,submit=arrival * 1ms,duration=runtime,gpus=workers * each"
// into a format named "columns". Keys are id, submit, duration, start, end, gpus, model, source,
// user and value; submit, gpus and either duration or start and end must be there. All columns that are named have to be in
// the file; in backquotes they may be called anything.
func ParseColumns(mapping string) (Format, error) {
	f := Format{Name: "columns", named: true}
	keys := f.keys()
	for _, item := range items(mapping) {
		key, column, ok := strings.Cut(item, "=")
		key, column = strings.TrimSpace(key), strings.TrimSpace(column)
		to := keys[key]
		switch {
		case !ok || column == "":
			return Format{}, tomlfile.WithHint("write key=column", "%q names no column", item)
		case to == nil:
			return Format{}, tomlfile.WithHint(tomlfile.OneOf(key, columnKeys), "unknown column key %q", key)
		case *to != "":
			return Format{}, tomlfile.WithHint("", "column key %q is given twice", key)
		}
		*to = column
	}
	return f, f.check()
}

// items are the parts of a mapping, between commas that are in no backquotes.
func items(mapping string) (out []string) {
	from, quoted := 0, false
	for i, c := range mapping {
		switch {
		case c == '`':
			quoted = !quoted
		case c == ',' && !quoted:
			out = append(out, mapping[from:i])
			from = i + 1
		}
	}
	return append(out, mapping[from:])
}

var columnKeys = []string{"id", "submit", "duration", "start", "end", "gpus", "model", "source", "user", "value"}

func (f *Format) keys() map[string]*string {
	return map[string]*string{
		"id": &f.ID, "submit": &f.Submit, "duration": &f.Duration, "start": &f.Start, "end": &f.End,
		"gpus": &f.GPUs, "model": &f.Model, "source": &f.Source, "user": &f.User, "value": &f.Value,
	}
}

func (f *Format) check() error {
	keys := f.keys()
	for _, key := range []string{"submit", "gpus"} {
		if *keys[key] == "" {
			return tomlfile.WithHint("", "no column for %s", key)
		}
	}
	if f.Duration == "" && (f.Start == "" || f.End == "") {
		return tomlfile.WithHint("", "no column for duration, nor for start and end")
	}
	if f.Unit < 0 {
		return tomlfile.WithHint("", "unit %v is negative", f.Unit)
	}
	return nil
}

// missing lists the columns that a header (normalised) lacks: of those that are required, and of a format that somebody
// named, of all. Expressions are looked at later.
func (f *Format) missing(header []string) (out []string) {
	keys := f.keys()
	has := func(key string) bool {
		return columnOf(*keys[key], header) >= 0 || kinds[key] != nil && isExpression(*keys[key])
	}
	spans := has("start") && has("end")
	for _, key := range columnKeys {
		wanted := f.named
		switch key {
		case "id", "submit", "gpus":
			wanted = true
		case "duration":
			wanted = wanted || !spans
		case "start", "end":
			wanted = wanted || f.Duration == ""
		}
		if wanted && *keys[key] != "" && !has(key) {
			out = append(out, *keys[key])
		}
	}
	return out
}

// columnOf is which column of a header (normalised) is called so, in backquotes or not; -1: none.
func columnOf(text string, header []string) int {
	if in, ok := backquoted(text); ok {
		text = in
	}
	if text = normal(text); text == "" {
		return -1
	}
	return slices.Index(header, text)
}

// backquoted is what stands between backquotes, where nothing else is there.
func backquoted(text string) (in string, ok bool) {
	n := len(text)
	if n < 2 || text[0] != '`' || strings.IndexByte(text[1:], '`') != n-2 {
		return "", false
	}
	return text[1 : n-1], true
}

func normal(column string) string { return strings.ToLower(strings.TrimSpace(column)) }

// detect finds the format that a header (normalised) has all required columns of. The
// error names the columns that each format misses.
func detect(header []string) (Format, error) {
	var hints []string
	var nearest Format
	least := -1
	for _, f := range Formats() {
		missing := f.missing(header)
		if len(missing) == 0 {
			return f, nil
		}
		if least < 0 || len(missing) < least {
			nearest, least = f, len(missing)
		}
		hints = append(hints, f.Name+" needs "+strings.Join(missing, ", "))
	}
	return Format{}, tomlfile.WithHint(strings.Join(hints, "; ")+"; or name the columns",
		"no known trace format: nearest is %s, which lacks %s: there are %s",
		nearest.Name, quoteAll(nearest.missing(header)), quoteAll(header))
}

// quoteAll quotes names for a message, some of them where they are many or long.
func quoteAll(names []string) string {
	const most = 24
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == most {
			fmt.Fprintf(&b, "and %d more", len(names)-most)
			break
		}
		b.WriteString(quote(n))
	}
	return b.String()
}

// quote quotes what a file says, cut to a length that fits a line.
func quote(s string) string {
	const most = 40
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

// isExpression says whether what stands for a column is computed, unless a column is called so.
func isExpression(s string) bool {
	if _, ok := backquoted(s); ok || s == "" {
		return false
	}
	return strings.ContainsAny(s, "+-*/()`") || strings.Contains("0123456789.", s[:1])
}

// ParseModels reads other names for models, such as "resnet=resnet50,bert=bert-large,*=vgg16". That of * is for
// all models that stand on neither side, and for jobs that have none.
func ParseModels(mapping string) (map[string]string, error) {
	out := map[string]string{}
	for item := range strings.SplitSeq(mapping, ",") {
		from, to, ok := strings.Cut(item, "=")
		from, to = strings.TrimSpace(from), strings.TrimSpace(to)
		switch {
		case !ok || from == "" || to == "":
			return nil, tomlfile.WithHint("write old=new, and *=NAME for all others", "%s names no model", quote(item))
		case out[from] != "":
			return nil, tomlfile.WithHint("", "model %s is given twice", quote(from))
		case len(to) > maxText:
			return nil, tomlfile.WithHint("", "model %s has %d bytes, %d are allowed", quote(to), len(to), maxText)
		}
		out[from] = to
	}
	return out, nil
}
