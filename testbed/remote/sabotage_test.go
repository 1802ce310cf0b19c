package remote

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/sabotage"
)

// TestInfect: of the agents that are started, those have the fault that it is ordered for, and what
// they say of it is noted, however their lines arrive.
func TestInfect(t *testing.T) {
	order := func(text string) *sabotage.Order {
		o, err := sabotage.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	worker := func(job string, rank int) agent.Config {
		return agent.Config{Role: "worker", Name: job, Rank: rank, Workers: 2}
	}
	ps := agent.Config{Role: "ps", Name: "A", Workers: 2}
	for _, c := range []struct {
		order *sabotage.Order
		cfg   any
		want  bool
	}{
		{nil, worker("A", 0), false},
		{order("stop=A/0"), worker("A", 0), true},
		{order("stop=A/0"), worker("A", 1), false},
		{order("stop=A/0"), worker("B", 0), false},
		{order("stop=*/0"), worker("B", 0), true},
		{order("stop=A/*"), worker("A", 1), true},
		{order("stop=A/*"), ps, false},
		{order("ps-drops=A/ps"), ps, true},
		{order("ps-drops=*/ps"), worker("A", 0), false},
		{order("jump-clock=A/0"), worker("A", 0), true},
		{order("flip-sums=tor1"), worker("A", 0), false},
		{order("stop=*/0"), agent.Config{Role: "rank", Name: "background1", Workers: 1}, false},
		{order("stop=*/0"), struct{}{}, false},
	} {
		s := saboteur{order: c.order, acted: map[int]int64{}}
		got, watch := s.infect(c.cfg)
		cfg, _ := got.(agent.Config)
		if infected := cfg.Sabotage != nil; infected != c.want || (watch != nil) != c.want {
			t.Errorf("%+v for %+v: %t", c.order, c.cfg, infected)
			continue
		}
		if !c.want {
			continue
		}
		if cfg.Sabotage.Fault != c.order.Name || cfg.Sabotage.After != sabotage.After {
			t.Errorf("told %+v", cfg.Sabotage)
		}
		said := `{"event":"sample","t":1,"stats":{"psns":1}}` + "\n" +
			`{"event":"sample","t":2,"stats":{"sabotaged":12,"psns":7}}` + "\n" +
			`{"event":"done","t":3,"stats":{"psns":8,"sabotaged":37}}` + "\n" + `{"event":`
		out, err := io.ReadAll(watch(iotest.OneByteReader(strings.NewReader(said))))
		if err != nil || string(out) != said || s.acted[0] != 37 {
			t.Errorf("acted %v, %v, passed on %q", s.acted, err, out)
		}
	}
}
