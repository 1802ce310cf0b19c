package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// maxBlocks is how many blocks a trace may be drawn from, so that a block of a nanosecond is refused.
const maxBlocks = 1_000_000

// length is how long a trace lasts, in seconds: from the first submission to the last, and as long as jobs are apart on
// average. So it begins again after its end as it goes on within.
func (t *Trace) length() float64 {
	n := float64(len(t.Jobs))
	if n < 2 {
		return 0
	}
	return (t.Jobs[len(t.Jobs)-1].Submit - t.Jobs[0].Submit) * n / (n - 1)
}

// checkBlock says what is wrong with blocks of so many seconds.
func (t *Trace) checkBlock(block float64) error {
	length := t.length()
	switch {
	case length == 0:
		return tomlfile.WithHint("", "trace %s: all its jobs are submitted at once, it has no parts", t.Name)
	case !(block > 0) || block > length*(1+1e-9):
		return tomlfile.WithHint("", "trace %s: blocks of %g s: above 0, and at most its length of %.6g s", t.Name, block, length)
	case length/block > maxBlocks:
		return tomlfile.WithHint("", "trace %s: blocks of %g s: it lasts for %.6g s, which is more than %d of them", t.Name, block, length, maxBlocks)
	}
	return nil
}

// from is the index of the first job that is submitted so many seconds after the first, or later.
func (t *Trace) from(offset float64) int {
	first := t.Jobs[0].Submit
	return sort.Search(len(t.Jobs), func(i int) bool { return t.Jobs[i].Submit-first >= offset })
}

// Windows is into how many windows of so many seconds a trace can be cut, one after the other.
func (t *Trace) Windows(block float64) int {
	if t.checkBlock(block) != nil {
		return 0
	}
	return int(t.length()/block + 1e-9)
}

// Window is one of the Windows, from 0, as a trace that begins at 0. Repeats of a study that have a window each meet
// different parts of what was recorded; where windows are long against what ties neighbouring jobs together, they are
// nearly independent of each other. It is an error if there is no such window, or no job in it.
func (t *Trace) Window(i int, block float64) (*Trace, error) {
	if err := t.checkBlock(block); err != nil {
		return nil, err
	}
	if n := t.Windows(block); i < 0 || i >= n {
		return nil, tomlfile.WithHint("take fewer repeats, or shorter windows", "trace %s: window %d of %g s: there are %d", t.Name, i+1, block, n)
	}
	begin, end := float64(i)*block, float64(i+1)*block // the end is the next one's begin, to the last bit
	jobs := slices.Clone(t.Jobs[t.from(begin):t.from(end)])
	if len(jobs) == 0 {
		return nil, tomlfile.WithHint("take longer windows", "trace %s: window %d of %g s: no job is submitted in it", t.Name, i+1, block)
	}
	for k := range jobs {
		jobs[k].Submit = jobs[k].Submit - t.Jobs[0].Submit - begin // as from compares: not negative
	}
	return New(t.Name, jobs), nil
}

// Bootstrap draws a trace of the same length again, from blocks of so many seconds that begin anywhere: the circular
// block bootstrap (Politis and Romano, 1992), for submissions in continuous time. Every job has the same chance, jobs of
// a block stay together as they were, and the same seed draws the same; a draw without any job is drawn again. Drawn jobs
// are called ID#BLOCK. Blocks should be long against what ties neighbouring jobs together, such as a burst or a day, and
// many should make a trace; then what is computed of single draws varies as it does of other traces of that cluster. The
// mean of many draws does not: it comes ever closer to what is computed of the trace itself.
func (t *Trace) Bootstrap(block float64, seed uint64) (*Trace, error) {
	if err := t.checkBlock(block); err != nil {
		return nil, err
	}
	r := stream{rand.NewPCG(seed, 0x626c_6f63_6b73)}
	var jobs []Job
	for len(jobs) == 0 {
		var err error
		if jobs, err = t.draw(block, r); err != nil {
			return nil, err
		}
	}
	return New(t.Name, jobs), nil
}

// draw is the jobs of as many blocks as make the trace's length.
func (t *Trace) draw(block float64, r stream) ([]Job, error) {
	length, first, n := t.length(), t.Jobs[0].Submit, len(t.Jobs)
	jobs := make([]Job, 0, n)
	for b := range int(math.Ceil(length/block - 1e-9)) {
		at := float64(b) * block
		from := r.uniform() * length
		begin, mark := t.from(from), "#"+strconv.Itoa(b)
		for k := range n {
			j := t.Jobs[(begin+k)%n]
			after := j.Submit - first - from
			if begin+k >= n { // around the end
				after += length
			}
			if after >= block || at+after >= length {
				break
			}
			j.ID, j.Submit = j.ID+mark, at+after
			jobs = append(jobs, j)
		}
		if len(jobs) > limit.jobs {
			return nil, fmt.Errorf("trace %s: a draw has more than %d jobs", t.Name, limit.jobs)
		}
	}
	return jobs, nil
}
