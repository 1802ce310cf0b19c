// In-network aggregation for chips: one program, for Tofino 1 and 2 (TNA) and, to test what it
// decides, for BMv2 (v1model).
//
// A stage of Tofino 1 has four stateful ALUs, which compare twice and return one word, and a
// packet meets each register once. So this program does less than ina_v1model.p4, and what it
// leaves out is data: the annotation of action aggregate tells controllers.
//
//   - Workers name the aggregator: the field slot of a packet is what its addressing gives, and
//     its low bits are those of the region's aggregator, whose size is a power of two. There is no
//     pool, whose free list would need two accesses to one register.
//   - What was decided for a PSN is remembered beside its aggregator and not in a ring: whose it
//     was last, and the PSN that was last denied it. A PSN that was denied and finds its aggregator
//     free later takes it all the same, since the register of owners is met first; the aggregator is
//     then void, nothing is summed there, and the PSN's packets go on up. That binds all packets of
//     a PSN unless two PSNs are denied one aggregator at once; the earlier of these may then be
//     granted it half-way, and ends by a resend.
//   - A resend joins its sum, and the sum leaves with it, in one packet; a sum that has all of its
//     workers leaves without it. The packet that pushed a sum out never follows by itself.
//   - Packets have LANES lanes to be summed; others go up as they are, and the PS adds them.
//   - A wrap of a lane is not noticed: a stateful ALU returns one word. Values must be such that
//     sums stay in range.
//   - An aggregator that a job leaves behind is free after a minute. One that was granted longer ago
//     than that, while its job paused, may be taken from it, and the PSN ends by resends.
//
// Stages: 0 job; 1 owners; 2 shares; 3 and on: lanes, four in each, and what decides where the
// packet goes, beside them.

#include <core.p4>
#if __TARGET_TOFINO__ == 1
#define TNA
#include <tna.p4>
#elif __TARGET_TOFINO__ == 2
#define TNA
#include <t2na.p4>
#else
#include <v1model.p4>
#endif

#define AGGREGATORS 16384
#define JOB_IDS     4096
#define PORTS       512
#define FLOOD       0x4000 // + port: multicast group for ARP that comes in there

#ifndef LANES
#define LANES 32
#endif
#define FRAME_LEN (50 + 4 * LANES) // of the IPv4 packet

// ---- What differs between the architectures -------------------------------------------------

#ifdef TNA
#define REGISTER(T, name) Register<T, slot_t>(AGGREGATORS) name;
#define PAIRS(name)       Register<pair_t, slot_t>(AGGREGATORS) name;
#define UPDATE(name, of)  RegisterAction<bit<32>, slot_t, bit<32>>(of) name = { void apply(inout bit<32> value, out bit<32> result)
#define ENDUPDATE(of)     };
#define UPDATE2(name, of, R) RegisterAction<pair_t, slot_t, R>(of) name = { void apply(inout pair_t value, out R result)
#define ENDUPDATE2(of)    };
#define CALL(to, name, at) to = name.execute(at)
#define WHICH(first, second) this.predicate(first, second)
#define COUNTER(name, n)  Counter<bit<64>, bit<12>>(n, CounterType_t.PACKETS_AND_BYTES) name;
#define COUNT(name, at)   name.count((bit<12>)(at))
#define SLOT              fold.get({ meta.masked, meta.base })
#define SEND(to)          tm.ucast_egress_port = to
#define SENDALL(to)       tm.mcast_grp_a = to
#define DROP              dprsr.drop_ctl = 1
#define INGRESS_PORT      ig.ingress_port
#define NOW               prsr.global_tstamp[47:24]
#else
#define REGISTER(T, name) register<T>(AGGREGATORS) name;
#define PAIRS(name)       register<bit<64>>(AGGREGATORS) name;
#define UPDATE(name, of)  action name(in slot_t at, out bit<32> result) { bit<32> value; result = 0; of.read(value, (bit<32>)at);
#define ENDUPDATE(of)     of.write((bit<32>)at, value); }
#define UPDATE2(name, of, R) action name(in slot_t at, out R result) { bit<64> both; pair_t value; result = 0; of.read(both, (bit<32>)at); value.a = both[63:32]; value.b = both[31:0];
#define ENDUPDATE2(of)    of.write((bit<32>)at, value.a ++ value.b); }
#define CALL(to, name, at) name(at, to)
#define WHICH(first, second) ((first) ? ((second) ? 8w8 : 8w2) : ((second) ? 8w4 : 8w1))
#define COUNTER(name, n)  counter(n, CounterType.packets_and_bytes) name;
#define COUNT(name, at)   name.count((bit<32>)(at))
#define SLOT              (meta.masked | meta.base)
#define SEND(to)          std.egress_spec = to
#define SENDALL(to)       std.mcast_grp = to
#define DROP              mark_to_drop(std)
#define INGRESS_PORT      std.ingress_port
#define NOW               std.ingress_global_timestamp[37:14]
#endif

