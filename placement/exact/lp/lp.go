// Package lp is a mixed integer linear program as data: variables, rows, what is to be least. It writes
// the program as text that solvers read, and says what they answer. It solves nothing.
//
// The text is CPLEX's LP format, as far as COIN-OR's reader (CoinLpIO.hpp of CoinUtils) and others agree
// on it: names that are no keywords and no numbers, a row's variables to the left of its sense and one
// number to the right, no comments, no line of many terms. Whole variables are "generals" with bounds,
// since readers differ in what a section of binaries does to bounds.
package lp

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Var is a variable of a Program, by its number from 0.
type Var int

// Term is a variable with a factor.
type Term struct {
	Var    Var
	Factor float64
}

// Expr is a sum of terms. A variable may be in it several times. Without terms it is 0.
type Expr []Term

// Times is a variable with a factor, as a sum.
func (v Var) Times(factor float64) Expr { return Expr{{v, factor}} }

// Times is every term by a factor.
func (e Expr) Times(factor float64) Expr {
	out := slices.Clone(e)
	for i := range out {
		out[i].Factor *= factor
	}
	return out
}

// Sum adds up.
func Sum(parts ...Expr) Expr { return slices.Concat(parts...) }

// Program is to find values of its variables that keep to all rows, with the least cost. The zero value
// has neither variables nor rows. Names are the caller's to keep apart: letters, digits and underscores,
// no digit first, and no e before a digit.
type Program struct {
	variables []variable
	rows      []row
}

type variable struct {
	name      string
	whole     bool
	low, high float64
	cost      float64
}

// row is: the sum of its terms is at most (or at least) right.
type row struct {
	name  string
	terms Expr
	sense string
	right float64
}

// Add adds a variable of any value from low to high.
func (p *Program) Add(name string, low, high float64) Var {
	p.variables = append(p.variables, variable{name: name, low: low, high: high})
	return Var(len(p.variables) - 1)
}

// Whole adds a variable of whole values from low to high.
func (p *Program) Whole(name string, low, high int) Var {
	v := p.Add(name, float64(low), float64(high))
	p.variables[v].whole = true
	return v
}

// Cost makes each unit of a variable cost so much.
func (p *Program) Cost(v Var, each float64) { p.variables[v].cost = each }

// Name is that of a variable.
func (p *Program) Name(v Var) string { return p.variables[v].name }

// AtMost adds the row: the parts add up to right at most.
func (p *Program) AtMost(name string, right float64, parts ...Expr) {
	p.add(name, "<=", right, parts)
}

// AtLeast adds the row: the parts add up to right at least.
func (p *Program) AtLeast(name string, right float64, parts ...Expr) {
	p.add(name, ">=", right, parts)
}

// Exactly adds the row: the parts add up to right.
func (p *Program) Exactly(name string, right float64, parts ...Expr) {
	p.add(name, "=", right, parts)
}

func (p *Program) add(name, sense string, right float64, parts []Expr) {
	p.rows = append(p.rows, row{name, merge(Sum(parts...)), sense, right})
}

// merge has each variable once, in the order in which they come first, and none without a factor: readers
// refuse what is there twice.
func merge(e Expr) Expr {
	at := map[Var]int{}
	var out Expr
	for _, t := range e {
		if i, ok := at[t.Var]; ok {
			out[i].Factor += t.Factor
			continue
		}
		at[t.Var] = len(out)
		out = append(out, t)
	}
	return slices.DeleteFunc(out, func(t Term) bool { return t.Factor == 0 })
}

// String is the program as text. A program without variables has none that solvers read.
func (p *Program) String() string {
	var b strings.Builder
	b.WriteString("min\nobj:")
	var costs Expr
	for v, x := range p.variables {
		if x.cost != 0 {
			costs = append(costs, Term{Var(v), x.cost})
		}
	}
	p.write(&b, costs)
	b.WriteString("\ns.t.\n")
	for _, r := range p.rows {
		b.WriteString(r.name + ":")
		p.write(&b, r.terms)
		b.WriteString(" " + r.sense + " " + number(r.right) + "\n")
	}
	b.WriteString("bounds\n")
	for _, x := range p.variables {
		b.WriteString(" " + number(x.low) + " <= " + x.name + " <= " + number(x.high) + "\n")
	}
	b.WriteString("generals\n")
	for _, x := range p.variables {
		if x.whole {
			b.WriteString(" " + x.name + "\n")
		}
	}
	b.WriteString("end\n")
	return b.String()
}

// perLine is how many terms a line has at most: some readers cut lines off.
const perLine = 8

// write writes a sum. One without terms is the first variable, no times: a row of nothing is not read.
func (p *Program) write(b *strings.Builder, e Expr) {
	if len(e) == 0 {
		e = Var(0).Times(0)
	}
	for i, t := range e {
		if i > 0 && i%perLine == 0 {
			b.WriteString("\n")
		}
		sign := " +"
		if t.Factor < 0 {
			sign = " "
		}
		b.WriteString(sign + number(t.Factor) + " " + p.Name(t.Var))
	}
}

// number is one without an exponent, as all readers have it.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Status is what a solver says of a Program.
type Status string

// What solvers say.
const (
	Optimal    Status = "optimal"         // no values cost less
	Stopped    Status = "stopped on time" // the time was up before that was known
	Infeasible Status = "infeasible"      // no values keep to all rows
)

// Answer is a solver's.
type Answer struct {
	Solver, Version string // its program's name, and what that says of itself; an empty version: nothing
	Status          Status
	Objective       float64            // cost of Values
	Bound           float64            // no values cost less; -Inf: not known
	Values          map[string]float64 // by name of variable, without zeros; nil: it found none
	Elapsed         time.Duration      // by the clock
}
