package p4rt

import (
	"context"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
)

// WriteJob is Write of one job.
func (c *Client) WriteJob(ctx context.Context, e ina.JobEntry) error {
	return c.WriteJobs(ctx, []ina.JobEntry{e})
}

// WriteJobs is Write of jobs.
func (c *Client) WriteJobs(ctx context.Context, es []ina.JobEntry) error {
	return c.Write(ctx, dataplane.Batch{Jobs: es})
}
