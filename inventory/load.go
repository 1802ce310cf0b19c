package inventory

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// The file's tables, as decoded. Strings that may hold a range ("node[01-16]")
// are expanded when the inventory is built from them.
type (
	// fileTable is what exists in a lab, or would exist.
	fileTable struct {
		Version  int           `toml:"version,required"` // 1
		Name     string        `toml:"name"`             // default: the file's name without ".toml"
		Defaults defaultsTable `toml:"defaults"`
		Switches []switchTable `toml:"switch"`
		Hosts    []hostTable   `toml:"host"`
		Links    []linkTable   `toml:"link"`
		Manager  *managerTable `toml:"sharp"`
	}
	// defaultsTable is for all tables of the file that do not say otherwise.
	defaultsTable struct {
		Rate        *BitRate `toml:"rate"`        // of cables
		Delay       Duration `toml:"delay"`       // of cables, one way: propagation and fixed latency
		Kind        string   `toml:"kind"`        // of switches
		Aggregators int      `toml:"aggregators"` // of switches
		Buffer      Bytes    `toml:"buffer"`      // of each egress port of switches
		ECN         Bytes    `toml:"ecn"`         // of switches: the egress queue length above which packets are marked
		GPUs        int      `toml:"gpus"`        // of hosts
		GPUModel    string   `toml:"gpu_model"`   // of hosts
		Launcher    string   `toml:"launcher"`    // of hosts
		User        string   `toml:"user"`        // as of ssh, like the rest
		Jump        string   `toml:"jump"`        // what to go through, nearest first
		Key         string   `toml:"key"`         // private key file
		KnownHosts  string   `toml:"known_hosts"` // file of the keys of hosts
		Certificate string   `toml:"certificate"` // of the key
		SSHConfig   string   `toml:"ssh_config"`  // ssh_config file; "none": none is read
		Sudo        bool     `toml:"sudo"`        // what needs root goes through sudo
		Leases      string   `toml:"leases"`      // directory on hosts for leases
	}
	// switchTable is a switch, which may aggregate; or several, by a range in its name: all ranges of
	// a table step together.
	switchTable struct {
		At          string `toml:",path"`
		Name        string `toml:"name,required"` // may hold a range: "tor[1-4]"
		Kind        string `toml:"kind"`          // "tofino" and "bmv2" speak P4Runtime, "soft" is the embedded switch, "quantum" InfiniBand with SHARP, "script" is driven by commands
		Rack        string `toml:"rack"`          // of a ToR; default: its name
		Control     string `toml:"control"`       // host:port of its P4Runtime server or aggregation manager; may hold a range
		DeviceID    *int64 `toml:"device_id"`     // of P4Runtime; default: Stratum's 1, the SDE's 0, otherwise its number in the file, from 1
		Aggregators *int   `toml:"aggregators"`   // slots of its aggregator array, at most 16,777,216; used where hosts are cabled to the switch, as in NetPack: spines forward; 0: no INA here
		Buffer      *Bytes `toml:"buffer"`        // of each egress port; 0: a default
		ECN         *Bytes `toml:"ecn"`           // egress queue length above which packets are marked; 0: never
		GUID        []GUID `toml:"guid,single"`   // node GUID of an InfiniBand switch; a list where the name has a range
		AN          []GUID `toml:"an,single"`     // of its aggregation node; a list where the name has a range
		SHARP       *SHARP `toml:"sharp"`

		DeviceConfig string     `toml:"device_config" words:"stratum,bfrt,sde,bmv2"` // the form in which its server takes a program: Stratum's, that of BFRuntime or P4Runtime of Intel's SDE, or BMv2's
		Program      *Program   `toml:"program"`
		Push         string     `toml:"push" words:"always,changed"` // when the program is loaded; "changed" spares the links of a Tofino, which go down for seconds
		GNMI         string     `toml:"gnmi"`                        // host:port of its gNMI server; may hold a range
		Ports        any        `toml:"ports"`                       // what its server calls ports: {"[1-32]" = "[1-32]/0"}
		Port         *PortSetup `toml:"port"`
		TLS          *TLS       `toml:"tls"`
		SSH          sshTable   `toml:"ssh"`
		Script       *Script    `toml:"script"`

		ReplaceProgram bool `toml:"replace_program"` // a run may load its program where the switch runs one of somebody else; it is put back at the end, without its entries
	}
	// hostTable is a server that runs workers, parameter servers or both; or several, by a range in its
	// name: all ranges of a table step together.
	hostTable struct {
		At       string     `toml:",path"`
		Name     string     `toml:"name,required"` // may hold a range: "node[01-16]"
		Rack     string     `toml:"rack"`          // default: that of the switch its first NIC is cabled to
		Launcher *string    `toml:"launcher"`      // who reaches it; default: ssh
		GPUs     *int       `toml:"gpus"`          // that jobs may use
		GPUModel *string    `toml:"gpu_model"`     // as one would say it: "H100"
		SSH      sshTable   `toml:"ssh"`
		NICs     []nicTable `toml:"nic,single"`
	}
	// sshTable is how a machine is logged in to. What it says wins over the user's ssh_config, which fills
	// in what it leaves out.
	sshTable struct {
		At          string  `toml:",path"`
		Address     string  `toml:"address"`     // what one would write after "ssh": host or host:port; may hold a range
		User        *string `toml:"user"`        // may hold a range; default: ssh_config's, or the current user
		Jump        *string `toml:"jump"`        // what to go through, by commas, nearest first: hosts of the inventory or user@host:port; "none": nothing
		Key         *string `toml:"key"`         // private key file; default: ssh_config's, the agent's, then the usual files
		Certificate *string `toml:"certificate"` // of the key; default: the one beside it, or ssh_config's
		KnownHosts  *string `toml:"known_hosts"` // file of the keys of hosts; default: ssh_config's, or the user's and the machine's
		Config      *string `toml:"config"`      // ssh_config file; "none": none is read
		Sudo        *bool   `toml:"sudo"`        // what needs root goes through sudo, which must not ask for a password
		Leases      *string `toml:"leases"`      // directory on the host for its leases, of mode 1777 where users log in as different people; default: .inabench in the home
	}
	// nicTable is a host's network interface and the cable in it.
	nicTable struct {
		At      string    `toml:",path"`
		Device  string    `toml:"device"`        // as the operating system names it: "ens1f0"
		Port    string    `toml:"port,required"` // of the switch at the other end: "tor1/3"; may hold a range
		Rate    *BitRate  `toml:"rate"`          // of the cable
		Delay   *Duration `toml:"delay"`         // one way: propagation and fixed latency of the cable
		Address string    `toml:"address"`       // for data, with its network: "10.1.0.1/24"; may hold a range
		RDMA    string    `toml:"rdma"`          // RDMA device and its port: "mlx5_0:1"
		GUID    []GUID    `toml:"guid,single"`   // node GUID of the InfiniBand adapter; a list where the host's name has a range
	}
	// linkTable is a cable between two switches; or several, by ranges in its ends.
	linkTable struct {
		At    string    `toml:",path"`
		A     string    `toml:"a,required"` // "tor1/31"
		B     string    `toml:"b,required"` // "spine1/1"
		Rate  *BitRate  `toml:"rate"`       // of the cable
		Delay *Duration `toml:"delay"`      // one way: propagation and fixed latency
	}
)

