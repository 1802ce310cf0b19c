package sharp

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
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

var (
	amLineForm = regexp.MustCompile(`^\[(\w{3} [ \d]\d \d\d:\d\d:\d\d) (\d{6})\]\[(\w+) *\]\[(\d+)\]\[(\w+) *\] - (.*)$`)
	amBegin    = regexp.MustCompile(`^Begin Job:.*?job_id_external: (\d+)\b.*?job_id_sharp: (\d+)\b.*?quota_percent: ([\d.]+)(?:.*?request_sat: ([01])\b)?`)
	amQuota    = regexp.MustCompile(`^(.*?) ?Allocated quota \{ q:(\d+), ud:(\d+) o:(\d+) g:(\d+) \}(?: child_index_per_port: (\d+))?.*?tree_id: (\d+)`)
	amEnd      = regexp.MustCompile(`^End Job: job_id_sharp: (\d+) reason: (.*)$`)
)

// ParseAMLine reads one line. ok is false, and the line zero, if it is not one of sharp_am,
// or of one that its numbers do not fit.
func ParseAMLine(text string) (line AMLine, ok bool) {
	m := amLineForm.FindStringSubmatch(strings.TrimRight(text, "\r\n"))
	if m == nil {
		return AMLine{}, false
	}
	at, err := time.Parse(amStamp, m[1])
	if err != nil {
		return AMLine{}, false
	}
	ok = true
	line = AMLine{
		Time:      at.Add(time.Duration(parseInt(m[2], &ok)) * time.Microsecond),
		Component: m[3], Process: parseInt(m[4], &ok), Level: m[5], Message: m[6],
	}
	if b := amBegin.FindStringSubmatch(line.Message); b != nil {
		percent, err := strconv.ParseFloat(b[3], 64)
		line.Begin = &AMBegin{External: parseNumber(b[1], &ok), Job: parseNumber(b[2], &ok), QuotaPercent: percent, SAT: b[4] == "1"}
		ok = ok && err == nil
	} else if a := amQuota.FindStringSubmatch(line.Message); a != nil {
		line.Allocated = &AMAllocated{Of: a[1], QPs: parseInt(a[2], &ok), UserData: parseInt(a[3], &ok), OSTs: parseInt(a[4], &ok), Groups: parseInt(a[5], &ok), Tree: parseNumber(a[7], &ok)}
		if a[6] != "" {
			line.Allocated.Child = parseInt(a[6], &ok)
		}
	} else if e := amEnd.FindStringSubmatch(line.Message); e != nil {
		line.End = &AMEnd{Job: parseNumber(e[1], &ok), Reason: e[2]}
	}
	if !ok {
		return AMLine{}, false
	}
	return line, true
}

// ReadAMLog reads a whole log and passes over lines that are not of sharp_am.
func ReadAMLog(r io.Reader) (lines []AMLine, err error) {
	err = readLines(r, func(text string, rest bool) {
		if rest {
			return
		}
		if l, ok := ParseAMLine(text); ok {
			lines = append(lines, l)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read log of sharp_am: %w", err)
	}
	return lines, nil
}

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
