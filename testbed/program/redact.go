package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
)

// Removed stands where a secret stood.
const Removed = "[removed]"

var (
	secretWord = regexp.MustCompile(`(?i)(token|secret|passw|passphrase|api[-_]?key|access[-_]?key|private[-_]?key|credential|authorization|cookie|session[-_]?id|signature|(^|[-_.])pwd$|(^|[-_.]|ssh|pg)pass$|(^|[-_.])pass[-_])`)
	// manyTokens are what language models count, and what makes them.
	manyTokens = regexp.MustCompile(`(?i)tokens|tokeni[sz]e`)
	// directories are called that by every shell.
	directories = regexp.MustCompile(`^(OLD)?PWD$`)

	// A document within another has its quotes behind backslashes, and arguments may be a list of words in quotes.
	assignment = regexp.MustCompile(`(^|[\s"'{,;?&(=\[<|])([A-Za-z_][A-Za-z0-9_.-]*)(\\*["']?[ \t]*(?:=|:=?)[ \t]*)`)
	flagged    = regexp.MustCompile(`(^|[\s"'])(--?[A-Za-z][A-Za-z0-9_.-]*)(=|[ \t]+|\\*["']\s*,?\s*|[ \t]*\n[ \t]*-[ \t]+)`)
	authorized = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=_.-]{8,}`)
	schemes    = map[string]bool{"bearer": true, "basic": true, "token": true, "digest": true}
	header     = regexp.MustCompile(`(?i)\b((?:proxy-)?authorization["']?[ \t]*[:=][ \t]*["']?(?:[a-z]+[ \t]+)?)[^\s"',;]+`)
	inURL      = regexp.MustCompile(`(\w+://[^\s/:@"']*:)[^\s/@"']+@`)
	tokenInURL = regexp.MustCompile(`(https?://)[^\s/@"']+@`)
	// longToken is of forms whose services have changed how long they are, or that were cut off.
	longToken    = regexp.MustCompile(`\b(gh[pousr]_|hf_|sk-|xox[abp]-|glpat-)[A-Za-z0-9_-]{20,}`)
	pemBlock     = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	keptPrefixes = []string{"NCCL_", "SHARP_", "HCOLL_", "UCX_", "UCC_", "CUDA_", "OMPI_COMM_WORLD_", "OMP_", "PMIX_RANK", "SLURM_JOB_ID", "SLURM_NNODES", "SLURM_PROCID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "LD_LIBRARY_PATH", "HPCX_DIR"}
)

// SecretName says whether a variable or option of that name is likely to hold a secret.
func SecretName(name string) bool {
	return secretWord.MatchString(manyTokens.ReplaceAllString(name, "")) && !directories.MatchString(name)
}

// Redact takes out of a program's output what looks like a secret: values of variables, settings and
// options whose names say so, passwords and tokens in URLs, private keys, and what gitleaks knows the
// form of. It is for evidence that is kept; figures are read before. A megabyte in which much looks like secrets takes
// a second: see Pieces.
func Redact(text []byte) []byte {
	text = pemBlock.ReplaceAll(text, []byte(Removed))
	has := wordsOf(text)
	if has("bearer", "basic") {
		text = authorized.ReplaceAll(text, []byte("$1 "+Removed))
	}
	if has("authorization") {
		text = header.ReplaceAll(text, []byte("${1}"+Removed))
	}
	if has(secretParts...) {
		text = named(assignment, text)
		text = named(flagged, text)
	}
	if has("://") {
		text = inURL.ReplaceAll(text, []byte("${1}"+Removed+"@"))
		text = tokenInURL.ReplaceAllFunc(text, func(m []byte) []byte {
			if bytes.Contains(m, []byte(Removed)) {
				return m // its user may stay
			}
			return append(tokenInURL.FindSubmatch(m)[1], Removed+"@"...)
		})
	}
	text = wellKnown(text)
	if has("gh", "hf_", "sk-", "xox", "glpat-") {
		text = longToken.ReplaceAll(text, []byte(Removed))
	}
	return text
}

// secretParts are words of which every name that secretWord finds has one.
var secretParts = []string{"token", "secret", "pass", "key", "credential", "authorization", "cookie", "session", "signature", "pwd"}

// wordsOf says of words in lower case whether a text has one of them, in whatever case: forms that need one are looked for in
// no other text, which takes a small part of the time.
func wordsOf(text []byte) func(...string) bool {
	lower := bytes.ToLower(text)
	if bytes.Contains(lower, []byte("ſ")) { // which a form takes for an s
		lower = bytes.ReplaceAll(lower, []byte("ſ"), []byte("s"))
	}
	return func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return bytes.Contains(lower, []byte(w)) })
	}
}

