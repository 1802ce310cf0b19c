package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/ibfabric"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/discover"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/reach"
)

func inventoryCommand() *cli.Command {
	return &cli.Command{
		Name:        "inventory",
		Usage:       "write an inventory from what tools report of a lab, and compare the two",
		Action:      group,
		Subcommands: []*cli.Command{reading(inventoryImportCommand()), reading(inventoryDiscoverCommand()), reading(inventoryDiffCommand()), reading(inventoryRoutesCommand())},
	}
}

// loginFlags are how hosts are logged in to, besides what ssh_config says.
func loginFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "user", Usage: "log in as `NAME`"},
		&cli.StringFlag{Name: "key", Usage: "log in with the private key `FILE`"},
		&cli.StringFlag{Name: "jump", Usage: "log in through a jump `HOST`: user@host:port"},
		&cli.StringFlag{Name: "known-hosts", Usage: "check host keys against the known_hosts `FILE`"},
		&cli.BoolFlag{Name: "sudo", Usage: "use sudo where root is needed"},
	}
}

// login is how to log in to an address as it is typed: user@host:port.
func login(c *cli.Context, address string) inventory.SSH {
	user := c.String("user")
	if u, host, ok := strings.Cut(address, "@"); ok {
		user, address = u, host
	}
	return inventory.SSH{
		Address: address, User: user, Key: c.String("key"), Jump: c.String("jump"),
		KnownHosts: c.String("known-hosts"), Sudo: c.Bool("sudo"),
	}
}

func wayTo(s inventory.SSH) reach.Way { return reach.By(&inventory.Inventory{}, s.Address, s) }

// fabricFlags say where outputs come from and what a fabric must have.
func fabricFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "from", Usage: "instead of FILE: run the tools on `HOST`, over SSH, as root if needed"},
		&cli.StringFlag{Name: "rdma", Usage: "with --from: use this InfiniBand `PORT`, such as mlx5_0:2; mlx5_0 is mlx5_0:1"},
		&cli.StringFlag{Name: "expect", Usage: "refuse a fabric that has other `COUNTS`, such as hosts=1024,switches=48,ans=48"},
		&cli.BoolFlag{Name: "incomplete", Usage: "accept a fabric that was not seen whole; stderr says what is missing"},
	}, loginFlags()...)
}

func inventoryImportCommand() *cli.Command {
	return &cli.Command{
		Name:      "import",
		Usage:     "write an inventory from the output of InfiniBand's tools",
		ArgsUsage: "FILE...|-",
		Flags: append(fabricFlags(),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: stdin, DefaultText: "stdout", Usage: "`FILE` to write the inventory to; - is stdout"},
			&cli.StringFlag{Name: "name", Usage: "`NAME` of the inventory; by default that of the first file"},
			&cli.IntFlag{Name: "gpus", Usage: "`N` GPUs in each host, which the tools do not tell"},
			&cli.StringFlag{Name: "ssh-pattern", Usage: "ssh address of hosts, with {host} for their names: `{host}.mgmt.lab`"},
		),
		Description: `Files are what these tools print, of one fabric at one time; the format of each
is detected: ibnetdiscover, ibnetdiscover -p, iblinkinfo -l, opensm-subnet.lst,
and what ibnetdiscover writes to stderr. ibnetdiscover exits with 0 though half
of a fabric is missing, so let its complaints come too (2>&1).

Examples:
  ibnetdiscover 2>&1 | inabench inventory import - -o lab.toml
  inabench inventory import --expect hosts=64 net.txt links.txt -o lab.toml
  inabench inventory import --from root@manager -o lab.toml
`,
		Action: func(c *cli.Context) error {
			f, first, err := readFabric(c, c.Args().Slice(), nil)
			if err != nil {
				return err
			}
			opt := ibfabric.Options{Name: cmp.Or(c.String("name"), strings.TrimSuffix(filepath.Base(first), filepath.Ext(first)))}
			if opt.GPUs = c.Int("gpus"); opt.GPUs < 0 {
				return usagef("", "--gpus must not be negative")
			}
			if p := c.String("ssh-pattern"); p != "" {
				if !strings.Contains(p, "{host}") {
					return usagef("write --ssh-pattern {host}.mgmt.lab", "--ssh-pattern %q is one address for all hosts", p)
				}
				opt.SSH = func(host string) string { return strings.ReplaceAll(p, "{host}", host) }
			}
			inv, notes := f.Inventory(opt)
			notes.Head = append([]string{"Made by `" + c.App.Name + " inventory import` of " + strings.Join(names(f.Files), ", ") + "."}, notes.Head...)
			return writeInventory(c, inv, notes)
		},
	}
}

