package preflight

import (
	"slices"
	"strings"
)

// A host is asked once, by a script that its shell reads from stdin: nothing of it comes
// from an inventory or an experiment, whose words are arguments. What it prints are
// sections that begin with "@@ name argument"; a program that the host does not have
// leaves its section empty, with the shell's complaint kept out.
const scriptHead = `LC_ALL=C; export LC_ALL
PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"; export PATH
exec 2>/dev/null
at() { echo; echo "@@ $*"; }
at begin; date +%s.%N
at uname; uname -srm
at machine; grep -e '^MemTotal' -e '^processor' -e '^model name' /proc/meminfo /proc/cpuinfo
`

const scriptTail = `at end; date +%s.%N
`

// sections are the parts of the script, by the checks that need them. Those of devices are
// repeated for each of the script's arguments, $d.
var sections = []struct {
	checks    []string
	perDevice bool
	text      string
}{
	{checks: []string{Disk}, text: `at disk; df -Pk "$HOME"
`},
	{checks: []string{Governor}, text: `at governor; cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor
`},
	{checks: []string{Leftover}, text: `at leftover; ls -l /proc/[0-9]*/exe | grep -F -e "-> $(cd && pwd -P)/.cache/inabench/agent-"
`},
	{checks: []string{Cabling, MTU}, text: `at lldp; lldpctl -f json
`},
	{checks: []string{Drift}, text: `at gpus; nvidia-smi --query-gpu=name,driver_version,vbios_version --format=csv,noheader
`},
	{checks: []string{Link}, text: `at ib; for p in /sys/class/infiniband/*/ports/*; do [ -e "$p" ] || continue
r=${p%/ports/*}; echo "${r##*/}:${p##*/} $(cat "$r/node_guid") $(cat "$p/state") $(cat "$p/rate")"; done
`},
	{checks: []string{NUMA}, text: `at topology; nvidia-smi topo -m
`},
	{checks: []string{MTU}, perDevice: true, text: `at mtu "$d"; ip link show dev "$d" || cat "/sys/class/net/$d/mtu"
`},
	{checks: []string{Link}, perDevice: true, text: `at state "$d"; cat "/sys/class/net/$d/operstate"
at speed "$d"; cat "/sys/class/net/$d/speed"
`},
	{checks: []string{Drift}, perDevice: true, text: `at driver "$d"; ethtool -i "$d"
`},
	{checks: []string{PFC}, perDevice: true, text: `at pause "$d"; ethtool -a "$d"
at qos "$d"; mlnx_qos -i "$d"
at dcb "$d"; dcb pfc show dev "$d"
at ecn "$d"; for f in "/sys/class/net/$d/ecn/roce_np/enable/"* "/sys/class/net/$d/ecn/roce_rp/enable/"*; do [ -r "$f" ] && echo "${f#*/ecn/} $(cat "$f")"; done
`},
	{checks: []string{NUMA}, perDevice: true, text: `at numa "$d"; cat "/sys/class/net/$d/device/numa_node"
at rdma "$d"; ls "/sys/class/net/$d/device/infiniband"
`},
}

// script is what a host is asked for these checks.
func script(checks []string) string {
	wanted := func(of []string) bool {
		return slices.ContainsFunc(of, func(c string) bool { return slices.Contains(checks, c) })
	}
	var all, each strings.Builder
	for _, s := range sections {
		switch {
		case !wanted(s.checks):
		case s.perDevice:
			each.WriteString(s.text)
		default:
			all.WriteString(s.text)
		}
	}
	out := scriptHead + all.String()
	if each.Len() > 0 {
		out += "for d; do\n" + each.String() + "done\n"
	}
	return out + scriptTail
}

// section is the key of a part of the answer: its name, and the device that it is of.
type section struct{ name, device string }

// parseAnswer takes what the script printed apart.
func parseAnswer(text string) map[section]string {
	out := map[section]string{}
	var at section
	var body strings.Builder
	flush := func() {
		if at.name != "" {
			out[at] = strings.TrimSpace(body.String())
		}
		body.Reset()
	}
	for line := range strings.Lines(text) {
		if head, ok := strings.CutPrefix(line, "@@ "); ok {
			flush()
			name, device, _ := strings.Cut(strings.TrimSpace(head), " ")
			at = section{name, device}
			continue
		}
		body.WriteString(line)
	}
	flush()
	return out
}
