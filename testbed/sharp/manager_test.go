package sharp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/sharp"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/sshd/sshdtest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// head is a host that sharp_am runs on: a directory with its configuration, and a program that
// restarts it, which counts how often.
type head struct {
	sharp.Manager
	dir string
}

const configText = "# of the fabric\nib_sl 0\nper_prio_default_quota 20 # percent\nlog_verbosity = 3\n"

func newHead(t *testing.T, restart string) *head {
	t.Helper()
	h := &head{dir: t.TempDir()}
	target := sshdtest.Serve(t, &sshd.Server{Dir: h.dir})
	target.Name = "head"
	h.write(t, "sharp_am.cfg", configText)
	h.write(t, "restart", "#!/bin/sh\ncd \"$(dirname \"$0\")\" && echo x >>restarts\n"+restart+"\n")
	if err := os.Chmod(filepath.Join(h.dir, "restart"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.Manager = sharp.Manager{Client: sshdtest.Dial(t, target), Target: "host head", Config: filepath.Join(h.dir, "sharp_am.cfg"), Restart: []string{filepath.Join(h.dir, "restart")}}
	return h
}

func (h *head) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// read is a file of the host; empty: there is none.
func (h *head) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(h.dir, name))
	return string(text)
}

func (h *head) restarts() int { return strings.Count(h.read("restarts"), "x") }

