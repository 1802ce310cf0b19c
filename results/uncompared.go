package results

import (
	"fmt"
	"slices"

	"github.com/inabench/inabench/results/human"
)

// sumErrors is the metric of reduced values that were not what they should be.
const sumErrors = "sum_errors"

// DropUncompared takes the number of wrong sums out of a point's figures for jobs of which no sum
// was compared: none found wrong says nothing there, and is not 0.
func (p *Point) DropUncompared() {
	for i := range p.Phases {
		ph := &p.Phases[i]
		ph.Figures = slices.DeleteFunc(ph.Figures, func(f Figure) bool {
			return f.Metric == sumErrors && slices.ContainsFunc(p.Jobs, func(j JobSummary) bool { return j.Job == f.Of && j.SumsChecked == 0 && !j.Program })
		})
	}
}

// uncompared are undecided checks of an expectation of wrong sums: one for each job that sends and
// of which no sum was compared, in any repeat of the cell that came to its end.
func (c *Setting) uncompared(e Expect) (out []held) {
	if e.Metric != sumErrors {
		return nil
	}
	for _, p := range c.All {
		if p.Error != "" {
			continue
		}
		for _, j := range p.Jobs {
			if j.Local || j.Program || j.SumsChecked > 0 || !Glob(e.Of, j.Job) || slices.ContainsFunc(out, func(h held) bool { return h.Of == j.Job }) {
				continue
			}
			k := held{Check: e.check()}
			k.Point, k.Index, k.Of = c.Labels, c.Index, j.Job
			k.inconclusive(fmt.Sprintf("no sum of this job was compared with what it should be, of %s that it sent", human.Plural(int(j.Packets), "packet")))
			out = append(out, k)
		}
	}
	return out
}
