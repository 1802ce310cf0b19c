package trace

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	files "github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement/trace/formula"
)

// maxRow bounds a row in bytes, so that a file of garbage is refused before it fills
// the memory.
const maxRow = 1 << 20

// limit is that of a file, so that what is read of it fits a machine's memory: of jobs, 200 bytes each, of bytes in
// their names, and of rows, those that are skipped as well. The largest trace that was published, of all of Helios, has 3.4 million jobs.
var limit = struct{ jobs, names, rows int }{5_000_000, 256 << 20, 50_000_000}

// hopeless is after how many bad rows without a single good one reading ends.
const hopeless = 10_000

// Limits of values, far above any trace, that keep sums and conversions exact.
const (
	maxSeconds = 1e11 // some 3,000 years
	maxGPUs    = 1 << 20
	maxText    = 256 // bytes of an id, model, source or user
)

// MostValue is the largest value of a job, and 1/MostValue the least: NetPack's knapsack rounds to one part in 2^40 of the largest.
const MostValue = 1e6

// Options say how to read a trace.
type Options struct {
	Format  *Format // nil: by the header
	Lenient bool    // skip bad rows, counting them, in place of refusing the file
	// Skipped is told of every problem of a row that Lenient skips; nil: nobody.
	Skipped func(tomlfile.Problem)

	// Where is a condition on the columns of a row, as package formula has them: other rows are left out and
	// counted, in the Report, under the first of its parts that is not true. Empty: all rows are wanted.
	Where string
	// Models are other names for the file's models, by these; see ParseModels.
	Models map[string]string
}

// Report says how a file was read.
type Report struct {
	Format  string   `json:"format"`
	Rows    int      `json:"rows"`    // without the header
	Ignored []string `json:"ignored"` // columns that were not used, as the header has them
	// Skipped counts the rows that were skipped, by their first problem, or by the part of Where that was not true.
	Skipped map[Reason]int `json:"skipped"`
}

// SkippedRows is how many rows were skipped, for whatever reason.
func (r *Report) SkippedRows() int {
	sum := 0
	for _, n := range r.Skipped {
		sum += n
	}
	return sum
}

// Summary is the rows skipped by reason, most frequent first: "duration not
// positive (3), duplicate id (1)"; empty when there were none.
func (r *Report) Summary() string {
	reasons := slices.SortedFunc(maps.Keys(r.Skipped), func(a, b Reason) int {
		return cmp.Or(r.Skipped[b]-r.Skipped[a], cmp.Compare(a, b))
	})
	var parts []string
	for _, why := range reasons {
		parts = append(parts, fmt.Sprintf("%s (%d)", why, r.Skipped[why]))
	}
	return strings.Join(parts, ", ")
}

// Reason is why a row is no job.
type Reason string

// The reasons there are, beside those that Where gives: `not status == "Pass"`.
const (
	NotCSV       Reason = "not CSV"
	NotPhilly    Reason = "not a job as Philly has it"
	WrongWidth   Reason = "too few or too many fields"
	MissingField Reason = "missing field"
	NotText      Reason = "not a name"
	NotNumber    Reason = "not a number"
	NotTime      Reason = "not a time"
	BadDuration  Reason = "duration not positive"
	BadGPUs      Reason = "GPUs below 1"
	BadSubmit    Reason = "submitted before the origin or 1970"
	BadValue     Reason = "value out of range"
	Duplicate    Reason = "duplicate id"
)

// Load reads a file; see Read. That it cannot be opened is the operating system's error.
func Load(path string, o Options) (*Trace, *Report, error) {
	open := files.Open
	if strings.HasPrefix(path, "/dev/") { // what a shell has opened already
		open = os.Open
	}
	f, err := open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return Read(path, f, o)
}

