package results

import "os"

// What tests look at from inside.
const (
	ComparisonCheck = comparisonCheck
	LeastReserve    = leastReserve
	ReserveFile     = reserveFile
)

var (
	FlatLists = flatLists
	IsRun     = isRun
	FTail     = fTail
)

// Encode is encode.
func (rec *Record) Encode() ([]byte, error) { return rec.encode() }

// Contradiction is contradiction.
func (rec *Record) Contradiction() error { return rec.contradiction() }

// Judge is judge.
func (r *Reproduction) Judge(lo, hi float64, bound string, all []Effect) { r.judge(lo, hi, bound, all) }

// Reserve is what Create and Save do for the record.
func (d *Dir) Reserve(n int64) error { return d.reserve(n) }

// Kill closes what a process that is killed would have open.
func (d *Dir) Kill() { d.file.Close() }

// WriteTo has samples written to another file.
func (d *Dir) WriteTo(f *os.File) { d.file = f }
