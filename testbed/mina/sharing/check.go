package sharing

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/mina/commit"
)

// Summary is what logs say.
type Summary struct {
	Operations, Asked, Used     int // on hosts
	Runs                        int // of hosts
	Interrupted                 int // of these: ended while locked, as they were killed
	Committed, Applied          int // transactions; by hosts
	Aborted                     map[string]int
	Out                         map[string]int // jobs taken out of their groups
	Fenced, InDoubt             int
	Sent                        int             // the most often that a phase's messages were sent
	Asks                        int             // the most queries or asks of one host in one transaction
	Waits                       []time.Duration // of Next for the lock, in ascending order; one for each operation
	Epochs                      int             // of the controller
	Locked, LongestLock, Median time.Duration   // hosts' locks: in all, the longest, the median
}

// Percentile of the waits: p is from 0 to 1.
func (s *Summary) Percentile(p float64) time.Duration {
	if len(s.Waits) == 0 {
		return 0
	}
	return s.Waits[min(int(p*float64(len(s.Waits))), len(s.Waits)-1)]
}

// ErrLog is an error of Check: what the logs say must not be.
var ErrLog = errors.New("logs of sharing groups")

// Check reads the logs of processes that took part, one a reader, and says whether what
// must hold has held:
//
//   - Hosts of a job never differ on an operation: on the state by which they decide, on
//     asking for INA, and on having had it.
//   - No host begins an operation while it is locked, or leaves one out.
//   - A host has no state but what it has taken over in this run, and takes over nothing
//     but what the controller has committed for its job, in order.
//   - No transaction is both committed and aborted.
//   - No two jobs hold the switches at once, and none without having asked. (All jobs of
//     the logs are taken for rivals.)
//
// A last line without an end is left out: its writer was killed.
func Check(logs ...io.Reader) (Summary, error) {
	c := checker{
		decisions: map[operation]Entry{}, uses: map[operation]bool{},
		committed: map[commit.Txn][]uint32{}, aborted: map[commit.Txn]bool{}, epochs: map[uint64]bool{},
		Summary: Summary{Aborted: map[string]int{}, Out: map[string]int{}},
	}
	for i, r := range logs {
		if err := c.read(r); err != nil {
			return Summary{}, fmt.Errorf("%w: log %d: %w", ErrLog, i, err)
		}
	}
	for _, a := range c.applied {
		if jobs, ok := c.committed[a.Txn]; !ok || !slices.Contains(jobs, a.Job) {
			c.wrong("host %d/%d of run %d took over %v, which was not committed for it", a.Job, a.Rank, a.Run, a.Txn)
		}
	}
	for t := range c.committed {
		if c.aborted[t] {
			c.wrong("%v was committed and aborted", t)
		}
	}
	for _, h := range c.held {
		if d, ok := c.decisions[operation{h.Job, h.Run, h.Index}]; !ok || !d.INA {
			c.wrong("job %d, run %d held the switches for operation %d without having asked", h.Job, h.Run, h.Index)
		}
	}
	slices.Sort(c.Waits)
	slices.Sort(c.locks)
	if n := len(c.locks); n > 0 {
		c.LongestLock, c.Median = c.locks[n-1], c.locks[n/2]
	}
	c.Epochs = len(c.epochs)
	return c.Summary, errors.Join(c.errs...)
}

type operation struct {
	job   uint32
	run   uint64
	index uint64
}

type checker struct {
	Summary
	decisions map[operation]Entry
	uses      map[operation]bool
	committed map[commit.Txn][]uint32
	aborted   map[commit.Txn]bool
	epochs    map[uint64]bool
	applied   []Entry
	held      []Entry
	locks     []time.Duration
	errs      []error
}

func (c *checker) wrong(format string, args ...any) {
	if len(c.errs) < 20 {
		c.errs = append(c.errs, fmt.Errorf("%w: "+format, append([]any{ErrLog}, args...)...))
	}
}

// memory is what a host has done in a run.
type memory struct {
	version, locked commit.Txn
	since           int64
	next            uint64
	asks            int
}

type hostRun struct {
	commit.Node
	run uint64
}

