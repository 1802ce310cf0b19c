package history

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/inabench/inabench/results/resultstest"
)

// endless never ends, whenever it is run.
const endless = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n`

// inject runs statements on the index of a directory, as anybody does who may write it.
func inject(t *testing.T, root string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(root, File))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestPlantedSchema: an index with anything in it but its own tables is a damaged one, whatever version it says that it is of.
func TestPlantedSchema(t *testing.T) {
	for what, statements := range map[string][]string{
		"a trigger":           {"CREATE TRIGGER t BEFORE INSERT ON run BEGIN " + endless + "; END"},
		"a trigger on nights": {"CREATE TRIGGER t BEFORE DELETE ON night BEGIN " + endless + "; END"},
		"a view for a table":  {"DROP TABLE run", "CREATE VIEW run AS " + endless},
		"another column":      {"ALTER TABLE run ADD COLUMN more AS (1)"},
		"another table":       {"CREATE TABLE more (x)"},
		"of a later version":  {"PRAGMA user_version = 99", "CREATE TABLE more (x)", "CREATE TRIGGER t AFTER INSERT ON more BEGIN " + endless + "; END"},
		"no table":            {"DROP TABLE series"},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			root := t.TempDir()
			resultstest.Save(t, root, record(0, 100))
			x := openIndex(t, root)
			update(t, x, 1)
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			inject(t, root, statements...)
			resultstest.Save(t, root, record(1, 101))
			x, err := OpenOrRead(ctx, root)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			if found, err := x.Series(ctx, Query{Metric: "goodput"}); err != nil || x.Unkept() != nil || len(found) != 1 || len(found[0].Nights) != 2 {
				t.Errorf("%+v, %v, %v", found, err, x.Unkept())
			}
			if _, err := os.Stat(filepath.Join(root, File+damaged)); err != nil {
				t.Errorf("it was not put aside: %v", err)
			}
		})
	}
}

// TestSlowIndex: what SQLite does not come to an end with is given up, as where another process keeps the index busy.
func TestSlowIndex(t *testing.T) {
	root := t.TempDir()
	resultstest.Save(t, root, record(0, 100))
	x := openIndex(t, root)
	x.slowest = 200 * time.Millisecond
	inject(t, root, "CREATE TRIGGER t BEFORE INSERT ON run BEGIN "+endless+"; END")
	if _, err := x.Update(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("update: %v", err)
	}
	inject(t, root, "DROP TABLE run", "CREATE VIEW run AS "+endless)
	if _, err := x.Runs(t.Context()); err == nil {
		t.Error("runs: no error")
	}
}

// TestAnothersIndex: not even root uses an index that belongs to another user, or that everybody may write.
func TestAnothersIndex(t *testing.T) {
	for what, spoil := range map[string]func(path string) error{
		"belongs to another": func(path string) error { return os.Lchown(path, 65534, -1) },
		"has a journal of another's": func(path string) error {
			return errors.Join(os.WriteFile(path+"-journal", nil, 0o600), os.Lchown(path+"-journal", 65534, -1))
		},
		"everybody may write": func(path string) error { return os.Chmod(path, 0o666) },
	} {
		t.Run(what, func(t *testing.T) {
			root := t.TempDir()
			resultstest.Save(t, root, record(0, 100))
			update(t, openIndex(t, root), 1)
			if err := spoil(filepath.Join(root, File)); errors.Is(err, fs.ErrPermission) {
				t.Skip("only root can give files away")
			} else if err != nil {
				t.Fatal(err)
			}
			if _, err := Open(t.Context(), root); !errors.Is(err, ErrFileSystem) || !errors.Is(err, fs.ErrPermission) {
				t.Errorf("open: %v", err)
			}
			x, err := OpenOrRead(t.Context(), root)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			if runs, err := x.Runs(t.Context()); err != nil || len(runs) != 1 || x.Unkept() == nil {
				t.Errorf("%+v, %v, %v", runs, err, x.Unkept())
			}
		})
	}
}

// TestPlainWhileJournalsGo: a journal that another process ends between two looks at it is none that cannot be written.
func TestPlainWhileJournalsGo(t *testing.T) {
	root := t.TempDir()
	stop, ended := make(chan struct{}), make(chan error)
	go func() {
		journal := filepath.Join(root, File+"-journal")
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := cmp.Or(os.WriteFile(journal, nil, 0o600), os.Remove(journal)); err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 20000 {
		if err := plain(root); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
