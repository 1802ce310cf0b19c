package ibfabric

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ErrIncomplete is wrapped when a fabric was not seen whole.
var ErrIncomplete = errors.New("fabric is incomplete")

// New makes one fabric of several outputs. It takes what they say as it is; Check
// says whether that is all, and whether they agree.
func New(readings ...*Reading) *Fabric {
	f := &Fabric{Nodes: map[GUID]*Node{}}
	m := merger{Fabric: f, byPort: map[GUID]GUID{}, numbers: map[GUID]map[int]bool{}, cables: map[[2]PortID][]string{}, knows: map[string]map[GUID]bool{}}
	for _, r := range readings {
		f.Files = append(f.Files, r.File)
		f.complaints = append(f.complaints, r.complaints...)
		for _, n := range r.nodes {
			m.learn(n.guid, n.guid, 0)
		}
		for _, c := range r.ports {
			m.learn(c.node.guid, c.portGUID, c.number)
			if c.peer != nil {
				m.learn(c.peer.guid, c.peerGUID, c.peerPort)
			}
		}
	}
	for _, r := range readings {
		if len(r.ports) > 0 {
			m.knows[r.File] = map[GUID]bool{}
		}
		for _, n := range r.nodes {
			m.node(n, n.guid)
		}
		for _, c := range r.ports {
			m.port(r.File, c)
		}
		if r.start != 0 {
			f.starts = append(f.starts, r.start)
		}
	}
	for _, ends := range slices.SortedFunc(maps.Keys(m.cables), func(a, b [2]PortID) int {
		return cmp.Or(comparePorts(a[0], b[0]), comparePorts(a[1], b[1]))
	}) {
		// Every output lists all cables of the nodes that it knows.
		for _, file := range f.Files {
			knows := m.knows[file][ends[0].Node] || m.knows[file][ends[1].Node]
			if in := m.cables[ends]; knows && !slices.Contains(in, file) {
				f.conflicts = append(f.conflicts, fmt.Sprintf("%s to %s: in %s, not in %s", f.portName(ends[0]), f.portName(ends[1]), in[0], file))
			}
		}
	}
	return f
}

type merger struct {
	*Fabric
	byPort  map[GUID]GUID         // port's to node's
	numbers map[GUID]map[int]bool // ports by which a GUID without a node is known
	cables  map[[2]PortID][]string
	knows   map[string]map[GUID]bool // nodes by output
}

// learn notes which node a port's GUID belongs to.
func (m *merger) learn(node, port GUID, number int) {
	if node != 0 {
		m.byPort[node] = node
		if port != 0 {
			m.byPort[port] = node
		}
		return
	}
	if m.numbers[port] == nil {
		m.numbers[port] = map[int]bool{}
	}
	m.numbers[port][number] = true
}

// node finds or makes the node of a claim, and adds what it says.
func (m *merger) node(c nodeClaim, port GUID) *Node {
	guid := c.guid
	if guid == 0 {
		guid = cmp.Or(m.byPort[port], port) // nothing better is known of an adapter than its port
	}
	n := m.Nodes[guid]
	if n == nil {
		n = &Node{GUID: guid, Ports: map[int]*Port{}, byPort: c.guid == 0 && m.byPort[port] == 0}
		m.Nodes[guid] = n
	}
	if n.Kind == "" {
		n.Kind = c.kind
	}
	if n.Kind == "" && m.byPort[port] == 0 {
		// iblinkinfo does not say. It lists all ports of a switch, with one GUID.
		n.Kind = Adapter
		if len(m.numbers[port]) > 1 {
			n.Kind = Switch
		}
	}
	if strings.TrimSpace(n.Desc) == "" {
		n.Desc = strings.TrimSpace(c.desc)
	}
	n.System, n.Device, n.Size = cmp.Or(n.System, c.system), cmp.Or(n.Device, c.device), cmp.Or(n.Size, c.size)
	n.described = n.described || c.described
	return n
}

