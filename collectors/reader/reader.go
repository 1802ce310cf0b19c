// Package reader reads counters on the host where they are: what every network device
// and its driver count, and files of sysfs. One process stays for as long as a testbed
// is open, and answers a line for each reading, which costs the host neither a process
// nor the network a round trip for each file.
//
// It needs no root and no program: a driver's statistics, which `ethtool -S` prints, come
// by the same ioctl (SIOCETHTOOL, linux/ethtool.h).
package reader

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/bounded"
)

// Config is the first line on stdin: what to read.
type Config struct {
	Devices []string `json:"devices"` // network devices
	// Stats are patterns (path.Match) of the names of driver statistics that matter.
	Stats []string `json:"stats,omitempty"`
	// Files are patterns (filepath.Glob) of files that hold one value each.
	Files []string `json:"files,omitempty"`
}

// Reading is the answer to each further line.
type Reading struct {
	Time    float64           `json:"time"`    // of the host's clock, seconds since 1970
	NetDev  string            `json:"net_dev"` // /proc/net/dev
	Devices map[string]Device `json:"devices"` // those that there are
	Files   map[string]string `json:"files,omitempty"`
	Errors  []string          `json:"errors,omitempty"` // what could not be read, and why
}

// Device is what a driver says of its device.
type Device struct {
	Index int               `json:"index"` // another one: another device of the same name
	Stats map[string]uint64 `json:"stats,omitempty"`
}

// Main answers readings until stdin ends.
func Main(_ context.Context, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewScanner(stdin)
	in.Buffer(nil, 1<<20)
	if !in.Scan() {
		return in.Err() // nil at EOF: nobody wants anything
	}
	var c Config
	if err := json.Unmarshal(in.Bytes(), &c); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	r, err := newReader(c)
	if err != nil {
		return err
	}
	defer r.close()
	for in.Scan() {
		if err := json.NewEncoder(stdout).Encode(r.read()); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return in.Err()
}

type reader struct {
	config Config
	tool   *ethtool
	files  []string // that match
	seen   time.Time
	names  map[string]names // of devices
}

// names are the statistics of a device that matter, and their places among all.
type names struct {
	index  int // of the device
	total  int
	wanted map[int]string
}

// look is how often files are looked for: devices come and go.
const look = 5 * time.Second

func newReader(c Config) (*reader, error) {
	for _, p := range c.Stats {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", p, err)
		}
	}
	for _, p := range c.Files {
		if _, err := filepath.Match(p, ""); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", p, err)
		}
	}
	t, err := newEthtool()
	if err != nil {
		return nil, err
	}
	return &reader{config: c, tool: t, names: map[string]names{}}, nil
}

func (r *reader) close() { r.tool.close() }

func (r *reader) read() Reading {
	out := Reading{Devices: map[string]Device{}, Files: map[string]string{}}
	fail := func(err error) { out.Errors = append(out.Errors, err.Error()) }
	if time.Since(r.seen) > look {
		r.seen, r.files = time.Now(), nil
		for _, p := range r.config.Files {
			found, _ := filepath.Glob(p)
			r.files = append(r.files, found...)
		}
	}
	out.Time = float64(time.Now().UnixNano()) / 1e9
	b, err := bounded.ReadFile("/proc/net/dev", bounded.Config)
	if err != nil {
		fail(err)
	}
	out.NetDev = string(b)
	for _, name := range r.config.Devices {
		d, err := r.device(name)
		if err != nil {
			fail(fmt.Errorf("device %s: %w", name, err))
			continue
		}
		out.Devices[name] = d
	}
	for _, f := range r.files {
		b, err := bounded.ReadFile(f, bounded.Config)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil: // one odd counter costs itself: EINVAL of some drivers
			fail(err)
		default:
			out.Files[f] = strings.TrimSpace(string(b))
		}
	}
	return out
}

func (r *reader) device(name string) (Device, error) {
	index, err := r.tool.index(name)
	if err != nil {
		return Device{}, err
	}
	d := Device{Index: index}
	if len(r.config.Stats) == 0 {
		return d, nil
	}
	n, ok := r.names[name]
	if !ok || n.index != index {
		all, err := r.tool.strings(name)
		if err != nil {
			return d, err
		}
		n = names{index: index, total: len(all), wanted: map[int]string{}}
		for i, s := range all {
			if slices.ContainsFunc(r.config.Stats, func(p string) bool { ok, _ := path.Match(p, s); return ok }) {
				n.wanted[i] = s
			}
		}
		r.names[name] = n
	}
	if len(n.wanted) == 0 {
		return d, nil
	}
	values, err := r.tool.stats(name, n.total)
	if err != nil {
		delete(r.names, name) // its driver was loaded anew, and counts something else
		return d, err
	}
	d.Stats = map[string]uint64{}
	for i, s := range n.wanted {
		d.Stats[s] = values[i]
	}
	return d, nil
}
