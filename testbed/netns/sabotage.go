package netns

import (
	"context"
	"fmt"

	"github.com/inabench/inabench/testbed/sabotage"
	"github.com/inabench/inabench/testbed/softswitch"
)

// Sabotage gives a switch, or a directed link, a fault in the place of any earlier of its switch;
// an act without a name takes that away. It says how often the earlier one acted. A switch that is
// not the embedded one is refused, as is a fault of something else.
func (f *Fabric) Sabotage(ctx context.Context, part string, act sabotage.Act) (acted int64, err error) {
	node := -1
	if end, ok := f.layout.ports[part]; ok {
		node, act.Port, act.Dir = end.node, end.port, end.dir()
	} else if node, err = f.node(part); err != nil {
		return 0, fmt.Errorf("sabotage %s: %w", act.Fault, err)
	}
	if f.layout.nodes[node].Switch == nil {
		return 0, fmt.Errorf("sabotage %s: %s is no switch", act.Fault, part)
	}
	r, err := command(ctx, f.procs[node], softswitch.Command{Cmd: "sabotage", Sabotage: &act})
	if err != nil {
		return 0, fmt.Errorf("sabotage %s of %s: %w", act.Fault, part, err)
	}
	return r.Sabotaged, nil
}
