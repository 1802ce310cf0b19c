package preflight

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/reach"
)

// Part is a program of others that inabench works with.
type Part struct {
	Name    string
	For     string   // what is lost without it
	Fix     string   // the one command that installs it
	program []string // names that it may have
	version string   // argument that makes it say its version; empty: it cannot
}

// plain makes a program say its version, and whether it works, where it is started without
// an argument.
const plain = "''"

// parts are all that there are, by name. Packages are Debian's and Ubuntu's, unless the
// command says more.
var parts = []Part{
	{"p4c", "rebuilding what is compiled from testbed/p4: just p4", `sudo apt-get install p4lang-p4c (from p4lang's repository, build.opensuse.org/project/show/home:p4lang)`, []string{"p4c"}, "--version"},
	{"iperf3", "the workload iperf3", "sudo apt-get install iperf3", []string{"iperf3"}, "--version"},
	{"perftest", "the workload perftest", "sudo apt-get install perftest", []string{"ib_write_bw"}, "--version"},
	{"nccl-tests", "the workload nccl-tests", "git clone https://github.com/NVIDIA/nccl-tests && make -C nccl-tests MPI=1 && sudo cp nccl-tests/build/*_perf /usr/local/bin", []string{"all_reduce_perf"}, ""},
	{"mpirun", "the workload nccl-tests on several hosts", "sudo apt-get install openmpi-bin", []string{"mpirun"}, "--version"},
	{"torchrun", "the workload torchrun", "pip install torch", []string{"torchrun"}, ""},
	{"nvidia-smi", "counters of GPUs, and which NIC is near which", "install NVIDIA's driver: sudo apt-get install nvidia-driver", []string{"nvidia-smi"}, plain},
	{"dcgmi", "what crosses PCIe and NVLink", "sudo apt-get install datacenter-gpu-manager (from NVIDIA's repository), and start it: sudo systemctl start nvidia-dcgm", []string{"dcgmi"}, "--version"},
	{"cbc", "tests against a solver: the best of small placements", "sudo apt-get install coinor-cbc", []string{"cbc"}, ""},
	{"infiniband-diags", "counters and discovery of InfiniBand", "sudo apt-get install infiniband-diags", []string{"perfquery"}, "--version"},
	{"ibsim", "tests against simulated InfiniBand", "sudo apt-get install ibsim-utils", []string{"ibsim"}, "-V"},
	{"opensm", "tests against simulated InfiniBand", "sudo apt-get install opensm", []string{"opensm"}, "--version"},
	{"lldpd", "checking cables, and inventory discover", "sudo apt-get install lldpd, and let the user ask it: sudo usermod -aG _lldpd $USER", []string{"lldpctl"}, "-v"},
	{"ethtool", "checking drivers, firmware and pauses; counters need no program", "sudo apt-get install ethtool", []string{"ethtool"}, "--version"},
	{"PFC tools", "checking PFC: mlnx_qos, or dcb of iproute2", "sudo apt-get install iproute2", []string{"mlnx_qos", "dcb"}, ""},
	{"sharp_am", "SHARP's aggregation manager, on one host", "install HPC-X or UFM; as a service: $HPCX_SHARP_DIR/sbin/sharp_daemons_setup.sh -s -d sharp_am", []string{"sharp_am"}, ""},
	{"sharp_hello", "trying SHARP out: sharp_hello -d mlx5_0:1", "install HPC-X, and put $HPCX_SHARP_DIR/bin on PATH", []string{"sharp_hello"}, ""},
}

// here are the parts that this machine's side of things uses.
var here = []string{"p4c", "iperf3", "ibsim", "opensm", "infiniband-diags", "cbc"}

// partsOf are the names of the parts that a host of a lab may use.
func partsOf(inv *inventory.Inventory, h inventory.Host) []string {
	out := []string{"iperf3", "ethtool", "lldpd"}
	rdma := slices.ContainsFunc(h.NICs, func(n inventory.NIC) bool { return n.RDMA != "" || n.GUID != 0 })
	quantum := slices.ContainsFunc(inv.Switches, func(s inventory.Switch) bool { return s.Kind == inventory.Quantum })
	if rdma || quantum || h.GPUs > 0 {
		out = append(out, "perftest")
	}
	if !quantum {
		out = append(out, "PFC tools")
	}
	if h.GPUs > 0 {
		out = append(out, "nvidia-smi", "dcgmi", "nccl-tests", "mpirun", "torchrun")
	}
	if quantum {
		out = append(out, "infiniband-diags", "sharp_hello")
	}
	if inv.Manager != nil && inv.Manager.Host == h.Name {
		out = append(out, "sharp_am")
	}
	return out
}

// Found is whether a part is there.
type Found struct {
	Part    string `json:"part"`
	Host    string `json:"host,omitempty"` // empty: this machine
	Present bool   `json:"present"`
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"` // empty: not known
	For     string `json:"for"`
	Problem string `json:"problem,omitempty"` // it is there, and does not work
	Fix     string `json:"fix,omitempty"`
}

// partsHead makes a shell say where a program is, and which version.
const partsHead = `LC_ALL=C; export LC_ALL
PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/cuda/bin:/opt/ufm/bin:${HPCX_SHARP_DIR:-/opt/mellanox/sharp}/bin"; export PATH
has() { echo; echo "@@ $1"; command -v "$2" || return 0; [ $# -eq 3 ] || return 0; "$2" ${3:+"$3"} </dev/null 2>&1; echo "status $?"; }
`