func newJournal(t *testing.T) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.TempDir(), journal.Header{Run: "run", Owner: "me", Began: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func options(t *testing.T, texts ...string) (out []sharp.Option) {
	t.Helper()
	for _, text := range texts {
		o, err := sharp.ParseOption(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// A change is made, its inverse is journalled before, and Undo leaves nothing of it.
func TestApply(t *testing.T) {
	h, log := newHead(t, ""), newJournal(t)
	a, err := h.Apply(t.Context(), sharp.Change{
		Set: options(t, "per_prio_default_quota 50", "max_trees_to_build = 4"), RootGUIDs: []inventory.GUID{0xb8599f0300100200}, Trees: []byte("tree 0\n"),
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"- per_prio_default_quota 20", "+ per_prio_default_quota 50", "+ max_trees_to_build 4",
		"+ root_guids_file " + h.dir + "/inabench_root_guids.cfg", "+ trees_file " + h.dir + "/inabench_trees.cfg"}
	if strings.Join(a.Diff, "\n") != strings.Join(want, "\n") {
		t.Errorf("diff:\n%s\nwant:\n%s", strings.Join(a.Diff, "\n"), strings.Join(want, "\n"))
	}
	if text := h.read("sharp_am.cfg"); !strings.Contains(text, "per_prio_default_quota 50 # percent\nlog_verbosity = 3\n") {
		t.Errorf("configuration: %s", text)
	}
	if h.read("inabench_root_guids.cfg") != "0xb8599f0300100200\n" || h.read("inabench_trees.cfg") != "tree 0\n" || h.restarts() != 1 {
		t.Errorf("roots %q, trees %q, %d restarts", h.read("inabench_root_guids.cfg"), h.read("inabench_trees.cfg"), h.restarts())
	}
	var undo []string
	for _, e := range log.Log().Undone() {
		undo = append(undo, e.Undo.String())
	}
	if len(undo) != 4 || !strings.HasPrefix(undo[0], "put back") && !strings.HasPrefix(undo[3], "put back") {
		t.Errorf("the journal has %q", undo)
	}
	for range 2 { // once more does nothing
		if err := a.Undo(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if h.read("sharp_am.cfg") != configText || h.read("inabench_trees.cfg") != "" || h.restarts() != 2 || len(log.Log().Undone()) != 0 {
		t.Errorf("left: %q, %q, %d restarts, %d in the journal", h.read("sharp_am.cfg"), h.read("inabench_trees.cfg"), h.restarts(), len(log.Log().Undone()))
	}
}

// A configuration stays whose it is, in its mode and behind its link, while it is another one and when it was put back.
func TestApplyKeeps(t *testing.T) {
	for name, owner := range map[string]int{"of the user": os.Getuid(), "of another": 65534} {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 && owner != os.Getuid() {
				testbedtest.Require(t, "root", errors.New("only root can give files away"))
			}
			h, log := newHead(t, ""), newJournal(t)
			file := filepath.Join(h.dir, "kept.cfg")
			if err := errors.Join(os.Rename(h.Config, file), os.Chown(file, owner, -1), os.Chmod(file, 0o640), os.Symlink("kept.cfg", h.Config)); err != nil {
				t.Fatal(err)
			}
			kept := func(when string) {
				t.Helper()
				st, err := os.Stat(file)
				if err != nil {
					t.Fatal(err)
				}
				to, err := os.Readlink(h.Config)
				if uid := int(st.Sys().(*syscall.Stat_t).Uid); err != nil || to != "kept.cfg" || uid != owner || st.Mode() != 0o640 {
					t.Errorf("%s: %v, a link to %q, owner %d, mode %v", when, err, to, uid, st.Mode())
				}
			}
			a, err := h.Apply(t.Context(), sharp.Change{Set: options(t, "per_prio_default_quota 50")}, log)
			if err != nil {
				t.Fatal(err)
			}
			if text := h.read("kept.cfg"); !strings.Contains(text, "per_prio_default_quota 50") {
				t.Errorf("changed: %s", text)
			}
			kept("changed")
			if err := a.Undo(t.Context()); err != nil {
				t.Fatal(err)
			}
			if text := h.read("kept.cfg"); text != configText {
				t.Errorf("put back: %s", text)
			}
			kept("put back")
		})
	}
}

// What says so already is left alone: a restart would end everybody's trees.
func TestApplyNothing(t *testing.T) {
	h := newHead(t, "")
	a, err := h.Apply(t.Context(), sharp.Change{Set: options(t, "per_prio_default_quota 20")}, nil)
	if err != nil || len(a.Diff) != 0 || h.restarts() != 0 {
		t.Errorf("%v, %v, %d restarts", a, err, h.restarts())
	}
	if err := a.Undo(t.Context()); err != nil || h.restarts() != 0 {
		t.Errorf("undo: %v, %d restarts", err, h.restarts())
	}
}

// What is another's by now is left alone: what it wrote, and the manager, a restart of which would end its trees.
func TestUndoOfAnother(t *testing.T) {
	for _, test := range []struct {
		name   string
		theirs string // what is in the configuration by now; empty: the same
		taken  bool
		left   string // the option as it is then
		starts int
		kept   int // entries that the journal has still
	}{
		{name: "still ours", left: "per_prio_default_quota 20", starts: 2},
		{name: "they wrote something else", theirs: "per_prio_default_quota 70\n", left: "per_prio_default_quota 70", starts: 1},
		{name: "they took the lease, and want the same", taken: true, left: "per_prio_default_quota 50", starts: 1, kept: 2},
	} {
		h, log := newHead(t, ""), newJournal(t)
		h.Taken = func(context.Context) bool { return test.taken }
		a, err := h.Apply(t.Context(), sharp.Change{Set: options(t, "per_prio_default_quota 50")}, log)
		if err != nil {
			t.Fatal(err)
		}
		if test.theirs != "" {
			h.write(t, "sharp_am.cfg", test.theirs)
		}
		err = a.Undo(t.Context())
		if text := h.read("sharp_am.cfg"); errors.Is(err, sharp.ErrNotPutBack) != test.taken || !strings.Contains(text, test.left) || h.restarts() != test.starts || len(log.Log().Undone()) != test.kept {
			t.Errorf("%s: %v, %d restarts, %d in the journal, left %s", test.name, err, h.restarts(), len(log.Log().Undone()), text)
		}
	}
}

// What goes wrong is said, and what was changed is put back.
func TestApplyFails(t *testing.T) {
	for _, test := range []struct {
		name, restart string
		config        string
		set           string
		want          error
		says          string
	}{
		{"UFM writes it anew", `[ -e once ] || { touch once; echo "ib_sl 0" >sharp_am.cfg; }`, configText, "per_prio_default_quota 50", sharp.ErrRewritten, "gv.cfg"},
		{"the manager does not start", `[ -e once ] || { touch once; echo "bad option" >&2; exit 3; }`, configText, "per_prio_default_quota 50", nil, "bad option"},
		{"a configuration with a mistake", "", "per_prio_default_quota much\n", "ib_sl 1", nil, "sharp_am.cfg:1"},
		{"a value that cannot be", "", configText, "per_prio_default_quota 120", nil, "per_prio_default_quota"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, log := newHead(t, test.restart), newJournal(t)
			h.write(t, "sharp_am.cfg", test.config)
			var err error
			o, perr := sharp.ParseOption(test.set)
			if perr == nil {
				_, err = h.Apply(t.Context(), sharp.Change{Set: []sharp.Option{o}}, log)
			} else {
				err = perr
			}
			if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error()+tomlfile.HintOf(err), test.says) {
				t.Errorf("%v (%s), want %q", err, tomlfile.HintOf(err), test.says)
			}
			if text := h.read("sharp_am.cfg"); text != test.config && test.want == nil {
				t.Errorf("left: %s", text)
			}
			if n := len(log.Log().Undone()); n != 0 {
				t.Errorf("%d changes are not undone", n)
			}
		})
	}
	h := newHead(t, "")
	h.Config += ".none"
	if _, err := h.Apply(t.Context(), sharp.Change{}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no configuration: %v", err)
	}
}

// UFM of April 2026: reservations can be seen, and not made.
func TestRemoved(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.Header.Get("Authorization") != "Basic token" {
				w.WriteHeader(code)
				return
			}
			fmt.Fprint(w, `{"anas1": {"pkey": "0x12", "guids": ["0x248a0703008a850a"]}}`)
		}))
		defer s.Close()
		r, err := sharp.NewReservations(sharp.UFMOf(s.URL, "v3", func(name string) string {
			return map[string]string{"INABENCH_UFM_TOKEN": "token"}[name]
		}))
		if err != nil {
			t.Fatal(err)
		}
		if list, err := r.List(t.Context()); err != nil || len(list) != 1 || list[0].PKey != "0x12" {
			t.Fatalf("list: %v, %v", list, err)
		}
		want := sharp.Reservation{App: "anas1", GUIDs: []string{"0x248a0703008a850a"}}
		_, create := r.Create(t.Context(), want)
		for what, err := range map[string]error{"create": create, "delete": r.Delete(t.Context(), "anas1")} {
			if !errors.Is(err, sharp.ErrRemoved) || !strings.Contains(tomlfile.HintOf(err), "pkeys") {
				t.Errorf("%d: %s: %v (%s)", code, what, err, tomlfile.HintOf(err))
			}
		}
	}
}