// WordsOf implements tomlfile.Wordy.
func (*switchTable) WordsOf(key string) []string { return kindsOf(key) }

// WordsOf implements tomlfile.Wordy.
func (*defaultsTable) WordsOf(key string) []string { return kindsOf(key) }

func kindsOf(key string) []string {
	if key == "kind" {
		return Kinds
	}
	return nil
}

// Describe lists what a file may say.
func Describe() tomlfile.Entry { return tomlfile.Describe(fileTable{}) }

// Load reads an inventory from a file. A file that breaks rules gives
// tomlfile.Problems: all of them, each with its position.
func Load(path string) (*Inventory, error) {
	text, err := bounded.ReadFile(path, bounded.Config)
	if err != nil {
		return nil, fmt.Errorf("read inventory: %w", err)
	}
	return Parse(path, text)
}

// Parse is Load for a text at hand. name is the path for messages and File;
// relative paths of ssh's files are meant from its folder.
func Parse(name string, text []byte) (*Inventory, error) {
	f, err := tomlfile.Parse(name, text)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	b := &builder{
		File: f,
		inv: &Inventory{
			File:   name,
			SHA256: hex.EncodeToString(sum[:]),
			Text:   string(text),
			where:  map[string]tomlfile.Pos{},
		},
		addresses: map[string]tomlfile.Pos{},
		ports:     map[Port]tomlfile.Pos{},
		switches:  map[string]int{},
	}
	f.Decode(&b.t)
	if !f.Full() { // which is an error of its own
		b.build()
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	return b.inv, nil
}

// builder turns tables into an Inventory and checks them on the way.
type builder struct {
	*tomlfile.File
	t         fileTable
	inv       *Inventory
	addresses map[string]tomlfile.Pos // "ssh 10.0.0.1:22" and so on
	ports     map[Port]tomlfile.Pos   // what is cabled already
	switches  map[string]int          // index in inv.Switches
	broken    bool                    // a cable ends nowhere: reachability says nothing
}

func (b *builder) build() {
	if b.t.Version != 1 && b.Has("version") {
		b.Problemf("version", "this inabench reads version = 1", "unknown version %d", b.t.Version)
	}
	b.inv.Name = b.t.Name
	if b.inv.Name == "" {
		b.inv.Name = strings.TrimSuffix(filepath.Base(b.inv.File), filepath.Ext(b.inv.File))
	}
	d := b.t.Defaults
	b.positive("defaults.rate", d.Rate)
	b.aggregators("defaults.aggregators", d.Aggregators)
	b.gpus("defaults.gpus", d.GPUs)
	for i := range b.t.Switches {
		if b.addSwitch(&b.t.Switches[i]); b.Full() {
			return
		}
	}
	for i := range b.t.Hosts {
		if b.addHost(&b.t.Hosts[i]); b.Full() {
			return
		}
	}
	for i := range b.t.Links {
		if b.addLink(&b.t.Links[i]); b.Full() {
			return
		}
	}
	if len(b.t.Hosts) == 0 {
		b.Problemf("host", `add a [[host]] table`, "no hosts")
	}
	b.racks()
	b.jumps()
	b.servers()
	if b.t.Manager != nil {
		b.manager(b.t.Manager)
	}
	if !b.broken {
		b.reachability()
	}
}

func (b *builder) addSwitch(t *switchTable) {
	n := b.ranges(
		[]string{t.At + ".name", t.At + ".rack", t.At + ".control", t.At + ".gnmi", t.SSH.At + ".address", t.SSH.At + ".user"},
		[]string{t.Name, t.Rack, t.Control, t.GNMI, t.SSH.Address, or(t.SSH.User, "")})
	kind := cmp.Or(t.Kind, b.t.Defaults.Kind)
	if kind == "" && !b.Has(t.At+".kind") && !(b.Has("defaults.kind") && b.Reported("defaults.kind")) {
		b.KeyProblemf(t.At, tomlfile.OneOf("", Kinds), "missing kind in switch")
	}
	sw := Switch{Kind: Kind(kind)}
	b.aggregators(t.At+".aggregators", or(t.Aggregators, 0))
	switch {
	case sw.Kind == Quantum:
		if t.Aggregators != nil {
			b.KeyProblemf(t.At+".aggregators", "write sharp = {trees = 2, jobs = 1}", "a quantum switch has SHARP trees, no aggregators")
		}
	default:
		if t.SHARP != nil && sw.Kind != Soft && slices.Contains(Kinds, kind) {
			b.KeyProblemf(t.At+".sharp", "write aggregators = 4096", "SHARP exists on quantum switches, this one is %s", kind)
		}
		sw.Aggregators = or(t.Aggregators, b.t.Defaults.Aggregators)
	}
	if t.SHARP != nil {
		sw.SHARP = *t.SHARP
		b.notNegative(t.At+".sharp.trees", t.SHARP.Trees)
		if t.SHARP.Jobs < 1 {
			b.Problemf(t.At+".sharp.jobs", "write jobs = 1", "no job could use a tree: jobs must be at least 1")
		}
	}
	sw.Buffer = or(t.Buffer, b.t.Defaults.Buffer)
	sw.ECN = or(t.ECN, b.t.Defaults.ECN)
	sw.Server = b.server(t, sw.Kind)
	b.deviceID(t, sw.DeviceConfig)
	guids, ans := b.guids(t.At+".guid", t.GUID, n), b.guids(t.At+".an", t.AN, n)
	if len(t.AN) > 0 && sw.Kind != Quantum && slices.Contains(Kinds, kind) {
		b.KeyProblemf(t.At+".an", "", "aggregation nodes exist on quantum switches, this one is %s", kind)
	}
	for i := range n {
		sw.Name, sw.Rack = expand(t.Name, i), expand(t.Rack, i)
		sw.GUID, sw.AN = guids[i], ans[i]
		b.uniqueGUID(t.At+".guid", sw.GUID, "")
		b.uniqueGUID(t.At+".an", sw.AN, "")
		sw.DeviceID = t.deviceID(i, len(b.inv.Switches), sw.DeviceConfig)
		sw.GNMI = b.address(t.At+".gnmi", expand(t.GNMI, i), "9339")
		sw.SSH = b.ssh(&t.SSH, i)
		sw.Control = b.address(t.At+".control", expand(t.Control, i), "")
		// One aggregation manager serves a whole fabric, one P4Runtime server several devices.
		if sw.Control != "" && sw.Kind != Quantum {
			b.unique(t.At+".control", fmt.Sprintf("control address %s (device %d)", sw.Control, sw.DeviceID))
		}
		if b.name(t.At+".name", sw.Name) {
			b.switches[sw.Name] = len(b.inv.Switches)
			b.inv.Switches = append(b.inv.Switches, sw)
		}
	}
}

// deviceName says whether Linux takes a name for a network device.
func deviceName(s string) bool {
	return len(s) < 16 && s != "." && s != ".." && !strings.ContainsFunc(s, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || unicode.IsControl(r) })
}

