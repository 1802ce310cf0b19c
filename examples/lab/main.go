// Command lab is inabench with a study, a placement policy, a predictor and a launcher of one's own, in a module of one's own.
//
//	go build -o lab . && ./lab run allreduce.toml
//
// All that inabench does it does: lab is the program that starts on hosts and inside emulations, too.
package main

import (
	"fmt"
	"os"

	"github.com/inabench/inabench/cmd/cli"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/testbed/reach"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "predict" { // as an experiment's [predictor] starts it
		if err := predictor.Serve(os.Stdin, os.Stdout, predict); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	kinds.Add(kind)
	reach.Add("beside", besides)
	spec.AddPolicy(func() cluster.Policy { return emptiest{} })
	os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
}
