// Package aggmgr is an emulated aggregation manager: what sharp_am is to a lab with Quantum
// switches, for switches that are emulated. It builds trees for jobs that begin, keeps to the
// quotas of switches, programs the switches, and writes sharp_am's log.
//
// # What is emulated
//
//   - Trees are dynamic: built for a job when it begins, gone when it ends. A path from the
//     root to a host never goes up again, as in SHARP's trees over up/down routing, so that
//     a link that is down can leave a root without some hosts although others reach them.
//   - A switch has room for so many trees and so many OSTs. An OST is an aggregator of the
//     embedded switch and its shadow copy. A job gets the OSTs that it asks for, or a
//     part of the switch by default (per_prio_default_sat_quota), and fewer if there are not
//     so many anywhere on its tree; what it got is in its Grant. With none left it is refused.
//
// # What is not
//
// Its configuration is that of an empty sharp_am.cfg, in which there are no reservations. The
// protocol between a job's library and sharp_am is not public: whoever has the Manager begins and
// ends jobs. The lines by which sharp_am logs the end of a job are not documented either. Time-shared
// use of a tree's lock is the switches' business (package ina, exclusive mode).
package aggmgr
