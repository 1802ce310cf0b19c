package wire

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// ErrMessage is wrapped by errors about messages that no node of this protocol sends.
var ErrMessage = errors.New("not a message of this protocol")

// Limits of what is believed.
const (
	MaxName    = 255            // bytes, of jobs and tensors
	MaxWhy     = 1 << 12        // bytes, of reasons
	MaxServers = 1 << 10        // of a job
	MaxTime    = 24 * time.Hour // of anything that is measured or reserved
	MaxCount   = int64(1) << 50 // of anything that is counted
	maxMessage = 64 << 20       // bytes, of a batch: a job of MaxTensors tensors has 20 MiB
	maxListed  = 12             // problems of one message that are listed
)

// problems gathers what is wrong with a message.
type problems struct {
	list []string
	more int
}

func (p *problems) add(format string, args ...any) {
	if len(p.list) == maxListed {
		p.more++
		return
	}
	p.list = append(p.list, fmt.Sprintf(format, args...))
}

func (p *problems) err(what string) error {
	if len(p.list) == 0 {
		return nil
	}
	text := strings.Join(p.list, "; ")
	if p.more > 0 {
		text += fmt.Sprintf("; and %d more", p.more)
	}
	return fmt.Errorf("%s: %s: %w", what, text, ErrMessage)
}

// span is a time that is not negative.
func (p *problems) span(what string, ns int64) time.Duration {
	if ns < 0 || time.Duration(ns) > MaxTime {
		p.add("%s of %v, not 0 to %v", what, time.Duration(ns), MaxTime)
		return 0
	}
	return time.Duration(ns)
}

func (p *problems) count(what string, n int64) int64 {
	if n < 0 || n > MaxCount {
		p.add("%d %s", n, what)
		return 0
	}
	return n
}

func (p *problems) id(what string, n int32) int32 {
	if n < 0 {
		p.add("%s %d", what, n)
		return 0
	}
	return n
}

func (p *problems) text(what, s string, most int) string {
	if len(s) > most || !utf8.ValidString(s) {
		p.add("%s of %d bytes, not UTF-8 of at most %d", what, len(s), most)
		return ""
	}
	return s
}

func (p *problems) address(a *Aggregator) control.Peer {
	host, port, err := net.SplitHostPort(a.GetAddress())
	n, err2 := strconv.ParseUint(port, 10, 16)
	if err != nil || err2 != nil || host == "" || n == 0 || len(a.GetAddress()) > MaxName {
		p.add("address %.80q, not host:port", a.GetAddress())
	}
	return control.Peer{ID: p.id("Aggregator", a.GetId()), Address: a.GetAddress()}
}

func (p *problems) key(k *Key) control.Key {
	if k == nil {
		p.add("no tensor is named")
	} else if k.Tensor >= control.MaxTensors {
		p.add("tensor %d, not 0 to %d", k.Tensor, control.MaxTensors-1)
	}
	return control.Key{Job: k.GetJob(), Tensor: k.GetTensor()}
}

// Encode makes a message of the wire of one of package control.
func Encode(m control.Message) *Message {
	switch m := m.(type) {
	case control.Migrate:
		n := m.Message
		return &Message{Body: &Message_Migrate{&Migrate{
			Key: encodeKey(m.Key), Kind: uint32(n.Kind), From: encodeNode(n.From), To: encodeNode(n.To), Term: encodeTerm(n.Term),
			Version: n.Version, Next: encodeTerm(n.Next), At: n.At, Seeder: n.Seeder,
		}}}
	case control.Admit:
		return &Message{Body: &Message_Admit{EncodeJob(m.Job)}}
	case control.Admitted:
		return &Message{Body: &Message_Admitted{m.Job}}
	case control.Dismiss:
		return &Message{Body: &Message_Dismiss{&Word{Job: m.Job, Why: clip(m.Why)}}}
	case control.Reserve:
		r := &Reserve{Cycle: int64(m.Cycle)}
		for _, s := range m.Slots {
			r.Slots = append(r.Slots, &Slot{Key: encodeKey(s.Key), Iteration: int64(s.Iteration), Exec: int64(s.Exec)})
		}
		return &Message{Body: &Message_Reserve{r}}
	case control.Peers:
		r := &Peers{}
		for _, a := range m.Aggregators {
			r.Aggregators = append(r.Aggregators, &Aggregator{Id: a.ID, Address: a.Address})
		}
		return &Message{Body: &Message_Peers{r}}
	case control.Failed:
		return &Message{Body: &Message_Failed{&Word{Job: m.Job, Why: clip(m.Why)}}}
	case control.Finished:
		return &Message{Body: &Message_Finished{m.Job}}
	case control.WorkerReport:
		r := &WorkerReport{Job: m.Job, Rank: m.Rank, Iterations: int64(m.Iterations), Spent: int64(m.Spent), Stalled: int64(m.Stalled)}
		for _, t := range m.Transfers {
			r.Transfers = append(r.Transfers, &Transfer{Aggregator: t.Aggregator, Exchanges: int64(t.Exchanges), Bytes: t.Bytes, Spent: int64(t.Spent)})
		}
		return &Message{Body: &Message_WorkerReport{r}}
	case control.AggregatorReport:
		r := &AggregatorReport{Span: int64(m.Span), Busy: int64(m.Busy), Cpu: int64(m.CPU)}
		for _, t := range m.Tensors {
			r.Tensors = append(r.Tensors, &TensorReport{
				Key: encodeKey(t.Key), Runs: int64(t.Runs), Busy: int64(t.Busy), Spare: int64(t.Spare),
				Postponed: int64(t.Postponed), Nans: t.NaNs, Ranks: t.Ranks,
			})
		}
		return &Message{Body: &Message_AggregatorReport{r}}
	}
	return &Message{} // of no type: Decode says so
}

