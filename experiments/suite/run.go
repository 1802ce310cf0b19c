package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
)

// Options are what the person at the keyboard decides about a night.
type Options struct {
	Root     string // directory of run directories
	Tool     string // version of this program
	Runner   Runner
	Resume   bool // go on with the newest night, if it did not come to its end
	Progress func(Step)
}

// Step says how far a night has come.
type Step struct {
	Item     string // "" while figures are held against their history
	Done, Of int
	Attempt  int
	Expected float64 // seconds that the item takes; 0: not known
	// Left is how many seconds it and those after it take, of which All says whether that is known of each.
	Left  float64
	All   bool
	Ended *Done // an item that has ended
}

// Runner does one run of an item. What is wrong with it is in what it returns; a run that is
// stopped by ctx takes everything down before it returns.
type Runner interface {
	Run(ctx context.Context, r Request) Ended
}

// Request is a run that is wanted. Its record must have the Night.
type Request struct {
	Item  Item
	Root  string
	Night results.NightRun
	Log   string // a file for what it prints
}

// Ended is how a run ended.
type Ended struct {
	Exit    int    // the exit code of `inabench run`
	Crashed bool   // Exit is none of its codes
	Message string // what is said of it, where its record does not say it
}

// Run runs a suite for a night. It returns the night with whatever it came to, also with an
// error: one of ctx, or of the store. Another night that is running in the same store is an
// error that wraps testbed.ErrBusy.
func Run(ctx context.Context, s *Suite, o Options) (*Night, error) {
	if err := os.MkdirAll(o.Root, 0o775); err != nil {
		return nil, &experiments.BeginError{Err: fmt.Errorf("create runs: %w", err)}
	}
	unlock, err := lock(o.Root)
	if err != nil {
		return nil, err
	}
	defer unlock()
	nights, err := Nights(o.Root, s.Name)
	if err != nil {
		return nil, &experiments.BeginError{Err: err}
	}
	r := &runner{suite: s, opt: o, nights: nights}
	if err := r.begin(); err != nil {
		return nil, &experiments.BeginError{Err: err}
	}
	err = r.items(ctx)
	return r.night, errors.Join(err, r.end(ctx))
}

// runner is a night in progress.
type runner struct {
	suite  *Suite
	opt    Options
	nights []*Night // before this one
	night  *Night
	began  time.Time
	used   float64 // before it was gone on with
}

func (r *runner) begin() error {
	r.began = time.Now()
	if r.opt.Resume && len(r.nights) > 0 && !r.nights[0].Complete() {
		n := r.nights[0]
		if n.File.SHA256 != r.suite.File.SHA256 {
			return fmt.Errorf("%w: go on with night %s: %s has changed since; run it without --resume", spec.ErrInput, n.ID, r.suite.File.Path)
		}
		// What it is to run, and where, is in it: commands too.
		st, err := os.Lstat(filepath.Join(r.opt.Root, Folder, n.ID, File))
		if err == nil {
			err = cmp.Or(bounded.Regular(st.Mode()), bounded.Own(st))
		}
		if err != nil {
			return fmt.Errorf("%w: go on with night %s: %w; run it without --resume", spec.ErrInput, n.ID, err)
		}
		r.night, r.nights, r.used = n, r.nights[1:], n.Used
		n.Resumed++
		n.Tool = r.opt.Tool
		for i := range n.Items {
			d := &n.Items[i]
			if d.Status != Running {
				continue
			}
			// A run that nobody waited for may have come to its end all the same.
			d.Status = Waiting
			if a := d.last(); a != nil && a.Run == "" {
				a.Class, a.Message = Stopped, "the night was killed"
				if dir, _ := find(r.opt.Root, r.request(d).Night, a.Started); dir != "" {
					a.Run = dir
				}
			}
		}
		return n.save(r.opt.Root)
	}
	r.night = &Night{
		Schema: Schema, Suite: r.suite.Name, Title: r.suite.Title, File: r.suite.File, Tool: r.opt.Tool, Machine: machine(), Started: r.began.UTC(),
		Budget: r.suite.Budget.Std().Seconds(), Items: r.suite.Plan(r.nights), Outcome: results.ErrorOutcome,
		Moves: []Move{}, Culprits: []Culprit{},
	}
	return r.night.create(r.opt.Root)
}

// save keeps what there is. A night that cannot be written down would be lost as a whole, so
// it ends there.
func (r *runner) save() error {
	r.night.Used = r.used + time.Since(r.began).Seconds()
	return r.night.save(r.opt.Root)
}

// left is how many seconds of the budget are left; ok is false without a budget.
func (r *runner) left() (s float64, ok bool) {
	return r.night.Budget - r.used - time.Since(r.began).Seconds(), r.night.Budget > 0
}

