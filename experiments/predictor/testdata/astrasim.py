"""Stands in for AstraSim_Analytical_Congestion_Unaware of ASTRA-sim 2.0 (astra-sim/astra-sim, 518bd51).

It reads what that program reads, refuses what that would, and prints what that prints, from the textbook's time of each
collective: 2(n-1) messages of a ring, log2(n) halvings and as many doublings.
"""
import json
import os
import struct
import sys


def bad(text):
    print("[Error] (stand-in) " + text, file=sys.stderr)
    sys.exit(255)


def network(path):
    found = {}
    for line in open(path):
        key, _, rest = line.partition("#")[0].partition(":")
        if key.strip():
            rest = rest.strip()
            if rest[:1] != "[" or rest[-1:] != "]":
                bad("%s is no list" % key)
            found[key.strip()] = [x.strip() for x in rest[1:-1].split(",")]
    if sorted(found) != ["bandwidth", "latency", "npus_count", "topology"] or any(len(v) != 1 for v in found.values()):
        bad("network %s" % found)
    if found["topology"][0] not in ("Ring", "FullyConnected", "Switch"):
        bad("Topology name %s not supported" % found["topology"][0])
    npus, bandwidth, latency = int(found["npus_count"][0]), float(found["bandwidth"][0]), float(found["latency"][0])
    if npus <= 1 or bandwidth <= 0 or latency < 0:
        bad("npus_count %d, bandwidth %g, latency %g" % (npus, bandwidth, latency))
    return npus, bandwidth * (1 << 30) / 1e9, latency  # B/ns, ns


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at


def fields(data):
    """(number, value) of each field of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            if len(value) != size:
                bad("a message is cut off")
        elif key & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        else:
            bad("wire type %d" % (key & 7))
        yield key >> 3, value


def trace(path):
    """Nodes of a Chakra execution trace: messages with their lengths in front, metadata first."""
    data, at, all = open(path, "rb").read(), 0, []
    while at < len(data):
        size, at = varint(data, at)
        all.append(data[at:at + size])
        at += size
    if list(fields(all[0])) != [(1, b"0.0.4")]:
        bad("%s does not begin with a version" % path)
    nodes, before = [], None
    for body in all[1:]:
        n = {"attr": {}, "deps": []}
        for number, value in fields(body):
            if number == 10:
                inner = dict(fields(value))
                kind = [k for k in inner if k != 1]
                n["attr"][inner[1].decode()] = (kind[0], inner[kind[0]])
            elif number == 5:
                n["deps"] = list(value)  # ids below 128
            else:
                n[{1: "id", 2: "name", 3: "type", 7: "micros"}[number]] = value
        if n["attr"].get("is_cpu_op") != (27, 0) or n["deps"] != ([before] if before else []):
            bad("node %s, after %s" % (n, before))
        before = n["id"]
        nodes.append(n)
    return nodes


def main():
    given = dict(a[2:].split("=", 1) for a in sys.argv[1:])
    npus, rate, latency = network(given["network-configuration"])
    if json.load(open(given["remote-memory-configuration"])) != {"memory-type": "NO_MEMORY_EXPANSION"}:
        bad("memory")
    system = json.load(open(given["system-configuration"]))
    implementation = system["all-reduce-implementation"]
    if implementation not in (["ring"], ["halvingDoubling"]) or system["scheduling-policy"] not in ("LIFO", "FIFO", "EXPLICIT"):
        bad("Cannot interpret collective implementations")
    if not os.path.isdir("log"):
        os.mkdir("log")  # as the program does in the folder it runs in
    for rank in range(npus):
        now = computed = 0
        for n in trace("%s.%d.et" % (given["workload-configuration"], rank)):
            if n["type"] == 4:
                now += n["micros"] * 1000
                computed += n["micros"] * 1000
                continue
            if n["type"] != 7 or n["attr"]["comm_type"] != (9, 0) or n["attr"]["comm_size"][0] != 9:
                bad("node %s" % n)
            size, took = n["attr"]["comm_size"][1], 0
            if implementation == ["ring"]:
                took = 2 * (npus - 1) * int(latency + size / npus / rate)
            else:
                part = size
                for _ in range(npus.bit_length() - 1):
                    part /= 2
                    took += 2 * int(latency + part / rate)
            now += took
        head = "[2026-01-01T00:00:00+0000] [I] "
        print(head + "<workload>: sys[%d] finished, %d cycles, exposed communication %d cycles." % (rank, now, now - computed))
        print(head + "<statistics>: sys[%d], Wall time: %d" % (rank, now))


main()
