// In-network aggregation for Tofino (TNA).
//
// Wire format, tables, actions and ids are those of ina_v1model.p4, so the same controller
// drives both. A pipeline of twelve stages with four stateful ALUs each allows less:
//
//   - 32 lanes, one ALU each in eight stages, in one pass without recirculation; ATP and
//     SwitchML fit as many. Packets with other lanes go up as they are, unsummed: the PS adds
//     them. The annotation of aggregate says so, and an experiment that says nothing has them.
//   - Regions are powers of two and aligned to themselves: base + (x & (size - 1)). There is
//     no pool, whose free list would need two accesses to one register in one pass.
//   - What was decided for a PSN is remembered beside its aggregator and not in a ring: whose
//     it is, and the last PSN that it was denied or that is over. That binds all packets of a
//     PSN unless two PSNs are denied the same aggregator at once; the earlier of these may
//     then be granted it half-way, and ends by a resend.
//   - 31 workers, and sums with workers in common are dropped without looking which.
//   - A wrap of a lane is not noticed: a stateful ALU tells one result. Values must be such
//     that sums stay in range.
//   - Statistical mode alone: kept results (synchronous mode) fit, but not beside it.
//
// p4c's front end accepts it (p4c 1.2.5.16, with the tna.p4 of its Tofino back end); no back
// end has compiled it to a chip's stages, and no chip has run it. Treat it as a beginning:
// docs/SWITCHES.md lists the limits of a Tofino 1 that it exceeds.

#include <core.p4>
#include <tna.p4>

#define AGGREGATORS 16384
#define RESENDS     0xF80 // + job: multicast group with instances 1 and 2 on the job's way up

typedef bit<16> slot_t;

const bit<8> RESULT = 0x01;
const bit<8> RESEND = 0x02;
const bit<8> COLLISION = 0x04;
const bit<8> ECN = 0x08;
const bit<8> STATISTICAL = 1;
const bit<8> HASH = 1;
const bit<8> LINEAR = 2;

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
    bit<16> fragment;
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
    bit<32> bitmapHigh;
    bit<32> bitmap;
}

#define EACH_LANE(DO)                                                                 \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12)  \
    DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23)      \
    DO(24) DO(25) DO(26) DO(27) DO(28) DO(29) DO(30) DO(31)

#define FIELD(n) bit<32> v##n;
header lanes_t { EACH_LANE(FIELD) }

// From ingress to egress: a sum that a resend pushes out, ahead of the resend itself.
header push_t {
    bit<8>  flags;
    bit<32> bitmap;
    bit<1>  on;
    bit<7>  pad;
}

struct headers_t {
    push_t     push;
    lanes_t    pushed;
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    ina_t      ina;
    lanes_t    lanes;
}

struct metadata_t {
    bit<16> epoch;
    bit<8>  mode;
    bit<8>  addressing;
    slot_t  base;
    slot_t  mask;
    bit<32> offset;
    bit<32> expect;
    PortId_t upPort;
    bit<16> downGroup;
    bit<32> tag;       // of job, epoch and PSN: whose an aggregator is
    slot_t  slot;
    bit<8>  owned;     // the aggregator is this PSN's: 0 no, 1 already, 2 from now on
    bit<32> others;    // workers in the sum before this packet
    bit<32> together;
    bit<32> common;
    bit<32> missing;
    bit<1>  rewritten;
}

struct pair_t {
    bit<32> owner; // tag of the PSN that has it; 0: free
    bit<32> last;  // tag of the PSN that was last denied it or is over
}

parser IngressParser(packet_in packet, out headers_t hdr, out metadata_t meta, out ingress_intrinsic_metadata_t ig) {
    state start {
        packet.extract(ig);
        packet.advance(PORT_METADATA_SIZE);
        meta = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version_ihl, hdr.ipv4.protocol, hdr.ipv4.fragment, hdr.ipv4.dst) {
            (0x45, 17, 0x0000 &&& 0x3FFF, 0xEF4D0000 &&& 0xFFFF0000): udp; // 239.77: up
            (0x45, 17, 0x0000 &&& 0x3FFF, 0xEF4E0000 &&& 0xFFFF0000): udp; // 239.78: down
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst) {
            0x6000 &&& 0xE000: ina;
            default: accept;
        }
    }
    state ina {
        packet.extract(hdr.ina);
        transition select(hdr.ina.magic, hdr.ina.lanes) {
            (0xA1, 32): lanes;
            default: accept;
        }
    }
    state lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }
}

