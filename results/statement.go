package results

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Statement is what the text of an experiment says, without its layout, its comments, and the keys that are aside: those at
// the top, and those of tables there by both names ("measure.repeats"). The same statements are the same texts; text that is no
// TOML is its own.
func Statement(text string, aside func(key string) bool) string {
	var spec map[string]any
	if _, err := toml.Decode(text, &spec); err != nil {
		return text
	}
	for key, value := range spec {
		if aside(key) {
			delete(spec, key)
			continue
		}
		table, _ := value.(map[string]any)
		for sub := range table {
			if aside(key + "." + sub) {
				delete(table, sub)
			}
		}
	}
	canonical, err := json.Marshal(spec)
	if err != nil { // of NaN
		return text
	}
	return string(canonical)
}

// RepeatKey says whether a key of an experiment, "measure.repeats", is one that says how often points are measured.
func RepeatKey(key string) bool {
	return slices.Contains(RepeatKeys(), strings.TrimPrefix(key, "measure."))
}
