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
	secretName   = regexp.MustCompile(`(?i)(token|secret|passw|passphrase|api_?key|access_?key|private_?key|credential|authorization|cookie|session_?id|signature)`)
	assignment   = regexp.MustCompile(`(^|[\s"'{,;])([A-Za-z_][A-Za-z0-9_]*)(=["']?|["']?:\s*["'])([^\s"']+)`)
	flagged      = regexp.MustCompile(`(--[A-Za-z-]+)([= ])(\S+)`)
	authorized   = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=_.-]{8,}`)
	inURL        = regexp.MustCompile(`(\w+://[^\s/:@]*:)[^\s/@]+@`)
	wellKnown    = regexp.MustCompile(`\b(AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|xox[abp]-[A-Za-z0-9-]{10,})`)
	pemBlock     = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	keptPrefixes = []string{"NCCL_", "SHARP_", "HCOLL_", "UCX_", "UCC_", "CUDA_", "OMPI_COMM_WORLD_", "OMP_", "PMIX_RANK", "SLURM_JOB_ID", "SLURM_NNODES", "SLURM_PROCID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "LD_LIBRARY_PATH", "HPCX_DIR"}
)

// SecretName says whether a variable or option of that name is likely to hold a secret.
func SecretName(name string) bool { return secretName.MatchString(name) }

// Redact takes out of a program's output what looks like a secret: values of variables and
// options whose names say so, tokens of well known forms, passwords in URLs, private keys.
// It is for evidence that is kept; figures are read before.
func Redact(text []byte) []byte {
	text = pemBlock.ReplaceAll(text, []byte(Removed))
	text = assignment.ReplaceAllFunc(text, func(m []byte) []byte {
		p := assignment.FindSubmatch(m)
		if !secretName.Match(p[2]) {
			return m
		}
		return bytes.Join([][]byte{p[1], p[2], p[3], []byte(Removed)}, nil)
	})
	text = flagged.ReplaceAllFunc(text, func(m []byte) []byte {
		p := flagged.FindSubmatch(m)
		if !secretName.Match(p[1]) {
			return m
		}
		return bytes.Join([][]byte{p[1], p[2], []byte(Removed)}, nil)
	})
	text = authorized.ReplaceAll(text, []byte("$1 "+Removed))
	text = inURL.ReplaceAll(text, []byte("${1}"+Removed+"@"))
	return wellKnown.ReplaceAll(text, []byte(Removed))
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
		if secretName.MatchString(name) {
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
