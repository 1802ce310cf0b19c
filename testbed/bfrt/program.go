package bfrt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/testbed/bfrt/bfrtpb"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
)

// Config is a compiled program as the SDE's server takes it: what dataplane.Pipeline.DeviceConfig is of. Stratum takes
// the same bytes: the fields and numbers of its BfPipelineConfig (stratum/hal/lib/barefoot/bf.proto) are those of
// ForwardingPipelineConfig.
type Config struct {
	Program  string
	BFRT     []byte // bf-rt.json
	Profiles []Profile
}

// Profile is one pipeline of a program, and the pipes that run it; none: all.
type Profile struct {
	Name            string
	Context, Binary []byte // context.json, tofino.bin
	Pipes           []uint32
}

// Marshal is the config as a server takes it.
func (c Config) Marshal() []byte {
	m := &bfrtpb.ForwardingPipelineConfig{P4Name: c.Program, BfruntimeInfo: c.BFRT}
	for _, p := range c.Profiles {
		m.Profiles = append(m.Profiles, &bfrtpb.ForwardingPipelineConfig_Profile{
			ProfileName: p.Name, Context: p.Context, Binary: p.Binary, PipeScope: p.Pipes,
		})
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic("bfrt: " + err.Error()) // a name that is not UTF-8, which no inventory has
	}
	return b
}

// ParseConfig reverses Marshal, and refuses what a server could not load, and fields that another message has. Errors
// wrap ErrInfo.
func ParseConfig(b []byte) (Config, error) {
	m := &bfrtpb.ForwardingPipelineConfig{}
	if err := proto.Unmarshal(b, m); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrInfo, err)
	}
	unknown := len(m.ProtoReflect().GetUnknown())
	for _, p := range m.GetProfiles() {
		unknown += len(p.ProtoReflect().GetUnknown())
	}
	if unknown > 0 {
		return Config{}, fmt.Errorf("%w: %d bytes of unknown fields", ErrInfo, unknown)
	}
	return configOf(m)
}

// configOf is a config as a server takes or tells it.
func configOf(m *bfrtpb.ForwardingPipelineConfig) (Config, error) {
	c := Config{Program: m.GetP4Name(), BFRT: m.GetBfruntimeInfo()}
	for _, p := range m.GetProfiles() {
		c.Profiles = append(c.Profiles, Profile{p.GetProfileName(), p.GetContext(), p.GetBinary(), p.GetPipeScope()})
		if len(p.GetContext()) == 0 || len(p.GetBinary()) == 0 || p.GetProfileName() == "" {
			return Config{}, fmt.Errorf("%w: a profile lacks its name, its context.json or its binary", ErrInfo)
		}
	}
	switch {
	case c.Program == "" || strings.ContainsAny(c.Program, "/\x00"):
		return Config{}, fmt.Errorf("%w: %q is no program's name", ErrInfo, c.Program)
	case len(c.Profiles) == 0:
		return Config{}, fmt.Errorf("%w: no profile", ErrInfo)
	}
	return c, nil
}

// Cookie identifies a config, as dataplane.Pipeline.Cookie: a server keeps none. It fills in the pipes of a program that
// is to run in all.
func (c Config) Cookie() uint64 {
	if len(c.Profiles) == 1 {
		p := c.Profiles[0]
		all := true
		for i, pipe := range p.Pipes {
			all = all && pipe == uint32(i)
		}
		if all {
			p.Pipes = nil
		}
		c.Profiles = []Profile{p}
	}
	h := fnv.New64a()
	h.Write(c.Marshal())
	return h.Sum64()
}

// samePipes says whether a program is to run where it runs. One that is to run in all pipes, a server tells with all of
// them; no chip has a single one.
func (c Config) samePipes(runs Config) bool {
	if len(c.Profiles) != 1 || len(runs.Profiles) != 1 {
		return true // as their cookies are the same
	}
	want, has := c.Profiles[0].Pipes, runs.Profiles[0].Pipes
	if len(want) == 0 {
		return len(has) != 1
	}
	return slices.Equal(want, has)
}

// program is a program that a switch runs: its tables, by what they are to INA.
type program struct {
	name          string
	pipe          *p4.Pipeline
	jobs, routes  *Table
	groups, nodes *Table
	counters      []*Table
	device        *Info             // the fixed tables
	own           dataplane.Options // whose Ports are what the chip calls ports
}