func (b *builder) addHost(t *hostTable) {
	d := b.t.Defaults
	paths, texts := []string{t.At + ".name", t.At + ".rack", t.SSH.At + ".address", t.SSH.At + ".user"}, []string{t.Name, t.Rack, t.SSH.Address, or(t.SSH.User, "")}
	devices := map[string]bool{}
	for _, nic := range t.NICs {
		paths = append(paths, nic.At+".port", nic.At+".address")
		texts = append(texts, nic.Port, nic.Address)
		if nic.Device != "" && devices[nic.Device] {
			b.Problemf(nic.At+".device", "", "device %s twice in one host", nic.Device)
		}
		if nic.Device != "" && !deviceName(nic.Device) {
			b.Problemf(nic.At+".device", "", "%q is no name of a device: Linux has up to 15 bytes, without blanks, / and :", nic.Device)
		}
		port := b.rdma(nic.At+".rdma", nic.RDMA)
		if port != "" && devices[port] {
			b.Problemf(nic.At+".rdma", "", "%s twice in one host", port)
		}
		if nic.Device == "" && nic.RDMA == "" && len(t.NICs) > 1 {
			b.KeyProblemf(nic.At, `write device = "ens1f0" or rdma = "mlx5_0:1"`, "one of several nics needs a device to be told apart")
		}
		devices[nic.Device], devices[port] = true, true
		if nic.Rate == nil && d.Rate == nil {
			b.missingRate(nic.At)
		}
		b.positive(nic.At+".rate", nic.Rate)
	}
	if at := t.At + ".nic"; len(t.NICs) == 0 && !(b.Has(at) && b.Reported(at)) {
		b.KeyProblemf(t.At, `write nic = {port = "tor1/1", rate = "25Gbit/s"}`, "host without a nic")
	}
	b.gpus(t.At+".gpus", or(t.GPUs, 0))
	n := b.ranges(paths, texts)
	guids := make([][]GUID, len(t.NICs))
	for k, nic := range t.NICs {
		guids[k] = b.guids(nic.At+".guid", nic.GUID, n)
	}
	for i := range n {
		h := Host{
			Name:     expand(t.Name, i),
			Rack:     expand(t.Rack, i),
			GPUs:     or(t.GPUs, d.GPUs),
			GPUModel: or(t.GPUModel, d.GPUModel),
			Launcher: or(t.Launcher, d.Launcher),
			SSH:      b.ssh(&t.SSH, i),
		}
		// A host that others go through is not behind itself.
		if t.SSH.Jump == nil && h.SSH.Jump == h.Name {
			h.SSH.Jump = ""
		}
		// It stays as it was written: what has no port has ssh_config's, or 22.
		if address := b.address(t.SSH.At+".address", h.SSH.Address, "22"); address != "" {
			b.unique(t.SSH.At+".address", "ssh address "+address)
		}
		for k, nic := range t.NICs {
			n := NIC{Device: nic.Device, Rate: or(nic.Rate, or(d.Rate, 0)), Delay: or(nic.Delay, d.Delay).Std(), GUID: guids[k][i]}
			if rdmaPattern.MatchString(nic.RDMA) { // otherwise reported
				n.RDMA = b.rdma(nic.At+".rdma", nic.RDMA)
			}
			_, port, _ := strings.Cut(n.RDMA, ":")
			b.uniqueGUID(nic.At+".guid", n.GUID, port)
			if p, ok := b.port(nic.At+".port", expand(nic.Port, i)); ok {
				n.Switch, n.Port = p.Switch, p.Port
			}
			if nic.Address != "" {
				var err error
				if n.Address, err = netip.ParsePrefix(expand(nic.Address, i)); err != nil {
					b.Problemf(nic.At+".address", `write it like "10.0.0.1/24"`, "%q is not an address with prefix length", expand(nic.Address, i))
				} else {
					b.unique(nic.At+".address", "data address "+n.Address.Addr().String())
				}
			}
			h.NICs = append(h.NICs, n)
			b.inv.where[nicKey(h.Name, k)] = b.KeyPos(nic.At)
		}
		if b.name(t.At+".name", h.Name) {
			b.inv.Hosts = append(b.inv.Hosts, h)
		}
	}
}

