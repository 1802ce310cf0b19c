// In-network aggregation for BMv2 (simple_switch), v1model.
//
// This program and the embedded switch (testbed/ina) make the same decisions: given the same
// entries and the same packets they send the same packets and count the same. The rules are
// stated once, at type Switch of package ina; testbed/ina/testdata/vectors holds both to them.
//
// What differs, and why:
//   - No exclusive trees: action aggregate_exclusive is not there, so a client refuses the
//     entry.
//   - What a job held when its entry was deleted stays taken until the job is heard of under
//     another epoch, or the program is loaded.
//   - An entry changed in place does not free what its job holds: a data plane does not see
//     writes to its tables. A new epoch does, and so does loading the pipeline.
//   - Queues and cables are not counted, and job_hold is counted by digits: see job_hold_bits.
//
// All state is in registers that ingress alone touches, since it is one thread; egress is
// several. No controller reads or writes a register.

#include <core.p4>
#include <v1model.p4>

// What the program has room for. The annotation of action aggregate tells controllers.
#define AGGREGATORS 16384
#define JOBS        128    // ids 1..127 may sum; the rest is forwarded only
#define RING_BITS   12
#define RING        4096   // decisions remembered for each job: twice the largest window
#define RESENDS     0xF80  // + job: multicast group with instances 1 and 2 on the job's way up
#define PORTS       512
#define JOB_IDS     4096

// An egress queue holds 64 packets, and what comes then is lost without a count.
const bit<19> ECN_DEPTH = 48;
const bit<19> FULL_DEPTH = 62;
const bit<19> OVER_DEPTH = 1022; // the same, where queues were made 1,024 frames deep

const bit<8> RESULT = 0x01;
const bit<8> RESEND = 0x02;
const bit<8> COLLISION = 0x04;
const bit<8> ECN = 0x08;
const bit<8> OVERFLOW = 0x10;
const bit<8> OPERATION = 0x60;          // lock, unlock
const bit<8> INHERITED = 0x7C;          // what a sum has of its summands: all but result and resend

const bit<8> FORWARD = 0;
const bit<8> STATISTICAL = 1;
const bit<8> SYNCHRONOUS = 2;

const bit<8> POOL = 0;
const bit<8> HASH = 1;
const bit<8> LINEAR = 2; // 3: atp

const bit<8> UNKNOWN = 0;
const bit<8> GRANTED = 1;
const bit<8> DENIED = 2;
const bit<8> PASSED = 3;

// Lanes are added many at a time: a header holds the lanes of one power of two as one number,
// and
//
//     sum = (a & L) + (b & L)  xor  (a xor b) & S
//
// with S the sign bits and L all others, adds each lane in two's complement. A lane wrapped
// where the signs of both operands differ from the sum's. The lanes of a packet are those of
// the bits of their number; 64 is the widest that the compiler takes, so 240 are
// 64 + 64 + 64 + 32 + 16.
const bit<32> S1 = 0x80000000;
const bit<64> S2 = 0x80000000_80000000;
const bit<128> S4 = S2 ++ S2;
const bit<256> S8 = S4 ++ S4;
const bit<512> S16 = S8 ++ S8;
const bit<1024> S32 = S16 ++ S16;
const bit<2048> S64 = S32 ++ S32;
const bit<32> L1 = 0x7FFFFFFF;
const bit<64> L2 = 0x7FFFFFFF_7FFFFFFF;
const bit<128> L4 = L2 ++ L2;
const bit<256> L8 = L4 ++ L4;
const bit<512> L16 = L8 ++ L8;
const bit<1024> L32 = L16 ++ L16;
const bit<2048> L64 = L32 ++ L32;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<8>  version_ihl;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> len;
    bit<16> id;
    bit<16> fragment; // and flags
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header udp_t {
    bit<16> src;
    bit<16> dst;
    bit<16> len;
    bit<16> checksum;
}

header ina_t {
    bit<8>  magic;
    bit<8>  flags;
    bit<16> job;
    bit<32> psn;
    bit<16> epoch;
    bit<16> slot;
    bit<8>  rank;
    bit<8>  lanes;
    bit<64> bitmap;
}

