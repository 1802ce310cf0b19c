package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/sharp"
)

// service is a program of a lab that is no host's and no switch's.
type service struct {
	Name    string  `json:"service"`
	Found   string  `json:"found,omitempty"`
	Error   string  `json:"error,omitempty"`
	Hint    string  `json:"hint,omitempty"`
	Seconds float64 `json:"seconds"`
}

// diagnoseSHARP asks SHARP's aggregation manager, and UFM where the lab has it.
func diagnoseSHARP(ctx context.Context, inv *inventory.Inventory, timeout time.Duration) (out []service) {
	m := inv.Manager
	if m == nil {
		return nil
	}
	ask := func(name string, f func(ctx context.Context) (found string, err error)) {
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
		defer cancel()
		began := time.Now()
		found, err := f(ctx)
		s := service{Name: name, Found: found, Seconds: time.Since(began).Seconds()}
		if err != nil {
			s.Error = err.Error()
			if all := hints(err, nil); len(all) > 0 {
				s.Hint = all[0]
			}
		}
		out = append(out, s)
	}
	if m.Reachable() {
		ask("sharp_am", func(ctx context.Context) (string, error) {
			c, err := reach.Dial(ctx, reach.ToManager(inv), reach.Options{Timeout: timeout})
			if err != nil {
				return "", err
			}
			defer c.Close()
			if _, err := c.ReadFile(ctx, m.Config); err != nil {
				return "", hinted{err, "[sharp] config says where sharp_am.cfg is: UFM's is /opt/ufm/files/conf/sharp/sharp_am.cfg"}
			}
			return m.Config + " on " + c.String(), nil
		})
	}
	if m.UFM != "" {
		ask("UFM", func(ctx context.Context) (string, error) {
			r, err := sharp.NewReservations(sharp.UFMOf(m.UFM, m.API, os.Getenv))
			if err != nil {
				return "", err
			}
			all, err := r.List(ctx)
			if err != nil {
				return "", hinted{err, "set the login in INABENCH_UFM_TOKEN, or in INABENCH_UFM_USER and INABENCH_UFM_PASSWORD; [sharp] ufm_api selects which of its APIs is used"}
			}
			return fmt.Sprintf("%s: %s", m.UFM, human.Plural(len(all), "reservation")), nil
		})
	}
	return out
}

// writeServices writes a line for each.
func writeServices(w io.Writer, all []service) {
	for _, s := range all {
		if s.Error == "" {
			writeFound(w, "ok", s.Name, s.Found, "")
		} else {
			writeFound(w, "DEAD", s.Name, s.Error, s.Hint)
		}
	}
}
