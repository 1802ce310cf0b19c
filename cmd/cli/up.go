package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/pace"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/starter"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/standing"
)

// upFlag says which emulation of those that are up; if there is one, it is that one.
func upFlag() cli.Flag {
	return &cli.StringFlag{Name: "name", Aliases: []string{"n"}, EnvVars: []string{"INABENCH_UP"}, Usage: "`NAME` of the emulation, if several are up"}
}

// connectVerb is the hidden verb that connects stdin and stdout to a host's SSH server, for ssh's ProxyCommand.
const connectVerb = "up-connect"

func upCommand() *cli.Command {
	return &cli.Command{
		Name:      "up",
		Usage:     "start an emulation that stays up in the background, for an inventory or an experiment",
		ArgsUsage: "FILE.toml",
		Flags: []cli.Flag{
			setFlag(), switchFlag(), skipFlag("skip-preflight"),
			&cli.StringFlag{Name: "name", Aliases: []string{"n"}, Usage: "`NAME` for it; otherwise that of the file"},
			&cli.DurationFlag{Name: "for", Value: 8 * time.Hour, Usage: "stop after `DURATION`, such as 30m, or when a run that began before then ends"},
			&cli.BoolFlag{Name: "foreground", Usage: "stay in this terminal, until Ctrl-C"},
		},
		Description: `Examples:
  inabench up my-rack.toml
  inabench exec node01 -- ping -c 3 node02     # hosts know each other by name
  inabench run --reuse my-first.toml           # as often as it is wanted, without bringing up
  inabench ssh node01
  inabench ps
  inabench down
`,
		Action: upAction,
	}
}

func upAction(c *cli.Context) error {
	path, err := argument(c, "file")
	if err != nil {
		return err
	}
	lasts := c.Duration("for")
	if lasts <= 0 {
		return usagef("--for 30m", "--for %v: too short for an emulation", lasts)
	}
	src, err := readFile(path)
	if err != nil {
		return err
	}
	s, err := upSpec(&src, sets(c))
	if err != nil {
		return err
	}
	name := cmp.Or(c.String("name"), nameOf(path))
	if err := standing.CheckName(name); err != nil {
		return inputError{err, "--name NAME"}
	}
	if !c.Bool("foreground") {
		return upBehind(c, name, path)
	}
	if err := emulate(c.Context); err != nil {
		return err
	}
	skip, err := skipped(c, "skip-preflight")
	if err != nil {
		return err
	}
	p := newProgress(c.App.ErrWriter, false)
	slow := slowly{asked: s, spec: s, src: src, sets: sets(c), open: pace.Open(s), say: p.say}
	if _, err := slow.choose(c.Context, 1); err != nil {
		return err
	}
	keeper, err := standing.Keep(name)
	if err != nil {
		return upError(err, name)
	}
	p.update(experiments.Status{Stage: "bring up"})
	slow.spec.SkipPreflight(skip...)
	st, err := experiments.Stand(c.Context, slow.spec)
	p.clear()
	if err != nil {
		keeper.Close(err)
		return err
	}
	file, _ := filepath.Abs(path)
	h := &keeping{standing: st, info: infoOf(st, slow.spec, file), program: sync.OnceValues(programSum)}
	err = leaveAccess(keeper, st.Testbed.Inventory(), h.info)
	if err == nil {
		p.say(fmt.Sprintf("%s is up: %s", name, h.info.Experiment))
		err = keeper.Serve(c.Context, h, lasts)
	}
	err = errors.Join(err, st.Testbed.Close(c.Context))
	keeper.Close(err)
	return err
}

