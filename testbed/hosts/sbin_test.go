package hosts

import (
	"os/exec"
	"testing"
)

// A program of /usr/sbin is found with the PATH of an ordinary user, and arguments
// arrive as they are.
func TestSbin(t *testing.T) {
	argv := Sbin([]string{"printf", "%s|", "a b", "$(reboot)", "'"})
	cmd := exec.Command(argv[0], argv[1:]...)
	if out, err := cmd.Output(); err != nil || string(out) != "a b|$(reboot)|'|" {
		t.Errorf("%q, %v", out, err)
	}
	argv = Sbin([]string{"sh", "-c", "echo $PATH"})
	cmd = exec.Command("/bin/sh", argv[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	if out, err := cmd.Output(); err != nil || string(out) != "/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin\n" {
		t.Errorf("%q, %v", out, err)
	}
}
