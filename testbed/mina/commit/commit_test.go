package commit

import (
	"fmt"
	"strings"
	"testing"
)

// scene is a group of one job of two hosts whose messages are delivered in the order in
// which they were sent, and written down. Hold says which are not.
type scene struct {
	group *Group
	hosts []*Host
	out   Output
	hold  func(Message) bool
	lines []string
}

func newScene() *scene {
	s := &scene{group: NewGroup(1, Default(), func(ready []Ready) string {
		return fmt.Sprint("from operation ", ready[0].Index)
	})}
	for rank := range uint32(2) {
		s.hosts = append(s.hosts, NewHost(Node{1, rank}, 1, 2, Default()))
	}
	s.group.Set(map[uint32]int{1: 2}, &s.out)
	return s
}

func (s *scene) note(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// settle delivers until nothing is under way.
func (s *scene) settle() {
	for {
		out := s.out
		s.out = Output{}
		for _, e := range out.Events {
			s.note("%v: %v %v %v", e.Node, e.Kind, e.Txn, e.Why)
		}
		if len(out.Messages) == 0 {
			return
		}
		for _, m := range out.Messages {
			if s.hold != nil && s.hold(m) {
				s.note("(%v)", m)
				continue
			}
			s.note("%v", m)
			if m.To.Job == 0 {
				s.group.Handle(m, &s.out)
			} else {
				s.hosts[m.To.Rank].Handle(m, "", &s.out)
			}
		}
	}
}

func (s *scene) join() {
	for _, h := range s.hosts {
		h.Report(&s.out)
	}
	s.settle()
}

func (s *scene) want(t *testing.T, want string) {
	t.Helper()
	trim := func(s string) string {
		var out []string
		for line := range strings.Lines(s) {
			if line = strings.TrimSpace(line); line != "" {
				out = append(out, line)
			}
		}
		return strings.Join(out, "\n")
	}
	if got := trim(strings.Join(s.lines, "\n")); got != trim(want) {
		t.Errorf("got\n%s\n\nwant\n%s", got, trim(want))
	}
}

// The paper's Figure 9.
func TestFigure9(t *testing.T) {
	s := newScene()
	s.join()
	for rank, h := range s.hosts {
		if op, version, body, ok := h.Next(); op != 0 || version != (Txn{1, 1}) || body != "from operation 0" || !ok {
			t.Errorf("rank %d: operation %d by %v (%q), %v", rank, op, version, body, ok)
		}
	}
	s.want(t, `
		report 1/0>controller run 1 txn 0.0
		report 1/1>controller run 1 txn 0.0
		1/0: in 1.0
		controller: begun 1.1
		prepare controller>1/0 run 1 txn 1.1
		prepare controller>1/1 run 1 txn 1.1
		1/0: locked 1.1
		1/1: locked 1.1
		ack 1/0>controller run 1 txn 1.1 index 0
		ack 1/1>controller run 1 txn 1.1 index 0
		controller: committed 1.1
		commit controller>1/0 run 1 txn 1.1
		commit controller>1/1 run 1 txn 1.1
		1/0: applied 1.1
		1/1: applied 1.1
		done 1/0>controller run 1 txn 1.1 applied true
		done 1/1>controller run 1 txn 1.1 applied true
		controller: closed 1.1`)
}

// One host has begun an operation that the other has not: step 5 is an abort, and the next
// try comes after an interval.
func TestIndicesDiffer(t *testing.T) {
	s := newScene()
	s.hosts[0].Next()
	s.join()
	s.want(t, `
		report 1/0>controller run 1 txn 0.0
		report 1/1>controller run 1 txn 0.0
		1/0: in 1.0
		controller: begun 1.1
		prepare controller>1/0 run 1 txn 1.1
		prepare controller>1/1 run 1 txn 1.1
		1/0: locked 1.1
		1/1: locked 1.1
		ack 1/0>controller run 1 txn 1.1 index 1
		ack 1/1>controller run 1 txn 1.1 index 0
		controller: aborted 1.1 indices differ
		abort controller>1/0 run 1 txn 1.1
		abort controller>1/1 run 1 txn 1.1
		1/0: released 1.1
		1/1: released 1.1
		done 1/0>controller run 1 txn 1.1 applied false
		done 1/1>controller run 1 txn 1.1 applied false
		controller: closed 1.1`)
	s.lines = nil
	s.hosts[1].Next()
	s.group.Timeout(Timer{Kind: Again, Txn: Txn{1, 1}}, &s.out)
	s.settle()
	s.want(t, `
		controller: begun 1.2
		prepare controller>1/0 run 1 txn 1.2
		prepare controller>1/1 run 1 txn 1.2
		1/0: locked 1.2
		1/1: locked 1.2
		ack 1/0>controller run 1 txn 1.2 index 1
		ack 1/1>controller run 1 txn 1.2 index 1
		controller: committed 1.2
		commit controller>1/0 run 1 txn 1.2
		commit controller>1/1 run 1 txn 1.2
		1/0: applied 1.2
		1/1: applied 1.2
		done 1/0>controller run 1 txn 1.2 applied true
		done 1/1>controller run 1 txn 1.2 applied true
		controller: closed 1.2`)
}

// The controller commits and is gone before rank 1 has heard of it: rank 1 stays locked,
// asks rank 0 once its lock has lasted too long, and is told.
func TestInDoubt(t *testing.T) {
	s := newScene()
	s.hold = func(m Message) bool { return m.Kind == Commit && m.From.Job == 0 && m.To.Rank == 1 }
	s.join()
	s.lines = nil
	if _, _, _, ok := s.hosts[1].Next(); ok {
		t.Error("a host in doubt begins an operation")
	}
	s.hosts[1].Timeout(Timer{Kind: Lease, Txn: Txn{1, 1}}, &s.out)
	s.settle()
	s.want(t, `
		1/1: in doubt 1.1
		ask 1/1>1/0 run 1 txn 1.1
		commit 1/0>1/1 run 1 txn 1.1
		1/1: applied 1.1
		done 1/1>controller run 1 txn 1.1 applied true
		controller: closed 1.1`)
}

// The same, but nobody has heard: rank 0 asks, rank 1 promises, and the transaction is void.
// What the controller says comes too late.
func TestNobodyHeard(t *testing.T) {
	s := newScene()
	var late []Message
	s.hold = func(m Message) bool {
		hold := m.Kind == Commit && m.From.Job == 0
		if hold {
			late = append(late, m)
		}
		return hold
	}
	s.join()
	s.lines = nil
	s.hosts[0].Timeout(Timer{Kind: Lease, Txn: Txn{1, 1}}, &s.out)
	s.settle()
	for _, m := range late {
		s.hosts[m.To.Rank].Handle(m, "", &s.out)
	}
	s.out.Messages = nil
	s.settle()
	s.want(t, `
		1/0: in doubt 1.1
		query 1/0>1/1 run 1 txn 1.1
		1/1: fenced 1.1
		answer 1/1>1/0 run 1 txn 1.1 applied false
		1/0: released 1.1
		abort 1/0>1/1 run 1 txn 1.1
		done 1/0>controller run 1 txn 1.1 applied false
		1/1: released 1.1
		done 1/1>controller run 1 txn 1.1 applied false
		controller: closed 1.1`)
	if v, _ := s.hosts[0].State(); v != (Txn{}) {
		t.Errorf("rank 0 has %v", v)
	}
}

// Machines take any message.
func FuzzMachines(f *testing.F) {
	f.Add([]byte{1, 0, 0, 1, 1, 1, 0, 2, 0, 1, 1, 1, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		s := newScene()
		s.join()
		var out Output
		for len(script) >= 6 {
			b := script[:6]
			script = script[6:]
			m := Message{Kind: Kind(b[0] % 12), From: Node{uint32(b[1] % 3), uint32(b[1] / 3 % 4)}, To: Node{uint32(b[2] % 2), uint32(b[2] / 2 % 2)},
				Run: uint64(b[3] % 4), Txn: Txn{uint64(b[4] % 3), uint64(b[4] / 3 % 5)}, Index: uint64(b[5] % 3), Applied: b[5]&64 > 0, Body: "x"}
			timer := Timer{Kind: TimerKind(b[5] % 5), Txn: m.Txn, Job: m.To.Job}
			s.group.Handle(m, &out)
			s.group.Timeout(timer, &out)
			if b[5]&128 > 0 {
				s.group.Suspect(m.From, &out)
			}
			for _, h := range s.hosts {
				h.Handle(m, "", &out)
				h.Timeout(timer, &out)
				h.Next()
			}
			out.Reset()
		}
	})
}

// TestFewerHosts: a job that is gone is waited for while another one of fewer hosts has its number.
func TestFewerHosts(t *testing.T) {
	var out Output
	g := NewGroup(1, Times{Resend: 1, Attempts: 1, Interval: 1, Lease: 9}, func([]Ready) string { return "" })
	g.Set(map[uint32]int{1: 2}, &out)
	for rank := range uint32(2) {
		g.Handle(Message{Kind: Report, From: Node{1, rank}, Run: 1}, &out)
	}
	txn := g.Last()
	g.Set(map[uint32]int{1: 1}, &out)
	g.Timeout(Timer{Kind: Resend, Txn: txn}, &out)
	g.Handle(Message{Kind: Report, From: Node{1, 0}, Run: 2}, &out)
}
