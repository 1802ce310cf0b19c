package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Reservation keeps a resource for a person from one time to another, of which the first may be far ahead.
// Meanwhile it is anybody's who has done with it by then. It lies beside the leases, as a file
//
//	host.at-1764590400-1764597600-TOKEN    from, until, in seconds of Unix time
//
// so that its times are known from a listing. Takers look at those of others; nothing is taken from who stays for
// longer than he said he would (Lease.Overrun tells him).
type Reservation struct {
	Owner  string    `json:"owner"`
	Reason string    `json:"reason,omitempty"`
	From   time.Time `json:"from"`  // by the host's clock; whole seconds
	Until  time.Time `json:"until"` // the same
	Token  string    `json:"token"`
	Made   time.Time `json:"made"`
}

// Bounds of reservations.
const (
	Ahead        = 366 * 24 * time.Hour // how far ahead one may begin
	mostReserved = 128                  // of a resource
	reserveTries = 20                   // of who meets others that reserve at the same moment
)

// ErrReservation is wrapped by errors about times that cannot be reserved.
var ErrReservation = errors.New("cannot be reserved")

// reserved is a reservation as its name says it.
type reserved struct {
	name        string
	from, until time.Time
}

// meet says whether two times have a part in common.
func meet(from, until, otherFrom, otherUntil time.Time) bool {
	return from.Before(otherUntil) && otherFrom.Before(until)
}

// others is the first of some reservations that is not an owner's and meets a time; nil: none is.
func others(of []Reservation, owner string, from, until time.Time) *Reservation {
	for i := range of {
		if r := &of[i]; r.Owner != owner && meet(r.From, r.Until, from, until) {
			return r
		}
	}
	return nil
}

const reservedMark = "at-"

func (p Place) reservation(r Reservation) string {
	return fmt.Sprintf("%s.%s%d-%d-%s", p.Key, reservedMark, r.From.Unix(), r.Until.Unix(), r.Token)
}

// parseReserved reads what stands after the key and a dot in a reservation's name.
func parseReserved(name, rest string) (reserved, bool) {
	part := strings.SplitN(strings.TrimPrefix(rest, reservedMark), "-", 3)
	if len(part) < 3 {
		return reserved{}, false
	}
	from, err := strconv.ParseInt(part[0], 10, 64)
	until, uerr := strconv.ParseInt(part[1], 10, 64)
	if err != nil || uerr != nil || from < 0 || until <= from || until > 1<<40 || !plain(part[2]) {
		return reserved{}, false
	}
	return reserved{name, time.Unix(from, 0).UTC(), time.Unix(until, 0).UTC()}, true
}

// plain says whether a token is one that Reserve makes, or like it: it stands in names, and in what people read.
func plain(token string) bool {
	return token != "" && len(token) <= 64 && !strings.ContainsFunc(token, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// always is later than any reservation begins.
var always = time.Unix(1<<40, 0)

// reservations reads those that meet a time, in the order of their beginnings. What is no reservation is none's.
func (p Place) reservations(ctx context.Context, l listing, from, until time.Time) ([]Reservation, error) {
	var out []Reservation
	asked := 0
	for _, at := range l.reserved {
		if !meet(at.from, at.until, from, until) {
			continue
		}
		if asked++; asked > mostReserved {
			return nil, fmt.Errorf("more than %d reservations like %s: somebody put them there, remove them", mostReserved, at.name)
		}
		r, err := p.readReservation(ctx, at)
		if errors.Is(err, fs.ErrNotExist) || err == nil && r == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Reservation) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Token, b.Token))
	})
	return out, nil
}

