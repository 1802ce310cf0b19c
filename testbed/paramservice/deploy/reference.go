package deploy

import (
	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/node"
)

// Reference is the digest of what a job's models become when nothing goes wrong, computed here.
func Reference(j Job) string {
	models := make([][]float32, len(j.Tensors))
	for t, spec := range j.Tensors {
		model, gradient, sum := make([]float32, spec.Elements), make([]float32, spec.Elements), make([]float32, spec.Elements)
		client.Initial(t, model)
		for v := range j.Iterations {
			clear(sum)
			for rank := range j.Workers {
				client.Synthetic(j.Seed, int32(rank))(t, uint64(v+1), model, gradient)
				for i, g := range gradient {
					sum[i] += g
				}
			}
			for i := range model {
				product := j.Rate * sum[i] // rounded by itself, as Aggregators do
				model[i] -= product
			}
		}
		models[t] = model
	}
	return node.Digest(models)
}
