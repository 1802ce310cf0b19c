package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/results"
)

// How commands write what they have found.

// put writes a document in the format that --output names: as JSON, or as text does.
func put(c *cli.Context, doc any, text func(w io.Writer) error) error {
	if c.String("output") == "json" {
		return writeJSON(c.App.Writer, doc)
	}
	return text(c.App.Writer)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "\t")
	return enc.Encode(v)
}

// newTable begins a table with the heads of its columns, if it has some. Cells end with tabs, and Flush ends it.
func newTable(w io.Writer, heads ...string) *tabwriter.Writer {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if len(heads) > 0 {
		fmt.Fprintln(tw, strings.Join(heads, "\t"))
	}
	return tw
}

// writeFound writes a row of a table: whether something is well, what it is, what was found, and what to do about it,
// if anything.
func writeFound(w io.Writer, mark, what, found, todo string) {
	fmt.Fprintf(w, "%s\t%s\t%s\n", mark, what, found)
	if todo != "" {
		fmt.Fprintf(w, "\t\tto do: %s\n", todo)
	}
}

// writeTo writes to the file that --output names, whole or not at all, or to stdout, and says to which.
func writeTo(c *cli.Context, write func(w io.Writer) error) (to string, err error) {
	var whole bytes.Buffer
	if to = cmp.Or(c.String("output"), stdin); to == stdin {
		to, err = "stdout", write(c.App.Writer)
	} else if err = write(&whole); err == nil {
		return to, writeWhole(to, whole.Bytes())
	}
	if err != nil {
		return "", outputError{err}
	}
	return to, nil
}

// writeWhole writes a file so that others see the old one or the new one, whole, as who collects
// files of metrics must.
func writeWhole(file string, data []byte) error {
	if st, err := os.Stat(file); err == nil && !st.Mode().IsRegular() { // a pipe, or a device
		if err := os.WriteFile(file, data, 0o644); err != nil {
			return outputError{err}
		}
		return nil
	}
	if err := results.WriteAtomically(file, data); err != nil {
		return outputError{fmt.Errorf("write %s: %w", file, err)}
	}
	return nil
}

// writeInto is writeWhole of a file in a folder, which is made if it is not there.
func writeInto(folder, name string, data []byte) (path string, err error) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return "", outputError{err}
	}
	path = filepath.Join(folder, name)
	return path, writeWhole(path, data)
}
