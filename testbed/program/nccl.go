package program

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results/human"
)

// ncclRow is a size, in place or not.
type ncclRow struct {
	size         int64
	inPlace      bool
	time         float64 // s
	algbw, busbw float64 // bit/s
	wrong        float64 // NaN: not counted
	unchecked    bool
	kind         string // what is reduced how: type, operation, root
}

// ncclTime and ncclRate are the units that a row's columns may be in.
var (
	ncclTime = map[string]float64{"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
	ncclRate = map[string]float64{"GB/s": 8e9, "MB/s": 8e6}
)

var (
	// mpirun --tag-output puts the rank before each line.
	tagged    = regexp.MustCompile(`^\[\d+,\d+\]<std(?:out|err)>:\s?`)
	coloured  = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|[()].)") // ECMA-48, and the choice of characters
	ncclIters = regexp.MustCompile(`(\w+ )?iters: (\d+)`)
	ncclRank  = regexp.MustCompile(`^#\s+Rank\s+(\d+)\s.*\bon\s+(\S+)\s+device`)
)

// NCCLRanks are the hosts of ranks, as the device lines of nccl-tests name them.
func NCCLRanks(text []byte) map[int]string {
	ranks := map[int]string{}
	for line := range bytes.Lines(text) {
		if m := ncclRank.FindSubmatch(bare(line)); m != nil {
			n, err := strconv.Atoi(string(m[1]))
			if err == nil {
				ranks[n] = string(m[2])
			}
		}
	}
	return ranks
}

// ReadNCCLText reads the table of nccl-tests, old or new: columns are those that the header
// names. Lines of NCCL's own log between are passed over, and so is what stands before a row in
// its line. "N/A" in place of the number of wrong values says that they were not checked. A table without its end is ErrOutput.
//
// A number of wrong values that is not 0 makes the reading Wrong; so does an end that says
// "FAILED". Where the column is "error", as in tests before 2022, it is the largest error,
// and only the end says whether that is too large.
//
// Source: github.com/NVIDIA/nccl-tests, src/common.cu and doc/PERFORMANCE.md.
func ReadNCCLText(text []byte) (*Reading, error) {
	var (
		rows    []ncclRow
		columns []string
		units   []string
		end     bool
		iters   = 2
		bad     string
		r       = &Reading{}
	)
	n := 0
	for long := range bytes.Lines(text) {
		if n++; len(long) > mostLine {
			r.note("line %d has %d bytes: the first %d were read", n, len(long), mostLine)
			long = long[:mostLine]
		}
		line := string(bare(long))
		if i := strings.Index(line, "# Out of bounds values"); i > 0 { // behind a log's line without an end
			line = line[i:]
		}
		fields := strings.Fields(strings.TrimPrefix(line, "#"))
		switch {
		case line == "" || len(fields) == 0:
		case strings.HasPrefix(line, "#"):
			switch {
			case fields[0] == "size" && len(fields) > 3 && fields[1] == "count":
				columns, units = fields, nil
			case strings.HasPrefix(fields[0], "(B)") && columns != nil && units == nil:
				units = ncclUnits(columns, fields)
			case strings.Contains(line, "Out of bounds values"):
				end = true
				if strings.Contains(line, "FAILED") {
					bad = strings.TrimSpace(strings.TrimPrefix(line, "#"))
				}
			case strings.Contains(line, "Avg bus bandwidth"):
				end = true
			default:
				for _, m := range ncclIters.FindAllStringSubmatch(line, -1) {
					if v, err := strconv.Atoi(m[2]); err == nil && v > 0 && m[1] != "warmup " && m[1] != "agg " {
						iters = v
					}
				}
			}
		case columns != nil:
			row, ok, err := ncclRowOf(columns, units, fields)
			if !ok { // a log's line without an end, and a row
				if behind := ncclBehind(columns, units, fields); behind != nil {
					r.note("line %d: %s stands behind other text", n, SizeName(behind[0].size))
					row, ok, err = behind, true, nil
				}
			}
			if err != nil {
				return nil, fmt.Errorf("nccl-tests: line %d: %w", n, err)
			}
			if ok {
				rows = append(rows, row...)
			}
		}
	}
	switch {
	case columns == nil:
		return nil, fmt.Errorf("nccl-tests: %w: no header that begins with \"size count\"%s", ErrOutput, complaint(text))
	case len(rows) == 0:
		return nil, fmt.Errorf("nccl-tests: %w: a header and no rows%s", ErrOutput, complaint(text))
	case !end:
		return nil, fmt.Errorf("nccl-tests: %w: the table has no end (\"# Out of bounds values\"): the test was cut off%s", ErrOutput, complaint(text))
	}
	r.ncclRows(rows, iters)
	r.Wrong = cmp.Or(r.Wrong, bad)
	return r, nil
}