func (c *checker) read(r io.Reader) error {
	hosts := map[hostRun]*memory{}
	var holder *Entry
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := bounded.ReadLine(in, bounded.Line)
		if errors.Is(err, io.EOF) {
			c.Runs += len(hosts)
			for _, h := range hosts {
				if h.locked != (commit.Txn{}) {
					c.Interrupted++
				}
			}
			return nil
		} else if err != nil {
			return err
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		switch e.What {
		case Held:
			if holder != nil {
				c.wrong("job %d holds the switches beside job %d", e.Job, holder.Job)
			}
			holder = &e
			c.held = append(c.held, e)
		case Freed:
			if holder != nil && holder.Job == e.Job {
				holder = nil
			}
		case commit.Committed.String():
			c.committed[e.Txn] = e.Jobs
			c.epochs[e.Txn.Epoch] = true
			c.Committed++
			c.Sent = max(c.Sent, e.Sent)
		case commit.Aborted.String():
			c.aborted[e.Txn] = true
			c.Aborted[e.Why]++
			c.Sent = max(c.Sent, e.Sent)
		case commit.Closed.String():
			c.Sent = max(c.Sent, e.Sent)
		case commit.Out.String():
			c.Out[e.Why]++
		case Operation, Ended, commit.Locked.String(), commit.Applied.String(), commit.Released.String(), commit.Fenced.String(), commit.InDoubt.String():
			k := hostRun{commit.Node{Job: e.Job, Rank: e.Rank}, e.Run}
			if hosts[k] == nil {
				hosts[k] = &memory{}
			}
			c.host(hosts[k], &e)
		}
	}
}

// host is an entry of a host.
func (c *checker) host(h *memory, e *Entry) {
	who := fmt.Sprintf("host %d/%d of run %d", e.Job, e.Rank, e.Run)
	op := operation{e.Job, e.Run, e.Index}
	switch e.What {
	case Operation:
		c.Operations++
		c.Waits = append(c.Waits, time.Duration(e.Wait))
		if e.INA {
			c.Asked++
		}
		if h.locked != (commit.Txn{}) {
			c.wrong("%s began operation %d while it was locked for %v", who, e.Index, h.locked)
		}
		if e.Txn != h.version {
			c.wrong("%s decided on operation %d by %v and has %v", who, e.Index, e.Txn, h.version)
		}
		if e.Index != h.next {
			c.wrong("%s began operation %d, want %d", who, e.Index, h.next)
		}
		h.next = e.Index + 1
		if d, ok := c.decisions[op]; !ok {
			c.decisions[op] = *e
		} else if d.Txn != e.Txn || d.INA != e.INA {
			c.wrong("%s decided on operation %d by %v: %v; rank %d by %v: %v", who, e.Index, e.Txn, e.INA, d.Rank, d.Txn, d.INA)
		}
	case Ended:
		if e.INA {
			c.Used++
		}
		if used, ok := c.uses[op]; ok && used != e.INA {
			c.wrong("%s ended operation %d with INA: %v, and another rank: %v", who, e.Index, e.INA, used)
		}
		c.uses[op] = e.INA
	case commit.Locked.String():
		if h.locked != (commit.Txn{}) {
			c.wrong("%s was locked for %v and %v", who, h.locked, e.Txn)
		}
		h.locked, h.since, h.asks = e.Txn, e.Time, 0
	case commit.Applied.String(), commit.Released.String():
		if h.locked != e.Txn {
			c.wrong("%s, which was locked for %v, %s %v", who, h.locked, e.What, e.Txn)
		}
		lock := time.Duration(e.Time - h.since)
		c.locks = append(c.locks, lock)
		c.Locked += lock
		h.locked = commit.Txn{}
		if e.What == commit.Released.String() {
			return
		}
		if e.Txn.Compare(h.version) <= 0 {
			c.wrong("%s took over %v after %v", who, e.Txn, h.version)
		}
		h.version = e.Txn
		c.Applied++
		c.applied = append(c.applied, *e)
	case commit.Fenced.String():
		c.Fenced++
	case commit.InDoubt.String():
		c.InDoubt++
		h.asks++
		c.Asks = max(c.Asks, h.asks)
	}
}