// clip keeps a reason within what Decode takes.
func clip(why string) string {
	if len(why) > MaxWhy {
		why = why[:MaxWhy]
	}
	return strings.ToValidUTF8(why, "")
}

func encodeKey(k control.Key) *Key    { return &Key{Job: k.Job, Tensor: k.Tensor} }
func encodeNode(n migrate.Node) *Node { return &Node{Role: uint32(n.Role), Id: n.ID} }
func encodeTerm(t migrate.Term) *Term { return &Term{Epoch: t.Epoch, Seq: t.Seq} }
func decodeTerm(t *Term) migrate.Term { return migrate.Term{Epoch: t.GetEpoch(), Seq: t.GetSeq()} }

// EncodeJob makes a job of the wire.
func EncodeJob(j control.Job) *Job {
	out := &Job{Id: j.ID, Name: j.Name, Workers: int32(j.Workers), Servers: int32(j.Servers), Rate: j.Rate}
	for _, t := range j.Tensors {
		out.Tensors = append(out.Tensors, &Tensor{Name: t.Name, Elements: int64(t.Elements), Work: int64(t.Work)})
	}
	return out
}

// DecodeJob is the reverse of EncodeJob. Its error wraps ErrMessage and names all that is
// wrong; the job is the zero value then.
func DecodeJob(w *Job) (control.Job, error) {
	var p problems
	j := p.job(w)
	if err := p.err("job"); err != nil {
		return control.Job{}, err
	}
	return j, nil
}

func (p *problems) job(w *Job) control.Job {
	j := control.Job{ID: w.GetId(), Name: p.text("name", w.GetName(), MaxName), Workers: int(w.GetWorkers()), Servers: int(w.GetServers()), Rate: w.GetRate()}
	if w.GetName() == "" {
		p.add("no name")
	}
	if j.Workers < 1 || j.Workers > control.MaxWorkers {
		p.add("%d workers, not 1 to %d", j.Workers, control.MaxWorkers)
	}
	if j.Servers < 0 || j.Servers > MaxServers {
		p.add("%d servers, not 0 to %d", j.Servers, MaxServers)
	}
	if r := float64(j.Rate); math.IsNaN(r) || math.IsInf(r, 0) {
		p.add("learning rate %v", r)
	}
	if n := len(w.GetTensors()); n < 1 || n > control.MaxTensors {
		p.add("%d tensors, not 1 to %d", n, control.MaxTensors)
		return j
	}
	j.Tensors = make([]control.Tensor, len(w.Tensors))
	for i, t := range w.Tensors {
		name := p.text(fmt.Sprintf("tensor %d: name", i), t.GetName(), MaxName)
		if t.GetElements() < 1 || t.GetElements() > control.MaxElements {
			p.add("tensor %d, %.80q: %d values, not 1 to %d", i, t.GetName(), t.GetElements(), control.MaxElements)
		}
		if t.GetWork() < 0 || time.Duration(t.GetWork()) > MaxTime {
			p.add("tensor %d, %.80q: %v of work, not 0 to %v", i, t.GetName(), time.Duration(t.GetWork()), MaxTime)
		}
		j.Tensors[i] = control.Tensor{Name: name, Elements: int(t.GetElements()), Work: time.Duration(t.GetWork())}
	}
	return j
}