// nameOf is a file's without what follows its last dot, of letters that a name has.
func nameOf(path string) string {
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// upSpec is the experiment that a file is, or a first one on the inventory that it is.
func upSpec(src *source, sets []string) (*spec.Spec, error) {
	inv, s, err := src.lab(sets)
	if err != nil || s != nil {
		return s, err
	}
	text, err := starter.Experiment(inv, filepath.Base(src.name))
	if err != nil {
		return nil, inputError{err, "an experiment that names it can be brought up, too"}
	}
	src.name, src.text = filepath.Join(filepath.Dir(src.name), nameOf(src.name)+"-up.toml"), text
	return kinds.Parse(src.name, src.text, nil, sets...)
}

// infoOf is what there is to say about an emulation.
func infoOf(st *experiments.Standing, s *spec.Spec, file string) standing.Info {
	info := standing.Info{File: file, Experiment: s.Name, Factor: st.Factor(), Since: time.Now().UTC(), Token: os.Getenv(upToken)}
	for _, h := range st.Testbed.Inventory().Hosts {
		address := h.SSH.Address
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(address, "22")
		}
		info.Hosts = append(info.Hosts, standing.Host{Name: h.Name, Address: address, User: h.SSH.User})
	}
	for _, sw := range st.Testbed.Inventory().Switches {
		info.Switches = append(info.Switches, sw.Name)
	}
	return info
}

// leaveAccess leaves the files that SSH's clients want: ours, and others.
func leaveAccess(k *standing.Keeper, inv *inventory.Inventory, info standing.Info) error {
	if len(inv.Hosts) == 0 {
		return nil
	}
	e, at := k.Emulation(), map[string]string{}
	for file, path := range map[string]string{standing.KeyFile: inv.Hosts[0].SSH.Key, standing.KnownHosts: inv.Hosts[0].SSH.KnownHosts} {
		text, err := bounded.ReadFile(path, bounded.Config)
		if err == nil {
			err = k.Leave(file, text)
		}
		if err == nil {
			at[file], err = e.Path(file)
		}
		if err != nil {
			return err
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Hosts of the emulation %s, while it is up: ssh -F FILE HOST, scp -F FILE, rsync -e \"ssh -F FILE\".\n", e.Name)
	for _, h := range info.Hosts {
		host, port, _ := net.SplitHostPort(h.Address)
		percent := func(s string) string { return strings.ReplaceAll(s, "%", "%%") }
		fmt.Fprintf(&b, "\nHost %s\n  HostName %s\n  Port %s\n  User %s\n  IdentityFile %q\n  IdentitiesOnly yes\n  UserKnownHostsFile %q\n  ProxyCommand %s\n",
			h.Name, host, port, h.User, percent(at[standing.KeyFile]), percent(at[standing.KnownHosts]), percent(human.ShellLine(exe, connectVerb, e.Name, h.Name)))
	}
	return k.Leave(standing.Config, []byte(b.String()))
}

// upError says what to do about an emulation that is there, or not.
func upError(err error, name string) error {
	switch {
	case errors.Is(err, standing.ErrTaken):
		return hinted{fmt.Errorf("%w: %w", testbed.ErrBusy, err), fmt.Sprintf("inabench down %s takes it down; --name gives this one another name", name)}
	case errors.Is(err, standing.ErrBusy):
		return hinted{fmt.Errorf("%w: %w", testbed.ErrBusy, err), "inabench ps says what; inabench up --name NAME FILE.toml brings up another one"}
	case errors.Is(err, standing.ErrSeveral):
		return usageError{err, "name one: inabench ps lists them; --name, or INABENCH_UP in the environment, where a command takes no name"}
	case errors.Is(err, standing.ErrNone):
		return inputError{err, "inabench up FILE.toml brings one up; inabench ps lists them"}
	}
	return err
}

// upToken is the environment variable by which a keeper is known to whoever has started it.
const upToken = "INABENCH_UP_TOKEN"

// upBehind brings an emulation up in a process of its own, and waits until it is.
func upBehind(c *cli.Context, name, path string) error {
	e := standing.Emulation{Name: name}
	if _, err := e.Info(c.Context); err == nil {
		return upError(fmt.Errorf("%w: %s", standing.ErrTaken, name), name)
	}
	log, err := e.Log()
	if err != nil {
		return err
	}
	defer log.Close()
	logged := false
	defer func() {
		if !logged {
			_ = os.Remove(log.Name())
		}
	}()
	token := rand.Text()
	args := []string{"up", "--foreground", "--name", name, "--for", c.Duration("for").String()}
	for _, set := range sets(c) {
		args = append(args, "--set", set)
	}
	if skip := c.String("skip-preflight"); skip != "" {
		args = append(args, "--skip-preflight", skip)
	}
	cmd := exec.Command("/proc/self/exe", append(args, "--", path)...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the end of this terminal is not its
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "INABENCH_SWITCH=") || strings.HasPrefix(s, "INABENCH_SKIP_PREFLIGHT=")
	}), upToken+"="+token)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p := newProgress(c.App.ErrWriter, false)
	p.update(experiments.Status{Stage: "bring up"})
	defer p.clear()
	for {
		select {
		case err := <-ended:
			p.clear()
			said, _ := bounded.ReadFile(log.Name(), bounded.Config)
			fmt.Fprint(c.App.ErrWriter, string(said))
			if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
				return saidError{exit.ExitCode()}
			}
			return fmt.Errorf("%s is not up: its keeper has ended", name)
		case <-c.Context.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-ended
			return context.Cause(c.Context)
		case <-time.After(50 * time.Millisecond):
		}
		info, err := e.Info(c.Context)
		if err != nil || info.Token != token {
			continue
		}
		logged = e.Logged(log) == nil
		p.clear()
		config, _ := e.Path(standing.Config)
		slow := ""
		if info.Factor > 1 {
			slow = fmt.Sprintf(", slow motion x%g", info.Factor)
		}
		fmt.Fprintf(c.App.Writer, "%s is up: %s and %s%s, until %s\n\n", name,
			human.Plural(len(info.Hosts), "host"), human.Plural(len(info.Switches), "switch"), slow, stamp(info.Ends))
		if len(info.Hosts) > 0 {
			h := info.Hosts[0].Name
			fmt.Fprintf(c.App.Writer, "  inabench exec %s -- hostname\n  inabench ssh %s\n  ssh -F %s %s\n", h, h, human.ShellLine(config), h)
		}
		fmt.Fprintf(c.App.Writer, "  inabench run --reuse EXPERIMENT.toml\n  inabench down %s\n", name)
		return nil
	}
}

