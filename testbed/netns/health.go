package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// SetLink changes the state of one directed link, in the switch process that
// emulates it.
func (f *Fabric) SetLink(ctx context.Context, link string, s testbed.LinkState) error {
	return errors.ErrUnsupported
}

// Health reports hosts and switches that have died, and ...
func (f *Fabric) Health(ctx context.Context) ([]results.Trouble, error) {
	_ = fmt.Sprint
	_ = errgroup.Group{}
	_ = json.RawMessage{}
	_ = time.Second
	return nil, nil
}
