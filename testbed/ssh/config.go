package ssh

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/inabench/inabench/internal/bounded"
)

// The files that are read where a target names none, in this order.
const (
	userConfig   = "~/.ssh/config"
	systemConfig = "/etc/ssh/ssh_config"
)

// configFiles are ssh_config files as they were read, for one Dialer. What a file
// says of a host is found as ssh does it: the first value of a keyword wins.
type configFiles struct {
	files map[string]*configFile // by path
	warn  []string               // about whole files
}

// configFile is one file: its Host lines in order, of which the first stands for all hosts and has what is before any.
type configFile struct{ blocks []block }

// block is a Host line and the lines that follow it.
type block struct {
	patterns []string
	options  []option
}

// maxInclude is how deep files may include each other, as in OpenSSH.
const maxInclude = 16

// read reads a file, once.
func (c *configFiles) read(path string) (*configFile, error) {
	if f, ok := c.files[path]; ok {
		return f, nil
	}
	if err := guarded(path); err != nil {
		return nil, err
	}
	text, err := bounded.ReadFile(path, bounded.Config)
	if err != nil {
		return nil, err
	}
	f, warn, err := parseConfig(path, string(text))
	if err != nil {
		return nil, err
	}
	if c.files == nil {
		c.files = map[string]*configFile{}
	}
	c.files[path] = f
	c.warn = append(c.warn, warn...)
	return f, nil
}

// guarded refuses a file that anybody may write: it could name another host, and another
// known_hosts file with that one's key, or a command. One in the user's ~/.ssh must be the user's own or root's, and no
// group's but the user's alone may write it; so has OpenSSH it, as Debian builds it.
func guarded(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	mode, st := info.Mode(), info.Sys().(*syscall.Stat_t)
	own := strings.HasPrefix(path, homeFile("")+string(filepath.Separator))
	switch {
	case mode&0o002 != 0:
		return fmt.Errorf("%s can be written by everybody: chmod o-w %s", path, path)
	case own && st.Uid != 0 && int(st.Uid) != os.Getuid() && !(os.Getuid() == 0 && ownsHome(st.Uid)):
		return fmt.Errorf("%s belongs to somebody else, user %d", path, st.Uid)
	case own && mode&0o020 != 0 && !privateGroup(st.Gid):
		return fmt.Errorf("%s can be written by its group: chmod g-w %s", path, path)
	}
	return nil
}

// ownsHome says whether the home in which root is, by sudo -E, is that user's.
func ownsHome(uid uint32) bool {
	info, err := os.Stat(filepath.Dir(homeFile("")))
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == uid
}

// privateGroup says whether a group is the user's own, which has the user's name.
func privateGroup(gid uint32) bool {
	u, err := user.Current()
	if err != nil || u.Gid != strconv.FormatUint(uint64(gid), 10) {
		return false
	}
	g, err := user.LookupGroupId(u.Gid)
	return err == nil && g.Name == u.Username
}

// parseConfig reads the text of a file. Blocks of Match are left out, with a warning.
func parseConfig(name, text string) (f *configFile, warn []string, err error) {
	f = &configFile{[]block{{patterns: []string{"*"}}}}
	matching := false // inside a block that is left out
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", name, i+1)
		key, args, err := splitConfig(line)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", at, err)
		case key == "match" && len(args) == 1 && strings.EqualFold(args[0], "all"):
			key, args = "host", []string{"*"}
		case key == "match":
			matching = true
			warn = append(warn, fmt.Sprintf("%s: Match is not supported: the lines up to the next Host are ignored", at))
		}
		switch {
		case key == "host":
			for _, pattern := range args {
				if pattern == "!" || strings.ContainsAny(pattern, " \t#") {
					return nil, nil, fmt.Errorf("%s: %q is not a pattern of hosts", at, pattern)
				}
			}
			matching = false
			f.blocks = append(f.blocks, block{patterns: args})
		case key != "" && !matching:
			last := &f.blocks[len(f.blocks)-1]
			last.options = append(last.options, option{at, key, args})
		}
	}
	return f, warn, nil
}