func newProgram(name string, pipe *p4.Pipeline, text, fixed []byte) (*program, error) {
	info, err := ParseInfo(text)
	if err != nil {
		return nil, fmt.Errorf("program %s: %w", name, err)
	}
	device, err := ParseInfo(fixed)
	if err != nil {
		return nil, fmt.Errorf("the tables of the device: %w", err)
	}
	p := &program{name: name, pipe: pipe, device: device}
	for _, t := range []struct {
		at   **Table
		in   *Info
		name string
	}{
		{&p.jobs, info, p4.JobTable.String()}, {&p.routes, info, p4.RouteTable.String()},
		{&p.groups, device, "$pre.mgid"}, {&p.nodes, device, "$pre.node"},
	} {
		if *t.at, err = t.in.Table(t.name); err != nil {
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
	}
	for _, t := range info.tables {
		if t.Type == "Counter" && !strings.HasSuffix(t.Name, "_bits") {
			p.counters = append(p.counters, t)
		}
	}
	for _, t := range []*Table{p.jobs, p.routes} {
		if len(t.Key) != 1 || t.Match != "Exact" {
			return nil, fmt.Errorf("%w: program %s: table %s has not one key that is matched exactly", ErrInfo, name, t.Name)
		}
	}
	return p, nil
}

// running is what the switch runs, and its fixed tables.
func (c *Client) running(ctx context.Context) (*bfrtpb.GetForwardingPipelineConfigResponse, error) {
	id, err := c.session.Await(ctx)
	if err != nil {
		return nil, err
	}
	return c.rpc.GetForwardingPipelineConfig(ctx, &bfrtpb.GetForwardingPipelineConfigRequest{DeviceId: c.device, ClientId: id},
		grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(MaxProgram))
}

// programs are those that a switch runs and whose files the server tells: not the tables of the device alone.
func programs(now *bfrtpb.GetForwardingPipelineConfigResponse) (out []*bfrtpb.ForwardingPipelineConfig) {
	for _, m := range now.GetConfig() {
		if len(m.GetProfiles()) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// Push implements dataplane.Switch. The pipeline's DeviceConfig is a Config. A program that is loaded takes the ports
// down; one that the server refuses leaves the switch as it was, and Close undoes what was written. With Keep, one that is
// the same and has no jobs is left as it is, and routes and groups are deleted.
func (c *Client) Push(ctx context.Context, p dataplane.Pipeline) error {
	const op = "push pipeline"
	if c.observer {
		return c.fail(op, fmt.Errorf("%w: this client only reads", dataplane.ErrNotPrimary))
	}
	cfg, err := ParseConfig(p.DeviceConfig)
	if err != nil {
		return c.fail(op, err)
	}
	pipe, err := p4.NewPipeline(p.Info)
	if err != nil {
		return c.fail(op, err)
	}
	p.Cookie = cfg.Cookie()
	loaded, err := p.Loaded()
	if err != nil {
		return c.fail(op, err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return c.fail(op, dataplane.ErrClosed)
	}
	whole := ctx // links take their own time
	ctx, cancel := context.WithTimeout(ctx, c.opt.PushTimeout)
	defer cancel()
	now, err := c.running(ctx)
	if err != nil {
		return c.fail(op, err)
	}
	if err := c.unexpected(now); err != nil {
		return c.fail(op, err)
	}
	prog, err := newProgram(cfg.Program, pipe, cfg.BFRT, now.GetNonP4Config().GetBfruntimeInfo())
	if err != nil {
		return c.fail(op, err)
	}
	if programs := programs(now); p.Keep && len(programs) == 1 {
		if runs, err := configOf(programs[0]); err == nil && runs.Cookie() == loaded.Cookie && cfg.samePipes(runs) {
			if err := errors.Join(c.bind(ctx, cfg.Program), c.locate(ctx, prog)); err != nil {
				return c.fail(op, err)
			}
			jobs, err := c.jobs(ctx, prog)
			if err != nil {
				return c.fail(op, err)
			}
			loaded.Kept = len(jobs) == 0
		}
	}
	if loaded.Kept {
		if c.has, err = c.all(ctx, prog); err == nil {
			err = c.sweep(ctx, prog)
		}
	} else if err = c.free(ctx, now); err == nil {
		if err = c.load(ctx, p.DeviceConfig); err == nil {
			err = c.bind(ctx, cfg.Program)
		}
		if err == nil {
			err = c.locate(ctx, prog)
		}
	}
	if err == nil {
		err = c.raise(whole, prog)
	}
	if err != nil {
		return c.fail(op, err)
	}
	c.before = prior{}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prog, c.loaded, c.witness, c.restarted = prog, loaded, 0, false
	return nil
}

// load makes the switch run a program, with nothing in it, and forgets what was known of the switch. A server that refuses
// a program before it begins to load it (forwardingConfigSet, warmInitBegin) leaves the switch as it was: so does load.
// The lock writing is held.
func (c *Client) load(ctx context.Context, config []byte) error {
	id, err := c.session.Await(ctx)
	if err != nil {
		return err
	}
	m := &bfrtpb.ForwardingPipelineConfig{}
	if err := proto.Unmarshal(config, m); err != nil {
		return err
	}
	c.mu.Lock()
	prog, witness := c.prog, c.witness
	c.loading, c.begun, c.prog, c.witness = true, false, nil, 0
	c.mu.Unlock()
	err = c.warmInit(ctx, id, m)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loading = false
	if err != nil && !c.begun {
		c.prog, c.witness = prog, witness
		return err
	}
	c.has, c.before, c.doubtful = newTables(), prior{}, nil
	return err
}

// warmInit has the server load a program. Its answer says little: the stream says when it has finished.
func (c *Client) warmInit(ctx context.Context, id uint32, m *bfrtpb.ForwardingPipelineConfig) error {
	select {
	case <-c.finished:
	default:
	}
	_, err := c.rpc.SetForwardingPipelineConfig(ctx, &bfrtpb.SetForwardingPipelineConfigRequest{
		DeviceId: c.device, ClientId: id, Config: []*bfrtpb.ForwardingPipelineConfig{m},
		Action: bfrtpb.SetForwardingPipelineConfigRequest_VERIFY_AND_WARM_INIT_BEGIN_AND_END,
	}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	select {
	case <-c.finished:
		return nil
	case <-time.After(c.opt.CallTimeout): // it comes before the answer does
		return errors.New("the switch has not loaded the program; its log says why (bf_drivers.log)")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// free is an error that wraps dataplane.ErrNotPrimary if another client is bound to a program that the switch runs now: a
// load would take it away from under that. It waits as bind does. To be bound to each for a moment takes a session of its
// own, since a session does not get free of a program again.
func (c *Client) free(ctx context.Context, now *bfrtpb.GetForwardingPipelineConfigResponse) error {
	for _, m := range programs(now) {
		c.mu.Lock()
		ours := c.bound == binding{c.id, m.GetP4Name()}
		c.mu.Unlock()
		if ours {
			continue
		}
		if err := c.try(ctx, m.GetP4Name()); err != nil {
			return err
		}
	}
	return nil
}

// try binds a session of its own to a program, and ends it.
func (c *Client) try(ctx context.Context, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.StreamChannel(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	id := newID()
	if err := stream.Send(subscription(id, c.device)); err != nil {
		return dataplane.EndOf(stream)
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := c.bindAs(ctx, id, name); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := dataplane.EndOf(stream); !errors.Is(err, io.EOF) { // then the server has forgotten it
		return err
	}
	return nil
}

// bind binds the session to a program.
func (c *Client) bind(ctx context.Context, name string) error {
	c.mu.Lock()
	id, bound := c.id, c.bound
	c.mu.Unlock()
	if bound == (binding{id, name}) {
		return nil
	}
	err := c.bindAs(ctx, id, name)
	if err == nil {
		c.mu.Lock()
		c.bound = binding{id, name}
		c.mu.Unlock()
	}
	return err
}

// bindAs binds a session to a program. One that another client is bound to is waited for: a second where Options.Polite
// says so, and as long as for a switch that does not answer otherwise.
func (c *Client) bindAs(ctx context.Context, id uint32, name string) error {
	patience := c.opt.DialTimeout
	if c.opt.Polite {
		patience = dataplane.PolitePatience
	}
	until := time.Now().Add(patience)
	for {
		_, err := c.rpc.SetForwardingPipelineConfig(ctx, &bfrtpb.SetForwardingPipelineConfigRequest{
			DeviceId: c.device, ClientId: id, Action: bfrtpb.SetForwardingPipelineConfigRequest_BIND,
			Config: []*bfrtpb.ForwardingPipelineConfig{{P4Name: name}},
		}, grpc.WaitForReady(true))
		switch {
		case err == nil || strings.Contains(status.Convert(err).Message(), fmt.Sprintf("but Client ID %d already owns", id)):
			return nil // or it was before, and the answer was lost
		case status.Code(err) != codes.AlreadyExists:
			return err
		case time.Now().After(until):
			return &dataplane.Hinted{
				Err:    fmt.Errorf("%w of program %s: %w", dataplane.ErrNotPrimary, name, dataplane.Plain(err)),
				Advice: "end the other client: BFRuntime has no way to push it away",
			}
		}
		select {
		case <-time.After(dataplane.MinBackoff):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Attach implements dataplane.Switch.
func (c *Client) Attach(ctx context.Context) error {
	const op = "use the pipeline on the switch"
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	c.writing.Lock()
	defer c.writing.Unlock()
	now, err := c.running(ctx)
	if err != nil {
		return c.fail("read pipeline", err)
	}
	info := c.opt.Info
	if info == nil {
		info = p4.Info()
	}
	pipe, err := p4.NewPipeline(info)
	if err != nil {
		return c.fail(op, err)
	}
	err = dataplane.ErrNoPipeline
	for _, m := range programs(now) {
		var cfg Config
		var prog *program
		if cfg, err = configOf(m); err == nil {
			prog, err = newProgram(cfg.Program, pipe, cfg.BFRT, now.GetNonP4Config().GetBfruntimeInfo())
		}
		if err != nil {
			continue
		}
		if !c.observer {
			if err := c.bind(ctx, cfg.Program); err != nil {
				return c.fail(op, err)
			}
		}
		if err := c.locate(ctx, prog); err != nil {
			return c.fail(op, err)
		}
		if !c.observer {
			if c.has, err = c.all(ctx, prog); err != nil {
				return c.fail(op, err)
			}
		}
		sum := sha256.Sum256(cfg.Marshal())
		c.mu.Lock()
		defer c.mu.Unlock()
		c.prog, c.witness, c.restarted, c.loaded = prog, 0, false, dataplane.Loaded{Cookie: cfg.Cookie(), DeviceConfig: hex.EncodeToString(sum[:]), Kept: true}
		return nil
	}
	return c.fail(op, err)
}

// binding is which program a session is bound to.
type binding struct {
	session uint32
	program string
}
