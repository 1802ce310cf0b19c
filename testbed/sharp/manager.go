package sharp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/journal"
)

// ErrRewritten is wrapped when the configuration of a manager is not what was written: UFM
// writes it anew from its own when it starts sharp_am.
var ErrRewritten = errors.New("the configuration was written anew by somebody else")

// ErrNotPutBack is wrapped when a configuration that was changed is not what it was again.
var ErrNotPutBack = errors.New("sharp_am's configuration was not put back")

// Manager is sharp_am where it runs.
type Manager struct {
	Client  hosts.Host
	Target  string   // what the journal calls its host
	Config  string   // path of its sharp_am.cfg
	Restart []string // what makes it read that again, and returns when it is up
	// Taken asks whether another run has it meanwhile; nil: nobody leases it.
	Taken func(context.Context) bool
}

// Change is what a run wants of a manager's configuration.
type Change struct {
	Set []Option
	// RootGUIDs are the switches that may be roots of trees, and Trees the content of a file
	// of trees (static mode): files beside the configuration, which they are named in.
	RootGUIDs []inventory.GUID
	Trees     []byte
}

// Option is a line of the configuration.
type Option struct{ Key, Value string }

// ParseOption reads "per_prio_default_quota 50" or "per_prio_default_quota = 50".
func ParseOption(text string) (Option, error) {
	c, err := ParseAMConfig("option", []byte(text+"\n"))
	if err != nil {
		var ps tomlfile.Problems
		if errors.As(err, &ps) {
			return Option{}, tomlfile.WithHint(ps[0].Hint, "%s", ps[0].Msg)
		}
		return Option{}, err
	}
	keys := c.Keys()
	if len(keys) != 1 {
		return Option{}, tomlfile.WithHint(`write "per_prio_default_quota 50"`, "%q is not an option and its value", text)
	}
	v, _ := c.Get(keys[0])
	return Option{keys[0], v}, nil
}

// Diff is what is different between two configurations: "- key old" and "+ key new", in the
// order of the second.
func Diff(old, changed *AMConfig) (lines []string) {
	for _, k := range changed.Keys() {
		was, had := old.Get(k)
		is, _ := changed.Get(k)
		if had && was != is {
			lines = append(lines, "- "+k+" "+was)
		}
		if !had || was != is {
			lines = append(lines, "+ "+k+" "+is)
		}
	}
	for _, k := range old.Keys() {
		if _, has := changed.Get(k); !has {
			was, _ := old.Get(k)
			lines = append(lines, "- "+k+" "+was)
		}
	}
	return lines
}

// Applied is a configuration that was changed.
type Applied struct {
	Diff  []string // none: it was so already, and nothing was touched
	Notes []string // on options that do not do what one may think

	manager *Manager
	files   []written
	log     *journal.Journal
	changes []*journal.Change
}

// written is a file that was written, with what was there.
type written struct {
	path      string
	now, old  []byte
	mode      fs.FileMode
	wasAbsent bool
}

// Apply changes the configuration of a manager and restarts it. Before anything is written,
// its inverse is in the journal (nil: it is not kept). What was written is read back, before
// the restart and after it. On an error what was changed is put back.
//
// A configuration that says all of it already is left alone, and so is the manager: a restart
// ends the trees of all jobs.
func (m *Manager) Apply(ctx context.Context, c Change, log *journal.Journal) (_ *Applied, err error) {
	text, err := m.Client.ReadFile(ctx, m.Config)
	if err != nil {
		return nil, fmt.Errorf("configuration of sharp_am: %w", err)
	}
	old, err := ParseAMConfig(m.Config, text)
	if err != nil {
		return nil, err
	}
	changed, _ := ParseAMConfig(m.Config, text) // the same
	a := &Applied{manager: m, log: log}
	for _, o := range c.Set {
		if err := changed.Set(o.Key, o.Value); err != nil {
			return nil, fmt.Errorf("sharp_am: %s: %w", o.Key, err)
		}
	}
	beside := func(key, name string, data []byte) error {
		if len(data) == 0 {
			return nil
		}
		at := path.Join(path.Dir(m.Config), name)
		if err := changed.Set(key, at); err != nil {
			return fmt.Errorf("sharp_am: %s: %w", key, err)
		}
		return a.plan(ctx, at, data)
	}
	var roots bytes.Buffer
	for _, g := range c.RootGUIDs {
		fmt.Fprintln(&roots, g)
	}
	if err := beside("root_guids_file", "inabench_root_guids.cfg", roots.Bytes()); err != nil {
		return nil, err
	}
	if err := beside("trees_file", "inabench_trees.cfg", c.Trees); err != nil {
		return nil, err
	}
	a.Diff = Diff(old, changed)
	for _, n := range changed.Notes() {
		a.Notes = append(a.Notes, n.Error())
	}
	if err := a.plan(ctx, m.Config, changed.Bytes()); err != nil {
		return nil, err
	}
	a.files = slices.DeleteFunc(a.files, func(w written) bool { return !w.wasAbsent && bytes.Equal(w.now, w.old) })
	if len(a.files) == 0 {
		return a, nil
	}
	if err := a.enter(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			uctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			err = errors.Join(err, a.Undo(uctx))
		}
	}()
	for _, w := range a.files {
		if err := m.write(ctx, w.path, w.now, w.mode); err != nil {
			return nil, err
		}
		if err := m.holds(ctx, w); err != nil {
			return nil, err
		}
	}
	if err := m.restart(ctx); err != nil {
		return nil, err
	}
	for _, w := range a.files {
		if err := m.holds(ctx, w); err != nil {
			return nil, fmt.Errorf("after the restart: %w", err)
		}
	}
	return a, log.Made(a.changes...)
}

