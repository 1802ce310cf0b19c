package baseline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/exact"
	"github.com/inabench/inabench/placement/policytest"
)

func TestPolicies(t *testing.T) {
	for _, p := range All() {
		t.Run(p.Name(), func(t *testing.T) { policytest.RunCluster(t, p) })
	}
}

func TestFirstFitOrder(t *testing.T) {
	inv := policytest.Racks(2, 2, 4)
	plan, err := placement.On(FirstFit()).Place(inv, []placement.Job{
		{ID: 1, Name: "A", GPUs: 6, Collective: placement.INA},
		{ID: 2, Name: "B", GPUs: 4, Collective: placement.INA},
		{ID: 3, Name: "C", GPUs: 2, Collective: placement.INA},
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	type want struct {
		hosts []string
		gpus  []int
		ps    string
	}
	for i, w := range []want{
		{[]string{"h1-1", "h1-2"}, []int{4, 2}, "h2-1"}, // the first without a worker of A
		{[]string{"h1-2", "h2-1"}, []int{2, 2}, "h2-2"}, // idle, while h1-1 has a worker
		{[]string{"h2-1"}, []int{2}, ""},                // one host needs no network
	} {
		j := plan.Jobs[i]
		if len(j.Workers) != len(w.hosts) || j.PS != w.ps {
			t.Errorf("job %s: workers %v PS %q, want %v", j.Name, j.Workers, j.PS, w)
			continue
		}
		for k, wk := range j.Workers {
			if wk.Host != w.hosts[k] || wk.GPUs != w.gpus[k] {
				t.Errorf("job %s worker %d: %v, want %s with %d", j.Name, k, wk, w.hosts[k], w.gpus[k])
			}
		}
	}
}

// parse reads an instance and the lines that say what policies are to make of it.
func parse(t *testing.T, text string) (exact.Instance, map[string][]string) {
	t.Helper()
	want := map[string][]string{}
	var rest strings.Builder
	for line := range strings.Lines(text) {
		if w, ok := strings.CutPrefix(line, "want "); ok {
			policy, place, _ := strings.Cut(strings.TrimSpace(w), " ")
			want[policy] = append(want[policy], place)
			line = "\n"
		}
		rest.WriteString(line)
	}
	in, err := exact.Parse(strings.NewReader(rest.String()))
	if err != nil {
		t.Fatal(err)
	}
	return in, want
}

func checkPlaces(t *testing.T, p cluster.Policy, in *exact.Instance, want []string) {
	t.Helper()
	c, err := in.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range p.Place(c, in.Batch, 1) {
		if got.String() != want[i] {
			t.Errorf("job %d of %d GPUs: %v, want %s", i, in.Batch[i].GPUs, got, want[i])
		}
	}
}

// The baselines are those of NetPack's prototype.
func TestPrototype(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		in, want := parse(t, string(text))
		pinned := 0
		for _, p := range All() {
			if w := want[p.Name()]; w != nil {
				pinned++
				t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+p.Name(), func(t *testing.T) { checkPlaces(t, p, &in, w) })
			}
		}
		if pinned != len(want) {
			t.Errorf("%s: %d policies of %v", file, pinned, want)
		}
	}
}

// The policies that the prototype has not: worked by hand.
func TestOrders(t *testing.T) {
	for name, tt := range map[string]struct {
		policy cluster.Policy
		text   string
	}{
		"first fit fills from the first server": {FirstFit(), `
rack 1 +Inf
server 0 4 1
server 0 4 1
server 0 4 1
job 6 1
job 4 1
job 2 1
want first-fit 0:4 1:2 ps 2
want first-fit 1:2 2:2 ps 0
want first-fit 2:2`},
		"first fit: a PS with its own worker only if it must": {FirstFit(), `
rack 1 +Inf
server 0 4 1
server 0 4 1
job 8 1
want first-fit 0:4 1:4 ps 0`},
		"comb: free GPUs before all else": {Comb(), `
rack 1 +Inf
rack 9 +Inf
server 0 4 1
server 1 3 9
server 1 3 9
job 5 1
want comb 0:4 1:1 ps 2`},
		"comb: of equals the ToR switch with more memory left": {Comb(), `
rack 1 +Inf
rack 2 +Inf
server 0 4 1
server 1 4 1
job 2 1
want comb 1:2`},
		"comb: then the link with more bandwidth left": {Comb(), `
rack 0 +Inf
server 0 4 1
server 0 4 1
server 0 4 1
server 0 4 1
run 1 0:1 1:1 ps 2
run 1 2:1
run 1 3:1
job 3 1
want comb 3:3`},
		"a job that does not fit blocks none": {GPUBalance(), `
rack 1 +Inf
server 0 4 1
job 3 1
job 2 1
job 1 1
want gpu-balance 0:3
want gpu-balance -
want gpu-balance 0:1`},
		"the PS goes where no flow is, counted after the workers": {GPUBalance(), `
rack 1 +Inf
server 0 2 1
server 0 2 1
server 0 2 1
run 1 2:2
job 4 1
want gpu-balance 0:2 1:2 ps 2`},
	} {
		t.Run(name, func(t *testing.T) {
			in, want := parse(t, tt.text)
			checkPlaces(t, tt.policy, &in, want[tt.policy.Name()])
		})
	}
}

// Several parameter servers spread like one: each counts for the next.
func TestParameterServers(t *testing.T) {
	c := cluster.New(cluster.FatTree(1, 4, 2, 1, 1, 1))
	for i, want := range []string{"0:2 1:2 ps 2 3 2", "2:2 3:2"} {
		job := cluster.Job{ID: i, GPUs: 4, PSes: 3, Traffic: []cluster.Traffic{cluster.INA, cluster.Ring}[i]}
		if got := GPUBalance().Place(c, []cluster.Job{job}, 1)[0].String(); got != want {
			t.Errorf("job %d: %s, want %s", i, got, want)
		}
	}
}

// Another seed is another order, the same seed the same.
func TestRandomSeed(t *testing.T) {
	place := func(seed uint64) string {
		c := cluster.New(cluster.FatTree(1, 64, 4, 1, 1, 1))
		return Random().Place(c, []cluster.Job{{ID: 7, GPUs: 16}}, seed)[0].String()
	}
	one, again, two := place(1), place(1), place(2)
	if one != again || one == two {
		t.Errorf("seed 1: %s, again %s, seed 2: %s", one, again, two)
	}
}
