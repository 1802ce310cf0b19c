package placement

import (
	"slices"

	"github.com/inabench/inabench/inventory"
)

// Overflow is a queue that what is predicted needs and a switch does not have. Packets are lost there
// then, and sent again after timeouts, of which no model here knows.
type Overflow struct {
	Link   string   // directed, from a switch
	Jobs   []string // whose windows fill the queue
	Needs  float64  // bytes
	Buffer float64  // bytes
}

// Overflows are the queues before what holds jobs back that are longer than the buffer, in bytes, of their port:
// of a switch of inv, each of its ports has the same; 0: nothing is known of it. Windows that senders change
// by themselves fill no more than there is.
func (p *Prediction) Overflows(inv *inventory.Inventory, buffer func(*inventory.Switch) int64) (out []Overflow) {
	topo := inv.Topology()
	for _, j := range p.Jobs {
		i := slices.IndexFunc(topo.Links, func(l inventory.DirectedLink) bool { return l.Name == j.HeldBy() })
		if i < 0 || j.Queue == 0 {
			continue
		}
		s := slices.IndexFunc(inv.Switches, func(s inventory.Switch) bool { return s.Name == topo.Links[i].From })
		if s < 0 { // a host, whose processes wait for their turn to send
			continue
		}
		o := slices.IndexFunc(out, func(o Overflow) bool { return o.Link == j.HeldBy() })
		if o < 0 {
			o = len(out)
			out = append(out, Overflow{Link: j.HeldBy(), Buffer: float64(buffer(&inv.Switches[s]))})
		}
		out[o].Jobs = append(out[o].Jobs, j.Name)
		out[o].Needs += j.Queue
	}
	return slices.DeleteFunc(out, func(o Overflow) bool { return o.Buffer == 0 || o.Needs <= o.Buffer })
}
