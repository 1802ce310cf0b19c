package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"syscall"

	"github.com/pkg/sftp"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/hosts"
)

// ReadDir lists the names in a directory; an error wrapping fs.ErrNotExist says there is
// none, one wrapping bounded.ErrTooLarge that there are more than some 30,000.
func (c *Client) ReadDir(ctx context.Context, dir string) ([]string, error) {
	found := make(chan []fs.FileInfo, 1)
	err := c.withFiles(ctx, "list "+dir, func(files *session) error {
		ctx, done := files.heard.limit(ctx, maxListing)
		defer done()
		infos, err := files.ReadDirContext(ctx, dir)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		found <- infos
		return err
	})
	if err != nil {
		return nil, err
	}
	infos := <-found
	names := make([]string, len(infos))
	for i, info := range infos {
		names[i] = info.Name()
	}
	return names, nil
}

// createdMode is that of files that Create makes, whatever the umask of the host: others are to read them.
const createdMode = 0o644

// stampOf is 0 for a server that does not name owners.
func stampOf(info fs.FileInfo) hosts.Stamp {
	s := hosts.Stamp{At: info.ModTime()}
	if of, ok := info.Sys().(*sftp.FileStat); ok {
		s.UID = of.UID
	}
	return s
}

// Create makes a file that must not be there yet, which everybody can read and nobody else can write to, and its directory if
// need be, and returns when that was by the host's clock. What is
// written is on the disk, where the server can see to that. A disk without room for it is
// an error wrapping syscall.ENOSPC.
func (c *Client) Create(ctx context.Context, remote string, data []byte) (hosts.Stamp, error) {
	made := make(chan hosts.Stamp, 1) // nobody may be waiting for it any more
	err := c.withFiles(ctx, "create "+remote, func(files *session) error {
		at, err := create(files, remote, data)
		if errors.Is(err, errOpen) {
			at, err = createApart(files, remote, data)
		}
		made <- at
		return err
	})
	if err != nil {
		return hosts.Stamp{}, err
	}
	return <-made, nil
}

// errOpen is the error of create where the umask of the server lets others write to what it makes: before that can be
// changed they may have opened the file, or given it another name.
var errOpen = errors.New("the server makes files that others can write to")

