package netpack

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/policytest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

var seed = flag.Uint64("netpack.seed", 0, "seed of the random clusters; 0: from the clock")

func random(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -netpack.seed %d", s)
	return rand.New(rand.NewPCG(s, 0))
}

var variants = []Variant{Corrected, Published}

func TestPolicies(t *testing.T) {
	for _, v := range variants {
		p := placement.On(New(Options{Variant: v}))
		t.Run(p.Name(), func(t *testing.T) { policytest.Run(t, p) })
	}
}

// enter starts a job that is given as server, GPUs, server, GPUs, ...
func enter(t testing.TB, c *cluster.Cluster, id int, ps []int, parts ...int) {
	t.Helper()
	j, p := cluster.Job{ID: id}, cluster.Placement{PS: ps}
	for i := 0; i < len(parts); i += 2 {
		p.Parts = append(p.Parts, cluster.Part{Server: parts[i], GPUs: parts[i+1]})
		j.GPUs += parts[i+1]
	}
	if err := c.Enter(j, p); err != nil {
		t.Fatal(err)
	}
}

// place places one job and returns why.
func place(t testing.TB, c *cluster.Cluster, v Variant, j cluster.Job) (cluster.Placement, Explanation) {
	t.Helper()
	var why Explanation
	out := New(Options{Variant: v, Explain: func(e Explanation) { why = e }}).Place(c, []cluster.Job{j}, 0)
	if len(out[0].Parts) == 0 {
		t.Fatalf("job %+v was not placed", j)
	}
	return out[0], why
}

// scatter fills a cluster with random jobs, somewhere, that are called id and so on.
func scatter(rnd *rand.Rand, c *cluster.Cluster, jobs, id int) {
	for ; jobs > 0; jobs, id = jobs-1, id+1 {
		j := cluster.Job{ID: id, Traffic: cluster.Traffic(rnd.IntN(4))}
		var p cluster.Placement
		for _, s := range rnd.Perm(len(c.Servers))[:1+rnd.IntN(min(4, len(c.Servers)))] {
			if f := c.Free(s); f > 0 {
				g := 1 + rnd.IntN(f)
				p.Parts = append(p.Parts, cluster.Part{Server: s, GPUs: g})
				j.GPUs += g
			}
		}
		if j.NeedsPS(len(p.Parts)) {
			p.PS = []int{rnd.IntN(len(c.Servers))}
		}
		c.Enter(j, p) // not where everything was taken
	}
}

func randomCluster(rnd *rand.Rand) *cluster.Cluster {
	pat := []float64{0, 50, 200, math.Inf(1)}[rnd.IntN(4)]
	cfg := cluster.FatTree(1+rnd.IntN(4), 2+rnd.IntN(6), 1+rnd.IntN(8), 100, pat, []float64{1, 1, 4, 20}[rnd.IntN(4)])
	for i := range cfg.Servers {
		if rnd.IntN(4) == 0 {
			cfg.Servers[i].GPUs = rnd.IntN(9)
		}
	}
	c := cluster.New(cfg)
	scatter(rnd, c, rnd.IntN(2*len(cfg.Servers)), 1_000_000)
	return c
}

// Jobs come and go; what fits all together is placed, with as many GPUs as asked, and
// those that run are left alone. The cluster would refuse what is taken already, and a
// job that it refuses is not placed.
func TestRandomJobs(t *testing.T) {
	rnd := random(t)
	for _, v := range variants {
		p := New(Options{Variant: v})
		for range 150 {
			c := randomCluster(rnd)
			id, run := 0, map[int]cluster.Placement{}
			for range 8 {
				var batch []cluster.Job
				for range 1 + rnd.IntN(5) {
					batch = append(batch, cluster.Job{
						ID: id, GPUs: 1 + rnd.IntN(12), Traffic: cluster.Traffic(rnd.IntN(4)),
						PSes: rnd.IntN(4), Value: float64(rnd.IntN(3)), Waited: rnd.IntN(3),
					})
					id++
				}
				free, asked := c.TotalFree(), 0
				for _, j := range batch {
					asked += j.GPUs
				}
				given := 0
				for i, where := range p.Place(c, batch, 0) {
					_, entered, ok := c.Placement(batch[i].ID)
					if ok != (len(where.Parts) > 0) || ok && !reflect.DeepEqual(where, entered) {
						t.Fatalf("job %+v: placed %v, entered %v", batch[i], where, entered)
					}
					if !ok {
						continue
					}
					given += batch[i].GPUs
					run[batch[i].ID] = where
					for _, w := range where.Parts {
						if w.GPUs < 1 {
							t.Fatalf("job %+v: a worker without GPUs in %v", batch[i], where)
						}
					}
					if want := min(max(1, batch[i].PSes), len(c.Servers)); len(where.PS) > 0 && len(where.PS) != want {
						t.Fatalf("job %+v: %d parameter servers in %v", batch[i], len(where.PS), where)
					}
				}
				if c.TotalFree() != free-given || asked <= free && given != asked {
					t.Fatalf("%d GPUs asked, %d were free and %d are after %d were given", asked, free, c.TotalFree(), given)
				}
				for i, where := range run {
					if _, now, _ := c.Placement(i); !reflect.DeepEqual(where, now) {
						t.Fatalf("job %d moved from %v to %v", i, where, now)
					}
					if rnd.IntN(3) == 0 {
						if err := c.Leave(i); err != nil {
							t.Fatal(err)
						}
						delete(run, i)
					}
				}
			}
		}
	}
}

