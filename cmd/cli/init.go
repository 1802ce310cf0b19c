package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/starter"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results/human"
)

// question is one thing that init wants to know: a flag, or an answer.
type question struct {
	flag, ask string
	fallback  string               // what an empty answer means; "" if there must be one
	when      func(a answers) bool // it is of use; nil: always
	check     func(answer string) error
}

type answers map[string]string

// questions are asked in their order.
var questions = []question{
	{flag: "hosts", ask: "Hosts, such as node[01-16]", check: func(s string) error { _, err := hostList(s); return err }},
	{flag: "gpus", ask: "GPUs of each", fallback: "8", check: wholeNumber},
	{flag: "rate", ask: "Rate of their NICs", fallback: "100Gbit/s", check: bitRate},
	{flag: "switches", ask: "ToR switches, such as tor[1-2]", fallback: "tor1", check: func(s string) error { _, err := hostList(s); return err }},
	{flag: "kind", ask: "What they are: " + strings.Join(starter.Kinds, ", "), fallback: starter.Kinds[0], check: func(s string) error {
		if !slices.Contains(starter.Kinds, s) {
			return errors.New(tomlfile.OneOf(s, starter.Kinds))
		}
		return nil
	}},
	{flag: "aggregators", ask: "Aggregators of each", fallback: "4096", check: wholeNumber},
	{flag: "uplink", ask: "Rate of cables between switches", fallback: "400Gbit/s", check: bitRate, when: func(a answers) bool {
		tors, err := hostList(a["switches"])
		return err == nil && len(tors) > 1
	}},
}

func wholeNumber(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < 0 || n > 1<<20 {
		return fmt.Errorf("%q is no number of them", s)
	}
	return nil
}

func bitRate(s string) error {
	r, err := inventory.ParseBitRate(s)
	if err == nil && r <= 0 {
		err = errors.New("it must be above zero")
	}
	return err
}

func initCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "hosts", Usage: "`NAMES` of hosts, with ranges and commas: node[01-08,11],big1"},
		&cli.StringFlag{Name: "ssh-config", Usage: "instead of --hosts: the hosts of an ssh_config `FILE`"},
		&cli.BoolFlag{Name: "slurm", Usage: "instead of --hosts: the nodes that sinfo lists"},
		&cli.StringFlag{Name: "inventory", Aliases: []string{"i"}, Usage: "use an existing inventory `FILE`, as inabench inventory discover writes it, and write only an experiment"},
		&cli.StringFlag{Name: "gpus", Usage: "`N` GPUs in each host; default 8"},
		&cli.StringFlag{Name: "rate", Usage: "`RATE` of the hosts' NICs; default 100Gbit/s"},
		&cli.StringFlag{Name: "switches", Usage: "`NAMES` of ToR switches, which share the hosts equally; default tor1"},
		choice(cli.StringFlag{Name: "kind", Usage: "`KIND` of switches: " + strings.Join(starter.Kinds, ", ")}, starter.Kinds...),
		&cli.StringFlag{Name: "aggregators", Usage: "`N` aggregators of each switch; default 4096"},
		&cli.StringFlag{Name: "uplink", Usage: "`RATE` of cables between switches; default 400Gbit/s"},
		&cli.StringFlag{Name: "name", Usage: "`NAME` of the lab and its inventory; default lab"},
		&cli.BoolFlag{Name: "ci", Usage: "also write a GitHub workflow that runs the experiment on every push"},
		&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "ask nothing; take defaults for what is not given"},
	}
	return &cli.Command{
		Name:      "init",
		Usage:     "write a first inventory, and an experiment that runs on it",
		ArgsUsage: "[DIR]",
		Flags:     flags,
		Description: `In a terminal it asks for what no option says. Files that are there already are
left as they are. Hosts are in equal parts on ToR switches; several of these are
cabled to each other, or to a spine: change the files where that is not so.

Examples:
  inabench init
  inabench init --hosts node[01-16] --switches tor[1-2] --yes mylab
  inabench init -i lab.toml
`,
		Action: initAction,
	}
}