func (m *merger) port(file string, c portClaim) {
	n := m.node(c.node, c.portGUID)
	m.knows[file][n.GUID] = true
	if c.number == 0 { // port 0 of a switch is the switch
		return
	}
	p := at(n, c.number)
	if n.Kind != Switch {
		p.LID = cmp.Or(p.LID, c.lid)
	}
	p.State = cmp.Or(p.State, c.state)
	p.Could = Speed{cmp.Or(p.Could.Width, c.could.Width), cmp.Or(p.Could.Lane, c.could.Lane)}
	here := PortID{n.GUID, c.number}
	if c.peer == nil {
		return
	}
	if c.speed.Known() && p.Speed.Known() && c.speed != p.Speed {
		m.conflicts = append(m.conflicts, fmt.Sprintf("%s: %v, and %v in %s", m.portName(here), p.Speed, c.speed, file))
	}
	if !p.Speed.Known() {
		p.Speed = c.speed
	}
	other := m.node(*c.peer, c.peerGUID)
	there := PortID{other.GUID, c.peerPort}
	if p.Peer != (PortID{}) && p.Peer != there {
		m.conflicts = append(m.conflicts, fmt.Sprintf("%s leads to %s, and in %s to %s", m.portName(here), m.portName(p.Peer), file, m.portName(there)))
	} else {
		p.Peer = there
	}
	if other.Kind != Switch {
		q := at(other, c.peerPort)
		q.LID = cmp.Or(q.LID, c.peerLID)
	}
	ends := [2]PortID{here, there}
	if comparePorts(here, there) > 0 {
		ends = [2]PortID{there, here}
	}
	if !slices.Contains(m.cables[ends], file) {
		m.cables[ends] = append(m.cables[ends], file)
	}
}

func at(n *Node, number int) *Port {
	p := n.Ports[number]
	if p == nil {
		p = &Port{Number: number}
		n.Ports[number] = p
	}
	return p
}

func (f *Fabric) portName(id PortID) string {
	return fmt.Sprintf("%s port %d", f.name(id.Node), id.Port)
}

// Stderr is what a tool wrote there, every line of it a complaint.
func Stderr(file, text string) *Reading {
	r := &Reading{File: file, Format: Complaints}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			c, _ := parseComplaint(line)
			c.file = file
			r.complaints = append(r.complaints, c)
		}
	}
	return r
}

// Expect is what a fabric should have. What is 0 is not checked.
type Expect struct {
	Hosts    int // adapters that are no aggregation nodes, by the host that they are of
	Switches int
	ANs      int
}

// IncompleteError says what is missing of a fabric. It is ErrIncomplete.
type IncompleteError struct {
	Nodes   int // that were seen
	Missing []string
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("%v: %d nodes were seen\n%s", ErrIncomplete, e.Nodes, strings.Join(e.Missing, "\n"))
}

// Unwrap is ErrIncomplete.
func (e *IncompleteError) Unwrap() error { return ErrIncomplete }

// Hint is what to do about it.
func (e *IncompleteError) Hint() string {
	return "run the tool again with a longer timeout (-t 1000) and keep what it writes to stderr (2>&1): it exits with 0 though nodes are missing"
}

// Check returns an IncompleteError unless the fabric was seen whole: tools had no
// complaints, every node that another names has spoken for itself, both ends of every
// cable agree, the width and speed of each is known, all nodes hang together (or with
// the node where one of several discoveries began: rails may be fabrics of their own),
// outputs of several tools agree, and counts are as expected.
func (f *Fabric) Check(want Expect) error {
	e := &IncompleteError{Nodes: len(f.Nodes)}
	add := func(format string, args ...any) { e.Missing = append(e.Missing, fmt.Sprintf(format, args...)) }

	hosts, _ := f.hosts()
	counts := []struct {
		what      string
		got, want int
	}{{"hosts", len(hosts), want.Hosts}, {"switches", len(f.Sorted(Switch)), want.Switches}, {"aggregation nodes", len(f.ans()), want.ANs}}
	for _, c := range counts {
		if c.want > 0 && c.got != c.want {
			add("%d of %d %s", c.got, c.want, c.what)
		}
	}
	for _, n := range f.Sorted("") {
		if !n.described {
			add("%v is known from its neighbours only", n)
		} else if strings.TrimSpace(n.Desc) == "" {
			add("%v did not tell its name", n)
		}
		for _, i := range n.numbers() {
			p, here := n.Ports[i], PortID{n.GUID, i}
			if p.Peer == (PortID{}) {
				continue
			}
			other := f.Nodes[p.Peer.Node]
			back := f.Port(p.Peer)
			switch {
			case other == nil || !other.described: // has been said
			case back == nil || back.Peer == (PortID{}):
				add("%s leads to %s, which knows nothing of it", f.portName(here), f.portName(p.Peer))
			case back.Peer != here:
				add("%s leads to %s, which leads to %s", f.portName(here), f.portName(p.Peer), f.portName(back.Peer))
			case !p.Speed.Known():
				add("%s did not tell its speed", f.portName(here))
			case back.Speed.Known() && back.Speed != p.Speed && comparePorts(here, p.Peer) < 0:
				add("%s is %v and its other end, %s, %v", f.portName(here), p.Speed, f.portName(p.Peer), back.Speed)
			}
			if p.State == "Down" {
				add("%s is down and has a cable", f.portName(here))
			}
		}
	}
	for i, part := range f.parts() {
		begun := slices.ContainsFunc(part, func(n *Node) bool { return slices.Contains(f.starts, n.GUID) })
		if i > 0 && !begun {
			add("%v and %d more are not cabled to the rest", part[0], len(part)-1)
		}
	}
	e.Missing = append(e.Missing, f.conflicts...)
	e.Missing = append(e.Missing, f.complained()...)
	if len(f.Nodes) == 0 {
		add("no nodes")
	}
	if len(e.Missing) == 0 {
		return nil
	}
	return e
}

