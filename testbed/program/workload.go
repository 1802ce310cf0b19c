package program

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/results"
)

// Host is a host as a program reaches it.
type Host struct {
	Name    string
	Address string // of its data NIC
	RDMA    string // device and port, "mlx5_0:1"; empty: the program's default
}

// Flow is a client that sends to a server.
type Flow struct{ From, To Host }

// String is the flow as links are named: "h1->h5".
func (f Flow) String() string { return f.From.Name + "->" + f.To.Name }

// Workload is a program with all that it is told. Rates and times are the testbed's own.
type Workload struct {
	Name string
	Kind Kind
	// Command is the program and its first arguments; empty: DefaultCommand. Server is that
	// of the other side, of ATP. Arguments come last.
	Command, Server, Arguments []string
	Env                        []string // "NAME=value"

	Flows   []Flow // of iperf3 and perftest; of others Hosts, in the order of ranks
	Hosts   []Host
	Servers []Host // parameter servers, of ATP

	Port     int           // the first that servers listen on; 0: DefaultPort
	Duration time.Duration // of iperf3 and perftest; whole seconds
	Warmup   time.Duration // of iperf3; the same
	Interval time.Duration // between iperf3's reports

	UDP        bool    // iperf3
	Streams    int     // of each flow; 0: 1
	Rate       float64 // bit/s of each stream; 0: no limit
	Congestion string  // control of TCP

	Size, SizeTo int64 // bytes: of perftest's messages, of nccl-tests' vectors from and to
	Iterations   int   // of nccl-tests and of SwitchML and ATP where they count
	PerHost      int   // processes of a host: GPUs; 0: 1
	Launcher     string
	LaunchArgs   []string
	JSON         bool // nccl-tests and perftest write JSON

	Rendezvous string // of torchrun: "static" or "c10d"
	AppID      int    // of ATP
	Rules      []Rule // of torchrun and exec

}

// Launchers say who starts the processes of nccl-tests.
func Launchers() []string { return []string{"mpirun", "each"} }

// Rendezvous are the ways in which workers of torchrun find each other.
func Rendezvous() []string { return []string{"static", "c10d"} }

// Flowing says whether programs of a kind are flows from clients to servers.
func Flowing(k Kind) bool { return k == IPerf3 || k == Perftest }

// DefaultCommand is how a program is called where nothing else is said; nil: it must be said.
func DefaultCommand(k Kind) []string {
	switch k {
	case IPerf3:
		return []string{"iperf3"}
	case Perftest:
		return []string{"ib_write_bw"}
	case NCCL:
		return []string{"all_reduce_perf"}
	case Torchrun:
		return []string{"torchrun"}
	case SwitchML:
		return []string{"allreduce_benchmark"}
	}
	return nil
}

// DefaultPort is the first port that a kind's servers listen on; 0: there is none.
func DefaultPort(k Kind) int {
	switch k {
	case IPerf3:
		return 5201
	case Perftest:
		return 18515
	case Torchrun, NCCL, Exec:
		return 29500
	}
	return 0
}

// Datagram is the payload of iperf3's UDP datagrams, bytes: as much as an MSS of TCP.
const Datagram = 1448

// Program is how the program is called.
func (w *Workload) Program() []string {
	if len(w.Command) > 0 {
		return w.Command
	}
	return DefaultCommand(w.Kind)
}