func partsScript(names []string) string {
	out := partsHead
	for _, p := range parts {
		if slices.Contains(names, p.Name) {
			for i, program := range p.program {
				out += fmt.Sprintf("has %s.%d %s %s\n", strings.ReplaceAll(p.Name, " ", "_"), i, program, p.version)
			}
		}
	}
	return out + "echo; echo '@@ end'\n"
}

var versionNumber = regexp.MustCompile(`\d+(\.\d+)+([.~+-][0-9A-Za-z]+)*`)

// parseParts reads what partsScript prints.
func parseParts(host, text string, names []string) (out []Found, err error) {
	got := parseAnswer(text)
	if _, ended := got[section{name: "end"}]; !ended {
		return nil, errors.New("the shell did not come to the end of the script")
	}
	for _, p := range parts {
		if !slices.Contains(names, p.Name) {
			continue
		}
		f := Found{Part: p.Name, Host: host, For: p.For}
		for i := range p.program {
			path, rest, _ := strings.Cut(got[section{name: fmt.Sprintf("%s.%d", strings.ReplaceAll(p.Name, " ", "_"), i)}], "\n")
			if path == "" || f.Present {
				continue
			}
			f.Present, f.Path = true, path
			said, status, ok := strings.Cut("\n"+rest, "\nstatus ")
			f.Version = versionNumber.FindString(said)
			if ok && strings.TrimSpace(status) != "0" && (f.Version == "" || p.version == plain) {
				f.Version = "" // it is of something else
				f.Problem = firstLine(said)
				if f.Problem == "" {
					f.Problem = "it ends with status " + strings.TrimSpace(status)
				}
			}
		}
		if !f.Present || f.Problem != "" {
			f.Fix = p.Fix
		}
		out = append(out, f)
	}
	return out, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// partsTimeout is how long a machine may take to say what it has.
const partsTimeout = 10 * time.Second

// PartsHere are the parts that this machine has, and lacks.
func PartsHere(ctx context.Context) ([]Found, error) {
	ctx, cancel := context.WithTimeout(ctx, partsTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-s")
	cmd.WaitDelay = time.Second
	cmd.Stdin = strings.NewReader(partsScript(here))
	out, err := bounded.Output(cmd, bounded.Config)
	if err != nil {
		return nil, fmt.Errorf("which parts this machine has: %w", err)
	}
	return parseParts("", string(out), here)
}

// Diagnosis is what a host of a lab is found to be.
type Diagnosis struct {
	Host    string  `json:"host"`
	Error   string  `json:"error,omitempty"`  // it cannot be reached, or does not answer
	Reason  string  `json:"reason,omitempty"` // the same without its name and address, which hosts that fail alike share
	Hint    string  `json:"hint,omitempty"`
	Seconds float64 `json:"seconds"` // that this took
	Parts   []Found `json:"parts,omitempty"`
}

// DeadOf are DeadHosts of what was found by Diagnose.
func DeadOf(all []Diagnosis) []Dead {
	var dead []results.Preflight
	for _, d := range all {
		if d.Error != "" {
			dead = append(dead, results.Preflight{Name: Reachable, Host: d.Host, Outcome: results.Fail, Found: d.Error, Why: d.Reason, Hint: d.Hint})
		}
	}
	return DeadHosts(dead)
}

// Diagnose connects to hosts, limit of them at a time (0: 32), and asks each which parts it
// has. Ways are those of the inventory's hosts, in their order; each has timeout to answer.
func Diagnose(ctx context.Context, inv *inventory.Inventory, ways []reach.Way, limit int, timeout time.Duration) []Diagnosis {
	if limit == 0 {
		limit = 32
	}
	out := make([]Diagnosis, len(ways))
	for i, w := range ways {
		out[i] = Diagnosis{Host: w.Name, Error: "host " + w.Name + ": not asked", Reason: "not asked"}
	}
	dialer := reach.Dialer{Options: reach.Options{Timeout: timeout}}
	_ = hosts.FanOut(ctx, limit, ways, func(ctx context.Context, i int, w reach.Way) error {
		began := time.Now()
		found, err := diagnose(ctx, &dialer, w, partsOf(inv, inv.Hosts[i]), timeout)
		out[i] = Diagnosis{Host: w.Name, Seconds: time.Since(began).Seconds(), Parts: found}
		if err != nil {
			p := Unreachable(w.Name, err)
			out[i].Error, out[i].Reason, out[i].Hint = p.Found, p.Why, p.Hint
		}
		return err
	})
	return out
}

func diagnose(ctx context.Context, dialer *reach.Dialer, w reach.Way, names []string, timeout time.Duration) ([]Found, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, blame.Host(w.Name, fmt.Errorf("no answer within %v", timeout)))
	defer cancel()
	c, err := dialer.Dial(ctx, w)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	out, err := c.Run(ctx, []string{"sh", "-s"}, strings.NewReader(partsScript(names)))
	found, perr := parseParts(w.Name, string(out.Stdout), names)
	if perr == nil {
		return found, nil
	}
	if err == nil {
		err = blame.Host(w.Name, perr)
	}
	return nil, err
}
