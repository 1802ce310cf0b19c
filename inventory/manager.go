package inventory

import (
	"net/url"
	"slices"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// Manager is SHARP's aggregation manager, sharp_am, of a fabric with quantum switches, and
// UFM where the lab has it. It runs beside the subnet manager, on a port that cannot be a
// compute node.
type Manager struct {
	Host    string   // a host of the inventory; or
	SSH     SSH      // how to log in where it runs; without an address and a Host it is left alone
	Config  string   // its sharp_am.cfg there
	Restart []string // what makes it read that again; it must return when the manager is up
	UFM     string   // such as "https://ufm1"; empty: there is none
	API     string   // of UFM's reservations: "allocate", "v3" (with a token) or "reservations" (6.9)
}

// ManagerName is what leases and messages call the machine of a Manager that is no host of the inventory.
const ManagerName = "sharp_am"

// Reachable says whether something can be changed there.
func (m *Manager) Reachable() bool { return m.Host != "" || m.SSH.Address != "" }

// Apart says whether it is no host of the inventory, but a machine of its own: ManagerName.
func (m *Manager) Apart() bool { return m != nil && m.SSH.Address != "" }

// managerTable is SHARP's aggregation manager, sharp_am, of a fabric with quantum switches, and UFM where the lab
// has it.
type managerTable struct {
	At      string   `toml:",path"`
	Host    string   `toml:"host"`                                                        // of the inventory, where it runs; or
	SSH     sshTable `toml:"ssh"`                                                         // how to log in where it runs; without both it is left alone
	Config  string   `toml:"config" default:"/etc/sharp/sharp_am.cfg"`                    // its configuration there
	Restart []string `toml:"restart"`                                                     // what makes it read that again; it must return when the manager is up
	UFM     string   `toml:"ufm"`                                                         // its address, such as "https://ufm1"; user and password, or a token, come from the environment
	API     string   `toml:"ufm_api" default:"allocate" words:"allocate,v3,reservations"` // of UFM's reservations; "v3" has a token, "reservations" is that of 6.9
}

// manager is the table [sharp].
func (b *builder) manager(t *managerTable) {
	m := &Manager{Host: t.Host, SSH: b.ssh(&t.SSH, 0), Config: t.Config, Restart: t.Restart, UFM: t.UFM, API: t.API}
	m.SSH.Address = t.SSH.Address
	b.inv.Manager = m
	if !slices.ContainsFunc(b.inv.Switches, func(s Switch) bool { return s.Kind == Quantum || s.Kind == Soft && s.SHARP.Trees > 0 }) {
		b.KeyProblemf(t.At, "", "[sharp] is about quantum switches, and there are none")
	}
	switch {
	case t.Host != "" && t.SSH.Address != "":
		b.KeyProblemf(t.At+".ssh", "keep one of them", "host and ssh exclude each other")
	case t.Host != "":
		if _, ok := b.inv.Host(t.Host); !ok {
			b.Problemf(t.At+".host", tomlfile.DidYouMean(t.Host, b.inv.HostNames()), "unknown host %q", t.Host)
		}
	}
	if t.Config == "" || t.Config[0] != '/' {
		b.Problemf(t.At+".config", `write config = "/opt/ufm/files/conf/sharp/sharp_am.cfg"`, "%q is not an absolute path", t.Config)
	}
	switch {
	case b.Has(t.At+".restart") && (len(t.Restart) == 0 || t.Restart[0] == ""):
		b.Problemf(t.At+".restart", `write restart = ["systemctl", "restart", "sharp_am"]`, "restart names no program")
	case !b.Has(t.At+".restart") && m.Reachable():
		b.KeyProblemf(t.At, `write restart = ["systemctl", "restart", "sharp_am"]`, "missing restart: the manager reads its configuration when it starts")
	}
	if t.UFM != "" {
		if u, err := url.Parse(t.UFM); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			b.Problemf(t.At+".ufm", `write ufm = "https://ufm1"`, "%q is not the address of UFM", t.UFM)
		} else if u.User != nil {
			b.Problemf(t.At+".ufm", "user and password come from INABENCH_UFM_USER and INABENCH_UFM_PASSWORD, or a token from INABENCH_UFM_TOKEN", "no passwords in an inventory, which records keep")
		}
	}
	if b.Has(t.At+".ufm_api") && t.UFM == "" {
		b.KeyProblemf(t.At+".ufm_api", `write ufm = "https://ufm1"`, "ufm_api without ufm")
	}
}
