package deployment_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/deployment"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// A switch, a worker, a PS, a worker of a ring and this program, stopped in turn, are each
// told as the place that stood still, and when. The jobs go on, and their sums are right.
func TestStopped(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	t.Parallel()
	if !netnstest.Apart(t) { // this program is stopped too
		return
	}
	inv := twoHosts()
	for i := range inv.Hosts {
		inv.Hosts[i].NICs[0].Delay = 25 * time.Millisecond // a round trip of 100 ms: a stop is 20
	}
	tb, err := emulate(t.Context(), inv, netns.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tb.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	setup := jobA(t, tb.Inventory(), testbed.Workload{Window: 16, RTO: time.Second})
	ring := setup.Workloads[0]
	ring.Job = ringB(t, tb.Inventory())
	ring.Message = 16 << 10
	setup.Plan.Jobs, setup.Workloads = append(setup.Plan.Jobs, ring.Job), append(setup.Workloads, ring)
	d, err := tb.Deploy(t.Context(), setup)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(t.Context())
	for _, job := range []string{"A", "B"} {
		if err := d.Start(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Health(t.Context()); err != nil { // what was until now does not count
		t.Fatal(err)
	}
	if _, err := d.Stalls(t.Context()); err != nil {
		t.Fatal(err)
	}

	const long = 150 * time.Millisecond
	type stop struct {
		where    string
		from, to time.Duration // it was stopped between
	}
	var stops []stop
	stopped := func(where string, do func() error) {
		s := stop{where: where, from: d.Now()}
		if err := do(); err != nil {
			t.Fatalf("stop %s: %v", where, err)
		}
		s.to = d.Now()
		stops = append(stops, s)
		if err := d.Sleep(t.Context(), d.Now()+time.Second); err != nil { // what was late is sent, and told
			t.Fatal(err)
		}
	}
	const script = "kill -STOP %[1]s && sleep .15; kill -CONT %[1]s"
	stopped("switch tor1", func() error { return sh(t, fmt.Sprintf(script, pidOf(t, "netns-host\x00switch tor1"))) })
	onHost := func(host, title string) func() error {
		return func() error {
			c, err := tb.(*deployment.Testbed).Client(host)
			if err != nil {
				return err
			}
			pids := "$(grep -laE '" + title + "' /proc/[1-9]*/cmdline | cut -d/ -f3)"
			_, err = c.Run(t.Context(), []string{"sh", "-c", fmt.Sprintf("p="+pids+"; "+script, "$p")}, nil)
			return err
		}
	}
	stopped("worker A/0 on host h1", onHost("h1", "worker [A]/0"))
	stopped("ps A on host h2", onHost("h2", "ps [A]"))
	stopped("worker B/1 on host h2", onHost("h2", "worker [B]/1"))
	stopped("this machine", func() error { return sh(t, fmt.Sprintf(script, "$PPID")) })

	if err := d.Sleep(t.Context(), d.Now()+3*time.Second); err != nil { // agents of a busy machine tell late
		t.Fatal(err)
	}
	all, err := d.Stalls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Logf("%v to %v: %s: %s", s.Start.Round(time.Millisecond), s.End.Round(time.Millisecond), s.Where, s.What)
	}
	if !slices.IsSortedFunc(all, func(a, b testbed.Stall) int { return int(a.Start - b.Start) }) {
		t.Error("out of order")
	}
	const slack = 40 * time.Millisecond
	for _, s := range stops {
		if !slices.ContainsFunc(all, func(x testbed.Stall) bool {
			during := min(x.End, s.to) - max(x.Start, s.from)
			return x.Where == s.where && x.Late >= long-slack && during >= long-slack
		}) {
			t.Errorf("%s was stopped between %v and %v", s.where, s.from, s.to)
		}
	}
	health, err := d.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{"switch tor1", "worker A/0 on host h1"} {
		if !slices.ContainsFunc(health, func(x results.Trouble) bool { return x.Where == where && strings.HasPrefix(x.What, "stood still ") }) {
			t.Errorf("health does not tell that %s stood still: %+v", where, health)
		}
	}
	for _, job := range []string{"A", "B"} {
		if err := d.Stop(t.Context(), job); err != nil {
			t.Error(err)
		}
		if sum, err := d.Summary(job); err != nil || sum.SumErrors != 0 || sum.SumsChecked == 0 {
			t.Errorf("job %s: %+v, %v", job, sum, err)
		}
	}
}

// sh runs a script beside this process.
func sh(t *testing.T, script string) error {
	return exec.CommandContext(t.Context(), "sh", "-c", script).Run()
}

// pidOf is the process that has a part of its command line.
func pidOf(t *testing.T, part string) string {
	t.Helper()
	all, err := filepath.Glob("/proc/[1-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(part)) {
			return filepath.Base(filepath.Dir(f))
		}
	}
	t.Fatalf("no process %q", part)
	return ""
}
