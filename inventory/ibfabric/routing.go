package ibfabric

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Routes are the forwarding tables of switches, as the subnet manager set them.
type Routes struct {
	Tables map[GUID]map[int]int // switch -> LID -> port; 0 is the switch itself
}

// opensm-lfts.dump, and dump_lfts, which has another mark after the port, and says that
// it is old:
//
//	Unicast lids [0-24] of switch Lid 1 guid 0xb8599f0300100000 ('leaf1'):
//	0x0002 038 # Switch portguid 0xb8599f0300100100: 'leaf2'
//	24 lids dumped
var (
	lftHead  = regexp.MustCompile(`^Unicast lids \[\S+\] of switch .*guid (0x[0-9a-fA-F]{1,16}) \(.*\):$`)
	lftEntry = regexp.MustCompile(`^0x([0-9a-fA-F]{1,4}) (\d{3}|\?\?\?) [#:]`)
	lftOther = regexp.MustCompile(`^(\d+ (valid )?lids dumped|\s+Lid  Out\s.*|\s+Port\s+Info|\*\*\* WARNING.*)\s*$`)
)

func (p *parser) lfts(line string) {
	if p.r.routes == nil {
		p.r.routes = &Routes{Tables: map[GUID]map[int]int{}}
	}
	if m := lftHead.FindStringSubmatch(line); m != nil {
		p.sw = p.guid(m[1])
		if p.r.routes.Tables[p.sw] == nil {
			p.r.routes.Tables[p.sw] = map[int]int{}
		}
		return
	}
	m := lftEntry.FindStringSubmatch(line)
	switch {
	case m == nil && lftOther.MatchString(line), m != nil && m[2] == "???":
	case m == nil:
		p.bad("a line that opensm-lfts.dump does not have: %.80q", line)
	case p.sw == 0:
		p.bad("an entry before any switch")
	default:
		if port := p.number(m[2], maxPort); port != noRoute {
			p.r.routes.Tables[p.sw][p.numberIn(m[1], 16, maxLID)] = port
		}
	}
}

// noRoute is the port of LIDs that a switch drops.
const noRoute = 255

// Engine is which routing opensm uses.
type Engine struct {
	Active  string   // "ftree", "updn", "minhop"; empty: none yet
	Refused []string // those that it tried before, and why they did not do
}

// opensm's log. It falls back to the next engine without a word to anybody else.
var (
	smLine    = regexp.MustCompile(`^\w{3} \d\d \d\d:\d\d:\d\d \d+ \[[0-9A-Fa-f]+\] 0x[0-9a-fA-F]{2} -> (.*)$`)
	smActive  = regexp.MustCompile(`^osm_ucast_mgr_process: (\S+) tables configured on all switches`)
	smRefused = regexp.MustCompile(`^ucast_mgr_route: (\S+): (.*)`)
	smError   = regexp.MustCompile(`ERR \w+: (.*)`)
)

func (p *parser) smLog(line string) {
	m := smLine.FindStringSubmatch(line)
	if m == nil {
		return // logs have anything in them
	}
	switch said := m[1]; {
	case smActive.MatchString(said):
		p.r.engine = Engine{Active: smActive.FindStringSubmatch(said)[1], Refused: p.refused}
		p.refused, p.why = nil, ""
	case smRefused.MatchString(said):
		r := smRefused.FindStringSubmatch(said)
		text := r[1] + ": " + strings.TrimSuffix(r[2], ".")
		if p.why != "" {
			text += ": " + p.why
		}
		p.refused, p.why = append(p.refused, text), ""
	case smError.MatchString(said):
		p.why = smError.FindStringSubmatch(said)[1]
	}
}

// Routes are the forwarding tables that a reading holds, or nil.
func (r *Reading) Routes() *Routes { return r.routes }

// Engine is the routing engine that a log names last.
func (r *Reading) Engine() Engine { return r.engine }

