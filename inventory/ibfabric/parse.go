package ibfabric

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// Format is which tool wrote a text.
type Format string

const (
	NetDiscover Format = "ibnetdiscover"    // also net files of ibsim
	NetPorts    Format = "ibnetdiscover -p" // a line for each port
	LinkInfo    Format = "iblinkinfo -l"
	Subnet      Format = "opensm-subnet.lst"
	LFTs        Format = "opensm-lfts.dump" // also dump_lfts
	SMLog       Format = "opensm.log"
	Complaints  Format = "stderr" // of any of the tools
)

// Reading is what one output says. Readings of one fabric make a Fabric.
type Reading struct {
	File   string
	Format Format

	start      GUID
	nodes      []nodeClaim
	ports      []portClaim
	complaints []complaint
	routes     *Routes
	engine     Engine
}

// nodeClaim is what an output says of a node. One without GUID is known by that of a
// port only.
type nodeClaim struct {
	guid, system GUID
	kind         Kind
	desc         string
	device       int
	size         int
	described    bool
}

// portClaim is what it says of a port and, where there is one, of that at the other
// end. Of either end it may know the node's GUID or only the port's.
type portClaim struct {
	node     nodeClaim
	portGUID GUID
	number   int
	lid      int
	state    string
	speed    Speed
	could    Speed

	peer     *nodeClaim
	peerGUID GUID // port GUID
	peerPort int
	peerLID  int
}

// complaint is a line of stderr.
type complaint struct {
	file, text string
	path       []int // the directed route to what did not answer; nil: the line does not say
	attr       int   // and the attribute that was asked for
	port       int
}

// maxProblems is after how many lines that make no sense reading ends.
const maxProblems = 20

// Parse reads the output of a tool and finds out which. Lines that tools write to
// stderr may stand among the others. The error is tomlfile.Problems with the lines
// that make no sense.
func Parse(file, text string) (*Reading, error) {
	p := &parser{r: &Reading{File: file}}
	p.r.Format = recognise(text)
	read := map[Format]func(string){
		NetDiscover: p.netDiscover, NetPorts: p.netPorts, LinkInfo: p.linkInfo, Subnet: p.subnet,
		LFTs: p.lfts, SMLog: p.smLog, Complaints: func(l string) { p.bad("not a line of stderr") },
	}[p.r.Format]
	if read == nil {
		hint := "ibnetdiscover, ibnetdiscover -p, iblinkinfo -l, opensm-subnet.lst, opensm-lfts.dump and opensm.log are known"
		if p.r.Format == "iblinkinfo" {
			hint = "write it with iblinkinfo -l, which names both ends of a cable in one line"
		}
		return nil, tomlfile.Problems{{Pos: tomlfile.Pos{File: file}, Msg: "this is no output of a tool that is known", Hint: hint}}
	}
	for line := range strings.Lines(text) {
		p.line++
		line = strings.TrimRight(line, " \t\r\n")
		if c, ok := parseComplaint(line); ok && p.r.Format != SMLog {
			c.file = file
			p.r.complaints = append(p.r.complaints, c)
			continue
		}
		if strings.TrimSpace(line) != "" {
			read(line)
		}
		if len(p.problems) >= maxProblems {
			break
		}
	}
	if err := p.problems.Err(); err != nil {
		return nil, err
	}
	return p.r, nil
}

type parser struct {
	r        *Reading
	line     int
	problems tomlfile.Problems

	node  nodeClaim // the block at hand, of ibnetdiscover
	attrs map[string]string
	sw    GUID // the switch at hand, of LFTs

	refused []string // engines, of opensm's log, since the last that did
	why     string
}

func (p *parser) bad(format string, args ...any) {
	p.problems = append(p.problems, tomlfile.Problem{
		Pos: tomlfile.Pos{File: p.r.File, Line: p.line, Col: 1},
		Msg: fmt.Sprintf(format, args...),
	})
}

// recognise looks for the first line that only one tool writes.
func recognise(text string) Format {
	complaints := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		for _, r := range []struct {
			format Format
			re     *regexp.Regexp
		}{
			{NetDiscover, blockStart}, {NetDiscover, blockHead}, {NetPorts, netPort}, {LinkInfo, linkLine}, {Subnet, subnetLine},
			{LFTs, lftHead}, {SMLog, smLine}, {"iblinkinfo", linkInfoHead},
		} {
			if r.re.MatchString(line) {
				return r.format
			}
		}
		if _, ok := parseComplaint(line); ok {
			complaints = true
		}
	}
	if complaints {
		return Complaints
	}
	return ""
}

