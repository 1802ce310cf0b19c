package hosts

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/inabench/inabench/internal/bounded"
)

// uploads is how many hosts EnsureFile serves at a time: they share one uplink.
const uploads = 8

// Sum is the size of a file of this machine in bytes and its SHA-256, in hexadecimal digits, as Files.Sum of a host's.
func Sum(local string) (size int64, sum string, err error) {
	f, err := bounded.Open(local)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	digest := sha256.New()
	if size, err = io.Copy(digest, f); err != nil {
		return 0, "", fmt.Errorf("read %s: %w", local, err)
	}
	return size, hex.EncodeToString(digest.Sum(nil)), nil
}

// EnsureFile makes a program present on every host and returns its path there,
// which holds the beginning of its SHA-256: the same file is never copied twice,
// and hosts that share a home directory get it once. It is relative to the home.
func EnsureFile(ctx context.Context, all []Host, local string) (string, error) {
	size, sum, err := Sum(local)
	if err != nil {
		return "", err
	}
	remote := ".cache/inabench/agent-" + sum[:12]

	// A file appears under this name only when it is complete and its sum has been
	// checked, so that its presence with the right size is enough to know.
	lacking := func(all []Host) ([]Host, error) {
		missing := make([]bool, len(all))
		err := FanOut(ctx, 0, all, func(ctx context.Context, i int, h Host) error {
			info, err := h.Stat(ctx, remote)
			switch {
			case err == nil:
				missing[i] = info.Size() != size || info.Mode()&0o100 == 0
			case errors.Is(err, fs.ErrNotExist):
				missing[i] = true
			default:
				return err
			}
			return nil
		})
		var found []Host
		for i, m := range missing {
			if m {
				found = append(found, all[i])
			}
		}
		return found, err
	}
	upload := func(ctx context.Context, h Host) error {
		return install(ctx, h, local, remote, sum)
	}

	todo, err := lacking(all)
	if err != nil || len(todo) == 0 {
		return remote, err
	}
	if err := upload(ctx, todo[0]); err != nil {
		return remote, err
	}
	if todo, err = lacking(todo[1:]); err != nil {
		return remote, err
	}
	return remote, FanOut(ctx, uploads, todo, func(ctx context.Context, _ int, h Host) error {
		return upload(ctx, h)
	})
}

// install uploads a program under a name of its own, checks what has arrived, and
// only then gives it its name.
func install(ctx context.Context, h Host, local, remote, sum string) error {
	staged := remote + "." + rand.Text()[:8] + ".new"
	err := h.Upload(ctx, local, staged, 0o700)
	if err != nil {
		return err
	}
	_, got, err := h.Sum(ctx, staged)
	if err == nil && got != sum {
		err = Name(h.String(), fmt.Errorf("%s arrived with sha256 %s instead of %s", local, got, sum))
	}
	if err == nil {
		err = h.Rename(ctx, staged, remote)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
		defer cancel()
		return errors.Join(err, h.Remove(ctx, staged, false))
	}
	return nil
}

// cleaning is how long the removal of what was not installed may take.
const cleaning = 5 * time.Second
