package deploy

import "time"

// SetEndTimeout changes endTimeout, and returns what it was.
func SetEndTimeout(d time.Duration) (was time.Duration) {
	was, endTimeout = endTimeout, d
	return was
}
