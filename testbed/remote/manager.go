package remote

import (
	"context"
	"errors"

	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/sharp"
)

// ManagerName is what journals call the host of SHARP's aggregation manager where that is no
// host of the inventory.
const ManagerName = "manager sharp_am"

// reservation takes back a reservation in UFM, if it is there.
func (c *cleaning) reservation(ctx context.Context, u *journal.Reservation, getenv func(string) string) (string, error) {
	ufm, err := sharp.NewReservations(sharp.UFMOf(u.URL, u.API, getenv))
	if err != nil {
		return "", err
	}
	_, err = ufm.Get(ctx, u.App)
	if err == nil && !c.opt.Dry {
		err = ufm.Delete(ctx, u.App)
	}
	if errors.Is(err, sharp.ErrNotFound) {
		return "", nil // it was never made, or is gone
	}
	return "reservation " + u.App + " deleted", err
}
