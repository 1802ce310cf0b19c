package program

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results/human"
)

// ncclLong are the options of nccl-tests that say which sizes and how many ranks a table has, by their long names.
var ncclLong = map[string]byte{"minbytes": 'b', "maxbytes": 'e', "stepfactor": 'f', "stepbytes": 'i', "nthreads": 't', "ngpus": 'g'}

// ncclOptions are options of nccl-tests by their letters.
type ncclOptions map[byte]string

// unknownOption is the value of one that may be another program's.
const unknownOption = "?"

// read reads arguments as getopt_long does: the last of an option counts, and a long one may be cut short.
func (o ncclOptions) read(args []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if len(arg) < 2 || arg[0] != '-' {
			continue
		}
		name, value, given := arg[1:2], arg[2:], len(arg) > 2
		if name == "-" {
			name, value, given = strings.Cut(arg[2:], "=")
			if arg == "--" {
				return
			}
		}
		if next := i + 1; !given && next < len(args) && (len(args[next]) < 2 || args[next][0] != '-' || args[next][1] >= '0' && args[next][1] <= '9') {
			value = args[next]
			i++
		}
		if arg[1] != '-' {
			o[name[0]] = value
			continue
		}
		for long, letter := range ncclLong {
			if strings.HasPrefix(long, name) {
				o[letter] = value
			}
		}
	}
}

// options are those that nccl-tests is started with. What stands in a command behind another program than a test may be that
// program's own, and nobody knows it.
func (w *Workload) options() ncclOptions {
	o := ncclOptions{}
	args, test := w.behind(func(name string) bool { return strings.HasSuffix(name, "_perf") })
	o.read(args)
	if !test {
		for letter := range o {
			o[letter] = unknownOption
		}
	}
	o.read(slices.Concat(w.ncclFrom(), w.ncclGPUs(), w.Arguments))
	return o
}

// behind is what stands in the command behind the last program whose name is that of a test; ok is false, and it is all of
// the command, where there is none.
func (w *Workload) behind(test func(name string) bool) (args []string, ok bool) {
	command := w.Program()
	for i := len(command) - 1; i >= 0; i-- {
		if test(path.Base(command[i])) {
			return command[i+1:], true
		}
	}
	return command, false
}

// whole is a whole number as strtol reads it; without the option it is what the tests take.
func (o ncclOptions) whole(letter byte, usual int64) (n int64, ok bool) {
	text, given := o[letter]
	if !given {
		return usual, true
	}
	n, err := strconv.ParseInt(text, 0, 64)
	return n, err == nil
}

// ncclBytes is a size as nccl-tests reads it: a number, and perhaps the first letter of what it counts.
var ncclBytes = regexp.MustCompile(`^(\d+\.?\d*(?:[eE][+-]?\d+)?)\s*([A-Za-z]?)`)

