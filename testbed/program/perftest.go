package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// perftestColumn is a name in a header of perftest, with its unit: "BW average[MiB/sec]", "MsgRate Port1[Mpps]".
var perftestColumn = regexp.MustCompile(`((?:BW |tps |99% |99\.9% )?#?[A-Za-z_]\w*(?: Port\d)?)(?:\[([^\]]*)\])?`)

// perftestUnits are to bit/s, 1/s and s. Debian's perftest 4.5 writes MB/sec for what is
// 2^20 bytes a second all the same (its source divides by 0x100000).
var perftestUnits = map[string]float64{
	"MiB/sec": 8 << 20, "MB/sec": 8 << 20, "Gb/sec": 1e9, "Mpps": 1e6, "usec": 1e-6, "nsec": 1e-9, "": 1,
}

// ReadPerftest reads the table of a perftest program: ib_write_bw and its like, or
// ib_write_lat. Columns and units are those of its header; rows of several sizes (-a) are
// several figures. Source: github.com/linux-rdma/perftest, src/perftest_parameters.h.
func ReadPerftest(text []byte) (*Reading, error) {
	r := &Reading{}
	var columns, units []string
	for line := range bytes.Lines(text) {
		l := strings.TrimSpace(string(line))
		fields := strings.Fields(l)
		switch {
		case strings.HasPrefix(l, "#bytes"):
			columns, units = nil, nil
			for _, m := range perftestColumn.FindAllStringSubmatch(l, -1) {
				columns, units = append(columns, m[1]), append(units, m[2])
			}
		case columns == nil || len(fields) == 0 || fields[0][0] < '0' || fields[0][0] > '9':
		case len(fields) < len(columns):
			return nil, fmt.Errorf("perftest: %w: %d columns where the header has %d: %q", ErrOutput, len(fields), len(columns), l)
		default:
			if err := r.perftestRow(columns, units, fields); err != nil {
				return nil, fmt.Errorf("perftest: %w", err)
			}
		}
	}
	switch {
	case columns == nil && complaint(text) != "":
		return nil, fmt.Errorf("perftest: %w%s", ErrFailed, complaint(text))
	case columns == nil:
		return nil, fmt.Errorf("perftest: %w: no header that begins with #bytes", ErrOutput)
	case len(r.Figures) == 0:
		return nil, fmt.Errorf("perftest: %w: a header and no rows%s", ErrOutput, complaint(text))
	}
	return r, nil
}

func (r *Reading) perftestRow(columns, units, fields []string) error {
	size, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return fmt.Errorf("%w: size %q", ErrOutput, fields[0])
	}
	of, n := SizeName(size), 2
	r.lines = append(r.lines, tableLine{size: size})
	for i, c := range columns[1:] {
		metric := ""
		switch c {
		case "#iterations":
			if v, err := strconv.Atoi(fields[i+1]); err == nil && v <= 0 {
				return fmt.Errorf("%w: %s %d", ErrOutput, c, v)
			} else if err == nil {
				n = max(2, v)
			}
			continue
		case "BW average":
			metric = "goodput"
		case "MsgRate":
			metric = "message_rate"
		case "t_avg":
			metric = "latency"
		case "99% percentile":
			metric = "latency_p99"
		default:
			continue
		}
		unit := units[i+1]
		factor, ok := perftestUnits[unit]
		if !ok {
			return fmt.Errorf("%w: %s in %q", ErrOutput, c, unit)
		}
		if unit == "MB/sec" {
			r.note("this perftest calls MB/sec what is MiB/s (2^20): read as that")
		}
		v, err := strconv.ParseFloat(fields[i+1], 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%w: %s %q", ErrOutput, c, fields[i+1])
		}
		if ok, err := r.perftestValue(metric, of, v); err != nil {
			return err
		} else if !ok {
			continue
		}
		r.add(metric, of, v*factor, n)
	}
	return nil
}

// perftestValue is an error if a value cannot be one of its metric, and not ok if it says too little.
func (r *Reading) perftestValue(metric, of string, v float64) (ok bool, err error) {
	switch {
	case v < 0:
		return false, fmt.Errorf("%w: %s of %s is %v", ErrOutput, metric, of, v)
	case v == 0 && (metric == "goodput" || metric == "message_rate"):
		r.note("%s of %s is less than its column can say: left out", metric, of)
		return false, nil
	}
	return true, nil
}

// perftestFlags are the letters of perftest's options that have no value.
//
// Source: github.com/linux-rdma/perftest, src/perftest_parameters.c.
const perftestFlags = "aFegzRvhbNVCHUOZP"

