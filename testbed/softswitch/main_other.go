//go:build !linux

package softswitch

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Main is the switch process; it needs Linux's packet sockets.
func Main(context.Context, io.Reader, io.Writer) error {
	return fmt.Errorf("soft switch: %w: it needs Linux", errors.ErrUnsupported)
}

// Cables is Main for the cables of another switch.
func Cables(context.Context, Behind, io.Reader, io.Writer) error {
	return fmt.Errorf("cables: %w: they need Linux", errors.ErrUnsupported)
}