func (r *runner) items(ctx context.Context) error {
	for i := range r.night.Items {
		d := &r.night.Items[i]
		if d.Status != Waiting {
			continue
		}
		if ctx.Err() != nil {
			d.Status, d.Message = Interrupt, "not begun"
			continue
		}
		if left, ok := r.left(); ok && (left <= 0 || d.Expected > left) {
			d.Status, d.Message = Left, fmt.Sprintf("%s of the budget were left", elapsed(max(0, left)))
			if d.Expected > 0 {
				d.Message += ", it takes " + elapsed(d.Expected)
			}
			r.step(Step{Done: i, Ended: d})
			continue
		}
		if err := r.item(ctx, i); err != nil {
			return err
		}
		r.step(Step{Done: i + 1, Ended: d})
	}
	return r.save()
}

func (r *runner) step(s Step) {
	if s.Of = len(r.night.Items); r.opt.Progress != nil {
		r.opt.Progress(s)
	}
}

func (r *runner) request(d *Done) Request {
	return Request{Item: d.Item, Root: r.opt.Root, Night: results.NightRun{
		Suite: r.night.Suite, Night: r.night.ID, Item: d.Name, Attempt: len(d.Attempts),
	}}
}

// item runs one item, again while the suite says so.
func (r *runner) item(ctx context.Context, i int) error {
	d := &r.night.Items[i]
	tries := map[Class]int{}
	for {
		d.Status = Running
		d.Attempts = append(d.Attempts, Attempt{Started: time.Now().UTC()})
		a := d.last()
		req := r.request(d)
		a.Log = strings.Map(plain, d.Name) + fmt.Sprintf("-%d.log", req.Night.Attempt)
		req.Log = filepath.Join(r.night.Path(r.opt.Root), a.Log)
		if err := r.save(); err != nil {
			return err
		}
		step := Step{Item: d.Name, Done: i, Attempt: req.Night.Attempt, Expected: d.Expected, All: true}
		for _, e := range r.night.Items[i:] {
			if e.Status == Waiting || e.Status == Running {
				step.Left += e.Expected
				step.All = step.All && e.Expected > 0
			}
		}
		r.step(step)
		limit, budget := seconds(d.Timeout), false
		if left, ok := r.left(); ok && seconds(left) < limit {
			limit, budget = seconds(left), true
		}
		timed, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
		ended := r.opt.Runner.Run(timed, req)
		expired := ctx.Err() == nil && timed.Err() != nil
		cancel()
		a.Seconds = time.Since(a.Started).Seconds()
		a.Exit = ended.Exit
		dir, rec := find(r.opt.Root, req.Night, a.Started)
		a.Run = dir
		a.classify(ended, rec)
		switch {
		case expired && a.Exit != 0 && a.Exit != 1: // it was stopped, whatever it says
			a.Class, a.Message = Timeout, fmt.Sprintf("stopped after %s", elapsed(limit.Seconds()))
			if budget {
				a.Class, a.Message = Stopped, "stopped at the end of the budget"
			}
		case ctx.Err() != nil && a.Exit != 0 && a.Exit != 1:
			a.Class, a.Message = Stopped, "stopped"
		}
		d.conclude(a, budget && expired)
		again := tries[a.Class] < r.suite.Retry.more(a.Class) && ctx.Err() == nil
		if left, ok := r.left(); again && ok && left <= d.Expected {
			again = false
			d.Message += fmt.Sprintf("; not tried again: %s of the budget were left", elapsed(max(0, left)))
		}
		if !again {
			if n := len(d.Attempts); n > 1 {
				d.Message = strings.TrimPrefix(fmt.Sprintf("%s; %d attempts", d.Message, n), "; ")
			}
			return r.save()
		}
		tries[a.Class]++
	}
}

// plain is a letter of a file's name.
func plain(c rune) rune {
	if c == '/' || c == 0 || c == '\n' {
		return '_'
	}
	return c
}

var errTimeout = errors.New("it took too long")