// Route is the switches from one to the node with a LID, first to last, by their
// tables, and an error that says where there is no way on.
func (f *Fabric) Route(r *Routes, from GUID, lid int) ([]GUID, error) {
	path := []GUID{from}
	for here := from; ; {
		port, ok := r.Tables[here][lid]
		if !ok {
			return path, fmt.Errorf("no route from %s to LID %d at %s", f.name(from), lid, f.name(here))
		}
		if port == 0 {
			return path, nil
		}
		p := f.Port(PortID{here, port})
		if p == nil || p.Peer == (PortID{}) {
			return path, fmt.Errorf("the route from %s to LID %d leaves %s by port %d, where there is no cable", f.name(from), lid, f.name(here), port)
		}
		here = p.Peer.Node
		next := f.Nodes[here]
		if next == nil || next.Kind != Switch {
			if q := f.Port(p.Peer); q == nil || q.LID != lid {
				return path, fmt.Errorf("the route from %s to LID %d ends at %s", f.name(from), lid, f.name(here))
			}
			return path, nil
		}
		if slices.Contains(path, here) {
			return path, fmt.Errorf("the route from %s to LID %d runs in a circle at %s", f.name(from), lid, f.name(here))
		}
		path = append(path, here)
	}
}

// Unreachable is an aggregation node that a switch's aggregation node cannot talk to,
// so that no tree has an edge between them.
type Unreachable struct {
	From, To *Node // the switches
	Why      error
}

// Unreachables follows the routes between the aggregation nodes of every leaf (a
// switch with hosts) and of every other switch, in both directions. After the failure
// of a link, up/down routing leaves out such pairs while all hosts still reach each
// other, so that a ping shows nothing; an aggregation tree whose root is a switch that
// a leaf does not reach cannot include that leaf's hosts.
func (f *Fabric) Unreachables(r *Routes) []Unreachable {
	var out []Unreachable
	tiers := f.Tiers()
	for _, leaf := range f.Sorted(Switch) {
		if tiers[leaf.GUID] != 1 || f.AN(leaf.GUID) == nil {
			continue
		}
		for _, sw := range f.Sorted(Switch) {
			if sw == leaf || f.AN(sw.GUID) == nil || tiers[sw.GUID] == 1 && sw.GUID < leaf.GUID {
				continue
			}
			err := f.talk(r, leaf, sw)
			if err == nil {
				err = f.talk(r, sw, leaf)
			}
			if err != nil {
				out = append(out, Unreachable{From: leaf, To: sw, Why: err})
			}
		}
	}
	return out
}

// talk follows the route from a switch to the aggregation node of another.
func (f *Fabric) talk(r *Routes, from, to *Node) error {
	an := f.AN(to.GUID)
	for _, i := range an.numbers() {
		if lid := an.Ports[i].LID; lid > 0 {
			_, err := f.Route(r, from.GUID, lid)
			return err
		}
	}
	return fmt.Errorf("the LID of the aggregation node of %v is not known", to)
}

// Roots is, for every switch with an aggregation node, the leaves that a tree rooted
// there can include, each by an edge of its own; and all leaves.
func (f *Fabric) Roots(r *Routes) (reach map[GUID][]*Node, leaves []*Node) {
	reach = map[GUID][]*Node{}
	tiers := f.Tiers()
	cut := map[[2]GUID]bool{}
	for _, u := range f.Unreachables(r) {
		cut[[2]GUID{u.From.GUID, u.To.GUID}], cut[[2]GUID{u.To.GUID, u.From.GUID}] = true, true
	}
	for _, leaf := range f.Sorted(Switch) {
		if tiers[leaf.GUID] != 1 {
			continue
		}
		leaves = append(leaves, leaf)
		for _, sw := range f.Sorted(Switch) {
			if f.AN(sw.GUID) != nil && f.AN(leaf.GUID) != nil && !cut[[2]GUID{leaf.GUID, sw.GUID}] {
				reach[sw.GUID] = append(reach[sw.GUID], leaf)
			}
		}
	}
	return reach, leaves
}
