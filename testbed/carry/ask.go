package carry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/preflight"
)

const (
	// EngineAge is how long what was measured of a host is taken for what it is.
	EngineAge = 30 * 24 * time.Hour
	// engineAnswer is how long a host may take to measure itself, with the way there and back.
	engineAnswer = 20 * time.Second
)

// Look judges what is asked of hosts. It measures those of which nothing was kept, or what is older than EngineAge or of another
// machine, kernel or version of this program: that takes a host less than 2 s and the way there and back, limit of
// them at a time (0: all), and copies this program there if need be. Nothing asked: all hosts are looked at, and what each
// is able to do is said. Otherwise a host of which nothing is asked is left out. One that cannot be measured is skipped, with
// the reason.
func Look(ctx context.Context, all []preflight.Host, asks []Ask, tool string, limit int) (out []results.Preflight) {
	of := byHost(asks)
	asked := slices.DeleteFunc(slices.Clone(all), func(h preflight.Host) bool { return len(asks) > 0 && len(of[h.Name]) == 0 })
	for i, m := range engines(ctx, asked, tool, limit) {
		out = append(out, m.judge(asked[i].Name, of[asked[i].Name]))
	}
	return out
}

// engines are those of hosts, in their order: kept or measured now.
func engines(ctx context.Context, all []preflight.Host, tool string, limit int) []measured {
	out, is := make([]measured, len(all)), make([]Engine, len(all))
	_ = hosts.FanOut(ctx, limit, all, func(ctx context.Context, i int, h preflight.Host) error { // errors are in out
		if is[i], out[i].err = identify(ctx, h.Client); out[i].err != nil {
			return out[i].err
		}
		is[i].Tool = tool
		if e, ok := KnownEngine(h.Host, tool); ok && e.same(is[i]) {
			out[i].engine = e
		}
		return nil
	})
	var todo []int
	var clients []hosts.Host
	for i, h := range all {
		if out[i].err == nil && !out[i].engine.valid() {
			todo, clients = append(todo, i), append(clients, h.Client)
		}
	}
	paths, err := hosts.EnsureProgram(ctx, clients, "/proc/self/exe")
	if err != nil {
		for _, i := range todo {
			out[i].err = err
		}
		return out
	}
	for _, i := range todo {
		out[i].err = errors.New("not asked") // as long as it is not
	}
	_ = hosts.FanOut(ctx, limit, clients, func(ctx context.Context, k int, c hosts.Host) error {
		i := todo[k]
		e, err := askEngine(ctx, c, paths[k])
		if out[i].err = err; err != nil {
			return err
		}
		e.Machine, e.Kernel, e.Tool, e.At = is[i].Machine, is[i].Kernel, is[i].Tool, time.Now().UTC()
		out[i].engine = e
		keep(engineFile(all[i].Host), e)
		return nil
	})
	return out
}

// identify asks what a host is.
func identify(ctx context.Context, c hosts.Host) (e Engine, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, engineAnswer, fmt.Errorf("no answer within %v", engineAnswer))
	defer cancel()
	out, err := c.Run(ctx, []string{"sh", "-s"}, strings.NewReader("echo \"$(cat /etc/machine-id 2>/dev/null)\"\nuname -r\n"))
	if err != nil {
		return e, err
	}
	machine, kernel, _ := strings.Cut(string(out.Stdout), "\n")
	return Engine{Machine: strings.TrimSpace(machine), Kernel: strings.TrimSpace(kernel)}, nil
}

// askEngine has this program measure a host, where it has that path.
func askEngine(ctx context.Context, c hosts.Host, path string) (e Engine, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, engineAnswer, fmt.Errorf("no answer within %v", engineAnswer))
	defer cancel()
	out, err := c.Run(ctx, []string{path, EngineVerb}, nil)
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(out.Stdout, &e); err != nil || !e.valid() {
		return Engine{}, fmt.Errorf("its probe said %.200q", out.Stdout)
	}
	return e, nil
}

// KnownEngine is what was kept of a host by this version of the program, if that is no older than EngineAge.
func KnownEngine(h inventory.Host, tool string) (e Engine, ok bool) {
	text, err := bounded.ReadFile(engineFile(h), bounded.Small)
	if err != nil || json.Unmarshal(text, &e) != nil {
		return Engine{}, false
	}
	age := time.Since(e.At)
	return e, e.valid() && e.Tool == tool && age >= -time.Hour && age <= EngineAge // a clock may have been put back
}

// engineFile is where what was measured of a host is kept: by how it is reached, which is known before anybody does.
func engineFile(h inventory.Host) string {
	return cached("engine", h.Name, h.Launcher, h.SSH.Address, h.SSH.Jump)
}
