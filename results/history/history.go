package history

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
)

// File is the index, in the directory that holds the run directories.
const File = ".history.db"

// version is that of the tables and of the keys of settings. An index of another version is built anew.
const version = 2

var tables = []string{"run", "setting", "series", "night"}

const schema = `
CREATE TABLE run (             -- each run directory
	id         INTEGER PRIMARY KEY,
	dir        TEXT NOT NULL UNIQUE,
	size       INTEGER NOT NULL, -- of its run.json, which is read again when one of the three changes
	mtime      INTEGER NOT NULL, -- ns
	inode      INTEGER NOT NULL,
	ulid       TEXT NOT NULL,
	experiment TEXT NOT NULL,
	setting    TEXT NOT NULL,    -- its key; empty where the record cannot be read
	started    INTEGER NOT NULL, -- ns since 1970
	finished   INTEGER NOT NULL, -- 0: not yet, or cut off
	outcome    TEXT NOT NULL,
	tool       TEXT NOT NULL,
	error      TEXT NOT NULL     -- why the record cannot be read
);
CREATE TABLE setting (key TEXT PRIMARY KEY, facts TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE series (
	id         INTEGER PRIMARY KEY,
	experiment TEXT NOT NULL,
	setting    TEXT NOT NULL,
	point      INTEGER NOT NULL,
	labels     TEXT NOT NULL,
	phase      INTEGER NOT NULL,
	metric     TEXT NOT NULL,
	subject    TEXT NOT NULL,
	kind       TEXT NOT NULL,
	predictor  TEXT NOT NULL,
	unit       TEXT NOT NULL,
	UNIQUE (experiment, setting, point, labels, phase, metric, subject, kind, predictor, unit)
);
CREATE TABLE night (           -- what one run has of one series
	series  INTEGER NOT NULL,
	run     INTEGER NOT NULL,
	figures TEXT NOT NULL,       -- a JSON list: one of each sound repeat
	spoilt  INTEGER NOT NULL,    -- repeats that were not
	PRIMARY KEY (series, run)
) WITHOUT ROWID;
CREATE INDEX night_run ON night (run);
`

// ErrFileSystem is wrapped where an index cannot be kept because the file system is one of a
// network, whose locks cannot be relied on, or because this user cannot write the directory or the index
// in it. It wraps errors.ErrUnsupported.
var ErrFileSystem = fmt.Errorf("no index can be kept: %w", errors.ErrUnsupported)

// ErrCorrupt is wrapped when what the index says cannot be. Open and Update replace such an index by
// a new one; after another call, PutAside has the next Open do so.
var ErrCorrupt = errors.New("damaged index")

// errMoved is an index that another process has put aside.
var errMoved = errors.New("the index was put aside")

// ErrFull is wrapped where an index cannot be written because the disk is full.
var ErrFull = fmt.Errorf("no index can be written: %w", syscall.ENOSPC)

// ErrBusy is wrapped when another process has been writing the index for longer than patience.
var ErrBusy = errors.New("index in use")

// patience is how long one process waits for another to write. Whoever writes many runs lets others in
// between batches.
const patience = time.Minute

// slowest is for how long SQLite may work on one query, or on one batch of runs.
const slowest = 5 * time.Minute

// errSlow is an index that does not come to an end.
var errSlow = fmt.Errorf("%w: no answer in time", ErrBusy)

// mostPages is how large an index may become, in pages of 4 KiB: what counts is small.
const mostPages = 1 << 20

// glance is how long it waits before it looks whether it is still to.
const glance = 200 * time.Millisecond

// Index is an index of the run directories in one directory. It may be used from several
// goroutines.
type Index struct {
	root string
	name string // for SQLite
	db   atomic.Pointer[sql.DB]
	mu   sync.Mutex  // held while db is replaced
	file fs.FileInfo // that db has open; nil: in memory

	unkept error // why OpenOrRead keeps none

	slowest time.Duration
}

