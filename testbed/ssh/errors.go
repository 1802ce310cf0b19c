package ssh

import (
	"errors"

	"github.com/inabench/inabench/testbed/hosts"
)

// What can be wrong with a login, beside what can be wrong with every host. A *hosts.Error wraps it.
var (
	// ErrHostKey: the host's key is unknown, or not the known one.
	ErrHostKey = errors.New("host key not verified")
	// ErrAuth: the host does not let this user in with these keys.
	ErrAuth = errors.New("permission denied")
	// ErrConfig: the user's ssh_config says what cannot be followed.
	ErrConfig = errors.New("ssh_config")
)

var _ hosts.Host = (*Client)(nil)