// readReservation is nil for what is none.
func (p Place) readReservation(ctx context.Context, at reserved) (*Reservation, error) {
	data, _, err := p.Files.Read(ctx, at.name)
	if foreign(err) || errors.Is(err, fs.ErrPermission) { // all can read those that Reserve makes
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r Reservation
	if json.Unmarshal(data, &r) != nil || r.Owner == "" || p.reservation(r) != at.name {
		return nil, nil
	}
	r.Owner, r.Reason = printable(r.Owner), printable(r.Reason)
	return &r, nil
}

// Reserve keeps a resource for its owner. It is a *HeldError if that time is somebody else's, by a reservation or by
// a lock that lasts for so long, with a run on it or without, and wraps ErrReservation if it is no time that can be
// reserved. Of several who reserve the same at the same moment at most one succeeds.
func Reserve(ctx context.Context, p Place, r Reservation) (Reservation, error) {
	r.Token = cmp.Or(r.Token, rand.Text()[:16])
	r.From, r.Until = r.From.Truncate(time.Second).UTC(), r.Until.Truncate(time.Second).UTC()
	for try := 0; ; try++ {
		met, err := p.reserve(ctx, &r)
		if met == nil || err != nil {
			if err != nil && !errors.Is(err, ErrHeld) {
				err = fmt.Errorf("%s: reserve it: %w", p.Name, err)
			}
			return r, err
		}
		if try == reserveTries { // they have it, or will not go
			return r, &HeldError{State: State{Place: p.Name}, By: met}
		}
		select { // both have made way
		case <-time.After(time.Duration(1+int(rand.Text()[0])%16) * 5 * time.Millisecond):
		case <-ctx.Done():
			return r, context.Cause(ctx)
		}
	}
}

// ReserveAll reserves all of some resources, or none.
func ReserveAll(ctx context.Context, places []Place, r Reservation) ([]Reservation, error) {
	made := make([]Reservation, 0, len(places))
	for _, p := range places {
		one, err := Reserve(ctx, p, r)
		if err != nil {
			for i, m := range made {
				err = errors.Join(err, withdraw(context.WithoutCancel(ctx), places[i], m))
			}
			return nil, err
		}
		made = append(made, one)
	}
	return made, nil
}

// reserve tries once. met is whose came at the same moment: this one has made way, as the other may have.
func (p Place) reserve(ctx context.Context, r *Reservation) (met *Reservation, err error) {
	temp := p.temp()
	made, err := p.Files.Create(ctx, temp, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = p.Files.Remove(context.WithoutCancel(ctx), temp) }()
	now := made.At
	switch {
	case !r.Until.After(r.From):
		return nil, fmt.Errorf("%w: from %s until %s", ErrReservation, moment(r.From), moment(r.Until))
	case !r.Until.After(now):
		return nil, fmt.Errorf("%w: it is %s there, %s is over", ErrReservation, moment(now), moment(r.Until))
	case r.From.After(now.Add(Ahead)):
		return nil, fmt.Errorf("%w: %s is more than a year ahead: it is %s there", ErrReservation, moment(r.From), moment(now))
	}
	l, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	s, err := p.look(ctx, l, made)
	if err != nil {
		return nil, err
	}
	if lock := s.afterRun(); lock.Held && lock.Run == "" && lock.Owner != r.Owner && lock.Expires.After(r.From) {
		return nil, &HeldError{State: lock}
	}
	if len(s.Reserved) >= mostReserved {
		return nil, fmt.Errorf("%w: it is reserved %d times already", ErrReservation, mostReserved)
	}
	if other := others(s.Reserved, r.Owner, r.From, r.Until); other != nil {
		return nil, &HeldError{State: s, By: other}
	}
	r.Made = now.UTC()
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	whole := p.temp()
	if _, err := p.Files.Create(ctx, whole, data); err != nil {
		return nil, err
	}
	defer func() { _ = p.Files.Remove(context.WithoutCancel(ctx), whole) }()
	name := p.reservation(*r)
	if err := p.Files.Link(ctx, whole, name); err != nil {
		if !errors.Is(err, fs.ErrExist) { // it may have been made though nobody heard
			err = errors.Join(err, p.Files.Remove(context.WithoutCancel(ctx), name))
		}
		return nil, err
	}
	// Who looked before this name was there will find it now, as it finds theirs.
	if l, err = p.list(ctx); err == nil {
		s.Reserved, err = p.reservations(ctx, l, r.From, r.Until)
	}
	if met = others(s.Reserved, r.Owner, r.From, r.Until); met != nil || err != nil {
		err = errors.Join(err, p.Files.Remove(context.WithoutCancel(ctx), name))
	}
	return met, err
}

// withdraw gives up one reservation. It is idempotent.
func withdraw(ctx context.Context, p Place, r Reservation) error {
	if err := p.Files.Remove(ctx, p.reservation(r)); err != nil {
		return fmt.Errorf("%s: give up a reservation: %w", p.Name, err)
	}
	return nil
}

// Cancel gives up what an owner has reserved of a resource, and returns that.
func Cancel(ctx context.Context, p Place, owner string) (gone []Reservation, err error) {
	s, err := Look(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, r := range s.Reserved {
		if r.Owner != owner {
			continue
		}
		if err := withdraw(ctx, p, r); err != nil {
			return gone, err
		}
		gone = append(gone, r)
	}
	return gone, nil
}

// in is the way of a claim: the reservation of somebody else that it would reach into.
func (c Claim) in(s State) *Reservation {
	if c.Need < 0 {
		return nil
	}
	return others(s.Reserved, c.Owner, s.Now, s.Now.Add(max(c.Need, time.Second)))
}

// moment is a time for people, in their own zone.
func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }
