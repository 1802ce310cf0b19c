// Package inventory describes what exists in a lab: hosts, their NICs and GPUs,
// switches, the cables between them, and the limits of all of these.
//
// An inventory is one TOML file. Load reads it and reports every problem at
// once, each with its line; Topology turns it into a graph of directed links.
//
//	version = 1
//
//	[defaults]           # for all tables that do not say: rate, delay, kind, aggregators,
//	rate = "100Gbit/s"   # buffer, ecn, gpus, gpu_model, user, jump, key, known_hosts,
//	                     # certificate, ssh_config, sudo
//
//	[[switch]]
//	name = "tor1"
//	kind = "tofino"
//	control = "10.0.1.1:9559"
//	aggregators = 4096
//
//	[[host]]
//	name = "node[01-16]" # sixteen hosts; all ranges of a table step together
//	gpus = 8
//	ssh = {address = "10.0.0.[1-16]", user = "lab"}
//	nic = {device = "ens1f0", port = "tor1/[1-16]", address = "10.1.0.[1-16]/24"}
//
//	[[link]]
//	a = "tor1/31"
//	b = "spine1/1"
//	rate = "400Gbit/s"
//
// Addresses and devices may be left out of an inventory that only an emulation or
// a model uses; CheckLab says what a lab lacks.
//
// InfiniBand is known by RDMA ports and GUIDs, which are lists where a table has a range;
// package ibfabric writes such inventories from what the fabric's own tools say:
//
//	[[switch]]
//	name = "leaf[1-2]"
//	kind = "quantum"
//	sharp = {trees = 126, jobs = 1, resource = "switch"}
//	guid = ["0x08c0eb0000000000", "0x08c0eb0000000100"]
//	an = ["0x08c0eb0000000008", "0x08c0eb0000000108"]   # their aggregation nodes
//
//	[[host]]
//	name = "host[1-2]"
//	nic = {port = "leaf1/[1-2]", rdma = "mlx5_0:1", guid = ["0x0c42a10000000000", "0x0c42a10000000100"]}
//
// A switch of a lab says how its server is driven (Server). The form of its device config is
// the server's, not the chip's, and its ports have the numbers of this file where gnmi tells
// which of the chip's are which:
//
//	[[switch]]
//	name = "tor[1-2]"
//	kind = "tofino"
//	device_config = "stratum"                # or "bfrt", "sde", "bmv2"
//	control = "10.0.1.[1-2]:9559"            # Stratum's device id is 1, the SDE's 0: device_id for another
//	gnmi = "10.0.1.[1-2]:9339"
//	ports = {"[1-32]" = "[1-32]/0"}          # what its gNMI server calls them; by default "1", "2" ...
//	program = {name = "ina_tna", p4info = "out/p4info.txtpb", binary = "out/pipe/tofino.bin", context = "out/pipe/context.json", bfrt = "out/bf-rt.json"}
//	tls = {ca = "ca.pem", cert = "me.pem", key = "me.key"}
//	ssh = {address = "10.0.1.[1-2]", user = "root"}
//	port = {fec = "rs"}                      # of device_config "bfrt": how ports are set up after a load
//	push = "changed"                         # not what the switch runs already; by default "always"
//	replace_program = true                   # also where somebody else's runs there, which is put back at the end
//
// Data planes with a controller of their own are driven by commands, see Script and package
// testbed/script:
//
//	[[switch]]
//	name = "atp1"
//	kind = "script"
//	script = {host = "node01", setup = ["program", "argument"], clear = ["program"], expect = "^ready"}
package inventory

