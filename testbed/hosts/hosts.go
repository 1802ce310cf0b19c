// Package hosts is what a run has of the hosts that it uses, whoever reaches them: programs that
// run there, files, addresses.
//
// A launcher is whoever reaches them: package ssh does so by logging in, and another may ask a
// scheduler, or start processes beside this one. What is above works with a Host and knows of no
// launcher; package hoststest holds each of them to what a Host promises, and package reach has
// the list of them.
//
// A [Talk] is a program of ours on a host that says and is told lines of JSON, whatever it does.
package hosts

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"time"
)

// What can be wrong with a host, however it is reached. An *Error wraps one of these or one of its
// launcher's own.
var (
	// ErrUnreachable: the host does not answer, or not in time.
	ErrUnreachable = errors.New("unreachable")
	// ErrLost: the host was reached, and is lost while it is in use.
	ErrLost = errors.New("connection lost")
	// ErrNotRoot: the user is not root there, and may not become it without a password.
	ErrNotRoot = errors.New("no root")
)

// ErrChanged is wrapped where a file does not say what it should.
var ErrChanged = errors.New("it says something else than was written there")

// Host is a host that has been reached. Its methods are safe for concurrent use. Their errors name
// it, see package blame; those of ctx are its cause. A host that is lost is an *Error with ErrLost
// everywhere.
type Host interface {
	Commands
	Files

	// String is the host's name.
	String() string
	// Local is the address of this machine at which the host reaches it.
	Local() (netip.Addr, error)

	// Done is closed when the host is lost, or was closed.
	Done() <-chan struct{}
	// Err is why it is lost, or that it was closed; nil as long as it is neither.
	Err() error
	// Close gives it up. Whatever still runs there for this program ends.
	Close() error
}

// Commands runs programs on a host. No shell sees their arguments, which arrive as they are.
type Commands interface {
	// Start starts a program, whose stderr goes to a writer (nil: nowhere) that may fail. When ctx
	// ends, it is killed with all that it has started.
	Start(ctx context.Context, argv []string, stderr io.Writer) (*Process, error)
	// StartRoot is Start as root: the user is, or becomes it without a password. Where that cannot
	// be, here or when the program is to begin, there is an *Error with ErrNotRoot.
	StartRoot(ctx context.Context, argv []string, stderr io.Writer) (*Process, error)
	// Run runs a program to its end, with the Output also of one that failed: that is a *RunError.
	// A nil stdin is empty. More than 16 MiB of output are an error.
	Run(ctx context.Context, argv []string, stdin io.Reader) (Output, error)
	// RunRoot is Run as root, as StartRoot is Start.
	RunRoot(ctx context.Context, argv []string, stdin io.Reader) (Output, error)
	// Sudo says whether the user is to become root where root is needed, and is not root.
	Sudo() bool
	// Interactive runs a program, or with no argv the user's shell, with the user's terminal.
	Interactive(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) error
}

// Files reads and writes files on a host. Names are relative to the user's home there. What is
// wrong with one wraps fs.ErrNotExist, fs.ErrExist, fs.ErrPermission or a syscall.Errno, where the
// host says so.
type Files interface {
	// ReadFile reads a file of at most bounded.Config bytes.
	ReadFile(ctx context.Context, name string) ([]byte, error)
	// ReadFilesOf reads files of at most limit bytes at the same time; the answers are in the order
	// of the names.
	ReadFilesOf(ctx context.Context, limit int64, names ...string) []File
	// ReadSmall reads a regular file of at most bounded.Small bytes, and nothing that is no regular file.
	ReadSmall(ctx context.Context, name string) ([]byte, Stamp, error)
	// ReadDir are the names in a directory; one that holds more than anybody's would is an error.
	ReadDir(ctx context.Context, dir string) ([]string, error)
	// Stat describes a file.
	Stat(ctx context.Context, name string) (fs.FileInfo, error)
	// Sum is the size of a file in bytes and its SHA-256, in hexadecimal digits.
	Sum(ctx context.Context, name string) (size int64, sum string, err error)

	// Create makes a file that must not be there yet, which everybody can read, and its directory
	// if need be. It returns when that was, by the host's clock.
	Create(ctx context.Context, name string, data []byte) (Stamp, error)
	// Rewrite writes over a file without making it anew, and returns when that was.
	Rewrite(ctx context.Context, name string, data []byte) (Stamp, error)
	// WriteFile makes a file, or puts it in the place of one, as a whole or not at all.
	WriteFile(ctx context.Context, name string, data []byte, mode fs.FileMode) error
	// Replace is WriteFile in the place of a file that keeps its owner; with root as root.
	Replace(ctx context.Context, name string, data []byte, mode fs.FileMode, root bool) error
	// Upload copies a file of this machine to the host, as a whole or not at all.
	Upload(ctx context.Context, local, name string, mode fs.FileMode) error
	// Rename gives a file another name, in the place of whatever has that.
	Rename(ctx context.Context, old, name string) error
	// Link gives a file a second name, which must not be there yet.
	Link(ctx context.Context, old, name string) error
	// Remove removes a file, if there is one; with root as root.
	Remove(ctx context.Context, name string, root bool) error
}

// Process is a program that runs on a host.
type Process struct {
	Stdin   io.WriteCloser // closing it is the program's end of file
	Stdout  io.Reader      // must be read: an unread pipe stops the program
	Running                // whatever started it
}

// Running is how a program on a host ends.
type Running interface {
	// Done is closed when the program has ended.
	Done() <-chan struct{}
	// Wait waits for that. A program that did not succeed is a *RunError.
	Wait() error
	// Kill kills it and all that it has started, and does not wait for their end. It does nothing
	// when the program has ended.
	Kill(ctx context.Context) error
	// Close makes sure that it is gone: it kills the program if it still runs, and waits for its
	// end, 5 s at most. All calls are one.
	Close() error
}

// Output is what a program wrote.
type Output struct {
	Stdout, Stderr []byte
	Exit           int
}

// File is the content of a file, or why there is none.
type File struct {
	Data []byte
	Err  error
}

// Stamp is when a file was written and whose it is, as its host says.
type Stamp struct {
	At  time.Time // of its modification, in whole seconds
	UID uint32    // of the account: nobody but root can give a file to another
}

// Sbin is a command whose program is also looked for where the PATH of ordinary users does not
// lead: many tools of administrators need no root to run.
func Sbin(argv []string) []string {
	return append([]string{"sh", "-c", `PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; export PATH; exec "$@"`, "sh"}, argv...)
}
