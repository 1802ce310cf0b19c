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
	// EngineAge is how long what was measured of a host is taken for what it is, and DisturbedAge that of a host that others
	// used meanwhile.
	EngineAge    = 30 * 24 * time.Hour
	DisturbedAge = time.Hour
	// engineAnswer is how long a host may take to measure itself, with the way there and back.
	engineAnswer = 20 * time.Second
	// engineCopy is how long a host may take to get this program, and engineCopies how many do at a time: they share one
	// uplink.
	engineCopy   = 2 * time.Minute
	engineCopies = 8
	// longestIdentity is how much of what a host says that it is counts, bytes.
	longestIdentity = 512
)

// Look judges what is asked of hosts. It measures those of which nothing was kept, or what is older than EngineAge, or
// DisturbedAge, or of another machine, kernel, processor, governor or version of this program: that takes a host less than
// 2 s and the way there and back, limit of them at a time (0: all), and copies this program there if need be. Nobody else
// should use the hosts meanwhile. Nothing asked: all hosts are looked at, and what each is able to do is said. Otherwise a
// host of which nothing is asked is left out. One that cannot be measured is skipped, with the reason.
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
	out, is := make([]measured, len(all)), make([]string, len(all))
	for i := range out {
		out[i].err = errNotAsked // as long as it is not
	}
	_ = hosts.FanOut(ctx, limit, all, func(ctx context.Context, i int, h preflight.Host) error { // errors are in out
		is[i], out[i].err = identify(ctx, h.Client)
		if e, ok := KnownEngine(h.Host, tool); ok && e.On == is[i] && out[i].err == nil {
			out[i].engine = e
		}
		return out[i].err
	})
	var todo []int
	var clients []hosts.Host
	for i, h := range all {
		if out[i].err == nil && !out[i].engine.valid() {
			todo, clients = append(todo, i), append(clients, h.Client)
			out[i].err = errNotAsked
		}
	}
	paths, errs := programs(ctx, clients)
	_ = hosts.FanOut(ctx, limit, clients, func(ctx context.Context, k int, c hosts.Host) error {
		i := todo[k]
		if out[i].err = errs[k]; errs[k] != nil {
			return errs[k]
		}
		e, err := askEngine(ctx, c, paths[k])
		if out[i].err = err; err != nil {
			return err
		}
		e.On, e.Tool, e.At = is[i], tool, time.Now().UTC()
		out[i].engine = e
		keep(engineFile(all[i].Host), e)
		return nil
	})
	return out
}

var errNotAsked = errors.New("not asked")

// programs makes this program present on hosts, and returns its path on each. A host that cannot have it, or takes too
// long, which its error says, does not keep it from the others.
func programs(ctx context.Context, all []hosts.Host) (paths []string, errs []error) {
	paths, errs = make([]string, len(all)), make([]error, len(all))
	_ = hosts.FanOut(ctx, engineCopies, all, func(ctx context.Context, i int, h hosts.Host) error {
		ctx, cancel := context.WithTimeoutCause(ctx, engineCopy, fmt.Errorf("this program is not there after %v", engineCopy))
		defer cancel()
		there, err := hosts.EnsureProgram(ctx, []hosts.Host{h}, "/proc/self/exe")
		if errs[i] = err; err == nil {
			paths[i] = there[0]
		}
		return err
	})
	return paths, errs
}

// identity is a script that says what a host is whose packets cost what was measured of it: its machine-id, kernel, cores,
// processor and what governs its frequencies. What a host lacks is an empty line.
const identity = `echo "$(cat /etc/machine-id 2>/dev/null)"
uname -r
echo "$(getconf _NPROCESSORS_ONLN 2>/dev/null) cores"
echo "$(grep -m 1 '^model name' /proc/cpuinfo 2>/dev/null)"
echo "$(cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor 2>/dev/null | sort -u)"
`

// identify asks what a host is, see identity.
func identify(ctx context.Context, c hosts.Host) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, engineAnswer, fmt.Errorf("no answer within %v", engineAnswer))
	defer cancel()
	out, err := c.Run(ctx, []string{"sh", "-s"}, strings.NewReader(identity))
	if err != nil {
		return "", err
	}
	is := strings.Join(strings.Fields(strings.ToValidUTF8(string(out.Stdout), "?")), " ")
	return strings.ToValidUTF8(is[:min(len(is), longestIdentity)], ""), nil
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
		return Engine{}, fmt.Errorf("its probe said %.200q, which is no measurement", out.Stdout)
	}
	return e, nil
}

// KnownEngine is what was kept of a host by this version of the program, if that is no older than EngineAge, or
// DisturbedAge.
func KnownEngine(h inventory.Host, tool string) (e Engine, ok bool) {
	text, err := bounded.ReadFile(engineFile(h), bounded.Small)
	if err != nil || json.Unmarshal(text, &e) != nil {
		return Engine{}, false
	}
	limit := EngineAge
	if e.disturbed() {
		limit = DisturbedAge
	}
	age := time.Since(e.At)
	return e, e.valid() && e.Tool == tool && age >= -time.Hour && age <= limit // a clock may have been put back
}

// engineFile is where what was measured of a host is kept: by how it is reached, which is known before anybody does.
func engineFile(h inventory.Host) string {
	return cached("engine", h.Name, h.Launcher, h.SSH.Address, h.SSH.Jump)
}