// bounded does one thing with the index, which must come to its end in time.
func (x *Index) bounded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, x.slowest, errSlow)
	defer cancel()
	err := do(ctx)
	if err != nil && ctx.Err() != nil && context.Cause(ctx) == errSlow {
		err = fmt.Errorf("%w: %w", errSlow, err)
	}
	return err
}

// inMemory is the name of an index that is nowhere on disk.
const inMemory = "file::memory:?"

// Open opens the index of the run directories in root, or begins it. The error wraps
// fs.ErrNotExist where root does not exist, ErrFileSystem where it cannot have an index
// (InMemory can be used then), ErrFull or ErrBusy. A damaged index is put aside.
func Open(ctx context.Context, root string) (*Index, error) {
	if err := check(root); err != nil {
		return nil, err
	}
	path, err := filepath.Abs(filepath.Join(root, File))
	if err != nil {
		return nil, err
	}
	name := url.URL{Scheme: "file", Path: path}
	x := &Index{root: root, name: name.String() + "?", slowest: slowest}
	err = x.open(ctx)
	if errors.Is(err, ErrCorrupt) {
		if err = PutAside(root); err == nil {
			err = x.open(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// damaged is what is added to the name of an index that was put aside.
const damaged = ".damaged"

// PutAside renames a damaged index, in place of one that was renamed before: the next Open begins a new
// one. That there is none is no error. One that has to stay is no index that can be kept: the error wraps
// ErrFileSystem.
func PutAside(root string) error {
	if err := putAside(filepath.Join(root, File)); err != nil {
		return fmt.Errorf("%w in %s: a damaged one stays: %w", ErrFileSystem, root, err)
	}
	return nil
}

func putAside(path string) error {
	for _, of := range []string{"-journal", "-wal", "-shm"} { // they would be taken for the new one's
		if err := os.Remove(path + of); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(path, path+damaged); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// moved says whether another process has put aside, or somebody has removed, the file that is open: what is written
// there nobody reads.
func (x *Index) moved() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.isMoved()
}

func (x *Index) isMoved() bool {
	now, err := os.Stat(filepath.Join(x.root, File))
	return x.file != nil && (errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, x.file))
}

// replace puts a damaged index aside, unless somebody else has done so since it was used, and opens the one that there
// is then, or begins it.
func (x *Index) replace(ctx context.Context, used *sql.DB) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.db.Load() != used {
		return nil
	}
	if !x.isMoved() {
		if err := PutAside(x.root); err != nil {
			return err
		}
	}
	if err := x.open(ctx); err != nil {
		return err
	}
	return used.Close()
}

// InMemory reads all run directories in root into an index that is gone when it is closed. It
// changes nothing on disk.
func InMemory(ctx context.Context, root string) (*Index, error) {
	if _, err := os.Stat(root); err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	x := &Index{root: root, name: inMemory, slowest: slowest}
	if err := x.open(ctx); err != nil {
		return nil, err
	}
	return x, nil
}

// OpenOrRead opens the index of the run directories in root, and brings it up to date. Where none can be kept, the disk is
// full, or another process keeps it busy, it reads all of them into one that is gone when it is closed; Unkept says why.
func OpenOrRead(ctx context.Context, root string) (*Index, error) {
	x, why := updated(ctx, root, Open)
	if !errors.Is(why, ErrFileSystem) && !errors.Is(why, ErrFull) && !errors.Is(why, ErrBusy) {
		return x, why
	}
	x, err := updated(ctx, root, InMemory)
	if err != nil {
		return nil, errors.Join(why, err)
	}
	x.unkept = why
	return x, nil
}

// updated opens an index and brings it up to date.
func updated(ctx context.Context, root string, open func(context.Context, string) (*Index, error)) (*Index, error) {
	x, err := open(ctx, root)
	if err != nil {
		return nil, err
	}
	if _, err := x.Update(ctx); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// Unkept says why OpenOrRead read all runs: nil of an index that it opened.
func (x *Index) Unkept() error { return x.unkept }

// connect opens a database. Nothing that it says of itself has functions called.
func connect(name string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", fmt.Sprintf("%s_pragma=busy_timeout(%d)&_pragma=cache_size(-65536)&_pragma=trusted_schema(0)&_pragma=max_page_count(%d)",
		name, patience.Milliseconds(), mostPages))
	if err == nil {
		db.SetMaxOpenConns(1) // what is in memory belongs to a connection
	}
	return db, err
}

// open opens the database, and makes its tables if need be.
func (x *Index) open(ctx context.Context) error {
	db, err := connect(x.name)
	if err != nil {
		return x.failed("open", err)
	}
	err = x.bounded(ctx, func(ctx context.Context) error {
		var have int
		err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have)
		if err == nil && have != version {
			err = write(ctx, db, func(conn *sql.Conn) error {
				// Another process may have done it.
				if err := conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil || have == version {
					return err
				}
				return empty(ctx, conn)
			})
		}
		if err != nil || x.name == inMemory {
			return err
		}
		return ownTables(ctx, db)
	})
	if err != nil {
		return errors.Join(x.failed("open", err), db.Close())
	}
	if x.name != inMemory {
		if err := plain(x.root); err != nil { // somebody may have been faster to begin it
			return errors.Join(err, db.Close())
		}
		if x.file, err = os.Stat(filepath.Join(x.root, File)); errors.Is(err, fs.ErrNotExist) {
			err = errMoved
		}
		if err != nil {
			return errors.Join(x.failed("open", err), db.Close())
		}
	}
	x.db.Store(db)
	return nil
}

// ownTables is an ErrCorrupt where an index has tables, triggers, views or whatever else but what the schema makes: what is written
// to a table may set off anything then.
func ownTables(ctx context.Context, db *sql.DB) error {
	there, err := objects(ctx, db)
	if err != nil {
		return err
	}
	fresh, err := connect(inMemory)
	if err != nil {
		return err
	}
	defer fresh.Close()
	var want []string
	if _, err = fresh.ExecContext(ctx, schema); err == nil {
		want, err = objects(ctx, fresh)
	}
	if err == nil && !slices.Equal(there, want) {
		err = fmt.Errorf("%w: it has other tables or triggers than it should", ErrCorrupt)
	}
	return err
}

// mostObjects is how many tables, indexes and the like of an index are looked at.
const mostObjects = 100

// objects are all that there is in a database, with what it was made by.
func objects(ctx context.Context, db *sql.DB) (out []string, err error) {
	err = each(ctx, db, func(scan scanner) error {
		var kind, name, table, text string
		err := scan(&kind, &name, &table, &text)
		out = append(out, fmt.Sprintf("%q %q %q %q", kind, name, table, text))
		return err
	}, "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema LIMIT ?", mostObjects)
	slices.Sort(out)
	return out, err
}

// empty makes the tables, empty. Files are never replaced, since another process may have them open.
func empty(ctx context.Context, conn *sql.Conn) error {
	for _, t := range tables {
		if _, err := conn.ExecContext(ctx, "DROP TABLE IF EXISTS "+t); err != nil {
			return err
		}
	}
	_, err := conn.ExecContext(ctx, schema+fmt.Sprintf("PRAGMA user_version = %d;", version))
	return err
}

// Close closes the index.
func (x *Index) Close() error { return x.db.Load().Close() }

// write does something while no other process writes: all of it, or nothing.
func write(ctx context.Context, db *sql.DB, do func(*sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err = inTurn(ctx, conn, "BEGIN IMMEDIATE"); err == nil {
		if err = do(conn); err == nil {
			err = inTurn(ctx, conn, "COMMIT")
		}
	}
	if err != nil {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // an error where nothing has begun, or SQLite itself went back
	}
	return err
}

// inTurn does what has to wait until no other process writes, or reads: until then, or patience is over, or ctx ends. It waits
// a glance at a time, since what SQLite itself waits for, nothing ends.
func inTurn(ctx context.Context, conn *sql.Conn, statement string) error {
	wait := func(most time.Duration) error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA busy_timeout = %d", most.Milliseconds()))
		return err
	}
	if err := wait(glance); err != nil {
		return err
	}
	for began := time.Now(); ; {
		_, err := conn.ExecContext(ctx, statement)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		var code *sqlite.Error
		if busy := errors.As(err, &code) && code.Code()&0xff == sqlite3.SQLITE_BUSY; !busy || time.Since(began) > patience {
			return errors.Join(err, wait(patience))
		}
	}
}

// failed says what was being done to which index, and what that means.
func (x *Index) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	var code *sqlite.Error
	if errors.As(err, &code) {
		switch code.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		case sqlite3.SQLITE_BUSY:
			err = fmt.Errorf("%w: %w", ErrBusy, err)
		case sqlite3.SQLITE_FULL:
			err = fmt.Errorf("%w: %w", ErrFull, err)
		case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR:
			switch {
			case code.Code() == sqlite3.SQLITE_READONLY_DBMOVED:
				err = fmt.Errorf("%w: %w", errMoved, err)
			case full(x.root):
				err = fmt.Errorf("%w: %w", ErrFull, err)
			case code.Code()&0xff != sqlite3.SQLITE_IOERR:
				err = fmt.Errorf("%w: %w", ErrFileSystem, err)
			}
		}
	}
	return fmt.Errorf("%s %s: %w", doing, filepath.Join(x.root, File), err)
}