control Ingress(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t ig,
                in ingress_intrinsic_metadata_from_parser_t prsr, inout ingress_intrinsic_metadata_for_deparser_t dprsr,
                inout ingress_intrinsic_metadata_for_tm_t tm) {
    Counter<bit<64>, PortId_t>(512, CounterType_t.PACKETS_AND_BYTES) port_rx;
    Counter<bit<64>, PortId_t>(512, CounterType_t.PACKETS_AND_BYTES) port_no_route;
    Counter<bit<64>, bit<12>>(4096, CounterType_t.PACKETS_AND_BYTES) job_in;
    Counter<bit<64>, bit<12>>(4096, CounterType_t.PACKETS_AND_BYTES) job_aggregated;
    Counter<bit<64>, bit<12>>(4096, CounterType_t.PACKETS_AND_BYTES) job_fallback;
    Counter<bit<64>, bit<12>>(4096, CounterType_t.PACKETS_AND_BYTES) job_granted;
    Counter<bit<64>, bit<12>>(4096, CounterType_t.PACKETS_AND_BYTES) job_results;
    Counter<bit<64>, bit<12>>(4096, CounterType_t.PACKETS_AND_BYTES) job_duplicates;
    Counter<bit<64>, bit<12>>(4096, CounterType_t.PACKETS_AND_BYTES) job_dropped;

    Hash<bit<16>>(HashAlgorithm_t.CRC16) crc;

    Register<pair_t, slot_t>(AGGREGATORS) owners;
    RegisterAction<pair_t, slot_t, bit<8>>(owners) claim = {
        void apply(inout pair_t value, out bit<8> owned) {
            owned = 0;
            if (value.owner == meta.tag) {
                owned = 1;
            } else if (value.owner == 0 && value.last != meta.tag) {
                value.owner = meta.tag;
                owned = 2;
            } else {
                value.last = meta.tag;
            }
        }
    };
    RegisterAction<pair_t, slot_t, bit<8>>(owners) release = {
        void apply(inout pair_t value, out bit<8> owned) {
            owned = 0;
            if (value.owner == meta.tag) {
                value.owner = 0;
                owned = 1;
            }
            value.last = meta.tag;
        }
    };

    Register<bit<32>, slot_t>(AGGREGATORS) bitmaps;
    RegisterAction<bit<32>, slot_t, bit<32>>(bitmaps) bitmapFirst = {
        void apply(inout bit<32> value, out bit<32> before) {
            before = 0;
            value = hdr.ina.bitmap;
        }
    };
    RegisterAction<bit<32>, slot_t, bit<32>>(bitmaps) bitmapMerge = {
        void apply(inout bit<32> value, out bit<32> before) {
            before = value;
            value = value | hdr.ina.bitmap;
        }
    };
    RegisterAction<bit<32>, slot_t, bit<32>>(bitmaps) bitmapRead = {
        void apply(inout bit<32> value, out bit<32> before) {
            before = value;
        }
    };

#define LANE(n)                                                              \
    Register<bit<32>, slot_t>(AGGREGATORS) sum##n;                           \
    RegisterAction<bit<32>, slot_t, bit<32>>(sum##n) first##n = {            \
        void apply(inout bit<32> value) { value = hdr.lanes.v##n; }          \
    };                                                                       \
    RegisterAction<bit<32>, slot_t, bit<32>>(sum##n) add##n = {              \
        void apply(inout bit<32> value, out bit<32> sum) {                   \
            value = value + hdr.lanes.v##n;                                  \
            sum = value;                                                     \
        }                                                                    \
    };                                                                       \
    RegisterAction<bit<32>, slot_t, bit<32>>(sum##n) read##n = {             \
        void apply(inout bit<32> value, out bit<32> sum) { sum = value; }    \
    };
    EACH_LANE(LANE)

    @id(0x01000002) action drop() { dprsr.drop_ctl = 1; }

    @id(0x01000001) action forward(bit<32> port, bit<48> dst_mac) {
        tm.ucast_egress_port = (PortId_t)port;
        hdr.ethernet.dst = dst_mac;
    }

    @id(0x01000003)
    @inabench[aggregators=AGGREGATORS, jobs=128, window=1048576, resends=RESENDS, powers=1,
             workers=31, synchronous=0, addressing="hash linear atp", lanes=32, whole=1]
    action aggregate(bit<16> epoch, bit<8> mode, bit<8> addressing, bit<32> base, bit<32> size, bit<32> offset,
                     bit<64> expect, bit<1> root, bit<32> window, bit<32> up_port, bit<16> down_group) {
        meta.epoch = epoch;
        meta.mode = mode;
        meta.addressing = addressing;
        meta.base = (slot_t)base;
        meta.mask = (slot_t)size - 1;
        meta.offset = offset;
        meta.expect = (bit<32>)expect;
        meta.upPort = (PortId_t)up_port;
        meta.downGroup = down_group;
        hdr.udp.checksum = 0;
    }

    @id(0x01000004) action forward_only(bit<16> epoch, bit<32> up_port, bit<16> down_group) {
        meta.epoch = epoch;
        meta.mode = 0;
        meta.upPort = (PortId_t)up_port;
        meta.downGroup = down_group;
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

    apply {
        port_rx.count(ig.ingress_port);
        if (!hdr.ina.isValid()) {
            if (!ipv4_forward.apply().hit) {
                port_no_route.count(ig.ingress_port);
            }
        } else if (!job.apply().hit) {
            port_no_route.count(ig.ingress_port);
        } else if (hdr.ina.epoch != meta.epoch) {
            job_dropped.count((bit<12>)hdr.ina.job);
            drop();
        } else {
            // 7 bits of job, 2 of epoch, 23 of PSN: never 0, and distinct within any window.
            meta.tag = hdr.ina.job[6:0] ++ hdr.ina.epoch[1:0] ++ hdr.ina.psn[22:0];
            if (meta.addressing == HASH) {
                meta.slot = crc.get({ hdr.ina.job, hdr.ina.psn });
            } else if (meta.addressing == LINEAR) {
                meta.slot = (slot_t)(meta.offset + hdr.ina.psn);
            } else {
                meta.slot = hdr.ina.slot;
            }
            meta.slot = meta.slot & meta.mask;
            meta.slot = meta.slot | meta.base;
            bool aggregates = meta.mode == STATISTICAL && meta.mask != 0xFFFF && hdr.lanes.isValid();

            if (hdr.ina.flags & RESULT != 0) {
                if (aggregates) {
                    release.execute(meta.slot);
                }
                job_results.count((bit<12>)hdr.ina.job);
                tm.mcast_grp_a = meta.downGroup;
            } else {
                job_in.count((bit<12>)hdr.ina.job);
                if (aggregates) {
                    if (hdr.ina.flags & RESEND != 0) {
                        meta.owned = release.execute(meta.slot);
                    } else {
                        meta.owned = claim.execute(meta.slot);
                    }
                }
                if (meta.owned != 0 && hdr.ina.flags & RESEND != 0) {
                    meta.others = bitmapRead.execute(meta.slot);
                } else if (meta.owned == 2) {
                    meta.others = bitmapFirst.execute(meta.slot);
                    job_granted.count((bit<12>)hdr.ina.job);
                } else if (meta.owned == 1) {
                    meta.others = bitmapMerge.execute(meta.slot);
                }
                meta.common = meta.others & hdr.ina.bitmap;
                meta.together = meta.others | hdr.ina.bitmap;
                meta.missing = meta.together ^ meta.expect;

                if (meta.owned == 0) { // denied, over, or not for a sum
                    if (meta.mode == STATISTICAL) {
                        hdr.ina.flags = hdr.ina.flags | COLLISION;
                    }
                    job_fallback.count((bit<12>)hdr.ina.job);
                    tm.ucast_egress_port = meta.upPort;
                } else if (hdr.ina.flags & RESEND != 0) {
                    hdr.push.setValid();
                    hdr.push.on = 1;
                    hdr.push.flags = RESEND;
                    hdr.push.bitmap = meta.others;
                    hdr.pushed.setValid();
#define READ(n) hdr.pushed.v##n = read##n.execute(meta.slot);
                    EACH_LANE(READ)
                    hdr.ina.flags = hdr.ina.flags | COLLISION;
                    job_fallback.count((bit<12>)hdr.ina.job);
                    tm.mcast_grp_a = RESENDS | hdr.ina.job;
                } else if (meta.owned == 2) {
#define FIRST(n) first##n.execute(meta.slot);
                    EACH_LANE(FIRST)
                    job_aggregated.count((bit<12>)hdr.ina.job);
                    drop();
                } else if (meta.common != 0) {
                    job_duplicates.count((bit<12>)hdr.ina.job);
                    drop();
                } else {
#define ADD(n) hdr.lanes.v##n = add##n.execute(meta.slot);
                    EACH_LANE(ADD)
                    job_aggregated.count((bit<12>)hdr.ina.job);
                    if (meta.missing == 0) {
                        hdr.ina.slot = 0;
                        hdr.ina.rank = 0xFF;
                        hdr.ina.bitmap = meta.together;
                        hdr.ipv4.ecn = 0;
                        meta.rewritten = 1;
                        tm.ucast_egress_port = meta.upPort;
                    } else {
                        drop();
                    }
                }
            }
        }
        if (!hdr.push.isValid()) { // egress always finds one
            hdr.push.setValid();
            hdr.push.on = 0;
        }
    }
}

control IngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t dprsr) {
    Checksum() sum;
    apply {
        if (meta.rewritten == 1) {
            hdr.ipv4.checksum = sum.update({
                hdr.ipv4.version_ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.len, hdr.ipv4.id, hdr.ipv4.fragment,
                hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst
            });
        }
        packet.emit(hdr);
    }
}

struct egress_metadata_t {
    bit<1> rewritten;
}

parser EgressParser(packet_in packet, out headers_t hdr, out egress_metadata_t meta, out egress_intrinsic_metadata_t eg) {
    state start {
        packet.extract(eg);
        meta.rewritten = 0;
        packet.extract(hdr.push);
        transition select(hdr.push.on) {
            1: pushed;
            default: ethernet;
        }
    }
    state pushed {
        packet.extract(hdr.pushed);
        transition ethernet;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version_ihl, hdr.ipv4.protocol, hdr.ipv4.fragment, hdr.ipv4.dst) {
            (0x45, 17, 0x0000 &&& 0x3FFF, 0xEF4C0000 &&& 0xFFFC0000): udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst) {
            0x6000 &&& 0xE000: ina;
            default: accept;
        }
    }
    state ina {
        packet.extract(hdr.ina);
        transition select(hdr.ina.lanes) {
            32: lanes;
            default: accept;
        }
    }
    state lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }
}

