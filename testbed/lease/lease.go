// Package lease gives hosts and switches to one controller at a time, with plain files in
// a directory on the host and no server.
//
// A resource's history is a sequence of small files, one for every time that it changed
// hands, named by its fencing number:
//
//	host.17        who took it, when, why, and for how long
//	host.17.free   a second name of it: given back
//	host.18        the next one
//
// The file with the highest number says who has the resource. It is had for as long as
// host.17.free is not there and the file is younger than its time to live: a holder renews
// it by writing the same bytes over it, which moves its time of modification; what says
// anything else is left alone. To take the
// resource is to make the next file, with link(2), which is atomic and fails if the name
// is there: of any number of controllers one succeeds. Its content was written, to the
// disk, under another name before, so no lease is ever half written. To give it back is to
// link the second name, which needs no room on a full disk; a file of that name that is not the lease's says
// nothing. Nothing is ever written over
// by somebody else and the highest file is never removed, so numbers only grow and none
// comes twice. (What a host did in the seconds before its own power failed may be undone
// on its disk. Who took a lease then finds it gone, and has lost it.)
//
// All times are the host's: what its clock says when a file is written there. No
// controller's clock is compared with anything, so they may differ. A holder measures with
// its own clock only how long it has not been able to renew, and gives up by itself
// (ErrLost) before the host lets others in. What a host's resources are guarded by beyond
// that is the fencing number: of two that both believe to have the resource, the one with
// the higher number does.
//
// The files of the past are the audit: each one says from whom it took the resource and
// why. Those of the last hour, and the last 32, are kept.
//
// # Tokens
//
// A token tells a holder's files from all others. It is no secret: whoever may read the directory reads it in the
// highest file. With it alone nobody gets anything. Renewing, and taking again what one has, also want the highest
// file to be of the caller's account (Holder.UID), which no one without that account can arrange. Return wants the
// token only; what it does is to make a second name of the lease's file, and that is for the host to allow. A lease was
// given back if its second name is that of a regular file of the same account, with the same content: in a sticky
// directory only the holder's account and root can arrange that, where fs.protected_hardlinks is 1, as it is on all
// usual distributions. Where it is 0, whoever may write to the directory can end a lease. A server of files that names
// no owners leaves the content alone to be compared, which everybody can copy. Whoever puts another file under the second
// name keeps the lease from being given back: it lapses then. All may take a resource over, which says who did. So the
// rights to the directory keep others out; leases keep apart those who have them and follow the rules.
package lease

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/hosts"
)

var (
	// ErrHeld is wrapped when somebody else has the resource; the error is a *HeldError.
	ErrHeld = errors.New("somebody else has it")
	// ErrLost is wrapped when a lease is no longer its holder's.
	ErrLost = errors.New("lease lost")
	// ErrTaken is wrapped, besides, when that is somebody's doing: otherwise it could not be
	// renewed in time.
	ErrTaken = errors.New("by somebody")
)

// takenError is an ErrLost that is an ErrTaken.
type takenError struct{ error }

func (e takenError) Unwrap() error        { return e.error }
func (e takenError) Is(target error) bool { return target == ErrTaken }

// Stamp is when a file was written and whose it is.
type Stamp = hosts.Stamp

// Files is a directory of one host. Names are plain file names.
type Files interface {
	// List returns the names that are there; none if there is no directory.
	List(ctx context.Context) ([]string, error)
	// Read returns a file, and when it was written and by whom. An error wrapping
	// fs.ErrNotExist says there is none; of one wrapping fs.ErrPermission the Stamp is there.
	Read(ctx context.Context, name string) ([]byte, Stamp, error)
	// Create makes a file that is not there, and the directory if need be.
	Create(ctx context.Context, name string, data []byte) (Stamp, error)
	// Rewrite writes data over a file that says just that, which moves its time of modification. Any
	// other, and what a link leads to, stays as it is.
	Rewrite(ctx context.Context, name string, data []byte) (Stamp, error)
	// Link gives a file a second name; an error wrapping fs.ErrExist says that name is
	// taken.
	Link(ctx context.Context, old, name string) error
	// Remove removes a file; one that is not there is no error.
	Remove(ctx context.Context, name string) error
}

// A Place is a resource and where its lease lies.
type Place struct {
	Name  string // for people: "host h1", "switch tor1"
	Key   string // of its files: "host-h1", "switch-10.0.1.1:9559-1"
	Files Files
}

// Controller is the process that holds a lease, on the machine where it runs.
type Controller struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
}

