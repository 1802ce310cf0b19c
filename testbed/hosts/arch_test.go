package hosts

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// built is a program of a module of its own, for an architecture.
func built(t *testing.T, dir, name, module, arch string) string {
	t.Helper()
	src := t.TempDir()
	for file, text := range map[string]string{"go.mod": "module " + module + "\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(src, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir, cmd.Env = src, append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// A host of another architecture gets the program that is beside this one, if it is of the same release.
func TestProgramFor(t *testing.T) {
	if path, err := ProgramFor("/proc/self/exe", runtime.GOARCH); err != nil || path != "/proc/self/exe" {
		t.Errorf("this machine's: %s, %v", path, err)
	}
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	if other == "" {
		t.Skipf("no other architecture than %s is known", runtime.GOARCH)
	}
	if _, err := ProgramFor("/proc/self/exe", other); err == nil || !strings.Contains(err.Error(), "put inabench-linux-"+other+" of the same release into ") {
		t.Errorf("none is there: %v", err)
	}

	ours := t.TempDir()
	own, err := buildinfo.ReadFile(built(t, ours, "inabench", "example.org/inabench", runtime.GOARCH))
	if err != nil {
		t.Fatal(err)
	}
	beside := built(t, ours, "inabench-linux-"+other, "example.org/inabench", other)
	if path, err := programFor(own, []string{t.TempDir(), ours}, other); err != nil || path != beside {
		t.Errorf("beside it: %s, %v", path, err)
	}

	wrong := t.TempDir()
	built(t, wrong, "inabench-linux-"+other, "example.org/inabench", runtime.GOARCH)
	if _, err := programFor(own, []string{wrong}, other); err == nil || !strings.Contains(err.Error(), "is for linux/"+runtime.GOARCH) {
		t.Errorf("of a wrong architecture: %v", err)
	}
	if path, err := programFor(own, []string{wrong, ours}, other); err != nil || path != beside {
		t.Errorf("the right one after a wrong one: %s, %v", path, err)
	}
	built(t, wrong, "inabench-linux-"+other, "example.org/another", other)
	if _, err := programFor(own, []string{wrong}, other); err == nil || !strings.Contains(err.Error(), "is of another release: example.org/another") {
		t.Errorf("of another release: %v", err)
	}
	if err := os.WriteFile(filepath.Join(wrong, "inabench-linux-"+other), []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := programFor(own, []string{wrong}, other); err == nil {
		t.Error("what is no program")
	}
}

func TestArchitecture(t *testing.T) {
	for machine, want := range map[string]string{"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "", "": ""} {
		if got := Architecture(machine); got != want {
			t.Errorf("%q is %q, want %q", machine, got, want)
		}
	}
}