// Decode is the reverse of Encode. Its error wraps ErrMessage and names all that is wrong;
// the message is nil then. It does not know who has sent the message.
func Decode(w *Message) (control.Message, error) {
	var p problems
	m := p.message(w)
	if err := p.err("message"); err != nil {
		return nil, err
	}
	return m, nil
}

func (p *problems) message(w *Message) control.Message {
	switch b := w.GetBody().(type) {
	case *Message_Migrate:
		return p.migrate(b.Migrate)
	case *Message_Admit:
		return control.Admit{Job: p.job(b.Admit)}
	case *Message_Admitted:
		return control.Admitted{Job: b.Admitted}
	case *Message_Dismiss:
		return control.Dismiss{Job: b.Dismiss.GetJob(), Why: p.text("reason", b.Dismiss.GetWhy(), MaxWhy)}
	case *Message_Reserve:
		r := control.Reserve{Cycle: p.span("cycle", b.Reserve.GetCycle())}
		for _, s := range b.Reserve.GetSlots() {
			k := p.key(s.GetKey())
			if s.GetIteration() == 0 {
				p.add("%v: no iteration", k)
			}
			r.Slots = append(r.Slots, control.Slot{Key: k, Iteration: p.span("iteration", s.GetIteration()), Exec: p.span("work", s.GetExec())})
		}
		return r
	case *Message_Peers:
		var r control.Peers
		for _, a := range b.Peers.GetAggregators() {
			r.Aggregators = append(r.Aggregators, p.address(a))
		}
		return r
	case *Message_Failed:
		return control.Failed{Job: b.Failed.GetJob(), Why: p.text("reason", b.Failed.GetWhy(), MaxWhy)}
	case *Message_Finished:
		return control.Finished{Job: b.Finished}
	case *Message_WorkerReport:
		return p.worker(b.WorkerReport)
	case *Message_AggregatorReport:
		return p.aggregator(b.AggregatorReport)
	}
	p.add("of no known type")
	return nil
}

func (p *problems) migrate(w *Migrate) control.Message {
	m := migrate.Message[control.None]{
		Kind: migrate.Kind(w.GetKind()), From: p.node(w.GetFrom()), To: p.node(w.GetTo()), Term: decodeTerm(w.GetTerm()),
		Version: w.GetVersion(), Next: decodeTerm(w.GetNext()), At: p.id("at Aggregator", w.GetAt()), Seeder: p.id("seeder", w.GetSeeder()),
	}
	if k := w.GetKind(); k > uint32(migrate.Stuck) || !ofControl[k] {
		p.add("%s, which is not of the control plane", kindName(k))
	} else {
		m.Kind = migrate.Kind(k)
	}
	return control.Migrate{Key: p.key(w.GetKey()), Message: m}
}

func kindName(k uint32) string {
	if k > math.MaxUint8 {
		return fmt.Sprintf("kind %d", k)
	}
	return migrate.Kind(k).String()
}

// ofControl are the kinds of migrate that go by way of pMaster.
var ofControl = [migrate.Stuck + 1]bool{
	migrate.MigrateInit: true, migrate.Migrating: true, migrate.CopyDone: true, migrate.WorkerDone: true, migrate.Release: true,
	migrate.Fence: true, migrate.Fenced: true, migrate.Assign: true, migrate.Assigned: true, migrate.Ask: true, migrate.Status: true, migrate.Stuck: true,
}

func (p *problems) node(n *Node) migrate.Node {
	if n.GetRole() > uint32(migrate.Worker) {
		p.add("a node of role %d", n.GetRole())
		return migrate.Node{}
	}
	return migrate.Node{Role: migrate.Role(n.GetRole()), ID: p.id("node", n.GetId())}
}

func (p *problems) worker(w *WorkerReport) control.Message {
	r := control.WorkerReport{
		Job: w.GetJob(), Rank: p.id("rank", w.GetRank()), Iterations: int(p.count("iterations", w.GetIterations())),
		Spent: p.span("iterations", w.GetSpent()), Stalled: p.span("stall", w.GetStalled()),
	}
	for _, t := range w.GetTransfers() {
		r.Transfers = append(r.Transfers, control.Transfer{
			Aggregator: p.id("Aggregator", t.GetAggregator()), Exchanges: int(p.count("exchanges", t.GetExchanges())),
			Bytes: p.count("bytes", t.GetBytes()), Spent: p.span("transfers", t.GetSpent()),
		})
	}
	return r
}

