package predictor

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/inabench/inabench/internal/bounded"
)

// maxRequest bounds what Serve reads, in bytes: requests about thousands of jobs have some megabytes.
const maxRequest = 256 << 20

// Serve is the body of a predictor that is written in Go and knows version 1 of the documents: it reads the request, has
// predict answer it, and writes that down. A program of one's own is a predictor by this in its main, with os.Stdin and
// os.Stdout. It refuses requests of later versions.
func Serve(in io.Reader, out io.Writer, predict func(*Request) (*Answer, error)) error {
	return ServeUpTo(Schema, in, out, predict)
}

// ServeUpTo is Serve of a predictor that knows all versions up to that of a number, Newest at most.
func ServeUpTo(version int, in io.Reader, out io.Writer, predict func(*Request) (*Answer, error)) error {
	text, err := bounded.ReadAll(in, maxRequest)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	var req Request
	if err := json.Unmarshal(text, &req); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if req.Schema < Schema || req.Schema > min(version, Newest) {
		return fmt.Errorf("request has schema %d, this predictor knows %d", req.Schema, min(version, Newest))
	}
	answer, err := predict(&req)
	if err != nil {
		return err
	}
	answer.Schema = req.Schema
	return json.NewEncoder(out).Encode(answer)
}