// Bounds of pieces.
const (
	leastPiece = 256 << 10 // bytes that one has at least
	mostPlaces = 100       // at which it is looked whether it could end: at most of them it can
)

// MostPiece is how long a piece of a text may be that Redact is asked about, bytes: that takes some four times as much memory.
const MostPiece = 4 << 20

// Pieces are a text in parts whose secrets can be taken out one by one: whoever waits, and memory, are spared. A part
// ends with a line, where nothing that Redact takes out goes on: what has no such place is one part, which may be longer than
// MostPiece.
func Pieces(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(text) > 0 {
			n := cut(text, leastPiece)
			if !yield(text[:n:n]) {
				return
			}
			text = text[n:]
		}
	}
}

// Tail is the end of a text, of at most so many bytes, that begins where a piece could.
func Tail(text []byte, most int) []byte {
	if len(text) <= most {
		return text
	}
	return text[cut(text, len(text)-most):]
}

// cut is the first place of a text, from a byte on, at which a line begins and Redact of both parts comes to the same as of
// the whole; the end, if there is none.
func cut(text []byte, from int) int {
	for at, places := from, 0; at < len(text) && places < mostPlaces; {
		end := bytes.IndexByte(text[at:], '\n')
		if end < 0 {
			break
		}
		line := text[bytes.LastIndexByte(text[:at+end], '\n')+1 : at+end]
		at += end + 1
		switch {
		case mayGoOn(line, text[at:]):
		case inKey(text[:at]):
			end := bytes.Index(text[at:], []byte("-----END"))
			if end < 0 {
				return len(text)
			}
			at += end
			places++
		case apart(text, at):
			return at
		default:
			places++
		}
	}
	return len(text)
}

// mayGoOn says whether a line and the rest of a text may be elements of one list, which may be longer than what apart looks
// at. None goes on after an object.
func mayGoOn(line, rest []byte) bool {
	line, rest = bytes.TrimSpace(line), bytes.TrimSpace(rest[:min(len(rest), 100)])
	switch string(line) {
	case "}", "},", "}, {", "},{", "}]", "}],":
		return false
	}
	return len(line) > 0 && bytes.IndexByte([]byte("\"',[{"), line[len(line)-1]) >= 0 ||
		len(rest) == 0 || bytes.IndexByte([]byte("\"',-\\"), rest[0]) >= 0
}

// inKey says whether a text ends within a private key.
func inKey(text []byte) bool {
	i := bytes.LastIndex(text, []byte("PRIVATE KEY"))
	if i < 0 {
		return false
	}
	before := text[max(0, i-120):i]
	return bytes.LastIndex(before, []byte("-----BEGIN")) > bytes.LastIndex(before, []byte("-----END"))
}

// apart says whether what stands around a place of a text loses the same, taken apart there or not.
func apart(text []byte, at int) bool {
	const around = 2 << 10
	from, to := max(0, at-around), min(len(text), at+around)
	return bytes.Equal(Redact(text[from:to]), slices.Concat(Redact(text[from:at]), Redact(text[at:to])))
}

