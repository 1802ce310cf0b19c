package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
)

// kind is a study that has the table [allreduce].
var kind = spec.Kind{
	Table: "allreduce", Type: reflect.TypeFor[*allReduce](), Mute: true,
	Unplanned: errors.New("no plan of an [allreduce]: nothing is placed"),
}

// allReduce is one all-reduce by all hosts of the inventory in virtual time, where each message takes a latency and its
// bytes over the slowest cable, and each round waits for its slowest message.
type allReduce struct {
	Algorithm string             `toml:"algorithm" default:"ring" words:"ring,ina"` // "ring", or "ina": all to a switch and back
	Bytes     inventory.Bytes    `toml:"bytes,required"`                            // of each host
	Latency   inventory.Duration `toml:"latency" default:"5us"`                     // of a message
}

func (a *allReduce) Check(c *spec.Checker) {
	spec.Positive(c, "allreduce.bytes", a.Bytes)
}

func (a *allReduce) Count() int { return 1 }
func (a *allReduce) Metrics() spec.Measurables {
	return spec.Measurables{}.Add(results.Cluster, "comm_time algbw busbw")
}
func (a *allReduce) Headline() []string   { return []string{"comm_time", "algbw"} }
func (a *allReduce) Predictors() []string { return []string{"rounds"} }
func (a *allReduce) Columns() []string    { return []string{"round", "seconds"} }

func (a *allReduce) Supports(driver string) error {
	if driver != "sim" {
		return fmt.Errorf("[allreduce] on %s: %w: it is a model", driver, errors.ErrUnsupported)
	}
	return nil
}

func (a *allReduce) Ready(p study.Planned) error {
	if n := len(p.Spec.Inventory().Hosts); n < 2 {
		return spec.Invalidf("[allreduce] of %d hosts: two at least", n)
	}
	return nil
}

func (a *allReduce) Run(context.Context, *study.Bench) (*results.Point, [][]string, error) {
	return &results.Point{}, nil, fmt.Errorf("[allreduce] on a testbed: %w", errors.ErrUnsupported)
}

// Simulate implements study.Simulator.
func (a *allReduce) Simulate(ctx context.Context, s *spec.Spec, repeat int) (*study.Repetition, error) {
	hosts := s.Inventory().Hosts
	slowest := hosts[0].NICs[0].Rate
	for _, h := range hosts {
		slowest = min(slowest, h.NICs[0].Rate)
	}
	n := float64(len(hosts))
	rounds, part := 2*(len(hosts)-1), float64(a.Bytes)/n
	if a.Algorithm == "ina" {
		rounds, part = 2, float64(a.Bytes)
	}
	out := &study.Repetition{}
	for round := range rounds {
		out.End += a.Latency.Std().Seconds() + 8*part/float64(slowest)
		out.Rows = append(out.Rows, []string{fmt.Sprint(round), study.InSeconds(out.End)})
	}
	algbw := 8 * float64(a.Bytes) / out.End
	for name, v := range map[string]float64{"comm_time": out.End, "algbw": algbw, "busbw": algbw * 2 * (n - 1) / n} {
		out.Figures = append(out.Figures, study.Exactly(name, results.Cluster, results.Simulated, v))
	}
	return out, nil
}
