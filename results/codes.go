package results

import (
	"cmp"
	"slices"
	"strings"
)

// Codes of what can go wrong. They do not change: scripts and people look for them. Everything
// that is printed with a code has one of these, and Explain knows them all.
const (
	// Findings: evidence other than figures.

	// CodeFallback is a job that asked for in-network aggregation and went on without it,
	// as NCCL does without an error.
	CodeFallback = "INA-SHARP-FALLBACK"
	// CodeWrong is a program that found its own results wrong.
	CodeWrong = "INA-WRONG-RESULTS"
	// CodeGranted is a job that was granted less than it asked for.
	CodeGranted = "INA-SHARP-GRANT"
	// CodeUnproven is a job that asked for in-network aggregation, of which nothing says whether
	// it went on without it.
	CodeUnproven = "INA-SHARP-UNPROVEN"

	// What must hold of every run.

	CodeJobStopped = "INA-JOB-STOPPED" // a job stood still within a phase
	CodeJobEnded   = "INA-JOB-ENDED"   // a job ended before it was to
	CodeIterations = "INA-ITERATIONS"  // a job did not do the iterations that it was asked for
	CodeUnchecked  = "INA-UNCHECKED"   // nobody compared sums that should have been compared
	CodeLost       = "INA-LOST"        // the two ends of a cable count different traffic
	CodeCounters   = "INA-COUNTERS"    // what somebody counts is not what others saw of the same

	// Figures that are not what they should be.

	CodeSums        = "INA-SUMS"        // reduced values that are not the sums of what was sent
	CodeLinkSlow    = "INA-LINK-SLOW"   // a link carried less than predicted
	CodeLinkLoaded  = "INA-LINK-LOADED" // a link carried more than predicted
	CodeRateLow     = "INA-RATE-LOW"    // a job was slower than predicted
	CodeRateHigh    = "INA-RATE-HIGH"   // a job was faster than predicted
	CodeShare       = "INA-SHARE"       // switches added up another part than predicted
	CodeUnfair      = "INA-UNFAIR"      // jobs that should be equal were not
	CodeTimeLong    = "INA-TIME-LONG"   // something took longer than predicted
	CodeTimeShort   = "INA-TIME-SHORT"  // something took less time than predicted
	CodeLow         = "INA-LOW"         // any other figure below what it should be
	CodeHigh        = "INA-HIGH"        // any other figure above what it should be
	CodeModel       = "INA-MODEL"       // the mean or largest error of all figures is too large
	CodeCorrelation = "INA-CORRELATION" // measured and predicted figures do not go together

	// What could not be decided.

	CodeNoise    = "INA-NOISE"     // more repeats would decide
	CodeVaries   = "INA-VARIES"    // one run differs from another by as much as the prediction says
	CodeLimited  = "INA-LIMITED"   // the testbed was the limit
	CodeCutOff   = "INA-CUT-OFF"   // it ended before it was measured
	CodeNoFigure = "INA-NO-FIGURE" // there is nothing to compare
	CodeSkipped  = "INA-SKIPPED"   // this testbed cannot measure it

	CodeNotJudged  = "INA-NOT-JUDGED" // no expectation decides the run
	CodeNoEvent    = "INA-NO-EVENT"   // what a study is about did not happen
	CodeComparison = "INA-COMPARISON" // points of a comparison are missing

	// Two runs held against each other.

	CodeRegression = "INA-REGRESSION" // a metric got worse by more than noise
	CodeSettings   = "INA-SETTINGS"   // the runs were made in different settings

	// Runs that are sabotaged on purpose.

	CodeSabotageIdle = "INA-SABOTAGE-IDLE" // the fault never acted

	// Why the program ended without a verdict: one for each exit code.

	CodeUsage       = "INA-USAGE"
	CodeInput       = "INA-INPUT"
	CodeInfeasible  = "INA-INFEASIBLE"
	CodeUnsupported = "INA-UNSUPPORTED"
	CodeTestbed     = "INA-TESTBED"
	CodeBusy        = "INA-BUSY"
	CodeLeftovers   = "INA-LEFTOVERS"
)

// Explanation is what a code means, what it likely comes from, and what to do about it.
type Explanation struct {
	Code   string   `json:"code"`
	Means  string   `json:"means"`
	Causes []string `json:"causes,omitempty"` // the likely ones first
	Do     []string `json:"do"`               // in this order
}

