package netns

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/inabench/inabench/internal/bounded"
)

// A restrictedError says why this machine does not let an ordinary user make
// namespaces, and the ways out.
type restrictedError struct {
	why string
	fix string
	err error
}

func (e *restrictedError) Error() string {
	return fmt.Sprintf("namespaces are not available: %s (%v); %s", e.why, e.err, e.fix)
}

func (e *restrictedError) Unwrap() []error { return []error{errors.ErrUnsupported, e.err} }

// Hint is what to do about it.
func (e *restrictedError) Hint() string { return e.fix }

const (
	sudoFix     = "run with sudo, which needs no user namespace"
	apparmorFix = `either "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0", or give this program an AppArmor profile with the "userns," rule (or ` + sudoFix + `)`
)

// unsupported explains an error of making the namespaces from this machine's
// settings, which read gives.
func unsupported(err error, read func(string) ([]byte, error)) error {
	setting := func(path string) string {
		b, _ := read("/proc/sys/" + path)
		return strings.TrimSpace(string(b))
	}
	refused := errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES)
	switch {
	case refused && setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return &restrictedError{"AppArmor restricts unprivileged user namespaces (kernel.apparmor_restrict_unprivileged_userns = 1, the default since Ubuntu 23.10)", apparmorFix, err}
	case refused && setting("kernel/unprivileged_userns_clone") == "0":
		return &restrictedError{"kernel.unprivileged_userns_clone = 0", `either "sudo sysctl -w kernel.unprivileged_userns_clone=1", or ` + sudoFix, err}
	case (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EUSERS)) && setting("user/max_user_namespaces") == "0":
		return &restrictedError{"user.max_user_namespaces = 0", `either "sudo sysctl -w user.max_user_namespaces=10000", or ` + sudoFix, err}
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EUSERS):
		return &restrictedError{"the limit on namespaces is reached", `raise it with "sudo sysctl -w user.max_user_namespaces=10000 user.max_net_namespaces=10000"`, err}
	case errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS):
		return &restrictedError{"this kernel was built without them", "use a kernel with CONFIG_USER_NS, CONFIG_NET_NS and CONFIG_PID_NS, or " + sudoFix, err}
	case refused:
		return &restrictedError{"a security policy forbids them, as in most containers", `either start the container with "--privileged" (or "--cap-add=SYS_ADMIN --cap-add=NET_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined"), or run outside of it`, err}
	}
	return fmt.Errorf("start the emulation: %w", err)
}

func readSmall(path string) ([]byte, error) { return bounded.ReadFile(path, bounded.Small) }
