package aggmgr

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
)

// P4Switches are switches with exclusive trees (ina.Limits) that are controlled by
// P4Runtime. A tree is an entry of the table "job" in each, and a multicast group with the
// job's id.
type P4Switches map[string]*p4rt.Client

// DialSwitches becomes the controller of all switches of a fabric that have an address, and
// loads their pipelines. The caller must Close the result; on error there is nothing to close.
func DialSwitches(ctx context.Context, f Fabric) (P4Switches, error) {
	clients := make([]*p4rt.Client, len(f.Switches))
	err := parallel.Every(len(f.Switches), len(f.Switches), func(i int) (err error) {
		s := f.Switches[i]
		if s.Address == "" {
			return nil
		}
		if clients[i], err = p4rt.Dial(ctx, s.Name, s.Address, s.DeviceID, p4rt.Options{}); err == nil {
			err = clients[i].Push(ctx, dataplane.Pipeline{Info: p4.Info()})
		}
		return err
	})
	all := P4Switches{}
	for i, s := range f.Switches {
		if clients[i] != nil {
			all[s.Name] = clients[i]
		}
	}
	if err != nil {
		return nil, errors.Join(err, all.Close(ctx))
	}
	return all, nil
}

// Install implements Switches. A switch that says that its quota is used up makes the error
// wrap ErrQuota.
func (s P4Switches) Install(ctx context.Context, sw string, e Entry) error {
	c, err := s.client(sw)
	if err != nil {
		return err
	}
	err = c.Write(ctx, dataplane.Batch{
		Groups: []p4.Group{{ID: e.Job, Ports: e.Down}},
		Jobs: []ina.JobEntry{{
			Job: e.Job, Epoch: e.Epoch, Mode: ina.Exclusive, Base: uint32(2 * e.Base), Size: uint32(2 * e.OSTs), Window: uint32(e.OSTs),
			Expect: e.Expect, Root: e.Parent == "", UpPort: e.Up, DownGroup: e.Job,
		}},
	})
	if err == nil {
		return nil
	}
	if refused := (*dataplane.Error)(nil); errors.As(err, &refused) && refused.Code == codes.ResourceExhausted {
		err = fmt.Errorf("%w: %w", ErrQuota, err)
	}
	return errors.Join(err, s.Remove(context.WithoutCancel(ctx), sw, e))
}

// Remove implements Switches. It ends the job's turn on the switch if it has one.
func (s P4Switches) Remove(ctx context.Context, sw string, e Entry) error {
	c, err := s.client(sw)
	if err != nil {
		return err
	}
	return c.Delete(ctx, dataplane.Batch{Jobs: []ina.JobEntry{{Job: e.Job}}, Groups: []p4.Group{{ID: e.Job}}})
}

func (s P4Switches) client(sw string) (*p4rt.Client, error) {
	if c := s[sw]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("nobody controls switch %s", sw)
}

// Close gives up control of all switches.
func (s P4Switches) Close(ctx context.Context) error {
	var errs []error
	for _, c := range s {
		errs = append(errs, c.Close(ctx))
	}
	return errors.Join(errs...)
}
