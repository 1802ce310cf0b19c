package sharp

import (
	"fmt"
	"strings"
	"time"
)

// AMLine is a line of the log of sharp_am:
//
//	[May 22 02:20:08 752213][GENERAL][336070][info ] - Begin Job: job_id_external: ...
type AMLine struct {
	Time      time.Time // to the microsecond; the line has no year and no zone: year 0, UTC
	Component string    // such as "GENERAL" and "JOBS"
	Process   int
	Level     string // such as "info"
	Message   string

	// What the message says, if it is one of these; else all are nil.
	Begin     *AMBegin
	Allocated *AMAllocated
	End       *AMEnd
}

// AMBegin is a job that asks for resources.
type AMBegin struct {
	External     uint64  // the job's own id
	Job          uint64  // the manager's
	QuotaPercent float64 // of each switch's OSTs, that it may have
	SAT          bool    // it wants a streaming tree too
}

// AMAllocated is what a job got of one tree, at one child of one of its nodes.
type AMAllocated struct {
	Of                          string // what the message says before: the node
	QPs, UserData, OSTs, Groups int
	Child                       int // index of the port among the children
	Tree                        uint64
}

// AMEnd is a job whose resources are free again. What sharp_am itself writes then is not
// documented; this is what the emulated manager writes.
type AMEnd struct {
	Job    uint64
	Reason string // "finished", or why the manager ended it
}

const amStamp = "Jan _2 15:04:05"

// String is the line as sharp_am writes it. The message is that of Begin, Allocated or End
// if one is set.
func (l AMLine) String() string {
	switch {
	case l.Begin != nil:
		sat := 0
		if l.Begin.SAT {
			sat = 1
		}
		l.Message = fmt.Sprintf("Begin Job: job_id_external: %d job_id_sharp: %d quota_percent: %.2f request_sat: %d", l.Begin.External, l.Begin.Job, l.Begin.QuotaPercent, sat)
	case l.Allocated != nil:
		a := l.Allocated
		l.Message = strings.TrimLeft(a.Of+" ", " ") + fmt.Sprintf("Allocated quota { q:%d, ud:%d o:%d g:%d } child_index_per_port: %d tree_id: %d", a.QPs, a.UserData, a.OSTs, a.Groups, a.Child, a.Tree)
	case l.End != nil:
		l.Message = fmt.Sprintf("End Job: job_id_sharp: %d reason: %s", l.End.Job, l.End.Reason)
	}
	return fmt.Sprintf("[%s %06d][%-7s][%d][%-5s] - %s", l.Time.Format(amStamp), l.Time.Nanosecond()/1000, l.Component, l.Process, l.Level, strings.ReplaceAll(l.Message, "\n", "; "))
}
