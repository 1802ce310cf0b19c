package control

import (
	"context"
	"fmt"

	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// Static is the link of a node of a job that has servers of its own, as with ps-lite: each
// tensor is given to one in the beginning and stays there. There is no pMaster; every node knows
// the same. A server that is lost ends the job.
type Static struct {
	end     *End
	master  *End
	job     uint32
	servers []Peer
	rank    int32
}

// staticTerm is that of all tensors.
var staticTerm = migrate.Term{Epoch: 1, Seq: 1}

// StaticServer is the link of a server of some jobs.
func StaticServer(jobs ...Job) *Static {
	s := &Static{}
	s.end, s.master = Pipe()
	for _, j := range jobs {
		s.master.Send(Admit{j})
	}
	return s
}

// StaticWorker is the link of a worker. Servers take turns in having tensors (round-robin).
func StaticWorker(job Job, rank int32, servers []Peer) *Static {
	s := &Static{job: job.ID, rank: rank, servers: servers}
	s.end, s.master = Pipe()
	s.master.Send(Peers{servers})
	for t := range job.Tensors {
		s.tell(Key{job.ID, uint32(t)}, migrate.Message[None]{Kind: migrate.Fence})
	}
	return s
}

func (s *Static) tell(k Key, m migrate.Message[None]) {
	m.Term = staticTerm
	if m.To == (migrate.Node{}) {
		m.To = migrate.Node{Role: migrate.Worker, ID: s.rank}
	}
	s.master.Send(Migrate{k, m})
}

// Tell says something more to the node: a cycle, for example.
func (s *Static) Tell(m Message) { s.master.Send(m) }

// Receive implements Link.
func (s *Static) Receive(ctx context.Context) (Message, error) { return s.end.Receive(ctx) }

// Send implements Link: it answers as pMaster would.
func (s *Static) Send(m Message) {
	switch m := m.(type) {
	case Migrate:
		switch m.Message.Kind {
		case migrate.Fenced:
			s.tell(m.Key, migrate.Message[None]{Kind: migrate.Assign, At: s.servers[int(m.Key.Tensor)%len(s.servers)].ID})
		case migrate.CopyDone, migrate.WorkerDone:
			s.tell(m.Key, migrate.Message[None]{Kind: migrate.Release, To: m.Message.From})
		case migrate.Stuck:
			s.master.Send(Dismiss{s.job, fmt.Sprintf("server %d does not answer", m.Message.At)})
		}
	case Failed:
		s.master.Send(Dismiss(m))
	case Finished:
		s.master.Send(Dismiss{Job: m.Job})
	}
}

// Close ends the link.
func (s *Static) Close() { s.end.Close() }