// ssh is how the i-th machine of a table is reached.
func (b *builder) ssh(t *sshTable, i int) SSH {
	d := b.t.Defaults
	s := SSH{
		Address:     expand(t.Address, i),
		User:        d.User,
		Jump:        or(t.Jump, d.Jump),
		Key:         b.file(or(t.Key, d.Key)),
		Certificate: b.file(or(t.Certificate, d.Certificate)),
		KnownHosts:  b.file(or(t.KnownHosts, d.KnownHosts)),
		Config:      or(t.Config, d.SSHConfig),
		Sudo:        or(t.Sudo, d.Sudo),
		Leases:      or(t.Leases, d.Leases),
	}
	if t.User != nil {
		s.User = expand(*t.User, i)
	}
	if s.Config != "none" {
		s.Config = b.file(s.Config)
	}
	return s
}

func (b *builder) addLink(t *linkTable) {
	if t.Rate == nil && b.t.Defaults.Rate == nil {
		b.missingRate(t.At)
	}
	b.positive(t.At+".rate", t.Rate)
	n := b.ranges([]string{t.At + ".a", t.At + ".b"}, []string{t.A, t.B})
	for i := range n {
		l := Link{Rate: or(t.Rate, or(b.t.Defaults.Rate, 0)), Delay: or(t.Delay, b.t.Defaults.Delay).Std()}
		var okA, okB bool
		l.A, okA = b.port(t.At+".a", expand(t.A, i))
		l.B, okB = b.port(t.At+".b", expand(t.B, i))
		if okA && okB && l.A.Switch == l.B.Switch {
			b.Problemf(t.At+".b", "", "link from switch %s to itself", l.A.Switch)
			b.broken = true
		}
		b.inv.Links = append(b.inv.Links, l)
	}
}