// networks are file systems on which locks are missing, or forgotten when a server or a daemon goes
// away: by the magic number that statfs(2) tells.
var networks = map[int64]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.V9FS_MAGIC:       "9p",
	unix.FUSE_SUPER_MAGIC: "FUSE",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.AFS_FS_MAGIC:     "AFS",
	unix.CODA_SUPER_MAGIC: "Coda",
	unix.NCP_SUPER_MAGIC:  "NCP",
	unix.CEPH_SUPER_MAGIC: "Ceph",
	0x0bd00bd0:            "Lustre", // LL_SUPER_MAGIC in its lustre_user.h
	0x47504653:            "GPFS",   // GPFS_SUPER_MAGIC: "GPFS"
	0x19830326:            "BeeGFS", // BEEGFS_MAGIC in its FhgfsOps_Super.h
	0x786f4256:            "vboxsf", // VBSF_SUPER_MAGIC in fs/vboxsf
}

// check says why there can be no index in a directory, nil if there can be one.
func check(root string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return fmt.Errorf("read runs: %w", &fs.PathError{Op: "statfs", Path: root, Err: err})
	}
	if err := onNetwork(root, int64(st.Type)); err != nil {
		return err
	}
	if err := unix.Access(root, unix.W_OK); err != nil {
		return fmt.Errorf("%w in %s: it cannot be written: %w", ErrFileSystem, root, err)
	}
	return plain(root)
}

