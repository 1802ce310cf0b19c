// Package dataplanetest is the tests that every dataplane.Switch passes.
package dataplanetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/softswitch"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
)

// Subject is a kind of client, with a switch before a memory of its own.
type Subject struct {
	Open     func(t *testing.T) (dataplane.Switch, *softswitchtest.Memory) // a client that has pushed nothing
	Pipeline dataplane.Pipeline
	Refused  []byte // a device config that the server refuses
}

// Sample is something of each kind.
func Sample() dataplane.Batch {
	return dataplane.Batch{
		Groups: []p4.Group{{ID: 1, Ports: []uint32{1, 2}}, {ID: 300, Ports: []uint32{3}}},
		Routes: []p4.Route{{Dst: [4]byte{10, 0, 0, 1}, Port: 1, MAC: [6]byte{2, 0, 0, 0, 0, 1}}, {Dst: [4]byte{10, 0, 0, 2}, Port: 2, MAC: [6]byte{2, 0, 0, 0, 0, 2}}},
		Jobs: []ina.JobEntry{
			{Job: 1, Epoch: 5, Mode: ina.Statistical, Addressing: ina.Hash, Base: 64, Size: 128, Expect: 3, Window: 256, UpPort: 4, DownGroup: 1},
			{Job: 300, Epoch: 1, UpPort: 4, DownGroup: 300},
		},
	}
}