// Commands are the program's processes: servers first, which must be ready before clients
// start.
func (w *Workload) Commands() (servers, clients []Command) {
	port := cmp.Or(w.Port, DefaultPort(w.Kind))
	switch w.Kind {
	case IPerf3, Perftest:
		for i, f := range w.Flows {
			s, c := w.iperf(f, port+i)
			if w.Kind == Perftest {
				s, c = w.perftest(f, port+i)
			}
			name := w.Name + "." + f.From.Name + "-" + f.To.Name
			s.Name, s.Host, s.Listen, s.Server = name+".server", f.To.Name, port+i, true
			c.Name, c.Host = name+".client", f.From.Name
			s.Part, c.Part, s.Env, c.Env = f.String(), f.String(), w.Env, w.Env
			servers, clients = append(servers, s), append(clients, c)
		}
		return servers, clients
	case NCCL:
		return nil, w.nccl(port)
	case ATP:
		for i, h := range w.Servers {
			servers = append(servers, Command{Name: fmt.Sprintf("%s.%s.server%d", w.Name, h.Name, i), Host: h.Name, Server: true, Argv: append(slices.Clone(w.Server), strconv.Itoa(w.AppID)), Env: w.Env})
		}
	}
	for i, h := range w.Hosts {
		c := Command{Name: w.Name + "." + h.Name, Host: h.Name, Argv: slices.Clone(w.Program()), Env: w.Env}
		if len(w.Hosts) > 1 {
			c.Part = h.Name
		}
		switch w.Kind {
		case ATP: // [MyID] [NumWorkers] [AppID] [NumPS]
			c.Argv = append(c.Argv, strconv.Itoa(i), strconv.Itoa(len(w.Hosts)), strconv.Itoa(w.AppID), strconv.Itoa(len(w.Servers)))
		case Torchrun:
			c.Argv, c.Part = w.torchrun(i, port), ""
		case Exec:
			c.Env = append(w.ranks(i, port), w.Env...)
		}
		c.Argv = append(c.Argv, w.Arguments...)
		clients = append(clients, c)
	}
	return servers, clients
}

