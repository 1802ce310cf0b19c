package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/inabench/inabench/internal/bounded"
)

// NowFile is the progress report of a running run. A run that has ended has none, unless it was killed.
const NowFile = "now.json"

// mostNow bounds the file, in bytes.
const mostNow = 1 << 20

// Now is the progress report of a running run, for other processes to read. It is written about once a second.
type Now struct {
	Written time.Time          `json:"written"`
	Stage   string             `json:"stage"`           // as of experiments.Status
	Point   string             `json:"point,omitempty"` // labels of the point that is measured
	Done    int                `json:"done"`            // points, repeats included
	Of      int                `json:"of"`
	Until   time.Time          `json:"until,omitzero"` // when all of it should have been done; zero: nobody knows
	Next    string             `json:"next,omitempty"` // what happens next in the point: "B begins"
	NextAt  time.Time          `json:"next_at,omitzero"`
	Jobs    []JobNow           `json:"jobs,omitempty"`  // that run now, or ran before in the point
	Links   map[string]float64 `json:"links,omitempty"` // bit/s that are predicted of what goes on
}

// JobNow is how fast a job is, and was.
type JobNow struct {
	Job       string    `json:"job"`
	Goodput   float64   `json:"goodput"`             // bit/s, over the last second or so; 0 where it does not run
	Predicted float64   `json:"predicted,omitempty"` // bit/s; 0: not known
	Past      []RateNow `json:"past,omitempty"`      // since the point began, the oldest first
}

// RateNow is a job's rate at a time.
type RateNow struct {
	T         float64 `json:"t"`       // seconds since the point began
	Goodput   float64 `json:"goodput"` // bit/s
	Predicted float64 `json:"predicted,omitempty"`
}

// WriteNow writes a progress report into the run's directory. Other processes see the old report or the new one, whole.
// It does not sync: after a crash of the machine both may be lost.
func (d *Dir) WriteNow(n Now) error {
	n.Jobs = slices.Clone(n.Jobs)
	n.bound()
	data, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("write %s: %w", NowFile, err)
	}
	return replace(filepath.Join(d.Path, NowFile), data, false)
}

// EndNow removes what WriteNow has written.
func (d *Dir) EndNow() error {
	if err := os.Remove(filepath.Join(d.Path, NowFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ReadNow reads how far the run in a directory is. The error wraps fs.ErrNotExist where nothing was said.
func ReadNow(dir string) (Now, error) {
	var n Now
	data, err := bounded.ReadFile(filepath.Join(dir, NowFile), mostNow)
	if err != nil {
		return n, err
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return Now{}, fmt.Errorf("read %s: %w", NowFile, err)
	}
	n.bound()
	return n, nil
}

// Bounds of what is said of a run.
const (
	mostJobsNow  = 100
	mostLinksNow = 2000
	MostRates    = 256 // of a job's past
	mostNameNow  = 200 // letters
)

// bound cuts names, jobs and pasts to their bounds, and drops Links if there are too many.
func (n *Now) bound() {
	short := func(s *string) {
		if r := []rune(*s); len(r) > mostNameNow {
			*s = string(r[:mostNameNow])
		}
	}
	short(&n.Stage)
	short(&n.Point)
	short(&n.Next)
	n.Jobs = n.Jobs[:min(len(n.Jobs), mostJobsNow)]
	for i := range n.Jobs {
		j := &n.Jobs[i]
		short(&j.Job)
		j.Past = j.Past[max(0, len(j.Past)-MostRates):]
		if i >= drawnJobs {
			j.Past = nil
		}
	}
	if len(n.Links) > mostLinksNow {
		n.Links = nil
	}
}

// drawnJobs is how many jobs keep a past: the palette has no more colours.
const drawnJobs = 9