// explanations has every code, findings first.
var explanations = []Explanation{
	{CodeFallback,
		"A program asked for in-network aggregation (SHARP) and went on without it. It ended well and its results are right, but its figures are those of an ordinary network.",
		[]string{
			"no tree was granted, or no communicator or channel uses it: the check says which evidence is missing",
			"NCCL chose another algorithm than COLLNET_DIRECT, COLLNET_CHAIN or NVLS for the largest all-reduce: NVLS_TREE adds up in NVLink's switches alone",
			"another job holds the streaming tree of an HDR switch",
			"variables that bypass the plugin: NCCL_NET, NCCL_IBEXT_DISABLE, NCCL_ALGO",
		},
		[]string{
			"look at programs/ of the run directory for the job's log",
			`look at sharp_am's log for "Begin Job" and "Allocated quota"`,
			"look at the hosts' counters: with aggregation each host sends each vector once",
		}},
	{CodeWrong,
		"A program compared its results with what they should be, and some were wrong: nccl-tests counts them in the column #wrong. No figure of such a run means anything.",
		[]string{"memory", "links with symbol errors", "the library"},
		[]string{"suspect them in this order; runs on fewer hosts show which host is in all wrong ones"}},
	{CodeGranted,
		"A tree was granted with less quota than the program asked for.",
		[]string{"sharp_am.cfg limits what a job may have (per_prio_default_quota, per_prio_max_quota)", "other jobs hold the rest"},
		[]string{"raise the limits, or ask for less", "inabench preflight says which jobs hold trees, where UFM can be asked"}},
	{CodeUnproven,
		"A program asked for in-network aggregation (SHARP). Nothing shows that it went without, and nothing proves that it got it: neither its log nor what its hosts sent tells which algorithm NCCL chose.",
		[]string{
			"NCCL 2.18 and 2.19 do not log which algorithm they choose",
			"NCCL 2.20 to 2.22 log the algorithm but not the collective: a program that also uses other collectives than all-reduce needs COLL in NCCL_DEBUG_SUBSYS",
			"some sizes go through switches and others do not, so that figures are of a mixture",
			"lines of the log were lost or mixed up, or it is of several versions",
		},
		[]string{
			"use NCCL 2.23 or later",
			"or let traffic prove it: three hosts or more, all their NICs in the inventory, and counters that can be read",
			"ask for sizes that all go through switches, a program for each range",
			"look at programs/ of the run directory for the job's log",
		}},

	{CodeJobStopped,
		"A job stalled within a phase, and the testbed's own record shows no stall of the testbed itself. No rate of such a phase means anything.",
		[]string{"a worker, PS or switch that hangs, was suspended or waits for something", "a cable that loses everything", "a synchronous job that was given no memory"},
		[]string{"the finding names the worker that was silent, late, stopped, sent nothing or got nothing: look at its host first", "plot the job's worker_psns around the time that it names", "where the testbed stood still too, run it again on an idle machine"}},
	{CodeJobEnded,
		"A job that was to send until it is stopped ended by itself.",
		[]string{"an agent that ended early, or believed that it was told to", "a program of the job that crashed"},
		[]string{"look at the host's journal around the time that the finding names"}},
	{CodeIterations,
		"A job did another number of iterations than it was asked for, or says that it did more than it got results for.",
		[]string{"a worker that ended early", "a worker that counts iterations twice"},
		[]string{"the finding names the workers that did another number"}},
	{CodeUnchecked,
		"Sums should have been compared with what was sent, and none was, or not all: nothing says that they were right.",
		[]string{"a job that never got a result", "a synchronous job that was given no memory", "a worker that compares only some of what it gets"},
		[]string{"look at the job's goodput, and at its memory on the switches"}},
	{CodeLost,
		"What one end of a cable sent and what the other received differ by more than can be on its way.",
		[]string{"the cable loses, or doubles, frames", "a switch or host that counts wrongly, or whose counters stand still", "the cable is in another port than the inventory says"},
		[]string{"look at error counters at both ends", "swap the cable: if the difference moves with it, it is the cable", "compare with a third counter of the same traffic, such as the workers' own"}},
	{CodeCounters,
		"Parts of the testbed tell different stories of the same traffic: what a switch or worker says it did is not what others saw.",
		[]string{"a switch or PS that loses packets and does not count them, or sends them twice", "a switch whose counters are wrong, or were not read", "a worker that counts results that its PS never sent", "a host's clock that jumped, so that reports come from the future", "another program's traffic with the job's number"},
		[]string{"trust the parts with no reason to err: the PS and the hosts' network cards, which only count packets", "run the switch's packet vectors: go test ./testbed/ina/vector"}},
	{CodeSums,
		"Values that came back from aggregation were not the sums of what the workers had sent. No figure of such a run means anything.",
		[]string{"a switch program that loses, repeats or mixes up fragments", "values that overflowed in the switch", "a collision of two jobs' slots"},
		[]string{"run it with one job, then with --pcap, and look at the first wrong value", "compare with --on sim and another switch"}},
	{CodeLinkSlow,
		"A directed link carried less than was predicted, or less than its cable can while frames waited for it.",
		[]string{"the link, its cable or its NIC is slower than the inventory says", "the job that uses it was slower, for a reason elsewhere: look at its bottleneck", "the host could not send faster"},
		[]string{"compare with the links beside it: one that is low alone is the cause", "look at its error counters, and at the host's processor", "inabench doctor compares speeds with the inventory"}},
	{CodeLinkLoaded,
		"A directed link carried more than was predicted.",
		[]string{"switches added up less than predicted, so that more went on", "fragments were sent again", "other traffic"},
		[]string{"look at the aggregated share of the switches before it, and at resends", "look for traffic of others on the link"}},
	{CodeRateLow,
		"A job was slower than was predicted.",
		[]string{"the bottleneck that the check names, or one that the model does not know", "less aggregation than predicted", "slow hosts: processor, NIC, placement of interrupts"},
		[]string{"look at the link named as bottleneck: if it carried what was predicted, the job waits for something else", "look at the job's share at each switch, and at resends", "compare with a run that passed: inabench compare GOOD THIS"}},
	{CodeRateHigh,
		"A job was faster than was predicted.",
		[]string{"a link is faster than the inventory says", "other jobs were slower, and left more to it", "the model leaves something out"},
		[]string{"check the rates in the inventory", "look at the other jobs of the phase"}},
	{CodeShare,
		"Switches added up another part of the gradients than was predicted.",
		[]string{"more or fewer aggregators than the experiment says", "jobs whose phases lock, so that one takes the slots of another", "a round trip other than the calibrated one: slots are held longer or shorter"},
		[]string{"look at the calibrated T and the round trip in the report", "look at the occupancy of aggregators over time", "compare with the published and the exact model, both in the report"}},
	{CodeUnfair,
		"Jobs that should get the same did not (Jain's index).",
		[]string{"jobs whose phases lock", "workers of different speed", "a queue that is not fair per flow"},
		[]string{"look at each job's rate over time", "look at which job lost, and on which link"}},
	{CodeTimeLong,
		"Something took longer than was predicted.",
		[]string{"the network: look at rates and bottlenecks first", "computation: slow hosts, or a model that was calibrated elsewhere", "waiting for other jobs"},
		[]string{"look at the rates of the same job", "compare with a run that passed: inabench compare GOOD THIS"}},
	{CodeTimeShort,
		"Something took less time than was predicted.",
		[]string{"less was done than the experiment says", "the calibration was made on a slower machine or link"},
		[]string{"look at iterations and packets of the job", "calibrate again"}},
	{CodeLow, "A figure was below what it should be.",
		[]string{"what the expectation's reason says must hold does not", "a model that leaves something out"},
		[]string{"look at the other checks of the same point", "compare with a run that passed: inabench compare GOOD THIS"}},
	{CodeHigh, "A figure was above what it should be.",
		[]string{"what the expectation's reason says must hold does not", "a model that leaves something out"},
		[]string{"look at the other checks of the same point", "compare with a run that passed: inabench compare GOOD THIS"}},
	{CodeModel,
		"The mean or the largest error of all figures of an expectation is larger than it may be.",
		[]string{"one subject is far off: the check names the worst", "all are off to one side: a rate or the calibration is wrong"},
		[]string{"look at measured against predicted in the report: one point apart, or a line beside the diagonal", "see the code of the worst figure"}},
	{CodeCorrelation,
		"Measured and predicted figures do not go together as they should.",
		[]string{"the order of the subjects is another one than predicted", "figures that hardly differ, so that noise decides"},
		[]string{"look at measured against predicted in the report", "measure more repeats where intervals are wide"}},

	{CodeNoise,
		"The interval of the figure reaches across the tolerance, so that it neither holds nor fails.",
		[]string{"too few repeats", "too short a measurement", "a machine that does something else as well"},
		[]string{"use --repeat N, with as many more as the check says", "measure for longer: measure.duration", "inabench history METRIC says how noisy it is from night to night"}},
	{CodeVaries,
		"The figure is off by more than the tolerance, but by no more than the difference between two runs of this setting.",
		[]string{"jobs keep the phase in which they happened to begin", "a setting with more than one way to go on: a queue that fills and then stays full, windows that wait for each other", "shares of memory that move for long"},
		[]string{"see by how much in the prediction (spread in inabench plan -o json)", "use --repeat N: only the mean of several runs compares with a mean", "move the setting away from the edge: another rate limit, window or memory", "take a larger emulation.factor if repeats agree with each other: this machine's delays may decide which way a run goes"}},
	{CodeLimited,
		"The testbed itself was the limit: a busy processor, a late switch, lost counters. Its figures are shown and not judged.",
		[]string{"other programs on the machine", "a scale at which the emulation cannot keep up", "on sim: something that its model leaves out, such as what AIMD makes of lost packets", "a PS, a switch or a machine that answered late while it was calibrated"},
		[]string{"look at Testbed health in the report: it says what, where, and the limit", "run it again on an idle machine", "a larger emulation.factor, or fewer hosts on one machine: inabench run says which this one carries", "--on netns, for what the model leaves out"}},
	{CodeCutOff,
		"The run, or a point of it, ended before all of it was measured. What was measured is shown and not judged.",
		[]string{"somebody interrupted it (Ctrl-C, SIGTERM, the time limit of a suite)", "a disk that is full: no space left on device", "a host, a switch or a process that failed: the check and the report's end say which"},
		[]string{"interrupted: run it again", "a full disk: inabench gc frees runs, --runs DIR names another place", "otherwise: inabench run --keep-on-failure, to look around where it failed"}},
	{CodeNoFigure,
		"There is no figure, or no prediction, to hold the expectation against.",
		[]string{"a metric or a subject that the run does not have: a misspelt name or pattern", "a phase or a run that ended early", "a job that was in no phase: events lie no more than a warm-up apart while it sends"},
		[]string{"inabench report RUN --format csv lists every figure there is", "check names and patterns: inabench check FILE.toml"}},
	{CodeSkipped,
		"This testbed cannot measure what the expectation is about.",
		[]string{"a driver or switch without that counter"},
		[]string{"the check says why; another driver may have it"}},
	{CodeNotJudged,
		"The experiment has no expectation that decides, so that its run neither passed nor failed: NOT JUDGED, exit code 7.",
		[]string{"no [[expect]] table", "gate = false in all of them"},
		[]string{"write an [[expect]] of what the experiment claims: a value, a prediction, or one point of the sweep against another", "figures and comparisons are in the report all the same"}},
	{CodeNoEvent,
		"What the study is about, such as a reversal, a migration or a refusal, did not happen, or nobody could see whether it did: the run has not shown it.",
		[]string{"the run was too short, or its jobs too few", "the machine was slower or faster than in the setting in which it happens", "this driver or switch does not have it"},
		[]string{"look at the figure of the check, and at the jobs' rates over time", "run it longer, without --quick", "event = true in the experiment says that it must happen"}},
	{CodeComparison,
		"A comparison is empty, or a value or the reference has no points that count: who is ahead is not known.",
		[]string{"a point ended early or the testbed limited it, which the check says", "--set gave the compared key one value", "a metric that the points do not have"},
		[]string{"run it again where the testbed was the limit", "sweep the key of [compare], with the reference among its values", "look at what is left out in the report"}},

	{CodeRegression,
		"A metric got worse between two runs, by more than its noise and by more than matters.",
		[]string{"a change of the program, the switch or the network between the two: the versions are in both records", "one link or host: then only the figures that use it changed"},
		[]string{"look at which figures did not change: what they have in common is not the cause", "inabench history METRIC says since when", "run the older version again: if it is slow now as well, the testbed changed"}},
	{CodeSettings,
		"The two runs differ in inventory, scale, driver, switch, kernel, machine or experiment, so their figures do not measure the same thing.",
		[]string{"an upgrade of a host", "a changed inventory or experiment file, or --set"},
		[]string{"run the older one again in the new setting, and compare with that", "--across compares anyway, and says so"}},

	{CodeSabotageIdle,
		"The run was to be sabotaged (--sabotage), but the fault never acted: whether the run passed or failed says nothing about the fault.",
		[]string{"the part that has the fault does nothing in this experiment: a switch that adds nothing up, a PS that no job has", "what it acts on never came: no packet was sent again, no memory was short", "the run was over before the fault began, 1 s after the part's first traffic"},
		[]string{"--sabotage NAME=PART names another part", "inabench sabotage says what each fault does, and to what"}},

	{CodeUsage, "The command line cannot be understood.", nil, []string{"the hint says what was probably meant; --help lists the options"}},
	{CodeInput, "A file, or a run, that was named is not there or not valid.",
		[]string{"a key that is misspelt, a unit that is missing, a name that nothing has"},
		[]string{"each problem names its file, line and column", "inabench check FILE.toml finds them all without running anything"}},
	{CodeInfeasible, "There is no placement that holds all that the experiment asks for.",
		[]string{"more GPUs, aggregators or bandwidth than there are"},
		[]string{"the message has a smallest set of demands that exclude each other: give up one of these"}},
	{CodeUnsupported, "This machine cannot do that.",
		[]string{"no user namespaces, or a program that is not installed", "a file or directory that cannot be written"},
		[]string{"inabench doctor says what is missing, and how to get it", "--on sim needs nothing of the machine"}},
	{CodeTestbed, "The testbed failed during the run: it says nothing of what was to be measured.",
		[]string{"a host or switch that cannot be reached, or went away", "a program that could not be started"},
		[]string{"the message names the host and the step", "ask inabench doctor, and inabench preflight, what is wrong there", "run it again: such a failure may be retried, a regression may not"}},
	{CodeBusy, "Someone else uses the testbed.",
		[]string{"a run that goes on, or a lease of a person"},
		[]string{"inabench who says whose it is and until when", "--wait 10m waits for it"}},
	{CodeLeftovers, "Something that was changed could not be changed back.",
		[]string{"a host that cannot be reached any more"},
		[]string{"the message lists what is left", "run inabench clean once the hosts are back"}},
}

