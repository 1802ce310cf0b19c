package results

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/internal/bounded"
)

// Samples reads all samples of the run. A last line that was cut off is left out:
// it is where a crash or a full disk ended the file. With a *Damaged the others are there.
func (d *Dir) Samples() (all []Sample, err error) {
	err = d.samples(func(s *Sample) { all = append(all, *s) })
	return all, err
}

// SamplesDrawn are those of Samples that WriteReport draws. Others take no memory, and of very many these are some: of each
// counter those that are so far apart that all find room. shown is the record to draw them with: where lines of the file are
// damaged, a copy with a warning of it at its end.
func (d *Dir) SamplesDrawn(rec *Record) (shown *Record, _ []Sample, _ error) {
	links := map[string]bool{}
	for _, l := range rec.Topology.Links {
		links[l.Name] = true
	}
	var drawn few
	err := d.samples(func(s *Sample) {
		if s.Held() || s.Carried() && links[s.Of] {
			drawn.add(s)
		}
	})
	shown, err = rec.drawable(err)
	return shown, drawn.kept, err
}

// mostDrawn is how many samples are kept to be drawn: 40 MB. A plot has some hundred of each counter.
const mostDrawn = 400_000

// few are samples of which there are never more than mostDrawn.
type few struct {
	kept  []Sample
	apart float64 // s, at least, between two of a counter
	last  map[counterOf]float64
	full  bool // there are too many counters
}

// counterOf is what a sample is a reading of.
type counterOf struct{ source, metric, of string }

func (f *few) add(s *Sample) {
	if f.full || !f.spare(s) {
		return
	}
	if f.kept = append(f.kept, *s); len(f.kept) < mostDrawn {
		return
	}
	first, last := s.T, s.T
	for i := range f.kept {
		first, last = min(first, f.kept[i].T), max(last, f.kept[i].T)
	}
	f.apart = max(f.apart, (last-first)/1000)
	for range 12 { // after which one of each counter is left
		f.last = map[counterOf]float64{}
		f.kept = slices.DeleteFunc(f.kept, func(s Sample) bool { return !f.spare(&s) })
		if len(f.kept) <= mostDrawn/2 {
			return
		}
		f.apart *= 2
	}
	f.full = true
}

// spare says whether a sample is far enough from the one before of its counter, which it is from then on.
func (f *few) spare(s *Sample) bool {
	if f.last == nil {
		return true
	}
	k := counterOf{s.Source, s.Metric, s.Of}
	if last, ok := f.last[k]; ok && s.T <= last+f.apart {
		return false
	}
	f.last[k] = s.T
	return true
}

// Held says whether a sample counts for how long aggregators were held, and carried whether it counts what
// a link may have carried.
func (s *Sample) Held() bool { return s.Metric == "job_hold_seconds" && !s.Gauge }

// Carried says that a sample counts bytes, from which rates are drawn.
func (s *Sample) Carried() bool { return s.Unit == "B" && !s.Gauge }

// LinkBytes are the bytes that links have carried, of those links that are wanted: as their senders count them, where these do, and
// by the counter that was read most often.
func LinkBytes(samples []Sample, wanted func(link string) bool) map[string]Series {
	var read Readings
	for i := range samples {
		if s := &samples[i]; s.Carried() && wanted(s.Of) {
			read.Add(*s)
		}
	}
	worth := func(of Reader, s Series) int {
		if strings.Contains(of.Metric, "tx") {
			return len(s.T) + 1<<30
		}
		return len(s.T)
	}
	out, from := map[string]Series{}, map[string]Reader{}
	for of, s := range read.All() {
		best, known := from[of.Of]
		if !known || cmp.Or(cmp.Compare(worth(best, out[of.Of]), worth(of, s)), cmp.Compare(of.Source, best.Source), cmp.Compare(of.Metric, best.Metric)) < 0 {
			out[of.Of], from[of.Of] = s, of
		}
	}
	return out
}

func (d *Dir) samples(add func(*Sample)) error {
	path := filepath.Join(d.Path, SamplesFile)
	f, err := bounded.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read samples: %w", err)
	}
	defer f.Close()
	if err := readSamples(f, add); err != nil {
		return fmt.Errorf("read samples %s: %w", path, err)
	}
	return nil
}

// Damaged is what is wrong with samples that were read all the same: some lines are none, and are left out.
type Damaged struct {
	Lines, First int   // how many they are, and the number of the first one
	Cause        error // of the first
}

func (d *Damaged) Error() string {
	if d.Lines == 1 {
		return fmt.Sprintf("line %d is damaged: %v", d.First, d.Cause)
	}
	return fmt.Sprintf("%d lines are damaged, the first is line %d: %v", d.Lines, d.First, d.Cause)
}

func (d *Damaged) Unwrap() error { return d.Cause }

// drawable is the record with which samples can be shown that were read with that error. Any but a *Damaged stays.
func (rec *Record) drawable(err error) (*Record, error) {
	var damaged *Damaged
	if !errors.As(err, &damaged) {
		return rec, err
	}
	warned := *rec
	warned.Warnings = append(slices.Clip(rec.Warnings), fmt.Sprintf("%s: %v; drawings are of the other lines", SamplesFile, damaged))
	return &warned, nil
}