// create is Create. With errOpen the file is gone.
func create(files *session, remote string, data []byte) (hosts.Stamp, error) {
	f, err := files.OpenFile(remote, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if errors.Is(err, fs.ErrNotExist) {
		if err := files.MkdirAll(path.Dir(remote)); err != nil {
			return hosts.Stamp{}, why(files, path.Dir(path.Dir(remote)), err)
		}
		f, err = files.OpenFile(remote, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	}
	if err != nil {
		return hosts.Stamp{}, why(files, path.Dir(remote), err)
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o022 != 0 {
		err = errOpen
	}
	at, err := fill(files, f, data, err)
	if err != nil {
		err = why(files, path.Dir(remote), err)
		files.Remove(remote)
	}
	return at, err
}

// fill writes a new file and closes it, unless there is an error already.
func fill(files *session, f *sftp.File, data []byte, err error) (hosts.Stamp, error) {
	if err == nil {
		err = f.Chmod(createdMode)
	}
	if err != nil {
		return hosts.Stamp{}, errors.Join(err, f.Close())
	}
	_, err = f.ReadFrom(bytes.NewReader(data))
	return seal(files, f, err)
}

// createApart is Create in a directory of its own, which others cannot enter once its mode is right, whatever of it they hold. The
// file gets its name when it is whole.
func createApart(files *session, remote string, data []byte) (at hosts.Stamp, err error) {
	dir := remote + ".d"
	if err := files.Mkdir(dir); err != nil {
		return at, why(files, path.Dir(remote), err)
	}
	defer files.RemoveDirectory(dir)
	if err := files.Chmod(dir, 0o700); err != nil {
		return at, why(files, dir, err)
	}
	inside := path.Join(dir, path.Base(remote))
	f, err := files.OpenFile(inside, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return at, why(files, dir, err)
	}
	defer files.Remove(inside)
	if at, err = fill(files, f, data, nil); err == nil {
		err = files.Link(inside, remote)
	}
	return at, why(files, dir, err)
}

// Rewrite writes once more what a file says, which moves its time of modification, as Create returns it. A
// file that says anything but data is left alone, with an error that wraps hosts.ErrChanged, as is what is not a regular file: whatever others
// put in its place, no content is changed.
func (c *Client) Rewrite(ctx context.Context, remote string, data []byte) (hosts.Stamp, error) {
	made := make(chan hosts.Stamp, 1) // nobody may be waiting for it any more
	var odd error
	err := c.withFiles(ctx, "rewrite "+remote, func(files *session) error {
		info, err := files.Lstat(remote)
		if err != nil {
			return err
		}
		if odd = bounded.Regular(info.Mode()); odd != nil { // not even opened
			return nil
		}
		f, err := files.OpenFile(remote, os.O_RDWR)
		if err != nil {
			return err
		}
		// What is asked is what has been opened, which a link may have led to meanwhile.
		if info, err = f.Stat(); err == nil {
			odd = bounded.Regular(info.Mode())
		}
		if err == nil && odd == nil {
			var there []byte
			there, err = bounded.ReadAll(bounded.Until(ctx, asked{f, &files.heard}), int64(len(data)))
			if errors.Is(err, bounded.ErrTooLarge) || err == nil && !bytes.Equal(there, data) {
				odd, err = hosts.ErrChanged, nil
			}
		}
		if err != nil || odd != nil {
			return errors.Join(err, f.Close())
		}
		_, err = f.WriteAt(data, 0)
		at, err := seal(files, f, err)
		if err != nil {
			return why(files, path.Dir(remote), err)
		}
		made <- at
		return nil
	})
	switch {
	case err != nil:
		return hosts.Stamp{}, err
	case odd != nil:
		return hosts.Stamp{}, c.errorf("rewrite %s: %w", remote, odd)
	}
	return <-made, nil
}

// seal closes a file that was written, with what came of that.
func seal(files *session, f *sftp.File, err error) (at hosts.Stamp, _ error) {
	if _, ok := files.HasExtension("fsync@openssh.com"); ok && err == nil {
		err = f.Sync()
	}
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil {
			at = stampOf(info)
		}
	}
	return at, errors.Join(err, f.Close())
}

// readOnly is the flag of StatVFS for a file system that nobody can write to: SSH_FXE_STATVFS_ST_RDONLY.
const readOnly = 1

// why says that a disk is full, or cannot be written to, where that is the reason: OpenSSH's server only says "Failure".
func why(files *session, dir string, err error) error {
	var status *sftp.StatusError
	if !errors.As(err, &status) {
		return err
	}
	vfs, verr := files.StatVFS(dir)
	switch {
	case verr != nil:
		return err
	case vfs.Flag&readOnly != 0:
		return fmt.Errorf("%w (%w)", err, syscall.EROFS)
	case vfs.Bavail == 0 || vfs.Files > 0 && vfs.Favail == 0:
		return fmt.Errorf("%w (%w)", err, syscall.ENOSPC)
	}
	return err
}

// Link gives a file a second name, in one step for everybody who looks. If there is a
// file of that name the error wraps fs.ErrExist, and nothing is changed.
func (c *Client) Link(ctx context.Context, old, name string) error {
	return c.withFiles(ctx, "link "+name, func(files *session) error {
		err := files.Link(old, name)
		if err == nil {
			return nil
		}
		// Protocol version 3 has no word for "exists".
		if _, serr := files.Lstat(name); serr == nil {
			return fs.ErrExist
		}
		return why(files, path.Dir(name), err)
	})
}

// WriteFile gives a file a content, whole or not at all, and makes its directory if need
// be.
func (c *Client) WriteFile(ctx context.Context, remote string, data []byte, mode fs.FileMode) error {
	return c.write(ctx, "write "+remote, bytes.NewReader(data), remote, mode)
}

// replaceScript gives the file $1 the content of stdin, whole, and otherwise leaves it what it was: its
// owner, its extended attributes, and the link or the links by which it is reached. $2 is its mode, $3 how many
// bytes there are: of a connection that is cut, stdin ends as well.
const replaceScript = `set -eu
at=$1
if [ -L "$at" ]; then at=$(readlink -f -- "$at"); fi
temp=$(mktemp -- "$at.XXXXXXXXXX")
trap 'rm -f -- "$temp"' EXIT
trap 'exit 1' HUP INT TERM PIPE
if [ -e "$at" ]; then cp --preserve=all -- "$at" "$temp" 2>/dev/null || cp -p -- "$at" "$temp"; fi
cat >"$temp"
if [ "$(stat -c %s -- "$temp")" != "$3" ]; then
	echo "its new content did not arrive whole: it is as it was" >&2
	exit 1
fi
chmod -- "$2" "$temp"
if [ -e "$at" ] && [ "$(stat -c %h -- "$at")" -gt 1 ]; then
	cat -- "$temp" >"$at"
	chmod -- "$2" "$at"
else
	mv -f -- "$temp" "$at"
fi`

// Replace gives a file another content and mode, or makes it. What else it is stays: its owner, its
// extended attributes, a symbolic link that leads to it, and its other names. It is whole at any time, unless it has
// other names. As root, it is as StartRoot is.
func (c *Client) Replace(ctx context.Context, remote string, data []byte, mode fs.FileMode, root bool) error {
	run := c.Run
	if root {
		run = c.RunRoot
	}
	_, err := run(ctx, []string{"/bin/sh", "-c", replaceScript, "sh", remote, fmt.Sprintf("%o", mode), strconv.Itoa(len(data))}, bytes.NewReader(data))
	if err != nil {
		return c.errorf("replace %s: %w", remote, err)
	}
	return nil
}
