package programs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/program"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/sharp"
)

// Run implements study.Study: all programs of a point start together, and what they print becomes
// figures. What it was, less secrets, stays in the run directory.
func (ps Programs) Run(ctx context.Context, b *study.Bench) (point *results.Point, rows [][]string, err error) {
	point = &results.Point{}
	tb, err := b.Hosts("programs")
	if err != nil {
		return point, nil, err
	}
	b.Status("measure", b.Left())
	inv := tb.Inventory()
	began := time.Now()
	if err := ps.installed(ctx, tb); err != nil {
		return point, nil, err
	}
	granted, err := ps.grant(ctx, b, tb)
	defer func() { err = errors.Join(err, granted.undo(ctx)) }()
	if err != nil {
		return point, nil, err
	}
	var works []*program.Workload
	var servers, clients []program.Command
	owner := map[string]int{} // of processes, by their names
	for i := range ps {
		w := ps[i].workload(b.Spec, inv, b.Scale())
		works = append(works, w)
		s, c := w.Commands()
		for _, cmd := range append(slices.Clone(s), c...) {
			owner[cmd.Name] = i
		}
		servers, clients = append(servers, s...), append(clients, c...)
	}
	counters, err := b.Sampler(ctx, tb, nil)
	if err != nil {
		return point, nil, err
	}
	counters.Lenient = true // programs say themselves what they measured
	sample := func() error { return counters.Read(ctx) }
	if _, err := tb.Health(ctx); err != nil { // begins a new interval
		return point, nil, err
	}
	if err := sample(); err != nil {
		return point, nil, err
	}
	b.Timing("deploy", began)

	began = time.Now()
	ph := results.Phase{Start: b.Now().Seconds()}
	outputs, err := ps.play(ctx, tb, servers, clients, b.Spec, sample)
	ph.End = b.Now().Seconds()
	b.Timing("measure", began)
	if kerr := evidence(ctx, b, outputs); err == nil {
		err = kerr
	}
	healthy, cancel := tb.Leaving(ctx, 2*time.Minute)
	health, herr := tb.Health(healthy)
	cancel()
	point.Health = health
	if err = errors.Join(err, herr); err != nil {
		return point, nil, err
	}

	var all []results.Figure
	for i, w := range works {
		var own []program.Output
		for _, o := range outputs {
			if owner[o.Name] == i {
				own = append(own, o)
			}
		}
		reading, rerr := w.Read(own)
		if rerr != nil {
			err = errors.Join(err, fmt.Errorf("program %s: %w", w.Name, rerr))
			continue
		}
		for _, n := range reading.Notes {
			b.Warn(fmt.Sprintf("program %s: %s", w.Name, n))
		}
		if err := ranks(b, w, own); err != nil {
			return point, nil, err
		}
		all = append(all, reading.Figures...)
		ph.Jobs = append(ph.Jobs, w.Name)
		point.Jobs = append(point.Jobs, programSummary(w, reading))
		if w.Kind == program.NCCL && reading.Checked > 0 || reading.Wrong != "" {
			point.Findings = append(point.Findings, rightResults(w.Name, reading))
		}
		if a := ps[i].SHARP; a != nil {
			point.Findings = append(point.Findings, a.findings(w, own, reading.Longest, counters.Links, neighbour(works, i))...)
		}
	}
	if err != nil {
		return point, nil, err
	}
	all = withTotal(all)
	ph.Figures = append(all, ps.predict(inv, works, b.Driver())...)
	ph.Figures = append(ph.Figures, counters.Links.Figures(ph.Start, ph.End)...)
	point.Phases = []results.Phase{ph}
	return point, programRows(all), nil
}

