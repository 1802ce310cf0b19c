package experiments

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// Hosts with GPUs are machines, jobs that were there come first, and what a job keeps last.
func TestMachines(t *testing.T) {
	inv := &inventory.Inventory{Hosts: []inventory.Host{
		{Name: "h1", GPUs: 4, NICs: []inventory.NIC{{Switch: "tor1"}}}, {Name: "ps"}, {Name: "h2", GPUs: 2},
	}}
	plan := &placement.Plan{Jobs: []placement.JobPlan{
		{Name: "A", Workers: []placement.Worker{{Host: "h1", GPUs: 1}, {Host: "h2", GPUs: 1}}, Ranks: []string{"h2", "h1"}, Spare: []placement.HostGPUs{{Host: "h1", GPUs: 1}}},
		{Name: "there", Workers: []placement.Worker{{Host: "h1", GPUs: 1}, {Host: "ps"}}},
	}}
	got := study.Machines(inv, plan, func(job string) bool { return job == "there" })
	want := []results.Machine{
		{Name: "h1", Rack: "tor1", GPUs: []results.Cell{{Use: results.Background, Job: "there"}, {Use: results.Worker, Job: "A", Rank: 1}, {Use: results.Spare, Job: "A"}, {}}},
		{Name: "h2", GPUs: []results.Cell{{Use: results.Worker, Job: "A"}, {}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A run that sweeps the policy records where its jobs were.
func TestRunMachines(t *testing.T) {
	text := `
version = 1
name = "place"
inventory = "racks/four-machines.toml"
job = [{name = "there", hosts = ["machine2"]}, {name = "A", gpus = 3}]
sweep = [{key = "placement.policy", values = ["first-fit", "elasticflow"]}]
`
	spec, err := kinds.Parse("place.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	rec, _, err := Run(t.Context(), spec, RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range rec.Points {
		for _, m := range p.Machines {
			line := m.Name
			for _, c := range m.GPUs {
				text, err := c.MarshalText()
				if err != nil {
					t.Fatal(err)
				}
				line += " " + string(text)
			}
			got = append(got, line)
		}
	}
	want := []string{
		"machine1 A/0 A/1 A/2 ", "machine2 there/background   ", "machine3    ", "machine4    ",
		"machine1    ", "machine2 there/background A/0 A/1 A/2", "machine3    ", "machine4    ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A trace shows where all jobs were when the last one came: of each that ran all ranks,
// once, in the first repeat.
func TestTraceMachines(t *testing.T) {
	text := `
version = 1
name = "snapshot"
on = "sim"
fat_tree = {racks = 2, hosts = 4, gpus = 8, rate = "100Gbit/s", pat = "0bit/s"}
trace = {from = "elasticflow", jobs = 60, load = 0.5, period = "0s", collective = "halving-doubling", models = ["resnet50"]}
measure = {repeats = 2}
sweep = [{key = "placement.policy", values = ["titan", "elasticflow-power-of-two"]}]
`
	spec, err := kinds.Parse("snapshot.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	rec, _, err := Run(t.Context(), spec, RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range rec.Points {
		if p.Repeat > 0 {
			if p.Machines != nil {
				t.Errorf("%s: machines of repeat %d", p.Label(), p.Repeat)
			}
			continue
		}
		if len(p.Machines) != 8 || p.Machines[7].Name != "r2h4" || !(p.MachinesAt > 0) {
			t.Fatalf("%s: %d machines after %g s", p.Label(), len(p.Machines), p.MachinesAt)
		}
		ranks, most := map[string]map[int]bool{}, map[string]int{}
		for _, m := range p.Machines {
			for _, c := range m.GPUs {
				if c.Use != results.Worker {
					continue
				}
				if ranks[c.Job] == nil {
					ranks[c.Job] = map[int]bool{}
				}
				if ranks[c.Job][c.Rank] {
					t.Errorf("%s: rank %d of job %s is on two GPUs", p.Label(), c.Rank, c.Job)
				}
				ranks[c.Job][c.Rank], most[c.Job] = true, max(most[c.Job], c.Rank)
			}
		}
		for job, r := range ranks {
			if len(r) != most[job]+1 {
				t.Errorf("%s: job %s has %d ranks, up to %d", p.Label(), job, len(r), most[job])
			}
		}
		if len(ranks) == 0 {
			t.Errorf("%s: no jobs", p.Label())
		}
	}
}