// ---- Packets --------------------------------------------------------------------------------

typedef bit<16> slot_t;

const bit<8> RESULT = 0x01;
const bit<8> RESEND = 0x02;
const bit<8> COLLISION = 0x04;
const bit<8> ECN = 0x08;
const bit<8> INHERITED = 0x7C; // what a sum has of its summands: all but result and resend

const bit<8> FORWARD = 0;
const bit<8> STATISTICAL = 1;
const bit<8> SYNCHRONOUS = 2;

// What a packet is, and what the registers make of it.
const bit<8> WRONG = 0;   // of another epoch, or of workers that are not expected here
const bit<8> HALTED = 1;  // synchronous, and its job has no aggregators
const bit<8> DOWN = 2;    // a result
const bit<8> PLAIN = 3;   // not to be summed
const bit<8> WHOLE = 4;   // complete as it came
const bit<8> CLAIM = 5;   // asks for an aggregator
const bit<8> CLEAR = 6;   // a resend
const bit<8> TURN = 7;    // a synchronous packet
const bit<8> AGAIN = 8;   // a synchronous resend
const bit<8> DENIED = 9;
const bit<8> FIRST = 10;  // of its sum
const bit<8> ADD = 11;
const bit<8> PUSH = 12;   // add, and send the sum
const bit<8> ASK = 13;    // add, or answer from the sum
const bit<8> OLD = 14;    // everybody has the result

// Counters that a packet moves.
const bit<8> IN = 0x01;
const bit<8> AGGREGATED = 0x02;
const bit<8> FALLBACK = 0x04;
const bit<8> DUPLICATE = 0x08;
const bit<8> DROPPED = 0x10;
const bit<8> RESULTS = 0x20;
const bit<8> GRANTED = 0x40;
const bit<8> OUT = 0x80;

// Which of two conditions hold.
const bit<8> NEITHER = 1;
const bit<8> ONE = 2;
const bit<8> OTHER = 4;
const bit<8> BOTH = 8;

// The sum of an aggregator that was granted by mistake. Bit 31 is no worker's.
const bit<32> VOID = 0xFFFFFFFF;

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
    bit<32> others; // workers 32 to 63, of which this program sums none
    bit<32> bitmap;
}

