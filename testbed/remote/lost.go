package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/supervise"
)

// defaultPatience is Options.Patience.
const defaultPatience = 20 * time.Second

// ErrRebooted is wrapped by the error of a host that was started again while it was in use.
var ErrRebooted = errors.New("rebooted")

// boot is one start of a host.
type boot struct {
	id string    // empty: it does not say
	at time.Time // by its own clock; zero: it does not say
}

// readBoot asks a host when it was started.
func readBoot(ctx context.Context, client hosts.Host) (b boot, err error) {
	files := client.ReadFilesOf(ctx, bounded.Line, supervise.BootIDFile, "/proc/stat") // more than small, with hundreds of CPUs
	for _, f := range files {
		if f.Err != nil && !errors.Is(f.Err, fs.ErrNotExist) && !errors.Is(f.Err, fs.ErrPermission) {
			return boot{}, f.Err
		}
	}
	b.id = strings.TrimSpace(string(files[0].Data))
	b.at, _ = supervise.BootTime(files[1].Data) // not every kernel says
	return b, nil
}

// lostNode is a host or switch whose connection broke, and what was found out about it.
type lostNode struct {
	err  error
	what string
	hint string
	back bool // it answers again
}

func (e *lostNode) Error() string { return fmt.Sprintf("%v; %s", e.err, e.what) }
func (e *lostNode) Unwrap() error { return e.err }

// Hint is what to do about it.
func (e *lostNode) Hint() string { return e.hint }

// rebooted is a host that was started again.
type rebooted struct {
	host string
	at   string
	err  error // how its connection broke
}

func (e *rebooted) Error() string { return fmt.Sprintf("host %s: %v %s", e.host, ErrRebooted, e.at) }

// Blames is the host.
func (e *rebooted) Blames() blame.Part { return blame.Part{Kind: blame.KindHost, Node: e.host} }
func (e *rebooted) Unwrap() []error {
	return []error{ErrRebooted, e.err}
}

// Hint is what to do about it.
func (e *rebooted) Hint() string {
	return fmt.Sprintf("what it did before is on it: journalctl -b -1 -e, or last -x; nothing of the run is left on host %s", e.host)
}

// investigate says why the connection to a host broke, as far as the host itself can: it is
// asked again for as long as the testbed is patient.
func (tb *Testbed) investigate(ctx context.Context, name string) error {
	lost := tb.hosts[name].Err()
	h, _ := tb.inv.Host(name)
	noticed := time.Now()
	ctx, cancel := context.WithTimeout(ctx, tb.opt.Patience)
	defer cancel()
	o := tb.reaching()
	o.Timeout = max(tb.opt.Patience/4, time.Second)
	for {
		client, err := reach.Dial(ctx, reach.To(tb.inv, *h), o)
		if err == nil {
			var now boot
			if now, err = readBoot(ctx, client); err == nil && tb.opt.Run != "" { // or else it ends by itself
				_, _ = supervise.Ask(ctx, client, tb.agentPath[name], "end", tb.opt.Run)
			}
			client.Close()
			if err == nil {
				return tb.compare(name, lost, now)
			}
		}
		select {
		case <-time.After(tb.opt.Patience / 20):
		case <-ctx.Done():
			return &lostNode{err: lost, what: fmt.Sprintf("it has not answered for another %s: %v",
				human.Elapsed(time.Since(noticed)), cause(err)), hint: "is it on, is its cable in, does its SSH server run? What runs there ends by itself"}
		}
	}
}

// cause is what an error of the connection is about, without the host, which the reader knows.
func cause(err error) error {
	var e *hosts.Error
	if errors.As(err, &e) {
		return fmt.Errorf("%w: %w", e.Kind, e.Err)
	}
	return err
}

// answers reports whether investigate says that a host answers again.
func answers(err error) bool {
	var e *lostNode
	return errors.Is(err, ErrRebooted) || errors.As(err, &e) && e.back
}

// compare says what became of a host that answers again.
func (tb *Testbed) compare(name string, lost error, now boot) error {
	before := tb.boots[name]
	if now.id == before.id || before.id == "" || now.id == "" {
		return &lostNode{lost, "it answers again and was not rebooted", "its SSH server was restarted, or the network between was cut for a while", true}
	}
	at := fmt.Sprintf("after %s", tb.opened.Format("15:04:05"))
	if now.at.After(before.at.Add(2 * time.Second)) { // otherwise its clock says nothing
		at = fmt.Sprintf("at %s by its clock", now.at.Format("2006-01-02 15:04:05"))
	}
	return &rebooted{name, at, lost}
}

// boot remembers when the hosts were started.
func (tb *Testbed) boot(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(tb.hosts))
	boots := make([]boot, len(names))
	err := parallel.Limit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) (err error) {
		boots[i], err = readBoot(ctx, tb.hosts[names[i]])
		return err
	})
	for i, name := range names {
		tb.boots[name] = boots[i]
	}
	return err
}