func (o ncclOptions) bytes(letter byte) (n int64, ok bool) {
	m := ncclBytes.FindStringSubmatch(o[letter])
	if m == nil {
		return 0, false
	}
	unit, ok := map[string]float64{"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[strings.ToLower(m[2])]
	v, err := strconv.ParseFloat(m[1], 64)
	return int64(v * unit), ok && err == nil && v*unit < 1<<62
}

// ncclRanks is how many ranks a table of nccl-tests is of; 0: nobody knows.
func (w *Workload) ncclRanks() int {
	per := max(1, w.PerHost)
	processes, known := int64(len(w.Hosts)), true
	if w.Launcher != "each" {
		processes *= int64(per)
		for i, a := range w.LaunchArgs { // behind the tool's own -np
			if i > 0 && slices.Contains([]string{"-np", "--np", "-n", "--n", "-c"}, w.LaunchArgs[i-1]) {
				n, err := strconv.ParseInt(a, 10, 64)
				processes, known = n, err == nil
			}
		}
	}
	o := w.options()
	threads, ok := o.whole('t', 1)
	gpus, sure := o.whole('g', 1)
	if known = known && ok && sure; !known {
		return 0
	}
	return int(processes * threads * gpus)
}

// ncclSizes are the sizes of vectors that nccl-tests was asked for, of which the largest may be as large as most; nil: nobody
// knows.
//
// Source: github.com/NVIDIA/nccl-tests, src/common.cu (main, TimeTest).
func (w *Workload) ncclSizes(most int64) (sizes []int64) {
	o := w.options()
	if w.Size == 0 { // what the tool says for want of anything else asks for nothing
		own := ncclOptions{}
		if own.read(w.Arguments); own['b'] == "" && own['e'] == "" {
			return nil
		}
	}
	from, ok := o.bytes('b')
	to, sure := o.bytes('e')
	factor, known := o.whole('f', 1)
	step, clear := o.whole('i', 1<<20)
	to = min(to, most)
	from = min(from, to)
	if !ok || !sure || from <= 0 || from < to && (!known || factor <= 1 && (!clear || step <= 0)) {
		return nil
	}
	for size := from; size <= to; {
		if sizes = append(sizes, size); len(sizes) > mostFigures {
			return nil
		}
		if factor <= 1 {
			size += step
		} else if size > to/factor {
			break
		} else {
			size *= factor
		}
	}
	return sizes
}

// tableLine is one of a table: its size, and of nccl-tests what is reduced how.
type tableLine struct {
	size int64
	kind string
}

// ncclLess is how the tests say that GPUs have too little memory for the largest size.
var ncclLess = regexp.MustCompile(`(?m)# Reducing maxBytes to (\d+) due to memory limitation`)

// whole is an error if a table of nccl-tests, of which rank 0 printed stdout, is not of all ranks, or lacks a size that was asked
// for. Tests round sizes down, to elements of each rank of up to 16 bytes.
func (w *Workload) whole(r *Reading, stdout []byte) error {
	got, want := len(NCCLRanks(stdout)), w.ncclRanks()
	if got > 0 && want > 0 && got != want {
		hint := ""
		if got < want {
			hint = ": is the test built with MPI?"
		}
		return fmt.Errorf("nccl-tests: %w: the table is of %s, and the program has %d%s", ErrOutput, human.Plural(got, "rank"), want, hint)
	}
	most := int64(1) << 62
	if m := ncclLess.FindSubmatch(stdout); m != nil {
		if n, err := strconv.ParseInt(string(m[1]), 10, 64); err == nil {
			most = n
			r.note("GPUs have too little memory for what was asked for: sizes end at %d bytes", n)
		}
	}
	sizes := w.ncclSizes(most)
	if sizes == nil {
		return nil
	}
	least := int64(16 * max(1, got, want))
	lines := map[string][]int64{} // of each kind, in their order
	var kinds []string
	for _, l := range r.lines {
		if lines[l.kind] == nil {
			kinds = append(kinds, l.kind)
		}
		lines[l.kind] = append(lines[l.kind], l.size)
	}
	for _, kind := range kinds {
		var lacks []string
		rest := lines[kind]
		for _, size := range sizes {
			i := slices.IndexFunc(rest, func(s int64) bool { return s <= size && s > size-least })
			if i < 0 {
				lacks = append(lacks, SizeName(size))
				continue
			}
			rest = rest[i+1:]
		}
		if n := len(lacks); n > 0 {
			if n > 3 {
				lacks = append(lacks[:3:3], fmt.Sprintf("%d more", n-3))
			}
			of := ""
			if len(kinds) > 1 {
				of = " (" + kind + ")"
			}
			return fmt.Errorf("nccl-tests: %w: the table%s lacks %s of %s that it was asked for", ErrOutput, of, strings.Join(lacks, ", "), human.Plural(len(sizes), "size"))
		}
	}
	return nil
}

// bare is a line without colours, and without what mpirun says before it.
func bare(line []byte) []byte {
	return bytes.TrimSpace(tagged.ReplaceAll(coloured.ReplaceAll(line, nil), nil))
}