// parts is the connected parts, the largest first.
func (f *Fabric) parts() [][]*Node {
	seen := map[GUID]bool{}
	var out [][]*Node
	neighbours := map[GUID][]GUID{}
	for _, l := range f.Links() {
		neighbours[l.A.Node] = append(neighbours[l.A.Node], l.B.Node)
		neighbours[l.B.Node] = append(neighbours[l.B.Node], l.A.Node)
	}
	for _, n := range f.Sorted("") {
		if seen[n.GUID] {
			continue
		}
		seen[n.GUID] = true
		part := []*Node{n}
		for k := 0; k < len(part); k++ {
			for _, g := range neighbours[part[k].GUID] {
				if !seen[g] && f.Nodes[g] != nil {
					seen[g] = true
					part = append(part, f.Nodes[g])
				}
			}
		}
		out = append(out, part)
	}
	slices.SortStableFunc(out, func(a, b []*Node) int { return len(b) - len(a) })
	return out
}

// complained is what stderr says, a line for each node that did not answer.
func (f *Fabric) complained() []string {
	type silence struct {
		ports []int
		what  []string
	}
	silent, said := map[string]*silence{}, map[string]bool{}
	var order, other []string
	for _, c := range f.complaints {
		if c.path == nil {
			if text := cmp.Or(c.file, "stderr") + ": " + clip(c.text); !said[text] {
				said[text] = true
				other = append(other, text)
			}
			continue
		}
		where := f.follow(c.path)
		s := silent[where]
		if s == nil {
			s = &silence{}
			silent[where] = s
			order = append(order, where)
		}
		if c.attr == attrPortInfo {
			s.ports = append(s.ports, c.port)
		} else if name := attribute(c.attr); !slices.Contains(s.what, name) {
			s.what = append(s.what, name)
		}
	}
	var out []string
	for _, where := range order {
		s := silent[where]
		if len(s.ports) > 0 {
			slices.Sort(s.ports)
			s.what = append(s.what, "PortInfo of port "+numbersText(slices.Compact(s.ports)))
		}
		out = append(out, fmt.Sprintf("no answer from %s to %s, so what is behind it is not known", where, strings.Join(s.what, ", ")))
	}
	if len(other) > maxOther {
		other = append(other[:maxOther], fmt.Sprintf("and %d more complaints", len(other)-maxOther))
	}
	return append(out, other...)
}

const (
	attrPortInfo = 0x15
	maxOther     = 3 // complaints that are quoted
)

// attribute is the name of a subnet management attribute (InfiniBand Architecture
// Specification, volume 1, table of SMP attributes).
func attribute(id int) string {
	switch id {
	case 0x10:
		return "NodeDescription"
	case 0x11:
		return "NodeInfo"
	case 0x12:
		return "SwitchInfo"
	}
	return fmt.Sprintf("attribute %#x", id)
}

// follow says what a directed route leads to: its first hop stays where it begins, and
// every other leaves through that port.
func (f *Fabric) follow(path []int) string {
	var here GUID
	if n := len(f.starts); n > 0 {
		here = f.starts[n-1]
	}
	if f.Nodes[here] == nil {
		return fmt.Sprintf("the node at route %v", path)
	}
	for _, out := range path[min(1, len(path)):] {
		p := f.Port(PortID{here, out})
		if p == nil || f.Nodes[p.Peer.Node] == nil {
			return "what is behind " + f.portName(PortID{here, out})
		}
		here = p.Peer.Node
	}
	return f.name(here)
}

// numbersText is numbers in order as "1-3, 7".
func numbersText(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		text := strconv.Itoa(numbers[i])
		if j > i {
			text += "-" + strconv.Itoa(numbers[j])
		}
		parts = append(parts, text)
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

func clip(s string) string {
	if len(s) > 160 {
		return s[:160] + "..."
	}
	return s
}

func (f *Fabric) ans() []*Node {
	return slices.DeleteFunc(f.Sorted(Adapter), func(n *Node) bool { return !n.IsAN() })
}
