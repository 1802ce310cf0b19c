package titan

// Variant is how one of the paper's algorithms is done.
type Variant uint8

const (
	Ours    Variant = iota // corrected, as the documentation of the package says
	Printed                // as its pseudocode is printed, read as printed.go says
)

// Reading is how the paper is read, algorithm by algorithm. All of them go together. In a
// Problem only the variants count; in Options the zero value is Default.
type Reading struct {
	Name string // of the policy
	Rule string // by what it chooses servers, in a line

	Sets   Variant // Algorithm 1: which workers a machine may take
	Merge  Variant // Algorithm 2: which of them it takes
	Scheme Variant // Algorithm 3: which machines there are to choose from
}

// Default is the reading behind the policy "titan". Another one becomes the default by
// its name here; titan-readings.toml has the figures of all.
var Default = Corrected

// Corrected and Published are the readings of the experiments that reproduce the paper.
var (
	Corrected = Reading{Name: "titan-corrected", Rule: "the fewest idle machines, then the fewest machines, then the least traffic between them"}
	Published = Reading{
		Name: "titan-published", Scheme: Printed,
		Rule: "the fewest of the non-idle machines and as many idle ones as hold the job, then the least traffic between them",
	}
)

// readings have a policy each. Numbers in names are those of the algorithms done as printed.
var readings = []Reading{
	Corrected,
	Published,
	{Name: "titan-printed-1", Sets: Printed, Rule: "as titan-corrected, with the sets of workers of Algorithm 1 as printed"},
	{Name: "titan-printed-2", Merge: Printed, Rule: "the machines of titan-corrected, filled by Algorithm 2 as printed"},
	{Name: "titan-printed-12", Sets: Printed, Merge: Printed, Rule: "the machines of titan-corrected, filled by Algorithms 1 and 2 as printed"},
	{Name: "titan-printed-13", Sets: Printed, Scheme: Printed, Rule: "as titan-published, with the sets of workers of Algorithm 1 as printed"},
	{Name: "titan-printed-23", Merge: Printed, Scheme: Printed, Rule: "by Algorithms 2 and 3 as printed"},
	{Name: "titan-printed-123", Sets: Printed, Merge: Printed, Scheme: Printed, Rule: "by Algorithms 1, 2 and 3 as printed"},
}

// Readings are all that have a policy: first that of "titan", which is Default by that
// name, then each under its own.
func Readings() []Reading {
	first := Default
	first.Name = "titan"
	return append([]Reading{first}, readings...)
}
