package sharing

import (
	"cmp"
	"slices"

	"github.com/inabench/inabench/testbed/mina/commit"
)

// Status is what a controller knows of a host.
type Status struct {
	commit.Node
	Run     uint64
	Address string
	Version commit.Txn
	Refused uint64 // operations that asked for INA and did not get it
	In      bool   // its job takes part
}

// Status is that of all hosts that have been heard.
func (c *Controller) Status() []Status {
	var out []Status
	c.do(func() {
		for n, h := range c.hosts {
			g := c.group(n.Job)
			out = append(out, Status{n, h.run, h.address, h.report.Version, h.report.Refused, g != nil && slices.Contains(g.machine.In(), n.Job)})
		}
	}, true)
	slices.SortFunc(out, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Rank, b.Rank))
	})
	return out
}

// Change makes the states of all groups anew.
func (c *Controller) Change() {
	c.do(func() {
		for _, g := range c.groups {
			g.machine.Change(&c.out)
			c.carryOut(g)
		}
	}, true)
}