// ranges is how many items a table stands for. All ranges in it step together.
func (b *builder) ranges(paths, patterns []string) int {
	n, first := 1, ""
	for i, p := range patterns {
		k, ranged, err := rangeLen(p)
		switch {
		case err != nil:
			b.Problemf(paths[i], tomlfile.HintOf(err), "%v", err)
			return 0
		case !ranged:
		case first == "" && i > 0 && strings.HasSuffix(paths[0], ".name"):
			b.Problemf(paths[i], "", "a range here needs a range in name")
			return 0
		case first == "":
			n, first = k, p
		case k != n:
			b.Problemf(paths[i], "", "%q stands for %d, %q for %d", p, k, first, n)
			return 0
		}
	}
	return n
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// name takes a name of the space that hosts and switches share. An empty one has
// been reported as missing.
func (b *builder) name(path, name string) bool {
	if name == "" {
		if b.Has(path) {
			b.Problemf(path, "", "name is empty")
		}
		return false
	}
	if !namePattern.MatchString(name) {
		b.Problemf(path, "letters, digits, '.', '_' and '-', beginning with a letter or digit", "%q is not a name", name)
		return false
	}
	if first, dup := b.inv.where[name]; dup {
		b.Problemf(path, "first at "+first.String(), "duplicate name %q", name)
		return false
	}
	b.inv.where[name] = b.Pos(path)
	return true
}

// unique takes an address of its kind.
func (b *builder) unique(path, address string) {
	if first, dup := b.addresses[address]; dup {
		b.Problemf(path, "first at "+first.String(), "duplicate %s", address)
		return
	}
	b.addresses[address] = b.Pos(path)
}

// uniqueGUID takes a GUID, or with a port that port of what has it.
func (b *builder) uniqueGUID(path string, g GUID, port string) {
	if g == 0 {
		return
	}
	what := "guid " + g.String()
	if port != "" {
		what += " port " + port
	}
	b.unique(path, what)
}

// address checks "host:port"; without a port it gets the given one, if any.
func (b *builder) address(path, s, port string) string {
	if s == "" || strings.HasPrefix(s, "unix:") {
		return s
	}
	if port != "" {
		if _, _, err := net.SplitHostPort(s); err != nil && !strings.ContainsAny(s, "@ /") {
			if bare := strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"); !strings.Contains(bare, ":") || net.ParseIP(bare) != nil {
				s = net.JoinHostPort(bare, port)
			}
		}
	}
	host, p, err := net.SplitHostPort(s)
	n, perr := strconv.ParseUint(p, 10, 16)
	if err != nil || perr != nil || n == 0 || host == "" || strings.ContainsAny(host, "@ /") {
		hint := `write it like "10.0.0.1:9559"`
		if port != "" {
			hint = fmt.Sprintf("write it like %q", "10.0.0.1:"+port)
		}
		if strings.Contains(s, "@") {
			hint = `write the user apart: user = "root"`
		}
		b.Problemf(path, hint, "%q is not an address", s)
		return ""
	}
	return s
}