control Egress(inout headers_t hdr, inout egress_metadata_t meta, in egress_intrinsic_metadata_t eg,
               in egress_intrinsic_metadata_from_parser_t prsr, inout egress_intrinsic_metadata_for_deparser_t dprsr,
               inout egress_intrinsic_metadata_for_output_port_t port) {
    Counter<bit<64>, PortId_t>(512, CounterType_t.PACKETS_AND_BYTES) port_tx;
    Counter<bit<64>, PortId_t>(512, CounterType_t.PACKETS_AND_BYTES) port_marked;
    apply {
        if (hdr.pushed.isValid() && eg.egress_rid == 2) {
            hdr.lanes = hdr.pushed;
            hdr.ina.flags = hdr.push.flags;
            hdr.ina.bitmap = hdr.push.bitmap;
            hdr.ina.slot = 0;
            hdr.ina.rank = 0xFF;
            hdr.ipv4.ecn = 0;
            meta.rewritten = 1;
        }
        // The unit of the queue's depth is 80 bytes: 64 KiB.
        if (hdr.ina.isValid() && eg.deq_qdepth[18:10] != 0) {
            hdr.ina.flags = hdr.ina.flags | ECN;
            hdr.ipv4.ecn = 3;
            meta.rewritten = 1;
            port_marked.count(eg.egress_port);
        }
        hdr.push.setInvalid();
        hdr.pushed.setInvalid();
        port_tx.count(eg.egress_port);
    }
}

control EgressDeparser(packet_out packet, inout headers_t hdr, in egress_metadata_t meta,
                       in egress_intrinsic_metadata_for_deparser_t dprsr) {
    Checksum() sum;
    apply {
        if (meta.rewritten == 1) {
            hdr.ipv4.checksum = sum.update({
                hdr.ipv4.version_ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.len, hdr.ipv4.id, hdr.ipv4.fragment,
                hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst
            });
        }
        packet.emit(hdr);
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;

Switch(pipe) main;