// installed is an error if a host lacks a program, or has a configuration with which it would
// not measure what is asked for.
func (ps Programs) installed(ctx context.Context, tb *remote.Testbed) error {
	type need struct {
		host, name, config string
		workers            int
	}
	needs := map[need]bool{}
	for i := range ps {
		p := &ps[i]
		w := p.workload(&spec.Spec{}, tb.Inventory(), results.Scale{})
		servers, clients := w.Commands()
		for _, c := range append(servers, clients...) {
			needs[need{host: c.Host, name: c.Argv[0]}] = true
		}
		if w.Kind == program.NCCL { // mpirun starts it on the others
			for _, h := range w.Hosts {
				needs[need{host: h.Name, name: w.Program()[0]}] = true
			}
		}
		if p.Kind == string(program.SwitchML) {
			config := p.Config
			if config == "" {
				config = "/etc/switchml.cfg"
			}
			for _, h := range w.Hosts {
				needs[need{host: h.Name, config: config, workers: len(w.Hosts)}] = true
			}
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for n := range needs {
		g.Go(func() error {
			client, err := tb.Client(n.host)
			if err != nil {
				return err
			}
			if n.config != "" {
				text, err := client.ReadFile(ctx, n.config)
				if err != nil {
					return err
				}
				if problems := program.CheckSwitchML(text, n.workers); len(problems) > 0 {
					return spec.Invalidf("host %s: %s: %s", n.host, n.config, strings.Join(problems, "; "))
				}
				return nil
			}
			// The name is an argument: the script is the same for all.
			out, err := client.Run(ctx, []string{"sh", "-c", `command -v -- "$1"`, "sh", n.name}, nil)
			if err != nil && out.Exit != 0 {
				return &Missing{n.name, "host " + n.host, install(filepath.Base(n.name))}
			}
			return err
		})
	}
	return g.Wait()
}

// play runs the processes, and reads counters while they run.
func (ps Programs) play(ctx context.Context, tb *remote.Testbed, servers, clients []program.Command, s *spec.Spec, sample func() error) ([]program.Output, error) {
	limit := study.JobTimeout
	if !slices.ContainsFunc(ps, func(p Program) bool { return !program.Flowing(program.Kind(p.Kind)) }) {
		limit = s.Measure.Duration.Std() + s.Measure.Warmup.Std() + 30*time.Second
	}
	every := max(s.Measure.Interval.Std(), 100*time.Millisecond)
	sctx, stop := context.WithCancel(ctx)
	var sampled error
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-sctx.Done():
				return
			case <-tick.C:
			}
			if sampled = sample(); sampled != nil {
				return
			}
		}
	}()
	outputs, err := program.Run(ctx, tb, servers, clients, program.Options{Limit: limit})
	stop()
	<-done
	if err == nil { // what was sent last
		err = sample()
	}
	if sampled != nil && !errors.Is(sampled, context.Canceled) {
		err = errors.Join(err, sampled)
	}
	return outputs, err
}

// folder is where what processes of a point printed is kept.
func folder(b *study.Bench) string {
	return b.Path("programs", fmt.Sprintf("point%d-repeat%d", b.Index, b.Repeat))
}

// ranks keeps on which host each rank was, by the processes' own word: launchers may number
// them otherwise than the experiment does, and differently after a restart.
func ranks(b *study.Bench, w *program.Workload, outputs []program.Output) error {
	hosts := map[int]string{}
	switch w.Kind {
	case program.NCCL:
		for _, o := range outputs {
			maps.Copy(hosts, program.NCCLRanks(o.Stdout))
		}
	case program.Torchrun, program.Exec:
		hosts = program.RankHosts(outputs)
	}
	if len(hosts) == 0 {
		return nil
	}
	var text strings.Builder
	for _, n := range slices.Sorted(maps.Keys(hosts)) {
		fmt.Fprintf(&text, "%d %s\n", n, hosts[n])
	}
	return os.WriteFile(filepath.Join(folder(b), w.Name+".ranks"), []byte(text.String()), 0o644)
}