// plan notes a file that is to be written.
func (a *Applied) plan(ctx context.Context, at string, data []byte) error {
	w := written{path: at, now: data, mode: 0o644}
	st, err := a.manager.Client.Stat(ctx, at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.wasAbsent = true
	case err != nil:
		return err
	default:
		w.mode = st.Mode().Perm()
		if w.old, err = a.manager.Client.ReadFile(ctx, at); err != nil {
			return err
		}
	}
	a.files = append(a.files, w)
	return nil
}

// enter journals what is about to be done. What was begun last is undone first: files are put
// back, then the manager restarted.
func (a *Applied) enter() error {
	m := a.manager
	a.changes = []*journal.Change{{Target: m.Target, What: "restart sharp_am", Undo: journal.Inverse{Script: &journal.Script{Argv: m.Restart, Root: m.Client.Sudo(), After: true}}}}
	for _, w := range a.files {
		sum := sha256.Sum256(w.now)
		c := &journal.Change{Target: m.Target, What: "write " + w.path}
		if w.wasAbsent {
			c.Undo.Remove = &journal.Remove{Path: w.path, SHA256: hex.EncodeToString(sum[:]), Sudo: m.Client.Sudo()}
		} else {
			c.Undo.Restore = &journal.Restore{Path: w.path, SHA256: hex.EncodeToString(sum[:]), Old: w.old, Mode: uint32(w.mode), Sudo: m.Client.Sudo()}
		}
		a.changes = append(a.changes, c)
	}
	return a.log.Begin(a.changes...)
}

// Undo puts back what Apply changed, where it is still what Apply wrote, and restarts the
// manager if there was any of it. A second call does nothing. Where another run has the manager now, it is left to that, and
// the journal remembers what was there. Errors wrap ErrNotPutBack.
func (a *Applied) Undo(ctx context.Context) error {
	m := a.manager
	if m.Taken != nil && len(a.files) > 0 && m.Taken(ctx) {
		return fmt.Errorf("%w: another run has it now", ErrNotPutBack)
	}
	var errs []error
	put := false
	for i := len(a.files) - 1; i >= 0; i-- {
		w := a.files[i]
		switch is, err := m.Client.ReadFile(ctx, w.path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case !bytes.Equal(is, w.now): // somebody else's by now
		case w.wasAbsent:
			put = true
			errs = append(errs, m.remove(ctx, w.path))
		default:
			put = true
			errs = append(errs, m.write(ctx, w.path, w.old, w.mode))
		}
	}
	if put {
		errs = append(errs, m.restart(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrNotPutBack, err)
	}
	a.files = nil
	err := a.log.Undone(a.changes...)
	a.changes = nil
	return err
}

// holds is an error if a file is not what was written.
func (m *Manager) holds(ctx context.Context, w written) error {
	is, err := m.Client.ReadFile(ctx, w.path)
	if err != nil {
		return err
	}
	if !bytes.Equal(is, w.now) {
		return withHint(fmt.Errorf("%s: %w", w.path, ErrRewritten), "where UFM starts sharp_am, change [Sharp] of its gv.cfg, or the file that UFM copies")
	}
	return nil
}

// hinted is an error with a hint.
type hinted struct {
	error
	hint string
}

func withHint(err error, hint string) error { return &hinted{err, hint} }

func (e *hinted) Unwrap() error { return e.error }

// Hint is what to do about it.
func (e *hinted) Hint() string { return e.hint }

func (m *Manager) run(ctx context.Context, argv []string, stdin []byte) error {
	run := m.Client.Run
	if m.Client.Sudo() {
		run = m.Client.RunRoot
	}
	out, err := run(ctx, argv, bytes.NewReader(stdin))
	if text := strings.TrimSpace(string(out.Stdout)); err != nil && text != "" {
		err = fmt.Errorf("%w: %.200s", err, text)
	}
	return err
}

func (m *Manager) restart(ctx context.Context) error {
	if err := m.run(ctx, m.Restart, nil); err != nil {
		return fmt.Errorf("restart sharp_am: %w", err)
	}
	return nil
}

func (m *Manager) write(ctx context.Context, at string, data []byte, mode fs.FileMode) error {
	return m.Client.Replace(ctx, at, data, mode, m.Client.Sudo())
}

func (m *Manager) remove(ctx context.Context, at string) error {
	return m.Client.Remove(ctx, at, m.Client.Sudo())
}