// ncclUnits are the units of columns, out of the line of units, which leaves out columns without one: "" of those.
func ncclUnits(columns, line []string) []string {
	units := make([]string, len(columns))
	for i, c := range columns {
		if len(line) > 0 && (slices.Contains([]string{"size", "count", "time", "cputime", "algbw", "busbw"}, c) || strings.HasPrefix(c, "i_")) {
			units[i], line = strings.Trim(line[0], "()"), line[1:]
		}
	}
	return units
}

// ncclBehind is a row at the end of a line that begins with something else, which may be a number or a date; nil: there is none.
func ncclBehind(columns, units, fields []string) []ncclRow {
	for _, n := range []int{len(columns), len(columns) + 1} { // with a date and a time of day in one column
		if n > len(columns) && !slices.Contains(columns, "timestamp") || n >= len(fields) {
			continue
		}
		last := fields[len(fields)-n:]
		if _, err := strconv.ParseInt(last[1], 10, 64); err != nil {
			continue
		}
		if row, ok, err := ncclRowOf(columns, units, last); ok && err == nil {
			return row
		}
	}
	return nil
}

// ncclRowOf is a row, once out of place and once in place. units are those of columns; nil: the usual ones. Not ok: it only
// looks like one.
func ncclRowOf(columns, units, fields []string) (rows []ncclRow, ok bool, err error) {
	extra := len(fields) - len(columns)
	stamp := slices.Index(columns, "timestamp")
	if stamp >= 0 && extra > 0 { // a date and a time of day in one column
		fields = slices.Concat(fields[:stamp], []string{strings.Join(fields[stamp:stamp+extra+1], " ")}, fields[stamp+extra+1:])
		extra = 0
	}
	if extra < 0 {
		if _, err := strconv.ParseInt(fields[0], 10, 64); err != nil {
			return nil, false, nil // some other line that begins with a digit
		}
		return nil, false, fmt.Errorf("%w: %d columns where the header has %d: %q", ErrOutput, len(fields), len(columns), strings.Join(fields, " "))
	}
	size, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || size < 0 {
		return nil, false, nil
	}
	for i, c := range columns {
		text := fields[i]
		unit, known := "", ncclRate
		switch c {
		case "time":
			rows = append(rows, ncclRow{size: size, inPlace: len(rows) == 1, wrong: math.NaN(), unchecked: true, kind: strings.Join(fields[min(2, i):i], " ")})
			unit, known = "us", ncclTime
		case "algbw", "busbw":
			unit = "GB/s"
		case "#wrong", "wrong", "error":
		default:
			continue
		}
		if len(rows) == 0 {
			return nil, false, fmt.Errorf("%w: column %s before any time", ErrOutput, c)
		}
		row := &rows[len(rows)-1]
		if unit == "" {
			if row.unchecked = text == "N/A"; row.unchecked || c == "error" { // the largest error; what is too large, the end says
				continue
			}
			if row.wrong, err = strconv.ParseFloat(text, 64); err != nil {
				return nil, false, fmt.Errorf("%w: %s %q", ErrOutput, c, text)
			}
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(v, 0) {
			return nil, false, fmt.Errorf("%w: %s %q", ErrOutput, c, text)
		}
		if units != nil && units[i] != "" {
			unit = units[i]
		}
		factor, ok := known[unit]
		if !ok {
			return nil, false, fmt.Errorf("%w: %s in %q", ErrOutput, c, unit)
		}
		switch v *= factor; c {
		case "time":
			row.time = v
		case "algbw":
			row.algbw = v
		case "busbw":
			row.busbw = v
		}
	}
	if len(rows) == 0 {
		return nil, false, fmt.Errorf("%w: no time among the columns %q", ErrOutput, columns)
	}
	return rows, true, nil
}

// ncclRows adds rows as figures of their sizes.
func (r *Reading) ncclRows(rows []ncclRow, iters int) {
	for _, row := range rows {
		of := SizeName(row.size)
		if row.inPlace {
			of += "/in-place"
		} else {
			r.lines = append(r.lines, tableLine{row.size, row.kind})
		}
		if finite(row.wrong) && row.wrong != 0 && r.Wrong == "" {
			r.Wrong = fmt.Sprintf("%s: %v wrong values", of, row.wrong)
		}
		r.Rows++
		if !row.unchecked {
			r.Checked++
		}
		if !finite(row.time, row.algbw, row.busbw) {
			r.note("%s: not a number, left out", of)
			continue
		}
		r.Longest = max(r.Longest, row.size)
		r.add("latency", of, row.time, max(2, iters))
		r.add("algbw", of, row.algbw, max(2, iters))
		r.add("busbw", of, row.busbw, max(2, iters))
		if finite(row.wrong) {
			r.add("sum_errors", of, row.wrong, 2)
		}
	}
	switch {
	case r.Checked == 0:
		r.note("results were not checked, as with -c 0")
	case r.Checked < r.Rows:
		r.note("results were checked in %d of %s", r.Checked, human.Plural(r.Rows, "row"))
	}
}

// complaint is what a log says of a failure, for the end of an error.
func complaint(text []byte) string {
	for line := range bytes.Lines(text) {
		l := bytes.TrimSpace(line)
		if bytes.Contains(l, []byte("Test NCCL failure")) || bytes.Contains(l, []byte("Test CUDA failure")) || bytes.Contains(l, []byte("NCCL WARN")) ||
			bytes.HasPrefix(l, []byte("Couldn't")) || bytes.HasPrefix(l, []byte("Unable to")) || bytes.HasPrefix(l, []byte("Failed to")) {
			return fmt.Sprintf(": %.200s", l)
		}
	}
	return ""
}

// ncclNumber is a number of nccl-tests' JSON: NaN is written as "nan".
type ncclNumber float64

func (n *ncclNumber) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	if err != nil {
		if s := strings.Trim(string(text), `"`); s != "N/A" && s != "null" {
			return fmt.Errorf("%.40q is not a number", text)
		}
		v = math.NaN()
	}
	*n = ncclNumber(v)
	return nil
}