func seconds(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

func (w *Workload) iperf(f Flow, port int) (s, c Command) {
	p, every := strconv.Itoa(port), strconv.FormatFloat(max(0.1, w.Interval.Seconds()), 'g', 3, 64)
	if w.Interval == 0 {
		every = "1"
	}
	s.Argv = append(slices.Clone(w.Program()), "-s", "-1", "-J", "-B", f.To.Address, "-p", p, "-i", every)
	c.Argv = append(slices.Clone(w.Program()), "-c", f.To.Address, "-J", "-B", f.From.Address, "-p", p, "-i", every, "-t", seconds(w.Duration))
	if w.Warmup > 0 {
		c.Argv = append(c.Argv, "-O", seconds(w.Warmup))
	}
	if w.UDP {
		c.Argv = append(c.Argv, "-u", "-l", strconv.Itoa(Datagram))
	}
	if w.Streams > 1 {
		c.Argv = append(c.Argv, "-P", strconv.Itoa(w.Streams))
	}
	if w.Rate > 0 {
		c.Argv = append(c.Argv, "-b", strconv.FormatFloat(w.Rate, 'f', 0, 64))
	}
	if w.Congestion != "" {
		c.Argv = append(c.Argv, "-C", w.Congestion)
	}
	c.Argv = append(c.Argv, w.Arguments...)
	return s, c
}

func (w *Workload) perftest(f Flow, port int) (s, c Command) {
	side := func(h Host, last ...string) []string {
		argv := append(slices.Clone(w.Program()), "-p", strconv.Itoa(port), "-F")
		if name, n, ok := strings.Cut(h.RDMA, ":"); h.RDMA != "" {
			argv = append(argv, "-d", name)
			if ok {
				argv = append(argv, "-i", n)
			}
		}
		latency := slices.ContainsFunc(w.Program(), func(a string) bool { return strings.HasSuffix(a, "_lat") }) // behind numactl, too
		if w.Duration > 0 && !latency {
			argv = append(argv, "-D", seconds(w.Duration))
		}
		if w.Size > 0 {
			argv = append(argv, "-s", strconv.FormatInt(w.Size, 10))
		}
		if !latency {
			argv = append(argv, "--report_gbits")
		}
		return append(append(argv, w.Arguments...), last...)
	}
	s.Argv = side(f.To)
	c.Argv = side(f.From)
	if w.JSON {
		c.File = "out.json"
		c.Argv = append(c.Argv, "--out_json", "--out_json_file="+Dir+"/"+c.File)
	}
	c.Argv = append(c.Argv, f.To.Address)
	return s, c
}

// ranks are the variables by which processes that the tool starts itself find each other, as
// torch.distributed's env:// reads them.
func (w *Workload) ranks(i, port int) []string {
	return []string{
		"RANK=" + strconv.Itoa(i), "WORLD_SIZE=" + strconv.Itoa(len(w.Hosts)), "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
		"MASTER_ADDR=" + w.Hosts[0].Address, "MASTER_PORT=" + strconv.Itoa(port),
	}
}

// ncclFrom is what nccl-tests is told of the sizes to go through, and ncclGPUs of how many GPUs a process has.
func (w *Workload) ncclFrom() []string {
	from := max(w.Size, 8)
	to := cmp.Or(w.SizeTo, from)
	args := []string{"-b", strconv.FormatInt(from, 10), "-e", strconv.FormatInt(to, 10)}
	if to > from {
		args = append(args, "-f", "2")
	}
	return args
}

func (w *Workload) ncclGPUs() []string {
	switch {
	case w.Launcher != "each":
		return []string{"-g", "1"}
	case w.PerHost > 1:
		return []string{"-g", strconv.Itoa(w.PerHost)}
	}
	return nil
}

func (w *Workload) nccl(port int) (clients []Command) {
	per := max(1, w.PerHost)
	test := slices.Concat(w.Program(), w.ncclFrom())
	if w.Iterations > 0 {
		test = append(test, "-n", strconv.Itoa(w.Iterations))
	}
	first := Command{Name: w.Name, Host: w.Hosts[0].Name, Env: w.Env}
	if w.JSON {
		first.File = "out.json"
	}
	if w.Launcher == "each" {
		for i, h := range w.Hosts {
			c := Command{Name: w.Name + "." + h.Name, Host: h.Name, Env: append(w.ranks(i, port), w.Env...), Argv: slices.Concat(test, w.ncclGPUs())}
			if i == 0 && w.JSON {
				c.File, c.Argv = first.File, append(c.Argv, "-J", Dir+"/"+first.File)
			}
			c.Argv = append(c.Argv, w.Arguments...)
			clients = append(clients, c)
		}
		return clients
	}
	var names, vars []string
	for _, h := range w.Hosts {
		names = append(names, fmt.Sprintf("%s:%d", h.Address, per))
	}
	for _, v := range w.Env { // mpirun passes only what it is told to
		name, _, _ := strings.Cut(v, "=")
		vars = append(vars, "-x", name)
	}
	if w.JSON {
		test = append(test, "-J", Dir+"/"+first.File)
	}
	first.Argv = slices.Concat([]string{"mpirun", "-np", strconv.Itoa(per * len(w.Hosts)), "--host", strings.Join(names, ","), "--map-by", "ppr:" + strconv.Itoa(per) + ":node"},
		vars, w.LaunchArgs, test, w.ncclGPUs(), w.Arguments)
	return []Command{first}
}

func (w *Workload) torchrun(i, port int) []string {
	argv := []string{DefaultCommand(Torchrun)[0], "--nnodes=" + strconv.Itoa(len(w.Hosts)), "--nproc-per-node=" + strconv.Itoa(max(1, w.PerHost))}
	if w.Rendezvous == "c10d" {
		argv = append(argv, "--rdzv-backend=c10d", "--rdzv-id="+w.Name, fmt.Sprintf("--rdzv-endpoint=%s:%d", w.Hosts[0].Address, port))
	} else {
		argv = append(argv, "--node-rank="+strconv.Itoa(i), "--master-addr="+w.Hosts[0].Address, "--master-port="+strconv.Itoa(port))
	}
	return slices.Concat(argv, w.LaunchArgs, w.Command)
}

// Read turns what the program's processes printed into figures about it, named "A" and
// "A/part".
func (w *Workload) Read(outputs []Output) (*Reading, error) {
	all := &Reading{}
	var arrived []*results.Series // by flow
	add := func(part string, r *Reading, err error) error {
		if err != nil {
			return err
		}
		r.About(part)
		if r.over || len(all.Figures)+len(r.Figures) > mostInAll {
			return fmt.Errorf("%w: it says more than %d figures, or its processes %d", ErrOutput, mostFigures, mostInAll)
		}
		all.Figures = append(all.Figures, r.Figures...)
		arrived = append(arrived, r.arrived)
		for _, n := range r.Notes {
			all.note("%s", n)
		}
		all.Wrong = cmp.Or(all.Wrong, r.Wrong)
		all.Longest = max(all.Longest, r.Longest)
		all.Rows, all.Checked = all.Rows+r.Rows, all.Checked+r.Checked
		return nil
	}
	server := func(part string) (text []byte) {
		for _, o := range outputs {
			if o.Server && o.Part == part {
				return o.Stdout
			}
		}
		return nil
	}
	var logs [][]byte
	for _, o := range outputs {
		if o.Server {
			continue
		}
		var r *Reading
		var err error
		switch w.Kind {
		case IPerf3:
			r, err = ReadIPerf3(o.Stdout, server(o.Part))
		case Perftest:
			if w.JSON {
				r, err = ReadPerftestJSON(o.Written)
			} else {
				r, err = ReadPerftest(o.Stdout)
			}
			if err == nil {
				err = w.perftestWhole(r)
			}
			for i := range r.figures() { // one size: the flow says all
				if w.Size > 0 {
					r.Figures[i].Of = ""
				}
			}
		case NCCL: // the table is rank 0's, which is the first
			if w.JSON {
				r, err = ReadNCCLJSON(o.Written)
			} else {
				r, err = ReadNCCLText(o.Stdout)
			}
			if err == nil {
				err = w.whole(r, o.Stdout)
			}
			if err := add("", r, err); err != nil {
				return nil, err
			}
			all.About(w.Name)
			return all, nil
		case ATP:
			r, err = ReadATP(o.Stdout)
		case SwitchML:
			r, err = ReadSwitchML(o.Stdout)
		case Exec:
			r, err = Extract(o.Stdout, w.Rules)
		case Torchrun:
			logs = append(logs, o.Stdout)
			continue
		}
		if err := add(o.Part, r, err); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Name, err)
		}
	}
	if w.Kind == Torchrun {
		if w.PerHost > 1 && !slices.ContainsFunc(w.Env, func(v string) bool { return strings.HasPrefix(v, "OMP_NUM_THREADS=") }) {
			all.note("torchrun sets OMP_NUM_THREADS=1 for several processes of a host where env does not say it")
		}
		r, err := extract(logs, w.Rules)
		if err := add("", r, err); err != nil {
			return nil, err
		}
	}
	all.About(w.Name)
	if Flowing(w.Kind) {
		all.total(w.Name, arrived)
	}
	return all, nil
}

