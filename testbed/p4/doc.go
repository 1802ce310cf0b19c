// Package p4 describes the INA pipeline to P4Runtime: its p4info, and how jobs,
// routes and multicast groups become P4Runtime entities and back.
//
// The same description serves every switch. Names are fixed, ids are not: a
// Pipeline is made from whatever p4info a target was compiled to and finds tables,
// actions, parameters and counters by name.
//
// # BMv2
//
// testbed/p4/ina_v1model.p4 is the data plane once more, for p4lang's BMv2. What p4c made of it is
// committed (compiled/, with the compiler's version and the source's hash, which a test compares;
// just p4 compiles it again), so nobody needs a compiler.
//
//   - The same decisions. testbed/ina/testdata/vectors says in a readable form which packets and
//     counts must come of which entries and packets. The state machine of testbed/ina, the running
//     embedded switch and a real BMv2 are held to the same 50 vectors, byte for byte, and the suite
//     that drivers pass runs on BMv2 too (INABENCH_REQUIRE=bmv2). The binding rule's ring is a
//     register per job and PSN; a pool is a stack in registers, which works because BMv2's ingress
//     is one thread; hash is SplitMix64 by multiplication, since CRC-32 of consecutive PSNs does
//     not collide; remainders, which P4 lacks, are a multiplication by a reciprocal that is divided
//     out when a region's size changes.
//   - Lanes are added many at a time. Headers hold them as numbers of up to 2,048 bits, one for
//     each bit of their count, and (a & L) + (b & L) xor (a xor b) & S adds every lane in two's
//     complement. So a packet costs about the same with 16 lanes as with 240.
//   - What a data plane cannot refuse, the client does. Room (16,384 aggregators, jobs 1 to 127,
//     windows to 2,048) is an annotation in the p4info, and an entry beyond it is an error.
//   - Times. T is calibrated from how long aggregators are taken. A P4 counter adds up packet
//     lengths only, so there is one for each binary digit of the microseconds, and the client puts
//     them together: job_hold is exact.
//   - A resend makes two packets of one by multicast: the client writes a group of two instances on
//     the way up with each job's entry.
//   - Around it. With --switch bmv2 the cables stay ours: each switch has two processes,
//     simple_switch_grpc and our own, which is the embedded switch with its tables left out. Rates,
//     delays, queues and damage are emulated as ever, and the rest of inabench sees a P4Runtime
//     server with another p4info. --log-level off matters: without it BMv2 formats a line for each
//     step and throws it away, 130 us for each packet instead of 31.
//   - Saturation is read off counters: frames that our process handed over against those that the
//     program counted, frames that found one of BMv2's queues full, and the time of its busiest
//     thread. Where BMv2 has its Thrift interface its queues are made 1,024 frames deep instead of
//     64, for the moments in which it is not let run (bursts of up to 90 frames were seen with a
//     third of a core in use); the queues that are meant are the cables'. Beyond the limits of
//     Health of package softswitch a point is inconclusive, because of switch saturated.
//
// go test -bench BMv2 ./testbed/softswitch sends three workers' packets (window 16, pool) through
// both switches, on the same cables; two cores that were shared with other work, 2026-11-21:
//
//	lanes  embedded switch                 BMv2 1.15.5
//	16     269,000 packets/s, 2.6 us each  13,400 packets/s, 31 to 51 us each
//	64     254,000, 2.6 us                 14,900, 33 to 42 us
//	240    220,000, 3.2 us                 11,600, 36 to 59 us
//
// With longer phases than on the embedded switch, for the greater factor makes round trips long,
// the experiments give the same verdicts on it (just bmv2): quickstart at 2500 holds 8 of 8 checks
// on both, goodput within 0.1 % of the prediction; pat-sweep at 2500 holds 24 of 24, the share at
// most 0.021 from y = x. two-racks, with three BMv2 on two cores at 20000, holds 4 of 4 on both:
// links within 0.2 % on average, the worst 0.8 % off on BMv2. Its phases and warm-ups are five
// times those of the file, as its round trips are: workers of a window that fell behind beside
// another job catch up for seven seconds.
//
// # Chips
//
// testbed/p4/ina_chip.p4 is one program for Tofino and, to test what it decides, for BMv2: parsing, tables and decisions are
// written once, and macros stand for what the architectures do otherwise. It is held to the vectors of
// testbed/ina/testdata/chip, which say what it does otherwise than other data planes (ina.Program). The back end for Tofino has
// not compiled it yet. Until it has, there is
//
// testbed/p4/ina_tna.p4, a beginning for Tofino: 32 lanes in one pass, hash (CRC-16), linear and
// atp in regions of powers of two, the last denied PSN beside each aggregator instead of a ring, no
// synchronous mode, no overflow flag. p4c's front end accepts it; it has not been compiled to
// stages.
package p4