// names are files without their folders.
func names(files []string) []string {
	out := make([]string, len(files))
	for i, f := range files {
		out[i] = filepath.Base(f)
	}
	return out
}

// writeInventory writes what was found.
func writeInventory(c *cli.Context, inv *inventory.Inventory, notes inventory.Notes) error {
	text := inventory.Format(inv, notes)
	// It is written even where something is missing, to be completed by hand.
	to, err := writeTo(c, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	back, err := inventory.Parse(to, text)
	if err != nil {
		return inputError{fmt.Errorf("the inventory is not complete: %w", err), "add what is missing, then run inabench check"}
	}
	if to != "stdout" {
		line, _, _ := strings.Cut(back.Describe(), "\n")
		fmt.Fprintf(c.App.ErrWriter, "inabench: %s: %s\n", to, line)
	}
	return nil
}

func inventoryDiscoverCommand() *cli.Command {
	return &cli.Command{
		Name:      "discover",
		Usage:     "draft an inventory from what hosts report of themselves and their LLDP neighbours, over SSH",
		ArgsUsage: "HOST...",
		Flags: append(loginFlags(),
			&cli.StringSliceFlag{Name: "switch", Usage: "also ask `SWITCH`, which runs lldpd and can be logged in to; may be repeated"},
			choice(cli.StringFlag{Name: "kind", Value: string(inventory.Tofino), Usage: "`KIND` of switches: " + strings.Join(inventory.Kinds, ", ")}, inventory.Kinds...),
			&cli.IntFlag{Name: "parallel", Value: 32, Usage: "ask `N` hosts at a time"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: stdin, DefaultText: "stdout", Usage: "`FILE` to write the inventory to; - is stdout"},
			&cli.StringFlag{Name: "name", Value: "lab", Usage: "`NAME` of the inventory"},
		),
		Description: `Hosts are asked for their devices, RDMA devices, addresses and GPUs, and, where
they have lldpd, for what is at the other end of their cables. Where they have
none, the port is written as "?", for you to fill in. Nothing is changed on
hosts. Ranges stand for several: node[01-16]. For InfiniBand, use inabench
inventory import.

Example:
  inabench inventory discover --user lab node[01-16].lab -o lab.toml
`,
		Action: inventoryDiscoverAction,
	}
}

func inventoryDiscoverAction(c *cli.Context) error {
	kind := c.String("kind")
	var targets []candidate
	for i, list := range [][]string{c.Args().Slice(), words(c, "switch")} {
		for _, p := range list {
			addresses, err := inventory.Expand(p)
			if err != nil {
				return usagef(tomlfile.HintOf(err), "%s: %v", commandName(c), err)
			}
			for _, a := range addresses {
				targets = append(targets, candidate{a, i == 1})
			}
		}
	}
	if !c.Args().Present() {
		return usagef(c.Command.HelpName+" node[01-16]", "%s: which hosts?", commandName(c))
	}
	machines := make([]*discover.Machine, len(targets))
	errs := make([]error, len(targets))
	_ = hosts.FanOut(c.Context, c.Int("parallel"), targets, func(ctx context.Context, i int, t candidate) error {
		machines[i], errs[i] = discoverOne(ctx, login(c, t.address))
		if machines[i] != nil {
			machines[i].Switch = t.isSwitch
		}
		return nil // others go on
	})
	if err := context.Cause(c.Context); err != nil {
		return err
	}
	var there []*discover.Machine
	for i, m := range machines {
		if m != nil {
			there = append(there, m)
		} else if errs[i] != nil {
			fmt.Fprintf(c.App.ErrWriter, "inabench: warning: %v\n", errs[i])
		}
	}
	if len(there) == 0 {
		return fmt.Errorf("no host could be asked: %w", errors.Join(errs...))
	}
	inv, notes := discover.Draft(there, discover.Options{Name: c.String("name"), Kind: inventory.Kind(kind)})
	for i, t := range targets {
		if machines[i] == nil {
			notes.Head = append(notes.Head, fmt.Sprintf("%q could not be asked", t.address))
		}
	}
	if len(inv.Hosts) == 0 {
		return inputError{fmt.Errorf("no host is left: %s", strings.Join(notes.Head, "; ")),
			"let lldpd run on hosts and switches, and let the user ask it: sudo usermod -aG _lldpd USER"}
	}
	return writeInventory(c, inv, notes)
}

// candidate is a machine to ask.
type candidate struct {
	address  string
	isSwitch bool
}

func (t candidate) String() string { return t.address }

func discoverOne(ctx context.Context, s inventory.SSH) (*discover.Machine, error) {
	client, err := reach.Dial(ctx, wayTo(s), reach.Options{})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	m, err := discover.Ask(ctx, client)
	if m != nil {
		m.Address = s.Address
	}
	return m, err
}

func inventoryDiffCommand() *cli.Command {
	return &cli.Command{
		Name:      "diff",
		Usage:     "show how a fabric differs from its inventory; exit code 1 if it does",
		ArgsUsage: "INVENTORY.toml FILE...|-",
		Flags:     append(fabricFlags(), tableFlag()),
		Description: `Files are as those of inabench inventory import. Switches and hosts are known by
their GUIDs, so one that was renamed is not another. Ethernet is not compared.
HOST of --from may be one of the inventory.

Examples:
  ibnetdiscover 2>&1 | inabench inventory diff lab.toml -
  inabench inventory diff lab.toml --from node1
`,
		Action: func(c *cli.Context) error {
			if c.Args().Len() < 2 && c.String("from") == "" || !c.Args().Present() {
				return usagef(c.Command.HelpName+" "+c.Command.ArgsUsage, "inventory diff: which inventory, and which files?")
			}
			want, err := inventoryOf(c.Args().First())
			if err != nil {
				return err
			}
			f, _, err := readFabric(c, c.Args().Tail(), want)
			if err != nil {
				return err
			}
			found, _ := f.Inventory(ibfabric.Options{})
			return writeDiff(c, inventory.Diff(ibfabric.Part(want), found))
		},
	}
}

func writeDiff(c *cli.Context, diff []inventory.Difference) error {
	type row struct {
		What   string `json:"what"`
		Where  string `json:"where"`
		Detail string `json:"detail"`
	}
	rows := []row{}
	for _, d := range diff {
		rows = append(rows, row(d))
	}
	err := put(c, rows, func(w io.Writer) error {
		for _, d := range diff {
			fmt.Fprintln(w, d)
		}
		return nil
	})
	if err == nil && len(diff) > 0 {
		return outcomeError{results.Fail}
	}
	return err
}

func inventoryRoutesCommand() *cli.Command {
	return &cli.Command{
		Name:      "routes",
		Usage:     "list the switches that can be the root of an aggregation tree, by the fabric's routes",
		ArgsUsage: "FILE...",
		Flags:     append(fabricFlags(), tableFlag()),
		Description: `Files are as those of inabench inventory import, with opensm-lfts.dump (or what
dump_lfts prints) and, for the routing engine that is in use, opensm.log.

After the failure of a link, up/down routing leaves out routes between switches
while all hosts still reach each other: a tree rooted at such a switch cannot
have the hosts below the other. Exit code 1 if there are such.

Example:
  inabench inventory routes net.txt opensm-lfts.dump opensm.log
`,
		Action: inventoryRoutesAction,
	}
}

func inventoryRoutesAction(c *cli.Context) error {
	readings, err := readReadings(c, c.Args().Slice(), nil, true)
	if err != nil {
		return err
	}
	f, err := checkFabric(c, readings)
	if err != nil {
		return err
	}
	var routes *ibfabric.Routes
	var engine ibfabric.Engine
	for _, r := range readings {
		routes = cmp.Or(routes, r.Routes())
		if e := r.Engine(); e.Active != "" || len(e.Refused) > 0 {
			engine = e
		}
	}
	if routes == nil {
		return inputError{errors.New("no file has routes"), "add opensm-lfts.dump from opensm's folder of dumps (OSM_TMP_DIR, by default /var/log), or what dump_lfts prints"}
	}
	type root struct {
		Switch string   `json:"switch"`
		Lacks  []string `json:"lacks"`
	}
	doc := struct {
		Engine  string   `json:"engine,omitempty"`
		Refused []string `json:"refused,omitempty"`
		Leaves  int      `json:"leaves"`
		Roots   []root   `json:"roots"`
		Why     []string `json:"why,omitempty"`
	}{Engine: engine.Active, Refused: engine.Refused, Roots: []root{}}
	reach, leaves := f.Roots(routes)
	doc.Leaves = len(leaves)
	lacking := 0
	for _, sw := range f.Sorted(ibfabric.Switch) {
		if f.AN(sw.GUID) == nil {
			continue
		}
		r := root{Switch: sw.String(), Lacks: []string{}}
		for _, leaf := range leaves {
			if !slices.Contains(reach[sw.GUID], leaf) {
				r.Lacks = append(r.Lacks, leaf.String())
			}
		}
		lacking += len(r.Lacks)
		doc.Roots = append(doc.Roots, r)
	}
	for _, u := range f.Unreachables(routes) {
		doc.Why = append(doc.Why, u.Why.Error())
	}
	err = put(c, doc, func(w io.Writer) error {
		if doc.Engine != "" {
			fmt.Fprintf(w, "routing engine: %s\n", doc.Engine)
		}
		for _, r := range doc.Refused {
			fmt.Fprintf(w, "not used: %s\n", r)
		}
		tw := newTable(w, "ROOT", "LEAVES", "LACKS")
		for _, r := range doc.Roots {
			fmt.Fprintf(tw, "%s\t%d of %d\t%s\n", r.Switch, doc.Leaves-len(r.Lacks), doc.Leaves, cmp.Or(strings.Join(r.Lacks, ", "), "-"))
		}
		err := tw.Flush()
		for _, why := range doc.Why {
			fmt.Fprintln(w, why)
		}
		return err
	})
	if err == nil && lacking > 0 {
		return outcomeError{results.Fail}
	}
	return err
}

// readFabric reads the outputs of tools, and checks that they saw all of a fabric.
func readFabric(c *cli.Context, files []string, inv *inventory.Inventory) (f *ibfabric.Fabric, first string, err error) {
	readings, err := readReadings(c, files, inv, false)
	if err != nil {
		return nil, "", err
	}
	f, err = checkFabric(c, readings)
	return f, readings[0].File, err
}

// readReadings reads files, or what a host's tools say, which may be one of inv's.
func readReadings(c *cli.Context, files []string, inv *inventory.Inventory, routes bool) ([]*ibfabric.Reading, error) {
	if from := c.String("from"); from != "" {
		if len(files) > 0 {
			return nil, usagef("keep one of them", "%s: --from and files exclude each other", commandName(c))
		}
		return askFabric(c, from, inv, discover.FabricOptions{RDMA: c.String("rdma"), Routes: routes})
	}
	if c.IsSet("rdma") {
		return nil, usagef("add --from HOST", "%s: --rdma without --from", commandName(c))
	}
	if len(files) == 0 {
		return nil, usagef(c.Command.HelpName+" "+c.Command.ArgsUsage, "%s: which files?", commandName(c))
	}
	var out []*ibfabric.Reading
	var errs []error
	for _, path := range files {
		src, err := read(c, path)
		if err == nil {
			var r *ibfabric.Reading
			if r, err = ibfabric.Parse(src.name, string(src.text)); err == nil {
				out = append(out, r)
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

func askFabric(c *cli.Context, from string, inv *inventory.Inventory, o discover.FabricOptions) ([]*ibfabric.Reading, error) {
	way := wayTo(login(c, from))
	if inv != nil {
		if h, ok := inv.Host(from); ok && h.Reachable() {
			way = reach.To(inv, *h)
		}
		if h, ok := ibfabric.Part(inv).Host(from); ok {
			o.RDMA = cmp.Or(o.RDMA, h.NICs[0].RDMA)
		}
	}
	client, err := reach.Dial(c.Context, way, reach.Options{})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return discover.Fabric(c.Context, client, o)
}

func checkFabric(c *cli.Context, readings []*ibfabric.Reading) (*ibfabric.Fabric, error) {
	expect, err := expected(c.String("expect"))
	if err != nil {
		return nil, err
	}
	f := ibfabric.New(readings...)
	err = f.Check(expect)
	var missing *ibfabric.IncompleteError
	switch {
	case err == nil:
	case errors.As(err, &missing) && c.Bool("incomplete") && len(f.Nodes) > 0:
		sayMissing(c.App.ErrWriter, missing)
	default:
		return nil, inputError{err, ""}
	}
	return f, nil
}

func sayMissing(w io.Writer, e *ibfabric.IncompleteError) {
	for line := range strings.Lines(e.Error()) {
		fmt.Fprintf(w, "inabench: warning: %s\n", strings.TrimSuffix(line, "\n"))
	}
}

var expectPattern = regexp.MustCompile(`^(hosts|switches|ans)=([0-9]{1,6})$`)

func expected(s string) (e ibfabric.Expect, err error) {
	for part := range strings.SplitSeq(s, ",") {
		if s == "" {
			break
		}
		m := expectPattern.FindStringSubmatch(part)
		if m == nil {
			return e, usagef("write --expect hosts=16,switches=5,ans=5", "--expect: %q is not a count", part)
		}
		n, _ := strconv.Atoi(m[2])
		if n == 0 {
			return e, usagef("leave it out if any number will do", "--expect: %q: at least 1", part)
		}
		*map[string]*int{"hosts": &e.Hosts, "switches": &e.Switches, "ans": &e.ANs}[m[1]] = n
	}
	return e, nil
}