// figures is those of a reading that may be nil.
func (r *Reading) figures() int {
	if r == nil {
		return 0
	}
	return len(r.Figures)
}

// total adds the sum of all flows' goodput. Those that share a link take from each other, so
// their sum varies less than they do: its interval is that of the sum at each time, where all
// flows have counters.
func (r *Reading) total(name string, arrived []*results.Series) {
	var sum []results.Figure
	for _, f := range r.Figures {
		if f.Metric == "goodput" {
			sum = append(sum, f)
		}
	}
	if len(sum) == 0 {
		return
	}
	t := sum[0]
	t.Metric, t.Of, t.Value, t.N = "total_goodput", name, 0, sum[0].N
	var half float64
	for _, f := range sum {
		t.Value += f.Value
		h := (f.Hi - f.Lo) / 2
		half += h * h
		t.N = min(t.N, f.N)
	}
	half = math.Sqrt(half)
	t.Lo, t.Hi = t.Value-half, t.Value+half
	if !slices.Contains(arrived, nil) {
		var each []results.Series
		for _, s := range arrived {
			each = append(each, *s)
		}
		both := &Reading{}
		if err := both.addRate("total_goodput", name, 8, results.Sum(each...)); err == nil {
			t = both.Figures[0].Affine(1, t.Value-both.Figures[0].Value)
		}
	}
	r.Figures = append(r.Figures, t)
}

// ranked is a rank in a worker's own log: NCCL's "rank 3 nranks 8", or "RANK=3", "[rank3]".
var ranked = regexp.MustCompile(`(?i)\[?\brank[ =:]?(\d+)\b`)

// mostRanked is how often a log may name a rank before the rest of it is not looked at.
const mostRanked = 100_000

