package program

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sync"

	"github.com/BurntSushi/toml"
	"github.com/zricethezav/gitleaks/v8/config"
)

// rule is one of gitleaks' (https://github.com/gitleaks/gitleaks, config/gitleaks.toml): a form that secrets of one
// service have.
type rule struct {
	ID       string
	Regex    string
	Group    int `toml:"secretGroup"` // that is the secret; 0: the first that is there, or all
	Entropy  float64
	Keywords []string // of which one stands in every text with such a secret, in lower case
	compile  func() *regexp.Regexp
}

// rules are gitleaks', but for those of paths alone.
var rules = sync.OnceValue(func() []rule {
	var doc struct{ Rules []rule }
	if _, err := toml.Decode(config.DefaultConfig, &doc); err != nil {
		panic(fmt.Sprintf("gitleaks' rules: %v", err)) // they are part of the program
	}
	var out []rule
	for _, r := range doc.Rules {
		if r.Regex == "" {
			continue
		}
		r.compile = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(r.Regex) })
		out = append(out, r)
	}
	return out
})

// wellKnown takes out secrets of the forms that gitleaks knows.
func wellKnown(text []byte) []byte {
	lower := bytes.ToLower(text)
	for _, r := range rules() {
		if !r.may(lower) {
			continue
		}
		cut := text[:0:0]
		last := 0
		for _, m := range r.compile().FindAllSubmatchIndex(text, -1) {
			from, to := r.secret(m)
			if from < last || entropy(text[from:to]) < r.Entropy || bytes.Contains(text[from:to], []byte(Removed)) {
				continue
			}
			cut = append(append(cut, text[last:from]...), Removed...)
			last = to
		}
		if last > 0 {
			text = append(cut, text[last:]...)
			lower = bytes.ToLower(text)
		}
	}
	return text
}

// may says whether a text in lower case can have one.
func (r *rule) may(lower []byte) bool {
	return len(r.Keywords) == 0 || slices.ContainsFunc(r.Keywords, func(k string) bool { return bytes.Contains(lower, []byte(k)) })
}

// secret is where in a match the secret is.
func (r *rule) secret(m []int) (from, to int) {
	if g := 2 * r.Group; g > 0 && g+1 < len(m) && m[g] >= 0 {
		return m[g], m[g+1]
	}
	for g := 2; g+1 < len(m); g += 2 {
		if m[g] >= 0 && m[g+1] > m[g] {
			return m[g], m[g+1]
		}
	}
	return m[0], m[1]
}

// entropy is Shannon's, bits a byte.
func entropy(b []byte) float64 {
	var count [256]int
	for _, c := range b {
		count[c]++
	}
	e := 0.0
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(b))
			e -= p * math.Log2(p)
		}
	}
	return e
}
