package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
)

// baselines is the directory of baselines, beside the run directories: a file for each
// experiment and setting, Baseline as JSON. It is no index, and is never built anew.
const baselines = "baselines"

// ErrUnfit is wrapped when a run cannot be a baseline: it has not come to its end, did not pass, or
// was sabotaged.
var ErrUnfit = errors.New("unfit as a baseline")

// Baseline is a run that others of its experiment and setting are held against, and that Prune
// leaves alone.
type Baseline struct {
	Experiment string    `json:"experiment"`
	Setting    string    `json:"setting"` // its key
	Run        string    `json:"run"`     // its directory
	Set        time.Time `json:"set"`
	Reason     string    `json:"reason,omitempty"`
}

func (b Baseline) file() string { return url.PathEscape(b.Experiment) + "@" + b.Setting + ".json" }

// SetBaseline makes a run, of which dir is the directory's name, the baseline of its experiment and
// setting, in the place of the one before. Unless forced it must have passed, and a sabotaged one it
// never is; the error wraps ErrUnfit.
func (x *Index) SetBaseline(ctx context.Context, dir, reason string, force bool) (b Baseline, err error) {
	err = write(ctx, x.db.Load(), func(conn *sql.Conn) error { // so that no Prune takes it away meanwhile
		if _, err := x.refresh(ctx, conn, []string{dir}); err != nil {
			return err
		}
		var complete bool
		var outcome results.Outcome
		err := conn.QueryRowContext(ctx, "SELECT experiment, setting, finished <> 0, outcome FROM run WHERE dir = ?", dir).Scan(&b.Experiment, &b.Setting, &complete, &outcome)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("%w: %s in %s", results.ErrNotFound, dir, x.root)
		case err != nil:
			return err
		case b.Setting == "":
			return fmt.Errorf("%w: the record of %s cannot be read", ErrUnfit, dir)
		case !complete:
			return fmt.Errorf("%w: %s has not come to its end", ErrUnfit, dir)
		case outcome != results.Pass && !force:
			return fmt.Errorf("%w: the outcome of %s is %s", ErrUnfit, dir, outcome)
		}
		rec, err := results.ReadRecord(filepath.Join(x.root, dir))
		if err != nil {
			return err
		}
		if rec.Sabotage != nil {
			return fmt.Errorf("%w: %s was sabotaged: %s at %s", ErrUnfit, dir, rec.Sabotage.Fault, rec.Sabotage.Part)
		}
		b.Run, b.Set, b.Reason = dir, time.Now().UTC(), reason
		data, err := json.MarshalIndent(b, "", "  ")
		if err != nil {
			return err
		}
		path := filepath.Join(x.root, baselines)
		if err := os.MkdirAll(path, 0o775); err != nil {
			return err
		}
		return (&results.Dir{Path: path}).WriteFile(b.file(), append(data, '\n'))
	})
	if err != nil {
		return Baseline{}, x.failed("set a baseline with", err)
	}
	return b, nil
}

// Unset removes the baseline of runs in root; its run stays.
func (b Baseline) Unset(root string) error {
	if err := os.Remove(filepath.Join(root, baselines, b.file())); err != nil {
		return fmt.Errorf("unset baseline: %w", err)
	}
	return nil
}

// ReadBaselines returns all that are set of runs in root, by experiment. It needs no index. Their
// runs may be gone.
func ReadBaselines(root string) ([]Baseline, error) {
	path := filepath.Join(root, baselines)
	entries, err := os.ReadDir(path) // sorted
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read baselines: %w", err)
	}
	var out []Baseline
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") { // it is being written
			continue
		}
		data, err := bounded.ReadFile(filepath.Join(path, e.Name()), bounded.Config)
		if errors.Is(err, fs.ErrNotExist) {
			continue // unset meanwhile
		}
		var b Baseline
		if err == nil {
			b, err = parseBaseline(data)
		}
		if err != nil { // better than to take it for no baseline
			return nil, fmt.Errorf("read baseline %s: %w", filepath.Join(path, e.Name()), err)
		}
		out = append(out, b)
	}
	return out, nil
}

// parseBaseline reads a baseline's file. It names a run beside it, and nothing elsewhere.
func parseBaseline(data []byte) (b Baseline, err error) {
	if err := json.Unmarshal(data, &b); err != nil {
		return Baseline{}, err
	}
	for what, name := range map[string]string{"run's directory": b.Run, "setting's key": b.Setting} {
		if name == "" || strings.HasPrefix(name, ".") || strings.ContainsRune(name, '/') || !results.PlainName(name) {
			return Baseline{}, fmt.Errorf("%q is no %s", name, what)
		}
	}
	return b, nil
}
