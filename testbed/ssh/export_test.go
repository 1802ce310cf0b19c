package ssh

import (
	"context"
	"io"
	"io/fs"
)

// UploadFrom is Upload from a reader.
func (c *Client) UploadFrom(ctx context.Context, r io.Reader, remote string, mode fs.FileMode) error {
	return c.write(ctx, "upload to "+remote, r, remote, mode)
}