// Read reads a CSV file with a header, or the JSON of Philly, which begins with [ or {. Rows may be in any order; the
// trace is sorted. Dates become seconds since the first submission, numbers stay as they are.
//
// Whatever is wrong with the file or a row is an *InvalidError with the place of every
// problem, 20 shown and all counted. With Lenient, bad rows are skipped, counted in the
// report and told to Skipped; a file without one good row is still an error. Reading
// ends early where it is hopeless: a row above 1 MiB, 10,000 bad rows and no good one, or
// more than 5,000,000 jobs, 50,000,000 rows or 256 MiB of names. An error of r is returned wrapped.
func Read(name string, r io.Reader, o Options) (*Trace, *Report, error) {
	in := &bounded{r: r}
	p := &parser{
		name: name, o: o, in: in,
		seen: map[string]int{}, jobs: jobs{index: map[string]uint32{}},
		report: Report{Skipped: map[Reason]int{}, Ignored: []string{}},
	}
	in.left = maxRow
	p.table = open(bufio.NewReader(in))
	if err := p.header(); err != nil {
		return nil, nil, err
	}
	if err := p.rows(); err != nil {
		return nil, nil, err
	}
	return p.finish()
}

// bounded ends the reading when too much has been read since the last row ended.
type bounded struct {
	r       io.Reader
	left    int
	tripped bool
}

var errLongRow = errors.New("row too long")

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		b.tripped = true // the parser may have other complaints about what it got
		return 0, errLongRow
	}
	n, err := b.r.Read(p)
	b.left -= n
	return n, err
}

// jobs are those that were read, in little memory: none is moved while there come more, and a name is kept once.
type jobs struct {
	parts [][]packed
	n     int
	names []string // of models, sources and users
	index map[string]uint32
	bytes int // of names
}

// packed is a Job.
type packed struct {
	id                      string
	submit, duration, value float64
	gpus, line              uint32
	model, source, user     uint32 // indices of names
}

func (l *jobs) add(j Job) {
	const part = 4096
	if l.n%part == 0 {
		l.parts = append(l.parts, make([]packed, 0, part))
	}
	last := &l.parts[len(l.parts)-1]
	*last = append(*last, packed{
		j.ID, j.Submit, j.Duration, j.Value, uint32(j.GPUs), uint32(j.Line), l.name(j.Model), l.name(j.Source), l.name(j.User),
	})
	l.n++
}

// name is the index of a name, of which a copy is kept: the row's memory is larger.
func (l *jobs) name(s string) uint32 {
	i, ok := l.index[s]
	if !ok {
		i, s = uint32(len(l.names)), strings.Clone(s)
		l.names, l.index[s] = append(l.names, s), i
		l.bytes += len(s)
	}
	return i
}

func (l *jobs) all() []Job {
	out := make([]Job, 0, l.n)
	for i, part := range l.parts {
		l.parts[i] = nil // its memory is wanted
		for _, j := range part {
			out = append(out, Job{
				ID: j.id, Submit: j.submit, Duration: j.duration, GPUs: int(j.gpus), Model: l.names[j.model], Source: l.names[j.source],
				User: l.names[j.user], Value: j.value, Line: int(j.line),
			})
		}
	}
	return out
}

type parser struct {
	name     string
	o        Options
	in       *bounded
	table    table
	format   Format
	width    int
	column   map[string]int // field of the row by key of Format.keys; of an expression, the first field in it
	formulas map[string]*formula.Formula
	where    *formula.Formula
	unit     float64 // seconds that a bare number counts
	dates    *bool   // whether submissions are dates; nil before the first row that says
	dated    *bool   // the same, by the row that is being read
	layout   string  // of the last date

	line     int            // where the last row began
	seen     map[string]int // lines of ids
	ids      int            // bytes of these
	jobs     jobs
	filtered int // rows that Where refused
	report   Report
	bad      collector // in strict mode; with Lenient the first ones, in case that nothing is left
	badRow   bool
}

// next reads a row. A problem of the row is a rowError, the end io.EOF,
// everything else ends the reading.
func (p *parser) next() ([]string, error) {
	p.in.left = maxRow
	row, err := p.table.next()
	if p.in.tripped {
		return nil, p.fatal(p.line+1, 1, "", "no row ends within %d MiB", maxRow>>20)
	}
	if err == nil {
		p.line, _ = p.table.place(0)
	}
	return row, err
}

