// Command inabench runs experiments on testbeds for in-network aggregation.
//
//	inabench run experiments/quickstart.toml
//
// It reads an inventory of hosts and switches and an experiment, computes where
// jobs go and what they should get, makes it happen on a lab, an emulated rack or
// a model, and holds what was measured against what was predicted.
package main

import (
	"os"

	"github.com/inabench/inabench/cmd/cli"
)

func main() { os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
