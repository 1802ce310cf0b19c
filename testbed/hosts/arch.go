package hosts

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// machines are the names that uname gives to architectures of which this program can be, by Go's.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// Architecture is Go's name of what uname -m says; empty of one that this program is not made for.
func Architecture(machine string) string {
	for arch, m := range machines {
		if m == machine {
			return arch
		}
	}
	return ""
}

// packaged is where packages keep this program for hosts of other architectures.
const packaged = "/usr/lib/inabench"

// ProgramFor is the file that holds this program for Linux on an architecture, by Go's name: exe is it on this machine's,
// and of another one it is inabench-linux-ARCH beside this program, or where packages keep it. It is of the same release, or
// there is an error that says what to do.
func ProgramFor(exe, arch string) (string, error) {
	if arch == runtime.GOARCH {
		return exe, nil
	}
	own, ok := debug.ReadBuildInfo()
	if !ok {
		return "", fmt.Errorf("no program for %s: this one does not say what it was built of", arch)
	}
	dirs := []string{packaged}
	if path, err := os.Executable(); err == nil {
		dirs = []string{filepath.Dir(path), packaged}
	}
	return programFor(own, dirs, arch)
}

func programFor(own *debug.BuildInfo, dirs []string, arch string) (string, error) {
	name := "inabench-linux-" + arch
	var errs []error
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		info, err := buildinfo.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			err = fmt.Errorf("%s: %w", path, err)
		case Setting(info, "GOOS") != "linux" || Setting(info, "GOARCH") != arch:
			err = fmt.Errorf("%s is for %s/%s", path, Setting(info, "GOOS"), Setting(info, "GOARCH"))
		case release(info) != release(own):
			err = fmt.Errorf("%s is of another release: %s, and this one is %s", path, release(info), release(own))
		default:
			return path, nil
		}
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}
	return "", fmt.Errorf("no program for %s: put %s of the same release into %s", arch, name, strings.Join(dirs, " or "))
}

// release is what a program was built of.
func release(info *debug.BuildInfo) string {
	said := []string{info.Path, info.Main.Version, Setting(info, "vcs.revision")}
	if Setting(info, "vcs.modified") == "true" {
		said = append(said, "with changes")
	}
	return strings.Join(slices.DeleteFunc(said, func(s string) bool { return s == "" }), " ")
}

// Setting is what a program was built with, by a key of debug.BuildSetting, such as "vcs.revision"; empty: nobody says.
func Setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// EnsureProgram makes this program, exe, present on every host, and returns its path on each: see EnsureFile. What a host
// gets is for its architecture.
func EnsureProgram(ctx context.Context, all []Host, exe string) ([]string, error) {
	archs := make([]string, len(all))
	err := FanOut(ctx, 0, all, func(ctx context.Context, i int, h Host) error {
		out, err := h.Run(ctx, []string{"uname", "-m"}, nil)
		if err != nil {
			return err
		}
		machine := strings.TrimSpace(string(out.Stdout))
		if archs[i] = Architecture(machine); archs[i] == "" {
			return Name(h.String(), fmt.Errorf("it is a %.64q, for which there is no program", machine))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	paths := make([]string, len(all))
	for _, arch := range slices.Compact(slices.Sorted(slices.Values(archs))) {
		local, err := ProgramFor(exe, arch)
		if err != nil {
			i := slices.Index(archs, arch)
			return nil, Name(all[i].String(), err)
		}
		var those []Host
		for i, a := range archs {
			if a == arch {
				those = append(those, all[i])
			}
		}
		path, err := EnsureFile(ctx, those, local)
		if err != nil {
			return nil, err
		}
		for i, a := range archs {
			if a == arch {
				paths[i] = path
			}
		}
	}
	return paths, nil
}
