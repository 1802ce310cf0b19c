package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/keepers"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/remote"
)

// Commands about who has the hosts and switches of a lab.

// labFlag names a lab.
func labFlag() cli.Flag {
	return &cli.StringFlag{Name: "inventory", Aliases: []string{"i"}, Usage: "inventory or experiment `FILE` of the lab", EnvVars: []string{"INABENCH_INVENTORY"}}
}

// holdFlags are those of commands that want a lab for themselves.
func holdFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "wait", Usage: "wait up to `DURATION`, as 10m, while somebody else has the lab, or another emulation this machine"},
		&cli.BoolFlag{Name: "takeover", Usage: "take the lab from whoever has it; --reason tells them why"},
		&cli.StringFlag{Name: "reason", Usage: "why you need the lab, as `TEXT` for others who want it"},
		ownerFlag(),
	}
}

func ownerFlag() cli.Flag {
	return &cli.StringFlag{Name: "owner", Usage: "hold it as `NAME` instead of user@machine", EnvVars: []string{"INABENCH_OWNER"}}
}

// holdOf is what holdFlags say.
func holdOf(c *cli.Context, waiting func(string)) (drivers.Holding, error) {
	h := drivers.Holding{Hold: remote.Hold{
		Owner: c.String("owner"), Reason: c.String("reason"), Wait: c.Duration("wait"), Takeover: c.Bool("takeover"),
		Waiting: func(e *lease.HeldError) { waiting(e.Error()) },
	}}
	if h.Wait < 0 {
		return h, usagef("--wait 10m waits for ten minutes", "--wait %v: must not be negative", h.Wait)
	}
	if h.Takeover && h.Reason == "" {
		return h, usagef(`--takeover --reason "deadline on Friday, agreed with Anna"`, "--takeover without --reason: those who lose it will ask why")
	}
	return h, nil
}

// lab is a lab and the hosts and switches that were named, or all.
func labOf(c *cli.Context, all bool) (*inventory.Inventory, []string, error) {
	verb := c.Command.Name
	if c.String("inventory") == "" {
		return nil, nil, usagef("inabench "+verb+" -i LAB.toml", "%s: which lab?", verb)
	}
	inv, err := inventoryOf(c.String("inventory"))
	if err != nil {
		return nil, nil, err
	}
	if err := checkLab(inv); err != nil {
		return nil, nil, err
	}
	known := slices.Concat(inv.HostNames(), inv.SwitchNames())
	if inv.Manager.Apart() {
		known = append(known, inventory.ManagerName)
	}
	names := c.Args().Slice()
	switch {
	case len(names) == 0 && !all:
		return nil, nil, usagef("inabench "+verb+" -i LAB.toml HOST|SWITCH ..., or --all", "%s: which hosts and switches?", verb)
	case len(names) == 0:
		names = known
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, nil, noHost(name, inv.File, known)
		}
	}
	slices.Sort(names)
	return inv, slices.Compact(names), nil
}

// withPlaces opens where the leases of the named lie, all or none.
func withPlaces(ctx context.Context, inv *inventory.Inventory, names []string, f func([]lease.Place) error) error {
	k := keepers.Open(ctx, inv, names, 32)
	defer k.Close()
	if err := k.Err(); err != nil {
		return err
	}
	p := make([]lease.Place, len(names))
	err := parallel.Every(len(names), len(names), func(i int) (err error) {
		p[i], err = k.Place(ctx, names[i])
		return err
	})
	if err != nil {
		return err
	}
	return f(p)
}

func allFlag() cli.Flag {
	return &cli.BoolFlag{Name: "all", Usage: "all hosts and switches of the lab"}
}

