package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// confined runs a command where something is scarce, in a user namespace of its own:
//
//	confined disk=SIZE:DIR COMMAND ...   DIR is a file system of SIZE bytes (k, m)
//	confined namespaces COMMAND ...      no further namespaces may be made
//	confined without=FILE COMMAND ...    a program is not installed, if it ever was
func confined() {
	err := confine(os.Args[1], os.Args[2:])
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "confined:", err)
		os.Exit(125)
	}
}

func confine(what string, argv []string) error {
	const inside = "INABENCH_TEST_CONFINED"
	if os.Getenv(inside) == "" {
		runtime.LockOSThread() // the parent death signal is bound to the thread
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = os.Args
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
			Pdeathsig:   syscall.SIGKILL,
		}
		return cmd.Run()
	}
	os.Unsetenv(inside)
	if disk, ok := strings.CutPrefix(what, "disk="); ok {
		size, dir, _ := strings.Cut(disk, ":")
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
			return fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
		}
	} else if file, ok := strings.CutPrefix(what, "without="); ok {
		if err := unix.Mount("/dev/null", file, "", unix.MS_BIND, ""); err != nil && err != unix.ENOENT {
			return fmt.Errorf("hide %s: %w", file, err)
		}
	} else {
		for _, kind := range []string{"net", "user"} {
			if err := os.WriteFile("/proc/sys/user/max_"+kind+"_namespaces", []byte("0"), 0); err != nil {
				return err
			}
		}
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, argv, os.Environ())
}