#define LANES16(DO, x) \
    DO(x##0) DO(x##1) DO(x##2) DO(x##3) DO(x##4) DO(x##5) DO(x##6) DO(x##7) \
    DO(x##8) DO(x##9) DO(x##a) DO(x##b) DO(x##c) DO(x##d) DO(x##e) DO(x##f)
#if LANES == 240
#define EACH_LANE(DO) \
    LANES16(DO, a) LANES16(DO, b) LANES16(DO, c) LANES16(DO, d) LANES16(DO, e) \
    LANES16(DO, f) LANES16(DO, g) LANES16(DO, h) LANES16(DO, i) LANES16(DO, j) \
    LANES16(DO, k) LANES16(DO, l) LANES16(DO, m) LANES16(DO, n) LANES16(DO, o)
#else
#define EACH_LANE(DO) LANES16(DO, a) LANES16(DO, b)
#endif

#define FIELD(n) bit<32> n;
header lanes_t { EACH_LANE(FIELD) }

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    ina_t      ina;
    lanes_t    lanes;
}

struct metadata_t {
    bit<1>  rewritten; // the IPv4 header changed
    bit<1>  lost;      // no table knows where to
    bit<8>  counts;
    bit<8>  act;

    // Of the job's entry, and of the packet against it.
    bit<8>  mode;
    bit<1>  root;
    bit<1>  memory;  // it has aggregators
    bit<16> stale;   // 0: the packet's epoch is the entry's
    bit<32> foreign; // workers of the packet that are not expected
    bit<32> absent;  // 0: the packet has all that are
    bit<32> expect;
    slot_t  base;
    slot_t  masked;
    bit<9>  up;
    bit<16> down;

    slot_t  slot;
    bit<32> place;   // of its PSN among those of a synchronous job; odd
    bit<32> kept;    // that of the PSN that has the aggregator already; 0: the packet's has it from now on
    bit<32> gap;     // between both: 0 if it is the packet's own, odd if kept is 0
    bit<8>  own;     // which conditions its owner meets
    bit<32> seen;    // workers that were in the sum before this packet, or nearly
    bit<32> common;  // of these, the packet's
    bit<32> sum;     // workers in the sum with it
    bit<32> missing; // of those that are expected
    bit<32> marks;   // flags of the summands
}

struct pair_t {
    bit<32> a;
    bit<32> b;
}

// Whose an aggregator is, in statistical mode: distinct within any window, and for as long as
// anything is left behind. In synchronous mode it is a PSN of a job and its epoch.
#define TAG (hdr.ina.psn[17:0] ++ hdr.ina.job[6:0] ++ hdr.ina.epoch[6:0])
#define WHO (hdr.ina.job ++ hdr.ina.epoch)

// When it was granted, in units of 16.8 ms (of 16.4 on BMv2): 0, as which it is given back, is long ago.
#define GRANTED_AT (8w1 ++ NOW)
#define LONG_AGO   3600

// The states of both parsers. A state of Tofino 1 matches four bytes.
#define PARSE(INA)                                                          \
    state ethernet {                                                        \
        packet.extract(hdr.ethernet);                                       \
        transition select(hdr.ethernet.type) {                              \
            0x0800: ipv4;                                                   \
            default: accept;                                                \
        }                                                                   \
    }                                                                       \
    state ipv4 {                                                            \
        packet.extract(hdr.ipv4);                                           \
        transition select(hdr.ipv4.version_ihl, hdr.ipv4.protocol, hdr.ipv4.dst[31:16]) { \
            (0x45, 17, 0xEF4D): fragment; /* 239.77: up */                  \
            (0x45, 17, 0xEF4E): fragment; /* 239.78: down */                \
            default: accept;                                                \
        }                                                                   \
    }                                                                       \
    state fragment {                                                        \
        transition select(hdr.ipv4.fragment) {                              \
            0x0000 &&& 0x3FFF: udp;                                         \
            default: accept;                                                \
        }                                                                   \
    }                                                                       \
    state udp {                                                             \
        packet.extract(hdr.udp);                                            \
        transition select(hdr.udp.dst, packet.lookahead<bit<8>>()) {        \
            (0x6000 &&& 0xE000, 0xA1): ina;                                 \
            default: accept;                                                \
        }                                                                   \
    }                                                                       \
    state ina {                                                             \
        packet.extract(hdr.ina);                                            \
        transition INA;                                                     \
    }

// What is sent in place of a packet that completes or pushes out a sum.
#define SUM                                                                 \
        hdr.ina.rank = 0xFF;                                                \
        hdr.ina.bitmap = meta.sum;                                          \
        hdr.ipv4.ecn = 0;                                                   \
        meta.rewritten = 1;

#define CHECKSUMMED {                                                       \
        hdr.ipv4.version_ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.len, hdr.ipv4.id, hdr.ipv4.fragment, \
        hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst }

#ifdef TNA
parser Arrival(packet_in packet, out headers_t hdr, out metadata_t meta, out ingress_intrinsic_metadata_t ig) {
    state start {
        packet.extract(ig);
        packet.advance(PORT_METADATA_SIZE);
        meta.rewritten = 0;
        meta.lost = 0;
        meta.counts = 0;
        meta.act = WRONG;
        transition ethernet;
    }
#else
parser Arrival(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        transition ethernet;
    }
#endif
    PARSE(size)
    state size { // others go up as they are
        transition select(hdr.ina.lanes, hdr.ipv4.len) {
            (LANES, FRAME_LEN): workers;
            default: accept;
        }
    }
    state workers {
        transition select(hdr.ina.others) {
            0: lanes;
            default: accept;
        }
    }
    state lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }
}