func lockCommand() *cli.Command {
	return &cli.Command{
		Name:      "lock",
		Usage:     "lock hosts and switches of a lab: your runs may use them, nobody else's",
		ArgsUsage: "HOST|SWITCH ...",
		Flags: append([]cli.Flag{labFlag(), allFlag(),
			&cli.DurationFlag{Name: "ttl", Value: time.Hour, Usage: "lock for `DURATION`, by the hosts' clocks"},
			&cli.StringFlag{Name: "at", Usage: "lock from `TIME` on instead of now: '2026-12-24 09:00' or 09:00 in this machine's zone, +2h, or an RFC 3339 time; until then others may use it, if they give it back in time"},
		}, holdFlags()...),
		Action: func(c *cli.Context) error {
			inv, names, err := labOf(c, c.Bool("all"))
			if err != nil {
				return err
			}
			out := c.App.ErrWriter
			h, err := holdOf(c, func(who string) { fmt.Fprintf(out, "inabench: waiting: %s\n", who) })
			if err != nil {
				return err
			}
			if h.Reason == "" {
				return usagef(`--reason "debugging the PS"`, "lock: --reason is missing: others will want to know why")
			}
			ttl, err := ttlOf(c)
			if err != nil {
				return err
			}
			if c.IsSet("at") {
				from, err := timeOf(c.String("at"), time.Now())
				if err != nil {
					return err
				}
				if h.Takeover || h.Wait > 0 {
					return usagef("leave it out", "lock --at takes neither --takeover nor --wait: a time that somebody else has reserved is theirs")
				}
				return withPlaces(c.Context, inv, names, func(p []lease.Place) error {
					return reserve(c, p, lease.Reservation{Owner: cmp.Or(h.Owner, keepers.Owner()), Reason: h.Reason, From: from, Until: from.Add(ttl)})
				})
			}
			return withPlaces(c.Context, inv, names, func(p []lease.Place) error {
				set, err := lease.TakeAll(c.Context, p, lease.Claim{
					Owner: cmp.Or(h.Owner, keepers.Owner()), Reason: h.Reason, TTL: ttl, Takeover: h.Takeover, Need: ttl,
				}, lease.Options{Wait: h.Wait, Waiting: h.Waiting})
				if err != nil {
					return keepers.Busy(err, keepers.Wait, keepers.Takeover)
				}
				set.Keep() // nobody renews a person's
				for _, l := range set.Leases() {
					fmt.Fprintf(c.App.Writer, "%s locked for %s, fencing number %d\n", l.Place().Name, short(ttl), l.Fencing())
				}
				return nil
			})
		},
	}
}

// timeOf is a time as people write it: of a day, or the next one that it is so late.
func timeOf(text string, now time.Time) (time.Time, error) {
	if in, ok := strings.CutPrefix(text, "+"); ok {
		if d, err := time.ParseDuration(in); err == nil {
			return now.Add(d), nil
		}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation("2006-01-02 15:04", text, now.Location()); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation("15:04", text, now.Location()); err == nil {
		t = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), 0, 0, now.Location())
		if !t.After(now) {
			t = time.Date(now.Year(), now.Month(), now.Day()+1, t.Hour(), t.Minute(), 0, 0, now.Location())
		}
		return t, nil
	}
	return time.Time{}, usagef("write '2026-12-24 09:00', 09:00, +2h or 2026-12-24T09:00:00+01:00", "--at %q is no time", text)
}

// reserve reserves all places or none.
func reserve(c *cli.Context, places []lease.Place, r lease.Reservation) error {
	made, err := lease.ReserveAll(c.Context, places, r)
	if errors.Is(err, lease.ErrReservation) {
		return usagef("see inabench lock --help", "lock --at: %v", err)
	}
	if err != nil {
		return keepers.Busy(err)
	}
	for i, m := range made {
		fmt.Fprintf(c.App.Writer, "%s reserved from %s to %s\n", places[i].Name, stamp(m.From), stamp(m.Until))
	}
	return nil
}

// stamp is a time for people.
func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04 MST") }

func ttlOf(c *cli.Context) (time.Duration, error) {
	ttl := c.Duration("ttl").Truncate(time.Second)
	if ttl < 2*time.Second {
		return 0, usagef("--ttl 4h keeps it for four hours", "--ttl %v: too short", c.Duration("ttl"))
	}
	if ttl > lease.MaxTTL {
		return 0, usagef("--ttl 720h keeps it for thirty days; `inabench extend` makes that longer", "--ttl %v: at most ten years", c.Duration("ttl"))
	}
	return ttl, nil
}

