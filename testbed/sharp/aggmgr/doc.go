// Package aggmgr is an emulated aggregation manager: what sharp_am and UFM are to a lab
// with Quantum switches, for switches that are emulated. It reads sharp_am's configuration
// file, serves UFM's reservations over HTTP, builds trees for jobs that begin, keeps to the
// quotas of switches, programs the switches, and writes sharp_am's log. So the code that
// talks to a lab (package sharp) meets something that answers.
//
// # What is emulated
//
//   - Trees are dynamic: built for a job when it begins, gone when it ends. A path from the
//     root to a host never goes up again, as in SHARP's trees over up/down routing, so that
//     a link that is down can leave a root without some hosts although others reach them.
//   - A switch has room for so many trees and so many OSTs. An OST is an aggregator of the
//     embedded switch and its shadow copy. A job gets the OSTs that it asks for, or a
//     part of the switch by default (per_prio_default_quota), and fewer if there are not
//     so many anywhere on its tree; what it got is in its Grant. With none left it is refused.
//   - In reservation mode only reserved hosts take part, each in at most
//     reservation_max_jobs_per_hca jobs, and a reservation has at most
//     app_resources_default_limit trees.
//   - With reservation_auto_by_pkeys, which is sharp_am's default, requests for reservations
//     are accepted and ignored.
//
// # What is not
//
// The protocol between a job's library and sharp_am is not public. Jobs begin and end here
// by lines of JSON over TCP, and the connection is the lease: when it ends, or nothing is
// heard for Config.Lease, the jobs end that began on it, and their trees are released.
// The lines by which sharp_am logs the end of a job are not documented either. Time-shared
// use of a tree's lock is the switches' business (package ina, exclusive mode).
package aggmgr
