package program

import (
	"bytes"
	"encoding/json"
	"regexp"
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
	assignment = regexp.MustCompile(`(^|[\s"'{,;?&(])([A-Za-z_][A-Za-z0-9_.-]*)(\\*["']?[ \t]*(?:=|:=?)[ \t]*)`)
	flagged    = regexp.MustCompile(`(^|[\s"'])(--?[A-Za-z][A-Za-z_-]*)([= ]|\\*["']\s*,\s*)`)
	authorized = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=_.-]{8,}`)
	schemes    = map[string]bool{"bearer": true, "basic": true, "token": true, "digest": true}
	header     = regexp.MustCompile(`(?i)\b((?:proxy-)?authorization["']?[ \t]*[:=][ \t]*["']?(?:[a-z]+[ \t]+)?)[^\s"',;]+`)
	inURL      = regexp.MustCompile(`(\w+://[^\s/:@]*:)[^\s/@]+@`)
	tokenInURL = regexp.MustCompile(`(https?://)[^\s/@]+@`)
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
// form of. It is for evidence that is kept; figures are read before.
func Redact(text []byte) []byte {
	text = pemBlock.ReplaceAll(text, []byte(Removed))
	text = authorized.ReplaceAll(text, []byte("$1 "+Removed))
	text = header.ReplaceAll(text, []byte("${1}"+Removed))
	text = named(assignment, text)
	text = named(flagged, text)
	text = inURL.ReplaceAll(text, []byte("${1}"+Removed+"@"))
	text = tokenInURL.ReplaceAllFunc(text, func(m []byte) []byte {
		if bytes.Contains(m, []byte(Removed)) {
			return m // its user may stay
		}
		return append(tokenInURL.FindSubmatch(m)[1], Removed+"@"...)
	})
	return longToken.ReplaceAll(wellKnown(text), []byte(Removed))
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
		size, quote := 0, 0
		if SecretName(string(text[m[4]:m[5]])) {
			size, quote = valueLen(text[m[7]:])
		}
		if size == 0 {
			out, text = append(out, text[:m[6]]...), text[m[6]:]
			continue
		}
		from, to := m[7]+quote, m[7]+size-quote
		if bytes.HasSuffix(text[:from], []byte(" ")) && schemes[strings.ToLower(string(text[from:to]))] {
			out, text = append(out, text[:to]...), text[to:] // what follows is out already
			continue
		}
		out, text = append(append(out, text[:from]...), Removed...), text[to:]
	}
	return append(out, text...)
}

// valueLen is how long the value is that a text begins with: in quotes, to the end of the line at most, or a word. size 0:
// there is none. quote is how long each of its quotes is, with the backslashes before it; the second may have been cut off.
func valueLen(text []byte) (size, quote int) {
	for quote < len(text) && text[quote] == '\\' {
		quote++
	}
	if quote < len(text) && (text[quote] == '"' || text[quote] == '\'') {
		quote++
		line, _, _ := bytes.Cut(text[quote:], []byte("\n"))
		end := bytes.Index(line, text[:quote])
		if end < 0 { // it was cut off: by what holds it, or with its line
			if end = bytes.IndexByte(line, text[quote-1]); end < 0 {
				end = len(line)
			}
		}
		return end + 2*quote, quote
	}
	if end := bytes.IndexAny(text, " \t\n\v\f\r\"',;&}"); end >= 0 {
		return end, 0
	}
	return len(text), 0
}

// RedactJSON is Redact for a JSON document that holds an environment, as nccl-tests -J
// writes it: of "env", only variables that are about the run keep their values. What is not
// JSON is treated as text.
func RedactJSON(text []byte) []byte {
	var doc map[string]json.RawMessage
	if json.Unmarshal(text, &doc) != nil {
		return Redact(text)
	}
	if env, ok := doc["env"]; ok {
		doc["env"] = redactEnv(env)
	}
	out, err := json.MarshalIndent(doc, "", "\t")
	if err != nil {
		return Redact(text)
	}
	return append(Redact(out), '\n')
}

// redactEnv takes an object of variables, or a list of "NAME=value".
func redactEnv(text json.RawMessage) json.RawMessage {
	keep := func(name string) bool {
		if SecretName(name) {
			return false
		}
		for _, p := range keptPrefixes {
			if strings.HasPrefix(name, p) {
				return true
			}
		}
		return false
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
	b, err := json.Marshal(out)
	if err != nil {
		return json.RawMessage(`"` + Removed + `"`)
	}
	return b
}