func initAction(c *cli.Context) error {
	if c.Args().Len() > 1 {
		return usagef("inabench init DIR", "init: one folder, not %d", c.Args().Len())
	}
	dir := cmp.Or(c.Args().First(), ".")
	name := cmp.Or(c.String("name"), "lab")
	if !plainName.MatchString(name) {
		return usagef("letters, digits, '_', '.' and '-'", "--name %q is no file name", name)
	}
	const first = "first.toml"
	files := map[string][]byte{}
	invFile := name + ".toml"
	if strings.EqualFold(invFile, first) {
		return usagef("choose another name", "--name %s: that is the name of the experiment", name)
	}
	var inv *inventory.Inventory
	var err error
	if given := c.String("inventory"); given != "" {
		for _, f := range c.Command.Flags {
			if n := f.Names()[0]; c.IsSet(n) && !slices.Contains([]string{"inventory", "ci", "yes"}, n) {
				return usagef("leave it out, or --inventory", "--%s describes a new inventory, but --inventory names an existing one", n)
			}
		}
		if inv, err = inventory.Load(given); err != nil {
			return err
		}
		if invFile, err = relative(dir, given); err != nil {
			return err
		}
	} else {
		lab, err := labFromAnswers(c, name)
		if err != nil {
			return err
		}
		var text []byte
		if inv, text, err = lab.Inventory(); err != nil {
			return inputError{err, tomlfile.HintOf(err)}
		}
		files[invFile] = text
	}
	experiment, err := starter.Experiment(inv, filepath.ToSlash(invFile))
	if err != nil {
		return inputError{err, ""}
	}
	files[first] = experiment
	if c.Bool("ci") {
		files[filepath.Join(".github", "workflows", "inabench.yml")] = starter.Workflow(first)
	}
	if _, err := kinds.Parse(filepath.Join(dir, first), experiment, inv); err != nil {
		return fmt.Errorf("the experiment for this inventory does not pass: %w", err)
	}
	if err := writeNew(dir, files); err != nil {
		return err
	}
	out := c.App.Writer
	shown := func(file string) string { return filepath.Join(dir, file) }
	fmt.Fprintf(out, "%s:\n%s\n", filepath.Join(dir, invFile), indent(inv.Describe()))
	fmt.Fprintf(out, "\nnext:\n  inabench plan %[1]s    # what is predicted\n  inabench run %[1]s     # on an emulated rack, on this machine\n  inabench check --lab %[2]s    # what a real lab still needs\n",
		human.ShellLine(shown(first)), human.ShellLine(shown(invFile)))
	return nil
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// relative is a file's path from a folder.
func relative(dir, file string) (string, error) {
	at, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	from, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.Rel(from, at)
}

// writeNew writes files into a folder, none of which may be there: all or none.
func writeNew(dir string, files map[string][]byte) error {
	var written []string
	undo := func(err error) error {
		for _, path := range written {
			err = errors.Join(err, os.Remove(path))
		}
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return undo(outputError{err})
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		switch {
		case errors.Is(err, fs.ErrExist):
			return undo(inputError{fmt.Errorf("%s is there already", path), "name another folder, or move it away: nothing was written"})
		case err != nil:
			return undo(outputError{err})
		}
		written = append(written, path)
		_, err = f.Write(files[file])
		if err := errors.Join(err, f.Close()); err != nil {
			return undo(outputError{err})
		}
	}
	return nil
}

// labFromAnswers is what flags say of a lab, and answers to what they do not say.
func labFromAnswers(c *cli.Context, name string) (l starter.Lab, err error) {
	given := answers{}
	for _, q := range questions {
		given[q.flag] = c.String(q.flag)
	}
	l.Name = name
	ways := 0
	for _, way := range []string{"hosts", "ssh-config", "slurm"} {
		if c.IsSet(way) {
			ways++
		}
	}
	if ways > 1 {
		return l, usagef("keep one of them", "--hosts, --ssh-config and --slurm exclude each other")
	}
	var names []string
	switch {
	case c.IsSet("ssh-config"):
		names, err = hostsOfSSHConfig(c.String("ssh-config"))
		l.Login = true
	case c.Bool("slurm"):
		names, err = hostsOfSlurm(c.Context)
		l.Login = true
	}
	if err != nil {
		return l, err
	}
	if names != nil {
		given["hosts"] = strings.Join(names, ",")
	}
	if err := answer(c, given); err != nil {
		return l, err
	}
	if l.Hosts, err = hostList(given["hosts"]); err != nil {
		return l, err
	}
	if l.Switches, err = hostList(given["switches"]); err != nil {
		return l, err
	}
	// All have been checked.
	l.GPUs, _ = strconv.Atoi(given["gpus"])
	l.Aggregators, _ = strconv.Atoi(given["aggregators"])
	l.Rate, _ = inventory.ParseBitRate(given["rate"])
	l.Uplink, _ = inventory.ParseBitRate(given["uplink"])
	l.Kind = inventory.Kind(given["kind"])
	return l, nil
}

// answer asks for what flags did not say, or takes defaults, and checks all.
func answer(c *cli.Context, given answers) error {
	in, terminal := c.App.Reader.(*os.File)
	ask := terminal && term.IsTerminal(int(in.Fd())) && !c.Bool("yes")
	typed := bufio.NewReader(c.App.Reader)
	for _, q := range questions {
		needed := q.when == nil || q.when(given)
		for first := true; given[q.flag] == "" && needed; first = false {
			if !ask {
				if given[q.flag] = q.fallback; q.fallback == "" {
					return usagef("inabench init --"+q.flag+" node[01-16]", "init: which %s?", q.flag)
				}
				break
			}
			if first && q.fallback == "" {
				fmt.Fprintln(c.App.ErrWriter, "A first inventory and experiment. An empty answer takes what is in brackets.")
			}
			prompt := q.ask
			if q.fallback != "" {
				prompt += " [" + q.fallback + "]"
			}
			fmt.Fprintf(c.App.ErrWriter, "%s: ", prompt)
			line, err := bounded.ReadLine(typed, bounded.Small)
			text := strings.TrimSpace(string(line))
			if err != nil && (text == "" || !errors.Is(err, io.EOF)) {
				return inputError{errors.New("init: the answers ended too early; nothing was written"), "--yes takes defaults"}
			}
			text = cmp.Or(text, q.fallback)
			if text == "" {
				continue
			}
			if err := q.check(text); err != nil {
				fmt.Fprintf(c.App.ErrWriter, "  %v\n", err)
				continue
			}
			given[q.flag] = text
		}
		if given[q.flag] == "" {
			continue
		}
		if err := q.check(given[q.flag]); err != nil {
			return usagef(tomlfile.HintOf(err), "--%s: %v", q.flag, err)
		}
	}
	return nil
}

// mostHosts is how many hosts a list may have.
const mostHosts = 1 << 14

// hostList are the names of a list with commas and ranges, as Slurm writes it: node[01-03,07],big1.
func hostList(list string) (out []string, err error) {
	seen := map[string]bool{}
	for _, item := range apart(list) {
		prefix, rest, ok := strings.Cut(item, "[")
		inner, suffix, closed := strings.Cut(rest, "]")
		patterns := []string{item}
		if ok && closed {
			if patterns = nil; strings.Contains(suffix, "[") {
				return nil, fmt.Errorf("%q has two ranges: write them apart", item)
			}
			for part := range strings.SplitSeq(inner, ",") {
				if strings.Contains(part, "-") {
					part = "[" + part + "]"
				}
				patterns = append(patterns, prefix+part+suffix)
			}
		}
		for _, p := range patterns {
			names, err := inventory.Expand(p)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				switch {
				case !plainName.MatchString(name):
					return nil, fmt.Errorf("%q is no name: letters, digits, '_', '.' and '-'", name)
				case seen[name]:
					return nil, fmt.Errorf("%s is there twice", name)
				}
				seen[name] = true
				if out = append(out, name); len(out) > mostHosts {
					return nil, fmt.Errorf("more than %d names", mostHosts)
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no names")
	}
	return out, nil
}

// apart are the items of a list with commas or blanks between them, but for those within brackets.
func apart(list string) []string {
	depth := 0
	return strings.FieldsFunc(list, func(r rune) bool {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		}
		return depth == 0 && (r == ',' || r == ' ' || r == '\t')
	})
}

// hostsOfSSHConfig are the hosts that a file of OpenSSH's client names: those without wildcards.
func hostsOfSSHConfig(file string) (out []string, err error) {
	text, err := bounded.ReadFile(file, bounded.Config)
	if err != nil {
		return nil, inputError{err, ""}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(strings.NewReplacer("=", " ", "\"", "").Replace(line))
		if len(words) < 2 || !strings.EqualFold(words[0], "host") {
			continue
		}
		for _, w := range words[1:] {
			if w[0] == '#' { // a comment, up to the end of the line
				break
			}
			if plainName.MatchString(w) && !seen[w] {
				seen[w], out = true, append(out, w)
			}
		}
	}
	if len(out) == 0 {
		return nil, inputError{fmt.Errorf("%s names no hosts: it has no line such as Host node01", file), "--hosts names them"}
	}
	return out, nil
}

// hostsOfSlurm are the nodes of this machine's cluster.
func hostsOfSlurm(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := bounded.Output(exec.CommandContext(ctx, "sinfo", "--noheader", "--format=%N"), bounded.Config)
	if err != nil {
		return nil, inputError{fmt.Errorf("sinfo: %w", err), "--hosts names them"}
	}
	return hostList(strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ","))
}