// fatal is a problem that ends the reading; it is shown whatever came before.
func (p *parser) fatal(line, col int, hint, format string, args ...any) error {
	p.bad.total++
	p.bad.shown = append(p.bad.shown, tomlfile.Problem{Pos: at(p.name, line, col), Msg: fmt.Sprintf(format, args...), Hint: hint})
	return p.bad.err("")
}

func (p *parser) header() error {
	row, err := p.next()
	var bad *rowError
	switch {
	case err == io.EOF:
		return p.fatal(1, 1, "", "empty file: a header is needed")
	case errors.As(err, &bad):
		return p.fatal(bad.line, bad.col, "", "the header is %s: %v", bad.why, bad.err)
	case err != nil:
		return p.wrap(err)
	}
	row = slices.Clone(row)
	header := make([]string, len(row))
	for i, name := range row {
		header[i] = normal(name)
		if j := slices.Index(header[:i], header[i]); j >= 0 && header[i] != "" {
			line, col := p.table.place(i)
			return p.fatal(line, col, "", "column %s is there twice", quote(name))
		}
	}
	if p.o.Format != nil {
		p.format = *p.o.Format
		if err := p.format.check(); err != nil {
			return fmt.Errorf("trace format %s: %w", p.format.Name, err)
		}
		if missing := p.format.missing(header); len(missing) > 0 {
			return p.fatal(p.line, 1, "", "missing column %s: there are %s", quoteAll(missing), quoteAll(header))
		}
	} else if p.format, err = detect(header); err != nil {
		return p.fatal(p.line, 1, tomlfile.HintOf(err), "%v", err)
	}
	p.unit = 1
	if p.format.Unit > 0 {
		p.unit = p.format.Unit.Seconds()
	}
	p.width, p.report.Format = len(header), p.format.Name
	used := p.sources(header)
	for i, name := range row {
		if !used[i] {
			p.report.Ignored = append(p.report.Ignored, strings.TrimSpace(name))
		}
	}
	return p.bad.err("")
}

// sources finds where the values of a row are from, columns or expressions of columns, and which columns are used.
func (p *parser) sources(header []string) (used []bool) {
	p.column, p.formulas = map[string]int{}, map[string]*formula.Formula{}
	used = make([]bool, len(header))
	keys := p.format.keys()
	for _, key := range columnKeys {
		text := *keys[key]
		if i := columnOf(text, header); i >= 0 {
			p.column[key], used[i] = i, true
		} else if kinds[key] != nil && isExpression(text) {
			p.column[key] = 0
			if f := p.expression(key, text, header, used); f != nil && len(f.Columns) > 0 {
				p.column[key] = f.Columns[0]
			}
		}
	}
	if p.o.Where != "" {
		p.where = p.expression("where", p.o.Where, header, used)
	}
	return used
}

// kinds are what an expression may be of a key; those of texts, such as id, are columns only.
var kinds = map[string][]formula.Kind{
	"submit": {formula.Number, formula.Time}, "duration": {formula.Number, formula.Time},
	"start": {formula.Number, formula.Time}, "end": {formula.Number, formula.Time},
	"gpus": {formula.Number}, "value": {formula.Number}, "where": {formula.Truth},
}

// expression understands one; what is wrong with it is a problem of the header, and nil is returned.
func (p *parser) expression(key, text string, header []string, used []bool) *formula.Formula {
	pos := at(p.name, p.line, 1)
	f, err := formula.Parse(text, header)
	switch {
	case err != nil:
		p.bad.add(tomlfile.Problem{Pos: pos, Msg: fmt.Sprintf("%s %s: %v", key, quote(text), err), Hint: tomlfile.HintOf(err)})
		return nil
	case !slices.Contains(kinds[key], f.Kind):
		p.bad.add(tomlfile.Problem{Pos: pos, Msg: fmt.Sprintf("%s %s is %s, where %s is wanted", key, quote(text), f.Kind, kinds[key][0])})
		return nil
	}
	for _, i := range f.Columns {
		used[i] = true
	}
	if key != "where" {
		p.formulas[key] = f
	}
	return f
}