// evidence keeps what processes printed, without secrets.
func evidence(ctx context.Context, b *study.Bench, outputs []program.Output) error {
	dir := folder(b)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, o := range outputs {
		for name, text := range map[string][]byte{"stdout": o.Stdout, "stderr": o.Stderr, "json": o.Written} {
			if len(text) == 0 {
				continue
			}
			f, err := bounded.OpenFile(filepath.Join(dir, o.Name+"."+name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
			if err != nil {
				return err
			}
			if err := errors.Join(clean(ctx, f, text), f.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// lastKept is how much is kept of the end of what a process printed where the run was interrupted, bytes: all of it takes as
// long as a megabyte or two a second take, and somebody waits.
const lastKept = 64 << 10

// clean writes a text without secrets. Once the run is interrupted it leaves out all but the end, and of a document that was
// cut off everything: its environment is not known for one.
func clean(ctx context.Context, w io.Writer, text []byte) error {
	if ctx.Err() != nil && bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && !json.Valid(text) {
		_, err := fmt.Fprintf(w, "(interrupted: %d bytes are not kept)\n", len(text))
		return err
	}
	text = program.Evidence(text)
	interrupted := ctx.Done()
	if len(text) <= lastKept {
		interrupted = nil
	}
	for piece := range program.Pieces(text) {
		cleaned := make(chan []byte, 1)
		go func() {
			if len(piece) > program.MostPiece {
				cleaned <- fmt.Appendf(nil, "(%d bytes that nothing divides: not kept, more than %d)\n", len(piece), program.MostPiece)
				return
			}
			cleaned <- program.Redact(piece)
		}()
		var b []byte
		select {
		case <-interrupted:
		case b = <-cleaned:
		}
		if interrupted != nil && ctx.Err() != nil { // asked of the context: a select of two that are ready takes either
			end := program.Tail(text, lastKept)
			_, err := fmt.Fprintf(w, "(interrupted: %d bytes are not kept)\n%s", len(text)-len(end), program.Redact(end))
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		text = text[len(piece):]
	}
	return nil
}

func programSummary(w *program.Workload, reading *program.Reading) results.JobSummary {
	sum := results.JobSummary{Job: w.Name, Program: true, Workers: max(len(w.Hosts), len(w.Flows))}
	for _, f := range reading.Figures { // of the largest size, out of place: the last ones
		if strings.HasSuffix(f.Of, "/in-place") {
			continue
		}
		switch f.Metric {
		case "algbw":
			sum.AlgBW = f.Value
		case "busbw":
			sum.BusBW = f.Value
		case "jct":
			sum.JCT = f.Value
		}
	}
	return sum
}

// rightResults is the finding of what a program says of its own results.
func rightResults(name string, reading *program.Reading) results.Finding {
	f := results.Finding{Name: "results are right", Code: results.CodeWrong, Of: name, Outcome: results.Pass, What: "the program found nothing wrong with its results"}
	switch {
	case reading.Wrong != "":
		f.Outcome, f.What = results.Fail, reading.Wrong
	case reading.Checked < reading.Rows:
		f.What = fmt.Sprintf("the program found nothing wrong with its results in %d of %d rows, and checked no others", reading.Checked, reading.Rows)
	}
	return f
}

// withTotal adds the goodput of all programs together.
func withTotal(figures []results.Figure) []results.Figure {
	var sum *results.Figure
	for _, f := range figures {
		switch {
		case f.Metric != totalGoodput:
		case sum == nil:
			sum = &f
		default:
			sum.Value, sum.Lo, sum.Hi, sum.N = sum.Value+f.Value, sum.Lo+f.Lo, sum.Hi+f.Hi, min(sum.N, f.N)
		}
	}
	if sum == nil {
		return figures
	}
	sum.Of = results.Cluster
	return append(figures, *sum)
}

// Bytes of headers, from the standards. An emulated cable carries frames without what only
// a real one adds: preamble 8, FCS 4 and the gap of 12 (IEEE 802.3).
const (
	ethernetHeader = 14
	ethernetRest   = 8 + 4 + 12
	ipHeader       = 20
	tcpHeader      = 20 + 12 // with timestamps, which Linux uses
	udpHeader      = 8
	baseTransport  = 12 + 4 // BTH and ICRC of InfiniBand and RoCEv2 (IBTA specification, 9.2)
	localRoute     = 8 + 2  // LRH and VCRC of InfiniBand
	defaultMTU     = 1500   // of IP
	defaultRDMA    = 4096   // payload of an RDMA packet
)

// efficiency is how much of what a cable carries is payload: payload / (payload + headers).
// rest is what each frame costs besides its bytes.
//
//	TCP         (MTU - 52) / (MTU + 14 + rest)
//	UDP         1448 / (1448 + 42 + rest)
//	RoCEv2      MTU / (MTU + 14 + 20 + 8 + 16 + rest)
//	InfiniBand  MTU / (MTU + 8 + 16 + 2)
func (p *Program) efficiency(infiniband bool, rest int) float64 {
	mtu := p.MTU
	if program.Kind(p.Kind) == program.Perftest || infiniband {
		if mtu == 0 {
			mtu = defaultRDMA
		}
		headers := baseTransport + ethernetHeader + ipHeader + udpHeader + rest
		if infiniband {
			headers = baseTransport + localRoute
		}
		return float64(mtu) / float64(mtu+headers)
	}
	if mtu == 0 {
		mtu = defaultMTU
	}
	if p.Protocol == "udp" {
		return program.Datagram / float64(program.Datagram+udpHeader+ipHeader+ethernetHeader+rest)
	}
	return float64(mtu-ipHeader-tcpHeader) / float64(mtu+ethernetHeader+rest)
}

// predict says what the programs should get: flows of iperf3 and perftest the max-min share of
// the links that they cross, each direction by itself, times what of it is payload;
// all-reduces at most the rate of a host's links over what a host must send, S where switches
// add up and 2S(n-1)/n around a ring of n ranks. The acknowledgements of flows that go the
// other way (some 2 % of TCP) are not in it, nor is what hosts themselves cannot do.
func (ps Programs) predict(inv *inventory.Inventory, works []*program.Workload, driver string) (out []results.Figure) {
	topo := inv.Topology()
	problem := &flow.Problem{}
	for _, l := range topo.Links {
		problem.Links = append(problem.Links, flow.Link{Capacity: float64(l.Rate)})
	}
	rest := 0
	if driver == "lab" {
		rest = ethernetRest
	}
	infiniband := func(host string) bool {
		h, _ := inv.Host(host)
		if h == nil || len(h.NICs) == 0 {
			return false
		}
		sw, ok := inv.Switch(h.NICs[0].Switch)
		return ok && sw.Kind == inventory.Quantum
	}
	type stream struct {
		work, flow int
		efficiency float64
	}
	var streams []stream
	for i, w := range works {
		for k, f := range w.Flows {
			path, err := topo.Path(f.From.Name, f.To.Name)
			if err != nil || len(path) == 0 {
				continue
			}
			eff := ps[i].efficiency(infiniband(f.From.Name), rest)
			for range max(1, w.Streams) {
				j := flow.Job{Kind: flow.Unicast, Limit: w.Rate / eff}
				for n, l := range path {
					j.Nodes = append(j.Nodes, flow.Node{Parent: n + 1, Up: l, Down: flow.None, Switch: flow.None})
				}
				j.Nodes = append(j.Nodes, flow.Node{Parent: flow.None, Up: flow.None, Down: flow.None, Switch: flow.None})
				problem.Jobs = append(problem.Jobs, j)
				streams = append(streams, stream{i, k, eff})
			}
		}
	}
	add := func(name, of string, v float64, bottleneck string) {
		out = append(out, study.Foretold(placement.WaterFill, name, of, v, bottleneck))
	}
	if len(streams) > 0 {
		res, err := flow.WaterFill(problem)
		if err != nil {
			return nil // nothing is predicted, and expectations say so
		}
		total, whole := map[int]float64{}, 0.0
		for i := 0; i < len(streams); {
			s, sum := streams[i], 0.0
			b := res.Jobs[i].Bottleneck
			for ; i < len(streams) && streams[i].work == s.work && streams[i].flow == s.flow; i++ {
				sum += res.Jobs[i].Rate * s.efficiency
			}
			where := ""
			if b.Kind == flow.ByLink {
				where = topo.Links[b.Index].Name
			}
			w := works[s.work]
			add("goodput", w.Name+"/"+w.Flows[s.flow].String(), sum, where)
			total[s.work] += sum
			whole += sum
		}
		for i, w := range works {
			if len(w.Flows) > 0 {
				add(totalGoodput, w.Name, total[i], "")
			}
		}
		add(totalGoodput, results.Cluster, whole, "")
	}
	for i, w := range works {
		if w.Kind == program.NCCL {
			ps[i].bound(inv, w, infiniband, rest, add)
		}
	}
	return out
}

// bound adds the limits of an all-reduce, of every size.
func (p *Program) bound(inv *inventory.Inventory, w *program.Workload, infiniband func(string) bool, rest int, add func(metric, of string, v float64, bottleneck string)) {
	n := float64(len(w.Hosts) * max(1, w.PerHost))
	if n < 2 || len(w.Hosts) < 2 {
		return // no cable between
	}
	least, where := 0.0, ""
	for _, h := range w.Hosts {
		found, ok := inv.Host(h.Name)
		if !ok {
			continue
		}
		sum := 0.0
		for _, nic := range found.NICs {
			sum += float64(nic.Rate)
		}
		q := Program{Kind: string(program.Perftest), MTU: p.MTU} // NCCL uses RDMA
		if sum *= q.efficiency(infiniband(h.Name), rest); where == "" || sum < least {
			least, where = sum, "host "+h.Name
		}
	}
	ring := 2 * (n - 1) / n
	algbw := least / ring
	if p.SHARP != nil {
		algbw = least
	}
	for size := max(w.Size, 8); ; size *= 2 {
		for _, of := range []string{program.SizeName(size), program.SizeName(size) + "/in-place"} {
			add("algbw", w.Name+"/"+of, algbw, where)
			add("busbw", w.Name+"/"+of, algbw*ring, where)
		}
		if size*2 > max(w.SizeTo, w.Size) {
			return
		}
	}
}

// longLine is how much of a line of a log is looked at, bytes: none that anybody waits for is longer.
const longLine = 1 << 20

// findings hold what a program's own logs say of SHARP, and what hosts sent, against what it
// asked for. Longest is the size of the longest vectors that its figures are of, bytes; 0: not known.
func (a *SHARPAsk) findings(w *program.Workload, outputs []program.Output, longest int64, links *study.LinkLoads, other string) []results.Finding {
	log := &sharp.JobLog{}
	for _, o := range outputs {
		for _, text := range [][]byte{o.Stdout, o.Stderr} {
			for line := range bytes.Lines(text) {
				log.Line(string(bytes.TrimSuffix(line[:min(len(line), longLine)], []byte("\n"))))
			}
		}
	}
	e := sharp.Evidence{Log: log, Want: sharp.TreeType(a.Tree), Asked: a.ask().Quota, Ranks: len(w.Hosts) * max(1, w.PerHost), Hosts: len(w.Hosts), Longest: longest}
	if a.Traffic != "ignore" {
		var first []byte // rank 0's
		if len(outputs) > 0 {
			first = outputs[0].Stdout
		}
		e.Reduced, _ = w.Reduced(first)
		e.Doubt = w.Doubt(first)
		if other != "" {
			e.Doubt = fmt.Sprintf("program %s runs on its hosts, too", other)
		}
		for _, h := range w.Hosts {
			if sent, ok := links.Sent(h.Name); ok {
				e.Sent = append(e.Sent, sent)
			}
		}
		e.TrafficRequired = a.Traffic == "required"
	}
	return e.Findings(w.Name)
}

// neighbour is another program that runs on hosts of the i-th; empty: none does.
func neighbour(works []*program.Workload, i int) string {
	shared := func(h program.Host) bool {
		return slices.ContainsFunc(works[i].Hosts, func(o program.Host) bool { return o.Name == h.Name })
	}
	for k, other := range works {
		on := slices.Concat(other.Hosts, other.Servers)
		for _, f := range other.Flows {
			on = append(on, f.From, f.To)
		}
		if k != i && slices.ContainsFunc(on, shared) {
			return other.Name
		}
	}
	return ""
}