// Explain is what a code means; false for a code that there is none of. Case does not matter.
func Explain(code string) (Explanation, bool) {
	i := slices.IndexFunc(explanations, func(e Explanation) bool { return strings.EqualFold(e.Code, code) })
	if i < 0 {
		return Explanation{}, false
	}
	return explanations[i], true
}

// Explanations are those of all codes, findings first, then figures, what could not be decided,
// comparisons, and how the program ends.
func Explanations() []Explanation { return slices.Clone(explanations) }

// Codes are all codes, sorted.
func Codes() []string {
	var out []string
	for _, e := range explanations {
		out = append(out, e.Code)
	}
	slices.Sort(out)
	return out
}

// FailureCode is what the check is known by: the code of what did not hold or could not be
// decided. It is empty for a check that passed.
func (c Check) FailureCode() string {
	switch c.Outcome {
	case Fail:
		return cmp.Or(c.Code, c.failed())
	case Inconclusive:
		switch {
		case c.Code != "":
			return c.Code
		case c.Repeats > 0 && c.More > 0:
			return CodeNoise
		case c.More > 0: // figures that were left out
			return CodeLimited
		}
		return CodeNoFigure
	case Skipped:
		return CodeSkipped
	case ErrorOutcome:
		return CodeTestbed
	}
	return ""
}

// failed is the code of a figure that is not what it should be.
func (c Check) failed() string {
	side := func(low, high string) string {
		if c.Error < 0 {
			return low
		}
		return high
	}
	switch {
	case c.Statistic == Correlation:
		return CodeCorrelation
	case c.IsError():
		return CodeModel
	case c.Metric == "sum_errors":
		return CodeSums
	case c.Metric == "jain":
		return CodeUnfair
	case c.Metric == "share":
		return CodeShare
	case c.Metric == "link_rate":
		return side(CodeLinkSlow, CodeLinkLoaded)
	case c.Unit == "bit/s":
		return side(CodeRateLow, CodeRateHigh)
	case c.Unit == "s":
		return side(CodeTimeShort, CodeTimeLong)
	}
	return side(CodeLow, CodeHigh)
}
