#!/usr/bin/env python3
"""A predictor for inabench: max-min shares of links, and memory that whoever comes takes.

    [predictor]
    name = "maxmin"
    command = ["python3", "maxmin.py"]

Reads one request from standard input and writes one answer to standard output, as
docs/PREDICTOR.md says. It needs Python 3.8 and nothing else, and is meant to be copied. With
--keep FILE it leaves what it was asked there, to work on.

The model: each link is shared max-min among jobs, as fair queues per job do, also where a job
puts more than one packet per sum on it. A pool of M aggregators that are held for T each grants
every job the same part of its sums, min(1, 1/sum(C T / M)); "hash" 1/(1 + sum). Queues do not
lengthen T. Of jobs with iterations it follows the time: each computes, then exchanges at the rate
that it would have if all jobs that are there sent all the time.
"""
import json
import math
import sys

TCP_PAYLOAD = 1448 / 1514  # of a frame of a ring


def packets(job, share):
    """Frames that a job puts on each link per frame that a worker sends."""
    on = {}

    def add(link, n):
        if link:
            on[link] = on.get(link, 0) + n

    if job["collective"] == "ring":
        for link in job["hops"]:
            add(link, 1)
        return on
    arrive, below = {}, {}  # at a switch: frames per sum, and workers
    reverse = job["reverse"]
    for up in (w["up"] for w in job["workers"]):
        add(up, 1)
        add(reverse[up], 1)
        at = job["ends"][up]
        arrive[at] = arrive.get(at, 0) + 1
        below[at] = below.get(at, 0) + 1
    for node in job["tree"]:
        name = node["switch"]
        n, workers = arrive.get(name, 0), below.get(name, 0)
        if node["aggregate"] and n > 1:
            n -= share.get(name, 1) * (n - 1)
        if node["up"]:
            add(node["up"], n)
            # Results are multicast; without switches the PS answers each worker.
            add(reverse[node["up"]], workers if job["collective"] == "ps" else 1)
        if node["parent"]:
            arrive[node["parent"]] = arrive.get(node["parent"], 0) + n
            below[node["parent"]] = below.get(node["parent"], 0) + workers
    return on


def fair(capacity, demands):
    """What one more gets of a link, without a demand of its own, beside these demands."""
    left, n = capacity, len(demands) + 1
    for d in sorted(demands):
        if d >= left / n:
            break
        left, n = left - d, n - 1
    return left / n


def max_min(capacity, on, limit):
    """Rates of jobs, and the link that each is held back by: a fixed point of all links' shares."""
    users = {}
    for job, links in on.items():
        for link, n in links.items():
            if n > 0:
                users.setdefault(link, []).append(job)
    may = {job: {link: math.inf for link in links} for job, links in on.items()}
    for _ in range(10 * len(on) + 100):
        change = 0
        for link, jobs in users.items():
            def elsewhere(job):
                return min([limit[job]] + [may[job][l] for l, n in on[job].items() if l != link and n > 0])
            wants = {job: elsewhere(job) * on[job][link] for job in jobs}
            for job in jobs:
                got = fair(capacity[link], [wants[j] for j in jobs if j != job]) / on[job][link]
                if not math.isclose(got, may[job][link], rel_tol=1e-12):
                    change, may[job][link] = 1, got
        if not change:
            break
    rate, why = {}, {}
    for job in on:
        link = min(may[job], key=may[job].get, default=None)
        rate[job], why[job] = limit[job], ""
        if link is not None and may[job][link] < limit[job]:
            rate[job], why[job] = may[job][link], link
    return rate, why


def steady(request, jobs):
    """Rates, shares and link loads while these jobs send."""
    capacity = {l["name"]: l["rate"] for l in request["links"]}
    memory = {s["name"]: s["aggregators"] for s in request["switches"]}
    bits = 8 * request["frame"]["bytes"]
    limit = {}
    for job in jobs:
        rate, window = job["rate"] or math.inf, math.inf
        if job["rtt"] > 0 and job["control"] == "fixed" and job["collective"] != "ring":
            window = job["window"] * bits / job["rtt"]
        limit[job["name"]] = min(rate, window)
    pooled = request["mode"] == "statistical"
    granted = {s: 1.0 for s in memory}
    for step in range(400):
        on = {j["name"]: packets(j, granted) for j in jobs}
        rate, why = max_min(capacity, on, limit)
        use = {s: 0.0 for s in memory}
        for job in jobs:
            for node in job["tree"]:
                if node["aggregate"] and memory[node["switch"]]:
                    use[node["switch"]] += rate[job["name"]] / bits * node["hold"] / memory[node["switch"]]
        change = 0
        for s, u in use.items():
            part = 1 / (1 + u) if request["addressing"] == "hash" else min(1, 1 / u) if u > 0 else 1
            if pooled:
                change = max(change, abs(part - granted[s]))
                granted[s] += (part - granted[s]) / 2
        if change < 1e-9:
            break
    for job in jobs:
        if not why[job["name"]]:
            why[job["name"]] = "rate limit" if job["rate"] and limit[job["name"]] == job["rate"] else "window"
    return rate, granted, on, why


