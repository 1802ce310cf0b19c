package preflight

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/inventory"
)

// driver is what `ethtool -i` says of a device.
type driver struct{ name, version, firmware, bus string }

// parseDriver reads `ethtool -i`: lines of "name: value", values empty where a driver has
// none.
func parseDriver(text string) (d driver, err error) {
	fields := map[string]*string{"driver": &d.name, "version": &d.version, "firmware-version": &d.firmware, "bus-info": &d.bus}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		if f := fields[strings.TrimSpace(key)]; f != nil {
			*f = strings.TrimSpace(value)
		}
	}
	if d.name == "" {
		return driver{}, errors.New("ethtool -i names no driver")
	}
	return d, nil
}

// kind is what devices have in common that should have the same driver and firmware: the
// driver's name and, of Mellanox's, the board (PSID) that follows the firmware in brackets.
func (d driver) kind() string {
	_, board, _ := strings.Cut(d.firmware, "(")
	return d.name + " " + strings.TrimSuffix(board, ")")
}

func (d driver) String() string {
	s := d.name
	for _, part := range []struct{ word, v string }{{"", d.version}, {"firmware ", d.firmware}} {
		if part.v != "" {
			s += " " + part.word + part.v
		}
	}
	return s
}

// parseMachine reads lines of /proc/meminfo and /proc/cpuinfo, with the file's name before
// each: how many CPUs, which, and how many bytes of memory.
func parseMachine(text string) (cpus int, model string, memory int64) {
	for line := range strings.Lines(text) {
		_, line, _ = strings.Cut(line, ":")
		key, v, _ := strings.Cut(line, ":")
		switch v = strings.TrimSpace(v); strings.TrimSpace(key) {
		case "processor":
			cpus++
		case "model name":
			model = v
		case "MemTotal":
			kB, _ := strconv.ParseInt(strings.TrimSuffix(v, " kB"), 10, 50)
			memory = max(kB, 0) << 10
		}
	}
	return cpus, model, memory
}

// parseMTU reads "… mtu 1500 …" of ip link, or a number alone. sysfs, where that comes from,
// can be that of another network namespace than the host's.
func parseMTU(text string) (int, error) {
	f := strings.Fields(text)
	i := slices.Index(f, "mtu") + 1
	if i >= len(f) || i == 0 && len(f) != 1 {
		return 0, fmt.Errorf("no MTU in %.80q", text)
	}
	v, err := strconv.ParseUint(f[i], 10, 31)
	return int(v), err
}

// gpu is a kind of GPU in a host, with its driver and firmware.
type gpu struct{ name, driver, vbios string }

func (g gpu) String() string { return "driver " + g.driver + " VBIOS " + g.vbios }

// mostDevices is how many of a kind a host has, at most; what it says of more is not read.
const mostDevices = 256

// parseGPUs reads what nvidia-smi says of name,driver_version,vbios_version: a line for each
// GPU. GPUs of which the same is said are one; other lines are left out.
func parseGPUs(text string) (out []gpu) {
	seen := map[gpu]bool{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, ",")
		if len(cells) != 3 {
			continue
		}
		g := gpu{strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])}
		if g.name != "" && !seen[g] && len(out) < mostDevices {
			seen[g] = true
			out = append(out, g)
		}
	}
	return out
}

// flow is how a device stops and marks what comes to it.
type flow struct {
	trust  string // which field of packets tells their priority: "dscp", "pcp"
	pfc    string // a digit for each of eight priorities that it pauses one by one: "00010000"; empty: unknown
	rx, tx string // pauses of everything (802.3x): "on", "off"; empty: unknown
	ecn    string // priorities with RoCE's congestion notification: "np 3, rp 3"
}