var (
	// umad errors of libibnetdisc, warnings and errors of libibmad and the tools.
	umadLine      = regexp.MustCompile(`query_smp\.c:\d+; .*DR path slid \d+; dlid \d+; ([0-9,]+) Attr 0x([0-9a-fA-F]+):(\d+)\)`)
	complaintLine = regexp.MustCompile(`^(ibwarn: |ibpanic: |ibdebug: |src/\S+: |\S*libibnetdisc/\S+:\d+; |\w+: iberror: |\S+\.c:\d+[;:] |can't open UMAD port )`)
)

func parseComplaint(line string) (complaint, bool) {
	if m := umadLine.FindStringSubmatch(line); m != nil {
		c := complaint{text: line}
		for _, hop := range strings.Split(m[1], ",") {
			n, err := strconv.Atoi(hop)
			if err != nil || n > 255 {
				return complaint{text: line}, true
			}
			c.path = append(c.path, n)
		}
		attr, err1 := strconv.ParseUint(m[2], 16, 16)
		port, err2 := strconv.Atoi(m[3])
		if err1 != nil || err2 != nil {
			return complaint{text: line}, true
		}
		c.attr, c.port = int(attr), port
		return c, true
	}
	return complaint{text: line}, complaintLine.MatchString(line)
}

// number reads a decimal of a matched line; what a pattern lets through and no
// fabric has, reports.
func (p *parser) number(s string, limit int) int { return p.numberIn(s, 10, limit) }

func (p *parser) numberIn(s string, base, limit int) int {
	n, err := strconv.ParseUint(s, base, 32)
	if err != nil || int(n) > limit {
		p.bad("%q is out of range (at most %d)", s, limit)
		return 0
	}
	return int(n)
}

const (
	maxLID  = 0xffff
	maxPort = 255
)

// guid reads hexadecimal digits, with or without 0x. 0 is none.
func (p *parser) guid(s string) GUID {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	if err != nil {
		p.bad("%q is not a GUID", s)
	}
	return GUID(n)
}

func kindOf(s string) Kind {
	switch strings.ToLower(s[:1]) {
	case "s":
		return Switch
	case "r":
		return Router
	}
	return Adapter
}

// ibnetdiscover: a block for each node, its attributes, its head, and a line for each
// port with a cable.
//
//	switchguid=0xb8599f0300100200(b8599f0300100200)
//	Switch	41 "S-b8599f0300100200"		# "leaf3" base port 0 lid 3 lmc 0
//	[1]	"H-98039b0300200040"[1](98039b0300200041) 		# "host4 HCA-1" lid 13 4xHDR
//	[37]	"S-b8599f0300100300"[3]		# "spine1" lid 4 4xHDR
//
//	Ca	1 "H-98039b0300200020"		# "host2 HCA-1"
//	[1](98039b0300200021) 	"S-b8599f0300100000"[2]		# lid 11 lmc 0 "leaf1" lid 1 4xHDR
var (
	blockStart = regexp.MustCompile(`^(vendid|devid|sysimgguid|switchguid|caguid|rtguid)\s*=`)
	attrLine   = regexp.MustCompile(`^([a-zA-Z_]+)\s*=\s*(.*)$`)
	blockHead  = regexp.MustCompile(`^(Switch|Ca|Rt)\s+(\d+)\s+"([SHR])-([0-9a-fA-F]{1,16})"(?:\s*#\s*(.*))?$`)
	headDesc   = regexp.MustCompile(`^"(.*)"(?: (?:base|enhanced) port 0(?: lid \d+ lmc \d+)?)?$`)
	cableLine  = regexp.MustCompile(`^\[(\d+)\](?:\[ext (\d+)\])?(?:\(([0-9a-fA-F]+)\))?\s*"([SHR])-([0-9a-fA-F]{1,16})"\[(\d+)\](?:\[ext \d+\])?(?:\(([0-9a-fA-F]+)\))?\s*(?:#\s*(.*))?$`)
	// What follows the mark: the adapter's own lid, then the peer's description and lid,
	// and the link; "?????" is a width that was not answered.
	cableOwn   = regexp.MustCompile(`^lid (\d+) lmc \d+ `)
	cablePeer  = regexp.MustCompile(`^"(.*)" lid (\d+)(?: (\S+)(?: s=\d+ w=\d+ v=\d+.*)?)?$`) // the rest with -f
	initiated  = regexp.MustCompile(`^# Initiated from node ([0-9a-fA-F]+) port [0-9a-fA-F]+$`)
	guidAndOwn = regexp.MustCompile(`^(?:0x)?([0-9a-fA-F]{1,16})(?:\(([0-9a-fA-F]{1,16})\))?$`)
)