// classify says of an attempt why it ended as it did.
func (a *Attempt) classify(e Ended, rec *results.Record) {
	a.Message = e.Message
	if rec != nil && len(rec.Reasons) > 0 {
		a.Message = rec.Reasons[0]
	}
	a.Wrong = wrong(rec)
	switch {
	case e.Crashed:
		a.Class, a.Message = Crash, cmp.Or(e.Message, "it crashed")
		return
	case e.Exit == 0 && a.Run == "":
		a.Class, a.Message = Crash, "it left no run"
		return
	}
	switch e.Exit {
	case 0:
		a.Message = ""
	case 1:
		a.Class = Verdict
		if rec != nil {
			a.Message = failed(rec)
		}
	case 2, 3:
		a.Class = Input
	case 4:
		a.Class = Infeasible
	case 5:
		a.Class = Unsupported
	case 6:
		a.Class = Testbed
		if rec == nil {
			break
		}
		if what := failed(rec); what != "" { // a testbed that breaks does not undo that
			a.Class, a.Message = Verdict, what
		} else if rec.Failure != nil {
			a.Class, a.Of = Class(rec.Failure.Kind), rec.Failure.Of
		}
	case 7:
		a.Class = Inconclusive
		if rec != nil && rec.Outcome == results.NotJudged {
			a.Class = NotJudged
		}
	case 8:
		a.Class = Busy
	case 9:
		a.Class = Leftovers
	case 129, 130, 143:
		a.Class = Stopped
	default:
		a.Class, a.Message = Crash, fmt.Sprintf("exit code %d", e.Exit)
	}
}

// failed is the first check of a record that failed, and how many more did.
func failed(rec *results.Record) string {
	first, n := firstFailed(rec, func(results.Check) bool { return true })
	if n > 1 {
		first += fmt.Sprintf(", and %d more", n-1)
	}
	return first
}

// firstFailed is the first check of a record that failed and is such a one, and how many there are.
func firstFailed(rec *results.Record, such func(results.Check) bool) (first string, n int) {
	for _, c := range rec.Checks {
		if c.Gate && c.Outcome == results.Fail && such(c) {
			if n++; n == 1 {
				first = strings.TrimSpace(c.Expect+" "+c.Of) + ": " + c.Message()
			}
		}
	}
	return first, n
}

// wrong is the first check of a record that says of its figures that they are untrue: sums that are wrong, or counters
// that do not tell of the same traffic; "" if there is none.
func wrong(rec *results.Record) string {
	if rec == nil {
		return ""
	}
	first, _ := firstFailed(rec, func(c results.Check) bool {
		return c.Code == results.CodeSums || c.Code == results.CodeCounters || c.Metric == "sum_errors"
	})
	return first
}

// conclude is what an item is after an attempt.
func (d *Done) conclude(a *Attempt, budget bool) {
	d.Message = a.Message
	switch {
	case budget && a.Class == Stopped:
		d.Status = Left
	case a.Class == Stopped:
		d.Status = Interrupt
	case a.Class == Fine && d.Xfail != "":
		d.Status, d.Message = Xpassed, "passed, and was expected to fail: "+d.Xfail+"; take xfail out of the suite if this is mended"
	case a.Class == Fine:
		d.Status = Passed
	case a.Class == Verdict && d.Xfail != "" && a.Wrong != "":
		d.Status, d.Message = Failed, a.Wrong+"; no xfail excuses that"
	case a.Class == Verdict && d.Xfail != "":
		d.Status, d.Message = Xfailed, d.Xfail
	case a.Class == Verdict:
		d.Status = Failed
	case a.Class == Inconclusive, a.Class == NotJudged:
		d.Status = Undecided
	default:
		d.Status = Broken
		if a.Of != "" && !strings.Contains(a.Message, a.Of) {
			d.Message = fmt.Sprintf("%s %s: %s", a.Class, a.Of, a.Message)
		}
	}
}

// find is the run directory of a request and its record, among those that began since then.
func find(root string, of results.NightRun, since time.Time) (dir string, rec *results.Record) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return "", nil
	}
	first := since.UTC().Add(-time.Second).Format("2006-01-02T15-04-05Z")
	for i := len(entries) - 1; i >= 0; i-- { // by name, which is by time
		e := entries[i]
		if !e.IsDir() || e.Name() < first || e.Name()[0] < '0' || e.Name()[0] > '9' || !results.PlainName(e.Name()) {
			continue
		}
		rec, err := results.ReadRecord(filepath.Join(root, e.Name()))
		if err == nil && rec.Night != nil && *rec.Night == of {
			return e.Name(), rec
		}
	}
	return "", nil
}

// end judges the night and writes it down. What a person has stopped is judged as far as it
// came.
func (r *runner) end(ctx context.Context) error {
	n := r.night
	r.step(Step{Done: len(n.Items)})
	quiet := context.WithoutCancel(ctx)
	x, err := history.OpenOrRead(quiet, r.opt.Root)
	if err == nil {
		err = errors.Join(n.judge(quiet, x, r.opt.Root, r.suite.Judge), x.Close())
	}
	if err != nil { // its verdicts stand all the same
		err = fmt.Errorf("figures against their history: %w", err)
	}
	n.compare(r.nights)
	n.conclude(err)
	if err == nil || ctx.Err() == nil {
		n.Finished = time.Now().UTC()
	}
	var junit, md strings.Builder
	werr := errors.Join(WriteJUnit(&junit, r.opt.Root, n), WriteMarkdown(&md, n))
	if werr == nil {
		dir := &results.Dir{Path: n.Path(r.opt.Root)}
		werr = errors.Join(dir.WriteFile(JUnitFile, []byte(junit.String())), dir.WriteFile(Summary, []byte(md.String())))
	}
	return errors.Join(werr, r.save())
}