// perftestOption reads the option, or the letters of several, that args begin with, and says of how many of args it is. Name is
// "a" (all sizes) or "s" (a size, which is value); other options are none.
func perftestOption(args []string) (name, value string, n int) {
	following := func(value string) (string, int) {
		if value == "" && len(args) > 1 {
			return args[1], 2
		}
		return value, 1
	}
	if long, ok := strings.CutPrefix(args[0], "--"); ok {
		long, value, given := strings.Cut(long, "=")
		switch {
		case len(long) > 1 && strings.HasPrefix("all", long):
			return "a", "", 1
		case len(long) > 1 && strings.HasPrefix("size", long) && given:
			return "s", value, 1
		case len(long) > 1 && strings.HasPrefix("size", long):
			value, n = following("")
			return "s", value, n
		}
		return "", "", 1
	}
	letters, ok := strings.CutPrefix(args[0], "-")
	if !ok {
		return "", "", 1
	}
	flags := letters[:len(letters)-len(strings.TrimLeft(letters, perftestFlags))]
	switch letters = letters[len(flags):]; {
	case strings.Contains(flags, "a"):
		return "a", "", 1
	case letters == "":
		return "", "", 1
	case letters[0] == 's':
		name = "s"
	}
	value, n = following(letters[1:])
	return name, value, n
}

// perftestSize is the size that a table of perftest must have, by the last that it was asked for; 0: nobody knows, or all (-a)
// were.
func (w *Workload) perftestSize() (size int64) {
	args := w.Arguments
	if w.Size > 0 {
		args = slices.Concat([]string{"-s", strconv.FormatInt(w.Size, 10)}, args)
	}
	if own, ok := w.behind(func(name string) bool {
		return strings.HasPrefix(name, "ib_") || strings.HasPrefix(name, "raw_ethernet_")
	}); ok {
		args = slices.Concat(own, args)
	}
	for len(args) > 0 {
		name, value, n := perftestOption(args)
		switch args = args[n:]; name {
		case "a":
			return 0
		case "s":
			size, _ = strconv.ParseInt(value, 0, 64) // 0 where it is no number
		}
	}
	return size
}

// perftestWhole is an error if a table of perftest lacks the size that was asked for.
func (w *Workload) perftestWhole(r *Reading) error {
	size := w.perftestSize()
	if size <= 0 || slices.ContainsFunc(r.lines, func(l tableLine) bool { return l.size == size }) {
		return nil
	}
	return fmt.Errorf("perftest: %w: the table lacks %s, which it was asked for", ErrOutput, SizeName(size))
}

// ReadPerftestJSON reads the file that --out_json writes of a bandwidth test with --report_gbits: it does not say its unit.
// Of raw Ethernet with QoS, the key sl is not quoted, which is not JSON.
func ReadPerftestJSON(text []byte) (*Reading, error) {
	var out struct {
		Results *struct {
			Size       int64    `json:"MsgSize"`
			Iterations *int     `json:"n_iterations"`
			Average    *float64 `json:"BW_average"`
			Rate       *float64 `json:"MsgRate"`
		} `json:"results"`
	}
	if err := json.Unmarshal(text, &out); err != nil {
		hint := ""
		if regexp.MustCompile(`[{,]\s*sl\s*:`).Match(text) {
			hint = ": the key sl of QoS tests is not quoted; read the table instead"
		}
		return nil, fmt.Errorf("perftest --out_json: %w: %v%s", ErrOutput, err, hint)
	}
	if out.Results == nil || out.Results.Average == nil {
		return nil, fmt.Errorf("perftest --out_json: %w: no results.BW_average", ErrOutput)
	}
	r := &Reading{}
	of, n := SizeName(out.Results.Size), 2
	r.lines = append(r.lines, tableLine{size: out.Results.Size})
	if i := out.Results.Iterations; i != nil && *i <= 0 {
		return nil, fmt.Errorf("perftest --out_json: %w: %d iterations", ErrOutput, *i)
	} else if i != nil {
		n = max(2, *i)
	}
	for _, f := range []struct {
		metric string
		value  *float64
		unit   float64
	}{{"goodput", out.Results.Average, perftestUnits["Gb/sec"]}, {"message_rate", out.Results.Rate, 1e6}} {
		if f.value == nil {
			continue
		}
		if ok, err := r.perftestValue(f.metric, of, *f.value); err != nil {
			return nil, fmt.Errorf("perftest --out_json: %w", err)
		} else if ok {
			r.add(f.metric, of, *f.value*f.unit, n)
		}
	}
	return r, nil
}