func (p *parser) netDiscover(line string) {
	if m := initiated.FindStringSubmatch(line); m != nil {
		p.r.start = p.guid(m[1])
		return
	}
	if line[0] == '#' || line[0] == '$' {
		return
	}
	if m := blockHead.FindStringSubmatch(line); m != nil {
		p.head(m)
		return
	}
	if m := cableLine.FindStringSubmatch(line); m != nil {
		p.cable(m)
		return
	}
	if m := attrLine.FindStringSubmatch(line); m != nil {
		if p.attrs == nil {
			p.attrs = map[string]string{}
		}
		p.attrs[m[1]] = m[2]
		return
	}
	p.bad("a line that ibnetdiscover does not write: %.80q", line)
}

func (p *parser) head(m []string) {
	n := nodeClaim{guid: p.guid(m[4]), kind: kindOf(m[3]), size: p.number(m[2], maxPort), described: true}
	if (m[1] == "Switch") != (n.kind == Switch) {
		p.bad("a %s with the name of a %s", m[1], n.kind)
	}
	own := GUID(0)
	for key, value := range p.attrs {
		switch key {
		case "devid":
			n.device = p.numberIn(strings.TrimPrefix(value, "0x"), 16, 1<<31)
		case "sysimgguid":
			n.system = p.guid(value)
		case "switchguid", "caguid", "rtguid":
			g := guidAndOwn.FindStringSubmatch(value)
			if g == nil {
				p.bad("%q is not a GUID", value)
				continue
			}
			if said := p.guid(g[1]); said != n.guid {
				p.bad("%s says %v of a node that is called %v", key, said, n.guid)
			}
			if g[2] != "" {
				own = p.guid(g[2])
			}
		}
	}
	p.attrs = nil
	if m[5] != "" {
		d := headDesc.FindStringSubmatch(m[5])
		if d == nil {
			p.bad("no description of the node in %.80q", m[5])
			return
		}
		n.desc = d[1]
	}
	if n.guid == 0 {
		p.bad("a node without GUID")
		return
	}
	p.node = n
	p.r.nodes = append(p.r.nodes, n)
	if own != 0 && own != n.guid {
		p.r.ports = append(p.r.ports, portClaim{node: n, portGUID: own}) // port 0 of a switch
	}
}

func (p *parser) cable(m []string) {
	if p.node.guid == 0 {
		p.bad("a port before any node")
		return
	}
	c := portClaim{node: p.node, number: p.number(m[1], maxPort)}
	if c.number > p.node.size {
		p.bad("port %d of a node that has %d", c.number, p.node.size)
		return
	}
	if m[3] != "" {
		c.portGUID = p.guid(m[3])
	}
	peer := nodeClaim{guid: p.guid(m[5]), kind: kindOf(m[4])}
	c.peerPort = p.number(m[6], maxPort)
	if m[7] != "" {
		c.peerGUID = p.guid(m[7])
	}
	if c.number == 0 || c.peerPort == 0 || peer.guid == 0 {
		p.bad("a cable without port or node")
		return
	}
	rest := m[8]
	if own := cableOwn.FindStringSubmatch(rest); own != nil {
		c.lid = p.number(own[1], maxLID)
		rest = rest[len(own[0]):]
	}
	if d := cablePeer.FindStringSubmatch(rest); d != nil {
		peer.desc = d[1] // ibsim's net files may leave it out
		c.peerLID = p.number(d[2], maxLID)
		if d[3] != "" {
			c.speed = p.speed(d[3])
		}
	}
	c.peer = &peer
	p.r.ports = append(p.r.ports, c)
}