// saidError is a program of ours that ended with an exit code and has said why.
type saidError struct{ code int }

func (e saidError) Error() string { return fmt.Sprintf("exit code %d", e.code) }
func (e saidError) exit() int     { return e.code }

func downCommand() *cli.Command {
	return &cli.Command{
		Name:      "down",
		Usage:     "stop an emulation",
		ArgsUsage: "[NAME ...]",
		Flags:     []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "all emulations of this user"}},
		Action: func(c *cli.Context) error {
			names := c.Args().Slice()
			var errs []error
			if c.Bool("all") {
				if len(names) > 0 {
					return usagef("inabench down --all", "down: names, or --all")
				}
				all, err := standing.All(c.Context)
				if err != nil { // of one that does not answer: the others go
					errs = append(errs, err)
				}
				for _, e := range all {
					names = append(names, e.Name)
				}
			} else if len(names) == 0 {
				names = []string{os.Getenv("INABENCH_UP")}
			}
			for _, name := range names {
				e, err := standing.Find(c.Context, name)
				if err == nil {
					err = e.Down(c.Context, downWithin)
				}
				if err != nil {
					errs = append(errs, upError(err, name))
					continue
				}
				fmt.Fprintf(c.App.Writer, "%s is down\n", e.Name)
			}
			return errors.Join(errs...)
		},
	}
}

// downWithin is how long an emulation has to be taken down, and a run on it before that.
const downWithin = 45 * time.Second