// file is a path meant from the inventory's folder.
func (b *builder) file(path string) string {
	if path == "" || filepath.IsAbs(path) || strings.HasPrefix(path, "~") {
		return path
	}
	return filepath.Join(filepath.Dir(b.inv.File), path)
}

// port reads "tor1/3" and takes that port.
func (b *builder) port(path, s string) (Port, bool) {
	i := strings.LastIndexByte(s, '/')
	n, err := strconv.ParseUint(s[i+1:], 10, 32)
	p := Port{s[:max(i, 0)], uint32(n)}
	_, known := b.switches[p.Switch]
	first, dup := b.ports[p]
	switch {
	case s == "" && !b.Has(path): // reported as missing
	case s == unknownPort:
		b.Problemf(path, `write it like "tor1/3"`, "it is not known yet which port of which switch the cable is in")
	case i < 1 || err != nil:
		b.Problemf(path, `write it like "tor1/3"`, "%q is not a switch port", s)
	case !known:
		b.Problemf(path, tomlfile.DidYouMean(p.Switch, b.inv.SwitchNames()), "link to unknown switch %q", p.Switch)
	case dup:
		b.Problemf(path, "first at "+first.String(), "port %v is cabled twice", p)
	default:
		b.ports[p] = b.Pos(path)
		return p, true
	}
	b.broken = true
	return Port{}, false
}

// Kinds are those of switches that an inventory can name.
var Kinds = []string{string(Tofino), string(BMv2), string(Soft), string(Quantum), string(Scripted)}

func (b *builder) missingRate(at string) {
	if b.Has(at+".rate") || b.Has("defaults.rate") { // there, but wrong: reported
		return
	}
	b.KeyProblemf(at, `write rate = "100Gbit/s" here or in [defaults]`, "missing rate")
}

func (b *builder) positive(path string, r *BitRate) {
	if r != nil && *r <= 0 {
		b.Problemf(path, "", "rate must be above zero")
	}
}

func (b *builder) notNegative(path string, n int) {
	if n < 0 {
		b.Problemf(path, "", "%s must not be negative", path[strings.LastIndexByte(path, '.')+1:])
	}
}

func (b *builder) aggregators(path string, n int) {
	if b.notNegative(path, n); n > MostAggregators {
		b.Problemf(path, "", "%d aggregators on a switch: at most %d", n, MostAggregators)
	}
}

func (b *builder) gpus(path string, n int) {
	if b.notNegative(path, n); n > MostGPUs {
		b.Problemf(path, "", "%d GPUs on a host: at most %d", n, MostGPUs)
	}
}

// racks gives ToRs without a rack their own name, and hosts that of their ToR.
func (b *builder) racks() {
	for i := range b.inv.Hosts {
		h := &b.inv.Hosts[i]
		for k, nic := range h.NICs {
			j, ok := b.switches[nic.Switch]
			if !ok {
				continue
			}
			sw := &b.inv.Switches[j]
			if sw.Rack == "" {
				sw.Rack = sw.Name
			}
			if k == 0 && h.Rack == "" {
				h.Rack = sw.Rack
			}
		}
	}
}

