package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// cmdTTY runs a command whose stdout and stderr are a terminal of 80 columns. What it
// writes is the script's stdout.
func cmdTTY(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 1, "tty COMMAND ...")
	cmd := exec.Command("/bin/sh", append([]string{"-c", `exec "$@"`, "sh"}, args...)...)
	cmd.Dir = ts.MkAbs(".")
	for _, key := range []string{"PATH", "HOME", "NO_COLOR", "GORACE"} {
		if v := ts.Getenv(key); v != "" {
			cmd.Env = append(cmd.Env, key+"="+v)
		}
	}
	out, err := onTerminal(80, cmd)
	fmt.Fprint(ts.Stdout(), out)
	ts.Check(err)
}

// onTerminal runs a command whose stdout and stderr are a terminal of so many columns, and is what it wrote there.
func onTerminal(columns uint16, cmd *exec.Cmd) (string, error) {
	master, slave, err := openTerminal(columns)
	if err != nil {
		return "", err
	}
	defer master.Close()
	var out strings.Builder
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&out, master) }) // ends with EIO when nobody has the other end
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Stdout, cmd.Stderr = slave, slave
	err = cmd.Run()
	slave.Close()
	reading.Wait()
	return strings.ReplaceAll(out.String(), "\r\n", "\n"), err
}

func openTerminal(columns uint16) (master, slave *os.File, err error) {
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	master = os.NewFile(uintptr(m), "/dev/ptmx")
	n, err := unix.IoctlGetInt(m, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(m, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	return master, slave, nil
}