// count is how many items have one of the statuses.
func (n *Night) count(of ...Status) (c int) {
	for _, d := range n.Items {
		if slices.Contains(of, d.Status) {
			c++
		}
	}
	return c
}

// worse are the figures that make the night fail.
func (n *Night) worse() (out []Move) {
	for _, m := range n.Moves {
		if m.counts() {
			out = append(out, m)
		}
	}
	return out
}

// conclude decides the night's outcome.
func (n *Night) conclude(judging error) {
	add := func(format string, args ...any) { n.Reasons = append(n.Reasons, fmt.Sprintf(format, args...)) }
	n.Reasons = nil
	for _, d := range n.Items {
		switch d.Status {
		case Failed, Xpassed:
			add("%s: %s", d.Name, d.Message)
		}
	}
	worse := n.worse()
	for i, m := range worse {
		if i == 3 && len(worse) > 4 {
			add("and %d more figures are worse than they were", len(worse)-i)
			break
		}
		add("%s", m)
	}
	bad := len(n.Reasons) > 0
	for _, d := range n.Items {
		if d.Status == Broken || d.Status == Undecided {
			add("%s: %s", d.Name, d.Message)
		}
	}
	if judging != nil {
		add("%v", judging)
	}
	switch ran := n.count(Passed, Failed, Xfailed, Xpassed, Undecided, Broken); {
	case bad:
		n.Outcome = results.Fail
	case n.count(Broken) > 0 || judging != nil:
		n.Outcome = results.ErrorOutcome
	case n.count(Undecided) > 0:
		n.Outcome = results.Inconclusive
	case n.count(Interrupt, Waiting, Running) > 0:
		n.Outcome = results.Inconclusive
		add("stopped before %d of %d items had come to their end", n.count(Interrupt, Waiting, Running), len(n.Items))
	case ran == 0:
		n.Outcome = results.Inconclusive
		add("nothing was run to its end")
	default:
		n.Outcome = results.Pass
	}
}

// ExitCode is the exit code of a night: that of its outcome; of one that the testbed
// limited, the code of all items that it limited if that is one.
func (n *Night) ExitCode() int {
	code := results.ExitCode(n.Outcome)
	if n.Outcome != results.ErrorOutcome {
		return code
	}
	var codes []int
	for i := range n.Items {
		d := &n.Items[i]
		if a := d.last(); d.Status == Broken && a != nil && (a.Exit == 9 || a.Class == Unsupported || a.Class == Infeasible || a.Class == Busy) {
			codes = append(codes, a.Exit)
		} else if d.Status == Broken {
			codes = append(codes, code)
		}
	}
	if slices.Contains(codes, 9) { // whatever else went wrong is over
		return 9
	}
	if slices.Sort(codes); len(slices.Compact(codes)) == 1 {
		return codes[0]
	}
	return code
}

// compare notes what is different since the last good night.
func (n *Night) compare(before []*Night) {
	n.LastGood, n.News = "", nil
	add := func(format string, args ...any) { n.News = append(n.News, fmt.Sprintf(format, args...)) }
	i := slices.IndexFunc(before, func(b *Night) bool { return b.Complete() && b.Outcome == results.Pass })
	if i < 0 {
		return
	}
	good := before[i]
	n.LastGood = good.ID
	if good.Tool != n.Tool {
		add("inabench %s, was %s", n.Tool, good.Tool)
	}
	if good.Machine != n.Machine {
		add("machine %s, was %s", n.Machine, good.Machine)
	}
	for _, d := range n.Items {
		old, ok := good.Item(d.Name)
		switch {
		case !ok:
			add("%s is new", d.Name)
			continue
		case old.Sum != d.Sum:
			add("%s: its files changed", d.Name)
		}
		if old.Status != d.Status {
			add("%s: %s, was %s", d.Name, d.Status, old.Status)
		}
	}
	for _, d := range good.Items {
		if _, ok := n.Item(d.Name); !ok {
			add("%s is not in the suite any more", d.Name)
		}
	}
	for _, m := range n.Moves {
		if m.SinceStarted.After(good.Started) && m.Effect != Worse {
			add("%s", m)
		}
	}
}

// machine is what nights run on, in words.
func machine() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // it is for people
	return fmt.Sprintf("%d cores, kernel %s", runtime.NumCPU(), unix.ByteSliceToString(u.Release[:]))
}