// A server without a link holds jobs that fit it, but no part of others nor a PS.
func TestUnlinked(t *testing.T) {
	for _, v := range variants {
		cfg := cluster.FatTree(1, 5, 2, 100, 1000, 1)
		cfg.Servers[3] = cluster.Server{Link: cluster.NoLink}
		cfg.Servers[4].Link = cluster.NoLink
		c := cluster.New(cfg)
		enter(t, c, 1, []int{2}, 0, 1, 1, 1) // all links are full
		enter(t, c, 2, nil, 2, 2)
		got, _ := place(t, c, v, cluster.Job{ID: 3, GPUs: 1})
		if v == Published && !slices.Equal(servers(got), []int{4}) { // line 4: elsewhere it would fit exactly
			t.Errorf("%v: 1 GPU on %v", v, got)
		}
		c.Leave(3)
		if out := New(Options{Variant: v}).Place(c, []cluster.Job{{ID: 4, GPUs: 3}}, 0); len(out[0].Parts) > 0 {
			t.Errorf("%v: 3 GPUs on %v", v, out)
		}
		enter(t, c, 5, nil, 4, 2)
		got, _ = place(t, c, v, cluster.Job{ID: 6, GPUs: 2, PSes: 9})
		slices.Sort(got.PS)
		if !slices.Equal(got.PS, []int{0, 1, 2}) {
			t.Errorf("%v: %v", v, got)
		}
	}
}

// What is kept from batch to batch changes nothing: whatever came and went, and whoever
// placed it, a batch goes where it goes in a copy that nothing is known of. Explaining
// looks at all racks, so this also shows that the best rack is the best.
func TestKept(t *testing.T) {
	rnd := random(t)
	policies := []cluster.Policy{New(Options{}), New(Options{Variant: Published}), New(Options{})}
	spread := 0
	for range 2000 {
		c := randomCluster(rnd)
		var running []int
		for id := range 40 {
			switch k := rnd.IntN(10); {
			case k < 3 && len(running) > 0:
				i := rnd.IntN(len(running))
				if err := c.Leave(running[i]); err != nil {
					t.Fatal(err)
				}
				running = slices.Delete(running, i, i+1)
			case k < 4 && len(running) > 0:
				if err := c.SetPlain(running[rnd.IntN(len(running))], []int{rnd.IntN(len(c.Racks))}); err != nil {
					t.Fatal(err)
				}
			case k < 5:
				before := c.Jobs()
				scatter(rnd, c, 1, id)
				if c.Jobs() > before {
					running = append(running, id)
				}
			default:
				var batch []cluster.Job
				for n := range 1 + rnd.IntN(2)*rnd.IntN(4) {
					batch = append(batch, cluster.Job{ID: 100 + 10*id + n, GPUs: 1 + rnd.IntN(14), PSes: rnd.IntN(3), Traffic: cluster.Traffic(rnd.IntN(4))})
				}
				v := rnd.IntN(len(policies))
				fresh := New(Options{Variant: policies[v].(*policy).Variant, Explain: func(e Explanation) {
					if len(e.Chosen.Placement.Parts) > 1 {
						spread++
					}
				}})
				want := fresh.Place(c.Clone(), batch, 0)
				got := policies[v].Place(c, batch, 0)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%s, %+v: %v, in a copy %v", fresh.Name(), batch, got, want)
				}
				for i, where := range got {
					if len(where.Parts) > 0 {
						running = append(running, batch[i].ID)
					}
				}
			}
		}
	}
	if spread < 1000 {
		t.Errorf("only %d jobs on several servers", spread)
	}
}

