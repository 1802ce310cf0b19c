package baseline

import (
	"testing"

	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/policytest"
)

func TestConsolidating(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range []Policy{ElasticFlow(), ElasticFlow().PowerOfTwo(), ElasticFlowClosest(), ElasticFlowIdle(), HiveD(), Tiresias(0)} {
		t.Run(p.Name(), func(t *testing.T) { policytest.RunCluster(t, p) })
		if seen[p.Rule()] {
			t.Errorf("%s has another's rule %q", p.Name(), p.Rule())
		}
		seen[p.Rule()] = true
	}
}

// machines is a cluster of machines with so many GPUs, of which so many are free.
func machines(t *testing.T, gpus int, free ...int) *cluster.Cluster {
	t.Helper()
	c := cluster.New(cluster.FatTree(1, len(free), gpus, 100e9, 0, 1))
	for s, n := range free {
		if n == gpus {
			continue
		}
		j := cluster.Job{ID: -1 - s, GPUs: gpus - n}
		if err := c.Enter(j, cluster.Placement{Parts: []cluster.Part{{Server: s, GPUs: j.GPUs}}}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// place has a policy place one job, and says where its workers are.
func place(t *testing.T, p cluster.Policy, c *cluster.Cluster, j cluster.Job) cluster.Placement {
	t.Helper()
	j.Traffic = cluster.Ring // no parameter servers
	return p.Place(c, []cluster.Job{j}, 1)[0]
}

// Figure 1 of Titan: machines of four GPUs with 4, 3, 2 and 1 free ones, four workers.
func TestFigure1(t *testing.T) {
	pattern := collectives.HalvingDoubling(4).Pattern()
	for _, tt := range []struct {
		policy cluster.Policy
		at     string
		cross  int // quarters of K
		used   int // machines afterwards
	}{
		{ElasticFlow(), "0:4", 0, 4},
		{ElasticFlowClosest(), "0:4", 0, 4},
		{ElasticFlowIdle(), "0:4", 0, 4},
		{HiveD(), "1:3 3:1", 6, 3},
	} {
		c := machines(t, 4, 4, 3, 2, 1)
		got := place(t, tt.policy, c, cluster.Job{ID: 1, GPUs: 4})
		used := 0
		for s := range c.Servers {
			if c.Free(s) < 4 {
				used++
			}
		}
		if cross := pattern.Cross(got.ServerOf()); got.String() != tt.at || cross != tt.cross || used != tt.used {
			t.Errorf("%s: %v, %d/4 K between machines, %d machines used, want %s, %d/4 and %d",
				tt.policy.Name(), got, cross, used, tt.at, tt.cross, tt.used)
		}
	}
}

func TestConsolidatingRules(t *testing.T) {
	for name, tt := range map[string]struct {
		policy cluster.Policy
		free   []int // of 8
		job    cluster.Job
		want   string
	}{
		"elasticflow: the tightest":              {ElasticFlow(), []int{8, 5, 4, 7}, cluster.Job{GPUs: 4}, "2:4"},
		"elasticflow: idle where that fits best": {ElasticFlow(), []int{3, 8, 7}, cluster.Job{GPUs: 8}, "1:8"},
		"elasticflow: as few as can be":          {ElasticFlow(), []int{3, 2, 8, 7, 1}, cluster.Job{GPUs: 10}, "2:8 1:2"},
		"elasticflow: of equals the first":       {ElasticFlow(), []int{2, 2, 2}, cluster.Job{GPUs: 4}, "0:2 1:2"},

		"closest: as many":                  {ElasticFlowClosest(), []int{8, 5, 4, 7}, cluster.Job{GPUs: 4}, "2:4"},
		"closest: from below, too":          {ElasticFlowClosest(), []int{8, 3, 1}, cluster.Job{GPUs: 5}, "1:3 2:1 0:1"},
		"closest: of two as far the larger": {ElasticFlowClosest(), []int{3, 5}, cluster.Job{GPUs: 4}, "1:4"},

		"idle ones first":              {ElasticFlowIdle(), []int{2, 8, 4, 8}, cluster.Job{GPUs: 4}, "1:4"},
		"idle ones first, then others": {ElasticFlowIdle(), []int{2, 8, 4, 3}, cluster.Job{GPUs: 11}, "1:8 3:3"},

		"by powers of two":              {ElasticFlow().PowerOfTwo(), []int{5, 8, 7}, cluster.Job{GPUs: 5}, "1:5 spare 1:3"},
		"by powers of two, over two":    {ElasticFlow().PowerOfTwo(), []int{8, 8}, cluster.Job{GPUs: 9}, "0:8 1:1 spare 1:7"},
		"by powers of two, none to add": {ElasticFlow().PowerOfTwo(), []int{8, 8}, cluster.Job{GPUs: 4}, "0:4"},
		"by powers of two, not enough":  {ElasticFlow().PowerOfTwo(), []int{5, 2}, cluster.Job{GPUs: 5}, "0:5"},

		"hived: fragments though an idle machine fits": {HiveD(), []int{8, 3, 2}, cluster.Job{GPUs: 5}, "1:3 2:2"},
		"hived: idle ones for the rest":                {HiveD(), []int{8, 3, 2}, cluster.Job{GPUs: 7}, "1:3 2:2 0:2"},
		"hived: the tightest fragment":                 {HiveD(), []int{8, 6, 2, 3}, cluster.Job{GPUs: 2}, "2:2"},

		"tiresias: skewed":         {Tiresias(0), []int{8, 7, 3}, cluster.Job{GPUs: 8, Skew: 0.74}, "0:8"},
		"tiresias: not skewed":     {Tiresias(0), []int{8, 7, 3}, cluster.Job{GPUs: 8, Skew: 0.08}, "1:5 2:3"},
		"tiresias: even":           {Tiresias(0), []int{8, 5, 5}, cluster.Job{GPUs: 6, Skew: 0.08}, "1:3 2:3"},
		"tiresias: another limit":  {Tiresias(0.05), []int{8, 7, 3}, cluster.Job{GPUs: 8, Skew: 0.08}, "0:8"},
		"tiresias: one is enough":  {Tiresias(0), []int{8, 7, 3}, cluster.Job{GPUs: 3}, "2:3"},
		"tiresias: nothing known":  {Tiresias(0), []int{8, 7, 3}, cluster.Job{GPUs: 8}, "1:5 2:3"},
		"tiresias: idle ones, too": {Tiresias(0), []int{8, 1, 3}, cluster.Job{GPUs: 7}, "2:3 1:1 0:3"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := place(t, tt.policy, machines(t, 8, tt.free...), tt.job).String(); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// Spare GPUs do not keep a job of the same batch waiting, but do keep later ones.
func TestPowerOfTwoBatch(t *testing.T) {
	c := machines(t, 8, 8, 8)
	batch := []cluster.Job{{ID: 1, GPUs: 5, Traffic: cluster.Ring}, {ID: 2, GPUs: 9, Traffic: cluster.Ring}}
	got := ElasticFlow().PowerOfTwo().Place(c, batch, 1)
	if got[0].String() != "0:5" || got[1].String() != "1:8 0:1" {
		t.Errorf("%v", got)
	}
	c = machines(t, 8, 8, 8)
	got = ElasticFlow().PowerOfTwo().Place(c, batch[:1], 1)
	if late := place(t, ElasticFlow(), c, batch[1]); got[0].String() != "0:5 spare 0:3" || len(late.Parts) != 0 {
		t.Errorf("%v, then %v", got[0], late)
	}
}
