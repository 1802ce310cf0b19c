package sharp

import (
	"bufio"
	"io"
)

// ReadJobLog reads a whole log.
func ReadJobLog(r io.Reader) (*JobLog, error) {
	var l JobLog
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		l.Line(in.Text())
	}
	return &l, in.Err()
}