func unlockCommand() *cli.Command {
	return &cli.Command{
		Name:      "unlock",
		Usage:     "give back what you have locked; safe to repeat",
		ArgsUsage: "[HOST|SWITCH ...]",
		Flags: []cli.Flag{labFlag(), allFlag(),
			&cli.BoolFlag{Name: "takeover", Usage: "also what others have, and what a run has; --reason tells them why"},
			&cli.BoolFlag{Name: "ahead", Usage: "give back what you have reserved with lock --at, instead of what you have now"},
			&cli.StringFlag{Name: "reason", Usage: "why, as `TEXT` for whoever had it"}, ownerFlag()},
		Action: func(c *cli.Context) error {
			inv, names, err := labOf(c, true) // one's own of it
			if err != nil {
				return err
			}
			h, err := holdOf(c, func(string) {})
			if err != nil {
				return err
			}
			if h.Takeover && !c.Args().Present() && !c.Bool("all") {
				return usagef("name them, or say --all", "unlock --takeover: of which hosts and switches?")
			}
			owner := cmp.Or(h.Owner, keepers.Owner())
			if c.Bool("ahead") {
				return withPlaces(c.Context, inv, names, func(p []lease.Place) error { return cancel(c, p, owner) })
			}
			return withPlaces(c.Context, inv, names, func(p []lease.Place) error {
				var errs []error
				for _, p := range slices.Backward(p) {
					s, err := lease.Look(c.Context, p)
					if err == nil && s.Held && s.Owner != owner && !h.Takeover && !c.Args().Present() {
						continue // not meant
					}
					if err == nil {
						err = lease.Unlock(c.Context, p, owner, h.Takeover, h.Reason)
					}
					if err != nil {
						errs = append(errs, keepers.Busy(err, keepers.Takeover))
					} else if s.Held {
						fmt.Fprintf(c.App.Writer, "%s unlocked\n", p.Name)
					}
				}
				return errors.Join(errs...)
			})
		},
	}
}

