package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/inabench/inabench/results/resultstest"
)

// foreign makes this test binary a process of another user, who does with the runs of a directory what people do.
const foreign = "INABENCH_HISTORY_TEST_FOREIGN"

// useForeign reads and prunes runs beside the index of another user.
func useForeign(ctx context.Context, root string) error {
	if _, err := Open(ctx, root); !errors.Is(err, ErrFileSystem) || !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("open: %w, want one of another user", err)
	}
	x, err := OpenOrRead(ctx, root)
	if err != nil {
		return err
	}
	defer x.Close()
	if !errors.Is(x.Unkept(), fs.ErrPermission) {
		return fmt.Errorf("unkept: %w, want that it may not be written", x.Unkept())
	}
	if found, err := x.Series(ctx, Query{Metric: "goodput"}); err != nil || len(found) != 1 || len(found[0].Nights) != 3 {
		return fmt.Errorf("%+v, %w", found, err)
	}
	if removed, err := x.Prune(ctx, 1, false); err != nil || len(removed) != 2 {
		return fmt.Errorf("removed %+v, %w", removed, err)
	}
	return nil
}

// TestForeignIndex: an index that belongs to another user keeps nobody from the runs.
func TestForeignIndex(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	for _, mode := range []fs.FileMode{0o644, 0o600} {
		for _, stale := range []bool{false, true} {
			root := t.TempDir()
			resultstest.Save(t, root, record(0, 100))
			resultstest.Save(t, root, record(1, 101))
			x := openIndex(t, root)
			if !stale {
				resultstest.Save(t, root, record(2, 102))
			}
			if _, err := x.Update(t.Context()); err != nil {
				t.Fatal(err)
			}
			if stale {
				resultstest.Save(t, root, record(2, 102))
			}
			asAnother(t, root, mode)
		}
	}
}

// asAnother has another user, to whom the runs belong, use them beside an index of a mode.
func asAnother(t *testing.T, root string, mode fs.FileMode) {
	t.Helper()
	const nobody = 65534
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, nobody, nobody))
	})
	index := filepath.Join(root, File)
	if err := errors.Join(err, os.Lchown(index, 0, 0), os.Chmod(index, mode), os.Chmod(filepath.Dir(root), 0o755)); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(root); dir != "/"; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err != nil || st.Mode()&1 == 0 {
			t.Skipf("no other user gets into %s", dir)
		}
	}
	cmd := exec.Command("/proc/self/exe") // its directory is root's alone
	cmd.Env = append(os.Environ(), foreign+"="+root)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("index %v: %v: %s", mode, err, said)
	}
}

// TestOpenOrRead: where no index can be kept, what there is can be asked all the same.
func TestOpenOrRead(t *testing.T) {
	root := t.TempDir()
	resultstest.Save(t, root, record(0, 100))
	for _, kept := range []bool{true, false} {
		if !kept {
			index := filepath.Join(root, File)
			if err := errors.Join(os.Remove(index), os.Mkdir(index, 0o777)); err != nil {
				t.Fatal(err)
			}
		}
		x, err := OpenOrRead(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		if runs, err := x.Runs(t.Context()); err != nil || len(runs) != 1 {
			t.Errorf("kept %v: %+v, %v", kept, runs, err)
		}
		if why := x.Unkept(); kept && why != nil || !kept && !errors.Is(why, ErrFileSystem) {
			t.Errorf("kept %v: %v", kept, why)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := OpenOrRead(t.Context(), filepath.Join(root, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such directory: %v", err)
	}
}

// TestForeignDamage: a damaged index that cannot be put aside is one that cannot be kept.
func TestForeignDamage(t *testing.T) {
	root := t.TempDir()
	resultstest.Save(t, root, record(0, 100))
	err := os.WriteFile(filepath.Join(root, File), []byte("this is no database"), 0o666)
	if err := errors.Join(err, os.Mkdir(filepath.Join(root, File+damaged), 0o777)); err != nil { // no file can take its place
		t.Fatal(err)
	}
	if x, err := OpenOrRead(t.Context(), root); err != nil || !errors.Is(x.Unkept(), ErrFileSystem) {
		t.Errorf("open: %v", err)
	}
}
