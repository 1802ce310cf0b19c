package deploy

import (
	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/node"
)

// Reference is the digest of what a job's models become when nothing goes wrong, computed here.
func Reference(j Job) string { return node.Digest(client.Models(j.Job, j.Seed, j.Iterations)) }