func psCommand() *cli.Command {
	return &cli.Command{
		Name:  "ps",
		Usage: "list the emulations of this user that are up",
		Flags: []cli.Flag{tableFlag()},
		Action: func(c *cli.Context) error {
			all, err := standing.All(c.Context)
			if err != nil && len(all) == 0 {
				return err
			}
			return errors.Join(err, put(c, append([]standing.Info{}, all...), func(w io.Writer) error {
				if len(all) == 0 {
					fmt.Fprintln(c.App.ErrWriter, "inabench: nothing is up; inabench up FILE.toml brings an emulation up")
					return nil
				}
				tw := newTable(w, "NAME", "HOSTS", "SWITCHES", "FACTOR", "SINCE", "ENDS IN", "RUNS", "PID")
				for _, e := range all {
					fmt.Fprintf(tw, "%s\t%d\t%d\t%g\t%s ago\t%s\t%s\t%d\n", e.Name, len(e.Hosts), len(e.Switches), e.Factor,
						short(time.Since(e.Since)), short(time.Until(e.Ends)), cmp.Or(e.Running, "-"), e.PID)
				}
				return tw.Flush()
			}))
		},
	}
}

func execCommand() *cli.Command {
	return &cli.Command{
		Name:      "exec",
		Usage:     "run a command on a host of an emulation that is up, and exit with its exit code",
		ArgsUsage: "HOST -- COMMAND ...",
		Flags:     []cli.Flag{upFlag()},
		Action: func(c *cli.Context) error {
			if c.NArg() < 2 {
				return usagef("inabench exec HOST -- COMMAND ...", "exec: which host, and which command?")
			}
			return onStanding(c, c.Args().First(), c.Args().Tail(), struct{ io.Reader }{c.App.Reader}) // no terminal there
		},
	}
}

// onStanding runs a command, or a shell, on a host of an emulation that is up.
func onStanding(c *cli.Context, host string, argv []string, stdin io.Reader) error {
	e, err := standing.Find(c.Context, c.String("name"))
	if err != nil {
		return upError(err, c.String("name"))
	}
	info, err := e.Info(c.Context)
	if err != nil {
		return upError(err, e.Name)
	}
	var names []string
	for _, h := range info.Hosts {
		names = append(names, h.Name)
	}
	i := slices.Index(names, host)
	if i < 0 {
		return noHost(host, "emulation "+e.Name, names)
	}
	key, err := e.Path(standing.KeyFile)
	if err != nil {
		return err
	}
	known, err := e.Path(standing.KnownHosts)
	if err != nil {
		return err
	}
	client, err := ssh.Dial(c.Context, ssh.Target{
		Name: host, Address: info.Hosts[i].Address, User: info.Hosts[i].User, Keys: []string{key}, KnownHosts: []string{known},
		Agent: "none", IdentitiesOnly: true, Direct: true, Config: "none",
		Net: func(ctx context.Context) (net.Conn, error) { return e.Dial(ctx, host) },
	})
	if err != nil {
		return err
	}
	defer client.Close()
	return interact(c, client, argv, stdin)
}

// connect is the hidden verb of ProxyCommand.
func connect(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 2 {
		return errors.New("NAME and HOST")
	}
	there, err := standing.Emulation{Name: args[0]}.Dial(ctx, args[1])
	if err != nil {
		return err
	}
	defer there.Close()
	go func() { // not waited for: it may wait for keys
		_, _ = io.Copy(there, stdin)
		if w, ok := there.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
	}()
	_, err = io.Copy(stdout, there)
	return err
}

// keeping is an emulation that this process keeps up.
type keeping struct {
	standing *experiments.Standing
	info     standing.Info
	program  func() (string, error) // the digest of this one
}

func (h *keeping) Info() standing.Info { return h.info }

