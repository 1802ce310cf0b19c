// Package servicetest is what tests of a Parameter Service share: processes that are its parts,
// and the models that training must come to.
package servicetest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/control"
)

// Process is a part of a service: this test binary, run again.
type Process struct {
	Cmd   *exec.Cmd // the test waits for it
	Stdin io.WriteCloser
	Out   *bufio.Scanner // lines of its standard output
}

// Start starts one, which plays that part: the test's TestMain calls netnstest.Play.
func Start(t testing.TB, part string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.Command(os.Args[0], part)}
	p.Cmd.Stderr = os.Stderr
	in, err := p.Cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin, p.Out = in, bufio.NewScanner(out)
	p.Out.Buffer(nil, 1<<20)
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// Models are those of a job after so many iterations, made by a plain loop without a service,
// bit for bit: from client.Initial, with gradients that are client.Synthetic.
func Models(j control.Job, seed uint64, iterations int) [][]float32 {
	var models [][]float32
	for t, spec := range j.Tensors {
		model, g, sum := make([]float32, spec.Elements), make([]float32, spec.Elements), make([]float32, spec.Elements)
		client.Initial(t, model)
		for v := range iterations {
			for r := range j.Workers {
				client.Synthetic(seed, int32(r))(t, uint64(v+1), model, g)
				if r == 0 {
					copy(sum, g)
					continue
				}
				for i := range g {
					sum[i] += g[i]
				}
			}
			for i := range model {
				step := j.Rate * sum[i] // a statement of its own, so that nothing is fused
				model[i] -= step
			}
		}
		models = append(models, model)
	}
	return models
}