// Run runs them.
func Run(t *testing.T, s Subject) {
	pushed := func(t *testing.T) (dataplane.Switch, *softswitchtest.Memory) {
		c, mem := s.Open(t)
		if err := c.Push(t.Context(), s.Pipeline); err != nil {
			t.Fatal(err)
		}
		return c, mem
	}
	t.Run("write, read, delete, undo", func(t *testing.T) {
		c, mem := pushed(t)
		want := Sample()
		for range 2 {
			if err := c.Write(t.Context(), want); err != nil {
				t.Fatal(err)
			}
		}
		holds(t, c, mem, want)
		want.Jobs[0].Size, want.Routes[1].Port, want.Groups[0].Ports = 16, 3, []uint32{2, 3, 4} // a second write replaces
		if err := c.Write(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		holds(t, c, mem, want)
		gone := dataplane.Batch{Groups: want.Groups[:1], Routes: want.Routes[:1], Jobs: want.Jobs[:1]}
		for range 2 {
			if err := c.Delete(t.Context(), gone); err != nil {
				t.Fatal(err)
			}
		}
		holds(t, c, mem, dataplane.Batch{Groups: want.Groups[1:], Routes: want.Routes[1:], Jobs: want.Jobs[1:]})
		for range 2 {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if diff := cmp.Diff(dataplane.Batch{}, mem.State()); diff != "" {
			t.Errorf("after closing (-want +got):\n%s", diff)
		}
		if err := c.Err(); err != nil {
			t.Errorf("closing counts as a loss: %v", err)
		}
		if err := c.Write(t.Context(), Sample()); !errors.Is(err, dataplane.ErrClosed) {
			t.Errorf("a write after closing: %v", err)
		}
	})
	t.Run("a push forgets", func(t *testing.T) {
		c, mem := pushed(t)
		if err := c.Write(t.Context(), Sample()); err != nil {
			t.Fatal(err)
		}
		if err := c.Push(t.Context(), s.Pipeline); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(dataplane.Batch{}, mem.State()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if err := c.Write(t.Context(), Sample()); err != nil {
			t.Fatal(err)
		}
		holds(t, c, mem, Sample())
		if l := c.Loaded(); l.Kept || l.Cookie == 0 {
			t.Errorf("loaded: %+v", l)
		}
	})
	t.Run("a push that is refused leaves the switch as it was", func(t *testing.T) {
		c, mem := pushed(t)
		want := Sample()
		if err := c.Write(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		before, wrong := c.Loaded(), s.Pipeline
		wrong.DeviceConfig = s.Refused
		var refused *dataplane.Error
		if err := c.Push(t.Context(), wrong); !errors.As(err, &refused) || refused.Code != codes.InvalidArgument {
			t.Errorf("pushed: %v", err)
		}
		holds(t, c, mem, want)
		if l := c.Loaded(); l != before {
			t.Errorf("loaded: %+v, before %+v", l, before)
		}
		want.Jobs[0].Size = 16
		if err := c.Write(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		holds(t, c, mem, want)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(dataplane.Batch{}, mem.State()); diff != "" {
			t.Errorf("after closing (-want +got):\n%s", diff)
		}
	})
	t.Run("counters", func(t *testing.T) {
		c, mem := pushed(t)
		mem.Count(softswitch.PortRx, 2, 5)
		mem.Count(softswitch.JobIn, 300, 7)
		for _, tt := range []struct {
			names   []string
			indices []int
			want    []dataplane.CounterValue
		}{
			{[]string{"port_rx"}, []int{2}, []dataplane.CounterValue{{Name: "port_rx", Index: 2, Packets: 5, Bytes: 500}}},
			{[]string{"job_in"}, []int{300}, []dataplane.CounterValue{{Name: "job_in", Index: 300, Packets: 7, Bytes: 700}}},
			{[]string{"job_in"}, []int{299}, []dataplane.CounterValue{{Name: "job_in", Index: 299}}},
		} {
			got, err := c.ReadCounters(t.Context(), tt.names, tt.indices)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%v %v (-want +got):\n%s", tt.names, tt.indices, diff)
			}
		}
		all, err := c.ReadCounters(t.Context(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = slices.DeleteFunc(all, func(v dataplane.CounterValue) bool { return v.Packets == 0 })
		slices.SortFunc(all, func(a, b dataplane.CounterValue) int { return a.Index - b.Index })
		if diff := cmp.Diff([]dataplane.CounterValue{{Name: "port_rx", Index: 2, Packets: 5, Bytes: 500}, {Name: "job_in", Index: 300, Packets: 7, Bytes: 700}}, all); diff != "" {
			t.Errorf("all (-want +got):\n%s", diff)
		}
		if !slices.Contains(c.Counters(), "port_rx") || !slices.Contains(c.Counters(), "job_in") {
			t.Errorf("counters: %v", c.Counters())
		}
		if _, err := c.ReadCounters(t.Context(), []string{"nobody's"}, nil); !errors.Is(err, p4.ErrUnknown) {
			t.Errorf("a counter that there is not: %v", err)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		c, mem := s.Open(t)
		if err := c.Write(t.Context(), Sample()); !errors.Is(err, dataplane.ErrNoPipeline) {
			t.Errorf("without a pipeline: %v", err)
		}
		if err := c.Push(t.Context(), s.Pipeline); err != nil {
			t.Fatal(err)
		}
		b := Sample()
		b.Jobs = append(b.Jobs, ina.JobEntry{Job: softswitchtest.RefusedJob, Epoch: 1, UpPort: 4, DownGroup: 1})
		var refused *dataplane.Error
		if err := c.Write(t.Context(), b); !errors.As(err, &refused) || len(refused.Updates) != 1 || refused.Updates[0].Op != "insert job 4000" || refused.Switch != c.Name() {
			t.Errorf("a job that there is no room for: %v", err)
		}
		holds(t, c, mem, Sample())
		for what, b := range map[string]dataplane.Batch{
			"a port that there is not": {Groups: []p4.Group{{ID: 2, Ports: []uint32{9}}}},
			"group 0":                  {Groups: []p4.Group{{Ports: []uint32{1}}}},
			"job 0":                    {Jobs: []ina.JobEntry{{Epoch: 1, UpPort: 4}}},
		} {
			if err := c.Write(t.Context(), b); err == nil {
				t.Errorf("%s is written", what)
			}
		}
		holds(t, c, mem, Sample())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.ReadJobs(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// holds checks what a switch has, and what a client reads of it.
func holds(t *testing.T, c dataplane.Switch, mem *softswitchtest.Memory, want dataplane.Batch) {
	t.Helper()
	if diff := cmp.Diff(want, mem.State()); diff != "" {
		t.Errorf("switch (-want +got):\n%s", diff)
	}
	var got dataplane.Batch
	var errs [3]error
	got.Groups, errs[0] = c.ReadGroups(t.Context())
	got.Routes, errs[1] = c.ReadRoutes(t.Context())
	got.Jobs, errs[2] = c.ReadJobs(t.Context())
	if err := errors.Join(errs[:]...); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}