func servers(p cluster.Placement) (out []int) {
	for _, w := range p.Parts {
		out = append(out, w.Server)
	}
	return out
}

// load reads a cluster of testdata.
func load(t testing.TB, name string) *cluster.Cluster {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var c *cluster.Cluster
	id := 1_000_000
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := sc.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		if c == nil {
			var n, gpus, rack int
			var pat float64
			if _, err := fmt.Sscanf(line, "servers %d gpus %d rack %d pat %g", &n, &gpus, &rack, &pat); err != nil {
				t.Fatal(err)
			}
			cfg := cluster.FatTree((n+rack-1)/rack, rack, gpus, 1, pat, 1)
			cfg.Servers = cfg.Servers[:n]
			c = cluster.New(cfg)
			continue
		}
		workers, ps, _ := strings.Cut(line, " > ")
		var parts, at []int
		for w := range strings.FieldsSeq(workers) {
			var s, g int
			if _, err := fmt.Sscanf(w, "%d*%d", &s, &g); err != nil {
				t.Fatal(err)
			}
			parts = append(parts, s, g)
		}
		if ps != "" {
			at = []int{0}
			if _, err := fmt.Sscan(ps, &at[0]); err != nil {
				t.Fatal(err)
			}
		}
		enter(t, c, id, at, parts...)
		id++
	}
	return c
}

// BenchmarkPlace is what a job costs: it is placed and enters, the steady state with it is
// computed, it leaves, and the steady state without it is computed. The clusters are those
// on which the prototype was timed (testdata): 70 % of the GPUs are taken, by jobs on one
// server and on several with a PS, and the free ones are scattered.
//
// servers=N places a job of 8 GPUs, always the same. mixed places jobs of 5 to 32 GPUs, the
// last ten of which run. cold places one of 8 GPUs in a cluster of which nothing is known
// yet. Where the environment names a folder with f100.json and so on (INABENCH_TRACES),
// these very files are read as well. growth is the exponent e of time ~ servers^e, of one
// and the same job and of mixed ones.
func BenchmarkPlace(b *testing.B) {
	var servers, same, mixed []float64
	one := func(b *testing.B, c *cluster.Cluster) {
		p := New(Options{})
		batch := []cluster.Job{{ID: 1, GPUs: 8}}
		b.ReportAllocs()
		for b.Loop() {
			if where := p.Place(c, batch, 0); len(where[0].Parts) == 0 {
				b.Fatal("not placed")
			}
			c.Rate(1)
			if err := c.Leave(1); err != nil {
				b.Fatal(err)
			}
			c.Bandwidth(0)
		}
	}
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("servers=%d", n), func(b *testing.B) {
			one(b, load(b, fmt.Sprintf("f%d", n)))
			servers, same = append(servers, float64(n)), append(same, b.Elapsed().Seconds()/float64(b.N))
		})
		b.Run(fmt.Sprintf("mixed/servers=%d", n), func(b *testing.B) {
			c := load(b, fmt.Sprintf("f%d", n))
			p := New(Options{})
			batch := make([]cluster.Job, 1)
			b.ReportAllocs()
			for id := 0; b.Loop(); id++ {
				batch[0] = cluster.Job{ID: id, GPUs: []int{8, 5, 16, 8, 12, 32, 8, 6}[id%8]}
				p.Place(c, batch, 0)
				c.Bandwidth(0)
				if id >= 10 {
					c.Leave(id - 10) // unless there was no room for it
					c.Bandwidth(0)
				}
			}
			mixed = append(mixed, b.Elapsed().Seconds()/float64(b.N))
		})
		b.Run(fmt.Sprintf("cold/servers=%d", n), func(b *testing.B) {
			c := load(b, fmt.Sprintf("f%d", n))
			p := New(Options{})
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				c := c.Clone()
				b.StartTimer()
				p.Place(c, []cluster.Job{{ID: 1, GPUs: 8}}, 0)
			}
		})
		if file := filepath.Join(os.Getenv("INABENCH_TRACES"), fmt.Sprintf("f%d.json", n)); exists(file) {
			b.Run(fmt.Sprintf("f%d", n), func(b *testing.B) { one(b, prototype(b, file)) })
		}
	}
	growth(b, "growth", servers, same)
	growth(b, "growth/mixed", servers, mixed)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// prototype reads a cluster as the prototype's timing had it. Its memory is one pool,