func (p *parser) wrap(err error) error { return fmt.Errorf("read trace %s: %w", p.name, err) }

func (p *parser) rows() error {
	for {
		row, err := p.next()
		var bad *rowError
		switch {
		case err == io.EOF:
			return nil
		case errors.As(err, &bad):
			p.badRow = false
			p.line = bad.line
			p.problem(bad.why, bad.line, bad.col, "%s: %v", bad.why, bad.err)
		case err != nil:
			var invalid *InvalidError
			if errors.As(err, &invalid) {
				return err
			}
			return p.wrap(err)
		default:
			p.badRow = false
			if p.wanted(row) {
				if j := p.job(row); !p.badRow {
					p.jobs.add(j)
				}
			}
		}
		p.report.Rows++
		switch {
		case p.jobs.n+p.filtered == 0 && p.report.Rows >= hopeless:
			return p.fatal(p.line, 1, "", "stopped: not one of %d rows is a job", hopeless)
		case p.jobs.n > limit.jobs:
			return p.tooMuch("more than %d jobs", limit.jobs)
		case p.report.Rows > limit.rows:
			return p.tooMuch("more than %d rows", limit.rows)
		case p.ids+p.jobs.bytes > limit.names:
			return p.tooMuch("ids, models, sources and users of more than %d bytes", limit.names)
		}
	}
}

// tooMuch is a fatal problem of a file that is too long, at the row that is one too many.
func (p *parser) tooMuch(format string, args ...any) error {
	_ = p.fatal(p.line, 1, "", format, args...)
	return p.bad.err(fmt.Sprintf("head -n %d FILE has the header and the rows before", p.line-1))
}

// problem records what is wrong with the row that is being read.
func (p *parser) problem(why Reason, line, col int, format string, args ...any) {
	if !p.badRow {
		p.badRow = true
		p.report.Skipped[why]++
	}
	problem := tomlfile.Problem{Pos: at(p.name, line, col), Msg: fmt.Sprintf(format, args...)}
	p.bad.add(problem)
	if p.o.Lenient && p.o.Skipped != nil {
		p.o.Skipped(problem)
	}
}

// wanted says whether a row is to be a job. One of another width than the header's has a problem; one that Where refuses
// is counted.
func (p *parser) wanted(row []string) bool {
	if len(row) != p.width {
		// What follows from wrong columns would say nothing.
		p.problem(WrongWidth, p.line, 1, "%d field%s, the header has %d", len(row), plural(len(row)), p.width)
		return false
	}
	if p.where == nil {
		return true
	}
	refused, err := p.where.Refused(row)
	var bad *formula.FieldError
	switch {
	case errors.As(err, &bad):
		line, col := p.table.place(max(0, bad.Column))
		p.problem(NotNumber, line, col, "where: %v", bad)
		return false
	case refused != "":
		p.filtered++
		p.report.Skipped[Reason("not "+refused)]++
		return false
	}
	return true
}

// job is what a row says; badRow tells whether it may be used.
func (p *parser) job(row []string) Job {
	j := Job{ID: p.text(row, "id"), Model: p.model(p.text(row, "model")), Source: p.text(row, "source"), User: p.text(row, "user"), Line: p.line}
	switch first, twice := p.seen[j.ID]; {
	case p.format.ID == "": // the row's number: no other row has it
		j.ID = strconv.Itoa(p.report.Rows + 1)
		p.ids += len(j.ID)
	case twice:
		p.at(row, "id", Duplicate, "id %s is that of line %d", quote(j.ID), first)
	}
	p.dated = p.dates
	j.Submit = p.submit(row)
	j.Duration = p.duration(row)
	j.GPUs = p.gpus(row)
	j.Value = p.value(row)
	if p.badRow {
		return j
	}
	p.dates = p.dated
	if p.format.ID != "" {
		p.seen[j.ID] = p.line
	}
	return j
}

// model is what a model of the file is called from now on. That of "*" is for those that Models has on neither side.
func (p *parser) model(name string) string {
	if to, ok := p.o.Models[name]; ok {
		return to
	}
	rest, ok := p.o.Models["*"]
	if !ok {
		return name
	}
	for _, to := range p.o.Models {
		if to == name {
			return name
		}
	}
	return rest
}

