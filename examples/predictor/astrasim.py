#!/usr/bin/env python3
"""ASTRA-sim as a predictor for inabench: rings, halving and doubling by it, aggregation by a formula.

    [predictor]
    name = "astrasim"
    command = ["python3", "astrasim.py", "--binary", "/opt/astra-sim/AstraSim_Analytical_Congestion_Unaware"]
    timeout = "5m"

Reads one request from standard input and writes one answer to standard output, as docs/PREDICTOR.md
says. It needs Python 3.8, a binary of ASTRA-sim's analytical backend, and nothing else.

Of each job that reduces by "ring", "halving-doubling" or "halving-doubling-near" it writes what ASTRA-sim 2.0 reads:
a network of one dimension (YAML), a system (JSON), a remote memory (JSON), and for each rank one iteration as a
Chakra execution trace 0.0.4: each layer computes, then all ranks reduce it. The program prints for each rank

    sys[0] finished, 117780 cycles, exposed communication 117780 cycles.

where a cycle is a nanosecond; the last rank's is how long an iteration takes. The formats are those of
astra-sim/astra-sim at 518bd51 and mlcommons/chakra at 21585d8.

The network is "FullyConnected": a message between two ranks has one rate and one delay, those of the slowest
step of the collective, where ranks that send over one link at once share it. Completion times are those of jobs that are
alone; in phases, what all jobs of the phase put on a link shares its rate. Jobs of "ina" and "ps" do not exist in
ASTRA-sim: --aggregation formula (the default) takes the rate of their slowest link, with all the memory that they
want, and --aggregation refuse ends with a message.
"""
import argparse
import collections
import json
import math
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TCP_PAYLOAD = 1448 / 1514  # of a frame
GB = 1 << 30  # B, as ASTRA-sim's analytical network has it
MOST_RANKS = 4096  # of a job: each has a link to a file
MOST_LAYERS = 4096
MOST_OUTPUT, LINE = 16 << 20, 256  # B, the latter of each layer of each rank
IMPLEMENTATIONS = {"ring": "ring", "halving-doubling": "halvingDoubling", "halving-doubling-near": "halvingDoubling"}


class Refused(Exception):
    """What cannot be answered, for people."""


# What Chakra's et_def.proto calls them.
COMP_NODE, COMM_COLL_NODE, ALL_REDUCE = 4, 7, 0


def varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number, value):
    """A field of a protobuf message: a number, or what has a length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(body):
    return varint(len(body)) + body


def attribute(name, number, value):
    return field(10, field(1, name) + field(number, value))


def node(number, name, kind, body):
    after = field(5, varint(number - 1)) if number > 1 else b""  # data_deps
    not_on_cpu = attribute("is_cpu_op", 27, 0)
    return message(field(1, number) + field(2, name) + field(3, kind) + after + body + not_on_cpu)


def execution_trace(layers):
    """One iteration of a rank: (seconds, bytes) of each layer, one after the other."""
    out, number = message(field(1, "0.0.4")), 0
    for seconds, size in layers:
        if seconds > 0:
            number += 1
            micros = max(1, round(seconds * 1e6))
            out += node(number, "compute_%d" % number, COMP_NODE, field(7, micros))
        if size > 0:
            number += 1
            how = attribute("comm_type", 9, ALL_REDUCE) + attribute("comm_size", 9, size)
            out += node(number, "all_reduce_%d" % number, COMM_COLL_NODE, how)
    return out


class Program:
    """The user's binary, with what it said of the same inputs before."""

    def __init__(self, binary, timeout, keep):
        self.binary = shutil.which(binary)
        if not self.binary:
            raise Refused("no program %s: --binary names one of ASTRA-sim's analytical backend" % binary)
        self.binary = os.path.abspath(self.binary)
        self.end, self.timeout, self.keep = time.monotonic() + timeout, timeout, new_folder(keep) if keep else None
        self.known = {}

    def seconds(self, implementation, ranks, rate, delay, layers):
        """How long an iteration takes at bit/s of payload and s."""
        key = (implementation, ranks, rate, delay, tuple(layers))
        if key not in self.known:
            if self.keep:
                folder = os.path.join(self.keep, "run%d" % (1 + len(self.known)))
                os.mkdir(folder)
                self.known[key] = self.ask(folder, *key)
            else:
                with tempfile.TemporaryDirectory(prefix="astrasim-") as folder:
                    self.known[key] = self.ask(folder, *key)
        return self.known[key]

    def ask(self, folder, implementation, ranks, rate, delay, layers):
        def write(name, content):
            path = os.path.abspath(os.path.join(folder, name))
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
            return path

        network = write("network.yml", "topology: [ FullyConnected ]\nnpus_count: [ %d ]\nbandwidth: [ %.9g ]  # GB/s\nlatency: [ %.3f ]  # ns\n"
                        % (ranks, rate / 8 / GB, delay * 1e9))
        system = write("system.json", json.dumps({
            "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 1,
            "all-reduce-implementation": [implementation], "all-gather-implementation": ["ring"],
            "reduce-scatter-implementation": ["ring"], "all-to-all-implementation": ["ring"],
            "collective-optimization": "localBWAware", "local-mem-bw": 1600, "boost-mode": 0,
        }))
        memory = write("memory.json", json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}))
        write("workload.0.et", execution_trace(layers))
        for rank in range(1, ranks):  # which all do the same
            os.symlink("workload.0.et", os.path.join(folder, "workload.%d.et" % rank))
        said = self.run(folder, [
            "--workload-configuration=" + os.path.abspath(os.path.join(folder, "workload")), "--system-configuration=" + system,
            "--remote-memory-configuration=" + memory, "--network-configuration=" + network],
            MOST_OUTPUT + LINE * ranks * len(layers))
        cycles = {int(rank): int(n) for rank, n in re.findall(rb"sys\[(\d{1,9})\] finished, (\d{1,18}) cycles", said)}
        if sorted(cycles) != list(range(ranks)):
            raise Refused("%s says when %d of %d ranks finished, and ends with: %s" % (self.binary, len(cycles), ranks, tail(said)))
        return max(cycles.values()) / 1e9

    def run(self, folder, arguments, most):
        """What the program prints, at most so many bytes."""
        if time.monotonic() >= self.end:
            raise Refused("no time is left after %g s: --timeout is for all runs of the program together" % self.timeout)
        try:  # in a session of its own, so that all that it starts ends with it
            program = subprocess.Popen([self.binary] + arguments, cwd=folder, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as e:
            raise Refused("%s cannot be started: %s" % (self.binary, e.strerror))
        try:
            said = self.hear(program.stdout.fileno(), most)
            code = program.wait(max(0.001, self.end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self.late()
        finally:
            stop(program)
        if code != 0:
            raise Refused("%s ended %s %d: %s" % (self.binary, "with code" if code > 0 else "by signal", abs(code), tail(said)))
        return said

    def hear(self, pipe, most):
        """What comes out of a pipe until it is closed."""
        said = bytearray()
        while True:
            left = self.end - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise self.late()
            part = os.read(pipe, 1 << 16)
            if not part:
                return bytes(said)
            said += part
            if len(said) > most:
                raise Refused("%s printed more than %d MiB" % (self.binary, most >> 20))

    def late(self):
        return Refused("%s had not finished after %g s, for which --timeout lets all its runs go on together" % (self.binary, self.timeout))


def stop(program):
    """Ends a program, and what is left of all that it started."""
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    program.wait()
    program.stdout.close()


def new_folder(parent):
    """A folder of this request's own, as a predictor is started for each."""
    os.makedirs(parent, exist_ok=True)
    number = 1
    while True:
        folder = os.path.join(parent, "request%d" % number)
        try:
            os.mkdir(folder)
            return folder
        except FileExistsError:
            number += 1


def tail(said):
    return repr(said[-500:].decode(errors="replace").strip())


class Network:
    """Links, and the shortest ways over them."""

    def __init__(self, request):
        self.links = {l["name"]: l for l in request["links"]}
        self.out = {}
        for l in request["links"]:
            self.out.setdefault(l["from"], []).append(l)
        self.ways = {}

    def way(self, a, b):
        """Names of the links from a host to another."""
        if (a, b) in self.ways:
            return self.ways[a, b]
        came, queue = {a: None}, collections.deque([a])
        while queue and b not in came:
            at = queue.popleft()
            for l in self.out.get(at, []):
                if l["to"] not in came:
                    came[l["to"]] = l
                    queue.append(l["to"])
        if b not in came:
            raise Refused("there is no way from %s to %s" % (a, b))
        names, at = [], b
        while came[at]:
            names.append(came[at]["name"])
            at = came[at]["from"]
        self.ways[a, b] = names[::-1]
        return self.ways[a, b]


def steps(job):
    """Of each step of a collective, how many of its messages cross each link, and their ways."""
    hosts = [w["host"] for w in job["workers"]]
    n = len(hosts)
    if job["collective"] == "ring":
        return [[(hosts[i], hosts[(i + 1) % n]) for i in range(n)]]
    if n & (n - 1):
        raise Refused("job %s: halving and doubling is for a power of two ranks, and it has %d" % (job["name"], n))
    return [[(hosts[i], hosts[i ^ 1 << k]) for i in range(n)] for k in range(n.bit_length() - 1)]


def crossings(network, pairs):
    on = collections.Counter()
    for a, b in pairs:
        if a != b:
            on.update(network.way(a, b))
    return on


def packets(network, job):
    """Of a job with aggregation, or a parameter server: frames on each link per frame that a worker sends."""
    on, arrive, below = collections.Counter(), collections.Counter(), collections.Counter()
    for w in job["workers"]:
        up = network.links[w["up"]]
        on[up["name"]] += 1
        on[up["reverse"]] += 1
        arrive[up["to"]] += 1
        below[up["to"]] += 1
    for n in job["tree"]:
        at = n["switch"]
        leave = min(1, arrive[at]) if n["aggregate"] else arrive[at]
        if n["up"]:
            on[n["up"]] += leave
            on[network.links[n["up"]]["reverse"]] += below[at] if job["collective"] == "ps" else 1
        if n["parent"]:
            arrive[n["parent"]] += leave
            below[n["parent"]] += below[at]
    return on


class Model:
    """What jobs get, alone or beside others."""

    def __init__(self, request, program, aggregation, stream):
        self.request, self.program, self.aggregation, self.stream = request, program, aggregation, stream
        self.network = Network(request)

    def load(self, job):
        """Frames of a job that are on each link at once."""
        if job["collective"] in ("ina", "ps"):
            return packets(self.network, job)
        if job["hops"]:  # a ring's ways, which are not always the shortest that this program finds first
            return collections.Counter(job["hops"])
        most = collections.Counter()
        for pairs in steps(job):
            most |= crossings(self.network, pairs)
        return most

    def rate(self, job, others):
        """Bit/s of frames on the slowest way of a job, where these others send, too."""
        rate = job["rate"] or math.inf
        beside = collections.Counter()
        for o in others:
            beside.update(self.load(o))
        for link, n in self.load(job).items():
            if n > 0:
                rate = min(rate, self.network.links[link]["rate"] / (n + beside[link]))
        return rate

    def iteration(self, job, others, layers):
        """Seconds that layers, of (seconds, bytes), take one after the other."""
        if job["local"]:
            return sum(seconds for seconds, _ in layers)
        if job["collective"] in ("ina", "ps"):
            return self.formula(job, self.rate(job, others), layers)
        if job["collective"] not in IMPLEMENTATIONS:
            raise Refused("job %s reduces by %s, which ASTRA-sim has no implementation of" % (job["name"], job["collective"]))
        rate = self.rate(job, others)
        if rate == math.inf:
            raise Refused("job %s has all ranks on one host, between which there is no link" % job["name"])
        delay = max(sum(self.network.links[l]["delay"] for l in self.network.way(a, b)) for pairs in steps(job) for a, b in pairs)
        ranks = len(job["workers"])
        if not 2 <= ranks <= MOST_RANKS or len(layers) > MOST_LAYERS:
            raise Refused("job %s has %d ranks and %d layers: 2 to %d ranks, at most %d layers" % (job["name"], ranks, len(layers), MOST_RANKS, MOST_LAYERS))
        least = [(seconds, max(size, ranks) if size > 0 else 0) for seconds, size in layers]
        return self.program.seconds(IMPLEMENTATIONS[job["collective"]], ranks, rate * TCP_PAYLOAD, delay, least)

    def formula(self, job, rate, layers):
        if self.aggregation == "refuse":
            raise Refused("job %s reduces by %s, which ASTRA-sim does not have; --aggregation formula answers for it" % (job["name"], job["collective"]))
        frame = self.request["frame"]
        if job["control"] == "fixed" and job["rtt"] > 0:
            rate = min(rate, job["window"] * 8 * frame["bytes"] / job["rtt"])
        good = rate * frame["payload"] / frame["bytes"]
        return sum(seconds + (8 * size / good + job["rtt"] if size > 0 else 0) for seconds, size in layers)

    def layers(self, job):
        if job["layers"]:
            return [(l["compute"], l["bytes"]) for l in job["layers"]]
        return [(0, job["message"] or self.stream)]

    def goodput(self, job, others):
        layers = self.layers(job)
        took = self.iteration(job, others, layers)
        return 8 * sum(size for _, size in layers) / took if took > 0 else 0.0

    def answer(self):
        by_name = {j["name"]: j for j in self.request["jobs"]}
        phases = []
        for p in self.request["phases"]:
            there = [by_name[name] for name in p["jobs"] if not by_name[name]["local"]]
            phases.append({"jobs": [{"name": j["name"], "goodput": self.goodput(j, [o for o in there if o is not j])} for j in there], "links": []})
        jct = [{"job": j["name"], "seconds": j["iterations"] * self.iteration(j, [], self.layers(j))} for j in self.request["jobs"] if j["iterations"]]
        return {"schema": self.request["schema"], "phases": phases, "jct": jct}


def main():
    flags = argparse.ArgumentParser(description="ASTRA-sim as a predictor for inabench.")
    flags.add_argument("--binary", required=True, help="of ASTRA-sim's analytical backend")
    flags.add_argument("--aggregation", choices=["formula", "refuse"], default="formula", help="what becomes of jobs with ina or ps")
    flags.add_argument("--stream", type=int, default=64 << 20, metavar="BYTES", help="gradients of an all-reduce of a job that never stops")
    flags.add_argument("--timeout", type=float, default=50, metavar="S", help="for all runs of the program together")
    flags.add_argument("--keep", metavar="FOLDER", help="leave what the program reads there")
    given = flags.parse_args()
    if given.stream < 1 or not 0 < given.timeout < 1e6:
        flags.error("--stream and --timeout are above 0")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("astrasim.py: ended by SIGTERM"))  # with its files, and the program
    request = json.load(sys.stdin)
    if request["schema"] not in (1, 2):
        sys.exit("astrasim.py knows schemas 1 and 2, and this is %s" % request["schema"])
    if request.get("operations"):
        sys.exit("astrasim.py: jobs of [operations] take turns with trees, which ASTRA-sim does not have")
    try:
        model = Model(request, Program(given.binary, given.timeout, given.keep), given.aggregation, given.stream)
        sys.stdout.write(json.dumps(model.answer(), allow_nan=False))  # all of it, or nothing
    except (Refused, OSError) as e:
        sys.exit("astrasim.py: %s" % e)


if __name__ == "__main__":
    main()