// Lost waits until a host, a switch, or the lease of one is lost, and says why. ok is false where ctx has ended before.
func (tb *Testbed) Lost(ctx context.Context) (why error, ok bool) {
	over := []<-chan struct{}{ctx.Done()}
	for _, c := range tb.hosts {
		over = append(over, c.Done())
	}
	for _, c := range tb.planes {
		over = append(over, c.Lost())
	}
	if tb.held != nil {
		over = append(over, tb.held.Lost())
	}
	cases := make([]reflect.SelectCase, len(over))
	for i, c := range over {
		cases[i] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
	}
	if i, _, _ := reflect.Select(cases); i == 0 {
		return nil, false
	}
	return tb.lost(ctx), true
}

// Sound reports whether all hosts and switches are there after something has failed with err, so that they are not to blame.
func (tb *Testbed) Sound(ctx context.Context, err error) bool {
	for _, c := range tb.hosts {
		if c.Err() != nil {
			return false
		}
	}
	for _, c := range tb.planes {
		if c.Err() != nil {
			return false
		}
	}
	// What ran on a host that goes down ends first, and a switch that does not answer may not
	// have been given up yet.
	names := slices.Sorted(maps.Keys(tb.hosts))
	alive := parallel.Limit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, tb.opt.Patience)
		defer cancel()
		_, err := readBoot(ctx, tb.hosts[names[i]])
		return err
	})
	if alive != nil {
		return false
	}
	var sw *dataplane.Error
	if errors.As(err, &sw) && tb.planes[sw.Switch] != nil {
		select {
		case <-tb.planes[sw.Switch].Lost():
			return false
		case <-time.After(tb.opt.Patience / 4):
		case <-ctx.Done():
		}
	}
	return true
}

// lost says which hosts and switches were lost since the testbed was opened, and why.
func (tb *Testbed) lost(ctx context.Context) error {
	held := tb.Held(ctx)
	if errors.Is(held, lease.ErrTaken) {
		return held // what else is wrong came of that
	}
	if err := tb.dead(); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(tb.hosts))
	errs := make([]error, len(names))
	_ = parallel.Limit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) error {
		if tb.hosts[names[i]].Err() != nil {
			errs[i] = tb.investigate(ctx, names[i])
		}
		return nil // the others are as interesting
	})
	if tb.alone() && !slices.ContainsFunc(errs, answers) {
		return &lostNode{err: tb.hosts[names[0]].Err(), what: fmt.Sprintf("so are all %d hosts", len(names)),
			hint: "is this machine's own network up? What runs on hosts ends by itself"}
	}
	back, cancel := context.WithTimeout(ctx, tb.opt.Patience/4) // all of them have the same time to come back
	defer cancel()
	planes := slices.Sorted(maps.Keys(tb.planes))
	gone := make([]error, len(planes))
	_ = parallel.Every(len(planes), len(planes), func(i int) error {
		if err := tb.planes[planes[i]].Explain(back); err != nil {
			gone[i] = tb.lookAt(ctx, planes[i], err)
		}
		return nil
	})
	if err := errors.Join(append(errs, gone...)...); err != nil {
		return err
	}
	return held
}

// lookAt says whether a switch that was lost with err answers at all: err alone where ctx ends before that is known.
func (tb *Testbed) lookAt(ctx context.Context, name string, err error) error {
	sw, ok := tb.inv.Switch(name)
	if !ok {
		return err
	}
	d := net.Dialer{Timeout: tb.opt.Patience / 4}
	conn, dial := d.DialContext(ctx, "tcp", sw.Control)
	switch {
	case dial == nil:
		conn.Close()
		return err // which says it
	case errors.Is(dial, unix.ECONNREFUSED):
		return &lostNode{err: err, what: "nothing listens at " + sw.Control + " any more", hint: "its P4Runtime server has ended: look at its log, and start it again"}
	case ctx.Err() != nil:
		return err
	}
	return &lostNode{err: err, what: sw.Control + " does not answer any more", hint: "is the switch on, and its management cable in?"}
}

// alone reports whether no host is connected any more, of several.
func (tb *Testbed) alone() bool {
	for _, c := range tb.hosts {
		if c.Err() == nil {
			return false
		}
	}
	return len(tb.hosts) > 1
}

// dead is what an emulation knows of hosts and switches whose processes have ended, a moment
// after their connections may have.
func (tb *Testbed) dead() error {
	f, ok := tb.opt.Fabric.(interface {
		Failed() <-chan struct{}
		Err() error
	})
	if !ok {
		return nil
	}
	select {
	case <-f.Failed():
	case <-time.After(tb.opt.Patience / 40):
	}
	return f.Err()
}