// splitConfig takes a line apart: a keyword in lower case and its arguments, which
// may stand in double quotes; nothing for a comment, which may also follow them.
func splitConfig(line string) (key string, args []string, err error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", nil, nil
	}
	n := strings.IndexFunc(line, func(r rune) bool { return (r|0x20 < 'a' || r|0x20 > 'z') && (r < '0' || r > '9') })
	if n < 0 {
		n = len(line)
	}
	key, rest := strings.ToLower(line[:n]), strings.TrimLeft(line[n:], " \t")
	if n == 0 || len(rest) == len(line)-n && rest != "" && rest[0] != '=' {
		return "", nil, fmt.Errorf("%q is not a keyword", strings.Fields(line)[0])
	}
	if rest != "" && rest[0] == '=' {
		rest = strings.TrimLeft(rest[1:], " \t")
	}
	for rest != "" && rest[0] != '#' { // with which a comment begins, up to the end of the line
		var arg string
		if rest[0] == '"' {
			end := strings.IndexByte(rest[1:], '"')
			if end < 0 {
				return "", nil, fmt.Errorf("%s: a quote is not closed", line[:n])
			}
			arg, rest = rest[1:1+end], rest[2+end:]
		} else {
			end := strings.IndexAny(rest, " \t")
			if end < 0 {
				end = len(rest)
			}
			arg, rest = rest[:end], rest[end:]
		}
		if arg != "" {
			args = append(args, arg)
		}
		rest = strings.TrimLeft(rest, " \t")
	}
	if len(args) == 0 {
		return "", nil, fmt.Errorf("%s has no value", line[:n])
	}
	return key, args, nil
}

// applies tells whether a block is about a host.
func (b *block) applies(alias string) bool {
	found := false
	for _, p := range b.patterns {
		pattern, not := strings.CutPrefix(p, "!")
		switch ok := matchPattern(pattern, alias); {
		case ok && not:
			return false
		case ok:
			found = true
		}
	}
	return found
}

// matchPattern matches * with anything and ? with any one byte.
func matchPattern(pattern, s string) bool {
	star, from := -1, 0 // the last * and what it began to stand for
	i, k := 0, 0
	for k < len(s) {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			star, from = i, k
			i++
		case i < len(pattern) && (pattern[i] == '?' || pattern[i] == s[k]):
			i, k = i+1, k+1
		case star >= 0:
			from++
			i, k = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[i:], "*") == ""
}

// option is one line that concerns a host.
type option struct {
	at   string // file:line
	key  string // lower case
	args []string
}

