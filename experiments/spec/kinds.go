package spec

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// Kind is a kind of study, with what is true of all studies of that kind.
type Kind struct {
	Table string           // its key
	Type  reflect.Type     // of what its table is decoded into
	More  []tomlfile.Table // other tables of its own
	// Jobs are the tables in it that say what [[job]] tables would; "" if it has none.
	Jobs string
	// Unplanned is why there is no plan of it, nil if there is one.
	Unplanned error
	// Mute says that external predictors cannot be asked: what they are told has no words for it.
	Mute bool
	// Virtual says that external predictors are told only of what is simulated of it.
	Virtual bool
	// Faultless is why it cannot be sabotaged, "" if it can.
	Faultless string
	// Ranks says that its jobs are ranks, which have no PS and live as long as their connections.
	Ranks bool
	// Trees says that its jobs take turns with trees, which somebody else puts into the switches.
	Trees bool
	// Foreign says that its programs are others': they send when and what they want, and their own logs
	// tell what became of it.
	Foreign bool
	// Looks says that it looks itself whether its jobs did what they were asked, and summed up right.
	Looks bool
	// Leaving says that jobs may leave before they have compared a sum.
	Leaving bool
	// Single says that its simulation has the jct of single jobs.
	Single bool
	// Parts are the processes of its own that it starts, beside this program or on hosts, by the hidden
	// verbs under which this program plays them: its first argument. nil: it has none.
	Parts map[string]Part
}

// Part is a process that this program plays: it is told what to do by its stdin, and ends with it.
type Part = func(ctx context.Context, stdin io.Reader, stdout io.Writer) error

// Named is that of experiments about [[job]] tables, or about nothing.
var Named = Kind{Table: "job", Type: reflect.TypeFor[Jobs](), Looks: true}

// Kinds are the kinds of study that experiments can be about, besides [[job]] tables.
type Kinds []Kind

// all are these kinds, and that of [[job]] tables.
func (ks Kinds) all() (out []*Kind) {
	for i := range ks {
		out = append(out, &ks[i])
	}
	return append(out, &Named)
}

// tables are those that studies are decoded from.
func (ks Kinds) tables() (out []tomlfile.Table) {
	for i := range ks {
		out = append(append(out, tomlfile.Table{Key: ks[i].Table, Type: ks[i].Type}), ks[i].More...)
	}
	return out
}

// Describe lists what an experiment's file may say.
func (ks Kinds) Describe() tomlfile.Entry { return tomlfile.Describe(Spec{}, ks.tables()...) }

// String is the head of the kind's table.
func (k *Kind) String() string {
	if k.Type.Kind() == reflect.Slice {
		return "[[" + k.Table + "]]"
	}
	return "[" + k.Table + "]"
}

// Kind is the kind of the experiment's study.
func (s *Spec) Kind() *Kind {
	for i := range s.kinds {
		if s.Studies[s.kinds[i].Table] != nil {
			return &s.kinds[i]
		}
	}
	return &Named
}

// Study is what an experiment is about, as far as its text says.
type Study interface {
	// Check finds everything that is wrong with it.
	Check(c *Checker)
	// Count is how many jobs there are; 0: as many as a file has.
	Count() int
	// Metrics are what its figures are of, which expectations may be about.
	Metrics() Measurables
	// Headline are those of them that are compared where the experiment names none.
	Headline() []string
	// Predictors name what predicts the figures that a testbed measured, first the default.
	Predictors() []string
}

// Study is what the experiment is about.
func (s *Spec) Study() Study {
	if st, ok := s.Studies[s.Kind().Table].(Study); ok {
		return st
	}
	return s.Jobs
}

// oneStudy reports a file of several, at the last of them, and says whether there is one that could be read:
// what is wrong with its table has been reported otherwise.
func (c *Checker) oneStudy() bool {
	type place struct {
		*Kind
		at tomlfile.Pos
	}
	var has []place
	for _, k := range c.Spec.kinds.all() {
		if c.Has(k.Table) {
			has = append(has, place{k, c.KeyPos(k.Table)})
			continue
		}
		for _, t := range k.More {
			if c.Has(t.Key) {
				c.KeyProblemf(t.Key, "take it out", "[%s] is about %v, and there is none", t.Key, k)
			}
		}
	}
	readable := len(has) == 0 || c.Has(c.Spec.Kind().Table)
	if len(has) < 2 {
		return readable
	}
	slices.SortStableFunc(has, func(a, b place) int { return cmp.Or(a.at.Line-b.at.Line, a.at.Col-b.at.Col) })
	last := has[len(has)-1]
	what := "make two experiments"
	var before, others []string
	for _, p := range has[:len(has)-1] {
		before = append(before, p.String())
		others = append(others, fmt.Sprintf("%v is at %v", p.Kind, p.at))
		if last.Kind == &Named && p.Jobs != "" {
			what += ", or write " + p.Jobs + " tables"
		}
	}
	c.KeyProblemf(last.Table, what+": "+strings.Join(others, ", "), "%v besides %s", last.Kind, strings.Join(before, " and "))
	return readable
}

// Unplanned is why there is no plan of the experiment, an error that wraps ErrInput; nil if there is one.
func (s *Spec) Unplanned() error {
	if err := s.Kind().Unplanned; err != nil {
		return Invalid(err)
	}
	return nil
}
