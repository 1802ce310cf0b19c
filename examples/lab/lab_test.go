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

func TestPredict(t *testing.T) {
	const ask = `{"schema": 1, "frame": {"bytes": 1024, "payload": 960}, "links": [{"name": "h1->tor1", "rate": 100e9}],
		"jobs": [{"name": "A", "workers": [{"rank": 0, "host": "h1", "up": "h1->tor1"}]}], "phases": [{"start": 0, "end": 1, "jobs": ["A"]}]}`
	var out bytes.Buffer
	if err := predictor.Serve(strings.NewReader(ask), &out, predict); err != nil || !strings.Contains(out.String(), `"goodput":93750000000`) {
		t.Errorf("%s, %v", &out, err)
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