func (p *problems) aggregator(w *AggregatorReport) control.Message {
	r := control.AggregatorReport{Span: p.span("report", w.GetSpan()), Busy: p.span("core's work", w.GetBusy()), CPU: p.span("CPU time", w.GetCpu())}
	for _, t := range w.GetTensors() {
		for _, rank := range t.GetRanks() {
			p.id("rank", rank)
		}
		r.Tensors = append(r.Tensors, control.TensorReport{
			Key: p.key(t.GetKey()), Runs: int(p.count("runs", t.GetRuns())), Busy: p.span("work", t.GetBusy()),
			Spare: int(p.count("late", t.GetSpare())), Postponed: int(p.count("postponed", t.GetPostponed())),
			NaNs: p.count("NaNs", t.GetNans()), Ranks: t.GetRanks(),
		})
	}
	return r
}

// Measured is a Profile as pMaster has it.
type Measured struct {
	Iteration time.Duration   `json:"iteration"`
	Tasks     []time.Duration `json:"tasks"`    // by tensor
	Transfer  float64         `json:"transfer"` // ns for a byte to an Aggregator and back
	Reverts   int             `json:"reverts"`
}

// Encode makes a profile of the wire of it.
func (m *Measured) Encode() *Profile {
	if m == nil {
		return nil
	}
	out := &Profile{Iteration: int64(m.Iteration), Transfer: m.Transfer, Reverts: int32(m.Reverts)}
	for _, t := range m.Tasks {
		out.Tasks = append(out.Tasks, int64(t))
	}
	return out
}

func (p *problems) profile(w *Profile, tensors int) *Measured {
	if w == nil {
		return nil
	}
	m := &Measured{Iteration: p.span("profiled iteration", w.Iteration), Transfer: w.Transfer, Reverts: int(p.id("reverts", w.Reverts))}
	if w.Iteration == 0 {
		p.add("profiled iterations of no length")
	}
	if !(w.Transfer >= 0) || math.IsInf(w.Transfer, 0) {
		p.add("profiled transfers of %v ns for a byte", w.Transfer)
	}
	if len(w.Tasks) != tensors {
		p.add("%d tensors are profiled of %d", len(w.Tasks), tensors)
	}
	for _, t := range w.Tasks {
		d := p.span("profiled work", t)
		if d > m.Iteration {
			p.add("profiled work of %v in an iteration of %v", d, m.Iteration)
		}
		m.Tasks = append(m.Tasks, d)
	}
	return m
}

// Greeting is who a node is, as it says first.
type Greeting struct {
	Life uint64 // of the process: two of one id are told apart by it

	Aggregator *control.Peer // of an Aggregator; nil: it is a worker
	Job        control.Job   // of a worker
	Rank       int32
	Measured   *Measured // what a pMaster has told it; nil: nothing
}

// Encode makes a Hello of it.
func (g *Greeting) Encode() *Hello {
	h := &Hello{Protocol: control.Protocol, Life: g.Life}
	if a := g.Aggregator; a != nil {
		h.Node = &Hello_Aggregator{&Aggregator{Id: a.ID, Address: a.Address}}
	} else {
		h.Node = &Hello_Worker{&Worker{Job: EncodeJob(g.Job), Rank: g.Rank, Profile: g.Measured.Encode()}}
	}
	return h
}

// DecodeHello is the reverse of Encode. Its error wraps ErrMessage and names all that is wrong;
// the greeting is nil then.
func DecodeHello(h *Hello) (*Greeting, error) {
	var p problems
	if h.GetProtocol() != control.Protocol {
		// Nothing else means what it seems to.
		p.add("protocol version %d, and pMaster speaks %d", h.GetProtocol(), control.Protocol)
		return nil, p.err("hello")
	}
	g := &Greeting{Life: h.GetLife()}
	switch n := h.GetNode().(type) {
	case *Hello_Aggregator:
		a := p.address(n.Aggregator)
		g.Aggregator = &a
	case *Hello_Worker:
		g.Job, g.Rank = p.job(n.Worker.GetJob()), p.id("rank", n.Worker.GetRank())
		if int(g.Rank) >= g.Job.Workers && g.Job.Workers > 0 {
			p.add("rank %d of %d workers", g.Rank, g.Job.Workers)
		}
		g.Measured = p.profile(n.Worker.GetProfile(), len(n.Worker.GetJob().GetTensors()))
	default:
		p.add("neither an Aggregator nor a worker")
	}
	if err := p.err("hello"); err != nil {
		return nil, err
	}
	return g, nil
}
