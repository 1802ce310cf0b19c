package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments/policy"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/policycheck"
)

func policyCommand() *cli.Command {
	return &cli.Command{
		Name:        "policy",
		Usage:       "check a placement policy of your own, which is a command",
		Action:      group,
		Subcommands: []*cli.Command{policyCheckCommand()},
	}
}

func policyCheckCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "run a policy on random clusters, and report the rules that it breaks",
		ArgsUsage: "FILE|COMMAND ...",
		Flags: []cli.Flag{
			&cli.Uint64Flag{Name: "seed", Usage: "random seed `N` of clusters and jobs; default: any"},
			&cli.DurationFlag{Name: "timeout", Value: policy.DefaultTimeout, Usage: "give up when an answer takes longer than `TIME`"},
		},
		Description: `Examples:
  inabench policy check ./mine.py
  inabench policy check python3 examples/policy/fewest.py
  inabench policy check --seed 7 -- ./mine --fast
`,
		Action: func(c *cli.Context) error {
			command := c.Args().Slice()
			if len(command) == 0 || command[0] == "" {
				return usagef("inabench policy check ./mine.py", "policy check: which command?")
			}
			if _, err := exec.LookPath(command[0]); errors.Is(err, exec.ErrNotFound) {
				return usagef("a file in this folder is ./"+command[0], "policy check: %v", err)
			}
			if c.Duration("timeout") <= 0 {
				return usagef("", "--timeout must be above zero")
			}
			seed := c.Uint64("seed")
			if !c.IsSet("seed") {
				seed = rand.Uint64N(1_000_000)
			}
			return checkPolicy(c, policy.Command{Name: "mine", Command: command, Timeout: c.Duration("timeout"), Twice: true}, seed)
		},
	}
}

// checkPolicy does all checks, each on processes of its own, and says how they went. Of a command that answers nothing at
// all it says just that.
func checkPolicy(c *cli.Context, command policy.Command, seed uint64) error {
	err := askOnce(c.Context, command)
	switch {
	case c.Context.Err() != nil:
		return context.Cause(c.Context)
	case err != nil:
		return inputError{err, "docs/POLICY.md has the contract"}
	}
	names := slices.Concat(policycheck.Cluster(nil, nil), policycheck.Inventory(nil, nil))
	broken := 0
	for i := range names {
		err := checkRule(c.Context, command, i, seed)
		if c.Context.Err() != nil {
			return context.Cause(c.Context)
		}
		how := "ok"
		if err != nil {
			how = "broken"
			broken++
		}
		fmt.Fprintf(c.App.Writer, "%-7s %-11s %s\n", how, names[i].Name, names[i].Text)
		if err != nil {
			fmt.Fprintf(c.App.Writer, "  %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
		}
	}
	if broken > 0 {
		return inputError{
			fmt.Errorf("%s breaks %d of %d rules", strings.Join(command.Command, " "), broken, len(names)),
			fmt.Sprintf("--seed %d brings them again; docs/POLICY.md has the rules", seed),
		}
	}
	return nil
}

// askOnce asks a policy once. The error is that nothing comes, whatever may be wrong with what comes.
func askOnce(ctx context.Context, command policy.Command) error {
	p, err := policy.Start(ctx, command)
	if err != nil {
		return err
	}
	defer p.Close()
	_, _ = placement.On(p).Place(policycheck.Racks(1, 1, 1), []placement.Job{{ID: 1, Name: "A", GPUs: 1, Collective: placement.INA}}, 1)
	if err := p.Err(); !errors.Is(err, policy.ErrAnswer) {
		return err
	}
	return nil
}

// checkRule does one check. A second process is asked the same, as what a language draws anew in every process, such as
// the order of a set, is not deterministic.
func checkRule(ctx context.Context, command policy.Command, rule int, seed uint64) (err error) {
	var two [2]*policy.Policy
	for i := range two {
		if two[i], err = policy.Start(ctx, command); err != nil {
			return err
		}
		defer two[i].Close()
	}
	p, twin := two[0], two[1]
	checks := slices.Concat(policycheck.Cluster(p, twin), policycheck.Inventory(placement.On(p), placement.On(twin)))
	return checks[rule].Run(seed)
}