func (h *keeping) Dial(ctx context.Context, host string) (net.Conn, error) {
	i := slices.IndexFunc(h.info.Hosts, func(x standing.Host) bool { return x.Name == host })
	if i < 0 {
		return nil, fmt.Errorf("no host %q", host)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", h.info.Hosts[i].Address)
}

// Run does a command as if it had been typed where its user is.
func (h *keeping) Run(ctx context.Context, r standing.Run, stdout, stderr *os.File) int {
	diag := newDoor(stderr)
	defer diag.close()
	back, err := h.there(r)
	if err != nil {
		return exitCode(ctx, &experiments.BeginError{Err: err}, diag)
	}
	defer back()
	ctx = context.WithValue(ctx, keptKey{}, kept{h.standing, r.Args})
	inner, interrupt := context.WithCancelCause(context.WithoutCancel(ctx))
	defer interrupt(nil)
	defer context.AfterFunc(ctx, func() { interrupt(interruption{syscall.SIGINT}) })()
	return mainIn(inner, r.Args, strings.NewReader(""), stdout, diag)
}

// there makes this process one that is where a command was typed; back undoes it. It is an error if it is of another
// program, or does not see the same files.
func (h *keeping) there(r standing.Run) (back func(), err error) {
	again := "inabench down and inabench up make it anew"
	program, err := h.program()
	if err != nil {
		return nil, err
	}
	if program != r.Program {
		return nil, hinted{errors.New("the emulation was brought up by another build of this program"), again}
	}
	for _, p := range r.Sees {
		if mine, err := standing.PlaceOf(p.Path); err != nil || mine != p {
			return nil, hinted{fmt.Errorf("%s differs inside and outside the emulation: something was mounted over it, or after the emulation came up", p.Path), again}
		}
	}
	here, err := os.Getwd()
	if err == nil {
		err = os.Chdir(r.Dir)
	}
	if err != nil {
		return nil, err
	}
	before := typedWith()
	retype(r.Environ)
	return func() {
		_ = os.Chdir(here)
		retype(before)
	}, nil
}

// typedWith are the variables of the environment that say something about a command, and nothing about who does it.
func typedWith() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return !aboutCommand(kv) })
}

// retype has the environment say that about a command, and nothing else.
func retype(environ []string) {
	for _, kv := range typedWith() {
		key, _, _ := strings.Cut(kv, "=")
		_ = os.Unsetenv(key)
	}
	for _, kv := range environ {
		if key, value, _ := strings.Cut(kv, "="); aboutCommand(kv) {
			_ = os.Setenv(key, value)
		}
	}
}

func aboutCommand(kv string) bool {
	key, _, _ := strings.Cut(kv, "=")
	return strings.HasPrefix(key, "INABENCH_") && key != "INABENCH_NETNS" && key != upToken || key == "NO_COLOR" || key == "TERM"
}

// programSum is the digest of this program.
func programSum() (string, error) {
	_, sum, err := hosts.Sum("/proc/self/exe")
	return sum, err
}

// kept is the emulation that this process keeps up, and what was typed to be done on it.
type kept struct {
	standing *experiments.Standing
	args     []string
}

type keptKey struct{}

// keptOf is what a command runs on that a keeper does.
func keptOf(ctx context.Context) (k kept, ok bool) {
	k, ok = ctx.Value(keptKey{}).(kept)
	return k, ok
}

// reuse has the keeper of an emulation that is up do this command, which runs an experiment.
func reuse(c *cli.Context, experiment string) error {
	e, err := standing.Find(c.Context, c.String("name"))
	if err != nil {
		return upError(err, c.String("name"))
	}
	stdout, ok1 := file(c.App.Writer)
	stderr, ok2 := file(c.App.ErrWriter)
	if !ok1 || !ok2 {
		return fmt.Errorf("--reuse, with streams that are no files: %w", errors.ErrUnsupported)
	}
	r := standing.Run{What: experiment, Args: os.Args, Environ: typedWith()}
	if r.Dir, err = os.Getwd(); err != nil {
		return err
	}
	if r.Program, err = programSum(); err != nil {
		return err
	}
	for _, path := range []string{".", filepath.Dir(experiment), rootOf(c)} {
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
		p, err := standing.PlaceOf(path)
		for errors.Is(err, fs.ErrNotExist) && path != "/" { // it is to be made there
			path = filepath.Dir(path)
			p, err = standing.PlaceOf(path)
		}
		if err != nil {
			return inputError{err, ""}
		}
		r.Sees = append(r.Sees, p)
	}
	code, err := e.Run(c.Context, r, stdout, stderr)
	if err != nil {
		return upError(err, e.Name)
	}
	if code != 0 {
		return saidError{code}
	}
	return nil
}
