package pmaster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
)

// ErrEpoch is wrapped by errors about the file that has the epoch.
var ErrEpoch = errors.New("epoch of pMaster is not known")

// epochFile has a line for each pMaster, the last one counts. It is locked while one lives.
type epochFile struct {
	f     *os.File
	epoch uint64
	clean bool // the one before has ended properly, or there was none
}

type epochLine struct {
	Epoch uint64 `json:"epoch"`
	Clean bool   `json:"clean,omitempty"` // it has ended properly
}

// openEpoch begins the next epoch.
func openEpoch(path string) (*epochFile, error) {
	f, err := bounded.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEpoch, err)
	}
	e := &epochFile{f: f}
	if err := e.begin(); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s: %w", ErrEpoch, path, err)
	}
	return e, nil
}

func (e *epochFile) begin() error {
	if err := unix.Flock(int(e.f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another pMaster has it: %w", err)
	}
	text, err := bounded.ReadAll(e.f, bounded.Config)
	if err != nil {
		return err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1] // what follows was being written when it crashed
	last := epochLine{Clean: true}
	for line := range bytes.Lines(whole) {
		l := epochLine{}
		if err := json.Unmarshal(line, &l); err != nil || l.Epoch < last.Epoch {
			return fmt.Errorf("line %q after epoch %d", bytes.TrimSpace(line), last.Epoch)
		}
		last = l
	}
	e.epoch, e.clean = last.Epoch+1, last.Clean
	if e.epoch > maxEpoch {
		return fmt.Errorf("epoch %d is the last one that there are ids for", maxEpoch)
	}
	// One line is enough to go on from; more of them are the service's history, within a limit.
	keep := int64(len(whole))
	if keep > 1<<16 {
		keep = 0
	}
	if err := e.f.Truncate(keep); err != nil {
		return err
	}
	if _, err := e.f.Seek(keep, io.SeekStart); err != nil {
		return err
	}
	return e.write(epochLine{Epoch: e.epoch})
}

func (e *epochFile) write(l epochLine) error {
	text, err := json.Marshal(l)
	if err == nil {
		_, err = e.f.Write(append(text, '\n'))
	}
	if err == nil {
		err = e.f.Sync()
	}
	return err
}

// end says that there is nothing to take over.
func (e *epochFile) end() error {
	return errors.Join(e.write(epochLine{Epoch: e.epoch, Clean: true}), e.f.Close())
}
