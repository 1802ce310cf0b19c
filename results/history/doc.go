// Package history is an index over run directories: what was measured of each metric, night
// after night.
//
// The run directories stay the truth. The index, one SQLite file beside them, can be thrown
// away and built again from them at any time (Rebuild), and every reader first lets it notice
// what is new, changed or gone (Update): by the name of each directory, and the size, time and
// inode of its run.json. Several processes may do so at once; each of them takes its turn at
// writing. What people decide about runs, their baselines, is no index: it is in files of its own.
//
// # What is one series
//
// Figures are of one Series if they are of one experiment, point, phase, metric, subject, kind,
// predictor and unit, in one Setting: the inventory, what the experiment says, what is in the files that it
// names, driver, switch, scale, kernel and machine. Figures of different settings are never in one series;
// Differences says in what two settings differ. The version of this tool is not part of a setting, since it is what is under test,
// but each night names it.
//
// A run is a night, in however many directories it is; its repeats are the figures of that night. Runs that were cut off count
// with the points that they finished. Points that the testbed limited, or that ended early, do
// not count, and Night.Spoilt says how many these are.
//
// # Why an index
//
// Directories can be copied, merged and removed with what every machine has, and a crash costs at
// most the run in progress. Asking thousands of them for one metric takes an index, .history.db:
// SQLite with a rollback journal, in which writers take turns (no WAL: it is one file, and nothing
// is shared in memory). Nothing is in it that could not be read again, so it is dropped and made
// anew where its tables are of another version, and a reader first compares name, size, time and
// inode of every run.json with it. Nobody has to tell it anything, and several processes that
// notice the same run write the same rows. Baselines are decisions, so they are files (baselines/).
// A run in progress has its samples.jsonl locked, which tells it from one that was cut off.
package history