// A Claim is who wants a resource, and how.
type Claim struct {
	Owner      string // a person: "anna@desk"
	Reason     string
	Run        string        // empty: a person holds it, without a process
	TTL        time.Duration // after the last renewal; whole seconds, at least 2
	Controller Controller

	// Token is what tells this holder from all others; empty: a random one.
	Token string
	// Takeover takes the resource from whoever has it, or has reserved it.
	Takeover bool
	// Need is for how long it is needed, as far as that is known: not into a time that somebody else has
	// reserved. 0: who comes does not say. Less: that is nothing to who only tidies up.
	Need time.Duration
}

// Record is what a lease's file says.
type Record struct {
	Owner      string     `json:"owner"`
	Reason     string     `json:"reason,omitempty"`
	Run        string     `json:"run,omitempty"` // empty: a person holds it
	Controller Controller `json:"controller"`
	Token      string     `json:"token"`
	Since      time.Time  `json:"since"` // by the host's clock
	TTL        int64      `json:"ttl"`   // seconds

	// Took is from whom it was taken before its time.
	Took *Past `json:"took,omitempty"`
	// After is who had it before and did not renew it, nor give it back.
	After *Past `json:"after,omitempty"`
	// Beneath is the lock of the person whose run this is: it comes back when the run
	// ends.
	Beneath *Lock `json:"beneath,omitempty"`
}

// plain puts blanks in the place of what does not print in words of others: a name is no line of ours.
func (r *Record) plain() {
	words := []*string{&r.Owner, &r.Reason, &r.Run, &r.Controller.Host}
	for _, p := range []*Past{r.Took, r.After} {
		if p != nil {
			words = append(words, &p.Owner, &p.Reason, &p.Run)
		}
	}
	if b := r.Beneath; b != nil {
		words = append(words, &b.Owner, &b.Reason)
	}
	for _, w := range words {
		*w = printable(*w)
	}
}

func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return ' '
	}, s)
}

// Past is a holder that another has followed.
type Past struct {
	Fencing uint64    `json:"fencing"`
	Owner   string    `json:"owner"`
	Reason  string    `json:"reason,omitempty"`
	Run     string    `json:"run,omitempty"`
	Since   time.Time `json:"since"`
}