// speed reads "4xHDR"; question marks are what was not answered.
func (p *parser) speed(s string) Speed {
	if strings.Contains(s, "?") {
		return Speed{}
	}
	got, ok := parseSpeed(s)
	if !ok {
		p.bad("%q is not a width and speed", s)
	}
	return got
}

// ibnetdiscover -p: the number after the name is a LID, the GUID is the port's.
//
//	CA    22  1 0xb8599f0300100209 4x HDR - SW     3 41 0xb8599f0300100200 ( 'Mellanox Technologies Aggregation Node' - 'leaf3' )
//	SW     5 37 0xb8599f0300100400 4x SDR                                    'spine2'
var (
	netPort     = regexp.MustCompile(`^(CA|SW|RT)\s+(\d+)\s+(\d+) (0x[0-9a-fA-F]{1,16}) (\S+) (\S+)\s*(?:- (CA|SW|RT)\s+(\d+)\s+(\d+) (0x[0-9a-fA-F]{1,16}) )?(\(.*\)|'.*')$`)
	netPortDesc = regexp.MustCompile(`^\( '(.*)' - '(.*)' \)$`)
)

func (p *parser) netPorts(line string) {
	m := netPort.FindStringSubmatch(line)
	if m == nil {
		if line[0] != '#' && line[0] != '$' {
			p.bad("a line that ibnetdiscover -p does not write: %.80q", line)
		}
		return
	}
	c := portClaim{number: p.number(m[3], maxPort), portGUID: p.guid(m[4]), lid: p.number(m[2], maxLID)}
	c.node = nodeClaim{kind: kindOf(m[1]), described: true}
	if m[7] == "" {
		c.node.desc = strings.Trim(m[11], "'")
		p.r.ports = append(p.r.ports, c)
		return
	}
	c.speed = p.speed(m[5] + m[6])
	peer := nodeClaim{kind: kindOf(m[7])}
	c.peerLID, c.peerPort, c.peerGUID = p.number(m[8], maxLID), p.number(m[9], maxPort), p.guid(m[10])
	d := netPortDesc.FindStringSubmatch(m[11])
	if d == nil {
		p.bad("no descriptions in %.80q", m[11])
		return
	}
	c.node.desc, peer.desc = d[1], d[2]
	c.peer = &peer
	p.r.ports = append(p.r.ports, c)
}

// iblinkinfo -l. A CA's GUID is its port's.
//
//	0xb8599f0300100200 "                         leaf3"      3    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>  0x98039b0300200041     13    1[  ] "host4 HCA-1" (Could be 12X )
//	0xb8599f0300100200 "                         leaf3"      3    2[  ] ==(                Down/ Polling)==>             [  ] "" ( )
var (
	linkInfoHead = regexp.MustCompile(`^(Switch: 0x[0-9a-fA-F]+ .*:|CA: .*:)$`)
	linkLine     = regexp.MustCompile(`^(0x[0-9a-fA-F]{1,16})\s+"(.*?)"\s+(\d+)\s+(\d+)\[ *\d*\s*\] ==\((.*?)\)==>\s+(?:(0x[0-9a-fA-F]{1,16})\s+(\d+)\s+(\d+))?\s*\[ *\d*\s*\] "(.*)" \((.*)\)$`)
	linkState    = regexp.MustCompile(`^\s*(?:(\d+)X\s+(\S+)(?: Gbps)?\s+)?(\w+)\s*/\s*(\w+)\s*$`)
	couldWidth   = regexp.MustCompile(`Could be (\d+)X`)
	couldSpeed   = regexp.MustCompile(`Could be ([0-9.]+|FDR10)(?: Gbps)?`)
)

