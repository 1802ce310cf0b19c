package results

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Machine is a machine while a point ran: what each of its GPUs did.
type Machine struct {
	Name string `json:"name"`
	Rack string `json:"rack,omitempty"` // empty: of none, or of the only one
	GPUs []Cell `json:"gpus"`
}

// Use is what a GPU does.
type Use uint8

const (
	Free       Use = iota // nothing
	Worker                // it is a worker of a job that is looked at
	Spare                 // a job keeps it from others and has no worker on it
	Background            // another job has it, that was there before
)

// Cell is one GPU of a machine. Its text, which is what JSON has, is "" if it is free;
// "A/0" for rank 0 of job A; "A/spare"; and "background" or, where it matters whose it
// is, "B/background".
type Cell struct {
	Use  Use
	Job  string // of workers and spare GPUs always
	Rank int    // of a worker, from 0
}

const (
	spareText      = "spare"
	backgroundText = "background"
)

// MarshalText implements encoding.TextMarshaler. An error is about a cell that makes no
// sense.
func (c Cell) MarshalText() ([]byte, error) {
	switch {
	case c == Cell{}:
		return nil, nil
	case c == Cell{Use: Background}:
		return []byte(backgroundText), nil
	case c.Job == "" || c.Rank < 0 || c.Rank > 0 && c.Use != Worker:
	case c.Use == Worker:
		return strconv.AppendInt([]byte(c.Job+"/"), int64(c.Rank), 10), nil
	case c.Use == Spare:
		return []byte(c.Job + "/" + spareText), nil
	case c.Use == Background:
		return []byte(c.Job + "/" + backgroundText), nil
	}
	return nil, fmt.Errorf("a GPU cannot be %d of job %q, rank %d", c.Use, c.Job, c.Rank)
}

// UnmarshalText implements encoding.TextUnmarshaler: it reads what MarshalText writes.
// With an error, the cell is free.
func (c *Cell) UnmarshalText(text []byte) error {
	*c = Cell{}
	switch string(text) {
	case "":
		return nil
	case backgroundText:
		c.Use = Background
		return nil
	}
	slash := strings.LastIndexByte(string(text), '/')
	if slash < 1 {
		return fmt.Errorf("GPU %q: want JOB/RANK, JOB/%s, JOB/%[3]s or %[3]s", text, spareText, backgroundText)
	}
	job, what := string(text[:slash]), string(text[slash+1:])
	switch what {
	case spareText:
		*c = Cell{Use: Spare, Job: job}
	case backgroundText:
		*c = Cell{Use: Background, Job: job}
	default:
		rank, err := strconv.ParseUint(what, 10, 31)
		if err != nil || strconv.FormatUint(rank, 10) != what {
			return fmt.Errorf("GPU %q: %q is no rank", text, what)
		}
		*c = Cell{Use: Worker, Job: job, Rank: int(rank)}
	}
	return nil
}

// Used reports whether somebody has a GPU of the machine.
func (m Machine) Used() bool {
	return slices.ContainsFunc(m.GPUs, func(c Cell) bool { return c.Use != Free })
}