def goodput(request, job, rate):
    if job["collective"] == "ring":
        n = len(job["workers"])
        return rate * TCP_PAYLOAD * n / (2 * (n - 1)) if n > 1 else 0.0
    payload = request["frame"]["payload"]
    size = gradients(job)
    if size:  # the last frame of an iteration is padded
        payload = size / -(-size // payload)
    return rate * payload / request["frame"]["bytes"]


def gradients(job):
    """Bytes of an iteration; 0 of a stream."""
    return sum(l["bytes"] for l in job["layers"]) or job["message"]


def phase(request, jobs):
    rate, granted, on, why = steady(request, jobs)
    out, load = [], {}
    for job in jobs:
        name, several = job["name"], {}
        for up in [w["up"] for w in job["workers"]] + [n["up"] for n in job["tree"] if n["parent"]]:
            at = job["ends"].get(up)
            several[at] = several.get(at, 0) + 1
        out.append({
            "name": name, "goodput": goodput(request, job, rate[name]), "wire_rate": rate[name], "bottleneck": why[name],
            "shares": [{"switch": n["switch"], "share": granted[n["switch"]]} for n in job["tree"]
                       if n["aggregate"] and several.get(n["switch"], 0) > 1],
        })
        for link, n in on[name].items():
            load[link] = load.get(link, 0) + n * rate[name]
    return {"jobs": out, "links": [{"name": l["name"], "load": min(load[l["name"]], l["rate"])}
                                   for l in request["links"] if l["name"] in load]}


def completion(request):
    """When jobs with iterations end, from start to end."""
    left = {j["name"]: j["iterations"] for j in request["jobs"] if j["iterations"]}
    jobs = {j["name"]: j for j in request["jobs"]}
    took, now = {}, 0.0
    while left:
        there = [j for j in request["jobs"] if j["start"] <= now and j["name"] not in took]
        coming = [j["start"] for j in request["jobs"] if j["start"] > now]
        rate = steady(request, [j for j in there if not j["local"]])[0] if there else {}
        pace = {}  # seconds of an iteration
        for job in there:
            if job["name"] not in left:
                continue
            compute = sum(l["compute"] for l in job["layers"])
            size = gradients(job)
            good = 0.0 if job["local"] else goodput(request, job, rate[job["name"]])
            pace[job["name"]] = max(1e-12, compute + (8 * size / good if good > 0 else 0))
        ends = [now + left[name] * pace[name] for name in pace]
        if not ends and not coming:
            break
        then = min(ends + coming)
        for name, each in pace.items():
            left[name] -= (then - now) / each
            if left[name] * each <= 1e-9 * max(1.0, then):
                took[name] = then - jobs[name]["start"]
                del left[name]
        now = then
    return [{"job": name, "seconds": t} for name, t in took.items()]


def main():
    asked = sys.stdin.read()
    if sys.argv[1:2] == ["--keep"]:
        with open(sys.argv[2], "w") as file:
            file.write(asked)
    request = json.loads(asked)
    if request["schema"] != 1:
        sys.exit("maxmin.py knows schema 1, and this is %s" % request["schema"])
    if request["mode"] == "statistical" and request["addressing"] not in ("pool", "hash"):
        sys.exit("maxmin.py knows the addressing modes pool and hash, and not %s" % request["addressing"])
    for job in request["jobs"]:  # what packets() looks up
        job["reverse"] = {l["name"]: l["reverse"] for l in request["links"]}
        job["ends"] = {l["name"]: l["to"] for l in request["links"]}
    by_name = {j["name"]: j for j in request["jobs"]}
    phases = []
    for p in request["phases"]:
        phases.append(phase(request, [by_name[n] for n in p["jobs"] if not by_name[n]["local"]]))
    json.dump({"schema": 1, "phases": phases, "jct": completion(request)}, sys.stdout, allow_nan=False)


if __name__ == "__main__":
    main()
