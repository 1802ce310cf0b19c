package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/placement/policytest"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/hosts/hoststest"
	"github.com/inabench/inabench/testbed/reach"
)

// The conformance suite of placement policies is for those of other modules, too.
func TestEmptiest(t *testing.T) { policytest.RunCluster(t, emptiest{}) }

// A study is read like any other, with places for what is wrong.
func TestAllReduce(t *testing.T) {
	kinds.Add(kind)
	if _, err := kinds.Load("allreduce.toml"); err != nil {
		t.Error(err)
	}
	_, err := kinds.Load("allreduce.toml", "allreduce.bytes=0B", "allreduce.algorithm=tree")
	if err == nil || !strings.Contains(err.Error(), "bytes") || !strings.Contains(err.Error(), "one of ring, ina") {
		t.Errorf("%v", err)
	}
}

// A job gets what its slowest link allows; a ring, whose links are hops, sends more than what it reduces.
func TestPredict(t *testing.T) {
	for job, want := range map[string]string{
		`"workers": [{"rank": 0, "host": "h1", "up": "h1->tor1"}, {"rank": 1, "host": "h2", "up": "h2->tor1"}]`:                                           `"goodput":46875000000,`,
		`"collective": "ring", "workers": [{"rank": 0, "host": "h1"}, {"rank": 1, "host": "h2"}], "hops": ["h1->tor1", "h2->tor1"]`:                       `"goodput":46875000000,`,
		`"collective": "ring", "workers": [{"host": "h1"}, {"host": "h2"}, {"host": "h3"}, {"host": "h4"}], "hops": ["h1->tor1", "h3->tor1", "h3->tor1"]`: `"goodput":28125000000,`,
	} {
		ask := `{"schema": 1, "frame": {"bytes": 1024, "payload": 960}, "links": [{"name": "h1->tor1", "rate": 100e9}, {"name": "h2->tor1", "rate": 50e9}, {"name": "h3->tor1", "rate": 90e9}],
			"jobs": [{"name": "A", ` + job + `}], "phases": [{"start": 0, "end": 1, "jobs": ["A"]}]}`
		var out bytes.Buffer
		if err := predictor.Serve(strings.NewReader(ask), &out, predict); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %s, %v; want %s", job, &out, err, want)
		}
	}
}

// The suite of hosts is for launchers of other modules, too.
func TestBeside(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
	hoststest.Run(t, func(t *testing.T) hosts.Host {
		h, err := besides(reach.Options{}).Dial(t.Context(), reach.Way{Name: "h1"})
		if err != nil {
			t.Fatal(err)
		}
		return h
	})
}