// at records a problem with one field of the row.
func (p *parser) at(row []string, key string, why Reason, format string, args ...any) {
	line, col := p.table.place(p.column[key])
	p.problem(why, line, col, format, args...)
}

// field is the text of a field, or "" where there is none; a required one is a problem
// then.
func (p *parser) field(row []string, key string, required bool) string {
	i, ok := p.column[key]
	if !ok {
		return ""
	}
	s := strings.TrimSpace(row[i])
	if s == "" && required {
		p.at(row, key, MissingField, "no %s", key)
	}
	return s
}

func (p *parser) text(row []string, key string) string {
	s := p.field(row, key, key == "id")
	switch {
	case s == "":
		return ""
	case len(s) > maxText:
		p.at(row, key, NotText, "%s %s has %d bytes, %d are allowed", key, quote(s), len(s), maxText)
		return ""
	case !printable(s):
		p.at(row, key, NotText, "%s %s is not printable text", key, quote(s))
		return ""
	case key == "id":
		p.ids += len(s)
		return strings.Clone(s) // the row's memory is larger
	}
	return s
}

// printable says whether a text is UTF-8 that a terminal can be given.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// reading is what a row says for a key that is a number or a time: a field as it is written, or what an expression of
// fields gives.
type reading struct {
	text  string       // for messages, too; empty: nothing
	value float64      // of an expression
	kind  formula.Kind // of an expression; empty: it is a field
}

// read is what the row says for a key. That it says nothing is a problem where it is required.
func (p *parser) read(row []string, key string, required bool) reading {
	f := p.formulas[key]
	if f == nil {
		return reading{text: p.field(row, key, required)}
	}
	v, err := f.Number(row)
	var bad *formula.FieldError
	switch {
	case !errors.As(err, &bad):
		return reading{seconds(v), v, f.Kind}
	case bad.Missing && !required:
		return reading{}
	}
	why := NotNumber
	if bad.Missing {
		why = MissingField
	}
	line, col := p.table.place(max(0, bad.Column))
	p.problem(why, line, col, "%s: %v", key, bad)
	return reading{}
}

// layouts are how ISO 8601 and those who print dates for people write them, without a zone in UTC. A fraction of a second
// may follow.
var layouts = dateLayouts()

func dateLayouts() (out []string) {
	for _, moment := range []string{
		"2006-01-02 15:04:05", "2006-01-02T15:04:05", "20060102T150405", "2006-01-02 15:04", "2006-01-02T15:04",
	} {
		for _, zone := range []string{"", "Z07:00", "Z0700", "Z07"} {
			out = append(out, moment+zone)
		}
	}
	return append(out, time.DateOnly)
}

// date reads a date, first as the last one was written.
func (p *parser) date(s string) (time.Time, bool) {
	if p.layout != "" {
		if t, err := time.Parse(p.layout, s); err == nil {
			return t, true
		}
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil {
			p.layout = layout
			return t, true
		}
	}
	return time.Time{}, false
}

// moment is a time as seconds, since 1970 where it is a date.
func (p *parser) moment(r reading) (value float64, isDate, ok bool) {
	if v, ok := p.span(r); ok {
		return v, false, true
	}
	if r.kind != "" {
		return 0, false, false
	}
	t, ok := p.date(r.text)
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9, true, ok
}

// span is a number as seconds: a bare one counts the format's unit.
func (p *parser) span(r reading) (float64, bool) {
	v, ok := r.value, true
	if r.kind == "" {
		v, ok = formula.Decimal(r.text)
	}
	if r.kind != formula.Time {
		v *= p.unit
	}
	return v, ok && math.Abs(v) <= maxSeconds
}