// walk calls visit with every line of a file that concerns alias, in order.
func (c *configFiles) walk(path, alias string, depth int, visit func(option) error) error {
	if depth > maxInclude {
		return fmt.Errorf("%s: files include each other more than %d deep", path, maxInclude)
	}
	f, err := c.read(path)
	if err != nil {
		return err
	}
	for i := range f.blocks {
		b := &f.blocks[i]
		if !b.applies(alias) {
			continue
		}
		for _, o := range b.options {
			if o.key == "include" {
				err = c.include(o, path, alias, depth, visit)
			} else {
				err = visit(o)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// include follows an Include. Relative names are meant from ~/.ssh, and in the
// system's files from /etc/ssh.
func (c *configFiles) include(o option, path, alias string, depth int, visit func(option) error) error {
	for _, name := range o.args {
		name = expandHome(name)
		if !filepath.IsAbs(name) {
			dir := filepath.Dir(homeFile("config"))
			if strings.HasPrefix(path, "/etc/ssh/") {
				dir = "/etc/ssh"
			}
			name = filepath.Join(dir, name)
		}
		files, err := filepath.Glob(name)
		if err != nil {
			return fmt.Errorf("%s: Include %s: %w", o.at, name, err)
		}
		for _, file := range files {
			if err := c.walk(file, alias, depth+1, visit); err != nil {
				return fmt.Errorf("%s: %w", o.at, err)
			}
		}
	}
	return nil
}

// settings are what ssh_config says of one host.
type settings struct {
	first map[string]option // by keyword
	keys  []option          // IdentityFile, of which all count
	certs []option          // CertificateFile, too
	jump  option            // ProxyJump or ProxyCommand, whichever comes first
}

// lookup collects what the files say of alias. One that was named must exist.
func (c *configFiles) lookup(named, alias string) (*settings, error) {
	s := &settings{first: map[string]option{}}
	visit := func(o option) error {
		switch o.key {
		case "identityfile":
			s.keys = append(s.keys, o)
			return nil
		case "certificatefile":
			s.certs = append(s.certs, o)
			return nil
		case "proxyjump", "proxycommand":
			if s.jump.key == "" {
				s.jump = o
			}
			return nil
		case "pubkeyacceptedkeytypes": // its older name
			o.key = "pubkeyacceptedalgorithms"
		}
		if _, ok := s.first[o.key]; !ok {
			s.first[o.key] = o
		}
		return nil
	}
	files := []string{named}
	if named == "" {
		files = []string{userConfig, systemConfig}
	}
	for _, file := range files {
		err := c.walk(expandHome(file), alias, 0, visit)
		if err != nil && (named != "" || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
	}
	return s, nil
}

// apply fills in what t leaves open. What the user should know is appended to warn.
func (s *settings) apply(t *Target, alias string, warn *[]string) error {
	tok := tokens{alias: alias, host: alias}
	if o, ok := s.first["hostname"]; ok {
		name, err := tok.expand(o, o.args[0])
		if err != nil {
			return err
		}
		tok.host = name
	}
	_, port, err := splitAddress(t.Address)
	if err != nil {
		return err
	}
	if o, ok := s.first["port"]; ok && port == "" {
		if n, err := strconv.ParseUint(o.args[0], 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%s: %q is not a port", o.at, o.args[0])
		}
		port = o.args[0]
	}
	tok.port = cmp.Or(port, "22")
	t.Address = net.JoinHostPort(tok.host, tok.port)
	if o, ok := s.first["user"]; ok && t.User == "" {
		t.User = o.args[0]
	}
	t.User = cmp.Or(t.User, currentUser())
	tok.user = t.User
	asksForSHA1 := func(key string) bool {
		o, ok := s.first[key]
		return ok && len(o.args) == 1 && o.args[0] == sha1Asked
	}
	t.sha1HostKeys, t.sha1Keys = asksForSHA1("hostkeyalgorithms"), asksForSHA1("pubkeyacceptedalgorithms")
	if o, ok := s.first["hostkeyalias"]; ok {
		t.hostKeyAlias = o.args[0]
	}
	tok.key = cmp.Or(t.hostKeyAlias, alias)

	paths := func(options []option) (out []string, err error) {
		for _, o := range options {
			for _, arg := range o.args {
				p, err := tok.expand(o, arg)
				if err != nil {
					return nil, err
				}
				if p != "none" && !slices.Contains(out, p) {
					out = append(out, p)
				}
			}
		}
		return out, nil
	}
	if len(t.Keys) == 0 && len(t.Signers) == 0 {
		if t.Keys, err = paths(s.keys); err != nil {
			return err
		}
	}
	if len(t.Certificates) == 0 {
		if t.Certificates, err = paths(s.certs); err != nil {
			return err
		}
	}
	if len(t.KnownHosts) == 0 {
		for _, x := range []struct {
			key string
			def []string
		}{
			{"userknownhostsfile", []string{homeFile("known_hosts"), homeFile("known_hosts2")}},
			{"globalknownhostsfile", []string{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}},
		} {
			files := x.def
			if o, ok := s.first[x.key]; ok {
				if files, err = paths([]option{o}); err != nil {
					return err
				}
			}
			t.KnownHosts = append(t.KnownHosts, files...)
		}
	}
	if o, ok := s.first["revokedhostkeys"]; ok && !strings.EqualFold(o.args[0], "none") {
		for _, arg := range o.args {
			file, err := tok.expand(o, arg)
			if err != nil {
				return err
			}
			t.revoked = append(t.revoked, file)
		}
	}
	if o, ok := s.first["identityagent"]; ok && t.Agent == "" {
		switch {
		case o.args[0] == "SSH_AUTH_SOCK": // the default
		case strings.HasPrefix(o.args[0], "$"):
			t.Agent = cmp.Or(os.Getenv(strings.Trim(o.args[0], "${}")), "none")
		default:
			if t.Agent, err = tok.expand(o, o.args[0]); err != nil {
				return err
			}
		}
	}
	if t.IdentitiesOnly, err = s.flag("identitiesonly", t.IdentitiesOnly); err != nil {
		return err
	}
	if err := s.seconds("connecttimeout", &t.Timeout); err != nil {
		return err
	}
	if err := s.seconds("serveraliveinterval", &t.KeepAlive); err != nil {
		return err
	}
	if o, ok := s.first["serveralivecountmax"]; ok && t.KeepAliveMax == 0 {
		n, err := strconv.ParseUint(o.args[0], 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%s: %q is not a number of keepalives", o.at, o.args[0])
		}
		t.KeepAliveMax = int(n)
	}
	*warn = append(*warn, s.disobeyed()...)
	return s.applyJump(t, alias)
}

// seconds reads a time ("10", "1m30s") into what was left open. 0 leaves it open: a
// dead host must be noticed.
func (s *settings) seconds(key string, to *time.Duration) error {
	o, ok := s.first[key]
	if !ok || *to != 0 || o.args[0] == "none" {
		return nil
	}
	text := o.args[0]
	if strings.Trim(text, "0123456789") == "" {
		text += "s"
	}
	d, err := time.ParseDuration(strings.ToLower(text))
	if err != nil || d < 0 {
		return fmt.Errorf("%s: %q is not a number of seconds", o.at, o.args[0])
	}
	*to = d
	return nil
}

// applyJump makes targets of a ProxyJump. A "Host *" is about the jump hosts as well:
// none of them is reached through itself.
func (s *settings) applyJump(t *Target, alias string) error {
	if s.jump.key == "" || t.Jump != nil || t.Direct || s.jump.args[0] == "none" {
		return nil
	}
	if s.jump.key == "proxycommand" {
		return fmt.Errorf("%s: ProxyCommand is not supported: write ProxyJump, or the way through in the inventory (jump = ...)", s.jump.at)
	}
	for hop := range strings.SplitSeq(strings.Join(s.jump.args, ""), ",") {
		jump, err := ParseJump(hop)
		if err != nil {
			return fmt.Errorf("%s: ProxyJump: %w", s.jump.at, err)
		}
		if host, _, _ := splitAddress(jump.Address); host == alias {
			break
		}
		jump.Config = t.Config
		jump.Jump, t.Jump = t.Jump, &jump
	}
	return nil
}

// ParseJump reads what stands for a jump host: "host", "user@host:port" or
// "ssh://user@host:port".
func ParseJump(s string) (Target, error) {
	s = strings.TrimSpace(s)
	t := Target{Name: s}
	rest := strings.TrimSuffix(strings.TrimPrefix(s, "ssh://"), "/")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		t.User, rest = rest[:i], rest[i+1:]
	}
	host, port, err := splitAddress(rest)
	if err != nil || host == "" {
		return Target{}, fmt.Errorf("%q is not a host to go through: write user@host:port", s)
	}
	if t.Address = host; port != "" {
		t.Address = net.JoinHostPort(host, port)
	}
	return t, nil
}

// flag is the value of a yes-or-no keyword.
func (s *settings) flag(key string, def bool) (bool, error) {
	o, ok := s.first[key]
	if !ok {
		return def, nil
	}
	switch strings.ToLower(o.args[0]) {
	case "yes", "true":
		return true, nil
	case "no", "false":
		return def, nil
	}
	return false, fmt.Errorf("%s: %q is neither yes nor no", o.at, o.args[0])
}

// sha1Asked is the one value of HostKeyAlgorithms and PubkeyAcceptedAlgorithms that is obeyed: switches and
// hosts that are old sign with nothing else, and who has one says so.
const sha1Asked = "+ssh-rsa"

// disobeyed are the lines that would change who is let in or how a host is reached,
// and that are not followed. The rest of ssh_config is about terminals, forwarding and
// the like, which has no part here.
func (s *settings) disobeyed() (warn []string) {
	const safe = "what golang.org/x/crypto/ssh holds to be safe is offered, no less and no more"
	for _, x := range []struct {
		key, name string
		harmless  []string
		why       string
	}{
		{"stricthostkeychecking", "StrictHostKeyChecking", []string{"yes", "true", "ask"}, "host keys are always checked"},
		{"nohostauthenticationforlocalhost", "NoHostAuthenticationForLocalhost", []string{"no", "false"}, "host keys are always checked"},
		{"verifyhostkeydns", "VerifyHostKeyDNS", []string{"no", "false", "ask"}, "host keys are looked up in known_hosts alone"},
		{"knownhostscommand", "KnownHostsCommand", []string{"none"}, "host keys are looked up in known_hosts alone"},
		{"canonicalizehostname", "CanonicalizeHostname", []string{"no", "false", "none"}, "names are taken as they are"},
		{"pkcs11provider", "PKCS11Provider", []string{"none"}, "load its keys into the agent (ssh-add -s)"},
		{"hostkeyalgorithms", "HostKeyAlgorithms", []string{sha1Asked}, safe}, {"kexalgorithms", "KexAlgorithms", nil, safe},
		{"ciphers", "Ciphers", nil, safe}, {"macs", "MACs", nil, safe}, {"pubkeyacceptedalgorithms", "PubkeyAcceptedAlgorithms", []string{sha1Asked}, safe},
		{"addressfamily", "AddressFamily", []string{"any"}, "write the address itself as HostName"},
		{"bindaddress", "BindAddress", nil, "the system's routes choose"}, {"bindinterface", "BindInterface", nil, "the system's routes choose"},
		{"pubkeyauthentication", "PubkeyAuthentication", []string{"yes", "true"}, "public keys are the only way to log in"},
	} {
		o, ok := s.first[x.key]
		if !ok || slices.Contains(x.harmless, strings.ToLower(o.args[0])) {
			continue
		}
		warn = append(warn, fmt.Sprintf("%s: %s %s is not obeyed: %s", o.at, x.name, o.args[0], x.why))
	}
	return warn
}

// tokens are what % stands for, see ssh_config(5).
type tokens struct{ alias, host, port, user, key string }

// expand replaces ~, ${VARIABLES} and % tokens.
func (tok tokens) expand(o option, s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "${"):
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				return "", fmt.Errorf("%s: %q: ${ is not closed", o.at, s)
			}
			value, ok := os.LookupEnv(s[i+2 : i+end])
			if !ok {
				return "", fmt.Errorf("%s: %q: there is no environment variable %s", o.at, s, s[i+2:i+end])
			}
			b.WriteString(value)
			i += end
		case s[i] != '%':
			b.WriteByte(s[i])
		case i+1 == len(s):
			return "", fmt.Errorf("%s: %q ends in %%", o.at, s)
		default:
			i++
			value, err := tok.value(s[i])
			if err != nil {
				return "", fmt.Errorf("%s: %q: %w", o.at, s, err)
			}
			b.WriteString(value)
		}
	}
	return expandHome(b.String()), nil
}

func (tok tokens) value(c byte) (string, error) {
	switch c {
	case '%':
		return "%", nil
	case 'h':
		return tok.host, nil
	case 'n':
		return tok.alias, nil
	case 'k':
		return tok.key, nil
	case 'p':
		return tok.port, nil
	case 'r':
		return tok.user, nil
	case 'u':
		return currentUser(), nil
	case 'i':
		return strconv.Itoa(os.Getuid()), nil
	case 'd':
		return filepath.Dir(filepath.Dir(homeFile("config"))), nil
	case 'l', 'L':
		name, err := os.Hostname()
		if c == 'L' {
			name, _, _ = strings.Cut(name, ".")
		}
		return name, err
	}
	return "", fmt.Errorf("%%%c is not supported", c)
}

func currentUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}