header lanes64_t { bit<2048> v; }
header lanes32_t { bit<1024> v; }
header lanes16_t { bit<512> v; }
header lanes8_t  { bit<256> v; }
header lanes4_t  { bit<128> v; }
header lanes2_t  { bit<64> v; }
header lanes1_t  { bit<32> v; }

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    ina_t      ina;
    lanes64_t  a64;
    lanes64_t  b64;
    lanes64_t  c64;
    lanes32_t  v32;
    lanes16_t  v16;
    lanes8_t   v8;
    lanes4_t   v4;
    lanes2_t   v2;
    lanes1_t   v1;

    // A sum that a resend pushes out, on its way to egress. Never sent as it is.
    ina_t      push;
    lanes64_t  pushA64;
    lanes64_t  pushB64;
    lanes64_t  pushC64;
    lanes32_t  push32;
    lanes16_t  push16;
    lanes8_t   push8;
    lanes4_t   push4;
    lanes2_t   push2;
    lanes1_t   push1;
}

struct metadata_t {
    bit<16> jobOfPort;
    bit<16> other;     // 0: the group is that of the port's job
    bit<1>  rewritten; // the IPv4 header changed

    // The job's entry.
    bit<16> epoch;
    bit<8>  mode;
    bit<8>  addressing;
    bit<32> base;
    bit<32> size;
    bit<32> offset;
    bit<64> expect;
    bit<1>  root;
    bit<32> window;
    bit<9>  upPort;
    bit<16> downGroup;
}

#define PARSE(name, hdr_, mask, next)                          \
    state parse_##name {                                       \
        transition select(hdr.ina.lanes & mask) {              \
            0: parse_##next;                                   \
            default: take_##name;                              \
        }                                                      \
    }                                                          \
    state take_##name {                                        \
        packet.extract(hdr.hdr_);                              \
        transition parse_##next;                               \
    }

// What is done to each block of lanes: DO(header, register, width, sign bits, the others, header
// of a pushed sum, condition that the aggregator has it).
#define BLOCKS(DO)                                                   \
    DO(a64, sumsA64, 2048, S64, L64, pushA64, lanes >= 64)           \
    DO(b64, sumsB64, 2048, S64, L64, pushB64, lanes >= 128)          \
    DO(c64, sumsC64, 2048, S64, L64, pushC64, lanes >= 192)          \
    DO(v32, sums32, 1024, S32, L32, push32, lanes & 0x20 != 0)       \
    DO(v16, sums16, 512, S16, L16, push16, lanes & 0x10 != 0)        \
    DO(v8, sums8, 256, S8, L8, push8, lanes & 0x08 != 0)             \
    DO(v4, sums4, 128, S4, L4, push4, lanes & 0x04 != 0)             \
    DO(v2, sums2, 64, S2, L2, push2, lanes & 0x02 != 0)              \
    DO(v1, sums1, 32, S1, L1, push1, lanes & 0x01 != 0)

// The first summand of an aggregator is its sum.
#define STORE(h, reg, W, S, L, p, has) \
    if (hdr.h.isValid()) {             \
        reg.write(slot, hdr.h.v);      \
    }