#ifdef TNA
control Switching(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t ig,
                in ingress_intrinsic_metadata_from_parser_t prsr, inout ingress_intrinsic_metadata_for_deparser_t dprsr,
                inout ingress_intrinsic_metadata_for_tm_t tm) {
    Hash<slot_t>(HashAlgorithm_t.XOR16) fold;
#else
control Switching(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
#endif
    COUNTER(port_rx, PORTS)
    COUNTER(port_no_route, PORTS)
    COUNTER(job_in, JOB_IDS)
    COUNTER(job_aggregated, JOB_IDS)
    COUNTER(job_fallback, JOB_IDS)
    COUNTER(job_duplicates, JOB_IDS)
    COUNTER(job_dropped, JOB_IDS)
    COUNTER(job_results, JOB_IDS)
    COUNTER(job_granted, JOB_IDS)
    COUNTER(job_out, JOB_IDS)

    // Tag of the PSN that has an aggregator or had it last, and since when.
    PAIRS(owners)
#define MINE (value.a == TAG)
#define FREE ((int<32>)(GRANTED_AT - value.b) > LONG_AGO)
    UPDATE2(claim, owners, bit<8>) {
        result = WHICH(MINE, FREE);
        if (!MINE && FREE) {
            value.a = TAG;
            value.b = GRANTED_AT;
        }
    } ENDUPDATE2(owners)
    UPDATE2(release, owners, bit<8>) {
        result = WHICH(MINE, FREE);
        if (MINE) {
            value.b = 0;
        }
    } ENDUPDATE2(owners)

    // Place of the PSN that has an aggregator of a synchronous job until a newer one takes it, or
    // another job. Stateful ALUs compare without wrapping: signed where places wrap around 0, else
    // unsigned.
    PAIRS(turns)
#define TAKE(than)                                                          \
        result = 0;                                                         \
        if (value.b == WHO && than) {                                       \
            result = value.a;                                               \
        } else {                                                            \
            value.a = meta.place;                                           \
            value.b = WHO;                                                  \
        }
    UPDATE2(take, turns, bit<32>) {
        TAKE(meta.place <= value.a)
    } ENDUPDATE2(turns)
    UPDATE2(take_signed, turns, bit<32>) {
        TAKE((int<32>)meta.place <= (int<32>)value.a)
    } ENDUPDATE2(turns)

    // Workers that came to an aggregator since it was granted, those among them whose values were
    // not added, too; and the tag of the PSN that was last denied it.
    PAIRS(shares)
    UPDATE2(grant, shares, bit<32>) {
        result = 0;
        if (value.b == TAG) {
            value.a = VOID;
            result = value.a;
        } else {
            value.a = hdr.ina.bitmap;
        }
    } ENDUPDATE2(shares)
    UPDATE2(join, shares, bit<32>) {
        result = value.a;
        value.a = value.a | hdr.ina.bitmap;
    } ENDUPDATE2(shares)
    UPDATE2(push, shares, bit<32>) {
        result = value.a;
        value.b = TAG;
    } ENDUPDATE2(shares)
    UPDATE2(deny, shares, bit<32>) {
        result = 0;
        value.b = TAG;
    } ENDUPDATE2(shares)

    // Workers in the sum, flags of their packets, and the sum.
    REGISTER(bit<32>, summed)
    REGISTER(bit<32>, marked)
#define SUMS(reg, v)                                                        \
    UPDATE(first_##reg, reg) {                                              \
        value = v;                                                          \
        result = value;                                                     \
    } ENDUPDATE(reg)                                                        \
    UPDATE(read_##reg, reg) {                                               \
        result = value;                                                     \
    } ENDUPDATE(reg)
#define ORED(reg, v)                                                        \
    SUMS(reg, v)                                                            \
    UPDATE(add_##reg, reg) {                                                \
        value = value | v;                                                  \
        result = value;                                                     \
    } ENDUPDATE(reg)
#define ADDED(reg, v)                                                       \
    SUMS(reg, v)                                                            \
    UPDATE(add_##reg, reg) {                                                \
        value = value + v;                                                  \
        result = value;                                                     \
    } ENDUPDATE(reg)
    ORED(summed, hdr.ina.bitmap)
    ORED(marked, (bit<32>)(hdr.ina.flags & INHERITED))
#define LANE(n) REGISTER(bit<32>, sum_##n) ADDED(sum_##n, hdr.lanes.n)
    EACH_LANE(LANE)

    @id(0x01000002) action drop() { DROP; }

    @id(0x01000001) action forward(bit<9> port, bit<48> dst_mac) {
        SEND(port);
        hdr.ethernet.dst = dst_mac;
    }

    // The annotation is what a controller must know before it writes an entry. mask is one less than
    // size, memory whether there is any.
    @id(0x01000003)
    @inabench[aggregators=AGGREGATORS, jobs=128, window=1048576, powers=1, workers=31, lanes=LANES, whole=1,
             addressing="hash linear atp", named=1, merges=1]
    action aggregate(bit<16> epoch, bit<8> mode, bit<8> addressing, bit<16> base, bit<16> size, bit<16> mask, bit<1> memory,
                     bit<32> offset, bit<32> expect, bit<1> root, bit<32> window, bit<9> up_port, bit<16> down_group) {
        meta.stale = hdr.ina.epoch ^ epoch;
        meta.mode = mode;
        meta.memory = memory;
        meta.base = base;
        meta.masked = hdr.ina.slot & mask;
        meta.place = hdr.ina.psn[30:0] ++ 1w1;
        meta.expect = expect;
        meta.foreign = hdr.ina.bitmap & ~expect;
        meta.absent = hdr.ina.bitmap ^ expect;
        meta.root = root;
        meta.up = up_port;
        meta.down = down_group;
        hdr.udp.checksum = 0; // covers what the switch changes
    }

    @id(0x01000004) action forward_only(bit<16> epoch, bit<9> up_port, bit<16> down_group) {
        meta.stale = hdr.ina.epoch ^ epoch;
        meta.mode = FORWARD;
        meta.up = up_port;
        meta.down = down_group;
        hdr.udp.checksum = 0;
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

    // What the packet is, and whose its aggregator.
    action is(bit<8> act) {
        meta.act = act;
        meta.slot = SLOT;
    }
    action claims() {
        is(CLAIM);
        CALL(meta.own, claim, SLOT);
    }
    action releases(bit<8> act) {
        is(act);
        CALL(meta.own, release, SLOT);
    }
#define CLASSIFIED                                                          \
            meta.stale:          ternary;                                   \
            meta.mode:           ternary;                                   \
            hdr.ina.flags:       ternary;                                   \
            hdr.ina.bitmap:      ternary;                                   \
            meta.foreign:        ternary;                                   \
            hdr.lanes.isValid(): ternary;                                   \
            meta.memory:         ternary;
    table own {
        key = {
            CLASSIFIED
            meta.absent: ternary;
        }
        actions = { is; claims; releases; }
        const default_action = is(WRONG);
        const entries = {
            (0, STATISTICAL, 1 &&& 1, _, _, _,     1, _): releases(DOWN);
            (0, _,           1 &&& 1, _, _, _,     _, _): is(DOWN);
            (0, FORWARD,     _,       _, _, _,     _, _): is(PLAIN);
            (_, _,           _,       0, _, _,     _, _): is(WRONG);
            (0, _,           _,       _, 0, false, _, _): is(PLAIN);
            (0, STATISTICAL, 2 &&& 2, _, 0, _,     1, _): releases(CLEAR);
            (0, STATISTICAL, 0 &&& 2, _, 0, _,     _, 0): is(WHOLE);
            (0, STATISTICAL, _,       _, 0, _,     0, _): is(DENIED);
            (0, STATISTICAL, _,       _, 0, _,     _, _): claims();
            (0, SYNCHRONOUS, _,       _, 0, _,     0, _): is(HALTED);
            (0, SYNCHRONOUS, 2 &&& 2, _, 0, _,     _, _): is(AGAIN);
            (0, SYNCHRONOUS, _,       _, 0, _,     _, _): is(TURN);
        }
    }

#define TURNS(fn)                                                           \
        CALL(meta.kept, fn, SLOT);                                          \
        meta.gap = meta.kept ^ meta.place;
    action takes() { TURNS(take) }
    action takes_signed() { TURNS(take_signed) }
    table turn {
        key = {
            CLASSIFIED
            meta.place: ternary;
        }
        actions = { takes; takes_signed; NoAction; }
        const default_action = NoAction();
        const entries = {
            (_, _,           _,       0, _, _,    _, _): NoAction();
            (0, SYNCHRONOUS, 0 &&& 1, _, 0, true, 1, 0x00000000 &&& 0xC0000000): takes_signed();
            (0, SYNCHRONOUS, 0 &&& 1, _, 0, true, 1, 0xC0000000 &&& 0xC0000000): takes_signed();
            (0, SYNCHRONOUS, 0 &&& 1, _, 0, true, 1, _): takes();
        }
    }

    // What the packet is to the sum.
#define SHARE(fn)                                                           \
        CALL(meta.seen, fn, meta.slot);                                     \
        meta.common = meta.seen & hdr.ina.bitmap;
    action grants() {
        meta.act = FIRST;
        SHARE(grant)
    }
    action joins(bit<8> act) {
        meta.act = act;
        SHARE(join)
    }
    action pushes() {
        meta.act = PUSH;
        SHARE(push)
    }
    action settles(bit<8> act) { meta.act = act; }
    action denies() {
        meta.act = DENIED;
        SHARE(deny)
    }
    table share {
        key = {
            meta.act: ternary;
            meta.own: ternary;
            meta.gap: ternary;
        }
        actions = { settles; grants; joins; pushes; denies; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (CLAIM, NEITHER, _): denies();
            (CLAIM, ONE, _):     joins(ADD);
            (CLAIM, OTHER, _):   grants();
            (CLAIM, _, _):       settles(DENIED); // it is over
            (CLEAR, ONE, _):     pushes();
            (CLEAR, _, _):       denies();
            (TURN, _, 0):        joins(ADD);
            (TURN, _, 1 &&& 1):  grants();
            (TURN, _, _):        settles(OLD);
            (AGAIN, _, 0):       joins(ASK);
            (AGAIN, _, 1 &&& 1): grants();
            (AGAIN, _, _):       settles(OLD);
        }
    }

    // Sums. Values are added only where no worker of the packet came before.
#define SUMTABLE(reg, to, table_)                                           \
    action set_##reg() { CALL(to, first_##reg, meta.slot); }                \
    action more_##reg() { CALL(to, add_##reg, meta.slot); }                 \
    action show_##reg() { CALL(to, read_##reg, meta.slot); }                \
    table table_ {                                                          \
        key = {                                                             \
            meta.act:    ternary;                                           \
            meta.common: ternary;                                           \
            meta.seen:   ternary;                                           \
        }                                                                   \
        actions = { set_##reg; more_##reg; show_##reg; @defaultonly NoAction; } \
        const default_action = NoAction();                                  \
        const entries = {                                                   \
            (FIRST, 0, _): set_##reg();                                     \
            (ADD,   0, _): more_##reg();                                    \
            (PUSH,  0, _): more_##reg();                                    \
            (ASK,   0, _): more_##reg();                                    \
            (PUSH,  _, 0 &&& 0x80000000): show_##reg();                     \
            (ASK,   _, _): show_##reg();                                    \
        }                                                                   \
    }
    SUMTABLE(summed, meta.sum, workers)
    SUMTABLE(marked, meta.marks, marks)
#define LANETABLE(n) SUMTABLE(sum_##n, hdr.lanes.n, lane_##n)
    EACH_LANE(LANETABLE)

    // Where the packet goes, or the sum in its place.
    action drops(bit<8> counts) {
        meta.counts = counts;
        DROP;
    }
    action ascends(bit<8> counts) {
        meta.counts = counts;
        SEND(meta.up);
    }
    action collides() {
        meta.counts = IN | FALLBACK | OUT;
        hdr.ina.flags = hdr.ina.flags | COLLISION;
        SEND(meta.up);
    }
    action descends() {
        meta.counts = RESULTS;
        SENDALL(meta.down);
    }
    action emits(bit<8> counts, bit<8> extra) {
        meta.counts = counts;
        hdr.ina.flags = meta.marks[7:0] | extra;
        SUM
        SEND(meta.up);
    }
    // A result that this switch makes has the job's group and port, from the IPv4 dummy
    // address (RFC 7600).
#define ANSWER                                                              \
        hdr.ina.flags = meta.marks[7:0] | RESULT;                           \
        SUM                                                                 \
        hdr.ethernet.dst = 24w0x01005E ++ 8w78 ++ hdr.ina.job; /* RFC 1112, section 6.4 */ \
        hdr.ipv4.src = 0xC0000008;                                          \
        hdr.ipv4.dst = 16w0xEF4E ++ hdr.ina.job;                            \
        hdr.udp.src = 0x7000 | hdr.ina.job;                                 \
        hdr.udp.dst = 0x6000 | hdr.ina.job;
    action answers(bit<8> counts) {
        meta.counts = counts;
        ANSWER
        SENDALL(meta.down);
    }
    action returns() {
        meta.counts = IN | DUPLICATE | OUT;
        ANSWER
        SEND(INGRESS_PORT);
    }
    table outcome {
        key = {
            meta.act:     ternary;
            meta.common:  ternary;
            meta.seen:    ternary;
            meta.missing: ternary;
            meta.mode:    ternary;
            meta.root:    ternary;
        }
        actions = { drops; ascends; collides; descends; emits; answers; returns; }
        const default_action = drops(DROPPED);
        const entries = {
            (DOWN,   _, _, _, _, _): descends();
            (PLAIN,  _, _, _, _, _): ascends(IN | FALLBACK | OUT);
            (WHOLE,  _, _, _, _, _): ascends(IN | AGGREGATED | OUT);
            (DENIED, _, _, _, _, _): collides();
            (OLD,    _, _, _, _, _): drops(IN | DUPLICATE);
            (FIRST,  0, _, 0, SYNCHRONOUS, 1): answers(IN | AGGREGATED | GRANTED | OUT); // of one worker
            (FIRST,  0, _, 0, _, _): emits(IN | AGGREGATED | GRANTED | OUT, 0);
            (FIRST,  0, _, _, _, _): drops(IN | AGGREGATED | GRANTED);
            (FIRST,  _, _, _, _, _): collides();
            (ADD,    0, _, 0, SYNCHRONOUS, 1): answers(IN | AGGREGATED | OUT);
            (ADD,    0, _, 0, _, _): emits(IN | AGGREGATED | OUT, 0);
            (ADD,    0, _, _, _, _): drops(IN | AGGREGATED);
            (ADD,    _, 0x80000000 &&& 0x80000000, _, _, _): collides();
            (ADD,    _, _, _, _, _): drops(IN | DUPLICATE);
            (PUSH,   0, _, _, _, _): emits(IN | AGGREGATED | OUT, RESEND);
            (PUSH,   _, 0x80000000 &&& 0x80000000, _, _, _): collides();
            (PUSH,   _, _, _, _, _): emits(IN | DUPLICATE | OUT, RESEND);
            (ASK,    0, _, 0, _, 1): answers(IN | AGGREGATED | OUT);
            (ASK,    0, _, 0, _, _): emits(IN | AGGREGATED | OUT, 0);
            (ASK,    0, _, _, _, _): drops(IN | AGGREGATED);
            (ASK,    _, _, 0, _, 1): returns();
            (ASK,    _, _, 0, _, _): emits(IN | DUPLICATE | OUT, RESEND);
            (ASK,    _, _, _, _, _): drops(IN | DUPLICATE);
        }
    }

    apply {
        COUNT(port_rx, INGRESS_PORT);
        if (hdr.ina.isValid()) {
            if (hdr.ina.job[11:0] != hdr.udp.dst[11:0] || hdr.ina.job[15:12] != 0 || hdr.ina.flags[0:0] == hdr.udp.dst[12:12]) {
                meta.lost = 1;
                drop();
            } else if (job.apply().hit) {
                own.apply();
                turn.apply();
                share.apply();
                workers.apply();
                marks.apply();
                meta.missing = meta.sum ^ meta.expect;
#define SUMLANE(n) lane_##n.apply();
                EACH_LANE(SUMLANE)
                outcome.apply();
                if (meta.counts & IN != 0) { COUNT(job_in, hdr.ina.job); }
                if (meta.counts & AGGREGATED != 0) { COUNT(job_aggregated, hdr.ina.job); }
                if (meta.counts & FALLBACK != 0) { COUNT(job_fallback, hdr.ina.job); }
                if (meta.counts & DUPLICATE != 0) { COUNT(job_duplicates, hdr.ina.job); }
                if (meta.counts & DROPPED != 0) { COUNT(job_dropped, hdr.ina.job); }
                if (meta.counts & RESULTS != 0) { COUNT(job_results, hdr.ina.job); }
                if (meta.counts & GRANTED != 0) { COUNT(job_granted, hdr.ina.job); }
                if (meta.counts & OUT != 0) { COUNT(job_out, hdr.ina.job); }
            } else {
                meta.lost = 1;
            }
        } else if (hdr.ipv4.isValid()) {
            if (!ipv4_forward.apply().hit) {
                meta.lost = 1;
            }
        } else if (hdr.ethernet.type == 0x0806) {
            SENDALL(FLOOD | (bit<16>)INGRESS_PORT);
        } else {
            meta.lost = 1;
            drop();
        }
        if (meta.lost == 1) {
            COUNT(port_no_route, INGRESS_PORT);
        }
    }
}

#ifdef TNA
control IngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t dprsr) {
    Checksum() sum;
    apply {
        if (meta.rewritten == 1) {
            hdr.ipv4.checksum = sum.update(CHECKSUMMED);
        }
        packet.emit(hdr);
    }
}

struct egress_t {
    bit<1> rewritten;
}

parser EgressParser(packet_in packet, out headers_t hdr, out egress_t meta, out egress_intrinsic_metadata_t eg) {
    state start {
        packet.extract(eg);
        meta.rewritten = 0;
        transition ethernet;
    }
    PARSE(accept)
}

control Leaving(inout headers_t hdr, inout egress_t meta, in egress_intrinsic_metadata_t eg,
               in egress_intrinsic_metadata_from_parser_t prsr, inout egress_intrinsic_metadata_for_deparser_t dprsr,
               inout egress_intrinsic_metadata_for_output_port_t out_port) {
#define EGRESS_PORT eg.egress_port
#define DEEP        eg.deq_qdepth[18:10] != 0 /* in units of 80 bytes: 80 KiB */
#else
control Leaving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
#define EGRESS_PORT std.egress_port
#define DEEP        std.enq_qdepth > 48
#endif
    COUNTER(port_tx, PORTS)
    COUNTER(port_marked, PORTS)
    apply {
        if (hdr.ina.isValid() && DEEP) {
            hdr.ina.flags = hdr.ina.flags | ECN;
            hdr.ipv4.ecn = 3;
            meta.rewritten = 1;
            COUNT(port_marked, EGRESS_PORT);
        }
        COUNT(port_tx, EGRESS_PORT);
    }
}

#ifdef TNA
control EgressDeparser(packet_out packet, inout headers_t hdr, in egress_t meta,
                       in egress_intrinsic_metadata_for_deparser_t dprsr) {
    Checksum() sum;
    apply {
        if (meta.rewritten == 1) {
            hdr.ipv4.checksum = sum.update(CHECKSUMMED);
        }
        packet.emit(hdr);
    }
}

Pipeline(Arrival(), Switching(), IngressDeparser(), EgressParser(), Leaving(), EgressDeparser()) pipe;

Switch(pipe) main;
#else
control NoChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control UpdateChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.rewritten == 1, CHECKSUMMED, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Emission(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(Arrival(), NoChecksum(), Switching(), Leaving(), UpdateChecksum(), Emission()) main;
#endif
