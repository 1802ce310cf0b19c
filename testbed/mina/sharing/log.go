package sharing

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/inabench/inabench/testbed/mina/commit"
)

// Entry is a line of a log: JSON. What it says is written down before it takes effect, so
// that the log of a process that was killed lacks nothing that others may have seen.
type Entry struct {
	Time int64  `json:"t"` // ns since 1970
	What string `json:"e"` // Operation, Ended, Held, Freed, or a commit.EventKind
	Job  uint32 `json:"job,omitempty"`
	Rank uint32 `json:"rank,omitempty"`
	Run  uint64 `json:"run,omitempty"`

	Txn   commit.Txn `json:"txn,omitzero"` // Operation: by whose state
	Index uint64     `json:"index,omitempty"`
	INA   bool       `json:"ina,omitempty"`
	Wait  int64      `json:"wait,omitempty"` // Operation: ns that Next waited because the host was locked
	Why   string     `json:"why,omitempty"`
	Sent  int        `json:"sent,omitempty"`
	Jobs  []uint32   `json:"jobs,omitempty"`
}

// What hosts and switches write down, besides the events of package commit.
const (
	Operation = "operation" // a host begins operation Index, and asks for INA or not
	Ended     = "ended"     // a host has ended it, with INA or not
	Held      = "held"      // the switches have granted a job its tree
	Freed     = "freed"     // they have it back
)

// Log writes entries, one a line. It may be nil.
type Log struct {
	mu sync.Mutex
	w  io.Writer
}

// NewLog is a log on a writer, which gets each line by one call.
func NewLog(w io.Writer) *Log { return &Log{w: w} }

// Write writes an entry, and says when. A log that cannot be written is no reason to stop
// training.
func (l *Log) Write(e Entry) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Time = time.Now().UnixNano()
	if line, err := json.Marshal(e); err == nil {
		_, _ = l.w.Write(append(line, '\n'))
	}
}

func (l *Log) events(events []commit.Event) {
	if l == nil {
		return
	}
	for _, e := range events {
		l.Write(Entry{
			What: e.Kind.String(), Job: e.Node.Job, Rank: e.Node.Rank, Run: e.Run, Txn: e.Txn,
			Index: e.Index, Why: e.Why.String(), Sent: e.Sent, Jobs: e.Jobs,
		})
	}
}
