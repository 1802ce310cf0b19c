package ssh

import (
	"errors"

	"github.com/inabench/inabench/testbed/hosts"
)

// What can be wrong with a login, beside what can be wrong with every host. A *hosts.Error wraps it.
var (
	// ErrHostKey: the host's key is unknown, or not the known one.
	ErrHostKey = errors.New("host key not verified")
	// ErrAuth: the host does not let this user in with these keys, or there is none.
	ErrAuth = errors.New("permission denied")
	// ErrConfig: the user's ssh_config says what cannot be followed.
	ErrConfig = errors.New("ssh_config")
)

// noKey is ErrAuth where there is no key to offer: the host was not asked.
type noKey struct{}

func (noKey) Error() string        { return "not asked" }
func (noKey) Is(target error) bool { return target == ErrAuth }

var _ hosts.Host = (*Client)(nil)