func (f flow) String() string {
	var out []string
	if f.pfc != "" {
		on := []string{}
		for i, c := range f.pfc {
			if c == '1' {
				on = append(on, strconv.Itoa(i))
			}
		}
		s := "PFC off"
		if len(on) > 0 {
			s = "PFC on priority " + strings.Join(on, ",")
		}
		out = append(out, s)
	}
	if f.trust != "" {
		out = append(out, "trust "+f.trust)
	}
	if f.rx != "" {
		out = append(out, fmt.Sprintf("pause rx %s tx %s", f.rx, f.tx))
	}
	if f.ecn != "" {
		out = append(out, "ECN "+f.ecn)
	}
	return strings.Join(out, ", ")
}

// parseQoS reads `mlnx_qos -i DEVICE` (Mellanox/mlnx-tools, python/mlnx_qos): among others
// "Priority trust state: dscp" and, below "PFC configuration:", a line of priorities and a
// line "enabled" with 0 or 1 for each.
func parseQoS(text string, f *flow) error {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, "Priority trust state:"); ok {
			f.trust = strings.TrimSpace(v)
		}
		if !strings.HasPrefix(line, "PFC configuration") {
			continue
		}
		for _, l := range lines[i+1:] {
			cells := strings.Fields(l)
			if len(cells) == 0 || cells[0] != "enabled" {
				continue
			}
			if len(cells) != 9 {
				return fmt.Errorf("mlnx_qos: PFC of %d priorities", len(cells)-1)
			}
			pfc := strings.Join(cells[1:], "")
			if strings.Trim(pfc, "01") != "" || len(pfc) != 8 {
				return fmt.Errorf("mlnx_qos: PFC %.40q", pfc)
			}
			f.pfc = pfc
			return nil
		}
	}
	return errors.New("mlnx_qos says nothing of PFC")
}

// parseDCB reads `dcb pfc show dev DEVICE` (dcb-pfc(8)): "prio-pfc 0:off 1:off … 7:on".
func parseDCB(text string, f *flow) error {
	for line := range strings.Lines(text) {
		cells := strings.Fields(line)
		if len(cells) == 0 || cells[0] != "prio-pfc" {
			continue
		}
		pfc := []byte("00000000")
		for _, c := range cells[1:] {
			prio, state, _ := strings.Cut(c, ":")
			n, err := strconv.Atoi(prio)
			if err != nil || n < 0 || n > 7 || state != "on" && state != "off" {
				return fmt.Errorf("dcb: priority %.40q", c)
			}
			if state == "on" {
				pfc[n] = '1'
			}
		}
		f.pfc = string(pfc)
		return nil
	}
	return errors.New("dcb says nothing of PFC")
}

// parsePause reads `ethtool -a`: "RX:		on" and "TX:		off" after a heading.
func parsePause(text string, f *flow) error {
	for line := range strings.Lines(text) {
		key, v, _ := strings.Cut(line, ":")
		switch v = strings.TrimSpace(v); strings.TrimSpace(key) {
		case "RX":
			f.rx = v
		case "TX":
			f.tx = v
		}
	}
	for _, v := range []string{f.rx, f.tx} {
		if v != "on" && v != "off" {
			f.rx, f.tx = "", ""
			return errors.New("ethtool -a says nothing of pauses")
		}
	}
	return nil
}

// parseECN reads lines of "roce_np/enable/3 1", the files of mlx5's sysfs tree with their
// values.
func parseECN(text string, f *flow) error {
	on := map[string][]string{}
	for line := range strings.Lines(text) {
		name, v, ok := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" {
			continue
		}
		part := strings.Split(name, "/")
		if !ok || len(part) != 3 || part[0] != "roce_np" && part[0] != "roce_rp" || v != "0" && v != "1" {
			return fmt.Errorf("ecn: %.60q", line)
		}
		p := strings.TrimPrefix(part[0], "roce_")
		if v == "1" {
			on[p] = append(on[p], part[2])
		} else if on[p] == nil {
			on[p] = []string{}
		}
	}
	var out []string
	for _, p := range []string{"np", "rp"} {
		if prios, ok := on[p]; ok {
			slices.Sort(prios)
			s := p + " off"
			if len(prios) > 0 {
				s = p + " " + strings.Join(prios, "")
			}
			out = append(out, s)
		}
	}
	f.ecn = strings.Join(out, ", ")
	return nil
}