// jumps checks that jump hosts exist and do not go in circles.
func (b *builder) jumps() {
	via, names := map[string][]string{}, b.inv.HostNames()
	for _, h := range b.inv.Hosts {
		via[h.Name] = h.SSH.Jumps()
	}
	report := func(h *Host, hint, format string, args ...any) {
		at := b.Pos("defaults.jump")
		for i := range b.t.Hosts {
			t := &b.t.Hosts[i]
			if t.SSH.Jump != nil && b.inv.where[h.Name] == b.Pos(t.At+".name") {
				at = b.Pos(t.SSH.At + ".jump")
			}
		}
		b.Report(at, hint, format, args...)
	}
	// leads tells whether the way to a host passes another; seen are those looked at.
	var leads func(from, to string, seen map[string]bool) bool
	leads = func(from, to string, seen map[string]bool) bool {
		seen[from] = true
		return slices.ContainsFunc(via[from], func(jump string) bool {
			return jump == to || !seen[jump] && leads(jump, to, seen)
		})
	}
	for i := range b.inv.Hosts {
		h := &b.inv.Hosts[i]
		for _, jump := range via[h.Name] {
			if _, ok := via[jump]; ok || strings.ContainsAny(jump, "@:.") {
				continue // anything that looks like an address is one
			}
			hint := `name a host of this file or write "user@host:22"`
			if near, ok := tomlfile.Nearest(jump, names); ok {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			report(h, hint, "unknown jump host %q", jump)
		}
		if leads(h.Name, h.Name, map[string]bool{}) {
			report(h, "", "host %s is reached through itself", h.Name)
		}
	}
}

// reachability reports hosts that no path joins to the rest.
func (b *builder) reachability() {
	part := components(b.inv)
	count := map[int]int{}
	for _, h := range b.inv.Hosts {
		seen := map[int]bool{}
		for _, nic := range h.NICs {
			if c := part[nic.Switch]; !seen[c] {
				seen[c] = true
				count[c]++
			}
		}
	}
	// The largest part is the lab; of equals the one that comes first.
	main, first := -1, map[int]string{}
	for _, h := range b.inv.Hosts {
		for _, nic := range h.NICs {
			c := part[nic.Switch]
			if first[c] == "" {
				first[c] = h.Name
			}
			if main < 0 || count[c] > count[main] {
				main = c
			}
		}
	}
	cut := map[int][]Host{}
	var order []int
	for _, h := range b.inv.Hosts {
		reaches := len(h.NICs) == 0 // reported
		for _, nic := range h.NICs {
			reaches = reaches || part[nic.Switch] == main
		}
		if !reaches {
			c := part[h.NICs[0].Switch]
			if len(cut[c]) == 0 {
				order = append(order, c)
			}
			cut[c] = append(cut[c], h)
		}
	}
	for _, c := range order {
		h := cut[c][0]
		who := "host " + h.Name
		if n := len(cut[c]); n > 1 {
			who = fmt.Sprintf("hosts %s and %d more", h.Name, n-1)
		}
		b.Report(b.inv.where[h.Name], "add a [[link]] from "+h.NICs[0].Switch, "%s cannot reach %s", who, first[main])
	}
}

// components numbers the connected parts of the switches.
func components(inv *Inventory) map[string]int {
	parent := map[string]string{}
	find := func(s string) string {
		for p := parent[s]; p != "" && p != s; p = parent[s] {
			parent[s] = parent[p]
			s = parent[s]
		}
		return s
	}
	for _, sw := range inv.Switches {
		parent[sw.Name] = sw.Name
	}
	for _, l := range inv.Links {
		parent[find(l.A.Switch)] = find(l.B.Switch)
	}
	number, out := map[string]int{}, map[string]int{}
	for _, sw := range inv.Switches {
		root := find(sw.Name)
		if _, ok := number[root]; !ok {
			number[root] = len(number)
		}
		out[sw.Name] = number[root]
	}
	return out
}

func nicKey(host string, i int) string { return host + "/" + strconv.Itoa(i) }

// or is *p, or a default.
func or[T any](p *T, def T) T {
	if p == nil {
		return def
	}
	return *p
}
