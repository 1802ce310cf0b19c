package predictor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// spare is how many phases, jobs, links, switches or times more than were asked for are read, to be named as problems.
const spare = 100

// deepest is how deep an answer's brackets are nested: down to those of a share.
const deepest = 7

// limit is how long an answer may be, in bytes: as long as one that names everything, with room for numbers and
// indentation.
func (r *Request) limit() int64 {
	const room, each, escape = 64 << 10, 256, len(`\u003e`)
	longest, tree := 0, map[string]int{}
	for i := range r.Jobs {
		j := &r.Jobs[i]
		longest, tree[j.Name] = max(longest, len(j.Name)), len(j.Tree)
		for k := range j.Tree {
			longest = max(longest, len(j.Tree[k].Switch))
		}
	}
	for i := range r.Links {
		longest = max(longest, len(r.Links[i].Name))
	}
	names := len(r.Jobs)
	for i := range r.Phases {
		names += 1 + len(r.Links)
		for _, job := range r.Phases[i].Jobs {
			names += 2 + tree[job] // with its bottleneck
		}
	}
	return min(maxAnswer, room+int64(names)*int64(each+escape*longest))
}

// lists are how many elements each list of an answer may have, by its key.
func (r *Request) lists() map[string]int {
	jobs, tree := len(r.Jobs)+spare, 0
	for i := range r.Jobs {
		tree = max(tree, len(r.Jobs[i].Tree))
	}
	return map[string]int{
		"phases": len(r.Phases) + spare, "jobs": jobs, "shares": tree + spare, "links": len(r.Links) + spare, "jct": jobs,
	}
}

// errBounds is wrapped where an answer is no answer to the request, whatever it says.
var errBounds = errors.New("not what was asked for")

// bounded looks through text, and keeps nothing of it: that its lists are not far longer than those that were asked for, and
// nested no deeper. That it is JSON at all is not its concern.
func (r *Request) bounded(text []byte) error {
	w := walk{json.NewDecoder(bytes.NewReader(text)), r.lists()}
	w.UseNumber()
	if err := w.value("", 0); errors.Is(err, errBounds) {
		return err
	}
	return nil
}

// walk goes through a JSON document.
type walk struct {
	*json.Decoder
	lists map[string]int // the most elements, by key
}

// value goes through a value that has a key, and stands in so many brackets.
func (w walk) value(key string, depth int) error {
	token, err := w.Token()
	opened, ok := token.(json.Delim)
	switch {
	case err != nil || !ok:
		return err
	case depth == deepest:
		return fmt.Errorf("%w: brackets are nested deeper than %d", errBounds, deepest)
	case opened == '[':
		err = w.elements(key, depth)
	default:
		err = w.members(depth)
	}
	if err == nil {
		_, err = w.Token() // the end
	}
	return err
}

func (w walk) elements(key string, depth int) error {
	most, bounded := w.most(key)
	for n := 0; w.More(); n++ {
		if bounded && n == most {
			return fmt.Errorf("%w: a list of more than %d %s", errBounds, most, key)
		}
		if err := w.value("", depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w walk) members(depth int) error {
	for w.More() {
		token, err := w.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		if err := w.value(key, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// most is how many elements the list of a key may have; package json reads keys in any case.
func (w walk) most(key string) (n int, ok bool) {
	for k, n := range w.lists {
		if strings.EqualFold(k, key) {
			return n, true
		}
	}
	return 0, false
}