// Neighbour is what is at the other end of a device's cable, as it says itself.
type Neighbour struct {
	System string // the switch's name
	Port   string // its port, as it calls it: "Ethernet3"
	Descr  string // the port's description
	MFS    int    // largest frame of that port, bytes, FCS included (802.3); 0: it does not say
}

// chassisFields are what lldpctl says of a chassis.
var chassisFields = []string{"id", "name", "descr", "mgmt-ip", "mgmt-iface", "capability", "ttl", "via", "rid", "age"}

// ParseLLDP reads `lldpctl -f json` (lldpd 1.0): an object, or a list of objects, of one
// device each, in which chassis are keyed by their name, or are their fields where they
// have none. The first neighbour that has a name is taken where a device has several.
func ParseLLDP(text string) (map[string]Neighbour, error) {
	var doc struct {
		LLDP struct {
			Interface json.RawMessage `json:"interface"`
		} `json:"lldp"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return nil, fmt.Errorf("lldpctl: %w", err)
	}
	out := map[string]Neighbour{}
	type entry struct {
		Chassis map[string]json.RawMessage `json:"chassis"`
		Port    struct {
			ID struct {
				Value string `json:"value"`
			} `json:"id"`
			Descr string `json:"descr"`
			MFS   string `json:"mfs"`
		} `json:"port"`
	}
	one := func(raw json.RawMessage) error {
		var all map[string]entry
		if err := json.Unmarshal(raw, &all); err != nil {
			return fmt.Errorf("lldpctl: %w", err)
		}
		for device, e := range all {
			n := Neighbour{Port: e.Port.ID.Value, Descr: e.Port.Descr}
			n.MFS, _ = strconv.Atoi(e.Port.MFS)
			for name := range e.Chassis {
				if !slices.Contains(chassisFields, name) && (n.System == "" || name < n.System) {
					n.System = name
				}
			}
			if old, ok := out[device]; !ok || old.System == "" {
				out[device] = n
			}
		}
		return nil
	}
	raw := doc.LLDP.Interface
	if len(raw) == 0 {
		return out, nil
	}
	if raw[0] != '[' {
		return out, one(raw)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("lldpctl: %w", err)
	}
	for _, raw := range list {
		if err := one(raw); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// matrix is what `nvidia-smi topo -m` says: how far GPUs and NICs are from each other.
type matrix struct {
	gpus []string             // "GPU0"
	far  map[[2]string]string // by row and column: "PIX"
	nics map[string]string    // "NIC0" -> "mlx5_0"
}

// distances are nvidia-smi's words for how far apart two devices are, nearest first.
var distances = []string{"X", "PIX", "PXB", "PHB", "NODE", "SYS"}

// parseTopology reads `nvidia-smi topo -m`: a heading of devices and further columns, a row
// for each device, and a legend that says which NIC is which. Terminals get escape
// sequences around headings.
func parseTopology(text string) (matrix, error) {
	m := matrix{far: map[[2]string]string{}, nics: map[string]string{}}
	for _, esc := range []string{"\x1b[4m", "\x1b[0m", "\x1b[24m"} {
		text = strings.ReplaceAll(text, esc, "")
	}
	isDevice := func(s string) bool {
		return strings.HasPrefix(s, "GPU") && len(s) > 3 && s[3] >= '0' && s[3] <= '9' || strings.HasPrefix(s, "NIC") || strings.HasPrefix(s, "mlx")
	}
	var columns []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case columns == nil && isDevice(f[0]):
			for _, c := range f {
				if !isDevice(c) || len(columns) == 2*mostDevices {
					break // CPU Affinity, NUMA Affinity
				}
				columns = append(columns, c)
			}
		case len(m.gpus) == mostDevices || len(m.nics) == mostDevices:
		case len(f) == 2 && strings.HasPrefix(f[0], "NIC") && strings.HasSuffix(f[0], ":"):
			m.nics[strings.TrimSuffix(f[0], ":")] = f[1]
		case columns != nil && isDevice(f[0]) && len(f) > len(columns):
			for i, c := range columns {
				m.far[[2]string{f[0], c}] = f[1+i]
			}
			if strings.HasPrefix(f[0], "GPU") {
				m.gpus = append(m.gpus, f[0])
			}
			if strings.HasPrefix(f[0], "mlx") { // before NICs got numbers
				m.nics[f[0]] = f[0]
			}
		}
	}
	if len(m.gpus) == 0 {
		return matrix{}, errors.New("nvidia-smi topo names no GPU")
	}
	return m, nil
}

// nearest is the NIC out of some that is nearest to a GPU, and how near.
func (m matrix) nearest(gpu string, among []string) (nic, distance string) {
	best := len(distances)
	for name, device := range m.nics {
		if !slices.Contains(among, device) {
			continue
		}
		d := m.far[[2]string{gpu, name}]
		if i := slices.Index(distances, d); i >= 0 && (i < best || i == best && device < nic) {
			best, nic, distance = i, device, d
		}
	}
	return nic, distance
}

// parseDisk reads `df -Pk DIRECTORY` (POSIX): the bytes that are free.
func parseDisk(text string) (free int64, err error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	f := strings.Fields(lines[len(lines)-1])
	if len(lines) < 2 || len(f) < 6 {
		return 0, errors.New("df says nothing")
	}
	// The name of a file system may hold spaces; what comes after it does not.
	for i := 1; i+4 < len(f); i++ {
		if !strings.HasSuffix(f[i+3], "%") {
			continue
		}
		if free, err = strconv.ParseInt(f[i+2], 10, 50); err == nil {
			return free << 10, nil
		}
	}
	return 0, fmt.Errorf("df: %.80q", lines[len(lines)-1])
}

// parseGovernors counts CPUs by their governor.
func parseGovernors(text string) map[string]int {
	out := map[string]int{}
	for line := range strings.Lines(text) {
		if g := strings.TrimSpace(line); g != "" {
			out[g]++
		}
	}
	return out
}

// parseTime reads `date +%s.%N`, where %N may have been left as it is. exact is false then.
func parseTime(text string) (t float64, exact bool, err error) {
	whole, frac, _ := strings.Cut(strings.TrimSpace(text), ".")
	n, err := strconv.ParseInt(whole, 10, 48)
	if err != nil {
		return 0, false, fmt.Errorf("date: %.40q", text)
	}
	f, err := strconv.ParseUint(frac, 10, 32)
	if err != nil || len(frac) != 9 {
		return float64(n), false, nil
	}
	return float64(n) + float64(f)/1e9, true, nil
}

// rdmaPort is what sysfs says of a port of an RDMA device.
type rdmaPort struct {
	guid  inventory.GUID // of the device
	state string         // "ACTIVE", "INIT", "DOWN"
	rate  float64        // bit/s
}

// parseRDMA reads lines of "mlx5_0:1 9803:9b03:0020:0010 4: ACTIVE 200 Gb/sec (4X HDR)". What
// a line lacks stays empty.
func parseRDMA(text string) map[string]rdmaPort {
	out := map[string]rdmaPort{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		p := rdmaPort{state: f[3]}
		p.guid, _ = inventory.ParseGUID(f[1])
		if len(f) > 5 && f[5] == "Gb/sec" {
			if v, err := strconv.ParseFloat(f[4], 64); err == nil && v > 0 && v < 1e6 {
				p.rate = v * 1e9
			}
		}
		out[f[0]] = p
	}
	return out
}