// named takes out values whose names say that they are secrets. A form has what stands before the name, the name, and
// what stands between it and its value. Only of a secret the value is looked at, which may be all the rest of a text: of
// others what follows the name may be another name.
func named(form *regexp.Regexp, text []byte) []byte {
	var out []byte
	for len(text) > 0 {
		m := form.FindSubmatchIndex(text)
		if m == nil {
			break
		}
		var v value
		if SecretName(string(text[m[4]:m[5]])) {
			v = valueOf(text, m[4], m[6], m[7])
		}
		if v.to == v.from && len(v.with) == 0 {
			out, text = append(out, text[:m[6]]...), text[m[6]:]
			continue
		}
		if bytes.HasSuffix(text[:v.from], []byte(" ")) && schemes[strings.ToLower(string(text[v.from:v.to]))] {
			out, text = append(out, text[:v.to]...), text[v.to:] // what follows is out already
			continue
		}
		out, text = append(append(out, text[:v.from]...), v.with...), text[v.to:]
	}
	return append(out, text...)
}

// value is a part of a text, and what is to stand in its place.
type value struct {
	from, to int
	with     []byte
}

// valueOf is the value at a place of a text, of a name that begins at another, with what stands between the two. It is
// empty where there is none, or none that says anything: null, true, an object.
func valueOf(text []byte, name, sep, at int) value {
	rest, between := text[at:], text[sep:at]
	removed := value{at, at, []byte(Removed)}
	if quote := opening(rest); quote != nil {
		removed.from += len(quote)
		removed.to = removed.from + closing(rest[len(quote):], quote)
		return removed
	}
	key := opening(between) // the name stood in quotes
	of := bytes.ContainsAny(between, "=:")
	switch {
	case len(rest) == 0 || key != nil && !of: // of a list of words in quotes each one has its own
		return value{}
	case key != nil && rest[0] == '[':
		return listOf(rest, at)
	case key != nil && (rest[0] == '{' || literal.Match(rest)):
		return value{}
	case key == nil && of && name > 0:
		if quote := opening(text[before(text, name):name]); quote != nil { // all of it stands in quotes
			removed.to += closing(rest, quote)
			return removed
		}
	}
	end := bytes.IndexAny(rest, " \t\n\v\f\r\"',;&}")
	switch {
	case end < 0:
		end = len(rest)
	case rest[end] == '"' || rest[end] == '\'': // whose backslashes are not the word's
		end = len(bytes.TrimRight(rest[:end], `\`))
	}
	if key != nil { // it was a number, and a document stays one
		end = len(bytes.TrimRight(rest[:end], "]"))
		removed.with = slices.Concat(key, removed.with, key)
	}
	if removed.to += end; end == 0 {
		return value{}
	}
	return removed
}

var literal = regexp.MustCompile(`^(null|true|false|None|True|False)\b`)

// listOf is the list that a text begins with, of which what stands in quotes is taken out.
func listOf(text []byte, at int) value {
	v := value{at, at + 1, []byte("[")}
	for rest := text[1:]; ; {
		blank := len(rest) - len(bytes.TrimLeft(rest, ", \t\r\n"))
		quote := opening(rest[blank:])
		if quote == nil {
			return v
		}
		from := blank + len(quote)
		to := from + closing(rest[from:], quote)
		v.with = append(append(v.with, rest[:from]...), Removed...)
		end := min(to+len(quote), len(rest))
		v.with = append(v.with, rest[to:end]...)
		v.to, rest = v.to+end, rest[end:]
	}
}

// before is where the quote and its backslashes begin that a text may have before a place.
func before(text []byte, at int) int {
	if at--; at < 0 || text[at] != '"' && text[at] != '\'' {
		return at + 1
	}
	return len(bytes.TrimRight(text[:at], `\`))
}

// opening is the quote that a text begins with, and the backslashes before it, of a document within another; nil: none.
func opening(text []byte) []byte {
	n := 0
	for n < len(text) && text[n] == '\\' {
		n++
	}
	if n == len(text) || text[n] != '"' && text[n] != '\'' {
		return nil
	}
	return text[:n+1]
}

// longApostrophe is how far apart two apostrophes may be that are quotes, bytes: more is a sentence with two of them.
const longApostrophe = 4 << 10

// closing is where what stands in quotes ends in the text after the first of them: at the second, at the end of what holds
// both, or with the line. Backslashes before quotes are counted: within a document within n others, a quote that is one of the
// document's has 2^n-1, and one within what stands in quotes has more.
func closing(text, quote []byte) int {
	own, backslashes, cut := len(quote)-1, 0, -1
	for i, c := range text {
		switch {
		case c == '\\':
			backslashes++
			continue
		case c == '\n', i > longApostrophe && cut >= 0:
			if cut >= 0 {
				return cut
			}
			return i
		case c == quote[own] && backslashes%(2*(own+1)) == own:
			return i - own
		case c == quote[own] && backslashes < own:
			return i - backslashes
		case c == '"' && quote[own] == '\'' && cut < 0: // the apostrophe may be no quote
			cut = i - backslashes
		}
		backslashes = 0
	}
	if cut >= 0 {
		return cut
	}
	return len(text)
}

// maxEvidence is how long a JSON document may be that is looked into before it is kept, bytes: it is held twice then.
const maxEvidence = 16 << 20

// Evidence is what is kept of a program's output, before Redact. Of a JSON document with an environment, as nccl-tests -J
// writes it ("env"), only variables that are about the run keep their values; of one that is too long to be looked into
// it says so, and no more. Whatever else it is is kept as it is.
func Evidence(text []byte) []byte {
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return text
	}
	if len(text) > maxEvidence {
		if json.Valid(text) {
			return fmt.Appendf(nil, "(%d bytes of JSON: not kept, more than %d)\n", len(text), maxEvidence)
		}
		return text
	}
	if !json.Valid(text) {
		return text
	}
	var out []byte
	last := 0
	for _, at := range members(text, "env") {
		out = append(append(append(out, text[last:at[0]]...), ' '), redactEnv(text[at[0]:at[1]])...)
		last = at[1]
	}
	if last == 0 {
		return text
	}
	return append(out, text[last:]...)
}

// members is where the values are that a document, an object, has under a name of its own.
func members(doc []byte, name string) (at [][2]int) {
	depth, key, from := 0, []byte(nil), -1
	for i := 0; i < len(doc); i++ {
		ends := false
		switch doc[i] {
		case '"':
			begin := i
			for i++; doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
			if depth == 1 && from < 0 {
				key = doc[begin : i+1]
			}
		case ':':
			if depth == 1 {
				from = i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			ends = depth == 0
		case ',':
			ends = depth == 1
		}
		if ends && from >= 0 {
			var is string
			if json.Unmarshal(key, &is) == nil && is == name {
				at = append(at, [2]int{from, i})
			}
			from = -1
		}
	}
	return at
}

// redactEnv takes an object of variables, or a list of "NAME=value".
func redactEnv(text json.RawMessage) json.RawMessage {
	keep := func(name string) bool {
		return !SecretName(name) && slices.ContainsFunc(keptPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	var vars map[string]string
	var list []string
	var out any = Removed
	if json.Unmarshal(text, &vars) == nil {
		for name := range vars {
			if !keep(name) {
				vars[name] = Removed
			}
		}
		out = vars
	} else if json.Unmarshal(text, &list) == nil {
		for i, v := range list {
			if name, _, _ := strings.Cut(v, "="); !keep(name) {
				list[i] = name + "=" + Removed
			}
		}
		out = list
	}
	b, err := json.MarshalIndent(out, "\t", "\t")
	if err != nil {
		return json.RawMessage(`"` + Removed + `"`)
	}
	return b
}
