// Package vector reads and runs packet vectors: given these entries, this packet in at this
// port must make those packets leave at those ports, and these counters count. They are in
// testbed/ina/testdata/vectors, and every switch is held to the same ones: the state machine
// of package ina, the embedded switch, and a P4 program on BMv2 or a chip.
//
// A file has any number of vectors. Each is a line "vector" with its name, then steps in
// order, one a line; "#" begins a comment.
//
//	vector the second packet completes the sum
//	job 1 epoch=7 mode=statistical addressing=hash size=16 expect=0,1 window=4 up=3 down=1
//	group 1 1 2
//	in 1 psn=0 rank=0 lanes=1,2
//	in 2 psn=0 rank=1 lanes=10,20
//	out 3 psn=0 workers=0,1 lanes=11,22
//	count 1 in=2 aggregated=2 granted=1 out=1
//
// "job" writes an entry, "delete" removes one, "group" writes a multicast group. "out" lines
// are all that leaves because of the "in" before them, in order at each port. "count" names
// what a job's counters are by then, in packets; those that it does not name are 0.
//
// A line "program" before the first vector says what a data plane does otherwise that the file's
// vectors are for (ina.Program):
//
//	program lanes=32 whole=true named=true merges=true
//
// What an entry or packet does not say is 0, except that a packet is of job 1 and of the
// epoch of its job's last entry, an arriving one has the bit of its rank in its bitmap, and a
// leaving one comes from a switch (rank 255). A packet flagged result travels down, others up.
package vector

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/testbed/ina"
)

// Vector is one of a file's.
type Vector struct {
	Name    string
	Program ina.Program // of its file
	Steps   []Step
}

// Step is one line of a vector: one of its fields is set. In has with it the packets that
// leave because of it.
type Step struct {
	At     string // file:line
	Job    *ina.JobEntry
	Delete uint16
	Group  *Group
	In     *Packet
	Out    []Packet // of In
	Count  *Count
}

// Group is a multicast group.
type Group struct {
	ID    uint16
	Ports []uint32
}

// Packet is an INA packet at a port.
type Packet struct {
	Port uint32
	ina.Header
	Values []int32 // Header.Lanes of them
}

// Count is what a job's counters are, in packets, by the names of the P4 counters without
// "job_". What is not there is 0.
type Count struct {
	Job     uint16
	Packets map[string]int64
}

// Names are the counters that vectors speak of.
var Names = []string{"in", "aggregated", "fallback", "granted", "denied", "out", "results", "resends", "duplicates", "dropped", "marked"}

// Load reads all vectors of a directory: its files whose names end in .txt.
func Load(dir string) ([]Vector, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no vectors in %s", dir)
	}
	var all []Vector
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		vs, err := Parse(filepath.Base(name), f)
		f.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, vs...)
	}
	return all, nil
}