// ReadSamples reads lines of samples.jsonl. A last line without its newline that
// does not parse is left out; other bad lines are too, and a *Damaged says so beside the
// samples. With any other error the samples before it are returned.
func ReadSamples(r io.Reader) (all []Sample, err error) {
	err = readSamples(r, func(s *Sample) { all = append(all, *s) })
	return all, err
}

func readSamples(r io.Reader, add func(*Sample)) error {
	words := words{}
	var damaged *Damaged
	in := bufio.NewReaderSize(r, 1<<16)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n') // which is good until the next
		var bad error
		if errors.Is(err, bufio.ErrBufferFull) {
			line, bad, err = longLine(in, line)
		}
		whole := err == nil
		if err != nil && err != io.EOF {
			return err
		}
		if text := bytes.TrimSpace(line); len(text) > 0 || bad != nil {
			var s Sample
			if bad == nil && !words.sample(text, &s) {
				s = Sample{}
				bad = json.Unmarshal(text, &s)
			}
			switch {
			case bad == nil:
				add(&s)
			case whole && damaged == nil:
				damaged = &Damaged{1, n, bad}
			case whole:
				damaged.Lines++
			}
		}
		if !whole {
			if damaged != nil {
				return damaged
			}
			return nil
		}
	}
}

// mostSkipped is how long a line may be that is left out; after a longer one nothing more is read.
const mostSkipped = 64 << 20

// longLine is the line of which a full buffer is the beginning, with its end. One of more than bounded.Line bytes is read to its end
// and not kept: bad, which wraps bounded.ErrTooLarge, says so.
func longLine(in *bufio.Reader, begin []byte) (line []byte, bad, err error) {
	line, err = bytes.Clone(begin), bufio.ErrBufferFull
	n := len(line)
	for errors.Is(err, bufio.ErrBufferFull) && n <= mostSkipped {
		var part []byte
		part, err = in.ReadSlice('\n')
		n += len(part)
		line = append(line, part[:min(len(part), bounded.Line+2-len(line))]...)
	}
	switch {
	case n > mostSkipped:
		return nil, nil, fmt.Errorf("a line is %w: more than %d bytes", bounded.ErrTooLarge, mostSkipped)
	case n > bounded.Line+1 && (err == nil || err == io.EOF):
		return nil, fmt.Errorf("it is %w: more than %d bytes", bounded.ErrTooLarge, bounded.Line), nil
	}
	return line, nil, err
}

// words are the texts of samples, each kept once: a run has millions of samples of some thousand names.
type words map[string]string

// mostWords bounds how many are kept.
const mostWords = 1 << 16

// sample reads a line as Append writes it, which is five times as fast as reading any JSON. False: it is
// otherwise, which says nothing about whether it is good.
func (w words) sample(line []byte, s *Sample) bool {
	p := parser{rest: line, words: w}
	p.skip(`{"t":`)
	s.T = p.number()
	p.skip(`,"source":`)
	s.Source = p.text()
	p.skip(`,"metric":`)
	s.Metric = p.text()
	p.skip(`,"of":`)
	s.Of = p.text()
	p.skip(`,"value":`)
	s.Value = p.number()
	p.skip(`,"unit":`)
	s.Unit = p.text()
	s.Gauge = p.try(`,"gauge":true`)
	if p.try(`,"wrap":`) {
		s.Wrap = p.number()
	}
	p.skip(`}`)
	return !p.other && len(p.rest) == 0
}

// parser reads parts of a line, until it finds one that is otherwise.
type parser struct {
	rest  []byte
	words words
	other bool
}

func (p *parser) try(what string) bool {
	if len(p.rest) < len(what) || string(p.rest[:len(what)]) != what {
		return false
	}
	p.rest = p.rest[len(what):]
	return true
}

func (p *parser) skip(what string) { p.other = p.other || !p.try(what) }

// number reads a number of JSON's grammar (RFC 8259, section 6), which is less than strconv reads.
func (p *parser) number() float64 {
	rest := p.rest
	is := func(chars string) bool {
		if len(rest) == 0 || strings.IndexByte(chars, rest[0]) < 0 {
			return false
		}
		rest = rest[1:]
		return true
	}
	digits := func() bool {
		some := len(rest)
		for len(rest) > 0 && '0' <= rest[0] && rest[0] <= '9' {
			rest = rest[1:]
		}
		return len(rest) < some
	}
	is("-")
	ok := is("0") || digits()
	if is(".") {
		ok = digits() && ok
	}
	if is("eE") {
		is("+-")
		ok = digits() && ok
	}
	if p.other = p.other || !ok; p.other {
		return 0
	}
	v, err := strconv.ParseFloat(string(p.rest[:len(p.rest)-len(rest)]), 64)
	p.rest, p.other = rest, err != nil
	return v
}

// text reads a string.
func (p *parser) text() string {
	if p.other || len(p.rest) == 0 || p.rest[0] != '"' {
		p.other = true
		return ""
	}
	end := afterString(p.rest, 0)
	quoted := p.rest[:end]
	p.rest = p.rest[end:]
	if word, ok := p.words[string(quoted)]; ok {
		return word
	}
	var word string
	if json.Unmarshal(quoted, &word) != nil {
		p.other = true
		return ""
	}
	if len(p.words) < mostWords {
		p.words[string(quoted)] = word
	}
	return word
}
