package training

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/mina/controller"
)

// nowhere is hosts that nothing must be started on.
type nowhere struct{ Hosts }

func (nowhere) Inventory() *inventory.Inventory {
	return &inventory.Inventory{Hosts: []inventory.Host{{Name: "h1"}, {Name: "h2"}, {Name: "h3"}}}
}

// Jobs that can never run are refused before anything is started, with their names.
func TestImpossible(t *testing.T) {
	for _, c := range []struct {
		jobs []Job
		want string
	}{
		{steps(1, 2, 4), "job B: impossible job: it asks for 4 hosts, and there are 3"},
		{steps(1, 0), "job A: impossible job: it asks for 0 hosts"},
		{steps(0, 2), "job A: impossible job: 0 steps"},
		{[]Job{{Name: "X", ID: 4096, Hosts: 1, Steps: 1}}, "job X: impossible job: its number 4096 is not within 1 to 4095"},
		{append(steps(1, 1), steps(1, 1)...), "job A: impossible job: it has the number of job A"},
	} {
		out, err := Run(t.Context(), Config{Hosts: nowhere{}}, c.jobs)
		if !errors.Is(err, ErrJob) || !strings.HasPrefix(err.Error(), c.want) || out != nil {
			t.Errorf("%v, %v, want %s", out, err, c.want)
		}
	}
	if out, err := Run(t.Context(), Config{Hosts: nowhere{}, Controller: &Process{talk: hosts.NewTalk("", "")}}, nil); err != nil || len(out) != 0 {
		t.Errorf("no jobs: %v, %v", out, err)
	}
}

// The reason is who died without a word, whoever complains first: what others say came of it.
func TestWhy(t *testing.T) {
	said := func(name, what string) *rank {
		return gone(newRank(name, "h"+name), &agent.Event{Event: "error", Error: what})
	}
	lost := func(name string, err error) *rank {
		p := newRank(name, "h"+name)
		p.fail(p.Named(err), true)
		p.fail(errors.New("and again"), false)
		return gone(p)
	}
	died := func(name, what string) *rank { return lost(name, errors.New(what)) }
	ended := gone(newRank("0", "h0"))
	killed := newRank("0", "h0")
	killed.closing = true
	killed.fail(errors.New("killed by us"), true)
	gone(killed)
	stuck := newRank("0", "h0")
	failed := make(chan struct{})
	close(failed)
	for _, c := range []struct {
		ranks []*rank
		want  string
	}{
		{[]*rank{ended, ended}, ""},
		{[]*rank{killed}, ""},
		{[]*rank{said("0", "rank 1 is gone"), died("1", "killed"), ended}, "rank 1 on host h1: killed"},
		{[]*rank{lost("0", blame.Host("h0", errors.New("connection lost"))), stuck}, "rank 0 on host h0: connection lost"},
		{[]*rank{said("0", "no answer"), said("1", "no answer")}, "rank 0 on host h0: no answer\nrank 1 on host h1: no answer"},
		{[]*rank{died("0", "killed"), died("1", "killed")}, "rank 0 on host h0: killed\nrank 1 on host h1: killed"},
	} {
		j := &ranks{all: c.ranks, failed: failed}
		got := ""
		if err := j.wait(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// An outcome adds up what ranks say, of which one may have said nothing.
func TestOutcome(t *testing.T) {
	o := Outcome{Ranks: []agent.Stats{{SumsChecked: 5, Training: &agent.Training{Steps: 3}}, {}, {SumsChecked: 7, SumErrors: 2}}}
	if checked, wrong := o.Sums(); checked != 12 || wrong != 2 || o.Training().Steps != 3 {
		t.Errorf("%d, %d, %+v", checked, wrong, o.Training())
	}
	if o := (Outcome{}); o.Training().Steps != 0 {
		t.Errorf("%+v", o)
	}
}

// A controller is told all that it places a job by.
func TestPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "submitted")
	within(t, time.Minute, func() {
		p, err := Start(t.Context(), nowhere{}, []string{"sh", "-c", `read -r setup; echo '{"event":"ready","ready":{"hosts":"127.0.0.1:1"}}'
			read -r line; echo "$line" >"$0"; echo '{"event":"placed","job":7,"hosts":["h2","h1"]}'; cat >/dev/null`, file}, controller.Setup{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if on, err := p.Place(t.Context(), Job{Name: "A", ID: 7, Hosts: 2, Gain: 1.5, Demand: .25}); err != nil || !slices.Equal(on, []string{"h2", "h1"}) {
			t.Errorf("%v, %v", on, err)
		}
	})
	text, err := os.ReadFile(file)
	var c controller.Command
	if err = errors.Join(err, json.Unmarshal(text, &c)); err != nil {
		t.Fatal(err)
	}
	if want := (controller.Submission{ID: 7, Name: "A", N: 2, Gain: 1.5, Demand: .25}); !reflect.DeepEqual(c.Submit, want) {
		t.Errorf("%+v, want %+v", c.Submit, want)
	}
}

// A controller that cannot work says why, and is gone.
func TestStartFails(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want string
	}{
		{controllerArgv(), "the MINA controller has ended: no inventory"},
		{[]string{"/does/not/exist"}, "start the MINA controller"},
		{[]string{"true"}, "the MINA controller has ended"},
		{[]string{"sh", "-c", "read line; echo who is this"}, `not an event: "who is this"`},
		{[]string{"sh", "-c", "echo out of luck >&2; exit 3"}, "exit status 3: out of luck"},
	} {
		within(t, time.Minute, func() {
			p, err := Start(t.Context(), nowhere{}, c.argv, controller.Setup{})
			if err == nil {
				p.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v, want %q", c.argv, err, c.want)
			}
		})
	}
	// One that says nothing is not waited for when nobody wants it any more.
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
	within(t, time.Minute, func() {
		if _, err := Start(ctx, nowhere{}, []string{"sh", "-c", "cat >/dev/null"}, controller.Setup{}); !errors.Is(err, why) {
			t.Errorf("silent: %v", err)
		}
	})
}
