package predictor

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/inabench/inabench/internal/bounded"
)

// maxRequest bounds what Serve reads, in bytes: requests about thousands of jobs have some megabytes.
const maxRequest = 256 << 20

// Serve is the body of a predictor that is written in Go: it reads the request, has predict answer it, and writes that
// down. A program of one's own is a predictor by this in its main, with os.Stdin and os.Stdout.
func Serve(in io.Reader, out io.Writer, predict func(*Request) (*Answer, error)) error {
	text, err := bounded.ReadAll(in, maxRequest)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	var req Request
	if err := json.Unmarshal(text, &req); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if req.Schema != Schema {
		return fmt.Errorf("request has schema %d, this predictor knows %d", req.Schema, Schema)
	}
	answer, err := predict(&req)
	if err != nil {
		return err
	}
	answer.Schema = Schema
	return json.NewEncoder(out).Encode(answer)
}