func (p *parser) submit(row []string) float64 {
	r := p.read(row, "submit", true)
	s := r.text
	if s == "" {
		return 0
	}
	v, isDate, ok := p.moment(r)
	switch {
	case !ok:
		p.at(row, "submit", NotTime, "submit %s is neither a number nor a date", quote(s))
	case p.dates != nil && *p.dates != isDate:
		p.at(row, "submit", NotTime, "submit %s: dates and numbers are mixed", quote(s))
	case v < 0 && isDate:
		p.at(row, "submit", BadSubmit, "submit %s is before 1970", quote(s))
	case v < 0:
		p.at(row, "submit", BadSubmit, "submit %s is negative", quote(s))
	default:
		p.dated = &isDate
		return v
	}
	return 0
}

func (p *parser) duration(row []string) float64 {
	var d float64
	_, has := p.column["duration"]
	must := !has
	start, end := p.read(row, "start", must), p.read(row, "end", must)
	key := "end"
	if start.text != "" && end.text != "" {
		from, fromDate, ok := p.moment(start)
		if !ok {
			p.at(row, "start", NotTime, "start %s is neither a number nor a date", quote(start.text))
			return 0
		}
		to, toDate, ok := p.moment(end)
		if !ok || fromDate != toDate {
			p.at(row, "end", NotTime, "end %s is not a time like start %s", quote(end.text), quote(start.text))
			return 0
		}
		d = to - from
	} else {
		if must {
			return 0 // has been said
		}
		key = "duration"
		r := p.read(row, key, true)
		if r.text == "" {
			return 0
		}
		var ok bool
		if d, ok = p.span(r); !ok {
			p.at(row, key, NotNumber, "duration %s is not a number", quote(r.text))
			return 0
		}
	}
	if d <= 0 {
		p.at(row, key, BadDuration, "duration of %s s: it must be above 0", seconds(d))
	}
	return d
}

// gpus is how many GPUs a job has: of what an expression gives, a part of one counts as one.
func (p *parser) gpus(row []string) int {
	r := p.read(row, "gpus", true)
	s := r.text
	if s == "" {
		return 0
	}
	v, ok := math.Ceil(r.value-1e-9), true
	if r.kind == "" {
		v, ok = formula.Decimal(s)
	}
	switch {
	case !ok || v != math.Trunc(v) || v > maxGPUs:
		p.at(row, "gpus", NotNumber, "%s GPUs is not a whole number up to %d", quote(s), maxGPUs)
	case v < 1:
		p.at(row, "gpus", BadGPUs, "%s GPUs: at least 1", quote(s))
	default:
		return int(v)
	}
	return 0
}

// value is 0 where the row has none.
func (p *parser) value(row []string) float64 {
	r := p.read(row, "value", false)
	if r.text == "" {
		return 0
	}
	v, ok := r.value, true
	if r.kind == "" {
		v, ok = formula.Decimal(r.text)
	}
	switch {
	case !ok:
		p.at(row, "value", NotNumber, "value %s is not a number", quote(r.text))
	case v < 1/MostValue || v > MostValue:
		p.at(row, "value", BadValue, "a value of %s: %g to %g", quote(r.text), 1/MostValue, MostValue)
	default:
		return v
	}
	return 0
}

func (p *parser) finish() (*Trace, *Report, error) {
	switch {
	case p.bad.total > 0 && (!p.o.Lenient || p.jobs.n == 0):
		return nil, nil, &InvalidError{Problems: p.bad.shown, Total: p.bad.total, Jobs: p.jobs.n}
	case p.jobs.n == 0 && p.filtered > 0:
		return nil, nil, p.fatal(p.line, 1, "", "no job is left of %d row%s: %s", p.report.Rows, plural(p.report.Rows), p.report.Summary())
	case p.jobs.n == 0:
		return nil, nil, p.fatal(p.line, 1, "", "a header and no job")
	}
	p.seen = nil // its memory is wanted
	t := New(p.name, p.jobs.all())
	p.jobs = jobs{}
	if p.dates != nil && *p.dates {
		first := t.Jobs[0].Submit
		whole := math.Floor(first)
		t.Origin = time.Unix(int64(whole), int64((first-whole)*1e9)).UTC()
		for i := range t.Jobs {
			t.Jobs[i].Submit -= first
		}
	}
	report := p.report // without the rest of the parser
	return t, &report, nil
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