// Parse reads a file of vectors. Errors begin with name and line.
func Parse(name string, r io.Reader) ([]Vector, error) {
	var vs []Vector
	var program ina.Program
	epochs := map[uint16]uint16{}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		line, _, _ := strings.Cut(sc.Text(), "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		at := fmt.Sprintf("%s:%d", name, n)
		if f[0] == "vector" {
			vs = append(vs, Vector{Name: strings.Join(f[1:], " "), Program: program})
			clear(epochs)
			continue
		}
		if f[0] == "program" && len(vs) == 0 {
			if err := parseProgram(f[1:], &program); err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			continue
		}
		if len(vs) == 0 {
			return nil, fmt.Errorf("%s: %q before the first vector", at, f[0])
		}
		v := &vs[len(vs)-1]
		s := Step{At: at}
		err := fmt.Errorf("there is no step %q", f[0])
		switch f[0] {
		case "job":
			s.Job, err = parseJob(f[1:])
			if err == nil {
				epochs[s.Job.Job] = s.Job.Epoch
			}
		case "delete":
			s.Delete, err = number[uint16](f[1:], 16)
		case "group":
			s.Group, err = parseGroup(f[1:])
		case "in":
			s.In, err = parsePacket(f[1:], epochs, true)
		case "out":
			var p *Packet
			if p, err = parsePacket(f[1:], epochs, false); err != nil {
				break
			}
			if len(v.Steps) == 0 || v.Steps[len(v.Steps)-1].In == nil {
				err = fmt.Errorf("what leaves must follow what arrives")
				break
			}
			last := &v.Steps[len(v.Steps)-1]
			last.Out = append(last.Out, *p)
			continue
		case "count":
			s.Count, err = parseCount(f[1:])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		v.Steps = append(v.Steps, s)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return vs, nil
}

// number is the first of the fields as an unsigned number of some bits.
func number[T uint8 | uint16 | uint32](f []string, bits int) (T, error) {
	if len(f) == 0 {
		return 0, fmt.Errorf("a number is missing")
	}
	v, err := strconv.ParseUint(f[0], 0, bits)
	return T(v), err
}

// pairs reads fields of the form key=value.
func pairs(fs []string, set func(key, value string) error) error {
	for _, f := range fs {
		key, value, ok := strings.Cut(f, "=")
		if !ok {
			return fmt.Errorf("%q is not of the form key=value", f)
		}
		if err := set(key, value); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

func choose[T any](value string, of map[string]T) (T, error) {
	v, ok := of[value]
	if !ok {
		return v, fmt.Errorf("there is no %q", value)
	}
	return v, nil
}

var modes = map[string]ina.Mode{"forward": ina.Forward, "statistical": ina.Statistical, "synchronous": ina.Synchronous}

var addressings = map[string]ina.Addressing{"pool": ina.Pool, "hash": ina.Hash, "linear": ina.Linear, "atp": ina.ATP}

var flags = map[string]ina.Flags{
	"result": ina.FlagResult, "resend": ina.FlagResend, "collision": ina.FlagCollision, "ecn": ina.FlagECN,
	"overflow": ina.FlagOverflow, "lock": ina.FlagLock, "unlock": ina.FlagUnlock,
}

// workers reads ranks as a bitmap.
func workers(value string) (uint64, error) {
	var m uint64
	for _, s := range strings.Split(value, ",") {
		r, err := strconv.ParseUint(s, 10, 8)
		if err != nil || r >= ina.MaxWorkers {
			return 0, fmt.Errorf("%q is not a rank", s)
		}
		m |= 1 << r
	}
	return m, nil
}

func parseProgram(f []string, p *ina.Program) error {
	err := pairs(f, func(key, value string) (err error) {
		switch key {
		case "lanes":
			p.Lanes, err = strconv.Atoi(value)
		case "whole":
			p.Whole, err = strconv.ParseBool(value)
		case "named":
			p.Named, err = strconv.ParseBool(value)
		case "merges":
			p.Merges, err = strconv.ParseBool(value)
		default:
			err = fmt.Errorf("a program has no %q", key)
		}
		return err
	})
	return cmp.Or(err, ina.NewSwitch(1).Load(*p))
}

func parseJob(f []string) (*ina.JobEntry, error) {
	id, err := number[uint16](f, 16)
	if err != nil {
		return nil, err
	}
	e := &ina.JobEntry{Job: id}
	err = pairs(f[1:], func(key, value string) (err error) {
		v := []string{value}
		switch key {
		case "epoch":
			e.Epoch, err = number[uint16](v, 16)
		case "mode":
			e.Mode, err = choose(value, modes)
		case "addressing":
			e.Addressing, err = choose(value, addressings)
		case "base":
			e.Base, err = number[uint32](v, 32)
		case "size":
			e.Size, err = number[uint32](v, 32)
		case "offset":
			e.Offset, err = number[uint32](v, 32)
		case "expect":
			e.Expect, err = workers(value)
		case "root":
			e.Root, err = strconv.ParseBool(value)
		case "window":
			e.Window, err = number[uint32](v, 32)
		case "up":
			e.UpPort, err = number[uint32](v, 9)
		case "down":
			e.DownGroup, err = number[uint16](v, 16)
		default:
			err = fmt.Errorf("a job has no %q", key)
		}
		return err
	})
	return e, err
}

func parseGroup(f []string) (*Group, error) {
	id, err := number[uint16](f, 16)
	g := &Group{ID: id}
	for _, s := range f[min(1, len(f)):] {
		port, e := number[uint32]([]string{s}, 9)
		g.Ports, err = append(g.Ports, port), cmp.Or(err, e)
	}
	return g, err
}

func parsePacket(f []string, epochs map[uint16]uint16, in bool) (*Packet, error) {
	port, err := number[uint32](f, 9)
	if err != nil {
		return nil, err
	}
	p := &Packet{Port: port, Header: ina.Header{Job: 1, Rank: ina.NoRank}}
	epoch, bitmap := false, false
	err = pairs(f[1:], func(key, value string) (err error) {
		v := []string{value}
		switch key {
		case "job":
			p.Job, err = number[uint16](v, 16)
		case "epoch":
			epoch = true
			p.Epoch, err = number[uint16](v, 16)
		case "psn":
			p.PSN, err = number[uint32](v, 32)
		case "slot":
			p.Slot, err = number[uint16](v, 16)
		case "rank":
			p.Rank, err = number[uint8](v, 8)
		case "workers":
			bitmap = true
			p.Bitmap, err = workers(value)
		case "flags":
			for _, s := range strings.Split(value, ",") {
				flag, e := choose(s, flags)
				p.Flags, err = p.Flags|flag, cmp.Or(err, e)
			}
		case "lanes":
			p.Values, err = parseLanes(value)
			p.Lanes = uint8(len(p.Values))
		default:
			err = fmt.Errorf("a packet has no %q", key)
		}
		return err
	})
	if !epoch {
		p.Epoch = epochs[p.Job]
	}
	if in && !bitmap && p.Rank < ina.MaxWorkers {
		p.Bitmap = 1 << p.Rank
	}
	return p, err
}

// parseLanes reads "1,-2,3", where "5x240" stands for 240 lanes of 5 and "5+2x240" for 240
// lanes of which the first is 5 and each next one 2 more.
func parseLanes(value string) (vs []int32, err error) {
	for _, s := range strings.Split(value, ",") {
		n, step := uint64(1), int64(0)
		s, times, many := cutLast(s, "x")
		if many {
			if n, err = strconv.ParseUint(times, 10, 8); err != nil {
				return nil, err
			}
		}
		first, by, steps := strings.Cut(s, "+")
		if steps {
			if step, err = strconv.ParseInt(by, 0, 32); err != nil {
				return nil, err
			}
		}
		v, err := strconv.ParseInt(first, 0, 32)
		if err != nil {
			return nil, err
		}
		for range n {
			vs = append(vs, int32(v))
			v += step
		}
	}
	if len(vs) > ina.MaxLanes {
		return nil, fmt.Errorf("%d lanes, at most %d", len(vs), ina.MaxLanes)
	}
	return vs, nil
}

// cutLast cuts at the last sep, unless that is the one of "0x".
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 || strings.HasSuffix(s[:i], "0") && !strings.ContainsAny(s[:i], "123456789") && len(strings.TrimLeft(s[:i], "-0")) == 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func parseCount(f []string) (*Count, error) {
	id, err := number[uint16](f, 16)
	if err != nil {
		return nil, err
	}
	c := &Count{Job: id, Packets: map[string]int64{}}
	err = pairs(f[1:], func(key, value string) (err error) {
		if !slices.Contains(Names, key) {
			return fmt.Errorf("there is no counter %q", key)
		}
		c.Packets[key], err = strconv.ParseInt(value, 10, 64)
		return err
	})
	return c, err
}
