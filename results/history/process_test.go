package history

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// role makes this test binary one of several processes that write the runs of a directory.
const role = "INABENCH_HISTORY_TEST"

func TestMain(m *testing.M) {
	if root := os.Getenv(foreign); root != "" {
		if err := useForeign(context.Background(), root); err != nil {
			fmt.Fprintln(os.Stderr, err)
			syscall.Exit(1)
		}
		syscall.Exit(0)
	}
	if root := os.Getenv(role); root != "" {
		if err := writeRuns(root); err != nil {
			fmt.Fprintln(os.Stderr, err)
			syscall.Exit(1)
		}
		syscall.Exit(0) // the race detector sleeps in os.Exit
	}
	os.Exit(m.Run())
}

// writeRuns writes runs and indexes each: as many as it is told, or until it is killed. It says
// of each run that it is saved.
func writeRuns(root string) error {
	ctx := context.Background()
	count, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	x, err := Open(ctx, root)
	if err != nil {
		return err
	}
	defer x.Close()
	for n := range count {
		rec := record(n, rand.Float64(), rand.Float64())
		d, err := results.Create(root, rec)
		if err != nil {
			return err
		}
		if _, err := x.Update(ctx); err != nil { // it is seen while it goes on
			return err
		}
		if err := errors.Join(d.Close(), d.Save(rec)); err != nil {
			return err
		}
		fmt.Println(filepath.Base(d.Path))
		if _, err := x.Update(ctx); err != nil {
			return err
		}
		switch rand.IntN(10) {
		case 0:
			_, err = x.Rebuild(ctx)
		case 1:
			_, err = x.SetBaseline(ctx, filepath.Base(d.Path), "", false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// startWriter starts a process that writes runs; saved is told each that is.
func startWriter(t *testing.T, root string, count int, saved func(dir string)) (cmd *exec.Cmd, wait func() error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(exe, strconv.Itoa(count))
	cmd.Env = append(os.Environ(), role+"="+root)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for in := bufio.NewReader(out); ; {
			line, err := in.ReadString('\n')
			if err != nil { // what was not said to its end does not count
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				return
			}
			saved(strings.TrimSpace(line))
		}
	}()
	return cmd, func() error {
		<-read
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%w: %s", err, &stderr)
		}
		return nil
	}
}

// TestProcesses has several processes write runs and index them, while this one reads.
func TestProcesses(t *testing.T) {
	const processes, each = 4, 15
	root := t.TempDir()
	x := openIndex(t, root)
	var mu sync.Mutex
	saved := map[string]bool{}
	var waits []func() error
	for range processes {
		_, wait := startWriter(t, root, each, func(dir string) {
			mu.Lock()
			defer mu.Unlock()
			saved[dir] = true
		})
		waits = append(waits, wait)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, wait := range waits {
			if err := wait(); err != nil {
				t.Error(err)
			}
		}
	}()
	for reads := 0; ; reads++ {
		select {
		case <-done:
			t.Logf("%d reads meanwhile", reads)
			if _, err := x.Update(t.Context()); err != nil {
				t.Fatal(err)
			}
			runs, err := x.Runs(t.Context())
			if err != nil || len(runs) != processes*each || len(saved) != processes*each {
				t.Errorf("%d runs, %d saved, want %d; %v", len(runs), len(saved), processes*each, err)
			}
			sameRebuilt(t, x)
			return
		default:
		}
		// What has been said to be saved is seen by whoever looks now.
		mu.Lock()
		want := len(saved)
		mu.Unlock()
		if _, err := x.Update(t.Context()); err != nil {
			t.Fatal(err)
		}
		complete := 0
		runs, err := x.Runs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			if r.Complete {
				complete++
			}
		}
		if complete < want {
			t.Errorf("%d runs are complete, %d were saved before", complete, want)
		}
	}
}

// A run that another process indexes while a rebuild waits for its turn is there after it.
func TestRebuildInTurn(t *testing.T) {
	root := t.TempDir()
	x, other := openIndex(t, root), openIndex(t, root)
	rebuilt := make(chan error, 1)
	err := write(t.Context(), other.db.Load(), func(conn *sql.Conn) error {
		go func() {
			_, err := x.Rebuild(t.Context())
			rebuilt <- err
		}()
		time.Sleep(50 * time.Millisecond) // it waits by now; nothing fails if it does not
		rec := record(1, 0.5, 0.5)
		d, err := results.Create(root, rec)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Close(), d.Save(rec)); err != nil {
			return err
		}
		_, err = other.refresh(t.Context(), conn, []string{filepath.Base(d.Path)})
		return err
	})
	if err := errors.Join(err, <-rebuilt); err != nil {
		t.Fatal(err)
	}
	if runs, err := x.Runs(t.Context()); err != nil || len(runs) != 1 {
		t.Errorf("%d runs, want 1; %v", len(runs), err)
	}
}

// TestKilled kills a process that writes runs and indexes them, at any moment. Every run that
// was saved is there, and the index is as good as one that is built anew.
func TestKilled(t *testing.T) {
	kills := 200
	if !proof.Wanted() {
		kills = 20
	}
	r := resultstest.Random(t)
	root := t.TempDir()
	saved := map[string]bool{}
	journals := 0
	for kill := range kills {
		first := make(chan struct{})
		var once sync.Once
		cmd, wait := startWriter(t, root, 1<<30, func(dir string) {
			saved[dir] = true // until wait returns, by nobody else
			once.Do(func() { close(first) })
		})
		if r.IntN(4) > 0 { // else perhaps while it opens the index
			<-first
		}
		time.Sleep(time.Duration(r.Int64N(int64(40 * time.Millisecond))))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("it was not killed: %v", err)
		}
		if _, err := os.Stat(filepath.Join(root, File+"-journal")); err == nil {
			journals++
		}
		if kill%25 == 24 || kill == kills-1 {
			x, err := Open(t.Context(), root)
			if err != nil {
				t.Fatal(err)
			}
			var verdict string
			if err := x.db.Load().QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
				t.Fatalf("after %d kills: %s, %v", kill+1, verdict, err)
			}
			if _, err := x.Update(t.Context()); err != nil {
				t.Fatal(err)
			}
			known := map[string]Run{}
			runs, err := x.Runs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range runs {
				known[r.Dir] = r
				if r.Error != "" {
					t.Errorf("unreadable: %+v", r)
				}
			}
			for dir := range saved {
				if !known[dir].Complete {
					t.Errorf("after %d kills: %s was saved, and is %+v", kill+1, dir, known[dir])
				}
			}
			if _, err := ReadBaselines(root); err != nil {
				t.Error(err)
			}
			sameRebuilt(t, x)
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d kills, %d runs saved, %d kills in the middle of a write to the index", kills, len(saved), journals)
}
