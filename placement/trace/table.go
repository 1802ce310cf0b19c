package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// table is the rows of a file; the first is a header.
type table interface {
	// next is a row, good until the next one is read. What is wrong with one row is a *rowError, the end io.EOF; any
	// other error ends the table.
	next() ([]string, error)
	// place is where a field of the last row is, from line 1 and column 1.
	place(field int) (line, col int)
}

// rowError is why something in a file is no row.
type rowError struct {
	why       Reason
	line, col int
	err       error
}

// Error is what is wrong.
func (e *rowError) Error() string { return e.err.Error() }

// byteOrderMark is how some programs begin a file of UTF-8; what follows may be a quotation mark.
const byteOrderMark = "\ufeff"

// open looks at how a file begins: it is JSON or CSV. An error of r comes with the first row.
func open(r *bufio.Reader) table {
	if mark, _ := r.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = r.Discard(len(byteOrderMark))
	}
	if first, err := r.Peek(1); err == nil && (first[0] == '[' || first[0] == '{') {
		return newPhilly(r, first[0] == '[')
	}
	c := csv.NewReader(r)
	c.FieldsPerRecord = -1
	c.ReuseRecord = true
	return commas{c}
}

// commas are the rows of a CSV file.
type commas struct{ csv *csv.Reader }

func (c commas) place(field int) (line, col int) { return c.csv.FieldPos(field) }

func (c commas) next() ([]string, error) {
	row, err := c.csv.Read()
	var parse *csv.ParseError
	if !errors.As(err, &parse) {
		return row, err
	}
	col := parse.Column
	if parse.StartLine != parse.Line { // a quote that nothing closes
		col = 1
	}
	return nil, &rowError{NotCSV, parse.StartLine, col, parse.Err}
}

// phillyColumns are what philly makes of a job.
var phillyColumns = []string{"jobid", "submitted_time", "start_time", "end_time", "gpus", "attempts", "vc", "user", "status"}

// phillyJobs is the jobs of cluster_job_log of github.com/msr-fiddle/philly-traces as rows: an array of objects, or objects one
// after the other. A job ran from the start of its first attempt to the end of its last, on the GPUs of its last.
type phillyJobs struct {
	dec    *json.Decoder
	lines  *lines
	line   int  // of the last job
	array  bool // they are in an array
	inside bool // which was opened
	header bool // it has been given
	over   bool
}

func newPhilly(r io.Reader, array bool) *phillyJobs {
	l := &lines{r: r}
	return &phillyJobs{dec: json.NewDecoder(l), lines: l, line: 1, array: array}
}

// phillyJob is a job as it is published, as far as it is used.
type phillyJob struct {
	ID        string `json:"jobid"`
	Submitted string `json:"submitted_time"`
	VC        string `json:"vc"`
	User      string `json:"user"`
	Status    string `json:"status"`
	Attempts  []struct {
		Start  string `json:"start_time"`
		End    string `json:"end_time"`
		Detail []struct {
			GPUs []string `json:"gpus"`
		} `json:"detail"`
	} `json:"attempts"`
}

func (p *phillyJobs) place(int) (line, col int) { return p.line, 1 }

func (p *phillyJobs) next() ([]string, error) {
	if !p.header {
		p.header = true
		return phillyColumns, nil
	}
	raw, err := p.object()
	if err != nil {
		return nil, err
	}
	var j phillyJob
	if err := json.Unmarshal(raw, &j); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			err = fmt.Errorf("%s is of type %s", cmp.Or(kind.Field, "it"), kind.Value)
		}
		return nil, &rowError{NotPhilly, p.line, 1, err}
	}
	start, end, gpus := "", "", 0
	if n := len(j.Attempts); n > 0 {
		start, end = j.Attempts[0].Start, j.Attempts[n-1].End
		for _, d := range j.Attempts[n-1].Detail {
			gpus += len(d.GPUs)
		}
	}
	return []string{
		j.ID, j.Submitted, start, end, strconv.Itoa(gpus), strconv.Itoa(len(j.Attempts)), j.VC, j.User, j.Status,
	}, nil
}

// object is the next value of the file; its errors end the reading.
func (p *phillyJobs) object() (json.RawMessage, error) {
	if p.over {
		return nil, io.EOF
	}
	if p.array && !p.inside {
		p.inside = true
		if _, err := p.dec.Token(); err != nil {
			return nil, p.syntax(err)
		}
	}
	if p.inside && !p.dec.More() {
		p.over = true
		if _, err := p.dec.Token(); err != nil {
			return nil, p.syntax(err)
		}
		if _, err := p.dec.Token(); err != io.EOF {
			return nil, p.syntax(cmp.Or(err, errAfterArray))
		}
		return nil, io.EOF
	}
	var raw json.RawMessage
	switch err := p.dec.Decode(&raw); {
	case err == io.EOF && !p.inside:
		return nil, io.EOF
	case err != nil:
		return nil, p.syntax(err)
	}
	raw = bytes.TrimSpace(raw)
	p.line = p.lines.at(p.dec.InputOffset() - int64(len(raw)))
	return raw, nil
}

var errAfterArray = errors.New("the array of jobs ends, and the file does not")

// syntax is an error in what comes after the last job that could be read.
func (p *phillyJobs) syntax(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("after the job in line %d: %w", p.line, err)
}

// lines counts the lines of what is read through it.
type lines struct {
	r    io.Reader
	read int64   // bytes
	ends []int64 // offsets of ends of lines that have not been counted
	line int     // those that have
}

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			l.ends = append(l.ends, l.read+int64(i))
		}
	}
	l.read += int64(n)
	return n, err
}

// at is the line, from 1, of an offset that is not before the last one that was asked for.
func (l *lines) at(offset int64) int {
	n := 0
	for n < len(l.ends) && l.ends[n] < offset {
		n++
	}
	l.ends = l.ends[n:]
	l.line += n
	return l.line + 1
}