// which the racks share evenly here.
func prototype(t testing.TB, file string) *cluster.Cluster {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		Servers int     `json:"servers"`
		GPUs    int     `json:"gpus_per_server"`
		Rack    int     `json:"servers_per_rack"`
		Link    float64 `json:"link_capacity"`
		PAT     float64 `json:"pat_pool"`
		Running []struct {
			Workers [][2]int `json:"workers"`
			PS      int      `json:"ps"`
		} `json:"running"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	racks := (in.Servers + in.Rack - 1) / in.Rack
	cfg := cluster.FatTree(racks, in.Rack, in.GPUs, in.Link, in.PAT/float64(racks), 1)
	cfg.Servers = cfg.Servers[:in.Servers]
	c := cluster.New(cfg)
	for i, r := range in.Running {
		var parts, ps []int
		for _, w := range r.Workers {
			parts = append(parts, w[0], w[1])
		}
		if r.PS >= 0 {
			ps = []int{r.PS}
		}
		enter(t, c, 1_000_000+i, ps, parts...)
	}
	return c
}

// The clusters of testdata are the prototype's, where these are at hand.
func TestPrototypeClusters(t *testing.T) {
	for _, name := range []string{"f100", "f1000", "f10000"} {
		file := filepath.Join(os.Getenv("INABENCH_TRACES"), name+".json")
		if !exists(file) {
			testbedtest.Require(t, "prototype", errors.New("INABENCH_TRACES names no folder with "+name+".json"))
			return
		}
		a, b := prototype(t, file), load(t, name)
		if !reflect.DeepEqual(a.Config, b.Config) || a.Jobs() != b.Jobs() {
			t.Fatalf("%s: %d servers, %d jobs; testdata has %d and %d", name, len(a.Servers), a.Jobs(), len(b.Servers), b.Jobs())
		}
		for id := 1_000_000; id < 1_000_000+a.Jobs(); id++ {
			_, p, _ := a.Placement(id)
			if _, q, _ := b.Placement(id); !reflect.DeepEqual(p, q) {
				t.Errorf("%s: job %d is on %v, in testdata on %v", name, id, p, q)
			}
		}
		if full := 1 - float64(a.TotalFree())/float64(4*len(a.Servers)); math.Abs(full-0.7) > 0.01 {
			t.Errorf("%s: %v of the GPUs are taken", name, full)
		}
	}
}

// BenchmarkBatch places a batch of jobs with sizes like those of a shared cluster in an
// empty cluster: 16 racks of servers with 4 GPUs, as in the paper's Figure 10. In the
// last one more is asked for than there is. Their leaving is not part of the time. growth
// is the exponent e of time ~ jobs^e, and of time ~ servers^e for 1,000 jobs.
func BenchmarkBatch(b *testing.B) {
	var jobs, perJobs, servers, perServers []float64
	for _, size := range []struct{ jobs, servers int }{
		{1000, 10000}, {2000, 10000}, {4000, 10000}, {1000, 1250}, {1000, 2500}, {1000, 5000}, {4000, 1250},
	} {
		b.Run(fmt.Sprintf("jobs=%d/servers=%d", size.jobs, size.servers), func(b *testing.B) {
			rnd := rand.New(rand.NewPCG(1, 0))
			var batch []cluster.Job
			for i := range size.jobs {
				gpus := []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 4, 8, 8, 8, 16}[rnd.IntN(20)]
				batch = append(batch, cluster.Job{ID: i, GPUs: gpus})
			}
			p := New(Options{})
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				c := cluster.New(cluster.FatTree(16, size.servers/16, 4, 100e9, 1e12, 1))
				b.StartTimer()
				p.Place(c, batch, 0)
			}
			per := b.Elapsed().Seconds() / float64(b.N)
			if size.servers == 10000 {
				jobs, perJobs = append(jobs, float64(size.jobs)), append(perJobs, per)
			}
			if size.jobs == 1000 {
				servers, perServers = append(servers, float64(size.servers)), append(perServers, per)
			}
		})
	}
	growth(b, "growth/jobs", jobs, perJobs)
	growth(b, "growth/servers", servers, perServers)
}

// growth reports the exponent e of y ~ x^e, by least squares.
func growth(b *testing.B, name string, x, y []float64) {
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
		}
		var sx, sy, sxx, sxy float64
		for i := range x {
			u, v := math.Log(x[i]), math.Log(y[i])
			sx, sy, sxx, sxy = sx+u, sy+v, sxx+u*u, sxy+u*v
		}
		n := float64(len(x))
		b.ReportMetric(0, "ns/op")
		b.ReportMetric((n*sxy-sx*sy)/(n*sxx-sx*sx), "exponent")
	})
}
