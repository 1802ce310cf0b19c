package netns

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"

	"github.com/inabench/inabench/testbed/softswitch"
)

// runSwitch stands in for softswitch.Main: it answers and switches nothing.
func runSwitch(ctx context.Context, in io.Reader, out io.Writer) error {
	r := bufio.NewReader(in)
	var c softswitch.Config
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &c); err != nil {
		return err
	}
	ln, err := net.Listen("tcp4", c.Listen)
	if err != nil {
		return err
	}
	defer ln.Close()
	fmt.Fprintln(out, `{"ready":true}`)
	for {
		if _, err := r.ReadBytes('\n'); err != nil {
			return nil
		}
		fmt.Fprintln(out, `{}`)
	}
}