// cancel gives up what an owner has reserved.
func cancel(c *cli.Context, places []lease.Place, owner string) error {
	var errs []error
	for _, p := range places {
		gone, err := lease.Cancel(c.Context, p, owner)
		for _, r := range gone {
			fmt.Fprintf(c.App.Writer, "%s no longer reserved from %s to %s\n", p.Name, stamp(r.From), stamp(r.Until))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func extendCommand() *cli.Command {
	return &cli.Command{
		Name:      "extend",
		Usage:     "extend your locks: they then last --ttl from now",
		ArgsUsage: "[HOST|SWITCH ...]",
		Flags: []cli.Flag{labFlag(),
			&cli.DurationFlag{Name: "ttl", Value: time.Hour, Usage: "let them last `DURATION` from now"}, ownerFlag()},
		Action: func(c *cli.Context) error {
			inv, names, err := labOf(c, true)
			if err != nil {
				return err
			}
			ttl, err := ttlOf(c)
			if err != nil {
				return err
			}
			owner := cmp.Or(c.String("owner"), keepers.Owner())
			return withPlaces(c.Context, inv, names, func(p []lease.Place) error {
				var errs []error
				n := 0
				for _, p := range p {
					_, err := lease.Extend(c.Context, p, owner, ttl)
					switch {
					case err == nil:
						n++
						fmt.Fprintf(c.App.Writer, "%s locked for %s\n", p.Name, short(ttl))
					case !c.Args().Present() && (errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrLost)): // not meant
					case errors.Is(err, lease.ErrLost):
						errs = append(errs, inputError{fmt.Errorf("%s is not locked", p.Name), "inabench lock takes it"})
					default:
						errs = append(errs, keepers.Busy(err))
					}
				}
				if n == 0 && len(errs) == 0 {
					return inputError{fmt.Errorf("%s has locked nothing in %s", owner, inv.File), "inabench lock takes it"}
				}
				return errors.Join(errs...)
			})
		},
	}
}

// holder is who has a host or a switch, as a document.
type holder struct {
	Name    string         `json:"name"` // "host h1"
	Held    bool           `json:"held"`
	Owner   string         `json:"owner,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Run     string         `json:"run,omitempty"`
	On      string         `json:"controller,omitempty"`
	Since   *time.Time     `json:"since,omitempty"`   // by the host's clock
	Expires *time.Time     `json:"expires,omitempty"` // the same
	Left    float64        `json:"left_s,omitempty"`  // unless it is renewed
	Fencing uint64         `json:"fencing"`
	Took    *lease.Past    `json:"took,omitempty"`
	Beneath *lease.Lock    `json:"beneath,omitempty"`
	Error   string         `json:"error,omitempty"`
	History []lease.Record `json:"history,omitempty"`
	// Reserved ahead, and what is reserved now.
	Reserved []lease.Reservation `json:"reserved,omitempty"`
}

func whoCommand() *cli.Command {
	return &cli.Command{
		Name:      "who",
		Usage:     "show who has the hosts and switches of a lab, why, and for how long",
		ArgsUsage: "[HOST|SWITCH ...]",
		Flags: []cli.Flag{labFlag(), tableFlag(),
			&cli.BoolFlag{Name: "audit", Usage: "show who had them before, and who took them from whom"}},
		Action: func(c *cli.Context) error {
			inv, names, err := labOf(c, true)
			if err != nil {
				return err
			}
			k := keepers.Open(c.Context, inv, names, 32)
			defer k.Close()
			out, history, errs := make([]lease.State, len(names)), make([][]lease.State, len(names)), make([]error, len(names))
			asked := parallel.Every(len(names), len(names), func(i int) error {
				p, err := k.Place(c.Context, names[i])
				if err == nil {
					out[i], err = lease.Look(c.Context, p)
				}
				if err == nil && c.Bool("audit") {
					history[i], err = lease.History(c.Context, p)
				}
				errs[i] = err
				return err
			})
			var docs []holder
			for i, s := range out {
				docs = append(docs, document(names[i], s, history[i], errs[i]))
			}
			err = put(c, map[string]any{"leases": docs}, func(w io.Writer) error {
				if c.Bool("audit") {
					return writeAudit(w, history)
				}
				return errors.Join(writeWho(w, out, docs), writeReserved(w, out))
			})
			if k.Err() == nil {
				return errors.Join(asked, err)
			}
			return errors.Join(k.Err(), err)
		},
	}
}

func document(name string, s lease.State, history []lease.State, err error) holder {
	d := holder{Name: cmp.Or(s.Place, name), Fencing: s.Fencing, Reserved: s.Reserved}
	if err != nil {
		d.Error = err.Error()
		return d
	}
	for _, h := range history {
		d.History = append(d.History, h.Record)
	}
	if !s.Held {
		return d
	}
	d.Held, d.Owner, d.Reason, d.Run, d.Took, d.Beneath = true, s.Owner, s.Reason, s.Run, s.Took, s.Beneath
	if s.Run != "" {
		d.On = s.Controller.Host + ":" + strconv.Itoa(s.Controller.PID)
	}
	d.Since, d.Expires, d.Left = &s.Since, &s.Expires, s.Left().Seconds()
	return d
}

func writeWho(w io.Writer, states []lease.State, docs []holder) error {
	tw := newTable(w, "WHAT", "OWNER", "REASON", "SINCE", "EXPIRES", "FENCING", "RUN")
	for i, s := range states {
		d := docs[i]
		switch {
		case d.Error != "":
			fmt.Fprintf(tw, "%s\t?\t\t\t\t\t\n", d.Name)
		case !s.Held:
			fmt.Fprintf(tw, "%s\t-\t\t\t\t%d\t\n", d.Name, s.Fencing)
		default:
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s ago\tin %s\t%d\t%s\n", d.Name, s.Owner, s.Reason, short(s.Now.Sub(s.Since)), short(s.Left()), s.Fencing, s.Run)
		}
	}
	return tw.Flush()
}

// writeReserved lists what is reserved, if anything is.
func writeReserved(w io.Writer, states []lease.State) error {
	tw := newTable(w)
	any := false
	for _, s := range states {
		for _, r := range s.Reserved {
			if !any {
				fmt.Fprintln(tw, "\nRESERVED\tFROM\tUNTIL\tOWNER\tREASON")
				any = true
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", s.Place, stamp(r.From), stamp(r.Until), r.Owner, r.Reason)
		}
	}
	return tw.Flush()
}

// writeAudit lists who had what, in the order of what.
func writeAudit(w io.Writer, history [][]lease.State) error {
	tw := newTable(w, "WHAT", "FENCING", "SINCE", "OWNER", "REASON", "RUN", "TAKEN FROM")
	for _, of := range history {
		for _, s := range of {
			from := ""
			if t := s.Took; t != nil {
				from = t.Owner
				if t.Run != "" {
					from += " (run " + t.Run + ")"
				}
				if t.Reason != "" {
					from += ": " + t.Reason
				}
			}
			fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", s.Place, s.Fencing, s.Since.UTC().Format("2006-01-02 15:04:05Z"), s.Owner, s.Reason, s.Run, from)
		}
	}
	return tw.Flush()
}

// short is a time for people: its two largest units at most.
func short(d time.Duration) string {
	d = max(d, 0).Round(time.Second)
	switch {
	case d >= 24*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return d.String()
}
