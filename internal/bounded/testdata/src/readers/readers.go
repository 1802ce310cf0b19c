// Package readers has what the analyzer must find, and what it must not.
package readers

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

type own struct{ io.Reader }

func reads(r io.Reader, f fs.FS, cmd *exec.Cmd, resp *http.Response) {
	io.ReadAll(r)                               // want `io.ReadAll`
	io.ReadAll(own{r})                          // want `io.ReadAll`
	os.ReadFile("/etc/passwd")                  // want `os.ReadFile`
	fs.ReadFile(f, "x")                         // want `io/fs.ReadFile`
	new(bytes.Buffer).ReadFrom(r)               // want `\(\*bytes.Buffer\).ReadFrom`
	bufio.NewReader(r).ReadBytes('\n')          // want `\(\*bufio.Reader\).ReadBytes`
	bufio.NewReader(r).ReadString('\n')         // want `\(\*bufio.Reader\).ReadString`
	json.NewDecoder(r).Decode(new(int))         // want `encoding/json.NewDecoder`
	json.NewDecoder(resp.Body).Decode(new(int)) // want `encoding/json.NewDecoder`
	csv.NewReader(r).Read()                     // want `encoding/csv.NewReader`
	cmd.Output()                                // want `\(\*os/exec.Cmd\).Output`
	cmd.CombinedOutput()                        // want `\(\*os/exec.Cmd\).CombinedOutput`
	io.Copy(new(bytes.Buffer), r)               // want `io.Copy`
	io.Copy(new(strings.Builder), r)            // want `io.Copy`
	read := io.ReadAll                          // want `io.ReadAll`
	read(r)
	new(bufio.Scanner).Buffer(nil, 0)

	path := os.Args[1]
	os.Open(path)                                     // want `os.Open may wait`
	os.Open("runs/x")                                 // want `os.Open may wait`
	os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666) // want `os.OpenFile may wait`
	os.OpenFile(path, len(path), 0o666)               // want `os.OpenFile may wait`
	open := os.Open                                   // want `os.Open may wait`
	open(path)

	// The kernel's, new, or a directory.
	os.Open("/proc")
	os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	os.OpenFile("/dev/pts/"+path, os.O_RDWR, 0)
	os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, 0)

	// Bounded, or of what is in memory already.
	io.Copy(io.Discard, r)
	json.NewDecoder(bytes.NewReader(nil)).Decode(new(int))
	json.NewDecoder(strings.NewReader("")).Decode(new(int))
	json.NewDecoder(io.LimitReader(r, 10)).Decode(new(int))
	io.ReadAll(io.LimitReader(r, 10))
	for s := bufio.NewScanner(r); s.Scan(); {
	}
}
