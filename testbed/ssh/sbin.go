package ssh

// Sbin is a command whose program is also looked for where the PATH of ordinary users
// does not lead: many tools of administrators need no root to run.
func Sbin(argv []string) []string {
	return append([]string{"sh", "-c", `PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; export PATH; exec "$@"`, "sh"}, argv...)
}