// RankHosts says on which host each rank ran, by what the hosts' own processes printed: under
// an elastic launcher neither the order of hosts nor an earlier run says so. One that several
// hosts claim is left out.
func RankHosts(outputs []Output) map[int]string {
	hosts, twice := map[int]string{}, map[int]bool{}
	for _, o := range outputs {
		for _, m := range ranked.FindAllSubmatch(o.Stdout, mostRanked) {
			n, err := strconv.Atoi(string(m[1]))
			if err != nil {
				continue
			}
			if first, ok := hosts[n]; ok && first != o.Host {
				twice[n] = true
			}
			hosts[n] = o.Host
		}
	}
	for n := range twice {
		delete(hosts, n)
	}
	return hosts
}

// ncclCounts is how often nccl-tests all-reduces.
type ncclCounts struct {
	warmup, timed, checked float64
	each                   bool // size is warmed up with; otherwise the smallest and the largest
}

// ncclSaid is where nccl-tests says it, before its table.
var ncclSaid = regexp.MustCompile(`warmup iters: (\d+) iters: (\d+) (?:agg iters: (\d+) )?validation: (\d+)`)

// counts is what the output of rank 0 says. Where it does not, not ok, it is what was asked for, as before 2.16.8.
//
// Each size is warmed up with since 2.16.8, of which once is the default, and five times was before. nccl-tests says its
// version since 2.17.4.
func (w *Workload) counts(stdout []byte) (_ ncclCounts, ok bool) {
	m := ncclSaid.FindSubmatch(stdout)
	if m == nil {
		return ncclCounts{warmup: 5, timed: float64(cmp.Or(w.Iterations, 20)), checked: 1}, false
	}
	n := func(i int) float64 {
		v, _ := strconv.ParseFloat(string(m[i]), 64)
		return v
	}
	return ncclCounts{n(1), n(2) * max(1, n(3)), n(4), n(1) == 1 || bytes.Contains(stdout, []byte("# nccl-tests version "))}, true
}

// Reduced is how many bytes nccl-tests all-reduces in all, by its source and by what rank 0 printed, and in how many
// all-reduces: to warm up; and each size out of place and in place, once to begin, then as often as it is timed, then as
// often as it is checked. 0: nobody knows, of other programs.
//
// Source: github.com/NVIDIA/nccl-tests, src/common.cu (TimeTest, BenchTime).
func (w *Workload) Reduced(stdout []byte) (sum, calls float64) {
	if w.Kind != NCCL {
		return 0, 0
	}
	c, _ := w.counts(stdout)
	from := max(w.Size, 8)
	to := max(w.SizeTo, from)
	reduce := func(size int64, times float64) { sum, calls = sum+times*float64(size), calls+times }
	for size := from; size <= to; size *= 2 {
		reduce(size, 2*(1+c.timed+c.checked))
		if c.each {
			reduce(size, c.warmup)
		}
	}
	if !c.each {
		reduce(from, c.warmup)
		reduce(to, c.warmup)
	}
	return sum, calls
}

// recounted are arguments of nccl-tests that change how often it all-reduces, or how much; checking is the one of them
// that its output tells.
var (
	recounted = regexp.MustCompile(`^(-[wnmNbefiodGc]|--(warmup_iters|iters|agg_iters|run_cycles|minbytes|maxbytes|stepfactor|stepbytes|op|datatype|cudagraph|check)).*`)
	checking  = regexp.MustCompile(`^(-c|--check)`)
)

// headered is a size of vectors, bytes, beside which what is sent with each is a few percent: headers of packets
// of 4 KiB, acknowledgements, and two messages of a word.
const headered = 16 << 10

// Doubt is why what the program's hosts send says nothing of how it all-reduces, with what rank 0 printed; empty: it does.
func (w *Workload) Doubt(stdout []byte) string {
	sum, calls := w.Reduced(stdout)
	c, said := w.counts(stdout)
	counted := said && (c.each || c.checked <= 1) // before 2.13.7 more checks than one were one
	switch i := slices.IndexFunc(w.Arguments, func(a string) bool { return recounted.MatchString(a) && !(counted && checking.MatchString(a)) }); {
	case calls == 0:
		return ""
	case i >= 0:
		return fmt.Sprintf("argument %s changes how much it all-reduces", w.Arguments[i])
	case sum/calls < headered:
		return fmt.Sprintf("its vectors have %.0f bytes in the mean, and headers are as much", sum/calls)
	}
	return ""
}