// plain is an error where an index, or what SQLite keeps beside it, is no file that this user may write, and nobody else: SQLite
// would wait for the writer of a FIFO, for ever, would open what it may only read, until something is to be written, and would
// do what others have put into it.
func plain(root string) error {
	for _, of := range []string{"", "-journal", "-wal", "-shm"} {
		path := filepath.Join(root, File+of)
		st, err := os.Lstat(path)
		if err != nil {
			continue // whoever opens it says so
		}
		err = cmp.Or(bounded.Regular(st.Mode()), unix.Access(path, unix.R_OK|unix.W_OK), bounded.Own(st))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a journal goes when what another process writes is written
			return fmt.Errorf("%w in %s: %s: %w", ErrFileSystem, root, path, err)
		}
	}
	return nil
}

// full says whether there is no room for a file in a directory: not even the few pages of a journal. That of a quota is
// known only to who writes.
func full(root string) bool {
	const few = 64 << 10
	f, err := os.CreateTemp(root, ".room-*")
	if err == nil {
		_, err = f.Write(make([]byte, few))
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return results.Full(err)
}

func onNetwork(root string, magic int64) error {
	if name, ok := networks[int64(uint32(magic))]; ok { // it has a sign on some machines
		return fmt.Errorf("%w in %s: it is on %s, where locks cannot be relied on", ErrFileSystem, root, name)
	}
	return nil
}
