// Package tree builds MINA's aggregation trees and says which jobs share them ("MINA:
// Fine-grained In-network Aggregation Resource Scheduling for Machine Learning Service",
// INFOCOM '24, sections III-C and III-D): candidates of every job on a fat-tree, the
// largest set of them that do not conflict, the groups that share, and before each
// all-reduce whether it may use INA. All of it is a function of its arguments and a seed.
//
// # What the paper leaves out, and what was chosen
//
//   - Candidates. The paper draws k of a job's trees. They are those whose root is one of
//     the lowest switches above all hosts, as in the authors' code
//     (github.com/ClubieDong/MinaSimulator), and of two that lead through the same
//     switches and links where others want them, only one counts as a candidate: the k are
//     drawn from those that differ. A job has the same ones in every call as long as what
//     it shares with others is the same, and the tree it holds is always among them.
//   - Conflicts. Trees conflict where a switch or a link would serve more of them than its
//     capacity: 1 for switches (HDR) or links (NDR), or any number for each (Equation 2).
//     No conflict graph is built, which is what takes the authors' code most of its time:
//     in a fat-tree the wanted resources are the cliques (package pack).
//   - The largest set is found by reducing-peeling, then branch and reduce or local search
//     (package pack); the paper names the first, and an exact one, which is here
//     Options.Nodes. With weights the gain of
//     jobs counts. Of sets that are worth the same, one that keeps more trees is better;
//     what migrations cost never keeps a job from its tree, as they are cheap (V-D).
//   - The second category, trees that conflict with one sharing group only. Printed, they
//     all join. Two that join different groups may conflict with each other, so the order
//     matters: the largest job first, or that with the largest gain. Apart is what the
//     authors' code means to do, where an index slips; Together lets trees of a group
//     conflict as they like. The third category goes without INA in the paper; Merged joins
//     groups for it where the sum of what jobs need, Options.Load, is small enough.
//   - With capacities above 1 the paper has no sharing groups. Here a group counts once
//     where its trees meet, as one of its jobs is active there at a time, and a tree
//     conflicts where there would be more groups than fit in. If it can join any of
//     several, it joins the one with the least load.
//   - The sharing rule is described by a sentence: improvement per unit of acceleration
//     time, the highest first. Decide is the rule of the authors' code. It asks the other
//     jobs of the group, or only those in Plan.Rivals: jobs of a group whose trees do not
//     meet can use INA at the same time. Thrifty goes beyond the paper.
//   - The baseline for trees looks at all trees that there are, in the paper; in its code
//     only at those that pass data at that instant. First does either.
package tree