import (
	"net/netip"
	"time"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// BitRate is a rate in bit/s. In files it carries its unit: "25Gbit/s".
type BitRate float64

// Bytes is an amount of data in bytes. In files it carries its unit: "4KiB", "1MB".
type Bytes int64

// Duration is a time.Duration that reads "50us", "1.5ms", "2s" from a file.
type Duration time.Duration

// Kind is what a switch is and so how it is controlled.
type Kind string

const (
	Tofino  Kind = "tofino"  // programmable Ethernet, P4Runtime (TNA)
	BMv2    Kind = "bmv2"    // p4lang's simple_switch_grpc, P4Runtime (v1model)
	Soft    Kind = "soft"    // the embedded switch, P4Runtime
	Quantum Kind = "quantum" // InfiniBand with SHARP, aggregation manager

	Scripted Kind = "script" // anything that commands over SSH drive; see Script
)

// Inventory is one lab, or one emulated lab.
type Inventory struct {
	Name     string
	File     string // path it was read from
	SHA256   string // of the file's bytes, hex
	Text     string // the file itself
	Hosts    []Host
	Switches []Switch
	Links    []Link   // switch to switch
	Manager  *Manager // of SHARP; nil: the file has no [sharp]

	where map[string]tomlfile.Pos // of hosts and switches; nil when not from a file
}

// Host is a server that runs workers, parameter servers or both.
type Host struct {
	Name     string
	Rack     string // the rack of the switch its first NIC is cabled to, unless the file says
	Launcher string // who reaches it, by name; empty: "ssh", whose keys SSH has
	SSH      SSH
	GPUs     int
	GPUModel string
	NICs     []NIC
}

// SSH is how a host is reached over the management network. What it says wins over
// the user's ssh_config, which fills in what it leaves out.
type SSH struct {
	Address     string // what one would write after "ssh": host or host:port; may be a Host of ssh_config
	User        string // empty: ssh_config's, or the current user
	Jump        string // what to go through, by commas, nearest first: names of hosts or addresses (user@host:port); "none": nothing; empty: ssh_config's
	Key         string // private key file; empty: ssh_config's, the agent's, then the usual files
	Certificate string // of Key or of a key of the agent; empty: the one beside Key, ssh_config's
	KnownHosts  string // file; empty: ssh_config's, or the user's and the machine's known_hosts
	Config      string // ssh_config file; "none": none is read; empty: ~/.ssh/config, then /etc/ssh/ssh_config
	Sudo        bool   // what needs root goes through sudo, which must not ask for a password
	Leases      string // directory on the host for its leases, of mode 1777 where users log in as different people; empty: .inabench in the home
}

// NIC is a host's network interface and the cable in it.
type NIC struct {
	Device  string       // as the operating system names it: "ens1f0"
	Address netip.Prefix // data address; the zero Prefix lets an emulation choose
	Switch  string       // the switch at the other end of the cable
	Port    uint32       // and its port there
	Rate    BitRate
	Delay   time.Duration // one way, propagation and fixed latency of the cable
	RDMA    string        // RDMA device and its port: "mlx5_0:1"; empty: none, or not known
	GUID    GUID          // node GUID of the InfiniBand adapter; with ConnectX-4 and later that of its port too
}

// MostGPUs is how many GPUs a host may have.
const MostGPUs = 1024

// MostAggregators is how many slots a switch's aggregator array may have: the memory of the largest ones is some 100,000.
const MostAggregators = 1 << 24

// DefaultBuffer is that of each egress port of an emulated switch of which the inventory says nothing, in bytes.
const DefaultBuffer = 1 << 20

// Switch is a switch that may aggregate.
type Switch struct {
	Name        string
	Kind        Kind
	Rack        string // set for a ToR, by default to its own name
	Control     string // host:port of its P4Runtime server or aggregation manager
	DeviceID    uint64 // P4Runtime device id; by default the switch's number in the file, from 1
	Aggregators int    // slots of its aggregator array; 0: no INA here (a plain spine)
	SHARP       SHARP  // exclusive trees: of quantum switches, and of soft ones that stand for them
	Buffer      Bytes  // per egress port; 0: a default
	ECN         Bytes  // egress queue length above which packets are marked; 0: never
	GUID        GUID   // node GUID of an InfiniBand switch
	AN          GUID   // of its aggregation node, the one-port adapter on its last port; 0: none, so it cannot aggregate, or not known
	Server             // of a switch in a lab
}

// SHARP is the aggregation capacity of a quantum switch, or of a soft one that stands for it.
//
// An empty Resource is a switch.
type SHARP struct {
	Trees    int    `toml:"trees,required"`                                // aggregation trees that it can hold; 0: none
	Jobs     int    `toml:"jobs" default:"1"`                              // that it serves at once; 1: trees are exclusive
	Resource string `toml:"resource" default:"switch" words:"switch,port"` // what so many jobs have at once: a switch (Quantum, HDR) or each port by itself (Quantum-2, NDR)
}

// Link is a cable between two switches.
type Link struct {
	A, B  Port
	Rate  BitRate
	Delay time.Duration
}

// Port is a port of a switch, "tor1/3" in files.
type Port struct {
	Switch string
	Port   uint32
}

// DirectedLink is one direction of a cable.
type DirectedLink struct {
	Index    int    // in Topology.Links
	Name     string // "h1->tor1"; with a port where two cables join the same pair: "tor1:3->spine1:1"
	From, To string // node names
	FromPort uint32 // on switches; 0 on hosts
	ToPort   uint32
	NIC      string // device, when one end is a host
	Rate     BitRate
	Delay    time.Duration
	Reverse  int // index of the other direction
}

// Topology is the inventory as a graph. All orders are those of the file, so
// everything computed from it is deterministic.
type Topology struct {
	Nodes []string // hosts, then switches
	Links []DirectedLink

	index topologyIndex
}