func (p *parser) linkInfo(line string) {
	m := linkLine.FindStringSubmatch(line)
	if m == nil {
		if line[0] != '#' && line[0] != '$' {
			p.bad("a line that iblinkinfo -l does not write: %.80q", line)
		}
		return
	}
	c := portClaim{portGUID: p.guid(m[1]), lid: p.number(m[3], maxLID), number: p.number(m[4], maxPort)}
	c.node = nodeClaim{desc: strings.TrimSpace(m[2]), described: true}
	s := linkState.FindStringSubmatch(m[5])
	if s == nil {
		p.bad("no state of a link in %.80q", m[5])
		return
	}
	c.state = s[3]
	if s[1] != "" {
		name, ok := lane(s[2])
		if !ok {
			p.bad("%q is not the speed of a lane", s[2])
			return
		}
		c.speed = Speed{p.number(s[1], 12), name}
	}
	if m[6] != "" {
		c.peer = &nodeClaim{desc: m[9]}
		c.peerGUID, c.peerLID, c.peerPort = p.guid(m[6]), p.number(m[7], maxLID), p.number(m[8], maxPort)
		if w := couldWidth.FindStringSubmatch(m[10]); w != nil {
			c.could.Width = p.number(w[1], 12)
		}
		for _, w := range couldSpeed.FindAllStringSubmatch(m[10], -1) {
			if name, ok := lane(w[1]); ok && strings.Contains(w[0], ".") || w[1] == "FDR10" {
				c.could.Lane = name
			}
		}
	}
	p.r.ports = append(p.r.ports, c)
}

// opensm-subnet.lst: a line for each end of a cable, its numbers hexadecimal.
//
//	{ SW Ports:29 SystemGUID:b8599f0300100000 NodeGUID:b8599f0300100000 PortGUID:b8599f0300100000 VenID:0002C9 DevID:D2F0 Rev:000000A1 {leaf1} LID:0001 PN:01 } { CA-SM Ports:01 .. {host1 HCA-1} LID:000A PN:01 } PHY=4x LOG=ACT SPD=50
var (
	subnetLine = regexp.MustCompile(`^\{ (.*? PN:[0-9a-fA-F]+) \} \{ (.*? PN:[0-9a-fA-F]+) \} PHY=(\S+) LOG=(\S+) SPD=(\S+)\s*$`)
	subnetNode = regexp.MustCompile(`^(SW|CA|RT)(?:-\w+)? Ports:([0-9a-fA-F]+) SystemGUID:([0-9a-fA-F]+) NodeGUID:([0-9a-fA-F]+) PortGUID:([0-9a-fA-F]+) VenID:[0-9a-fA-F]+ DevID:([0-9a-fA-F]+) Rev:[0-9a-fA-F]+ \{(.*)\} LID:([0-9a-fA-F]+) PN:([0-9a-fA-F]+)$`)
)

// states are opensm's names of logical port states.
var states = map[string]string{"ACT": "Active", "INI": "Initialize", "ARM": "Armed", "DWN": "Down"}

func (p *parser) subnet(line string) {
	m := subnetLine.FindStringSubmatch(line)
	if m == nil {
		p.bad("a line that opensm-subnet.lst does not have: %.80q", line)
		return
	}
	here, ok1 := p.subnetEnd(m[1])
	there, ok2 := p.subnetEnd(m[2])
	if !ok1 || !ok2 {
		return
	}
	if width := strings.TrimRight(m[3], "xX"); !strings.Contains(m[3]+m[5], "?") {
		name, ok := lane(m[5])
		if !ok {
			p.bad("%q is not the speed of a lane", m[5])
			return
		}
		here.speed = Speed{p.number(width, 12), name}
	}
	here.state = states[m[4]]
	here.peer, here.peerGUID, here.peerPort, here.peerLID = &there.node, there.portGUID, there.number, there.lid
	here.node.described = true
	p.r.nodes = append(p.r.nodes, here.node, there.node)
	p.r.ports = append(p.r.ports, here)
}

func (p *parser) subnetEnd(s string) (portClaim, bool) {
	m := subnetNode.FindStringSubmatch(s)
	if m == nil {
		p.bad("not an end of a link: %.80q", s)
		return portClaim{}, false
	}
	device := p.numberIn(m[6], 16, 1<<32-1)
	if device > 0xffff { // the second end has the bytes swapped: CF090000
		device >>= 16
	}
	n := nodeClaim{
		guid: p.guid(m[4]), system: p.guid(m[3]), kind: kindOf(m[1]), desc: strings.TrimSpace(m[7]),
		device: device, size: p.numberIn(m[2], 16, maxPort),
	}
	if n.guid == 0 {
		p.bad("a node without GUID")
		return portClaim{}, false
	}
	c := portClaim{node: n, portGUID: p.guid(m[5]), number: p.numberIn(m[9], 16, maxPort), lid: p.numberIn(m[8], 16, maxLID)}
	return c, c.number > 0
}