#define ADD(h, reg, W, S, L, p, has)                                          \
    if (hdr.h.isValid()) {                                                    \
        bit<W> kept_##h;                                                      \
        bit<W> sum_##h;                                                       \
        reg.read(kept_##h, slot);                                             \
        sum_##h = ((kept_##h & L) + (hdr.h.v & L)) ^ ((kept_##h ^ hdr.h.v) & S); \
        reg.write(slot, sum_##h);                                             \
        if ((kept_##h ^ sum_##h) & (hdr.h.v ^ sum_##h) & S != 0) {            \
            flags = flags | OVERFLOW;                                         \
        }                                                                     \
        hdr.h.v = sum_##h;                                                    \
    }

#define LOAD(h, reg, W, S, L, p, has)  \
    if (has) {                         \
        hdr.h.setValid();              \
        reg.read(hdr.h.v, slot);       \
    } else {                           \
        hdr.h.setInvalid();            \
    }

#define KEEP(h, reg, W, S, L, p, has)  \
    if (has) {                         \
        hdr.p.setValid();              \
        reg.read(hdr.p.v, slot);       \
    }

#define PUSHED(h, reg, W, S, L, p, has) hdr.h = hdr.p;

#define EMIT(h, reg, W, S, L, p, has) packet.emit(hdr.h);

// Give the aggregator of slot back.
#define RELEASE                                \
    owners.write(slot, 0);                     \
    if (meta.addressing == POOL) {             \
        pool();                                \
        if (poolEpoch != meta.epoch) {         \
            poolReset();                       \
        }                                      \
        if (poolStack < meta.size) {           \
            poolPush();                        \
        }                                      \
        poolWrite();                           \
    }

// Sixteen digits of a quotient.
#define QUOTIENT                     \
    modulusDigit();                  \
    if (rest >= (bit<40>)meta.size) { \
        modulusOne();                \
    }
#define QUOTIENT4 QUOTIENT QUOTIENT QUOTIENT QUOTIENT
#define DIVIDE QUOTIENT4 QUOTIENT4 QUOTIENT4 QUOTIENT4

// The digits of a time up to 134 s.
#define DIGIT(b)                                 \
    if (hold[b:b] == 1) {                        \
        job_hold_bits.count(index << 5 | b);     \
    }
#define HOLD \
    DIGIT(0) DIGIT(1) DIGIT(2) DIGIT(3) DIGIT(4) DIGIT(5) DIGIT(6) DIGIT(7) \
    DIGIT(8) DIGIT(9) DIGIT(10) DIGIT(11) DIGIT(12) DIGIT(13) DIGIT(14) DIGIT(15) \
    DIGIT(16) DIGIT(17) DIGIT(18) DIGIT(19) DIGIT(20) DIGIT(21) DIGIT(22) DIGIT(23) \
    DIGIT(24) DIGIT(25) DIGIT(26)

parser frames(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x0800: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version_ihl, hdr.ipv4.protocol, hdr.ipv4.fragment & 0x3FFF, hdr.ipv4.dst[31:16]) {
            (0x45, 17, 0, 0xEF4D): parse_udp; // 239.77: up
            (0x45, 17, 0, 0xEF4E): parse_udp; // 239.78: down
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        meta.jobOfPort = hdr.udp.dst & 0x0FFF;
        meta.other = meta.jobOfPort ^ hdr.ipv4.dst[15:0];
        transition select(meta.other, hdr.udp.dst[15:12], hdr.ipv4.dst[17:16]) {
            (0, 7, 1): parse_ina;
            (0, 6, 2): parse_ina;
            default: accept;
        }
    }
    state parse_ina {
        packet.extract(hdr.ina);
        transition select(hdr.ina.magic, hdr.ina.lanes) {
            (0xA1, 240 .. 240): parse_a64;
            (0xA1, 0 .. 239): parse_a64;
            default: accept;
        }
    }
    state parse_a64 {
        transition select(hdr.ina.lanes & 0xC0) {
            0: parse_v32;
            default: take_a64;
        }
    }
    state take_a64 {
        packet.extract(hdr.a64);
        transition select(hdr.ina.lanes & 0xC0) {
            0x40: parse_v32;
            default: take_b64;
        }
    }
    state take_b64 {
        packet.extract(hdr.b64);
        transition select(hdr.ina.lanes & 0xC0) {
            0x80: parse_v32;
            default: take_c64;
        }
    }
    state take_c64 {
        packet.extract(hdr.c64);
        transition parse_v32;
    }
    PARSE(v32, v32, 0x20, v16)
    PARSE(v16, v16, 0x10, v8)
    PARSE(v8, v8, 0x08, v4)
    PARSE(v4, v4, 0x04, v2)
    PARSE(v2, v2, 0x02, v1)
    PARSE(v1, v1, 0x01, end)
    state parse_end {
        transition accept;
    }
}

control unchecked(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    @id(0x12000001) counter(PORTS, CounterType.packets_and_bytes) port_rx;
    @id(0x12000009) counter(PORTS, CounterType.packets_and_bytes) port_no_route;
    @id(0x1200000a) counter(JOB_IDS, CounterType.packets_and_bytes) job_in;
    @id(0x1200000b) counter(JOB_IDS, CounterType.packets_and_bytes) job_aggregated;
    @id(0x1200000c) counter(JOB_IDS, CounterType.packets_and_bytes) job_fallback;
    @id(0x1200000d) counter(JOB_IDS, CounterType.packets_and_bytes) job_granted;
    @id(0x1200000e) counter(JOB_IDS, CounterType.packets_and_bytes) job_denied;
    @id(0x1200000f) counter(JOB_IDS, CounterType.packets_and_bytes) job_out;
    @id(0x12000010) counter(JOB_IDS, CounterType.packets_and_bytes) job_results;
    @id(0x12000011) counter(JOB_IDS, CounterType.packets_and_bytes) job_resends;
    @id(0x12000012) counter(JOB_IDS, CounterType.packets_and_bytes) job_duplicates;
    @id(0x12000013) counter(JOB_IDS, CounterType.packets_and_bytes) job_dropped;
    @id(0x12000014) counter(JOB_IDS, CounterType.packets_and_bytes) job_marked;

    // How long aggregators released by a result were taken, in microseconds: cell 32 * job + b
    // counts those times that have bit b, cell 32 * job + 31 all. A P4 counter cannot add up
    // numbers, but their digits.
    @id(0x1200001a) counter(JOBS * 32, CounterType.packets) job_hold_bits;

    // What was decided for the PSNs of each job: fate, epoch, PSN, aggregator.
    register<bit<88>>(JOBS * RING) decisions;

    // The epoch in which a job was last heard of. What it held in another one is free.
    register<bit<16>>(JOBS) epochs;

    // How to take remainders of a job's size: size, m; see modulus.
    register<bit<96>>(JOBS) moduli;

    // Whose an aggregator is: job, epoch, PSN; 0: free.
    register<bit<64>>(AGGREGATORS) owners;

    // Since when it is taken, in microseconds.
    register<bit<48>>(AGGREGATORS) since;

    // Of its sum: bitmap, flags, lanes.
    register<bit<80>>(AGGREGATORS) sums;

    // The sums, by powers of two.
    register<bit<2048>>(AGGREGATORS) sumsA64;
    register<bit<2048>>(AGGREGATORS) sumsB64;
    register<bit<2048>>(AGGREGATORS) sumsC64;
    register<bit<1024>>(AGGREGATORS) sums32;
    register<bit<512>>(AGGREGATORS) sums16;
    register<bit<256>>(AGGREGATORS) sums8;
    register<bit<128>>(AGGREGATORS) sums4;
    register<bit<64>>(AGGREGATORS) sums2;
    register<bit<32>>(AGGREGATORS) sums1;

    // Pools are stacks of what was given back, in the places of their own region; at the
    // region's first aggregator: epoch, how many lie there, how many were never taken.
    register<bit<32>>(AGGREGATORS) stacks;
    register<bit<80>>(AGGREGATORS) pools;

    bit<32> index = 0;    // the job's id
    bit<32> ring = 0;     // place of the packet's PSN among decisions, and what is there
    bit<8>  fate = UNKNOWN;
    bit<16> ringEpoch = 0;
    bit<32> age = 0;      // how much newer the packet's PSN is
    bit<32> slot = 0;
    bit<32> place = 0;
    bit<32> dividend = 0;
    bit<32> divisor = 0;
    bit<64> m = 0;
    bit<40> rest = 0;
    bit<32> hold = 0;
    bit<64> owner = 0;
    bit<16> ownerEpoch = 0;
    bit<64> bitmap = 0;   // of the sum in slot
    bit<8>  flags = 0;
    bit<8>  lanes = 0;
    bit<16> poolEpoch = 0;
    bit<32> poolStack = 0;
    bit<32> poolFresh = 0;
    bit<8>  extra = 0;    // flags of a sum that is sent
    bool known = false;   // the ring has a decision of this epoch
    bool counted = true;  // in job_in
    bool up = false;      // send the packet up as it is
    bool fallback = false;
    bool absorb = false;  // add it to the sum in slot
    bool emit = false;    // send that sum in its place
    bool down = false;    // to workers, not up
    bool back = false;    // to where the packet came from

    @id(0x01000002) action drop() {
        mark_to_drop(std);
    }

    @id(0x01000001) action forward(bit<32> port, bit<48> dst_mac) {
        std.egress_spec = (bit<9>)port;
        hdr.ethernet.dst = dst_mac;
    }

    // The annotation is what a controller must know before it writes an entry.
    @id(0x01000003)
    @inabench[aggregators=AGGREGATORS, jobs=JOBS, window=2048, resends=RESENDS]
    action aggregate(bit<16> epoch, bit<8> mode, bit<8> addressing, bit<32> base, bit<32> size, bit<32> offset,
                     bit<64> expect, bit<1> root, bit<32> window, bit<32> up_port, bit<16> down_group) {
        meta.epoch = epoch;
        meta.mode = mode;
        meta.addressing = addressing;
        meta.base = base;
        meta.size = size;
        meta.offset = offset;
        meta.expect = expect;
        meta.root = root;
        meta.window = window;
        meta.upPort = (bit<9>)up_port;
        meta.downGroup = down_group;
        hdr.udp.checksum = 0; // covers what the switch changes
    }

    @id(0x01000004) action forward_only(bit<16> epoch, bit<32> up_port, bit<16> down_group) {
        meta.epoch = epoch;
        meta.mode = FORWARD;
        meta.upPort = (bit<9>)up_port;
        meta.downGroup = down_group;
        hdr.udp.checksum = 0; // covers what the switch changes
    }

    @id(0x02000001) table ipv4_forward {
        key = { hdr.ipv4.dst: exact; }
        actions = { forward; @defaultonly drop; }
        const default_action = drop();
        size = 1024;
    }

    @id(0x02000002) table job {
        key = { hdr.ina.job: exact; }
        actions = { aggregate; forward_only; @defaultonly drop; }
        const default_action = drop();
        size = 4096;
    }

    // The ring of a job is as long as the least power of two that holds two windows.
    action recall() {
        bit<32> ones = (meta.window << 1) - 1;
        ones = ones | (ones >> 1);
        ones = ones | (ones >> 2);
        ones = ones | (ones >> 4);
        ones = ones | (ones >> 8);
        ring = (index << RING_BITS) | (hdr.ina.psn & ones & (RING - 1));
        bit<88> d;
        decisions.read(d, ring);
        fate = d[87:80];
        ringEpoch = d[79:64];
        age = hdr.ina.psn - d[63:32];
        slot = d[31:0];
    }

    action remember() {
        decisions.write(ring, fate ++ meta.epoch ++ hdr.ina.psn ++ slot);
    }

    // Take the aggregator of slot for this PSN.
    action take() {
        owners.write(slot, hdr.ina.job ++ hdr.ina.epoch ++ hdr.ina.psn);
        since.write(slot, std.ingress_global_timestamp);
        sums.write(slot, 72w0 ++ hdr.ina.lanes);
        bitmap = 0;
        flags = 0;
        lanes = hdr.ina.lanes;
    }

    action keep() {
        sums.write(slot, bitmap ++ flags ++ lanes);
    }

    // What the sum of slot has.
    action look() {
        bit<80> s;
        sums.read(s, slot);
        bitmap = s[79:16];
        flags = s[15:8];
        lanes = s[7:0];
    }

    action pool() {
        bit<80> p;
        pools.read(p, meta.base);
        poolEpoch = p[79:64];
        poolStack = p[63:32];
        poolFresh = p[31:0];
    }

    action poolReset() {
        poolStack = 0;
        poolFresh = 0;
    }

    action poolWrite() {
        pools.write(meta.base, meta.epoch ++ poolStack ++ poolFresh);
    }

    action poolPush() {
        stacks.write(meta.base + poolStack, slot);
        poolStack = poolStack + 1;
    }

    action poolPop() {
        poolStack = poolStack - 1;
        stacks.read(slot, meta.base + poolStack);
    }

    action poolTake() {
        slot = meta.base + poolFresh;
        poolFresh = poolFresh + 1;
    }

    // hashSlot of package ina: the finaliser of SplitMix64, reduced to the region by
    // multiplication. A CRC-32 would not do: those of consecutive PSNs do not collide.
    action hashed() {
        bit<64> x = 16w0 ++ hdr.ina.job ++ hdr.ina.psn;
        x = x + 0x9E3779B97F4A7C15;
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
        x = x ^ (x >> 31);
        bit<96> y = ((bit<96>)x) * ((bit<96>)meta.size);
        slot = meta.base + y[95:64];
    }

    // Remainders: P4 has no division by a number that is known only when it runs. With m =
    // floor((2^64 - 1) / n) + 1, x mod n = ((m x mod 2^64) n) / 2^64 for 32-bit numbers (Lemire,
    // Kaser, Kurz, arXiv 1902.01961). m is divided out by hand when a job's size has changed.
    action modulus() {
        bit<96> k;
        moduli.read(k, index);
        divisor = k[95:64];
        m = k[63:0];
    }

    action modulusBegin() {
        m = 0;
        rest = 0;
    }

    action modulusDigit() {
        rest = (rest << 1) | 1;
        m = m << 1;
    }

    action modulusOne() {
        rest = rest - (bit<40>)meta.size;
        m = m | 1;
    }

    action modulusEnd() {
        m = m + 1;
        moduli.write(index, meta.size ++ m);
    }

    action reduce() {
        bit<64> low = m * (bit<64>)dividend;
        bit<96> y = (bit<96>)low * (bit<96>)meta.size;
        place = meta.base + y[95:64];
    }

    action whose() {
        owners.read(owner, slot);
        epochs.read(ownerEpoch, (bit<32>)owner[63:48]);
    }

    action taken() {
        bit<48> start;
        since.read(start, slot);
        hold = (bit<32>)(std.ingress_global_timestamp - start);
        job_hold_bits.count(index << 5 | 31);
    }

    action heard() {
        epochs.write(index, meta.epoch);
    }

    // Headers of a sum. Those of the packet that caused it serve it, as far as they fit.
    action headers() {
        hdr.ina.flags = flags | extra;
        hdr.ina.slot = 0;
        hdr.ina.rank = 0xFF;
        hdr.ina.lanes = lanes;
        hdr.ina.bitmap = bitmap;
        hdr.ipv4.ecn = 0;
        hdr.ipv4.len = 50 + ((bit<16>)lanes << 2);
        hdr.udp.len = 30 + ((bit<16>)lanes << 2);
        truncate(64 + ((bit<32>)lanes << 2));
        meta.rewritten = 1;
    }

    // A result that this switch makes has the job's group and port, from the IPv4 dummy
    // address (RFC 7600).
    action addresses() {
        hdr.ethernet.dst = 24w0x01005E ++ 8w78 ++ hdr.ina.job; // RFC 1112, section 6.4
        hdr.ipv4.src = 0xC0000008;
        hdr.ipv4.dst = 16w0xEF4E ++ hdr.ina.job;
        hdr.udp.src = 0x7000 | hdr.ina.job;
        hdr.udp.dst = 0x6000 | hdr.ina.job;
    }

    action ascend() {
        std.egress_spec = meta.upPort;
    }

    action descend(bit<16> group) {
        mark_to_drop(std); // where there is no such group
        std.mcast_grp = group;
    }

    apply {
        bit<32> port = (bit<32>)std.ingress_port;
        port_rx.count(port);
        bit<32> end = 14 + (bit<32>)hdr.ipv4.len;
        index = (bit<32>)hdr.ina.job;
        if (!hdr.ina.isValid()) {
            if (!hdr.ipv4.isValid() || !ipv4_forward.apply().hit) {
                port_no_route.count(port);
                mark_to_drop(std);
            }
        } else if (end > std.packet_length || end < 64 || hdr.ina.job != meta.jobOfPort || meta.jobOfPort == 0 ||
                   hdr.ina.flags[0:0] == hdr.udp.dst[12:12]) {
            port_no_route.count(port);
            mark_to_drop(std);
        } else if (hdr.ina.magic != 0xA1 || hdr.ina.lanes > 240 || std.parser_error != error.NoError ||
                   end < 64 + ((bit<32>)hdr.ina.lanes << 2)) {
            mark_to_drop(std);
        } else if (!job.apply().hit) {
            port_no_route.count(port);
            mark_to_drop(std);
        } else {
            if (hdr.ina.epoch != meta.epoch || (meta.mode != FORWARD &&
                (index >= JOBS || meta.base > AGGREGATORS || meta.size > AGGREGATORS - meta.base))) {
                job_dropped.count(index); // the latter are entries that a controller should not write
                mark_to_drop(std);
            } else if (hdr.ina.flags & RESULT != 0) {
                if (meta.mode == STATISTICAL) {
                    heard();
                    recall();
                    known = fate != UNKNOWN && ringEpoch == meta.epoch;
                    if (!known || age[31:31] == 0) {
                        if (known && fate == GRANTED) {
                            if (age == 0) {
                                taken();
                                HOLD
                            }
                            RELEASE
                        }
                        fate = PASSED;
                        remember();
                    }
                }
                job_results.count(index);
                descend(meta.downGroup);
            } else if (meta.mode != FORWARD && (hdr.ina.bitmap == 0 || hdr.ina.bitmap & ~meta.expect != 0)) {
                job_dropped.count(index);
                mark_to_drop(std);
            } else {
                if (hdr.ina.flags & RESEND != 0) {
                    job_resends.count(index);
                }
                if (hdr.ina.flags & ECN != 0) {
                    job_marked.count(index);
                }
                // Where the PSN's aggregator is, if that is a remainder.
                if (meta.size != 0 && meta.mode != FORWARD && (meta.mode == SYNCHRONOUS || meta.addressing >= LINEAR)) {
                    if (meta.mode == SYNCHRONOUS) {
                        dividend = hdr.ina.psn;
                    } else if (meta.addressing == LINEAR) {
                        dividend = meta.offset + hdr.ina.psn;
                    } else {
                        dividend = (bit<32>)hdr.ina.slot;
                    }
                    modulus();
                    if (divisor != meta.size) {
                        modulusBegin();
                        DIVIDE DIVIDE DIVIDE DIVIDE
                        modulusEnd();
                    }
                    reduce();
                }
                if (meta.mode == FORWARD) {
                    fallback = true;
                } else if (meta.mode == STATISTICAL) {
                    heard();
                    recall();
                    known = fate != UNKNOWN && ringEpoch == meta.epoch;
                    if (known && age[31:31] == 1) { // older than the ring
                        fate = PASSED;
                    } else if (!known || age != 0) {
                        if (known && fate == GRANTED) {
                            RELEASE
                        }
                        fate = DENIED;
                        if (hdr.ina.flags & RESEND != 0) {
                        } else if (hdr.ina.bitmap == meta.expect) {
                            fate = PASSED;
                            up = true;
                        } else if (meta.size != 0) {
                            if (meta.addressing == POOL) {
                                pool();
                                if (poolEpoch != meta.epoch) {
                                    poolReset();
                                }
                                if (poolStack != 0) {
                                    poolPop();
                                    fate = GRANTED;
                                } else if (poolFresh < meta.size) {
                                    poolTake();
                                    fate = GRANTED;
                                }
                                poolWrite();
                            } else {
                                if (meta.addressing == HASH) {
                                    hashed();
                                } else {
                                    slot = place;
                                }
                                whose();
                                if (owner == 0 || owner[47:32] != ownerEpoch) {
                                    fate = GRANTED;
                                }
                            }
                        }
                        if (fate == GRANTED) {
                            take();
                            job_granted.count(index);
                        } else if (fate == DENIED && hdr.ina.flags & RESEND == 0) {
                            job_denied.count(index);
                        }
                        remember();
                    }
                    if (up) { // complete as it came
                        job_aggregated.count(index);
                        job_out.count(index);
                        ascend();
                    } else if (fate != GRANTED) {
                        fallback = true;
                    } else {
                        look();
                        if (hdr.ina.flags & RESEND == 0) {
                            absorb = true;
                        } else {
                            fate = DENIED;
                            remember();
                            RELEASE
                            fallback = true;
                            // Kept until egress, which sends it as instance 2 and the packet as 1: BMv2
                            // makes the last instance of a group first.
                            hdr.push.setValid();
                            hdr.push = hdr.ina;
                            hdr.push.flags = flags | RESEND;
                            hdr.push.slot = 0;
                            hdr.push.rank = 0xFF;
                            hdr.push.lanes = lanes;
                            hdr.push.bitmap = bitmap;
                            BLOCKS(KEEP)
                        }
                    }
                } else if (meta.size == 0) { // at a halt
                    counted = false;
                    job_dropped.count(index);
                    mark_to_drop(std);
                } else {
                    heard();
                    slot = place;
                    whose();
                    known = owner[63:48] == hdr.ina.job && owner[47:32] == meta.epoch;
                    age = hdr.ina.psn - owner[31:0];
                    if (known && age[31:31] == 1) { // its slot went on: everybody has its result
                        job_duplicates.count(index);
                        mark_to_drop(std);
                    } else {
                        if (known && age == 0) {
                            look();
                        } else {
                            take();
                            job_granted.count(index);
                        }
                        if (bitmap & meta.expect == meta.expect && hdr.ina.flags & RESEND != 0) {
                            job_duplicates.count(index);
                            BLOCKS(LOAD)
                            emit = true;
                            back = meta.root == 1;
                            extra = RESEND;
                        } else {
                            absorb = true;
                            down = meta.root == 1;
                        }
                    }
                }

                if (absorb) {
                    if (lanes != hdr.ina.lanes || (bitmap != 0 && (flags ^ hdr.ina.flags) & OPERATION != 0)) {
                        counted = false;
                        job_dropped.count(index);
                        mark_to_drop(std);
                    } else if (bitmap & hdr.ina.bitmap != 0) {
                        job_duplicates.count(index);
                        mark_to_drop(std);
                    } else {
                        if (bitmap == 0) {
                            BLOCKS(STORE)
                        } else {
                            BLOCKS(ADD)
                        }
                        flags = flags | (hdr.ina.flags & INHERITED);
                        bitmap = bitmap | hdr.ina.bitmap;
                        keep();
                        job_aggregated.count(index);
                        emit = bitmap & meta.expect == meta.expect;
                        mark_to_drop(std);
                    }
                }
                if (emit) {
                    if (down || back) {
                        extra = RESULT;
                        addresses();
                    }
                    headers();
                    job_out.count(index);
                    if (down) {
                        descend(meta.downGroup);
                    } else if (back) {
                        std.egress_spec = std.ingress_port;
                    } else {
                        ascend();
                    }
                }
                if (fallback) {
                    if (fate == DENIED) {
                        hdr.ina.flags = hdr.ina.flags | COLLISION;
                    }
                    job_fallback.count(index);
                    job_out.count(index);
                    if (hdr.push.isValid()) {
                        job_out.count(index);
                        descend(RESENDS | hdr.ina.job);
                    } else {
                        ascend();
                    }
                }
                if (counted) {
                    job_in.count(index);
                }
            }
        }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    @id(0x12000002) counter(PORTS, CounterType.packets_and_bytes) port_tx;
    @id(0x12000007) counter(PORTS, CounterType.packets_and_bytes) port_marked;

    // Frames that came when the queue was full, or nearly: where there are none, none was lost.
    @id(0x1200001b) counter(PORTS, CounterType.packets_and_bytes) port_full;
    @id(0x1200001c) counter(PORTS, CounterType.packets_and_bytes) port_over;

    apply {
        bit<32> port = (bit<32>)std.egress_port;
        if (hdr.push.isValid() && std.egress_rid == 2) {
            hdr.ina = hdr.push;
            BLOCKS(PUSHED)
            hdr.ipv4.ecn = 0;
            hdr.ipv4.len = 50 + ((bit<16>)hdr.push.lanes << 2);
            hdr.udp.len = 30 + ((bit<16>)hdr.push.lanes << 2);
            truncate(64 + ((bit<32>)hdr.push.lanes << 2));
            meta.rewritten = 1;
        }
        if (std.enq_qdepth > ECN_DEPTH) {
            if (hdr.ina.isValid()) {
                hdr.ina.flags = hdr.ina.flags | ECN;
                hdr.ipv4.ecn = 3;
                meta.rewritten = 1;
                port_marked.count(port);
            } else if (hdr.ipv4.isValid() && hdr.ipv4.ecn != 0) { // RFC 3168
                hdr.ipv4.ecn = 3;
                meta.rewritten = 1;
                port_marked.count(port);
            }
        }
        if (std.enq_qdepth >= FULL_DEPTH) {
            port_full.count(port);
        }
        if (std.enq_qdepth >= OVER_DEPTH) {
            port_over.count(port);
        }
        port_tx.count(port);
    }
}

control checksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.rewritten == 1 && hdr.ipv4.isValid() && hdr.ipv4.version_ihl == 0x45, {
            hdr.ipv4.version_ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.len, hdr.ipv4.id, hdr.ipv4.fragment,
            hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst
        }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.ina);
        BLOCKS(EMIT)
    }
}

V1Switch(frames(), unchecked(), ingress(), egress(), checksum(), deparse()) main;