// Lock is a person's lease that a run of the same person lies on.
type Lock struct {
	Owner  string    `json:"owner"`
	Reason string    `json:"reason,omitempty"`
	Token  string    `json:"token"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

// State is what there is to know of a resource at one moment.
type State struct {
	Record            // of who has it, or had it last
	Place   string    // Place.Name
	Fencing uint64    // 0: nobody ever had it
	Held    bool      // somebody has it now
	Renewed time.Time // last, by the host's clock
	Expires time.Time // by the host's clock
	Now     time.Time // the host's clock
	// Reserved are the reservations that are not over, in the order of their beginnings.
	Reserved []Reservation
	// Own: its file is of the account that asks.
	Own    bool
	lapsed *Record // of who did not give back what they no longer have
	under  bool    // the holder is Beneath of the file, whose own lease is over
}

// Left is how long the holder has it if nothing is renewed.
func (s State) Left() time.Duration { return max(0, s.Expires.Sub(s.Now)) }

// past is the holder of a number, for who follows.
func (r Record) past(fencing uint64) *Past {
	return &Past{Fencing: fencing, Owner: r.Owner, Reason: r.Reason, Run: r.Run, Since: r.Since}
}

// HeldError is a resource that somebody else has, or has reserved.
type HeldError struct {
	State
	By   *Reservation  // that is in the way; nil: whoever has the resource is
	Need time.Duration // of who wanted it, as far as that was said
}

func (e *HeldError) Error() string {
	if r := e.By; r != nil {
		text := fmt.Sprintf("%s is reserved for %s", e.Place, r.Owner)
		if r.Reason != "" {
			text += fmt.Sprintf(" for %q", r.Reason)
		}
		text += fmt.Sprintf(" from %s to %s", moment(r.From), moment(r.Until))
		if left := r.From.Sub(e.Now); left > 0 && e.Need > 0 {
			text += fmt.Sprintf(": that is in %s, and it would be needed for %s", span(left), span(e.Need))
		}
		return text
	}
	who := e.Owner
	if e.Run != "" {
		who += " (run " + e.Run + ")"
	}
	text := fmt.Sprintf("%s is held by %s", e.Place, who)
	if e.Reason != "" {
		text += fmt.Sprintf(" for %q", e.Reason)
	}
	text += " since " + ago(e.Now.Sub(e.Since))
	if e.Run == "" {
		return text + ", for " + span(e.Left()) + " more"
	}
	return text + fmt.Sprintf(", renewed %s", ago(e.Now.Sub(e.Renewed)))
}

// Is makes it an ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

func span(d time.Duration) string {
	d = d.Round(time.Second)
	if d >= 2*time.Minute {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.String()
}

func ago(d time.Duration) string { return span(max(d, 0)) + " ago" }

// A file's name: key.number, key.number.free, or key.tmp-something while it is written.
func (p Place) file(n uint64) string { return p.Key + "." + strconv.FormatUint(n, 10) }
func (p Place) free(n uint64) string { return p.file(n) + ".free" }

// listing is a resource's files.
type listing struct {
	numbers []uint64        // ascending, of either name
	named   map[uint64]bool // of which there is a first name
	marked  map[uint64]bool // of which there is a second name, whosever file that is
	temps   []string

	reserved []reserved
}

func (l listing) top() uint64 {
	if len(l.numbers) == 0 {
		return 0
	}
	return l.numbers[len(l.numbers)-1]
}

// newest tries the files of numbers after one, the highest first, until one is a lease's, and says whether
// there is one. What others put beside them, as links or FIFOs or something large, only uses up a number.
func (p Place) newest(l listing, after uint64, try func(n uint64) error) (bool, error) {
	others := 0
	for _, n := range slices.Backward(l.numbers) {
		if n <= after {
			break
		}
		if others == mostForeign {
			return false, fmt.Errorf("%d files like %s are no leases: somebody put them there, remove them", others, p.file(l.top()))
		}
		err := try(n)
		if !foreign(err) && (l.named[n] || !errors.Is(err, fs.ErrNotExist)) {
			return true, err
		}
		others++
	}
	return false, nil
}

func (p Place) list(ctx context.Context) (listing, error) {
	names, err := p.Files.List(ctx)
	l := listing{named: map[uint64]bool{}, marked: map[uint64]bool{}}
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, p.Key+".")
		if !ok {
			continue
		}
		if strings.HasPrefix(rest, "tmp-") {
			l.temps = append(l.temps, name)
			continue
		}
		if strings.HasPrefix(rest, reservedMark) {
			if at, ok := parseReserved(name, rest); ok {
				l.reserved = append(l.reserved, at)
			}
			continue
		}
		number, free := strings.CutSuffix(rest, ".free")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n == 0 || n > lastNumber || strconv.FormatUint(n, 10) != number {
			continue
		}
		if free {
			l.marked[n] = true
		} else {
			l.named[n] = true
		}
		// The first name may be missing where somebody tidied by hand, or put a second one there: the number
		// is used, and says nothing.
		l.numbers = append(l.numbers, n)
	}
	slices.Sort(l.numbers)
	l.numbers = slices.Compact(l.numbers)
	before := uint64(0)
	for i, n := range l.numbers {
		if n-before > farthest {
			l.numbers = l.numbers[:i]
			break
		}
		before = n
	}
	return l, err
}

// foreign says whether a file cannot be a lease's.
func foreign(err error) bool {
	return errors.Is(err, bounded.ErrIrregular) || errors.Is(err, bounded.ErrTooLarge)
}

// look reads who has the resource when whoever asks has made a file: the highest file says so that is one.
func (p Place) look(ctx context.Context, l listing, now Stamp) (State, error) {
	s := State{Place: p.Name, Now: now.At}
	_, err := p.newest(l, 0, func(n uint64) error {
		is, err := p.read(ctx, l, n, now)
		if err == nil {
			s = is
		}
		return err
	})
	if err == nil {
		s.Reserved, err = p.reservations(ctx, l, now.At, always)
	}
	return s, err
}

// read is look where the file of a number says who has the resource.
func (p Place) read(ctx context.Context, l listing, n uint64, asked Stamp) (State, error) {
	now := asked.At
	s := State{Place: p.Name, Fencing: n, Now: now}
	data, made, err := p.Files.Read(ctx, p.file(n))
	renewed := made.At
	switch {
	case errors.Is(err, fs.ErrPermission) && !renewed.IsZero(): // no record, and so a minute, as below
	case err != nil:
		return s, err
	}
	back, err := p.back(ctx, l, n, content{data, made, err != nil})
	if err != nil {
		return s, err
	}
	s.Renewed, s.Own = renewed, made.UID == asked.UID
	if err := json.Unmarshal(data, &s.Record); err != nil || !s.credible() {
		// Every file is whole when it gets its name, so this came of a disk that lost it:
		// whoever it was has the time to notice.
		s.Record = unreadable(renewed)
	}
	s.plain()
	s.Expires = renewed.Add(time.Duration(s.TTL) * time.Second)
	s.Held = !back && !now.After(s.Expires)
	if !s.Held && !back {
		r := s.Record
		s.lapsed = &r
	}
	if !s.Held {
		s = s.afterRun()
	}
	return s, nil
}

// content is a file as it was read. Of one that its owner keeps from others there is no data.
type content struct {
	data []byte
	at   Stamp
	kept bool
}

// back says whether the lease of a number was given back: whether its second name is that of the lease's own file, as far as
// can be seen from afar. Of files that cannot be read the times are compared in the place of the contents.
func (p Place) back(ctx context.Context, l listing, n uint64, of content) (bool, error) {
	if !l.marked[n] {
		return false, nil
	}
	data, at, err := p.Files.Read(ctx, p.free(n))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return of.kept && at.UID == of.at.UID && at.At.Equal(of.at.At), nil
	case foreign(err), errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return !of.kept && at.UID == of.at.UID && bytes.Equal(data, of.data), nil
}

// afterRun is the state once the run is over: that of the lock on which it lies, or the same where there is none.
func (s State) afterRun() State {
	if b := s.Beneath; b != nil && !s.Now.After(b.Until) && b.Until.Sub(s.Now) <= MaxTTL {
		s.Record = Record{Owner: b.Owner, Reason: b.Reason, Token: b.Token, Since: b.Since, TTL: int64(b.Until.Sub(b.Since) / time.Second)}
		s.Renewed, s.Expires, s.Held, s.under = b.Since, b.Until, true, true
	}
	return s
}

// unreadable is what is known of a lease whose file cannot be read.
func unreadable(renewed time.Time) Record {
	return Record{Owner: "unknown", Reason: "its file cannot be read", Since: renewed, TTL: 60}
}

// Look says who has a resource. It asks the host's clock by writing an empty file, which
// it removes, unless nobody ever had the resource.
func Look(ctx context.Context, p Place) (State, error) {
	s, _, err := p.lookNow(ctx)
	if err != nil {
		return s, fmt.Errorf("%s: who has it: %w", p.Name, err)
	}
	return s, nil
}

func (p Place) lookNow(ctx context.Context) (State, listing, error) {
	for try := 0; ; try++ {
		l, err := p.list(ctx)
		if err != nil || l.top() == 0 && len(l.reserved) == 0 {
			return State{Place: p.Name}, l, err
		}
		temp := p.temp()
		now, err := p.Files.Create(ctx, temp, nil)
		if err != nil {
			return State{Place: p.Name}, l, err
		}
		s, err := p.look(ctx, l, now)
		if rerr := p.Files.Remove(ctx, temp); err == nil {
			err = rerr
		}
		if errors.Is(err, fs.ErrNotExist) && try < 3 {
			continue // it has gone out of date meanwhile
		}
		return s, l, err
	}
}

func (p Place) temp() string { return p.Key + ".tmp-" + rand.Text()[:12] }

// History is who had a resource, as far as files are kept, oldest first: the audit. Held
// and the clock are only those of the last one.
func History(ctx context.Context, p Place) ([]State, error) {
	last, l, err := p.lookNow(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: who had it: %w", p.Name, err)
	}
	var out []State
	for _, n := range l.numbers {
		s := State{Place: p.Name, Fencing: n}
		data, made, err := p.Files.Read(ctx, p.file(n))
		s.Renewed = made.At
		switch {
		case errors.Is(err, fs.ErrNotExist), foreign(err):
			continue
		case errors.Is(err, fs.ErrPermission): // its owner keeps it from us, and no more than this one
			s.Record = unreadable(s.Renewed)
			out = append(out, s)
			continue
		case err != nil:
			return out, fmt.Errorf("%s: who had it: %w", p.Name, err)
		}
		if json.Unmarshal(data, &s.Record) != nil || !s.credible() {
			continue // look says so of the last one
		}
		s.plain()
		if n == last.Fencing {
			s.Held, s.Expires, s.Now, s.Own = last.Held && !last.under, last.Expires, last.Now, last.Own
		}
		out = append(out, s)
	}
	return out, nil
}

// Bounds of the protocol.
const (
	keepNumbers = 32
	keepTime    = time.Hour
	minTTL      = 2 * time.Second
	longest     = 10 * 366 * 24 * 3600 // seconds that a record can ask for
	lastNumber  = 1 << 48              // which nobody comes to: a larger one is no lease's
	farthest    = 1 << 24              // after the one before, by which numbers grow at once: who put a file there cannot use them up
	mostTries   = 1000                 // of one who finds others faster each time
	mostForeign = 64                   // files that are looked at and are no leases
	mostTidied  = 32                   // files of writers, and what is no lease below others, that are looked at by each who takes a lease
)

// MaxTTL is the longest time to live: a record that asks for more is nobody's.
const MaxTTL = longest * time.Second

// credible says whether a record asks for a time to live that somebody may take.
func (r *Record) credible() bool { return r.TTL >= int64(minTTL/time.Second) && r.TTL <= longest }

// Holder is what tells a holder's files from all others. Who may write in the directory can read the token and put it
// into a file, but not give that file to another account.
type Holder struct {
	Token string `json:"token"`
	UID   uint32 `json:"uid"` // of the account whose files they are
}

// wrote says whether a file is the holder's, and reads it.
func (h Holder) wrote(data []byte, by Stamp) (r Record, ok bool) {
	ok = json.Unmarshal(data, &r) == nil && r.credible() && r.Token == h.Token && by.UID == h.UID
	return r, ok
}

// checkTTL refuses a time to live that who reads the record would not believe.
func checkTTL(ttl time.Duration) error {
	if ttl < minTTL || ttl > MaxTTL {
		return fmt.Errorf("a time to live of %v: from %v to %v", ttl, minTTL, MaxTTL)
	}
	return nil
}

// Lease is a resource that is had.
type Lease struct {
	place  Place
	holder Holder
	ttl    time.Duration
	from   *Past

	mu      sync.Mutex
	fencing uint64
	data    []byte // of its file
	sure    time.Time
	lost    error
	overrun *Overrun
}

// Overrun is a holder who is still there in a time that somebody else has reserved.
type Overrun struct {
	Reservation
	By time.Duration // since that began, when the lease was last renewed
}

// Overrun is what the holder was found in last; nil: nobody has been kept waiting.
func (l *Lease) Overrun() *Overrun {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overrun
}

// overran notes the reservation that a holder is in at now, by the host's clock.
func (l *Lease) overran(ctx context.Context, files listing, now time.Time) {
	soon := now.Add(time.Nanosecond)
	of, err := l.place.reservations(ctx, files, now, soon)
	var own Record
	if err != nil || len(of) == 0 || json.Unmarshal(l.data, &own) != nil {
		return
	}
	if r := others(of, own.Owner, now, soon); r != nil {
		l.overrun = &Overrun{*r, now.Sub(r.From)}
	}
}

// Place is what the lease is of.
func (l *Lease) Place() Place { return l.place }

// Holder is what tells its files from those of all others.
func (l *Lease) Holder() Holder { return l.holder }

// span is its time to live.
func (l *Lease) span() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl
}

// From is who may still use the resource: from whom it was taken, or who let it lapse.
// nil: nobody.
func (l *Lease) From() *Past { return l.from }

// Fencing is the lease's number: higher than that of whoever had the resource before.
func (l *Lease) Fencing() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fencing
}

// Take takes a resource, or says in a *HeldError who has it. A lease that the claim's
// Token has already is taken anew. A person's own run lies on the person's lock.
func Take(ctx context.Context, p Place, c Claim) (*Lease, error) {
	c.Token = cmp.Or(c.Token, rand.Text())
	if err := checkTTL(c.TTL); err != nil {
		return nil, fmt.Errorf("%s: take a lease: %w", p.Name, err)
	}
	return p.take(ctx, c.on)
}

// take makes the next file, with the record that on makes of the state that it follows.
func (p Place) take(ctx context.Context, on func(State) (Record, error)) (*Lease, error) {
	for try := 0; ; try++ {
		var l *Lease
		n, err := p.prepare(ctx, on)
		if err == nil && n != nil {
			if err = n.link(ctx); err == nil {
				l, err = n.finish(ctx)
			}
		}
		if l != nil || errors.Is(err, ErrHeld) {
			return l, err
		}
		if (err == nil || errors.Is(err, fs.ErrExist)) && ctx.Err() == nil {
			if try < mostTries {
				continue // somebody else was faster: all is to be looked at again
			}
			err = fmt.Errorf("others were faster, %d times", try)
		}
		return nil, fmt.Errorf("%s: take a lease: %w", p.Name, cmp.Or(context.Cause(ctx), err))
	}
}

// next is a lease's file that has no name yet.
type next struct {
	place  Place
	temp   string
	record Record
	data   []byte
	number uint64
	began  time.Time // before the host's time of the file
	made   Stamp     // which is this
}

// prepare writes the file that is to follow what there is. It is nil, without an error, if
// that went out of date.
func (p Place) prepare(ctx context.Context, on func(State) (Record, error)) (n *next, err error) {
	n = &next{place: p, temp: p.temp()}
	n.made, err = p.Files.Create(ctx, n.temp, nil)
	if err != nil {
		return nil, err
	}
	drop := n
	defer func() {
		if n == nil || err != nil {
			drop.drop(ctx)
		}
	}()
	l, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	s, err := p.look(ctx, l, n.made)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		n.record, err = on(s)
	}
	if err == nil {
		n.data, err = json.Marshal(n.record)
	}
	if err != nil {
		return nil, err
	}
	if l.top() == lastNumber {
		return nil, fmt.Errorf("no number is left after %s: somebody put that file there, remove it", p.file(lastNumber))
	}
	n.number, n.began = l.top()+1, time.Now()
	drop.drop(ctx) // it has told the time; nothing is ever written into what is there
	n.temp = p.temp()
	if n.made, err = p.Files.Create(ctx, n.temp, n.data); err != nil {
		return nil, err
	}
	return n, nil
}

// drop removes the name under which the file was written, when it has another or is in
// vain. It need not succeed: see tidy.
func (n *next) drop(ctx context.Context) {
	_ = n.place.Files.Remove(context.WithoutCancel(ctx), n.temp)
}

// link gives the file its name. If somebody else was faster the error wraps fs.ErrExist.
func (n *next) link(ctx context.Context) error {
	err := n.place.Files.Link(ctx, n.temp, n.place.file(n.number))
	if err != nil {
		n.drop(ctx)
	}
	return err
}

// finish makes sure that the file is the last: its number may be an old one, whose file was
// tidied away since it was prepared. Then it is nil.
func (n *next) finish(ctx context.Context) (*Lease, error) {
	n.drop(ctx)
	p := n.place
	l, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	lease := &Lease{
		place: p, holder: Holder{n.record.Token, n.made.UID}, from: cmp.Or(n.record.Took, n.record.After), ttl: time.Duration(n.record.TTL) * time.Second,
		fencing: n.number, data: n.data, sure: n.began,
	}
	if l.top() == n.number {
		p.tidy(ctx, l, n.made.At)
		return lease, nil
	}
	if err := lease.adopt(ctx, l); errors.Is(err, ErrLost) { // unless it is ours under another name of the host
		return nil, p.Files.Remove(ctx, p.file(n.number))
	} else if err != nil {
		return nil, err
	}
	return lease, nil
}

// on is the record with which the claim follows a state, or why it may not.
func (c Claim) on(s State) (Record, error) {
	r := Record{Owner: c.Owner, Reason: c.Reason, Run: c.Run, Controller: c.Controller, Token: c.Token,
		Since: s.Now.UTC(), TTL: int64(c.TTL / time.Second)}
	own := s.Own && s.Token == c.Token
	if s.lapsed != nil && !(s.Own && s.lapsed.Token == c.Token) {
		r.After = s.lapsed.past(s.Fencing)
	}
	if by := c.in(s); by != nil && !c.Takeover && !(s.Held && own) {
		return r, &HeldError{State: s, By: by, Need: c.Need}
	}
	switch {
	case !s.Held:
	case own: // once more
		r.Since, r.Took, r.Beneath = s.Since, s.Took, s.Beneath
	case s.Run == "" && c.Run != "" && s.Owner == c.Owner:
		r.Beneath = &Lock{Owner: s.Owner, Reason: s.Reason, Token: s.Token, Since: s.Since, Until: s.Expires.UTC()}
	case !c.Takeover:
		return r, &HeldError{State: s}
	default:
		r.Took = s.past(s.Fencing)
		if b := s.Beneath; b != nil && b.Owner == c.Owner && c.Run != "" {
			r.Beneath = b
		}
	}
	return r, nil
}

// Unlock gives back what a person holds, whether or not a run lies on it that is over. If
// it is another's, or a run has it, that is a *HeldError; takeover, for a reason, does not
// mind. What nobody has is no error.
func Unlock(ctx context.Context, p Place, owner string, takeover bool, reason string) error {
	s, err := Look(ctx, p)
	if err != nil || !s.Held {
		return err
	}
	own := s.Run == "" && s.Owner == owner
	switch {
	case !own && !takeover:
		return &HeldError{State: s}
	case own && !s.under:
		return p.release(ctx, s.Fencing)
	}
	c := Claim{Owner: owner, Reason: reason, TTL: minTTL, Takeover: true}
	if own {
		c.Token = s.Token
	}
	l, err := Take(ctx, p, c)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

// Extend lets a person's lease last for ttl from now, also one that the person's run lies
// on. If the person has none, the error wraps ErrLost; if another has it, it is a
// *HeldError.
func Extend(ctx context.Context, p Place, owner string, ttl time.Duration) (State, error) {
	if err := checkTTL(ttl); err != nil {
		return State{}, fmt.Errorf("%s: extend the lease: %w", p.Name, err)
	}
	_, err := p.take(ctx, func(s State) (Record, error) {
		r := s.Record
		if by := (Claim{Owner: owner, Need: ttl}).in(s); by != nil && s.Owner == owner {
			return r, &HeldError{State: s, By: by, Need: ttl}
		}
		switch b := s.Beneath; {
		case !s.Held:
			return r, fmt.Errorf("%w: nobody has it", ErrLost)
		case s.Owner != owner:
			return r, &HeldError{State: s}
		case s.Run == "":
			r.TTL = int64(ttl / time.Second)
		case b != nil && b.Owner == owner:
			longer := *b
			longer.Until = s.Now.Add(ttl).UTC()
			r.Beneath = &longer
		default:
			return r, &HeldError{State: s}
		}
		return r, nil
	})
	if err != nil {
		return State{Place: p.Name}, err
	}
	return Look(ctx, p)
}

// tidy removes what nobody asks for any more. It need not succeed.
func (p Place) tidy(ctx context.Context, l listing, now time.Time) {
	old := func(name string) bool {
		_, at, err := p.Files.Read(ctx, name)
		return err == nil && now.Sub(at.At) > keepTime
	}
	mathrand.Shuffle(len(l.temps), func(i, j int) { l.temps[i], l.temps[j] = l.temps[j], l.temps[i] }) // some may be nobody's to remove
	for _, name := range l.temps[:min(len(l.temps), mostTidied)] {
		if old(name) {
			_ = p.Files.Remove(ctx, name)
		}
	}
	for _, at := range l.reserved {
		if now.Sub(at.until) > keepTime {
			_ = p.Files.Remove(ctx, at.name)
		}
	}
	others := 0
	for i, n := range l.numbers {
		if i >= len(l.numbers)-keepNumbers || others == mostTidied {
			break
		}
		_, at, err := p.Files.Read(ctx, p.file(n))
		switch {
		case foreign(err), errors.Is(err, fs.ErrPermission):
			others++
			continue
		case errors.Is(err, fs.ErrNotExist): // whoever removed it did not come to its second name
			_ = p.Files.Remove(ctx, p.free(n))
			continue
		case err != nil, now.Sub(at.At) <= keepTime:
			return
		}
		_ = p.Files.Remove(ctx, p.free(n)) // before the first name, which tells how old it is
		_ = p.Files.Remove(ctx, p.file(n))
	}
}

// Renew is a heartbeat. An error that wraps ErrLost says that the lease is another's, was
// given back, or could not be renewed in time; it stays so. Other errors may pass.
func (l *Lease) Renew(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renew(ctx)
}

func (l *Lease) renew(ctx context.Context) error {
	if l.lost != nil {
		return l.lost
	}
	began := time.Now()
	err := l.beat(ctx)
	switch late := time.Since(l.sure) > l.patience(); {
	case errors.Is(err, ErrLost):
		l.lost = err
	case late && err == nil: // yet the host may have let somebody in between
		l.lost = fmt.Errorf("%s: %w: not renewed for %s", l.place.Name, ErrLost, span(time.Since(l.sure)))
	case late:
		l.lost = fmt.Errorf("%s: %w: not renewed for %s: %w", l.place.Name, ErrLost, span(time.Since(l.sure)), err)
	case err == nil:
		l.sure = began
	default:
		return fmt.Errorf("%s: renew the lease: %w", l.place.Name, err)
	}
	return l.lost
}

// patience is how long after it was renewed for sure the lease is its holder's: less than
// the host gives, which may count in whole seconds.
func (l *Lease) patience() time.Duration { return max(l.ttl-2*time.Second, l.ttl/2) }

func (l *Lease) beat(ctx context.Context) error {
	made, err := l.place.Files.Rewrite(ctx, l.place.file(l.fencing), l.data)
	gone := errors.Is(err, fs.ErrNotExist)
	if err != nil && !gone {
		return err
	}
	files, err := l.place.list(ctx)
	if err != nil {
		return err
	}
	if !gone {
		l.overran(ctx, files, made.At)
	}
	return l.adopt(ctx, files)
}

// adopt goes on with a later number, if there is one and the same holder has it.
func (l *Lease) adopt(ctx context.Context, files listing) error {
	there, err := l.place.newest(files, l.fencing, func(n uint64) error { return l.follow(ctx, n) })
	if there || err != nil {
		return err
	}
	back, err := l.place.back(ctx, files, l.fencing, content{data: l.data, at: Stamp{UID: l.holder.UID}})
	switch {
	case err != nil:
		return err
	case back:
		return takenError{fmt.Errorf("%s: %w: somebody gave it back", l.place.Name, ErrLost)}
	case !files.named[l.fencing]:
		return takenError{fmt.Errorf("%s: %w: its file has been removed", l.place.Name, ErrLost)}
	}
	return nil
}

// follow is adopt of a number: that of a file of the holder's own account which says that it is this holder's.
func (l *Lease) follow(ctx context.Context, top uint64) error {
	data, by, err := l.place.Files.Read(ctx, l.place.file(top))
	if err != nil {
		return err
	}
	r, own := l.holder.wrote(data, by)
	if own {
		l.fencing, l.data, l.ttl = top, data, time.Duration(r.TTL)*time.Second
		return nil
	}
	return l.place.follower(r, top, l.fencing)
}

// follower is who has a resource after a number.
func (p Place) follower(r Record, top, after uint64) error {
	why := ""
	if r.Reason != "" {
		why = fmt.Sprintf(" for %q", r.Reason)
	}
	how := "took it over"
	if r.Took == nil {
		how = "has it now, as it was not renewed in time,"
	}
	return takenError{fmt.Errorf("%s: %w: %s %s%s (fencing number %d after %d)",
		p.Name, ErrLost, cmp.Or(r.Owner, "somebody"), how, why, top, after)}
}

// Follows says whether a resource has gone to another since a holder took it with a number: the error wraps
// ErrLost then, and says to whom. It asks nothing of any clock: who has let a lease lapse that nobody took has
// not been followed. Other errors say nothing of the lease.
func Follows(ctx context.Context, p Place, holder Holder, number uint64) error {
	l, err := p.list(ctx)
	if err != nil {
		return err
	}
	_, err = p.newest(l, number, func(n uint64) error {
		data, by, err := p.Files.Read(ctx, p.file(n))
		if err != nil {
			return err
		}
		r, own := holder.wrote(data, by)
		if own {
			return nil
		}
		return p.follower(r, n, number)
	})
	return err
}

// Release gives the resource back. It is idempotent; a lease that was lost is another's
// business by now and no error.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.place.release(ctx, l.fencing)
	if err == nil && l.lost == nil {
		l.lost = fmt.Errorf("%s: %w: given back", l.place.Name, ErrLost)
	}
	return err
}

// release marks a number as given back.
func (p Place) release(ctx context.Context, n uint64) error {
	err := p.Files.Link(ctx, p.file(n), p.free(n))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if gone, gerr := p.gone(ctx, n); gone {
		return nil
	} else if errors.Is(err, fs.ErrExist) {
		err = cmp.Or(gerr, fmt.Errorf("%s is no second name of %s: somebody put that file there, remove it", p.free(n), p.file(n)))
	}
	return fmt.Errorf("%s: give the lease back: %w", p.Name, err)
}

// gone says whether nobody has a resource by the file of a number any more: it was given back, another has followed, or the
// file is gone.
func (p Place) gone(ctx context.Context, n uint64) (bool, error) {
	l, err := p.list(ctx)
	if err != nil || !l.named[n] {
		return err == nil, err
	}
	read := func(n uint64) (content, error) {
		data, at, err := p.Files.Read(ctx, p.file(n))
		kept := errors.Is(err, fs.ErrPermission)
		if kept {
			err = nil
		}
		return content{data, at, kept}, err
	}
	followed, err := p.newest(l, n, func(n uint64) error {
		_, err := read(n)
		return err
	})
	if followed || err != nil {
		return err == nil, err
	}
	of, err := read(n)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist), err
	}
	return p.back(ctx, l, n, of)
}