// ncclBool is a boolean of nccl-tests' JSON, which are strings.
type ncclBool bool

func (b *ncclBool) UnmarshalJSON(text []byte) error {
	switch strings.Trim(string(text), `"`) {
	case "true", "1":
		*b = true
	case "false", "0":
		*b = false
	default:
		return fmt.Errorf("%.40q is not true or false", text)
	}
	return nil
}

type ncclTimes struct {
	Time  *ncclNumber `json:"time"`
	AlgBW *ncclNumber `json:"alg_bw"`
	BusBW *ncclNumber `json:"bus_bw"`
	Wrong *ncclNumber `json:"nwrong"`
}

// ReadNCCLJSON reads the file that nccl-tests -J writes. Its booleans are strings, and a
// number may be "nan". The whole environment is in it: keep it only as Evidence leaves it.
//
// Source: github.com/NVIDIA/nccl-tests, src/util.cu.
func ReadNCCLJSON(text []byte) (*Reading, error) {
	var out struct {
		Results []struct {
			Size    int64           `json:"size"`
			Type    json.RawMessage `json:"type"`
			Op      json.RawMessage `json:"redop"`
			Root    json.RawMessage `json:"root"`
			Out     *ncclTimes      `json:"out_of_place"`
			InPlace *ncclTimes      `json:"in_place"`
		} `json:"results"`
		OutOfBounds *struct {
			Count ncclNumber `json:"count"`
			Okay  ncclBool   `json:"okay"`
		} `json:"out_of_bounds"`
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("nccl-tests -J: %w: %v", ErrOutput, err)
	}
	var rows []ncclRow
	for _, s := range out.Results {
		for i, t := range []*ncclTimes{s.Out, s.InPlace} {
			if t == nil {
				continue
			}
			if t.Time == nil || t.AlgBW == nil || t.BusBW == nil { // -C 1 has cpu_time
				return nil, fmt.Errorf("nccl-tests -J: %w: no time, alg_bw or bus_bw of %s: with -C 1 it tells the processor's time alone", ErrOutput, SizeName(s.Size))
			}
			row := ncclRow{kind: string(s.Type) + " " + string(s.Op) + " " + string(s.Root), size: s.Size, inPlace: i == 1, time: float64(*t.Time) * 1e-6, algbw: float64(*t.AlgBW) * 8e9, busbw: float64(*t.BusBW) * 8e9, wrong: math.NaN()}
			if t.Wrong != nil {
				row.wrong = float64(*t.Wrong)
			}
			row.unchecked = !finite(row.wrong)
			rows = append(rows, row)
		}
	}
	switch {
	case len(rows) == 0:
		return nil, fmt.Errorf("nccl-tests -J: %w: no results", ErrOutput)
	case out.OutOfBounds == nil:
		return nil, fmt.Errorf("nccl-tests -J: %w: no out_of_bounds: the test was cut off", ErrOutput)
	}
	r := &Reading{}
	r.ncclRows(rows, 2)
	if r.Wrong == "" && !bool(out.OutOfBounds.Okay) {
		r.Wrong = fmt.Sprintf("%v values out of bounds", float64(out.OutOfBounds.Count))
	}
	return r, nil
}
